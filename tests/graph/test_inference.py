"""Laws of the error of graphs: exact distributions, reductions, invariances, null calibration, and what tables say."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import mssl
from mssl import MSSLClassifier, MSSLRegressor, MultiTaskGLM, TaskGraph
from mssl.datasets import make_clustered_tasks, make_residual_graph
from mssl.exceptions import DataError, ParameterError
from mssl.features import Linear
from mssl.graph import information
from mssl.graph.information import Occasions, _Statistics, _White, evidence_on_weights, partial_correlations
from mssl.graph.tests import (
    GraphEvidence,
    LazyEvidence,
    Residuals,
    adjusted_p,
    correlation_of,
    correlation_p,
)
from mssl.paper import PaperMSSL
from mssl.structures import SparsePrecision, TaskCovariance


def kept_of(X, y, tasks=None, shared_mean="auto", **parameters):
    model = MSSLRegressor(shared_mean=shared_mean, **parameters)
    data = model._read(X, y, tasks, None)
    return evidence_on_weights(model.to_spec(data).prepare(data), data, bool(shared_mean)).source


def weights_of(*data, **parameters):
    return kept_of(*data, **parameters).read()


def evidence_of(*data, **parameters):
    return weights_of(*data, **parameters).evidence()


def independent(seed, K=8, d=10, n=30, mean=0.0, rho=0.0, layout="shared"):
    random = np.random.default_rng(seed)
    W = random.standard_normal((K, d)) + mean * random.standard_normal(d)
    E = np.sqrt(1 - rho) * random.standard_normal((n, K)) + np.sqrt(rho) * random.standard_normal((n, 1))
    if layout == "shared":
        X = random.standard_normal((n, d))
        return X, X @ W.T + E
    X = random.standard_normal((n, K, d))
    return X, np.einsum("nkd,kd->nk", X, W) + E


def test_adjusted_p_values_reject_what_the_step_up_procedure_rejects():
    random = np.random.default_rng(0)
    p = np.concatenate([random.random(40) ** 4, [1.0, 0.0]])
    for rate in (0.01, 0.1, 0.3):
        order = np.sort(p)
        passed = np.flatnonzero(order <= rate * np.arange(1, len(p) + 1) / len(p))
        limit = order[passed[-1]] if len(passed) else -1.0
        np.testing.assert_array_equal(adjusted_p(p) <= rate, p <= limit)


def test_price_of_any_dependence_is_a_harmonic_sum():
    p = np.random.default_rng(0).random(30) ** 3
    price = np.sum(1 / np.arange(1, 31))
    np.testing.assert_allclose(adjusted_p(p, "by"), np.minimum(price * adjusted_p(p), 1.0))


def test_p_value_is_that_of_the_correlation_of_numbers_with_known_means():
    random = np.random.default_rng(1)
    x, y = random.standard_normal((2, 20000, 7))
    r = np.sum(x * y, axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    assert stats.kstest(correlation_p(r, np.full(len(r), 7.0)), "uniform").pvalue > 0.001
    back = correlation_of(correlation_p(r, np.full(len(r), 7.0)), np.sign(r), np.full(len(r), 7.0))
    np.testing.assert_allclose(back, r, atol=1e-9)


def test_p_values_of_weights_known_exactly_are_those_of_their_correlations():
    random = np.random.default_rng(2)
    W, X = random.standard_normal((5, 12)), random.standard_normal((400, 12))
    Y = X @ W.T + 1e-4 * random.standard_normal((400, 5))
    found = evidence_of(X, Y, shared_mean=False, features=Linear(scale=False))
    sizes = np.linalg.norm(W, axis=1)
    np.testing.assert_allclose(found.correlation, W @ W.T / np.outer(sizes, sizes), atol=0.05)
    np.testing.assert_allclose(found.reliability, 1.0, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "shared_mean"),
    [
        ({"d": 5, "n": 15}, False),
        ({"n": 8, "d": 12}, False),
        ({"mean": 2.0}, "auto"),
        ({"mean": 2.0, "n": 8, "d": 12}, "auto"),
        ({"rho": 0.8, "n": 30}, False),
        ({"rho": 0.8, "n": 40, "layout": "aligned", "mean": 1.0}, "auto"),
    ],
)
def test_independent_tasks_have_no_relation(options, shared_mean):
    draws = 60
    found = [evidence_of(*independent(seed, **options), shared_mean=shared_mean) for seed in range(draws)]
    for level in ("relations", "edges"):
        wrong = sum(len(evidence.table(range(8), level)) > 0 for evidence in found)
        # At a rate of 10 % more than 14 of 60 has a probability of 0.1 %.
        assert wrong <= 14
    p = np.concatenate([evidence._relations[3] for evidence in found])
    assert np.mean(p < 0.01) < 0.03


def test_errors_of_common_rows_are_taken_for_relations_without_the_whitening():
    def wrong(layout):
        found = 0
        for seed in range(15):
            random = np.random.default_rng(seed)
            X, E = (
                random.standard_normal((40, 20)),
                random.standard_normal((40, 8)) + 3 * random.standard_normal((40, 1)),
            )
            Y, tasks = 0.1 * X @ random.standard_normal((20, 8)) + E, None
            if layout == "long":
                X, Y, tasks = np.tile(X, (8, 1)), Y.T.ravel(), np.repeat(np.arange(8), 40)
            found += len(evidence_of(X, Y, tasks, shared_mean=False).table(range(8))) > 0
        return found

    assert wrong("shared") <= 5
    assert wrong("long") >= 10


def test_errors_of_common_rows_are_whitened_away_for_labels_too():
    def wrong(layout):
        found = 0
        for seed in range(12):
            random = np.random.default_rng(seed)
            X, common = random.standard_normal((150, 25)), random.standard_normal((150, 1))
            latent = 0.05 * X @ random.standard_normal((25, 6)) + 0.3 * random.standard_normal((150, 6)) + common
            y, tasks = latent > 0, None
            if layout == "long":
                X, y, tasks = np.tile(X, (6, 1)), y.T.ravel(), np.repeat(np.arange(6), 150)
            model = MSSLClassifier(shared_mean=False)
            data = model._read(X, y, tasks, None)
            prepared = model.to_spec(data).prepare(data)
            found += (
                len(evidence_on_weights(prepared, prepared.data, False).source.read().evidence().table(range(6))) > 0
            )
        return found

    assert wrong("shared") <= 4
    assert wrong("long") >= 9


def test_weighted_rows_count_as_copies():
    X, Y = independent(0, K=4, d=5, n=30, rho=0.8)
    copies = np.repeat(np.arange(30), 1 + np.arange(30) % 3)
    weighted = MSSLRegressor()._read(X, Y, None, 1.0 + np.arange(30) % 3)
    repeated = MSSLRegressor()._read(X[copies], Y[copies], None, None)
    kept = [Occasions.of(MSSLRegressor().to_spec(data).prepare(data)) for data in (weighted, repeated)]
    assert all(occasions.products for occasions in kept)
    for part in (slice(5), slice(5, None)):  # features, targets
        found, expected = (occasions.rows[part, part] for occasions in kept)
        np.testing.assert_allclose(found / np.trace(found), expected / np.trace(expected))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rows_of_occasions_have_the_moments_of_the_fit(fit_intercept):
    X, Y = independent(0, K=4, d=5, n=30, rho=0.8, layout="aligned")
    model = MSSLRegressor(fit_intercept=fit_intercept, features=Linear(scale=False))
    data = model._read(X + 1.0, Y + 2.0, None, None)
    prepared = model.to_spec(data).prepare(data)
    features, targets = Occasions.of(prepared).factors()
    for k, (A, z) in enumerate(zip(features.reshape(4, 5, -1), targets, strict=True)):
        own = X[:, k] + 1.0 - fit_intercept * (X[:, k] + 1.0).mean(axis=0)
        np.testing.assert_allclose(A @ A.T, own.T @ own, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(A @ z, own.T @ (Y[:, k] + 2.0) / prepared.unit, rtol=1e-9, atol=1e-9)


def test_unit_of_targets_order_and_sign_of_tasks_play_no_part():
    data = make_clustered_tasks(n_tasks=6, clusters=[[0, 1, 2]], layout="shared", random_state=0)
    base = evidence_of(data.X, data.y, shared_mean=False)
    factors = np.array([1.0, -2.0, 3.0, 0.1, -1.0, 5.0])
    scaled = evidence_of(data.X, data.y * factors, shared_mean=False)
    signs = np.sign(np.outer(factors, factors))
    np.testing.assert_allclose(scaled.correlation, signs * base.correlation, atol=1e-6)
    assert np.count_nonzero(base.partial_freedom) == 9
    np.testing.assert_allclose(scaled.partial, signs * base.partial, atol=1e-4)
    np.testing.assert_allclose(scaled.partial_freedom, base.partial_freedom, rtol=1e-3)
    order = [3, 1, 5, 0, 4, 2]
    other = evidence_of(data.X, data.y[:, order], shared_mean=False)
    np.testing.assert_allclose(other.correlation, base.correlation[np.ix_(order, order)], atol=1e-6)
    np.testing.assert_allclose(other.partial, base.partial[np.ix_(order, order)], atol=1e-4)


def test_clusters_are_found_with_few_false_pairs():
    share, found = [], []
    for seed in range(10):
        data = make_clustered_tasks("equicorrelated", random_state=100 + seed)
        graph = MSSLRegressor().fit(data.X, data.y, tasks=data.tasks).graph_
        truth = TaskGraph(tuple(data.task_names), data.adjacency, data.adjacency.astype(float))
        compared = graph.selected(0.1).compare(truth)
        share.append(compared.false / max(1, compared.false + compared.found))
        found.append(compared.f1)
    assert np.mean(share) < 0.15
    assert np.mean(found) > 0.85


def test_group_of_two_has_the_same_p_value_on_both_levels():
    r = np.array([[1.0, 0.8, 0.05], [0.8, 1.0, 0.1], [0.05, 0.1, 1.0]])
    evidence = GraphEvidence(r, np.full((3, 3), 25.0), np.ones(3))
    assert evidence.groups.tolist() == [0, 0, 1]
    assert evidence.table("abc", "edges")[0].p == pytest.approx(evidence.table("abc")[0].p)


def test_edges_without_estimation_error_are_the_t_tests_of_partial_correlations():
    random = np.random.default_rng(3)
    rows = random.standard_normal((4, 60)) + 2.0 * random.standard_normal(60)
    sizes = np.linalg.norm(rows, axis=1)
    evidence = GraphEvidence(rows @ rows.T / np.outer(sizes, sizes), np.full((4, 4), 60.0), np.ones(4))
    p = evidence.table(range(4), "edges", fdr=1.0)
    for row in p:
        others = [k for k in range(4) if k not in row[:2]]
        left = [rows[k] - rows[others].T @ np.linalg.lstsq(rows[others].T, rows[k], rcond=None)[0] for k in row[:2]]
        r = left[0] @ left[1] / np.linalg.norm(left[0]) / np.linalg.norm(left[1])
        assert row.weight == pytest.approx(r, abs=1e-6)
        assert row.p == pytest.approx(float(correlation_p(np.array(r), np.array(58.0))), rel=1e-4)


def test_error_of_weights_makes_edges_less_certain():
    r = np.full((4, 4), 0.6) + 0.4 * np.eye(4)
    sure = GraphEvidence(r, np.full((4, 4), 200.0), np.ones(4)).table(range(4), "edges", fdr=1.0)
    doubtful = GraphEvidence(r, np.full((4, 4), 200.0), np.full(4, 0.8)).table(range(4), "edges", fdr=1.0)
    assert all(row.p < other.p for row, other in zip(sure, doubtful, strict=True))


def test_estimation_error_is_taken_out_of_relations():
    """Estimates of reliability λ are correlated √(λλ') times as much as what they estimate."""
    r, reliability = np.full((3, 3), 0.4) + 0.6 * np.eye(3), np.array([0.5, 0.8, 1.0])
    tables = [
        GraphEvidence(r, np.full((3, 3), 30.0), given).table(range(3), fdr=1.0) for given in (reliability, np.ones(3))
    ]
    plain = {row[:2]: row for row in tables[1]}
    for row in tables[0]:
        root = np.sqrt(reliability[row.task_i] * reliability[row.task_j])
        other = plain[row[:2]]
        assert row.weight == pytest.approx(0.4 / root)
        assert (row.low, row.high) == pytest.approx((other.low / root, min(other.high / root, 1.0)))
        assert row.p == other.p


def test_autocorrelation_makes_residuals_count_less():
    random = np.random.default_rng(4)
    wrong = 0
    for _ in range(60):
        E = random.standard_normal((8, 250))
        for i in range(1, 250):
            E[:, i] = 0.8 * E[:, i - 1] + 0.6 * E[:, i]
        wrong += len(Residuals(E[:, 50:]).evidence().table(range(8))) > 0
    assert wrong <= 14
    white = Residuals(random.standard_normal((4, 500)), used=10)
    freedom = white.evidence().freedom
    np.testing.assert_allclose(freedom[0, 1], 490, rtol=0.05)
    np.testing.assert_allclose(freedom, 0.98 * white._replace(used=0.0).evidence().freedom)


def test_missing_residuals_are_left_out_pair_by_pair():
    random = np.random.default_rng(5)
    E = random.standard_normal((3, 100))
    gaps = E.copy()
    gaps[0, 50:] = np.nan
    found = Residuals(gaps).evidence()
    part = Residuals(E[:, :50]).evidence()
    assert found.correlation[0, 1] == pytest.approx(part.correlation[0, 1])
    assert found.correlation[1, 2] == pytest.approx(Residuals(E).evidence().correlation[1, 2])


def test_residual_graph_of_a_fit():
    data = make_residual_graph(n_features=5, n_samples=200, n_tasks=8, clusters=[[0, 1, 2]], random_state=0)
    with pytest.warns(UserWarning, match="only the graph"):
        graph = MSSLRegressor(relation="residual").fit(data.X, data.y).graph_
    assert {(0, 1), (0, 2), (1, 2)} <= set(graph.relations().pairs)
    assert graph.selected(0.1, "edges").n_edges >= 3


@pytest.mark.parametrize("model", [MSSLRegressor(), PaperMSSL(graph_penalty=2.0), MultiTaskGLM(TaskCovariance())])
def test_every_fit_has_evidence_that_files_and_pickles_keep(model, tmp_path):
    data = make_clustered_tasks(n_tasks=5, clusters=[[0, 1, 2]], n_features=12, random_state=0)
    model.fit(data.X, data.y, tasks=data.tasks)
    again = mssl.load(mssl.save(model, tmp_path / "model.npz")).graph_
    assert isinstance(again.evidence, GraphEvidence)
    for graph in (again, pickle.loads(pickle.dumps(model)).graph_):
        assert list(graph.relations(1.0)) == list(model.graph_.relations(1.0))
        assert list(graph.edges(fdr=1.0)) == list(model.graph_.edges(fdr=1.0))


def test_labels_are_related_too():
    data = make_clustered_tasks(
        family="binary", n_tasks=5, clusters=[[0, 1, 2]], n_features=15, n_samples=200, random_state=1
    )
    graph = MSSLClassifier().fit(data.X, data.y, tasks=data.tasks).graph_
    names = list(data.task_names)
    assert set(graph.relations().pairs) >= {(names[0], names[1]), (names[0], names[2])}


def test_tables_say_what_they_hold():
    r = np.eye(4)
    r[0, 1] = r[1, 0] = -0.9
    graph = TaskGraph.from_precision(np.eye(4), evidence=GraphEvidence(r, np.full((4, 4), 30.0), np.ones(4)))
    table = graph.relations()
    assert table.pairs == [(0, 1)]
    assert table[0].weight == pytest.approx(-0.9)
    assert table[0].low < -0.9 < table[0].high < 0
    assert table[0].sign_probability > 0.999
    assert "1 relation among 6 pairs" in repr(table)
    assert "-0.90" in repr(table)
    assert table.to_frame().shape == (1, 8)
    assert table.to_csv().count("\n") == 2
    assert graph.selected().weights[0, 1] == pytest.approx(-0.9)
    assert len(graph.relations(1.0)) == 6
    assert graph.subgraph([0, 2]).relations().summary() == ("no relation between tasks can be told from chance at 10%")
    with pytest.raises(DataError, match="holds no test statistics of the data"):
        TaskGraph.from_precision(np.eye(2)).relations()
    with pytest.raises(ParameterError, match="fdr is 0"):
        graph.relations(0.0)


def test_evidence_is_computed_once_and_when_asked():
    calls = []

    class Counted(Residuals):
        def evidence(self):
            calls.append(1)
            return super().evidence()

    source = Counted(np.random.default_rng(0).standard_normal((2, 30)), 0.0)
    graph = TaskGraph.from_precision(np.eye(2), evidence=LazyEvidence(source))
    assert not calls
    graph.relations(), graph.edges(fdr=0.1), graph.relations(0.5)
    assert calls == [1]


@pytest.mark.parametrize("options", [{"n": 200}, {"n": 200, "layout": "aligned"}])
def test_products_of_occasions_stand_for_them(options, monkeypatch):
    """Evidence on tasks with common rows is the same from the rows and from all their products."""
    X, Y = independent(0, K=4, d=5, rho=0.8, **options)
    data = MSSLRegressor()._read(X, Y, None, None)
    prepared = MSSLRegressor().to_spec(data).prepare(data)
    kept = evidence_on_weights(prepared, prepared.data).source
    monkeypatch.setattr(information, "_MOST_ROWS", 0)
    whole = evidence_on_weights(prepared, prepared.data).source
    assert kept.occasions.products > whole.occasions.products
    for found, rows in zip(kept.occasions.factors(), whole.occasions.factors(), strict=True):
        flat, given = found.reshape(-1, found.shape[-1]), rows.reshape(-1, rows.shape[-1])
        np.testing.assert_allclose(flat @ flat.T, given @ given.T, atol=1e-9 * np.trace(given @ given.T))
    found, expected = (source.read().evidence() for source in (kept, whole))
    np.testing.assert_allclose(found.correlation, expected.correlation, atol=1e-8)
    np.testing.assert_allclose(found.freedom, expected.freedom, rtol=1e-8)
    assert isinstance(kept.occasions, Occasions)


@pytest.mark.parametrize("layout", ["shared", "aligned"])
def test_upper_triangles_stand_for_grams(layout):
    model = MSSLRegressor()
    data = model._read(*independent(0, K=4, d=5, layout=layout), None, None)
    prepared = model.to_spec(data).prepare(data)
    kept = evidence_on_weights(prepared, prepared.data).source
    whole = replace(kept, base=SimpleNamespace(read=lambda: prepared.base))
    assert 5 * kept.base.upper.size == 3 * prepared.base.gram.size
    found, expected = (source.read().evidence() for source in (kept, whole))
    np.testing.assert_array_equal(found.correlation, expected.correlation)
    np.testing.assert_array_equal(found.freedom, expected.freedom)


@pytest.mark.parametrize("options", [{}, {"n": 8, "d": 12}, {"rho": 0.8}, {"rho": 0.8, "layout": "aligned", "n": 40}])
def test_white_scores_are_transformed_back(options):
    source = weights_of(*independent(0, **options), shared_mean=False)
    assert source.errors is not None or "rho" not in options
    white = source.white[0]
    again, spectra = white.recoloured(white.scores).spectra, source.spectra
    np.testing.assert_allclose(again.projections, spectra.projections, atol=1e-9)
    np.testing.assert_allclose(again.target_squares, spectra.target_squares)
    # Squares of the targets follow the projections: what the features do not reach stays.
    other = source.permuted(np.random.default_rng(1)).spectra
    reached = [t.least_squares[0].sum(axis=1) for t in (spectra, other)]
    np.testing.assert_allclose(other.target_squares - reached[1], spectra.target_squares - reached[0], atol=1e-9)


def test_permuted_tasks_keep_their_mean_and_lose_their_relations():
    data = make_clustered_tasks(n_tasks=6, clusters=[[0, 1, 2]], layout="shared", random_state=0)
    source = weights_of(data.X, data.y, shared_mean=False)
    assert source.evidence().smallest_q < 1e-4
    random = np.random.default_rng(0)
    assert sum(source.permuted(random).evidence().smallest_q < 0.1 for _ in range(20)) <= 6
    X, Y = independent(3, mean=3.0)
    source = weights_of(X, Y)
    assert source.evidence().relative_to == "both"
    assert all(source.permuted(random).evidence().relative_to == "both" for _ in range(5))


def test_global_test_errs_at_its_level_and_finds_clusters():
    p = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        X, W = random.standard_normal((30, 8)), random.standard_normal((8, 5))
        source = kept_of(X, X @ W + random.standard_normal((30, 5)), shared_mean=False)
        p.append(LazyEvidence(source).global_test(19, seed).p)
    assert stats.kstest(p, "uniform").pvalue > 0.01  # discrete, so that the test is cautious
    data = make_clustered_tasks(n_tasks=6, clusters=[[0, 1, 2]], random_state=0)
    found = MSSLRegressor().fit(data.X, data.y, tasks=data.tasks).graph_.global_test(39)
    assert found.p == 1 / 40
    assert found.analytic < 1e-3


def test_global_test_of_residuals_keeps_their_autocorrelation():
    random = np.random.default_rng(0)
    E = np.cumsum(random.standard_normal((4, 200)), axis=1)
    source = Residuals(E - E.mean(axis=1, keepdims=True), 1.0)
    moved = source.permuted(random)
    np.testing.assert_allclose(np.sort(moved.values, axis=1), np.sort(source.values, axis=1))
    assert moved.evidence().freedom.max() < 40  # rows in any order count nearly 200


def test_global_test_needs_the_data(tmp_path):
    data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], n_features=12, random_state=0)
    model = MSSLRegressor().fit(data.X, data.y, tasks=data.tasks)
    again = mssl.load(mssl.save(model, tmp_path / "model.npz")).graph_
    with pytest.raises(DataError, match="does not hold the data, which the test permutes"):
        again.global_test()


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
def test_features_that_are_large_in_all_tasks_count_less(correlation):
    wrong, right = 0, []
    clusters = make_clustered_tasks("equicorrelated", n_features=60, random_state=0).covariance
    root = np.linalg.cholesky(clusters)
    for seed in range(12):
        random = np.random.default_rng(seed)
        spread = 1 / np.sqrt(random.chisquare(2, size=60) / 2)
        rows = random.standard_normal((13, 60)) * spread
        X = random.standard_normal((150, 60))
        E = random.standard_normal((150, 13))
        model = MSSLRegressor(SparsePrecision("auto", correlation=correlation), shared_mean=False, max_iter=5, tol=1.0)
        wrong += len(model.fit(X, X @ rows.T + E).graph_.relations()) > 0
        table = model.fit(X, X @ (root @ rows).T + E).graph_.relations()
        found = sum(bool(clusters[pair]) for pair in table.pairs)
        right.append(2 * found / (len(table) + 21))
    assert wrong <= 5
    assert np.mean(right) > {"pearson": 0.3, "spearman": 0.8}[correlation]


def test_a_mean_that_helps_to_predict_makes_no_relations_of_clusters():
    data = make_clustered_tasks(n_samples=60, random_state=0)
    graphs = [
        MSSLRegressor(shared_mean=mean).fit(data.X, data.y, tasks=data.tasks).graph_ for mean in ("auto", True, 0.3)
    ]
    pairs = [set(graph.relations(fdr=0.1).pairs) for graph in graphs]
    assert pairs[1] == pairs[0]
    assert pairs[2] == pairs[0]
    true = {(graphs[0].tasks[i], graphs[0].tasks[j]) for i, j in np.argwhere(np.triu(data.adjacency))}
    assert len(pairs[0] - true) <= 3


def test_one_design_is_whitened_direction_by_direction():
    """Blocks of the directions that all tasks share are the covariance of all scores together."""
    X, y = independent(3, K=4, d=6, n=30, rho=0.8)
    source = kept_of(X, y)
    scores = source.read()
    assert scores.shared
    assert scores.errors is not None
    assert scores.errors.along.strides[0] == 0  # one design for all tasks
    apart = replace(scores, shared=False, errors=None).with_errors(source.occasions)  # directions that might differ
    blocks, whole = (_White(given, *scores.variances()) for given in (scores, apart))
    assert blocks.spread[0].shape == (6, 4)
    assert whole.spread[0].shape == (1, 24)
    u = np.random.default_rng(0).normal(size=(4, 6, 2))
    for power in (-0.5, 0.5, 1.0):
        np.testing.assert_allclose(blocks.times(u, power), whole.times(u, power), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_one_design_has_the_same_partial_correlations_direction_by_direction(rho):
    """Blocks of directions, or all weights in one: turned into each other, the likelihood is the same."""
    random = np.random.default_rng(1)
    X, (K, d) = random.standard_normal((60, 8)), (4, 8)
    W = random.standard_normal((K, d)) + random.standard_normal(d)
    E = np.sqrt(1 - rho) * random.standard_normal((60, K)) + np.sqrt(rho) * random.standard_normal((60, 1))
    source = kept_of(X, X @ W.T + E)
    scores = source.read()
    assert (scores.errors is None) == (rho == 0)
    white = _White(scores, *scores.variances())
    found = partial_correlations(white.known(np.arange(K)), white.v)
    turns = np.diag(np.where(np.arange(d) < 4, 1.0, -1.0))  # the same eigenvectors, not seen to be the same
    vectors = scores.vectors.copy()
    vectors[0] = vectors[0] @ turns
    projections = scores.spectra.projections.copy()
    projections[0] = turns @ projections[0]
    spectra = replace(scores.spectra, projections=projections)
    turned = replace(scores, spectra=spectra, vectors=vectors, shared=False, errors=None)
    if scores.errors is not None:
        turned = turned.with_errors(source.occasions)
    known = _White(turned, white.noise, white.v).known(np.arange(K))
    assert known.scores.shape == (1, K, d)
    whole = partial_correlations(known, white.v)
    np.testing.assert_allclose(whole[0], found[0], atol=1e-7)
    np.testing.assert_allclose(whole[1], found[1], rtol=1e-6)


def test_a_false_relation_does_not_make_two_groups_one():
    """Relations at a false discovery rate may be false; those that make groups hold together."""
    r = np.eye(8)
    for cluster in (range(4), range(4, 8)):
        r[np.ix_(cluster, cluster)] = 0.8
    np.fill_diagonal(r, 1.0)
    r[0, 4] = r[4, 0] = 0.42
    evidence = GraphEvidence(r, np.full((8, 8), 30.0), np.ones(8))
    assert (0, 4) in evidence.table(range(8)).pairs
    assert evidence.groups.tolist() == [0] * 4 + [1] * 4


def test_edges_of_a_chain_are_found_with_as_many_rows_as_features():
    """Directions that the data know well tell what others do not: one reliability for all finds nothing."""
    found = []
    for seed in range(6):
        data = make_clustered_tasks("chain", n_features=60, n_samples=60, random_state=300 + seed)
        edges = evidence_of(data.X, data.y, data.tasks).table(range(13), "edges").pairs
        right = sum(bool(data.adjacency[pair]) for pair in edges)
        found.append(2 * right / (len(edges) + data.adjacency.sum() / 2))
    assert np.mean(found) > 0.7


def chain(seed=0, K=5, d=30, n=40, noise=1.0, rows=None):
    """Tasks whose weights are a chain of changing signs, with designs of their own."""
    random = np.random.default_rng(seed)
    lags = np.abs(np.subtract.outer(np.arange(K), np.arange(K)))
    W = np.linalg.cholesky((-0.8) ** lags) @ random.standard_normal((K, d))
    tasks = np.repeat(np.arange(K), n if rows is None else rows)
    X = random.standard_normal((len(tasks), d))
    return X, np.einsum("nd,nd->n", X, W[tasks]) + noise * random.standard_normal(len(tasks)), tasks


def test_pairs_of_a_chain_without_an_edge_are_seldom_called_one():
    """Tasks with 15 and 150 rows in turn: p-values where the partial correlation is zero, and intervals everywhere."""
    small, covered = [], []
    precision = np.linalg.inv((-0.8) ** np.abs(np.subtract.outer(np.arange(5), np.arange(5))))
    size = np.sqrt(np.diagonal(precision))
    true = (-precision / np.outer(size, size))[np.triu_indices(5, 1)]
    for seed in range(40):
        found = evidence_of(*chain(seed, rows=[150, 15, 150, 15, 150]), shared_mean=False)
        if found.groups.any():
            continue
        _, low, high, p = found._edges
        small.append(p[np.abs(true) < 1e-9] < 0.05)
        covered.append((low <= true) & (true <= high))
    assert len(small) > 20
    assert np.mean(small) < 0.1
    assert np.mean(covered) > 0.84


def test_what_all_groups_take_together_is_limited(monkeypatch):
    """Groups beyond the limit have the edges of one reliability for all directions."""
    data = chain(n=60)
    found = evidence_of(*data, shared_mean=False)
    assert np.all(found.partial_freedom > 0)
    monkeypatch.setattr(information, "_MOST_OPERATIONS", 1.0)
    limited = evidence_of(*data, shared_mean=False)
    assert not limited.partial_freedom.any()
    plain = replace(limited, partial=None, partial_freedom=None)
    assert repr(limited.table(range(5), "edges", 1.0)) == repr(plain.table(range(5), "edges", 1.0))


def test_tasks_in_which_no_variance_shows_leave_the_likelihood_of_their_group():
    X, y, tasks = chain(n=60)
    scores = weights_of(X, y, tasks)
    evidence = scores.evidence()
    noise, v = scores.variances()
    blind = _White(scores, noise, np.where(np.arange(5) == 2, 0.0, v)).with_partial(evidence)
    np.testing.assert_allclose(blind.partial, evidence.partial, atol=0.02)
    assert np.all(blind.partial_freedom > 0)


@pytest.mark.parametrize("factor", [1.0, -1.0, 1e-30])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_tasks_that_are_multiples_of_one_another_have_edges_in_numbers(factor, noise):
    X, y, tasks = chain(n=60, noise=noise)
    X[tasks == 1], y[tasks == 1] = X[tasks == 0], factor * y[tasks == 0]
    found = evidence_of(X, y, tasks, shared_mean=False)
    assert np.all(found.partial_freedom > 0)
    table = found.table(range(5), "edges", 1.0)
    assert all(row.low <= row.weight <= row.high for row in table)
    assert table[0][:2] == (0, 1)
    assert np.sign(table[0].weight) == np.sign(factor)


def test_what_ranks_change_of_the_scores_counts_as_error():
    """Weights known exactly are so many observations as there are features, their ranks fewer."""
    scores = weights_of(*chain(n=300, noise=0.01), shared_mean=False)
    exact, ranked = scores.evidence(), replace(scores, given=replace(scores.given, ranks=True)).evidence()
    pairs = np.triu_indices(5, 1)
    share = exact.partial_freedom[pairs] / (exact.freedom[pairs] - 3)
    np.testing.assert_allclose(share, 1.0, rtol=0.01)
    assert np.all(ranked.partial_freedom[pairs] / (ranked.freedom[pairs] - 3) < 0.985)


def two_groups(K=8, freedom=40.0, within=0.8, across=0.3):
    """Two groups of related tasks, and correlations across them that few observations make significant by chance."""
    group = np.arange(K) % 2
    r = np.where(group[:, None] == group, within, across)
    np.fill_diagonal(r, 1.0)
    return GraphEvidence(r, np.full((K, K), freedom), np.ones(K)), group


def test_conditional_edges_are_looked_for_inside_groups_alone():
    """Pairs of different groups are not tested: they neither get an edge nor pay for one."""
    evidence, group = two_groups()
    np.testing.assert_array_equal(evidence.groups[:, None] == evidence.groups, group[:, None] == group)
    table = evidence.table(range(8), "edges", fdr=1.0)
    assert table.n_pairs == 2 * 6
    assert all(group[i] == group[j] for i, j in evidence.table(range(8), "edges", fdr=0.9).pairs)
    # What stands between the groups changes no q value inside them.
    other, _ = two_groups(across=-0.25)
    q = {row[:2]: row.q for row in other.table(range(8), "edges", fdr=0.9)}
    assert q == {row[:2]: row.q for row in evidence.table(range(8), "edges", fdr=0.9)}


def test_relations_about_zero_and_about_the_mean_have_one_sign(monkeypatch):
    """A pair that is alike about zero and opposite about the mean is no relation, however significant both are."""
    random = np.random.default_rng(0)
    X, K = random.standard_normal((40, 12)), 6
    scores = weights_of(X, X @ random.standard_normal((12, K)) + random.standard_normal((40, K)))
    answers = {}
    for with_mean in (False, True):
        r = np.full((K, K), 0.95)
        r[0, 1] = r[1, 0] = -0.95 if with_mean else 0.95
        np.fill_diagonal(r, 1.0)
        freedom = np.full((K, K), 30.0)
        answers[with_mean] = _Statistics(np.sign(r), correlation_p(r, freedom), freedom, np.ones(K))
    monkeypatch.setattr(_White, "statistics", property(lambda self: answers[self.about_mean]))
    monkeypatch.setattr(information, "common_level", lambda *_: True)
    pairs = scores.evidence().table(range(K), fdr=0.1).pairs
    assert (0, 1) not in pairs
    assert len(pairs) == K * (K - 1) / 2 - 1
