"""Compiled kernels of the graphical lasso, on matrices normalised to a unit diagonal.

S is the (normalised) matrix S' = S + diag(e), L the off-diagonal penalties (``inf`` forbids an edge), W the working
covariance (dual variable, kept inside S ± L), and row j of B the regression of variable j on the others.
Infinite penalties are legal, so the relaxed floating point flags leave out ``nnan`` and ``ninf``.
"""

import numpy as np
from numba import njit

_FAST = {"reassoc", "contract", "nsz", "arcp"}


@njit(cache=True, nogil=True)
def normalise(S, L, e, Sn, Ln, root, labels):
    """Scale S + diag(e) to a unit diagonal and label the components of |S_ij| > L_ij.

    Returns the first index whose diagonal entry is not positive, or -1.
    """
    p = S.shape[0]
    for i in range(p):
        d = S[i, i] + e[i]
        if not d > 0.0:
            return i
        root[i] = np.sqrt(d)
        labels[i] = -1
    for i in range(p):
        r = root[i]
        for j in range(p):
            Sn[i, j] = S[i, j] / r / root[j]
            Ln[i, j] = L[i, j] / r / root[j]
        Sn[i, i] = 1.0
        Ln[i, i] = 0.0
    stack = np.empty(p, np.int64)
    count = 0
    for start in range(p):
        if labels[start] >= 0:
            continue
        labels[start] = count
        stack[0] = start
        top = 1
        while top > 0:
            top -= 1
            i = stack[top]
            for j in range(p):
                if labels[j] < 0 and abs(S[i, j]) > L[i, j]:
                    labels[j] = count
                    stack[top] = j
                    top += 1
        count += 1
    return -1


@njit(cache=True, nogil=True)
def soft_start(S, L, W):
    """Write the soft-thresholded S into W; True where diagonal dominance already proves W ≻ 0."""
    p = S.shape[0]
    dominant = True
    for i in range(p):
        total = 0.0
        for j in range(p):
            s = S[i, j]
            w = 0.0
            if s > L[i, j]:
                w = s - L[i, j]
            elif s < -L[i, j]:
                w = s + L[i, j]
            W[i, j] = w
            total += abs(w)
        dominant = dominant and total < 1.999
    return dominant


@njit(cache=True, nogil=True)
def _lasso_active(G, m, c, lam, beta, q, tol, max_passes):
    """Coordinate descent for min ½βᵀGβ − cᵀβ + Σ lam|β| on m gathered variables; q = Gβ is kept."""
    for _ in range(max_passes):
        change = 0.0
        for a in range(m):
            old = beta[a]
            z = c[a] - q[a] + G[a, a] * old
            new = 0.0
            if z > lam[a]:
                new = (z - lam[a]) / G[a, a]
            elif z < -lam[a]:
                new = (z + lam[a]) / G[a, a]
            step = new - old
            if step != 0.0:
                beta[a] = new
                for b in range(m):
                    q[b] += step * G[a, b]
                change = max(change, abs(step))
        if change <= tol:
            break


@njit(cache=True, nogil=True, fastmath=_FAST)
def _axpy(a, x, y):
    for i in range(x.shape[0]):
        y[i] += a * x[i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _store_column(j, g, S, L, W, diagonal):
    """Clip g into the box, write it as row and column j of W; return the weighted squared change."""
    p = g.shape[0]
    change = 0.0
    for i in range(p):
        low, high = S[j, i] - L[j, i], S[j, i] + L[j, i]
        w = min(max(g[i], low), high)
        if i == j:
            w = 1.0
        step = w - W[j, i]
        change += step * step * diagonal[i]
        g[i] = w
    if change > 0.0:
        for i in range(p):
            W[j, i] = g[i]
            W[i, j] = g[i]
    return change * diagonal[j]


@njit(cache=True, nogil=True)
def _gather_active(j, S, L, beta, g, active, tol, first):
    """Support and violators of column j into ``active``; 0 where there is nothing (more) to do."""
    m = 0
    violated = first
    for k in range(S.shape[0]):
        if beta[k] != 0.0:
            active[m] = k
            m += 1
        elif k != j and abs(S[j, k] - g[k]) > L[j, k] + tol:
            active[m] = k
            m += 1
            violated = True
    return m if violated else 0


@njit(cache=True, nogil=True)
def _solve_column(j, S, L, W, B, g, active, gram, vectors, tol, max_passes):
    """Solve the lasso of column j given W; on return g = W B[j]. Returns 1 − gᵀβ, the Schur complement."""
    p = S.shape[0]
    beta_j = B[j]
    g[:] = 0.0
    for k in range(p):
        if beta_j[k] != 0.0:
            _axpy(beta_j[k], W[k], g)
    for round_ in range(20):
        m = _gather_active(j, S, L, beta_j, g, active, tol, round_ == 0)
        if m == 0:
            break
        c, lam, beta, q = vectors[0], vectors[1], vectors[2], vectors[3]
        G = gram[: m * m].reshape((m, m))
        for a in range(m):
            k = active[a]
            c[a], lam[a], beta[a], q[a] = S[j, k], L[j, k], beta_j[k], g[k]
            for b in range(m):
                G[a, b] = W[k, active[b]]
        _lasso_active(G, m, c, lam, beta, q, tol, max_passes)
        for a in range(m):
            k = active[a]
            step = beta[a] - beta_j[k]
            if step != 0.0:
                beta_j[k] = beta[a]
                _axpy(step, W[k], g)
    schur = 1.0
    for k in range(p):
        if k != j:
            schur -= g[k] * beta_j[k]
    return schur


@njit(cache=True, nogil=True)
def bcd_sweeps(S, L, W, B, diagonal, tol, target, max_sweeps):
    """Dual block coordinate descent until the estimated remaining dual ascent is at most ``target``.

    W, B and ``diagonal`` (the diagonal of Ω) are updated in place; ``tol`` is the first tolerance of the columns,
    which follows the ascent from there on. Returns the number of sweeps, negative
    where a Schur complement stopped being positive.
    """
    p = S.shape[0]
    g = np.empty(p)
    active = np.empty(p, np.int64)
    gram = np.empty(p * p)
    vectors = np.empty((4, p))
    previous = np.inf
    for sweep in range(1, max_sweeps + 1):
        ascent = 0.0
        for j in range(p):
            schur = _solve_column(j, S, L, W, B, g, active, gram, vectors, tol, 100)
            if not schur > 1e-14:
                schur = _solve_column(j, S, L, W, B, g, active, gram, vectors, 1e-10, 10000)
                if not schur > 1e-14:
                    return -sweep
            diagonal[j] = 1.0 / schur
            ascent += _store_column(j, g, S, L, W, diagonal)
        ratio = min(ascent / previous, 0.99) if previous < np.inf else 0.5
        if ascent * ratio / (1.0 - ratio) <= target:
            return sweep
        previous = ascent
        tol = min(0.5 * tol, 0.1 * np.sqrt(ascent) / p)
    return max_sweeps


@njit(cache=True, nogil=True)
def warm(Omega, Sigma, root, S, L, B, W):
    """Fill B (β_j = −Ω_j / Ω_jj) and W (Σ clipped into S ± L) from unscaled Ω and Σ."""
    p = S.shape[0]
    for j in range(p):
        for i in range(p):
            B[j, i] = 0.0 if L[j, i] == np.inf else -Omega[j, i] / Omega[j, j] * root[i] / root[j]
            W[j, i] = min(max(Sigma[j, i] / root[i] / root[j], S[j, i] - L[j, i]), S[j, i] + L[j, i])
        B[j, j] = 0.0
        W[j, j] = 1.0


@njit(cache=True, nogil=True)
def assemble(B, diagonal, L, Omega):
    """Symmetric Ω from the regressions; a penalised edge must be there from both of its ends."""
    p = B.shape[0]
    for j in range(p):
        Omega[j, j] = diagonal[j]
        for i in range(j):
            a, b = -B[j, i] * diagonal[j], -B[i, j] * diagonal[i]
            w = 0.5 * (a + b)
            if L[i, j] > 0.0 and (a == 0.0 or b == 0.0):
                w = 0.0
            Omega[i, j] = w
            Omega[j, i] = w


@njit(cache=True, nogil=True)
def clip_box(Sigma, S, L, W):
    """Write Σ clipped into S ± L, with the unit diagonal of S, into W."""
    p = S.shape[0]
    for i in range(p):
        for j in range(p):
            W[i, j] = min(max(Sigma[i, j], S[i, j] - L[i, j]), S[i, j] + L[i, j])
        W[i, i] = S[i, i]


@njit(cache=True, nogil=True)
def penalised_trace(Omega, S, L, e):
    """⟨S + diag(e), Ω⟩ + Σ_{i≠j} L|Ω|; infinite where Ω uses a forbidden edge."""
    p = S.shape[0]
    total = 0.0
    for i in range(p):
        total += (S[i, i] + e[i]) * Omega[i, i]
        for j in range(p):
            if i != j and Omega[i, j] != 0.0:
                total += S[i, j] * Omega[i, j] + L[i, j] * abs(Omega[i, j])
    return total


@njit(cache=True, nogil=True)
def dual_point(Omega, Sigma, S, L, M):
    """Write S + U into M, U = L sign(Ω) on the support and clip(Σ − S, ±L) off it.

    Returns ⟨S, Ω⟩ + Σ_{i≠j} L|Ω|, which equals ⟨S + U, Ω⟩; infinite where Ω uses a forbidden edge.
    """
    p = S.shape[0]
    total = 0.0
    for i in range(p):
        for j in range(p):
            w = Omega[i, j]
            s = S[i, j]
            if i == j:
                M[i, j] = s
                total += s * w
            elif w != 0.0:
                m = s + L[i, j] if w > 0.0 else s - L[i, j]
                M[i, j] = m
                total += m * w
            else:
                M[i, j] = min(max(Sigma[i, j], s - L[i, j]), s + L[i, j])
    return total


@njit(cache=True, nogil=True)
def mirror(A):
    """Copy the lower triangle of a C-ordered matrix onto its upper one."""
    p = A.shape[0]
    for i in range(p):
        for j in range(i):
            A[j, i] = A[i, j]
