# mypy: allow-untyped-defs, allow-untyped-calls
"""Weight and graph steps of small problems, each with its certificate, to be called from compiled loops.

Letters: P = ηΩ with inverse ``spread``, u = P1 and ρ as in :mod:`mssl.coupling`; H, s, q, t and HW as in
:mod:`mssl._weight_kernels`; S, L, Ω, Σ as in :mod:`mssl._glasso_kernels`.
"""

import numpy as np
from numba import njit

from mssl._dense_kernels import back_solve, factor, invert, product
from mssl._glasso_kernels import (
    assemble,
    bcd_sweeps,
    clip_box,
    dual_point,
    regressions,
    relative_distance,
    scale,
    soft_start,
)
from mssl._weight_kernels import gram_sweeps

_FAST = {"reassoc", "contract"}
_BURST = 50  # sweeps between two looks at the certificate, at most
_STALE = 2.0  # change of the ridge up to which an old preconditioner serves
_STOP = 0.3  # the descent on Ω stops where its estimate of the gap is this part of the target
_NEAR = 0.2  # relative distance of primal and dual point up to which the gap needs no factorisation


# ---- the coupling and the weight step


@njit(cache=True, nogil=True, error_model="numpy")
def couple(P, tau, u):
    """Write P1 into u and return ρ; both zero without a shared mean."""
    total = 0.0
    for k in range(len(u)):
        u[k] = P[k].sum() if tau > 0.0 else 0.0
        total += u[k]
    return 1.0 / (1.0 / tau + total) if tau > 0.0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _coupled(P, u, rho, W, mean, out):
    """C W into ``out``, given mean = Wᵀu."""
    product(P, W, out)
    if rho != 0.0:
        for k in range(W.shape[0]):
            for j in range(W.shape[1]):
                out[k, j] -= rho * u[k] * mean[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
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


@njit(cache=True, nogil=True, error_model="numpy")
def _weight_gap(P, spread, u, rho, tau, q, t, W, HW, mean, room):
    """:func:`mssl.certificates.weight_gap`; ``room`` holds three matrices like W."""
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


@njit(cache=True, nogil=True, error_model="numpy")
def _hessian_product(H, s, V, out):
    """H_k v_k task by task."""
    for k in range(V.shape[0]):
        G = H[k] if H.shape[0] > 1 else H[0]
        row = out[k]
        row[:] = 0.0
        for j in range(V.shape[1]):
            x = s[k] * V[k, j]
            if x != 0.0:
                other = G[j]
                for i in range(V.shape[1]):
                    row[i] += x * other[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _descend(H, s, q, t, P, spread, u, rho, tau, W, HW, room, tol, max_sweeps):
    """Coordinate descent in bursts until the gap is at most tol; returns the gap."""
    mean = np.zeros(W.shape[1])
    for k in range(W.shape[0]):
        mean += u[k] * W[k]
    indptr, indices, values = _compress(P)
    gap = _weight_gap(P, spread, u, rho, tau, q, t, W, HW, mean, room)
    done, enough = 0, tol
    while gap > tol and done < max_sweeps:
        burst = min(_BURST, max_sweeps - done)
        made, decrease = gram_sweeps(H, s, q, indptr, indices, values, u, rho, t, W, HW, mean, burst, enough)
        done += made
        gap = _weight_gap(P, spread, u, rho, tau, q, t, W, HW, mean, room)
        if not gap > tol or decrease == 0.0:
            break
        enough = min(enough, 0.5 * decrease * tol / gap)
    return gap


@njit(cache=True, nogil=True, error_model="numpy")
def _refactor(H, s, P, u, rho, ridge, factors):
    """Cholesky factors of H_k + C_kk I where those at hand belong to a ridge too far away."""
    K, d = len(s), H.shape[1]
    block = np.empty((d, d))
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
        if np.isnan(factor(block, factors[k])):
            return False
        ridge[k] = own
    return True


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _dot(A, B):
    total = 0.0
    for k in range(A.shape[0]):
        for j in range(A.shape[1]):
            total += A[k, j] * B[k, j]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate(H, s, P, spread, u, rho, tau, W, HW, room, factors, tol, max_iter):
    """Preconditioned conjugate gradients from the residual in room[0] until its gap is at most tol."""
    R, Z, D, A, T = room[0], room[1], room[2], room[3], room[4]
    K, d = W.shape
    D[:] = 0.0
    last = np.inf
    for _ in range(max_iter):
        for k in range(K):
            back_solve(factors[k], R[k], Z[k])
        now = _dot(R, Z)
        if not now > 0.0:
            return
        for k in range(K):
            for j in range(d):
                D[k, j] = Z[k, j] + now / last * D[k, j]
        last = now
        _coupled(P, u, rho, D, u @ D, A)
        _hessian_product(H, s, D, T)
        step = now / (_dot(D, A) + _dot(D, T))
        for k in range(K):
            for j in range(d):
                W[k, j] += step * D[k, j]
                HW[k, j] += step * T[k, j]
                R[k, j] -= step * (A[k, j] + T[k, j])
        if not _inverse_quadratic(spread, tau, R, T) > tol:
            return


@njit(cache=True, nogil=True, error_model="numpy")
def _conjugate_gradient(H, s, q, P, spread, u, rho, tau, W, HW, room, ridge, factors, tol, max_iter):
    """The step without penalty, preconditioned by each task's own block; returns the gap."""
    if not _refactor(H, s, P, u, rho, ridge, factors):
        return np.inf
    R, A, gap = room[0], room[3], np.inf
    for _ in range(3):  # the recurrence drifts: a restart decides whether it was good enough
        _coupled(P, u, rho, W, u @ W, A)
        for k in range(W.shape[0]):
            for j in range(W.shape[1]):
                R[k, j] = q[k, j] - HW[k, j] - A[k, j]
        previous, gap = gap, _inverse_quadratic(spread, tau, R, room[4])
        if gap <= tol or not gap < 0.5 * previous:
            break
        _iterate(H, s, P, spread, u, rho, tau, W, HW, room, factors, tol, max_iter)
    return gap


@njit(cache=True, nogil=True, error_model="numpy")
def _direct(U, g, s, q, P, spread, u, rho, tau, W, HW, room):
    """The step without penalty for one Gram U diag(g) Uᵀ: a system over tasks per eigenvector; returns the gap."""
    K, d = W.shape
    Q, V, T = room[0], room[1], room[2]
    A, R, x = np.empty((K, K)), np.empty((K, K)), np.empty(K)
    product(q, U, Q)
    for j in range(d):
        for k in range(K):
            for m in range(K):
                A[k, m] = P[k, m] - rho * u[k] * u[m]
            A[k, k] += s[k] * g[j]
        if np.isnan(factor(A, R)):
            return np.inf
        back_solve(R, Q[:, j], x)
        V[:, j] = x
    for k in range(K):
        for i in range(d):
            w, hw = 0.0, 0.0
            for j in range(d):
                w += U[i, j] * V[k, j]
                hw += U[i, j] * V[k, j] * g[j]
            W[k, i], HW[k, i] = w, s[k] * hw
    _coupled(P, u, rho, W, u @ W, Q)
    for k in range(K):
        for j in range(d):
            Q[k, j] += HW[k, j] - q[k, j]
    return _inverse_quadratic(spread, tau, Q, T)


@njit(cache=True, nogil=True, error_model="numpy")
def weight_step(loss, t, P, spread, u, rho, tau, W, HW, room, tol, max_inner):
    """Best weights for a coupling, in place; returns the gap."""
    H, s, q, g, ridge, factors = loss
    if len(g) > 0:
        return _direct(H[0], g, s, q, P, spread, u, rho, tau, W, HW, room)
    if len(factors) > 0:
        return _conjugate_gradient(H, s, q, P, spread, u, rho, tau, W, HW, room, ridge, factors, tol, max_inner)
    return _descend(H, s, q, t, P, spread, u, rho, tau, W, HW, room, tol, max_inner)


# ---- the graph step


@njit(cache=True, nogil=True, error_model="numpy")
def _dual_bound(S, L, Sigma, M, R):
    """Largest log det of the dual points at hand: M itself, Σ clipped into the box, or that drawn towards soft S."""
    bound = factor(M, R)
    clip_box(Sigma, S, L, M)
    drawn = factor(M, R)
    if np.isnan(drawn):
        anchor = np.empty_like(S)
        soft_start(S, L, anchor)
        if np.isnan(factor(anchor, R)):
            return bound
        while np.isnan(drawn):
            for i in range(len(S)):
                for j in range(len(S)):
                    M[i, j] = 0.5 * (M[i, j] + anchor[i, j])
            drawn = factor(M, R)
    return drawn if np.isnan(bound) else max(bound, drawn)


@njit(cache=True, nogil=True, error_model="numpy")
def graph_gap(S, L, Omega, Sigma, log_determinant, M, R):
    """Gap and ⟨S, Ω⟩ + Σ L|Ω| in units of a unit diagonal; the gap is NaN where no dual point is known."""
    p = len(S)
    trace = dual_point(Omega, Sigma, S, L, M)
    distance = relative_distance(Omega, Sigma, M)
    if distance < _NEAR:
        return 0.5 * distance * distance / (1.0 - distance), trace
    return max(trace - p - log_determinant - _dual_bound(S, L, Sigma, M, R), 0.0), trace


@njit(cache=True, nogil=True, error_model="numpy")
def _graph_descent(S, L, W, B, Omega, Sigma, M, R, target):
    """Block coordinate descent from W and B until the gap is at most the target; the point goes into Ω and Σ.

    Returns the value and log det Ω, or NaN where the descent breaks down.
    """
    p = len(S)
    diagonal = np.ones(p)
    accuracy, column_tol, ascent = max(_STOP * target, 1e-28), 1e-4, np.inf
    while accuracy > 1e-30:
        sweeps, ascent = bcd_sweeps(S, L, W, B, diagonal, column_tol, accuracy, 1000, ascent)
        if sweeps < 0:
            break
        assemble(B, diagonal, L, Omega)
        log_determinant = factor(Omega, R)
        if np.isnan(log_determinant):
            break
        invert(R, Sigma)
        gap, trace = graph_gap(S, L, Omega, Sigma, log_determinant, M, R)
        if gap <= target:
            return trace - log_determinant, log_determinant
        accuracy *= min(max(_STOP * target / gap, 0.01), 0.3)
        column_tol = min(column_tol, np.sqrt(accuracy) / p)
    return np.nan, 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _unpenalised(S, Omega, Sigma, R):
    """Ω = S⁻¹, the step without penalties; its value and log det Ω, or NaN where S is singular."""
    log_determinant = -factor(S, R)
    if np.isnan(log_determinant):
        return np.nan, 0.0
    for i in range(len(S)):
        if R[i, i] * R[i, i] <= 1e-15 * len(S):
            return np.nan, 0.0
    invert(R, Omega)
    Sigma[:] = S
    return len(S) - log_determinant, log_determinant


@njit(cache=True, nogil=True, error_model="numpy")
def graph_step(S, L, root, Omega, Sigma, log_determinant, best, target):
    """A better Ω for the moment in units of a unit diagonal, in place where it is below ``best``.

    Returns its value in those units (NaN where the step broke down) and log det Ω in the user's units.
    """
    p = len(S)
    omega, sigma, W, B = np.empty((p, p)), np.empty((p, p)), np.empty((p, p)), np.empty((p, p))
    M, R = np.empty((p, p)), np.empty((p, p))
    if L.max() == 0.0:
        value, scaled = _unpenalised(S, omega, sigma, R)
    else:
        scale(Omega, Sigma, root, np.arange(p), omega, sigma)
        regressions(omega, L, B)
        clip_box(sigma, S, L, W)
        if not relative_distance(omega, sigma, W) < 0.9 and np.isnan(factor(W, R)):
            soft_start(S, L, W)
            if np.isnan(factor(W, R)):
                return np.nan, log_determinant
        value, scaled = _graph_descent(S, L, W, B, omega, sigma, M, R, target)
    if np.isnan(value):
        return np.nan, log_determinant
    if value > best:
        return best, log_determinant
    for i in range(p):
        for j in range(p):
            Omega[i, j] = omega[i, j] / (root[i] * root[j])
            Sigma[i, j] = sigma[i, j] * (root[i] * root[j])
    return value, scaled - 2.0 * np.log(root).sum()
