"""Tasks on a map: errors as colour, edges as great circles, coastlines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mssl._html import Html
from mssl.exceptions import MissingDependencyError
from mssl.graph.geometry import arc_geometry, coastlines, map_region
from mssl.report.figures import FAINT, Section, Shared, base_figure, bokeh, count, figure_html

if TYPE_CHECKING:
    from mssl.report.content import Content

FloatArray = NDArray[np.float64]
_WIDEST, _TALLEST = 820, 560
_MOST_ARCS = 300  # more hide the map
Box = tuple[float, float, float, float]


def map_section(content: Content, shared: Shared) -> Section | None:
    """The map, where coordinates are known."""
    if content.graph.coordinates is None:
        return None
    latitude, longitude = content.graph.coordinates[:, 0], (content.graph.coordinates[:, 1] + 180) % 360 - 180
    box = map_region(latitude, longitude)
    width, height = _size(box)
    south, north, west, east = box
    alt = (
        f"Map of {count(content.n_tasks, 'task')} from {latitude.min():.1f} to {latitude.max():.1f}°N and "
        f"{longitude.min():.1f} to {longitude.max():.1f}°E, with arcs between tasks that are related."
    )
    plot = base_figure(width, height, alt, even=True, x_range=(west, east), y_range=(south, north), active_drag="pan")
    plot.xaxis.axis_label, plot.yaxis.axis_label = "longitude (°E)", "latitude (°N)"
    notes = [_coast(plot, box)]
    if content.graph.n_edges:
        arcs = arc_geometry(content.graph.coordinates, shared.ends, points=33)
        for axis in (0, 1):
            shared.edges.add([_joined(pieces, axis) for pieces in arcs], f"arc_{'xy'[axis]}")
        shared.draw_edges(plot, "multi_line", _MOST_ARCS, xs="arc_x", ys="arc_y")
        most = f", of the strongest {_MOST_ARCS}" if content.graph.n_edges > _MOST_ARCS else ""
        notes.append(f"Edges are those that the sliders leave{most}.")
    else:
        notes.append("There is no edge to draw.")
    shared.tasks.add(longitude, "longitude")
    shared.tasks.add(latitude, "latitude")
    size = float(np.clip(110 / np.sqrt(content.n_tasks), 5, 15))
    shared.tasks.add(shared.tasks.data["scale"] * size, "map_size")
    look, words = _colours(content, shared, plot)
    shared.draw_tasks(plot, "scatter", x="longitude", y="latitude", size="map_size", **look)
    pixels = np.column_stack(
        [(longitude - west) / (east - west) * width, (north - latitude) / (north - south) * height]
    )
    shared.draw_names(plot, "longitude", "latitude", pixels, "map", radius=0.6 * size, width=14)
    body = figure_html("plot-map", alt, Html(" ".join(filter(None, [words, *notes]))))
    return Section("map", "Map", body, {"plot-map": plot})


def _size(box: Box) -> tuple[int, int]:
    """Width and height in pixels that keep distances in the middle of the map in proportion."""
    south, north, west, east = box
    ratio = (north - south) / ((east - west) * max(np.cos(np.radians((south + north) / 2)), 0.2))
    width = min(_WIDEST, _TALLEST / ratio)
    return int(max(width, 260)), int(np.clip(width * ratio, 200, _TALLEST))


def _coast(plot: Any, box: Box) -> str:
    """Draw coastlines; where their package is missing, say so."""
    step = float(np.clip((box[3] - box[2]) / 250, 0.1, 0.5))
    try:
        lines = coastlines(box, step)
    except MissingDependencyError as error:
        return f"Coastlines are left out: {error.args[0].split('.')[0]}."
    xs, ys = ([line[:, axis].astype(np.float32) for line in lines] for axis in (0, 1))
    plot.multi_line(xs, ys, line_color=FAINT, line_width=0.8, level="underlay")
    return ""


def _joined(pieces: list[FloatArray], axis: int) -> NDArray[np.float32]:
    """The pieces of an arc as one line with gaps."""
    gap = np.array([np.nan])
    parts = [part for piece in pieces for part in (gap, piece[:, axis])]
    return np.concatenate(parts[1:]).astype(np.float32)


def _colours(content: Content, shared: Shared, plot: Any) -> tuple[dict[str, Any], str]:
    """Errors as colour where they were measured, communities otherwise."""
    if content.scores is None or np.isnan(content.scores.error).all():
        return {"marker": "mark"}, "Colours and marks are communities; errors were not measured."
    models = bokeh("models")
    palettes = bokeh("palettes")
    error, name = content.scores.error, content.scores.error_name
    mapper = models.LinearColorMapper(
        palette=palettes.Cividis256[::-1], low=float(np.nanmin(error)), high=float(np.nanmax(error)), nan_color=FAINT
    )
    bar = models.ColorBar(color_mapper=mapper, title=name, width=10)
    bar.title_text_font_style = "normal"
    plot.add_layout(bar, "right")
    shared.tasks.add(error, "error")
    look = {"marker": "mark", "fill_color": {"field": "error", "transform": mapper}, "line_color": "#333333"}
    return look, f"Colour is the {name}, darker is worse; marks are communities."
