# mypy: allow-untyped-defs, allow-untyped-calls
"""The weight step of small problems with its certificate, to be called from compiled loops.

Letters: P = ηΩ with inverse ``spread``, u = P1 and ρ as in :mod:`mssl.model.coupling`; H, s, q, t and HW as in
:mod:`mssl.kernels.weights`.
"""

import numpy as np
from numba import boolean, float64, int64, types

from mssl.kernels import weights as _weight_kernels
from mssl.kernels.apart import apart
from mssl.kernels.compiler import njit
from mssl.kernels.dense import FAST, combine, product

_V, _M, _T, _I = float64[::1], float64[:, ::1], float64[:, :, ::1], int64[::1]
_PENALTY = types.Tuple((int64, boolean, _T))
gram_sweeps = apart(
    _weight_kernels.gram_sweeps,
    types.Tuple((int64, float64))(_T, _V, _M, _I, _I, _V, _V, float64, _PENALTY, _M, _M, _V, _I, int64, float64),
)
_BURST = 50  # sweeps between two looks at the certificate, at most


@njit(nogil=True, error_model="numpy")
def _compress(P):
    """Rows of P in compressed form, the diagonal always stored."""
    K = P.shape[0]
    indptr = np.zeros(K + 1, np.int64)
    indices, values = np.empty(K * K, np.int64), np.empty(K * K)
    n = 0
    for i in range(K):
        for j in range(K):
            if P[i, j] != 0.0 or i == j:
                indices[n], values[n] = j, P[i, j]
                n += 1
        indptr[i + 1] = n
    return indptr, indices[:n], values[:n]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _coupled(P, u, rho, W, mean, out):
    """C W into ``out``, given mean = Wᵀu."""
    product(P, W, out)
    if rho != 0.0:
        for k in range(W.shape[0]):
            for j in range(W.shape[1]):
                out[k, j] -= rho * u[k] * mean[j]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _inverse_quadratic(spread, tau, R, room):
    """½ tr(R C⁻¹ Rᵀ)."""
    product(spread, R, room)
    total = 0.0
    for k in range(R.shape[0]):
        for j in range(R.shape[1]):
            total += R[k, j] * room[k, j]
    if tau > 0.0:
        for j in range(R.shape[1]):
            column = 0.0
            for k in range(R.shape[0]):
                column += R[k, j]
            total += tau * column * column
    return 0.5 * total


@njit(nogil=True, error_model="numpy")
def _weight_gap(P, spread, u, rho, tau, q, penalty, W, HW, mean, room):
    """:func:`mssl.model.bounds.weight_gap` for ℓ1 penalties; ``room`` holds three matrices like W."""
    _, positive, parameters = penalty
    t = parameters[0]
    G, U, T = room[0], room[1], room[2]
    _coupled(P, u, rho, W, mean, G)
    slack = 0.0
    for k in range(W.shape[0]):
        for j in range(W.shape[1]):
            g = G[k, j] + HW[k, j] - q[k, j]
            clipped = min(-g if positive else max(-g, -t[k, j]), t[k, j])
            G[k, j] = U[k, j] = g + clipped
            if W[k, j] != 0.0:
                slack += t[k, j] * abs(W[k, j]) - clipped * W[k, j]
                U[k, j] = g + t[k, j] * np.sign(W[k, j])
    on_support = _inverse_quadratic(spread, tau, U, T)
    if slack >= on_support:
        return on_support
    return min(on_support, _inverse_quadratic(spread, tau, G, T) + max(slack, 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def descend(H, s, q, penalty, P, spread, u, rho, tau, W, HW, room, tol, max_sweeps):
    """Coordinate descent in bursts until the gap is at most tol; returns the gap and the sweeps."""
    mean = np.empty(W.shape[1])
    combine(u, W, 1.0, mean)
    indptr, indices, values = _compress(P)
    tasks = np.arange(len(W))
    gap = _weight_gap(P, spread, u, rho, tau, q, penalty, W, HW, mean, room)
    done, enough = 0, tol
    while gap > tol and done < max_sweeps:
        burst = min(_BURST, max_sweeps - done)
        made, decrease = gram_sweeps(
            H, s, q, indptr, indices, values, u, rho, penalty, W, HW, mean, tasks, burst, enough
        )
        done += made
        gap = _weight_gap(P, spread, u, rho, tau, q, penalty, W, HW, mean, room)
        if not gap > tol or decrease == 0.0:
            break
        enough = min(enough, 0.5 * decrease * tol / gap)
    return gap, done
