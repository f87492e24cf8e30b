"""Structures that are given, not learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl._validation import finite
from mssl.exceptions import ParameterError
from mssl.model.coupling import positive_definite_inverse
from mssl.model.objective import prior_weight
from mssl.structures.base import Structure, StructureScale, StructureStep, numeric

Array = NDArray[np.float64]


class FixedStructure(Structure):
    """A known Ω: the structure's share of F is ½ tr(Q ηΩ Qᵀ)."""

    def certify(self, S: Array, step: StructureStep, scale: StructureScale) -> StructureStep:
        value = prior_weight(self.strength, scale.n_rows) * float(np.vdot(S, step.precision))
        return StructureStep(step.precision, step.covariance, value)


class Independent(FixedStructure):
    r"""No relation at all: one ridge a task, :math:`\tfrac{\alpha}{2}\|w_k\|^2`.

    Parameters
    ----------
    alpha : float or array of shape (K,), default=1.0
        Ridge strength, in common or one a task; 0 switches it off.
    """

    def __init__(self, alpha: Any = 1.0) -> None:
        self.alpha = alpha

    def check(self, n_tasks: int) -> None:
        alpha = numeric(self.alpha, "Independent: alpha")
        if alpha.shape not in ((), (n_tasks,)) or not np.all(np.isfinite(alpha)) or np.any(alpha < 0):
            raise ParameterError(
                f"Independent: alpha is {self.alpha!r}; give one number ≥ 0, or {n_tasks} (one a task)."
            )

    def initial(self, scale: StructureScale) -> StructureStep:
        strengths = np.broadcast_to(np.asarray(self.alpha, dtype=float), (scale.n_tasks,))
        inverse = np.diag(1.0 / strengths) if np.all(strengths > 0) else None
        return StructureStep(np.diag(strengths), inverse)


class OneRidge(FixedStructure):
    r"""The same ridge for all tasks, in units of rows: :math:`\frac{\eta}{2\bar\sigma^2}\|w_k\|^2`.

    It is what is left of a learned prior where neither a graph nor the tasks' own variances are learned. With the
    geometric mean :math:`\bar\sigma^2` of the tasks' noise variances it does not depend on the targets' units.

    Parameters
    ----------
    coupling : float, default=1.0
        η: as much as so many rows of scaled features would say that the weights are zero (or the shared mean).
    """

    free_units = True

    def __init__(self, coupling: float = 1.0) -> None:
        self.coupling = coupling

    @property
    def needs_variances(self) -> bool:
        """The ridge is in units of the noise."""
        return True

    def check(self, n_tasks: int) -> None:
        if not finite(self.coupling) or self.coupling <= 0:
            raise ParameterError(f"coupling is {self.coupling!r}; give a number above 0.")

    def initial(self, scale: StructureScale) -> StructureStep:
        strength = self.coupling / scale.noise
        identity = np.eye(scale.n_tasks)
        return StructureStep(strength * identity, identity / strength)


class FixedPrecision(FixedStructure):
    r"""A known task precision: :math:`\tfrac{\alpha}{2}\operatorname{tr}(W\Omega W^\top)`.

    Parameters
    ----------
    precision : array of shape (K, K)
        Ω, symmetric and positive semidefinite.
    alpha : float, default=1.0
        Strength of the coupling.
    """

    def __init__(self, precision: Any, alpha: float = 1.0) -> None:
        self.precision = precision
        self.alpha = alpha

    @property
    def strength(self) -> float:
        return float(self.alpha)

    def check(self, n_tasks: int) -> None:
        if not finite(self.alpha) or self.alpha <= 0:
            raise ParameterError(f"FixedPrecision: alpha is {self.alpha!r}; give a number above 0.")
        check_semidefinite(numeric(self.precision, "FixedPrecision: precision"), n_tasks, "FixedPrecision")

    def initial(self, scale: StructureScale) -> StructureStep:
        precision = np.array(self.precision, dtype=float)
        return StructureStep(precision, positive_definite_inverse(precision))


def check_semidefinite(matrix: Array, n_tasks: int, who: str) -> None:
    """Raise unless the matrix is a symmetric positive semidefinite (K, K)."""
    if matrix.shape != (n_tasks, n_tasks):
        raise ParameterError(
            f"{who}: the precision has shape {matrix.shape}; there are {n_tasks} tasks, so give (K, K)."
        )
    if not np.all(np.isfinite(matrix)):
        raise ParameterError(f"{who}: the precision holds NaN or infinite entries.")
    size = np.abs(matrix).max()
    if np.abs(matrix - matrix.T).max() > 1e-8 * size:
        raise ParameterError(f"{who}: the precision is not symmetric; pass (A + A.T) / 2 if the difference is noise.")
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest < -1e-8 * size:
        raise ParameterError(
            f"{who}: the precision is indefinite (smallest eigenvalue {smallest:.3g}); "
            "add that much to its diagonal, or use a graph Laplacian."
        )
