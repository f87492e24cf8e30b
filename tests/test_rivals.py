"""The comparison with rivals trains on rows that tell nothing of the rows held out."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("benchmarks are not part of this installation", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from benchmarks import curves  # noqa: E402
from benchmarks.rival_methods import LEVELS, TaskKernel, bayesian, conformal, folds_of, mixed  # noqa: E402
from benchmarks.rival_sets import Cut, Rows, contrasts  # noqa: E402
from benchmarks.rivals import Table, holm, measure, read_records  # noqa: E402


@pytest.mark.parametrize("years", [2, 5, 19])
def test_contrasts_of_years_have_the_products_of_anomalies_and_no_common_sum(years):
    values = np.random.default_rng(0).normal(5.0, 1.0, (years, 12, 3))
    anomalies = values - values.mean(axis=0)
    assert contrasts(values).shape == (years - 1, 12, 3)
    ours, theirs = (np.einsum("ymd,yme->mde", rows, rows) for rows in (contrasts(values), anomalies))
    np.testing.assert_allclose(ours, theirs, atol=1e-12 * years)
    rows = contrasts(np.eye(years))  # orthonormal: independent years give independent contrasts of one variance
    np.testing.assert_allclose(rows @ rows.T, np.eye(years - 1), atol=1e-14)
    np.testing.assert_allclose(rows.sum(axis=1), 0.0, atol=1e-14)  # the climatology does not matter


@pytest.mark.parametrize(("years", "count"), [(4, 4), (18, 5)])
def test_folds_are_whole_years_each_held_out_once(years, count):
    rows = Rows(np.zeros((12 * years, 2, 1)), np.zeros((12 * years, 2)), groups=np.repeat(np.arange(years), 12))
    folds = folds_of(rows)
    assert len(folds) == count
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(12 * years))
    for train, test in folds:
        assert not set(train // 12) & set(test // 12)
        assert len(train) + len(test) == 12 * years


def test_the_long_layout_has_the_rows_of_the_others():
    rng = np.random.default_rng(0)
    y, shared, aligned = rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), rng.normal(size=(4, 3, 2))
    for X in (shared, aligned):
        rows = Rows(X, y).long()
        for value, x, task, group in zip(rows.y, rows.X, rows.tasks, rows.groups, strict=True):
            assert value == y[group, task]
            np.testing.assert_array_equal(x, X[group] if X.ndim == 2 else X[group, task])


def test_conformal_intervals_cover_what_they_say():
    rng = np.random.default_rng(0)
    made = [Rows(rng.normal(size=(900, 1)), rng.normal(size=900), np.arange(900) % 3) for _ in range(2)]
    given = Cut(*made)
    mean = np.zeros(900)
    found = conformal(lambda rows: lambda test: np.zeros(len(test.y)), given, mean)
    values = measure({"mean": mean, "intervals": found}, given)
    for level in LEVELS:
        assert values[f"coverage {level:g}"] == pytest.approx(level, abs=0.04)
    assert values["rmse"] == pytest.approx(1.0, abs=0.08)


def test_the_kernel_of_tasks_has_the_gradient_that_it_says():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(6) % 2, rng.normal(size=(6, 3))])
    kernel = TaskKernel(0.7, 1.3)
    K, gradient = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(np.diag(K), kernel.diag(X), rtol=1e-12)
    assert np.linalg.eigvalsh(K).min() > 0
    for place in range(2):
        step = np.eye(2)[place] * 1e-6
        up, down = (kernel.clone_with_theta(kernel.theta + sign * step)(X) for sign in (1, -1))
        np.testing.assert_allclose(gradient[:, :, place], (up - down) / 2e-6, atol=1e-6)


@pytest.mark.parametrize("method", [bayesian, curves.bayesian("linear"), curves.search("linear")])
def test_our_methods_take_cuts_without_intercepts(method):
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(60, 2)), np.repeat(np.arange(3), 20)
    eta = X @ [1.0, -2.0]
    given = Cut(Rows(X, eta + 0.3 * rng.normal(size=60), tasks), Rows(-X, -eta, tasks), intercept=False)
    found = method(given)
    mean = found["mean"] if isinstance(found, dict) else found[0]
    np.testing.assert_allclose(np.asarray(mean).ravel(), given.test.y, atol=0.5)


def test_a_mixed_model_finds_the_slopes():
    pytest.importorskip("statsmodels")
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(6), 40)
    X = rng.normal(size=(240, 2))
    y = X @ [1.0, -2.0] + rng.normal(size=6)[tasks] + 0.1 * rng.normal(size=240)
    rows = Rows(X, y, tasks)
    assert np.sqrt(np.mean((mixed(rows, Cut(rows, rows))(rows) - y) ** 2)) < 0.15


def test_holm_rejects_in_steps():
    assert holm([0.04, 0.001, 0.012, 0.5]) == [False, True, True, False]
    assert holm([0.03, 0.03]) == [False, False]
    assert holm([]) == []


def test_records_are_compared_on_the_cuts_that_methods_share(tmp_path):
    path = tmp_path / "records.jsonl"
    lines = [
        f'{{"set": "a", "cut": {cut}, "method": "{method}", "measures": {{"rmse": {value}}}}}'
        for cut in range(3)
        for method, value in (("x", cut + 1.0), ("y", cut + 0.5 + 0.1 * cut))
    ]
    path.write_text("\n".join([*lines, '{"set": "a", "cu']))
    table = Table(read_records(path), "a", "rmse")
    mean, error, p = table.difference("x", "y")
    assert (table.mean("x"), table.cuts) == (2.0, [0, 1, 2])
    assert mean == pytest.approx(0.4)
    assert error == pytest.approx(0.1 / np.sqrt(3))
    assert p < 0.05
