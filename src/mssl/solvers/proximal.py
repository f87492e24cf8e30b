r"""The weight step with a penalty that ties the tasks together: joint feature selection, low rank, and user penalties.

.. math:: \min_V\; \ell(V) + \tfrac12\operatorname{tr}(V C V^\top) + g(V)

for a quadratic loss and a penalty with a proximal map. The weights V are in units of the noise. Other losses are
replaced by the quadratics of Newton's steps.

For :class:`~mssl.penalties.L21`, a working set of features grows until it contains every feature in use. On this set,
block descent over features finds the features in use, and Newton steps by conjugate gradients solve for their weights.
Both need the Grams of the set alone. Features outside the set cost an occasional gradient only.

All other penalties use accelerated proximal steps with one product per step; so does L21 if its Grams would be too
large. The number of steps grows with the square root of the condition number. The solver "fista" uses the same steps
for penalties on single weights. The bound is :class:`mssl.model.bounds.CompositeBound`.

References
----------
Beck & Teboulle (2009), A fast iterative shrinkage-thresholding algorithm for linear inverse problems,
doi:10.1137/080716542.
Qin, Scheinberg & Goldfarb (2013), Efficient block-coordinate descent algorithms for the group Lasso,
doi:10.1007/s12532-013-0051-x.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mssl._typing import Array, Mask
from mssl.glasso.solver import SLOW
from mssl.kernels import group_descent as descend_groups
from mssl.kernels import plain
from mssl.model.task_matrix import SMALL
from mssl.penalties import L21
from mssl.solvers.base import INNER_ITERATIONS, PATIENCE, Status, WeightStep
from mssl.solvers.quadratic import INNER, Problem, Quadratic

# The constants below affect the time only. The certificate decides when a descent ends.

# Iterations between two certificates. A smaller number computes more certificates, a larger one wastes iterations.
_GAP_EVERY = 5
# Smallest factor by which the curvature grows if a step shows that it is too small. A smaller factor repeats more
# steps, a larger one makes them shorter.
_GROWTH = 1.5
_DENSE, _LARGE = 0.6, 2**28  # FISTA is faster above this share of features in use and these bytes of the set's Grams


def descend_composite(problem: Problem, V0: Array, *, tol: float, max_iter: int = 10_000) -> WeightStep:
    """Minimise a quadratic loss + ½ tr(VCVᵀ) + penalty. C must have no rank-one part."""
    if not isinstance(problem.penalty, L21):
        return accelerated(problem, V0, tol=tol, max_iter=max_iter)
    step = _group_descent(problem, problem.penalty, V0, tol, max_iter)
    if step.status is not Status.MAX_ITER or step.n_iter >= max_iter:
        return step
    last = accelerated(problem, step.W, tol=tol, max_iter=max_iter - step.n_iter)
    return replace(last, n_iter=step.n_iter + last.n_iter)


def accelerated(problem: Problem, V0: Array, *, tol: float, max_iter: int = 10_000) -> WeightStep:
    """FISTA with restarts.

    An iteration costs one product, because the gradient of a quadratic can be extrapolated like the weights. Momentum
    needs a convex penalty. With other penalties, plain proximal steps are used, which always lower the objective.
    """
    operate, penalty, certificate = problem.product, problem.penalty, problem.certificate
    V = np.array(V0, dtype=float)
    HV = operate(V) if np.any(V) else np.zeros_like(V)
    q = problem.loss.linear
    # A lower bound of the largest curvature is the first guess. The steps raise it if it is too small.
    D = HV - q if np.any(HV - q) else np.ones_like(q)
    L = float(np.vdot(D, operate(D))) / float(np.vdot(D, D))
    L = L if L > 0 else 1.0
    previous, H_previous, momentum = V, HV, 1.0
    least, last_fall = np.inf, 0
    iteration = 0
    while True:
        if iteration % _GAP_EVERY == 0 or iteration == max_iter:
            gap = certificate(V, HV - q)
            if gap < SLOW * least:
                least, last_fall = gap, iteration
            idle = iteration - last_fall >= PATIENCE * INNER_ITERATIONS  # a safeguard
            if end := WeightStep.ended(V, gap, iteration, tol, limit=max_iter, idle=idle, bound=certificate.certified):
                return end
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        push = (momentum - 1.0) / following if penalty.convex else 0.0
        Y, HY = V + push * (V - previous), HV + push * (HV - H_previous)
        while True:
            new = penalty.prox(Y - (HY - q) / L, 1.0 / L)
            H_new, move = operate(new), new - Y
            # The quadratic model bounds the loss along the move if and only if this holds. No value is needed.
            needed, length = float(np.vdot(move, H_new - HY)), float(np.vdot(move, move))
            if needed <= L * length * (1 + 1e-9) or length == 0.0:
                break
            L = max(_GROWTH * L, min(1.02 * needed / length, 4.0 * L))
        uphill = float(np.vdot(Y - new, new - V)) > 0
        previous, H_previous = (new, H_new) if uphill else (V, HV)
        momentum = 1.0 if uphill else following
        V, HV, iteration = new, H_new, iteration + 1


def _group_descent(problem: Problem, penalty: L21, V0: Array, tol: float, max_iter: int) -> WeightStep:
    """Joint feature selection until the certificate is within ``tol`` or the Grams become too large.

    ``max_iter`` limits sweeps and products. The status is MAX_ITER after fewer of them if another solver is faster.
    """
    V, quadratic, coupling = np.array(V0, dtype=float), problem.loss, problem.coupling
    d, has_grams = V.shape[1], not quadratic.by_rows
    starts, columns, values, *_ = coupling.arrays
    # The row sums of |C| are the diagonal of a matrix that exceeds C.
    links = (starts, columns, values, None, 0.0), np.add.reduceat(np.abs(values), starts[:-1])
    alpha, scales = float(penalty.alpha), plain(quadratic.task_scale)
    common = None if has_grams else quadratic.rows.design.common_weights(quadratic.rows.c)
    if not has_grams:
        scales = np.ones(len(V)) if common is None else common[1]
    members: Mask = np.zeros(d, dtype=bool)
    grams = np.empty((0, 0, 0))
    done, size, previous = 0, SMALL, np.inf
    while True:
        G = problem.gradient(V) if V.any() else -quadratic.linear
        gap = problem.certificate(V, G)
        used = int(V.any(axis=0).sum())
        large = not has_grams and used > _DENSE * d and grams.nbytes > _LARGE
        if end := WeightStep.ended(V, gap, done, tol, limit=0 if large else max_iter):
            return end
        wanted = _working_set(V, G, penalty.alpha, size, 0.5 if has_grams else 1.0)
        if np.any(wanted & ~members):
            members, grams = wanted, sub_grams(quadratic, wanted, 1 if common else len(V))
        elif gap > SLOW * previous:
            return WeightStep(V, gap, done, Status.STALLED)
        every = members.all()
        some = (slice(None), slice(None) if every else members)
        linear, weights, slope = (plain(array[some]) for array in (quadratic.linear, V, G))
        # The other half of the tolerance is left for the features outside the set.
        goal = max(0.5 * tol, 0.0 if every else INNER * gap)
        loss, state = (grams, scales, linear), (weights, slope, goal, max_iter - done)
        done += descend_groups(loss, links, alpha, quadratic.null_value, *state)[0]
        V[some] = weights
        size, previous = max(size, 2 * used), gap


def _working_set(V: Array, G: Array, alpha: float, size: int, all_from: float) -> Mask:
    """Features in use and those with the largest violations, up to ``size`` features.

    All features are taken if their share would exceed ``all_from``.
    """
    d = V.shape[1]
    if d <= SMALL:
        return np.ones(d, dtype=bool)
    members: Mask = np.asarray(V.any(axis=0))
    slopes = np.where(members, 0.0, np.einsum("kd,kd->d", G, G))
    others = np.flatnonzero(slopes > alpha**2)
    room = max(size - int(members.sum()), SMALL)
    if len(others) > room:
        others = others[np.argpartition(-slopes[others], room)[:room]]
    members[others] = True
    return members if members.sum() <= all_from * d else np.ones(d, dtype=bool)


def sub_grams(quadratic: Quadratic, members: Mask, n_grams: int) -> Array:
    """The Grams H_k of some features, (K or 1, m, m).

    With rows, they are the Grams of the first ``n_grams`` tasks. Otherwise they do not contain the task scales.
    """
    if quadratic.by_rows:
        return np.stack([quadratic.gram_of(k, members) for k in range(n_grams)])
    features = np.flatnonzero(members)
    return plain(quadratic.gram if members.all() else quadratic.gram[:, features[:, None], features])
