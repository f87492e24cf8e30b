r"""A sparse task precision that is learned from the data: the structure of p-MSSL and r-MSSL."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mssl._renamed import old_names
from mssl._typing import Array, Moment, VarianceFloor
from mssl._validation import check_choice, check_number, refused, warn
from mssl.glasso.solver import PATIENCE, GlassoStatus, GraphicalLassoResult, Problem, gap_of, solve
from mssl.kernels import plain
from mssl.model.task_matrix import DENSE_UP_TO, diagonal_matrix
from mssl.structures import blocks
from mssl.structures.base import Structure, StructureScale, StructureStep
from mssl.structures.blocks import PairMoment
from mssl.structures.copula import rank_correlation
from mssl.structures.known import KnownEdges, known_edges

CORRELATIONS = ("pearson", "spearman", "kendall")

# Variance floor of r-MSSL, as a share of each task's residual variance. It bounds F if many features fit a task
# exactly. Otherwise it changes a precision by about a thousandth.
RESIDUAL_FLOOR = 1e-3

# Variance floor of p-MSSL, in units of the sampling variance: max(LEAST_FLOOR, K / (FULL_FLOOR · d)). It was set on
# clustered, low rank and unrelated weights with d = 20, 100 rows per task and K = 10 … 500. If a graph helps, it is
# within a few percent of the best floor. With K = 200 and a floor of 1/8, unrelated tasks were 11 % worse than without
# a graph; with "auto" they were 2 % worse. On low rank weights with K = 200, a floor of 1/8 is better (error .101, with
# "auto" .131, without a graph .192).
LEAST_FLOOR = 1 / 8
FULL_FLOOR = 10  # number of tasks per feature at which the floor equals the sampling variance

# A warning says that graph steps are slow if one takes at least this number of sweeps, for more than this number of
# tasks; usual steps take 2 to 40 sweeps. It is also the limit of ADMM iterations per step, which is enough for most
# steps: half the patience of a graphical lasso on its own. If it is not enough, descent continues from there.
_MANY = PATIENCE // 2


def row_moment(Q: Array, correlation: str = "pearson", n_rows: float | None = None) -> Array:
    """The mean products of the rows of Q, (K, K), with Pearson or rank correlations.

    Parameters
    ----------
    Q : ndarray of shape (K, r)
        One row per task.
    correlation : {"pearson", "spearman", "kendall"}
        The correlation of the rows. The mean squares are those of Q for all of them.
    n_rows : float, optional
        Divisor of the products; default r.
    """
    S: Array = Q @ Q.T / (Q.shape[1] if n_rows is None else n_rows)
    if correlation == "pearson":
        return S
    roots = np.sqrt(S.diagonal())
    return np.asarray(roots[:, None] * roots * rank_correlation(Q, correlation))


class SparseGraph(Structure):
    """A learned graph with a price for every edge: the base of sparse precisions with and without hidden variables."""

    alpha: Any
    coupling: float
    variance_floor: VarianceFloor
    edge_constraints: KnownEdges | None

    normalize = True
    learned = True
    prices_edges = True

    @property
    def relates(self) -> str:  # type: ignore[override]
        return self.on

    @property
    def starts_diagonal(self) -> bool:  # type: ignore[override]
        """Whether the diagonal fixed point gives the constants of F, so that units cancel; not in the paper's form."""
        return self.normalize

    free_units = starts_diagonal

    @property
    def strength(self) -> float:
        return float(self.coupling)

    def check(self, n_tasks: int) -> None:
        check_number("graph_penalty (alpha)", self.alpha, low=0, remedy="Usual values lie between 0 and 1.")
        check_number("prior_strength (coupling)", self.coupling, above=0, remedy="1 gives the posterior.")
        if self.normalize:
            remedy = (
                "Without a floor the objective is unbounded below: if all weights of a task are 0, its precision grows "
                "without limit."
            )
            if not (isinstance(self.variance_floor, str) and self.variance_floor == "auto"):
                check_number("variance_floor", self.variance_floor, above=0, also="'auto'", remedy=remedy)
        elif self.alpha <= 0:
            remedy = "At 0 the objective of the paper's formulation is unbounded below."
            raise refused("graph_penalty (alpha)", self.alpha, "give a number above 0", remedy)
        check_number("shrinkage", self.shrinkage, low=0)
        check_choice("relation (on)", self.on, ("coef", "residual"))
        if self.edge_constraints is not None:
            known_edges(self.edge_constraints).check(n_tasks)

    def floors(self, scale: StructureScale) -> Array:
        """e, the penalty on the diagonal of Ω."""
        if not self.normalize:
            return np.full(len(scale.variances), float(self.alpha))
        if self.on == "residual":
            return RESIDUAL_FLOOR * scale.variances
        share = self.variance_floor
        if isinstance(share, str):
            share = max(LEAST_FLOOR, len(scale.variances) / (FULL_FLOOR * scale.n_rows))
        return share * scale.sampling_variances

    def roots(self, scale: StructureScale) -> Array:
        """Factors of the edge prices: without prior knowledge, a_ij is the product of the factors of both tasks."""
        return np.sqrt(scale.variances + self.floors(scale)) if self.normalize else np.ones(scale.n_tasks)

    def edge_scales(self, scale: StructureScale) -> Array:
        """a, the factor of λ in the price of each edge; infinite for forbidden edges."""
        roots, known = self.roots(scale), self.edge_constraints
        scales: Array = roots[:, None] * roots
        if known is not None:
            scales = np.where(known.zeros(len(scales)), np.inf, known.factors(len(scales)) * scales)
        return scales

    def prices(self, scale: StructureScale) -> tuple[Array, Array]:
        """Λ, which is infinite for forbidden edges, and e. They are computed once for each λ."""
        key = (self.alpha, self.normalize, self.on, self.variance_floor, id(self.edge_constraints))
        if key not in scale.kept:
            scales = self.edge_scales(scale)
            # Forbidden edges stay infinite if λ is 0.
            L = np.multiply(self.alpha, scales, out=scales, where=np.isfinite(scales))
            scale.kept[key] = L, plain(self.floors(scale))
        prices: tuple[Array, Array] = scale.kept[key]
        return prices

    def initial(self, scale: StructureScale) -> StructureStep:
        diagonal = self.diagonal(scale)
        if self.in_blocks(len(diagonal)):
            return StructureStep(diagonal_matrix(diagonal), diagonal_matrix(1.0 / diagonal))
        return StructureStep(np.diag(diagonal), np.diag(1.0 / diagonal))

    def in_blocks(self, n_tasks: int) -> bool:
        """Whether Ω of this many tasks is computed component by component, see :mod:`mssl.structures.blocks`."""
        plain = type(self) is SparsePrecision and self.joint and self.edge_constraints is None
        return plain and self.on == "coef" and n_tasks > DENSE_UP_TO

    def moment(self, Q: Array, scale: StructureScale, mean_spread: float = 0.0) -> Moment:
        if self.in_blocks(len(Q)):
            prices = (self.alpha, self.roots(scale), self.floors(scale))
            return PairMoment(Q, scale.n_rows, mean_spread, self.shrinkage, scale.variances, *prices)
        S = row_moment(Q, self.correlation, scale.n_rows) + mean_spread
        if self.shrinkage > 0:
            S = (S + self.shrinkage * np.diag(scale.variances)) / (1.0 + self.shrinkage)
        return S


@old_names(edges="edge_constraints")
@dataclass(eq=False, repr=False)
class SparsePrecision(SparseGraph):
    r"""Sparse Gaussian graphical model over the rows of Q.

    .. math:: \frac{c\eta}{2}\Big[\operatorname{tr}(S\Omega) - \log\det\Omega
              + \lambda\sum_{i\ne j} a_{ij}|\Omega_{ij}| + \sum_i e_i\Omega_{ii}\Big],
              \qquad S = \frac{Q^\top Q + \nu\operatorname{diag}(v)}{c},\; c = r + \nu.

    Parameters
    ----------
    alpha : float, default=0.3
        λ, the price of an edge, on the correlation scale (0 dense, 1 empty). As an estimator's ``graph_penalty`` it may
        be "auto".
    coupling : float, default=1.0
        η, the strength of the prior.
    variance_floor : "auto" or float, default="auto"
        f in :math:`e_k = f \cdot` (sampling variance of a coefficient). It must be positive, since F is unbounded below
        without a floor. "auto" is max(1/8, K / (10 r)) for K tasks and r rows of Q. The more tasks share the rows, the
        more closely Ω can fit them; with K > r and a floor of 1/8, weights and variances of many tasks shrink to 0
        together.
    shrinkage : float, default=0.0
        ν/r, Wishart shrinkage of S towards its diagonal; needed if there are many more tasks than rows of Q.
    on : {"coef", "residual"}, default="coef"
        Whether the graph relates the coefficients (p-MSSL) or the residuals (r-MSSL).
    normalize : bool, default=True
        If True, :math:`a_{ij} = \sqrt{(v_i+e_i)(v_j+e_j)}`, so that the result does not depend on units. If False,
        a = 1 and e = λ, the textbook penalty on all entries including the diagonal.
    solver : {"bcd", "admm"}, default="bcd"
        Dual block coordinate descent, or the paper's ADMM.
    correlation : {"pearson", "spearman", "kendall"}, default="pearson"
        Correlation of the rows of Q. The rank correlations are those of a Gaussian copula. They find the graph of
        heavy-tailed rows better, but predictions tend to be worse. The alternation is then a fixed-point iteration
        without a joint objective, and stops when neither the weights nor the graph change.
    edge_constraints : KnownEdges, optional
        Prior knowledge about the graph: forbidden and free edges, weights, a prior graph. Pairs hold positions of
        tasks, or names of tasks if the structure is an estimator's ``graph_penalty``.

    References
    ----------
    Friedman, Hastie & Tibshirani (2008), doi:10.1093/biostatistics/kxm045;
    Liu, Han, Yuan, Lafferty & Wasserman (2012), doi:10.1214/12-AOS1037 (rank correlations).
    """

    alpha: Any = 0.3  # a number; estimators replace "auto" by a number
    _: KW_ONLY
    coupling: float = 1.0
    variance_floor: VarianceFloor = "auto"
    shrinkage: float = 0.0
    on: str = "coef"
    normalize: bool = True
    solver: str = "bcd"
    correlation: str = "pearson"
    edge_constraints: KnownEdges | None = None

    @property
    def joint(self) -> bool:  # type: ignore[override]
        """Whether weights and Ω minimise one objective; not with rank correlations."""
        return self.correlation == "pearson"

    @property
    def compiled(self) -> bool:  # type: ignore[override]
        """Whether compiled rounds can take its step: descent for coefficients, unless a subclass changes it."""
        steps = ("floors", "moment", "update", "couple")
        known = all(getattr(type(self), name) is getattr(SparsePrecision, name) for name in steps)
        return known and self.joint and self.solver == "bcd" and self.on == "coef"

    def check(self, n_tasks: int) -> None:
        super().check(n_tasks)
        check_choice("graph_penalty (solver)", self.solver, ("bcd", "admm"))
        check_choice("correlation", self.correlation, CORRELATIONS)

    def lambda_max(self, S: Moment, scale: StructureScale) -> float:
        return S.lambda_max() if isinstance(S, PairMoment) else super().lambda_max(S, scale)

    def certify(self, S: Moment, step: StructureStep, scale: StructureScale) -> StructureStep:
        weight = self.weight(scale)
        if isinstance(S, PairMoment):
            gap, value = blocks.certify(S, step.precision, step.covariance)
        else:
            known = step.warm if step.warm is not None and step.warm.precision is step.precision else None
            if known is None and step.covariance is not None:
                known = GraphicalLassoResult.of(step.precision, step.covariance)
            gap, value = gap_of(Problem(plain(S), 1.0, *self.prices(scale)), step.precision, known)
        return StructureStep(step.precision, step.covariance, weight * value, weight * gap, step.warm)

    def update(self, S: Moment, step: StructureStep, scale: StructureScale, tol: float) -> StructureStep:
        weight = self.weight(scale)
        if isinstance(S, PairMoment):
            omega, sigma, gap, value = blocks.update(S, step.precision, step.covariance, self.solver, tol / weight)
            return StructureStep(omega, sigma, weight * value, weight * gap)
        goal = tol / weight / max(1.0, abs(step.value / weight))
        solved = partial(solve, Problem(plain(S), 1.0, *self.prices(scale)), tol=goal, digits=False)
        result = step.warm
        if self.solver == "admm":
            result = solved(solver="admm", max_iter=_MANY, warm_start=result)
        if self.solver == "bcd" or result.status is GlassoStatus.MAX_ITER:
            result = solved(warm_start=result)
        if result.n_iter >= _MANY and len(S) > _MANY:
            self._announce(result.n_iter, scale)
        value, gap = weight * result.objective, weight * result.gap
        return StructureStep(result.precision, result.covariance, value, gap, result)

    def _announce(self, sweeps: int, scale: StructureScale) -> None:
        """Warn once per fit that graph steps have become slow, with a remedy."""
        if scale.kept.setdefault("announced", False):
            return
        scale.kept["announced"] = True
        floor = f"variance_floor (now {self.variance_floor})" if self.on == "coef" else "coef_penalty or ridge"
        warn(
            f"A step of the graph of {scale.n_tasks} tasks took {sweeps} sweeps: Ω is close to singular, and the fit "
            f"may take very long. Raise {floor} or graph_penalty (alpha, now {self.alpha:g}), or lower max_iter: the "
            "fit then returns its best point with its certificate."
        )

    def found(self, scale: StructureScale, step: StructureStep, log_determinant: float) -> StructureStep:
        weight, known = self.weight(scale), (step.precision, np.asarray(step.covariance), log_determinant)
        return replace(step, warm=GraphicalLassoResult.of(*known, step.gap / weight, step.value / weight))
