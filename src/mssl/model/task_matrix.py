"""Matrices over pairs of tasks: arrays for few tasks, sparse arrays in compressed rows for many tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from mssl._typing import Array, TaskMatrix

# Largest number of rows of a dense square matrix over tasks, or over the unknowns of a system. Larger ones are sparse
# or are not formed: an array of 2000 rows takes 32 MB, its size grows with the square, and its inverse takes a second.
DENSE_UP_TO = 2000
# Number of tasks, and of features, up to which dense products are faster: one compiled call takes less time than
# separate products, and the search for zeros takes longer than products with them. It affects the time only.
SMALL = 64

Places = NDArray[np.intp]


def diagonal_matrix(diagonal: Array) -> TaskMatrix:
    """A diagonal matrix."""
    return np.diag(diagonal) if len(diagonal) <= DENSE_UP_TO else sparse.csr_array(sparse.diags_array(diagonal))


def pair_matrix(pairs: Places, values: ArrayLike, n_tasks: int) -> TaskMatrix:
    """The symmetric matrix with the given values at the pairs (i, j) of tasks, shape (E, 2), and zeros elsewhere."""
    entries, (i, j) = np.asarray(values), np.concatenate([pairs, pairs[:, ::-1]]).T
    matrix = sparse.csr_array((np.concatenate([entries, entries]), (i, j)), shape=(n_tasks, n_tasks))
    return matrix.toarray() if n_tasks <= DENSE_UP_TO else matrix


def with_diagonal(matrix: TaskMatrix, diagonal: Array | float) -> TaskMatrix:
    """The same matrix with another diagonal."""
    if not sparse.issparse(matrix):
        changed = np.array(matrix)
        np.fill_diagonal(changed, diagonal)
        return changed
    changed = sparse.csr_array(matrix + sparse.diags_array(diagonal - matrix.diagonal()))
    changed.eliminate_zeros()
    return changed


def upper_pairs(matrix: TaskMatrix) -> tuple[Places, Places]:
    """Row and column indices, i < j, of the entries that are not zero, row by row."""
    i, j = matrix.nonzero()
    above = i < j
    i, j = i[above], j[above]
    order = np.lexsort((j, i))
    return i[order].astype(np.intp), j[order].astype(np.intp)


def entries_at(matrix: TaskMatrix, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[Any]:
    """The entries at rows i and columns j, one for each pair."""
    return np.asarray(matrix[i, j]) if len(i) else np.zeros(0, dtype=matrix.dtype)  # SciPy cannot index with no pairs


def submatrix(matrix: TaskMatrix, tasks: NDArray[np.integer]) -> Array:
    """The rows and columns of some tasks, as an array."""
    part = matrix[tasks][:, tasks]
    return np.ascontiguousarray(part.toarray() if sparse.issparse(part) else part)


def count_entries(matrix: TaskMatrix) -> int:
    """The number of entries that are not zero."""
    return int(matrix.count_nonzero() if sparse.issparse(matrix) else np.count_nonzero(matrix))


def largest_entry(matrix: TaskMatrix) -> float:
    """The largest absolute value of an entry."""
    return float(np.abs(matrix.data if sparse.issparse(matrix) else matrix).max(initial=0.0))
