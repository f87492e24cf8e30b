r"""Covariances T of one block's weights over the tasks.

A kernel is immutable: ``moved`` returns another, in coordinates of its own (:mod:`mssl.evidence.climb`). A new kernel
is one class: its matrix, the slope of :math:`\operatorname{tr}((A - C)\,dT)` in its coordinates, a step, and its price.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from mssl._typing import Array
from mssl._validation import refused
from mssl.evidence.climb import SMALLEST, Framed, Learned, Slope, in_logs

_LEAST_OWN = 1e-2  # Least share of the mean's variance that tasks' own deviations begin with under a dense T.


class Form(NamedTuple):
    """A derivative by T: its trace, the sum of its entries, and the matrix, which plain kernels do not need."""

    trace: float
    total: float
    array: Array | None = None

    @classmethod
    def of(cls, array: Array) -> Form:
        """The form of a matrix."""
        return cls(float(np.trace(array)), float(array.sum()), array)

    def plus_identity(self, c: float, K: int) -> Form:
        """The form with c/K more on the diagonal."""
        array = None if self.array is None else self.array + c / K * np.eye(K)
        return Form(self.trace + c, self.total + c, array)

    @property
    def matrix(self) -> Array:
        """The matrix, of a route that knows it."""
        assert self.array is not None  # for the type checker
        return self.array


class TaskKernel(Learned[Form]):
    r"""Covariance of a block's weights over K tasks.

    Attributes
    ----------
    plain : bool
        Whether T is :math:`v I + t 1 1^\top`, under which tasks are independent given their mean.
    """

    plain = False

    @abstractmethod
    def started(self, K: int, v: float, t: float) -> Self:
        """The kernel near v I + t 11ᵀ, where a climb begins."""

    @abstractmethod
    def matrix(self, K: int) -> Array:
        """T."""

    @abstractmethod
    def common(self) -> tuple[float, float]:
        """Variances that the weights of a new task have in common with all others, and of its own."""

    def spread(self, K: int) -> float:
        """Mean prior variance of the tasks' weights, as far as it is learned."""
        return float(np.trace(self.matrix(K))) / K


@dataclass(frozen=True)
class Exchangeable(TaskKernel):
    """Weights around a mean that all tasks share: T = v I + t 11ᵀ.

    Parameters
    ----------
    mean : bool, default=True
        Whether tasks share a mean; without one this is a ridge.
    v, t : float
        Variances of the tasks' deviations and of the mean; a fit finds them.
    learned : tuple of str
        Which of them are learned.

    Examples
    --------
    >>> from mssl.priors import Exchangeable
    >>> Exchangeable(v=1.0, t=0.5).matrix(2).tolist()
    [[1.5, 0.5], [0.5, 1.5]]
    """

    mean: bool = True
    v: float = 1.0
    t: float = 1.0
    learned: tuple[str, ...] = ("v", "t")
    plain = True

    def started(self, K: int, v: float, t: float) -> Exchangeable:
        return replace(self, v=v, t=t) if self.mean else replace(self, v=v + t, t=0.0)

    def matrix(self, K: int) -> Array:
        return self.v * np.eye(K) + self.t

    @property
    def _free(self) -> list[bool]:
        return ["v" in self.learned, self.mean and "t" in self.learned]

    @property
    def size(self) -> int:
        return sum(self._free)

    def slope(self, A: Form, C: Form) -> Slope:
        theta, down, up = np.array([[self.v, self.t], A[:2], C[:2]])[:, self._free]
        return in_logs(theta, theta * down, theta * up)

    def moved(self, step: Array) -> Exchangeable:
        theta = np.array([self.v, self.t])
        theta[self._free] = np.maximum(theta[self._free] * np.exp(step), SMALLEST)
        v, t = theta.tolist()
        return replace(self, v=v, t=t)

    def common(self) -> tuple[float, float]:
        return self.t, self.v

    def spread(self, K: int) -> float:
        v, t = self._free
        return v * self.v + t * self.t


@dataclass(frozen=True, eq=False)
class Dense(Framed, TaskKernel):
    r"""Any covariance T over tasks, with an inverse-Wishart prior around :math:`T_0 = v I + t 1 1^\top`.

    Its price is that of ν = K + ½ rows with the best v and t. A step moves T in its own frame.

    Parameters
    ----------
    T : ndarray of shape (K, K), optional
        The covariance; a fit finds it.
    """

    T: Array = field(default_factory=lambda: np.eye(1))

    def started(self, K: int, v: float, t: float) -> Dense:
        # Tasks that are all alike so far may come apart.
        return Dense(max(v, _LEAST_OWN * t) * np.eye(K) + t)

    def matrix(self, K: int) -> Array:
        return self.T

    @cached_property
    def centre(self) -> tuple[float, float]:
        """The v and t of T₀: 1/(v + Kt) = 1ᵀT⁻¹1/K, (K − 1)/v = tr T⁻¹ − 1ᵀT⁻¹1/K, t ≥ 0."""
        K, inverse = len(self.T), np.linalg.inv(self.T)
        along = float(inverse.sum()) / K
        across = (float(np.trace(inverse)) - along) / max(K - 1, 1)
        if K == 1 or along >= across:
            return K / float(np.trace(inverse)), 0.0
        return 1 / across, (1 / along - 1 / across) / K

    def _centre(self) -> tuple[float, Array]:
        v, t = self.centre
        return len(self.T) + 0.5, v * np.eye(len(self.T)) + t

    def slope(self, A: Form, C: Form) -> Slope:
        return self.frame_slope(A.matrix, C.matrix)

    def common(self) -> tuple[float, float]:
        return self.centre[1], self.centre[0]


@dataclass(frozen=True, eq=False)
class Known(TaskKernel):
    """A given relation of the tasks, T = s Q⁻¹, of which the scale s is learned.

    Parameters
    ----------
    precision : ndarray of shape (K, K)
        Q, positive definite.
    s : float
        The scale; a fit finds it.
    """

    precision: Array
    s: float = 1.0

    @cached_property
    def _inverse(self) -> Array:
        return np.asarray(np.linalg.inv(self.precision))

    def started(self, K: int, v: float, t: float) -> Known:
        if self.precision.shape != (K, K):
            raise refused("precision", f"of shape {self.precision.shape}", f"{K} tasks have rows here")
        return replace(self, s=(v + t) * K / float(np.trace(self._inverse)))

    def matrix(self, K: int) -> Array:
        return self.s * self._inverse

    @property
    def size(self) -> int:
        return 1

    def slope(self, A: Form, C: Form) -> Slope:
        down, up = (np.array([self.s * float(np.sum(part.matrix * self._inverse))]) for part in (A, C))
        return in_logs(np.array([self.s]), down, up)

    def moved(self, step: Array) -> Known:
        return replace(self, s=max(self.s * float(np.exp(step[0])), SMALLEST))

    def common(self) -> tuple[float, float]:
        K, T = len(self.precision), self.matrix(0)
        between = float(T.sum() - np.trace(T)) / max(K * (K - 1), 1)
        return max(between, 0.0), float(np.trace(T)) / K - max(between, 0.0)
