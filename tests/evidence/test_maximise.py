"""Climbs: the penalised objective never falls, and where it ends is the maximum that other methods find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import ARDRegression, BayesianRidge

from mssl.data.factors import TaskFactors
from mssl.evidence import prior
from mssl.evidence.maximise import climb
from mssl.evidence.prior import Columns, Hyper, Learner
from mssl.evidence.routes import DualRoute, MeanRoute, PrimalRoute

K, D = 4, 5


def draw(seed: int, counts: tuple[int, ...] = (6, 20, 12, 30), noise: float = 0.5):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=D) * [2, 1, 0.3, 0, 0]
    X = [rng.normal(size=(n, D)) for n in counts]
    y = [x @ (mean + 0.4 * rng.normal(size=D)) + noise * rng.normal(size=len(x)) for x in X]
    return X, y


def start(columns: Columns, tasks: int = K) -> Hyper:
    t = np.full(1, 0.1 if columns.with_mean else 0.0)
    return Hyper(np.full(1, 0.1), t, np.ones(columns.n_groups), np.full(tasks, 0.5))


@pytest.mark.parametrize("relevance", [True, False])
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("accelerate", [True, False])
def test_climb_never_falls_and_ends_where_lbfgs_ends(relevance: bool, mean: bool, accelerate: bool) -> None:
    X, y = draw(0)
    columns = Columns.plain(D, relevance=relevance, mean=mean)
    route, learner = MeanRoute(TaskFactors.from_rows(X, y, [None] * K, intercept=True), columns), Learner(columns)
    first = start(columns)
    found = climb(route.statistics, learner, first, tol=1e-7, max_iter=5000, accelerate=accelerate)
    assert found.converged
    assert np.max(np.diff(found.trace)) <= 1e-9 * abs(found.objective)
    assert found.objective == pytest.approx(learner.objective(found.hyper, route.statistics(found.hyper).value))

    def objective(vector: np.ndarray) -> float:
        hyper = first.from_vector(vector, columns)
        return learner.objective(hyper, route.statistics(hyper).value)

    other = minimize(objective, first.to_vector(columns), method="L-BFGS-B", options={"maxfun": 20000, "ftol": 1e-14})
    assert found.objective == pytest.approx(other.fun, abs=1e-4)
    assert found.objective <= other.fun + 1e-6


@pytest.mark.parametrize("seed", [2, 3, 5, 7, 8])
def test_extrapolations_from_far_away_are_watched(seed: int) -> None:
    """From a start that is wrong by orders of magnitude, unwatched extrapolations overshoot by tens."""
    X, y = draw(seed, (4, 6, 5, 3), noise=0.05)
    columns = Columns.plain(D)
    route = MeanRoute(TaskFactors.from_rows(X, y, [None] * K, intercept=True), columns)
    first = replace(start(columns), v=np.full(1, 10.0), t=np.full(1, 1e-6), noise=np.full(K, 50.0))
    found = climb(route.statistics, Learner(columns), first, tol=1e-5, max_iter=2000)
    assert found.converged
    assert np.max(np.diff(found.trace)) <= 1e-9 * abs(found.objective)


@pytest.mark.parametrize("accelerate", [True, False])
def test_climb_of_a_dense_covariance_never_falls_and_ends_at_a_maximum(accelerate: bool) -> None:
    X, y = draw(1)
    columns = Columns.plain(D)
    route, learner = (
        DualRoute(TaskFactors.from_rows(X, y, [None] * K, intercept=True), columns),
        Learner(columns, learn_noise=False),
    )
    hyper = Hyper(np.ones(1), np.zeros(1), np.ones(D), np.full(K, 0.3), 0.2 * np.eye(K) + 0.2, (0.2, 0.2))
    found = climb(route.statistics, learner, hyper, tol=1e-6, max_iter=3000, accelerate=accelerate)
    assert found.converged
    assert np.max(np.diff(found.trace)) <= 1e-9 * abs(found.objective)
    rng = np.random.default_rng(0)
    for _ in range(20):
        E = rng.normal(size=(K, K))
        T = found.hyper.T + 1e-2 * np.sqrt(np.outer(np.diag(found.hyper.T), np.diag(found.hyper.T))) * (E + E.T)
        near = replace(
            found.hyper, T=T, centre=prior._centre(T), psi=found.hyper.psi * np.exp(0.05 * rng.normal(size=D))
        )
        assert learner.objective(near, route.statistics(near).value) >= found.objective - 1e-6


@pytest.mark.parametrize("gaps", [True, False])
def test_climb_of_shared_errors_never_falls_and_ends_at_a_maximum(gaps: bool) -> None:
    rng = np.random.default_rng(2)
    n = 40
    L = np.linalg.cholesky(0.2 * np.eye(K) + 0.3)
    X = rng.normal(size=(n, K, D))
    Y = np.einsum("okj,kj->ok", X, rng.normal(size=D) + 0.3 * rng.normal(size=(K, D))) + rng.normal(size=(n, K)) @ L.T
    seen = rng.random((n, K)) > (0.2 if gaps else -1)
    columns = Columns.plain(D)
    route = PrimalRoute(np.where(seen[:, :, None], X, 0), np.where(seen, Y, 0), seen, np.ones(n), 0.0, columns)
    target = np.eye(K) * 0.5
    learner = Learner(columns, target=target)
    found = climb(route.statistics, learner, replace(start(columns), noise=target), tol=1e-6, max_iter=3000)
    assert found.converged
    assert np.max(np.diff(found.trace)) <= 1e-9 * abs(found.objective)
    for _ in range(20):
        E = rng.normal(size=(K, K))
        near = replace(found.hyper, noise=found.hyper.noise + 3e-3 * (E + E.T))
        assert learner.objective(near, route.statistics(near).value) >= found.objective - 1e-6
    # What was shared is found.
    assert np.mean(found.hyper.noise[np.triu_indices(K, 1)]) == pytest.approx(0.3, abs=0.12)


def test_one_task_without_priors_is_bayesian_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "NOISE_PRIOR", 0.0)
    X, y = draw(3, (40,))
    columns = Columns.plain(D, relevance=False, mean=False)
    route = MeanRoute(TaskFactors.from_rows(X, y, [None], intercept=False), columns)
    found = climb(route.statistics, Learner(columns), start(columns, 1), tol=1e-9, max_iter=5000)
    other = BayesianRidge(fit_intercept=False, alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, tol=1e-12, max_iter=10000)
    other.fit(X[0], y[0])
    assert found.hyper.noise[0] == pytest.approx(1 / other.alpha_, rel=1e-5)
    assert found.hyper.v[0] == pytest.approx(1 / other.lambda_, rel=1e-5)
    posterior = route.posterior(found.hyper)
    np.testing.assert_allclose(posterior.coef[0], other.coef_, rtol=1e-5)
    np.testing.assert_allclose(posterior.covariance(0), other.sigma_, rtol=1e-4, atol=1e-9)


def test_one_task_without_priors_is_ard_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "NOISE_PRIOR", 0.0)
    monkeypatch.setattr(prior, "RELEVANCE_PRIOR", 0.0)
    rng = np.random.default_rng(4)
    X = [rng.normal(size=(60, D))]
    y = [X[0] @ np.array([2.0, -1.5, 1.0, 0.8, -0.6]) + 0.5 * rng.normal(size=60)]  # all matter: no variance goes to 0
    columns = Columns.plain(D, relevance=True, mean=False)
    route = MeanRoute(TaskFactors.from_rows(X, y, [None], intercept=False), columns)
    found = climb(route.statistics, Learner(columns), start(columns, 1), tol=1e-9, max_iter=5000)
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
    assert found.hyper.noise[0] == pytest.approx(1 / other.alpha_, rel=1e-5)
    np.testing.assert_allclose(found.hyper.deviation_variances(columns), 1 / other.lambda_, rtol=1e-4)
    np.testing.assert_allclose(route.posterior(found.hyper).coef[0], other.coef_, rtol=1e-5)


def test_a_limit_on_steps_is_kept_and_said() -> None:
    X, y = draw(5)
    columns = Columns.plain(D)
    route = MeanRoute(TaskFactors.from_rows(X, y, [None] * K, intercept=True), columns)
    found = climb(route.statistics, Learner(columns), start(columns), tol=1e-12, max_iter=3)
    assert not found.converged
    assert found.n_iter <= 5
