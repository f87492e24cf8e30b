"""What the figures share: axes, names that are safe to draw, labels that do not overlap, fitted models."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mssl.exceptions import DataError, require
from mssl.graph.geometry import label_offsets
from mssl.graph.task_graph import TaskGraph, short_name

FloatArray = NDArray[np.float64]
SMALL, NORMAL = 6.5, 8.0
GREY, FAINT = "#555555", "#A0A0A0"


def axes(ax: Any, size: tuple[float, float] = (3.6, 3.0)) -> Any:
    """Return `ax`, or the axes of a new figure that pyplot does not keep."""
    if ax is not None:
        return ax
    figure: Any = require("matplotlib.figure", "plot", "Drawing a figure")
    backend: Any = require("matplotlib.backends.backend_agg", "plot", "Drawing a figure")
    new = figure.Figure(figsize=size, layout="constrained", dpi=150)
    backend.FigureCanvasAgg(new)
    made = new.subplots()
    made.tick_params(labelsize=SMALL + 0.5)
    return made


def square(count: int, least: float, step: float) -> tuple[float, float]:
    """Return a figure size in inches that grows with the number of tasks, up to a page's width."""
    side = float(np.clip(step * count, least, 7.0))
    return side, 0.94 * side


def as_graph(source: Any, tasks: Iterable[Any] | None = None) -> TaskGraph:
    """Return the graph of a fitted model, a graph itself, or the graph of a precision matrix."""
    if isinstance(source, TaskGraph):
        return source
    graph = getattr(source, "graph_", None)
    if isinstance(graph, TaskGraph):
        return graph
    if hasattr(source, "fit"):
        raise DataError(
            f"{type(source).__name__} has no task graph (graph_); fit it first, with a structure that has one."
        )
    return TaskGraph.from_precision(source, tasks)


def as_names(given: Iterable[Any] | None, source: Any, attribute: str, count: int, what: str) -> list[Any]:
    """Return the names given, those of the model, or numbers."""
    names = given if given is not None else getattr(source, attribute, None)
    listed = list(range(count)) if names is None else list(names)
    if len(listed) != count:
        raise DataError(f"{len(listed)} names for {count} {what}; give one name each, or none.")
    return listed


def numbers(values: Any, what: str, *dimensions: int) -> FloatArray:
    """Return finite numbers of one of the dimensions asked for."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} are not an array of numbers ({error}).") from error
    if array.ndim not in dimensions or not array.size:
        allowed = " or ".join(map(str, dimensions))
        raise DataError(f"{what} have shape {array.shape}; expected a non-empty array with {allowed} dimensions.")
    if not np.isfinite(array).all():
        raise DataError(f"{what} hold NaN or infinite values; every entry has to be a finite number.")
    return array


def drawn(name: Any, width: int = 18) -> str:
    """Return a name that matplotlib draws as it stands: short, no mathematics, no missing glyphs."""
    matplotlib: Any = require("matplotlib", "plot", "Drawing a figure")
    known = _glyphs(tuple(matplotlib.rcParams["font.family"]))
    text = "".join(c if ord(c) in known else "□" for c in short_name(name, width))
    return text.replace("\\", "∖").replace("$", r"\$")


@lru_cache(maxsize=8)
def _glyphs(families: tuple[str, ...]) -> frozenset[int]:
    fonts: Any = require("matplotlib.font_manager", "plot", "Drawing a figure")
    found = (fonts.get_font(fonts.findfont(fonts.FontProperties(family=[family]))) for family in families)
    return frozenset().union(*(font.get_charmap() for font in found))


def size_in_points(ax: Any) -> tuple[float, float]:
    """Return width and height of the axes in points (1/72 inch)."""
    engine = ax.figure.figure.get_layout_engine()
    if engine is not None:
        engine.execute(ax.figure.figure)
    ax.apply_aspect()
    box = ax.get_window_extent()
    scale = 72 / ax.figure.get_dpi()
    return float(box.width * scale), float(box.height * scale)


def name_ticks(axis: Any, names: Sequence[Any], length: float, what: str) -> None:
    """Put a name at each of the ticks 0, 1, … of an axis `length` points long, or say how many there are."""
    count = len(names)
    room = length / max(count, 1)
    if room < 4.6:
        axis.set_ticks([])
        axis.set_label_text(f"{count} {what}", fontsize=NORMAL)
        return
    font = float(np.clip(0.85 * room, 4.0, NORMAL - 1))
    texts = [drawn(name) for name in names]
    crowded = axis.axis_name == "x" and 0.65 * font * max(map(len, texts), default=0) > 0.9 * room
    axis.set_ticks(range(count), texts, fontsize=font, rotation=90 if crowded else 0)
    axis.set_label_text(what, fontsize=NORMAL)


def place_labels(ax: Any, places: FloatArray, names: Sequence[Any], radius: float, ranked: Iterable[int]) -> int:
    """Write names beside points where they cover neither a point nor a name; return how many found room.

    `radius` is that of the markers in points; `ranked` says which names come first.
    """
    effects: Any = require("matplotlib.patheffects", "plot", "Drawing a figure")
    width, height = size_in_points(ax)
    inside = ax.transAxes.inverted().transform(ax.transData.transform(places)) * (width, height)
    texts = {k: drawn(names[k], 14) for k in ranked}
    half_sizes = {k: (0.29 * SMALL * len(text), 0.62 * SMALL) for k, text in texts.items()}
    offsets = label_offsets(inside, half_sizes, (width, height), radius=radius)
    for k, offset in offsets.items():
        where = (inside[k] + offset) / (width, height)
        label = ax.text(*where, texts[k], transform=ax.transAxes, fontsize=SMALL, ha="center", va="center")
        label.set(zorder=4, path_effects=[effects.withStroke(linewidth=1.5, foreground="white")])
    return len(offsets)


def chord_labels(ax: Any, tasks: Sequence[Any], angles: FloatArray) -> tuple[float, bool]:
    """Write names around the unit circle in the largest font that fits; return the axes' limit, and if any fit."""
    names = [drawn(name, 16) for name in tasks]
    size = min(size_in_points(ax))
    for font in np.arange(SMALL, 3.4, -0.5):
        length = 0.6 * font * max((len(name) for name in names), default=0)
        radius = size / 2 - length - 8  # in points; the rim and some air take 8
        if 2 * np.pi * radius * 0.75 >= 1.05 * font * len(names) and radius > size / 5:
            break
    else:
        return 1.1, False
    limit, ring = size / 2 / radius, 1 + 6 / radius
    for name, angle in zip(names, angles, strict=True):
        left = np.cos(angle) < -1e-9
        where = {"ha": "right" if left else "left", "va": "center", "rotation_mode": "anchor"}
        turn = np.degrees(angle) % 360 + (180 if left else 0)
        ax.text(ring * np.cos(angle), ring * np.sin(angle), name, fontsize=font, rotation=turn, **where)
    return float(limit), True


def note(ax: Any, *parts: str) -> None:
    """Say below the drawing what it does not show."""
    text = "; ".join(part for part in parts if part)
    if text:
        ax.set_xlabel(text, fontsize=SMALL, color=GREY)


def sign_legend(ax: Any, weights: FloatArray, colors: tuple[str, str], **where: Any) -> None:
    """Explain the two colours of edges, as far as they occur."""
    lines: Any = require("matplotlib.lines", "plot", "Drawing a figure")
    kinds = [("positive", colors[0], "-", weights > 0), ("negative", colors[1], (0, (3, 1.5)), weights < 0)]
    handles = [lines.Line2D([], [], color=c, ls=s, label=label) for label, c, s, there in kinds if there.any()]
    if handles:
        ax.legend(handles=handles, fontsize=SMALL, frameon=False, **where)


def edge_lines(ax: Any, paths: Sequence[FloatArray] | FloatArray, weights: FloatArray, colors: tuple[str, str]) -> None:
    """Draw edges: colour and dash by sign, width and opacity by |weight|, the strongest on top."""
    collections: Any = require("matplotlib.collections", "plot", "Drawing a figure")
    if not len(weights):
        return
    share = np.abs(weights) / (np.abs(weights).max(initial=0.0) or 1.0)
    order = np.argsort(share, kind="stable")
    lines = collections.LineCollection(
        [paths[k] for k in order],
        colors=[colors[0] if weights[k] >= 0 else colors[1] for k in order],
        linewidths=0.3 + 1.9 * share[order],
        linestyles=["-" if weights[k] >= 0 else (0, (3, 1.5)) for k in order],
        alpha=0.25 + 0.6 * share[order],
        zorder=2,
    )
    ax.add_collection(lines, autolim=False)


def history_columns(source: Any) -> dict[str, FloatArray]:
    """Return objective and gaps of a history: a mapping of columns, or a sequence of records."""
    history = getattr(source, "history_", source)
    columns = {}
    for name, other in (("objective", "objective"), ("gap_weights", "gap_w"), ("gap_structure", "gap_omega")):
        values = _column(history, name) or _column(history, other)
        measured = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        if np.isfinite(measured).any():
            columns[name] = measured
    if not columns:
        raise DataError(
            "the history holds neither objective nor gap_weights nor gap_structure; pass a fitted model or history_."
        )
    return columns


def _column(history: Any, name: str) -> list[Any]:
    """Return one column, or an empty list where no record has it."""
    if isinstance(history, Mapping) or hasattr(history, name):
        found = _field(history, name)
        return [] if found is None else list(found)
    values = [_field(record, name) for record in history] if isinstance(history, Iterable) else []
    return values if any(value is not None for value in values) else []


def _field(record: Any, name: str) -> Any:
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)


def heat(ax: Any, values: Any, label: str, aspect: str = "auto") -> Any:
    """Draw a matrix on a diverging map centred at zero; a large sparse one as dots, which would else vanish."""
    reach = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    look = {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}
    rows, columns = np.nonzero(np.nan_to_num(values))
    if max(values.shape) > 200 and len(rows) < 0.1 * values.size:
        order = np.argsort(np.abs(values[rows, columns]), kind="stable")
        cells = values[rows, columns][order]
        drawing = ax.scatter(columns[order], rows[order], c=cells, s=1.5, marker="s", lw=0, rasterized=True, **look)
        ax.set(xlim=(-0.5, values.shape[1] - 0.5), ylim=(values.shape[0] - 0.5, -0.5), aspect=aspect)
    else:
        drawing = ax.imshow(values, aspect=aspect, interpolation="nearest", **look)
        ax.set_facecolor("#E6E6E6")
    bar = ax.figure.colorbar(drawing, ax=ax, fraction=0.046, pad=0.03)
    bar.set_label(label, fontsize=NORMAL)
    bar.ax.tick_params(labelsize=SMALL)
    return drawing


def region(latitude: Any, longitude: Any) -> tuple[float, float, float, float]:
    """Return a box around the tasks with a margin, on whole degrees."""
    margin = max(3.0, 0.08 * float(max(np.ptp(latitude), np.ptp(longitude))))
    south, west = np.floor([latitude.min() - margin, longitude.min() - margin])
    north, east = np.ceil([latitude.max() + margin, longitude.max() + margin])
    return max(float(south), -90.0), min(float(north), 90.0), max(float(west), -180.0), min(float(east), 180.0)


def strengths_of(values: ArrayLike, count: int) -> Any:
    """Penalty strengths along a path, as many as there are points."""
    lambdas = numbers(values, "penalty strengths", 1)
    if len(lambdas) != count:
        raise DataError(f"{len(lambdas)} penalty strengths for {count} rows of values; give one each.")
    return lambdas


def strength_axis(ax: Any, lambdas: Any) -> None:
    """Let the model grow from left to right: strong penalty first, on a log scale where possible."""
    if (lambdas > 0).all():
        ax.set_xscale("log")
    if len(lambdas) > 1:
        ax.set_xlim(lambdas.max(), lambdas.min())
    ax.set_xlabel("penalty strength λ", fontsize=NORMAL)
