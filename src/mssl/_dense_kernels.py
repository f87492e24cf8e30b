# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled algebra of small dense matrices, for loops in which a call to LAPACK would cost more than the work."""

import numpy as np
from numba import njit

_FAST = {"reassoc", "contract"}


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def factor(A, R):
    """Cholesky factor of A into the lower triangle of R; log det A, or NaN where A is not positive definite."""
    p = A.shape[0]
    total = 0.0
    for i in range(p):
        row = R[i]
        for j in range(i + 1):
            x = A[i, j]
            other = R[j]
            for k in range(j):
                x -= row[k] * other[k]
            if j < i:
                row[j] = x / other[j]
            elif x > 0.0:
                row[i] = np.sqrt(x)
                total += np.log(x)
            else:
                return np.nan
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def invert(R, out):
    """(RRᵀ)⁻¹ into ``out`` from the lower triangular R, whose upper triangle is used as room."""
    p = R.shape[0]
    for i in range(p):  # R⁻¹ into out, row by row
        row = out[i]
        row[:] = 0.0
        for k in range(i):
            x = R[i, k]
            other = out[k]
            for j in range(k + 1):
                row[j] -= x * other[j]
        for j in range(i):
            row[j] /= R[i, i]
        row[i] = 1.0 / R[i, i]
    for i in range(p):  # R⁻ᵀR⁻¹, from the top so that rows below are still R⁻¹
        for j in range(i + 1):
            x = 0.0
            for k in range(i, p):
                x += out[k, i] * out[k, j]
            R[j, i] = x
    for i in range(p):
        for j in range(i + 1):
            out[i, j] = R[j, i]
            out[j, i] = R[j, i]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def back_solve(R, b, x):
    """(RRᵀ)⁻¹ b into x."""
    p = R.shape[0]
    for i in range(p):
        total = b[i]
        row = R[i]
        for k in range(i):
            total -= row[k] * x[k]
        x[i] = total / row[i]
    for i in range(p - 1, -1, -1):
        row = R[i]
        x[i] /= row[i]
        for k in range(i):
            x[k] -= x[i] * row[k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def product(A, B, out):
    """A B for row-ordered matrices."""
    for i in range(A.shape[0]):
        row = out[i]
        row[:] = 0.0
        for k in range(A.shape[1]):
            x = A[i, k]
            if x != 0.0:
                other = B[k]
                for j in range(B.shape[1]):
                    row[j] += x * other[j]


# Plain loops instead of NumPy's expressions, which take numba seconds each to compile.


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def combine(u, W, scale, out):
    """Scale times Wᵀu into ``out``."""
    for j in range(W.shape[1]):
        out[j] = 0.0
    for k in range(W.shape[0]):
        x = scale * u[k]
        if x != 0.0:
            for j in range(W.shape[1]):
                out[j] += x * W[k, j]


@njit(cache=True, nogil=True, error_model="numpy")
def copy(A, scale, out):
    """Scale times A into ``out``."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[i, j] = scale * A[i, j]


@njit(cache=True, nogil=True, error_model="numpy")
def log_sum(values):
    """Sum of the logarithms."""
    total = 0.0
    for i in range(len(values)):
        total += np.log(values[i])
    return total
