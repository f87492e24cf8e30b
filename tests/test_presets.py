"""Every named method is an estimator of one API that descends to a certified end."""

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV

from mssl import presets
from mssl.data.layouts import stack_tasks
from mssl.estimators.baselines import AverageModel, BestMember, Climatology
from mssl.exceptions import LayoutError, ParameterError
from mssl.solvers.base import Status

EDGES = {"s2m2r": {"edges": [(0, 1), (1, 2)]}, "climatology": {"month": 0}}
BASELINES = {"average_model", "best_member", "climatology"}
ALIGNED_ONLY = {"r_mssl", "r_mssl_copula"}
WITH_LOSS = sorted(set(presets.available()) - BASELINES - ALIGNED_ONLY - {"logistic"})


def data_of(layout, seed=0, K=3, d=4, n=30):
    rng = np.random.default_rng(seed)
    Xs = [rng.standard_normal((n, d)) for _ in range(K)]
    if layout == "shared":
        Xs = [Xs[0]] * K
    ys = [X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n) for X in Xs]
    if layout == "long":
        return stack_tasks(Xs, ys)
    return (Xs[0] if layout == "shared" else np.stack(Xs, axis=1)), np.stack(ys, axis=1), None


def target_of(name, y, loss=None):
    if name == "logistic" or loss == "bernoulli":
        return (y > 0).astype(int)
    return np.round(np.exp(0.3 * y)) + (loss == "gamma") if loss in ("poisson", "gamma") else y


def fit(model, X, y, tasks):
    return model.fit(X, y) if tasks is None else model.fit(X, y, tasks=tasks)


def check_end(model):
    result = model.result_
    assert result.status in (Status.CONVERGED, Status.SETTLED)
    if result.status is Status.CONVERGED:
        assert result.relative_gap <= 1e-6
        values = np.array([record.objective for record in model.history_])
        assert np.all(np.diff(values) <= 1e-8 * max(1.0, abs(values[0])))


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
@pytest.mark.parametrize("name", presets.available())
def test_every_preset_fits_every_layout_it_is_made_for(name, layout):
    if name in ALIGNED_ONLY and layout == "long":
        pytest.skip("residuals need rows that belong together")
    X, y, tasks = data_of(layout)
    y = target_of(name, y)
    model = clone(presets.make(name, **EDGES.get(name, {})))
    fit(model, X, y, tasks)
    named = {} if tasks is None else {"tasks": tasks}
    assert model.predict(X, **named).shape == y.shape
    assert np.isfinite(model.score(X, y, **named))
    if name not in BASELINES:
        check_end(model)


@pytest.mark.parametrize("loss", ["bernoulli", "poisson", "gamma"])
@pytest.mark.parametrize("name", WITH_LOSS)
def test_presets_go_with_other_losses(name, loss):
    X, y, _ = data_of("shared")
    model = presets.make(name, loss=loss, **EDGES.get(name, {}))
    assert is_classifier(model) == (loss == "bernoulli")
    if name == "ols" and loss == "bernoulli":
        y = y + np.random.default_rng(1).standard_normal(y.shape) * 3  # separable classes have no unpenalised fit
    check_end(model.fit(X, target_of(name, y, loss)))


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("ridge", {"structure__alpha": [0.1, 10.0]}),
        ("jfs", {"penalty__alpha": [1.0, 10.0]}),
        ("low_rank", {"penalty__alpha": [1.0, 10.0]}),
        ("dirty", {"penalty__own": [0.3, 0.7]}),
        ("cmtl", {"structure__n_clusters": [1, 2]}),
        ("mtrl", {"structure__alpha": [0.1, 1.0]}),
        ("p_mssl", {"graph_penalty": [0.2, 0.5]}),
        ("r_mssl", {"coef_penalty": [0.5, 2.0]}),
        ("average_model", {"task_column": [None]}),
    ],
)
def test_grid_search_reaches_every_strength(name, grid):
    X, y, _ = data_of("shared")
    search = GridSearchCV(presets.make(name), grid, cv=2).fit(X, y)
    assert search.best_params_.keys() == grid.keys()
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_the_list_says_something_about_each():
    lines = presets.available()
    assert len(lines) == 18
    assert all(line.endswith(".") and len(line) < 100 for line in lines.values())
    for name in lines:
        doc = getattr(presets, name).__doc__
        assert "References" in doc
    with pytest.raises(ParameterError, match="allowed are 'ols'"):
        presets.make("gradient_boosting")


@pytest.mark.parametrize("name", presets.available())
def test_an_unknown_keyword_is_named_and_every_keyword_that_is_offered_instead_is_taken(name):
    with pytest.raises(ParameterError, match="no_such") as caught:
        presets.make(name, no_such=1)
    own, further = str(caught.value).split("; it takes ")[1].rstrip(".").split(", and for the estimator ")
    offered = [*(own.split(", ") if own != "nothing of its own" else ()), *further.split(", ")]
    assert "task_column" in offered
    for keyword in set(offered) - {"loss"}:
        presets.make(name, **{keyword: None})
    for keyword in {"structure", "penalty"} - set(offered):
        with pytest.raises(ParameterError, match=keyword):
            presets.make(name, **{keyword: None})


def test_logistic_takes_the_loss_it_has_and_no_other():
    assert repr(presets.logistic(2.0, loss="bernoulli")) == repr(presets.logistic(2.0))
    with pytest.raises(ParameterError, match=r"presets\.ridge"):
        presets.logistic(loss="poisson")


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
def test_the_average_model_and_the_best_member_are_what_they_say(layout):
    X, y, tasks = data_of(layout)
    rng = np.random.default_rng(1)
    flat_y = y if layout == "long" else y.T.ravel()
    if layout == "long":
        X = flat_y[:, None] + rng.standard_normal((len(flat_y), 3)) * [1.0, 0.1, 2.0]
        means = X.mean(axis=1)
    elif layout == "aligned":
        X = y[:, :, None] + rng.standard_normal((*y.shape, 3)) * [1.0, 0.1, 2.0]
        means = X.mean(axis=2)
    else:
        means = np.repeat(X.mean(axis=1)[:, None], 3, axis=1)
    named = {} if tasks is None else {"tasks": tasks}
    np.testing.assert_allclose(fit(AverageModel(), X, y, tasks).predict(X, **named), means)
    best = fit(BestMember(), X, y, tasks)
    if layout != "shared":
        assert np.all(best.member_ == 1)
        np.testing.assert_allclose(best.predict(X, **named), X[..., 1])


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
def test_climatology_is_the_mean_of_the_month(layout):
    rng = np.random.default_rng(0)
    n, K = 36, 3
    month = np.tile(np.arange(1.0, 13.0), 3)
    y = rng.standard_normal((n, K)) + month[:, None] * np.arange(K)
    normals = np.stack([y[month == m].mean(axis=0) for m in range(1, 13)])
    expected = normals[month.astype(int) - 1]
    other = rng.standard_normal(n)
    if layout == "long":
        X = np.tile(np.column_stack([other, month]), (K, 1))
        tasks = np.repeat(np.arange(K), n)
        predicted = Climatology(month=1).fit(X, y.T.ravel(), tasks=tasks).predict(X, tasks=tasks)
        np.testing.assert_allclose(predicted, expected.T.ravel())
        with pytest.raises(LayoutError, match="which task"):
            Climatology(month=1).fit(X, y.T.ravel(), tasks=tasks).predict(X)
        return
    X = np.column_stack([other, month])
    X = np.repeat(X[:, None, :], K, axis=1) if layout == "aligned" else X
    model = Climatology(month=1).fit(X, y)
    np.testing.assert_allclose(model.predict(X), expected)
    X[..., 1] = 13.0
    np.testing.assert_allclose(model.predict(X), np.tile(y.mean(axis=0), (n, 1)))


@pytest.mark.parametrize("month", [None, 7, "moon", True])
def test_climatology_needs_to_know_the_month(month):
    with pytest.raises(ParameterError, match="month"):
        Climatology(month=month).fit(np.ones((4, 2)), np.ones((4, 3)))


def test_edges_by_name_are_refused_with_the_way_to_positions():
    random = np.random.default_rng(0)
    X, tasks = random.normal(size=(30, 2)), np.repeat(["north", "south", "east"], 10)
    y = X @ [1.0, -1.0] + random.normal(size=30)
    for edges in ([("north", "south")], [("0", "1")], [(0.5, 1)]):
        with pytest.raises(ParameterError, match=r"give the positions of two tasks.*sorted\(names\)"):
            presets.make("s2m2r", edges=edges).fit(X, y, tasks=tasks)
    place = {name: k for k, name in enumerate(sorted(set(tasks.tolist())))}
    model = presets.make("s2m2r", edges=[(place["north"], place["south"])]).fit(X, y, tasks=tasks)
    assert [{edge.task_i, edge.task_j} for edge in model.graph_.support()] == [{"north", "south"}]
