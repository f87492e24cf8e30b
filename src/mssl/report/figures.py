"""What the sections are made of: pictures with their words, small tables, names."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from mssl._html import Html, tag
from mssl.graph.task_graph import short_name
from mssl.plots.support import axes
from mssl.plots.svg import svg

#: Edges that a page holds at most, the strongest: those that have room are shown, sliders choose.
MOST_EDGES = 1000


@dataclass(frozen=True)
class Section:
    """One part of the page: its heading, its HTML, and what the page's script knows of its pictures."""

    key: str
    title: str
    body: Html
    data: dict[str, Any] = field(default_factory=dict)


def canvas(width: float, height: float) -> Any:
    """Axes of a figure for the page, which ``plt.show()`` does not know; in inches."""
    return axes(None, (width, height), shown=False)


def drawing(element: str, ax: Any, alt: str, hidden: Collection[str] = ()) -> Html:
    """A figure drawn by matplotlib."""
    return tag("div", svg(ax.figure, element.removeprefix("plot-"), alt, hidden), class_="plot", id=element)


def picture(element: str, ax: Any, alt: str, caption: Html, **options: Any) -> Html:
    """A figure drawn by matplotlib, and what it shows in words."""
    return tag("figure", drawing(element, ax, alt, **options), tag("figcaption", caption), aria_label=alt)


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
