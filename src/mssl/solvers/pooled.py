r"""One weight vector for all tasks: an exact reduction of the weight step to d weights.

.. math:: \min_w\; \ell(1 w^\top) + t\|w\|_1 + \tfrac\alpha2\|w\|^2, \qquad t = \sum_k t_k
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mssl.model.coupling import Coupling
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.gaussian import GaussianProblem
from mssl.solvers.glm import GLMProblem
from mssl.solvers.glm_rows import GLMRows
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, make_quadratic
from mssl.solvers.weights import solve_quadratic

Array = NDArray[np.float64]

_INNER = 0.05  # share of the present gap to which the quadratic of a Newton step is solved
_HALVINGS = 40
_ARMIJO = 1e-4


@dataclass(frozen=True, eq=False)
class PooledProblem:
    """A weight problem whose tasks all have the same weights, but their own intercepts.

    Attributes
    ----------
    problem : GaussianProblem or GLMProblem
        Loss and ℓ1 penalty of all tasks.
    ridges : ndarray of shape (K,)
        Ridge on each task's weights, in addition to the coupling.
    """

    problem: GaussianProblem | GLMProblem
    ridges: Array

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return self.problem.n_tasks

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.problem.n_features

    def value(self, W: Array) -> float:
        """Loss, penalty and ridge."""
        return self.problem.value(W) + 0.5 * float(self.ridges @ (W**2).sum(axis=1))

    def rows(self, W: Array) -> Array:
        """The weights themselves."""
        return W

    def intercepts(self, W: Array) -> Array:
        """Those of the problem."""
        return self.problem.intercepts(W)

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Best common weights; the coupling counts as the ridge that it is on them."""
        own = Coupling.diagonal_only(np.array([coupling.dense().sum() + self.ridges.sum()]))
        threshold = np.array([self.problem.thresholds.sum()])
        w = np.ascontiguousarray(W.mean(axis=0, keepdims=True))
        if isinstance(self.problem, GaussianProblem):
            step = _least_squares(pool(self.problem.quadratic), own, threshold, w, tol, max_iter)
        else:
            step = _newton(self.problem, own, threshold, w, tol, max_iter)
        return replace(step, W=np.repeat(step.W, self.n_tasks, axis=0))


def pool(quadratic: GramQuadratic | DesignQuadratic) -> GramQuadratic:
    """The loss of one weight vector for all tasks."""
    constants = np.array([quadratic.value(np.zeros((quadratic.n_tasks, quadratic.n_features)))])
    linear = quadratic.linear.sum(axis=0, keepdims=True)
    if isinstance(quadratic, GramQuadratic) and quadratic.is_shared:
        return GramQuadratic(quadratic.task_scale.sum() * quadratic.gram, linear, constants)
    if isinstance(quadratic, GramQuadratic):
        return GramQuadratic(np.tensordot(quadratic.task_scale, quadratic.gram, axes=1)[None], linear, constants)
    design = quadratic.design
    gram = design.gram(quadratic.c, intercept=quadratic.intercept).sum(axis=0, keepdims=True)
    return GramQuadratic(gram, linear, constants)


def _least_squares(
    quadratic: GramQuadratic, coupling: Coupling, threshold: Array, w: Array, tol: float, max_iter: int
) -> WeightStep:
    if threshold[0] > 0:
        return solve_quadratic(quadratic, coupling, threshold, w, tol=tol, max_iter=max_iter)
    return solve_quadratic(quadratic, coupling, threshold, w, solver="sylvester", tol=tol)


def _newton(
    problem: GLMProblem, coupling: Coupling, threshold: Array, w: Array, tol: float, max_iter: int
) -> WeightStep:
    """Proximal Newton in the common weights."""
    from mssl.model.bounds import weight_gap

    K, ones = problem.n_tasks, np.ones((problem.n_tasks, 1))
    first = float(np.linalg.norm(problem.slope(problem.evaluate(np.zeros((K, problem.n_features)))).sum(axis=0)))
    size = max(1.0, abs(problem.value(np.zeros((K, problem.n_features)))))
    gap = np.inf
    for done in range(max_iter + 1):
        point = problem.evaluate(ones * w)
        G = problem.slope(point).sum(axis=0, keepdims=True) + coupling.dot(w)
        if coupling.covariance is not None:
            gap = weight_gap(w, G, coupling, threshold)
        else:
            # Without a ridge there is no bound: how far −G is from a subgradient, relative to the start.
            excess = np.where(w != 0, G + threshold * np.sign(w), G - np.clip(G, -threshold, threshold))
            gap = float(np.linalg.norm(excess)) / max(first, 1e-300) * size
        if gap <= tol:
            return WeightStep(w, gap, done, Status.CONVERGED)
        model = pool(_working(problem.data, problem.precisions, point.predictor, point.eta))
        target = _least_squares(model, coupling, threshold, w, max(0.3 * tol, _INNER * gap) * 0.1, 1000).W
        new = _search(problem, coupling, threshold, w, target, G)
        if new is None:
            return WeightStep(w, gap, done, Status.STALLED)
        w = new
    return WeightStep(w, gap, max_iter, Status.MAX_ITER)


def _working(rows: GLMRows, precisions: Array, predictor: Array, eta: Array) -> GramQuadratic | DesignQuadratic:
    c, z = rows.working(predictor, eta)
    weights = rows.design.per_task(precisions) * c
    return make_quadratic(rows.design, weights, z, intercept=rows.intercept, memory_budget=rows.memory_budget)


def _search(
    problem: GLMProblem, coupling: Coupling, threshold: Array, w: Array, target: Array, G: Array
) -> Array | None:
    """The farthest of 1, ½, ¼, … towards the target at which the objective falls enough."""
    ones, D = np.ones((problem.n_tasks, 1)), target - w

    def objective(v: Array) -> float:
        return problem.evaluate(ones * v).loss + coupling.value(v) + float(threshold[0] * np.abs(v).sum())

    before = objective(w)
    expected = float(np.vdot(G, D)) + float(threshold[0] * (np.abs(target).sum() - np.abs(w).sum()))
    t = 1.0
    for _ in range(_HALVINGS):
        if np.any(D) and objective(w + t * D) <= before + _ARMIJO * t * expected + 1e-14 * abs(before):
            return w + t * D
        t *= 0.5
    return None
