"""Moderated variances: what is known well stays, what is not is drawn to the common value."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import polygamma
from scipy.stats import f as f_distribution

from mssl import MSSLRegressor
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.quadratic import Quadratic
from mssl.solvers.start import (
    Spectra,
    _excess,
    _trigamma_inverse,
    diagonal_start,
    moderate,
    residual_freedom,
    ridge_fixed_point,
    variance_components,
)
from mssl.solvers.weights import CoefficientProblem
from mssl.structures import SparsePrecision
from mssl.structures.base import StructureScale

POSITIVE = st.floats(1e-6, 1e6)


def tables(least=1, smallest=0.0):
    """Variances with degrees of freedom."""
    pairs = st.tuples(POSITIVE, st.floats(smallest, 1e4))
    return st.lists(pairs, min_size=least, max_size=12).map(lambda table: np.array(table).T)


@settings(deadline=None, max_examples=200)
@given(tables())
def test_stays_within_the_estimates_that_have_degrees_of_freedom(table):
    variances, freedom = table
    answer = moderate(variances, freedom)
    known = freedom > 1e-3
    if not known.any():
        np.testing.assert_array_equal(answer, variances)
        return
    low, high = variances[known].min(), variances[known].max()
    assert np.all(answer >= low * (1 - 1e-9))
    assert np.all(answer <= high * (1 + 1e-9))
    # A single common value towards which all are drawn: the order is kept among equally well known ones.
    for one, two in zip(*np.triu_indices(len(answer), 1), strict=True):
        if freedom[one] == freedom[two]:
            assert (variances[one] - variances[two]) * (answer[one] - answer[two]) >= -1e-9 * high**2


@settings(deadline=None, max_examples=100)
@given(tables(), st.floats(1e-3, 1e3), st.randoms())
def test_units_and_order_do_not_matter(table, unit, random):
    variances, freedom = table
    answer = moderate(variances, freedom)
    np.testing.assert_allclose(moderate(unit * variances, freedom), unit * answer, rtol=1e-6)
    order = np.array(random.sample(range(len(variances)), len(variances)))
    np.testing.assert_allclose(moderate(variances[order], freedom[order]), answer[order], rtol=1e-6)


@given(POSITIVE, st.floats(0.0, 1e4))
def test_one_task_keeps_its_own(variance, freedom):
    np.testing.assert_array_equal(moderate(np.array([variance]), np.array([freedom])), [variance])


def test_variances_known_exactly_are_unchanged():
    variances = np.random.default_rng(0).lognormal(size=30)
    np.testing.assert_allclose(moderate(variances, np.full(30, 1e9)), variances, rtol=1e-7)


@pytest.mark.parametrize("freedom", [3, 20])
def test_equal_truths_are_drawn_to_nearly_one_value(freedom):
    random = np.random.default_rng(1)
    truth, spreads, kept = 7.0, [], []
    for _ in range(20):
        found = truth * random.chisquare(freedom, size=200) / freedom
        answer = moderate(found, np.full(200, float(freedom)))
        spreads.append(np.log(answer).std() / np.log(found).std())
        kept.append(answer.mean() / truth)
    assert np.mean(spreads) < 0.1
    assert np.mean(kept) == pytest.approx(1.0, abs=0.05)


def test_the_prior_is_found_and_its_answer_predicts_precisions_best():
    random = np.random.default_rng(2)
    prior, scale, freedom = 8.0, 3.0, random.integers(2, 30, size=4000).astype(float)
    truth = scale * prior / random.chisquare(prior, size=4000)
    found = truth * random.chisquare(freedom) / freedom
    answer, best = moderate(found, freedom), (prior * scale + freedom * found) / (prior + freedom)
    np.testing.assert_allclose(answer, best, rtol=0.1)
    # Estimates over their common value have an F distribution; so had the draws.
    assert f_distribution.cdf(found / scale, freedom, prior).mean() == pytest.approx(0.5, abs=0.02)
    errors = [np.mean((truth / unit - 1) ** 2) for unit in (found, np.full(4000, np.median(found)), answer)]
    assert errors[2] < min(errors[:2])


def test_what_is_not_known_takes_the_common_value_and_has_no_say():
    random = np.random.default_rng(3)
    found, freedom = random.chisquare(10, size=12) / 10, np.full(12, 10.0)
    answer = moderate(found, freedom)
    more = moderate(np.append(found, [1e-30, 1e30]), np.append(freedom, [0.0, 0.0]))
    np.testing.assert_allclose(more[:12], answer, rtol=1e-12)
    assert more[12] == more[13]
    assert found.min() <= more[12] <= found.max()
    faint = moderate(np.append(found, 1e-8), np.append(freedom, 0.01))
    np.testing.assert_allclose(faint[:12], answer, rtol=0.05)
    assert faint[12] > found.min()


@given(st.floats(1e-12, 1e6))
def test_inverse_of_the_trigamma_function(value):
    assert polygamma(1, _trigamma_inverse(value)) == pytest.approx(value, rel=1e-6)


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=10), st.floats(0.01, 4))
def test_with_equal_errors_the_excess_is_the_variance_beyond_them(z, error):
    z = np.array(z)
    expected = max(z.var(ddof=1) - error, 0.0)
    assert _excess(z, np.full(len(z), error)) == pytest.approx(expected, abs=1e-8)


def test_degrees_of_freedom_lie_between_those_of_no_fit_and_of_least_squares():
    values = np.array([[4.0, 2.0, 0.0], [4.0, 2.0, 1.0]])
    spectra = Spectra(values, np.zeros_like(values), np.ones(2), np.array([9.0, 2.0]), 3)
    for signal, expected in ((0.0, [9.0, 2.0]), (1e12, [7.0, 0.0])):
        np.testing.assert_allclose(residual_freedom(spectra, np.ones(2), np.full(2, signal)), expected, atol=1e-9)
    between = residual_freedom(spectra, np.ones(2), np.ones(2))
    np.testing.assert_allclose(between, [9 - 4 / 5 - 2 / 3, max(2 - 4 / 5 - 2 / 3 - 1 / 2, 0)])


def _few_rows(seed, rows, n_features=12, n_tasks=6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_tasks, rows, n_features))
    weights = rng.normal(size=n_features) + 0.3 * rng.normal(size=(n_tasks, n_features))
    y = np.einsum("knd,kd->kn", X, weights) + 2.0 * rng.normal(size=(n_tasks, rows))
    return X.reshape(-1, n_features), y.ravel(), np.repeat(np.arange(n_tasks), rows)


@pytest.mark.parametrize("seed", range(6))
def test_noise_does_not_vanish_where_a_task_has_fewer_rows_than_features(seed):
    X, y, tasks = _few_rows(seed, 8)
    shares = MSSLRegressor().fit(X, y, tasks=tasks).noise_variance_ / [
        y[tasks == task].var(ddof=1) for task in range(6)
    ]
    assert shares.min() > 0.05


def test_few_rows_beside_many_have_the_noise_share_of_the_others():
    X, y, tasks = _few_rows(0, 200)
    kept = (tasks > 0) | (np.arange(len(y)) < 6)
    X, y, tasks = X[kept], y[kept], tasks[kept]
    shares = MSSLRegressor().fit(X, y, tasks=tasks).noise_variance_ / [
        y[tasks == task].var(ddof=1) for task in range(6)
    ]
    assert shares[1:].min() <= shares[0] <= shares[1:].max()


def test_with_many_rows_the_noise_is_that_of_the_task_alone():
    X, y, tasks = _few_rows(1, 2000)
    y = y * np.where(tasks == 2, 3.0, 1.0) + np.where(tasks == 4, 1.0, 0.0) * np.random.default_rng(0).normal(
        size=len(y)
    )
    together = MSSLRegressor().fit(X, y, tasks=tasks).noise_variance_ ** 0.5
    alone = [MSSLRegressor().fit(X[tasks == task], y[tasks == task], tasks=tasks[tasks == task]) for task in range(6)]
    np.testing.assert_allclose(together, [model.noise_variance_[0] ** 0.5 for model in alone], rtol=0.02)


@given(st.integers(0, 10**6), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_ridge_fixed_point_is_that_of_the_plain_iteration(seed, strength):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((5, 20, 4)), rng.standard_normal((5, 20)) * rng.uniform(0.5, 3, (5, 1))
    g, U = np.linalg.eigh(np.matmul(X.transpose(0, 2, 1), X))
    q = np.einsum("kij,kni,kn->kj", U, X, y)
    noise, floors = rng.uniform(0.5, 2, 5), rng.uniform(0.01, 0.3, 5)
    v = rng.uniform(0.1, 2, 5)
    found = ridge_fixed_point(Spectra(g, q, (y**2).sum(1), np.full(5, 20.0), 4), noise, floors, strength, v)
    for k in range(5):
        here, last = v[k], np.inf
        while abs(here - last) > 1e-11 * here:
            w = np.linalg.solve(X[k].T @ X[k] / noise[k] + strength / (here + floors[k]) * np.eye(4), X[k].T @ y[k])
            here, last = np.mean((w / noise[k]) ** 2), here
        assert found[k] == pytest.approx(here, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("known", [False, True])
def test_variance_components_are_the_likeliest(known, rng):
    tasks = [(rng.normal(size=(25, 4)), weight) for weight in (0.1, 0.5, 2.0, 30.0)]
    rows = [(X, X @ rng.normal(size=4) * weight + rng.normal(size=25)) for X, weight in tasks]
    spectra = [np.linalg.eigh(X.T @ X) for X, _ in rows]
    q = [U.T @ X.T @ y for (X, y), (_, U) in zip(rows, spectra, strict=True)]
    squares = np.array([y @ y for _, y in rows])
    found = Spectra(np.array([g for g, _ in spectra]), np.array(q), squares, np.full(4, 25.0), 4)
    noise, signal = variance_components(found, np.full(4, 1.5) if known else None)
    for (X, y), own, variance in zip(rows, noise, signal, strict=True):

        def deviance(log_ratio, X=X, y=y):
            shape = np.eye(25) + np.exp(log_ratio) * X @ X.T
            square = y @ np.linalg.solve(shape, y)
            level = 1.5 if known else square / 25
            return 25 * np.log(level) + square / level + np.linalg.slogdet(shape)[1]

        best = min((deviance(u), u) for u in np.linspace(-15, 15, 301))[1]
        best = minimize_scalar(deviance, bounds=(best - 0.2, best + 0.2), options={"xatol": 1e-9}).x
        np.testing.assert_allclose(np.log(variance / own), best, atol=1e-5)
        if known:
            assert own == 1.5
        else:
            shape = np.eye(25) + variance / own * X @ X.T
            np.testing.assert_allclose(own, y @ np.linalg.solve(shape, y) / 25, rtol=1e-9)


def test_variance_components_of_a_task_do_not_depend_on_the_others(rng):
    values, q = rng.uniform(0.1, 50.0, size=(6, 5)), rng.normal(size=(6, 5)) * np.geomspace(0.01, 100.0, 6)[:, None]
    squares = 20 + (q**2 / values).sum(axis=1)
    together = np.array(variance_components(Spectra(values, q, squares, np.full(6, 20.0), 5)))
    for k in range(6):
        own = (np.array(part[k : k + 1]) for part in (values, q, squares, np.full(6, 20.0)))
        np.testing.assert_allclose(np.ravel(variance_components(Spectra(*own, 5))), together[:, k], rtol=1e-12)


def test_noise_alone_and_targets_without_noise(rng):
    values = rng.uniform(1.0, 5.0, size=(2, 3))
    q = np.array([np.zeros(3), values[1]])  # nothing explained; all of it, by weights of 1
    noise, signal = variance_components(Spectra(values, q, np.array([10.0, values[1].sum()]), np.full(2, 10.0), 3))
    np.testing.assert_array_equal([noise[0], signal[0]], [1.0, 0.0])
    assert 0 < noise[1] < 1e-4
    assert signal[1] > 0.1


def test_one_degree_of_freedom_has_equal_shares_of_signal_and_noise_whatever_rounding_says():
    """Its criterion is flat: log(y²/(1 + tg)) + log(1 + tg) is the same for all t."""
    random = np.random.default_rng(4)
    g, y = 10.0 ** random.uniform(-6, 6, (200, 1)), 10.0 ** random.uniform(-3, 3, (200, 1))
    rounded = np.sqrt(g) * y * (1 + 1e-14 * random.standard_normal((200, 1)))
    noise, signal = variance_components(Spectra(g, rounded, y[:, 0] ** 2, np.ones(200), 1))
    np.testing.assert_allclose(noise, y[:, 0] ** 2 / 2, rtol=1e-6)
    np.testing.assert_allclose(signal * g[:, 0], noise, rtol=1e-6)


def test_a_task_without_features_that_vary_has_no_signal():
    _, signal = variance_components(Spectra(np.zeros((2, 3)), np.zeros((2, 3)), np.ones(2), np.full(2, 4.0), 3))
    np.testing.assert_array_equal(signal, 0.0)


def test_weight_steps_that_miss_their_accuracy_end_the_start_after_a_few():
    """Variances are then those of the last weights, whatever these are."""
    made = []

    class Creeping:
        compiled = None

        def value(self, W):
            return 1.0

        def related(self, W):
            return W

        def solve(self, coupling, W, *, tol, max_iter):
            made.append(tol)
            return WeightStep(W + 2.0, 2.0 * tol, 1, Status.MAX_ITER)

    scale = StructureScale(3, np.ones(2), np.full(2, 0.1), 1.0)
    found, W = diagonal_start(Creeping(), SparsePrecision(0.1), scale, np.zeros((2, 3)))
    assert len(made) == 5
    np.testing.assert_allclose(found.variances, np.mean(W**2, axis=1))


@pytest.mark.parametrize("threshold", [0.0, 0.1])
@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_the_start_is_a_fixed_point(threshold, tau):
    """With the found variances the weights' mean squares are these variances, and the weights are the best ones."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4, 10, 3))
    H = np.matmul(X.transpose(0, 2, 1), X)
    q = np.matmul(H, rng.standard_normal((4, 3, 1)))[:, :, 0]
    penalty = EntrywisePenalty(np.full(q.shape, threshold))
    loss = CoefficientProblem(penalty, source=Quadratic(H, q, np.full(4, 5.0)))
    structure, scale = SparsePrecision(0.1, coupling=2.0), StructureScale(3, np.ones(4), np.full(4, 0.1), 1.0)
    found, W = diagonal_start(loss, structure, scale, np.zeros((4, 3)), mean_variance=tau)
    v, P = found.variances, np.diag(2.0 * structure.diagonal(found))
    C = np.linalg.inv(np.linalg.inv(P) + tau)
    mean = tau * (C @ W).sum(axis=0)
    rho = 1.0 / (1.0 / tau + P.sum()) if tau else 0.0
    np.testing.assert_allclose(((W - mean) ** 2).mean(axis=1) + rho, v, rtol=1e-5)
    slope = np.einsum("kij,kj->ki", H, W) - q + C @ W
    np.testing.assert_allclose(slope, np.clip(slope, -threshold, threshold), atol=1e-4)
    np.testing.assert_allclose(slope[W != 0], -threshold * np.sign(W[W != 0]), atol=1e-4)
