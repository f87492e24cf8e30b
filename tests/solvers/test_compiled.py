"""The compiled alternation of small problems: the same F, certificate and answer as the general one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import cho_factor, cho_solve

from mssl.data.layouts import read_tasks
from mssl.kernels import joint as _joint_kernels
from mssl.kernels.dense import back_solve, factor, invert, product
from mssl.losses import Gaussian
from mssl.penalties import L1
from mssl.solvers import compiled
from mssl.solvers.alternation import alternate
from mssl.solvers.base import Status
from mssl.solvers.compiled import SmallProblem, applies
from mssl.solvers.fit import Settings, fit_prepared, prepare, start
from mssl.structures import KnownEdges, SparsePrecision


def tasks(K=6, d=5, n=12, *, shared=False, correlation=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1 if shared else K, n, d))
    X += np.sqrt(correlation / (1 - correlation)) * rng.standard_normal((len(X), n, 1))
    centre = rng.standard_normal(d)
    W = np.where(np.arange(K)[:, None] < K // 2, centre, 0.0) + 0.5 * rng.standard_normal((K, d))
    Y = np.einsum("knd,kd->kn", np.broadcast_to(X, (K, n, d)), W) + rng.standard_normal((K, n))
    if shared:
        return read_tasks(X[0], Y.T)
    return read_tasks(X.reshape(K * n, d), Y.ravel(), tasks=np.repeat(np.arange(K), n))


def both(data, structure, gamma, **options):
    """The same fit by the compiled and by the general loop, from one start."""
    prepared = prepare(data, Gaussian(), Settings(**{"tol": 1e-8, "max_iter": 3000, **options}))
    penalty = L1(gamma * prepared.gamma_max())
    problem = prepared.problem(penalty)
    assert applies(problem, structure)
    frame, W = start(prepared, structure, problem)
    limits = {"tol": prepared.settings.tol, "max_iter": 3000, "mean_variance": prepared.mean_variance}
    ours = SmallProblem(problem).alternate(structure, frame, W, structure.initial(frame), **limits)
    general = alternate(problem, structure, frame, W, structure.initial(frame), **limits)
    return problem, structure, ours, general


@settings(deadline=None, max_examples=40)
@given(
    K=st.integers(3, 9),
    d=st.integers(1, 12),
    rows=st.floats(1.2, 4.0),
    gamma=st.sampled_from([0.0, 0.02, 0.2]),
    alpha=st.sampled_from([0.0, 0.1, 0.4]),
    shrinkage=st.sampled_from([0.0, 0.5]),
    mean=st.sampled_from([False, True, 0.3]),
    shared=st.booleans(),
    correlation=st.sampled_from([0.0, 0.9]),
    seed=st.integers(0, 10**6),
)
def test_same_answer_as_the_general_loop(K, d, rows, gamma, alpha, shrinkage, mean, shared, correlation, seed):
    data = tasks(K, d, 3 + int(rows * d), shared=shared, correlation=correlation, seed=seed)
    structure = SparsePrecision(alpha, shrinkage=shrinkage, coupling=2.0)
    problem, structure, ours, general = both(data, structure, gamma, shared_mean=mean)
    assert ours.status is general.status
    if ours.status is Status.CONVERGED:
        # Both are within their own certificates of one stationary value.
        assert ours.objective == pytest.approx(general.objective, rel=3e-7, abs=1e-6)
    # The certificate that the compiled loop reports is the one that the general pieces compute at its point.
    coupling = structure.couple(ours.structure, 0.0 if mean is False else _tau(data, mean))
    step = problem.solve(coupling, ours.W, tol=np.inf, max_iter=1)
    assert step.gap == pytest.approx(ours.history[-1].gap_weights, rel=1e-5, abs=1e-9)
    S = structure.moment(ours.W - ours.mean, ours.frame, coupling.rho)
    again = structure.certify(S, ours.structure, ours.frame)
    assert again.gap == pytest.approx(ours.structure.gap, rel=1e-3, abs=1e-8)
    assert again.value == pytest.approx(ours.structure.value, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(ours.mean, coupling.mean(ours.W), atol=1e-12)


def _tau(data, mean):
    return prepare(data, Gaussian(), Settings(shared_mean=mean)).mean_variance


@pytest.mark.parametrize("gamma", [0.0, 0.05])
@pytest.mark.parametrize("shared", [False, True])
def test_objective_never_rises(gamma, shared):
    *_, ours, _ = both(tasks(shared=shared, n=8), SparsePrecision(0.1), gamma, noise=0.5)
    objectives = np.array([record.objective for record in ours.history])
    assert len(objectives) > 3
    assert np.all(np.diff(objectives) <= 1e-12 * np.abs(objectives[1:]))


def test_forbidden_edges_stay_away():
    structure = SparsePrecision(0.05, edges=KnownEdges(forbidden=[(0, 1)]))
    *_, ours, general = both(tasks(), structure, 0.02, tol=1e-10)
    assert ours.structure.precision[0, 1] == 0 == general.structure.precision[0, 1]
    np.testing.assert_allclose(ours.W, general.W, atol=1e-3)


@pytest.mark.parametrize(("coupling", "mean", "least"), [(1.0, False, 3), (3.0, 0.05, 12)])
def test_a_monitor_sees_every_round_and_does_not_change_the_answer(coupling, mean, least):
    """Not even where rounds are extrapolated from those before: a monitored fit makes one compiled call a round."""
    data, structure = tasks(), SparsePrecision(0.1, coupling=coupling)
    prepared = prepare(data, Gaussian(), Settings(shared_mean=mean, noise=0.5))
    penalty = L1(0.02 * prepared.gamma_max())
    silent = fit_prepared(prepared, structure, penalty)
    seen = []
    watched = fit_prepared(prepared, structure, penalty, monitor=seen.append)
    assert len(silent.history) >= least
    assert [r.iteration for r in seen] == list(range(1, len(silent.history) + 1))
    np.testing.assert_array_equal(watched.W, silent.W)
    objectives = np.array([record.objective for record in silent.history])
    assert np.all(np.diff(objectives) <= 1e-12 * np.abs(objectives[1:]))
    stopped = fit_prepared(prepared, structure, penalty, monitor=lambda record: record.iteration == 2)
    assert len(stopped.history) == 2
    assert stopped.status is Status.MAX_ITER


def test_the_general_loop_takes_over_where_a_step_breaks_down(monkeypatch):
    data, structure = tasks(), SparsePrecision(0.1)
    prepared = prepare(data, Gaussian(), Settings(tol=1e-8))
    penalty = L1(0.02 * prepared.gamma_max())
    expected = fit_prepared(prepared, structure, penalty)
    kernel = _joint_kernels.small_fit

    def breaks_in_round_three(*arguments):
        *head, table = arguments
        rounds = kernel(*head, table[:2])
        return -3 if rounds == 2 else rounds

    monkeypatch.setattr(compiled, "call", lambda function, *a: function(*a) if a[0] else breaks_in_round_three(*a))
    result = fit_prepared(prepared, structure, penalty)
    assert result.status is Status.CONVERGED
    assert [r.iteration for r in result.history] == list(range(1, len(result.history) + 1))
    assert result.objective == pytest.approx(expected.objective, rel=1e-7)


@pytest.mark.parametrize("shared", [False, True])
def test_who_moves_first(shared):
    """The precision where the weights are the best for it already, the weights where a precision is given."""
    prepared, structure = prepare(tasks(shared=shared), Gaussian(), Settings(tol=1e-10)), SparsePrecision(0.1)
    penalty = L1(0.02 * prepared.gamma_max())
    ours = fit_prepared(prepared, structure, penalty)
    given = fit_prepared(prepared, structure, penalty, first=structure.initial(ours.frame))
    assert ours.history[0].edges > 0 == given.history[0].edges
    assert ours.objective == pytest.approx(given.objective, rel=1e-8)


def test_limit_of_rounds():
    prepared = prepare(tasks(), Gaussian(), Settings(tol=1e-12, max_iter=3))
    result = fit_prepared(prepared, SparsePrecision(0.1), L1(0.0))
    assert len(result.history) == 3
    assert result.status is Status.MAX_ITER


def test_what_it_does_not_apply_to():
    prepared = prepare(tasks(), Gaussian(), Settings())
    problem = prepared.problem(L1(0.1))
    assert applies(problem, SparsePrecision(0.1))
    assert not applies(problem, SparsePrecision(0.1, solver="admm"))
    assert not applies(problem, SparsePrecision(0.1, correlation="spearman"))
    assert not applies(replace(problem, solver="fista"), SparsePrecision(0.1))
    assert not applies(prepare(tasks(2), Gaussian(), Settings()).problem(L1(0.1)), SparsePrecision(0.1))


@settings(deadline=None, max_examples=40)
@given(p=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_dense_kernels(p, seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((p, p + 2))
    A = A @ A.T + 0.1 * np.eye(p)
    R, inverse, x = np.zeros((p, p)), np.empty((p, p)), np.empty(p)
    assert factor(A, R) == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-9)
    b = rng.standard_normal(p)
    back_solve(R, b, x)
    np.testing.assert_allclose(x, cho_solve(cho_factor(A), b), rtol=1e-7, atol=1e-9)
    invert(R, inverse)
    np.testing.assert_allclose(inverse, np.linalg.inv(A), rtol=1e-6, atol=1e-8)
    B, out = rng.standard_normal((p, 3)), np.empty((p, 3))
    product(A, B, out)
    np.testing.assert_allclose(out, A @ B, rtol=1e-12, atol=1e-12)
    A[p - 1, p - 1] = -1.0
    assert np.isnan(factor(A, R))


@pytest.mark.parametrize("mean", [False, 0.1])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_more_tasks_than_features(mean, seed):
    """The moment is singular and graph steps are hard: whichever loop ends the fit, it ends at the same value."""
    data = tasks(20, 5, 20, correlation=0.9, seed=seed)
    *_, ours, general = both(data, SparsePrecision(0.5), 0.0, shared_mean=mean, tol=1e-6)
    assert ours.status is general.status is Status.CONVERGED
    assert ours.objective == pytest.approx(general.objective, rel=1e-5)
    objectives = np.array([record.objective for record in ours.history])
    assert np.all(np.diff(objectives) <= 1e-10 * np.abs(objectives[1:]))
