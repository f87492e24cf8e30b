r"""The page as markup: pictures, tables and names of its sections, and the HTML file that holds all of them.

The file includes all its parts, and only the page's own script runs. Names of tasks and features, titles and other
texts reach the page in three ways only: as :class:`~mssl._html.Html`, which escapes them (also in pictures), as JSON in
which ``<``, ``>`` and ``&`` are written as ``\u003c`` …, and as text that the page's script sets as text. In addition,
the page's content security policy names its script by its hash, so no other script can run. It forbids all requests and
all frames.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mssl._html import Html, tag, verbatim
from mssl._typing import Array, ArrayLike
from mssl.graph.task_graph import short_name
from mssl.plots.support import axes
from mssl.plots.svg import svg

if TYPE_CHECKING:
    from mssl.report.content import Content

MOST_EDGES = 1000  # The page holds the strongest edges, at most this many. More make it large, slow and unreadable.
_MOST_NAMES = 50_000  # The page holds at most this many names of features. A mere safeguard of the file's size.


class Section(NamedTuple):
    """One section of the page: its key, heading and HTML, and data of its pictures for the page's script."""

    key: str
    title: str
    body: Html
    data: Mapping[str, Any] | None = None


def canvas(width: float, height: float) -> Any:
    """Axes of a figure for the page, of a size in inches, which ``plt.show()`` does not show."""
    return axes(None, (width, height), shown=False)


def drawing(key: str, ax: Any, alt: str, hidden: Collection[str] = ()) -> Html:
    """A figure of matplotlib as markup."""
    return tag("div", svg(ax.figure, key, alt, hidden), class_="plot", id=f"plot-{key}")


def picture(key: str, ax: Any, alt: str, *caption: str | Html, hidden: Collection[str] = ()) -> Html:
    """A figure of matplotlib as markup, with a caption."""
    return tag("figure", drawing(key, ax, alt, hidden), tag("figcaption", Html(*caption)), aria_label=alt)


def small_table(label: str, caption: str, headings: Iterable[str], lines: Iterable[Iterable[str]]) -> Html:
    """A plain table; the first cell of each line is its heading."""
    head = (tag("th", Html(heading), scope="col") for heading in headings)
    body = (
        tag("tr", tag("th", tag("bdi", Html(name)), scope="row"), *(tag("td", Html(cell)) for cell in cells))
        for name, *cells in lines
    )
    return Html(tag("p", Html(caption), class_="caption"), _table(head, body, label, "table small"))


def _table(head: Iterable[Html], body: Iterable[Html], label: str, look: str, **own: str) -> Html:
    """A table in a region that scrolls if the table is wider than the screen."""
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), **own)
    return tag("div", table, class_=look, role="region", aria_label=label, tabindex=0)


def named(name: object, width: int = 60) -> Html:
    """A name as HTML; its text direction does not affect the text around it."""
    return tag("bdi", Html(short_name(name, width)))


def listed(names: Iterable[object], most: int, more: str = "\u00a0…") -> Html:
    """The first names of a list in short form, followed by ``more`` if there are others."""
    every = list(names)
    shown = Html(", ").join(name if isinstance(name, Html) else named(name, 24) for name in every[:most])
    return Html(shown, more if len(every) > most else "")


def count(number: int, word: str) -> str:
    """A number and its noun, in the singular or the plural."""
    plural = {"community": "communities"}.get(word, f"{word}s")
    return f"{number:,} {word if number == 1 else plural}"


def first_of(shown: int, number: int, word: str) -> str:
    """A sentence on the number of shown items if not all of them are shown, else an empty string."""
    return f" Shown are the first {shown} of {count(number, word)}." if number > shown else ""


class Column(NamedTuple):
    """One column: its heading, its cells, and one sorting value per row (None sorts by text)."""

    heading: str
    cells: list[Html]
    values: Array | None = None


class Row(NamedTuple):
    """One row: its first cell, the tasks that it selects, its full name, and further words for the search."""

    label: Html
    tasks: Iterable[int]
    title: str
    words: str = ""
    look: str = ""


def numbers(heading: str, values: ArrayLike, spec: str) -> Column:
    """A column of numbers; NaN, which were not measured, become dashes."""
    values = np.asarray(values, dtype=float)
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
    """A table whose rows select tasks, with a search field.

    Parameters
    ----------
    key : str
        The word for a row, such as "task". It is the prefix of the ids, and the search counts its plural.
    caption : str
    first : str
        Heading of the first column, which holds the names of the rows.
    rows : list of Row
    columns : list of Column
        The other columns.
    order : iterable of int, optional
        Initial order of the rows.
    falling : str, optional
        Heading of the column by which the rows are initially sorted, in falling order.
    """
    head = []
    for k, heading in enumerate([first, *(column.heading for column in columns)]):
        button = tag("button", Html(heading), type="button", data_column=k)
        head.append(tag("th", button, scope="col", aria_sort="descending" if heading == falling else None))
    body = (_row(rows[k], columns, k) for k in (range(len(rows)) if order is None else order))
    many = count(0, key).removeprefix("0 ")
    label = tag("label", Html(f"Search {many}"), for_=f"{key}-search")
    search = tag("input", type="search", id=f"{key}-search", autocomplete="off", spellcheck="false")
    found = tag("span", id=f"{key}-count", role="status")
    own = {"id": f"{key}-table", "aria-describedby": f"{key}-caption", "data-key": key, "data-many": many}
    return Html(
        tag("div", Html(" ").join([label, search, found]), class_="search"),
        tag("p", Html(caption), class_="caption", id=f"{key}-caption"),
        _table(head, body, f"Table of {many}", "table", class_="linked", **own),
    )


def _row(row: Row, columns: list[Column], k: int) -> Html:
    keys = [None if column.values is None else f"{column.values[k]:.5g}" for column in columns]
    cells = (tag("td", column.cells[k], data_value=key) for key, column in zip(keys, columns, strict=True))
    shown_whole = re.sub("<[^>]*>", "", str(row.label)) == str(Html(row.title))
    button = tag("button", row.label, title=None if shown_whole else row.title)
    tasks = " ".join(str(int(task)) for task in row.tasks)
    name = tag("th", button, scope="row")
    return tag("tr", name, *cells, data_tasks=tasks, data_words=row.words or None, class_=row.look or None)


def render(content: Content, sections: Sequence[Section]) -> str:
    """Return the page as text."""
    folder, parts = files("mssl.report"), []
    template, look, script = (folder.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    for key, title, body, _ in sections:
        heading = tag("h2", Html(title), id=f"{key}-title")
        parts.append(tag("section", heading, body, id=key, aria_labelledby=f"{key}-title"))
    return Template(template).substitute(
        hash=b64encode(sha256(script.encode()).digest()).decode(),
        title=Html(content.title),
        style=verbatim("style", look),
        links=Html(*(tag("li", tag("a", Html(s.title), href=f"#{s.key}")) for s in sections)),
        sections=Html("\n").join(parts),
        data=verbatim("script", _data(content, sections), type="application/json", id="report-data"),
        script=verbatim("script", script),
    )


def _data(content: Content, sections: Sequence[Section]) -> str:
    """The data of the page's script as JSON in which HTML parsers find no markup."""
    features = [short_name(name, 40) for name in content.features[:_MOST_NAMES]]
    pictures = {key: value for section in sections for key, value in (section.data or {}).items()}
    data = {"names": content.names, "facts": _facts(content), "features": features, "edges": content.edges}
    text = json.dumps(data | {"pictures": pictures}, separators=(",", ":"))
    return text.translate({ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"})


def _facts(content: Content) -> list[list[str]]:
    """Facts about each task, which the page shows beside its name under the pointer."""
    facts: list[list[str]] = []
    scores, gains = content.scores, content.gains
    for k, degree in enumerate(content.graph.degree().tolist()):
        number = content.community.get(k)
        own = f"community {number}, {count(len(content.groups[number - 1]), 'task')}" if number else "no community"
        facts.append([own, count(degree, "neighbour")])
        if scores is not None and np.isfinite(scores.error[k]):
            facts[k].append(f"{scores.error_name} {scores.error[k]:.4g}")
        if gains is not None and np.isfinite(gains.gain[k]):
            facts[k].append(f"gain {gains.gain[k]:+.1f} %")
    return facts
