"""Pictures of task graphs: points and lines, matrices, circles of chords, maps."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl._typing import TaskMatrix
from mssl._validation import check_choice
from mssl.exceptions import ParameterError
from mssl.graph.display import Display
from mssl.graph.geometry import (
    NEGATIVE,
    POSITIVE,
    chord_geometry,
    community_colors,
    graph_layout,
    label_offsets,
    task_order,
    thin_edges,
)
from mssl.graph.task_graph import TaskGraph
from mssl.model.task_matrix import entries_at
from mssl.plots.support import (
    GREY,
    SMALL,
    FloatArray,
    as_display,
    as_graph,
    as_names,
    axes,
    drawn,
    heat,
    legend_above,
    marked,
    matplotlib_module,
    name_ticks,
    numbers,
    part_groups,
    size_in_points,
    square,
    wrapped,
)

_DASHES = (0, (3, 1.5))  # of negative edges, so that colour alone does not tell the sign


def plot_graph(source: Any, ax: Any = None, *, max_edges: int | None = None, max_labels: int = 60) -> Any:
    """Draw the task graph: strongly related tasks close, communities coloured, names where there is room.

    Parameters
    ----------
    source : TaskGraph, fitted model, or (K, K) precision matrix
    ax : matplotlib Axes, optional
    max_edges : int, optional
        Draw the strongest edges only, and say so; see `mssl.graph.geometry.thin_edges`.
    max_labels : int
        How many names to try, strongest tasks first.

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
    graph, certain, groups, notes, *_ = as_display(source)
    ax = axes(ax, square(int(10 * np.sqrt(len(graph))), 3.5, 0.042))
    thinned, hidden = thin_edges(graph, max_edges)
    places = graph_layout(graph)
    i, j = thinned.edge_indices()
    radius = float(np.clip(30 / np.sqrt(max(len(graph), 1)), 1.6, 4.5))
    weights, sure = entries_at(thinned.weights, i, j), of_edges(certain, i, j)
    edge_lines(ax, np.stack([places[i], places[j]], axis=1), weights, sure, np.column_stack([i, j]))
    look = {"c": community_colors(groups), "edgecolors": "white", "linewidths": 0.4, "zorder": 3, "clip_on": False}
    marked(ax.scatter(*places.T, s=(2 * radius) ** 2, **look), "tasks", list(map(str, range(len(graph)))))
    reach = np.abs(places).max(axis=0, initial=0.05)
    ax.set(xlim=np.array([-1.18, 1.18]) * reach[0], ylim=np.array([-1.1, 1.1]) * max(reach[1], 0.4))
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)
    named = place_labels(ax, places, graph, radius, max_labels)
    _note(ax, hidden, f"{named} of {len(graph)} tasks named" if named < len(graph) else "", *notes)
    sign_legend(ax, weights, sure)
    return ax


def plot_precision(
    source: Any, ax: Any = None, *, tasks: Iterable[Any] | None = None, kind: str = "partial", ordered: bool = True
) -> Any:
    """Draw partial correlations (or the precision) between tasks as a heat map, ordered by community.

    Parameters
    ----------
    source : fitted model, TaskGraph, or (K, K) precision matrix
    ax : matplotlib Axes, optional
    tasks : K names, optional
    kind : {"partial", "precision"}
        The precision needs a model or a matrix. The diagonal, which says nothing of relations, is grey.
    ordered : bool
        Put the tasks of a community side by side, with lines between communities.
    """
    check_choice("kind", kind, ("partial", "precision"))
    graph = source.graph if isinstance(source, Display) else as_graph(source, tasks)
    names = as_names(tasks, graph, "tasks", len(graph), "tasks")
    if kind == "partial":
        values, label = np.asarray(graph.weights), "partial correlation"
    elif isinstance(source, TaskGraph):
        raise ParameterError("A TaskGraph holds no precision; give the model or the matrix, or kind='partial'.")
    else:
        matrix = getattr(source, "precision_", source)
        dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
        values, label = numbers(dense, "precisions", 2), "precision"
    groups = as_display(source if isinstance(source, Display) else graph).groups
    order = task_order(graph, groups) if ordered else np.arange(len(graph))
    ax = axes(ax, square(len(graph), 3.7, 0.105 if len(graph) <= 66 else 0.02))
    off = np.where(np.eye(len(graph), dtype=bool), np.nan, values)
    heat(ax, off[np.ix_(order, order)], label, "equal")
    width, height = size_in_points(ax)
    what = "tasks, by community" if ordered else "tasks"
    name_ticks(ax.yaxis, [names[k] for k in order], height, what)
    name_ticks(ax.xaxis, [names[k] for k in order], width, what)
    if ordered:
        part_groups(ax, groups)
    return ax


def plot_chord(
    source: Any, ax: Any = None, *, groups: Sequence[Any] | None = None, max_edges: int | None = None
) -> Any:
    """Draw the tasks on a circle, group by group, and the edges as curves inside it.

    Parameters
    ----------
    source : TaskGraph, fitted model, or (K, K) precision matrix
    ax : matplotlib Axes, optional
    groups : K labels, optional
        By default the communities.
    max_edges : int, optional
        Draw the strongest edges only, and say so; see `mssl.graph.geometry.thin_edges`.
    """
    collections = matplotlib_module("collections")
    whole, certain, found, notes, *_ = as_display(source)
    ax = axes(ax, square(len(whole), 3.8, 0.085))
    graph, hidden = thin_edges(whole, max_edges)
    chords = chord_geometry(graph, found.tolist() if groups is None else groups)
    sure = of_edges(certain, *(ends[::-1] for ends in graph.edge_indices()))  # the weakest first, as the chords
    edge_lines(ax, chords.curves, chords.weights, sure, chords.ends, curved=True)
    gap = 0.04 * (chords.spans[:, 1] - chords.spans[:, 0])
    around = np.linspace(chords.spans[:, 0] + gap, chords.spans[:, 1] - gap, 9 if len(graph) < 50 else 3, axis=1)
    rim = np.stack([np.cos(around), np.sin(around)], axis=2) * 1.025
    look = {"colors": community_colors(chords.groups), "lw": 4, "capstyle": "butt", "clip_on": False}
    arcs = collections.LineCollection(list(rim), **look)
    ax.add_collection(marked(arcs, "tasks", list(map(str, range(len(graph))))))
    limit, names = _chord_labels(ax, graph.tasks, chords.angles)
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit), xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)
    _note(ax, hidden, "" if names else f"{len(graph)} tasks, too many to name", *notes)
    sign_legend(ax, chords.weights, sure)
    return ax


def of_edges(certain: TaskMatrix | None, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of some edges are certain; all where nothing is known about their error."""
    return np.ones(len(i), dtype=bool) if certain is None else entries_at(certain, i, j)


def place_labels(
    ax: Any, places: FloatArray, graph: TaskGraph, radius: float, most: int, font: float = SMALL, name: str = "wide"
) -> int:
    """Write names beside points where they cover neither a point nor a name; return how many found room.

    `radius` is that of the markers in points; the `most` strongest tasks are tried.
    """
    effects = matplotlib_module("patheffects")
    width, height = size_in_points(ax)
    inside = ax.transAxes.inverted().transform(ax.transData.transform(places)) * (width, height)
    ranked = np.argsort(-np.abs(graph.weights).sum(axis=1), kind="stable")[:most].tolist()
    texts = {k: drawn(graph.tasks[k], 14) for k in ranked}
    half_sizes = {k: (0.29 * font * len(text), 0.62 * font) for k, text in texts.items()}
    offsets = label_offsets(inside, half_sizes, (width, height), radius=radius)
    for k, offset in offsets.items():
        label_position = (inside[k] + offset) / (width, height)
        label = ax.text(*label_position, texts[k], transform=ax.transAxes, fontsize=font, ha="center", va="center")
        label.set(zorder=4, path_effects=[effects.withStroke(linewidth=1.5, foreground="white")])
        marked(label, name, [str(k)])
    return len(offsets)


def _chord_labels(ax: Any, tasks: Sequence[Any], angles: FloatArray) -> tuple[float, bool]:
    """Write names around the unit circle in the largest font that fits; return the axes' limit, and if any fit."""
    names = [drawn(name, 16) for name in tasks]
    size = min(size_in_points(ax))
    for font in np.arange(SMALL, 3.4, -0.5):
        length = 0.6 * font * max((len(name) for name in names), default=0)
        radius = size / 2 - length - 8  # in points; the rim and a margin take 8
        if 2 * np.pi * radius * 0.75 >= 1.05 * font * len(names) and radius > size / 5:
            break
    else:
        return 1.1, False
    limit, ring = size / 2 / radius, 1 + 6 / radius
    for name, angle in zip(names, angles, strict=True):
        left = np.cos(angle) < -1e-9
        alignment = {"ha": "right" if left else "left", "va": "center", "rotation_mode": "anchor"}
        turn = np.degrees(angle) % 360 + (180 if left else 0)
        ax.text(ring * np.cos(angle), ring * np.sin(angle), name, fontsize=font, rotation=turn, **alignment)
    for k, label in enumerate(ax.texts):
        marked(label, "rim", [str(k)])
    return float(limit), True


def _note(ax: Any, *parts: str) -> None:
    """Say below the drawing what it does not show."""
    text = "; ".join(part for part in parts if part)
    if text:
        ax.set_xlabel(wrapped(ax, text, SMALL), fontsize=SMALL, color=GREY)


def sign_legend(ax: Any, weights: FloatArray, certain: NDArray[np.bool_]) -> None:
    """Explain the colours of edges, as far as they occur."""
    lines = matplotlib_module("lines")
    kinds = [
        ("positive", POSITIVE, "-", certain & (weights > 0)),
        ("negative", NEGATIVE, _DASHES, certain & (weights < 0)),
        ("candidate", GREY, "-", ~certain),
    ]
    handles = [lines.Line2D([], [], color=c, ls=s, label=label) for label, c, s, there in kinds if there.any()]
    if handles:
        legend_above(ax, 3, handles=handles)


def edge_lines(
    ax: Any,
    paths: Sequence[FloatArray] | FloatArray,
    weights: FloatArray,
    certain: NDArray[np.bool_],
    ends: NDArray[np.intp],
    *,
    curved: bool = False,
    clip_on: bool = False,
) -> None:
    """Draw edges: colour and dash by sign, width and opacity by |weight|; candidates thin and grey below them."""
    collections = matplotlib_module("collections")
    if not len(weights):
        return
    share = np.abs(weights) / (np.abs(weights).max(initial=0.0) or 1.0)
    thin = float(np.clip((120 / len(weights)) ** 0.35, 0.35, 1.0))  # many edges would run into each other
    order = np.lexsort((share, certain))
    looks = [
        (GREY, 0.4, "-", 0.5)
        if not certain[k]
        # A sign is shown where it is certain.
        else (
            POSITIVE if weights[k] >= 0 else NEGATIVE,
            0.3 + thin * 1.9 * share[k],
            "-" if weights[k] >= 0 else _DASHES,
            0.25 + 0.6 * share[k],
        )
        for k in order
    ]
    colors, widths, styles, alphas = map(list, zip(*looks, strict=True))
    look = {
        "colors": colors,
        "linewidths": widths,
        "linestyles": styles,
        "alpha": alphas,
        "zorder": 2,
        "clip_on": clip_on,
    }
    lines = collections.LineCollection([paths[k] for k in order], **look)
    for path in lines.get_paths() if curved else ():
        path.codes = [path.MOVETO, path.CURVE3, path.CURVE3]
    marked(lines, "edges", [f"{min(pair)} {max(pair)}" for pair in ends[order].tolist()])
    ax.add_collection(lines, autolim=False)
