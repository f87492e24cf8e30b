"""What the commands print: text for people, JSON for machines, nothing but results when piped."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import click
import numpy as np

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


def show_progress(quiet: bool) -> bool:
    """Whether progress may be drawn: only on a terminal."""
    return sys.stderr.isatty() and not quiet


def forget_running(model: Any) -> None:
    """Take back what says how the fit ran, so that equal fits are equal files."""
    for part in (model, getattr(model, "stability_", None), getattr(model, "best_estimator_", None)):
        if part is not None:
            known = part.get_params(deep=False)
            idle = {"n_jobs": None, "checkpoint": None, "verbose": 0}
            part.set_params(**{name: value for name, value in idle.items() if name in known})
