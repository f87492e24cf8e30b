"""Per-task errors on rows that the caller gives, and gains over single-task fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.data.encoding import read_features
from mssl.data.inputs import is_missing, listing, locate_tasks, refuse_unseen
from mssl.exceptions import DataError
from mssl.graph.inference import COVERAGE
from mssl.graph.task_graph import short_name
from mssl.metrics import deviance_score

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """How well each task is predicted: NaN where it has no row.

    Attributes
    ----------
    rows : ndarray of shape (K,)
        Rows of each task.
    error, explained : ndarrays of shape (K,)
        Error, and share of deviance explained.
    error_name, explained_name : str
        What the two are called; errors of rows that were fitted say so.
    inside : ndarray of shape (K,) or None
        Share of rows inside the 90 % prediction interval, of models that have intervals.
    held_out : bool or None
        Whether the model was fitted without these rows; None where that is not known.
    """

    rows: NDArray[np.intp]
    error: FloatArray
    explained: FloatArray
    error_name: str
    explained_name: str
    inside: FloatArray | None = None
    held_out: bool | None = None


@dataclass(frozen=True, eq=False)
class Gains:
    """What each task gains over its single-task fit.

    Attributes
    ----------
    gain : ndarray of shape (K,)
        In percent; NaN where it was not measured.
    verdict : list of K str
        "gain", "loss" or "even"; "" where it was not measured.
    others : dict of str to ndarray of shape (K,)
        What else was reported.
    """

    gain: FloatArray
    verdict: list[str]
    others: dict[str, FloatArray]

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Which tasks lose."""
        return np.array([word == "loss" for word in self.verdict], dtype=bool)


def measure(model: Any, data: Any, *, held_out: bool | None = None) -> Scores:
    """Predict the rows of `data`, on which the model was fitted or not, and score them task by task."""
    if not isinstance(data, Sequence) or not 2 <= len(data) <= 3:
        raise DataError("data has to be (X, y) or (X, y, tasks), the rows to measure the model on.")
    X, y, tasks = (*data, None)[:3]
    while hasattr(model, "steps"):  # a pipeline: X as its last step sees it
        for _, step in model.steps[:-1]:
            X = X if step is None or isinstance(step, str) else step.transform(X)
        model = model.steps[-1][1]
    labels = np.asarray(y)
    binary = hasattr(model, "classes_") and hasattr(model, "predict_proba")
    mean = np.asarray(model.predict_proba(X, tasks=tasks)[..., 1] if binary else model.predict(X, tasks=tasks))
    if labels.shape != mean.shape and labels.size == mean.size:
        labels = labels.reshape(mean.shape)
    if labels.shape != mean.shape:
        raise DataError(f"y has shape {labels.shape}, the predictions have {mean.shape}; give one target a prediction.")
    target = _code(labels, model.classes_) if binary else np.asarray(labels, dtype=float)
    place = _tasks_of(model, X, tasks, mean)
    seen = ~np.isnan(target)
    K = len(model.tasks_)
    error, explained = np.full(K, np.nan), np.full(K, np.nan)
    for k in range(K):
        rows = seen & (place == k)
        if rows.any():
            off = (mean[rows] > 0.5) != target[rows] if binary else (mean[rows] - target[rows]) ** 2
            error[k] = off.mean() if binary else np.sqrt(off.mean())
            explained[k] = deviance_score(model.loss_, target[rows], mean[rows])
    inside = None
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(X, COVERAGE, tasks=tasks)
        hit = (ends[..., 0] <= target) & (target <= ends[..., 1])
        inside = np.array([hit[own].mean() if own.any() else np.nan for own in (seen & (place == k) for k in range(K))])
    counts = np.bincount(place[seen], minlength=K)
    name = "R²" if getattr(model.loss_, "name", "") == "gaussian" else "D²"
    names = ("error rate" if binary else "RMSE", name)
    names = names if held_out is not False else (f"training {names[0]}", f"training {names[1]}")
    return Scores(counts, error, explained, *names, inside, held_out)


def _code(labels: NDArray[Any], classes: NDArray[Any]) -> FloatArray:
    """Labels as 0 and 1, missing ones as NaN."""
    missing = is_missing(labels) if labels.ndim == 2 else np.zeros(labels.shape, dtype=bool)
    first, second = labels == classes[0], labels == classes[1]
    strange = ~(missing | first | second)
    if strange.any():
        raise DataError(
            f"y holds the label {short_name(labels[strange][0])!r}; the model knows {listing(classes)}. "
            "Use the labels of the fit."
        )
    return np.where(missing, np.nan, second.astype(float))


def _tasks_of(model: Any, X: Any, tasks: Any, mean: FloatArray) -> NDArray[np.intp]:
    """The task of every prediction, in the shape of the predictions."""
    K = len(model.tasks_)
    if mean.ndim == 2:
        return np.broadcast_to(np.arange(K), mean.shape).astype(np.intp)
    labels = read_features(X, getattr(model, "task_column", None), tasks, missing="indicator").tasks
    if labels is None:
        return np.zeros(len(mean), dtype=np.intp)
    index = locate_tasks(labels, model.tasks_)
    refuse_unseen(labels, index, model.tasks_)
    return index.astype(np.intp)


def read_gains(transfer: Any, tasks: Sequence[Any]) -> Gains:
    """Bring a report of transfer into the order of the tasks."""
    place = {name: k for k, name in enumerate(tasks)}
    columns: dict[str, FloatArray] = {}
    words: dict[int, str] = {}
    for row in _rows(transfer, tasks):
        if row.get("task") not in place:
            raise DataError(
                f"transfer names the task {short_name(row.get('task'))!r}; the model does not know it. Give its tasks."
            )
        k = place[row["task"]]
        words[k] = str(row.get("verdict", ""))
        for name, value in row.items():
            if isinstance(value, int | float | np.integer | np.floating) and name != "task":
                columns.setdefault(name, np.full(len(tasks), np.nan))[k] = value
    if "gain" not in columns:
        raise DataError(
            "transfer holds no gain; give a mapping of task to gain in percent, one number for each task, or rows with "
            "task and gain."
        )
    gain = columns.pop("gain")
    verdict = [_verdict(value, words.get(k, "")) for k, value in enumerate(gain.tolist())]
    return Gains(gain, verdict, columns)


def _verdict(gain: float, word: str) -> str:
    """The verdict that was given, or the sign of the gain."""
    if np.isnan(gain):
        return ""
    return word if word in ("gain", "loss", "even") else "gain" if gain > 0 else "loss" if gain < 0 else "even"


def _rows(transfer: Any, tasks: Sequence[Any]) -> list[dict[str, Any]]:
    if all(hasattr(transfer, name) for name in ("tasks", "together", "alone", "gain", "verdict")):  # a TransferReport
        names = ("task", "deviance", "deviance alone", "gain", "verdict")
        columns = (transfer.tasks.tolist(), transfer.together, transfer.alone, 100 * transfer.gain, transfer.verdict)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(transfer, Mapping):
        return [{"task": task, "gain": gain} for task, gain in transfer.items()]
    if hasattr(transfer, "to_dict"):
        return list(transfer.to_dict("records"))
    if not isinstance(transfer, Iterable):
        raise DataError(f"transfer is of type {type(transfer).__name__}; give a mapping of task to gain, or rows.")
    items = list(transfer)
    if items and all(hasattr(item, "task") and hasattr(item, "gain") for item in items):
        return [_fields(item) for item in items]
    if all(isinstance(item, Mapping) for item in items):
        return [dict(item) for item in items]
    if len(items) != len(tasks):
        raise DataError(f"transfer has {len(items)} numbers for {len(tasks)} tasks; give one each.")
    return [{"task": task, "gain": gain} for task, gain in zip(tasks, items, strict=True)]


def _fields(item: Any) -> dict[str, Any]:
    """The fields of a named tuple, a data class or a plain object."""
    names = getattr(item, "_fields", None) or getattr(type(item), "__dataclass_fields__", None) or vars(item)
    return {name: getattr(item, name) for name in names}
