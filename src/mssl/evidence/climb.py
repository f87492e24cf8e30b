r"""One climb for all that is learned by likelihood: quasi-Newton steps in logarithms and in matrices' own frames.

The objective is :math:`-2\log Z` plus the price of the hyperparameters. Its slope in the logarithm of a variance θ is
:math:`\theta (A - C)`, where A and C, both at least 0, are the derivatives of its concave and of its convex part. The
minorise–maximise step minimises :math:`\theta A e^{z} + \theta C e^{-z}`, whose curvature is

.. math:: m = \theta (A + C) .

L-BFGS takes 1/m as the inverse Hessian that it starts from, afresh in every step: the first step is the
minorise–maximise step in logarithms, and later ones learn what that neglects. A covariance T moves in its own frame,
:math:`T \leftarrow L (I + S + \tfrac12 S^2) L^\top` with :math:`T = L L^\top`. There the slope is
:math:`L^\top (A - C) L`, and the curvature of :math:`S_{ij}` the mean of the i-th and the j-th diagonal entry of
:math:`L^\top (A + C) L`.

References
----------
Nocedal & Wright (2006), Numerical Optimization, chapter 7, doi:10.1007/978-0-387-40065-5.
"""

from __future__ import annotations

from abc import ABC
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from mssl._typing import Array, Index

ROUGH_GAIN = 5e-2  # of fits that are only judged, in −2 log Z: held-out densities agree to one or two thousandths
SMALLEST = 1e-10  # Least variance, of prior and noise, in units of the targets' variance; least precision of a site.
_LEAST_EIGENVALUE = 1e-7  # of a covariance that moves in its frame, beside its largest: inverses must keep digits
_FARTHEST = 4.0  # Largest change of a coordinate in one step: variances change by a factor of 50 at most.
_ARMIJO = 1e-4  # Share of the slope's promise that a step has to keep.
_ROUNDING = 1e-11  # Differences of the objective, relative to its size, that may be rounding.
_LOST = 1e-2  # Degrees of freedom; variances with fewer are tried at one before a climb ends.
_CREEPING = 8  # Steps that together gain no more than one should: the promise is beyond the objective's digits.
_SHORTEST = 1e-3  # Share of a step; a step that must be shorter ends the climb.


class Movable(Protocol):
    """A point that can be moved by coordinates of its own; it is not changed itself."""

    def moved(self, step: Array) -> Self:
        """The point at the end of a step."""


P = TypeVar("P", bound=Movable)
D = TypeVar("D")
Evaluated = tuple[float, Array, Array]
Slope = tuple[Array, Array]  # slope and metric


@dataclass(frozen=True)
class Climb(Generic[P]):
    r"""Where a climb ended.

    Attributes
    ----------
    point : Movable
        The best point.
    objective : float
        Its objective.
    promise : float
        What the next step would gain by the quadratic model, :math:`\tfrac12 g^\top H g`.
    n_iter : int
        Computations of the objective.
    converged : bool
        Whether the promise is within the tolerance; otherwise the climb stopped where no step gained more, or at the
        limit of computations.
    trace : list of float
        The objective at every point that was kept.
    """

    point: P
    objective: float
    promise: float
    n_iter: int
    converged: bool
    trace: list[float]


def climb(
    evaluate: Callable[[P], Evaluated | None], start: P, *, gain: float = 1e-3, memory: int = 20, max_iter: int = 300
) -> Climb[P]:
    """Minimise an objective by L-BFGS with the minorise–maximise curvature as its metric.

    The climb ends when both the promise of the next step and the last gain are within ``gain``, twice running; once is
    enough at ``ROUGH_GAIN`` and above. It ends too where many steps together gain no more: an objective that is known
    up to a tolerance of its own does not keep what it promises.

    Parameters
    ----------
    evaluate : callable
        Objective, slope and metric at a point, or None where they cannot be computed. Coordinates at their bound have
        slope 0.
    start : Movable
        Where to begin.
    gain : float
        Gain of the objective that is not worth a step.
    memory : int
        Number of steps that are remembered.
    max_iter : int
        Limit of the computations.
    """
    found = evaluate(start)
    if found is None:
        raise np.linalg.LinAlgError("the objective cannot be computed at the start")
    (value, slope, metric), point = found, start
    pairs: deque[tuple[Array, Array]] = deque(maxlen=memory)
    trace, count, calm, last = [value], 1, 0, np.inf
    while True:
        step = -_times_inverse(slope, metric, pairs)
        promise = -0.5 * float(slope @ step)
        calm = calm + 1 if max(promise, last) <= gain else 0
        crept = len(trace) > _CREEPING and trace[-1 - _CREEPING] - value <= gain
        if calm >= (1 if gain >= ROUGH_GAIN else 2) or crept or not slope.any():
            # A variance near zero has no slope in its logarithm, however much it would gain: try one that matters.
            small = (slope < 0) & (metric < _LOST)
            moved = point.moved(np.where(small, -np.log(metric), 0.0))
            found = evaluate(moved) if small.any() else None
            count += bool(small.any())
            if found is None or found[0] > value - gain:
                break
            pairs.clear()
            last, point, (value, slope, metric) = value - found[0], moved, found
            trace.append(value)
            continue
        step *= min(1.0, _FARTHEST / float(np.abs(step).max()))
        along, share, found = float(slope @ step), 1.0, None
        while count < max_iter and share > _SHORTEST:
            moved = point.moved(share * step)
            found = evaluate(moved)
            count += 1
            if found is not None and found[0] <= value + _ARMIJO * share * along + _ROUNDING * abs(value):
                break
            bend = np.inf if found is None else found[0] - value - share * along
            share *= min(max(-0.5 * share * along / bend, 0.1), 0.5)
            found = None
        if found is None:
            if count < max_iter and pairs:
                pairs.clear()  # what was learned misleads: the metric alone is tried
                continue
            break  # no step along the slope gains: the digits of the objective end here
        free = (slope != 0) & (found[1] != 0)
        change, turn = np.where(free, share * step, 0.0), np.where(free, found[1] - slope, 0.0)
        if change @ turn > _ROUNDING * np.linalg.norm(change) * np.linalg.norm(turn):
            pairs.append((change, turn))
        last, point, (value, slope, metric) = value - found[0], moved, found
        trace.append(value)
    return Climb(point, value, promise, count, promise <= gain, trace)


def _times_inverse(slope: Array, metric: Array, pairs: deque[tuple[Array, Array]]) -> Array:
    """The inverse Hessian that pairs of steps and turns of the slope suggest, times the slope (two loops)."""
    q, shares = slope.copy(), []
    for change, turn in reversed(pairs):
        shares.append(float(change @ q) / float(change @ turn))
        q -= shares[-1] * turn
    q /= metric
    for (change, turn), share in zip(pairs, reversed(shares), strict=True):
        q += (share - float(turn @ q) / float(change @ turn)) * change
    return np.where(slope != 0, q, 0.0)


def in_logs(theta: Array, down: Array, up: Array) -> Slope:
    """Slope and metric of variances in logarithms; slope 0 where they would fall below the least one."""
    down, up = np.maximum(down, 0.0), np.maximum(up, 0.0)
    slope = down - up
    slope = np.where((theta <= SMALLEST * (1 + 1e-9)) & (slope > 0), 0.0, slope)
    return slope, np.where(down + up > 0, down + up, 1.0)


class Learned(ABC, Generic[D]):
    """A part of a prior with coordinates of its own; it is not changed itself.

    −2 log Z changes with it by derivatives A, of its concave part, and C, of its convex part.
    """

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return 0

    def slope(self, A: D, C: D) -> Slope:
        """Slope of −2 log Z and of the price in the coordinates, and the minorise–maximise metric."""
        return np.zeros(0), np.zeros(0)

    def moved(self, step: Array) -> Self:
        """The part at the end of a step."""
        return self

    def price(self) -> float:
        """−2 log hyperprior."""
        return 0.0


@cache
def _lower(K: int) -> tuple[Index, Index, Array]:
    """Places of the lower triangle, and the lengths of its entries: those off the diagonal stand for two."""
    i, j = np.tril_indices(K)
    return i, j, np.where(i == j, 1.0, np.sqrt(2.0))


def wishart_distance(T: Array, centre: Array) -> float:
    """How far T is from T₀: tr T⁻¹T₀ + log |T| − log |T₀|."""
    return float(np.trace(np.linalg.solve(T, centre)) + np.linalg.slogdet(T)[1] - np.linalg.slogdet(centre)[1])


@dataclass(frozen=True, eq=False)
class Framed:
    r"""A covariance T that moves in its own frame.

    Its price is :math:`\nu[\operatorname{tr} T^{-1} T_0 + \log|T| - \log|T_0|]`, of ν rows' worth of knowledge that
    it is T₀. The coordinates are the lower triangle of S, entries off the diagonal times √2, so that their length is
    that of S.
    """

    T: Array

    def _centre(self) -> tuple[float, Array]:
        """ν and T₀; without any knowledge ν is 0."""
        return 0.0, self.T

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.T) * (len(self.T) + 1) // 2

    def frame_slope(self, A: Array, C: Array) -> Slope:
        """Slope and metric where −2 log Z changes by tr((A − C) dT), with the price."""
        inverse, lower, (nu, centre) = np.linalg.inv(self.T), np.linalg.cholesky(self.T), self._centre()
        i, j, length = _lower(len(self.T))
        A, C = (lower.T @ part @ lower for part in (A + nu * inverse, C + nu * inverse @ centre @ inverse))
        size = np.diag(A + C)
        return (A - C)[i, j] * length, 0.5 * (size[i] + size[j])

    def moved(self, step: Array) -> Self:
        """The covariance at the end of a step; none of its directions is much smaller than the others."""
        i, j, length = _lower(len(self.T))
        S, lower = np.zeros(self.T.shape), np.linalg.cholesky(self.T)
        S[i, j] = S[j, i] = step / length
        turned = lower @ (np.eye(len(S)) + S)
        # I + S + S²/2 = ½ (I + (I + S)²): positive definite for every S.
        T = 0.5 * (lower @ lower.T + turned @ turned.T)
        values, vectors = np.linalg.eigh(T)
        least = _LEAST_EIGENVALUE * max(float(values[-1]), SMALLEST)
        return replace(self, T=T if values[0] >= least else (vectors * np.maximum(values, least)) @ vectors.T)

    def price(self) -> float:
        """−2 log hyperprior."""
        nu, centre = self._centre()
        return nu * wishart_distance(self.T, centre)
