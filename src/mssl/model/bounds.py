r"""Certificates of the weight step: upper bounds of the suboptimality, computed from any point.

With coupling :math:`C \succ 0`, the smooth gradient :math:`G = \nabla\mathrm{loss} + CW` and per-task ℓ1
strengths :math:`t_k`, strong convexity along the quadratic part gives for every subgradient :math:`U`
of the ℓ1 term

.. math:: F(W) - \min F \le \tfrac12 \operatorname{tr}\big((G+U)\, C^{-1} (G+U)^\top\big).

Choosing :math:`U` feasible but not a subgradient at :math:`W` costs its Fenchel–Young slack in addition.
Both choices below are valid for any convex loss; the smaller is reported.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mssl.model.coupling import Coupling

Array = NDArray[np.float64]


def weight_gap(W: Array, G: Array, coupling: Coupling, threshold: Array) -> float:
    r"""Bound F(W) − min F for a fixed coupling C ≻ 0 and an ℓ1 penalty :math:`\sum_k t_k\|w_k\|_1`.

    Parameters
    ----------
    W : ndarray of shape (K, d)
        The weights.
    G : ndarray of shape (K, d)
        Gradient of the smooth part (loss plus coupling) at W, intercepts at their optimum.
    coupling : Coupling
        The quadratic form over tasks; with a singular form the answer is infinite.
    threshold : ndarray of shape (K,)
        ℓ1 strengths t_k ≥ 0.

    Returns
    -------
    float
        A valid upper bound of the suboptimality, 0 only at the minimum.
    """
    t = threshold[:, None]
    if not np.any(threshold):
        return coupling.inverse_quadratic(G)
    clipped = np.clip(-G, -t, t)
    subgradient = np.where(W != 0, t * np.sign(W), clipped)
    on_support = coupling.inverse_quadratic(G + subgradient)
    slack = float(np.sum(t * np.abs(W)) - np.vdot(clipped, W))
    if slack >= on_support:
        return on_support
    return min(on_support, coupling.inverse_quadratic(G + clipped) + max(slack, 0.0))
