"""Compression loses nothing that a Gaussian likelihood needs."""

from __future__ import annotations

import numpy as np
import pytest
from dense_evidence import DenseModel
from scipy import sparse

from mssl.data.factors import TaskFactors
from mssl.evidence.prior import Columns, Hyper
from mssl.evidence.routes import MeanRoute

K, D = 3, 4
COLUMNS = Columns.plain(D)


@pytest.fixture
def problem(rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    X = [rng.normal(size=(n, D)) + 3 for n in (2, 5, 20)]
    return X, [rng.normal(size=len(x)) - 7 for x in X]


@pytest.fixture
def hyper(rng: np.random.Generator) -> Hyper:
    return Hyper(np.array([0.4]), np.array([0.6]), rng.uniform(0.5, 2, D), rng.uniform(0.2, 1, K))


def same(a: TaskFactors, b: TaskFactors, hyper: Hyper, *, tolerance: float = 1e-9) -> None:
    """Same evidence, derivatives and posterior."""
    first, second = MeanRoute(a, COLUMNS), MeanRoute(b, COLUMNS)
    s, t = first.statistics(hyper), second.statistics(hyper)
    for field in ("value", "own", "own_trace", "mean", "mean_trace", "noise", "noise_trace"):
        found, expected = getattr(s, field), getattr(t, field)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=field)
    np.testing.assert_allclose(first.posterior(hyper).coef, second.posterior(hyper).coef, atol=tolerance)
    np.testing.assert_allclose(first.posterior(hyper).covariance(1), second.posterior(hyper).covariance(1), atol=1e-8)


@pytest.mark.parametrize("flat", [True, False])
def test_compressed_rows_have_the_dense_likelihood(problem, hyper, flat: bool) -> None:
    """With flat intercepts this is the restricted likelihood (REML)."""
    X, y = problem
    rows = TaskFactors.from_rows(X, y, [None] * K, intercept=flat)
    assert rows.R.shape[1] <= D
    dense = DenseModel(X, y, COLUMNS, flat=flat)
    assert MeanRoute(rows, COLUMNS).statistics(hyper).value == pytest.approx(dense.value(hyper), rel=1e-10)
    np.testing.assert_allclose(rows.dof, np.array([2, 5, 20]) - flat)


def test_flat_intercept_is_the_limit_of_a_wide_prior(problem, hyper) -> None:
    X, y = problem
    flat = MeanRoute(TaskFactors.from_rows(X, y, [None] * K, intercept=True), COLUMNS).posterior(hyper).coef
    with_ones = [np.column_stack([x, np.ones(len(x))]) for x in X]
    wide = Hyper(np.append(hyper.v, 1e8), np.append(hyper.t, 0.0), np.append(hyper.psi, 1.0), hyper.noise)
    columns = COLUMNS.with_intercept()
    coef = MeanRoute(TaskFactors.from_rows(with_ones, y, [None] * K, intercept=False), columns).posterior(wide).coef
    np.testing.assert_allclose(coef[:, :D], flat, atol=1e-5)


@pytest.mark.parametrize("flat", [True, False])
def test_weights_are_repetitions(problem, hyper, rng: np.random.Generator, flat: bool) -> None:
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
    s, t = MeanRoute(weighted, COLUMNS).statistics(hyper), MeanRoute(repeated, COLUMNS).statistics(hyper)
    for field in ("value", "own", "own_trace", "mean", "mean_trace", "noise", "noise_trace"):
        np.testing.assert_allclose(getattr(s, field), getattr(t, field), rtol=1e-8, atol=1e-8, err_msg=field)


def test_sparse_features_are_dense_ones(problem, hyper) -> None:
    X, y = problem
    a = TaskFactors.from_rows(X, y, [None] * K, intercept=True)
    same(TaskFactors.from_rows([sparse.csr_array(x) for x in X], y, [None] * K, intercept=True), a, hyper)


def test_tasks_without_rows_count_for_nothing(problem, hyper, rng: np.random.Generator) -> None:
    X, y = problem
    rows = TaskFactors.from_rows([*X, np.zeros((0, D))], [*y, np.zeros(0)], [None] * (K + 1), intercept=True)
    more = Hyper(hyper.v, hyper.t, hyper.psi, np.append(hyper.noise, 0.7))
    route = MeanRoute(rows, COLUMNS)
    alone = MeanRoute(TaskFactors.from_rows(X, y, [None] * K, intercept=True), COLUMNS)
    assert route.statistics(more).value == pytest.approx(alone.statistics(hyper).value, rel=1e-12)
    posterior = route.posterior(more)
    np.testing.assert_allclose(posterior.coef[K], posterior.mean, atol=1e-12)
    np.testing.assert_allclose(posterior.covariance(K), posterior.new_covariance(), atol=1e-12)
