"""Laws of the graphical lasso: optimality, certificates, invariances, and agreement of independent solvers."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag
from scipy.sparse.csgraph import connected_components
from sklearn.covariance import graphical_lasso as sklearn_graphical_lasso
from sklearn.exceptions import ConvergenceWarning

from mssl import kernels
from mssl.exceptions import DataError, ParameterError
from mssl.glasso.solver import GlassoStatus, GraphicalLassoResult, graphical_lasso, graphical_lasso_gap


def covariance(p, n, seed=0, spread=0.0):
    """Sample covariance of n rows of p variables that share a few factors; singular when n ≤ p."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) @ rng.standard_normal((3, p)) * 0.7 + rng.standard_normal((n, p))
    X *= np.exp(spread * rng.standard_normal(p))
    return X.T @ X / n


def alpha_max(S):
    """The smallest alpha for which the graph is empty."""
    return float(np.abs(S - np.diag(np.diag(S))).max())


def sparse_covariance(p, n, seed=0):
    """Sample covariance of n rows of a sparse Gaussian model of mean degree 3."""
    rng = np.random.default_rng(seed)
    A = np.triu(rng.random((p, p)) < 3 / p, 1) * rng.uniform(0.3, 0.6, (p, p)) * rng.choice([-1, 1], (p, p))
    A = A + A.T
    A += (0.2 - np.linalg.eigvalsh(A)[0]) * np.eye(p)
    X = rng.standard_normal((n, p)) @ np.linalg.cholesky(np.linalg.inv(A)).T
    return X.T @ X / n


def objective(S, omega, penalty, e):
    """The objective from its definition; `penalty` is a full matrix whose diagonal does not count."""
    off = ~np.eye(len(S), dtype=bool)
    return (
        np.trace(S @ omega)
        - np.linalg.slogdet(omega)[1]
        + np.sum(penalty[off] * np.abs(omega[off]))
        + np.sum(e * np.diag(omega))
    )


def kkt_violation(S, result, penalty, e):
    """Largest violation of Σ − S' ∈ Λ ∂|Ω|, in units of a unit diagonal."""
    residual = np.linalg.inv(result.precision) - S - np.diag(e)
    sign = np.sign(result.precision)
    off = ~np.eye(len(S), dtype=bool)
    target = np.where(sign != 0, penalty * sign, np.clip(residual, -penalty, penalty))
    violation = np.abs(residual - np.where(off, target, 0.0))
    scale = np.sqrt(np.diag(S) + e)
    return (violation / scale / scale[:, None]).max()


def assert_sound(result, tol=1e-6):
    """What every result promises."""
    omega = result.precision
    assert result.status == "converged"
    assert result.gap <= tol * max(1.0, abs(result.objective))
    assert np.array_equal(omega, omega.T)
    np.linalg.cholesky(omega)
    assert np.allclose(omega @ result.covariance, np.eye(len(omega)), atol=1e-8)
    assert np.isclose(result.log_determinant, np.linalg.slogdet(omega)[1])


def dual_bound(result, S, penalty, e):
    """The lower bound that the dual point of a result proves, once it is seen to be one."""
    U = result.dual - S - np.diag(e)
    unit = np.sqrt(np.outer(np.diag(S) + e, np.diag(S) + e))
    assert np.all(np.abs(np.diag(U)) <= 1e-13 * np.diag(unit))
    np.fill_diagonal(U, 0.0)
    assert np.all(np.abs(U) <= penalty + 1e-13 * unit)
    np.linalg.cholesky(result.dual)
    return np.linalg.slogdet(result.dual)[1] + len(S)


CASES = [
    pytest.param(covariance(8, 40), 0.1, id="p8-n40"),
    pytest.param(covariance(13, 6, 1), 0.3, id="p13-n6"),
    pytest.param(covariance(40, 20, 2), 0.25, id="p40-n20"),
    pytest.param(sparse_covariance(60, 300, 3), 0.1, id="sparse60"),
    pytest.param(covariance(20, 60, 4, spread=2.0), 0.05, id="uneven-scales"),
]


# ---- optimality


@pytest.mark.parametrize("solver", ["bcd", "admm"])
@pytest.mark.parametrize("penalize_diagonal", [True, False])
@pytest.mark.parametrize(("S", "alpha"), CASES)
def test_result_is_sound_and_satisfies_kkt(S, alpha, penalize_diagonal, solver):
    result = graphical_lasso(S, alpha, penalize_diagonal=penalize_diagonal, solver=solver, tol=1e-10, max_iter=20_000)
    assert_sound(result, 1e-10)
    e = np.full(len(S), alpha * penalize_diagonal)
    penalty = np.full(S.shape, alpha)
    assert kkt_violation(S, result, penalty, e) < 2e-4
    assert np.isclose(result.objective, objective(S, result.precision, penalty, e), rtol=1e-10)


@pytest.mark.parametrize(("S", "alpha"), CASES)
def test_the_two_solvers_agree(S, alpha):
    descent = graphical_lasso(S, alpha, tol=1e-10)
    admm = graphical_lasso(S, alpha, tol=1e-10, solver="admm", max_iter=20_000)
    assert abs(descent.objective - admm.objective) <= descent.gap + admm.gap + 1e-11 * len(S)
    scale = np.sqrt(np.diag(descent.precision))
    assert np.abs((descent.precision - admm.precision) / scale / scale[:, None]).max() < 1e-4


@pytest.mark.parametrize(("p", "n"), [(5, 50), (20, 200), (40, 400)])
def test_agrees_with_scikit_learn(p, n):
    S = covariance(p, n, seed=p)
    alpha = 0.3 * alpha_max(S)
    covariance_, precision = sklearn_graphical_lasso(
        S + alpha * np.eye(p), alpha, tol=1e-7, enet_tol=1e-9, max_iter=500
    )
    result = graphical_lasso(S, alpha, tol=1e-13)
    assert np.allclose(result.precision, precision, atol=1e-4)
    assert np.allclose(result.covariance, covariance_, atol=1e-4)
    unpenalised = graphical_lasso(S + alpha * np.eye(p), alpha, penalize_diagonal=False, tol=1e-13)
    assert np.allclose(unpenalised.precision, result.precision, atol=1e-8)


def test_low_rank_where_others_break():
    Q = np.random.default_rng(0).standard_normal((10, 120))
    S = Q.T @ Q / 10
    for fraction in (0.1, 0.5):
        assert_sound(graphical_lasso(S, fraction * alpha_max(S)))


@pytest.mark.parametrize("p", [160, 260])
def test_large_sparse_uses_elimination_and_stays_exact(p):
    S = sparse_covariance(p, 10 * p, p)
    alpha = 0.2 * alpha_max(S)
    result = graphical_lasso(S, alpha, tol=1e-9)
    assert_sound(result, 1e-9)
    assert np.abs(result.precision @ result.covariance - np.eye(p)).max() < 1e-12
    assert kkt_violation(S, result, np.full(S.shape, alpha), np.full(p, alpha)) < 2e-4


# ---- certificate


@given(seed=st.integers(0, 10_000), p=st.integers(2, 9), rank=st.integers(1, 12), fraction=st.floats(0.02, 1.2))
@settings(max_examples=40, deadline=None)
def test_gap_bounds_the_suboptimality_of_any_point(seed, p, rank, fraction):
    rng = np.random.default_rng(seed)
    S = covariance(p, rank, seed)
    alpha = fraction * alpha_max(S)
    best = graphical_lasso(S, alpha, tol=1e-10, max_iter=20_000)
    for blend in (1.0, 0.3, 1e-3):
        Q = rng.standard_normal((2 * p, p))
        other = (1 - blend) * best.precision + blend * (Q.T @ Q / p)
        gap, value = graphical_lasso_gap(S, other, alpha)
        assert np.isclose(value, objective(S, other, np.full((p, p), alpha), alpha), rtol=1e-9)
        assert value - best.objective <= gap * (1 + 1e-9) + 1e-10
        assert np.isfinite(gap)
    gap, value = graphical_lasso_gap(S, best.precision, alpha)
    assert gap <= 2e-10 * max(1.0, abs(value))


def test_gap_is_infinite_on_a_forbidden_edge():
    S = covariance(4, 20)
    zeros = np.zeros((4, 4), dtype=bool)
    zeros[0, 1] = zeros[1, 0] = True
    gap, value = graphical_lasso_gap(S, np.linalg.inv(S + np.eye(4)), 0.1, zeros=zeros)
    assert gap == value == np.inf


@given(seed=st.integers(0, 10_000), p=st.integers(1, 12), rank=st.integers(1, 20), fraction=st.floats(0.01, 1.5))
@settings(max_examples=60, deadline=None)
def test_random_problems_are_certified(seed, p, rank, fraction):
    S = covariance(p, rank, seed, spread=1.0)
    alpha = fraction * max(alpha_max(S), 1e-3)
    result = graphical_lasso(S, alpha)
    assert_sound(result)
    gap, value = graphical_lasso_gap(S, result.precision, alpha)
    assert np.isclose(value, result.objective, rtol=1e-9)
    assert gap <= 1e-6 * max(1.0, abs(value)) * (1 + 1e-6)


# ---- invariances


@given(seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_permuting_variables_permutes_the_answer(seed):
    p = 40
    S = covariance(p, 25, seed)
    order = np.random.default_rng(seed).permutation(p)
    alpha = 0.3 * alpha_max(S)
    straight = graphical_lasso(S, alpha, tol=1e-11)
    permuted = graphical_lasso(S[np.ix_(order, order)], alpha, tol=1e-11)
    assert np.allclose(permuted.precision, straight.precision[np.ix_(order, order)], atol=1e-5)


@pytest.mark.parametrize("factor", [1e-150, 1e-8, 1e8, 1e150])
def test_units_do_not_matter(factor):
    S = covariance(15, 10)
    alpha = 0.2 * alpha_max(S)
    base = graphical_lasso(S, alpha, tol=1e-12)
    scaled = graphical_lasso(factor * S, factor * alpha, tol=1e-12)
    assert scaled.status == "converged"
    assert np.allclose(scaled.precision * factor, base.precision, rtol=1e-4, atol=1e-5)
    assert np.isclose(scaled.objective, base.objective + 15 * np.log(factor), rtol=1e-10)
    assert graphical_lasso_gap(factor * S, scaled.precision, factor * alpha)[0] <= 1e-10 * abs(scaled.objective)


def test_variables_in_different_units():
    S = covariance(10, 30)
    scale = 10.0 ** np.linspace(-70, 70, 10)
    weights = scale * scale[:, None]
    e = 0.1 * scale**2
    base = graphical_lasso(S, 0.1, tol=1e-12)
    scaled = graphical_lasso(S * weights, 0.1, weights=weights, diagonal_penalty=e, tol=1e-12)
    assert np.allclose(scaled.precision * weights, base.precision, atol=1e-5)


# ---- screening


@pytest.mark.parametrize("p", [2, 20, 50])
def test_diagonal_from_alpha_max_on(p):
    S = covariance(p, 30)
    top = alpha_max(S)
    result = graphical_lasso(S, top)
    assert np.count_nonzero(result.precision) == p
    assert np.allclose(np.diag(result.precision), 1 / (np.diag(S) + top))
    assert result.gap < 1e-12
    below = graphical_lasso(S, 0.98 * top)
    assert np.count_nonzero(below.precision) > p


def test_screening_changes_nothing():
    parts = [covariance(size, 30, size) for size in (1, 2, 2, 3, 7, 30)]
    S = block_diag(*parts)
    order = np.random.default_rng(0).permutation(len(S))
    S = S[np.ix_(order, order)]
    alpha = 0.1
    result = graphical_lasso(S, alpha, tol=1e-11)
    assert result.components.max() + 1 >= len(parts)
    for part in np.unique(result.components):
        inside = np.ix_(*2 * (np.flatnonzero(result.components == part),))
        alone = graphical_lasso(S[inside], alpha, tol=1e-11)
        assert np.allclose(result.precision[inside], alone.precision, atol=1e-5)
    assert_sound(result, 1e-11)
    penalty, e = np.full(S.shape, alpha), np.full(len(S), alpha)
    assert kkt_violation(S, result, penalty, e) < 2e-4
    across = result.components[:, None] != result.components
    assert not result.precision[across].any()
    assert not result.covariance[across].any()
    assert_sound(result, 1e-11)


def test_components_are_those_of_the_thresholded_matrix():
    S = sparse_covariance(80, 200, 5)
    alpha = 0.4 * alpha_max(S)
    graph = (np.abs(S) > alpha) & ~np.eye(80, dtype=bool)
    expected = connected_components(graph)[1]
    result = graphical_lasso(S, alpha)
    assert np.array_equal(result.components[:, None] == result.components, expected[:, None] == expected)
    connected = connected_components(result.precision != 0)[1]
    assert np.array_equal(connected[:, None] == connected, expected[:, None] == expected)


def test_pair_in_closed_form():
    S = np.array([[2.0, -0.8], [-0.8, 1.0]])
    result = graphical_lasso(S, 0.3)
    W = np.array([[2.3, -0.5], [-0.5, 1.3]])
    assert np.allclose(result.covariance, W)
    assert np.allclose(result.precision, np.linalg.inv(W))


def test_one_variable():
    result = graphical_lasso([[4.0]], 1.0)
    assert np.isclose(result.precision[0, 0], 0.2)
    assert np.isclose(result.objective, 1 + np.log(5))


# ---- penalties


def test_forbidden_edges_stay_zero_and_the_rest_is_optimal():
    S = covariance(12, 60, 7)
    rng = np.random.default_rng(1)
    zeros = np.triu(rng.random((12, 12)) < 0.4, 1)
    zeros |= zeros.T
    for alpha in (0.0, 0.15):
        result = graphical_lasso(S, alpha, zeros=zeros, tol=1e-10)
        assert_sound(result, 1e-10)
        assert not result.precision[zeros].any()
        penalty = np.where(zeros, np.inf, alpha)
        free = ~zeros
        residual = (np.linalg.inv(result.precision) - S - alpha * np.eye(12))[free]
        sign = np.sign(result.precision[free])
        bound = np.where(np.eye(12, dtype=bool), 0.0, penalty)[free]
        expected = np.where(sign != 0, bound * sign, np.clip(residual, -bound, bound))
        assert np.abs(residual - expected).max() < 1e-4
        admm = graphical_lasso(S, alpha, zeros=zeros, tol=1e-10, solver="admm", max_iter=20_000)
        assert abs(admm.objective - result.objective) < 1e-8
        gap, _ = graphical_lasso_gap(S, result.precision, alpha, zeros=zeros)
        assert gap <= 1e-9 * max(1, abs(result.objective))


def test_weights_and_diagonal_penalty():
    S = covariance(15, 40, 8)
    rng = np.random.default_rng(2)
    weights = rng.uniform(0, 2, (15, 15))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    weights[0, 1] = weights[1, 0] = 0.0
    e = rng.uniform(0, 0.3, 15)
    result = graphical_lasso(S, 0.2, weights=weights, diagonal_penalty=e, tol=1e-10)
    assert_sound(result, 1e-10)
    assert kkt_violation(S, result, 0.2 * weights, e) < 1e-4
    assert np.isclose(result.objective, objective(S, result.precision, 0.2 * weights, e))
    ones = graphical_lasso(S, 0.2, weights=np.ones((15, 15)), tol=1e-10)
    assert np.array_equal(ones.precision, graphical_lasso(S, 0.2, tol=1e-10).precision)


@pytest.mark.parametrize("p", [1, 2, 10, 40])
def test_without_penalty_it_is_the_inverse(p):
    S = covariance(p, 5 * p + 5)
    result = graphical_lasso(S, 0.0)
    assert_sound(result)
    assert np.allclose(result.precision, np.linalg.inv(S))
    floor = graphical_lasso(covariance(p, 1), 0.0, diagonal_penalty=0.5)
    assert np.allclose(floor.covariance, covariance(p, 1) + 0.5 * np.eye(p))


# ---- warm starts


@pytest.mark.parametrize("solver", ["bcd", "admm"])
@pytest.mark.parametrize(("p", "n"), [(13, 8), (60, 40), (170, 400)])
def test_warm_start_reaches_the_cold_solution(p, n, solver):
    S = sparse_covariance(p, n, p)
    alpha = 0.25 * alpha_max(S)
    start = graphical_lasso(S, alpha)
    noise = np.random.default_rng(0).standard_normal((n, p)) * 0.02
    for other, strength in ((S + noise.T @ noise / n, alpha), (S, 0.6 * alpha), (4 * S, alpha)):
        cold = graphical_lasso(other, strength, tol=1e-9)
        warm = graphical_lasso(other, strength, tol=1e-9, warm_start=start, solver=solver, max_iter=5000)
        assert_sound(warm, 1e-9)
        assert abs(warm.objective - cold.objective) <= warm.gap + cold.gap + 1e-10 * p


@given(seed=st.integers(0, 10_000), size=st.floats(1e-9, 1.0))
@settings(max_examples=25, deadline=None)
def test_warm_start_is_never_made_worse(seed, size):
    S = covariance(10, 7, seed)
    alpha = 0.2 * alpha_max(S)
    start = graphical_lasso(S, alpha, tol=1e-4)
    other = (1 - size) * S + size * covariance(10, 7, seed + 1)
    _, before = graphical_lasso_gap(other, start.precision, alpha)
    after = graphical_lasso(other, alpha, tol=1e-2, warm_start=start)
    assert after.objective <= before + 1e-12 * abs(before)
    assert after.objective - graphical_lasso(other, alpha, tol=1e-10).objective <= after.gap + 1e-9


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-8])
@pytest.mark.parametrize(("p", "n", "alpha"), [(70, 20, 0.1), (90, 400, 0.5), (170, 60, 0.3)])
def test_the_dual_point_is_one_and_certifies_where_S_moves(p, n, alpha, tol):
    S, penalty, e = covariance(p, n), np.full((p, p), alpha), np.full(p, alpha)
    result = graphical_lasso(S, alpha, tol=tol)
    best = graphical_lasso(S, alpha, tol=1e-10)
    assert dual_bound(result, S, penalty, e) <= best.objective + 1e-9 * abs(best.objective)
    moved = 0.98 * S + 0.02 * covariance(p, n, 1)
    gap, value = graphical_lasso_gap(moved, result.precision, alpha, known=result)
    assert np.isclose(value, objective(moved, result.precision, penalty, e), rtol=1e-10)
    best = graphical_lasso(moved, alpha, tol=1e-10)
    assert value - gap <= best.objective + 1e-9 * abs(best.objective)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("bridge", [0.0, 0.3])
def test_a_certificate_by_components_is_that_of_the_whole(known, bridge):
    """Ω has blocks of 1, 2, 5, 20 and 60 variables, S other blocks; a bridge in S joins two of them."""
    alpha, sizes = 0.2, (1, 1, 2, 5, 20, 60)
    S = block_diag(*(covariance(size, 3 * size, size) for size in sizes))
    result = graphical_lasso(S, alpha, tol=1e-3)
    S[3, 10] = S[10, 3] = bridge
    penalty, e = np.full(S.shape, alpha), np.full(len(S), alpha)
    gap, value = graphical_lasso_gap(S, result.precision, alpha, known=result if known else None)
    assert np.isclose(value, objective(S, result.precision, penalty, e), rtol=1e-12)
    best = graphical_lasso(S, alpha, tol=1e-11)
    assert best.objective >= value - gap - 1e-9


def test_no_certificate_where_a_single_variable_has_no_positive_precision():
    S = block_diag(covariance(70, 200), 1.0)
    omega = block_diag(np.eye(70), -1.0)
    with pytest.raises(DataError, match="not positive definite"):
        graphical_lasso_gap(S, omega, 0.5)


def test_unchecked_input_gives_the_same_answer():
    S = covariance(13, 20)
    assert np.array_equal(graphical_lasso(S, 0.2, check=False).precision, graphical_lasso(S, 0.2).precision)


# ---- hard problems and failure


@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("rank", [5, 60])
def test_nearly_equal_variables_and_a_tiny_penalty(rank, forbid):
    rng = np.random.default_rng(rank)
    Q = rng.standard_normal((rank, 30)) * np.exp(rng.normal(0, 1.5, 30))
    Q[:, 7] = Q[:, 0] * (1 + 1e-8)
    S = Q.T @ Q / rank
    zeros = np.triu(rng.random((30, 30)) < 0.3, 1) if forbid else np.zeros((30, 30), dtype=bool)
    result = graphical_lasso(S, 1e-3 * alpha_max(S), zeros=zeros | zeros.T)
    assert result.gap <= 1e-6 * max(1.0, abs(result.objective))
    assert not result.precision[zeros].any()


def test_too_few_iterations_are_reported():
    S = covariance(60, 20, 3)
    with pytest.warns(ConvergenceWarning, match=r"gap of .* above tol=1e-08.*Raise max_iter"):
        result = graphical_lasso(S, 0.05, solver="admm", max_iter=30, tol=1e-8)
    assert result.status is GlassoStatus.MAX_ITER
    best = graphical_lasso(S, 0.05, tol=1e-9)
    assert result.objective - best.objective <= result.gap


@pytest.mark.parametrize(("p", "alpha"), [(4, 1e-14), (5, 1e-13), (30, 1e-12)])
def test_a_penalty_lost_in_rounding_ends_soon_with_a_true_bound(p, alpha):
    with pytest.warns(ConvergenceWarning, match=r"no more progress after \d+ iterations.*Raise tol, or penalise more"):
        result = graphical_lasso(np.ones((p, p)), alpha)
    assert result.status is GlassoStatus.STALLED
    assert result.n_iter < 1000
    np.linalg.cholesky(result.precision)
    # Equal variables are negatively related: the covariance is 2αI + (1 − α)11ᵀ, and the dual value is the minimum.
    minimum = (p - 1) * np.log(2 * alpha) + np.log(2 * alpha + p * (1 - alpha)) + p
    rounded = p * np.finfo(float).eps / alpha  # what rounding 1 ± α does to p eigenvalues of size α
    assert minimum - rounded <= result.objective <= minimum + result.gap + rounded


@pytest.mark.parametrize("max_iter", [1, 3])
def test_the_warning_counts_what_was_done_against_what_was_allowed(max_iter):
    S = covariance(80, 100, 1)
    said = rf"after {2 * max_iter} iterations \(max_iter={max_iter} sweeps, then as many of ADMM\)"
    with pytest.warns(ConvergenceWarning, match=said):
        assert graphical_lasso(S, 1e-3, tol=1e-12, max_iter=max_iter).n_iter == 2 * max_iter
    with pytest.warns(ConvergenceWarning, match=rf"after {max_iter} iterations \(max_iter={max_iter}\)"):
        graphical_lasso(S, 1e-3, tol=1e-12, max_iter=max_iter, solver="admm")


@pytest.mark.parametrize("alpha", [1e-4, 1e-5])
@pytest.mark.parametrize(("p", "rank"), [(50, 10), (100, 5), (30, 3), (40, 20)])
def test_low_rank_and_tiny_penalties_are_reached_from_larger_ones(p, rank, alpha):
    rows = np.random.default_rng(1).standard_normal((rank, p))
    S = rows.T @ rows
    result = graphical_lasso(S, alpha)
    assert result.status is GlassoStatus.CONVERGED
    np.linalg.cholesky(result.precision)
    assert np.isclose(result.objective, objective(S, result.precision, np.full((p, p), alpha), alpha), rtol=1e-9)
    bound = dual_bound(result, S, np.full((p, p), alpha), np.full(p, alpha))
    assert result.objective - bound <= 1e-6 * abs(result.objective)


@pytest.mark.parametrize("solver", ["bcd", "admm"])
@pytest.mark.parametrize("max_iter", [1, 2, 3, 4, 5])
def test_however_few_iterations_there_is_a_certified_point(max_iter, solver):
    rows = np.random.default_rng(0).standard_normal((10, 50))
    S = rows.T @ rows
    forbidden = np.zeros((50, 50), dtype=bool)
    forbidden[0, 1] = forbidden[1, 0] = True
    with pytest.warns(ConvergenceWarning, match=r"gap of \d"):
        result = graphical_lasso(S, 1e-3, zeros=forbidden, solver=solver, max_iter=max_iter)
    assert result.status is GlassoStatus.MAX_ITER
    np.linalg.cholesky(result.precision)
    penalty = np.where(forbidden, 0.0, 1e-3)
    assert result.precision[0, 1] == 0.0
    assert np.isclose(result.objective, objective(S, result.precision, penalty, 1e-3))
    best = graphical_lasso(S, 1e-3, zeros=forbidden)
    assert_sound(best)
    assert result.objective - result.gap <= best.objective + 1e-9 * abs(best.objective)
    assert np.isfinite(result.gap)


def test_a_tolerance_below_rounding_is_reported_as_such():
    result = graphical_lasso(covariance(20, 15), 0.1, tol=1e-300, max_iter=60)
    assert result.status in {"stalled", "converged"}
    assert result.gap < 1e-12


def test_descent_that_breaks_down_falls_back_on_admm(monkeypatch):
    S = covariance(10, 30)
    expected = graphical_lasso(S, 0.1, tol=1e-8)
    broke = (kernels.BROKE, np.zeros((3, 10, 10)), np.zeros(10, np.int64), (np.inf, 0.0, 0.0, 7.0))
    monkeypatch.setattr(kernels, "graph_lasso", lambda *_, **__: broke)
    rescued = graphical_lasso(S, 0.1, tol=1e-8, max_iter=5000)
    assert_sound(rescued, 1e-8)
    assert abs(rescued.objective - expected.objective) < 1e-6


def test_free_edge_on_singular_covariance_can_still_be_bounded():
    S = covariance(6, 3, 2)
    weights = np.ones((6, 6))
    weights[0, 1] = weights[1, 0] = 0.0
    result = graphical_lasso(S, 0.2, weights=weights, penalize_diagonal=False, max_iter=5000)
    assert_sound(result)


BAD = [
    (np.ones((2, 3)), {}, DataError, "square"),
    (np.ones(3), {}, DataError, "square"),
    (np.zeros((0, 0)), {}, DataError, "non-empty"),
    ([["a", "b"], ["c", "d"]], {}, DataError, "numeric"),
    ([[1.0, 0.5], [0.2, 1.0]], {}, DataError, "must be symmetric"),
    ([[1.0, np.nan], [np.nan, 1.0]], {}, DataError, "NaN"),
    ([[1.0, np.inf], [np.inf, 1.0]], {}, DataError, "infinite"),
    ([[-1.0, 0.0], [0.0, 1.0]], {}, DataError, "variance -1 on its diagonal"),
    (np.eye(2) * (1 + 1j), {}, DataError, "S .*complex"),
    (np.eye(3) * 1e-320, {"alpha": 0.0}, DataError, "other units"),
    (np.diag([1.0, 1.0, 1e-320]) + 1e-330, {"alpha": 0.0}, DataError, "other units"),
    (covariance(3, 9) * 1e-310, {"alpha": 1e-312}, DataError, "other units"),
    (covariance(3, 9) / covariance(3, 9).max() * 1.7e308, {"alpha": 1e308}, DataError, "other units"),
    (np.eye(2), {"weights": np.ones((2, 2)) * 1j}, DataError, "weights .*complex"),
    (np.eye(2), {"alpha": None}, ParameterError, "alpha"),
    (np.eye(2), {"alpha": 1j}, ParameterError, "alpha"),
    (np.eye(2), {"solver": ["bcd"]}, ParameterError, "solver"),
    (np.eye(2), {"alpha": -0.1}, ParameterError, "alpha"),
    (np.eye(2), {"alpha": np.nan}, ParameterError, "alpha"),
    (np.eye(2), {"alpha": [0.1]}, ParameterError, "alpha"),
    (np.eye(2), {"weights": -np.ones((2, 2))}, ParameterError, "weights"),
    (np.eye(2), {"weights": np.ones((3, 3))}, DataError, "weights has shape"),
    (np.eye(2), {"zeros": np.zeros((3, 3), dtype=bool)}, DataError, "zeros"),
    (np.eye(2), {"zeros": [[False, True], [False, False]]}, DataError, "zeros"),
    (np.eye(2), {"diagonal_penalty": -1.0}, ParameterError, "diagonal_penalty"),
    (np.eye(2), {"diagonal_penalty": [1.0, 2.0, 3.0]}, ParameterError, "diagonal_penalty"),
    (np.eye(2), {"solver": "newton"}, ParameterError, "solver"),
    (np.eye(2), {"tol": 0.0}, ParameterError, "tol"),
    (np.eye(2), {"max_iter": 0}, ParameterError, "max_iter"),
    (np.eye(2), {"max_iter": 2.5}, ParameterError, "max_iter"),
    (np.eye(2), {"max_iter": "5"}, ParameterError, "max_iter"),
    (np.eye(2), {"tol": "small"}, ParameterError, "tol"),
    (np.eye(2), {"alpha": "small"}, ParameterError, "alpha"),
    (np.eye(2), {"diagonal_penalty": "small"}, ParameterError, "diagonal_penalty"),
    (np.eye(2), {"warm_start": np.eye(2)}, ParameterError, "(?s)warm_start is array.*GraphicalLassoResult"),
    (np.eye(2), {"warm_start": "previous"}, ParameterError, "warm_start is 'previous'.*GraphicalLassoResult"),
    (np.eye(2), {"zeros": "none"}, DataError, "zeros is 'none'; give"),
    (np.eye(2), {"zeros": [(0, 1)]}, DataError, r"zeros .* shape \(1, 2\)"),
    (np.eye(2), {"zeros": {(0, 1)}}, DataError, r"zeros is \{\(0, 1\)\}; give"),
    (np.eye(2), {"zeros": [["a", "b"], ["c"]]}, DataError, "zeros is .*; give"),
    (np.eye(2), {"zeros": [["a", "b"], ["b", "a"]]}, DataError, "zeros .* array of"),
    (np.eye(2), {"zeros": [[0.0, 0.5], [0.5, 0.0]]}, DataError, "zeros .* array of"),
    (np.eye(2), {"weights": "none"}, DataError, "weights is of type str"),
    (np.eye(2), {"weights": {(0, 1): 2.0}}, DataError, "weights is of type dict"),
    (np.eye(3), {"warm_start": graphical_lasso(np.eye(2), 0.1)}, ParameterError, "warm_start"),
    (np.diag([1.0, 0.0]), {"penalize_diagonal": False}, DataError, "diagonal penalty is zero"),
    (np.ones((2, 2)), {"alpha": 0.0}, DataError, "no minimum|singular"),
    (np.ones((5, 5)), {"alpha": 0.0}, DataError, "singular"),
    (np.array([[1.0, 3.0], [3.0, 1.0]]), {"alpha": 0.1}, DataError, "no minimum"),
    (np.full((4, 4), 3.0) - 2 * np.eye(4), {"alpha": 0.1}, DataError, "no minimum"),
    (np.full((60, 60), 3.0) - 2 * np.eye(60), {"alpha": 0.1}, DataError, "no minimum"),
]


@pytest.mark.parametrize(("S", "options", "error", "message"), BAD)
def test_bad_input_is_refused(S, options, error, message):
    with pytest.raises(error, match=message):
        graphical_lasso(S, **{"alpha": 0.1, **options})


def test_gap_refuses_what_is_not_a_precision():
    with pytest.raises(DataError, match="positive definite"):
        graphical_lasso_gap(np.eye(2), [[1.0, 2.0], [2.0, 1.0]], 0.1)
    with pytest.raises(DataError, match="same shape"):
        graphical_lasso_gap(np.eye(2), np.eye(3), 0.1)


def test_indefinite_input_is_fine_where_the_problem_is_bounded():
    S = np.full((4, 4), 1.2)
    np.fill_diagonal(S, 1.0)
    assert np.linalg.eigvalsh(S)[0] < 0
    assert_sound(graphical_lasso(S, 0.5))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_gap_next_to_a_singular_precision_is_that_of_exact_arithmetic(seed, known):
    rng, small, price = np.random.default_rng(seed), 1e-12, 0.4
    v = 1.0 + 2e-7 * rng.standard_normal(3)  # Ω is nearly zero along it, S is large along ones
    v /= np.linalg.norm(v)
    omega = np.eye(3) - (1 - small) * np.outer(v, v)
    omega = (omega + omega.T) / 2
    S, e = np.full((3, 3), 3 / small), np.full(3, 1e-3)
    # Signs of Ω give a dual point, of which the gap is known without a solver.
    A = [[Fraction(float(x)) for x in row] for row in omega]
    M = [
        [Fraction(float(S[i, j])) + Fraction(float(e[i]) if i == j else price * np.sign(omega[i, j])) for j in range(3)]
        for i in range(3)
    ]

    def log_determinant(B):
        minors = [B[1][j - 2] * B[2][j - 1] - B[1][j - 1] * B[2][j - 2] for j in range(3)]
        return log(sum(B[0][j] * minors[j] for j in range(3)))

    exact = (
        float(sum(A[i][j] * M[i][j] for i in range(3) for j in range(3))) - 3 - log_determinant(A) - log_determinant(M)
    )
    result = GraphicalLassoResult.of(omega, np.linalg.inv(omega), np.linalg.slogdet(omega)[1]) if known else None
    gap, _ = graphical_lasso_gap(S, omega, price, diagonal_penalty=e, known=result)
    assert gap >= 0.99 * exact > 1


def test_importing_stays_cheap():
    code = "import sys, mssl.glasso.solver; assert 'numba' not in sys.modules and 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_smooth_covariances_are_certified_though_the_first_start_never_arrives():
    t = np.sort(np.random.default_rng(0).random(80))
    S = np.exp(-((t[:, None] - t) ** 2) / 0.1)
    result = graphical_lasso(S, 9e-5, diagonal_penalty=1.7e-4)
    assert result.status.name == "CONVERGED"


@pytest.mark.parametrize(("alpha", "most"), [(1e-3, 150), (9e-5, 300)])
def test_smooth_covariances_take_hundreds_of_sweeps(alpha, most):
    """An ill-conditioned start has its columns solved accurately from the beginning, and the gap is looked at in time."""
    t = np.sort(np.random.default_rng(0).random(80))
    result = graphical_lasso(np.exp(-((t[:, None] - t) ** 2) / 0.1), alpha, diagonal_penalty=1.9 * alpha)
    assert result.status is GlassoStatus.CONVERGED
    assert result.n_iter <= most
