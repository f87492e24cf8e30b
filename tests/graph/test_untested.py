"""Where there is nothing to test no pair is listed, every output says why, and a list is held against the global test."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import call
from scipy import sparse

import mssl
from mssl import BayesianMSSLRegressor, Moments, MSSLClassifier, MSSLRegressor, MultiTaskGLM
from mssl.cli.fit import summarise
from mssl.data.columns import effective_columns
from mssl.data.layouts import read_tasks
from mssl.datasets import make_clustered_tasks
from mssl.estimators.fitted import Fitted, Input
from mssl.graph import tests as inference
from mssl.graph.geometry import display
from mssl.graph.tests import GraphEvidence, LazyEvidence, Residuals
from mssl.losses import Gaussian
from mssl.structures import TaskCovariance

QUICK = {"max_iter": 5, "tol": 1.0}
SIZES = [(12, 30), (30, 8), (5, 100)]  # tasks, rows of each
DATA = Path(os.environ.get("MSSL_DATA", "")) / "textbook"
WHY = "column{} cannot show relations: at least 3 columns that vary within tasks are needed"


def unrelated(seed, columns):
    """Tasks with weights of their own; `columns` makes what varies of random numbers (N, 3)."""
    random = np.random.default_rng(seed)
    K, n = SIZES[seed % len(SIZES)]
    tasks = np.repeat(np.arange(K), n)
    X = columns(random.standard_normal((K * n, 3)))
    numbers = X if isinstance(X, np.ndarray) else np.column_stack([X[0], X[1] == "b"])
    W = random.standard_normal((K, numbers.shape[1]))
    y = np.sum(numbers * W[tasks], axis=1) + random.standard_normal(K * n)
    return X, y, tasks


DESIGNS = {
    "one": (1, lambda Z: Z[:, :1]),
    "two": (2, lambda Z: Z[:, :2]),
    "two, their sum and a copy": (2, lambda Z: np.column_stack([Z[:, :2], Z[:, 0] + Z[:, 1], 1e6 + 3 * Z[:, 0]])),
}


@pytest.mark.parametrize("design", DESIGNS)
def test_unrelated_weights_of_few_columns_are_in_no_table(design):
    number, columns = DESIGNS[design]
    for seed in range(30):
        X, y, tasks = unrelated(seed, columns)
        level = np.random.default_rng(seed).standard_normal(tasks.max() + 1)[tasks]
        X = np.column_stack([np.ones(len(y)), X, level, 1e8 * level])
        graph = MSSLRegressor(**QUICK).fit(X, y, tasks=tasks).graph_
        for table in (graph.relations(1.0), graph.edges(fdr=1.0)):
            assert len(table) == table.n_pairs == 0
            assert repr(table) == f"the weights of {number} " + WHY.format("s" * (number > 1))
        assert graph.global_test(19) == (1.0, 1.0, 19)
        assert graph.selected().n_edges == 0


@pytest.mark.parametrize("levels", [2, 3])
def test_a_category_counts_one_less_than_its_levels(levels):
    pandas = pytest.importorskip("pandas")
    for seed in range(30 if levels == 2 else 6):
        make = lambda Z: [Z[:, 0], np.array(list("abc"))[np.searchsorted([0.0, 0.7][: levels - 1], Z[:, 1])]]  # noqa: E731
        X, y, tasks = unrelated(seed, make)
        frame = pandas.DataFrame({"x": X[0], "kind": X[1]})
        table = MSSLRegressor(**QUICK).fit(frame, y, tasks=tasks).graph_.relations(1.0)
        pairs = (tasks.max() + 1) * tasks.max() // 2
        assert table.n_pairs == (0 if levels == 2 else pairs)


def test_effective_columns_are_the_rank_of_the_pooled_covariance():
    random = np.random.default_rng(0)
    for case in range(40):
        rank, K, n = case % 4, 4, 6
        Z = random.standard_normal((K * n, rank)) @ random.standard_normal((rank, 5)) * 10.0 ** random.integers(-4, 6)
        tasks = np.repeat(np.arange(K), n)
        levels = 1e3 * random.standard_normal((K, 5))[tasks]
        weights = random.integers(0, 3, size=K * n) + (np.arange(K * n) % n < 4) * 1.0
        y = random.standard_normal(K * n)
        X = Z + levels
        for layout in (X, sparse.csr_array(X)):
            assert effective_columns(read_tasks(layout, y, tasks=tasks, sample_weight=weights), 9) == rank
        moments = Moments.from_rows(X, y, tasks, weights).to_tasks()
        assert effective_columns(moments, 9) == rank
        assert effective_columns(moments, 2) == min(rank, 2)
        shared = read_tasks(X[:n], random.standard_normal((n, K)))
        assert effective_columns(shared, 9) == rank


def test_maps_count_as_their_columns():
    X, y, tasks = unrelated(0, lambda Z: Z[:, :2])
    model = MSSLRegressor(features="spline+interactions", **QUICK).fit(X, y, tasks=tasks)
    assert len(model.features_) > 5
    assert not len(model.graph_.relations(1.0))


def test_tasks_that_have_one_direction_each_are_unrelated():
    """Of one observation every correlation is ±1."""
    random = np.random.default_rng(0)
    X, tasks = random.standard_normal((40, 10)), np.repeat(np.arange(20), 2)
    y = np.sum(X * random.standard_normal((20, 10))[tasks], axis=1)
    assert not len(MSSLRegressor(**QUICK).fit(X, y, tasks=tasks).graph_.relations())


MODELS = [
    MSSLRegressor(**QUICK),
    MultiTaskGLM(TaskCovariance()),
    BayesianMSSLRegressor("mean", features="linear", calibrate=False),
    MSSLClassifier(**QUICK),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_saved_models_and_moments_carry_the_reason(model, tmp_path):
    X, y, tasks = unrelated(0, lambda Z: Z[:, :1])
    classes = hasattr(model, "predict_proba")
    model.fit(X, y > 0 if classes else y, tasks=tasks)
    again = mssl.load(mssl.save(model, tmp_path / "model.npz"))
    told = "the weights of 1 " + WHY.format("")
    assert repr(again.graph_.relations()) == repr(model.graph_.relations()) == told
    assert repr(again.graph_.subgraph([0, 3]).relations(1.0)) == told
    assert again.summary().relations.untested == told
    assert display(again.graph_).notes == [told]
    assert display(again.graph_).groups.tolist() == list(range(12))
    if hasattr(model, "fit_moments") and not classes:
        assert repr(model.fit_moments(Moments.from_rows(X, y, tasks)).graph_.relations()) == told
    if hasattr(model, "adapt"):
        model.fit(X, y, tasks=tasks).adapt(X[:3], y[:3], task=99)
        assert repr(model.graph_.relations()) == told
        assert model.graph_.to_graphml().count(told) == 1


def test_workers_count_columns_too():
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    X, y, tasks = unrelated(0, lambda Z: Z[:, :2])
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 0] - X[:, 1], "y": y, "task": tasks})
    parts = frames.from_pandas(frame, npartitions=3)
    model = MSSLRegressor(task_column="task", **QUICK).fit(parts[["a", "b", "c", "task"]], parts["y"])
    assert model.graph_.relations(1.0).untested == "the weights of 2 " + WHY.format("s")


@pytest.fixture(scope="module")
def one_column(tmp_path_factory):
    """A table with one column, fitted by a method whose graph joins all pairs: folder, text and JSON of the command."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("one")
    X, y, tasks = unrelated(0, lambda Z: Z[:, :1])
    lines = [f"{task},{x},{value}" for task, x, value in zip(tasks, X[:, 0], y, strict=True)]
    (folder / "data.csv").write_text("\n".join(["task,x,y", *lines]))
    args = ("fit", folder / "data.csv", "--task", "task", "--target", "y", "--method", "mtrl")
    text = call(*args, "--save", folder / "m.npz").stdout
    return folder, text, json.loads(call(*args, "--json").stdout)


def test_every_output_says_why(one_column):
    folder, text, found = one_column
    told = "the weights of 1 " + WHY.format("")
    assert told in text
    assert found["evidence"] == [told]
    assert found["untested"] == told
    assert (found["groups"], found["strongest_edges"], found["overall_p"]) == ([], [], None)
    assert found["edges"] == 0 < found["support"]
    assert "Strongest" not in text
    model = folder / "m.npz"
    for level in ("relations", "edges"):
        done = call("graph", model, "--show", level)
        assert told in done.stderr
        assert list(csv.reader(io.StringIO(done.stdout)))[1:] == [[f"# {told}"]]
        graphml, dot = (call("graph", model, "--show", level, "--format", kind).stdout for kind in ("graphml", "dot"))
        assert f"<desc>{told}</desc>" in graphml
        assert f'label="{told}"' in dot
        assert "--" not in dot
        assert "<edge" not in graphml
        assert json.loads(call("graph", model, "--show", level, "--format", "json").stdout)["untested"] == told


def test_the_page_says_why(one_column):
    pytest.importorskip("matplotlib")
    folder, *_ = one_column
    call("report", folder / "m.npz", "-o", folder / "page.html")
    page = (folder / "page.html").read_text()
    assert WHY.format("") in page
    assert "Strongest:" not in page
    assert "Strongest partial correlations" not in page
    assert "Related pairs" not in page


@pytest.mark.filterwarnings("ignore:.* of the rows have the value")
@pytest.mark.skipif(not os.environ.get("MSSL_DATA"), reason="MSSL_DATA is not set")
@pytest.mark.parametrize(
    ("name", "task", "target", "columns"),
    [
        ("sleepstudy", "Subject", "Reaction", ["Days"]),
        ("oxboys", "Subject", "height", ["age"]),
        ("radon", "county", "log_radon", ["floor", "log_uranium"]),
        ("exam", "school", "normexam", ["standLRT"]),
    ],
)
def test_textbook_data_with_one_column_show_no_relation(name, task, target, columns):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(DATA / f"{name}.csv", dtype={task: str})
    for model in (BayesianMSSLRegressor("mean", features="linear", calibrate=False), MSSLRegressor(**QUICK)):
        model.fit(frame[columns], frame[target], tasks=frame[task])
        table = model.graph_.relations(1.0)
        assert not len(table)
        assert str(model.summary()).count(repr(table)) == 1
        assert repr(table) == "the weights of 1 " + WHY.format("")


def test_relations_that_are_there_are_still_found():
    data = make_clustered_tasks(random_state=0)
    assert len(MSSLRegressor(**QUICK).fit(data.X, data.y, tasks=data.tasks).graph_.relations()) >= 10
    random = np.random.default_rng(0)
    E = random.standard_normal((200, 6)) * np.sqrt(0.4) + random.standard_normal((200, 1)) * np.sqrt(0.6)
    x = random.standard_normal((200, 1))
    model = MSSLRegressor(relation="residual", coef_penalty=0.01).fit(x, x * random.standard_normal(6) + E)
    assert len(model.graph_.relations()) == 15


def test_the_overall_test_is_kept_and_printed_first_where_it_does_not_support_the_list(tmp_path):
    data = make_clustered_tasks(n_tasks=6, clusters=[[0, 1, 2]], n_features=40, random_state=0)
    model = MSSLRegressor(**QUICK).fit(data.X, data.y, tasks=data.tasks)
    assert "overall test" not in repr(model.graph_.relations())
    told = "overall test: p = 0.05 by 19 permutations"
    again = mssl.load(mssl.save(model, tmp_path / "m.npz"))
    for one in (again, model):
        assert told in str(one.summary())
        assert told in display(one.graph_).notes[0]
        assert told in repr(one.graph_.relations())
    assert model.graph_.global_test(19).p == model.graph_.relations().overall == 0.05
    r = np.full((5, 5), 0.9) + 0.1 * np.eye(5)
    evidence = GraphEvidence(r, np.full((5, 5), 30.0), np.ones(5), overall=0.45)
    graph = mssl.TaskGraph.from_precision(np.linalg.inv(r), evidence=evidence)
    first = "the overall test does not support this list (p = 0.45 by 19 permutations): 10 relations among 10 pairs"
    assert repr(graph.relations()).startswith(first)
    assert display(graph).notes[0].startswith(first)
    assert len(display(graph).strongest) == 0


def test_strongest_edges_are_those_that_something_supports():
    data = make_clustered_tasks(n_tasks=6, clusters=[[0, 1, 2]], n_features=60, n_samples=200, random_state=0)
    graph = MultiTaskGLM(TaskCovariance()).fit(data.X, data.y, tasks=data.tasks).graph_
    shown = display(graph)
    certain = {frozenset(pair) for pair in graph.edges(fdr=0.1).pairs}
    assert graph.n_edges == 15 > len(certain) > 0
    assert {frozenset(edge[:2]) for edge in shown.strongest} == certain
    assert len(display(graph.subgraph(list(graph.tasks)[3:])).strongest) == 0


def test_long_tests_are_not_made_unasked(monkeypatch):
    random = np.random.default_rng(0)
    values = random.standard_normal((3, 60)) + random.standard_normal(60)
    drawn = []

    class Counted(Residuals):
        def permuted(self, random):
            drawn.append(1)
            return super().permuted(random)

    monkeypatch.setattr(inference, "_MOST_UNASKED", 1.0)
    lazy = LazyEvidence(Counted(values, 0.0))
    lazy.test_overall()
    assert lazy.resolve().overall is None
    monkeypatch.undo()
    lazy.test_overall()
    lazy.test_overall()
    assert len(drawn) == 19
    assert lazy.resolve().overall == lazy.global_test(19).p <= 0.1


def test_large_jobs_print_no_edges_without_evidence():
    """Beyond the tasks whose pairs are compared nothing is known of edges."""
    graph = mssl.TaskGraph.from_edges([("a", "b", 0.9), ("b", "c", 0.8)])
    schema = SimpleNamespace(task="t", target="y", missing="error", feature_names=["x"])
    counts = np.array([3, 3, 3])
    training = SimpleNamespace(schema=schema, family="gaussian", n_rows=9, dropped=0, counts=counts, varies=False)
    fitted = Fitted(Input(), Gaussian(), None, np.zeros(3), graph=graph)
    model = SimpleNamespace(fitted_=fitted, tasks_=np.array(list("abc")))
    found = summarise(model, training, "mtrl", {}, 0.0)
    assert found["edges"] is None
    assert found["strongest_edges"] == []
