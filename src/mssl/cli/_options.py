"""Options that several commands have, what commands print, and messages of the library in terms of options."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import IO, Any, TypeAlias

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


def json_text(document: object) -> str:
    """One JSON document as text; characters that cannot be shown are written as JSON's escapes."""
    text = json.dumps(plain(document), ensure_ascii=False, indent=1)
    return re.sub(r"[^ -~\n]", lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


def print_json(document: object) -> None:
    """Print one JSON document."""
    stream, text = standard_output(), json_text(document)
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)
    print_result(text)


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
    rows = [(name, _line(str(value))) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {value}")


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


def _line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


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


# Options that stand for parameters; any other parameter is given by --set.
_OPTIONS = {
    "categorical_features": "--categorical",
    "drop": "--drop",
    "groups": "--group",
    "loss": "--family",
    "method": "--method",
    "missing": "--missing",
    "missing_target": "--missing-target",
    "order": "--order",
    "subsample": "--subsample",
    "task_column": "--task",
    "unseen": "--unseen",
}
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
        return f"{_OPTIONS[name]} {value or 'COLUMN'}"
    return f"--set {name}={value}"


Command: TypeAlias = Callable[..., None]
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
quiet_option = click.option(
    "--quiet",
    "-q",
    is_flag=True,
    is_eager=True,
    help="Print no notes and no summaries: nothing but errors, and the tables of compare and select.",
)
jobs_option = click.option("--jobs", type=int, help="Worker processes, -1 for all cores; the answer is the same.")


class _StandardError(logging.Handler):
    """Lines on the standard error of the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


def _start_logging(ctx: click.Context, param: click.Parameter, level: str) -> None:
    logger = logging.getLogger("mssl")
    logger.setLevel("ERROR" if ctx.params.get("quiet") else level.upper())
    if not logger.handlers:
        logger.addHandler(_StandardError())


log_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    expose_value=False,
    callback=_start_logging,
    help="What is said on standard error: every stage, long work now and then, notes, errors alone.",
)


def collect(kind: type, name: str, options: Iterable[Callable[..., Any]]) -> Callable[[Command], Command]:
    """Give a command these options; those that are fields of a dataclass arrive as one object of a name."""
    names = {part.name for part in fields(kind)}

    def add(command: Command) -> Command:
        @wraps(command)
        def collected(**given: Any) -> None:
            own = kind(**{key: given.pop(key) for key in names & given.keys()})
            command(**{name: own}, **given)

        for option in reversed([*options]):
            collected = option(collected)
        return collected

    return add


@dataclass(frozen=True)
class Running:
    """How a command that fits runs, and what it prints."""

    jobs: int | None
    seed: int
    resume: bool
    as_json: bool
    quiet: bool

    def record(self, path: str | None) -> Path | None:
        """The file of finished work, beside the file that a command writes at its end; None without --resume."""
        if self.resume and path is None:
            raise click.UsageError("--resume keeps finished work beside the model; give its file with --save.")
        return Path(f"{path}.checkpoint") if self.resume else None

    def parameters(self, record: Path | None) -> Json:
        """The same for estimators and searches; `record` is the file of finished work."""
        return {"n_jobs": self.jobs, "checkpoint": record, "verbose": int(sys.stderr.isatty() and not self.quiet)}


def running_options(seed: str, record: str) -> Callable[[Command], Command]:
    """The options of a command that fits, which gets them as ``run``: what --seed and --resume do is said here."""
    resume = f"Keep finished work in {record}; called again after it was stopped, the command continues from there."
    options = [
        jobs_option,
        click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help=seed),
        click.option("--resume", is_flag=True, help=resume),
        *(json_option, quiet_option, log_option),
    ]
    return collect(Running, "run", options)


safe_csv_option = click.option(
    "--safe-csv/--no-safe-csv",
    "safe",
    default=None,
    help="Keep names from acting as formulas in a spreadsheet or on a terminal: an apostrophe before =, +, -, @, "
    "escapes spelt out. By default where a name needs it, with a note.",
)
edges_option = click.option(
    "--edges",
    type=click.Path(),
    help="Table of the edges between tasks, for s2m2r: two columns of tasks, and one named weight if they differ.",
)


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


def settings_option(help_text: str) -> Callable[..., Any]:
    """``--set NAME=VALUE``, any number of times, as a dict."""
    return click.option("--set", "fixed", multiple=True, metavar="NAME=VALUE", callback=_parsed, help=help_text)
