"""Hyperpriors: their best scales, and what changes no prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_cases import CASES, K, draw_prior, spd
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from mssl.evidence.climb import wishart_distance
from mssl.evidence.prior import ARD, NOISE_PRIOR, RELEVANCE_PRIOR, Dense, Exchangeable, PerTask, plain_prior, related


@given(st.integers(0, 10**6), st.sampled_from(["plain", "dense"]))
def test_relevances_keep_their_mean_at_every_step(seed: int, name: str) -> None:
    """The scale of a block is its kernel's: two parameters for one number would never come to rest."""
    rng = np.random.default_rng(seed)
    prior = draw_prior(rng, name, intercept=True)
    for _ in range(3):
        psi = prior.blocks[0].features.values[[0, 1]]  # the groups of the first part
        assert np.mean(1 / psi) == pytest.approx(1.0)
        size = sum(block.tasks.size + block.features.size for block in prior.blocks) + prior.noise.size
        prior = prior.moved(rng.normal(size=size))


def test_the_centre_is_the_best_one(rng: np.random.Generator) -> None:
    T = spd(rng) + 0.8
    v, t = Dense(T).centre
    best = wishart_distance(T, v * np.eye(K) + t)
    for dv, dt in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01)):
        assert wishart_distance(T, (v + dv) * np.eye(K) + t + dt) > best
    # A negative common part is not allowed: the best multiple of the identity is left.
    T = np.eye(K) - 0.2
    v, t = Dense(T).centre
    assert t == 0
    found = minimize_scalar(lambda q: wishart_distance(T, np.exp(q) * np.eye(K)))
    assert v == pytest.approx(np.exp(found.x), rel=1e-6)


def test_harmonic_means_are_the_best_scales_of_the_hyperpriors(rng: np.random.Generator) -> None:
    """b and s₀ are left out of the parameters because their best values are known."""
    for prior, values, made in (
        (RELEVANCE_PRIOR, rng.uniform(0.2, 3, 5), lambda psi: ARD(np.arange(5), psi=psi)),
        (NOISE_PRIOR, rng.uniform(0.2, 3, K), PerTask),
    ):
        costs = [prior * float(np.sum(b / values + np.log(values / b))) for b in np.geomspace(0.1, 3, 20001)]
        assert made(values).price() == pytest.approx(min(costs), abs=1e-5)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_traces_that_rounding_made_negative_count_as_zero() -> None:
    case = CASES["ragged"]()
    s = case.routes["mean"].at(case.prior).derivatives()
    negative, nothing = (s._replace(down=np.full(5, x)) for x in (-100.0, 0.0))
    for a, b in zip(case.prior.slopes(negative), case.prior.slopes(nothing), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("relevance", [True, False])
def test_a_kernel_that_relates_tasks_starts_from_their_plain_prior(relevance: bool) -> None:
    """Variances of all columns are kept, beside one another, and T is that of the first block."""
    plain = plain_prior(np.array([0, 0, 1]), np.arange(3), PerTask(np.ones(K)), relevance=relevance, mean=True)
    first = replace(plain.blocks[0], tasks=Exchangeable(v=0.5, t=0.8))
    plain = replace(plain, blocks=(first, plain.blocks[1])).with_intercept(Exchangeable(v=0.2, t=3.0))
    made = related(plain, Dense())
    np.testing.assert_allclose(made.covariances[0], 0.5 * np.eye(K) + 0.8)
    np.testing.assert_allclose(made.covariances[1], plain.covariances[2])
    ratio = (plain.common @ [1 / K, 1])[plain.block] * plain.psi
    np.testing.assert_allclose(made.psi[:3], ratio[:3] / ratio[0])
    assert made.intercept
