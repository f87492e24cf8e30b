# mypy: allow-untyped-defs, allow-untyped-calls
"""The whole alternation of a small problem as one compiled loop: start, weight steps, graph steps, certificates.

Letters as in :mod:`mssl._small_weight_kernels` and :mod:`mssl._small_graph_kernels`. A negative answer means that a
step broke down; the steps in Python, which know more ways out, then continue from the last good point.
"""

import numpy as np
from numba import njit

from mssl._dense_kernels import combine, copy, factor, log_sum
from mssl._glasso_kernels import normalise, scale
from mssl._small_graph_kernels import graph_gap, graph_step
from mssl._small_weight_kernels import couple, weight_step

_FAST = {"reassoc", "contract"}


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
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


@njit(cache=True, nogil=True, error_model="numpy")
def _loss(constants, q, t, W, HW):
    """Loss plus penalty."""
    total = 0.0
    for k in range(W.shape[0]):
        total += constants[k]
        for j in range(W.shape[1]):
            total += W[k, j] * (0.5 * HW[k, j] - q[k, j]) + t[k] * abs(W[k, j])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _look(W, Omega, Sigma, log_determinant, prior, tau, Sn, Ln, root, P, u):
    """Certify Ω at these weights: share of F, gap, value in scaled units, ρ. Sn, Ln, root, P and u are written."""
    eta, shrinkage, variances, e, L = prior
    K, d = W.shape
    weight = 0.5 * eta * d * (1.0 + shrinkage)
    for k in range(K):
        for m in range(K):
            P[k, m] = eta * Omega[k, m]
    rho = couple(P, tau, u)
    mean = np.empty(d)
    combine(u, W, rho, mean)
    S, omega, sigma = np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    _moment(W, mean, rho, variances, shrinkage, S)
    if normalise(S, L, e, Sn, Ln, root, np.empty(K, np.int64)) >= 0:
        return np.nan, np.nan, np.nan, rho
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
    return share, weight * gap, trace - scaled, rho


@njit(cache=True, nogil=True, error_model="numpy")
def _same(A, B):
    """Whether all entries agree."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            if A[i, j] != B[i, j]:
                return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _edges(Omega):
    """Pairs that are not zero."""
    count = 0
    for i in range(len(Omega)):
        for j in range(i):
            count += Omega[i, j] != 0.0
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _alternation(loss, constants, t, prior, tau, W, HW, Omega, Sigma, limits, resumed, history):
    """Rounds of graph and weight steps from (W, Ω), in place, until the joint certificate is within the tolerance.

    Parameters
    ----------
    loss : tuple
        H, s, q; g, the eigenvalues of a common Gram whose eigenvectors H then holds, or empty; ridges and factors,
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
        Tolerance, each block's share of it, looseness, most turns and inner iterations, and the gap that the first
        weight step may leave (negative: none is known).
    resumed : bool
        Whether the first round begins with a graph step.
    history : array of shape (rounds, 6)
        Gets objective, gap of the weights, gap of the structure, edges, the structure's value and log det Ω; its
        length is the most rounds.

    Returns
    -------
    rounds : int
        Rounds made; negative where a step broke down after or in the last of them.
    allowed : float
        Gap that the next weight step may leave.
    """
    tol, part, loose, turns, max_inner, allowed = limits
    q = loss[2]
    K, d = W.shape
    eta = prior[0]
    weight = 0.5 * eta * d * (1.0 + prior[1])
    P, spread, u, room, before = np.empty((K, K)), np.empty((K, K)), np.empty(K), np.empty((5, K, d)), np.empty((K, d))
    Sn, Ln, root = np.empty((K, K)), np.empty((K, K)), np.empty(K)
    log_determinant = factor(Omega, Sn)
    share, gap, value, rho = _look(W, Omega, Sigma, log_determinant, prior, tau, Sn, Ln, root, P, u)
    if allowed < 0.0:
        allowed = part * tol * max(1.0, abs(_loss(constants, q, t, W, HW)))
    idle, moves = 0, resumed
    for done in range(len(history)):
        if moves:
            needed = part * tol * max(1.0, abs(_loss(constants, q, t, W, HW) + share))
            goal = max(needed, loose * gap)
            for _ in range(int(turns) if tau > 0.0 else 1):
                if gap <= needed:
                    break
                target = 0.1**idle * max(needed, loose * gap) / weight
                value, log_determinant = graph_step(Sn, Ln, root, Omega, Sigma, log_determinant, value, target)
                if np.isnan(value):
                    return -done - 1, allowed
                if tau == 0.0:
                    break
                share, gap, value, rho = _look(W, Omega, Sigma, log_determinant, prior, tau, Sn, Ln, root, P, u)
                if not gap > goal:
                    break
            copy(Omega, eta, P)
            rho = couple(P, tau, u)
        moves = True
        copy(W, 1.0, before)
        copy(Sigma, 1.0 / eta, spread)
        gap_weights = weight_step(loss, t, P, spread, u, rho, tau, W, HW, room, allowed, int(max_inner))
        idle = idle + 1 if _same(before, W) else 0
        share, gap, value, rho = _look(W, Omega, Sigma, log_determinant, prior, tau, Sn, Ln, root, P, u)
        objective = _loss(constants, q, t, W, HW) + share
        size = max(1.0, abs(objective))
        history[done, 0], history[done, 1], history[done, 2] = objective, gap_weights, gap
        history[done, 3] = _edges(Omega)
        history[done, 4], history[done, 5] = weight * (value + 2.0 * log_sum(root)), log_determinant
        if not np.isfinite(objective + gap_weights + gap):
            return -done - 1, allowed
        allowed = max(part * tol * size, loose * (gap_weights + gap))
        if gap_weights + gap <= tol * size:
            return done + 1, allowed
    return len(history), allowed


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def _diagonal_start(loss, t, eta, tau, e, v, W, HW, limits):
    """The diagonal fixed point by weight steps: v, W and HW in place; False where a step broke down.

    ``limits`` holds the relative change of v and the gap at which to stop, the size of F, and the most rounds and
    inner iterations.
    """
    tol, least, size, rounds, max_inner = limits
    K, d = W.shape
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
    for k in range(K):
        v[k] = image[k]
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def small_fit(starting, loss, constants, t, prior, tau, W, HW, Omega, Sigma, limits, resumed, history):
    """The diagonal fixed point (``starting``; v is that of the prior) or rounds of the alternation.

    One door for both, since a process loads every kernel with all that it calls. Returns as :func:`_alternation`; for
    a start 1, or −1 where a step broke down.
    """
    if starting:
        done = _diagonal_start(loss, t, prior[0], tau, prior[3], prior[2], W, HW, limits[:5])
        return 1 if done else -1, 0.0
    return _alternation(loss, constants, t, prior, tau, W, HW, Omega, Sigma, limits, resumed, history)


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
