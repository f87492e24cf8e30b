"""Sites: moments against integrals, EP's evidence against quadrature, its gradient against differences."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from evidence_cases import one_block, with_levels
from hypothesis import given
from hypothesis import strategies as st
from negative_binomial import NegativeBinomial
from scipy.integrate import quad
from scipy.special import expit

from mssl.evidence import sites
from mssl.evidence.prior import Prior
from mssl.evidence.routes import DualRoute, MeanRoute
from mssl.evidence.sites import GLMProblem, climb_sites
from mssl.losses import Bernoulli, Gamma, Gaussian, Loss, Poisson


def problem(blocks, y, weights, loss: Loss, dispersion: float = 1.0) -> GLMProblem:
    return GLMProblem(blocks, y, weights, loss, np.full(len(y), dispersion))


def exact_moments(loss: Loss, y: float, power: float, mean: float, variance: float) -> tuple[float, float, float]:
    """By a fine trapezoidal rule, which is exact to rounding for smooth integrands that vanish at both ends."""
    sd = np.sqrt(variance)
    far = mean - np.clip(power * variance * loss.gradient(np.array([y]), np.array([mean]))[0], -100.0, 100.0)
    f = np.linspace(min(mean, far) - 12 * sd, max(mean, far) + 12 * sd, 100_001)
    log_f = -0.5 * (f - mean) ** 2 / variance - power * loss.value(np.full(len(f), y), f)
    top = float(log_f.max())
    mass = np.exp(log_f - top)
    total = float(mass.sum())
    first = float(mass @ f) / total
    second = float(mass @ (f - first) ** 2) / total
    return top + np.log(total * (f[1] - f[0])) - 0.5 * np.log(2 * np.pi * variance), first, second


def moments(loss: Loss, y: float, power: float, mean: float, variance: float) -> list[float]:
    parts = loss.tilted(*(np.array([value]) for value in (y, mean, variance, power)))
    return [float(part[0]) for part in parts]


@pytest.mark.parametrize("y", [1.0, 0.0])
@pytest.mark.parametrize("power", [1.0, 2.0, 0.3])
@pytest.mark.parametrize("variance", [1e-6, 0.1, 10.0])
@pytest.mark.parametrize("mean", [-20.0, -2.0, 0.0, 1.0, 20.0])
def test_moments_are_those_of_the_integral(y: float, power: float, mean: float, variance: float) -> None:
    found, exact = (of(Bernoulli(), y, power, mean, variance) for of in (moments, exact_moments))
    assert found[0] == pytest.approx(exact[0], rel=1e-6, abs=1e-5)
    assert found[1] == pytest.approx(exact[1], rel=1e-6, abs=3e-5)
    assert found[2] == pytest.approx(exact[2], rel=1e-4)


@pytest.mark.parametrize("variance", [30.0, 1e3, 1e5])
@pytest.mark.parametrize("mean", [-20.0, 0.0, 3.0, 40.0])
def test_moments_are_those_of_the_integral_where_labels_are_all_but_separated(mean: float, variance: float) -> None:
    found, exact = (of(Bernoulli(), 1.0, 1.0, mean, variance) for of in (moments, exact_moments))
    assert found == pytest.approx(exact, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("loss", [Gaussian(), Poisson(), Gamma(), NegativeBinomial(1.7)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("power", [1.0, 2.5, 0.3])
def test_moments_of_every_loss_are_those_of_the_integral(loss: Loss, power: float) -> None:
    for y, mean, variance in product([0.0, 1.0, 30.0], [-4.0, 0.0, 3.0, 6.0], [1e-4, 0.1, 4.0]):
        target = max(y, 0.2) if loss.name == "gamma" else y
        found, exact = (of(loss, target, power, mean, variance) for of in (moments, exact_moments))
        assert found[0] == pytest.approx(exact[0], rel=1e-4, abs=3e-4), (y, mean, variance)
        assert found[1] == pytest.approx(exact[1], abs=3e-3 * np.sqrt(variance)), (y, mean, variance)
        assert found[2] == pytest.approx(exact[2], rel=1e-2), (y, mean, variance)


@pytest.mark.parametrize("y", [1.0, 0.0])
@pytest.mark.parametrize("variance", [100.0, 1e4])
@pytest.mark.parametrize("mean", [-50.0, -5.0, 0.0, 30.0])
def test_moments_of_wide_cavities(y: float, mean: float, variance: float) -> None:
    """A kink far narrower than the cavity: the rule is coarse where log-odds of ± 100 are likely, and stays sane."""
    found, exact = (of(Bernoulli(), y, 1.0, mean, variance) for of in (moments, exact_moments))
    sd = np.sqrt(variance)
    off = 0.01 if variance <= 100 else 0.15
    assert found[0] == pytest.approx(exact[0], abs=off)
    assert found[1] == pytest.approx(exact[1], abs=off * sd)
    assert found[2] == pytest.approx(exact[2], rel=3 * off)


@given(
    st.sampled_from([0.0, 1.0]),
    st.floats(0.01, 100),
    st.floats(-1e6, 1e6),
    st.floats(-12, 12),
)
def test_moments_are_finite_at_any_cavity(y: float, power: float, mean: float, exponent: float) -> None:
    log_z, first, second = moments(Bernoulli(), y, power, mean, 10.0**exponent)
    assert np.isfinite(log_z)
    assert np.isfinite(first)
    assert second > 0
    assert log_z <= 1e-6


def ridge(variance: float) -> Prior:
    return one_block(variance, 0.0, np.ones(1), np.ones(1), relevance=False, learned=False)


def run_ep(rows: GLMProblem, prior: Prior, dual: bool = False):
    """EP at a fixed prior to its fixed point: −2 log Z, derivatives."""
    found = climb_sites(rows, prior, DualRoute if dual else MeanRoute, gain=1e-16, learn=False)
    assert found.converged
    settled, derivatives = found.point.settled, found.point.settled.solution.at(prior).derivatives()
    return derivatives.value + settled.correction, derivatives, settled.solution.at(prior).posterior()


@pytest.mark.parametrize("y", [(1, 0, 1), (1, 1, 1), (0, 0, 1)])
@pytest.mark.parametrize("variance", [0.1, 2.0, 20.0])
@pytest.mark.parametrize("dual", [True, False])
def test_evidence_of_ep_is_close_to_quadrature(y: tuple[int, ...], variance: float, dual: bool) -> None:
    rng = np.random.default_rng(1)
    X, labels = rng.normal(size=(3, 1)), np.asarray(y, dtype=float)
    prior = ridge(variance)
    value, _, found = run_ep(problem([X], labels, np.ones(3), Bernoulli()), prior, dual=dual)

    def density(w: float) -> float:
        return float(
            np.exp(-0.5 * w * w / variance)
            / np.sqrt(2 * np.pi * variance)
            * np.prod(expit((2 * labels - 1) * X[:, 0] * w))
        )

    reach = 12 * np.sqrt(variance)
    total = quad(density, -reach, reach, epsabs=0, epsrel=1e-10, limit=300)[0]
    mean = quad(lambda w: w * density(w), -reach, reach, epsrel=1e-10, limit=300)[0] / total
    square = quad(lambda w: (w - mean) ** 2 * density(w), -reach, reach, epsrel=1e-10, limit=300)[0] / total
    assert value == pytest.approx(-2 * np.log(total), abs=0.02)
    assert found.coef[0, 0] == pytest.approx(mean, abs=0.02 * np.sqrt(square))
    assert found.covariances()[0][0, 0] == pytest.approx(square, rel=0.05)


@pytest.mark.parametrize(
    ("loss", "y", "dispersion"), [(Bernoulli(), 1.0, 1.0), (Poisson(), 3.0, 1.0), (Gamma(), 2.0, 0.3)]
)
def test_one_row_is_exact(loss: Loss, y: float, dispersion: float) -> None:
    """With a single row EP's only site is the likelihood itself: its evidence is the integral's."""
    prior = ridge(3.0)
    rows = problem([np.array([[0.7]])], np.array([y]), np.ones(1), loss, dispersion)
    value, _, found = run_ep(rows, prior)
    log_z, mean, variance = moments(loss, y, 1 / dispersion, 0.0, 3.0 * 0.49)
    base = float(loss.log_base(np.array([y]), np.array([dispersion]))[0])
    assert value == pytest.approx(-2 * (log_z + base), abs=1e-7)
    assert found.coef[0, 0] * 0.7 == pytest.approx(mean, abs=1e-6)
    assert found.covariances()[0][0, 0] * 0.49 == pytest.approx(variance, abs=1e-6)


@pytest.mark.parametrize("dual", [True, False])
def test_gradient_of_eps_evidence(dual: bool) -> None:
    rng = np.random.default_rng(2)
    K, d = 3, 2
    X = [rng.normal(size=(n, d)) for n in (2, 5, 8)]
    y = np.concatenate([(x @ np.array([1.0, -0.5]) + rng.normal(size=len(x)) > 0).astype(float) for x in X])
    rows = problem(X, y, np.ones(len(y)), Bernoulli())
    prior = one_block(1.5, 0.8, np.array([1.3, 0.6]), np.ones(K), learned=False)
    slope = prior.slopes(run_ep(rows, prior, dual)[1])[0]
    e = 1e-3
    for j, unit in enumerate(np.eye(len(slope))):
        values = [
            moved.objective(run_ep(rows, moved, dual)[0]) for moved in (prior.moved(e * unit), prior.moved(-e * unit))
        ]
        assert slope[j] == pytest.approx((values[0] - values[1]) / (2 * e), rel=1e-3, abs=1e-4), j


@pytest.mark.parametrize("loss", [Bernoulli(), Poisson(), Gamma()], ids=lambda loss: loss.name)
def test_weights_are_repetitions(loss) -> None:
    rng = np.random.default_rng(3)
    K, d = 2, 2
    X = [rng.normal(size=(n, d)) for n in (6, 9)]
    n = sum(map(len, X))
    y = {"bernoulli": rng.integers(0, 2, n), "poisson": rng.poisson(3, n), "gamma": rng.gamma(2, size=n)}[loss.name]
    y = y.astype(float)
    counts = rng.integers(1, 4, n)
    prior = one_block(0.7, 0.4, np.ones(d), np.ones(K), learned=False)
    weighted = run_ep(problem(X, y, counts.astype(float), loss), prior)
    parts = np.split(np.arange(n), [6])
    repeated = run_ep(
        problem(
            [np.repeat(x, counts[p], axis=0) for x, p in zip(X, parts, strict=True)],
            np.repeat(y, counts),
            np.ones(counts.sum()),
            loss,
        ),
        prior,
    )
    assert weighted[0] == pytest.approx(repeated[0], abs=1e-6)
    np.testing.assert_allclose(weighted[2].coef, repeated[2].coef, atol=1e-7)
    np.testing.assert_allclose(weighted[2].covariances()[1], repeated[2].covariances()[1], atol=1e-7)


@pytest.mark.parametrize("loss", [Poisson(), Gamma(), NegativeBinomial(2.0)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("n", [2, 8])
def test_evidence_of_every_loss_is_close_to_quadrature(loss: Loss, n: int) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 1))
    y = rng.gamma(2, size=n) if loss.name == "gamma" else rng.poisson(np.exp(X[:, 0] + 1)).astype(float)
    variance = 0.9
    prior = ridge(variance)
    value, _, found = run_ep(problem([X], y, np.ones(n), loss), prior)
    w = np.linspace(-12, 12, 20_001)
    log_p = np.sum(loss.log_density(y[:, None], X * w, 1.0), axis=0) - 0.5 * w**2 / variance
    mass = np.exp(log_p - log_p.max())
    total = float(log_p.max() + np.log(mass.sum() * (w[1] - w[0])) - 0.5 * np.log(2 * np.pi * variance))
    mass /= mass.sum()
    mean = float(mass @ w)
    square = float(mass @ (w - mean) ** 2)
    assert value == pytest.approx(-2 * total, abs=0.02)
    assert found.coef[0, 0] == pytest.approx(mean, abs=0.02 * np.sqrt(square))
    assert found.covariances()[0][0, 0] == pytest.approx(square, rel=0.05)


def counts(theta: float, seed: int = 0, n: int = 150):
    """Three tasks with counts that vary more than Poisson's."""
    rng = np.random.default_rng(seed)
    X = [np.column_stack([rng.normal(size=(n, 2)), np.ones(n)]) for _ in range(3)]
    rates = np.concatenate([np.exp(x @ [0.5, -0.4, 1.0]) for x in X])
    return X, rng.poisson(rng.gamma(theta, rates / theta)).astype(float)


@pytest.mark.parametrize("loss", [Poisson(), NegativeBinomial(0.6)], ids=lambda loss: loss.name)
def test_slopes_of_the_climb_are_differences(loss: Loss) -> None:
    X, y = counts(1.0, n=12)
    prior = with_levels(
        one_block(0.5, 0.4, np.array([1.3, 0.6]), np.ones(3), learned=False, predictor=np.ones(3)), 0.5, 100.0
    )

    def at(point: sites.SitePoint) -> tuple[float, np.ndarray, np.ndarray]:
        found = point.evaluated(MeanRoute, 1e-8)
        assert found is not None
        return found

    rows = problem(X, y, np.ones(len(y)), loss)
    point = sites.SitePoint(prior, rows, rows.start())
    _, slope, metric = at(point)
    assert np.all(metric > 0)
    e = 1e-3
    for j in np.flatnonzero(slope).tolist():
        unit = np.eye(len(slope))[j]
        difference = (at(point.moved(e * unit))[0] - at(point.moved(-e * unit))[0]) / (2 * e)
        assert slope[j] == pytest.approx(difference, rel=2e-4, abs=2e-4), j


@pytest.mark.parametrize("theta", [0.7, 4.0])
def test_the_climb_learns_a_parameter_of_the_loss(theta: float) -> None:
    X, y = counts(theta)
    prior = with_levels(one_block(0.25, 0.25, np.ones(2), np.ones(3), learned=False, predictor=np.ones(3)), 0.5, 100.0)
    for start in (0.1, 30.0):
        rows = problem(X, y, np.ones(len(y)), NegativeBinomial(start))
        found = climb_sites(rows, prior, MeanRoute)
        assert found.converged
        assert found.point.problem.loss.theta == pytest.approx(theta, rel=0.35)
        assert rows.loss.theta == start


@pytest.mark.parametrize("dual", [True, False])
def test_labels_turned_round_turn_the_weights(dual: bool) -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(9, 1)), rng.integers(0, 2, 9).astype(float)
    prior = ridge(2.0)
    a = run_ep(problem([X], y, np.ones(9), Bernoulli()), prior, dual=dual)
    b = run_ep(problem([X], 1 - y, np.ones(9), Bernoulli()), prior, dual=dual)
    assert a[0] == pytest.approx(b[0], abs=1e-7)
    np.testing.assert_allclose(a[2].coef, -b[2].coef, atol=1e-7)


def test_a_separable_problem_ends_with_finite_hyperparameters() -> None:
    rng = np.random.default_rng(6)
    X = [rng.normal(size=(15, 3)) for _ in range(3)]
    y = np.concatenate([(x[:, 0] > 0).astype(float) for x in X])
    prior = one_block(0.1, 0.1, np.ones(3), np.ones(3), learned=False, predictor=np.ones(3))
    rows = problem(X, y, np.ones(45), Bernoulli())
    found = climb_sites(rows, prior, MeanRoute)
    assert found.converged
    assert found.point.prior.mean_variances.max() < 1e4
    coef = found.point.settled.solution.at(found.point.prior).posterior().coef
    assert np.isfinite(coef).all()
    signs = np.concatenate([x @ w for x, w in zip(X, coef, strict=True)]) > 0
    assert np.mean(signs == (y > 0.5)) > 0.95


def test_a_row_of_weight_below_one_has_its_exact_posterior() -> None:
    """One row and one weight: EP is exact, whatever power its likelihood has."""
    w = np.linspace(-40, 40, 400_001)
    for power, variance in [(0.25, 1.0), (0.01, 4.0), (1.0, 2.0), (1e-4, 3.0)]:
        density = np.exp(-0.5 * w**2 / variance - power * np.logaddexp(0.0, -w))
        mean = float(np.sum(w * density) / np.sum(density))
        evidence = float(np.log(np.sum(density) * (w[1] - w[0]) / np.sqrt(2 * np.pi * variance)))
        prior = ridge(variance)
        rows = problem([np.ones((1, 1))], np.ones(1), np.array([power]), Bernoulli())
        value, _, found = run_ep(rows, prior)
        assert float(found.coef[0, 0]) == pytest.approx(mean, rel=1e-5)
        assert value == pytest.approx(-2 * evidence, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_heavy_and_light_rows_that_can_be_separated_end_with_finite_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, 2)) for n in (4, 7, 9)]
    y = np.concatenate([(x @ [2.0, 1.0] > 0.3).astype(float) for x in X])
    weights = 10.0 ** rng.uniform(-3, 3, len(y))
    blocks = [np.column_stack([x, np.ones(len(x))]) for x in X]
    prior = with_levels(one_block(0.25, 0.25, np.ones(2), np.ones(3), learned=False, predictor=np.ones(3)), 0.5, 100.0)
    rows = problem(blocks, y, weights, Bernoulli())
    found = climb_sites(rows, prior, MeanRoute)
    assert found.converged
    assert found.point.prior.own_variances.max() < 1e5
    assert np.isfinite(found.point.settled.solution.at(found.point.prior).posterior().coef).all()
