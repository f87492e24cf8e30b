"""The sections of the page: their texts, tables, and pictures with captions."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from mssl._html import Html, tag
from mssl.data.columns import feature_spreads
from mssl.exceptions import MissingDependencyError, package_versions, require
from mssl.graph.geometry import PALETTE
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.model.task_matrix import DENSE_UP_TO, entries_at
from mssl.plots import fits, graphs, support
from mssl.plots.maps import plot_map
from mssl.report import page
from mssl.report.page import MOST_EDGES, MOST_ROWS, Section, canvas, count, named, picture

if TYPE_CHECKING:
    from mssl.report.content import Content, Scores

_MOST_ARCS = 300  # The map has at most this many arcs; more would hide it.
_MOST_WEIGHTS = 100  # Up to this number, weights are also drawn one by one with intervals; more could not be read.
_GAIN = "gain over single-task (%)"


def all_sections(content: Content) -> list[Section]:
    """All sections with content, in the order of reading."""
    require("matplotlib", "report", "The report")
    drawn = content.missing_graph is None
    found = [
        summary_section(content),
        graph_section(content) if drawn else None,
        matrix_section(content) if drawn else None,
        pair_section(content),
        chord_section(content) if drawn else None,
        coefficient_section(content),
        effect_section(content),
        new_task_section(content),
        task_section(content),
        map_section(content),
        stability_section(content),
        convergence_section(content),
        record_section(content),
    ]
    return [section for section in found if section is not None]


def summary_section(content: Content) -> Section:
    """A short summary for the beginning of the page."""
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
    return Html(text, " Strongest: ", page.listed(edges, 3), ".") if edges else Html(text)


def _good(content: Content) -> Html:
    """Sentences on the scores: those of held-out rows come first, those of training rows last."""
    unknown = content.gains is None and not content.cross_validated
    gains = Html("The gain over single-task fits was not measured.") if unknown else _gains(content)
    found = [Html(content.cross_validated), _scores(content), gains]
    if content.scores is not None and content.scores.held_out is False:
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
    known = _known_tasks(content, scores) if scores.rows.any() else Html()
    return Html(" ").join(filter(None, [known, Html(_labels(scores)), _strangers(scores)]))


def _known_tasks(content: Content, scores: Scores) -> Html:
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
    """Scores of the probabilities of labels, compared with the base rates of the training rows."""
    found = scores.labels
    if found is None:
        return ""
    whose = "training " if scores.held_out is False else ""
    auc = "" if np.isnan(found.auc) else f", and the {whose}area under the ROC curve {found.auc:.3f} (0.5 is chance)"
    base = f", where each task's base rate alone has {found.base_log_loss:.3g}"
    base = "" if np.isnan(found.base_log_loss) else base
    return f"Over all rows the {whose}log loss is {found.log_loss:.3g}{base}{auc}."


def _strangers(scores: Scores) -> Html:
    """Scores of rows of tasks that the training data do not have."""
    if not scores.n_strange:
        return Html()
    tasks = len(scores.strangers)
    return Html(
        f"{count(scores.n_strange, 'further row')} are of {count(tasks, 'task')} that the model was not fitted to (",
        page.listed(scores.strangers, 5, f" and {tasks - 5:,} more"),
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
    return Html(lose, page.listed(names, 5, " and others"), ".")


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
    """Bars of gains, if they were measured, and a table of errors, gains over single-task fits, and neighbours."""
    gains, tasks, bars = content.gains, content.graph.tasks, Html()
    falling, order = None, content.order
    if gains is not None:
        falling, order = _GAIN, np.argsort(-gains.gain, kind="stable")
        gain = gains.gain[np.isfinite(gains.gain)]
        losers = count(int((gains.verdict == "loss").sum()), "task")
        alt = (
            f"Bars of the gain of {count(len(gain), 'task')} over single-task fits, from {gain.min():+.1f} to "
            f"{gain.max():+.1f} %; {losers} lose."
        )
        ax = fits.plot_transfer(gains.gain, canvas(*fits.gain_size(len(gain))), tasks=tasks, label=_GAIN)
        bars = picture("gains", ax, alt, "Gain over the single-task fit, best first; losses are hatched.")
    looks = [""] * len(tasks) if gains is None else ["loses" if word == "loss" else "" for word in gains.verdict]
    rows = [
        page.Row(Html(_chip(color), named(task)), [k], short_name(task, 500), look=look)
        for k, (task, color, look) in enumerate(zip(tasks, content.colors, looks, strict=True))
    ]
    caption = "Choose a task's name to highlight it in all views; a heading sorts."
    table = page.linked_table("task", caption, "task", rows, _columns(content), order=order, falling=falling)
    return Section("tasks", "Tasks", Html(bars, table))


def _chip(color: str) -> Html:
    return tag("span", class_="chip", style=f"background:{color}")


def _columns(content: Content) -> list[page.Column]:
    columns: list[page.Column] = []
    scores, gains, graph = content.scores, content.gains, content.graph
    if scores is not None:
        columns.append(page.numbers("rows", scores.rows.astype(float), ",.0f"))
        columns.append(page.numbers(scores.error_name, scores.error, ".4g"))
        columns.append(page.numbers(scores.explained_name, scores.explained, ".3f"))
        if scores.inside is not None:
            columns.append(page.numbers(f"inside {COVERAGE:.0%} interval (%)", 100 * scores.inside, ".0f"))
    if gains is not None:
        columns += [page.numbers(name.replace("_", " "), values, ".4g") for name, values in gains.others.items()]
        # A word and a mark show losses without colour.
        loses, even = tag("strong", Html("▼ loses"), class_="loss"), tag("span", Html("even"), class_="quiet")
        marks = {"loss": Html(" ", loses), "even": Html(" ", even)}
        plain = page.numbers(_GAIN, gains.gain, "+.1f")
        cells = [Html(cell, marks.get(word, "")) for cell, word in zip(plain.cells, gains.verdict, strict=True)]
        columns.append(plain._replace(cells=cells))
    if content.missing_graph is None:
        best, weight = np.zeros(content.n_tasks, dtype=int), np.zeros(content.n_tasks)
        community = np.array([content.community.get(k, np.nan) for k in range(content.n_tasks)])
        # Edges are written to both of their ends from weak to strong, so the strongest one remains.
        i, j = (ends[::-1] for ends in graph.edge_indices())
        ends, others = np.column_stack([i, j]).ravel(), np.column_stack([j, i]).ravel()
        best[ends], weight[ends] = others, np.repeat(entries_at(graph.weights, i, j), 2)
        ranked = zip(best, weight, strict=True)
        nearest = [Html(named(graph.tasks[k], 24), f" ({w:+.2f})") if w else Html("–") for k, w in ranked]
        columns.append(page.numbers("community", community, ".0f"))
        columns.append(page.numbers("neighbours", graph.degree().astype(float), ".0f"))
        columns.append(page.Column("strongest neighbour", nearest, np.abs(weight)))
    if content.noise is not None:
        columns.append(page.numbers("noise", content.noise, ".4g"))
    return columns


def pair_section(content: Content) -> Section | None:
    """Significant relations; if they were not tested, the pairs of the graph."""
    graph, relations, most = content.graph, content.shown.relations, MOST_EDGES // 2  # rows, larger than lines
    tasks, columns = graph.tasks, []
    if relations:
        place = {name: k for k, name in enumerate(tasks)}
        total, shown = len(relations), relations[:most]
        i, j = np.array([[place[row.task_i], place[row.task_j]] for row in shown]).T
        weight, low, high, q = np.array([[row.weight, row.low, row.high, row.q] for row in shown]).T
        certain = set(content.shown.edges.pairs if content.shown.edges is not None else [])
        ends = [Html(f"{a:+.2f} to {b:+.2f}") for a, b in zip(low, high, strict=True)]
        columns = [
            page.numbers("correlation", weight, "+.2f"),
            page.Column(f"{COVERAGE:.0%} interval", ends, low),
            page.numbers("q-value", q, ".2g"),
            page.Column("edge", [Html("yes" if pair in certain else "–") for pair in shown.pairs]),
        ]
        assert graph.evidence is not None
        related = {"coef": "weights", "residual": "residuals"}[graph.evidence.resolve().on]
        what = f"Pairs of tasks whose {related} are related, the smallest q-value first: {relations.summary()}"
    elif relations is None and graph.n_edges:
        total = graph.n_edges
        i, j = (ends[:most] for ends in graph.edge_indices())
        what = f"{count(total, 'pair')}, strongest first"
    else:
        return None
    weights = np.where(entries_at(graph.adjacency, i, j).astype(bool), entries_at(graph.weights, i, j), np.nan)
    columns.append(page.numbers("partial correlation", weights, "+.2f"))
    if graph.confidence is not None:
        columns.append(page.numbers("selected (%)", 100 * entries_at(graph.confidence, i, j), ".0f"))
    pairs = [(a, b, Html(named(tasks[a], 24), " – ", named(tasks[b], 24))) for a, b in zip(i, j, strict=True)]
    rows = [
        page.Row(name, (a, b), f"{short_name(tasks[a], 200)} – {short_name(tasks[b], 200)}") for a, b, name in pairs
    ]
    caption = (
        f"{what}.{page.first_of(most, total, 'pair')} A partial correlation stands where two tasks are joined in the "
        "graph, other tasks being known. "
        "Choose a pair to highlight it in all views; a heading sorts."
    )
    return Section("pairs", "Related pairs", page.linked_table("pair", caption, "tasks", rows, columns))


def new_task_section(content: Content) -> Section | None:
    """The weights of a new task, and the distances of the known tasks' weights from them."""
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
    away = np.sqrt(((content.coef - coef) ** 2).mean(axis=0))
    spreads = feature_spreads(content.model, d)
    size = np.abs(coef) * (1.0 if spreads is None else spreads)
    by = "largest first" if spreads is None else "largest times the spread of its feature first"
    order = np.argsort(-size, kind="stable")[:MOST_ROWS]
    lines = [("intercept", f"{content.fitted.unseen_intercept:.4g}", "–")]
    lines += [(short_name(content.features[k], 60), f"{coef[k]:.4g}", f"{away[k]:.3g}") for k in order]
    rest = page.first_of(MOST_ROWS, d, "weight")
    words = Html(
        *("A task that was not in the fit is predicted with the tasks' mean: ", how),
        ". Where the tasks' own weights lie far from it, a new task may too.",
    )
    table = page.small_table(
        "Weights of a new task",
        f"Weights of a new task, {by}, and the root mean square distance of the tasks' own from them.{rest}",
        ("feature", "weight", "distance of the tasks"),
        lines,
    )
    return Section("new-task", "A new task", Html(tag("p", words), table))


def record_section(content: Content) -> Section:
    """Data, settings and versions, as a record."""
    model, fitted, table = type(content.model), content.fitted, content.fitted.input.table
    package = model.__module__.partition(".")[0]  # the module inside it may move
    facts: dict[str, object] = {"model": f"{package}.{model.__qualname__}"}
    facts |= dict(zip(("tasks", "features"), content.coef.shape, strict=True))
    if table is not None:
        facts |= {"column of tasks": table.task, "target": table.target, "missing features": table.missing}
    facts |= {"layout of the data": short_name(fitted.input.layout, 60)} if fitted.input.layout else {}
    facts |= {} if fitted.n_iter is None else {"rounds": fitted.n_iter}
    facts |= {} if fitted.objective is None else {"objective": f"{fitted.objective:.8g}"}
    facts["data given to the report"] = content.measured
    facts |= package_versions("mssl", "numpy", "scipy", "scikit-learn", "matplotlib")
    facts |= {"Python": platform.python_version(), "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}
    chosen = content.model.get_params(deep=False)
    settings = {name: short_name(repr(value), 200) for name, value in chosen.items()} or {"none": ""}
    tables: dict[str, dict[str, Any]] = {"Settings": settings, "Data and versions": facts}
    made = (
        page.small_table(title, title, ("name", "value"), [(name, str(fact)) for name, fact in lines.items()])
        for title, lines in tables.items()
    )
    return Section("record", "For the record", tag("div", *(tag("div", table) for table in made), class_="record"))


def graph_section(content: Content) -> Section:
    """The graph as points and lines, with sliders that hide weak and rarely selected edges."""
    ax = graphs.plot_graph(content.shown, canvas(6.3, 4.6), max_edges=MOST_EDGES)
    ax.set_xlabel("")
    unnamed = content.n_tasks - len(ax.texts)
    _name_points(ax, content, 30, narrow=True)
    alt = f"Task graph: {count(content.n_tasks, 'task')} joined by {content.joined}.{_strongest(content)}"
    note = f" {count(unnamed, 'name')} had no room." if unnamed else ""
    words = f"Strongly related tasks lie close; thicker edges are stronger.{note}"
    drawn = picture("graph", ax, alt, words, _legend(content), hidden=content.hidden)
    return Section("graph", "Task graph", Html(_controls(content), drawn, _all_communities(content)))


def _name_points(ax: Any, content: Content, most: int, *, narrow: bool = False) -> None:
    """Write names of tasks beside their points; narrow screens show other names in larger letters."""
    points = next(each for each in ax.collections if each.get_gid() == f"{support.OURS}tasks")
    look = (2 * support.SMALL, "narrow") if narrow else (support.SMALL, "wide")
    radius = float(np.sqrt(points.get_sizes().max()) / 2)
    graphs.place_labels(ax, np.asarray(points.get_offsets()), content.graph, radius, most, *look)


def _strongest(content: Content) -> str:
    """A sentence on the strongest edges, if there are any."""
    strongest = content.strongest(5)
    edges = ", ".join(f"{short_name(e.task_i)} and {short_name(e.task_j)} {e.weight:+.2f}" for e in strongest)
    return f" Strongest partial correlations: {edges}." if edges else ""


def _controls(content: Content) -> Html:
    """Sliders; the first one starts at a value at which the drawing is not crowded."""
    strengths = [abs(weight) for weight, _ in content.edges.values()]
    total, shown, top = content.graph.n_edges, len(strengths) - len(content.hidden), strengths[0]
    start = (1 - 1e-9) * strengths[shown - 1] if content.hidden else 0.0
    note = f" This page holds the strongest {MOST_EDGES:,} of {total:,}." if total > MOST_EDGES else ""
    ends = {"min": "0", "max": repr(top), "value": repr(start), "data-step": repr(top / 50)}
    sliders = [
        tag("label", Html("least |partial correlation|"), for_="min-weight"),
        tag("input", type="range", id="min-weight", step="any", **ends),
        tag("output", for_="min-weight"),
    ]
    if content.graph.confidence is None:
        sliders.append(tag("span", Html("Selection frequencies were not measured."), class_="quiet"))
    else:
        sliders += [
            tag("label", Html("least selection frequency"), for_="min-confidence"),
            tag("input", type="range", id="min-confidence", min=0, max=1, step=0.01, value=0),
            tag("output", for_="min-confidence"),
        ]
    words = tag("p", id="edge-count", role="status", data_total=total, data_held=note)
    return Html(tag("div", *sliders, class_="controls scripted", role="group", aria_label="Lines shown"), words)


def _legend(content: Content) -> Html:
    """Colour, mark and size of each community, with its strongest tasks."""
    coloured = len(PALETTE)
    entries = [
        Html(
            _chip(content.colors[members[0]]),
            f" community {number}, {count(len(members), 'task')}: ",
            page.listed([content.graph.tasks[k] for k in members], 6),
        )
        for number, members in enumerate(content.groups[:coloured], 1)
    ]
    rest = sum(map(len, content.groups[coloured:]))
    if rest:
        entries.append(Html(f"grey circles: {count(rest, 'task')} in smaller communities, listed below"))
    if content.alone:
        missing = "neighbour" if content.shown.certain is None else "relation that can be told from chance"
        entries.append(Html(f"grey circles: {count(content.alone, 'task')} without a {missing}"))
    return tag("ul", *(tag("li", entry) for entry in entries), class_="legend")


def _all_communities(content: Content) -> Html:
    """A searchable list of communities, if there are more of them than colours and marks."""
    groups = content.groups
    if len(groups) <= len(PALETTE):
        return Html()
    rows = [
        page.Row(Html(name), own, f"Select {name}", "\n".join(content.names[k] for k in own))
        for name, own in ((f"community {number}", own) for number, own in enumerate(groups, 1))
    ]
    sizes = page.numbers("tasks", np.array([len(own) for own in groups], dtype=float), ",.0f")
    strongest = [page.listed([content.graph.tasks[k] for k in own], 4) for own in groups]
    caption = f"All {len(groups):,} communities: the name of a task finds its own; choose one to highlight its tasks."
    return page.linked_table("community", caption, "community", rows, [sizes, page.Column("strongest", strongest)])


def chord_section(content: Content) -> Section:
    """Tasks on a circle, community by community, edges as curves inside it."""
    groups = content.shown.groups.tolist()
    ax = graphs.plot_chord(content.shown, canvas(4.6, 4.6), groups=groups, max_edges=MOST_EDGES)
    ax.set_xlabel("")
    alt = (
        f"Chord diagram: {count(content.n_tasks, 'task')} on a circle, {count(content.graph.n_edges, 'curve')} between "
        f"those that are related.{_strongest(content)}"
    )
    words = "Edges are those of the graph above." + ("" if ax.texts else " There are too many tasks to name.")
    return Section("chords", "Chord diagram", picture("chords", ax, alt, words, hidden=content.hidden))


def map_section(content: Content) -> Section | None:
    """Tasks on a map, if coordinates are known, with errors as colours and edges as great circles."""
    if content.graph.coordinates is None:
        return None
    latitude, longitude = content.graph.coordinates[:, 0], (content.graph.coordinates[:, 1] + 180) % 360 - 180
    alt = (
        f"Map of {count(content.n_tasks, 'task')} from {latitude.min():.1f} to {latitude.max():.1f}°N and "
        f"{longitude.min():.1f} to {longitude.max():.1f}°E, with arcs between tasks that are related."
    )
    look: dict[str, Any] = {"max_edges": _MOST_ARCS}
    words = ["Colours are communities; errors were not measured."]
    if content.scores is not None and not np.isnan(content.scores.error).all():
        look |= {"values": content.scores.error, "label": content.scores.error_name}
        words = [f"Colour is the {content.scores.error_name}, yellow is worse."]
    try:
        ax = plot_map(content.shown, canvas(5.4, 4.4), **look)
    except MissingDependencyError as error:
        words.append(f"Coastlines are left out: {error.args[0].split('.')[0]}.")
        ax = plot_map(content.shown, canvas(5.4, 4.4), coast=False, **look)
    most = f", of the strongest {_MOST_ARCS}" if content.graph.n_edges > _MOST_ARCS else ""
    words.append(f"Edges are those of the graph above{most}." if content.graph.n_edges else "There is no edge to draw.")
    ax.set_xlabel("longitude (°E)")
    _name_points(ax, content, 60)
    _name_points(ax, content, 30, narrow=True)
    return Section("map", "Map", picture("map", ax, alt, " ".join(words), hidden=content.hidden))


def matrix_section(content: Content) -> Section | None:
    """Partial correlations and precisions between tasks by community, if a picture has room for all pairs."""
    if content.n_tasks > DENSE_UP_TO:
        return None
    K, graph = content.n_tasks, content.graph
    off = np.asarray(graph.weights)[~np.eye(K, dtype=bool)]
    alt = (
        f"Heat map of the partial correlations between {count(K, 'task')}, ordered by community: from {off.min():+.2f} "
        f"to {off.max():+.2f}, {1 - graph.density():.0%} of the pairs 0."
    )
    side = float(np.clip(0.105 * K, 3.7, 5.4))
    size = side, 0.94 * side
    axes = {"partial correlation": graphs.plot_precision(content.shown, canvas(*size), tasks=graph.tasks)}
    if content.fitted.precision is not None:
        ax = graphs.plot_precision(content.model, canvas(*size), tasks=graph.tasks, kind="precision")
        axes["precision"] = ax
    return _layers(content, "relations", "Partial correlations", alt, axes, "Lines part communities.")


def coefficient_section(content: Content) -> Section | None:
    """Heat map of coefficients, tasks (by community) by features; a few coefficients also get intervals."""
    K, d = content.coef.shape
    sizes = np.abs(content.coef)
    reach = sizes.max(axis=0)
    if not reach.any():
        return None
    spread = reach[reach > 0]
    labels = {"unit": "coefficient", "largest": "share of the feature's largest"}
    # If features have very different units, a common colour scale would show only one of them.
    shares_first = spread.max() > 20 * np.median(spread)
    task, feature = np.unravel_index(np.argmax(sizes), sizes.shape)
    alt = (
        f"Heat map of the coefficients of {count(K, 'task')} on {count(d, 'feature')}; the largest is "
        f"{content.coef[task, feature]:+.3g}, of {short_name(content.graph.tasks[task])} on "
        f"{short_name(content.features[feature])}."
    )
    size = (float(np.clip(1.6 + 0.16 * d, 3.4, 6.2)), float(np.clip(0.9 + 0.14 * K, 1.6, 4.8)))
    order = sorted(labels, reverse=not shares_first)
    axes = {labels[per]: fits.plot_coefficients(content.model, canvas(*size), per=per) for per in order}
    zeros = float((content.coef == 0).mean())
    words = f"{zeros:.0%} of the coefficients are zero." if zeros > 0 else "No coefficient is exactly zero."
    words += "" if shares_first else " Colours end at the 99th percentile."
    section = _layers(content, "coefficients", "Coefficients", alt, axes, words)
    std = content.fitted.coef_std if content.coef.size <= _MOST_WEIGHTS else None
    if std is None:
        return section
    ax = canvas(4.4, support.height(sizes.size))
    fits.plot_coefficients(content.model, ax, kind="forest", level=COVERAGE)
    sure = count(int((sizes > float(ndtri(0.5 + COVERAGE / 2)) * std).sum()), "interval")
    alt = f"Coefficients with {COVERAGE:.0%} intervals: {sure} of {sizes.size} lie off 0."
    words = f"Coefficients with {COVERAGE:.0%} intervals; grey ones hold 0."
    return section._replace(body=Html(section.body, picture("intervals", ax, alt, words)))


def _layers(content: Content, key: str, title: str, alt: str, axes: dict[str, Any], words: str) -> Section:
    """Several heat maps in one place, buttons that choose one of them, and their data for the page's script."""
    buttons, pictures, data = [], [], {}
    order = content.order.tolist()
    for k, (label, ax) in enumerate(axes.items()):
        name = f"{key}-layer-{k}"
        buttons += [tag("input", type="radio", name=f"{key}-layer", id=name, value=k, checked=k == 0)]
        buttons += [tag("label", Html(label), for_=name)]
        pictures.append(page.drawing(f"{key}-{k}", ax, alt if not k else f"The same map of the {label}."))
        # The page shows under the pointer three digits of each value, and uses the value's position in its block.
        whole = support.shown_matrix(ax)
        cells = support.pool(whole, support.CELLS // 3)  # of a side: more make the page large
        data[f"{key}-{k}"] = {
            "label": label,
            "shape": whole.shape,
            "block": cells.block,
            "values": [None if np.isnan(value) else json.loads(f"{value:.3g}") for value in cells.values.ravel()],
            "place": None if cells.block == (1, 1) else cells.place.ravel().tolist(),
            "rows": order,
            "columns": order if key == "relations" else None,
        }
    if cells.block != (1, 1):
        many = "pairs of tasks" if key == "relations" else "coefficients"
        words += " There are too many to see each: colours and the numbers beside the pointer are the strongest "
        words += f"{many} there."
    caption = tag("figcaption", Html(words))
    shown = buttons if len(axes) > 1 else []
    return Section(key, title, tag("figure", *shown, *pictures, caption, class_="layers", aria_label=alt), data)


def effect_section(content: Content) -> Section | None:
    """Small multiples of the columns that change the predictions most, and a table of all columns' relevance."""
    if not content.relevance:
        return None
    multiples: list[Html] = []
    for number, (shared, by_task) in enumerate(content.effects):
        ax = canvas(3.5, 2.3)
        fits.draw_effect(ax, shared, by_task)
        ax.set_ylabel("partial effect")
        name, effect = short_name(shared.feature, 60), shared.effect
        low, high = int(np.argmin(effect)), int(np.argmax(effect))
        at = [short_name(value, 20) if shared.x.dtype.kind == "O" else f"{value:.3g}" for value in shared.x]
        alt = (
            f"Partial effect of {name}, mean of all tasks: lowest at {at[low]} ({effect[low]:+.3g}), highest at "
            f"{at[high]} ({effect[high]:+.3g}); at most {np.ptp(by_task, axis=0).max():.3g} between two tasks."
        )
        band = " with its band" if shared.lower is not None else ""
        words = f"{name}: mean of all tasks{band} in blue, tasks in grey."
        multiples.append(picture(f"effect-{number}", ax, alt, words))
    order = sorted(content.relevance, key=lambda name: -content.relevance[name])
    words = (
        "How much each column moves the predictions (standard deviation of its partial effect over its values in "
        f"training, root mean square over tasks).{page.first_of(MOST_ROWS, len(order), 'column')}"
    )
    lines = [(short_name(name, 60), f"{content.relevance[name]:.3g}") for name in order[:MOST_ROWS]]
    table = page.small_table("Relevance of columns", words, ("column", "relevance"), lines)
    return Section("effects", "Effects of columns", Html(tag("div", *multiples, class_="multiples"), table))


def stability_section(content: Content) -> Section | None:
    """Selection frequencies of edges as functions of the penalty."""
    found = content.stability
    if found is None or not found.frequencies.size:
        return None
    top = found.frequencies.max(axis=0)
    reach = count(int((top >= found.threshold).sum()), "edge")
    ends, ranked = found.ends, np.argsort(-top, kind="stable")[: 2 * fits.MOST_LINES].tolist()
    names = content.graph.tasks
    often = ", ".join(
        f"{f'edge {k + 1}' if ends is None else ' – '.join(short_name(names[end]) for end in ends[k])} ({top[k]:.0%})"
        for k in ranked[:5]
    )
    alt = (
        f"Selection frequency of edges along the path of penalties; {reach} reach the threshold. Most often selected: "
        f"{often}."
    )
    words = (
        f"Blue: the {reach} selected in at least {found.threshold:.0%} of the subsamples somewhere (dashed line); "
        f"grey: the others, at most {fits.MOST_LINES} of either. The penalty falls from left to right."
    )
    marks = [] if ends is None else [f"{i} {j}" for i, j in ends[ranked]]  # of all that are drawn, and maybe more
    data = {"stability": {mark: float(f"{top[k]:.3g}") for mark, k in zip(marks, ranked, strict=False)}}
    drawn = picture("stability", fits.plot_stability(found, ax=canvas(4.6, 2.8)), alt, words)
    return Section("stability", "Stability path", drawn, data)


def convergence_section(content: Content) -> Section | None:
    """Objective and gaps after each round."""
    curves = support.distances(content.fitted.history)
    if not curves:
        return None
    rounds = count(content.rounds, "round")
    ended = f"{content.ending}. " if content.ending else ""
    shown = {name: values[np.isfinite(values)] for name, values in curves.items()}
    fell = "; ".join(f"{name} from {v[0]:.1e} to {v[-1]:.1e}" for name, v in shown.items() if len(v))
    if not fell:
        words = f"{ended}It took {rounds}; objective and gaps have no distance left to draw."
        return Section("convergence", "Convergence", tag("p", Html(words), class_="nothing"))
    alt = f"Objective and duality gaps over {rounds}, on a log scale: {fell}."
    ax = fits.plot_convergence(content.fitted.history, canvas(4.4, 2.5))
    drawn = picture("convergence", ax, alt, f"{ended}Values of zero cannot be drawn on a log scale.")
    return Section("convergence", "Convergence", drawn)
