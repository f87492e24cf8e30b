"""Scores of predictions."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from mssl.metrics import area_under_curve, task_means


@pytest.mark.parametrize("weighted", [False, True])
def test_the_area_under_the_curve_is_scikit_learns(weighted):
    random = np.random.default_rng(0)
    y, score = random.integers(2, size=60), random.integers(20, size=60) / 7  # with ties
    weights = random.uniform(size=60) if weighted else None
    assert area_under_curve(y, score, weights) == pytest.approx(roc_auc_score(y, score, sample_weight=weights))


def test_one_class_alone_has_no_area():
    assert np.isnan(area_under_curve(np.ones(3), np.arange(3.0)))


def rows_of_tasks(seed, K=7, weighted=False):
    random = np.random.default_rng(seed)
    task = np.repeat(np.arange(K), random.integers(1, 9, K))
    return random.normal(size=len(task)), task, random.integers(1, 4, len(task)).astype(float) if weighted else None


@pytest.mark.parametrize("seed", range(5))
def test_means_of_tasks_lie_between_their_own_and_that_of_all(seed):
    y, task, _ = rows_of_tasks(seed)
    y = y + 2 * np.random.default_rng(seed).normal(size=7)[task]
    drawn, own = task_means(y, task, None, 8), np.bincount(task, y) / np.bincount(task)
    centre = drawn[7]  # of a task without rows
    assert own.min() <= centre <= own.max()
    assert np.all((drawn[:7] - centre) * (own - drawn[:7]) >= 0)
    np.testing.assert_allclose(task_means(3 * y - 5, task, None, 8), 3 * drawn - 5)


def test_means_of_tasks_count_weights_as_rows():
    y, task, weights = rows_of_tasks(3, weighted=True)
    times = weights.astype(int)
    np.testing.assert_allclose(
        task_means(y, task, weights, 7), task_means(np.repeat(y, times), np.repeat(task, times), None, 7)
    )


def test_base_rates_are_inside_and_equal_tasks_have_one_mean():
    task = np.repeat([0, 1, 2], 5)
    apart = task_means(np.repeat([0.0, 1.0, 1.0], 5), task, None, 3)
    assert np.all((apart > 0) & (apart < 1))
    np.testing.assert_allclose(task_means(np.tile([0.0, 1, 1, 0, 1], 3), task, None, 3), 0.6)
    np.testing.assert_array_equal(task_means(np.ones(15), task, None, 3), 1.0)
