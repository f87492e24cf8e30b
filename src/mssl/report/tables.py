"""Tables of the page: sorted by their headings, searched, linked with the figures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mssl._html import Html, tag
from mssl.report.figures import scrolled

FloatArray = NDArray[np.float64]


class Column(NamedTuple):
    """One column: its heading, the cells, and a sorting value for each row (None: by text)."""

    heading: str
    cells: list[Html]
    values: FloatArray | None = None


class Row(NamedTuple):
    """What a row is about: its first cell, the tasks that it selects, its full name, and more words to find it by."""

    label: Html
    tasks: Iterable[int]
    title: str
    words: str = ""
    look: str = ""


def numbers(heading: str, values: FloatArray, spec: str) -> Column:
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
    headings = [first, *(column.heading for column in columns)]
    buttons = (tag("button", Html(heading), type="button", data_column=k) for k, heading in enumerate(headings))
    sorts = ("descending" if heading == falling else None for heading in headings)
    head = (tag("th", button, scope="col", aria_sort=sort) for button, sort in zip(buttons, sorts, strict=True))
    body = (_row(rows[k], columns, k) for k in (range(len(rows)) if order is None else order))
    many = "communities" if key == "community" else f"{key}s"
    field = tag("input", type="search", id=f"{key}-search", autocomplete="off", spellcheck="false")
    label = tag("label", Html(f"Search {many}"), for_=f"{key}-search")
    found = tag("span", id=f"{key}-count", role="status")
    content = tag("thead", tag("tr", *head)), tag("tbody", *body)
    own = {"id": f"{key}-table", "aria-describedby": f"{key}-caption", "data-key": key, "data-many": many}
    table = tag("table", *content, class_="linked", **own)
    return Html(
        tag("div", Html(" ").join([label, field, found]), class_="search"),
        tag("p", Html(caption), class_="caption", id=f"{key}-caption"),
        scrolled(table, f"Table of {many}", "table"),
    )


def _row(row: Row, columns: list[Column], k: int) -> Html:
    keys = [None if column.values is None else f"{column.values[k]:.5g}" for column in columns]
    cells = (tag("td", column.cells[k], data_value=key) for key, column in zip(keys, columns, strict=True))
    shown_whole = re.sub("<[^>]*>", "", str(row.label)) == str(Html(row.title))
    button = tag("button", row.label, title=None if shown_whole else row.title)
    tasks = " ".join(str(int(task)) for task in row.tasks)
    name = tag("th", button, scope="row")
    return tag("tr", name, *cells, data_tasks=tasks, data_words=row.words or None, class_=row.look or None)
