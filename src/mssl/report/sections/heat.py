"""Heat maps: relations between tasks, and coefficients."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from mssl._html import Html, tag
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.model.task_matrix import DENSE_UP_TO
from mssl.plots.fits import plot_coefficients
from mssl.plots.graphs import plot_precision
from mssl.plots.support import pool, shown_matrix
from mssl.report.parts import Section, canvas, count, drawing, picture

if TYPE_CHECKING:
    from mssl.report.content import Content

_MOST_WEIGHTS = 100  # weights that are drawn one by one, with intervals
_CELLS = 100  # cells on a side that the pointer tells apart: more make the file large


def matrix_section(content: Content) -> Section | None:
    """Partial correlations and precisions between tasks, by community, where all pairs have room in a picture."""
    if content.missing_graph is not None or content.n_tasks > DENSE_UP_TO:
        return None
    K, graph = content.n_tasks, content.graph
    off = np.asarray(graph.weights)[~np.eye(K, dtype=bool)]
    alt = (
        f"Heat map of the partial correlations between {count(K, 'task')}, ordered by community: from {off.min():+.2f} "
        f"to {off.max():+.2f}, {1 - graph.density():.0%} of the pairs 0."
    )
    side = float(np.clip(0.105 * K, 3.7, 5.4))
    layers = {"partial correlation": (content.shown, "partial")}
    layers |= {} if content.fitted.precision is None else {"precision": (content.model, "precision")}
    axes = {
        label: plot_precision(source, canvas(side, 0.94 * side), tasks=graph.tasks, kind=kind)
        for label, (source, kind) in layers.items()
    }
    return _layers(content, "relations", "Partial correlations", alt, axes, "Lines part communities.")


def coefficient_section(content: Content) -> Section | None:
    """Coefficients, tasks down by community, features across; of few ones their intervals too."""
    K, d = content.coef.shape
    sizes = np.abs(content.coef)
    reach = sizes.max(axis=0)
    if not reach.any():
        return None
    spread = reach[reach > 0]
    labels = {"unit": "coefficient", "largest": "share of the feature's largest"}
    # Features in very different units: a common colour scale would show one of them only.
    shares_first = spread.max() > 20 * np.median(spread)
    task, feature = np.unravel_index(np.argmax(sizes), sizes.shape)
    alt = (
        f"Heat map of the coefficients of {count(K, 'task')} on {count(d, 'feature')}; the largest is "
        f"{content.coef[task, feature]:+.3g}, of {short_name(content.graph.tasks[task])} on "
        f"{short_name(content.features[feature])}."
    )
    size = (float(np.clip(1.6 + 0.16 * d, 3.4, 6.2)), float(np.clip(0.9 + 0.14 * K, 1.6, 4.8)))
    order = sorted(labels, reverse=not shares_first)
    axes = {labels[per]: plot_coefficients(content.model, canvas(*size), per=per) for per in order}
    zeros = float((content.coef == 0).mean())
    words = f"{zeros:.0%} of the coefficients are zero." if zeros > 0 else "No coefficient is exactly zero."
    words += "" if shares_first else " Colours end at the 99th percentile."
    section = _layers(content, "coefficients", "Coefficients", alt, axes, words)
    std = content.fitted.coef_std if content.coef.size <= _MOST_WEIGHTS else None
    if std is None:
        return section
    ax = canvas(4.4, float(np.clip(0.13 * sizes.size + 0.8, 2.0, 9.0)))
    plot_coefficients(content.model, ax, kind="forest", level=COVERAGE)
    sure = count(int((sizes > float(ndtri(0.5 + COVERAGE / 2)) * std).sum()), "interval")
    alt = f"Coefficients with {COVERAGE:.0%} intervals: {sure} of {sizes.size} lie off 0."
    words = f"Coefficients with {COVERAGE:.0%} intervals; grey ones hold 0."
    return replace(section, body=Html(section.body, picture("intervals", ax, alt, words)))


def _layers(content: Content, key: str, title: str, alt: str, axes: dict[str, Any], words: str) -> Section:
    """One of several heat maps in one place, buttons that choose which, and what the page's script knows of them."""
    buttons, pictures, data = [], [], {}
    order = content.order.tolist()
    for k, (label, ax) in enumerate(axes.items()):
        name = f"{key}-layer-{k}"
        buttons += [tag("input", type="radio", name=f"{key}-layer", id=name, value=k, checked=k == 0)]
        buttons += [tag("label", Html(label), for_=name)]
        pictures.append(drawing(f"{key}-{k}", ax, alt if not k else f"The same map of the {label}."))
        # What the page names under the pointer: three digits of each value, and where in its block it stands.
        whole = shown_matrix(ax)
        cells = pool(whole, _CELLS)
        data[f"{key}-{k}"] = {
            "label": label,
            "shape": whole.shape,
            "block": cells.block,
            "values": [None if np.isnan(value) else json.loads(f"{value:.3g}") for value in cells.values.ravel()],
            "place": None if cells.block == (1, 1) else cells.place.ravel().tolist(),
            "rows": order,
            "columns": order if key == "relations" else None,
        }
    if max(whole.shape) > _CELLS:
        many = "pairs of tasks" if key == "relations" else "coefficients"
        words += " There are too many to see each: colours and the numbers beside the pointer are the strongest "
        words += f"{many} there."
    caption = tag("figcaption", Html(words))
    shown = buttons if len(axes) > 1 else []
    return Section(key, title, tag("figure", *shown, *pictures, caption, class_="layers", aria_label=alt), data)
