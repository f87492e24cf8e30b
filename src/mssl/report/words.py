"""The page in words and tables: what was fitted and how good it is, tasks, related pairs, a new task, the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html, tag
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.metrics import NEGLIGIBLE_GAIN
from mssl.model.task_matrix import entries_at
from mssl.plots.fits import plot_transfer
from mssl.report import parts
from mssl.report.parts import MOST_ROWS, Section, canvas, count, named, picture
from mssl.report.scores import Gains, Scores

if TYPE_CHECKING:
    from mssl.report.content import Content

_GAIN = "gain over single-task (%)"
_MOST_PAIRS = 500  # rows: more make the page slow


def summary_section(content: Content) -> Section:
    """A few sentences a reader wants first."""
    found = [
        ("What was fitted", _fitted(content)),
        ("How good it is", _good(content)),
        ("How certain it is", Html(_certain(content))),
    ]
    body = (Html(tag("dt", Html(heading)), tag("dd", words)) for heading, words in found)
    return Section("summary", "Summary", tag("dl", *body, class_="summary"))


def _fitted(content: Content) -> Html:
    K, d = content.coef.shape
    text = f"{content.method} learned {count(K, 'task')} with {count(d, 'feature')} each."
    if not content.coef.any():
        text += " All coefficients are zero: the features explain nothing."
    if content.missing_graph is not None:
        return Html(f"{text} {content.missing_graph}")
    graph, pairs = content.graph, count(K * (K - 1) // 2, "pair")
    negative = int((entries_at(graph.weights, *graph.edge_indices()) < 0).sum())
    signs = "all positive" if not negative else f"{negative:,} of them negative"
    stand = f"; {count(content.alone, 'task')} stand{'s' if content.alone == 1 else ''} alone" if content.alone else ""
    groups = f"in {count(len(content.groups), 'community')}{stand}"
    if content.shown.certain is not None and not content.groups:
        groups = "none of which can be told from chance"
    text += f" Of {pairs} of tasks the graph has {content.joined}, {signs}, {groups}."
    edges = [Html(named(e.task_i, 24), " – ", named(e.task_j, 24), f" ({e.weight:+.2f})") for e in content.strongest(3)]
    return Html(text, " Strongest: ", parts.listed(edges, 3), ".") if edges else Html(text)


def _good(content: Content) -> Html:
    """What rows that were not fitted say comes first; what fitted rows say comes last, and says so."""
    scores, gain, folds = content.scores, content.shared_gain, content.cross_validated
    if gain is not None:
        lead = (
            "separate models per task do as well."
            if gain < NEGLIGIBLE_GAIN
            else f"the deviance is {100 * gain:.1f}\u00a0% below that of the best separate models per task."
        )
        folds = f"In cross-validation, on rows left out of the fits, {lead} {folds}"
    gains = _gains(content)
    if content.gains is None and not folds:
        gains = Html("The gain over single-task fits was not measured.")
    found = [Html(folds), _scores(content), gains]
    if scores is not None and scores.held_out is False:
        unknown = not folds and content.gains is None
        found = [found[0], gains, Html("How well it predicts new rows was not measured." if unknown else ""), found[1]]
    return Html(" ").join(filter(None, found))


_WHOSE_ROWS = {
    True: "the {} that the model was not fitted on",
    False: "the {} that the model was fitted on",
    None: "{} given to the report (whether the model was fitted on them is not known)",
}


def _scores(content: Content) -> Html:
    scores = content.scores
    if scores is None or not (scores.rows.any() or scores.n_strange):
        return Html("No rows were given to the report, so it states no errors.")
    return Html(" ").join(filter(None, [_known_tasks(content, scores), Html(_labels(scores)), _strangers(scores)]))


def _known_tasks(content: Content, scores: Scores) -> Html:
    if not scores.rows.any():
        return Html()
    worst, known = int(np.nanargmax(scores.error)), scores.rows > 0
    rows = _WHOSE_ROWS[scores.held_out].format(count(int(scores.rows.sum()), "row"))
    text = f" ({scores.error_name} {scores.error[worst]:.3g})."
    if scores.inside is not None:
        inside = np.average(scores.inside[known], weights=scores.rows[known])
        text += f" {inside:.0%} of the rows lie inside their {COVERAGE:.0%} prediction interval."
    text += " Errors of new rows are usually larger." if scores.held_out is False else ""
    return Html(
        f"On {rows} the median {scores.error_name} of a task is {np.nanmedian(scores.error):.3g} and the median "
        f"{scores.explained_name} is {np.nanmedian(scores.explained):.2f}; the worst task is ",
        named(content.graph.tasks[worst]),
        text,
    )


def _labels(scores: Scores) -> str:
    """What the probabilities of labels are worth, beside what the base rates of the training rows alone are."""
    found = scores.labels
    if found is None:
        return ""
    whose = "training " if scores.held_out is False else ""
    auc = "" if np.isnan(found.auc) else f", and the {whose}area under the ROC curve {found.auc:.3f} (0.5 is chance)"
    base = f", where each task's base rate alone has {found.base_log_loss:.3g}"
    base = "" if np.isnan(found.base_log_loss) else base
    return f"Over all rows the {whose}log loss is {found.log_loss:.3g}{base}{auc}."


def _strangers(scores: Scores) -> Html:
    """What rows of tasks that the model was not fitted to say."""
    if not scores.n_strange:
        return Html()
    tasks = len(scores.strangers)
    return Html(
        f"{count(scores.n_strange, 'further row')} are of {count(tasks, 'task')} that the model was not fitted to (",
        parts.listed(scores.strangers, 5, f" and {tasks - 5:,} more"),
        "), and are in no other figure of this page: predicted as a new task, from the mean of the tasks, their "
        f"{scores.error_name} is {scores.strange_error:.3g} and their {scores.explained_name} "
        f"{scores.strange_explained:.2f}.",
    )


def _gains(content: Content) -> Html:
    if content.gains is None:
        return Html()
    gain, verdict = content.gains.gain, content.gains.verdict
    lost = np.flatnonzero(verdict == "loss")
    text = (
        f"Against single-task fits, {(verdict == 'gain').sum():,} of "
        f"{count(int(np.isfinite(gain).sum()), 'task')} gain (median {np.nanmedian(gain):+.1f}\u00a0%)"
    )
    if not len(lost):
        return Html(f"{text} and none loses.")
    losers = lost[np.argsort(gain[lost], kind="stable")]
    names = (Html(named(content.graph.tasks[k], 24), f" ({gain[k]:+.1f}\u00a0%)") for k in losers)
    lose = f"{text}. {count(len(lost), 'task')} lose{'s' if len(lost) == 1 else ''}: "
    return Html(lose, parts.listed(names, 5, " and others"), ".")


def _certain(content: Content) -> str:
    text = " ".join(f"{note[:1].upper() + note[1:]}." for note in content.shown.notes)
    if content.ending:
        text += f" {content.ending}" + (f", after {count(content.rounds, 'round')}." if content.rounds else ".")
    confidence = content.graph.confidence
    if confidence is not None and content.graph.n_edges:
        seen = confidence[content.graph.edge_indices()]
        often = int((seen >= 0.9).sum())
        text += f" {often:,} of {count(len(seen), 'pair')} were selected in at least 90 % of the subsamples."
    elif content.graph.n_edges:
        text += " How often each pair would be selected on other data was not measured; StabilitySelection does that."
    shared = content.fitted.mean_variance
    if shared:
        text += f" The tasks share a mean, of variance {shared:.3g}."
    if content.noise is not None and content.noise.max() > content.noise.min():
        text += f" Noise of the tasks runs from {content.noise.min():.3g} to {content.noise.max():.3g}."
    return text or "Nothing was measured that says so."


def task_section(content: Content) -> Section:
    """Bars of gains where they were measured, and the table: errors, gains over single-task fits, neighbours."""
    gains, tasks, bars = content.gains, content.graph.tasks, Html()
    falling, order = None, content.order
    if gains is not None:
        bars = _gain_bars(content, gains)
        falling, order = _GAIN, np.argsort(-gains.gain, kind="stable")
    rows = [
        parts.Row(
            Html(tag("span", class_="chip", style=f"background:{content.colors[k]}"), named(tasks[k])),
            [k],
            short_name(tasks[k], 500),
            look="loses" if gains is not None and gains.verdict[k] == "loss" else "",
        )
        for k in range(content.n_tasks)
    ]
    caption = "Choose a task's name to highlight it in all views; a heading sorts."
    table = parts.linked_table("task", caption, "task", rows, _columns(content), order=order, falling=falling)
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


def _columns(content: Content) -> list[parts.Column]:
    columns: list[parts.Column] = []
    scores, gains, graph = content.scores, content.gains, content.graph
    if scores is not None:
        columns.append(parts.numbers("rows", scores.rows.astype(float), ",.0f"))
        columns.append(parts.numbers(scores.error_name, scores.error, ".4g"))
        columns.append(parts.numbers(scores.explained_name, scores.explained, ".3f"))
        if scores.inside is not None:
            columns.append(parts.numbers(f"inside {COVERAGE:.0%} interval (%)", 100 * scores.inside, ".0f"))
    if gains is not None:
        columns += [parts.numbers(name.replace("_", " "), values, ".4g") for name, values in gains.others.items()]
        # A word and a mark for losers, so that colour is not needed to see them.
        loses, even = tag("strong", Html("▼ loses"), class_="loss"), tag("span", Html("even"), class_="quiet")
        marks = {"loss": Html(" ", loses), "even": Html(" ", even)}
        plain = parts.numbers(_GAIN, gains.gain, "+.1f")
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
        columns.append(parts.numbers("community", community, ".0f"))
        columns.append(parts.numbers("neighbours", graph.degree().astype(float), ".0f"))
        columns.append(parts.Column("strongest neighbour", nearest, np.abs(weight)))
    if content.noise is not None:
        columns.append(parts.numbers("noise", content.noise, ".4g"))
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
            parts.numbers("correlation", weight, "+.2f"),
            parts.Column(
                f"{COVERAGE:.0%} interval", [Html(f"{a:+.2f} to {b:+.2f}") for a, b in zip(low, high, strict=True)], low
            ),
            parts.numbers("q-value", q, ".2g"),
            parts.Column("edge", [Html("yes" if pair in certain else "–") for pair in shown.pairs]),
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
    weights = np.where(entries_at(graph.adjacency, i, j).astype(bool), entries_at(graph.weights, i, j), np.nan)
    columns.append(parts.numbers("partial correlation", weights, "+.2f"))
    if graph.confidence is not None:
        columns.append(parts.numbers("selected (%)", 100 * entries_at(graph.confidence, i, j), ".0f"))
    rows = [
        parts.Row(
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
    return Section("pairs", "Related pairs", parts.linked_table("pair", caption, "tasks", rows, columns))


def new_task_section(content: Content) -> Section | None:
    """The weights that an unseen task gets, and how far the tasks that were seen lie from them."""
    coef = content.fitted.unseen_coef
    if coef is None or content.n_tasks < 2:
        return None
    predict, unseen = tag("code", Html("predict")), tag("code", Html("unseen='mean'"))
    how = (
        Html(predict, " does so by default, with a warning")
        if content.fitted.unseen == "mean"
        else Html("give ", predict, " ", unseen, " for it; without it such a task is refused")
    )
    d = len(coef)
    spread = np.sqrt(((content.coef - coef) ** 2).mean(axis=0))
    size = np.abs(coef) * (1.0 if content.spread is None else content.spread)
    by = "largest first" if content.spread is None else "largest times the spread of its feature first"
    order = np.argsort(-size, kind="stable")[:MOST_ROWS]
    lines = [("intercept", f"{content.fitted.unseen_intercept:.4g}", "–")]
    lines += [(short_name(content.features[k], 60), f"{coef[k]:.4g}", f"{spread[k]:.3g}") for k in order]
    rest = f" Shown are the first {MOST_ROWS} of {count(d, 'weight')}." if d > MOST_ROWS else ""
    words = Html(
        *("A task that was not in the fit is predicted with the tasks' mean: ", how),
        ". Where the tasks' own weights lie far from it, a new task may too.",
    )
    table = parts.small_table(
        "Weights of a new task",
        f"Weights of a new task, {by}, and the root mean square distance of the tasks' own from them.{rest}",
        ("feature", "weight", "distance of the tasks"),
        lines,
    )
    return Section("new-task", "A new task", Html(tag("p", words), table))


def record_section(content: Content) -> Section:
    """Data, settings and versions, to know later what this was."""
    settings = parts.small_table("Settings", "Settings", ("name", "value"), content.settings or [("none", "")])
    record = parts.small_table("Data and versions", "Data and versions", ("name", "value"), content.record)
    return Section("record", "For the record", tag("div", tag("div", settings), tag("div", record), class_="record"))
