"""Climbs: the penalised objective never gets worse, and where it ends is the maximum that other methods find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from evidence_cases import one_block
from factor_analytic import FactorAnalytic
from scipy.optimize import minimize
from sklearn.linear_model import ARDRegression, BayesianRidge

from mssl._typing import Array
from mssl.data.factors import TaskFactors
from mssl.evidence import prior
from mssl.evidence.climb import Climb, climb
from mssl.evidence.prior import Dense, Known, PerTask, Prior, SharedNoise, TaskKernel, plain_prior, related
from mssl.evidence.routes import DualRoute, MeanRoute, PrimalRoute, Route

K, D = 4, 5


def draw(seed: int, counts: tuple[int, ...] = (6, 20, 12, 30), noise: float = 0.5):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=D) * [2, 1, 0.3, 0, 0]
    X = [rng.normal(size=(n, D)) for n in counts]
    y = [x @ (mean + 0.4 * rng.normal(size=D)) + noise * rng.normal(size=len(x)) for x in X]
    return X, y


Problem = tuple[Route, Prior]


def end(route: Route, first: Prior, gain: float = 1e-9, max_iter: int = 2000) -> Climb[Prior]:
    return climb(lambda place: place.evaluated(route), first, gain=gain, max_iter=max_iter)


def by_mean(seed: int, *, relevance: bool = True, mean: bool = True, **kind: Any) -> Problem:
    X, y = draw(seed, **kind)
    rows = TaskFactors.from_rows(X, y, [None] * len(X), intercept=True)
    first = one_block(0.1, 0.1 if mean else 0.0, np.ones(D), np.full(len(X), 0.5), relevance=relevance)
    return MeanRoute(rows), first


def dense(seed: int, kernel: TaskKernel, *, relevance: bool = True, noise: bool = False) -> Problem:
    X, y = draw(seed)
    first = one_block(0.2, 0.2, np.ones(D), np.full(K, 0.3), relevance=relevance, learned=noise)
    return DualRoute(TaskFactors.from_rows(X, y, [None] * K, intercept=True)), related(first, kernel)


def occasions(seed: int, *, gaps: bool) -> Problem:
    """Errors with correlation 0.6 on 40 occasions."""
    rng = np.random.default_rng(seed)
    n, L = 40, np.linalg.cholesky(0.2 * np.eye(K) + 0.3)
    X = rng.normal(size=(n, K, D))
    Y = np.einsum("okj,kj->ok", X, rng.normal(size=D) + 0.3 * rng.normal(size=(K, D))) + rng.normal(size=(n, K)) @ L.T
    seen = rng.random((n, K)) > (0.2 if gaps else -1)
    route = PrimalRoute(np.where(seen[:, :, None], X, 0), np.where(seen, Y, 0), seen, np.ones(n), 0.0)
    target = np.eye(K) * 0.5
    return route, replace(one_block(0.1, 0.1, np.ones(D), np.ones(K)), noise=SharedNoise(target, target))


def blocks(seed: int, *, relates: bool) -> Problem:
    """Two blocks, relevance groups of several columns, no noise to learn, a price of the predictor's variance."""
    X, y = draw(seed)
    rows = TaskFactors.from_rows(X, y, [None] * K, intercept=True)
    noise = PerTask(np.full(K, 0.3), learned=False)
    first = plain_prior(np.array([0, 0, 0, 1, 1]), np.array([0, 1, 1, 2, 3]), noise, relevance=True, mean=True)
    first = replace(first, predictor=np.full(D, 0.9))
    return (DualRoute(rows), related(first, Dense())) if relates else (MeanRoute(rows), first)


CLIMBS: dict[str, Callable[[int], Problem]] = {
    "mean": by_mean,
    "mean, one variance": lambda seed: by_mean(seed, relevance=False),
    "ridge": lambda seed: by_mean(seed, relevance=False, mean=False),
    "relevances": lambda seed: by_mean(seed, mean=False),
    "mean, hardly any noise": lambda seed: by_mean(seed, counts=(4, 6, 5, 3), noise=0.05),
    "dense": lambda seed: dense(seed, Dense()),
    "dense, one variance": lambda seed: dense(seed, Dense(), relevance=False),
    "dense, noise learned": lambda seed: dense(seed, Dense(), noise=True),
    "known": lambda seed: dense(seed, Known(np.eye(K) + 0.2)),
    "factors": lambda seed: dense(seed, FactorAnalytic(2)),
    "blocks, the predictor priced": lambda seed: blocks(seed, relates=False),
    "dense, blocks, the predictor priced": lambda seed: blocks(seed, relates=True),
    "shared errors": lambda seed: occasions(seed, gaps=False),
    "shared errors, gaps": lambda seed: occasions(seed, gaps=True),
}


@pytest.mark.parametrize("name", CLIMBS)
def test_slopes_are_differences_and_metrics_are_positive(name: str) -> None:
    """Along every coordinate, at the start and away from it; matrices move in their own frames."""
    route, place = CLIMBS[name](0)
    rng = np.random.default_rng(1)
    for _ in range(2):
        found = place.evaluated(route)
        assert found is not None
        _, slope, metric = found
        assert np.all(metric > 0)
        for j, unit in enumerate(np.eye(len(slope))):
            e = 1e-3
            values = [place.moved(share * e * unit).evaluated(route)[0] for share in (-2, -1, 1, 2)]
            difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * e)
            if slope[j] != 0:  # 0: what is kept, whose coordinate may be anything
                assert slope[j] == pytest.approx(difference, rel=1e-6, abs=1e-6), j
        place = place.moved(0.3 * rng.normal(size=len(slope)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CLIMBS)
def test_default_climbs_end_close_to_the_best_that_is_known(name: str, seed: int) -> None:
    """The best of tight climbs from the same start and from others; objectives never rise on the way."""
    route, first = CLIMBS[name](seed)
    rng = np.random.default_rng(seed)
    found, tight = end(route, first, gain=1e-3), end(route, first)
    size = len(first.evaluated(route)[1])
    others = [end(route, first.moved(rng.normal(size=size))) for _ in range(2)]
    for made in (found, tight, *others):
        assert made.promise <= 1e-5 or made.converged  # tight ones end with the digits of the objective
        assert np.max(np.diff(made.trace), initial=-1) <= 1e-9 * abs(made.objective)
    best = min(made.objective for made in (tight, *others))
    assert tight.objective <= best + 1e-5
    assert found.objective <= best + 0.05
    assert found.n_iter <= 60
    assert found.objective == pytest.approx(found.point.objective(route.at(found.point).derivatives().value))


@pytest.mark.parametrize("name", ["mean", "ridge", "relevances"])
def test_climbs_end_where_lbfgs_ends(name: str) -> None:
    route, first = CLIMBS[name](2)
    size = len(first.evaluated(route)[1])
    other = minimize(
        lambda step: first.moved(step).evaluated(route)[0],
        np.zeros(size),
        method="L-BFGS-B",
        options={"maxfun": 20000, "ftol": 1e-14},
    )
    assert end(route, first).objective == pytest.approx(other.fun, abs=1e-4)


@pytest.mark.parametrize("seed", [2, 3, 5, 7, 8])
def test_starts_that_are_wrong_by_orders_of_magnitude(seed: int) -> None:
    route, _ = by_mean(seed, counts=(4, 6, 5, 3), noise=0.05)
    found = end(route, one_block(10.0, 1e-6, np.ones(D), np.full(K, 50.0)), gain=1e-6)
    assert found.converged
    assert np.max(np.diff(found.trace)) <= 1e-9 * abs(found.objective)


def test_a_point_that_cannot_be_computed_is_a_rejected_step() -> None:
    """The objective (x − 1)² exists up to x = 1.2 only, and the metric is ten times too small."""

    @dataclass
    class Place:
        x: Array

        def moved(self, step: Array) -> Place:
            return Place(self.x + step)

    def evaluate(place: Place) -> tuple[float, Array, Array] | None:
        x = place.x
        return None if x[0] > 1.2 else (float((x[0] - 1) ** 2), 2 * (x - 1), np.full(1, 0.2))

    found = climb(evaluate, Place(np.zeros(1)), gain=1e-12)
    assert found.converged
    assert found.point.x[0] == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(np.linalg.LinAlgError):
        climb(evaluate, Place(np.full(1, 2.0)))


def test_shared_errors_are_found() -> None:
    found = end(*occasions(2, gaps=True)).point.noise.covariance
    assert np.mean(found[np.triu_indices(K, 1)]) == pytest.approx(0.3, abs=0.12)


def test_one_task_without_priors_is_bayesian_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "NOISE_PRIOR", 0.0)
    X, y = draw(3, (40,))
    route = MeanRoute(TaskFactors.from_rows(X, y, [None], intercept=False))
    found = end(route, one_block(0.1, 0.0, np.ones(D), np.full(1, 0.5), relevance=False), gain=1e-13).point
    other = BayesianRidge(fit_intercept=False, alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, tol=1e-12, max_iter=10000)
    other.fit(X[0], y[0])
    assert found.noise.variances[0] == pytest.approx(1 / other.alpha_, rel=1e-5)
    assert found.own_variances[0] == pytest.approx(1 / other.lambda_, rel=1e-5)
    posterior = route.at(found).posterior()
    np.testing.assert_allclose(posterior.coef[0], other.coef_, rtol=1e-5)
    np.testing.assert_allclose(posterior.covariances()[0], other.sigma_, rtol=1e-4, atol=1e-9)


def test_one_task_without_priors_is_ard_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "NOISE_PRIOR", 0.0)
    monkeypatch.setattr(prior, "RELEVANCE_PRIOR", 0.0)
    rng = np.random.default_rng(4)
    X = [rng.normal(size=(60, D))]
    y = [X[0] @ np.array([2.0, -1.5, 1.0, 0.8, -0.6]) + 0.5 * rng.normal(size=60)]  # all matter: no variance goes to 0
    route = MeanRoute(TaskFactors.from_rows(X, y, [None], intercept=False))
    found = end(route, one_block(0.1, 0.0, np.ones(D), np.full(1, 0.5)), gain=1e-13).point
    other = ARDRegression(
        fit_intercept=False,
        alpha_1=0,
        alpha_2=0,
        lambda_1=0,
        lambda_2=0,
        tol=1e-12,
        max_iter=10000,
        threshold_lambda=1e12,
    ).fit(X[0], y[0])
    assert found.noise.variances[0] == pytest.approx(1 / other.alpha_, rel=1e-5)
    np.testing.assert_allclose(found.own_variances, 1 / other.lambda_, rtol=1e-4)
    np.testing.assert_allclose(route.at(found).posterior().coef[0], other.coef_, rtol=1e-5)


def test_a_limit_on_steps_is_kept_and_said() -> None:
    found = end(*by_mean(5), gain=1e-12, max_iter=3)
    assert not found.converged
    assert found.n_iter <= 5


@dataclass(frozen=True)
class Bowl:
    """A point whose objective is known to three digits alone."""

    x: float = 2.0

    def moved(self, step: np.ndarray) -> Bowl:
        return Bowl(self.x + float(step[0]))

    def known(self, digits: int) -> tuple[float, np.ndarray, np.ndarray]:
        return round(self.x**4, digits), np.array([4 * self.x**3 + 0.3]), np.array([1.0])


def test_a_climb_that_stops_without_its_promise_says_so() -> None:
    """Where no step gains more and the next one promises more than the tolerance, nothing has converged."""
    stopped = climb(lambda point: point.known(1), Bowl(), gain=1e-3)
    assert not stopped.converged
    assert stopped.promise > 1e-3
    assert stopped.n_iter < 300
    for digits in range(12):
        found = climb(lambda point, digits=digits: point.known(digits), Bowl(), gain=1e-3)
        assert found.converged == (found.promise <= 1e-3)
