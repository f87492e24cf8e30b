"""Coordinate descent over the weights ends where the written-out problem has its minimum."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.reference import weight_gap
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import Lasso
from watching import look_always
from written_out import ABSOLUTE, CONCAVE, WrittenOut, compressed, random_gram, random_precision

from mssl import kernels
from mssl.model.coupling import Coupling
from mssl.penalties import EntrywisePenalty

SIZES = {"K": st.integers(1, 3), "d": st.integers(1, 2), "seed": st.integers(0, 10**6)}
WIDE = [(1, 7), (4, 20), (2, 59), (3, 60), (2, 90)]  # on both sides of where supports are gathered


class Case:
    """A random weight step on Grams: what kernels take, and the same written out."""

    def __init__(self, K, d, seed, *, one=False, rho=True, positive=False, code=ABSOLUTE, forbidden=False):
        rng = np.random.default_rng(seed)
        self.K, self.d = K, d
        self.H = np.stack([random_gram(rng, d) for _ in range(1 if one else K)])
        self.scale = rng.uniform(0.5, 2.0, K)
        self.q = rng.standard_normal((K, d))
        self.P = random_precision(rng, K)
        self.coupling = Coupling(self.P, np.linalg.inv(self.P), 0.7 if rho else 0.0)
        t = rng.uniform(0.0, 0.6, (K, d)) * (rng.random((K, d)) < 0.8)
        if forbidden:
            t[0, 0] = np.inf
        self.t, self.positive, self.code = t, positive, code
        self.theta = rng.uniform(0.05, 4.0, (K, d)) if code == CONCAVE else None
        self.penalty = (code, positive, np.stack([t] if self.theta is None else [t, self.theta]))

    @property
    def grams(self):
        return self.H, self.scale, self.q

    @property
    def couplings(self):
        return *self.coupling.compressed, self.coupling.u, self.coupling.rho

    @property
    def prior(self):
        c = self.coupling
        return self.P, c.covariance, c.u, c.rho, c.mean_variance

    @property
    def written(self):
        K, d = self.K, self.d
        M = np.kron(self.coupling.dense(), np.eye(d))
        for k in range(K):
            M[k * d : (k + 1) * d, k * d : (k + 1) * d] += self.scale[k] * self.H[k % len(self.H)]
        theta = None if self.theta is None else self.theta.ravel()
        return WrittenOut(M, self.q.ravel(), self.t.ravel(), theta, self.positive)

    def product(self, W):
        return self.scale[:, None] * np.einsum("kij,kj->ki", np.broadcast_to(self.H, (self.K, self.d, self.d)), W)

    def sweep(self, W, tasks=None, n=5000, enough=0.0):
        HW, mean = self.product(W), self.coupling.u @ W
        tasks = np.arange(self.K) if tasks is None else tasks
        done = kernels.gram_sweeps(
            (self.H, self.scale, self.q), (self.couplings, self.penalty), W, HW, mean, tasks, n, enough
        )
        np.testing.assert_allclose(HW, self.product(W), atol=1e-9)
        np.testing.assert_allclose(mean, self.coupling.u @ W, atol=1e-9)
        return done


@given(**SIZES, one=st.booleans(), rho=st.booleans(), positive=st.booleans(), forbidden=st.booleans())
def test_descent_on_grams_ends_at_the_best_pattern_of_signs(K, d, seed, one, rho, positive, forbidden):
    case = Case(K, d, seed, one=one, rho=rho, positive=positive, forbidden=forbidden)
    W = np.zeros((K, d))
    case.sweep(W)
    np.testing.assert_allclose(W.ravel(), case.written.brute(), atol=1e-8)


@pytest.mark.parametrize(("K", "d"), WIDE)
@pytest.mark.parametrize("positive", [False, True])
def test_descent_on_grams_of_many_features_ends_where_nothing_pulls(K, d, positive):
    case = Case(K, d, 0, positive=positive)
    W = np.abs(np.random.default_rng(1).standard_normal((K, d)))
    case.sweep(W)
    assert 0 < np.count_nonzero(W) < W.size
    assert case.written.violation(W) < 1e-9


@given(K=st.integers(1, 3), d=st.integers(1, 6), seed=st.integers(0, 10**6), positive=st.booleans())
def test_a_concave_penalty_ends_where_no_single_weight_can_gain(K, d, seed, positive):
    case = Case(K, d, seed, code=CONCAVE, positive=positive)
    W = np.zeros((K, d))
    case.sweep(W)
    assert case.written.steps(W) < 1e-9


def test_a_concave_penalty_on_gathered_supports():
    case = Case(2, 70, 0, code=CONCAVE)
    W = np.zeros((2, 70))
    case.sweep(W)
    assert 0 < np.count_nonzero(W) < W.size
    assert case.written.steps(W) < 1e-9


@settings(max_examples=200)
@given(
    a=st.floats(-3, 3),
    h=st.floats(0.05, 3),
    ridge=st.floats(0, 2),
    t=st.sampled_from([0.0, 0.3, 1.0, np.inf]),
    theta=st.sampled_from([None, 0.2, 1.0, 5.0]),
    positive=st.booleans(),
)
def test_one_weight_is_the_best_of_a_grid(a, h, ridge, t, theta, positive):
    W, HW, mean = np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1)
    parameters = np.reshape([t] if theta is None else [t, theta], (-1, 1, 1))
    penalty = (ABSOLUTE if theta is None else CONCAVE, positive, parameters)
    one, none = np.ones(1), np.zeros(1)
    rows = compressed(np.array([[ridge]]))
    H, q = np.array([[[h]]]), np.array([[a]])
    kernels.gram_sweeps((H, one, q), ((*rows, none, 0.0), penalty), W, HW, mean, np.zeros(1, np.int64), 3, 0.0)
    own = WrittenOut(
        np.array([[h + ridge]]), np.array([a]), np.array([t]), None if theta is None else np.array([theta]), positive
    )
    assert own.steps(W) < 1e-12
    assert HW[0, 0] == h * W[0, 0]


def test_a_weight_without_curvature_stays():
    W, HW, mean = np.array([[0.5]]), np.zeros((1, 1)), np.zeros(1)
    zero, penalty = np.zeros((1, 1)), (ABSOLUTE, False, np.zeros((1, 1, 1)))
    rows, tasks = compressed(zero), np.zeros(1, np.int64)
    kernels.gram_sweeps(
        (zero[None], np.ones(1), zero + 1.0), ((*rows, mean, 0.0), penalty), W, HW, mean.copy(), tasks, 5, 0.0
    )
    assert W[0, 0] == 0.5


@pytest.mark.parametrize(("K", "d"), [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_do(K, d):
    W = np.zeros((K, d))
    H, scale, penalty = np.zeros((max(K, 1), d, d)), np.ones(K), (ABSOLUTE, False, np.zeros((1, K, d)))
    rows = compressed(np.eye(K))
    made = kernels.gram_sweeps(
        (H, scale, W), ((*rows, np.ones(K), 0.5), penalty), W.copy(), W.copy(), np.zeros(d), np.arange(K), 5, 0.0
    )
    assert made == (1, 0.0)
    E = np.zeros((K, 4))
    assert kernels.feature_sweeps(
        np.zeros((max(K, 1), d, 4)),
        np.zeros((max(K, 1), d)),
        np.ones(K),
        ((*rows, None, 0.0), penalty),
        W.copy(),
        E,
        5,
        0.0,
    ) == (1, 0.0)


def test_tasks_that_are_not_named_stay():
    case = Case(4, 5, 3)
    W = np.random.default_rng(0).standard_normal((4, 5))
    before, named = W.copy(), np.array([2, 0])
    case.sweep(W, tasks=named)
    assert np.array_equal(W[[1, 3]], before[[1, 3]])
    part = case.written
    free = np.concatenate([np.arange(5) + 5 * k for k in (0, 2)])
    fixed = np.setdiff1d(np.arange(20), free)
    part = WrittenOut(
        part.M[np.ix_(free, free)], part.b[free] - part.M[np.ix_(free, fixed)] @ W.ravel()[fixed], part.t[free]
    )
    assert part.violation(W.ravel()[free]) < 1e-9


@pytest.mark.parametrize("alike", [0.0, 0.999])  # features that are nearly one make a visit end with a linear solve
@pytest.mark.parametrize("d", [8, 70])
def test_a_sweep_says_what_it_gained(alike, d):
    case = Case(3, d, 5)
    case.H = (1 - alike) * case.H + alike
    W = np.zeros((3, d))
    problem, last = case.written, 0.0
    for _ in range(6):
        value = problem.value(W)
        made, gained = case.sweep(W, n=1)
        assert made == 1
        assert -1e-12 <= gained <= value - problem.value(W) + 1e-12 * max(1.0, abs(value))
        last = gained
    made, gained = case.sweep(W, n=1000, enough=10 * last + 1e-6)
    assert made == 1
    assert gained <= 10 * last + 1e-6


# ---- each task on features of its own


@given(K=st.integers(1, 3), d=st.integers(1, 4), seed=st.integers(0, 10**6), rho=st.booleans())
def test_descent_on_sets_minimises_over_the_sets_alone(K, d, seed, rho):
    case, rng = Case(K, d, seed, rho=rho), np.random.default_rng(seed)
    sets = [np.flatnonzero(rng.random(d) < 0.6) for _ in range(K)]
    W = rng.standard_normal((K, d))
    before = W.copy()
    free = np.concatenate([k * d + own for k, own in enumerate(sets)]).astype(int)
    whole = case.written
    M = np.kron(case.coupling.dense(), np.eye(d))
    for k, own in enumerate(sets):
        M[np.ix_(k * d + own, k * d + own)] += case.H[k][np.ix_(own, own)]
    fixed = np.setdiff1d(np.arange(K * d), free)
    b = whole.b[free] - M[np.ix_(free, fixed)] @ W.ravel()[fixed]
    part = WrittenOut(M[np.ix_(free, free)], b, whole.t[free])
    sizes = [len(own) for own in sets]
    bounds, corners = (np.concatenate([[0], np.cumsum(x)]).astype(np.int64) for x in (sizes, np.square(sizes)))
    gram = np.concatenate([case.H[k][np.ix_(own, own)].ravel() for k, own in enumerate(sets)])
    features = np.concatenate(sets).astype(np.int64)
    HW = np.concatenate([case.H[k][np.ix_(own, own)] @ W[k, own] for k, own in enumerate(sets)])
    mean = case.coupling.u @ W
    kernels.set_sweeps(
        (gram, corners, features, bounds, whole.b[free]),
        (case.couplings, (ABSOLUTE, False, whole.t[free][None])),
        *(W, HW, mean, np.arange(K), 3000, 0.0),
    )
    assert np.array_equal(W.ravel()[fixed], before.ravel()[fixed])
    assert part.violation(W.ravel()[free]) < 1e-8
    assert part.value(W.ravel()[free]) <= part.value(part.brute()) + 1e-10 if len(free) <= 5 else True
    np.testing.assert_allclose(mean, case.coupling.u @ W, atol=1e-9)
    np.testing.assert_allclose(
        HW, np.concatenate([case.H[k][np.ix_(own, own)] @ W[k, own] for k, own in enumerate(sets)]), atol=1e-9
    )


# ---- on stored columns


def stored(blocks, dense):
    """Columns of all tasks in the form of the kernels."""
    d = blocks[0].shape[1]
    lengths = [len(X) for X in blocks]
    base = np.arange(len(blocks)) * d  # the columns of all tasks stand one after the other
    row_start = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    if dense:
        starts = np.concatenate([[0], np.cumsum(np.repeat(lengths, d))]).astype(np.int64)
        return np.concatenate([X.T.ravel() for X in blocks]), np.zeros(0, np.int64), starts, base, row_start, False
    columns = [sparse.csc_array(X) for X in blocks]
    starts = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(X.indptr) for X in columns]))]).astype(np.int64)
    rows = np.concatenate([X.indices for X in columns]).astype(np.int64)
    return np.concatenate([X.data for X in columns]), rows, starts, base, row_start, True


@given(
    K=st.integers(1, 3),
    d=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    dense=st.booleans(),
    code=st.sampled_from([0, 1]),
)
def test_descent_on_columns_is_descent_on_centred_rows(K, d, seed, dense, code):
    case, rng = Case(K, d, seed, code=code), np.random.default_rng(seed)
    lengths = rng.integers(1, 7, K)
    blocks = [rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6) for n in lengths]
    c, y = rng.uniform(0.2, 1.0, lengths.sum()), rng.standard_normal(lengths.sum())
    mu = rng.standard_normal((K, d)) * 0.3
    ends = np.cumsum(lengths)
    parts = [slice(end - n, end) for n, end in zip(lengths, ends, strict=True)]
    centred = [X - mu[k] for k, X in enumerate(blocks)]
    case.H = np.stack([Z.T @ (c[p][:, None] * Z) for Z, p in zip(centred, parts, strict=True)])
    case.scale = np.ones(K)
    case.q = np.stack([Z.T @ (c[p] * y[p]) for Z, p in zip(centred, parts, strict=True)])
    W = rng.standard_normal((K, d))

    def kept(W):
        v = np.concatenate([c[p] * (y[p] - X @ w) for X, p, w in zip(blocks, parts, W, strict=True)])
        return v, np.stack([[mu[k] @ W[k], v[p].sum()] for k, p in enumerate(parts)])

    v, state = kept(W)
    mean = case.coupling.u @ W
    sums = np.stack([c[p] @ X for X, p in zip(blocks, parts, strict=True)])
    moments = (c, np.array([c[p].sum() for p in parts]), mu, sums, np.einsum("kjj->kj", case.H).copy())
    kernels.design_sweeps(
        *((stored(blocks, dense), *moments), (case.couplings, case.penalty), (W, v, state, mean)),
        *(np.arange(K), 5000, 0.0),
    )
    assert case.written.steps(W) < 1e-9
    if code == ABSOLUTE:
        assert case.written.violation(W) < 1e-8
    for held, expected in zip((v, state), kept(W), strict=True):
        np.testing.assert_allclose(held, expected, atol=1e-9)
    np.testing.assert_allclose(mean, case.coupling.u @ W, atol=1e-9)


@pytest.mark.parametrize("dense", [True, False])
def test_one_task_alone_is_the_lasso(rng, dense):
    X, n, d = rng.standard_normal((80, 120)), 80, 120
    y = X[:, :5] @ np.ones(5) + rng.standard_normal(n)
    answer = Lasso(alpha=0.1, tol=1e-12, max_iter=100_000).fit(X, y)
    W, state, mean = np.zeros((1, d)), np.zeros((1, 2)), np.zeros(d)
    c, mu = np.full(n, 1.0 / n), X.mean(axis=0)[None]
    centred = y - y.mean()
    v = c * centred
    rows = compressed(np.zeros((1, 1)))
    h = (c @ (X - mu) ** 2)[None]
    kernels.design_sweeps(
        (stored([X], dense), c, np.ones(1), mu, (c @ X)[None], h),
        ((*rows, np.zeros(1), 0.0), (ABSOLUTE, False, np.full((1, 1, d), 0.1))),
        *((W, v, state, mean), np.zeros(1, np.int64), 20_000, 0.0),
    )
    np.testing.assert_allclose(W[0], answer.coef_, atol=1e-7)
    G, q, HW = (X - mu).T @ (X - mu) / n, (c * centred) @ (X - mu), np.zeros((1, d))
    W2 = np.zeros((1, d))
    kernels.gram_sweeps(
        *(
            (G[None], np.ones(1), q[None]),
            ((*rows, np.zeros(1), 0.0), (ABSOLUTE, False, np.full((1, 1, d), 0.1))),
            W2,
            HW,
        ),
        *(np.zeros(d), np.zeros(1, np.int64), 20_000, 0.0),
    )
    np.testing.assert_allclose(W2[0], answer.coef_, atol=1e-7)


# ---- tasks coupled through their residuals


@pytest.mark.parametrize("form", ["shared", "aligned", "feature", "feature of one X"])
@given(K=st.integers(1, 3), d=st.integers(1, 3), seed=st.integers(0, 10**6), positive=st.booleans())
def test_descent_through_residuals_ends_at_the_minimum(form, K, d, seed, positive):
    rng = np.random.default_rng(seed)
    n, one = 5, form in {"shared", "feature of one X"}
    X = rng.standard_normal((1 if one else K, d, n))
    every = np.broadcast_to(X, (K, d, n))
    A, y, ridge = random_precision(rng, K), rng.standard_normal((K, n)), rng.uniform(0.1, 1.0, K)
    t = rng.uniform(0.0, 2.0, (K, d))
    M = np.einsum("kl,kin,ljn->kilj", A, every, every).reshape(K * d, K * d) + np.diag(np.repeat(ridge, d))
    problem = WrittenOut(M, np.einsum("kin,kl,ln->ki", every, A, y).ravel(), t.ravel(), None, positive)
    penalty, rows = (ABSOLUTE, positive, t[None]), compressed(A)
    W = np.abs(rng.standard_normal((K, d)))
    E = y - np.einsum("kin,ki->kn", every, W)
    if form == "shared":
        G, q = X[0] @ X[0].T, y @ X[0].T
        D = W @ G - q
        kernels.shared_sweeps(G, q, ridge, ((*rows, None, 0.0), penalty), W, D, 5000, 0.0)
        np.testing.assert_allclose(D, W @ G - q, atol=1e-9)
        E = y - W @ X[0]
    elif form == "aligned":
        H = np.einsum("kin,kjn->kij", X, X)
        HW = np.einsum("kij,kj->ki", H, W)
        kernels.aligned_sweeps(X, H, ridge, ((*rows, None, 0.0), penalty), W, HW, E, 5000, 0.0)
        np.testing.assert_allclose(HW, np.einsum("kij,kj->ki", H, W), atol=1e-9)
    else:
        kernels.feature_sweeps(X, np.sum(X**2, axis=2), ridge, ((*rows, None, 0.0), penalty), W, E, 5000, 0.0)
    np.testing.assert_allclose(E, y - np.einsum("kin,ki->kn", every, W), atol=1e-9)
    assert problem.violation(W) < 1e-8
    if K * d <= 6:
        np.testing.assert_allclose(W.ravel(), problem.brute(), atol=1e-7)


# ---- whole weight steps


@given(
    K=st.integers(1, 4),
    d=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    rho=st.booleans(),
    positive=st.booleans(),
    sweeps=st.integers(0, 3),
)
def test_the_bound_of_a_weight_step_holds_and_is_that_of_the_model(K, d, seed, rho, positive, sweeps):
    case = Case(K, d, seed, rho=rho, positive=positive)
    case.t += 0.01
    case.penalty = (ABSOLUTE, positive, case.t[None])
    problem, W = case.written, np.zeros((K, d))
    HW = case.product(W)
    made, gap = kernels.weight_descent(case.grams, case.penalty, case.prior, W, HW, 1e-9, sweeps)
    assert made <= sweeps
    np.testing.assert_allclose(HW, case.product(W), atol=1e-10)
    best = np.zeros((K, d))
    _, last = kernels.weight_descent(case.grams, case.penalty, case.prior, best, HW * 0, 1e-13, 10_000)
    assert last <= 1e-13
    assert problem.violation(best) < 1e-5
    assert problem.value(W) - problem.value(best) <= gap + 1e-12
    G = case.product(W) + case.coupling.dot(W) - case.q
    penalty = EntrywisePenalty(case.t, positive=positive)
    assert gap == pytest.approx(weight_gap(W, G, case.coupling, penalty), rel=1e-8, abs=1e-13)


@given(K=st.integers(1, 4), d=st.integers(1, 8), seed=st.integers(0, 10**6), rho=st.booleans(), one=st.booleans())
def test_a_step_without_penalty_solves_the_system(K, d, seed, rho, one):
    case = Case(K, d, seed, rho=rho, one=one)
    case.t[:] = 0.0
    problem, W = case.written, np.zeros((K, d))
    HW, ridge, inverses = np.zeros((K, d)), np.zeros(K), np.zeros((K, d, d))
    arguments = (case.grams, case.prior, W, HW, (ridge, inverses))
    answer = np.linalg.solve(problem.M, problem.b)
    for most in (1, 2, 500):
        made, gap = kernels.weight_system(*arguments, 1e-14, most)
        assert made <= most
        assert problem.value(W) - problem.value(answer) <= gap + 1e-12
        G = case.product(W) + case.coupling.dot(W) - case.q
        assert gap == pytest.approx(weight_gap(W, G, case.coupling, np.zeros(K)), rel=1e-6, abs=1e-13)
    assert gap <= 1e-14
    np.testing.assert_allclose(W.ravel(), answer, atol=1e-6)
    np.testing.assert_allclose(HW, case.product(W), atol=1e-9)
    own = case.coupling.diagonal()
    np.testing.assert_allclose(ridge, own)
    for k in range(K):
        block = case.scale[k] * case.H[k % len(case.H)] + own[k] * np.eye(d)
        np.testing.assert_allclose(inverses[k] @ block, np.eye(d), atol=1e-7)


def test_a_block_that_is_not_definite_gives_no_bound():
    one, zero = np.ones((1, 1)), np.zeros((1, 1))
    grams, prior, kept = (
        (-3.0 * one[None], np.ones(1), one),
        (one, one, np.ones(1), 0.0, 0.0),
        (np.zeros(1), one[None].copy()),
    )
    made, gap = kernels.weight_system(grams, prior, zero, zero.copy(), kept, 1e-9, 10)
    assert made == 0
    assert gap == np.inf


def test_a_weight_step_of_many_features_reaches_its_tolerance():
    case = Case(3, 90, 0)
    W = np.zeros((3, 90))
    made, gap = kernels.weight_descent(case.grams, case.penalty, case.prior, W, W.copy(), 1e-10, 10_000)
    assert gap <= 1e-10
    assert made < 10_000
    assert case.written.violation(W) < 1e-4


# ---- a call that lets signals in


@pytest.mark.parametrize("kernel", ["gram", "descent", "feature"])
def test_looks_at_signals_change_no_bit(kernel, monkeypatch):
    case = Case(6, 12, 7)
    n, rng = 9, np.random.default_rng(0)
    X, y = rng.standard_normal((6, 12, n)), rng.standard_normal((6, n))

    def run():
        W = np.zeros((6, 12))
        if kernel == "gram":
            return W, case.sweep(W, n=40, enough=1e-12)
        if kernel == "descent":
            HW = np.zeros((6, 12))
            return W, kernels.weight_descent(case.grams, case.penalty, case.prior, W, HW, 1e-12, 500)
        E = y.copy()
        h = np.sum(X**2, axis=2)
        return W, kernels.feature_sweeps(
            X, h, np.ones(6), ((*compressed(case.P), None, 0.0), case.penalty), W, E, 40, 1e-12
        )

    W, facts = run()
    assert facts[0] > 1 or facts[1] > 1
    look_always(monkeypatch)
    again, same = run()
    assert np.array_equal(W, again)
    assert facts == same


@given(K=st.integers(1, 6), d=st.integers(1, 40), one=st.booleans(), seed=st.integers(0, 10**6), share=st.floats(0, 1))
def test_products_with_grams_skip_what_is_zero(K, d, one, seed, share):
    rng = np.random.default_rng(seed)
    H = np.stack([random_gram(rng, d, d) for _ in range(1 if one else K)])
    scale, V = rng.uniform(0.5, 2.0, K), np.where(rng.random((K, d)) < share, rng.standard_normal((K, d)), 0.0)
    expected = scale[:, None] * np.einsum("kij,kj->ki", np.broadcast_to(H, (K, d, d)), V)
    H[:, (V == 0).all(axis=0)] = np.nan  # rows that nobody needs are not read
    np.testing.assert_allclose(kernels.gram_products(H, scale, V), expected, atol=1e-10)
