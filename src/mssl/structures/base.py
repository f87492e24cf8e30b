r"""The contract of a structure: what relates the tasks, and how it is learned from the rows of Q.

A structure adds to the objective a term over the task precision :math:`\Omega`,

.. math:: \tfrac12 \operatorname{tr}(Q\,\eta\Omega\,Q^\top) + g(\Omega),

where Q is W (r = d rows) or the residuals E (r = n rows). A structure knows what it relates, whether it is
learned, its first Ω, the moment S of Q, the best Ω for a moment, how far a given Ω is from that, the coupling and the
graph that Ω stands for. Code outside this package does not depend on the class of a structure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from mssl._typing import Array, Moment, TaskMatrix
from mssl._validation import check_array, check_number, refused
from mssl.model.coupling import Coupling
from mssl.model.objective import lambda_max
from mssl.penalties import Penalty


def numeric(value: Any, name: str) -> Array:
    """A parameter as a new array of numbers, or an error that names it."""
    try:
        return np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise refused(name, value, "give numbers") from error


def edge_list(edges: Any, name: str) -> list[Any]:
    """A parameter as a list of edges, or an error that names it; the caller checks the edges themselves."""
    if isinstance(edges, str) or not np.iterable(edges):
        raise refused(name, edges, "give a list of pairs of tasks, such as [(0, 1)]")
    return list(edges)


def symmetric(name: str, value: Any, n_tasks: int, low: float | None = None) -> Array:
    """A parameter as a symmetric (K, K) matrix, or an error that names it."""
    matrix = np.array(check_array(name, value, (n_tasks, n_tasks), low=low, remedy=f"There are {n_tasks} tasks."))
    if np.abs(matrix - matrix.T).max() > 1e-8 * np.abs(matrix).max():
        raise refused(name, matrix, "it is not symmetric", "If the difference is noise, give (A + A.T) / 2.")
    return np.asarray((matrix + matrix.T) / 2)


def edge_range(n_tasks: int) -> str:
    """Which edges ``n_tasks`` tasks can have, for a message."""
    return f"it is out of range: an edge joins two different numbers from 0 to {n_tasks - 1}, one for each task"


@dataclass(frozen=True, eq=False)
class StructureScale:
    """Constants that a structure gets once, before the first step; they stay fixed, so that F is one function.

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

    @cached_property
    def kept(self) -> dict[Any, Any]:
        """What structures work out from these constants once; not saved."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "kept"}


@dataclass(frozen=True, eq=False)
class StructureStep:
    """A task precision and what is known about it.

    Attributes
    ----------
    precision : ndarray or csr_array of shape (K, K)
        Ω with exact zeros where there is no edge.
    covariance : ndarray or csr_array of shape (K, K), or None
        Its inverse; None where Ω is singular.
    value : float
        The structure's whole share of F at the moment it was computed for.
    gap : float
        Bound of F(Ω) − min F over Ω at that moment; 0 for a fixed structure.
    warm : Any
        Whatever makes the next update cheaper.
    """

    precision: TaskMatrix
    covariance: TaskMatrix | None
    value: float = 0.0
    gap: float = 0.0
    warm: Any = None


class Structure(BaseEstimator, ABC):
    """Base of all structures; parameters are searchable as ``structure__name``."""

    relates: str = "coef"
    """What Q is: "coef" (the weights), "residual", or "pooled" (one weight vector for all tasks)."""
    learned: bool = False
    """Whether Ω is learned; where it is given, one weight step is the whole fit."""
    joint: bool = True
    """Whether weights and Ω minimise one objective F, which then certifies the fit."""
    starts_diagonal: bool = False
    """Whether F's constants are those of the diagonal fixed point, from which the fit then starts."""
    prices_edges: bool = False
    """Whether the parameter ``alpha`` is λ, the price of an edge: paths, limits and stability selection need one."""
    compiled: bool = False
    """Whether compiled rounds know its step: the graphical lasso of :meth:`moment` at :meth:`prices`."""
    shrinkage: float = 0.0
    """ν/r, how far S is shrunk towards its diagonal."""
    correlation: str = "pearson"
    """How the rows of Q are compared: by their products, or by "spearman" or "kendall" ranks."""
    edges: Any = None
    """What is known about the edges of a learned graph."""
    lacks_graph: bool = False
    """Whether the graph over the tasks that it needs was not given."""
    free_units: bool = False
    """Whether F is the same function whatever the units of the targets are, up to a constant."""

    @property
    def needs_variances(self) -> bool:
        """Whether F's constants need noise, signal and sampling variances of the tasks."""
        return self.learned

    def shares_start(self, other: Structure) -> bool:
        """Whether fits of both start from one point with the same constants, where they differ in λ alone."""
        return type(self) is type(other) and (self.starts_diagonal or not self.prices_edges)

    @property
    def strength(self) -> float:
        """η, the weight of the coupling."""
        return 1.0

    def check(self, n_tasks: int) -> None:
        """Raise where the parameters do not fit this many tasks."""
        return

    def floors(self, scale: StructureScale) -> Array:
        """e, the penalty on the diagonal of Ω."""
        return np.zeros(scale.n_tasks)

    def diagonal(self, scale: StructureScale) -> Array:
        """The diagonal of Ω at the diagonal fixed point."""
        return np.asarray(1.0 / (scale.variances + self.floors(scale)))

    @abstractmethod
    def initial(self, scale: StructureScale) -> StructureStep:
        """The first Ω."""

    def moment(self, Q: Array, scale: StructureScale, mean_spread: float = 0.0) -> Moment:
        """S from Q, given as (K, r); ``mean_spread`` is what the uncertainty of a shared mean adds to every entry."""
        return Q @ Q.T / scale.n_rows

    def normalised_rows(self, scale: StructureScale) -> float:
        """How many rows of Q enter with the prior's normaliser: all where Ω is learned, none where it is fixed."""
        return scale.n_rows if self.learned else 0

    @abstractmethod
    def certify(self, S: Moment, step: StructureStep, scale: StructureScale) -> StructureStep:
        """The same Ω, with value and gap at another moment."""

    def update(self, S: Moment, step: StructureStep, scale: StructureScale, tol: float) -> StructureStep:
        """The best Ω for the moment S, to the absolute gap ``tol`` in units of F."""
        return self.certify(S, step, scale)

    def found(self, scale: StructureScale, step: StructureStep, log_determinant: float) -> StructureStep:
        """An Ω that compiled rounds found, with what makes the next update cheaper."""
        return step

    def profile(self) -> Penalty | None:
        """The penalty of the weights that is left with Ω at its best, where that is convex and known."""
        return None

    def edge_scales(self, scale: StructureScale) -> Array:
        """a, what one unit of λ means for each edge; 0 where edges have no price."""
        return np.zeros((scale.n_tasks, scale.n_tasks))

    def prices(self, scale: StructureScale) -> tuple[Array, Array]:
        """What an edge and an entry of the diagonal cost, (K, K) and (K,); infinite for a forbidden edge."""
        return self.edge_scales(scale), self.floors(scale)

    def lambda_max(self, S: Moment, scale: StructureScale) -> float:
        """The least λ at which the diagonal Ω is the best one for the moment S."""
        return lambda_max(S, self.edge_scales(scale))

    def graph(self, step: StructureStep) -> TaskMatrix:
        """The positive definite matrix whose entries off the diagonal are the edges: Ω itself."""
        return step.precision

    def couple(self, step: StructureStep, mean_variance: float = 0.0) -> Coupling:
        """The quadratic form ηΩ (with a shared mean) that the weight step sees."""
        return Coupling.from_precision(step.precision, self.strength, step.covariance, mean_variance)


class Coupled(Structure):
    """A structure whose parameter ``alpha`` is the strength of its coupling."""

    alpha: float

    @property
    def strength(self) -> float:
        return float(self.alpha)

    def check(self, n_tasks: int) -> None:
        check_number(f"{type(self).__name__}: alpha", self.alpha, above=0)
