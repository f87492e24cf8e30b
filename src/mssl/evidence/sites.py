r"""Gaussian sites in place of a GLM's likelihood, so that the same engine serves labels and counts.

Row i has a site with precision :math:`\tilde\tau_i` and response :math:`\tilde\mu_i = \tilde\nu_i/\tilde\tau_i`;
rows times :math:`\sqrt{\tilde\tau}` have unit noise. For labels sites come from expectation propagation: the cavity
(the posterior of the predictor without the row), times the likelihood, has moments that the site makes the posterior
match. With a wide posterior that is far better than a curvature at the mode. For counts the curvature is enough.

.. math:: -2 \log Z_{EP} = -2 \log N(\sqrt{\tilde\tau}\tilde\mu; 0, V) - \sum_i \Bigl[2 \log \hat Z_i
          + \log\bigl(1 + \tilde\tau_i/\tau_i\bigr)
          + \frac{\tau_i \tilde\tau_i}{\tau_i + \tilde\tau_i} (\mu_i - \tilde\mu_i)^2\Bigr]

with cavity precision τ and mean μ (Rasmussen & Williams 2006, eq. 3.65). At a fixed point the derivatives in the
hyperparameters are those of the Gaussian problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from mssl._typing import Array
from mssl.data.factors import TaskFactors
from mssl.evidence.posterior import WeightPosterior
from mssl.evidence.prior import Hyper, Learner, Statistics
from mssl.evidence.routes import Route
from mssl.losses import Bernoulli, Loss

NODES = 32  # of Gauss–Hermite rules: 16 put the gradient off by up to half a per cent
DAMPING = 0.8  # share of an EP step that is taken
# Rounds after which sites that still go further than their standard deviations move together, row by row. Until then a
# row of weight c goes step by step as c copies do; ordinary fits take fewer.
PATIENCE = 10
_LEAST = 1e-10  # least precision of a site

_x, _w = np.polynomial.hermite.hermgauss(NODES)
_LOG_RULE = np.log(_w) + _x**2


@dataclass(frozen=True, eq=False)
class Sites:
    """Precisions and precision-weighted responses of all rows, task by task.

    A row of weight c has c equal sites, so that weights are the same as repeated rows.

    Attributes
    ----------
    precision : ndarray of shape (N,)
        τ̃ of one site.
    response : ndarray of shape (N,)
        ν̃ = τ̃ μ̃ of one site.
    correction : float
        What −2 log Z of the Gaussian problem lacks.
    eta : ndarray of shape (N,) or None
        The predictor whose curvature they have.
    """

    precision: Array
    response: Array
    correction: float = 0.0
    eta: Array | None = None


@dataclass(frozen=True, eq=False)
class SiteClimb:
    """Where a GLM's climb ended; see :class:`mssl.evidence.climb.Climb`."""

    hyper: Hyper
    sites: Sites
    rows: TaskFactors
    posterior: WeightPosterior
    objective: float
    residual: float
    n_iter: int
    converged: bool


def bernoulli_moments(sign: Array, power: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    r"""Normaliser (log), mean and variance of :math:`N(f; \mu, s) \, \sigma(\pm f)^c`.

    Parameters
    ----------
    sign : ndarray of shape (N,)
        +1 or −1, the label.
    power : ndarray of shape (N,)
        c, the weight of the row.
    mean, variance : ndarrays of shape (N,)
        Of the cavity.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.evidence.sites import bernoulli_moments
    >>> log_z, mean, variance = bernoulli_moments(np.ones(1), np.ones(1), np.zeros(1), np.ones(1))
    >>> np.exp(log_z).round(6).tolist(), bool(mean[0] > 0), bool(variance[0] < 1)
    ([0.5], True, True)
    """
    # The mode lies between the cavity's mean and where the likelihood's steepest slope would take it: Newton's steps on
    # a falling slope, replaced by halving where they leave the bracket.
    far = mean + sign * power * variance
    low, high = np.minimum(mean, far), np.maximum(mean, far)
    mode = mean + sign * power * variance * expit(-sign * mean) / (1 + 0.25 * power * variance)
    for _ in range(60):
        p = expit(-sign * mode)
        slope = (mean - mode) / variance + sign * power * p
        low, high = np.where(slope > 0, mode, low), np.where(slope > 0, high, mode)
        step = slope / (1 / variance + power * p * (1 - p))
        inside = (mode + step >= low) & (mode + step <= high)
        following = np.where(inside, mode + step, 0.5 * (low + high))
        done = np.all(np.abs(following - mode) <= 1e-9 * (1 + np.abs(mode)))
        mode = following
        if done:
            break
    p = expit(-sign * mode)
    width = 1 / np.sqrt(1 / variance + power * p * (1 - p))
    f = mode[:, None] + np.sqrt(2.0) * width[:, None] * _x
    log_f = -0.5 * (f - mean[:, None]) ** 2 / variance[:, None] - power[:, None] * np.logaddexp(0.0, -sign[:, None] * f)
    log_f = log_f + _LOG_RULE
    top = log_f.max(axis=1)
    mass = np.exp(log_f - top[:, None])
    total = mass.sum(axis=1)
    log_z = top + np.log(total) + np.log(width) - 0.5 * np.log(np.pi * variance)
    first = (mass * f).sum(axis=1) / total
    second = (mass * (f - first[:, None]) ** 2).sum(axis=1) / total
    return log_z, first, np.maximum(second, 1e-12)


@dataclass(frozen=True, eq=False)
class GLMProblem:
    """Rows of a GLM and the way to its sites.

    Attributes
    ----------
    blocks : sequence of K arrays of shape (n_k, d)
        Features of each task, the intercept's column last.
    y : ndarray of shape (N,)
        Targets, task by task; labels are 0 and 1.
    weights : ndarray of shape (N,)
        How often each row counts; divided by the temperature.
    loss : Loss
        The loss of one row.
    """

    blocks: Sequence[Array]
    y: Array
    weights: Array
    loss: Loss

    @property
    def bounds(self) -> Array:
        """Where each task's rows begin."""
        return np.concatenate([[0], np.cumsum([len(X) for X in self.blocks])])

    def start(self) -> Sites:
        """Sites of the loss's curvature at the pooled mean."""
        total = float(self.weights.sum())
        level, least = float(self.weights @ self.y) / total, 0.5 / max(total, 1.0)
        if isinstance(self.loss, Bernoulli):
            level = min(max(level, least), 1 - least)
            eta = np.full(len(self.y), np.log(level / (1 - level)))
        else:
            eta = np.full(len(self.y), np.log(max(level, least)))
        return self.curvature_sites(eta)

    def curvature_sites(self, eta: Array) -> Sites:
        """Sites that have the likelihood's slope and curvature at a predictor."""
        gradient = self.loss.gradient(self.y, eta)
        precision = np.maximum(self.loss.observed_curvature(self.y, eta), _LEAST)
        return Sites(precision, precision * eta - gradient, 0.0, eta)

    def rows(self, sites: Sites) -> TaskFactors:
        """The Gaussian problem with unit noise that the sites stand for."""
        root = np.sqrt(sites.precision)
        target = root * sites.response / sites.precision
        bounds = self.bounds
        parts = [slice(bounds[k], bounds[k + 1]) for k in range(len(self.blocks))]
        blocks = [X * root[part, None] for X, part in zip(self.blocks, parts, strict=True)]
        weights = [self.weights[part] for part in parts]
        return TaskFactors.from_rows(blocks, [target[part] for part in parts], weights, intercept=False)

    def marginals(
        self, route: Route, hyper: Hyper, rows: TaskFactors, s: Statistics, sites: Sites
    ) -> tuple[Array, Array]:
        """Mean and variance of every row's predictor."""
        if s.alpha is not None and s.diagonal is not None and len(s.alpha) == len(self.y):
            # Rows that were not compressed: √τ̃ f has mean z − α and variance 1 − P_ii.
            total = self.weights * sites.precision
            return (rows.flat()[1] - s.alpha) / np.sqrt(total), np.maximum(1 - s.diagonal, 1e-12) / total
        posterior = route.posterior(hyper)
        means = np.concatenate([X @ w for X, w in zip(self.blocks, posterior.coef, strict=True)])
        variances = np.concatenate([posterior.variance(X, k) for k, X in enumerate(self.blocks)])
        return means, np.maximum(variances, 1e-14)

    def update(
        self, sites: Sites, mean: Array, variance: Array, share: float = DAMPING, *, together: bool = False
    ) -> tuple[Sites, float]:
        """The next sites, and by how much predictors move beside their standard deviations.

        The correction of the answer belongs to the sites that were given; ``share`` of a step is taken. Where rounds
        do not lead nearer the answer, all sites of a heavy row move ``together``: each for itself goes the whole way.
        """
        if not isinstance(self.loss, Bernoulli):
            return self._laplace(sites, mean)
        # One site is taken out and put back, or all there is of a row of weight below 1 (power EP, Minka 2004): what is
        # more than all would leave a cavity without precision. A cavity keeps a share of the marginal precision,
        # however much of it the row's own site holds.
        power = self.weights if together else np.minimum(self.weights, 1.0)
        own = power * sites.precision
        cavity = np.maximum(1 / variance - own, 1e-6 / variance)
        centre = (mean / variance - power * sites.response) / cavity
        log_z, tilted, spread = bernoulli_moments(2.0 * self.y - 1.0, power, centre, 1 / cavity)
        # Curvatures of a row's log-likelihood are at most a quarter, and so is its site's precision.
        precision = np.clip((1 / spread - cavity) / power, _LEAST, 0.25)
        response = (cavity * (tilted - centre)) / power + precision * tilted
        change = float(np.max(np.abs(tilted - mean) / np.sqrt(variance), initial=0.0))
        change = max(change, float(np.max(np.abs(np.log(spread / variance)), initial=0.0)))
        damped = (1 - share) * sites.precision + share * precision
        centre_of_site = sites.response / sites.precision
        correction = -float(
            (self.weights / power)
            @ (2 * log_z + np.log1p(own / cavity) + cavity * own / (cavity + own) * (centre - centre_of_site) ** 2)
        )
        moved = Sites(damped, (1 - share) * sites.response + share * response, correction)
        return moved, change

    def _laplace(self, sites: Sites, mean: Array) -> tuple[Sites, float]:
        """Curvature at the posterior's mode, which Newton's steps lead to; a step from far away is cut short."""
        before = np.zeros(len(mean)) if sites.eta is None else sites.eta
        step = mean - before
        longest = float(np.max(np.abs(step), initial=0.0))
        moved = self.curvature_sites(before + step * min(1.0, 2.0 / max(longest, 1e-300)))
        return replace(moved, correction=self._correction(sites, mean)), longest

    def _correction(self, sites: Sites, mean: Array) -> float:
        """−2 log likelihood at the mode, less what the sites have there."""
        value = 2 * float(self.weights @ self.loss.value(self.y, np.clip(mean, -300.0, 300.0)))
        return value - float((self.weights * sites.precision) @ (mean - sites.response / sites.precision) ** 2)


def climb_sites(
    problem: GLMProblem,
    learner: Learner,
    start: Hyper,
    make_route: Callable[[TaskFactors], Route],
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    learn: bool = True,
) -> SiteClimb:
    """Alternate steps of the sites and of the hyperparameters until neither moves.

    Every third step of the hyperparameters is an extrapolation of the two before it (as in
    :func:`mssl.evidence.climb`), taken back where the penalised objective is worse after it.

    Parameters
    ----------
    problem : GLMProblem
        Rows and loss.
    learner : Learner
        Objective and steps of the hyperparameters; the noise is kept at one.
    start : Hyper
        Where to begin.
    make_route : callable
        The route for compressed rows.
    tol : float
        Residual of the hyperparameters, and change of sites over ten, to reach.
    max_iter : int
        Most rounds.
    learn : bool
        Whether hyperparameters are learned, or kept.
    """
    columns = learner.columns
    hyper, sites = start, problem.start()
    history: list[Array] = []
    safe: tuple[Hyper, Sites, float] | None = None  # where to go back to from an extrapolation
    longest, objective, residual, settled, count = 4.0, np.inf, np.inf, False, 0
    share, change = DAMPING, np.inf
    while True:
        count += 1
        rows = problem.rows(sites)
        route = make_route(rows)
        try:
            s = route.statistics(hyper)
        except np.linalg.LinAlgError:
            if safe is None:
                raise
            hyper, sites, longest, safe = safe[0], safe[1], 1.0, None
            continue
        far = change > 1 and count > PATIENCE
        moved, change = problem.update(sites, *problem.marginals(route, hyper, rows, s, sites), share, together=far)
        if count == max_iter // 2:  # sites that swing for long are damped more
            share = 0.5 * DAMPING
        objective = learner.objective(hyper, s.value + moved.correction)
        stepped, residual = learner.step(hyper, s)
        settled = not far and change <= 10 * tol and (residual <= tol or not learn)
        if settled or count >= max_iter:
            sites = replace(sites, correction=moved.correction)
            return SiteClimb(hyper, sites, rows, route.posterior(hyper), objective, residual, count, settled)
        sites = moved
        if not learn or (change > 0.3 and count % 10):
            continue  # the sites come first: hyperparameters follow when these are about right
        if safe is not None:
            if not objective <= safe[2] + 1e-2:
                hyper, sites, longest, safe = safe[0], safe[1], max(1.0, longest / 4), None
                history = []
                continue
            longest, safe = 2 * longest, None
        history.append(hyper.to_vector(columns))
        hyper = stepped
        if len(history) == 2:
            x0, x1, x2 = history[0], history[1], stepped.to_vector(columns)
            length = min(step_length(x0, x1, x2), longest)
            history = []
            if length > 1:
                safe = (stepped, sites, objective)
                hyper = learner.normalised(stepped.from_vector(extrapolated(x0, x1, x2, length), columns))


def step_length(x0: Array, x1: Array, x2: Array) -> float:
    """How far two steps x0 → x1 → x2 suggest to go."""
    return float(np.linalg.norm(x1 - x0)) / max(float(np.linalg.norm(x2 - 2 * x1 + x0)), 1e-300)


def extrapolated(x0: Array, x1: Array, x2: Array, length: float) -> Array:
    """The point that two steps lead to, no logarithm further than ``4.0`` from the second."""
    r, v = x1 - x0, x2 - 2 * x1 + x0
    return np.clip(x0 + 2 * length * r + length**2 * v, x2 - 4.0, x2 + 4.0)
