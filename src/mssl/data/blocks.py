"""Storage of the features behind :class:`mssl.data.design.Design`: one block per task, dense or sparse.

Both classes answer the same questions. Functions named ``…shared`` treat a single block as that of every task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mssl.kernels import call, plain
from mssl.kernels.threads import spread

Array = NDArray[np.float64]
Index = NDArray[np.int64]

ROUNDING = 32 * float(np.finfo(float).eps)
_CHUNK = 2**22  # numbers in a temporary block: 32 MiB
_LARGE = 2**30  # multiplications from which threads pay
_CACHED = 2**18  # numbers that stay in the cache while several things are done to them
_FEW_ROWS = 512  # rows that are transposed at a time: longer strides miss the cache
_MANY, _SMALL_D, _SMALL_BLOCK = 50, 32, 2**15  # tasks, features and numbers per task for compiled loops


def task_totals(bounds: Index, weights: Array | None) -> Array:
    """Sum of the weights of each task."""
    if weights is None:
        return np.diff(bounds).astype(float)
    return np.asarray(np.add.reduceat(weights, bounds[:-1]))


def _means(sums: Array, totals: Array) -> Array:
    return np.asarray(sums / np.where(totals > 0, totals, 1.0)[:, None])


@dataclass(eq=False)
class DenseBlocks:
    """Each task's features as a (d, n_k) block of one buffer, so that columns are contiguous."""

    buffer: Array
    bounds: Index
    d: int

    @classmethod
    def gather(cls, X: Any, bounds: Index, weights: Array | None, centre: bool) -> tuple[DenseBlocks, Array]:
        """Store the features, centred by their weighted task means if so asked; returns those means too."""
        X = np.asarray(X, dtype=float)
        blocks = cls(np.empty(X.size), bounds, X.shape[1])
        totals = task_totals(bounds, weights)
        means = np.empty((len(totals), blocks.d))
        if blocks._many_small:
            from mssl.kernels.grams import gather_blocks

            w = np.ones(len(X)) if weights is None else np.array(weights, dtype=float)
            call(gather_blocks, plain(X), bounds, w, centre, blocks.buffer, means)
            return blocks, means
        # Chunks that stay in the cache: transpose, average and centre in one go.
        for tasks, stack in blocks.groups(_CACHED):
            rows = X[bounds[tasks.start] : bounds[tasks.stop]]
            rows = rows.reshape(len(stack), -1, blocks.d)
            for lo in range(0, rows.shape[1], _FEW_ROWS):
                stack[:, :, lo : lo + _FEW_ROWS] = rows[:, lo : lo + _FEW_ROWS].transpose(0, 2, 1)
            w = np.ones((len(stack), stack.shape[2])) if weights is None else blocks._rows(weights, tasks)
            means[tasks] = _means(np.matmul(stack, w[:, :, None])[:, :, 0], totals[tasks])
            if centre:
                np.subtract(stack, means[tasks, :, None], out=stack)
        return blocks, means

    @property
    def _many_small(self) -> bool:
        """Whether calls of NumPy per task, or their overhead on small blocks, would cost more than a compiled loop."""
        K = len(self.bounds) - 1
        return K >= _MANY and self.d <= _SMALL_D and self.buffer.size <= K * _SMALL_BLOCK

    def groups(self, chunk: int | None = None) -> Iterator[tuple[slice, Array]]:
        """Runs of tasks with equally many rows as (tasks, d, n) stacks, none much over the chunk size."""
        chunk = _CHUNK if chunk is None else min(chunk, _CHUNK)
        n = np.diff(self.bounds)
        start = 0
        while start < len(n):
            most = max(1, int(chunk // max(1, self.d * n[start])))
            window = n[start : start + most]
            changes = np.flatnonzero(window != n[start])
            stop = start + (int(changes[0]) if len(changes) else len(window))
            stack = self.buffer[self.d * self.bounds[start] : self.d * self.bounds[stop]]
            yield slice(start, stop), stack.reshape(stop - start, self.d, int(n[start]))
            start = stop

    def _rows(self, values: Array, tasks: slice) -> Array:
        return values[self.bounds[tasks.start] : self.bounds[tasks.stop]].reshape(tasks.stop - tasks.start, -1)

    def means_of_shared(self, weights: Array) -> Array:
        return _means(weights @ self.buffer.reshape(self.d, -1).T, weights.sum(axis=1))

    def subtract(self, base: Array) -> None:
        if np.any(base):
            for tasks, stack in self.groups():
                np.subtract(stack, base[tasks, :, None], out=stack)

    def divide(self, scales: Array) -> None:
        if np.any(scales != 1):
            for _, stack in self.groups():
                np.divide(stack, scales[:, None], out=stack)

    def largest(self) -> Array:
        # Over tasks first, then over rows: both at once is three times as slow.
        ends = [(stack.max(axis=0).max(axis=1), -stack.min(axis=0).min(axis=1)) for _, stack in self.groups()]
        return np.max(ends, axis=(0, 1))

    def peak(self) -> float:
        """The largest of all."""
        return float(max(self.buffer.max(initial=0.0), -self.buffer.min(initial=0.0)))

    def squares_about(self, means: Array, weights: Array | None) -> Array:
        """Σ_i w_i (a_ij − mean_j)² per task: (K, d)."""
        out = np.empty((len(self.bounds) - 1, self.d))
        for tasks, stack in self.groups():
            part = stack - means[tasks, :, None] if np.any(means[tasks]) else stack
            if weights is None:
                out[tasks] = np.einsum("kdn,kdn->kd", part, part)
            else:
                out[tasks] = np.einsum("kdn,kdn,kn->kd", part, part, self._rows(weights, tasks))
        return out

    def clear_constant(self, flat: NDArray[np.bool_], limit: Array) -> None:
        """Set to exactly zero what is rounding dust of a constant column."""
        for k, j in np.argwhere(flat):
            column = self.buffer[self.d * self.bounds[k] :][j * self._size(k) : (j + 1) * self._size(k)]
            column[np.abs(column) <= limit[k, j]] = 0.0

    def _size(self, k: int) -> int:
        return int(self.bounds[k + 1] - self.bounds[k])

    def dot(self, W: Array) -> Array:
        parts = [np.matmul(W[tasks, None, :], stack).ravel() for tasks, stack in self.groups()]
        return np.concatenate(parts)

    def dot_shared(self, W: Array) -> Array:
        return (W @ self.buffer.reshape(self.d, -1)).ravel()

    def transposed(self, r: Array) -> Array:
        parts = [np.matmul(stack, self._rows(r, tasks)[:, :, None])[:, :, 0] for tasks, stack in self.groups()]
        return np.concatenate(parts)

    def transposed_shared(self, r: Array, n: int) -> Array:
        return np.asarray(r.reshape(-1, n) @ self.buffer.reshape(self.d, -1).T)

    def squares(self, c: Array) -> Array:
        return self.squares_about(np.zeros((len(self.bounds) - 1, self.d)), c)

    def squares_of_shared(self, c: Array) -> Array:
        block = self.buffer.reshape(self.d, -1)
        return np.stack([c @ column**2 for column in block], axis=1)

    def gram(
        self, c: Array, shift: Array | None, sums: bool, also: Array | None = None
    ) -> tuple[Array, Array | None, Array | None]:
        """Σ_i c_i x_i x_iᵀ per task, with ``sums`` less the mean part; the sums Σ_i c_i a_i; A_kᵀ also_k."""
        K = len(self.bounds) - 1
        out, totals = np.empty((K, self.d, self.d)), np.empty((K, self.d)) if sums else None
        products = None if also is None else np.empty((K, self.d))
        if self._many_small and totals is not None:
            from mssl.kernels.grams import block_grams

            products = np.empty((K, self.d))
            r = c if also is None else also
            call(block_grams, self.buffer, self.bounds, np.require(c, float, "W"), r, out, totals, products)
            _eliminate(out, totals, task_totals(self.bounds, c))
            return out, totals, products

        def fill(group: tuple[slice, Array]) -> None:
            tasks, stack = group
            rows = self._rows(c, tasks)
            part = stack if shift is None or sums else stack - shift[tasks, :, None]
            _weighted_products(part, rows, out[tasks])
            if totals is not None:
                totals[tasks] = np.matmul(stack, rows[:, :, None])[:, :, 0]
            if products is not None and also is not None:
                products[tasks] = np.matmul(stack, self._rows(also, tasks)[:, :, None])[:, :, 0]

        groups = list(self.groups(_CACHED))
        if self.buffer.size * self.d >= _LARGE:
            spread(fill, groups)
        else:
            for group in groups:
                fill(group)
        if totals is not None:
            _eliminate(out, totals, task_totals(self.bounds, c))
        return out, totals, products

    def columns(self) -> tuple[Array, Index, Index]:
        sizes = np.repeat(np.diff(self.bounds), self.d)
        return self.buffer, np.zeros(0, dtype=np.int64), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@dataclass(eq=False)
class SparseBlocks:
    """All tasks as one block-diagonal CSC matrix (N, K·d); centring stays implicit in ``shift`` (K, d)."""

    matrix: Any
    bounds: Index
    d: int
    shift: Array

    @classmethod
    def gather(cls, X: Any, bounds: Index, weights: Array | None, centre: bool) -> tuple[SparseBlocks, Array]:
        """Store the features, implicitly centred by their weighted task means if so asked; returns those means too."""
        rows = sparse.csr_array(X, dtype=float)
        K, d = len(bounds) - 1, rows.shape[1]
        owner = np.repeat(np.arange(K, dtype=np.int64), np.diff(rows.indptr[bounds]))
        columns = rows.indices + d * owner
        matrix = sparse.csr_array((rows.data, columns, rows.indptr), shape=(rows.shape[0], K * d)).tocsc()
        matrix.sum_duplicates()
        blocks = cls(matrix, bounds, d, np.zeros((K, d)))
        w = np.ones(rows.shape[0]) if weights is None else weights
        means = _means(blocks.transposed(w), task_totals(bounds, w))
        if centre:
            blocks.shift = means
        return blocks, means

    def _with(self, data: Array) -> Any:
        return sparse.csc_array((data, self.matrix.indices, self.matrix.indptr), shape=self.matrix.shape)

    def _per_entry(self, values: Array) -> Array:
        """One number per (task, feature), repeated over the stored entries."""
        return np.repeat(values.ravel(), np.diff(self.matrix.indptr))

    def means_of_shared(self, weights: Array) -> Array:
        return _means(np.asarray((self.matrix.T @ weights.T).T), weights.sum(axis=1))

    def subtract(self, base: Array) -> None:
        self.shift = self.shift + base

    def divide(self, scales: Array) -> None:
        self.matrix = self._with(self.matrix.data / self._per_entry(np.broadcast_to(scales, self.shift.shape)))
        self.shift = self.shift / scales

    def largest(self) -> Array:
        out = np.abs(self.shift).max(axis=0)
        feature = self._per_entry(np.broadcast_to(np.arange(self.d), self.shift.shape)).astype(np.int64)
        np.maximum.at(out, feature, np.abs(self.matrix.data))
        return out

    def peak(self) -> float:
        return float(self.largest().max(initial=0.0))

    def squares_about(self, means: Array, weights: Array | None) -> Array:
        about = means + self.shift
        w = np.ones(self.bounds[-1]) if weights is None else weights
        centred = self._with((self.matrix.data - self._per_entry(about)) ** 2)
        present = self._with(np.ones(self.matrix.nnz)).T @ w
        absent = np.repeat(task_totals(self.bounds, w), self.d) - present
        absent[absent < ROUNDING * present] = 0.0
        return np.asarray(centred.T @ w + absent * about.ravel() ** 2).reshape(-1, self.d)

    def clear_constant(self, flat: NDArray[np.bool_], limit: Array) -> None:
        """Drop columns that are constant within a task; their centred values are zero."""
        flat = flat & (self.squares_about(np.zeros_like(self.shift), None) <= limit**2 * np.diff(self.bounds)[:, None])
        self.matrix = self._with(np.where(self._per_entry(flat.astype(float)) > 0, 0.0, self.matrix.data))
        self.shift = np.where(flat, 0.0, self.shift)

    def dot(self, W: Array) -> Array:
        return np.asarray(self.matrix @ W.ravel())

    def dot_shared(self, W: Array) -> Array:
        return np.ascontiguousarray((self.matrix @ W.T).T).ravel()

    def transposed(self, r: Array) -> Array:
        return np.asarray(self.matrix.T @ r).reshape(-1, self.d)

    def transposed_shared(self, r: Array, n: int) -> Array:
        return np.ascontiguousarray((self.matrix.T @ r.reshape(-1, n).T).T)

    def squares(self, c: Array) -> Array:
        return np.asarray(self._with(self.matrix.data**2).T @ c).reshape(-1, self.d)

    def squares_of_shared(self, c: Array) -> Array:
        return np.ascontiguousarray((self._with(self.matrix.data**2).T @ c.T).T)

    def _block(self, k: int) -> Any:
        lo, hi = self.matrix.indptr[[k * self.d, (k + 1) * self.d]]
        indptr = self.matrix.indptr[k * self.d : (k + 1) * self.d + 1] - lo
        indices = self.matrix.indices[lo:hi] - self.bounds[k]
        size = int(self.bounds[k + 1] - self.bounds[k])
        return sparse.csc_array((self.matrix.data[lo:hi], indices, indptr), shape=(size, self.d))

    def gram(
        self, c: Array, shift: Array | None, sums: bool, also: Array | None = None
    ) -> tuple[Array, Array | None, Array | None]:
        """Σ_i c_i x_i x_iᵀ per task, with ``sums`` less the mean part; the sums Σ_i c_i a_i; A_kᵀ also_k."""
        out = np.empty((len(self.bounds) - 1, self.d, self.d))
        for k in range(len(out)):
            block, rows = self._block(k), c[self.bounds[k] : self.bounds[k + 1]]
            # A sparse product costs about twenty times a dense one per multiplication.
            if 20.0 * block.nnz * block.nnz > (block.shape[0] * self.d) ** 2:
                _weighted_products(np.ascontiguousarray(block.toarray().T)[None], rows[None], out[k : k + 1])
            else:
                out[k] = (block.T @ (block * rows[:, None])).toarray()
        totals, column_sums = task_totals(self.bounds, c), self.transposed(c)
        if sums:
            _eliminate(out, column_sums, totals)
        elif shift is not None:
            for k, delta in enumerate(shift):
                cross = np.outer(column_sums[k], delta)
                out[k] += totals[k] * np.outer(delta, delta) - cross - cross.T
        return out, column_sums if sums else None, None if also is None else self.transposed(also)

    def columns(self) -> tuple[Array, Index, Index]:
        return self.matrix.data, self.matrix.indices.astype(np.int64), self.matrix.indptr.astype(np.int64)


def _weighted_products(stack: Array, c: Array, out: Array) -> None:
    """Σ_i c_i x_i x_iᵀ for a (tasks, d, n) stack into out. NumPy calls syrk for A Aᵀ."""
    even = bool(np.all(c == c[:, :1]))
    root = stack if even else stack * np.sqrt(c)[:, None, :]
    np.matmul(root, root.transpose(0, 2, 1), out=out)
    if even:
        out *= c[:, :1, None]


def _eliminate(gram: Array, sums: Array, totals: Array) -> None:
    """Take the mean part off, in chunks, so that no second array of Grams is needed."""
    means = _means(sums, totals)
    step = max(1, _CHUNK // max(1, sums.shape[1] ** 2))
    for start in range(0, len(gram), step):
        tasks = slice(start, start + step)
        gram[tasks] -= sums[tasks, :, None] * means[tasks, None, :]
