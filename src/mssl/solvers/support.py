r"""The quadratic weight step with an ℓ1 penalty, where curvature spans many orders of magnitude.

Coordinate descent finds the support soon, and then crawls along valleys. On a known support with known signs the step
is a linear system: conjugate gradients, preconditioned by each task's Cholesky factor on its own support, solve it at
once. Sweeps and such jumps take turns; weights that would change sign on the way of a jump leave the support.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from mssl.model.coupling import Coupling
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.coordinate import coordinate_descent
from mssl.solvers.linear import solve_cg
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, objective_value, quadratic_gap

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_SWEEPS = 20  # sweeps before a jump
_PATIENCE = 100  # sweeps after which a small support is solved for too
_JUMP_ITERATIONS = 200
_JUMP_ACCURACY = 1e-12  # of the squared residual in the preconditioner's norm


def descend_on_support(
    problem: GramQuadratic | DesignQuadratic,
    coupling: Coupling,
    threshold: Array,
    W0: Array,
    *,
    tol: float,
    max_iter: int = 1000,
    least: float = 0.0,
    drops: int = 30,
) -> WeightStep:
    """Minimise by turns of coordinate descent and linear solves on the support.

    Parameters
    ----------
    problem : GramQuadratic or DesignQuadratic
        The loss.
    coupling : Coupling
        C.
    threshold : ndarray of shape (K,)
        ℓ1 strengths t_k ≥ 0.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most sweeps.
    least : float
        Size of the support, as a share of the largest there can be, from which on it is solved for; sweeps over a
        small one are cheap.
    drops : int
        How often a jump may go on after weights have left the support. Many where curvature spans many orders of
        magnitude; otherwise sweeps find out sooner which ones leave.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> loss = GramQuadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> descend_on_support(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1), np.zeros((1, 2)), tol=1e-10).W
    array([[1., 0.]])
    """
    W, done, burst = W0, 0, _SWEEPS
    # With fewer rows than features a support is at most as large as the rows are many.
    rows = problem.design.n_rows if isinstance(problem, DesignQuadratic) else np.full(len(W0), W0.shape[1])
    room = float(np.minimum(rows, W0.shape[1]).sum())
    while True:
        step = coordinate_descent(problem, coupling, threshold, W, tol=tol, max_iter=min(burst, max_iter - done))
        done += step.n_iter
        if step.status is not Status.MAX_ITER or done >= max_iter:
            return WeightStep(step.W, step.gap, done, step.status)
        W = step.W
        if np.count_nonzero(W) < least * room and done < _PATIENCE:
            burst *= 4
            continue
        W, burst = _jump(problem, coupling, threshold, W, drops), _SWEEPS
        gap = quadratic_gap(problem, W, coupling, threshold)
        if gap <= tol:
            return WeightStep(W, gap, done, Status.CONVERGED)


def _jump(
    problem: GramQuadratic | DesignQuadratic, coupling: Coupling, threshold: Array, W: Array, drops: int
) -> Array:
    """The best weights on the support of W; weights that would change sign on the way leave it.

    Either all of them at once, or the first, where that gains more; then again on what is left, so many times at most.
    """
    value = objective_value(problem, W, coupling, threshold)
    for _ in range(drops):
        target = _best_on_support(problem, coupling, threshold, W)
        crosses = target * W < 0
        candidates = [np.where(crosses, 0.0, target)]
        if np.any(crosses):
            candidates.append(_up_to_the_first_zero(W, target))
        values = [objective_value(problem, candidate, coupling, threshold) for candidate in candidates]
        best = int(np.argmin(values))
        if not values[best] < value:
            break
        W, value = candidates[best], values[best]
        if not np.any(crosses):
            break
    return W


def _best_on_support(problem: GramQuadratic | DesignQuadratic, coupling: Coupling, threshold: Array, W: Array) -> Array:
    """The minimiser over weights with the support of W, its signs taken for granted."""
    support = W != 0
    precondition = _support_preconditioner(problem, coupling, support)

    def operate(V: Array) -> Array:
        return np.where(support, problem.product(V) + coupling.dot(V), 0.0)

    R = np.where(support, problem.linear - threshold[:, None] * np.sign(W), 0.0) - operate(W)
    first = float(np.vdot(R, precondition(R)))

    def enough(_: Array, S: Array) -> bool:
        return float(np.vdot(S, precondition(S))) <= _JUMP_ACCURACY * first

    return solve_cg(operate, precondition, R, W, enough, _JUMP_ITERATIONS)[0]


def _up_to_the_first_zero(W: Array, target: Array) -> Array:
    crosses = target * W < 0
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(crosses, W / (W - target), 1.0)
    share = float(shares.min())
    return np.where(crosses & (shares <= share), 0.0, W + share * (target - W))


def _gram_of(problem: GramQuadratic | DesignQuadratic, k: int, own: Mask) -> Array:
    """H_k on some features."""
    if isinstance(problem, DesignQuadratic):
        rows = problem.block(k, own)
        return np.asarray(rows.T @ rows)
    return np.asarray(problem.task_scale[k] * problem.gram[0 if problem.is_shared else k][np.ix_(own, own)])


def _support_preconditioner(
    problem: GramQuadratic | DesignQuadratic, coupling: Coupling, support: Mask
) -> Callable[[Array], Array]:
    """Inverse of (H_k + C_kk I) on each task's support."""
    ridge = coupling.diagonal()
    factors: list[tuple[int, Mask, Array]] = []
    for k in np.flatnonzero(support.any(axis=1)):
        own = support[k]
        block = _gram_of(problem, int(k), own)
        lift = ridge[k] + 1e-14 * float(np.trace(block))
        block[np.diag_indices(len(block))] += lift if lift > 0 else 1.0
        factors.append((int(k), own, linalg.cholesky(block.T, lower=True, overwrite_a=True, check_finite=False)))

    def apply(R: Array) -> Array:
        out = np.zeros_like(R)
        for k, own, L in factors:
            out[k, own] = linalg.cho_solve((L, True), R[k, own], check_finite=False)
        return out

    return apply
