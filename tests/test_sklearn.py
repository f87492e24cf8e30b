"""Everything of scikit-learn that a user would reach for works, in the long layout with a column of task ids."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.compose import ColumnTransformer
from sklearn.inspection import permutation_importance
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from mssl import MSSLRegressor, MultiTaskGLM
from mssl.datasets import make_clustered_tasks
from mssl.structures import SparsePrecision


@pytest.fixture(scope="module")
def frame() -> tuple[pd.DataFrame, pd.Series]:
    data = make_clustered_tasks(
        n_tasks=4, clusters=((0, 1), (2, 3)), n_features=4, n_samples=25, as_frame=True, random_state=0
    )
    return data.X, data.y


FOLDS = KFold(3, shuffle=True, random_state=0)


@pytest.mark.parametrize("estimator", [MSSLRegressor(), MultiTaskGLM()])
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
    assert model.score(X, y, weights) == pytest.approx(r2_score(y, model.predict(X), sample_weight=weights), rel=1e-12)


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
