"""Compiled sweeps over the weights when the tasks are coupled through their residuals.

The smooth part is ½ Σ_kl A_kl e_k·e_l + ½ Σ_k r_k ‖w_k‖² with residuals e_k = y_k − X_k w_k and A as CSR rows, so that
a visit to a task costs its neighbours in the graph only. All kernels return ``(sweeps, decrease)`` as those of
:mod:`mssl.kernels.weights` do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mssl.kernels.compiler import njit
from mssl.kernels.dense import FAST
from mssl.kernels.weights import _GATHER_FROM, _PASSES, Penalty, _gain, _minimiser, _support, visit

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@njit(nogil=True, fastmath=FAST)
def _neighbours(k: int, D: Array, indptr: Index, indices: Index, values: Array, out: Array) -> float:
    """Write Σ_{l≠k} A_kl D_l into out and return A_kk."""
    own = 0.0
    out[:] = 0.0
    for p in range(indptr[k], indptr[k + 1]):
        other = indices[p]
        if other == k:
            own = values[p]
        else:
            row, factor = D[other], values[p]
            for j in range(len(out)):
                out[j] += factor * row[j]
    return own


@njit(cache=True, nogil=True)
def shared_sweeps(
    G: Array,
    q: Array,
    indptr: Index,
    indices: Index,
    values: Array,
    ridge: Array,
    penalty: Penalty,
    W: Array,
    D: Array,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """One X for all tasks: everything happens in the Gram G; D = WG − q (rows −Xᵀe_k) and W are updated in place."""
    code, positive, parameters = penalty
    K, d = W.shape
    pull, hw = np.empty(d), np.empty(d)
    room = np.empty(d * d if d >= _GATHER_FROM else 0)
    active, everything = np.empty(d, dtype=np.int64), np.arange(d)
    decrease = 0.0
    for sweep in range(n_sweeps):
        decrease = 0.0
        for k in range(K):
            s = _neighbours(k, D, indptr, indices, values, pull)
            for j in range(d):
                pull[j] = s * q[k, j] - pull[j]
                hw[j] = s * (D[k, j] + q[k, j])
            least, t, theta = 0.1 * enough / K, parameters[0, k], parameters[-1, k]
            decrease += visit(G, s, ridge[k], pull, code, positive, t, theta, W[k], hw, active, everything, room, least)
            for j in range(d):
                D[k, j] = hw[j] / s - q[k, j]
        if decrease <= enough:
            return sweep + 1, decrease
    return n_sweeps, decrease


@njit(nogil=True, fastmath=FAST)
def _times(X: Array, z: Array, out: Array) -> None:
    """Write X z into out, X (d, n)."""
    for j in range(len(out)):
        total, column = 0.0, X[j]
        for i in range(len(z)):
            total += column[i] * z[i]
        out[j] = total


@njit(nogil=True, fastmath=FAST)
def _take(column: Array, step: float, e: Array) -> None:
    """Subtract step · column from e."""
    for i in range(len(e)):
        e[i] -= step * column[i]


@njit(cache=True, nogil=True)
def aligned_sweeps(
    X: Array,
    H: Array,
    indptr: Index,
    indices: Index,
    values: Array,
    ridge: Array,
    penalty: Penalty,
    W: Array,
    HW: Array,
    E: Array,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """Own X_k (d, n) and Gram H_k for each task; W, HW (rows H_k w_k) and the residuals E are updated in place."""
    code, positive, parameters = penalty
    K, d = W.shape
    z, q, hw, old = np.empty(E.shape[1]), np.empty(d), np.empty(d), np.empty(d)
    room = np.empty(d * d if d >= _GATHER_FROM else 0)
    active, everything = np.empty(d, dtype=np.int64), np.arange(d)
    decrease = 0.0
    for sweep in range(n_sweeps):
        decrease = 0.0
        for k in range(K):
            s = _neighbours(k, E, indptr, indices, values, z)
            _take(E[k], -s, z)
            _times(X[k], z, q)
            old[:] = W[k]
            for j in range(d):
                hw[j] = s * HW[k, j]
                q[j] += hw[j]
            least, t, theta = 0.1 * enough / K, parameters[0, k], parameters[-1, k]
            decrease += visit(H[k], s, ridge[k], q, code, positive, t, theta, W[k], hw, active, everything, room, least)
            for j in range(d):
                HW[k, j] = hw[j] / s
                if W[k, j] != old[j]:
                    _take(X[k, j], W[k, j] - old[j], E[k])
        if decrease <= enough:
            return sweep + 1, decrease
    return n_sweeps, decrease


@njit(nogil=True, fastmath=FAST)
def _feature_pass(
    X: Array,
    h: Array,
    s: float,
    own: float,
    code: int,
    positive: bool,
    t: Array,
    theta: Array,
    w: Array,
    z: Array,
    coordinates: Index,
) -> float:
    """One pass on the features themselves; z is minus the loss's gradient in the task's fitted values."""
    gained = 0.0
    for j in coordinates:
        curvature = s * h[j] + own
        if curvature <= 0.0:
            continue
        along, column = s * h[j] * w[j], X[j]
        for i in range(len(z)):
            along += column[i] * z[i]
        old, new = w[j], _minimiser(code, positive, along, t[j], theta[j], curvature, 1.0 / curvature)
        step = new - old
        if step != 0.0:
            w[j] = new
            gained += _gain(code, positive, along, t[j], theta[j], curvature, old, new)
            _take(column, s * step, z)
    return gained


@njit(cache=True, nogil=True)
def feature_sweeps(
    X: Array,
    h: Array,
    indptr: Index,
    indices: Index,
    values: Array,
    ridge: Array,
    penalty: Penalty,
    W: Array,
    E: Array,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """As :func:`aligned_sweeps` without Grams, for fewer rows than features; X may hold one block for all tasks."""
    code, positive, parameters = penalty
    K, d = W.shape
    z = np.empty(E.shape[1])
    active, everything = np.empty(d, dtype=np.int64), np.arange(d)
    decrease = 0.0
    for sweep in range(n_sweeps):
        decrease = 0.0
        for k in range(K):
            block = k if X.shape[0] > 1 else 0
            s = _neighbours(k, E, indptr, indices, values, z)
            others = z.copy()
            _take(E[k], -s, z)
            t, theta = parameters[0, k], parameters[-1, k]
            gained = _feature_pass(X[block], h[block], s, ridge[k], code, positive, t, theta, W[k], z, everything)
            decrease += gained
            stop = max(0.01 * gained, 0.1 * enough / K)
            support = active[: _support(W[k], active)]
            for _ in range(_PASSES):
                if gained <= stop:
                    break
                gained = _feature_pass(X[block], h[block], s, ridge[k], code, positive, t, theta, W[k], z, support)
                decrease += gained
            for i in range(len(z)):
                E[k, i] = (z[i] - others[i]) / s
        if decrease <= enough:
            return sweep + 1, decrease
    return n_sweeps, decrease
