"""What all solvers of the weight step share: their unknowns, their results and the status with which they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import cached_property
from math import inf

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from mssl._typing import Array
from mssl.data.inputs import ROUNDING
from mssl.model.coupling import Coupling, positive_definite_inverse

# A share of a sum below this counts as rounding if the terms can be up to a thousand times as large as the sum.
NEGLIGIBLE = 1e-12
# Share of the tolerance that a step must gain to count as progress. With smaller gains, a solver would need thousands
# of steps.
SMALLEST_GAIN = 1e-3
# A solver ends as stalled after this number of rounds without progress. More rounds waste time, fewer end solvers that
# would recover.
PATIENCE = 5
# Safeguard: limit of steps for iterations that usually take about a dozen. Rounding and bad starts can make them slow.
MOST_STEPS = 100
ARMIJO = 1e-4  # Least share of the expected decrease that a step must achieve: the usual constant of Armijo's rule.
# Largest change in a first step: of an intercept, of a predictor if the curvature of the loss is unbounded, or of the
# logarithm of a variance. The quadratic model is inaccurate beyond it. For predictors, the limit grows after steps of
# full length that decrease the objective as the model predicts; a distant optimum would be approached slowly otherwise.
LONGEST_MOVE = 4.0
# Safeguard: lower bound of prior and noise variances, in units of the targets' variance, and of a site's precision.
SMALLEST_VARIANCE = 1e-10
# Limit of iterations of an inner solver. It then returns to compute the true residual, or to take a new Newton step.
INNER_ITERATIONS = 1000


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
        """Whether the solver reached the tolerance, with a certificate if the problem has one."""
        return self in (Status.CONVERGED, Status.SETTLED, Status.STATIONARY)


@np.errstate(over="ignore", invalid="ignore")  # bisection replaces steps without a limit
def bracketed_newton(
    derivatives: Callable[[Array], tuple[Array, Array]],
    x: Array,
    low: Array | float = -np.inf,
    high: Array | float = np.inf,
    *,
    longest: float = np.inf,
    last: float,
) -> Array:
    """Minimise functions of one variable, all at once, by Newton's method with bisection.

    ``derivatives`` returns the first and second derivatives at x. A step is at most ``longest``, which doubles whenever
    it limits a step. Bisection replaces steps that leave the bracket. A step of at most ``last`` is the last one of its
    function.
    """
    moving, cap = np.ones(len(x), dtype=bool), np.full(len(x), longest)
    for _ in range(MOST_STEPS):
        slope, curvature = derivatives(x)
        low, high = np.where(slope < 0, x, low), np.where(slope > 0, x, high)
        endless = np.where(slope == 0, 0.0, np.copysign(np.inf, -slope))
        step = np.divide(-slope, curvature, out=endless, where=curvature > 0)
        capped = np.abs(step) > cap
        after = x + np.where(capped, np.copysign(cap, step), step)
        cap = np.where(capped, 2 * cap, cap)
        ends = ~capped & (np.abs(step) <= last)
        outside = ((after <= low) | (after >= high)) & ~ends
        # A bracket without a second edge cannot be halved; such a step is below rounding.
        after = np.where(outside, np.where(np.isfinite(high - low), (low + high) / 2, x), after)
        moved = np.where(moving, after, x)
        moving &= ~(ends | (np.abs(after - x) <= min(last, ROUNDING) * (1.0 + np.abs(x))))
        x = moved
        if not moving.any():
            break
    return x


@dataclass(eq=False, repr=False)
class Solver(BaseEstimator):
    """Settings of the computation: the solver of the weight step, the starts and the memory.

    Parameters
    ----------
    name : {"auto", "coordinate", "cg", "sylvester", "proximal", "fista"}, default="auto"
        Solver of the weight step.
    n_starts : int, default=1
        Number of starts. F is convex in the weights and in the graph, but not in both together: a fit ends where
        neither can be improved alone, which need not be the global minimum. The first start is the diagonal fixed point
        (separate tasks), which is the same in every run. Further fits start with one variance for all tasks, then with
        variances that are ten, a hundred … times larger. The fit with the lowest F is kept.
    memory_limit : int, optional
        Largest size of the Grams in bytes. Grams take 8 K d² bytes, and each fold has its own. The default is a quarter
        of the machine's memory, at most 2 GiB. Larger problems are solved by products with the rows, which takes
        longer, and a warning is raised.
    """

    name: str = "auto"
    _: KW_ONLY
    n_starts: int = 1
    memory_limit: int | None = None


@dataclass(frozen=True)
class WeightStep:
    """Weights that (nearly) minimise F for a fixed task precision.

    Attributes
    ----------
    W : ndarray of shape (K, d)
        Weights, task by task.
    gap : float
        Upper bound of the suboptimality F(W) − min F (see :mod:`mssl.model.bounds`). If the status is STATIONARY, it is
        the largest violation of the optimality condition instead.
    n_iter : int
        Number of sweeps, iterations or Newton steps, depending on the solver.
    status : Status
        How the solver ended.
    """

    W: Array
    gap: float
    n_iter: int
    status: Status

    @classmethod
    def ended(
        cls, W: Array, gap: float, n_iter: int, tol: float, limit: float = inf, idle: bool = False, bound: bool = True
    ) -> WeightStep | None:
        """The result if the solver ends at W, otherwise None.

        It ends when the gap is within ``tol`` or not finite, at the limit of iterations, or when it is ``idle``.
        """
        if gap <= tol:
            return cls(W, gap, n_iter, Status.CONVERGED if bound else Status.STATIONARY)
        if not np.isfinite(gap):
            return cls(W, gap, n_iter, Status.DIVERGED)
        if n_iter >= limit:
            return cls(W, gap, n_iter, Status.MAX_ITER)
        return cls(W, gap, n_iter, Status.STALLED) if idle else None


@dataclass(frozen=True, eq=False)
class Unknowns:
    """The linear map W = B V from a solver's unknowns V to the weights W.

    The unknowns are the weights themselves, the weights in other units, or one weight vector for all tasks.

    Attributes
    ----------
    matrix : sparse array of shape (K, number of rows of V), or None
        B, with one entry per row. If it is None, V are the weights themselves.
    """

    matrix: sparse.csr_array | None = None

    @cached_property
    def back(self) -> sparse.csr_array:
        """The matrix that maps W to V."""
        assert self.matrix is not None
        return sparse.csr_array(self.matrix.T / (self.matrix**2).sum(axis=0)[:, None])

    @property
    def pooled(self) -> bool:
        """Whether all tasks have one weight vector in common."""
        return self.matrix is not None and self.matrix.shape[1] < self.matrix.shape[0]

    def of_weights(self, W: Array) -> Array:
        """The unknowns V that give the weights W."""
        return W if self.matrix is None else np.asarray(self.back @ W)

    def weights(self, V: Array) -> Array:
        """The weights W that V gives, (K, d)."""
        return V if self.matrix is None else np.asarray(self.matrix @ V)

    def gradient(self, G: Array) -> Array:
        """The gradient with respect to V, from the gradient G with respect to W."""
        return G if self.matrix is None else np.asarray(self.matrix.T @ G)

    def coupling(self, coupling: Coupling) -> Coupling:
        """The coupling as a quadratic form in V."""
        if self.matrix is None:
            return coupling
        dense = self.matrix.T @ (self.matrix.T @ coupling.dense()).T
        return Coupling(dense, None if coupling.inverse[0] is None else positive_definite_inverse(dense))

    def task_sums(self, values: Array) -> Array:
        """Sum one value per task over the tasks that share a row of V."""
        return values if self.matrix is None else np.asarray((self.matrix != 0).T @ values)
