r"""Coordinate descent for the weight step: the fastest solver with a penalty on single weights.

.. math:: \min_W \; \ell(W) + \tfrac12\operatorname{tr}(W C W^\top) + \sum_{kj} g(w_{kj})

The solver combines three methods (:func:`descend`):

- **Sweeps** (:func:`coordinate_descent`). A compiled kernel visits the tasks one after the other. A visit makes one
  pass over all coordinates and a few passes over the coordinates that are not zero. The kernel keeps :math:`H_k w_k`
  (Grams) or the residual (features) up to date.
- **Working sets** (:func:`descend_on_sets`), for many features of which the penalty selects few. Each task has a set
  of features: the features in use and those that violate their optimality condition most. The step is solved on this
  set with its own Gram. One product with all features then gives the certificate and the features to add.
- **Support solves** (:func:`descend_on_support`), for large supports and for curvature that spans many orders of
  magnitude. On a known support with known signs an ℓ1 step is a linear system, which conjugate gradients solve. Weights
  that would change their sign leave the support.

References
----------
Friedman, Hastie, Tibshirani (2010), Regularization paths for generalized linear models via coordinate descent,
Journal of Statistical Software 33(1), https://doi.org/10.18637/jss.v033.i01

Massias, Gramfort & Salmon (2018), Celer: a fast solver for the Lasso with dual extrapolation, Proceedings of the 35th
International Conference on Machine Learning, https://proceedings.mlr.press/v80/massias18a.html
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from mssl._typing import Array, Index, Mask
from mssl.data.inputs import ROUNDING
from mssl.glasso.solver import SLOW
from mssl.kernels import design_sweeps, gram_sweeps, plain, set_sweeps, weight_descent
from mssl.kernels.threads import spread
from mssl.model.bounds import Components
from mssl.model.coupling import Coupling
from mssl.model.task_matrix import SMALL
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import NEGLIGIBLE, PATIENCE, Status, WeightStep
from mssl.solvers.linear import preconditioners, solve_cg
from mssl.solvers.quadratic import INNER, MANY_FEATURES, Problem, Quadratic, pays_in_sets

Sweeps: TypeAlias = tuple[Callable[[int, float], tuple[int, float]], Callable[[], Array]]

# The constants below affect the time only. The certificate alone decides when a descent ends.

# Smallest number of operations per pass for which several threads are used. Below it, starting threads takes longer
# than they save.
_LARGE = 10**6
# Number of groups of tasks for threads. More groups balance the load better, fewer cost less.
_MAX_GROUPS = 8
# Number of sweeps between two certificates. Fewer sweeps compute more certificates, more sweeps may be wasted.
_BURST = 50
# Share of the weights in the support above which one linear system is faster than many sweeps.
_DENSE = 0.25
# Number of sweeps before a support solve, which counts as the same number. After fewer sweeps the support is often
# wrong, more sweeps are often wasted.
_SWEEPS = 20
# Number of sweeps over few features after which support solves take over, and of conjugate gradient iterations on a
# support after which sweeps take over. Most problems need far fewer; an iteration costs about as much as a sweep.
_CREEPING = 300
# A decrease of the objective is ignored if rounding may exceed this share of the objective.
_NO_DIGITS = 0.01


def descend(problem: Problem, W: Array, *, tol: float, max_iter: int = 10_000) -> WeightStep:
    """Minimise by the methods that suit the problem.

    With few features, sweeps come first; support solves follow if the sweeps are slow. With many features, working sets
    come first as long as they are small; support solves follow.

    Parameters
    ----------
    problem : StepProblem
        Loss, coupling and a penalty on single weights.
    W : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most sweeps.

    Returns
    -------
    WeightStep
    """
    loss = problem.loss
    if not problem.certificate.certified:
        return coordinate_descent(problem, W, tol=tol, max_iter=max_iter)
    if loss.n_features < MANY_FEATURES:
        step = coordinate_descent(problem, W, tol=tol, max_iter=min(_CREEPING, max_iter))
        if step.status is not Status.MAX_ITER or step.n_iter >= max_iter:
            return step
        more = descend_on_support(problem, step.W, tol=tol, max_iter=max_iter - step.n_iter)
        return replace(more, n_iter=step.n_iter + more.n_iter)
    done, whole = 0, not loss.by_rows and "gram" in vars(loss)
    if not whole and (problem.bound.curved or problem.bound.scalable) and pays_in_sets(loss.rows.design):
        # If Grams can be formed, the descent switches from the sets to the Grams sooner.
        step = descend_on_sets(problem, W, tol=tol, max_iter=max_iter, densest=0.5 if loss.by_rows else _DENSE)
        done = step.n_iter
        if step.status is not Status.MAX_ITER or done >= max_iter:
            return step
        W = step.W
    step = descend_on_support(problem, W, tol=tol, max_iter=max_iter - done, smallest=_DENSE, drops=1)
    return replace(step, n_iter=done + step.n_iter)


def coordinate_descent(problem: Problem, W0: Array, *, tol: float, max_iter: int = 10_000) -> WeightStep:
    """Minimise by sweeps over tasks and coordinates until the certificate is within ``tol``.

    Parameters
    ----------
    problem : StepProblem
        Loss, coupling and a penalty on single weights.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most sweeps.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.model.coupling import Coupling
    >>> from mssl.solvers.quadratic import StepProblem
    >>> loss = Quadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> problem = StepProblem.of(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1))
    >>> step = coordinate_descent(problem, np.zeros((1, 2)), tol=1e-10)
    >>> step.W
    array([[1., 0.]])
    """
    bound, loss, coupling = problem.bound, problem.loss, problem.coupling
    W = bound.penalty.allowed(W0)
    if not loss.by_rows and bound.curved and W.size <= SMALL**2 and isinstance(coupling.precision, np.ndarray):
        # One compiled call makes all sweeps and certificates of a small problem.
        tables = (plain(loss.gram), plain(loss.task_scale), plain(loss.linear))
        HW = plain(loss.product(W))
        done, gap = weight_descent(tables, bound.penalty.kernel, coupling.prior, W, HW, float(tol), max_iter)
        step = WeightStep.ended(W, gap, done, tol, limit=max_iter, idle=True)
        assert step is not None
        return step
    run, gradient = (_design_sweeps if loss.by_rows else _gram_sweeps)(loss, coupling, bound.penalty, W)
    return descend_in_bursts(W, run, lambda V: bound(V, gradient()), tol, max_iter, bound.certified)


def descend_in_bursts(
    W: Array,
    run: Callable[[int, float], tuple[int, float]],
    certificate: Callable[[Array], float],
    tol: float,
    max_iter: int,
    certified: bool = True,
    jump: Callable[[Array], None] | None = None,
    nothing: float = 0.0,
) -> WeightStep:
    """Make bursts of sweeps, each followed by a certificate.

    ``run(sweeps, enough)`` changes W in place and returns the number of sweeps and the gain of the last sweep. A burst
    ends when a sweep gains less than ``enough``, and the descent ends when it gains at most ``nothing``. After a full
    burst that did not reach the tolerance, the optional ``jump`` may move W on its support.
    """
    gap, done, enough, decrease = certificate(W), 0, tol, np.inf
    while True:
        idle = decrease <= nothing
        if end := WeightStep.ended(W, gap, done, tol, limit=max_iter, idle=idle, bound=certified):
            return end
        made, decrease = run(min(_BURST, max_iter - done), enough)
        done += made
        gap = certificate(W)
        if np.isfinite(gap) and gap > tol and made == _BURST and jump is not None:
            jump(W)
            gap = certificate(W)
        # The ratio of the certificate to the last gain hardly changes. It gives the gain that reaches the tolerance.
        enough = min(enough, 0.5 * decrease * tol / gap) if gap > tol else enough


def independent_groups(coupling: Coupling, n_operations: int) -> list[Index]:
    """Groups of tasks for threads. The coupling relates no tasks of different groups.

    The groups do not depend on the number of threads.
    """
    if n_operations < _LARGE or coupling.rho:
        return [np.arange(coupling.n_tasks)]
    labels = Components(coupling).label
    sizes = np.bincount(labels)
    loads = np.zeros(_MAX_GROUPS)
    group_of = np.empty(len(sizes), dtype=np.int64)
    for component in np.argsort(-sizes, kind="stable"):
        group_of[component] = np.argmin(loads)
        loads[group_of[component]] += sizes[component]
    return [tasks for group in range(_MAX_GROUPS) if len(tasks := np.flatnonzero(group_of[labels] == group))]


def spread_sweeps(
    groups: list[Index], mean: Array, kernel: Callable[..., tuple[int, float]], n_sweeps: int, enough: float
) -> tuple[int, float]:
    """Sweep over all groups; return the largest number of sweeps of a group, and the sum of the last gains.

    The kernel takes the sum ``mean`` that a shared mean adds to every task, a group, the number of sweeps and the gain
    that ends them. With several groups there is no shared mean, and each group has a copy of its own.
    """
    total = sum(map(len, groups))

    def run(tasks: Index) -> tuple[int, float]:
        shared = mean if len(groups) == 1 else mean.copy()
        return kernel(shared, tasks, n_sweeps, float(enough) * len(tasks) / total)

    answers = spread(run, groups)
    return max(int(made) for made, _ in answers), float(sum(gained for _, gained in answers))


def _gram_sweeps(loss: Quadratic, coupling: Coupling, penalty: EntrywisePenalty, W: Array) -> Sweeps:
    """Coordinate descent on Grams: a function that sweeps, and one that returns the gradient of loss plus coupling."""
    HW, linear = np.ascontiguousarray(loss.product(W)), plain(loss.linear)
    tables, form = (plain(loss.gram), loss.task_scale, linear), (coupling.arrays, penalty.kernel)
    groups, kernel = independent_groups(coupling, W.size * loss.n_features), partial(gram_sweeps, tables, form, W, HW)
    return partial(spread_sweeps, groups, coupling.u @ W, kernel), lambda: HW - linear + coupling.dot(W)


def _design_sweeps(loss: Quadratic, coupling: Coupling, penalty: EntrywisePenalty, W: Array) -> Sweeps:
    """Coordinate descent on the features: the same two functions as :func:`_gram_sweeps`."""
    rows, design = loss.rows, loss.rows.design
    c, totals, means, sums, squares = map(
        plain, (rows.c, rows.totals, rows.column_means, rows.column_sums, rows.squares)
    )
    tables, form = (design.columns, c, totals, means, sums, squares), (coupling.arrays, penalty.kernel)
    groups = independent_groups(coupling, len(rows.c) * loss.n_features)

    def run(n_sweeps: int, enough: float) -> tuple[int, float]:
        v = rows.c * (rows.target - design.stored.dot(W))
        state = np.stack([np.vecdot(rows.column_means, W), design.task_sums(v)], axis=1)

        def kernel(mean: Array, tasks: Index, most: int, goal: float) -> tuple[int, float]:
            return design_sweeps(tables, form, (W, v, state, mean), tasks, most, goal)

        return spread_sweeps(groups, coupling.u @ W, kernel, n_sweeps, enough)

    return run, lambda: loss.gradient(W) + coupling.dot(W)


def descend_on_sets(
    problem: Problem, W0: Array, *, tol: float, max_iter: int = 10_000, densest: float = 0.5
) -> WeightStep:
    """Minimise on growing sets of features until the certificate over all features is within ``tol``.

    Parameters
    ----------
    problem : StepProblem
        Loss with rows, coupling and a convex penalty on single weights. C must be positive definite, or every weight
        must have a penalty.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most sweeps.
    densest : float
        Largest size of the support for which working sets are used, as a share of its largest possible size.

    Returns
    -------
    WeightStep
        If the penalty is so weak that the sets become too large, the status is MAX_ITER after fewer sweeps.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.data.design import Design
    >>> from mssl.solvers.quadratic import StepProblem
    >>> X = np.eye(3)[[0, 0, 1, 1, 2, 2]] * [[2.0], [-2], [2], [-2], [2], [-2]]
    >>> loss = Quadratic.of_rows(Design.build(X, [0, 6], scale=False), np.ones(6), X @ [1.0, 0.1, 0])
    >>> problem = StepProblem.of(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1))
    >>> step = descend_on_sets(problem, np.zeros((1, 3)), tol=1e-9)
    >>> step.W.round(6)
    array([[0.777778, 0.      , 0.      ]])
    """
    loss, bound, rows = problem.loss, problem.bound, problem.loss.rows
    design, root, penalty, W = rows.design, np.sqrt(rows.c), bound.penalty, bound.penalty.allowed(W0)
    most = np.minimum(design.n_rows, loss.n_features)
    # A gain is of second order in the step: smaller gains than this come from steps of the size of rounding.
    nothing, done, idle, members = NEGLIGIBLE**2 * float(np.dot(rows.c, rows.target**2)), 0, False, W != 0
    while True:
        r = root * rows.target
        r -= np.concatenate([rows.block(k, used) @ W[k, used] for k, used in enumerate(W != 0)])
        G, values = problem.coupling.dot(W) - design.backproject(root * r), 0.5 * design.task_sums(r**2)
        gap, wanted = bound(W, G, values), _wanted(W, G, penalty)
        gram_size = float(np.sum(wanted.sum(axis=1, dtype=float) ** 2))
        large = np.count_nonzero(W) > densest * most.sum() or gram_size > loss.n_features * float(design.n_rows.sum())
        idle = idle and not np.any(wanted & ~members)
        if end := WeightStep.ended(W, gap, done, tol, 0 if large else max_iter, idle):
            return end
        members, goal = wanted, max(0.3 * tol, INNER * gap)
        step = _on_sets(problem, W, members, goal, nothing, max_iter - done)
        done, idle = done + step.n_iter, step.status is Status.STALLED or not step.n_iter


def _wanted(W: Array, G: Array, penalty: EntrywisePenalty) -> Mask:
    """The support, and the features that violate their optimality condition most.

    The number of added features is the size of the support, and at least a few dozen.
    """
    members = W != 0
    violations = np.where(members, -1.0, (-G if penalty.positive else np.abs(G)) - penalty.strengths)
    n_new = np.maximum(members.sum(axis=1), SMALL // 2)
    for k, violation in enumerate(violations):
        others = np.flatnonzero(violation > 0)
        if len(others) > n_new[k]:
            others = others[np.argpartition(-violation[others], n_new[k])[: n_new[k]]]
        members[k, others] = True
    return members


def _on_sets(problem: Problem, W: Array, members: Mask, tol: float, nothing: float, max_iter: int) -> WeightStep:
    """Sweep over each task's set of features until their certificate is within ``tol`` or no sweep gains; W changes."""
    loss, bound, coupling = problem.loss, problem.bound, problem.coupling
    blocks = [loss.rows.block(k, chosen) for k, chosen in enumerate(members)]
    grams, sizes = [block.T @ block for block in blocks], members.sum(axis=1)
    starts, corners = (np.concatenate([[0], np.cumsum(parts)]).astype(np.int64) for parts in (sizes, sizes**2))
    gram = np.concatenate([np.ravel(H) for H in grams])
    tasks, features = map(np.ascontiguousarray, np.nonzero(members))
    q, HW = loss.linear[members], np.concatenate([H @ W[k, members[k]] for k, H in enumerate(grams)])
    code, positive, parameters = bound.penalty.kernel
    penalty = (code, positive, np.ascontiguousarray(parameters[:, tasks, features]))
    sets, form = (gram, corners, features, starts, q), (coupling.arrays, penalty)
    groups, slope = independent_groups(coupling, len(gram)), np.zeros(W.shape)

    def gap(W: Array) -> float:
        slope[members] = HW - q
        values = loss.constants + 0.5 * np.bincount(tasks, W[members] * (HW - 2 * q), len(W))
        return bound(W, np.where(members, slope + coupling.dot(W), 0.0), values)

    run = partial(spread_sweeps, groups, coupling.u @ W, partial(set_sweeps, sets, form, W, HW))
    return descend_in_bursts(W, run, gap, tol, max_iter, nothing=nothing)


def descend_on_support(
    problem: Problem,
    W0: Array,
    *,
    tol: float,
    max_iter: int = 2000,
    smallest: float = 0.0,
    drops: int = 30,
) -> WeightStep:
    """Minimise by coordinate descent and linear solves on the support in turns.

    Parameters
    ----------
    problem : StepProblem
        Loss, coupling and a penalty on single weights. The penalty is convex.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Limit of sweeps and conjugate gradient iterations together; the last linear system may exceed it. An iteration
        costs about as much as a sweep, and a factorisation as much as several sweeps.
    smallest : float
        Smallest size of the support for which a linear system is solved, as a share of its largest possible size.
        Sweeps over smaller supports are cheap.
    drops : int
        Number of times that a solve may continue after weights have left the support. A large number is useful if
        curvature spans many orders of magnitude. Otherwise sweeps find the weights that leave sooner.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.solvers.quadratic import StepProblem
    >>> loss = Quadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> problem = StepProblem.of(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1))
    >>> descend_on_support(problem, np.zeros((1, 2)), tol=1e-10).W
    array([[1., 0.]])
    """
    W, done, burst, loss = W0, 0, _SWEEPS, problem.loss
    least_gap, least, idle = np.inf, np.inf, 0
    # With fewer rows than features a support has at most as many weights as there are rows.
    n_rows = loss.rows.design.n_rows if loss.by_rows else np.full(len(W0), W0.shape[1])
    largest_support = float(np.minimum(n_rows, W0.shape[1]).sum())
    while True:
        step = coordinate_descent(problem, W, tol=tol, max_iter=max(min(burst, max_iter - done), 0))
        done += step.n_iter
        if step.status is not Status.MAX_ITER or done >= max_iter:
            return replace(step, n_iter=done)
        W = step.W
        if np.count_nonzero(W) < smallest * largest_support and done < 2 * _BURST:
            burst *= 4
            continue
        W, made = solve_on_support(problem, W, drops, max_iter - done)
        done, burst = done + made, _SWEEPS
        gap, value = problem.bound(W, problem.gradient(W)), problem.value(W)
        idle = 0 if gap < SLOW * least_gap or value < least - ROUNDING * abs(least) else idle + 1
        least_gap, least = min(least_gap, gap), min(least, value)
        if end := WeightStep.ended(W, gap, done, tol, idle=idle >= PATIENCE):
            return end


def solve_on_support(problem: Problem, W: Array, drops: int, max_iter: int) -> tuple[Array, int]:
    """The best weights on the support of W, and the number of iterations.

    Weights that would change their sign leave the support. Three choices are compared, and the one that gains most
    counts: all of these weights leave, only the first one of each task, or only the first one of all tasks. The
    remaining weights are solved for again, up to ``drops`` times and within ``max_iter`` iterations.
    """
    value, done = problem.value(W), 0
    for _ in range(drops):
        target, made = _best_on_support(problem, W)
        done += made + _SWEEPS
        crosses = target * W < 0
        candidates = [np.where(crosses, 0.0, target)]
        if np.any(crosses):
            candidates += [_up_to_the_first_zero(W, target, axis) for axis in (1, None)]
        values = [problem.value(candidate) for candidate in candidates]
        best = int(np.argmin(values))
        if not values[best] < value or problem.loss.rounding(candidates[best]) > _NO_DIGITS * abs(value):
            break
        W, value = candidates[best], values[best]
        if not np.any(crosses) or done >= max_iter:
            break
    return W, done


def _best_on_support(problem: Problem, W: Array) -> tuple[Array, int]:
    """The minimiser on the support of W if the signs of W are kept in the penalty, and the number of iterations."""
    support, done = W != 0, 0
    constant = np.where(support, problem.loss.linear - problem.bound.penalty.slopes(W), 0.0)

    def operate(V: Array) -> Array:
        return np.where(support, problem.product(V), 0.0)

    for precondition, budget in preconditioners(problem, support):
        limit = int(min(budget, _CREEPING))
        W, made = solve_cg(operate, precondition, constant - operate(W), W, lambda V, S: False, limit, NEGLIGIBLE)
        done += made
        if made < limit:
            break
    return W, done


def _up_to_the_first_zero(W: Array, target: Array, axis: int | None) -> Array:
    """Move from W towards the target until a weight is zero: each task on its own (``axis`` 1), or all together."""
    crosses = target * W < 0
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(crosses, W / (W - target), 1.0)
    share = shares.min(axis=axis, keepdims=True)
    return np.where(crosses & (shares <= share), 0.0, W + share * (target - W))
