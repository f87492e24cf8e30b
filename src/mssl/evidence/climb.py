r"""The optimiser of marginal likelihoods: L-BFGS in log variances and in a covariance's own coordinates.

The objective is :math:`-2\log Z` plus the penalties of the hyperpriors. Its gradient in the logarithm of a variance θ
is :math:`\theta (A - C)`. Here A and C, both non-negative, are the derivatives of the concave part and, with the sign
changed, of the convex part. The minorise–maximise (MM) step minimises :math:`\theta A e^{z} + \theta C e^{-z}`, whose
curvature is

.. math:: m = \theta (A + C) .

In every step L-BFGS uses 1/m as its initial inverse Hessian. The first step is thus the MM step in logarithms; later
steps add curvature information. A covariance T moves in its own frame,
:math:`T \leftarrow L (I + S + \tfrac12 S^2) L^\top` with :math:`T = L L^\top`. The gradient in this frame is
:math:`L^\top (A - C) L`. The curvature of :math:`S_{ij}` is the mean of the i-th and the j-th diagonal entry of
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
from mssl.solvers.base import ARMIJO, LONGEST_MOVE, NEGLIGIBLE, SMALLEST_VARIANCE
from mssl.structures.copula import LEAST_EIGENVALUE

# Tolerance, in −2 log Z, of fits that cross-validation only scores. It trades time for accuracy: with it held-out log
# densities agree with those of tight fits to one or two thousandths.
ROUGH_GAIN = 5e-2
# Degrees of freedom. A variance near zero has hardly any gradient in its logarithm and would stay there, so that those
# with fewer degrees of freedom are raised to one before a climb ends: one more evaluation for a better optimum.
_LOST = 1e-2
# Number of steps. A climb ends when this many steps together gain no more than the tolerance: a safeguard for
# objectives that are not accurate enough to show the gain that the quadratic model predicts.
_CREEPING = 8
_SHORTEST = 1e-3  # Shortest share of a step in the line search, a safeguard: a climb ends if it needs a shorter one.


class Movable(Protocol):
    """An immutable point with coordinates; a step returns a new point."""

    def moved(self, step: Array) -> Self:
        """The point at the end of a step."""


P = TypeVar("P", bound=Movable)
D = TypeVar("D")
Evaluated = tuple[float, Array, Array]
Slope = tuple[Array, Array]  # slope and metric


@dataclass(frozen=True)
class Climb(Generic[P]):
    r"""The result of a climb.

    Attributes
    ----------
    point : Movable
        The best point.
    objective : float
        The objective at the best point.
    promise : float
        Predicted decrease of the objective in the next step by the quadratic model, :math:`\tfrac12 g^\top H g`.
    n_iter : int
        Number of evaluations of the objective.
    converged : bool
        Whether the promise is within the tolerance. If not, no step decreased the objective any more, or the climb
        reached the limit of evaluations.
    trace : list of float
        The objective at every accepted point.
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

    The climb ends when the promise of the next step and the last decrease are both within ``gain`` in two consecutive
    steps; at ``ROUGH_GAIN`` and above one step is enough. The climb also ends when many steps together decrease the
    objective by no more than ``gain``, since an inexact objective may not achieve the predicted decrease.

    Parameters
    ----------
    evaluate : callable
        Returns the objective, its gradient and the metric at a point, or None if they cannot be computed. Coordinates
        at their bound have gradient 0.
    start : Movable
        The starting point.
    gain : float
        Tolerance: a decrease of the objective that is not worth a step.
    memory : int
        Number of previous steps that L-BFGS uses.
    max_iter : int
        Maximum number of evaluations of the objective.
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
            # A variance near zero has no gradient in its logarithm, even if a larger one would be better: try that.
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
        step *= min(1.0, LONGEST_MOVE / float(np.abs(step).max()))
        along, share, found = float(slope @ step), 1.0, None
        while count < max_iter and share > _SHORTEST:
            moved = point.moved(share * step)
            found = evaluate(moved)
            count += 1
            if found is not None and found[0] <= value + ARMIJO * share * along + NEGLIGIBLE * abs(value):
                break
            bend = np.inf if found is None else found[0] - value - share * along
            share *= min(max(-0.5 * share * along / bend, 0.1), 0.5)
            found = None
        if found is None:
            if count < max_iter and pairs:
                pairs.clear()  # The previous steps mislead: try the metric alone.
                continue
            break  # No step along the gradient decreases the objective: rounding limits it.
        free = (slope != 0) & (found[1] != 0)
        change, turn = np.where(free, share * step, 0.0), np.where(free, found[1] - slope, 0.0)
        if change @ turn > NEGLIGIBLE * np.linalg.norm(change) * np.linalg.norm(turn):
            pairs.append((change, turn))
        last, point, (value, slope, metric) = value - found[0], moved, found
        trace.append(value)
    return Climb(point, value, promise, count, promise <= gain, trace)


def _times_inverse(slope: Array, metric: Array, pairs: deque[tuple[Array, Array]]) -> Array:
    """Return the L-BFGS inverse Hessian times the gradient by the two-loop recursion over (step, gradient change)."""
    q, shares = slope.copy(), []
    for change, turn in reversed(pairs):
        shares.append(float(change @ q) / float(change @ turn))
        q -= shares[-1] * turn
    q /= metric
    for (change, turn), share in zip(pairs, reversed(shares), strict=True):
        q += (share - float(turn @ q) / float(change @ turn)) * change
    return np.where(slope != 0, q, 0.0)


def in_logs(theta: Array, down: Array, up: Array) -> Slope:
    """Return the gradient and metric of log variances; the gradient is 0 for those that would leave their bound."""
    down, up = np.maximum(down, 0.0), np.maximum(up, 0.0)
    slope = down - up
    slope = np.where((theta <= SMALLEST_VARIANCE * (1 + 1e-9)) & (slope > 0), 0.0, slope)
    return slope, np.where(down + up > 0, down + up, 1.0)


class Learned(ABC, Generic[D]):
    """An immutable part of a prior with its own coordinates.

    The derivative of −2 log Z in this part is A − C. A belongs to the concave part of −2 log Z, C to the convex part.
    """

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return 0

    def slope(self, A: D, C: D) -> Slope:
        """Return the gradient of −2 log Z plus the price in the coordinates, and the minorise–maximise metric."""
        return np.zeros(0), np.zeros(0)

    def moved(self, step: Array) -> Self:
        """Return the part at the end of a step."""
        return self

    def price(self) -> float:
        """−2 log hyperprior."""
        return 0.0


@cache
def _lower(K: int) -> tuple[Index, Index, Array]:
    """Return the indices of the lower triangle and the norm of each entry; off-diagonal entries count twice."""
    i, j = np.tril_indices(K)
    return i, j, np.where(i == j, 1.0, np.sqrt(2.0))


def wishart_distance(T: Array, centre: Array) -> float:
    """Return tr T⁻¹T₀ + log |T| − log |T₀|, the divergence of T from T₀ up to a constant."""
    return float(np.trace(np.linalg.solve(T, centre)) + np.linalg.slogdet(T)[1] - np.linalg.slogdet(centre)[1])


@dataclass(frozen=True, eq=False)
class Framed:
    r"""A covariance T with coordinates in its own frame.

    Its price is :math:`\nu[\operatorname{tr} T^{-1} T_0 + \log|T| - \log|T_0|]`, a prior around T₀ that is worth ν
    observations. The coordinates are the lower triangle of S, with off-diagonal entries times √2. Their Euclidean norm
    is thus the Frobenius norm of S.
    """

    T: Array

    def _centre(self) -> tuple[float, Array]:
        """Return ν and T₀; without a prior ν is 0."""
        return 0.0, self.T

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.T) * (len(self.T) + 1) // 2

    def frame_slope(self, A: Array, C: Array) -> Slope:
        """Return the gradient and metric of −2 log Z, whose change is tr((A − C) dT), plus the price."""
        inverse, lower, (nu, centre) = np.linalg.inv(self.T), np.linalg.cholesky(self.T), self._centre()
        i, j, length = _lower(len(self.T))
        A, C = (lower.T @ part @ lower for part in (A + nu * inverse, C + nu * inverse @ centre @ inverse))
        size = np.diag(A + C)
        return (A - C)[i, j] * length, 0.5 * (size[i] + size[j])

    def moved(self, step: Array) -> Self:
        """Return the covariance at the end of a step, its eigenvalues bounded away from 0."""
        i, j, length = _lower(len(self.T))
        S, lower = np.zeros(self.T.shape), np.linalg.cholesky(self.T)
        S[i, j] = S[j, i] = step / length
        turned = lower @ (np.eye(len(S)) + S)
        # I + S + S²/2 = ½ (I + (I + S)²): positive definite for every S.
        T = 0.5 * (lower @ lower.T + turned @ turned.T)
        values, vectors = np.linalg.eigh(T)
        least = LEAST_EIGENVALUE * max(float(values[-1]), SMALLEST_VARIANCE)
        return replace(self, T=T if values[0] >= least else (vectors * np.maximum(values, least)) @ vectors.T)

    def price(self) -> float:
        """−2 log hyperprior."""
        nu, centre = self._centre()
        return nu * wishart_distance(self.T, centre)
