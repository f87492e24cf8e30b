"""Compression loses nothing that a Gaussian likelihood needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dense_evidence import DenseModel
from evidence_cases import one_block, with_levels
from scipy import sparse

from mssl.data.factors import TaskFactors
from mssl.evidence.prior import PerTask, Prior
from mssl.evidence.routes import MeanRoute

K, D = 3, 4


@pytest.fixture
def problem(rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    X = [rng.normal(size=(n, D)) + 3 for n in (2, 5, 20)]
    return X, [rng.normal(size=len(x)) - 7 for x in X]


@pytest.fixture
def prior(rng: np.random.Generator) -> Prior:
    return one_block(0.4, 0.6, rng.uniform(0.5, 2, D), rng.uniform(0.2, 1, K))


def same(a: TaskFactors, b: TaskFactors, prior: Prior, *, tolerance: float = 1e-9) -> None:
    """Same evidence, derivatives and posterior."""
    first, second = MeanRoute(a), MeanRoute(b)
    s, t = first.at(prior).derivatives(), second.at(prior).derivatives()
    for field in ("value", "up", "down", "noise"):
        found, expected = getattr(s, field), getattr(t, field)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=field)
    for found, expected in zip(s.tasks[0], t.tasks[0], strict=True):
        np.testing.assert_allclose(found[:2], expected[:2], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(first.at(prior).posterior().coef, second.at(prior).posterior().coef, atol=tolerance)
    np.testing.assert_allclose(
        first.at(prior).posterior().covariances()[1], second.at(prior).posterior().covariances()[1], atol=1e-8
    )


@pytest.mark.parametrize("flat", [True, False])
def test_compressed_rows_have_the_dense_likelihood(problem, prior, flat: bool) -> None:
    """With flat intercepts this is the restricted likelihood (REML)."""
    X, y = problem
    rows = TaskFactors.from_rows(X, y, [None] * K, intercept=flat)
    assert rows.R.shape[1] <= D
    dense = DenseModel(X, y, flat=flat)
    assert MeanRoute(rows).at(prior).derivatives().value == pytest.approx(dense.value(prior), rel=1e-10)
    np.testing.assert_allclose(rows.dof, np.array([2, 5, 20]) - flat)


def test_flat_intercept_is_the_limit_of_a_wide_prior(problem, prior) -> None:
    X, y = problem
    flat = MeanRoute(TaskFactors.from_rows(X, y, [None] * K, intercept=True)).at(prior).posterior().coef
    with_ones = [np.column_stack([x, np.ones(len(x))]) for x in X]
    wide = with_levels(prior, 1e8, 0.0)
    coef = MeanRoute(TaskFactors.from_rows(with_ones, y, [None] * K, intercept=False)).at(wide).posterior().coef
    np.testing.assert_allclose(coef[:, :D], flat, atol=1e-5)


@pytest.mark.parametrize("flat", [True, False])
def test_weights_are_repetitions(problem, prior, rng: np.random.Generator, flat: bool) -> None:
    X, y = problem
    counts = [rng.integers(0, 4, len(part)) for part in y]
    counts[0][:] = [2, 1]
    weighted = TaskFactors.from_rows(X, y, [c.astype(float) for c in counts], intercept=flat)
    repeated = TaskFactors.from_rows(
        [np.repeat(x, c, axis=0) for x, c in zip(X, counts, strict=True)],
        [np.repeat(part, c) for part, c in zip(y, counts, strict=True)],
        [None] * K,
        intercept=flat,
    )
    np.testing.assert_allclose(weighted.dof, repeated.dof)
    # Of a repeated row only as much is left as it takes: the likelihoods differ by what does not depend on anything.
    s, t = MeanRoute(weighted).at(prior).derivatives(), MeanRoute(repeated).at(prior).derivatives()
    for field in ("value", "up", "down", "noise"):
        np.testing.assert_allclose(getattr(s, field), getattr(t, field), rtol=1e-8, atol=1e-8, err_msg=field)


def test_sparse_features_are_dense_ones(problem, prior) -> None:
    X, y = problem
    a = TaskFactors.from_rows(X, y, [None] * K, intercept=True)
    same(TaskFactors.from_rows([sparse.csr_array(x) for x in X], y, [None] * K, intercept=True), a, prior)


def test_tasks_without_rows_count_for_nothing(problem, prior, rng: np.random.Generator) -> None:
    X, y = problem
    rows = TaskFactors.from_rows([*X, np.zeros((0, D))], [*y, np.zeros(0)], [None] * (K + 1), intercept=True)
    more = replace(prior, noise=PerTask(np.append(prior.noise.variances, 0.7)))
    route = MeanRoute(rows)
    alone = MeanRoute(TaskFactors.from_rows(X, y, [None] * K, intercept=True))
    assert route.at(more).derivatives().value == pytest.approx(alone.at(prior).derivatives().value, rel=1e-12)
    posterior = route.at(more).posterior()
    np.testing.assert_allclose(posterior.coef[K], posterior.mean, atol=1e-12)
    np.testing.assert_allclose(posterior.covariances()[K], posterior.covariance(None), atol=1e-12)
