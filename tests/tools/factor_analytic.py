"""A covariance over tasks as a user would write one: a few factors and variances of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mssl.priors import TaskKernel

_PRICE = 1.0  # of squared loadings: without one factors overfit


@dataclass(frozen=True, eq=False)
class FactorAnalytic(TaskKernel):
    """T = ΛΛᵀ + D, with a ridge on Λ."""

    q: int = 1
    loadings: np.ndarray | None = None
    own: np.ndarray | None = None

    def started(self, K, v, t):
        spread = np.sin(1 + np.arange(K * self.q)).reshape(K, self.q)  # of either sign: factors may part groups
        return replace(self, loadings=np.sqrt(t / self.q) + np.sqrt(v / self.q) * spread, own=np.full(K, 0.5 * v))

    def matrix(self, K):
        return self.loadings @ self.loadings.T + np.diag(self.own)

    @property
    def size(self):
        return self.loadings.size + len(self.own)

    def slope(self, A, C):
        bend = np.repeat(2 * np.diag(A.matrix + C.matrix), self.q)
        down, up = self.own * np.diag(A.matrix), self.own * np.diag(C.matrix)
        turn = 2 * (A.matrix - C.matrix) @ self.loadings
        turn, bend = turn + 2 * _PRICE * self.loadings, bend + 2 * _PRICE
        return np.append(turn.ravel(), down - up), np.append(bend, down + up)

    def moved(self, step):
        loadings, own = np.split(step, [self.loadings.size])
        return replace(
            self, loadings=self.loadings + loadings.reshape(-1, self.q), own=np.maximum(self.own * np.exp(own), 1e-10)
        )

    def price(self):
        return _PRICE * float(np.sum(self.loadings**2))

    def common(self):
        K, T = len(self.own), self.loadings @ self.loadings.T
        between = max(float(T.sum() - np.trace(T)) / max(K * (K - 1), 1), 0.0)
        return between, float(np.trace(T)) / K + float(np.mean(self.own)) - between
