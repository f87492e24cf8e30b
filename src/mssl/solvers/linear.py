r"""The weight step without ℓ1 penalty is a linear system: :math:`H_k w_k + \sum_l C_{kl} w_l = q_k`.

Conjugate gradients, preconditioned by the inverse of each task's block :math:`H_k + C_{kk} I`, take a few iterations.
Where C ties the tasks so closely that they take hundreds, a factor of the whole system takes over, if it is of moderate
size. With one Gram for all tasks and many features the preconditioner is the inverse itself
(:func:`mssl.solvers.quadratic.sylvester`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mssl._typing import Array
from mssl.kernels import plain, weight_system
from mssl.model.coupling import Coupling
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import Status, WeightStep, conjugate_gradients
from mssl.solvers.quadratic import (
    BATCHED_UP_TO,
    FEW_TASKS,
    GramQuadratic,
    Quadratic,
    preconditioners,
    quadratic_bound,
)


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
    W, done = np.array(W0, dtype=float), 0
    if isinstance(problem, GramQuadratic) and coupling.covariance is not None and solves_in_one_call(problem):
        step = _in_one_call(problem, coupling, W, tol, max_iter)
        if step.status is Status.CONVERGED:
            return step
        W, done = step.W, step.n_iter

    def operate(V: Array) -> Array:
        return problem.product(V) + coupling.dot(V)

    bound = quadratic_bound(problem, coupling, EntrywisePenalty(np.zeros(problem.linear.shape)))
    system = (operate, lambda V: problem.linear - operate(V), preconditioners(problem, coupling))
    step = conjugate_gradients(*system, lambda V, R: bound(V, -R), W, tol=tol, max_iter=max_iter - done)
    return replace(step, n_iter=done + step.n_iter)


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
        (plain(problem.gram), plain(problem.task_scale), plain(problem.linear)),
        (
            *(plain(coupling.precision), plain(np.asarray(coupling.covariance))),
            *(coupling.u, coupling.rho, coupling.mean_variance),
        ),
        W,
        plain(problem.product(W)),
        kept,
        float(tol),
        max_iter,
    )
    if not np.isfinite(gap):
        return WeightStep(W0, np.inf, 0, Status.STALLED)
    return WeightStep(W, gap, made, Status.CONVERGED if gap <= tol else Status.STALLED)
