"""Per-task errors on rows that the caller gives, and gains over single-task fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from mssl._typing import Array, Index, Labels
from mssl.data.encoding import Features
from mssl.data.inputs import is_missing, listing, locate_tasks, task_ids, unseen_tasks
from mssl.estimators.fitted import Fitted
from mssl.exceptions import DataError
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.metrics import area_under_curve, base_log_loss, deviance_score, scored_targets
from mssl.plots.fits import gain_rows


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

    rows: Index
    error: Array
    explained: Array
    error_name: str
    explained_name: str
    inside: Array | None = None
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
    verdict : ndarray of K str
        "gain", "loss" or "even"; "" where it was not measured.
    others : dict of str to ndarray of shape (K,)
        What else was reported.
    """

    gain: Array
    verdict: Labels
    others: dict[str, Array]


def measure(model: Any, data: Any, *, held_out: bool | None = None) -> Scores:
    """Predict the rows of `data`, on which the model was fitted or not, and score them task by task."""
    if not isinstance(data, Sequence) or not 2 <= len(data) <= 3:
        raise DataError("data has to be (X, y) or (X, y, tasks), the rows to measure the model on.")
    X, y, tasks = (*data, None)[:3]
    while hasattr(model, "steps"):  # a pipeline: X as its last step sees it
        X, model = model[:-1].transform(X) if len(model.steps) > 1 else X, model[-1]
    fitted: Fitted = model.fitted_
    known = {"tasks": tasks} | ({} if fitted.unseen_coef is None else {"unseen": "mean"})
    binary = fitted.input.classes is not None
    mean = np.asarray(model.predict_proba(X, **known)[..., 1] if binary else model.predict(X, **known))
    target = scored_targets(np.asarray(y), mean, None)[0]
    target = _code(target, model.classes_) if binary else np.asarray(target, dtype=float)
    place, strangers = _tasks_of(model, X, tasks, mean)
    place = np.where(np.isnan(target), -2, place)
    hit = None
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(X, COVERAGE, **known)
        hit = (ends[..., 0] <= target) & (target <= ends[..., 1])

    def judged(k: int) -> tuple[float, float, float, float]:
        """Rows of a task, error, share of deviance explained, and share of rows in their intervals."""
        rows = place == k
        if not rows.any():
            return 0, np.nan, np.nan, np.nan
        off = (mean[rows] > 0.5) != target[rows] if binary else (mean[rows] - target[rows]) ** 2
        error = off.mean() if binary else np.sqrt(off.mean())
        explained = deviance_score(fitted.loss, target[rows], mean[rows])
        return rows.sum(), error, explained, np.nan if hit is None else hit[rows].mean()

    n_strange, *strange = judged(-1)
    K = len(model.tasks_)
    counts, error, explained, inside = np.array([judged(k) for k in range(K)]).T
    own = place >= 0
    labels = None
    if binary and own.any():
        rates = np.full(K, np.nan) if fitted.input.base_rates is None else fitted.input.base_rates
        loss, base = (base_log_loss(target[own], p, np.ones(own.sum())) for p in (mean[own], rates[place[own]]))
        labels = LabelScores(loss, base, area_under_curve(target[own], mean[own]))
    training = "" if held_out is not False else "training "
    return Scores(
        counts.astype(np.int64),
        error,
        explained,
        f"{training}{'error rate' if binary else 'RMSE'}",
        f"{training}{'R²' if fitted.loss.quadratic else 'D²'}",
        None if hit is None else inside,
        held_out,
        strangers,
        int(n_strange),
        strange[0],
        strange[1],
        labels,
    )


def _code(labels: Labels, classes: Labels) -> Array:
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


def _tasks_of(model: Any, X: Any, tasks: Any, mean: Array) -> tuple[Index, list[Any]]:
    """The task of every prediction, in the shape of the predictions, −1 for new tasks; and the names of these."""
    if mean.ndim == 2:
        return np.broadcast_to(np.arange(mean.shape[1]), mean.shape), []
    labels = getattr(X, "tasks", None) if tasks is None else tasks
    if labels is None and model.task_column is not None and not isinstance(X, Features):
        labels = task_ids(X, model.task_column)
    if labels is None:
        return np.zeros(len(mean), dtype=np.int64), []
    index = locate_tasks(labels, model.tasks_)
    return index, unseen_tasks(labels, index)


def read_gains(transfer: Any, tasks: Sequence[Any]) -> Gains:
    """Bring a report of transfer into the order of the tasks."""
    given = {row.get("task"): row for row in gain_rows(transfer, tasks)}
    strange = [name for name in given if name not in set(tasks)]
    if strange:
        raise DataError(
            f"transfer names the task {short_name(strange[0])!r}; the model does not know it. Give its tasks."
        )
    rows = [given.get(task, {}) for task in tasks]
    columns: dict[str, Array] = {}
    for k, row in enumerate(rows):
        for name, value in row.items():
            if isinstance(value, Real) and name != "task":
                columns.setdefault(name, np.full(len(rows), np.nan))[k] = value
    if "gain" not in columns:
        raise DataError(
            "transfer holds no gain; give a mapping of task to gain in percent, one number for each task, or rows with "
            "task and gain."
        )
    gain = columns.pop("gain")
    signs = np.select([gain > 0, gain < 0, gain == 0], ["gain", "loss", "even"], "")
    words = np.array([str(row.get("verdict")) for row in rows])
    return Gains(gain, np.where((signs != "") & np.isin(words, ["gain", "loss", "even"]), words, signs), columns)
