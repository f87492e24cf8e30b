"""Straight lines against curves: folds without leaks, one scale of scores, and who stands where nothing is gained."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import mssl
from mssl import MSSLClassifier, MSSLClassifierCV, MSSLRegressor, MSSLRegressorCV
from mssl.features import FeatureMap, Spline
from mssl.judge.held_out import ScoreTable
from mssl.losses import Gaussian
from mssl.model_selection import TaskKFold, regularization_path

QUICK = {"param_grid": {"graph_penalty": [np.inf], "coef_penalty": [0.0], "graph_penalty__shrinkage": [0.0]}, "cv": 3}


def curved(rng, n=60, K=3):
    X, tasks = rng.uniform(-2, 2, size=(n * K, 3)), np.repeat(np.arange(K), n)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.normal(size=n * K), tasks


def test_auto_takes_curves_where_there_are_some_and_lines_where_there_are_none(rng):
    X, y, tasks = curved(rng)
    search = MSSLRegressorCV(MSSLRegressor(features="auto"), **QUICK).fit(X, y, tasks=tasks)
    assert search.best_params_["features"] == search.best_estimator_.features == "spline"
    assert search.feature_scores_["spline"] > search.feature_scores_["linear"]
    assert search.coef_.shape[1] == len(search.features_) > 3
    straight = X @ [1.0, -2.0, 0.5] + 0.2 * rng.normal(size=len(y))
    lines = MSSLRegressorCV(MSSLRegressor(features="auto"), **QUICK).fit(X, straight, tasks=tasks)
    assert lines.best_params_["features"] == "linear"
    plain = MSSLRegressorCV(**QUICK).fit(X, straight, tasks=tasks)
    np.testing.assert_array_equal(lines.coef_, plain.coef_)
    assert set(lines.cv_results_["params"][0]) == {*plain.cv_results_["params"][0], "features"}


def test_what_is_better_and_not_clearly_so_is_averaged(rng, monkeypatch):
    X, y, tasks = curved(rng)
    monkeypatch.setattr(ScoreTable, "beats", lambda self, other, margin=2.0: margin == 0.0)
    search = MSSLRegressorCV(MSSLRegressor(features="auto"), **QUICK).fit(X, y, tasks=tasks)
    assert search.feature_members_ == ["linear", "spline"]
    assert search.best_params_["features"] == "spline"
    alone = [
        MSSLRegressorCV(MSSLRegressor(features=word), **QUICK).fit(X, y, tasks=tasks)
        for word in search.feature_members_
    ]
    expected = np.mean([model.predict(X, tasks=tasks) for model in alone], axis=0)
    np.testing.assert_allclose(search.predict(X, tasks=tasks), expected, atol=1e-10)
    # Of a task without rows too; where nothing is averaged, lines stand.
    np.testing.assert_allclose(search.unseen_intercept_, np.mean([model.unseen_intercept_ for model in alone]))
    single = MSSLRegressorCV(MSSLRegressor(features="auto"), refit="best", **QUICK).fit(X, y, tasks=tasks)
    assert single.feature_members_ == ["linear"]
    assert single.best_params_["features"] == "linear"


def test_scores_of_all_contestants_have_one_unit(rng):
    """The scores are ratios of mean squared errors, whatever noise curves would leave over."""
    X, y, tasks = curved(rng)
    splits = list(TaskKFold(3).split(X, y, tasks))
    search = MSSLRegressorCV(MSSLRegressor(features="auto"), **QUICK | {"cv": splits}).fit(X, y, tasks=tasks)
    errors = {}
    for features in ("linear", "spline"):
        alone = MSSLRegressorCV(MSSLRegressor(features=features), **QUICK | {"cv": splits}).fit(X, y, tasks=tasks)
        parts = []
        for train, test in splits:
            model = MSSLRegressor(features=features).set_params(**alone.best_params_)
            model.fit(X[train], y[train], tasks=tasks[train])
            parts.append(np.mean((model.predict(X[test], tasks=tasks[test]) - y[test]) ** 2))
        errors[features] = np.mean(parts)
    ratio = search.feature_scores_["spline"] / search.feature_scores_["linear"]
    np.testing.assert_allclose(ratio, errors["spline"] / errors["linear"], rtol=0.1)


class Watched(Spline):
    """A spline that remembers which rows its fits have seen."""

    seen = ()

    def _learn(self, X, y, weights):
        Watched.seen = [*Watched.seen, {tuple(row) for row in X}]
        return super()._learn(X, y, weights)


@pytest.mark.parametrize("layout", ["long", "shared"])
def test_maps_see_the_training_rows_of_their_fold_only(rng, layout):
    X, y, tasks = curved(rng, 20)
    named = {"tasks": tasks}
    if layout == "shared":
        X, y, named = X[:20], y.reshape(3, 20).T, {}
    splits = list(TaskKFold(3).split(X, y, tasks)) if named else [(np.arange(10), np.arange(10, 20))]
    Watched.seen = []
    MSSLRegressorCV(MSSLRegressor(features=[Watched()]), **QUICK | {"cv": splits}).fit(X, y, **named)
    assert Watched.seen[0] == {tuple(row) for row in X}
    assert Watched.seen[1:] == [{tuple(row) for row in X[train]} for train, _ in splits]


@pytest.mark.parametrize("scoring", [None, "neg_mean_squared_error"])
def test_a_fold_scores_what_a_fit_to_its_rows_predicts(rng, scoring):
    X, y, tasks = curved(rng, 30)
    splits = list(TaskKFold(2).split(X, y, tasks))
    search = MSSLRegressorCV(
        MSSLRegressor(features="spline", loss=Gaussian(noise_variance=1.0)), scoring=scoring, **QUICK | {"cv": splits}
    )
    search.set_params(
        param_grid={**QUICK["param_grid"], "prior_strength": [2.0], "shared_mean": [False]}, search_tol=1e-9
    ).fit(X, y, tasks=tasks)
    for number, (train, test) in enumerate(splits):
        model = MSSLRegressor(features="spline", loss=Gaussian(noise_variance=1.0)).set_params(**search.best_params_)
        model.fit(X[train], y[train], tasks=tasks[train])
        error = np.mean((model.predict(X[test], tasks=tasks[test]) - y[test]) ** 2)
        found = search.cv_results_[f"split{number}_test_score"][search.best_index_]
        np.testing.assert_allclose(-found, error, rtol=1e-5)


def test_sparse_columns_are_linear(rng):
    X, y, tasks = curved(rng, 30)
    thin = sparse.csr_array(X * (rng.uniform(size=X.shape) < 0.3))
    search = MSSLRegressorCV(MSSLRegressor(features="auto"), **QUICK).fit(thin, y, tasks=tasks)
    assert list(search.feature_scores_) == ["linear"]


def test_columns_without_curves_end_the_contest(rng):
    X = (rng.uniform(size=(90, 3)) < 0.5).astype(float)
    search = MSSLRegressorCV(MSSLRegressor(features="auto"), **QUICK).fit(
        X, X[:, 0] + rng.normal(size=90), tasks=np.arange(90) % 3
    )
    assert list(search.feature_scores_) == ["linear"]


def test_checkpoints_tell_contestants_apart(rng, tmp_path):
    X, y, tasks = curved(rng, 30)
    how = {"estimator": MSSLRegressor(features="auto"), "checkpoint": tmp_path / "scores", **QUICK}
    first = MSSLRegressorCV(**how).fit(X, y, tasks=tasks)
    again = MSSLRegressorCV(**how).fit(X, y, tasks=tasks)
    assert first.feature_scores_ == again.feature_scores_
    np.testing.assert_array_equal(first.coef_, again.coef_)


def test_a_search_with_categories_and_gaps_is_saved(rng, tmp_path):
    X, y, tasks = curved(rng, 30)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=rng.choice(["u", "v", "w"], size=90))
    frame.loc[3, "a"] = np.nan
    labels = np.where(y > y.mean(), "high", "low")
    search = MSSLClassifierCV(MSSLClassifier(features="spline", missing="indicator"), **QUICK).fit(
        frame, labels, tasks=tasks
    )
    assert "a missing" in search.features_
    assert "a: spline 1" in search.features_
    again = mssl.load(mssl.save(search, tmp_path / "search.npz"))
    np.testing.assert_array_equal(again.predict_proba(frame, tasks=tasks), search.predict_proba(frame, tasks=tasks))
    np.testing.assert_array_equal(
        search.predict(frame, tasks=tasks), search.best_estimator_.predict(frame, tasks=tasks)
    )


def test_paths_and_limits_know_the_features(rng):
    X, y, tasks = curved(rng, 30)
    model = MSSLRegressor(features="spline")
    assert model.limits(X, y, tasks=tasks).coef_penalty > 0
    followed = regularization_path(X, y, tasks=tasks, estimator=model, n_points=3)
    assert followed.coefs.shape == (3, 3, 12)


def test_a_map_of_your_own(rng):
    class Square(FeatureMap):
        kind = "square"

        def _learn(self, X, y, weights):
            return np.arange(X.shape[1])

        def _apply(self, X):
            return X**2

        def _names(self, columns):
            return [f"{name}²" for name in columns]

    X, _, tasks = curved(rng)
    y = X[:, 1] ** 2 + 0.01 * rng.normal(size=len(X))
    model = MSSLRegressor(features=[Square()]).fit(X, y, tasks=tasks)
    assert model.features_.tolist() == ["x0", "x1", "x2", "x0²", "x1²", "x2²"]
    assert model.score(X, y, tasks=tasks) > 0.99


@pytest.mark.parametrize(("margin", "wins"), [(0.5, False), (1.5, False), (2.5, True)])
def test_curves_win_by_two_standard_errors(margin, wins, rng, monkeypatch):
    """The paired advantage over folds decides, not the mean score alone."""
    X, y, tasks = curved(rng, n=30)
    monkeypatch.setattr("mssl.judge.held_out.advantages", lambda one, other: (margin * 0.01, 0.01))
    search = MSSLRegressorCV(MSSLRegressor(features="auto"), refit="best", **QUICK).fit(X, y, tasks=tasks)
    assert search.feature_members_ == ["spline" if wins else "linear"]
