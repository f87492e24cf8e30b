"""Figures of fitted models and task graphs with matplotlib (extra ``plot``).

Every function takes ``ax=None`` and returns the axes. Without `ax` it makes a figure that pyplot does not
keep: save it with ``ax.figure.savefig(…)``. Each takes plain data, or a fitted model.

Examples
--------
>>> import numpy as np
>>> precision = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
>>> plot_precision(precision, tasks=["a", "b", "c"]).get_ylabel()
'tasks, by community'
>>> len(plot_chord(precision).texts)
3
>>> plot_map(precision, coordinates=[[0, -60], [5, -55], [10, -50]], coast=False).get_xlabel()
'longitude (°E)'
>>> plot_coefficients(np.eye(3)).get_xlabel()
'features'
>>> plot_path([1.0, 0.1], [[0.0, 0.0], [0.5, -0.2]]).get_xlabel()
'penalty strength λ'
>>> plot_stability([1.0, 0.1], [[0.1, 0.2], [0.95, 0.4]]).get_ylabel()
'selection frequency of an edge'
>>> plot_transfer({"a": 3.0, "b": -1.0}).get_xlabel()
'gain over single-task fit (%)'
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mssl.exceptions import DataError, ParameterError, require
from mssl.graph.geometry import (
    NEGATIVE,
    PALETTE,
    POSITIVE,
    arc_geometry,
    chord_geometry,
    coastlines,
    community_colors,
    graph_layout,
    task_order,
    thin_edges,
)
from mssl.graph.task_graph import TaskGraph
from mssl.plots.support import (
    FAINT,
    GREY,
    NORMAL,
    SMALL,
    as_graph,
    as_names,
    axes,
    chord_labels,
    drawn,
    edge_lines,
    heat,
    history_columns,
    name_ticks,
    note,
    numbers,
    place_labels,
    region,
    sign_legend,
    size_in_points,
    square,
    strength_axis,
    strengths_of,
)

__all__ = [
    "plot_box",
    "plot_chord",
    "plot_coefficients",
    "plot_convergence",
    "plot_graph",
    "plot_map",
    "plot_path",
    "plot_precision",
    "plot_stability",
    "plot_transfer",
]

_SIGNS = (POSITIVE, NEGATIVE)


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
    graph = as_graph(source)
    ax = axes(ax, square(int(10 * np.sqrt(len(graph))), 3.5, 0.042))
    thinned, hidden = thin_edges(graph, max_edges)
    places = graph_layout(graph)
    i, j = thinned.edge_indices()
    radius = float(np.clip(30 / np.sqrt(max(len(graph), 1)), 1.6, 4.5))
    edge_lines(ax, np.stack([places[i], places[j]], axis=1), thinned.weights[i, j], _SIGNS)
    colors = community_colors(graph.community_labels())
    ax.scatter(*places.T, s=(2 * radius) ** 2, c=colors, edgecolors="white", linewidths=0.4, zorder=3)
    reach = np.abs(places).max(axis=0, initial=0.05)
    ax.set(xlim=np.array([-1.18, 1.18]) * reach[0], ylim=np.array([-1.1, 1.1]) * max(reach[1], 0.4))
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)
    ranked = np.argsort(-np.abs(graph.weights).sum(axis=1), kind="stable")[:max_labels]
    named = place_labels(ax, places, graph.tasks, radius, ranked.tolist())
    note(ax, hidden, f"{named} of {len(graph)} tasks named" if named < len(graph) else "")
    sign_legend(ax, thinned.weights, _SIGNS, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
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
    if kind not in ("partial", "precision"):
        raise ParameterError(f"kind={kind!r}: expected 'partial' or 'precision'.")
    graph = as_graph(source, tasks)
    names = as_names(tasks, graph, "tasks", len(graph), "tasks")
    if kind == "partial":
        values, label = graph.weights.copy(), "partial correlation"
    elif isinstance(source, TaskGraph):
        raise ParameterError("a TaskGraph holds no precision; pass the model or the matrix, or kind='partial'.")
    else:
        values, label = numbers(getattr(source, "precision_", source), "precisions", 2).copy(), "precision"
    np.fill_diagonal(values, np.nan)
    order = task_order(graph) if ordered else np.arange(len(graph))
    ax = axes(ax, square(len(graph), 3.7, 0.105 if len(graph) <= 66 else 0.02))
    heat(ax, values[np.ix_(order, order)], label, "equal")
    width, height = size_in_points(ax)
    what = "tasks, by community" if ordered else "tasks"
    name_ticks(ax.yaxis, [names[k] for k in order], height, what)
    name_ticks(ax.xaxis, [names[k] for k in order], width, what)
    if ordered:
        groups = graph.community_labels()
        sizes = np.bincount(groups)
        for edge in np.cumsum(sizes[sizes > 1]) - 0.5:
            ax.axhline(edge, color=FAINT, lw=0.4)
            ax.axvline(edge, color=FAINT, lw=0.4)
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
    collections: Any = require("matplotlib.collections", "plot", "A chord diagram")
    whole = as_graph(source)
    ax = axes(ax, square(len(whole), 3.8, 0.085))
    graph, hidden = thin_edges(whole, max_edges)
    chords = chord_geometry(graph, whole.community_labels().tolist() if groups is None else groups)
    edge_lines(ax, chords.curves, chords.weights, _SIGNS)
    around = np.linspace(chords.spans[:, 0], chords.spans[:, 1], 9, axis=1)
    rim = np.stack([np.cos(around), np.sin(around)], axis=2) * 1.025
    ax.add_collection(
        collections.LineCollection(list(rim), colors=community_colors(chords.groups), lw=4, capstyle="butt")
    )
    limit, names = chord_labels(ax, graph.tasks, chords.angles)
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit), xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)
    note(ax, hidden, "" if names else f"{len(graph)} tasks, too many to name")
    sign_legend(ax, chords.weights, _SIGNS, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return ax


def plot_map(
    source: Any,
    ax: Any = None,
    *,
    coordinates: ArrayLike | None = None,
    values: ArrayLike | None = None,
    label: str = "value",
    max_edges: int | None = None,
    coast: bool = True,
) -> Any:
    """Draw tasks on a map, their edges as great-circle arcs, with coastlines.

    Parameters
    ----------
    source : TaskGraph, fitted model, or (K, K) precision matrix
    ax : matplotlib Axes, optional
    coordinates : (K, 2), optional
        Latitude and longitude in degrees; by default those of the graph.
    values : (K,), optional
        Colour of the tasks, such as an error; by default their communities.
    label : str
        What `values` are, with their unit.
    max_edges : int, optional
        Draw the strongest edges only, and say so.
    coast : bool
        Draw coastlines (needs global-land-mask).
    """
    whole = as_graph(source)
    if coordinates is not None:
        whole = TaskGraph(whole.tasks, whole.adjacency, whole.weights, whole.confidence, coordinates)  # type: ignore[arg-type]
    if whole.coordinates is None or not len(whole):
        raise DataError("the tasks have no coordinates; pass coordinates=, the latitude and longitude of each task.")
    colors = None if values is None else numbers(values, "values", 1)
    if colors is not None and len(colors) != len(whole):
        raise DataError(f"{len(colors)} values for {len(whole)} tasks; give one each.")
    graph, hidden = thin_edges(whole, min(300, max(60, len(whole))) if max_edges is None else max_edges)
    latitude, longitude = whole.coordinates[:, 0], (whole.coordinates[:, 1] + 180) % 360 - 180
    ax = axes(ax, (3.8, 3.2))
    box = region(latitude, longitude)
    if coast:
        collections: Any = require("matplotlib.collections", "plot", "A map")
        step = float(np.clip((box[3] - box[2]) / 250, 0.1, 0.5))
        ax.add_collection(collections.LineCollection(coastlines(box, step), colors=FAINT, lw=0.5, zorder=1))
    i, j = graph.edge_indices()
    arcs = arc_geometry(whole.coordinates, np.column_stack([i, j]))
    pieces = [(piece, graph.weights[a, b]) for a, b, parts in zip(i, j, arcs, strict=True) for piece in parts]
    edge_lines(ax, [piece for piece, _ in pieces], np.array([weight for _, weight in pieces]), _SIGNS)
    look = {"s": float(np.clip(2000 / len(whole), 9, 30)), "edgecolors": "white", "linewidths": 0.3, "zorder": 3}
    if colors is None:
        ax.scatter(longitude, latitude, c=community_colors(whole.community_labels()), **look)
    else:
        bar = ax.figure.colorbar(ax.scatter(longitude, latitude, c=colors, cmap="cividis", **look), ax=ax, pad=0.03)
        bar.set_label(label, fontsize=NORMAL)
        bar.ax.tick_params(labelsize=SMALL)
    south, north, west, east = box
    ax.set(xlim=(west, east), ylim=(south, north), aspect=1 / max(np.cos(np.radians((south + north) / 2)), 0.2))
    ax.set_xlabel(f"longitude (°E)\n{hidden}".strip(), fontsize=NORMAL)
    ax.set_ylabel("latitude (°N)", fontsize=NORMAL)
    sign_legend(ax, graph.weights, _SIGNS, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return ax


def plot_coefficients(
    source: Any,
    ax: Any = None,
    *,
    tasks: Iterable[Any] | None = None,
    features: Iterable[Any] | None = None,
    label: str = "coefficient",
) -> Any:
    """Draw coefficients as a heat map, tasks down (by community where there is a graph), features across.

    Parameters
    ----------
    source : fitted model, or (K, d) array
    ax : matplotlib Axes, optional
    tasks, features : K and d names, optional
    label : str
        What the colours show.
    """
    values = numbers(getattr(source, "coef_", source), "coefficients", 2)
    names = as_names(tasks, source, "tasks_", values.shape[0], "tasks")
    columns = as_names(features, source, "feature_names_in_", values.shape[1], "features")
    graph = getattr(source, "graph_", None)
    known = isinstance(graph, TaskGraph) and len(graph) == len(values)
    order = task_order(graph) if isinstance(graph, TaskGraph) and known else np.arange(len(values))
    ax = axes(ax, (4.2, 3.2))
    heat(ax, values[order], label)
    width, height = size_in_points(ax)
    name_ticks(ax.yaxis, [names[k] for k in order], height, "tasks, by community" if known else "tasks")
    name_ticks(ax.xaxis, columns, width, "features")
    return ax


def plot_path(
    lambdas: ArrayLike,
    values: ArrayLike,
    ax: Any = None,
    *,
    names: Iterable[Any] | None = None,
    label: str = "coefficient",
    chosen: float | None = None,
) -> Any:
    """Draw coefficients or edge weights along a path of penalty strengths.

    Parameters
    ----------
    lambdas : (L,)
    values : (L, …)
        One row per strength; further axes are flattened.
    ax : matplotlib Axes, optional
    names : names of the flattened columns, optional
        The seven that get largest are named and coloured, the others grey.
    label : str
        What the values are.
    chosen : float, optional
        Mark the strength that was chosen.
    """
    table = numbers(values, "values along the path", 2, 3)
    table = table.reshape(len(table), -1)
    strengths = strengths_of(lambdas, len(table))
    titles = as_names(names, None, "", table.shape[1], "columns")
    ax = axes(ax)
    order = np.argsort(-np.abs(table).max(axis=0), kind="stable")
    ax.plot(strengths, table[:, order[len(PALETTE) :]], color=FAINT, lw=0.5)
    for color, column in zip(PALETTE, order, strict=False):
        ax.plot(
            strengths, table[:, column], color=color, lw=1.3, label=drawn(titles[column]) if names is not None else None
        )
    ax.axhline(0, color=GREY, lw=0.5)
    if chosen is not None:
        ax.axvline(chosen, color="black", lw=0.8, ls=":", label="chosen")
    strength_axis(ax, strengths)
    ax.set_ylabel(label, fontsize=NORMAL)
    if names is not None or chosen is not None:
        ax.legend(fontsize=SMALL, frameon=False)
    return ax


def plot_stability(lambdas: ArrayLike, frequencies: ArrayLike, ax: Any = None, *, threshold: float = 0.9) -> Any:
    """Draw how often each edge is selected against the penalty strength, and the threshold.

    Parameters
    ----------
    lambdas : (L,)
    frequencies : (L, n_edges) or (L, K, K)
        Selection frequencies in [0, 1]; of square matrices, the upper triangle.
    ax : matplotlib Axes, optional
    threshold : float
        Edges that reach it somewhere are selected.

    References
    ----------
    Meinshausen & Bühlmann, Stability selection, 2010, doi:10.1111/j.1467-9868.2010.00740.x.
    """
    table = numbers(frequencies, "selection frequencies", 2, 3)
    if table.ndim == 3:
        if table.shape[1] != table.shape[2]:
            raise DataError(f"selection frequencies have shape {table.shape}; expected (L, K, K) or (L, n_edges).")
        table = table[:, *np.triu_indices(table.shape[1], 1)]
    if table.size and (table.min() < 0 or table.max() > 1):
        raise DataError(f"selection frequencies run from {table.min():g} to {table.max():g}; expected [0, 1].")
    strengths = strengths_of(lambdas, len(table))
    ax = axes(ax)
    stable = (table >= threshold).any(axis=0)
    for columns, color, width, word in ((~stable, FAINT, 0.5, "below"), (stable, POSITIVE, 1.0, "stable")):
        ax.plot(strengths, table[:, columns], color=color, lw=width)
        ax.plot([], [], color=color, lw=1.5, label=f"{word} ({int(columns.sum())})")
    ax.axhline(threshold, color="black", lw=0.9, ls="--", label=f"threshold {threshold:g}")
    strength_axis(ax, strengths)
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("selection frequency of an edge", fontsize=NORMAL)
    ax.legend(fontsize=SMALL, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return ax


def plot_convergence(source: Any, ax: Any = None) -> Any:
    """Draw how far the objective is above its lowest value, and the duality gaps, after each outer step.

    Parameters
    ----------
    source : fitted model, or its history: a mapping of columns or a sequence of records with any of
        ``objective``, ``gap_weights`` (or ``gap_w``), ``gap_structure`` (or ``gap_omega``)
    ax : matplotlib Axes, optional
    """
    columns = history_columns(source)
    if "objective" in columns:
        columns["objective"] = columns["objective"] - np.nanmin(columns["objective"])
    words = {
        "objective": "objective − lowest",
        "gap_weights": "gap of coefficients",
        "gap_structure": "gap of precision",
    }
    ax = axes(ax)
    for (name, values), marker, color in zip(columns.items(), "os^", PALETTE, strict=False):
        shown = np.where(values > 0, values, np.nan)
        ax.plot(np.arange(1, len(shown) + 1), shown, color=color, marker=marker, ms=3, lw=1, label=words[name])
    ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("outer step", fontsize=NORMAL)
    ax.set_ylabel("distance (objective's unit)", fontsize=NORMAL)
    ax.legend(fontsize=SMALL, frameon=False)
    return ax


def plot_transfer(
    gains: Any, ax: Any = None, *, tasks: Iterable[Any] | None = None, label: str = "gain over single-task fit (%)"
) -> Any:
    """Draw what each task gains from the others as sorted bars; tasks that lose are hatched.

    Parameters
    ----------
    gains : mapping of task to gain, (K,) array, or rows with ``task`` and ``gain``
    ax : matplotlib Axes, optional
    tasks : K names, optional
    label : str
        What the gain is, with its unit.
    """
    if isinstance(gains, Mapping):
        found, amounts = list(gains), list(gains.values())
    else:
        rows = list(gains)
        told = bool(rows) and all(hasattr(row, "task") and hasattr(row, "gain") for row in rows)
        found = [row.task for row in rows] if told else list(range(len(rows)))
        amounts = [row.gain for row in rows] if told else rows
    values = numbers(amounts, "gains", 1)
    names = as_names(found if tasks is None else tasks, None, "", len(values), "tasks")
    order = np.argsort(-values, kind="stable")
    ax = axes(ax, (3.6, float(np.clip(0.6 + 0.13 * len(values), 2.2, 7.0)) if len(values) <= 80 else 3.4))
    heights = np.arange(len(values))
    for lost, color, hatch, word in ((False, POSITIVE, "", "gain"), (True, NEGATIVE, "////", "loss")):
        part = (values[order] < 0) == lost
        style = {"color": color} if not lost else {"facecolor": "white", "edgecolor": color, "hatch": hatch, "lw": 0.6}
        if part.any():
            ax.barh(
                heights[part],
                values[order][part],
                height=0.8 if len(values) <= 80 else 1.0,
                label=f"{word} ({int(part.sum())})",
                **style,
            )
    ax.axvline(0, color=GREY, lw=0.6)
    ax.set_ylim(len(values) - 0.4, -0.6)
    name_ticks(ax.yaxis, [names[k] for k in order], size_in_points(ax)[1], "tasks, best first")
    ax.set_xlabel(label, fontsize=NORMAL)
    ax.legend(fontsize=SMALL, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return ax


def plot_box(
    errors: Mapping[str, ArrayLike], ax: Any = None, *, tasks: Iterable[Any] | None = None, label: str = "RMSE"
) -> Any:
    """Draw box plots of errors: per task and method, or per method (Fig. 1 of the paper).

    Parameters
    ----------
    errors : mapping of method to (runs, K) or (runs,)
    ax : matplotlib Axes, optional
    tasks : K names, optional
    label : str
        What the errors are, with their unit.
    """
    patches: Any = require("matplotlib.patches", "plot", "Box plots")
    if not errors or len(errors) > len(PALETTE):
        raise DataError(f"{len(errors)} methods; expected between 1 and {len(PALETTE)}, which colours can tell apart.")
    tables = {name: numbers(values, f"errors of {name!r}", 1, 2) for name, values in errors.items()}
    columns = {table.shape[1:] for table in tables.values()}
    if len(columns) > 1:
        raise DataError(f"the methods have different tasks, shapes (runs, …) {sorted(columns)}; give all the same.")
    per_task = bool(next(iter(columns)))
    groups = next(iter(columns))[0] if per_task else 1
    ax = axes(ax, (float(np.clip(1.2 + 0.13 * groups * len(tables), 3.0, 7.0)), 2.6))
    width = 0.8 / len(tables)
    for k, (table, color) in enumerate(zip(tables.values(), PALETTE, strict=False)):
        where = np.arange(groups) + (k - (len(tables) - 1) / 2) * width if per_task else [k]
        ax.boxplot(
            table,
            positions=where,
            widths=0.8 * (width if per_task else 0.7),
            patch_artist=True,
            boxprops={"facecolor": color, "lw": 0.5},
            medianprops={"color": "black", "lw": 1},
            flierprops={"ms": 2, "markeredgewidth": 0.4},
            manage_ticks=False,
        )
    if per_task:
        ax.set_xlim(-0.6, groups - 0.4)
        name_ticks(ax.xaxis, as_names(tasks, None, "", groups, "tasks"), size_in_points(ax)[0], "task")
        handles = [patches.Patch(facecolor=c, label=drawn(name)) for name, c in zip(tables, PALETTE, strict=False)]
        ax.legend(
            handles=handles, fontsize=SMALL, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4
        )
    else:
        name_ticks(ax.xaxis, list(tables), size_in_points(ax)[0], "method")
    ax.set_ylabel(label, fontsize=NORMAL)
    return ax
