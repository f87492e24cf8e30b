r"""r-MSSL with missing targets: an EM algorithm over the missing residuals.

The E-step computes the expectations of the missing targets given the known ones of the same occasion
(:mod:`mssl.model.conditional`). The M-step is a fit to complete data in which the moment of the residuals is
:math:`\tfrac1n(E^\top E + \sum_i \operatorname{Cov}_i)`, with the covariances of the missing targets. The fixed point
maximises the penalised likelihood of the known targets. The features of missing targets do not influence it; they are
set to the task's mean.

References
----------
Dempster, Laird & Rubin (1977), doi:10.1111/j.2517-6161.1977.tb01600.x.
Varadhan & Roland (2008), Simple and globally convergent methods for accelerating the convergence of any EM algorithm,
doi:10.1111/j.1467-9469.2007.00585.x.
Städler & Bühlmann (2012), Missing values: sparse inverse covariance estimation and an extension to sparse regression,
doi:10.1007/s11222-010-9219-7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mssl._typing import Array
from mssl.data.layouts import TaskData
from mssl.model.conditional import conditional
from mssl.solvers.alternation import FitResult, Record
from mssl.solvers.base import Status
from mssl.solvers.fit import Gaps, Prepared

if TYPE_CHECKING:
    from mssl.estimators.spec import FitSpec

Fit = tuple[TaskData, Prepared, FitResult]  # completed data, the same data prepared, and their fit

# The rounds end if _LOOK_BACK of them do not reduce the smallest change to the share _FALL. A mere safeguard: more
# rounds without progress only cost time.
_LOOK_BACK, _FALL = 40, 0.5
# The rounds end when the filled targets change by less than this number times the root of the fit's tolerance, in
# standard deviations of their task. The root is due to F, whose error near the minimum is the square of a distance.
_SETTLED = 0.1
# The length of an extrapolation may grow by this factor from one round to the next. If a round's change grows by more
# than this factor, the last extrapolation was too long. A mere safeguard.
_GROWTH = 3.0


def complete(data: TaskData) -> tuple[TaskData, Array]:
    """Complete the tasks to one row per occasion; also return the targets by occasion, (K, n), NaN for missing ones."""
    K, d = data.n_tasks, data.n_features
    known = data.by_occasion(data.y)
    X = data.by_occasion(np.asarray(data.X, dtype=float))
    seen = np.isfinite(known).any(axis=0)
    known, X = known[:, seen], X[:, seen]
    # If one X serves all tasks, an occasion's features are known if any task has a target there.
    means = np.nanmean(X, axis=0 if data.layout == "shared" else 1, keepdims=True)
    X = np.where(np.isnan(X), means, X)
    n = known.shape[1]
    whole = replace(
        data,
        X=np.ascontiguousarray(X[0] if data.layout == "shared" else X.reshape(K * n, d)),
        y=np.zeros(K * n),
        offsets=np.arange(K + 1) * n,
        aligned=True,
        input_rows=None,
        groups=None,
        order=None,
    )
    return whole, known


def fit_with_gaps(
    spec: FitSpec, data: TaskData, warm: FitResult | None = None, monitor: Callable[[Record], bool] | None = None
) -> Fit:
    """Fit r-MSSL to data with missing targets.

    Parameters
    ----------
    spec : FitSpec
        The specification of the fit.
    data : TaskData
        The tasks, in the shared or aligned layout.
    warm : FitResult, optional
        A previous fit from which to start.
    monitor : callable, optional
        Function that is called after every round of every fit.

    Returns
    -------
    data, prepared, result
        The completed data of the round with the smallest change, the same data prepared, and their fit. Its status is
        UNSETTLED if the rounds have not converged.
    """
    rounds = _Rounds(spec, data, monitor)
    state, longest, length, last = rounds.start(), 1.0, 1.0, np.inf
    while True:
        # The changes of two rounds show how fast the rounds slow down, and so their limit. The step is long if the
        # changes hardly shrink, and goes half the way back if they alternate.
        first, fit = rounds.next(state, warm)
        if rounds.ended(first - state, length, fit):
            break
        second, fit = rounds.next(first, fit[2])
        move, turn = first - state, second - 2 * first + state
        size = float(np.linalg.norm(move))
        length = size / max(float(np.linalg.norm(turn)), np.finfo(float).tiny)
        if rounds.ended(second - first, length, fit):
            break
        warm, step = fit[2], min(length, longest)
        if size > _GROWTH * last:
            longest, step = 1.0, 1.0
        elif length > longest:
            longest *= _GROWTH
        state, last = state + 2 * step * move + step**2 * turn, size
    whole, prepared, result = rounds.best
    settled = rounds.settled or not result.status.good
    return whole, prepared, result if settled else replace(result, status=Status.UNSETTLED)


class _Rounds:
    """Rounds of expectation and maximisation.

    The state of a round has the shape (K, n + K). It holds the filled targets and a root of the sum of their
    covariances, both in standard deviations of the task, so that changes can be compared.
    """

    def __init__(self, spec: FitSpec, data: TaskData, monitor: Callable[[Record], bool] | None) -> None:
        self.spec, self.monitor, self.settled = spec, monitor, False
        self.changes: list[float] = []
        self.best: Fit
        self.whole, self.known = complete(data)
        self.missing = np.isnan(self.known)
        spread = np.nanstd(self.known, axis=1)
        # A task with one known target has no standard deviation; its changes are measured by that of the other tasks.
        spread = np.where(spread > 0, spread, spread.max() if spread.any() else 1.0)
        K, n = self.known.shape
        self.units = np.repeat(spread[:, None], n + K, axis=1)
        self.units[:, n:] *= np.sqrt(n)

    def start(self) -> Array:
        """The first state, in which the means of the tasks replace missing targets."""
        K = len(self.known)
        filled = np.where(self.missing, np.nanmean(self.known, axis=1, keepdims=True), self.known)
        return np.concatenate([filled, np.zeros((K, K))], axis=1) / self.units

    def next(self, state: Array, warm: FitResult | None) -> tuple[Array, Fit]:
        """Make one round: fit the data of a state, and return the next state and the fit."""
        spec, (K, n) = self.spec, self.known.shape
        filled, root = np.split(state * self.units, [n], axis=1)
        whole = replace(self.whole, y=np.where(self.missing, filled, self.known).ravel())
        prepared = spec.prepare(whole)
        near = None if warm is None else warm.W
        prepared = replace(prepared, gaps=Gaps(self.missing, root / prepared.unit), near=near)
        result = spec.fit(prepared, warm, self.monitor)
        coef, intercept, _ = prepared.user_weights(result)
        X = whole.X if whole.shared else whole.X.reshape(K, n, -1)
        mean = (coef @ X.T if whole.shared else np.einsum("knd,kd->kn", X, coef)) + intercept[:, None]
        covariance = np.asarray(np.linalg.inv(spec.user_precision(prepared, result)), dtype=np.float64)
        answer = conditional(mean.T, covariance, self.known.T)
        # The root is computed in units of each task; in common units small tasks would lose digits.
        spread = self.units[:, 0]
        values, vectors = np.linalg.eigh(answer.covariance_sum / np.outer(spread, spread))
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        after = np.concatenate([answer.mean.T / spread[:, None], root / np.sqrt(n)], axis=1)
        return after, (whole, prepared, result)

    def ended(self, change: Array, length: float, fit: Fit) -> bool:
        """Whether the rounds have converged, or have made no progress for long.

        The remaining distance of slow rounds is about ``length`` times their last change.
        """
        now = float(np.abs(change).max())
        self.changes.append(now)
        least, before = min(self.changes), min(self.changes[:-_LOOK_BACK], default=np.inf)
        if now == least:
            self.best = fit
        self.settled = max(length, 1.0) * now <= _SETTLED * np.sqrt(self.spec.settings.tol)
        return self.settled or least > _FALL * before
