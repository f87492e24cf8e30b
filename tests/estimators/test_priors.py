"""Priors as objects: those that words stand for, a graph that is given, and a covariance of a user's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from factor_analytic import FactorAnalytic

from mssl import BayesianMSSLClassifier, BayesianMSSLRegressor
from mssl.exceptions import ParameterError
from mssl.priors import ARD, Block, Dense, Exchangeable, Known, PerTask, Prior

K, D, N = 6, 8, 14


@pytest.fixture
def rows(rng: np.random.Generator):
    """Two groups of tasks with weights of opposite signs, and new rows."""
    sign = np.repeat([1.0, -1.0], K // 2)
    W = sign[:, None] * rng.normal(size=D) + 0.2 * rng.normal(size=(K, D))
    X, tasks = rng.normal(size=(8 * K * N, D)), np.tile(np.repeat(np.arange(K), N), 8)
    y = np.sum(X * W[tasks], axis=1) + rng.normal(size=len(X))
    few = slice(0, K * N)
    return X[few], y[few], tasks[few], X[K * N :], y[K * N :], tasks[K * N :]


def fit(prior, rows, **more):
    X, y, tasks = rows[:3]
    options = {"features": "linear", "calibrate": False, "intercepts": "free"} | more
    return BayesianMSSLRegressor(prior, **options).fit(X, y, tasks=tasks)


def test_words_and_objects_are_the_same_priors(rows) -> None:
    word, made = fit("iw+ard", rows, tol=1e-8), fit(Dense(), rows, tol=1e-8)
    np.testing.assert_allclose(made.coef_, word.coef_, atol=1e-6)
    assert made.evidence_ == pytest.approx(word.evidence_, abs=1e-6)
    share = 0.25 / D
    block = Block(np.arange(D), Exchangeable(v=share, t=share), ARD(np.arange(D)))
    whole = Prior((block,), PerTask(np.full(K, 0.5)))
    word = fit("mean+ard", rows, tol=1e-9)
    for prior in (whole, Exchangeable()):
        made = fit(prior, rows, tol=1e-9)
        np.testing.assert_allclose(made.coef_, word.coef_, atol=1e-4)
        assert made.evidence_ == pytest.approx(word.evidence_, abs=1e-4)


@pytest.mark.parametrize(
    "prior", [Known(np.eye(K) + 0.5), FactorAnalytic(1), Dense()], ids=lambda prior: type(prior).__name__
)
@pytest.mark.parametrize("intercepts", ["free", "shrunk"])
def test_every_covariance_serves_regression_and_labels(prior, intercepts: str, rows) -> None:
    X, y, tasks, X_new, _, tasks_new = rows
    model = fit(prior, rows, intercepts=intercepts)
    assert model.structure_ == type(prior).__name__
    assert np.all(np.isfinite(model.predict_interval(X_new, tasks=tasks_new)))
    labels = BayesianMSSLClassifier(prior, features="linear", calibrate=False, intercepts=intercepts)
    labels.fit(X, y > 0, tasks=tasks)
    assert np.mean(labels.predict(X_new, tasks=tasks_new) == (np.sum(X_new * model.coef_[tasks_new], axis=1) > 0)) > 0.7


def test_a_covariance_that_fits_the_tasks_predicts_better(rows) -> None:
    """Groups of opposite signs: one factor, or the graph that is known, against a mean that all share."""
    X_new, y_new, tasks_new = rows[3:]
    sign = np.repeat([1.0, -1.0], K // 2)
    known = Known(np.linalg.inv(np.outer(sign, sign) + 0.1 * np.eye(K)))
    lost = {}
    for name, prior in (("mean", "mean+ard"), ("factors", FactorAnalytic(1)), ("known", known)):
        lost[name] = np.mean((fit(prior, rows).predict(X_new, tasks=tasks_new) - y_new) ** 2)
    assert lost["factors"] < lost["mean"]
    assert lost["known"] < lost["mean"]


def test_priors_are_judged_by_folds_and_priors_of_other_data_refused(rows) -> None:
    assert fit(Dense(), rows, calibrate=True, cv=3).held_out_.score < 0
    with pytest.raises(ParameterError, match="prior"):
        fit("dense", rows)
    with pytest.raises(ParameterError, match="tasks"):
        fit(Known(np.eye(3)), rows)
    with pytest.raises(ParameterError, match="features"):
        fit(replace(Prior((Block(np.arange(2), Exchangeable(), ARD(np.arange(2))),), PerTask(np.ones(K)))), rows)
