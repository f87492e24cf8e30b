r"""The quadratic loss of the weight step, intercepts eliminated, and the problem of one step.

.. math:: \ell(W) = \sum_k \min_{b_k} \tfrac12 \sum_i c_{ki} (z_{ki} - \tilde x_{ki} \cdot w_k - b_k)^2
                  = \sum_k \tfrac12 w_k^\top H_k w_k - q_k \cdot w_k + \text{constant}

:class:`Quadratic` holds the :math:`H_k`, which every alternation, path point and fold reuses, and the :class:`Rows`
from which they are computed. It multiplies by the rows if there are fewer rows than features, if Grams exceed the
memory limit, or if Grams are not accurate enough. Weights are stored as (K, d); row k is :math:`w_k`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from scipy import sparse

from mssl._typing import Array, Mask
from mssl._validation import refused, warn
from mssl.data.design import Design, default_memory_limit
from mssl.kernels import TaskLoss, gram_products
from mssl.model.bounds import CompositeBound, ConvexLoss, WeightBound, quadratic_duality
from mssl.model.coupling import Coupling
from mssl.model.task_matrix import SMALL
from mssl.penalties import EntrywisePenalty, Penalty
from mssl.solvers.base import Unknowns, WeightStep

EPS = float(np.finfo(float).eps)
# The constants below affect time and memory only.

MANY_FEATURES = 100  # with at least this number of features, coordinate descent over all of them may take long
# Size of an array above which a product with it takes longer than the Python calls around it.
LARGE = 2**16
MOST_UNKNOWNS = 400  # up to this number of unknowns, factoring the whole system takes at most a tenth of a second
# Share of the gap to which the problem on the working sets is solved. A smaller share solves sets accurately that will
# still change, a larger one changes the sets more often.
INNER = 1e-3
# A kept loss forms its Grams, even if no solver has used them, if they have at most this number of entries (8 MB).
_MOST_FORMED = 10**6


@dataclass(frozen=True, eq=False)
class Rows:
    """The weighted rows of all tasks, from which a loss is computed.

    Attributes
    ----------
    design : Design
        Features.
    c : ndarray of shape (N,)
        Row weights ≥ 0.
    target : ndarray of shape (N,)
        Targets, less the means of their tasks if intercepts are free.
    intercept : bool
        Whether each task has a free intercept.
    """

    design: Design
    c: Array
    target: Array
    intercept: bool

    @cached_property
    def totals(self) -> Array:
        """Σ_i c_i, (K,)."""
        return self.design.task_sums(self.c)

    @cached_property
    def column_sums(self) -> Array:
        """Σ_i c_i a_ij with the stored columns, (K, d)."""
        return self.design.stored.transposed(self.c)

    @cached_property
    def column_means(self) -> Array:
        """The numbers to subtract from the stored columns, (K, d): the means, or the shift without intercepts."""
        if self.intercept:
            return self.column_sums / positive(self.totals)[:, None]
        return np.zeros(self.column_sums.shape) if self.design.shift is None else self.design.shift

    @cached_property
    def squares(self) -> Array:
        """Diagonals of the Grams, (K, d)."""
        mu, squares = self.column_means, self.design.stored_squares(self.c)
        centred = squares - 2 * mu * self.column_sums + self.totals[:, None] * mu**2
        return np.where(centred > 1e-14 * squares, centred, 0.0)

    def fitted(self, W: Array) -> Array:
        """X̃w, less its weighted task means if intercepts are free."""
        if not np.any(W):
            return np.zeros(len(self.c))
        fit = self.design.predictor(W)
        if not self.intercept:
            return fit
        return fit - self.design.per_task(self.design.task_sums(self.c * fit) / positive(self.totals))

    def residual(self, W: Array) -> Array:
        """Residual z − X̃w − b with the minimising intercepts, (N,)."""
        return self.target - self.fitted(W)

    def block(self, k: int, features: Mask | None = None) -> Array:
        """√c (X̃_k − means) as a dense (n_k, d) array, restricted to the given features."""
        store, design = self.design.columns, self.design
        n, d = int(design.n_rows[k]), design.n_features
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


class Quadratic:
    """Quadratic loss on Grams or rows.

    Parameters
    ----------
    gram : ndarray of shape (K, d, d) or (1, d, d), or None
        H_k = scale[k] · gram[k], or one G for all tasks. If None, the Grams are formed from the rows on their first
        use; with a strong penalty they may never be needed.
    linear : ndarray of shape (K, d)
        q_k.
    constants : ndarray of shape (K,)
        Loss of each task at W = 0.
    scale : ndarray of shape (K,), optional
        The factors of the Grams and of the source's row weights; default ones.
    target_means, feature_means : ndarrays of shapes (K,) and (K, d), optional
        Weighted means, from which :meth:`intercepts` are computed; default zeros.
    source : Rows, optional
        The rows, at scale 1.
    by_rows : bool
        Whether products use the rows. No d × d matrix is then formed, and values and gradients have full accuracy.
    """

    related: sparse.csr_array | None = None  # a matrix whose nonzero entries are the tasks that the loss itself relates

    def __init__(
        self,
        gram: Array | None,
        linear: Array,
        constants: Array,
        scale: Array | None = None,
        target_means: Array | None = None,
        feature_means: Array | None = None,
        source: Rows | None = None,
        by_rows: bool = False,
    ) -> None:
        if gram is not None:
            self.gram = gram
        self.linear, self.constants, self.source, self.by_rows = linear, constants, source, by_rows
        self.target_means, self.feature_means = target_means, feature_means
        self.task_scale = np.ones(len(linear)) if scale is None else np.asarray(scale, dtype=float)
        self.is_shared = gram is not None and len(gram) == 1
        self.n_tasks, self.n_features = linear.shape
        self.kept: dict[str, Any] = {}  # values that solvers keep for their next call

    @classmethod
    def of_rows(cls, design: Design, c: Array, z: Array, intercept: bool = True, *, by_rows: bool = True) -> Quadratic:
        """The loss of rows with weights c and targets z."""
        rows, target_means = _about_means(design, c, z, intercept)
        weighted = rows.c * rows.target
        # With Σ c·target = 0 the features need no centring here.
        linear, constants = design.backproject(weighted), 0.5 * design.task_sums(weighted * rows.target)
        return cls(None, linear, constants, None, target_means, None, rows, by_rows)

    def replaced(self, **changes: Any) -> Quadratic:
        """A copy with changed attributes. It shares the Grams and, if the scale is unchanged, the solvers' values."""
        made = object.__new__(type(self))
        vars(made).update(vars(self) | changes)
        if changes.keys() & {"task_scale", "source"}:
            made.kept = {}
            for name in ("rows", "diagonal"):
                vars(made).pop(name, None)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"kept": {}}

    @property
    def formed(self) -> bool:
        """Whether the Grams exist or are never needed."""
        return self.by_rows or "gram" in vars(self)

    def with_gradient(self, W: Array, slope: Array) -> Quadratic:
        """The same Hessian with the gradient ``slope`` at W."""
        made = self.replaced(linear=self.product(W) - slope)
        made.source = None
        return made

    def on_rows(self) -> Quadratic:
        """The same loss by rows, which is more accurate; unchanged if the rows are not known."""
        return self if self.source is None else self.replaced(by_rows=True, is_shared=False)

    def scaled(self, s: Array) -> Quadratic:
        """The same loss with task k multiplied by s_k."""
        scale = s * self.task_scale
        return self.replaced(linear=s[:, None] * self.linear, constants=s * self.constants, task_scale=scale)

    def of_unknowns(self, unknowns: Unknowns) -> Quadratic:
        """The same loss as a function of the unknowns V, without intercepts."""
        if unknowns.matrix is None:
            return self.replaced()  # the copy forms its own Grams, so that a fit does not depend on earlier fits
        linear, constants = unknowns.gradient(self.linear), unknowns.task_sums(self.constants)
        scale = np.asarray((unknowns.matrix**2).T @ self.task_scale)
        if not unknowns.pooled:
            source = self.source
            if source is not None:
                source = replace(source, target=source.target / source.design.per_task(unknowns.matrix.diagonal()))
            return self.replaced(linear=linear, task_scale=scale, source=source)
        if self.is_shared:
            return Quadratic(self.gram, linear, constants, scale)
        return Quadratic(np.tensordot(self.task_scale, self.gram, axes=1)[None], linear, constants)

    @cached_property
    def gram(self) -> Array:
        """H_k, (K, d, d), or G, (1, d, d), without the scales."""
        assert self.source is not None
        return self.source.design.gram(self.source.c, intercept=self.source.intercept)

    @cached_property
    def rows(self) -> Rows:
        """The rows with weights that include the scales."""
        assert self.source is not None
        if (self.task_scale == 1.0).all():
            return self.source
        return replace(self.source, c=self.source.design.per_task(self.task_scale) * self.source.c)

    @property
    def null_value(self) -> float:
        """The loss at W = 0."""
        return float(self.constants.sum())

    def product(self, V: Array) -> Array:
        """H_k v_k."""
        if self.by_rows:
            return self.rows.design.backproject(self.rows.c * self.rows.fitted(V))
        if self.is_shared:
            return np.asarray((V @ self.gram[0]) * self.task_scale[:, None])
        return gram_products(np.ascontiguousarray(self.gram), self.task_scale, np.ascontiguousarray(V))

    def gradient(self, W: Array) -> Array:
        """H_k w_k − q_k; by rows −X̃ᵀ(c · residual)."""
        if self.by_rows:
            return -self.rows.design.backproject(self.rows.c * self.rows.residual(W))
        return self.product(W) - self.linear

    def task_values(self, W: Array) -> Array:
        """Loss of each task."""
        if self.by_rows:
            return np.asarray(0.5 * self.rows.design.task_sums(self.rows.c * self.rows.residual(W) ** 2))
        return np.asarray(self.constants + np.einsum("kd,kd->k", W, 0.5 * self.product(W) - self.linear))

    def value(self, W: Array) -> float:
        """The loss."""
        return float(self.task_values(W).sum())

    def rounding(self, W: Array) -> float:
        """The rounding error of the loss at W; with Grams its terms can be much larger than the loss itself."""
        terms = np.vecdot(np.sqrt(np.maximum(self.diagonal, 0.0)), np.abs(W))  # its square is at least |w|ᵀ|H||w|
        if not self.by_rows:
            return EPS * (float(terms @ terms) + self.null_value)
        errors, values = EPS * terms, self.task_values(W)
        return float(errors @ (np.sqrt(2.0 * values) + errors)) + EPS * float(values.sum())

    def fenchel(self, W: Array, scales: Array) -> Array:
        """Loss at W plus its conjugate at ``scales`` times the gradient in the predictors, task by task."""
        return quadratic_duality(self.task_values(W), np.vecdot(W, self.gradient(W)), scales)

    def at_zero(self) -> tuple[Array, Array]:
        """Gradient and value of each task at W = 0."""
        return -self.linear, self.constants

    def smooth(self, coupling: Coupling, W: Array, G: Array) -> float:
        """Loss plus coupling. A quadratic grows from 0 to W by the mean of its two slopes along W at 0 and at W."""
        return self.null_value + 0.5 * float(np.vdot(W, G - self.linear))

    @cached_property
    def diagonal(self) -> Array:
        """Diagonals of the H_k, (K, d)."""
        if self.by_rows or not self.formed:
            return self.rows.squares
        return np.asarray(np.einsum("kdd->kd", self.gram) * self.task_scale[:, None])

    def gram_of(self, k: int, features: Mask) -> Array:
        """H_k on some features."""
        if self.by_rows:
            block = self.rows.block(k, features)
            return np.asarray(block.T @ block)
        return np.asarray(self.task_scale[k] * self.gram[0 if self.is_shared else k][np.ix_(features, features)])

    def hessian_on(self, support: Mask) -> Array:
        """The Hessian on a support of all tasks together."""
        tasks = np.nonzero(support)[0]
        H = np.zeros((len(tasks), len(tasks)))
        for k in np.unique(tasks).tolist():
            own = np.flatnonzero(tasks == k)
            H[np.ix_(own, own)] = self.gram_of(k, support[k])
        return H

    def intercepts(self, W: Array) -> Array:
        """The minimising intercepts."""
        if self.target_means is None:
            return np.zeros(self.n_tasks)
        if self.feature_means is None:
            assert self.source is not None
            shift, means = self.source.design.shift, self.source.column_means
            self.feature_means = means if shift is None else means - shift
        return self.target_means - np.vecdot(self.feature_means, W)

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of a common Gram."""
        values, vectors = np.linalg.eigh(self.gram[0])
        return np.maximum(values, 0.0), vectors

    @property
    def inverses(self) -> tuple[Array, Array] | None:
        """The ridges and inverses of the compiled call's preconditioner, which solvers keep with the loss.

        The compiled call solves problems with few tasks and few features, and with one Gram per task. For all others
        the result is None.
        """
        K, d = self.linear.shape
        if K > SMALL or d > SMALL or self.by_rows or (self.is_shared and K > 1):
            return None
        kept: tuple[Array, Array] = self.kept.setdefault("inverses", (np.zeros(K), np.empty((K, d, d))))
        return kept


def positive(totals: Array) -> Array:
    """The same totals, with ones in place of zeros."""
    return np.where(totals > 0, totals, 1.0)


def _about_means(design: Design, c: Array, z: Array, intercept: bool) -> tuple[Rows, Array | None]:
    """Rows whose targets are centred by task, and the means; without intercepts, the targets stay unchanged."""
    if not intercept:
        return Rows(design, c, z, intercept), None
    total = positive(design.task_sums(c))
    means = design.task_sums(c * z) / total
    means += design.task_sums(c * (z - design.per_task(means))) / total  # equal targets must have exactly no spread
    return Rows(design, c, z - design.per_task(means), intercept), means


def make_quadratic(
    design: Design,
    c: Array,
    z: Array,
    *,
    intercept: bool = True,
    memory_limit: int | None = None,
    n_rows: Array | None = None,
) -> Quadratic:
    """Choose the form of the loss, Grams or rows.

    Grams are chosen if they are within the memory limit and typical tasks have at least half as many rows as features.

    Parameters
    ----------
    design : Design
        Features.
    c, z : ndarray of shape (N,)
        Row weights ≥ 0 and targets.
    intercept : bool
        Whether each task has a free intercept.
    memory_limit : int, optional
        Largest size of the Grams in bytes; default a quarter of the machine's memory, at most 2 GiB.
    n_rows : ndarray of shape (K,), optional
        Number of rows of each task in the choice of the form; default the numbers of the design.

    Returns
    -------
    Quadratic

    Examples
    --------
    >>> import numpy as np
    >>> design = Design.build(np.arange(6.0).reshape(6, 1), [0, 3, 6], scale=False)
    >>> loss = make_quadratic(design, np.ones(6), np.array([0.0, 1, 2, 0, 2, 4]))
    >>> float(loss.value(np.array([[1.0], [2.0]]))), loss.intercepts(np.zeros((2, 1)))
    (0.0, array([1., 2.]))
    """
    common = design.common_weights(c)
    counts = design.n_rows if n_rows is None else n_rows
    size = 8 * design.n_features**2 * (design.n_tasks if common is None else 1)
    limit = default_memory_limit() if memory_limit is None else memory_limit
    # Otherwise Grams are at most twice as large as the data, and descent on them is two or three times faster.
    by_rows = 0.5 * design.n_features > max(float(counts.min()), float(np.median(counts)))
    if not by_rows and size > limit:
        by_rows = True
        warn(
            f"Grams would take {size / 2**20:.3g} MiB, and memory_limit allows {limit / 2**20:.3g} MiB: the fit "
            "multiplies by the rows instead, which takes longer. Raise memory_limit if the machine has more memory."
        )
    # Large Grams of separate features are formed only when needed; a strong penalty may never need them.
    if by_rows or (common is None and design.shift is None and pays_in_sets(design)):
        return Quadratic.of_rows(design, c, z, intercept, by_rows=by_rows)
    weights, scale = (c, None) if common is None else common
    source, target_means = _about_means(design, c, z, intercept)
    weighted = c * source.target
    constants = 0.5 * design.task_sums(weighted * source.target)
    gram, sums, linear = design.normal_equations(weights, weighted, intercept=intercept)
    totals = positive(source.totals)[: len(sums), None]
    feature_means = np.broadcast_to(sums / totals, linear.shape) if intercept else None
    if scale is not None:
        source = replace(source, c=np.tile(weights, design.n_tasks))
    return Quadratic(gram, linear, constants, scale, target_means, feature_means, source)


class KeptLoss:
    """A compact copy of a quadratic loss: the upper triangles of its Grams, or its rows if the Grams are too large.

    Parameters
    ----------
    loss : Quadratic
        The loss.

    Attributes
    ----------
    upper : ndarray of shape (K, d (d + 1) / 2) or (1, d (d + 1) / 2), or None
        Upper triangles of the Grams; None if the rows are kept.
    """

    def __init__(self, loss: Quadratic) -> None:
        by_rows = loss.by_rows or not (loss.formed or loss.n_tasks * loss.n_features**2 <= _MOST_FORMED)
        self.rows = loss.replaced() if by_rows else None
        self.upper = None if by_rows else loss.gram[:, *np.triu_indices(loss.n_features)]
        self.others = loss.linear, loss.constants, loss.task_scale

    def read(self) -> Quadratic:
        """The loss."""
        if self.upper is None:
            assert self.rows is not None
            return self.rows
        d = self.others[0].shape[1]
        (i, j), gram = np.triu_indices(d), np.empty((len(self.upper), d, d))
        gram[:, i, j] = gram[:, j, i] = self.upper
        return Quadratic(gram, *self.others)


def pays_in_sets(design: Design) -> bool:
    """Whether working sets pay: products with a typical task's features take longer than the calls around them."""
    return bool(design.n_features >= MANY_FEATURES and np.median(design.n_rows) * design.n_features >= LARGE)


L = TypeVar("L", bound=ConvexLoss)


@dataclass(frozen=True, eq=False)
class StepProblem(Generic[L]):
    r"""The problem of a weight step: minimise :math:`\ell(W) + \tfrac12\operatorname{tr}(WCW^\top) + g(W)`.

    Attributes
    ----------
    loss : Quadratic or other loss
        The loss.
    coupling : Coupling
        C; it has no rank-one part if the penalty ties the tasks together.
    penalty : EntrywisePenalty or Penalty
        g.
    """

    loss: L
    coupling: Coupling
    penalty: EntrywisePenalty | Penalty

    @classmethod
    def of(
        cls, loss: L, coupling: Coupling, penalty: EntrywisePenalty | Penalty | Array | None = None
    ) -> StepProblem[L]:
        """The problem for a penalty whose ℓ1 strengths are an array of shape (K,) or (K, d), or None."""
        if not isinstance(penalty, Penalty):
            strengths = np.zeros(loss.n_tasks) if penalty is None else penalty
            penalty = EntrywisePenalty.of(strengths, (loss.n_tasks, loss.n_features))
        return StepProblem(loss, coupling, penalty)

    @cached_property
    def certificate(self) -> WeightBound | CompositeBound:
        """The bound of the suboptimality, a function of the weights and the gradient of loss plus coupling."""
        if isinstance(self.penalty, EntrywisePenalty):
            return WeightBound(self.coupling, self.penalty, self.loss)
        return CompositeBound(self.coupling, self.penalty, self.loss)

    @property
    def bound(self) -> WeightBound:
        """The bound for a penalty on single weights."""
        assert isinstance(self.certificate, WeightBound)
        return self.certificate

    def product(self: StepProblem[Quadratic], V: Array) -> Array:
        """The Hessian of loss and coupling times V."""
        return self.loss.product(V) + self.coupling.dot(V)

    def gradient(self, W: Array) -> Array:
        """Gradient of loss and coupling."""
        return self.loss.gradient(W) + self.coupling.dot(W)

    def rounding(self: StepProblem[Quadratic], W: Array) -> float:
        r"""The part of the bound at W that rounding of the gradient alone may cause, for a penalty on single weights.

        The gradient :math:`H_k w_k - q_k` has an error δ of about :math:`\epsilon(\|H_k\|\|w_k\| + \|q_k\|)` in unknown
        directions. The bound turns it into :math:`\tfrac12\operatorname{tr}(\delta C^{-1}\delta^\top)`. A bound is
        reliable if it is larger than that. The bound for a singular C is a difference of values and has their rounding
        error.
        """
        loss, (inverse, tau) = self.loss, self.coupling.inverse
        if inverse is None:
            return loss.rounding(W) if self.bound.scalable else 0.0
        curvature = loss.diagonal.max(axis=1, initial=0.0)  # at most a factor d below the norm
        sizes, linear = (np.abs(values).max(axis=1, initial=0.0) for values in (W, loss.linear))
        errors = EPS * loss.n_features * (curvature * sizes + linear)
        return 0.5 * float(errors**2 @ (inverse.diagonal() + tau))

    def value(self, W: Array) -> float:
        """Loss, coupling and penalty."""
        return self.loss.value(W) + self.coupling.value(W) + self.penalty.value(W)


Problem: TypeAlias = StepProblem[Quadratic]


@dataclass(frozen=True, eq=False)
class WeightProblem(Protocol):
    """Loss and penalty of the weight step, for every task precision.

    Attributes
    ----------
    penalty : EntrywisePenalty or Penalty
        The penalty as a function of the unknowns.
    unknowns : Unknowns
        The weights themselves, the weights in units of the noise (for penalties that tie the tasks together), or one
        weight vector for all tasks.
    ridge : ndarray of shape (K,) or None
        Ridge strengths r_k of the weights.
    """

    penalty: EntrywisePenalty | Penalty
    unknowns: Unknowns = field(default_factory=Unknowns)
    ridge: Array | None = None

    @property
    def compiled(self) -> TaskLoss | None:
        """The problem in the form that compiled rounds take; None if they cannot solve it."""
        return None

    def step(self, coupling: Coupling) -> StepProblem[Any]:
        """The problem in the unknowns for a coupling of the rows that :meth:`related` returns."""

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Minimise loss + penalty + coupling from W, to the absolute gap ``tol``."""

    def value(self, W: Array) -> float:
        """Loss plus penalty at W, intercepts at their optimum."""

    def related(self, W: Array) -> Array:
        """Q, (K, r), which the structure relates: the weights themselves or the residuals."""

    def intercepts(self, W: Array) -> Array:
        """The best intercepts for W."""

    @property
    def penalised(self) -> bool:
        """Whether there is any penalty besides a ridge."""
        return not (isinstance(self.penalty, EntrywisePenalty) and self.penalty.absent)

    def penalties(self, W: Array) -> float:
        """Penalty and ridge of the weights."""
        ridge = 0.0 if self.ridge is None else 0.5 * float(self.ridge @ np.vecdot(W, W))
        return self.penalty.value(self.unknowns.of_weights(W)) + ridge

    def certifies(self, coupling: Coupling) -> bool:
        """Whether the gaps for a coupling bound the suboptimality; otherwise they measure violations of optimality."""
        if isinstance(self.penalty, EntrywisePenalty):
            return self.penalty.convex
        return self.step(coupling).certificate.certified

    def has_digits(self, coupling: Coupling, W: Array, tol: float) -> bool:
        """Whether the loss and the certificate that compiled rounds compute at W are accurate to ``tol``."""
        return True


PenaltyParts: TypeAlias = tuple[EntrywisePenalty | Penalty, Unknowns, Array | None]


def penalty_parts(penalty: Penalty, s: Array, curvatures: Array, *, pooled: bool = False) -> PenaltyParts:
    """The fields of a :class:`WeightProblem` for a penalty, as in :meth:`mssl.penalties.Penalty.entrywise`.

    If ``pooled`` is True, all tasks have one weight vector in common.
    """
    ridges = penalty.ridges(s)
    ridge = ridges if ridges.any() else None
    if not (penalty.separable or getattr(penalty, "alpha", 1.0) == 0):
        if pooled:
            raise refused("penalty", penalty, "pooled weights allow penalties on single weights, such as L1")
        return penalty, Unknowns(sparse.csr_array(sparse.diags_array(1.0 / np.sqrt(s)))), ridge
    entrywise = penalty.entrywise(s, curvatures)
    if pooled:  # the coupling of one vector for all tasks is a ridge
        return entrywise.pooled(), Unknowns(sparse.csr_array(np.ones((len(s), 1)))), ridge
    return entrywise, Unknowns(), ridge
