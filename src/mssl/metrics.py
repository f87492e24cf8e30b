"""Scores of predictions, task by task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mssl._typing import Array, ArrayLike, Index, Labels
from mssl.exceptions import DataError, LayoutError
from mssl.kernels.threads import single_threaded
from mssl.losses import Loss

NEGLIGIBLE_GAIN = 0.0005  # below it a gain rounds to nothing in percent, and is told as none


def deviance_score(loss: Loss, y: Any, prediction: Array, sample_weight: Any = None) -> float:
    """Share of deviance explained, against the weighted mean; the mean over columns for (n, K) targets.

    Parameters
    ----------
    loss : Loss
        Whose unit deviance counts.
    y : array of shape (N,) or (n, K)
        Targets; NaN in (n, K) are left out.
    prediction : ndarray of the same shape
        Predicted means.
    sample_weight : array of the shape of y or of its rows, optional
        Weights.

    Returns
    -------
    float
        1 is perfect, 0 is no better than the mean. A column whose targets are all equal counts 1 if predicted
        exactly and 0 otherwise; a column without targets does not count.
    """
    target, weights = scored_targets(np.asarray(y, dtype=float), prediction, sample_weight)
    seen = ~np.isnan(target)
    if not seen.any():
        raise DataError("y holds no target at all; give at least one number to score against.")
    if not np.all(loss.in_range(target[seen])):
        raise DataError(f"y holds targets out of range for the {loss.name} loss; allowed are {loss.range}.")
    scores = []
    for k, found in enumerate(np.atleast_2d(seen.T)):
        if found.any():
            column, means, c = (np.atleast_2d(part.T)[k, found] for part in (target, prediction, weights))
            others = means, np.full_like(column, np.average(column, weights=c))
            lost, total = (float(np.sum(c * loss.deviance(column, other))) for other in others)
            scores.append(1.0 - lost / total if total else float(lost == 0))
    return float(np.mean(scores))


def scored_targets(target: Labels, prediction: Labels, sample_weight: Any) -> tuple[Labels, Array]:
    """Targets in the shape of the predictions, and a weight for each of them; an error where shapes do not agree."""
    if target.shape[:1] == prediction.shape[:1] and {*target.shape[1:], *prediction.shape[1:]} == {1}:
        target = target.reshape(prediction.shape)  # a column and a row of numbers are the same targets
    if target.shape != prediction.shape:
        raise LayoutError(
            f"y has shape {target.shape}, the predictions have {prediction.shape}; give one target a prediction."
        )
    weights = np.ones(target.shape) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if weights.ndim < target.ndim:
        weights = np.broadcast_to(weights[:, None], target.shape)
    return target, weights


@dataclass(frozen=True)
class HeldOut:
    """What folds say of rows that were not fitted on: predicted by the very mixture or average that the model is.

    Weights, calibration factors and settings for a fold come from the other folds, so that none was chosen by the rows
    that it is judged on.

    Attributes
    ----------
    what : str
        What the score is, in words.
    score : float
        The score.
    base_rate : float or None
        Of labels the log loss of each task's base rate alone (:func:`task_means` of the same training rows).
    auc : float or None
        Of labels the area under the ROC curve within folds, on average.
    explained : float or None
        Of numbers R² within tasks: one less the squared errors over those of :func:`task_means`.
    separate : float or None
        The score of Bayesian fits whose tasks have nothing in common, judged in the same way; the best of them.
    """

    what: str
    score: float
    base_rate: float | None = None
    auc: float | None = None
    explained: float | None = None
    separate: float | None = None


def mean_of_known(scores: ArrayLike) -> float | None:
    """Mean of the scores that are numbers; None where none is, as areas under the ROC curve of one class."""
    known = np.asarray(scores)[~np.isnan(scores)]
    return float(known.mean()) if len(known) else None


def task_means(y: Array, task: Index, weights: Array | None, n_tasks: int) -> Array:
    """Mean of each task, drawn towards that of all tasks as far as the spread within tasks asks for.

    Components of variance by the method of moments; the spread within tasks includes one row from anywhere, so that a
    task whose labels are all alike has no rate of 0 or 1. A task without rows has the mean of all.

    Parameters
    ----------
    y : ndarray of shape (N,)
        Targets; of labels 0 and 1.
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
    """Mean log loss of labels 0 and 1 that are predicted by rates."""
    hit = np.where(y > 0.5, rate, 1 - rate)
    return -float(weights @ np.log(np.maximum(hit, 1e-15)) / weights.sum())


def share_explained(y: Array, predicted: Array, base: Array, weights: Array) -> float:
    """R² within tasks: one less the squared errors over those of a baseline; NaN where that has none.

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
    """Area under the ROC curve: how often a row of the second class scores above one of the first, ties half.

    Parameters
    ----------
    y : ndarray of shape (N,)
        0 and 1.
    score : ndarray of shape (N,)
        Probabilities or linear predictors.
    sample_weight : ndarray of shape (N,), optional
        Weights.

    Returns
    -------
    float
        Between 0 and 1, 0.5 is chance; NaN where a class has no row.

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
    :math:`y_k - (\Omega e)_k/\Omega_{kk}` and the variance :math:`1/\Omega_{kk}`. Its scale suits
    ``MSSLRegressorCV(MSSLRegressor(relation="residual"), scoring="conditional")``, which then chooses the graph by what
    it is good for.

    Parameters
    ----------
    model : estimator
        With ``residual_covariance_``.
    X, y, tasks, sample_weight
        Data in the shared or aligned layout, as for ``fit``; missing targets and weights play no part.

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
