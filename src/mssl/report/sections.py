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
from mssl.graph.tables import SHOWN
from mssl.graph.task_graph import short_name
from mssl.graph.tests import COVERAGE
from mssl.model.task_matrix import DENSE_UP_TO, entries_at
from mssl.plots import fits, graphs, support
from mssl.plots.maps import plot_map
from mssl.report import page
from mssl.report.page import MOST_EDGES, Section, canvas, count, named, picture

if TYPE_CHECKING:
    from mssl.report.content import Content, Scores

_MOST_ARCS = fits.MOST_LINES // 2  # The map has fewer arcs than a figure has curves; more would hide it.
_MOST_WEIGHTS = 100  # Up to this number, weights are also drawn one by one with intervals; more could not be read.
_NARROW = (2 * support.SMALL, "narrow")  # letters and kind of the names that narrow screens show
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
    found = {"What was fitted": _fitted(content), "How good it is": _good(content)}
    found["How certain it is"] = Html(_certain(content))
    body = (Html(tag("dt", Html(heading)), tag("dd", words)) for heading, words in found.items())
    return Section("summary", "Summary", tag("dl", *body, class_="summary"))


def _fitted(content: Content) -> Html:
    K, d = content.coef.shape
    text = f"{content.method} learned {count(K, 'task')} with {count(d, 'feature')} each."
    if not content.coef.any():
        text += " All coefficients are zero: the features explain nothing."
    if content.missing_graph is not None:
        return Html(f"{text} {content.missing_graph}")
    graph, alone, pairs = content.graph, content.alone, count(K * (K - 1) // 2, "pair")
    negative = (graph.weights < 0).sum() // 2
    signs = f"{negative:,} of them negative" if negative else "all positive"
    groups = f"in {count(len(content.groups), 'community')}"
    groups += f"; {count(alone, 'task')} stand{'s' if alone == 1 else ''} alone" if alone else ""
    if content.shown.certain is not None and not content.groups:
        groups = "none of which can be told from chance"
    text += f" Of {pairs} of tasks the graph has {content.joined}, {signs}, {groups}."
    edges = [Html(named(e.task_i, 24), " – ", named(e.task_j, 24), f" ({e.weight:+.2f})") for e in content.strongest(3)]
    return Html(text, " Strongest: ", page.listed(edges, 3), ".") if edges else Html(text)


def _good(content: Content) -> Html:
    """Sentences on the scores: those of held-out rows come first, those of training rows last."""
    unknown = content.gains is None and not content.cross_validated
    gains = Html("The gain over single-task fits was not measured.") if unknown else _gains(content)
    found = [_scores(content), gains]
    if content.scores is not None and content.scores.held_out is False:
        found = [gains, Html("How well it predicts new rows was not measured." if unknown else ""), found[0]]
    return Html(" ").join(filter(None, [Html(content.cross_validated), *found]))


def _scores(content: Content) -> Html:
    scores, known = content.scores, Html()
    if scores is None or not (scores.rows.any() or scores.n_strange):
        return Html("No rows were given to the report, so it states no errors.")
    if scores.rows.any():
        rows = count(scores.rows.sum(), "row")
        whose = f"the {rows} that the model was {'not ' if scores.held_out else ''}fitted on"
        if scores.held_out is None:
            whose = f"{rows} given to the report (whether the model was fitted on them is not known)"
        error = f"{scores.error_name} of a task is {np.nanmedian(scores.error):.3g}"
        explained = f"{scores.explained_name} is {np.nanmedian(scores.explained):.2f}"
        worst = int(np.nanargmax(scores.error))
        known = Html(
            f"On {whose} the median {error} and the median {explained}; the worst task is ",
            named(content.graph.tasks[worst]),
            f" ({scores.error_name} {scores.error[worst]:.3g}).{_more(scores)}",
        )
    return Html(" ").join(filter(None, [known, _strangers(scores)]))


def _more(scores: Scores) -> str:
    """Sentences on intervals and on the probabilities of labels, compared with the base rates of the training rows."""
    text, found, whose = "", scores.labels, "training " if scores.held_out is False else ""
    if scores.inside is not None:
        inside = np.nansum(scores.rows * scores.inside) / scores.rows.sum()
        text += f" {inside:.0%} of the rows lie inside their {COVERAGE:.0%} prediction interval."
    text += " Errors of new rows are usually larger." if whose else ""
    if found is None:
        return text
    rate = found.base_log_loss
    base = "" if np.isnan(rate) else f", where each task's base rate alone has {rate:.3g}"
    auc = "" if np.isnan(found.auc) else f", and the {whose}area under the ROC curve {found.auc:.3f} (0.5 is chance)"
    return f"{text} Over all rows the {whose}log loss is {found.log_loss:.3g}{base}{auc}."


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
    losers = [k for k in np.argsort(gain, kind="stable") if verdict[k] == "loss"]
    winners = f"{(verdict == 'gain').sum():,} of {count(np.isfinite(gain).sum(), 'task')} gain"
    text = f"Against single-task fits, {winners} (median {np.nanmedian(gain):+.1f}\u00a0%)"
    if not losers:
        return Html(f"{text} and none loses.")
    names = (Html(named(content.graph.tasks[k], 24), f" ({gain[k]:+.1f}\u00a0%)") for k in losers)
    lose = f"{text}. {count(len(losers), 'task')} lose{'s' if len(losers) == 1 else ''}: "
    return Html(lose, page.listed(names, 5, " and others"), ".")


def _certain(content: Content) -> str:
    found = [f"{note[:1].upper() + note[1:]}." for note in content.shown.notes]
    if content.ending:
        found.append(content.ending + (f", after {count(content.rounds, 'round')}." if content.rounds else "."))
    confidence, shared, noise = content.graph.confidence, content.fitted.mean_variance, content.noise
    if confidence is not None and content.graph.n_edges:
        seen = confidence[content.graph.edge_indices()]
        pairs = count(len(seen), "pair")
        found.append(f"{(seen >= 0.9).sum():,} of {pairs} were selected in at least 90 % of the subsamples.")
    elif content.graph.n_edges:
        unknown = "How often each pair would be selected on other data was not measured"
        found.append(f"{unknown}; StabilitySelection does that.")
    if shared:
        found.append(f"The tasks share a mean, of variance {shared:.3g}.")
    if noise is not None and noise.max() > noise.min():
        found.append(f"Noise of the tasks runs from {noise.min():.3g} to {noise.max():.3g}.")
    return " ".join(found) or "Nothing was measured that says so."


def task_section(content: Content) -> Section:
    """Bars of gains, if they were measured, and a table of errors, gains over single-task fits, and neighbours."""
    gains, tasks, bars = content.gains, content.graph.tasks, Html()
    falling, order, looks = None, content.order, [""] * len(tasks)
    if gains is not None:
        falling, order = _GAIN, np.argsort(-gains.gain, kind="stable")
        looks = ["loses" if word == "loss" else "" for word in gains.verdict]
        gain = gains.gain[np.isfinite(gains.gain)]
        reach = f"from {gain.min():+.1f} to {gain.max():+.1f} %; {count(looks.count('loses'), 'task')} lose"
        alt = f"Bars of the gain of {count(len(gain), 'task')} over single-task fits, {reach}."
        ax = fits.plot_transfer(gains.gain, canvas(*fits.gain_size(len(gain))), tasks=tasks, label=_GAIN)
        bars = picture("gains", ax, alt, "Gain over the single-task fit, best first; losses are hatched.")
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
    scores, gains, graph, everyone = content.scores, content.gains, content.graph, np.arange(content.n_tasks)
    if scores is not None:
        columns.append(page.numbers("rows", scores.rows, ",.0f"))
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
        nearest = np.ravel(abs(graph.weights).argmax(axis=1))
        weights = entries_at(graph.weights, everyone, nearest)
        ranked = zip(nearest, weights, strict=True)
        names = [Html(named(graph.tasks[k], 24), f" ({w:+.2f})") if w else Html("–") for k, w in ranked]
        columns.append(page.numbers("community", [content.community.get(k, np.nan) for k in everyone], ".0f"))
        columns.append(page.numbers("neighbours", graph.degree(), ".0f"))
        columns.append(page.Column("strongest neighbour", names, np.abs(weights)))
    if content.noise is not None:
        columns.append(page.numbers("noise", content.noise, ".4g"))
    return columns


def pair_section(content: Content) -> Section | None:
    """Significant relations; if they were not tested, the pairs of the graph."""
    graph, relations, most = content.graph, content.shown.relations, MOST_EDGES // 2  # rows, larger than lines
    tasks, columns, total = graph.tasks, [], graph.n_edges if relations is None else len(relations)
    if not total:
        return None
    if relations:
        shown = relations[:most]
        i, j = np.array([[graph.index(task) for task in row[:2]] for row in shown]).T
        weight, low, q = np.array([(row.weight, row.low, row.q) for row in shown]).T
        certain = set() if content.shown.edges is None else set(content.shown.edges.pairs)
        columns = [
            page.numbers("correlation", weight, "+.2f"),
            page.Column(f"{COVERAGE:.0%} interval", [Html(f"{r.low:+.2f} to {r.high:+.2f}") for r in shown], low),
            page.numbers("q-value", q, ".2g"),
            page.Column("edge", [Html("yes" if pair in certain else "–") for pair in shown.pairs]),
        ]
        assert graph.evidence is not None
        related = {"coef": "weights", "residual": "residuals"}[graph.evidence.resolve().on]
        what = f"Pairs of tasks whose {related} are related, the smallest q-value first: {relations.summary()}"
    else:
        i, j = (ends[:most] for ends in graph.edge_indices())
        what = f"{count(total, 'pair')}, strongest first"
    weights = np.where(entries_at(graph.adjacency, i, j), entries_at(graph.weights, i, j), np.nan)
    columns.append(page.numbers("partial correlation", weights, "+.2f"))
    if graph.confidence is not None:
        columns.append(page.numbers("selected (%)", 100 * entries_at(graph.confidence, i, j), ".0f"))
    rows = []
    for pair in zip(i, j, strict=True):
        first, second = (tasks[k] for k in pair)
        label = Html(named(first, 24), " – ", named(second, 24))
        rows.append(page.Row(label, pair, f"{short_name(first, 200)} – {short_name(second, 200)}"))
    meaning = "A partial correlation stands where two tasks are joined in the graph, other tasks being known."
    caption = f"{what}.{page.first_of(most, total, 'pair')} {meaning} "
    caption += "Choose a pair to highlight it in all views; a heading sorts."
    return Section("pairs", "Related pairs", page.linked_table("pair", caption, "tasks", rows, columns))


def new_task_section(content: Content) -> Section | None:
    """The weights of a new task, and the distances of the known tasks' weights from them."""
    coef = content.fitted.unseen_coef
    if coef is None or content.n_tasks < 2:
        return None
    predict, unseen = tag("code", Html("predict")), tag("code", Html("unseen='mean'"))
    words = Html(
        "A task that was not in the fit is predicted with the tasks' mean: ",
        Html(predict, " does so by default, with a warning")
        if content.fitted.unseen == "mean"
        else Html("give ", predict, " ", unseen, " for it; without it such a task is refused"),
        ". Where the tasks' own weights lie far from it, a new task may too.",
    )
    away = np.sqrt(((content.coef - coef) ** 2).mean(axis=0))
    spreads = feature_spreads(content.model, len(coef))
    by = "largest first" if spreads is None else "largest times the spread of its feature first"
    order = np.argsort(-np.abs(coef) * (1.0 if spreads is None else spreads), kind="stable")[:SHOWN]
    lines = [("intercept", f"{content.fitted.unseen_intercept:.4g}", "–")]
    lines += [(short_name(content.features[k], 60), f"{coef[k]:.4g}", f"{away[k]:.3g}") for k in order]
    rest = page.first_of(SHOWN, len(coef), "weight")
    caption = f"Weights of a new task, {by}, and the root mean square distance of the tasks' own from them.{rest}"
    head = ("feature", "weight", "distance of the tasks")
    table = page.small_table("Weights of a new task", caption, head, lines)
    return Section("new-task", "A new task", Html(tag("p", words), table))


def record_section(content: Content) -> Section:
    """Data, settings and versions, as a record."""
    model, fitted, table = type(content.model), content.fitted, content.fitted.input.table
    package = model.__module__.partition(".")[0]  # the module inside it may move
    facts = {"model": f"{package}.{model.__qualname__}"}
    facts |= dict(zip(("tasks", "features"), map(str, content.coef.shape), strict=True))
    if table is not None:
        facts |= {"column of tasks": table.task, "target": table.target, "missing features": table.missing}
    facts |= {"layout of the data": short_name(fitted.input.layout, 60)} if fitted.input.layout else {}
    facts |= {} if fitted.n_iter is None else {"rounds": str(fitted.n_iter)}
    facts |= {} if fitted.objective is None else {"objective": f"{fitted.objective:.8g}"}
    facts["data given to the report"] = content.measured
    facts |= package_versions("mssl", "numpy", "scipy", "scikit-learn", "matplotlib")
    facts |= {"Python": platform.python_version(), "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}
    chosen = content.model.get_params(deep=False)
    settings = {name: short_name(repr(value), 200) for name, value in chosen.items()} or {"none": ""}
    tables, head = {"Settings": settings, "Data and versions": facts}, ("name", "value")
    made = (tag("div", page.small_table(title, title, head, own.items())) for title, own in tables.items())
    return Section("record", "For the record", tag("div", *made, class_="record"))


def graph_section(content: Content) -> Section:
    """The graph as points and lines, with sliders that hide weak and rarely selected edges."""
    ax = graphs.plot_graph(content.shown, canvas(6.3, 4.6), max_edges=MOST_EDGES)
    ax.set_xlabel("")
    unnamed = content.n_tasks - len(ax.texts)
    graphs.place_labels(ax, content.graph, 30, *_NARROW)
    alt = f"Task graph: {count(content.n_tasks, 'task')} joined by {content.joined}.{_strongest(content)}"
    note = f" {count(unnamed, 'name')} had no room." if unnamed else ""
    words = f"Strongly related tasks lie close; thicker edges are stronger.{note}"
    drawn = picture("graph", ax, alt, words, _legend(content), hidden=content.hidden)
    return Section("graph", "Task graph", Html(_controls(content), drawn, _all_communities(content)))


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
    ends = {"step": "any", "min": "0", "max": repr(top), "value": repr(start), "data-step": repr(top / 50)}
    sliders = _slider("min-weight", "least |partial correlation|", ends)
    if content.graph.confidence is None:
        sliders.append(tag("span", Html("Selection frequencies were not measured."), class_="quiet"))
    else:
        ends = {"min": "0", "max": "1", "step": "0.01", "value": "0"}
        sliders += _slider("min-confidence", "least selection frequency", ends)
    words = tag("p", id="edge-count", role="status", data_total=total, data_held=note)
    return Html(tag("div", *sliders, class_="controls scripted", role="group", aria_label="Lines shown"), words)


def _slider(key: str, words: str, ends: dict[str, str]) -> list[Html]:
    slider = tag("input", type="range", id=key, **ends)
    return [tag("label", Html(words), for_=key), slider, tag("output", for_=key)]


def _legend(content: Content) -> Html:
    """Colour, mark and size of each community, with its strongest tasks."""
    coloured = len(PALETTE)
    entries = []
    for number, members in enumerate(content.groups[:coloured], 1):
        names = page.listed([content.graph.tasks[k] for k in members], 6)
        words = f" community {number}, {count(len(members), 'task')}: "
        entries.append(Html(_chip(content.colors[members[0]]), words, names))
    rest = sum(map(len, content.groups[coloured:]))
    if rest:
        entries.append(Html(f"grey circles: {count(rest, 'task')} in smaller communities, listed below"))
    if content.alone:
        missing = "neighbour" if content.shown.certain is None else "relation that can be told from chance"
        entries.append(Html(f"grey circles: {count(content.alone, 'task')} without a {missing}"))
    return tag("ul", *(tag("li", entry) for entry in entries), class_="legend")


def _all_communities(content: Content) -> Html:
    """A searchable list of communities, if there are more of them than colours and marks."""
    groups, rows, strongest = content.groups, [], []
    if len(groups) <= len(PALETTE):
        return Html()
    for number, own in enumerate(groups, 1):
        name, words = f"community {number}", "\n".join(content.names[k] for k in own)
        rows.append(page.Row(Html(name), own, f"Select {name}", words))
        strongest.append(page.listed([content.graph.tasks[k] for k in own], 4))
    columns = [page.numbers("tasks", list(map(len, groups)), ",.0f"), page.Column("strongest", strongest)]
    caption = f"All {len(groups):,} communities: the name of a task finds its own; choose one to highlight its tasks."
    return page.linked_table("community", caption, "community", rows, columns)


def chord_section(content: Content) -> Section:
    """Tasks on a circle, community by community, edges as curves inside it."""
    ax = graphs.plot_chord(content.shown, canvas(4.6, 4.6), max_edges=MOST_EDGES)
    ax.set_xlabel("")
    related = f"{count(content.graph.n_edges, 'curve')} between those that are related"
    alt = f"Chord diagram: {count(content.n_tasks, 'task')} on a circle, {related}.{_strongest(content)}"
    words = "Edges are those of the graph above." + ("" if ax.texts else " There are too many tasks to name.")
    return Section("chords", "Chord diagram", picture("chords", ax, alt, words, hidden=content.hidden))


def map_section(content: Content) -> Section | None:
    """Tasks on a map, if coordinates are known, with errors as colours and edges as great circles."""
    graph, scores = content.graph, content.scores
    if graph.coordinates is None:
        return None
    look: dict[str, Any] = {"max_edges": _MOST_ARCS}
    words = ["Colours are communities; errors were not measured."]
    if scores is not None and not np.isnan(scores.error).all():
        look |= {"values": scores.error, "label": scores.error_name}
        words = [f"Colour is the {scores.error_name}, yellow is worse."]
    try:
        ax = plot_map(content.shown, canvas(5.4, 4.4), **look)
    except MissingDependencyError as error:
        words.append(f"Coastlines are left out: {error.args[0].split('.')[0]}.")
        ax = plot_map(content.shown, canvas(5.4, 4.4), coast=False, **look)
    most = f", of the strongest {_MOST_ARCS}" if graph.n_edges > _MOST_ARCS else ""
    words.append(f"Edges are those of the graph above{most}." if graph.n_edges else "There is no edge to draw.")
    ax.set_xlabel("longitude (°E)")
    graphs.place_labels(ax, graph, 60)
    graphs.place_labels(ax, graph, 30, *_NARROW)
    latitude, longitude = graph.coordinates[:, 0], (graph.coordinates[:, 1] + 180) % 360 - 180
    where = f"{latitude.min():.1f} to {latitude.max():.1f}°N and {longitude.min():.1f} to {longitude.max():.1f}°E"
    alt = f"Map of {count(content.n_tasks, 'task')} from {where}, with arcs between tasks that are related."
    return Section("map", "Map", picture("map", ax, alt, " ".join(words), hidden=content.hidden))


def matrix_section(content: Content) -> Section | None:
    """Partial correlations and precisions between tasks by community, if a picture has room for all pairs."""
    K, graph = content.n_tasks, content.graph
    if K > DENSE_UP_TO:
        return None
    off = graph.weights[~np.eye(K, dtype=bool)]
    reach = f"from {off.min():+.2f} to {off.max():+.2f}, {1 - graph.density():.0%} of the pairs 0"
    alt = f"Heat map of the partial correlations between {count(K, 'task')}, ordered by community: {reach}."
    side = float(np.clip(0.105 * K, 3.7, 5.4))
    axes = [graphs.plot_precision(content.shown, canvas(side, 0.94 * side))]
    if content.fitted.precision is not None:
        axes.append(graphs.plot_precision(content.model, canvas(side, 0.94 * side), kind="precision"))
    return _layers("relations", "Partial correlations", alt, axes, "Lines part communities.")


def coefficient_section(content: Content) -> Section | None:
    """Heat map of coefficients, tasks (by community) by features; a few coefficients also get intervals."""
    coef, sizes = content.coef, np.abs(content.coef)
    (K, d), largest = coef.shape, sizes.max(axis=0)
    if not largest.any():
        return None
    # If features have very different units, a common colour scale would show only one of them.
    shares_first = largest.max() > 20 * np.median(largest[largest > 0])
    task, feature = np.unravel_index(np.argmax(sizes), sizes.shape)
    whose = f"of {short_name(content.graph.tasks[task])} on {short_name(content.features[feature])}"
    tasks = f"{count(K, 'task')} on {count(d, 'feature')}"
    alt = f"Heat map of the coefficients of {tasks}; the largest is {coef[task, feature]:+.3g}, {whose}."
    size = (float(np.clip(1.6 + 0.16 * d, 3.4, 6.2)), float(np.clip(0.9 + 0.14 * K, 1.6, 4.8)))
    order = ("largest", "unit") if shares_first else ("unit", "largest")
    axes = [fits.plot_coefficients(content.model, canvas(*size), per=per) for per in order]
    zeros = (coef == 0).mean()
    words = f"{zeros:.0%} of the coefficients are zero." if zeros > 0 else "No coefficient is exactly zero."
    words += "" if shares_first else " Colours end at the 99th percentile."
    section = _layers("coefficients", "Coefficients", alt, axes, words)
    std = content.fitted.coef_std if coef.size <= _MOST_WEIGHTS else None
    if std is None:
        return section
    ax = canvas(4.4, support.height(sizes.size))
    fits.plot_coefficients(content.model, ax, kind="forest", level=COVERAGE)
    words = f"Coefficients with {COVERAGE:.0%} intervals"
    sure = count((sizes > ndtri(0.5 + COVERAGE / 2) * std).sum(), "interval")
    drawn = picture("intervals", ax, f"{words}: {sure} of {coef.size} lie off 0.", f"{words}; grey ones hold 0.")
    return section._replace(body=Html(section.body, drawn))


def _layers(key: str, title: str, alt: str, axes: list[Any], words: str) -> Section:
    """Several heat maps in one place, buttons that choose one of them, and their data for the page's script."""
    buttons, pictures, data = [], [], {}
    for k, ax in enumerate(axes):
        label, whole, order = getattr(ax, support.DRAWN)
        name, own = f"{key}-{k}", f"{key}-layer-{k}"
        buttons.append(tag("input", type="radio", name=f"{key}-layer", id=own, value=k, checked=k == 0))
        buttons.append(tag("label", Html(label), for_=own))
        pictures.append(page.drawing(name, ax, alt if not k else f"The same map of the {label}."))
        # The page shows under the pointer three digits of each value, and uses the value's position in its block.
        cells = support.pool(whole, support.CELLS // 3)  # of a side: more make the page large
        pooled = cells.block != (1, 1)
        values = [None if np.isnan(value) else json.loads(f"{value:.3g}") for value in cells.values.ravel()]
        place = cells.place.ravel().tolist() if pooled else None
        data[name] = {"label": label, "shape": whole.shape, "block": cells.block, "values": values, "place": place}
        data[name] |= {"rows": order, "columns": order if key == "relations" else None}
    if pooled:
        strongest = f"the strongest {'pairs of tasks' if key == 'relations' else 'coefficients'} there"
        words += f" There are too many to see each: colours and the numbers beside the pointer are {strongest}."
    parts = [*(buttons if len(axes) > 1 else []), *pictures, tag("figcaption", Html(words))]
    return Section(key, title, tag("figure", *parts, class_="layers", aria_label=alt), data)


def effect_section(content: Content) -> Section | None:
    """Small multiples of the columns that change the predictions most, and a table of all columns' relevance."""
    relevance, multiples = content.relevance, []
    if not relevance:
        return None
    for number, (shared, by_task) in enumerate(content.effects):
        ax = canvas(3.5, 2.3)
        fits.draw_effect(ax, shared, by_task)
        ax.set_ylabel("partial effect")
        name, effect = short_name(shared.feature, 60), shared.effect
        at = [short_name(value, 20) if shared.x.dtype.kind == "O" else f"{value:.3g}" for value in shared.x]
        low, high = (f"{at[k]} ({effect[k]:+.3g})" for k in (np.argmin(effect), np.argmax(effect)))
        reach = f"lowest at {low}, highest at {high}; at most {np.ptp(by_task, axis=0).max():.3g} between two tasks"
        alt = f"Partial effect of {name}, mean of all tasks: {reach}."
        band = " with its band" if shared.lower is not None else ""
        words = f"{name}: mean of all tasks{band} in blue, tasks in grey."
        multiples.append(picture(f"effect-{number}", ax, alt, words))
    how = "standard deviation of its partial effect over its values in training, root mean square over tasks"
    rest = page.first_of(SHOWN, len(relevance), "column")
    words = f"How much each column moves the predictions ({how}).{rest}"
    order = sorted(relevance, key=lambda name: -relevance[name])[:SHOWN]
    lines = [(short_name(name, 60), f"{relevance[name]:.3g}") for name in order]
    table = page.small_table("Relevance of columns", words, ("column", "relevance"), lines)
    return Section("effects", "Effects of columns", Html(tag("div", *multiples, class_="multiples"), table))


def stability_section(content: Content) -> Section | None:
    """Selection frequencies of edges as functions of the penalty."""
    found, names = content.stability, content.graph.tasks
    if found is None or not found.frequencies.size:
        return None
    top = found.frequencies.max(axis=0)
    reach = count((top >= found.threshold).sum(), "edge")
    ranked = np.argsort(-top, kind="stable")[: 2 * fits.MOST_LINES].tolist()  # all that are drawn, and maybe more
    pairs = {} if found.ends is None else {k: found.ends[k].tolist() for k in ranked}
    words = {k: " – ".join(short_name(names[end]) for end in pair) for k, pair in pairs.items()}
    often = ", ".join(f"{words.get(k, f'edge {k + 1}')} ({top[k]:.0%})" for k in ranked[:5])
    alt = f"Selection frequency of edges along the path of penalties; {reach} reach the threshold."
    alt += f" Most often selected: {often}."
    blue = f"the {reach} selected in at least {found.threshold:.0%} of the subsamples somewhere (dashed line)"
    grey = f"the others, at most {fits.MOST_LINES} of either"
    caption = f"Blue: {blue}; grey: {grey}. The penalty falls from left to right."
    data = {"stability": {f"{i} {j}": float(f"{top[k]:.3g}") for k, (i, j) in pairs.items()}}
    drawn = picture("stability", fits.plot_stability(found, ax=canvas(4.6, 2.8)), alt, caption)
    return Section("stability", "Stability path", drawn, data)


def convergence_section(content: Content) -> Section | None:
    """Objective and gaps after each round."""
    curves = support.distances(content.fitted.history)
    if not curves:
        return None
    rounds, ended = count(content.rounds, "round"), f"{content.ending}. " if content.ending else ""
    shown = {name: values[np.isfinite(values)] for name, values in curves.items()}
    fell = "; ".join(f"{name} from {v[0]:.1e} to {v[-1]:.1e}" for name, v in shown.items() if len(v))
    if fell:
        alt = f"Objective and duality gaps over {rounds}, on a log scale: {fell}."
        ax = fits.plot_convergence(content.fitted.history, canvas(4.4, 2.5))
        body = picture("convergence", ax, alt, f"{ended}Values of zero cannot be drawn on a log scale.")
    else:
        words = f"{ended}It took {rounds}; objective and gaps have no distance left to draw."
        body = tag("p", Html(words), class_="nothing")
    return Section("convergence", "Convergence", body)
