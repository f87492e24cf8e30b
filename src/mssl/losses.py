r"""The losses of generalised linear models as functions of the linear predictor :math:`\eta`, and their likelihoods.

A loss is the negative log-likelihood of one observation, up to terms without :math:`\eta` and up to its dispersion. It
has the value :math:`\ell(y,\eta)`, the gradient :math:`\ell'`, the curvature :math:`\ell''` (the expected one if the
observed one misleads), the smallest constant that bounds the curvature (``None`` if there is none), the inverse link,
the unit deviance, and the convex conjugate :math:`\ell^*(u) = \sup_\eta u\eta - \ell(y,\eta)` for dual certificates.

A loss is a likelihood too: :math:`\log p(y\mid\eta) = b(y, \phi) - \ell(y, \eta)/\phi` with the dispersion φ. One
Gauss–Hermite rule computes all averages over a normal predictor; a :class:`Forecast` holds such averages for rows.

References
----------
McCullagh & Nelder (1989), *Generalized Linear Models*, doi:10.1007/978-1-4899-3242-6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, gammainc, gammaln, log_expit, logsumexp, ndtr, pdtr, stdtrit, xlog1py, xlogy
from sklearn.base import BaseEstimator, clone

from mssl._typing import Array, ArrayLike, Index, Mask
from mssl._validation import LARGEST_EXPONENT, check_choice

# With 16 nodes instead of 32, slopes of the evidence have errors of up to half a per cent.
NODES, MASS = np.polynomial.hermite_e.hermegauss(32)
_LOG_MASS = np.log(MASS) + 0.5 * NODES**2
_POWERS = np.vander(NODES, 3, increasing=True)
MASS = MASS / MASS.sum()
# The logistic law is a mixture of normals; these are half their standard deviations, which follow Kolmogorov's
# distribution, and their masses. 24 normals give probabilities with an error of 1e-12, and with a relative error of
# 1e-6 down to _LEAST_OF_LAW. The general rule computes smaller probabilities.
_LENGTHS = np.geomspace(0.22, 5.5, 24)
_TERMS = np.arange(1, 60)
_SHARES = _LENGTHS**2 * (np.exp(-2 * np.outer(_LENGTHS, _TERMS) ** 2) @ (-((-1.0) ** _TERMS) * _TERMS**2))
_SHARES /= _SHARES.sum()
_LEAST_OF_LAW = 1e-9


@dataclass(frozen=True)
class Calibration:
    """Factors of a forecast's mean (labels only) and of its standard deviations."""

    centre: float = 1.0
    spread: float = 1.0


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predictive distributions of rows: the loss's distribution, averaged over a normal predictor.

    A distribution at the mean predictor alone would be too narrow if the posterior is wide.

    Attributes
    ----------
    factors : tuple of str
        The factors that a calibration may choose.
    mean, variance : ndarrays of shape (N,)
        Mean and variance of the linear predictor.
    dispersion : ndarray of shape (N,)
        Dispersion; for the squared error the noise variance.
    freedom : ndarray of shape (N,)
        Degrees of freedom of the dispersion's estimate.
    parameters : ndarray of shape (N, P)
        Learned parameters of the loss.
    loss : Loss
        The loss.
    """

    factors: ClassVar[tuple[str, ...]] = ()
    mean: Array
    variance: Array
    dispersion: Array
    freedom: Array
    parameters: Array
    loss: Loss

    def arrays(self) -> dict[str, Any]:
        """All fields except the loss, by name."""
        return {name: part for name, part in vars(self).items() if name != "loss"}

    def take(self, rows: Index) -> Self:
        """The forecasts of the chosen rows."""
        some: dict[str, Any] = {name: part[rows] for name, part in self.arrays().items()}
        return replace(self, **some)

    def joined(self, others: Sequence[Forecast]) -> Self:
        """Append the rows of other forecasts."""
        whole: list[Forecast] = [self, *others]
        parts = [part.arrays() for part in whole]
        rows: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return replace(self, **rows)

    def calibrated(self, calibration: Calibration) -> Self:
        """Multiply means and standard deviations by the factors of a calibration."""
        a, b = calibration.centre, calibration.spread
        return replace(self, mean=a * self.mean, variance=b**2 * self.variance, dispersion=b**2 * self.dispersion)

    def mixed(self, others: Sequence[Forecast], weights: Array) -> Self:
        """Replace a mixture by one distribution with the mixture's mean and variance."""
        whole: list[Forecast] = [self, *others]
        parts = [part.arrays() for part in whole]
        averages = {name: np.tensordot(weights, [part[name] for part in parts], 1) for name in parts[0]}
        between = np.tensordot(weights, [(part["mean"] - averages["mean"]) ** 2 for part in parts], 1)
        return replace(self, **averages | {"variance": averages["variance"] + between})

    def log_density(self, y: Array) -> Array:
        """Log predictive density of the targets."""

        def density(part: Forecast, y: Array) -> Array:
            spread = np.maximum(part.variance, 1e-30)
            log_z = part.loss.tilted(y, part.mean, spread, 1 / part.dispersion)[0]
            return part.loss.log_base(y, part.dispersion) + log_z

        return self._each(density, y)

    def moments(self) -> tuple[Array, Array]:
        """Means and variances of the targets."""
        both = self._each(lambda part: np.stack(part.loss.moments(part.mean, part.variance, part.dispersion), axis=1))
        return both[:, 0], both[:, 1]

    def expectation(self) -> Array:
        """Expected target."""
        return self.moments()[0]

    def quantile(self, levels: Array) -> Array:
        """Quantiles of the target at the given levels, shape (N, len(levels)), by bisection."""
        return self._each(lambda part: part._crossings(np.asarray(levels)))

    def _crossings(self, levels: Array) -> Array:
        """Points at which the distribution function reaches the levels, (N, len(levels))."""
        loss = self.loss
        means = loss.inverse_link(np.clip(self._nodes(), -LARGEST_EXPONENT, LARGEST_EXPONENT))[:, None]
        dispersion, shape = self.dispersion[:, None, None], (len(means), len(levels))

        def below(value: Array) -> Array:
            value = np.floor(value) if loss.discrete else value
            return np.asarray(loss.cdf(value[:, :, None], means, dispersion) @ MASS)

        centre, reach = means @ MASS, 1.0 + np.ptp(means, axis=2)
        low, high = np.broadcast_to(centre - reach, shape), np.broadcast_to(centre + reach, shape)
        for _ in range(60):
            outside = below(low) >= levels, below(high) < levels
            if not np.any(outside):
                break
            low, high = np.where(outside[0], low - reach, low), np.where(outside[1], high + reach, high)
            reach = 2 * reach
        for _ in range(100):
            middle = 0.5 * (low + high)
            short = below(middle) < levels
            low, high = np.where(short, middle, low), np.where(short, high, middle)
            if loss.discrete and np.all(np.floor(low) + 1 >= np.floor(high)):
                break
        return np.floor(high) if loss.discrete else high

    def _nodes(self) -> Array:
        return np.asarray(self.mean[:, None] + np.sqrt(self.variance)[:, None] * NODES)

    def _each(self, answer: Callable[..., Array], *columns: Array) -> Array:
        """Results of all rows and their entries in columns, each computed with the loss of the row's parameters."""
        if not self.loss.learned:
            return answer(self, *columns)
        values, which = np.unique(self.parameters, axis=0, return_inverse=True)
        rows = [np.flatnonzero(which.ravel() == number) for number in range(len(values))]
        parts = [replace(self.take(own), loss=self.loss.at(value)) for value, own in zip(values, rows, strict=True)]
        answers = [answer(part, *(c[own] for c in columns)) for part, own in zip(parts, rows, strict=True)]
        return np.concatenate(answers)[np.argsort(np.concatenate(rows))]


class StudentForecast(Forecast):
    """Student's t distribution about the predictor, whose scale is due to the variances of predictor and noise."""

    factors = ("spread",)

    def _scale(self) -> Array:
        return np.sqrt(self.variance + self.dispersion)

    def log_density(self, y: Array) -> Array:
        nu, scale = self.freedom, self._scale()
        base = gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu) - np.log(scale)
        return base - 0.5 * xlog1py(nu + 1, ((y - self.mean) / scale) ** 2 / nu)

    def moments(self) -> tuple[Array, Array]:
        return self.mean, (self.variance + self.dispersion) * self.freedom / np.maximum(self.freedom - 2, 1.0)

    def quantile(self, levels: Array) -> Array:
        return self.mean[:, None] + self._scale()[:, None] * stdtrit(self.freedom[:, None], levels)


class LabelForecast(Forecast):
    """Probabilities of two classes."""

    factors = ("centre", "spread")

    def log_probabilities(self) -> tuple[Array, Array]:
        """Log probabilities of both classes, accurate even if one probability rounds to one."""
        f = self._nodes()
        second = log_expit(f)
        return _log_average(second - f), _log_average(second)

    def log_odds(self) -> Array:
        """Log-odds of the second class."""
        first, second = self.log_probabilities()
        return np.asarray(second - first)

    def log_density(self, y: Array) -> Array:
        probabilities = 1 / (1 + _exp(np.where(y > 0.5, -1.0, 1.0)[:, None] * self._nodes()))
        return np.log(np.maximum(probabilities @ MASS, 1e-300))

    def mixed(self, others: Sequence[Forecast], weights: Array) -> Self:
        """Average the members' probabilities. An average of log-odds would follow the member with the largest ones."""
        logs = np.array([part.log_probabilities() for part in (self, *others) if isinstance(part, LabelForecast)])
        first, second = logsumexp(logs, axis=0, b=weights[:, None, None])
        return replace(super().mixed(others, weights), mean=second - first, variance=np.zeros(len(first)))


class Loss(BaseEstimator, ABC):
    """The loss of one observation; all methods work elementwise on arrays of equal shape.

    To write a loss of your own, define the abstract methods in a subclass. Parameters that ``__init__`` stores under
    their own names can be searched (``loss__theta``), cloned and saved like parameters of scikit-learn's estimators.

    Attributes
    ----------
    name : str
        Name of the loss.
    range : str
        The allowed targets, in words.
    curvature_bound : float or None
        The supremum of ℓ'' over all η, or None if there is none.
    edges : tuple of float
        Extreme targets: if all targets equal one of them, no finite intercept is optimal.
    has_dispersion : bool
        Whether the noise level of each task has to be estimated.
    identity : bool
        Whether the mean equals the linear predictor.
    quadratic : bool
        Whether this is the squared error, so that sums of squares suffice.
    labels : bool
        Whether targets are two classes, 0 and 1.
    discrete : bool
        Whether targets are whole numbers.
    learned : tuple of str
        Parameters of ``__init__`` that Bayesian fits may estimate; all are above 0.
    noise_variance : "auto", float or array of shape (K,)
        Dispersion of single observations (their variance for the squared error), for all tasks or for each task.
    """

    name: str
    range: str
    curvature_bound: float | None = None
    edges: tuple[float, ...] = ()
    has_dispersion = False
    identity = False
    quadratic = False
    labels = False
    discrete = False
    learned: tuple[str, ...] = ()
    noise_variance: ArrayLike = "auto"
    _forecasts: type[Forecast] = Forecast

    def __init__(self, noise_variance: ArrayLike = "auto") -> None:
        self.noise_variance = noise_variance

    @abstractmethod
    def value(self, y: Array, eta: Array) -> Array:
        """The loss ℓ(y, η)."""

    @abstractmethod
    def gradient(self, y: Array, eta: Array) -> Array:
        """The derivative dℓ/dη."""

    @abstractmethod
    def curvature(self, y: Array, eta: Array) -> Array:
        """Expected d²ℓ/dη², the Fisher weight."""

    def observed_curvature(self, y: Array, eta: Array) -> Array:
        """The second derivative d²ℓ/dη² itself, which may differ from the expected one."""
        return self.curvature(y, eta)

    @abstractmethod
    def conjugate(self, y: Array, u: Array) -> Array:
        """The conjugate ℓ*(u), for u between 0 and a value of the gradient."""

    def derivatives(self, y: Array, eta: Array) -> tuple[Array, Array]:
        """Gradient and observed curvature; losses override this if they can compute both faster."""
        return self.gradient(y, eta), self.observed_curvature(y, eta)

    def derivative_sums(self, y: Array, eta: Array, weights: Array, starts: Index) -> tuple[Array, Array]:
        """Σ_i weight_i ℓ' and Σ_i weight_i ℓ'' for each task; the entries of task k begin at ``starts[k]``."""
        slopes, curves = self.derivatives(y, eta)
        return np.add.reduceat(weights * slopes, starts), np.add.reduceat(weights * curves, starts)

    def balance(self, y: Array, eta: Array, weights: Array, starts: Index) -> Array | None:
        """The b_k that minimise Σ_i weight_i ℓ(y_i, η_i + b_k) for each task, or None without a closed form.

        The entries of task k are those from ``starts[k]`` up to the next start.
        """
        return None

    @abstractmethod
    def inverse_link(self, eta: Array) -> Array:
        """The mean μ(η)."""

    @abstractmethod
    def in_range(self, y: Array) -> Mask:
        """Which targets are possible under this loss."""

    @abstractmethod
    def deviance(self, y: Array, mean: Array) -> Array:
        """Unit deviance: twice the difference to the log-likelihood of the saturated model."""

    def deviance_at(self, y: Array, eta: Array) -> Array:
        """Unit deviance at a linear predictor, 2 (ℓ(y, η) − min ℓ(y, ·)); finite even if μ(η) rounds to an edge."""
        return np.maximum(2.0 * (self.value(y, eta) + self.conjugate(y, np.zeros_like(eta))), 0.0)

    def absorb(self, y: Array, offset: Array, weights: Array) -> tuple[Array, Array] | None:
        """Targets and weights whose loss at η equals that of the given ones at η + offset; None if there are none.

        The losses may differ by terms without η. For example, a count y with exposure e becomes the rate y/e with
        weight e.
        """
        return None

    # --- the likelihood ----------------------------------------------------------------------------------------------
    def log_base(self, y: Array, dispersion: Array | float = 1.0) -> Array:
        """The part of a target's log-likelihood besides −ℓ/φ. Bayesian fits need it."""
        raise NotImplementedError(f"{type(self).__name__} has no log_base")

    def log_density(self, y: Array, eta: Array, dispersion: Array | float = 1.0) -> Array:
        """The log density log p(y | η)."""
        return self.log_base(y, dispersion) - self.value(y, eta) / dispersion

    def cdf(self, y: Array, mean: Array, dispersion: Array | float = 1.0) -> Array:
        """Probability of targets up to y. Intervals of Bayesian fits need it."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def variance(self, mean: Array, dispersion: Array | float = 1.0) -> Array:
        """Variance of targets with the given means: φ times the variance function."""
        return np.zeros_like(mean) + dispersion

    def moments(self, mean: Array, variance: Array, dispersion: Array | float = 1.0) -> tuple[Array, Array]:
        """Mean and variance of targets whose predictors are normal."""
        means = self.inverse_link(mean[:, None] + np.sqrt(variance)[:, None] * NODES)
        centre = means @ MASS
        within = self.variance(means, np.broadcast_to(dispersion, mean.shape)[:, None]) @ MASS
        return centre, within + (means - centre[:, None]) ** 2 @ MASS

    def tilted_rule(
        self, y: Array, mean: Array, variance: Array, precision: Array | float = 1.0, near: Array | None = None
    ) -> tuple[Array, Array, Array, Array]:
        r"""Gauss–Hermite rules for the distributions :math:`N(f; \mu, s) e^{-c\,\ell(y, f)}` of all rows.

        The function returns mode, width, top and masses: the nodes of a row are mode + width · NODES, and the sum of
        its masses, (N, 32), is the integral over e^top.

        The nodes are centred at the mode, which lies between μ and the end of a step from μ along the slope. Newton
        steps find the mode, starting from ``near`` if it is given. A step that leaves the bracket or does not shrink is
        replaced by bisection. The steps end within a thousandth of the distribution's width, because smaller errors do
        not change the sums.
        """

        def slopes(f: Array) -> tuple[Array, Array]:
            """Slope and negative curvature of the logarithm of the distributions."""
            gradient, curvature = self.derivatives(y, f)
            return (mean - f) / variance - precision * gradient, 1 / variance + precision * np.maximum(curvature, 0.0)

        with np.errstate(over="ignore", invalid="ignore"):
            slope, bend = slopes(mean)
            far = mean + np.clip(variance * slope, -1e4, 1e4)
            low, high, mode, last = np.minimum(mean, far), np.maximum(mean, far), mean, np.full(mean.shape, np.inf)
            if near is not None:
                mode = np.clip(near, low, high)
                slope, bend = slopes(mode)
            for _ in range(200):
                if np.all(slope**2 < 1e-6 * bend):
                    break
                low, high = np.where(slope > 0, mode, low), np.where(slope > 0, high, mode)
                step = slope / bend
                good = (mode + step >= low) & (mode + step <= high) & (np.abs(step) <= 0.5 * last)
                step = np.where(good, step, 0.5 * (low + high) - mode)
                last, mode = np.abs(step), mode + step
                slope, bend = slopes(mode)
        width, c = 1 / np.sqrt(bend), np.zeros(mean.shape) + precision
        f = mode[:, None] + width[:, None] * NODES
        away = mode - mean
        square = np.stack([away**2, 2 * away * width, width**2]) / variance  # (f − μ)²/s in powers of the nodes
        log_f = -0.5 * square.T @ _POWERS.T
        log_f += _LOG_MASS
        log_f -= c[:, None] * self.value(y[:, None], f)
        top = log_f.max(axis=1)
        log_f -= top[:, None]
        mass = np.exp(log_f, out=log_f)
        return mode, width, top + np.log(width) - 0.5 * np.log(2 * np.pi * variance), mass

    def tilted(
        self, y: Array, mean: Array, variance: Array, precision: Array | float = 1.0, near: Array | None = None
    ) -> tuple[Array, Array, Array]:
        r"""Log integral, mean and variance of :math:`N(f; \mu, s) e^{-c\,\ell(y, f)}`.

        Parameters
        ----------
        y, mean, variance : ndarrays of shape (N,)
            Targets; μ and s.
        precision : float or ndarray of shape (N,)
            c, the weight of a row over the dispersion.
        near : ndarray of shape (N,), optional
            Starting points of the search for the modes.

        Examples
        --------
        >>> import numpy as np
        >>> from mssl.losses import Bernoulli
        >>> log_z, mean, variance = Bernoulli().tilted(np.ones(1), np.zeros(1), np.ones(1))
        >>> np.exp(log_z).round(6).tolist(), bool(mean[0] > 0), bool(variance[0] < 1)
        ([0.5], True, True)
        """
        mode, width, top, mass = self.tilted_rule(y, mean, variance, precision, near)
        total, first, second = (mass @ _POWERS).T
        first /= total
        spread = np.maximum(width**2 * (second / total - first**2), 1e-12)
        return top + np.log(total), mode + width * first, spread

    def at(self, parameters: Array) -> Self:
        """Copy the loss with other values of its learned parameters."""
        values = dict(zip(self.learned, np.asarray(parameters, dtype=float).tolist(), strict=True))
        moved: Self = clone(self).set_params(**values)
        return moved

    @property
    def parameters(self) -> Array:
        """Values of the learned parameters."""
        return np.array([getattr(self, name) for name in self.learned], dtype=float)

    def parameter_slopes(self, y: Array, eta: Array, dispersion: Array | float = 1.0) -> Array:
        """Derivatives of log p(y | η) by the logarithms of the learned parameters, which are the first axis."""
        slopes, h = [], 1e-4
        for place in range(len(self.learned)):
            step = np.exp(h * (np.arange(len(self.learned)) == place))
            up, down = self.at(self.parameters * step), self.at(self.parameters / step)
            slopes.append((up.log_density(y, eta, dispersion) - down.log_density(y, eta, dispersion)) / (2 * h))
        return np.array(slopes).reshape(len(self.learned), *np.shape(eta))

    def forecast(
        self, mean: Array, variance: Array, dispersion: Array, freedom: Array, parameters: Array | None = None
    ) -> Forecast:
        """Predictive distributions of rows with a normal predictor; see :class:`Forecast`."""
        if parameters is None:
            parameters = np.tile(self.parameters, (len(mean), 1))
        dispersion = dispersion if self.has_dispersion else np.ones(len(mean))
        return self._forecasts(mean, variance, dispersion, freedom, parameters, self)


class IdentityLink(Loss):
    """Base class of losses of finite numbers whose mean equals the linear predictor."""

    range = "finite numbers"
    curvature_bound = 1.0
    has_dispersion = True
    identity = True

    def inverse_link(self, eta: Array) -> Array:
        return eta

    def in_range(self, y: Array) -> Mask:
        return np.isfinite(y)

    def absorb(self, y: Array, offset: Array, weights: Array) -> tuple[Array, Array]:
        return y - offset, weights


class Gaussian(IdentityLink):
    r""":math:`\ell = \tfrac12 (y-\eta)^2`, identity link.

    Parameters
    ----------
    noise_variance : "auto", float or array of shape (K,), default="auto"
        Variance of the noise, for all tasks or for each task. "auto" estimates the share of noise in each task's
        variation, so that units do not matter. Tasks with few rows borrow from the others (:mod:`mssl.solvers.start`).
    """

    name = "gaussian"
    quadratic = True
    _forecasts = StudentForecast

    def value(self, y: Array, eta: Array) -> Array:
        return 0.5 * (y - eta) ** 2

    def gradient(self, y: Array, eta: Array) -> Array:
        return eta - y

    def curvature(self, y: Array, eta: Array) -> Array:
        return np.ones_like(eta)

    def conjugate(self, y: Array, u: Array) -> Array:
        return u * (0.5 * u + y)

    def balance(self, y: Array, eta: Array, weights: Array, starts: Index) -> Array:
        return np.asarray(np.add.reduceat(weights * (y - eta), starts) / np.add.reduceat(weights, starts))

    def deviance(self, y: Array, mean: Array) -> Array:
        return (y - mean) ** 2

    def log_base(self, y: Array, dispersion: Array | float = 1.0) -> Array:
        return np.zeros_like(y) - 0.5 * np.log(2 * np.pi * dispersion)

    def cdf(self, y: Array, mean: Array, dispersion: Array | float = 1.0) -> Array:
        return ndtr((y - mean) / np.sqrt(dispersion))


class Huber(IdentityLink):
    r"""Squared errors near the target and absolute errors far from it, so that outliers have bounded influence.

    With :math:`r = y - \eta`, :math:`\ell = \tfrac12 r^2` for :math:`|r| \le \delta` and
    :math:`\ell = \delta|r| - \tfrac12\delta^2` otherwise; identity link.

    Parameters
    ----------
    delta : float, default=1.345
        The threshold δ in the units of y. With normal noise, 1.345 times its standard deviation loses 5 % of the
        precision of least squares.
    noise_variance : "auto", float or array of shape (K,), default="auto"
        As for :class:`Gaussian`.

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

    def __init__(self, delta: float = 1.345, noise_variance: ArrayLike = "auto") -> None:
        super().__init__(noise_variance)
        self.delta = delta

    def value(self, y: Array, eta: Array) -> Array:
        size = np.abs(y - eta)
        inside = np.minimum(size, self.delta)
        return inside * (size - 0.5 * inside)

    def gradient(self, y: Array, eta: Array) -> Array:
        return np.clip(eta - y, -self.delta, self.delta)

    def curvature(self, y: Array, eta: Array) -> Array:
        # The curvature of the parabola that touches the loss at η and lies above it elsewhere.
        return self.delta / np.maximum(np.abs(y - eta), self.delta)

    def observed_curvature(self, y: Array, eta: Array) -> Array:
        return (np.abs(y - eta) <= self.delta).astype(np.float64)

    def conjugate(self, y: Array, u: Array) -> Array:
        inside = np.clip(u, -self.delta, self.delta)
        return inside * (0.5 * inside + y)

    def deviance(self, y: Array, mean: Array) -> Array:
        return 2.0 * self.value(y, mean)


class Bernoulli(Loss):
    r""":math:`\ell = \log(1+e^\eta) - y\eta`, logit link, :math:`y\in\{0,1\}`."""

    name = "bernoulli"
    range = "0 or 1"
    edges = (0.0, 1.0)
    curvature_bound = 0.25
    labels = discrete = True
    _forecasts = LabelForecast

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
        p = 1.0 / (1.0 + _exp(-eta))
        weighted = weights * p
        return np.add.reduceat(weighted - weights * y, starts), np.add.reduceat(weighted * (1.0 - p), starts)

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

    def variance(self, mean: Array, dispersion: Array | float = 1.0) -> Array:
        return mean * (1 - mean)

    def log_base(self, y: Array, dispersion: Array | float = 1.0) -> Array:
        return np.zeros_like(y)

    def cdf(self, y: Array, mean: Array, dispersion: Array | float = 1.0) -> Array:
        return np.where(y < 0, 0.0, np.where(y < 1, 1 - mean, 1.0))

    def tilted(
        self, y: Array, mean: Array, variance: Array, precision: Array | float = 1.0, near: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Closed form of the same integrals for rows of weight 1, for normals of any width.

        The logistic law is a mixture of normals, whose standard deviations are twice a variable with Kolmogorov's
        distribution (Andrews & Mallows 1974, doi:10.1111/j.2517-6161.1974.tb00989.x). The integral is therefore a sum
        of normal probabilities.
        """
        if not np.all(precision == 1.0):
            return super().tilted(y, mean, variance, precision, near)
        sign, scale = 2 * y - 1, 1 / np.sqrt(4 * _LENGTHS**2 + variance[:, None])
        z = (sign * mean)[:, None] * scale
        total = np.maximum(ndtr(z) @ _SHARES, np.finfo(float).tiny)
        parts = np.exp(-0.5 * z**2) * scale / np.sqrt(2 * np.pi)
        slope = parts @ _SHARES / total
        bend = np.einsum("ij,ij,ij,j->i", parts, z, scale, _SHARES) / total
        spread = np.maximum(variance - variance**2 * (bend + slope**2), 1e-12)
        answer = np.log(total), mean + sign * variance * slope, spread
        if np.any(far := total < _LEAST_OF_LAW):
            for part, general in zip(answer, super().tilted(y[far], mean[far], variance[far]), strict=True):
                part[far] = general
        return answer


class LogLink(Loss):
    r"""Base class of losses with :math:`\mu = e^\eta` and the variance :math:`\phi\mu^p`."""

    _power: int

    def inverse_link(self, eta: Array) -> Array:
        return _exp(eta)

    def absorb(self, y: Array, offset: Array, weights: Array) -> tuple[Array, Array]:
        return y * _exp(-offset), weights * _exp((2 - self._power) * offset)

    def variance(self, mean: Array, dispersion: Array | float = 1.0) -> Array:
        return np.asarray(dispersion * mean**self._power)

    def moments(self, mean: Array, variance: Array, dispersion: Array | float = 1.0) -> tuple[Array, Array]:
        p, wide = self._power, np.minimum(variance, 100.0)
        centre = np.exp(np.minimum(mean + 0.5 * variance, LARGEST_EXPONENT))
        within = self.variance(centre, dispersion) * np.exp(0.5 * p * (p - 1) * wide)
        return centre, centre**2 * np.expm1(wide) + within


class Poisson(LogLink):
    r""":math:`\ell = e^\eta - y\eta`, log link, :math:`y \ge 0`."""

    name = "poisson"
    range = "counts, 0 or more"
    edges = (0.0,)
    discrete = True
    _power = 1

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
        return np.log(np.add.reduceat(weights * y, starts)) - _log_sums(eta, weights, starts)

    def in_range(self, y: Array) -> Mask:
        return np.isfinite(y) & (y >= 0)

    def deviance(self, y: Array, mean: Array) -> Array:
        return 2.0 * (xlogy(y, y) - xlogy(y, mean) - y + mean)

    def log_base(self, y: Array, dispersion: Array | float = 1.0) -> Array:
        return np.asarray(-gammaln(y + 1))

    def cdf(self, y: Array, mean: Array, dispersion: Array | float = 1.0) -> Array:
        return np.where(y < 0, 0.0, pdtr(np.maximum(y, 0.0), mean))


class Gamma(LogLink):
    r""":math:`\ell = y e^{-\eta} + \eta`, log link, :math:`y > 0`; the expected curvature is 1."""

    name = "gamma"
    range = "numbers above 0"
    has_dispersion = True
    _power = 2

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
        return _log_sums(-eta, weights * y, starts) - np.log(np.add.reduceat(weights, starts))

    def in_range(self, y: Array) -> Mask:
        return np.isfinite(y) & (y > 0)

    def deviance(self, y: Array, mean: Array) -> Array:
        ratio = y / mean
        return 2.0 * (ratio - 1 - np.log(ratio))

    def log_base(self, y: Array, dispersion: Array | float = 1.0) -> Array:
        shape = 1 / np.asarray(dispersion)
        return np.asarray(xlogy(shape, shape) + (shape - 1) * np.log(y) - gammaln(shape))

    def cdf(self, y: Array, mean: Array, dispersion: Array | float = 1.0) -> Array:
        return np.asarray(gammainc(1 / np.asarray(dispersion), np.maximum(y, 0.0) / (mean * dispersion)))


def _exp(exponents: Array) -> Array:
    """The exponential. Results beyond the range of doubles are infinite, and line searches then shorten their steps."""
    with np.errstate(over="ignore"):
        return np.exp(exponents)


def _log_average(logs: Array) -> Array:
    """Logarithm of the average over the nodes on the last axis."""
    top = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]) @ MASS))


def _log_sums(exponents: Array, weights: Array, starts: Index) -> Array:
    """Logarithm of Σ_i weight_i exp(exponent_i) for each task, without overflow."""
    largest = np.maximum.reduceat(exponents, starts)
    sizes = np.diff(starts, append=len(exponents))
    return np.asarray(
        largest + np.log(np.add.reduceat(weights * np.exp(exponents - np.repeat(largest, sizes)), starts))
    )


LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Gaussian, Bernoulli, Poisson, Gamma)}


def resolve_loss(loss: str | Loss) -> Loss:
    """Make a loss from its name; return a loss unchanged."""
    if isinstance(loss, Loss):
        return loss
    return LOSSES[check_choice("loss", loss, tuple(LOSSES), also="a Loss object")]()
