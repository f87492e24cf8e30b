"""Pictures of fits: coefficients, paths, stability, convergence, gains, errors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from mssl._validation import check_choice, check_number
from mssl.data.columns import feature_spreads
from mssl.exceptions import DataError
from mssl.graph.geometry import NEGATIVE, PALETTE, POSITIVE, task_order
from mssl.graph.task_graph import TaskGraph
from mssl.plots.support import (
    COEF_SHARE,
    FAINT,
    GREY,
    NORMAL,
    SMALL,
    FloatArray,
    as_display,
    as_names,
    axes,
    distances,
    drawn,
    heat,
    history_columns,
    legend_above,
    marked,
    matplotlib_module,
    name_ticks,
    numbers,
    part_groups,
    size_in_points,
)

_FOREST = 60  # lines of a forest plot that can be read
MOST_LINES = 600  # curves of edges, stable and not: more cannot be told from each other


class Stability(NamedTuple):
    """Selection frequencies (L, E) of edges along a path: ``ends`` is (E, 2), or None where edges are not named."""

    lambdas: FloatArray
    frequencies: FloatArray
    threshold: float
    ends: NDArray[np.intp] | None


def plot_coefficients(
    source: Any,
    ax: Any = None,
    *,
    tasks: Iterable[Any] | None = None,
    features: Iterable[Any] | None = None,
    label: str = "coefficient",
    kind: str = "heat",
    level: float = 0.9,
    per: str = "unit",
) -> Any:
    """Draw coefficients, tasks down (by community where there is a graph), features across; or with their intervals.

    Parameters
    ----------
    source : fitted model, or (K, d) array
    ax : matplotlib Axes, optional
    tasks, features : K and d names, optional
    label : str
        What the colours or lengths show.
    kind : {"heat", "forest"}
        A heat map, or one line for each weight with its interval (of models that have ``coef_std_``), feature by
        feature. A forest shows the 60 weights of the features that are largest on average, times the spread of their
        columns where the model knows it.
    level : float
        Of the intervals.
    per : {"unit", "spread", "largest"}
        What a coefficient is the change for: one unit of its column, or one standard deviation of it in training, which
        makes columns of different units comparable; or its share of the largest coefficient of its column.
    """
    values = numbers(getattr(source, "coef_", source), "coefficients", 2)
    spreads = feature_spreads(source, values.shape[1])
    scale = np.ones(values.shape[1])
    if check_choice("per", per, ("unit", "spread", "largest")) == "spread":
        if spreads is None:
            raise DataError("The spread of the columns is not known; give a fitted model without feature maps.")
        scale, label = spreads, f"{label} × spread of the column"
    elif per == "largest":
        scale, label = 1 / np.abs(values).max(axis=0, initial=1e-300), "share of the feature's largest"
    names = as_names(tasks, source, "tasks_", values.shape[0], "tasks")
    attribute = "features_" if hasattr(source, "features_") else "feature_names_in_"
    columns = as_names(features, source, attribute, values.shape[1], "features")
    if check_choice("kind", kind, ("heat", "forest")) == "forest":
        check_number("level", level, above=0, below=1)
        sizes = np.abs(values).mean(axis=0) * (1.0 if spreads is None else spreads)
        std = getattr(source, "coef_std_", None)
        half = None if std is None else float(ndtri(0.5 + level / 2)) * scale * std
        label = label if std is None else f"{label}, {level:.0%} interval"
        return _forest(ax, scale * values, half, (names, columns), label, sizes)
    graph, order, what, groups = getattr(source, "graph_", None), np.arange(len(values)), "tasks", None
    ax = axes(ax, (4.2, 3.2))
    if isinstance(graph, TaskGraph) and len(graph) == len(values):
        groups = as_display(graph).groups
        order, what = task_order(graph, groups), "tasks, by community"
    heat(ax, (values * scale)[order], label, share=1.0 if per == "largest" else COEF_SHARE)
    width, height = size_in_points(ax)
    name_ticks(ax.yaxis, [names[k] for k in order], height, what)
    name_ticks(ax.xaxis, columns, width, "features")
    if groups is not None:
        part_groups(ax, groups, across=False)
    return ax


def _forest(
    ax: Any, values: FloatArray, half: FloatArray | None, names: tuple[list[Any], list[Any]], label: str, sizes: Any
) -> Any:
    """Weights with half widths of intervals, one line each, grouped by feature: those of the largest sizes."""
    K, d = values.shape
    shown = np.argsort(-sizes, kind="stable")[: max(1, _FOREST // K)]
    lines = [(j, k) for j in sorted(shown.tolist()) for k in range(min(K, _FOREST))]
    heights = np.array([row + row // min(K, _FOREST) for row in range(len(lines))])  # a gap after every feature
    ax = axes(ax, (4.2, float(np.clip(0.13 * heights[-1] + 0.8, 2.0, 9.0))))
    centre = np.array([values[k, j] for j, k in lines])
    reach = np.zeros(len(lines)) if half is None else np.array([half[k, j] for j, k in lines])
    sure = np.abs(centre) > reach if half is not None else np.zeros(len(lines), dtype=bool)
    for part, color in ((sure, POSITIVE), (~sure, GREY)):
        ax.errorbar(centre[part], heights[part], xerr=reach[part], fmt="o", ms=2.5, lw=0.9, color=color, ecolor=color)
    ax.axvline(0, color=GREY, lw=0.6)
    ax.set_ylim(heights[-1] + 0.7, -0.7)
    ax.set_yticks(heights, [drawn(f"{names[1][j]} · {names[0][k]}", 28) for j, k in lines], fontsize=SMALL)
    ax.set_xlabel(label, fontsize=NORMAL)
    if d > len(shown) or K > _FOREST:
        ax.set_title(f"largest {len(shown)} of {d} features", fontsize=SMALL, loc="left")
    return ax


def plot_path(
    lambdas: Any,
    values: ArrayLike | None = None,
    ax: Any = None,
    *,
    names: Iterable[Any] | None = None,
    label: str = "coefficient",
    chosen: float | None = None,
    along: str | None = None,
) -> Any:
    """Draw coefficients or edge weights along a path of penalty strengths.

    Parameters
    ----------
    lambdas : RegularizationPath, or (L,)
        A path of fits, or strengths.
    values : (L, …), optional
        One row per strength; further axes are flattened. Of a path by default the coefficients.
    ax : matplotlib Axes, optional
    names : names of the flattened columns, optional
        The seven that get largest are named and coloured, the others grey. By default those of a path's coefficients.
    label : str
        What the values are.
    chosen : float, optional
        Mark the strength that was chosen.
    along : {"graph_penalty", "coef_penalty"}, optional
        Which strength of a RegularizationPath: that of the graph, λ, or that of the coefficients, γ; by default the one
        with more values. The fits drawn have all other parameters in common, and the title says which.

    Examples
    --------
    >>> from mssl.datasets import make_clustered_tasks
    >>> from mssl.model_selection import regularization_path
    >>> data = make_clustered_tasks(n_features=8, n_samples=40, random_state=0)
    >>> path = regularization_path(data.X, data.y, data.tasks, graph_penalties=[0.1], coef_penalties=4)
    >>> plot_path(path).get_xlabel()
    'penalty strength γ'
    """
    symbol, held = "λ", ""
    if hasattr(lambdas, "coefs"):
        lambdas, values, names, symbol, held = _of_path(lambdas, values, names, along)
    table = numbers(values, "values along the path", 2, 3)
    table = table.reshape(len(table), -1)
    strengths = _strengths(lambdas, len(table))
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
    _strength_axis(ax, strengths, symbol)
    ax.set_title(held, fontsize=SMALL, loc="left")
    ax.set_ylabel(label, fontsize=NORMAL)
    if names is not None or chosen is not None:
        ax.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))  # covers no line
    return ax


def _of_path(path: Any, values: Any, names: Any, along: str | None) -> tuple[Any, Any, Any, str, str]:
    """Strengths, values and names along one parameter of a path, its symbol, and what the other one is held at."""
    symbols = {"graph_penalty": "λ", "coef_penalty": "γ"}
    if along is None:
        along = max(symbols, key=lambda name: len(path.along(name)))
    other = next(name for name in symbols if name != check_choice("along", along, tuple(symbols)))
    points = path.along(along)
    if len(points) < 2:
        raise DataError(
            f"No two fits of the path differ in {along} alone; give regularization_path several values of it, and the "
            f"same values of {other} for each."
        )
    if values is None:
        values = path.coefs
        titles = [f"{feature} · {task}" for task in path.tasks for feature in path.features]
        names = titles if names is None and len(titles) == values[0].size else names
    held = f"{symbols[other]} = {path.values(other)[points[0]]:.3g}"
    return path.values(along)[points], np.asarray(values)[points], names, symbols[along], held


def plot_stability(
    lambdas: Any, frequencies: ArrayLike | None = None, ax: Any = None, *, threshold: float | None = None
) -> Any:
    """Draw how often each edge is selected against the penalty strength, and the threshold.

    Parameters
    ----------
    lambdas : fitted StabilitySelection, or (L,)
        A selection, any object or mapping with ``lambdas`` and ``frequencies``, a tuple of these, or strengths.
    frequencies : (L, n_edges) or (L, K, K), optional
        Selection frequencies in [0, 1]; of square matrices, the upper triangle. Those of the selection by default.
    ax : matplotlib Axes, optional
    threshold : float, optional
        Edges that reach it somewhere are selected. That of the selection by default, or 0.9.

    References
    ----------
    Meinshausen & Bühlmann, Stability selection, 2010, doi:10.1111/j.1467-9868.2010.00740.x.
    """
    strengths, table, threshold, ends = read_stability(lambdas, frequencies, threshold)
    ax = axes(ax)
    collections = matplotlib_module("collections")
    top = table.max(axis=0)
    stable = top >= threshold
    order = np.argsort(-top, kind="stable")
    for kept, color, width, word in ((~stable, FAINT, 0.5, "below"), (stable, POSITIVE, 1.0, "stable")):
        part = order[kept[order]][:MOST_LINES][::-1]  # the most stable lie on top
        curves = [np.column_stack([strengths, table[:, k]]) for k in part]
        lines = collections.LineCollection(curves, colors=color, lw=width)
        ax.add_collection(marked(lines, "path", [] if ends is None else [f"{i} {j}" for i, j in ends[part]]))
        ax.plot([], [], color=color, lw=1.5, label=f"{word} ({int(kept.sum())})")
    ax.axhline(threshold, color="black", lw=0.9, ls="--", label=f"threshold {threshold:g}")
    ax.autoscale_view()
    _strength_axis(ax, strengths)
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("selection frequency of an edge", fontsize=NORMAL)
    legend_above(ax, 3)
    return ax


def read_stability(source: Any, frequencies: Any = None, threshold: float | None = None) -> Stability:
    """Strengths, frequencies and threshold of a stability selection, in whichever form they came."""
    if isinstance(source, Stability):
        return source
    if frequencies is not None:
        lambdas, own = source, None
    elif isinstance(source, tuple) and not hasattr(source, "_fields"):
        lambdas, frequencies, own = (*source, None, None)[:3]
    else:
        lambdas, frequencies, own = (_field(source, name) for name in ("lambdas", "frequencies", "threshold"))
    if lambdas is None or frequencies is None:
        raise DataError(
            "stability holds no path; give lambdas (L,) and frequencies, (L, K, K) or (L, E), as attributes or keys."
        )
    table, ends = numbers(frequencies, "selection frequencies", 2, 3), None
    if table.ndim == 3:
        if table.shape[1] != table.shape[2]:
            raise DataError(f"Selection frequencies have shape {table.shape}; give (L, K, K) or (L, n_edges).")
        ends = np.column_stack(np.triu_indices(table.shape[1], 1))
        table = table[:, *ends.T]
    if table.size and (table.min() < 0 or table.max() > 1):
        raise DataError(f"Selection frequencies run from {table.min():g} to {table.max():g}; give numbers from 0 to 1.")
    threshold = own if threshold is None else threshold
    return Stability(_strengths(lambdas, len(table)), table, 0.9 if threshold is None else float(threshold), ends)


def _field(source: Any, name: str) -> Any:
    """A field of a mapping or of an object, which may have it as a fitted attribute (a trailing underscore)."""
    if isinstance(source, Mapping):
        return source.get(name, source.get(f"{name}_"))
    return getattr(source, name, getattr(source, f"{name}_", None))


def plot_convergence(source: Any, ax: Any = None) -> Any:
    """Draw how far the objective is above its lowest value, and the duality gaps, after each outer step.

    Parameters
    ----------
    source : fitted model, or its history: a mapping of columns or a sequence of records with any of
        ``objective``, ``gap_weights`` (or ``gap_w``), ``gap_structure`` (or ``gap_omega``)
    ax : matplotlib Axes, optional
    """
    curves = distances(history_columns(source))
    ax = axes(ax)
    for (name, values), marker, color in zip(curves.items(), "os^", PALETTE, strict=False):
        ax.plot(np.arange(1, len(values) + 1), values, color=color, marker=marker, ms=3, lw=1, label=name)
    ax.set_yscale("log")
    found = np.concatenate([values[np.isfinite(values)] for values in curves.values()])
    if found.size:  # what is fourteen decades below the start is rounding, and would compress the other curves
        ax.set_ylim(max(found.min(), 1e-14 * found.max()) / 3, 3 * found.max())
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
    gains : TransferReport, mapping of task to gain in per cent, (K,) array, or rows with ``task`` and ``gain``
        Gains that are NaN are left out.
    ax : matplotlib Axes, optional
    tasks : K names, optional
    label : str
        What the gain is, with its unit.
    """
    rows = gain_rows(gains)
    values = numbers([row.get("gain") for row in rows], "gains", 1, missing=True)
    names = as_names([row.get("task") for row in rows] if tasks is None else tasks, None, "", len(values), "tasks")
    order = np.argsort(-values, kind="stable")[: np.isfinite(values).sum()]
    few = len(order) <= 80
    ax = axes(ax, (3.6, float(np.clip(0.6 + 0.13 * len(order), 2.2, 7.0)) if few else 3.4))
    heights = np.arange(len(order))
    for lost, color, hatch, word in ((False, POSITIVE, "", "gain"), (True, NEGATIVE, "////", "loss")):
        part = (values[order] < 0) == lost
        style = {"color": color} if not lost else {"facecolor": "white", "edgecolor": color, "hatch": hatch, "lw": 0.6}
        if part.any():
            label_of = f"{word} ({int(part.sum())})"
            bars = ax.barh(heights[part], values[order][part], height=0.8 if few else 1.0, label=label_of, **style)
            for bar, k in zip(bars, order[part], strict=True):
                marked(bar, "bar", [str(k)])
    ax.axvline(0, color=GREY, lw=0.6)
    ax.set_ylim(len(order) - 0.4, -0.6)
    name_ticks(ax.yaxis, [names[k] for k in order], size_in_points(ax)[1], "tasks, best first")
    ax.set_xlabel(label, fontsize=NORMAL)
    legend_above(ax, 2)
    return ax


def gain_rows(gains: Any, tasks: Sequence[Any] | None = None) -> list[dict[str, Any]]:
    """Gains over single-task fits, in whichever form they came, as rows with task and gain."""
    if all(hasattr(gains, name) for name in ("tasks", "together", "alone", "gain", "verdict")):  # a TransferReport
        names = ("task", "deviance", "deviance alone", "gain", "verdict")
        columns = (gains.tasks.tolist(), gains.together, gains.alone, 100 * gains.gain, gains.verdict)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(gains, Mapping):
        return [{"task": task, "gain": gain} for task, gain in gains.items()]
    if hasattr(gains, "to_dict"):
        return list(gains.to_dict("records"))
    if not isinstance(gains, Iterable):
        raise DataError(f"transfer is of type {type(gains).__name__}; give a mapping of task to gain, or rows.")
    items = list(gains)
    if items and all(hasattr(item, "task") and hasattr(item, "gain") for item in items):
        return [_fields(item) for item in items]
    if items and all(isinstance(item, Mapping) for item in items):
        return [dict(item) for item in items]
    names_given = range(len(items)) if tasks is None else tasks
    if len(items) != len(names_given):
        raise DataError(f"transfer has {len(items)} numbers for {len(names_given)} tasks; give one each.")
    return [{"task": task, "gain": gain} for task, gain in zip(names_given, items, strict=True)]


def _fields(item: Any) -> dict[str, Any]:
    """The fields of a named tuple, a data class or a plain object."""
    names = getattr(item, "_fields", None) or getattr(type(item), "__dataclass_fields__", None) or vars(item)
    return {name: getattr(item, name) for name in names}


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
    patches = matplotlib_module("patches")
    if not errors or len(errors) > len(PALETTE):
        raise DataError(
            f"There are {len(errors)} methods; give 1 to {len(PALETTE)}, so many colours can be told from each other."
        )
    tables = {name: numbers(values, f"errors of {name!r}", 1, 2) for name, values in errors.items()}
    columns = {table.shape[1:] for table in tables.values()}
    if len(columns) > 1:
        raise DataError(f"The methods have different tasks, shapes (runs, …) {sorted(columns)}; give all the same.")
    per_task = bool(next(iter(columns)))
    groups = next(iter(columns))[0] if per_task else 1
    ax = axes(ax, (float(np.clip(1.2 + 0.13 * groups * len(tables), 3.0, 7.0)), 2.6))
    width = 0.8 / len(tables)
    for k, (table, color) in enumerate(zip(tables.values(), PALETTE, strict=False)):
        box_positions = np.arange(groups) + (k - (len(tables) - 1) / 2) * width if per_task else [k]
        ax.boxplot(
            table,
            positions=box_positions,
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
        legend_above(ax, 4, handles=handles)
    else:
        name_ticks(ax.xaxis, list(tables), size_in_points(ax)[0], "method")
    ax.set_ylabel(label, fontsize=NORMAL)
    return ax


def _strengths(values: ArrayLike, count: int) -> Any:
    """Penalty strengths along a path, as many as there are points."""
    lambdas = numbers(values, "penalty strengths", 1)
    if len(lambdas) != count:
        raise DataError(f"There are {len(lambdas)} penalty strengths for {count} rows of values; give one each.")
    return lambdas


def _strength_axis(ax: Any, lambdas: Any, symbol: str = "λ") -> None:
    """Let the model grow from left to right: strong penalty first, on a log scale where possible."""
    if (lambdas > 0).all():
        ax.set_xscale("log")
    if len(lambdas) > 1:
        ax.set_xlim(lambdas.max(), lambdas.min())
    ax.set_xlabel(f"penalty strength {symbol}", fontsize=NORMAL)
