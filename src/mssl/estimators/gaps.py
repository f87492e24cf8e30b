r"""r-MSSL with missing targets: expectation and maximisation over the residuals that are not there.

The E-step expects the missing targets given the known ones of the same occasion (:mod:`mssl.model.conditional`). The
M-step is the fit of complete data, in which the moment of the residuals is
:math:`\tfrac1n(E^\top E + \sum_i \operatorname{Cov}_i)` with the covariances of what is missing. Its fixed point
maximises the penalised likelihood of the known targets alone. Features of missing targets have no influence on it;
they are set to the task's mean.

References
----------
Dempster, Laird & Rubin (1977), doi:10.1111/j.2517-6161.1977.tb01600.x.
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
from mssl.data.occasions import occasion_table
from mssl.model.conditional import conditional
from mssl.solvers.alternation import FitResult, Record
from mssl.solvers.fit import Gaps, Prepared

if TYPE_CHECKING:
    from mssl.estimators.spec import FitSpec

_ROUNDS = 200  # limit of the rounds; with a third of the targets missing some twenty suffice
# Change of the filled targets, in standard deviations of their task, that ends the rounds, over the root of the fit's
# tolerance: F is flat at its minimum, so that its error is the square of a distance.
_SETTLED = 0.1


def has_gaps(spec: FitSpec, data: TaskData) -> bool:
    """Whether residuals are to be related and some of the targets of an (n, K) table are missing."""
    plain = data.weights is None and isinstance(data.X, np.ndarray)
    return spec.structure.relates == "residual" and data.layout != "long" and not data.aligned and plain


def complete(data: TaskData) -> tuple[TaskData, Array]:
    """The tasks with a row for every occasion, and the targets by occasion (K, n), NaN where they are missing."""
    K, d = data.n_tasks, data.n_features
    known = occasion_table(data, data.y)
    X = occasion_table(data, np.asarray(data.X, dtype=float))
    seen = np.isfinite(known).any(axis=0)
    known, X = known[:, seen], X[:, seen]
    # One X for all tasks is known wherever any task has a target.
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


def check_rows(spec: FitSpec, data: TaskData) -> None:
    """Raise where the fit is not possible on these data, in which targets may be missing."""
    spec.check(complete(data)[0] if has_gaps(spec, data) else data)


def fit_rows(
    spec: FitSpec, data: TaskData, warm: FitResult | None = None, monitor: Callable[[Record], bool] | None = None
) -> tuple[TaskData, Prepared, FitResult]:
    """A fit of data in which targets may be missing; the answer is that of :func:`fit_with_gaps`."""
    if has_gaps(spec, data):
        return fit_with_gaps(spec, data, warm, monitor)
    prepared = spec.prepare(data)
    return data, prepared, spec.fit(prepared, warm, monitor)


def fit_with_gaps(
    spec: FitSpec, data: TaskData, warm: FitResult | None = None, monitor: Callable[[Record], bool] | None = None
) -> tuple[TaskData, Prepared, FitResult]:
    """Fit r-MSSL to targets of which some are missing.

    Parameters
    ----------
    spec : FitSpec
        The fit.
    data : TaskData
        The tasks, in a shared or aligned layout.
    warm : FitResult, optional
        A previous fit to start from.
    monitor : callable, optional
        Called after every round of every fit.

    Returns
    -------
    data, prepared, result
        The data without gaps, as they were fitted at last, and the fit.
    """
    whole, known = complete(data)
    K, n = known.shape
    missing = np.isnan(known)
    spread = np.nanstd(known, axis=1)
    # A task with one known target has no spread of its own: changes are then measured by that of the others.
    spread = np.where(spread > 0, spread, spread.max() if spread.any() else 1.0)
    filled = np.where(missing, np.nanmean(known, axis=1, keepdims=True), known)
    root, last, share = np.zeros((K, K)), np.zeros((K, n)), 1.0
    for _ in range(_ROUNDS):
        whole = replace(whole, y=filled.ravel())
        prepared = spec.prepare(whole)
        prepared = replace(prepared, gaps=Gaps(missing, root / prepared.unit))
        result = spec.fit(prepared, warm, monitor)
        warm = result
        coef, intercept = prepared.to_user(result.W, result.intercepts)
        X = whole.X if whole.shared else whole.X.reshape(K, n, -1)
        mean = (coef @ X.T if whole.shared else np.einsum("knd,kd->kn", X, coef)) + intercept[:, None]
        covariance = np.asarray(np.linalg.inv(spec.user_precision(prepared, result)), dtype=np.float64)
        answer = conditional(mean.T, covariance, known.T)
        move = (answer.mean.T - filled) / spread[:, None]
        if np.vdot(move, last) < 0:
            # The round turns back: constants of F that follow the targets can let rounds go to and fro for ever.
            share *= 0.5
        values, vectors = np.linalg.eigh(answer.covariance_sum)
        turn = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T - root
        change = share * max(float(np.abs(move).max()), float(np.max(np.abs(turn) / spread[:, None])) / np.sqrt(n))
        filled, root, last = filled + share * (answer.mean.T - filled), root + share * turn, move
        if change <= _SETTLED * np.sqrt(spec.settings.tol):
            break
    return whole, prepared, result
