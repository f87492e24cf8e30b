"""From a fitted model to plain data: everything that the page shows, checked and in one place."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mssl.data.columns import feature_spreads
from mssl.estimators.effects import PartialEffect
from mssl.estimators.summary import last_step
from mssl.exceptions import DataError, package_versions
from mssl.graph.display import Display, display
from mssl.graph.export import Edge
from mssl.graph.geometry import community_colors, task_order
from mssl.graph.inference import COVERAGE
from mssl.graph.task_graph import TaskGraph, short_name
from mssl.metrics import NEGLIGIBLE_GAIN
from mssl.model.task_matrix import DENSE_UP_TO
from mssl.plots.effects import curves, most_relevant
from mssl.plots.support import history_columns
from mssl.report.scores import Gains, Scores, measure, read_gains
from mssl.transfer import gain_over_separate, lead_over_separate

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_MOST_EFFECTS = 6  # columns whose curves are drawn
_MOST_TASKS = 100  # curves in each of these figures
_MOST_WEIGHTS = 100  # weights that are drawn one by one, with intervals
_PACKAGES = ("mssl", "numpy", "scipy", "scikit-learn", "matplotlib")


class Stability(NamedTuple):
    """Selection frequencies of edges along a path: ``ends`` is (E, 2), or None where edges are not named."""

    lambdas: FloatArray
    frequencies: FloatArray
    threshold: float
    ends: IntArray | None


class GivenRows(NamedTuple):
    """Rows to measure a model on, and whether it was fitted without them (None: not known)."""

    data: Any
    held_out: bool | None


class Effect(NamedTuple):
    """What one column does: on the mean of the tasks, and on each of them (K, n)."""

    shared: PartialEffect
    by_task: FloatArray


class NewTask(NamedTuple):
    """What an unseen task is predicted with: weights (d,), intercept, and whether `predict` does so unasked."""

    coef: FloatArray
    intercept: float
    unasked: bool


@dataclass(frozen=True, eq=False)
class Content:
    """What a page is made of.

    Attributes
    ----------
    title, method : str
        Title of the page, class of the model.
    shown : Display
        The graph as it is drawn, with coordinates and selection frequencies where known, its groups, certain edges and
        what was found; without edges where the model has no graph.
    has_graph : bool
        Whether the model has a graph at all.
    precision : ndarray of shape (K, K) or None
    coef : ndarray of shape (K, d)
    coef_error : ndarray of shape (K, d) or None
        Half widths of the weights' 90 % intervals, of models with few weights.
    features : list of str
    spread : ndarray of shape (d,) or None
        Standard deviation of each feature in training, where the model knows it.
    new_task : NewTask or None
    scores, gains, stability : what the caller measured, or None
    shared_gain : float or None
        The share of the separate models' deviance that is gone in cross-validation, where that is known.
    cross_validated : str
        What else folds say of the fit: a sentence, or nothing.
    history : dict of str to ndarray
        Objective and gaps, round by round.
    certificate : tuple of (relative gap or None, status)
    noise : ndarray of shape (K,) or None
    mean_variance : float
    settings, record : lists of (name, text)
    relevance : dict of str to float
        How much each column moves the predictions.
    effects : list of Effect
        Curves of the columns that do so most.
    """

    title: str
    method: str
    shown: Display
    has_graph: bool
    precision: FloatArray | None
    coef: FloatArray
    coef_error: FloatArray | None
    features: list[Any]
    spread: FloatArray | None
    new_task: NewTask | None
    scores: Scores | None
    shared_gain: float | None
    cross_validated: str
    gains: Gains | None
    stability: Stability | None
    history: dict[str, FloatArray]
    certificate: tuple[float | None, str]
    noise: FloatArray | None
    mean_variance: float
    settings: list[tuple[str, str]]
    record: list[tuple[str, str]]
    relevance: dict[str, float]
    effects: list[Effect]

    @property
    def graph(self) -> TaskGraph:
        """The graph as it is drawn."""
        return self.shown.graph

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return len(self.graph)

    @property
    def missing_graph(self) -> str | None:
        """Why there is no graph to draw, or None."""
        if not self.has_graph:
            return (
                f"{self.method} has no task graph; a structure with a precision, such as MSSLRegressor's, learns one."
            )
        if self.n_tasks < 2:
            return "There is one task only, so there is no graph between tasks."
        if not self.graph.n_edges:
            remedy = " A smaller graph penalty gives edges, if the tasks are related."
            if self.method.startswith("Bayesian"):
                remedy = " What relates the tasks is tested apart from it."
            return f"The task graph is empty: no edge between any two tasks.{remedy}"
        return None

    def strongest(self, number: int) -> Sequence[Edge]:
        """The strongest edges; none where no relation supports them."""
        relations = self.shown.relations
        return self.graph.edges(number) if relations is None or relations.supported else ()

    @cached_property
    def names(self) -> list[str]:
        """Names of the tasks for display: one line, no control characters."""
        return [short_name(name, 60) for name in self.graph.tasks]

    @property
    def communities(self) -> IntArray:
        """Group of related tasks, or community, of each task; 0 is the largest."""
        return self.shown.groups

    @cached_property
    def colors(self) -> list[str]:
        """Colour of each task, by community."""
        return community_colors(self.communities)

    @cached_property
    def order(self) -> IntArray:
        """Tasks by group, and inside one by falling strength."""
        return task_order(self.graph, self.communities)

    @cached_property
    def ordered_names(self) -> list[Any]:
        """Names of the tasks in that order."""
        return [self.graph.tasks[k] for k in self.order]


def gather(
    model: Any, *, rows: GivenRows | None, transfer: Any, stability: Any, coordinates: Any, title: str | None
) -> Content:
    """Read what a page shows off a fitted model, or a pipeline that ends in one, and what was measured of it."""
    scores = None if rows is None else measure(model, rows.data, held_out=rows.held_out)
    model = last_step(model)
    coef = _coefficients(model)
    tasks = [
        name.item() if isinstance(name, np.generic) else name for name in getattr(model, "tasks_", range(len(coef)))
    ]
    path = None if stability is None else read_stability(stability, len(tasks))
    graph, has_graph = _graph(model, tasks, coordinates, path)
    shown = display(graph)
    notes = list(shown.notes)
    if (
        notes
        and getattr(getattr(model, "best_estimator_", model), "on", "") == "coef"
        and getattr(model, "layout_", "long") != "long"
    ):
        notes.append("rows of all tasks belong together here: on='residual' relates the tasks' errors as well")
    method = type(model).__name__
    precision: Any = getattr(model, "precision_", None)
    if hasattr(precision, "toarray"):
        precision = precision.toarray() if len(tasks) <= DENSE_UP_TO else None
    noise = getattr(model, "noise_", None)
    result = getattr(model, "result_", None)
    gap = getattr(result, "relative_gap", None)
    features = getattr(model, "features_", getattr(model, "feature_names_in_", None))
    return Content(
        title=short_name(title, 200) if title is not None else f"{method}: {len(tasks)} tasks",
        method=method,
        shown=shown._replace(notes=notes),
        has_graph=has_graph,
        precision=None if precision is None else np.asarray(precision, dtype=float),
        coef=coef,
        coef_error=_errors(model, coef),
        features=list(range(coef.shape[1])) if features is None else list(features),
        spread=feature_spreads(model, coef.shape[1]),
        new_task=_new_task(model),
        scores=scores,
        shared_gain=gain_over_separate(model),
        cross_validated=_cross_validated(model),
        gains=None if transfer is None else read_gains(transfer, tasks),
        stability=path,
        history=_history(model),
        certificate=(None if gap is None else float(gap), str(getattr(result, "status", ""))),
        noise=None if noise is None else np.broadcast_to(np.asarray(noise, dtype=float), len(tasks)),
        mean_variance=float(getattr(model, "mean_variance_", 0.0)),
        settings=_settings(model),
        record=_record(model, rows),
        relevance=model.column_relevance() if hasattr(model, "column_quantiles_") else {},
        effects=_effects(model, tasks),
    )


def _errors(model: Any, coef: FloatArray) -> FloatArray | None:
    """Half widths of the weights' intervals, where there are few weights."""
    std = getattr(getattr(model, "best_estimator_", model), "coef_std_", None) if coef.size <= _MOST_WEIGHTS else None
    return None if std is None else float(ndtri(0.5 + COVERAGE / 2)) * std


def _new_task(model: Any) -> NewTask | None:
    coef = getattr(model, "unseen_coef_", None)
    return None if coef is None else NewTask(coef, float(model.unseen_intercept_), model.unseen_ == "mean")


def _cross_validated(model: Any) -> str:
    """What is known of rows that were left out of the fits."""
    score = getattr(model, "held_out_", None)
    if score is None:
        return ""
    lead = lead_over_separate(model)
    apart = "" if lead is None else f"; with separate weights per task it is {score.separate:.4g}"
    alone = "; separate weights per task do as well" if lead is not None and lead < NEGLIGIBLE_GAIN else apart
    base = "" if score.base_rate is None else f"; each task's base rate alone has {score.base_rate:.4g}"
    area = "" if score.auc is None else f" The area under the ROC curve of the same rows is {score.auc:.3f}."
    share = "" if score.explained is None else f" R² within tasks of the same rows is {score.explained:.3f}."
    return f"The {score.what} is {score.score:.4g}{base}{alone}.{area}{share}"


def _effects(model: Any, tasks: list[Any]) -> list[Effect]:
    """Curves of the columns that move the predictions most; straight lines are in the coefficients."""
    encoder = getattr(model, "encoder_", None)
    curved = (encoder is not None and encoder.has_categories) or getattr(model, "maps_", None) is not None
    if not curved or not hasattr(model, "column_quantiles_"):
        return []
    return [Effect(*curves(model, feature, tasks[:_MOST_TASKS])) for feature in most_relevant(model, _MOST_EFFECTS)]


def _coefficients(model: Any) -> FloatArray:
    coef = getattr(model, "coef_", None)
    if coef is None:
        raise DataError(
            f"{type(model).__name__} has no coefficients (coef_), so there is nothing to report; fit it first."
        )
    values = np.asarray(coef, dtype=float)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise DataError(f"coef_ has shape {values.shape} or is not finite; give finite numbers, K tasks × d features.")
    return values


def _graph(model: Any, tasks: list[Any], coordinates: Any, path: Stability | None) -> tuple[TaskGraph, bool]:
    """The model's graph with coordinates and selection frequencies, or one without edges."""
    graph = getattr(model, "graph_", None)
    known = isinstance(graph, TaskGraph) and len(graph) == len(tasks)
    empty = np.zeros((len(tasks), len(tasks)))
    found = graph if isinstance(graph, TaskGraph) and known else TaskGraph(tuple(tasks), empty.astype(bool), empty)
    if coordinates is not None:
        found = replace(found, coordinates=coordinates)
    if path is not None and path.ends is not None and found.confidence is None:
        top = np.zeros((len(tasks), len(tasks)))
        i, j = path.ends.T
        top[i, j] = top[j, i] = path.frequencies.max(axis=0)
        found = replace(found, confidence=top)
    return found, known


def read_stability(stability: Any, n_tasks: int) -> Stability:
    """Strengths, frequencies and threshold of a stability selection, in whichever form they came."""
    if isinstance(stability, tuple) and not hasattr(stability, "_fields"):
        lambdas, frequencies, threshold = (*stability, None, None)[:3]
    else:
        lambdas, frequencies, threshold = (_field(stability, name) for name in ("lambdas", "frequencies", "threshold"))
    if lambdas is None or frequencies is None:
        raise DataError(
            "stability holds no path; give lambdas (L,) and frequencies, (L, K, K) or (L, E), as attributes or keys."
        )
    strengths, table = np.asarray(lambdas, dtype=float), np.asarray(frequencies, dtype=float)
    ends = None
    if table.ndim == 3 and table.shape[1:] == (n_tasks, n_tasks):
        i, j = np.triu_indices(n_tasks, 1)
        table, ends = table[:, i, j], np.column_stack([i, j])
    if table.ndim != 2 or strengths.shape != (len(table),) or not len(table):
        raise DataError(
            f"stability has {strengths.shape} penalty strengths and frequencies of shape {table.shape}; give "
            f"(L,) and (L, {n_tasks}, {n_tasks}) or (L, E)."
        )
    if table.size and not (table.min() >= 0 and table.max() <= 1):
        raise DataError(f"stability has frequencies from {table.min():g} to {table.max():g}; give numbers from 0 to 1.")
    return Stability(strengths, table, 0.9 if threshold is None else float(threshold), ends)


def _field(source: Any, name: str) -> Any:
    """A field of a mapping or of an object, which may have it as a fitted attribute (a trailing underscore)."""
    if isinstance(source, Mapping):
        return source.get(name, source.get(f"{name}_"))
    return getattr(source, name, getattr(source, f"{name}_", None))


def _history(model: Any) -> dict[str, FloatArray]:
    history = getattr(model, "history_", None)
    with suppress(DataError):
        return history_columns(history) if history else {}
    return {}


def _settings(model: Any) -> list[tuple[str, str]]:
    parameters = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    return [(str(name), short_name(repr(value), 200)) for name, value in parameters.items()]


def _record(model: Any, rows: GivenRows | None) -> list[tuple[str, str]]:
    """Data, versions and date."""
    K, d = np.shape(model.coef_)
    package = type(model).__module__.partition(".")[0]  # the module inside it may move
    facts = [("model", f"{package}.{type(model).__qualname__}"), ("tasks", str(K)), ("features", str(d))]
    table = getattr(model, "table_", None)
    if table is not None:
        facts += [("column of tasks", table.task), ("target", table.target), ("missing features", table.missing)]
    for name, words in (("layout_", "layout of the data"), ("n_iter_", "rounds"), ("objective_", "objective")):
        if hasattr(model, name):
            value = getattr(model, name)
            facts.append((words, f"{value:.8g}" if isinstance(value, float) else short_name(value, 60)))
    facts.append(("data given to the report", "none" if rows is None else f"y of shape {np.shape(rows.data[1])}"))
    facts += package_versions(*_PACKAGES).items()
    facts.append(("Python", platform.python_version()))
    facts.append(("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
    return facts
