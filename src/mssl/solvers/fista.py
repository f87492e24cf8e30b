r"""Accelerated proximal gradients for the weight step: any convex smooth loss, any penalty with a proximal map.

.. math:: \min_W \; f(W) + \tfrac12\operatorname{tr}(W C W^\top) + g(W)

References
----------
Beck, Teboulle (2009), A fast iterative shrinkage-thresholding algorithm, SIAM Journal on Imaging Sciences 2(1),
https://doi.org/10.1137/080716542

O'Donoghue, Candès (2015), Adaptive restart for accelerated gradient schemes, Foundations of Computational Mathematics
15(3), https://doi.org/10.1007/s10208-013-9150-3
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from mssl.exceptions import ParameterError
from mssl.model.bounds import weight_gap
from mssl.model.coupling import Coupling
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, Smooth, quadratic_gap

Array = NDArray[np.float64]
Prox = Callable[[Array, float], Array]
Gap = Callable[[Array, Array], float]

_GAP_EVERY = 10
_GROWTH = 2.0
_POWER_ITERATIONS = 20


def soft_threshold(W: Array, threshold: Array) -> Array:
    """Proximal map of Σ_k t_k ‖w_k‖₁; threshold has shape (K,).

    Examples
    --------
    >>> import numpy as np
    >>> soft_threshold(np.array([[3.0, -0.5]]), np.ones(1))
    array([[2., 0.]])
    """
    t = threshold[:, None]
    return np.asarray(W - np.clip(W, -t, t))


def fista(
    problem: Smooth,
    coupling: Coupling,
    threshold: Array | None,
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
    threshold : ndarray of shape (K,) or None
        ℓ1 strengths for the default ``prox`` and ``gap``; None where both are given.
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
    if threshold is None and (prox is None or gap is None):
        raise ParameterError("fista needs threshold=…, or both prox=… and gap=…; neither came.")
    t = np.zeros(len(W0)) if threshold is None else np.asarray(threshold, dtype=float)
    prox = prox or (lambda W, step: soft_threshold(W, step * t))
    gap = gap or _l1_gap(problem, coupling, t)
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


def _l1_gap(problem: Smooth, coupling: Coupling, threshold: Array) -> Gap:
    if isinstance(problem, GramQuadratic | DesignQuadratic):
        return lambda W, G: quadratic_gap(cast(GramQuadratic, problem), W, coupling, threshold, G)
    return lambda W, G: weight_gap(W, G, coupling, threshold)
