# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled kernels of the graphical lasso, on matrices normalised to a unit diagonal.

S is the (normalised) matrix S' = S + diag(e), L the off-diagonal penalties (``inf`` forbids an edge), W the working
covariance (dual variable, kept inside S ± L), and row j of B the regression of variable j on the others.
Infinite penalties are legal, so the relaxed floating point flags leave out ``nnan`` and ``ninf``.
"""

import numpy as np

from mssl.kernels.compiler import njit
from mssl.kernels.dense import TINY, add_some_rows, back_solve, factor

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_PASSES, _MOST_PASSES = np.int64(100), np.int64(2000)  # no literals: each would get a compiled version of its own
_SINGULAR = 1e-7  # least entry on the diagonal of a factor that is trusted


@njit(cache=True, nogil=True, error_model="numpy")
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
            Sn[i, j] = S[i, j] / (r * root[j])
            Ln[i, j] = L[i, j] / (r * root[j])
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


@njit(cache=True, nogil=True, error_model="numpy")
def connect(Omega, labels):
    """Give components that an edge of Ω connects the same label."""
    p = labels.size
    for i in range(p):
        for j in range(i):
            if Omega[i, j] != 0.0 and labels[i] != labels[j]:
                gone = labels[j]
                for k in range(p):
                    if labels[k] == gone:
                        labels[k] = labels[i]


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(nogil=True, error_model="numpy")
def _face_step(G, m, c, lam, beta, q):
    """Move β towards the minimum over its own support and signs, as far as no sign changes.

    A descent step that an ill-conditioned G, on which coordinate descent crawls, does not slow down.
    """
    face, b, x = np.empty(m, np.int64), np.empty(m), np.empty(m)
    k = 0
    for a in range(m):
        if beta[a] != 0.0:
            face[k] = a
            b[k] = c[a] - np.sign(beta[a]) * lam[a] - q[a]
            k += 1
    A, R = np.empty((k, k)), np.empty((k, k))
    for u in range(k):
        for v in range(u + 1):
            A[u, v] = G[face[u], face[v]]
    if np.isnan(factor(A, R)):
        return
    back_solve(R, b[:k], x)
    t, blocking = 1.0, -1
    for u in range(k):
        if not R[u, u] > _SINGULAR:
            return
        old = beta[face[u]]
        if (old + t * x[u]) * old <= 0.0:
            t, blocking = -old / x[u], u
    for u in range(k):
        a = face[u]
        step = -beta[a] if u == blocking else t * x[u]
        beta[a] += step
        for v in range(m):
            q[v] += step * G[a, v]


@njit(nogil=True, error_model="numpy")
def _lasso_active(G, m, c, lam, beta, q, tol, max_passes):
    """Coordinate descent for min ½βᵀGβ − cᵀβ + Σ lam|β| on m gathered variables; q = Gβ is kept, G_aa = 1."""
    for sweep in range(1, max_passes + 1):
        change = 0.0
        for a in range(m):
            old = beta[a]
            z = c[a] - q[a] + old
            new = 0.0
            if z > lam[a]:
                new = z - lam[a]
            elif z < -lam[a]:
                new = z + lam[a]
            step = new - old
            if step != 0.0:
                beta[a] = new
                for b in range(m):
                    q[b] += step * G[a, b]
                change = max(change, abs(step))
        if change <= tol:
            break
        if sweep % 10 == 0:
            _face_step(G, m, c, lam, beta, q)


@njit(nogil=True, error_model="numpy", fastmath=_FAST)
def _store_column(j, g, S, L, W, diagonal):
    """Clip g into the box, write it as row and column j of W; return the weighted squared change.

    Negative where an entry of 1 or more shows that W is no longer positive definite.
    """
    p = g.shape[0]
    change, peak = 0.0, 0.0
    for i in range(p):
        low, high = S[j, i] - L[j, i], S[j, i] + L[j, i]
        w = min(max(g[i], low), high)
        if abs(w) < TINY:
            w = 0.0
        if i == j:
            w = 1.0
        else:
            peak = max(peak, abs(w))
        step = w - W[j, i]
        change += step * step * diagonal[i]
        g[i] = w
    if not peak < 1.0:
        return -1.0
    if change > 0.0:
        for i in range(p):
            W[j, i] = g[i]
            W[i, j] = g[i]
    return change * diagonal[j]


@njit(nogil=True, error_model="numpy")
def _gather_active(j, S, L, beta, g, active, first):
    """Support and violators of column j into ``active``; 0 where there is nothing (more) to do."""
    m = 0
    violated = first
    for k in range(S.shape[0]):
        if beta[k] != 0.0:
            active[m] = k
            m += 1
        elif k != j and abs(S[j, k] - g[k]) > L[j, k] + 1e-12:
            active[m] = k
            m += 1
            violated = True
    return m if violated else 0


@njit(nogil=True, error_model="numpy")
def _solve_column(j, S, L, W, B, g, active, gram, vectors, tol, max_passes):
    """Solve the lasso of column j given W; on return g = W B[j]. Returns 1 − gᵀβ, the Schur complement."""
    p, beta_j, m = S.shape[0], B[j], 0
    c, lam, beta, q = vectors[0], vectors[1], vectors[2], vectors[3]
    for k in range(p):
        if beta_j[k] != 0.0:
            active[m], beta[m] = k, beta_j[k]
            m += 1
    g[:] = 0.0
    add_some_rows(beta, active, m, W, g)
    for round_ in range(20):
        m = _gather_active(j, S, L, beta_j, g, active, round_ == 0)
        if m == 0:
            break
        G = gram[: m * m].reshape((m, m))
        for a in range(m):
            k = active[a]
            c[a], lam[a], beta[a], q[a] = S[j, k], L[j, k], beta_j[k], g[k]
            for b in range(a + 1):
                G[a, b] = W[k, active[b]]
                G[b, a] = G[a, b]
        _lasso_active(G, m, c, lam, beta, q, tol, max_passes)
        moved = 0
        for a in range(m):
            k = active[a]
            step = beta[a] - beta_j[k]
            if step != 0.0:
                beta_j[k] = beta[a]
                active[moved], beta[moved] = k, step
                moved += 1
        add_some_rows(beta, active, moved, W, g)
    schur = 1.0
    for k in range(p):
        if beta_j[k] != 0.0:
            schur -= g[k] * beta_j[k]
    return schur


@njit(cache=True, nogil=True, error_model="numpy")
def bcd_sweeps(S, L, W, B, diagonal, tol, target, max_sweeps, previous):
    """Dual block coordinate descent until the estimated remaining dual ascent is at most ``target``.

    W, B and ``diagonal`` (the diagonal of Ω) are updated in place; ``tol`` is the first tolerance of the columns,
    which follows the ascent from there on; ``previous`` is the ascent of a sweep before, or infinite. Returns the
    number of sweeps, negative where W stopped being positive definite, and the ascent of the last.
    """
    p = S.shape[0]
    g = np.empty(p)
    active = np.empty(p, np.int64)
    gram = np.empty(p * p)
    vectors = np.empty((4, p))
    ascent = previous
    for sweep in range(1, max_sweeps + 1):
        ascent = 0.0
        for j in range(p):
            schur = _solve_column(j, S, L, W, B, g, active, gram, vectors, tol, _PASSES)
            if not schur > 1e-14:
                schur = _solve_column(j, S, L, W, B, g, active, gram, vectors, 1e-10, _MOST_PASSES)
                if not schur > 1e-14:
                    return -sweep, ascent
            diagonal[j] = 1.0 / schur
            change = _store_column(j, g, S, L, W, diagonal)
            if change < 0.0:
                return -sweep, ascent
            ascent += change
        ratio = min(ascent / previous, 0.99) if previous < np.inf else 0.1
        if ascent * ratio / (1.0 - ratio) <= target:
            return sweep, ascent
        previous = ascent
        tol = min(0.5 * tol, 0.3 * np.sqrt(ascent) / p)
    return max_sweeps, ascent


@njit(cache=True, nogil=True, error_model="numpy")
def scale(Omega, Sigma, root, index, Omega_n, Sigma_n):
    """Rows and columns ``index`` of Ω and Σ in units of a unit diagonal of S'."""
    for a in range(index.size):
        i = index[a]
        for b in range(index.size):
            j = index[b]
            Omega_n[a, b] = Omega[i, j] * (root[i] * root[j])
            Sigma_n[a, b] = Sigma[i, j] / (root[i] * root[j])


@njit(cache=True, nogil=True, error_model="numpy")
def unscale(Omega_n, Sigma_n, W_n, root, index, Omega, Sigma, W):
    """The inverse of ``scale``, into rows and columns ``index`` of Ω, Σ and, unless it is empty, W."""
    for a in range(index.size):
        i = index[a]
        for b in range(index.size):
            j = index[b]
            unit = root[i] * root[j]
            Omega[i, j] = Omega_n[a, b] / unit
            Sigma[i, j] = Sigma_n[a, b] * unit
            if W.size > 0:
                W[i, j] = W_n[a, b] * unit


@njit(cache=True, nogil=True, error_model="numpy")
def regressions(Omega, L, B):
    """β_j = −Ω_j / Ω_jj into row j of B, without forbidden edges."""
    p = Omega.shape[0]
    for j in range(p):
        for i in range(p):
            B[j, i] = 0.0 if L[j, i] == np.inf else -Omega[j, i] / Omega[j, j]
        B[j, j] = 0.0


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def clip_box(Sigma, S, L, W):
    """Write Σ clipped into S ± L, with the unit diagonal of S, into W."""
    p = S.shape[0]
    for i in range(p):
        for j in range(p):
            W[i, j] = min(max(Sigma[i, j], S[i, j] - L[i, j]), S[i, j] + L[i, j])
        W[i, i] = S[i, i]


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def dual_point(Omega, Sigma, S, L, M):
    """Write S + U into M, U = L sign(Ω) on the support and clip(Σ − S, ±L) off it.

    Returns ⟨S, Ω⟩ + Σ_{i≠j} L|Ω|, which equals ⟨S + U, Ω⟩; infinite where Ω uses a forbidden edge.
    """
    p = S.shape[0]
    total = 0.0
    for i in range(p):
        for j in range(p):
            w = Omega[i, j]
            m = S[i, j]
            if w == 0.0:
                m = min(max(Sigma[i, j], m - L[i, j]), m + L[i, j])
            else:
                if i != j:
                    m += L[i, j] if w > 0.0 else -L[i, j]
                total += m * w
            M[i, j] = m
    return total


@njit(nogil=True, error_model="numpy")
def _compress(A, C):
    """Rows of A − C (of A where C is empty) in compressed form: row pointers, columns, values."""
    p = A.shape[0]
    starts, columns, values = np.zeros(p + 1, np.int64), np.empty(8 * p, np.int64), np.empty(8 * p)
    n = 0
    for i in range(p):
        if n + p > columns.size:
            columns = np.append(columns[:n], np.empty(n + p, np.int64))
            values = np.append(values[:n], np.empty(n + p))
        for j in range(p):
            v = A[i, j] if C.size == 0 else A[i, j] - C[i, j]
            if v != 0.0:
                columns[n] = j
                values[n] = v
                n += 1
        starts[i + 1] = n
    return starts, columns, values


@njit(cache=True, nogil=True, error_model="numpy")
def relative_distance(Omega, Sigma, M, limit):
    """‖E‖_F of E = Ω^½ (M − Σ) Ω^½, that is √tr(ΩΔΩΔ), by sparse rows, and a bound on the spectral radius of E.

    E and ΩΔ have the same eigenvalues, so that the least of the Frobenius norm of E and the largest sums of rows and
    columns of |ΩΔ| is such a bound. Both are infinite where a factorisation would be cheaper, or where the first rows
    show that the bound will be above ``limit``.
    """
    p = Omega.shape[0]
    rows, cols, omega = _compress(Omega, np.empty((0, 0)))
    drows, dcols, delta = _compress(M, Sigma)
    if p > 64 and 64.0 * rows[p] * drows[p] > float(p) ** 4:
        return np.inf, np.inf
    row, column = np.zeros(p), np.zeros(p)
    total, across, down = 0.0, 0.0, 0.0
    for i in range(p):
        for a in range(rows[i], rows[i + 1]):
            for b in range(drows[cols[a]], drows[cols[a] + 1]):
                row[dcols[b]] += omega[a] * delta[b]
        for b in range(drows[i], drows[i + 1]):
            for a in range(rows[dcols[b]], rows[dcols[b] + 1]):
                column[cols[a]] += delta[b] * omega[a]
        u, v = 0.0, 0.0
        for j in range(p):
            total += row[j] * column[j]
            u += abs(row[j])
            v += abs(column[j])
            row[j] = 0.0
            column[j] = 0.0
        across, down = max(across, u), max(down, v)
        if min(across, down) > limit and total > 4.0 * limit * limit:
            return np.inf, np.inf
    distance = np.sqrt(max(total, 0.0))
    return distance, min(distance, across, down)


@njit(cache=True, nogil=True, error_model="numpy")
def mirror(A):
    """Copy the lower triangle of a C-ordered matrix onto its upper one."""
    p = A.shape[0]
    for i in range(p):
        for j in range(i):
            A[j, i] = A[i, j]
