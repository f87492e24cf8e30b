"""Fits to moments are the fits to the rows, by whatever way the moments came."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone

import mssl
from mssl import BayesianMSSLRegressor, Moments, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM
from mssl.data.layouts import read_tasks
from mssl.exceptions import DataError, ParameterError
from mssl.features import Linear
from mssl.model_selection import StabilitySelection, TaskKFold
from mssl.paper import PaperMSSL
from mssl.penalties import L21
from mssl.solvers import Solver
from mssl.structures import MeanRegularized

TIGHT = {"tol": 1e-12, "max_iter": 1000}
PLAIN = {"features": "linear", "residual_covariance": "independent", "calibrate": False, "tol": 1e-9, "max_iter": 2000}
MODELS = {
    "mssl": MSSLRegressor(0.1, **TIGHT),
    "sparse": MSSLRegressor(0.1, 0.02, shared_mean=True, **TIGHT),
    "without intercepts": MSSLRegressor(0.1, fit_intercept=False, **TIGHT),
    "as they are": MSSLRegressor(0.1, features=Linear(scale=False), **TIGHT),
    "paper": PaperMSSL(0.01, 0.001, **TIGHT),
    "mean": MultiTaskGLM(MeanRegularized(3.0), **TIGHT),
    "l21": MultiTaskGLM(penalty=L21(0.05), **TIGHT),
    "bayesian": BayesianMSSLRegressor("mean+ard", **PLAIN),
    "bayesian, dense": BayesianMSSLRegressor("iw", intercepts="free", **PLAIN),
}


def rows_of(seed=0, K=4, d=3, n=160, mean=20.0):
    rng = np.random.default_rng(seed)
    tasks = rng.permutation(np.repeat([f"site {k}" for k in range(K)], n // K))
    X = mean + rng.standard_normal((n, d)) * [1.0, 30.0, 0.2, 5.0][:d]
    W = rng.standard_normal(d) / [1.0, 30.0, 0.2, 5.0][:d] + 0.3 * rng.standard_normal((K, d))
    y = np.einsum("nd,nd->n", X, W[np.unique(tasks, return_inverse=True)[1]]) + rng.standard_normal(n)
    return X, y, tasks, rng.integers(0, 3, n).astype(float)


def chunks_of(rows, *cuts):
    return [tuple(part[a:b] for part in rows) for a, b in pairwise([0, *cuts, len(rows[1])])]


@pytest.mark.parametrize("name", MODELS)
def test_moments_give_the_fit_of_the_rows(name):
    rows = rows_of()
    by_rows = clone(MODELS[name]).fit(*rows)
    moments = Moments.from_chunks(chunks_of(rows, 3, 3, 90))
    ours = clone(MODELS[name]).fit_moments(moments)
    size = np.abs(by_rows.coef_).max()
    np.testing.assert_allclose(ours.coef_, by_rows.coef_, atol=1e-8 * size)
    np.testing.assert_allclose(ours.noise_variance_, by_rows.noise_variance_, rtol=2e-7)
    np.testing.assert_allclose(ours.precision_, by_rows.precision_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours.predict(rows[0], rows[2]), by_rows.predict(rows[0], rows[2]), rtol=1e-7)
    assert ours.tasks_.tolist() == by_rows.tasks_.tolist()


def test_large_means_cost_nothing():
    X, y, tasks, _ = rows_of(n=4000)
    model = MSSLRegressor(0.1, **TIGHT)
    ours = clone(model).fit_moments(
        Moments.from_chunks(chunks_of((X * 1e-3 + 1e6 * X.std(axis=0) * 1e-3, y, tasks), 999))
    )
    theirs = clone(model).fit(X * 1e-3, y, tasks=tasks)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8 * np.abs(theirs.coef_).max())


def test_chunk_by_chunk_ends_where_one_call_does():
    rows = rows_of()
    model = clone(MODELS["mssl"])
    for chunk in chunks_of(rows, 40, 100):
        model.partial_fit(*chunk)
    whole = clone(MODELS["mssl"]).fit(*rows)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-9)
    for fitted in (whole, model.fit(*rows)):
        with pytest.warns(UserWarning, match="rows that it does not keep"):
            fitted.partial_fit(*rows)
        assert fitted.moments_.n.sum() == rows[3].sum()


def test_moments_in_folds_give_the_search_of_the_same_folds():
    X, y, tasks, _ = rows_of(d=4)
    splits = list(TaskKFold(3, random_state=1).split(X, y, tasks))
    data = read_tasks(X, y, tasks=tasks)
    fold = np.empty(len(y), dtype=np.intp)
    for number, (_, test) in enumerate(splits):
        fold[test] = number
    moments = Moments.by_cell(data, fold[data.source_rows], 3)
    stability = StabilitySelection(random_state=0, n_subsamples=10)
    search = MSSLRegressorCV(cv=splits, selection="both", stability=stability, search_tol=1e-8)
    theirs = clone(search).fit(X, y, tasks=tasks)
    ours = clone(search).set_params(cv=3).fit_moments(moments)
    assert ours.best_params_ == pytest.approx(theirs.best_params_)
    done = theirs.cv_results_["certified"]  # other fits are cut off on their way
    scores = (model.cv_results_["mean_test_score"][done] for model in (ours, theirs))
    np.testing.assert_allclose(*scores, rtol=1e-4)
    assert done.mean() > 0.5
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(ours.graph_.adjacency, theirs.graph_.adjacency)
    grid = MSSLRegressorCV(MultiTaskGLM(MeanRegularized()), {"structure__alpha": [0.1, 10.0]}, refit="best", cv=splits)
    by_rows, by_moments = clone(grid).fit(X, y, tasks=tasks), clone(grid).set_params(cv=3).fit_moments(moments)
    np.testing.assert_allclose(by_moments.best_score_, by_rows.best_score_, rtol=1e-9)


def test_a_search_takes_chunks_one_by_one():
    rows = rows_of()
    search = MSSLRegressorCV(param_grid={"graph_penalty": [0.1], "prior_strength": [1.0]}, cv=3)
    for chunk in chunks_of(rows, 90):
        search.partial_fit(*chunk)
    assert search.moments_.n_folds == 3
    assert search.moments_.n.sum() == rows[3].sum()
    assert search.score(*rows[:2], tasks=rows[2]) > 0.9


def test_columns_keep_their_names():
    pd = pytest.importorskip("pandas")
    X, y, tasks, _ = rows_of()
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    frame.insert(1, "site", tasks)
    moments = Moments.from_chunks([(frame[:50], y[:50]), (frame[50:], y[50:])], task_column="site")
    ours = MSSLRegressor(task_column="site").fit_moments(moments)
    theirs = MSSLRegressor(task_column="site").fit(frame, y)
    assert ours.features_.tolist() == theirs.features_.tolist() == ["u", "v", "w"]
    assert ours.feature_names_in_.tolist() == theirs.feature_names_in_.tolist()
    np.testing.assert_allclose(ours.predict(frame), theirs.predict(frame), rtol=1e-4)
    with pytest.raises(ValueError, match="feature names should match"):
        ours.partial_fit(frame.rename(columns={"u": "z"}), y)
    with pytest.raises(DataError, match="knows no values of its columns"):
        ours.column_relevance()
    apart = MSSLRegressor().fit_moments(moments)
    np.testing.assert_allclose(apart.predict(frame[["u", "v", "w"]], tasks), ours.predict(frame))


def test_a_saved_model_leaves_its_moments_behind(tmp_path):
    rows = rows_of()
    model = MSSLRegressor().partial_fit(*rows)
    loaded = mssl.load(mssl.save(model, tmp_path / "model.npz"))
    assert not hasattr(loaded, "moments_")
    np.testing.assert_array_equal(loaded.predict(rows[0], rows[2]), model.predict(rows[0], rows[2]))


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (MSSLRegressor(loss="poisson"), "loss is 'poisson'.*no other loss"),
        (MSSLRegressor(features="spline"), "features is 'spline'"),
        (MSSLRegressor(target_transform="log"), "target_transform is 'log'"),
        (MSSLRegressor(missing="indicator"), "missing is 'indicator'"),
        (MSSLRegressor(relation="residual"), "relation is 'residual'"),
        (MSSLRegressorCV(scoring="r2"), "scoring is 'r2'"),
        (MSSLRegressorCV(selection="both", stability=StabilitySelection(subsample="samples")), "no rows to halve"),
    ],
)
def test_what_moments_do_not_tell_is_refused(model, match):
    moments = Moments.from_rows(*rows_of(), n_folds=3)
    with pytest.raises(ParameterError, match=match):
        model.fit_moments(moments)


def test_a_search_needs_folds():
    with pytest.raises(DataError, match=r"n_folds=5"):
        MSSLRegressorCV().fit_moments(Moments.from_rows(*rows_of()))
    with pytest.raises(ParameterError, match="cv is"):
        MSSLRegressorCV(cv=TaskKFold(3)).partial_fit(*rows_of())
    with pytest.raises(ParameterError, match="moments is 3"):
        MSSLRegressor().fit_moments(3)


def test_the_memory_of_grams_is_limited_and_a_switch_is_told():
    X, y, tasks, _ = rows_of()
    exact = MSSLRegressor(0.1, **TIGHT).fit(X, y, tasks=tasks)
    with pytest.warns(UserWarning, match=r"Grams would take .* memory_limit allows"):
        small = MSSLRegressor(0.1, solver=Solver(memory_limit=100), **TIGHT).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(small.coef_, exact.coef_, atol=1e-7)
    with pytest.raises(DataError, match="memory_limit"):
        MSSLRegressor(solver=Solver(memory_limit=100)).partial_fit(X, y, tasks)
    grid = {"param_grid": {"graph_penalty": [0.1], "prior_strength": [1.0], "shared_mean": [False]}, "cv": 3}
    folds = MSSLRegressorCV(**grid).fit(X, y, tasks=tasks)
    with pytest.warns(UserWarning, match=r"Grams would take"):
        rows = MSSLRegressorCV(MSSLRegressor(solver=Solver(memory_limit=100)), **grid).fit(X, y, tasks=tasks)
    assert rows.best_score_ == pytest.approx(folds.best_score_, rel=1e-3)
    with pytest.raises(ParameterError, match="memory_limit is 0"):
        MSSLRegressor(solver=Solver(memory_limit=0)).fit(X, y, tasks=tasks)
