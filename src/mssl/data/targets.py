r"""Targets on another scale: the logarithm or a Yeo–Johnson power, learned from training rows, and the way back.

A model of :math:`z = T(y)` that says :math:`z \sim N(\mu, \sigma^2)` says of y that its quantiles are those of z,
mapped back, and that its mean is :math:`E\,T^{-1}(z)`, not :math:`T^{-1}(\mu)`.

References
----------
Box & Cox (1964), doi:10.1111/j.2517-6161.1964.tb00553.x; Yeo & Johnson (2000), doi:10.1093/biomet/87.4.954.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from mssl._typing import Array
from mssl._validation import check_choice
from mssl.data.columns import PooledRidge
from mssl.data.inputs import LARGEST_EXPONENT, dense, listing
from mssl.data.layouts import TaskData
from mssl.exceptions import DataError
from mssl.losses import MASS, NODES

TRANSFORMS = ("log", "yeo-johnson", "auto")
_WIDEST = 500  # columns of that regression: more would cost more than the fit


@dataclass(frozen=True)
class TargetTransform:
    r"""A monotone map of targets, and its way back.

    "log" is :math:`z = \log y`. "yeo-johnson" is, of :math:`t = (y - c)/s`,

    .. math:: z = \frac{(1 + t)^\lambda - 1}{\lambda} \;(t \ge 0), \qquad
              z = -\frac{(1 - t)^{2-\lambda} - 1}{2 - \lambda} \;(t < 0)

    with logarithms in the limits λ = 0 and λ = 2; λ is between them, so that every number has a way back.

    Attributes
    ----------
    kind : {"log", "yeo-johnson"}
        Which map.
    power : float
        λ, 1 is a straight line.
    centre, scale : float
        c and s.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.data.targets import TargetTransform
    >>> log = TargetTransform("log")
    >>> log.inverse(log.forward(np.array([1.0, 10.0]))).round(12).tolist()
    [1.0, 10.0]
    >>> round(float(log.mean(np.array([0.0]), np.array([2.0]))[0] / np.e), 12)
    1.0
    """

    kind: str
    power: float = 0.0
    centre: float = 0.0
    scale: float = 1.0

    def forward(self, y: Array) -> Array:
        """T(y)."""
        if self.kind == "log":
            return np.log(y)
        t = (np.asarray(y) - self.centre) / self.scale
        powers = self._powers(t)
        return np.sign(t) * np.expm1(powers * np.log1p(np.abs(t))) / powers

    def inverse(self, z: Array) -> Array:
        """The y whose T(y) is z; quantiles of z become those of y."""
        z = np.asarray(z)
        if self.kind == "log":
            return np.exp(np.minimum(z, LARGEST_EXPONENT))
        powers = self._powers(z)
        sizes = np.log1p(powers * np.abs(z)) / powers
        return np.asarray(self.centre + self.scale * np.sign(z) * np.expm1(np.minimum(sizes, LARGEST_EXPONENT)))

    def _powers(self, t: Array) -> Array:
        """The power of each side of c; in the limits λ = 0 and λ = 2 one so small that it gives a logarithm."""
        least = float(np.finfo(float).eps)
        return np.where(t >= 0, max(self.power, least), max(2.0 - self.power, least))

    def mean(self, mu: Array, variance: Array) -> Array:
        """E y where z is normal with these means and variances, elementwise."""
        mu, variance = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(variance, dtype=np.float64))
        if self.kind == "log":
            return np.exp(np.minimum(mu + 0.5 * variance, LARGEST_EXPONENT))
        sd = np.sqrt(variance)
        return sum((c * self.inverse(mu + sd * t) for t, c in zip(NODES, MASS, strict=True)), np.zeros(mu.shape))

    def log_slope(self, y: Array) -> Array:
        """Logarithm of T′(y), which a density of z needs to become one of y."""
        if self.kind == "log":
            return -np.log(y)
        t = (np.asarray(y) - self.centre) / self.scale
        return np.asarray((self.power - 1.0) * np.sign(t) * np.log1p(np.abs(t)) - np.log(self.scale))


def learn_transform(kind: str, data: TaskData) -> TargetTransform | None:
    """The scale of the targets that suits a linear model with normal errors.

    Powers and, with "auto", the scale itself are those of the largest profile likelihood of a ridge on the columns that
    all tasks share, with an intercept and a noise variance for every task; "auto" keeps the targets as they are (None)
    unless another scale is clearly better.

    Parameters
    ----------
    kind : {"log", "yeo-johnson", "auto"}
        The scale that is wanted.
    data : TaskData
        Training rows.
    """
    check_choice("target_transform", kind, TRANSFORMS, also="None")
    positive = bool(np.all(data.y > 0))
    if kind == "log":
        if not positive:
            bad = data.y <= 0
            names = list(data.tasks[np.unique(data.task_of_row[bad])])
            raise DataError(
                f"target_transform is 'log', and {int(bad.sum())} targets are not above 0 (tasks {listing(names)}); "
                "use 'yeo-johnson', which takes all numbers."
            )
        return TargetTransform("log")
    centre, scale = float(data.y.mean()), float(data.y.std())
    if scale == 0:
        return None
    X = dense(data.X[:, :0] if data.n_features > _WIDEST else data.X)
    weights, totals = data.row_weights, data.weight_sums()
    ridge = PooledRidge(np.tile(X, (data.n_tasks, 1)) if data.shared else X, data.task_of_row, weights)

    def yeo_johnson(power: float) -> TargetTransform:
        return TargetTransform("yeo-johnson", float(power), centre, scale)

    def likelihood(transform: TargetTransform) -> float:
        """Log-likelihood of the targets, up to a constant, maximised over intercepts and noise variances."""
        z = ridge.centred(transform.forward(data.y)[:, None])
        squares = data.task_sums(weights * ridge.residuals(z)[:, 0] ** 2)
        floor = 1e-12 * max(float(np.average(z[:, 0] ** 2, weights=weights)), 1e-300)
        of_scale = -0.5 * float((totals * np.log(np.maximum(squares / totals, floor))).sum())
        return of_scale + float((weights * transform.log_slope(data.y)).sum())

    found = minimize_scalar(lambda power: -likelihood(yeo_johnson(power)), bounds=(0.0, 2.0), method="bounded")
    best = yeo_johnson(found.x)
    if kind == "yeo-johnson":
        return best
    none = likelihood(yeo_johnson(1.0))
    gain, chosen = likelihood(best) - none - 0.5 * np.log(len(data.y)), best
    log = likelihood(TargetTransform("log")) - none if positive else -np.inf
    if log > gain:
        gain, chosen = log, TargetTransform("log")
    return chosen if gain > 2.0 else None  # nats: as far as chance comes with one power to choose
