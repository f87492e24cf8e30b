"""The table of related pairs, with q-values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.model.task_matrix import entries_at
from mssl.report.figures import Section, count, named
from mssl.report.tables import Column, Row, linked_table, numbers

if TYPE_CHECKING:
    from mssl.report.content import Content

_MOST_PAIRS = 500  # rows: more make the page slow


def pair_section(content: Content) -> Section | None:
    """Relations that can be told from chance; where that was not tested, the pairs of the graph."""
    place = {name: k for k, name in enumerate(content.graph.tasks)}
    if content.shown.relations:
        found = [(place[row.task_i], place[row.task_j]) for row in content.shown.relations]
    elif content.shown.relations is None and content.graph.n_edges:
        found = list(zip(*(ends.tolist() for ends in content.graph.edge_indices()), strict=True))
    else:
        return None
    shown = found[:_MOST_PAIRS]
    i, j = (np.array(ends) for ends in zip(*shown, strict=True))
    tasks = content.graph.tasks
    rows = [
        Row(
            Html(named(tasks[a], 24), " – ", named(tasks[b], 24)),
            (a, b),
            f"{short_name(tasks[a], 200)} – {short_name(tasks[b], 200)}",
        )
        for a, b in shown
    ]
    columns = _tested(content) if content.shown.relations else []
    columns.append(numbers("partial correlation", _of_edges(content, i, j), "+.2f"))
    if content.graph.confidence is not None:
        columns.append(numbers("selected (%)", 100 * entries_at(content.graph.confidence, i, j), ".0f"))
    what = f"{count(len(found), 'pair')}, strongest first"
    if content.shown.relations:
        assert content.graph.evidence is not None
        related = {"coef": "weights", "residual": "residuals"}[content.graph.evidence.resolve().on]
        found_so = content.shown.relations.summary()
        what = f"Pairs of tasks whose {related} are related, the smallest q-value first: {found_so}"
    more = f" Shown are the first {_MOST_PAIRS}." if len(found) > _MOST_PAIRS else ""
    caption = (
        f"{what}.{more} A partial correlation stands where two tasks are joined in the graph, other tasks being known. "
        "Choose a pair to highlight it in all views; a heading sorts."
    )
    return Section("pairs", "Related pairs", linked_table("pair", caption, "tasks", rows, columns))


def _tested(content: Content) -> list[Column]:
    """What the tests say of each relation."""
    found = list(content.shown.relations or [])[:_MOST_PAIRS]
    weight, low, high, q = (np.array([getattr(row, name) for row in found]) for name in ("weight", "low", "high", "q"))
    spans = [Html(f"{a:+.2f} to {b:+.2f}") for a, b in zip(low, high, strict=True)]
    certain = set(content.shown.edges.pairs if content.shown.edges is not None else [])
    marks = [Html("yes" if (row.task_i, row.task_j) in certain else "–") for row in found]
    return [
        numbers("correlation", weight, "+.2f"),
        Column(f"{COVERAGE:.0%} interval", spans, low),
        numbers("q-value", q, ".2g"),
        Column("edge", marks),
    ]


def _of_edges(content: Content, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    joined = entries_at(content.graph.adjacency, i, j).astype(bool)
    return np.where(joined, entries_at(content.graph.weights, i, j), np.nan)
