"""Laws of conditional prediction: brute force, no news, all known, order of tasks, and one covariance per occasion."""

from __future__ import annotations

import numpy as np
import pytest

from mssl.exceptions import DataError
from mssl.model.conditional import conditional


def problem(n: int = 40, K: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    root = random.standard_normal((K, K))
    mean, covariance = random.standard_normal((n, K)), root @ root.T + 0.1 * np.eye(K)
    known = mean + random.standard_normal((n, K))
    known[random.random((n, K)) < 0.4] = np.nan
    return mean, covariance, known


def test_equals_the_precision_form_row_by_row() -> None:
    mean, covariance, known = problem()
    precision = np.linalg.inv(covariance)
    answer = conditional(mean, covariance, known)
    total = np.zeros_like(covariance)
    for i, row in enumerate(known):
        m = np.isnan(row)
        if not m.any():
            np.testing.assert_array_equal(answer.mean[i], row)
            continue
        inner = np.linalg.inv(precision[np.ix_(m, m)])
        expected = mean[i, m] - inner @ precision[np.ix_(m, ~m)] @ (row - mean[i])[~m]
        np.testing.assert_allclose(answer.mean[i, m], expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(answer.variance[i, m], np.diag(inner), rtol=1e-9)
        assert not answer.variance[i, ~m].any()
        total[np.ix_(m, m)] += inner
    np.testing.assert_allclose(answer.covariance_sum, total, rtol=1e-9, atol=1e-9)


def test_nothing_known_and_independent_tasks_leave_the_prediction() -> None:
    mean, covariance, known = problem()
    nothing = conditional(mean, covariance, np.full_like(known, np.nan))
    np.testing.assert_allclose(nothing.mean, mean)
    np.testing.assert_allclose(nothing.variance, np.tile(np.diag(covariance), (len(mean), 1)))
    apart = conditional(mean, np.diag(np.diag(covariance)), known)
    np.testing.assert_allclose(apart.mean, np.where(np.isnan(known), mean, known))


def test_order_of_tasks_plays_no_part() -> None:
    mean, covariance, known = problem()
    order = np.array([3, 0, 4, 1, 2])
    there = conditional(mean[:, order], covariance[np.ix_(order, order)], known[:, order])
    here = conditional(mean, covariance, known)
    np.testing.assert_allclose(there.mean, here.mean[:, order])
    np.testing.assert_allclose(there.variance, here.variance[:, order])


def test_one_covariance_per_occasion() -> None:
    mean, covariance, known = problem()
    factors = np.linspace(0.5, 2.0, len(mean))
    each = conditional(mean, factors[:, None, None] * covariance, known)
    one = conditional(mean, covariance, known)
    np.testing.assert_allclose(each.mean, one.mean)
    np.testing.assert_allclose(each.variance, factors[:, None] * one.variance)


def test_error_is_smallest_of_all_linear_predictions() -> None:
    random = np.random.default_rng(1)
    _, covariance, _ = problem()
    draws = random.multivariate_normal(np.zeros(5), covariance, size=4000)
    known = draws.copy()
    known[:, 0] = np.nan
    answer = conditional(np.zeros((4000, 5)), covariance, known)
    slopes = np.linalg.lstsq(draws[:, 1:], draws[:, 0], rcond=None)[0]
    best = np.mean((draws[:, 0] - draws[:, 1:] @ slopes) ** 2)
    assert np.mean((answer.mean[:, 0] - draws[:, 0]) ** 2) < 1.01 * best
    assert answer.variance[0, 0] == pytest.approx(best, rel=0.1)


def test_shapes_are_checked() -> None:
    with pytest.raises(DataError, match=r"shape \(3, 4\); give \(3, 2\)"):
        conditional(np.zeros((3, 2)), np.eye(2), np.zeros((3, 4)))
