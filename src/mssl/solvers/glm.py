r"""The loss of a generalised linear model; every value and gradient is computed at the best intercepts.

.. math:: \sum_k s_k \sum_i \omega_{ki}\,\ell(y_{ki}, \tilde x_{ki}\cdot w_k + b_k)

:class:`GLMRows` holds features, targets and the loss of one observation; :class:`GLMLoss` is their loss as a function
of a solver's unknowns, with the quadratic that agrees with it at a point.

A task whose targets all lie on the edge of their range (one class only, or zero counts only) has no finite intercept.
Such a task gets half an observation of the missing kind, spread evenly over its rows: its targets are moved to
:math:`\tfrac12/(n_k+1)` from the edge. Nothing else changes, and certificates hold for the problem with these targets.

**Newton.** The proximal Newton method takes the weight step for any loss and penalty. It uses the solvers of the
quadratic problem.

Each step minimises the quadratic that agrees with the loss to second order, plus coupling and penalty. A line search
then moves towards the minimiser as far as the true objective falls. A Hessian in the form of Grams is kept over steps,
rounds and couplings as long as the steps contract well, and is formed again when they do not. Most steps therefore cost
two products with the features. The gradient is always the exact one, so the certificate is exact too.

References
----------
Lee, Sun & Saunders (2014), Proximal Newton-type methods for minimizing composite functions, SIAM Journal on
Optimization 24(3), doi:10.1137/130921428.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mssl._typing import Array
from mssl._validation import warn
from mssl.data.design import Design
from mssl.data.inputs import ROUNDING, listing
from mssl.data.layouts import TaskData
from mssl.glasso.solver import SLOW
from mssl.losses import Loss
from mssl.model.coupling import Coupling
from mssl.model.task_matrix import SMALL
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import (
    ARMIJO,
    INNER_ITERATIONS,
    LONGEST_MOVE,
    NEGLIGIBLE,
    PATIENCE,
    SMALLEST_GAIN,
    Unknowns,
    WeightStep,
    bracketed_newton,
)
from mssl.solvers.quadratic import EPS, Quadratic, StepProblem, make_quadratic

# The Newton iteration for the intercepts ends with a step of at most this length. The error is then about 1e-9 in the
# intercept and 1e-18 in the loss, so a further step would gain nothing.
_LAST_STEP = 3e-5

# Share of the present gap to which the quadratic is solved. A smaller share costs more per step, a larger one takes
# more steps. If a step leaves more than this share of the gap, the Hessian is formed again.
_INNER = 0.05


@dataclass(frozen=True, eq=False)
class Point:
    """The loss and its derivatives at given weights.

    Attributes
    ----------
    problem : GLMLoss
        The loss as a function of the weights.
    W : ndarray of shape (K, d)
        The weights, in the solver's unknowns.
    predictor, eta : ndarrays of shape (N,)
        X̃w without and with the best intercepts.
    intercepts : ndarray of shape (K,)
        The best intercepts.
    loss : float
        The loss above that of a perfect fit, noise precisions included.
    """

    problem: GLMLoss
    W: Array
    predictor: Array
    eta: Array
    intercepts: Array
    loss: float

    @cached_property
    def derivatives(self) -> tuple[Array, Array]:
        """Gradient of the loss, (K, d), and its curvature in the predictors, row weights included, (N,)."""
        problem, rows = self.problem, self.problem.rows
        gradient, curvature = rows.loss.derivatives(rows.y, self.eta)
        slope = problem.unknowns.gradient(rows.design.backproject(problem.row_weights * gradient))
        return slope, rows.weights * curvature


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
    memory_limit : int or None
        Bytes that Grams may take.
    """

    design: Design
    y: Array
    weights: Array
    loss: Loss
    intercept: bool = True
    memory_limit: int | None = None

    @classmethod
    def build(
        cls, data: TaskData, design: Design, loss: Loss, *, intercept: bool = True, memory_limit: int | None = None
    ) -> GLMRows:
        """The rows of task data. If all targets of a task lie on the edge of their range, they are moved off it."""
        y, found = np.asarray(data.y, dtype=float), []
        for edge in loss.edges if intercept else ():
            flat = np.add.reduceat((y != edge).astype(float), data.offsets[:-1]) == 0
            if not np.any(flat):
                continue
            names = list(data.tasks[flat])
            kind = f"{edge:g}" if len(loss.edges) == 1 else f"of the {'second' if edge else 'first'} class"
            found.append(f"All targets of {len(names)} tasks are {kind} (tasks {listing(names)})")
            shift = np.where(flat, 0.5 if edge == 0 else -0.5, 0.0) / (data.weight_sums() + 1.0)
            y = y + np.repeat(shift, data.n_rows)
        if found:
            warn(
                f"{'. '.join(found)}. Their intercepts would be infinite, so each task gets half an observation of the "
                "missing kind, and only related tasks determine its weights. If that is not intended, drop these tasks "
                "or give them other targets too."
            )
        return cls(design, y, data.row_weights, loss, intercept, memory_limit)

    @cached_property
    def perfect_fit(self) -> Array:
        """Loss of a perfect fit, (N,). It is subtracted from the loss, so that relative gaps do not depend on units."""
        return -self.loss.conjugate(self.y, np.zeros(len(self.y)))

    def best_intercepts(self, predictor: Array, start: Array | None = None) -> Array:
        """The intercepts b_k that minimise the loss for given predictors, (K,)."""
        if not self.intercept:
            return np.zeros(self.design.n_tasks)
        starts = self.design.offsets[:-1]
        closed = self.loss.balance(self.y, predictor, self.weights, starts)
        if closed is not None:
            return closed

        def derivatives(b: Array) -> tuple[Array, Array]:
            return self.loss.derivative_sums(self.y, predictor + self.design.per_task(b), self.weights, starts)

        start = np.zeros(self.design.n_tasks) if start is None else start
        return bracketed_newton(derivatives, start, longest=LONGEST_MOVE, last=_LAST_STEP)

    def working(self, predictor: Array, eta: Array, *, observed: bool = False) -> tuple[Array, Array]:
        """Weights c and targets z of the quadratic that agrees with the loss to second order at η.

        The curvature is the expected one or, if ``observed`` is True, that of the targets.
        """
        curve = self.loss.observed_curvature if observed else self.loss.curvature
        c = self.weights * curve(self.y, eta)
        means = self.design.task_sums(c) / self.design.n_rows
        c = np.maximum(c, NEGLIGIBLE * self.design.per_task(np.where(means > 0, means, 1.0)))
        return c, predictor - self.weights * self.loss.gradient(self.y, eta) / c

    def quadratic_at(
        self, predictor: Array, eta: Array, precisions: Array | None = None, *, observed: bool = False
    ) -> Quadratic:
        """The quadratic of :meth:`working`, for noise precisions that are 1 by default.

        A row of weight 2 counts as two rows when the form of the quadratic is chosen.
        """
        c, z = self.working(predictor, eta, observed=observed)
        c = c if precisions is None else self.design.per_task(precisions) * c
        n, limit = self.design.task_sums(self.weights), self.memory_limit
        return make_quadratic(self.design, c, z, intercept=self.intercept, memory_limit=limit, n_rows=n)

    def null_quadratic(self) -> Quadratic:
        """The quadratic at the fit of intercepts alone."""
        predictor = np.zeros(len(self.y))
        return self.quadratic_at(predictor, self.design.per_task(self.best_intercepts(predictor)))


class GLMLoss:
    """The loss of rows as a function of a solver's unknowns.

    Parameters
    ----------
    rows : GLMRows
        Rows and loss.
    precisions : ndarray of shape (K,)
        The s_k.
    first : Quadratic, optional
        A quadratic near the loss, whose Hessian the first Newton steps use.
    unknowns : Unknowns, optional
        The solver's unknowns; by default the weights themselves.
    """

    related = None  # the loss relates no tasks

    def __init__(
        self, rows: GLMRows, precisions: Array, first: Quadratic | None = None, unknowns: Unknowns | None = None
    ) -> None:
        self.rows, self.precisions = rows, precisions
        self.n_tasks, self.n_features = rows.design.n_tasks, rows.design.n_features
        self.unknowns = Unknowns() if unknowns is None else unknowns
        self.row_weights = rows.design.per_task(precisions) * rows.weights
        self.reference = None if first is None or first.by_rows else first
        self._last: Point | None = None

    def of_unknowns(self, unknowns: Unknowns) -> GLMLoss:
        """The same loss as a function of V; each task keeps its intercept."""
        return self if unknowns.matrix is None else GLMLoss(self.rows, self.precisions, None, unknowns)

    def predictor(self, V: Array) -> Array:
        """X̃w, (N,)."""
        return self.rows.design.predictor(self.unknowns.weights(V)) if np.any(V) else np.zeros(len(self.rows.y))

    def evaluate(self, V: Array, predictor: Array | None = None, start: Array | None = None) -> Point:
        """The loss at V. A known predictor and a guess of the intercepts save time."""
        last = self._last
        if last is not None and predictor is None and np.array_equal(last.W, V):
            return last
        rows = self.rows
        p = self.predictor(V) if predictor is None else predictor
        if start is None and last is not None:
            start = last.intercepts
        b = rows.best_intercepts(p, start)
        eta = p + rows.design.per_task(b)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = float(np.dot(self.row_weights, rows.loss.value(rows.y, eta) - rows.perfect_fit))
        self._last = Point(self, np.array(V), p, eta, b, loss)
        return self._last

    def value(self, V: Array) -> float:
        """The loss at V."""
        return self.evaluate(V).loss

    def gradient(self, V: Array) -> Array:
        """Its gradient at V."""
        return self.evaluate(V).derivatives[0]

    def intercepts(self, W: Array) -> Array:
        """The best intercepts."""
        return self.evaluate(self.unknowns.of_weights(W)).intercepts

    def model(self, point: Point, *, observed: bool) -> Quadratic:
        """The quadratic that agrees with the loss to second order at a point."""
        made = self.rows.quadratic_at(point.predictor, point.eta, self.precisions, observed=observed)
        made = made.of_unknowns(self.unknowns)
        if not made.by_rows:
            made = made.with_gradient(point.W, point.derivatives[0])  # the exact gradient
        self.reference = None if made.by_rows else made
        return made

    def fenchel(self, W: Array, scales: Array) -> Array:
        """Loss at W plus its conjugate at ``scales`` times the gradient in the predictors, task by task."""
        rows, point = self.rows, self.evaluate(W)
        task_scales = np.broadcast_to(scales, self.n_tasks)
        u = rows.design.per_task(task_scales) * rows.loss.gradient(rows.y, point.eta)
        # The two are added entry by entry, since both can be large while their sum is small.
        terms = rows.loss.value(rows.y, point.eta) + rows.loss.conjugate(rows.y, u)
        return self.unknowns.task_sums(rows.design.task_sums(self.row_weights * terms))

    def at_zero(self) -> tuple[Array, Array]:
        """Gradient and value of each task, above that of a perfect fit, at W = 0."""
        rows = self.rows
        eta = rows.design.per_task(rows.best_intercepts(np.zeros(len(rows.y))))
        gradient = self.unknowns.gradient(rows.design.backproject(self.row_weights * rows.loss.gradient(rows.y, eta)))
        excess = 0.5 * rows.loss.deviance(rows.y, rows.loss.inverse_link(eta))
        return gradient, self.unknowns.task_sums(rows.design.task_sums(self.row_weights * excess))

    def smooth(self, coupling: Coupling, V: Array, G: Array) -> float:
        """Loss plus coupling."""
        return self.value(V) + coupling.value(V)


@np.errstate(all="ignore")  # the line search rejects steps that overflow
def proximal_newton(
    problem: StepProblem[GLMLoss],
    V: Array,
    solve: Callable[..., WeightStep],
    *,
    tol: float,
    max_iter: int,
    budget: float = np.inf,
) -> WeightStep:
    r"""Minimise loss + :math:`\tfrac12\operatorname{tr}(VCV^\top)` + penalty from V.

    Parameters
    ----------
    problem : StepProblem
        Loss, coupling and penalty. The loss may get a new Hessian.
    V : ndarray of shape (K, d)
        Start.
    solve : callable (StepProblem, V, tol=, max_iter=) → WeightStep
        The solver of the quadratic steps.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Largest number of steps.
    budget : float
        Largest number of iterations of all quadratic steps together.

    Returns
    -------
    WeightStep
    """
    loss, coupling, penalty = problem.loss, problem.coupling, problem.penalty
    # A quadratic with a kept Hessian has another constant, and some bounds depend on the constant.
    keeps, spent = isinstance(penalty, EntrywisePenalty) and problem.bound.covariance is not None, 0
    point = loss.evaluate(np.asarray(V, dtype=float))
    poor, previous = False, np.inf  # a poor step shows that the kept Hessian is too old
    best, idle, gain, reach, done, stuck = np.inf, 0, np.inf, LONGEST_MOVE, 0, False
    # The loss of a row is about the precision of its task. This determines the rounding of a sum that is much smaller.
    rounding = float(EPS * (loss.precisions @ loss.rows.design.task_sums(loss.rows.weights)))
    while True:
        slope = point.derivatives[0]
        G = slope + coupling.dot(point.W)
        gap = problem.certificate(point.W, G) if np.isfinite(point.loss) else np.inf
        idle = 0 if gap < SLOW * best or gain > SMALLEST_GAIN * tol else idle + 1
        stuck = stuck or idle >= 2 * PATIENCE
        if end := WeightStep.ended(point.W, gap, done, tol, max_iter, stuck, problem.certificate.certified):
            return end
        best = min(best, gap)
        renew, reference, previous = poor or gap > _INNER * previous, loss.reference, gap
        fresh = reference is None or renew or not keeps
        if reference is None or fresh:
            quadratic = loss.model(point, observed=renew)
        else:
            quadratic = reference.with_gradient(point.W, slope)
        if quadratic.by_rows and quadratic.n_features <= SMALL:
            # Grams are accurate enough for a Newton step, and one compiled call makes all sweeps over small Grams.
            quadratic = quadratic.replaced(by_rows=False)
        target, step = point.W, StepProblem(quadratic, coupling, penalty)
        if spent < budget:
            goal = max(0.3 * tol, _INNER * gap)
            inner = solve(step, point.W, tol=goal, max_iter=INNER_ITERATIONS)
            target, spent = inner.W, spent + inner.n_iter
        new, full, gain, reach = _search(problem, point, target, G, reach, rounding)
        stuck, poor = new is None and fresh, not full
        point, done = (point, done) if stuck else (new or point, done + 1)


def _search(
    problem: StepProblem[GLMLoss], point: Point, target: Array, G: Array, reach: float, rounding: float
) -> tuple[Point | None, bool, float, float]:
    """Search along 1, ½, ¼, … of the way to the target for the first point at which the objective falls enough.

    This step may change a predictor by at most ``reach``. A fall within ``rounding`` counts as none.

    Returns
    -------
    point : Point or None
        The new point; None if the objective does not fall.
    full : bool
        Whether the step reaches the target.
    gain : float
        The amount by which the objective fell.
    reach : float
        The largest change of a predictor in the next step.
    """
    D, loss, coupling = target - point.W, problem.loss, problem.coupling
    if not np.all(np.isfinite(D)) or not np.any(D):
        return None, False, 0.0, reach
    rows = loss.rows
    move = loss.predictor(D)
    first = t = 1.0
    if rows.loss.curvature_bound is None:
        first = t = min(1.0, reach / max(float(np.abs(move).max(initial=0.0)), 1e-300))
    penalty = problem.penalty.value(point.W)
    expected = float(np.vdot(G, D)) + problem.penalty.value(target) - penalty
    before = point.loss + penalty + coupling.value(point.W)
    slack = ROUNDING * max(abs(point.loss), abs(before))
    # To first order the best intercepts change by minus the weighted mean of the change of the predictors.
    c = point.derivatives[1]
    totals = rows.design.task_sums(c)
    drift = rows.design.task_sums(c * move) / np.where(totals > 0, totals, 1.0)
    while t > EPS * first:
        V = point.W + t * D
        new = loss.evaluate(V, point.predictor + t * move, point.intercepts - t * drift)
        after = new.loss + problem.penalty.value(V) + coupling.value(V)
        if after <= before + ARMIJO * t * expected + slack:
            fall, further = max(before - after - rounding - slack, 0.0), 1.0 if first == 1.0 else 2.0
            return new, t == 1.0, fall, max(LONGEST_MOVE, reach * (further if t == first else 0.5))
        t *= 0.5
    loss.evaluate(point.W, point.predictor, point.intercepts)
    return None, False, 0.0, LONGEST_MOVE
