"""Specifications of fits: their parts, how an estimator's parameters define them, and which parts are incompatible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from scipy import linalg, sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from mssl._typing import Array, BaseEstimator, Labels, TaskMatrix
from mssl._validation import refused, warn
from mssl.data.layouts import TaskData
from mssl.features.maps import are_scaled
from mssl.graph.tests import Later
from mssl.losses import Loss
from mssl.model.objective import PaperScale
from mssl.model.task_matrix import DENSE_UP_TO, count_entries
from mssl.penalties import L1, Penalty
from mssl.solvers.alternation import FitResult, Record
from mssl.solvers.base import Status
from mssl.solvers.fit import (
    Prepared,
    Settings,
    diagonal_lambda_max,
    fit_prepared,
    prepare,
    without_chance_edges,
)
from mssl.solvers.glm import GLMLoss
from mssl.solvers.quadratic import KeptLoss
from mssl.solvers.residual import check_aligned
from mssl.solvers.weights import CoefficientProblem
from mssl.structures import Structure, StructureStep

E = TypeVar("E", bound=BaseEstimator)


def shallow_copy(part: E) -> E:
    """A copy that shares all attributes; searches make thousands of copies, and ``copy.copy`` is too slow for them."""
    other = object.__new__(type(part))
    vars(other).update(vars(part))
    return other


class TaskShape(Protocol):
    """The properties of data that a specification needs: names of tasks, and numbers of features and targets."""

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
    """A complete specification of a fit without its data, made from an estimator's parameters.

    Attributes
    ----------
    structure : Structure
        The structure that relates the tasks.
    penalty : Penalty
        The penalty that keeps weights small or sparse.
    loss : Loss
        The loss of one observation.
    settings : Settings
        Noise, shared mean, scaling, solver and tolerance.
    paper : PaperScale or None
        Factors between this package's units and those of the paper, if the parameters are in the paper's units.
    screens : bool
        Whether a test may remove edges that chance explains, see :func:`mssl.solvers.fit.without_chance_edges`.
    """

    structure: Structure
    penalty: Penalty
    loss: Loss
    settings: Settings
    paper: PaperScale | None = None
    screens: bool = False

    @property
    def free_units(self) -> bool:
        """Whether the units of the targets do not change F."""
        return self.structure.free_units and isinstance(self.penalty, L1)

    @property
    def ridge_alone(self) -> bool:
        """Whether the penalty is a ridge or none."""
        penalty = self.penalty
        return bool(penalty.separable and not penalty.thresholds(np.ones(1)).any() and not penalty.positive)

    def has_gaps(self, data: TaskData) -> bool:
        """Whether the graph relates residuals and some targets of an (n, K) table are missing."""
        plain = data.weights is None and isinstance(data.X, np.ndarray)
        return self.structure.relates == "residual" and data.layout != "long" and not data.aligned and plain

    def check(self, data: TaskData, *, gaps: bool = False) -> None:
        """Raise if the parts do not fit each other or the data; with ``gaps``, targets may be missing."""
        self.structure.check(data.n_tasks)
        if self.structure.relates == "residual":
            if not self.loss.quadratic:
                allowed = "relation='residual' relates the errors of least squares"
                raise refused("loss", self.loss.name, allowed, "Use relation='coef', which allows every loss.")
            if not gaps:
                check_aligned(data)
        self.penalty.check()

    def prepare(self, data: TaskData) -> Prepared:
        """Prepare data for this fit."""
        return prepare(data, self.loss, self.settings, needs_start=self.structure.learned, free_units=self.free_units)

    def user_precision(self, prepared: Prepared, result: FitResult) -> TaskMatrix:
        """The matrix Ω of a fit in the units of an estimator's ``precision_``."""
        scale = 1.0 if self.paper is None else self.paper.precision
        return result.structure.precision / scale / prepared.unit**2

    def fit(
        self, prepared: Prepared, warm: FitResult | None = None, monitor: Callable[[Record], bool] | None = None
    ) -> FitResult:
        """Fit prepared data, starting from a previous fit if one is given."""
        structure, origin = self.structure, None
        if self.screens:
            structure, origin = without_chance_edges(prepared, structure, self.penalty)
        return fit_prepared(prepared, structure, self.penalty, warm=warm, origin=origin, monitor=monitor)

    def warn_if_ordinary(self, data: TaskData) -> None:
        """Warn if a graph of residuals is all that is learned: the weights are those of ordinary least squares."""
        profits = not self.ridge_alone or self.penalty.ridges(np.ones(1)).any()
        if data.shared and data.n_tasks > 1 and not profits:
            warn(
                "relation='residual' with one X for all tasks and no penalty on the weights (coef_penalty=0, ridge=0): "
                "the weights are those of ordinary least squares for every graph, so only the graph is learned. Give "
                "coef_penalty > 0 for weights that profit from the graph."
            )

    def warn_of_end(self, result: FitResult) -> None:
        """Warn that a fit ended before its certificate was within the tolerance, and name remedies."""
        settings, features = self.settings, result.W.shape[1]
        if result.status is Status.UNSETTLED:
            remedy = (
                "the known targets do not determine the fit: raise coef_penalty, ridge or graph_penalty, leave out "
                f"tasks with few targets, or raise tol (now {settings.tol:g})"
            )
        elif self.structure.relates == "residual" and features >= result.scale.n_rows:
            remedy = (
                f"{features} features fit {result.scale.n_rows:g} rows nearly exactly, so there are hardly any "
                "residuals from which the graph could be learned: raise coef_penalty or ridge, give the loss a "
                "noise_variance if its estimate (noise_variance_) is far too small, or else raise max_iter (now "
                f"{settings.max_iter})"
            )
        elif result.status is Status.MAX_ITER:
            remedy = f"raise max_iter (now {settings.max_iter}) or accept the fit by raising tol (now {settings.tol:g})"
        else:
            remedy = (
                f"raise tol (now {settings.tol:g}), or rescale features, and targets of tasks, that differ by many "
                "orders of magnitude"
            )
        warn(f"The fit {result.message}; {remedy}.", ConvergenceWarning)

    def graph_penalty_limit(self, prepared: Prepared) -> float:
        r"""The λ, in the estimator's units, above which fits have an empty graph, except for edges without a penalty.

        The diagonal fixed point is stationary for λ of at least :math:`\max_{i\ne j}|S_{ij}|/a_{ij}`
        (:func:`mssl.model.objective.lambda_max`). The graph of a fit *may* be empty there, but need not be: F is not
        convex in weights and graph together. A fit that starts near the fixed point (because of a shared mean, an ℓ1
        penalty, or another loss than least squares) can end at a better point with an edge. The paper's formulation has
        no closed form: λ also penalises the diagonal, so the weights that determine S depend on λ.

        In both cases a search over fits finds the limit. It lowers λ from a value without edges until a fit has an
        edge. Bisection then narrows the interval between the last λ without an edge and the first λ with one. Finally
        the search is repeated just above the result, because a fit that stops within its tolerance may keep a tiny
        edge.

        Parameters
        ----------
        prepared : Prepared
            The data.
        """
        structure, penalty = self.structure, self.penalty
        if not structure.prices_edges:
            raise refused("structure", structure, "limits are for a learned sparse precision")
        scale = 1.0 if self.paper is None else self.paper.graph_penalty
        if structure.starts_diagonal:
            stationary = diagonal_lambda_max(prepared, structure, penalty)
            ladder = [multiple * stationary for multiple in _ABOVE]
        else:
            ladder = list(diagonal_lambda_max(prepared, structure, penalty, accurate=False) * _HALVINGS)
        if ladder[0] == 0:
            return 0.0
        has_edges = _edge_finder(prepared, structure, penalty)
        limit = border(has_edges, ladder)
        if not structure.starts_diagonal and limit == ladder[-1]:
            return ladder[0] / scale  # No λ gives an edge, because the weights collapse.
        limit = border(has_edges, [multiple * limit for multiple in _NEAR])
        return limit / scale

    def coef_penalty_limit(self, prepared: Prepared) -> float:
        """The smallest γ, in the estimator's units, for which all weights are zero."""
        limit = prepared.gamma_max(self.structure)
        return limit if self.paper is None else limit / self.paper.coef_penalty

    def errors(self, prepared: Prepared, result: FitResult) -> LaterErrors | None:
        r"""Standard errors (K, d) and degrees of freedom (K,), computed at their first use, and the log-likelihood.

        The log-likelihood is that of the training rows, for the Gaussian and the Bernoulli loss.

        Given the graph, the noise and the ridge, the weights have a Gaussian posterior (for losses other than least
        squares a second-order approximation at the fit) with the precision

        .. math:: H = \operatorname{diag}_k(s_k G_k + \rho_k I) + C \otimes I_d,

        which is the curvature of the objective, with Grams :math:`G_k`, noise precisions :math:`s_k`, ridges
        :math:`\rho_k` and the coupling C. The standard errors are the square roots of the diagonal of :math:`H^{-1}`.
        Task k uses :math:`\operatorname{tr}(s_k G_k (H^{-1})_{kk})` degrees of freedom. These numbers do not include
        the uncertainty of the estimated graph.

        The result is None if the model has no standard errors: with an ℓ1 penalty, penalties that couple tasks, or
        related residuals.
        """
        if self.structure.relates != "coef" or not self.ridge_alone or result.W.size > DENSE_UP_TO:
            return None
        problem = prepared.problem(self.penalty)
        assert isinstance(problem, CoefficientProblem)
        loss = problem.loss
        kept, scale = prepared.kept, 1.0 / prepared.noise
        if isinstance(loss, GLMLoss):
            kept, scale = KeptLoss(loss.model(loss.evaluate(result.W), observed=False)), np.ones(len(scale))
        others: dict[str, float | None] = {"log_likelihood": None, "rows": None}
        if prepared.rows is not None:
            given = prepared.rows
            others["rows"] = float(given.weights.sum())
            if self.loss.labels:
                eta = given.design.predictor(result.W) + given.design.per_task(result.intercepts)
                others["log_likelihood"] = -float(np.sum(given.weights * given.loss.value(given.y, eta)))
        elif prepared.data is not None:
            n, variance = prepared.data.weight_sums(), prepared.unit**2 * prepared.noise
            others["rows"] = float(n.sum())
            if self.loss.quadratic:
                squares: Array = 2 * prepared.base.task_values(result.W) / prepared.noise
                others["log_likelihood"] = -0.5 * float(np.sum(n * np.log(2 * np.pi * variance) + squares))
        prior = self.structure, result.structure, prepared.mean_of(self.structure)
        return LaterErrors(kept, scale, prior, problem.ridge, prepared.unit / prepared.design.scales, others)


def settings_of(estimator: Any, loss: Loss, **changes: Any) -> Settings:
    """Collect the settings from an estimator's parameters and from its loss."""
    given = {name: getattr(estimator, name) for name in ("shared_mean", "fit_intercept", "tol", "max_iter")}
    given |= {"noise": loss.noise_variance, "scale_features": are_scaled(estimator.features)}
    solver = estimator._part("solver", estimator.solver)
    given |= {"solver": solver.name, "n_starts": solver.n_starts, "memory_limit": solver.memory_limit}
    return Settings(**(given | changes))


# Relative distance between the limit and a λ whose graph has an edge. Halving the distance costs one more fit.
_ACCURACY = 1e-4
# The search for edges near the limit uses these multiples of a λ without edges. Fits can keep tiny edges just above it.
_NEAR = (1.1, 1.03, 1.01, 1.003, 1.001, 1.0003, 1.0)
_ABOVE = (1.3, *_NEAR)  # The search starts with these multiples of the λ at which the empty graph is stationary.
# If no such λ is known, the search starts with these multiples of λ_max at the starting weights.
_HALVINGS = 2.0 ** -np.arange(0.0, 12.0, 0.5)


def border(has_edges: Callable[[float], bool], ladder: Sequence[float]) -> float:
    """The smallest λ with an empty graph, to within the accuracy of the search.

    If no λ of a falling ladder gives an edge, the result is the last one.

    Parameters
    ----------
    has_edges : callable
        Function of λ that returns whether the graph has an edge.
    ladder : sequence of float
        Falling λ. If the graph already has an edge at the first λ, this λ is doubled until the graph is empty.
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
    """Make a function of λ that returns whether the fit has an edge among those that λ penalises."""

    @cache
    def has_edges(value: float) -> bool:
        # The fits share no state, so each one equals the estimator's fit to the last bit.
        result = fit_prepared(prepared, clone(structure).set_params(alpha=value), penalty)
        graph = structure.graph(result.structure)
        if sparse.issparse(graph):
            return count_entries(graph) > result.scale.n_tasks
        priced = np.triu(structure.edge_scales(result.scale) > 0, 1)
        return bool(np.any(graph[priced] != 0))

    return has_edges


@dataclass(eq=False)
class LaterErrors(Later[dict[str, Any]]):
    """Standard errors and degrees of freedom, from the curvature of the loss at the fit.

    Attributes
    ----------
    loss : KeptLoss
        The loss to second order.
    scale : ndarray of shape (K,)
        Factor of each task's loss.
    prior : tuple of (Structure, StructureStep, float)
        The structure, its part of the fit, and the variance of the mean, which together give the tasks' coupling.
    ridge : ndarray of shape (K,) or None
        The ridges of the weights.
    units : ndarray of shape (d,)
        Factors that turn weights into the user's units.
    others : dict
        Further numbers of the fit, such as its log-likelihood.
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
        coupling = replace(structure.couple(step, mean_variance), ridge=self.ridge).dense()
        H = np.kron(coupling, np.eye(d)) + linalg.block_diag(*grams)
        try:
            inverse = linalg.cho_solve(linalg.cho_factor(H), np.eye(K * d))
        except linalg.LinAlgError:
            return dict.fromkeys(["std", "dof", *self.others])
        dof = np.einsum("kij,kikj->k", grams, inverse.reshape(K, d, K, d))
        std = np.sqrt(np.diag(inverse).reshape(K, d)) * self.units
        return {"std": std, "dof": dof, **self.others}
