"""From a fitted model to plain data: everything that the page shows, checked and in one place."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mssl.data.columns import feature_spreads
from mssl.estimators.effects import PartialEffect
from mssl.estimators.summary import last_step
from mssl.exceptions import DataError, package_versions
from mssl.graph.display import display
from mssl.graph.geometry import community_colors, task_order
from mssl.graph.tables import Edge, Relation
from mssl.graph.task_graph import TaskGraph, short_name
from mssl.metrics import NEGLIGIBLE_GAIN
from mssl.plots.effects import curves, most_relevant
from mssl.plots.fits import Stability, read_stability
from mssl.plots.support import history_columns
from mssl.report.figures import count
from mssl.report.scores import measure, read_gains
from mssl.transfer import gain_over_separate, lead_over_separate

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_MOST_EFFECTS = 6  # columns whose curves are drawn
_MOST_TASKS = 100  # curves in each of these figures
_MOST_WEIGHTS = 100  # weights that are drawn one by one, with intervals
_PACKAGES = ("mssl", "numpy", "scipy", "scikit-learn", "matplotlib")


class Effect(NamedTuple):
    """What one column does: on the mean of the tasks, and on each of them (K, n)."""

    shared: PartialEffect
    by_task: FloatArray


class Content:
    """What a page is made of: a fitted model, or the last step of a pipeline, and what was measured of it.

    Attributes
    ----------
    model, method, title : fitted estimator, its class, title of the page
    shown : Display
        The graph as it is drawn, with coordinates and selection frequencies where known, its groups, certain edges and
        what was found; without edges where the model has no graph (``has_graph``).
    coef : ndarray of shape (K, d)
    features : list of str
    spread : ndarray of shape (d,) or None
        Standard deviation of each feature in training, where the model knows it.
    scores, gains, stability : what the caller measured, or None
    history : dict of str to ndarray
        Objective and gaps, round by round.
    ending : str
        What became of the fit: a sentence, or nothing.
    shared_gain : float or None
        The share of the separate models' deviance that is gone in cross-validation, where that is known.
    cross_validated : str
        What else folds say of the fit: a sentence, or nothing.
    noise : ndarray of shape (K,) or None
    settings, record : lists of (name, text)
    relevance : dict of str to float
        How much each column moves the predictions.
    effects : list of Effect
        Curves of the columns that do so most.
    """

    def __init__(
        self,
        model: Any,
        *,
        data: Any = None,
        held_out: bool | None = None,
        transfer: Any = None,
        stability: Any = None,
        coordinates: Any = None,
        title: str | None = None,
    ) -> None:
        self.scores = None if data is None else measure(model, data, held_out=held_out)
        self.model = model = last_step(model)
        self.coef = _coefficients(model)
        K, d = self.coef.shape
        named = getattr(model, "tasks_", range(K))
        tasks = [name.item() if isinstance(name, np.generic) else name for name in named]
        self.method = type(model).__name__
        self.title = short_name(title, 200) if title is not None else f"{self.method}: {K} tasks"
        self.stability = None if stability is None else _of_tasks(read_stability(stability), K)
        graph, self.has_graph = _graph(model, tasks, coordinates, self.stability)
        self.shown = display(graph)
        on = getattr(getattr(model, "best_estimator_", model), "relation", "")
        if self.shown.notes and on == "coef" and getattr(model, "layout_", "long") != "long":
            also = "rows of all tasks belong together here: relation='residual' relates the tasks' errors as well"
            self.shown = self.shown._replace(notes=[*self.shown.notes, also])
        features = getattr(model, "features_", getattr(model, "feature_names_in_", None))
        self.features = list(range(d)) if features is None else list(features)
        self.spread = feature_spreads(model, d)
        self.gains = None if transfer is None else read_gains(transfer, tasks)
        self.history = _history(model)
        result = getattr(model, "result_", None)
        gap, status = getattr(result, "relative_gap", None), getattr(result, "status", "")
        precisely = "" if gap is None else f", with a relative gap of {float(gap):.1e}"
        self.ending = f"The fit {status}{precisely}" if status else ""
        self.shared_gain, self.cross_validated = gain_over_separate(model), _cross_validated(model)
        noise = getattr(model, "noise_", None)
        self.noise = None if noise is None else np.broadcast_to(np.asarray(noise, dtype=float), K)
        self.settings = _settings(model)
        self.record = _record(model, data)
        self.relevance = model.column_relevance() if hasattr(model, "column_quantiles_") else {}
        self.effects = _effects(model, tasks)

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

    @property
    def joined(self) -> str:
        """How many pairs are edges, and how many more the support of the precision has; in words."""
        tested, drawn = self.shown.edges, self.graph.n_edges
        if tested is None:
            return f"{count(drawn, 'pair')}, which were not tested"
        more = f" and {count(drawn - len(tested), 'candidate')} of the support" if drawn > len(tested) else ""
        return f"{count(len(tested), 'edge')}{more}"

    def strongest(self, number: int) -> Sequence[Edge | Relation]:
        """The strongest tested edges; the support where the graph came without evidence."""
        tested = self.shown.strongest
        return self.graph.support(number) if tested is None else tested[:number]

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


def _of_tasks(path: Stability, K: int) -> Stability:
    """The path, if it is of the model's tasks."""
    if path.ends is not None and len(path.ends) != K * (K - 1) // 2:
        raise DataError(f"stability has frequencies of {len(path.ends)} pairs; give (L, {K}, {K}) or (L, E).")
    return path


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


def _history(model: Any) -> dict[str, FloatArray]:
    history = getattr(model, "history_", None)
    with suppress(DataError):
        return history_columns(history) if history else {}
    return {}


def _settings(model: Any) -> list[tuple[str, str]]:
    parameters = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    return [(str(name), short_name(repr(value), 200)) for name, value in parameters.items()]


def _record(model: Any, data: Any) -> list[tuple[str, str]]:
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
    facts.append(("data given to the report", "none" if data is None else f"y of shape {np.shape(data[1])}"))
    facts += package_versions(*_PACKAGES).items()
    facts.append(("Python", platform.python_version()))
    facts.append(("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
    return facts
