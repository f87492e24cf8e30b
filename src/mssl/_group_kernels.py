"""Compiled sweeps over features whose weights in all tasks come and go together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mssl._kernel import njit

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_FAST = {"reassoc", "contract"}
_NEWTON = 50


@njit(nogil=True)
def _group_minimiser(a: Array, h: Array, alpha: float, out: Array) -> None:
    """Minimise ½ Σ h_k v_k² − a·v + alpha ‖v‖ into out: v_k = a_k r / (h_k r + alpha), r = ‖v‖ by Newton."""
    size, low = 0.0, np.inf
    for k in range(len(a)):
        size += a[k] * a[k]
        low = min(low, h[k])
    size = np.sqrt(size)
    if size <= alpha * (1.0 + 1e-12) or low <= 0.0:
        out[:] = 0.0
        return
    # φ(r) = Σ a_k² / (h_k r + alpha)² − 1 is convex and falls: Newton from the left never overshoots.
    r = 0.0
    for _ in range(_NEWTON):
        value, slope = -1.0, 0.0
        for k in range(len(a)):
            share = a[k] / (h[k] * r + alpha)
            value += share * share
            slope -= 2.0 * share * share * h[k] / (h[k] * r + alpha)
        step = -value / slope
        r += step
        if step <= 1e-15 * r:
            break
    for k in range(len(a)):
        out[k] = a[k] * r / (h[k] * r + alpha)


@njit(nogil=True, fastmath=_FAST)
def _visit(
    j: int,
    H: Array,
    scale: Array,
    q: Array,
    indptr: Index,
    indices: Index,
    values: Array,
    lift: float,
    alpha: float,
    V: Array,
    HV: Array,
    work: Array,
) -> float:
    """Step on feature j; ``work`` holds three rows of length K. Returns a lower bound of what it gained."""
    K = V.shape[0]
    a, h, new = work[0], work[1], work[2]
    for k in range(K):
        block = k if H.shape[0] > 1 else 0
        h[k] = scale[k] * H[block, j, j] + lift
        pull = HV[k, j] - q[k, j]
        for p in range(indptr[k], indptr[k + 1]):
            pull += values[p] * V[indices[p], j]
        a[k] = h[k] * V[k, j] - pull
    _group_minimiser(a, h, alpha, new)
    gained = 0.0
    for k in range(K):
        step = new[k] - V[k, j]
        if step == 0.0:
            continue
        V[k, j] = new[k]
        gained += 0.5 * h[k] * step * step
        step *= scale[k]
        row = H[k if H.shape[0] > 1 else 0, j]
        for i in range(V.shape[1]):
            HV[k, i] += step * row[i]
    return gained


@njit(cache=True, nogil=True)
def group_sweeps(
    H: Array,
    scale: Array,
    q: Array,
    indptr: Index,
    indices: Index,
    values: Array,
    lift: float,
    alpha: float,
    V: Array,
    HV: Array,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """Block descent on ½ Σ_k v_k·H_k v_k − q·V + ½ tr(VᵀCV) + alpha Σ_j ‖V_j‖; V and HV are updated in place.

    C comes as CSR rows; ``lift`` bounds its largest eigenvalue, so that each step minimises a majoriser. A sweep over
    all features is followed by some over those that are not zero. Returns sweeps made and the last one's gain.
    """
    K, m = V.shape
    work = np.empty((3, K))
    active = np.empty(m, dtype=np.int64)
    decrease = 0.0
    for sweep in range(n_sweeps):
        decrease = 0.0
        count = 0
        for j in range(m):
            decrease += _visit(j, H, scale, q, indptr, indices, values, lift, alpha, V, HV, work)
            if V[0, j] != 0.0 or np.any(V[:, j] != 0.0):
                active[count] = j
                count += 1
        gained = decrease
        for _ in range(5):
            if gained <= max(0.01 * decrease, enough):
                break
            gained = 0.0
            for j in active[:count]:
                gained += _visit(j, H, scale, q, indptr, indices, values, lift, alpha, V, HV, work)
            decrease += gained
        if decrease <= enough:
            return sweep + 1, decrease
    return n_sweeps, decrease
