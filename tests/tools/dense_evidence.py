"""The model of `mssl.evidence` written out as one Gaussian over all weights and all rows, for tests of every route."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from mssl.evidence.prior import Columns, Hyper


@dataclass
class DenseModel:
    """All K·d weights (task by task), then the d weights of a new task; rows; errors that rows share on occasions."""

    X: list[np.ndarray]
    y: list[np.ndarray]
    columns: Columns
    occasions: list[np.ndarray] | None = None
    flat: bool = False

    @property
    def design(self) -> np.ndarray:
        return block_diag(*self.X)

    @property
    def target(self) -> np.ndarray:
        return np.concatenate(self.y)

    def prior(self, hyper: Hyper) -> np.ndarray:
        K, d = len(self.X), self.X[0].shape[1]
        S = np.zeros((K + 1, d, K + 1, d))
        for j in range(d):
            block = int(self.columns.block[j])
            intercept = self.columns.intercept and block == self.columns.n_blocks - 1
            T = np.zeros((K + 1, K + 1))
            if hyper.T is None or intercept:
                T[:] = hyper.t[block]
                T += hyper.v[block] * np.eye(K + 1)
            else:
                v, t = hyper.centre
                T[:] = hyper.v[block] * t
                T[K, K] += hyper.v[block] * v
                T[:K, :K] = hyper.v[block] * hyper.T
            S[:, j, :, j] = T * hyper.psi[self.columns.group[j]]
        return S.reshape((K + 1) * d, (K + 1) * d)

    def errors(self, hyper: Hyper) -> np.ndarray:
        task = np.repeat(np.arange(len(self.X)), [len(y) for y in self.y])
        if hyper.noise.ndim == 1:
            return np.diag(hyper.noise[task])
        assert self.occasions is not None
        occasion = np.concatenate(self.occasions)
        return hyper.noise[np.ix_(task, task)] * (occasion[:, None] == occasion)

    def _parts(self, hyper: Hyper) -> tuple[np.ndarray, ...]:
        K, d = len(self.X), self.X[0].shape[1]
        A = np.column_stack([self.design, np.zeros((len(self.target), d))])
        S, N, y = self.prior(hyper), self.errors(hyper), self.target
        if self.flat:
            # Contrasts: an orthonormal basis of what is orthogonal to every task's column of ones.
            ones = block_diag(*[np.ones((len(part), 1)) for part in self.y])
            basis = np.linalg.svd(ones, full_matrices=True)[0][:, K:]
            A, N, y = basis.T @ A, basis.T @ N @ basis, basis.T @ y
        return A, S, N, y

    def value(self, hyper: Hyper) -> float:
        """−2 log Z without constants."""
        A, S, N, y = self._parts(hyper)
        V = A @ S @ A.T + N
        return float(y @ np.linalg.solve(V, y) + np.linalg.slogdet(V)[1])

    def posterior(self, hyper: Hyper) -> tuple[np.ndarray, np.ndarray]:
        """Mean (K + 1, d) and covariance (K + 1, d, K + 1, d), the new task last."""
        A, S, N, y = self._parts(hyper)
        V = A @ S @ A.T + N
        K, d = len(self.X), self.X[0].shape[1]
        mean, taken = S @ A.T @ np.linalg.solve(V, y), S @ A.T @ np.linalg.solve(V, A @ S)
        return mean.reshape(K + 1, d), (S - taken).reshape(K + 1, d, K + 1, d)
