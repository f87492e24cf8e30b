r"""Proximal Newton for the weight step of any loss, around the solvers of the quadratic one.

Each step minimises the quadratic that agrees with the loss to second order, plus coupling and penalty, and walks
towards its minimiser as far as the true objective falls. A Hessian held by Grams is kept over steps, alternations and
couplings for as long as the steps contract well; only then is it formed again, so that most steps cost two products
with the features. The gradient is always the true one, so the certificate is too.

References
----------
Lee, Sun & Saunders (2014), Proximal Newton-type methods for minimizing composite functions, SIAM Journal on
Optimization 24(3), doi:10.1137/130921428.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mssl.coupling import Coupling
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.glm_rows import Point, Reference
from mssl.solvers.linear import block_preconditioner, solve_cg
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, quadratic_gap
from mssl.solvers.weights import solve_quadratic

if TYPE_CHECKING:
    from mssl.solvers.glm import GLMProblem

Array = NDArray[np.float64]

_INNER = 0.05  # share of the present gap to which the quadratic is solved
_POOR = 0.2  # a step that leaves more of the gap than this asks for a new Hessian
_ARMIJO = 1e-4
_HALVINGS = 40
_PATIENCE = 12  # steps without a better certificate before giving up
_ROUNDING = 1e-14  # what the objective may rise by, relatively, since it is a long sum
_LONGEST_MOVE = 4.0  # largest change of a predictor in one step, where the curvature is unbounded
_INNER_ITERATIONS = 1000
_RIDGE_DRIFT = 1.5  # a preconditioner serves until a task's ridge has changed by this factor


class _Quadratic(NamedTuple):
    problem: GramQuadratic | DesignQuadratic
    fresh: bool


def proximal_newton(problem: GLMProblem, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
    r"""Minimise loss + :math:`\tfrac12\operatorname{tr}(WCW^\top)` + ℓ1 penalty from W.

    Parameters
    ----------
    problem : GLMProblem
        Loss and penalty; its Hessian may be replaced.
    coupling : Coupling
        C.
    W : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most steps.

    Returns
    -------
    WeightStep
    """
    point = problem.evaluate(np.asarray(W, dtype=float))
    renew, previous = False, np.inf
    gap, best, idle, gain = np.inf, np.inf, 0, np.inf
    for done in range(max_iter + 1):
        slope = problem.slope(point)
        G = slope + coupling.dot(point.W)
        gap = problem.gap(point, G, coupling)
        if gap <= tol:
            return WeightStep(point.W, gap, done, Status.CONVERGED)
        if not np.isfinite(gap):
            return WeightStep(point.W, gap, done, Status.DIVERGED)
        idle = 0 if gap < 0.9 * best or gain > _ROUNDING else idle + 1
        if idle >= _PATIENCE:
            return WeightStep(point.W, gap, done, Status.STALLED)
        best = min(best, gap)
        if done == max_iter:
            break
        renew = renew or gap > _POOR * previous
        model = _model(problem, point, slope, coupling, renew)
        target = _minimise(problem, model.problem, coupling, point.W, max(0.3 * tol, _INNER * gap))
        new, full, gain = _search(problem, coupling, point, target, G)
        if new is None:
            if model.fresh:
                return WeightStep(point.W, gap, done, Status.STALLED)
            renew, previous = True, np.inf
            continue
        point, previous, renew = new, gap, not full
    return WeightStep(point.W, gap, max_iter, Status.MAX_ITER)


def _model(problem: GLMProblem, point: Point, slope: Array, coupling: Coupling, renew: bool) -> _Quadratic:
    """The quadratic at a point; with the Hessian at hand where it serves, a new one otherwise."""
    reference = problem.reference
    # Without C ≻ 0 the inner certificate needs the whole quadratic, constants included.
    if reference is not None and not renew and coupling.covariance is not None:
        linear = reference.quadratic.product(point.W) - slope
        return _Quadratic(replace(reference.quadratic, linear=linear), False)
    rows, s = problem.data, problem.precisions
    c, z = rows.working(point.predictor, point.eta, observed=renew)
    made = rows.quadratic(rows.design.per_task(s) * c, z)
    problem.reference = Reference(made) if isinstance(made, GramQuadratic) else None
    return _Quadratic(made, True)


def _minimise(
    problem: GLMProblem, quadratic: GramQuadratic | DesignQuadratic, coupling: Coupling, W: Array, tol: float
) -> Array:
    """Weights that nearly minimise the quadratic; what they lack is made up for by the next step."""
    plain = not np.any(problem.thresholds)
    if plain and problem.solver in ("auto", "cg") and isinstance(quadratic, GramQuadratic):
        return _conjugate_gradients(problem, quadratic, coupling, W, tol)
    step = solve_quadratic(
        quadratic, coupling, problem.thresholds, W, solver=problem.solver, tol=tol, max_iter=_INNER_ITERATIONS
    )
    return step.W


def _conjugate_gradients(
    problem: GLMProblem, quadratic: GramQuadratic, coupling: Coupling, W: Array, tol: float
) -> Array:
    """As :func:`mssl.solvers.linear.conjugate_gradient`, with a preconditioner that outlives the step."""
    reference, ridge = problem.reference, coupling.diagonal()
    if reference is None:
        reference = Reference(quadratic)
    known = reference.ridge
    if (
        known is None
        or reference.precondition is None
        or not np.all((ridge <= _RIDGE_DRIFT * known) & (known <= _RIDGE_DRIFT * ridge))
    ):
        reference.ridge, reference.precondition = ridge, block_preconditioner(quadratic, ridge)
    nothing = np.zeros(problem.n_tasks)

    def operate(V: Array) -> Array:
        return quadratic.product(V) + coupling.dot(V)

    def enough(V: Array, R: Array) -> bool:
        return quadratic_gap(quadratic, V, coupling, nothing, -R) <= tol

    R = quadratic.linear - operate(W)
    return solve_cg(operate, reference.precondition, R, W, enough, _INNER_ITERATIONS)[0]


def _search(
    problem: GLMProblem, coupling: Coupling, point: Point, target: Array, G: Array
) -> tuple[Point | None, bool, float]:
    """The farthest of 1, ½, ¼, … towards the target at which the objective falls enough.

    The second answer says whether that is a full step, the third by how much the objective fell, relatively.
    """
    D = target - point.W
    if not np.all(np.isfinite(D)) or not np.any(D):
        return None, False, 0.0
    move = problem.data.design.predictor(D)
    t = 1.0
    if problem.data.loss.curvature_bound is None:
        t = min(1.0, _LONGEST_MOVE / max(float(np.abs(move).max(initial=0.0)), 1e-300))
    full = t == 1.0
    penalty = problem.penalty(point.W)
    expected = float(np.vdot(G, D)) + problem.penalty(target) - penalty
    before = point.loss + penalty + coupling.value(point.W)
    slack = _ROUNDING * max(abs(point.loss), abs(before))
    b = point.intercepts
    for _ in range(_HALVINGS):
        W = point.W + t * D
        new = problem.evaluate(W, point.predictor + t * move, b)
        after = new.loss + problem.penalty(W) + coupling.value(W)
        if after <= before + _ARMIJO * t * expected + slack:
            return new, full, (before - after) / max(abs(before), abs(point.loss), 1e-300)
        t, full = 0.5 * t, False
    problem.evaluate(point.W, point.predictor, b)
    return None, False, 0.0
