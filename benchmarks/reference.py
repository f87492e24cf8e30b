"""What tests and benchmarks compare with: gaps at a point, and accelerated proximal gradients as the paper has them.

The package's own version (:func:`mssl.solvers.proximal.accelerated`) takes quadratic losses, one product an iteration;
this one evaluates any smooth loss to backtrack, and may leave out restarts.

References
----------
Beck & Teboulle (2009), A fast iterative shrinkage-thresholding algorithm for linear inverse problems,
doi:10.1137/080716542.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from mssl._typing import Array
from mssl.model.bounds import CompositeBound, WeightBound
from mssl.model.coupling import Coupling
from mssl.penalties import EntrywisePenalty, Penalty
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.quadratic import Quadratic, StepProblem

Prox = Callable[[Array, float], Array]
Gap = Callable[[Array, Array], float]

_GAP_EVERY = 10  # iterations between two certificates, each of which costs about as much as an iteration
_GROWTH = 2.0  # factor of the curvature when a step proves it too small
_POWER_ITERATIONS = 20  # for the largest curvature: a rough estimate will do, since backtracking raises it


class Smooth(Protocol):
    """A convex smooth loss of W."""

    def value(self, W: Array) -> float:
        """Loss at W."""
        ...

    def gradient(self, W: Array) -> Array:
        """Gradient at W, (K, d)."""
        ...


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
    >>> loss = Quadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> step = fista(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1), np.zeros((1, 2)), tol=1e-12)
    >>> np.round(step.W, 5) + 0.0
    array([[1., 0.]])
    """
    entrywise = EntrywisePenalty.of(np.zeros(W0.shape) if penalty is None else penalty, W0.shape)
    prox = prox or entrywise.prox
    if gap is None:
        gap = WeightBound(coupling, entrywise)
        if isinstance(problem, Quadratic):
            gap = StepProblem.of(problem, coupling, entrywise).bound
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
    if isinstance(problem, Quadratic):
        return lambda move: 0.5 * float(np.vdot(move, problem.product(move) + coupling.dot(move)))
    base = problem.value(Y)
    noise = 1e-13 * max(1.0, abs(base))

    def of(move: Array) -> float:
        return problem.value(Y + move) - base - float(np.vdot(gradient, move)) + coupling.value(move) - noise

    return of


def _initial_lipschitz(problem: Smooth, coupling: Coupling, W: Array) -> float:
    V = np.random.default_rng(0).standard_normal(W.shape)
    V /= np.linalg.norm(V)
    if isinstance(problem, Quadratic):
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


def weight_gap(W: Array, G: Array, coupling: Coupling, penalty: EntrywisePenalty | Array) -> float:
    """Bound of the suboptimality of W for C ≻ 0, G being the gradient of loss plus coupling."""
    return WeightBound(coupling, EntrywisePenalty.of(penalty, W.shape))(W, G)


def quadratic_gap(problem: Quadratic, W: Array, coupling: Coupling, penalty: EntrywisePenalty | Array) -> float:
    """Bound of the suboptimality of W for a quadratic loss, by the certificate that fits the coupling."""
    bound = StepProblem.of(problem, coupling, EntrywisePenalty.of(penalty, W.shape)).bound
    return bound(W, problem.gradient(W) + coupling.dot(W))


def composite_gap(loss: float, V: Array, G: Array, coupling: Coupling, penalty: Penalty) -> float:
    """Bound of the suboptimality of V for a penalty that ties the tasks; ``loss`` is that of loss plus coupling."""
    known = Quadratic(None, G, np.array([loss]))  # whose value, where its gradient is G, is the loss
    return CompositeBound(coupling, penalty, known)(V, G)
