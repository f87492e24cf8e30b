r"""Proximal Newton for the weight step of any loss and penalty, around the solvers of the quadratic one.

Each step minimises the quadratic that agrees with the loss to second order, plus coupling and penalty, and walks
towards its minimiser as far as the true objective falls. A Hessian in the form of Grams is kept over steps, rounds
and couplings for as long as the steps contract well; only then is it formed again, so that most steps cost two products
with the features. The gradient is always the true one, so the certificate is too.

References
----------
Lee, Sun & Saunders (2014), Proximal Newton-type methods for minimizing composite functions, SIAM Journal on
Optimization 24(3), doi:10.1137/130921428.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mssl._typing import Array
from mssl.model.coupling import Coupling
from mssl.solvers.base import WeightStep
from mssl.solvers.quadratic import Quadratic

if TYPE_CHECKING:
    from mssl.solvers.glm import GLMLoss, Point

INNER_ITERATIONS = 1000  # limit of the solver of the quadratic in one step; the next step goes on from there

_INNER = 0.05  # share of the present gap to which the quadratic is solved: smaller costs more, larger takes more steps
_POOR = 0.05  # a step that leaves more of the gap than this is poor: a new Hessian is then worth its cost
_ARMIJO = 1e-4  # share of the expected fall that a step must reach; the usual value
_HALVINGS = 40  # limit of the halvings of a step, which is then as short as rounding
_PATIENCE = 12  # steps without gain and without a better certificate before the solver ends as stalled
_SMALLEST_GAIN = 0.01  # share of the tolerance that a step must gain: creeping by less would take thousands of steps
_ROUNDING = 1e-14  # relative rise of the objective that counts as rounding, since it is a long sum
_LONGEST_MOVE = 4.0  # largest change of a predictor in a first step if curvature is unbounded: longer ones leave the
# model. Steps of that length that do what the model says are followed by longer ones, or far optima are crept towards.


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
    """

    penalty: Callable[[Array], float]
    bound: Callable[[Array, Array], float]
    minimise: Callable[[Quadratic, Array, float], Array]
    certified: bool = True
    keeps: bool = False


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
    poor, previous = False, np.inf  # a poor step shows that the kept Hessian is too old
    best, idle, gain, reach, done, stuck = np.inf, 0, np.inf, _LONGEST_MOVE, 0, False
    # Rows of a loss are numbers of about 1, times the precision: that is what a sum that is much smaller rounds by.
    rounding = float(np.finfo(float).eps * (loss.precisions @ loss.rows.design.task_sums(loss.rows.weights)))
    while True:
        slope = loss.slope(point)
        G = slope + coupling.dot(point.W)
        gap = model.bound(point.W, G) if np.isfinite(point.loss) else np.inf
        idle = 0 if gap < 0.9 * best or gain > _SMALLEST_GAIN * tol else idle + 1
        stuck = stuck or idle >= _PATIENCE
        if end := WeightStep.ended(point.W, gap, done, tol, max_iter, stuck, model.certified):
            return end
        best = min(best, gap)
        renew, reference, previous = poor or gap > _POOR * previous, loss.reference, gap
        fresh = reference is None or renew or not model.keeps
        if reference is None or fresh:
            quadratic = loss.model(point, observed=renew)
        else:
            quadratic = reference.replaced(linear=reference.product(point.W) - slope)
        target = model.minimise(quadratic, point.W, max(0.3 * tol, _INNER * gap))
        new, full, gain, reach = _search(loss, coupling, model, point, target, G, reach, rounding)
        stuck, poor = new is None and fresh, not full
        point, done = (point, done) if stuck else (new or point, done + 1)


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
