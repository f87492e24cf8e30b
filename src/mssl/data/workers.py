"""Features that stay with the workers of a Dask cluster, for losses that need more of the rows than their moments.

Vectors with a number a row (targets, weights, predictors) are in this process; the features, d times as many numbers,
are kept by the workers in the form of :class:`mssl.data.design.DenseBlocks`, one for each partition. A pass sends them
coefficients or vectors, and products come back: predictors row by row, gradients and Grams added by a tree on the
workers. To the solvers this is one more way to store a :class:`mssl.data.design.Design`. Nothing here schedules
anything, and what a lost worker held is made again by Dask.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from mssl._typing import Array, Index, Labels, Mask
from mssl.data.design import DenseBlocks, eliminate, task_totals
from mssl.data.distributed import chunks_of, numbered, tree_sum
from mssl.data.inputs import check_same_columns, union_of_names
from mssl.data.layouts import TaskData, read_chunk
from mssl.exceptions import DataError

_SHARE = 0.5  # of the workers' memory that features may take: they are copied while they are centred and scaled


@dataclass(frozen=True, eq=False)
class TaskSums:
    """Sums over the rows of some tasks, which can be added to those of others."""

    tasks: Index
    values: Array

    def __add__(self, other: TaskSums) -> TaskSums:
        tasks = np.union1d(self.tasks, other.tasks)
        total = np.zeros((len(tasks), *self.values.shape[1:]))
        for part in (self, other):
            total[np.searchsorted(tasks, part.tasks)] += part.values
        return TaskSums(tasks, total)


@dataclass(frozen=True, eq=False)
class Partition:
    """Where the rows of one partition, sorted by task, belong.

    Attributes
    ----------
    tasks : ndarray of shape (k,)
        Numbers of its tasks.
    rows : ndarray of shape (n,)
        Place of each of its rows in flat vectors.
    """

    tasks: Index
    rows: Index


@dataclass(eq=False)
class WorkerRows:
    """Features of shape (N, d) that workers keep: the X of :class:`mssl.data.TaskData`."""

    parts: list[Any]
    places: list[Partition]
    shape: tuple[int, int]

    def __len__(self) -> int:
        """Number of rows N."""
        return self.shape[0]

    def gather(self, bounds: Index, weights: Array | None, centre: bool) -> tuple[WorkerBlocks, Array]:
        """As :meth:`mssl.data.design.DenseBlocks.gather`."""
        blocks = WorkerBlocks(self.parts, self.places, bounds, self.shape[1])
        c = np.ones(len(self)) if weights is None else weights
        totals = task_totals(bounds, c)
        means = blocks.transposed(c) / np.where(totals > 0, totals, 1.0)[:, None]
        if centre:
            blocks.subtract(means)
        return blocks, means


@dataclass(eq=False)
class WorkerBlocks:
    """Each task's features in as many blocks as partitions hold rows of it; answers as the blocks in memory do."""

    parts: list[Any]
    places: list[Partition]
    bounds: Index
    d: int

    def _asked(
        self, question: Callable[..., Any], by_task: Sequence[Array | Mask] = (), by_row: Sequence[Array] = ()
    ) -> Any:
        """What workers answer, partition by partition, when it is computed."""
        from dask import delayed

        ask = delayed(question, pure=False)
        for part, place in zip(self.parts, self.places, strict=True):
            yield ask(part, *(values[place.tasks] for values in by_task), *(values[place.rows] for values in by_row))

    def _sums(
        self, question: Callable[..., Any], by_task: Sequence[Array | Mask] = (), by_row: Sequence[Array] = ()
    ) -> Array:
        """Sums over rows for all tasks, (K, …), added on the workers."""
        from dask import delayed

        answers = self._asked(question, by_task, by_row)
        found = [delayed(TaskSums)(p.tasks, a) for p, a in zip(self.places, answers, strict=True)]
        return np.asarray(computed(tree_sum(found))[0].values)

    def _change(self, name: str, *by_task: Array | Mask, **fixed: Array) -> None:
        """Let workers keep changed copies in the place of their blocks."""
        from dask import persist

        self.parts = list(persist(*self._asked(partial(_changed, name=name, fixed=fixed), by_task)))

    def subtract(self, base: Array) -> None:
        if np.any(base):
            self._change("subtract", base)

    def divide(self, scales: Array) -> None:
        if np.any(scales != 1):
            self._change("divide", scales=scales)

    def clear_constant(self, flat: Mask, limit: Array) -> None:
        if np.any(flat):
            self._change("clear_constant", flat, limit)

    def largest(self) -> Array:
        return np.max(computed(*self._asked(DenseBlocks.largest)), axis=0)

    def squares_about(self, means: Array, weights: Array | None) -> Array:
        c = np.ones(self.bounds[-1]) if weights is None else weights
        return self._sums(DenseBlocks.squares_about, [means], [c])

    def squares(self, c: Array) -> Array:
        return self._sums(DenseBlocks.squares, by_row=[c])

    def dot(self, W: Array) -> Array:
        flat = np.empty(self.bounds[-1])
        for place, values in zip(self.places, computed(*self._asked(DenseBlocks.dot, [W])), strict=True):
            flat[place.rows] = values
        return flat

    def transposed(self, r: Array) -> Array:
        return self._sums(DenseBlocks.transposed, by_row=[r])

    def gram(
        self, c: Array, shift: Array | None, sums: bool, also: Array | None = None
    ) -> tuple[Array, Array | None, Array | None]:
        """As :meth:`mssl.data.design.DenseBlocks.gram`; there is no shift, since blocks are centred at their means."""
        assert shift is None
        found = self._sums(_products, by_row=[c, c if also is None else also])
        out, totals, products = np.ascontiguousarray(found[:, :-2]), found[:, -2], found[:, -1]
        if sums:
            eliminate(out, totals, task_totals(self.bounds, c))
        return out, totals if sums else None, None if also is None else products

    def columns(self) -> Any:
        raise DataError(
            "This fit would go through the features one by one, and they are with Dask's workers. There it needs "
            "Grams: give typical tasks half as many rows as there are features or more, or raise memory_limit. Call "
            ".compute() on X if it fits the memory."
        )


def _changed(blocks: DenseBlocks, *by_task: Array, name: str, fixed: dict[str, Array]) -> DenseBlocks:
    """A copy of blocks after one of their own changes."""
    made = replace(blocks, buffer=blocks.buffer.copy())
    getattr(made, name)(*by_task, **fixed)
    return made


def _products(blocks: DenseBlocks, c: Array, r: Array) -> Array:
    """Σ c x xᵀ, Σ c x and Σ r x of each task, (k, d + 2, d)."""
    gram, _, _ = blocks.gram(c, None, False)
    return np.concatenate([gram, blocks.transposed(c)[:, None], blocks.transposed(r)[:, None]], axis=1)


def computed(*lazy: Any) -> Any:
    """Answers of the workers; vectors with a number a row travel with the questions, of which Dask need not warn."""
    from dask import compute

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        return compute(*lazy)


def read_on_workers(
    X: Any, y: Any, tasks: Any = None, sample_weight: Any = None, *, task_column: Any = None, y_numeric: bool = True
) -> TaskData:
    """Task data whose features stay with the workers, of a Dask collection in the long layout.

    Parameters
    ----------
    X : dask.dataframe.DataFrame or dask.array.Array of shape (N, d)
        Features, all of them numbers.
    y, tasks, sample_weight : dask collections of shape (N,), or None
        In the partitions of X.
    task_column : str or int, optional
        The column of X that holds task ids.
    y_numeric : bool
        Whether targets are numbers.
    """
    from dask import delayed, persist

    read = partial(_read_partition, {"task_column": task_column, "y_numeric": y_numeric})
    parts = persist(*chunks_of(read, X, y, tasks, sample_weight))
    found = computed(*(delayed(_without_features)(part) for part in parts))
    given = [(part, rows) for part, rows in zip(parts, found, strict=True) if rows is not None]
    if not given:
        raise DataError("There is no row in any partition; give at least one.")
    rows = [data for _, data in given]
    columns = [range(data.n_features) if data.feature_names is None else data.feature_names for data in rows]
    for other in columns[1:]:
        check_same_columns(columns[0], other)
    names = reduce(union_of_names, (data.tasks for data in rows))
    N, d = sum(len(data.y) for data in rows), rows[0].n_features
    _check_memory(8 * N * d)
    stored = persist(*(delayed(_stored)(part) for part, _ in given))
    places, offsets = _places(rows, names)
    y_flat, weights = (
        None if values[0] is None else _flat(values, places)
        for values in ([data.y for data in rows], [data.weights for data in rows])
    )
    kept = WorkerRows(list(stored), places, (N, d))
    return replace(rows[0], X=kept, y=y_flat, weights=weights, offsets=offsets, tasks=names, input_rows=None)


def _places(rows: list[TaskData], names: Labels) -> tuple[list[Partition], Index]:
    """Where the rows of partitions belong in flat vectors, and where each task begins there."""
    numbers = [np.searchsorted(names, data.tasks) for data in rows]
    counts = np.zeros((len(rows), len(names)), dtype=np.int64)
    for own, data, tasks in zip(counts, rows, numbers, strict=True):
        own[tasks] = data.n_rows
    offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
    starts = offsets[:-1] + np.cumsum(counts, axis=0) - counts
    places = []
    for first, data, tasks in zip(starts, rows, numbers, strict=True):
        within = np.arange(len(data.y)) - np.repeat(data.offsets[:-1], data.n_rows)
        places.append(Partition(tasks, np.repeat(first[tasks], data.n_rows) + within))
    return places, offsets


def _flat(values: list[Any], places: list[Partition]) -> Any:
    whole = np.concatenate(values)
    flat = np.empty_like(whole)
    flat[np.concatenate([place.rows for place in places])] = whole
    return flat


def _read_partition(settings: dict[str, Any], X: Any, y: Any, tasks: Any, weights: Any, number: int) -> TaskData | None:
    return numbered(number, partial(read_chunk, **settings), X, y, tasks, weights)


def _without_features(data: TaskData | None) -> TaskData | None:
    """What this process needs to know of a partition; an X without rows says how many features there are."""
    return None if data is None else replace(data, X=np.empty((0, data.n_features)))


def _stored(data: TaskData) -> DenseBlocks:
    return DenseBlocks.gather(data.X, data.offsets, None, False)[0]


def _check_memory(size: int) -> None:
    """Raise where features are too large to be kept by the workers."""
    limit = _SHARE * _workers_memory()
    if size > limit:
        raise DataError(
            f"The features take {size / 2**30:.3g} GiB as doubles, and Dask's workers can keep {limit / 2**30:.3g} "
            "GiB, half of their memory. This loss needs them in every step: use more or larger workers, fewer columns, "
            "or a sample of the rows. Least squares needs one pass alone."
        )


def _workers_memory() -> float:
    """Memory of all workers; where there is no cluster, that of this machine."""
    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) if hasattr(os, "sysconf") else np.inf
    try:
        from distributed import get_client

        limits = get_client().run(_memory_limit).values()
    except (ImportError, ValueError):
        return machine
    return sum(limit or machine for limit in limits)


def _memory_limit(dask_worker: Any) -> float | None:
    limit: float | None = dask_worker.memory_manager.memory_limit
    return limit
