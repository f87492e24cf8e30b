"""What a fit is made of, how an estimator's parameters say so, and what does not go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from scipy import linalg, sparse
from sklearn.base import clone

from mssl._typing import Array, BaseEstimator, Labels, TaskMatrix
from mssl._validation import refused, warn
from mssl.data.layouts import TaskData
from mssl.features.maps import are_scaled
from mssl.graph.tests import Later
from mssl.losses import Loss
from mssl.model.objective import PaperScale
from mssl.model.task_matrix import count_entries
from mssl.penalties import L1, Penalty
from mssl.solvers.alternation import FitResult, Record
from mssl.solvers.fit import (
    Prepared,
    Settings,
    diagonal_lambda_max,
    fit_prepared,
    prepare,
    start_lambda_max,
    without_chance_edges,
)
from mssl.solvers.glm import GLMLoss
from mssl.solvers.quadratic import KeptLoss
from mssl.solvers.residual import check_aligned
from mssl.solvers.weights import CoefficientProblem
from mssl.structures import Structure, StructureStep

E = TypeVar("E", bound=BaseEstimator)


def shallow_copy(part: E) -> E:
    """A copy that shares all attributes; searches make thousands, for which ``copy.copy`` is too slow."""
    other = object.__new__(type(part))
    vars(other).update(vars(part))
    return other


class TaskShape(Protocol):
    """What a specification needs to know about the data: the tasks' names, and how many features and targets."""

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""

    @property
    def n_features(self) -> int:
        """Number of features d."""

    @property
    def tasks(self) -> Labels:
        """Names of the tasks."""

    @property
    def y(self) -> Any:
        """Targets of all rows."""


class FitSpec(NamedTuple):
    """All that decides on a fit besides the data, put together from an estimator's parameters.

    Attributes
    ----------
    structure : Structure
        What relates the tasks.
    penalty : Penalty
        What keeps the weights small or sparse.
    loss : Loss
        The loss of one observation.
    settings : Settings
        Noise, shared mean, scaling, solver and tolerance.
    paper : PaperScale or None
        Factors between this package's units and those of the paper, where the parameters are in the latter.
    screens : bool
        Whether there are edges only where tasks seem related, see :func:`mssl.solvers.fit.without_chance_edges`.
    """

    structure: Structure
    penalty: Penalty
    loss: Loss
    settings: Settings
    paper: PaperScale | None = None
    screens: bool = False

    @property
    def free_units(self) -> bool:
        """Whether F is the same whatever the targets' units are."""
        return self.structure.free_units and isinstance(self.penalty, L1)

    @property
    def ridge_alone(self) -> bool:
        """Whether the penalty is a ridge or none."""
        penalty = self.penalty
        signs = getattr(penalty, "positive", False)
        return bool(penalty.separable and not penalty.thresholds(np.ones(1)).any() and not signs)

    def has_gaps(self, data: TaskData) -> bool:
        """Whether residuals are to be related and some of the targets of an (n, K) table are missing."""
        plain = data.weights is None and isinstance(data.X, np.ndarray)
        return self.structure.relates == "residual" and data.layout != "long" and not data.aligned and plain

    def check(self, data: TaskData, *, gaps: bool = False) -> None:
        """Raise where the parts do not fit each other or the data, in which there may be gaps."""
        self.structure.check(data.n_tasks)
        if self.structure.relates == "residual":
            if not self.loss.quadratic:
                raise refused(
                    "loss",
                    self.loss.name,
                    "relation='residual' relates the errors of least squares",
                    "Use relation='coef', which goes with every loss.",
                )
            if not gaps:
                check_aligned(data)
        self.penalty.check()

    def prepare(self, data: TaskData) -> Prepared:
        """The data, ready for this fit."""
        return prepare(data, self.loss, self.settings, needs_start=self.structure.learned, free_units=self.free_units)

    def user_precision(self, prepared: Prepared, result: FitResult) -> TaskMatrix:
        """Ω of a fit in the units of an estimator's ``precision_``."""
        scale = 1.0 if self.paper is None else self.paper.precision
        return result.structure.precision / scale / prepared.unit**2

    def fit(
        self,
        prepared: Prepared,
        warm: FitResult | None = None,
        monitor: Callable[[Record], bool] | None = None,
    ) -> FitResult:
        """Fit prepared data, from a previous fit where one is given."""
        structure, origin = self.structure, None
        if self.screens:
            structure, origin = without_chance_edges(prepared, structure, self.penalty)
        return fit_prepared(prepared, structure, self.penalty, warm=warm, origin=origin, monitor=monitor)


def settings_of(estimator: Any, **changes: Any) -> Settings:
    """The settings among an estimator's parameters."""
    given = {name: getattr(estimator, name) for name in ("shared_mean", "fit_intercept", "tol", "max_iter")}
    given |= {"noise": estimator._loss().noise_variance, "scale_features": are_scaled(estimator.features)}
    solver = estimator._part("solver", estimator.solver)
    given |= {"solver": solver.name, "n_starts": solver.n_starts, "memory_limit": solver.memory_limit}
    return Settings(**(given | changes))


def warn_if_ordinary(spec: FitSpec, data: TaskData) -> None:
    """Warn where r-MSSL learns the graph only, because the weights are those of ordinary least squares."""
    profits = not spec.ridge_alone or spec.penalty.ridges(np.ones(1)).any()
    if profits or not data.shared or data.n_tasks == 1:
        return
    warn(
        "relation='residual' with one X for all tasks and no penalty on the weights (coef_penalty=0, ridge=0): the "
        "weights are those of ordinary least squares whatever the graph is, so only the graph is learned. Give "
        "coef_penalty > 0 for weights that profit from the graph."
    )


_ACCURACY = 1e-4  # relative distance of the limit from a λ whose graph has an edge; each halving costs one more fit
_NEAR = (1.1, 1.03, 1.01, 1.003, 1.001, 1.0003, 1.0)  # multiples of a λ without edges at which edges are looked for
_ABOVE = (1.3, *_NEAR)  # multiples of the λ of stationarity at which edges are looked for
_HALVINGS = 2.0 ** -np.arange(0.0, 12.0, 0.5)  # multiples of λ_max at the start, where no λ of stationarity is known


def graph_penalty_limit(prepared: Prepared, spec: FitSpec) -> float:
    r"""The λ, in the estimator's units, above which its fits have an empty graph, but for edges that are free.

    The diagonal fixed point is stationary from :math:`\max_{i\ne j}|S_{ij}|/a_{ij}` on
    (:func:`mssl.model.objective.lambda_max`). That is where a graph *may* be empty, not yet where a fit's graph *is*: F
    is not convex in weights and graph together, and a fit that starts a little off the fixed point (a shared mean, an
    ℓ1 penalty, another loss than least squares) can end at a better point with an edge. In the paper's formulation
    there is no closed form at all: λ is the penalty of the diagonal as well, so that the weights from which S comes
    depend on it. In both cases fits find the limit. λ falls from a value without edges until a fit has an edge;
    bisection narrows the interval between the last λ without and the first with an edge; then the search is repeated
    just above the result, since a fit that stops within its tolerance may keep a tiny edge.

    Parameters
    ----------
    prepared, spec
        The data, and what the estimator's parameters stand for: a learned sparse precision.
    """
    structure, penalty = spec.structure, spec.penalty
    if not structure.prices_edges:
        raise refused("structure", structure, "limits are for a learned sparse precision")
    scale = 1.0 if spec.paper is None else spec.paper.graph_penalty
    if structure.starts_diagonal:
        stationary = diagonal_lambda_max(prepared, structure, penalty)
        ladder = [multiple * stationary for multiple in _ABOVE]
    else:
        ladder = list(start_lambda_max(prepared, structure, penalty) * _HALVINGS)
    if ladder[0] == 0:
        return 0.0
    has_edges = _edge_finder(prepared, structure, penalty)
    limit = border(has_edges, ladder)
    if not structure.starts_diagonal and limit == ladder[-1]:
        return ladder[0] / scale  # no edge anywhere: weights that collapse
    limit = border(has_edges, [multiple * limit for multiple in _NEAR])
    return limit / scale


def coef_penalty_limit(prepared: Prepared, spec: FitSpec) -> float:
    """The γ, in the estimator's units, from which on all weights are zero."""
    limit = prepared.gamma_max(spec.structure)
    return limit if spec.paper is None else limit / spec.paper.coef_penalty


def border(has_edges: Callable[[float], bool], ladder: Sequence[float]) -> float:
    """The λ down to which graphs are empty: the last one of a falling ladder, or just above the first with an edge.

    Parameters
    ----------
    has_edges : callable
        Whether the graph at λ has an edge.
    ladder : sequence of float
        Falling λ; where there is an edge at the first one already, it is doubled until there is none.
    """
    above, below = ladder[0], 0.0
    while np.isfinite(above) and has_edges(above):
        above, below = 2.0 * above, above
    for value in ladder[1:] if below == 0.0 else ():
        if has_edges(value):
            below = value
            break
        above = value
    while below > 0.0 and above > (1.0 + _ACCURACY) * below:
        middle = float(np.sqrt(above * below))
        above, below = (above, middle) if has_edges(middle) else (middle, below)
    return float(above)


def _edge_finder(prepared: Prepared, structure: Structure, penalty: Penalty) -> Callable[[float], bool]:
    """Whether a fit with a given λ has an edge among those that λ prices."""

    @cache
    def has_edges(value: float) -> bool:
        # The fits share nothing, so that each equals the estimator's fit to the last bit.
        result = fit_prepared(prepared, clone(structure).set_params(alpha=value), penalty)
        graph = structure.graph(result.structure)
        if sparse.issparse(graph):
            return count_entries(graph) > result.scale.n_tasks
        priced = np.triu(structure.edge_scales(result.scale) > 0, 1)
        return bool(np.any(graph[priced] != 0))

    return has_edges


LARGEST = 1500  # weights: their covariance costs half a second


def errors_of(spec: FitSpec, prepared: Prepared, result: FitResult) -> LaterErrors | None:
    r"""Standard errors (K, d), degrees of freedom (K,) and log-likelihood of a fit, computed when they are asked for.

    Given the graph, the noise and the ridge, the weights have a Gaussian posterior (for other losses than least squares
    to second order at the fit) with the precision

    .. math:: H = \operatorname{diag}_k(s_k G_k + \rho_k I) + C \otimes I_d,

    the curvature of the objective: Grams :math:`G_k`, noise precisions :math:`s_k`, ridges :math:`\rho_k` and the
    coupling C. The square roots of the diagonal of :math:`H^{-1}` are the standard errors, :math:`\operatorname{tr}(s_k
    G_k (H^{-1})_{kk})` are the degrees of freedom that task k uses. That the graph was estimated too is not in them.

    None where the model has none: with an ℓ1 penalty, penalties that tie tasks together, or related residuals.
    """
    if spec.structure.relates != "coef" or not spec.ridge_alone or result.W.size > LARGEST:
        return None
    problem = prepared.problem(spec.penalty)
    assert isinstance(problem, CoefficientProblem)
    loss = problem.loss
    kept, scale = prepared.kept, 1.0 / prepared.noise
    if isinstance(loss, GLMLoss):
        kept, scale = KeptLoss(loss.model(loss.evaluate(result.W), observed=False)), np.ones(len(scale))
    rows = None if prepared.data is None else float(prepared.data.weight_sums().sum())
    if prepared.rows is not None:
        rows = float(prepared.rows.weights.sum())
    return LaterErrors(
        kept,
        scale,
        (spec.structure, result.structure, prepared.mean_of(spec.structure)),
        problem.ridge,
        prepared.unit / prepared.design.scales,
        {"log_likelihood": log_likelihood(spec, prepared, result), "rows": rows},
    )


@dataclass(eq=False)
class LaterErrors(Later[dict[str, Any]]):
    """Standard errors and degrees of freedom, from the curvature of the loss at the fit.

    Attributes
    ----------
    loss : KeptLoss
        The loss to second order.
    scale : ndarray of shape (K,)
        What the loss of each task is multiplied by.
    prior : tuple of (Structure, StructureStep, float)
        What relates the tasks, its part of the fit, and the variance of the mean: they give the tasks' coupling.
    ridge : ndarray of shape (K,) or None
        The ridges of the weights.
    units : ndarray of shape (d,)
        What weights are multiplied by, to be in the user's units.
    others : dict
        What is known beside them.
    """

    loss: KeptLoss
    scale: Array
    prior: tuple[Structure, StructureStep, float]
    ridge: Array | None
    units: Array
    others: dict[str, Any]

    def _compute(self) -> dict[str, Any]:
        loss = self.loss.read()
        K, d = loss.n_tasks, loss.n_features
        grams = np.stack([loss.product(np.tile(row, (K, 1))) for row in np.eye(d)], axis=1)
        grams *= self.scale[:, None, None]
        structure, step, mean_variance = self.prior
        H = np.kron(replace(structure.couple(step, mean_variance), ridge=self.ridge).dense(), np.eye(d))
        for k in range(K):
            H[k * d : (k + 1) * d, k * d : (k + 1) * d] += grams[k]
        try:
            inverse = linalg.cho_solve(linalg.cho_factor(H), np.eye(K * d))
        except linalg.LinAlgError:
            return dict.fromkeys(["std", "dof", *self.others])
        own = [inverse[k * d : (k + 1) * d, k * d : (k + 1) * d] for k in range(K)]
        dof = [np.sum(grams[k] * own[k]) for k in range(K)]
        std = np.sqrt(np.diag(inverse).reshape(K, d)) * self.units
        return {"std": std, "dof": np.asarray(dof), **self.others}


def log_likelihood(spec: FitSpec, prepared: Prepared, result: FitResult) -> float | None:
    """Of the training rows, for the Gaussian and the Bernoulli loss."""
    if spec.loss.labels and prepared.rows is not None:
        rows = prepared.rows
        eta = rows.design.predictor(result.W) + rows.design.per_task(result.intercepts)
        return -float(np.sum(rows.weights * rows.loss.value(rows.y, eta)))
    if not spec.loss.quadratic or prepared.data is None:
        return None
    squares: Array = 2 * prepared.base.task_values(result.W)
    n = prepared.data.weight_sums()
    variance = prepared.unit**2 * prepared.noise
    return -0.5 * float(np.sum(n * np.log(2 * np.pi * variance) + squares / prepared.noise))
