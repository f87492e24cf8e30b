"""Laws of joint feature selection: one minimum for every solver, descent, working sets, known special cases."""

import numpy as np
import pytest
from benchmarks.reference import composite_gap
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso, MultiTaskLasso

from mssl import kernels
from mssl.data.design import Design
from mssl.model.coupling import Coupling
from mssl.penalties import L21, ClusterNorm, Dirty, Nuclear
from mssl.solvers import proximal
from mssl.solvers.base import Status
from mssl.solvers.quadratic import Quadratic, StepProblem, make_quadratic
from mssl.solvers.weights import solve_quadratic

LAWS = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)


class Problem:
    """Tasks of different lengths with correlated features, in both forms, and a coupling."""

    def __init__(self, seed, K, d, *, shared=False, coupled="none", share=0.3):
        rng = self.rng = np.random.default_rng(seed)
        sizes = np.full(K, 10) if shared else rng.integers(4, 16, K)
        X = rng.standard_normal((10 if shared else sizes.sum(), d)) + rng.standard_normal(d)
        X[:, 1:] += rng.uniform(0, 2) * X[:, :1]
        weights = np.repeat(rng.uniform(0.5, 2.0, K), sizes) if shared else rng.uniform(0.2, 2.0, sizes.sum())
        y = rng.standard_normal(sizes.sum()) + np.repeat(rng.standard_normal(K), sizes) + 3 * rng.standard_normal()
        design = Design.build(X, None if shared else np.concatenate([[0], np.cumsum(sizes)]), K)
        self.by_rows = Quadratic.of_rows(design, weights, y)
        gram = design.gram(weights)
        self.by_gram = Quadratic(gram, self.by_rows.linear, self.by_rows.task_values(np.zeros((K, d))))
        root = rng.standard_normal((K, 1 if coupled == "singular" else K + 1))
        precision = np.zeros((K, K)) if coupled == "none" else root @ root.T
        self.coupling = Coupling(precision, np.linalg.inv(precision) if coupled == "full" else None)
        self.zero = np.zeros((K, d))
        self.penalty = L21(max(share * L21().dual_norm(self.by_rows.linear), 1e-3))

    def objective(self, V):
        return self.by_rows.value(V) + self.coupling.value(V) + self.penalty.value(V)

    def gradient(self, V):
        return self.by_rows.gradient(V) + self.coupling.dot(V)

    def solve(self, quadratic=None, V=None, **settings):
        start = self.zero if V is None else V
        loss = self.by_gram if quadratic is None else quadratic
        tol = settings.pop("tol", 1e-9 * self.by_rows.null_value)
        return solve_quadratic(StepProblem.of(loss, self.coupling, self.penalty), start, tol=tol, **settings)


shapes = {
    "seed": seeds, "K": st.integers(1, 5), "d": st.integers(2, 25), "shared": st.booleans(),
    "coupled": st.sampled_from(["none", "singular", "full"]), "share": st.floats(0.005, 1.1)
}  # fmt: skip


@LAWS
@given(**shapes, first=st.sampled_from([2, 5, 64]))
@example(seed=0, K=3, d=20, shared=False, coupled="full", share=0.01, first=2)
def test_every_way_leads_to_one_minimum_whatever_the_working_sets(first, **shape):
    problem = Problem(**shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proximal, "SMALL", first)
        tol = 1e-12 * problem.by_rows.null_value
        steps = [problem.solve(form, tol=tol) for form in (problem.by_gram, problem.by_rows)]
    reference = problem.solve(solver="fista", max_iter=200_000, tol=1e-8 * problem.by_rows.null_value)
    null = problem.by_rows.null_value
    least = min(problem.objective(step.W) for step in (*steps, reference))
    for step in steps:
        assert step.status is Status.CONVERGED
        assert problem.objective(step.W) - least <= step.gap + 1e-12 * null
        # The minimality conditions, feature by feature.
        G, sizes = problem.gradient(step.W), np.linalg.norm(step.W, axis=0)
        slopes, alpha = np.linalg.norm(G, axis=0), problem.penalty.alpha
        assert np.all(slopes <= alpha * (1 + 1e-6))
        balance = G[:, sizes > 0] + alpha * step.W[:, sizes > 0] / sizes[sizes > 0]
        assert np.abs(balance).max(initial=0.0) <= 1e-3 * alpha


@LAWS
@given(**shapes)
def test_the_objective_falls_with_every_sweep_and_the_bounds_hold(**shape):
    problem = Problem(**shape)
    least = problem.objective(problem.solve().W)
    before = problem.objective(problem.zero)
    for most in (1, 2, 3, 5, 10, 30):
        step = problem.solve(tol=0.0, max_iter=most)
        value = problem.objective(step.W)
        assert value <= before + 1e-12 * problem.by_rows.null_value
        assert value - least <= step.gap + 1e-12 * problem.by_rows.null_value
        before = value


@LAWS
@given(**shapes, most=st.integers(1, 40))
def test_the_kernel_keeps_the_gradient_and_knows_its_gap(most, **shape):
    problem = Problem(**shape)
    q, coupling, alpha = problem.by_gram, problem.coupling, problem.penalty.alpha
    V, G = problem.zero.copy(), -q.linear
    lift = np.abs(coupling.precision).sum(axis=1)
    form = (q.gram, q.task_scale, q.linear), ((*coupling.compressed, None, 0.0), lift), alpha, q.null_value
    _, gap = kernels.group_descent(*form, V, G, 1e-6 * q.null_value, most)
    exact = problem.gradient(V)
    np.testing.assert_allclose(G, exact, atol=1e-9 * (1 + np.abs(q.linear).max()))
    if gap <= 1e-6 * q.null_value:  # that of the weights it ends with; after a Newton step they are newer
        loss = problem.by_rows.value(V) + coupling.value(V)
        known = composite_gap(loss, V, exact, Coupling(coupling.precision), problem.penalty)
        assert gap == pytest.approx(known, abs=1e-10 * q.null_value)


@LAWS
@given(seeds, st.integers(1, 6), st.floats(0.01, 3.0))
def test_the_minimiser_over_a_feature_is_one(seed, K, alpha):
    rng = np.random.default_rng(seed)
    a, h = rng.standard_normal(K), 10.0 ** rng.uniform(-3, 3, K)
    flat = rng.random(K) < 0.3
    a[flat] = h[flat] = 0.0  # tasks in which a feature is constant
    V, G = np.zeros((K, 1)), -a[:, None]
    none = ((np.arange(K + 1), np.arange(K), np.zeros(K), None, 0.0), np.zeros(K))
    kernels.group_descent((h[:, None, None], np.ones(K), a[:, None].copy()), none, alpha, 1.0, V, G, 0.0, 1)
    out, size = V[:, 0], np.linalg.norm(V)
    if np.linalg.norm(a) <= alpha:
        assert size == 0
    else:
        np.testing.assert_allclose(h * out + alpha * out / size, a, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(40, 90), (30, 200), (200, 150)])
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_shared_features_give_the_multi_task_lasso_and_one_task_the_lasso(n, d, share):
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    Y = X[:, :5] @ rng.standard_normal((5, 4)) + rng.standard_normal((n, 4))
    for targets, reference in ((Y, MultiTaskLasso), (Y[:, :1], Lasso)):
        K = targets.shape[1]
        design = Design.build(X, n_tasks=K, scale=False)
        loss = make_quadratic(design, np.ones(targets.size), targets.T.ravel())
        alpha = share * L21().strength_max(loss.linear)
        free = Coupling.diagonal_only(np.zeros(K))
        step = solve_quadratic(StepProblem.of(loss, free, L21(alpha)), np.zeros((K, d)), tol=1e-10 * loss.null_value)
        other = reference(alpha / n, tol=1e-10, max_iter=200_000).fit(X, targets)
        assert step.status is Status.CONVERGED
        np.testing.assert_allclose(step.W, other.coef_.reshape(K, d), atol=2e-4)


def test_rotated_targets_rotate_the_weights():
    problem = Problem(3, 4, 30, shared=True)
    loss = Quadratic(problem.by_gram.gram[:1], problem.by_gram.linear, problem.by_gram.constants)
    Q = np.linalg.qr(problem.rng.standard_normal((4, 4)))[0]
    turned = Quadratic(loss.gram, Q @ loss.linear, loss.constants)
    first, second = problem.solve(loss), problem.solve(turned)
    np.testing.assert_allclose(Q @ first.W, second.W, atol=1e-6)


def test_a_feature_that_is_constant_in_one_task_serves_the_others():
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((60, 4)), np.array([2.0, 0, 0, 0])
    X[:20, 0] = 1.0
    y = X @ w + 0.1 * rng.standard_normal(60)
    loss = make_quadratic(Design.build(X, [0, 20, 40, 60], scale=False), np.ones(60), y)
    step = solve_quadratic(StepProblem.of(loss, Coupling(np.zeros((3, 3))), L21(2.0)), np.zeros((3, 4)), tol=1e-8)
    assert step.status is Status.CONVERGED
    assert step.W[0, 0] == 0
    assert np.all(step.W[1:, 0] > 1)


def test_nothing_is_done_where_nothing_is_to_do():
    problem = Problem(1, 3, 80, coupled="full")
    limit = L21().strength_max(problem.by_gram.linear)
    idle = solve_quadratic(StepProblem.of(problem.by_gram, problem.coupling, L21(limit)), problem.zero, tol=1e-9)
    assert (idle.n_iter, idle.W.any()) == (0, False)
    best = problem.solve()
    assert problem.solve(V=best.W).n_iter == 0


def far_from_zero(shift):
    """Features far from zero without an intercept, the more ill-conditioned the farther."""
    random = np.random.default_rng(1)
    X = shift + random.standard_normal((15, 3)) @ random.standard_normal((3, 3))
    Y = X @ random.standard_normal((3, 6)) + random.standard_normal((15, 6))
    quadratic = Quadratic((X.T @ X)[None], Y.T @ X, 0.5 * np.sum(Y**2, axis=0))
    return quadratic, Coupling.diagonal_only(np.full(6, 1e-4))


@pytest.mark.parametrize("penalty", [Nuclear(0.1), ClusterNorm(0.1, 2, 0.1), Dirty(0.1)], ids=str)
def test_features_far_from_zero_take_longer_and_end_at_the_same_point(penalty):
    quadratic, coupling = far_from_zero(30.0)
    steps = [
        solve_quadratic(StepProblem.of(quadratic, coupling, penalty), np.full((6, 3), start), tol=1e-7, max_iter=20_000)
        for start in (0.0, 1.0)
    ]
    assert all(step.status is Status.CONVERGED for step in steps)
    values = [quadratic.value(step.W) + coupling.value(step.W) + penalty.value(step.W) for step in steps]
    assert abs(values[0] - values[1]) <= 1e-7 + 1e-10 * quadratic.null_value


def test_a_descent_that_creeps_ends_and_says_so():
    quadratic, coupling = far_from_zero(1e4)
    step = solve_quadratic(
        StepProblem.of(quadratic, coupling, Nuclear(0.1)), np.zeros((6, 3)), tol=1e-6, max_iter=400_000
    )
    assert step.status is Status.STALLED
    assert step.n_iter < 40_000
    assert step.gap > 1e-6
