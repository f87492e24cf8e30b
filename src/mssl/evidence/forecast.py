r"""Predictive distributions: what a posterior says about targets, mixtures of several, and their calibration.

A Gaussian target is a Student-t variable around the predictor's mean with variance :math:`v + \sigma^2`. A label or a
count has the loss's distribution, averaged over the predictor's: plug-in probabilities are useless where posteriors are
wide.

Hyperparameters are plugged in, and rows of one occasion or a separable task may mislead them. What folds say of
held-out rows mends the width: standard deviations are multiplied by the one factor that gives the held-out targets the
highest density; for labels the predictor's mean and standard deviation have a factor each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_expit, logsumexp

from mssl._typing import Array, Index
from mssl.evidence.fit import EvidenceFit
from mssl.losses import Loss

_NODES, _MASS = np.polynomial.hermite_e.hermegauss(21)
_MASS = _MASS / _MASS.sum()
_FACTORS = (0.5, 3.0)  # least and largest factor of a calibration


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predictive distributions of rows.

    Attributes
    ----------
    mean, variance : ndarrays of shape (N,)
        Of the linear predictor.
    noise : ndarray of shape (N,)
        Noise variance (Gaussian loss), or dispersion (gamma).
    degrees : ndarray of shape (N,)
        Degrees of freedom of the Student-t distribution (Gaussian loss).
    """

    mean: Array
    variance: Array
    noise: Array
    degrees: Array

    def take(self, rows: Index) -> Forecast:
        """Some of the rows."""
        return Forecast(*(part[rows] for part in vars(self).values()))

    def calibrated(self, calibration: Calibration) -> Forecast:
        """The same with the factors that folds suggest."""
        a, b = calibration.centre, calibration.spread
        return replace(self, mean=a * self.mean, variance=b**2 * self.variance, noise=b**2 * self.noise)

    def log_density(self, y: Array, loss: Loss) -> Array:
        """Log predictive density of the targets."""
        if loss.name == "gaussian":
            return np.asarray(stats.t.logpdf(y, self.degrees, self.mean, np.sqrt(self.variance + self.noise)))
        if loss.name == "bernoulli":
            p = self.probabilities()
            return np.asarray(np.log(np.maximum(np.where(y > 0.5, p, 1 - p), 1e-300)))
        f = self._nodes()
        values = -loss.value(np.repeat(y[:, None], len(_NODES), axis=1), f)
        constant = -gammaln(y + 1)
        if loss.name == "gamma":
            shape = 1 / self.noise
            values, constant = shape[:, None] * values, shape * np.log(shape) + (shape - 1) * np.log(y) - gammaln(shape)
        top = values.max(axis=1)
        return np.asarray(top + np.log(np.exp(values - top[:, None]) @ _MASS) + constant)

    def _nodes(self) -> Array:
        return np.asarray(self.mean[:, None] + np.sqrt(self.variance)[:, None] * _NODES)

    def probabilities(self) -> Array:
        """Probability of the second class."""
        return np.asarray(expit(self._nodes()) @ _MASS)

    def log_odds(self) -> Array:
        """Log-odds of the second class, exact where its probability rounds to one."""
        first, second = self.log_probabilities()
        return np.asarray(second - first)

    def log_probabilities(self) -> tuple[Array, Array]:
        """Logarithms of the probabilities of both classes."""
        f = self._nodes()
        first, second = (logsumexp(log_expit(sign * f), axis=1, b=_MASS) for sign in (-1, 1))
        return np.asarray(first), np.asarray(second)

    def expectation(self, loss: Loss) -> Array:
        """Expected target."""
        if loss.name == "gaussian":
            return self.mean
        if loss.name == "bernoulli":
            return self.probabilities()
        return np.exp(np.minimum(self.mean + 0.5 * self.variance, 700.0))

    def quantiles(self, levels: Array, loss: Loss) -> Array:
        """Quantiles of the target at some levels, shape (N, len(levels))."""
        if loss.name == "gaussian":
            scale = np.sqrt(self.variance + self.noise)
            return np.asarray(self.mean[:, None] + scale[:, None] * stats.t.ppf(levels, self.degrees[:, None]))
        rates = np.exp(np.clip(self._nodes(), -700.0, 700.0))
        made = np.empty((len(rates), len(levels)))
        for place, level in enumerate(levels.tolist()):
            made[:, place] = _mixture_quantile(rates, level, loss, self.noise[:, None])
        return made


def _mixture_quantile(rates: Array, level: float, loss: Loss, dispersion: Array) -> Array:
    """Where the distribution function of a mixture of counts or positive numbers crosses a level, by halving."""

    def below(value: Array) -> Array:
        if loss.name == "poisson":
            return np.asarray(stats.poisson.cdf(np.floor(value)[:, None], rates) @ _MASS)
        return np.asarray(stats.gamma.cdf(value[:, None], 1 / dispersion, scale=rates * dispersion) @ _MASS)

    low, high = np.full(len(rates), -1.0 if loss.name == "poisson" else 0.0), 1.0 + rates.max(axis=1)
    for _ in range(60):
        short = below(high) < level
        if not short.any():
            break
        high = np.where(short, 2 * high, high)
    for _ in range(80):
        middle = 0.5 * (low + high)
        short = below(middle) < level
        low, high = np.where(short, middle, low), np.where(short, high, middle)
        if loss.name == "poisson" and np.all(np.floor(low) + 1 >= np.floor(high)):
            break
    return np.floor(high) if loss.name == "poisson" else high


@dataclass(frozen=True)
class Calibration:
    """Factors of a forecast's mean (labels only) and of its standard deviations."""

    centre: float = 1.0
    spread: float = 1.0


def calibrate(forecast: Forecast, y: Array, weights: Array, loss: Loss) -> Calibration:
    """The factors that give held-out targets the highest density, drawn towards one by one row's worth.

    Parameters
    ----------
    forecast : Forecast
        Of held-out rows.
    y : ndarray of shape (N,)
        Their targets.
    weights : ndarray of shape (N,)
        Their frequency weights.
    loss : Loss
        The loss.
    """
    if loss.name not in ("gaussian", "bernoulli"):
        return Calibration()
    low, high = np.log(_FACTORS)
    labels = loss.name == "bernoulli"

    def made(q: Array) -> Calibration:
        q = np.clip(q, low, high)
        return (
            Calibration(float(np.exp(q[0])), float(np.exp(q[1]))) if labels else Calibration(1.0, float(np.exp(q[0])))
        )

    def lost(q: Array) -> float:
        densities = np.maximum(forecast.calibrated(made(q)).log_density(y, loss), -1e3)
        return -float(weights @ densities) + 0.5 * float(q @ q)

    start = np.zeros(2 if labels else 1)
    simplex = np.vstack([start, *(start + 0.3 * row for row in np.eye(len(start)))])
    found = minimize(
        lost, start, method="Nelder-Mead", options={"initial_simplex": simplex, "xatol": 1e-3, "fatol": 1e-4}
    )
    return made(found.x) if found.fun < lost(start) else Calibration()


def forecast(fit: EvidenceFit, X: Any, task: Index) -> Forecast:
    """Predictive distributions of rows of tasks; −1 is a new task."""
    n = X.shape[0]
    mean, variance, noise, degrees = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in np.unique(task).tolist():
        rows = np.flatnonzero(task == k)
        which = None if k < 0 else k
        mean[rows], variance[rows] = fit.predictor(X[rows], which)
        noise[rows], degrees[rows] = fit.noise(which), fit.degrees(which)
    return Forecast(mean, variance, noise, degrees)


def mixed(forecasts: list[Forecast], weights: Array, loss: Loss) -> Forecast:
    """One distribution in the place of a mixture: with its mean and variance, for labels with its probabilities.

    Members whose predictors have other sizes must not be averaged on the scale of log-odds: the largest would win.
    """
    if len(forecasts) == 1:
        return forecasts[0]
    if loss.name == "bernoulli":
        logs = np.array([f.log_probabilities() for f in forecasts])
        first, second = logsumexp(logs, axis=0, b=weights[:, None, None])
        return replace(forecasts[0], mean=second - first, variance=np.zeros(len(first)))
    mean = np.einsum("m,mn->n", weights, [f.mean for f in forecasts])
    variance = np.einsum("m,mn->n", weights, [f.variance + (f.mean - mean) ** 2 for f in forecasts])
    noise = np.einsum("m,mn->n", weights, [f.noise for f in forecasts])
    return Forecast(mean, variance, noise, np.einsum("m,mn->n", weights, [f.degrees for f in forecasts]))


def joined(forecasts: list[Forecast]) -> Forecast:
    """Forecasts of some rows and of others as one."""
    return Forecast(*map(np.concatenate, zip(*(vars(f).values() for f in forecasts), strict=True)))
