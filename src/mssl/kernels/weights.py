"""Compiled sweeps of coordinate descent over the weights: plain loops on arrays and scalars.

The coupling C = P − ρ u uᵀ enters as CSR rows of P plus ``mean`` = Wᵀu, both kept up to date. A visit to a task is one
pass over all coordinates and at most five over those that are not zero. Both kernels return ``(sweeps, decrease)``: how
many sweeps were made, and a lower bound of what the last one took off the objective.

A penalty comes as ``(code, positive, parameters)``, see :class:`mssl.penalties.EntrywisePenalty`: what function of one
weight it is, whether weights below 0 are forbidden, and its parameters for each weight. All that the sweeps know of it
are :func:`_minimiser`, :func:`_penalty` and :func:`_gain`; a new penalty is a branch in these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mssl.kernels import ABSOLUTE
from mssl.kernels.compiler import njit
from mssl.kernels.dense import FAST, back_solve, factor

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Penalty = tuple[int, bool, Array]

_PASSES = 5  # over the support, after one over everything
_GATHERED_PASSES = 20
_MEMORY = 3  # changes that an extrapolation combines
_GATHER_FROM = 60  # features from which copying the Gram of the support and extrapolating pay
_ROUNDING = 1e-12


@njit(nogil=True)
def _pull(
    k: int, W: Array, indptr: Index, indices: Index, values: Array, u: Array, rho: float, mean: Array, out: Array
) -> float:
    """Write Σ_{l≠k} C_kl w_l into out, take task k out of mean, and return C_kk."""
    d = W.shape[1]
    own = -rho * u[k] * u[k]
    for j in range(d):
        mean[j] -= u[k] * W[k, j]
        out[j] = -rho * u[k] * mean[j]
    for p in range(indptr[k], indptr[k + 1]):
        other = indices[p]
        if other == k:
            own += values[p]
        else:
            for j in range(d):
                out[j] += values[p] * W[other, j]
    return own


@njit(nogil=True)
def _minimiser(code: int, positive: bool, a: float, t: float, theta: float, h: float, inverse: float) -> float:
    """Minimise ½ h w² − a w + g(w) over w, given 1/h; what exceeds t by rounding only is zero."""
    if positive and a <= 0.0:
        return 0.0
    if code == ABSOLUTE:
        if abs(a) <= t * (1.0 + _ROUNDING):
            return 0.0
        return (a - t) * inverse if a > 0.0 else (a + t) * inverse
    # Minimax concave: where the loss is less curved than the penalty, a weight is zero or not penalised at all.
    if h * theta <= 1.0:
        return a * inverse if a * a > h * theta * t * t else 0.0
    if abs(a) <= t * (1.0 + _ROUNDING):
        return 0.0
    if abs(a) >= h * theta * t:
        return a * inverse
    return (a - t if a > 0.0 else a + t) / (h - 1.0 / theta)


@njit(nogil=True)
def _penalty(code: int, positive: bool, t: float, theta: float, w: float) -> float:
    """The penalty g(w) of one weight."""
    size = abs(w)
    if size == 0.0:
        return 0.0
    if positive and w < 0.0:
        return np.inf
    if code == ABSOLUTE:
        return t * size
    return t * size - 0.5 * size * size / theta if size <= theta * t else 0.5 * theta * t * t


@njit(nogil=True)
def _gain(code: int, positive: bool, a: float, t: float, theta: float, h: float, old: float, new: float) -> float:
    """What the step of one weight from old to its minimiser takes off the objective, at least."""
    step = new - old
    if code == ABSOLUTE:
        return 0.5 * h * step * step
    if old * new > 0.0:  # a difference of values would be rounding when steps are short
        if min(abs(old), abs(new)) >= theta * t:
            return 0.5 * h * step * step
        if max(abs(old), abs(new)) <= theta * t:
            return 0.5 * (h - 1.0 / theta) * step * step
    smooth = step * (a - 0.5 * h * (old + new))
    return smooth + _penalty(code, positive, t, theta, old) - _penalty(code, positive, t, theta, new)


@njit(nogil=True)
def _support(w: Array, active: Index) -> int:
    """List the coordinates that are not zero; returns their number."""
    count = 0
    for j in range(len(w)):
        if w[j] != 0.0:
            active[count] = j
            count += 1
    return count


@njit(nogil=True, fastmath={"contract"})
def _gram_pass(
    G: Array,
    s: float,
    own: float,
    q: Array,
    code: int,
    positive: bool,
    t: Array,
    theta: Array,
    w: Array,
    hw: Array,
    coordinates: Index,
) -> float:
    """One pass of coordinate descent on ½ wᵀ(sG + own I)w − q·w + Σ g(w_j) with hw = sGw; returns what it gained.

    Every step waits for the one before it. What it waits for is therefore kept short: no division, nothing that goes
    through memory (the next entry of hw is computed apart), and all that can be known before is multiplied out before.
    """
    gained, last = 0.0, len(coordinates) - 1
    ahead = hw[coordinates[0]] if last >= 0 else 0.0
    for p in range(last + 1):
        j, following = coordinates[p], coordinates[min(p + 1, last)]
        here, ahead = ahead, hw[following]
        row = G[j]
        h = s * row[j] + own
        if h <= 0.0:
            continue
        old = w[j]
        a = (s * row[j] * old + q[j]) - here
        new = _minimiser(code, positive, a, t[j], theta[j], h, 1.0 / h)
        if new != old:
            step = new - old
            w[j] = new
            gained += _gain(code, positive, a, t[j], theta[j], h, old, new)
            ahead += step * (s * row[following])
            step *= s
            for i in range(len(w)):
                hw[i] += step * row[i]
    return gained


@njit(nogil=True, fastmath=FAST)
def _value(own: float, q: Array, code: int, positive: bool, t: Array, theta: Array, w: Array, hw: Array) -> float:
    """Objective of a task visit."""
    total = 0.0
    for j in range(len(w)):
        total += w[j] * (0.5 * hw[j] + 0.5 * own * w[j] - q[j]) + _penalty(code, positive, t[j], theta[j], w[j])
    return total


@njit(nogil=True, fastmath=FAST)
def _anderson_weights(past: Array, A: Array, c: Array) -> None:
    """Write into c the weights of sum 1 with the shortest combination of the successive changes of past.

    Where nothing changed they are zero. A is room for the (M, M) matrix of the changes' products.
    """
    M, d = A.shape[0], past.shape[1]
    trace = 0.0
    for a in range(M):
        for b in range(M):
            total = 0.0
            for j in range(d):
                total += (past[a + 1, j] - past[a, j]) * (past[b + 1, j] - past[b, j])
            A[a, b] = total
        trace += A[a, a]
        c[a] = 1.0 if trace > 0.0 else 0.0
    # Lifted a little, a positive semidefinite matrix needs no pivots.
    lift = 1e-12 * trace if trace > 0.0 else 1.0
    for a in range(M):
        A[a, a] += lift
        for b in range(a):
            factor = A[a, b] / A[b, b]
            for e in range(b, M):
                A[a, e] -= factor * A[b, e]
            c[a] -= factor * c[b]
    total = 0.0
    for a in range(M - 1, -1, -1):
        for b in range(a + 1, M):
            c[a] -= A[a, b] * c[b]
        c[a] /= A[a, a]
        total += c[a]
    for a in range(M):
        c[a] = c[a] / total if total != 0.0 else 0.0


@njit(nogil=True, fastmath=FAST)
def _extrapolate(
    past: Array,
    past_h: Array,
    A: Array,
    c: Array,
    own: float,
    q: Array,
    code: int,
    positive: bool,
    t: Array,
    theta: Array,
    w: Array,
    hw: Array,
) -> float:
    """Anderson extrapolation of the passes whose results past holds (its last row is w), kept where it gains.

    The first rows of past and past_h are overwritten; A and c are room for the weights.
    """
    _anderson_weights(past, A, c)
    for j in range(len(w)):
        v, hv = 0.0, 0.0
        for a in range(len(c)):
            v += c[a] * past[a + 1, j]
            hv += c[a] * past_h[a + 1, j]
        past[0, j], past_h[0, j] = v, hv
    gained = _value(own, q, code, positive, t, theta, w, hw)
    gained -= _value(own, q, code, positive, t, theta, past[0], past_h[0])
    if not gained > 0.0:
        return 0.0
    for j in range(len(w)):
        w[j], hw[j] = past[0, j], past_h[0, j]
    return gained


@njit(nogil=True, fastmath=FAST)
def _gathered_passes(
    G: Array,
    s: float,
    own: float,
    q: Array,
    code: int,
    positive: bool,
    t: Array,
    theta: Array,
    w: Array,
    hw: Array,
    active: Index,
    room: Array,
    stop: float,
) -> float:
    """Passes over the support on a copy of its Gram, small enough to stay in the cache."""
    count = len(active)
    sub = room[: count * count].reshape(count, count)
    v, hv, p, own_t, own_theta = np.empty(count), np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    for a in range(count):
        v[a], hv[a], p[a] = w[active[a]], hw[active[a]], q[active[a]]
        own_t[a], own_theta[a] = t[active[a]], theta[active[a]]
        row = G[active[a]]
        for b in range(count):
            sub[a, b] = row[active[b]]
    everything = np.arange(count)
    past, past_h = np.empty((_MEMORY + 1, count)), np.empty((_MEMORY + 1, count))
    A, c = np.empty((_MEMORY, _MEMORY)), np.empty(_MEMORY)
    total = 0.0
    for visit in range(_GATHERED_PASSES):
        slot = visit % (_MEMORY + 1)
        for a in range(count):
            past[slot, a], past_h[slot, a] = v[a], hv[a]
        if slot == _MEMORY:
            total += _extrapolate(past, past_h, A, c, own, p, code, positive, own_t, own_theta, v, hv)
        gained = _gram_pass(sub, s, own, p, code, positive, own_t, own_theta, v, hv, everything)
        total += gained
        if gained <= stop:
            break
    for a in range(count):
        step = s * (v[a] - w[active[a]])
        if step != 0.0:
            w[active[a]] = v[a]
            row = G[active[a]]
            for i in range(len(w)):
                hw[i] += step * row[i]
    return total


@njit(nogil=True, fastmath=FAST)
def _face_step(G: Array, s: float, own: float, q: Array, t: Array, w: Array, hw: Array, active: Index) -> float:
    """Move w towards the minimum over its own support and signs, as far as no sign changes; returns what it gained.

    One factorisation does what correlated features make coordinate descent crawl towards.
    """
    m = len(active)
    A, R = np.empty((m, m)), np.empty((m, m))
    gradient, step = np.empty(m), np.empty(m)
    for a in range(m):
        j = active[a]
        gradient[a] = q[j] - hw[j] - own * w[j] - np.sign(w[j]) * t[j]
        for b in range(a + 1):
            A[a, b] = s * G[j, active[b]]
        A[a, a] += own
    if np.isnan(factor(A, R)):
        return 0.0
    back_solve(R, gradient, step)
    length, blocking, along = 1.0, -1, 0.0
    for a in range(m):
        along += gradient[a] * step[a]
        old = w[active[a]]
        if (old + length * step[a]) * old <= 0.0:
            length, blocking = -old / step[a], a
    for a in range(m):
        j = active[a]
        move = -w[j] if a == blocking else length * step[a]
        w[j] += move
        row = G[j]
        move *= s
        for i in range(len(w)):
            hw[i] += move * row[i]
    return length * (1.0 - 0.5 * length) * along


@njit(nogil=True)
def visit(
    G: Array,
    s: float,
    own: float,
    q: Array,
    code: int,
    positive: bool,
    t: Array,
    theta: Array,
    w: Array,
    hw: Array,
    active: Index,
    everything: Index,
    room: Array,
    least: float,
) -> float:
    """Lower ½ wᵀ(sG + own I)w − q·w + Σ g(w_j) of one task by a pass over all coordinates and some over the support.

    Ends where a pass gains at most ``least`` or a hundredth of the first; returns what was gained. hw = sGw is kept.
    """
    total = _gram_pass(G, s, own, q, code, positive, t, theta, w, hw, everything)
    stop = max(0.01 * total, least)
    if total <= stop:
        return total
    support = active[: _support(w, active)]
    if len(w) >= _GATHER_FROM:
        return total + _gathered_passes(G, s, own, q, code, positive, t, theta, w, hw, support, room, stop)
    for _ in range(_PASSES):
        gained = _gram_pass(G, s, own, q, code, positive, t, theta, w, hw, support)
        total += gained
        if gained <= stop:
            return total
    if code != ABSOLUTE:
        return total
    return total + _face_step(G, s, own, q, t, w, hw, active[: _support(w, active)])


@njit(cache=True, nogil=True)
def gram_sweeps(
    H: Array,
    scale: Array,
    q: Array,
    indptr: Index,
    indices: Index,
    values: Array,
    u: Array,
    rho: float,
    penalty: Penalty,
    W: Array,
    HW: Array,
    mean: Array,
    tasks: Index,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """Coordinate descent on Grams H_k = scale_k H[k] (or H[0]) over some tasks; W, HW and mean change in place."""
    code, positive, parameters = penalty
    K, d = len(tasks), W.shape[1]
    pull = np.empty(d)
    room = np.empty(d * d if d >= _GATHER_FROM else 0)
    active = np.empty(d, dtype=np.int64)
    everything = np.arange(d)
    decrease = 0.0
    for sweep in range(n_sweeps):
        decrease = 0.0
        for k in tasks:
            own = _pull(k, W, indptr, indices, values, u, rho, mean, pull)
            for j in range(d):
                pull[j] = q[k, j] - pull[j]
            G = H[k] if H.shape[0] > 1 else H[0]
            least, t, theta = 0.1 * enough / K, parameters[0, k], parameters[-1, k]
            decrease += visit(
                G, scale[k], own, pull, code, positive, t, theta, W[k], HW[k], active, everything, room, least
            )
            for j in range(d):
                mean[j] += u[k] * W[k, j]
        if decrease <= enough:
            return sweep + 1, decrease
    return n_sweeps, decrease


@njit(nogil=True, fastmath=FAST)
def _dot(column: Array, rows: Index, start: int, is_sparse: bool, v: Array) -> float:
    total = 0.0
    if is_sparse:
        for p in range(len(column)):
            total += column[p] * v[start + rows[p]]
    else:
        part = v[start : start + len(column)]
        for p in range(len(column)):
            total += column[p] * part[p]
    return total


@njit(nogil=True)
def _subtract(column: Array, rows: Index, start: int, is_sparse: bool, step: float, c: Array, v: Array) -> None:
    """Take step · c · column from v, on the rows of the column."""
    if is_sparse:
        for p in range(len(column)):
            i = start + rows[p]
            v[i] -= step * c[i] * column[p]
    else:
        part, weight = v[start : start + len(column)], c[start : start + len(column)]
        for p in range(len(column)):
            part[p] -= step * weight[p] * column[p]


@njit(nogil=True)
def _design_pass(
    data: Array,
    indices: Index,
    indptr: Index,
    start: int,
    is_sparse: bool,
    c: Array,
    total: float,
    mu: Array,
    sums: Array,
    h: Array,
    own: float,
    pull: Array,
    code: int,
    positive: bool,
    t: Array,
    theta: Array,
    w: Array,
    v: Array,
    state: Array,
    coordinates: Index,
) -> float:
    """One pass; the residual is v/c + state[0], and state[1] = Σ v. ``indptr`` starts at the task's columns."""
    gained = 0.0
    for j in coordinates:
        curvature = h[j] + own
        if curvature <= 0.0:
            continue
        lo, hi = indptr[j], indptr[j + 1]
        column = data[lo:hi]
        rows = indices[lo:hi] if is_sparse else indices
        old = w[j]
        along = _dot(column, rows, start, is_sparse, v) + state[0] * sums[j] - mu[j] * (state[1] + state[0] * total)
        a = h[j] * old + along - pull[j]
        new = _minimiser(code, positive, a, t[j], theta[j], curvature, 1.0 / curvature)
        if new != old:
            step = new - old
            w[j] = new
            gained += _gain(code, positive, a, t[j], theta[j], curvature, old, new)
            _subtract(column, rows, start, is_sparse, step, c, v)
            state[0] += step * mu[j]
            state[1] -= step * sums[j]
    return gained


@njit(cache=True, nogil=True)
def design_sweeps(
    data: Array,
    indices: Index,
    indptr: Index,
    base: Index,
    row_start: Index,
    is_sparse: bool,
    c: Array,
    totals: Array,
    mu: Array,
    sums: Array,
    h: Array,
    cptr: Index,
    cind: Index,
    values: Array,
    u: Array,
    rho: float,
    penalty: Penalty,
    W: Array,
    v: Array,
    state: Array,
    mean: Array,
    tasks: Index,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """Coordinate descent on stored columns a_kj, standing for a_kj − mu_kj; W, v, state and mean are updated in place.

    With v = c (target − Σ_j a_j w_j), state[k, 0] = Σ_j mu_kj w_kj and state[k, 1] = Σ_i v_i a coordinate costs the
    stored entries of its column, centring and intercept included.
    """
    code, positive, parameters = penalty
    K, d = len(tasks), W.shape[1]
    pull = np.empty(d)
    active = np.empty(d, dtype=np.int64)
    everything = np.arange(d)
    decrease = 0.0
    for sweep in range(n_sweeps):
        decrease = 0.0
        for k in tasks:
            own = _pull(k, W, cptr, cind, values, u, rho, mean, pull)
            stop = 0.0
            coordinates = everything
            for visit in range(1 + _PASSES):
                gained = _design_pass(
                    data,
                    indices,
                    indptr[base[k] :],
                    row_start[k],
                    is_sparse,
                    c,
                    totals[k],
                    mu[k],
                    sums[k],
                    h[k],
                    own,
                    pull,
                    code,
                    positive,
                    parameters[0, k],
                    parameters[-1, k],
                    W[k],
                    v,
                    state[k],
                    coordinates,
                )
                decrease += gained
                if visit == 0:
                    stop = max(0.01 * gained, 0.1 * enough / K)
                    coordinates = active[: _support(W[k], active)]
                if gained <= stop:
                    break
            for j in range(d):
                mean[j] += u[k] * W[k, j]
        if decrease <= enough:
            return sweep + 1, decrease
    return n_sweeps, decrease
