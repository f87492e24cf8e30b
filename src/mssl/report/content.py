"""From a fitted model to plain data: everything that the page shows, checked and in one place."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mssl._typing import ArrayLike
from mssl.data.columns import feature_spreads
from mssl.estimators.fitted import Fitted
from mssl.estimators.summary import last_step
from mssl.exceptions import DataError, package_versions
from mssl.graph.geometry import community_colors, display, task_order, thin_edges
from mssl.graph.tables import Edge, Relation
from mssl.graph.task_graph import TaskGraph, short_name
from mssl.metrics import NEGLIGIBLE_GAIN
from mssl.model.task_matrix import entries_at
from mssl.plots.fits import Stability, curves, most_relevant, read_stability
from mssl.report.parts import MOST_EDGES, count
from mssl.report.scores import measure, read_gains
from mssl.transfer import gain_over_separate, lead_over_separate

_MOST_EFFECTS = 6  # columns whose curves are drawn
_MOST_CURVES = 100  # tasks' curves in each of these figures
_PACKAGES = ("mssl", "numpy", "scipy", "scikit-learn", "matplotlib")


class Content:
    """What a page is made of: a fitted model, or the last step of a pipeline, and what was measured of it.

    Attributes
    ----------
    model, method, title : fitted estimator, its class, title of the page
    fitted : Fitted
        What its fit left.
    shown : Display
        The graph as it is drawn, with coordinates and selection frequencies where known, its groups, certain edges and
        what was found; without edges where the model has no graph (``has_graph``).
    graph : TaskGraph
        The same graph.
    edges : dict of str to list
        The edges that the page holds, the strongest first: of "3 7", for tasks 3 and 7, the weight, and how often it
        was selected, or None.
    hidden : set of str
        Those that are not drawn at first, because there would be too many to follow.
    n_tasks : int
    names, colors : lists of K str
        Names of the tasks for display, and their colours, by group.
    order : ndarray of shape (K,)
        Tasks by group, and inside one by falling strength.
    groups : list of ndarrays
        Tasks of each group of more than one, the largest first, in the same order.
    alone : int
        Number of tasks in no group.
    coef : ndarray of shape (K, d)
    features : list
    spread : ndarray of shape (d,) or None
        Standard deviation of each feature in training, where the model knows it.
    scores, gains, stability : what the caller measured, or None
    rounds : int
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
    effects : list of (PartialEffect, ndarray of shape (K, n))
        What the columns that do so most do on the mean of the tasks, and on each of them.
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
        given = fitted.input
        tasks = list(range(K)) if given.tasks is None else given.tasks.tolist()
        self.title = short_name(title, 200) if title is not None else f"{self.method}: {K} tasks"
        self.stability = None if stability is None else read_stability(stability)
        graph, self.has_graph = _graph(fitted.graph, tasks, coordinates, self.stability)
        self.shown = display(graph)
        relation = getattr(getattr(last, "best_estimator_", last), "relation", "")
        if self.shown.notes and relation == "coef" and given.layout not in ("", "long"):
            also = "rows of all tasks belong together here: relation='residual' relates the tasks' errors as well"
            self.shown = self.shown._replace(notes=[*self.shown.notes, also])
        self.graph, labels = self.shown.graph, self.shown.groups
        i, j = (ends[:MOST_EDGES] for ends in self.graph.edge_indices())
        how = (self.graph.weights, self.graph.confidence)
        said = ([None] * len(i) if table is None else entries_at(table, i, j).round(9).tolist() for table in how)
        self.edges = {f"{a} {b}": edge for a, b, *edge in zip(i, j, *said, strict=True)}
        self.hidden = set(list(self.edges)[thin_edges(self.graph).graph.n_edges :])
        self.names = [short_name(name, 60) for name in tasks]
        self.colors, self.order = community_colors(labels), task_order(self.graph, labels)
        sizes = np.bincount(labels)
        self.groups = [self.order[labels[self.order] == label] for label in np.flatnonzero(sizes > 1)]
        self.alone = int((sizes == 1).sum())
        self.features = list(range(d)) if given.features is None else list(given.features)
        self.spread = feature_spreads(last, d)
        self.gains = None if transfer is None else read_gains(transfer, tasks)
        self.rounds = len(fitted.history or [])
        self.ending = ""
        if fitted.result is not None:
            gap = fitted.result.relative_gap
            self.ending = f"The fit {fitted.result.status}, with a relative gap of {gap:.1e}"
        self.shared_gain, self.cross_validated = gain_over_separate(last), _cross_validated(last)
        variance = fitted.noise_variance
        self.noise = None if variance is None else np.sqrt(np.broadcast_to(variance, K))
        self.settings = [(name, short_name(repr(value), 200)) for name, value in last.get_params(deep=False).items()]
        self.record = _record(last, fitted, self.coef.shape, data)
        known = given.column_quantiles is not None
        self.relevance: dict[str, float] = last.column_relevance() if known else {}
        # Straight lines are in the coefficients.
        curved = given.maps is not None or (given.encoder is not None and given.encoder.has_categories)
        drawn = most_relevant(last, _MOST_EFFECTS) if known and curved else []
        self.effects = [curves(last, name, tasks[:_MOST_CURVES]) for name in drawn]

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


def _graph(
    graph: TaskGraph | None, tasks: list[Any], coordinates: ArrayLike | None, path: Stability | None
) -> tuple[TaskGraph, bool]:
    """The model's graph with coordinates and selection frequencies, or one without edges; and whether it has one."""
    K = len(tasks)
    empty = np.zeros((K, K))
    found = TaskGraph(tuple(tasks), empty.astype(bool), empty) if graph is None else graph
    if coordinates is not None:
        found = replace(found, coordinates=np.asarray(coordinates))
    if path is not None and path.ends is not None:
        if len(path.ends) != K * (K - 1) // 2:
            raise DataError(f"stability has frequencies of {len(path.ends)} pairs; give (L, {K}, {K}) or (L, E).")
        if found.confidence is None:
            i, j = path.ends.T
            top = np.zeros((K, K))
            top[i, j] = top[j, i] = path.frequencies.max(axis=0)
            found = replace(found, confidence=top)
    return found, graph is not None


def _record(model: Any, fitted: Fitted, shape: tuple[int, ...], data: Any) -> list[tuple[str, str]]:
    """Data, versions and date."""
    K, d = shape
    package = type(model).__module__.partition(".")[0]  # the module inside it may move
    facts = [("model", f"{package}.{type(model).__qualname__}"), ("tasks", str(K)), ("features", str(d))]
    table = fitted.input.table
    if table is not None:
        facts += [("column of tasks", table.task), ("target", table.target), ("missing features", table.missing)]
    if fitted.input.layout:
        facts.append(("layout of the data", short_name(fitted.input.layout, 60)))
    if fitted.n_iter is not None:
        facts.append(("rounds", str(fitted.n_iter)))
    if fitted.objective is not None:
        facts.append(("objective", f"{fitted.objective:.8g}"))
    facts.append(("data given to the report", "none" if data is None else f"y of shape {np.shape(data[1])}"))
    facts += package_versions(*_PACKAGES).items()
    facts.append(("Python", platform.python_version()))
    facts.append(("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
    return facts
