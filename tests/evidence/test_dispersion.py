"""Positive targets: the dispersion is learned, and forecasts are distributions that contain it."""

import numpy as np
import pytest
from scipy.integrate import quad

from mssl import BayesianMSSLRegressor
from mssl.losses import Gamma, Poisson


@pytest.mark.parametrize("dispersion", [0.02, 0.3, 1.0])
def test_densities_of_positive_targets_integrate_to_levels(dispersion):
    one = np.ones(1)
    forecast = Gamma().forecast(0.4 * one, 0.1 * one, dispersion * one, 30.0 * one)

    def density(y):
        return float(np.exp(forecast.log_density(np.array([y]))[0]))

    levels = np.array([0.05, 0.5, 0.95])
    for level, end in zip(levels, forecast.quantile(levels)[0], strict=True):
        assert quad(density, 0.0, end, limit=200)[0] == pytest.approx(level, abs=2e-3)


def test_densities_of_counts_sum_to_one():
    one = np.ones(400)
    forecast = Poisson().forecast(1.2 * one, 0.2 * one, one, 30.0 * one)
    assert np.exp(forecast.log_density(np.arange(400.0))).sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("shape", [50.0, 2.0])
def test_the_dispersion_of_positive_targets_is_found(shape):
    rng = np.random.default_rng(0)
    K, n, d = 5, 60, 3
    X, tasks = rng.standard_normal((2 * K * n, d)), np.tile(np.repeat(np.arange(K), n), 2)
    W = rng.normal(size=d) * 0.5 + 0.2 * rng.normal(size=(K, d))
    y = rng.gamma(shape, np.exp(np.einsum("nd,nd->n", X, W[tasks])) / shape)
    train, test = slice(0, K * n), slice(K * n, None)
    model = BayesianMSSLRegressor("mean", loss="gamma", features="linear", calibrate=False)
    model.fit(X[train], y[train], tasks=tasks[train])
    np.testing.assert_allclose(model.noise_variance_, 1 / shape, rtol=0.4)
    low, high = model.predict_interval(X[test], 0.9, tasks=tasks[test]).T
    assert 0.84 < np.mean((low <= y[test]) & (y[test] <= high)) < 0.96
    mean, std = model.predict(X[test], tasks=tasks[test], return_std=True)
    np.testing.assert_allclose(np.mean(((y[test] - mean) / std) ** 2), 1.0, rtol=0.35)
    inside = np.abs(model.coef_ - W) < 2.6 * model.coef_std_
    assert inside.mean() > 0.8
