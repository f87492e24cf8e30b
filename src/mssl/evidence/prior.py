r"""The prior of the weights: blocks of columns, each with a covariance over tasks and scales of features; the noise.

The K weights of column j of block b have covariance :math:`\psi_j T_b` over the tasks. A block's kernel is T, its
scales are ψ, and the noise is a part of the prior too. Hyperpriors are modes under the invariant measure, written as
prices of −2 log Z; that of relevances is

.. math:: a \sum_p \Bigl[\frac{b}{\psi_p} + \log\frac{\psi_p}{b}\Bigr]

with b, one for each part of a block, at its best value, the harmonic mean. A GLM has no noise that would bound its
prior: the mean prior variance of its predictor, :math:`\bar v_f`, is priced by :math:`2 \log(1 + \bar v_f/s^2)`.

All are climbed at once (:mod:`mssl.evidence.climb`): a prior is a point that moves in coordinates of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from mssl._typing import Array, Index
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

    A kernel of your own is a subclass: its matrix, its slope, a step in coordinates of its own, and its price. It is
    immutable; ``moved`` returns another.

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


RELEVANCE_PRIOR = 4.0  # a: rows' worth of a priori knowledge that all columns of a block matter alike; 1 blew up
PREDICTOR_SCALE = 3.0  # s of a GLM: predictors beyond ± 2 s are out of the ordinary on the log-odds or log scale
FLAT = 1e4  # prior variance of the mean intercept of shrunk intercepts, in the units of the targets' variance


class FeatureScale(Learned[Array]):
    """Scales ψ of the features of a block; −2 log Z changes by (A − C)·dψ."""

    @property
    @abstractmethod
    def values(self) -> Array:
        """ψ of every column of the block."""


@dataclass(frozen=True, eq=False)
class Equal(FeatureScale):
    """All columns alike."""

    d: int

    @property
    def values(self) -> Array:
        return np.ones(self.d)


@dataclass(frozen=True, eq=False)
class ARD(FeatureScale):
    """A relevance for every group of columns; their harmonic mean in the first part is 1.

    Parameters
    ----------
    groups : ndarray of int of shape (d,)
        Relevance group of every column.
    parts : ndarray of int of shape (P,), optional
        Part of the block that each group lies in. Relevances are drawn to each other within a part.
    psi : ndarray of shape (P,), optional
        Relevances; a fit finds them.
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
        """The harmonic mean of every group's part."""
        return np.asarray((np.bincount(self._part) / np.bincount(self._part, 1 / self._psi))[self._part])

    @property
    def values(self) -> Array:
        return self._psi[self.groups]

    @property
    def size(self) -> int:
        return len(self._psi)

    def slope(self, A: Array, C: Array) -> Slope:
        psi = self._psi
        # Traces are not negative; collinear columns may leave rounding of either sign in their place.
        sums = [np.maximum(np.bincount(self.groups, part, len(psi)), 0.0) for part in (A, C)]
        slope, metric = in_logs(
            np.ones(len(psi)), psi * sums[0] + RELEVANCE_PRIOR, psi * sums[1] + RELEVANCE_PRIOR * self._level / psi
        )
        first = self._part == self._part[:1]  # whose mean stays: the scale of all is the kernel's
        return slope - np.where(first, 1 / psi, 0.0) / np.sum(1 / psi[first]) * slope.sum(), metric

    def moved(self, step: Array) -> ARD:
        return replace(self, psi=self._psi * np.exp(step))

    def price(self) -> float:
        ratio = self._level / self._psi
        return RELEVANCE_PRIOR * float(np.sum(ratio - np.log(ratio)))


@dataclass(frozen=True, eq=False)
class Block:
    """Columns whose weights have one covariance over tasks.

    Attributes
    ----------
    columns : ndarray of int
        The columns.
    tasks : TaskKernel
        Covariance over tasks.
    features : FeatureScale
        Scales of the columns.
    """

    columns: Index
    tasks: TaskKernel
    features: FeatureScale


class Derivatives(NamedTuple):
    r"""What an exact computation at a prior says; see :mod:`mssl.evidence.routes`.

    Attributes
    ----------
    value : float
        −2 log Z without constants.
    tasks : list of (Form, Form)
        A and C of every block: −2 log Z changes by tr((A − C) dT).
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
    """Blocks and noise: a point of the climb.

    Attributes
    ----------
    blocks : tuple of Block
        The blocks; each column lies in one.
    noise : Noise
        Of the errors.
    intercept : bool
        Whether the last block is an intercept.
    predictor : ndarray of shape (d,) or None
        For a GLM: mean over rows of every column's square, which turns prior variances into that of the predictor.
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
        """Block of every column."""
        of = np.zeros(sum(len(block.columns) for block in self.blocks), dtype=np.int64)
        for number, block in enumerate(self.blocks):
            of[block.columns] = number
        return of

    @cached_property
    def psi(self) -> Array:
        """ψ of every column."""
        values = np.zeros(len(self.block))
        for block in self.blocks:
            values[block.columns] = block.features.values
        return values

    @cached_property
    def covariances(self) -> Array:
        """T of every block, shape (B, K, K)."""
        return np.array([block.tasks.matrix(self.n_tasks) for block in self.blocks])

    @cached_property
    def common(self) -> Array:
        """Variances of each block that a new task has in common with all others, and of its own, shape (B, 2)."""
        return np.array([block.tasks.common() for block in self.blocks])

    @property
    def plain(self) -> bool:
        """Whether tasks are independent given the means that they share, and errors are."""
        return all(block.tasks.plain for block in self.blocks) and isinstance(self.noise, PerTask)

    @property
    def mean_variances(self) -> Array:
        """Prior variance of what all tasks have in common, column by column."""
        return np.asarray(self.common[self.block, 0] * self.psi)

    @property
    def own_variances(self) -> Array:
        """Prior variance of a new task's own part, column by column."""
        return np.asarray(self.common[self.block, 1] * self.psi)

    def variances(self) -> Array:
        """Mean prior variance over the tasks, column by column."""
        return np.asarray(np.einsum("bkk->b", self.covariances)[self.block] / self.n_tasks * self.psi)

    def moved(self, step: Array) -> Prior:
        """The prior at the end of a step."""
        blocks, first = [], 0
        for block in self.blocks:
            middle = first + block.tasks.size
            last = middle + block.features.size
            tasks, features = block.tasks.moved(step[first:middle]), block.features.moved(step[middle:last])
            blocks.append(Block(block.columns, tasks, features))
            first = last
        return replace(self, blocks=tuple(blocks), noise=self.noise.moved(step[first:]))

    def objective(self, value: float) -> float:
        """−2 log Z plus the prices."""
        total = value + self.noise.price()
        total += sum(block.tasks.price() + block.features.price() for block in self.blocks)
        return float(total + 2 * np.log1p(self._predictor_variance / PREDICTOR_SCALE**2))

    @cached_property
    def _reaches(self) -> list[float]:
        """Mean variances of a GLM's predictor by T = I on each block; none where there is no predictor to price."""
        squares = self.predictor
        return [] if squares is None else [float(squares[b.columns] @ b.features.values) for b in self.blocks]

    @cached_property
    def _predictor_variance(self) -> float:
        spreads = (block.tasks.spread(self.n_tasks) for block in self.blocks)
        return sum(reach * spread for reach, spread in zip(self._reaches, spreads, strict=False))

    def slopes(self, s: Derivatives) -> Slope:
        """Slope of the objective in the coordinates of :meth:`moved`, and its minorise–maximise curvature."""
        K, rate = self.n_tasks, 2.0 / (PREDICTOR_SCALE**2 + self._predictor_variance)
        parts: list[Slope] = []
        for number, (block, forms) in enumerate(zip(self.blocks, s.tasks, strict=True)):
            (A, C), down = forms, s.down[block.columns]
            if self.predictor is not None:
                A = A.plus_identity(rate * self._reaches[number], K)
                down = down + rate * self.predictor[block.columns] * block.tasks.spread(K)
            parts += [block.tasks.slope(A, C), block.features.slope(down, s.up[block.columns])]
        parts.append(self.noise.slope(*s.noise))
        return np.concatenate([slope for slope, _ in parts]), np.concatenate([metric for _, metric in parts])

    def evaluated(self, route: Any) -> tuple[float, Array, Array] | None:
        """Objective, slope and metric, or None where they cannot be computed."""
        try:
            s = route.derivatives(self)
        except np.linalg.LinAlgError:
            return None
        objective = self.objective(s.value) if np.isfinite(s.value) else np.inf
        return (objective, *self.slopes(s)) if np.isfinite(objective) else None

    def without_intercept(self) -> Prior:
        """The prior of the other columns."""
        return replace(self, blocks=self.blocks[:-1], intercept=False) if self.intercept else self

    def with_intercept(self, tasks: TaskKernel) -> Prior:
        """The prior with an intercept after the other columns."""
        block = Block(np.array([len(self.block)]), tasks, Equal(1))
        return replace(self, blocks=(*self.blocks, block), intercept=True)


def plain_prior(block: Index, groups: Index, noise: Noise, *, relevance: bool, mean: bool) -> Prior:
    """A ridge, or tasks around a mean, for every block of columns; half of the variance is noise, the rest is spread.

    Parameters
    ----------
    block, groups : ndarrays of int of shape (d,)
        Block and relevance group of every column.
    noise : Noise
        Where the noise begins.
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
    """The prior in which one kernel relates the tasks, for all columns but the intercept; scales of blocks stay."""
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
