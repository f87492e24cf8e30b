r"""The features of all tasks, centred per task, divided by one pooled scale, and their products.

With the rows of task k gathered in :math:`X_k`, the design stands for

.. math:: \tilde X_k = (X_k - 1 \bar x_k^\top) \operatorname{diag}(\sigma)^{-1}, \qquad
          \sigma_j^2 = \frac{\sum_k \sum_i w_{ki} (x_{kij} - \bar x_{kj})^2}{\sum_k \sum_i w_{ki}} .

One scale for all tasks keeps "similar weights" meaningful. Dense features are stored once, column by column
within each task; sparse ones keep their zeros, and what is left of the centring is applied implicitly:
:math:`\tilde X_k w = A_k w - 1 (\delta_k \cdot w)` with the stored :math:`A_k` and the shift :math:`\delta_k`.

Flat vectors are in task-major order: task k owns ``offsets[k]:offsets[k+1]``. A shared design (one X for all
tasks) is stored once, yet flat vectors have length K·n.

:class:`DenseBlocks` and :class:`SparseBlocks` are two ways to store the features, one block per task. Both answer
the same questions; methods named ``…shared`` treat a single block as that of every task.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from mssl._typing import Array, Index, Mask
from mssl._validation import refused
from mssl.exceptions import DataError
from mssl.kernels import block_grams, gather_blocks, plain
from mssl.kernels.threads import spread

MAX_GRAM_BYTES = 2 * 2**30  # memory that Grams may take by default; beyond it products with the features take longer
_UNSCALED_RANGE = (1e-76, 1e76)  # features whose fourth powers doubles can hold
_SQUARE_RANGE = (1e-200, 1e200)  # sums of squares outside are computed again on rescaled columns
ROUNDING = 32 * float(np.finfo(float).eps)  # a column whose spread is below this share of its mean is constant
_SMALLEST_SPREAD = (
    1e-2  # of a full column, relative to its size, that implicit centring leaves twelve digits of its square
)
_CHUNK = 2**22  # numbers in a temporary block (32 MiB): larger ones cost memory, smaller ones calls of NumPy
_CACHED = 2**18  # numbers (2 MiB) that stay in the cache of a core while they are transposed, averaged and centred
_FEW_ROWS = 512  # rows that are transposed at a time: with longer strides every number misses the cache
_LARGE = 2**30  # multiplications (about 0.1 s) above which threads gain more time than their start costs
# With at least so many tasks of at most so many features and numbers, the calls of NumPy per task cost more than the
# work: compiled loops form ragged Grams 2 to 35 times as fast and the blocks 1.4 to 2 times (60 to 2000 tasks).
_MANY, _SMALL_D, _SMALL_BLOCK = 50, 32, 2**15


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
            w = np.ones(len(X)) if weights is None else np.array(weights, dtype=float)
            gather_blocks(plain(X), bounds, w, centre, blocks.buffer, means)
            return blocks, means
        # Chunks that fit the cache are transposed, averaged and centred before the next one is read.
        for tasks, stack in blocks.groups(_CACHED):
            rows = X[bounds[tasks.start] : bounds[tasks.stop]]
            rows = rows.reshape(len(stack), -1, blocks.d)
            for lo in range(0, rows.shape[1], _FEW_ROWS):
                stack[:, :, lo : lo + _FEW_ROWS] = rows[:, lo : lo + _FEW_ROWS].transpose(0, 2, 1)
            w = np.ones((len(stack), stack.shape[2])) if weights is None else blocks._table(weights, tasks)
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
        for tasks, n in self._runs if chunk is None else self._cut(min(chunk, _CHUNK)):
            stack = self.buffer[self.d * self.bounds[tasks.start] : self.d * self.bounds[tasks.stop]]
            yield tasks, stack.reshape(tasks.stop - tasks.start, self.d, n)

    @cached_property
    def _runs(self) -> list[tuple[slice, int]]:
        return self._cut(_CHUNK)

    def _cut(self, chunk: int) -> list[tuple[slice, int]]:
        """The tasks of each stack, and their number of rows."""
        n, start, runs = np.diff(self.bounds), 0, []
        while start < len(n):
            task_limit = max(1, int(chunk // max(1, self.d * n[start])))
            window = n[start : start + task_limit]
            changes = np.flatnonzero(window != n[start])
            stop = start + (int(changes[0]) if len(changes) else len(window))
            runs.append((slice(start, stop), int(n[start])))
            start = stop
        return runs

    def _table(self, values: Array, tasks: slice) -> Array:
        """The part of a flat vector that belongs to tasks with equally many rows, one line a task."""
        return values[self.bounds[tasks.start] : self.bounds[tasks.stop]].reshape(tasks.stop - tasks.start, -1)

    @property
    def single(self) -> Array:
        """The rows of the only block, (n, d)."""
        return self.buffer.reshape(self.d, -1).T

    def subtract(self, base: Array) -> None:
        if np.any(base):
            for tasks, stack in self.groups():
                np.subtract(stack, base[tasks, :, None], out=stack)

    def divide(self, scales: Array) -> None:
        if np.any(scales != 1):
            for _, stack in self.groups():
                np.divide(stack, scales[:, None], out=stack)

    def largest(self) -> Array:
        # Summing over tasks first and then over rows is three times as fast as both at once.
        ends = [(stack.max(axis=0).max(axis=1), -stack.min(axis=0).min(axis=1)) for _, stack in self.groups()]
        return np.max(ends, axis=(0, 1))

    def squares_about(self, means: Array, weights: Array | None) -> Array:
        """Σ_i w_i (a_ij − mean_j)² per task: (K, d)."""
        out = np.empty((len(self.bounds) - 1, self.d))
        for tasks, stack in self.groups():
            part = stack - means[tasks, :, None] if np.any(means[tasks]) else stack
            if weights is None:
                out[tasks] = np.einsum("kdn,kdn->kd", part, part)
            else:
                out[tasks] = np.einsum("kdn,kdn,kn->kd", part, part, self._table(weights, tasks))
        return out

    def clear_constant(self, flat: Mask, limit: Array) -> None:
        """Set the columns that are constant but for rounding to exactly zero."""
        for k, j in np.argwhere(flat):
            column = self.buffer[self.d * self.bounds[k] :][j * self._size(k) : (j + 1) * self._size(k)]
            column[np.abs(column) <= limit[k, j]] = 0.0

    def _size(self, k: int) -> int:
        return int(self.bounds[k + 1] - self.bounds[k])

    def dot(self, W: Array) -> Array:
        parts = [np.matmul(W[tasks, None, :], stack).ravel() for tasks, stack in self.groups()]
        return np.concatenate(parts)

    def transposed(self, r: Array) -> Array:
        parts = [np.matmul(stack, self._table(r, tasks)[:, :, None])[:, :, 0] for tasks, stack in self.groups()]
        return np.concatenate(parts)

    def squares(self, c: Array) -> Array:
        return self.squares_about(np.zeros((len(self.bounds) - 1, self.d)), c)

    def gram(self, c: Array, also: Array | None = None) -> tuple[Array, Array, Array]:
        """Σ_i c_i a_i a_iᵀ, Σ_i c_i a_i and Σ_i also_i a_i per task."""
        K = len(self.bounds) - 1
        out, sums, products = np.empty((K, self.d, self.d)), np.empty((K, self.d)), np.empty((K, self.d))
        if self._many_small:
            block_grams(self.buffer, self.bounds, c, c if also is None else also, out, sums, products)
            return out, sums, products

        def fill(group: tuple[slice, Array]) -> None:
            tasks, stack = group
            weights = self._table(c, tasks)
            _weighted_products(stack, weights, out[tasks])
            sums[tasks] = np.matmul(stack, weights[:, :, None])[:, :, 0]
            if also is not None:
                products[tasks] = np.matmul(stack, self._table(also, tasks)[:, :, None])[:, :, 0]

        groups = list(self.groups(_CACHED))
        if self.buffer.size * self.d >= _LARGE:
            spread(fill, groups)
        else:
            for group in groups:
                fill(group)
        return out, sums, products

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
        stacked = sparse.csr_array(X, dtype=float)
        K, d = len(bounds) - 1, stacked.shape[1]
        task_of_entry = np.repeat(np.arange(K, dtype=np.int64), np.diff(stacked.indptr[bounds]))
        columns = stacked.indices + d * task_of_entry
        matrix = sparse.csr_array((stacked.data, columns, stacked.indptr), shape=(stacked.shape[0], K * d)).tocsc()
        matrix.sum_duplicates()
        blocks = cls(matrix, bounds, d, np.zeros((K, d)))
        w = np.ones(stacked.shape[0]) if weights is None else weights
        means = _means(blocks.transposed(w), task_totals(bounds, w))
        if centre:
            blocks.shift = means
        return blocks, means

    def _with(self, data: Array) -> Any:
        return sparse.csc_array((data, self.matrix.indices, self.matrix.indptr), shape=self.matrix.shape)

    def _per_entry(self, values: Array) -> Array:
        """One number per (task, feature), repeated over the stored entries."""
        return np.repeat(values.ravel(), np.diff(self.matrix.indptr))

    @property
    def single(self) -> Any:
        """The rows of the only block, (n, d)."""
        return self.matrix

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

    def squares_about(self, means: Array, weights: Array | None) -> Array:
        about = means + self.shift
        w = np.ones(self.bounds[-1]) if weights is None else weights
        centred = self._with((self.matrix.data - self._per_entry(about)) ** 2)
        present = self._with(np.ones(self.matrix.nnz)).T @ w
        absent = np.repeat(task_totals(self.bounds, w), self.d) - present
        absent[absent < ROUNDING * present] = 0.0
        return np.asarray(centred.T @ w + absent * about.ravel() ** 2).reshape(-1, self.d)

    def clear_constant(self, flat: Mask, limit: Array) -> None:
        """Drop columns that are constant within a task; their centred values are zero."""
        flat = flat & (self.squares_about(np.zeros_like(self.shift), None) <= limit**2 * np.diff(self.bounds)[:, None])
        self.matrix = self._with(np.where(self._per_entry(flat.astype(float)) > 0, 0.0, self.matrix.data))
        self.shift = np.where(flat, 0.0, self.shift)

    def dot(self, W: Array) -> Array:
        return np.asarray(self.matrix @ W.ravel())

    def transposed(self, r: Array) -> Array:
        return np.asarray(self.matrix.T @ r).reshape(-1, self.d)

    def squares(self, c: Array) -> Array:
        return np.asarray(self._with(self.matrix.data**2).T @ c).reshape(-1, self.d)

    def _block(self, k: int) -> Any:
        lo, hi = self.matrix.indptr[[k * self.d, (k + 1) * self.d]]
        indptr = self.matrix.indptr[k * self.d : (k + 1) * self.d + 1] - lo
        indices = self.matrix.indices[lo:hi] - self.bounds[k]
        size = int(self.bounds[k + 1] - self.bounds[k])
        return sparse.csc_array((self.matrix.data[lo:hi], indices, indptr), shape=(size, self.d))

    def gram(self, c: Array, also: Array | None = None) -> tuple[Array, Array, Array]:
        """Σ_i c_i a_i a_iᵀ, Σ_i c_i a_i and Σ_i also_i a_i per task."""
        out = np.empty((len(self.bounds) - 1, self.d, self.d))
        for k in range(len(out)):
            block, weights = self._block(k), c[self.bounds[k] : self.bounds[k + 1]]
            # A sparse product costs about twenty times a dense one per multiplication.
            if 20.0 * block.nnz * block.nnz > (block.shape[0] * self.d) ** 2:
                _weighted_products(np.ascontiguousarray(block.toarray().T)[None], weights[None], out[k : k + 1])
            else:
                out[k] = (block.T @ (block * weights[:, None])).toarray()
        sums = self.transposed(c)
        return out, sums, sums if also is None else self.transposed(also)

    def columns(self) -> tuple[Array, Index, Index]:
        return self.matrix.data, self.matrix.indices.astype(np.int64), self.matrix.indptr.astype(np.int64)


def _weighted_products(stack: Array, c: Array, out: Array) -> None:
    """Σ_i c_i x_i x_iᵀ for a (tasks, d, n) stack into out. NumPy calls syrk for A Aᵀ."""
    even = bool(np.all(c == c[:, :1]))
    root = stack if even else stack * np.sqrt(c)[:, None, :]
    np.matmul(root, root.transpose(0, 2, 1), out=out)
    if even:
        out *= c[:, :1, None]


def _spreads_vanish(X: Any) -> bool:
    """Whether a column of a sparse matrix varies so little about its mean that it has to be centred explicitly.

    Such a column has hardly any zeros. Centring that stays implicit would subtract numbers that agree in most of their
    digits; constant columns are known anyway.
    """
    columns = sparse.csc_array(X)
    full = np.flatnonzero(np.diff(columns.indptr) == X.shape[0])
    for j in full:
        values = columns.data[columns.indptr[j] : columns.indptr[j + 1]]
        low, high = float(values.min()), float(values.max())
        if 0 < high - low < _SMALLEST_SPREAD * max(abs(low), abs(high)):
            return True
    return False


def eliminate(gram: Array, sums: Array, totals: Array) -> None:
    """Take the mean part off, in chunks, so that no second array of Grams is needed."""
    means = _means(sums, totals)
    step = max(1, _CHUNK // max(1, sums.shape[1] ** 2))
    for start in range(0, len(gram), step):
        tasks = slice(start, start + step)
        gram[tasks] -= sums[tasks, :, None] * means[tasks, None, :]


class Columns(NamedTuple):
    """Column-major storage for compiled kernels.

    Column (k, j) is ``data[indptr[base[k] + j]:indptr[base[k] + j + 1]]``; its rows in flat vectors are
    ``row_start[k] + indices[...]`` for sparse storage and ``row_start[k] + 0, 1, …`` for dense.
    """

    data: Array
    indices: Index
    indptr: Index
    base: Index
    row_start: Index
    is_sparse: bool


@dataclass(frozen=True, eq=False)
class Design:
    """Centred and scaled features of K tasks; make it with :meth:`build`.

    Attributes
    ----------
    n_tasks, n_features : int
        K and d.
    offsets : ndarray of shape (K + 1,)
        Where each task starts in flat vectors.
    shared : bool
        One X for all tasks.
    centres : ndarray of shape (K, d)
        What was subtracted, in original units.
    scales : ndarray of shape (d,)
        What was divided by.
    shift : ndarray of shape (K, d) or None
        The implicit part of the centring, in scaled units.
    stored : DenseBlocks or SparseBlocks
        What is kept of the features: one block per task, or a single one when shared.
    """

    n_tasks: int
    n_features: int
    offsets: Index
    shared: bool
    centres: Array
    scales: Array
    shift: Array | None
    stored: DenseBlocks | SparseBlocks

    @classmethod
    def build(
        cls,
        X: Any,
        offsets: Any = None,
        n_tasks: int | None = None,
        row_weights: Any = None,
        *,
        centre: bool = True,
        scale: bool = True,
        centres: Any = None,
        scales: Any = None,
    ) -> Design:
        """Centre per task and divide by the pooled scale.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (N, d), or (n, d) for a shared design
            Features, rows sorted by task.
        offsets : array of shape (K + 1,), optional
            Where each task starts; None for a shared design.
        n_tasks : int, optional
            K, for a shared design.
        row_weights : ndarray of shape (N,), optional
            Weights ≥ 0 that enter means and scale (length K·n for a shared design).
        centre, scale : bool
            Whether to centre and to scale. Scales are taken about the task means in any case.
        centres, scales : ndarray of shapes (K, d) and (d,), optional
            Used instead of computed ones.

        Returns
        -------
        Design
            The standardised features; columns that are constant within every task get scale 1.

        Examples
        --------
        >>> import numpy as np
        >>> design = Design.build(np.array([[1.0], [3.0], [5.0], [9.0]]), [0, 2, 4])
        >>> design.centres.ravel()
        array([2., 7.])
        >>> round(float(design.scales[0] ** 2), 12)
        2.5
        """
        shared = offsets is None
        bounds = _bounds(X.shape[0], offsets, n_tasks)
        K, d = len(bounds) - 1, int(X.shape[1])
        stored_bounds = bounds[[0, 1]] if shared else bounds
        weights, by_task = _split_weights(row_weights, K, shared)
        at_means = centre and centres is None and by_task is None
        if sparse.issparse(X) and centre and _spreads_vanish(X):
            X = X.toarray()
        stored: DenseBlocks | SparseBlocks
        kind = SparseBlocks if sparse.issparse(X) else DenseBlocks
        stored, means = kind.gather(X, stored_bounds, weights, at_means)
        task_means = (
            _means(by_task @ stored.single, by_task.sum(axis=1))
            if by_task is not None
            else np.broadcast_to(means, (K, d))
        )
        if centres is not None:
            target = np.broadcast_to(np.asarray(centres, dtype=float), (K, d))
        else:
            target = task_means if centre else np.zeros((K, d))
        base = means if at_means else target.mean(axis=0, keepdims=True) if shared else target
        if not at_means:
            stored.subtract(base)
        if scales is None and scale:
            between = None if by_task is None else (task_means - means, by_task.sum(axis=1))
            sigma = _divide_by_pooled_scale(stored, means, base, weights, between)
        else:
            if scales is None:
                _require_range(stored)
            sigma = np.ones(d) if scales is None else np.array(scales, dtype=float)
            stored.divide(sigma)
        shift = None
        centred = at_means or np.array_equal(target, np.broadcast_to(base, (K, d)))
        if sparse.issparse(X) or not centred:
            shift = (target - base) / sigma + (stored.shift if isinstance(stored, SparseBlocks) else 0.0)
        return cls(K, d, bounds, shared, np.array(target), sigma, shift, stored)

    def dearer(self, factors: Array) -> Design:
        """The same design with features divided by factors, which makes their weights cost so much more."""
        if not np.any(factors != 1):
            return self
        self.stored.divide(factors)
        return replace(self, scales=self.scales * factors, shift=None if self.shift is None else self.shift / factors)

    def without_rows(self) -> Design:
        """The same design without its features, where all products have been formed: centres and scales alone."""
        nothing = DenseBlocks(np.empty(0), np.zeros(1, dtype=np.int64), self.n_features)
        return replace(self, stored=nothing)

    @property
    def is_sparse(self) -> bool:
        """Whether zeros are kept."""
        return isinstance(self.stored, SparseBlocks)

    @property
    def n_rows(self) -> Index:
        """Rows of each task, (K,)."""
        return np.diff(self.offsets)

    @property
    def n_total(self) -> int:
        """Length N of flat vectors."""
        return int(self.offsets[-1])

    @cached_property
    def _common_size(self) -> int | None:
        """Rows of every task where all have equally many; flat vectors are then tables."""
        sizes = self.n_rows
        return int(sizes[0]) if np.all(sizes == sizes[0]) else None

    def per_task(self, values: Array) -> Array:
        """Repeat one number per task over its rows: (K,) → (N,)."""
        return np.repeat(values, self.n_rows)

    def less(self, r: Array, values: Array) -> Array:
        """Subtract one number per task from its rows: (N,), (K,) → (N,)."""
        if self._common_size is None:
            return r - self.per_task(values)
        return np.asarray(r.reshape(self.n_tasks, -1) - values[:, None]).ravel()

    def task_sums(self, r: Array) -> Array:
        """Sum a flat vector over the rows of each task: (N,) → (K,); (n,) → (1,) for a shared design."""
        if self._common_size is None:
            return np.asarray(np.add.reduceat(r, self.offsets[:-1]))
        return np.asarray(r.reshape(-1, self._common_size).sum(axis=1))

    def task_dots(self, r: Array, c: Array) -> Array:
        """Dot product of two flat vectors over the rows of each task: (N,), (N,) → (K,)."""
        if self._common_size is None:
            return self.task_sums(r * c)
        return np.asarray(np.einsum("kn,kn->k", r.reshape(self.n_tasks, -1), c.reshape(self.n_tasks, -1)))

    def predictor(self, W: Array) -> Array:
        """X̃_k w_k for all tasks: (K, d) → (N,)."""
        flat = self.stored_dot(W)
        if self.shift is not None:
            flat = self.less(flat, np.einsum("kd,kd->k", self.shift, W))
        return flat

    def backproject(self, r: Array) -> Array:
        """X̃_kᵀ r_k for all tasks: (N,) → (K, d)."""
        out = self.stored_sums(r)
        if self.shift is not None:
            out -= self.shift * self.task_sums(r)[:, None]
        return out

    def stored_dot(self, W: Array) -> Array:
        """A_k w_k with the stored columns, the implicit shift left out: (K, d) → (N,)."""
        W = np.ascontiguousarray(W)
        return np.ascontiguousarray(W @ self.stored.single.T).ravel() if self.shared else self.stored.dot(W)

    def stored_sums(self, r: Array) -> Array:
        """A_kᵀ r_k with the stored columns, the implicit shift left out: (N,) → (K, d).

        For a shared design, several or single blocks of n numbers may be given.
        """
        if self.shared:
            return np.ascontiguousarray(r.reshape(-1, int(self.offsets[1])) @ self.stored.single)
        return self.stored.transposed(r)

    def stored_squares(self, c: Array) -> Array:
        """Σ_i c_i a_ij² with the stored columns: (N,) → (K, d)."""
        if self.shared:
            return np.ascontiguousarray(c.reshape(self.n_tasks, -1) @ self.stored.single**2)
        return self.stored.squares(c)

    def gram(self, c: Array | None = None, *, intercept: bool = True) -> Array:
        r"""Σ_i c_i x̃_i x̃_iᵀ per task, with the intercept eliminated: minus (Σc) x̄_c x̄_cᵀ.

        Parameters
        ----------
        c : ndarray of shape (N,), optional
            Row weights; None for ones. For a shared design, shape (n,) means the same weights in every task.
        intercept : bool
            Whether to eliminate an unpenalised intercept.

        Returns
        -------
        ndarray of shape (K, d, d)
            One Gram matrix per task; (1, d, d) for a shared design with common weights.
        """
        if c is None:
            c = np.ones(int(self.offsets[1]) if self.shared else self.n_total)
        return self._gram(c, intercept, None)[0]

    def normal_equations(self, c: Array, r: Array) -> tuple[Array, Array, Array]:
        """Grams with intercepts eliminated as in :meth:`gram`, the sums Σ_i c_i x̃_i, and X̃_kᵀ r_k, in one pass."""
        gram, sums, products = self._gram(c, True, r)
        if self.shared:
            products = self.stored_sums(r)
        if self.shift is not None:
            sums = sums - self.shift * self.task_sums(c)[:, None]
            products = products - self.shift * self.task_sums(r)[:, None]
        return gram, sums, products

    def _gram(self, c: Array, intercept: bool, also: Array | None) -> tuple[Array, Array, Array]:
        if self.shared:
            table = c.reshape(-1, int(self.offsets[1]))
            if self.shift is not None and not intercept and len(table) < self.n_tasks:
                table = np.broadcast_to(table, (self.n_tasks, table.shape[1]))
            parts, totals = [self.stored.gram(row)[:2] for row in table], table.sum(axis=1)
            gram, sums = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
            products = sums
        else:
            gram, sums, products = self.stored.gram(c, also)
            totals = task_totals(self.offsets, c)
        if intercept:
            eliminate(gram, sums, totals)
        elif self.shift is not None:
            for k, delta in enumerate(self.shift):
                cross = np.outer(sums[k], delta)
                gram[k] += totals[k] * np.outer(delta, delta) - cross - cross.T
        return gram, sums, products

    def common_weights(self, c: Array) -> tuple[Array, Array] | None:
        """Split weights of a shared design into c_ki = s_k c_i, or None where they are no such product."""
        if not self.shared:
            return None
        if self.shift is not None and not np.allclose(self.shift, self.shift[0]):
            return None
        table = c.reshape(self.n_tasks, -1)
        common = table[0]
        if c.min() == c.max() > 0:
            return common, np.ones(self.n_tasks)
        totals = table.sum(axis=1)
        if not np.all(totals > 0):
            return None
        scale = totals / totals[0]
        fits = np.abs(table - scale[:, None] * common) <= 1e-13 * scale[:, None] * common
        return (common, scale) if bool(np.all(fits)) else None

    @cached_property
    def columns(self) -> Columns:
        """Column-major storage for compiled kernels."""
        data, indices, indptr = self.stored.columns()
        K, d = self.n_tasks, self.n_features
        base = np.zeros(K, dtype=np.int64) if self.shared else d * np.arange(K)
        local = self.shared or not self.is_sparse
        row_start = self.offsets[:-1].copy() if local else np.zeros(K, dtype=np.int64)
        return Columns(data, indices, indptr, base, row_start, self.is_sparse)

    def to_user(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Coefficients (K, d) and intercepts (K,) in original units."""
        coef = W / self.scales
        return coef, b - np.einsum("kd,kd->k", self.centres, coef)


def _bounds(n_given: int, offsets: Any, n_tasks: int | None) -> Index:
    if offsets is None:
        if n_tasks is None or n_tasks < 1:
            raise refused(
                "n_tasks", n_tasks, "give a whole number ≥ 1 for a shared design, or offsets", error=DataError
            )
        return n_given * np.arange(n_tasks + 1, dtype=np.int64)
    bounds = np.asarray(offsets, dtype=np.int64)
    if bounds.ndim != 1 or len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != n_given or np.any(np.diff(bounds) < 1):
        allowed = f"give numbers that rise from 0 to the number of rows, {n_given}, by at least one a task"
        raise refused("offsets", offsets, allowed, error=DataError)
    return bounds


def _split_weights(row_weights: Any, K: int, shared: bool) -> tuple[Array | None, Array | None]:
    """Weights of the stored rows, and the (K, n) table where a shared design has different ones per task."""
    if row_weights is None:
        return None, None
    weights = np.asarray(row_weights, dtype=float)
    if not shared:
        return weights, None
    table = weights.reshape(K, -1)
    return (table[0], None) if np.all(table == table[0]) else (table.sum(axis=0), table)


def _require_range(stored: DenseBlocks | SparseBlocks) -> None:
    """Raise where features that are not to be scaled are too large or all too small for products of their squares."""
    sizes = stored.largest()
    low, high = _UNSCALED_RANGE
    odd = (sizes > high) | ((sizes > 0) & (sizes < low))
    if odd.any():
        j = int(np.argmax(odd))
        raise DataError(
            f"Feature {j} varies by up to {sizes[j]:.2g} and is not scaled (features=Linear(scale=False)); sums of "
            f"squares can be computed from {low:g} to {high:g}. Use features='linear', or other units "
            "(and penalties to suit)."
        )


def _divide_by_pooled_scale(
    stored: DenseBlocks | SparseBlocks,
    means: Array,
    base: Array,
    weights: Array | None,
    between: tuple[Array, Array] | None,
) -> Array:
    """Divide by the root of the pooled within-task variance and return it.

    Columns whose squares leave the range of doubles are divided by their largest entry first. ``between`` holds the
    deviations of the task means from the common one, and the task weights, where a shared design has several means.
    """
    about, factor = means - base, np.ones(stored.d)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = stored.squares_about(about, weights)
        total = squares.sum(axis=0)
        unsafe = ~((total > _SQUARE_RANGE[0]) & (total < _SQUARE_RANGE[1]))
        if np.any(unsafe):
            largest = stored.largest()
            factor = np.where(unsafe & (largest > 0), largest, 1.0)
            stored.divide(factor)
            squares = stored.squares_about(about / factor, weights)
        sizes = task_totals(stored.bounds, weights)[:, None]
        dust = ROUNDING * np.abs(means) / factor
        flat = squares <= sizes * dust**2
    if np.array_equal(means, base):
        stored.clear_constant(flat, dust)
    squares[flat] = 0.0
    total = squares.sum(axis=0)
    within = total.copy()
    if between is not None:
        deviations, totals = between
        within -= totals @ (deviations / factor) ** 2
    varies = within > ROUNDING * total
    relative = np.where(varies, np.sqrt(np.where(varies, within, 1.0) / max(sizes.sum(), 1e-300)), 1.0 / factor)
    stored.divide(relative)
    return factor * relative


def default_memory_limit() -> int:
    """A quarter of the machine's memory, at most 2 GiB."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # some systems do not report their memory
        return MAX_GRAM_BYTES
    return min(memory // 4, MAX_GRAM_BYTES)
