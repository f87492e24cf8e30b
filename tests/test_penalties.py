"""Laws of the penalties and of the solvers behind them: proximal maps, certificates, limits, known answers."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.reference import composite_gap, fista
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize, nnls
from sklearn.base import clone
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import Lasso, MultiTaskLasso

from mssl import MultiTaskClassifier, MultiTaskGLM
from mssl.data.design import Design
from mssl.datasets import make_clustered_tasks, make_residual_graph
from mssl.exceptions import ParameterError
from mssl.features import Linear
from mssl.kernels import ABSOLUTE
from mssl.losses import Gaussian
from mssl.model.bounds import WeightBound
from mssl.model.coupling import Coupling
from mssl.penalties import (
    L1,
    L21,
    MCP,
    AdaptiveL1,
    ClusterNorm,
    Dirty,
    ElasticNet,
    EntrywisePenalty,
    Nuclear,
    Penalty,
    memberships,
)
from mssl.solvers.base import Status
from mssl.solvers.descent import coordinate_descent, descend_on_sets, descend_on_support
from mssl.solvers.proximal import sub_grams
from mssl.solvers.quadratic import Quadratic, StepProblem, make_quadratic
from mssl.solvers.weights import solve_quadratic
from mssl.structures import FixedPrecision, Independent, Pooled, SparsePrecision

LAWS = settings(max_examples=20, deadline=None)
NORMS = [L1, L21, Nuclear, Dirty]
seeds = st.integers(0, 2**32 - 1)


@LAWS
@given(seeds, st.sampled_from([*NORMS, ElasticNet, ClusterNorm]), st.floats(0.05, 3.0), st.floats(0.1, 1.2))
def test_prox_is_the_minimiser_it_claims_to_be(seed, kind, step, second):
    rng = np.random.default_rng(seed)
    penalty = {
        ElasticNet: ElasticNet(0.7, second),
        Dirty: Dirty(0.7, second),
        ClusterNorm: ClusterNorm(0.7, 1 + seed % 4, second - 0.1),
    }.get(kind, kind(0.7))
    W, trial = rng.standard_normal((2, 4, 6))

    def cost(V):
        return 0.5 * np.sum((V - W) ** 2) + step * penalty.value(V)

    best = penalty.prox(W, step)
    for size in (1e-4, 1e-2, 1.0):
        assert cost(best) <= cost(best + size * trial) + 1e-12
    assert np.abs(best - penalty.prox(best - (best - W) / step, 1.0)).max() <= 1e-9


@LAWS
@given(seeds, st.sampled_from(NORMS))
def test_norm_and_dual_norm_are_a_pair(seed, kind):
    rng = np.random.default_rng(seed)
    penalty = kind(1.0)
    W, G = rng.standard_normal((2, 4, 6))
    assert np.vdot(W, G) <= penalty.norm(W) * penalty.dual_norm(G) * (1 + 1e-12)
    # Moreau: what the proximal map takes away lies in the dual ball, and touches it where something is left.
    taken = W - penalty.prox(W, 1.0)
    assert penalty.dual_norm(taken) <= 1 + 1e-9
    assert np.vdot(taken, penalty.prox(W, 1.0)) == pytest.approx(penalty.norm(penalty.prox(W, 1.0)), abs=1e-9)


class Task:
    """A random quadratic with a coupling that may be singular or absent."""

    def __init__(self, seed, *, shared=False, coupled="full", n=12, d=7, K=3):
        rng = self.rng = np.random.default_rng(seed)
        X = rng.standard_normal((n if shared else n * K, d))
        y = rng.standard_normal(n * K) * 2
        offsets = None if shared else n * np.arange(K + 1)
        self.design = Design.build(X, offsets, K)
        self.weights = np.ones(n * K) if shared else rng.uniform(0.5, 2.0, n * K)
        self.quadratic = make_quadratic(self.design, self.weights, y)
        self.by_rows = Quadratic.of_rows(self.design, self.weights, y)
        A = rng.standard_normal((K, K if coupled == "full" else 1))
        precision = np.zeros((K, K)) if coupled == "none" else A @ A.T + (0.1 * np.eye(K) if coupled == "full" else 0)
        inverse = np.linalg.inv(precision) if coupled == "full" else None
        self.coupling = Coupling(precision, inverse)
        self.zero = np.zeros((K, d))

    def objective(self, V, penalty):
        return self.quadratic.value(V) + self.coupling.value(V) + penalty.value(V)


@LAWS
@given(
    seeds, st.sampled_from([L21, Nuclear, Dirty]), st.booleans(), st.sampled_from(["full", "singular", "none"]),
    st.floats(0.02, 0.9), st.sampled_from([5, 12, 30])
)  # fmt: skip
def test_all_solvers_agree_and_the_certificate_bounds(seed, kind, shared, coupled, share, d):
    task = Task(seed, shared=shared, coupled=coupled, d=d)
    penalty = kind(share * kind(1.0).strength_max(task.quadratic.gradient(task.zero)))
    best = solve_quadratic(
        StepProblem.of(task.quadratic, task.coupling, penalty), task.zero, tol=1e-9, max_iter=100_000
    )
    assert best.status is Status.CONVERGED
    least = task.objective(best.W, penalty)
    for other in (
        solve_quadratic(StepProblem.of(task.by_rows, task.coupling, penalty), task.zero, tol=1e-9, max_iter=100_000),
        solve_quadratic(
            StepProblem.of(task.quadratic, task.coupling, penalty),
            task.zero,
            solver="fista",
            tol=1e-9,
            max_iter=100_000,
        ),
    ):
        assert other.status is Status.CONVERGED
        assert task.objective(other.W, penalty) == pytest.approx(least, abs=1e-8 * max(1, abs(least)))
    for V in (task.zero, best.W + 0.1 * task.rng.standard_normal(best.W.shape), 1.5 * best.W):
        loss = task.quadratic.value(V) + task.coupling.value(V)
        G = task.quadratic.gradient(V) + task.coupling.dot(V)
        assert composite_gap(loss, V, G, task.coupling, penalty) >= task.objective(V, penalty) - least - 1e-8


@LAWS
@given(seeds, st.booleans())
def test_grams_of_a_working_set_are_parts_of_the_whole(seed, shared):
    task = Task(seed, shared=shared)
    members = task.rng.random(7) < 0.6
    whole = task.design.gram(task.weights)[:, members][:, :, members]
    for form in (task.quadratic, task.by_rows):
        made = sub_grams(form, members, len(whole))
        np.testing.assert_allclose(np.broadcast_to(made, (len(whole), *made.shape[1:])), whole, atol=1e-9)


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("loss", ["gaussian", "poisson"])
def test_from_strength_max_on_everything_vanishes(kind, loss):
    data = make_clustered_tasks(random_state=0, n_tasks=4, n_features=5, clusters=[[0, 1]], family=loss, amplitude=0.3)
    free = {"loss": loss, "loss__noise_variance": 1.0, "features": Linear(scale=False), "tol": 1e-9}
    null = MultiTaskGLM(Independent(0.0), kind(1e9)).set_params(**free).fit(data.X, data.y, tasks=data.tasks)
    assert not null.coef_.any()
    G = np.stack(
        [data.X[data.tasks == t].T @ (null.predict(data.X, tasks=data.tasks) - data.y)[data.tasks == t]
         for t in null.tasks_]
    )  # fmt: skip
    limit = kind(1.0).strength_max(G)
    for factor, empty in ((1.001, True), (0.98, False)):
        model = (
            MultiTaskGLM(Independent(0.0), kind(factor * limit))
            .set_params(**free)
            .fit(data.X, data.y, tasks=data.tasks)
        )
        assert (not model.coef_.any()) == empty


@LAWS
@given(seeds, st.floats(0.15, 1.5))
def test_the_dirty_norm_is_the_cheapest_way_to_part_the_weights(seed, own):
    """A linear program over shared part, own part and their sizes, feature by feature."""
    W = np.random.default_rng(seed).standard_normal((5, 3)) * (np.random.default_rng(seed + 1).random((5, 3)) < 0.8)
    K, eye, none = 5, np.eye(5), np.zeros((5, 1))
    least = 0.0
    for w in W.T:  # unknowns: the largest size t, then b, then |w − b| ≤ z
        rows = np.block(
            [[-np.ones((K, 1)), eye, 0 * eye], [-np.ones((K, 1)), -eye, 0 * eye], [none, -eye, -eye], [none, eye, -eye]]
        )
        limits = np.concatenate([np.zeros(2 * K), -w, w])
        cost = np.concatenate([[1.0], np.zeros(K), np.full(K, own)])
        bounds = [(0, None)] + K * [(None, None)] + K * [(0, None)]
        least += linprog(cost, A_ub=rows, b_ub=limits, bounds=bounds).fun
    assert Dirty(1.0, own).norm(W) == pytest.approx(least, abs=1e-8)
    shared, alone = Dirty(1.0, own).parts(W)
    np.testing.assert_allclose(shared + alone, W, rtol=1e-14, atol=1e-15)  # one subtraction and one addition
    assert np.all((shared != 0).any(axis=0) <= ((W != 0).sum(axis=0) * own >= 1))


def test_the_dirty_model_is_the_lasso_or_one_choice_of_features_at_its_ends():
    data = make_clustered_tasks(random_state=3, n_tasks=4, n_features=6, clusters=[[0, 1]])
    free = {"loss__noise_variance": 1.0, "features": Linear(scale=False), "tol": 1e-10}

    def fit(penalty):
        return MultiTaskGLM(Independent(0.0), penalty).set_params(**free).fit(data.X, data.y, tasks=data.tasks)

    np.testing.assert_allclose(fit(Dirty(80.0, 0.25)).coef_, fit(L1(20.0)).coef_, atol=1e-6)
    assert np.count_nonzero(fit(L1(20.0)).coef_) < 24
    # ℓ1,∞: t_j bounds the sizes of a feature's weights, and a general solver minimises over both.
    X, y = ([part[data.tasks == t] for t in data.task_names] for part in (data.X, data.y))
    X, y = ([v - v.mean(axis=0) for v in part] for part in (X, y))

    def cost(z):
        W = z[:24].reshape(4, 6)
        residuals = [a @ w - b for a, w, b in zip(X, W, y, strict=True)]
        slope = np.concatenate([a.T @ r for a, r in zip(X, residuals, strict=True)])
        return 0.5 * sum(r @ r for r in residuals) + 60.0 * z[24:].sum(), np.concatenate([slope, np.full(6, 60.0)])

    limits = [{"type": "ineq", "fun": lambda z, s=s: (z[24:] - s * z[:24].reshape(4, 6)).ravel()} for s in (1, -1)]
    best = minimize(cost, np.zeros(30), jac=True, constraints=limits, options={"maxiter": 500, "ftol": 1e-12})
    joint = fit(Dirty(60.0, 1.0))
    assert joint.result_.objective == pytest.approx(best.fun, rel=1e-7)
    np.testing.assert_allclose(joint.coef_, best.x[:24].reshape(4, 6), atol=1e-3)


@LAWS
@given(seeds, st.integers(1, 4), st.floats(0.0, 2.0))
def test_cluster_norm_and_its_conjugate_are_a_pair(seed, k, spread):
    """Fenchel–Young, with equality where G is the gradient at W."""
    rng, penalty = np.random.default_rng(seed), ClusterNorm(0.7, k, spread)
    W, G = rng.standard_normal((2, 4, 6))
    assert np.vdot(W, G) <= penalty.value(W) + penalty.conjugate(G) + 1e-12
    near = penalty.prox(W, 1.0)
    pair = penalty.value(near) + penalty.conjugate(W - near)
    assert np.vdot(near, W - near) == pytest.approx(pair, abs=1e-9 * max(1.0, pair))


@LAWS
@given(seeds, st.floats(0.01, 2.0), st.integers(1, 5))
def test_memberships_of_clusters_are_optimal(seed, spread, k):
    rng = np.random.default_rng(seed)
    sigma = np.abs(rng.standard_normal(5)) + 1e-3
    m = memberships(sigma, spread, k)
    assert m.sum() == pytest.approx(k, rel=1e-9)
    assert np.all((m >= 0) & (m <= 1 + 1e-12))
    best = np.sum(sigma**2 / (spread + m))
    for _ in range(20):
        other = rng.dirichlet(np.ones(5)) * k
        if other.max() <= 1:
            assert best <= np.sum(sigma**2 / (spread + other)) * (1 + 1e-9)


def test_cluster_norm_knows_the_trace_norm_and_the_ridge():
    W = np.random.default_rng(0).standard_normal((4, 6))
    assert ClusterNorm(3.0).value(W) == pytest.approx(1.5 * np.linalg.norm(W, "nuc") ** 2)
    assert ClusterNorm(3.0, 4, 0.5).value(W) == pytest.approx(np.sum(W**2))
    assert ClusterNorm(3.0, 4, 0.5).value(W.T[:, :2]) == pytest.approx(1.5 * _fewest(W[:2].T, 4, 0.5))


def _fewest(W, k, spread):
    """Σσ²/(θ + m) with K = 6 tasks of two features: both directions in use take m = 1, two empty ones the rest."""
    return np.sum(W**2) / (1.0 + spread)


def test_shared_x_with_l21_is_the_multi_task_lasso():
    data = make_residual_graph(random_state=0, n_tasks=4, n_features=8, clusters=[[0, 1]])
    n = len(data.X)
    model = MultiTaskGLM(
        Independent(0.0), L21(0.3 * n), loss=Gaussian(noise_variance=1.0), features=Linear(scale=False), tol=1e-10
    )
    reference = MultiTaskLasso(0.3, tol=1e-12, max_iter=100_000).fit(data.X, data.y)
    np.testing.assert_allclose(model.fit(data.X, data.y).coef_, reference.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-6)


def test_elastic_net_is_that_of_every_task():
    data = make_clustered_tasks(random_state=1, n_tasks=3, n_features=6, clusters=[[0, 1]])
    gamma, ridge = 5.0, 7.0
    model = MultiTaskGLM(
        Independent(0.0),
        ElasticNet(gamma, ridge),
        loss=Gaussian(noise_variance=1.0),
        features=Linear(scale=False),
        tol=1e-11,
    )
    model.fit(data.X, data.y, tasks=data.tasks)
    for k, task in enumerate(model.tasks_):
        rows = data.tasks == task
        n = rows.sum()
        reference = SklearnElasticNet(
            (gamma + ridge) / n, l1_ratio=gamma / (gamma + ridge), tol=1e-13, max_iter=100_000
        )
        np.testing.assert_allclose(model.coef_[k], reference.fit(data.X[rows], data.y[rows]).coef_, atol=1e-6)


@pytest.mark.parametrize("kind", [L21, Nuclear])
def test_one_task_turns_joint_selection_into_the_lasso_and_low_rank_into_a_norm(kind):
    data = make_residual_graph(random_state=2, n_tasks=1, n_features=6, clusters=[])
    alpha = 20.0
    model = MultiTaskGLM(
        Independent(0.0), kind(alpha), loss=Gaussian(noise_variance=1.0), features=Linear(scale=False), tol=1e-11
    )
    coef = model.fit(data.X, data.y.ravel()).coef_[0]
    if kind is L21:
        lasso = Lasso(alpha / len(data.X), tol=1e-13).fit(data.X, data.y.ravel())
        np.testing.assert_allclose(coef, lasso.coef_, atol=1e-6)
    else:
        X, y = data.X - data.X.mean(axis=0), data.y.ravel() - data.y.mean()
        np.testing.assert_allclose(X.T @ (y - X @ coef), alpha * coef / np.linalg.norm(coef), atol=1e-3)


@pytest.mark.parametrize("kind", [L21, Nuclear, ElasticNet])
@pytest.mark.parametrize("structure", [Independent(2.0), FixedPrecision(np.diag([1.0, 2, 3, 4])), SparsePrecision(0.3)])
def test_every_structure_goes_with_every_penalty(kind, structure):
    data = make_clustered_tasks(random_state=3, n_tasks=4, n_features=6, clusters=[[0, 1, 2]])
    penalty = kind(3.0) if kind is not ElasticNet else ElasticNet(3.0, 2.0)
    model = MultiTaskGLM(structure, penalty, shared_mean=isinstance(structure, SparsePrecision))
    model.fit(data.X, data.y, tasks=data.tasks)
    values = [record.objective for record in model.history_]
    assert np.all(np.diff(values) <= 1e-8 * abs(values[0]))
    assert model.result_.relative_gap <= 1e-6


@pytest.mark.parametrize("kind", [L21, Nuclear, Dirty])
def test_other_losses_end_at_the_same_point_as_plain_fista(kind):
    data = make_clustered_tasks(
        random_state=4, n_tasks=3, n_features=5, clusters=[[0, 1]], family="poisson", amplitude=0.3
    )
    settings_ = {"loss": "poisson", "tol": 1e-9}
    fits = [
        MultiTaskGLM(Independent(0.5), kind(4.0), solver=solver, **settings_).fit(data.X, data.y, tasks=data.tasks)
        for solver in ("auto", "fista")
    ]
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-8)
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-4)


@pytest.mark.parametrize("kind", [L21, Nuclear])
def test_a_shared_mean_reaches_penalties_that_tie_tasks_together(kind):
    """Noise precisions of 1 leave the weights as they are; the coupling's rank-one part must not get lost."""
    data = make_clustered_tasks(random_state=6, n_tasks=4, n_features=5, clusters=[[0, 1, 2]])
    fits = [
        MultiTaskGLM(
            SparsePrecision(0.3), kind(4.0), shared_mean=0.5, loss=Gaussian(noise_variance=1.0), solver=solver, tol=1e-8
        )
        for solver in ("auto", "fista")
    ]
    values = [fit.fit(data.X, data.y, tasks=data.tasks).objective_ for fit in fits]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-3)


@pytest.mark.parametrize("kind", [L21, Nuclear, Dirty])
def test_units_of_the_targets_do_not_matter(kind):
    data = make_clustered_tasks(random_state=5, n_tasks=4, n_features=6, clusters=[[0, 1, 2]])
    units = {task: 10.0 ** (k - 1) for k, task in enumerate(np.unique(data.tasks))}
    factor = np.array([units[task] for task in data.tasks])
    model = MultiTaskGLM(Independent(0.0), kind(5.0), tol=1e-10)
    plain = clone(model).fit(data.X, data.y, tasks=data.tasks).coef_
    scaled = clone(model).fit(data.X, factor * data.y, tasks=data.tasks).coef_
    np.testing.assert_allclose(scaled / np.array(list(units.values()))[:, None], plain, atol=1e-4)


def test_fast_solvers_need_far_fewer_iterations_than_plain_fista():
    task, free = Task(0, n=60, d=80, K=5), Coupling.diagonal_only(np.zeros(5))
    for kind in (L21, Nuclear):
        penalty = kind(0.2 * kind(1.0).strength_max(task.quadratic.gradient(task.zero)))
        tol = 1e-7 * task.quadratic.value(task.zero)

        def certificate(V, G, penalty=penalty):
            return composite_gap(task.quadratic.value(V), V, G, free, penalty)

        plain = fista(task.quadratic, free, None, task.zero, tol=tol, prox=penalty.prox, gap=certificate, restart=False)
        fast = solve_quadratic(StepProblem.of(task.quadratic, free, penalty), task.zero, tol=tol)
        assert plain.status is fast.status is Status.CONVERGED
        assert fast.n_iter <= plain.n_iter / 2


@pytest.mark.parametrize("penalty", [L1(-1.0), L21(np.nan), Nuclear(np.inf), ElasticNet(1.0, -2.0), Dirty(-1.0)])
def test_strengths_out_of_range_are_refused(penalty):
    with pytest.raises(ParameterError, match="≥ 0"):
        MultiTaskGLM(Independent(1.0), penalty).fit(np.eye(3), np.ones((3, 2)))


# Penalties on single weights: every kernel branch against brute force, reductions and rivals


def entrywise_kinds(rng, shape):
    weights = rng.uniform(0.0, 2.0, shape)
    weights[rng.random(shape) < 0.2] = 0.0
    weights[rng.random(shape) < 0.2] = np.inf
    one = np.ones(len(weights))
    curvatures = np.ones(shape)
    penalties = [AdaptiveL1(0.8, weights), MCP(0.8, 0.4), MCP(0.8, 3.0)]
    return [
        clone(penalty).set_params(positive=positive).entrywise(one, curvatures)
        for penalty in penalties
        for positive in (False, True)
    ]


@LAWS
@given(seeds, st.floats(0.1, 4.0))
def test_the_minimiser_over_one_weight_is_that_of_a_fine_grid(seed, h):
    from mssl.kernels import gram_sweeps

    def minimiser(code, positive, a, t, theta):
        """One visit to one task with one feature: the weight, and what the kernel says that it gained."""
        start, parameters = np.array([[old]]), np.array([[[t]]] if code == ABSOLUTE else [[[t]], [[theta]]])
        row = (np.array([0, 1]), np.array([0]), np.zeros(1), np.zeros(1), 0.0)
        gained = gram_sweeps(
            (np.full((1, 1, 1), h), np.ones(1), np.array([[a]])),
            (row, (code, positive, parameters)),
            *(start, h * start, np.zeros(1), np.array([0]), 1, np.inf),
        )[1]
        return float(start[0, 0]), gained

    rng = np.random.default_rng(seed)
    grid = np.linspace(-6.0, 6.0, 240_001)
    A = h * np.clip(rng.normal(0.0, 2.0, (2, 3)), -5.5, 5.5)
    for penalty in entrywise_kinds(rng, A.shape):
        prox = penalty.prox(A / h, 1.0 / h)
        code, positive, parameters = penalty.kernel
        for k, j in np.ndindex(A.shape):
            t, theta = parameters[0, k, j], parameters[-1, k, j]
            single = EntrywisePenalty(
                np.full((1, len(grid)), t), code, None if code == ABSOLUTE else np.full((1, len(grid)), theta), positive
            )
            costs = 0.5 * h * grid**2 - A[k, j] * grid + single.values(grid[None])[0]
            old = abs(rng.normal()) if np.isfinite(t) else 0.0
            best, gained = minimiser(code, positive, A[k, j], t, theta)
            one = EntrywisePenalty(
                np.full((1, 2), t), code, None if code == ABSOLUTE else np.full((1, 2), theta), positive
            )
            before, cost = (
                0.5 * h * np.array([old, best]) ** 2
                - A[k, j] * np.array([old, best])
                + one.values(np.array([[old, best]]))[0]
            )
            assert cost <= costs.min() + 1e-9
            assert cost >= costs.min() - 1e-6
            assert best == pytest.approx(prox[k, j], abs=1e-9)
            assert gained <= before - cost + 1e-9


@LAWS
@given(
    seeds, st.booleans(), st.sampled_from(["full", "singular", "none"]), st.sampled_from([0.0, 0.7]),
    st.sampled_from([L1(1.0, positive=True), AdaptiveL1(1.0, [1.0, 2, 0.5, 3, np.inf, 0.1, 1]), L1(1.0)])
)  # fmt: skip
def test_bounds_of_entrywise_penalties_hold_at_every_point(seed, shared, coupled, ridge, penalty):
    task = Task(seed, shared=shared, coupled=coupled)
    g = penalty.entrywise(np.ones(3), np.ones((3, 7)))
    coupling = replace(task.coupling, ridge=np.full(3, ridge) if ridge else None)
    for loss in (task.quadratic, task.by_rows):
        bound = WeightBound(coupling, g, loss)
        best = coordinate_descent(StepProblem.of(loss, coupling, g), task.zero, tol=1e-9, max_iter=100_000)
        assert best.status is Status.CONVERGED
        least = StepProblem.of(loss, coupling, g).value(best.W)
        tried = coordinate_descent(StepProblem.of(loss, coupling, g), task.zero, tol=np.inf)
        assert tried.n_iter == 0
        for size in (0.0, 1e-3, 0.1, 1.0):
            W = g.allowed(best.W + size * task.rng.standard_normal(best.W.shape))
            lost = StepProblem.of(loss, coupling, g).value(W) - least
            assert bound(W, loss.gradient(W) + coupling.dot(W)) >= lost - 1e-8
    if ridge and coupled != "full":
        assert bound.curved  # a ridge makes a singular coupling certain


@LAWS
@given(
    seeds, st.booleans(), st.sampled_from([L1(1.0), L1(0.5, positive=True), MCP(1.0), AdaptiveL1(1.0, np.arange(7))])
)
def test_grams_rows_sets_and_supports_end_at_one_point(seed, shared, penalty):
    task = Task(seed, shared=shared, n=40)
    g = penalty.entrywise(np.ones(3), task.quadratic.diagonal)
    coupling = replace(task.coupling, ridge=np.full(3, 0.3))
    losses = [task.quadratic, task.by_rows]
    steps = [
        coordinate_descent(StepProblem.of(loss, coupling, g), task.zero, tol=1e-10, max_iter=50_000) for loss in losses
    ]
    if g.convex:
        steps.append(descend_on_support(StepProblem.of(losses[0], coupling, g), task.zero, tol=1e-10))
        steps.append(descend_on_sets(StepProblem.of(losses[1], coupling, g), task.zero, tol=1e-10, densest=np.inf))
        steps.append(fista(losses[0], coupling, g, task.zero, tol=1e-10, max_iter=50_000))
    for step in steps:
        assert step.status is (Status.CONVERGED if g.convex else Status.STATIONARY)
        np.testing.assert_allclose(step.W, steps[0].W, atol=1e-4)


def single_task(family="gaussian", seed=0, n=60, d=8):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    eta = X @ np.where(np.arange(d) < 3, rng.normal(0, 0.7, d), 0.0)
    draws = {"gaussian": eta + rng.standard_normal(n), "poisson": rng.poisson(np.exp(eta)) * 1.0}
    return X, draws.get(family, (rng.random(n) < 1 / (1 + np.exp(-eta))) * 1.0)


PLAIN = {"loss__noise_variance": 1.0, "features": Linear(scale=False), "tol": 1e-11}


def test_positive_weights_without_strength_are_nonnegative_least_squares():
    X, y = single_task()
    model = MultiTaskGLM(Independent(0.0), L1(positive=True), fit_intercept=False).set_params(**PLAIN).fit(X, y)
    np.testing.assert_allclose(model.coef_[0], nnls(X, y)[0], atol=1e-7)
    assert model.result_.status is Status.CONVERGED


@pytest.mark.parametrize("ridge", [0.0, 5.0])
def test_positive_elastic_nets_are_those_of_scikit_learn(ridge):
    X, y = single_task()
    model = MultiTaskGLM(Independent(0.0), ElasticNet(4.0, ridge, positive=True)).set_params(**PLAIN).fit(X, y)
    total = 4.0 + ridge
    rival = SklearnElasticNet(total / len(X), l1_ratio=4.0 / total, positive=True, tol=1e-14, max_iter=100_000)
    np.testing.assert_allclose(model.coef_[0], rival.fit(X, y).coef_, atol=1e-7)


@pytest.mark.parametrize("solver", ["auto", "fista"])
@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
@pytest.mark.parametrize("ridge", [0.0, 2.0])
def test_positive_weights_of_other_losses_are_those_of_a_bounded_minimiser(family, ridge, solver):
    X, y = single_task(family)
    penalty = ElasticNet(1.5, ridge, positive=True)
    model = MultiTaskGLM(
        Independent(0.0), penalty, loss=family, features=Linear(scale=False), tol=1e-9, solver=solver, max_iter=2000
    ).set_params(loss__noise_variance=1.0)
    model.fit(X, y)

    def cost(theta):
        eta = X @ theta[:-1] + theta[-1]
        loss = np.exp(eta) - y * eta if family == "poisson" else np.logaddexp(0.0, eta) - y * eta
        return loss.sum() + 1.5 * theta[:-1].sum() + 0.5 * ridge * np.sum(theta[:-1] ** 2)

    bounds = [(0.0, None)] * X.shape[1] + [(None, None)]
    rival = minimize(cost, np.zeros(X.shape[1] + 1), bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15})
    np.testing.assert_allclose(model.coef_[0], rival.x[:-1], atol=2e-3)
    found = cost(np.append(model.coef_[0], model.intercept_[0]))
    assert found <= rival.fun + 1e-6
    assert model.coef_.min() >= 0


def test_positive_weights_of_a_classifier():
    X, y = single_task("bernoulli")
    model = MultiTaskClassifier(Independent(1.0), L1(0.5, positive=True)).fit(X, y)
    free = MultiTaskClassifier(Independent(1.0), L1(0.5)).fit(X, y)
    assert model.coef_.min() >= 0 > free.coef_.min()


@pytest.mark.parametrize("loss", ["gaussian", "poisson"])
def test_adaptive_weights_of_one_are_the_l1_norm_exactly(loss):
    data = make_clustered_tasks(random_state=0, n_tasks=4, n_features=6, clusters=[[0, 1]], family=loss, amplitude=0.3)
    fits = [
        MultiTaskGLM(SparsePrecision(0.2), penalty, loss=loss).fit(data.X, data.y, tasks=data.tasks).coef_
        for penalty in (L1(1.5), AdaptiveL1(1.5), AdaptiveL1(1.5, np.ones(6)), AdaptiveL1(1.5, np.ones((4, 6))))
    ]
    for other in (*fits[1:],):
        assert np.array_equal(fits[0], other)
    bent = MultiTaskGLM(SparsePrecision(0.2), MCP(1.5, np.inf), loss=loss).fit(data.X, data.y, tasks=data.tasks)
    assert np.array_equal(fits[0], bent.coef_)
    assert bent.result_.status is Status.CONVERGED
    free = MultiTaskGLM(SparsePrecision(0.2), MCP(0.0), loss=loss).fit(data.X, data.y, tasks=data.tasks)
    none = MultiTaskGLM(SparsePrecision(0.2), L1(0.0), loss=loss).fit(data.X, data.y, tasks=data.tasks)
    assert np.array_equal(free.coef_, none.coef_)


def test_adaptive_weights_are_units_of_the_features():
    X, y = single_task()
    a = np.array([0.5, 1, 2, 4, 0.25, 3, 1, 1])
    model = MultiTaskGLM(Independent(0.0), AdaptiveL1(5.0, a)).set_params(**PLAIN).fit(X, y)
    lasso = Lasso(5.0 / len(X), tol=1e-14, max_iter=100_000).fit(X / a, y)
    np.testing.assert_allclose(model.coef_[0], lasso.coef_ / a, atol=1e-7)


@pytest.mark.parametrize("loss", ["gaussian", "poisson"])
@pytest.mark.parametrize("structure", [Independent(0.0), Independent(1.0)])
def test_weights_can_be_forbidden_and_left_free(loss, structure):
    X, y = single_task(loss)
    a = np.ones(8)
    a[[1, 5]], a[[0, 6]] = np.inf, 0.0
    model = MultiTaskGLM(structure, AdaptiveL1(3.0, a), loss=loss).set_params(**PLAIN | {"tol": 1e-8}).fit(X, y)
    assert not model.coef_[0, [1, 5]].any()
    kept = np.isfinite(a)
    same = (
        MultiTaskGLM(structure, AdaptiveL1(3.0, a[kept]), loss=loss)
        .set_params(**PLAIN | {"tol": 1e-8})
        .fit(X[:, kept], y)
    )
    np.testing.assert_allclose(model.coef_[:, kept], same.coef_, atol=1e-4)
    G = (X - X.mean(axis=0)).T @ (model.predict(X) - y) + (0 if structure.alpha == 0 else 1) * model.coef_[0]
    assert np.abs(G[[0, 6]]).max() < 1e-2 * np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max()


def test_mcp_on_orthogonal_features_is_firm_thresholding():
    n, d = 64, 6
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((n, d)))[0] * np.sqrt(n)
    b = np.array([0.2, 0.9, 1.2, 2.0, 3.1, -5.0])
    y = Q @ b
    model = MultiTaskGLM(Independent(0.0), MCP(1.0 * n, 3.0), fit_intercept=False).set_params(**PLAIN).fit(Q, y)
    firm = np.where(np.abs(b) <= 3, np.sign(b) * np.maximum(np.abs(b) - 1, 0) / (1 - 1 / 3), b)
    np.testing.assert_allclose(model.coef_[0], firm, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (MultiTaskGLM, {"structure": SparsePrecision(0.2)}),
        (MultiTaskGLM, {"structure": SparsePrecision(0.2, on="residual")}),
        (MultiTaskGLM, {"structure": Independent(0.0), "loss": "poisson"}),
        (MultiTaskClassifier, {"structure": Independent(1.0)}),
    ],
)
def test_mcp_ends_at_a_stationary_point_and_says_so(kind, options):
    family = "bernoulli" if kind is MultiTaskClassifier else options.get("loss", "gaussian")
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 6))
    eta = X @ np.array([[1.0, 0.8, 0, 0, 0, 0], [1.0, 0.6, 0, 0, 0, 0], [0.8, 0.7, 0, 0, 0, 0]]).T
    y = {"gaussian": eta + rng.standard_normal(eta.shape), "poisson": rng.poisson(np.exp(0.5 * eta))}.get(family)
    y = (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))) * 1.0 if y is None else y
    models = [kind(penalty=penalty, tol=1e-7).set_params(**options).fit(X, y) for penalty in (MCP(6.0), L1(6.0))]
    assert [model.result_.status for model in models] == [Status.STATIONARY, Status.CONVERGED]
    assert "converged" not in models[0].result_.message
    assert models[0].result_.relative_gap <= 1e-7
    # Large weights are hardly shrunk.
    assert np.abs(models[0].coef_[:, 0]).sum() > np.abs(models[1].coef_[:, 0]).sum()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("penalty", [L1(3.0, positive=True), AdaptiveL1(3.0, [0.2, 1, 5, np.inf])])
def test_entrywise_penalties_on_residuals_meet_their_conditions(shared, penalty):
    data = make_residual_graph(random_state=0, n_tasks=4, n_features=4, clusters=[[0, 1]])
    X = data.X if shared else np.stack([data.X + 0.1 * k * np.roll(data.X, k, axis=1) for k in range(4)], axis=1)
    model = MultiTaskGLM(
        SparsePrecision(0.3, on="residual"),
        penalty,
        loss=Gaussian(noise_variance=1.0),
        features=Linear(scale=False),
        tol=1e-9,
    )
    model.fit(X, data.y)
    assert model.result_.status is Status.CONVERGED
    blocks = [X if shared else X[:, k] for k in range(4)]
    E = np.stack([data.y[:, k] - blocks[k] @ model.coef_[k] - model.intercept_[k] for k in range(4)])
    G = -np.stack([B.T @ (model.precision_ @ E)[k] for k, B in enumerate(blocks)])
    g = penalty.entrywise(np.ones(4), np.ones((4, 4)))
    assert np.abs(G + g.subgradient(model.coef_, G)).max() <= 1e-2
    assert model.coef_.min() >= 0 or not penalty.positive


def test_pooled_weights_take_the_sum_of_the_tasks_penalties():
    data = make_clustered_tasks(random_state=2, n_tasks=3, n_features=5, clusters=[[0, 1]], family="poisson")
    a = np.array([1.0, 2, 0.5, 1, 3])
    pooled = MultiTaskGLM(
        Pooled(1.0), AdaptiveL1(2.0, a, positive=True), loss="poisson", features=Linear(scale=False), tol=1e-10
    )
    pooled.fit(data.X, data.y, tasks=data.tasks)
    assert np.ptp(pooled.coef_, axis=0).max() == 0
    assert pooled.result_.status is Status.CONVERGED
    own = np.unique(data.tasks, return_inverse=True)[1]

    def cost(theta):
        eta = data.X @ theta[:5] + theta[5:][own]
        return np.sum(np.exp(eta) - data.y * eta) + 3 * 2.0 * a @ theta[:5] + 0.5 * np.sum(theta[:5] ** 2)

    bounds = [(0.0, None)] * 5 + [(None, None)] * 3
    rival = minimize(cost, np.zeros(8), bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15, "maxiter": 5000})
    found = cost(np.append(pooled.coef_[0], pooled.intercept_))
    assert found == pytest.approx(rival.fun, rel=1e-7)
    np.testing.assert_allclose(pooled.coef_[0], rival.x[:5], atol=2e-3)
    with pytest.raises(ParameterError, match="pooled"):
        MultiTaskGLM(Pooled(1.0), MCP(1.0)).fit(data.X, data.y, tasks=data.tasks)


@pytest.mark.parametrize("weights", [[1.0, -1.0, 1.0], [[[1.0]]], [np.nan] * 3, np.ones(5)])
def test_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(ParameterError, match="weights is"):
        MultiTaskGLM(Independent(1.0), AdaptiveL1(1.0, weights)).fit(np.eye(3), np.ones((3, 2)))


@pytest.mark.parametrize("concavity", [0.0, -1.0, np.nan, "3"])
def test_concavities_out_of_range_are_refused(concavity):
    with pytest.raises(ParameterError, match="concavity is"):
        MultiTaskGLM(Independent(1.0), MCP(1.0, concavity)).fit(np.eye(3), np.ones((3, 2)))


# A penalty of a user, defined outside of the package


class SparseGroup(Penalty):
    """α [m ‖V‖₁ + (1 − m) Σ_j ‖V_·j‖]: features serve all tasks or none, and single weights vanish too."""

    def __init__(self, alpha=1.0, mix=0.5):
        self.alpha = alpha
        self.mix = mix

    def value(self, W):
        return self.alpha * (self.mix * np.abs(W).sum() + (1 - self.mix) * np.sqrt((W**2).sum(axis=0)).sum())

    def prox(self, W, step):
        t = step * self.alpha
        shrunk = W - np.clip(W, -t * self.mix, t * self.mix)
        return L21(self.alpha * (1 - self.mix)).prox(shrunk, step)

    def dual_norm(self, G):
        # The least r with ‖soft(G_·j, r m)‖ ≤ r (1 − m) for every feature, by halving.
        low, high = 0.0, float(np.abs(G).sum()) + 1e-300
        high /= max(self.mix, 1 - self.mix)
        for _ in range(200):
            r = 0.5 * (low + high)
            left = np.maximum(np.abs(G) - r * self.mix, 0.0)
            feasible = np.all(np.sqrt((left**2).sum(axis=0)) <= r * (1 - self.mix))
            low, high = (low, r) if feasible else (r, high)
        return high


class Unknown(SparseGroup):
    """The same, of which the package knows nothing but value and proximal map."""

    def dual_norm(self, G):
        return None


@pytest.mark.parametrize("loss", ["gaussian", "poisson", "bernoulli"])
@pytest.mark.parametrize("structure", [Independent(0.0), Independent(1.0)])
def test_a_penalty_of_a_user_is_fitted_and_certified(loss, structure):
    family = "binary" if loss == "bernoulli" else loss
    data = make_clustered_tasks(
        random_state=3, n_tasks=4, n_features=6, clusters=[[0, 1]], family=family, amplitude=0.4
    )
    y = np.unique(data.y, return_inverse=True)[1] * 1.0 if loss == "bernoulli" else data.y
    options = {"loss": loss, "loss__noise_variance": 1.0, "features": Linear(scale=False), "tol": 1e-8}
    known, unknown, both = (
        MultiTaskGLM(structure, penalty).set_params(**options).fit(data.X, y, tasks=data.tasks)
        for penalty in (SparseGroup(4.0, 0.4), Unknown(4.0, 0.4), SparseGroup(4.0, 1.0))
    )
    assert known.result_.status is Status.CONVERGED
    certain = structure.alpha > 0
    assert unknown.result_.status is (Status.CONVERGED if certain else Status.STATIONARY)
    np.testing.assert_allclose(unknown.coef_, known.coef_, atol=1e-3)
    lasso = MultiTaskGLM(structure, L1(4.0)).set_params(**options).fit(data.X, y, tasks=data.tasks)
    np.testing.assert_allclose(both.coef_, lasso.coef_, atol=1e-3)
    joint = MultiTaskGLM(structure, SparseGroup(4.0, 0.0)).set_params(**options).fit(data.X, y, tasks=data.tasks)
    groups = MultiTaskGLM(structure, L21(4.0)).set_params(**options).fit(data.X, y, tasks=data.tasks)
    np.testing.assert_allclose(joint.coef_, groups.coef_, atol=1e-3)


@LAWS
@given(seeds, st.floats(0.0, 1.0))
def test_the_users_dual_norm_is_one(seed, mix):
    rng = np.random.default_rng(seed)
    W, G = rng.standard_normal((2, 3, 5))
    penalty = SparseGroup(1.0, mix)
    assert np.vdot(W, G) <= penalty.value(W) * penalty.dual_norm(G) * (1 + 1e-9)


@LAWS
@given(seeds, st.floats(0.0, 1.0), st.floats(0.05, 0.9))
def test_without_a_dual_norm_the_coupling_alone_certifies(seed, mix, share):
    task = Task(seed, d=9)
    alpha = share * SparseGroup(1.0, mix).dual_norm(task.quadratic.linear)
    known, unknown = SparseGroup(alpha, mix), Unknown(alpha, mix)
    best = solve_quadratic(StepProblem.of(task.quadratic, task.coupling, known), task.zero, tol=1e-10, max_iter=100_000)
    least = task.objective(best.W, known)

    def gap(V):
        loss, G = task.quadratic.value(V) + task.coupling.value(V), task.quadratic.gradient(V) + task.coupling.dot(V)
        return composite_gap(loss, V, G, task.coupling, unknown)

    for size in (0.0, 1e-3, 0.1, 1.0):
        V = best.W + size * task.rng.standard_normal(best.W.shape)
        assert gap(V) >= task.objective(V, unknown) - least - 1e-8
    assert gap(best.W) <= 1e-3 * task.quadratic.null_value


def test_positive_weights_on_residuals_are_not_those_of_least_squares(recwarn):
    data = make_residual_graph(random_state=0, n_tasks=4, n_features=4, clusters=[[0, 1]])
    model = MultiTaskGLM(SparsePrecision(0.3, on="residual"), L1(positive=True)).fit(data.X, data.y)
    assert model.coef_.min() >= 0
    assert not any("ordinary least squares" in str(warning.message) for warning in recwarn)
