r"""Noise around the predictors of a Gaussian likelihood, as a part of the prior that is climbed with it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from mssl._typing import Array
from mssl.evidence.climb import SMALLEST, Framed, Learned, Slope, in_logs

NOISE_PRIOR = 10.0  # ν_n: rows' worth of knowledge that tasks are about equally noisy


class Noise(Learned[Array]):
    """Variances of the errors, and how they are learned: from derivatives by the variances or by the covariance."""

    @property
    @abstractmethod
    def variances(self) -> Array:
        """Noise variance of every task, shape (K,)."""

    @property
    def covariance(self) -> Array:
        """Covariance of the tasks' errors on one occasion, shape (K, K)."""
        return np.diag(self.variances)

    @abstractmethod
    def scaled(self, c: float) -> Self:
        """The noise with c times the variances."""


@dataclass(frozen=True, eq=False)
class PerTask(Noise):
    r"""A variance of its own for every task, drawn to their harmonic mean s₀.

    The price is :math:`\nu_n \sum_k [s_0/\sigma_k^2 + \log(\sigma_k^2/s_0)]`.

    Parameters
    ----------
    values : ndarray of shape (K,)
        The variances.
    learned : bool, default=True
        Whether they are learned.
    """

    values: Array
    learned: bool = True

    @property
    def variances(self) -> Array:
        return self.values

    @property
    def size(self) -> int:
        return len(self.values) if self.learned else 0

    @property
    def _level(self) -> float:
        return float(len(self.values) / np.sum(1 / self.values))

    def slope(self, A: Array, C: Array) -> Slope:
        if not self.learned:
            return np.zeros(0), np.zeros(0)
        own, (down, up) = self.values, (part if part.ndim == 1 else np.diag(part) for part in (A, C))
        return in_logs(own, own * down + NOISE_PRIOR, own * up + NOISE_PRIOR * self._level / own)

    def moved(self, step: Array) -> PerTask:
        return replace(self, values=np.maximum(self.values * np.exp(step), SMALLEST)) if self.learned else self

    def price(self) -> float:
        ratio = self._level / self.values
        return NOISE_PRIOR * float(np.sum(ratio - np.log(ratio))) if self.learned else 0.0

    def scaled(self, c: float) -> PerTask:
        return replace(self, values=c * self.values)


@dataclass(frozen=True, eq=False)
class SharedNoise(Framed, Noise):
    r"""Errors with a covariance Ω that tasks share on one occasion, drawn to a target by K + 1 occasions' worth.

    Parameters
    ----------
    T, target : ndarrays of shape (K, K)
        Ω and what it is drawn to.
    """

    T: Array
    target: Array

    @property
    def variances(self) -> Array:
        return np.diag(self.T)

    @property
    def covariance(self) -> Array:
        return self.T

    def _centre(self) -> tuple[float, Array]:
        return len(self.T) + 1.0, self.target

    def slope(self, A: Array, C: Array) -> Slope:
        return self.frame_slope(A, C)

    def scaled(self, c: float) -> SharedNoise:
        return replace(self, T=c * self.T)
