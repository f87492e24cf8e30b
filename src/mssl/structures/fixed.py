"""Structures with a given task precision, which is not learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mssl._typing import Array
from mssl._validation import check_array, check_number, refused
from mssl.model.coupling import positive_definite_inverse
from mssl.structures.base import Coupled, Structure, StructureScale, StructureStep, symmetric


class FixedStructure(Structure):
    """A structure with a known Ω. Its share of F is ½ tr(Q ηΩ Qᵀ)."""

    def certify(self, S: Array, step: StructureStep, scale: StructureScale) -> StructureStep:
        value = self.weight(scale) * float(np.vdot(S, step.precision))
        return StructureStep(step.precision, step.covariance, value)


@dataclass(eq=False, repr=False)
class Independent(FixedStructure):
    r"""Unrelated tasks: one ridge per task, :math:`\tfrac{\alpha}{2}\|w_k\|^2`.

    Parameters
    ----------
    alpha : float or array of shape (K,), default=1.0
        Ridge strength, one number for all tasks or one per task; 0 means no ridge.
    """

    alpha: Any = 1.0

    def check(self, n_tasks: int) -> None:
        remedy = "Give one number for all tasks or one per task."
        check_array("Independent: alpha", self.alpha, (), (n_tasks,), low=0, remedy=remedy)

    def initial(self, scale: StructureScale) -> StructureStep:
        strengths = np.broadcast_to(np.asarray(self.alpha, dtype=float), (scale.n_tasks,))
        inverse = np.diag(1.0 / strengths) if np.all(strengths > 0) else None
        return StructureStep(np.diag(strengths), inverse)


@dataclass(eq=False, repr=False)
class OneRidge(FixedStructure):
    r"""The same ridge for all tasks, in units of rows: :math:`\frac{\eta}{2\bar\sigma^2}\|w_k\|^2`.

    A learned prior reduces to it when neither a graph nor the variances of single tasks are learned. With the geometric
    mean :math:`\bar\sigma^2` of the tasks' noise variances it does not depend on the targets' units.

    Parameters
    ----------
    coupling : float, default=1.0
        η. The ridge has the same weight as this number of rows of scaled features with zero weights (or with the shared
        mean as weights).
    """

    coupling: float = 1.0

    free_units = True
    needs_variances = True  # the ridge is in units of the noise

    def check(self, n_tasks: int) -> None:
        check_number("prior_strength (coupling)", self.coupling, above=0)

    def initial(self, scale: StructureScale) -> StructureStep:
        strength = self.coupling / scale.noise
        identity = np.eye(scale.n_tasks)
        return StructureStep(strength * identity, identity / strength)


@dataclass(eq=False, repr=False)
class FixedPrecision(Coupled, FixedStructure):
    r"""A known task precision: :math:`\tfrac{\alpha}{2}\operatorname{tr}(W\Omega W^\top)`.

    Parameters
    ----------
    precision : array of shape (K, K)
        Ω, symmetric and positive semidefinite.
    alpha : float, default=1.0
        Strength of the coupling.
    """

    precision: Any
    alpha: float = 1.0

    def check(self, n_tasks: int) -> None:
        super().check(n_tasks)
        name, matrix = "FixedPrecision: precision", symmetric("FixedPrecision: precision", self.precision, n_tasks)
        smallest = float(np.linalg.eigvalsh(matrix)[0])
        if smallest < -1e-8 * np.abs(matrix).max():
            allowed = f"it is indefinite (smallest eigenvalue {smallest:.3g})"
            raise refused(name, matrix, allowed, "Add that much to its diagonal, or use a graph Laplacian.")

    def initial(self, scale: StructureScale) -> StructureStep:
        precision = np.array(self.precision, dtype=float)
        return StructureStep(precision, positive_definite_inverse(precision))
