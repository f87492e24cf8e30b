"""Options that name columns, and reading a table by them."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from mssl._methods import FAMILIES
from mssl.exceptions import DataError
from mssl.inputs import listing

_OPTIONS = (
    click.argument("data", type=click.Path()),
    click.option("--task", required=True, help="Column that names the task of each row."),
    click.option("--target", required=True, help="Column to predict."),
    click.option("--features", help="Columns to predict from, separated by commas; all others by default."),
    click.option("--drop", default="", help="Columns to leave out, separated by commas."),
    click.option("--family", type=click.Choice(FAMILIES), default="auto", show_default=True, help="Kind of target."),
    click.option(
        "--missing",
        type=click.Choice(["error", "drop", "mean"]),
        default="error",
        show_default=True,
        help="Rows with missing values: refuse, leave out, or fill features with their mean.",
    ),
)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument DATA and the options that say what its columns mean."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Training(NamedTuple):
    """A table ready to be fitted: arrays sorted by task, what the columns mean, and the family of the target."""

    X: NDArray[np.float64]
    y: NDArray[Any]
    tasks: NDArray[Any]
    schema: Any
    family: str
    rows: int


def read_training(
    data: str, task: str, target: str, features: str | None, drop: str, family: str, missing: str
) -> Training:
    """Read a table and turn it into tasks; see :func:`mssl.tables.learn_schema` for what is refused."""
    from mssl.tables import blank_twins, detect_family, learn_schema, read_table

    chosen, left_out = names_in(features), names_in(drop) or []
    needed = None if chosen is None else [task, target, *chosen]
    table = read_table(data, columns=needed, text=[task])
    schema = learn_schema(table, task, target, features=chosen, drop=[] if chosen else left_out, missing=missing)
    encoded = schema.encode(table, with_target=True, by_task=True)
    del table
    gc.collect()
    tasks = np.unique(encoded.tasks).tolist()
    for group in blank_twins(tasks):
        warnings.warn(
            f"the tasks {listing(group)} differ only in blanks; they are fitted as different tasks. "
            f"If they are one, correct the column {task!r}.",
            stacklevel=2,
        )
    y = encoded.target
    family = detect_family(y, target) if family == "auto" else family
    if family != "binary" and y.dtype.kind == "U":
        raise DataError(f"Column {target!r} holds text (for example {str(y[0])!r}); the family {family} needs numbers.")
    if family == "binary" and y.dtype.kind == "f" and np.array_equal(y, np.round(y)):
        y = y.astype(np.int64)
    return Training(encoded.X, y, encoded.tasks, schema, family, len(y))


def names_in(text: str | None) -> list[str] | None:
    """Column names out of a comma-separated option."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
