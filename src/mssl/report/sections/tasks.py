"""The table of tasks: errors, gains over single-task fits, neighbours; sorted, searchable, linked."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mssl.graph.geometry import NEGATIVE, POSITIVE
from mssl.graph.task_graph import short_name
from mssl.model.task_matrix import entries_at
from mssl.report.figures import Section, Shared, base_figure, count, figure_html, named

if TYPE_CHECKING:
    from mssl.report.content import Content
    from mssl.report.scores import Gains

FloatArray = NDArray[np.float64]
_GAIN_CAPTION = "Gain over the single-task fit, best first; losses lie below zero, in orange."


class _Column:
    """One column: its heading, a sorting value for each task (None: by text), and the cells as HTML."""

    def __init__(self, heading: str, cells: list[str], values: FloatArray | None = None) -> None:
        self.heading, self.cells, self.values = heading, cells, values


def task_section(content: Content, shared: Shared) -> Section:
    """Bars of gains where they were measured, and the table."""
    figures: dict[str, Any] = {}
    parts = []
    if content.scores is None:
        parts.append("No rows were given to the report, so it states no errors.")
    if content.gains is None:
        parts.append("The gain over single-task fits was not measured.")
    body = f'<p class="nothing">{" ".join(parts)}</p>' if parts else ""
    if content.gains is not None:
        plot, alt = _gain_bars(content.gains, shared)
        figures["plot-gains"] = plot
        body += figure_html("plot-gains", alt, _GAIN_CAPTION)
    return Section("tasks", "Tasks", body + _table(content), figures)


def _gain_bars(gains: Gains, shared: Shared) -> tuple[Any, str]:
    gain = gains.gain
    order = np.argsort(np.where(np.isnan(gain), np.inf, -gain), kind="stable")
    rank = np.empty(len(gain))
    rank[order] = np.arange(len(gain))
    lost = gain < 0
    losers = count(int(gains.lost.sum()), "task")
    alt = f"Bars of the gain of {count(len(gain), 'task')} over single-task fits; {losers} lose."
    plot = base_figure(860, 220, alt, x_range=(-0.7, len(gain) - 0.3))
    for name, values in {
        "gain": np.nan_to_num(gain),
        "rank": rank,
        "gain_color": [NEGATIVE if bad else POSITIVE for bad in lost],
    }.items():
        shared.tasks.add(values, name)
    # Bars that are too thin for a hatch show their sign by the side on which they lie.
    hatch: dict[str, Any] = {}
    if len(gain) <= 100:
        shared.tasks.add(["right_diagonal_line" if bad else " " for bad in lost], "gain_hatch")
        hatch = {"hatch_pattern": "gain_hatch", "hatch_color": "white"}
    shared.draw_tasks(
        plot,
        "vbar",
        x="rank",
        top="gain",
        width=0.85,
        fill_color="gain_color",
        line_color="gain_color",
        **hatch,
    )
    plot.xaxis.visible = False
    plot.xgrid.visible = False
    plot.yaxis.axis_label = "gain (%)"
    return plot, alt


def _table(content: Content) -> str:
    columns = _columns(content)
    sort = next((k for k, column in enumerate(columns) if column.heading.startswith("gain")), None)
    order = content.order if sort is None else _falling(columns[sort].values)
    head = "".join(
        f'<th scope="col"{_sorted(k, sort)}><button type="button" data-column="{k}">{escape(column.heading)}'
        "</button></th>"
        for k, column in enumerate(columns)
    )
    lost = np.zeros(content.n_tasks, dtype=bool) if content.gains is None else content.gains.lost
    table_rows = "".join(_row(content, columns, int(k), bool(lost[k])) for k in order)
    return (
        '<div class="search"><label for="search">Search tasks</label> <input type="search" id="search" '
        'autocomplete="off" spellcheck="false"> <span id="search-count" role="status"></span></div>'
        '<div class="table" role="region" aria-label="Table of tasks" tabindex="0"><table id="task-table">'
        "<caption>Choose a task's name to highlight it in all views; a heading sorts.</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{table_rows}</tbody></table></div>"
    )


def _sorted(column: int, by: int | None) -> str:
    return ' aria-sort="descending"' if column == by else ""


def _falling(values: FloatArray | None) -> Any:
    known = np.zeros(0) if values is None else values
    return np.argsort(np.where(np.isnan(known), np.inf, -known), kind="stable")


def _row(content: Content, columns: list[_Column], k: int, lost: bool) -> str:
    cells = []
    for column in columns:
        key = "" if column.values is None else f' data-value="{column.values[k]:.10g}"'
        cells.append(f"<td{key}>{column.cells[k]}</td>")
    look = ' class="loses"' if lost else ""
    full = escape(short_name(content.graph.tasks[k], 500))
    button = (
        f'<button type="button" class="task" aria-pressed="false" title="{full}"><span class="chip" '
        f'style="background:{content.colors[k]}"></span>{named(content.graph.tasks[k])}</button>'
    )
    return f'<tr data-task="{k}"{look}><th scope="row">{button}</th>{"".join(cells[1:])}</tr>'


def _columns(content: Content) -> list[_Column]:
    names = content.names
    columns = [_Column("task", names)]
    if content.scores is not None:
        scores = content.scores
        columns.append(_numbers("rows", scores.rows.astype(float), ",.0f"))
        columns.append(_numbers(scores.error_name, scores.error, ".4g"))
        columns.append(_numbers(scores.explained_name, scores.explained, ".3f"))
    if content.gains is not None:
        columns += [_numbers(name.replace("_", " "), values, ".4g") for name, values in content.gains.others.items()]
        columns.append(_gain_column(content.gains))
    if content.has_graph:
        sizes = np.bincount(content.communities, minlength=1)[content.communities]
        groups = np.where(sizes > 1, content.communities + 1.0, np.nan)
        columns.append(_numbers("community", groups, ".0f"))
        columns.append(_numbers("neighbours", content.graph.degree().astype(float), ".0f"))
        columns.append(_strongest(content))
    if content.noise is not None:
        columns.append(_numbers("noise", content.noise, ".4g"))
    return columns


def _numbers(heading: str, values: FloatArray, spec: str) -> _Column:
    return _Column(heading, ["–" if np.isnan(value) else format(value, spec) for value in values], values)


def _gain_column(gains: Gains) -> _Column:
    """Gains with a word and a mark for losers, so that colour is not needed to see them."""
    marks = {"loss": ' <strong class="loss">▼ loses</strong>', "even": ' <span class="quiet">even</span>'}
    cells = [
        "–" if np.isnan(value) else f"{value:+.1f}{marks.get(word, '')}"
        for value, word in zip(gains.gain, gains.verdict, strict=True)
    ]
    return _Column("gain over single-task (%)", cells, gains.gain)


def _strongest(content: Content) -> _Column:
    i, j = content.graph.edge_indices()
    best, weight = np.full(content.n_tasks, -1), np.zeros(content.n_tasks)
    # Both ends of every edge, weakest first: what is written last stays.
    ends, others = np.column_stack([i, j])[::-1].ravel(), np.column_stack([j, i])[::-1].ravel()
    best[ends], weight[ends] = others, np.repeat(entries_at(content.graph.weights, i, j)[::-1], 2)
    names = content.graph.tasks
    cells = [f"{named(names[k], 24)} ({w:+.2f})" if w else "–" for k, w in zip(best, weight, strict=True)]
    return _Column("strongest neighbour", cells, np.abs(weight))
