"""The tables of tasks and of related pairs: sorted, searchable, linked with the pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html, tag
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.model.task_matrix import entries_at
from mssl.plots.fits import plot_transfer
from mssl.report.parts import Column, Row, Section, canvas, count, linked_table, named, numbers, picture
from mssl.report.scores import Gains

if TYPE_CHECKING:
    from mssl.report.content import Content

_GAIN = "gain over single-task (%)"
_MOST_PAIRS = 500  # rows: more make the page slow


def task_section(content: Content) -> Section:
    """Bars of gains where they were measured, and the table: errors, gains over single-task fits, neighbours."""
    gains, tasks, bars = content.gains, content.graph.tasks, Html()
    falling, order = None, content.order
    if gains is not None:
        bars = _gain_bars(content, gains)
        falling, order = _GAIN, np.argsort(-gains.gain, kind="stable")
    rows = [
        Row(
            Html(tag("span", class_="chip", style=f"background:{content.colors[k]}"), named(tasks[k])),
            [k],
            short_name(tasks[k], 500),
            look="loses" if gains is not None and gains.verdict[k] == "loss" else "",
        )
        for k in range(content.n_tasks)
    ]
    caption = "Choose a task's name to highlight it in all views; a heading sorts."
    table = linked_table("task", caption, "task", rows, _columns(content), order=order, falling=falling)
    return Section("tasks", "Tasks", Html(bars, table))


def _gain_bars(content: Content, gains: Gains) -> Html:
    gain = gains.gain[np.isfinite(gains.gain)]
    losers = count(int((gains.verdict == "loss").sum()), "task")
    alt = (
        f"Bars of the gain of {count(len(gain), 'task')} over single-task fits, from {gain.min():+.1f} to "
        f"{gain.max():+.1f} %; {losers} lose."
    )
    ax = canvas(3.6, float(np.clip(0.6 + 0.13 * len(gain), 2.2, 7.0)) if len(gain) <= 80 else 3.4)
    plot_transfer(gains.gain, ax, tasks=content.graph.tasks, label=_GAIN)
    return picture("gains", ax, alt, "Gain over the single-task fit, best first; losses are hatched.")


def _columns(content: Content) -> list[Column]:
    columns: list[Column] = []
    scores, gains, graph = content.scores, content.gains, content.graph
    if scores is not None:
        columns.append(numbers("rows", scores.rows.astype(float), ",.0f"))
        columns.append(numbers(scores.error_name, scores.error, ".4g"))
        columns.append(numbers(scores.explained_name, scores.explained, ".3f"))
        if scores.inside is not None:
            columns.append(numbers(f"inside {COVERAGE:.0%} interval (%)", 100 * scores.inside, ".0f"))
    if gains is not None:
        columns += [numbers(name.replace("_", " "), values, ".4g") for name, values in gains.others.items()]
        # A word and a mark for losers, so that colour is not needed to see them.
        loses, even = tag("strong", Html("▼ loses"), class_="loss"), tag("span", Html("even"), class_="quiet")
        marks = {"loss": Html(" ", loses), "even": Html(" ", even)}
        plain = numbers(_GAIN, gains.gain, "+.1f")
        cells = [Html(cell, marks.get(word, "")) for cell, word in zip(plain.cells, gains.verdict, strict=True)]
        columns.append(plain._replace(cells=cells))
    if content.missing_graph is None:
        community, best, weight = (np.full(content.n_tasks, fill) for fill in (np.nan, -1, 0.0))
        for number, members in enumerate(content.groups, 1):
            community[members] = number
        # Both ends of every edge, weakest first: what is written last stays.
        i, j = (ends[::-1] for ends in graph.edge_indices())
        ends, others = np.column_stack([i, j]).ravel(), np.column_stack([j, i]).ravel()
        best[ends], weight[ends] = others, np.repeat(entries_at(graph.weights, i, j), 2)
        nearest = [
            Html(named(graph.tasks[int(k)], 24), f" ({w:+.2f})") if w else Html("–")
            for k, w in zip(best, weight, strict=True)
        ]
        columns.append(numbers("community", community, ".0f"))
        columns.append(numbers("neighbours", graph.degree().astype(float), ".0f"))
        columns.append(Column("strongest neighbour", nearest, np.abs(weight)))
    if content.noise is not None:
        columns.append(numbers("noise", content.noise, ".4g"))
    return columns


def pair_section(content: Content) -> Section | None:
    """Relations that can be told from chance; where that was not tested, the pairs of the graph."""
    graph, relations = content.graph, content.shown.relations
    tasks, columns = graph.tasks, []
    if relations:
        place = {name: k for k, name in enumerate(tasks)}
        total, shown = len(relations), relations[:_MOST_PAIRS]
        i, j = np.array([[place[row.task_i], place[row.task_j]] for row in shown]).T
        weight, low, high, q = np.array([[row.weight, row.low, row.high, row.q] for row in shown]).T
        certain = set(content.shown.edges.pairs if content.shown.edges is not None else [])
        columns = [
            numbers("correlation", weight, "+.2f"),
            Column(
                f"{COVERAGE:.0%} interval", [Html(f"{a:+.2f} to {b:+.2f}") for a, b in zip(low, high, strict=True)], low
            ),
            numbers("q-value", q, ".2g"),
            Column("edge", [Html("yes" if pair in certain else "–") for pair in shown.pairs]),
        ]
        assert graph.evidence is not None
        related = {"coef": "weights", "residual": "residuals"}[graph.evidence.resolve().on]
        what = f"Pairs of tasks whose {related} are related, the smallest q-value first: {relations.summary()}"
    elif relations is None and graph.n_edges:
        total = graph.n_edges
        i, j = (ends[:_MOST_PAIRS] for ends in graph.edge_indices())
        what = f"{count(total, 'pair')}, strongest first"
    else:
        return None
    joined = entries_at(graph.adjacency, i, j).astype(bool)
    columns.append(numbers("partial correlation", np.where(joined, entries_at(graph.weights, i, j), np.nan), "+.2f"))
    if graph.confidence is not None:
        columns.append(numbers("selected (%)", 100 * entries_at(graph.confidence, i, j), ".0f"))
    rows = [
        Row(
            Html(named(tasks[a], 24), " – ", named(tasks[b], 24)),
            (a, b),
            f"{short_name(tasks[a], 200)} – {short_name(tasks[b], 200)}",
        )
        for a, b in zip(i, j, strict=True)
    ]
    more = f" Shown are the first {_MOST_PAIRS}." if total > _MOST_PAIRS else ""
    caption = (
        f"{what}.{more} A partial correlation stands where two tasks are joined in the graph, other tasks being known. "
        "Choose a pair to highlight it in all views; a heading sorts."
    )
    return Section("pairs", "Related pairs", linked_table("pair", caption, "tasks", rows, columns))
