"""Per-task errors on rows that the caller gives, and gains over single-task fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mssl.data.encoding import Features
from mssl.data.inputs import is_missing, listing, locate_tasks, task_ids, unseen_tasks
from mssl.exceptions import DataError
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.metrics import area_under_curve, base_log_loss, deviance_score
from mssl.plots.fits import gain_rows

FloatArray = NDArray[np.float64]


class LabelScores(NamedTuple):
    """How good probabilities of labels are: log loss, that of each task's base rate alone, and area under the curve.

    Base rates are those of the rows that were fitted; models of earlier versions do not know them: NaN.
    """

    log_loss: float
    base_log_loss: float
    auc: float


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
    strangers : list
        Tasks of further rows that the model was not fitted to.
    n_strange : int
        Number of these rows.
    strange_error, strange_explained : float
        Their error and share of deviance explained, predicted as new tasks; NaN where the model has no such answer.
    labels : LabelScores or None
        Of labels: how good the probabilities are, over all rows of known tasks.
    """

    rows: NDArray[np.intp]
    error: FloatArray
    explained: FloatArray
    error_name: str
    explained_name: str
    inside: FloatArray | None = None
    held_out: bool | None = None
    strangers: list[Any] = field(default_factory=list)
    n_strange: int = 0
    strange_error: float = np.nan
    strange_explained: float = np.nan
    labels: LabelScores | None = None


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
    known = {"tasks": tasks} | ({"unseen": "mean"} if hasattr(model, "unseen_coef_") else {})
    mean = np.asarray(model.predict_proba(X, **known)[..., 1] if binary else model.predict(X, **known))
    if labels.shape != mean.shape and labels.size == mean.size:
        labels = labels.reshape(mean.shape)
    if labels.shape != mean.shape:
        raise DataError(f"y has shape {labels.shape}, the predictions have {mean.shape}; give one target a prediction.")
    target = _code(labels, model.classes_) if binary else np.asarray(labels, dtype=float)
    place, strangers = _tasks_of(model, X, tasks, mean)
    seen = ~np.isnan(target)
    K = len(model.tasks_)

    def judge(rows: NDArray[np.bool_]) -> tuple[float, float]:
        if not rows.any():
            return np.nan, np.nan
        off = (mean[rows] > 0.5) != target[rows] if binary else (mean[rows] - target[rows]) ** 2
        error = float(off.mean() if binary else np.sqrt(off.mean()))
        return error, float(deviance_score(model.loss_, target[rows], mean[rows]))

    error, explained = np.array([judge(seen & (place == k)) for k in range(K)]).reshape(K, 2).T
    inside = None
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(X, COVERAGE, **known)
        hit = (ends[..., 0] <= target) & (target <= ends[..., 1])
        inside = np.array([hit[own].mean() if own.any() else np.nan for own in (seen & (place == k) for k in range(K))])
    own = seen & (place >= 0)
    strange = judge(seen & (place < 0))
    counts = np.bincount(place[own], minlength=K)
    name = "R²" if getattr(model.loss_, "name", "") == "gaussian" else "D²"
    names = ("error rate" if binary else "RMSE", name)
    names = names if held_out is not False else (f"training {names[0]}", f"training {names[1]}")
    rates = getattr(model, "base_rates_", np.full(K, np.nan))
    probabilities = _label_scores(target[own], mean[own], rates[place[own]]) if binary and own.any() else None
    n_strange = int((seen & (place < 0)).sum())
    return Scores(counts, error, explained, *names, inside, held_out, strangers, n_strange, *strange, probabilities)


def _label_scores(target: FloatArray, mean: FloatArray, base: FloatArray) -> LabelScores:
    own, alone = (base_log_loss(target, p, np.ones(len(target))) for p in (mean, base))
    return LabelScores(own, alone, area_under_curve(target, mean))


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


def _tasks_of(model: Any, X: Any, tasks: Any, mean: FloatArray) -> tuple[NDArray[np.intp], list[Any]]:
    """The task of every prediction, in the shape of the predictions, −1 for new tasks; and the names of these."""
    K = len(model.tasks_)
    if mean.ndim == 2:
        return np.broadcast_to(np.arange(K), mean.shape).astype(np.intp), []
    column = getattr(model, "task_column", None)
    labels = getattr(X, "tasks", None) if tasks is None else tasks
    if labels is None and column is not None and not isinstance(X, Features):
        labels = task_ids(X, column)
    if labels is None:
        return np.zeros(len(mean), dtype=np.intp), []
    index = locate_tasks(labels, model.tasks_)
    return index.astype(np.intp), unseen_tasks(labels, index)


def read_gains(transfer: Any, tasks: Sequence[Any]) -> Gains:
    """Bring a report of transfer into the order of the tasks."""
    place = {name: k for k, name in enumerate(tasks)}
    columns: dict[str, FloatArray] = {}
    words: dict[int, str] = {}
    for row in gain_rows(transfer, tasks):
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
