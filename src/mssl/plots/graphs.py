"""Pictures of task graphs: points and lines, matrices, circles of chords, maps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mssl._typing import Array
from mssl._validation import check_choice
from mssl.exceptions import ParameterError
from mssl.graph import geometry
from mssl.graph.geometry import NEGATIVE, POSITIVE, Display, community_colors, thin_edges
from mssl.graph.task_graph import TaskGraph
from mssl.model.task_matrix import Places, entries_at
from mssl.plots import support
from mssl.plots.support import GREY, SMALL, Axes, Look, as_display, axes, drawn, marked, square

# Kinds of edges: word, colour and line. Negative edges are dashed, so that their sign can be seen without colour.
_KINDS: tuple[tuple[str, str, Any], ...] = (
    ("positive", POSITIVE, "-"),
    ("negative", NEGATIVE, (0, (3, 1.5))),
    ("candidate", GREY, "-"),
)


def plot_graph(source: Any, ax: Axes | None = None, *, max_edges: int | None = None, max_labels: int = 60) -> Axes:
    """Draw the task graph with strongly related tasks close together, coloured communities, and names that fit.

    Parameters
    ----------
    source : TaskGraph, fitted model, or (K, K) precision matrix
    ax : matplotlib Axes, optional
    max_edges : int, optional
        Largest number of edges; the strongest are drawn, and a note gives the number of the others. See
        `mssl.graph.geometry.thin_edges`.
    max_labels : int
        Largest number of names; those of the strongest tasks are placed first.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from mssl.graph import TaskGraph
    >>> ax = plot_graph(TaskGraph.from_edges([("a", "b", 0.5), ("b", "c", -0.2)]))
    >>> sorted(text.get_text() for text in ax.texts)
    ['a', 'b', 'c']
    """
    shown = as_display(source)
    graph = shown.graph
    ax = axes(ax, square(int(10 * np.sqrt(len(graph))), 3.5, 0.042))
    thinned, hidden = thin_edges(graph, max_edges)
    places, ends = geometry.graph_layout(graph), np.column_stack(thinned.edge_indices())
    edge_lines(ax, list(places[ends]), ends, shown)
    radius = float(np.clip(30 / np.sqrt(max(len(graph), 1)), 1.6, 4.5))
    look: Look = {"c": community_colors(shown.groups), "edgecolors": "white", "linewidths": 0.4, "clip_on": False}
    x, y = places.T
    marked(ax.scatter(x, y, s=(2 * radius) ** 2, zorder=3, **look), "tasks", range(len(graph)))
    reach = np.abs(places).max(axis=0, initial=0.05)
    _empty(ax, 1.18 * reach[0], 1.1 * max(reach[1], 0.4))
    named = place_labels(ax, graph, max_labels)
    support.note(ax, hidden, f"{named} of {len(graph)} tasks named" if named < len(graph) else "", *shown.notes)
    return ax


def plot_precision(
    source: Any,
    ax: Axes | None = None,
    *,
    tasks: Iterable[object] | None = None,
    kind: str = "partial",
    ordered: bool = True,
) -> Axes:
    """Draw partial correlations (or the precision) between tasks as a heat map, ordered by community.

    Parameters
    ----------
    source : fitted model, TaskGraph, or (K, K) precision matrix
    ax : matplotlib Axes, optional
    tasks : K names, optional
    kind : {"partial", "precision"}
        Partial correlations or precisions; precisions need a model or a matrix. The diagonal is grey, because it does
        not describe relations.
    ordered : bool
        Whether the tasks of a community are next to each other, with lines between communities.
    """
    check_choice("kind", kind, ("partial", "precision"))
    shown = source if isinstance(source, Display) else None
    graph = support.as_graph(source, tasks) if shown is None else shown.graph
    K = len(graph)
    names = support.as_names(tasks, K, "tasks", graph, "tasks")
    values, label = graph.weights, "partial correlation"
    if kind == "precision":
        if isinstance(source, TaskGraph):
            raise ParameterError("A TaskGraph holds no precision; give the model or the matrix, or kind='partial'.")
        values, label = getattr(source, "precision_", source), "precision"
    by = (graph, as_display(shown or graph).groups) if ordered else None
    ax = axes(ax, square(K, 3.7, 0.105 if K <= 66 else 0.02))
    whole = values.toarray() if hasattr(values, "toarray") else values
    off = np.where(np.eye(K, dtype=bool), np.nan, support.numbers(whole, "precisions", 2))
    support.heat(ax, off, label, names, None, by)
    return ax


def plot_chord(
    source: Any, ax: Axes | None = None, *, groups: Sequence[object] | None = None, max_edges: int | None = None
) -> Axes:
    """Draw the tasks on a circle, group by group, and the edges as curves inside it.

    Parameters
    ----------
    source : TaskGraph, fitted model, or (K, K) precision matrix
    ax : matplotlib Axes, optional
    groups : K labels, optional
        Groups of the tasks; by default the communities.
    max_edges : int, optional
        Largest number of edges; the strongest are drawn, and a note gives the number of the others. See
        `mssl.graph.geometry.thin_edges`.
    """
    shown = as_display(source)
    ax = axes(ax, square(len(shown.graph), 3.8, 0.085))
    graph, hidden = thin_edges(shown.graph, max_edges)
    chords = geometry.chord_geometry(graph, shown.groups.tolist() if groups is None else groups)
    edge_lines(ax, list(chords.curves), chords.ends, shown, curved=True)
    gap = 0.04 * (chords.spans[:, 1] - chords.spans[:, 0])
    around = np.linspace(chords.spans[:, 0] + gap, chords.spans[:, 1] - gap, 9 if len(graph) < 50 else 3, axis=1)
    rim = np.stack([np.cos(around), np.sin(around)], axis=2) * 1.025
    look = {"colors": community_colors(chords.groups), "lw": 4, "capstyle": "butt", "clip_on": False}
    arcs = support.matplotlib_module("collections").LineCollection(list(rim), **look)
    ax.add_collection(marked(arcs, "tasks", range(len(graph))))
    limit, names = _chord_labels(ax, graph.tasks, chords.angles)
    _empty(ax, limit, limit)
    support.note(ax, hidden, "" if names else f"{len(graph)} tasks, too many to name", *shown.notes)
    return ax


def _empty(ax: Axes, across: float, up: float) -> None:
    """Square axes around (0, 0) without ticks and frame."""
    ax.set(xlim=(-across, across), ylim=(-up, up), xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)
    ax.xaxis.label.set(fontsize=SMALL, color=GREY)


def place_labels(ax: Axes, graph: TaskGraph, most: int, font: float = SMALL, name: str = "wide") -> int:
    """Write names beside the drawn points if they cover neither a point nor a name; return the number of written names.

    The function tries the `most` strongest tasks. On narrow screens a page shows other names than on wide ones.
    """
    points: Any = next(each for each in ax.collections if each.get_gid() == f"{support.OURS}tasks")
    places, radius = np.asarray(points.get_offsets()), float(np.sqrt(points.get_sizes().max()) / 2)
    stroke = support.matplotlib_module("patheffects").withStroke(linewidth=1.5, foreground="white")
    width, height = support.size_in_points(ax)
    inside = ax.transAxes.inverted().transform(ax.transData.transform(places)) * (width, height)
    ranked = np.argsort(-np.abs(graph.weights).sum(axis=1), kind="stable")[:most].tolist()
    texts = {k: drawn(graph.tasks[k], 14) for k in ranked}
    half_sizes = {k: (0.29 * font * len(text), 0.62 * font) for k, text in texts.items()}
    offsets = geometry.label_offsets(inside, half_sizes, (width, height), radius=radius)
    for k, offset in offsets.items():
        x, y = (inside[k] + offset) / (width, height)
        label = ax.text(x, y, texts[k], transform=ax.transAxes, fontsize=font, ha="center", va="center")
        label.set(zorder=4, path_effects=[stroke])
        marked(label, name, [k])
    return len(offsets)


def _chord_labels(ax: Axes, tasks: Sequence[object], angles: Array) -> tuple[float, bool]:
    """Write names around the unit circle in the largest font that fits; return the axes' limit and whether any fits."""
    names = [drawn(name, 16) for name in tasks]
    size = min(support.size_in_points(ax))
    for font in np.arange(SMALL, 3.4, -0.5):
        radius = size / 2 - 8 - 0.6 * font * max(map(len, names), default=0)  # the rim and a margin take 8 points
        if 2 * np.pi * radius * 0.75 >= 1.05 * font * len(names) and radius > size / 5:
            break
    else:
        return 1.1, False
    limit, ring = size / 2 / radius, 1 + 6 / radius
    for k, (name, angle) in enumerate(zip(names, angles, strict=True)):
        left = np.cos(angle) < -1e-9
        look: Look = {"ha": "right" if left else "left", "va": "center", "rotation_mode": "anchor", "fontsize": font}
        look["rotation"] = np.degrees(angle) % 360 + (180 if left else 0)
        marked(ax.text(ring * np.cos(angle), ring * np.sin(angle), name, **look), "rim", [k])
    return float(limit), True


def edge_lines(
    ax: Axes, paths: Sequence[Array], ends: Places, shown: Display, *, curved: bool = False, clip_on: bool = False
) -> None:
    """Draw edges between tasks, (E, 2), along paths; the legend names the kinds of edges that occur.

    Colour and dashes show the sign of the weight, width and opacity its size. Candidates are thin and grey, below the
    other edges, and without a sign.
    """
    if not len(ends):
        return
    weights = entries_at(shown.graph.weights, *ends.T)
    sure = np.ones(len(ends), dtype=bool) if shown.certain is None else entries_at(shown.certain, *ends.T)
    share = np.abs(weights) / (np.abs(weights).max(initial=0.0) or 1.0)
    thin = float(np.clip((120 / len(ends)) ** 0.35, 0.35, 1.0))  # Many edges are drawn thinner.
    order = np.lexsort((share, sure))
    share, sure, kinds = share[order], sure[order], np.where(sure, weights < 0, 2)[order]
    look: Look = {"colors": [_KINDS[kind][1] for kind in kinds], "linestyles": [_KINDS[kind][2] for kind in kinds]}
    look["linewidths"] = np.where(sure, 0.3 + thin * 1.9 * share, 0.4)
    look["alpha"] = np.where(sure, 0.25 + 0.6 * share, 0.5)
    ordered = [paths[k] for k in order]
    lines = support.matplotlib_module("collections").LineCollection(ordered, zorder=2, clip_on=clip_on, **look)
    for path in lines.get_paths() if curved else ():
        path.codes = [path.MOVETO, path.CURVE3, path.CURVE3]
    marked(lines, "edges", [f"{min(pair)} {max(pair)}" for pair in ends[order].tolist()])
    ax.add_collection(lines, autolim=False)
    line = support.matplotlib_module("lines").Line2D
    entries = (_KINDS[kind] for kind in np.unique(kinds))
    support.legend_above(ax, 3, handles=[line([], [], color=c, ls=dash, label=word) for word, c, dash in entries])
