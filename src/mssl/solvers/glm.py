r"""The weight step of any generalised linear model, as the alternation sees it.

.. math:: \sum_k s_k \sum_i \omega_{ki}\,\ell(y_{ki}, \tilde x_{ki}\cdot w_k + b_k) + \sum_k t_k\|w_k\|_1,

with intercepts at their optimum wherever a value, a gradient or a certificate is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from mssl.model.bounds import weight_gap
from mssl.model.coupling import Coupling
from mssl.solvers.base import WeightStep
from mssl.solvers.fista import fista
from mssl.solvers.glm_rows import GLMRows, Point, Reference
from mssl.solvers.newton import proximal_newton
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic

Array = NDArray[np.float64]


@dataclass(eq=False)
class GLMProblem:
    r"""Any loss with noise precisions s_k and an ℓ1 penalty, :math:`\sum_k t_k\|w_k\|_1`.

    Attributes
    ----------
    data : GLMRows
        Rows and loss.
    precisions : ndarray of shape (K,)
        The s_k.
    thresholds : ndarray of shape (K,)
        The t_k.
    solver : str
        "fista", or the solver of the quadratic steps of proximal Newton, as in
        :func:`mssl.solvers.weights.solve_quadratic`.
    reference : Reference or None
        The Hessian in use, where it is held by Grams.
    """

    data: GLMRows
    precisions: Array
    thresholds: Array
    solver: str = "auto"
    reference: Reference | None = None
    _last: Point | None = field(default=None, repr=False)
    _slope: tuple[Point, Array, Array] | None = field(default=None, repr=False)

    @classmethod
    def begin(
        cls,
        data: GLMRows,
        precisions: Array,
        thresholds: Array,
        solver: str,
        quadratic: GramQuadratic | DesignQuadratic,
    ) -> GLMProblem:
        """A problem whose first Hessian is that of a quadratic at hand."""
        reference = Reference(quadratic) if isinstance(quadratic, GramQuadratic) else None
        return cls(data, precisions, thresholds, solver, reference)

    def __post_init__(self) -> None:
        self.row_weights = self.data.design.per_task(self.precisions) * self.data.weights

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return self.data.design.n_tasks

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.data.design.n_features

    def evaluate(self, W: Array, predictor: Array | None = None, start: Array | None = None) -> Point:
        """The loss at W; a predictor that is known and a guess of the intercepts save work."""
        last = self._last
        if last is not None and predictor is None and np.array_equal(last.W, W):
            return last
        rows = self.data
        p = predictor
        if p is None:
            p = rows.design.predictor(W) if np.any(W) else np.zeros(rows.design.n_total)
        if start is None and last is not None:
            start = last.intercepts
        b = rows.best_intercepts(p, start)
        eta = p + rows.design.per_task(b)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = float(np.dot(self.row_weights, rows.loss.value(rows.y, eta) - rows.least))
        self._last = Point(np.array(W), p, eta, b, loss)
        return self._last

    def slope(self, point: Point) -> Array:
        """Gradient of the loss in W, (K, d); that of the last point asked for is remembered."""
        return self._derivatives(point)[1]

    def curvature(self, point: Point) -> Array:
        """Curvature of the loss in the predictors, row weights included, (N,)."""
        return self._derivatives(point)[2]

    def _derivatives(self, point: Point) -> tuple[Point, Array, Array]:
        if self._slope is None or self._slope[0] is not point:
            rows = self.data
            gradient, curvature = rows.loss.derivatives(rows.y, point.eta)
            slope = rows.design.backproject(self.row_weights * gradient)
            self._slope = (point, slope, rows.weights * curvature)
        return self._slope

    def penalty(self, W: Array) -> float:
        """Σ_k t_k ‖w_k‖₁."""
        return float(self.thresholds @ np.abs(W).sum(axis=1))

    def value(self, W: Array) -> float:
        """Loss above that of a perfect fit, plus penalty."""
        return self.evaluate(W).loss + self.penalty(W)

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Best weights for a coupling, by proximal Newton or by FISTA."""
        if self.solver == "fista":

            def certificate(V: Array, G: Array) -> float:
                return self.gap(self.evaluate(V), G, coupling)

            return fista(_Smooth(self), coupling, self.thresholds, W, tol=tol, max_iter=max_iter, gap=certificate)
        return proximal_newton(self, coupling, W, tol=tol, max_iter=max_iter)

    def rows(self, W: Array) -> Array:
        """The weights themselves."""
        return W

    def intercepts(self, W: Array) -> Array:
        """The best intercepts."""
        return self.evaluate(W).intercepts

    def gap(self, point: Point, G: Array, coupling: Coupling) -> float:
        """Upper bound of the suboptimality at a point with gradient G of loss plus coupling.

        For C ≻ 0 this is :func:`mssl.model.bounds.weight_gap`; otherwise the Fenchel dual of the loss at its own
        gradient, scaled into feasibility by one factor per connected component of tasks, and for tasks without any
        penalty the gradient's norm relative to that at W = 0, in units of the loss there.
        """
        if not np.isfinite(point.loss):
            return float("inf")
        if coupling.covariance is not None:
            return weight_gap(point.W, G, coupling, self.thresholds)
        return _dual_gap(self, point, G, coupling)


class _Smooth:
    """The loss alone, as FISTA asks for it."""

    def __init__(self, problem: GLMProblem) -> None:
        self.problem = problem

    def value(self, W: Array) -> float:
        return self.problem.evaluate(W).loss

    def gradient(self, W: Array) -> Array:
        return self.problem.slope(self.problem.evaluate(W))


def _dual_gap(problem: GLMProblem, point: Point, G: Array, coupling: Coupling) -> float:
    rows, t = problem.data, problem.thresholds
    W, K = point.W, problem.n_tasks
    n_parts, part = 1, np.zeros(K, dtype=int)
    if not coupling.rho:
        n_parts, part = connected_components(coupling.matrix, directed=False)

    def pooled(values: Array) -> Array:
        return np.asarray(np.bincount(part, weights=values, minlength=n_parts), dtype=float)

    largest = np.abs(G).max(axis=1, initial=0.0)
    room = np.ones(n_parts)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.minimum.at(room, part, np.where(largest > t, t / largest, 1.0))
    u = rows.design.per_task(room[part]) * rows.loss.gradient(rows.y, point.eta)
    # Added entry by entry: both are large where their sum is small.
    terms = rows.loss.value(rows.y, point.eta) + rows.loss.conjugate(rows.y, u)
    fenchel = pooled(rows.design.task_sums(problem.row_weights * terms))
    half_square = 0.5 * pooled(np.einsum("kd,kd->k", W, coupling.dot(W)))
    gaps = fenchel + half_square * (1.0 + room**2) + pooled(t * np.abs(W).sum(axis=1))
    free = pooled(t) == 0
    if np.any(free):
        zero = np.zeros(rows.design.n_total)
        b = rows.best_intercepts(zero)
        null = Point(np.zeros_like(W), zero, rows.design.per_task(b), b, 0.0)
        first = np.sqrt(pooled((problem.slope(null) ** 2).sum(axis=1)))
        lost = rows.design.task_sums(problem.row_weights * _excess(rows, null.eta))
        norms = np.sqrt(pooled((G**2).sum(axis=1)))
        gaps = np.where(free, norms / np.where(first > 0, first, 1.0) * pooled(lost), gaps)
    return float(np.maximum(gaps, 0.0).sum())


def _excess(rows: GLMRows, eta: Array) -> Array:
    """Half the unit deviance: the loss above that of a perfect fit."""
    return 0.5 * rows.loss.deviance(rows.y, rows.loss.inverse_link(eta))
