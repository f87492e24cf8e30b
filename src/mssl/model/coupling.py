r"""The coupling of the tasks: the quadratic form that every weight step shares.

.. math:: \tfrac12 \operatorname{tr}(W C W^\top) = \tfrac12 \sum_{kl} C_{kl}\, w_k \cdot w_l,
          \qquad C = P - \rho\, u u^\top,

with a sparse :math:`P` (for p-MSSL :math:`\eta\Omega`) and a rank-one part that comes from a shared mean.
Minimising :math:`\tfrac12\operatorname{tr}((W-m1^\top) P (W-m1^\top)^\top) + \|m\|^2/(2\tau^2)` over :math:`m`
gives :math:`C = (P^{-1} + \tau^2 11^\top)^{-1}`, that is :math:`u = P1`, :math:`\rho = 1/(1/\tau^2 + 1^\top u)`.

A ridge on the weights is added to the diagonal of C; it does not change the mean. In code the weights are stored task
by task: ``W`` has shape (K, d) and row k is :math:`w_k`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, sparse

from mssl._typing import Array, Index, TaskMatrix
from mssl.model.task_matrix import SMALL, count_entries, diagonal_matrix


@dataclass(frozen=True, eq=False)
class Coupling:
    """The matrix C = P − ρ u uᵀ over tasks.

    Attributes
    ----------
    precision : ndarray or csr_array of shape (K, K)
        The symmetric part P. Its zeros make products with a sparse graph fast.
    covariance : ndarray or csr_array of shape (K, K), or None
        P⁻¹ for a positive definite P; None for a singular P.
    mean_variance : float
        τ²; 0 if there is no shared mean.
    ridge : ndarray of shape (K,) or None
        Ridge strengths, which are added to the diagonal of C.
    """

    precision: TaskMatrix
    covariance: TaskMatrix | None = None
    mean_variance: float = 0.0
    ridge: Array | None = None

    @classmethod
    def diagonal_only(cls, diagonal: Array, mean_variance: float = 0.0) -> Coupling:
        """The coupling of independent tasks, each with its own ridge strength; 0 means no coupling."""
        diagonal = np.asarray(diagonal, dtype=float)
        inverse = diagonal_matrix(1.0 / diagonal) if np.all(diagonal > 0) else None
        return cls(diagonal_matrix(diagonal), inverse, mean_variance)

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return int(self.precision.shape[0])

    @cached_property
    def compressed(self) -> tuple[Index, Index, Array]:
        """Row starts, columns and values of P, the diagonal always stored."""
        if sparse.issparse(self.precision):
            P = self.precision
            return P.indptr.astype(np.int64), P.indices.astype(np.int64), P.data
        kept = self.precision != 0
        np.fill_diagonal(kept, True)
        flat = np.flatnonzero(kept)
        starts = np.zeros(self.n_tasks + 1, dtype=np.int64)
        np.cumsum(kept.sum(axis=1), out=starts[1:])
        return starts, flat % self.n_tasks, self.precision.ravel()[flat]

    @cached_property
    def arrays(self) -> tuple[Index, Index, Array, Array, float]:
        """C in the form for the kernels: compressed rows of P with the ridge, u and ρ."""
        starts, columns, values = self.compressed
        if self.ridge is not None:
            tasks = np.repeat(np.arange(self.n_tasks), np.diff(starts))
            values = values + np.where(columns == tasks, self.ridge[tasks], 0.0)
        return starts, columns, values, self.u, self.rho

    @property
    def prior(self) -> tuple[Array, Array, Array, float, float]:
        """C and its inverse as dense tables for the kernels: P with the ridge, its inverse, u, ρ and τ²."""
        P = self.precision if self.ridge is None else self.precision + np.diag(self.ridge)
        inverse, tau = self.inverse
        P, inverse = (np.require(matrix, float, ["C", "W"]) for matrix in (P, inverse))
        return P, inverse, self.u, self.rho, tau

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """P in compressed rows, the diagonal always stored."""
        starts, columns, values = self.compressed
        return sparse.csr_array((values, columns, starts), shape=self.precision.shape)

    @cached_property
    def _is_sparse(self) -> bool:
        """Whether products through compressed rows are cheaper than dense ones."""
        return self.n_tasks > SMALL and count_entries(self.precision) < 0.05 * self.n_tasks**2

    @cached_property
    def u(self) -> Array:
        """P1, the direction of the rank-one part."""
        return np.asarray(self.precision.sum(axis=1))

    @cached_property
    def rho(self) -> float:
        """Weight of the rank-one part."""
        if self.mean_variance <= 0:
            return 0.0
        return float(1.0 / (1.0 / self.mean_variance + self.u.sum()))

    @cached_property
    def inverse(self) -> tuple[TaskMatrix | None, float]:
        """A and t with C⁻¹ = A + t 11ᵀ; None for a singular C."""
        if self.ridge is None or sparse.issparse(self.precision):
            # The inverse without the ridge is larger, so bounds hold with it. It needs no table of all pairs.
            return self.covariance, self.mean_variance
        return positive_definite_inverse(self.dense()), 0.0

    def dot(self, W: Array) -> Array:
        """C W for weights stored (K, d)."""
        product = (self.matrix if self._is_sparse else self.precision) @ W
        if self.rho:
            product -= np.outer(self.rho * self.u, self.u @ W)  # this order avoids u², which may overflow
        return np.asarray(product if self.ridge is None else product + self.ridge[:, None] * W)

    def diagonal(self) -> Array:
        """The diagonal of C."""
        diagonal = self.precision.diagonal() + (0.0 if self.ridge is None else self.ridge)
        return np.asarray(diagonal - self.rho * self.u * self.u if self.rho else diagonal)

    def dense(self) -> Array:
        """C as an array."""
        P = self.precision.toarray() if sparse.issparse(self.precision) else self.precision
        root = np.sqrt(self.rho) * self.u
        C = P - np.outer(root, root) if self.rho else P
        return np.asarray(C if self.ridge is None else C + np.diag(self.ridge))

    def value(self, W: Array) -> float:
        """½ tr(W C Wᵀ)."""
        return 0.5 * float(np.vdot(W, self.dot(W)))

    def mean(self, W: Array) -> Array:
        """The shared mean m = τ² W C 1 = ρ W u that belongs to W."""
        return np.asarray(self.rho * (self.u @ W))

    def inverse_quadratic(self, R: Array) -> float:
        """½ tr(R C⁻¹ Rᵀ); infinite if C is singular."""
        inverse, tau = self.inverse
        if inverse is None:
            return float("inf")
        alone = inverse is self.covariance and self.n_tasks > SMALL and len(self.compressed[2]) == self.n_tasks
        product = R / self.precision.diagonal()[:, None] if alone else inverse @ R
        value = 0.5 * float(np.vdot(R, product))
        return value + 0.5 * tau * float(np.sum(R.sum(axis=0) ** 2)) if tau > 0 else value


def positive_definite_inverse(matrix: Array) -> Array | None:
    """The inverse by a Cholesky factorisation; None if the matrix is not positive definite."""
    try:
        factor = linalg.cho_factor(matrix, lower=True)
    except linalg.LinAlgError:
        return None
    return np.asarray(linalg.cho_solve(factor, np.eye(len(matrix))))
