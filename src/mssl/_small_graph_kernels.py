# mypy: allow-untyped-defs, allow-untyped-calls
"""The graph step of small problems with its certificate, to be called from compiled loops.

Letters as in :mod:`mssl._glasso_kernels`, on matrices scaled to a unit diagonal.
"""

import numpy as np
from numba import njit

from mssl._dense_kernels import back_solve, copy, factor, invert, log_sum
from mssl._glasso_kernels import (
    assemble,
    bcd_sweeps,
    clip_box,
    dual_point,
    normalise,
    regressions,
    scale,
    soft_start,
)

_STOP = 0.3  # the descent stops where its estimate of the gap is this part of the target
_NEAR = 0.2  # relative distance of primal and dual point up to which the gap needs no factorisation
_BURST = 10  # sweeps after which Newton steps are tried
_BURSTS = 60
_NEWTON_STEPS = 8
_MOST_FACE = 160  # entries of Ω up to which Newton steps pay


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


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _relative_distance(Omega, Sigma, M):
    """:func:`mssl._glasso_kernels.relative_distance` for few variables, by dense rows."""
    p = len(Omega)
    delta, product, down = np.empty((p, p)), np.zeros((p, p)), np.zeros(p)
    for i in range(p):
        for j in range(p):
            delta[i, j] = M[i, j] - Sigma[i, j]
    for i in range(p):
        for k in range(p):
            w = Omega[i, k]
            if w != 0.0:
                for j in range(p):
                    product[i, j] += w * delta[k, j]
    total, across = 0.0, 0.0
    for i in range(p):
        row = 0.0
        for j in range(p):
            total += product[i, j] * product[j, i]
            row += abs(product[i, j])
            down[j] += abs(product[i, j])
        across = max(across, row)
    distance = np.sqrt(max(total, 0.0))
    return distance, min(distance, across, down.max())


@njit(cache=True, nogil=True, error_model="numpy")
def graph_gap(S, L, Omega, Sigma, log_determinant, M, R):
    """Gap and ⟨S, Ω⟩ + Σ L|Ω| in units of a unit diagonal; the gap is NaN where no dual point is known."""
    p = len(S)
    trace = dual_point(Omega, Sigma, S, L, M)
    distance, radius = _relative_distance(Omega, Sigma, M)
    if radius < _NEAR:
        return 0.5 * distance * distance / (1.0 - radius), trace
    return max(trace - p - log_determinant - _dual_bound(S, L, Sigma, M, R), 0.0), trace


@njit(cache=True, nogil=True, error_model="numpy")
def _face(Omega, S, L, Sigma, rows, cols, gradient, most):
    """List the support (i ≤ j) and the slope along each of its symmetric directions; its size, 0 above ``most``."""
    m = 0
    for i in range(len(S)):
        for j in range(i, len(S)):
            w = Omega[i, j]
            if w == 0.0:
                continue
            if m == most:
                return 0
            rows[m], cols[m] = i, j
            slope = S[i, j] - Sigma[i, j]
            gradient[m] = slope if i == j else 2.0 * (slope + L[i, j] * np.sign(w))
            m += 1
    return m


@njit(cache=True, nogil=True, error_model="numpy")
def _newton(S, L, Omega, Sigma, R, target):
    """Newton steps over the support and signs of Ω, in place, until they promise less than the target.

    On such a face the objective is a linear function less log det Ω, which is self-concordant: a step of length
    1/(1 + λ), λ the Newton decrement, stays positive definite and descends. A step ends where an entry reaches zero.
    One factorisation does what an ill-conditioned S makes block coordinate descent crawl towards. Returns log det Ω,
    NaN where nothing can be done.
    """
    most = _MOST_FACE
    rows, cols, g, x = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most), np.empty(most)
    log_determinant = np.nan
    for _ in range(_NEWTON_STEPS):
        m = _face(Omega, S, L, Sigma, rows, cols, g, most)
        if m == 0:
            return log_determinant
        H, F = np.empty((m, m)), np.empty((m, m))
        for a in range(m):
            i, j = rows[a], cols[a]
            for b in range(a + 1):
                k, n = rows[b], cols[b]
                h = 2.0 * (Sigma[i, k] * Sigma[j, n] + Sigma[i, n] * Sigma[j, k])
                H[a, b] = h * (0.5 if i == j else 1.0) * (0.5 if k == n else 1.0)
        if np.isnan(factor(H, F)):
            return log_determinant
        back_solve(F, g[:m], x[:m])
        along = 0.0
        for a in range(m):
            along += g[a] * x[a]
        decrement = np.sqrt(max(along, 0.0))
        length, blocking = 1.0 if decrement < 0.25 else 1.0 / (1.0 + decrement), -1
        for a in range(m):
            old = Omega[rows[a], cols[a]]
            if rows[a] != cols[a] and (old - length * x[a]) * old <= 0.0:
                length, blocking = old / x[a], a
        for a in range(m):
            i, j = rows[a], cols[a]
            Omega[i, j] = 0.0 if a == blocking else Omega[i, j] - length * x[a]
            Omega[j, i] = Omega[i, j]
        log_determinant = factor(Omega, R)
        if np.isnan(log_determinant):
            return log_determinant
        invert(R, Sigma)
        if blocking < 0 and decrement * decrement <= target:
            break
    return log_determinant


@njit(cache=True, nogil=True, error_model="numpy")
def _graph_descent(S, L, W, B, Omega, Sigma, M, R, target, column_tol):
    """Bursts of block coordinate descent from W and B, and Newton steps where those do not suffice.

    The point goes into Ω and Σ. Returns its value (NaN where the descent breaks down), log det Ω, gap and sweeps.
    """
    p = len(S)
    diagonal = np.ones(p)
    accuracy, ascent = max(_STOP * target, 1e-28), np.inf
    burst, done = _BURST, 0
    for _ in range(_BURSTS):
        sweeps, ascent = bcd_sweeps(S, L, W, B, diagonal, column_tol, accuracy, burst, ascent)
        if sweeps < 0:
            break
        done += sweeps
        assemble(B, diagonal, L, Omega)
        log_determinant = factor(Omega, R)
        if np.isnan(log_determinant):
            break
        invert(R, Sigma)
        if sweeps == burst:
            polished = _newton(S, L, Omega, Sigma, R, target)
            log_determinant = log_determinant if np.isnan(polished) else polished
        gap, trace = graph_gap(S, L, Omega, Sigma, log_determinant, M, R)
        if gap <= target:
            return trace - log_determinant, log_determinant, gap, done
        if sweeps == burst:
            clip_box(Sigma, S, L, M)
            if _relative_distance(Omega, Sigma, M)[1] < 0.9 or not np.isnan(factor(M, R)):
                copy(M, 1.0, W)
                regressions(Omega, L, B)
            ascent = np.inf
        else:
            accuracy *= min(max(_STOP * target / gap, 0.01), 0.3)
            column_tol = min(column_tol, np.sqrt(accuracy) / p)
    return np.nan, 0.0, np.inf, done


@njit(cache=True, nogil=True, error_model="numpy")
def _warm_start(S, L, root, Omega, Sigma, omega, sigma, W, B, R):
    """Ω and Σ in units of a unit diagonal, their regressions B, and W from Σ where it stays positive definite."""
    scale(Omega, Sigma, root, np.arange(len(S)), omega, sigma)
    regressions(omega, L, B)
    clip_box(sigma, S, L, W)
    return _relative_distance(omega, sigma, W)[1] < 0.9 or not np.isnan(factor(W, R))


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
    copy(S, 1.0, Sigma)
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
        if not _warm_start(S, L, root, Omega, Sigma, omega, sigma, W, B, R):
            soft_start(S, L, W)
            if np.isnan(factor(W, R)):
                return np.nan, log_determinant
        value, scaled, _, _ = _graph_descent(S, L, W, B, omega, sigma, M, R, target, 1e-4)
    if np.isnan(value):
        return np.nan, log_determinant
    if value > best:
        return best, log_determinant
    for i in range(p):
        for j in range(p):
            Omega[i, j] = omega[i, j] / (root[i] * root[j])
            Sigma[i, j] = sigma[i, j] * (root[i] * root[j])
    return value, scaled - 2.0 * log_sum(root)


@njit(cache=True, nogil=True, error_model="numpy")
def small_graphical_lasso(S, L, e, tol, warm, Omega, Sigma, labels):
    """The whole graphical lasso of a small S, from Ω and Σ where they are ``warm``; they get the answer.

    Returns the gap (NaN where nothing was found), the objective, log det Ω and the sweeps.
    """
    p = len(S)
    Sn, Ln, root = np.empty((p, p)), np.empty((p, p)), np.empty(p)
    if normalise(S, L, e, Sn, Ln, root, labels) >= 0:
        return np.nan, 0.0, 0.0, 0
    omega, sigma, W, B = np.empty((p, p)), np.empty((p, p)), np.empty((p, p)), np.zeros((p, p))
    M, R = np.empty((p, p)), np.empty((p, p))
    held = warm and _warm_start(Sn, Ln, root, Omega, Sigma, omega, sigma, W, B, R)
    if not held and not soft_start(Sn, Ln, W) and np.isnan(factor(W, R)):
        return np.nan, 0.0, 0.0, 0
    constant, total = 2.0 * log_sum(root), 0
    objective = p + constant
    for _ in range(3):
        target, column_tol = tol * max(1.0, abs(objective)), 1e-4 if held else 1e-2
        value, scaled, gap, sweeps = _graph_descent(Sn, Ln, W, B, omega, sigma, M, R, target, column_tol)
        total += sweeps
        objective = value + constant
        if np.isnan(value):
            break
        if gap <= tol * max(1.0, abs(objective)):
            for i in range(p):
                for j in range(p):
                    Omega[i, j] = omega[i, j] / (root[i] * root[j])
                    Sigma[i, j] = sigma[i, j] * (root[i] * root[j])
            return gap, objective, scaled - constant, total
        held = True
    return np.nan, 0.0, 0.0, total
