"""Compiled descent over features whose weights in all tasks come and go together.

The smooth part is ½ Σ_k s_k v_k·H_k v_k − q·V + ½ tr(VᵀCV) for V (K, m), with one H for all tasks or one each; ``form``
is H, s and C as CSR rows. Its gradient G is kept up to date, so that features at which nothing happens cost next to
nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mssl.kernels.compiler import njit
from mssl.kernels.dense import FAST, add_rows, dot

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Form = tuple[Array, Array, Index, Index, Array]

_SECULAR = 50
_HALVINGS = 6
_DAMP = 0.01  # share of its diagonal that is added to the Hessian after a Newton step that led nowhere, at first
_ARMIJO = 1e-4
_FORCING = 0.1  # share of its residual that a Newton system may leave
_MOST_PRODUCTS = 60  # for a Newton system
_NOTHING = 1e-30  # gain of a sweep, relative to the loss at zero, that is rounding
_PATIENCE = 5  # sweeps after which the features in use need no longer be settled for a Newton step


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _add(t: float, A: Array, out: Array) -> None:
    """Add t A to out."""
    for k in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[k, j] += t * A[k, j]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _feature_dots(A: Array, B: Array, out: Array) -> None:
    """A_·j · B_·j for each feature into out."""
    out[:] = 0.0
    for k in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[j] += A[k, j] * B[k, j]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _group_minimiser(a: Array, h: Array, alpha: float, out: Array) -> None:
    """Minimise ½ Σ h_k v_k² − a·v + alpha ‖v‖ into out: v_k = a_k r / (h_k r + alpha), where r is ‖v‖."""
    square = 0.0
    for k in range(len(a)):
        square += a[k] * a[k]
    out[:] = 0.0
    if np.sqrt(square) <= alpha * (1.0 + 1e-12):
        return
    # 1 / ‖a / (h r + alpha)‖ − 1 rises and is concave in r: Newton from the left never overshoots, and with equal h
    # its first step ends at the root.
    r = 0.0
    for _ in range(_SECULAR):
        square, slope = 0.0, 0.0
        for k in range(len(a)):
            inverse = 1.0 / (h[k] * r + alpha)
            share = (a[k] * inverse) ** 2
            square += share
            slope += share * h[k] * inverse
        step = square * (np.sqrt(square) - 1.0) / slope
        if not (step > 0.0 and np.isfinite(step)):
            break
        r += step
        if step <= 1e-15 * r:
            break
    for k in range(len(a)):
        out[k] = a[k] * r / (h[k] * r + alpha)


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _visit(j: int, form: Form, lift: Array, alpha: float, V: Array, G: Array, work: Array) -> float:
    """Minimise a majoriser over feature j; ``work`` holds three rows of length K. Returns what it gained, at least."""
    H, scale, indptr, indices, values = form
    K = V.shape[0]
    a, h, step = work[0], work[1], work[2]
    square, used = 0.0, False
    for k in range(K):
        used |= V[k, j] != 0.0
        square += G[k, j] * G[k, j]
    if not used and square <= alpha * alpha:
        return 0.0
    for k in range(K):
        h[k] = scale[k] * H[k if H.shape[0] > 1 else 0, j, j] + lift[k]
        a[k] = h[k] * V[k, j] - G[k, j]
    _group_minimiser(a, h, alpha, step)
    gained = 0.0
    for k in range(K):
        new = step[k]
        step[k] -= V[k, j]
        V[k, j] = new
        gained += 0.5 * h[k] * step[k] * step[k]
    if gained > 0.0:
        for k in range(K):
            factor, row, out = scale[k] * step[k], H[k if H.shape[0] > 1 else 0, j], G[k]
            for i in range(len(out)):
                out[i] += factor * row[i]
            for p in range(indptr[k], indptr[k + 1]):
                out[j] += values[p] * step[indices[p]]
    return gained


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _gap(V: Array, G: Array, q: Array, alpha: float, constant: float, squares: Array) -> float:
    """Bound of the suboptimality on these features, as :func:`mssl.solvers.proximal.composite_gap`."""
    _feature_dots(G, G, squares)
    largest = 0.0
    for j in range(len(squares)):
        largest = max(largest, squares[j])
    _feature_dots(V, V, squares)
    size, along = 0.0, dot(G, V)
    for j in range(len(squares)):
        size += alpha * np.sqrt(squares[j])
    loss = constant + 0.5 * (along - dot(V, q))
    return max(size + along, 0.0) + max(np.sqrt(largest) - alpha, 0.0) * (loss + size) / alpha


@njit(nogil=True, error_model="numpy")
def _columns(A: Array, features: Index) -> Array:
    """Some columns of a matrix."""
    out = np.empty((len(A), len(features)))
    for k in range(len(A)):
        for i in range(len(features)):
            out[k, i] = A[k, features[i]]
    return out


@njit(nogil=True, error_model="numpy")
def _part(H: Array, features: Index) -> Array:
    """Grams of some features, without a copy where these are all."""
    n = len(features)
    if n == H.shape[1]:
        return H
    out = np.empty((H.shape[0], n, n))
    for k in range(H.shape[0]):
        for i in range(n):
            row = H[k, features[i]]
            for j in range(n):
                out[k, i, j] = row[features[j]]
    return out


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _product(form: Form, D: Array, out: Array) -> None:
    """Hessian of the smooth part times D into out."""
    H, scale, indptr, indices, values = form
    for k in range(len(D)):
        row = out[k]
        row[:] = 0.0
        add_rows(D[k], H[k if H.shape[0] > 1 else 0], D.shape[1], 0, row)
        for j in range(len(row)):
            row[j] *= scale[k]
        for p in range(indptr[k], indptr[k + 1]):
            other, factor = D[indices[p]], values[p]
            for j in range(len(row)):
                row[j] += factor * other[j]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _linearise(
    form: Form,
    alpha: float,
    damp: float,
    V: Array,
    G: Array,
    sizes: Array,
    U: Array,
    E: Array,
    bend: Array,
    pull: Array,
    R: Array,
) -> None:
    """What a Newton step needs where no feature is at zero: directions U, and R, which is minus the gradient.

    alpha ‖v‖ curves by ``bend`` (I − u uᵀ). The Hessian's blocks that belong to a feature, with nothing of C but its
    diagonal and with ``damp`` times their own diagonal added, have the inverse E + pull (E∘u)(E∘u)ᵀ.
    """
    H, scale, indptr, indices, values = form
    K, m = V.shape
    for j in range(m):
        bend[j] = alpha / sizes[j]
        pull[j] = 0.0
    for k in range(K):
        own = 0.0
        for p in range(indptr[k], indptr[k + 1]):
            if indices[p] == k:
                own = values[p]
        for j in range(m):
            U[k, j] = V[k, j] / sizes[j]
            E[k, j] = 1.0 / ((1.0 + damp) * (scale[k] * H[k if H.shape[0] > 1 else 0, j, j] + own + bend[j]))
            pull[j] += U[k, j] * U[k, j] * E[k, j]
            R[k, j] = -(G[k, j] + alpha * U[k, j])
    for j in range(m):
        pull[j] = bend[j] / max(1.0 - bend[j] * pull[j], 1e-10)


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _precondition(U: Array, E: Array, pull: Array, R: Array, dots: Array, out: Array) -> None:
    """Inverse blocks of the features, see :func:`_linearise`, times R into out."""
    dots[:] = 0.0
    for k in range(R.shape[0]):
        for j in range(R.shape[1]):
            out[k, j] = E[k, j] * R[k, j]
            dots[j] += U[k, j] * out[k, j]
    for k in range(R.shape[0]):
        for j in range(R.shape[1]):
            out[k, j] += pull[j] * dots[j] * E[k, j] * U[k, j]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _direction(
    form: Form, damp: float, U: Array, E: Array, bend: Array, pull: Array, R: Array, dots: Array, D: Array, room: Array
) -> int:
    """Conjugate gradients for the Newton step into D; R changes. Returns the products made."""
    Z, P, Q = room[4], room[5], room[6]
    _precondition(U, E, pull, R, dots, Z)
    for k in range(P.shape[0]):
        for j in range(P.shape[1]):
            P[k, j], D[k, j] = Z[k, j], 0.0
    size = dot(R, Z)
    stop = _FORCING**2 * size
    more = damp / (1.0 + damp)
    made = 0
    while made < _MOST_PRODUCTS and size > stop:
        made += 1
        _product(form, P, Q)
        _feature_dots(U, P, dots)
        for k in range(P.shape[0]):
            for j in range(P.shape[1]):
                Q[k, j] += bend[j] * (P[k, j] - dots[j] * U[k, j]) + more / E[k, j] * P[k, j]
        curved = dot(P, Q)
        if not curved > 0.0:
            break
        _add(size / curved, P, D)
        _add(-size / curved, Q, R)
        _precondition(U, E, pull, R, dots, Z)
        before, size = size, dot(R, Z)
        for k in range(P.shape[0]):
            for j in range(P.shape[1]):
                P[k, j] = Z[k, j] + size / before * P[k, j]
    return made


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _bent(t: float, V: Array, D: Array, sizes: Array, dots: Array, out: Array) -> float:
    """Write t D into out, but only up to zero where a feature would pass it; returns the change of Σ_j ‖V_·j‖.

    ``dots`` holds how far the D_·j point along V_·j.
    """
    change = 0.0
    for i in range(len(sizes)):
        passes = -t * dots[i] >= sizes[i]
        more, square = 0.0, 0.0
        for k in range(len(V)):
            out[k, i] = -V[k, i] if passes else t * D[k, i]
            more += (2.0 * V[k, i] + out[k, i]) * out[k, i]
            square += (V[k, i] + out[k, i]) ** 2
        change += more / (np.sqrt(square) + sizes[i])  # a difference of norms would be rounding when steps are short
    return change


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _spread(form: Form, used: Index, D: Array, out: Array) -> None:
    """Hessian of the smooth part times D into out, D being zero except at the features in use."""
    H, scale, indptr, indices, values = form
    for k in range(len(D)):
        row = out[k]
        row[:] = 0.0
        for i in range(len(used)):
            factor, other = scale[k] * D[k, i], H[k if H.shape[0] > 1 else 0, used[i]]
            for j in range(len(row)):
                row[j] += factor * other[j]
        for p in range(indptr[k], indptr[k + 1]):
            for i in range(len(used)):
                row[used[i]] += values[p] * D[indices[p], i]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _newton(form: Form, alpha: float, damp: float, used: Index, V: Array, G: Array) -> tuple[int, float]:
    """A Newton step on the features in use; V and G change. Returns the products made and how far it went."""
    H, scale, indptr, indices, values = form
    K, n = len(V), len(used)
    inside = (_part(H, used), scale, indptr, indices, values)
    v, g, HD = _columns(V, used), _columns(G, used), np.empty(V.shape)
    room, lines = np.empty((7, K, n)), np.empty((4, n))
    U, E, R, D, step = room[0], room[1], room[2], room[3], room[4]
    sizes, bend, pull, dots = lines[0], lines[1], lines[2], lines[3]
    _feature_dots(v, v, sizes)
    for i in range(n):
        sizes[i] = np.sqrt(sizes[i])
    _linearise(inside, alpha, damp, v, g, sizes, U, E, bend, pull, R)
    made = _direction(inside, damp, U, E, bend, pull, R, dots, D, room)
    _feature_dots(U, D, dots)
    slope = dot(g, D) + alpha * dot(U, D)
    t = 1.0
    for _ in range(_HALVINGS):
        change = alpha * _bent(t, v, D, sizes, dots, step)
        _spread(form, used, step, HD)
        made += 1
        change += dot(g, step) + 0.5 * dot(_columns(HD, used), step)
        if change <= _ARMIJO * t * slope < 0.0:
            for k in range(K):
                for i in range(n):
                    V[k, used[i]] += step[k, i]
            _add(1.0, HD, G)
            return made, t
        t *= 0.5
    return made, 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def descend_groups(
    H: Array,
    scale: Array,
    indptr: Index,
    indices: Index,
    values: Array,
    lift: Array,
    alpha: float,
    q: Array,
    constant: float,
    V: Array,
    G: Array,
    tol: float,
    max_iter: int,
) -> tuple[float, int]:
    """Minimise smooth part + alpha Σ_j ‖V_·j‖ by block descent over features and Newton steps on those in use.

    ``lift`` − C must be diagonally dominant, so that each block step minimises a majoriser; ``constant`` is the smooth
    part at V = 0. V and its gradient G change in place. Ends when the bound of the suboptimality is within ``tol`` or
    nothing changes any more; returns that bound and how many sweeps and products it took.
    """
    K, m = V.shape
    form = (H, scale, indptr, indices, values)
    work, squares, active = np.empty((3, K)), np.empty(m), np.empty(m, dtype=np.int64)
    done, waited, before, gap, moved, damp = 0, 0, -1, np.inf, np.inf, 0.0
    while done < max_iter and moved > _NOTHING * constant:
        moved = 0.0
        for j in range(m):
            moved += _visit(j, form, lift, alpha, V, G, work)
        done += 1
        gap = _gap(V, G, q, alpha, constant, squares)
        if not gap > tol:
            break
        n = 0
        for j in range(m):
            if squares[j] > 0.0:
                active[n] = j
                n += 1
        waited += 1
        if n > 0 and (n == before or waited == _PATIENCE):
            made, t = _newton(form, alpha, damp, active[:n], V, G)
            # Where more features are in use than rows tell apart, steps are long and lead astray.
            damp = max(10.0 * damp, _DAMP) if t == 0.0 else 0.1 * damp if t == 1.0 else damp
            done += made
            waited = 0
        before = n
    return gap, done
