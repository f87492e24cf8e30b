"""Climbing the evidence: minorise–maximise steps, extrapolated where the penalised objective agrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mssl._typing import Array
from mssl.evidence.prior import Hyper, Learner, Statistics

_FARTHEST = 4.0  # in logarithms: variances change by a factor of 50 at most
_FALL = 1e-9  # a fall of the objective by this share of its size is rounding


@dataclass(frozen=True)
class Climb:
    """Where a climb ended.

    Attributes
    ----------
    hyper : Hyper
        Hyperparameters.
    objective : float
        −2 log Z plus the hyperpriors' share.
    residual : float
        Norm of the gradient in the logarithms of the hyperparameters, per degree of freedom.
    n_iter : int
        Computations of the evidence.
    converged : bool
        Whether the residual is within the tolerance.
    trace : list of float
        The objective at every point that was kept.
    """

    hyper: Hyper
    objective: float
    residual: float
    n_iter: int
    converged: bool
    trace: list[float]


def climb(
    statistics: Callable[[Hyper], Statistics],
    learner: Learner,
    start: Hyper,
    *,
    tol: float = 1e-4,
    max_iter: int = 500,
    accelerate: bool = True,
) -> Climb:
    r"""Maximise the penalised evidence.

    Pairs of plain steps θ₀ → θ₁ → θ₂ are extrapolated in the logarithms (SQUAREM, Varadhan & Roland 2008,
    doi:10.1111/j.1467-9469.2007.00585.x) with step :math:`-\|r\|/\|v\|`, r = θ₁ − θ₀, v = θ₂ − 2θ₁ + θ₀; a point that
    is worse than θ₁ is replaced by θ₂.

    Parameters
    ----------
    statistics : callable
        −2 log Z and its derivatives at hyperparameters.
    learner : Learner
        Objective and steps.
    start : Hyper
        Where to begin.
    tol : float
        Residual to reach.
    max_iter : int
        Most computations of the evidence.
    accelerate : bool
        Whether to extrapolate.
    """
    columns = learner.columns
    hyper = start
    s = statistics(hyper)
    objective = learner.objective(hyper, s.value)
    trace, count, longest = [objective], 1, 1.0
    while True:
        first, residual = learner.step(hyper, s)
        if residual <= tol or count >= max_iter:
            return Climb(hyper, objective, residual, count, residual <= tol, trace)
        found = _evaluate(statistics, learner, first)
        count += 1
        if found is None:  # beyond the numbers that can be computed with: the last good point is kept
            return Climb(hyper, objective, residual, count, False, trace)
        s_first, value_first = found
        trace.append(value_first)
        if not accelerate:
            hyper, s, objective = first, s_first, value_first
            continue
        second, residual = learner.step(first, s_first)
        if residual <= tol:
            return Climb(first, value_first, residual, count, True, trace)
        x0, x1, x2 = hyper.to_vector(columns), first.to_vector(columns), second.to_vector(columns)
        length = min(max(step_length(x0, x1, x2), 1.0), longest)
        candidate = second
        if length > 1:
            candidate = learner.normalised(second.from_vector(extrapolated(x0, x1, x2, length), columns))
        found = _evaluate(statistics, learner, candidate)
        count += 1
        if length > 1 and (found is None or found[1] > value_first + _FALL * abs(value_first)):
            longest = max(1.0, longest / 4)
            candidate = second
            found = _evaluate(statistics, learner, candidate)
            count += 1
        elif length >= longest:
            longest *= 4
        if found is None:
            return Climb(first, value_first, residual, count, False, trace)
        hyper, (s, objective) = candidate, found
        trace.append(objective)


def _evaluate(
    statistics: Callable[[Hyper], Statistics], learner: Learner, hyper: Hyper
) -> tuple[Statistics, float] | None:
    """Statistics and penalised objective, or None where they cannot be computed."""
    try:
        s = statistics(hyper)
    except np.linalg.LinAlgError:
        return None
    objective = learner.objective(hyper, s.value) if np.isfinite(s.value) else np.inf
    return (s, objective) if np.isfinite(objective) else None


def step_length(x0: Array, x1: Array, x2: Array) -> float:
    """How far two steps x0 → x1 → x2 suggest to go."""
    return float(np.linalg.norm(x1 - x0)) / max(float(np.linalg.norm(x2 - 2 * x1 + x0)), 1e-300)


def extrapolated(x0: Array, x1: Array, x2: Array, length: float) -> Array:
    """The point that two steps lead to, no logarithm further than ``_FARTHEST`` from the second."""
    r, v = x1 - x0, x2 - 2 * x1 + x0
    return np.clip(x0 + 2 * length * r + length**2 * v, x2 - _FARTHEST, x2 + _FARTHEST)
