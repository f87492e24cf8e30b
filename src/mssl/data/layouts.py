"""Reading tasks: the three data layouts, read and checked in one place.

========  =======================================  ==================================================
layout    X, y                                     for
========  =======================================  ==================================================
long      X (N, d [+ task column]), y (N,)         ragged tasks; frames with a column of task ids
shared    X (n, d), y (n, K)                       one design, many targets
aligned   X (n, K, d), y (n, K)                    rows that belong together in all tasks (time)
========  =======================================  ==================================================

For all layouts, :class:`TaskData` holds the rows sorted by task, so that solvers see one form only.
Missing targets (NaN) are allowed in the shared and aligned layouts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from scipy.sparse import csr_array

from mssl._renamed import renamed_attribute
from mssl._typing import Array, ArrayLike, Index, Labels, Mask, Matrix, Rows
from mssl._validation import warn
from mssl.data.encoding import FeatureEncoder, Features, read_features
from mssl.data.inputs import (
    FEWEST,
    SAFE_POWERS,
    SAFE_SQUARES,
    as_matrix,
    check_sizes,
    is_missing,
    listing,
    number_tasks,
    rank_rows,
    read_labels,
    read_targets,
    read_weights,
    take_columns,
)
from mssl.exceptions import DataError, LayoutError, ParameterError


@dataclass(frozen=True, eq=False)
class TaskData:
    """The rows of all tasks, sorted by task.

    Attributes
    ----------
    X : ndarray or csr_array of shape (N, d), or (n, d) when ``shared``
        Features; task k owns rows ``offsets[k]:offsets[k + 1]`` (with ``shared``, all tasks own all rows).
    y : ndarray of shape (N,)
        Targets, task by task; N = K n when ``shared``.
    weights : ndarray of shape (N,) or None
        Frequency weights: weight 2 is the same as the row given twice.
    offsets : ndarray of shape (K + 1,)
        Where each task's targets begin.
    tasks : ndarray of shape (K,)
        Task names.
    layout : {"long", "shared", "aligned"}
        The layout of the input.
    input_rows : ndarray of shape (N,) or None
        The input row of each sorted row. None if the order has not changed (see ``source_rows``). Called ``rows``
        before version 0.2.
    aligned : bool
        Whether row i of every task is the same occasion, so that residuals can be compared across tasks.
    feature_names : ndarray of shape (d,) or None
        Names of the columns; None if the input has no names. Called ``names`` before version 0.2.
    encoder : FeatureEncoder or None
        The encoder that made numbers of the input's columns; None if all columns were numbers.
    groups : ndarray of int of shape (N,) or None
        Group of each row. A group may hold rows of several tasks, and folds never split it.
    order : ndarray of int of shape (N,) or None
        Rank of each row's time among all times; equal times have equal ranks.
    n_columns : int or None
        The first ``n_columns`` features are columns of the input, and a feature map made the others of them. None if
        all features are columns.
    dtype : dtype
        Type of the input's features, float32 or float64. Coefficients and predictions get this type; X is float64.

    Examples
    --------
    >>> from mssl.data import TaskData
    >>> data = TaskData.from_list([[[0.0], [1.0]], [[2.0], [3.0], [4.0]]], [[0, 1], [1, 2, 3]])
    >>> data.n_tasks, data.n_rows.tolist()
    (2, [2, 3])
    """

    X: Matrix
    y: Array
    weights: Array | None
    offsets: Index
    tasks: Labels
    layout: str
    input_rows: Index | None = None
    aligned: bool = False
    feature_names: Labels | None = None
    encoder: FeatureEncoder | None = None
    groups: Index | None = None
    order: Index | None = None
    n_columns: int | None = None
    dtype: DTypeLike = np.float64

    rows = renamed_attribute("rows", "input_rows")
    names = renamed_attribute("names", "feature_names")

    @property
    def shared(self) -> bool:
        """Whether all tasks have the same features, stored once."""
        return len(self.X) != len(self.y) if not sparse.issparse(self.X) else False

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return len(self.tasks)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.X.shape[1])

    @property
    def n_rows(self) -> Index:
        """Rows of each task."""
        return np.diff(self.offsets)

    @property
    def task_of_row(self) -> Index:
        """Task index of each flat row."""
        return np.repeat(np.arange(self.n_tasks), self.n_rows)

    @property
    def source_rows(self) -> Index:
        """The input row of each flat row."""
        if self.input_rows is not None:
            return self.input_rows
        return np.arange(len(self.y)) if self.layout == "long" else np.tile(np.arange(self.n_rows[0]), self.n_tasks)

    @property
    def occasions(self) -> Index | None:
        """The occasion of each flat row: its group if groups are given, else its input row if that holds all tasks."""
        return self.source_rows if self.groups is None and self.layout != "long" else self.groups

    @property
    def paired(self) -> Index | None:
        """The occasion of each flat row; None if no occasion joins tasks, or if one has several rows of a task."""
        if self.layout != "long":
            return np.tile(np.arange(self.n_rows[0]), self.n_tasks) if self.aligned else self.source_rows
        if self.groups is None:
            return None
        places = np.unique(self.groups, return_inverse=True)[1]
        alone = np.bincount(self.task_of_row * (places.max() + 1) + places).max() == 1
        return places if alone else None

    def by_occasion(self, values: Array) -> Array:
        """Arrange values of the flat rows, (N,) or (N, d), by occasion: (K, n) or (K, n, d), NaN for missing rows."""
        occasions = self.paired
        if occasions is None:
            raise ParameterError("No rows of different tasks belong together; give y as (n, K), or groups of rows.")
        table = np.full((self.n_tasks, int(occasions.max()) + 1, *values.shape[1:]), np.nan)
        table[self.task_of_row, occasions] = values
        return table

    def with_occasions(self, groups: ArrayLike | None = None, order: ArrayLike | None = None) -> TaskData:
        """The same data with groups and times.

        Parameters
        ----------
        groups : array of shape (N,) or (n,), optional
            Group of each row of the input.
        order : array of shape (N,) or (n,), optional
            Time of each row of the input: numbers, dates or other values that can be sorted.
        """
        rows, given = self.source_rows, {"groups": groups, "order": order}
        ranks = {name: None if labels is None else rank_rows(name, labels, rows=rows) for name, labels in given.items()}
        return replace(self, groups=ranks["groups"], order=ranks["order"])

    def task_sums(self, values: Array) -> Array:
        """Sum a flat vector over each task's rows."""
        sums, full = np.zeros(self.n_tasks), self.n_rows > 0
        sums[full] = np.add.reduceat(values, self.offsets[:-1][full])
        return sums

    @property
    def row_weights(self) -> Array:
        """The weight of each row; ones if no weights are given."""
        return np.ones(len(self.y)) if self.weights is None else self.weights

    def weight_sums(self) -> Array:
        """Total weight of each task's rows."""
        return self.task_sums(self.row_weights)

    @classmethod
    def from_list(
        cls,
        Xs: Sequence[ArrayLike | csr_array],
        ys: Sequence[ArrayLike],
        tasks: ArrayLike | None = None,
        sample_weight: Sequence[ArrayLike] | None = None,
    ) -> TaskData:
        """Build from one (X, y) pair per task; :func:`stack_tasks` makes arrays for an estimator."""
        X, y, ids = stack_tasks(Xs, ys, tasks)
        weights = None if sample_weight is None else np.concatenate([np.asarray(w, float) for w in sample_weight])
        return read_tasks(X, y, tasks=ids, sample_weight=weights)


def stack_tasks(
    Xs: Sequence[ArrayLike | csr_array], ys: Sequence[ArrayLike], tasks: ArrayLike | None = None
) -> tuple[Matrix, Labels, Labels]:
    """Convert one data set per task to the long layout.

    Parameters
    ----------
    Xs : sequence of K arrays of shape (n_k, d), dense or sparse
        Features of each task.
    ys : sequence of K arrays of shape (n_k,)
        Targets of each task.
    tasks : sequence of K names, optional
        Task names; 0 … K−1 by default.

    Returns
    -------
    X : ndarray or csr_array of shape (N, d)
    y : ndarray of shape (N,)
    tasks : ndarray of shape (N,)
        Task of each row: pass it as ``fit(X, y, tasks=tasks)``.

    Examples
    --------
    >>> from mssl import stack_tasks
    >>> X, y, tasks = stack_tasks([[[1.0], [2.0]], [[3.0]]], [[1, 2], [3]], ["a", "b"])
    >>> X.shape, tasks.tolist()
    ((3, 1), ['a', 'a', 'b'])
    """
    if len(Xs) == 0 or len(Xs) != len(ys):
        raise LayoutError(
            f"There are {len(Xs)} feature matrices and {len(ys)} targets; give one of each per task, at least one task."
        )
    names = np.arange(len(Xs)) if tasks is None else np.asarray(read_labels(tasks))
    if len(names) != len(Xs):
        raise LayoutError(f"There are {len(names)} task names for {len(Xs)} tasks; give one name per task.")
    if len(np.unique(names)) != len(names):
        raise LayoutError("Two tasks have the same name; give every task a name of its own.")
    lengths = [np.shape(y)[0] for y in ys]
    empty = [name for name, length in zip(names, lengths, strict=True) if length == 0]
    if empty:
        raise DataError(f"Tasks {listing(empty)} have no rows; drop these tasks or give them data.")
    blocks = [as_matrix(X) for X in Xs]
    for name, block, length in zip(names, blocks, lengths, strict=True):
        if block.ndim != 2 or block.shape[0] != length:
            raise LayoutError(
                f"Task {listing([name])} has features of shape {block.shape} and {length} targets; "
                "give each task X of shape (n_k, d) and y of shape (n_k,)."
            )
    widths = {block.shape[1] for block in blocks}
    if len(widths) > 1:
        raise LayoutError(f"Tasks have different numbers of features ({sorted(widths)}); give all the same d.")
    stacked: Matrix = sparse.vstack(blocks).tocsr() if any(map(sparse.issparse, blocks)) else np.concatenate(blocks)
    return stacked, np.concatenate([np.asarray(y) for y in ys]), np.repeat(names, lengths)


def read_tasks(
    X: Rows | Features,
    y: ArrayLike,
    *,
    task_column: Hashable | None = None,
    tasks: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    y_numeric: bool = True,
    groups: ArrayLike | None = None,
    order: ArrayLike | None = None,
    empty_tasks: bool = False,
) -> TaskData:
    """Check X, y and weights in any layout, encode categories and missing features, and sort the rows by task.

    Groups and times follow their rows. Tasks without rows are refused unless ``empty_tasks`` says otherwise.

    Raises
    ------
    LayoutError
        When X, y and task ids do not fit together.
    DataError
        When values are missing, infinite or not numbers, or when all weights of a task are zero.
    """
    dated = groups is not None or order is not None
    if dated:
        X, groups, order, _ = take_columns(X, groups, order)
    features = read_features(X, task_column, tasks)
    targets, target_names = read_targets(y, features.values, y_numeric)
    if features.values.ndim == 3 or targets.ndim == 2:
        data = _from_table(features, targets, target_names, sample_weight)
    else:
        data = _from_long(features, targets, target_names, sample_weight)
    empty = data.tasks[data.n_rows == 0].tolist()
    if empty and not (empty_tasks and len(data.y)):
        raise DataError(
            f"Tasks {listing(empty)} have no row with a target and a positive weight; drop these tasks "
            "or give them data."
        )
    if data.feature_names is not None and data.layout == "long" and not sparse.issparse(data.X):
        _warn_of_target(data.X, data.y, data.feature_names)
    data = replace(data, encoder=features.encoder, dtype=features.dtype)
    return data.with_occasions(groups, order) if dated else data


def _warn_of_target(X: Array, y: Array, names: Labels) -> None:
    """Warn if a column of a frame equals the target."""
    if len(y) < FEWEST or y.dtype.kind not in "biuf":
        return
    alike = np.flatnonzero((X[:FEWEST] == y[:FEWEST, None]).all(axis=0))
    same = [names[j] for j in alike if np.array_equal(X[:, j], y)]
    if same and np.any(y != y[0]):
        warn(f"The column {listing(same)} of X is the target itself, so nothing is left to predict; drop it from X.")


def subset(data: TaskData, mask: Mask, *, all_tasks: bool = True) -> TaskData:
    """Some rows of the data; a shared design stays shared.

    Parameters
    ----------
    data : TaskData
        All rows.
    mask : ndarray of bool of shape (N,)
        Which flat rows to keep; for a shared design the same for every task.
    all_tasks : bool
        Whether every task must keep at least one row.
    """
    counts = np.bincount(data.task_of_row[mask], minlength=data.n_tasks)
    if all_tasks and counts.min() == 0:
        raise DataError(f"Tasks {listing(list(data.tasks[counts == 0]))} are left without rows; give every task some.")
    X = data.X[mask[: len(data.X)]] if data.shared else data.X[np.flatnonzero(mask)]
    return replace(
        data,
        X=X,
        y=data.y[mask],
        weights=None if data.weights is None else data.weights[mask],
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        input_rows=data.source_rows[mask] if data.layout != "long" else None,
        groups=None if data.groups is None else data.groups[mask],
        order=None if data.order is None else data.order[mask],
    )


def check_target_sizes(data: TaskData, *, free_units: bool) -> None:
    """Raise if targets are too large or too small for doubles, or if tasks' targets differ too much in size.

    Models with ``free_units`` scale the targets by the largest one; other models use the targets unscaled.
    """
    full = data.n_rows > 0
    sizes = np.zeros(data.n_tasks)
    sizes[full] = np.maximum.reduceat(np.abs(data.y), data.offsets[:-1][full])
    largest, smallest = sizes.max(), sizes.min(where=sizes > 0, initial=np.inf)
    why, suit = "", ""
    if not free_units:
        why, suit = ", penalties or noise of this model are in their units", " (and penalties and noise to suit)"
    allowed = SAFE_SQUARES if free_units else SAFE_POWERS
    check_sizes(
        sizes.max(keepdims=True), allowed, f"The targets are of size {{1:.2g}}{why}", f"Give y in other units{suit}."
    )
    if largest > SAFE_POWERS[1] * smallest:
        names = list(data.tasks[(sizes > 0) & (largest > SAFE_POWERS[1] * sizes)])
        raise DataError(
            f"The targets of tasks {listing(names)} are smaller than those of others by a factor beyond "
            f"{SAFE_POWERS[1]:g} ({smallest:.2g} beside {largest:.2g}); give the tasks' targets in comparable units."
        )


def _from_long(features: Features, y: Labels, target_names: Labels | None, sample_weight: ArrayLike | None) -> TaskData:
    X = features.values
    n = X.shape[0]
    weights = None if sample_weight is None else read_weights(sample_weight, (n,))
    if features.tasks is None:
        tasks, of_row = np.asarray([0]) if target_names is None else target_names, np.zeros(n, dtype=np.int64)
    else:
        tasks, of_row = number_tasks(features.tasks)
    # NumPy sorts 16-bit integers by their digits, in a fifth of the time.
    small = of_row.astype(np.int16) if len(tasks) <= np.iinfo(np.int16).max else of_row
    order = np.argsort(small, kind="stable") if np.any(np.diff(of_row) < 0) else None
    if weights is not None and np.any(weights == 0):
        order = np.flatnonzero(weights > 0) if order is None else order[weights[order] > 0]
    if order is not None:
        X, y, of_row = X[order], y[order], of_row[order]
        weights = None if weights is None else weights[order]
    offsets = np.searchsorted(of_row, np.arange(len(tasks) + 1))
    return TaskData(X, y, weights, offsets, tasks, "long", order, False, features.feature_names)


def _from_table(
    features: Features, y: Labels, target_names: Labels | None, sample_weight: ArrayLike | None
) -> TaskData:
    """Tasks whose targets are the columns of y, with one X for all tasks (shared) or one X per task (aligned)."""
    X, names, K = features.values, features.tasks, y.shape[1]
    aligned = X.ndim == 3
    if names is not None and not aligned:
        raise LayoutError(
            f"y has shape {y.shape} and task ids were given too; give y of shape (N,) with task ids. "
            "Leave the ids out if all tasks share one design, and name the tasks by the columns of a frame y."
        )
    if names is not None and len(names) != K:
        raise LayoutError(f"There are {len(names)} task names for {K} aligned tasks; give one name per task.")
    tasks = np.asarray(names) if names is not None else np.arange(K) if target_names is None else target_names
    weights, seen = None if sample_weight is None else read_weights(sample_weight, y.shape), ~is_missing(y)
    seen = seen if weights is None else seen & (weights > 0)
    common = weights is None or bool(np.all(weights == weights[:, :1]))
    whole, (task, rows) = bool(seen.all()), np.nonzero(seen.T)
    one = common and not aligned and not sparse.issparse(X) and bool(np.all(seen == seen[:, :1]))
    if not one:
        X = X[rows, task] if aligned else X[rows]
    elif not whole:
        X = np.ascontiguousarray(X[seen[:, 0]])  # one copy for all tasks
    weights = None if weights is None else weights[rows, task]
    offsets, layout = np.searchsorted(task, np.arange(K + 1)), "aligned" if aligned else "shared"
    input_rows = None if whole else rows
    same = one or (common and whole)
    return TaskData(X, y[rows, task], weights, offsets, tasks, layout, input_rows, same, features.feature_names)
