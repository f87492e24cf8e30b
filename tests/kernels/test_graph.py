"""The graphical lasso against an ADMM of the tests' own, its gap against dense algebra."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from watching import look_always

from mssl import kernels
from mssl.kernels.binding import SLICE


def moments(p, seed, n=None, blocks=1):
    """A covariance of n rows, blocks of variables being independent."""
    rng = np.random.default_rng(seed)
    S, n = np.zeros((p, p)), n or p + 5
    for part in np.array_split(np.arange(p), blocks):
        X = rng.standard_normal((n, len(part))) @ (
            np.eye(len(part)) + 0.5 * rng.standard_normal((len(part), len(part)))
        )
        S[np.ix_(part, part)] = X.T @ X / n
    scales = rng.uniform(0.5, 2.0, p)
    return S * np.outer(scales, scales)


def off_diagonal(S):
    return float(np.max(np.abs(S - np.diag(np.diag(S))), initial=0.0))


def penalties(p, alpha, weights):
    L = alpha * (np.ones((p, p)) if weights is None else weights)
    np.fill_diagonal(L, 0.0)
    return L


def value(S, L, Omega):
    """tr(SΩ) − log det Ω + Σ L|Ω|."""
    with np.errstate(invalid="ignore"):
        price = np.where(Omega == 0, 0.0, L * np.abs(Omega)).sum()
    return float(np.vdot(S, Omega) - np.linalg.slogdet(Omega)[1] + price)


def admm(S, L, steps=20_000):
    """The minimiser by alternating directions on a unit diagonal, in plain words."""
    units = np.outer(*2 * (np.sqrt(np.diag(S)),))
    S, L = S / units, L / units
    Z, U = np.eye(len(S)), np.zeros_like(S)
    for _ in range(steps):
        values, vectors = np.linalg.eigh(Z - U - S)
        Omega = (vectors * (values + np.sqrt(values**2 + 4)) / 2) @ vectors.T
        A, before = Omega + U, Z
        Z = np.sign(A) * np.maximum(np.abs(A) - L, 0.0)
        U = A - Z
        if max(np.abs(Omega - Z).max(initial=0.0), np.abs(Z - before).max(initial=0.0)) < 1e-12:
            break
    return Z / units


def edge_weights(p, seed):
    """Weights between 0.5 and 2, some of them infinite, some 0."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 2.0, (p, p))
    weights[rng.random((p, p)) < 0.15] = np.inf
    weights[rng.random((p, p)) < 0.15] = 0.0
    return np.triu(weights, 1) + np.triu(weights, 1).T


def holds(S, alpha, weights, e, tol, answers, facts):
    """What an answer promises: its inverse, a feasible dual point, a true gap, the conditions of the minimum."""
    (Omega, Sigma, dual), (gap, objective, log_det, *_) = answers, facts
    p = len(S)
    moment, L = S + np.diag(e), penalties(p, alpha, weights)
    assert np.array_equal(Omega == 0, (Omega == 0).T)
    np.testing.assert_allclose(Omega, Omega.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(Omega @ Sigma, np.eye(p), atol=1e-7)
    assert objective == pytest.approx(value(moment, L, Omega), rel=1e-9, abs=1e-9)
    assert log_det == pytest.approx(np.linalg.slogdet(Omega)[1], rel=1e-9, abs=1e-9)
    roots = np.sqrt(np.diag(moment))
    assert gap <= tol * max(1.0, abs(p + np.log(np.diag(moment)).sum()))
    assert np.all(np.abs(dual - moment) <= L * (1 + 1e-9) + 1e-9 * np.outer(roots, roots))
    # the dual value p + log det W is at most the minimum
    assert objective - (p + np.linalg.slogdet(dual)[1]) <= gap * (1 + 1e-6) + 1e-9 * max(1.0, abs(objective))


# ---- components


@given(p=st.integers(0, 12), seed=st.integers(0, 10**6), share=st.floats(0, 1.1), weighted=st.booleans())
def test_components_are_those_of_the_graph_above_the_penalty(p, seed, share, weighted):
    S = moments(p, seed)
    weights = edge_weights(p, seed) if weighted else None
    alpha = share * off_diagonal(S) + 1e-9
    labels = np.empty(p, np.int64)
    largest = kernels.library().graph_components(p, S, alpha, weights, labels)
    above = np.abs(S) > penalties(p, alpha, weights)
    count, expected = connected_components(above, directed=False) if p else (0, np.empty(0, int))
    assert largest == np.bincount(expected).max(initial=0)
    assert len(set(zip(labels.tolist(), expected.tolist(), strict=True))) == count == len(set(labels.tolist()))


# ---- the whole


@given(
    p=st.integers(0, 7),
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.05, 0.3, 0.7, 1.1]),
    weighted=st.booleans(),
    lifted=st.booleans(),
    few=st.booleans(),
)
def test_a_small_graph_is_the_answer_of_admm(p, seed, share, weighted, lifted, few):
    S = moments(p, seed, n=max(p - 1, 2) if few and lifted else None)
    weights = edge_weights(p, seed) if weighted else None
    e = np.random.default_rng(seed).uniform(0.1, 0.5, p) if lifted else np.zeros(p)
    alpha = share * off_diagonal(S) + 1e-3
    status, answers, labels, facts = kernels.graph_lasso(S, alpha, weights, e, 1e-12, 1000)
    assert status == kernels.DONE
    holds(S, alpha, weights, e, 1e-12, answers, facts)
    moment, L = S + np.diag(e), penalties(p, alpha, weights)
    best = admm(moment, L)
    assert abs(facts[1] - value(moment, L, best)) < 1e-8 if p else facts[1] == 0.0
    np.testing.assert_allclose(answers[0], best, atol=1e-5)
    if weights is not None:
        assert not np.any(answers[0][np.isinf(weights)])
    apart = labels[:, None] != labels[None]
    assert not np.any(answers[:, apart])


@pytest.mark.parametrize(
    ("p", "blocks"), [(20, 1), (64, 1), (65, 1), (100, 1), (130, 4), (160, 1), (160, 2), (200, 100)]
)
@pytest.mark.parametrize("share", [0.15, 0.6])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_graph_of_every_way_to_solve_it_keeps_its_promises(p, blocks, share, weighted):
    S = moments(p, p, n=2 * p, blocks=blocks)
    roots = np.sqrt(np.diag(S))
    S /= np.outer(roots, roots)
    weights = edge_weights(p, p) if weighted else None
    if weights is not None:
        weights[weights == 0] = 0.5
    e, alpha = np.full(p, 0.1), share * off_diagonal(S)
    status, answers, labels, facts = kernels.graph_lasso(S, alpha, weights, e, 1e-8, 1000)
    assert status == kernels.DONE
    assert labels.max() + 1 >= blocks
    holds(S, alpha, weights, e, 1e-8, answers, facts)


@given(p=st.integers(1, 12), seed=st.integers(0, 10**6), nearby=st.floats(0.5, 2.0))
def test_a_warm_start_ends_at_the_same_answer(p, seed, nearby):
    S, e = moments(p, seed), np.full(p, 0.01)
    alpha = 0.2 * off_diagonal(S) + 1e-3
    cold = kernels.graph_lasso(S, alpha, None, e, 1e-11, 1000)
    start = kernels.graph_lasso(S, nearby * alpha, None, e, 1e-6, 1000)[1]
    status, answers, _, facts = kernels.graph_lasso(S, alpha, None, e, 1e-11, 1000, (start[0], start[1]))
    assert status == kernels.DONE
    holds(S, alpha, None, e, 1e-11, answers, facts)
    np.testing.assert_allclose(answers[0], cold[1][0], atol=1e-3 * np.abs(answers[0]).max())
    assert abs(facts[1] - cold[3][1]) <= facts[0] + cold[3][0] + 1e-9
    again = kernels.graph_lasso(S, alpha, None, e, 1e-6, 1000, (cold[1][0], cold[1][1]))
    assert again[0] == kernels.DONE
    assert again[3][3] <= 2  # sweeps: it is there


def test_a_large_graph_starts_warm(rng):
    S, e = moments(120, 0, n=300), np.zeros(120)
    alpha = 0.1 * off_diagonal(S)
    cold = kernels.graph_lasso(S, alpha, None, e, 1e-8, 1000)
    warm = kernels.graph_lasso(S, 0.95 * alpha, None, e, 1e-8, 1000, (cold[1][0], cold[1][1]))
    holds(S, 0.95 * alpha, None, e, 1e-8, warm[1], warm[3])


def test_a_warm_start_that_is_wrong_does_no_harm():
    S, e = moments(6, 1), np.zeros(6)
    alpha = 0.2 * off_diagonal(S)
    for wrong in (np.full((6, 6), np.nan), np.zeros((6, 6)), -np.eye(6), 1e6 * np.eye(6)):
        status, answers, _, facts = kernels.graph_lasso(S, alpha, None, e, 1e-9, 1000, (wrong, wrong.copy()))
        assert status == kernels.DONE
        holds(S, alpha, None, e, 1e-9, answers, facts)


def test_a_variable_without_variance_is_named():
    S = np.diag([1.0, 2.0, 0.0])
    status, _, _, facts = kernels.graph_lasso(S, 0.1, None, np.zeros(3), 1e-6, 10)
    assert status == kernels.UNBOUNDED
    assert facts[0] == 2.0


def test_too_few_sweeps_are_told():
    S = moments(80, 0, n=100)
    status, *_ = kernels.graph_lasso(S, 0.01 * off_diagonal(S), None, np.zeros(80), 1e-10, 1)
    assert status == kernels.LIMIT


# ---- the gap of a given point


@given(
    p=st.integers(0, 8),
    seed=st.integers(0, 10**6),
    far=st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 5.0]),
    weighted=st.booleans(),
)
def test_the_gap_of_a_point_is_that_of_dense_algebra(p, seed, far, weighted):
    rng = np.random.default_rng(seed)
    S, e = moments(p, seed), rng.uniform(0.0, 0.2, p)
    weights = edge_weights(p, seed) if weighted else None
    alpha = 0.3 * off_diagonal(S) + 1e-3
    best = kernels.graph_lasso(S, alpha, weights, e, 1e-13, 1000)
    noise = 1 + far * rng.uniform(-0.1, 0.1, (p, p))
    Omega = best[1][0] * (noise + noise.T) / 2
    Omega = (Omega + Omega.T) / 2
    if far > 1:
        Omega = far * best[1][0]
    Sigma = np.linalg.inv(Omega)
    log_det = float(np.linalg.slogdet(Omega)[1])
    gap, trace = kernels.graph_gap(S, alpha, weights, e, Omega, Sigma, log_det)
    moment, L = S + np.diag(e), penalties(p, alpha, weights)
    clipped = np.clip(Sigma, moment - L, moment + L)
    with np.errstate(invalid="ignore"):
        point = np.where(Omega == 0, clipped, moment + np.where(Omega == 0, 0, L) * np.sign(Omega))
    assert trace == pytest.approx(np.vdot(point, Omega), rel=1e-9, abs=1e-9)
    values, vectors = np.linalg.eigh(Omega) if p else (np.empty(0), np.empty((0, 0)))
    root = (vectors * np.sqrt(values)) @ vectors.T
    E = np.linalg.eigvalsh(root @ point @ root) - 1 if p else np.empty(0)
    radius, size = np.abs(E).max(initial=0.0), np.linalg.norm(E)
    duals = [np.linalg.slogdet(D)[1] for D in (point, clipped) if np.linalg.eigvalsh(D).min(initial=1.0) > 1e-12]
    if size < 0.8:  # surely near: between the bound at the true radius and the one at the largest norm
        assert 0.5 * size**2 / (1 - radius) <= gap * (1 + 1e-6) + 1e-15
        assert gap <= 0.5 * size**2 / (1 - size) * (1 + 1e-6) + 1e-15
    elif radius > 0.8 and duals:  # surely far: the better of two dual points
        assert gap <= trace - p - log_det - max(duals) + 1e-9
    # and it bounds what there is to gain
    assert np.isnan(gap) or value(moment, L, Omega) - value(moment, L, best[1][0]) <= gap + 1e-9


@pytest.mark.parametrize("p", [40, 70])
def test_a_point_far_away_has_a_gap(p):
    S = moments(p, 0, n=3 * p)
    S = np.ascontiguousarray(S / np.outer(*2 * (np.sqrt(np.diag(S)),)))
    Omega = 4.0 * np.eye(p)
    gap, _ = kernels.graph_gap(S, 0.1, None, np.zeros(p), Omega, np.linalg.inv(Omega), p * np.log(4.0))
    best = kernels.graph_lasso(S, 0.1, None, np.zeros(p), 1e-9, 1000)[3][1]
    assert value(S, penalties(p, 0.1, None), Omega) - best <= gap < np.inf


def test_a_forbidden_edge_in_use_has_an_infinite_gap():
    weights = np.array([[0.0, np.inf], [np.inf, 0.0]])
    Omega = np.array([[1.0, 0.1], [0.1, 1.0]])
    log_det = np.log(np.linalg.det(Omega))
    gap, trace = kernels.graph_gap(np.eye(2), 0.1, weights, np.zeros(2), Omega, np.linalg.inv(Omega), log_det)
    assert gap == np.inf
    assert trace == np.inf


# ---- signals


@pytest.mark.parametrize("p", [30, 80, 130])
@pytest.mark.parametrize("blocks", [1, 3])
def test_looks_at_signals_change_no_bit(p, blocks, monkeypatch):
    S, e = moments(p, 3, n=2 * p, blocks=blocks), np.zeros(p)
    alpha = 0.1 * off_diagonal(S)
    status, answers, labels, facts = kernels.graph_lasso(S, alpha, None, e, 1e-9, 500)
    look_always(monkeypatch)
    other = kernels.graph_lasso(S, alpha, None, e, 1e-9, 500)
    assert status == other[0] == kernels.DONE
    assert np.array_equal(answers, other[1])
    assert np.array_equal(labels, other[2])
    assert facts == other[3]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX signals")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_ctrl_c_is_served_while_a_large_graph_is_solved():
    p = 700
    rng = np.random.default_rng(0)
    X = rng.standard_normal((p // 2, p))
    S = X.T @ X / len(X)
    sent = []

    def press():
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.5, press)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            kernels.graph_lasso(S, 0.01, None, np.zeros(p), 1e-12, 10_000)
        served = time.process_time()
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, old)
    assert served - sent[0] < 3 * SLICE  # until the next look, and what one step adds


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX signals")
def test_what_a_handler_raises_ends_the_call(monkeypatch):
    class AlarmError(Exception):
        pass

    def ring(*_):
        raise AlarmError

    look_always(monkeypatch)
    S = moments(300, 0, n=200)
    old = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(AlarmError):
            kernels.graph_lasso(S, 0.01, None, np.zeros(300), 1e-12, 10_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)
    assert kernels.graph_lasso(S, 0.9 * off_diagonal(S), None, np.zeros(300), 1e-6, 100)[0] == kernels.DONE


@given(p=st.integers(0, 20), place=st.integers(0, 399), wrong=st.sampled_from([np.nan, np.inf, -np.inf, 7.0]))
def test_a_covariance_is_finite_symmetric_and_has_no_negative_variance(p, place, wrong):
    A = np.random.default_rng(p).standard_normal((p, p))
    S = np.ascontiguousarray(A @ A.T)
    assert kernels.is_covariance(S)
    if p:
        i, j = place // 20 % p, place % 20 % p
        S[i, j] = -1.0 if i == j and wrong == 7.0 else wrong
        assert not kernels.is_covariance(S)


@pytest.mark.parametrize("p", [5, 13, 40, 64])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_parameters_have_more_digits_than_the_gap_has(p, share):
    """A gap of 1e-6 leaves parameters uncertain by its root; the Newton step at the end makes up for it."""
    rng = np.random.default_rng(p)
    X = rng.standard_normal((4 * p, p))
    X[:, 1:] += 0.6 * X[:, :-1]
    S = np.cov(X.T)
    alpha, e = share * off_diagonal(S), np.zeros(p)
    exact = kernels.graph_lasso(S, alpha, None, e, 1e-14, 5000)[1]
    _, answers, _, facts = kernels.graph_lasso(S, alpha, None, e, 1e-6, 1000)
    assert facts[0] <= 1e-6 * max(1.0, abs(facts[1]))
    for found, best in zip(answers[:2], exact[:2], strict=True):
        np.testing.assert_allclose(found, best, atol=2e-5 * np.abs(best).max())
