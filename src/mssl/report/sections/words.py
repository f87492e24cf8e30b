"""The page in words: what was fitted, how good it is, how certain, and the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html, tag
from mssl.graph.tests import COVERAGE
from mssl.metrics import NEGLIGIBLE_GAIN
from mssl.model.task_matrix import entries_at
from mssl.report.figures import Section, count, named

if TYPE_CHECKING:
    from mssl.report.content import Content
    from mssl.report.scores import Scores


def summary_section(content: Content) -> Section:
    """A few sentences a reader wants first."""
    parts = [
        ("What was fitted", _fitted(content)),
        ("How good it is", _good(content)),
        ("How certain it is", _certain(content)),
    ]
    body = (Html(tag("dt", Html(heading)), tag("dd", words)) for heading, words in parts)
    return Section("summary", "Summary", tag("dl", *body, class_="summary"))


def _fitted(content: Content) -> Html:
    K, d = content.coef.shape
    text = f"{content.method} learned {count(K, 'task')} with {count(d, 'feature')} each."
    graph = content.graph
    if not content.coef.any():
        text += " All coefficients are zero: the features explain nothing."
    if content.missing_graph is not None:
        return Html(f"{text} {content.missing_graph}")
    pairs = K * (K - 1) // 2
    negative = int((entries_at(graph.weights, *graph.edge_indices()) < 0).sum())
    signs = "all positive" if not negative else f"{negative:,} of them negative"
    text += f" Of {count(pairs, 'pair')} of tasks the graph has {content.joined}, {signs}, {_groups(content)}."
    strongest = content.strongest(3)
    edges = (Html(named(e.task_i, 24), " – ", named(e.task_j, 24), f" ({e.weight:+.2f})") for e in strongest)
    return Html(text, " Strongest: ", Html(", ").join(edges), ".") if strongest else Html(text)


def _groups(content: Content) -> str:
    """How many groups of tasks there are, and tasks in none."""
    sizes = np.bincount(content.communities)
    groups, alone = int((sizes > 1).sum()), int((sizes == 1).sum())
    if content.shown.certain is not None and not groups:
        return "none of which can be told from chance"
    stand = f"; {count(alone, 'task')} stand{'s' if alone == 1 else ''} alone" if alone else ""
    return f"in {count(groups, 'community')}{stand}"


def _good(content: Content) -> Html:
    """What rows that were not fitted say comes first; what fitted rows say comes last, and says so."""
    scores = content.scores
    training = scores is not None and scores.held_out is False
    parts = [Html(_shared_gain(content)), Html() if training else _scores(content), _gains(content)]
    if training:
        if not _shared_gain(content) and content.gains is None:
            parts.append(Html("How well it predicts new rows was not measured."))
        parts.append(_scores(content))
    return Html(" ").join(filter(None, parts))


def _shared_gain(content: Content) -> str:
    """What cross-validation says of learning together."""
    gain, score = content.shared_gain, content.cross_validated
    if gain is None:
        return score
    told = (
        "separate models per task do as well."
        if gain < NEGLIGIBLE_GAIN
        else f"the deviance is {100 * gain:.1f}\u00a0% below that of the best separate models per task."
    )
    return f"In cross-validation, on rows left out of the fits, {told} {score}"


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
    text = Html(
        f"On {rows} the median {scores.error_name} of a task is {np.nanmedian(scores.error):.3g} and the median "
        f"{scores.explained_name} is {np.nanmedian(scores.explained):.2f}; the worst task is ",
        named(content.graph.tasks[worst]),
        f" ({scores.error_name} {scores.error[worst]:.3g}).",
    )
    if scores.inside is not None:
        inside = np.average(scores.inside[known], weights=scores.rows[known])
        text = Html(text, f" {inside:.0%} of the rows lie inside their {COVERAGE:.0%} prediction interval.")
    if scores.held_out is False:
        text = Html(text, " Errors of new rows are usually larger.")
    return text


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
    names = Html(", ").join(named(name, 24) for name in scores.strangers[:5])
    more = f" and {len(scores.strangers) - 5:,} more" if len(scores.strangers) > 5 else ""
    measure = scores.error_name
    return Html(
        f"{count(scores.n_strange, 'further row')} are of {count(len(scores.strangers), 'task')} that the model was ",
        *("not fitted to (", names, more),
        f"), and are in no other figure of this page: predicted as a new task, from the "
        f"mean of the tasks, their {measure} is {scores.strange_error:.3g} and their {scores.explained_name} "
        f"{scores.strange_explained:.2f}.",
    )


def _gains(content: Content) -> Html:
    if content.gains is None:
        return Html("" if _shared_gain(content) else "The gain over single-task fits was not measured.")
    gain, lost = content.gains.gain, np.flatnonzero(content.gains.lost)
    measured = count(int(np.isfinite(gain).sum()), "task")
    text = (
        f"Against single-task fits, {content.gains.verdict.count('gain'):,} of {measured} gain (median "
        f"{np.nanmedian(gain):+.1f}\u00a0%)" + ("." if len(lost) else " and none loses.")
    )
    if not len(lost):
        return Html(text)
    losers = lost[np.argsort(gain[lost], kind="stable")[:5]]
    names = Html(", ").join(Html(named(content.graph.tasks[k], 24), f" ({gain[k]:+.1f}\u00a0%)") for k in losers)
    lose = f" {count(len(lost), 'task')} lose{'s' if len(lost) == 1 else ''}: "
    return Html(text, lose, names, " and others." if len(lost) > 5 else ".")


def _certain(content: Content) -> Html:
    rounds = max((len(values) for values in content.history.values()), default=0)
    text = " ".join(f"{note[:1].upper() + note[1:]}." for note in content.shown.notes)
    if content.ending:
        text += f" {content.ending}"
        text += f", after {count(rounds, 'round')}." if rounds else "."
    confidence = content.graph.confidence
    if confidence is not None and content.graph.n_edges:
        seen = confidence[content.graph.edge_indices()]
        often = int((seen >= 0.9).sum())
        text += f" {often:,} of {count(len(seen), 'pair')} were selected in at least 90 % of the subsamples."
    elif content.graph.n_edges:
        text += " How often each pair would be selected on other data was not measured; StabilitySelection does that."
    shared = float(getattr(content.model, "mean_variance_", 0.0))
    if shared > 0:
        text += f" The tasks share a mean, of variance {shared:.3g}."
    if content.noise is not None and content.noise.max() > content.noise.min():
        text += f" Noise of the tasks runs from {content.noise.min():.3g} to {content.noise.max():.3g}."
    return Html(text or "Nothing was measured that says so.")


def record_section(content: Content) -> Section:
    """Data, settings and versions, to know later what this was."""
    tables = [_pairs("Settings", content.settings), _pairs("Data and versions", content.record)]
    return Section("record", "For the record", tag("div", *tables, class_="record"))


def _pairs(heading: str, pairs: list[tuple[str, str]]) -> Html:
    lines = [
        tag("tr", tag("th", Html(name), scope="row"), tag("td", tag("bdi", Html(text)))) for name, text in pairs
    ] or [tag("tr", tag("td", Html("none")))]
    return tag("table", tag("caption", Html(heading)), tag("tbody", *lines))
