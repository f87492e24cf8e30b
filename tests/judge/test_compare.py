"""Methods side by side: held-out rows alone, in every layout, and no word of their targets in the fits."""

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import GridSearchCV

from mssl import BayesianMSSLRegressor, MSSLClassifier, MSSLRegressor, MSSLRegressorCV, compare_methods, presets
from mssl.data.folds import Folds
from mssl.data.layouts import read_tasks
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import ParameterError
from mssl.metrics import task_means
from mssl.model_selection import TaskKFold

SMALL = {"n_tasks": 4, "n_features": 4, "n_samples": 20, "clusters": [[0, 1]], "random_state": 0}
GRID = {"graph_penalty": [0.3], "coef_penalty": [0.0], "prior_strength": [0.5, 2.0], "shared_mean": [False]}


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
def test_deviances_are_those_of_fits_to_the_other_rows(layout):
    data = make_clustered_tasks(**SMALL, layout=layout, shared_design=layout == "shared")
    named = {"tasks": data.tasks} if layout == "long" else {}
    names = {"tasks": data.task_names} if layout == "aligned" else named  # names of the columns
    rivals = {"ridge": presets.ridge(2.0), "mssl": MSSLRegressor(0.1)}
    found = compare_methods(rivals, data.X, data.y, **names, cv=3)
    read = read_tasks(data.X, data.y, **names)
    expected = {name: [] for name in rivals}
    for train, test in Folds.from_cv(read, 3):
        rows, held = np.unique(read.source_rows[train]), np.unique(read.source_rows[test])
        ids = [{"tasks": data.tasks[part]} if named else {} for part in (rows, held)]
        for name, model in rivals.items():
            fitted = model.fit(data.X[rows], data.y[rows], **ids[0])
            expected[name].append(np.mean((fitted.predict(data.X[held], **ids[1]) - data.y[held]) ** 2))
    for name, errors in expected.items():
        assert found["methods"][name]["RMSE"]["mean"] == pytest.approx(np.mean(np.sqrt(errors)))
    assert found["differences"]["mssl"]["deviance"] == pytest.approx(np.mean(np.subtract(*expected.values())))
    assert [row["task"] for row in found["tasks"]] == [str(task) for task in read.tasks]


def test_a_method_gains_nothing_over_itself():
    data = make_clustered_tasks(**SMALL)
    found = compare_methods({"one": presets.ridge(), "same": presets.ridge()}, data.X, data.y, data.tasks)
    assert found["differences"]["same"] == {"deviance": 0, "standard_error": 0, "share": 0, "share_error": 0}


@pytest.mark.parametrize(
    "model",
    [
        MSSLRegressorCV(param_grid=GRID, cv=2),
        GridSearchCV(MSSLRegressor(), {"graph_penalty": [0.1, 0.5]}, cv=TaskKFold(2)),
        BayesianMSSLRegressor(features="linear", prior="mean", cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_predictions_of_a_held_out_part_do_not_depend_on_its_targets(model):
    """Bit by bit: nothing that a search keeps has seen the rows on which it is judged."""
    data = make_clustered_tasks(**SMALL)
    X, tasks = data.X, np.unique(data.tasks, return_inverse=True)[1]
    train, test = next(TaskKFold(3).split(X, groups=tasks))
    if isinstance(model, GridSearchCV):
        X = np.column_stack([X, tasks])
        model = model.set_params(estimator__task_column=4, cv=TaskKFold(2, task_column=4))
    named = {} if isinstance(model, GridSearchCV) else {"tasks": tasks}
    other = data.y.copy()
    other[test] = 5 - 3 * other[test[::-1]]
    scores = [compare_methods({"one": model}, X, y, **named, cv=[(train, test)] * 2)["tasks"] for y in (data.y, other)]
    for own, moved, task in zip(*scores, range(4), strict=True):
        rows = test[tasks[test] == task]
        # Σ(y − m)² of two sets of targets of one prediction differ by what its mean says; no other prediction fits both.
        fitted = clone_fit(model, X, data.y, named, train).predict(X[rows], **{k: v[rows] for k, v in named.items()})
        for row, y in ((own, data.y), (moved, other)):
            assert row["deviance"]["one"] == pytest.approx(np.mean((y[rows] - fitted) ** 2), rel=1e-12)


def clone_fit(model, X, y, named, rows):
    from sklearn.base import clone

    return clone(model).fit(X[rows], y[rows], **{name: values[rows] for name, values in named.items()})


def test_labels_weights_offsets_and_groups():
    labels = make_clustered_tasks(**SMALL, family="binary")
    yes = np.where(labels.y == 1, "yes", "no")
    rivals = {"alone": presets.logistic(), "mssl": MSSLClassifier(0.3)}
    found = compare_methods(rivals, labels.X, yes, labels.tasks, cv=2)
    assert set(found["methods"]["mssl"]) == {"error", "AUC", "log loss"}
    random = np.random.default_rng(0)
    counts = random.poisson(2.0, len(labels.y)).astype(float)
    poisson = {"alone": presets.ridge(loss="poisson"), "mssl": MSSLRegressor(0.3, loss="poisson")}
    days, exposure = np.arange(len(counts)) % 10, random.uniform(1, 2, len(counts))
    found = compare_methods(poisson, labels.X, counts, labels.tasks, groups=days, offset=np.log(exposure), cv=2)
    assert "D2" in found["methods"]["mssl"]
    search = MSSLRegressorCV(presets.ridge(loss="poisson"), {"structure__alpha": [1.0]}, cv=2, refit="best")
    rivals = {
        "alone": presets.ridge(loss="poisson"),
        "searched": search,
    }  # among one: offsets reach its predictions too
    same = compare_methods(rivals, labels.X, counts, labels.tasks, groups=days, offset=np.log(exposure), cv=2)
    assert same["methods"]["searched"]["RMSE"]["mean"] == pytest.approx(same["methods"]["alone"]["RMSE"]["mean"])
    twice = np.tile(np.arange(len(counts)), 2)
    folds = [(np.flatnonzero(days % 2 == side), np.flatnonzero(days % 2 != side)) for side in (0, 1)]
    again = [tuple(np.r_[part, part + len(counts)] for part in pair) for pair in folds]
    heavy = compare_methods(poisson, labels.X, counts, labels.tasks, sample_weight=np.full(len(counts), 2.0), cv=folds)
    copied = compare_methods(poisson, labels.X[twice], counts[twice], labels.tasks[twice], cv=again)
    assert heavy["differences"]["mssl"] == pytest.approx(copied["differences"]["mssl"], rel=1e-4, abs=1e-6)


def test_what_is_no_dict_of_estimators_is_refused():
    for estimators in ([presets.ols()], {}):
        with pytest.raises(ParameterError, match="dict of name → estimator"):
            compare_methods(estimators, np.ones((4, 1)), np.ones(4))


def test_a_comparison_is_continued_from_its_record(tmp_path, monkeypatch):
    data = make_clustered_tasks(**SMALL)
    rivals, record = {"ridge": presets.ridge(2.0), "mssl": MSSLRegressor(0.1)}, tmp_path / "record"
    found = compare_methods(rivals, data.X, data.y, data.tasks, cv=2, checkpoint=record)
    monkeypatch.setattr(MSSLRegressor, "fit", lambda *_: pytest.fail("fitted again"))
    assert compare_methods(rivals, data.X, data.y, data.tasks, cv=2, checkpoint=record) == found


def test_r2_is_against_the_means_of_the_training_rows():
    rng = np.random.default_rng(0)
    y, tasks = rng.standard_normal(24) + 3, np.repeat([0, 1, 2], 8)
    data = read_tasks(np.zeros((24, 1)), y, tasks=tasks)
    found = compare_methods(
        {"zero": DummyRegressor(strategy="constant", constant=0.0)}, np.zeros((24, 1)), y, tasks, cv=4
    )
    by_hand = []
    for train, test in Folds.from_cv(data, 4):
        base = task_means(y[train], tasks[train], None, 3)[tasks[test]]
        by_hand.append(1 - np.sum(y[test] ** 2) / np.sum((y[test] - base) ** 2))
    assert found["methods"]["zero"]["R2"]["mean"] == pytest.approx(np.mean(by_hand))
