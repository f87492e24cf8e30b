r"""Fit the hierarchical model: units, route, stages of the climb, and predictions.

The fit standardises the data. Features are centred and divided by one scale that is pooled over the tasks; targets are
treated alike. The units of X and y therefore do not change the predictions. The fit has up to three stages. First, a
shared mean with one variance per feature and per-task noise. Second, a dense task covariance with the noise held fixed:
estimating both at once fails when :math:`n \le d`. Third, a residual covariance for tasks observed on the same
occasions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import block_diag

from mssl._typing import Array, Index
from mssl._validation import refused
from mssl.data.design import MAX_GRAM_BYTES
from mssl.data.factors import TaskFactors, triangle, turned
from mssl.data.inputs import dense
from mssl.data.layouts import TaskData
from mssl.evidence.climb import Climb, climb
from mssl.evidence.posterior import LARGEST_FACTORED, WeightPosterior, quadratic_forms
from mssl.evidence.prior import (
    FLAT,
    NOISE_PRIOR,
    Dense,
    Exchangeable,
    Noise,
    PerTask,
    Prior,
    SharedNoise,
    TaskKernel,
    plain_prior,
    related,
)
from mssl.evidence.routes import DualRoute, MeanRoute, PrimalRoute, SharedRoute
from mssl.evidence.sites import GLMProblem, RowRoute, SitePoint, Sites, climb_sites
from mssl.evidence.version_2 import prior_of
from mssl.exceptions import DataError
from mssl.losses import Gaussian, Loss
from mssl.solvers.base import SMALLEST_VARIANCE
from mssl.solvers.fit import Settings, prepare

STRUCTURES = ("ridge", "ard", "mean", "mean+ard", "iw", "iw+ard")
LARGEST_MEAN = MAX_GRAM_BYTES // np.dtype(float).itemsize  # Largest number of entries of the tasks' whitened rows.
LARGEST_PRIMAL = 3_000  # Largest number of weights whose precision is factored as one matrix. A limit on time.
# Prior variance of the mean intercept of a GLM, on the scale of the linear predictor: wide, so that it hardly matters,
# and finite, so that the posterior stays proper.
_GLM_FLAT = 100.0


@dataclass(frozen=True)
class Options:
    """Options of a fit.

    Attributes
    ----------
    structure : str, TaskKernel or Prior
        One of ``STRUCTURES``; or a task covariance for all columns, whose relevances are learned; or a whole prior.
    intercepts : {"flat", "shrunk", "none"}
        Free intercepts, intercepts that are shrunk towards a mean, or no intercepts.
    errors : {"independent", "shared"}
        Whether the errors of different tasks on the same occasion are correlated.
    temperature : float
        The log-likelihood of each row is divided by the temperature.
    scale_targets : bool
        Whether each task's targets are divided by their own scale.
    tol : float
        Tolerance of the climb: a decrease of −2 log Z that is not worth a step.
    max_iter : int
        Maximum number of evaluations of the evidence per stage.
    """

    structure: str | TaskKernel | Prior = "mean+ard"
    intercepts: str = field(default="flat", metadata={"words": ("flat", "shrunk", "none")})
    errors: str = field(default="independent", metadata={"words": ("independent", "shared")})
    temperature: float = 1.0
    scale_targets: bool = False
    tol: float = 1e-3
    max_iter: int = 300

    @property
    def base(self) -> Options | None:
        """The options of the stage before this one; None for the first stage."""
        if self.temperature != 1:
            return replace(self, temperature=1.0)
        if self.errors == "shared":
            return replace(self, errors="independent")
        if isinstance(self.structure, str) and "iw" in self.structure:
            return replace(self, structure=self.structure.replace("iw", "mean"))
        return replace(self, structure="mean+ard") if isinstance(self.structure, TaskKernel) else None

    @property
    def kernel(self) -> TaskKernel | None:
        """The task covariance of all columns that replaces the plain prior in the second stage."""
        if isinstance(self.structure, str):
            return Dense() if "iw" in self.structure else None
        return self.structure if isinstance(self.structure, TaskKernel) else None

    @property
    def dense(self) -> bool:
        """Whether the prior correlates the tasks in another way than by a shared mean."""
        if isinstance(self.structure, Prior):
            return not self.structure.plain
        return self.kernel is not None and not self.kernel.plain

    @property
    def name(self) -> str:
        """Name of the structure."""
        return self.structure if isinstance(self.structure, str) else type(self.structure).__name__


@dataclass(frozen=True, eq=False)
class Units:
    """The standardisation: offsets and scales between the user's units and the units of the fit.

    Attributes
    ----------
    centres : ndarray of shape (K, d)
        Centre of each task's features. All tasks have the same centre unless the intercepts are flat.
    centre : ndarray of shape (d,)
        Centre of the features over all tasks, which new tasks use.
    scales : ndarray of shape (d,)
        Scale of each feature.
    level : ndarray of shape (K,)
        Centre of each task's targets.
    sizes : ndarray of shape (K,)
        Scale of each task's targets.
    """

    centres: Array
    centre: Array
    scales: Array
    level: Array
    sizes: Array


@dataclass(frozen=True, eq=False)
class JoinedTask:
    """The posterior of a task that joined after the fit, in the units of the fit.

    Attributes
    ----------
    mean : ndarray of shape (m,)
        Posterior mean of the task's weights, followed by its intercept if tasks have one.
    covariance : ndarray of shape (m, m)
        Posterior covariance of the weights and the intercept.
    count : float
        Number of rows of the task.
    edf : float
        Effective degrees of freedom of the task's weights.
    """

    mean: Array
    covariance: Array
    count: float
    edf: float


@dataclass(frozen=True, eq=False)
class EvidenceFit:
    """A fitted model, in the units of the fit.

    Attributes
    ----------
    prior : Prior
        The learned prior. Its noise is the noise of the forecasts.
    posterior : WeightPosterior
        Posterior of the weights, with a column for the intercept if the intercepts are shrunk.
    units : Units
        Units of the features and targets.
    options : Options
        Options of the fit.
    counts : ndarray of shape (K,)
        Total weight of each task's rows.
    edf : ndarray of shape (K,)
        Effective degrees of freedom of each task's weights.
    log_evidence : float
        log Z in the user's units.
    objective, promise : float
        −2 log Z plus the prices of the hyperparameters, and its predicted decrease in the next step, which certifies
        convergence. The promise is infinite if the sites of labels or counts did not converge.
    n_iter : int
        Number of evaluations of the evidence.
    converged : bool
        Whether the promise is within the tolerance.
    route : str
        Name of the route that computed the evidence.
    loss : Loss
        The loss with its learned parameters.
    joined : list of JoinedTask
        Tasks that joined after the fit. Their numbers follow those of the fitted tasks.
    """

    prior: Prior
    posterior: WeightPosterior
    units: Units
    options: Options
    counts: Array
    edf: Array
    log_evidence: float
    objective: float
    promise: float
    n_iter: int
    converged: bool
    route: str
    loss: Loss = field(default_factory=Gaussian)
    joined: list[JoinedTask] = field(default_factory=list)

    @staticmethod
    def _state_from_version_2(state: dict[str, Any]) -> dict[str, Any]:
        """Convert the state of a version-2 file, which holds a gradient instead of the promise and two prior parts."""
        state = {"promise" if name == "residual" else name: value for name, value in state.items()}
        return state | {"prior": prior_of(state.pop("hyper"), state.pop("columns"))}

    @property
    def base_prior(self) -> Prior:
        """The prior from which the next stage starts: without the intercept column if contrasts replace it there."""
        contrasts = self.options.intercepts == "flat" and self.loss.quadratic
        return self.prior.without_intercept() if contrasts else self.prior

    @cached_property
    def all_units(self) -> Units:
        """The units of the fitted tasks, followed by those of the joined tasks and, last, those of a new task.

        Joined and new tasks have the expected level at the common centre, and the geometric mean of the target scales.
        """
        units, more = self.units, len(self.joined) + 1
        level, size = float(np.mean(self._levels())), float(np.exp(np.mean(np.log(units.sizes))))
        centres = np.concatenate([units.centres, np.tile(units.centre, (more, 1))])
        level_of, sizes = (np.append(of, np.full(more, new)) for of, new in ((units.level, level), (units.sizes, size)))
        return replace(units, centres=centres, level=level_of, sizes=sizes)

    def features(self, X: Any, task: int | None) -> Array:
        """Return rows in the units of the fit, for one task or, if the task is None, for a new one."""
        centre = self.all_units.centres[-1 if task is None else task]
        U = ((X.toarray() if sparse.issparse(X) else X) - centre) / self.units.scales
        return _with_ones(U) if self.prior.intercept else U

    def predictor(self, X: Any, task: int | None) -> tuple[Array, Array]:
        """Return mean and variance of each row's linear predictor, in the user's units; task None is a new task."""
        K, units, place = len(self.counts), self.all_units, -1 if task is None else task
        U, flat = self.features(X, task), self.options.intercepts == "flat" and not self.prior.intercept
        if task is None:
            U, mean, covariance = self.new_prior(X)
            variance = quadratic_forms(U, covariance)
        elif task < K:
            only = np.where(np.arange(K) == task, 1.0, 0.0)
            mean, variance = self.posterior.coef[task], self.posterior.variance(U, only)
            if flat:
                variance = variance + self.prior.noise.variances[task] / max(self.counts[task], 1.0)
        else:
            mean, U = self.joined[task - K].mean, _with_ones(U) if flat else U
            variance = quadratic_forms(U, self.joined[task - K].covariance)
        level, size = float(units.level[place]), float(units.sizes[place])
        return level + size * (U @ mean), variance * size**2

    def contrast(self, steps: Array, task: int | None) -> tuple[Array, Array]:
        """Return mean and variance of steps·w for feature differences; task None averages the tasks' weights."""
        K, d, sizes = len(self.counts), len(self.units.scales), self.all_units.sizes[:-1]
        shares = sizes / len(sizes) if task is None else np.where(np.arange(len(sizes)) == task, sizes, 0.0)
        U = steps / self.units.scales
        wide = np.column_stack([U, np.zeros(len(U))]) if self.prior.intercept else U
        mean, variance = wide @ (shares[:K] @ self.posterior.coef), self.posterior.variance(wide, shares[:K])
        for share, joined in zip(shares[K:].tolist(), self.joined, strict=True):
            mean = mean + share * (U @ joined.mean[:d])
            variance = variance + share**2 * quadratic_forms(U, joined.covariance[:d, :d])
        return mean, variance

    def _levels(self) -> Array:
        """Return each task's expected target at the common centre if intercepts are flat, else the levels."""
        units = self.units
        if self.options.intercepts != "flat":
            return units.level
        away = (units.centre - units.centres) / units.scales
        coef, d = self.posterior.coef, away.shape[1]
        extra = coef[:, d] if self.prior.intercept else 0.0
        return np.asarray(units.level + units.sizes * (extra + np.sum(away * coef[:, :d], axis=1)))

    def new_prior(self, X: Any) -> tuple[Array, Array, Array]:
        """Return the rows of a task that joins, and the prior mean and covariance of its weights.

        The last column is the intercept, unless the model has no intercepts.
        """
        U, mean, covariance = self.features(X, None), self.posterior.mean, self.posterior.covariance(None)
        if self.options.intercepts == "flat":
            d, K, size = len(self.units.scales), len(self.counts), float(self.all_units.sizes[-1])
            of_level = float(np.var(self._levels(), ddof=1)) / size**2 * (1 + 1 / K) if K > 1 else 1.0
            covariance = block_diag(covariance[:d, :d], max(of_level, SMALLEST_VARIANCE))
            mean, U = np.append(mean[:d], 0.0), U if self.prior.intercept else _with_ones(U)
        return U, mean, covariance

    def noise(self, task: int | None) -> float:
        """Return the noise variance of a task, or of a new task, in the user's units."""
        if task is not None and task < len(self.counts):
            return float(self.prior.noise.variances[task] * self.units.sizes[task] ** 2)
        return float(np.exp(np.mean(np.log(self.prior.noise.variances * self.units.sizes**2))))

    def degrees(self, task: int | None) -> float:
        """Return the degrees of freedom of a Student-t forecast."""
        free = np.maximum(self.counts - self.edf - (self.options.intercepts == "flat"), 0.0)
        total = float(free.sum())
        if task is None or task >= len(self.counts):
            return max(total, 1.0)
        # The noise of a task is estimated from its own rows and from a prior worth ν_n rows of the other tasks.
        return max(float(free[task]) + min(NOISE_PRIOR, total), 1.0)

    def weights(self) -> tuple[Array, Array, Array]:
        """Return coefficients and intercepts in the user's units, and the variances of the coefficients.

        The last row of coefficients and the last intercept are the expected ones of a new task.
        """
        units, d = self.all_units, len(self.units.scales)
        means = [*self.posterior.coef, *(task.mean for task in self.joined), self.posterior.mean]
        covariances = [*self.posterior.covariances(), *(task.covariance for task in self.joined)]
        W = np.array([mean[:d] for mean in means]) * units.sizes[:, None] / units.scales
        own = np.array([mean[d] if len(mean) > d else 0.0 for mean in means])
        variances = np.array([np.diag(part)[:d] for part in covariances]) * (units.sizes[:-1, None] / units.scales) ** 2
        return W, units.level + units.sizes * own - np.sum(W * units.centres, axis=1), np.maximum(variances, 0.0)

    def relevance(self) -> Array:
        """Return the prior variance of each feature's weights, for features of unit variance."""
        return self.prior.variances()[: len(self.units.scales)]

    def task_covariances(self) -> tuple[Array, Array]:
        """Return the task covariance of the weights of a feature of relevance 1, and of the errors, in user units."""
        K, sizes = len(self.counts), self.all_units.sizes[:-1]
        t, v = self.prior.common[0]
        T = t + v * np.eye(len(sizes))
        R = self.noise(None) / self.all_units.sizes[-1] ** 2 * np.eye(len(sizes))
        T[:K, :K], R[:K, :K] = self.prior.covariances[0], self.prior.noise.covariance
        return T * np.outer(sizes, sizes), R * np.outer(sizes, sizes)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return posterior draws of all tasks' coefficients in the user's units, shape (count, K, d)."""
        d, sizes = len(self.units.scales), self.all_units.sizes[:-1, None]
        joined = (rng.multivariate_normal(one.mean, one.covariance, count, method="eigh") for one in self.joined)
        draws = [self.posterior.draw(count, rng)[:, :, :d], *(draw[:, None, :d] for draw in joined)]
        return np.asarray(np.concatenate(draws, axis=1) * (sizes / self.units.scales))


def fit_evidence(
    data: TaskData,
    blocks: Index,
    groups: Index,
    options: Options,
    *,
    loss: Loss | None = None,
    base: EvidenceFit | None = None,
) -> EvidenceFit:
    """Estimate the hyperparameters and the posterior of the weights.

    Parameters
    ----------
    data : TaskData
        Tasks with their mapped features. A task may have no rows.
    blocks, groups : ndarrays of int of shape (d,)
        Block of each column, and its relevance group in this block.
    options : Options
        Options of the fit.
    loss : Loss, optional
        The loss; the default is Gaussian.
    base : EvidenceFit, optional
        Fit of ``options.base`` to the same rows, from which this fit starts. By default it is computed here.
    """
    words = options.structure if isinstance(options.structure, str) else "mean+ard"
    if words not in STRUCTURES:
        raise refused("structure", options.structure, f"allowed are {', '.join(map(repr, STRUCTURES))}")
    if base is None and options.base is not None:
        base = fit_evidence(data, blocks, groups, options.base, loss=loss)
    mean = data.n_tasks > 1 and ("mean" in words or "iw" in words)
    noise = PerTask(np.full(data.n_tasks, 0.5))
    prior = plain_prior(blocks, groups, noise, relevance="ard" in words, mean=mean)
    if isinstance(options.structure, Prior):
        prior = options.structure
        if (prior.n_tasks, len(prior.block)) != (data.n_tasks, data.n_features):
            allowed = f"these rows have {data.n_tasks} tasks and {data.n_features} features"
            raise refused("prior", f"of {prior.n_tasks} tasks and {len(prior.block)} features", allowed)
    loss = Gaussian() if loss is None else loss
    try:
        ended = _fit_stage(data, prior, options, loss, base)
    except np.linalg.LinAlgError as error:
        raise DataError(
            "The columns are numerically degenerate: some are far larger than they vary, or nearly collinear. "
            "Subtract their mean, drop some of them, or fit intercepts."
        ) from error
    return replace(ended, n_iter=ended.n_iter + (0 if base is None else base.n_iter))


def _in_units(data: TaskData, options: Options, *, targets: bool) -> tuple[Units, list[Array], list[Array], Array]:
    """Return the units, each task's features and targets in these units, and the weights of all rows."""
    K, N, shared = data.n_tasks, len(data.y), data.shared
    X = dense(data.X)
    weights = np.ones(N) if data.weights is None else data.weights
    sums = sparse.csr_array((weights, np.arange(N), data.offsets), shape=(K, N))  # Sums over the rows of each task.
    counts = sums @ np.ones(N)
    full, totals = counts > 0, np.where(counts > 0, counts, 1.0)
    some, of_row = (1, np.zeros(len(X), dtype=np.int64)) if shared else (K, data.task_of_row)
    means = sums[:some, : len(X)] @ X / totals[:some, None]
    within = weights[: len(X)] @ (X - means[of_row]) ** 2 * (K if shared else 1)
    means = np.repeat(means, K, axis=0) if shared else means
    centre = counts @ means / counts.sum()
    means[~full] = centre
    within, between = np.sqrt(within / counts.sum()), np.sqrt(counts @ (means - centre) ** 2 / counts.sum())
    # The scale of a column that is constant within tasks is its spread between tasks; a constant column has its size.
    largest = np.max(np.abs(means), axis=0, initial=0.0)
    constant = 1e-13 * largest
    scales = np.where(within > constant, within, np.where(between > constant, between, np.maximum(largest, 1.0)))
    centres = means if options.intercepts == "flat" else np.repeat(centre[None], K, axis=0)
    if options.intercepts == "none":
        centres, centre = np.zeros((K, X.shape[1])), np.zeros(X.shape[1])
    level, sizes = _target_units(data, sums, options) if targets else (np.zeros(K), np.ones(K))
    X = (X - centres[of_row]) / scales
    parts = [slice(first, last) for first, last in pairwise(data.offsets.tolist())]
    y = [(data.y[part] - level[k]) / sizes[k] for k, part in enumerate(parts)]
    return Units(centres, centre, scales, level, sizes), [X if shared else X[part] for part in parts], y, weights


def _target_units(data: TaskData, sums: Any, options: Options) -> tuple[Array, Array]:
    """Return the centre and the scale of each task's targets."""
    counts = sums @ np.ones(len(data.y))
    full = counts > 0
    own = sums @ data.y / np.where(full, counts, 1.0)
    common = float(np.mean(own[full]))
    own[~full] = common
    spread = sums @ (data.y - own[data.task_of_row]) ** 2
    level = {"flat": own, "shrunk": np.full(len(own), common), "none": np.zeros(len(own))}[options.intercepts]
    pooled = np.sqrt(spread.sum() / max(counts.sum() - full.sum(), 1.0))
    # If the targets do not vary within tasks, their scale is the spread between tasks, else their size, else 1.
    largest = float(np.max(np.abs(own)))
    rounding = 1e-13 * largest
    pooled = float(next((size for size in (pooled, np.std(own[full]), largest) if size > rounding), 1.0))
    if not options.scale_targets:
        return level, np.full(len(own), pooled)
    apart = np.sqrt(spread / np.maximum(counts - 1, 1.0))
    return level, np.where(apart > rounding, apart, pooled)


def _with_ones(X: Array) -> Array:
    return np.column_stack([X, np.ones(len(X))])


def _fit_stage(data: TaskData, prior: Prior, options: Options, loss: Loss, base: EvidenceFit | None) -> EvidenceFit:
    """Fit one stage, which starts from the fit of the stage before or, without one, from a prior."""
    units, X, y, weights = _in_units(data, options, targets=loss.quadratic)
    K, counts, flat = data.n_tasks, np.split(weights, data.offsets[1:-1]), options.intercepts == "flat"
    dense, kernel, learn = options.dense and K > 1, options.kernel if K > 1 else None, options.temperature == 1
    if options.intercepts == "shrunk" or (flat and not loss.quadratic):
        # Only least squares can replace flat intercepts by contrasts; other losses have an intercept column.
        wide, X = FLAT if loss.quadratic else _GLM_FLAT, list(map(_with_ones, X))
        own = Exchangeable(v=wide, t=0.0, learned=()) if flat else Exchangeable(v=0.5, t=wide, learned=("v",))
        prior = prior.with_intercept(own)
    if base is not None:
        prior, loss = base.base_prior, base.loss
    ended: Climb[Prior] | Climb[SitePoint]
    route: MeanRoute | DualRoute | SharedRoute | PrimalRoute
    if loss.quadratic:
        rows = TaskFactors.from_rows(X, y, counts, intercept=flat)
        if base is not None and options.errors == "shared":
            route, prior = _occasion_route(data, X, y, weights, base)
        elif kernel is not None and data.shared and options.intercepts != "shrunk":
            route = _shared_route(X[0], y, counts[0], flat)
        else:
            route = _route(rows, dense)
        if not learn:
            prior = replace(prior, noise=PerTask(options.temperature * prior.noise.variances, learned=False))
        elif kernel is not None and options.errors != "shared":
            # If n ≤ d, estimating the noise together with a dense covariance drives the noise to 0.
            prior = replace(related(prior, kernel), noise=PerTask(prior.noise.variances, learned=kernel.plain))
        ended = climb(lambda point: point.evaluated(route), prior, gain=options.tol, max_iter=options.max_iter)
        prior, dof = ended.point, rows.dof
        noise: Noise = prior.noise.scaled(1 / options.temperature)
        constant = float(dof @ (np.log(2 * np.pi) + 2 * np.log(units.sizes)))
    else:
        if options.errors == "shared":
            raise refused("errors", options.errors, f"the {loss.name} loss has independent errors")
        dispersion, squares = _dispersions(data, loss, options), weights @ np.concatenate(X) ** 2 / weights.sum()
        # The sites represent the noise, so that the prior's noise variance is 1.
        prior = replace(prior, noise=PerTask(np.ones(K), learned=False), predictor=squares)
        prior = prior if kernel is None or not learn else related(prior, kernel)
        problem = GLMProblem(X, np.concatenate(y), weights / options.temperature, loss, dispersion[data.task_of_row])
        ended = climb_sites(
            problem, prior, lambda rows: _route(rows, dense), gain=options.tol, max_iter=options.max_iter, learn=learn
        )
        prior, loss, settled = ended.point.prior, ended.point.problem.loss, ended.point.settled
        route, constant, noise = settled.solution, settled.correction, PerTask(dispersion)
        dof = route.rows.used + route.rows.spare
    s, posterior = route.at(prior).derivatives(), route.at(prior).posterior()
    trace, variances = s.noise[0], prior.noise.variances
    used = variances * trace if trace.ndim == 1 else np.diag(prior.noise.covariance @ trace)
    return EvidenceFit(
        prior=replace(prior, noise=noise),
        posterior=posterior,
        units=units,
        options=options,
        counts=np.array([part.sum() for part in counts]),
        edf=np.clip(dof - used, 0.0, None),
        log_evidence=-0.5 * (s.value + constant),
        objective=ended.objective,
        promise=ended.promise,
        n_iter=ended.n_iter,
        converged=ended.converged,
        route=type(route).__name__ if loss.quadratic else "Sites",
        loss=loss,
    )


def _route(rows: TaskFactors, dense: bool) -> RowRoute:
    """Return the cheapest route that can compute this prior."""
    K, r, d = rows.R.shape
    total = int(rows.used.sum())
    by_mean = K * (r**3 + 3.0 * r * r * d + 2.0 * r * d * d) + 3.0 * d**3
    by_dual = float(total) ** 3 + 2.0 * total**2 * d
    if not dense and (by_mean <= by_dual or total > LARGEST_FACTORED):
        if K * r * d + d * d > LARGEST_MEAN:
            raise DataError(
                f"{K} tasks with {d} features each and {total} compressed rows are too large for every exact route "
                "(4 GiB). Use fewer features, or mssl.MSSLRegressor."
            )
        return MeanRoute(rows)
    if total > LARGEST_FACTORED:
        raise DataError(
            f"prior='iw' needs the covariance of {total} compressed rows; the limit is {LARGEST_FACTORED}. "
            f"Use prior='mean+ard', which scales."
        )
    return DualRoute(rows)


def _shared_route(X: Array, y: list[Array], weights: Array, flat: bool) -> SharedRoute:
    """Return the route for one shared design: compressed rows, and cross products of the unexplained targets."""
    total, _, table = turned(X, np.column_stack(y), weights, flat)
    d = X.shape[1]
    table, outside = triangle(table, d)
    spare = max(total - flat, 0.0) - len(table)
    return SharedRoute(table[:, :d], table[:, d:], spare, outside.T @ outside)


def can_share(data: TaskData, d: int) -> bool:
    """Whether shared errors can be modelled: most occasions have several tasks of one weight, and few coefficients."""
    if data.paired is None or data.n_tasks < 2 or data.n_tasks * d > LARGEST_PRIMAL:
        return False
    _, first, number, sizes = np.unique(data.paired, return_index=True, return_inverse=True, return_counts=True)
    even = np.array_equal(data.row_weights[first][number], data.row_weights)
    return bool(even and np.mean(sizes >= 2) > 0.5)


def _occasion_route(
    data: TaskData, X: list[Array], y: list[Array], weights: Array, base: EvidenceFit
) -> tuple[PrimalRoute, Prior]:
    """Return the route for errors that are shared on occasions, and the prior from which its climb starts."""
    if data.occasions is None:
        raise refused("errors", "shared", "shared errors need occasions: shared or aligned rows, or groups")
    if data.paired is None:
        raise DataError(
            "Some task has two rows in one group, so that the errors of tasks cannot be paired. Use "
            "residual_covariance='independent'."
        )
    K, d = data.n_tasks, X[0].shape[1]
    if K * d > LARGEST_PRIMAL:
        raise DataError(
            f"Shared errors need the precision matrix of {K * d} weights; the limit is {LARGEST_PRIMAL}. Use "
            "residual_covariance='independent'."
        )
    number, task = np.unique(data.paired, return_inverse=True)[1], data.task_of_row
    n, flat = int(number.max()) + 1, base.options.intercepts == "flat"
    seen, (Y, residual), counts = np.zeros((n, K), dtype=bool), np.zeros((2, n, K)), np.ones(n)
    seen[number, task], counts[number] = True, weights
    if np.any(counts[number] != weights):
        raise DataError(
            "The rows of some occasion have different weights, so that the errors they share have no weight. Give all "
            "rows of an occasion the same weight, or use residual_covariance='independent'."
        )
    Y[number, task] = np.concatenate(y)
    design = X[0][:, None, :]
    if not data.shared:
        design = np.zeros((n, K, d))
        design[number, task] = np.concatenate(X)
    # The climb starts from equal error correlations: the mean correlation of the residuals of the previous stage.
    fitted = [block @ w for block, w in zip(X, base.posterior.coef, strict=True)]
    residual[number, task] = np.concatenate(y) - np.concatenate(fitted)
    both = (counts[:, None] * seen).T @ seen
    moments = (counts[:, None] * residual).T @ residual / np.maximum(both, 1.0)
    size = np.sqrt(np.diag(moments))
    moments /= np.maximum(np.outer(size, size), 1e-300)
    pairs = ~np.eye(K, dtype=bool) & (both > 2)
    rho = float(np.clip(moments[pairs].mean(), 0.0, 0.95)) if pairs.any() else 0.0
    prior, complete = base.base_prior, bool(seen.all())
    if flat and not complete:
        # If occasions are incomplete, a column with a wide prior replaces the contrast for the intercept.
        design = np.concatenate([design, seen[:, :, None].astype(float)], axis=2)
        prior = prior.with_intercept(Exchangeable(mean=False, v=FLAT, t=0.0))
    sd = np.sqrt(prior.noise.variances)
    target = ((1 - rho) * np.eye(K) + rho) * np.outer(sd, sd)
    route = PrimalRoute(design, Y, seen, counts, float(flat and complete))
    return route, replace(prior, noise=SharedNoise(target, target))


def _dispersions(data: TaskData, loss: Loss, options: Options) -> Array:
    """Return the dispersion of each task's targets from single-task fits; it is 1 for losses without a dispersion.

    A task without rows has the mean dispersion of the other tasks.
    """
    if not loss.has_dispersion:
        return np.ones(data.n_tasks)
    kept = data.n_rows > 0
    part = replace(data, tasks=data.tasks[kept], offsets=np.append(0, np.cumsum(data.n_rows[kept])))
    estimates = prepare(part, loss, Settings(fit_intercept=options.intercepts != "none")).noise
    dispersions = np.full(data.n_tasks, float(estimates.mean()))
    dispersions[kept] = estimates
    return dispersions


def join_task(fit: EvidenceFit, X: Array, y: Array) -> EvidenceFit:
    """Return the fit with one additional task, whose prior is the learned distribution of a new task's weights.

    Parameters
    ----------
    fit : EvidenceFit
        The fit.
    X : ndarray of shape (n, d)
        Features of the task's rows.
    y : ndarray of shape (n,)
        Targets of the task's rows.
    """
    U, mean, covariance = fit.new_prior(X)
    level, size = float(fit.all_units.level[-1]), float(fit.all_units.sizes[-1])
    noise = max(fit.noise(None) / size**2, 1e-300)
    if fit.loss.quadratic:
        post, cov = _update(U, mean, covariance, np.full(len(y), 1 / noise), (y - level) / size / noise)
    else:
        problem = GLMProblem([U], y, np.ones(len(y)), fit.loss, np.full(len(y), noise))
        mean = np.append(mean[:-1], mean[-1] + level)  # Predictions add the level of free intercepts.

        def marginals(sites: Sites) -> tuple[Array, Array, tuple[Array, Array]]:
            post, cov = _update(U, mean, covariance, *sites)
            return U @ post, np.maximum(np.sum(U * (U @ cov), axis=1), 1e-14), (post, cov)

        post, cov = problem.settled(problem.start(), marginals, 1e-8).solution
        post[-1] -= level
    edf = float(len(post) - np.trace(np.linalg.lstsq(covariance, cov, rcond=None)[0]))
    return replace(fit, joined=[*fit.joined, JoinedTask(post, cov, float(len(y)), max(edf, 0.0))])


def _update(U: Array, mean: Array, covariance: Array, precision: Array, response: Array) -> tuple[Array, Array]:
    """Return the posterior mean and covariance for a Gaussian prior and one Gaussian site per row."""
    root = np.sqrt(precision)
    A = U * root[:, None]
    CA = covariance @ A.T
    V = np.eye(len(A)) + A @ CA
    target = response / root - A @ mean
    return mean + CA @ np.linalg.solve(V, target), covariance - CA @ np.linalg.solve(V, CA.T)
