"""Rows of different tasks that belong to the same occasion, as tables with a column for each occasion."""

from __future__ import annotations

import numpy as np

from mssl._typing import Array, Index
from mssl.data.layouts import TaskData
from mssl.exceptions import ParameterError


def occasions_of(data: TaskData) -> Index | None:
    """The occasion of every flat row; None where no rows of different tasks belong together."""
    if data.aligned:
        return np.tile(np.arange(data.n_rows[0]), data.n_tasks)
    if data.layout != "long":
        return np.asarray(data.source_rows)
    if data.groups is None:
        return None
    _, places = np.unique(data.groups, return_inverse=True)
    alone = np.bincount(data.task_of_row * (places.max() + 1) + places).max() == 1
    return np.asarray(places) if alone else None


def occasion_table(data: TaskData, values: Array) -> Array:
    """Values of the flat rows (N,) or (N, d) by occasion, (K, n) or (K, n, d); NaN where a task has no row."""
    occasions = occasions_of(data)
    if occasions is None:
        raise ParameterError("No rows of different tasks belong together; give y as (n, K), or groups of rows.")
    table = np.full((data.n_tasks, int(occasions.max()) + 1, *values.shape[1:]), np.nan)
    table[data.task_of_row, occasions] = values
    return table
