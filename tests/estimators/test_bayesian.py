"""The Bayesian estimators: scikit-learn's manner, layouts, files, new tasks, intervals, and bad input."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, cross_validate
from sklearn.utils.estimator_checks import check_estimator

from mssl import BayesianMSSLClassifier, BayesianMSSLRegressor, load, save
from mssl.datasets import make_clustered_tasks
from mssl.evidence import choice
from mssl.exceptions import DataError, ParameterError, UnseenTaskError
from mssl.features import FeatureBlocks, Spline
from mssl.model_selection import CheckpointError
from mssl.report import write

PLAIN: dict[str, Any] = {"prior": "mean+ard", "features": "linear"}
BARE: dict[str, Any] = {**PLAIN, "calibrate": False, "residual_covariance": "independent"}  # no folds at all
BARE_LABELS: dict[str, Any] = {**PLAIN, "calibrate": False}


def draw(seed: int = 0, K: int = 5, n: int = 20, d: int = 3, *, labels: bool = False):
    """Tasks around one mean; X, y, task, sorted by task."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(K), n)
    W = np.linspace(2, -1, d) + 0.3 * rng.standard_normal((K, d))
    X = rng.standard_normal((K * n, d)) + 3
    eta = np.sum((X - 3) * W[task], axis=1) + rng.standard_normal(K)[task]
    y = eta + 0.5 * rng.standard_normal(K * n)
    return X, (y > 0).astype(int) if labels else y, task


@pytest.mark.parametrize(
    "estimator", [BayesianMSSLRegressor(**BARE), BayesianMSSLClassifier(**BARE_LABELS)], ids=["regressor", "classifier"]
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # scikit-learn's look at infinite labels
def test_check_estimator(estimator: object) -> None:
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] not in ("passed", "skipped")]
    assert not failed


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", [BayesianMSSLRegressor(), BayesianMSSLClassifier()], ids=["regressor", "classifier"]
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_check_estimator_with_all_that_is_automatic(estimator: object) -> None:
    # Weighted rows lie in one fold, repeated ones in several: folds choose and calibrate, and see different rows.
    reason = "folds part repeated rows, not weighted ones"
    expected = {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}
    check_estimator(estimator, on_skip=None, expected_failed_checks=expected)


def test_clones_and_grids() -> None:
    X, y, task = draw()
    table = np.column_stack([task, X])
    model = BayesianMSSLRegressor(**BARE, task_column=0)
    assert clone(model).get_params() == model.get_params()
    folds = KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(model, {"prior": ["ridge", "mean+ard"]}, cv=folds).fit(table, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_score_ > 0.5


@pytest.mark.parametrize(
    ("structure", "kind"), [("mean+ard", "regressor"), ("iw", "regressor"), ("auto", "regressor"), ("iw", "classifier")]
)
def test_a_saved_model_predicts_the_same(structure: str, kind: str, tmp_path) -> None:
    X, y, task = draw(labels=kind == "classifier")
    words = {"prior": structure, "features": "linear"}
    if kind == "classifier":
        model = BayesianMSSLClassifier(**words)
        answer = model.predict_proba
    else:
        model = BayesianMSSLRegressor(**words)
    model.fit(X, y, tasks=task)
    model.adapt(X[:4], y[:4], task=17)
    again = load(save(model, tmp_path / "model.npz"))
    index = np.where(np.arange(len(y)) < 10, 17, task)
    if kind == "classifier":
        np.testing.assert_array_equal(again.predict_proba(X, tasks=index), answer(X, tasks=index))
    else:
        for a, b in zip(
            again.predict(X, index, return_std=True), model.predict(X, index, return_std=True), strict=True
        ):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(again.predict_interval(X, tasks=index), model.predict_interval(X, tasks=index))
    draws = [m.sample_posterior(3, random_state=0) for m in (model, again)]
    np.testing.assert_array_equal(*draws)
    with pytest.warns(UserWarning, match="predicted from the mean"):
        a = again.predict(X, tasks=np.full(len(y), 99))
    with pytest.warns(UserWarning, match="predicted from the mean"):
        np.testing.assert_array_equal(a, model.predict(X, tasks=np.full(len(y), 99)))


def test_frames_and_arrays_are_the_same() -> None:
    X, y, task = draw()
    plain = BayesianMSSLRegressor(**PLAIN).fit(X, y, tasks=task).predict(X, tasks=task)
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "site": task}
    for frame in (pd.DataFrame(table), pl.DataFrame(table)):
        model = BayesianMSSLRegressor(**PLAIN, task_column="site").fit(frame, y)
        np.testing.assert_allclose(model.predict(frame), plain, rtol=1e-10)
    scattered = sparse.csr_matrix(X)
    np.testing.assert_allclose(BayesianMSSLRegressor(**PLAIN).fit(scattered, y, tasks=task).predict(scattered, tasks=task),
                               plain, rtol=1e-6)  # fmt: skip


def test_layouts_hold_the_same_tasks() -> None:
    X, y, task = draw()
    K, n, d = 5, 20, 3
    options = {**BARE, "intercepts": "free", "scale_targets": False, "tol": 1e-6}
    stacked = X.reshape(K, n, d).transpose(1, 0, 2)
    aligned = BayesianMSSLRegressor(**options).fit(stacked, y.reshape(K, n).T)
    long = BayesianMSSLRegressor(**options).fit(X, y, tasks=task)
    np.testing.assert_allclose(aligned.coef_, long.coef_, rtol=1e-8)
    np.testing.assert_allclose(aligned.predict(stacked), long.predict(X, tasks=task).reshape(K, n).T, rtol=1e-8)
    Y = np.column_stack([X[:n] @ np.ones(d) + y[k * n : (k + 1) * n] for k in range(K)])
    shared = BayesianMSSLRegressor(**options).fit(X[:n], Y)
    tall = BayesianMSSLRegressor(**options).fit(np.tile(X[:n], (K, 1)), Y.T.ravel(), tasks=task)
    np.testing.assert_allclose(shared.coef_, tall.coef_, rtol=1e-6)
    mean, std = shared.predict(X[:4], return_std=True)
    assert mean.shape == std.shape == (4, K)
    assert shared.predict_interval(X[:4]).shape == (4, K, 2)


def test_gaps_of_targets_are_rows_that_are_not_there() -> None:
    X, y, task = draw()
    rng = np.random.default_rng(0)
    stacked, Y = X.reshape(5, 20, 3).transpose(1, 0, 2), y.reshape(5, 20).T.copy()
    gone = rng.random(Y.shape) < 0.2
    options = {**BARE, "intercepts": "free", "tol": 1e-6}
    a = BayesianMSSLRegressor(**options).fit(stacked, np.where(gone, np.nan, Y))
    kept = ~gone.T.ravel()
    b = BayesianMSSLRegressor(**options).fit(X[kept], y[kept], tasks=task[kept])
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-6)


def test_known_targets_move_what_shares_their_errors_and_imputing_keeps_them() -> None:
    rng = np.random.default_rng(1)
    n, K = 60, 4
    X = rng.standard_normal((n, 2))
    error = rng.standard_normal((n, 1)) + 0.3 * rng.standard_normal((n, K))
    Y = X @ np.ones((2, K)) + error
    model = BayesianMSSLRegressor("mean", features="linear", residual_covariance="shared").fit(X[:40], Y[:40])
    known = Y[40:].copy()
    known[:, 3] = np.nan
    filled = model.impute(X[40:], known)
    np.testing.assert_array_equal(filled[:, :3], Y[40:, :3])
    off = filled[:, 3] - Y[40:, 3]
    plain = model.predict(X[40:])[:, 3] - Y[40:, 3]
    assert np.mean(off**2) < 0.4 * np.mean(plain**2)
    _, narrow = model.predict(X[40:], known=known, return_std=True)
    _, wide = model.predict(X[40:], return_std=True)
    assert np.all(narrow[:, 3] < wide[:, 3])
    correlation = model.residual_covariance_[0, 1] / model.noise_variance_.prod() ** 0.5
    assert correlation > 0.7
    with pytest.raises(ParameterError, match="known"):
        BayesianMSSLRegressor(**BARE).fit(X, Y[:, 0], tasks=np.arange(n) % 3).predict(
            X, tasks=np.arange(n) % 3, known=known
        )


def test_groups_and_order_make_folds_that_do_not_part_them() -> None:
    X, y, task = draw()
    day = np.tile(np.arange(20), 5)
    model = BayesianMSSLRegressor(**PLAIN).fit(X, y, tasks=task, groups=day)
    assert any("shared errors" in name for name, *_ in model.candidates_)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "day": day})
    named = BayesianMSSLRegressor(**PLAIN).fit(frame, y, tasks=task, groups="day")
    np.testing.assert_allclose(named.coef_, model.coef_)
    timed = BayesianMSSLRegressor(**PLAIN).fit(X, y, tasks=task, order=day)
    assert np.isfinite(timed.predict(X, tasks=task)).all()
    with pytest.raises(ParameterError, match="errors"):
        BayesianMSSLRegressor(**PLAIN, residual_covariance="shared").fit(X, y, tasks=task)


@pytest.mark.parametrize("features", [Spline(), (Spline(),), FeatureBlocks([Spline()])])
def test_feature_maps_are_taken_in_every_form(features: Any) -> None:
    X, y, task = draw()
    options = {"prior": "mean", "calibrate": False, "residual_covariance": "independent"}
    given = BayesianMSSLRegressor(**options, features=features).fit(X, y, tasks=task)
    listed = BayesianMSSLRegressor(**options, features=[Spline()]).fit(X, y, tasks=task)
    np.testing.assert_allclose(given.predict(X, tasks=task), listed.predict(X, tasks=task))


def test_errors_are_shared_by_rows_of_one_weight() -> None:
    X, y, task = draw()
    day = np.tile(np.arange(20), 5)
    options = {"features": "linear", "calibrate": False, "prior": "mean", "tol": 1e-8}
    weight = 1.0 + day % 3
    twice = BayesianMSSLRegressor(**options, residual_covariance="shared")
    weighted = twice.fit(X, y, tasks=task, groups=day, sample_weight=weight)
    again = np.repeat(np.arange(len(y)), weight.astype(int))
    copies = np.concatenate([np.arange(w) for w in weight.astype(int)])
    repeated = BayesianMSSLRegressor(**options, residual_covariance="shared")
    repeated.fit(X[again], y[again], tasks=task[again], groups=20 * copies + day[again])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)
    weight[0] = 5.0  # the errors of this row's occasion have no common weight
    with pytest.raises(DataError, match="same weight"):
        twice.fit(X, y, tasks=task, groups=day, sample_weight=weight)
    free = BayesianMSSLRegressor(**PLAIN).fit(X, y, tasks=task, groups=day, sample_weight=weight)
    assert not any("shared errors" in name for name, *_ in free.candidates_)


@pytest.mark.parametrize("labels", [False, True])
def test_new_tasks_are_predicted_from_the_mean_with_a_wider_distribution(labels: bool) -> None:
    X, y, task = draw(labels=labels)
    options = BARE_LABELS if labels else BARE
    model = (BayesianMSSLClassifier if labels else BayesianMSSLRegressor)(**options).fit(X, y, tasks=task)
    new = np.full(len(y), 99)
    with pytest.warns(UserWarning, match="99.*predicted from the mean") as caught:
        predicted = model.predict(X, tasks=new)
    assert len(caught) == 1
    with pytest.raises(UnseenTaskError):
        model.predict(X, tasks=new, unseen="error")
    if labels:
        return
    np.testing.assert_allclose(predicted, X @ model.mean_coef_ + model.unseen_intercept_, rtol=1e-8)
    with pytest.warns(UserWarning, match="99"):
        _, wide = model.predict(X, tasks=new, return_std=True)
    for k in range(5):
        _, narrow = model.predict(X, tasks=np.full(len(y), k), return_std=True)
        assert np.all(narrow < wide)


@pytest.mark.filterwarnings("ignore:.*predicted from the mean")
@pytest.mark.parametrize("labels", [False, True])
def test_cross_validation_over_tasks_is_finite(labels: bool) -> None:
    X, y, task = draw(labels=labels)
    table = np.column_stack([task, X])
    options = BARE_LABELS if labels else BARE
    model = (BayesianMSSLClassifier if labels else BayesianMSSLRegressor)(**options, task_column=0)
    scores = cross_val_score(model, table, y, groups=task, cv=GroupKFold(5))
    assert np.isfinite(scores).all()
    assert np.mean(scores) > 0.3
    # Without shuffling, folds of a table that is sorted by task hold tasks that were not fitted.
    assert np.isfinite(cross_validate(model, table, y, cv=3)["test_score"]).all()


def test_a_task_that_joins_moves_towards_its_refit() -> None:
    X, y, task = draw(K=6, n=40)
    old = task < 5
    rows = np.flatnonzero(~old)
    whole = BayesianMSSLRegressor(**BARE).fit(X, y, tasks=task).predict(X[rows], tasks=task[rows])
    model = BayesianMSSLRegressor(**BARE).fit(X[old], y[old], tasks=task[old])
    before = model.predict(X[:5], tasks=task[:5])
    with pytest.warns(UserWarning, match="predicted from the mean"):
        first = model.predict(X[rows], tasks=task[rows])
    _, wide = model.adapt(X[rows[:5]], y[rows[:5]], task=5).predict(X[rows], tasks=task[rows], return_std=True)
    few = model.predict(X[rows], tasks=task[rows])
    more = BayesianMSSLRegressor(**BARE).fit(X[old], y[old], tasks=task[old]).adapt(X[rows], y[rows], task=5)
    all_rows, narrow = more.predict(X[rows], tasks=task[rows], return_std=True)

    def off(predicted: np.ndarray) -> float:
        return float(np.sqrt(np.mean((predicted - whole) ** 2)))

    assert off(all_rows) < off(few) < off(first)
    assert off(all_rows) < 0.1
    assert np.all(narrow < wide)
    np.testing.assert_array_equal(model.predict(X[:5], tasks=task[:5]), before)
    assert model.coef_.shape == (6, 3)
    assert model.tasks_.tolist() == [0, 1, 2, 3, 4, 5]
    assert model.coef_interval().shape == (6, 3, 2)
    with pytest.raises(ParameterError, match="task"):
        model.adapt(X[:5], y[:5], task=0)


@pytest.mark.parametrize("structure", ["mean+ard", "iw", "auto"])
def test_draws_intervals_and_standard_deviations_agree(structure: str) -> None:
    X, y, task = draw()
    model = BayesianMSSLRegressor(structure, features="linear").fit(X, y, tasks=task)
    count = 4000
    draws = model.sample_posterior(count, random_state=0)
    assert draws.shape == (count, 5, 3)
    assert np.max(np.abs(draws.mean(axis=0) - model.coef_) / model.coef_std_) < 5 / np.sqrt(count) + 0.01
    np.testing.assert_allclose(draws.std(axis=0), model.coef_std_, rtol=0.08)
    inside = model.coef_interval(0.8)
    covered = np.mean((draws > inside[..., 0]) & (draws < inside[..., 1]))
    assert covered == pytest.approx(0.8, abs=0.02)
    ends, mean = model.predict_interval(X, 0.9, tasks=task), model.predict(X, tasks=task)
    assert np.all((ends[:, 0] < mean) & (mean < ends[:, 1]))
    wider = model.predict_interval(X, 0.99, tasks=task)
    assert np.all((wider[:, 0] < ends[:, 0]) & (ends[:, 1] < wider[:, 1]))
    assert np.mean((ends[:, 0] < y) & (y < ends[:, 1])) > 0.8
    with pytest.raises(ParameterError, match="level"):
        model.predict_interval(X, 1.2, tasks=task)


@pytest.mark.parametrize("kind", ["log", "yeo-johnson", "auto"])
def test_targets_on_other_scales_are_predicted_on_their_own(kind: str, tmp_path) -> None:
    X, z, task = draw(n=40)
    y = np.exp(0.5 * z)
    model = BayesianMSSLRegressor(**BARE, target_transform=kind).fit(X, y, tasks=task)
    on_scale = model.target_.forward(y)
    plain = BayesianMSSLRegressor(**BARE).fit(X, on_scale, tasks=task)
    np.testing.assert_allclose(model.coef_, plain.coef_)
    ends = model.predict_interval(X, tasks=task)
    np.testing.assert_allclose(ends, model.target_.inverse(plain.predict_interval(X, tasks=task)))
    mean, std = model.predict(X, tasks=task, return_std=True)
    # Against draws of the predictive distribution.
    forecast = plain._forecast(X[:3], task[:3], None)[0]
    noise = np.random.default_rng(0).standard_normal((200_000, 1))
    draws = model.target_.inverse(forecast.mean + np.sqrt(forecast.variance + forecast.dispersion) * noise)
    np.testing.assert_allclose(mean[:3], draws.mean(axis=0), rtol=0.02)
    np.testing.assert_allclose(std[:3], draws.std(axis=0), rtol=0.05)
    assert model.score(X, y, tasks=task) > 0.5
    again = load(save(model, tmp_path / "model.npz"))
    np.testing.assert_array_equal(again.predict(X, tasks=task), mean)
    rows = model.adapt(X[:9], y[:9], task=17).predict(X[:9], tasks=np.full(9, 17))
    other = plain.adapt(X[:9], on_scale[:9], task=17)
    np.testing.assert_allclose(model.coef_, other.coef_)
    assert np.all(rows > 0)
    if kind == "log":
        with pytest.raises(DataError, match="above 0"):
            model.adapt(X[:9], -y[:9], task=18)
    shared = BayesianMSSLRegressor("mean", features="linear", calibrate=False, target_transform=kind)
    Y = y.reshape(5, 40).T
    shared.fit(X[:40], Y)
    gaps = np.where(np.random.default_rng(1).random(Y.shape) < 0.2, np.nan, Y)
    filled = shared.impute(X[:40], gaps)
    np.testing.assert_array_equal(filled[~np.isnan(gaps)], Y[~np.isnan(gaps)])
    assert np.isfinite(filled).all()


@pytest.mark.parametrize("features", ["linear", "spline"])
def test_effects_have_bands_of_the_posterior(features: str) -> None:
    X, y, task = draw()
    model = BayesianMSSLRegressor("mean+ard", features=features, calibrate=False, residual_covariance="independent")
    model.fit(X, y, tasks=task)
    curve = model.partial_effect(1, task=2, level=0.8)
    assert np.all((curve.lower <= curve.effect) & (curve.effect <= curve.upper))
    if features == "linear":
        # The effect of a line is its weight times the distance from the mean.
        steps = curve.x - X[:, 1].mean()
        np.testing.assert_allclose(curve.effect, steps * model.coef_[2, 1], rtol=1e-8)
        half = stats.norm.ppf(0.9) * np.abs(steps) * model.coef_std_[2, 1]
        np.testing.assert_allclose(curve.upper - curve.effect, half, rtol=1e-6)
    wider = model.partial_effect(1, task=2, level=0.95)
    assert np.all(wider.upper - wider.lower >= curve.upper - curve.lower)
    # The mean of all tasks is known better than a single one.
    mean = model.partial_effect(1, level=0.8)
    assert np.mean(mean.upper - mean.lower) < np.mean(curve.upper - curve.lower)
    assert list(model.column_relevance()) == ["x0", "x1", "x2"]


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_counts_and_positive_targets(loss: str) -> None:
    rng = np.random.default_rng(0)
    X, _, task = draw(n=60)
    rate = np.exp(0.5 * (X[:, 0] - 3) + 1)
    y = rng.poisson(rate) if loss == "poisson" else rng.gamma(1.0, rate) + 1e-9
    model = BayesianMSSLRegressor(**PLAIN, loss=loss).fit(X, y, tasks=task)
    mean, std = model.predict(X, tasks=task, return_std=True)
    assert np.all(mean > 0)
    assert np.all(std > 0)
    ends = model.predict_interval(X, tasks=task)
    assert np.all(ends[:, 0] >= 0)
    assert np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])) > 0.85
    assert np.sqrt(np.mean((mean - rate) ** 2)) < 0.3 * np.std(rate)
    assert 0 < model.score(X, y, tasks=task) < 1
    with pytest.raises(ParameterError, match="loss"):
        BayesianMSSLRegressor(loss="bernoulli").fit(X, (y > 1).astype(float), tasks=task)


def test_class_weights_and_sample_weights() -> None:
    X, y, task = draw(labels=True, n=30)
    plain = BayesianMSSLClassifier(**BARE_LABELS).fit(X, y, tasks=task)
    heavy = BayesianMSSLClassifier(**BARE_LABELS, class_weight={0: 1, 1: 5}).fit(X, y, tasks=task)
    by_hand = BayesianMSSLClassifier(**BARE_LABELS).fit(X, y, tasks=task, sample_weight=np.where(y == 1, 5.0, 1.0))
    np.testing.assert_allclose(heavy.predict_proba(X, tasks=task), by_hand.predict_proba(X, tasks=task))
    assert np.mean(heavy.predict_proba(X, tasks=task)[:, 1]) > np.mean(plain.predict_proba(X, tasks=task)[:, 1])
    odds = plain.decision_function(X, tasks=task)
    np.testing.assert_allclose(plain.predict_proba(X, tasks=task)[:, 1], 1 / (1 + np.exp(-odds)), atol=1e-10)
    np.testing.assert_array_equal(plain.predict(X, tasks=task), (odds > 0).astype(int))


@pytest.mark.parametrize("labels", [False, True])
def test_a_killed_fit_goes_on_to_the_same_answer(labels: bool, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, task = draw(labels=labels)
    kind = BayesianMSSLClassifier if labels else BayesianMSSLRegressor
    whole = kind().fit(X, y, tasks=task)
    count, most, fit_once = 0, 12, choice.fit_evidence

    def counted(*args: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count > most:
            raise KeyboardInterrupt
        return fit_once(*args, **named)

    monkeypatch.setattr(choice, "fit_evidence", counted)
    path = tmp_path / "record"
    with pytest.raises(KeyboardInterrupt):
        kind(checkpoint=path).fit(X, y, tasks=task)
    judged = path.read_text().count('"key"')
    assert judged >= 1
    count, most = 0, 10**6
    model = kind(checkpoint=path).fit(X, y, tasks=task)
    going_on, count = count, 0
    kind().fit(X, y, tasks=task)
    assert going_on <= count - 5 * judged + 2 * 5  # bases of later candidates may be fitted again
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    assert model.candidates_ == whole.candidates_
    count = 0
    np.testing.assert_array_equal(kind(checkpoint=path).fit(X, y, tasks=task).coef_, whole.coef_)
    assert count < going_on
    with pytest.raises(CheckpointError, match="other data or other settings"):
        kind(checkpoint=path, tol=1e-2).fit(X, y, tasks=task)


def test_folds_that_would_leak_are_warned_of() -> None:
    rng = np.random.default_rng(0)
    task, day = np.repeat(np.arange(4), 30), np.tile(np.arange(30), 4)
    X = np.column_stack([rng.standard_normal((120, 2)), day])
    y = X[:, 0] + rng.standard_normal(30)[day] + 0.1 * rng.standard_normal(120)
    with pytest.warns(UserWarning, match="give groups='column 2' to fit"):
        BayesianMSSLRegressor(**PLAIN).fit(X, y, tasks=task)
    X, y, task = draw(n=60)
    drift = np.cumsum(rng.standard_normal(len(y)))
    with pytest.warns(UserWarning, match="give order= to fit"):
        BayesianMSSLRegressor(**PLAIN).fit(X, y + drift, tasks=task)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianMSSLRegressor(**PLAIN).fit(X, y + drift, tasks=task, order=np.arange(len(y)))


def test_mapie_wraps_the_estimator() -> None:
    regression = pytest.importorskip("mapie.regression")
    X, y, task = draw(n=60)
    table = np.column_stack([task, X])
    parts = np.array_split(np.random.default_rng(0).permutation(len(y)), 3)
    model = regression.SplitConformalRegressor(
        BayesianMSSLRegressor(**BARE, task_column=0), confidence_level=0.9, prefit=False
    )
    model.fit(table[parts[0]], y[parts[0]]).conformalize(table[parts[1]], y[parts[1]])
    mean, ends = model.predict_interval(table[parts[2]])
    assert np.all((ends[:, 0, 0] < mean) & (mean < ends[:, 1, 0]))
    # The share of 100 rows inside, given 100 to conformalise with, has a standard deviation of about 0.04.
    inside = (ends[:, 0, 0] <= y[parts[2]]) & (y[parts[2]] <= ends[:, 1, 0])
    assert 0.75 <= np.mean(inside) <= 1.0


def test_attributes_say_what_was_learned(capsys: pytest.CaptureFixture[str]) -> None:
    X, y, task = draw()
    X = np.column_stack([X, np.random.default_rng(9).standard_normal(len(y))])
    model = BayesianMSSLRegressor(features="linear", verbose=1).fit(X, y, tasks=task)
    assert "mean+ard" in capsys.readouterr().err
    weights = [weight for *_, weight in model.candidates_]
    assert sum(weights) == pytest.approx(1)
    assert model.structure_ in [name for name, *_ in model.candidates_]
    assert model.coef_.shape == model.coef_std_.shape == (5, 4)
    assert model.mean_coef_.shape == (4,)
    assert model.feature_relevance_[3] == min(model.feature_relevance_)
    for name in ("task_covariance_", "residual_covariance_"):
        matrix = getattr(model, name)
        assert matrix.shape == (5, 5)
        assert np.linalg.eigvalsh(matrix)[0] > 0
    np.testing.assert_allclose(model.noise_variance_**0.5, 0.5, rtol=0.4)
    assert np.all((model.effective_dof_ > 0) & (model.effective_dof_ < 20))
    assert np.isfinite(model.evidence_)
    assert model.graph_.n_tasks == 5 if hasattr(model.graph_, "n_tasks") else len(model.graph_.tasks) == 5


@pytest.mark.parametrize("labels", [False, True])
def test_a_page_can_be_written(labels: bool, tmp_path) -> None:
    X, y, task = draw(labels=labels)
    kind = BayesianMSSLClassifier if labels else BayesianMSSLRegressor
    model = kind(**(BARE_LABELS if labels else BARE)).fit(X, y, tasks=task)
    page = write(model, tmp_path / "page.html", data=(X, y, task))
    assert "<html" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"prior": "sparse"}, "prior"),
        ({"residual_covariance": "none"}, "residual_covariance"),
        ({"intercepts": "no"}, "intercepts"),
        ({"scale_targets": "no"}, "scale_targets"),
        ({"calibrate": 2}, "calibrate"),
        ({"tol": 0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"features": "cubic"}, "features"),
        ({"loss": "huber"}, "loss"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, Any], named: str) -> None:
    X, y, task = draw(n=6)
    with pytest.raises(ParameterError, match=named):
        BayesianMSSLRegressor(**parameters).fit(X, y, tasks=task)


def test_free_intercepts_of_labels_do_not_mind_where_a_task_has_its_features() -> None:
    """Shifting one task's features moves its intercept and nothing else; intercepts drawn together do mind."""
    rng = np.random.default_rng(3)
    tasks = np.repeat(np.arange(4), 25)
    X = rng.standard_normal((100, 3))
    y = (X @ [1.0, -1.0, 0.5] + 0.5 * tasks - 0.7 + rng.logistic(size=100) > 0).astype(int)
    moved = X + np.where(tasks == 2, 1.5, 0.0)[:, None]

    def probabilities(features: np.ndarray, free: bool) -> np.ndarray:
        model = BayesianMSSLClassifier(
            "mean", features="linear", intercepts="free" if free else "shrunk", calibrate=False, tol=1e-8
        )
        return model.fit(features, y, tasks=tasks).predict_proba(features, tasks=tasks)[:, 1]

    np.testing.assert_allclose(probabilities(moved, True), probabilities(X, True), atol=1e-5)
    assert np.abs(probabilities(moved, False) - probabilities(X, False)).max() > 1e-3


@pytest.mark.parametrize("level", [0.0, 2.5, 1e9])
@pytest.mark.parametrize("between", [0.0, 1.0])
def test_targets_that_do_not_vary_within_tasks_are_predicted(level, between):
    """No noise is left, and next to none of it every covariance is nearly singular."""
    random = np.random.default_rng(0)
    tasks = np.repeat(np.arange(8), 30)
    X, own = random.standard_normal((240, 10)), level + between * random.standard_normal(8)
    model = BayesianMSSLRegressor().fit(X, own[tasks], tasks=tasks)
    np.testing.assert_allclose(model.predict(X, tasks=tasks), own[tasks], atol=1e-3 * between + 1e-9 * level)


def test_plain_predictions_are_the_means_of_the_forecasts(rng):
    """Means alone are made from the averaged weights, those beside deviations from the members' forecasts."""
    data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1], [2, 3]], n_features=3, random_state=0)
    model = BayesianMSSLRegressor(cv=3).fit(data.X, data.y, tasks=data.tasks)
    new = rng.normal(size=(5, 3))
    for task in (*model.tasks_, "new"):
        tasks = np.repeat(np.asarray([task], dtype=object), 5)
        mean, _ = model.predict(new, tasks, "mean", return_std=True)
        np.testing.assert_allclose(model.predict(new, tasks, "mean"), mean, rtol=1e-10, atol=1e-10)
