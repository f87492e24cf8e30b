"""Heat maps: relations between tasks, and coefficients."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mssl._html import Html, tag
from mssl.graph.inference import COVERAGE
from mssl.model.task_matrix import DENSE_UP_TO
from mssl.plots.fits import draw_forest
from mssl.plots.support import COEF_SHARE, axes, colour_limit
from mssl.report.figures import (
    Section,
    Shared,
    base_figure,
    bokeh,
    count,
    diverging,
    figure_html,
    name_axis,
    picture,
    plain,
)

if TYPE_CHECKING:
    from mssl.report.content import Content

FloatArray = NDArray[np.float64]
_CELLS = 500  # cells on a side of an image, about one a pixel: more make the file large and show nothing more
_MOST_NAMES = 50_000  # names of features in the page: more make the file large
_UPRIGHT = 200  # pixels that the name of an upright colour bar needs


class Pooled(NamedTuple):
    """A matrix in blocks of ``block`` = (height, width) cells.

    ``values`` (r, c) are the blocks' strongest values, ``place`` (r, c) say where in its block each stands: cell
    (place // width, place % width).
    """

    values: FloatArray
    place: NDArray[np.intp]
    block: tuple[int, int]


def pool(matrix: FloatArray, max_side: int = 500) -> Pooled:
    """Show the strongest of each block of cells, so that no side has more than `max_side` cells; NaN are passed over.

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


class _Layer:
    """One way to colour a heat map: values, the colour scale's end, and what it is called."""

    def __init__(self, key: str, label: str, values: FloatArray, share: float = 1.0) -> None:
        self.key, self.label, self.values = key, label, values
        self.limit = colour_limit(values, share)


def matrix_section(content: Content, shared: Shared) -> Section | None:
    """Partial correlations and precisions between tasks, by community, where all pairs have room in a picture."""
    if content.missing_graph is not None or content.n_tasks > DENSE_UP_TO:
        return None
    layers = [_Layer("partial", "partial correlation", _off_diagonal(content.graph.weights, content))]
    if content.precision is not None:
        layers.append(_Layer("precision", "precision", _off_diagonal(content.precision, content)))
    K = content.n_tasks
    side = int(np.clip(30 * K, 240, 640))
    low, high = np.nanmin(layers[0].values), np.nanmax(layers[0].values)
    alt = (
        f"Heat map of the partial correlations between {count(K, 'task')}, ordered by community: from {low:+.2f} to "
        f"{high:+.2f}, {1 - content.graph.density():.0%} of the pairs 0."
    )
    plot, data = _heat_map(layers, (side, side), alt, "relations")
    _mark_rows(plot, shared, data["height"])
    at = content.position.astype(float)
    shared.tasks.add(at, "column")
    shared.tasks.add(at + 1, "column_end")
    _mark(plot, "vstrip", shared, x0="column", x1="column_end")
    names = [content.graph.tasks[k] for k in content.order]
    middles = np.arange(K) + 0.5
    fits = name_axis(plot.yaxis[0], names, data["height"] - middles, side / K)
    name_axis(plot.xaxis[0], names, middles, side / K)
    plot.xaxis.major_label_orientation = np.pi / 2
    _bands(plot, content, data)
    _part_communities(plot, content, data)
    data |= {"rows": content.order.tolist(), "columns": content.order.tolist(), "across": "tasks"}
    notes = [f"Coloured bands are communities. {_pooling_note(data, 'pair of tasks', 'pairs of tasks')}"]
    if not fits:
        notes.append(f"{K:,} names have no room; point at a cell to read its two tasks, click to select them.")
    body = figure_html("plot-relations", alt, Html(" ".join(notes).strip()), _switch("relations", layers))
    return Section("relations", "Partial correlations", body, {"plot-relations": plot}, {"relations": data})


def coefficient_section(content: Content, shared: Shared) -> Section | None:
    """Coefficients, tasks down by community, features across."""
    K, d = content.coef.shape
    ordered = content.coef[content.order]
    layers = [_Layer("fitted", "coefficient", ordered, COEF_SHARE)]
    reach = np.abs(ordered).max(axis=0)
    if not reach.any():
        return None
    relative = _Layer("relative", "share of the feature's largest", ordered / np.where(reach > 0, reach, 1.0))
    spread = reach[reach > 0]
    # Features in very different units: a common colour scale would show one of them only.
    layers = [relative, *layers] if spread.max() > 20 * np.median(spread) else [*layers, relative]
    width, height = int(np.clip(36 * d, 300, 760)), int(np.clip(18 * K, 60, 620))
    top = np.unravel_index(np.argmax(np.abs(content.coef)), content.coef.shape)
    alt = (
        f"Heat map of the coefficients of {count(K, 'task')} on {count(d, 'feature')}; the largest is "
        f"{content.coef[top]:+.3g}, of {plain(content.graph.tasks[top[0]])} on {plain(content.features[top[1]])}."
    )
    plot, data = _heat_map(layers, (width, height), alt, "coefficients")
    _mark_rows(plot, shared, data["height"])
    names = [content.graph.tasks[k] for k in content.order]
    tasks_fit = name_axis(plot.yaxis[0], names, data["height"] - np.arange(K) - 0.5, height / K)
    features_fit = name_axis(plot.xaxis[0], content.features, np.arange(d) + 0.5, width / d)
    plot.xaxis.major_label_orientation = np.pi / 2
    if content.graph.n_edges:
        _bands(plot, content, data, below=False)
    features = [plain(name, 40) for name in content.features[:_MOST_NAMES]]
    data |= {"rows": content.order.tolist(), "features": features, "across": "features"}
    zeros = float((content.coef == 0).mean())
    notes = [f"{zeros:.0%} of the coefficients are zero." if zeros > 0 else "No coefficient is exactly zero."]
    notes += ["Colours end at the 99th percentile." if layers[0].key == "fitted" else ""]
    notes += [_pooling_note(data, "coefficient", "coefficients")]
    if not (tasks_fit and features_fit):
        notes.append("Names without room show beside the pointer.")
    body = figure_html("plot-coefficients", alt, Html(" ".join(filter(None, notes))), _switch("coefficients", layers))
    figures = {"plot-coefficients": plot}
    if content.coef_error is not None:
        body = Html(body, _intervals(content, content.coef_error[content.order]))
    return Section("coefficients", "Coefficients", body, figures, {"coefficients": data})


def _intervals(content: Content, half: FloatArray) -> Html:
    """Weights with their intervals, feature by feature."""
    coef = content.coef[content.order]
    sizes = np.abs(coef).mean(axis=0) * (1.0 if content.spread is None else content.spread)
    names = [content.graph.tasks[k] for k in content.order]
    ax = axes(None, (4.4, float(np.clip(0.13 * coef.size + 0.8, 2.0, 9.0))), shown=False)
    draw_forest(ax, coef, half, (names, content.features), f"coefficient, {COVERAGE:.0%} interval", sizes)
    sure = count(int((np.abs(coef) > half).sum()), "interval")
    alt = f"Coefficients with {COVERAGE:.0%} intervals: {sure} of {coef.size} lie off 0."
    return picture("plot-intervals", ax, alt, Html(f"Coefficients with {COVERAGE:.0%} intervals; grey ones hold 0."))


def _off_diagonal(matrix: FloatArray, content: Content) -> FloatArray:
    values = matrix[np.ix_(content.order, content.order)].copy()
    np.fill_diagonal(values, np.nan)
    return values


def _heat_map(layers: list[_Layer], size: tuple[int, int], alt: str, key: str) -> tuple[Any, dict[str, Any]]:
    """An image per layer, the first one visible, and what the page needs to name a cell."""
    models = bokeh("models")
    pooled = [pool(layer.values, _CELLS) for layer in layers]
    first = pooled[0]
    height, width = (n * step for n, step in zip(first.values.shape, first.block, strict=True))
    rows, columns = layers[0].values.shape
    plot = base_figure(*size, alt, even=key == "relations", x_range=(0, columns), y_range=(height - rows, height))
    plot.grid.visible = False
    plot.background_fill_color = "#D0D0D0"
    # Beside a low map there is no room for the name of an upright bar.
    low = size[1] < _UPRIGHT
    side = "below" if low else "right"
    shape: dict[str, Any] = {"orientation": "horizontal", "width": 240, "height": 10} if low else {"width": 10}
    described = []
    for k, (layer, cells) in enumerate(zip(layers, pooled, strict=True)):
        mapper = models.LinearColorMapper(
            palette=diverging(power=0.65 if max(layer.values.shape) > 100 else 0.9),
            low=-layer.limit,
            high=layer.limit,
            nan_color="#D0D0D0",
            name=f"{key}-{layer.key}-colors",
        )
        source = models.ColumnDataSource({"image": [cells.values[::-1].astype(np.float32)]}, name=f"{key}-{layer.key}")
        image = plot.image("image", source=source, x=0, y=0, dw=width, dh=height, color_mapper=mapper)
        bar = models.ColorBar(color_mapper=mapper, title=layer.label, name=f"{key}-{layer.key}-bar", **shape)
        bar.title_text_font_style = "normal"
        image.name = f"{key}-{layer.key}-image"
        image.visible = bar.visible = k == 0
        plot.add_layout(bar, side)
        described.append({"key": layer.key, "label": layer.label, "place": _packed(cells)})
    plot.name = f"{key}-plot"
    plot.subscribed_events = {"tap", "mousemove", "mouseleave"}
    data = {"height": height, "block": list(first.block), "shape": [rows, columns], "layers": described}
    return plot, data


def _packed(cells: Pooled) -> str | None:
    """Where in its block each value stands, as base64 of little-endian 16-bit numbers; None where blocks are cells."""
    return None if cells.block == (1, 1) else b64encode(cells.place.astype("<u2").tobytes()).decode("ascii")


def _mark(plot: Any, strip: str, shared: Shared, **columns: str) -> None:
    """An outline that only selected tasks have."""
    getattr(plot, strip)(
        **columns,
        source=shared.tasks,
        fill_alpha=0.0,
        line_alpha=0.0,
        line_color="black",
        line_width=1.5,
        nonselection_fill_alpha=0.0,
        nonselection_line_alpha=0.0,
        selection_fill_alpha=0.0,
        selection_line_alpha=0.9,
    )


def _mark_rows(plot: Any, shared: Shared, height: int) -> None:
    at = shared.content.position.astype(float)
    key = f"row_{height}"
    shared.tasks.add(height - at - 1, key)
    shared.tasks.add(height - at, f"{key}_end")
    _mark(plot, "hstrip", shared, y0=key, y1=f"{key}_end")


def _bands(plot: Any, content: Content, data: dict[str, Any], below: bool = True) -> None:
    """Community colours along the rows (and columns), just outside the cells."""
    at, height = content.position.astype(float), data["height"]
    rows, columns = data["shape"]
    thick = columns * 8 / plot.frame_width
    plot.quad(left=-thick, right=-0.25 * thick, bottom=height - at - 1, top=height - at, color=content.colors)
    plot.x_range.start = -thick
    if below:
        thick = rows * 8 / plot.frame_height
        floor = height - rows
        plot.quad(left=at, right=at + 1, bottom=floor - thick, top=floor - 0.25 * thick, color=content.colors)
        plot.y_range.start = floor - thick
    plot.background_fill_color = "white"


def _part_communities(plot: Any, content: Content, data: dict[str, Any]) -> None:
    """Thin lines between communities of more than one task."""
    sizes = np.bincount(content.communities)
    edges = np.cumsum(sizes[sizes > 1]).astype(float)
    rows, height = data["shape"][0], data["height"]
    look = {"line_color": "#606060", "line_width": 0.6, "line_alpha": float(np.clip(6 / max(len(edges), 1), 0.12, 0.7))}
    plot.segment(x0=edges, x1=edges, y0=height - rows, y1=height, **look)
    plot.segment(y0=height - edges, y1=height - edges, x0=0, x1=rows, **look)


def _pooling_note(data: dict[str, Any], one: str, many: str) -> str:
    cells = data["block"][0] * data["block"][1]
    return (
        "" if cells == 1 else f"Each cell shows the strongest of up to {cells} {many}; pointing at it names the {one}."
    )


def _switch(key: str, layers: list[_Layer]) -> Html:
    """Radio buttons that choose what the colours show."""
    if len(layers) < 2:
        return Html()
    buttons = (
        tag("label", button, Html(f" {layer.label}"))
        for k, layer in enumerate(layers)
        for button in [tag("input", type="radio", name=f"{key}-layer", value=layer.key, checked=k == 0)]
    )
    return tag("div", *buttons, class_="controls", role="radiogroup", aria_label="Colours show")
