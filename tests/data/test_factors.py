"""Factors are the rows' squares and products, and keep their digits."""

from __future__ import annotations

import numpy as np
import pytest

from mssl.data.factors import TaskFactors

D = 3
Rows = tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray | None]]


def draw(rng: np.random.Generator, sizes: tuple[int, ...], *, weighted: bool = False) -> Rows:
    X = [50 * rng.normal(size=D) + rng.normal(size=(n, D)) for n in sizes]
    y = [rng.normal(size=n) - 30 for n in sizes]
    return X, y, [rng.uniform(0.1, 3, n) if weighted else None for n in sizes]


def lost(X: np.ndarray, y: np.ndarray, c: np.ndarray | None, w: np.ndarray, *, intercept: bool) -> float:
    """The squared errors of one task, its best intercept taken out if it has one."""
    c = np.ones(len(y)) if c is None else c
    errors = y - X @ w
    if intercept and len(y):
        errors = errors - np.average(errors, weights=c)
    return float(c @ errors**2)


def losses(factors: TaskFactors, w: np.ndarray) -> np.ndarray:
    return np.sum((factors.R @ w - factors.z) ** 2, axis=1) + factors.rest


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_factors_give_the_squared_errors_of_the_rows(rng, intercept: bool, weighted: bool) -> None:
    rows = draw(rng, (0, 1, 2, 3, 4, 20), weighted=weighted)
    factors = TaskFactors.from_rows(*rows, intercept=intercept)
    assert factors.R.shape[1] <= D
    for w in rng.normal(size=(5, D)):
        expected = [lost(*task, w, intercept=intercept) for task in zip(*rows, strict=True)]
        np.testing.assert_allclose(losses(factors, w), expected, rtol=1e-9, atol=1e-9)


def test_nearly_collinear_columns_keep_their_digits(rng) -> None:
    """The weight of a difference of 1e-9, which squares round away, comes back."""
    X = rng.normal(size=(40, 2))
    X[:, 1] = X[:, 0] + 1e-9 * X[:, 1]
    y = X @ [1.0, 2.0]
    factors = TaskFactors.from_rows([X], [y], [None], intercept=True)
    np.testing.assert_allclose(np.linalg.lstsq(factors.R[0], factors.z[0], rcond=1e-13)[0], [1.0, 2.0], rtol=1e-5)
    assert factors.rest[0] < 1e-24
