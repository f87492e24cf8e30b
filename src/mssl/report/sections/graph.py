"""The task graph as points and lines, and as a circle of chords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mssl._html import Html, tag
from mssl.graph.geometry import NEGATIVE, POSITIVE, chord_geometry, graph_layout, thin_edges
from mssl.report.figures import (
    CANDIDATE,
    INK,
    MARKERS,
    MOST_EDGES,
    Section,
    Shared,
    bare,
    base_figure,
    count,
    figure_html,
    named,
    plain,
    text_width,
)
from mssl.report.tables import Column, Row, linked_table, numbers

if TYPE_CHECKING:
    from mssl.report.content import Content


def _sign(color: str, **look: str) -> Html:
    """A line as edges are drawn, for the words that explain it."""
    line = tag("path", d="M0 4H30", stroke=color, **look)
    return tag("svg", line, class_="key", viewBox="0 0 30 8", aria_hidden="true")


_SIGNS = Html(
    *(_sign(POSITIVE, stroke_width="3"), " positive "),
    *(_sign(NEGATIVE, stroke_width="3", stroke_dasharray="7 4"), " negative partial correlation; "),
    *("thicker is stronger. ", _sign(CANDIDATE), " candidate that cannot be told from chance."),
)
_SHAPES = {
    "circle": tag("circle", cx="6", cy="6", r="5"),
    "square": tag("path", d="M1.5 1.5h9v9h-9z"),
    "triangle": tag("path", d="M6 1l5.5 10H.5z"),
    "diamond": tag("path", d="M6 0l4.5 6L6 12 1.5 6z"),
    "inverted_triangle": tag("path", d="M6 11L.5 1h11z"),
    "hex": tag("path", d="M3 1h6l3 5-3 5H3L0 6z"),
    "star": tag("path", d="M6 0l1.8 4.2L12 4.6 8.800 7.500 9.700 12 6 9.600 2.300 12l.9-4.500L0 4.600l4.200-.4z"),
}


def graph_section(content: Content, shared: Shared) -> Section | None:
    """Points and lines, with sliders that hide weak and rarely selected edges."""
    if content.missing_graph is not None:
        return None
    places = graph_layout(content.graph)
    reach = np.maximum(np.abs(places).max(axis=0), [0.05, 0.02])
    width = 900
    unit = 2.16 * reach[0] / width
    height = int(np.clip(2 * reach[1] / unit + 60, 260, 760))
    unit = max(unit, 2 * reach[1] / (height - 60))
    size_in_words = f"{count(content.n_tasks, 'task')} joined by {count(content.graph.n_edges, 'edge')}"
    alt = f"Task graph: {size_in_words}.{_strongest(content)}"
    plot = bare(base_figure(width, height, alt, even=True, active_drag="pan"))
    plot.x_range.start, plot.x_range.end = -unit * width / 2, unit * width / 2
    plot.y_range.start, plot.y_range.end = -unit * height / 2, unit * height / 2
    for axis, values in zip("xy", places.T, strict=True):
        shared.tasks.add(values, f"graph_{axis}")
        shared.edges.add(values[shared.ends[:, 0]], f"graph_{axis}0")
        shared.edges.add(values[shared.ends[:, 1]], f"graph_{axis}1")
    shared.draw_edges(plot, "segment", x0="graph_x0", y0="graph_y0", x1="graph_x1", y1="graph_y1")
    size = float(np.clip(90 / np.sqrt(content.n_tasks), 4.5, 15))
    shared.tasks.add(shared.tasks.data["scale"] * size, "graph_size")
    shared.draw_tasks(plot, "scatter", x="graph_x", y="graph_y", marker="mark", size="graph_size")
    plot.add_tools("box_select")
    pixels = np.column_stack([width / 2 + places[:, 0] / unit, height / 2 - places[:, 1] / unit])
    unnamed = content.n_tasks - shared.draw_names(plot, "graph_x", "graph_y", pixels, "graph", radius=0.6 * size)
    note = f" {count(unnamed, 'name')} had no room; hover or select to read them." if unnamed else ""
    caption = Html("Strongly related tasks lie close. ", _SIGNS, note, _legend(content))
    body = Html(figure_html("plot-graph", alt, caption, _controls(content, shared)), _all_communities(content))
    return Section("graph", "Task graph", body, {"plot-graph": plot})


def _strongest(content: Content) -> str:
    """The strongest edges in words, where something supports them."""
    edges = ", ".join(f"{plain(e.task_i)} and {plain(e.task_j)} {e.weight:+.2f}" for e in content.strongest(5))
    return f" Strongest partial correlations: {edges}." if edges else ""


def _controls(content: Content, shared: Shared) -> Html:
    """Sliders; the first starts where the drawing is not crowded."""
    strengths = np.sort(np.abs(shared.edges.data["weight"]))[::-1]
    shown = min(thin_edges(content.graph).graph.n_edges, len(strengths))
    start = 0.0 if shown == len(strengths) else float(strengths[shown - 1])
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
    return Html(tag("div", *sliders, class_="controls", role="group", aria_label="Edges shown"), total)


def _legend(content: Content) -> Html:
    """Colour, mark and size of each community, with its strongest tasks."""
    sizes = np.bincount(content.communities)
    entries = []
    for label in np.flatnonzero(sizes > 1)[: len(MARKERS)]:
        members = content.order[content.communities[content.order] == label]
        color = content.colors[members[0]]
        shape = tag("svg", _SHAPES[MARKERS[label]], class_="mark", viewBox="0 0 12 12", aria_hidden="true", fill=color)
        words = f" community {label + 1}, {count(len(members), 'task')}: "
        entries.append(Html(shape, words, _first_names(content, members, 6)))
    rest = int(sizes[sizes > 1][len(MARKERS) :].sum())
    alone = int((sizes == 1).sum())
    if rest:
        entries.append(Html(f"grey circles: {count(rest, 'task')} in smaller communities, listed below"))
    if alone:
        missing = "neighbour" if content.certain is None else "relation that can be told from chance"
        entries.append(Html(f"grey circles: {count(alone, 'task')} without a {missing}"))
    return tag("ul", *(tag("li", entry) for entry in entries), class_="legend")


def _first_names(content: Content, members: Any, most: int) -> Html:
    names = Html(", ").join(named(content.graph.tasks[k], 24) for k in members[:most])
    return Html(names, "\u00a0…" if len(members) > most else "")


def _all_communities(content: Content) -> Html:
    """A list to search, where colours and marks do not suffice for all communities."""
    sizes = np.bincount(content.communities)
    labels = np.flatnonzero(sizes > 1)
    if len(labels) <= len(MARKERS):
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


def chord_section(content: Content, shared: Shared) -> Section | None:
    """Tasks on a circle, community by community, edges as curves inside it."""
    if content.missing_graph is not None:
        return None
    # The geometry orders all edges as the shared source does: weakest first.
    drawn = thin_edges(content.graph, MOST_EDGES).graph
    chords = chord_geometry(drawn, content.communities.tolist(), points=25)
    names, font, margin = _rim_names(content)
    radius = 300.0
    side = int(2 * (radius + margin))
    limit = 1 + margin / radius
    alt = (
        f"Chord diagram: {count(content.n_tasks, 'task')} on a circle, {count(content.graph.n_edges, 'curve')} between "
        f"those that are related.{_strongest(content)}"
    )
    plot = bare(base_figure(side, side, alt, even=True, x_range=(-limit, limit), y_range=(-limit, limit)))
    for axis in (0, 1):
        shared.edges.add(list(chords.curves[:, :, axis].astype(np.float32)), f"chord_{'xy'[axis]}")
    shared.draw_edges(plot, "multi_line", xs="chord_x", ys="chord_y")
    gap = 0.1 * np.abs(chords.spans[:, 1] - chords.spans[:, 0])
    shared.tasks.add(chords.spans[:, 1] + gap / 2, "chord_start")
    shared.tasks.add(chords.spans[:, 0] - gap / 2, "chord_end")
    shared.draw_tasks(
        plot,
        "annular_wedge",
        x=0,
        y=0,
        inner_radius=1.01,
        outer_radius=1.01 + 14 / radius,
        start_angle="chord_start",
        end_angle="chord_end",
        line_color="color",
    )
    _write_rim(plot, shared, chords.angles, names, font, 1.01 + 19 / radius)
    words = Html(" There are too many tasks to name; hover or select to read them.")
    words = tag("span", words, class_="phone") if any(names) else words
    body = figure_html("plot-chords", alt, Html("Edges are those that the sliders above leave. ", _SIGNS, words))
    return Section("chords", "Chord diagram", body, {"plot-chords": plot})


def _rim_names(content: Content, radius: float = 310.0) -> tuple[list[str], float, float]:
    """Names around the rim, their font size and the margin that they need; no names where they would touch."""
    room = 2 * np.pi * radius * 0.8 / content.n_tasks
    font = float(np.clip(room, 0, 11))
    if font < 7:
        return [""] * content.n_tasks, 11.0, 135.0
    names = [plain(name, 20) for name in content.graph.tasks]
    longest = max(text_width(name, font) for name in names)
    return names, font, float(np.clip(longest + 30, 60, 150))


def _write_rim(plot: Any, shared: Shared, angles: Any, names: list[str], font: float, ring: float) -> None:
    from bokeh.models import Text

    left = np.cos(angles) < -1e-9
    shared.tasks.add(ring * np.cos(angles), "rim_x")
    shared.tasks.add(ring * np.sin(angles), "rim_y")
    shared.tasks.add(angles + np.where(left, np.pi, 0.0), "rim_angle")
    shared.tasks.add(np.where(left, "right", "left").tolist(), "rim_align")
    shared.tasks.add(names, "rim_name")
    shared.tasks.add([plain(name, 20) for name in shared.content.graph.tasks], "rim_short")
    look = {"x": "rim_x", "y": "rim_y", "angle": "rim_angle", "text_align": "rim_align", "text_baseline": "middle"}
    look |= {"text_font_size": f"{font:.1f}px", "text_color": INK}
    names_drawn = plot.add_glyph(
        shared.tasks,
        Text(text="rim_name", **look),
        selection_glyph=Text(text="rim_short", **(look | {"text_font_style": "bold"})),
        nonselection_glyph=Text(text="rim_name", **(look | {"text_alpha": 0.35})),
    )
    names_drawn.tags = ["wide"]
