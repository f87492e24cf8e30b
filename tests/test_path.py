"""Paths: warm starts do not change the answer, limits are limits, the table is whole."""

import numpy as np
import pytest

from mssl import MSSLClassifier, MSSLRegressor
from mssl.datasets import make_clustered_tasks, make_residual_graph
from mssl.exceptions import DataError, ParameterError
from mssl.model_selection import ebic_path, regularization_path
from mssl.model_selection.path import EMPTY


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
        model = MSSLRegressor(**params).fit(data.X, data.y, tasks=data.tasks)
        assert path.objectives[point] == pytest.approx(model.objective_, rel=1e-5)
        np.testing.assert_allclose(path.coefs[point], model.coef_, atol=0.02)
        np.testing.assert_allclose(path.intercepts[point], model.intercept_, atol=0.02)


def test_default_path_runs_from_the_empty_graph(data):
    path = regularization_path(data.X, data.y, data.tasks, n_points=6)
    lambdas = path.values("graph_penalty")
    assert np.all(np.diff(lambdas) < 0)
    assert lambdas[-1] == pytest.approx(0.01 * lambdas[0])
    limit = MSSLRegressor().limits(data.X, data.y, tasks=data.tasks).graph_penalty
    assert lambdas[0] == pytest.approx(limit, rel=0.02)
    assert path.n_edges[0] <= 1
    assert path.n_edges[-1] >= 8
    assert [graph.n_edges for graph in path.graphs] == path.n_edges.tolist()
    assert "6 fits" in repr(path)


def test_all_weights_vanish_at_the_beginning_of_the_coefficient_path(data):
    path = regularization_path(data.X, data.y, data.tasks, graph_penalties=[0.2], coef_penalties=4, smallest=0.05)
    nonzero = np.count_nonzero(path.coefs, axis=(1, 2))
    assert nonzero[0] == 0
    assert np.all(np.diff(nonzero) > 0)


def test_the_graph_is_empty_at_lambda_one_whatever_the_data():
    for seed in range(3):
        tasks = make_clustered_tasks(n_features=6, n_samples=20, spread=0.01, noise=0.05, random_state=seed)
        for mean in (False, True):
            model = MSSLRegressor(EMPTY, shared_mean=mean).fit(tasks.X, tasks.y, tasks=tasks.tasks)
            assert model.graph_.n_edges == 0


def test_paths_of_other_losses_and_layouts():
    labels = make_clustered_tasks(family="binary", n_features=4, n_tasks=4, clusters=[[0, 1]], random_state=0)
    path = regularization_path(labels.X, labels.y, labels.tasks, estimator=MSSLClassifier(), n_points=3)
    assert path.converged.all()
    aligned = make_residual_graph(
        n_features=3, n_tasks=5, clusters=[[0, 1, 2]], n_samples=60, layout="aligned", random_state=0
    )
    path = regularization_path(aligned.X, aligned.y, estimator=MSSLRegressor(on="residual"), n_points=3)
    assert path.precisions.shape == (3, 5, 5)
    assert path.converged.all()


def test_empty_grids_are_refused(data):
    for name in ("graph_penalties", "coef_penalties", "couplings", "shrinkages"):
        with pytest.raises(ParameterError, match="is empty"):
            regularization_path(data.X, data.y, data.tasks, **{name: []})


def test_ebic_finds_blocks_and_its_score_is_the_criterion():
    random = np.random.default_rng(1)
    centre = random.standard_normal((2, 300))
    Q = np.repeat(centre, [3, 2], axis=0) + 0.6 * random.standard_normal((5, 300))
    path = ebic_path(Q, tasks="abcde")
    assert sorted(map(sorted, path.graph.components())) == [["a", "b", "c"], ["d", "e"]]
    assert path.scores[path.best] == path.scores.min()
    S = Q @ Q.T / 300 + 0.01 * np.diag(np.diagonal(Q @ Q.T / 300))
    dense = ebic_path(Q, lambdas=[1e-9])
    free = 300 * (5 + np.linalg.slogdet(S)[1]) + 10 * np.log(300) + 4 * 10 * 0.5 * np.log(5)
    assert dense.scores[0] == pytest.approx(free, rel=1e-6)


def test_ebic_refuses_what_it_cannot_use():
    with pytest.raises(DataError, match="shape"):
        ebic_path(np.zeros(3))
    with pytest.raises(ParameterError, match="gamma"):
        ebic_path(np.eye(3), gamma=2)
    with pytest.raises(ParameterError, match="empty"):
        ebic_path(np.eye(3) + 0.1, lambdas=[])
