r"""Penalties on the weights W (K, d). Separable ones are ℓ1 thresholds :math:`t_k` and ridges :math:`r_k` of the tasks.

All are written in units of the noise: with :math:`V = \operatorname{diag}(\sqrt{s})\,W` one strength means the same in
every task, whatever the units of its target (``noise=1`` makes V = W).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mssl._validation import finite
from mssl.exceptions import ParameterError

Array = NDArray[np.float64]


class Penalty(BaseEstimator, ABC):
    """Contract of all penalties g; ``W`` stands for the weights in units of the noise.

    ``separable`` penalties are an ℓ1 norm and a ridge task by task (:meth:`thresholds`, :meth:`ridges`); the others
    are norms of strength ``alpha``, solved by :mod:`mssl.solvers.proximal`.
    """

    separable = False
    alpha: float

    def check(self) -> None:
        """Raise where the strength is out of range."""
        if not finite(self.alpha) or self.alpha < 0:
            raise ParameterError(f"{type(self).__name__}: alpha is {self.alpha!r}; give a number ≥ 0.")

    def thresholds(self, noise_precisions: Array) -> Array:
        """ℓ1 strength of each task, for separable penalties."""
        return np.zeros(len(noise_precisions))

    def ridges(self, noise_precisions: Array) -> Array:
        """Ridge strength of each task, for separable penalties."""
        return np.zeros(len(noise_precisions))

    @abstractmethod
    def norm(self, W: Array) -> float:
        """The norm that alpha multiplies."""

    @abstractmethod
    def dual_norm(self, G: Array) -> float:
        """Its dual norm: sup ⟨G, W⟩ over norm(W) ≤ 1."""

    @abstractmethod
    def prox(self, W: Array, step: float) -> Array:
        """argmin_V ½‖V − W‖² + step · g(V)."""

    def value(self, W: Array) -> float:
        """g(W)."""
        return self.alpha * self.norm(W)

    def kkt(self, W: Array, G: Array) -> float:
        """How far −G is from a subgradient of g at W: the largest movement of a proximal step of length 1."""
        return float(np.abs(W - self.prox(W - G, 1.0)).max(initial=0.0))

    def strength_max(self, G: Array) -> float:
        """The strength from which on all weights vanish; G is the loss's gradient at zero weights."""
        return self.dual_norm(G)


class L1(Penalty):
    r"""Sparse weights, :math:`\gamma\sum_{jk}\sqrt{s_k}\,|W_{jk}|`.

    Parameters
    ----------
    alpha : float, default=0.0
        γ; 0 means no penalty. The factor √s_k makes one γ mean the same in every task's units.

    References
    ----------
    Tibshirani (1996), doi:10.1111/j.2517-6161.1996.tb02080.x.

    Examples
    --------
    >>> import numpy as np
    >>> L1(1.0).prox(np.array([[3.0, -0.5]]), 1.0)
    array([[2., 0.]])
    """

    separable = True

    def __init__(self, alpha: float = 0.0) -> None:
        self.alpha = alpha

    def check(self) -> None:
        if not finite(self.alpha) or self.alpha < 0:
            raise ParameterError(f"coef_penalty (alpha) is {self.alpha!r}; give a number ≥ 0.")

    def thresholds(self, noise_precisions: Array) -> Array:
        return self.alpha * np.sqrt(noise_precisions)

    def norm(self, W: Array) -> float:
        return float(np.abs(W).sum())

    def dual_norm(self, G: Array) -> float:
        return float(np.abs(G).max(initial=0.0))

    def prox(self, W: Array, step: float) -> Array:
        t = step * self.alpha
        return np.asarray(W - np.clip(W, -t, t))


class ElasticNet(L1):
    r"""Sparse weights with a ridge, :math:`\gamma\sum_{jk}\sqrt{s_k}|W_{jk}| + \tfrac\rho2\sum_k s_k\|w_k\|^2`.

    Parameters
    ----------
    alpha : float, default=0.0
        γ, the ℓ1 strength.
    ridge : float, default=0.0
        ρ, the ridge strength, comparable with a number of rows.

    References
    ----------
    Zou & Hastie (2005), doi:10.1111/j.1467-9868.2005.00503.x.
    """

    def __init__(self, alpha: float = 0.0, ridge: float = 0.0) -> None:
        self.alpha = alpha
        self.ridge = ridge

    def check(self) -> None:
        super().check()
        if not finite(self.ridge) or self.ridge < 0:
            raise ParameterError(f"ridge is {self.ridge!r}; give a number ≥ 0.")

    def ridges(self, noise_precisions: Array) -> Array:
        return self.ridge * noise_precisions

    def value(self, W: Array) -> float:
        return super().value(W) + 0.5 * self.ridge * float(np.sum(W**2))

    def prox(self, W: Array, step: float) -> Array:
        return super().prox(W, step) / (1.0 + step * self.ridge)


class L21(Penalty):
    r"""Joint feature selection, :math:`\alpha\sum_j \|V_{\cdot j}\|_2`: a feature serves all tasks or none.

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

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def norm(self, W: Array) -> float:
        return float(np.sqrt((W**2).sum(axis=0)).sum())

    def dual_norm(self, G: Array) -> float:
        return float(np.sqrt((G**2).sum(axis=0)).max(initial=0.0))

    def prox(self, W: Array, step: float) -> Array:
        sizes = np.sqrt((W**2).sum(axis=0))
        left = np.maximum(sizes - step * self.alpha, 0.0)
        return np.asarray(W * np.divide(left, sizes, out=np.zeros_like(sizes), where=sizes > 0))


class Nuclear(Penalty):
    r"""Low rank, :math:`\alpha\|V\|_*`, the sum of singular values: all tasks live in a few common directions.

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

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def norm(self, W: Array) -> float:
        return float(np.linalg.svd(W, compute_uv=False).sum())

    def dual_norm(self, G: Array) -> float:
        return float(np.linalg.norm(G, 2)) if G.size else 0.0

    def prox(self, W: Array, step: float) -> Array:
        left, values, right = np.linalg.svd(W, full_matrices=False)
        return np.asarray((left * np.maximum(values - step * self.alpha, 0.0)) @ right)
