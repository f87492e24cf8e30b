"""Splits of rows into training and test parts that never lose a task.

Unshuffled ``KFold`` on rows sorted by task drops whole tasks. The splitters here split within every task, and work as
``cv=`` anywhere in scikit-learn: tasks come from ``task_column``, from ``groups=``, or from the columns of a 2-d y.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _num_samples

from mssl._validation import check_whole_number, refused
from mssl.data.inputs import CodedTasks, as_given, is_missing, listing, number_tasks, read_labels
from mssl.exceptions import DataError, LayoutError, ParameterError

Index = NDArray[np.intp]
Split = tuple[Index, Index]


class TaskSplitter(BaseCrossValidator):
    """What all splitters share: finding out which task each row belongs to."""

    task_column: Any

    def _tasks(self, X: Any, y: Any, groups: Any) -> tuple[NDArray[Any], Index]:
        """Task names, and the task of each row; one task for the layouts whose rows hold all tasks."""
        n = _num_samples(X)
        if groups is None and self.task_column is not None:
            groups = task_ids(X, self.task_column)
        if groups is None or np.ndim(y) == 2 or np.ndim(X) == 3:
            return np.asarray([0]), np.zeros(n, dtype=np.intp)
        labels = groups if isinstance(groups, CodedTasks) else read_labels(groups)
        if labels.shape != (n,):
            raise LayoutError(f"X has {n} rows, the task ids have shape {labels.shape}; give one id a row.")
        return number_tasks(labels)

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Split]:
        """Yield training and test rows.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features; only their number of rows and their task column are looked at.
        y : array of shape (N,) or (n, K), optional
            Targets.
        groups : array of shape (N,), optional
            Task of each row, where there is no task column.

        Yields
        ------
        train, test : ndarrays of int
        """
        yield from self._split(X, y, groups)

    def _split(self, X: Any, y: Any, groups: Any) -> Iterator[Split]:
        raise NotImplementedError  # pragma: no cover - subclasses define it


def read_splits(cv: Any, X: Any, y: Any, groups: Any) -> list[Split]:
    """The splits that a ``cv=`` stands for, as row numbers.

    Parameters
    ----------
    cv : None, int, splitter or iterable of (train, test)
        None is 5 folds; parts are row numbers or masks of all rows.
    X, y, groups
        As for :meth:`TaskSplitter.split`.
    """
    if cv is None or isinstance(cv, int | np.integer):
        cv = TaskKFold(5 if cv is None else int(cv))
    if isinstance(cv, str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise refused("cv", cv, "give a number of folds, a splitter, or (train, test) index pairs")
    if hasattr(cv, "split"):  # scikit-learn's splitters do not know tasks, and most warn where groups are given
        cv = cv.split(X, y, groups) if isinstance(cv, TaskSplitter) else cv.split(X, y)
    n, splits = _num_samples(X), []
    for number, pair in enumerate(cv):
        if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
            raise DataError(f"Fold {number} of cv is no pair of training and test rows; give (train, test) pairs.")
        splits.append((_row_numbers(pair[0], n, number), _row_numbers(pair[1], n, number)))
    return splits


def _row_numbers(part: Any, n: int, fold: int) -> Index:
    """A part of a split as row numbers, from those or from a mask."""
    rows = np.asarray(part)
    if rows.dtype.kind == "b":
        if rows.shape != (n,):
            raise DataError(f"Fold {fold} of cv has a mask of shape {rows.shape}; give one entry a row, shape ({n},).")
        return np.flatnonzero(rows)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise DataError(
            f"Fold {fold} of cv holds {rows.dtype} of shape {rows.shape}; give row numbers (whole, one-dimensional) or "
            "masks of all rows."
        )
    if rows.size and (rows.min() < 0 or rows.max() >= n):
        raise DataError(
            f"Fold {fold} of cv names rows from {rows.min()} to {rows.max()}; give numbers from 0 to {n - 1}."
        )
    return rows.astype(np.intp)


def row_mask(rows: Index, n: int) -> NDArray[np.bool_]:
    """A mask of n rows from row numbers; numbers beyond n name rows that were not read."""
    member = np.zeros(n, dtype=bool)
    member[rows[rows < n]] = True
    return member


def task_ids(X: Any, column: Any) -> NDArray[Any]:
    """The task ids in a column of a frame, an array or a sparse matrix."""
    if hasattr(X, "columns"):
        if column not in list(X.columns):
            raise LayoutError(f"task_column is {listing([column])}, but X has the columns {listing(list(X.columns))}.")
        return np.asarray(X[column])
    if not hasattr(X, "shape"):
        X = as_given(X)
    if not isinstance(column, int | np.integer) or not -X.shape[1] <= column < X.shape[1]:
        raise LayoutError(
            f"task_column is {listing([column])}; X has {X.shape[1]} columns without names, give a number."
        )
    if sparse.issparse(X):
        return np.asarray(sparse.csr_array(X)[:, [int(column) % X.shape[1]]].toarray().ravel())
    return np.asarray(X)[:, column]


class TaskKFold(TaskSplitter):
    """K folds stratified by task and, for labels, by class within the task.

    Every task's rows are dealt out evenly, so that training parts hold every task and test parts every task that has
    at least as many rows as there are folds. Training parts hold both classes where each has two rows in all.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=True
        Shuffle the rows of each task (and class) before dealing them out.
    random_state : int, RandomState or None, default=0
        Seed of the shuffle.
    task_column : str or int, optional
        Column of X that holds task ids; otherwise give them as ``groups``.

    Examples
    --------
    >>> import numpy as np
    >>> tasks = np.repeat(["a", "b"], [4, 6])
    >>> for train, test in TaskKFold(2).split(np.zeros((10, 1)), groups=tasks):
    ...     print(np.unique(tasks[test], return_counts=True)[1])
    [2 3]
    [2 3]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = 0, task_column: Any = None
    ) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state
        self.task_column = task_column

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds."""
        return self.n_splits

    def _split(self, X: Any, y: Any, groups: Any) -> Iterator[Split]:
        tasks, of_row = self._tasks(X, y, groups)
        self._check(tasks, np.bincount(of_row, minlength=len(tasks)))
        strata = _strata(y, len(of_row))
        random = check_random_state(self.random_state)
        order = random.permutation(len(of_row)) if self.shuffle else np.arange(len(of_row))
        order = order[np.lexsort((strata[order], of_row[order]))]
        # Each task begins with the fold at which the one before it ended: fold sizes differ by at most one.
        fold = np.empty(len(order), dtype=np.intp)
        fold[order] = np.arange(len(order)) % self.n_splits
        _spread_classes(fold, of_row, strata)
        for number in range(self.n_splits):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)

    def _check(self, tasks: NDArray[Any], sizes: Index) -> None:
        check_whole_number("n_splits", self.n_splits, low=2)
        if sizes.max() < 2:
            raise DataError(
                "Every task has one row only (n_samples=1), so that no row can be held out; give more rows, or "
                "fit with penalties of your own choice instead of cross-validation."
            )
        if self.n_splits > sizes.max():
            raise ParameterError(
                f"n_splits is {self.n_splits}, the largest task has {sizes.max()} rows; "
                f"give at most {sizes.max()} folds."
            )
        if sizes.min() < 2:
            alone = list(tasks[sizes < 2])
            raise DataError(
                f"Tasks {listing(alone)} have a single row, which cannot be in the training and in the test part; "
                "give them more rows or leave them out."
            )


def _spread_classes(fold: Index, of_row: Index, strata: Index) -> None:
    """Swap two rows of a task where one fold would hold out all rows of a class, which its training part would miss.

    Such a class has at most one row a task. It changes places with a row whose own class that leaves balanced.
    """
    counts = np.bincount(strata)
    for value in np.flatnonzero((counts > 1) & (counts <= of_row.max() + 1)):
        rows = np.flatnonzero(strata == value)
        if np.ptp(fold[rows]) > 0:
            continue
        first, here = rows[0], fold[rows[0]]
        same_task = of_row == of_row[first]
        others = np.flatnonzero(same_task & (fold != here))
        surplus = [
            np.count_nonzero(same_task & (strata == strata[row]) & (fold == fold[row]))
            - np.count_nonzero(same_task & (strata == strata[row]) & (fold == here))
            for row in others
        ]
        other = others[int(np.argmax(surplus))]
        fold[first], fold[other] = fold[other], here


def _strata(y: Any, n: int) -> Index:
    """A number a row; equal numbers are spread evenly over the folds."""
    if y is None:
        return np.zeros(n, dtype=np.intp)
    targets = as_given(y)
    if targets.shape[0] != n:
        raise LayoutError(f"X has {n} rows, y has {targets.shape[0]}; give one target a row.")
    if targets.ndim == 1:
        if not _are_labels(targets):
            return np.zeros(n, dtype=np.intp)
        return np.unique(targets, return_inverse=True)[1].astype(np.intp)
    missing = is_missing(targets)
    classes = np.zeros(targets.shape, dtype=np.intp)
    seen = targets[~missing]
    if seen.size and _are_labels(seen):
        classes[~missing] = 1 + np.unique(seen, return_inverse=True)[1]
    else:
        classes[~missing] = 1
    # Rows with similar patterns over tasks become neighbours and go to different folds.
    return np.unique(classes, axis=0, return_inverse=True)[1].astype(np.intp).ravel()


def _are_labels(targets: NDArray[Any]) -> bool:
    with np.errstate(invalid="ignore"):  # of numbers beyond all integers, which are no labels
        return type_of_target(targets) in ("binary", "multiclass")


class MovingWindowSplit(TaskSplitter):
    """Windows of fixed length that move through time: train on one, test on what follows.

    Rows are taken to be in the order of time (within each task for the long layout, where all tasks must have the
    same number of rows).

    Parameters
    ----------
    n_train, n_test : int
        Rows (occasions) of the training and of the test window.
    step : int, optional
        How far the windows move; ``n_test`` by default, so that test windows do not overlap.
    gap : int, default=0
        Rows left out between training and test window.
    task_column : str or int, optional
        Column of X that holds task ids.

    Examples
    --------
    >>> import numpy as np
    >>> for train, test in MovingWindowSplit(3, 2).split(np.zeros((8, 1))):
    ...     print(train, test)
    [0 1 2] [3 4]
    [2 3 4] [5 6]
    """

    def __init__(
        self, n_train: int, n_test: int, *, step: int | None = None, gap: int = 0, task_column: Any = None
    ) -> None:
        self.n_train = n_train
        self.n_test = n_test
        self.step = step
        self.gap = gap
        self.task_column = task_column

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of windows that fit the rows of X."""
        if X is None:
            raise ParameterError("X is None; give the rows, because the number of windows depends on them.")
        return len(self._starts(len(self._clock(X, y, groups)[0])))

    def _clock(self, X: Any, y: Any, groups: Any) -> list[Index]:
        """Rows of every task in the order of time."""
        _, of_row = self._tasks(X, y, groups)
        rows = [np.flatnonzero(of_row == k) for k in range(of_row.max(initial=0) + 1)]
        lengths = {len(task_rows) for task_rows in rows}
        if len(lengths) > 1:
            raise LayoutError(
                f"Tasks have between {min(lengths)} and {max(lengths)} rows; give aligned tasks of "
                "equal length for windows in time. TaskTimeSeriesSplit takes tasks of different length."
            )
        return rows

    def _starts(self, n: int) -> Index:
        step = self.n_test if self.step is None else self.step
        for name, value in (("n_train", self.n_train), ("n_test", self.n_test), ("step", step)):
            check_whole_number(name, value, low=1)
        check_whole_number("gap", self.gap, low=0)
        last = n - self.n_train - self.gap - self.n_test
        if last < 0:
            raise ParameterError(f"n_train + gap + n_test is {n - last}, there are {n} rows; give shorter windows.")
        return np.arange(0, last + 1, step)

    def _split(self, X: Any, y: Any, groups: Any) -> Iterator[Split]:
        rows = self._clock(X, y, groups)
        for start in self._starts(len(rows[0])):
            middle = start + self.n_train
            test = slice(middle + self.gap, middle + self.gap + self.n_test)
            yield (
                np.sort(np.concatenate([task_rows[start:middle] for task_rows in rows])),
                np.sort(np.concatenate([task_rows[test] for task_rows in rows])),
            )


class TaskTimeSeriesSplit(TaskSplitter):
    """Growing training parts in the order of time, within every task.

    Fold i trains on the first rows of each task and tests on the block that follows; with one task, or rows that hold
    all tasks, this is scikit-learn's ``TimeSeriesSplit``. Tasks may differ in length.

    Parameters
    ----------
    n_splits : int, default=5
        Number of test blocks; every task needs more rows than that.
    gap : int, default=0
        Rows of each task left out between training and test part.
    task_column : str or int, optional
        Column of X that holds task ids.

    Examples
    --------
    >>> import numpy as np
    >>> for train, test in TaskTimeSeriesSplit(2).split(np.zeros((6, 1)), groups=[0, 0, 0, 1, 1, 1]):
    ...     print(train, test)
    [0 3] [1 4]
    [0 1 3 4] [2 5]
    """

    def __init__(self, n_splits: int = 5, *, gap: int = 0, task_column: Any = None) -> None:
        self.n_splits = n_splits
        self.gap = gap
        self.task_column = task_column

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of test blocks."""
        return self.n_splits

    def _split(self, X: Any, y: Any, groups: Any) -> Iterator[Split]:
        check_whole_number("n_splits", self.n_splits, low=1)
        check_whole_number("gap", self.gap, low=0)
        tasks, of_row = self._tasks(X, y, groups)
        rows = [np.flatnonzero(of_row == k) for k in range(len(tasks))]
        blocks = [len(task_rows) // (self.n_splits + 1) for task_rows in rows]
        first = [len(task_rows) - self.n_splits * block for task_rows, block in zip(rows, blocks, strict=True)]
        short = [task for task, block, head in zip(tasks, blocks, first, strict=True) if block < 1 or head <= self.gap]
        if short:
            raise ParameterError(
                f"Tasks {listing(short)} have too few rows for n_splits={self.n_splits} and gap={self.gap}; "
                "give each more rows than splits, and more before the first test block than the gap."
            )
        for number in range(self.n_splits):
            train, test = [], []
            for task_rows, block, head in zip(rows, blocks, first, strict=True):
                begin = head + number * block
                train.append(task_rows[: begin - self.gap])
                test.append(task_rows[begin : begin + block])
            yield np.sort(np.concatenate(train)), np.sort(np.concatenate(test))
