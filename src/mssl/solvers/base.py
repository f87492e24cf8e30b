"""The unknowns and the results of all solvers of the weight step, and the status with which they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from mssl._typing import Array
from mssl.model.coupling import Coupling, positive_definite_inverse

SLOW = 0.9  # share of a certificate that a step without progress leaves, in all solvers
ROUNDING = 1e-14  # relative change of an objective that is rounding, since it is a long sum
NEGLIGIBLE = 1e-12  # share of the terms of a sum that is rounding where they can be a thousand times as large as it is
SMALLEST_GAIN = 1e-3  # share of the tolerance that steps must gain: creeping by less would take thousands of them
PATIENCE = 5  # rounds or turns without progress after which a solver ends as stalled
MOST_STEPS = 100  # limit of steps of which a dozen is usual, so that those end that rounding or bad starts make creep
INNER_ITERATIONS = 1000  # iterations after which an inner solver comes back for the true residual, or a Newton step


class Status(StrEnum):
    """How a solver ended; the value is the message."""

    CONVERGED = "converged: the certificate is within the tolerance"
    SETTLED = "settled: weights and graph no longer change; rank correlations have no joint objective to certify"
    STATIONARY = (
        "stationary: the optimality condition holds within the tolerance; no bound is known, since the penalty is not "
        "convex or gives no dual norm"
    )
    MAX_ITER = "stopped at the iteration limit before the certificate reached the tolerance"
    UNSETTLED = "stopped: the expected values of missing targets change from round to round without coming to rest"
    STALLED = "stopped: neither the objective nor the certificate makes progress any more"
    DIVERGED = "stopped: the objective is not finite"

    @property
    def good(self) -> bool:
        """Whether the solver did all that it can be asked for."""
        return self in (Status.CONVERGED, Status.SETTLED, Status.STATIONARY)


class Solver(BaseEstimator):
    """How a fit is computed: the solver of its weight step, its starts and its memory.

    Parameters
    ----------
    name : {"auto", "coordinate", "cg", "sylvester", "proximal", "fista"}, default="auto"
        Solver of the weight step.
    n_starts : int, default=1
        F is convex in the weights and in the graph, not in both together: a fit ends where neither can be improved
        alone, which need not be the lowest F that there is. One start is the diagonal fixed point (separate tasks),
        the same in every run. With more, fits also begin from one variance for all tasks and from ten, a hundred …
        times larger ones, and the fit with the lowest F is kept.
    memory_limit : int, optional
        Bytes that Grams may take (8 K d²; folds have some each); by default a quarter of the machine's memory, at most
        2 GiB. Beyond it fits multiply by the rows, which takes longer, and a warning says so.
    """

    def __init__(self, name: str = "auto", *, n_starts: int = 1, memory_limit: int | None = None) -> None:
        self.name = name
        self.n_starts = n_starts
        self.memory_limit = memory_limit


@dataclass(frozen=True)
class WeightStep:
    """Weights that (nearly) minimise F for a fixed task precision.

    Attributes
    ----------
    W : ndarray of shape (K, d)
        Weights, task by task.
    gap : float
        Upper bound of the suboptimality F(W) − min F (see :mod:`mssl.model.bounds`); with the status STATIONARY the
        largest violation of the optimality condition instead.
    n_iter : int
        Sweeps, iterations or Newton steps, as the solver counts.
    status : Status
        How it ended.
    """

    W: Array
    gap: float
    n_iter: int
    status: Status

    @classmethod
    def ended(
        cls,
        W: Array,
        gap: float,
        n_iter: int,
        tol: float,
        limit: float = np.inf,
        idle: bool = False,
        bound: bool = True,
    ) -> WeightStep | None:
        """The step where W ends it: within ``tol``, not finite, at the limit of iterations, or ``idle``; else None."""
        if gap <= tol:
            return cls(W, gap, n_iter, Status.CONVERGED if bound else Status.STATIONARY)
        if not np.isfinite(gap):
            return cls(W, gap, n_iter, Status.DIVERGED)
        if n_iter >= limit:
            return cls(W, gap, n_iter, Status.MAX_ITER)
        return cls(W, gap, n_iter, Status.STALLED) if idle else None


class Unknowns:
    """How the unknowns V of a solver give the weights, W = B V: one for each task, in other units, or one for all.

    Parameters
    ----------
    matrix : sparse array of shape (K, number of rows of V), optional
        B, with one number in each row; without it V are the weights themselves.
    """

    def __init__(self, matrix: sparse.csr_array | None = None) -> None:
        self.matrix = matrix
        if matrix is not None:
            self.back = sparse.csr_array(matrix.T / (matrix**2).sum(axis=0)[:, None])

    @property
    def pooled(self) -> bool:
        """Whether all tasks have one weight vector in common."""
        return self.matrix is not None and self.matrix.shape[1] < self.matrix.shape[0]

    def of_weights(self, W: Array) -> Array:
        """V for W."""
        return W if self.matrix is None else np.asarray(self.back @ W)

    def weights(self, V: Array) -> Array:
        """W for V, (K, d)."""
        return V if self.matrix is None else np.asarray(self.matrix @ V)

    def gradient(self, G: Array) -> Array:
        """The gradient in V for that in W."""
        return G if self.matrix is None else np.asarray(self.matrix.T @ G)

    def coupling(self, coupling: Coupling) -> Coupling:
        """The coupling as a form in V."""
        if self.matrix is None:
            return coupling
        dense = self.matrix.T @ (self.matrix.T @ coupling.dense()).T
        return Coupling(dense, None if coupling.inverse[0] is None else positive_definite_inverse(dense))

    def task_sums(self, values: Array) -> Array:
        """Sums over the tasks that share a row of V, for values of all tasks."""
        return values if self.matrix is None else np.asarray((self.matrix != 0).T @ values)


def conjugate_gradients(
    operate: Callable[[Array], Array],
    residual: Callable[[Array], Array],
    preconditioners: Iterator[tuple[Callable[[Array], Array], float]],
    certificate: Callable[[Array, Array], float],
    W: Array,
    *,
    tol: float,
    max_iter: int,
) -> WeightStep:
    """Solve a linear system until the certificate, a function of W and its residual, is within ``tol``.

    Preconditioners are tried one after the other, each for the iterations that it is good for. The recurrence drifts
    from the true residual: a restart decides whether it was good enough.
    """
    gap, budget, made, done = np.inf, 0.0, 0, 0
    precondition: Callable[[Array], Array] | None = None
    while True:
        R = residual(W)
        previous, gap = gap, certificate(W, R)
        if end := WeightStep.ended(W, gap, done, tol, limit=max_iter):
            return end
        if precondition is None or gap > 0.5 * previous or made == budget:
            precondition, budget = next(preconditioners, (None, 0.0))
        if precondition is None:
            return WeightStep(W, gap, done, Status.STALLED)
        limit = int(min(budget, INNER_ITERATIONS, max_iter - done))
        W, made = solve_cg(operate, precondition, R, W, lambda V, S: certificate(V, S) <= tol, limit)
        done += made


def solve_cg(
    operate: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    R: Array,
    W: Array,
    enough: Callable[[Array, Array], bool],
    max_iter: int,
    accuracy: float = 0.0,
) -> tuple[Array, int]:
    """Conjugate gradients from W with residual R; returns W and the iterations made.

    They end where ``enough(W, R)`` is true, or the squared residual in the preconditioner's norm has fallen to
    ``accuracy`` times the first one.
    """
    Z = precondition(R)
    P, rz = Z, float(np.vdot(R, Z))
    made, least = 0, accuracy * rz
    while made < max_iter and rz > least:
        AP = operate(P)
        curvature = float(np.vdot(P, AP))
        if not curvature > 0:
            break
        step = rz / curvature
        W, R = W + step * P, R - step * AP
        made += 1
        if enough(W, R):
            break
        Z = precondition(R)
        rz, last = float(np.vdot(R, Z)), rz
        P = Z + (rz / last) * P
    return W, made
