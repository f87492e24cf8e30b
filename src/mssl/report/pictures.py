"""The pictures of the page, and their words: the graph, heat maps, and curves of columns, edges and rounds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from mssl._html import Html, tag
from mssl._typing import Index
from mssl.exceptions import MissingDependencyError
from mssl.graph.geometry import PALETTE
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.model.task_matrix import DENSE_UP_TO
from mssl.plots import support
from mssl.plots.fits import MOST_LINES, draw_effect, plot_coefficients, plot_convergence, plot_stability
from mssl.plots.graphs import place_labels, plot_chord, plot_graph, plot_precision
from mssl.plots.maps import plot_map
from mssl.report import parts
from mssl.report.parts import MOST_EDGES, MOST_ROWS, Section, canvas, count, picture

if TYPE_CHECKING:
    from mssl.report.content import Content

_MOST_ARCS = 300  # more hide the map
_MOST_WEIGHTS = 100  # weights that are drawn one by one, with intervals
_CELLS = 100  # cells on a side that the pointer tells apart: more make the file large


def graph_section(content: Content) -> Section | None:
    """Points and lines, with sliders that hide weak and rarely selected edges."""
    if content.missing_graph is not None:
        return None
    ax = plot_graph(content.shown._replace(notes=[]), canvas(6.3, 4.6), max_edges=MOST_EDGES)
    ax.set_xlabel("")
    unnamed = content.n_tasks - len(ax.texts)
    _names_for_phones(ax, content)
    alt = f"Task graph: {count(content.n_tasks, 'task')} joined by {content.joined}.{_strongest(content)}"
    note = f" {count(unnamed, 'name')} had no room." if unnamed else ""
    words = f"Strongly related tasks lie close; thicker edges are stronger.{note}"
    drawn = picture("graph", ax, alt, words, _legend(content), hidden=content.hidden)
    return Section("graph", "Task graph", Html(_controls(content), drawn, _all_communities(content)))


def _names_for_phones(ax: Any, content: Content) -> None:
    """Name tasks once more, in larger letters: narrow screens show these instead."""
    points = next(each for each in ax.collections if each.get_gid() == f"{support.OURS}tasks")
    radius = float(np.sqrt(points.get_sizes().max()) / 2)
    place_labels(ax, np.asarray(points.get_offsets()), content.graph, radius, 30, 2 * support.SMALL, "narrow")


def _strongest(content: Content) -> str:
    """The strongest edges in words, where something supports them."""
    strongest = content.strongest(5)
    edges = ", ".join(f"{short_name(e.task_i)} and {short_name(e.task_j)} {e.weight:+.2f}" for e in strongest)
    return f" Strongest partial correlations: {edges}." if edges else ""


def _controls(content: Content) -> Html:
    """Sliders; the first starts where the drawing is not crowded."""
    strengths = [abs(weight) for weight, _ in content.edges.values()]
    total, shown, top = content.graph.n_edges, len(strengths) - len(content.hidden), strengths[0]
    start = (1 - 1e-9) * strengths[shown - 1] if content.hidden else 0.0
    note = f" This page holds the strongest {MOST_EDGES:,} of {total:,}." if total > MOST_EDGES else ""
    ends = {"min": "0", "max": repr(top), "value": repr(start), "data-step": repr(top / 50)}
    sliders = [
        tag("label", Html("least |partial correlation|"), for_="min-weight"),
        tag("input", type="range", id="min-weight", step="any", **ends),
        tag("output", for_="min-weight"),
    ]
    if content.graph.confidence is None:
        sliders.append(tag("span", Html("Selection frequencies were not measured."), class_="quiet"))
    else:
        sliders += [
            tag("label", Html("least selection frequency"), for_="min-confidence"),
            tag("input", type="range", id="min-confidence", min=0, max=1, step=0.01, value=0),
            tag("output", for_="min-confidence"),
        ]
    words = tag("p", id="edge-count", role="status", data_total=total, data_held=note)
    return Html(tag("div", *sliders, class_="controls scripted", role="group", aria_label="Lines shown"), words)


def _legend(content: Content) -> Html:
    """Colour, mark and size of each community, with its strongest tasks."""
    coloured = len(PALETTE)
    entries = [
        Html(
            tag("span", class_="chip", style=f"background:{content.colors[members[0]]}"),
            f" community {number}, {count(len(members), 'task')}: ",
            _first_names(content, members, 6),
        )
        for number, members in enumerate(content.groups[:coloured], 1)
    ]
    rest = sum(map(len, content.groups[coloured:]))
    if rest:
        entries.append(Html(f"grey circles: {count(rest, 'task')} in smaller communities, listed below"))
    if content.alone:
        missing = "neighbour" if content.shown.certain is None else "relation that can be told from chance"
        entries.append(Html(f"grey circles: {count(content.alone, 'task')} without a {missing}"))
    return tag("ul", *(tag("li", entry) for entry in entries), class_="legend")


def _first_names(content: Content, members: Index, most: int) -> Html:
    return parts.listed((content.graph.tasks[k] for k in members), most, "\u00a0…")


def _all_communities(content: Content) -> Html:
    """A list to search, where colours and marks do not suffice for all communities."""
    groups = content.groups
    if len(groups) <= len(PALETTE):
        return Html()
    rows = [
        parts.Row(Html(name), own, f"Select {name}", "\n".join(content.names[k] for k in own))
        for name, own in ((f"community {number}", own) for number, own in enumerate(groups, 1))
    ]
    sizes = parts.numbers("tasks", np.array([len(own) for own in groups], dtype=float), ",.0f")
    columns = [sizes, parts.Column("strongest", [_first_names(content, own, 4) for own in groups])]
    caption = f"All {len(groups):,} communities: the name of a task finds its own; choose one to highlight its tasks."
    return parts.linked_table("community", caption, "community", rows, columns)


def chord_section(content: Content) -> Section | None:
    """Tasks on a circle, community by community, edges as curves inside it."""
    if content.missing_graph is not None:
        return None
    groups = content.shown.groups.tolist()
    ax = plot_chord(content.shown._replace(notes=[]), canvas(4.6, 4.6), groups=groups, max_edges=MOST_EDGES)
    ax.set_xlabel("")
    alt = (
        f"Chord diagram: {count(content.n_tasks, 'task')} on a circle, {count(content.graph.n_edges, 'curve')} between "
        f"those that are related.{_strongest(content)}"
    )
    words = "Edges are those of the graph above." + ("" if ax.texts else " There are too many tasks to name.")
    return Section("chords", "Chord diagram", picture("chords", ax, alt, words, hidden=content.hidden))


def map_section(content: Content) -> Section | None:
    """Tasks on a map, where coordinates are known: errors as colour, edges as great circles."""
    if content.graph.coordinates is None:
        return None
    latitude, longitude = content.graph.coordinates[:, 0], (content.graph.coordinates[:, 1] + 180) % 360 - 180
    alt = (
        f"Map of {count(content.n_tasks, 'task')} from {latitude.min():.1f} to {latitude.max():.1f}°N and "
        f"{longitude.min():.1f} to {longitude.max():.1f}°E, with arcs between tasks that are related."
    )
    look: dict[str, Any] = {"max_edges": _MOST_ARCS}
    words = ["Colours are communities; errors were not measured."]
    if content.scores is not None and not np.isnan(content.scores.error).all():
        look |= {"values": content.scores.error, "label": content.scores.error_name}
        words = [f"Colour is the {content.scores.error_name}, yellow is worse."]
    source = content.shown._replace(notes=[])
    try:
        ax = plot_map(source, canvas(5.4, 4.4), **look)
    except MissingDependencyError as error:
        words.append(f"Coastlines are left out: {error.args[0].split('.')[0]}.")
        ax = plot_map(source, canvas(5.4, 4.4), coast=False, **look)
    most = f", of the strongest {_MOST_ARCS}" if content.graph.n_edges > _MOST_ARCS else ""
    words.append(f"Edges are those of the graph above{most}." if content.graph.n_edges else "There is no edge to draw.")
    ax.set_xlabel("longitude (°E)")
    place_labels(ax, np.column_stack([longitude, latitude]), content.graph, 2.5, 60)
    _names_for_phones(ax, content)
    return Section("map", "Map", picture("map", ax, alt, " ".join(words), hidden=content.hidden))


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
        pictures.append(parts.drawing(f"{key}-{k}", ax, alt if not k else f"The same map of the {label}."))
        # What the page names under the pointer: three digits of each value, and where in its block it stands.
        whole = support.shown_matrix(ax)
        cells = support.pool(whole, _CELLS)
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


def effect_section(content: Content) -> Section | None:
    """Small multiples of the columns that move the predictions most, and a table of how much each does."""
    if not content.relevance:
        return None
    multiples: list[Html] = []
    for number, (shared, by_task) in enumerate(content.effects):
        ax = canvas(3.5, 2.3)
        draw_effect(ax, shared, by_task)
        ax.set_ylabel("partial effect")
        name, effect = short_name(shared.feature, 60), shared.effect
        low, high = int(np.argmin(effect)), int(np.argmax(effect))
        at = [short_name(value, 20) if shared.x.dtype.kind == "O" else f"{value:.3g}" for value in shared.x]
        alt = (
            f"Partial effect of {name}, mean of all tasks: lowest at {at[low]} ({effect[low]:+.3g}), highest at "
            f"{at[high]} ({effect[high]:+.3g}); at most {np.ptp(by_task, axis=0).max():.3g} between two tasks."
        )
        band = " with its band" if shared.lower is not None else ""
        words = f"{name}: mean of all tasks{band} in blue, tasks in grey."
        multiples.append(picture(f"effect-{number}", ax, alt, words))
    order = sorted(content.relevance, key=lambda name: -content.relevance[name])
    rest = f" Shown are the first {MOST_ROWS} of {count(len(order), 'column')}."
    words = (
        "How much each column moves the predictions (standard deviation of its partial effect over its values in "
        f"training, root mean square over tasks).{rest if len(order) > MOST_ROWS else ''}"
    )
    lines = [(short_name(name, 60), f"{content.relevance[name]:.3g}") for name in order[:MOST_ROWS]]
    table = parts.small_table("Relevance of columns", words, ("column", "relevance"), lines)
    return Section("effects", "Effects of columns", Html(tag("div", *multiples, class_="multiples"), table))


def stability_section(content: Content) -> Section | None:
    """How often each edge is selected, against the penalty."""
    found = content.stability
    if found is None or not found.frequencies.size:
        return None
    top = found.frequencies.max(axis=0)
    reach = count(int((top >= found.threshold).sum()), "edge")
    ends, ranked = found.ends, np.argsort(-top, kind="stable")[: 2 * MOST_LINES].tolist()
    names = content.graph.tasks
    often = ", ".join(
        f"{f'edge {k + 1}' if ends is None else ' – '.join(short_name(names[end]) for end in ends[k])} ({top[k]:.0%})"
        for k in ranked[:5]
    )
    alt = (
        f"Selection frequency of edges along the path of penalties; {reach} reach the threshold. Most often selected: "
        f"{often}."
    )
    words = (
        f"Blue: the {reach} selected in at least {found.threshold:.0%} of the subsamples somewhere (dashed line); "
        f"grey: the others, at most {MOST_LINES} of either. The penalty falls from left to right."
    )
    marks = [] if ends is None else [f"{i} {j}" for i, j in ends[ranked]]  # of all that are drawn, and maybe more
    data = {"stability": {mark: float(f"{top[k]:.3g}") for mark, k in zip(marks, ranked, strict=False)}}
    drawn = picture("stability", plot_stability(found, ax=canvas(4.6, 2.8)), alt, words)
    return Section("stability", "Stability path", drawn, data)


def convergence_section(content: Content) -> Section | None:
    """Objective and gaps, round by round."""
    curves = support.distances(content.fitted.history)
    if not curves:
        return None
    rounds = count(content.rounds, "round")
    ended = f"{content.ending}. " if content.ending else ""
    shown = {name: values[np.isfinite(values)] for name, values in curves.items()}
    fell = "; ".join(f"{name} from {v[0]:.1e} to {v[-1]:.1e}" for name, v in shown.items() if len(v))
    if not fell:
        words = f"{ended}It took {rounds}; objective and gaps have no distance left to draw."
        return Section("convergence", "Convergence", tag("p", Html(words), class_="nothing"))
    alt = f"Objective and duality gaps over {rounds}, on a log scale: {fell}."
    ax = plot_convergence(content.fitted.history, canvas(4.4, 2.5))
    drawn = picture("convergence", ax, alt, f"{ended}Values of zero cannot be drawn on a log scale.")
    return Section("convergence", "Convergence", drawn)
