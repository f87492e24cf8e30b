"""Options that several commands have."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click

from mssl.cli._output import show_progress

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


def seed_option(help_text: str) -> Callable[..., Any]:
    """``--seed``, 0 by default."""
    return click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help=help_text)


def resume_option(file: str) -> Callable[..., Any]:
    """``--resume``: finished work is kept in a file, which a later call continues and removes at the end."""
    return click.option(
        "--resume",
        is_flag=True,
        help=f"Keep finished work in {file}; called again after it was stopped, the command continues from there.",
    )


@dataclass(frozen=True)
class Running:
    """How a command that fits runs, and what it prints."""

    jobs: int | None
    seed: int
    resume: bool
    as_json: bool
    quiet: bool

    def parameters(self, record: str | None) -> dict[str, Any]:
        """The same for estimators and searches; `record` is the file of finished work."""
        return {"n_jobs": self.jobs, "checkpoint": record, "verbose": int(show_progress(self.quiet))}


def running_options(seed: str, record: str) -> Callable[..., Any]:
    """The options of a command that fits, which gets them as ``run``: what --seed and --resume do is said here."""
    options = [jobs_option, seed_option(seed), resume_option(record), json_option, quiet_option, log_option]

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def collected(**given: Any) -> None:
            command(run=Running(**{part.name: given.pop(part.name) for part in fields(Running)}), **given)

        for option in reversed(options):
            collected = option(collected)
        return collected

    return add


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


def parse_settings(ctx: click.Context, param: click.Parameter, settings: tuple[str, ...]) -> dict[str, Any]:
    """``NAME=VALUE`` pairs as parameters; values are numbers, true, false, none, or text."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--set is {setting!r}; give a name and a value, such as graph_penalty=0.3.")
        parsed[name.strip()] = _value(text.strip())
    return parsed


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def settings_option(help_text: str) -> Callable[..., Any]:
    """``--set NAME=VALUE``, any number of times, as a dict."""
    return click.option("--set", "fixed", multiple=True, metavar="NAME=VALUE", callback=parse_settings, help=help_text)
