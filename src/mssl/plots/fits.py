"""Pictures of fits: coefficients, effects of columns, paths, stability, convergence, gains, errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mssl._typing import Array, ArrayLike
from mssl._validation import check_choice, check_number, check_whole_number
from mssl.data.columns import feature_spreads
from mssl.exceptions import DataError
from mssl.graph.geometry import NEGATIVE, PALETTE, POSITIVE
from mssl.graph.task_graph import TaskGraph
from mssl.plots import support
from mssl.plots.support import FAINT, GREY, SMALL, Axes, Look, Names, as_names, axes, drawn, name_ticks, numbers

# The colours of a heat map end at this quantile of the non-zero coefficients, so that a few large ones do not hide the
# others.
_COEF_SHARE = 0.99
_NAMED = 60  # A forest plot or a plot of gains has at most this many rows with names, so that they stay readable.
MOST_LINES = 600  # A figure has at most this many curves of a kind; more curves could not be told apart.


class Stability(NamedTuple):
    """Selection frequencies (L, E) of edges along a path; ``ends`` is (E, 2), or None if the edges have no names."""

    lambdas: Array
    frequencies: Array
    threshold: float
    ends: NDArray[np.intp] | None


def plot_coefficients(
    source: Any,
    ax: Axes | None = None,
    *,
    tasks: Iterable[object] | None = None,
    features: Iterable[object] | None = None,
    label: str = "coefficient",
    kind: str = "heat",
    level: float = 0.9,
    per: str = "unit",
) -> Axes:
    """Draw coefficients as a heat map of tasks (by community, if there is a graph) and features, or with intervals.

    Parameters
    ----------
    source : fitted model, or (K, d) array
    ax : matplotlib Axes, optional
    tasks, features : K and d names, optional
    label : str
        Name of the drawn values.
    kind : {"heat", "forest"}
        A heat map, or ("forest") one line per weight with its interval, grouped by feature, for models that have
        ``coef_std_``. A forest shows 60 weights, those of the features with the largest mean absolute weight (times the
        standard deviation of the column, if the model knows it).
    level : float
        Probability of the intervals.
    per : {"unit", "spread", "largest"}
        Scale of the coefficients. "unit" draws the change per unit of the column. "spread" draws the change per
        standard deviation of the column in training, so that columns of different units can be compared. "largest"
        draws the share of the column's largest coefficient.
    """
    values = numbers(getattr(source, "coef_", source), "coefficients", 2)
    K, d = values.shape
    spreads = feature_spreads(source, d)
    scales = {"unit": np.ones(d), "spread": spreads, "largest": 1 / np.abs(values).max(axis=0, initial=1e-300)}
    scale = scales[check_choice("per", per, tuple(scales))]
    if scale is None:
        raise DataError("The spread of the columns is not known; give a fitted model without feature maps.")
    label = {"spread": f"{label} × spread of the column", "largest": "share of the feature's largest"}.get(per, label)
    names = as_names(tasks, K, "tasks", source, "tasks_")
    columns = as_names(features, d, "features", source, "features_", "feature_names_in_")
    if check_choice("kind", kind, ("heat", "forest")) == "forest":
        check_number("level", level, above=0, below=1)
        sizes = np.abs(values).mean(axis=0) * (1.0 if spreads is None else spreads)
        std = getattr(source, "coef_std_", None)
        half = np.full(values.shape, np.nan) if std is None else ndtri(0.5 + level / 2) * scale * std
        label = label if std is None else f"{label}, {level:.0%} interval"
        return _forest(ax, scale * values, half, (names, columns), label, sizes)
    graph = getattr(source, "graph_", None)
    by = (graph, support.as_display(graph).groups) if isinstance(graph, TaskGraph) and len(graph) == K else None
    ax = axes(ax, (4.2, 3.2))
    support.heat(ax, values * scale, label, names, columns, by, share=1.0 if per == "largest" else _COEF_SHARE)
    return ax


def _forest(ax: Axes | None, values: Array, half: Array, names: tuple[Names, Names], label: str, sizes: Array) -> Axes:
    """Draw the largest weights with half widths of their intervals (or NaN), one line per weight, by feature."""
    d, rows = len(sizes), min(len(values), _NAMED)
    shown = np.sort(np.argsort(-sizes, kind="stable")[: max(1, _NAMED // len(values))])
    j, k = (places.ravel() for places in np.meshgrid(shown, np.arange(rows), indexing="ij"))
    heights = np.arange(len(j)) + np.arange(len(j)) // rows  # a gap after every feature
    ax = axes(ax, (4.2, support.height(heights[-1])))
    centre, reach = values[k, j], half[k, j]
    sure = np.abs(centre) > reach
    for part, color in ((sure, POSITIVE), (~sure, GREY)):
        ax.errorbar(centre[part], heights[part], xerr=reach[part], fmt="o", ms=2.5, lw=0.9, color=color, ecolor=color)
    ax.axvline(0, color=GREY, lw=0.6)
    texts = [drawn(f"{names[1][b]} · {names[0][a]}", 28) for a, b in zip(k, j, strict=True)]
    ax.set_yticks(heights, texts, fontsize=SMALL)
    ax.set(xlabel=label, ylim=(heights[-1] + 0.7, -0.7))
    if d > len(shown) or len(values) > _NAMED:
        ax.set_title(f"largest {len(shown)} of {d} features", fontsize=SMALL, loc="left")
    return ax


def most_relevant(model: Any, most: int = 6) -> list[str]:
    """The columns that change a model's predictions most, in falling order; columns without effect are left out."""
    relevance = model.column_relevance()
    return sorted((name for name in relevance if relevance[name] > 0), key=lambda name: -relevance[name])[:most]


def plot_effects(
    model: Any, features: Sequence[object] | None = None, *, tasks: Sequence[object] | None = None, most: int = 6
) -> NDArray[np.object_]:
    """Draw small multiples of partial effects: the mean of all tasks with its band, and each task in grey.

    Parameters
    ----------
    model : fitted model with ``partial_effect``
    features : sequence of columns, optional
        Columns to draw; by default those that change the predictions most.
    tasks : sequence of task names, optional
        Tasks whose curves are drawn; by default all tasks, up to 600 curves in total.
    most : int
        Largest number of columns, if `features` is not given.

    Returns
    -------
    ndarray of matplotlib Axes
        One axes per column; save the figure with ``axes[0].figure.savefig(…)``.

    Examples
    --------
    >>> from mssl import MSSLRegressor
    >>> from mssl.datasets import make_curved_tasks
    >>> from mssl.plots import plot_effects
    >>> data = make_curved_tasks("additive", random_state=0)
    >>> model = MSSLRegressor(features="spline").fit(data.X, data.y, tasks=data.tasks)
    >>> [ax.get_xlabel() for ax in plot_effects(model, [0, 1])]
    ['x0', 'x1']
    """
    if not hasattr(model, "partial_effect"):
        raise DataError(f"{type(model).__name__} has no partial effects; give a fitted estimator of mssl.")
    check_whole_number("most", most, low=1)
    chosen = most_relevant(model, most) if features is None else list(features)
    if not chosen:
        raise DataError("No column moves the predictions, so there is no effect to draw; give columns with features=.")
    names = list(model.tasks_)[: MOST_LINES // len(chosen)] if tasks is None else list(tasks)
    across = min(3, len(chosen))
    down = -(-len(chosen) // across)
    made = support.panels(2.4 * across, 2.0 * down, down, across, shown=True, sharey=True, squeeze=False)[1].ravel()
    for ax, feature in zip(made, chosen, strict=False):
        draw_effect(ax, *curves(model, feature, names))
    for ax in made[len(chosen) :]:
        ax.remove()
    for ax in made[::across]:
        ax.set_ylabel("partial effect")
    return made[: len(chosen)]


def curves(model: Any, feature: object, tasks: Sequence[object]) -> tuple[Any, Array]:
    """The partial effect of a column for the mean of all tasks, and for each task (K, n)."""
    return model.partial_effect(feature), np.stack([model.partial_effect(feature, task).effect for task in tasks])


def draw_effect(ax: Axes, shared: Any, by_task: Array) -> None:
    """Draw one column: the mean of all tasks with its band, each task in grey."""
    levels = shared.x.dtype.kind == "O"
    x = np.arange(len(shared.x)) if levels else shared.x
    style: Look = {"marker": "o", "ls": "none"} if levels else {}  # Levels have no values between them.
    ax.plot(x, by_task.T, color=FAINT, lw=0.6, ms=2, **style)
    if shared.lower is not None and shared.upper is not None:
        band: Any = ax.vlines if levels else ax.fill_between
        band(x, shared.lower, shared.upper, color=POSITIVE, alpha=0.4 if levels else 0.2, lw=4 if levels else 0)
    ax.plot(x, shared.effect, color=POSITIVE, lw=1.6, ms=4, **style)
    ax.axhline(0, color=GREY, lw=0.5)
    axes(ax).set_xlabel(drawn(shared.feature))
    ax.tick_params(labelsize=SMALL + 0.5)
    if levels:
        ax.set_xticks(x, [drawn(level, 10) for level in shared.x], rotation=45)
        ax.set_xlim(-0.5, len(x) - 0.5)


def plot_path(
    lambdas: Any,
    values: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    names: Iterable[object] | None = None,
    label: str = "coefficient",
    chosen: float | None = None,
    along: str | None = None,
) -> Axes:
    """Draw coefficients or edge weights along a path of penalty strengths.

    Parameters
    ----------
    lambdas : RegularizationPath, or (L,)
        A path of fits, or penalty strengths.
    values : (L, …), optional
        One row per strength; further axes are flattened. By default the coefficients of a path.
    ax : matplotlib Axes, optional
    names : names of the flattened columns, optional
        The seven columns with the largest values are named and coloured, and the others are grey. By default the names
        of a path's coefficients.
    label : str
        Name of the values.
    chosen : float, optional
        A strength to mark, such as the chosen one.
    along : {"graph_penalty", "coef_penalty"}, optional
        The strength of a RegularizationPath that varies: λ of the graph or γ of the coefficients. By default it is the
        one with more values. The drawn fits share all other parameters, which the title names.

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
    strengths, table = _along(lambdas, values, "values along the path")
    table = table.reshape(len(table), -1)
    titles = as_names(names, table.shape[1], "columns")
    ax = axes(ax)
    order = np.argsort(-np.abs(table).max(axis=0), kind="stable")
    ax.plot(strengths, table[:, order[len(PALETTE) :]], color=FAINT, lw=0.5)
    for color, column in zip(PALETTE, order, strict=False):
        title = None if names is None else drawn(titles[column])
        ax.plot(strengths, table[:, column], color=color, lw=1.3, label=title)
    ax.axhline(0, color=GREY, lw=0.5)
    if chosen is not None:
        ax.axvline(chosen, color="black", lw=0.8, ls=":", label="chosen")
    _strength_axis(ax, strengths, symbol)
    ax.set_title(held, fontsize=SMALL, loc="left")
    ax.set_ylabel(label)
    if names is not None or chosen is not None:
        ax.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))  # covers no line
    return ax


def _of_path(
    path: Any, values: ArrayLike | None, names: Iterable[object] | None, along: str | None
) -> tuple[Array, Array, Iterable[object] | None, str, str]:
    """Strengths, values and names along one parameter of a path, its symbol, and the fixed value of the other."""
    symbols = {"graph_penalty": "λ", "coef_penalty": "γ"}
    if along is None:
        along = max(symbols, key=lambda name: len(path.along(name)))
    other = next(name for name in symbols if name != check_choice("along", along, tuple(symbols)))
    points = path.along(along)
    if len(points) < 2:
        remedy = f"give regularization_path several values of it, and the same values of {other} for each"
        raise DataError(f"No two fits of the path differ in {along} alone; {remedy}.")
    if values is None:
        values = path.coefs
        titles = [f"{feature} · {task}" for task in path.tasks for feature in path.features]
        names = titles if names is None and len(titles) == path.coefs[0].size else names
    held = f"{symbols[other]} = {path.values(other)[points[0]]:.3g}"
    return path.values(along)[points], np.asarray(values)[points], names, symbols[along], held


def plot_stability(
    lambdas: Any, frequencies: ArrayLike | None = None, ax: Axes | None = None, *, threshold: float | None = None
) -> Axes:
    """Draw how often each edge is selected against the penalty strength, and the threshold.

    Parameters
    ----------
    lambdas : fitted StabilitySelection, or (L,)
        A selection, any object or mapping with ``lambdas`` and ``frequencies``, a tuple of these two, or penalty
        strengths.
    frequencies : (L, n_edges) or (L, K, K), optional
        Selection frequencies in [0, 1]; of square matrices only the upper triangle is used. By default those of the
        selection.
    ax : matplotlib Axes, optional
    threshold : float, optional
        Edges that reach this frequency at some strength are selected. By default the threshold of the selection, or
        0.9.

    References
    ----------
    Meinshausen & Bühlmann, Stability selection, 2010, doi:10.1111/j.1467-9868.2010.00740.x.
    """
    strengths, table, threshold, ends = read_stability(lambdas, frequencies, threshold)
    ax = axes(ax)
    lines = support.matplotlib_module("collections").LineCollection
    top = table.max(axis=0)
    stable = top >= threshold
    order = np.argsort(-top, kind="stable")
    for kept, color, width, word in ((~stable, FAINT, 0.5, "below"), (stable, POSITIVE, 1.0, "stable")):
        part = order[kept[order]][:MOST_LINES][::-1]  # The most stable ones are drawn last.
        curves = lines([np.column_stack([strengths, table[:, k]]) for k in part], colors=color, lw=width)
        ax.add_collection(support.marked(curves, "path", [] if ends is None else [f"{i} {j}" for i, j in ends[part]]))
        ax.plot([], [], color=color, lw=1.5, label=f"{word} ({int(kept.sum())})")
    ax.axhline(threshold, color="black", lw=0.9, ls="--", label=f"threshold {threshold:g}")
    ax.autoscale_view()
    _strength_axis(ax, strengths)
    ax.set(ylim=(-0.02, 1.02), ylabel="selection frequency of an edge")
    support.legend_above(ax, 3)
    return ax


def read_stability(source: Any, frequencies: ArrayLike | None = None, threshold: float | None = None) -> Stability:
    """Read strengths, frequencies and threshold of a stability selection in any of its forms."""
    if isinstance(source, Stability):
        return source
    names = ("lambdas", "frequencies", "threshold")
    if frequencies is not None:
        source = {"lambdas": source, "frequencies": frequencies}
    elif isinstance(source, tuple) and not hasattr(source, "_fields"):
        source = dict(zip(names, source, strict=False))
    lambdas, frequencies, own = (support.field(source, name, f"{name}_") for name in names)
    if lambdas is None or frequencies is None:
        allowed = "lambdas (L,) and frequencies, (L, K, K) or (L, E), as attributes or keys"
        raise DataError(f"stability holds no path; give {allowed}.")
    (strengths, table), ends = _along(lambdas, frequencies, "selection frequencies"), None
    if table.ndim == 3:
        if table.shape[1] != table.shape[2]:
            raise DataError(f"Selection frequencies have shape {table.shape}; give (L, K, K) or (L, n_edges).")
        ends = np.column_stack(np.triu_indices(table.shape[1], 1))
        table = table[:, *ends.T]
    if table.size and (table.min() < 0 or table.max() > 1):
        raise DataError(f"Selection frequencies run from {table.min():g} to {table.max():g}; give numbers from 0 to 1.")
    stated = next((value for value in (threshold, own) if value is not None), 0.9)
    return Stability(strengths, table, float(stated), ends)


def plot_convergence(source: Any, ax: Axes | None = None) -> Axes:
    """Draw the distance of the objective from its lowest value, and the duality gaps, after each outer step.

    Parameters
    ----------
    source : fitted model, or its history: a mapping of columns or a sequence of records with any of
        ``objective``, ``gap_weights`` (or ``gap_w``), ``gap_structure`` (or ``gap_omega``)
    ax : matplotlib Axes, optional
    """
    curves = support.distances(source)
    if not curves:
        absent = "neither objective nor gap_weights nor gap_structure"
        raise DataError(f"The history holds {absent}; give a fitted model or history_.")
    ax = axes(ax)
    for (name, values), marker, color in zip(curves.items(), "os^", PALETTE, strict=False):
        ax.plot(np.arange(1, len(values) + 1), values, color=color, marker=marker, ms=3, lw=1, label=name)
    ax.set_yscale("log")
    found = np.concatenate([values[np.isfinite(values)] for values in curves.values()])
    if found.size:  # Values fourteen decades below the start are rounding errors.
        ax.set_ylim(max(found.min(), 1e-14 * found.max()) / 3, 3 * found.max())
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="outer step", ylabel="distance (objective's unit)")
    ax.legend(fontsize=SMALL, frameon=False)
    return ax


def plot_transfer(
    gains: Any,
    ax: Axes | None = None,
    *,
    tasks: Iterable[object] | None = None,
    label: str = "gain over single-task fit (%)",
) -> Axes:
    """Draw the gain of each task from the others as sorted bars; losses are hatched.

    Parameters
    ----------
    gains : TransferReport, mapping of task to gain in per cent, (K,) array, or rows with ``task`` and ``gain``
        Gains; NaN are left out.
    ax : matplotlib Axes, optional
    tasks : K names, optional
    label : str
        Name of the gain with its unit.
    """
    rows = gain_rows(gains)
    values = numbers([row.get("gain") for row in rows], "gains", 1, missing=True)
    names = as_names([row.get("task") for row in rows] if tasks is None else tasks, len(values), "tasks")
    order = np.argsort(-values, kind="stable")[: np.isfinite(values).sum()]
    ax = axes(ax, gain_size(len(order)))
    heights, sorted_values = np.arange(len(order)), values[order]
    loses, height = sorted_values < 0, 0.8 if len(order) <= _NAMED else 1.0
    looks: list[Look] = [{"color": POSITIVE}, {"fc": "white", "ec": NEGATIVE, "hatch": "////", "lw": 0.6}]
    for word, part, look in zip(("gain", "loss"), (~loses, loses), looks, strict=True):
        if part.any():
            bars = ax.barh(heights[part], sorted_values[part], height, label=f"{word} ({part.sum()})", **look)
            for bar, k in zip(bars, order[part], strict=True):
                support.marked(bar, "bar", [k])
    ax.axvline(0, color=GREY, lw=0.6)
    ax.set(ylim=(len(order) - 0.4, -0.6), xlabel=label)
    name_ticks(ax.yaxis, [names[k] for k in order], "tasks, best first")
    support.legend_above(ax, 2)
    return ax


def gain_size(count: int) -> tuple[float, float]:
    """Size in inches of a figure of gains; few tasks have one line each."""
    return 3.6, support.height(count) if count <= _NAMED else 3.4


def gain_rows(gains: Any, tasks: Sequence[object] | None = None) -> list[dict[str, Any]]:
    """Read gains over single-task fits in any of their forms, as rows with task and gain."""
    if hasattr(gains, "together"):  # a TransferReport
        names = ("task", "deviance", "deviance alone", "gain", "verdict")
        columns = (gains.tasks.tolist(), gains.together, gains.alone, 100 * gains.gain, gains.verdict)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(gains, Mapping):
        return [{"task": task, "gain": gain} for task, gain in gains.items()]
    if not isinstance(gains, Iterable):
        raise DataError(f"transfer is of type {type(gains).__name__}; give a mapping of task to gain, or rows.")
    items = list(gains.to_dict("records") if hasattr(gains, "to_dict") else gains)
    if items and all(isinstance(item, Mapping) for item in items):
        return [dict(item) for item in items]
    if items and all(hasattr(item, "task") and hasattr(item, "gain") for item in items):
        return [{name: getattr(item, name) for name in dir(item) if name[0] != "_"} for item in items]
    given = range(len(items)) if tasks is None else tasks
    if len(items) != len(given):
        raise DataError(f"transfer has {len(items)} numbers for {len(given)} tasks; give one each.")
    return [{"task": task, "gain": gain} for task, gain in zip(given, items, strict=True)]


def plot_box(
    errors: Mapping[str, ArrayLike],
    ax: Axes | None = None,
    *,
    tasks: Iterable[object] | None = None,
    label: str = "RMSE",
) -> Axes:
    """Draw box plots of errors: per task and method, or per method (Fig. 1 of the paper).

    Parameters
    ----------
    errors : mapping of method to (runs, K) or (runs,)
    ax : matplotlib Axes, optional
    tasks : K names, optional
    label : str
        Name of the errors with their unit.
    """
    if not errors or len(errors) > len(PALETTE):
        raise DataError(f"There are {len(errors)} methods; give 1 to {len(PALETTE)}, one for each colour.")
    tables = {name: numbers(values, f"errors of {name!r}", 1, 2) for name, values in errors.items()}
    shape, *others = sorted({table.shape[1:] for table in tables.values()})
    if others:
        raise DataError(f"The methods have different tasks, shapes (runs, …) {[shape, *others]}; give all the same.")
    per_task, groups = bool(shape), int(np.prod(shape))
    ax = axes(ax, (float(np.clip(1.2 + 0.13 * groups * len(tables), 3.0, 7.0)), 2.6))
    width = 0.8 / len(tables) if per_task else 0.7
    look: Look = {"widths": 0.8 * width, "patch_artist": True, "manage_ticks": False}
    look |= {"medianprops": {"color": "black", "lw": 1}, "flierprops": {"ms": 2, "markeredgewidth": 0.4}}
    for k, (table, color) in enumerate(zip(tables.values(), PALETTE, strict=False)):
        places = np.arange(groups) + (k - (len(tables) - 1) / 2) * width if per_task else [k]
        ax.boxplot(table, positions=places, boxprops={"facecolor": color, "lw": 0.5}, **look)
    ax.set_ylabel(label)
    if not per_task:
        name_ticks(ax.xaxis, list(tables), "method")
        return ax
    ax.set_xlim(-0.6, groups - 0.4)
    name_ticks(ax.xaxis, as_names(tasks, groups, "tasks"), "task")
    support.legend_above(ax, 4, handles=support.patches(dict(zip(map(drawn, tables), PALETTE, strict=False))))
    return ax


def _along(lambdas: ArrayLike, values: ArrayLike | None, what: str) -> tuple[Array, Array]:
    """Check penalty strengths along a path and the values at each of them, (L, …)."""
    table, strengths = numbers(values, what, 2, 3), numbers(lambdas, "penalty strengths", 1)
    if len(strengths) != len(table):
        raise DataError(f"There are {len(strengths)} penalty strengths for {len(table)} rows of values; give one each.")
    return strengths, table


def _strength_axis(ax: Axes, lambdas: Array, symbol: str = "λ") -> None:
    """Order an axis from strong to weak penalties, on a log scale if possible."""
    if (lambdas > 0).all():
        ax.set_xscale("log")
    if len(lambdas) > 1:
        ax.set_xlim(lambdas.max(), lambdas.min())
    ax.set_xlabel(f"penalty strength {symbol}")
