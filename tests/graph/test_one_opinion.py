"""Every printer calls an edge what was tested; what a penalised precision joins is its support."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from command_line import call

import mssl
from mssl import BayesianMSSLRegressor, MSSLRegressor, MultiTaskGLM
from mssl.datasets import make_clustered_tasks
from mssl.graph.geometry import display
from mssl.report.content import Content
from mssl.structures import TaskCovariance


@pytest.fixture(scope="module")
def data():
    return make_clustered_tasks("chain", n_tasks=5, clusters=[[0, 1, 2]], n_features=60, n_samples=200, random_state=0)


@pytest.fixture(scope="module", params=["p-mssl", "covariance", "bayesian"])
def model(request, data):
    made = {
        "p-mssl": MSSLRegressor(graph_penalty=0.01),
        "covariance": MultiTaskGLM(TaskCovariance()),
        "bayesian": BayesianMSSLRegressor("mean", features="linear", calibrate=False),
    }[request.param]
    return made.fit(data.X, data.y, tasks=data.tasks)


@pytest.fixture(scope="module")
def tested(model):
    """The edges, fewer than the support of a penalised fit."""
    pairs = {frozenset(pair) for pair in model.graph_.edges(fdr=0.1).pairs}
    assert 0 < len(pairs) < 10
    assert not model.graph_.n_edges if isinstance(model, BayesianMSSLRegressor) else model.graph_.n_edges > len(pairs)
    return pairs


def pairs_of(rows):
    return {frozenset(row[:2]) for row in rows}


def test_pictures_mark_the_tested_edges(model, tested):
    shown = display(model.graph_)
    names = np.array(shown.graph.tasks)
    assert pairs_of(names[np.argwhere(np.triu(shown.certain))].tolist()) == tested
    assert pairs_of(shown.strongest) == pairs_of(shown.edges) == tested
    assert shown.graph.n_edges == len(tested | pairs_of(model.graph_.support()))


def test_pages_name_tested_edges(model, tested):
    content = Content(model)
    assert pairs_of(content.strongest(10)) == tested
    rest = content.graph.n_edges - len(tested)
    assert content.joined.startswith(f"{len(tested)} edge")
    assert (f"{rest} candidate" in content.joined) == (rest > 0)


def test_commands_write_tested_edges(model, tested, tmp_path):
    path = tmp_path / "m.npz"
    mssl.save(model, path)
    rows = list(csv.reader(io.StringIO(call("graph", path, "--show", "edges").stdout)))
    assert pairs_of(rows[1:]) == tested
    graph = mssl.TaskGraph.from_json(call("graph", path, "--show", "edges", "--format", "json").stdout)
    assert pairs_of(graph.support()) == tested
    rows = list(csv.reader(io.StringIO(call("graph", path).stdout)))
    assert pairs_of(row for row in rows[1:] if len(row) > 1) == pairs_of(model.graph_.support())
    assert f"support {model.graph_.n_edges} pairs" in " ".join(call("inspect", path).output.split())


@pytest.mark.parametrize("method", ["mtrl", "bayesian"])
def test_fits_print_tested_edges(data, method, tmp_path):
    with (tmp_path / "data.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["task", *data.feature_names, "y"])
        writer.writerows([t, *x, y] for t, x, y in zip(data.tasks, data.X.tolist(), data.y.tolist(), strict=True))
    options = ("--set", "prior=mean", "--set", "features=linear") if method == "bayesian" else ()
    args = ("fit", tmp_path / "data.csv", "--task", "task", "--target", "y", "--method", method, *options)
    found = json.loads(call(*args, "--json", "--save", tmp_path / "m.npz").stdout)
    edges = mssl.load(tmp_path / "m.npz").graph_.edges(fdr=0.1)
    assert found["edges"] == len(edges) == len(found["strongest_edges"]) > 0
    assert [edge["q"] for edge in found["strongest_edges"]] == pytest.approx([edge.q for edge in edges])
    assert found["support"] == (None if method == "bayesian" else 10)
    told = " ".join(call(*args).output.split())
    assert f"edges {len(edges)} of 10 pairs, tested" in told
    assert ("support 10 of 10 pairs" in told) == (method == "mtrl")


def test_a_representation_speaks_of_support(model):
    assert f"support of {model.graph_.n_edges} pairs" in repr(model.graph_)


def test_the_old_spelling_answers_for_one_release(model, tmp_path):
    graph = model.graph_
    for top in (None, 2):
        with pytest.warns(FutureWarning, match=r"now support\(\)"):
            assert graph.edges(top) == graph.support(top)
    path = tmp_path / "m.npz"
    mssl.save(model, path)
    for old, new in (("fitted", "support"), ("relations", "relations"), ("edges", "edges")):
        with pytest.warns(FutureWarning, match=f"now --show {new}"):
            answer = call("graph", path, "--level", old)
        assert answer.stdout == call("graph", path, "--show", new).stdout


def test_the_precision_of_a_mixture_is_the_inverse_of_its_covariance(data):
    model = BayesianMSSLRegressor(features="linear").fit(data.X, data.y, tasks=data.tasks)
    for name in ("one more", "and one"):
        K = len(model.tasks_)
        np.testing.assert_allclose(model.precision_ @ model.task_covariance_, np.eye(K), atol=1e-9)
        root = np.sqrt(np.diagonal(model.precision_))
        expected = np.where(np.eye(K), 1.0, -model.precision_ / np.outer(root, root))
        np.testing.assert_allclose(model.partial_correlation_, expected, atol=1e-12)
        assert len(model.graph_.support()) == 0
        model.adapt(data.X[:5], data.y[:5], task=name)
