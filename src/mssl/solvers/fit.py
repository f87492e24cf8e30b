r"""The way from task data to a fit: prepare once, then fit for any structure and penalty.

1. *Prepare* (once per data set): centre and scale the features, form Grams if they are efficient, and estimate the
   noise :math:`\sigma_k^2`, the sampling variance of a coefficient and the variance :math:`\tau^2` of a shared mean.
   The estimates use single-task spectra.
2. *Start* (once per structure and penalty): the diagonal fixed point, which freezes the constants v and e of F.
3. *Alternate* until the joint certificate is within the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from mssl._typing import Array, Mask
from mssl._validation import check_array, check_number, check_whole_number, finite, refused
from mssl.data.design import Design
from mssl.data.inputs import check_sizes
from mssl.data.layouts import TaskData, check_target_sizes
from mssl.exceptions import ParameterError
from mssl.kernels.threads import threads_for
from mssl.losses import Gaussian, Loss
from mssl.model.task_matrix import diagonal_matrix
from mssl.penalties import L1, Penalty
from mssl.solvers.alternation import Alternation, FitResult, Record
from mssl.solvers.base import MOST_STEPS, Status
from mssl.solvers.glm import GLMLoss, GLMRows
from mssl.solvers.quadratic import KeptLoss, WeightProblem, make_quadratic, penalty_parts
from mssl.solvers.residual import ResidualProblem, make_residual_problem
from mssl.solvers.start import SingleFits, diagonal_start, mean_variance, ridge_fixed_point, single_fits
from mssl.solvers.weights import CoefficientProblem
from mssl.structures.base import Structure, StructureScale, StructureStep
from mssl.structures.fixed import Independent

_FOURTH_POWERS = (1e-76, 1e76)  # range of unscaled features, whose fourth powers doubles can represent
# Smallest factor of a penalty, which features get whose factor is 0. It leaves their weights practically free.
_FREE = 1e-4
_FORBIDDING = 1e6  # a λ at which every graph is empty: on the correlation scale 1 is enough
# Least number of standard deviations by which the correlations of the tasks must exceed chance. A smaller number keeps
# edges between unrelated tasks; with 3, about one set of unrelated tasks in several hundred keeps them. Groups and
# factors that help to predict give tens and hundreds.
_RELATED = 3.0


@dataclass(frozen=True)
class Settings:
    """The settings of a fit besides data, loss, structure and penalty; the estimators document their meaning."""

    shared_mean: Any = False
    noise: Any = "auto"
    scale_features: bool = True
    penalty_factor: tuple[float, ...] = ()
    fit_intercept: bool = True
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 200
    max_inner: int = 2000
    memory_limit: int | None = None
    residual_loss: float = 0.0
    n_starts: int = 1

    def check(self, n_tasks: int) -> None:
        """Raise an error if a setting is out of range."""
        check_number("tol", self.tol, above=0, remedy="The default is 1e-6.")
        check_whole_number("max_iter", self.max_iter, low=1)
        check_whole_number("n_starts", self.n_starts, low=1)
        if self.memory_limit is not None:
            check_whole_number("memory_limit", self.memory_limit, low=1, also="None", remedy="It is in bytes.")
        mean = self.shared_mean
        is_auto = isinstance(mean, str) and mean == "auto"
        if not is_auto and (not finite(mean) or mean < 0):
            raise refused("shared_mean", mean, "allowed are 'auto', True, False, or a variance ≥ 0")
        if not isinstance(self.noise, str) or self.noise != "auto":
            remedy = "Give one variance for all tasks, or one per task."
            check_array("noise_variance", self.noise, (), (n_tasks,), above=0, also="'auto'", remedy=remedy)


class Gaps(NamedTuple):
    """Missing targets, which are filled with their expected values.

    Attributes
    ----------
    missing : ndarray of bool of shape (K, n)
        True for targets that are filled.
    root : ndarray of shape (K, K)
        Square root of the covariance of the missing targets, summed over occasions.
    """

    missing: Mask
    root: Array


@dataclass(frozen=True, eq=False)
class Prepared(SingleFits):
    """The prepared data: all quantities that depend on neither structure nor penalty.

    Attributes
    ----------
    mean_variance : float
        τ², 0 without a shared mean.
    rows : GLMRows or None
        The data themselves, for losses other than least squares.
    unit : float
        The number by which the targets were divided.
    gaps : Gaps or None
        The missing targets, if residuals are related across tasks.
    """

    mean_variance: float
    settings: Settings
    design: Design
    data: TaskData | None
    rows: GLMRows | None
    unit: float = 1.0
    gaps: Gaps | None = None

    def problem(self, penalty: Penalty, relates: str = "coef") -> WeightProblem:
        """The weight step's problem for a penalty and a structure on the coefficients or the residuals."""
        s = 1.0 / self.noise
        parts = penalty_parts(penalty, s, self.base.diagonal, pooled=relates == "pooled")
        if relates != "residual":
            loss = self.base if (s == 1.0).all() else self.base.scaled(s)
            source = loss if self.rows is None else GLMLoss(self.rows, s, loss)
            return CoefficientProblem(*parts, source=source, solver=self.settings.solver)
        if self.data is None:
            raise ParameterError(
                "relation is 'residual' and the data are Grams; residuals need the rows of the data. Fit an estimator."
            )
        extra, intercept = self.settings.residual_loss, self.settings.fit_intercept
        unknown = None if self.gaps is None else self.gaps.root
        return make_residual_problem(self.data, self.design, parts, extra=extra, intercept=intercept, unknown=unknown)

    @cached_property
    def kept(self) -> KeptLoss:
        """The part of the loss that a fit keeps."""
        return KeptLoss(self.base)

    def user_weights(self, result: FitResult) -> tuple[Array, Array, Array]:
        """Weights, intercepts and mean weights of a fit, in the user's units."""
        W, intercepts, mean = (self.unit * part for part in (result.W, result.intercepts, result.mean))
        return *self.design.to_user(W, intercepts), mean / self.design.scales

    def mean_of(self, structure: Structure) -> float:
        """τ² for a structure; it is 0 for residuals, which have no shared mean."""
        return 0.0 if structure.relates == "residual" else self.mean_variance

    def gamma_max(self, structure: Structure | None = None) -> float:
        r"""The smallest ℓ1 penalty γ at which all weights vanish for every Ω. For residuals, Ω is taken to be diagonal.

        It is the largest :math:`|\nabla_{jk}| / \sqrt{s_k}`, with the gradient of the loss at W = 0 and the best
        intercepts.
        """
        s = 1.0 / self.noise
        if structure is not None and structure.relates == "residual":
            problem = self.problem(L1(1.0), "residual")
            assert isinstance(problem, ResidualProblem)
            v = np.sum(problem.Y**2, axis=1) / problem.weight
            diagonal = structure.diagonal(StructureScale(problem.weight, np.where(v > 0, v, np.inf), self.sampling))
            # A task without variation has zero weights at any γ.
            gradient = (structure.strength * diagonal + problem.extra)[:, None] * problem.linear
        else:
            loss = self.base.scaled(s) if self.rows is None else GLMLoss(self.rows, s)
            gradient = loss.at_zero()[0]
        return float(np.max(np.abs(gradient) / np.sqrt(s)[:, None], initial=0.0))


def prepare(
    data: TaskData, loss: Loss, settings: Settings, *, needs_start: bool = True, free_units: bool = False
) -> Prepared:
    """Centre and scale the data, form Grams and estimate the quantities that the start needs.

    If ``free_units`` is True, F does not depend on the units of the targets. The units are then chosen so that squares
    of very large or small targets neither overflow nor underflow.
    """
    settings.check(data.n_tasks)
    design, K, rows, unit = build_design(data, settings), data.n_tasks, None, 1.0
    given = None if isinstance(settings.noise, str) else np.broadcast_to(np.asarray(settings.noise, float), (K,))
    intercept, limit = settings.fit_intercept, settings.memory_limit
    if isinstance(loss, Gaussian):
        if not (free_units and given is None):
            check_target_sizes(data, free_units=False)
        else:
            # The unit is a power of two near the typical distance of the targets from the first target of their task,
            # or from 0 without an intercept.
            spread = np.abs(data.y - np.repeat(data.y[data.offsets[:-1]], data.n_rows) if intercept else data.y)
            largest = float(spread.max()) or 1.0
            typical = largest * float(np.sqrt(np.mean((spread / largest) ** 2))) or 1.0
            unit = float(2.0 ** np.round(np.log2(typical)))
        if unit != 1.0:
            data = replace(data, y=data.y / unit)
            if not isinstance(settings.shared_mean, str | bool | np.bool_):
                settings = replace(settings, shared_mean=float(settings.shared_mean) / unit**2)
        base = make_quadratic(design, data.row_weights, data.y, intercept=intercept, memory_limit=limit)
    else:
        rows = GLMRows.build(data, design, loss, intercept=intercept, memory_limit=limit)
        given = np.ones(K) if given is None and not loss.has_dispersion else given
    if given is None or needs_start or settings.shared_mean:
        fits = single_fits(base if rows is None else rows, data.weight_sums() - float(intercept), given)
    else:
        base = base if rows is None else rows.null_quadratic()
        fits = SingleFits(base, None, given, np.ones(K), np.ones(K), None)
    tau = mean_variance(fits.base, fits.noise, settings.shared_mean)
    return Prepared(**vars(fits), mean_variance=tau, settings=settings, design=design, data=data, rows=rows, unit=unit)


def build_design(data: TaskData, settings: Settings) -> Design:
    """The features of all tasks, centred and scaled as the settings say.

    Curves follow the linear features, and their penalty factor is 1.
    """
    bounds, centre, scale = None if data.shared else data.offsets, settings.fit_intercept, settings.scale_features
    design = Design.build(data.X, bounds, data.n_tasks, data.weights, centre=centre, scale=scale)
    if not scale:
        problem = "Feature {} varies by up to {:.2g} and is not scaled (features=Linear(scale=False))"
        remedy = "Use features='linear', or give the feature in other units and adapt the penalties."
        check_sizes(design.stored.largest(), _FOURTH_POWERS, problem, remedy)
    given = settings.penalty_factor
    if not given:
        return design
    check_array("penalty_factor", given, (None,), low=0)
    if len(given) > data.n_features:
        raise refused("penalty_factor", f"{len(given)} numbers", f"give at most {data.n_features}, one per feature")
    factors = np.ones(data.n_features)
    factors[: len(given)] = np.maximum(given, _FREE)
    return design.dearer(factors)


def fit_prepared(
    prepared: Prepared,
    structure: Structure,
    penalty: Penalty,
    *,
    problem: WeightProblem | None = None,
    warm: FitResult | None = None,
    origin: tuple[StructureScale, Array] | None = None,
    monitor: Callable[[Record], bool] | None = None,
) -> FitResult:
    """Fit one structure and penalty, starting at a previous fit (``warm``) or at the diagonal fixed point.

    Fits that differ in λ alone can share their ``problem`` and their ``origin``, which is the result of :func:`start`
    and does not depend on λ.
    """
    penalty.check()
    structure.check(len(prepared.noise))
    problem = prepared.problem(penalty, structure.relates) if problem is None else problem
    settings, tau = prepared.settings, prepared.mean_of(structure)
    profile = structure.profile() if tau == 0 else None
    if profile is not None and isinstance(problem, CoefficientProblem) and not problem.penalised:
        # This penalty contains the minimum over Ω: one weight step gives the weights, and Ω follows from them.
        problem = replace(problem, penalty=profile)
        result = fit_prepared(prepared, Independent(0.0), penalty, problem=problem, warm=warm, monitor=monitor)
        moment = structure.moment(result.W, result.scale)
        return replace(result, structure=structure.update(moment, structure.initial(result.scale), result.scale, 0.0))
    with threads_for(max(prepared.base.n_features, prepared.base.n_tasks)):
        scale, W = start(prepared, structure, problem) if origin is None else origin
        step = structure.initial(scale)
        warm = None if warm is None or warm.W.shape != W.shape else warm
        if warm is not None:
            W, step = warm.W, warm.structure if structure.learned else step
        alternation = Alternation(
            problem,
            structure,
            scale,
            mean_variance=tau,
            tol=settings.tol,
            max_iter=settings.max_iter,
            max_inner=settings.max_inner,
            monitor=monitor,
        )
        with np.errstate(over="ignore", invalid="ignore"):  # an F that is not finite ends the rounds with a status
            results = [alternation.fit(W, step, ready=warm is not None or bool(W.any()))]
            for k in range(settings.n_starts - 1 if structure.learned and structure.joint else 0):
                # The first further start has a common precision for all tasks, the others have smaller precisions.
                diagonal = step.precision.diagonal()
                other = np.full(len(diagonal), np.exp(np.mean(np.log(diagonal)))) if k == 0 else 0.1**k * diagonal
                results.append(alternation.fit(W, StructureStep(diagonal_matrix(other), diagonal_matrix(1 / other))))
        result = min(results, key=lambda fit: fit.objective if np.isfinite(fit.objective) else np.inf)
    if result.status is Status.CONVERGED and not problem.certifies(structure.couple(result.structure)):
        return replace(result, status=Status.STATIONARY)
    return result


def start(prepared: Prepared, structure: Structure, problem: WeightProblem) -> tuple[StructureScale, Array]:
    """The constants of F, and the weights from which the alternation starts.

    If the structure's ``starts_diagonal`` is True, both come from the diagonal fixed point: K separate problems whose
    precisions agree with their weights.
    """
    K, d = prepared.base.linear.shape
    W, tau, max_inner = np.zeros((K, d)), prepared.mean_of(structure), prepared.settings.max_inner
    n_rows = problem.weight if isinstance(problem, ResidualProblem) else d
    scale = StructureScale(n_rows, np.ones(K), prepared.sampling, float(np.exp(np.mean(np.log(prepared.noise)))))
    if not structure.starts_diagonal:
        return scale, W
    if prepared.near is not None:
        W = prepared.near
    lower = np.zeros(K)
    if structure.relates == "residual":
        scale = replace(scale, variances=prepared.noise)
        lower = structure.floors(scale)
    else:
        floors = structure.floors(scale)
        v = prepared.signal + floors
        if prepared.spectra is not None:
            v = ridge_fixed_point(prepared.spectra, prepared.noise, floors, structure.strength, v)
        scale = replace(scale, variances=v)
        if tau == 0 and prepared.rows is None and not problem.penalised and problem.ridge is None:
            return scale, W  # the spectra have solved this least-squares problem with no penalty but the coupling
    if prepared.rows is not None:
        max_inner = min(max_inner, MOST_STEPS)
    return diagonal_start(problem, structure, scale, W, mean_variance=tau, lower=lower, max_inner=max_inner)


def diagonal_lambda_max(prepared: Prepared, structure: Structure, penalty: Penalty, *, accurate: bool = True) -> float:
    """λ_max, the smallest λ at which the diagonal fixed point is stationary. A fit with an empty graph gives it.

    If ``accurate`` is False, it is an estimate by one weight step, with the best weights for the first Ω.
    """
    problem = prepared.problem(penalty, structure.relates)
    if accurate:
        empty = clone(structure).set_params(alpha=_FORBIDDING)
        tight = replace(prepared, settings=replace(prepared.settings, tol=1e-9))
        result = fit_prepared(tight, empty, penalty, problem=problem)
        scale, W, step = result.scale, result.W, result.structure
    else:
        scale, W, step = _first_weights(prepared, structure, problem)
    coupling, Q = structure.couple(step, prepared.mean_of(structure)), problem.related(W)
    return structure.lambda_max(structure.moment(Q - coupling.mean(Q), scale, coupling.rho), scale)


def _first_weights(
    prepared: Prepared, structure: Structure, problem: WeightProblem
) -> tuple[StructureScale, Array, StructureStep]:
    """The best weights for the first Ω."""
    scale, W = start(prepared, structure, problem)
    step = structure.initial(scale)
    coupling = structure.couple(step, prepared.mean_of(structure))
    tol = 1e-6 * max(1.0, abs(problem.value(W)))
    return scale, problem.solve(coupling, W, tol=tol, max_iter=prepared.settings.max_inner).W, step


def without_chance_edges(
    prepared: Prepared, structure: Structure, penalty: Penalty
) -> tuple[Structure, tuple[StructureScale, Array] | None]:
    r"""The structure, and a start if it has been computed; edges are excluded if the tasks show no relation.

    With d features the correlations r between the weights of K unrelated tasks have a standard deviation of 1/√d. With
    more than two tasks per feature some correlations exceed any useful λ, and their edges cost accuracy. The weights of
    separate tasks decide whether the graph may have edges: the sum of all :math:`r^2` less its expectation for
    unrelated tasks, in units of its standard deviation,

    .. math:: \sum_{k<l} r_{kl}^2 - \frac Md, \qquad \text{spread}^2 = \frac{2M(d-1)}{d^2(d+2)},\;
              M = \tfrac12 K(K-1),

    must exceed 3 (Schott 2005, A test for independence in high dimension, doi:10.1093/biomet/92.4.951). Groups and
    factors that help to predict give tens and hundreds. See docs/scale.md for the gain in accuracy.
    """
    K, d = prepared.base.n_tasks, prepared.base.n_features
    if d < 2 or 2 * d >= K:
        return structure, None
    scale, W, step = _first_weights(prepared, structure, prepared.problem(penalty, structure.relates))
    Q = W - structure.couple(step, prepared.mean_of(structure)).mean(W)
    size = np.linalg.norm(Q, axis=1, keepdims=True)
    Q, n = Q / np.where(size > 0, size, 1.0), np.count_nonzero(size)
    pairs = 0.5 * n * (n - 1)
    excess = 0.5 * (float(np.sum((Q.T @ Q) ** 2)) - n) - pairs / d  # ‖QᵀQ‖² is the sum over all pairs, twice, and n
    if excess <= _RELATED * np.sqrt(2.0 * pairs * (d - 1) / (d**2 * (d + 2))):
        structure = clone(structure).set_params(alpha=_FORBIDDING)
    return structure, (scale, W)
