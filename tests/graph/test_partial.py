"""Partial correlations of weights that are known with errors: the likelihood, its derivatives, and what it reduces to."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mssl.evidence.climb import climb
from mssl.graph.information import _CLOSE, Known, Relations, fisher, partial_at, partial_correlations


def problem(seed=0, p=3, d=6, n=9):
    """Tasks with designs of their own, weights correlated by one half."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((p, n, d))
    W = np.linalg.cholesky(0.5 * np.eye(p) + 0.5) @ random.standard_normal((p, d))
    y = np.einsum("knd,kd->kn", X, W) + random.standard_normal((p, n))
    J = np.zeros((1, p, d, p, d))
    for k in range(p):
        J[0, k, :, k] = X[k].T @ X[k]
    return Known(J, np.einsum("knd,kn->kd", X, y)[None])


def covariance_of_scores(J, sigma):
    size = J.shape[1] * J.shape[2]
    flat = J[0].reshape(size, size)
    return flat @ np.kron(sigma, np.eye(J.shape[2])) @ flat + flat


COVARIANCES = [np.eye(3), np.array([[2.0, 0.5, -0.3], [0.5, 1.0, 0.2], [-0.3, 0.2, 0.7]])]


PRIOR = Relations(np.eye(3))._centre()[0]


def objective(sigma, known):
    return Relations(sigma).evaluated(known)[0]


def top_of(known):
    """The covariance of the highest likelihood, and the gradient in its entries there."""
    start = Relations(1.1 * np.eye(known.scores.shape[1]))
    sigma = climb(lambda point: point.evaluated(known), start, gain=_CLOSE).point.T
    omega, (_, P, s) = np.linalg.inv(sigma), known.likelihood(sigma)
    fall = np.einsum("zia,zja->ij", s, s) + PRIOR * omega @ omega
    return sigma, np.einsum("ziaja->ij", P) + PRIOR * omega - fall


def test_the_likelihood_is_that_of_the_scores():
    known = problem()
    expected = [
        multivariate_normal(cov=covariance_of_scores(known.information, sigma)).logpdf(known.scores.ravel())
        for sigma in COVARIANCES
    ]
    found = [-0.5 * known.likelihood(sigma)[0] for sigma in COVARIANCES]
    assert found[1] - found[0] == pytest.approx(expected[1] - expected[0], rel=1e-8)


def test_gradient_and_information_are_those_of_the_likelihood():
    known, sigma, p = problem(), COVARIANCES[1], 3
    _, P, s = known.likelihood(sigma)
    gradient = np.einsum("ziaja->ij", P) - np.einsum("zia,zja->ij", s, s)
    upper = list(zip(*np.triu_indices(p), strict=True))
    units = []
    for i, j in upper:
        unit = np.zeros((p, p))
        unit[i, j] = unit[j, i] = 1.0
        units.append(unit)
        values = [known.likelihood(sigma + step * unit)[0] for step in (-1e-4, 1e-4)]
        slope = gradient[i, j] * (1 if i == j else 2)
        assert (values[1] - values[0]) / 2e-4 == pytest.approx(slope, rel=1e-5)
    size = p * known.scores.shape[2]
    J = known.information[0].reshape(size, size)
    inverse = np.linalg.inv(covariance_of_scores(known.information, sigma))
    moved = [inverse @ J @ np.kron(unit, np.eye(known.scores.shape[2])) @ J for unit in units]
    omega = np.linalg.inv(sigma)
    prior = [omega @ unit for unit in units]
    expected = [
        [0.5 * np.trace(a @ b) + 0.5 * PRIOR * np.trace(c @ e) for b, e in zip(moved, prior, strict=True)]
        for a, c in zip(moved, prior, strict=True)
    ]
    np.testing.assert_allclose(fisher(sigma, known.information), expected, rtol=1e-9)


def test_at_the_top_the_gradient_is_zero_and_the_likelihood_highest():
    known = problem(1)
    sigma, slope = top_of(known)
    assert np.abs(slope).max() < 2e-2
    random = np.random.default_rng(0)
    for _ in range(10):
        step = random.standard_normal((3, 3))
        assert objective(sigma + 0.02 * (step + step.T), known) > objective(sigma, known)


def test_without_errors_they_are_the_partial_correlations_of_the_weights():
    random = np.random.default_rng(2)
    W = random.standard_normal((4, 50)) + random.standard_normal(50)
    exact = np.broadcast_to(1e10 * np.eye(4).reshape(4, 1, 4, 1), (50, 4, 1, 4, 1))
    found = partial_correlations(Known(exact, 1e10 * W.T[:, :, None]), np.mean(W**2, axis=1))
    omega = np.linalg.inv(W @ W.T)
    root = np.sqrt(np.diagonal(omega))
    expected = -omega / np.outer(root, root)
    np.fill_diagonal(expected, 1.0)
    np.testing.assert_allclose(found[0], expected, atol=4 * PRIOR / 50)
    np.testing.assert_allclose(found[1][~np.eye(4, dtype=bool)], 50.0, rtol=4 * PRIOR / 50)


def test_directions_without_information_change_nothing():
    known = problem(3)
    p, d = known.scores.shape[1:]
    J, h = np.zeros((1, p, d + 4, p, d + 4)), np.zeros((1, p, d + 4))
    J[:, :, :d, :, :d], h[:, :, :d] = known
    for one, other in zip(
        partial_correlations(known, np.ones(p)), partial_correlations(Known(J, h), np.ones(p)), strict=True
    ):
        np.testing.assert_allclose(one[0, 1:], other[0, 1:], rtol=1e-6)


def test_more_error_tells_less():
    known = problem(4, d=20, n=60)
    plenty = partial_correlations(known, np.ones(3))[1]
    worse = partial_correlations(Known(known.information / 4, known.scores / 4), np.ones(3))[1]
    assert np.all(worse[np.triu_indices(3, 1)] < plenty[np.triu_indices(3, 1)])
    assert np.all(plenty <= 20 * (1 + PRIOR))


def test_groups_known_badly_are_climbed_to_the_top_in_few_evaluations(monkeypatch):
    """Fewer rows than features: the likelihood bends more than expected, so that full steps lead too far."""
    random = np.random.default_rng(3)
    p, d, n = 6, 20, 18
    lags = np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    W = np.linalg.cholesky(0.95**lags) @ random.standard_normal((p, d))
    X = random.standard_normal((p, n, d))
    J = np.zeros((1, p, d, p, d))
    for k in range(p):
        J[0, k, :, k] = X[k].T @ X[k]
    h = np.einsum("knd,kn->kd", X, np.einsum("knd,kd->kn", X, W) + random.standard_normal((p, n)))[None]
    known, evaluated, likelihood = Known(J, h), [], Known.likelihood
    monkeypatch.setattr(Known, "likelihood", lambda *given: evaluated.append(0) or likelihood(*given))
    assert partial_correlations(known, np.ones(p)) is not None
    assert len(evaluated) < 50
    (sigma, gradient), upper = top_of(known), np.triu_indices(p)
    slope = np.where(upper[0] == upper[1], 1, 2) * 0.5 * gradient[upper]
    assert slope @ np.linalg.solve(fisher(sigma, J), slope) < _CLOSE


@pytest.mark.parametrize("times", [np.nan, np.inf, -1.0])
def test_no_likelihood_gives_no_partial_correlations(times):
    known = problem()
    with np.errstate(invalid="ignore"):
        assert partial_correlations(Known(times * known.information, known.scores), np.ones(3)) is None


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_unit_of_the_weights_plays_no_part(unit):
    known = problem(5)
    here = partial_correlations(known, np.ones(3))
    there = partial_correlations(Known(known.information / unit, known.scores / np.sqrt(unit)), np.full(3, unit))
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(("p", "B", "size"), [(5, 40, 2.0), (4, 60, 4.0), (3, 300, 3.0)])
def test_observations_are_as_many_as_at_the_true_covariance(p, B, size):
    """On average the number is that at the covariance which made the weights. From few directions, known with errors,
    the estimate as it is would halve it: it leaves the tasks less variance of their own than they have."""
    sigma = 0.5 * np.eye(p) + 0.5
    J = np.zeros((B, p, 1, p, 1))
    J[:, np.arange(p), 0, np.arange(p), 0] = size
    root = np.linalg.cholesky(size**2 * sigma + size * np.eye(p))
    pairs = np.triu_indices(p, 1)
    true = np.median(partial_at(sigma, J)[1][pairs])
    random = np.random.default_rng(0)
    found = []
    for _ in range(25):
        h = (random.standard_normal((B, p)) @ root.T)[:, :, None]
        found.append(np.median(partial_correlations(Known(J, h), np.ones(p))[1][pairs]))
    assert 0.8 < np.mean(found) / true < 1.25
