"""Models in skops' files: nothing but `mssl.skops_types()` has to be trusted, and predictions stay what they were."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mssl
from mssl import presets
from mssl.datasets import make_clustered_tasks

skops = pytest.importorskip("skops.io")

DATA = make_clustered_tasks(n_features=4, n_samples=12, random_state=1)
LABELS = np.where(np.median(DATA.y) < DATA.y, "yes", "no")
GRID = {
    "param_grid": {"graph_penalty": [0.1, 1.0], "coef_penalty": [0.0], "prior_strength": [1.0], "shared_mean": [False]},
    "cv": 3,
}
MODELS = {
    "MSSLRegressor": lambda: mssl.MSSLRegressor(features="spline"),
    "MSSLClassifier": mssl.MSSLClassifier,
    "MSSLRegressorCV": lambda: mssl.MSSLRegressorCV(**GRID),
    "MSSLClassifierCV": lambda: mssl.MSSLClassifierCV(**GRID),
    "MultiTaskGLM": lambda: mssl.MultiTaskGLM(mssl.structures.LatentSparsePrecision(0.1)),
    "MultiTaskClassifier": mssl.MultiTaskClassifier,
    "MultiTaskGLMCV": lambda: mssl.MSSLRegressorCV(
        presets.ridge(), {"structure__alpha": [0.1, 1.0]}, refit="best", cv=3
    ),
    "BayesianMSSLRegressor": mssl.BayesianMSSLRegressor,
    "BayesianMSSLClassifier": mssl.BayesianMSSLClassifier,
}
GRAPHS = {
    "GraphicalLasso": mssl.GraphicalLasso,
    "GraphicalLassoCV": lambda: mssl.GraphicalLassoCV(cv=3),
    "StabilitySelection": lambda: mssl.StabilitySelection(n_subsamples=4, n_points=3, random_state=0),
}


def round_trip(model):
    content = skops.dumps(model)
    assert set(skops.get_untrusted_types(data=content)) <= set(mssl.skops_types())
    return skops.loads(content, trusted=mssl.skops_types())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_fitted_model_comes_back(name):
    y = LABELS if "Classifier" in name else DATA.y
    fitted = MODELS[name]().fit(DATA.X, y, tasks=DATA.tasks)
    again = round_trip(fitted)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(fitted, method):
            one, other = (getattr(model, method)(DATA.X, tasks=DATA.tasks) for model in (fitted, again))
            np.testing.assert_array_equal(one, other)
    assert str(again.summary()) == str(fitted.summary())
    assert str(again.graph_.relations()) == str(fitted.graph_.relations())


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_comes_back(name):
    fitted = GRAPHS[name]()
    fitted = fitted.fit(DATA.X) if "Lasso" in name else fitted.fit(DATA.X, DATA.y, tasks=DATA.tasks)
    again, name = round_trip(fitted), "precision_" if "Lasso" in name else "frequencies_"
    np.testing.assert_array_equal(getattr(again, name), getattr(fitted, name))


def test_no_public_estimator_is_left_out():
    public = [getattr(mssl, name) for name in mssl.__all__]
    estimators = {one.__name__ for one in public if isinstance(one, type) and issubclass(one, BaseEstimator)}
    assert estimators == {*MODELS, *GRAPHS}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", [name for name in presets.available() if not name.startswith("r_mssl")])
def test_every_structure_and_penalty_comes_back(name):
    options = {"s2m2r": {"edges": [(0, 1)]}, "climatology": {"month": 0}, "cmtl": {"n_clusters": 3}}.get(name, {})
    model = presets.make(name, **options)
    if hasattr(model, "max_iter"):
        model.set_params(max_iter=2)
    X = np.column_stack([np.tile(np.arange(1, 13), 13), DATA.X])
    fitted = model.fit(X, LABELS if name == "logistic" else DATA.y, tasks=DATA.tasks)
    np.testing.assert_array_equal(round_trip(fitted).predict(X, tasks=DATA.tasks), fitted.predict(X, tasks=DATA.tasks))


def test_a_pipeline_comes_back():
    pipe = make_pipeline(StandardScaler(), mssl.MSSLRegressor()).fit(DATA.X, DATA.y, msslregressor__tasks=DATA.tasks)
    expected = pipe.predict(DATA.X, tasks=DATA.tasks)
    np.testing.assert_array_equal(round_trip(pipe).predict(DATA.X, tasks=DATA.tasks), expected)


def test_other_types_are_not_trusted():
    assert all(name.startswith("mssl.") for name in mssl.skops_types())
