"""The graphical lasso by the alternating direction method of multipliers, on matrices scaled to a unit diagonal."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from mssl._typing import Array

_LOOK = 20  # iterations between two looks at the certificate, which costs as much as a few of them
_UNBALANCED = 5.0  # the step is doubled or halved where the two residuals differ by more than this factor
_RELAXATION = 1.6
_FALL = 0.9  # the share of its smallest value to which the gap must fall while the patience lasts
_FLAT = 1e-14  # slope of the objective along a direction that is rounding: it then falls without end


class Point(NamedTuple):
    """A positive definite Ω, its inverse, and what is known about it; the objective is that of the scaled problem."""

    precision: Array
    covariance: Array
    log_determinant: float
    gap: float
    objective: float


def alternate(
    S: Array,
    L: Array,
    best: Point,
    certify: Callable[[Array], Point | None],
    target: float,
    max_iter: int,
    patience: float = np.inf,
) -> tuple[Point, int, bool]:
    """Over-relaxed ADMM with an adaptive step; the best point met, the iterations made, and whether they are stuck.

    Parameters
    ----------
    S, L : ndarrays of shape (p, p)
        The moment, of unit diagonal, and the penalties, infinite on forbidden edges and zero on the diagonal.
    best : Point
        The start.
    certify : callable
        The point of an Ω; None where it is not positive definite.
    target : float
        The gap to reach.
    max_iter : int
        Most iterations.
    patience : float
        Iterations in which the gap must fall by a tenth once there is one.
    """
    Z, U = best.precision, np.clip(best.covariance - S, -L, L)
    rho, smallest, last_fall = 1.0, np.inf, 0
    for iteration in range(1, max_iter + 1):
        values, vectors = eigh(rho * Z - U - S, check_finite=False, driver="evd")
        root = np.sqrt(values * values + 4.0 * rho)
        total = root + np.abs(values)
        X = (vectors * np.where(values > 0, total / (2.0 * rho), 2.0 / total)) @ vectors.T
        T = rho * (0.5 * _RELAXATION * (X + X.T) + (1.0 - _RELAXATION) * Z) + U
        U = np.clip(T, -L, L)
        np.fill_diagonal(U, 0.0)
        old, Z = Z, (T - U) / rho
        primal, dual = float(np.linalg.norm(X - Z)), rho * float(np.linalg.norm(Z - old))
        if iteration == max_iter or primal * dual <= target or iteration % _LOOK == 0:
            point = certify(Z)
            if point is not None and point.gap < best.gap:
                best = point
            if best.gap <= target:
                return best, iteration, False
            if point is not None and point.gap < _FALL * smallest:
                smallest, last_fall = point.gap, iteration
            if best.gap < np.inf and iteration - last_fall >= patience:
                return best, iteration, True
            v = vectors[:, -1]
            if best.gap == np.inf and v @ S @ v + np.abs(v) @ L @ np.abs(v) < _FLAT:
                return best, iteration, False
        if primal > _UNBALANCED * dual:
            rho *= 2.0
        elif dual > _UNBALANCED * primal:
            rho /= 2.0
    return best, max_iter, False
