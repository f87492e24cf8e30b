"""Everything of scikit-learn that a user would reach for works, in the long layout with a column of task ids."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.metrics import accuracy_score, make_scorer, max_error, r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from mssl import MSSLClassifierCV, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM
from mssl.datasets import make_clustered_tasks
from mssl.model_selection import TaskKFold
from mssl.structures import SparsePrecision


@pytest.fixture(scope="module")
def frame() -> tuple[pd.DataFrame, pd.Series]:
    data = make_clustered_tasks(
        n_tasks=4, clusters=((0, 1), (2, 3)), n_features=4, n_samples=25, as_frame=True, random_state=0
    )
    return data.X, data.y


FOLDS = KFold(3, shuffle=True, random_state=0)


GRID = {"param_grid": {"coef_penalty": [0.0], "prior_strength": [1.0], "shared_mean": [False]}, "cv": 2}
ONE = {"param_grid": {"graph_penalty": [0.3], **GRID["param_grid"]}, "cv": 2}


@pytest.mark.parametrize(
    "estimator",
    [
        MSSLRegressor(),
        MultiTaskGLM(),
        MSSLRegressorCV(**GRID),
        # Of scikit-learn's own look at infinite labels.
        pytest.param(
            MSSLClassifierCV(**GRID), marks=pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
        ),
        MSSLRegressorCV(MultiTaskGLM(), refit="best", cv=2),
    ],
)
def test_check_estimator(estimator: object) -> None:
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] not in ("passed", "skipped")]
    assert not failed


@pytest.mark.parametrize("scoring", [None, "r2"])
def test_grid_search_scores_and_predicts(frame: tuple[pd.DataFrame, pd.Series], scoring: str | None) -> None:
    X, y = frame
    search = GridSearchCV(MSSLRegressor(task_column="task"), {"graph_penalty": [0.1, 2.0]}, scoring=scoring, cv=FOLDS)
    search.fit(X, y)
    by_hand = [
        r2_score(y.iloc[test], clone(search.best_estimator_).fit(X.iloc[train], y.iloc[train]).predict(X.iloc[test]))
        for train, test in FOLDS.split(X)
    ]
    assert search.best_score_ == pytest.approx(np.mean(by_hand), abs=1e-9)
    assert search.predict(X).shape == (len(y),)


def test_a_structures_own_parameters_can_be_searched(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame
    model = MultiTaskGLM(SparsePrecision(), task_column="task")
    search = GridSearchCV(model, {"structure__alpha": [0.1, 0.5]}, cv=FOLDS).fit(X, y)
    assert search.best_params_["structure__alpha"] in (0.1, 0.5)


def test_cross_validation_helpers(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame
    model = MSSLRegressor(task_column="task")
    prediction = cross_val_predict(model, X, y, cv=FOLDS)
    assert prediction.shape == y.shape
    assert np.mean(cross_val_score(model, X, y, cv=FOLDS)) > 0.5


def test_pipeline_with_the_task_column_passed_through(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame
    numbers = [c for c in X.columns if c != "task"]
    plain = ColumnTransformer([("numbers", StandardScaler(), numbers)], remainder="passthrough")
    by_place = make_pipeline(plain, MSSLRegressor(task_column=4)).fit(X, y)
    named = ColumnTransformer(
        [("numbers", StandardScaler(), numbers)], remainder="passthrough", verbose_feature_names_out=False
    )
    by_name = make_pipeline(named.set_output(transform="pandas"), MSSLRegressor(task_column="task")).fit(X, y)
    direct = MSSLRegressor(task_column="task").fit(X, y)
    np.testing.assert_allclose(by_place.predict(X), direct.predict(X), atol=1e-6)
    np.testing.assert_allclose(by_name.predict(X), direct.predict(X), atol=1e-6)


def test_permutation_importance_finds_what_matters(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame
    X = X.assign(noise=np.random.default_rng(0).normal(size=len(X)))
    model = MSSLRegressor(task_column="task").fit(X, y)
    importance = permutation_importance(model, X, y, n_repeats=3, random_state=0).importances_mean
    assert importance[list(X.columns).index("noise")] < importance[list(X.columns) != np.asarray("noise")].max() / 10


def test_clones_and_pickles_predict_alike(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame
    model = MSSLRegressor(0.2, 0.5, task_column="task").fit(X, y)
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), model.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_score_is_r2(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame
    model = MSSLRegressor(task_column="task").fit(X, y)
    assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)), rel=1e-12)
    weights = np.arange(len(y)) + 1.0
    assert model.score(X, y, sample_weight=weights) == pytest.approx(
        r2_score(y, model.predict(X), sample_weight=weights), rel=1e-12
    )
    with pytest.warns(FutureWarning, match="by keyword"):
        assert model.score(X, y, weights) == model.score(X, y, sample_weight=weights)


def test_progress_callbacks_see_every_round(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame
    seen: list[str] = []

    class Counter:
        def setup(self, estimator: object, context: object) -> None:
            seen.append("setup")

        def on_fit_task_begin(self, estimator: object, context: object) -> None:
            pass

        def on_fit_task_end(self, estimator: object, context: object) -> bool:
            seen.append(context.task_name)  # type: ignore[attr-defined]
            return False

        def teardown(self, estimator: object, context: object) -> None:
            seen.append("teardown")

    model = MSSLRegressor(task_column="task").set_callbacks(Counter()).fit(X, y)
    assert seen[0] == "setup"
    assert seen[-1] == "teardown"
    assert seen.count("round") == model.n_iter_
    search = GridSearchCV(MSSLRegressor(task_column="task"), {"graph_penalty": [0.1, 0.5]}, cv=FOLDS)
    search.set_callbacks(ProgressBar()).fit(X, y)


def test_a_callback_can_stop_the_rounds(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame

    class Stop:
        def setup(self, estimator: object, context: object) -> None:
            pass

        def on_fit_task_begin(self, estimator: object, context: object) -> None:
            pass

        def on_fit_task_end(self, estimator: object, context: object) -> bool:
            return True

        def teardown(self, estimator: object, context: object) -> None:
            pass

    with pytest.warns(match="stopped"):
        model = MSSLRegressor(0.02, task_column="task", tol=1e-12).set_callbacks(Stop()).fit(X, y)
    assert model.n_iter_ == 1


def test_a_short_leash_warns_with_value_and_remedy(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame
    with pytest.warns(match=r"relative gap .* raise max_iter \(now 2\)"):
        MSSLRegressor(0.02, task_column="task", max_iter=2, tol=1e-12).fit(X, y)


def test_verbose_prints_one_line_a_round(
    frame: tuple[pd.DataFrame, pd.Series], capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = frame
    model = MSSLRegressor(task_column="task", verbose=1).fit(X, y)
    assert len(capsys.readouterr().err.strip().splitlines()) == model.n_iter_


def test_html_shows_the_fit_and_escapes_names(frame: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = frame
    hostile = X.assign(task=X["task"].astype(str) + "<script>alert(1)</script>")
    page = MSSLRegressor(task_column="task").fit(hostile, y)._repr_html_()
    assert "relative gap" in page
    assert "<script>alert(1)" not in page
    assert "relative gap" not in MSSLRegressor()._repr_html_()


def test_fits_write_nothing(frame: tuple[pd.DataFrame, pd.Series], capsys: pytest.CaptureFixture[str]) -> None:
    MSSLRegressor(task_column="task").fit(*frame)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert io.StringIO(captured.err).read() == ""


@pytest.mark.parametrize(
    "search", [MSSLRegressorCV(), MSSLClassifierCV(), MSSLRegressorCV(MultiTaskGLM(), refit="best")]
)
def test_searches_must_be_fitted_first(search: Any) -> None:
    with pytest.raises(NotFittedError):
        search.predict(np.ones((2, 3)))


def _searches(labels: bool) -> list[Any]:
    if labels:
        return [MSSLClassifierCV(**ONE)]
    return [MSSLRegressorCV(**ONE), MSSLRegressorCV(MultiTaskGLM(), refit="best", cv=2)]


@pytest.mark.parametrize("labels", [False, True])
def test_a_scorer_may_ask_the_model_for_its_own_score(labels: bool) -> None:
    data = make_clustered_tasks(n_tasks=3, n_features=4, n_samples=30, clusters=[[0, 1]], random_state=0)
    y = data.y > 0 if labels else data.y
    measure = accuracy_score if labels else r2_score
    scorers = [
        lambda model, X, y: model.score(X, y),
        lambda model, X, y: measure(y, model.predict(X)),
        lambda model, X, y: measure(y, model.predict(X, tasks=None)),
        make_scorer(measure),
    ]
    for search in _searches(labels):
        fits = [clone(search).set_params(scoring=scorer).fit(data.X, y, tasks=data.tasks) for scorer in scorers]
        for fit in fits[1:]:
            np.testing.assert_allclose(fit.cv_results_["mean_test_score"], fits[0].cv_results_["mean_test_score"])


def test_scorers_take_the_weights_of_the_test_rows() -> None:
    data = make_clustered_tasks(n_tasks=3, n_features=4, n_samples=30, clusters=[[0, 1]], random_state=0)
    weights = np.random.default_rng(0).integers(0, 4, len(data.y))  # 0: the row is not there
    twice = np.repeat(np.arange(len(data.y)), weights)
    train, test = next(TaskKFold(3).split(data.X, data.y, data.tasks))
    repeated = [np.flatnonzero(np.isin(twice, part)) for part in (train, test)]
    for scoring in ("r2", "neg_mean_absolute_error", "neg_max_error", lambda m, X, y: -max_error(y, m.predict(X))):
        search = MSSLRegressorCV(scoring=scoring, **ONE | {"cv": [(train, test)]})
        weighted = search.fit(data.X, data.y, tasks=data.tasks, sample_weight=weights).best_score_
        search.set_params(cv=[repeated]).fit(data.X[twice], data.y[twice], tasks=data.tasks[twice])
        assert weighted == pytest.approx(search.best_score_, rel=1e-5)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        column = search.fit(data.X[twice], data.y[twice, None], tasks=data.tasks[twice])
    assert column.best_score_ == pytest.approx(weighted, rel=1e-5)


@pytest.mark.parametrize("scoring", ["r2", "accuracy", "roc_auc"])
def test_scores_of_columns_are_means_over_tasks_without_what_is_missing(scoring: str) -> None:
    data = make_clustered_tasks(
        n_tasks=3, n_features=4, n_samples=40, clusters=[[0, 1]], layout="aligned", random_state=0
    )
    labels = scoring != "r2"
    y = np.where(data.y > 0, 1.0, 0.0) if labels else data.y.copy()
    y[::7, 1] = np.nan
    weights = np.random.default_rng(1).uniform(0.5, 2.0, y.shape)
    weights[3::5, 2] = 0.0
    train, test = next(TaskKFold(2).split(data.X, y))
    search = _searches(labels)[0].set_params(cv=[(train, test)], scoring=scoring, search_tol=1e-9)
    found = search.fit(data.X, y, sample_weight=weights)
    model = clone(found.best_estimator_).set_params(tol=1e-9)
    model.fit(data.X[train], y[train], sample_weight=weights[train])
    measure = {"r2": r2_score, "accuracy": accuracy_score, "roc_auc": roc_auc_score}[scoring]
    answer = model.predict_proba(data.X[test])[..., 1] if scoring == "roc_auc" else model.predict(data.X[test])
    seen = ~np.isnan(y[test]) & (weights[test] > 0)
    by_task = [
        measure(y[test][own, k], answer[own, k], sample_weight=weights[test][own, k]) for k, own in enumerate(seen.T)
    ]
    assert found.best_score_ == pytest.approx(np.mean(by_task), rel=1e-5)


@pytest.mark.parametrize("scoring", [None, "r2"])
def test_rows_in_lists_are_rows_in_arrays(scoring: str | None) -> None:
    data = make_clustered_tasks(n_tasks=3, n_features=4, n_samples=12, clusters=[[0, 1]], random_state=0)
    X = np.column_stack([np.unique(data.tasks, return_inverse=True)[1], data.X])
    search = MSSLRegressorCV(MSSLRegressor(task_column=0), scoring=scoring, **ONE)
    coef = search.fit(X, data.y).coef_
    np.testing.assert_array_equal(search.fit(X.tolist(), data.y.tolist()).coef_, coef)
    named = [[str(name), *row] for name, row in zip(data.tasks, data.X.tolist(), strict=True)]
    np.testing.assert_array_equal(search.fit(named, data.y).coef_, coef)


def test_the_module_is_the_command_line() -> None:
    answer = subprocess.run([sys.executable, "-m", "mssl", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("mssl, version")


def forgotten(name="site", levels=6, rows=10):
    """A frame with a column of ids beside two features, one of whole numbers that hardly recur."""
    random = np.random.default_rng(0)
    ids = np.tile(np.arange(levels), rows)
    X = pd.DataFrame({"x": random.normal(size=len(ids)), "count": random.permutation(len(ids)), name: ids})
    return X, X["x"] + ids + random.normal(size=len(ids))


@pytest.mark.parametrize(
    "estimator",
    [
        MSSLRegressor(0.3),
        MSSLRegressorCV(
            MSSLRegressor(), {"graph_penalty": [0.3], "coef_penalty": [0.0], "prior_strength": [1.0]}, cv=2
        ),
    ],
)
def test_a_frame_whose_task_column_was_forgotten_gets_a_warning(estimator):
    X, y = forgotten()
    with pytest.warns(UserWarning, match="one task, and the columns 'site' hold whole numbers.*task_column") as told:
        clone(estimator).fit(X, y)
    assert told[0].filename == __file__
    assert len(told) == 1
    place = "estimator__task_column" if isinstance(estimator, MSSLRegressorCV) else "task_column"
    clone(estimator).set_params(**{place: "site"}).fit(X, y)  # any warning is an error here
    clone(estimator).fit(X, y, tasks=["all"] * len(X))
    clone(estimator).fit(X.to_numpy(), y)  # columns of arrays have no names
    clone(estimator).fit(X.drop(columns="site"), y)


@pytest.mark.parametrize(("name", "told"), [("task", True), ("site_id", True), ("siteId", True), ("paid", False)])
def test_two_tasks_are_missed_where_the_name_says_so(name, told):
    X, y = forgotten(name, levels=2)
    if told:
        with pytest.warns(UserWarning, match=f"'{name}' hold whole numbers"):
            MSSLRegressor(0.3).fit(X, y)
    else:
        MSSLRegressor(0.3).fit(X, y)


def test_text_and_numbers_that_may_name_tasks_are_both_told():
    X, y = forgotten()
    X["town"] = np.where(np.arange(len(X)) % 2, "Oslo", "Riga")
    with pytest.warns(UserWarning, match="'town' are encoded as categories and the columns 'site' hold whole"):
        MSSLRegressor(0.3).fit(X, y)
