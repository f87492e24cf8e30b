"""The model of `mssl.evidence` written out as one Gaussian over all weights and all rows, for tests of every route."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from mssl.evidence.prior import Prior


@dataclass
class DenseModel:
    """All K·d weights (task by task), then the d weights of a new task; rows; errors that rows share on occasions."""

    X: list[np.ndarray]
    y: list[np.ndarray]
    occasions: list[np.ndarray] | None = None
    flat: bool = False

    @property
    def design(self) -> np.ndarray:
        return block_diag(*self.X)

    @property
    def target(self) -> np.ndarray:
        return np.concatenate(self.y)

    def weights(self, prior: Prior) -> np.ndarray:
        """Covariance of all weights before the rows."""
        K, d = len(self.X), self.X[0].shape[1]
        S = np.zeros((K + 1, d, K + 1, d))
        for block in prior.blocks:
            t, v = block.tasks.common()
            T = np.full((K + 1, K + 1), t)
            T[K, K] += v
            T[:K, :K] = block.tasks.matrix(K)
            for j, psi in zip(block.columns, block.features.values, strict=True):
                S[:, j, :, j] = T * psi
        return S.reshape((K + 1) * d, (K + 1) * d)

    def errors(self, prior: Prior) -> np.ndarray:
        task = np.repeat(np.arange(len(self.X)), [len(y) for y in self.y])
        if self.occasions is None:
            return np.diag(prior.noise.variances[task])
        occasion = np.concatenate(self.occasions)
        return prior.noise.covariance[np.ix_(task, task)] * (occasion[:, None] == occasion)

    def _parts(self, prior: Prior) -> tuple[np.ndarray, ...]:
        K, d = len(self.X), self.X[0].shape[1]
        A = np.column_stack([self.design, np.zeros((len(self.target), d))])
        S, N, y = self.weights(prior), self.errors(prior), self.target
        if self.flat:
            # Contrasts: an orthonormal basis of what is orthogonal to every task's column of ones.
            ones = block_diag(*[np.ones((len(part), 1)) for part in self.y])
            basis = np.linalg.svd(ones, full_matrices=True)[0][:, K:]
            A, N, y = basis.T @ A, basis.T @ N @ basis, basis.T @ y
        return A, S, N, y

    def value(self, prior: Prior) -> float:
        """−2 log Z without constants."""
        A, S, N, y = self._parts(prior)
        V = A @ S @ A.T + N
        return float(y @ np.linalg.solve(V, y) + np.linalg.slogdet(V)[1])

    def posterior(self, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
        """Mean (K + 1, d) and covariance (K + 1, d, K + 1, d), the new task last."""
        A, S, N, y = self._parts(prior)
        V = A @ S @ A.T + N
        K, d = len(self.X), self.X[0].shape[1]
        mean, taken = S @ A.T @ np.linalg.solve(V, y), S @ A.T @ np.linalg.solve(V, A @ S)
        return mean.reshape(K + 1, d), (S - taken).reshape(K + 1, d, K + 1, d)
