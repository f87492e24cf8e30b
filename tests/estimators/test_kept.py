"""What a fitted model keeps: no training rows, and nothing that copies or pickles would have to compute."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import mssl
from mssl.datasets import make_clustered_tasks
from mssl.graph.tests import Later

MODELS = {
    "regression": mssl.MSSLRegressor(),
    "search": mssl.MSSLRegressorCV(
        param_grid={
            "graph_penalty": [0.3],
            "coef_penalty": [0.0],
            "prior_strength": [1.0],
            "graph_penalty__shrinkage": [0.0],
            "shared_mean": ["auto"],
        },
        cv=2,
    ),
    "labels": mssl.MSSLClassifier(),
    "bayesian": mssl.BayesianMSSLRegressor("mean", features="linear", calibrate=False),
}


def small(model, layout="long"):
    kind = {"family": "binary"} if isinstance(model, mssl.MSSLClassifier) else {}
    data = make_clustered_tasks(n_tasks=4, n_features=4, clusters=[[0, 1]], layout=layout, random_state=0, **kind)
    named = {"tasks": data.tasks} if layout == "long" else {}
    return model.fit(data.X, data.y, **named)


def test_limits_of_other_data_change_no_fitted_model():
    model = small(mssl.MSSLRegressor())
    data = make_clustered_tasks(n_tasks=4, n_features=4, clusters=[[0, 1]], random_state=0)
    before = model.predict(data.X, tasks=data.tasks)
    few = data.tasks != data.tasks[0]
    limits = model.limits(data.X[few, :2], data.y[few], tasks=data.tasks[few])
    assert limits == mssl.MSSLRegressor().limits(data.X[few, :2], data.y[few], tasks=data.tasks[few])
    np.testing.assert_array_equal(model.predict(data.X, tasks=data.tasks), before)
    assert model.n_features_in_ == 4


@pytest.mark.parametrize("name", MODELS)
def test_copies_and_pickles_compute_nothing(name, monkeypatch):
    model = small(MODELS[name])
    calls = []
    resolve = Later.resolve
    monkeypatch.setattr(Later, "resolve", lambda later: (calls.append(later), resolve(later))[1])
    again = [copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    assert not calls
    expected = model.graph_.relations(1.0)
    for other in again:
        assert other.graph_.relations(1.0).rows == expected.rows
        np.testing.assert_array_equal(other.coef_std_, model.coef_std_)
        assert other.graph_.global_test(3) == model.graph_.global_test(3)
    assert calls


@pytest.mark.parametrize("layout", ["long", "shared", "aligned", "residual", "labels"])
def test_a_fit_keeps_no_training_rows(layout, rng):
    """X has 9 MiB; what is kept of the data has .3 MiB at most, although relations can be tested."""
    K, d, N = 20, 20, 60_000
    n = N if layout in ("shared", "residual") else N // K
    X = rng.standard_normal((n, K, d) if layout == "aligned" else (N, d))
    W = rng.standard_normal((K, d))
    tasks = np.repeat(np.arange(K), n) if layout in ("long", "labels") else None
    y = np.einsum("nkd,kd->nk", X, W) if layout == "aligned" else X @ W.T
    y = y if tasks is None else y[np.arange(N), tasks]
    y = y + rng.standard_normal(y.shape)
    parameters = {"max_iter": 1, "tol": 1e9}
    model = mssl.MSSLRegressor(relation="residual" if layout == "residual" else "coef", coef_penalty=1e-3, **parameters)
    if layout == "labels":
        model, y = mssl.MSSLClassifier(**parameters), y > 0
    model.fit(X, y, tasks=tasks)
    model.graph_.relations()
    model = pickle.loads(pickle.dumps(model))
    products = (K * (d + 1)) ** 2 if layout == "aligned" else 0
    assert X.nbytes > 9 * 2**20
    assert len(pickle.dumps(model)) <= 0.3 * 2**20 + 8 * products
    assert len(model.graph_.relations(1.0)) == K * (K - 1) // 2


def test_of_many_tasks_pickles_keep_what_was_asked_for(monkeypatch):
    model = small(mssl.MSSLRegressor())
    model.graph_.evidence.n_tasks = 501
    assert pickle.loads(pickle.dumps(model)).graph_.evidence is None
    found = model.graph_.relations()
    assert pickle.loads(pickle.dumps(model)).graph_.relations().rows == found.rows
