# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled elimination of a large sparse matrix: what is left is a small dense core, and the inverse grows back."""

import numpy as np

from mssl.kernels.compiler import njit
from mssl.kernels.dense import TINY, add_some_rows


@njit(cache=True, nogil=True, error_model="numpy")
def eliminate(A, rank):
    """Gaussian elimination of the variables of least degree, in place, while that is cheaper than dense algebra.

    ``rank`` gets the position of every eliminated variable, and p for those that remain. Returns their number and
    the sum of the logarithms of the pivots; the number is -1 where a pivot is not positive.
    """
    p = A.shape[0]
    degree = np.empty(p, np.int64)
    near = np.empty(p, np.int64)
    for i in range(p):
        rank[i] = p
        degree[i] = 0
        for j in range(p):
            degree[i] += A[i, j] != 0.0
    log_pivots = 0.0
    for step in range(p):
        v, least = -1, p + 1
        for i in range(p):
            if rank[i] == p and degree[i] < least:
                v, least = i, degree[i]
        if 4 * least * p > (p - step) ** 2:
            return step, log_pivots
        if not A[v, v] > 0.0:
            return -1, 0.0
        log_pivots += np.log(A[v, v])
        rank[v] = step
        m = 0
        for j in range(p):
            if A[v, j] != 0.0 and rank[j] == p:
                near[m] = j
                m += 1
        for a in range(m):
            i = near[a]
            degree[i] -= 1
            ratio = A[v, i] / A[v, v]
            for b in range(m):
                j = near[b]
                degree[i] += A[i, j] == 0.0
                A[i, j] -= ratio * A[v, j]
    return p, log_pivots


@njit(cache=True, nogil=True, error_model="numpy")
def back_substitute(A, rank, n, Sigma):
    """Complete the inverse Σ, known on the variables that remain, by the n eliminated ones in reverse."""
    p = A.shape[0]
    order = np.empty(n, np.int64)
    for i in range(p):
        if rank[i] < n:
            order[rank[i]] = i
    row, near, ratios = np.empty(p), np.empty(p, np.int64), np.empty(p)
    for step in range(n - 1, -1, -1):
        v = order[step]
        m = 0
        for j in range(p):
            if A[v, j] != 0.0 and rank[j] > step:
                near[m], ratios[m] = j, -A[v, j] / A[v, v]
                m += 1
        row[:] = 0.0
        add_some_rows(ratios, near, m, Sigma, row)
        corner = 1.0 / A[v, v]
        for a in range(m):
            corner += ratios[a] * row[near[a]]
        row[v] = corner
        for j in range(p):
            if abs(row[j]) < TINY:
                row[j] = 0.0
            Sigma[v, j] = row[j]
            Sigma[j, v] = row[j]
