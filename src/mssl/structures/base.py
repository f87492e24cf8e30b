r"""The contract of a structure: what relates the tasks, and how it is learned from the rows of Q.

A structure adds to the objective a term over the task precision :math:`\Omega`,

.. math:: \tfrac12 \operatorname{tr}(Q\,\eta\Omega\,Q^\top) + g(\Omega),

where Q is W (``on="coef"``, r = d rows) or the residuals E (``on="residual"``, r = n rows). The alternation
asks it four things only: a first Ω, the moment S of Q, the best Ω for a moment, and how far a given Ω is from that.
"""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mssl.exceptions import ParameterError
from mssl.model.coupling import Coupling

Array = NDArray[np.float64]


def numeric(value: Any, what: str) -> Array:
    """A parameter as a new array of numbers, or an error that names it."""
    try:
        return np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{what} is {reprlib.repr(value)}; give numbers.") from error


def edge_list(edges: Any, what: str) -> list[Any]:
    """A parameter as a list of edges, or an error that names it; what an edge is, is for others to check."""
    if isinstance(edges, str) or not np.iterable(edges):
        raise ParameterError(f"{what} is {reprlib.repr(edges)}; give a list of pairs of tasks, such as [(0, 1)].")
    return list(edges)


@dataclass(frozen=True, eq=False)
class Frame:
    """What a structure is told once, before the first step; frozen, so that F is one fixed function.

    Attributes
    ----------
    n_rows : float
        r, the rows of Q: features for p-MSSL, occasions (their total weight) for r-MSSL.
    variances : ndarray of shape (K,)
        v, the mean square of each column of Q at the diagonal fixed point.
    sampling_variances : ndarray of shape (K,)
        How uncertain a coefficient of each task is by sampling alone; the unit of the variance floor.
    noise : float
        Geometric mean of the tasks' noise variances.
    """

    n_rows: float
    variances: Array
    sampling_variances: Array
    noise: float = 1.0

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return len(self.variances)


@dataclass(frozen=True, eq=False)
class StructureStep:
    """A task precision and what is known about it.

    Attributes
    ----------
    precision : ndarray of shape (K, K)
        Ω with exact zeros where there is no edge.
    covariance : ndarray of shape (K, K) or None
        Its inverse; None where Ω is singular.
    value : float
        The structure's whole share of F at the moment it was computed for.
    gap : float
        Bound of F(Ω) − min F over Ω at that moment; 0 for a fixed structure.
    warm : Any
        Whatever makes the next update cheaper.
    """

    precision: Array
    covariance: Array | None
    value: float = 0.0
    gap: float = 0.0
    warm: Any = None


class Structure(BaseEstimator, ABC):
    """Base of all structures; parameters are searchable as ``structure__name``."""

    on: str = "coef"
    learned: bool = False
    joint: bool = True
    """Whether weights and Ω minimise one objective F, which then certifies the fit."""

    @property
    def strength(self) -> float:
        """η, the weight of the coupling."""
        return 1.0

    def check(self, n_tasks: int) -> None:
        """Raise where the parameters do not fit this many tasks."""
        return

    def diagonal(self, frame: Frame) -> Array:
        """The diagonal of Ω at the diagonal fixed point."""
        return np.ones(frame.n_tasks)

    @abstractmethod
    def initial(self, frame: Frame) -> StructureStep:
        """The first Ω."""

    def moment(self, Q: Array, frame: Frame, mean_spread: float = 0.0) -> Array:
        """S from Q, given as (K, r); ``mean_spread`` is what the uncertainty of a shared mean adds to every entry."""
        return Q @ Q.T / frame.n_rows

    def normalised_rows(self, frame: Frame) -> float:
        """How many rows of Q enter with the prior's normaliser: all where Ω is learned, none where it is fixed."""
        return frame.n_rows if self.learned else 0

    @abstractmethod
    def certify(self, S: Array, step: StructureStep, frame: Frame) -> StructureStep:
        """The same Ω, with value and gap at another moment."""

    def update(self, S: Array, step: StructureStep, frame: Frame, tol: float) -> StructureStep:
        """The best Ω for the moment S, to the absolute gap ``tol`` in units of F."""
        return self.certify(S, step, frame)

    def couple(self, step: StructureStep, mean_variance: float = 0.0) -> Coupling:
        """The quadratic form ηΩ (with a shared mean) that the weight step sees."""
        return Coupling.from_precision(step.precision, self.strength, step.covariance, mean_variance)
