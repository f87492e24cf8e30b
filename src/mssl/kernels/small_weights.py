# mypy: allow-untyped-defs, allow-untyped-calls
"""The weight step of small problems with its certificate, to be called from compiled loops.

Letters: P = ηΩ with inverse ``spread``, u = P1 and ρ as in :mod:`mssl.model.coupling`; H, s, q, t and HW as in
:mod:`mssl.kernels.weights`.
"""

import numpy as np
from numba import float64, int64, types

from mssl.kernels import weights as _weight_kernels
from mssl.kernels.apart import apart
from mssl.kernels.compiler import njit
from mssl.kernels.dense import FAST, back_solve, combine, dot, factor, invert, product

_V, _M, _T, _I = float64[::1], float64[:, ::1], float64[:, :, ::1], int64[::1]
gram_sweeps = apart(
    _weight_kernels.gram_sweeps,
    types.Tuple((int64, float64))(_T, _V, _M, _I, _I, _V, _V, float64, _V, _M, _M, _V, _I, int64, float64),
)
_BURST = 50  # sweeps between two looks at the certificate, at most
_STALE = 2.0  # change of the ridge up to which an old preconditioner serves


@njit(nogil=True, error_model="numpy")
def couple(P, tau, u):
    """Write P1 into u and return ρ; both zero without a shared mean."""
    total = 0.0
    for k in range(len(u)):
        u[k] = 0.0
        if tau > 0.0:
            for m in range(len(u)):
                u[k] += P[k, m]
        total += u[k]
    return 1.0 / (1.0 / tau + total) if tau > 0.0 else 0.0


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
def _weight_gap(P, spread, u, rho, tau, q, t, W, HW, mean, room):
    """:func:`mssl.model.bounds.weight_gap`; ``room`` holds three matrices like W."""
    G, U, T = room[0], room[1], room[2]
    _coupled(P, u, rho, W, mean, G)
    slack = 0.0
    for k in range(W.shape[0]):
        for j in range(W.shape[1]):
            g = G[k, j] + HW[k, j] - q[k, j]
            clipped = min(max(-g, -t[k]), t[k])
            slack += t[k] * abs(W[k, j]) - clipped * W[k, j]
            G[k, j] = g + clipped
            U[k, j] = g + (clipped if W[k, j] == 0.0 else t[k] * np.sign(W[k, j]))
    on_support = _inverse_quadratic(spread, tau, U, T)
    if slack >= on_support:
        return on_support
    return min(on_support, _inverse_quadratic(spread, tau, G, T) + max(slack, 0.0))


@njit(nogil=True, error_model="numpy")
def _apply(H, s, V, out):
    """Row k becomes s_k H_k v_k."""
    for k in range(V.shape[0]):
        combine(V[k], H[k] if H.shape[0] > 1 else H[0], s[k], out[k])


@njit(cache=True, nogil=True, error_model="numpy")
def descend(H, s, q, t, P, spread, u, rho, tau, W, HW, room, tol, max_sweeps):
    """Coordinate descent in bursts until the gap is at most tol; returns the gap and the sweeps."""
    mean = np.empty(W.shape[1])
    combine(u, W, 1.0, mean)
    indptr, indices, values = _compress(P)
    tasks = np.arange(len(W))
    gap = _weight_gap(P, spread, u, rho, tau, q, t, W, HW, mean, room)
    done, enough = 0, tol
    while gap > tol and done < max_sweeps:
        burst = min(_BURST, max_sweeps - done)
        made, decrease = gram_sweeps(H, s, q, indptr, indices, values, u, rho, t, W, HW, mean, tasks, burst, enough)
        done += made
        gap = _weight_gap(P, spread, u, rho, tau, q, t, W, HW, mean, room)
        if not gap > tol or decrease == 0.0:
            break
        enough = min(enough, 0.5 * decrease * tol / gap)
    return gap, done


@njit(inline="always", nogil=True, error_model="numpy")
def _precondition(H, s, P, u, rho, ridge, inverses):
    """Inverses of H_k + C_kk I where those at hand belong to a ridge too far away."""
    K, d = len(s), H.shape[1]
    block, R = np.empty((d, d)), np.empty((d, d))
    for k in range(K):
        own = P[k, k] - rho * u[k] * u[k]
        if ridge[k] <= _STALE * own and own <= _STALE * ridge[k]:
            continue
        G = H[k] if H.shape[0] > 1 else H[0]
        trace = 0.0
        for j in range(d):
            trace += s[k] * G[j, j]
        lift = own + 1e-12 * (trace / d + own)
        for i in range(d):
            for j in range(d):
                block[i, j] = s[k] * G[i, j]
            block[i, i] += lift
        if np.isnan(factor(block, R)):
            return False
        invert(R, inverses[k])
        ridge[k] = own
    return True


@njit(inline="always", nogil=True, error_model="numpy")
def _iterate(H, s, P, spread, u, rho, tau, W, HW, room, inverses, tol, max_iter):
    """Preconditioned conjugate gradients from the residual in room[0] until its gap is at most tol."""
    R, Z, D, A, T = room[0], room[1], room[2], room[3], room[4]
    K, d = W.shape
    mean, ones = np.empty(d), np.ones(K)
    for k in range(K):
        for j in range(d):
            D[k, j] = 0.0
    last = np.inf
    for _ in range(max_iter):
        _apply(inverses, ones, R, Z)
        now = dot(R, Z)
        if not now > 0.0:
            return
        for k in range(K):
            for j in range(d):
                D[k, j] = Z[k, j] + now / last * D[k, j]
        last = now
        combine(u, D, 1.0, mean)
        _coupled(P, u, rho, D, mean, A)
        _apply(H, s, D, T)
        step = now / (dot(D, A) + dot(D, T))
        for k in range(K):
            for j in range(d):
                W[k, j] += step * D[k, j]
                HW[k, j] += step * T[k, j]
                R[k, j] -= step * (A[k, j] + T[k, j])
        if not _inverse_quadratic(spread, tau, R, T) > tol:
            return


@njit(inline="always", nogil=True, error_model="numpy")
def _conjugate_gradient(H, s, q, P, spread, u, rho, tau, W, HW, room, ridge, inverses, tol, max_iter):
    """The step without penalty, preconditioned by each task's own block; returns the gap."""
    if not _precondition(H, s, P, u, rho, ridge, inverses):
        return np.inf
    R, A, gap, mean = room[0], room[3], np.inf, np.empty(W.shape[1])
    for _ in range(3):  # the recurrence drifts: a restart decides whether it was good enough
        combine(u, W, 1.0, mean)
        _coupled(P, u, rho, W, mean, A)
        for k in range(W.shape[0]):
            for j in range(W.shape[1]):
                R[k, j] = q[k, j] - HW[k, j] - A[k, j]
        previous, gap = gap, _inverse_quadratic(spread, tau, R, room[4])
        if gap <= tol or not gap < 0.5 * previous:
            break
        _iterate(H, s, P, spread, u, rho, tau, W, HW, room, inverses, tol, max_iter)
    return gap


@njit(inline="always", nogil=True, error_model="numpy")
def _direct(U, g, s, q, P, spread, u, rho, tau, W, HW, room):
    """The step without penalty for one Gram U diag(g) Uᵀ: a system over tasks per eigenvector; returns the gap."""
    K, d = W.shape
    Q, V, T = room[0], room[1], room[2]
    A, R, x, b, mean = np.empty((K, K)), np.empty((K, K)), np.empty(K), np.empty(K), np.empty(d)
    product(q, U, Q)
    for j in range(d):
        for k in range(K):
            for m in range(K):
                A[k, m] = P[k, m] - rho * u[k] * u[m]
            A[k, k] += s[k] * g[j]
            b[k] = Q[k, j]
        if np.isnan(factor(A, R)):
            return np.inf
        back_solve(R, b, x)
        for k in range(K):
            V[k, j] = x[k]
    for k in range(K):
        for i in range(d):
            w, hw = 0.0, 0.0
            for j in range(d):
                w += U[i, j] * V[k, j]
                hw += U[i, j] * V[k, j] * g[j]
            W[k, i], HW[k, i] = w, s[k] * hw
    combine(u, W, 1.0, mean)
    _coupled(P, u, rho, W, mean, Q)
    for k in range(K):
        for j in range(d):
            Q[k, j] += HW[k, j] - q[k, j]
    return _inverse_quadratic(spread, tau, Q, T)


@njit(cache=True, nogil=True, error_model="numpy")
def weight_step(loss, t, P, spread, u, rho, tau, W, HW, room, tol, max_inner):
    """Best weights for a coupling, in place; returns the gap."""
    H, s, q, g, ridge, inverses = loss
    if len(g) > 0:
        return _direct(H[0], g, s, q, P, spread, u, rho, tau, W, HW, room)
    if len(inverses) > 0:
        return _conjugate_gradient(H, s, q, P, spread, u, rho, tau, W, HW, room, ridge, inverses, tol, max_inner)
    return descend(H, s, q, t, P, spread, u, rho, tau, W, HW, room, tol, max_inner)[0]
