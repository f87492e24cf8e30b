"""Factors are the rows' squares and products, whatever the split of the rows, and keep their digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def same(a: TaskFactors, b: TaskFactors, rng: np.random.Generator) -> None:
    for name in ("n", "means", "target_means", "dof"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-10, atol=1e-10, err_msg=name)
    for w in rng.normal(size=(5, a.n_features)):
        np.testing.assert_allclose(losses(a, w), losses(b, w), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_factors_give_the_squared_errors_of_the_rows(rng, intercept: bool, weighted: bool) -> None:
    rows = draw(rng, (0, 1, 2, 3, 4, 20), weighted=weighted)
    factors = TaskFactors.from_rows(*rows, intercept=intercept)
    assert factors.R.shape[1] <= D
    for w in rng.normal(size=(5, D)):
        expected = [lost(*task, w, intercept=intercept) for task in zip(*rows, strict=True)]
        np.testing.assert_allclose(losses(factors, w), expected, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 1000), intercept=st.booleans(), weighted=st.booleans())
def test_any_split_of_the_rows_adds_up(seed: int, intercept: bool, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = draw(rng, (0, 1, 3, 12), weighted=weighted)
    part = [rng.integers(0, 3, len(y)) for y in rows[1]]

    def some(which: int) -> TaskFactors:
        kept = [of == which for of in part]
        X, y = ([values[mask] for values, mask in zip(table, kept, strict=True)] for table in rows[:2])
        c = [None if values is None else values[mask] for values, mask in zip(rows[2], kept, strict=True)]
        return TaskFactors.from_rows(X, y, c, intercept=intercept)

    same(some(0) + (some(1) + some(2)), TaskFactors.from_rows(*rows, intercept=intercept), rng)


@pytest.mark.parametrize("intercept", [True, False])
def test_leading_columns_are_the_factors_of_these_columns(rng, intercept: bool) -> None:
    X, y, c = draw(rng, (1, 2, 3, 12), weighted=True)
    fewer = TaskFactors.from_rows([x[:, :2] for x in X], y, c, intercept=intercept)
    same(TaskFactors.from_rows(X, y, c, intercept=intercept).leading(2), fewer, rng)


def test_nearly_collinear_columns_keep_their_digits(rng) -> None:
    """The weight of a difference of 1e-9, which squares round away, comes back from any split."""
    X = rng.normal(size=(40, 2))
    X[:, 1] = X[:, 0] + 1e-9 * X[:, 1]
    y = X @ [1.0, 2.0]
    halves = [TaskFactors.from_rows([X[i::2]], [y[i::2]], [None], intercept=True) for i in (0, 1)]
    both = halves[0] + halves[1]
    np.testing.assert_allclose(np.linalg.lstsq(both.R[0], both.z[0], rcond=1e-13)[0], [1.0, 2.0], rtol=1e-5)
    assert both.rest[0] < 1e-24
