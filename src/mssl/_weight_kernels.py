"""Compiled sweeps of coordinate descent over the weights: plain loops on arrays and scalars.

The coupling C = P − ρ u uᵀ enters as CSR rows of P plus ``mean`` = Wᵀu, both kept up to date. Every kernel returns
``(sweeps, decrease)``: how many sweeps were made and by how much the last one lowered the objective (a lower bound).
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _pull(k, W, indptr, indices, values, u, rho, mean, out):
    """Write Σ_{l≠k} C_kl w_l into out and return C_kk."""
    d = W.shape[1]
    own = -rho * u[k] * u[k]
    for j in range(d):
        out[j] = -rho * u[k] * (mean[j] - u[k] * W[k, j])
    for p in range(indptr[k], indptr[k + 1]):
        other = indices[p]
        if other == k:
            own += values[p]
        else:
            for j in range(d):
                out[j] += values[p] * W[other, j]
    return own


@njit(cache=True, nogil=True)
def gram_sweeps(H, scale, q, indptr, indices, values, u, rho, t, W, HW, mean, n_sweeps, enough):
    """Coordinate descent on Grams; W, HW (H_k w_k) and mean (Wᵀu) are updated in place.

    A visit to a task is one pass over all coordinates and at most five over those that are not zero.
    """
    K, d = W.shape
    pull = np.empty(d)
    active = np.empty(d, dtype=np.int64)
    everything = np.arange(d)
    decrease = 0.0
    for sweep in range(n_sweeps):
        decrease = 0.0
        for k in range(K):
            own = _pull(k, W, indptr, indices, values, u, rho, mean, pull)
            G = H[k] if H.shape[0] > 1 else H[0]
            s = scale[k]
            w = W[k]
            hw = HW[k]
            threshold = t[k]
            if rho != 0.0:
                for j in range(d):
                    mean[j] -= u[k] * w[j]
            coordinates = everything
            first = 0.0
            for visit in range(6):
                gained = 0.0
                for j in coordinates:
                    h = s * G[j, j] + own
                    if h <= 0.0:
                        continue
                    old = w[j]
                    a = h * old - (hw[j] - q[k, j] + pull[j] + own * old)
                    new = 0.0
                    if a > threshold:
                        new = (a - threshold) / h
                    elif a < -threshold:
                        new = (a + threshold) / h
                    if new != old:
                        step = new - old
                        w[j] = new
                        gained += 0.5 * h * step * step
                        step *= s
                        row = G[j]
                        for i in range(d):
                            hw[i] += step * row[i]
                decrease += gained
                if visit == 0:
                    n_active = 0
                    for j in range(d):
                        if w[j] != 0.0:
                            active[n_active] = j
                            n_active += 1
                    coordinates = active[:n_active]
                    first = gained
                if gained <= 0.01 * first or gained <= 0.1 * enough / K:
                    break
            if rho != 0.0:
                for j in range(d):
                    mean[j] += u[k] * w[j]
        if decrease <= enough:
            return sweep + 1, decrease
    return n_sweeps, decrease
