r"""The features of all tasks, centred per task, divided by one pooled scale, and their products.

With the rows of task k gathered in :math:`X_k`, the design stands for

.. math:: \tilde X_k = (X_k - 1 \bar x_k^\top) \operatorname{diag}(\sigma)^{-1}, \qquad
          \sigma_j^2 = \frac{\sum_k \sum_i w_{ki} (x_{kij} - \bar x_{kj})^2}{\sum_k \sum_i w_{ki}} .

One scale for all tasks keeps "similar weights" meaningful. Dense features are stored once, column by column
within each task; sparse ones keep their zeros, and what is left of the centring is applied implicitly:
:math:`\tilde X_k w = A_k w - 1 (\delta_k \cdot w)` with the stored :math:`A_k` and the shift :math:`\delta_k`.

Flat vectors are in task-major order: task k owns ``offsets[k]:offsets[k+1]``. A shared design (one X for all
tasks) is stored once, yet flat vectors have length K·n.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mssl.data.blocks import ROUNDING, DenseBlocks, SparseBlocks, task_totals
from mssl.exceptions import DataError

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_UNSCALED_RANGE = (1e-76, 1e76)  # features whose fourth powers doubles can hold
_SQUARE_RANGE = (1e-200, 1e200)  # sums of squares outside are computed again on rescaled columns


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
        own = bounds[[0, 1]] if shared else bounds
        weights, by_task = _split_weights(row_weights, K, shared)
        own_means = centre and centres is None and by_task is None
        kind = SparseBlocks if sparse.issparse(X) else DenseBlocks
        stored: DenseBlocks | SparseBlocks
        stored, means = kind.gather(X, own, weights, own_means)
        task_means = stored.means_of_shared(by_task) if by_task is not None else np.broadcast_to(means, (K, d))
        if centres is not None:
            target = np.broadcast_to(np.asarray(centres, dtype=float), (K, d))
        else:
            target = task_means if centre else np.zeros((K, d))
        base = means if own_means else target.mean(axis=0, keepdims=True) if shared else target
        if not own_means:
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
        centred = own_means or np.array_equal(target, np.broadcast_to(base, (K, d)))
        if sparse.issparse(X) or not centred:
            shift = (target - base) / sigma + (stored.shift if isinstance(stored, SparseBlocks) else 0.0)
        return cls(K, d, bounds, shared, np.array(target), sigma, shift, stored)

    def without_rows(self) -> Design:
        """Centres and scales alone, for those who have formed all products they need: the features are let go."""
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
        return self.stored.dot_shared(W) if self.shared else self.stored.dot(W)

    def stored_sums(self, r: Array) -> Array:
        """A_kᵀ r_k with the stored columns, the implicit shift left out: (N,) → (K, d).

        For a shared design, several or single blocks of n numbers may be given.
        """
        return self.stored.transposed_shared(r, int(self.offsets[1])) if self.shared else self.stored.transposed(r)

    def stored_squares(self, c: Array) -> Array:
        """Σ_i c_i a_ij² with the stored columns: (N,) → (K, d)."""
        if self.shared:
            return self.stored.squares_of_shared(c.reshape(self.n_tasks, -1))
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
        if products is None:
            products = self.stored_sums(r)
        if self.shift is not None:
            sums = sums - self.shift * self.task_sums(c)[:, None]
            products = products - self.shift * self.task_sums(r)[:, None]
        return gram, sums, products

    def _gram(self, c: Array, sums: bool, also: Array | None) -> tuple[Array, Any, Array | None]:
        if not self.shared:
            return self.stored.gram(c, self.shift, sums, also)
        table = c.reshape(-1, int(self.offsets[1]))
        shifts = self.shift if self.shift is not None and not sums else None
        if shifts is not None and len(table) < self.n_tasks:
            table = np.broadcast_to(table, (self.n_tasks, table.shape[1]))
        parts = [
            self.stored.gram(row, None if shifts is None else shifts[k : k + 1], sums) for k, row in enumerate(table)
        ]
        if len(parts) == 1:  # no copy
            return parts[0][0], parts[0][1], None
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]) if sums else None, None

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

    def from_user(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        """Weights and intercepts of the standardised features from those in original units."""
        return coef * self.scales, intercept + np.einsum("kd,kd->k", self.centres, coef)


def _bounds(n_given: int, offsets: Any, n_tasks: int | None) -> Index:
    if offsets is None:
        if n_tasks is None or n_tasks < 1:
            raise DataError(
                f"A shared design needs the number of tasks; n_tasks={n_tasks!r} came. Give offsets or n_tasks ≥ 1."
            )
        return n_given * np.arange(n_tasks + 1, dtype=np.int64)
    bounds = np.asarray(offsets, dtype=np.int64)
    if bounds.ndim != 1 or len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != n_given or np.any(np.diff(bounds) < 1):
        raise DataError(
            f"Offsets must rise from 0 to the number of rows ({n_given}), at least one row per task; {offsets!r} came."
        )
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
    largest = stored.peak()
    low, high = _UNSCALED_RANGE
    if largest > high or 0 < largest < low:
        raise DataError(
            f"The features vary by up to {largest:.2g} and are not scaled (scale_features=False); sums of squares can "
            f"be computed from {low:g} to {high:g}. Use scale_features=True, or other units (and penalties to suit)."
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
