"""The content of the page as plain data, computed from a fitted model and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from mssl._typing import Array, ArrayLike, Index, Labels, Mask
from mssl.data.encoding import Features
from mssl.data.inputs import locate_tasks, task_ids, unseen_tasks
from mssl.estimators.fitted import Fitted
from mssl.estimators.summary import last_step
from mssl.exceptions import DataError
from mssl.graph.geometry import community_colors, display, task_order, thin_edges
from mssl.graph.tables import Edge, Relation
from mssl.graph.task_graph import TaskGraph, short_name
from mssl.graph.tests import COVERAGE
from mssl.metrics import NEGLIGIBLE_GAIN, area_under_curve, base_log_loss, deviance_score, scored_targets
from mssl.model.task_matrix import entries_at, pair_matrix
from mssl.plots.fits import MOST_LINES, Stability, curves, gain_rows, most_relevant, read_stability
from mssl.report.page import MOST_EDGES, count
from mssl.transfer import gain_over_separate, lead_over_separate


class Content:
    """The content of a page: a fitted model, or the last step of a pipeline, and measurements of it.

    Attributes
    ----------
    model, method, title : fitted estimator, its class, title of the page
    fitted : Fitted
        The results of its fit.
    shown : Display
        The drawn graph with its coordinates and selection frequencies, if they are known, its groups, its certain edges
        and notes. It has no edges if the model has no graph.
    graph : TaskGraph
        The same graph.
    edges : dict of str to list
        The edges in the page, the strongest first. The key "3 7" stands for tasks 3 and 7; the values are the weight
        and the selection frequency, or None.
    hidden : set of str
        Edges that are hidden at first, because the drawing would be too crowded.
    n_tasks : int
    names, colors : lists of K str
        Names of the tasks for display, and the colours of their groups.
    order : ndarray of shape (K,)
        Tasks sorted by group, and by falling strength within each group.
    groups : list of ndarrays
        Tasks of each group with more than one task, the largest group first, in the same order.
    alone : int
        Number of tasks without a group.
    community : dict of int to int
        The number of the group, counted from 1, of each task that has one.
    coef : ndarray of shape (K, d)
    features : list
    scores, gains, stability : measurements of the caller, or None
    rounds : int
    ending : str
        A sentence on the end of the fit, or an empty string.
    cross_validated : str
        Sentences on the scores of cross-validation, or an empty string.
    noise : ndarray of shape (K,) or None
    measured : str
        Description of the rows that were given to the page.
    relevance : dict of str to float
        How much each column changes the predictions.
    effects : list of (PartialEffect, ndarray of shape (K, n))
        Effects of the most relevant columns, for the mean of the tasks and for each task.
    """

    def __init__(
        self,
        model: Any,
        *,
        data: Any = None,
        held_out: bool | None = None,
        transfer: Any = None,
        stability: Any = None,
        coordinates: ArrayLike | None = None,
        title: str | None = None,
    ) -> None:
        self.model = last = last_step(model)
        self.method = type(last).__name__
        fitted: Fitted | None = getattr(last, "fitted_", None)
        if fitted is None or fitted.coef is None:
            raise DataError(f"{self.method} has no coefficients (coef_), so there is nothing to report; fit it first.")
        self.fitted, self.coef = fitted, fitted.coef
        self.scores = None if data is None else measure(model, data, held_out=held_out)
        self.n_tasks, d = K, _ = self.coef.shape
        tasks = last.tasks_.tolist()
        self.features = list(getattr(last, "features_", range(d)))
        self.title = short_name(title, 200) if title is not None else f"{self.method}: {K} tasks"
        self.stability = None if stability is None else read_stability(stability)
        self.shown = display(_graph(fitted.graph, tasks, coordinates, self.stability))
        relation = getattr(getattr(last, "best_estimator_", last), "relation", "")
        if self.shown.notes and relation == "coef" and fitted.input.layout not in ("", "long"):
            also = "rows of all tasks belong together here: relation='residual' relates the tasks' errors as well"
            self.shown = self.shown._replace(notes=[*self.shown.notes, also])
        self.graph, labels = self.shown.graph, self.shown.groups
        i, j = (ends[:MOST_EDGES] for ends in self.graph.edge_indices())
        how = (self.graph.weights, self.graph.confidence)
        said = ([None] * len(i) if table is None else entries_at(table, i, j).round(9).tolist() for table in how)
        self.edges = {f"{a} {b}": edge for a, b, *edge in zip(i, j, *said, strict=True)}
        self.hidden = set(list(self.edges)[thin_edges(self.graph)[0].n_edges :])
        self.names = [short_name(name, 60) for name in tasks]
        self.colors, self.order = community_colors(labels), task_order(self.graph, labels)
        sizes = np.bincount(labels)
        self.groups = [self.order[labels[self.order] == label] for label in np.flatnonzero(sizes > 1)]
        self.alone = int((sizes == 1).sum())
        self.community = {k: number for number, members in enumerate(self.groups, 1) for k in members.tolist()}
        self.gains = None if transfer is None else read_gains(transfer, tasks)
        self.rounds = len(fitted.history or [])
        end = fitted.result
        self.ending = "" if end is None else f"The fit {end.status}, with a relative gap of {end.relative_gap:.1e}"
        self.cross_validated = _cross_validated(last)
        variance = fitted.noise_variance
        self.noise = None if variance is None else np.sqrt(np.broadcast_to(variance, K))
        self.measured = "none" if data is None else f"y of shape {np.shape(data[1])}"
        known, encoder = fitted.input.column_quantiles is not None, fitted.input.encoder
        self.relevance: dict[str, float] = last.column_relevance() if known else {}
        # The coefficients already show the effects of linear columns.
        curved = fitted.input.maps is not None or (encoder is not None and encoder.has_categories)
        drawn = most_relevant(last) if known and curved else []
        self.effects = [curves(last, name, tasks[: MOST_LINES // len(drawn)]) for name in drawn]

    @property
    def missing_graph(self) -> str | None:
        """The reason why there is no graph to draw, or None."""
        if self.fitted.graph is None:
            remedy = "a structure with a precision, such as MSSLRegressor's, learns one"
            return f"{self.method} has no task graph; {remedy}."
        if self.n_tasks < 2:
            return "There is one task only, so there is no graph between tasks."
        if self.graph.n_edges:
            return None
        bayesian = self.method.startswith("Bayesian")
        smaller = "A smaller graph penalty gives edges, if the tasks are related."
        remedy = "What relates the tasks is tested apart from it." if bayesian else smaller
        return f"The task graph is empty: no edge between any two tasks. {remedy}"

    @property
    def joined(self) -> str:
        """The numbers of edges and of further candidates in the support of the precision, in words."""
        tested, drawn = self.shown.edges, self.graph.n_edges
        if tested is None:
            return f"{count(drawn, 'pair')}, which were not tested"
        more = f" and {count(drawn - len(tested), 'candidate')} of the support" if drawn > len(tested) else ""
        return f"{count(len(tested), 'edge')}{more}"

    def strongest(self, number: int) -> Sequence[Edge | Relation]:
        """The strongest tested edges; those of the support if the graph has no evidence."""
        tested = self.shown.strongest
        return self.graph.support(number) if tested is None else tested[:number]


def _cross_validated(model: Any) -> str:
    """Sentences on the scores of rows that cross-validation left out of the fits."""
    score, gain, lead = getattr(model, "held_out_", None), gain_over_separate(model), lead_over_separate(model)
    if score is None:
        return ""
    share = "separate models per task do as well"
    if gain is not None and gain >= NEGLIGIBLE_GAIN:
        share = f"the deviance is {100 * gain:.1f}\u00a0% below that of the best separate models per task"
    first = "" if gain is None else f"In cross-validation, on rows left out of the fits, {share}. "
    apart = "" if lead is None else f"; with separate weights per task it is {score.separate:.4g}"
    apart = "; separate weights per task do as well" if lead is not None and lead < NEGLIGIBLE_GAIN else apart
    base = "" if score.base_rate is None else f"; each task's base rate alone has {score.base_rate:.4g}"
    area = "" if score.auc is None else f" The area under the ROC curve of the same rows is {score.auc:.3f}."
    within = "" if score.explained is None else f" R² within tasks of the same rows is {score.explained:.3f}."
    return f"{first}The {score.what} is {score.score:.4g}{base}{apart}.{area}{within}"


def _graph(
    graph: TaskGraph | None, tasks: list[Any], coordinates: ArrayLike | None, path: Stability | None
) -> TaskGraph:
    """The model's graph with coordinates and selection frequencies, or one without edges."""
    K, found = len(tasks), TaskGraph.from_edges([], tasks) if graph is None else graph
    if coordinates is not None:
        found = replace(found, coordinates=np.asarray(coordinates))
    if path is not None and path.ends is not None:
        if len(path.ends) != K * (K - 1) // 2:
            raise DataError(f"stability has frequencies of {len(path.ends)} pairs; give (L, {K}, {K}) or (L, E).")
        if found.confidence is None:
            found = replace(found, confidence=pair_matrix(path.ends, path.frequencies.max(axis=0), K))
    return found


class LabelScores(NamedTuple):
    """Scores of the probabilities of labels: log loss, log loss of the tasks' base rates, and area under the ROC curve.

    The base rates are those of the training rows. They are NaN for models of earlier versions, which did not keep them.
    """

    log_loss: float
    base_log_loss: float
    auc: float


class Scores(NamedTuple):
    """Scores of the predictions of each task; NaN for tasks without rows.

    Attributes
    ----------
    rows : ndarray of shape (K,)
        Number of rows of each task.
    error, explained : ndarrays of shape (K,)
        Error and share of explained deviance.
    error_name, explained_name : str
        Names of the two scores; names of scores on training rows include "training".
    inside : ndarray of shape (K,) or None
        Share of rows inside the 90 % prediction interval, for models that have intervals.
    held_out : bool or None
        Whether the model was fitted without these rows; None if this is not known.
    strangers : list
        Tasks of further rows that the training data do not have.
    n_strange : int
        Number of these rows.
    strange_error, strange_explained : float
        Error and share of explained deviance of these rows, predicted as new tasks; NaN if there are no such rows.
    labels : LabelScores or None
        Scores of the probabilities of labels, over all rows of known tasks.
    """

    rows: Index
    error: Array
    explained: Array
    error_name: str
    explained_name: str
    inside: Array | None
    held_out: bool | None
    strangers: list[Any]
    n_strange: int
    strange_error: float
    strange_explained: float
    labels: LabelScores | None


class Gains(NamedTuple):
    """Gains of the tasks over their single-task fits.

    Attributes
    ----------
    gain : ndarray of shape (K,)
        Gain in percent; NaN if it was not measured.
    verdict : ndarray of K str
        "gain", "loss" or "even"; "" if the gain was not measured.
    others : dict of str to ndarray of shape (K,)
        Further reported numbers.
    """

    gain: Array
    verdict: Labels
    others: dict[str, Array]


def measure(model: Any, data: Any, *, held_out: bool | None = None) -> Scores:
    """Predict the rows of `data` and score the predictions of each task."""
    if not isinstance(data, Sequence) or not 2 <= len(data) <= 3:
        raise DataError("data has to be (X, y) or (X, y, tasks), the rows on which to measure the model.")
    X, y, tasks = (*data, None)[:3]
    while hasattr(model, "steps"):  # a pipeline: X as its last step sees it
        X, model = model[:-1].transform(X) if len(model.steps) > 1 else X, model[-1]
    fitted: Fitted = model.fitted_
    rows_of = {"tasks": tasks} | ({} if fitted.unseen_coef is None else {"unseen": "mean"})
    binary = fitted.input.classes is not None
    mean = np.asarray(model.predict_proba(X, **rows_of)[..., 1] if binary else model.predict(X, **rows_of))
    given = getattr(model, "best_estimator_", model)._targets(y) if binary else np.asarray(y, dtype=float)
    target = scored_targets(given, mean, None)[0]
    place, strangers = _tasks_of(model, X, tasks, mean)
    known, K = ~np.isnan(target), len(model.tasks_)
    hit = None
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(X, COVERAGE, **rows_of)
        hit = ((ends[..., 0] <= target) & (target <= ends[..., 1]))[known]
    # New tasks together have the last place.
    target, mean, task = target[known], mean[known], np.where(place < 0, K, place)[known]
    rows = np.bincount(task, minlength=K + 1)

    def averages(values: Array | Mask) -> Array:
        """Mean of the rows of each task."""
        return np.bincount(task, values, K + 1) / np.where(rows > 0, rows, np.nan)

    error = averages((mean > 0.5) != target) if binary else np.sqrt(averages((mean - target) ** 2))
    explained = np.full(K + 1, np.nan)
    for k in np.flatnonzero(rows):
        explained[k] = deviance_score(fitted.loss, target[task == k], mean[task == k])
    labels, own = None, task < K
    if binary and own.any():
        rates = np.full(K, np.nan) if fitted.input.base_rates is None else fitted.input.base_rates
        loss, base = (base_log_loss(target[own], p, np.ones(own.sum())) for p in (mean[own], rates[task[own]]))
        labels = LabelScores(loss, base, area_under_curve(target[own], mean[own]))
    training = "training " if held_out is False else ""
    return Scores(
        rows=rows[:K],
        error=error[:K],
        explained=explained[:K],
        error_name=f"{training}{'error rate' if binary else 'RMSE'}",
        explained_name=f"{training}{'R²' if fitted.loss.quadratic else 'D²'}",
        inside=None if hit is None else averages(hit)[:K],
        held_out=held_out,
        strangers=strangers,
        n_strange=int(rows[K]),
        strange_error=error[K],
        strange_explained=explained[K],
        labels=labels,
    )


def _tasks_of(model: Any, X: Any, tasks: Any, mean: Array) -> tuple[Index, list[Any]]:
    """The task of every prediction, in the shape of the predictions and −1 for new tasks, and the new tasks' names."""
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
    """Read a transfer report and sort it by the order of the tasks."""
    given = {row.get("task"): row for row in gain_rows(transfer, tasks)}
    strange = [name for name in given if name not in set(tasks)]
    if strange:
        name = short_name(strange[0])
        raise DataError(f"transfer names the task {name!r}; the model does not know it. Give its tasks.")
    rows = [given.get(task, {}) for task in tasks]
    columns: dict[str, Array] = {}
    for k, row in enumerate(rows):
        for name, value in row.items():
            if isinstance(value, Real) and name != "task":
                columns.setdefault(name, np.full(len(rows), np.nan))[k] = value
    if "gain" not in columns:
        allowed = "a mapping of task to gain in percent, one number for each task, or rows with task and gain"
        raise DataError(f"transfer holds no gain; give {allowed}.")
    gain = columns.pop("gain")
    signs = np.select([gain > 0, gain < 0, gain == 0], ["gain", "loss", "even"], "")
    words = np.array([str(row.get("verdict")) for row in rows])
    return Gains(gain, np.where((signs != "") & np.isin(words, ["gain", "loss", "even"]), words, signs), columns)
