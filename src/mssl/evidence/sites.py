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
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from mssl._typing import Array
from mssl.data.factors import TaskFactors
from mssl.evidence.climb import ROUGH_GAIN, SMALLEST, Climb, Evaluated, climb
from mssl.evidence.prior import Prior
from mssl.evidence.routes import DualRoute, MeanRoute
from mssl.losses import NODES, Loss

SHARE = 0.9  # Largest share of a step of the sites that is taken; less where they swing.
TOGETHER = 10  # Sweeps after which all copies of a heavy row move as one, if they go further than their deviation.
_MOST_SWEEPS = 100  # At one point of a climb; five times the limit of points in all.

T = TypeVar("T")
RowRoute = MeanRoute | DualRoute


class Sites(NamedTuple):
    """Precisions τ̃ and precision-weighted responses ν̃ = τ̃ μ̃ of all rows, task by task.

    A row of weight c has c equal sites, so that weights are the same as repeated rows.
    """

    precision: Array
    response: Array


class Settled(NamedTuple, Generic[T]):
    """Sites, what −2 log Z of their Gaussian problem lacks, predictors' moments, and what ``marginals`` tells."""

    sites: Sites
    correction: float
    mean: Array
    variance: Array
    told: T
    sweeps: int
    done: bool


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
        precision = np.maximum(curves / self.dispersion, SMALLEST)
        return Sites(precision, precision * eta - slopes / self.dispersion)

    @cached_property
    def _rows(self) -> Array:
        return np.concatenate(self.blocks)

    @cached_property
    def _parts(self) -> list[slice]:
        ends = np.cumsum([0, *map(len, self.blocks)]).tolist()
        return [slice(first, last) for first, last in pairwise(ends)]

    def rows(self, sites: Sites) -> TaskFactors:
        """The Gaussian problem with unit noise that the sites stand for."""
        table = np.column_stack([self._rows, sites.response / sites.precision])
        table *= np.sqrt(self.weights * sites.precision)[:, None]
        n = np.array([self.weights[part].sum() for part in self._parts])
        return TaskFactors.from_tables(n, [table[part] for part in self._parts])

    def marginals(self, route: RowRoute, prior: Prior, sites: Sites) -> tuple[Array, Array]:
        """Mean and variance of every row's predictor."""
        if route.rows.used.sum() == len(self.y):
            # Rows that were not compressed: √τ̃ f has mean z − α and variance 1 − P_ii.
            total, (alpha, diagonal) = self.weights * sites.precision, route.at(prior).inverse_rows()
            mean = sites.response / sites.precision - alpha / np.sqrt(total)
            return mean, np.maximum(1 - diagonal, 1e-12) / total
        posterior, turned, coef = route.posterior(prior), np.empty_like(self._rows), np.empty_like(self._rows)
        for part, own, w in zip(self._parts, posterior.covariances(), posterior.coef, strict=True):
            np.matmul(self._rows[part], own, out=turned[part])
            coef[part] = w
        means, variances = (np.einsum("ij,ij->i", self._rows, along) for along in (coef, turned))
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
        log_z, tilted, spread = self.loss.tilted(self.y, centre, 1 / cavity, power / self.dispersion, mean)
        # A bound on the loss's curvature bounds a site's precision too.
        bound = np.inf if self.loss.curvature_bound is None else self.loss.curvature_bound / self.dispersion
        precision = np.clip((1 / spread - cavity) / power, SMALLEST, bound)
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

    def settled(self, sites: Sites, marginals: Callable[[Sites], tuple[Array, Array, T]], tol: float) -> Settled[T]:
        """Sites whose moves, as squares of predictors' deviations, sum to at most ``tol``."""
        share, misfit = SHARE, np.zeros(2 * len(self.y))
        weights = np.tile(self.weights, 2)
        for sweep in range(1, _MOST_SWEEPS + 1):
            mean, variance, told = marginals(sites)
            # Steps of a heavy row are those of its copies; where these lead nowhere near, all of them move as one.
            together = sweep > TOGETHER and float(np.max(np.abs(misfit))) > 1
            before = misfit
            moved, misfit, correction = self.update(sites, mean, variance, share, together=together)
            done = float(weights @ misfit**2) <= tol and not together
            if done or sweep == _MOST_SWEEPS:
                break
            # Sites that turn round have gone too far.
            back = weights @ (misfit * before) < 0
            share = max(0.1, 0.6 * share) if back else min(SHARE, 1.2 * share)
            sites = moved
        return Settled(sites, correction, mean, variance, told, sweep, done)

    def slopes(self, sites: Sites, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Slopes of −2 log Z in the logarithms of the loss's learned parameters, and the information as a metric."""
        cavity, centre, power = self.cavities(sites, mean, variance)
        mode, width, _, mass = self.loss.tilted_rule(self.y, centre, 1 / cavity, power / self.dispersion)
        f = mode[:, None] + width[:, None] * NODES
        each = self.loss.parameter_slopes(self.y[:, None], f, self.dispersion[:, None])
        averages = np.sum(each * mass, axis=2) / mass.sum(axis=1)
        return -2 * averages @ self.weights, 2 * averages**2 @ self.weights + 1e-6


@dataclass(eq=False)
class SitePoint:
    """A point of the climb: prior, the loss's parameters, and sites that have settled there."""

    prior: Prior
    problem: GLMProblem
    sites: Sites
    found: Settled[RowRoute] | None = None

    def moved(self, step: Array) -> SitePoint:
        """The point at the end of a step; its sites start from the present ones."""
        count = len(self.problem.loss.learned)
        problem = self.problem
        if count:
            problem = replace(problem, loss=problem.loss.at(problem.loss.parameters * np.exp(step[:count])))
        return SitePoint(self.prior.moved(step[count:]), problem, self.sites)

    def evaluated(self, make_route: Callable[[TaskFactors], RowRoute], tol: float) -> Evaluated | None:
        """Objective, slope and metric with the sites at their fixed point; None where they cannot be computed."""
        problem, prior = self.problem, self.prior

        def marginals(sites: Sites) -> tuple[Array, Array, RowRoute]:
            route = make_route(problem.rows(sites))
            return *problem.marginals(route, prior, sites), route

        try:
            self.found = problem.settled(self.sites, marginals, tol)
            s = self.found.told.derivatives(prior)
        except np.linalg.LinAlgError:
            return None
        value = s.value + self.found.correction
        if not np.isfinite(value):
            return None
        self.sites = self.found.sites
        slope, metric = prior.slopes(s)
        if problem.loss.learned:
            own, information = problem.slopes(self.sites, self.found.mean, self.found.variance)
            slope, metric = np.append(own, slope), np.append(information, metric)
        return prior.objective(value), slope, metric

    @property
    def settled(self) -> Settled[RowRoute]:
        """The sites as they settled; the Gaussian problem that they stand for is what they tell."""
        assert self.found is not None  # for the type checker
        return self.found


def climb_sites(
    problem: GLMProblem,
    start: Prior,
    make_route: Callable[[TaskFactors], RowRoute],
    *,
    gain: float = 1e-3,
    max_iter: int = 300,
    learn: bool = True,
) -> Climb[SitePoint]:
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
        Limit of the points. Sweeps of the sites over all rows, which the answer counts, are at most five times as many.
    learn : bool
        Whether hyperparameters are learned, or kept.
    """
    sweeps, share = 0, 0.3  # What sites lack changes −2 log Z by its square, row by row: a climb must not see that.

    def evaluate(point: SitePoint) -> Evaluated | None:
        nonlocal sweeps
        answer = None if sweeps >= 5 * max_iter else point.evaluated(make_route, share * gain)
        sweeps += 0 if point.found is None else point.found.sweeps
        return answer

    made = climb(evaluate, SitePoint(start, problem, problem.start()), gain=gain, max_iter=max_iter if learn else 1)
    if learn and not made.converged and gain < ROUGH_GAIN:  # sites that are known better let it go on
        share *= 1e-3
        with suppress(np.linalg.LinAlgError):
            made = climb(evaluate, made.point, gain=gain, max_iter=max_iter)
    promise = made.promise if learn else 0.0
    promise = promise if made.point.settled.done else np.inf
    return replace(made, promise=promise, n_iter=sweeps, converged=promise <= gain)
