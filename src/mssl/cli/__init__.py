"""The command line: ``mssl fit``, ``predict``, ``graph`` and the others, each imported when it is called.

Exit codes: 0 success, 1 an error in the data or the files, 2 an invalid command, 130 an interruption from the keyboard,
141 a pipe that its reader closed.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from importlib import import_module
from typing import Any

import click

__all__ = ["main"]

_COMMANDS = {
    "fit": ("fit", "Learn all tasks of a table, and the graph that relates them."),
    "predict": ("model", "Predict for the rows of a table with a saved model."),
    "compare": ("compare", "Compare methods by cross-validation, task by task."),
    "select": ("compare", "Find the edges of the task graph that can be relied on."),
    "graph": ("model", "Write the task graph of a saved model as CSV, JSON, GraphML or DOT."),
    "inspect": ("model", "Show what a saved model says about itself."),
    "report": ("model", "Write an offline HTML page about a saved model."),
    "climate": ("climate", "Combine an ensemble of climate models with observations."),
    "datasets": ("data", "List, fetch and export data sets to try things on."),
    "demo": ("data", "See what mssl does, on data made up on the spot."),
    "reproduce": ("data", "Run an experiment of the paper end to end."),
}

_EPILOG = """\b
Start here:
  mssl datasets export el-nino sea.csv
  mssl fit sea.csv --task month --target temperature --save model.npz
  mssl predict model.npz sea.csv -o predictions.csv

\b
Shell completion: eval "$(_MSSL_COMPLETE=bash_source mssl)"  (or zsh_source, fish_source)
"""


class _ReaderGoneError(Exception):
    """A broken pipe, in a form that click does not turn into the exit code of an error."""


class _Commands(click.Group):
    """Commands whose modules are imported only when they are called, so that ``--help`` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"mssl.cli.{_COMMANDS[cmd_name][0]}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as broken:
            raise _ReaderGoneError from broken

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.command(cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mssl", prog_name="mssl")
def commands() -> None:
    """Learn many related prediction tasks together, and the sparse graph that relates them."""


def main(args: list[str] | None = None) -> None:
    """Run the command line; errors become one paragraph on stderr and an exit code."""
    warnings.showwarning = _show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):  # Characters outside its encoding are escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        commands.main(args, prog_name="mssl", standalone_mode=False)
        if sys.stdout is not None:  # The shell can close it (>&-).
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _complain("Interrupted; nothing was left half-written.")
        sys.exit(130)
    except (BrokenPipeError, _ReaderGoneError):
        # The reader has closed the pipe; Python must not try to flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if os.environ.get("MSSL_TRACEBACK"):
            raise
        _complain(_explain(error))
        sys.exit(1)


def _explain(error: Exception) -> str:
    from mssl.cli._options import in_options
    from mssl.exceptions import MSSLError

    if isinstance(error, MSSLError):
        return f"Error: {in_options(str(error))}"
    if isinstance(error, OSError) and error.strerror:
        return f"Error: {error.strerror}: {error.filename!r}." if error.filename else f"Error: {error.strerror}."
    if isinstance(error, MemoryError):
        return "Error: there is not enough memory for this; use fewer rows or columns."
    return (
        f"Unexpected error ({type(error).__name__}): {error}. This is a fault of mssl; please report it with the "
        "output of MSSL_TRACEBACK=1."
    )


def _complain(text: str) -> None:
    """Write a paragraph to stderr; control characters, as in a hostile file name or cell, are escaped."""
    line = " ".join(text.split())
    click.echo("".join(c if c.isprintable() else repr(c)[1:-1] for c in line), err=True)


_WARNINGS_SHOWN: set[str] = set()  # Warnings that this process has printed.


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print each warning once, even if many fits raise it; with --quiet print none."""
    if str(message) not in _WARNINGS_SHOWN and logging.getLogger("mssl").isEnabledFor(logging.WARNING):
        from mssl.cli._options import in_options

        _WARNINGS_SHOWN.add(str(message))
        _complain(f"Note: {in_options(str(message))}")
