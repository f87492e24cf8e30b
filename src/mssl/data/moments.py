r"""Sums over rows that a least-squares fit needs, task by task.

They are additive: the moments of some rows together are the sum of their moments. Folds are made that way
(:mod:`mssl.model_selection.folds`), and chunks of data that do not fit the memory can be added in the same way.

Sums of raw products lose digits where means are large. All moments that are to be added refer to the same
:class:`Reference`, a centre and a unit for every feature and for the targets:

.. math:: n = \sum c,\quad x = \sum c\,u,\quad y = \sum c\,v,\quad xx = \sum c\,u u^\top,\quad xy = \sum c\,v u,\quad
          yy = \sum c\,v^2

with row weights c, features u and targets v in the reference's units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mssl._typing import Array, Index, Mask
from mssl.data.design import Design
from mssl.data.layouts import TaskData
from mssl.data.splitters import Split, row_mask

_ROWS_AT_ONCE = 100_000  # trades memory (a copy of so many rows) for calls; more rows do not save time


@dataclass(frozen=True, eq=False)
class Reference:
    """Centres and units that moments refer to.

    Attributes
    ----------
    centres : ndarray of shape (K, d)
        Centre of each task's features; for a shared design all rows are equal.
    scales : ndarray of shape (d,)
        Unit of each feature.
    target_centres : ndarray of shape (K,)
        Centre of each task's targets.
    target_scale : float
        Unit of the targets.
    """

    centres: Array
    scales: Array
    target_centres: Array
    target_scale: float

    @classmethod
    def of(cls, data: TaskData, design: Design, target_scale: float, *, centred: bool) -> Reference:
        """The reference of a whole data set, whose standardised features are known; about zero unless ``centred``."""
        scales = design.scales
        if not np.any(scales != 1):  # features that are fitted in their own units
            scales = Design.build(data.X, None if data.shared else data.offsets, data.n_tasks, data.weights).scales
        if not centred:
            return cls(np.zeros((data.n_tasks, data.n_features)), scales, np.zeros(data.n_tasks), target_scale)
        weighted = data.y if data.weights is None else data.weights * data.y
        return cls(design.centres, scales, data.task_sums(weighted) / data.weight_sums(), target_scale)


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows, of K tasks with d features.

    Where features and weights are the same for all tasks, x and xx are kept once. A further first axis may stand for
    cells, see :meth:`by_cell`.

    Attributes
    ----------
    n : ndarray of shape (K,)
        Sum of weights.
    x : ndarray of shape (K, d) or (1, d)
        Features.
    y : ndarray of shape (K,)
        Targets.
    xx : ndarray of shape (K, d, d) or (1, d, d)
        Products of features.
    xy : ndarray of shape (K, d)
        Products of features and targets.
    yy : ndarray of shape (K,)
        Squares of targets.
    """

    n: Array
    x: Array
    y: Array
    xx: Array
    xy: Array
    yy: Array

    @classmethod
    def of(cls, data: TaskData, reference: Reference) -> Moments:
        """Moments of all rows."""
        cells = cls.by_cell(data, reference, np.zeros(len(data.y), dtype=np.intp), 1)
        return cells.gather(np.ones(1, dtype=bool))

    @classmethod
    def by_cell(cls, data: TaskData, reference: Reference, cell: Index, n_cells: int) -> Moments:
        """Moments of each cell of rows, collected in one pass over the data.

        Parameters
        ----------
        data : TaskData
            The rows.
        reference : Reference
            Centres and units.
        cell : ndarray of shape (N,)
            Number of the cell of each flat row; for a shared design the same for every task.
        n_cells : int
            How many cells there are.
        """
        if data.shared:
            return _shared(data, reference, cell[: len(data.X)], n_cells)
        blocks, first = [], 0
        while first < data.n_tasks:  # some tasks at a time, so that no second copy of all rows is made
            end = int(np.searchsorted(data.offsets, data.offsets[first] + _ROWS_AT_ONCE, side="right")) - 1
            last = max(end, first + 1)
            blocks.append(_of_tasks(data, reference, cell, n_cells, slice(first, last)))
            first = last
        return cls(*(np.concatenate(sums, axis=1) for sums in zip(*blocks, strict=True)))

    def gather(self, cells: Mask) -> Moments:
        """The sum over some cells."""
        return Moments(*(np.tensordot(cells.astype(float), getattr(self, f.name), axes=1) for f in fields(self)))

    def __add__(self, other: Moments) -> Moments:
        """The moments of both sets of rows together; they must have the same reference."""
        return Moments(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def cells_of(splits: Sequence[Split], n: int) -> tuple[Index, Mask, Mask]:
    """Cells of rows that are in the same part of every split.

    Parameters
    ----------
    splits : sequence of (train, test)
        Rows of the input.
    n : int
        Number of rows.

    Returns
    -------
    cell : ndarray of shape (n,)
        Number of the cell of each row.
    train, test : ndarrays of bool of shape (n_splits, n_cells)
        Which cells make up each training and each test part.
    """
    cell = np.zeros(n, dtype=np.int64)
    for train, test in splits:
        code = 4 * cell + 2 * row_mask(train, n) + row_mask(test, n)
        # Few distinct codes: numbering them by a table costs no sorting of rows.
        cell = np.searchsorted(np.flatnonzero(np.bincount(code)), code)
    first = np.full(int(cell.max()) + 1, n, dtype=np.int64)
    np.minimum.at(first, cell, np.arange(n))
    train_cells, test_cells = (np.stack([row_mask(split[side], n)[first] for split in splits]) for side in (0, 1))
    return cell.astype(np.intp), train_cells, test_cells


def _of_tasks(data: TaskData, ref: Reference, cell: Index, n_cells: int, tasks: slice) -> tuple[Array, ...]:
    """Moments of a run of tasks by cell: every (task, cell) is treated as a task of its own."""
    K = tasks.stop - tasks.start
    rows = slice(data.offsets[tasks.start], data.offsets[tasks.stop])
    group = (data.task_of_row[rows] - tasks.start) * n_cells + cell[rows]
    order = np.argsort(group, kind="stable")
    filled, starts = np.unique(group[order], return_index=True)
    task = tasks.start + filled // n_cells
    pieces = Design.build(
        data.X[rows][order], np.append(starts, len(order)), centres=ref.centres[task], scales=ref.scales
    )
    c = np.ones(len(order)) if data.weights is None else data.weights[rows][order]
    y = ((data.y[rows] - ref.target_centres[data.task_of_row[rows]]) / ref.target_scale)[order]

    def spread(values: Array) -> Array:
        full = np.zeros((K * n_cells, *values.shape[1:]))
        full[filled] = values
        return np.ascontiguousarray(np.moveaxis(full.reshape(K, n_cells, *values.shape[1:]), 1, 0))

    return (
        spread(pieces.task_sums(c)),
        spread(pieces.backproject(c)),
        spread(pieces.task_sums(c * y)),
        spread(pieces.gram(c, intercept=False)),
        spread(pieces.backproject(c * y)),
        spread(pieces.task_sums(c * y * y)),
    )


def _shared(data: TaskData, ref: Reference, cell: Index, n_cells: int) -> Moments:
    """Moments of one design with many targets, whose weights all tasks share: its products are kept once."""
    K, n = data.n_tasks, len(data.X)
    weights = np.ones((K, n)) if data.weights is None else data.weights.reshape(K, n)
    targets = (data.y.reshape(K, n) - ref.target_centres[:, None]) / ref.target_scale
    cells: list[tuple[Any, ...]] = []
    for number in range(n_cells):
        rows = np.flatnonzero(cell == number)
        X, c, y = (data.X[rows] - ref.centres[0]) / ref.scales, weights[:, rows], targets[:, rows]
        common, cy = c[0], c * y
        products = ((common[:, None] * X).T @ X)[None]
        cells.append((c.sum(axis=1), (common @ X)[None], cy.sum(axis=1), products, cy @ X, (cy * y).sum(axis=1)))
    return Moments(*(np.stack(sums) for sums in zip(*cells, strict=True)))
