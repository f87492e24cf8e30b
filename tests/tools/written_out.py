"""Weight steps written out as one dense quadratic over all weights, to judge kernels by."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

ABSOLUTE, CONCAVE = 0, 1


@dataclass
class WrittenOut:
    """½ w'Mw − b'w + Σ g(w), g as mssl.h has it."""

    M: np.ndarray
    b: np.ndarray
    t: np.ndarray
    theta: np.ndarray | None = None
    positive: bool = False

    @property
    def kernel(self):
        """The penalty as kernels take it; callers shape it."""
        return np.stack([self.t] if self.theta is None else [self.t, self.theta])

    def value(self, w):
        w = np.ravel(w)
        return 0.5 * w @ self.M @ w - self.b @ w + np.sum(penalty_value(w, self.t, self.theta, self.positive))

    def violation(self, w):
        """How far the slope at w is from what a minimum allows, at most (for g = t|w|)."""
        w = np.ravel(w)
        slope = self.M @ w - self.b
        at_zero = np.maximum(-slope - self.t, 0.0 if self.positive else np.abs(slope) - self.t)
        with np.errstate(invalid="ignore"):
            elsewhere = np.abs(slope + self.t * np.sign(w))
        assert not (self.positive and np.any(w < 0))
        return float(np.max(np.where(w == 0, np.maximum(at_zero, 0.0), elsewhere), initial=0.0))

    def brute(self):
        """The minimiser of a convex problem among the minimisers of all patterns of signs."""
        best, n = np.zeros(len(self.b)), len(self.b)
        for signs in product((0, 1) if self.positive else (-1, 0, 1), repeat=n):
            s = np.array(signs, dtype=float)
            on = np.flatnonzero((s != 0) & np.isfinite(self.t))
            if len(on) != np.count_nonzero(s):
                continue
            w = np.zeros(n)
            w[on] = np.linalg.solve(self.M[np.ix_(on, on)], self.b[on] - self.t[on] * s[on])
            if np.all(w[on] * s[on] > 0) and self.value(w) < self.value(best):
                best = w
        return best

    def steps(self, w):
        """What a move of one coordinate alone could still gain, at most, on a fine grid."""
        w, gained = np.ravel(w).copy(), 0.0
        for j in range(len(w)):
            h, a = self.M[j, j], self.b[j] - self.M[j] @ w + self.M[j, j] * w[j]
            grid = np.concatenate([np.linspace(-3, 3, 2001) * (abs(a / h) + 1e-3), [0.0, a / h, w[j]]])
            theta = None if self.theta is None else self.theta[j]
            values = 0.5 * h * grid**2 - a * grid + penalty_value(grid, self.t[j], theta, self.positive)
            gained = max(gained, float(values[-1] - values.min()))
        return gained


def penalty_value(w, t, theta=None, positive=False):
    """g(w), 0 at 0 whatever the strength."""
    size = np.abs(w)
    with np.errstate(invalid="ignore"):
        value = (
            t * size
            if theta is None
            else np.where(size <= theta * t, t * size - size**2 / (2 * theta), theta * t**2 / 2)
        )
    value = np.where(size == 0, 0.0, value)
    return np.where(w < 0, np.inf, value) if positive else value


def random_precision(rng, K, fill=0.6):
    """A sparse, diagonally dominant positive definite matrix."""
    P = np.triu(rng.standard_normal((K, K)) * (rng.random((K, K)) < fill), 1)
    P = P + P.T
    return P + np.diag(np.abs(P).sum(axis=1) + rng.uniform(0.2, 1.0, K))


def random_gram(rng, d, n=None):
    """AᵀA / n of n random rows."""
    A = rng.standard_normal((d + 2 if n is None else n, d))
    return A.T @ A / len(A)


def compressed(P):
    """Row starts, columns and values, the diagonal always stored."""
    kept = (P != 0) | np.eye(len(P), dtype=bool)
    starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
    return starts, np.nonzero(kept)[1].astype(np.int64), P[kept].astype(float)
