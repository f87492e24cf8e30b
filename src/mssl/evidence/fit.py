r"""From tasks to a posterior: units, route, stages of the climb, and predictions.

Everything is computed in units of its own: features are centred and divided by one scale pooled over tasks, targets by
theirs, so that y in other units gives the same answer. Stages: a ridge around a mean with relevances and noise; for a
dense T the same with the noise frozen, since noise learned together with a rich covariance collapses where
:math:`n \le d`; for errors shared on occasions their covariance from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from mssl._typing import Array, Index
from mssl._validation import refused
from mssl.data.factors import TaskFactors, triangle, turned
from mssl.data.inputs import dense
from mssl.data.layouts import TaskData
from mssl.evidence.climb import SMALLEST, Climb, climb
from mssl.evidence.posterior import WeightPosterior, quadratic_forms
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
from mssl.solvers.fit import Settings, prepare

STRUCTURES = ("ridge", "ard", "mean", "mean+ard", "iw", "iw+ard")
LARGEST_DUAL = 5_000  # rows whose covariance is factored as one matrix: a step takes seconds from here on
LARGEST_MEAN = 2**28  # numbers that tasks' whitened rows may have
LARGEST_PRIMAL = 3_000  # weights whose precision is factored as one matrix
_GLM_FLAT = 100.0  # prior variance of the mean intercept on the scale of the predictor


@dataclass(frozen=True)
class Options:
    """How to fit.

    Attributes
    ----------
    structure : str, TaskKernel or Prior
        One of ``STRUCTURES``, a covariance over tasks of all columns, whose relevances are learned, or a whole prior.
    intercepts : {"flat", "shrunk", "none"}
        Free intercepts, intercepts around a mean, or none.
    errors : {"independent", "shared"}
        Whether tasks' errors on one occasion are related.
    temperature : float
        Rows count 1/temperature.
    scale_targets : bool
        Whether every task's targets have a scale of their own.
    tol : float
        Gain of −2 log Z that is not worth a step.
    max_iter : int
        Most computations of the evidence in a stage.
    """

    structure: str | TaskKernel | Prior = "mean+ard"
    intercepts: str = "flat"
    errors: str = "independent"
    temperature: float = 1.0
    scale_targets: bool = False
    tol: float = 1e-3
    max_iter: int = 300

    @property
    def base(self) -> Options | None:
        """What is fitted before: one stage less."""
        if self.temperature != 1:
            return replace(self, temperature=1.0)
        if self.errors == "shared":
            return replace(self, errors="independent")
        if isinstance(self.structure, str) and "iw" in self.structure:
            return replace(self, structure=self.structure.replace("iw", "mean"))
        return replace(self, structure="mean+ard") if isinstance(self.structure, TaskKernel) else None

    @property
    def kernel(self) -> TaskKernel | None:
        """The covariance over tasks of all columns that goes on from a plain prior."""
        if isinstance(self.structure, str):
            return Dense() if "iw" in self.structure else None
        return self.structure if isinstance(self.structure, TaskKernel) else None

    @property
    def dense(self) -> bool:
        """Whether the prior relates tasks beyond a mean that they share."""
        if isinstance(self.structure, Prior):
            return not self.structure.plain
        return self.kernel is not None and not self.kernel.plain

    @property
    def name(self) -> str:
        """The structure in a word."""
        return self.structure if isinstance(self.structure, str) else type(self.structure).__name__


@dataclass(frozen=True, eq=False)
class Units:
    """Where the fit's numbers stand in the user's units.

    Attributes
    ----------
    centres : ndarray of shape (K, d)
        Centre of each task's features; all equal unless intercepts are flat.
    centre : ndarray of shape (d,)
        Centre over all tasks, for new ones.
    scales : ndarray of shape (d,)
        Unit of each feature.
    level : ndarray of shape (K,)
        Centre of each task's targets.
    sizes : ndarray of shape (K,)
        Unit of each task's targets.
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
        Its weights, and its intercept last where tasks have one.
    covariance : ndarray of shape (m, m)
        Their covariance.
    count : float
        Number of its rows.
    edf : float
        Degrees of freedom that its weights use.
    """

    mean: Array
    covariance: Array
    count: float
    edf: float


@dataclass(frozen=True, eq=False)
class EvidenceFit:
    """What was learned, in the units of the fit.

    Attributes
    ----------
    prior : Prior
        What was learned of the prior; of the noise what forecasts have.
    posterior : WeightPosterior
        The weights; with an intercept column where intercepts are shrunk.
    units : Units
        Units of features and targets.
    options : Options
        How it was fitted.
    counts : ndarray of shape (K,)
        Total weight of every task's rows.
    edf : ndarray of shape (K,)
        Degrees of freedom that the weights of each task use.
    log_evidence : float
        log Z in the user's units.
    objective, promise : float
        −2 log Z with hyperpriors, and the certificate: what the next step would gain of it. It is infinite where the
        sites of labels or counts did not settle.
    n_iter : int
        Computations of the evidence.
    converged : bool
        Whether the certificate is within the tolerance.
    route : str
        Which route was taken.
    loss : Loss
        The loss, with the parameters that were learned.
    joined : list of JoinedTask
        Tasks that joined after the fit; they are numbered after those that were fitted.
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
        """Files of version 2 held a gradient in the place of the promise, and the prior in two parts."""
        state = {"promise" if name == "residual" else name: value for name, value in state.items()}
        return state | {"prior": prior_of(state.pop("hyper"), state.pop("columns"))}

    @property
    def base_prior(self) -> Prior:
        """The prior without an intercept column that stands in for contrasts, to go on from."""
        contrasts = self.options.intercepts == "flat" and self.loss.quadratic
        return self.prior.without_intercept() if contrasts else self.prior

    @property
    def has_column(self) -> bool:
        """Whether the intercept is a column of the posterior."""
        return self.prior.intercept

    @cached_property
    def all_units(self) -> Units:
        """The units, with those of a new task for every task that joined and, in the last place, for a new one.

        A new task has the expected level at the common centre, and a typical unit of its targets.
        """
        units, more = self.units, len(self.joined) + 1
        level, size = float(np.mean(self._levels())), float(np.exp(np.mean(np.log(units.sizes))))
        centres = np.concatenate([units.centres, np.tile(units.centre, (more, 1))])
        level_of, sizes = (np.append(of, np.full(more, new)) for of, new in ((units.level, level), (units.sizes, size)))
        return replace(units, centres=centres, level=level_of, sizes=sizes)

    def features(self, X: Any, task: int | None) -> Array:
        """Rows in the units of the fit, for one task or, with None, for a new one."""
        centre = self.all_units.centres[-1 if task is None else task]
        U = ((X.toarray() if sparse.issparse(X) else X) - centre) / self.units.scales
        return _with_ones(U) if self.has_column else U

    def predictor(self, X: Any, task: int | None) -> tuple[Array, Array]:
        """Mean and variance of the linear predictor of every row, in the user's units; None is a new task."""
        K, units, place = len(self.counts), self.all_units, -1 if task is None else task
        U, flat = self.features(X, task), self.options.intercepts == "flat" and not self.has_column
        if task is None:
            mean, variance = self.posterior.mean, self.posterior.new_variance(U) + self._level_variance()
        elif task < K:
            mean, variance = self.posterior.coef[task], self.posterior.variance(U, task)
            if flat:
                variance = variance + self.prior.noise.variances[task] / max(self.counts[task], 1.0)
        else:
            mean, U = self.joined[task - K].mean, _with_ones(U) if flat else U
            variance = quadratic_forms(U, self.joined[task - K].covariance)
        level, size = float(units.level[place]), float(units.sizes[place])
        return level + size * (U @ mean), variance * size**2

    def contrast(self, steps: Array, task: int | None) -> tuple[Array, Array]:
        """Mean and variance of steps·w, steps being differences of features; None is the mean of all tasks' weights."""
        K, d, sizes = len(self.counts), len(self.units.scales), self.all_units.sizes[:-1]
        shares = sizes / len(sizes) if task is None else np.where(np.arange(len(sizes)) == task, sizes, 0.0)
        U = steps / self.units.scales
        wide = np.column_stack([U, np.zeros(len(U))]) if self.has_column else U
        mean, variance = wide @ (shares[:K] @ self.posterior.coef), self.posterior.total_variance(wide, shares[:K])
        for share, joined in zip(shares[K:].tolist(), self.joined, strict=True):
            mean = mean + share * (U @ joined.mean[:d])
            variance = variance + share**2 * quadratic_forms(U, joined.covariance[:d, :d])
        return mean, variance

    def _levels(self) -> Array:
        """The tasks' targets at the common centre, where intercepts are flat."""
        units = self.units
        if self.options.intercepts != "flat":
            return units.level
        away = (units.centre - units.centres) / units.scales
        coef, d = self.posterior.coef, away.shape[1]
        extra = coef[:, d] if self.has_column else 0.0
        return np.asarray(units.level + units.sizes * (extra + np.sum(away * coef[:, :d], axis=1)))

    def _level_variance(self) -> float:
        """Variance of a new task's level about the mean one, in the units of the fit, where intercepts are flat."""
        if self.options.intercepts != "flat":
            return 0.0
        K, size = len(self.counts), float(self.all_units.sizes[-1])
        return float(np.var(self._levels(), ddof=1)) / size**2 * (1 + 1 / K) if K > 1 else 1.0

    def new_prior(self, X: Any) -> tuple[Array, Array, Array]:
        """Rows of a task that joins, and the mean and covariance that its weights have before them.

        It always has a column for its intercept, unless there is none.
        """
        U, mean, covariance = self.features(X, None), self.posterior.mean, self.posterior.new_covariance()
        if self.options.intercepts == "flat":
            d = len(self.units.scales)
            wide = np.zeros((d + 1, d + 1))
            wide[:d, :d], wide[d, d] = covariance[:d, :d], max(self._level_variance(), SMALLEST)
            mean, covariance, U = np.append(mean[:d], 0.0), wide, U if self.has_column else _with_ones(U)
        return U, mean, covariance

    def noise(self, task: int | None) -> float:
        """Noise variance of a task, or a new one, in the user's units."""
        if task is not None and task < len(self.counts):
            return float(self.prior.noise.variances[task] * self.units.sizes[task] ** 2)
        return float(np.exp(np.mean(np.log(self.prior.noise.variances * self.units.sizes**2))))

    def degrees(self, task: int | None) -> float:
        """Degrees of freedom of a Student-t forecast."""
        free = np.maximum(self.counts - self.edf - (self.options.intercepts == "flat"), 0.0)
        total = float(free.sum())
        if task is None or task >= len(self.counts):
            return max(total, 1.0)
        # The noise of a task is known from its own rows and, worth ν_n rows, from those of all others.
        return max(float(free[task]) + min(NOISE_PRIOR, total), 1.0)

    def all_edf(self) -> Array:
        """Degrees of freedom that each task's weights use, those of joined tasks too."""
        return np.append(self.edf, [task.edf for task in self.joined])

    def weights(self) -> tuple[Array, Array, Array]:
        """Coefficients and intercepts in the user's units, and the variances of the coefficients.

        The last coefficients and the last intercept are those that a new task is expected to have.
        """
        units, d = self.all_units, len(self.units.scales)
        means = [*self.posterior.coef, *(task.mean for task in self.joined), self.posterior.mean]
        covariances = [*self.posterior.covariances(), *(task.covariance for task in self.joined)]
        W = np.array([mean[:d] for mean in means]) * units.sizes[:, None] / units.scales
        own = np.array([mean[d] if len(mean) > d else 0.0 for mean in means])
        variances = np.array([np.diag(part)[:d] for part in covariances]) * (units.sizes[:-1, None] / units.scales) ** 2
        return W, units.level + units.sizes * own - np.sum(W * units.centres, axis=1), np.maximum(variances, 0.0)

    def relevance(self) -> Array:
        """Prior variance of every feature's weights, where features have variance one."""
        return self.prior.variances()[: len(self.units.scales)]

    def task_covariances(self) -> tuple[Array, Array]:
        """Covariance over tasks of the weights of a feature of relevance one, and of errors, in the user's units."""
        K, sizes = len(self.counts), self.all_units.sizes[:-1]
        t, v = self.prior.common[0]
        T = t + v * np.eye(len(sizes))
        R = self.noise(None) / self.all_units.sizes[-1] ** 2 * np.eye(len(sizes))
        T[:K, :K], R[:K, :K] = self.prior.covariances[0], self.prior.noise.covariance
        return T * np.outer(sizes, sizes), R * np.outer(sizes, sizes)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Draws of all tasks' coefficients, shape (count, K, d), in the user's units."""
        d, sizes = len(self.units.scales), self.all_units.sizes[:-1, None]
        joined = (rng.multivariate_normal(one.mean, one.covariance, count, method="eigh") for one in self.joined)
        draws = [self.posterior.draw(count, rng)[:, :, :d], *(draw[:, None, :d] for draw in joined)]
        return np.asarray(np.concatenate(draws, axis=1) * (sizes / self.units.scales))


def relevance_groups(blocks: Index, column_of: Index) -> Index:
    """One relevance group for what a block makes of one column; products of several columns have one each."""
    columns = np.where(column_of >= 0, column_of, -1 - np.arange(len(column_of)))
    return np.unique(np.column_stack([blocks, columns]), axis=0, return_inverse=True)[1].ravel()


def fit_evidence(
    data: TaskData,
    blocks: Index,
    groups: Index,
    options: Options,
    *,
    loss: Loss | None = None,
    occasions: Index | None = None,
    base: EvidenceFit | None = None,
) -> EvidenceFit:
    """Learn hyperparameters and posterior.

    Parameters
    ----------
    data : TaskData
        Tasks, their features already mapped; tasks may be without rows.
    blocks, groups : ndarrays of int of shape (d,)
        Block and relevance group of every column.
    options : Options
        How to fit.
    loss : Loss, optional
        A loss other than the Gaussian.
    occasions : ndarray of int of shape (N,), optional
        Which rows belong to the same occasion; needed for shared errors.
    base : EvidenceFit, optional
        The fit of ``options.base`` to the same rows, which this one goes on from; it is made where it is not given.
    """
    words = options.structure if isinstance(options.structure, str) else "mean+ard"
    if words not in STRUCTURES:
        raise refused("structure", options.structure, f"allowed are {', '.join(map(repr, STRUCTURES))}")
    if base is None and options.base is not None:
        base = fit_evidence(data, blocks, groups, options.base, loss=loss, occasions=occasions)
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
        ended = _fit_stage(data, prior, options, loss, occasions, base)
    except np.linalg.LinAlgError as error:
        raise DataError(
            "The columns are beyond what can be computed with: some are far larger than they vary, or nearly the same. "
            "Subtract their level, leave some out, or let tasks have intercepts."
        ) from error
    return replace(ended, n_iter=ended.n_iter + (0 if base is None else base.n_iter))


def _in_units(data: TaskData, options: Options, *, targets: bool) -> tuple[Units, list[Array], list[Array], Array]:
    """Units; features and targets of each task in them; weights of all rows."""
    K, N, shared = data.n_tasks, len(data.y), data.shared
    X = dense(data.X)
    weights = np.ones(N) if data.weights is None else data.weights
    sums = sparse.csr_array((weights, np.arange(N), data.offsets), shape=(K, N))  # over each task's rows, or none
    counts = sums @ np.ones(N)
    full, totals = counts > 0, np.where(counts > 0, counts, 1.0)
    some, of_row = (1, np.zeros(len(X), dtype=np.int64)) if shared else (K, data.task_of_row)
    means = sums[:some, : len(X)] @ X / totals[:some, None]
    within = weights[: len(X)] @ (X - means[of_row]) ** 2 * (K if shared else 1)
    means = np.repeat(means, K, axis=0) if shared else means
    centre = counts @ means / counts.sum()
    means[~full] = centre
    within, between = np.sqrt(within / counts.sum()), np.sqrt(counts @ (means - centre) ** 2 / counts.sum())
    # A column that varies between tasks only has the scale of what is between; a constant one counts for nothing.
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
    """Level and size of each task's targets."""
    counts = sums @ np.ones(len(data.y))
    full = counts > 0
    own = sums @ data.y / np.where(full, counts, 1.0)
    common = float(np.mean(own[full]))
    own[~full] = common
    spread = sums @ (data.y - own[data.task_of_row]) ** 2
    level = {"flat": own, "shrunk": np.full(len(own), common), "none": np.zeros(len(own))}[options.intercepts]
    pooled = np.sqrt(spread.sum() / max(counts.sum() - full.sum(), 1.0))
    # Without scatter within tasks, beyond rounding: that between them, or their size, or anything.
    largest = float(np.max(np.abs(own)))
    rounding = 1e-13 * largest
    pooled = float(next((size for size in (pooled, np.std(own[full]), largest) if size > rounding), 1.0))
    if not options.scale_targets:
        return level, np.full(len(own), pooled)
    apart = np.sqrt(spread / np.maximum(counts - 1, 1.0))
    return level, np.where(apart > rounding, apart, pooled)


def _with_ones(X: Array) -> Array:
    return np.column_stack([X, np.ones(len(X))])


def _fit_stage(
    data: TaskData, prior: Prior, options: Options, loss: Loss, occasions: Index | None, base: EvidenceFit | None
) -> EvidenceFit:
    """One stage: the fit that goes on from that before it or, where there was none, from a prior."""
    units, X, y, weights = _in_units(data, options, targets=loss.quadratic)
    K, counts, flat = data.n_tasks, np.split(weights, data.offsets[1:-1]), options.intercepts == "flat"
    dense, kernel, learn = options.dense and K > 1, options.kernel if K > 1 else None, options.temperature == 1
    if options.intercepts == "shrunk" or (flat and not loss.quadratic):
        # Contrasts take the place of flat intercepts for least squares alone.
        wide, X = FLAT if loss.quadratic else _GLM_FLAT, list(map(_with_ones, X))
        own = Exchangeable(v=wide, t=0.0, learned=()) if flat else Exchangeable(v=0.5, t=wide, learned=("v",))
        prior = prior.with_intercept(own)
    if base is not None:
        prior, loss = base.base_prior, base.loss
    found: Climb[Prior] | Climb[SitePoint]
    route: MeanRoute | DualRoute | SharedRoute | PrimalRoute
    if loss.quadratic:
        rows = TaskFactors.from_rows(X, y, counts, intercept=flat)
        if base is not None and options.errors == "shared":
            route, prior = _occasion_route(data, X, y, weights, base, occasions)
        elif kernel is not None and data.shared and options.intercepts != "shrunk":
            route = _shared_route(X[0], y, counts[0], flat)
        else:
            route = _route(rows, dense)
        if not learn:
            prior = replace(prior, noise=PerTask(options.temperature * prior.noise.variances, learned=False))
        elif kernel is not None and options.errors != "shared":
            # Noise learned together with a rich covariance collapses where n is at most d.
            prior = replace(related(prior, kernel), noise=PerTask(prior.noise.variances, learned=kernel.plain))
        found = climb(lambda point: point.evaluated(route), prior, gain=options.tol, max_iter=options.max_iter)
        prior, dof = found.point, rows.dof
        noise: Noise = prior.noise.scaled(1 / options.temperature)
        constant = float(dof @ (np.log(2 * np.pi) + 2 * np.log(units.sizes)))
    else:
        if options.errors == "shared":
            raise refused("errors", options.errors, f"the {loss.name} loss has independent errors")
        dispersion, squares = _dispersions(data, loss, options), weights @ np.concatenate(X) ** 2 / weights.sum()
        # The sites hold the errors.
        prior = replace(prior, noise=PerTask(np.ones(K), learned=False), predictor=squares)
        prior = prior if kernel is None or not learn else related(prior, kernel)
        problem = GLMProblem(X, np.concatenate(y), weights / options.temperature, loss, dispersion[data.task_of_row])
        found = climb_sites(
            problem, prior, lambda rows: _route(rows, dense), gain=options.tol, max_iter=options.max_iter, learn=learn
        )
        prior, loss, settled = found.point.prior, found.point.problem.loss, found.point.settled
        route, constant, noise = settled.told, settled.correction, PerTask(dispersion)
        dof = route.rows.used + route.rows.spare
    s = route.derivatives(prior)
    trace, variances = s.noise[0], prior.noise.variances
    used = variances * trace if trace.ndim == 1 else np.diag(prior.noise.covariance @ trace)
    return EvidenceFit(
        replace(prior, noise=noise),
        route.posterior(prior),
        units,
        options,
        np.array([part.sum() for part in counts]),
        np.clip(dof - used, 0.0, None),
        -0.5 * (s.value + constant),
        found.objective,
        found.promise,
        found.n_iter,
        found.converged,
        type(route).__name__ if loss.quadratic else "Sites",
        loss,
    )


def _route(rows: TaskFactors, dense: bool) -> RowRoute:
    """The cheapest route that can do it."""
    K, r, d = rows.R.shape
    total = int(rows.used.sum())
    by_mean = K * (r**3 + 3.0 * r * r * d + 2.0 * r * d * d) + 3.0 * d**3
    by_dual = float(total) ** 3 + 2.0 * total**2 * d
    if not dense and (by_mean <= by_dual or total > LARGEST_DUAL):
        if K * r * d + d * d > LARGEST_MEAN:
            raise DataError(
                f"{K} tasks with {d} features each and {total} compressed rows are beyond every exact route (4 GiB); "
                "use fewer features, or mssl.MSSLRegressor."
            )
        return MeanRoute(rows)
    if total > LARGEST_DUAL:
        raise DataError(
            f"prior 'iw' needs the covariance of {total} compressed rows; up to {LARGEST_DUAL} are done. "
            f" Use prior='mean+ard', which scales."
        )
    return DualRoute(rows)


def _shared_route(X: Array, y: list[Array], weights: Array, flat: bool) -> SharedRoute:
    """One design: compressed once, with the products of what no feature explains."""
    total, _, table = turned(X, np.column_stack(y), weights, flat)
    d = X.shape[1]
    table, outside = triangle(table, d)
    spare = max(total - flat, 0.0) - len(table)
    return SharedRoute(table[:, :d], table[:, d:], spare, outside.T @ outside)


def _numbers(data: TaskData, occasions: Index) -> tuple[Index, bool]:
    """For each flat row its occasion's number, and whether no task has two rows on one occasion."""
    number = np.unique(occasions, return_inverse=True)[1].ravel()
    return number, len(np.unique(number * data.n_tasks + data.task_of_row)) == len(number)


def can_share(data: TaskData, occasions: Index | None, d: int) -> bool:
    """Whether errors shared on occasions can be modelled: occasions of several tasks, not too many weights."""
    if occasions is None or data.n_tasks < 2 or data.n_tasks * d > LARGEST_PRIMAL:
        return False
    number, paired = _numbers(data, occasions)
    return paired and bool(np.mean(np.bincount(number) >= 2) > 0.5)


def _occasion_route(
    data: TaskData, X: list[Array], y: list[Array], weights: Array, base: EvidenceFit, occasions: Index | None
) -> tuple[PrimalRoute, Prior]:
    """The route of errors shared on occasions, and the prior that its climb begins with."""
    if occasions is None:
        raise refused("errors", "shared", "shared errors need occasions: shared or aligned rows, or groups")
    (number, paired), task = _numbers(data, occasions), data.task_of_row
    if not paired:
        raise DataError(
            "Some task has two rows in one group, so that errors of tasks cannot be paired; use "
            "residual_covariance='independent'."
        )
    K, d = data.n_tasks, X[0].shape[1]
    if K * d > LARGEST_PRIMAL:
        raise DataError(
            f"Errors shared on occasions need the precision of {K * d} weights; up to {LARGEST_PRIMAL} are done. Use "
            "residual_covariance='independent'."
        )
    n, flat = int(number.max()) + 1, base.options.intercepts == "flat"
    seen, (Y, residual), counts = np.zeros((n, K), dtype=bool), np.zeros((2, n, K)), np.ones(n)
    seen[number, task], counts[number] = True, weights
    Y[number, task] = np.concatenate(y)
    design = X[0][:, None, :]
    if not data.shared:
        design = np.zeros((n, K, d))
        design[number, task] = np.concatenate(X)
    # Errors begin with equal correlations between all tasks: the mean one of the residuals of the fit before.
    fitted = [block @ w for block, w in zip(X, base.posterior.coef, strict=True)]
    residual[number, task] = np.concatenate(y) - np.concatenate(fitted)
    size = np.sqrt(np.sum(residual**2, axis=0) / np.maximum(seen.sum(axis=0), 1))
    both = seen.T.astype(float) @ seen
    moments = residual.T @ residual / np.maximum(both, 1.0) / np.maximum(np.outer(size, size), 1e-300)
    pairs = ~np.eye(K, dtype=bool) & (both > 2)
    rho = float(np.clip(moments[pairs].mean(), 0.0, 0.95)) if pairs.any() else 0.0
    prior, complete = base.base_prior, bool(seen.all())
    if flat and not complete:
        # Incomplete occasions: the intercept is a column with a wide prior instead of a contrast.
        design = np.concatenate([design, seen[:, :, None].astype(float)], axis=2)
        prior = prior.with_intercept(Exchangeable(mean=False, v=FLAT, t=0.0))
    sd = np.sqrt(prior.noise.variances)
    target = ((1 - rho) * np.eye(K) + rho) * np.outer(sd, sd)
    route = PrimalRoute(design, Y, seen, counts, float(flat and complete))
    return route, replace(prior, noise=SharedNoise(target, target))


def _dispersions(data: TaskData, loss: Loss, options: Options) -> Array:
    """Dispersion of each task's targets, from fits of single tasks; one where the loss has none.

    Tasks without rows have the mean of the others.
    """
    if not loss.has_dispersion:
        return np.ones(data.n_tasks)
    kept = data.n_rows > 0
    part = replace(data, tasks=data.tasks[kept], offsets=np.append(0, np.cumsum(data.n_rows[kept])))
    found = prepare(part, loss, Settings(fit_intercept=options.intercepts != "none")).noise
    dispersions = np.full(data.n_tasks, float(found.mean()))
    dispersions[kept] = found
    return dispersions


def join_task(fit: EvidenceFit, X: Array, y: Array) -> EvidenceFit:
    """The fit with one task more, whose prior is what the others say about a new task.

    Parameters
    ----------
    fit : EvidenceFit
        The fit.
    X : ndarray of shape (n, d)
        Features of the task's rows.
    y : ndarray of shape (n,)
        Its targets.
    """
    U, mean, covariance = fit.new_prior(X)
    level, size = float(fit.all_units.level[-1]), float(fit.all_units.sizes[-1])
    noise = max(fit.noise(None) / size**2, 1e-300)
    if fit.loss.quadratic:
        post, cov = _update(U, mean, covariance, np.full(len(y), 1 / noise), (y - level) / size / noise)
    else:
        problem = GLMProblem([U], y, np.ones(len(y)), fit.loss, np.full(len(y), noise))
        mean = np.append(mean[:-1], mean[-1] + level)  # that of free intercepts, which predictions add

        def marginals(sites: Sites) -> tuple[Array, Array, tuple[Array, Array]]:
            post, cov = _update(U, mean, covariance, *sites)
            return U @ post, np.maximum(np.sum(U * (U @ cov), axis=1), 1e-14), (post, cov)

        post, cov = problem.settled(problem.start(), marginals, 1e-8).told
        post[-1] -= level
    edf = float(len(post) - np.trace(np.linalg.lstsq(covariance, cov, rcond=None)[0]))
    return replace(fit, joined=[*fit.joined, JoinedTask(post, cov, float(len(y)), max(edf, 0.0))])


def _update(U: Array, mean: Array, covariance: Array, precision: Array, response: Array) -> tuple[Array, Array]:
    """Posterior of a Gaussian prior and Gaussian sites of the rows."""
    root = np.sqrt(precision)
    A = U * root[:, None]
    CA = covariance @ A.T
    V = np.eye(len(A)) + A @ CA
    target = response / root - A @ mean
    return mean + CA @ np.linalg.solve(V, target), covariance - CA @ np.linalg.solve(V, CA.T)
