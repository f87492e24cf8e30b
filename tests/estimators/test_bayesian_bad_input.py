"""Whatever the input, the Bayesian estimators end with a fit of finite numbers or with a stated error."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from mssl import BayesianMSSLClassifier, BayesianMSSLRegressor
from mssl.evidence.fit import STRUCTURES
from mssl.exceptions import DataError, MSSLError

K, N, D = 3, 8, 3
RNG = np.random.default_rng(0)
TASK = np.repeat(np.arange(K), N)
X = RNG.standard_normal((K * N, D))
Y = X @ np.array([1.0, -1.0, 0.5]) + 0.3 * RNG.standard_normal(K * N)
ONE = np.where(np.arange(K * N) == 3, 1.0, 0.0)

NUMBERS = {
    "one row a task": (X[::N], Y[::N], TASK[::N]),
    "one row in all": (X[:1], Y[:1], TASK[:1]),
    "two rows": (X[:2], Y[:2], TASK[:2]),
    "one row in one task": (X[: 2 * N + 1], Y[: 2 * N + 1], TASK[: 2 * N + 1]),
    "constant columns": (np.column_stack([X, np.full(K * N, 5.0), np.zeros(K * N)]), Y, TASK),
    "nothing but constant columns": (np.ones((K * N, D)), Y, TASK),
    "a constant target": (X, np.full(K * N, 3.0), TASK),
    "targets of zero": (X, np.zeros(K * N), TASK),
    "targets constant in tasks": (X, TASK.astype(float), TASK),
    "large targets": (X, 1e100 * Y, TASK),
    "small targets": (X, 1e-100 * Y, TASK),
    "large features": (1e100 * X, Y, TASK),
    "small features": (1e-100 * X, Y, TASK),
    "features of all sizes": (X * np.array([1e-80, 1.0, 1e80]), Y, TASK),
    "targets of all sizes": (X, Y * 10.0 ** (20 * TASK), TASK),
    "a high level of targets": (X, Y + 1e9, TASK),
    "a high level of features": (X + 1e9, Y, TASK),
    "one task": (X, Y, 0 * TASK),
    "one feature": (X[:, :1], Y, TASK),
    "fewer rows than features": (RNG.standard_normal((6, 20)), Y[:6], np.repeat(np.arange(K), 2)),
    "columns twice": (np.column_stack([X, X]), Y, TASK),
    "no noise": (X, X @ np.ones(D), TASK),
    "no noise, other tasks": (X, np.sum(X * np.arange(1.0, 4.0)[TASK][:, None], axis=1), TASK),
    "an outlier": (X, Y + 1e12 * ONE, TASK),
    "sparse": (sparse.csr_matrix(np.where(X > 0.5, X, 0.0)), Y, TASK),
}
WAYS = {
    "shrunk": {},
    "flat": {"intercepts": "free"},
    "none": {"intercepts": "none"},
}


def finite(model: BayesianMSSLRegressor | BayesianMSSLClassifier, X, tasks) -> None:
    """All that a user may read is finite, for tasks of the fit and for new ones."""
    for index in (tasks, np.full(len(tasks), 99)):
        if isinstance(model, BayesianMSSLClassifier):
            assert np.isfinite(model.decision_function(X, tasks=index)).all()
            p = model.predict_proba(X, tasks=index)
            assert np.all((p >= 0) & (p <= 1))
        else:
            mean, std = model.predict(X, tasks=index, return_std=True)
            assert np.isfinite(mean).all()
            assert np.isfinite(std).all()
            ends = model.predict_interval(X, tasks=index)
            assert np.isfinite(ends).all()
            assert np.all(ends[:, 0] <= ends[:, 1])
            assert np.isfinite(model.noise_variance_).all()
    for name in (
        "coef_",
        "coef_std_",
        "intercept_",
        "mean_coef_",
        "feature_relevance_",
        "task_covariance_",
        "evidence_",
    ):
        assert np.isfinite(getattr(model, name)).all(), name


@pytest.mark.filterwarnings("ignore:.*predicted from the mean")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("structure", ["mean+ard", "iw"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", NUMBERS)
def test_numbers(case: str, way: str, structure: str) -> None:
    features, y, tasks = NUMBERS[case]
    options = {"features": "linear", "calibrate": False, "residual_covariance": "independent", **WAYS[way]}
    model = BayesianMSSLRegressor(structure, **options)
    finite(model.fit(features, y, tasks=tasks), features, tasks)


LABELS = (Y > 0).astype(int)
CLASSES = {
    "one class in a task": (X, np.where(TASK == 0, 1, LABELS), TASK),
    "one class in all tasks but one": (X, np.where(TASK < 2, 1, LABELS), TASK),
    "one row a task": (X[::N], np.array([0, 1, 1]), TASK[::N]),
    "constant columns": (np.column_stack([X, np.full(K * N, 5.0)]), LABELS, TASK),
    "nothing but constant columns": (np.ones((K * N, D)), LABELS, TASK),
    "large features": (1e100 * X, LABELS, TASK),
    "small features": (1e-100 * X, LABELS, TASK),
    "separable": (X, (X[:, 0] > 0).astype(int), TASK),
    "one task": (X, LABELS, 0 * TASK),
    "fewer rows than features": (
        RNG.standard_normal((6, 20)),
        np.array([0, 1, 0, 1, 1, 0]),
        np.repeat(np.arange(K), 2),
    ),
    "columns twice": (np.column_stack([X, X]), LABELS, TASK),
    "one of a class": (X, ONE.astype(int), TASK),
    "an outlier": (X + 1e8 * ONE[:, None], LABELS, TASK),
    "sparse": (sparse.csr_matrix(np.where(X > 0.5, X, 0.0)), LABELS, TASK),
}


@pytest.mark.filterwarnings("ignore:.*predicted from the mean")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("structure", ["mean+ard", "iw"])
@pytest.mark.parametrize("case", CLASSES)
def test_classes(case: str, structure: str) -> None:
    features, y, tasks = CLASSES[case]
    model = BayesianMSSLClassifier(structure, features="linear", calibrate=False)
    finite(model.fit(features, y, tasks=tasks), features, tasks)


@given(
    st.integers(0, 10**6),
    st.sampled_from([*STRUCTURES, "auto"]),
    st.sampled_from(list(WAYS)),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.integers(1, 4),
    st.booleans(),
)
def test_small_problems_of_all_structures(
    seed: int, structure: str, way: str, counts: list[int], d: int, labels: bool
) -> None:
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(counts)), counts)
    # Few different values: ties, constant and equal columns are common.
    features = rng.integers(0, 3, size=(len(tasks), d)).astype(float)
    y = rng.integers(0, 2, size=len(tasks)) if labels else rng.integers(-1, 2, size=len(tasks)).astype(float)
    kind = BayesianMSSLClassifier if labels else BayesianMSSLRegressor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model = kind(structure, features="linear", max_iter=60, **WAYS[way]).fit(features, y, tasks=tasks)
        except MSSLError:
            assert labels
            assert len(np.unique(y)) < 2
            return
        finite(model, features, tasks)


def test_what_cannot_be_computed_is_said() -> None:
    with pytest.raises(DataError, match="size"):
        BayesianMSSLRegressor("mean", features="linear").fit(X, 1e300 * Y, tasks=TASK)
    for size in (1e300, 1e-300):
        for features in ("auto", "linear", "spline"):
            with pytest.raises(DataError, match="Column 1 of X is of size"):
                BayesianMSSLRegressor("mean", features=features).fit(X * np.array([1, size, 1]), Y, tasks=TASK)
    with pytest.raises(MSSLError):
        BayesianMSSLClassifier("mean", features="linear").fit(X, np.ones(K * N, dtype=int), tasks=TASK)


@pytest.mark.parametrize("labels", [False, True])
def test_a_task_without_rows_is_a_new_one(labels: bool) -> None:
    y, kind = (LABELS, BayesianMSSLClassifier) if labels else (Y, BayesianMSSLRegressor)
    options = {"features": "linear", "calibrate": False, "tol": 1e-6, "intercepts": "shrunk"}
    there = TASK != 1
    with pytest.warns(UserWarning, match="Tasks 1 have no rows; they are predicted from what all tasks share"):
        model = kind("mean", **options).fit(X, y, tasks=TASK, sample_weight=there)
    others = kind("mean", **options).fit(X[there], y[there], tasks=TASK[there])
    assert model.tasks_.tolist() == [0, 1, 2]
    assert others.tasks_.tolist() == [0, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "predicted from the mean"
        name = "decision_function" if labels else "predict"
        for tasks in (TASK, np.full(K * N, 99)):
            expected = getattr(others, name)(X, tasks=tasks)
            np.testing.assert_allclose(getattr(model, name)(X, tasks=tasks), expected, atol=1e-4)
    assert model.coef_[1] == pytest.approx(model.mean_coef_, abs=1e-8)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.filterwarnings("ignore:.*have no rows")
def test_a_column_of_missing_targets_is_predicted_from_the_others(aligned: bool) -> None:
    table = np.stack([X] * 3, axis=1) if aligned else X
    targets = np.column_stack([Y, np.full(K * N, np.nan), Y + 0.1 * X[:, 0]])
    model = BayesianMSSLRegressor("mean+ard", features="linear").fit(table, targets)
    mean, std = model.predict(table, return_std=True)
    assert mean.shape == targets.shape
    assert np.all(std[:, 1] > std[:, 0])
    assert np.corrcoef(mean[:, 1], Y)[0, 1] > 0.9
    with pytest.raises(DataError, match="no row with a target"):
        model.fit(table, np.full(targets.shape, np.nan))
