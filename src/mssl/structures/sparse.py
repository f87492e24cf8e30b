r"""A sparse task precision learned from the data: the structure of p-MSSL and r-MSSL."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mssl._renamed import old_names
from mssl._typing import Array, Moment, VarianceFloor
from mssl._validation import check_choice, check_number, refused, warn
from mssl.glasso.solver import GlassoStatus, GraphicalLassoResult, Problem, gap_of, solve
from mssl.kernels import plain
from mssl.model.objective import lambda_max, prior_weight
from mssl.model.task_matrix import DENSE_UP_TO, diagonal_matrix
from mssl.structures import blocks
from mssl.structures.base import Structure, StructureScale, StructureStep
from mssl.structures.blocks import PairMoment
from mssl.structures.copula import CORRELATIONS, row_moment
from mssl.structures.known import KnownEdges, known_edges

# Variance floor of r-MSSL, as a share of each task's residual variance: it bounds F where many features fit a task
# exactly, and changes a precision by about a thousandth otherwise.
RESIDUAL_FLOOR = 1e-3

# Variance floor of p-MSSL, in units of the sampling variance: max(LEAST_FLOOR, K / (FULL_FLOOR · d)). Clustered, low
# rank and unrelated weights with d = 20, 100 rows per task and K = 10 … 500: within a few percent of the best floor
# where a graph helps; with K = 200 and a floor of 1/8 unrelated tasks were 11 % worse than without a graph, with "auto"
# 2 %. On low rank weights with K = 200 it is the other way round (1/8: .101, "auto": .131, no graph: .192).
LEAST_FLOOR = 1 / 8
FULL_FLOOR = 10  # tasks per feature at which the floor is the sampling variance itself

# A graph step of more sweeps than this, with more tasks than this, warns that it is slow: usual steps take 2 to 40.
# ADMM has as many iterations for a step, which most need; where they are not enough, descent goes on from there.
_MANY = 100


class SparseGraph(Structure):
    """A learned graph with a price on every edge: what sparse precisions with and without hidden variables share."""

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
        """Whether F's constants are those of the diagonal fixed point and units cancel: not as printed in the paper."""
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
                "Without a floor the objective is unbounded below: a task's weights at 0 let its precision grow "
                "without end."
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
        """What an edge costs is the product of two of these, without what is known about edges."""
        return np.sqrt(scale.variances + self.floors(scale)) if self.normalize else np.ones(scale.n_tasks)

    def edge_scales(self, scale: StructureScale) -> Array:
        """a, what one unit of λ means for each edge."""
        roots, known = self.roots(scale), self.edge_constraints
        scales: Array = roots[:, None] * roots
        return scales if known is None else known.factors(len(scales)) * scales

    def forbid(self, prices: Array) -> Array:
        """Prices of all edges, infinite for those that must not be."""
        known = self.edge_constraints
        return prices if known is None else np.where(known.zeros(len(prices)), np.inf, prices)

    def prices(self, scale: StructureScale) -> tuple[Array, Array]:
        """Λ, infinite on forbidden edges, and e; worked out once for each λ."""
        key = (self.alpha, self.normalize, self.on, self.variance_floor, id(self.edge_constraints))
        if key not in scale.kept:
            L, e = self.forbid(self.alpha * self.edge_scales(scale)), self.floors(scale)
            scale.kept[key] = np.ascontiguousarray(L), np.ascontiguousarray(e, dtype=float)
        prices: tuple[Array, Array] = scale.kept[key]
        return prices

    def initial(self, scale: StructureScale) -> StructureStep:
        diagonal = self.diagonal(scale)
        unit = np.eye(len(diagonal))
        return StructureStep(unit * diagonal, unit / diagonal)

    def moment(self, Q: Array, scale: StructureScale, mean_spread: float = 0.0) -> Moment:
        S = row_moment(Q, self.correlation, scale.n_rows) + mean_spread
        if self.shrinkage > 0:
            S = (S + self.shrinkage * np.diag(scale.variances)) / (1.0 + self.shrinkage)
        return S

    def lambda_max(self, S: Moment, scale: StructureScale) -> float:
        return lambda_max(S, self.forbid(self.edge_scales(scale)))

    def weight(self, scale: StructureScale) -> float:
        """The factor cη/2 that multiplies the objective of the graphical lasso in F."""
        return prior_weight(self.strength, scale.n_rows, self.shrinkage)


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
        η, the temperature of the prior.
    variance_floor : "auto" or float, default="auto"
        f in :math:`e_k = f \cdot` (sampling variance of a coefficient). Never 0: without a floor F is unbounded below.
        "auto" is max(1/8, K / (10 r)) for K tasks and r rows of Q: the more tasks share the rows, the easier it is for
        Ω to fit them, and with K > r and a floor of 1/8 weights and variances of many tasks collapse together.
    shrinkage : float, default=0.0
        ν/r, Wishart shrinkage of S towards its diagonal; needed when there are many more tasks than rows of Q.
    on : {"coef", "residual"}, default="coef"
        What the graph relates: coefficients (p-MSSL) or residuals (r-MSSL).
    normalize : bool, default=True
        True: :math:`a_{ij} = \sqrt{(v_i+e_i)(v_j+e_j)}`, so that units do not matter. False: a = 1 and e = λ,
        the textbook penalty on all entries, the diagonal included.
    solver : {"bcd", "admm"}, default="bcd"
        Dual block coordinate descent, or the paper's ADMM.
    correlation : {"pearson", "spearman", "kendall"}, default="pearson"
        How the rows of Q are compared. The rank correlations are those of a Gaussian copula: they find the graph of
        heavy-tailed rows better, but prediction is rather worse. The alternation is then a fixed-point
        iteration without a joint objective, and stops when neither weights nor graph change.
    edge_constraints : KnownEdges, optional
        What is known about the graph: forbidden and free edges, weights, a prior graph. Pairs are positions of
        tasks, or names of tasks where this is an estimator's ``graph_penalty``.

    References
    ----------
    Friedman, Hastie & Tibshirani (2008), doi:10.1093/biostatistics/kxm045;
    Liu, Han, Yuan, Lafferty & Wasserman (2012), doi:10.1214/12-AOS1037 (rank correlations).
    """

    alpha: Any = 0.3  # a number; estimators put one in the place of "auto"
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
        """Whether weights and Ω minimise one objective: not with rank correlations."""
        return self.correlation == "pearson"

    @property
    def compiled(self) -> bool:  # type: ignore[override]
        """Whether compiled rounds know its steps: by descent, for coefficients, and of no subclass's own."""
        steps = ("floors", "moment", "update", "couple")
        known = all(getattr(type(self), name) is getattr(SparsePrecision, name) for name in steps)
        return known and self.joint and self.solver == "bcd" and self.on == "coef"

    def check(self, n_tasks: int) -> None:
        super().check(n_tasks)
        check_choice("graph_penalty (solver)", self.solver, ("bcd", "admm"))
        check_choice("correlation", self.correlation, CORRELATIONS)

    def in_blocks(self, n_tasks: int) -> bool:
        """Whether Ω of this many tasks is computed component by component, see :mod:`mssl.structures.blocks`."""
        plain = type(self) is SparsePrecision and self.joint and self.edge_constraints is None
        return plain and self.on == "coef" and n_tasks > DENSE_UP_TO

    def initial(self, scale: StructureScale) -> StructureStep:
        if not self.in_blocks(len(scale.variances)):
            return super().initial(scale)
        diagonal = self.diagonal(scale)
        return StructureStep(diagonal_matrix(diagonal), diagonal_matrix(1.0 / diagonal))

    def moment(self, Q: Array, scale: StructureScale, mean_spread: float = 0.0) -> Moment:
        if not self.in_blocks(len(Q)):
            return super().moment(Q, scale, mean_spread)
        prices = (self.alpha, self.roots(scale), self.floors(scale))
        return PairMoment(Q, scale.n_rows, mean_spread, self.shrinkage, scale.variances, *prices)

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
        """Say once a fit that its graph steps have become slow, and what helps."""
        if scale.kept.setdefault("announced", False):
            return
        scale.kept["announced"] = True
        floor = f"variance_floor (now {self.variance_floor})" if self.on == "coef" else "coef_penalty or ridge"
        warn(
            f"A step of the graph of {scale.n_tasks} tasks took {sweeps} sweeps: Ω is close to singular, and the fit "
            f"may take very long. Raise {floor} or graph_penalty (alpha, now {self.alpha:g}). max_iter bounds the "
            "rounds; what a fit has reached by then is its best point, with its certificate."
        )

    def found(self, scale: StructureScale, step: StructureStep, log_determinant: float) -> StructureStep:
        weight, known = self.weight(scale), (step.precision, np.asarray(step.covariance), log_determinant)
        return replace(step, warm=GraphicalLassoResult.of(*known, step.gap / weight, step.value / weight))
