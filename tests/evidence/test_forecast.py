"""Predictive distributions against integrals and simulation; calibration recovers what was wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from mssl.evidence.choice import calibrate
from mssl.losses import Bernoulli, Calibration, Forecast, Gamma, Gaussian, Loss, Poisson


def make(loss: Loss, mean, variance, noise=0.0, degrees=1e6) -> Forecast:
    mean = np.atleast_1d(np.asarray(mean, dtype=float))
    full = [np.broadcast_to(np.asarray(part, dtype=float), mean.shape).copy() for part in (variance, noise, degrees)]
    return loss.forecast(mean, *full)


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (2.0, 0.01), (-3.0, 4.0), (1.0, 9.0)])
def test_probabilities_are_averages_over_the_predictor(mean: float, variance: float) -> None:
    f = np.linspace(mean - 12 * np.sqrt(variance), mean + 12 * np.sqrt(variance), 100001)
    density = stats.norm.pdf(f, mean, np.sqrt(variance))
    exact = np.trapezoid(expit(f) * density, f)
    forecast = make(Bernoulli(), mean, variance)
    assert forecast.expectation()[0] == pytest.approx(exact, abs=1e-4)
    assert forecast.log_odds()[0] == pytest.approx(np.log(exact / (1 - exact)), abs=5e-4)
    for y, p in ((1.0, exact), (0.0, 1 - exact)):
        assert forecast.log_density(np.array([y]))[0] == pytest.approx(np.log(p), abs=5e-4)


def test_log_odds_stay_exact_where_probabilities_round() -> None:
    assert make(Bernoulli(), 60.0, 1e-4).log_odds()[0] == pytest.approx(60, abs=1e-3)
    assert make(Bernoulli(), -60.0, 1e-4).log_odds()[0] == pytest.approx(-60, abs=1e-3)


@pytest.mark.parametrize("loss", [Poisson(), Gamma()], ids=lambda loss: loss.name)
def test_counts_have_the_moments_and_quantiles_of_a_simulation(loss, rng: np.random.Generator) -> None:
    forecast = make(loss, 1.2, 0.2, 0.4)
    rate = np.exp(1.2 + np.sqrt(0.2) * rng.normal(size=400_000))
    y = rng.poisson(rate) if loss.name == "poisson" else rng.gamma(2.5, rate / 2.5)
    assert forecast.expectation()[0] == pytest.approx(y.mean(), rel=0.01)
    levels = np.array([0.05, 0.5, 0.95])
    found = forecast.quantile(levels)[0]
    assert np.all(np.diff(found) >= 0)
    for level, value in zip(levels, found, strict=True):
        if loss.name == "poisson":
            assert np.mean(y < value) <= level + 0.003
            assert np.mean(y <= value) >= level - 0.003
        else:
            assert np.mean(y <= value) == pytest.approx(level, abs=0.003)
    if loss.name == "poisson":
        for count in (0, 3, 9):
            density = np.exp(forecast.log_density(np.array([float(count)]))[0])
            assert density == pytest.approx(np.mean(y == count), rel=0.05)


def test_gaussian_forecasts_are_student_distributions() -> None:
    forecast = make(Gaussian(), 2.0, 0.5, 1.5, 7.0)
    exact = stats.t(7.0, 2.0, np.sqrt(2.0))
    assert forecast.log_density(np.array([3.3]))[0] == pytest.approx(exact.logpdf(3.3))
    np.testing.assert_allclose(forecast.quantile(np.array([0.05, 0.95]))[0], exact.ppf([0.05, 0.95]))


def test_mixtures_have_the_mean_and_the_variance_of_mixtures(rng: np.random.Generator) -> None:
    parts = [
        make(Gaussian(), rng.normal(size=4), rng.uniform(0.1, 1, 4), rng.uniform(0.1, 1, 4), 9.0) for _ in range(3)
    ]
    weights = np.array([0.5, 0.3, 0.2])
    found = parts[0].mixed(parts[1:], weights)
    mean = sum(w * part.mean for w, part in zip(weights, parts, strict=True))
    square = sum(w * (part.variance + part.dispersion + part.mean**2) for w, part in zip(weights, parts, strict=True))
    np.testing.assert_allclose(found.mean, mean)
    np.testing.assert_allclose(found.variance + found.dispersion, square - mean**2)
    same = parts[0].mixed([parts[0]] * 2, weights)
    np.testing.assert_allclose(same.variance, parts[0].variance)
    both = parts[0].joined(parts[1:])
    np.testing.assert_array_equal(both.mean, np.concatenate([part.mean for part in parts]))


def test_mixtures_of_labels_have_the_mean_probability() -> None:
    weights = np.array([0.5, 0.3, 0.2])
    parts = [make(Bernoulli(), np.array([f, -f]), np.full(2, f), 1.0, 9.0) for f in (0.3, 4.0, 30.0)]
    found = parts[0].mixed(parts[1:], weights)
    expected = sum(w * part.expectation() for w, part in zip(weights, parts, strict=True))
    np.testing.assert_allclose(found.expectation(), expected)
    far = make(Bernoulli(), np.array([90.0]), np.array([1.0]), 1.0, 9.0)
    odds = far.mixed([far] * 2, weights).log_odds()
    assert odds > 80  # beyond where the probability rounds to one


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.8])
def test_calibration_recovers_a_known_factor(factor: float, rng: np.random.Generator) -> None:
    n = 4000
    forecast = make(Gaussian(), rng.normal(size=n), 0.3, 0.7)
    y = forecast.mean + factor * rng.normal(size=n)
    found = calibrate(forecast, y, np.ones(n))
    assert found.centre == 1
    assert found.spread == pytest.approx(factor, rel=0.05)


def test_calibration_of_labels_recovers_a_known_slope(rng: np.random.Generator) -> None:
    n = 20000
    forecast = make(Bernoulli(), 3 * rng.normal(size=n), 1e-4)
    y = (rng.random(n) < expit(0.6 * forecast.mean)).astype(float)
    found = calibrate(forecast, y, np.ones(n))
    assert found.centre == pytest.approx(0.6, rel=0.08)


def test_calibration_counts_weights_as_repetitions_and_knows_its_limits(rng: np.random.Generator) -> None:
    n = 60
    forecast = make(Gaussian(), rng.normal(size=n), 0.3, 0.7)
    y = forecast.mean + 1.5 * rng.normal(size=n)
    counts = rng.integers(0, 4, n)
    weighted = calibrate(forecast, y, counts.astype(float))
    rows = np.repeat(np.arange(n), counts)
    repeated = calibrate(forecast.take(rows), y[rows], np.ones(len(rows)))
    assert weighted.spread == pytest.approx(repeated.spread, rel=2e-3)
    wild = calibrate(forecast, forecast.mean + 1e3 * rng.normal(size=n), np.ones(n))
    assert wild.spread <= 3.0 + 1e-9
    assert calibrate(make(Poisson(), np.ones(3), 1.0), np.ones(3), np.ones(3)) == Calibration()


@pytest.mark.parametrize("loss", [Gaussian(), Bernoulli()], ids=lambda loss: loss.name)
def test_calibration_is_drawn_to_one_by_what_one_row_could_say(loss, rng: np.random.Generator) -> None:
    """The factor moves from one towards the best as rows are repeated, and rows that count nothing leave it at one."""
    n = 40
    made = make(loss, rng.normal(size=n), 0.2, 1.0, 50.0)
    y = made.mean + 2.5 * rng.normal(size=n) if loss.name == "gaussian" else (rng.random(n) < 0.5).astype(float)

    def away(repeats: float) -> float:
        found = calibrate(made, y, np.full(n, repeats))
        return float(np.hypot(np.log(found.centre), np.log(found.spread)))

    moved = [away(repeats) for repeats in (1e-9, 0.003, 0.03, 1.0)]
    assert moved[0] == pytest.approx(0, abs=0.02)
    assert np.all(np.diff(moved) > 0)
    assert moved[1] < 0.5 * moved[3]
