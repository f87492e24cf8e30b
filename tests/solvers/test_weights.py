"""Laws of the quadratic weight step: all solvers find the one minimiser, certificates bound the truth."""

import pickle

import numpy as np
import pytest
from benchmarks.reference import fista, quadratic_gap
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.linalg import block_diag
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge

from mssl.data.design import Design, default_memory_limit
from mssl.exceptions import ParameterError
from mssl.model.coupling import Coupling
from mssl.penalties import L21, EntrywisePenalty
from mssl.solvers.base import Status
from mssl.solvers.descent import coordinate_descent
from mssl.solvers.linear import conjugate_gradient
from mssl.solvers.quadratic import (
    Quadratic,
    StepProblem,
    make_quadratic,
)
from mssl.solvers.weights import RULES, choose, solve_quadratic

LAWS = settings(max_examples=25, deadline=None)


def random_precision(rng, K):
    A = rng.standard_normal((K, 2 * K))
    return A @ A.T / K + 0.3 * np.eye(K)


def random_coupling(rng, K, mean_variance=0.0, strength=1.0):
    precision = random_precision(rng, K)
    return Coupling(strength * precision, np.linalg.inv(precision) / strength, mean_variance)


class Problem:
    """A random weight step in all its forms."""

    def __init__(self, seed, sizes=(12, 5, 1, 20), d=6, shared=False, intercept=True, density=1.0):
        rng = self.rng = np.random.default_rng(seed)
        K = self.K = len(sizes)
        self.d, self.shared, self.intercept = d, shared, intercept
        self.offsets = sizes[0] * np.arange(K + 1) if shared else np.concatenate([[0], np.cumsum(sizes)])
        N = int(self.offsets[-1])
        rows = sizes[0] if shared else N
        self.X = rng.standard_normal((rows, d)) * (rng.random((rows, d)) < density)
        self.z = rng.standard_normal(N) * 2 + 1
        s = rng.uniform(0.5, 2.0, K)
        self.c = np.repeat(s, np.diff(self.offsets)) * (1.0 if shared else rng.uniform(0.5, 2.0, N))

    def design(self, make=np.asarray):
        where = {"n_tasks": self.K} if self.shared else {"offsets": self.offsets}
        return Design.build(make(self.X), row_weights=self.c, **where)

    def features(self, k):
        rows = self.X if self.shared else self.X[self.offsets[k] : self.offsets[k + 1]]
        design = self.design()
        return (rows - design.centres[k]) / design.scales

    def gram_form(self):
        d, K = self.d, self.K
        H, q, constants = np.empty((K, d, d)), np.empty((K, d)), np.empty(K)
        for k in range(K):
            rows = slice(self.offsets[k], self.offsets[k + 1])
            c, z, X = self.c[rows], self.z[rows], self.features(k)
            if self.intercept:
                z, X = z - c @ z / c.sum(), X - c @ X / c.sum()
            H[k], q[k], constants[k] = X.T @ (c[:, None] * X), X.T @ (c * z), 0.5 * c @ z**2
        return Quadratic(H, q, constants)

    def forms(self):
        yield self.gram_form()
        for make in (np.asarray, sparse.csr_array):
            design = self.design(make)
            yield Quadratic.of_rows(design, self.c, self.z, self.intercept)
            yield _grams(design, self.c, self.z, self.intercept)


def _grams(design, c, z, intercept):
    """Grams whatever the number of rows."""
    by_products = Quadratic.of_rows(design, c, z, intercept)
    common = design.common_weights(c)
    weights, scale = (c, None) if common is None else common
    constants = by_products.task_values(np.zeros((design.n_tasks, design.n_features)))
    return Quadratic(design.gram(weights, intercept=intercept), by_products.linear, constants, scale)


@st.composite
def problems(draw):
    shared = draw(st.booleans())
    sizes = draw(st.lists(st.integers(2 if shared else 1, 9), min_size=1, max_size=4))
    return Problem(
        draw(st.integers(0, 2**32 - 1)),
        tuple(sizes),
        draw(st.integers(1, 5)),
        shared,
        draw(st.booleans()),
        draw(st.sampled_from([0.5, 1.0])),
    )


@LAWS
@given(problems())
def test_every_form_is_the_same_quadratic(problem):
    reference = problem.gram_form()
    W, V = problem.rng.standard_normal((2, problem.K, problem.d))
    for form in problem.forms():
        np.testing.assert_allclose(form.task_values(W), reference.task_values(W), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(form.gradient(W), reference.gradient(W), atol=1e-8)
        np.testing.assert_allclose(form.product(V), reference.product(V), atol=1e-8)
        np.testing.assert_allclose(form.diagonal, reference.diagonal, atol=1e-8)
        np.testing.assert_allclose(form.linear, reference.linear, atol=1e-9)
        assert form.value(W) == pytest.approx(form.task_values(W).sum())


@LAWS
@given(problems())
def test_intercepts_minimise_the_loss(problem):
    W = problem.rng.standard_normal((problem.K, problem.d))
    design = problem.design()
    for loss in (
        Quadratic.of_rows(design, problem.c, problem.z, True),
        make_quadratic(design, problem.c, problem.z, intercept=True),
    ):
        residual = problem.z - design.predictor(W) - design.per_task(loss.intercepts(W))
        np.testing.assert_allclose(design.task_sums(problem.c * residual), 0, atol=1e-9)
        np.testing.assert_allclose(0.5 * design.task_sums(problem.c * residual**2), loss.task_values(W), atol=1e-8)


@LAWS
@given(problems(), st.sampled_from([0.0, 1.5]), st.sampled_from([0.0, 0.1, 0.6]))
def test_every_solver_and_form_finds_the_same_minimiser(problem, mean_variance, fraction):
    coupling = random_coupling(problem.rng, problem.K, mean_variance)
    reference = problem.gram_form()
    t = np.full(problem.K, fraction * np.abs(reference.linear).max())
    start = problem.rng.standard_normal((problem.K, problem.d))
    scale = 1.0 + reference.value(np.zeros_like(start))
    best = solve_quadratic(StepProblem.of(reference, coupling, t), start, solver="coordinate", tol=1e-13 * scale)
    assert best.status in (Status.CONVERGED, Status.STALLED)
    floor = StepProblem.of(reference, coupling, t).value(best.W)
    solvers = ["coordinate", "fista"] if fraction else ["coordinate", "cg", "fista"]
    for form in problem.forms():
        shared = form.is_shared and not fraction
        for solver in [*solvers, *(["sylvester"] if shared else [])]:
            step = solve_quadratic(StepProblem.of(form, coupling, t), start, solver=solver, tol=1e-9 * scale)
            assert step.status is Status.CONVERGED, (solver, step)
            excess = StepProblem.of(reference, coupling, t).value(step.W) - floor
            assert -1e-11 * scale <= excess <= step.gap + 1e-11 * scale


@LAWS
@given(problems(), st.sampled_from([0.0, 0.2]), st.sampled_from(["definite", "laplacian", "none"]))
def test_gaps_bound_the_true_suboptimality(problem, fraction, kind):
    loss, K = problem.gram_form(), problem.K
    t = np.full(K, fraction * np.abs(loss.linear).max())
    if kind == "definite":
        coupling = random_coupling(problem.rng, K, 0.5)
    elif kind == "laplacian":
        coupling = Coupling(K * np.eye(K) - 1.0)
    else:
        coupling = Coupling.diagonal_only(np.zeros(K))
    if kind != "definite" and not fraction:
        return
    best = coordinate_descent(StepProblem.of(loss, coupling, t), np.zeros((K, problem.d)), tol=0.0, max_iter=3000)
    floor = StepProblem.of(loss, coupling, t).value(best.W)
    for size in (0.0, 1e-3, 1.0):
        W = best.W + size * problem.rng.standard_normal(best.W.shape)
        excess = StepProblem.of(loss, coupling, t).value(W) - floor
        assert quadratic_gap(loss, W, coupling, t) >= excess - 1e-10 * (1 + abs(floor))


@LAWS
@given(problems(), st.sampled_from([0.0, 2.0]))
def test_sweeps_never_raise_the_objective(problem, mean_variance):
    coupling = random_coupling(problem.rng, problem.K, mean_variance)
    for loss in problem.forms():
        t = np.full(problem.K, 0.1 * np.abs(loss.linear).max())
        W = problem.rng.standard_normal((problem.K, problem.d))
        value = StepProblem.of(loss, coupling, t).value(W)
        for _ in range(6):
            W = coordinate_descent(StepProblem.of(loss, coupling, t), W, tol=0.0, max_iter=1).W
            following = StepProblem.of(loss, coupling, t).value(W)
            assert following <= value + 1e-10 * (1 + abs(value))
            value = following


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [4, 60])
def test_one_task_is_scikit_learn(intercept, d):
    rng = np.random.default_rng(5)
    n = 25
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n) + 2
    design = Design.build(X, [0, n], centre=intercept, scale=False)
    loss = make_quadratic(design, np.ones(n), y, intercept=intercept)
    assert (not loss.by_rows) == (d == 4)
    nothing, W0 = Coupling.diagonal_only(np.zeros(1)), np.zeros((1, d))

    lasso = Lasso(alpha=0.1, fit_intercept=intercept, tol=1e-12, max_iter=100_000).fit(X, y)
    step = solve_quadratic(StepProblem.of(loss, nothing, np.array([0.1 * n])), W0, tol=1e-12)
    assert step.status is Status.CONVERGED
    coef, offset = design.to_user(step.W, loss.intercepts(step.W))
    np.testing.assert_allclose(coef[0], lasso.coef_, atol=1e-6)
    np.testing.assert_allclose(offset[0], lasso.intercept_, atol=1e-6)

    ridge = Ridge(alpha=3.0, fit_intercept=intercept, solver="cholesky").fit(X, y)
    step = solve_quadratic(StepProblem.of(loss, Coupling.diagonal_only(np.array([3.0])), np.zeros(1)), W0, tol=1e-20)
    np.testing.assert_allclose(step.W[0], ridge.coef_, atol=1e-8)
    if d < n:
        ols = LinearRegression(fit_intercept=intercept).fit(X, y)
        step = solve_quadratic(StepProblem.of(loss, nothing, np.zeros(1)), W0, tol=1e-10)
        np.testing.assert_allclose(step.W[0], ols.coef_, atol=1e-8)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_independent_tasks_are_elastic_nets(make):
    problem = Problem(7, sizes=(30, 12, 50), d=8, density=0.5)
    weights = np.ones(92)
    design = Design.build(make(problem.X), problem.offsets, scale=False)
    n = design.n_rows
    ridge, lasso = 0.2 * 0.4 * n, 0.2 * 0.6 * n
    for loss in (
        Quadratic.of_rows(design, weights, problem.z),
        make_quadratic(design, weights, problem.z),
    ):
        step = solve_quadratic(StepProblem.of(loss, Coupling.diagonal_only(ridge), lasso), np.zeros((3, 8)), tol=1e-14)
        coef, intercept = design.to_user(step.W, loss.intercepts(step.W))
        for k in range(3):
            rows = slice(problem.offsets[k], problem.offsets[k + 1])
            net = ElasticNet(alpha=0.2, l1_ratio=0.6, tol=1e-13, max_iter=10**5).fit(problem.X[rows], problem.z[rows])
            np.testing.assert_allclose(coef[k], net.coef_, atol=1e-6)
            np.testing.assert_allclose(intercept[k], net.intercept_, atol=1e-6)


def test_shared_mean_is_the_explicit_dense_coupling():
    problem = Problem(8)
    implicit = random_coupling(problem.rng, problem.K, 1.7)
    C = implicit.dense()
    explicit = Coupling(C, np.linalg.inv(C))
    for loss in problem.forms():
        t = np.full(problem.K, 0.05 * np.abs(loss.linear).max())
        a, b = (solve_quadratic(StepProblem.of(loss, c, t), np.zeros((4, 6)), tol=1e-12) for c in (implicit, explicit))
        np.testing.assert_allclose(a.W, b.W, atol=1e-6)


def test_duplicated_rows_are_doubled_weights():
    problem = Problem(9, sizes=(8, 5, 11))
    doubled = Design.build(np.repeat(problem.X, 2, axis=0), 2 * problem.offsets)
    single = Design.build(problem.X, problem.offsets)
    coupling, ones = random_coupling(problem.rng, 3), np.ones(24)
    t, W0 = np.full(3, 2.0), np.zeros((3, 6))
    a = solve_quadratic(StepProblem.of(Quadratic.of_rows(single, 2 * ones, problem.z), coupling, t), W0, tol=1e-13)
    b = solve_quadratic(
        StepProblem.of(Quadratic.of_rows(doubled, np.ones(48), np.repeat(problem.z, 2)), coupling, t), W0, tol=1e-13
    )
    np.testing.assert_allclose(a.W, b.W, atol=1e-6)


@LAWS
@given(problems())
def test_permuting_tasks_permutes_the_weights(problem):
    loss, K = problem.gram_form(), problem.K
    precision = random_precision(problem.rng, K)
    order = problem.rng.permutation(K)
    t = problem.rng.uniform(0.1, 0.5, K)
    moved = Quadratic(loss.gram[order], loss.linear[order], loss.constants[order])
    W0 = np.zeros((K, problem.d))
    a = solve_quadratic(StepProblem.of(loss, Coupling(precision, np.linalg.inv(precision)), t), W0, tol=1e-13)
    mixed = precision[np.ix_(order, order)]
    b = solve_quadratic(StepProblem.of(moved, Coupling(mixed, np.linalg.inv(mixed)), t[order]), W0, tol=1e-13)
    np.testing.assert_allclose(a.W[order], b.W, atol=1e-5)


def test_from_the_largest_gradient_on_all_weights_are_zero():
    problem = Problem(10)
    for loss in problem.forms():
        t = np.full(4, np.abs(loss.linear).max())
        coupling = random_coupling(problem.rng, 4)
        assert not np.any(solve_quadratic(StepProblem.of(loss, coupling, t), np.ones((4, 6)), tol=1e-10).W)
        assert np.any(solve_quadratic(StepProblem.of(loss, coupling, 0.99 * t), np.ones((4, 6)), tol=1e-10).W)


def numpy_sweep(H, q, C, t, W):
    """One pass over all coordinates of each task in plain NumPy."""
    W = W.copy()
    for k in range(len(W)):
        for j in range(W.shape[1]):
            h = H[k, j, j] + C[k, k]
            a = h * W[k, j] - (H[k, j] @ W[k] - q[k, j] + C[k] @ W[:, j])
            W[k, j] = np.sign(a) * max(abs(a) - t[k], 0) / h if h > 0 else W[k, j]
    return W


@pytest.mark.parametrize("mean_variance", [0.0, 2.0])
def test_kernels_repeat_their_numpy_twin(mean_variance):
    from mssl.solvers.descent import _design_sweeps, _gram_sweeps

    problem = Problem(11, density=0.6)
    coupling = random_coupling(problem.rng, 4, mean_variance)
    reference = problem.gram_form()
    t = np.full(4, 0.1 * np.abs(reference.linear).max())
    start = problem.rng.standard_normal((4, 6))
    expected = numpy_sweep(reference.gram, reference.linear, coupling.dense(), t, start)
    for loss in problem.forms():
        W = start.copy()
        kind = _design_sweeps if loss.by_rows else _gram_sweeps
        sweep, gradient = kind(loss, coupling, EntrywisePenalty.of(t, W.shape), W)
        made, decrease = sweep(1, np.inf)  # so easily content: no pass over the support
        assert made == 1
        np.testing.assert_allclose(W, expected, atol=1e-10)
        np.testing.assert_allclose(gradient(), reference.gradient(W) + coupling.dot(W), atol=1e-8)
        drop = StepProblem.of(reference, coupling, t).value(start) - StepProblem.of(reference, coupling, t).value(W)
        assert 0 < decrease <= drop + 1e-9


def test_zero_columns_and_rank_deficiency_are_harmless():
    rng = np.random.default_rng(12)
    X = rng.standard_normal((10, 4))
    X[:, 1] = 5.0
    X[:, 3] = X[:, 2]
    design = Design.build(X, [0, 4, 10])
    y = rng.standard_normal(10)
    for loss in (Quadratic.of_rows(design, np.ones(10), y), _grams(design, np.ones(10), y, True)):
        for coupling in (Coupling.diagonal_only(np.zeros(2)), random_coupling(rng, 2)):
            for t in (np.zeros(2), np.ones(2)):
                step = solve_quadratic(StepProblem.of(loss, coupling, t), np.zeros((2, 4)), tol=1e-8)
                assert step.status is Status.CONVERGED
                assert np.all(step.W[:, 1] == 0)


def test_form_is_chosen_by_rows_and_budget():
    rng = np.random.default_rng(13)
    tall, wide = Design.build(rng.random((20, 3)), [0, 10, 20]), Design.build(rng.random((8, 9)), [0, 4, 8])
    assert not make_quadratic(tall, np.ones(20), rng.random(20)).by_rows
    with pytest.warns(UserWarning, match=r"Grams would take .* memory_limit allows"):
        assert make_quadratic(tall, np.ones(20), rng.random(20), memory_limit=8 * 17).by_rows
    assert make_quadratic(wide, np.ones(8), rng.random(8)).by_rows
    shared = Design.build(rng.random((9, 3)), n_tasks=100)
    one = make_quadratic(shared, np.repeat(rng.random(100) + 1, 9), rng.random(900), memory_limit=8 * 9)
    assert not one.by_rows
    assert one.is_shared
    assert 0 < default_memory_limit() <= 2 * 2**30


def test_auto_chooses_by_penalty_and_shape():
    shared = Quadratic(np.eye(30)[None], np.zeros((3, 30)), np.zeros(3))
    own = Quadratic(np.stack([np.eye(30)] * 3), np.zeros((3, 30)), np.zeros(3))
    some, none = (EntrywisePenalty.of(np.full(3, t), (3, 30)) for t in (1.0, 0.0))
    assert choose(shared, some).name == "coordinate"
    assert choose(shared, none).name == "sylvester"
    assert choose(own, none).name == "cg"
    assert choose(own, L21(1.0)).name == "proximal"
    for rule in RULES:
        if "none" in rule.kinds:
            assert choose(own, none, rule.name) is rule


def test_the_name_of_the_solver_that_is_gone_stands_for_auto_with_a_warning():
    loss = Quadratic(np.eye(2)[None], np.ones((3, 2)), np.zeros(3))
    penalty = EntrywisePenalty.of(np.ones(3), (3, 2))
    with pytest.warns(FutureWarning, match="'auto' takes its place"):
        assert choose(loss, penalty, "admm") is choose(loss, penalty)


@pytest.mark.parametrize(
    ("solver", "threshold", "match"),
    [("cg", 1.0, "without a penalty"), ("sylvester", 0.0, "one Gram"), ("?", 0.0, "auto")],
)
def test_a_solver_that_does_not_fit_is_refused(solver, threshold, match):
    own = Quadratic(np.stack([np.eye(2)] * 3), np.zeros((3, 2)), np.zeros(3))
    coupling = Coupling.diagonal_only(np.ones(3))
    with pytest.raises(ParameterError, match=match):
        solve_quadratic(StepProblem.of(own, coupling, np.full(3, threshold)), np.zeros((3, 2)), solver=solver, tol=1e-6)


@pytest.mark.parametrize("d", [3, 70])
def test_a_kept_preconditioner_serves_other_couplings(d):
    problem = Problem(16, sizes=(80, 90, 75), d=d)
    loss, W0, t = problem.gram_form(), np.zeros((3, d)), np.zeros(3)
    precision = random_precision(problem.rng, 3)
    for strength in (1.0, 1.5, 40.0):
        coupling = Coupling(strength * precision, np.linalg.inv(precision) / strength)
        step = solve_quadratic(StepProblem.of(loss, coupling, t), W0, solver="cg", tol=1e-18)
        assert step.status is Status.CONVERGED
        blocks = [np.kron(row, np.eye(d)) for row in coupling.dense()[:, None, :]]
        system = np.concatenate(blocks) + block_diag(*loss.gram)
        np.testing.assert_allclose(step.W.ravel(), np.linalg.solve(system, loss.linear.ravel()), atol=1e-8)
    copy = pickle.loads(pickle.dumps(loss))
    np.testing.assert_array_equal(copy.gradient(step.W), loss.gradient(step.W))


def test_the_limit_is_reported():
    problem = Problem(14)
    coupling = random_coupling(problem.rng, 4)
    W0 = np.zeros((4, 6))
    for solver, t in (("coordinate", 0.1), ("fista", 0.1), ("cg", 0.0)):
        step = solve_quadratic(
            StepProblem.of(problem.gram_form(), coupling, np.full(4, t)), W0, solver=solver, tol=0.0, max_iter=1
        )
        assert step.status is Status.MAX_ITER
        assert step.n_iter == 1
        assert step.gap > 0


def test_fista_takes_any_smooth_loss_and_penalty():
    """Logistic loss with a group penalty: at the minimum the subgradient condition holds."""
    rng = np.random.default_rng(15)
    X, labels, t = rng.standard_normal((3, 40, 5)), rng.choice([-1.0, 1.0], (3, 40)), 3.0

    class Logistic:
        def value(self, W):
            return float(np.logaddexp(0, -labels * np.einsum("knd,kd->kn", X, W)).sum())

        def gradient(self, W):
            margin = labels * np.einsum("knd,kd->kn", X, W)
            return np.einsum("knd,kn->kd", X, -labels / (1 + np.exp(margin)))

    def prox(W, step):
        norms = np.linalg.norm(W, axis=0)
        return W * np.maximum(1 - step * t / np.where(norms > 0, norms, 1.0), 0.0)

    def violation(W, G):
        norms = np.linalg.norm(W, axis=0)
        inside = np.maximum(np.linalg.norm(G, axis=0) - t, 0.0)
        on = np.linalg.norm(G + t * W / np.where(norms > 0, norms, 1.0), axis=0)
        return float(np.max(np.where(norms > 0, on, inside)))

    coupling = random_coupling(rng, 3)
    step = fista(Logistic(), coupling, None, np.zeros((3, 5)), tol=1e-8, prox=prox, gap=violation)
    assert step.status is Status.CONVERGED
    W = step.W
    assert np.any(W)
    base = Logistic().value(W) + coupling.value(W) + t * np.linalg.norm(W, axis=0).sum()
    for _ in range(20):
        V = W + 0.01 * rng.standard_normal(W.shape)
        assert Logistic().value(V) + coupling.value(V) + t * np.linalg.norm(V, axis=0).sum() >= base


@pytest.mark.parametrize("tau", [0.0, 0.7])
@pytest.mark.parametrize("K", [5, 150])
@pytest.mark.parametrize("alone", [True, False])
def test_forms_over_tasks_are_those_of_their_matrices(K, alone, tau):
    rng = np.random.default_rng(K)
    diagonal, R = rng.uniform(0.5, 2.0, K), rng.standard_normal((K, 4))
    P = np.diag(diagonal)
    if not alone:
        P[0, -1] = P[-1, 0] = 0.3
    coupling = Coupling.diagonal_only(diagonal, tau) if alone else Coupling(P, np.linalg.inv(P), tau)
    C = np.linalg.inv(np.linalg.inv(P) + tau)
    np.testing.assert_allclose(coupling.dense(), C, atol=1e-12)
    np.testing.assert_allclose(coupling.dot(R), C @ R, atol=1e-11)
    assert coupling.inverse_quadratic(R) == pytest.approx(0.5 * np.trace(R.T @ np.linalg.inv(C) @ R), rel=1e-10)


@pytest.mark.parametrize("shift", [1.0, 100.0])
def test_tasks_that_are_tied_closely_take_few_iterations_without_grams(shift):
    K, n, d = 8, 10, 20
    random = np.random.default_rng(0)
    X = shift + random.standard_normal((K * n, d))
    design = Design.build(X, np.arange(0, K * n + 1, n), scale=False, centre=False)
    loss = Quadratic.of_rows(design, np.ones(K * n), random.standard_normal(K * n))
    P = 1e-4 * (1.1 * np.eye(K) - np.ones((K, K)) / K)
    step = conjugate_gradient(StepProblem.of(loss, Coupling(P, np.linalg.inv(P))), np.zeros((K, d)), tol=1e-10)
    system = np.kron(P, np.eye(d))
    for k in range(K):
        centred = X[k * n : (k + 1) * n] - X[k * n : (k + 1) * n].mean(axis=0)
        system[k * d : (k + 1) * d, k * d : (k + 1) * d] += centred.T @ centred
    assert step.status is Status.CONVERGED
    assert step.n_iter <= 105
    assert np.allclose(step.W.ravel(), np.linalg.solve(system, loss.linear.ravel()), rtol=1e-4, atol=1e-5)


def test_conjugate_gradients_without_digits_end():
    """Features of sizes 1e-9 to 1e9, unscaled: without restarts the iterations went on to their limit, whatever it was."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((15, 10)) * 10.0 ** rng.uniform(-9, 9, 10)
    design = Design.build(X, [0, 3, 5, 8, 10, 13, 15], scale=False)
    loss = Quadratic.of_rows(design, np.ones(15), rng.standard_normal(15))
    step = conjugate_gradient(
        StepProblem.of(loss, Coupling.diagonal_only(np.full(6, 1e-25))), np.zeros((6, 10)), tol=1e-40, max_iter=10**6
    )
    assert step.n_iter <= 10_000
