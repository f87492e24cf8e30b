r"""The paper's weight step: alternating directions that split the ℓ1 penalty from the smooth part.

.. math:: \min_{W, Z} \; \ell(W) + \tfrac12\operatorname{tr}(W C W^\top) + \sum_k t_k\|z_k\|_1
          \quad \text{subject to } W = Z

W solves a linear system with :math:`H_k + \rho I` in place of :math:`H_k`, Z is a soft-thresholding, and ρ adapts to
balance the residuals.

References
----------
Gonçalves, Von Zuben, Banerjee (2016), Multi-task sparse structure learning with Gaussian copula models, Journal of
Machine Learning Research 17(33).

Boyd, Parikh, Chu, Peleato, Eckstein (2011), Distributed optimization and statistical learning via the alternating
direction method of multipliers, https://doi.org/10.1561/2200000016
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from mssl.model.coupling import Coupling
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.fista import soft_threshold
from mssl.solvers.linear import block_preconditioner, solve_cg
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, quadratic_gap

Array = NDArray[np.float64]
Solve = Callable[[Array, Array, float], Array]

_RELAXATION = 1.6
_GAP_EVERY = 5
_BALANCE_EVERY = 10
_IMBALANCE = 5.0
_INNER_ITERATIONS = 50


def admm(
    problem: GramQuadratic | DesignQuadratic,
    coupling: Coupling,
    threshold: Array,
    W0: Array,
    *,
    tol: float,
    max_iter: int = 10_000,
) -> WeightStep:
    """Minimise by over-relaxed ADMM with an adaptive step; the answer is the sparse copy Z.

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
        Most iterations.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> loss = GramQuadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> step = admm(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1), np.zeros((1, 2)), tol=1e-12)
    >>> np.round(step.W, 5) + 0.0
    array([[1., 0.]])
    """
    threshold = np.asarray(threshold, dtype=float)
    W = Z = np.array(W0, dtype=float)
    U = np.zeros_like(Z)
    curvature = problem.diagonal() + coupling.diagonal()[:, None]
    rho = float(np.mean(curvature)) or 1.0
    solve = _system(problem, coupling, rho)
    gap = quadratic_gap(problem, Z, coupling, threshold)
    for iteration in range(max_iter):
        if gap <= tol:
            return WeightStep(Z, gap, iteration, Status.CONVERGED)
        if not np.all(np.isfinite(Z)):
            return WeightStep(Z, gap, iteration, Status.DIVERGED)
        target = Z - U
        accuracy = 1e-3 * float(np.linalg.norm(W - Z)) if iteration else 0.0
        W = solve(problem.linear + rho * target, W, accuracy)
        relaxed = _RELAXATION * W + (1.0 - _RELAXATION) * Z
        last, Z = Z, soft_threshold(relaxed + U, threshold / rho)
        U = U + relaxed - Z
        if (iteration + 1) % _BALANCE_EVERY == 0:
            factor = _rebalance(float(np.linalg.norm(W - Z)), float(np.linalg.norm(Z - last)))
            if factor != 1.0:
                rho, U = rho * factor, U / factor
                solve = _system(problem, coupling, rho)
        if (iteration + 1) % _GAP_EVERY == 0 or iteration + 1 == max_iter:
            gap = quadratic_gap(problem, Z, coupling, threshold)
    return WeightStep(Z, gap, max_iter, Status.CONVERGED if gap <= tol else Status.MAX_ITER)


def _rebalance(primal: float, dual: float) -> float:
    """Factor for ρ that brings the primal residual ‖W − Z‖ and the dual one ‖ΔZ‖ (over ρ) together."""
    if primal > _IMBALANCE * dual:
        return 2.0
    if dual > _IMBALANCE * primal:
        return 0.5
    return 1.0


def _system(problem: GramQuadratic | DesignQuadratic, coupling: Coupling, rho: float) -> Solve:
    """Solver of H_k w_k + (CW)_k + ρ w_k = r_k: exact for a common Gram, conjugate gradients otherwise."""
    if isinstance(problem, GramQuadratic) and problem.is_shared and np.ptp(problem.task_scale) == 0:
        values, U = problem.eigen
        task_values, E = linalg.eigh(coupling.dense())
        inverse = 1.0 / (np.maximum(task_values, 0.0)[:, None] + problem.task_scale[0] * values + rho)
        return lambda R, W, accuracy: np.asarray(E @ ((E.T @ R @ U) * inverse) @ U.T)
    precondition = block_preconditioner(problem, coupling.diagonal() + rho)

    def operate(V: Array) -> Array:
        return problem.product(V) + coupling.dot(V) + rho * V

    def solve(R: Array, W: Array, accuracy: float) -> Array:
        limit = max(rho * accuracy, 1e-14 * float(np.linalg.norm(R)))
        residual = R - operate(W)
        if float(np.linalg.norm(residual)) <= limit:
            return W
        return solve_cg(
            operate, precondition, residual, W, lambda _, S: float(np.linalg.norm(S)) <= limit, _INNER_ITERATIONS
        )[0]

    return solve
