"""Helpers of all figures: axes, names that are safe to draw, labels that do not overlap, and reading of models."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from mssl._typing import Array
from mssl.exceptions import DataError, require
from mssl.graph.geometry import DIVERGING, PALETTE, Display, display, task_order
from mssl.graph.task_graph import TaskGraph, short_name

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.axis
    import matplotlib.figure

Axes: TypeAlias = "matplotlib.axes.Axes"
#: Options of a drawing.
Look: TypeAlias = dict[str, Any]
Names: TypeAlias = list[object]
#: A graph and the group of each of its tasks.
Groups: TypeAlias = tuple[TaskGraph, NDArray[np.intp]]
SMALL, NORMAL = 6.5, 8.0
GREY, FAINT = "#555555", "#A0A0A0"
NOTHING = "#E6E6E6"  # colour of missing values in heat maps and maps of cells


def matplotlib_module(name: str = "") -> Any:
    """Import a module of matplotlib, or raise an error with the command that installs it."""
    return require(f"matplotlib.{name}".rstrip("."), "plot", "Drawing a figure")


def new_figure(width: float, height: float, *, shown: bool = True) -> matplotlib.figure.Figure:
    """Make a figure of a size in inches. If pyplot is not in use, the figure need not be closed."""
    look: Look = {"figsize": (width, height), "layout": "constrained", "dpi": 150}
    if shown and "matplotlib.pyplot" in sys.modules:
        return cast("matplotlib.figure.Figure", matplotlib_module("pyplot").figure(**look))
    figure: matplotlib.figure.Figure = matplotlib_module("figure").Figure(**look)
    matplotlib_module("backends.backend_agg").FigureCanvasAgg(figure)
    return figure


def panels(width: float, height: float, rows: int = 1, columns: int = 1, *, shown: bool = False, **how: Any) -> Any:
    """Make a figure and its axes; pyplot keeps the figure only if it will be shown."""
    figure = new_figure(width, height, shown=shown)
    grid = figure.subplots(rows, columns, **how)
    for ax in np.ravel(grid):
        ax.tick_params(which="both", labelsize=SMALL + 0.5)
    return figure, grid


def axes(ax: Axes | None, size: tuple[float, float] = (3.6, 3.0), *, shown: bool = True) -> Axes:
    """Return `ax`, or the axes of a new figure; their labels have one size in all figures."""
    made: Axes = panels(*size, shown=shown)[1] if ax is None else ax
    made.xaxis.label.set_fontsize(NORMAL)
    made.yaxis.label.set_fontsize(NORMAL)
    return made


def square(count: int, min_side: float, step: float) -> tuple[float, float]:
    """Return a figure size in inches that grows with the number of tasks, up to a page's width."""
    side = float(np.clip(step * count, min_side, 7.0))
    return side, 0.94 * side


def height(lines: float) -> float:
    """Height in inches of a figure with a number of rows of names, up to the height of a page."""
    return float(np.clip(0.7 + 0.13 * lines, 2.0, 9.0))


def as_graph(source: Any, tasks: Iterable[object] | None = None) -> TaskGraph:
    """Return the graph of a fitted model, a graph itself, or the graph of a precision matrix."""
    graph = source if isinstance(source, TaskGraph) else getattr(source, "graph_", None)
    if graph is None and hasattr(source, "fit"):
        remedy = "fit it first, with a structure that has one"
        raise DataError(f"{type(source).__name__} has no task graph (graph_); {remedy}.")
    return TaskGraph.from_precision(source, tasks) if graph is None else graph


def as_display(source: object) -> Display:
    """Return the drawn parts of a graph, of a fitted model or of a precision matrix."""
    return source if isinstance(source, Display) else display(as_graph(source))


def field(source: object, *names: str) -> Any:
    """The first of several fields that a mapping or an object has; None if it has none of them."""
    found = (source.get(name) if isinstance(source, Mapping) else getattr(source, name, None) for name in names)
    return next((value for value in found if value is not None), None)


def as_names(given: Iterable[object] | None, count: int, what: str, source: object = None, *attributes: str) -> Names:
    """Return the given names, the names of the model, or numbers."""
    names = field(source, *attributes) if given is None else given
    listed = list(range(count)) if names is None else list(names)
    if len(listed) != count:
        raise DataError(f"There are {len(listed)} names for {count} {what}; give one name each, or none.")
    return listed


def numbers(values: object, what: str, *dimensions: int, missing: bool = False) -> Array:
    """Check that values are finite numbers with an allowed number of dimensions; `missing` allows NaN."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} are not an array of numbers ({error}); give numbers.") from error
    if array.ndim not in dimensions or not array.size:
        allowed = " or ".join(map(str, dimensions))
        raise DataError(f"{what} have shape {array.shape}; give a non-empty array with {allowed} dimensions.")
    if not np.isfinite(array[~np.isnan(array)] if missing else array).all():
        raise DataError(f"{what} hold NaN or infinite values; give finite numbers.")
    return array


def drawn(name: object, width: int = 18) -> str:
    """Return a name that matplotlib draws literally: short, without mathematics and missing glyphs."""
    known = _glyphs(tuple(matplotlib_module().rcParams["font.family"]))
    text = "".join(c if ord(c) in known else "□" for c in short_name(name, width))
    return text.replace("\\", "∖").replace("$", r"\$")


@lru_cache(maxsize=8)
def _glyphs(families: tuple[str, ...]) -> frozenset[int]:
    fonts = matplotlib_module("font_manager")
    found = (fonts.get_font(fonts.findfont(fonts.FontProperties(family=[family]))) for family in families)
    return frozenset().union(*(font.get_charmap() for font in found))


def note(ax: Axes, *parts: str) -> None:
    """Write notes below the drawing about what it leaves out, in lines that fit its width."""
    points = 72 * ax.figure.figure.get_figwidth() * ax.get_position(original=True).width
    letters = max(20, int(points / (0.55 * float(ax.xaxis.label.get_fontsize()))))
    lines = [ax.get_xlabel(), fill("; ".join(filter(None, parts)), letters)]
    ax.set_xlabel("\n".join(filter(None, lines)))


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Return width and height of the axes in points (1/72 inch)."""
    engine = ax.figure.figure.get_layout_engine()
    if engine is not None:
        engine.execute(ax.figure.figure)
    ax.apply_aspect()
    box, scale = ax.get_window_extent(), 72 / ax.figure.get_dpi()
    return float(box.width * scale), float(box.height * scale)


def name_ticks(axis: matplotlib.axis.Axis, names: Sequence[object], what: str) -> None:
    """Write a name at each of the ticks 0, 1, … of an axis, or only the number of names if they do not fit."""
    count, across = len(names), axis is axis.axes.xaxis
    room = size_in_points(axis.axes)[0 if across else 1] / max(count, 1)
    if room < 4.6:
        axis.set_ticks([])
        axis.set_label_text(f"{count} {what}")
        return
    font = float(np.clip(0.85 * room, 4.0, NORMAL - 1))
    texts = [drawn(name) for name in names]
    crowded = across and 0.65 * font * max(map(len, texts), default=0) > 0.9 * room
    axis.set_tick_params(length=0)
    axis.set_ticks(range(count), texts, fontsize=font, rotation=90 if crowded else 0)
    axis.set_label_text(what)


def distances(source: object) -> dict[str, Array]:
    """Curves of a history for a log scale, by their names: distance of the objective from its lowest value, and gaps.

    A history is a mapping of columns or a sequence of records. Values that are not positive become NaN.
    """
    history = field(source, "history_")
    history = source if history is None else history
    found = {}
    for words, *names in (
        ("objective − lowest", "objective"),
        ("gap of coefficients", "gap_weights", "gap_w"),
        ("gap of precision", "gap_structure", "gap_omega"),
    ):
        column = field(history, *names)
        if column is None:
            column = [field(record, *names) for record in history] if isinstance(history, Iterable) else []
        values = np.array(column, dtype=np.float64)
        if np.isfinite(values).any():
            values = values - np.nanmin(values) if names == ["objective"] else values
            found[words] = np.where(values > 0, values, np.nan)
    return found


def signed_colours(reach: float) -> Look:
    """The colours of signed values from −reach to reach, as options of a drawing."""
    colours = matplotlib_module("colors").LinearSegmentedColormap.from_list("signs", DIVERGING)
    return {"cmap": colours, "vmin": -reach, "vmax": reach}


CELLS = 300  # An image has at most this many cells on a side; more could not be seen, and make files larger.
OURS = "mssl-"  # prefix of the names that artists have in a page
DRAWN = "_mssl_drawn"  # attribute of axes: label and whole matrix of a heat map, and the tasks of the matrix's rows
MARKS = "_mssl_marks"  # attribute of artists: the tasks or edges of their parts


class Pooled(NamedTuple):
    """A matrix in blocks of ``block`` = (height, width) cells.

    ``values`` (r, c) are the strongest values of the blocks. ``place`` (r, c) are their positions in the blocks, at the
    cells (place // width, place % width).
    """

    values: Array
    place: NDArray[np.intp]
    block: tuple[int, int]


def pool(matrix: Array, max_side: int) -> Pooled:
    """Keep the strongest value of each block of cells, so that no side has more than `max_side` cells; ignore NaN.

    Examples
    --------
    >>> pooled = pool(np.array([[0.1, 0.0, 0.2], [0.0, -0.5, 0.0]]), max_side=2)
    >>> pooled.values.tolist(), pooled.place.tolist(), pooled.block
    ([[0.1, 0.2], [-0.5, 0.0]], [[0, 0], [1, 0]], (1, 2))
    """
    height, width = (max(1, -(-side // max_side)) for side in matrix.shape)
    rows, columns = (-(-side // step) for side, step in zip(matrix.shape, (height, width), strict=True))
    padded = np.full((rows * height, columns * width), np.nan)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    cells = padded.reshape(rows, height, columns, width).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    place = np.argmax(np.where(np.isnan(cells), -1.0, np.abs(cells)), axis=2)
    return Pooled(np.take_along_axis(cells, place[..., None], axis=2)[..., 0], place, (height, width))


def heat(
    ax: Axes, values: Array, label: str, tasks: Names, features: Names | None, by: Groups | None, share: float = 1.0
) -> None:
    """Draw a matrix with diverging colours centred at zero; of a large one, the strongest value per block of cells.

    Parameters
    ----------
    ax : matplotlib Axes
    values : ndarray of shape (K, d) or (K, K)
    label : str
        Name of the values.
    tasks, features : K names and d names, or K names and None
        Names of the rows and the columns. None if the columns are the tasks, too.
    by : (TaskGraph, ndarray of shape (K,)), or None
        The graph and the groups by which the tasks are sorted, with thin lines between groups of more than one task.
    share : float
        The colours end at this quantile of the non-zero sizes, on both sides of zero.
    """
    order = np.arange(len(tasks)) if by is None else task_order(*by)
    values = values[order] if features is not None else values[np.ix_(order, order)]
    cells = pool(values, CELLS)
    down, across = (count * step for count, step in zip(cells.values.shape, cells.block, strict=True))
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    look = signed_colours(float(np.quantile(sizes, share)) if sizes.size else 1.0)
    look["extent"] = (-0.5, across - 0.5, down - 0.5, -0.5)
    look["aspect"] = "equal" if features is None else "auto"
    drawing = ax.imshow(cells.values, interpolation="nearest", **look)
    ax.set(xlim=(-0.5, values.shape[1] - 0.5), ylim=(values.shape[0] - 0.5, -0.5), facecolor=NOTHING)
    marked(drawing, "image")
    marked(ax.patch, "cells")
    setattr(ax, DRAWN, (label, values, order.tolist()))
    colour_bar(drawing, label, ax=ax, pad=0.03, fraction=0.046)
    rows = [tasks[k] for k in order], "tasks" if by is None else "tasks, by community"
    name_ticks(ax.yaxis, *rows)
    name_ticks(ax.xaxis, *(rows if features is None else (features, "features")))
    if by is not None:
        sizes = np.bincount(by[1])
        ends = np.cumsum(sizes[sizes > 1]) - 0.5
        look = {"colors": FAINT, "lw": 0.4, "alpha": min(1.0, 6 / max(len(ends), 1))}
        ax.hlines(ends, *ax.get_xlim(), **look)
        if features is None:
            ax.vlines(ends, *ax.get_ylim(), **look)


def marked(artist: Any, name: str, marks: Iterable[object] = ()) -> Any:
    """Name an artist for a page, and mark its parts: "3" for task 3, "3 7" for the edge between tasks 3 and 7."""
    artist.set_gid(f"{OURS}{name}")
    setattr(artist, MARKS, list(map(str, marks)))
    return artist


def colour_bar(drawing: Any, label: str, **options: Any) -> None:
    """Draw a colour bar with a label, beside the axes or in its own axes."""
    bar = drawing.figure.colorbar(drawing, **options)
    bar.set_label(label, fontsize=NORMAL)
    bar.ax.tick_params(labelsize=SMALL)


def legend_above(ax: Axes, columns: int, **options: Any) -> None:
    """Draw a legend above the axes, outside of the drawing."""
    ax.legend(fontsize=SMALL, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, **options)


def patches(colours: Mapping[str, str]) -> list[Any]:
    """Handles of a legend: one patch of colour per name."""
    patch = matplotlib_module("patches").Patch
    return [patch(facecolor=colour, label=name) for name, colour in colours.items()]


def dots_with_bars(ax: Any, values: Mapping[str, tuple[float, float]], *, label: str, marks: Any = None) -> Any:
    """Draw one row per method: mean and standard deviation as a dot with a bar, published figures as crosses.

    Parameters
    ----------
    ax : matplotlib Axes
    values : mapping of name to (mean, spread)
    label : str
        Name of the values with their unit.
    marks : mapping of name to number, optional
        Published figures.
    """
    heights = np.arange(len(values))
    means, spreads = zip(*values.values(), strict=True)
    ax.errorbar(means, heights, xerr=spreads, fmt="o", color=PALETTE[0], ms=4, lw=1, label="measured")
    published = [(marks[name], height) for height, name in enumerate(values) if marks and name in marks]
    if published:
        ax.plot(*zip(*published, strict=True), "x", color=PALETTE[5], ms=5, label="published")
    ax.set_yticks(heights, list(values), fontsize=SMALL)
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.grid(axis="y", lw=0.3, color="#DDDDDD")
    ax.set_xlabel(label, fontsize=NORMAL)
    return ax
