"""Read CSV, TSV, Parquet and Feather files as tasks, features and targets.

Columns are read with pyarrow (extra ``tables``); plain CSV can be read without it, slower. What the columns mean is
learned once, as a :class:`TableSchema`, and kept with the model, so that new files are read in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mssl._typing import Array, Index, Labels, Mask
from mssl._validation import check_choice
from mssl.data.inputs import CodedTasks, listing
from mssl.exceptions import DataError, ParameterError, UnseenTaskError
from mssl.files.formats import MISSING_TEXT, Column, Table, read_table, release_memory

__all__ = ["Column", "ColumnSchema", "Encoded", "Table", "TableSchema", "learn_schema", "read_table", "release_memory"]

MISSING = ("error", "drop", "mean")  # what can be done with rows that lack a value
MOST_CATEGORIES = 100  # levels of a text column: each becomes a feature, and with more it is most likely free text
_LONGEST_TASK = 256  # characters of a task name: a longer one is most likely not a name, and fills every table
# Texts that a reader takes for numbers and a program does not: 1,234.5 and 1 234,5 and 1'234 and 1.234,5 and 0,5.
_SEPARATED = re.compile(r"[-+]?(\d{1,3}([,'\s]\d{3})+([.,]\d+)?|\d{1,3}(\.\d{3})+,\d+|\d*,\d+)")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?")


@dataclass(frozen=True)
class ColumnSchema:
    """One column of features: a number, or a category that becomes one column of 0 and 1 per level.

    Attributes
    ----------
    name : str
        Name in the file.
    categories : tuple of str or None
        Levels seen in training, sorted; None for numbers. Of two levels only the second gets a column.
    fill : tuple of float
        Mean of each encoded column in training, which stands in for missing values with ``missing="mean"``.
    """

    name: str
    categories: tuple[str, ...] | None
    fill: tuple[float, ...] = ()

    @property
    def levels(self) -> tuple[str, ...]:
        """The categories that have a column of their own."""
        if self.categories is None:
            return ()
        return self.categories[1:] if len(self.categories) == 2 else self.categories

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return 1 if self.categories is None else len(self.levels)

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns."""
        return [self.name] if self.categories is None else [f"{self.name}={level}" for level in self.levels]

    def encode(self, column: Column) -> Array:
        """Values of shape (N, width), NaN where missing; an unknown category raises."""
        if self.categories is None:
            return _numbers(column)[:, None]
        codes, found = column.text()
        place = {level: k for k, level in enumerate(self.categories)}
        unknown = [level for level in found if level not in place and level not in MISSING_TEXT]
        if unknown:
            raise DataError(
                f"Column {self.name!r} holds {listing(unknown)}, not seen in training; known are "
                f"{listing(self.categories)}. Correct these values or fit again with rows that have them."
            )
        category = np.asarray([place.get(level, -1) for level in found] + [-1], dtype=np.int64)[codes]
        indicators = (category[:, None] == np.arange(len(self.categories))).astype(float)
        indicators[category < 0] = np.nan
        return indicators[:, len(self.categories) - len(self.levels) :]


class Encoded(NamedTuple):
    """Rows of a table: features (N, d), tasks (N,), targets (N,), empty if not read, and places in the file."""

    X: Array
    tasks: CodedTasks
    target: Labels
    rows: Index


@dataclass(frozen=True)
class TableSchema:
    """What the columns of a training table mean; kept with the model as ``table_``.

    Attributes
    ----------
    task, target : str
        Names of the columns of task names and targets.
    columns : tuple of ColumnSchema
        The columns of features, in order.
    missing : {"error", "drop", "mean"}
        What happens to rows with missing features.
    """

    task: str
    target: str
    columns: tuple[ColumnSchema, ...]
    missing: str = "error"

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded features."""
        return [name for column in self.columns for name in column.encoded_names]

    def read(self, path: str | Path, *, with_target: bool = False) -> Table:
        """Read the columns that are needed from a file."""
        wanted = [self.task, *(column.name for column in self.columns), *([self.target] if with_target else [])]
        return read_table(path, columns=wanted, text=[self.task])

    def encode(
        self, table: Table, *, with_target: bool = False, by_task: bool = False, training: bool = False
    ) -> Encoded:
        """Features, task names and (if asked for) targets of the rows that can be used; the table is used up.

        Parameters
        ----------
        table : Table
            With the columns of this schema.
        with_target : bool
            Read the target too, and leave out rows without one (``missing="drop"``).
        by_task : bool
            Sort the rows by task, which spares the estimator a copy.
        training : bool
            The rows are to be fitted to, so that it can still be chosen what happens to missing values.
        """
        tasks = read_task_column(table.take(self.task), self.task)
        target = target_values(table.take(self.target)) if with_target else np.empty(0)
        gaps = {self.target: _is_blank(target)} if with_target else {}
        rows = np.argsort(tasks.codes, kind="stable") if by_task else np.arange(len(tasks))
        release_memory()
        X = np.empty((len(rows), len(self.feature_names)))
        place = 0
        for column in self.columns:
            values = column.encode(table.take(column.name))
            gaps[column.name] = np.isnan(values[:, 0])
            if self.missing == "mean":
                values = np.where(np.isnan(values), np.asarray(column.fill), values)
            X[:, place : place + column.width] = values[rows]
            place += column.width
            del values
            release_memory()
        keep = _usable(gaps, self.missing, self.target, training)[rows]
        if not keep.all():
            X, rows = X[keep], rows[keep]
        if not len(rows):
            raise DataError(f"{table.source} has no row without missing values; complete at least one.")
        return Encoded(X, tasks[rows], target[rows] if with_target else target, rows)


def learn_schema(
    table: Table,
    task: str,
    target: str,
    *,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    missing: str = "error",
) -> TableSchema:
    """Find out what the columns of a training table mean.

    Parameters
    ----------
    table : Table
        The table, as :func:`read_table` gives it.
    task, target : str
        Columns of task names and targets.
    features : sequence of str, optional
        Columns to use; all others by default.
    drop : sequence of str
        Columns not to use.
    missing : {"error", "drop", "mean"}
        What happens to rows with missing features.

    Returns
    -------
    TableSchema

    Raises
    ------
    DataError
        For dates, free text, columns that are not there, or no feature at all.
    """
    check_choice("missing", missing, MISSING)
    for name in (task, target, *(features or ()), *(name for name in drop if name not in table.names)):
        table[name]
    if task == target:
        raise ParameterError(f"The column {task!r} is both the task and the target; give two columns.")
    clash = {task, target} & set(features or ())
    if clash:
        raise ParameterError(
            f"The column {clash.pop()!r} is the task or the target and a feature too; give other features."
        )
    chosen = [name for name in (features or table.names) if name not in {task, target, *drop}]
    if not chosen:
        raise DataError(
            f"{table.source} has no columns besides the task and the target; give at least one column of features."
        )
    columns = tuple(_learn_column(name, table[name], missing) for name in chosen)
    names = [name for column in columns for name in column.encoded_names]
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise DataError(f"Two features would both be named {twice!r}; rename one of the columns.")
    return TableSchema(task, target, columns, missing)


def _learn_column(name: str, column: Column, missing: str) -> ColumnSchema:
    if column.kind == "date":
        raise DataError(_date_advice(name))
    categories = None
    if column.kind == "text":
        levels = [level for level in column.text()[1] if level not in MISSING_TEXT]
        _check_levels(name, levels)
        categories = tuple(sorted(levels))
        if len(categories) < 2:
            raise DataError(f"Column {name!r} holds nothing but {listing(categories)}; leave it out (--drop).")
    schema = ColumnSchema(name, categories)
    if missing != "mean":
        return schema
    values = schema.encode(column)
    if np.isnan(values).all():
        raise DataError(f"Column {name!r} has no value at all; leave it out (--drop).")
    return ColumnSchema(name, categories, tuple(np.nanmean(values, axis=0).tolist()))


def _check_levels(name: str, levels: list[str]) -> None:
    _reject_mixed(f"Column {name!r}", levels)
    if levels and all(_DATE.fullmatch(level.strip()) for level in levels[:50]):
        raise DataError(_date_advice(name))
    if len(levels) > MOST_CATEGORIES:
        raise DataError(
            f"Column {name!r} holds {len(levels)} different texts (for example {levels[0]!r}); at most "
            f"{MOST_CATEGORIES} become categories. Leave it out (--drop) or group its values."
        )


def _date_advice(name: str) -> str:
    return (
        f"Column {name!r} holds dates, which are no features as they stand; leave it out (--drop), or put numbers "
        "in its place that could matter: the year, the month of the year as a category, days since a first day."
    )


def _reject_mixed(what: str, levels: list[str]) -> None:
    """Raise where texts are numbers with separators, or mostly numbers."""
    text = [level for level in levels if not _is_number(level)]
    if not text:
        return
    if all(_SEPARATED.fullmatch(level.strip()) for level in text):
        raise DataError(
            f"{what} holds numbers with separators (for example {text[0]!r}), which read as text; remove the "
            "thousands separators and write decimals with a point, as in 1234.5 (pandas: read_csv(…, thousands=',')); "
            "if they are labels, write them without commas."
        )
    if len(text) < len(levels) / 2:
        raise DataError(
            f"{what} holds numbers and text (for example {text[0]!r}); correct the text or leave it empty, which "
            "counts as missing."
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(column: Column) -> Array:
    if column.kind != "number":
        codes, levels = column.text()
        odd = next((level for level in levels if level not in MISSING_TEXT and not _is_number(level)), None)
        if odd is not None:
            raise DataError(
                f"Column {column.name!r} holds {odd!r}; it was numeric in training. Give numbers, or leave it empty."
            )
        known = [float("nan") if level in MISSING_TEXT else float(level) for level in levels]
        return np.asarray([*known, np.nan])[codes]
    values = column.numbers()
    infinite = np.isinf(values)
    if infinite.any():
        raise DataError(
            f"Column {column.name!r} holds {int(infinite.sum())} infinite values (first: row "
            f"{int(np.argmax(infinite)) + 1}); correct them or leave them empty, which counts as missing."
        )
    return values


def read_task_column(column: Column, name: str) -> CodedTasks:
    """The task of each row, names sorted; a blank one raises."""
    codes, levels = column.text()
    blank = [k for k, level in enumerate(levels) if not level.strip()]
    empty = (codes < 0) | np.isin(codes, blank)
    if empty.any():
        raise DataError(
            f"{int(empty.sum())} rows have no task in column {name!r} (first: row {int(np.argmax(empty)) + 1}); "
            "name their task or remove them."
        )
    longest = max(map(len, levels))
    if longest > _LONGEST_TASK:
        raise DataError(
            f"Column {name!r} holds a task name of {longest} characters; at most {_LONGEST_TASK} are allowed. "
            "Shorten it."
        )
    used = np.flatnonzero(np.bincount(codes, minlength=len(levels)))
    place = np.empty(len(levels), dtype=np.int32)
    tasks, place[used] = np.unique(np.asarray(levels)[used], return_inverse=True)
    return CodedTasks(tasks, place[codes])


def blank_twins(names: Sequence[str]) -> list[list[str]]:
    """Groups of task names that differ only in blanks, which are usually one task misspelt."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault("".join(name.split()), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def target_values(column: Column) -> Labels:
    """Targets as numbers (NaN where missing), or as text ("" where missing)."""
    if column.kind == "date":
        raise DataError(f"The target column {column.name!r} holds dates; give numbers or two labels.")
    if column.kind == "number":
        return _numbers(column)
    codes, levels = column.text()
    shown = ["" if level in MISSING_TEXT else level for level in levels]
    _reject_mixed(f"The target column {column.name!r}", [level for level in shown if level])
    return np.asarray([*shown, ""])[codes]


def detect_family(target: Labels, name: str = "the target") -> str:
    """The family that targets suggest: two values are binary, counts with zeros Poisson, other numbers Gaussian."""
    text = target.dtype.kind == "U"
    values = np.unique(target[~_is_blank(target)])
    if len(values) == 2:
        return "binary"
    if text:
        raise DataError(
            f"Column {name!r} holds {len(values)} labels ({listing(values.tolist())}); two are needed. "
            "mssl.pair_tasks turns a set with more classes into one task per pair of classes."
        )
    counts = len(values) > 2 and values[0] == 0 and bool(np.all(values == np.round(values)))
    return "poisson" if counts else "gaussian"


def _is_blank(target: Labels) -> Mask:
    return np.asarray(target == "" if target.dtype.kind == "U" else np.isnan(target))


def _usable(gaps: dict[str, Mask], missing: str, target: str, training: bool) -> Mask:
    """Which rows can be used; raise where missing values are not provided for."""
    counts = {name: int(gap.sum()) for name, gap in gaps.items()}
    refused = {
        name: n for name, n in counts.items() if n and (missing == "error" or (missing, name) == ("mean", target))
    }
    if refused:
        columns = ", ".join(f"{name!r} ({n} rows)" for name, n in list(refused.items())[:8])
        more = f", … ({len(refused)} columns in all)" if len(refused) > 8 else ""
        first = int(np.argmax(gaps[next(iter(refused))])) + 1
        advice = _advice(target in refused, len(refused) > 1 or target not in refused, training)
        raise DataError(f"Values are missing in {columns}{more}, first in row {first}; complete them, or: {advice}.")
    if missing == "mean":
        return np.ones(len(next(iter(gaps.values()))), dtype=bool)
    return ~np.logical_or.reduce(list(gaps.values()))


def _advice(of_target: bool, of_features: bool, training: bool) -> str:
    """What can be done about values that are missing."""
    if not training:
        again = " (or fit the model again with --missing drop or --missing mean)" if of_features else ""
        return f"leave these rows out{again}"
    if of_target:
        return "--missing drop leaves these rows out; the target cannot be filled"
    return "--missing drop leaves these rows out, --missing mean fills features with their mean"


def check_tasks(tasks: Sequence[str], known: Sequence[str]) -> None:
    """Raise for tasks that the model does not know, and point out those that differ only in blanks."""
    strangers = sorted(set(tasks) - set(known))
    if not strangers:
        return
    twins = {"".join(name.split()): name for name in known}
    near = [(name, twins["".join(name.split())]) for name in strangers if "".join(name.split()) in twins]
    hint = f" {near[0][0]!r} differs from {near[0][1]!r} only in blanks." if near else ""
    raise UnseenTaskError(
        f"Tasks {listing(strangers)} are not in the model; it knows {listing(sorted(known))}.{hint} "
        "Correct the names, or fit again with rows of these tasks."
    )
