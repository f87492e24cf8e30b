"""Laws of the task graph: symmetry, invariances, round trips, and brute-force counterparts."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mssl.exceptions import DataError, DatasetError, ModelFileError, MSSLError, ParameterError
from mssl.graph.task_graph import EdgeTable, TaskGraph, partial_correlation, short_name

HOSTILE = [
    '<script>alert("x")</script>',
    "quote ' and \" and \\",
    "two\nlines\r\nthree",
    "Ümläut 日本語 مرحبا 👩‍🔬",
    "&amp; entity, comma; $x$",
    "control \x00\x1b[31m \u202e",
    "long " * 2000,
    "",
]
FEW = settings(deadline=None, max_examples=40)


@st.composite
def graphs(draw, max_tasks=9):
    K = draw(st.integers(1, max_tasks))
    cells = draw(hnp.arrays(np.float64, (K, K), elements=st.sampled_from([0.0, 0.0, 0.1, -0.25, 0.5, 0.9])))
    weights = np.triu(cells, 1) + np.triu(cells, 1).T
    confidence = np.abs(weights) if draw(st.booleans()) else None
    places = np.column_stack([np.linspace(-60, 60, K), np.linspace(-170, 350, K)]) if draw(st.booleans()) else None
    return TaskGraph(range(K), weights != 0, weights, confidence, places)


def hostile_graph():
    edges = [(HOSTILE[k], HOSTILE[k + 1], 0.5 - 0.1 * k) for k in range(len(HOSTILE) - 1)]
    return TaskGraph.from_edges(edges, HOSTILE)


def random_precision(K, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3 * K, K))
    return A.T @ A


def modularity(weights, labels):
    """Newman's definition, written as a double sum."""
    A = np.abs(weights)
    strength, total = A.sum(axis=1), A.sum()
    same = np.equal.outer(labels, labels)
    return float(((A - np.outer(strength, strength) / total) * same).sum() / total)


# Partial correlations


def test_partial_correlation_is_the_correlation_of_regression_residuals():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4))
    X -= X.mean(axis=0)
    rho = partial_correlation(np.linalg.inv(X.T @ X))
    others = X[:, 2:]
    residual = X[:, :2] - others @ np.linalg.lstsq(others, X[:, :2], rcond=None)[0]
    assert rho[0, 1] == pytest.approx(np.corrcoef(residual.T)[0, 1], abs=1e-10)
    assert (rho.diagonal() == 1).all()


def test_partial_correlation_ignores_the_scale_of_each_task():
    precision = random_precision(5)
    scale = np.diag([0.1, 1.0, 7.0, 30.0, 2.0])
    np.testing.assert_allclose(
        partial_correlation(scale @ precision @ scale), partial_correlation(precision), atol=1e-12
    )
    with np.errstate(all="raise"):
        np.testing.assert_allclose(
            partial_correlation(2.0**900 * precision), partial_correlation(precision), rtol=1e-12
        )


def test_from_precision_reads_the_pattern_of_a_sparse_matrix_and_obeys_tol():
    from scipy.sparse import csr_array

    precision = np.array([[2.0, -1.0, 0.02], [-1.0, 2.0, 0.0], [0.02, 0.0, 2.0]])
    graph = TaskGraph.from_precision(csr_array(precision), tasks=["a", "b", "c"])
    assert [(e.task_i, e.task_j) for e in graph.support()] == [("a", "b"), ("a", "c")]
    assert graph.support()[0].weight == 0.5
    assert TaskGraph.from_precision(precision, tol=0.01).n_edges == 1
    assert not np.signbit(graph.weights[graph.weights == 0]).any()


# The object


def test_two_graphs_with_the_same_content_are_equal_and_frozen():
    first, second = (TaskGraph.from_edges([("a", "b", 0.3, 0.9)]) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != first.threshold(min_weight=0.5)
    assert first != "a"
    with pytest.raises(ValueError, match="read-only"):
        first.weights[0, 1] = 1.0
    with pytest.raises(AttributeError):
        first.tasks = ()


def test_weights_count_on_edges_only():
    full = np.ones((3, 3))
    adjacency = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    graph = TaskGraph(["x", "y", "z"], adjacency, full)
    assert graph.weights.sum() == 2
    assert graph.adjacency.dtype == bool


@FEW
@given(graphs())
def test_counts_agree(graph):
    assert graph.n_edges == len(graph.support()) == graph.degree().sum() / 2
    assert sum(map(len, graph.components())) == sum(map(len, graph.communities())) == len(graph)
    weights = [abs(edge.weight) for edge in graph.support()]
    assert weights == sorted(weights, reverse=True)
    for task in graph.tasks:
        assert len(graph.neighbors(task)) == graph.degree()[graph.index(task)]
        assert all(task in graph.neighbors(near) for near in graph.neighbors(task))


@FEW
@given(graphs(), st.randoms(use_true_random=False))
def test_renaming_by_permutation_changes_nothing_but_order(graph, random):
    names = list(graph.tasks)
    random.shuffle(names)
    moved = graph.subgraph(names)
    assert moved.subgraph(graph.tasks) == graph
    assert {frozenset(c) for c in moved.components()} == {frozenset(c) for c in graph.components()}
    assert moved.compare(graph).f1 == 1
    assert {frozenset(e[:2]): e.weight for e in moved.support()} == {
        frozenset(e[:2]): e.weight for e in graph.support()
    }


@FEW
@given(graphs())
def test_components_by_reachability(graph):
    reach = np.linalg.matrix_power(graph.adjacency + np.eye(len(graph)), len(graph)) > 0
    for i, j in combinations(range(len(graph)), 2):
        together = any({graph.tasks[i], graph.tasks[j]} <= set(c) for c in graph.components())
        assert together == reach[i, j]


# Communities


def test_communities_of_disjoint_cliques_are_the_cliques():
    sizes = [7, 5, 3, 2]
    names = [f"{c}{k}" for c, size in enumerate(sizes) for k in range(size)]
    edges = [pair for pair in combinations(names, 2) if pair[0][0] == pair[1][0]]
    graph = TaskGraph.from_edges(edges, [*names, "alone"])
    shuffled = graph.subgraph(np.random.default_rng(0).permutation(graph.tasks).tolist())
    for g in (graph, shuffled):
        assert {frozenset(c) for c in g.communities()} == {frozenset(c) for c in g.components()}
        assert [len(c) for c in g.communities()] == [7, 5, 3, 2, 1]


def test_communities_find_planted_blocks_joined_by_weak_edges():
    rng = np.random.default_rng(3)
    truth = np.repeat(np.arange(4), 15)
    strong = np.equal.outer(truth, truth) & (rng.random((60, 60)) < 0.5)
    weights = np.where(strong, 0.4, np.where(rng.random((60, 60)) < 0.05, 0.05, 0.0))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    labels = TaskGraph(range(60), weights != 0, weights).community_labels()
    assert (np.equal.outer(labels, labels) == np.equal.outer(truth, truth)).all()


@FEW
@given(graphs(max_tasks=6))
def test_communities_beat_the_trivial_partitions_and_stay_in_components(graph):
    if not graph.n_edges:
        assert len(graph.communities()) == len(graph)
        return
    labels = graph.community_labels()
    value = modularity(graph.weights, labels)
    assert value >= modularity(graph.weights, np.arange(len(graph))) - 1e-12
    assert value >= modularity(graph.weights, np.zeros(len(graph))) - 1e-12
    parts = graph.component_labels()
    assert all(len(set(parts[labels == label])) == 1 for label in set(labels))
    assert (graph.community_labels() == labels).all()


def test_finer_resolution_gives_more_communities():
    ring = TaskGraph.from_edges([(k, (k + 1) % 30) for k in range(30)])
    counts = [len(ring.communities(resolution)) for resolution in (0.1, 1.0, 10.0)]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]
    with pytest.raises(ParameterError, match="resolution is 0"):
        ring.communities(0)


# Thinning and comparing


def test_threshold_keeps_what_is_strong_and_sure():
    graph = TaskGraph.from_edges([("a", "b", 0.5, 0.4), ("b", "c", -0.3, 0.95), ("c", "d", 0.1, 1.0)])
    assert [e[:2] for e in graph.threshold(min_weight=0.3).support()] == [("a", "b"), ("b", "c")]
    assert [e[:2] for e in graph.threshold(0.2, 0.9).support()] == [("b", "c")]
    assert graph.threshold() == graph
    assert graph.threshold(0.1, 0.95).n_edges == 2
    with pytest.raises(ParameterError, match="StabilitySelection"):
        TaskGraph.from_edges([("a", "b")]).threshold(min_confidence=0.5)


@pytest.mark.parametrize("K", [4, 2100])  # dense and sparse matrices
def test_edges_below_the_threshold_lose_their_confidence(K):
    graph = TaskGraph.from_edges([(0, 1, 0.5, 0.4), (1, 2, -0.3, 0.95), (2, 3, 0.1, 1.0)], range(K))
    kept = graph.threshold(0.2)
    assert [edge.confidence for edge in kept.support()] == [0.4, 0.95]
    assert kept.confidence[2, 3] == 0
    assert kept.confidence.sum() == pytest.approx(2 * (0.4 + 0.95))


@FEW
@given(graphs(), st.integers(0, 2**32 - 1))
def test_compare_counts_as_by_hand(graph, seed):
    K = len(graph)
    truth = np.triu(np.random.default_rng(seed).random((K, K)) < 0.4, 1)
    mine = {(i, j) for i, j in combinations(range(K), 2) if graph.adjacency[i, j]}
    real = {(i, j) for i, j in combinations(range(K), 2) if truth[i, j]}
    result = graph.compare(truth | truth.T)
    assert result[:3] == (len(mine & real), len(real - mine), len(mine - real))
    assert result.precision == (len(mine & real) / len(mine) if mine else 1.0)
    assert result.recall == (len(mine & real) / len(real) if real else 1.0)
    if result.found:
        assert result.f1 == pytest.approx(2 / (1 / result.precision + 1 / result.recall))


# Exports


@FEW
@given(graphs())
def test_json_restores_the_graph_exactly(graph):
    assert TaskGraph.from_json(graph.to_json()) == graph


def test_hostile_names_survive_every_export(tmp_path):
    graph = hostile_graph()
    assert TaskGraph.from_json(graph.to_json()) == graph
    rows = list(csv.reader(io.StringIO(graph.to_csv(safe=False), newline="")))
    assert rows[0] == ["task_i", "task_j", "weight", "confidence"]
    assert {frozenset(row[:2]) for row in rows[1:]} == {frozenset(e[:2]) for e in graph.support()}
    root = ET.fromstring(graph.to_graphml())
    space = "{http://graphml.graphdrawing.org/xmlns}"
    names = [node.find(f"{space}data").text or "" for node in root.iter(f"{space}node")]
    for name, back in zip(HOSTILE, names, strict=True):
        assert back == "".join("\ufffd" if c in "\x00\x1b" else c for c in name)
    assert len(list(root.iter(f"{space}edge"))) == graph.n_edges


FORMULAS = ["=1+1", "+cmd", "-x", "\u2212y", "@SUM(1)", "  =2", "\x1b[31mred", "a\u202eb", "\x9b2J"]
HARMLESS = ["Oslo", "-5", "+3.5e2", "1", "a=b", "two\nlines", "tab\there", "caf\u00e9", ""]


def named(names):
    weights = np.full((len(names), len(names)), 0.5)
    return TaskGraph(tuple(names), ~np.eye(len(names), dtype=bool), weights - 0.5 * np.eye(len(names)))


def test_names_that_act_are_made_safe_in_csv_with_a_warning():
    for name in FORMULAS:
        with pytest.warns(UserWarning, match="formulas"):
            text = named([name, "Oslo"]).to_csv()
        cell = next(csv.reader(io.StringIO(text.split("\n", 1)[1])))[0]
        assert cell.isprintable()
        assert not cell.lstrip().startswith(("=", "+", "-", "\u2212", "@"))
        assert named([name, "Oslo"]).to_csv(safe=True) == text


def test_harmless_names_stay_as_they_are_in_csv():
    text = named(HARMLESS).to_csv()
    assert text == named(HARMLESS).to_csv(safe=True) == named(HARMLESS).to_csv(safe=False)
    assert {row[0] for row in csv.reader(io.StringIO(text, newline=""))} == {"task_i", *HARMLESS[:-1]}


def test_dot_keeps_each_name_inside_one_quoted_string():
    lines = hostile_graph().to_dot().split("\n")
    assert len(lines) == 1 + len(HOSTILE) + (len(HOSTILE) - 1) + 2
    for line, name in zip(lines[1:], HOSTILE, strict=False):
        body = line[line.index('"') + 1 : line.rindex('"')]
        assert body.replace("\u200d", "").isprintable()
        plain = (
            re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), body)
            .replace("&amp;", "&")
            .replace("\\\\", "\0")
            .replace('\\"', '"')
            .replace("\\n", "\n")
            .replace("\0", "\\")
        )
        assert plain == re.sub(r"[\x00-\x08\x0b-\x1f]", "\ufffd", name.replace("\r\n", "\n"))


def test_graphml_is_read_by_networkx():
    networkx = pytest.importorskip("networkx")
    graph = TaskGraph.from_edges([("a", "b", -0.5, 0.7), ("b", "c", 0.25, 1.0)], coordinates=[[1, 2], [3, 4], [5, 6]])
    read = networkx.parse_graphml(graph.to_graphml())
    assert read.edges["n0", "n1"] == {"weight": -0.5, "confidence": 0.7}
    assert read.nodes["n2"] == {"name": "c", "latitude": 5.0, "longitude": 6.0}
    direct = graph.to_networkx()
    assert direct.edges["a", "b"] == {"weight": -0.5, "confidence": 0.7}
    assert direct.nodes["c"] == {"latitude": 5.0, "longitude": 6.0}
    assert networkx.number_connected_components(direct) == len(graph.components())


@pytest.mark.filterwarnings("ignore:.*formulas")
@pytest.mark.parametrize("kind", ["csv", "json", "graphml", "dot"])
def test_files_hold_the_text_and_leave_nothing_beside(tmp_path, kind):
    graph, target = hostile_graph(), tmp_path / f"graph.{kind}"
    target.write_text("old")
    text = getattr(graph, f"to_{kind}")(target)
    assert target.read_bytes().decode("utf-8") == text == getattr(graph, f"to_{kind}")()
    assert list(tmp_path.iterdir()) == [target]
    if kind == "json":
        assert TaskGraph.from_json(target) == graph


def test_a_path_that_cannot_be_written_is_a_stated_error(tmp_path):
    with pytest.raises(DatasetError, match="folder that exists"):
        hostile_graph().to_csv(tmp_path / "missing" / "graph.csv", safe=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(DatasetError, match="cannot be written"):
        hostile_graph().to_json(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_names_that_are_tuples_and_numbers_return_as_such():
    graph = TaskGraph.from_edges([((1.5, "a"), np.int64(3)), (np.int64(3), None)])
    back = TaskGraph.from_json(graph.to_json())
    assert back == graph
    assert [type(name) for name in back.tasks] == [tuple, int, type(None)]
    with pytest.raises(DataError, match="frozenset"):
        TaskGraph.from_edges([(frozenset("a"), "b")]).to_json()


def damaged(**changes):
    return json.dumps({**json.loads(hostile_graph().to_json()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        "[" * 100_000,
        damaged(version=99),
        damaged(edges=[[0, 1]]),
        damaged(edges=[[0, 99, 0.5]]),
        damaged(edges=[[1, 0, 0.5]]),
        damaged(edges=[[-1, 0, 0.5]]),
        damaged(edges=[[0, 1, "x"]]),
        damaged(edges=[[0, 1, None]]),
        damaged(edges=[[False, True, 0.5]]),
        damaged(edges=[[0.5, 1, 0.5]]),
        damaged(tasks=["a", "a"]),
        damaged(tasks=[["a"]]),
        damaged(confidence=[[0, 1, 7.0]]),
        damaged(coordinates=[[0, 0]]),
        damaged(coordinates="here"),
    ],
)
def test_damaged_json_is_refused(text):
    with pytest.raises(ModelFileError):
        TaskGraph.from_json(text)


# Reading


def test_edge_table_is_a_sequence_that_prints_well():
    table = TaskGraph.from_edges([(k, k + 1, 1 / (k + 1), 0.5) for k in range(30)]).support()
    assert isinstance(table[:3], EdgeTable)
    assert len(table[:3]) == 3
    assert table[0] in table
    assert table == EdgeTable(list(table))
    assert hash(table) == hash(EdgeTable(list(table)))
    lines = repr(table).splitlines()
    assert len(lines) == 22
    assert lines[0].split() == ["task_i", "task_j", "weight", "confidence"]
    assert lines[-1] == "… 10 more"
    assert len(TaskGraph.from_edges([("a", "b"), ("b", "c")]).support(top=1)) == 1
    frame = pytest.importorskip("pandas") and table.to_frame()
    assert list(frame.columns) == ["task_i", "task_j", "weight", "confidence"]
    assert len(frame) == 30


def test_html_is_escaped_and_rich_takes_no_markup():
    from rich.console import Console

    graph = TaskGraph.from_edges(
        [("<script>alert(1)</script>", "[bold]x[/bold]", 0.5), ("<img src=x onerror=1>", "b", 0.1)]
    )
    for text in (graph._repr_html_(), graph.support()._repr_html_()):
        assert "<script" not in text
        assert "<img" not in text
        assert "&lt;script&gt;" in text
    assert "<svg" in graph._repr_html_()
    ET.fromstring(graph._repr_html_().replace("&nbsp;", ""))
    console = Console(file=io.StringIO(), width=120)
    console.print(graph)
    assert "[bold]x[/bold]" in console.file.getvalue()
    assert "TaskGraph(4 tasks, support of 2 pairs" in console.file.getvalue()


@given(st.text(max_size=60), st.integers(2, 30))
@settings(deadline=None, max_examples=100)
def test_short_names_fit_and_print(name, width):
    short = short_name(name, max(width, 7))
    assert 0 < len(short) <= max(width, 7)
    assert all(c.isprintable() or c == "\u200d" for c in short)
    if name.isprintable() and name.strip() and len(name) <= max(width, 7):
        assert short == name


def test_empty_and_single_graphs_are_graphs():
    for K in (0, 1):
        graph = TaskGraph(range(K), np.zeros((K, K)), np.zeros((K, K)))
        assert (graph.n_edges, graph.density(), len(graph.components()), len(graph.communities())) == (0, 0.0, K, K)
        assert graph.compare(np.zeros((K, K))).f1 == 1
        assert TaskGraph.from_json(graph.to_json()) == graph
        assert "<svg" in graph._repr_html_()
        assert len(graph.support()) == 0


@given(seed=st.integers(0, 10**6), shift=st.floats(-1.5, 1.5))
@FEW
def test_only_inverse_covariances_have_a_graph_and_its_weights_are_correlations(seed, shift):
    A = np.random.default_rng(seed).normal(size=(5, 5))
    matrix = A @ A.T + (1e-3 if shift > 0 else shift) * np.eye(5) * np.trace(A @ A.T) / 5
    scale = 1 / np.sqrt(np.abs(matrix.diagonal()))
    least = np.linalg.eigvalsh(matrix * np.outer(scale, scale))[0]
    if (matrix.diagonal() <= 0).any() or least < -2e-3:
        with pytest.raises(DataError, match=r"positive definite|indefinite"):
            TaskGraph.from_precision(matrix)
    elif least > 0:
        assert np.abs(TaskGraph.from_precision(matrix).weights).max() <= 1.0


def test_a_singular_precision_has_a_graph():
    laplacian = 3.0 * np.eye(3) - 1.0  # what smoothing over a graph has: its nullspace is the common mean
    np.testing.assert_allclose(TaskGraph.from_precision(laplacian).weights, 0.5 * (1 - np.eye(3)))
    twins = [[1.0, -1.0], [-1.0, 1.0]]
    for digits in (4, 8, 16):  # what is left of it when it was written with so many
        written = np.asarray(twins) * [[1.0, 1 + 0.4 / 10**digits], [1 + 0.4 / 10**digits, 1.0]]
        assert TaskGraph.from_precision(written).weights[0, 1] == 1.0


@given(graphs(), st.integers(0, 40))
@FEW
def test_the_top_edges_are_the_first_ones(graph, top):
    assert list(graph.support(top)) == list(graph.support())[:top]
    assert len(graph.support(np.int64(top))) == min(top, graph.n_edges)


# Bad input

EYE = np.eye(2)
NONE = np.zeros((2, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TaskGraph.from_precision([[1.0, 0.5], [0.1, 1.0]]), "not symmetric"),
        (lambda: TaskGraph.from_precision([[1.0, np.nan], [np.nan, 1.0]]), "NaN"),
        (lambda: TaskGraph.from_precision(np.ones((2, 3))), r"shape \(2, 3\)"),
        (lambda: TaskGraph.from_precision(1.0), r"shape \(\)"),
        (lambda: TaskGraph.from_precision([["a", "b"], ["c", "d"]]), "numbers"),
        (lambda: TaskGraph.from_precision([[1.0, 0.0], [0.0, -1.0]]), "diagonal"),
        (lambda: TaskGraph.from_precision(EYE, tasks=["a", "b", "c"]), "K = 3"),
        (lambda: TaskGraph.from_precision(EYE, tasks=["a", "a"]), "more than once"),
        (lambda: TaskGraph.from_precision(EYE, tasks="ab"), "one text"),
        (lambda: TaskGraph.from_precision(EYE, tasks=[[1], [2]]), "hashable"),
        (lambda: TaskGraph.from_precision(EYE, tasks=[float("nan"), 1]), "NaN"),
        (lambda: TaskGraph.from_precision(EYE, tol=-1), "tol is -1"),
        (lambda: TaskGraph.from_precision(EYE, confidence=2 * (1 - EYE)), "from 0 to 1"),
        (lambda: TaskGraph.from_precision(EYE, coordinates=[[0, 0]]), r"give \(2, 2\)"),
        (lambda: TaskGraph.from_precision(EYE, coordinates=[[0, 0], [200, 10]]), "latitude"),
        (lambda: TaskGraph.from_precision(EYE, coordinates=[[0, 0], [np.nan, 10]]), "latitude"),
        (lambda: TaskGraph(("a", "b"), EYE, NONE), "self-loops"),
        (lambda: TaskGraph(("a", "b"), [[0, 1], [0, 0]], NONE), "adjacency is not symmetric"),
        (lambda: TaskGraph(("a", "b"), 1 - EYE, [[0, 1], [2, 0]]), "weights is not symmetric"),
        (lambda: TaskGraph(("a", "b"), 1 - EYE, 2 * (1 - EYE)), "partial correlations"),
        (lambda: TaskGraph.from_edges([("a", "b", -1.5)]), "partial correlations"),
        (lambda: TaskGraph.from_precision([[1.0, 2.0], [2.0, 1.0]]), "indefinite"),
        *(
            (lambda top=top: TaskGraph.from_edges([("a", "b")]).support(top), "whole number")
            for top in (-1, 1.5, True, "1")
        ),
        (lambda: TaskGraph.from_edges([("a", "a")]), "with itself"),
        (lambda: TaskGraph.from_edges([("a", "b"), ("b", "a")]), "given twice"),
        (lambda: TaskGraph.from_edges([("a",)]), "give rows"),
        (lambda: TaskGraph.from_edges([("a", "z")], tasks=["a", "b"]), "No task is named 'z'"),
        (lambda: TaskGraph.from_edges([("a", "b", 1, 0.5), ("b", "c", 1)]), "for all or for none"),
        (lambda: TaskGraph.from_edges([("a", "b")]).neighbors("z"), "the tasks are: 'a', 'b'"),
        (lambda: TaskGraph.from_edges([("a", "b")]).neighbors(["a"]), "No task is named"),
        (lambda: TaskGraph.from_edges([("a", "b")]).subgraph(["a", "a"]), "more than once"),
        (lambda: TaskGraph.from_edges([("a", "b")]).threshold(-1), "min_weight is -1"),
        (lambda: TaskGraph.from_edges([("a", "b")]).compare(np.zeros((3, 3))), "K = 2"),
        (lambda: TaskGraph.from_edges([("a", "b")]).compare(TaskGraph.from_edges([("a", "c")])), "different tasks"),
    ],
)
def test_bad_input_is_a_stated_error(make, message):
    with pytest.raises(MSSLError, match=message):
        make()
