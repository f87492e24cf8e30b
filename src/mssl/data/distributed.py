"""Dask collections: reading their partitions, sums over them by trees, and lazy predictions.

This module builds Dask graphs and leaves scheduling, and the recovery from lost workers, to Dask. Code that needs the
rows themselves passes a collection to :func:`mssl.data.inputs.in_memory`, which loads small arrays with a warning and
refuses all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mssl._typing import Array, Labels
from mssl.data.inputs import is_dask, is_frame, without_columns
from mssl.exceptions import LayoutError

if TYPE_CHECKING:
    import pandas
    from dask.array import Array as DaskArray
    from dask.dataframe import DataFrame, Series
    from dask.delayed import Delayed

    LazyRows: TypeAlias = DataFrame | DaskArray
    LazyColumn: TypeAlias = Series | DaskArray
    Chunk: TypeAlias = tuple[Delayed, Delayed, Delayed | None, Delayed | None]

_TARGET, _TASK, _WEIGHT = "mssl y", "mssl tasks", "mssl sample_weight"  # columns that travel with their rows


def chunks_of(
    X: LazyRows,
    y: LazyColumn | None,
    tasks: LazyColumn | None,
    sample_weight: LazyColumn | None,
    target: str | None = None,
) -> tuple[list[Delayed] | list[Chunk], str | None]:
    """Each partition as a tuple of delayed (X, y, tasks, sample_weight), or as a frame for :func:`taken_apart`.

    The function also returns the column of the targets in such frames.

    Parameters
    ----------
    X : dask.dataframe.DataFrame or dask.array.Array of shape (N, d)
        Features.
    y, tasks, sample_weight : dask collections of shape (N,), or None
        Vectors with the same partitions as X. For arrays they may also be NumPy arrays.
    target : str, optional
        The column of X that holds the targets if y is None.
    """
    beside = {_TARGET: y, _TASK: tasks, _WEIGHT: sample_weight}
    if hasattr(X, "to_delayed") and is_frame(X):
        frame = _assigned(X, {name: values for name, values in beside.items() if values is not None})
        return frame.to_delayed(), target or _TARGET
    if getattr(X, "ndim", 0) != 2 or y is None:
        raise LayoutError("A Dask array is read in the long layout: X of shape (N, d), y and tasks of shape (N,).")
    X = X.rechunk({1: -1})
    blocks = [_blocks(name.removeprefix("mssl "), values, X) for name, values in beside.items()]
    return list(zip(X.to_delayed().ravel(), *blocks, strict=True)), None


def tree_sum(parts: list[Delayed]) -> Delayed:
    """The sum of delayed values, added in pairs on the workers that hold them."""
    while len(parts) > 1:
        parts = [*map(add, parts[::2], parts[1::2]), *parts[len(parts) // 2 * 2 :]]
    return parts[0]


def taken_apart(frame: pandas.DataFrame, target: str = _TARGET) -> tuple[Any, Any, Any, Any]:
    """Split a frame into features, targets, tasks and weights; parts that it does not hold are None."""
    taken = (target, _TASK, _WEIGHT)
    y, tasks, weights = (frame[name] if name in frame.columns else None for name in taken)
    return without_columns(frame, taken), y, tasks, weights


def _assigned(X: DataFrame, columns: dict[str, Series]) -> DataFrame:
    """Add columns to a frame; they must have the frame's partitions."""
    for name, values in columns.items():
        if not is_dask(values) or not hasattr(values, "npartitions") or values.npartitions != X.npartitions:
            what = f"{values.npartitions} partitions" if hasattr(values, "npartitions") else type(values).__name__
            raise LayoutError(
                f"{name.removeprefix('mssl ')} comes as {what} beside a Dask frame of {X.npartitions} partitions; "
                "give a column of the same frame, or a Dask series with the same partitions."
            )
    return X.assign(**columns) if columns else X


def _blocks(name: str, values: DaskArray | None, X: DaskArray) -> list[Delayed | None]:
    """Blocks of a vector that match the blocks of a Dask array's rows."""
    n_blocks = X.numblocks[0]
    if values is None:
        return [None] * n_blocks
    if not is_dask(values):
        from dask import array

        values = array.from_array(np.asarray(values), chunks=-1)
    if not any(math.isnan(size) for size in (*X.chunks[0], *values.chunks[0])):
        if values.shape[0] != X.shape[0]:
            raise LayoutError(f"{name} has {values.shape[0]} entries for {X.shape[0]} rows of X; give one per row.")
        values = values.rechunk((X.chunks[0],))
    if values.ndim != 1 or values.numblocks[0] != n_blocks:
        raise LayoutError(
            f"{name} has {values.numblocks[0]} blocks of unknown size beside {n_blocks} of X; give both the same "
            "blocks, or call compute_chunk_sizes() on them."
        )
    return list(values.to_delayed().ravel())


def predict_lazily(predict: Callable[..., Array], X: LazyRows, tasks: LazyColumn | None) -> LazyColumn:
    """Predictions for a Dask collection in the long layout, which Dask computes lazily, partition by partition.

    Parameters
    ----------
    predict : callable
        A function of X and tasks in memory.
    X : dask.dataframe.DataFrame or dask.array.Array of shape (N, d)
        Features.
    tasks : dask collection of shape (N,), optional
        Task of each row.

    Returns
    -------
    dask.dataframe.Series or dask.array.Array of shape (N,)
    """
    if is_frame(X):
        frame = _assigned(X, {} if tasks is None else {_TASK: tasks})
        return frame.map_partitions(_predicted_frame, predict, meta=(None, float))
    from dask import array

    X = X.rechunk({1: -1})
    if tasks is None:
        return X.map_blocks(_predicted, predict=predict, drop_axis=1, dtype=float)
    sized = zip(_blocks("tasks", tasks, X), X.chunks[0], strict=True)
    ids = array.concatenate([array.from_delayed(block, (n,), dtype=object) for block, n in sized])
    return array.map_blocks(_predicted, X, ids[:, None], predict=predict, drop_axis=1, dtype=float)


def _predicted(rows: Array | pandas.DataFrame, tasks: Labels | None = None, *, predict: Callable[..., Array]) -> Array:
    if not len(rows):
        return np.empty(0)
    return predict(rows, None if tasks is None else tasks.ravel())


def _predicted_frame(frame: pandas.DataFrame, predict: Callable[..., Array]) -> pandas.Series:
    from pandas import Series

    rows, _, tasks, _ = taken_apart(frame)
    return Series(_predicted(rows, None if tasks is None else tasks.to_numpy(), predict=predict), index=frame.index)
