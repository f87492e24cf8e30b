"""Scores of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mssl._typing import Array, ArrayLike, Index, Labels
from mssl.exceptions import DataError, LayoutError
from mssl.kernels.threads import single_threaded
from mssl.losses import Loss

NEGLIGIBLE_GAIN = 0.0005  # Reports call smaller gains none, because they round to 0.0 %.


def deviance_score(loss: Loss, y: Any, prediction: Array, sample_weight: Any = None) -> float:
    """Share of explained deviance, compared with the weighted mean; for (n, K) targets the mean over columns.

    Parameters
    ----------
    loss : Loss
        The loss whose unit deviance is used.
    y : array of shape (N,) or (n, K)
        Targets; NaN in (n, K) targets are left out.
    prediction : ndarray of the same shape
        Predicted means.
    sample_weight : array of the shape of y or of its rows, optional
        Weights.

    Returns
    -------
    float
        1 is perfect, 0 is no better than the mean. A column whose targets are all equal has the score 1 if it is
        predicted exactly and 0 otherwise. A column without targets does not count.
    """
    target, weights = scored_targets(np.asarray(y, dtype=float), prediction, sample_weight)
    seen = ~np.isnan(target)
    if not seen.any():
        raise DataError("y holds no target at all; give at least one number to score against.")
    if not np.all(loss.in_range(target[seen])):
        raise DataError(f"y holds targets out of range for the {loss.name} loss; allowed are {loss.range}.")
    scores = []
    for k, known in enumerate(np.atleast_2d(seen.T)):
        if known.any():
            column, means, c = (np.atleast_2d(part.T)[k, known] for part in (target, prediction, weights))
            others = means, np.full_like(column, np.average(column, weights=c))
            lost, total = (float(np.sum(c * loss.deviance(column, other))) for other in others)
            scores.append(1.0 - lost / total if total else float(lost == 0))
    return float(np.mean(scores))


def scored_targets(target: Labels, prediction: Labels, sample_weight: Any) -> tuple[Labels, Array]:
    """Targets in the shape of the predictions and one weight per target; shapes that do not agree raise."""
    if target.shape[:1] == prediction.shape[:1] and {*target.shape[1:], *prediction.shape[1:]} == {1}:
        target = target.reshape(prediction.shape)  # (N,) and (N, 1) hold the same targets.
    if target.shape != prediction.shape:
        raise LayoutError(
            f"y has shape {target.shape}, the predictions have {prediction.shape}; give one target per prediction."
        )
    weights = np.ones(target.shape) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if weights.ndim < target.ndim:
        weights = np.broadcast_to(weights[:, None], target.shape)
    return target, weights


@dataclass(frozen=True)
class HeldOut:
    """Scores on held-out rows of folds, predicted by the same mixture or average as the model's predictions.

    Weights, calibration factors and settings for a fold come from the other folds. So no row takes part in a choice by
    which it is predicted.

    Attributes
    ----------
    what : str
        Name of the score, in words.
    score : float
        The score.
    base_rate : float or None
        For labels: the log loss of each task's base rate (:func:`task_means` of the same training rows).
    auc : float or None
        For labels: the mean over folds of the area under the ROC curve.
    explained : float or None
        For numbers: R² within tasks, one minus the squared errors over those of :func:`task_means`.
    separate : float or None
        The best score, judged in the same way, of Bayesian fits whose tasks share nothing.
    """

    what: str
    score: float
    base_rate: float | None = None
    auc: float | None = None
    explained: float | None = None
    separate: float | None = None


def mean_of_known(scores: ArrayLike) -> float | None:
    """Mean of the scores without NaN; None if all are NaN, as areas under ROC curves with a single class."""
    known = np.asarray(scores)[~np.isnan(scores)]
    return float(known.mean()) if len(known) else None


def task_means(y: Array, task: Index, weights: Array | None, n_tasks: int) -> Array:
    """Mean of each task, shrunk towards the mean of all tasks.

    The shrinkage depends on the variances within and between tasks, which are estimated by the method of moments. The
    variance within tasks includes one more row, taken from all rows. A task whose labels are all equal then has no rate
    of 0 or 1. A task without rows gets the mean of all tasks.

    Parameters
    ----------
    y : ndarray of shape (N,)
        Targets; 0 and 1 for labels.
    task : ndarray of int of shape (N,)
        Task of each row.
    weights : ndarray of shape (N,) or None
        Frequency weights.
    n_tasks : int
        Number of tasks K.

    Returns
    -------
    ndarray of shape (K,)

    Examples
    --------
    >>> import numpy as np
    >>> task_means(np.array([0.0, 0.0, 0.0, 4.0, 4.0, 4.0]), np.array([0, 0, 0, 1, 1, 1]), None, 3).round(2)
    array([0.07, 3.93, 2.  ])
    """
    weights = np.ones(len(y)) if weights is None else weights
    rows, total = np.bincount(task, weights, n_tasks), weights.sum()
    means = np.bincount(task, weights * y, n_tasks) / np.where(rows > 0, rows, 1.0)
    whole = float(weights @ y / total)
    others = np.count_nonzero(rows) - 1
    noise = float(weights @ (y - means[task]) ** 2 + weights @ (y - whole) ** 2 / total) / max(total - others, 1.0)
    if noise == 0 or others == 0:
        return np.full(n_tasks, whole)
    excess = float(rows @ (means - whole) ** 2) - others * noise
    between = max(excess / (total - rows @ rows / total), 0.0)
    precision = rows / (rows * between + noise)
    centre = float(precision @ means / precision.sum())
    return centre + between * precision * (means - centre)


def base_log_loss(y: Array, rate: Array, weights: Array) -> float:
    """Mean log loss of labels 0 and 1 that rates predict."""
    hit = np.where(y > 0.5, rate, 1 - rate)
    return -float(weights @ np.log(np.maximum(hit, 1e-15)) / weights.sum())


def share_explained(y: Array, predicted: Array, base: Array, weights: Array) -> float:
    """R² within tasks: one minus the squared errors over those of a baseline; NaN if the baseline has no errors.

    Parameters
    ----------
    y, predicted, base : ndarrays of shape (N,)
        Targets, predictions, and :func:`task_means` of the training rows.
    weights : ndarray of shape (N,)
        Frequency weights.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([0.0, 2.0, 10.0, 12.0])
    >>> share_explained(y, np.array([0.5, 1.5, 10.5, 11.5]), np.array([1.0, 1.0, 11.0, 11.0]), np.ones(4))
    0.75
    """
    spread = float(weights @ (y - base) ** 2)
    return 1 - float(weights @ (y - predicted) ** 2) / spread if spread > 0 else np.nan


def area_under_curve(y: Array, score: Array, sample_weight: Array | None = None) -> float:
    """Area under the ROC curve: how often a row of the second class scores above one of the first class.

    Ties count one half.

    Parameters
    ----------
    y : ndarray of shape (N,)
        Labels 0 and 1.
    score : ndarray of shape (N,)
        Probabilities or linear predictors.
    sample_weight : ndarray of shape (N,), optional
        Weights.

    Returns
    -------
    float
        A number between 0 and 1; chance gives 0.5. NaN if a class has no rows.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.metrics import area_under_curve
    >>> area_under_curve(np.array([0, 1, 0, 1]), np.array([0.1, 0.4, 0.4, 0.8]))
    0.875
    """
    weights = np.ones(len(y)) if sample_weight is None else sample_weight
    place = np.unique(score, return_inverse=True)[1].ravel()
    upper, lower = (np.bincount(place, weights * own) for own in (y, 1 - y))
    pairs = upper.sum() * lower.sum()
    return float(upper @ (np.cumsum(lower) - lower / 2) / pairs) if pairs > 0 else float("nan")


@single_threaded
def conditional_score(model: Any, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> float:
    r"""Mean log density of each target given the other targets of the same occasion, for residual models.

    With the precision Ω of the residuals e, the target of task k has the mean
    :math:`y_k - (\Omega e)_k/\Omega_{kk}` and the variance :math:`1/\Omega_{kk}`.
    ``MSSLRegressorCV(MSSLRegressor(relation="residual"), scoring="conditional")`` uses this score to choose the graph
    that best predicts tasks from each other.

    Parameters
    ----------
    model : estimator
        A fitted model with ``residual_covariance_``.
    X, y, tasks, sample_weight
        Data in the shared or aligned layout, as for ``fit``. Occasions with missing targets are left out, and weights
        are ignored.

    Returns
    -------
    float
        Larger is better.
    """
    residuals = np.asarray(y, dtype=float) - model.predict(X, tasks=tasks)
    whole = np.isfinite(residuals).all(axis=1)
    precision = np.linalg.inv(model.residual_covariance_)
    diagonal = np.diagonal(precision)
    errors = residuals[whole] @ precision / diagonal
    return float(np.mean(0.5 * np.log(diagonal / (2 * np.pi)) - 0.5 * diagonal * errors**2))
