"""Heat maps: relations between tasks, and coefficients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from mssl._html import Html, tag
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.model.task_matrix import DENSE_UP_TO
from mssl.plots.fits import plot_coefficients
from mssl.plots.graphs import plot_precision
from mssl.plots.support import FloatArray, pool, shown_matrix
from mssl.report.figures import Section, canvas, count, drawing, picture

if TYPE_CHECKING:
    from mssl.report.content import Content

_MOST_WEIGHTS = 100  # weights that are drawn one by one, with intervals
_CELLS = 100  # cells on a side that the pointer tells apart: more make the file large


def matrix_section(content: Content) -> Section | None:
    """Partial correlations and precisions between tasks, by community, where all pairs have room in a picture."""
    if content.missing_graph is not None or content.n_tasks > DENSE_UP_TO:
        return None
    K, graph = content.n_tasks, content.graph
    layers: dict[str, tuple[Any, str]] = {"partial correlation": (content.shown, "partial")}
    if getattr(content.model, "precision_", None) is not None:
        layers["precision"] = content.model, "precision"
    off = np.asarray(graph.weights)[~np.eye(K, dtype=bool)]
    alt = (
        f"Heat map of the partial correlations between {count(K, 'task')}, ordered by community: from {off.min():+.2f} "
        f"to {off.max():+.2f}, {1 - graph.density():.0%} of the pairs 0."
    )
    side = float(np.clip(0.105 * K, 3.7, 5.4))
    axes = {
        label: plot_precision(source, canvas(side, 0.94 * side), tasks=graph.tasks, kind=kind)
        for label, (source, kind) in layers.items()
    }
    body, data = _layers(content, "relations", alt, axes, ["Lines part communities.", _pooled(K, K, "pairs of tasks")])
    return Section("relations", "Partial correlations", body, data)


def coefficient_section(content: Content) -> Section | None:
    """Coefficients, tasks down by community, features across."""
    K, d = content.coef.shape
    reach = np.abs(content.coef).max(axis=0)
    if not reach.any():
        return None
    spread = reach[reach > 0]
    # Features in very different units: a common colour scale would show one of them only.
    order = ["largest", "unit"] if spread.max() > 20 * np.median(spread) else ["unit", "largest"]
    top = np.unravel_index(np.argmax(np.abs(content.coef)), content.coef.shape)
    largest = f"{short_name(content.graph.tasks[top[0]])} on {short_name(content.features[top[1]])}"
    alt = (
        f"Heat map of the coefficients of {count(K, 'task')} on {count(d, 'feature')}; the largest is "
        f"{content.coef[top]:+.3g}, of {largest}."
    )
    size = (float(np.clip(1.6 + 0.16 * d, 3.4, 6.2)), float(np.clip(0.9 + 0.14 * K, 1.6, 4.8)))
    labels = {"unit": "coefficient", "largest": "share of the feature's largest"}
    axes = {labels[per]: plot_coefficients(content.model, canvas(*size), per=per) for per in order}
    zeros = float((content.coef == 0).mean())
    words = [f"{zeros:.0%} of the coefficients are zero." if zeros > 0 else "No coefficient is exactly zero."]
    words += ["Colours end at the 99th percentile." if order[0] == "unit" else "", _pooled(K, d, "coefficients")]
    body, data = _layers(content, "coefficients", alt, axes, words)
    model = getattr(content.model, "best_estimator_", content.model)
    std = getattr(model, "coef_std_", None)
    if std is not None and content.coef.size <= _MOST_WEIGHTS:
        body = Html(body, _intervals(content.coef, std, model))
    return Section("coefficients", "Coefficients", body, data)


def _intervals(coef: FloatArray, std: FloatArray, model: Any) -> Html:
    """Weights with their intervals, feature by feature."""
    ax = canvas(4.4, float(np.clip(0.13 * coef.size + 0.8, 2.0, 9.0)))
    plot_coefficients(model, ax, kind="forest", level=COVERAGE)
    sure = count(int((np.abs(coef) > float(ndtri(0.5 + COVERAGE / 2)) * std).sum()), "interval")
    alt = f"Coefficients with {COVERAGE:.0%} intervals: {sure} of {coef.size} lie off 0."
    return picture("plot-intervals", ax, alt, Html(f"Coefficients with {COVERAGE:.0%} intervals; grey ones hold 0."))


def _cells(ax: Any, label: str) -> dict[str, Any]:
    """What the page names under the pointer: values, three digits of each, and where in their blocks they stand."""
    values = np.ma.filled(shown_matrix(ax), np.nan)
    cells = pool(values, _CELLS)
    numbers = [None if np.isnan(value) else json.loads(f"{value:.3g}") for value in cells.values.ravel().tolist()]
    place = None if cells.block == (1, 1) else cells.place.ravel().tolist()
    return {"label": label, "shape": values.shape, "block": cells.block, "values": numbers, "place": place}


def _pooled(rows: int, columns: int, many: str) -> str:
    if max(rows, columns) <= _CELLS:
        return ""
    return f"There are too many to see each: colours and the numbers beside the pointer are the strongest {many} there."


def _layers(
    content: Content, key: str, alt: str, axes: dict[str, Any], words: list[str]
) -> tuple[Html, dict[str, dict[str, Any]]]:
    """One of several heat maps in one place, buttons that choose which, and what the page's script knows of them."""
    buttons, pictures, data = [], [], {}
    order = content.order.tolist()
    for k, (label, ax) in enumerate(axes.items()):
        name = f"{key}-layer-{k}"
        buttons += [tag("input", type="radio", name=f"{key}-layer", id=name, value=k, checked=k == 0)]
        buttons += [tag("label", Html(label), for_=name)]
        pictures.append(drawing(f"plot-{key}-{k}", ax, alt if not k else f"The same map of the {label}."))
        data[f"{key}-{k}"] = _cells(ax, label) | {"rows": order, "columns": order if key == "relations" else None}
    caption = tag("figcaption", Html(" ".join(filter(None, words))))
    shown = Html() if len(axes) < 2 else Html(*buttons)
    return tag("figure", shown, *pictures, caption, class_="layers", aria_label=alt), data
