"""What the report page says, read from its HTML; `test_report_browser` looks at what it does."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

pytest.importorskip("matplotlib")

from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mssl
from mssl import (
    BayesianMSSLRegressor,
    MSSLClassifierCV,
    MSSLRegressor,
    MSSLRegressorCV,
    MultiTaskGLM,
    StabilitySelection,
    TaskGraph,
    _html,
    report,
)
from mssl.datasets import make_clustered_tasks
from mssl.estimators.fitted import Fitted, FittedAttributes, Input
from mssl.exceptions import DataError, MissingDependencyError, MSSLError
from mssl.graph.geometry import display, task_order
from mssl.graph.task_graph import partial_correlation
from mssl.losses import Gaussian
from mssl.plots.fits import read_stability
from mssl.plots.support import marked, pool
from mssl.plots.svg import svg
from mssl.report.content import measure, read_gains
from mssl.report.page import Column, Section, canvas
from mssl.structures import Independent
from mssl.transfer import transfer_report

SECTIONS = [
    "summary", "graph", "relations", "pairs", "chords", "coefficients", "effects", "new-task", "tasks", "stability",
    "convergence", "record",
]  # fmt: skip
HOSTILE = [
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", "\"'><svg/onload=alert(3)>", "a" * 10_000,
    "مرحبا بالعالم", "👩‍🔬 and 🧪", "\u202eevil", "two\nlines\x00", "$$\\frac{1}{2}$$ \\(x\\)", "{{7*7}} @name &lt;b&gt;", " ",
    "]]> --> <!-- \u2028 \ud800",
]  # fmt: skip


class Page(HTMLParser):
    """Tags, attributes, text of each section, and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = text
        self.tags, self.scripts, self.words, self.rows, self.drawn, self.inside = [], [], {}, [], [], []
        self._section = self._script = self._table = self._drawn = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag == "section":
            self._section = attrs["id"]
            self.words[self._section] = ""
        self.inside.append((self._section, tag, attrs))
        if tag == "table":
            self._table = attrs.get("id")
        if tag == "tr" and "data-tasks" in attrs and self._table == "task-table":
            self.rows.append(attrs)
        self._script = attrs if tag == "script" else None
        self._drawn = tag == "text"

    def handle_endtag(self, tag):
        if tag == "section":
            self._section = None
        self._script, self._drawn = None, False

    def handle_data(self, data):
        if self._script is not None:
            self.scripts.append((self._script, data))
        elif self._drawn:
            self.drawn.append(data)
        elif self._section is not None:
            self.words[self._section] += data

    def data(self):
        return json.loads(next(text for attrs, text in self.scripts if attrs.get("id") == "report-data"))

    def parts(self, section):
        """Attributes of what stands for a task or an edge in the pictures of a section."""
        return [attrs for key, tag, attrs in self.inside if key == section and "data-of" in attrs]

    def figures(self):
        return {attrs["id"] for tag, attrs in self.tags if tag == "div" and "plot" in attrs.get("class", "").split()}


class Left(FittedAttributes):
    """A model of which nothing is there but what its fit left."""

    def __init__(self, coef, names=None, features=None, *, more=None, **learned):
        tasks = np.array(range(len(coef)) if names is None else names, dtype=object)
        columns = None if features is None else np.array(features, dtype=object)
        self.fitted_ = Fitted(Input(tasks=tasks, features=columns), Gaussian(), coef, np.zeros(len(coef)), **learned)
        vars(self).update(more or {})

    def get_params(self, deep=True):
        return vars(self).get("settings", {})


def fake(K=6, d=4, names=None, edges=True, **more):
    """What a fit with a graph leaves."""
    rng = np.random.default_rng(0)
    precision = 2.0 * np.eye(K)
    if edges:
        for k in range(K - 1):
            precision[k, k + 1] = precision[k + 1, k] = -0.6 if k % 3 else 0.3
    names = [f"task {k}" for k in range(K)] if names is None else names
    return Left(
        rng.normal(size=(K, d)),
        names,
        [f"x{j}" for j in range(d)],
        precision=precision,
        partial_correlation=partial_correlation(precision),
        graph=TaskGraph.from_precision(precision, tasks=names),
        noise_variance=np.ones(K),
        mean_variance=0.0,
        more=more,
    )


def written(model, tmp_path, **options) -> Page:
    path = report.write(model, tmp_path / "report.html", **options)
    return Page(path.read_text(encoding="utf-8"))


def thousand_tasks(path) -> Path:
    """A page of 1 000 tasks in 25 groups, where every part is large."""
    K = 1000
    rng = np.random.default_rng(0)
    precision = np.kron(np.eye(25), -rng.uniform(0.1, 0.5, (40, 40)))
    precision = (precision + precision.T) / 2
    np.fill_diagonal(precision, np.abs(precision).sum(axis=1) + 1)
    names = [f"a task with a rather long name, number {k}" for k in range(K)]
    graph = TaskGraph.from_precision(precision, tasks=names, confidence=np.abs(partial_correlation(precision)))
    subject = Left(rng.normal(size=(K, 1200)), names, precision=precision, graph=graph)
    stability = (np.geomspace(1, 0.1, 5), np.broadcast_to(graph.confidence, (5, K, K)))
    return report.write(subject, path, transfer=rng.normal(size=K), stability=stability)


@pytest.fixture(scope="module")
def problem():
    return make_clustered_tasks(random_state=0)


@pytest.fixture(scope="module")
def model(problem):
    return MSSLRegressor(0.5).fit(problem.X, problem.y, tasks=problem.tasks)


@pytest.fixture(scope="module")
def full(model, problem, tmp_path_factory):
    lambdas = np.geomspace(1, 0.1, 4)
    frequencies = np.broadcast_to(np.abs(model.partial_correlation_) > 0, (4, 13, 13)).astype(float)
    gains = {name: 5.0 - k for k, name in enumerate(model.tasks_.tolist())}
    return written(
        model,
        tmp_path_factory.mktemp("page"),
        data=(problem.X_test, problem.y_test, problem.tasks_test),
        transfer=gains,
        stability=(lambdas, frequencies),
        title="All there is",
    )


def test_every_section_is_there_with_a_heading_and_a_link(full):
    assert list(full.words) == SECTIONS
    links = {attrs["href"] for tag, attrs in full.tags if tag == "a"}
    assert {f"#{key}" for key in SECTIONS} <= links
    headed = {attrs["aria-labelledby"] for tag, attrs in full.tags if tag == "section"}
    assert headed == {attrs["id"] for tag, attrs in full.tags if tag == "h2"}


def test_every_figure_has_words_for_those_who_cannot_see_it(full, model):
    assert full.figures() == {
        "plot-graph", "plot-relations-0", "plot-relations-1", "plot-chords", "plot-coefficients-0",
        "plot-coefficients-1", "plot-gains", "plot-stability", "plot-convergence",
    }  # fmt: skip
    figures = [attrs for tag, attrs in full.tags if tag == "figure"]
    assert len(figures) == 7
    words = [attrs["aria-label"] for attrs in figures]
    named = re.findall(r"(task \d\d) and (task \d\d) ([+-][\d.]+)", words[0])
    strongest = display(model.graph_).strongest
    assert named == [(edge.task_i, edge.task_j, f"{edge.weight:+.2f}") for edge in list(strongest)[:5]]
    assert f"{model.partial_correlation_[~np.eye(13, dtype=bool)].max():+.2f}" in words[1]
    task, feature = np.unravel_index(np.argmax(np.abs(model.coef_)), model.coef_.shape)
    assert f"{model.coef_[task, feature]:+.3g}, of {model.tasks_[task]} on x{feature}" in words[3]
    assert "from -7.0 to +5.0 %; 7 tasks lose" in words[4]
    assert sum(tag == "figcaption" for tag, _ in full.tags) == 7
    labelled = {attrs["for"] for tag, attrs in full.tags if tag == "label" and "for" in attrs}
    assert {"min-weight", "task-search", "pair-search"} <= labelled


def test_the_summary_states_counts_and_losers(full, model):
    words = full.words["summary"]
    edges = len(model.graph_.edges(fdr=0.1))
    assert f"Of 78 pairs of tasks the graph has {edges} edge" in words
    assert "5 of 13 tasks gain" in words
    assert "7 tasks lose" in words
    assert f"{model.result_.relative_gap:.1e}" in words


def test_the_table_is_sorted_by_gain_and_marks_losers(full):
    assert [int(row["data-tasks"]) for row in full.rows] == list(range(13))
    assert [row.get("class") for row in full.rows] == [None] * 6 + ["loses"] * 7
    assert full.words["tasks"].count("▼ loses") == 7


def test_the_record_holds_settings_and_versions(full):
    for word in ("graph_penalty", "0.5", "matplotlib", "scikit-learn", mssl.__version__, "Python"):
        assert word in full.words["record"]


def test_nothing_comes_from_elsewhere(full):
    for tag, attrs in full.tags:
        assert tag not in ("link", "iframe", "object", "base")
        assert "src" not in attrs
        assert attrs.get("href", "#").startswith("data:image/png;base64," if tag == "image" else "#")
    policy = next(attrs["content"] for tag, attrs in full.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert not re.search(r"unsafe-eval|https?:|script-src[^;]*unsafe-inline", policy)


def test_hostile_names_stay_text(tmp_path):
    names = [*HOSTILE, *(f"plain {k}" for k in range(2))]
    subject = fake(len(names), 3, names, settings={"<b>": HOSTILE[0]})
    subject.features_ = np.array(HOSTILE[:3], dtype=object)
    page = written(subject, tmp_path, title=HOSTILE[1], transfer=np.linspace(3, -3, len(names)))
    assert [attrs for attrs, _ in page.scripts] == [{"type": "application/json", "id": "report-data"}, {}]
    assert {tag for tag, _ in page.tags}.isdisjoint({"img", "iframe", "object"})
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert page.rows[0]["data-tasks"] == "0"
    assert "<script>alert(1)</script>" in page.words["tasks"]
    assert "مرحبا بالعالم" in page.words["tasks"]
    assert page.data()["names"][0] == "<script>alert(1)</script>"
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    block = text[text.index('id="report-data">') : text.index("</script>", text.index('id="report-data">'))]
    assert "<" not in block.split(">", 1)[1]
    assert "\u202e" not in text
    assert "a" * 600 not in text


@pytest.mark.parametrize("where", ["body", "cell"])
def test_a_raw_text_is_refused_by_the_page(where, tmp_path, monkeypatch):
    if where == "body":
        monkeypatch.setattr("mssl.report.sections.pair_section", lambda _: Section("pairs", "Pairs", "<b>raw</b>"))
    else:
        raw = Column("noise", ["<b>raw</b>"] * 6)
        monkeypatch.setattr("mssl.report.page.numbers", lambda *_: raw)
    with pytest.raises(TypeError, match="is not markup"):
        written(fake(), tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(TypeError, match="is not markup"):
        _html.tag("figure", "<b>raw</b>")


def test_formulas_in_names_are_no_formulas(tmp_path):
    names = ["$x$", "$$y$$", "\\frac{1}{2}"]
    page = written(fake(3, 2, names), tmp_path)
    drawn = {text.replace("∖", "\\") for text in page.drawn}
    assert drawn >= set(names)


@pytest.mark.parametrize(
    ("subject", "absent", "words"),
    [
        (Left(np.ones((3, 2))), {"graph", "relations", "pairs", "chords"}, "has no task graph"),
        (Left(np.ones((3, 2))), {"convergence", "effects", "new-task", "map", "stability"}, ""),
        (fake(1), {"graph", "new-task"}, "one task only"),
        (fake(5, edges=False), {"graph", "relations", "pairs", "chords"}, "graph is empty"),
        (fake(5), {"map", "stability"}, "No rows were given"),
        (Left(np.zeros((3, 2))), {"coefficients"}, "All coefficients are zero"),
    ],
)
def test_a_section_without_content_leaves_the_page(subject, absent, words, tmp_path):
    page = written(subject, tmp_path)
    assert absent.isdisjoint(page.words)
    assert words in page.words["summary"]
    links = {attrs["href"][1:] for tag, attrs in page.tags if tag == "a"}
    assert links == set(page.words)


def test_a_bayesian_page_has_no_empty_section(tmp_path):
    problem = make_clustered_tasks(n_features=2, random_state=0)
    model = BayesianMSSLRegressor("mean", features="linear").fit(problem.X, problem.y, tasks=problem.tasks)
    rows = (problem.X_test, problem.y_test, problem.tasks_test)
    page = written(model, tmp_path, data=rows, held_out=True)
    assert {"graph", "convergence", "stability"}.isdisjoint(page.words)
    assert {"plot-coefficients-0", "plot-intervals"} <= page.figures()
    ends = model.predict_interval(rows[0], 0.9, tasks=rows[2])
    inside = (ends[:, 0] <= rows[1]) & (rows[1] <= ends[:, 1])
    scores = measure(model, rows)
    np.testing.assert_allclose(scores.inside, [inside[rows[2] == name].mean() for name in model.tasks_])
    assert f"{inside.mean():.0%} of the rows lie inside their 90% prediction interval" in page.words["summary"]
    assert "inside 90% interval" in page.words["tasks"]


def test_without_evidence_the_words_name_the_support(tmp_path):
    page = written(fake(4), tmp_path)
    words = next(attrs["aria-label"] for tag, attrs in page.tags if tag == "figure")
    assert "task 0 and task 1 -0.15" in words


def test_what_the_pointer_says_of_a_heat_map_belongs_to_its_cells(tmp_path):
    """The graph of this fit has its tested edges apart from its support, so drawings of the model and of it differ."""
    problem = make_clustered_tasks(random_state=1)
    model = MSSLRegressor(0.3).fit(problem.X, problem.y, tasks=problem.tasks)
    shown = display(model.graph_)
    assert (task_order(model.graph_, shown.groups) != task_order(shown.graph, shown.groups)).any()
    pictures = written(model, tmp_path).data()["pictures"]
    tables = {
        "relations-0": shown.graph.weights, "relations-1": model.precision_, "coefficients-0": model.coef_,
        "coefficients-1": model.coef_ / np.abs(model.coef_).max(axis=0),
    }  # fmt: skip
    for name, table in tables.items():
        picture = pictures[name]
        rows, columns = picture["rows"], picture["columns"] or range(table.shape[1])
        values = np.array(picture["values"], dtype=float).reshape(picture["shape"])
        expected = np.where(np.isnan(values), np.nan, table[np.ix_(rows, columns)])
        np.testing.assert_allclose(values, expected, rtol=6e-3)


def test_the_pairs_are_the_relations_with_their_q_values(full, model):
    relations = model.graph_.relations(0.1)
    certain = set(model.graph_.edges(fdr=0.1).pairs)
    pairs = [attrs["data-tasks"] for tag, attrs in full.tags if tag == "tr" and " " in attrs.get("data-tasks", "")]
    place = {name: str(k) for k, name in enumerate(model.tasks_)}
    assert pairs == [f"{place[row.task_i]} {place[row.task_j]}" for row in relations]
    words = full.words["pairs"]
    assert all(f"{row.q:.2g}" in words and f"{row.low:+.2f} to {row.high:+.2f}" in words for row in relations)
    assert words.count("yes") == len(certain)


def test_without_evidence_the_pairs_are_the_edges(tmp_path):
    page = written(fake(4), tmp_path)
    assert "q-value" not in page.words["pairs"]
    assert page.words["pairs"].count(" – ") == 3


@pytest.mark.filterwarnings("ignore:Tasks 'new' were not there")
def test_a_new_task_is_shown_what_predict_gives_it(model, problem, full):
    new = model.predict(np.eye(30)[:1] * 0.0, tasks=["new"], unseen="mean")
    assert f"intercept{new[0]:.4g}" in full.words["new-task"]
    top = int(np.argmax(np.abs(model.unseen_coef_)))
    step = model.predict(np.eye(30)[[top]], tasks=["new"], unseen="mean") - new
    assert f"x{top}{step[0]:.4g}" in full.words["new-task"]


def test_a_pipeline_is_measured_through_its_steps(problem, tmp_path):
    chain = make_pipeline(StandardScaler(), "passthrough", MSSLRegressor(0.5))
    chain.fit(problem.X, problem.y, msslregressor__tasks=problem.tasks)
    rows = (problem.X_test, problem.y_test, problem.tasks_test)
    off = chain.predict(problem.X_test, tasks=problem.tasks_test) - problem.y_test
    scores = measure(chain, rows)
    first = problem.tasks_test == chain[-1].tasks_[0]
    np.testing.assert_allclose(scores.error[0] ** 2, np.mean(off[first] ** 2))
    page = written(chain, tmp_path, data=rows)
    assert page.words["summary"].split("What was fitted")[1].startswith("MSSLRegressor learned 13 tasks")
    assert f"{np.median(scores.error):.3g}" in page.words["summary"]


def test_communities_beyond_the_palette_can_be_searched(tmp_path):
    edges = [(f"left {k}", f"right {k}", 0.5) for k in range(9)]
    graph = TaskGraph.from_edges(edges)
    subject = Left(np.ones((18, 2)), graph.tasks, graph=graph)
    page = written(subject, tmp_path)
    listed = [attrs["data-words"].split("\n") for tag, attrs in page.tags if tag == "tr" and "data-words" in attrs]
    assert sorted(map(sorted, listed)) == [[f"left {k}", f"right {k}"] for k in range(9)]
    assert "community-table" not in str(written(fake(6), tmp_path).tags)


def test_independent_tasks_give_a_page_without_graph(problem, tmp_path):
    alone = MultiTaskGLM(Independent(1.0)).fit(problem.X, problem.y, tasks=problem.tasks)
    page = written(alone, tmp_path)
    assert "graph is empty" in page.words["summary"]
    assert "plot-coefficients-0" in page.figures()


def test_a_saved_model_gives_the_same_page(model, problem, tmp_path):
    again = mssl.load(mssl.save(model, tmp_path / "model.npz"))
    first, second = (written(each, tmp_path, data=(problem.X, problem.y, problem.tasks)) for each in (model, again))
    assert list(first.words) == list(second.words)
    for key in list(first.words)[:-1]:
        assert first.words[key] == second.words[key]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": 3}, "data has to be"),
        ({"transfer": {"nobody": 1.0}}, "does not know"),
        ({"transfer": [1.0]}, "give one each"),
        ({"transfer": 5}, "give a mapping"),
        ({"stability": {}}, "holds no path"),
        ({"stability": ([1.0], [[[2.0] * 6] * 6])}, "from 0 to 1"),
        ({"stability": ([1.0, 0.5], [[0.1]])}, "give"),
        ({"coordinates": [[0, 0]]}, "shape"),
        ({"coordinates": [[95.0, 0.0]] * 6}, "out of range"),
    ],
)
def test_what_does_not_belong_to_the_model_is_refused(options, words, tmp_path):
    with pytest.raises(DataError, match=words):
        report.write(fake(6), tmp_path / "report.html", **options)
    assert not list(tmp_path.iterdir())


def test_an_unfitted_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="fit it first"):
        report.write(MSSLRegressor(), tmp_path / "report.html")


def test_a_path_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "missing" / "report.html", tmp_path / "folder"):
        with pytest.raises(MSSLError, match="cannot be written"):
            report.write(fake(3), path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]
    assert not list((tmp_path / "folder").iterdir())


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"mssl\[report\]"):
        report.write(fake(3), tmp_path / "report.html")


def test_importing_the_report_is_cheap():
    code = "import sys, mssl.report; print({'numba', 'matplotlib', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_map_without_the_package_of_coastlines_says_so(tmp_path, monkeypatch):
    def missing(*_):
        raise MissingDependencyError("A map with coastlines needs the package 'global_land_mask'. Install it.")

    monkeypatch.setattr("mssl.plots.maps.coastlines", missing)
    page = written(fake(3), tmp_path, coordinates=[[0, 179], [5, -179], [10, 170]])
    assert "plot-map" in page.figures()
    assert "Coastlines are left out" in page.words["map"]


def test_a_crowded_map_shows_the_strongest_edges(tmp_path, monkeypatch):
    monkeypatch.setattr("mssl.plots.maps.coastlines", lambda *_: ())
    weights = np.random.default_rng(0).uniform(0.1, 1.0, (40, 40)) / 100
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    graph = TaskGraph(list(range(40)), weights > 0, weights)
    subject = Left(np.ones((40, 2)), graph=graph)
    page = written(subject, tmp_path, coordinates=np.random.default_rng(1).uniform(-50, 50, (40, 2)))
    assert "of the strongest 300" in page.words["map"]
    strongest = [
        f"{min(ends)} {max(ends)}" for ends in zip(*(each.tolist() for each in graph.edge_indices()), strict=True)
    ]
    assert {attrs["data-of"] for attrs in page.parts("map") if " " in attrs["data-of"]} == set(strongest[:300])


def test_errors_are_those_of_the_predictions(model, problem):
    scores = measure(model, (problem.X_test, problem.y_test, problem.tasks_test))
    for k, name in enumerate(model.tasks_):
        rows = problem.tasks_test == name
        predicted = problem.X_test[rows] @ model.coef_[k] + model.intercept_[k]
        off = problem.y_test[rows] - predicted
        assert scores.rows[k] == rows.sum()
        np.testing.assert_allclose(scores.error[k], np.sqrt(np.mean(off**2)))
        np.testing.assert_allclose(scores.explained[k], 1 - np.sum(off**2) / np.sum((problem.y_test[rows] - problem.y_test[rows].mean()) ** 2))  # fmt: skip


@pytest.mark.parametrize(
    ("held_out", "words"),
    [(True, "was not fitted on"), (False, "that the model was fitted on"), (None, "is not known")],
)
def test_the_page_says_whether_the_rows_were_fitted(model, problem, held_out, words, tmp_path):
    rows = (problem.X, problem.y, problem.tasks)
    page = written(model, tmp_path, data=rows, held_out=held_out)
    good = page.words["summary"].partition("How good it is")[2].partition("How certain it is")[0]
    assert words in good
    training = held_out is False
    assert ("training RMSE" in page.words["tasks"]) == ("training R²" in page.words["tasks"]) == training
    assert all(
        ("training RMSE" in line) == training for facts in page.data()["facts"] for line in facts if "RMSE" in line
    )
    assert good.startswith("The gain over single-task fits was not measured. How well it predicts new") == training
    gained = written(model, tmp_path, data=rows, held_out=held_out, transfer=np.ones(13)).words["summary"]
    order = [gained.index("Against single-task fits"), gained.index("the median")]
    assert (order == sorted(order)) == training  # what is known of new rows comes first
    assert "predicts new rows" not in gained


def test_the_gain_in_cross_validation_comes_first(problem, tmp_path):
    found = MSSLRegressorCV(
        param_grid={"graph_penalty": [0.3, 1.0], "coef_penalty": [0.0], "prior_strength": [1.0]}, cv=2
    ).fit(problem.X, problem.y, tasks=problem.tasks)
    assert found.best_score_ < 0
    scores, table = found.cv_results_["mean_test_score"], found.cv_results_
    alone = [
        score
        for score, penalty, mean in zip(scores, table["param_graph_penalty"], table["param_shared_mean"], strict=True)
        if penalty >= 1 and mean is False
    ]
    gain = 1 - found.held_out_.score / max(alone)
    assert gain > 0.01
    page = written(found, tmp_path, data=(problem.X, problem.y, problem.tasks), held_out=False)
    good = page.words["summary"].partition("How good it is")[2].partition("How certain it is")[0]
    assert good.startswith("In cross-validation")
    assert f"{100 * gain:.1f}\u00a0% below" in good
    assert "not measured" not in good
    assert f"2 folds) is {found.held_out_.score:.4g}." in good
    assert good.index("In cross-validation") < good.index("that the model was fitted on")


def test_the_area_under_the_curve_of_left_out_rows_comes_first(problem, tmp_path):
    labels = problem.y > np.median(problem.y)
    found = MSSLClassifierCV(
        param_grid={"graph_penalty": [0.3], "coef_penalty": [0.0], "prior_strength": [1.0]}, cv=2
    ).fit(problem.X, labels, tasks=problem.tasks)
    page = written(found, tmp_path, data=(problem.X, labels, problem.tasks), held_out=False)
    good = page.words["summary"].partition("How good it is")[2].partition("How certain it is")[0]
    area = found.held_out_.auc
    assert f"ROC curve of the same rows is {area:.3f}." in good.partition("that the model was fitted on")[0]
    assert "training area under the ROC curve" in good


def test_missing_targets_are_left_out():
    problem = make_clustered_tasks(layout="shared", random_state=1)
    model = MSSLRegressor(0.5).fit(problem.X, problem.y)
    y = problem.y_test.copy()
    y[3:, 0] = np.nan
    y[:, 1] = np.nan
    scores = measure(model, (problem.X_test, y))
    assert scores.rows[:3].tolist() == [3, 0, len(y)]
    assert np.isnan(scores.error[1])
    np.testing.assert_allclose(scores.error[0] ** 2, np.mean((model.predict(problem.X_test)[:3, 0] - y[:3, 0]) ** 2))


def test_rows_of_some_tasks_only(model, problem, tmp_path):
    rows = problem.tasks_test == model.tasks_[4]
    data = (problem.X_test[rows], problem.y_test[rows], problem.tasks_test[rows])
    assert np.flatnonzero(measure(model, data).rows).tolist() == [4]
    assert "On 40 rows" in written(model, tmp_path, data=data).words["summary"]


def test_gains_mean_the_same_in_every_form():
    class Row(SimpleNamespace):
        pass

    names, gains = ["b", "a", "c"], [1.0, -2.0, 0.5]
    forms = [
        dict(zip(names, gains, strict=True)),
        gains,
        [{"task": n, "gain": g} for n, g in zip(names, gains, strict=True)][::-1],
        [Row(task=n, gain=g, note="text") for n, g in zip(names, gains, strict=True)],
    ]
    for form in forms:
        found = read_gains(form, names)
        assert found.gain.tolist() == gains
        assert found.verdict.tolist() == ["gain", "loss", "gain"]
        assert not found.others
    more = read_gains([{"task": "a", "gain": 3.0, "rmse": 0.1}], names)
    np.testing.assert_array_equal(more.gain, [np.nan, 3.0, np.nan])
    np.testing.assert_array_equal(more.others["rmse"], [np.nan, 0.1, np.nan])


def test_a_transfer_report_keeps_its_verdicts(model, problem, tmp_path):
    told = transfer_report(
        model, problem.X, problem.y, problem.tasks,
        X_test=problem.X_test, y_test=problem.y_test, tasks_test=problem.tasks_test,
    )  # fmt: skip
    found = read_gains(told, model.tasks_.tolist())
    np.testing.assert_allclose(found.gain, 100 * told.gain)
    assert found.verdict.tolist() == told.verdict.tolist()
    page = written(model, tmp_path, transfer=told)
    assert f"{told.counts()['gain']} of 13 tasks gain" in page.words["summary"]
    assert sum(row.get("class") == "loses" for row in page.rows) == told.counts()["loss"]
    assert page.words["tasks"].count("even") == told.counts()["even"]


def test_stability_selection_gives_path_and_frequencies(model, problem, tmp_path):
    selection = StabilitySelection(n_subsamples=6, n_points=4, random_state=0)
    selection.fit(problem.X, problem.y, tasks=problem.tasks)
    page = written(model, tmp_path, stability=selection)
    assert "plot-stability" in page.figures()
    assert "min-confidence" in {attrs.get("id") for _, attrs in page.tags}
    stable = int(selection.graph_.n_edges)
    assert f"{stable} edges selected in at least 90%" in page.words["stability"]


def test_stability_means_the_same_in_every_form():
    lambdas, cube = [1.0, 0.5], np.random.default_rng(0).uniform(size=(2, 3, 3))
    upper = cube[:, *np.triu_indices(3, 1)]
    forms = [
        (lambdas, cube, 0.8),
        {"lambdas": lambdas, "frequencies": cube, "threshold": 0.8},
        SimpleNamespace(lambdas_=lambdas, frequencies_=cube, threshold=0.8),
        (lambdas, upper, 0.8),
    ]
    for form in forms:
        found = read_stability(form)
        np.testing.assert_array_equal(found.frequencies, upper)
        assert found.threshold == 0.8


@settings(max_examples=60, deadline=None)
@given(
    arrays(float, st.tuples(st.integers(1, 12), st.integers(1, 12)), elements=st.floats(-5, 5)),
    st.integers(1, 12),
)
def test_a_pooled_cell_is_the_strongest_of_its_block(matrix, most):
    pooled = pool(matrix, most)
    assert max(pooled.values.shape) <= most
    height, width = pooled.block
    for (r, c), value in np.ndenumerate(pooled.values):
        block = matrix[r * height : (r + 1) * height, c * width : (c + 1) * width]
        down, across = divmod(int(pooled.place[r, c]), width)
        assert abs(value) == np.abs(block).max()
        assert matrix[r * height + down, c * width + across] == value


def test_lines_of_a_picture_are_where_matplotlib_draws_them():
    steps = np.random.default_rng(0).normal(size=(40, 2))
    points = steps.cumsum(axis=0)
    ax = canvas(3.0, 2.0)
    marked(ax.plot(*points.T)[0], "walk")
    markup = str(svg(ax.figure, "key", "a walk"))
    walk = re.search(r'class="walk"><path d="M([^"]*)"', markup)[1]
    first, *others = np.array(re.findall(r"-?(?:\d+\.?\d*|\.\d+)", walk), dtype=float).reshape(-1, 2)
    drawn = first + np.vstack([np.zeros(2), np.cumsum(others, axis=0)])
    expected = ax.transData.transform(points) * [1, -1] * 72 / ax.figure.get_dpi()
    np.testing.assert_allclose(drawn - drawn[0], expected - expected[0], atol=0.11)


def test_pages_are_small(full, tmp_path):
    assert len(str(full.text)) < 400e3
    assert thousand_tasks(tmp_path / "report.html").stat().st_size < 2.4e6
    rng, K = np.random.default_rng(0), 50
    weights = np.triu(rng.uniform(0.001, 0.01, (K, K)) * (rng.random((K, K)) < 0.3), 1)
    graph = TaskGraph([f"site {k:02d}" for k in range(K)], weights + weights.T > 0, weights + weights.T)
    subject = fake(K, 12, graph.tasks)
    subject.graph_, subject.precision_ = graph, np.eye(K) - graph.weights
    path = (np.geomspace(1, 0.1, 4), np.broadcast_to(100 * graph.weights, (4, K, K)))
    assert len(written(subject, tmp_path, transfer=rng.normal(size=K), stability=path).text) < 400e3
