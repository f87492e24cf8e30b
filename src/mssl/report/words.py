"""The page in words: what was fitted, how good it is, how certain, what a new task gets, and the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html, tag
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.metrics import NEGLIGIBLE_GAIN
from mssl.model.task_matrix import entries_at
from mssl.report.parts import MOST_ROWS, Section, count, listed, named, small_table
from mssl.report.scores import Scores

if TYPE_CHECKING:
    from mssl.report.content import Content


def summary_section(content: Content) -> Section:
    """A few sentences a reader wants first."""
    parts = [
        ("What was fitted", _fitted(content)),
        ("How good it is", _good(content)),
        ("How certain it is", Html(_certain(content))),
    ]
    body = (Html(tag("dt", Html(heading)), tag("dd", words)) for heading, words in parts)
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
    return Html(text, " Strongest: ", listed(edges, 3), ".") if edges else Html(text)


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
    parts = [Html(folds), _scores(content), gains]
    if scores is not None and scores.held_out is False:
        unknown = not folds and content.gains is None
        parts = [parts[0], gains, Html("How well it predicts new rows was not measured." if unknown else ""), parts[1]]
    return Html(" ").join(filter(None, parts))


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
        listed(scores.strangers, 5, f" and {tasks - 5:,} more"),
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
    return Html(lose, listed(names, 5, " and others"), ".")


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
    table = small_table(
        "Weights of a new task",
        f"Weights of a new task, {by}, and the root mean square distance of the tasks' own from them.{rest}",
        ("feature", "weight", "distance of the tasks"),
        lines,
    )
    return Section("new-task", "A new task", Html(tag("p", words), table))


def record_section(content: Content) -> Section:
    """Data, settings and versions, to know later what this was."""
    settings = small_table("Settings", "Settings", ("name", "value"), content.settings or [("none", "")])
    record = small_table("Data and versions", "Data and versions", ("name", "value"), content.record)
    return Section("record", "For the record", tag("div", tag("div", settings), tag("div", record), class_="record"))
