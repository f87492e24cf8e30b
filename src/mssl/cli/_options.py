"""Options that several commands have."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

import click

from mssl._typing import Json
from mssl.cli._output import show_progress

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
        return {"n_jobs": self.jobs, "checkpoint": record, "verbose": int(show_progress(self.quiet))}


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
