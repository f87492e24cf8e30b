# mypy: allow-untyped-defs, allow-untyped-calls
"""The graph step of small problems with its certificate, to be called from compiled loops.

Letters as in :mod:`mssl.kernels.graph`, on matrices scaled to a unit diagonal.
"""

import numpy as np
from numba import float64, int64, types

from mssl.kernels import graph as _glasso_kernels
from mssl.kernels.apart import apart
from mssl.kernels.compiler import njit
from mssl.kernels.dense import back_solve, copy, factor, invert, log_sum, product
from mssl.kernels.graph import (
    assemble,
    clip_box,
    dual_point,
    normalise,
    regressions,
    scale,
    soft_start,
)

_V, _M = float64[::1], float64[:, ::1]
bcd_sweeps = apart(
    _glasso_kernels.bcd_sweeps,
    types.Tuple((int64, float64))(_M, _M, _M, _M, _V, float64, float64, int64, float64),
)
_STOP = 0.3  # the descent stops where its estimate of the gap is this part of the target
_NEAR = 0.2  # relative distance of primal and dual point up to which the gap needs no factorisation
_BURST = 10  # sweeps after which Newton steps are tried
_BURSTS = 60
_NEWTON_STEPS = 8
_NEAR_ENOUGH = 1.0  # decrement up to which Newton steps from a warm start are better than descent
_MOST_FACE = 160  # entries of Ω up to which Newton steps pay


@njit(inline="always", nogil=True, error_model="numpy")
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


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _relative_distance(Omega, Sigma, M):
    """:func:`mssl.kernels.graph.relative_distance` for few variables, by dense rows."""
    p = len(Omega)
    delta, moved, down = np.empty((p, p)), np.empty((p, p)), np.zeros(p)
    for i in range(p):
        for j in range(p):
            delta[i, j] = M[i, j] - Sigma[i, j]
    product(Omega, delta, moved)
    total, across = 0.0, 0.0
    for i in range(p):
        row = 0.0
        for j in range(p):
            total += moved[i, j] * moved[j, i]
            row += abs(moved[i, j])
            down[j] += abs(moved[i, j])
        across = max(across, row)
    distance = np.sqrt(max(total, 0.0))
    return distance, min(distance, across, down.max())


@njit(nogil=True, error_model="numpy")
def graph_gap(S, L, Omega, Sigma, log_determinant, M, R):
    """Gap and ⟨S, Ω⟩ + Σ L|Ω| in units of a unit diagonal; the gap is NaN where no dual point is known."""
    p = len(S)
    trace = dual_point(Omega, Sigma, S, L, M)
    distance, radius = _relative_distance(Omega, Sigma, M)
    if radius < _NEAR:
        return 0.5 * distance * distance / (1.0 - radius), trace
    return max(trace - p - log_determinant - _dual_bound(S, L, Sigma, M, R), 0.0), trace


@njit(nogil=True, error_model="numpy")
def _face(Omega, S, L, Sigma, rows, cols, signs, gradient):
    """List the pairs (i ≤ j) that are not zero, then those that should not be, the most wrong ones first.

    Their signs (0 on the diagonal) and the slopes go along. Returns the numbers of both, −1 where there are too many.
    """
    m, first = 0, 0
    for entering in range(2):
        first = m
        for i in range(len(S)):
            for j in range(i, len(S)):
                w, slope = Omega[i, j], S[i, j] - Sigma[i, j]
                if (w == 0.0) != (entering == 1) or (w == 0.0 and abs(slope) <= L[i, j] * (1.0 + 1e-9)):
                    continue
                if m == len(rows):
                    return -1, first
                sign = 0.0 if i == j else np.sign(w if w != 0.0 else -slope)
                g = slope if i == j else 2.0 * (slope + L[i, j] * sign)
                place = m
                while entering == 1 and place > first and abs(g) > abs(gradient[place - 1]):
                    rows[place], cols[place], signs[place] = rows[place - 1], cols[place - 1], signs[place - 1]
                    gradient[place] = gradient[place - 1]
                    place -= 1
                rows[place], cols[place], signs[place], gradient[place] = i, j, sign, g
                m += 1
    return m, first


@njit(inline="always", nogil=True, error_model="numpy")
def _solve_face(Sigma, rows, cols, signs, g, first, x):
    """Newton's direction x on a face, from the Hessian of −log det Ω; the number of its entries, 0 where it fails.

    Entries from ``first`` on are zero. One that would enter with the wrong sign is left out with all that follow it:
    the factor of what comes before stays what it is.
    """
    m = len(g)
    H, F = np.empty((m, m)), np.empty((m, m))
    for a in range(m):
        i, j = rows[a], cols[a]
        one, other = Sigma[i], Sigma[j]
        twice = 1.0 if i == j else 2.0
        row = H[a]
        for b in range(a + 1):
            k, n = rows[b], cols[b]
            h = twice * (one[k] * other[n] + one[n] * other[k])
            row[b] = 0.5 * h if k == n else h
    if np.isnan(factor(H, F)):
        return 0
    while True:
        back_solve(F, g[:m], x)
        right = first
        while right < m and x[right] * signs[right] < 0.0:
            right += 1
        if right == m:
            return m
        m = right


@njit(inline="always", nogil=True, error_model="numpy")
def _newton_step(S, L, Omega, Sigma, R, far):
    """One Newton step over the pairs that are or should be edges, with their signs, in place; log det Ω after it.

    On such a face the objective is a linear function less log det Ω, which is self-concordant: a step of length
    1/(1 + δ), δ the Newton decrement, stays positive definite and descends. It ends where an entry reaches zero. One
    factorisation does what an ill-conditioned S makes block coordinate descent crawl towards. NaN where nothing is
    done: the face is too large, or δ is above ``far``.
    """
    rows, cols = np.empty(_MOST_FACE, np.int64), np.empty(_MOST_FACE, np.int64)
    signs, g, x = np.empty(_MOST_FACE), np.empty(_MOST_FACE), np.empty(_MOST_FACE)
    m, first = _face(Omega, S, L, Sigma, rows, cols, signs, g)
    m = _solve_face(Sigma, rows[:m], cols[:m], signs, g[:m], first, x) if m > 0 else 0
    if m == 0:
        return np.nan
    along = 0.0
    for a in range(m):
        along += g[a] * x[a]
    decrement = np.sqrt(max(along, 0.0))
    if decrement > far:
        return np.nan
    length, blocking = 1.0 if decrement < 0.25 else 1.0 / (1.0 + decrement), -1
    for a in range(m):
        old = Omega[rows[a], cols[a]]
        if old != 0.0 and (old - length * x[a]) * signs[a] < 0.0:
            length, blocking = old / x[a], a
    for a in range(m):
        i, j = rows[a], cols[a]
        Omega[i, j] = 0.0 if a == blocking else Omega[i, j] - length * x[a]
        Omega[j, i] = Omega[i, j]
    log_determinant = factor(Omega, R)
    if not np.isnan(log_determinant):
        invert(R, Sigma)
    return log_determinant


@njit(nogil=True, error_model="numpy")
def _newton(S, L, Omega, Sigma, log_determinant, M, R, target, far):
    """Newton steps in place until the gap is at most the target or they do not get on; log det Ω, gap and trace."""
    gap, trace = np.inf, 0.0
    for _ in range(_NEWTON_STEPS):
        moved = _newton_step(S, L, Omega, Sigma, R, far)
        if np.isnan(moved):
            break
        log_determinant = moved
        gap, trace = graph_gap(S, L, Omega, Sigma, log_determinant, M, R)
        if gap <= target:
            break
    return log_determinant, gap, trace


@njit(nogil=True, error_model="numpy")
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
        gap = np.inf
        if sweeps == burst:
            log_determinant, gap, trace = _newton(S, L, Omega, Sigma, log_determinant, M, R, target, np.inf)
        if gap == np.inf:
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


@njit(nogil=True, error_model="numpy")
def _warm_start(S, L, omega, sigma, W, B, R):
    """Regressions B of Ω, and W from Σ where it stays positive definite."""
    regressions(omega, L, B)
    clip_box(sigma, S, L, W)
    return _relative_distance(omega, sigma, W)[1] < 0.9 or not np.isnan(factor(W, R))


@njit(nogil=True, error_model="numpy")
def _unscale(omega, sigma, root, Omega, Sigma):
    """Ω and Σ in the user's units."""
    for i in range(len(root)):
        for j in range(len(root)):
            Omega[i, j] = omega[i, j] / (root[i] * root[j])
            Sigma[i, j] = sigma[i, j] * (root[i] * root[j])


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
    if warm:
        scale(Omega, Sigma, root, np.arange(p), omega, sigma)
    held = warm and _warm_start(Sn, Ln, omega, sigma, W, B, R)
    if not held and not soft_start(Sn, Ln, W) and np.isnan(factor(W, R)):
        return np.nan, 0.0, 0.0, 0
    constant, total = 2.0 * log_sum(root), 0
    objective = p + constant
    if held:
        scaled, gap, trace = _newton(Sn, Ln, omega, sigma, factor(omega, R), M, R, tol, _NEAR_ENOUGH)
        objective = trace - scaled + constant
        if gap <= tol * max(1.0, abs(objective)):
            _unscale(omega, sigma, root, Omega, Sigma)
            return gap, objective, scaled - constant, 0
        objective = p + constant
    for _ in range(3):
        target, column_tol = tol * max(1.0, abs(objective)), 1e-4 if held else 1e-2
        value, scaled, gap, sweeps = _graph_descent(Sn, Ln, W, B, omega, sigma, M, R, target, column_tol)
        total += sweeps
        objective = value + constant
        if np.isnan(value):
            break
        if gap <= tol * max(1.0, abs(objective)):
            _unscale(omega, sigma, root, Omega, Sigma)
            return gap, objective, scaled - constant, total
        held = True
    return np.nan, 0.0, 0.0, total
