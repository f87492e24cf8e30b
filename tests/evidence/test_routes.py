"""Every route computes the same numbers as one dense Gaussian, and they are the derivatives that they claim to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dense_evidence import DenseModel
from evidence_cases import CASES, K, gaps, ragged

from mssl.evidence.prior import Prior
from mssl.evidence.routes import DualRoute, MeanRoute, PrimalRoute, Route

EACH = [(case, route) for case, make in CASES.items() for route in make().routes]


@pytest.fixture(params=EACH, ids=[f"{case}-{route}" for case, route in EACH])
def one(request: pytest.FixtureRequest) -> tuple[DenseModel, Route, Prior]:
    name, route = request.param
    case = CASES[name]()
    return case.dense, case.routes[route], case.prior


def test_log_evidence_is_that_of_the_dense_gaussian(one) -> None:
    dense, route, prior = one
    assert route.at(prior).derivatives().value == pytest.approx(dense.value(prior), abs=1e-8)


def test_slopes_are_the_differences_of_the_dense_evidence(one) -> None:
    """In every coordinate of every kernel, scale and noise, prices included."""
    dense, route, prior = one
    found = prior.evaluated(route)
    assert found is not None
    value, slope, metric = found
    assert value == pytest.approx(prior.objective(dense.value(prior)), abs=1e-7)
    assert np.all(metric > 0)
    assert len(slope) == sum(block.tasks.size + block.features.size for block in prior.blocks) + prior.noise.size

    def at(step: np.ndarray) -> float:
        moved = prior.moved(step)
        return moved.objective(dense.value(moved))

    e = 1e-3
    for j, unit in enumerate(np.eye(len(slope))):
        difference = (8 * (at(e * unit) - at(-e * unit)) - (at(2 * e * unit) - at(-2 * e * unit))) / (12 * e)
        assert slope[j] == pytest.approx(difference, rel=1e-6, abs=1e-6), j


@pytest.mark.parametrize("name", [name for name, make in CASES.items() if len(make().routes) > 1])
def test_routes_agree_in_all_derivatives(name: str) -> None:
    case = CASES[name]()
    first, *others = (route.at(case.prior).derivatives() for route in case.routes.values())
    for other in others:
        assert other.value == pytest.approx(first.value, rel=1e-9)
        np.testing.assert_allclose(other.up, first.up, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(other.down, first.down, rtol=1e-8, atol=1e-9)
        noise = [[np.diag(part) if part.ndim == 2 else part for part in found.noise] for found in (other, first)]
        np.testing.assert_allclose(*noise, rtol=1e-8, atol=1e-9)
        for of_other, of_first in zip(other.tasks, first.tasks, strict=True):
            for a, b in zip(of_other, of_first, strict=True):
                assert a.trace == pytest.approx(b.trace, rel=1e-8)
                assert a.total == pytest.approx(b.total, rel=1e-8)
                if a.array is not None and b.array is not None:
                    np.testing.assert_allclose(a.array, b.array, rtol=1e-8, atol=1e-9)


def test_row_by_row_statistics_are_those_of_the_dense_inverse() -> None:
    case = ragged(0, "plain", intercept=False, flat=False)
    prior = case.prior
    for name in ("mean", "dual"):
        route = case.routes[name]
        assert isinstance(route, MeanRoute | DualRoute)
        X, z, task = route.rows.flat()
        V = (X * prior.mean_variances) @ X.T + np.diag(prior.noise.variances[task])
        V += (task[:, None] == task) * ((X * prior.own_variances) @ X.T)
        alpha, diagonal = route.at(prior).inverse_rows()
        np.testing.assert_allclose(alpha, np.linalg.solve(V, z), atol=1e-9)
        np.testing.assert_allclose(diagonal, np.diag(np.linalg.inv(V)), atol=1e-9)


def test_posteriors_are_those_of_the_dense_gaussian(one) -> None:
    dense, route, prior = one
    posterior = route.at(prior).posterior()
    mean, covariance = dense.posterior(prior)
    rows = np.random.default_rng(1).normal(size=(3, mean.shape[1]))
    np.testing.assert_allclose(posterior.coef, mean[:-1], atol=1e-8)
    np.testing.assert_allclose(posterior.mean, mean[-1], atol=1e-8)
    np.testing.assert_allclose(posterior.covariance(None), covariance[-1, :, -1], atol=1e-8)
    for k in range(K):
        np.testing.assert_allclose(posterior.covariances()[k], covariance[k, :, k], atol=1e-8)
        of_rows = np.einsum("ni,ij,nj->n", rows, covariance[k, :, k], rows)
        np.testing.assert_allclose(posterior.variance(rows, np.eye(K)[k]), of_rows, atol=1e-8)


def test_draws_have_the_moments_of_the_posterior(one) -> None:
    dense, route, prior = one
    mean, covariance = dense.posterior(prior)
    size = mean[:-1].size
    covariance = covariance[:-1, :, :-1].reshape(size, size)
    count = 4000
    draws = route.at(prior).posterior().draw(count, np.random.default_rng(2)).reshape(count, size)
    variances = np.diag(covariance)
    off = (draws.mean(axis=0) - mean[:-1].ravel()) / np.sqrt(variances / count)
    assert np.max(np.abs(off)) < 4.5
    # Var of an empirical covariance: (s_ii s_jj + s_ij²)/n.
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / count)
    assert np.max(np.abs(np.cov(draws.T) - covariance) / error) < 5.5


def test_totals_over_tasks_have_the_variance_of_the_posterior(one) -> None:
    dense, route, prior = one
    covariance = dense.posterior(prior)[1][:-1, :, :-1]
    rng = np.random.default_rng(3)
    shares = rng.normal(size=len(covariance))
    X = rng.normal(size=(5, covariance.shape[1]))
    expected = np.einsum("ni,k,kilj,l,nj->n", X, shares, covariance, shares, X)
    np.testing.assert_allclose(route.at(prior).posterior().variance(X, shares), expected, rtol=1e-6)


def test_weights_of_occasions_are_repetitions() -> None:
    case = gaps(13, "dense", intercept=False)
    route = case.routes["primal"]
    assert isinstance(route, PrimalRoute)
    counts = np.array([2.0, 1, 1, 3, 1, 1, 1, 1, 2])
    twice = np.repeat(np.arange(9), counts.astype(int))
    weighted = replace(route, counts=counts)
    repeated = PrimalRoute(route.X[twice], route.Y[twice], route.seen[twice], np.ones(len(twice)), 0.0)
    for a, b in zip(case.prior.evaluated(weighted), case.prior.evaluated(repeated), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        weighted.at(case.prior).posterior().coef, repeated.at(case.prior).posterior().coef, atol=1e-10
    )
