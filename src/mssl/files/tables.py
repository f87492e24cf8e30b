"""Tables as tasks, features and targets: what the columns of a file mean is learned once, as a :class:`TableSchema`.

It is kept with the model, so that new files are read in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
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
from mssl.data.inputs import CodedTasks, listing
from mssl.exceptions import DataError, ParameterError, UnseenTaskError
from mssl.files.formats import MISSING_TEXT, Table, read_table, release_memory

__all__ = ["ColumnSchema", "Encoded", "Table", "TableSchema", "learn_schema", "read_table", "release_memory"]

Missing = Literal["error", "drop", "mean", "indicator"]  # what can be done with rows that lack a value
_LONGEST_TASK = 256  # characters of a task name: a longer one is most likely not a name, and fills every table


class Encoded(NamedTuple):
    """Rows of a table: features (N, d), tasks (N,), targets (N,), empty if not read, and places in the file.

    ``dropped`` is the number of rows that were left out, since they lack a value; ``offset`` and ``weight`` are of each
    row, None without a column of them.
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
        """What a model that knows this table's columns takes in the place of a frame with them."""
        return Features(self.X)


@dataclass(frozen=True)
class TableSchema:
    """What the columns of a training table mean; kept with the model as ``table_``.

    Attributes
    ----------
    task, target : str
        Names of the columns of task names and targets.
    columns : tuple of ColumnSchema
        The columns of features, in order.
    missing : {"error", "drop", "mean", "indicator"}
        What happens to missing features: an error, their rows are left out, they are filled with their column's mean,
        or are filled and marked by a further column.
    offset : str or None
        Name of the column that is added to the linear predictor.
    """

    task: str
    target: str
    columns: tuple[ColumnSchema, ...]
    missing: str = "error"
    offset: str | None = None

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded features."""
        return encoded_names(self.columns)

    @property
    def names(self) -> list[str]:
        """Names of the columns that predictions need: of tasks and of features."""
        return [self.task, *(column.name for column in self.columns)]

    def attach(self, model: Any) -> None:
        """Let a model that was fitted to encoded rows take frames with the columns of the table, as if fitted to one.

        Its parameters then say what the columns mean; encoded rows are given to it as
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
        """Read the columns that are needed from a file, and columns of text besides."""
        beside = [*([self.target] if with_target else []), *([self.offset] if self.offset else [])]
        codes = [column.name for column in self.columns if column.categories is not None]
        text = [self.task, *codes, *labels]  # 01 is not 1
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
        """Features, task names and (if asked for) targets of the rows that can be used; the table is used up.

        Parameters
        ----------
        table : Table
            With the columns of this schema.
        with_target : bool
            Read the target too.
        by_task : bool
            Sort the rows by task, which spares the estimator a copy.
        training : bool
            The rows are to be fitted to, so that it can still be chosen what happens to missing values.
        missing_target : {"error", "drop"}, optional
            What happens to rows without a target, an offset or a weight; by default an error where missing features are
            one.
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
        if not keep.all() and with_target:  # a prediction of such a row is left empty, which is seen
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
    missing : {"error", "drop", "mean", "indicator"}
        As for :class:`TableSchema`.
    offset : str, optional
        Column that is added to the linear predictor; list it in ``drop`` too.
    categorical : sequence of str
        Columns that are categories, whatever they hold.

    Returns
    -------
    TableSchema

    Raises
    ------
    DataError
        For dates, free text, columns that are not there, or no feature at all.
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


def target_values(column: ColumnValues) -> Labels:
    """Targets as numbers (NaN where missing), or as text ("" where missing)."""
    if column.kind == "date":
        raise DataError(f"The target column {column.name!r} holds dates; give numbers or two labels.")
    if column.kind == "number":
        return numbers_of(column)
    codes, levels = column.text()
    shown = ["" if level in MISSING_TEXT else level for level in levels]
    reject_mixed(f"The target column {column.name!r}", [level for level in shown if level])
    return np.asarray([*shown, ""])[codes]


def detect_family(target: Labels, name: str = "the target") -> str:
    """The family that targets suggest: two values are binary, counts with zeros Poisson, other numbers Gaussian."""
    values = np.unique(target[~_is_blank(target)])
    if len(values) == 2:
        return "binary"
    if target.dtype.kind == "U":
        raise text_target(values, name)
    counts = len(values) > 2 and values[0] == 0 and bool(np.all(values == np.round(values)))
    return "poisson" if counts else "gaussian"


_QUANTITY = re.compile(r"\s*[^\w\s.,+-]?\s*[-+]?[\d.,]+\s*[^\d\s].*")  # 12kg, 3.5 %, € 20 p.a.


def text_target(target: Labels, name: str) -> DataError:
    """What is wrong with a target of text that is not two labels, two of its values, and what can be done."""
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
    """Columns with their numbers of missing values, most first, and the first few of many."""
    counts = sorted(((name, int(gap.sum())) for name, gap in gaps.items() if gap.any()), key=lambda entry: -entry[1])
    shown = ", ".join(form.format(name, count) for name, count in counts[:8])
    return shown + (f", … ({len(counts)} columns in all)" if len(counts) > 8 else "")


def _refuse_gaps(vital: dict[str, Mask], gaps: dict[str, Mask], rows: Index, training: bool) -> None:
    """Raise where values are missing that are not provided for, and say what can be done.

    Parameters
    ----------
    vital, gaps : dict of str to ndarray
        Where values are missing that nothing can stand in for, and where those of features are.
    rows : ndarray of int
        Where the rows stand in the file.
    training : bool
        Whether it can still be chosen what happens to them.
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
    """Say how many rows were left out, which columns they lack, and which tasks have none left."""
    left, there = (np.bincount(codes, minlength=len(tasks.names)) for codes in (tasks.codes[keep], tasks.codes))
    gone = tasks.names[(left == 0) & (there > 0)]
    lost = f" No row is left of the tasks {listing(gone)}." if len(gone) else ""
    warn(
        f"{int(np.sum(~keep)):,} of {len(keep):,} rows lack a value and were dropped; missing are values of "
        f"{_counted(lacking, '{!r} ({:,})')}.{lost}"
    )


def check_tasks(tasks: Sequence[str], known: Sequence[str], *, only_misspelt: bool = False) -> None:
    """Raise for tasks that the model does not know, or only for those that differ from one it knows in blanks."""
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
