"""Hyperpriors, and steps that minorise: no step makes the penalised objective worse, and it stops where it is best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from mssl.data.factors import TaskFactors
from mssl.evidence import prior
from mssl.evidence.prior import Columns, Hyper, Learner, geometric_mean
from mssl.evidence.routes import DualRoute, MeanRoute

K, D = 4, 5


def spd(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.atleast_2d(np.cov(rng.normal(size=(size, 2 * size + 2)))) + 0.05 * np.eye(size)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(-6, 6))
def test_geometric_mean_solves_its_equation(seed: int, size: int, decades: int) -> None:
    rng = np.random.default_rng(seed)
    A, R = spd(rng, size), 10.0**decades * spd(rng, size)
    T = geometric_mean(A, R)
    np.testing.assert_allclose(T @ A @ T, R, rtol=1e-8, atol=1e-8 * np.abs(R).max())
    np.testing.assert_allclose(T, T.T)
    assert np.linalg.eigvalsh(T)[0] > 0
    np.testing.assert_allclose(geometric_mean(np.linalg.inv(R), np.linalg.inv(A)), T, rtol=1e-6, atol=1e-8 * T.max())


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


@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.booleans())
def test_a_step_never_makes_the_objective_worse(seed: int, relevance: bool, dense: bool, glm: bool) -> None:
    route, learner, hyper = make(seed, relevance=relevance, dense=dense, glm=glm)
    before = None
    for _ in range(4):
        s = route.statistics(hyper)
        value = learner.objective(hyper, s.value)
        assert before is None or value <= before + 1e-9 * abs(before)
        before = value
        hyper, _ = learner.step(hyper, s)


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


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_residual_is_the_gradient_of_the_objective(seed: int, relevance: bool, glm: bool) -> None:
    """In the logarithms of v, t, ψ and the noise: finite differences of the penalised objective, per coordinate."""
    route, learner, hyper = make(seed, relevance=relevance, dense=False, glm=glm)
    columns = learner.columns
    e = 1e-4

    def at(h: Hyper) -> float:
        return learner.objective(h, route.statistics(h).value)

    names = ["v", "t", *(["psi"] if relevance else []), *([] if glm else ["noise"])]
    squares, s = 0.0, route.statistics(hyper)
    for name in names:
        here = getattr(hyper, name)
        for place in range(len(here)):
            up, down = here.copy(), here.copy()
            up[place] *= np.exp(e)
            down[place] *= np.exp(-e)
            squares += ((at(replace(hyper, **{name: up})) - at(replace(hyper, **{name: down}))) / (2 * e)) ** 2
    freedom = float(np.sum(s.noise_trace * hyper.noise))
    freedom += float(np.sum(hyper.v * columns.sum_blocks(hyper.psi[columns.group] * s.own_trace)))
    assert learner.step(hyper, s)[1] * max(freedom, 1.0) == pytest.approx(np.sqrt(squares), rel=1e-4, abs=1e-5)


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


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_vectors_hold_all_that_is_learned(seed: int, relevance: bool, dense: bool) -> None:
    _, learner, hyper = make(seed, relevance=relevance, dense=dense)
    columns = learner.columns
    again = replace(hyper, v=hyper.v * 2, noise=hyper.noise * 3).from_vector(hyper.to_vector(columns), columns)
    for name in ("v", "t", "psi", "noise", *(["T"] if dense else [])):
        np.testing.assert_allclose(getattr(again, name), getattr(hyper, name), rtol=1e-9, err_msg=name)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_traces_that_rounding_made_negative_count_as_zero() -> None:
    route, learner, hyper = make(0, relevance=True, dense=False)
    s = route.statistics(hyper)
    negative, nothing = (replace(s, own_trace=np.full(D, x), mean_trace=np.full(D, x)) for x in (-100.0, 0.0))
    np.testing.assert_array_equal(learner.step(hyper, negative)[0].psi, learner.step(hyper, nothing)[0].psi)
