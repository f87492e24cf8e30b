r"""Expectation propagation: Gaussian sites replace the likelihood, so that the Gaussian routes serve every loss.

Row i has a site with precision :math:`\tilde\tau_i` and response :math:`\tilde\mu_i = \tilde\nu_i/\tilde\tau_i`. Rows
times :math:`\sqrt{\tilde\tau}` have unit noise. The cavity is the posterior of the row's predictor without its site.
The site is chosen so that the posterior has the moments of the cavity times the likelihood. For a wide posterior this
is much more accurate than Laplace's approximation, which uses the curvature at the mode.

.. math:: -2 \log Z_{EP} = -2 \log N(\sqrt{\tilde\tau}\tilde\mu; 0, V) - \sum_i \Bigl[2 \log \hat Z_i
          + \log\bigl(1 + \tilde\tau_i/\tau_i\bigr)
          + \frac{\tau_i \tilde\tau_i}{\tau_i + \tilde\tau_i} (\mu_i - \tilde\mu_i)^2\Bigr]

with cavity precision τ and mean μ (Rasmussen & Williams 2006, eq. 3.65). At the fixed point of the sites, the
derivatives in the hyperparameters are those of the Gaussian problem. The derivative in a parameter of the loss is the
mean of :math:`\partial \log p/\partial\theta` under the tilted distributions. The climb optimises both kinds of
parameters, and the sites converge at each of its points.
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
from mssl.evidence.climb import ROUGH_GAIN, Climb, Evaluated, climb
from mssl.evidence.prior import Prior
from mssl.evidence.routes import DualRoute, MeanRoute
from mssl.losses import NODES, Loss
from mssl.solvers.base import MOST_STEPS, SMALLEST_VARIANCE

# Largest damping factor of a sweep: a larger one needs fewer sweeps but oscillates more often. It falls when the sites
# oscillate.
SHARE = 0.9
# Number of sweeps after which all copies of a heavy row move together if they still move by more than a standard
# deviation: a safeguard against slow convergence.
TOGETHER = 10

T = TypeVar("T")
RowRoute = MeanRoute | DualRoute


class Sites(NamedTuple):
    """Precisions τ̃ and precision-weighted responses ν̃ = τ̃ μ̃ of all rows, task by task.

    A row of weight c has c equal sites, so that a weight has the same effect as repeating the row.
    """

    precision: Array
    response: Array


class Settled(NamedTuple, Generic[T]):
    """The sites after their sweeps.

    Attributes
    ----------
    sites : Sites
        The sites.
    correction : float
        Difference of −2 log Z from that of the Gaussian problem that the sites define.
    mean, variance : ndarrays of shape (N,)
        Moments of each row's predictor.
    solution
        The third return value of ``marginals`` at these sites.
    sweeps : int
        Number of sweeps.
    done : bool
        Whether the sites converged.
    """

    sites: Sites
    correction: float
    mean: Array
    variance: Array
    solution: T
    sweeps: int
    done: bool


@dataclass(frozen=True, eq=False)
class GLMProblem:
    """The rows of a generalised linear model, and the computation of their sites.

    Attributes
    ----------
    blocks : sequence of K arrays of shape (n_k, d)
        Features of each task, the intercept's column last.
    y : ndarray of shape (N,)
        Targets, task by task.
    weights : ndarray of shape (N,)
        Frequency weight of each row divided by the temperature.
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
        """Return initial sites: a quadratic expansion of the loss at one constant, slightly penalised predictor."""
        eta = 0.0
        for _ in range(20):
            slopes, curves = self.loss.derivatives(self.y, np.full(len(self.y), eta))
            step = (self.weights @ slopes + 1e-2 * eta) / (self.weights @ np.maximum(curves, 0.0) + 1e-2)
            eta -= float(np.clip(step, -2.0, 2.0))
        slopes, curves = self.loss.derivatives(self.y, np.full(len(self.y), eta))
        precision = np.maximum(curves / self.dispersion, SMALLEST_VARIANCE)
        return Sites(precision, precision * eta - slopes / self.dispersion)

    @cached_property
    def _rows(self) -> Array:
        return np.concatenate(self.blocks)

    @cached_property
    def _parts(self) -> list[slice]:
        ends = np.cumsum([0, *map(len, self.blocks)]).tolist()
        return [slice(first, last) for first, last in pairwise(ends)]

    def rows(self, sites: Sites) -> TaskFactors:
        """Return the Gaussian problem with unit noise that the sites define."""
        table = np.column_stack([self._rows, sites.response / sites.precision])
        table *= np.sqrt(self.weights * sites.precision)[:, None]
        n = np.array([self.weights[part].sum() for part in self._parts])
        return TaskFactors.from_tables(n, [table[part] for part in self._parts])

    def marginals(self, route: RowRoute, prior: Prior, sites: Sites) -> tuple[Array, Array]:
        """Return the mean and variance of each row's predictor."""
        if route.rows.used.sum() == len(self.y):
            # If the rows were not compressed, √τ̃ f has mean z − α and variance 1 − P_ii.
            total, (alpha, diagonal) = self.weights * sites.precision, route.at(prior).inverse_rows()
            mean = sites.response / sites.precision - alpha / np.sqrt(total)
            return mean, np.maximum(1 - diagonal, 1e-12) / total
        posterior, turned, coef = route.at(prior).posterior(), np.empty_like(self._rows), np.empty_like(self._rows)
        for part, own, w in zip(self._parts, posterior.covariances(), posterior.coef, strict=True):
            np.matmul(self._rows[part], own, out=turned[part])
            coef[part] = w
        means, variances = (np.einsum("ij,ij->i", self._rows, along) for along in (coef, turned))
        return means, np.maximum(variances, 1e-14)

    def cavities(self, sites: Sites, mean: Array, variance: Array, *, together: bool = False) -> tuple[Array, ...]:
        """Return the precision and mean of each row's cavity, and the power of the likelihood that it leaves out.

        The cavity leaves out one of the row's equal sites or, for a weight below 1, the whole fractional site (power
        EP, Minka 2004). Leaving out more than the row's weight could make the precision negative. As a safeguard the
        cavity keeps at least a small share of the marginal precision.
        """
        power = self.weights if together else np.minimum(self.weights, 1.0)
        cavity = np.maximum(1 / variance - power * sites.precision, 1e-6 / variance)
        return cavity, (mean / variance - power * sites.response) / cavity, power

    def update(
        self, sites: Sites, mean: Array, variance: Array, share: float = SHARE, *, together: bool = False
    ) -> tuple[Sites, Array, float]:
        """Return the next sites, the moves of the predictors in standard deviations, and the present correction.

        The correction is the difference of −2 log Z from that of the Gaussian problem. The step is damped by ``share``.
        """
        cavity, centre, power = self.cavities(sites, mean, variance, together=together)
        log_z, tilted, spread = self.loss.tilted(self.y, centre, 1 / cavity, power / self.dispersion, mean)
        # A bound on the curvature of the loss also bounds the precision of a site.
        bound = np.inf if self.loss.curvature_bound is None else self.loss.curvature_bound / self.dispersion
        precision = np.clip((1 / spread - cavity) / power, SMALLEST_VARIANCE, bound)
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
        """Sweep until the squared moves of the predictors, in standard deviations, sum to at most ``tol``."""
        share, misfit = SHARE, np.zeros(2 * len(self.y))
        weights = np.tile(self.weights, 2)
        for sweep in range(1, MOST_STEPS + 1):
            mean, variance, solution = marginals(sites)
            # The copies of a heavy row move one by one at first; if that does not converge, all of them move together.
            together = sweep > TOGETHER and float(np.max(np.abs(misfit))) > 1
            before = misfit
            moved, misfit, correction = self.update(sites, mean, variance, share, together=together)
            done = float(weights @ misfit**2) <= tol and not together
            if done or sweep == MOST_STEPS:
                break
            # A change of direction means that the step was too long.
            back = weights @ (misfit * before) < 0
            share = max(0.1, 0.6 * share) if back else min(SHARE, 1.2 * share)
            sites = moved
        return Settled(sites, correction, mean, variance, solution, sweep, done)

    def slopes(self, sites: Sites, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the gradient of −2 log Z in the logarithms of the loss's parameters, and the information as metric."""
        cavity, centre, power = self.cavities(sites, mean, variance)
        mode, width, _, mass = self.loss.tilted_rule(self.y, centre, 1 / cavity, power / self.dispersion)
        f = mode[:, None] + width[:, None] * NODES
        each = self.loss.parameter_slopes(self.y[:, None], f, self.dispersion[:, None])
        averages = np.sum(each * mass, axis=2) / mass.sum(axis=1)
        return -2 * averages @ self.weights, 2 * averages**2 @ self.weights + 1e-6


@dataclass(eq=False)
class SitePoint:
    """A point of the climb: the prior, the parameters of the loss, and the converged sites."""

    prior: Prior
    problem: GLMProblem
    sites: Sites
    found: Settled[RowRoute] | None = None

    def moved(self, step: Array) -> SitePoint:
        """Return the point at the end of a step; its sites start from the present ones."""
        count = len(self.problem.loss.learned)
        problem = self.problem
        if count:
            problem = replace(problem, loss=problem.loss.at(problem.loss.parameters * np.exp(step[:count])))
        return SitePoint(self.prior.moved(step[count:]), problem, self.sites)

    def evaluated(self, make_route: Callable[[TaskFactors], RowRoute], tol: float) -> Evaluated | None:
        """Return objective, gradient and metric at the fixed point of the sites, or None if they cannot be computed."""
        problem, prior = self.problem, self.prior

        def marginals(sites: Sites) -> tuple[Array, Array, RowRoute]:
            route = make_route(problem.rows(sites))
            return *problem.marginals(route, prior, sites), route

        try:
            self.found = problem.settled(self.sites, marginals, tol)
            s = self.found.solution.at(prior).derivatives()
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
        """The converged sites, with the route of the Gaussian problem that they define as their solution."""
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
    """Maximise the evidence of any likelihood; the sites converge at each point.

    Parameters
    ----------
    problem : GLMProblem
        Rows and loss.
    start : Prior
        The starting point. Its noise variance stays 1, since the sites represent the noise.
    make_route : callable
        Returns the route for compressed rows.
    gain : float
        Tolerance: a decrease of −2 log Z that is not worth a step.
    max_iter : int
        Maximum number of points. The result counts sweeps over all rows, at most five times as many.
    learn : bool
        Whether the hyperparameters are learned or kept.
    """
    # The error of a site changes −2 log Z by its square. The climb must not see this change, so that the tolerance of
    # the sites is a share of the climb's.
    sweeps, share = 0, 0.3

    def evaluate(point: SitePoint) -> Evaluated | None:
        nonlocal sweeps
        answer = None if sweeps >= 5 * max_iter else point.evaluated(make_route, share * gain)
        sweeps += 0 if point.found is None else point.found.sweeps
        return answer

    ended = climb(evaluate, SitePoint(start, problem, problem.start()), gain=gain, max_iter=max_iter if learn else 1)
    if learn and not ended.converged and gain < ROUGH_GAIN:  # With more accurate sites the climb can continue.
        share *= 1e-3
        with suppress(np.linalg.LinAlgError):
            ended = climb(evaluate, ended.point, gain=gain, max_iter=max_iter)
    promise = ended.promise if learn else 0.0
    promise = promise if ended.point.settled.done else np.inf
    return replace(ended, promise=promise, n_iter=sweeps, converged=promise <= gain)
