"""Splits of rows into training and test parts that keep every task in training and never split groups of rows.

Unshuffled ``KFold`` on rows sorted by task drops whole tasks. The splitters of this module split within every task and
work as ``cv=`` anywhere in scikit-learn. They read tasks from ``task_column``, from ``groups=``, or from the columns of
a 2-d y.

The folds are not stratified by label. Stratified test rows would have the class shares of their task's training rows by
design, so they would be predicted too well, and the search would prefer fits that follow every task's share.
:func:`deal_rows` makes folds of single rows and :func:`deal_groups` folds of groups. Both ignore the labels, unless a
training part would otherwise lack a class.

Rows that share their errors (stations on one day, samples of one patient) must be on the same side of a split, in all
tasks. Otherwise the training part knows the errors of the test rows, and the search chooses too weak penalties.
:class:`TaskGroupKFold` keeps groups together, and :class:`TaskBlockKFold` keeps neighbours in time together.
:class:`Folds` holds the parts of :class:`~mssl.data.layouts.TaskData`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import _num_samples

from mssl._typing import ArrayLike, Given, Index, Labels, Mask
from mssl._validation import check_whole_number, refused
from mssl.data.inputs import as_given, is_missing, listing, number_tasks, rank_rows, read_labels, task_ids
from mssl.data.layouts import TaskData
from mssl.exceptions import DataError, LayoutError, ParameterError

Split = tuple[Index, Index]
Sides = tuple[Mask, Mask]
# Values of ``cv=``: a number of folds, a splitter, or pairs of training and test rows.
CV: TypeAlias = int | BaseCrossValidator | Iterable[tuple[ArrayLike, ArrayLike]] | None


class TaskSplitter(BaseCrossValidator):
    """Base class of all splitters, which finds the task of each row."""

    n_splits: int
    task_column: Hashable
    forward = False  # whether a fold is trained on the rows of earlier folds only
    _third = "tasks"  # the meaning of split's third argument, which scikit-learn calls groups

    def get_n_splits(self, X: Any = None, y: Given = None, groups: Given = None) -> int:
        """Number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Given = None, groups: Given = None) -> Iterator[Split]:
        """Yield training and test rows.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features; splitters use only their number of rows and their task column.
        y : array of shape (N,) or (n, K), optional
            Targets.
        groups : array of shape (N,), optional
            Task of each row, if X has no task column. :class:`TaskGroupKFold` reads the group of each row from this
            argument, and :class:`TaskBlockKFold` its time (by default the order of the rows of each task).

        Yields
        ------
        train, test : ndarrays of int
        """
        yield from self.of_tasks(X, y, **{"tasks": None, "groups": None, "order": None, self._third: groups})

    def of_tasks(self, X: Any, y: Given, tasks: Given, groups: Given, order: Given) -> Iterator[Split]:
        """Yield the same rows from separate tasks, groups and times; a splitter uses those that it needs."""
        if tasks is None and self.task_column is not None:
            tasks = task_ids(X, self.task_column)
        n, names = _num_samples(X), np.asarray([0])
        of_row = np.zeros(n, dtype=np.intp)
        # In layouts whose rows hold all tasks, all rows count as one task.
        if tasks is not None and not (y is not None and np.ndim(y) == 2) and np.ndim(X) != 3:
            names, of_row = number_tasks(read_labels(tasks, n=n))
        for train, test in self._sides(names, of_row, y, groups, order):
            yield np.flatnonzero(train), np.flatnonzero(test)

    def _sides(self, names: Labels, of_row: Index, y: Given, groups: Given, order: Given) -> Iterator[Sides]:
        """Which rows each fold trains on and holds out, given the tasks' names and the task of each row."""
        check_whole_number("n_splits", self.n_splits, low=1 if self.forward else 2)
        fold = self._fold(names, of_row, y, groups, order)
        return ((fold < k if self.forward else fold != k, fold == k) for k in range(self.n_splits))

    def _fold(self, names: Labels, of_row: Index, y: Given, groups: Given, order: Given) -> Index:
        """The fold that holds out each row; −1 for rows that no fold holds out."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Folds:
    """The training rows and the held-out rows of every fold, as masks of the flat rows of all tasks.

    Attributes
    ----------
    train, test : ndarrays of bool of shape (F, N)
        The two parts of each fold.

    Examples
    --------
    >>> from mssl.data.layouts import read_tasks
    >>> data = read_tasks([[0.0], [1.0], [2.0], [3.0]], [0, 1, 2, 3], tasks=[0, 0, 1, 1], groups=["a", "b", "a", "b"])
    >>> for train, test in Folds.from_cv(data, 2):
    ...     print(train, test)
    [ True False  True False] [False  True False  True]
    [False  True False  True] [ True False  True False]
    """

    train: Mask
    test: Mask

    def __len__(self) -> int:
        return len(self.train)

    def __iter__(self) -> Iterator[tuple[Mask, Mask]]:
        return zip(self.train, self.test, strict=True)

    @classmethod
    def from_cv(cls, data: TaskData, cv: CV = None, X: Any = None) -> Folds:
        """Make folds of the given tasks from a value of ``cv=``.

        Rows of the same occasion (``data.occasions``) are on the same side of every fold. If ``data.order`` is given,
        the folds are blocks of time. Both rules hold if ``cv`` is a number of folds, or a splitter of this module that
        supports them; index pairs are used unchanged.

        Parameters
        ----------
        data : TaskData
            The tasks.
        cv : None, int, splitter or iterable of (train, test)
            As for :func:`read_splits`; index pairs are rows of the input.
        X : array or frame, optional
            The input, for its number of rows and for splitters that use its columns.
        """
        rows = data.source_rows
        n_input = int(rows.max()) + 1 if X is None else _num_samples(X)
        if isinstance(cv, TaskSplitter) or not hasattr(cv, "split"):
            X = None
        if cv is None or isinstance(cv, int | np.integer) or hasattr(cv, "split"):  # Rows of weight zero are left out.
            present, rows = np.unique(rows, return_inverse=True)
            X = X if X is None or len(present) == n_input else _safe_indexing(X, present)
            n_input = len(present)
        together = data.layout != "long"
        y: Labels = np.full((n_input, data.n_tasks) if together else n_input, np.nan)
        labels = data.y.dtype.kind not in "fiub"
        y[(rows, data.task_of_row) if together else rows] = (
            np.unique(data.y, return_inverse=True)[1] if labels else data.y
        )
        flat = np.zeros(n_input, dtype=np.intp)
        flat[rows] = np.arange(len(rows))
        known = (None if together else data.task_of_row, data.groups, data.order)
        beside = [None if part is None else part[flat] for part in known]  # tasks, groups and times by input row
        splits = read_splits(cv, np.zeros((n_input, 1)) if X is None else X, y, *beside)
        sides = np.zeros((2, len(splits), n_input), dtype=bool)
        for number, (train, test) in enumerate(splits):
            sides[0, number, train] = sides[1, number, test] = True
        return cls(*sides[:, :, rows])

    def check(self, data: TaskData, classes: Mapping[Any, Hashable]) -> None:
        """Raise if a training part lacks a task or a class, or if a part has no rows; single tasks may lack a class.

        ``classes`` maps the values of ``data.y`` to the names of the classes. It is empty for other targets.
        """
        if not len(self):
            raise DataError(
                "cv gives no splits at all; give a number of folds, a splitter, or (train, test) index pairs."
            )
        for number, (train, test) in enumerate(self):
            if not (train.any() and test.any()):
                raise DataError(
                    f"Fold {number} of cv has {train.sum()} training and {test.sum()} test rows with a target and a "
                    "positive weight; give some of both."
                )
            missed = list(data.tasks[np.bincount(data.task_of_row[train], minlength=data.n_tasks) == 0])
            if missed:
                raise DataError(
                    f"Fold {number} of cv leaves no training rows of tasks {listing(missed)}; use TaskKFold, which "
                    "splits within every task, or fewer folds."
                )
            if lost := [name for value, name in classes.items() if not np.any(data.y[train] == value)]:
                raise DataError(
                    f"Fold {number} of cv leaves no training rows of class {listing(lost)}; give that class two rows "
                    "or more, and use TaskKFold (an integer cv), which keeps one of them in each training part."
                )

    def cells(self) -> tuple[Index, Mask, Mask]:
        """Number the cells of the folds; rows of one cell are in the same part of every fold.

        Returns
        -------
        cell : ndarray of shape (N,)
            Number of the cell of each row.
        train, test : ndarrays of bool of shape (F, n_cells)
            Which cells make up each training and each test part.
        """
        cell = np.zeros(self.train.shape[1], dtype=np.intp)
        for train, test in self:
            code = 4 * cell + 2 * train + test
            # There are few distinct codes, so a table numbers them without sorting the rows.
            cell = np.searchsorted(np.flatnonzero(np.bincount(code)), code)
        first = _least(np.arange(len(cell)), cell)
        return cell, self.train[:, first], self.test[:, first]


def read_splits(cv: CV, X: Any, y: Given, tasks: Given, groups: Given = None, order: Given = None) -> list[Split]:
    """The splits that a value of ``cv=`` describes, as row numbers.

    Parameters
    ----------
    cv : None, int, splitter or iterable of (train, test)
        None means 5 folds, or one per group or time if there are fewer than 5. A number of folds means blocks of time
        if an order is given, else whole groups if groups are given, else :class:`TaskKFold`. Scikit-learn's splitters
        get the groups, and the rows in the order of time. Training and test parts are row numbers or masks of all rows.
    X, y : arrays
        Features and targets.
    tasks : array of shape (N,) or None
        Task of each row.
    groups, order : array of shape (N,) or (n,), optional
        Rows that belong together, and the time of each row.
    """
    if cv is None or isinstance(cv, int | np.integer):
        n_splits = 5 if cv is None else int(cv)
        if order is not None:
            cv = TaskBlockKFold(min(n_splits, len(np.unique(order))) if cv is None else n_splits)
        elif groups is not None:
            cv = TaskGroupKFold(min(n_splits, len(np.unique(groups))) if cv is None else n_splits)
        else:
            cv = TaskKFold(n_splits)
    if isinstance(cv, str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise refused("cv", cv, "give a number of folds, a splitter, or (train, test) index pairs")
    if isinstance(cv, TaskSplitter) and cv._third != "tasks":
        cv = cv.of_tasks(X, y, tasks, groups, order)
    elif hasattr(cv, "split"):
        cv = _in_time(cv, X, y, tasks, groups, order)
    n, splits = _num_samples(X), []
    for number, pair in enumerate(cv):
        if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
            raise DataError(f"Fold {number} of cv is not a pair of training and test rows; give (train, test) pairs.")
        splits.append((_row_numbers(pair[0], n, number), _row_numbers(pair[1], n, number)))
    return splits


def _in_time(cv: BaseCrossValidator, X: Any, y: Given, tasks: Given, groups: Given, order: Given) -> Iterable[Split]:
    """The splits of a splitter that gets the rows in the order of time, if an order is given."""
    # Scikit-learn's splitters do not know tasks, and most of them warn if they get groups.
    third = tasks if isinstance(cv, TaskSplitter) else groups
    given = [X, y] if third is None else [X, y, third]
    if order is None:
        return cv.split(*given)
    place = np.argsort(rank_rows("order", order), kind="stable")
    splits = cv.split(*(_safe_indexing(part, place) for part in given))
    return ((np.sort(place[train]), np.sort(place[test])) for train, test in splits)


def _row_numbers(part: ArrayLike, n: int, fold: int) -> Index:
    """Check one part of a split, given as row numbers or as a mask, and return row numbers."""
    rows = np.asarray(part)
    if rows.dtype.kind == "b":
        if rows.shape != (n,):
            raise DataError(f"Fold {fold} of cv has a mask of shape {rows.shape}; give one of shape ({n},).")
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


@dataclass(eq=False, repr=False)
class TaskKFold(TaskSplitter):
    """K folds stratified by task, without regard to the labels.

    The rows of every task are dealt evenly to the folds. Every training part then holds every task, and every test part
    holds each task that has at least as many rows as there are folds. With two classes, every training part holds both
    if each class has at least two rows; see :func:`deal_rows`. A task with a single row is never held out.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=True
        Shuffle the rows of each task before dealing them out.
    random_state : int, RandomState or None, default=0
        Seed of the shuffle.
    task_column : str or int, optional
        Column of X that holds task ids. Without it, give the task ids to ``split`` as ``groups``.

    Examples
    --------
    >>> import numpy as np
    >>> tasks = np.repeat(["a", "b"], [4, 6])
    >>> for train, test in TaskKFold(2).split(np.zeros((10, 1)), groups=tasks):
    ...     print(np.unique(tasks[test], return_counts=True)[1])
    [2 3]
    [2 3]
    """

    n_splits: int = 5
    _: KW_ONLY
    shuffle: bool = True
    random_state: int | np.random.RandomState | None = 0
    task_column: Hashable = None

    def _fold(self, names: Labels, of_row: Index, y: Given, groups: Given, order: Given) -> Index:
        classes = class_rows(y, len(of_row))
        most = np.bincount(of_row, minlength=len(names)).max()
        if most < 2:
            raise DataError(
                "Every task has one row only (n_samples=1), so that no row can be held out; give more rows, or "
                "fit with penalties of your own choice instead of cross-validation."
            )
        if self.n_splits > most:
            raise ParameterError(
                f"n_splits is {self.n_splits}, the largest task has {most} rows; give at most {most} folds."
            )
        random = check_random_state(self.random_state) if self.shuffle else None
        return deal_rows(of_row, classes, self.n_splits, random)


def deal_rows(
    of_row: Index, classes: Sequence[Index], n_splits: int, random: Any, *, chunk: bool = False, even: bool = False
) -> Index:
    """Deal the rows of every task to the folds in turn; return the fold of each row, −1 if it is never held out.

    The classes matter only if one fold would hold all rows of a class. The first of these rows is then swapped with the
    first row of the same task in another fold.

    Parameters
    ----------
    of_row : ndarray of int of shape (N,)
        Task of each row.
    classes : sequence of ndarrays
        Rows of each class, from :func:`class_rows`.
    n_splits : int
        Number of folds.
    random : RandomState, Generator or None
        Generator that shuffles the rows; None keeps their order.
    chunk : bool
        Whether these rows are one chunk of several. A task's only row may then be held out, and the fold of the first
        row is random.
    even : bool
        Whether all folds get equally many rows of each task. Left-over rows then have the fold −1.
    """
    order = np.arange(len(of_row)) if random is None else random.permutation(len(of_row))
    order = order[np.argsort(of_row[order], kind="stable")]
    # Each task begins with the fold after the last one of the task before it, so fold sizes differ by at most one.
    sizes, task = np.bincount(of_row), of_row[order]
    if even:
        order = order[_places(task) < sizes[task] // n_splits * n_splits]
    elif not chunk:
        order = order[sizes[task] > 1]
    fold = np.full(len(of_row), -1, dtype=np.intp)
    fold[order] = (np.arange(len(order)) + (random.integers(n_splits) if chunk else 0)) % n_splits
    for rows in [rows[fold[rows] >= 0] for rows in classes] if even else classes:
        if len(rows) > 1 and np.ptp(fold[rows]) == 0 and fold[rows[0]] >= 0:
            here = fold[rows[0]]
            other = np.flatnonzero((of_row == of_row[rows[0]]) & (fold != here) & (fold >= 0))[0]
            fold[rows[0]], fold[other] = fold[other], here
    return fold


def class_rows(y: Given, n: int) -> list[Index]:
    """Rows of each class if the targets have exactly two classes, else an empty list.

    In layouts whose rows hold all tasks, a row belongs to a class if any of its targets does.
    """
    if y is None:
        return []
    targets = as_given(y)
    if targets.shape[0] != n:
        raise LayoutError(f"X has {n} rows, y has {targets.shape[0]}; give one target per row.")
    seen = ~is_missing(targets)
    values = np.unique(targets[seen])
    if len(values) != 2:
        return []
    return [np.flatnonzero((seen & (targets == value)).reshape(n, -1).any(axis=1)) for value in values]


class TaskGroupKFold(TaskKFold):
    """K folds of whole groups: all rows of a group, in all tasks, are on the same side of every split.

    Groups are dealt out from the largest to the smallest. Each group goes to the fold in which its tasks have the
    fewest rows so far, so folds are balanced by task as far as the groups allow. A group that holds all rows of some
    task is never held out, since no rows of that task would be left for training. Labels play no role, with one
    exception: if one fold would hold out all rows of one of two classes, one of the groups with that class moves to
    another fold. The same is done for tasks. With very few groups (three to eight in two or three folds) about one
    split in a hundred still holds out a class or a task of several groups whole, because each move can undo an earlier
    one; estimators and comparisons then raise an error that names it. Other seeds or other numbers of folds help.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=True
        Break ties between groups of the same size at random.
    random_state : int, RandomState or None, default=0
        Seed of the shuffle.
    task_column : str or int, optional
        Column of X that holds task ids. Without it, folds are balanced by their number of rows.

    Examples
    --------
    Two stations that share their days:

    >>> import numpy as np
    >>> X = np.column_stack([np.repeat([0, 1], 4), np.zeros(8)])
    >>> day = np.tile([1, 2, 3, 4], 2)
    >>> for train, test in TaskGroupKFold(2, shuffle=False, task_column=0).split(X, groups=day):
    ...     print(day[test])
    [1 3 1 3]
    [2 4 2 4]
    """

    _third = "groups"

    def _fold(self, names: Labels, of_row: Index, y: Given, groups: Given, order: Given) -> Index:
        classes = class_rows(y, len(of_row))
        code = np.arange(len(of_row)) if groups is None else rank_rows("groups", groups, len(of_row))
        random = check_random_state(self.random_state) if self.shuffle else None
        return deal_groups(code, of_row, classes, names, self.n_splits, random)


def deal_groups(
    group: Index,
    of_row: Index,
    classes: Sequence[Index],
    names: Labels,
    n_splits: int,
    random: Any,
    *,
    by_size: bool = True,
) -> Index:
    """Deal groups to folds one by one, each to the fold where its tasks have the fewest rows.

    The function returns the fold of each row, −1 if the row is never held out.

    Parameters
    ----------
    group, of_row : ndarrays of int of shape (N,)
        Group and task of each row.
    classes : sequence of ndarrays
        Rows of each class, from :func:`class_rows`. Classes with at least two groups are kept in all training parts, as
        far as :class:`TaskGroupKFold` says.
    names : ndarray of shape (K,)
        Task names.
    n_splits : int
        Number of folds.
    random : RandomState, Generator or None
        Generator that shuffles the groups; None keeps their order.
    by_size : bool
        Whether the largest groups are dealt first, which balances the folds best. Otherwise the order is random.
    """
    counts = sparse.csr_array((np.ones(len(group)), (group, of_row)))
    owners = (counts > 0).astype(float)
    whole = owners.sum(axis=0) == 1  # tasks that one group holds
    stays = owners @ whole.astype(float) > 0
    free = np.flatnonzero(~stays)
    if len(free) < n_splits:
        held = f" ({int(stays.sum())} others hold all rows of a task, such as {listing(list(names[whole]))})"
        raise ParameterError(
            f"n_splits is {n_splits}, there are {len(free)} groups to hold out{held if stays.any() else ''}; "
            "give fewer folds, or smaller groups."
        )
    sizes = counts.sum(axis=1)
    order = free if random is None else random.permutation(free)
    if by_size:
        order = order[np.argsort(-sizes[order], kind="stable")]
    weights = 1.0 / counts.sum(axis=0) ** 2
    load, total = np.zeros((n_splits, counts.shape[1])), np.zeros(n_splits)
    fold = np.full(counts.shape[0], -1, dtype=np.intp)
    for g in order.tolist():
        own = slice(*counts.indptr[g : g + 2])
        columns, rows = counts.indices[own], counts.data[own]
        crowded = load[:, columns] @ (rows * weights[columns])
        best = int(np.lexsort((total, np.round(crowded, 12)))[0])
        fold[g] = best
        load[best, columns] += rows
        total[best] += sizes[g]
    # If one fold would hold out all rows of a class or a task, its smallest group moves to the smallest other fold.
    # With few groups the move can put all rows of another class or task into that fold.
    by_task = sparse.csc_array(owners)
    tasks = np.split(by_task.indices, by_task.indptr[1:-1])
    for mine in [*(np.unique(group[rows]) for rows in classes), *tasks]:
        if len(mine) > 1 and np.ptp(fold[mine]) == 0 and fold[mine[0]] >= 0:
            totals = np.bincount(fold[fold >= 0], weights=sizes[fold >= 0], minlength=n_splits)
            totals[fold[mine[0]]] = np.inf
            fold[mine[int(np.argmin(sizes[mine]))]] = int(np.argmin(totals))
    return fold[group]


@dataclass(eq=False, repr=False)
class TaskBlockKFold(TaskSplitter):
    """Folds that are blocks of time, the same for all tasks.

    The times of all tasks are cut into blocks with equal shares of the rows, where every task has the same weight. Each
    block is held out in turn. With ``forward=False`` all other rows are the training part; with ``forward=True`` only
    the earlier rows are. Rows of the same time or of the same group are never split. If all rows of a task lie in one
    block, they are not held out with it, since no rows of that task would be left for training.

    Parameters
    ----------
    n_splits : int, default=5
        Number of held-out blocks.
    forward : bool, default=False
        Train on earlier rows only. The first training part begins with the first row. It ends when every task has rows
        in it, and it holds at least a share 1 / (n_splits + 1) of the rows.
    task_column : str or int, optional
        Column of X that holds task ids.

    Examples
    --------
    >>> import numpy as np
    >>> for train, test in TaskBlockKFold(3).split(np.zeros((6, 1)), groups=[5, 4, 3, 2, 1, 0]):
    ...     print(test)
    [4 5]
    [2 3]
    [0 1]
    """

    n_splits: int = 5
    _: KW_ONLY
    forward: bool = False
    task_column: Hashable = None

    _third = "order"

    def _fold(self, names: Labels, of_row: Index, y: Given, groups: Given, order: Given) -> Index:
        n, sizes = len(of_row), np.bincount(of_row, minlength=len(names))
        time = _places(of_row) if order is None else rank_rows("order", order, n)
        if groups is not None:  # A group has the time of its first row.
            group = rank_rows("groups", groups, n)
            time = np.unique(np.stack([_least(time, group)[group], group]), axis=1, return_inverse=True)[1].ravel()
        share = np.bincount(time, weights=1.0 / sizes[of_row]) / len(sizes)
        before, begin = np.cumsum(share) - share, 0.0
        if self.forward:
            all_there = _least(time, of_row).max()
            begin = max(1.0 / (self.n_splits + 1), float((before + share)[all_there]))
        middle = (before + share / 2 - begin) / max(1.0 - begin, 1e-12)
        block = np.clip(np.floor(self.n_splits * middle), 0, self.n_splits - 1).astype(np.intp)
        block[before < begin - 1e-9] = -1  # the first training part
        if len(np.unique(block[block >= 0])) < self.n_splits:
            raise ParameterError(
                f"n_splits is {self.n_splits}, and {len(share)} different times (or groups) do not fill that many "
                "blocks; give fewer folds."
            )
        fold = block[time]
        kept = _least(fold, of_row) == -_least(-fold, of_row)  # tasks whose rows all lie in one block
        return np.where(kept[of_row], -1, fold)


def _least(values: Index, group: Index) -> Index:
    """The smallest value of each group."""
    least = np.full(int(group.max()) + 1, values.max())
    np.minimum.at(least, group, values)
    return least


def _places(of_row: Index) -> Index:
    """Position of each row among the rows of its task."""
    sizes, order, place = np.bincount(of_row), np.argsort(of_row, kind="stable"), np.empty_like(of_row)
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return place


class _InTime(TaskSplitter):
    """Base class of splitters that assume that the rows of each task are in the order of time."""

    gap: int

    @abstractmethod
    def _bounds(self, sizes: Index, tasks: Labels) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Begin and end of each fold's training and test parts, as positions among the rows of each task."""

    def _sides(self, names: Labels, of_row: Index, y: Given, groups: Given, order: Given) -> Iterator[Sides]:
        check_whole_number("gap", self.gap, low=0)
        sizes, place = np.bincount(of_row), _places(of_row)
        for bounds in self._bounds(sizes, names):
            begin, end, test, last = (np.broadcast_to(bound, sizes.shape)[of_row] for bound in bounds)
            yield (place >= begin) & (place < end), (place >= test) & (place < last)


@dataclass(eq=False, repr=False)
class MovingWindowSplit(_InTime):
    """Training windows of fixed length that move through time, each followed by a test window.

    Rows must be in the order of time. In the long layout this holds within each task, and all tasks must have the same
    number of rows.

    Parameters
    ----------
    n_train, n_test : int
        Number of rows (occasions) in the training window and in the test window.
    step : int, optional
        Number of rows by which the windows move; ``n_test`` by default, so that test windows do not overlap.
    gap : int, default=0
        Number of rows left out between training and test window.
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

    n_train: int
    n_test: int
    _: KW_ONLY
    step: int | None = None
    gap: int = 0
    task_column: Hashable = None

    def get_n_splits(self, X: Any = None, y: Given = None, groups: Given = None) -> int:
        """Number of windows that fit the rows of X."""
        if X is None:
            raise ParameterError("X is None; give the rows, because the number of windows depends on them.")
        return len(list(self.split(X, y, groups)))

    def _bounds(self, sizes: Index, tasks: Labels) -> Iterator[tuple[Any, Any, Any, Any]]:
        if np.ptp(sizes):
            raise LayoutError(
                f"Tasks have between {sizes.min()} and {sizes.max()} rows; give aligned tasks of "
                "equal length for windows in time. TaskTimeSeriesSplit takes tasks of different length."
            )
        step = self.n_test if self.step is None else self.step
        for name, value in (("n_train", self.n_train), ("n_test", self.n_test), ("step", step)):
            check_whole_number(name, value, low=1)
        n, length = int(sizes[0]), self.n_train + self.gap + self.n_test
        if n < length:
            raise ParameterError(f"n_train + gap + n_test is {length}; there are {n} rows. Give shorter windows.")
        for begin in range(0, n - length + 1, step):
            yield begin, begin + self.n_train, begin + length - self.n_test, begin + length


@dataclass(eq=False, repr=False)
class TaskTimeSeriesSplit(_InTime):
    """Growing training parts in the order of time, within every task.

    Fold i trains on the first rows of each task and tests on the block that follows. With one task, or if rows hold all
    tasks, the splits are those of scikit-learn's ``TimeSeriesSplit``. Tasks may differ in length.

    Parameters
    ----------
    n_splits : int, default=5
        Number of test blocks; every task needs more rows than this number.
    gap : int, default=0
        Number of rows of each task left out between training and test part.
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

    n_splits: int = 5
    _: KW_ONLY
    gap: int = 0
    task_column: Hashable = None

    def _bounds(self, sizes: Index, tasks: Labels) -> Iterator[tuple[Any, Any, Any, Any]]:
        check_whole_number("n_splits", self.n_splits, low=1)
        block = sizes // (self.n_splits + 1)
        first = sizes - self.n_splits * block
        short = tasks[(block < 1) | (first <= self.gap)]
        if len(short):
            raise ParameterError(
                f"Tasks {listing(list(short))} have too few rows for n_splits={self.n_splits} and gap={self.gap}; "
                "give each more rows than splits, and more before the first test block than the gap."
            )
        for number in range(self.n_splits):
            begin = first + number * block
            yield 0, begin - self.gap, begin, begin + block
