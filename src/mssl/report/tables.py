"""Tables of the page: sorted by their headings, searched, linked with the figures."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
_FALLING = ' aria-sort="descending"'


class Column(NamedTuple):
    """One column: its heading, the cells as HTML, and a sorting value for each row (None: by text)."""

    heading: str
    cells: list[str]
    values: FloatArray | None = None


class Row(NamedTuple):
    """What a row is about: its first cell, the tasks that it selects, its full name, and more words to find it by."""

    label: str
    tasks: Iterable[int]
    title: str
    words: str = ""
    look: str = ""


def numbers(heading: str, values: FloatArray, spec: str) -> Column:
    """A column of numbers; NaN were not measured."""
    return Column(heading, ["–" if np.isnan(value) else format(value, spec) for value in values], values)


def linked_table(
    key: str,
    caption: str,
    first: str,
    rows: list[Row],
    columns: list[Column],
    *,
    order: Iterable[int] | None = None,
    falling: str | None = None,
) -> str:
    """A table whose rows select tasks, with a field to search it.

    Parameters
    ----------
    key : str
        What a row is, such as "task": it begins the ids, and its plural is what the search counts.
    caption : str
        HTML.
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
    head = "".join(
        f'<th scope="col"{_FALLING if heading == falling else ""}><button type="button" data-column="{k}">'
        f"{escape(heading)}</button></th>"
        for k, heading in enumerate(headings)
    )
    body = "".join(_row(rows[k], columns, k) for k in (range(len(rows)) if order is None else order))
    many = "communities" if key == "community" else f"{key}s"
    return (
        f'<div class="search"><label for="{key}-search">Search {many}</label> <input type="search" id="{key}-search" '
        f'autocomplete="off" spellcheck="false"> <span id="{key}-count" role="status"></span></div>'
        f'<p class="caption" id="{key}-caption">{caption}</p>'
        f'<div class="table" role="region" aria-label="Table of {many}" tabindex="0">'
        f'<table class="linked" id="{key}-table" aria-describedby="{key}-caption" data-key="{key}" data-many="{many}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: Row, columns: list[Column], k: int) -> str:
    keys = ["" if column.values is None else f' data-value="{column.values[k]:.10g}"' for column in columns]
    cells = "".join(f"<td{key}>{column.cells[k]}</td>" for key, column in zip(keys, columns, strict=True))
    words = f' data-words="{escape(row.words)}"' if row.words else ""
    look = f' class="{row.look}"' if row.look else ""
    button = f'<button type="button" class="pick" aria-pressed="false" title="{escape(row.title)}">{row.label}</button>'
    tasks = " ".join(str(int(task)) for task in row.tasks)
    return f'<tr data-tasks="{tasks}"{words}{look}><th scope="row">{button}</th>{cells}</tr>'
