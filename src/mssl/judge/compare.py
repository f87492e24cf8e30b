"""Comparison of methods by cross-validation: fits to each training part, scores on its held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import _safe_indexing

from mssl._progress import Progress
from mssl._typing import Array, ArrayLike, Index, Mask
from mssl._validation import refused
from mssl.data.encoding import read_features
from mssl.data.folds import CV, Folds
from mssl.data.inputs import read_offset, take_columns
from mssl.data.layouts import TaskData, read_tasks
from mssl.exceptions import DataError
from mssl.files.checkpoint import Checkpoint, fingerprint
from mssl.judge.parallel import Workers
from mssl.kernels.threads import single_threaded
from mssl.losses import Loss, resolve_loss
from mssl.metrics import area_under_curve, base_log_loss, task_means


def _taken(method: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given arguments that a method accepts."""
    parameters = signature(method).parameters
    open_ended = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    known = {*parameters, *(("tasks", "offset") if open_ended else ())}
    return {name: values for name, values in given.items() if values is not None and name in known}


def rows_of(given: Mapping[str, Any], rows: Index) -> dict[str, Any]:
    """Return some rows of the user's X, y and other arguments; an argument of None stays None."""
    return {name: values if values is None else _safe_indexing(values, rows) for name, values in given.items()}


def _predict_part(
    model: BaseEstimator, data: TaskData, given: dict[str, Any], labels: bool, train: Mask, test: Mask
) -> list[float]:
    """Fit an estimator to the training rows, and return the predicted means of the test rows.

    ``given`` holds the user's X, y, tasks and other arguments with one entry per row.
    """
    rows, held = (np.unique(data.source_rows[part]) for part in (train, test))
    of_rows = dict(given)
    # Outside the long layout tasks are the names of the columns of y, which all parts have in common.
    names = {} if data.layout == "long" else {"tasks": of_rows.pop("tasks")}
    known, new = rows_of(of_rows, rows) | names, rows_of(of_rows, held) | names
    X, y = known.pop("X"), known.pop("y")
    model = clone(model).fit(X, y, **_taken(model.fit, known))
    predict = model.predict_proba if labels else model.predict
    means = np.asarray(predict(new["X"], **_taken(predict, {name: new[name] for name in ("tasks", "offset")})))
    means = means[..., 1] if labels else means
    place = np.searchsorted(held, data.source_rows[test])
    flat: list[float] = (means[place] if means.ndim == 1 else means[place, data.task_of_row[test]]).tolist()
    return flat


@single_threaded
def compare_methods(
    estimators: Mapping[str, BaseEstimator],
    X: Any,
    y: ArrayLike,
    tasks: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    order: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    cv: CV = None,
    n_jobs: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    verbose: int = 0,
) -> dict[str, Any]:
    """Compare estimators by cross-validation on the same folds; differences are paired by test part.

    Parameters
    ----------
    estimators : dict of str → estimator
        The estimators. Differences are relative to the first one. Each estimator chooses its parameters within the
        training parts.
    X, y, tasks, sample_weight, groups, order, offset
        Data in any layout, as for :meth:`mssl.MSSLRegressorCV.fit`; `groups` and `order` determine the folds.
    cv : int, splitter or iterable of (train, test), default=5
        The folds.
    n_jobs : int, optional
        Number of workers, as for joblib.
    checkpoint : path, optional
        File that records finished fits.
    verbose : int, default=0
        1 shows progress bars on a terminal.

    Returns
    -------
    dict
        ``methods`` holds mean and standard error of each method's measures, ``differences`` the reduction of the first
        method's deviance by each other method, and ``tasks`` deviance and gain of each task. The standard errors
        account for the rows that training parts share (:func:`standard_error`).

    Examples
    --------
    >>> from mssl import MSSLRegressor, compare_methods, presets
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(random_state=0)
    >>> rivals = {"alone": presets.ols(), "together": MSSLRegressor(0.1)}
    >>> found = compare_methods(rivals, data.X, data.y, data.tasks, cv=3)
    >>> found["differences"]["together"]["share"] > 0
    True
    """
    if not isinstance(estimators, Mapping) or not estimators:
        allowed = "give a dict of name → estimator; differences are relative to the first"
        raise refused("estimators", estimators, allowed)
    first = next(iter(estimators.values()))
    labels = is_classifier(first)
    X, groups, order, _ = take_columns(X, groups, order)
    column = getattr(first, "task_column", getattr(getattr(first, "estimator", None), "task_column", None))
    features = read_features(X, column, tasks, missing="indicator")
    data = read_tasks(features, y, sample_weight=sample_weight, y_numeric=not labels).with_occasions(groups, order)
    family = "bernoulli" if labels else "gaussian"
    loss = first._template()._loss() if hasattr(first, "_template") else resolve_loss(family)
    offset = None if offset is None else read_offset(offset, np.shape(y), loss.identity)
    beside = {"y": y, "sample_weight": sample_weight, "groups": groups, "order": order, "offset": offset}
    rows = X if hasattr(X, "shape") else np.asarray(X)
    arrays = {name: None if values is None else np.asarray(values) for name, values in beside.items()}
    given = {"X": rows, "tasks": tasks, **arrays}
    folds = Folds.from_cv(data, cv, rows)
    folds.check(data, {label: label for label in np.unique(data.y).tolist()} if labels else {})
    _check_inner_folds(estimators, data, folds)
    pieces = [
        (f"{name}, part {k + 1}", (model, data, given, labels, *split))
        for k, split in enumerate(folds)
        for name, model in estimators.items()
    ]
    identity = "" if checkpoint is None else fingerprint(estimators, data, given, folds)
    with Progress(verbose, "comparison", 1) as progress:
        found = Workers(n_jobs, Checkpoint(checkpoint, identity), progress).run(_predict_part, "fits", pieces)
    return _judged(found, list(estimators), data, folds, loss)


def _check_inner_folds(estimators: Mapping[str, BaseEstimator], data: TaskData, folds: Folds) -> None:
    """Raise if a training part is too small for the estimators that split it again to choose their parameters."""
    ours = {name: model for name, model in estimators.items() if hasattr(model, "_template")}
    splitting = [name for name, model in ours.items() if "cv" in model.get_params(deep=False)]
    if not splitting or data.layout != "long":
        return
    fewest = np.min([data.task_sums(train.astype(float)) for train in folds.train], axis=0)
    k = int(np.argmin(fewest))
    if fewest[k] < 2:
        raise DataError(
            f"Task {str(data.tasks[k])!r} has {data.n_rows[k]} rows, of which {fewest[k]:.0f} is left to learn from in "
            f"one of the {len(folds)} parts; {splitting[0]} chooses its parameters by cross-validation within it and "
            "needs 2. Give the task more rows (3 with 3 parts or more), or leave it out."
        )


def _judged(
    found: Mapping[str, Sequence[float]], names: Sequence[str], data: TaskData, folds: Folds, loss: Loss
) -> dict[str, Any]:
    """Return the result of :func:`compare_methods` from the predicted means of each test part."""
    y = (data.y == np.unique(data.y)[-1]).astype(float) if loss.labels else data.y.astype(float)
    weights, task, K = data.row_weights, data.task_of_row, data.n_tasks
    scores: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    lost, counts = np.zeros((len(names), len(folds), K)), np.zeros((len(folds), K))  # Sums over the rows of a part.
    for k, (train, test) in enumerate(folds):
        counts[k] = np.bincount(task[test], weights[test], K)
        base = task_means(y[train], task[train], weights[train], K)[task[test]]
        for m, name in enumerate(names):
            mean = np.asarray(found[f"{name}, part {k + 1}"])
            scores[name].append(measures(loss, y[test], mean, weights[test], base))
            deviance = loss.deviance(y[test], _inside(loss, mean))
            lost[m, k] = np.bincount(task[test], weights[test] * deviance, K)
    parts = lost.sum(axis=2) / counts.sum(axis=1)
    with np.errstate(invalid="ignore"):  # A task may have no rows in a part.
        of_task, of_all = lost / counts, lost.sum(axis=1) / counts.sum(axis=0)
    return {
        "folds": len(folds),
        "methods": {
            name: {
                measure: {"mean": float(np.mean(values)), "standard_error": standard_error(np.asarray(values))}
                for measure in rows[0]
                for values in [[row[measure] for row in rows]]
            }
            for name, rows in scores.items()
        },
        "differences": {name: paired_difference(parts[0], parts[m]) for m, name in enumerate(names) if m > 0},
        "tasks": [
            {
                "task": str(label),
                "deviance": dict(zip(names, of_all[:, k].tolist(), strict=True)),
                "gain": {name: _gain(of_task[0, :, k], of_task[m, :, k]) for m, name in enumerate(names) if m > 0},
            }
            for k, label in enumerate(data.tasks)
        ],
    }


def standard_error(values: Array) -> float:
    """Return the standard error of the mean of one value per test part.

    Training parts share rows, so that the values are correlated. If the variance of k values is s², that of their mean
    is estimated as s² (1/k + 1/(k − 1)) (Nadeau & Bengio 2003, doi:10.1023/A:1024068626366).
    """
    k = len(values)
    return float(values.std(ddof=1) * np.sqrt(1 / k + 1 / (k - 1))) if k > 1 else float("nan")


def paired_difference(first: Array, other: Array) -> dict[str, float]:
    """Return the mean reduction of the first method's deviance on the same parts, with its standard error."""
    error, parts = standard_error(first - other), max(len(first), 1)
    mean, scale = (float(values.sum()) / parts for values in (first - other, first))
    share = mean / scale if scale > 0 else 0.0
    share_error = error / scale if scale > 0 else 0.0 * error  # An error of NaN stays NaN.
    return {"deviance": mean, "standard_error": error, "share": share, "share_error": share_error}


def _gain(first: Array, other: Array) -> dict[str, float]:
    """Return the relative reduction of a task's deviance, over the parts with rows of the task."""
    there = np.isfinite(first)
    found = paired_difference(first[there], other[there])
    return {name: found[name] for name in ("share", "share_error")}


def _inside(loss: Loss, mean: Array) -> Array:
    """Bound probabilities away from 0 and 1, where one wrong prediction has an infinite deviance."""
    return np.clip(mean, 1e-12, 1 - 1e-12) if loss.labels else mean


def measures(loss: Loss, y: Array, mean: Array, weights: Array, base: Array) -> dict[str, float]:
    """Return the usual measures for a loss over all rows; R2 and D2 are relative to each task's mean.

    ``base`` holds the mean of each row's task in the training part (:func:`mssl.metrics.task_means`).
    """
    if loss.labels:
        return {
            "error": float(np.average((mean > 0.5) != (y == 1), weights=weights)),
            "AUC": area_under_curve(y, mean, weights),
            "log loss": base_log_loss(y, _inside(loss, mean), weights),
        }
    rmse = float(np.sqrt(np.average((y - mean) ** 2, weights=weights)))
    lost, alone = (float(weights @ loss.deviance(y, of)) for of in (mean, base))
    return {"RMSE": rmse, "R2" if loss.quadratic else "D2": 1 - lost / alone if alone > 0 else float("nan")}
