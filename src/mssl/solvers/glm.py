r"""The weight step of any generalised linear model, as the alternation sees it.

.. math:: \sum_k s_k \sum_i \omega_{ki}\,\ell(y_{ki}, \tilde x_{ki}\cdot w_k + b_k) + \sum_k t_k\|w_k\|_1,

with intercepts at their optimum wherever a value, a gradient or a certificate is computed.

A task whose targets all lie on the edge of their range (one class only, no count at all) has no finite intercept.
It gets half an observation of what it lacks, spread evenly over its rows: its targets are moved to
:math:`\tfrac12/(n_k+1)` from the edge. Nothing else changes, so certificates hold for the problem so stated.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from mssl.certificates import weight_gap
from mssl.coupling import Coupling
from mssl.data import TaskData
from mssl.design import Design
from mssl.inputs import listing
from mssl.losses import Loss
from mssl.solvers.base import WeightStep
from mssl.solvers.fista import fista
from mssl.solvers.gaussian import scale_by_task
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, make_quadratic
from mssl.solvers.spectral_start import Spectra

Array = NDArray[np.float64]

_CURVATURE_FLOOR = 1e-12  # least working weight, as a share of the task's mean
_INTERCEPT_STEPS = 100
_LONGEST_STEP = 8.0  # first cap of an intercept's Newton step, doubled each time it binds


@dataclass(frozen=True, eq=False)
class GLMRows:
    """Features, targets and weights of all tasks under a loss.

    Attributes
    ----------
    design : Design
        Features, centred and scaled.
    y, weights : ndarrays of shape (N,)
        Targets and row weights, task by task.
    loss : Loss
        The loss of one observation.
    intercept : bool
        Whether each task has a free intercept.
    memory_budget : int or None
        Bytes that Grams may take.
    """

    design: Design
    y: Array
    weights: Array
    loss: Loss
    intercept: bool = True
    memory_budget: int | None = None

    @classmethod
    def build(
        cls, data: TaskData, design: Design, loss: Loss, *, intercept: bool = True, memory_budget: int | None = None
    ) -> GLMRows:
        """Rows of task data; targets of tasks at the edge of their range are moved off it, with a warning."""
        weights = np.ones(len(data.y)) if data.weights is None else data.weights
        y = np.asarray(data.y, dtype=float)
        if intercept:
            y = _off_the_edge(y, weights, data, loss)
        return cls(design, y, weights, loss, intercept, memory_budget)

    def best_intercepts(self, predictor: Array, start: Array | None = None) -> Array:
        """The b_k that minimise the loss at given predictors, (K,)."""
        if not self.intercept:
            return np.zeros(self.design.n_tasks)
        starts = self.design.offsets[:-1]
        closed = self.loss.balance(self.y, predictor, self.weights, starts)
        if closed is not None:
            return closed
        return _newton_intercepts(self, predictor, np.zeros(self.design.n_tasks) if start is None else start)

    def working(self, predictor: Array, eta: Array, *, observed: bool = False) -> tuple[Array, Array]:
        """Weights c and targets z of the quadratic that agrees with the loss to second order at η."""
        curve = self.loss.observed_curvature if observed else self.loss.curvature
        c = self.weights * curve(self.y, eta)
        means = self.design.task_sums(c) / self.design.n_rows
        c = np.maximum(c, _CURVATURE_FLOOR * self.design.per_task(np.where(means > 0, means, 1.0)))
        return c, predictor - self.weights * self.loss.gradient(self.y, eta) / c

    def working_quadratic(self, predictor: Array, intercepts: Array) -> GramQuadratic | DesignQuadratic:
        """The quadratic at a point, expected curvature, noise precisions 1."""
        c, z = self.working(predictor, predictor + self.design.per_task(intercepts))
        return make_quadratic(self.design, c, z, intercept=self.intercept, memory_budget=self.memory_budget)

    def null_quadratic(self) -> GramQuadratic | DesignQuadratic:
        """The quadratic at the fit of intercepts alone."""
        predictor = np.zeros(self.design.n_total)
        return self.working_quadratic(predictor, self.best_intercepts(predictor))


def _off_the_edge(y: Array, weights: Array, data: TaskData, loss: Loss) -> Array:
    for edge in loss.edges:
        flat = np.add.reduceat((y != edge).astype(float), data.offsets[:-1]) == 0
        if not np.any(flat):
            continue
        names = list(data.tasks[flat])
        warnings.warn(
            f"All targets of {len(names)} tasks are {edge:g} (tasks {listing(names)}), so that their own intercepts "
            "would be infinite: each gets half an observation of what it lacks. Their weights come from related tasks "
            "alone; drop these tasks, or give them other targets too, if that is not meant.",
            UserWarning,
            stacklevel=2,
        )
        shift = 0.5 / (data.weight_sums() + 1.0)
        inside = 1.0 if edge == 0 else -1.0
        y = np.where(np.repeat(flat, data.n_rows), y + inside * np.repeat(shift, data.n_rows), y)
    return y


def _newton_intercepts(rows: GLMRows, predictor: Array, start: Array) -> Array:
    """Safeguarded Newton in all intercepts at once: brackets halve whatever Newton would not."""
    design, b = rows.design, np.array(start, dtype=float)
    low, high = np.full(len(b), -np.inf), np.full(len(b), np.inf)
    cap = np.full(len(b), _LONGEST_STEP)
    for _ in range(_INTERCEPT_STEPS):
        eta = predictor + design.per_task(b)
        terms = rows.weights * rows.loss.gradient(rows.y, eta)
        slope, size = design.task_sums(terms), design.task_sums(np.abs(terms))
        low, high = np.where(slope < 0, b, low), np.where(slope > 0, b, high)
        curve = design.task_sums(rows.weights * rows.loss.observed_curvature(rows.y, eta))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = np.where(slope == 0, 0.0, -slope / curve)
        capped = ~(np.abs(step) <= cap)
        step = np.where(capped, -np.sign(slope) * cap, step)
        cap = np.where(capped, 2 * cap, cap)
        new = b + step
        outside = (new <= low) | (new >= high)
        with np.errstate(invalid="ignore"):
            new = np.where(outside & (slope != 0), 0.5 * (low + high), new)
        done = (np.abs(slope) <= 1e-14 * size) | (np.abs(new - b) <= 1e-15 * (1.0 + np.abs(b)))
        if np.all(done):
            break
        b = np.where(done, b, new)
    return b


@dataclass(frozen=True, eq=False)
class Point:
    """The loss at some weights.

    Attributes
    ----------
    W : ndarray of shape (K, d)
        Weights.
    predictor, eta : ndarrays of shape (N,)
        X̃w without and with the best intercepts.
    intercepts : ndarray of shape (K,)
        The best intercepts.
    loss : float
        The loss, noise precisions included.
    """

    W: Array
    predictor: Array
    eta: Array
    intercepts: Array
    loss: float


@dataclass(eq=False)
class Reference:
    """A Hessian that is kept while it serves: Grams, and a preconditioner for some ridge on them."""

    quadratic: GramQuadratic
    ridge: Array | None = None
    precondition: Callable[[Array], Array] | None = None


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
        p = rows.design.predictor(W) if predictor is None else predictor
        if start is None and last is not None:
            start = last.intercepts
        b = rows.best_intercepts(p, start)
        eta = p + rows.design.per_task(b)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = float(np.dot(self.row_weights, rows.loss.value(rows.y, eta)))
        self._last = Point(np.array(W), p, eta, b, loss)
        return self._last

    def slope(self, point: Point) -> Array:
        """Gradient of the loss in W, (K, d)."""
        rows = self.data
        return rows.design.backproject(self.row_weights * rows.loss.gradient(rows.y, point.eta))

    def penalty(self, W: Array) -> float:
        """Σ_k t_k ‖w_k‖₁."""
        return float(self.thresholds @ np.abs(W).sum(axis=1))

    def value(self, W: Array) -> float:
        """Loss plus penalty."""
        return self.evaluate(W).loss + self.penalty(W)

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Best weights for a coupling, by proximal Newton or by FISTA."""
        if self.solver == "fista":

            def certificate(V: Array, G: Array) -> float:
                return self.gap(self.evaluate(V), G, coupling)

            return fista(_Smooth(self), coupling, self.thresholds, W, tol=tol, max_iter=max_iter, gap=certificate)
        from mssl.solvers.prox_newton import proximal_newton

        return proximal_newton(self, coupling, W, tol=tol, max_iter=max_iter)

    def rows(self, W: Array) -> Array:
        """The weights themselves."""
        return W

    def intercepts(self, W: Array) -> Array:
        """The best intercepts."""
        return self.evaluate(W).intercepts

    def gap(self, point: Point, G: Array, coupling: Coupling) -> float:
        """Upper bound of the suboptimality at a point with gradient G of loss plus coupling.

        For C ≻ 0 this is :func:`mssl.certificates.weight_gap`; otherwise the Fenchel dual of the loss at its own
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


def pearson_dispersion(
    rows: GLMRows, base: GramQuadratic | DesignQuadratic, spectra: Spectra, noise: Array, signal: Array
) -> Array:
    r"""Dispersion of each task, :math:`\hat\phi_k = \sum_i \omega_{ki} (y-\mu)^2/V(\mu) / (n_k - \mathrm{df}_k)`.

    Means come from single-task ridge fits whose strengths are the spectra's: noise over signal variance. The degrees
    of freedom are those of the same ridges, at most nine tenths of the rows.
    """
    s = 1.0 / noise
    ridge = 1.0 / np.maximum(signal, 1e-3 / (s * spectra.typical_value()))
    problem = GLMProblem.begin(rows, s, np.zeros(len(s)), "auto", scale_by_task(base, s))
    zero = np.zeros((problem.n_tasks, problem.n_features))
    size = max(1.0, abs(problem.value(zero)))
    W = problem.solve(Coupling.diagonal_only(ridge), zero, tol=1e-6 * size, max_iter=100).W
    means = rows.loss.inverse_link(problem.evaluate(W).eta)
    squares = rows.design.task_sums(rows.weights * (rows.y - means) ** 2 / rows.loss.variance(means))
    used = np.sum(s[:, None] * spectra.values / (s[:, None] * spectra.values + ridge[:, None]), axis=1)
    totals = rows.design.task_sums(rows.weights)
    freedom = np.maximum(spectra.freedom - used, 0.1 * totals)
    floor = 1e-10 * np.maximum(totals, 1.0) / np.maximum(freedom, 1e-300)
    return np.maximum(squares / freedom, floor)
