"""Hyperpriors: their best scales, and what changes no prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from mssl.data.factors import TaskFactors
from mssl.evidence import prior
from mssl.evidence.prior import Columns, Hyper, Learner
from mssl.evidence.routes import DualRoute, MeanRoute

K, D = 4, 5


def spd(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.atleast_2d(np.cov(rng.normal(size=(size, 2 * size + 2)))) + 0.05 * np.eye(size)


def make(seed: int, *, relevance: bool, dense: bool, glm: bool = False):
    rng = np.random.default_rng(seed)
    columns = Columns(np.array([0, 0, 0, 1, 1]), np.array([0, 1, 1, 2, 3]), relevance, True)
    X = [rng.normal(size=(n, D)) for n in (3, 9, 1, 12)]
    y = [x @ rng.normal(size=D) + 0.5 * rng.normal(size=len(x)) for x in X]
    rows = TaskFactors.from_rows(X, y, [None] * K, intercept=True)
    psi = rng.uniform(0.3, 2, 4) if relevance else np.ones(4)
    hyper = Hyper(rng.uniform(0.2, 1, 2), rng.uniform(0.2, 1, 2), psi, np.ones(K) if glm else rng.uniform(0.2, 1, K))
    if dense:
        T = spd(rng, K)
        hyper = replace(hyper, v=np.array([1.0, 0.6]), t=np.zeros(2), T=T, centre=prior._centre(T))
    learner = Learner(columns, learn_noise=not glm, predictor=np.full(D, 0.9) if glm else None)
    route = DualRoute(rows, columns) if dense else MeanRoute(rows, columns)
    return route, learner, learner.normalised(hyper)


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_normalising_changes_neither_prior_nor_objective(seed: int, relevance: bool, dense: bool) -> None:
    rng = np.random.default_rng(seed)
    route, learner, hyper = make(seed, relevance=relevance, dense=dense)
    value = learner.objective(hyper, route.statistics(hyper).value)
    factors = rng.uniform(0.2, 5, 2)
    other = hyper
    if relevance:
        of_group = factors[learner.columns.block_of_group]
        other = replace(hyper, psi=hyper.psi * of_group, v=hyper.v / factors, t=hyper.t / factors)
        assert learner.objective(other, route.statistics(other).value) == pytest.approx(value, rel=1e-12)
    again = learner.normalised(other)
    for name in ("v", "t", "psi"):
        np.testing.assert_allclose(getattr(again, name), getattr(hyper, name), rtol=1e-10, err_msg=name)
    if dense:
        np.testing.assert_allclose(again.T, hyper.T, rtol=1e-10)


def test_the_centre_is_the_best_one(rng: np.random.Generator) -> None:
    T = spd(rng, K) + 0.8
    v, t = prior._centre(T)
    best = prior._wishart_distance(T, v * np.eye(K) + t)
    for dv, dt in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01)):
        assert prior._wishart_distance(T, (v + dv) * np.eye(K) + t + dt) > best
    # A negative common part is not allowed: the best multiple of the identity is left.
    T = np.eye(K) - 0.2
    v, t = prior._centre(T)
    assert t == 0
    found = minimize_scalar(lambda q: prior._wishart_distance(T, np.exp(q) * np.eye(K)))
    assert v == pytest.approx(np.exp(found.x), rel=1e-6)


def test_harmonic_means_are_the_best_scales_of_the_hyperpriors(rng: np.random.Generator) -> None:
    """b and s₀ are left out of the parameters because their best values are known."""
    psi = rng.uniform(0.2, 3, D)
    learner = Learner(Columns.plain(D), learn_noise=False)
    hyper = Hyper(np.ones(1), np.ones(1), psi, np.ones(K))

    def cost(b: float) -> float:
        return prior.RELEVANCE_PRIOR * float(np.sum(b / psi + np.log(psi / b)))

    assert learner.objective(hyper, 0.0) == pytest.approx(min(cost(b) for b in np.geomspace(0.1, 3, 20001)), abs=1e-6)
    noise = rng.uniform(0.2, 3, K)
    learner = Learner(Columns.plain(D, relevance=False))
    found = learner.objective(replace(hyper, noise=noise), 0.0)
    costs = [prior.NOISE_PRIOR * float(np.sum(s / noise + np.log(noise / s))) for s in np.geomspace(0.1, 3, 20001)]
    assert found == pytest.approx(min(costs), abs=1e-5)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_traces_that_rounding_made_negative_count_as_zero() -> None:
    route, learner, hyper = make(0, relevance=True, dense=False)
    s = route.statistics(hyper)
    negative, nothing = (replace(s, own_trace=np.full(D, x), mean_trace=np.full(D, x)) for x in (-100.0, 0.0))
    for of_negative, of_nothing in zip(
        learner.derivatives(hyper, negative), learner.derivatives(hyper, nothing), strict=True
    ):
        np.testing.assert_array_equal(of_negative, of_nothing)
