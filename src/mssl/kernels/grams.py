"""Compiled passes over the rows: each task's features as one block of columns, and the Gram of a block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mssl.kernels.compiler import njit
from mssl.kernels.dense import FAST

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@njit(cache=True, nogil=True, fastmath=FAST)
def gather_blocks(X: Array, bounds: Index, c: Array, centre: bool, out: Array, means: Array) -> None:
    """Transpose the rows of each task into a (d, n_k) block of out and take their weighted means off."""
    d = X.shape[1]
    for k in range(len(bounds) - 1):
        lo, n = bounds[k], bounds[k + 1] - bounds[k]
        weight = c[lo : lo + n]
        block = out[d * lo : d * (lo + n)].reshape(d, n)
        # Rows outside: reading in order and scattering beats gathering, which vector units do slowly.
        for i in range(n):
            for j in range(d):
                block[j, i] = X[lo + i, j]
        total = weight.sum()
        for j in range(d):
            column = block[j]
            mean = 0.0
            for i in range(n):
                mean += weight[i] * column[i]
            mean = mean / total if total > 0.0 else 0.0
            means[k, j] = mean
            if centre:
                for i in range(n):
                    column[i] -= mean


@njit(cache=True, nogil=True, fastmath=FAST)
def block_grams(buffer: Array, bounds: Index, c: Array, r: Array, gram: Array, sums: Array, products: Array) -> None:
    """For each task with columns a_j: Σ c a_j a_l into gram, Σ c a_j into sums, Σ r a_j into products."""
    d = gram.shape[1]
    room = np.empty(np.max(bounds[1:] - bounds[:-1]))
    for k in range(len(bounds) - 1):
        lo, n = bounds[k], bounds[k + 1] - bounds[k]
        block = buffer[d * lo : d * (lo + n)].reshape(d, n)
        weight, right, weighted = c[lo : lo + n], r[lo : lo + n], room[:n]
        for j in range(d):
            column = block[j]
            total, product = 0.0, 0.0
            for i in range(n):
                weighted[i] = weight[i] * column[i]
                total += weighted[i]
                product += right[i] * column[i]
            sums[k, j], products[k, j] = total, product
            # Four partners at a time: each load of the column serves four products.
            for first in range(0, j + 1, 4):
                p0, p1 = block[first], block[min(first + 1, j)]
                p2, p3 = block[min(first + 2, j)], block[min(first + 3, j)]
                t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
                for i in range(n):
                    t0 += weighted[i] * p0[i]
                    t1 += weighted[i] * p1[i]
                    t2 += weighted[i] * p2[i]
                    t3 += weighted[i] * p3[i]
                gram[k, j, min(first + 3, j)] = t3
                gram[k, j, min(first + 2, j)] = t2
                gram[k, j, min(first + 1, j)] = t1
                gram[k, j, first] = t0
        for j in range(d):
            for other in range(j):
                gram[k, other, j] = gram[k, j, other]
