"""Heat maps: relations between tasks, and coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mssl._html import Html, tag
from mssl.graph.inference import COVERAGE
from mssl.graph.task_graph import short_name
from mssl.model.task_matrix import DENSE_UP_TO
from mssl.plots.fits import draw_coefficients, draw_forest
from mssl.plots.graphs import draw_pairs
from mssl.plots.support import COEF_SHARE, FloatArray, axes, pool
from mssl.report.figures import Section, count, drawing, picture

if TYPE_CHECKING:
    from mssl.report.content import Content

_CELLS = 100  # cells on a side that the pointer tells apart: more make the file large


def matrix_section(content: Content) -> Section | None:
    """Partial correlations and precisions between tasks, by community, where all pairs have room in a picture."""
    if content.missing_graph is not None or content.n_tasks > DENSE_UP_TO:
        return None
    layers = {"partial correlation": np.asarray(content.graph.weights)}
    if content.precision is not None:
        layers["precision"] = content.precision
    K = content.n_tasks
    off = layers["partial correlation"][~np.eye(K, dtype=bool)]
    alt = (
        f"Heat map of the partial correlations between {count(K, 'task')}, ordered by community: from {off.min():+.2f} "
        f"to {off.max():+.2f}, {1 - content.graph.density():.0%} of the pairs 0."
    )
    side = float(np.clip(0.105 * K, 3.7, 5.4))
    pictures, data = [], {}
    for number, (label, values) in enumerate(layers.items()):
        ax = axes(None, (side, 0.94 * side), shown=False)
        draw_pairs(ax, values, label, content.graph.tasks, content.order, content.communities)
        key = f"relations-{number}"
        shown = np.where(np.eye(K, dtype=bool), np.nan, values)[np.ix_(content.order, content.order)]
        data[key] = _cells(shown, label) | {"rows": content.order.tolist(), "columns": content.order.tolist()}
        pictures.append(drawing(f"plot-{key}", ax, alt if not number else f"The same map of the {label}."))
    words = ["Lines part communities.", _pooled(K, K, "pairs of tasks")]
    body = _layers("relations", alt, list(layers), pictures, " ".join(filter(None, words)))
    return Section("relations", "Partial correlations", body, data)


def coefficient_section(content: Content) -> Section | None:
    """Coefficients, tasks down by community, features across."""
    K, d = content.coef.shape
    reach = np.abs(content.coef).max(axis=0)
    if not reach.any():
        return None
    layers = {
        "coefficient": (content.coef, COEF_SHARE),
        "share of the feature's largest": (content.coef / np.where(reach > 0, reach, 1.0), 1.0),
    }
    spread = reach[reach > 0]
    # Features in very different units: a common colour scale would show one of them only.
    order = sorted(layers, reverse=bool(spread.max() > 20 * np.median(spread)))
    top = np.unravel_index(np.argmax(np.abs(content.coef)), content.coef.shape)
    largest = f"{short_name(content.graph.tasks[top[0]])} on {short_name(content.features[top[1]])}"
    alt = (
        f"Heat map of the coefficients of {count(K, 'task')} on {count(d, 'feature')}; the largest is "
        f"{content.coef[top]:+.3g}, of {largest}."
    )
    size = (float(np.clip(1.6 + 0.16 * d, 3.4, 6.2)), float(np.clip(0.9 + 0.14 * K, 1.6, 4.8)))
    groups = content.communities if content.graph.n_edges else None
    pictures, data = [], {}
    for number, label in enumerate(order):
        values, share = layers[label]
        ax = axes(None, size, shown=False)
        draw_coefficients(ax, values, label, content.graph.tasks, content.features, content.order, groups, share)
        key = f"coefficients-{number}"
        data[key] = _cells(values[content.order], label) | {"rows": content.order.tolist(), "columns": None}
        pictures.append(drawing(f"plot-{key}", ax, alt if not number else f"The same map: {label}."))
    zeros = float((content.coef == 0).mean())
    words = [f"{zeros:.0%} of the coefficients are zero." if zeros > 0 else "No coefficient is exactly zero."]
    words += ["Colours end at the 99th percentile." if order[0] == "coefficient" else ""]
    words += [_pooled(K, d, "coefficients")]
    body = _layers("coefficients", alt, order, pictures, " ".join(filter(None, words)))
    if content.coef_error is not None:
        body = Html(body, _intervals(content, content.coef_error[content.order]))
    return Section("coefficients", "Coefficients", body, data)


def _intervals(content: Content, half: FloatArray) -> Html:
    """Weights with their intervals, feature by feature."""
    coef = content.coef[content.order]
    sizes = np.abs(coef).mean(axis=0) * (1.0 if content.spread is None else content.spread)
    ax = axes(None, (4.4, float(np.clip(0.13 * coef.size + 0.8, 2.0, 9.0))), shown=False)
    names = (content.ordered_names, content.features)
    draw_forest(ax, coef, half, names, f"coefficient, {COVERAGE:.0%} interval", sizes)
    sure = count(int((np.abs(coef) > half).sum()), "interval")
    alt = f"Coefficients with {COVERAGE:.0%} intervals: {sure} of {coef.size} lie off 0."
    return picture("plot-intervals", ax, alt, Html(f"Coefficients with {COVERAGE:.0%} intervals; grey ones hold 0."))


def _cells(values: FloatArray, label: str) -> dict[str, Any]:
    """What the page names under the pointer: values, three digits of each, and where in their blocks they stand."""
    cells = pool(values, _CELLS)
    numbers = [None if np.isnan(value) else float(f"{value:.3g}") for value in cells.values.ravel().tolist()]
    place = None if cells.block == (1, 1) else cells.place.ravel().tolist()
    return {"label": label, "shape": values.shape, "block": cells.block, "values": numbers, "place": place}


def _pooled(rows: int, columns: int, many: str) -> str:
    if max(rows, columns) <= _CELLS:
        return ""
    return f"There are too many to see each: colours and the numbers beside the pointer are the strongest {many} there."


def _layers(key: str, alt: str, labels: list[str], pictures: list[Html], words: str) -> Html:
    """One of several pictures in one place, and buttons that choose which."""
    buttons = [] if len(labels) < 2 else [part for k, label in enumerate(labels) for part in _button(key, k, label)]
    return tag("figure", *buttons, *pictures, tag("figcaption", Html(words)), class_="layers", aria_label=alt)


def _button(key: str, number: int, label: str) -> tuple[Html, Html]:
    name = f"{key}-layer-{number}"
    button = tag("input", type="radio", name=f"{key}-layer", id=name, value=number, checked=number == 0)
    return button, tag("label", Html(label), for_=name)
