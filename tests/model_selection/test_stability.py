"""Stability selection: frequencies are frequencies, halves are halves, known graphs are found."""

import warnings
from time import process_time

import numpy as np
import pytest

from mssl import MSSLClassifier, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM, StabilitySelection
from mssl.datasets import make_clustered_tasks, make_residual_graph
from mssl.exceptions import ParameterError
from mssl.glasso.solver import graphical_lasso
from mssl.model_selection.stability import _warn_lost_classes, pack, unpack
from mssl.structures import SparsePrecision


@pytest.fixture(scope="module")
def selection():
    data = make_clustered_tasks(random_state=0)
    return data, StabilitySelection(n_subsamples=30, n_points=8, random_state=0).fit(data.X, data.y, tasks=data.tasks)


def test_frequencies_are_shares_of_the_subsamples(selection):
    _, found = selection
    F = found.frequencies_
    assert F.shape == (8, 13, 13)
    np.testing.assert_allclose(F * 30, np.round(F * 30), atol=1e-9)
    np.testing.assert_array_equal(F, F.swapaxes(1, 2))
    assert np.all(F[:, np.eye(13, dtype=bool)] == 0)
    assert np.all(np.diff(found.lambdas_) < 0)
    assert found.lambdas_[-1] / found.lambdas_[0] == pytest.approx(0.3 / 0.9)
    np.testing.assert_allclose(found.mean_frequency_, F.mean(axis=0))
    np.testing.assert_allclose(found.graph_.confidence, F.max(axis=0))
    np.testing.assert_array_equal(found.graph_.adjacency, F.max(axis=0) >= 0.9 - 1e-12)


@pytest.mark.parametrize(("threshold", "n_points"), [(0.9, 8), (0.6, 3), (1.0, 1)])
def test_bound_of_false_edges_is_the_published_one(monkeypatch, threshold, n_points):
    """Meinshausen and Bühlmann (2010), Theorem 1: q²/((2π − 1) p), q the mean number of edges found along the path."""
    supports = []

    def unpacked(word, *sizes):
        supports.append(unpack(word, *sizes))
        return supports[-1]

    monkeypatch.setattr("mssl.model_selection.stability.unpack", unpacked)
    data = make_clustered_tasks(n_features=12, random_state=0)
    found = StabilitySelection(n_subsamples=10, n_points=n_points, threshold=threshold, random_state=0)
    found.fit(data.X, data.y, tasks=data.tasks)
    pairs = [(i, j) for i in range(13) for j in range(i + 1, 13)]
    q = np.mean([sum(any(graph[k] for graph in path) for k in range(len(pairs))) for path in supports])
    assert q > 1
    i, j = np.transpose(pairs)
    np.testing.assert_allclose(found.frequencies_[:, i, j], np.mean(supports, axis=0))
    np.testing.assert_array_equal(found.frequencies_, found.frequencies_.swapaxes(1, 2))
    assert found.n_selected_ == pytest.approx(q)
    assert found.expected_false_edges_ == pytest.approx(q**2 / ((2 * threshold - 1) * len(pairs)))


def test_fewer_edges_are_false_than_the_bound_says():
    """Tasks that have nothing to do with each other: every edge is false."""
    false, bounds = [], []
    for seed in range(12):
        random = np.random.default_rng(seed)
        X, W = random.standard_normal((80, 20)), random.standard_normal((8, 20))
        y = X @ W.T + 0.1 * random.standard_normal((80, 8))
        found = StabilitySelection(n_subsamples=20, threshold=0.7, path=(0.6, 0.9), n_points=4, random_state=seed)
        found.fit(X, y)
        false.append(found.graph_.n_edges)
        bounds.append(found.expected_false_edges_)
    assert 0 < np.mean(false) <= np.mean(bounds) < 28 / 2  # and the bound says something: there are 28 pairs


def test_weights_are_those_of_the_model_with_the_stable_edges_only(selection):
    _, found = selection
    graph = found.graph_
    assert np.all(graph.weights[~graph.adjacency] == 0)
    assert np.all(graph.weights[graph.adjacency] != 0)


def test_frequencies_by_hand():
    data = make_clustered_tasks(n_features=10, random_state=1)
    chooser = StabilitySelection(n_subsamples=5, n_points=3, complementary_pairs=False, random_state=7)
    found = chooser.fit(data.X, data.y, tasks=data.tasks)
    model = MSSLRegressor(0.05, shared_mean=False).fit(data.X, data.y, tasks=data.tasks)
    W, floors = model.result_.W, model.result_.scale.sampling_variances / 8
    random = np.random.default_rng(7)
    counts = np.zeros((3, 13, 13))
    for _ in range(5):
        rows = np.sort(random.permutation(10)[:5])
        S = W[:, rows] @ W[:, rows].T / 5
        spread = np.sqrt(np.diagonal(S) + floors)
        for point, value in enumerate(found.lambdas_):
            precision = graphical_lasso(
                S, value, weights=np.outer(spread, spread), diagonal_penalty=floors, tol=1e-4
            ).precision
            counts[point] += (precision != 0) & ~np.eye(13, dtype=bool)
    np.testing.assert_allclose(found.frequencies_, counts / 5, atol=0.2 + 1e-9)
    assert np.mean(np.abs(found.frequencies_ - counts / 5)) < 0.01


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(("n", "block"), [(30, 1), (31, 1), (40, 5)])
def test_halves(pairs, n, block):
    chooser = StabilitySelection(n_subsamples=6, complementary_pairs=pairs)
    halves = [np.flatnonzero(half) for half in chooser._halves(n, np.random.default_rng(0), block)]
    assert len(halves) == 6
    for half in halves:
        assert len(set(half.tolist())) == len(half)
        assert abs(len(half) - n / 2) <= block
    if block > 1:
        assert all(
            {i // block for i in half.tolist()} == {i // block for i in half[::block].tolist()} for half in halves
        )
    if pairs:
        for first, second in zip(halves[::2], halves[1::2], strict=True):
            assert not set(first.tolist()) & set(second.tolist())


@pytest.mark.parametrize("pairs", [False, True])
def test_halves_do_not_look_at_labels(pairs):
    data = make_clustered_tasks(
        n_tasks=3, clusters=[[0, 1]], n_samples=[10, 20, 31], shared_design=False, random_state=0
    )
    read = MSSLRegressor()._read(data.X, data.y, data.tasks, None)
    chooser = StabilitySelection(n_subsamples=4, complementary_pairs=pairs)
    draws = [
        chooser._half_samples(read, labels, np.random.default_rng(0))
        for labels in (None, np.arange(61) % 2, np.random.default_rng(1).permutation(np.arange(61) % 2))
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_array_equal(draws[0], draws[2])
    for mask in draws[0]:
        sizes = np.bincount(read.task_of_row[mask])
        assert sizes.tolist() == [5, 10, 15 if pairs else 16]


@pytest.mark.parametrize("pairs", [False, True])
def test_halves_have_both_classes_over_all_tasks(pairs):
    read = MSSLRegressor()._read(np.ones((40, 2)), np.zeros(40), np.repeat([0, 1], 20), None)
    labels = np.zeros(40, dtype=int)
    labels[[3, 25]] = 1
    chooser = StabilitySelection(n_subsamples=30, complementary_pairs=pairs)
    for mask in chooser._half_samples(read, labels, np.random.default_rng(0)):
        assert set(labels[mask]) == {0, 1}
        assert np.bincount(read.task_of_row[mask]).tolist() == [10, 10]


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("layout", ["long", "shared"])
@pytest.mark.parametrize("n", [7, 25, 30])
def test_complementary_pairs_of_samples_do_not_overlap(labelled, layout, n):
    random = np.random.default_rng(n)
    K = 3
    y = (random.random((n, K)) < 0.4).astype(float)
    X = random.standard_normal((n, 2))
    long = (np.tile(X, (K, 1)), y.T.ravel(), np.repeat(np.arange(K), n))
    read = MSSLRegressor()._read(*(long if layout == "long" else (X, y, None)), None)
    labels = read.y.astype(int) if labelled else None
    chooser = StabilitySelection(n_subsamples=7, complementary_pairs=True)
    masks = chooser._half_samples(read, labels, np.random.default_rng(0))
    assert len(masks) == 7
    for first, second in zip(masks[:-1:2], masks[1::2], strict=True):
        assert not np.any(first & second)
        for task in range(K):
            sizes = [mask[read.task_of_row == task].sum() for mask in (first, second)]
            assert sizes == [n // 2, n // 2]


def test_pairs_of_a_task_with_one_row_are_refused():
    read = MSSLRegressor()._read(np.ones((4, 2)), np.arange(4.0), np.array(["a", "a", "a", "b"]), None)
    with pytest.raises(ParameterError, match="'b' has 1 row"):
        StabilitySelection(complementary_pairs=True)._half_samples(read, None, np.random.default_rng(0))


@pytest.mark.parametrize("pairs", [False, True])
def test_halves_of_shared_rows_have_both_classes(pairs):
    random = np.random.default_rng(1)
    for n_tasks, rare in ((2, 4), (6, 4), (6, 2)):
        labels = np.zeros((40, n_tasks), dtype=int)
        labels[:rare, random.integers(n_tasks)] = 1
        read = MSSLRegressor()._read(np.ones((40, 2)), labels.astype(float), None, None)
        chooser = StabilitySelection(n_subsamples=50, complementary_pairs=pairs)
        for mask in chooser._half_samples(read, read.y.astype(int), np.random.default_rng(0)):
            rows = mask[:40]
            np.testing.assert_array_equal(mask, np.tile(rows, n_tasks))
            assert abs(rows.sum() - 20) <= 1
            assert 0 < labels[rows].sum() < rare


def test_halves_without_a_class_are_told_of():
    labels = np.zeros((20, 2), dtype=int)
    labels[3, 0] = 1
    read = MSSLRegressor()._read(np.ones((20, 2)), labels.astype(float), None, None)
    chooser = StabilitySelection(n_subsamples=10, complementary_pairs=True)
    masks = chooser._half_samples(read, read.y.astype(int), np.random.default_rng(0))
    without = sum(not mask[3] for mask in masks)
    assert without >= 5
    with pytest.warns(UserWarning, match=f"{without} of 10 subsamples .* one class only; the rarer class has 1 rows"):
        _warn_lost_classes(masks, read.y.astype(int))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_lost_classes([np.ones(40, dtype=bool)], read.y.astype(int))


def test_samples_of_a_general_estimator_follow_its_own_penalty():
    data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], n_features=4, n_samples=60, random_state=0)
    settings = {"subsample": "samples", "n_subsamples": 4, "n_points": 4, "random_state": 0}
    graphs = []
    for estimator in (MultiTaskGLM(SparsePrecision(0.05)), MSSLRegressor(0.05, shared_mean=False)):
        found = StabilitySelection(estimator, **settings).fit(data.X, data.y, tasks=data.tasks)
        graphs.append(found.frequencies_)
    np.testing.assert_array_equal(graphs[0], graphs[1])


def test_words_of_bits_come_back():
    random = np.random.default_rng(0)
    supports = random.random((4, 3, 6, 6)) < 0.4
    upper = np.triu_indices(6, 1)
    for path in supports:
        np.testing.assert_array_equal(unpack(pack(path.astype(float)), 3, 6), path[:, *upper])


def test_samples_refit_and_warn_where_halves_are_small():
    data = make_clustered_tasks(n_tasks=5, clusters=[[0, 1, 2]], n_features=5, n_samples=60, random_state=0)
    chooser = StabilitySelection(subsample="samples", n_subsamples=6, n_points=4, random_state=0)
    found = chooser.fit(data.X, data.y, tasks=data.tasks)
    assert found.graph_.compare(data.adjacency).f1 > 0.6
    small = make_clustered_tasks(n_tasks=5, clusters=[[0, 1, 2]], n_features=5, n_samples=12, random_state=0)
    with pytest.warns(UserWarning, match="6 in the smallest task, for 5 features"):
        chooser.set_params(n_subsamples=2, n_points=2).fit(small.X, small.y, tasks=small.tasks)


def test_other_estimators():
    aligned = make_residual_graph(n_tasks=6, clusters=[[0, 1, 2]], n_features=3, n_samples=200, random_state=0)
    chooser = StabilitySelection(MSSLRegressor(0.05, relation="residual"), n_subsamples=20, random_state=0)
    assert chooser.fit(aligned.X, aligned.y).graph_.compare(aligned.adjacency).f1 > 0.8
    labels = make_clustered_tasks(family="binary", n_tasks=4, clusters=[[0, 1]], n_features=6, random_state=0)
    chooser = StabilitySelection(MSSLClassifier(0.05, shared_mean=False), n_subsamples=10, random_state=0)
    assert chooser.fit(labels.X, labels.y, tasks=labels.tasks).graph_.tasks == tuple(np.unique(labels.tasks).tolist())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"subsample": "rows"}, "'features', 'samples'"),
        ({"threshold": 0.5}, "above 0.5"),
        ({"n_subsamples": 1}, "≥ 2"),
        ({"n_points": 0}, "whole number ≥ 1"),
        ({"path": (0.5, 0.1)}, "weakest"),
        ({"checkpoint": "x"}, "give a seed"),
        ({"threshold": "a"}, "above 0.5"),
        ({"path": 0.3}, "weakest"),
        ({"path": ("a", "b")}, "weakest"),
        ({"block_length": 0}, "block_length is 0"),
        ({"block_length": -1}, "block_length is -1"),
        ({"block_length": 1.5}, "block_length is 1.5"),
        ({"random_state": "a"}, "random_state is 'a'"),
        ({"estimator": "mssl"}, "give an MSSLRegressor"),
        ({"estimator": MSSLRegressorCV()}, "give an MSSLRegressor"),
        ({"estimator": MultiTaskGLM()}, "needs a learned graph"),
    ],
)
def test_bad_parameters_are_named(settings, words):
    data = make_clustered_tasks(n_features=6, n_samples=12, random_state=0)
    with pytest.raises(ParameterError, match=words):
        StabilitySelection(**settings).fit(data.X, data.y, tasks=data.tasks)


def test_too_few_rows_to_halve():
    data = make_clustered_tasks(n_features=3, n_samples=12, random_state=0)
    with pytest.raises(ParameterError, match="at least 4 features"):
        StabilitySelection().fit(data.X, data.y, tasks=data.tasks)


@pytest.mark.parametrize("kind", ["centres", "equicorrelated"])
def test_finds_known_graphs_with_defaults(kind):
    scores = []
    began = process_time()
    for seed in range(20):
        data = make_clustered_tasks(kind, random_state=seed)
        found = StabilitySelection(random_state=0).fit(data.X, data.y, tasks=data.tasks)
        scores.append(found.graph_.compare(data.adjacency).f1)
    assert np.mean(scores) >= 0.90
    assert (process_time() - began) / 20 < 5


def test_path_is_absolute_so_that_unrelated_tasks_may_have_no_edge():
    data = make_clustered_tasks(n_features=100, n_samples=200, clusters=[], random_state=0)
    found = StabilitySelection(n_subsamples=20, random_state=0).fit(data.X, data.y, tasks=data.tasks)
    np.testing.assert_allclose(found.lambdas_[[0, -1]], [0.9, 0.3])
    assert found.graph_.n_edges == 0
    assert found.graph_.relations().level == "relations"


def test_ranks_are_honoured():
    data = make_clustered_tasks(n_features=20, random_state=1)
    found = {
        correlation: StabilitySelection(
            MSSLRegressor(SparsePrecision(0.05, correlation=correlation), shared_mean=False),
            n_subsamples=10,
            random_state=0,
        ).fit(data.X, data.y, tasks=data.tasks)
        for correlation in ("pearson", "kendall")
    }
    assert np.any(found["pearson"].frequencies_ != found["kendall"].frequencies_)
    assert found["kendall"].graph_.compare(data.adjacency).f1 > 0.6


def test_scikit_learn_checks():
    from sklearn.utils.estimator_checks import check_estimator

    check_estimator(StabilitySelection(n_subsamples=4, n_points=3, random_state=0), on_skip=None)


def test_one_task_has_no_edges():
    data = make_clustered_tasks(n_tasks=1, clusters=[], random_state=0)
    found = StabilitySelection(n_subsamples=4).fit(data.X, data.y, tasks=data.tasks)
    assert found.graph_.n_edges == 0
    assert found.expected_false_edges_ == 0


def test_every_table_of_stable_edges_says_how_many_may_be_false():
    data = make_clustered_tasks(n_features=10, n_samples=20, random_state=0)
    chosen = StabilitySelection(n_subsamples=6, random_state=0).fit(data.X, data.y, tasks=data.tasks)
    words = f"at most {chosen.expected_false_edges_:.2g} edges of the graph are expected to be false"
    assert chosen.graph_.n_edges
    for graph in (chosen.graph_, chosen.graph_.threshold(min_weight=0.01), chosen.graph_.subgraph(chosen.tasks_)):
        table = graph.support()
        assert words in repr(table)
        assert words in table._repr_html_()
        assert words in repr(table[:1])


@pytest.mark.parametrize(("threshold", "weakest"), [(0.9, 0.6), (0.55, 0.05)])
def test_edges_that_may_all_be_chance_are_told(threshold, weakest, caplog):
    data = make_clustered_tasks(n_features=50, n_samples=20, random_state=0)
    selection = StabilitySelection(n_subsamples=6, threshold=threshold, path=(weakest, 0.9), random_state=0)
    with caplog.at_level("WARNING", logger="mssl"):
        found = selection.fit(data.X, data.y, tasks=data.tasks)
    edges, bound = found.graph_.n_edges, found.expected_false_edges_
    assert edges
    assert (bound >= edges) == (threshold < 0.9)
    assert ("may all be chance" in caplog.text) == (bound >= edges)
    assert ("may all be chance" in repr(found.graph_.support())) == (bound >= edges)
