r"""Predictive distributions of a fit, and their calibration.

Hyperparameters are plugged in, and rows of one occasion or a separable task may mislead them: forecasts are then too
narrow. Folds mend the width. Standard deviations are multiplied by the one factor that gives the held-out targets the
highest density; for labels the predictor's mean and standard deviation have a factor each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from mssl._typing import Array, Index
from mssl.evidence.fit import EvidenceFit
from mssl.losses import Calibration, Forecast

_FACTORS = (0.5, 3.0)  # least and largest factor of a calibration


def calibrate(forecast: Forecast, y: Array, weights: Array) -> Calibration:
    """The factors that give held-out targets the highest density, drawn towards one by one row's worth.

    Parameters
    ----------
    forecast : Forecast
        Of held-out rows.
    y : ndarray of shape (N,)
        Their targets.
    weights : ndarray of shape (N,)
        Their frequency weights.
    """
    if not forecast.factors:
        return Calibration()
    low, high = np.log(_FACTORS)

    def made(q: Array) -> Calibration:
        return Calibration(**dict(zip(forecast.factors, np.exp(np.clip(q, low, high)).tolist(), strict=True)))

    def lost(q: Array) -> float:
        densities = np.maximum(forecast.calibrated(made(q)).log_density(y), -1e3)
        return -float(weights @ densities) + 0.5 * float(q @ q)

    start = np.zeros(len(forecast.factors))
    simplex = np.vstack([start, *(start + 0.3 * row for row in np.eye(len(start)))])
    found = minimize(
        lost, start, method="Nelder-Mead", options={"initial_simplex": simplex, "xatol": 1e-3, "fatol": 1e-4}
    )
    return made(found.x) if found.fun < lost(start) else Calibration()


def forecast(fit: EvidenceFit, X: Any, task: Index) -> Forecast:
    """Predictive distributions of rows of tasks; −1 is a new task."""
    n = X.shape[0]
    mean, variance, noise, degrees = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in np.unique(task).tolist():
        rows = np.flatnonzero(task == k)
        which = None if k < 0 else k
        mean[rows], variance[rows] = fit.predictor(X[rows], which)
        noise[rows], degrees[rows] = fit.noise(which), fit.degrees(which)
    return fit.loss.forecast(mean, variance, noise, degrees)
