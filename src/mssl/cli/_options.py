"""Options that several commands have, what commands print, and messages of the library in terms of options."""

from __future__ import annotations

import json
import logging
import math
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
import numpy as np

from mssl._typing import Json
from mssl.exceptions import DatasetError, require
from mssl.graph.export import short_name, visible
from mssl.graph.tables import text_table


def plain(value: object) -> object:
    """A value as JSON allows it: numbers, text, lists, and null for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(content) for key, content in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def json_text(document: object, *, ascii_only: bool = False) -> str:
    """One JSON document as text; characters that cannot be shown are written as JSON's escapes."""
    text = json.dumps(plain(document), ensure_ascii=ascii_only, indent=1)
    return re.sub(r"[^ -~\n]", lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


def print_json(document: object) -> None:
    """Print one JSON document; where a stream may lack characters, they are escaped."""
    encoding = getattr(standard_output(), "encoding", None) or "utf-8"
    print_result(json_text(document, ascii_only=not encoding.lower().startswith("utf")))


def print_result(text: str) -> None:
    """Print what the command was called for."""
    stream = standard_output()
    shown = visible(text, keep="\n\t") if stream.isatty() else text
    stream.write(shown if shown.endswith("\n") else f"{shown}\n")


def standard_output() -> IO[str]:
    """The stream that results are printed to; a closed one raises, so that results are not lost silently."""
    if sys.stdout is None:
        raise DatasetError("The standard output is closed; open it, or write to a file (-o) where the command can.")
    return sys.stdout


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns, without those that are None."""
    rows = [(name, str(value)) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        line = "".join(c if c.isprintable() else " " for c in value)
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {line}")


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table; names are made harmless, and on a terminal shortened."""
    if title:
        click.echo(f"\n{click.style(title, bold=True)}")
    click.echo(text_table([header, *(list(map(_cell, row)) for row in rows)]))


def check_picture(picture: str | None, *inputs: str) -> None:
    """Raise before the work where its picture could not be drawn after it."""
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
    """Raise before the work begins where its result could not be written after it, or would replace an input."""
    if path is None:
        return
    target = Path(path)
    for name in inputs:
        if name is not None and target.exists() and Path(name).exists() and target.samefile(name):
            raise DatasetError(
                f"{path!r} is the same file as the input {name!r}, which would be overwritten; choose another name."
            )
    if target.exists() and not target.is_file():  # pipes and devices are written to as they are
        possible = not target.is_dir() and os.access(target, os.W_OK)
    else:
        folder = Path(os.path.realpath(target)).parent
        possible = folder.is_dir() and os.access(folder, os.W_OK)
    if not possible:
        raise DatasetError(f"{path!r} cannot be written; give a file in a folder that exists and is writable.")


def forget_running(model: Any) -> None:
    """Take back what says how the fit ran, so that equal fits are equal files."""
    for part in (model, getattr(model, "stability_", None), getattr(model, "best_estimator_", None)):
        if part is not None:
            known = part.get_params(deep=False)
            idle = {"n_jobs": None, "checkpoint": None, "verbose": 0}
            part.set_params(**{name: value for name, value in idle.items() if name in known})


# Options that stand for parameters, of another name or of the same; any other parameter is given by --set.
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
    """A message that speaks of parameters (``unseen='mean'``), speaking of options (``--unseen mean``).

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
    """Lines on the standard error of the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


def _start_logging(ctx: click.Context, param: click.Parameter, level: str) -> None:
    logger = logging.getLogger("mssl")
    logger.setLevel("ERROR" if ctx.params.get("quiet") else level.upper())
    if not logger.handlers:
        logger.addHandler(_StandardError())


def _names(ctx: click.Context, param: click.Parameter, text: str | None) -> list[str] | None:
    """Names out of a comma-separated option."""
    names = None if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if names == [] and param.name == "features":
        raise click.UsageError(
            f"--features {text!r} names no column; give names separated by commas, such as --features wind,sun, "
            "or leave the option out to use all columns."
        )
    return names


def _parsed(ctx: click.Context, param: click.Parameter, settings: tuple[str, ...]) -> Json:
    """``NAME=VALUE`` pairs as parameters; values are numbers, true, false, none, or text."""
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
    kind: type[Kind] = click.Command,  # type: ignore[assignment]  # mypy allows no default of a type variable
    **how: Any,
) -> Kind:
    """A command whose options are the parameters of a function.

    A parameter is annotated with its type, its help and, where needed, settings for click; ``names`` among them are how
    the option is written. One without a help is an argument. A parameter of a dataclass stands for the options that
    its fields are, which several commands share.
    """
    # Docstrings are raw: click has to see the marks of paragraphs whose lines stay as they are.
    text = cleandoc(function.__doc__ or "").replace("\\b\n", "\b\n")

    def called(**given: Any) -> None:
        _make(function, given)

    return kind(function.__name__, callback=called, params=[*_parameters(function)], help=text, **how)


def _make(made: Callable[..., Any], given: Json) -> Any:
    """Call a function, or make a dataclass, with those of the given values that are its parameters."""
    kinds = get_type_hints(made)
    shared = {name: _make(kinds[name], given) for name in signature(made).parameters if is_dataclass(kinds[name])}
    return made(**shared, **{name: given[name] for name in signature(made).parameters if name in given})


def _parameters(made: Callable[..., Any]) -> Iterator[click.Parameter]:
    hints = get_type_hints(made, include_extras=True)
    for name, parameter in signature(made).parameters.items():
        if is_dataclass(hints[name]):
            yield from _parameters(hints[name])
            continue
        kind, *(help_text, settings) = (*get_args(hints[name]), {})[:3]
        yield _parameter(name, parameter.default, kind, help_text, dict(settings))


def _parameter(name: str, default: Any, kind: Any, help_text: str, settings: Json) -> click.Parameter:
    """The argument or the option that an annotated parameter stands for."""
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
# How values of these types are read; text is taken as it comes.
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
    """How a command answers: in words, or as one JSON document."""

    as_json: Annotated[bool, "Print one JSON document instead of text.", {"names": ["--json"]}] = False

    def tell(self, document: Any, show: Callable[[Any], object], *, quiet: bool = False) -> None:
        """Print what a command has found; `show` prints it for people, unless they want nothing."""
        if self.as_json:
            print_json(document)
        elif not quiet:
            show(document)


@dataclass(frozen=True)
class Telling(Answer):
    """What a command that works for a while prints, and how much it says meanwhile."""

    quiet: Annotated[
        bool,
        "Print no notes and no summaries: nothing but errors, and the tables of compare and select.",
        {"names": ["--quiet", "-q"], "is_eager": True},
    ] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        "What is said on standard error: every stage, long work now and then, notes, errors alone.",
        {"expose_value": False, "callback": _start_logging},
    ] = "info"

    @property
    def verbose(self) -> int:
        """Whether bars are shown, as estimators take it."""
        return int(sys.stderr.isatty() and not self.quiet)


@dataclass(frozen=True)
class Running(Telling):
    """How a command that fits runs."""

    jobs: Jobs = None
    seed: Annotated[int, "Which rows go into which fold, and which halves are drawn.", {"type": click.IntRange(0)}] = 0
    resume: Annotated[
        bool,
        "Keep finished work in FILE.checkpoint, beside the file of --save (of compare: DATA.compare.checkpoint here); "
        "called again after it was stopped, the command continues from there.",
    ] = False

    @contextmanager
    def recorded(self, path: str | None) -> Iterator[Json]:
        """Parameters of estimators and searches; where work is recorded beside a file, until the work has ended."""
        if self.resume and path is None:
            raise click.UsageError("--resume keeps finished work beside the model; give its file with --save.")
        record = Path(f"{path}.checkpoint") if self.resume else None
        yield {"n_jobs": self.jobs, "checkpoint": record, "verbose": self.verbose}
        if record is not None:
            record.unlink(missing_ok=True)
