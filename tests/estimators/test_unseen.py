"""Tasks that were not there in the fit: predicted from the mean of the tasks, or refused."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score, cross_validate

from mssl import (
    BayesianMSSLClassifier,
    BayesianMSSLRegressor,
    MSSLClassifier,
    MSSLClassifierCV,
    MSSLRegressor,
    MSSLRegressorCV,
    MultiTaskGLM,
    load,
    save,
)
from mssl.data.inputs import locate_tasks
from mssl.estimators.baselines import Climatology
from mssl.exceptions import ParameterError, UnseenTaskError

QUICK = {"param_grid": {"prior_strength": [1.0], "coef_penalty": [0.0], "shared_mean": [True, False]}, "cv": 3}


def related(seed=0, K=9, n=20, d=4, level=50.0, labels=False):
    """Tasks around one mean, with features and targets far from 0; the first column holds the task, rows sorted."""
    rng = np.random.default_rng(seed)
    m = 2.0 * rng.standard_normal(d)
    W = m + 0.1 * rng.standard_normal((K, d))
    task = np.repeat(np.arange(K), n)
    X = rng.standard_normal((K * n, d)) + level
    eta = np.sum((X - level) * W[task], axis=1)
    y = eta + 0.3 * rng.standard_normal(K * n) + 7.0
    return np.column_stack([task, X]), (eta > 0).astype(int) if labels else y


def test_labels_that_are_not_known_are_found_at_minus_one():
    assert locate_tasks(["b", "x", "a", "x"], np.array(["a", "b"])).tolist() == [1, -1, 0, -1]
    assert locate_tasks([3, 4], np.array([4, 5])).tolist() == [-1, 0]


def test_a_new_task_gets_the_tasks_average_weights_and_level():
    table, y = related()
    model = MSSLRegressor(shared_mean=True, task_column=0).fit(table, y)
    assert model.mean_variance_ > 0
    new = table.copy()
    new[:5, 0] = 99
    with pytest.warns(UserWarning, match="99.*predicted from the mean") as caught:
        predicted = model.predict(new)
    assert len(caught) == 1
    np.testing.assert_array_equal(predicted[5:], model.predict(table)[5:])
    expected = table[:5, 1:] @ model.coef_.mean(axis=0) + model.unseen_intercept_
    np.testing.assert_allclose(predicted[:5], expected, rtol=1e-12)
    # The level: at the tasks' own mean features the mean predictor equals the mean target.
    means = [table[table[:, 0] == k, 1:].mean(axis=0) for k in range(9)]
    at_means = np.mean([x @ model.unseen_coef_ + model.unseen_intercept_ for x in means])
    assert at_means == pytest.approx(y.mean(), abs=1e-8)
    assert np.mean((predicted[:5] - y[:5]) ** 2) < 0.2 * np.var(y)


def test_without_a_shared_mean_it_is_on_request_only():
    table, y = related()
    model = MSSLRegressor(shared_mean=False, task_column=0).fit(table, y)
    new = table.copy()
    new[:, 0] += 100
    with pytest.raises(UnseenTaskError, match="unseen='mean'"):
        model.predict(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # who asks for the mean is not told that it is the mean
        predicted = model.predict(new, unseen="mean")
    assert np.all(np.isfinite(predicted))
    with pytest.raises(UnseenTaskError):
        MultiTaskGLM(task_column=0).fit(table, y).predict(new)
    with pytest.raises(UnseenTaskError):
        Climatology(1, task_column=0).fit(np.round(table), y).predict(np.round(new), unseen="mean")
    with pytest.raises(ParameterError, match="unseen is 'guess'"):
        model.predict(table, unseen="guess")


def test_saved_models_still_predict_new_tasks(tmp_path):
    table, y = related()
    model = MSSLRegressor(task_column=0).fit(table, y)
    again = load(save(model, tmp_path / "model.npz"))
    new = table + np.array([100, 0, 0, 0, 0])
    with pytest.warns(UserWarning, match="predicted from the mean"):
        np.testing.assert_array_equal(again.predict(new), model.predict(new))


@pytest.mark.filterwarnings("error:Tasks .* were not there", "ignore:All targets of")
@pytest.mark.parametrize(
    "model",
    [
        MSSLRegressor(),
        MSSLRegressorCV(**{**QUICK, "param_grid": {**QUICK["param_grid"], "graph_penalty": [1.0, 0.1]}}),
        MSSLClassifier(),
        MSSLClassifierCV(**{**QUICK, "param_grid": {**QUICK["param_grid"], "graph_penalty": [1.0]}}),
    ],
    ids=lambda model: type(model).__name__,
)
def test_leaving_whole_tasks_out_gives_finite_scores(model):
    table, y = related(labels="Classifier" in type(model).__name__)
    inner = MSSLClassifier(task_column=0) if "Classifier" in type(model).__name__ else MSSLRegressor(task_column=0)
    model = clone(model).set_params(**{"estimator": inner} if hasattr(model, "estimator") else {"task_column": 0})
    left_out = cross_val_score(model, table, y, cv=GroupKFold(3), groups=table[:, 0], error_score="raise")
    assert np.all(left_out > 0.75)
    for n_rows in (len(y), len(y) - 19):  # the last task has one row then
        scores = cross_validate(model, table[:n_rows], y[:n_rows], cv=3, error_score="raise")["test_score"]
        assert np.all(np.isfinite(scores))


@pytest.mark.filterwarnings("ignore:Tasks .* were not there")
def test_classifiers_give_probabilities_for_new_tasks():
    table, y = related(labels=True)
    model = MSSLClassifierCV(
        MSSLClassifier(task_column=0), **{**QUICK, "param_grid": {**QUICK["param_grid"], "graph_penalty": [1.0]}}
    ).fit(table, y)
    new = table + np.array([100, 0, 0, 0, 0])
    probability = model.predict_proba(new)[:, 1]
    np.testing.assert_allclose(np.log(probability / (1 - probability)), model.decision_function(new), atol=1e-6)
    np.testing.assert_array_equal(model.predict(new), (probability > 0.5).astype(int))
    with pytest.raises(UnseenTaskError):
        model.predict_proba(new, unseen="error")


@pytest.mark.filterwarnings("ignore:Tasks .* were not there")
@pytest.mark.parametrize("intercepts", ["free", "shrunk"])
def test_free_intercepts_leave_a_new_task_the_spread_of_the_others_levels(intercepts: str) -> None:
    """Not that of their own wide prior, under which every rate is a half and no count is too large."""
    rng = np.random.default_rng(1)
    tasks, X = np.repeat(np.arange(20), 60), rng.normal(size=(1200, 3))
    level = (2 + 0.3 * rng.normal(size=20))[tasks]
    labels = rng.random(1200) < 1 / (1 + np.exp(-level - 0.8 * X[:, 0]))
    options = {"intercepts": intercepts, "features": "linear", "calibrate": False}
    model = BayesianMSSLClassifier(**options).fit(X, labels, tasks=tasks)
    known = model.predict_proba(np.zeros((20, 3)), tasks=np.arange(20))[:, 1]
    new = model.predict_proba(np.zeros((1, 3)), tasks=["new"])[0, 1]
    assert known.min() < new < known.max()
    counts = BayesianMSSLRegressor(loss="poisson", **options).fit(X, rng.poisson(np.exp(level / 2)), tasks=tasks)
    known = counts.predict(np.zeros((20, 3)), tasks=np.arange(20))
    new, (low, high) = (of(np.zeros((1, 3)), tasks=["new"])[0] for of in (counts.predict, counts.predict_interval))
    assert known.min() < new < known.max()
    assert low < new < high < 5 * known.max()
