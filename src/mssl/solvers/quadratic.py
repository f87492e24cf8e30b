r"""The quadratic loss of the weight step, intercepts eliminated, in two forms with one interface.

.. math:: \ell(W) = \sum_k \min_{b_k} \tfrac12 \sum_i c_{ki} (z_{ki} - \tilde x_{ki} \cdot w_k - b_k)^2
                  = \sum_k \tfrac12 w_k^\top H_k w_k - q_k \cdot w_k + \text{constant}

:class:`GramQuadratic` holds the :math:`H_k`: every alternation, path point and fold reuses them.
:class:`DesignQuadratic` multiplies by the features: for fewer rows than features, or where Grams do not fit.
Weights are stored (K, d), row k is :math:`w_k`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from scipy import linalg, sparse

from mssl._typing import Array, Mask
from mssl._validation import warn
from mssl.data.design import Design, default_memory_limit
from mssl.kernels import gram_products
from mssl.model.bounds import CompositeBound, WeightBound, quadratic_duality
from mssl.model.coupling import Coupling
from mssl.penalties import EntrywisePenalty, Penalty
from mssl.solvers.base import Unknowns

Apply = Callable[[Array], Array]

EPS = float(np.finfo(float).eps)
# The other constants trade time only.
STALE_RIDGE = (
    2.0  # factor of the ridge up to which an old preconditioner is used: more iterations, fewer factorisations
)
FEW_TASKS = 64  # tasks up to which one compiled call with a dense coupling beats separate products
_LIFT = 1e-12  # share of its diagonal that is added to a matrix that may be singular: what sums of products round by
BATCHED_UP_TO = 64  # features up to which batched inverses are faster than a loop over triangular solves
MANY_FEATURES = 100  # features from which on coordinate descent over all of them may take long
_LARGE = 2**16  # numbers in a task's features from which products with them cost more than the calls of working sets
_FEW = 200  # unknowns up to which a factor of the whole system costs less than iterations with one for each task
_MOST = 2000  # unknowns up to which it costs a quarter of a second at most
_ITERATIONS_PER_FACTOR = 1e-7  # times the cube of its unknowns: iterations that cost about as much as a factor
_SYLVESTER_FROM = 30  # features from which two eigendecompositions cost less than a few preconditioned iterations
_BLOCKWISE = 20  # at least so many come before it


_MOST_FORMED = 10**6  # numbers of Grams that no solver asked for, and that are formed where a loss is kept: 8 MB


class _Quadratic(ABC):
    """What both forms have in common: the terms :math:`q_k` and the loss of each task at W = 0."""

    linear: Array
    constants: Array

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return len(self.linear)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.linear.shape[1])

    @property
    def null_value(self) -> float:
        """The loss at W = 0."""
        return float(self.constants.sum())

    @abstractmethod
    def product(self, V: Array) -> Array:
        """H_k v_k."""

    def gradient(self, W: Array) -> Array:
        """H_k w_k − q_k."""
        return self.product(W) - self.linear

    @abstractmethod
    def task_values(self, W: Array) -> Array:
        """Loss of each task."""

    def value(self, W: Array) -> float:
        """The loss."""
        return float(self.task_values(W).sum())

    def fenchel(self, W: Array, scales: Array) -> Array:
        """Loss at W plus its conjugate at ``scales`` times the gradient in the predictors, task by task."""
        return quadratic_duality(self.task_values(W), np.vecdot(W, self.gradient(W)), scales)

    def at_zero(self) -> tuple[Array, Array]:
        """Gradient and value of each task at W = 0."""
        return -self.linear, self.constants


class GramQuadratic(_Quadratic):
    """Quadratic loss in the form of Gram matrices.

    Parameters
    ----------
    gram : ndarray of shape (K, d, d) or (1, d, d), or DesignQuadratic
        H_k, or one G for all tasks with H_k = scale[k] · G; or the rows from which Grams are formed when first asked
        for, since a strong penalty may never need them.
    linear : ndarray of shape (K, d)
        q_k.
    constants : ndarray of shape (K,)
        Loss of each task at W = 0.
    scale : ndarray of shape (K,), optional
        The factors of a common Gram; default ones.
    target_means, feature_means : ndarray of shapes (K,) and (K, d), optional
        Weighted means from which :meth:`intercepts` are computed; default zeros.
    ridge : ndarray of shape (K,), optional
        Ridges r_k that the H_k contain, which bounds may use; default zeros.

    Attributes
    ----------
    rows : DesignQuadratic or None
        The rows from which Grams are formed.
    """

    def __init__(
        self,
        gram: Array | DesignQuadratic,
        linear: Array,
        constants: Array,
        scale: Array | None = None,
        target_means: Array | None = None,
        feature_means: Array | None = None,
        ridge: Array | None = None,
    ) -> None:
        self.rows = gram if isinstance(gram, DesignQuadratic) else None
        if not isinstance(gram, DesignQuadratic):
            self.gram = gram
        self.linear, self.constants, self.scale = linear, constants, scale
        self.target_means, self.feature_means = target_means, feature_means
        self.ridge = np.zeros(len(linear)) if ridge is None else ridge
        self.task_scale = np.ones(len(linear)) if scale is None else np.asarray(scale, dtype=float)

    @classmethod
    def of_rows(cls, rows: DesignQuadratic) -> GramQuadratic:
        """The same loss as that of the rows, with Grams to be formed when first asked for."""
        means = rows.feature_sums / rows.safe_totals[:, None] if rows.intercept else None
        return cls(rows, rows.linear, rows.constants, None, rows.target_means, means, rows.ridge)

    def replaced(self, **changes: Any) -> GramQuadratic:
        """A copy with some attributes replaced; it shares the Grams and their eigendecomposition."""
        names = ("linear", "constants", "scale", "target_means", "feature_means", "ridge")
        fields = {name: getattr(self, name) for name in names}
        fields["gram"] = self.gram if self.pending is None else self.pending
        made = GramQuadratic(**(fields | changes))
        if "eigen" in self.__dict__ and "gram" not in changes:
            made.eigen = self.eigen
        if not changes.keys() & {"gram", "scale"}:
            made.kept = self.kept
        return made

    @property
    def pending(self) -> DesignQuadratic | None:
        """The rows from which Grams would be formed, while they are not."""
        return None if "gram" in self.__dict__ else self.rows

    def with_separate_grams(self) -> GramQuadratic:
        """A copy that forms its Grams for itself, so that the path of a fit does not depend on other fits."""
        return self if self.pending is None else self.replaced()

    def scaled(self, s: Array) -> GramQuadratic:
        """The same loss with task k multiplied by s_k."""
        changes = {"linear": s[:, None] * self.linear, "constants": s * self.constants, "ridge": s * self.ridge}
        return self.replaced(gram=self.gram, scale=s * self.task_scale, **changes)

    def of_unknowns(self, unknowns: Unknowns) -> GramQuadratic:
        """The same loss as a function of V; it knows no intercepts."""
        if unknowns.matrix is None:
            return self
        scale, n = unknowns.ridge(self.task_scale), unknowns.matrix.shape[1]
        gram = self.gram
        if unknowns.pooled and not self.is_shared:
            gram, scale = np.tensordot(self.task_scale, self.gram, axes=1)[None], np.ones(n)
        linear, constants = unknowns.gradient(self.linear), unknowns.task_sums(self.constants)
        return GramQuadratic(gram, linear, constants, scale, ridge=unknowns.ridge(self.ridge))

    def ridged(self, ridge: Array) -> GramQuadratic:
        """With ½ r_k ‖w_k‖² added to each task: an addition to the Grams."""
        if not np.any(ridge):
            return self
        if self.pending is not None:
            return GramQuadratic.of_rows(self.pending.ridged(ridge))
        share = ridge / self.task_scale
        one = self.is_shared and np.ptp(share) <= 1e-14 * float(share.max())
        gram = np.array(self.gram if one or not self.is_shared else np.repeat(self.gram, self.n_tasks, axis=0))
        np.einsum("kdd->kd", gram)[...] += share[: len(gram), None]
        return self.replaced(gram=gram, ridge=self.ridge + ridge)

    @cached_property
    def gram(self) -> Array:
        """H_k, (K, d, d), or G, (1, d, d), ridges included."""
        assert self.rows is not None
        gram = self.rows.design.gram(self.rows.c, intercept=self.rows.intercept)
        if np.any(self.rows.ridge):
            np.einsum("kdd->kd", gram)[...] += self.rows.ridge[:, None]
        return gram

    @property
    def is_shared(self) -> bool:
        """One Gram for all tasks."""
        return self.rows is None and len(self.gram) == 1

    def product(self, V: Array) -> Array:
        """H_k v_k."""
        if self.is_shared:
            return np.asarray((V @ self.gram[0]) * self.task_scale[:, None])
        return gram_products(np.ascontiguousarray(self.gram), self.task_scale, np.ascontiguousarray(V))

    def task_values(self, W: Array) -> Array:
        """Loss of each task."""
        return np.asarray(self.constants + np.einsum("kd,kd->k", W, 0.5 * self.product(W) - self.linear))

    @cached_property
    def diagonal(self) -> Array:
        """Diagonals of the H_k, (K, d)."""
        if self.rows is not None:
            return self.rows.diagonal
        return np.asarray(np.einsum("kdd->kd", self.gram) * self.task_scale[:, None])

    def gram_of(self, k: int, features: Mask) -> Array:
        """H_k on some features."""
        return np.asarray(self.task_scale[k] * self.gram[0 if self.is_shared else k][np.ix_(features, features)])

    def intercepts(self, W: Array) -> Array:
        """The minimising intercepts."""
        b = np.zeros(self.n_tasks) if self.target_means is None else self.target_means.copy()
        if self.feature_means is not None:
            b -= np.vecdot(self.feature_means, W)
        return b

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What solvers keep for their next call; not pickled."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "kept"}

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of a common Gram."""
        values, vectors = np.linalg.eigh(self.gram[0])
        return np.maximum(values, 0.0), vectors


class DesignQuadratic(_Quadratic):
    """Quadratic loss in the form of the design: products cost O(N d), no d × d matrix is formed.

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
    ridge : ndarray of shape (K,), optional
        Adds ½ r_k ‖w_k‖² to each task.
    """

    def __init__(self, design: Design, c: Array, z: Array, intercept: bool = True, ridge: Array | None = None) -> None:
        self.ridge = np.zeros(design.n_tasks) if ridge is None else ridge
        self.design, self.c, self.intercept = design, np.array(c, dtype=float), intercept
        self.totals = design.task_sums(self.c)
        self.safe_totals = np.where(self.totals > 0, self.totals, 1.0)
        self.target_means = design.task_sums(self.c * z) / self.safe_totals if intercept else np.zeros(design.n_tasks)
        self.target = z - design.per_task(self.target_means)
        self.constants = 0.5 * design.task_sums(self.c * self.target**2)
        # With Σ c·target = 0 the features need no centring here.
        self.linear = design.backproject(self.c * self.target)

    def scaled(self, s: Array) -> DesignQuadratic:
        """The same loss with task k multiplied by s_k."""
        return DesignQuadratic(self.design, self.design.per_task(s) * self.c, self.z, self.intercept, s * self.ridge)

    def of_unknowns(self, unknowns: Unknowns) -> Quadratic:
        """The same loss as a function of V."""
        if unknowns.matrix is None:
            return self
        if unknowns.pooled:
            return GramQuadratic.of_rows(self).of_unknowns(unknowns)
        factors = self.design.per_task(unknowns.matrix.diagonal())
        c, z = self.c * factors**2, self.z / factors
        return DesignQuadratic(self.design, c, z, self.intercept, unknowns.ridge(self.ridge))

    def ridged(self, ridge: Array) -> DesignQuadratic:
        """With ½ r_k ‖w_k‖² added to each task."""
        return DesignQuadratic(self.design, self.c, self.z, self.intercept, self.ridge + ridge)

    @property
    def z(self) -> Array:
        """The targets."""
        return self.target + self.design.per_task(self.target_means)

    def _fitted(self, W: Array) -> Array:
        """X̃w less its weighted task means where intercepts are free."""
        if not np.any(W):
            return np.zeros(len(self.c))
        fit = self.design.predictor(W)
        if self.intercept:
            fit = fit - self.design.per_task(self.design.task_sums(self.c * fit) / self.safe_totals)
        return fit

    def residual(self, W: Array) -> Array:
        """Residual z − X̃w − b with the minimising intercepts, (N,)."""
        return self.target - self._fitted(W)

    def product(self, V: Array) -> Array:
        """H_k v_k."""
        return self.design.backproject(self.c * self._fitted(V)) + self.ridge[:, None] * V

    def gradient(self, W: Array) -> Array:
        """r_k w_k − X̃ᵀ(c · residual)."""
        return self.ridge[:, None] * W - self.design.backproject(self.c * self.residual(W))

    def task_values(self, W: Array) -> Array:
        """Loss of each task."""
        lost = self.design.task_sums(self.c * self.residual(W) ** 2)
        return np.asarray(0.5 * (lost + self.ridge * np.einsum("kd,kd->k", W, W)))

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

    def block(self, k: int, features: Mask | None = None) -> Array:
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

    def gram_of(self, k: int, features: Mask) -> Array:
        """H_k on some features."""
        block = self.block(k, features)
        gram = np.asarray(block.T @ block)
        gram[np.diag_indices(len(gram))] += self.ridge[k]
        return gram

    @cached_property
    def row_diagonal(self) -> Array:
        """Diagonals of the H_k without ridges."""
        mu, sums = self.column_means, self.column_sums
        squares = self.design.stored_squares(self.c)
        centred = squares - 2 * mu * sums + self.totals[:, None] * mu**2
        return np.where(centred > 1e-14 * squares, centred, 0.0)

    @cached_property
    def diagonal(self) -> Array:
        """Diagonals of the H_k, (K, d)."""
        return self.row_diagonal + self.ridge[:, None]


Quadratic = GramQuadratic | DesignQuadratic


def make_quadratic(
    design: Design,
    c: Array,
    z: Array,
    *,
    intercept: bool = True,
    memory_limit: int | None = None,
    n_rows: Array | None = None,
    defer: bool = True,
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
    memory_limit : int, optional
        Bytes that Grams may take; default a quarter of the machine's memory, at most 2 GiB.
    n_rows : ndarray of shape (K,), optional
        How many rows each task counts as when the form is chosen; default those of the design.
    defer : bool
        Whether large Grams of separate features are formed only when needed; with a strong penalty they never are.

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
    counts = design.n_rows if n_rows is None else n_rows
    # Grams are then at most twice the data, and descent on them is two or three times faster.
    needed = 0.5 * design.n_features
    enough_rows = needed <= float(counts.min()) or needed <= float(np.median(counts))
    if not enough_rows or tell_beyond(8 * matrices * design.n_features**2, memory_limit, "Grams"):
        return DesignQuadratic(design, c, z, intercept)
    if defer and common is None and not design.is_sparse and pays_in_sets(design):
        return GramQuadratic.of_rows(DesignQuadratic(design, c, z, intercept))
    weights, scale = (c, None) if common is None else common
    if not intercept:
        gram = design.gram(weights, intercept=False)
        weighted = c * z
        return GramQuadratic(gram, design.backproject(weighted), 0.5 * design.task_sums(weighted * z), scale)
    totals = design.task_sums(c)
    safe = np.where(totals > 0, totals, 1.0)
    target_means = design.task_sums(c * z) / safe
    target = z - design.per_task(target_means)
    weighted = c * target
    gram, sums, linear = design.normal_equations(weights, weighted)
    feature_means = np.broadcast_to(sums / (safe[:, None] if common is None else safe[0]), linear.shape)
    constants = 0.5 * design.task_sums(weighted * target)
    return GramQuadratic(gram, linear, constants, scale, target_means, feature_means)


def without_rows(quadratic: GramQuadratic | DesignQuadratic) -> GramQuadratic | DesignQuadratic:
    """The same loss for those who keep it: its Grams alone, unless they are too many to be formed for that."""
    if isinstance(quadratic, DesignQuadratic):
        return quadratic
    kept = quadratic.replaced()
    formed = kept.pending is None or kept.n_tasks * kept.n_features**2 > _MOST_FORMED
    return kept if formed else kept.replaced(gram=kept.gram)


def tell_beyond(size: int, memory_limit: int | None, what: str) -> bool:
    """Whether something would take more bytes than it may, so that the rows serve instead, which is told."""
    limit = default_memory_limit() if memory_limit is None else memory_limit
    if size > limit:
        warn(
            f"{what} would take {size / 2**20:.3g} MiB, and memory_limit allows {limit / 2**20:.3g} MiB: the fit "
            "multiplies by the rows instead, which takes longer. Raise memory_limit if there is room."
        )
    return size > limit


def pays_in_sets(design: Design) -> bool:
    """Whether products with a typical task's features cost more than the calls around them."""
    return bool(design.n_features >= MANY_FEATURES and np.median(design.n_rows) * design.n_features >= _LARGE)


L = TypeVar("L")


@dataclass(frozen=True, eq=False)
class StepProblem(Generic[L]):
    r"""What a weight step minimises, :math:`\ell(W) + \tfrac12\operatorname{tr}(WCW^\top) + g(W)`.

    Attributes
    ----------
    loss : GramQuadratic, DesignQuadratic or other quadratic
        The loss.
    coupling : Coupling
        C; without a rank-one part where the penalty ties the tasks together.
    penalty : EntrywisePenalty or Penalty
        g.
    """

    loss: L
    coupling: Coupling
    penalty: EntrywisePenalty | Penalty

    @classmethod
    def of(
        cls, loss: Quadratic, coupling: Coupling, penalty: EntrywisePenalty | Penalty | Array | None = None
    ) -> StepProblem[Quadratic]:
        """The problem for a quadratic loss; an array of shape (K,) or (K, d) stands for ℓ1 strengths, None for none."""
        if not isinstance(penalty, Penalty):
            strengths = np.zeros(loss.n_tasks) if penalty is None else penalty
            penalty = EntrywisePenalty.of(strengths, loss.linear.shape)
        return StepProblem(loss, coupling, penalty)

    @property
    def _smooth(self) -> Any:
        """The loss, whose class says which of the methods it has."""
        return self.loss

    @property
    def single(self) -> EntrywisePenalty:
        """The penalty, which is a sum over single weights."""
        assert isinstance(self.penalty, EntrywisePenalty)
        return self.penalty

    @cached_property
    def bound(self) -> WeightBound:
        """The bound of the suboptimality for a penalty on single weights."""
        return WeightBound(self.coupling, self.single, self._smooth, self._smooth.ridge)

    @cached_property
    def certificate(self) -> Callable[[Array, Array], float]:
        """The bound as a function of the weights and the gradient of loss plus coupling."""
        if isinstance(self.penalty, EntrywisePenalty):
            return self.bound
        composite = self.composite
        return lambda V, G: composite(self.smooth(V, G), V, G)

    @property
    def certified(self) -> bool:
        """Whether the certificate is a bound, and not a violation of the optimality condition."""
        return self.penalty.convex if isinstance(self.penalty, EntrywisePenalty) else self.composite.certified

    @cached_property
    def composite(self) -> CompositeBound:
        """The bound for a penalty that ties the tasks together."""
        assert isinstance(self.penalty, Penalty)
        gradient, value = self.at_zero()
        return CompositeBound(self.coupling, self.penalty, gradient, value)

    def at_zero(self) -> tuple[Array, float]:
        """Gradient and value of the loss at zero."""
        return -self._smooth.linear, self._smooth.null_value

    def smooth(self, V: Array, G: Array) -> float:
        """Loss and coupling: a quadratic grows from zero to V by the mean of its slopes along V at both ends."""
        return float(self._smooth.null_value) + 0.5 * float(np.vdot(V, G - self._smooth.linear))

    def product(self, V: Array) -> Array:
        """The Hessian of loss and coupling times V."""
        product: Array = self._smooth.product(V) + self.coupling.dot(V)
        return product

    def gradient(self, W: Array) -> Array:
        """Gradient of loss and coupling."""
        gradient: Array = self._smooth.gradient(W) + self.coupling.dot(W)
        return gradient

    def value(self, W: Array) -> float:
        """Loss, coupling and penalty."""
        return float(self._smooth.value(W)) + self.coupling.value(W) + self.penalty.value(W)


def value_rounding(problem: Quadratic, W: Array) -> float:
    """What rounding may make of the loss at W: the terms of which Grams make it can be much larger than it is."""
    terms = np.vecdot(np.sqrt(np.maximum(problem.diagonal, 0.0)), np.abs(W))  # its square is at least |w|ᵀ|H||w|
    if isinstance(problem, GramQuadratic):
        return EPS * (float(terms @ terms) + problem.null_value)
    errors, values = EPS * terms, problem.task_values(W)
    return float(errors @ (np.sqrt(2.0 * values) + errors)) + EPS * float(values.sum())


def sylvester(problem: GramQuadratic, coupling: Coupling) -> Apply:
    r"""The inverse of :math:`s_k G w_k + (CW)_k` for one Gram G, by its eigenvectors and those of :math:`\tilde C`.

    Substituting :math:`w_k = v_k / \sqrt{s_k}` makes it :math:`V G + \tilde C V` with
    :math:`\tilde C = S^{-1/2} C S^{-1/2}`, diagonal in the two eigenbases.
    """
    root = np.sqrt(problem.task_scale)[:, None]
    values, U = problem.eigen
    task_values, E = linalg.eigh(coupling.dense() / root / root.T)
    sums = np.maximum(task_values, 0.0)[:, None] + values
    floor = len(values) * EPS * float(sums.max(initial=0.0))
    inverse = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > floor)
    return lambda R: np.asarray(E @ ((E.T @ (R / root) @ U) * inverse) @ U.T / root)


def block_preconditioner(problem: Quadratic, ridge: Array) -> Callable[[Array], Array]:
    """Inverse of H_k + ridge_k I per task; of its diagonal where there are no Grams.

    The inverses are kept with the problem: alternations change the ridge, but soon by little, and a preconditioner need
    not be exact.
    """
    if not isinstance(problem, GramQuadratic):
        diagonal = problem.diagonal + ridge[:, None]
        safe = np.where(diagonal > 0, diagonal, 1.0)
        return lambda R: R / safe
    if problem.is_shared:
        values, U = problem.eigen
        sums = problem.task_scale[:, None] * values + ridge[:, None]
        floor = len(values) * EPS * float(sums.max(initial=0.0))
        weights = 1.0 / np.maximum(sums, floor if floor > 0 else 1.0)
        return lambda R: (R @ U) * weights @ U.T
    known = problem.kept.get("preconditioner")
    if known is not None and np.all(known[0] <= STALE_RIDGE * ridge) and np.all(ridge <= STALE_RIDGE * known[0]):
        return known[1]
    apply = _block_inverses(problem, ridge)
    problem.kept["preconditioner"] = (ridge, apply)
    return apply


def _block_inverses(problem: GramQuadratic, ridge: Array) -> Apply:
    blocks = problem.gram * problem.task_scale[:, None, None]
    if problem.n_features <= BATCHED_UP_TO:
        diagonals = np.einsum("kdd->kd", blocks)
        diagonals[...] = _lifted(diagonals, ridge[:, None], _LIFT)
        inverses = np.linalg.inv(blocks)
        return lambda R: np.matmul(inverses, R[:, :, None])[:, :, 0]
    factors = [regular_factor(block, r) for block, r in zip(blocks, ridge, strict=True)]
    return lambda R: np.stack([linalg.cho_solve(f, r, check_finite=False) for f, r in zip(factors, R, strict=True)])


def preconditioners(step: StepProblem[Quadratic], support: Mask | None = None) -> Iterator[tuple[Apply, float]]:
    """Preconditioners of H + C for the weights of a support, or for all, each with the iterations that it is good for.

    The first is an inverse for each task. Where C ties tasks so closely that these iterations, which cost as much as a
    factor of the whole system, are not enough, that factor follows, if it is of moderate size.
    """
    problem, coupling = step.loss, step.coupling
    many = support is None and problem.n_features >= _SYLVESTER_FROM
    if many and isinstance(problem, GramQuadratic) and problem.is_shared and np.all(problem.task_scale > 0):
        yield sylvester(problem, coupling), np.inf
        return
    weights = np.full(problem.linear.shape, True) if support is None else support
    size = int(np.count_nonzero(weights))
    related = bool(coupling.rho) or len(coupling.compressed[2]) > coupling.n_tasks
    exact_by_task = support is not None or isinstance(problem, GramQuadratic)
    whole = size <= _MOST and (related or not exact_by_task)
    if not whole or size > _FEW:
        ridge = coupling.diagonal()
        by_task = block_preconditioner(problem, ridge) if support is None else _on_support(problem, ridge, support)
        yield by_task, max(_BLOCKWISE, round(_ITERATIONS_PER_FACTOR * size**3)) if whole else np.inf
    if whole:
        yield _whole_inverse(problem, coupling, weights), np.inf


def _on_support(problem: Quadratic, ridge: Array, support: Mask) -> Apply:
    """Inverse of H_k + ridge_k I on each task's support, padded to a common width."""
    counts = support.sum(axis=1)
    width = counts.max(initial=1)
    first = np.argsort(~support, axis=1, kind="stable")[:, :width]  # of the support, then others
    inverses, ones = np.zeros((len(support), width, width)), np.ones(len(support))
    for k in np.flatnonzero(counts).tolist():
        factor = regular_factor(problem.gram_of(k, support[k]), ridge[k])
        inverses[k, : counts[k], : counts[k]] = linalg.cho_solve(factor, np.eye(counts[k]), check_finite=False)

    def apply(R: Array) -> Array:
        out = np.zeros_like(R)
        inside = gram_products(inverses, ones, np.take_along_axis(R, first, axis=1))
        np.put_along_axis(out, first, inside, axis=1)
        return np.where(support, out, 0.0)

    return apply


def _whole_inverse(problem: Quadratic, coupling: Coupling, support: Mask) -> Apply:
    """Inverse of H + C on a support of all tasks together: one factor, for few unknowns that C ties closely."""
    tasks, features = np.nonzero(support)
    A = coupling.dense()[np.ix_(tasks, tasks)] * (features[:, None] == features)
    for k in np.unique(tasks).tolist():
        own = np.flatnonzero(tasks == k)
        A[np.ix_(own, own)] += problem.gram_of(k, support[k])
    factor = regular_factor(A, 0.0)

    def apply(R: Array) -> Array:
        out = np.zeros_like(R)
        out[support] = linalg.cho_solve(factor, R[support], check_finite=False)
        return out

    return apply


def regular_factor(block: Array, ridge: float) -> tuple[Array, bool]:
    """Cholesky factor of a Gram matrix + ridge I, lifted as far as rounding needs; a preconditioner need not be exact.

    The lift is a share of each diagonal entry, so that features keep their digits whatever their sizes are.
    """
    diagonal, lift = block.diagonal().copy(), _LIFT
    while True:
        np.fill_diagonal(block, _lifted(diagonal, ridge, lift))
        try:
            # Blocks are symmetric, and LAPACK takes their transposes without a copy.
            return linalg.cho_factor(block.T, lower=True, check_finite=False)
        except linalg.LinAlgError:
            lift *= 100.0
            if not np.isfinite(lift):
                raise


def _lifted(diagonal: Array, ridge: Any, lift: float) -> Array:
    """A diagonal with a ridge and a share of itself added; 1 where both are 0."""
    raised = (1.0 + lift) * (diagonal + ridge)
    return np.where(raised > 0, raised, 1.0)
