"""What the interactive figures share: looks, tools, the sources that link them, and their HTML frames."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mssl._html import Html, tag
from mssl.exceptions import require
from mssl.graph.geometry import DIVERGING, NEGATIVE, POSITIVE, label_offsets
from mssl.graph.task_graph import short_name
from mssl.model.task_matrix import entries_at
from mssl.plots.svg import svg

if TYPE_CHECKING:
    from mssl.report.content import Content

FloatArray = NDArray[np.float64]

#: Edges that a page holds at most, chosen by sliders: more make the page slow.
MOST_EDGES = 3000
#: Marks of the communities, so that they differ in more than colour.
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star")
#: Factors for marks that cover less area than others of the same size.
_ENLARGED = {"triangle": 1.1, "inverted_triangle": 1.1, "diamond": 1.4, "star": 1.5}
#: Names in a drawing: font size in pixels, and how many there may be before they hide the drawing.
_FONT, _MOST_NAMES = 11, 60
#: Pixels that a drawing has across on a phone.
PHONE = 310
INK, FAINT, LIGHT = "#222222", "#9A9A9A", "#E4E4E4"
CANDIDATE = "#9A9A9A"  # of edges that cannot be told from chance


def bokeh(module: str) -> Any:
    """A module of Bokeh, or the error that says how to install it."""
    return require(f"bokeh.{module}", "report", "The report")


@dataclass(frozen=True)
class Section:
    """One part of the page: its heading, its HTML, and the Bokeh figures that go into elements of that HTML."""

    key: str
    title: str
    body: Html
    figures: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)


class Shared:
    """The sources that all views draw from: one row per task, one row per edge.

    A task selected in one view is selected in the source, and so in all views.
    """

    def __init__(self, content: Content) -> None:
        models = bokeh("models")
        self.content = content
        graph = content.graph
        labels = content.communities
        sizes = np.bincount(labels, minlength=1)[labels] if len(graph) else np.zeros(0)
        marks = [
            MARKERS[k] if k < len(MARKERS) and size > 1 else "circle" for k, size in zip(labels, sizes, strict=True)
        ]
        self.tasks = models.ColumnDataSource(
            {
                "name": [plain(name, 60) for name in graph.tasks],
                "color": content.colors,
                "mark": marks,
                "scale": np.array([_ENLARGED.get(mark, 1.0) for mark in marks], dtype=np.float32),
            },
            name="tasks",
        )
        i, j = (ends[:MOST_EDGES][::-1] for ends in graph.edge_indices())
        self.ends = np.column_stack([i, j])
        weights = entries_at(graph.weights, i, j)
        share = np.abs(weights) / (np.abs(weights).max(initial=0.0) or 1.0)
        # Many edges are drawn with thinner lines, or they would run into each other.
        thin = float(np.clip((120 / max(len(i), 1)) ** 0.35, 0.35, 1.0))
        confidence = np.ones(len(i)) if graph.confidence is None else entries_at(graph.confidence, i, j)
        sure = np.ones(len(i), dtype=bool) if content.certain is None else entries_at(content.certain, i, j)
        signs = np.where(sure, np.where(weights >= 0, 1, -1), 0)  # a sign is shown where it is certain
        self.edges = models.ColumnDataSource(
            {
                "i": i.astype(np.int32),
                "j": j.astype(np.int32),
                "weight": weights,
                "confidence": confidence,
                "first": [plain(graph.tasks[k], 40) for k in i],
                "second": [plain(graph.tasks[k], 40) for k in j],
                "color": [{1: POSITIVE, -1: NEGATIVE, 0: CANDIDATE}[sign] for sign in signs.tolist()],
                "dash": ["dashed" if sign < 0 else "solid" for sign in signs],
                "width": np.where(sure, 0.4 + thin * 3.6 * share, 0.7).astype(np.float32),
                "alpha": np.where(sure, 0.3 + 0.55 * share, 0.6).astype(np.float32),
            },
            name="edges",
        )
        self.edge_filter = models.IndexFilter(indices=list(range(len(i))), name="edge-filter")
        self.edge_view = models.CDSView(filter=self.edge_filter)

    def watch(self, plot: Any, renderer: Any) -> None:
        """Let the page's script know what lies under the pointer; it sets names as text, whatever they hold.

        Bokeh's own tooltips would do in recent versions only: earlier ones read what they fill in as HTML.
        """
        models = bokeh("models")
        plot.add_tools(models.HoverTool(renderers=[renderer], tooltips=None, description="Details"))

    def draw_edges(self, plot: Any, glyph: str, most: int = MOST_EDGES, **columns: str) -> Any:
        """Draw the edges that the sliders leave, the strongest `most` of all; those of selected tasks stand out."""
        models, held = bokeh("models"), len(self.ends)
        strongest = models.IndexFilter(indices=list(range(max(held - most, 0), held)))
        thinned = models.CDSView(filter=models.IntersectionFilter(operands=[self.edge_filter, strongest]))
        renderer = getattr(plot, glyph)(
            **columns,
            source=self.edges,
            view=self.edge_view if held <= most else thinned,
            line_color="color",
            line_dash="dash",
            line_width="width",
            line_alpha="alpha",
            nonselection_line_alpha=0.06,
            selection_line_alpha=0.95,
        )
        self.watch(plot, renderer)
        return renderer

    def draw_tasks(self, plot: Any, glyph: str, **look: Any) -> Any:
        """Draw the tasks, to hover over and to select."""
        models = bokeh("models")
        renderer = getattr(plot, glyph)(
            source=self.tasks,
            **({"line_color": "white", "fill_color": "color"} | look),
            selection_line_color="black",
            selection_line_width=2,
            nonselection_fill_alpha=0.35,
        )
        self.watch(plot, renderer)
        tap = models.TapTool(renderers=[renderer])
        plot.add_tools(tap)
        plot.toolbar.active_tap = tap
        return renderer

    def draw_names(
        self, plot: Any, x: str, y: str, pixels: FloatArray, key: str, *, radius: float, width: int = 18
    ) -> int:
        """Write the names that have room, and the name of every selected task; return how many had room.

        Parameters
        ----------
        plot : Bokeh figure
        x, y : str
            Columns of the tasks' places.
        pixels : ndarray of shape (K, 2)
            The same places in pixels, right and down from the upper left corner.
        key : str
            Begins the names of the columns that are added.
        radius : float
            Of the markers, in pixels.
        width : int
            Most letters of a name.
        """
        size = np.array([plot.frame_width, plot.frame_height])
        found = 0
        for look, scale in (("wide", 1.0), ("narrow", min(1.0, PHONE / size[0]))):
            named_here = self._write_names(plot, x, y, pixels * scale, size * scale, f"{key}_{look}", radius, width)
            found = found or named_here
        return found

    def _write_names(
        self, plot: Any, x: str, y: str, pixels: FloatArray, size: FloatArray, key: str, radius: float, width: int
    ) -> int:
        """The names that have room in a drawing of that size; the page shows them where it has about that size."""
        models = bokeh("models")
        tasks = self.content.graph.tasks
        texts = {int(k): plain(tasks[k], width) for k in by_community(self.content)}
        half_sizes = {k: (text_width(text, _FONT) / 2, 0.6 * _FONT) for k, text in texts.items()}
        found = label_offsets(pixels, half_sizes, (size[0], size[1]), radius=radius, most=_MOST_NAMES)
        # A selected task whose name had no room gets it above its marker.
        offsets = np.array([found.get(k, (0.0, -14.0)) for k in range(len(tasks))], dtype=np.float32)
        self.tasks.add([texts[k] if k in found else "" for k in range(len(tasks))], f"{key}_label")
        self.tasks.add([plain(name, 30) for name in tasks], "short")
        self.tasks.add(offsets[:, 0], f"{key}_right")
        self.tasks.add(offsets[:, 1], f"{key}_down")
        common: dict[str, Any] = {
            "x": x,
            "y": y,
            "x_offset": f"{key}_right",
            "y_offset": f"{key}_down",
            "text_align": "center",
        }
        common |= {"text_baseline": "middle", "text_font_size": f"{_FONT}px", "text_color": INK}
        common |= {"background_fill_color": "white", "background_fill_alpha": 0.75, "padding": 1}
        usual = models.Text(text=f"{key}_label", **common)
        faded = models.Text(text=f"{key}_label", **(common | {"text_alpha": 0.35}))
        bold = models.Text(text="short", **(common | {"text_font_style": "bold"}))
        names = plot.add_glyph(self.tasks, usual, selection_glyph=bold, nonselection_glyph=faded, level="overlay")
        names.tags, names.visible = [key.rpartition("_")[2]], key.endswith("wide")
        return len(found)


def plain(name: object, width: int = 24) -> str:
    r"""Return a name as Bokeh draws it letter by letter: ``$$…$$``, ``\[…\]`` and ``\(…\)`` are no formulas here.

    Examples
    --------
    >>> plain("$$x$$") == "$\u200b$x$\u200b$"
    True
    """
    text = short_name(name, width)
    for formula in ("$$", r"\[", r"\]", r"\(", r"\)"):
        text = text.replace(formula, f"{formula[0]}\u200b{formula[1]}")
    return text


def text_width(text: str, font: float) -> float:
    """Estimate the width of a text in pixels."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return font * (0.57 * (len(text) - wide) + 1.1 * wide)


def base_figure(width: int, height: int, alt: str, *, even: bool = False, **options: Any) -> Any:
    """An empty figure of the page's look, its drawing `width` × `height` pixels where the screen has room.

    On narrower screens the page makes it narrower, and lower too where it has to stay `even`.
    """
    plotting = bokeh("plotting")
    plot = plotting.figure(
        frame_width=width,
        frame_height=height,
        tools="pan,box_zoom,wheel_zoom,reset,save",
        toolbar_location="above",
        **({"active_drag": None, "active_scroll": None} | options),
    )
    plot.toolbar.logo = None
    plot.outline_line_color = None
    plot.min_border = 6
    plot.title = None
    plot.tags = [alt, "even" if even else ""]
    plot.grid.grid_line_color = LIGHT
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.minor_tick_line_color = None
    return plot


def by_community(content: Content) -> NDArray[np.intp]:
    """Tasks as names are tried: the strongest of every community, then the second …; those without a neighbour last."""
    places = np.arange(content.n_tasks)
    groups = content.communities[content.order]
    rank = places - np.searchsorted(groups, groups)
    alone = content.graph.degree()[content.order] == 0
    return content.order[np.lexsort((places, rank, alone))]


def bare(plot: Any) -> Any:
    """Take axes and grid away."""
    plot.axis.visible = False
    plot.grid.visible = False
    return plot


def diverging(steps: int = 255, power: float = 0.65) -> list[str]:
    """Colours from negative over white to positive; a `power` below 1 lets small values stand out from zero."""
    anchors = np.array([[int(color[k : k + 2], 16) for k in (1, 3, 5)] for color in DIVERGING])
    even = np.linspace(-1, 1, steps)
    at = (np.sign(even) * np.abs(even) ** power + 1) / 2 * (len(anchors) - 1)
    channels = np.column_stack([np.interp(at, np.arange(len(anchors)), channel) for channel in anchors.T])
    return ["#{:02X}{:02X}{:02X}".format(*row) for row in channels.round().astype(int)]


def name_axis(axis: Any, names: list[Any], places: NDArray[Any], room: float, width: int = 20) -> bool:
    """Write a name at each place if there are at least `room` = 9 pixels for each; return whether there were."""
    models = bokeh("models")
    axis.major_tick_line_color = None
    axis.axis_line_color = None
    axis.tags = ["names"]  # the page hides them where a narrow screen has no room
    if room < 9:
        axis.ticker = models.FixedTicker(ticks=[])
        return False
    axis.ticker = models.FixedTicker(ticks=[float(at) for at in places])
    axis.major_label_overrides = {float(at): plain(name, width) for at, name in zip(places, names, strict=True)}
    axis.major_label_text_font_size = f"{min(11, round(room))}px"
    return True


def picture(element: str, ax: Any, alt: str, caption: Html) -> Html:
    """A figure drawn by matplotlib, and what it shows in words."""
    drawing = tag("div", svg(ax.figure, element.removeprefix("plot-"), alt), class_="plot drawn", id=element)
    return tag("figure", drawing, tag("figcaption", caption), aria_label=alt)


def figure_html(element: str, alt: str, caption: Html, controls: Html | None = None) -> Html:
    """The frame of one figure: controls, the place of the drawing, and what it shows in words."""
    drawing = tag("div", class_="plot", id=element)
    return tag("figure", controls or Html(), drawing, tag("figcaption", caption), aria_label=alt)


def small_table(label: str, caption: str, headings: Iterable[str], lines: Iterable[Iterable[str]]) -> Html:
    """A plain table; the first cell of a line names it."""
    head = tag("tr", *(tag("th", Html(heading), scope="col") for heading in headings))
    body = (
        tag("tr", tag("th", tag("bdi", Html(name)), scope="row"), *(tag("td", Html(cell)) for cell in cells))
        for name, *cells in lines
    )
    table = tag("table", tag("thead", head), tag("tbody", *body))
    return Html(tag("p", Html(caption), class_="caption"), scrolled(table, label, "table small"))


def scrolled(table: Html, label: str, look: str) -> Html:
    """A table that may be wider than the screen."""
    return tag("div", table, class_=look, role="region", aria_label=label, tabindex=0)


def sentence(text: str) -> Html:
    """A section's words where there is nothing to draw."""
    return tag("p", Html(text), class_="nothing")


def named(name: object, width: int = 60) -> Html:
    """A name as HTML, kept from turning the text around it."""
    return tag("bdi", Html(short_name(name, width)))


def count(number: int, word: str) -> str:
    """A number and its noun, in the singular or the plural."""
    plural = {"community": "communities"}.get(word, f"{word}s")
    return f"{number:,} {word if number == 1 else plural}"
