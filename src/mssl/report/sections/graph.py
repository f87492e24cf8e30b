"""The task graph as points and lines, as a circle of chords, and on a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mssl._html import Html, tag
from mssl._typing import Index
from mssl.exceptions import MissingDependencyError
from mssl.graph.geometry import PALETTE
from mssl.graph.task_graph import short_name
from mssl.plots.graphs import place_labels, plot_chord, plot_graph
from mssl.plots.maps import plot_map
from mssl.plots.support import OURS, SMALL
from mssl.report.parts import MOST_EDGES, Column, Row, Section, canvas, count, linked_table, listed, numbers, picture

if TYPE_CHECKING:
    from mssl.report.content import Content

_MOST_ARCS = 300  # more hide the map


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
    points = next(each for each in ax.collections if each.get_gid() == f"{OURS}tasks")
    radius = float(np.sqrt(points.get_sizes().max()) / 2)
    place_labels(ax, np.asarray(points.get_offsets()), content.graph, radius, 30, 2 * SMALL, "narrow")


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
    return listed((content.graph.tasks[k] for k in members), most, "\u00a0…")


def _all_communities(content: Content) -> Html:
    """A list to search, where colours and marks do not suffice for all communities."""
    groups = content.groups
    if len(groups) <= len(PALETTE):
        return Html()
    rows = [
        Row(Html(name), own, f"Select {name}", "\n".join(content.names[k] for k in own))
        for name, own in ((f"community {number}", own) for number, own in enumerate(groups, 1))
    ]
    sizes = numbers("tasks", np.array([len(own) for own in groups], dtype=float), ",.0f")
    columns = [sizes, Column("strongest", [_first_names(content, own, 4) for own in groups])]
    caption = f"All {len(groups):,} communities: the name of a task finds its own; choose one to highlight its tasks."
    return linked_table("community", caption, "community", rows, columns)


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
