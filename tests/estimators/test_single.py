"""float32 in, float32 out, as in scikit-learn: computed in doubles, rounded once at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import Lasso

import mssl
from mssl import (
    BayesianMSSLClassifier,
    BayesianMSSLRegressor,
    GraphicalLasso,
    GraphicalLassoCV,
    MSSLClassifier,
    MSSLRegressor,
    MSSLRegressorCV,
    MultiTaskGLM,
    graphical_lasso,
)
from mssl.estimators.baselines import AverageModel, BestMember
from mssl.glasso import graphical_lasso_gap
from mssl.penalties import L1
from mssl.structures import Independent

SINGLE = float(np.finfo(np.float32).eps)


def rows(seed: int = 0) -> tuple[Any, Any, Any]:
    """Features that float32 holds exactly, so that both precisions are the same problem."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((90, 3)).astype(np.float32).astype(float)
    y = X @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_normal(90)
    return X, y, np.repeat(["a", "b", "c"], 30)


REGRESSORS = [
    MSSLRegressor(0.2, 0.1),
    MSSLRegressor(0.2, shared_mean=True),
    MSSLRegressor(0.2, features="spline"),
    MSSLRegressorCV(param_grid={"coef_penalty": [0.1], "prior_strength": [1.0]}, cv=2),
    MultiTaskGLM(Independent(0.1), L1(0.1), loss="poisson"),
    BayesianMSSLRegressor(prior="mean", features="linear"),
    AverageModel(),
    BestMember(),
]


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda model: type(model).__name__)
def test_weights_and_predictions_are_of_the_features_type(model: Any) -> None:
    X, y, tasks = rows()
    y = np.round(np.exp(0.3 * y)) if getattr(model, "loss", None) == "poisson" else y
    double = model.fit(X, y, tasks=tasks)
    coef, intercept, answer = double.coef_, double.intercept_, double.predict(X, tasks=tasks)
    assert coef.dtype == intercept.dtype == answer.dtype == np.float64
    assert double.predict(X.astype(np.float32), tasks=tasks).dtype == np.float64  # as NumPy: the wider of the two
    single = model.fit(X.astype(np.float32), y, tasks=tasks)
    np.testing.assert_array_equal(single.coef_, coef.astype(np.float32), strict=True)
    np.testing.assert_array_equal(single.intercept_, intercept.astype(np.float32), strict=True)
    found = single.predict(X.astype(np.float32), tasks=tasks)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, answer, rtol=20 * SINGLE, atol=20 * SINGLE)
    assert single.predict(X, tasks=tasks).dtype == np.float64


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("unit", [1e60, 1e-60])
@pytest.mark.parametrize("make", [MSSLRegressor, BayesianMSSLRegressor])
def test_targets_beyond_single_precision_give_doubles(make: Any, unit: float) -> None:
    X, y, tasks = rows()
    model = make().fit(X.astype(np.float32), unit * y, tasks=tasks)
    assert model.coef_.dtype == model.intercept_.dtype == np.float64
    found = model.predict(X.astype(np.float32), tasks=tasks)
    np.testing.assert_allclose(found / unit, make().fit(X, y, tasks=tasks).predict(X, tasks=tasks), rtol=0.01)


@pytest.mark.parametrize("model", [MSSLClassifier(0.2), BayesianMSSLClassifier(prior="mean", features="linear")])
def test_of_classifiers_too(model: Any) -> None:
    X, y, tasks = rows()
    model.fit(X.astype(np.float32), y > 0, tasks=tasks)
    assert model.coef_.dtype == np.float32
    assert model.decision_function(X.astype(np.float32), tasks=tasks).dtype == np.float32
    assert model.predict_proba(X.astype(np.float32), tasks=tasks).dtype == np.float32


def as_frame(X: Any) -> Any:
    return pd.DataFrame(X, columns=["p", "q", "r"])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, as_frame], ids=["array", "sparse", "frame"])
def test_in_every_form_of_input(form: Any) -> None:
    X, y, tasks = rows()
    given = form(X.astype(np.float32))
    model = MSSLRegressor(0.2, 0.1).fit(given, y, tasks=tasks)
    assert model.coef_.dtype == model.predict(given, tasks=tasks).dtype == np.float32


def test_a_frame_with_one_wider_column_is_double() -> None:
    X, y, tasks = rows()
    frame = as_frame(X).astype({"p": "float32", "q": "float32"})
    assert MSSLRegressor(0.2, 0.1).fit(frame, y, tasks=tasks).coef_.dtype == np.float64


def test_the_types_are_scikit_learns() -> None:
    X, y, _ = rows()
    for fitted in (np.float32, np.float64):
        ours, theirs = (model.fit(X.astype(fitted), y) for model in (MSSLRegressor(0.2, 0.1), Lasso(0.1)))
        assert ours.coef_.dtype == theirs.coef_.dtype
        for asked in (np.float32, np.float64):
            assert ours.predict(X.astype(asked)).dtype == theirs.predict(X.astype(asked)).dtype


def test_shared_layout_with_known_targets() -> None:
    X, y, _ = rows()
    Y = y[:, None] + np.random.default_rng(1).standard_normal((90, 2))
    model = MSSLRegressor(0.1, 1e-3, relation="residual").fit(X.astype(np.float32), Y)
    mean, spread = model.predict(X.astype(np.float32), known=np.where(Y > 1, np.nan, Y), return_std=True)
    assert mean.dtype == spread.dtype == np.float32


def test_means_beyond_the_largest_single_are_that_number() -> None:
    X, y, tasks = rows()
    model = MultiTaskGLM(Independent(0.1), loss="poisson").fit(
        X.astype(np.float32), np.round(np.exp(0.3 * y)), tasks=tasks
    )
    far = np.full((3, 3), 1e6, np.float32) * np.sign(model.coef_)
    np.testing.assert_array_equal(model.predict(far, tasks=["a", "b", "c"]), np.finfo(np.float32).max)


def test_saved_and_loaded(tmp_path: Any) -> None:
    X, y, tasks = rows()
    model = MSSLRegressor(0.2, 0.1).fit(X.astype(np.float32), y, tasks=tasks)
    mssl.save(model, tmp_path / "model.npz")
    np.testing.assert_array_equal(mssl.load(tmp_path / "model.npz").coef_, model.coef_, strict=True)


@pytest.mark.parametrize("model", [GraphicalLasso(0.1), GraphicalLassoCV(cv=3)], ids=lambda model: type(model).__name__)
def test_graphical_lassos(model: Any) -> None:
    X = rows()[0]
    double = model.fit(X)
    kept = {name: getattr(double, name) for name in ("location_", "covariance_", "precision_")}
    single = model.fit(X.astype(np.float32))
    for name, values in kept.items():
        np.testing.assert_array_equal(getattr(single, name), values.astype(np.float32), strict=True)


def test_the_function_and_its_warm_start() -> None:
    S = np.corrcoef(rows()[0].T).astype(np.float32)
    double, single = graphical_lasso(S.astype(float), 0.01), graphical_lasso(S, 0.01)
    np.testing.assert_array_equal(single.precision, double.precision.astype(np.float32), strict=True)
    np.testing.assert_array_equal(single.covariance, double.covariance.astype(np.float32), strict=True)
    assert (single.gap, single.objective) == (double.gap, double.objective)
    gap, objective = graphical_lasso_gap(S, single.precision, 0.01, known=single)
    assert objective == pytest.approx(double.objective, abs=20 * SINGLE)
    assert gap < 1e-6
    again = graphical_lasso(S.astype(float), 0.01, warm_start=single)
    assert again.precision.dtype == np.float64
    np.testing.assert_allclose(again.precision, double.precision, atol=1e-6)
    uneven = S.copy()
    uneven[0, 1] *= 1 + 4 * SINGLE  # sums of singles in another order
    np.testing.assert_allclose(graphical_lasso(uneven, 0.01).precision, single.precision, atol=1e-5)
