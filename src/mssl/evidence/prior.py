r"""The prior of the weights: blocks of columns, each with a task covariance and feature scales; and the noise.

The K weights of column j of block b have covariance :math:`\psi_j T_b` over the tasks. T is the kernel of a block and
ψ its scales. The noise is a part of the prior too. Each hyperprior adds a penalty to −2 log Z, here called its price.
The price of relevances is

.. math:: a \sum_p \Bigl[\frac{b}{\psi_p} + \log\frac{\psi_p}{b}\Bigr]

where each part of a block has its own b, which is set to its optimum, the harmonic mean. In a GLM no noise variance
bounds the prior variances. The price :math:`2 \log(1 + \bar v_f/s^2)` of the mean prior variance :math:`\bar v_f` of
the linear predictor bounds them.

All hyperparameters are optimised together (:mod:`mssl.evidence.climb`). For this a prior is a point with coordinates.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from mssl._typing import Array, Index
from mssl._validation import refused
from mssl.evidence.climb import Framed, Learned, Slope, in_logs
from mssl.solvers.base import SMALLEST_VARIANCE

# Smallest ratio of the variance of deviations to that of the mean at the start of a dense T. A larger one would move
# the start away from the previous stage; a smaller one would hold together tasks that looked alike there. It was set on
# the synthetic families of benchmarks/evidence.py.
_LEAST_OWN = 1e-2


class Form(NamedTuple):
    """A derivative in T: its trace, the sum of its entries, and the matrix, which plain kernels do not need."""

    trace: float
    total: float
    array: Array | None = None

    @classmethod
    def of(cls, array: Array) -> Form:
        """Return the form of a matrix."""
        return cls(float(np.trace(array)), float(array.sum()), array)

    def plus_identity(self, c: float, K: int) -> Form:
        """Return the form with c/K added to the diagonal."""
        array = None if self.array is None else self.array + c / K * np.eye(K)
        return Form(self.trace + c, self.total + c, array)

    @property
    def matrix(self) -> Array:
        """The matrix, from a route that computes it."""
        assert self.array is not None  # for the type checker
        return self.array


class TaskKernel(Learned[Form]):
    r"""Covariance of a block's weights over K tasks.

    To define your own kernel, write a subclass with its matrix, its gradient (``slope``), a step in its coordinates
    (``moved``) and its price. A kernel is immutable; ``moved`` returns a new one.

    Attributes
    ----------
    plain : bool
        Whether T is :math:`v I + t 1 1^\top`, under which tasks are independent given their mean.
    """

    plain = False

    @abstractmethod
    def started(self, K: int, v: float, t: float) -> Self:
        """Return the kernel near v I + t 11ᵀ, from which a climb starts."""

    @abstractmethod
    def matrix(self, K: int) -> Array:
        """Return T."""

    @abstractmethod
    def common(self) -> tuple[float, float]:
        """Return the variance that a new task's weights share with all others, and the variance of their deviation."""

    def spread(self, K: int) -> float:
        """Return the mean prior variance of the tasks' weights, summed over its learned parts."""
        return float(np.trace(self.matrix(K))) / K


@dataclass(frozen=True)
class Exchangeable(TaskKernel):
    """Weights that scatter around a shared mean: T = v I + t 11ᵀ.

    Parameters
    ----------
    mean : bool, default=True
        Whether tasks share a mean. Without a mean this is ridge regression.
    v, t : float
        Variances of the tasks' deviations and of the mean. A fit estimates them.
    learned : tuple of str
        Names of the variances that are learned.

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
        theta[self._free] = np.maximum(theta[self._free] * np.exp(step), SMALLEST_VARIANCE)
        v, t = theta.tolist()
        return replace(self, v=v, t=t)

    def common(self) -> tuple[float, float]:
        return self.t, self.v

    def spread(self, K: int) -> float:
        v, t = self._free
        return v * self.v + t * self.t


@dataclass(frozen=True, eq=False)
class Dense(Framed, TaskKernel):
    r"""An unrestricted task covariance T, with an inverse-Wishart prior around :math:`T_0 = v I + t 1 1^\top`.

    The prior is worth ν = K + ½ observations; v and t are at their optimum. A step moves T in its own frame.

    Parameters
    ----------
    T : ndarray of shape (K, K), optional
        The covariance. A fit estimates it.
    """

    T: Array = field(default_factory=lambda: np.eye(1))

    def started(self, K: int, v: float, t: float) -> Dense:
        # If the previous stage found equal weights in all tasks, this start still allows them to differ.
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
    """A fixed relation of the tasks, T = s Q⁻¹, with a learned scale s.

    Parameters
    ----------
    precision : ndarray of shape (K, K)
        Q, positive definite.
    s : float
        The scale. A fit estimates it.
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
        return replace(self, s=max(self.s * float(np.exp(step[0])), SMALLEST_VARIANCE))

    def common(self) -> tuple[float, float]:
        K, T = len(self.precision), self.matrix(0)
        between = float(T.sum() - np.trace(T)) / max(K * (K - 1), 1)
        return max(between, 0.0), float(np.trace(T)) / K - max(between, 0.0)


# ν_n: strength, in rows per task, of the prior that all tasks are equally noisy. A larger value stabilises tasks with
# few rows; a smaller one follows tasks whose noise differs. It comes from a prototype that was checked on 18 problems.
NOISE_PRIOR = 10.0


class Noise(Learned[Array]):
    """Error variances. They are learned from derivatives in the variances, shape (K,), or in the covariance, (K, K)."""

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
        """Return the noise with c times the variances."""


@dataclass(frozen=True, eq=False)
class PerTask(Noise):
    r"""One variance per task; the variances are shrunk towards their harmonic mean s₀.

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
        return replace(self, values=np.maximum(self.values * np.exp(step), SMALLEST_VARIANCE)) if self.learned else self

    def price(self) -> float:
        ratio = self._level / self.values
        return NOISE_PRIOR * float(np.sum(ratio - np.log(ratio))) if self.learned else 0.0

    def scaled(self, c: float) -> PerTask:
        return replace(self, values=c * self.values)


@dataclass(frozen=True, eq=False)
class SharedNoise(Framed, Noise):
    r"""Errors of the tasks on one occasion have the covariance Ω; a prior worth K + 1 occasions shrinks Ω to a target.

    Parameters
    ----------
    T, target : ndarrays of shape (K, K)
        Ω and the target of the shrinkage.
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


# a: strength of the prior that all columns of a block are equally relevant. A smaller value selects columns more
# sharply but less stably (with 1 the relevances diverged). It comes from a prototype that was checked on 18 problems.
RELEVANCE_PRIOR = 4.0
# s of a GLM. A smaller value shrinks the linear predictor more; predictors beyond ± 2 s are unusual on the log-odds and
# log scales.
PREDICTOR_SCALE = 3.0
# Prior variance of the mean of shrunk intercepts, in units of the targets' variance: wide, so that it does not shrink
# the mean, and finite, so that the posterior stays proper.
FLAT = 1e4


class FeatureScale(Learned[Array]):
    """Scales ψ of the features of a block; −2 log Z changes by (A − C)·dψ."""

    @property
    @abstractmethod
    def values(self) -> Array:
        """ψ of each column of the block."""


@dataclass(frozen=True, eq=False)
class Equal(FeatureScale):
    """Scale 1 for all columns."""

    d: int

    @property
    def values(self) -> Array:
        return np.ones(self.d)


@dataclass(frozen=True, eq=False)
class ARD(FeatureScale):
    """One relevance per group of columns (automatic relevance determination).

    The harmonic mean of the relevances in the first part is 1.

    Parameters
    ----------
    groups : ndarray of int of shape (d,)
        Relevance group of each column.
    parts : ndarray of int of shape (P,), optional
        Part of the block to which each group belongs. Relevances are shrunk towards each other within a part.
    psi : ndarray of shape (P,), optional
        Relevances. A fit estimates them.
    """

    groups: Index
    parts: Index | None = None
    psi: Array | None = None

    @cached_property
    def _part(self) -> Index:
        count = int(self.groups.max(initial=-1)) + 1
        return np.zeros(count, dtype=np.int64) if self.parts is None else self.parts

    @cached_property
    def _psi(self) -> Array:
        psi, first = np.ones(len(self._part)) if self.psi is None else self.psi, self._part == self._part[:1]
        return np.asarray(psi * np.mean(1 / psi[first]))

    @cached_property
    def _level(self) -> Array:
        """Harmonic mean of the relevances in each group's part."""
        return np.asarray((np.bincount(self._part) / np.bincount(self._part, 1 / self._psi))[self._part])

    @property
    def values(self) -> Array:
        return self._psi[self.groups]

    @property
    def size(self) -> int:
        return len(self._psi)

    def slope(self, A: Array, C: Array) -> Slope:
        psi = self._psi
        # Exact traces are non-negative; for collinear columns rounding may make them negative.
        sums = [np.maximum(np.bincount(self.groups, part, len(psi)), 0.0) for part in (A, C)]
        slope, metric = in_logs(
            np.ones(len(psi)), psi * sums[0] + RELEVANCE_PRIOR, psi * sums[1] + RELEVANCE_PRIOR * self._level / psi
        )
        first = self._part == self._part[:1]  # The mean of this part is fixed; the kernel holds the common scale.
        return slope - np.where(first, 1 / psi, 0.0) / np.sum(1 / psi[first]) * slope.sum(), metric

    def moved(self, step: Array) -> ARD:
        return replace(self, psi=self._psi * np.exp(step))

    def price(self) -> float:
        ratio = self._level / self._psi
        return RELEVANCE_PRIOR * float(np.sum(ratio - np.log(ratio)))


@dataclass(frozen=True, eq=False)
class Block:
    """Columns whose weights have the same task covariance, up to a scale.

    Attributes
    ----------
    columns : ndarray of int
        Indices of the columns.
    tasks : TaskKernel
        Task covariance.
    features : FeatureScale
        Scales of the columns.
    """

    columns: Index
    tasks: TaskKernel
    features: FeatureScale


class Derivatives(NamedTuple):
    r"""−2 log Z and its derivatives at a prior; see :mod:`mssl.evidence.routes`.

    Attributes
    ----------
    value : float
        −2 log Z without constants.
    tasks : list of (Form, Form)
        A and C of each block: −2 log Z changes by tr((A − C) dT).
    down, up : ndarrays of shape (d,)
        −2 log Z changes by (down − up)·dψ.
    noise : (ndarray, ndarray) of shape (K,) or (K, K)
        A and C of the noise's variances, or of its covariance.
    """

    value: float
    tasks: list[tuple[Form, Form]]
    down: Array
    up: Array
    noise: tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Prior:
    """The whole prior, which is a point of the climb.

    Attributes
    ----------
    blocks : tuple of Block
        The blocks. Each column belongs to exactly one block.
    noise : Noise
        Variances of the errors.
    intercept : bool
        Whether the last block is an intercept.
    predictor : ndarray of shape (d,) or None
        For a GLM, the mean square of each column over the rows. Prior variances times this give the prior variance of
        the linear predictor.
    """

    blocks: tuple[Block, ...]
    noise: Noise
    intercept: bool = False
    predictor: Array | None = None

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return len(self.noise.variances)

    @cached_property
    def block(self) -> Index:
        """Block of each column."""
        of = np.zeros(sum(len(block.columns) for block in self.blocks), dtype=np.int64)
        for number, block in enumerate(self.blocks):
            of[block.columns] = number
        return of

    @cached_property
    def psi(self) -> Array:
        """ψ of each column."""
        values = np.zeros(len(self.block))
        for block in self.blocks:
            values[block.columns] = block.features.values
        return values

    @cached_property
    def covariances(self) -> Array:
        """T of each block, shape (B, K, K)."""
        return np.array([block.tasks.matrix(self.n_tasks) for block in self.blocks])

    @cached_property
    def common(self) -> Array:
        """Per block, the variance that a new task shares with all others and that of its deviation, shape (B, 2)."""
        return np.array([block.tasks.common() for block in self.blocks])

    @property
    def plain(self) -> bool:
        """Whether the tasks are independent given their shared means, and their errors are independent."""
        return all(block.tasks.plain for block in self.blocks) and isinstance(self.noise, PerTask)

    @property
    def mean_variances(self) -> Array:
        """Prior variance of the shared mean, column by column."""
        return np.asarray(self.common[self.block, 0] * self.psi)

    @property
    def own_variances(self) -> Array:
        """Prior variance of a new task's deviation from the shared mean, column by column."""
        return np.asarray(self.common[self.block, 1] * self.psi)

    def variances(self) -> Array:
        """Return the mean prior variance over the tasks, column by column."""
        return np.asarray(np.einsum("bkk->b", self.covariances)[self.block] / self.n_tasks * self.psi)

    def moved(self, step: Array) -> Prior:
        """Return the prior at the end of a step."""
        blocks, first = [], 0
        for block in self.blocks:
            middle = first + block.tasks.size
            last = middle + block.features.size
            tasks, features = block.tasks.moved(step[first:middle]), block.features.moved(step[middle:last])
            blocks.append(Block(block.columns, tasks, features))
            first = last
        return replace(self, blocks=tuple(blocks), noise=self.noise.moved(step[first:]))

    def objective(self, value: float) -> float:
        """Return −2 log Z plus the prices of the hyperparameters."""
        total = value + self.noise.price()
        total += sum(block.tasks.price() + block.features.price() for block in self.blocks)
        return float(total + 2 * np.log1p(self._predictor_variance / PREDICTOR_SCALE**2))

    @cached_property
    def _predictor_variance(self) -> float:
        """Mean variance of a GLM's linear predictor; 0 without ``predictor``."""
        squares, K = self.predictor, self.n_tasks
        of = () if squares is None else ((squares[b.columns] @ b.features.values, b.tasks) for b in self.blocks)
        return sum(float(reach) * tasks.spread(K) for reach, tasks in of)

    def slopes(self, s: Derivatives) -> Slope:
        """Return the gradient of the objective in the coordinates of :meth:`moved`, and the MM curvature."""
        K, rate = self.n_tasks, 2.0 / (PREDICTOR_SCALE**2 + self._predictor_variance)
        parts: list[Slope] = []
        for block, forms in zip(self.blocks, s.tasks, strict=True):
            (A, C), down = forms, s.down[block.columns]
            if self.predictor is not None:
                squares = rate * self.predictor[block.columns]
                A = A.plus_identity(float(squares @ block.features.values), K)
                down = down + squares * block.tasks.spread(K)
            parts += [block.tasks.slope(A, C), block.features.slope(down, s.up[block.columns])]
        parts.append(self.noise.slope(*s.noise))
        return np.concatenate([slope for slope, _ in parts]), np.concatenate([metric for _, metric in parts])

    def evaluated(self, route: Any) -> tuple[float, Array, Array] | None:
        """Return objective, gradient and metric, or None if they cannot be computed."""
        try:
            s = route.at(self).derivatives()
        except np.linalg.LinAlgError:
            return None
        objective = self.objective(s.value) if np.isfinite(s.value) else np.inf
        return (objective, *self.slopes(s)) if np.isfinite(objective) else None

    def without_intercept(self) -> Prior:
        """Return the prior of the other columns."""
        return replace(self, blocks=self.blocks[:-1], intercept=False) if self.intercept else self

    def with_intercept(self, tasks: TaskKernel) -> Prior:
        """Return the prior with an intercept after the other columns."""
        block = Block(np.array([len(self.block)]), tasks, Equal(1))
        return replace(self, blocks=(*self.blocks, block), intercept=True)


def plain_prior(block: Index, groups: Index, noise: Noise, *, relevance: bool, mean: bool) -> Prior:
    """Return the initial prior: an exchangeable kernel for each block of columns.

    The noise has half of the targets' variance; the columns share the other half equally.

    Parameters
    ----------
    block, groups : ndarrays of int of shape (d,)
        Block of each column, and its relevance group in this block.
    noise : Noise
        The initial noise.
    relevance, mean : bool
        Whether relevances are learned, and whether tasks share a mean.
    """
    K, names = len(noise.variances), np.unique(block)
    blocks = []
    for name in names.tolist():
        columns = np.flatnonzero(block == name)
        own = np.unique(groups[columns], return_inverse=True)[1].ravel()
        share = 0.25 / len(columns) / len(names)
        features = ARD(own) if relevance else Equal(len(columns))
        blocks.append(Block(columns, Exchangeable(mean).started(K, share, share), features))
    return Prior(tuple(blocks), noise)


def related(prior: Prior, kernel: TaskKernel) -> Prior:
    """Return the prior with one kernel for all columns except the intercept; the scales of the blocks are kept."""
    K = prior.n_tasks
    free = prior.without_intercept().blocks
    totals = np.array([block.tasks.common()[1] + block.tasks.common()[0] / K for block in free])
    columns = np.concatenate([block.columns for block in free])
    part = np.repeat(np.arange(len(free)), [len(block.columns) for block in free])
    own = [block.features.groups if isinstance(block.features, ARD) else 0 * block.columns for block in free]
    pairs = np.column_stack([part, np.concatenate(own)])
    _, first, groups = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    psi = np.concatenate([block.features.values for block in free]) * (totals / totals[0])[part]
    plain = len(free) == 1 and isinstance(free[0].features, Equal)
    features = Equal(len(columns)) if plain else ARD(groups.ravel(), part[first], psi[first])
    t, v = free[0].tasks.common()
    one = Block(columns, kernel.started(K, v, t), features)
    return replace(prior, blocks=(one, *prior.blocks[len(free) :]))
