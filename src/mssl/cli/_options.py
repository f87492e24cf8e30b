"""Options that several commands share, output of commands, and translation of messages from parameters to options."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import IO, Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import click

from mssl._typing import Json
from mssl.exceptions import DatasetError, require
from mssl.graph.export import short_name, visible
from mssl.graph.tables import text_table


def plain(value: object) -> object:
    """Return a value in a form that JSON allows: numbers, text and lists; numbers that are not finite become null."""
    text = json.dumps(value, default=lambda other: other.tolist() if hasattr(other, "tolist") else str(other))
    return json.loads(text, parse_constant=lambda name: None)  # The constants are NaN, Infinity and -Infinity.


def json_text(document: object, *, ascii_only: bool = False) -> str:
    """Return a JSON document as text; characters that cannot be displayed are written as JSON escapes."""
    text = json.dumps(plain(document), ensure_ascii=ascii_only, indent=1)
    return re.sub(r"[^ -~\n]", lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


def print_json(document: object) -> None:
    """Print a JSON document; characters outside the encoding of the stream are escaped."""
    encoding = getattr(standard_output(), "encoding", None) or "utf-8"
    print_result(json_text(document, ascii_only=not encoding.lower().startswith("utf")))


def print_result(text: str) -> None:
    """Print the result of a command."""
    stream = standard_output()
    shown = visible(text, keep="\n\t") if stream.isatty() else text
    stream.write(shown if shown.endswith("\n") else f"{shown}\n")


def standard_output() -> IO[str]:
    """Return the stream for results; a closed stream raises, so that results are not lost silently."""
    if sys.stdout is None:
        raise DatasetError("The standard output is closed; open it, or write to a file with -o if the command has it.")
    return sys.stdout


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns; values of None are left out."""
    rows = [(name, str(value)) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        line = "".join(c if c.isprintable() else " " for c in value)
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {line}")


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table; names are made safe, and shortened on a terminal."""
    if title:
        click.echo(f"\n{click.style(title, bold=True)}")
    click.echo(text_table([header, *(list(map(_cell, row)) for row in rows)]))


def check_picture(picture: str | None, *inputs: str) -> None:
    """Raise before the computation if its picture could not be written afterwards."""
    check_target(picture, *inputs)
    if picture is None:
        return
    require("matplotlib", "plot", "--picture")
    if Path(picture).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise click.UsageError(f"--picture is {picture!r}; give a name that ends in .png, .pdf or .svg.")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return short_name(value, 40 if standard_output().isatty() else sys.maxsize)


def check_target(path: str | None, *inputs: str | None) -> None:
    """Raise before the computation if its result could not be written afterwards, or would replace an input."""
    if path is None:
        return
    target = Path(path)
    for name in inputs:
        if name is not None and target.exists() and Path(name).exists() and target.samefile(name):
            raise DatasetError(
                f"{path!r} is the same file as the input {name!r}, which would be overwritten; choose another name."
            )
    if target.exists() and not target.is_file():  # Pipes and devices are written to directly.
        possible = not target.is_dir() and os.access(target, os.W_OK)
    else:
        folder = Path(os.path.realpath(target)).parent
        possible = folder.is_dir() and os.access(folder, os.W_OK)
    if not possible:
        raise DatasetError(f"{path!r} cannot be written; give a file in a folder that exists and is writable.")


def forget_running(model: Any) -> None:
    """Reset the parameters about running a fit, so that equal fits give equal files."""
    for part in (model, getattr(model, "stability_", None), getattr(model, "best_estimator_", None)):
        if part is not None:
            known = part.get_params(deep=False)
            idle = {"n_jobs": None, "checkpoint": None, "verbose": 0}
            part.set_params(**{name: value for name, value in idle.items() if name in known})


# Options for parameters, with another name or the same; all other parameters are given by --set.
_OPTIONS = {"categorical_features": "categorical", "groups": "group", "loss": "family", "task_column": "task"}
_OPTIONS |= {name: name for name in ("drop", "method", "missing", "missing_target", "order", "subsample", "unseen")}
_PHRASES = {
    "safe=False": "--no-safe-csv",
    "safe=True": "--safe-csv",
    "relation='residual'": "--method r-mssl",
    "relation='coef'": "--method p-mssl",
    "y of shape (n, K)": "--time, where every task has one row at each time",
    "task_column": "--task",
}


def in_options(text: str) -> str:
    """Translate a message from parameters (``unseen='mean'``) to options (``--unseen mean``).

    Examples
    --------
    >>> in_options("give groups='day' to fit, or features='spline'")
    'give --group day, or --set features=spline'
    """
    text = re.sub(r"X\.drop\(columns=('[^']*')\)", r"drop=\1", text)
    for phrase, words in _PHRASES.items():
        text = text.replace(phrase, words)
    return re.sub(r"\b([a-z_]+)=(?:\[?'([^']*)'\]?| (?=to fit\b))(?: ?to fit\b)?", _option, text)


def _option(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    if name in _OPTIONS:
        return f"--{_OPTIONS[name].replace('_', '-')} {value or 'COLUMN'}"
    return f"--set {name}={value}"


Kind = TypeVar("Kind", bound=click.Command)


class _StandardError(logging.Handler):
    """A handler that writes to the current standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


def _start_logging(ctx: click.Context, param: click.Parameter, level: str) -> None:
    logger = logging.getLogger("mssl")
    logger.setLevel("ERROR" if ctx.params.get("quiet") else level.upper())
    if not logger.handlers:
        logger.addHandler(_StandardError())


def _names(ctx: click.Context, param: click.Parameter, text: str | None) -> list[str] | None:
    """Return the names in a comma-separated option."""
    names = None if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if names == [] and param.name == "features":
        raise click.UsageError(
            f"--features {text!r} names no column; give names separated by commas, such as --features wind,sun, "
            "or leave the option out to use all columns."
        )
    return names


def _parsed(ctx: click.Context, param: click.Parameter, settings: tuple[str, ...]) -> Json:
    """Return ``NAME=VALUE`` pairs as parameters; values are numbers, true, false, none, or text."""
    parsed: Json = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not name:
            raise click.UsageError(f"--set is {setting!r}; give a name and a value, such as graph_penalty=0.3.")
        parsed[name] = {"true": True, "false": False, "none": None}.get(text.lower(), text)
        for kind in (float, int):
            with suppress(ValueError):
                parsed[name] = kind(text)
    return parsed


def command(
    function: Callable[..., None],
    kind: type[Kind] = click.Command,  # type: ignore[assignment]  # mypy does not allow a default of a type variable.
    **how: Any,
) -> Kind:
    """Return a command whose options are the parameters of a function.

    The annotation of a parameter holds its type, its help and optionally settings for click; the setting ``names`` is
    the spelling of the option. A parameter without a help text becomes an argument. A parameter whose type is a
    dataclass stands for one option per field; several commands share such options.
    """
    # Docstrings are raw so that click sees the marks of paragraphs that must not be rewrapped.
    text = cleandoc(function.__doc__ or "").replace("\\b\n", "\b\n")

    def called(**given: Any) -> None:
        _make(function, given)

    return kind(function.__name__, callback=called, params=[*_parameters(function)], help=text, **how)


def _make(target: Callable[..., Any], given: Json) -> Any:
    """Call a function, or create a dataclass, with the given values that are its parameters."""
    kinds = get_type_hints(target)
    shared = {name: _make(kinds[name], given) for name in signature(target).parameters if is_dataclass(kinds[name])}
    return target(**shared, **{name: given[name] for name in signature(target).parameters if name in given})


def _parameters(target: Callable[..., Any]) -> Iterator[click.Parameter]:
    hints = get_type_hints(target, include_extras=True)
    for name, parameter in signature(target).parameters.items():
        if is_dataclass(hints[name]):
            yield from _parameters(hints[name])
            continue
        kind, *(help_text, settings) = (*get_args(hints[name]), {})[:3]
        yield _parameter(name, parameter.default, kind, help_text, dict(settings))


def _parameter(name: str, default: Any, kind: Any, help_text: str, settings: Json) -> click.Parameter:
    """Return the argument or the option for an annotated parameter."""
    if not help_text:
        return click.Argument([name], required=default is Parameter.empty, **settings)
    inner = next((part for part in (kind, *get_args(kind)) if get_origin(part) is Literal or part in _TYPES), str)
    usual = {"type": click.Choice(get_args(inner))} if get_origin(inner) is Literal else _TYPES[inner]
    if default is Parameter.empty:
        usual = {"required": True, **usual}
    else:
        usual = {"default": default, "show_default": not (default is None or default is False), **usual}
    written = settings.pop("names", [f"--{name.replace('_', '-')}"])
    return click.Option([*written, name], help=help_text, **(usual | settings))


Names: TypeAlias = list[str] | None
PATH: Json = {"type": click.Path()}
OUTPUT = PATH | {"names": ["--output", "-o"]}
# Click's settings by type of the parameter; text is read unchanged.
_TYPES: dict[Any, Json] = {
    bool: {"type": bool, "is_flag": True},
    int: {"type": int},
    float: {"type": float},
    str: {"type": str},
    list[str]: {"type": str, "callback": _names},
    Json: {"type": str, "multiple": True, "required": False, "metavar": "NAME=VALUE", "callback": _parsed},
}
File: TypeAlias = Annotated[str, "", PATH]
Jobs: TypeAlias = Annotated[int | None, "Worker processes, -1 for all cores; the answer is the same."]
Settings: TypeAlias = Annotated[
    Json, "Fix a parameter instead of choosing it, such as graph_penalty=0.3.", {"names": ["--set"]}
]
Edges: TypeAlias = Annotated[
    str | None,
    "Table of the edges between tasks, for s2m2r: two columns of tasks, and one named weight if they differ.",
    PATH,
]
SafeCSV: TypeAlias = Annotated[
    bool | None,
    "Keep names from acting as formulas in a spreadsheet or on a terminal: an apostrophe before =, +, -, @, escapes "
    "spelt out. By default where a name needs it, with a note.",
    {"names": ["--safe-csv/--no-safe-csv"]},
]


@dataclass(frozen=True)
class Answer:
    """Output of a command: text or one JSON document."""

    as_json: Annotated[bool, "Print one JSON document instead of text.", {"names": ["--json"]}] = False

    def tell(self, document: Any, show: Callable[[Any], object], *, quiet: bool = False) -> None:
        """Print the result of a command: as JSON, or by `show` unless `quiet`."""
        if self.as_json:
            print_json(document)
        elif not quiet:
            show(document)


@dataclass(frozen=True)
class Telling(Answer):
    """Output and log messages of a command that runs for a while."""

    quiet: Annotated[
        bool,
        "Print no notes and no summaries: nothing but errors, and the tables of compare and select.",
        {"names": ["--quiet", "-q"], "is_eager": True},
    ] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        "Messages on standard error: every stage (debug), long work (info), notes (warning), errors only (error).",
        {"expose_value": False, "callback": _start_logging},
    ] = "info"

    @property
    def verbose(self) -> int:
        """Whether progress bars are shown, in the form of the estimators' parameter."""
        return int(sys.stderr.isatty() and not self.quiet)


@dataclass(frozen=True)
class Running(Telling):
    """Options for running a command that fits."""

    jobs: Jobs = None
    seed: Annotated[
        int,
        "Seed of the folds, which are random unless --order makes them blocks of time, and of the halves of stability "
        "selection.",
        {"type": click.IntRange(0)},
    ] = 0
    resume: Annotated[
        bool,
        "Record finished work in FILE.checkpoint, beside the file of --save (compare: DATA.compare.checkpoint here). "
        "After an interruption the same command continues from there.",
    ] = False

    @contextmanager
    def recorded(self, path: str | None) -> Iterator[Json]:
        """Yield parameters for estimators and searches; the record of finished work is removed after success."""
        if self.resume and path is None:
            raise click.UsageError("--resume records finished work beside the model; give its file with --save.")
        record = Path(f"{path}.checkpoint") if self.resume else None
        yield {"n_jobs": self.jobs, "checkpoint": record, "verbose": self.verbose}
        if record is not None:
            record.unlink(missing_ok=True)
