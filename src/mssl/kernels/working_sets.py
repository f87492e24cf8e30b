"""Compiled sweeps over the weights in working sets: each task has its own few features, and the Gram of those alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mssl.kernels.compiler import njit
from mssl.kernels.weights import _GATHER_FROM, Penalty, visit

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@njit(nogil=True)
def _pull_at(
    k: int,
    features: Index,
    W: Array,
    indptr: Index,
    indices: Index,
    values: Array,
    u: Array,
    rho: float,
    mean: Array,
    out: Array,
) -> float:
    """Write Σ_{l≠k} C_kl w_l on some features into out, take task k out of mean there, and return C_kk."""
    own = -rho * u[k] * u[k]
    for a in range(len(features)):
        j = features[a]
        mean[j] -= u[k] * W[k, j]
        out[a] = -rho * u[k] * mean[j]
    for p in range(indptr[k], indptr[k + 1]):
        other = indices[p]
        if other == k:
            own += values[p]
        else:
            for a in range(len(features)):
                out[a] += values[p] * W[other, features[a]]
    return own


@njit(cache=True, nogil=True)
def set_sweeps(
    gram: Array,
    corners: Index,
    features: Index,
    starts: Index,
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
    """Coordinate descent over some tasks, each on its own features; W, HW and mean change in place.

    The features of task k are ``features[starts[k]:starts[k + 1]]``, where q, HW and the parameters of the penalty hold
    its linear part, H_k w_k and its parameters; its Gram begins at ``gram[corners[k]]``. Returns sweeps and decrease as
    the kernels of :mod:`mssl.kernels.weights`.
    """
    code, positive, parameters = penalty
    most = 0
    for k in tasks:
        most = max(most, starts[k + 1] - starts[k])
    room = np.empty(most * most if most >= _GATHER_FROM else 0)
    active, everything = np.empty(most, dtype=np.int64), np.arange(most)
    pull, weights = np.empty(most), np.empty(most)
    decrease = 0.0
    for sweep in range(n_sweeps):
        decrease = 0.0
        for k in tasks:
            lo, m = starts[k], starts[k + 1] - starts[k]
            own_features, w, p = features[lo : lo + m], weights[:m], pull[:m]
            own = _pull_at(k, own_features, W, indptr, indices, values, u, rho, mean, p)
            for a in range(m):
                p[a] = q[lo + a] - p[a]
                w[a] = W[k, own_features[a]]
            G = gram[corners[k] : corners[k] + m * m].reshape(m, m)
            least, hw = 0.1 * enough / len(tasks), HW[lo : lo + m]
            t, theta = parameters[0, lo : lo + m], parameters[-1, lo : lo + m]
            decrease += visit(G, 1.0, own, p, code, positive, t, theta, w, hw, active, everything[:m], room, least)
            for a in range(m):
                j = own_features[a]
                W[k, j] = w[a]
                mean[j] += u[k] * w[a]
        if decrease <= enough:
            return sweep + 1, decrease
    return n_sweeps, decrease
