"""A loss as a user would write one: the negative binomial, for counts that vary more than Poisson's."""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.special import expit, gammaln, xlog1py, xlogy

from mssl.losses import Loss


class NegativeBinomial(Loss):
    r""":math:`\ell = (y+\theta)\log(\theta+e^\eta) - y\eta`, log link; the variance is :math:`\mu + \mu^2/\theta`."""

    name = "negative binomial"
    range = "counts, 0 or more"
    edges = (0.0,)
    discrete = True
    learned = ("theta",)

    def __init__(self, theta=1.0):
        self.theta = theta

    def value(self, y, eta):
        return (y + self.theta) * np.logaddexp(np.log(self.theta), eta) - y * eta

    def _share(self, eta):
        return expit(eta - np.log(self.theta))

    def gradient(self, y, eta):
        return (y + self.theta) * self._share(eta) - y

    def curvature(self, y, eta):
        return self.theta * self._share(eta)

    def observed_curvature(self, y, eta):
        share = self._share(eta)
        return (y + self.theta) * share * expit(np.log(self.theta) - eta)

    def conjugate(self, y, u):
        p = np.clip((u + y) / (y + self.theta), 0.0, 1.0)
        return (y + self.theta) * (xlogy(p, p) + xlog1py(1 - p, -p) - (1 - p) * np.log(self.theta))

    def inverse_link(self, eta):
        return np.exp(eta)

    def in_range(self, y):
        return np.isfinite(y) & (y >= 0)

    def deviance(self, y, mean):
        return 2 * (xlogy(y, y) - xlogy(y, mean) - (y + self.theta) * np.log((y + self.theta) / (mean + self.theta)))

    def variance(self, mean, dispersion=1.0):
        return mean + mean**2 / self.theta

    def log_base(self, y, dispersion=1.0):
        return gammaln(y + self.theta) - gammaln(self.theta) - gammaln(y + 1) + self.theta * np.log(self.theta)

    def cdf(self, y, mean, dispersion=1.0):
        return stats.nbinom.cdf(y, self.theta, self.theta / (self.theta + mean))
