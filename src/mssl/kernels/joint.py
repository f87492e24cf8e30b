# mypy: allow-untyped-defs, allow-untyped-calls
"""The whole alternation of a small problem as one compiled loop: start, weight steps, graph steps, certificates.

Letters as in :mod:`mssl.kernels.small_weights` and :mod:`mssl.kernels.small_graph`. A negative answer means that a
step broke down; the steps in Python, which know more ways out, then continue from the last good point.

A helper with one caller is ``inline="always"``: every level of calls would be compiled again by the one above it.
"""

import numpy as np
from numba import boolean, float64, int64, types

from mssl.kernels import small_graph as _small_graph_kernels
from mssl.kernels import small_weights as _small_weight_kernels
from mssl.kernels.apart import apart
from mssl.kernels.compiler import njit
from mssl.kernels.dense import FAST, combine, copy, factor, log_sum
from mssl.kernels.graph import normalise, scale
from mssl.kernels.small_graph import graph_gap
from mssl.kernels.small_weights import couple

_V, _M, _T = float64[::1], float64[:, ::1], float64[:, :, ::1]
_LOSS = types.Tuple((_T, _V, _M, _V, _V, _T))
_PRIOR = types.Tuple((float64, float64, _V, _V, _M))
_TABLES = types.Tuple((_M, _M, _V, _M, _V, _V))
_POINT = types.UniTuple(float64, 5)
graph_step = apart(
    _small_graph_kernels.graph_step,
    types.UniTuple(float64, 2)(_M, _M, _V, _M, _M, float64, float64, float64),
)
weight_step = apart(
    _small_weight_kernels.weight_step,
    float64(_LOSS, _V, _M, _M, _V, float64, float64, _M, _M, _T, float64, int64),
)
_SLOW = 0.3  # rate of convergence from which on extrapolations pay
_FARTHEST = 10.0  # last changes that an extrapolation adds at most
REST = 3.0  # rounds before the first extrapolation, and after one that failed
_LONGEST_REST = 20.0


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _moment(W, mean, rho, variances, shrinkage, S):
    """S of the weights less the shared mean."""
    K, d = W.shape
    for k in range(K):
        for m in range(k + 1):
            total = 0.0
            for j in range(d):
                total += (W[k, j] - mean[j]) * (W[m, j] - mean[j])
            S[k, m] = (total / d + rho) / (1.0 + shrinkage)
            S[m, k] = S[k, m]
        S[k, k] += shrinkage * variances[k] / (1.0 + shrinkage)


@njit(nogil=True, error_model="numpy")
def _loss(constants, q, t, W, HW):
    """Loss plus penalty."""
    total = 0.0
    for k in range(W.shape[0]):
        total += constants[k]
        for j in range(W.shape[1]):
            total += W[k, j] * (0.5 * HW[k, j] - q[k, j]) + t[k] * abs(W[k, j])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _look_here(W, Omega, Sigma, log_determinant, prior, tau, tables, given):
    """Certify Ω at these weights: log det Ω, share of F, gap, value in scaled units, ρ.

    Of the tables Sn, Ln, root, P, u and the shared mean are written; with ``given`` the moment is that about the mean
    which is there.
    """
    Sn, Ln, root, P, u, mean = tables
    eta, shrinkage, variances, e, L = prior
    K, d = W.shape
    weight = 0.5 * eta * d * (1.0 + shrinkage)
    copy(Omega, eta, P)
    rho = couple(P, tau, u)
    if not given:
        combine(u, W, rho, mean)
    S, omega, sigma = np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    _moment(W, mean, rho, variances, shrinkage, S)
    if normalise(S, L, e, Sn, Ln, root, np.empty(K, np.int64)) >= 0:
        return log_determinant, np.nan, np.nan, np.nan, rho
    scale(Omega, Sigma, root, np.arange(K), omega, sigma)
    constant = 2.0 * log_sum(root)
    scaled = log_determinant + constant
    gap, trace = graph_gap(Sn, Ln, omega, sigma, scaled, np.empty((K, K)), np.empty((K, K)))
    share = weight * (trace - log_determinant)
    if tau > 0.0:
        total, square = 0.0, 0.0
        for k in range(K):
            total += u[k]
        for j in range(d):
            square += mean[j] * mean[j]
        x = tau * total
        share += 0.5 * square / tau + 0.5 * d * (np.log1p(x) - x / (1.0 + x))
    return log_determinant, share, weight * gap, trace - scaled, rho


_look = apart(_look_here, _POINT(_M, _M, _M, float64, _PRIOR, float64, _TABLES, boolean))


@njit(nogil=True, error_model="numpy")
def _edges(Omega):
    """Pairs that are not zero."""
    count = 0
    for i in range(len(Omega)):
        for j in range(i):
            count += Omega[i, j] != 0.0
    return count


@njit(inline="always", nogil=True, error_model="numpy")
def _turns(W, Omega, Sigma, prior, tau, tables, point, needed, loose, turns, tighter):
    """A better Ω, in turns with the shared mean where there is one; the point with NaN for a value where that fails."""
    log_determinant, share, gap, value, rho = point
    Sn, Ln, root = tables[0], tables[1], tables[2]
    weight = 0.5 * prior[0] * W.shape[1] * (1.0 + prior[1])
    goal = max(needed, loose * gap)
    for _ in range(turns if tau > 0.0 else 1):
        if gap <= needed:
            break
        target = tighter * max(needed, loose * gap) / weight
        value, log_determinant = graph_step(Sn, Ln, root, Omega, Sigma, log_determinant, value, target)
        if np.isnan(value) or tau == 0.0:
            break
        log_determinant, share, gap, value, rho = _look(W, Omega, Sigma, log_determinant, prior, tau, tables, False)
        if not gap > goal:
            break
    return log_determinant, share, gap, value, rho


@njit(inline="always", nogil=True, error_model="numpy")
def _round(loss, constants, t, prior, tau, W, HW, Omega, Sigma, tables, room, point, limits, moves, allowed, tighter):
    """A graph step (if it ``moves``) and a weight step: F, the gap of the weights and the point after them.

    F is infinite where the graph step broke down; Ω is then the last good one.
    """
    tol, part, loose, turns, max_inner = limits
    q, eta, P, u = loss[2], prior[0], tables[3], tables[4]
    if moves:
        needed = part * tol * max(1.0, abs(_loss(constants, q, t, W, HW) + point[1]))
        point = _turns(W, Omega, Sigma, prior, tau, tables, point, needed, loose, int(turns), tighter)
        if np.isnan(point[3]):
            return np.inf, np.inf, point
    copy(Omega, eta, P)
    rho = couple(P, tau, u)
    spread = np.empty(Omega.shape)
    copy(Sigma, 1.0 / eta, spread)
    gap = weight_step(loss, t, P, spread, u, rho, tau, W, HW, room, allowed, int(max_inner))
    point = _look(W, Omega, Sigma, point[0], prior, tau, tables, False)
    return _loss(constants, q, t, W, HW) + point[1], gap, point


@njit(nogil=True, error_model="numpy")
def _stretch(W, HW, mean, change, a):
    """Go on by a times the last change of the weights and their mean."""
    K, d = W.shape
    for j in range(d):
        for k in range(K):
            W[k, j] += a * change[0, k, j]
            HW[k, j] += a * change[1, k, j]
        mean[j] += a * change[0, K, j]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _compare(x, y, change):
    """Write x − y into ``change``; the largest entry, and the share along the change that was there: a rate."""
    along, square, largest = 0.0, 0.0, 0.0
    for j in range(len(x)):
        step, last = x[j] - y[j], change[j]
        along += step * last
        square += last * last
        largest = max(largest, abs(step))
        change[j] = step
    return largest, along, square


@njit(nogil=True, error_model="numpy")
def _follow(W, HW, mean, before, change):
    """Write what has changed since ``before`` into ``change``.

    Returns the weights' largest change, and the rate at which their changes or the mean's shrink, whichever is slower.
    """
    K = len(W)
    along, square, largest = 0.0, 0.0, 0.0
    for k in range(K):
        _compare(HW[k], before[1, k], change[1, k])
        most, part, whole = _compare(W[k], before[0, k], change[0, k])
        largest, along, square = max(largest, most), along + part, square + whole
    rate = along / square
    _, along, square = _compare(mean, before[0, K], change[0, K])
    return largest, max(rate, along / square) if square > 0.0 else rate


@njit(nogil=True, error_model="numpy")
def _copy_all(arrays, out):
    """Copy a tuple of four matrices."""
    copy(arrays[0], 1.0, out[0])
    copy(arrays[1], 1.0, out[1])
    copy(arrays[2], 1.0, out[2])
    copy(arrays[3], 1.0, out[3])


@njit(inline="always", nogil=True, error_model="numpy")
def _alternation(loss, constants, t, prior, tau, W, HW, Omega, Sigma, limits, moves, state, change, history):
    """Rounds of graph and weight steps from (W, Ω), in place, until the joint certificate is within the tolerance.

    Where the changes of the weights or their mean shrink slowly, a round begins at the limit of their geometric series
    (Aitken). What that comes to is kept if F did not rise by it; otherwise the round is made again without.

    Parameters
    ----------
    loss : tuple
        H, s, q; g, the eigenvalues of a common Gram whose eigenvectors H then holds, or empty; ridges and inverses,
        room for preconditioners, empty where none are needed.
    constants, t : arrays of shape (K,)
        Loss at W = 0 and thresholds.
    prior : tuple
        η, ν/r, v, e and the penalties of the edges.
    tau : float
        Variance of the shared mean.
    W, HW, Omega, Sigma : arrays
        The point; HW = H_k w_k.
    limits : tuple
        Tolerance, each block's share of it, looseness, most turns and most inner iterations.
    moves : bool
        Whether the first round begins with a graph step.
    state : array of shape (7,)
        What a next call wants to know: the gap that the next weight step may leave (negative at first), F, the rate
        at which changes shrink, the rounds until an extrapolation is tried, those after one that fails, log det Ω, and
        the rounds in which the weights did not move.
    change : array of shape (2, K + 1, d)
        The last change of W and the mean, and of HW.
    history : array of shape (rounds, 6)
        Gets objective, gap of the weights, gap of the structure, edges, the structure's value and log det Ω; its
        length is the most rounds.

    Returns
    -------
    rounds : int
        Rounds made; negative where a step broke down after or in the last of them.
    """
    tol, part, loose = limits[:3]
    K, d = W.shape
    weight = 0.5 * prior[0] * d * (1.0 + prior[1])
    root, mean = np.empty(K), np.empty(d)
    tables = (np.empty((K, K)), np.empty((K, K)), root, np.empty((K, K)), np.empty(K), mean)
    room, before = np.empty((5, K, d)), np.empty((2, K + 1, d))
    here = (W, HW, Omega, Sigma)
    kept = (np.empty((K, d)), np.empty((K, d)), np.empty((K, K)), np.empty((K, K)))
    first = state[0] < 0.0
    if first:
        state[5] = factor(Omega, tables[0])
    point = _look(W, Omega, Sigma, state[5], prior, tau, tables, False)
    if first:
        needed = part * tol * max(1.0, abs(_loss(constants, loss[2], t, W, HW)))
        state[0] = max(needed, loose * point[2]) if moves else needed
    for done in range(len(history)):
        stretch = 0.0
        if state[3] <= 0.0 and state[2] > _SLOW:
            stretch = min(state[2] / (1.0 - state[2]), _FARTHEST) if state[2] < 1.0 else _FARTHEST
            _copy_all(here, kept)
            _stretch(W, HW, mean, change, stretch)
        while True:
            begin = _look(W, Omega, Sigma, point[0], prior, tau, tables, True) if stretch > 0.0 else point
            copy(W, 1.0, before[0, :K])
            copy(HW, 1.0, before[1, :K])
            for j in range(d):  # an assignment of arrays brings the text of its error along, two seconds to compile
                before[0, K, j] = mean[j]
            objective, gap, end = _round(
                loss,
                constants,
                t,
                prior,
                tau,
                W,
                HW,
                Omega,
                Sigma,
                tables,
                room,
                begin,
                limits,
                moves,
                state[0],
                0.1 ** state[6],
            )
            if stretch == 0.0 or objective <= state[1]:
                break
            _copy_all(kept, here)
            point = _look(W, Omega, Sigma, point[0], prior, tau, tables, False)
            stretch, state[3], state[4] = 0.0, state[4], min(2.0 * state[4], _LONGEST_REST)
        if objective == np.inf:
            return -done - 1
        moves, point = True, end
        most, rate = _follow(W, HW, mean, before, change)
        # Changes before and after an extrapolation have no common rate.
        state[1], state[2], state[3] = objective, np.nan if stretch > 0.0 else rate, state[3] - 1.0
        state[5], state[6] = point[0], state[6] + 1.0 if most == 0.0 else 0.0
        if stretch > 0.0:
            state[4] = REST
        size = max(1.0, abs(objective))
        history[done, 0], history[done, 1], history[done, 2], history[done, 3] = objective, gap, point[2], _edges(Omega)
        history[done, 4], history[done, 5] = weight * (point[3] + 2.0 * log_sum(root)), point[0]
        gap += point[2]
        if not np.isfinite(objective + gap):
            return -done - 1
        state[0] = max(part * tol * size, loose * gap)
        if gap <= tol * size:
            return done + 1
    return len(history)


@njit(nogil=True, error_model="numpy")
def _secant(v, image, last, last_image):
    """The next v of a fixed-point iteration, entry by entry, in place of v; the two pairs (v, image) become one.

    The line through the last two residuals is followed to its zero where it falls; elsewhere, and at first (``last``
    NaN), the image itself is next.
    """
    for k in range(len(v)):
        new = image[k]
        residual, before = image[k] - v[k], last_image[k] - last[k]
        fall = (before - residual) / (v[k] - last[k])
        if fall > 0.1:
            new = v[k] + residual * min(1.0 / fall, 5.0)
            if not new > 0.2 * image[k]:
                new = image[k]
        last[k], last_image[k] = v[k], image[k]
        v[k] = new


@njit(inline="always", nogil=True, error_model="numpy")
def _diagonal_start(loss, constants, t, eta, tau, e, v, W, HW, limits):
    """The diagonal fixed point by weight steps: v, W and HW in place; False where a step broke down.

    ``limits`` holds the relative change of v and the gap at which to stop, and the most rounds and inner iterations.
    """
    tol, least, rounds, max_inner, _ = limits
    K, d = W.shape
    size = max(1.0, abs(_loss(constants, loss[2], t, W, HW)))
    P, spread, u = np.zeros((K, K)), np.zeros((K, K)), np.empty(K)
    room, image, last, last_image, mean = np.empty((5, K, d)), np.empty(K), np.empty(K), np.empty(K), np.empty(d)
    for k in range(K):
        last[k], last_image[k] = np.nan, np.nan
    change = 1.0
    for _ in range(int(rounds)):
        for k in range(K):
            P[k, k] = eta / (v[k] + e[k])
            spread[k, k] = 1.0 / P[k, k]
        rho = couple(P, tau, u)
        accuracy = max(least, 1e-3 * change * change) * size
        gap = weight_step(loss, t, P, spread, u, rho, tau, W, HW, room, accuracy, int(max_inner))
        if not np.isfinite(gap):
            return False
        combine(u, W, rho, mean)
        change = 0.0
        for k in range(K):
            image[k] = rho
            for j in range(d):
                image[k] += (W[k, j] - mean[j]) ** 2 / d
            change = max(change, abs(image[k] - v[k]) / (image[k] + e[k]))
        change = min(change, 1.0)
        if change <= tol:
            break
        _secant(v, image, last, last_image)
    # The mean squares of these very weights: correlations are then at most 1, and so is λ_max.
    for k in range(K):
        v[k] = image[k]
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def small_fit(starting, loss, constants, t, prior, tau, W, HW, Omega, Sigma, limits, moves, state, change, history):
    """The diagonal fixed point (``starting``; v is that of the prior) or rounds of the alternation.

    One door for both, since a process loads every kernel with all that it calls. Returns as :func:`_alternation`; for
    a start 1, or −1 where a step broke down.
    """
    if starting:
        done = _diagonal_start(loss, constants, t, prior[0], tau, prior[3], prior[2], W, HW, limits)
        return 1 if done else -1
    return _alternation(loss, constants, t, prior, tau, W, HW, Omega, Sigma, limits, moves, state, change, history)


@njit(cache=True, nogil=True, error_model="numpy")
def ridge_fixed_point(values, projections, s, e, eta, n_features, v, tol, max_iter):
    """Mean square v of each task's ridge weights under the ridge η/(v + e) that v itself implies, in place."""
    for k in range(len(v)):
        for _ in range(max_iter):
            ridge = eta / (v[k] + e[k])
            total = 0.0
            for j in range(values.shape[1]):
                w = s[k] * projections[k, j] / (s[k] * values[k, j] + ridge)
                total += w * w
            update = total / n_features
            change = abs(update - v[k])
            v[k] = update
            if change <= tol * (update + e[k]):
                break
