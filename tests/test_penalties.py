"""Laws of the penalties and of the solvers behind them: proximal maps, certificates, limits, known answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import Lasso, MultiTaskLasso

from mssl import MultiTaskGLM
from mssl.data.design import Design
from mssl.datasets import make_clustered_tasks, make_residual_graph
from mssl.exceptions import ParameterError
from mssl.model.coupling import Coupling
from mssl.penalties import L1, L21, ElasticNet, Nuclear
from mssl.solvers.base import Status
from mssl.solvers.fista import fista
from mssl.solvers.groups import sub_grams
from mssl.solvers.proximal import composite_gap, solve_composite
from mssl.solvers.quadratic import DesignQuadratic, make_quadratic
from mssl.structures import FixedPrecision, Independent, SparsePrecision

LAWS = settings(max_examples=20, deadline=None)
NORMS = [L1, L21, Nuclear]
seeds = st.integers(0, 2**32 - 1)


@LAWS
@given(seeds, st.sampled_from([*NORMS, ElasticNet]), st.floats(0.05, 3.0))
def test_prox_is_the_minimiser_it_claims_to_be(seed, kind, step):
    rng = np.random.default_rng(seed)
    penalty = kind(0.7) if kind is not ElasticNet else ElasticNet(0.7, 0.4)
    W, trial = rng.standard_normal((2, 4, 6))

    def cost(V):
        return 0.5 * np.sum((V - W) ** 2) + step * penalty.value(V)

    best = penalty.prox(W, step)
    for size in (1e-4, 1e-2, 1.0):
        assert cost(best) <= cost(best + size * trial) + 1e-12
    assert penalty.kkt(best, (best - W) / step) <= 1e-9


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
        self.by_rows = DesignQuadratic(self.design, self.weights, y)
        A = rng.standard_normal((K, K if coupled == "full" else 1))
        precision = np.zeros((K, K)) if coupled == "none" else A @ A.T + (0.1 * np.eye(K) if coupled == "full" else 0)
        inverse = np.linalg.inv(precision) if coupled == "full" else None
        self.coupling = Coupling.from_precision(precision, 1.0, inverse)
        self.zero = np.zeros((K, d))

    def objective(self, V, penalty):
        return self.quadratic.value(V) + self.coupling.value(V) + penalty.value(V)


@LAWS
@given(
    seeds, st.sampled_from([L21, Nuclear]), st.booleans(), st.sampled_from(["full", "singular", "none"]),
    st.floats(0.02, 0.9), st.sampled_from([5, 12, 30])
)  # fmt: skip
def test_all_solvers_agree_and_the_certificate_bounds(seed, kind, shared, coupled, share, d):
    task = Task(seed, shared=shared, coupled=coupled, d=d)
    penalty = kind(share * kind(1.0).strength_max(task.quadratic.gradient(task.zero)))
    best = solve_composite(task.quadratic, task.coupling, penalty, task.zero, tol=1e-9, max_iter=100_000)
    assert best.status is Status.CONVERGED
    least = task.objective(best.W, penalty)
    for other in (
        solve_composite(task.by_rows, task.coupling, penalty, task.zero, tol=1e-9, max_iter=100_000),
        solve_composite(task.quadratic, task.coupling, penalty, task.zero, solver="fista", tol=1e-9, max_iter=100_000),
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
        made = sub_grams(form, members)
        np.testing.assert_allclose(np.broadcast_to(made, (len(whole), *made.shape[1:])), whole, atol=1e-9)


@pytest.mark.parametrize("kind", [L1, L21, Nuclear])
@pytest.mark.parametrize("loss", ["gaussian", "poisson"])
def test_from_strength_max_on_everything_vanishes(kind, loss):
    data = make_clustered_tasks(random_state=0, n_tasks=4, n_features=5, clusters=[[0, 1]], family=loss, amplitude=0.3)
    free = {"loss": loss, "noise": 1.0, "scale_features": False, "tol": 1e-9}
    null = MultiTaskGLM(Independent(0.0), kind(1e9), **free).fit(data.X, data.y, tasks=data.tasks)
    assert not null.coef_.any()
    G = np.stack(
        [data.X[data.tasks == t].T @ (null.predict(data.X, tasks=data.tasks) - data.y)[data.tasks == t]
         for t in null.tasks_]
    )  # fmt: skip
    limit = kind(1.0).strength_max(G)
    for factor, empty in ((1.001, True), (0.98, False)):
        model = MultiTaskGLM(Independent(0.0), kind(factor * limit), **free).fit(data.X, data.y, tasks=data.tasks)
        assert (not model.coef_.any()) == empty


def test_shared_x_with_l21_is_the_multi_task_lasso():
    data = make_residual_graph(random_state=0, n_tasks=4, n_features=8, clusters=[[0, 1]])
    n = len(data.X)
    model = MultiTaskGLM(Independent(0.0), L21(0.3 * n), noise=1.0, scale_features=False, tol=1e-10)
    reference = MultiTaskLasso(0.3, tol=1e-12, max_iter=100_000).fit(data.X, data.y)
    np.testing.assert_allclose(model.fit(data.X, data.y).coef_, reference.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-6)


def test_elastic_net_is_that_of_every_task():
    data = make_clustered_tasks(random_state=1, n_tasks=3, n_features=6, clusters=[[0, 1]])
    gamma, ridge = 5.0, 7.0
    model = MultiTaskGLM(Independent(0.0), ElasticNet(gamma, ridge), noise=1.0, scale_features=False, tol=1e-11)
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
    model = MultiTaskGLM(Independent(0.0), kind(alpha), noise=1.0, scale_features=False, tol=1e-11)
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


@pytest.mark.parametrize("kind", [L21, Nuclear])
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
        fast = solve_composite(task.quadratic, free, penalty, task.zero, tol=tol)
        assert plain.status is fast.status is Status.CONVERGED
        assert fast.n_iter <= plain.n_iter / 2


@pytest.mark.parametrize("penalty", [L1(-1.0), L21(np.nan), Nuclear(np.inf), ElasticNet(1.0, -2.0)])
def test_strengths_out_of_range_are_refused(penalty):
    with pytest.raises(ParameterError, match="≥ 0"):
        MultiTaskGLM(Independent(1.0), penalty).fit(np.eye(3), np.ones((3, 2)))
