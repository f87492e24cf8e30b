"""Comparisons of methods: held-out rows alone, paired differences, weights, a picture."""

import json

import numpy as np
import pytest
from command_line import call, rows_of, run, write_table

from mssl.cli._tables import TableOptions, read_training
from mssl.cli.compare import cross_validate
from mssl.data.folds import Folds
from mssl.judge.compare import measures, paired_difference
from mssl.judge.held_out import mean_by_task
from mssl.losses import resolve_loss
from mssl.methods import make_estimator

pytest.importorskip("pyarrow")


def read(path):
    return read_training(TableOptions(data=str(path), task="station", target="y"))


@pytest.fixture
def training(tmp_path):
    return read(write_table(tmp_path / "data.csv"))


def test_figures_are_of_rows_that_were_not_fitted_on(training):
    """The same by hand; and targets of a part that are changed change no fit that predicts it."""
    outcome = cross_validate(training, ["ols", "pooled"], 3, 0)
    errors, data, tasks = [], rows_of(training), np.asarray(training.given["tasks"])
    for train, test in Folds.from_cv(data, training.cv(3, 0)):
        model = make_estimator("ols", "gaussian").fit(data.X[train], data.y[train], tasks=tasks[train])
        errors.append(np.mean((model.predict(data.X[test], tasks=tasks[test]) - data.y[test]) ** 2))
    assert outcome["methods"]["ols"]["RMSE"]["mean"] == pytest.approx(np.mean(np.sqrt(errors)))
    fitted = make_estimator("ols", "gaussian").fit(data.X, data.y, tasks=tasks)
    inside = np.mean((fitted.predict(data.X, tasks=tasks) - data.y) ** 2)
    assert np.mean(errors) > inside


def test_differences_are_paired_and_corrected():
    rng = np.random.default_rng(0)
    first = 5 + rng.normal(size=5)
    found = paired_difference(first, first - np.array([0.1, 0.2, 0.3, 0.2, 0.2]))
    assert found["deviance"] == pytest.approx(0.2)
    assert found["standard_error"] == pytest.approx(np.sqrt(0.005 * (1 / 5 + 1 / 4)))
    assert found["share"] == pytest.approx(0.2 / first.mean())
    assert paired_difference(first, first)["standard_error"] == 0
    constant = paired_difference(first, first - 0.3)
    assert constant["standard_error"] == pytest.approx(0, abs=1e-12)


def test_differences_agree_with_the_tasks(training):
    outcome = cross_validate(training, ["ols", "pooled", "ridge"], 2, 0)  # parts and tasks are of equal size
    for name in ("pooled", "ridge"):
        by_task = [row["deviance"]["ols"] - row["deviance"][name] for row in outcome["tasks"]]
        assert outcome["differences"][name]["deviance"] == pytest.approx(np.mean(by_task))
        for row in outcome["tasks"]:  # gains are the tasks' own paired differences
            expected = 1 - row["deviance"][name] / row["deviance"]["ols"]
            assert row["gain"][name]["share"] == pytest.approx(expected)


def test_a_task_alone_gains_what_all_gain(tmp_path):
    """One task: the gain of the task, with its standard error, is the difference of the methods."""
    path = write_table(tmp_path / "one.csv", names=["Oslo"], rows=40)
    outcome = cross_validate(read(path), ["ols", "ridge"], 4, 0)
    (row,) = outcome["tasks"]
    for name in ("share", "share_error"):
        assert row["gain"]["ridge"][name] == pytest.approx(outcome["differences"]["ridge"][name])


def test_deviances_are_averaged_by_part_and_task(training):
    data = rows_of(training)
    deviance = np.arange(len(data.y), dtype=float)
    for _, test in Folds.from_cv(data, training.cv(3, 0)):
        means = mean_by_task(data, deviance, test)
        for k, name in enumerate(sorted(set(training.given["tasks"].tolist()))):
            np.testing.assert_allclose(means[k], deviance[test & (np.asarray(training.given["tasks"]) == name)].mean())
    alone = mean_by_task(data, deviance, data.task_of_row == 1)
    assert np.flatnonzero(np.isfinite(alone)).tolist() == [1]


@pytest.mark.parametrize("family", ["gaussian", "binary", "poisson"])
def test_measures_count_weighted_rows(family):
    rng = np.random.default_rng(1)
    y = (rng.random(40) < 0.5).astype(float) if family == "binary" else rng.poisson(3, 40).astype(float)
    mean, weights, base = rng.uniform(0.1, 0.9, 40), rng.integers(1, 4, 40), rng.uniform(2, 4, 40)
    loss = resolve_loss("bernoulli" if family == "binary" else family)
    one = measures(loss, y, mean, weights.astype(float), base)
    again = (np.repeat(part, weights) for part in (y, mean))
    two = measures(loss, *again, np.ones(weights.sum()), np.repeat(base, weights))
    assert one == pytest.approx(two)
    alone = measures(loss, y, base, np.ones(40), base) if family != "binary" else {}
    assert all(alone[name] == 0 for name in ("R2", "D2") if name in alone)


def test_the_picture_and_the_words(tmp_path):
    pytest.importorskip("matplotlib")
    path = write_table(
        tmp_path / "data.csv", names=[f"a station with quite a long name {k}" for k in range(25)], rows=9
    )
    columns = ("--task", "station", "--target", "y", "--methods", "ols,pooled", "--folds", "2")
    done = run("compare", path, *columns, "--picture", tmp_path / "methods.png")
    assert (tmp_path / "methods.png").read_bytes().startswith(b"\x89PNG")
    assert "Rows not fitted on" in done.stdout
    assert "less deviance than ols" in done.stdout
    assert "± is one standard error over the test parts" in done.stdout
    assert all(f"a station with quite a long name {k} " in done.stdout for k in range(25))  # a pipe is not cut
    call("compare", path, *columns, "--picture", tmp_path / "no" / "methods.png", code=1)
    call("compare", path, *columns, "--picture", tmp_path / "methods.xls", code=2)
    outcome = json.loads(run("compare", path, *columns, "--json").stdout)
    assert set(outcome["differences"]) == {"pooled"}
