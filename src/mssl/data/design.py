r"""The features of all tasks, centred per task, divided by one pooled scale, and their products.

With the rows of task k gathered in :math:`X_k`, the design stands for

.. math:: \tilde X_k = (X_k - 1 \bar x_k^\top) \operatorname{diag}(\sigma)^{-1}, \qquad
          \sigma_j^2 = \frac{\sum_k \sum_i w_{ki} (x_{kij} - \bar x_{kj})^2}{\sum_k \sum_i w_{ki}} .

All tasks share one scale, so that their weights can be compared. Dense features are stored once, column by column
within each task. Sparse features keep their zeros, and the rest of the centring is applied implicitly:
:math:`\tilde X_k w = A_k w - 1 (\delta_k \cdot w)` with the stored :math:`A_k` and the shift :math:`\delta_k`.

Flat vectors are in task-major order: task k owns ``offsets[k]:offsets[k+1]``. A shared design (one X for all
tasks) is stored once, yet flat vectors have length K·n.

:class:`DenseBlocks` and :class:`SparseBlocks` are two ways to store the features, one block per task. Both have the
same methods.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from mssl._typing import Array, Index, Labels, Mask
from mssl._validation import refused
from mssl.data.inputs import CHUNK, ROUNDING, SAFE_POWERS
from mssl.exceptions import DataError
from mssl.kernels import block_grams, gather_blocks, plain
from mssl.kernels.threads import spread

# Grams, or other tables of this size, take at most this memory by default. A lower limit saves memory; beyond it, fits
# use slower products with the features.
MAX_GRAM_BYTES = 2 * 2**30
# Columns are centred twice if a row's distance from the mean is below this share of the mean: the distance then has too
# few digits. A mere safeguard.
_ALL_BUT_EQUAL = 1e-6
_LARGE = 2**30  # Beyond this number of multiplications (about 0.1 s), threads gain more time than their start costs.
# With at least _MANY tasks of at most _SMALL_D features and _SMALL_BLOCK numbers, NumPy's calls per task cost more than
# the work. Compiled loops then form ragged Grams 2 to 35 times as fast, and the blocks 1.4 to 2 times (60 to 2000
# tasks).
_MANY, _SMALL_D, _SMALL_BLOCK = 50, 32, 2**15


@dataclass(eq=False)
class DenseBlocks:
    """The features of each task as a (d, n_k) block of one buffer, so that columns are contiguous."""

    buffer: Array
    bounds: Index
    d: int
    small: bool  # whether a few calls of NumPy per task would cost more than a compiled loop

    @classmethod
    def gather(cls, X: Any, bounds: Index, weights: Array, centre: bool) -> tuple[DenseBlocks, Array]:
        """Store the features, centred by their weighted task means if so asked; returns those means too."""
        X = np.asarray(X, dtype=float)
        K, d = len(bounds) - 1, X.shape[1]
        small = K >= _MANY and d <= _SMALL_D and X.size <= K * _SMALL_BLOCK
        blocks, means = cls(np.empty(X.size), bounds, d, small), np.empty((K, d))
        if small:
            gather_blocks(plain(X), bounds, plain(weights), centre, blocks.buffer, means)
            return blocks, means
        totals, step = np.add.reduceat(weights, bounds[:-1])[:, None], isqrt(CHUNK)
        # Each stack fits the cache, and is transposed, averaged and centred before the next one is read.
        for tasks, stack in blocks.stacks:
            rows = X[bounds[tasks.start] : bounds[tasks.stop]]
            rows = rows.reshape(len(stack), -1, d)
            # Larger steps have strides so long that every number misses the cache.
            for lo in range(0, rows.shape[1], step):
                stack[:, :, lo : lo + step] = rows[:, lo : lo + step].transpose(0, 2, 1)
            table = blocks._table(weights, tasks)
            means[tasks] = _means(stack, table, totals[tasks])
            if centre:
                np.subtract(stack, means[tasks, :, None], out=stack)
                # If rows are almost equal, the mean's rounding error matters beside their differences: centre again.
                if np.any(np.abs(stack[:, :, :1]) < _ALL_BUT_EQUAL * np.abs(means[tasks, :, None])):
                    np.subtract(stack, _means(stack, table, totals[tasks])[:, :, None], out=stack)
        return blocks, means

    @cached_property
    def stacks(self) -> list[tuple[slice, Array]]:
        """Runs of tasks with equally many rows, as (tasks, d, n) stacks of about the chunk size at most."""
        n, start, stacks = np.diff(self.bounds), 0, []
        while start < len(n):
            window = n[start : start + max(1, int(CHUNK // max(1, self.d * n[start])))]
            changes = np.flatnonzero(window != n[start])
            stop = start + (int(changes[0]) if len(changes) else len(window))
            stack = self.buffer[self.d * self.bounds[start] : self.d * self.bounds[stop]]
            stacks.append((slice(start, stop), stack.reshape(stop - start, self.d, n[start])))
            start = stop
        return stacks

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "stacks"}

    def _table(self, values: Array, tasks: slice) -> Array:
        """The entries of flat vectors, ([T] N), that belong to the rows of a stack: (tasks, T, n)."""
        rows = values.reshape(-1, self.bounds[-1])[:, self.bounds[tasks.start] : self.bounds[tasks.stop]]
        return rows.reshape(len(rows), tasks.stop - tasks.start, -1).transpose(1, 0, 2)

    def divide(self, scales: Array) -> None:
        if np.any(scales != 1):
            for _, stack in self.stacks:
                np.divide(stack, scales[:, None], out=stack)

    def largest(self) -> Array:
        # Reducing over tasks first and over rows afterwards is three times as fast as reducing over both at once.
        ends = [(stack.max(axis=0).max(axis=1), -stack.min(axis=0).min(axis=1)) for _, stack in self.stacks]
        return np.max(ends, axis=(0, 1))

    def squares_about(self, means: Array, c: Array) -> Array:
        """Σ_i c_i (a_ij − mean_j)² per task and vector of weights: ([T] N) → (K T, d)."""
        parts = []
        for tasks, stack in self.stacks:
            part = stack - means[tasks, :, None] if np.any(means[tasks]) else stack
            table = self._table(c, tasks)
            sums = np.vecdot(part, part)[:, None] * table[:, :, :1] if _are_even(table) else table @ (part**2).mT
            parts.append(sums.reshape(-1, self.d))
        return np.concatenate(parts)

    def clear_constant(self, flat: Mask, limit: Array) -> None:
        """Set columns that are constant up to rounding to exactly zero."""
        for k, j in np.argwhere(flat):
            n = self.bounds[k + 1] - self.bounds[k]
            column = self.buffer[self.d * self.bounds[k] :][j * n : (j + 1) * n]
            column[np.abs(column) <= limit[k, j]] = 0.0

    def dot(self, W: Array) -> Array:
        """a_i · w for each task's rows and each of its T vectors of weights: (K T, d) → (N T,)."""
        W = W.reshape(len(self.bounds) - 1, -1, self.d)
        return np.concatenate([np.matmul(W[tasks], stack).ravel() for tasks, stack in self.stacks])

    def transposed(self, r: Array) -> Array:
        """Σ_i r_i a_i for each task and each of T flat vectors: ([T] N) → (K T, d)."""
        sums = [np.matmul(self._table(r, tasks), stack.mT) for tasks, stack in self.stacks]
        return np.concatenate([part.reshape(-1, self.d) for part in sums])

    def gram(self, c: Array, r: Array) -> tuple[Array, Array, Array]:
        """Σ_i c_i a_i a_iᵀ, Σ_i c_i a_i and Σ_i r_i a_i per task."""
        K = len(self.bounds) - 1
        out, sums, products = np.empty((K, self.d, self.d)), np.empty((K, self.d)), np.empty((K, self.d))
        if self.small:
            block_grams(self.buffer, self.bounds, c, r, out, sums, products)
            return out, sums, products

        def fill(group: tuple[slice, Array]) -> None:
            tasks, stack = group
            weights, values = self._table(c, tasks), self._table(r, tasks)
            even = _are_even(weights)
            root = stack if even else stack * np.sqrt(weights)
            np.matmul(root, root.mT, out=out[tasks])  # NumPy calls syrk for A Aᵀ.
            if even:
                out[tasks] *= weights[:, :, :1]
            sums[tasks], products[tasks] = (np.matmul(table, stack.mT)[:, 0] for table in (weights, values))

        if self.buffer.size * self.d >= _LARGE:
            spread(fill, self.stacks)
        else:
            for group in self.stacks:
                fill(group)
        return out, sums, products

    def columns(self) -> tuple[Array, Index, Index]:
        sizes = np.repeat(np.diff(self.bounds), self.d)
        return self.buffer, np.zeros(0, dtype=np.int64), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@dataclass(eq=False)
class SparseBlocks:
    """All tasks as one block-diagonal CSC matrix (N, K·d); ``shift`` (K, d) holds the implicit part of the centring.

    Columns without zeros in a task are centred explicitly and have no shift: implicit centring would subtract numbers
    that may agree in most of their digits.
    """

    matrix: Any
    bounds: Index
    d: int
    shift: Array

    @classmethod
    def gather(cls, X: Any, bounds: Index, weights: Array, centre: bool) -> tuple[SparseBlocks, Array]:
        """Store the features, centred by their weighted task means if so asked; returns those means too."""
        stacked = sparse.csr_array(X, dtype=float)
        K, d = len(bounds) - 1, stacked.shape[1]
        task_of_entry = np.repeat(np.arange(K, dtype=np.int64), np.diff(stacked.indptr[bounds]))
        columns = stacked.indices + d * task_of_entry
        matrix = sparse.csr_array((stacked.data, columns, stacked.indptr), shape=(stacked.shape[0], K * d)).tocsc()
        matrix.sum_duplicates()
        blocks = cls(matrix, bounds, d, np.zeros((K, d)))
        totals, first = np.add.reduceat(weights, bounds[:-1])[:, None], np.zeros((K, d))
        full = np.diff(matrix.indptr).reshape(K, d) == np.diff(bounds)[:, None]
        if centre:
            first[full] = matrix.data[matrix.indptr[:-1][full.ravel()]]
            matrix.data -= blocks._per_entry(first)
        away = blocks.transposed(weights) / np.where(totals > 0, totals, 1.0)
        if centre:
            matrix.data -= blocks._per_entry(np.where(full, away, 0.0))
            blocks.shift = np.where(full, 0.0, away)
        return blocks, first + away

    def _with(self, data: Array) -> Any:
        return sparse.csc_array((data, self.matrix.indices, self.matrix.indptr), shape=self.matrix.shape)

    def _per_entry(self, values: Labels) -> Labels:
        """Repeat one number per task and feature over the stored entries."""
        return np.repeat(np.broadcast_to(values, self.shift.shape).ravel(), np.diff(self.matrix.indptr))

    def divide(self, scales: Array) -> None:
        self.matrix = self._with(self.matrix.data / self._per_entry(scales))
        self.shift = self.shift / scales

    def largest(self) -> Array:
        sizes = abs(self.matrix).max(axis=0).toarray().reshape(self.shift.shape)
        return np.asarray(np.maximum(sizes, np.abs(self.shift)).max(axis=0))

    def squares_about(self, means: Array, c: Array) -> Array:
        """Σ_i c_i (a_ij − shift_j − mean_j)² per task: (K, d)."""
        about = means + self.shift
        centred = self._with((self.matrix.data - self._per_entry(about)) ** 2)
        present = self._with(np.ones(self.matrix.nnz)).T @ c
        absent = np.repeat(np.add.reduceat(c, self.bounds[:-1]), self.d) - present
        absent[absent < ROUNDING * present] = 0.0
        return np.asarray(centred.T @ c + absent * about.ravel() ** 2).reshape(-1, self.d)

    def clear_constant(self, flat: Mask, limit: Array) -> None:
        """Set columns that are constant up to rounding to exactly zero."""
        dust = self._per_entry(flat) & (np.abs(self.matrix.data) <= self._per_entry(limit))
        self.matrix = self._with(np.where(dust, 0.0, self.matrix.data))

    def dot(self, W: Array) -> Array:
        return np.asarray(self.matrix @ W.ravel())

    def transposed(self, r: Array) -> Array:
        return np.asarray(self.matrix.T @ r.ravel()).reshape(-1, self.d)

    def gram(self, c: Array, r: Array) -> tuple[Array, Array, Array]:
        """Σ_i c_i a_i a_iᵀ, Σ_i c_i a_i and Σ_i r_i a_i per task."""
        K, d = self.shift.shape
        out = np.empty((K, d, d))
        for k in range(K):
            rows = slice(self.bounds[k], self.bounds[k + 1])
            block, weights = self.matrix[rows, k * d : (k + 1) * d], c[rows]
            # A sparse product costs about twenty times a dense one per multiplication.
            if 20.0 * block.nnz * block.nnz > (block.shape[0] * d) ** 2:
                root = np.sqrt(weights) * block.toarray().T
                np.matmul(root, root.T, out=out[k])
            else:
                out[k] = (block.T @ (block * weights[:, None])).toarray()
        return out, self.transposed(c), self.transposed(r)

    def columns(self) -> tuple[Array, Index, Index]:
        return self.matrix.data, self.matrix.indices.astype(np.int64), self.matrix.indptr.astype(np.int64)


def _means(stack: Array, table: Array, totals: Array) -> Array:
    """Return each column's weighted mean: NumPy sums in pairs, with enough digits to show that a column is constant."""
    sums = stack.sum(axis=2) * table[:, 0, :1] if _are_even(table) else (stack * table).sum(axis=2)
    return np.asarray(sums / np.where(totals > 0, totals, 1.0))


def _are_even(table: Array) -> bool:
    """Whether all rows of each task have the same weight."""
    return bool(np.all(table == table[:, :, :1]))


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
    """Centred and scaled features of K tasks; :meth:`build` makes them.

    Attributes
    ----------
    n_tasks, n_features : int
        K and d.
    offsets : ndarray of shape (K + 1,)
        Start of each task in flat vectors.
    n_rows : ndarray of shape (K,)
        Number of rows of each task.
    shared : bool
        Whether one dense X, stored once, serves all tasks.
    centres : ndarray of shape (K, d)
        The subtracted means, in original units.
    scales : ndarray of shape (d,)
        The scales by which the features were divided.
    shift : ndarray of shape (K, d) or None
        The implicit part of the centring of sparse features, in scaled units; None for dense features.
    stored : DenseBlocks or SparseBlocks
        The stored features: one block per task, or a single block if shared.
    """

    n_tasks: int
    n_features: int
    offsets: Index
    n_rows: Index
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
    ) -> Design:
        """Centre per task and divide by the pooled scale.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (N, d), or (n, d) for a shared design
            Features, rows sorted by task.
        offsets : array of shape (K + 1,), optional
            Start of each task; None for a shared design.
        n_tasks : int, optional
            K, for a shared design.
        row_weights : ndarray of shape (N,), optional
            Weights ≥ 0 for means and scale, of length K·n for a shared design. A shared design is stored once per task
            if it is sparse, or if its tasks have different weights.
        centre, scale : bool
            Whether to centre and to scale. Scales are computed about the task means in both cases.

        Returns
        -------
        Design
            The standardised features. Columns that are constant within every task get scale 1.

        Examples
        --------
        >>> import numpy as np
        >>> design = Design.build(np.array([[1.0], [3.0], [5.0], [9.0]]), [0, 2, 4])
        >>> design.centres.ravel()
        array([2., 7.])
        >>> round(float(design.scales[0] ** 2), 12)
        2.5
        """
        (n, d), shared = X.shape, offsets is None
        bounds = np.asarray(n * np.arange((n_tasks or 0) + 1) if shared else offsets, dtype=np.int64)
        if shared and (n_tasks is None or n_tasks < 1):
            allowed = "give a whole number ≥ 1 for a shared design, or offsets"
            raise refused("n_tasks", n_tasks, allowed, error=DataError)
        rising = bounds.ndim == 1 and len(bounds) > 1 and bounds[0] == 0 and bool(np.all(np.diff(bounds) > 0))
        if not shared and not (rising and bounds[-1] == n):
            allowed = f"give numbers that rise from 0 to the number of rows, {n}, by at least one per task"
            raise refused("offsets", offsets, allowed, error=DataError)
        K = len(bounds) - 1
        weights = np.ones(n) if row_weights is None else np.asarray(row_weights, dtype=float)
        if shared and (sparse.issparse(X) or np.any(weights.reshape(-1, n) != weights[:n])):
            X, shared = sparse.vstack([X] * K) if sparse.issparse(X) else np.tile(X, (K, 1)), False
            weights = np.tile(weights, K) if row_weights is None else weights
        kind = SparseBlocks if sparse.issparse(X) else DenseBlocks
        weights = weights[: X.shape[0]]
        stored, means = kind.gather(X, bounds[:2] if shared else bounds, weights, centre)
        scales = _divide_by_pooled_scale(stored, means, centre, weights) if scale else np.ones(d)
        centres = np.array(np.broadcast_to(means if centre else 0.0, (K, d)))
        return cls(K, d, bounds, np.diff(bounds), shared, centres, scales, getattr(stored, "shift", None), stored)

    def dearer(self, factors: Array) -> Design:
        """Divide the features by factors, so that the penalty of each weight grows by its factor."""
        if not np.any(factors != 1):
            return self
        self.stored.divide(factors)
        return replace(self, scales=self.scales * factors, shift=None if self.shift is None else self.shift / factors)

    def without_rows(self) -> Design:
        """The centres and scales of this design without its features, for use when all products have been formed."""
        nothing = DenseBlocks(np.empty(0), np.zeros(1, dtype=np.int64), self.n_features, small=False)
        return replace(self, stored=nothing)

    def per_task(self, values: Array) -> Array:
        """Repeat one number per task over its rows: (K,) → (N,)."""
        return np.repeat(values, self.n_rows)

    def task_sums(self, r: Array) -> Array:
        """Sum a flat vector over the rows of each task: (N,) → (K,)."""
        return np.asarray(np.add.reduceat(r, self.offsets[:-1]))

    def predictor(self, W: Array) -> Array:
        """X̃_k w_k for all tasks: (K, d) → (N,)."""
        flat = self.stored.dot(W)
        if self.shift is not None:
            flat = flat - self.per_task(np.einsum("kd,kd->k", self.shift, W))
        return flat

    def backproject(self, r: Array) -> Array:
        """X̃_kᵀ r_k for all tasks: (N,) → (K, d).

        A dense design that is not shared also takes T vectors at once: (T, N) → (K T, d), task after task.
        """
        out = self.stored.transposed(r)
        if self.shift is not None:
            out -= self.shift * self.task_sums(r.ravel())[:, None]
        return out

    def stored_squares(self, c: Array) -> Array:
        """Σ_i c_i a_ij² with the stored columns: (N,) → (K, d)."""
        return self.stored.squares_about(np.zeros_like(self.centres) if self.shift is None else -self.shift, c)

    def gram(self, c: Array, *, intercept: bool = True) -> Array:
        r"""Σ_i c_i x̃_i x̃_iᵀ per task, minus (Σc) x̄_c x̄_cᵀ if the intercept is eliminated.

        Parameters
        ----------
        c : ndarray of shape (N,)
            Row weights. For a shared design, shape (n,) means the same weights in every task.
        intercept : bool
            Whether to eliminate an unpenalised intercept.

        Returns
        -------
        ndarray of shape (K, d, d)
            One Gram matrix per task; (1, d, d) for a shared design with common weights.
        """
        return self.normal_equations(c, c, intercept=intercept)[0]

    def normal_equations(self, c: Array, r: Array, *, intercept: bool = True) -> tuple[Array, Array, Array]:
        """Grams as in :meth:`gram`, the sums Σ_i c_i x̃_i, and X̃_kᵀ r_k, in one pass."""
        if self.shared:
            table = c.reshape(-1, int(self.offsets[1]))
            gram, sums, _ = map(np.concatenate, zip(*(self.stored.gram(row, row) for row in table), strict=True))
            totals, products = table.sum(axis=1), self.stored.transposed(r)
        else:
            (gram, sums, products), totals = self.stored.gram(c, r), self.task_sums(c)
        if intercept:  # The mean part is subtracted in chunks, so that no second array of Grams is needed.
            means = sums / np.where(totals > 0, totals, 1.0)[:, None]
            step = max(1, CHUNK // max(1, self.n_features**2))
            for tasks in (slice(start, start + step) for start in range(0, len(gram), step)):
                gram[tasks] -= sums[tasks, :, None] * means[tasks, None, :]
        if self.shift is not None:
            if not intercept:
                cross = (sums - 0.5 * totals[:, None] * self.shift)[:, :, None] * self.shift[:, None]
                gram -= cross + cross.transpose(0, 2, 1)
            sums = sums - self.shift * totals[:, None]
            products = products - self.shift * self.task_sums(r)[:, None]
        return gram, sums, products

    def common_weights(self, c: Array) -> tuple[Array, Array] | None:
        """Split the weights of a shared design into c_ki = s_k c_i; None if they do not have this form."""
        if not self.shared:
            return None
        table = c.reshape(self.n_tasks, -1)
        common = table[0]
        if c.min() == c.max() > 0:
            return common, np.ones(self.n_tasks)
        totals = table.sum(axis=1)
        scale = totals / totals[0]
        fits = np.abs(table - scale[:, None] * common) <= 1e-13 * scale[:, None] * common
        return (common, scale) if bool(np.all(fits)) else None

    @cached_property
    def columns(self) -> Columns:
        """Column-major storage for compiled kernels."""
        base = np.arange(self.n_tasks) * (0 if self.shared else self.n_features)
        is_sparse = self.shift is not None
        row_start = np.zeros_like(base) if is_sparse else self.offsets[:-1].copy()
        return Columns(*self.stored.columns(), base, row_start, is_sparse)

    def to_user(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Coefficients (K, d) and intercepts (K,) in original units."""
        coef = W / self.scales
        return coef, b - np.einsum("kd,kd->k", self.centres, coef)


def _divide_by_pooled_scale(stored: DenseBlocks | SparseBlocks, means: Array, centred: bool, weights: Array) -> Array:
    """Divide by the root of the pooled within-task variance and return it.

    Columns whose squares leave the range of doubles are divided by their largest entry first.
    """
    about, factor = np.zeros_like(means) if centred else means, np.ones(stored.d)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = stored.squares_about(about, weights)
        total = squares.sum(axis=0)
        unsafe = ~((total > SAFE_POWERS[0]) & (total < SAFE_POWERS[1]))
        if np.any(unsafe):
            largest = stored.largest()
            factor = np.where(unsafe & (largest > 0), largest, 1.0)
            stored.divide(factor)
            squares = stored.squares_about(about / factor, weights)
        sizes = np.add.reduceat(weights, stored.bounds[:-1])[:, None]
        dust = ROUNDING * np.abs(means) / factor
        flat = squares <= sizes * dust**2
    if centred and flat.any():
        stored.clear_constant(flat, dust)
    squares[flat] = 0.0
    variance = squares.sum(axis=0) / max(sizes.sum(), 1e-300)
    relative = np.where(variance > 0, np.sqrt(variance), 1.0 / factor)
    stored.divide(relative)
    return factor * relative


@cache
def default_memory_limit() -> int:
    """A quarter of the machine's memory, at most 2 GiB."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Some systems do not report their memory.
        return MAX_GRAM_BYTES
    return min(memory // 4, MAX_GRAM_BYTES)
