"""Signs of rows that are not independent: found where they are, not where they are not."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from mssl import MSSLClassifierCV, MSSLRegressorCV
from mssl.data.hints import (
    neighbour_correlation,
    repeated_rows,
    warn_of_exposure,
    warn_of_ids,
    warn_of_residuals,
)
from mssl.data.layouts import read_tasks

QUICK = {
    "param_grid": {"graph_penalty": [1.0], "prior_strength": [1.0], "coef_penalty": [0.0], "shared_mean": [False]},
    "cv": 3,
}


def table(seed=0, K=5, n=30, d=3):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((K * n, d)), columns=list("abc"))
    return frame, rng.standard_normal(K * n), np.repeat(np.arange(K), n)


def repeats(frame, y, tasks):
    """The column that looks like an id, and the share of rows whose value recurs, as the warning tells them."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warn_of_ids(read_tasks(frame, y, tasks=tasks))
    if not told:
        return None
    share, name = re.match(r"(\d+)% of the rows have the value of '(.*)' of a row", str(told[0].message)).groups()
    return name, int(share) / 100


def test_ids_that_tasks_share_are_found_and_named():
    frame, y, tasks = table()
    assert repeats(frame, y, tasks) is None
    rng = np.random.default_rng(1)
    frame["patient"] = np.concatenate([rng.permutation(40)[:30] for _ in range(5)])
    name, share = repeats(frame, y, tasks)
    assert name == "patient"
    assert share > 0.9


def test_rows_that_tasks_share_are_found_where_their_residuals_are_alike():
    frame, y, tasks = table()
    same = np.tile(frame.to_numpy()[:30], (5, 1))
    order = np.random.default_rng(0).permutation(150)
    common = np.tile(np.random.default_rng(1).standard_normal(30), 5)
    alike = common + y
    data = read_tasks(same[order], alike[order], tasks=tasks[order])
    share, r, errors = repeated_rows(data, data.y)
    assert share == 1.0
    e = np.stack([(v - v.mean()) / v.std() for v in alike.reshape(5, 30)])
    pairs = [np.mean(e[k] * e[j]) for k in range(5) for j in range(k)]
    assert r == pytest.approx(np.mean(pairs))
    assert errors == pytest.approx(np.sum(pairs) * 30 / np.sqrt(300))
    with pytest.warns(UserWarning, match="groups= to fit"):
        warn_of_residuals(data, data.y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_residuals(read_tasks(same, y, tasks=tasks), y)
        warn_of_residuals(data.with_occasions(groups=np.tile(np.arange(30), 5)[order]), data.y)
    moved = same + np.where(np.arange(150) < 70, np.random.default_rng(0).random(150), 0.0)[:, None]
    assert repeated_rows(read_tasks(moved, y, tasks=tasks), y)[0] == pytest.approx(80 / 150)
    assert repeated_rows(read_tasks(frame, y, tasks=tasks), y) is None


@pytest.mark.parametrize(
    "column",
    [
        lambda rng, K, n: rng.integers(3, size=K * n),  # classes
        lambda rng, K, n: rng.poisson(20, size=K * n),  # counts
        lambda rng, K, n: rng.integers(200, size=K * n),  # ages, prices
        lambda rng, K, n: rng.integers(10**6, size=K * n),  # amounts
        lambda rng, K, n: np.arange(K * n),  # ids of rows
        lambda rng, K, n: np.round(rng.standard_normal(K * n), 1),
    ],
    ids=["classes", "counts", "ages", "amounts", "row numbers", "rounded"],
)
def test_ordinary_columns_are_not_taken_for_ids(column):
    for seed in range(20):
        for K, n in ((3, 12), (5, 30), (40, 20)):
            frame, y, tasks = table(seed, K, n)
            frame["x"] = column(np.random.default_rng(seed), K, n)
            assert repeats(frame, y, tasks) is None


@pytest.mark.parametrize("layout", ["long", "shared"])
def test_independent_rows_raise_no_alarm_and_steady_ones_do(layout):
    alarms = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n, K = int(rng.integers(5, 60)), int(rng.integers(1, 8))
        common = rng.standard_normal(n) if seed % 2 else 0.0
        errors = np.asarray(rng.standard_t(3, size=(K, n)) + 2 * common)
        if layout == "long":
            data = read_tasks(np.zeros((K * n, 1)), errors.ravel(), tasks=np.repeat(np.arange(K), n))
        else:
            data = read_tasks(np.zeros((n, 1)), errors.T if K > 1 else errors[0])
        if layout == "long" and seed % 2:
            continue  # errors that tasks share are for the other sign
        r, z = neighbour_correlation(data, data.y)
        alarms += r >= 0.3 and z >= 4
    assert alarms == 0
    walk = np.zeros((4, 80))
    for t in range(1, 80):
        walk[:, t] = 0.8 * walk[:, t - 1] + np.random.default_rng(t).standard_normal(4)
    data = read_tasks(np.zeros((320, 1)), walk.ravel(), tasks=np.repeat(np.arange(4), 80))
    with pytest.warns(UserWarning, match="give order= to fit"):
        warn_of_residuals(data, data.y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_residuals(data.with_occasions(order=np.tile(np.arange(80), 4)), data.y)
        warn_of_residuals(data.with_occasions(groups=np.repeat(np.arange(4), 80)), data.y)
        ordered = read_tasks(np.zeros((320, 1)), np.sort(data.y), tasks=np.repeat(np.arange(4), 80))
        warn_of_residuals(ordered, ordered.y - ordered.y.mean())


def test_searches_warn_and_name_the_parameter():
    frame, y, tasks = table(n=40)
    frame["day"] = np.tile(np.arange(40), 5)
    with pytest.warns(UserWarning, match="value of 'day'.*groups='day'"):
        MSSLRegressorCV(**QUICK).fit(frame, y, tasks=tasks)
    with pytest.warns(UserWarning, match="value of 'day'"):
        MSSLClassifierCV(**QUICK).fit(frame, y > 0, tasks=tasks)
    rng = np.random.default_rng(0)
    steady = np.concatenate([np.cumsum(rng.standard_normal(40)) for _ in range(5)])
    with pytest.warns(UserWarning, match="give order="):
        MSSLRegressorCV(**QUICK).fit(frame[["a", "b"]], steady, tasks=tasks)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MSSLRegressorCV(**QUICK).fit(frame, y, tasks=tasks, groups="day")
        MSSLRegressorCV(**QUICK).fit(frame[["a", "b", "day"]], steady, tasks=tasks, order="day")
        MSSLRegressorCV(**QUICK).fit(frame[["a", "b", "c"]], y, tasks=tasks)


def test_given_groups_or_times_end_the_search_for_ids():
    frame, y, tasks = table()
    frame["day"] = np.tile(np.arange(30), 5)
    data = read_tasks(frame, y, tasks=tasks)
    with pytest.warns(UserWarning, match="'day'"):
        warn_of_ids(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_ids(data.with_occasions(groups=np.tile(np.arange(30), 5)))
        warn_of_ids(data.with_occasions(order=np.tile(np.arange(30), 5)))


def test_times_at_which_every_task_was_measured_are_no_ids():
    """A longitudinal design: each task has rows of its own at the same few values."""
    for K, days in ((18, 10), (6, 12), (40, 15)):
        frame, y, tasks = table(K=K, n=days)
        frame["days"] = np.tile(np.arange(days), K)
        assert repeats(frame, y, tasks) is None
    frame, y, tasks = table(K=5, n=16)
    frame["day"] = np.tile(np.arange(16), 5)
    assert repeats(frame, y, tasks) == ("day", 1.0)


def test_exposures_without_logarithm_are_pointed_out_and_logarithms_are_not():
    pointed_out = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        K, n = int(rng.integers(1, 10)), int(rng.integers(20, 80))
        X, tasks = rng.standard_normal((K * n, 2)), np.repeat(np.arange(K), n)
        exposure = [np.exp(rng.uniform(0.1, 5, K * n)), rng.integers(2, 300, K * n), rng.uniform(1.1, 5, K * n)][
            seed % 3
        ]
        rate = np.exp(0.5 * X[:, 0] + rng.standard_normal(K)[tasks] - 1) * rng.gamma(2, 0.5, K * n)
        data = read_tasks(X, rng.poisson(rate * exposure).astype(float), tasks=tasks)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_exposure(data, np.log(exposure), np.ones(K * n))
            warn_of_exposure(data, np.zeros(K * n), np.ones(K * n))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            warn_of_exposure(data, exposure.astype(float), np.ones(K * n))
        pointed_out += seed % 3 < 2 and len(told)
    assert pointed_out > 0.75 * 134
