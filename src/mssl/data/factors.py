r"""The Gaussian data of all tasks, compressed without loss: one triangular factor for each task.

The squared errors of task k are, for all weights w,

.. math:: \sum_i c_i (y_i - x_i \cdot w)^2 = |R_k w - z_k|^2 + \mathrm{rest}_k .

With a free intercept, the task's mean is subtracted from its rows. One reflection turns the direction of the intercept
into the first axis and drops it: n − 1 contrasts are left, and their likelihood is the restricted one (REML). If more
rows than features are left, the QR decomposition :math:`X_k = Q_k R_k` gives :math:`R_k` and
:math:`z_k = Q_k^\top y_k`. The part of the targets orthogonal to :math:`Q_k` enters :math:`\mathrm{rest}_k` only.

The computation squares no numbers, so nearly collinear columns keep their digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mssl._typing import Array, Index, Matrix
from mssl.data.inputs import dense


@dataclass(frozen=True, eq=False)
class TaskFactors:
    """Compressed rows of K tasks with d features; rows of zeros pad all tasks to the same number of rows.

    Attributes
    ----------
    n : ndarray of shape (K,)
        Total weight of the rows.
    R : ndarray of shape (K, r, d)
        Factors of the features.
    z : ndarray of shape (K, r)
        Targets, rotated in the same way.
    used : ndarray of int of shape (K,)
        Number of rows of R that are not padding.
    rest : ndarray of shape (K,)
        Sum of squares of the targets that no feature can explain.
    centred : bool
        Whether the means of each task were subtracted from its rows, so that its intercept is free.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.arange(8.0).reshape(4, 2) ** 2, np.arange(4.0)
    >>> factors = TaskFactors.from_rows([X], [y], [None], intercept=True)
    >>> bool(np.allclose(factors.R[0].T @ factors.R[0], (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))))
    True
    """

    n: Array
    R: Array
    z: Array
    used: Index
    rest: Array
    centred: bool

    @classmethod
    def from_rows(
        cls, blocks: Sequence[Matrix], targets: Sequence[Array], weights: Sequence[Array | None], *, intercept: bool
    ) -> TaskFactors:
        """Compress the rows of each task. Without an intercept, tasks of at most d rows keep them in their order.

        Parameters
        ----------
        blocks : sequence of K arrays of shape (n_k, d), dense or sparse
            Features of each task.
        targets : sequence of K arrays of shape (n_k,)
            Targets.
        weights : sequence of K arrays of shape (n_k,), or None
            Frequency weights.
        intercept : bool
            Whether each task has a free intercept.
        """
        parts = [turned(X, y, c, intercept) for X, y, c in zip(blocks, targets, weights, strict=True)]
        n, _, tables = zip(*parts, strict=True)
        return cls.from_tables(np.asarray(n), tables, centred=intercept)

    @classmethod
    def from_tables(cls, n: Array, tables: Sequence[Array], *, centred: bool = False) -> TaskFactors:
        """Make factors from one table per task whose last column holds the targets."""
        d, sizes = tables[0].shape[1] - 1, np.asarray([len(table) for table in tables], dtype=np.int64)
        used, rest = np.minimum(sizes, d), np.zeros(len(tables))
        filled = np.zeros((len(tables), int(used.max(initial=0)), d + 1))
        for k in np.flatnonzero(sizes <= d).tolist():
            filled[k, : used[k]] = tables[k]
        # Tasks of about the same size are padded with rows of zeros and factorised in one call.
        tall, height = np.flatnonzero(sizes > d), np.ceil(np.log2(sizes, where=sizes > 0, out=np.zeros(len(sizes))))
        for power in np.unique(height[tall]).tolist():
            alike = tall[height[tall] == power]
            stack = np.zeros((len(alike), int(sizes[alike].max()), d + 1))
            for place, k in enumerate(alike.tolist()):
                stack[place, : sizes[k]] = tables[k]
            small: Array = np.asarray(np.linalg.qr(stack, mode="r"))
            filled[alike], rest[alike] = small[:, :d], small[:, d, d] ** 2
        return cls(n, filled[:, :, :d], filled[:, :, d], used, rest, centred)

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return len(self.n)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.R.shape[2])

    @cached_property
    def dof(self) -> Array:
        """Degrees of freedom of all rows: their total weight, minus one for a free intercept."""
        return np.maximum(self.n - self.centred, 0.0)

    @cached_property
    def spare(self) -> Array:
        """Degrees of freedom outside the factors."""
        return np.maximum(self.dof - self.used, 0.0)

    def flat(self) -> tuple[Array, Array, Index]:
        """All rows that are not padding, stacked: features, targets and task of each row."""
        kept = np.arange(self.R.shape[1]) < self.used[:, None]
        return self.R[kept], self.z[kept], np.nonzero(kept)[0]


def turned(X: Matrix, targets: Array, weights: Array | None, intercept: bool) -> tuple[float, Array, Array]:
    """Total weight, means and weighted rows of one task, with the targets as last column.

    With an intercept the rows are n − 1 contrasts: a reflection turns the intercept's direction into the first axis,
    which is then dropped.
    """
    table = np.column_stack([dense(X), targets])
    c = np.ones(len(table)) if weights is None else weights
    total = float(c.sum())
    mean, root = c @ table / max(total, 1e-300), np.sqrt(c)[:, None]
    if not intercept or not len(table):
        return total, mean, root * table
    table = root * (table - mean)
    normal = root[:, 0] / max(np.sqrt(total), 1e-300)
    normal[0] += np.copysign(1.0, normal[0])
    normal /= np.linalg.norm(normal)
    return total, mean, table[1:] - 2.0 * np.outer(normal[1:], normal @ table)


def triangle(table: Array, d: int) -> tuple[Array, Array]:
    """Triangularise a table; its first d rows then hold all products with the first d columns."""
    if len(table) > d:
        table = np.asarray(np.linalg.qr(table, mode="r"))
    return table[:d], table[d:, d:]
