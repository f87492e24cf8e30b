"""Cross-validation: moments give what rows give, the refit is the plain fit, accuracy on known truths."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LassoCV, LinearRegression, RidgeCV
from sklearn.model_selection import KFold

from mssl import (
    MSSLClassifier,
    MSSLClassifierCV,
    MSSLRegressor,
    MSSLRegressorCV,
    MultiTaskGLM,
    StabilitySelection,
)
from mssl.data.folds import Folds
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import DataError, ParameterError
from mssl.features import Linear
from mssl.losses import Gaussian
from mssl.model_selection import TaskKFold, TaskTimeSeriesSplit
from mssl.model_selection.scores import follow, make_folds
from mssl.penalties import L1
from mssl.structures import FixedPrecision, GraphLaplacian, Independent, SparsePrecision

SMALL = {"n_tasks": 5, "clusters": [[0, 1, 2]], "n_features": 6, "n_samples": 24}


def _tasks(layout="long", **changes):
    return make_clustered_tasks(
        **(SMALL | changes), layout=layout, shared_design=layout == "shared", intercept_scale=2.0, random_state=1
    )


def _data(layout, **changes):
    data = _tasks(layout, **changes)
    return data, {"tasks": data.tasks} if layout == "long" else {}


def _both_folds(template, X, y, weights=None, cv=None, **more):
    data = template._read(X, y, more.get("tasks"), weights)
    folds = Folds.from_cv(data, TaskKFold(3) if cv is None else cv)
    return [make_folds(template, data, data, folds, None, by_rows=by_rows) for by_rows in (False, True)]


@pytest.mark.parametrize(
    ("layout", "settings"),
    [
        ("long", {}),
        ("shared", {}),
        ("aligned", {}),
        ("long", {"fit_intercept": False}),
        ("shared", {"features": Linear(scale=False)}),
        ("long", {"shared_mean": 500.0}),
    ],
)
def test_moments_give_the_fit_and_the_deviance_of_the_rows(layout, settings):
    data, more = _data(layout, n_samples=60)
    X = data.X * np.geomspace(0.1, 30, 6) + 5
    template = MSSLRegressor(0.5, 2.0, tol=1e-11, **settings)
    by_moments, by_rows = _both_folds(template, X, 50 * data.y, **more)
    assert len(by_moments[0].data.X) < len(by_rows[0].data.X)
    for first, second in zip(by_moments, by_rows, strict=True):
        (one,), (two,) = follow(first, template, [{}]), follow(second, template, [{}])
        ours, theirs = (point.prepared.unit * point.result.W for point in (one, two))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
        assert first.scores(one)[0] == pytest.approx(second.scores(two)[0], rel=1e-5)


def test_moments_with_weights_missing_targets_and_overlapping_windows():
    data, _ = _data("aligned", n_samples=90)
    y = data.y.copy()
    y[::5, 1] = np.nan
    weights = np.random.default_rng(0).integers(0, 3, y.shape).astype(float)
    template = MSSLRegressor(0.2, tol=1e-9)
    both = _both_folds(template, data.X, y, weights, cv=TaskTimeSeriesSplit(3))
    for first, second in zip(*both, strict=True):
        (one,), (two,) = follow(first, template, [{}]), follow(second, template, [{}])
        ours, theirs = (point.prepared.unit * point.result.W for point in (one, two))
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())
        assert first.scores(one)[0] == pytest.approx(second.scores(two)[0], rel=1e-5)


@pytest.mark.parametrize("loss", ["gaussian", "gamma"])
def test_units_of_the_deviance_know_nothing_of_the_test_rows(loss):
    data, more = _data("long", n_samples=60)
    y = data.y if loss == "gaussian" else np.exp(0.1 * data.y)
    template = MultiTaskGLM(Independent(), loss=loss)
    test = next(TaskKFold(3).split(data.X, y, data.tasks))[1]
    other = y.copy()
    other[test] = 3 * y[test[::-1]]
    for fold, same in zip(*(_both_folds(template, data.X, target, **more) for target in (y, other)), strict=True):
        units, others = (one[0].noise for one in (fold, same))
        np.testing.assert_allclose(units, others, rtol=1e-9)
        assert np.any(np.abs(same[1].noise / fold[1].noise - 1) > 0.1)


@pytest.mark.parametrize(("loss", "noise"), [("bernoulli", "auto"), ("poisson", "auto"), ("gaussian", 9.0)])
def test_known_dispersions_are_the_units_as_they_are(loss, noise):
    data, more = _data("long", n_samples=60)
    y = data.y if loss == "gaussian" else np.arange(len(data.y)) // 2 % 2
    template = MultiTaskGLM(Independent(), loss=loss).set_params(loss__noise_variance=noise)
    for folds in _both_folds(template, data.X, y, **more):
        for fold in folds:
            np.testing.assert_array_equal(fold.noise, np.full(5, 1.0 if noise == "auto" else 9.0))


@pytest.mark.parametrize("fewest", ["constant in training", "one training row"])
def test_tasks_that_tell_nothing_of_their_noise_have_the_units_of_the_others(fewest):
    data, _ = _data("long", n_samples=60)
    names = np.unique(data.tasks)
    own = np.flatnonzero(data.tasks == names[0])
    y, kept = data.y.copy(), np.ones(len(data.y), dtype=bool)
    train, test = np.setdiff1d(np.arange(len(y)), np.arange(0, len(y), 4)), np.arange(0, len(y), 4)
    if fewest == "one training row":
        kept[np.intersect1d(own, train)[1:]] = False
    else:
        y[np.intersect1d(own, train)] = 0.1
    place = np.cumsum(kept) - 1
    split = [(place[np.intersect1d(rows, np.flatnonzero(kept))]) for rows in (train, test)]
    template = MSSLRegressor(0.5, 2.0, tol=1e-11)
    folds = _both_folds(template, data.X[kept], y[kept], cv=PredefinedSplits([split]), tasks=data.tasks[kept])
    (by_moments,), (by_rows,) = folds
    units = by_moments.noise
    np.testing.assert_allclose(units, by_rows.noise, rtol=1e-6)
    assert units[1:].min() <= units[0] <= units[1:].max()
    (one,), (two,) = follow(by_moments, template, [{}]), follow(by_rows, template, [{}])
    assert by_moments.scores(one)[0] == pytest.approx(by_rows.scores(two)[0], rel=1e-5)


class PredefinedSplits(list):
    """Splits as a splitter."""

    def split(self, X, y, tasks=None):
        return self


def test_sparse_features_and_fewer_rows_than_features():
    data, more = _data("long", n_samples=60)
    template = MSSLRegressor(0.2, tol=1e-9)
    dense, _ = _both_folds(template, data.X, data.y, **more)
    thin, _ = _both_folds(template, sparse.csr_array(data.X), data.y, **more)
    for first, second in zip(dense, thin, strict=True):
        (one,), (two,) = follow(first, template, [{}]), follow(second, template, [{}])
        assert first.scores(one)[0] == pytest.approx(second.scores(two)[0], rel=1e-6)
    wide, more = _data("long", n_features=60, n_samples=12)
    by_rows, _ = _both_folds(template, wide.X, wide.y, **more)
    assert len(by_rows[0].data.X) == len(wide.X)  # fewer rows would not do


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
def test_refit_is_the_plain_estimator_with_the_best_parameters(layout):
    data, more = _data(layout)
    grid = {"param_grid": {"prior_strength": [1.0], "shared_mean": [False]}, "search": "grid"}
    search = MSSLRegressorCV(
        cv=3,
        refit="best",
        **{**grid, "param_grid": {**grid["param_grid"], "graph_penalty": [0.5, 0.1], "coef_penalty": [0.0, 4.0]}},
    ).fit(data.X, data.y, **more)
    assert search.members_ == [search.best_params_]
    plain = MSSLRegressor().set_params(**search.best_params_).fit(data.X, data.y, **more)
    np.testing.assert_allclose(search.coef_, plain.coef_, rtol=1e-9, atol=1e-12)
    test = {"tasks": data.tasks_test} if layout == "long" else {}
    np.testing.assert_allclose(search.predict(data.X_test, **test), plain.predict(data.X_test, **test))
    assert search.score(data.X_test, data.y_test, **test) == pytest.approx(
        plain.score(data.X_test, data.y_test, **test)
    )
    assert search.graph_ == plain.graph_
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert search.cv_results_["rank_test_score"][search.best_index_] == 1
    assert search.cv_results_["params"][search.best_index_] == search.best_params_


def test_table_is_ready_for_a_frame():
    pd = pytest.importorskip("pandas")
    data, more = _data("long")
    search = MSSLRegressorCV(cv=2).fit(data.X, data.y, **more)
    frame = pd.DataFrame(search.cv_results_)
    splits = frame[["split0_test_score", "split1_test_score"]].to_numpy(dtype=float)
    np.testing.assert_allclose(splits.mean(axis=1), frame.mean_test_score)
    assert len(frame) == len({str(params) for params in frame.params})
    assert {"no graph", "no graph, sparse", "graph, mean and coupling", "graph penalty"} <= set(frame.stage)
    assert {np.inf, 1.0, 0.0} <= set(frame.param_graph_penalty)  # no graph, the empty one, the full one


@pytest.mark.parametrize("mean", [False, 300.0])
def test_an_infinite_graph_penalty_is_one_ridge_for_all_tasks(mean):
    data, more = _data("long")
    model = MSSLRegressor(np.inf, prior_strength=5.0, shared_mean=mean, tol=1e-10).fit(data.X, 50 * data.y, **more)
    noise = np.exp(np.mean(np.log(model.noise_variance_)))
    plain = MultiTaskGLM(Independent(5.0 / noise), shared_mean=mean, tol=1e-10).fit(data.X, 50 * data.y, **more)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(model.precision_, 5.0 / noise * np.eye(5), rtol=1e-12)
    assert model.graph_.n_edges == 0
    with pytest.raises(ParameterError, match="prior_strength"):
        model.set_params(prior_strength=-1.0).fit(data.X, data.y, **more)


def test_the_search_does_not_depend_on_the_units_of_the_targets():
    data, more = _data("long")
    small, large = (MSSLRegressorCV(cv=3).fit(data.X, unit * data.y, **more) for unit in (1.0, 2.0**20))
    np.testing.assert_allclose(large.cv_results_["mean_test_score"], small.cv_results_["mean_test_score"], rtol=1e-6)
    np.testing.assert_allclose(large.coef_, 2.0**20 * small.coef_, rtol=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_graph_has_to_win_clearly_over_one_ridge(seed):
    search = MSSLRegressorCV(cv=5)
    data = make_clustered_tasks(n_features=20, n_samples=24, random_state=seed)
    noise = np.random.default_rng(seed).standard_normal(len(data.y))
    for target, learns in ((noise, False), (data.y, True)):
        search.fit(data.X, target, tasks=data.tasks)
        assert np.isfinite(search.best_params_["graph_penalty"]) == learns
        assert np.isfinite(search.graph_params_["graph_penalty"])


def test_a_path_left_early_chooses_as_the_whole_one_does():
    data = make_clustered_tasks(n_tasks=30, n_features=4, n_samples=300, shared_design=False, random_state=0)
    grid = {
        "param_grid": {"graph_penalty": np.geomspace(0.8, 0.001, 8), "coef_penalty": [0.0], "prior_strength": [1.0]}
    }
    grid["param_grid"] |= {
        "shared_mean": [False],
        "graph_penalty__shrinkage": [0.0],
        "graph_penalty__variance_floor": [0.125],
    }
    short = MSSLRegressorCV(**grid).fit(data.X, data.y, tasks=data.tasks)
    whole = MSSLRegressorCV(search="grid", **grid).fit(data.X, data.y, tasks=data.tasks)
    scores, all_scores = (m.cv_results_["mean_test_score"] for m in (short, whole))
    scored = np.isfinite(scores)
    assert np.isfinite(all_scores).all()
    assert 3 <= scored.sum() < len(scores)
    np.testing.assert_array_equal(scores[scored], all_scores[scored])
    assert not short.cv_results_["certified"][~scored].any()
    assert whole.best_score_ - short.best_score_ <= 1e-3 * abs(whole.best_score_)


def test_the_product_of_given_grids_is_scored_whole():
    data = make_clustered_tasks(n_tasks=12, n_features=5, n_samples=20, clusters=[range(12)], random_state=0)
    friends = GraphLaplacian(adjacency=np.ones((12, 12)) - np.eye(12))
    grid = {"structure__alpha": np.geomspace(1e-2, 1e5, 8)}
    search = MSSLRegressorCV(MultiTaskGLM(friends), grid, refit="best").fit(data.X, data.y, tasks=data.tasks)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()


def test_the_average_is_that_of_all_settings_within_a_standard_error():
    data, more = _data("long")
    settings = {
        "param_grid": {"prior_strength": [1.0, 5.0], "shared_mean": [False, 0.5]},
        "estimator": MSSLRegressor(tol=1e-9),
        "search": "grid",
        "cv": 4,
    }
    search = MSSLRegressorCV(
        search_tol=1e-9,
        **{
            **settings,
            "param_grid": {**settings["param_grid"], "graph_penalty": [0.5, 0.1], "coef_penalty": [0.0, 4.0]},
        },
    ).fit(data.X, data.y, **more)
    best = MSSLRegressorCV(
        search_tol=1e-9,
        refit="best",
        **{
            **settings,
            "param_grid": {**settings["param_grid"], "graph_penalty": [0.5, 0.1], "coef_penalty": [0.0, 4.0]},
        },
    ).fit(data.X, data.y, **more)
    assert search.best_params_ == best.best_params_ == search.members_[0]
    assert 1 < len(search.members_) < len(search.cv_results_["params"])
    models = [MSSLRegressor(tol=1e-9).set_params(**params).fit(data.X, data.y, **more) for params in search.members_]
    for name in ("coef_", "intercept_", "mean_coef_", "unseen_coef_", "unseen_intercept_"):
        expected = np.mean([getattr(model, name) for model in models], axis=0)
        np.testing.assert_allclose(getattr(search, name), expected, rtol=0.01, atol=2e-3, err_msg=name)
    assert search.graph_ == best.graph_
    assert search.objective_ == best.objective_
    # Within a standard error, over folds or over tasks: by hand from the table.
    results = search.cv_results_
    splits = np.stack([results[f"split{i}_test_score"] for i in range(4)], axis=1)
    gaps = splits[search.best_index_] - splits
    errors = gaps.std(axis=1, ddof=1) / 2
    inside = {str(p) for p in search.members_}
    for params, gap, error in zip(results["params"], gaps.mean(axis=1), errors, strict=True):
        assert str(params) in inside or gap > error


@pytest.mark.parametrize("settings", [{"refit": "one_se"}, {"selection": "graph"}])
def test_weights_for_the_graph_are_not_averaged(settings):
    data, more = _data("long")
    grid = {"graph_penalty": [0.5, 0.1], "coef_penalty": [0.0], "prior_strength": [1.0]}
    search = MSSLRegressorCV(param_grid=grid, cv=3, **settings).fit(data.X, data.y, **more)
    assert search.members_ == [search.best_params_]


def test_more_tasks_than_features_are_shrunk():
    data = make_clustered_tasks(n_features=4, n_samples=12, random_state=0)
    search = MSSLRegressorCV(param_grid={"prior_strength": [1.0], "coef_penalty": [0.0], "shared_mean": [False]}, cv=2)
    search.fit(data.X, data.y, tasks=data.tasks)
    assert set(search.cv_results_["param_graph_penalty__shrinkage"]) == {0.5}


def test_names_of_aligned_tasks_are_not_rows_of_a_scorer():
    data = make_clustered_tasks(n_tasks=3, clusters=[[0, 1]], n_features=2, layout="aligned", random_state=0)
    grid = {"graph_penalty": [0.3], "coef_penalty": [0.0], "prior_strength": [1.0], "shared_mean": [False]}
    plain, named = (
        MSSLRegressorCV(param_grid=grid, scoring="r2", cv=3).fit(data.X, data.y, tasks=names)
        for names in (None, ["a", "b", "c"])
    )
    assert named.tasks_.tolist() == ["a", "b", "c"]
    assert named.best_score_ == plain.best_score_


def test_any_scorer_of_scikit_learn():
    data, more = _data("long")
    grid = {
        "param_grid": {
            "graph_penalty": [0.5, 0.05],
            "coef_penalty": [0.0],
            "prior_strength": [1.0],
            "shared_mean": [False],
        }
    }
    search = MSSLRegressorCV(scoring="neg_mean_squared_error", cv=3, search="grid", **grid).fit(data.X, data.y, **more)
    splits = list(TaskKFold(3).split(data.X, data.y, data.tasks))
    for place, params in enumerate(search.cv_results_["params"]):
        for number, (train, test) in enumerate(splits):
            model = (
                MSSLRegressor(tol=1e-8).set_params(**params).fit(data.X[train], data.y[train], tasks=data.tasks[train])
            )
            error = np.mean((model.predict(data.X[test], tasks=data.tasks[test]) - data.y[test]) ** 2)
            assert search.cv_results_[f"split{number}_test_score"][place] == pytest.approx(-error, rel=0.02)
    column = np.column_stack([np.unique(data.tasks, return_inverse=True)[1], data.X])
    by_column = MSSLRegressorCV(
        MSSLRegressor(task_column=0), scoring="neg_mean_squared_error", cv=3, search="grid", **grid
    )
    by_column.fit(column, data.y)
    np.testing.assert_allclose(
        by_column.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"], rtol=1e-6
    )


def test_one_standard_error_takes_a_sparser_graph():
    data = make_clustered_tasks(n_features=10, n_samples=20, random_state=0)
    settings = {"param_grid": {"prior_strength": [1.0], "coef_penalty": [0.0], "shared_mean": [False]}}
    best = MSSLRegressorCV(cv=3, **settings).fit(data.X, data.y, tasks=data.tasks)
    simple = MSSLRegressorCV(cv=3, refit="one_se", **settings).fit(data.X, data.y, tasks=data.tasks)
    table = simple.cv_results_
    spread = table["std_test_score"][best.best_index_] * np.sqrt(3 / 2) / np.sqrt(3)
    assert simple.best_score_ >= best.best_score_ - spread - 1e-12
    assert table["mean_edges"][simple.best_index_] <= table["mean_edges"][best.best_index_]
    allowed = table["mean_test_score"] >= best.best_score_ - spread
    assert table["mean_edges"][simple.best_index_] == table["mean_edges"][allowed].min()


def test_selection_says_where_weights_and_graph_come_from():
    data = make_clustered_tasks(n_features=12, n_samples=30, random_state=0)
    settings = {"param_grid": {"prior_strength": [1.0], "coef_penalty": [0.0], "shared_mean": [False]}, "cv": 3}
    stable = StabilitySelection(n_subsamples=20, random_state=0)
    fits = {
        kind: MSSLRegressorCV(selection=kind, stability=stable, **settings).fit(data.X, data.y, tasks=data.tasks)
        for kind in ("prediction", "both", "graph")
    }
    np.testing.assert_array_equal(fits["prediction"].coef_, fits["both"].coef_)
    assert fits["prediction"].graph_.confidence is None
    assert fits["prediction"].graph_choice_.startswith("prediction")
    for kind in ("both", "graph"):
        assert fits[kind].graph_ == fits[kind].stability_.graph_
        assert fits[kind].graph_choice_.startswith("stability selection")
        assert f"selection='{kind}'" in repr(fits[kind])
        assert "graph chosen by stability selection" in fits[kind]._repr_html_()
    assert "graph chosen by prediction" in fits["prediction"]._repr_html_()
    assert fits["graph"].best_params_["graph_penalty"] > fits["prediction"].best_params_["graph_penalty"]
    for fit in fits.values():  # whatever was chosen, all that is said of it belongs together
        table, place = fit.cv_results_, fit.best_index_
        assert table["params"][place] == fit.best_params_ == _among(fit.best_estimator_.get_params(), fit.best_params_)
        assert table["mean_test_score"][place] == fit.best_score_
    assert fits["graph"].cv_results_["stage"][fits["graph"].best_index_] == "agreement with the stable graph"


def _among(params, names):
    return {name: getattr(params[name], "alpha", params[name]) for name in names}


@pytest.mark.parametrize("on", ["coef", "residual"])
def test_too_little_to_select_from_is_said_before_the_search(on, monkeypatch):
    monkeypatch.setattr("mssl.model_selection.scores.score_chain", lambda *_: pytest.fail("computed"))
    X, y = np.random.default_rng(0).standard_normal((2, 3, 3))
    X, y = (X, y) if on == "residual" else (np.tile(X, (4, 1)), np.tile(y, (4, 1)))
    with pytest.raises(ParameterError, match=r"There are 3 (rows|features) to halve"):
        MSSLRegressorCV(MSSLRegressor(relation=on), selection="both", cv=3).fit(X, y)


def test_classifier_chooses_and_predicts():
    data = make_clustered_tasks(**SMALL, family="binary", random_state=0)
    labels = np.where(data.y == 1, "yes", "no")
    grid = {"param_grid": {"prior_strength": [1.0], "shared_mean": [True, False]}, "search": "grid", "refit": "best"}
    search = MSSLClassifierCV(
        cv=3, **{**grid, "param_grid": {**grid["param_grid"], "graph_penalty": [0.5, 0.05], "coef_penalty": [0.0]}}
    ).fit(data.X, labels, tasks=data.tasks)
    plain = MSSLClassifier().set_params(**search.best_params_).fit(data.X, labels, tasks=data.tasks)
    np.testing.assert_allclose(search.coef_, plain.coef_, atol=1e-9)
    assert search.classes_.tolist() == ["no", "yes"]
    assert search.predict(data.X_test, tasks=data.tasks_test).dtype.kind == "U"
    splits = list(TaskKFold(3).split(data.X, labels, data.tasks))
    train, test = splits[0]
    model = (
        MSSLClassifier(tol=1e-8)
        .set_params(**search.best_params_)
        .fit(data.X[train], labels[train], tasks=data.tasks[train])
    )
    p = model.predict_proba(data.X[test], tasks=data.tasks[test])[:, 1]
    lost = -2 * np.log(np.where(labels[test] == "yes", p, 1 - p))
    mean = np.mean([lost[data.tasks[test] == task].mean() for task in np.unique(data.tasks)])
    assert search.cv_results_["split0_test_score"][search.best_index_] == pytest.approx(-mean, rel=0.01)


def test_general_estimator_over_any_parameters():
    data, more = _data("long")
    grid = {"structure__alpha": [0.1, 1.0, 10.0], "penalty__alpha": [0.0, 2.0]}
    estimator = MultiTaskGLM(Independent(), L1(), loss=Gaussian(noise_variance=1.0), features=Linear(scale=False))
    search = MSSLRegressorCV(estimator, grid, refit="best", cv=4).fit(data.X, data.y, **more)
    assert len(search.cv_results_["params"]) == 6
    plain = clone(estimator).set_params(**search.best_params_).fit(data.X, data.y, **more)
    np.testing.assert_allclose(search.coef_, plain.coef_, atol=1e-8)
    np.testing.assert_allclose(
        search.predict(data.X_test, tasks=data.tasks_test), plain.predict(data.X_test, tasks=data.tasks_test)
    )
    one = data.tasks == np.unique(data.tasks)[0]
    alone = MSSLRegressorCV(estimator, {"structure__alpha": [0.1, 1.0, 10.0]}, refit="best", cv=KFold(4))
    alone.fit(data.X[one], data.y[one])
    ridge = RidgeCV([0.1, 1.0, 10.0], cv=KFold(4), scoring="neg_mean_squared_error").fit(data.X[one], data.y[one])
    assert alone.best_params_["structure__alpha"] == ridge.alpha_
    assert alone.best_score_ == pytest.approx(ridge.best_score_, rel=1e-4)
    assert MSSLRegressorCV(MultiTaskGLM(), refit="best", cv=3).fit(data.X, data.y, **more).best_score_ <= 0


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (MSSLRegressorCV(param_grid={"graph_penalty": []}), "graph_penalty is empty"),
        (MSSLRegressorCV(param_grid={"shared_mean": []}), "shared_mean is empty"),
        (MSSLRegressorCV(search="random"), "'coordinate', 'grid'"),
        (MSSLRegressorCV(selection="all"), "'prediction', 'graph', 'both'"),
        (MSSLRegressorCV(param_grid={"noise": [0.5]}), "param_grid names 'noise'"),
        (MSSLRegressorCV(param_grid="all"), "give 'auto', or one dict"),
        (MSSLRegressorCV(refit="mean"), "'average', 'best', 'one_se'"),
        (MSSLRegressorCV(MultiTaskGLM(), selection="both"), "a general estimator"),
        (MSSLRegressorCV(stability="x"), "give a StabilitySelection"),
        (MSSLRegressorCV(selection="both", stability=StabilitySelection(threshold=0.2)), "threshold is 0.2"),
        (MSSLRegressorCV(scoring=["r2"]), "one scorer"),
        (MSSLRegressorCV(scoring="foo"), "scoring is 'foo'; give the name"),
        (MSSLRegressorCV(cv="abc"), "cv is 'abc'"),
        (MSSLRegressorCV(cv=100), "largest task has 24 rows"),
        (MSSLRegressorCV(cv=1), "whole number ≥ 2"),
        (MSSLRegressorCV(checkpoint=5), "checkpoint is 5"),
        (MSSLRegressorCV(LinearRegression()), "give an MSSL estimator, a MultiTaskGLM"),
        (MSSLRegressorCV(MultiTaskGLM(), [{}], refit="best"), "one dict"),
        (MSSLRegressorCV(MultiTaskGLM(), {}, refit="best"), "param_grid is empty"),
        (MSSLRegressorCV(MultiTaskGLM(), {"structure__beta": [1]}, refit="best"), "not searched over"),
        (MSSLRegressorCV(MultiTaskGLM(), {"structure__alpha": []}, refit="best"), "is empty"),
    ],
)
def test_bad_parameters_are_named(search, words):
    data, more = _data("long")
    with pytest.raises(ParameterError, match=words):
        search.fit(data.X, data.y, **more)


@pytest.mark.parametrize("shape", [(3,), (1, 3)])
def test_one_row_a_task_cannot_be_cross_validated(shape):
    y = np.arange(3.0).reshape(shape)
    more = {"tasks": ["a", "b", "c"]} if y.ndim == 1 else {}
    with pytest.raises(DataError, match="one row only") as caught:
        MSSLRegressorCV().fit(np.ones((len(y), 2)), y, **more)
    assert "folds" not in str(caught.value)


def _gain_kept(seed):
    data = make_clustered_tasks(random_state=seed)

    def error(coef):
        return np.mean((coef - data.coef) ** 2)

    rows = [data.tasks == task for task in np.unique(data.tasks)]
    plain = error(np.stack([LinearRegression().fit(data.X[own], data.y[own]).coef_ for own in rows]))
    known = MultiTaskGLM(
        FixedPrecision(data.precision), loss=Gaussian(noise_variance=1.0), features=Linear(scale=False)
    )
    oracle = error(known.fit(data.X, data.y, tasks=data.tasks).coef_)
    return (plain - error(MSSLRegressorCV().fit(data.X, data.y, tasks=data.tasks).coef_)) / (plain - oracle)


def _against_lasso(seed):
    data = make_clustered_tasks("sparse", random_state=seed)
    rows = [data.tasks == task for task in np.unique(data.tasks)]
    lasso = np.stack([LassoCV(cv=5, max_iter=20000).fit(data.X[own], data.y[own]).coef_ for own in rows])
    chosen = MSSLRegressorCV().fit(data.X, data.y, tasks=data.tasks).coef_
    return np.mean((chosen - data.coef) ** 2) / np.mean((lasso - data.coef) ** 2)


def test_keeps_most_of_the_gain_that_the_true_prior_has():
    assert np.mean([_gain_kept(seed) for seed in range(4)]) >= 0.8


@pytest.mark.slow
def test_keeps_most_of_the_gain_that_the_true_prior_has_for_all_seeds():
    assert np.mean([_gain_kept(seed) for seed in range(20)]) >= 0.8


@pytest.mark.slow
def test_sparse_truths_are_estimated_as_well_as_by_the_lasso():
    assert np.mean([_against_lasso(seed) for seed in range(20)]) <= 1.0


def test_rows_of_weight_zero_and_a_task_column():
    data = _tasks()
    weights = np.ones(len(data.y))
    weights[::7] = 0.0
    random = np.random.default_rng(0)
    order = random.permutation(len(data.y))
    X, y, tasks, weights = data.X[order], data.y[order], data.tasks[order], weights[order]
    beside = MSSLRegressorCV(cv=3).fit(X, y, tasks=tasks, sample_weight=weights)
    inside = MSSLRegressorCV(MSSLRegressor(task_column=0), cv=3).fit(
        np.column_stack([tasks, X]), y, sample_weight=weights
    )
    assert inside.best_params_ == beside.best_params_
    np.testing.assert_array_equal(inside.coef_, beside.coef_)


def test_default_grid_for_a_precision_as_the_paper_has_it():
    data = _tasks()
    search = MSSLRegressorCV(MultiTaskGLM(SparsePrecision(normalize=False)), refit="best", cv=3).fit(
        data.X, data.y, tasks=data.tasks
    )
    assert search.best_params_["structure__alpha"] > 0
    strongest = np.asarray(search.cv_results_["param_structure__alpha"], dtype=float).argmax()
    assert search.cv_results_["mean_edges"][strongest] < 0.2 * search.cv_results_["mean_edges"].max()


@pytest.mark.parametrize("model", [MSSLRegressor(), MSSLClassifier(), MSSLRegressorCV()])
def test_no_score_before_a_fit(model):
    data = _tasks()
    with pytest.raises(NotFittedError):
        model.score(data.X, data.y, tasks=data.tasks)


@pytest.mark.parametrize("given", [np.inf, SparsePrecision(alpha=np.inf)])
def test_a_search_may_start_from_a_fit_without_a_graph(given):
    """λ is searched, whatever λ the given estimator has."""
    data = make_clustered_tasks(n_tasks=5, clusters=[[0, 1, 2]], n_features=6, n_samples=24, random_state=0)
    grid = {"coef_penalty": [0.0], "shared_mean": [False], "prior_strength": [1.0]}
    found, usual = (
        MSSLRegressorCV(MSSLRegressor(graph_penalty=penalty), param_grid=grid, cv=2).fit(data.X, data.y, data.tasks)
        for penalty in (given, SparsePrecision() if isinstance(given, SparsePrecision) else 0.3)
    )
    assert found.best_params_ == usual.best_params_
    np.testing.assert_allclose(found.coef_, usual.coef_, rtol=1e-9)
