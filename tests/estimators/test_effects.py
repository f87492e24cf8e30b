"""Partial effects: differences of predictions along one column, and relevance of whole columns."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import mssl
from mssl import MSSLClassifier, MSSLRegressor, MSSLRegressorCV
from mssl.data.columns import column_quantiles
from mssl.datasets import make_curved_tasks
from mssl.exceptions import DataError, ParameterError, UnseenTaskError
from mssl.plots import plot_coefficients, plot_effects


@pytest.fixture(scope="module")
def frame():
    data = make_curved_tasks("additive", n_tasks=4, n_samples=80, noise=0.1, random_state=0)
    rng = np.random.default_rng(1)
    kind = rng.choice(["u", "v", "w"], size=len(data.y))
    table = pd.DataFrame(data.X[:, :6], columns=list("abcdef")).assign(kind=kind)
    table.loc[5, "f"] = np.nan
    return table, data.y + np.asarray([{"u": 0.0, "v": 1.0, "w": -2.0}[k] for k in kind]), data.tasks


@pytest.fixture(scope="module")
def model(frame):
    X, y, tasks = frame
    return MSSLRegressor(0.05, features="spline+interactions", missing="indicator").fit(X, y, tasks=tasks)


def test_effects_are_differences_of_predictions(frame, model):
    X, _, _ = frame
    task = model.tasks_[2]
    effect = model.partial_effect("b", task)
    base = X.iloc[[0] * 50].assign(b=effect.x, kind="u", f=0.5)
    predicted = model.predict(base, tasks=np.repeat(task, 50))
    pairs = [name for name in model.features_ if "×" in name]
    if not pairs:  # then columns act apart, and others need not be at their means
        np.testing.assert_allclose(np.diff(predicted), np.diff(effect.effect), atol=1e-9)
    assert effect.x[0] == X["b"].min()
    assert effect.x[-1] == X["b"].max()
    assert effect.lower is None


def test_levels_are_told_apart(frame, model):
    X, _, _ = frame
    effect = model.partial_effect("kind", model.tasks_[0])
    assert effect.x.tolist() == ["u", "v", "w"]
    rows = X.iloc[[0, 0, 0]].assign(kind=["u", "v", "w"])
    np.testing.assert_allclose(
        np.diff(model.predict(rows, tasks=[model.tasks_[0]] * 3)), np.diff(effect.effect), atol=1e-9
    )
    assert abs(effect.effect[1] - effect.effect[0] - 1.0) < 0.3


def test_the_shared_curve_is_the_mean_of_the_tasks(model):
    own = [model.partial_effect("a", task).effect for task in model.tasks_]
    np.testing.assert_allclose(model.partial_effect("a").effect, np.mean(own, axis=0), atol=1e-12)
    # A sine: the curve found is close to it.
    x = model.partial_effect("a").x
    assert np.corrcoef(model.partial_effect("a").effect, np.sin(2 * np.pi * x))[0, 1] > 0.95


def test_relevance_is_the_spread_of_what_a_column_adds(rng):
    X, tasks = rng.uniform(size=(400, 3)), np.repeat([0, 1], 200)
    y = 3 * X[:, 0] + np.cos(6 * X[:, 1]) + 0.1 * rng.normal(size=400)
    model = MSSLRegressor(features="spline").fit(X, y, tasks=tasks)
    found = model.column_relevance()
    for column, name in enumerate(found):
        own = np.flatnonzero(model.maps_.column_of_ == column)
        added = model.maps_.transform(X)[:, own] @ model.coef_[:, own].T
        np.testing.assert_allclose(found[name], np.sqrt(added.var(axis=0).mean()), rtol=0.1)
    assert found["x0"] > found["x1"] > found["x2"]


def test_lines_of_linear_and_sparse_models(rng):
    X, tasks = rng.normal(size=(60, 3)), np.arange(60) % 2
    for given in (X, sparse.csr_array(X)):
        model = MSSLClassifier().fit(given, X[:, 0] > 0, tasks=tasks)
        effect = model.partial_effect(0, 1)
        np.testing.assert_allclose(effect.effect, (effect.x - X[:, 0].mean()) * model.coef_[1, 0], atol=1e-12)


def test_searches_and_saved_models_answer_alike(rng, tmp_path, model):
    again = mssl.load(mssl.save(model, tmp_path / "m.npz"))
    np.testing.assert_array_equal(again.partial_effect("a").effect, model.partial_effect("a").effect)
    assert again.column_relevance() == model.column_relevance()
    X, tasks = rng.normal(size=(60, 3)), np.arange(60) % 2
    search = MSSLRegressorCV(param_grid={"graph_penalty": [np.inf], "coef_penalty": [0.0]}, cv=2).fit(
        X, X[:, 1], tasks=tasks
    )
    np.testing.assert_array_equal(search.partial_effect(1).effect, search.best_estimator_.partial_effect(1).effect)
    assert search.column_relevance()["x1"] > 0.5


def test_what_is_refused(model):
    with pytest.raises(ParameterError, match=r"feature is 'z'.*'a', 'b'"):
        model.partial_effect("z")
    with pytest.raises(ParameterError, match="feature"):
        model.partial_effect(99)
    with pytest.raises(UnseenTaskError, match="nobody"):
        model.partial_effect("a", "nobody")
    with pytest.raises(ParameterError, match="n_points"):
        model.partial_effect("a", n_points=1)


def test_pictures(model, tmp_path):
    axes = plot_effects(model, most=4)
    assert len(axes) == 4
    names = [ax.get_xlabel() for ax in axes]
    relevance = model.column_relevance()
    assert names == sorted(relevance, key=lambda name: -relevance[name])[:4]
    assert len(axes[0].lines) == len(model.tasks_) + 2
    axes[0].figure.savefig(tmp_path / "effects.png")
    assert len(plot_effects(model, ["kind", "a"], tasks=model.tasks_[:1])) == 2
    assert plot_coefficients(model).get_xlabel()


def test_the_report_draws_curves(model, tmp_path):
    pytest.importorskip("matplotlib")
    from mssl import report

    text = report.write(model, tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="plot-effect-0"' in text
    assert "How much each column moves the predictions" in text


def test_models_saved_before_say_so_and_are_reported(rng, tmp_path):
    pytest.importorskip("matplotlib")
    from mssl import report

    old = MSSLRegressor().fit(rng.normal(size=(20, 2)), rng.normal(size=20))
    old.column_quantiles_ = None
    with pytest.raises(DataError, match="fit it again"):
        old.partial_effect(0)
    assert "Effects of columns" not in report.write(old, tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("rows", [1, 2, 21, 100])
def test_quantiles_are_those_of_numpy(rows, rng):
    X = rng.normal(size=(rows, 4))
    expected = np.quantile(X[:, :3], np.linspace(0, 1, 21), axis=0)
    for table in (X, sparse.csr_array(X)):
        np.testing.assert_allclose(
            column_quantiles(table[:, :3]), np.vstack([X[:, :3].mean(axis=0), expected]), atol=1e-12
        )
