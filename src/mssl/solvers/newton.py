r"""Proximal Newton for the weight step of any loss and penalty, around the solvers of the quadratic one.

Each step minimises the quadratic that agrees with the loss to second order, plus coupling and penalty, and walks
towards its minimiser as far as the true objective falls. A Hessian in the form of Grams is kept over steps, rounds
and couplings for as long as the steps contract well, corrected by the last changes of the gradient where there is no
penalty; only then is it formed again, so that most steps cost two products with the features. The gradient is always
the true one, so the certificate is too.

References
----------
Lee, Sun & Saunders (2014), Proximal Newton-type methods for minimizing composite functions, SIAM Journal on
Optimization 24(3), doi:10.1137/130921428.

Liu & Nocedal (1989), On the limited memory BFGS method for large scale optimization, Mathematical Programming 45,
doi:10.1007/BF01589116.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mssl.model.coupling import Coupling
from mssl.solvers.base import Status, WeightStep, solve_cg
from mssl.solvers.quadratic import GramQuadratic, Quadratic, Reference, block_preconditioner

if TYPE_CHECKING:
    from mssl.solvers.glm import GLMLoss, Point

Array = NDArray[np.float64]

INNER_ITERATIONS = 1000  # limit of the solver of the quadratic in one step; the next step goes on from there

_INNER = 0.05  # share of the present gap to which the quadratic is solved: smaller costs more, larger takes more steps
_POOR = 0.2  # a step that leaves more of the gap than this is poor: a new Hessian is then worth its cost
_ARMIJO = 1e-4  # share of the expected fall that a step must reach; the usual value
_HALVINGS = 40  # limit of the halvings of a step, which is then as short as rounding
_PATIENCE = 12  # steps without gain and without a better certificate before the solver ends as stalled
_SMALLEST_GAIN = 0.01  # share of the tolerance that a step must gain: creeping by less would take thousands of steps
_ROUNDING = 1e-14  # relative rise of the objective that counts as rounding, since it is a long sum
_LONGEST_MOVE = 4.0  # largest change of a predictor in a first step if curvature is unbounded: longer ones leave the
# model. Steps of that length that do what the model says are followed by longer ones, or far optima are crept towards.
_PAIRS = 10  # changes of the gradient that correct a kept Hessian: more cost memory and products
_FEATURES_PER_STEP = 32  # to form a Hessian costs one step for each so many features
_RIDGE_DRIFT = 1.5  # factor of a task's ridge up to which a preconditioner is used again


@dataclass(frozen=True)
class Model:
    """What a Newton step knows of a problem besides its loss.

    Attributes
    ----------
    penalty : callable V → float
        Value of the penalty.
    bound : callable (V, G) → float
        Bound of the suboptimality, G being the gradient of loss plus coupling.
    minimise : callable (quadratic, V, tol) → V
        Minimises a quadratic loss plus coupling and penalty from V.
    certified : bool
        Whether ``bound`` is one, or a violation of the optimality condition only.
    keeps : bool
        Whether a Hessian may be kept: the solver of the quadratic must not need the quadratic's constant then.
    corrects : bool
        Whether the past corrects a kept Hessian. There must be no penalty, and C ≻ 0.
    """

    penalty: Callable[[Array], float]
    bound: Callable[[Array, Array], float]
    minimise: Callable[[Quadratic, Array, float], Array]
    certified: bool = True
    keeps: bool = False
    corrects: bool = False


def proximal_newton(
    loss: GLMLoss, coupling: Coupling, model: Model, V: Array, *, tol: float, max_iter: int
) -> WeightStep:
    r"""Minimise loss + :math:`\tfrac12\operatorname{tr}(VCV^\top)` + penalty from V.

    Parameters
    ----------
    loss : GLMLoss
        The loss; its Hessian may be replaced.
    coupling : Coupling
        C.
    model : Model
        Penalty, bound, and the solver of the quadratic step.
    V : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most steps.

    Returns
    -------
    WeightStep
    """
    point = loss.evaluate(np.asarray(V, dtype=float))
    memory = _Memory(loss, coupling, model)
    reached = Status.CONVERGED if model.certified else Status.STATIONARY
    gap, best, idle, gain, reach = np.inf, np.inf, 0, np.inf, _LONGEST_MOVE
    # Rows of a loss are numbers of about 1, times the precision: that is what a sum that is much smaller rounds by.
    rounding = float(np.finfo(float).eps * (loss.precisions @ loss.rows.design.task_sums(loss.rows.weights)))
    for done in range(max_iter + 1):
        slope = loss.slope(point)
        G = slope + coupling.dot(point.W)
        gap = model.bound(point.W, G) if np.isfinite(point.loss) else np.inf
        if gap <= tol:
            return WeightStep(point.W, gap, done, reached)
        if not np.isfinite(gap):
            return WeightStep(point.W, gap, done, Status.DIVERGED)
        idle = 0 if gap < 0.9 * best or gain > _SMALLEST_GAIN * tol else idle + 1
        if idle >= _PATIENCE:
            return WeightStep(point.W, gap, done, Status.STALLED)
        best = min(best, gap)
        if done == max_iter:
            break
        renew, reference = memory.needs_hessian(gap), loss.reference
        fresh = reference is None or renew or not model.keeps
        if reference is None or fresh:
            quadratic = loss.model(point, observed=renew)
        else:
            quadratic = reference.quadratic.replaced(linear=reference.quadratic.product(point.W) - slope)
        memory.see(point.W, slope, gap, fresh)
        inner = max(0.3 * tol, _INNER * gap)
        if model.corrects and isinstance(quadratic, GramQuadratic):
            target = point.W + memory.direction(G, _division(loss, quadratic, coupling, inner))
        else:
            target = model.minimise(quadratic, point.W, inner)
        new, full, gain, reach = _search(loss, coupling, model, point, target, G, reach, rounding)
        if new is None and fresh:
            return WeightStep(point.W, gap, done, Status.STALLED)
        memory.judge(full)
        point = point if new is None else new
    return WeightStep(point.W, gap, max_iter, Status.MAX_ITER)


class _Memory:
    """The record of the last steps: whether the kept Hessian is good enough, and how the gradient changed.

    Without a penalty the changes correct the kept Hessian (limited-memory BFGS), so that it can be used for longer. A
    new one costs one step for each few dozens of features, and so many poor steps are allowed before it is formed.
    """

    def __init__(self, loss: GLMLoss, coupling: Coupling, model: Model) -> None:
        self.loss, self.coupling, self.corrects = loss, coupling, model.corrects
        self.allowed = loss.n_features // _FEATURES_PER_STEP if self.corrects else 0
        kept = loss.reference.pairs if loss.reference is not None and self.corrects else []
        self.pairs = [self._with_coupling(s, y) for s, y in kept]
        self.last: tuple[Array, Array] | None = None
        self.gap, self.poor = np.inf, 0

    def _with_coupling(self, s: Array, y: Array) -> tuple[Array, Array, float]:
        whole = y + self.coupling.dot(s)
        return s, whole, float(np.vdot(s, whole))

    def needs_hessian(self, gap: float) -> bool:
        """Whether a new Hessian is needed."""
        self.poor += gap > _POOR * self.gap
        return self.poor > self.allowed

    def see(self, W: Array, slope: Array, gap: float, fresh: bool) -> None:
        """Note a point, the loss's gradient and the certificate; a new Hessian clears the record."""
        reference = self.loss.reference
        if fresh:
            self.pairs, self.poor = [], 0
        elif self.corrects and self.last is not None and reference is not None:
            s, y = W - self.last[0], slope - self.last[1]
            if float(np.vdot(s, y)) > 1e-12 * float(np.linalg.norm(s)) * float(np.linalg.norm(y)):
                reference.pairs = [*reference.pairs[1 - _PAIRS :], (s, y)]
                self.pairs = [*self.pairs[1 - _PAIRS :], self._with_coupling(s, y)]
        self.last, self.gap = (W, slope), gap

    def judge(self, full: bool) -> None:
        """Count a step that had to be shortened as poor."""
        self.poor += not full

    def direction(self, G: Array, solve: Callable[[Array], Array]) -> Array:
        """−H⁻¹G, H being the kept Hessian (``solve`` divides by it) corrected by the pairs."""
        R, shares = G, []
        for s, y, along in reversed(self.pairs):
            shares.append(float(np.vdot(s, R)) / along)
            R = R - shares[-1] * y
        D = solve(R)
        for (s, y, along), share in zip(self.pairs, reversed(shares), strict=True):
            D = D + (share - float(np.vdot(y, D)) / along) * s
        return -D


def _division(loss: GLMLoss, quadratic: GramQuadratic, coupling: Coupling, tol: float) -> Callable[[Array], Array]:
    """Division by the Hessian, conjugate gradients with a preconditioner that outlives the step."""
    reference, ridge = loss.reference or Reference(quadratic), coupling.diagonal()
    known, precondition = reference.ridge, reference.precondition
    near = known is not None and bool(np.all((ridge <= _RIDGE_DRIFT * known) & (known <= _RIDGE_DRIFT * ridge)))
    if precondition is None or not near:
        precondition = block_preconditioner(quadratic, ridge)
        reference.ridge, reference.precondition = ridge, precondition

    def operate(V: Array) -> Array:
        return quadratic.product(V) + coupling.dot(V)

    def enough(_: Array, R: Array) -> bool:
        return coupling.inverse_quadratic(R) <= tol

    return lambda R: solve_cg(operate, precondition, R, np.zeros_like(R), enough, INNER_ITERATIONS)[0]


def _search(
    loss: GLMLoss,
    coupling: Coupling,
    model: Model,
    point: Point,
    target: Array,
    G: Array,
    reach: float,
    rounding: float,
) -> tuple[Point | None, bool, float, float]:
    """The farthest of 1, ½, ¼, … towards the target at which the objective falls enough.

    The second answer says whether that is a full step, the third by how much the objective fell, the fourth how far the
    next step may change a predictor, ``reach`` being what this one may. Falls of the size of ``rounding`` count as
    none.
    """
    D = target - point.W
    if not np.all(np.isfinite(D)) or not np.any(D):
        return None, False, 0.0, reach
    rows = loss.rows
    move = loss.predictor(D)
    t = 1.0
    if rows.loss.curvature_bound is None:
        t = min(1.0, reach / max(float(np.abs(move).max(initial=0.0)), 1e-300))
    full = t == 1.0
    penalty = model.penalty(point.W)
    expected = float(np.vdot(G, D)) + model.penalty(target) - penalty
    before = point.loss + penalty + coupling.value(point.W)
    slack = _ROUNDING * max(abs(point.loss), abs(before))
    # To first order the best intercepts follow the predictors' weighted mean.
    c = loss.curvature(point)
    totals = rows.design.task_sums(c)
    drift = rows.design.task_dots(c, move) / np.where(totals > 0, totals, 1.0)
    for halvings in range(_HALVINGS):
        V = point.W + t * D
        new = loss.evaluate(V, point.predictor + t * move, point.intercepts - t * drift)
        after = new.loss + model.penalty(V) + coupling.value(V)
        if after <= before + _ARMIJO * t * expected + slack:
            fall = max(before - after - rounding - slack, 0.0)
            return new, full, fall, max(_LONGEST_MOVE, 0.5 * reach if halvings else reach if full else 2.0 * reach)
        t, full = 0.5 * t, False
    loss.evaluate(point.W, point.predictor, point.intercepts)
    return None, False, 0.0, _LONGEST_MOVE
