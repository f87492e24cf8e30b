r"""A ridge on the weights in addition to the coupling, for any loss: :math:`\tfrac12\sum_k r_k\|w_k\|^2`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mssl.model.coupling import Coupling, positive_definite_inverse
from mssl.solvers.alternation import WeightProblem
from mssl.solvers.base import WeightStep

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RidgedCoupling(Coupling):
    """C + diag(r): P takes the ridge, the rank-one part stays that of the coupling without it.

    ``covariance`` is the inverse of the whole, so that it certifies the weight step as it is.
    """

    ridges: Array | None = None

    @classmethod
    def add(cls, coupling: Coupling, ridges: Array) -> RidgedCoupling:
        """The coupling with a ridge."""
        inverse = positive_definite_inverse(coupling.dense() + np.diag(ridges))
        return cls(coupling.precision + np.diag(ridges), inverse, coupling.mean_variance, ridges)

    @cached_property
    def u(self) -> Array:
        """Direction of the rank-one part, from P without the ridge."""
        total = np.asarray(self.precision.sum(axis=1))
        return total if self.ridges is None else total - self.ridges

    def inverse_quadratic(self, R: Array) -> float:
        """½ tr(R (C + diag(r))⁻¹ Rᵀ)."""
        return np.inf if self.covariance is None else 0.5 * float(np.vdot(R, self.covariance @ R))


@dataclass(frozen=True, eq=False)
class RidgedProblem:
    """A weight problem with a ridge on each task.

    Attributes
    ----------
    problem : WeightProblem
        Loss and ℓ1 penalty.
    ridges : ndarray of shape (K,)
        The r_k.
    """

    problem: WeightProblem
    ridges: Array

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return self.problem.n_tasks

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.problem.n_features

    def value(self, W: Array) -> float:
        """Loss, penalty and ridge."""
        return self.problem.value(W) + 0.5 * float(self.ridges @ (W**2).sum(axis=1))

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Best weights for a coupling."""
        return self.problem.solve(RidgedCoupling.add(coupling, self.ridges), W, tol=tol, max_iter=max_iter)

    def rows(self, W: Array) -> Array:
        """Those of the problem."""
        return self.problem.rows(W)

    def intercepts(self, W: Array) -> Array:
        """Those of the problem."""
        return self.problem.intercepts(W)
