r"""Penalties on the weights. Separable ones are thresholds :math:`t_k` of the ℓ1 norm, task by task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mssl.exceptions import ParameterError

Array = NDArray[np.float64]


class Penalty(BaseEstimator):
    """Contract: a value and a prox on W (K, d), and whether the penalty is an ℓ1 norm task by task."""

    separable = False

    def check(self) -> None:
        """Raise where the strength is out of range."""

    def thresholds(self, noise_precisions: Array) -> Array:
        """ℓ1 strength of each task, for separable penalties."""
        return np.zeros(len(noise_precisions))


class L1(Penalty):
    r"""Sparse weights, :math:`\gamma\sum_{jk}\sqrt{s_k}\,|W_{jk}|`.

    Parameters
    ----------
    alpha : float, default=0.0
        γ; 0 means no penalty. The factor √s_k makes one γ mean the same in every task's units.
    """

    separable = True

    def __init__(self, alpha: float = 0.0) -> None:
        self.alpha = alpha

    def check(self) -> None:
        if not np.isfinite(self.alpha) or self.alpha < 0:
            raise ParameterError(f"coef_penalty (alpha) is {self.alpha!r}; give a number ≥ 0.")

    def thresholds(self, noise_precisions: Array) -> Array:
        return self.alpha * np.sqrt(noise_precisions)
