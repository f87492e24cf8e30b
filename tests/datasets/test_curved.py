"""Curved tasks: what the truths are, and that the parts of a problem are drawn apart."""

import numpy as np
import pytest

from mssl.datasets import make_curved_tasks
from mssl.datasets._generators import _COMPONENTS, CURVES
from mssl.exceptions import LayoutError, ParameterError


@pytest.mark.parametrize("kind", CURVES)
def test_truth_and_noise(kind):
    data = make_curved_tasks(kind, n_tasks=4, n_test=4000, noise=0.3, level=0.0, deviation=0.0, random_state=1)
    assert data.X.shape == (200, 10)
    np.testing.assert_allclose((data.y_test - data.mean_test).std(), 0.3, rtol=0.05)
    np.testing.assert_allclose(data.mean_test.std(), 0.0 if kind == "noise" else 1.0, rtol=0.05)
    np.testing.assert_allclose(data.weights, np.broadcast_to(data.weights[0], data.weights.shape))


def test_linear_truths_are_linear():
    line = make_curved_tasks("linear", n_tasks=2, random_state=0)
    for task in line.task_names:
        rows = line.tasks_test == task
        F = np.column_stack([np.ones(rows.sum()), line.X_test[rows]])
        left = line.mean_test[rows] - F @ np.linalg.lstsq(F, line.mean_test[rows], rcond=None)[0]
        np.testing.assert_allclose(left, 0.0, atol=1e-12)


def test_more_training_rows_change_neither_truth_nor_test():
    few, many = (make_curved_tasks("friedman1", n_samples=n, random_state=3) for n in (20, 70))
    np.testing.assert_array_equal(few.weights, many.weights)
    np.testing.assert_array_equal(few.X_test, many.X_test)
    np.testing.assert_array_equal(few.y_test, many.y_test)


def test_layouts_and_refusals():
    aligned = make_curved_tasks("step", n_tasks=3, n_samples=20, layout="aligned", random_state=0)
    long = make_curved_tasks("step", n_tasks=3, n_samples=20, random_state=0)
    np.testing.assert_array_equal(aligned.X[:, 1], long.X[20:40])
    np.testing.assert_array_equal(aligned.mean_test.T.ravel(), long.mean_test)
    with pytest.raises(LayoutError, match="shared"):
        make_curved_tasks(layout="shared")
    with pytest.raises(ParameterError, match="kind"):
        make_curved_tasks("wavy")
    with pytest.raises(ParameterError, match="n_features"):
        make_curved_tasks("additive", n_features=_COMPONENTS["additive"][0] - 1)
