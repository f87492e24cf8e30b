r"""Noise around the predictors of a Gaussian likelihood, as a part of the prior that is climbed with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from mssl._typing import Array
from mssl.evidence.climb import SMALLEST, Slope, frame_moved, frame_slope, in_logs, wishart_distance

NOISE_PRIOR = 10.0  # ν_n: rows' worth of knowledge that tasks are about equally noisy


class Noise(ABC):
    """Variances of the errors, and how they are learned."""

    @property
    @abstractmethod
    def variances(self) -> Array:
        """Noise variance of every task, shape (K,)."""

    @property
    def covariance(self) -> Array:
        """Covariance of the tasks' errors on one occasion, shape (K, K)."""
        return np.diag(self.variances)

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of coordinates."""

    @abstractmethod
    def slope(self, A: Array, C: Array) -> Slope:
        """Slope and metric in the coordinates, of derivatives by the covariance or the variances; with the price."""

    @abstractmethod
    def moved(self, step: Array) -> Self:
        """The noise at the end of a step."""

    @abstractmethod
    def price(self) -> float:
        """−2 log hyperprior."""

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
class SharedNoise(Noise):
    r"""Errors with a covariance Ω that tasks share on one occasion, drawn to a target D by K + 1 occasions' worth.

    Parameters
    ----------
    omega, target : ndarrays of shape (K, K)
        Ω and D.
    """

    omega: Array
    target: Array

    @property
    def variances(self) -> Array:
        return np.diag(self.omega)

    @property
    def covariance(self) -> Array:
        return self.omega

    @property
    def size(self) -> int:
        return len(self.omega) * (len(self.omega) + 1) // 2

    def slope(self, A: Array, C: Array) -> Slope:
        inverse, nu = np.linalg.inv(self.omega), len(self.omega) + 1.0
        return frame_slope(self.omega, A + nu * inverse, C + nu * inverse @ self.target @ inverse)

    def moved(self, step: Array) -> SharedNoise:
        return replace(self, omega=frame_moved(self.omega, step))

    def price(self) -> float:
        return (len(self.omega) + 1.0) * wishart_distance(self.omega, self.target)

    def scaled(self, c: float) -> SharedNoise:
        return replace(self, omega=c * self.omega)
