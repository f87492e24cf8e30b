r"""The weight step without ℓ1 penalty is a linear system: :math:`H_k w_k + \sum_l C_{kl} w_l = q_k`.

With one Gram for all tasks it is a Sylvester equation, solved by two eigendecompositions. Otherwise conjugate
gradients, preconditioned by the inverse of each task's block :math:`H_k + C_{kk} I`, take a few iterations. Where C
ties the tasks so closely that they take hundreds, a factor of the whole system takes over, if it is of moderate size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from mssl.exceptions import ParameterError
from mssl.kernels import plain, weight_system
from mssl.model.coupling import Coupling
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import Status, WeightStep, solve_cg
from mssl.solvers.quadratic import (
    BATCHED_UP_TO,
    FEW_TASKS,
    GramQuadratic,
    Quadratic,
    preconditioners,
    quadratic_bound,
)

Array = NDArray[np.float64]

_RESTART = (
    1000  # iterations after which the true residual is looked at: a certificate that has not halved by then stalls
)


def sylvester(
    problem: GramQuadratic, coupling: Coupling, W0: Array | None = None, *, tol: float, max_iter: int = 5
) -> WeightStep:
    r"""Solve by eigendecompositions of the common Gram G and of :math:`S^{-1/2} C S^{-1/2}`.

    Substituting :math:`w_k = v_k / \sqrt{s_k}` turns :math:`s_k G w_k + (CW)_k = q_k` into
    :math:`V G + \tilde C V = \tilde Q`, diagonal in the two eigenbases.

    Parameters
    ----------
    problem : GramQuadratic
        Loss with one common Gram and task scales s_k > 0.
    coupling : Coupling
        C.
    W0 : ndarray of shape (K, d), optional
        Start; the answer does not depend on it.
    tol : float
        Absolute bound of the suboptimality.
    max_iter : int
        Most steps; those after the first refine rounding errors.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> loss = GramQuadratic(np.eye(2)[None], np.ones((3, 2)), np.zeros(3))
    >>> step = sylvester(loss, Coupling.from_precision(np.eye(3), covariance=np.eye(3)), tol=1e-12)
    >>> bool(np.allclose(step.W, 0.5))
    True
    """
    if not problem.is_shared or not np.all(problem.task_scale > 0):
        raise ParameterError(
            "solver is 'sylvester'; it needs one Gram for all tasks and positive task scales. Give solver='cg'."
        )
    solve = _sylvester_solver(problem, coupling)
    W = np.zeros(problem.linear.shape) if W0 is None else np.array(W0, dtype=float)
    certificate = quadratic_bound(problem, coupling, EntrywisePenalty(np.zeros(W.shape)))
    gap, done = np.inf, 0
    for done in range(1, max_iter + 1):
        G = problem.gradient(W) + coupling.dot(W)
        W = W - solve(G)
        previous, gap = gap, certificate(W, problem.gradient(W) + coupling.dot(W))
        if gap <= tol:
            return WeightStep(W, gap, done, Status.CONVERGED)
        if not gap < 0.5 * previous:
            break
    return WeightStep(W, gap, done, Status.STALLED if np.isfinite(gap) else Status.DIVERGED)


def _sylvester_solver(problem: GramQuadratic, coupling: Coupling) -> Callable[[Array], Array]:
    root = np.sqrt(problem.task_scale)[:, None]
    values, U = problem.eigen
    task_values, E = linalg.eigh(coupling.dense() / root / root.T)
    sums = np.maximum(task_values, 0.0)[:, None] + values
    floor = len(values) * np.finfo(float).eps * float(sums.max(initial=0.0))
    inverse = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > floor)

    def solve(R: Array) -> Array:
        return np.asarray(E @ ((E.T @ (R / root) @ U) * inverse) @ U.T / root)

    return solve


def conjugate_gradient(
    problem: Quadratic, coupling: Coupling, W0: Array, *, tol: float, max_iter: int = 1000
) -> WeightStep:
    """Solve by preconditioned conjugate gradients until the certificate is within ``tol``.

    Parameters
    ----------
    problem : Quadratic
        The loss; with Grams the preconditioner inverts each task's block, otherwise its diagonal.
    coupling : Coupling
        C.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality, ½ tr(G C⁻¹ Gᵀ) for C ≻ 0.
    max_iter : int
        Most iterations.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> loss = GramQuadratic(np.stack([np.eye(2), 3 * np.eye(2)]), np.array([[2.0, 4], [4, 8]]), np.zeros(2))
    >>> conjugate_gradient(loss, Coupling.diagonal_only(np.ones(2)), np.zeros((2, 2)), tol=1e-12).W
    array([[1., 2.],
           [1., 2.]])
    """
    done = 0
    if isinstance(problem, GramQuadratic) and coupling.covariance is not None and solves_in_one_call(problem):
        step = _in_one_call(problem, coupling, W0, tol, max_iter)
        if step.status is Status.CONVERGED:
            return step
        W0, done = step.W, step.n_iter

    def operate(V: Array) -> Array:
        return problem.product(V) + coupling.dot(V)

    certificate = quadratic_bound(problem, coupling, EntrywisePenalty(np.zeros(problem.linear.shape)))
    kinds, W, gap = preconditioners(problem, coupling), np.array(W0, dtype=float), np.inf
    (precondition, budget), made = next(kinds), 0
    # The recurrence drifts from the true residual: a restart decides whether it was good enough.
    while True:
        R = problem.linear - operate(W)
        previous, gap = gap, certificate(W, -R)
        if gap <= tol:
            return WeightStep(W, gap, done, Status.CONVERGED)
        if not np.isfinite(gap):
            return WeightStep(W, gap, done, Status.DIVERGED)
        if done >= max_iter:
            return WeightStep(W, gap, done, Status.MAX_ITER)
        if gap > 0.5 * previous or made == budget:
            kind = next(kinds, None)
            if kind is None:
                return WeightStep(W, gap, done, Status.STALLED)
            precondition, budget = kind
        limit = int(min(budget, _RESTART, max_iter - done))
        W, made = solve_cg(operate, precondition, R, W, lambda V, S: certificate(V, -S) <= tol, limit)
        done += made


def solves_in_one_call(problem: GramQuadratic) -> bool:
    """Whether the compiled call serves where C ≻ 0: few tasks and features with Grams of their own."""
    small = problem.n_tasks <= FEW_TASKS and problem.n_features <= BATCHED_UP_TO
    return small and (problem.n_tasks == 1 or not problem.is_shared) and not np.any(problem.ridge)


def kept_inverses(problem: GramQuadratic) -> tuple[Array, Array]:
    """Ridges and inverses of the compiled call's preconditioner, kept with the problem; at first none."""
    K, d = problem.linear.shape
    kept: tuple[Array, Array] = problem.kept.setdefault("inverses", (np.zeros(K), np.empty((K, d, d))))
    return kept


def _in_one_call(problem: GramQuadratic, coupling: Coupling, W0: Array, tol: float, max_iter: int) -> WeightStep:
    """The same in one compiled call; the preconditioner is kept with the problem."""
    W = np.array(W0, dtype=float, order="C")
    kept = kept_inverses(problem)
    gap, made = weight_system(
        plain(problem.gram),
        plain(problem.task_scale),
        plain(problem.linear),
        plain(coupling.precision),
        plain(np.asarray(coupling.covariance)),
        coupling.u,
        coupling.rho,
        coupling.mean_variance,
        W,
        plain(problem.product(W)),
        kept[0],
        kept[1],
        float(tol),
        max_iter,
    )
    if not np.isfinite(gap):
        return WeightStep(W0, np.inf, 0, Status.STALLED)
    return WeightStep(W, gap, made, Status.CONVERGED if gap <= tol else Status.STALLED)
