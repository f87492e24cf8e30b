r"""The rows of all tasks, compressed without loss to what a Gaussian likelihood needs.

Rows of task k are multiplied by the square root of their weights. Where the intercept is flat they are turned so that
its direction is the first (one reflection), and lose it: :math:`n_k - 1` contrasts are left, and their likelihood is
the restricted one (REML). Where more rows than features are left, :math:`X_k = Q_k R_k` keeps :math:`R_k` and
:math:`z_k = Q_k^\top y_k`; what is orthogonal to :math:`Q_k` counts in :math:`\mathrm{rss}^\perp_k` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from mssl._typing import Array, Index


@dataclass(frozen=True, eq=False)
class Rows:
    """Compressed rows of all tasks; rows of zeros fill tasks up to the same number.

    Attributes
    ----------
    X : ndarray of shape (K, r, d)
        Features.
    z : ndarray of shape (K, r)
        Targets.
    used : ndarray of int of shape (K,)
        How many of a task's rows are not filling.
    dof : ndarray of shape (K,)
        Degrees of freedom of all its rows together: their total weight, less one for a flat intercept.
    rest : ndarray of shape (K,)
        Squares of the targets that no feature can explain.
    """

    X: Array
    z: Array
    used: Index
    dof: Array
    rest: Array

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return len(self.X)

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return int(self.X.shape[2])

    @property
    def spare(self) -> Array:
        """Degrees of freedom outside the compressed rows."""
        return np.maximum(self.dof - self.used, 0.0)

    def flat(self) -> tuple[Array, Array, Index]:
        """The rows that are not filling, one below the other: features, targets, task of each."""
        kept = np.arange(self.X.shape[1]) < self.used[:, None]
        return self.X[kept], self.z[kept], np.nonzero(kept)[0]


def compress(blocks: Sequence[Any], targets: Sequence[Array], weights: Sequence[Array | None], *, flat: bool) -> Rows:
    """Compress each task's rows.

    Parameters
    ----------
    blocks : sequence of K arrays of shape (n_k, d), dense or sparse
        Features of each task, in the units of the fit.
    targets : sequence of K arrays of shape (n_k,)
        Targets.
    weights : sequence of K arrays of shape (n_k,), or None
        Frequency weights.
    flat : bool
        Whether each task has an intercept with a flat prior, which is integrated out here.
    """
    parts = [_compress_task(X, y, c, flat) for X, y, c in zip(blocks, targets, weights, strict=True)]
    d = int(blocks[0].shape[1])
    used = np.asarray([len(z) for _, z, _, _ in parts], dtype=np.int64)
    X, z = np.zeros((len(parts), int(used.max(initial=0)), d)), np.zeros((len(parts), int(used.max(initial=0))))
    for k, (block, target, _, _) in enumerate(parts):
        X[k, : used[k]], z[k, : used[k]] = block, target
    dof, rest = np.asarray([part[2] for part in parts]), np.asarray([part[3] for part in parts])
    return Rows(X, z, used, dof, rest)


def _compress_task(X: Any, y: Array, weights: Array | None, flat: bool) -> tuple[Array, Array, float, float]:
    table = np.column_stack([X.toarray() if sparse.issparse(X) else X, y])
    total = float(len(y)) if weights is None else float(weights.sum())
    if weights is not None:
        table *= np.sqrt(weights)[:, None]
    if flat and len(table):
        direction = np.ones(len(table)) if weights is None else np.sqrt(weights)
        table = _without(table, direction / np.linalg.norm(direction))
    d = table.shape[1] - 1
    rest = 0.0
    if len(table) > d:
        table = np.asarray(np.linalg.qr(table, mode="r"))
        rest = float(table[d, d] ** 2)
        table = table[:d]
    return table[:, :d], table[:, d], max(total - flat, 0.0), rest


def _without(table: Array, direction: Array) -> Array:
    """The rows turned by the reflection that maps a unit vector to the first axis, less that axis."""
    normal = direction.copy()
    normal[0] += np.copysign(1.0, direction[0])
    normal /= np.linalg.norm(normal)
    return np.asarray(table[1:] - 2.0 * np.outer(normal[1:], normal @ table))
