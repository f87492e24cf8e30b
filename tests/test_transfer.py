"""The transfer report counts on held-out rows, task by task."""

import numpy as np
import pytest
from scipy.stats import sem
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mssl import (
    BayesianMSSLClassifier,
    BayesianMSSLRegressor,
    MSSLClassifierCV,
    MSSLRegressor,
    MSSLRegressorCV,
    MultiTaskGLM,
    presets,
)
from mssl.datasets import make_clustered_tasks, make_residual_graph
from mssl.exceptions import ParameterError
from mssl.losses import Gaussian, Poisson
from mssl.structures import Independent, Pooled
from mssl.transfer import transfer_report


def report_on(data, model, **further):
    test = {"X_test": data.X_test, "y_test": data.y_test, "tasks_test": data.tasks_test}
    return transfer_report(model, data.X, data.y, data.tasks, **test, **further)


@pytest.fixture(scope="module")
def data():
    return make_clustered_tasks(random_state=0, n_tasks=6, clusters=[[0, 1, 2]], n_samples=20, n_test=60, n_features=12)


def test_figures_are_mean_squared_errors_of_both_fits(data):
    model, single = MSSLRegressor(0.2), MultiTaskGLM(Independent(1.0))
    report = report_on(data, model, single=single)
    together = model.fit(data.X, data.y, tasks=data.tasks).predict(data.X_test, tasks=data.tasks_test)
    alone = single.fit(data.X, data.y, tasks=data.tasks).predict(data.X_test, tasks=data.tasks_test)
    for k, task in enumerate(report.tasks):
        rows = data.tasks_test == task
        assert report.rows[k] == rows.sum()
        for values, prediction in ((report.together, together), (report.alone, alone)):
            assert values[k] == pytest.approx(np.mean((prediction - data.y_test)[rows] ** 2))
        assert report.gain[k] == pytest.approx(1 - report.together[k] / report.alone[k])


def test_a_model_against_itself_is_even(data):
    report = report_on(data, presets.ridge(1.0), single=presets.ridge(1.0))
    assert set(report.verdict) == {"even"}
    np.testing.assert_array_equal(report.gain, 0.0)


def test_pooling_unlike_tasks_is_called_a_loss_and_related_tasks_gain(data):
    pooled = report_on(data, MultiTaskGLM(Pooled(0.1)))
    assert pooled.counts()["loss"] >= 4
    related = report_on(data, MSSLRegressor(0.05))
    assert np.all(related.gain[:3] > pooled.gain[:3])
    assert related.gain[:3].mean() > 0


def test_the_order_of_rows_does_not_matter(data):
    plain = report_on(data, MSSLRegressor(0.2))
    mixed = np.random.default_rng(0).permutation(len(data.y_test))
    moved = transfer_report(
        MSSLRegressor(0.2),
        data.X,
        data.y,
        data.tasks,
        X_test=data.X_test[mixed],
        y_test=data.y_test[mixed],
        tasks_test=data.tasks_test[mixed],
    )
    np.testing.assert_allclose(moved.gain, plain.gain, atol=1e-12)


@pytest.mark.parametrize("layout", ["shared", "aligned"])
def test_other_layouts(layout):
    data = make_residual_graph(random_state=0, layout=layout, shared_design=layout == "shared", n_features=5)
    model = presets.r_mssl(0.3, 3.0)
    report = transfer_report(model, data.X, data.y, X_test=data.X_test, y_test=data.y_test)
    errors = np.mean((model.fit(data.X, data.y).predict(data.X_test) - data.y_test) ** 2, axis=0)
    np.testing.assert_allclose(report.together, errors)


def test_classifiers_are_compared_by_deviance():
    data = make_clustered_tasks(random_state=0, n_tasks=4, clusters=[[0, 1]], family="binary", n_features=6)
    reports = [report_on(data, model) for model in (presets.logistic(1.0), MSSLClassifierCV(**GRID))]
    for report in reports:
        assert np.all(report.together > 0)
        assert sum(report.counts().values()) == 4
    np.testing.assert_allclose(reports[0].alone, reports[1].alone, rtol=1e-6)


GRID = {
    "param_grid": {"graph_penalty": [0.1], "coef_penalty": [0.0], "prior_strength": [1.0], "shared_mean": [False]},
    "cv": 2,
}


@pytest.mark.parametrize(
    "model",
    [
        MSSLRegressorCV(**GRID),
        MSSLRegressorCV(MultiTaskGLM(), refit="best", cv=2),
        MSSLRegressorCV(MultiTaskGLM(Pooled()), {"structure__alpha": [1.0]}, refit="best", cv=2),
        presets.average_model(),
        presets.best_member(),
        presets.jfs(1.0),
        MultiTaskGLM(Independent(1.0), loss=Gaussian()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_estimator_is_compared_with_the_same_single_fits(data, model):
    report = report_on(data, model)
    np.testing.assert_allclose(report.alone, report_on(data, MSSLRegressor(0.2)).alone, rtol=1e-6)
    fitted = clone(model).fit(data.X, data.y, tasks=data.tasks)
    losses = (fitted.predict(data.X_test, tasks=data.tasks_test) - data.y_test) ** 2
    expected = [losses[data.tasks_test == task].mean() for task in report.tasks]
    np.testing.assert_allclose(report.together, expected, rtol=1e-9)


def test_searches_and_pipelines_of_scikit_learn_are_compared_too(data):
    train, test = (
        np.column_stack([X, np.unique(tasks, return_inverse=True)[1]])
        for X, tasks in ((data.X, data.tasks), (data.X_test, data.tasks_test))
    )
    model = MSSLRegressor(0.2, task_column=12)
    plain = transfer_report(model, train, data.y, X_test=test, y_test=data.y_test)
    search = GridSearchCV(model, {"graph_penalty": [0.2]}, cv=KFold(2, shuffle=True, random_state=0))
    scaled = make_pipeline(ColumnTransformer([("x", StandardScaler(), slice(0, 12))], remainder="passthrough"), model)
    for other in (search, scaled):  # features are scaled in any case, so that scaling them before changes nothing
        report = transfer_report(other, train, data.y, X_test=test, y_test=data.y_test)
        np.testing.assert_allclose(report.together, plain.together, rtol=1e-4)
        np.testing.assert_allclose(report.alone, plain.alone, rtol=1e-4)


def test_both_fits_are_measured_by_the_deviance_of_the_models_loss(data):
    y, y_test = np.round(np.exp(data.y / 10)), np.round(np.exp(data.y_test / 10))
    test = {"X_test": data.X_test, "y_test": y_test, "tasks_test": data.tasks_test}
    model, single = MSSLRegressor(0.2, loss="poisson"), MultiTaskGLM(Independent(1e9))
    report = transfer_report(model, data.X, y, data.tasks, **test, single=single)
    means = [y[data.tasks == task].mean() for task in report.tasks]
    expected = [
        Poisson().deviance(y_test[data.tasks_test == task], mean).mean()
        for task, mean in zip(report.tasks, means, strict=True)
    ]
    np.testing.assert_allclose(report.alone, expected, rtol=1e-3)


def test_it_reads_well(data):
    pandas = pytest.importorskip("pandas")
    report = report_on(data, MSSLRegressor(0.2))
    text = repr(report)
    assert all(str(task) in text for task in report.tasks)
    assert "verdict" in text
    frame = report.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc[report.tasks[0], "gain"] == report.gain[0]


def test_held_out_rows_are_needed(data):
    with pytest.raises(ParameterError, match="held-out"):
        transfer_report(MSSLRegressor(), data.X, data.y, data.tasks)
    first = [np.flatnonzero(data.tasks_test == task)[0] for task in np.unique(data.tasks_test)]
    with pytest.raises(ParameterError, match="one held-out row; give two"):
        transfer_report(
            MSSLRegressor(),
            data.X,
            data.y,
            data.tasks,
            X_test=data.X_test[first],
            y_test=data.y_test[first],
            tasks_test=data.tasks_test[first],
        )


@pytest.mark.parametrize("family", ["gaussian", "binary"])
def test_a_bayesian_model_is_held_to_single_fits_with_the_features_that_it_chose(family):
    data = make_clustered_tasks(
        random_state=0, family=family, n_tasks=3, n_samples=30, n_test=30, n_features=3, clusters=[[0, 1]]
    )
    model = (BayesianMSSLClassifier if family == "binary" else BayesianMSSLRegressor)("ridge", cv=2)
    assert sum(report_on(data, model).counts().values()) == 3
    assert model.features == "auto"


def test_the_error_of_a_gain_is_the_standard_error_of_a_mean_of_paired_differences(data):
    """As scipy has it: the standard deviation of the differences, one degree of freedom spent on their mean."""
    few = np.concatenate([np.flatnonzero(data.tasks_test == task)[:3] for task in np.unique(data.tasks_test)])
    X, y, tasks = data.X_test[few], data.y_test[few], data.tasks_test[few]
    model, single = MSSLRegressor(0.2), MultiTaskGLM(Independent(1.0))
    report = transfer_report(model, data.X, data.y, data.tasks, X_test=X, y_test=y, tasks_test=tasks, single=single)
    squares = [
        (one.fit(data.X, data.y, tasks=data.tasks).predict(X, tasks=tasks) - y) ** 2
        for one in (clone(model), clone(single))
    ]
    for k, task in enumerate(report.tasks):
        difference = (squares[1] - squares[0])[tasks == task]
        assert report.error[k] == pytest.approx(sem(difference))


def test_rows_without_a_target_are_left_out():
    data = make_clustered_tasks(
        n_tasks=3, n_features=3, clusters=[[0, 1]], layout="shared", shared_design=True, random_state=0
    )
    model, hidden = MSSLRegressor(0.2), data.y_test.copy()
    hidden[::3, 1] = np.nan
    whole, part = (
        transfer_report(model, data.X, data.y, X_test=data.X_test, y_test=y, single=model)
        for y in (data.y_test, hidden)
    )
    assert part.rows.tolist() == np.sum(~np.isnan(hidden), axis=0).tolist()
    np.testing.assert_array_equal(part.together[[0, 2]], whole.together[[0, 2]])
    seen = ~np.isnan(hidden[:, 1])
    predicted = model.fit(data.X, data.y).predict(data.X_test)[seen, 1]
    assert part.together[1] == pytest.approx(np.mean((hidden[seen, 1] - predicted) ** 2))
