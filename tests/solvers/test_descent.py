"""Laws of working sets: they find the minimiser of all features, certify it, and form no Gram of all features."""

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.reference import fista, quadratic_gap
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import Lasso

from mssl.data.design import Design
from mssl.model.coupling import Coupling
from mssl.penalties import EntrywisePenalty
from mssl.solvers import descent as door
from mssl.solvers.base import Status
from mssl.solvers.descent import coordinate_descent, descend_on_sets, descend_on_support
from mssl.solvers.linear import preconditioners, regular_factor
from mssl.solvers.quadratic import Quadratic, StepProblem, make_quadratic
from mssl.solvers.weights import CoefficientProblem, solve_quadratic


def rows(seed, K, n, d, *, shared=False, make=np.asarray, intercept=True, weights=True):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n if shared else K * n, d)) + rng.standard_normal((n if shared else K * n, 1))
    X *= rng.random(X.shape) < 0.8
    where = {"n_tasks": K} if shared else {"offsets": n * np.arange(K + 1)}
    truth = rng.standard_normal((K, d)) * (rng.random((K, d)) < 0.1)
    z = 1 + np.concatenate([(X if shared else X[k * n : (k + 1) * n]) @ truth[k] for k in range(K)])
    z += rng.standard_normal(K * n)
    c = rng.uniform(0.5, 2.0, K * n) if weights else np.ones(K * n)
    design = Design.build(make(X), row_weights=None if shared else c, scale=False, **where)
    return design, c, z, Quadratic.of_rows(design, c, z, intercept)


def coupling_of(rng, K, kind):
    if kind == "none":
        return Coupling.diagonal_only(np.zeros(K))
    if kind == "diagonal":
        return Coupling.diagonal_only(rng.uniform(0.5, 2.0, K))
    A = rng.standard_normal((K, 2 * K))
    P = A @ A.T / K + 0.3 * np.eye(K)
    return Coupling(P, np.linalg.inv(P), 0.7 if kind == "mean" else 0.0)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(3, 25),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([np.asarray, sparse.csr_array]),
    st.booleans(),
    st.sampled_from(["none", "diagonal", "graph", "mean"]),
    st.sampled_from([0.05, 0.3, 0.9]),
)
def test_the_minimiser_is_that_of_all_features(seed, K, n, d, shared, make, intercept, kind, share):
    *_, loss = rows(seed, K, n, d, shared=shared, make=make, intercept=intercept)
    rng = np.random.default_rng(seed)
    coupling = coupling_of(rng, K, kind)
    t = share * np.abs(loss.linear).max() * rng.uniform(0.5, 1.0, K)
    W0 = rng.standard_normal((K, d)) * (rng.random((K, d)) < 0.3)
    tol = 1e-9 * loss.value(np.zeros((K, d)))
    step = descend_on_sets(StepProblem.of(loss, coupling, t), W0, tol=tol)
    assert quadratic_gap(loss, step.W, coupling, t) == pytest.approx(step.gap, rel=1e-4, abs=1e-3 * tol)
    best = coordinate_descent(StepProblem.of(loss, coupling, t), W0, tol=tol, max_iter=100_000)
    assert best.status is Status.CONVERGED
    values = [StepProblem.of(loss, coupling, t).value(W) for W in (step.W, best.W)]
    if step.status is Status.CONVERGED:
        assert abs(values[0] - values[1]) <= 2 * tol
    else:  # the support got too large for sets: what was reached is a start for others
        assert step.status is Status.MAX_ITER
        assert values[0] <= StepProblem.of(loss, coupling, t).value(W0) + tol


@pytest.mark.parametrize("kind", ["diagonal", "graph", "mean"])
@pytest.mark.parametrize(("n", "share"), [(120, 0.3), (120, 0.01), (700, 0.3), (700, 1e-5)])
def test_the_door_leads_to_the_optimum_whatever_the_penalty(kind, n, share):
    design, c, z, loss = rows(0, 3, n, 600, weights=False)
    coupling = coupling_of(np.random.default_rng(1), 3, kind)
    t = np.full(3, share * np.abs(loss.linear).max())
    tol = 1e-7 * loss.value(np.zeros((3, 600)))
    problem = make_quadratic(design, c, z)
    step = solve_quadratic(StepProblem.of(problem, coupling, t), np.zeros((3, 600)), tol=tol)
    assert step.status is Status.CONVERGED
    assert quadratic_gap(loss, step.W, coupling, t) <= 1.01 * tol
    best = fista(loss, coupling, t, step.W, tol=0.1 * tol, max_iter=20_000)
    assert StepProblem.of(loss, coupling, t).value(step.W) <= StepProblem.of(loss, coupling, t).value(best.W) + tol
    if not problem.by_rows:
        assert ("gram" in problem.__dict__) == (share != 0.3)  # only weak penalties ask for the Grams


def test_limits_and_diverging_inputs_are_reported():
    *_, loss = rows(0, 2, 40, 60)
    coupling, t = Coupling.diagonal_only(np.ones(2)), np.full(2, 0.1 * np.abs(loss.linear).max())
    assert (
        descend_on_sets(StepProblem.of(loss, coupling, t), np.zeros((2, 60)), tol=1e-12, max_iter=2).status
        is Status.MAX_ITER
    )
    assert (
        descend_on_sets(StepProblem.of(loss, coupling, t), np.full((2, 60), np.nan), tol=1.0).status is Status.DIVERGED
    )
    stalled = descend_on_sets(StepProblem.of(loss, coupling, t), np.zeros((2, 60)), tol=0.0)
    assert stalled.status is Status.STALLED
    assert stalled.gap <= 1e-12 * loss.value(np.zeros((2, 60)))


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_no_gram_of_all_features_is_formed(ridge):
    d, n, K = 1500, 100, 4
    *_, loss = rows(0, K, n, d, weights=False)
    coupling = Coupling.diagonal_only(np.full(K, ridge))
    t = np.full(K, 0.2 * np.abs(loss.linear).max())
    tracemalloc.start()
    step = solve_quadratic(StepProblem.of(loss, coupling, t), np.zeros((K, d)), tol=1e-6 * loss.value(np.zeros((K, d))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert step.status is Status.CONVERGED
    assert peak < 8 * K * n * d  # what the data themselves take


@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_lassos_that_nothing_relates_are_those_of_scikit_learn(share):
    """To the tolerance that its own tests of coordinate descent use; large Grams are not formed."""
    design, c, z, loss = rows(1, 3, 400, 170, weights=False)
    quadratic = make_quadratic(design, c, z)
    t = share * np.abs(loss.linear).max()
    free, zero = Coupling.diagonal_only(np.zeros(3)), np.zeros((3, 170))
    step = solve_quadratic(StepProblem.of(quadratic, free, np.full(3, t)), zero, tol=1e-9 * loss.null_value)
    assert step.status is Status.CONVERGED
    assert not quadratic.formed or share < 0.2
    for k in range(3):
        block = np.sqrt(c[400 * k : 400 * (k + 1)])[:, None]
        peer = Lasso(t / 400, fit_intercept=False, tol=1e-10, max_iter=10**5)
        peer.fit(loss.rows.block(k), block[:, 0] * loss.rows.target[400 * k : 400 * (k + 1)])
        np.testing.assert_allclose(step.W[k], peer.coef_, atol=1e-5)


def test_deferred_grams_are_those_formed_at_once(monkeypatch):
    design, c, z, _ = rows(0, 3, 400, 200)
    later = make_quadratic(design, c, z)
    monkeypatch.setattr("mssl.solvers.quadratic.pays_in_sets", lambda design: False)
    now = make_quadratic(design, c, z)
    assert now.formed
    assert not later.formed
    W = np.random.default_rng(0).standard_normal((3, 200))
    np.testing.assert_allclose(later.intercepts(W), now.intercepts(W), rtol=1e-12)
    np.testing.assert_allclose(later.linear, now.linear, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(later.constants, now.constants, rtol=1e-12)
    other = pickle.loads(pickle.dumps(later))
    for formed in (later, other):
        np.testing.assert_allclose(formed.gram, now.gram, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(formed.task_values(W), now.task_values(W), rtol=1e-12)


def test_one_fit_does_not_change_the_path_of_another():
    design, c, z, loss = rows(0, 3, 400, 200)
    coupling, W = Coupling.diagonal_only(np.ones(3)), np.zeros((3, 200))
    strong, weak = (np.full(3, share * np.abs(loss.linear).max()) for share in (0.3, 0.001))

    def answer(base, t):
        penalty = EntrywisePenalty.of(t, base.linear.shape)
        return CoefficientProblem(penalty, source=base).solve(coupling, W, tol=1e-3, max_iter=2000).W

    shared = make_quadratic(design, c, z)
    answers = [answer(shared, t) for t in (strong, weak, strong)]
    alone = answer(make_quadratic(design, c, z), strong)
    assert np.array_equal(answers[0], alone)
    assert np.array_equal(answers[2], alone)
    assert np.array_equal(answers[1], answer(make_quadratic(design, c, z), weak))


def test_sets_are_for_many_features_and_large_tasks(monkeypatch):
    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr(door, "descend_on_sets", never)
    for n, d in ((400, 99), (100, 200)):
        design, c, z, loss = rows(0, 2, n, d)
        t = np.full(2, 0.3 * np.abs(loss.linear).max())
        for form in (loss, make_quadratic(design, c, z)):
            assert (
                solve_quadratic(
                    StepProblem.of(form, Coupling.diagonal_only(np.ones(2)), t), np.zeros((2, d)), tol=1.0
                ).status
                is Status.CONVERGED
            )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 6), st.sampled_from([0.0, 1e-12, 1.0]))
def test_factors_of_singular_blocks_do_not_depend_on_the_units_of_features(seed, d, rank, ridge):
    """A factor always exists, and features in other units (powers of two) give the same one in these units."""
    random = np.random.default_rng(seed)
    Z = random.standard_normal((rank, d))
    units = 2.0 ** random.integers(-40, 40, d)
    block = Z.T @ Z
    block[:, 0] = block[0] = 0.0
    plain = np.tril(regular_factor(block.copy(), 0.0)[0])
    scaled = np.tril(regular_factor(block * np.outer(units, units), 0.0)[0])
    scale = units.copy()
    scale[0] = 1.0  # a constant feature has no units
    np.testing.assert_array_equal(scaled, plain * scale[:, None])
    with_ridge = np.tril(regular_factor(block.copy(), ridge)[0])
    np.testing.assert_allclose(
        with_ridge @ with_ridge.T,
        block + np.diag(np.where(block.diagonal() + ridge > 0, ridge, 1.0)),
        atol=1e-9 * (1 + block.max()),
    )


def test_support_solves_of_many_tasks_take_few_more_sweeps_than_those_of_one():
    K, n, d = 30, 15, 20
    rng = np.random.default_rng(0)
    X = rng.standard_normal((K, n, d))
    X[:, 0] *= 1e3  # one row far above the others: sweeps alone stand still
    y = np.einsum("knd,kd->kn", X, rng.standard_normal((K, d)) * (rng.random((K, d)) < 0.5))
    loss = Quadratic(np.einsum("kni,knj->kij", X, X), np.einsum("kni,kn->ki", X, y), np.zeros(K))

    def sweeps(tasks):
        some = Quadratic(loss.gram[tasks], loss.linear[tasks], np.zeros(len(tasks)))
        free = Coupling.diagonal_only(np.full(len(tasks), 0.1))
        step = descend_on_support(StepProblem.of(some, free, np.ones(len(tasks))), np.zeros((len(tasks), d)), tol=1e-6)
        assert step.status is Status.CONVERGED
        return step.n_iter

    assert sweeps(np.arange(K)) <= 2 * max(sweeps(np.array([k])) for k in range(K))


@pytest.mark.parametrize("seed", range(3))
def test_few_features_that_are_far_from_zero_are_solved_for_where_sweeps_creep(seed):
    """Columns of 1e5 without an intercept: their Gram has a condition of 1e12, and few digits of what is left."""
    rng = np.random.default_rng(seed)
    X, C = rng.standard_normal((20, 6)) + 1e5, 0.08 * (np.eye(4) - 0.25)
    Y = X @ rng.standard_normal((6, 4)) - 1e5 * rng.standard_normal(4)
    Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)
    design = Design.build(X, None, 4, scale=False, centre=False)
    loss = Quadratic.of_rows(design, np.ones(80), Y.T.ravel(), intercept=False)
    strengths, zero = np.full(4, 0.2), np.zeros((4, 6))
    loss = make_quadratic(design, np.ones(80), Y.T.ravel(), intercept=False)
    problem = CoefficientProblem(EntrywisePenalty.of(strengths, loss.linear.shape), source=loss)
    step = problem.solve(Coupling(C), zero, tol=1e-3, max_iter=5000)
    assert step.status is Status.CONVERGED
    value = StepProblem.of(loss, Coupling(C), strengths).value(step.W)
    assert value < StepProblem.of(loss, Coupling(C), strengths).value(zero) / 2
    # In directions across 1 the problem is well conditioned: nothing near is better than the certificate allows.
    for size in 10.0 ** np.arange(-8, 1):
        move = rng.standard_normal((4, 6))
        other = step.W + size * (move - move.mean(axis=1, keepdims=True))
        assert StepProblem.of(loss, Coupling(C), strengths).value(other) >= value - step.gap


def test_sweeps_that_only_rounding_moves_end_as_stalled():
    """Columns that are 1 but for their last digits, in units of these: curvature of 1e26 and weights of 1e-13."""
    rng = np.random.default_rng(0)
    design = Design.build(1 + 1e-13 * rng.standard_normal((20, 6)), [0, 5, 10, 15, 20], centre=False)
    loss = Quadratic.of_rows(design, np.ones(20), rng.standard_normal(20), intercept=False)
    coupling = Coupling(100 * (np.eye(4) + 0.1))
    step = door.descend(
        StepProblem.of(loss, coupling, EntrywisePenalty(np.full((4, 6), 0.2))),
        np.zeros((4, 6)),
        tol=1e-6,
        max_iter=10**6,
    )
    assert step.status is Status.STALLED
    assert step.n_iter < 5000


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_inverses_on_a_support_are_those_of_the_grams(ridge):
    """With fewer rows than weights too, where the coupling alone makes the system regular."""
    random = np.random.default_rng(0)
    design = Design.build(random.standard_normal((11, 30)), [0, 4, 11], scale=False)
    problem = Quadratic.of_rows(design, random.uniform(0.5, 2.0, 11), random.standard_normal(11), True)
    support = random.random((2, 30)) < 0.8
    coupling = replace(Coupling.diagonal_only(np.array([0.7, 2.0])), ridge=np.full(2, ridge))
    R = np.where(support, random.standard_normal((2, 30)), 0.0)
    (inverse, _), *_ = preconditioners(StepProblem.of(problem, coupling), support)
    found = inverse(R)
    for k, kept in enumerate(support):
        system = problem.gram_of(k, kept) + coupling.diagonal()[k] * np.eye(kept.sum())
        np.testing.assert_allclose(found[k, kept], np.linalg.solve(system, R[k, kept]), rtol=1e-9)
    assert not np.any(found[~support])


@pytest.mark.parametrize("form", ["grams", "rows", "few rows"])
@pytest.mark.parametrize("mean_variance", [0.0, 2.0])
def test_the_last_preconditioners_are_inverses_and_the_first_where_nothing_relates_tasks(
    monkeypatch, form, mean_variance
):
    rng = np.random.default_rng(0)
    K, n, d = 4, 3 if form == "few rows" else 12, 6
    design = Design.build(rng.standard_normal((K * n, d)), np.arange(K + 1) * n)
    loss = Quadratic.of_rows(design, rng.uniform(0.5, 2.0, K * n), rng.standard_normal(K * n))
    problem = loss.replaced(by_rows=False) if form == "grams" else loss
    root, V = rng.standard_normal((K, K + 1)), rng.standard_normal((K, d))
    P = root @ root.T + np.eye(K)
    related = Coupling(P, np.linalg.inv(P), mean_variance)
    monkeypatch.setattr("mssl.solvers.linear.MOST_UNKNOWNS", 0)
    for support in (None, rng.random((K, d)) < 0.6):
        kept = V if support is None else np.where(support, V, 0.0)
        image = problem.product(kept) + related.dot(kept)
        kinds = list(preconditioners(StepProblem.of(problem, related), support))
        assert len(kinds) == 2
        for apply, _ in kinds[1:]:
            np.testing.assert_allclose(
                apply(image if support is None else np.where(support, image, 0.0)), kept, rtol=1e-8
            )
        assert not np.allclose(kinds[0][0](image), kept, rtol=1e-2)
        alone = Coupling.diagonal_only(np.full(K, 0.5))
        image = problem.product(kept) + 0.5 * kept
        (apply, budget), *others = preconditioners(StepProblem.of(problem, alone), support)
        if support is not None or form == "grams":
            assert budget == np.inf
            assert not others
            np.testing.assert_allclose(
                apply(image if support is None else np.where(support, image, 0.0)), kept, rtol=1e-8
            )


def test_iterations_of_support_solves_count_and_are_limited():
    """One row far above the others, and tasks that are tied closely: support after support, many iterations each."""
    K, n, d = 30, 15, 20
    rng = np.random.default_rng(0)
    X = rng.standard_normal((K, n, d))
    X[:, 0] *= 1e3
    y, products = rng.standard_normal((K, n)), []

    class Counted(Quadratic):
        def product(self, V):
            products.append(1)
            return super().product(V)

    loss = Counted(np.einsum("kni,knj->kij", X, X), np.einsum("kni,kn->ki", X, y), 0.5 * np.sum(y**2, axis=1))
    coupling = Coupling(np.eye(K) + 50.0)
    step = descend_on_support(
        StepProblem.of(loss, coupling, np.full(K, 0.01)), np.zeros((K, d)), tol=1e-12, max_iter=300
    )
    assert step.status is Status.MAX_ITER
    assert 100 < len(products) < step.n_iter < 300 + 500  # one system beyond the limit at most
