"""The table of tasks: errors, gains over single-task fits, neighbours; sorted, searchable, linked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mssl._html import Html, tag
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.model.task_matrix import entries_at
from mssl.plots.fits import plot_transfer
from mssl.report.figures import Section, canvas, count, named, picture
from mssl.report.tables import Column, Row, linked_table, numbers

if TYPE_CHECKING:
    from mssl.report.content import Content
    from mssl.report.scores import Gains

FloatArray = NDArray[np.float64]
_GAIN = "gain over single-task (%)"


def task_section(content: Content) -> Section:
    """Bars of gains where they were measured, and the table."""
    body = Html() if content.gains is None else _gain_bars(content, content.gains)
    return Section("tasks", "Tasks", Html(body, _table(content)))


def _gain_bars(content: Content, gains: Gains) -> Html:
    gain = gains.gain[np.isfinite(gains.gain)]
    losers = count(int(gains.lost.sum()), "task")
    alt = (
        f"Bars of the gain of {count(len(gain), 'task')} over single-task fits, from {gain.min():+.1f} to "
        f"{gain.max():+.1f} %; {losers} lose."
    )
    ax = canvas(3.6, float(np.clip(0.6 + 0.13 * len(gain), 2.2, 7.0)) if len(gain) <= 80 else 3.4)
    plot_transfer(gains.gain, ax, tasks=content.graph.tasks, label=_GAIN)
    return picture("plot-gains", ax, alt, Html("Gain over the single-task fit, best first; losses are hatched."))


def _table(content: Content) -> Html:
    columns = _columns(content)
    falling = None if content.gains is None else _GAIN
    order = content.order if content.gains is None else np.argsort(-content.gains.gain, kind="stable")
    lost = np.zeros(content.n_tasks, dtype=bool) if content.gains is None else content.gains.lost
    tasks = content.graph.tasks
    rows = [
        Row(
            Html(tag("span", class_="chip", style=f"background:{content.colors[k]}"), named(tasks[k])),
            [k],
            short_name(tasks[k], 500),
            look="loses" if lost[k] else "",
        )
        for k in range(content.n_tasks)
    ]
    caption = "Choose a task's name to highlight it in all views; a heading sorts."
    return linked_table("task", caption, "task", rows, columns, order=order, falling=falling)


def _columns(content: Content) -> list[Column]:
    columns: list[Column] = []
    if content.scores is not None:
        scores = content.scores
        columns.append(numbers("rows", scores.rows.astype(float), ",.0f"))
        columns.append(numbers(scores.error_name, scores.error, ".4g"))
        columns.append(numbers(scores.explained_name, scores.explained, ".3f"))
        if scores.inside is not None:
            columns.append(numbers(f"inside {COVERAGE:.0%} interval (%)", 100 * scores.inside, ".0f"))
    if content.gains is not None:
        columns += [numbers(name.replace("_", " "), values, ".4g") for name, values in content.gains.others.items()]
        columns.append(_gain_column(content.gains))
    if content.missing_graph is None:
        sizes = np.bincount(content.communities, minlength=1)[content.communities]
        groups = np.where(sizes > 1, content.communities + 1.0, np.nan)
        columns.append(numbers("community", groups, ".0f"))
        columns.append(numbers("neighbours", content.graph.degree().astype(float), ".0f"))
        columns.append(_strongest(content))
    if content.noise is not None:
        columns.append(numbers("noise", content.noise, ".4g"))
    return columns


def _gain_column(gains: Gains) -> Column:
    """Gains with a word and a mark for losers, so that colour is not needed to see them."""
    loses, even = tag("strong", Html("▼ loses"), class_="loss"), tag("span", Html("even"), class_="quiet")
    marks = {"loss": Html(" ", loses), "even": Html(" ", even)}
    cells = [
        Html("–") if np.isnan(value) else Html(f"{value:+.1f}", marks.get(word, ""))
        for value, word in zip(gains.gain, gains.verdict, strict=True)
    ]
    return Column(_GAIN, cells, gains.gain)


def _strongest(content: Content) -> Column:
    i, j = content.graph.edge_indices()
    best, weight = np.full(content.n_tasks, -1), np.zeros(content.n_tasks)
    # Both ends of every edge, weakest first: what is written last stays.
    ends, others = np.column_stack([i, j])[::-1].ravel(), np.column_stack([j, i])[::-1].ravel()
    best[ends], weight[ends] = others, np.repeat(entries_at(content.graph.weights, i, j)[::-1], 2)
    names = content.graph.tasks
    cells = [Html(named(names[k], 24), f" ({w:+.2f})") if w else Html("–") for k, w in zip(best, weight, strict=True)]
    return Column("strongest neighbour", cells, np.abs(weight))
