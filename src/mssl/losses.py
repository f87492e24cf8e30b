r"""The losses of generalised linear models, pointwise in the linear predictor :math:`\eta`.

Each is the negative log-likelihood of one observation up to terms without :math:`\eta` and up to its
dispersion: ``value`` :math:`\ell(y,\eta)`, ``gradient`` :math:`\ell'`, ``curvature`` :math:`\ell''`
(the expected one where the observed one misleads), the smallest constant that bounds the curvature
(``None`` where there is none), the inverse link, the unit deviance, and the convex conjugate
:math:`\ell^*(u) = \sup_\eta u\eta - \ell(y,\eta)` behind dual certificates.

References
----------
McCullagh & Nelder (1989), *Generalized Linear Models*, doi:10.1007/978-1-4899-3242-6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.special import expit, xlogy
from sklearn.base import BaseEstimator

from mssl._typing import Array, Index, Mask
from mssl._validation import check_choice


class Loss(BaseEstimator, ABC):
    """One observation's loss; everything is elementwise on arrays of equal shape.

    A user's loss is a subclass with the abstract methods below. Parameters that ``__init__`` stores under the same
    names can be searched (``loss__theta``), cloned and saved like those of scikit-learn's estimators.
    """

    name: str
    range: str
    """The allowed targets, in words."""
    curvature_bound: float | None = None
    """sup ℓ'' over all η, or None."""
    edges: tuple[float, ...] = ()
    """Targets which, when all are equal to one of them, leave no finite intercept."""
    has_dispersion = False
    """Whether the noise level of each task has to be estimated."""
    identity = False
    """Whether the predictor is the mean itself."""

    @abstractmethod
    def value(self, y: Array, eta: Array) -> Array:
        """ℓ(y, η)."""

    @abstractmethod
    def gradient(self, y: Array, eta: Array) -> Array:
        """dℓ/dη."""

    @abstractmethod
    def curvature(self, y: Array, eta: Array) -> Array:
        """Expected d²ℓ/dη², the Fisher weight."""

    def observed_curvature(self, y: Array, eta: Array) -> Array:
        """d²ℓ/dη² itself, where it differs from the expected one."""
        return self.curvature(y, eta)

    @abstractmethod
    def conjugate(self, y: Array, u: Array) -> Array:
        """ℓ*(u), for u between 0 and a value of the gradient."""

    def derivatives(self, y: Array, eta: Array) -> tuple[Array, Array]:
        """Gradient and observed curvature together, where that is cheaper."""
        return self.gradient(y, eta), self.observed_curvature(y, eta)

    def derivative_sums(self, y: Array, eta: Array, weights: Array, starts: Index) -> tuple[Array, Array]:
        """Σ_i weight_i ℓ' and Σ_i weight_i ℓ'' task by task; task k owns the entries from ``starts[k]`` on."""
        slopes, curves = self.derivatives(y, eta)
        return _sums(weights * slopes, starts), _sums(weights * curves, starts)

    def balance(self, y: Array, eta: Array, weights: Array, starts: Index) -> Array | None:
        """The b_k that minimise Σ_i weight_i ℓ(y_i, η_i + b_k) task by task, or None without a closed form.

        Task k owns the entries from ``starts[k]`` up to the next start.
        """
        return None

    @abstractmethod
    def inverse_link(self, eta: Array) -> Array:
        """The mean μ(η)."""

    @abstractmethod
    def in_range(self, y: Array) -> Mask:
        """Which targets are possible."""

    @abstractmethod
    def deviance(self, y: Array, mean: Array) -> Array:
        """Unit deviance: twice the log-likelihood lost against the saturated model."""

    def deviance_at(self, y: Array, eta: Array) -> Array:
        """Unit deviance at a linear predictor: 2 (ℓ(y, η) − min ℓ(y, ·)), finite even where μ(η) rounds to an edge."""
        return np.maximum(2.0 * (self.value(y, eta) + self.conjugate(y, np.zeros_like(eta))), 0.0)

    def variance(self, mean: Array) -> Array:
        """Variance function V(μ), for Pearson residuals."""
        return np.ones_like(mean)

    def absorb(self, y: Array, offset: Array, weights: Array) -> tuple[Array, Array] | None:
        """Targets and weights whose loss at η is that of the given ones at η + offset, or None if there are none.

        They may differ by what does not depend on η. A count y with exposure e, for instance, is the rate y/e, e times.
        """
        return None


class Gaussian(Loss):
    r""":math:`\ell = \tfrac12 (y-\eta)^2`, identity link."""

    name = "gaussian"
    range = "finite numbers"
    curvature_bound = 1.0
    has_dispersion = True
    identity = True

    def value(self, y: Array, eta: Array) -> Array:
        return 0.5 * (y - eta) ** 2

    def gradient(self, y: Array, eta: Array) -> Array:
        return eta - y

    def curvature(self, y: Array, eta: Array) -> Array:
        return np.ones_like(eta)

    def conjugate(self, y: Array, u: Array) -> Array:
        return u * (0.5 * u + y)

    def balance(self, y: Array, eta: Array, weights: Array, starts: Index) -> Array:
        return np.asarray(_sums(weights * (y - eta), starts) / _sums(weights, starts))

    def inverse_link(self, eta: Array) -> Array:
        return eta

    def in_range(self, y: Array) -> Mask:
        return np.isfinite(y)

    def deviance(self, y: Array, mean: Array) -> Array:
        return (y - mean) ** 2

    def absorb(self, y: Array, offset: Array, weights: Array) -> tuple[Array, Array]:
        return y - offset, weights


class Huber(Loss):
    r"""Least squares near the target and absolute errors far from it, so that outliers pull with a bounded force.

    :math:`\ell = \tfrac12 r^2` for :math:`|r| \le \delta` and :math:`\delta|r| - \tfrac12\delta^2` beyond, of
    :math:`r = y - \eta`; identity link.

    Parameters
    ----------
    delta : float, default=1.345
        δ, in the units of y; 1.345 times the noise's standard deviation loses 5 % of the precision of least squares
        where the noise is normal.

    References
    ----------
    Huber (1964), Robust estimation of a location parameter, doi:10.1214/aoms/1177703732.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.losses import Huber
    >>> Huber(2.0).gradient(np.zeros(3), np.array([0.5, 2.0, 50.0])).tolist()
    [0.5, 2.0, 2.0]
    """

    name = "huber"
    identity = True
    range = "finite numbers"
    curvature_bound = 1.0
    has_dispersion = True

    def __init__(self, delta: float = 1.345) -> None:
        self.delta = delta

    def value(self, y: Array, eta: Array) -> Array:
        size = np.abs(y - eta)
        inside = np.minimum(size, self.delta)
        return inside * (size - 0.5 * inside)

    def gradient(self, y: Array, eta: Array) -> Array:
        return np.clip(eta - y, -self.delta, self.delta)

    def curvature(self, y: Array, eta: Array) -> Array:
        # That of the parabola that touches the loss here and lies above it elsewhere.
        return self.delta / np.maximum(np.abs(y - eta), self.delta)

    def observed_curvature(self, y: Array, eta: Array) -> Array:
        return (np.abs(y - eta) <= self.delta).astype(np.float64)

    def conjugate(self, y: Array, u: Array) -> Array:
        inside = np.clip(u, -self.delta, self.delta)
        return inside * (0.5 * inside + y)

    def inverse_link(self, eta: Array) -> Array:
        return eta

    def in_range(self, y: Array) -> Mask:
        return np.isfinite(y)

    def deviance(self, y: Array, mean: Array) -> Array:
        return 2.0 * self.value(y, mean)

    def absorb(self, y: Array, offset: Array, weights: Array) -> tuple[Array, Array]:
        return y - offset, weights


class Bernoulli(Loss):
    r""":math:`\ell = \log(1+e^\eta) - y\eta`, logit link, :math:`y\in\{0,1\}`."""

    name = "bernoulli"
    range = "0 or 1"
    edges = (0.0, 1.0)
    curvature_bound = 0.25

    def value(self, y: Array, eta: Array) -> Array:
        return np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta))) - y * eta

    def gradient(self, y: Array, eta: Array) -> Array:
        return expit(eta) - y

    def curvature(self, y: Array, eta: Array) -> Array:
        odds = np.exp(-np.abs(eta))
        return odds / (1.0 + odds) ** 2

    def derivatives(self, y: Array, eta: Array) -> tuple[Array, Array]:
        odds = np.exp(-np.abs(eta))
        larger = 1.0 / (1.0 + odds)
        smaller = odds * larger
        return np.where(eta < 0, smaller, larger) - y, smaller * larger

    def derivative_sums(self, y: Array, eta: Array, weights: Array, starts: Index) -> tuple[Array, Array]:
        p = _exp(-eta)
        p += 1.0
        np.divide(1.0, p, out=p)
        weighted = weights * p
        slopes = _sums(weighted - weights * y, starts)
        weighted *= 1.0 - p
        return slopes, _sums(weighted, starts)

    def conjugate(self, y: Array, u: Array) -> Array:
        p = np.clip(u + y, 0.0, 1.0)
        return xlogy(p, p) + xlogy(1 - p, 1 - p)

    def inverse_link(self, eta: Array) -> Array:
        return expit(eta)

    def in_range(self, y: Array) -> Mask:
        return (y == 0) | (y == 1)

    def deviance(self, y: Array, mean: Array) -> Array:
        saturated = xlogy(y, y) + xlogy(1 - y, 1 - y)
        return 2.0 * (saturated - xlogy(y, mean) - xlogy(1 - y, 1 - mean))

    def variance(self, mean: Array) -> Array:
        return mean * (1 - mean)


class Poisson(Loss):
    r""":math:`\ell = e^\eta - y\eta`, log link, :math:`y \ge 0`."""

    name = "poisson"
    range = "counts, 0 or more"
    edges = (0.0,)

    def value(self, y: Array, eta: Array) -> Array:
        return _exp(eta) - y * eta

    def gradient(self, y: Array, eta: Array) -> Array:
        return _exp(eta) - y

    def curvature(self, y: Array, eta: Array) -> Array:
        return _exp(eta)

    def derivatives(self, y: Array, eta: Array) -> tuple[Array, Array]:
        mean = self.inverse_link(eta)
        return mean - y, mean

    def conjugate(self, y: Array, u: Array) -> Array:
        mean = np.maximum(u + y, 0.0)
        return xlogy(mean, mean) - mean

    def balance(self, y: Array, eta: Array, weights: Array, starts: Index) -> Array:
        return np.log(_sums(weights * y, starts)) - _log_sums(eta, weights, starts)

    def inverse_link(self, eta: Array) -> Array:
        return _exp(eta)

    def in_range(self, y: Array) -> Mask:
        return np.isfinite(y) & (y >= 0)

    def deviance(self, y: Array, mean: Array) -> Array:
        return 2.0 * (xlogy(y, y) - xlogy(y, mean) - y + mean)

    def variance(self, mean: Array) -> Array:
        return mean

    def absorb(self, y: Array, offset: Array, weights: Array) -> tuple[Array, Array]:
        return y * _exp(-offset), weights * _exp(offset)


class Gamma(Loss):
    r""":math:`\ell = y e^{-\eta} + \eta`, log link, :math:`y > 0`; the expected curvature is 1."""

    name = "gamma"
    range = "numbers above 0"
    has_dispersion = True

    def value(self, y: Array, eta: Array) -> Array:
        return y * _exp(-eta) + eta

    def gradient(self, y: Array, eta: Array) -> Array:
        return 1.0 - y * _exp(-eta)

    def curvature(self, y: Array, eta: Array) -> Array:
        return np.ones_like(eta)

    def observed_curvature(self, y: Array, eta: Array) -> Array:
        return y * _exp(-eta)

    def derivatives(self, y: Array, eta: Array) -> tuple[Array, Array]:
        ratio = self.observed_curvature(y, eta)
        return 1.0 - ratio, ratio

    def conjugate(self, y: Array, u: Array) -> Array:
        slack = np.maximum(1.0 - u, 0.0)
        return xlogy(slack, slack / y) - slack

    def balance(self, y: Array, eta: Array, weights: Array, starts: Index) -> Array:
        return _log_sums(-eta, weights * y, starts) - np.log(_sums(weights, starts))

    def inverse_link(self, eta: Array) -> Array:
        return _exp(eta)

    def in_range(self, y: Array) -> Mask:
        return np.isfinite(y) & (y > 0)

    def deviance(self, y: Array, mean: Array) -> Array:
        ratio = y / mean
        return 2.0 * (ratio - 1 - np.log(ratio))

    def variance(self, mean: Array) -> Array:
        return mean**2

    def absorb(self, y: Array, offset: Array, weights: Array) -> tuple[Array, Array]:
        return y * _exp(-offset), weights


def _exp(exponents: Array) -> Array:
    """The exponential; a result beyond the range of doubles is infinite, and line searches then shorten their step."""
    with np.errstate(over="ignore"):
        return np.exp(exponents)


def _sums(values: Array, starts: Index) -> Array:
    return np.asarray(np.add.reduceat(values, starts))


def _log_sums(exponents: Array, weights: Array, starts: Index) -> Array:
    """Logarithm of Σ_i weight_i exp(exponent_i) task by task, without overflow."""
    largest = np.maximum.reduceat(exponents, starts)
    sizes = np.diff(starts, append=len(exponents))
    return np.asarray(largest + np.log(_sums(weights * np.exp(exponents - np.repeat(largest, sizes)), starts)))


LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Gaussian, Bernoulli, Poisson, Gamma)}


def resolve_loss(loss: str | Loss) -> Loss:
    """A loss from its name, or the loss itself."""
    if isinstance(loss, Loss):
        return loss
    return LOSSES[check_choice("loss", loss, tuple(LOSSES), also="a Loss object")]()
