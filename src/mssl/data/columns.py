"""Columns of all tasks: their quantiles, how many of them vary within tasks, and residuals of targets on them."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from mssl._typing import Array, Index, Matrix
from mssl.data.inputs import ROUNDING, dense
from mssl.data.layouts import TaskData

_SHARES = np.linspace(0.0, 1.0, 21)  # A fitted model keeps these quantiles of every column.
# Quantiles are computed from at most this many numbers. More numbers cost time and hardly change the quantiles.
_SAMPLE = 500_000
# Penalty of PooledRidge, relative to the total weight of the rows. A mere safeguard: without it the ridge could fit few
# rows exactly, and comparisons of its residuals would mean nothing.
_RIDGE = 1e-3
# A column counts as a copy of others if they leave less than this share of its spread unexplained. A mere safeguard.
_COLLINEAR = 1e-4


def column_quantiles(X: Matrix) -> Array:
    """Mean and quantiles of each column, (1 + 21, d), from a sample of the rows."""
    step = max(1, -(-X.shape[0] * X.shape[1] // _SAMPLE))
    values = dense(X[::step])
    ordered = np.sort(values.T)  # One sort serves all 21 quantiles; np.quantile would search for each of them.
    place = _SHARES * (len(values) - 1)
    below = place.astype(int)
    above = np.minimum(below + 1, len(values) - 1)
    quantiles = ordered[:, below] + (place - below) * (ordered[:, above] - ordered[:, below])
    return np.vstack([values.mean(axis=0), quantiles.T])


def feature_spreads(model: object, n_features: int) -> Array | None:
    """Standard deviations of a model's training columns; None if it has not kept them or if its features differ."""
    quantiles = np.asarray(getattr(model, "column_quantiles_", np.empty((0, 0))))
    return quantiles[1:].std(axis=0) if quantiles.shape[1] == n_features else None


def effective_columns(data: TaskData, enough: int) -> int:
    """Number of columns of the input that vary within tasks: the rank of their pooled within-task covariance.

    A category of L levels counts as L − 1 columns, since its indicators sum to one. A numeric column counts once, even
    if a map makes several features of it. Columns that are constant within every task do not count.

    Parameters
    ----------
    data : TaskData
        The tasks.
    enough : int
        The function stops counting at this number.

    Examples
    --------
    >>> age, of_task = [3.0, 5.0, 4.0, 6.0], [1.0, 1.0, 2.0, 2.0]
    >>> X = np.column_stack([age, np.multiply(2.0, age), of_task])
    >>> effective_columns(TaskData.from_list([X[:2], X[2:]], [[0, 1], [1, 2]]), 3)
    1
    """
    c, task, K = data.row_weights, data.task_of_row, data.n_tasks
    total = np.bincount(task, c, K)
    total, basis = np.where(total > 0, total, 1.0), np.empty((0, len(c)))
    for j in range(data.n_features if data.n_columns is None else data.n_columns):
        x = data.X[:, [j]]
        x = np.ravel(dense(x)).astype(float)
        x = np.tile(x, K) if data.shared else x
        x = x / (np.abs(x).max(initial=0.0) or 1.0)
        for _ in range(2):  # The second pass removes the rounding error of the first.
            x = x - (np.bincount(task, c * x, K) / total)[task]
        x = np.sqrt(c) * x
        size = float(np.linalg.norm(x))
        left = x - (basis @ x) @ basis
        remains = float(np.linalg.norm(left))
        if size > ROUNDING * np.sqrt(c.sum()) and remains > _COLLINEAR * size:
            basis = np.vstack([basis, left / remains])
        if len(basis) == enough:
            break
    return len(basis)


class PooledRidge:
    """A ridge regression whose weights are the same in all tasks and whose intercept differs between tasks.

    Parameters
    ----------
    X : ndarray of shape (N, d)
        The columns.
    index : ndarray of int of shape (N,)
        Task of each row.
    weights : ndarray of shape (N,)
        Frequency weights.
    """

    def __init__(self, X: Array, index: Index, weights: Array) -> None:
        self.index, self.weights = index, weights
        self.sums = sparse.csr_array((weights, (index, np.arange(len(index)))))
        self.columns = self.centred(X)
        size = np.sqrt(np.average(self.columns**2, axis=0, weights=weights))
        self.columns /= np.where(size > 0, size, 1.0)
        self.gram = (weights[:, None] * self.columns).T @ self.columns
        self.gram[np.diag_indices_from(self.gram)] += _RIDGE * weights.sum()

    def centred(self, values: Array) -> Array:
        """Subtract the means of each task from values of shape (N, m)."""
        totals = np.bincount(self.index, self.weights)[:, None]
        return np.asarray(values - (self.sums @ values / np.where(totals > 0, totals, 1.0))[self.index])

    def residuals(self, targets: Array) -> Array:
        """Residuals of the ridge for targets of shape (N, m)."""
        left = self.centred(targets)
        coef = np.linalg.solve(self.gram, self.columns.T @ (self.weights[:, None] * left))
        return np.asarray(left - self.columns @ coef)
