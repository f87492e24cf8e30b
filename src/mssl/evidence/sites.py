r"""Gaussian sites in place of a likelihood, so that the same engine serves every loss.

Row i has a site with precision :math:`\tilde\tau_i` and response :math:`\tilde\mu_i = \tilde\nu_i/\tilde\tau_i`;
rows times :math:`\sqrt{\tilde\tau}` have unit noise. Sites come from expectation propagation: the cavity (the posterior
of the predictor without the row), times the likelihood, has moments that the site makes the posterior match. With a
wide posterior that is far better than a curvature at the mode.

.. math:: -2 \log Z_{EP} = -2 \log N(\sqrt{\tilde\tau}\tilde\mu; 0, V) - \sum_i \Bigl[2 \log \hat Z_i
          + \log\bigl(1 + \tilde\tau_i/\tau_i\bigr)
          + \frac{\tau_i \tilde\tau_i}{\tau_i + \tilde\tau_i} (\mu_i - \tilde\mu_i)^2\Bigr]

with cavity precision τ and mean μ (Rasmussen & Williams 2006, eq. 3.65). At the sites' fixed point the derivatives in
the hyperparameters are those of the Gaussian problem, and the derivative in a parameter of the loss is the mean of
:math:`\partial \log p/\partial\theta` under the tilted distributions. The climb moves both, the sites follow inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from mssl._typing import Array
from mssl.data.factors import TaskFactors
from mssl.evidence.climb import climb
from mssl.evidence.posterior import WeightPosterior
from mssl.evidence.prior import Derivatives, Prior
from mssl.evidence.routes import Route
from mssl.losses import Loss

SHARE = 0.9  # Largest share of a step of the sites that is taken; less where they swing.
TOGETHER = 10  # Sweeps after which all copies of a heavy row move as one, if they go further than their deviation.
_LEAST = 1e-10  # Least precision of a site.
_MOST_SWEEPS = 100  # At one point of a climb; five times the limit of points in all.

T = TypeVar("T")


class Sites(NamedTuple):
    """Precisions τ̃ and precision-weighted responses ν̃ = τ̃ μ̃ of all rows, task by task.

    A row of weight c has c equal sites, so that weights are the same as repeated rows.
    """

    precision: Array
    response: Array


@dataclass(frozen=True, eq=False)
class GLMProblem:
    """Rows of a likelihood and the way to its sites.

    Attributes
    ----------
    blocks : sequence of K arrays of shape (n_k, d)
        Features of each task, the intercept's column last.
    y : ndarray of shape (N,)
        Targets, task by task.
    weights : ndarray of shape (N,)
        How often each row counts; divided by the temperature.
    loss : Loss
        The loss of one row.
    dispersion : ndarray of shape (N,)
        Dispersion φ of each row.
    """

    blocks: Sequence[Array]
    y: Array
    weights: Array
    loss: Loss
    dispersion: Array

    def start(self) -> Sites:
        """Sites of the loss's curvature at the one predictor that suits all rows; it is drawn to 0 a little."""
        eta = 0.0
        for _ in range(20):
            slopes, curves = self.loss.derivatives(self.y, np.full(len(self.y), eta))
            step = (self.weights @ slopes + 1e-2 * eta) / (self.weights @ np.maximum(curves, 0.0) + 1e-2)
            eta -= float(np.clip(step, -2.0, 2.0))
        slopes, curves = self.loss.derivatives(self.y, np.full(len(self.y), eta))
        precision = np.maximum(curves / self.dispersion, _LEAST)
        return Sites(precision, precision * eta - slopes / self.dispersion)

    def rows(self, sites: Sites) -> TaskFactors:
        """The Gaussian problem with unit noise that the sites stand for."""
        root = np.sqrt(sites.precision)
        ends = np.cumsum([len(X) for X in self.blocks])[:-1]
        roots, targets = np.split(root, ends), np.split(sites.response / root, ends)
        blocks = [X * own[:, None] for X, own in zip(self.blocks, roots, strict=True)]
        return TaskFactors.from_rows(blocks, targets, np.split(self.weights, ends), intercept=False)

    def marginals(
        self, route: Route, prior: Prior, rows: TaskFactors, s: Derivatives, sites: Sites
    ) -> tuple[Array, Array]:
        """Mean and variance of every row's predictor."""
        if s.alpha is not None and s.diagonal is not None and len(s.alpha) == len(self.y):
            # Rows that were not compressed: √τ̃ f has mean z − α and variance 1 − P_ii.
            total = self.weights * sites.precision
            return (rows.flat()[1] - s.alpha) / np.sqrt(total), np.maximum(1 - s.diagonal, 1e-12) / total
        posterior = route.posterior(prior)
        means = np.concatenate([X @ w for X, w in zip(self.blocks, posterior.coef, strict=True)])
        variances = np.concatenate([posterior.variance(X, k) for k, X in enumerate(self.blocks)])
        return means, np.maximum(variances, 1e-14)

    def cavities(self, sites: Sites, mean: Array, variance: Array, *, together: bool = False) -> tuple[Array, ...]:
        """Precision and mean of every row's predictor without its site, and the power of the likelihood that it lacks.

        One site is taken out and put back, or all there is of a row of weight below 1 (power EP, Minka 2004): what is
        more than all would leave a cavity without precision. A cavity keeps a share of the marginal precision, however
        much of it the row's own site holds.
        """
        power = self.weights if together else np.minimum(self.weights, 1.0)
        cavity = np.maximum(1 / variance - power * sites.precision, 1e-6 / variance)
        return cavity, (mean / variance - power * sites.response) / cavity, power

    def update(
        self, sites: Sites, mean: Array, variance: Array, share: float = SHARE, *, together: bool = False
    ) -> tuple[Sites, Array, float]:
        """The next sites, by how much predictors move beside their deviations, and the correction of the present ones.

        The correction is what −2 log Z of the Gaussian problem lacks; ``share`` of a step is taken.
        """
        cavity, centre, power = self.cavities(sites, mean, variance, together=together)
        log_z, tilted, spread = self.loss.tilted(self.y, centre, 1 / cavity, power / self.dispersion)
        # A bound on the loss's curvature bounds a site's precision too.
        bound = np.inf if self.loss.curvature_bound is None else self.loss.curvature_bound / self.dispersion
        precision = np.clip((1 / spread - cavity) / power, _LEAST, bound)
        response = (cavity * (tilted - centre)) / power + precision * tilted
        misfit = np.concatenate([(tilted - mean) / np.sqrt(variance), np.log(spread / variance)])
        damped = (1 - share) * sites.precision + share * precision
        own = power * sites.precision
        apart = centre - sites.response / sites.precision
        lacks = 2 * log_z + np.log1p(own / cavity) + cavity * own / (cavity + own) * apart**2
        correction = -float((self.weights / power) @ lacks) - 2 * float(
            self.weights @ self.loss.log_base(self.y, self.dispersion)
        )
        moved = Sites(damped, (1 - share) * sites.response + share * response)
        return moved, misfit, correction

    def settled(
        self, sites: Sites, marginals: Callable[[Sites], tuple[Array, Array, T]], tol: float
    ) -> tuple[Sites, float, T, int, bool]:
        """Sites that move by at most ``tol``, their correction, what ``marginals`` tells of them, sweeps, success."""
        share, misfit, change = SHARE, np.zeros(2 * len(self.y)), 0.0
        for sweep in range(1, _MOST_SWEEPS + 1):
            mean, variance, told = marginals(sites)
            # Steps of a heavy row are those of its copies; where these lead nowhere near, all of them move as one.
            together = change > 1 and sweep > TOGETHER
            before = misfit
            moved, misfit, correction = self.update(sites, mean, variance, share, together=together)
            change = float(np.max(np.abs(misfit), initial=0.0))
            if change <= tol and not together:
                return sites, correction, told, sweep, True
            if sweep < _MOST_SWEEPS:
                sites = moved
            # Sites that turn round have gone too far.
            back = np.tile(self.weights, 2) @ (misfit * before) < 0
            share = max(0.1, 0.6 * share) if back else min(SHARE, 1.2 * share)
        return sites, correction, told, _MOST_SWEEPS, False

    def slopes(self, sites: Sites, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Slopes of −2 log Z in the logarithms of the loss's learned parameters, and the information as a metric."""
        cavity, centre, power = self.cavities(sites, mean, variance)
        _, f, mass = self.loss.tilted_rule(self.y, centre, 1 / cavity, power / self.dispersion)
        each = self.loss.parameter_slopes(self.y[:, None], f, self.dispersion[:, None])
        averages = np.sum(each * mass, axis=2)
        return -2 * averages @ self.weights, 2 * averages**2 @ self.weights + 1e-6


@dataclass(eq=False)
class SitePoint:
    """A point of the climb: prior, the loss's parameters, and sites that have settled there."""

    prior: Prior
    problem: GLMProblem
    sites: Sites
    solved: Solved | None = None
    value: float = np.nan
    settled: bool = False

    def moved(self, step: Array) -> SitePoint:
        """The point at the end of a step; its sites start from the present ones."""
        count = len(self.problem.loss.learned)
        problem = self.problem
        if count:
            problem = replace(problem, loss=problem.loss.at(problem.loss.parameters * np.exp(step[:count])))
        return SitePoint(self.prior.moved(step[count:]), problem, self.sites)


class Solved(NamedTuple):
    """The Gaussian problem that sites stand for, solved."""

    rows: TaskFactors
    route: Route
    derivatives: Derivatives
    mean: Array
    variance: Array


@dataclass(frozen=True, eq=False)
class SiteClimb:
    """Where a climb ended; see :class:`mssl.evidence.climb.Climb`. ``value`` is −2 log Z."""

    prior: Prior
    loss: Loss
    sites: Sites
    rows: TaskFactors
    derivatives: Derivatives
    posterior: WeightPosterior
    value: float
    objective: float
    promise: float
    n_iter: int
    converged: bool


@dataclass(eq=False)
class _Ascent:
    """Evaluations of a climb, each with the sites at their fixed point."""

    make_route: Callable[[TaskFactors], Route]
    tol: float
    limit: int = 1500
    sweeps: int = 0

    def evaluate(self, point: SitePoint) -> tuple[float, Array, Array] | None:
        """Objective, slope and metric, or None where they cannot be computed."""
        problem, prior = point.problem, point.prior
        if self.sweeps >= self.limit:
            return None

        def marginals(sites: Sites) -> tuple[Array, Array, Solved]:
            rows = problem.rows(sites)
            route = self.make_route(rows)
            s = route.derivatives(prior)
            mean, variance = problem.marginals(route, prior, rows, s, sites)
            return mean, variance, Solved(rows, route, s, mean, variance)

        try:
            point.sites, correction, solved, sweeps, point.settled = problem.settled(point.sites, marginals, self.tol)
        except np.linalg.LinAlgError:
            return None
        self.sweeps += sweeps
        point.solved, value = solved, solved.derivatives.value + correction
        if not np.isfinite(value):
            return None
        slope, metric = prior.slopes(solved.derivatives)
        if problem.loss.learned:
            own, information = problem.slopes(point.sites, solved.mean, solved.variance)
            slope, metric = np.append(own, slope), np.append(information, metric)
        point.value = value
        return prior.objective(value), slope, metric


def climb_sites(
    problem: GLMProblem,
    start: Prior,
    make_route: Callable[[TaskFactors], Route],
    *,
    gain: float = 1e-3,
    max_iter: int = 300,
    learn: bool = True,
) -> SiteClimb:
    """Climb the evidence of any likelihood; sites settle at every point.

    Parameters
    ----------
    problem : GLMProblem
        Rows and loss.
    start : Prior
        Where to begin; its noise is kept at one, the sites hold the errors.
    make_route : callable
        The route for compressed rows.
    gain : float
        Gain of −2 log Z that is not worth a step.
    max_iter : int
        Limit of the points.
    learn : bool
        Whether hyperparameters are learned, or kept.
    """
    # What sites lack changes −2 log Z by its square, row by row: a climb must not see that.
    ascent = _Ascent(make_route, float(np.sqrt(gain / max(100.0, problem.weights.sum()))), 5 * max_iter)
    point = SitePoint(start, problem, problem.start())
    if learn:
        found = climb(ascent.evaluate, point, gain=gain, max_iter=max_iter)
        point, objective, promise, converged = found.point, found.objective, found.promise, found.converged
    else:
        here = ascent.evaluate(point)
        if here is None:
            raise np.linalg.LinAlgError("the evidence cannot be computed")
        objective, promise, converged = here[0], 0.0, True
    assert point.solved is not None  # for the type checker
    rows, route, s, _, _ = point.solved
    return SiteClimb(
        point.prior,
        point.problem.loss,
        point.sites,
        rows,
        s,
        route.posterior(point.prior),
        point.value,
        objective,
        promise,
        ascent.sweeps,
        converged and point.settled,
    )
