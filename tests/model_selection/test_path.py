"""Paths: warm starts do not change the answer, limits are limits, the table is whole."""

import numpy as np
import pytest
from sklearn.base import clone

from mssl import MSSLClassifier, MSSLClassifierCV, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM
from mssl.datasets import make_clustered_tasks, make_residual_graph
from mssl.estimators import spec as limits
from mssl.estimators.spec import border
from mssl.exceptions import ParameterError
from mssl.model_selection import regularization_path
from mssl.paper import PaperMSSL, PaperMSSLClassifier


@pytest.fixture(scope="module")
def data():
    return make_clustered_tasks(
        n_tasks=6, clusters=[[0, 1, 2]], n_features=8, n_samples=25, shared_design=False, random_state=0
    )


def test_every_point_is_the_certified_fit_of_its_parameters(data):
    path = regularization_path(
        data.X, data.y, data.tasks, graph_penalties=[0.4, 0.1, 0.02], coef_penalties=[0.0, 3.0], couplings=[0.5, 1.0]
    )
    assert len(path) == 12
    assert path.converged.all()
    assert np.all(path.gaps <= 1e-6)
    for point, params in enumerate(path.params):
        model = MSSLRegressor().set_params(**params).fit(data.X, data.y, tasks=data.tasks)
        assert path.objectives[point] == pytest.approx(model.objective_, rel=1e-5)
        np.testing.assert_allclose(path.coefs[point], model.coef_, atol=0.02)
        np.testing.assert_allclose(path.intercepts[point], model.intercept_, atol=0.02)


@pytest.mark.parametrize("factor", [1.0, 100.0])
@pytest.mark.parametrize("make", [MSSLRegressor, PaperMSSL])
def test_precisions_are_those_of_the_estimator_in_its_units(data, factor, make):
    base = make(tol=1e-10, max_iter=2000)
    y = factor * data.y
    lambdas = base.limits(data.X, y, tasks=data.tasks).graph_penalty * np.array([0.6, 0.2])
    path = regularization_path(data.X, y, data.tasks, estimator=base, graph_penalties=lambdas)
    for point, params in enumerate(path.params):
        model = clone(base).set_params(**params).fit(data.X, y, tasks=data.tasks)
        np.testing.assert_allclose(path.precisions[point], model.precision_, rtol=1e-3, atol=1e-3 / factor**2)


def test_default_path_runs_from_the_empty_graph(data):
    path = regularization_path(data.X, data.y, data.tasks, n_points=6)
    lambdas = path.values("graph_penalty")
    assert np.all(np.diff(lambdas) < 0)
    assert lambdas[-1] == pytest.approx(0.01 * lambdas[0])
    limit = MSSLRegressor().limits(data.X, data.y, tasks=data.tasks).graph_penalty
    assert lambdas[0] == pytest.approx(limit)
    assert path.n_edges[0] == 0
    assert path.n_edges[-1] >= 8
    assert [graph.n_edges for graph in path.graphs] == path.n_edges.tolist()
    assert "6 fits" in repr(path)


def test_all_weights_vanish_at_the_beginning_of_the_coefficient_path(data):
    path = regularization_path(data.X, data.y, data.tasks, graph_penalties=[0.2], coef_penalties=4, smallest=0.05)
    nonzero = np.count_nonzero(path.coefs, axis=(1, 2))
    assert nonzero[0] == 0
    assert np.all(np.diff(nonzero) > 0)


def _draw(kind, seed, n=12):
    """Data of one kind, and the parameters that go with them; tasks of a dozen rows, so that starts are far off."""
    random = np.random.default_rng(seed)
    K, d = 4, 3
    W = random.standard_normal(d) + 0.5 * random.standard_normal((K, d))
    X = random.standard_normal((n, K, d))
    signal = np.einsum("nkd,kd->nk", X, W)
    if kind == "poisson":
        return X, random.poisson(np.exp(np.clip(signal / 2, -3, 3))), {"loss": "poisson"}
    if kind == "gamma":
        return X, random.gamma(2, np.exp(np.clip(signal / 2, -3, 3))), {"loss": "gamma"}
    y = signal + random.standard_normal((n, 1)) + random.standard_normal((n, K))
    return X, y, {"relation": "residual"} if kind == "residual" else {}


@pytest.mark.parametrize("make", [MSSLRegressor, PaperMSSL])
@pytest.mark.parametrize("kind", ["gaussian", "residual", "poisson", "gamma"])
def test_from_the_limit_on_the_graph_is_empty(kind, make):
    for seed, more in enumerate([{}, {"coef_penalty": 0.5}, {"prior_strength": 3.0}]):
        # With few rows of counts the paper's prior draws all weights to zero, whatever λ is.
        X, y, settings = _draw(kind, seed, 12 if make is MSSLRegressor else 60)
        base = make(**settings, **more)
        limit = base.limits(X, y).graph_penalty
        for share in (1.0001, 1.001, 1.01, 2.0):
            assert clone(base).set_params(graph_penalty=share * limit).fit(X, y).graph_.n_edges == 0
        assert clone(base).set_params(graph_penalty=0.8 * limit).fit(X, y).graph_.n_edges > 0


@pytest.mark.parametrize("kind", ["gaussian", "residual"])
def test_limits_of_the_papers_formulation_follow_its_units(kind):
    X, y, settings = _draw(kind, 0)
    base = PaperMSSL(tol=1e-10, max_iter=2000, **settings)
    limit = base.limits(X, y).graph_penalty
    model = clone(base).set_params(graph_penalty=1.0001 * limit).fit(X, y)
    Q = model.coef_.T if kind == "gaussian" else y - model.predict(X)
    largest = np.abs((Q.T @ Q)[~np.eye(4, dtype=bool)]).max()
    # Stationarity of the literal objective at Ω_ij = 0: |2 q_i·q_j| ≤ 2 λ, one λ for each of Ω_ij and Ω_ji.
    assert largest == pytest.approx(limit, rel=1e-3)
    path = regularization_path(X, y, estimator=base, n_points=3, coef_penalties=2)
    assert path.n_edges[0] == 0
    assert path.n_edges.max() > 0


def test_the_limit_is_found_between_graphs_with_and_without_edges():
    for top in (5.0, 0.3):
        assert 1.0 <= border(lambda value: value < 1.0, [top * 0.7**k for k in range(9)]) <= 1.0002
    assert border(lambda value: False, [2.0, 1.0]) == 1.0


def test_the_graph_is_empty_at_lambda_one_whatever_the_data():
    for seed in range(3):
        tasks = make_clustered_tasks(n_features=6, n_samples=20, spread=0.01, noise=0.05, random_state=seed)
        for mean in (False, True):
            model = MSSLRegressor(1.0, shared_mean=mean).fit(tasks.X, tasks.y, tasks=tasks.tasks)
            assert model.graph_.n_edges == 0


def test_paths_of_other_losses_and_layouts():
    labels = make_clustered_tasks(family="binary", n_features=4, n_tasks=4, clusters=[[0, 1]], random_state=0)
    path = regularization_path(labels.X, labels.y, labels.tasks, estimator=MSSLClassifier(), n_points=3)
    assert path.converged.all()
    assert path.n_edges[0] == 0
    aligned = make_residual_graph(
        n_features=3, n_tasks=5, clusters=[[0, 1, 2]], n_samples=60, layout="aligned", random_state=0
    )
    path = regularization_path(aligned.X, aligned.y, estimator=MSSLRegressor(relation="residual"), n_points=3)
    assert path.precisions.shape == (3, 5, 5)
    assert path.converged.all()


def test_empty_grids_are_refused(data):
    for name in ("graph_penalties", "coef_penalties", "couplings", "shrinkages"):
        with pytest.raises(ParameterError, match="is empty"):
            regularization_path(data.X, data.y, data.tasks, **{name: []})


@pytest.mark.parametrize("estimator", [MultiTaskGLM(), MSSLRegressorCV(), MSSLRegressor, "mssl"])
def test_a_path_needs_an_estimator_with_both_penalties(data, estimator):
    with pytest.raises(ParameterError, match="MSSLRegressor or an MSSLClassifier"):
        regularization_path(data.X, data.y, data.tasks, estimator=estimator)


@pytest.mark.parametrize("search", ["coordinate", "grid"])
@pytest.mark.parametrize("kind", ["regression", "residuals", "labels"])
def test_default_grids_of_the_papers_formulation_run_from_the_empty_graph(kind, search):
    X, y, settings = _draw("residual" if kind == "residuals" else "gaussian", 0, 24)
    labels = kind == "labels"
    single = PaperMSSLClassifier() if labels else PaperMSSL(**settings)
    model = (MSSLClassifierCV if labels else MSSLRegressorCV)(single, search=search, cv=2)
    y = (y > 0).astype(int) if labels else y
    model.fit(X, y)
    tried = model.cv_results_["params"]
    lambdas = sorted({params["graph_penalty"] for params in tried})
    assert lambdas[0] > 0
    assert lambdas[-1] == pytest.approx(single.limits(X, y).graph_penalty)
    for absent in ("prior_strength", "graph_penalty__shrinkage", "graph_penalty__variance_floor", "shared_mean"):
        assert len({params[absent] for params in tried}) == 1
    assert np.isfinite(model.best_score_)


@pytest.mark.parametrize("near", [1.0004, 1.002, 1.011, 1.031, 1.11])
def test_a_tiny_edge_just_above_the_first_limit_is_seen_by_a_second_look(near, data, monkeypatch):
    """A fit that stops within its tolerance may keep an edge where others have none; the limit lies above it."""
    model = MSSLRegressor()
    tasks = model._read(data.X, data.y, data.tasks, None)
    spec = model.to_spec(tasks)
    prepared = spec.prepare(tasks)
    scale = limits.diagonal_lambda_max(prepared, spec.structure, spec.penalty)
    monkeypatch.setattr(limits, "_edge_finder", lambda *given: lambda value: value < 1.2 * scale)
    first = spec.graph_penalty_limit(prepared)
    assert 1.2 * scale <= first <= 1.2 * scale * 1.0002
    # On the ladder of the second look, next to one of its steps and inside an interval of its own.
    steps = np.array([1.1, 1.03, 1.01, 1.003, 1.001, 1.0003]) * first
    island = steps[np.argmin(np.abs(steps - near * first))]

    def has_edges(value):
        return value < 1.2 * scale or abs(value - island) < 1e-5 * island

    monkeypatch.setattr(limits, "_edge_finder", lambda *given: has_edges)
    assert spec.graph_penalty_limit(prepared) >= island
