# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled algebra of small dense matrices, for loops in which a call to LAPACK would cost more than the work."""

import numpy as np

from mssl.kernels.compiler import njit

TINY = 1e-100  # covariances decay along paths; flushed here, products of two never become slow subnormal numbers
FAST = {"reassoc", "contract"}  # lets sums use vector registers; NaN and inf keep their meaning


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def add_rows(x, B, n, first, out):
    """Add x[0] B[0] + … + x[n − 1] B[n − 1] to ``out`` from its entry ``first`` on, four rows at a time."""
    m = len(out) - first
    out = out[first:]
    k = 0
    while k + 4 <= n:
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        b0, b1, b2, b3 = B[k, first:], B[k + 1, first:], B[k + 2, first:], B[k + 3, first:]
        for j in range(m):
            out[j] += x0 * b0[j] + x1 * b1[j] + x2 * b2[j] + x3 * b3[j]
        k += 4
    while k < n:
        x0, b0 = x[k], B[k, first:]
        for j in range(m):
            out[j] += x0 * b0[j]
        k += 1


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def add_some_rows(x, index, n, W, out):
    """Add x[0] W[index[0]] + … + x[n − 1] W[index[n − 1]] to ``out``, four rows at a time."""
    a = 0
    while a + 4 <= n:
        x0, x1, x2, x3 = x[a], x[a + 1], x[a + 2], x[a + 3]
        w0, w1, w2, w3 = W[index[a]], W[index[a + 1]], W[index[a + 2]], W[index[a + 3]]
        for i in range(len(out)):
            out[i] += x0 * w0[i] + x1 * w1[i] + x2 * w2[i] + x3 * w3[i]
        a += 4
    while a < n:
        x0, w0 = x[a], W[index[a]]
        for i in range(len(out)):
            out[i] += x0 * w0[i]
        a += 1


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def factor(A, R):
    """Cholesky factor of A = RᵀR into the upper triangle of R; log det A, or NaN where A is not positive definite.

    Only the lower triangle of A is read; below the diagonal R gets −Rᵀ.
    """
    p = A.shape[0]
    total = 0.0
    for i in range(p):
        row = R[i]
        for j in range(i, p):
            row[j] = A[j, i]
        add_rows(row, R, i, i, row)
        x = row[i]
        if not x > 0.0:
            return np.nan
        total += np.log(x)
        row[i] = np.sqrt(x)
        inverse = 1.0 / row[i]
        for j in range(i + 1, p):
            row[j] *= inverse
            R[j, i] = -row[j]
    return total


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def invert(R, out):
    """(RᵀR)⁻¹ into ``out`` from the upper triangular R."""
    p = R.shape[0]
    for i in range(p):  # R⁻¹ into the upper triangle of out, row by row
        row = out[i]
        row[i:] = 0.0
        row[i] = 1.0
        for k in range(i, p):
            x = row[k] / R[k, k]
            row[k] = x
            rest, other = row[k + 1 :], R[k, k + 1 :]
            for j in range(len(rest)):
                rest[j] -= x * other[j]
    for i in range(p):  # R⁻¹R⁻ᵀ, from the top: no later entry needs what is overwritten
        for j in range(i, p):
            one, other = out[i, j:], out[j, j:]
            x = 0.0
            for k in range(len(one)):
                x += one[k] * other[k]
            out[i, j] = x
            out[j, i] = x


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def back_solve(R, b, x):
    """(RᵀR)⁻¹ b into x."""
    p = len(b)
    for i in range(p):
        x[i] = b[i]
    for i in range(p):
        y = x[i] / R[i, i]
        x[i] = y
        rest, other = x[i + 1 : p], R[i, i + 1 : p]
        for j in range(len(rest)):
            rest[j] -= y * other[j]
    for i in range(p - 1, -1, -1):
        total = x[i]
        rest, other = x[i + 1 : p], R[i, i + 1 : p]
        for j in range(len(rest)):
            total -= rest[j] * other[j]
        x[i] = total / R[i, i]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def product(A, B, out):
    """A B for row-ordered matrices."""
    for i in range(A.shape[0]):
        row = out[i]
        row[:] = 0.0
        add_rows(A[i], B, B.shape[0], 0, row)


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def dot(A, B):
    """Sum of A∘B."""
    total = 0.0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            total += A[i, j] * B[i, j]
    return total


# Plain loops instead of NumPy's expressions, which take numba seconds each to compile.


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def combine(u, W, scale, out):
    """Scale times Wᵀu into ``out``."""
    out[:] = 0.0
    add_rows(u, W, W.shape[0], 0, out)
    for j in range(len(out)):
        out[j] *= scale


@njit(nogil=True, error_model="numpy")
def copy(A, scale, out):
    """Scale times A into ``out``."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[i, j] = scale * A[i, j]


@njit(nogil=True, error_model="numpy")
def log_sum(values):
    """Sum of the logarithms."""
    total = 0.0
    for i in range(len(values)):
        total += np.log(values[i])
    return total
