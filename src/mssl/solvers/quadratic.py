r"""The quadratic loss of the weight step, intercepts eliminated, in two forms with one interface.

.. math:: \ell(W) = \sum_k \min_{b_k} \tfrac12 \sum_i c_{ki} (z_{ki} - \tilde x_{ki} \cdot w_k - b_k)^2
                  = \sum_k \tfrac12 w_k^\top H_k w_k - q_k \cdot w_k + \text{constant}

:class:`GramQuadratic` holds the :math:`H_k`: every alternation, path point and fold reuses them.
:class:`DesignQuadratic` multiplies by the features: for fewer rows than features, or where Grams do not fit.
Weights are stored (K, d), row k is :math:`w_k`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from mssl.data.design import Design
from mssl.model.bounds import weight_gap
from mssl.model.coupling import Coupling

Array = NDArray[np.float64]

MOST_GRAM_BYTES = 2 * 2**30
MANY_FEATURES = 100  # from which coordinate descent on all of them may take long
_LARGE = 2**16  # numbers in a task's features from which working sets pay
_ROWS_PER_FEATURE = 0.5  # from here on Grams are at most twice the data, and descent on them is 2–3 times faster


class Smooth(Protocol):
    """A convex smooth loss of W; all that FISTA needs."""

    def value(self, W: Array) -> float:
        """Loss at W."""
        ...

    def gradient(self, W: Array) -> Array:
        """Gradient at W, (K, d)."""
        ...


class Quadratic(Smooth, Protocol):
    """A convex quadratic loss that is a sum over tasks."""

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        ...

    @property
    def n_features(self) -> int:
        """Number of features d."""
        ...

    @property
    def linear(self) -> Array:
        """The q_k, (K, d)."""
        ...

    def task_values(self, W: Array) -> Array:
        """Loss of each task, (K,)."""
        ...

    def product(self, V: Array) -> Array:
        """H_k v_k, (K, d)."""
        ...

    def diagonal(self) -> Array:
        """Diagonals of the H_k, (K, d)."""
        ...

    def intercepts(self, W: Array) -> Array:
        """The minimising intercepts, (K,)."""
        ...


@dataclass(frozen=True, eq=False)
class GramQuadratic:
    """Quadratic loss held by its Gram matrices.

    Attributes
    ----------
    gram : ndarray of shape (K, d, d) or (1, d, d)
        H_k, or one G for all tasks with H_k = task_scale[k] · G. Formed when first asked for, where it was put off.
    linear : ndarray of shape (K, d)
        q_k.
    constants : ndarray of shape (K,)
        Loss of each task at W = 0.
    scale : ndarray of shape (K,) or None
        The factors of a common Gram; None for ones.
    target_means, feature_means : ndarray of shapes (K,) and (K, d), or None
        Weighted means from which :meth:`intercepts` are computed; None for zeros.
    """

    gram: Array
    linear: Array
    constants: Array
    scale: Array | None = None
    target_means: Array | None = None
    feature_means: Array | None = None

    @classmethod
    def put_off(cls, rows: DesignQuadratic, constants: Array) -> GramQuadratic:
        """Grams that nobody may need: they are formed when first asked for, and until then :attr:`rows` serve."""
        made = object.__new__(cls)
        made.__dict__.update(linear=rows.linear, constants=constants, target_means=rows.target_means, rows=rows)
        if rows.intercept:
            made.__dict__["feature_means"] = rows.feature_sums / rows.safe_totals[:, None]
        return made

    def __getattr__(self, name: str) -> Any:
        # Only what is missing comes here.
        rows = self.__dict__.get("rows")
        if name != "gram" or rows is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        self.__dict__["gram"] = rows.design.gram(rows.c, intercept=rows.intercept)
        del self.__dict__["rows"]
        return self.__dict__["gram"]

    rows = None

    def own(self) -> GramQuadratic:
        """The same, to form Grams in that others do not see."""
        return self if self.rows is None else GramQuadratic.put_off(self.rows, self.constants)

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return len(self.linear)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.linear.shape[1])

    @property
    def is_shared(self) -> bool:
        """One Gram for all tasks."""
        return len(self.gram) == 1

    @cached_property
    def task_scale(self) -> Array:
        """Factors of the Gram, (K,)."""
        return np.ones(self.n_tasks) if self.scale is None else np.asarray(self.scale, dtype=float)

    @property
    def null_value(self) -> float:
        """The loss at W = 0."""
        return float(self.constants.sum())

    def product(self, V: Array) -> Array:
        """H_k v_k."""
        if self.is_shared:
            return np.asarray((V @ self.gram[0]) * self.task_scale[:, None])
        return np.asarray(np.matmul(self.gram, V[:, :, None])[:, :, 0] * self.task_scale[:, None])

    def gradient(self, W: Array) -> Array:
        """H_k w_k − q_k."""
        return self.product(W) - self.linear

    def task_values(self, W: Array) -> Array:
        """Loss of each task."""
        return np.asarray(self.constants + np.einsum("kd,kd->k", W, 0.5 * self.product(W) - self.linear))

    def value(self, W: Array) -> float:
        """The loss."""
        return float(self.task_values(W).sum())

    def diagonal(self) -> Array:
        """Diagonals of the H_k."""
        return np.asarray(np.einsum("kdd->kd", self.gram) * self.task_scale[:, None])

    def intercepts(self, W: Array) -> Array:
        """The minimising intercepts."""
        b = np.zeros(self.n_tasks) if self.target_means is None else self.target_means.copy()
        if self.feature_means is not None:
            b -= np.vecdot(self.feature_means, W)
        return b

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What solvers want to find again at their next call; not pickled."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in {"gram": self.gram, **self.__dict__}.items() if name != "kept"}

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of a common Gram."""
        values, vectors = np.linalg.eigh(self.gram[0])
        return np.maximum(values, 0.0), vectors


class DesignQuadratic:
    """Quadratic loss held by the design: products cost O(N d), no d × d matrix is formed.

    Parameters
    ----------
    design : Design
        Features.
    c : ndarray of shape (N,)
        Row weights ≥ 0.
    z : ndarray of shape (N,)
        Targets.
    intercept : bool
        Whether each task has a free intercept.
    """

    def __init__(self, design: Design, c: Array, z: Array, intercept: bool = True) -> None:
        self.design, self.c, self.intercept = design, np.array(c, dtype=float), intercept
        self.totals = design.task_sums(self.c)
        self.safe_totals = np.where(self.totals > 0, self.totals, 1.0)
        self.target_means = design.task_dots(self.c, z) / self.safe_totals if intercept else np.zeros(design.n_tasks)
        self.target = design.less(z, self.target_means)
        # With Σ c·target = 0 the features need no centring here.
        self.linear = design.backproject(self.c * self.target)

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return self.design.n_tasks

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.design.n_features

    @property
    def null_value(self) -> float:
        """The loss at W = 0."""
        return 0.5 * float(np.dot(self.c, self.target**2))

    def _fitted(self, W: Array) -> Array:
        """X̃w less its weighted task means where intercepts are free."""
        if not np.any(W):
            return np.zeros(len(self.c))
        fit = self.design.predictor(W)
        if self.intercept:
            fit = self.design.less(fit, self.design.task_dots(self.c, fit) / self.safe_totals)
        return fit

    def residual(self, W: Array) -> Array:
        """Residual z − X̃w − b with the minimising intercepts, (N,)."""
        return self.target - self._fitted(W)

    def product(self, V: Array) -> Array:
        """H_k v_k."""
        return self.design.backproject(self.c * self._fitted(V))

    def gradient(self, W: Array) -> Array:
        """−X̃ᵀ(c · residual)."""
        return -self.design.backproject(self.c * self.residual(W))

    def task_values(self, W: Array) -> Array:
        """Loss of each task."""
        return 0.5 * self.design.task_sums(self.c * self.residual(W) ** 2)

    def value(self, W: Array) -> float:
        """The loss."""
        return float(self.task_values(W).sum())

    def intercepts(self, W: Array) -> Array:
        """The minimising intercepts."""
        if not self.intercept:
            return np.zeros(self.n_tasks)
        return self.target_means - np.einsum("kd,kd->k", self.feature_sums, W) / self.safe_totals

    @cached_property
    def column_sums(self) -> Array:
        """Σ_i c_i a_ij with the stored columns, (K, d)."""
        return self.design.stored_sums(self.c)

    @property
    def feature_sums(self) -> Array:
        """Σ_i c_i x̃_ij, (K, d)."""
        shift = self.design.shift
        return self.column_sums if shift is None else self.column_sums - shift * self.totals[:, None]

    @cached_property
    def column_means(self) -> Array:
        """What has to be subtracted from the stored columns: their mean, or the shift without intercepts, (K, d)."""
        if self.intercept:
            return self.column_sums / self.safe_totals[:, None]
        return np.zeros(self.linear.shape) if self.design.shift is None else self.design.shift

    def block(self, k: int, features: NDArray[np.bool_] | None = None) -> Array:
        """√c (X̃_k − means) as a dense (n_k, d) array, or some of its columns."""
        store, design = self.design.columns, self.design
        n, d = int(design.n_rows[k]), self.n_features
        first, last = store.base[k], store.base[k] + d
        data = store.data[store.indptr[first] : store.indptr[last]]
        chosen = slice(None) if features is None else features
        if store.is_sparse:
            starts = store.indptr[first : last + 1] - store.indptr[first]
            places = store.indices[store.indptr[first] : store.indptr[last]] + store.row_start[k] - design.offsets[k]
            dense = sparse.csc_array((data, places, starts), shape=(n, d))[:, chosen].toarray()
        else:
            dense = data.reshape(d, n)[chosen].T
        weights = self.c[design.offsets[k] : design.offsets[k + 1]]
        return np.asarray(np.sqrt(weights)[:, None] * (dense - self.column_means[k][chosen]))

    @cached_property
    def _diagonal(self) -> Array:
        mu, sums = self.column_means, self.column_sums
        squares = self.design.stored_squares(self.c)
        centred = squares - 2 * mu * sums + self.totals[:, None] * mu**2
        return np.where(centred > 1e-14 * squares, centred, 0.0)

    def diagonal(self) -> Array:
        """Diagonals of the H_k."""
        return self._diagonal


def make_quadratic(
    design: Design,
    c: Array,
    z: Array,
    *,
    intercept: bool = True,
    memory_budget: int | None = None,
    n_rows: Array | None = None,
    put_off: bool = True,
    form: Callable[[Array, Array], tuple[Array, Array, Array]] | None = None,
) -> GramQuadratic | DesignQuadratic:
    """Choose the form: Grams where they fit the budget and typical tasks have at least half as many rows as features.

    Parameters
    ----------
    design : Design
        Features.
    c, z : ndarray of shape (N,)
        Row weights ≥ 0 and targets.
    intercept : bool
        Whether each task has a free intercept.
    memory_budget : int, optional
        Bytes that Grams may take; default a quarter of the machine's memory, at most 2 GiB.
    n_rows : ndarray of shape (K,), optional
        How many rows each task counts as when the form is chosen; default those of the design.
    put_off : bool
        Whether large Grams of own features may wait until they are asked for; a strong penalty never does.
    form : callable, optional
        Used instead of :meth:`mssl.data.design.Design.normal_equations`.

    Returns
    -------
    GramQuadratic or DesignQuadratic

    Examples
    --------
    >>> import numpy as np
    >>> design = Design.build(np.arange(6.0).reshape(6, 1), [0, 3, 6], scale=False)
    >>> loss = make_quadratic(design, np.ones(6), np.array([0.0, 1, 2, 0, 2, 4]))
    >>> float(loss.value(np.array([[1.0], [2.0]]))), loss.intercepts(np.zeros((2, 1)))
    (0.0, array([1., 2.]))
    """
    common = design.common_weights(c)
    matrices = design.n_tasks if common is None else 1
    budget = default_memory_budget() if memory_budget is None else memory_budget
    rows = design.n_rows if n_rows is None else n_rows
    needed = _ROWS_PER_FEATURE * design.n_features
    enough_rows = needed <= float(rows.min()) or needed <= float(np.median(rows))
    if 8 * matrices * design.n_features**2 > budget or not enough_rows:
        return DesignQuadratic(design, c, z, intercept)
    if put_off and common is None and not design.is_sparse and pays_in_sets(design):
        deferred = DesignQuadratic(design, c, z, intercept)
        return GramQuadratic.put_off(deferred, deferred.task_values(np.zeros(deferred.linear.shape)))
    weights, scale = (c, None) if common is None else common
    if not intercept:
        gram = design.gram(weights, intercept=False)
        weighted = c * z
        return GramQuadratic(gram, design.backproject(weighted), 0.5 * design.task_dots(weighted, z), scale)
    totals = design.task_sums(c)
    safe = np.where(totals > 0, totals, 1.0)
    target_means = design.task_dots(c, z) / safe
    target = design.less(z, target_means)
    weighted = c * target
    gram, sums, linear = (form or design.normal_equations)(weights, weighted)
    feature_means = np.broadcast_to(sums / (safe[:, None] if common is None else safe[0]), linear.shape)
    constants = 0.5 * design.task_dots(weighted, target)
    return GramQuadratic(gram, linear, constants, scale, target_means, feature_means)


def pays_in_sets(design: Design) -> bool:
    """Whether products with a typical task's features cost more than the calls around them."""
    return bool(design.n_features >= MANY_FEATURES and np.median(design.n_rows) * design.n_features >= _LARGE)


def default_memory_budget() -> int:
    """A quarter of the machine's memory, at most 2 GiB."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system tells
        return MOST_GRAM_BYTES
    return min(memory // 4, MOST_GRAM_BYTES)


def objective_value(problem: Smooth, W: Array, coupling: Coupling, threshold: Array) -> float:
    """loss(W) + ½ tr(W C Wᵀ) + Σ_k t_k ‖w_k‖₁."""
    return problem.value(W) + coupling.value(W) + float(threshold @ np.abs(W).sum(axis=1))


def quadratic_gap(problem: Quadratic, W: Array, coupling: Coupling, threshold: Array, G: Array | None = None) -> float:
    r"""Upper bound of the suboptimality of W, by the certificate that fits the coupling.

    For C ≻ 0 this is :func:`mssl.model.bounds.weight_gap`. For a singular C the loss and the coupling are read as
    the squares of an augmented residual r, and the Fenchel dual :math:`s \langle z, r \rangle - \tfrac12 s^2 \|r\|^2`
    is taken at r scaled into feasibility, one s per connected component of tasks. Tasks without penalty contribute
    their gradient norm relative to that at W = 0, in units of the loss at W = 0.

    Parameters
    ----------
    problem : Quadratic
        The loss.
    W : ndarray of shape (K, d)
        Weights.
    coupling : Coupling
        C.
    threshold : ndarray of shape (K,)
        ℓ1 strengths.
    G : ndarray of shape (K, d), optional
        Gradient of loss plus coupling at W, where it is known.
    """
    if G is None:
        G = problem.gradient(W) + coupling.dot(W)
    if coupling.covariance is not None:
        return weight_gap(W, G, coupling, threshold)
    return _dual_gap(problem, W, G, coupling, threshold)


def _dual_gap(problem: Quadratic, W: Array, G: Array, coupling: Coupling, threshold: Array) -> float:
    n_parts, part = (1, np.zeros(len(W), dtype=int))
    if not coupling.rho:
        n_parts, part = connected_components(coupling.matrix, directed=False)

    def pooled(values: Array) -> Array:
        return np.asarray(np.bincount(part, weights=values, minlength=n_parts), dtype=float)

    half_square = pooled(problem.task_values(W) + 0.5 * np.einsum("kd,kd->k", W, coupling.dot(W)))
    along = 2 * half_square - pooled(np.einsum("kd,kd->k", W, G))
    largest = np.abs(G).max(axis=1, initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.full(n_parts, np.inf)
        np.minimum.at(room, part, np.where(largest > threshold, threshold / largest, np.inf))
        best = np.where(half_square > 0, along / (2 * half_square), 0.0)
    # For tasks whose largest |gradient| is below the threshold s may exceed 1; 1 is optimal enough and safe.
    s = np.clip(best, 0.0, np.minimum(room, 1.0))
    primal = half_square + pooled(threshold * np.abs(W).sum(axis=1))
    gaps = np.maximum(primal - (s * along - s**2 * half_square), 0.0)
    free = pooled(threshold) == 0
    if np.any(free):
        zero = np.zeros_like(W)
        norms = np.sqrt(pooled((G**2).sum(axis=1)))
        initial = np.sqrt(pooled((problem.linear**2).sum(axis=1)))
        relative = norms / np.where(initial > 0, initial, 1.0)
        gaps = np.where(free, relative * pooled(problem.task_values(zero)), gaps)
    return float(gaps.sum())
