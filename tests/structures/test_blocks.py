"""Many tasks, component by component: the answers are those of tables over all pairs."""

import warnings

import numpy as np
import pytest
from scipy import sparse

import mssl
from mssl import MSSLRegressor, MSSLRegressorCV, MultiTaskClassifier, MultiTaskGLM, StabilitySelection
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import ParameterError
from mssl.glasso.solver import graphical_lasso, graphical_lasso_gap
from mssl.graph import task_graph
from mssl.graph.geometry import display
from mssl.model import task_matrix
from mssl.structures import SparsePrecision, blocks
from mssl.structures import sparse as sparse_structure
from mssl.structures.blocks import PairMoment


def rows_in_groups(K=30, r=40, seed=0):
    """Rows of ten groups of three tasks that hardly anything relates to others."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((K // 3, r))[np.arange(K) % (K // 3)] + 0.8 * rng.standard_normal((K, r))


def moment(spread=0.0, shrinkage=0.0, alpha=0.4, seed=0):
    rng = np.random.default_rng(seed)
    Q = rows_in_groups(seed=seed)
    roots, floors, v = rng.uniform(0.8, 1.5, len(Q)), rng.uniform(0.05, 0.2, len(Q)), rng.uniform(0.5, 2, len(Q))
    return PairMoment(Q, 40.0, spread, shrinkage, v, alpha, roots, floors)


def whole(S):
    problem = S.problem(np.arange(len(S.Q)))
    return problem.S, problem.L, problem.e


@pytest.mark.parametrize(("spread", "shrinkage"), [(0.0, 0.0), (0.1, 0.0), (0.05, 0.5)])
@pytest.mark.parametrize("side", [2000, 8])
def test_a_moment_is_that_of_all_pairs(spread, shrinkage, side, monkeypatch):
    monkeypatch.setattr(blocks, "DENSE_UP_TO", side)  # a panel has this number of entries, squared
    S = moment(spread, shrinkage)
    table, L, _ = whole(S)
    expected = (S.Q @ S.Q.T / 40 + spread + shrinkage * np.diag(S.variances)) / (1 + shrinkage)
    np.testing.assert_allclose(table, expected)
    np.testing.assert_allclose(S.diagonal(), expected.diagonal())
    np.testing.assert_array_equal(S.links.toarray(), np.triu(np.abs(expected) > L, 1))
    ratio = np.abs(expected) / np.outer(S.roots, S.roots)
    assert S.lambda_max() == pytest.approx(np.triu(ratio, 1).max())


def test_updates_are_those_of_one_graphical_lasso():
    S = moment()
    diagonal = 1 / (S.diagonal() + S.floors)
    start = sparse.csr_array(np.diag(diagonal)), sparse.csr_array(np.diag(1 / diagonal))
    omega, sigma, gap, value = blocks.update(S, *start, "bcd", 1e-9)
    table, L, e = whole(S)
    best = graphical_lasso(table, 1.0, weights=L, diagonal_penalty=e, tol=1e-12)
    assert 30 < np.count_nonzero(best.precision) < 200
    assert gap <= 1e-9
    assert value == pytest.approx(best.objective, rel=1e-10)
    np.testing.assert_allclose(omega.toarray(), best.precision, atol=1e-4)
    np.testing.assert_allclose((omega @ sigma).toarray(), np.eye(30), atol=1e-9)
    # From there on to another moment, whose components are others: certified alike, and improved.
    other = moment(seed=1, alpha=0.3)
    table, L, e = whole(other)
    bound, objective = graphical_lasso_gap(table, omega.toarray(), 1.0, weights=L, diagonal_penalty=e)
    assert blocks.certify(other, omega, sigma)[1] == pytest.approx(objective)
    better = blocks.update(other, omega, sigma, "bcd", 1e-9)
    assert blocks.certify(other, omega, sigma)[0] >= objective - better[3] - 1e-8
    assert bound >= objective - better[3] - 1e-8
    best = graphical_lasso(table, 1.0, weights=L, diagonal_penalty=e, tol=1e-12)
    assert better[3] == pytest.approx(best.objective, rel=1e-9)


@pytest.fixture
def few_are_many(monkeypatch):
    """From 10 tasks on nothing of the size of all pairs is made."""
    for module in (sparse_structure, task_matrix, task_graph):
        monkeypatch.setattr(module, "DENSE_UP_TO", 10)


DATA = make_clustered_tasks(
    n_tasks=80, clusters=[[0, 1, 2], [3, 4, 5, 6], [10, 11]], n_features=30, n_samples=60, random_state=0
)
SETTINGS = {
    "plain": {},
    "few edges": {"graph_penalty": 0.5},
    "weights at zero": {"coef_penalty": 0.5},
    "ridge": {"coef_penalty__ridge": 1.0, "coef_penalty": 0.2},
    "shared mean": {"shared_mean": 0.1},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_fits_of_many_tasks_are_the_same(name, request):
    usual, blockwise = (MSSLRegressor(tol=1e-10).set_params(**SETTINGS[name]) for _ in range(2))
    usual.fit(DATA.X, DATA.y, tasks=DATA.tasks)
    request.getfixturevalue("few_are_many")
    blockwise.fit(DATA.X, DATA.y, tasks=DATA.tasks)
    assert blockwise.result_.relative_gap <= 1e-10
    assert blockwise.objective_ == pytest.approx(usual.objective_, rel=1e-8)
    np.testing.assert_allclose(blockwise.coef_, usual.coef_, atol=2e-5)
    for attribute in ("precision_", "covariance_", "partial_correlation_"):
        found, expected = getattr(blockwise, attribute), getattr(usual, attribute)
        assert isinstance(found, sparse.csr_array)
        np.testing.assert_allclose(found.toarray(), expected, atol=1e-4 * np.abs(expected).max())
    graph, other = blockwise.graph_, usual.graph_
    assert isinstance(graph.weights, sparse.csr_array)
    assert repr(graph) == repr(other)
    assert [edge[:2] for edge in graph.support()[:5]] == [edge[:2] for edge in other.support()[:5]]
    np.testing.assert_array_equal(graph.community_labels(), other.community_labels())
    np.testing.assert_array_equal(graph.degree(), other.degree())
    assert graph.neighbors(graph.tasks[0]) == other.neighbors(graph.tasks[0])


def test_other_losses_of_many_tasks(request):
    labels, structure = DATA.y > np.median(DATA.y), SparsePrecision(0.3)
    usual, blockwise = (MultiTaskClassifier(structure, tol=1e-8) for _ in range(2))
    usual.fit(DATA.X, labels, tasks=DATA.tasks)
    request.getfixturevalue("few_are_many")
    blockwise.fit(DATA.X, labels, tasks=DATA.tasks)
    assert blockwise.objective_ == pytest.approx(usual.objective_, rel=1e-6)
    np.testing.assert_allclose(blockwise.coef_, usual.coef_, atol=1e-2)


def test_structures_without_components_keep_their_tables(few_are_many):
    model = MultiTaskGLM(SparsePrecision(0.3, correlation="spearman"), max_iter=2)
    with pytest.warns(match="max_iter"):
        model.fit(DATA.X, DATA.y, tasks=DATA.tasks)
    assert isinstance(model.precision_, np.ndarray)


def test_many_tasks_are_saved_continued_and_shown(few_are_many, tmp_path, monkeypatch):
    monkeypatch.setattr("mssl.files.checks.DENSE_UP_TO", 10)
    monkeypatch.setattr("mssl.graph.tests._MOST_TASKS", 10)
    monkeypatch.setattr("mssl.graph.tests.MOST_SAVED", 10)
    model = MSSLRegressor(0.4, warm_start=True).fit(DATA.X, DATA.y, tasks=DATA.tasks)
    again = mssl.load(mssl.save(model, tmp_path / "m.npz"))
    assert again.graph_ == model.graph_
    assert (again.precision_ != model.precision_).count_nonzero() == 0
    np.testing.assert_array_equal(again.predict(DATA.X, tasks=DATA.tasks), model.predict(DATA.X, tasks=DATA.tasks))
    assert again.fit(DATA.X, DATA.y, tasks=DATA.tasks).n_iter_ <= 2
    with pytest.raises(ParameterError, match="80 tasks; relations are tested for at most 10"):
        model.graph_.relations()
    assert "80 tasks" in model._repr_html_()
    text = model.graph_.to_json()
    assert task_graph.TaskGraph.from_json(text) == model.graph_


def test_slow_graph_steps_are_announced_once(monkeypatch):
    """Steps of ordinary fits take a few sweeps; those for a graph close to singular take tens."""
    monkeypatch.setattr(sparse_structure, "_MANY", 20)
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((120, 40, 6)), rng.standard_normal((120, 2)) @ rng.standard_normal((2, 6))
    y = np.einsum("knd,kd->kn", X, W) + 0.5 * rng.standard_normal((120, 40))
    rows, tasks = X.reshape(-1, 6), np.repeat(np.arange(120), 40)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        MSSLRegressor(SparsePrecision(0.1, variance_floor=0.01), max_iter=30).fit(rows, y.ravel(), tasks=tasks)
    slow = [str(warning.message) for warning in heard if "sweeps" in str(warning.message)]
    assert len(slow) == 1
    assert "variance_floor (now 0.01)" in slow[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MSSLRegressor().fit(rows, y.ravel(), tasks=tasks)


def test_pictures_of_many_tasks_are_the_same(request):
    usual = display(MSSLRegressor(0.4).fit(DATA.X, DATA.y, tasks=DATA.tasks).graph_)
    request.getfixturevalue("few_are_many")
    found = display(MSSLRegressor(0.4).fit(DATA.X, DATA.y, tasks=DATA.tasks).graph_)
    assert isinstance(found.certain, sparse.csr_array)
    np.testing.assert_array_equal(found.certain.toarray(), usual.certain)
    np.testing.assert_allclose(found.graph.weights.toarray(), usual.graph.weights, atol=1e-3)
    np.testing.assert_array_equal(found.groups, usual.groups)
    assert found.notes == usual.notes


@pytest.mark.filterwarnings("ignore:subsample='samples' refits")
@pytest.mark.parametrize("subsample", ["features", "samples"])
def test_stability_selection_of_many_tasks(subsample, request):
    choosers = [StabilitySelection(subsample=subsample, n_subsamples=4, n_points=3, random_state=0) for _ in range(2)]
    usual = choosers[0].fit(DATA.X, DATA.y, tasks=DATA.tasks)
    request.getfixturevalue("few_are_many")
    found = choosers[1].fit(DATA.X, DATA.y, tasks=DATA.tasks)
    np.testing.assert_allclose(found.frequencies_, usual.frequencies_, atol=0.26)
    assert np.mean(found.frequencies_ != usual.frequencies_) < 1e-3
    np.testing.assert_allclose(found.graph_.weights.toarray(), usual.graph_.weights, atol=1e-3)


def test_searches_of_many_tasks(few_are_many):
    """A path of λ down to zero, where all tasks are one component."""
    found = MSSLRegressorCV(cv=2).fit(DATA.X, DATA.y, tasks=DATA.tasks)
    assert isinstance(found.precision_, sparse.csr_array)
    assert found.best_estimator_.result_.relative_gap <= found.best_estimator_.tol


def test_a_large_component_is_announced(monkeypatch, few_are_many):
    monkeypatch.setattr(blocks, "DENSE_UP_TO", 10)
    with pytest.warns(UserWarning, match=r"joins \d+ of 80 tasks.*Raise graph_penalty"):
        MSSLRegressor(0.2).fit(DATA.X, DATA.y, tasks=DATA.tasks)
