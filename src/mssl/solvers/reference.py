r"""Reference solvers of the weight step: accelerated proximal gradients, and the alternating directions of the paper.

.. math:: \min_W \; f(W) + \tfrac12\operatorname{tr}(W C W^\top) + g(W)

:func:`fista` takes any convex smooth loss and any penalty with a proximal map. :func:`admm` splits the penalty from a
quadratic loss by a copy Z of the weights: W solves a linear system with :math:`H_k + \rho I` in place of :math:`H_k`,
Z is a proximal step, and ρ adapts to balance the residuals.

References
----------
Gonçalves, Von Zuben, Banerjee (2016), Multi-task sparse structure learning with Gaussian copula models, Journal of
Machine Learning Research 17(33).

Boyd, Parikh, Chu, Peleato, Eckstein (2011), Distributed optimization and statistical learning via the alternating
direction method of multipliers, https://doi.org/10.1561/2200000016

Beck, Teboulle (2009), A fast iterative shrinkage-thresholding algorithm, SIAM Journal on Imaging Sciences 2(1),
https://doi.org/10.1137/080716542

O'Donoghue, Candès (2015), Adaptive restart for accelerated gradient schemes, Foundations of Computational Mathematics
15(3), https://doi.org/10.1007/s10208-013-9150-3
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from mssl.exceptions import ParameterError
from mssl.model.bounds import WeightBound
from mssl.model.coupling import Coupling
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import Status, WeightStep, solve_cg
from mssl.solvers.quadratic import (
    DesignQuadratic,
    GramQuadratic,
    Quadratic,
    Smooth,
    block_preconditioner,
    quadratic_bound,
)

Array = NDArray[np.float64]
Prox = Callable[[Array, float], Array]
Gap = Callable[[Array, Array], float]

Solve = Callable[[Array, Array, float], Array]

# These solvers are references for the others: the constants are usual values, not tuned, and trade time only.
_GAP_EVERY = 10  # iterations between two certificates, each of which costs about as much as an iteration
_GROWTH = 2.0  # factor of the curvature when a step proves it too small
_POWER_ITERATIONS = 20  # for the largest curvature: a rough estimate will do, since backtracking raises it
_RELAXATION = 1.6  # over-relaxation of ADMM; the literature's range is 1.5 to 1.8
_BALANCE_EVERY = 10  # iterations between two changes of ρ, each of which needs a new solver of the linear system
_IMBALANCE = 5.0  # ratio of the residuals from which on ρ changes
_FREE = 1e-10  # share of the curvature that is ρ without a penalty: smaller is lost to rounding
_INNER_ITERATIONS = 50  # limit of conjugate gradients in one step of ADMM


def fista(
    problem: Smooth,
    coupling: Coupling,
    penalty: EntrywisePenalty | Array | None,
    W0: Array,
    *,
    tol: float,
    max_iter: int = 10_000,
    prox: Prox | None = None,
    gap: Gap | None = None,
    lipschitz: float | None = None,
    restart: bool = True,
) -> WeightStep:
    """Minimise by accelerated proximal gradient steps with adaptive restart and backtracking.

    Parameters
    ----------
    problem : object with ``value(W)`` and ``gradient(W)``
        A convex smooth loss; its curvature need not be known.
    coupling : Coupling
        C.
    penalty : EntrywisePenalty, ndarray of shape (K,) or (K, d), or None
        The penalty for the default ``prox`` and ``gap``, an array standing for ℓ1 strengths; None where both are given.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Value of ``gap`` at which to stop.
    max_iter : int
        Most iterations.
    prox : callable (W, step) → W, optional
        Proximal map of step · g.
    gap : callable (W, G) → float, optional
        Certificate at W with the gradient G of loss plus coupling.
    lipschitz : float, optional
        Lipschitz constant of the gradient of loss plus coupling to start from; default by power iteration for
        quadratic losses, from one difference of gradients otherwise. Backtracking raises it where needed.
    restart : bool
        Whether to drop the momentum when it points uphill; False is the algorithm of 2009.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> loss = GramQuadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> step = fista(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1), np.zeros((1, 2)), tol=1e-12)
    >>> np.round(step.W, 5) + 0.0
    array([[1., 0.]])
    """
    if penalty is None and (prox is None or gap is None):
        raise ParameterError("penalty is None; prox and gap are then needed. Give a penalty, or both of them.")
    entrywise = EntrywisePenalty.of(np.zeros(W0.shape) if penalty is None else penalty, W0.shape)
    prox = prox or entrywise.prox
    if gap is None:
        gap = WeightBound(coupling, entrywise)
        if isinstance(problem, GramQuadratic | DesignQuadratic):
            gap = quadratic_bound(problem, coupling, entrywise)
    W = np.array(W0, dtype=float)
    L = lipschitz or _initial_lipschitz(problem, coupling, W)
    Y, momentum = W, 1.0
    certificate = np.inf
    for iteration in range(max_iter + 1):
        if iteration % _GAP_EVERY == 0 or iteration == max_iter:
            certificate = gap(W, problem.gradient(W) + coupling.dot(W))
            if not np.isfinite(certificate) and not np.all(np.isfinite(W)):
                return WeightStep(W, certificate, iteration, Status.DIVERGED)
            if certificate <= tol:
                return WeightStep(W, certificate, iteration, Status.CONVERGED)
            if iteration == max_iter:
                break
        new, L = _step(problem, coupling, prox, Y, L)
        if restart and np.vdot(Y - new, new - W) > 0:
            momentum, Y = 1.0, new
        else:
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            Y = new + ((momentum - 1.0) / following) * (new - W)
            momentum = following
        W = new
    return WeightStep(W, certificate, max_iter, Status.MAX_ITER)


def _step(problem: Smooth, coupling: Coupling, prox: Prox, Y: Array, L: float) -> tuple[Array, float]:
    """One proximal step from Y; L grows until the quadratic model bounds the smooth part."""
    gradient = problem.gradient(Y)
    G = gradient + coupling.dot(Y)
    excess = _excess(problem, coupling, Y, gradient)
    while True:
        new = prox(Y - G / L, 1.0 / L)
        move = new - Y
        bound = 0.5 * L * float(np.vdot(move, move))
        if excess(move) <= bound * (1.0 + 1e-9) or not np.any(move) or L > 1e300:
            return new, L
        L *= _GROWTH


def _excess(problem: Smooth, coupling: Coupling, Y: Array, gradient: Array) -> Callable[[Array], float]:
    """What the smooth part at Y + move has above its tangent at Y; from one product for quadratic losses."""
    if isinstance(problem, GramQuadratic | DesignQuadratic):
        return lambda move: 0.5 * float(np.vdot(move, problem.product(move) + coupling.dot(move)))
    base = problem.value(Y)
    noise = 1e-13 * max(1.0, abs(base))

    def of(move: Array) -> float:
        return problem.value(Y + move) - base - float(np.vdot(gradient, move)) + coupling.value(move) - noise

    return of


def _initial_lipschitz(problem: Smooth, coupling: Coupling, W: Array) -> float:
    V = np.random.default_rng(0).standard_normal(W.shape)
    V /= np.linalg.norm(V)
    if isinstance(problem, GramQuadratic | DesignQuadratic):
        size = 0.0
        for _ in range(_POWER_ITERATIONS):
            V = problem.product(V) + coupling.dot(V)
            size = float(np.linalg.norm(V))
            if size == 0.0:
                return 1.0
            V /= size
        return size
    step = 1e-4 * max(1.0, float(np.linalg.norm(W)))
    change = problem.gradient(W + step * V) - problem.gradient(W) + step * coupling.dot(V)
    size = float(np.linalg.norm(change)) / step
    return size if np.isfinite(size) and size > 0 else 1.0


def admm(
    problem: Quadratic,
    coupling: Coupling,
    penalty: EntrywisePenalty | Array,
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
    penalty : EntrywisePenalty, or ndarray of shape (K,) or (K, d)
        The penalty; an array stands for ℓ1 strengths.
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
    entrywise = EntrywisePenalty.of(penalty, W0.shape)
    certificate = quadratic_bound(problem, coupling, entrywise)
    W = Z = np.array(W0, dtype=float)
    U = np.zeros_like(Z)
    curvature = problem.diagonal() + coupling.diagonal()[:, None]
    # Without a penalty the copy may go anywhere: the smaller ρ is, the nearer the first step leads to the solution.
    rho = (_FREE if entrywise.absent else 1.0) * float(np.mean(curvature)) or 1.0
    solve = _system(problem, coupling, rho)
    gap = certificate(Z, problem.gradient(Z) + coupling.dot(Z))
    for iteration in range(max_iter):
        if gap <= tol:
            return WeightStep(Z, gap, iteration, Status.CONVERGED)
        if not np.all(np.isfinite(Z)):
            return WeightStep(Z, gap, iteration, Status.DIVERGED)
        target = Z - U
        accuracy = 1e-3 * float(np.linalg.norm(W - Z)) if iteration else 0.0
        W = solve(problem.linear + rho * target, W, accuracy)
        relaxed = _RELAXATION * W + (1.0 - _RELAXATION) * Z
        last, Z = Z, entrywise.prox(relaxed + U, 1.0 / rho)
        U = U + relaxed - Z
        if (iteration + 1) % _BALANCE_EVERY == 0:
            factor = _rebalance(float(np.linalg.norm(W - Z)), float(np.linalg.norm(Z - last)))
            if factor != 1.0:
                rho, U = rho * factor, U / factor
                solve = _system(problem, coupling, rho)
        if (iteration + 1) % _GAP_EVERY == 0 or iteration + 1 == max_iter:
            gap = certificate(Z, problem.gradient(Z) + coupling.dot(Z))
    return WeightStep(Z, gap, max_iter, Status.CONVERGED if gap <= tol else Status.MAX_ITER)


def _rebalance(primal: float, dual: float) -> float:
    """Factor for ρ that brings the primal residual ‖W − Z‖ and the dual one ‖ΔZ‖ (over ρ) together."""
    if primal > _IMBALANCE * dual:
        return 2.0
    if dual > _IMBALANCE * primal:
        return 0.5
    return 1.0


def _system(problem: Quadratic, coupling: Coupling, rho: float) -> Solve:
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
