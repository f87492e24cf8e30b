"""What the sections are made of: pictures with their words, tables, names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mssl._html import Html, tag
from mssl._typing import Array
from mssl.graph.task_graph import short_name
from mssl.plots.support import axes
from mssl.plots.svg import svg

MOST_ROWS = 20  # of a plain table: more hide the sections below it
MOST_EDGES = 1000  # edges in the page, the strongest: more make it large and slow, and the graph cannot be read anyway


class Section(NamedTuple):
    """One part of the page: its heading, its HTML, and what the page's script knows of its pictures."""

    key: str
    title: str
    body: Html
    data: Mapping[str, Any] = MappingProxyType({})


def canvas(width: float, height: float) -> Any:
    """Axes of a figure for the page, which ``plt.show()`` does not know; in inches."""
    return axes(None, (width, height), shown=False)


def drawing(key: str, ax: Any, alt: str, hidden: Collection[str] = ()) -> Html:
    """A figure drawn by matplotlib."""
    return tag("div", svg(ax.figure, key, alt, hidden), class_="plot", id=f"plot-{key}")


def picture(key: str, ax: Any, alt: str, *caption: str | Html, hidden: Collection[str] = ()) -> Html:
    """A figure drawn by matplotlib, and what it shows in words."""
    return tag("figure", drawing(key, ax, alt, hidden), tag("figcaption", Html(*caption)), aria_label=alt)


def small_table(label: str, caption: str, headings: Iterable[str], lines: Iterable[Iterable[str]]) -> Html:
    """A plain table; the first cell of a line names it."""
    head = tag("tr", *(tag("th", Html(heading), scope="col") for heading in headings))
    body = (
        tag("tr", tag("th", tag("bdi", Html(name)), scope="row"), *(tag("td", Html(cell)) for cell in cells))
        for name, *cells in lines
    )
    table = tag("table", tag("thead", head), tag("tbody", *body))
    return Html(tag("p", Html(caption), class_="caption"), _scrolled(table, label, "table small"))


def _scrolled(table: Html, label: str, look: str) -> Html:
    """A table that may be wider than the screen."""
    return tag("div", table, class_=look, role="region", aria_label=label, tabindex=0)


def named(name: object, width: int = 60) -> Html:
    """A name as HTML, kept from turning the text around it."""
    return tag("bdi", Html(short_name(name, width)))


def listed(names: Iterable[object], most: int, more: str = "") -> Html:
    """The first names of a list, in short, and what stands after them where there are others."""
    every = list(names)
    shown = Html(", ").join(name if isinstance(name, Html) else named(name, 24) for name in every[:most])
    return Html(shown, more if len(every) > most else "")


def count(number: int, word: str) -> str:
    """A number and its noun, in the singular or the plural."""
    plural = {"community": "communities"}.get(word, f"{word}s")
    return f"{number:,} {word if number == 1 else plural}"


def first_of(shown: int, number: int, word: str) -> str:
    """The sentence that not all are shown, where that is so."""
    return f" Shown are the first {shown} of {count(number, word)}." if number > shown else ""


class Column(NamedTuple):
    """One column: its heading, the cells, and a sorting value for each row (None: by text)."""

    heading: str
    cells: list[Html]
    values: Array | None = None


class Row(NamedTuple):
    """What a row is about: its first cell, the tasks that it selects, its full name, and more words to find it by."""

    label: Html
    tasks: Iterable[int]
    title: str
    words: str = ""
    look: str = ""


def numbers(heading: str, values: Array, spec: str) -> Column:
    """A column of numbers; NaN were not measured."""
    return Column(heading, [Html("–" if np.isnan(value) else format(value, spec)) for value in values], values)


def linked_table(
    key: str,
    caption: str,
    first: str,
    rows: list[Row],
    columns: list[Column],
    *,
    order: Iterable[int] | None = None,
    falling: str | None = None,
) -> Html:
    """A table whose rows select tasks, with a field to search it.

    Parameters
    ----------
    key : str
        What a row is, such as "task": it begins the ids, and its plural is what the search counts.
    caption : str
    first : str
        Heading of the first column, which names the rows.
    rows : list of Row
    columns : list of Column
        The others.
    order : iterable of int, optional
        Rows as they stand at first.
    falling : str, optional
        Heading of the column by which they fall.
    """
    head = (
        tag(
            "th",
            tag("button", Html(heading), type="button", data_column=k),
            scope="col",
            aria_sort="descending" if heading == falling else None,
        )
        for k, heading in enumerate([first, *(column.heading for column in columns)])
    )
    body = (_row(rows[k], columns, k) for k in (range(len(rows)) if order is None else order))
    many = count(0, key).removeprefix("0 ")
    label = tag("label", Html(f"Search {many}"), for_=f"{key}-search")
    search = tag("input", type="search", id=f"{key}-search", autocomplete="off", spellcheck="false")
    found = tag("span", id=f"{key}-count", role="status")
    own = {"id": f"{key}-table", "aria-describedby": f"{key}-caption", "data-key": key, "data-many": many}
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="linked", **own)
    return Html(
        tag("div", Html(" ").join([label, search, found]), class_="search"),
        tag("p", Html(caption), class_="caption", id=f"{key}-caption"),
        _scrolled(table, f"Table of {many}", "table"),
    )


def _row(row: Row, columns: list[Column], k: int) -> Html:
    keys = [None if column.values is None else f"{column.values[k]:.5g}" for column in columns]
    cells = (tag("td", column.cells[k], data_value=key) for key, column in zip(keys, columns, strict=True))
    shown_whole = re.sub("<[^>]*>", "", str(row.label)) == str(Html(row.title))
    button = tag("button", row.label, title=None if shown_whole else row.title)
    tasks = " ".join(str(int(task)) for task in row.tasks)
    name = tag("th", button, scope="row")
    return tag("tr", name, *cells, data_tasks=tasks, data_words=row.words or None, class_=row.look or None)
