r"""Moments: sums over the rows of each task, from which least-squares models can be fitted without the rows.

The moments of a task are its number of rows (or their total weight) n, the means of features and target, and the sums
of products about these means:

.. math:: xx = \sum c\,(x - \bar x)(x - \bar x)^\top,\quad xy = \sum c\,(x - \bar x)(y - \bar y),\quad
          yy = \sum c\,(y - \bar y)^2 .

Moments are additive. Parts with n_i rows and means m_i together have the mean :math:`m = \sum n_i m_i / \sum n_i` and

.. math:: xx = \sum_i xx_i + \sum_i n_i (m_i - m)(m_i - m)^\top

(Chan, Golub & LeVeque 1983, doi:10.1080/00031305.1983.10483115). This update keeps all digits even if the means are
large beside the spread. Rows that do not fit into memory are read in chunks, by one process or by many. The moments of
folds are stored separately, so cross-validation also needs a single pass over the rows. :meth:`Moments.to_tasks` makes
a few rows with the same moments; every least-squares estimator gives the same fit for them as for all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from mssl._typing import Array, ArrayLike, Index, Labels, Mask, Matrix, Rows
from mssl._validation import check_whole_number, refused
from mssl.data.design import Design, default_memory_limit
from mssl.data.distributed import chunks_of, taken_apart, tree_sum
from mssl.data.folds import deal_rows
from mssl.data.inputs import CHUNK, ROUNDING, as_rows, is_frame, listing, split_task_column
from mssl.data.layouts import TaskData, read_tasks
from mssl.exceptions import DataError, LayoutError

if TYPE_CHECKING:
    from dask.delayed import Delayed
    from pandas import DataFrame

    from mssl.data.distributed import LazyColumn, LazyRows

_SUMS = ("n", "means", "target_means", "xx", "xy", "yy")


@dataclass(frozen=True, eq=False)
class Moments:
    """Numbers, means and centred sums of products over the rows of K tasks with d features.

    An optional first axis holds the moments of separate folds, or of other cells of rows. If features and weights are
    the same for all tasks, ``means`` and ``xx`` are stored once.

    Attributes
    ----------
    n : ndarray of shape ([F,] K)
        Number of rows or their total weight.
    means : ndarray of shape ([F,] K, d) or ([F,] 1, d)
        Means of the features; any number where n is 0.
    target_means : ndarray of shape ([F,] K)
        Means of the targets.
    xx : ndarray of shape ([F,] K, d, d) or ([F,] 1, d, d)
        Sums of products of features, about their means.
    xy : ndarray of shape ([F,] K, d)
        Sums of products of features and targets, about their means.
    yy : ndarray of shape ([F,] K)
        Sums of squares of targets, about their means.
    tasks : ndarray of shape (K,)
        Task names, sorted.
    columns : tuple
        Names (or numbers) of all columns of the input, including the task column.
    feature_names : ndarray of shape (d,) or None
        Names of the features; None if the input has no names.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl import Moments
    >>> X, y, tasks = np.arange(8.0).reshape(4, 2), np.arange(4.0), np.array(["a", "b", "a", "b"])
    >>> whole = Moments.from_rows(X, y, tasks)
    >>> parts = Moments.from_rows(X[:1], y[:1], tasks[:1]) + Moments.from_rows(X[1:], y[1:], tasks[1:])
    >>> whole.n, bool(np.allclose(whole.xx, parts.xx))
    (array([2., 2.]), True)
    """

    n: Array
    means: Array
    target_means: Array
    xx: Array
    xy: Array
    yy: Array
    tasks: Labels
    columns: tuple[Hashable, ...] = ()
    feature_names: Labels | None = None

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return len(self.tasks)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.xy.shape[-1])

    @property
    def n_folds(self) -> int:
        """Number of folds with separate moments; 1 if the moments are those of all rows."""
        return len(self.n) if self.n.ndim == 2 else 1

    @classmethod
    def from_rows(
        cls,
        X: Rows,
        y: ArrayLike,
        tasks: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        task_column: Hashable | None = None,
        n_folds: int | None = None,
        random_state: int | Sequence[int] = 0,
        memory_limit: int | None = None,
    ) -> Moments:
        """Moments of rows in the long layout.

        Parameters
        ----------
        X : array or frame of shape (N, d)
            Features, all of them numbers; X may be empty.
        y : array of shape (N,)
            Targets.
        tasks : array of shape (N,), optional
            Task of each row, instead of a task column.
        sample_weight : array of shape (N,), optional
            Frequency weights.
        task_column : str or int, optional
            The column of X that holds task ids.
        n_folds : int, optional
            Number of folds to which each task's rows are dealt at random; the folds have separate moments.
        random_state : int or sequence of int
            Seed of the folds.
        memory_limit : int, optional
            Number of bytes that the moments may take; by default a quarter of the machine's memory, at most 2 GiB.

        Returns
        -------
        Moments
        """
        if n_folds is not None:
            check_whole_number("n_folds", n_folds, low=2, also="None")
        shape = as_rows(X).shape
        columns = tuple(X.columns if is_frame(X) else range(shape[1] if len(shape) == 2 else 0))
        if sample_weight is not None and np.ndim(sample_weight) == 1 and np.any(np.asarray(sample_weight) == 0):
            # Other chunks may hold rows of a task that has no weight in this one.
            kept = np.flatnonzero(np.asarray(sample_weight) != 0)
            X, y, sample_weight = (_safe_indexing(part, kept) for part in (X, y, sample_weight))
            tasks = None if tasks is None else _safe_indexing(tasks, kept)
        if _num_samples(X) == 0:
            rows, _, names = split_task_column(X, task_column)
            d, lead = as_rows(rows).shape[1], () if n_folds is None else (n_folds,)
            none, wide, square = (np.zeros((*lead, 0, *widths)) for widths in ((), (d,), (d, d)))
            return cls(none, wide, none, square, wide, none, np.empty(0), columns, names)
        data = read_tasks(X, y, tasks=tasks, task_column=task_column, sample_weight=sample_weight)
        if data.layout != "long":
            raise LayoutError(
                f"The rows have the {data.layout} layout; chunks have the long one: X of shape (N, d), y of shape "
                "(N,), and tasks or task_column."
            )
        if data.encoder is not None:
            texts = [column.name for column in data.encoder.columns if column.categories is not None]
            raise DataError(
                f"The columns {listing(texts)} hold text or categories; chunks need numbers that mean the same in all "
                "of them. Give one column of 0 and 1 per category, or leave them out."
            )
        check_memory(data.n_tasks, data.n_features, n_folds, memory_limit)
        fold = np.zeros(len(data.y), dtype=np.intp)
        if n_folds is not None:
            fold = deal_rows(data.task_of_row, (), n_folds, np.random.default_rng(random_state), chunk=True)
        with np.errstate(over="ignore", invalid="ignore"):
            made = cls.by_cell(data, fold, n_folds or 1)
        if not all(np.isfinite(getattr(made, name)).all() for name in _SUMS):
            raise DataError("Squares of some features or targets are beyond what doubles hold; give other units.")
        made = replace(made, columns=columns)
        return made if n_folds is not None else made.together()

    @classmethod
    def from_chunks(
        cls,
        chunks: Iterable[DataFrame | tuple[Rows | ArrayLike, ...]],
        *,
        target: str | None = None,
        task_column: Hashable | None = None,
        n_folds: int | None = None,
        random_state: int = 0,
        memory_limit: int | None = None,
    ) -> Moments:
        """Moments of rows that arrive in chunks, of which only one is in memory at a time.

        Parameters
        ----------
        chunks : iterable
            Each chunk is (X, y), (X, y, tasks) or (X, y, tasks, sample_weight). With `target`, it is a frame that also
            holds the targets. All chunks have the same columns. A task may have rows in several chunks, and a chunk may
            be empty.
        target : str, optional
            The column of targets, if chunks are frames.
        task_column, n_folds, random_state, memory_limit
            As for :meth:`from_rows`.

        Returns
        -------
        Moments

        Examples
        --------
        >>> import numpy as np
        >>> from mssl import Moments, MSSLRegressor
        >>> random = np.random.default_rng(0)
        >>> def chunks():
        ...     for _ in range(5):
        ...         X, tasks = random.standard_normal((100, 3)), random.integers(0, 4, 100)
        ...         yield X, X @ [1.0, 2.0, 0.0] + tasks, tasks
        >>> model = MSSLRegressor().fit_moments(Moments.from_chunks(chunks()))
        >>> model.coef_.round(1)[0] + 0.0
        array([1., 2., 0.])
        """
        read = partial(cls.from_rows, task_column=task_column, n_folds=n_folds, memory_limit=memory_limit)
        parts = (_of_chunk(read, random_state, chunk, number, target) for number, chunk in enumerate(chunks))
        first = next(parts, None)
        if first is None:
            raise DataError("There are no chunks at all; give at least one with rows.")
        return reduce(add, parts, first).checked(memory_limit)

    @classmethod
    def from_dask(
        cls,
        X: LazyRows,
        y: LazyColumn | None = None,
        tasks: LazyColumn | None = None,
        sample_weight: LazyColumn | None = None,
        *,
        target: str | None = None,
        task_column: Hashable | None = None,
        n_folds: int | None = None,
        random_state: int = 0,
        memory_limit: int | None = None,
        compute: bool = True,
    ) -> Moments | Delayed:
        """Moments of a Dask collection in the long layout (extra ``dask``).

        The workers that hold the partitions compute and add the moments by tree reduction.

        Parameters
        ----------
        X : dask.dataframe.DataFrame or dask.array.Array of shape (N, d)
            Features.
        y : dask series or array of shape (N,), optional
            Targets, with the same partitions as X. Give either y or `target`.
        tasks, sample_weight : dask series or arrays of shape (N,), optional
            Task and weight of each row, with the same partitions as X.
        target : str, optional
            The column of X that holds the targets.
        task_column, n_folds, random_state, memory_limit
            As for :meth:`from_rows`.
        compute : bool
            False returns Dask's delayed value, which your own client can compute.

        Returns
        -------
        Moments or dask.delayed.Delayed
        """
        from dask import delayed

        names = list(X.columns) if is_frame(X) else []
        if target is not None and target not in names:
            raise refused("target", target, f"give one of the columns of X, {listing(names)}")
        if (y is None) == (target is None):
            raise DataError("Targets are given twice or not at all; give either y or target, a column of X.")
        read = partial(cls.from_rows, task_column=task_column, n_folds=n_folds, memory_limit=memory_limit)
        chunks, target = chunks_of(X, y, tasks, sample_weight, target)
        made = tree_sum([delayed(_of_chunk)(read, random_state, chunk, k, target) for k, chunk in enumerate(chunks)])
        return made.compute().checked(memory_limit) if compute else made

    def together(self) -> Moments:
        """The joint moments of all folds."""
        return self if self.n.ndim == 1 else self.gather(np.ones(len(self.n), dtype=bool))

    def checked(self, memory_limit: int | None = None) -> Moments:
        """Return these moments; raise if they have no rows or take too much memory."""
        if not self.n_tasks:
            raise DataError("There is no row in any chunk; give at least one.")
        check_memory(self.n_tasks, self.n_features, self.n_folds, memory_limit)
        return self

    @classmethod
    def by_cell(
        cls, data: TaskData, cell: Index, n_cells: int, scales: Array | float = 1.0, target_scale: float = 1.0
    ) -> Moments:
        """Moments of each cell of rows, from one pass over the data.

        Parameters
        ----------
        data : TaskData
            The rows.
        cell : ndarray of shape (N,)
            Number of the cell of each flat row; for a shared design the same for every task.
        n_cells : int
            Number of cells.
        scales, target_scale : ndarray of shape (d,) and float
            Units of the moments; by default those of the data.
        """
        N, blocks, first, units = data.X.shape[0], [], 0, np.broadcast_to(scales, data.n_features)
        # The rows of a shared design are those of one task with many targets.
        offsets = np.asarray([0, N]) if data.shared else data.offsets
        weights, targets = data.row_weights[:N], data.y.reshape(-1, N) / target_scale
        step = CHUNK // max(1, data.n_features)
        while first < len(offsets) - 1:  # Each pass takes a few tasks, so that only their rows are copied.
            last = max(int(np.searchsorted(offsets, offsets[first] + step, side="right")) - 1, first + 1)
            count, rows = last - first, slice(offsets[first], offsets[last])
            place = np.repeat(np.arange(count) * n_cells, np.diff(offsets[first : last + 1])) + cell[rows]
            made = _of_cells(data.X[rows], targets[:, rows], weights[rows], place, count * n_cells, units)
            by_cell = (np.swapaxes(part.reshape(count, n_cells, *part.shape[1:]), 0, 1) for part in made)
            # The axes of each block are the cells and the tasks of a pass. Tasks of a shared design share means and xx.
            blocks.append([part.reshape(n_cells, -1, *part.shape[3:]) for part in by_cell])
            first = last
        n, means, target_means, xx, xy, yy = (np.concatenate(same, axis=1) for same in zip(*blocks, strict=True))
        n, names = np.broadcast_to(n, target_means.shape), data.feature_names
        return cls(n, means, target_means, xx, xy, yy, data.tasks, feature_names=names)

    def gather(self, cells: Mask) -> Moments:
        """The joint moments of the chosen cells."""
        return self._together(*(getattr(self, name)[cells] for name in _SUMS))

    def __add__(self, other: Moments) -> Moments:
        """The joint moments of both sets of rows, task by task; both must have the same columns."""
        if not isinstance(other, Moments):
            return NotImplemented
        mine, theirs = (list(part.columns or range(part.n_features)) for part in (self, other))
        if mine != theirs:
            raise DataError(
                f"The columns are {listing(mine)} in one chunk and {listing(theirs)} in another; give all chunks the "
                "same columns in the same order."
            )
        if self.n_folds != other.n_folds:
            raise DataError(f"There are {self.n_folds} folds in one part, {other.n_folds} in the other; give as many.")
        one, two = self.tasks, other.tasks
        if len(one) and len(two) and (one.dtype.kind in "US") != (two.dtype.kind in "US"):
            raise DataError(
                f"Tasks are named {listing(one[:1])} in one chunk and {listing(two[:1])} in another; give all as text "
                "or all as numbers."
            )
        tasks = np.union1d(one, two) if len(one) and len(two) else one if len(one) else two
        parts = self._spread(tasks), other._spread(tasks)
        return replace(self._together(*(np.stack(pair) for pair in zip(*parts, strict=True))), tasks=tasks)

    def _spread(self, tasks: Labels) -> list[Array]:
        """The sums for a larger set of tasks; tasks without rows get zeros."""
        sums = [getattr(self, name) for name in _SUMS]
        if len(tasks) == self.n_tasks:
            return sums
        place, axis = np.searchsorted(tasks, self.tasks), self.n.ndim - 1
        full = [np.zeros((*old.shape[:axis], len(tasks), *old.shape[axis + 1 :])) for old in sums]
        for new, old in zip(full, sums, strict=True):
            new[(slice(None),) * axis + (place,)] = old
        return full

    def _together(self, n: Array, means: Array, target_means: Array, xx: Array, xy: Array, yy: Array) -> Moments:
        """Chan's update over the first axis."""
        total = n.sum(axis=0)
        share = n / np.where(total > 0, total, 1.0)
        common = n[..., : means.shape[-2]]
        mean = np.sum(share[..., : means.shape[-2], None] * means, axis=0)
        target_mean = np.sum(share * target_means, axis=0)
        off, target_off = means - mean, target_means - target_mean
        rooted = np.moveaxis(np.sqrt(common)[..., None] * off, 0, -2)
        return replace(
            self,
            n=total,
            means=mean,
            target_means=target_mean,
            xx=xx.sum(axis=0) + np.matmul(np.swapaxes(rooted, -1, -2), rooted),
            xy=xy.sum(axis=0) + np.sum((n * target_off)[..., None] * off, axis=0),
            yy=yy.sum(axis=0) + np.sum(n * target_off**2, axis=0),
        )

    def to_tasks(self) -> TaskData:
        r"""Make weighted rows with these moments, at most d + 2 per task and fold; ``groups`` holds the folds.

        Let :math:`L L^\top` be the scatter of the p = d + 1 columns (features and target) about their means m, and let
        H be a Helmert matrix, whose p columns of length p + 1 are orthonormal and sum to zero. The rows are
        :math:`m + \sqrt{(p + 1)/n}\, H L^\top`, each of weight n / (p + 1). They give the same least-squares fit and
        the same test errors as the original rows, but share no other property with them.
        """
        n = np.atleast_2d(self.n).T
        (K, F), d = n.shape, self.n_features
        means, xx, xy = (
            np.swapaxes(np.reshape(part, (F, -1, *part.shape[self.n.ndim :])), 0, 1)
            for part in (self.means, self.xx, self.xy)
        )
        spread = np.sqrt(np.maximum(np.einsum("...jj->...j", xx), 0.0))
        unit = np.where(spread > 0, spread, np.inf)  # The products of constant columns are rounding errors only.
        root, products = _roots(xx / (unit[..., :, None] * unit[..., None, :]), xy / unit)
        basis = linalg.helmert(d + 2).T
        size = np.sqrt((d + 2) / np.where(n > 0, n, 1.0))[..., None]
        rest = np.sqrt(np.maximum(np.atleast_2d(self.yy).T - np.sum(products**2, axis=-1), 0.0))
        y = size * (products @ basis[:, :d].T + rest[..., None] * basis[:, d])
        y += np.atleast_2d(self.target_means).T[..., None]
        X = np.matmul(basis[:, :d], np.swapaxes(root, -1, -2)) * (size[: len(xx), :, None] * spread[..., None, :])
        X += means[:, :, None]
        held = n > 0
        task, fold = np.repeat(np.nonzero(held), d + 2, axis=1)
        return TaskData(
            X[held[: len(xx)]].reshape(-1, d),
            y[held].ravel(),
            n[task, fold] / (d + 2),
            np.searchsorted(task, np.arange(K + 1)),
            self.tasks,
            "long" if len(xx) == K else "shared",
            feature_names=self.feature_names,
            groups=fold if F > 1 else None,
        )


def check_memory(n_tasks: int, n_features: int, n_folds: int | None, memory_limit: int | None) -> None:
    """Raise if moments would take more memory than the limit."""
    limit = default_memory_limit() if memory_limit is None else memory_limit
    size = 8 * n_tasks * n_features**2 * (n_folds or 1)
    if size > limit:
        folds = "" if n_folds in (None, 1) else f" in {n_folds} folds"
        raise DataError(
            f"Moments of {n_tasks} tasks with {n_features} features{folds} take {size / 2**30:.3g} GiB; memory_limit "
            f"allows {limit / 2**30:.3g} GiB. Raise memory_limit, or take fewer features or folds."
        )


def _of_chunk(
    read: Callable[..., Moments], seed: int, chunk: object, number: int, target: str | None = None
) -> Moments:
    """Moments of one chunk; errors name its number."""
    if target is not None:
        if not is_frame(chunk) or target not in list(chunk.columns):
            raise DataError(f"Chunk {number} has no column {target!r} of targets; give frames that hold it.")
        chunk = taken_apart(chunk, target)
    elif not isinstance(chunk, tuple) or not 2 <= len(chunk) <= 4:
        raise LayoutError(
            f"Chunk {number} is {type(chunk).__name__}; give (X, y), (X, y, tasks) or (X, y, tasks, sample_weight), or "
            "frames and the name of their column of targets."
        )
    try:
        return read(*chunk, random_state=[seed, number])
    except (DataError, LayoutError) as error:
        raise type(error)(f"Chunk {number}: {error}") from error


def _roots(scatter: Array, products: Array) -> tuple[Array, Array]:
    """Find L with L Lᵀ = S, and L⁻¹ q, for a stack of matrices S whose diagonals hold ones (or zeros)."""
    empty = np.einsum("...jj->...j", scatter) == 0
    try:
        root = np.asarray(np.linalg.cholesky(scatter + empty[..., None] * np.eye(scatter.shape[-1])), float)
        solved = np.asarray(np.linalg.solve(root, products[..., None])[..., 0], float)
        return np.where(empty[..., None, :], 0.0, root), solved
    except np.linalg.LinAlgError:  # Some columns are linear combinations of others.
        values, vectors = np.linalg.eigh(scatter)
        lengths = np.sqrt(np.where(values > ROUNDING * values.max(axis=-1, keepdims=True), values, 0.0))
        turned = np.matmul(np.swapaxes(vectors, -1, -2), products[..., None])[..., 0]
        return vectors * lengths[..., None, :], turned / np.where(lengths > 0, lengths, np.inf)


def _of_cells(X: Matrix, targets: Array, c: Array, cell: Index, n_cells: int, units: Array) -> list[Array]:
    """Sums over each cell of rows, with one entry of a second axis per row of targets; zeros for cells without rows."""
    if np.any(np.diff(cell) < 0):
        order = np.argsort(cell, kind="stable")
        X, targets, c, cell = X[order], targets[:, order], c[order], cell[order]
    filled, starts = np.unique(cell, return_index=True)
    pieces = Design.build(X, np.append(starts, len(c)), row_weights=c, scale=False).dearer(units)
    n, place = pieces.task_sums(c), np.repeat(np.arange(len(starts)), pieces.n_rows)
    first = targets[:, starts]
    # The mean of deviations from the first value has more digits than the mean of the values.
    means = first + np.add.reduceat(c * (targets - first[:, place]), starts, axis=1) / n
    off = targets - means[:, place]
    products = pieces.backproject(c * off).reshape(len(starts), len(targets), -1)
    squares = np.add.reduceat(c * off**2, starts, axis=1)
    made = n[:, None], (pieces.centres / units)[:, None], means.T, pieces.gram(c)[:, None], products, squares.T
    sums = [np.zeros((n_cells, *part.shape[1:])) for part in made]
    for full, part in zip(sums, made, strict=True):
        full[filled] = part
    return sums
