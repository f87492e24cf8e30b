r"""The interface of a structure, which relates the tasks and may be learned from the rows of Q.

A structure adds to the objective a term over the task precision :math:`\Omega`,

.. math:: \tfrac12 \operatorname{tr}(Q\,\eta\Omega\,Q^\top) + g(\Omega),

where Q is W (r = d rows) or the residuals E (r = n rows). A structure defines what Q is, whether Ω is learned, the
first Ω, the moment S of Q, the best Ω for a moment, the gap of a given Ω, the coupling, and the graph of Ω. Code
outside this package does not depend on the class of a structure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from mssl._typing import Array, Moment, TaskMatrix
from mssl._validation import check_array, check_number, refused
from mssl.model.coupling import Coupling
from mssl.model.objective import lambda_max
from mssl.penalties import Penalty


def numeric(value: Any, name: str) -> Array:
    """Convert a parameter to a new array of numbers. Errors name the parameter."""
    try:
        return np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise refused(name, value, "give numbers") from error


def edge_list(edges: Any, name: str) -> list[Any]:
    """Convert a parameter to a list of edges, which the caller checks. Errors name the parameter."""
    if isinstance(edges, str) or not np.iterable(edges):
        raise refused(name, edges, "give a list of pairs of tasks, such as [(0, 1)]")
    return list(edges)


def symmetric(name: str, value: Any, n_tasks: int, low: float | None = None, also: str = "") -> Array:
    """Convert a parameter to a symmetric (K, K) matrix. Errors name the parameter, and another form of it if any."""
    remedy = f"There are {n_tasks} tasks. {also}".rstrip()
    matrix = np.array(check_array(name, value, (n_tasks, n_tasks), low=low, remedy=remedy))
    if np.abs(matrix - matrix.T).max() > 1e-8 * np.abs(matrix).max():
        raise refused(name, matrix, "it is not symmetric", "If the difference is rounding, give (A + A.T) / 2.")
    return np.asarray((matrix + matrix.T) / 2)


def is_pair(edge: Any) -> bool:
    """Whether an edge is given as two tasks."""
    return isinstance(edge, tuple | list | np.ndarray) and len(edge) == 2


def edge_ends(edge: Any, n_tasks: int, name: str) -> tuple[int, int]:
    """The positions of the two tasks that an edge joins. Errors name the edge."""
    inside = is_pair(edge) and all(isinstance(end, Real) and end in range(n_tasks) for end in edge)
    if not inside or edge[0] == edge[1]:
        numbers = f"two different numbers from 0 to {n_tasks - 1}, one for each task"
        raise refused(name, edge, f"it is out of range: an edge joins {numbers}")
    return int(edge[0]), int(edge[1])


@dataclass(frozen=True, eq=False)
class StructureScale:
    """Constants of a structure. They are set before the first step and stay fixed, so that F does not change.

    Attributes
    ----------
    n_rows : float
        r, the rows of Q: features for p-MSSL, occasions (their total weight) for r-MSSL.
    variances : ndarray of shape (K,)
        v, the mean square of each column of Q at the diagonal fixed point.
    sampling_variances : ndarray of shape (K,)
        Variance of a coefficient of each task by sampling alone; the unit of the variance floor.
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
        """Values that structures compute once from these constants; they are not saved."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "kept"}


@dataclass(frozen=True, eq=False)
class StructureStep:
    """A task precision with its inverse, its value and its gap.

    Attributes
    ----------
    precision : ndarray or csr_array of shape (K, K)
        Ω with exact zeros for pairs without an edge.
    covariance : ndarray or csr_array of shape (K, K), or None
        The inverse of Ω; None if Ω is singular.
    value : float
        The structure's share of F, for the moment with which it was computed.
    gap : float
        Bound of F(Ω) − min F over Ω for this moment; 0 for a fixed structure.
    warm : Any
        State from which the next update starts.
    """

    precision: TaskMatrix
    covariance: TaskMatrix | None
    value: float = 0.0
    gap: float = 0.0
    warm: Any = None


class Structure(BaseEstimator, ABC):
    """Base class of all structures. A search can set their parameters as ``structure__name``."""

    relates: str = "coef"
    """The kind of Q: "coef" (the weights), "residual", or "pooled" (one weight vector for all tasks)."""
    learned: bool = False
    """Whether Ω is learned. If it is given, one weight step is the whole fit."""
    joint: bool = True
    """Whether weights and Ω minimise one objective F. The fit then has a certificate."""
    starts_diagonal: bool = False
    """Whether the diagonal fixed point gives the constants of F and the start of the fit."""
    prices_edges: bool = False
    """Whether the parameter ``alpha`` is λ, the price of an edge. Paths, limits and stability selection need it."""
    normalised: bool = True
    """Whether the term of a learned Ω contains the normaliser of the prior of Q."""
    compiled: bool = False
    """Whether compiled rounds can take its step, the graphical lasso of :meth:`moment` at :meth:`prices`."""
    shrinkage: float = 0.0
    """ν/r, the strength with which S is shrunk towards its diagonal."""
    correlation: str = "pearson"
    """The correlation of the rows of Q: "pearson", or the ranks "spearman" or "kendall"."""
    edges: Any = None
    """Prior knowledge about the edges of a learned graph."""
    lacks_graph: bool = False
    """Whether the structure needs a graph over the tasks and the user gave none."""
    free_units: bool = False
    """Whether F does not depend on the units of the targets, up to a constant."""

    @property
    def needs_variances(self) -> bool:
        """Whether the constants of F depend on the noise, signal and sampling variances of the tasks."""
        return self.learned

    def shares_start(self, other: Structure) -> bool:
        """Whether two structures that differ in λ alone have the same start and the same constants."""
        return type(self) is type(other) and (self.starts_diagonal or not self.prices_edges)

    @property
    def strength(self) -> float:
        """η, the weight of the coupling."""
        return 1.0

    def weight(self, scale: StructureScale) -> float:
        """The constant cη/2 of the prior in F, where c = r + ν."""
        return 0.5 * self.strength * scale.n_rows * (1.0 + self.shrinkage)

    def check(self, n_tasks: int) -> None:
        """Raise an error if the parameters are not valid for this number of tasks."""
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
        """The moment S of Q, which has shape (K, r).

        ``mean_spread`` is the variance of a shared mean, which is added to every entry.
        """
        return Q @ Q.T / scale.n_rows

    @abstractmethod
    def certify(self, S: Moment, step: StructureStep, scale: StructureScale) -> StructureStep:
        """The same Ω, with its value and gap for another moment."""

    def update(self, S: Moment, step: StructureStep, scale: StructureScale, tol: float) -> StructureStep:
        """The best Ω for the moment S, to the absolute gap ``tol`` in units of F."""
        return self.certify(S, step, scale)

    def found(self, scale: StructureScale, step: StructureStep, log_determinant: float) -> StructureStep:
        """An Ω from compiled rounds, with the state from which the next update starts."""
        return step

    def profile(self) -> Penalty | None:
        """The penalty on the weights after minimising over Ω, if it is convex and known; otherwise None."""
        return None

    def edge_scales(self, scale: StructureScale) -> Array:
        """a, the factor of λ in the price of each edge; 0 for structures without prices."""
        return np.zeros((scale.n_tasks, scale.n_tasks))

    def prices(self, scale: StructureScale) -> tuple[Array, Array]:
        """The prices of the edges, (K, K), and of the diagonal, (K,). The price of a forbidden edge is infinite."""
        return self.edge_scales(scale), self.floors(scale)

    def lambda_max(self, S: Moment, scale: StructureScale) -> float:
        """The smallest λ for which the diagonal Ω is optimal at the moment S."""
        return lambda_max(S, self.edge_scales(scale))

    def graph(self, step: StructureStep) -> TaskMatrix:
        """The positive definite matrix whose entries off the diagonal are the edges: Ω itself."""
        return step.precision

    def couple(self, step: StructureStep, mean_variance: float = 0.0) -> Coupling:
        """The quadratic form ηΩ, with a shared mean, as the coupling of the weight step."""
        inverse = None if step.covariance is None else step.covariance / self.strength
        return Coupling(step.precision * self.strength, inverse, mean_variance)


class Coupled(Structure):
    """A structure whose parameter ``alpha`` is the strength of its coupling."""

    alpha: float

    @property
    def strength(self) -> float:
        return float(self.alpha)

    def check(self, n_tasks: int) -> None:
        check_number(f"{type(self).__name__}: alpha", self.alpha, above=0)
