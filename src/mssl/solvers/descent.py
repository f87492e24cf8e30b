r"""Coordinate descent for the weight step: the fastest solver with a penalty on single weights.

.. math:: \min_W \; \ell(W) + \tfrac12\operatorname{tr}(W C W^\top) + \sum_{kj} g(w_{kj})

Three methods that take turns (:func:`descend`):

- **Sweeps** (:func:`coordinate_descent`). Tasks are visited one after the other; a visit is one pass over all
  coordinates and a few over those that are not zero, in a compiled kernel, with :math:`H_k w_k` (Grams) or the residual
  (features) kept up to date.
- **Working sets** (:func:`descend_on_sets`), where the penalty leaves few of many weights. Each task has a set of
  features, those in use and those that violate their optimality condition most. On these the step is solved with their
  Gram alone; one product with all features tells which others have to come in, and is the certificate.
- **Support solves** (:func:`descend_on_support`), where many weights are in use or curvature spans many orders of
  magnitude. On a known support with known signs an ℓ1 step is a linear system, which conjugate gradients solve at once;
  weights that would change sign on the way leave the support.

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
from mssl.kernels import design_sweeps, gram_sweeps, plain, set_sweeps, weight_descent
from mssl.kernels.threads import spread
from mssl.model.bounds import Components, WeightBound
from mssl.model.coupling import Coupling
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import ROUNDING, SLOW, Status, WeightStep, solve_cg
from mssl.solvers.quadratic import (
    MANY_FEATURES,
    SMALL,
    Quadratic,
    StepProblem,
    pays_in_sets,
    preconditioners,
    value_rounding,
)

Sweeps: TypeAlias = tuple[Callable[[int, float], tuple[int, float]], Callable[[], Array]]

# All constants trade time against time; the certificate alone decides when a descent ends.
_LARGE = 10**6  # operations of a pass from which threads repay their start
_MAX_GROUPS = 8  # groups of tasks for threads: more balance better, fewer cost less
_BURST = 50  # sweeps between two certificates: fewer cost more certificates, more may sweep in vain
_DENSE = 0.25  # share of weights in the support from which one linear system is faster than many sweeps

# Features that join a set at a time: few cost more products with all features, many make the Grams of the sets larger.
_GROWTH = 0.25  # as a share of the task's rows; or as many as the set has, if that is more
_SMALLEST_GROWTH = 30  # at least so many
_NEAR = 0.9  # share of the threshold from which on a feature is expected to violate its condition soon
_INNER = (
    1e-4  # share of the present gap to which the problem on the sets is solved: smaller polishes sets that will change
)
_NOTHING = 1e-20  # gain of a sweep, relative to twice the loss at W = 0, that is rounding

_SWEEPS = 20  # sweeps before a support solve: fewer solve on wrong supports, more sweep where a solve would do
_PATIENCE = 100  # sweeps after which a small support is solved for too
_CREEPING = 300  # sweeps over few features after which the support is solved for: most need far fewer
_TURNS = 5  # of a descent without progress before it ends as stalled
_NO_DIGITS = 0.01  # rounding of the objective, as a share of it, from which on a fall of it is not believed
_FACTOR_COST = 20  # iterations that a system counts as besides those that it takes
_SOLVE_ITERATIONS = 200  # limit of conjugate gradients on a support; sweeps go on from wherever they end
_SOLVE_ACCURACY = 1e-12  # of the squared residual in the preconditioner's norm, at which they end


def descend(
    problem: StepProblem[Quadratic],
    W: Array,
    *,
    tol: float,
    max_iter: int = 10_000,
) -> WeightStep:
    """Minimise by the methods that suit the problem.

    Few features are swept over, and solved for on the support where sweeps creep. With many, the sets come first while
    they are small, then support solves.

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
        # If Grams can be formed, the descent leaves the sets for them sooner.
        step = descend_on_sets(problem, W, tol=tol, max_iter=max_iter, densest=0.5 if loss.by_rows else _DENSE)
        done = step.n_iter
        if step.status is not Status.MAX_ITER or done >= max_iter:
            return step
        W = step.W
    step = descend_on_support(problem, W, tol=tol, max_iter=max_iter - done, smallest=_DENSE, drops=1)
    return replace(step, n_iter=done + step.n_iter)


def coordinate_descent(
    problem: StepProblem[Quadratic],
    W0: Array,
    *,
    tol: float,
    max_iter: int = 10_000,
) -> WeightStep:
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
    >>> loss = Quadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> problem = StepProblem.of(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1))
    >>> step = coordinate_descent(problem, np.zeros((1, 2)), tol=1e-10)
    >>> step.W
    array([[1., 0.]])
    """
    bound, loss, coupling = problem.bound, problem.loss, problem.coupling
    W = bound.penalty.allowed(W0)
    if not loss.by_rows and bound.curved and W.size <= SMALL**2 and isinstance(coupling.precision, np.ndarray):
        # Bursts and certificates of a small problem in one compiled call.
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
    """Bursts of sweeps with a certificate after each; a burst ends when a sweep gains less than ``enough``.

    ``run(sweeps, enough)`` changes W in place and returns the sweeps made and what the last one gained; a gain of at
    most ``nothing`` ends the descent. After a whole burst that did not reach the tolerance ``jump``, where it is given,
    may move W on its support.
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
        # The certificate exceeds the last gain by a factor that hardly changes, which tells the gain to aim at.
        enough = min(enough, 0.5 * decrease * tol / gap) if gap > tol else enough


def independent_groups(coupling: Coupling, n_operations: int) -> list[Index]:
    """Groups of tasks that the coupling does not relate, for threads; they do not depend on the number of threads."""
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
    groups: list[Index], n_sweeps: int, enough: float, run: Callable[..., tuple[int, float]]
) -> tuple[int, float]:
    """Sweeps of all groups; the largest number that a group needed, and the sum of their last gains."""
    total = sum(map(len, groups))
    answers = spread(lambda tasks: run(tasks, n_sweeps, float(enough) * len(tasks) / total), groups)
    return max(int(made) for made, _ in answers), float(sum(gained for _, gained in answers))


def _gram_sweeps(loss: Quadratic, coupling: Coupling, penalty: EntrywisePenalty, W: Array) -> Sweeps:
    """The descent on Grams: sweeps, and the gradient of loss plus coupling."""
    HW, linear, mean = np.ascontiguousarray(loss.product(W)), plain(loss.linear), coupling.u @ W
    tables, form = (plain(loss.gram), loss.task_scale, linear), (coupling.arrays, penalty.kernel)
    groups = independent_groups(coupling, W.size * loss.n_features)

    def sweep(tasks: Index, max_sweeps: int, goal: float) -> tuple[int, float]:
        shared = mean if len(groups) == 1 else mean.copy()
        return gram_sweeps(tables, form, W, HW, shared, tasks, max_sweeps, goal)

    return partial(spread_sweeps, groups, run=sweep), lambda: HW - linear + coupling.dot(W)


def _design_sweeps(loss: Quadratic, coupling: Coupling, penalty: EntrywisePenalty, W: Array) -> Sweeps:
    """The same on the features."""
    rows, design = loss.rows, loss.rows.design
    c, totals, means, sums, squares = map(
        plain, (rows.c, rows.totals, rows.column_means, rows.column_sums, rows.squares)
    )
    tables, form = (design.columns, c, totals, means, sums, squares), (coupling.arrays, penalty.kernel)
    groups = independent_groups(coupling, len(rows.c) * loss.n_features)

    def run(n_sweeps: int, enough: float) -> tuple[int, float]:
        v = rows.c * (rows.target - design.stored_dot(W))
        state = np.stack([np.einsum("kd,kd->k", rows.column_means, W), design.task_sums(v)], axis=1)

        def sweep(tasks: Index, max_sweeps: int, goal: float) -> tuple[int, float]:
            return design_sweeps(tables, form, (W, v, state, coupling.u @ W), tasks, max_sweeps, goal)

        return spread_sweeps(groups, n_sweeps, enough, sweep)

    return run, lambda: loss.gradient(W) + coupling.dot(W)


def descend_on_sets(
    problem: StepProblem[Quadratic],
    W0: Array,
    *,
    tol: float,
    max_iter: int = 10_000,
    densest: float = 0.5,
) -> WeightStep:
    """Minimise on growing sets of features until the certificate of all features is within ``tol``.

    Parameters
    ----------
    problem : StepProblem
        Loss with rows, coupling and a convex penalty on single weights. C is positive definite, or else no weight is
        free of a penalty.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most sweeps.
    densest : float
        Size of the support, as a share of the largest that there can be, up to which sets pay.

    Returns
    -------
    WeightStep
        The status is MAX_ITER after fewer sweeps where the sets get too large: the penalty is too weak for them.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.data.design import Design
    >>> X = np.eye(3)[[0, 0, 1, 1, 2, 2]] * [[2.0], [-2], [2], [-2], [2], [-2]]
    >>> loss = Quadratic.of_rows(Design.build(X, [0, 6], scale=False), np.ones(6), X @ [1.0, 0.1, 0])
    >>> problem = StepProblem.of(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1))
    >>> step = descend_on_sets(problem, np.zeros((1, 3)), tol=1e-9)
    >>> step.W.round(6)
    array([[0.777778, 0.      , 0.      ]])
    """
    loss, bound = problem.loss, problem.bound
    penalty, rows = bound.penalty, loss.rows
    W = penalty.allowed(W0)
    sets = _Sets(loss, bound, W)
    n_rows, d = rows.design.n_rows, loss.n_features
    largest_support = densest * float(np.minimum(n_rows, d).sum())
    nothing = _NOTHING * float(np.dot(rows.c, rows.target**2))
    done, idle = 0, False
    while True:
        G, values = sets.gradient()
        gap, wanted = bound(W, G, values), _wanted(W, G, penalty, n_rows)
        gram_size, support = float(np.sum(wanted.sum(axis=1, dtype=float) ** 2)), np.count_nonzero(W)
        large = support > largest_support or gram_size > d * float(n_rows.sum())
        idle = idle and not np.any(wanted & ~sets.members)
        if end := WeightStep.ended(W, gap, done, tol, 0 if large else max_iter, idle):
            return end
        sets.choose(wanted)
        step = sets.descend(max(0.3 * tol, _INNER * gap), nothing, max_iter - done)
        done, idle = done + step.n_iter, step.status is Status.STALLED or not step.n_iter


def _wanted(W: Array, G: Array, penalty: EntrywisePenalty, n_rows: Index) -> Mask:
    """The support, and the other features with the largest violations of their condition, present or expected."""
    members = W != 0
    near = np.where(members, -1.0, (-G if penalty.positive else np.abs(G)) - _NEAR * penalty.strengths)
    n_new = np.maximum(members.sum(axis=1), np.maximum(_SMALLEST_GROWTH, (_GROWTH * n_rows).astype(np.int64)))
    for k, violations in enumerate(near):
        others = np.flatnonzero(violations > 0)
        if len(others) > n_new[k]:
            others = others[np.argpartition(-violations[others], n_new[k])[: n_new[k]]]
        members[k, others] = True
    return members


class _Sets:
    """The sets, the features in them and their Grams; the weights are changed in place."""

    def __init__(self, loss: Quadratic, bound: WeightBound, W: Array) -> None:
        self.loss, self.rows, self.bound, self.coupling, self.W = loss, loss.rows, bound, bound.coupling, W
        self.choose(W != 0)

    def choose(self, members: Mask) -> None:
        """Give the sets other features."""
        self.members, self.features = members, [np.flatnonzero(chosen) for chosen in members]
        self.blocks = [self.rows.block(k, chosen) for k, chosen in enumerate(members)]
        self.grams = [block.T @ block for block in self.blocks]

    def gradient(self) -> tuple[Array, Array]:
        """Of loss plus coupling, by one product with all features, (K, d); and the loss of each task, (K,)."""
        rows, design = self.rows, self.rows.design
        if not np.any(self.W):
            return -self.loss.linear, self.loss.constants
        root = np.sqrt(rows.c)
        r = root * rows.target
        for k, block in enumerate(self.blocks):
            if block.shape[1]:
                r[design.offsets[k] : design.offsets[k + 1]] -= block @ self.W[k, self.features[k]]
        return self.coupling.dot(self.W) - design.backproject(root * r), 0.5 * design.task_sums(r**2)

    def descend(self, tol: float, nothing: float, max_iter: int) -> WeightStep:
        """Sweeps on the sets until the certificate of these features is within ``tol`` or they gain nothing."""
        W, coupling, mean = self.W, self.coupling, self.coupling.u @ self.W
        sizes = np.array([len(task_features) for task_features in self.features])
        starts, corners = (np.concatenate([[0], np.cumsum(parts)]).astype(np.int64) for parts in (sizes, sizes**2))
        gram = np.concatenate([np.ravel(block) for block in self.grams])
        tasks, features = np.repeat(np.arange(len(W)), sizes), np.concatenate(self.features)
        q = self.loss.linear[tasks, features]
        HW = np.concatenate(
            [H @ W[k, chosen] for k, (H, chosen) in enumerate(zip(self.grams, self.features, strict=True))]
        )
        code, positive, parameters = self.bound.penalty.kernel
        penalty = (code, positive, np.ascontiguousarray(parameters[:, tasks, features]))
        sets, form = (gram, corners, features, starts, q), (coupling.arrays, penalty)
        groups, slope = independent_groups(coupling, len(gram)), np.zeros(W.shape)

        def sweep(group: Index, max_sweeps: int, goal: float) -> tuple[int, float]:
            shared = mean if len(groups) == 1 else mean.copy()
            return set_sweeps(sets, form, W, HW, shared, group, max_sweeps, goal)

        def gap(W: Array) -> float:
            slope[tasks, features] = HW - q
            values = self.loss.constants + 0.5 * np.bincount(tasks, W[tasks, features] * (HW - 2 * q), len(W))
            return self.bound(W, np.where(self.members, slope + coupling.dot(W), 0.0), values)

        run = partial(spread_sweeps, groups, run=sweep)
        return descend_in_bursts(W, run, gap, tol, max_iter, nothing=nothing)


def descend_on_support(
    problem: StepProblem[Quadratic],
    W0: Array,
    *,
    tol: float,
    max_iter: int = 2000,
    smallest: float = 0.0,
    drops: int = 30,
) -> WeightStep:
    """Minimise by turns of coordinate descent and linear solves on the support.

    Parameters
    ----------
    problem : StepProblem
        Loss, coupling and a penalty on single weights. The penalty is convex.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Limit of sweeps and iterations of conjugate gradients together, which the last linear system may exceed; an
        iteration costs about as much as a sweep, and a factor as some of them.
    smallest : float
        Size of the support, as a share of the largest there can be, from which on it is solved for; sweeps over a
        small one are cheap.
    drops : int
        How often a solve may go on after weights have left the support. A large number pays if curvature spans many
        orders of magnitude; otherwise sweeps find out sooner which weights leave.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> loss = Quadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> problem = StepProblem.of(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1))
    >>> descend_on_support(problem, np.zeros((1, 2)), tol=1e-10).W
    array([[1., 0.]])
    """
    W, done, burst, progress, loss = W0, 0, _SWEEPS, _Progress(), problem.loss
    # With fewer rows than features a support has at most as many weights as there are rows.
    n_rows = loss.rows.design.n_rows if loss.by_rows else np.full(len(W0), W0.shape[1])
    largest_support = float(np.minimum(n_rows, W0.shape[1]).sum())
    while True:
        step = coordinate_descent(problem, W, tol=tol, max_iter=max(min(burst, max_iter - done), 0))
        done += step.n_iter
        if step.status is not Status.MAX_ITER or done >= max_iter:
            return replace(step, n_iter=done)
        W = step.W
        if np.count_nonzero(W) < smallest * largest_support and done < _PATIENCE:
            burst *= 4
            continue
        W, made = solve_on_support(problem, W, drops, max_iter - done)
        done, burst = done + made, _SWEEPS
        gap = problem.bound(W, problem.gradient(W))
        if end := WeightStep.ended(W, gap, done, tol, idle=progress.ended(gap, problem.value(W))):
            return end


class _Progress:
    """Whether turns of a descent still lower its certificate or its objective."""

    def __init__(self) -> None:
        self.gap, self.value, self.idle = np.inf, np.inf, 0

    def ended(self, gap: float, value: float) -> bool:
        """Count a turn; True after several that did neither, beyond rounding."""
        moves = gap < SLOW * self.gap or value < self.value - ROUNDING * abs(self.value)
        self.gap, self.value = min(self.gap, gap), min(self.value, value)
        self.idle = 0 if moves else self.idle + 1
        return self.idle >= _TURNS


def solve_on_support(problem: StepProblem[Quadratic], W: Array, drops: int, max_iter: int) -> tuple[Array, int]:
    """The best weights on the support of W, and the iterations made; weights that would change sign leave the support.

    They leave all at once, or only the first one of each task, or of all, whichever gains most. The rest is solved
    again, up to ``drops`` times and while fewer than ``max_iter`` iterations are made.
    """
    value, done = problem.value(W), 0
    for _ in range(drops):
        target, made = _best_on_support(problem, W)
        done += made + _FACTOR_COST
        crosses = target * W < 0
        candidates = [np.where(crosses, 0.0, target)]
        if np.any(crosses):
            candidates += [_up_to_the_first_zero(W, target, axis) for axis in (1, None)]
        values = [problem.value(candidate) for candidate in candidates]
        best = int(np.argmin(values))
        if not values[best] < value or value_rounding(problem.loss, candidates[best]) > _NO_DIGITS * abs(value):
            break
        W, value = candidates[best], values[best]
        if not np.any(crosses) or done >= max_iter:
            break
    return W, done


def _best_on_support(problem: StepProblem[Quadratic], W: Array) -> tuple[Array, int]:
    """The minimiser over weights with the support of W, as if their signs could not change; the iterations made."""
    support, done = W != 0, 0
    constant = np.where(support, problem.loss.linear - problem.bound.penalty.slopes(W), 0.0)

    def operate(V: Array) -> Array:
        return np.where(support, problem.product(V), 0.0)

    for precondition, budget in preconditioners(problem, support):
        limit = int(min(budget, _SOLVE_ITERATIONS))
        W, made = solve_cg(operate, precondition, constant - operate(W), W, lambda V, S: False, limit, _SOLVE_ACCURACY)
        done += made
        if made < limit:
            break
    return W, done


def _up_to_the_first_zero(W: Array, target: Array, axis: int | None) -> Array:
    """From W towards the target until a weight is zero: each task for itself (``axis`` 1), or all to the first zero."""
    crosses = target * W < 0
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(crosses, W / (W - target), 1.0)
    share = shares.min(axis=axis, keepdims=True)
    return np.where(crosses & (shares <= share), 0.0, W + share * (target - W))
