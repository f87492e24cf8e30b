"""The task graph as points and lines, as a circle of chords, and on a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mssl._html import Html, tag
from mssl.exceptions import MissingDependencyError
from mssl.graph.geometry import PALETTE, thin_edges
from mssl.graph.task_graph import short_name
from mssl.plots.graphs import place_labels, plot_chord, plot_graph
from mssl.plots.maps import plot_map
from mssl.plots.support import OURS, SMALL
from mssl.report.figures import MOST_EDGES, Section, canvas, count, named, picture
from mssl.report.tables import Column, Row, linked_table, numbers

if TYPE_CHECKING:
    from mssl.report.content import Content

_MOST_ARCS = 300  # more hide the map


def _held_edges(content: Content) -> list[tuple[int, int]]:
    """The edges that the page holds, the strongest first."""
    i, j = (ends[:MOST_EDGES].tolist() for ends in content.graph.edge_indices())
    return list(zip(i, j, strict=True))


def _crowding(content: Content) -> set[str]:
    """Marks of the edges that are held but not shown at first, because there would be too many to follow."""
    shown = thin_edges(content.graph).graph.n_edges
    return {f"{min(pair)} {max(pair)}" for pair in _held_edges(content)[shown:]}


def graph_section(content: Content) -> Section | None:
    """Points and lines, with sliders that hide weak and rarely selected edges."""
    if content.missing_graph is not None:
        return None
    ax = canvas(6.3, 4.6)
    plot_graph(content.shown._replace(notes=[]), ax, max_edges=MOST_EDGES)
    ax.set_xlabel("")
    unnamed = content.n_tasks - len(ax.texts)
    _names_for_phones(ax, content)
    size_in_words = f"{count(content.n_tasks, 'task')} joined by {content.joined}"
    alt = f"Task graph: {size_in_words}.{_strongest(content)}"
    note = f" {count(unnamed, 'name')} had no room." if unnamed else ""
    caption = Html("Strongly related tasks lie close; thicker edges are stronger.", note, _legend(content))
    drawn = picture("plot-graph", ax, alt, caption, hidden=_crowding(content))
    body = Html(_controls(content), drawn, _all_communities(content))
    return Section("graph", "Task graph", body)


def _names_for_phones(ax: Any, content: Content) -> None:
    """Name tasks once more, in larger letters: narrow screens show these instead."""
    points = next(each for each in ax.collections if each.get_gid() == f"{OURS}tasks")
    radius = float(np.sqrt(points.get_sizes().max()) / 2)
    place_labels(ax, np.asarray(points.get_offsets()), content.graph, radius, 30, 2 * SMALL, "narrow")


def _strongest(content: Content) -> str:
    """The strongest edges in words, where something supports them."""
    edges = ", ".join(
        f"{short_name(e.task_i)} and {short_name(e.task_j)} {e.weight:+.2f}" for e in content.strongest(5)
    )
    return f" Strongest partial correlations: {edges}." if edges else ""


def _controls(content: Content) -> Html:
    """Sliders; the first starts where the drawing is not crowded."""
    strengths = np.sort(np.abs([content.graph.weights[pair] for pair in _held_edges(content)]).round(9))[::-1]
    shown = min(thin_edges(content.graph).graph.n_edges, len(strengths))
    start = 0.0 if shown == len(strengths) else (1 - 1e-9) * float(strengths[shown - 1])
    page_note = (
        f" This page holds the strongest {MOST_EDGES:,} of {content.graph.n_edges:,}."
        if content.graph.n_edges > MOST_EDGES
        else ""
    )
    top = float(strengths[0])
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
    total = tag("p", id="edge-count", role="status", data_total=content.graph.n_edges, data_held=page_note)
    return Html(tag("div", *sliders, class_="controls scripted", role="group", aria_label="Lines shown"), total)


def _legend(content: Content) -> Html:
    """Colour, mark and size of each community, with its strongest tasks."""
    sizes = np.bincount(content.communities)
    entries = []
    for label in np.flatnonzero(sizes > 1)[: len(PALETTE)]:
        members = content.order[content.communities[content.order] == label]
        color = content.colors[members[0]]
        shape = tag("span", class_="chip", style=f"background:{color}")
        words = f" community {label + 1}, {count(len(members), 'task')}: "
        entries.append(Html(shape, words, _first_names(content, members, 6)))
    rest = int(sizes[sizes > 1][len(PALETTE) :].sum())
    alone = int((sizes == 1).sum())
    if rest:
        entries.append(Html(f"grey circles: {count(rest, 'task')} in smaller communities, listed below"))
    if alone:
        missing = "neighbour" if content.shown.certain is None else "relation that can be told from chance"
        entries.append(Html(f"grey circles: {count(alone, 'task')} without a {missing}"))
    return tag("ul", *(tag("li", entry) for entry in entries), class_="legend")


def _first_names(content: Content, members: Any, most: int) -> Html:
    names = Html(", ").join(named(content.graph.tasks[k], 24) for k in members[:most])
    return Html(names, "\u00a0…" if len(members) > most else "")


def _all_communities(content: Content) -> Html:
    """A list to search, where colours and marks do not suffice for all communities."""
    sizes = np.bincount(content.communities)
    labels = np.flatnonzero(sizes > 1)
    if len(labels) <= len(PALETTE):
        return Html()
    members = [content.order[content.communities[content.order] == label] for label in labels]
    rows = [
        Row(Html(name), own, f"Select {name}", "\n".join(content.names[k] for k in own))
        for name, own in zip((f"community {label + 1}" for label in labels), members, strict=True)
    ]
    cells = [_first_names(content, own, 4) for own in members]
    caption = f"All {len(labels):,} communities: the name of a task finds its own; choose one to highlight its tasks."
    columns = [numbers("tasks", sizes[labels].astype(float), ",.0f"), Column("strongest", cells)]
    return linked_table("community", caption, "community", rows, columns)


def chord_section(content: Content) -> Section | None:
    """Tasks on a circle, community by community, edges as curves inside it."""
    if content.missing_graph is not None:
        return None
    ax = canvas(4.6, 4.6)
    plot_chord(content.shown._replace(notes=[]), ax, groups=content.communities.tolist(), max_edges=MOST_EDGES)
    ax.set_xlabel("")
    alt = (
        f"Chord diagram: {count(content.n_tasks, 'task')} on a circle, {count(content.graph.n_edges, 'curve')} between "
        f"those that are related.{_strongest(content)}"
    )
    words = "Edges are those of the graph above." + ("" if ax.texts else " There are too many tasks to name.")
    return Section("chords", "Chord diagram", picture("plot-chords", ax, alt, Html(words), hidden=_crowding(content)))


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
    drawn = picture("plot-map", ax, alt, Html(" ".join(words)), hidden=_crowding(content))
    return Section("map", "Map", drawn)
