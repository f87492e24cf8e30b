"""A fit that fails or is interrupted leaves its estimator as it was: not fitted, or with the earlier fit."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError

import mssl
from mssl.estimators.baselines import AverageModel
from mssl.glasso import GraphicalLasso, GraphicalLassoCV
from mssl_reproduction.laplacian import LaplacianScore

# What only shows when the data have been read and remembered.
LATE = {
    "MSSLRegressor": {"graph_penalty": -1.0},
    "MSSLClassifier": {"graph_penalty": -1.0},
    "MultiTaskGLM": {"tol": -1.0},
    "MSSLRegressorCV": {"param_grid": {"graph_penalty": [-1.0]}},
    "MSSLClassifierCV": {"param_grid": {"graph_penalty": [-1.0]}},
    "BayesianMSSLRegressor": {"tol": -1.0},
    "BayesianMSSLClassifier": {"tol": -1.0},
    "StabilitySelection": {"threshold": 7.0},
}
QUICK = {
    "MSSLRegressorCV": {
        "param_grid": {"graph_penalty": [0.1], "coef_penalty": [0.0]},
        "selection": "prediction",
        "cv": 2,
    },
    "MSSLClassifierCV": {
        "param_grid": {"graph_penalty": [0.1], "coef_penalty": [0.0]},
        "selection": "prediction",
        "cv": 2,
    },
    "BayesianMSSLRegressor": {"prior": "ridge", "features": "linear", "calibrate": False},
    "BayesianMSSLClassifier": {"prior": "ridge", "features": "linear", "calibrate": False},
    "StabilitySelection": {"n_subsamples": 4, "random_state": 0},
}


def rows(model, d: int = 4, seed: int = 0):
    rng = np.random.default_rng(seed)
    X, tasks = rng.normal(size=(60, d)), np.repeat(["a", "b", "c"], 20)
    y = X[:, 0] + rng.normal(size=60)
    return X, (y > 0).astype(int) if is_classifier(model) else y, tasks


@pytest.mark.parametrize("name", sorted(LATE))
def test_a_failed_fit_leaves_nothing_and_a_failed_refit_the_earlier_one(name: str) -> None:
    model = getattr(mssl, name)(**QUICK.get(name, {}))
    good = model.get_params(deep=False)
    X, y, tasks = rows(model)
    with pytest.raises(mssl.exceptions.MSSLError):
        model.set_params(**LATE[name]).fit(X, y, tasks=tasks)
    assert [attribute for attribute in vars(model) if attribute.endswith("_")] == []
    for method in ("summary", "predict"):
        if hasattr(model, method):
            with pytest.raises(NotFittedError):
                getattr(model, method)(*(() if method == "summary" else (X, tasks)))
    model.set_params(**good).fit(X, y, tasks=tasks)
    before = dict(vars(model))
    with pytest.raises(mssl.exceptions.MSSLError):
        model.set_params(**LATE[name]).fit(*rows(model, d=3, seed=1))
    model.set_params(**good)
    assert vars(model) == before  # the very same objects
    if hasattr(model, "predict"):
        assert model.predict(X, tasks).shape == (60,)
        assert str(model.summary())


@pytest.mark.parametrize("name", ["MSSLRegressor", "BayesianMSSLRegressor"])
def test_an_interrupted_refit_leaves_the_earlier_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = getattr(mssl, name)(**QUICK.get(name, {}))
    X, y, tasks = rows(model)
    expected = model.fit(X, y, tasks=tasks).predict(X, tasks)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), "_fit_tasks", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], y, tasks=tasks)
    np.testing.assert_array_equal(model.predict(X, tasks), expected)


@pytest.mark.parametrize("model", [GraphicalLasso(), GraphicalLassoCV(cv=2), LaplacianScore(), AverageModel()])
def test_the_same_for_what_is_not_fitted_to_tasks(model) -> None:
    X = np.random.default_rng(0).normal(size=(40, 5))
    before = dict(vars(model.fit(X, X[:, 0])))
    with pytest.raises(ValueError, match=r"NaN|sample|rows"):
        model.fit(np.full((3, 2), np.nan), np.zeros(3))
    assert vars(model) == before
