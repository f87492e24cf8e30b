"""Maps of tasks with their edges, and of fields with one value per place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mssl._typing import Array, ArrayLike
from mssl.exceptions import DataError
from mssl.graph.geometry import NEUTRAL, PALETTE, arc_geometry, coastlines, community_colors, map_region, thin_edges
from mssl.plots import support
from mssl.plots.graphs import edge_lines
from mssl.plots.support import FAINT, GREY, NORMAL, NOTHING, SMALL, Axes, Look, axes, drawn, matplotlib_module


def plot_map(
    source: Any,
    ax: Axes | None = None,
    *,
    coordinates: ArrayLike | None = None,
    values: ArrayLike | None = None,
    label: str = "value",
    max_edges: int | None = None,
    coast: bool = True,
) -> Axes:
    """Draw tasks on a map, their edges as great-circle arcs, with coastlines.

    Parameters
    ----------
    source : TaskGraph, fitted model, or (K, K) precision matrix
    ax : matplotlib Axes, optional
    coordinates : (K, 2), optional
        Latitude and longitude in degrees; by default those of the graph.
    values : (K,), optional
        Values that colour the tasks, such as errors; by default their communities. Tasks with NaN are grey.
    label : str
        Name of `values` with their unit.
    max_edges : int, optional
        Largest number of edges; the strongest are drawn, and a note gives the number of the others.
    coast : bool
        Whether to draw coastlines (needs global-land-mask).
    """
    shown = support.as_display(source)
    whole = shown.graph if coordinates is None else replace(shown.graph, coordinates=coordinates)  # type: ignore[arg-type]
    if whole.coordinates is None or not len(whole):
        raise DataError("The tasks have no coordinates; give coordinates=, the latitude and longitude of each task.")
    look: Look = {"c": community_colors(shown.groups), "edgecolors": "white", "linewidths": 0.3}
    if values is not None:
        colors = support.numbers(values, "values", 1, missing=True)
        if len(colors) != len(whole):
            raise DataError(f"There are {len(colors)} values for {len(whole)} tasks; give one each.")
        scale = matplotlib_module().colormaps["cividis"].with_extremes(bad=FAINT)
        look |= {"c": colors, "plotnonfinite": True, "cmap": scale}
    graph, hidden = thin_edges(whole, min(300, max(60, len(whole))) if max_edges is None else max_edges)
    latitude, longitude = whole.coordinates[:, 0], (whole.coordinates[:, 1] + 180) % 360 - 180
    ax = axes(ax, (3.8, 3.2))
    _frame(ax, latitude, longitude, coast=coast)
    ends = np.column_stack(graph.edge_indices())
    arcs = arc_geometry(whole.coordinates, ends)
    owners = np.repeat(ends, [len(parts) for parts in arcs], axis=0)
    edge_lines(ax, [piece for parts in arcs for piece in parts], owners, shown, clip_on=True)
    size = float(np.clip(2000 / len(whole), 9, 30))
    points = support.marked(ax.scatter(longitude, latitude, s=size, zorder=3, **look), "tasks", range(len(whole)))
    if values is not None:
        support.colour_bar(points, label, ax=ax, pad=0.03)
    support.note(ax, hidden, *shown.notes)
    return ax


def draw_fields(
    fields: Mapping[str, Array],
    places: tuple[Array, Array],
    label: str,
    *,
    most: float,
    rising: str,
    leaders: tuple[Array, list[str]] | None,
    coast: bool,
) -> Any:
    """Draw fields side by side with a common colour scale, and a map of the leading name at each place.

    Parameters
    ----------
    fields : mapping of title to ndarray
        One value per place, or (latitudes, longitudes) of a grid.
    places : (latitudes, longitudes)
    label : str
        Name of the values with their unit.
    most : float
        Upper limit of the end of the colour scale.
    rising : {"blue", "orange"}
        Colour of positive values.
    leaders : (numbers, names) or None
        The number of the leading name at each place (NaN for none), and the names.
    coast : bool
        Whether to draw coastlines.
    """
    reach = max(np.abs(field[np.isfinite(field)]).max(initial=0.0) for field in fields.values())
    look = support.signed_colours(min(reach, most) or 1.0)
    look["cmap"] = look["cmap"] if rising == "blue" else look["cmap"].reversed()
    page = support.new_figure(7.0, 3.6)
    above = [*fields, *(["largest weight"] if leaders is not None else [])]
    below = [*("bar" for _ in fields), *(["names"] if leaders is not None else [])]
    grid: dict[str, Axes] = page.subplot_mosaic([above, below], height_ratios=(4, 1))
    made = np.array([grid[title] for title in above])
    for title, field in fields.items():
        drawing = _field(grid[title], field, places, look, coast)
    room = grid["bar"].inset_axes((0.1, 0.6, 0.8, 0.2))
    ends = "min" if reach > most else "neither"
    support.colour_bar(drawing, label, cax=room, orientation="horizontal", extend=ends)
    if leaders is not None:
        _leaders(made[-1], grid["names"], *leaders, places, coast)
    for place in set(below):
        grid[place].set_axis_off()
    for title, ax in zip(above, made, strict=True):
        ax.set_title(title, fontsize=NORMAL)
        ax.tick_params(labelsize=SMALL, labelleft=ax is made[0])
        ax.yaxis.label.set_visible(ax is made[0])
    across, up = (float(np.ptp(limits)) for limits in (made[0].get_xlim(), made[0].get_ylim()))
    width = np.clip(2.4 * across / (up * made[0].get_aspect()), 2.0, 3.4)
    page.set_size_inches(0.5 + width * len(made), 3.6)
    return made


def _field(ax: Axes, field: Array, places: tuple[Array, Array], look: Look, coast: bool) -> Any:
    """Draw cells if there is a grid, else points."""
    latitude, longitude = places
    drawing: Any
    if field.ndim == 2:
        latitude, longitude = (_edges(centres) for centres in places)
        up, along = (np.argsort(centres) for centres in places)
        drawing = ax.pcolormesh(longitude, latitude, field[np.ix_(up, along)], **look)
        ax.set_facecolor(NOTHING)
    else:
        size = float(np.clip(2000 / max(len(latitude), 1), 9, 40))
        dots: Look = {"s": size, "edgecolors": GREY, "linewidths": 0.3, "zorder": 3}
        drawing = ax.scatter(longitude, latitude, c=field, **dots, **look)
    _frame(ax, latitude, longitude, coast=coast)
    return drawing


def _edges(centres: Array) -> Array:
    """Edges of the cells around centres, which may have any order."""
    rising = np.sort(centres)
    middles = (rising[1:] + rising[:-1]) / 2
    first, last = (middles[0], middles[-1]) if len(middles) else (rising[0] - 0.5, rising[0] + 0.5)
    return np.concatenate([[2 * rising[0] - first], middles, [2 * rising[-1] - last]])


def _leaders(ax: Axes, below: Axes, leading: Array, names: list[str], places: tuple[Array, Array], coast: bool) -> None:
    """Draw the leading name at each place; the names that lead most often have colours and a legend."""
    known = np.isfinite(leading)
    counts = np.bincount(leading[known].astype(int), minlength=len(names))
    shown = [k for k in np.argsort(-counts, kind="stable")[: len(PALETTE)].tolist() if counts[k]]
    rank = np.full(len(names), len(shown), dtype=float)
    rank[shown] = np.arange(len(shown))
    ranks = np.where(known, rank[np.where(known, leading, 0).astype(int)], np.nan)
    colours = [*PALETTE[: len(shown)], NEUTRAL]
    cmap = matplotlib_module("colors").ListedColormap(colours)
    _field(ax, ranks, places, {"cmap": cmap, "vmin": -0.5, "vmax": len(shown) + 0.5}, coast)
    short = _told_apart(names, shown)
    words = [f"{short[k]} ({counts[k]})" for k in shown]
    others = int(counts.sum() - counts[shown].sum())
    words += [f"others ({others})"] if others else []
    handles = support.patches(dict(zip(words, colours, strict=False)))
    below.legend(handles=handles, fontsize=SMALL, frameon=False, loc="upper center", ncols=2, columnspacing=1.0)


def _told_apart(names: list[str], shown: list[int]) -> dict[int, str]:
    """Short names of some members: without what all begin and end with, and long enough to differ."""
    pieces = [re.split("([_ /.])", name) for name in names]
    for _ in range(2):  # the common beginning, then the common end
        while min(map(len, pieces)) > 1 < len(names) and len({own[0] for own in pieces}) == 1:
            pieces = [own[1:] for own in pieces]
        pieces = [own[::-1] for own in pieces]
    whole = {k: "".join(pieces[k]) for k in shown}
    for width in range(16, 60):
        short = {k: drawn(name, width) for k, name in whole.items()}
        if len(set(short.values())) == len(set(whole.values())):
            break
    return short


def _frame(ax: Axes, latitude: Array, longitude: Array, *, coast: bool = True) -> None:
    """Turn axes into a map around places, with limits, aspect, axis labels and coastlines."""
    south, north, west, east = box = map_region(latitude, longitude)
    if coast:
        step = float(np.clip((east - west) / 250, 0.1, 0.5))
        lines = matplotlib_module("collections").LineCollection(coastlines(box, step), colors=FAINT, lw=0.5, zorder=1)
        ax.add_collection(lines, autolim=False)
    axes(ax).set(xlim=(west, east), ylim=(south, north), xlabel="longitude (°E)", ylabel="latitude (°N)")
    ax.set_aspect(1 / max(np.cos(np.radians((south + north) / 2)), 0.2))
