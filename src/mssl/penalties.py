r"""Penalties on the weights W (K, d).

All penalties are in units of the noise: with :math:`V = \operatorname{diag}(\sqrt{s})\,W`, a strength has the same
meaning in every task and does not depend on the units of the targets. If the noise variance is 1, V = W.

Solvers and kernels get a penalty on single weights as an :class:`EntrywisePenalty`. It has a code for the function of
one weight, and parameters of shape (K, d). A new penalty of this kind needs a class here, a code, and a branch in the
kernels' function of one weight. All other penalties are used through their value and their proximal map.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mssl._typing import Array
from mssl._validation import check_flag, check_number, check_whole_number, refused
from mssl.exceptions import ParameterError

ABSOLUTE, MINIMAX_CONCAVE = 0, 1  # the codes of mssl.h for functions of one weight


@dataclass(frozen=True, eq=False)
class EntrywisePenalty:
    r"""A penalty :math:`\sum_{kj} g(w_{kj})` on the weights of one data set, in the form for solvers and kernels.

    Attributes
    ----------
    strengths : ndarray of shape (K, d)
        The slopes :math:`t_{kj} \ge 0` of g at 0+. With 0 a weight has no penalty; infinity keeps it at 0.
    code : int
        ABSOLUTE: :math:`g(w) = t|w|`. MINIMAX_CONCAVE: :math:`g(w) = t|w| - w^2/(2\theta)` up to
        :math:`|w| = \theta t`, constant beyond.
    concavities : ndarray of shape (K, d) or None
        The :math:`\theta_{kj}`.
    positive : bool
        Whether weights must be ≥ 0.
    """

    strengths: Array
    code: int = ABSOLUTE
    concavities: Array | None = None
    positive: bool = False

    @classmethod
    def of(cls, penalty: EntrywisePenalty | Array, shape: tuple[int, ...]) -> EntrywisePenalty:
        """The penalty itself, or the ℓ1 penalty whose strengths are an array of shape (K,) or (K, d)."""
        if isinstance(penalty, EntrywisePenalty):
            return penalty
        strengths = np.asarray(penalty, dtype=float)
        return cls(np.array(np.broadcast_to(strengths if strengths.ndim == 2 else strengths[:, None], shape)))

    @property
    def convex(self) -> bool:
        """Whether the penalty is convex. Bounds of the suboptimality then exist."""
        return self.code == ABSOLUTE

    @cached_property
    def absent(self) -> bool:
        """Whether no weight is penalised or constrained."""
        return not self.positive and not self.strengths.any()

    @cached_property
    def kernel(self) -> tuple[int, bool, Array]:
        """Code, sign constraint and parameters, (1 or 2, K, d), in the form for compiled kernels."""
        parameters = [self.strengths] if self.concavities is None else [self.strengths, self.concavities]
        return self.code, self.positive, np.stack(parameters)

    def pooled(self) -> EntrywisePenalty:
        """The penalty on one weight vector for all tasks, (1, d)."""
        if not self.convex:
            raise refused("penalty", "MCP", "pooled weights allow L1, ElasticNet and AdaptiveL1")
        return EntrywisePenalty(self.strengths.sum(axis=0, keepdims=True), positive=self.positive)

    def allowed(self, W: Array) -> Array:
        """A copy of W, projected onto the allowed weights."""
        W = np.maximum(W, 0.0) if self.positive else np.array(W, dtype=float, order="C")
        W[np.isinf(self.strengths)] = 0.0
        return W

    def values(self, W: Array) -> Array:
        """The penalty g of each weight, (K, d)."""
        size = np.abs(W)
        with np.errstate(invalid="ignore"):
            values = np.where(size > 0, self.strengths * size, 0.0)
            if self.code == MINIMAX_CONCAVE:
                theta, t = np.asarray(self.concavities), self.strengths
                bent = np.where(size <= theta * t, values - 0.5 * size**2 / theta, 0.5 * theta * t**2)
                values = np.where(size > 0, bent, 0.0)
        return np.where(W < 0, np.inf, values) if self.positive else values

    def value(self, W: Array) -> float:
        """The penalty at W."""
        if self.code == ABSOLUTE and not self.positive and np.isfinite(self.strengths).all():
            return float(np.vdot(self.strengths, np.abs(W)))
        return float(self.values(W).sum())

    def slopes(self, W: Array) -> Array:
        """The derivative g′ of nonzero weights, and 0 for weights that are zero, (K, d)."""
        slopes = np.where(W != 0, self.strengths, 0.0)
        if self.code == MINIMAX_CONCAVE:
            slopes = np.maximum(slopes - np.abs(W) / np.asarray(self.concavities), 0.0)
        return np.sign(W) * slopes

    def clipped(self, U: Array) -> Array:
        """U clipped to the subdifferential at zero weights."""
        return np.clip(U, -np.inf if self.positive else -self.strengths, self.strengths)

    def subgradient(self, W: Array, G: Array) -> Array:
        """The subgradient at W that is nearest to −G, (K, d)."""
        return np.where(W != 0, self.slopes(W), self.clipped(-G))

    def excess(self, G: Array) -> Array:
        """The ratio of −G to its largest value for a zero weight, (K, d); at most 1 if the weight may be zero."""
        size = np.maximum(-G, 0.0) if self.positive else np.abs(G)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(size > self.strengths, size / self.strengths, 0.0)

    def prox(self, W: Array, step: float) -> Array:
        """argmin_V ½‖V − W‖² + step · g(V)."""
        t = step * self.strengths if np.isfinite(self.strengths).all() else _product(step, self.strengths)
        if self.code == ABSOLUTE:
            return np.maximum(W - t, 0.0) if self.positive else np.asarray(W - np.clip(W, -t, t))
        theta = np.asarray(self.concavities)
        size = np.maximum(W, 0.0) if self.positive else np.abs(W)
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.where(size <= theta * self.strengths, np.maximum(size - t, 0.0) / (1.0 - step / theta), size)
            outer = np.where(size**2 > theta * step * self.strengths**2, size, 0.0)
        return np.sign(W) * np.where(theta > step, inner, outer)


def _product(factor: Any, weights: Array) -> Array:
    """Factor times weights; infinite weights stay infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(weights), np.inf, factor * weights)


class Penalty(BaseEstimator, ABC):
    """Interface of all penalties g. In its methods, ``W`` are the weights in units of the noise.

    A penalty must define :meth:`prox`, and :meth:`value` (or :meth:`norm`, if it is ``alpha`` times a norm). With
    :meth:`dual_norm` a fit is certified for every coupling of the tasks. Without it, a fit is certified if the coupling
    is positive definite. A penalty that is not convex sets ``convex = False``; a fit then ends at a stationary point.
    A sum over single weights sets ``separable = True``, implements :meth:`entrywise` and is used by the kernels.
    """

    separable = False
    convex = True
    positive = False  # whether weights must be ≥ 0

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def check(self) -> None:
        """Raise an error if a parameter is out of range."""
        check_number(f"{type(self).__name__}: alpha", self.alpha, low=0)

    def entrywise(self, noise_precisions: Array, curvatures: Array) -> EntrywisePenalty:
        """A separable penalty on the weights themselves.

        Parameters
        ----------
        noise_precisions : ndarray of shape (K,)
            The s_k.
        curvatures : ndarray of shape (K, d)
            The second derivative of the loss in each weight at the start, for noise precisions 1.
        """
        strengths = np.broadcast_to(self.thresholds(noise_precisions)[:, None], curvatures.shape)
        return EntrywisePenalty(np.array(strengths, dtype=float), positive=self.positive)

    def thresholds(self, noise_precisions: Array) -> Array:
        """ℓ1 strength of each task, for separable penalties with equal strengths for all features."""
        return np.zeros(len(noise_precisions))

    def ridges(self, noise_precisions: Array) -> Array:
        """Ridge strength of each task."""
        return np.zeros(len(noise_precisions))

    def norm(self, W: Array) -> float:
        """The norm of W, for penalties g that are alpha times a norm."""
        raise NotImplementedError(
            f"{type(self).__name__} defines neither value(W) nor norm(W); a penalty needs one of them."
        )

    def value(self, W: Array) -> float:
        """The penalty g at W."""
        return self.alpha * self.norm(W)

    def dual_norm(self, G: Array) -> float | None:
        """Sup ⟨G, W⟩ over all W of norm ≤ 1, for penalties that are alpha times a norm; None if not known."""
        return None

    def conjugate(self, G: Array) -> float | None:
        """g*(G) = sup ⟨G, W⟩ − g(W) over all W, if it is finite for every G; None if not known."""
        return None

    @abstractmethod
    def prox(self, W: Array, step: float) -> Array:
        """argmin_V ½‖V − W‖² + step · g(V)."""

    def strength_max(self, G: Array) -> float:
        """The smallest strength at which all weights vanish. G is the gradient of the loss at zero weights."""
        limit = self.dual_norm(G)
        if limit is None:
            raise NotImplementedError(
                f"{type(self).__name__} defines no dual_norm(G); the largest useful strength needs it."
            )
        return limit


class L1(Penalty):
    r"""Sparse weights, :math:`\gamma\sum_{jk}\sqrt{s_k}\,|W_{jk}|`.

    Parameters
    ----------
    alpha : float, default=0.0
        γ; 0 means no penalty. With the factor √s_k, γ has the same meaning in the units of every task.
    positive : bool, default=False
        Whether weights must be ≥ 0.

    References
    ----------
    Tibshirani (1996), doi:10.1111/j.2517-6161.1996.tb02080.x.

    Examples
    --------
    >>> import numpy as np
    >>> L1(1.0).prox(np.array([[3.0, -0.5]]), 1.0)
    array([[2., 0.]])
    >>> L1(positive=True).prox(np.array([[3.0, -0.5]]), 1.0)
    array([[3., 0.]])
    """

    separable = True

    def __init__(self, alpha: float = 0.0, positive: bool = False) -> None:
        self.alpha = alpha
        self.positive = positive

    def check(self) -> None:
        check_number("coef_penalty (alpha)", self.alpha, low=0)
        check_flag("positive", self.positive)

    def thresholds(self, noise_precisions: Array) -> Array:
        return self.alpha * np.sqrt(noise_precisions)

    def norm(self, W: Array) -> float:
        return float(np.abs(W).sum())

    def dual_norm(self, G: Array) -> float:
        return float((np.maximum(-G, 0.0) if self.positive else np.abs(G)).max(initial=0.0))

    def value(self, W: Array) -> float:
        return self._in_noise_units(W).value(W)

    def prox(self, W: Array, step: float) -> Array:
        return self._in_noise_units(W).prox(W, step)

    def _in_noise_units(self, W: Array) -> EntrywisePenalty:
        """The penalty on weights in units of the noise."""
        return self.entrywise(np.ones(len(W)), np.ones(W.shape))


class ElasticNet(L1):
    r"""Sparse weights with a ridge, :math:`\gamma\sum_{jk}\sqrt{s_k}|W_{jk}| + \tfrac\rho2\sum_k s_k\|w_k\|^2`.

    Parameters
    ----------
    alpha : float, default=0.0
        γ, the ℓ1 strength.
    ridge : float, default=0.0
        ρ, the ridge strength, in units of rows.
    positive : bool, default=False
        Whether weights must be ≥ 0.

    References
    ----------
    Zou & Hastie (2005), doi:10.1111/j.1467-9868.2005.00503.x.
    """

    def __init__(self, alpha: float = 0.0, ridge: float = 0.0, positive: bool = False) -> None:
        super().__init__(alpha, positive)
        self.ridge = ridge

    def check(self) -> None:
        super().check()
        check_number("ElasticNet: ridge", self.ridge, low=0)

    def ridges(self, noise_precisions: Array) -> Array:
        return self.ridge * noise_precisions

    def value(self, W: Array) -> float:
        return super().value(W) + 0.5 * self.ridge * float(np.sum(W**2))

    def prox(self, W: Array, step: float) -> Array:
        return super().prox(W, step) / (1.0 + step * self.ridge)


class AdaptiveL1(L1):
    r"""A separate strength for each weight, :math:`\gamma\sum_{jk} a_{jk}\sqrt{s_k}\,|W_{jk}|`.

    Weights :math:`a = 1/|\hat w|` of a first fit make the choice of features consistent.

    Parameters
    ----------
    alpha : float, default=1.0
        γ.
    weights : array-like of shape (d,) or (K, d), optional
        The a_jk ≥ 0. With ``inf`` a weight is 0, with 0 it has no penalty. Default ones, which is :class:`L1`.
    positive : bool, default=False
        Whether weights must be ≥ 0.

    References
    ----------
    Zou (2006), The adaptive lasso and its oracle properties, doi:10.1198/016214506000000735.

    Examples
    --------
    >>> import numpy as np
    >>> AdaptiveL1(1.0, [0.0, 2.0, np.inf]).prox(np.array([[3.0, 3.0, 3.0]]), 1.0)
    array([[3., 1., 0.]])
    """

    def __init__(self, alpha: float = 1.0, weights: Any = None, positive: bool = False) -> None:
        super().__init__(alpha, positive)
        self.weights = weights

    def check(self) -> None:
        super().check()
        weights = np.ones(1) if self.weights is None else np.asarray(self.weights, dtype=float)
        if weights.ndim not in (1, 2) or not np.all(weights >= 0):
            allowed = "give numbers ≥ 0 of shape (d,) or (K, d)"
            raise refused("AdaptiveL1: weights", self.weights, allowed, "inf keeps a weight at 0.")

    def entrywise(self, noise_precisions: Array, curvatures: Array) -> EntrywisePenalty:
        weights = np.ones(1) if self.weights is None else np.asarray(self.weights, dtype=float)
        K, d = curvatures.shape
        if self.weights is not None and weights.shape not in ((d,), (K, d)):
            allowed = f"give one number for each feature, shape ({d},), or for each weight, shape ({K}, {d})"
            raise ParameterError(f"AdaptiveL1: weights is an array of shape {weights.shape}; {allowed}.")
        equal = super().entrywise(noise_precisions, curvatures)
        return replace(equal, strengths=_product(equal.strengths, weights))

    def norm(self, W: Array) -> float:
        return type(self)(1.0, self.weights).value(W)

    def dual_norm(self, G: Array) -> float:
        weights = type(self)(1.0, self.weights)._in_noise_units(G).strengths
        size = np.maximum(-G, 0.0) if self.positive else np.abs(G)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.where(size > 0, size / weights, 0.0).max(initial=0.0))


class MCP(L1):
    r"""Sparse weights without shrinkage of the large ones: the minimax concave penalty.

    The penalty of a weight v in units of the noise is :math:`\gamma|v| - h v^2/(2\theta)` up to
    :math:`|v| = \theta\gamma/h`, and constant beyond. h is the mean curvature of the task's loss in a weight. For least
    squares on scaled features h is the number of rows, so that θ has the same meaning as in the literature. F is not
    convex in the weights. A fit therefore ends at a stationary point, and its status says so. Instead of a bound, it
    reports the largest violation of the optimality condition.

    Parameters
    ----------
    alpha : float, default=1.0
        γ; 0 means no penalty.
    concavity : float, default=3.0
        θ above 0; ``inf`` is :class:`L1`. Below about 1, single weights jump between zero and large values.
    positive : bool, default=False
        Whether weights must be ≥ 0.

    References
    ----------
    Zhang (2010), Nearly unbiased variable selection under minimax concave penalty, doi:10.1214/09-AOS729.

    Examples
    --------
    >>> import numpy as np
    >>> MCP(1.0, concavity=3.0).prox(np.array([[0.5, 2.0, 4.0]]), 1.0)
    array([[0. , 1.5, 4. ]])
    """

    def __init__(self, alpha: float = 1.0, concavity: float = 3.0, positive: bool = False) -> None:
        super().__init__(alpha, positive)
        self.concavity = concavity

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the penalty is convex: only with infinite concavity, which is the ℓ1 norm, or with strength 0."""
        return bool(np.isinf(self.concavity)) or self.alpha == 0

    def check(self) -> None:
        super().check()
        if self.concavity != np.inf:
            check_number("MCP: concavity", self.concavity, above=0, also="inf")

    def entrywise(self, noise_precisions: Array, curvatures: Array) -> EntrywisePenalty:
        convex = super().entrywise(noise_precisions, curvatures)
        mean = noise_precisions * curvatures.mean(axis=1)
        if self.convex or not mean.all():
            return convex
        concavities = np.broadcast_to(self.concavity / mean[:, None], curvatures.shape)
        return replace(convex, code=MINIMAX_CONCAVE, concavities=np.array(concavities))


class L21(Penalty):
    r"""Joint feature selection, :math:`\alpha\sum_j \|V_{\cdot j}\|_2`: a feature is used in all tasks or in none.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength.

    References
    ----------
    Argyriou, Evgeniou & Pontil (2008), doi:10.1007/s10994-007-5040-8;
    Yuan & Lin (2006), doi:10.1111/j.1467-9868.2005.00532.x.

    Examples
    --------
    >>> import numpy as np
    >>> L21(1.0).prox(np.array([[3.0, 0.1], [4.0, 0.2]]), 1.0)
    array([[2.4, 0. ],
           [3.2, 0. ]])
    """

    def norm(self, W: Array) -> float:
        return float(np.sqrt((W**2).sum(axis=0)).sum())

    def dual_norm(self, G: Array) -> float:
        return float(np.sqrt((G**2).sum(axis=0)).max(initial=0.0))

    def prox(self, W: Array, step: float) -> Array:
        sizes = np.sqrt((W**2).sum(axis=0))
        left = np.maximum(sizes - step * self.alpha, 0.0)
        return np.asarray(W * np.divide(left, sizes, out=np.zeros_like(sizes), where=sizes > 0))


class Nuclear(Penalty):
    r"""Low rank, :math:`\alpha\|V\|_*`, the sum of singular values: the weights lie in a few common directions.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength.

    References
    ----------
    Ji & Ye (2009), doi:10.1145/1553374.1553434; Pong, Tseng, Ji & Ye (2010), doi:10.1137/090763184.

    Examples
    --------
    >>> import numpy as np
    >>> float(Nuclear(2.0).value(np.diag([3.0, 1.0])))
    8.0
    """

    def norm(self, W: Array) -> float:
        return float(np.linalg.svd(W, compute_uv=False).sum())

    def dual_norm(self, G: Array) -> float:
        return float(np.linalg.norm(G, 2)) if G.size else 0.0

    def prox(self, W: Array, step: float) -> Array:
        left, values, right = np.linalg.svd(W, full_matrices=False)
        return np.asarray((left * np.maximum(values - step * self.alpha, 0.0)) @ right)


class Dirty(Penalty):
    r"""Features that tasks share and features of single tasks, with separate prices (the dirty model).

    .. math:: g(V) = \alpha\min_{B + S = V}\ \sum_j \max_k |B_{kj}| + \rho\sum_{kj}|S_{kj}|

    A feature is shared (B is not zero) if more than 1/ρ tasks use it. For ρ ≥ 1 no task has its own features and g is α
    times the norm :math:`\ell_{1,\infty}`. For ρ ≤ 1/K nothing is shared and g is ρα times the norm :math:`\ell_1`.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength, the price of a shared feature.
    own : float, default=0.5
        ρ, the price of a weight that belongs to a single task, relative to the price of a shared feature.

    References
    ----------
    Jalali, Ravikumar, Sanghavi & Ruan (2010), A dirty model for multi-task learning, Advances in Neural Information
    Processing Systems 23.

    Examples
    --------
    >>> import numpy as np
    >>> shared, own = Dirty(1.0).parts(np.array([[2.0, 0.0], [2.0, 0.0], [5.0, 1.0]]))
    >>> shared
    array([[2., 0.],
           [2., 0.],
           [2., 0.]])
    >>> own
    array([[0., 0.],
           [0., 0.],
           [3., 1.]])
    """

    def __init__(self, alpha: float = 1.0, own: float = 0.5) -> None:
        self.alpha = alpha
        self.own = own

    def check(self) -> None:
        super().check()
        check_number("Dirty: own", self.own, above=0)

    def parts(self, W: Array) -> tuple[Array, Array]:
        """The shared part B and the separate part S of the weights, (K, d)."""
        K, users = len(W), int(np.ceil(1.0 / self.own))  # B is limited by the largest weights of this number of tasks
        limits = np.sort(np.abs(W), axis=0)[K - users] if users <= K else np.zeros(W.shape[1])
        shared = np.clip(W, -limits, limits)
        return shared, W - shared

    def norm(self, W: Array) -> float:
        shared, own = self.parts(W)
        return float(np.abs(shared).max(axis=0, initial=0.0).sum() + self.own * np.abs(own).sum())

    def dual_norm(self, G: Array) -> float:
        size = np.abs(G)
        return float(max(size.sum(axis=0).max(initial=0.0), size.max(initial=0.0) / self.own))

    def prox(self, W: Array, step: float) -> Array:
        total, most, size = step * self.alpha, step * self.alpha * self.own, np.abs(W)
        # The map reduces the weights of a feature by clip(|w| − θ, 0, most), with the smallest θ ≥ 0 for which the sum
        # is at most ``total``. The sum is a falling, piecewise linear function of θ with corners |w| and |w| − most.
        corners = np.concatenate([size, size - most])
        order = np.argsort(-corners, axis=0)
        corners = np.take_along_axis(corners, order, axis=0)
        bends = np.where(order < len(W), 1.0, -1.0)
        slopes, heights = np.cumsum(bends, axis=0), np.cumsum(bends * corners, axis=0)
        line = np.maximum(np.sum(heights - slopes * corners < total, axis=0) - 1, 0)[None]
        slope, height, cut = (np.take_along_axis(array, line, axis=0) for array in (slopes, heights, corners))
        cut = np.divide(height - total, slope, out=cut, where=slope > 0)  # on a level line, every point is a solution
        return np.asarray(W - np.sign(W) * np.clip(size - np.maximum(cut, 0.0), 0.0, most))


class ClusterNorm(Penalty):
    r"""Half a squared norm of singular values: the squared trace norm (MTRL), or tasks in k clusters (CMTL).

    .. math:: g(V) = \frac\alpha2\min_M \operatorname{tr}\big(V^\top(\theta I + M)^{-1}V\big)
              = \frac\alpha2\min_m\sum_i\frac{\sigma_i^2}{\theta + m_i}, \qquad
              0 \preceq M \preceq I,\ \operatorname{tr}M = k

    With k = 1 and θ = 0 the penalty is :math:`\tfrac\alpha2\|V\|_*^2`; with k = K it is a ridge of strength α/(1 + θ).

    Parameters
    ----------
    alpha : float, default=1.0
        Strength.
    n_clusters : int, default=1
        k.
    spread : float, default=0.0
        θ.

    References
    ----------
    McDonald, Pontil & Stamos (2016), New perspectives on k-support and cluster norms, Journal of Machine Learning
    Research 17(155); Jacob, Bach & Vert (2008), arXiv:0809.2085.

    Examples
    --------
    >>> import numpy as np
    >>> ClusterNorm(2.0).value(np.diag([3.0, 1.0]))
    16.0
    """

    def __init__(self, alpha: float = 1.0, n_clusters: int = 1, spread: float = 0.0) -> None:
        self.alpha = alpha
        self.n_clusters = n_clusters
        self.spread = spread

    def check(self) -> None:
        super().check()
        check_number("ClusterNorm: spread", self.spread, low=0)
        check_whole_number("ClusterNorm: n_clusters", self.n_clusters, low=1)

    def value(self, W: Array) -> float:
        sigma = self._padded(np.linalg.svd(W, compute_uv=False), len(W))
        weights = self.spread + memberships(sigma, self.spread, self.n_clusters)
        return 0.5 * self.alpha * float(np.sum(np.divide(sigma**2, weights, out=np.zeros_like(sigma), where=sigma > 0)))

    def conjugate(self, G: Array) -> float:
        squares = np.linalg.svd(G, compute_uv=False) ** 2  # the largest first
        return float(self.spread * squares.sum() + squares[: self.n_clusters].sum()) / (2.0 * self.alpha)

    def prox(self, W: Array, step: float) -> Array:
        left, sigma, right = np.linalg.svd(W, full_matrices=False)
        pull = step * self.alpha
        weights = self.spread + memberships(self._padded(sigma, len(W)), self.spread + pull, self.n_clusters)
        return np.asarray((left * (sigma * (weights / (weights + pull))[: len(sigma)])) @ right)

    @staticmethod
    def _padded(sigma: NDArray[Any], n_tasks: int) -> Array:
        """Singular values of all K directions: with d < K, directions without weights may have m > 0 too."""
        return np.concatenate([sigma, np.zeros(n_tasks - len(sigma))])


def memberships(roots: Array, spread: float, total: float) -> Array:
    r"""Minimise :math:`\sum_i \sigma_i^2/(\theta + m_i)` over 0 ≤ m ≤ 1 with Σm = total.

    The solution is m = clip(cσ − θ, 0, 1).

    Parameters
    ----------
    roots : ndarray of shape (K,)
        The σ_i ≥ 0.
    spread : float
        θ ≥ 0.
    total : float
        Sum of the m_i; at most K.

    Examples
    --------
    >>> memberships(np.array([5.0, 5.0, 0.1]), 0.1, 2)
    array([1., 1., 0.])
    """
    K = len(roots)
    size = float(roots.max(initial=0.0))
    if total >= K or size == 0.0:
        return np.full(K, total / K)
    sigma = np.maximum(roots / size, 1e-15)  # with this floor, directions without weights get the rest of the total
    # The sum of the m_i is piecewise linear in c. The solution c lies on a line between two corners.
    corners = np.sort(np.concatenate([spread / sigma, (1.0 + spread) / sigma]))
    sums = np.clip(corners[:, None] * sigma - spread, 0.0, 1.0).sum(axis=1)
    m = np.clip(float(np.interp(total, sums, corners)) * sigma - spread, 0.0, 1.0)
    return np.asarray(np.clip(m * (total / m.sum()), 0.0, 1.0))
