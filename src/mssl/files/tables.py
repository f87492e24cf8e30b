"""Conversion of tables to tasks, features and targets.

A :class:`TableSchema` describes the columns of the training table. It is stored with the model, so that new files are
read in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from mssl._typing import Array, Index, Labels, Mask
from mssl._validation import check_choice, warn
from mssl.data.encoding import (
    ColumnSchema,
    ColumnValues,
    FeatureEncoder,
    Features,
    encode_columns,
    encoded_names,
    numbers_of,
    reject_mixed,
)
from mssl.data.inputs import CodedTasks, listing, number_tasks
from mssl.exceptions import DataError, ParameterError, UnseenTaskError
from mssl.files.formats import MISSING_TEXT, Table, read_table, release_memory

__all__ = ["ColumnSchema", "Encoded", "Table", "TableSchema", "learn_schema", "read_table", "release_memory"]

Missing = Literal["error", "drop", "mean", "indicator"]  # Treatments of rows with a missing value.
_LONGEST_TASK = 256  # Largest number of characters of a task name, a safeguard: a longer text is hardly a name.


class Encoded(NamedTuple):
    """Rows of a table: features (N, d), tasks (N,), targets (N,) (empty if not read), and row numbers in the file.

    ``dropped`` is the number of rows that were dropped because they lack a value. ``offset`` and ``weight`` have one
    entry per row; they are None without such a column.
    """

    X: Array
    tasks: CodedTasks
    target: Labels
    rows: Index
    dropped: int = 0
    offset: Array | None = None
    weight: Array | None = None

    @property
    def features(self) -> Features:
        """The rows in the form that a model with this schema accepts instead of a data frame."""
        return Features(self.X)


@dataclass(frozen=True)
class TableSchema:
    """Description of the columns of a training table, which the model holds as ``table_``.

    Attributes
    ----------
    task, target : str
        Names of the task column and the target column.
    columns : tuple of ColumnSchema
        The feature columns in order.
    missing : {"error", "drop", "mean", "indicator"}
        Treatment of missing features: raise an error, drop the rows, fill with the column's mean, or fill and add an
        indicator column.
    offset : str or None
        Name of the column that is added to the linear predictor.
    """

    task: str
    target: str
    columns: tuple[ColumnSchema, ...]
    missing: str = field(default="error", metadata={"words": get_args(Missing)})
    offset: str | None = None

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded features."""
        return encoded_names(self.columns)

    @property
    def names(self) -> list[str]:
        """Names of the columns that predictions need: the task column and the feature columns."""
        return [self.task, *(column.name for column in self.columns)]

    def attach(self, model: Any) -> None:
        """Attach the schema to a model that was fitted to encoded rows, which then accepts frames with these columns.

        The parameters of the model describe the columns. Encoded rows are passed to it as
        :class:`mssl.data.encoding.Features`.
        """
        filled = any(column.fill for column in self.columns)
        encoder = FeatureEncoder(self.columns, "indicator" if filled else "error")
        parameters = {"task_column": self.task, "missing": encoder.missing}
        columns = np.asarray(self.names[1:], dtype=object)
        features = np.asarray(self.feature_names, dtype=object)
        part = getattr(model, "best_estimator_", model)
        for own in (model, part):
            given = {key: parameters.get(key.removeprefix("estimator__")) for key in own.get_params()}
            own.set_params(**{key: value for key, value in given.items() if value is not None})
        part.table_, part.feature_names_in_, part.n_features_in_ = self, columns, len(columns)
        part.encoder_ = encoder if filled or encoder.has_categories else None
        part.features_ = features if part.maps_ is None else part.maps_.get_feature_names_out(features)

    def read(self, path: str | Path, *, with_target: bool = False, labels: Sequence[str] = ()) -> Table:
        """Read the needed columns from a file, and additional text columns."""
        beside = [*([self.target] if with_target else []), *([self.offset] if self.offset else [])]
        codes = [column.name for column in self.columns if column.categories is not None]
        text = [self.task, *codes, *labels]  # The names 01 and 1 are different.
        return read_table(path, columns=[*self.names, *beside, *labels], text=text)

    def encode(
        self,
        table: Table,
        *,
        with_target: bool = False,
        by_task: bool = False,
        training: bool = False,
        missing_target: str | None = None,
        weight: str | None = None,
    ) -> Encoded:
        """Return features, task names and optionally targets of the complete rows; the table's columns are consumed.

        Parameters
        ----------
        table : Table
            A table with the columns of this schema.
        with_target : bool
            Whether to read the target.
        by_task : bool
            Whether to sort the rows by task, which saves the estimator a copy.
        training : bool
            Whether the rows are for a fit; the error for missing values then lists the treatments to choose from.
        missing_target : {"error", "drop"}, optional
            Treatment of rows without a target, an offset or a weight. By default an error if ``missing="error"``, else
            the rows are dropped.
        weight : str, optional
            Column of the rows' weights.
        """
        tasks = read_task_column(table.take(self.task), self.task)
        rows = np.argsort(tasks.codes, kind="stable") if by_task else np.arange(len(tasks))
        target = target_values(table.take(self.target))[rows] if with_target else np.empty(0)
        beside = {name: numbers_of(table.take(name))[rows] for name in (self.offset, weight) if name is not None}
        vital = {self.target: _is_blank(target)} if with_target else {}
        vital |= {name: np.isnan(values) for name, values in beside.items()}
        X, gaps = encode_columns(self.columns, map(table.take, self.names[1:]), rows)
        release_memory()
        lost = missing_target or ("error" if self.missing == "error" else "drop")
        _refuse_gaps(vital if lost == "error" else {}, gaps if self.missing == "error" else {}, rows, training)
        lacking = vital | (gaps if self.missing == "drop" else {})
        keep = ~np.logical_or.reduce([np.zeros(len(rows), dtype=bool), *lacking.values()])
        if not keep.any():
            raise DataError(f"{table.source} has no row without missing values; complete at least one.")
        tasks, kept = tasks[rows], slice(None) if keep.all() else keep
        if not keep.all() and with_target:  # In predictions the empty cells show which rows were dropped.
            _tell_dropped(lacking, tasks, keep)
        offset, weights = (None if name is None else beside[name][kept] for name in (self.offset, weight))
        dropped = int(np.sum(~keep))
        return Encoded(
            X[kept], tasks[kept], target[kept] if with_target else target, rows[kept], dropped, offset, weights
        )


def learn_schema(
    table: Table,
    task: str,
    target: str,
    *,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    missing: str = "error",
    offset: str | None = None,
    categorical: Sequence[str] = (),
) -> TableSchema:
    """Infer the schema of a training table.

    Parameters
    ----------
    table : Table
        The table from :func:`read_table`.
    task, target : str
        Names of the task column and the target column.
    features : sequence of str, optional
        Columns to use as features; by default all other columns.
    drop : sequence of str
        Columns not to use.
    missing : {"error", "drop", "mean", "indicator"}
        Treatment of missing features, as for :class:`TableSchema`.
    offset : str, optional
        Column that is added to the linear predictor; list it in ``drop`` too.
    categorical : sequence of str
        Columns to treat as categories even if they hold numbers.

    Returns
    -------
    TableSchema

    Raises
    ------
    DataError
        If a column holds dates or free text, if a column is missing, or if there is no feature.
    """
    check_choice("missing", missing, get_args(Missing))
    for name in (task, target, *(features or ()), *categorical, *(name for name in drop if name not in table.names)):
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
    strange = [name for name in categorical if name not in chosen]
    if strange:
        raise ParameterError(f"Columns {listing(strange)} are declared categories; give columns of features.")
    columns = FeatureEncoder.learn([table[name] for name in chosen], missing, categorical).columns
    for column in columns:
        if column.categories is not None and len(column.categories) < 2:
            what = f"nothing but {listing(column.categories)}"
        elif column.categories is None and column.fill and np.isnan(numbers_of(table[column.name])).all():
            what = "no value at all"
        else:
            continue
        raise DataError(f"Column {column.name!r} holds {what}; leave it out (drop={column.name!r}).")
    return TableSchema(task, target, columns, missing, offset)


def read_task_column(column: ColumnValues, name: str) -> CodedTasks:
    """Return the task of each row, with sorted names; a blank name raises."""
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
    tasks, of_row = number_tasks(CodedTasks(np.asarray(levels), codes))
    return CodedTasks(tasks, of_row.astype(np.int32))


def blank_twins(names: Sequence[str]) -> list[list[str]]:
    """Return groups of task names that differ only in blanks, which are usually misspellings of one task."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault("".join(name.split()), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def target_values(column: ColumnValues) -> Labels:
    """Return the targets as numbers (NaN if missing) or as text ("" if missing)."""
    if column.kind == "date":
        raise DataError(f"The target column {column.name!r} holds dates; give numbers or two labels.")
    if column.kind == "number":
        return numbers_of(column)
    codes, levels = column.text()
    shown = ["" if level in MISSING_TEXT else level for level in levels]
    reject_mixed(f"The target column {column.name!r}", [level for level in shown if level])
    return np.asarray([*shown, ""])[codes]


def detect_family(target: Labels, name: str = "the target") -> str:
    """Return the family for targets: binary for two values, Poisson for counts with zeros, otherwise Gaussian."""
    values = np.unique(target[~_is_blank(target)])
    if len(values) == 2:
        return "binary"
    if target.dtype.kind == "U":
        raise text_target(values, name)
    counts = len(values) > 2 and values[0] == 0 and bool(np.all(values == np.round(values)))
    return "poisson" if counts else "gaussian"


_QUANTITY = re.compile(r"\s*[^\w\s.,+-]?\s*[-+]?[\d.,]+\s*[^\d\s].*")  # 12kg, 3.5 %, € 20 p.a.


def text_target(target: Labels, name: str) -> DataError:
    """Return the error for a text target that does not have two labels, with two of its values and a remedy."""
    values = np.unique(target[~_is_blank(target)]).tolist()
    shown = " and ".join(map(repr, values[:2]))
    if values and all(_QUANTITY.fullmatch(value) for value in values[:100]):
        digits = re.sub(r"[^\d.+-]", "", values[0])
        remedy = f"write the numbers alone, {digits} for {values[0]!r}, and the unit into the column's name"
        return DataError(f"The target column {name!r} holds text, such as {shown}, where numbers are needed; {remedy}.")
    return DataError(
        f"The target column {name!r} holds {len(values)} labels, such as {shown}; give numbers or two labels. "
        "mssl.pair_tasks turns a set with more classes into one task per pair of classes."
    )


def _is_blank(target: Labels) -> Mask:
    return np.asarray(target == "" if target.dtype.kind == "U" else np.isnan(target))


def _counted(gaps: dict[str, Mask], form: str) -> str:
    """Return a text with the columns by falling number of missing values; at most eight are listed."""
    counts = sorted(((name, int(gap.sum())) for name, gap in gaps.items() if gap.any()), key=lambda entry: -entry[1])
    shown = ", ".join(form.format(name, count) for name, count in counts[:8])
    return shown + (f", … ({len(counts)} columns in all)" if len(counts) > 8 else "")


def _refuse_gaps(vital: dict[str, Mask], gaps: dict[str, Mask], rows: Index, training: bool) -> None:
    """Raise if values are missing that the schema does not allow, with the possible remedies.

    Parameters
    ----------
    vital, gaps : dict of str to ndarray
        Masks of missing values that cannot be filled (targets, offsets, weights), and of missing features.
    rows : ndarray of int
        Row numbers in the file.
    training : bool
        Whether the rows are for a fit, in which the treatment can still be chosen.
    """
    of_target, of_features = (any(gap.any() for gap in missing.values()) for missing in (vital, gaps))
    if not of_target and not of_features:
        return
    parts = []
    if training and of_target:
        parts.append("missing_target='drop' leaves out rows without a target, which cannot be filled")
    if training and of_features:
        parts.append(
            "missing='drop' leaves rows out, missing='mean' fills features with their mean, missing='indicator' "
            "marks them too"
        )
    if not training:
        again = " (or fit the model again with missing='drop', missing='mean' or missing='indicator')"
        parts.append(f"leave these rows out{again if of_features else ''}")
    both = vital | gaps
    first = int(rows[np.logical_or.reduce([*both.values()])].min()) + 1
    shown = _counted(both, "{!r} ({} rows)")
    raise DataError(f"Values are missing in {shown}, first in row {first}; complete them, or: {'; '.join(parts)}.")


def _tell_dropped(lacking: dict[str, Mask], tasks: CodedTasks, keep: Mask) -> None:
    """Warn about dropped rows: their number, the columns with missing values, and the tasks without any rows left."""
    left, there = (np.bincount(codes, minlength=len(tasks.names)) for codes in (tasks.codes[keep], tasks.codes))
    gone = tasks.names[(left == 0) & (there > 0)]
    lost = f" No row is left of the tasks {listing(gone)}." if len(gone) else ""
    warn(
        f"{int(np.sum(~keep)):,} of {len(keep):,} rows lack a value and were dropped; missing are values of "
        f"{_counted(lacking, '{!r} ({:,})')}.{lost}"
    )


def check_tasks(tasks: Sequence[str], known: Sequence[str], *, only_misspelt: bool = False) -> None:
    """Raise for unknown tasks, or only for unknown names that differ from a known one in blanks."""
    strangers = sorted(set(tasks) - set(known))
    twins = {"".join(name.split()): name for name in known}
    near = [(name, twins["".join(name.split())]) for name in strangers if "".join(name.split()) in twins]
    if not (near if only_misspelt else strangers):
        return
    hint = f" {near[0][0]!r} differs from {near[0][1]!r} only in blanks." if near else ""
    raise UnseenTaskError(
        f"Tasks {listing(strangers)} are not in the model; it knows {listing(sorted(known))}.{hint} "
        "Correct the names, or fit again with rows of these tasks; unseen='mean' takes the tasks' mean."
    )
