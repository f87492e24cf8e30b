"""One alternation for every size and loss: who moves first, what is taken back, and when it ends."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watching import look_always

from mssl import MSSLClassifier, MSSLRegressor, kernels
from mssl.data.layouts import read_tasks
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import DataError
from mssl.features import Linear
from mssl.losses import Gaussian
from mssl.model.objective import evaluate
from mssl.penalties import L1, L21, Nuclear
from mssl.solvers.alternation import Alternation, Record, verdict
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.fit import Settings, fit_prepared, prepare, start
from mssl.solvers.weights import CoefficientProblem
from mssl.structures import GraphLaplacian, Independent, KnownEdges, MeanRegularized, SparsePrecision


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


def begin(data, structure, gamma=0.0, **options):
    """What an alternation takes, and its limits."""
    prepared = prepare(data, Gaussian(), Settings(**options))
    problem = prepared.problem(L1(gamma * prepared.gamma_max()))
    scale, W = start(prepared, structure, problem)
    return (problem, structure, scale, W, structure.initial(scale)), {"mean_variance": prepared.mean_variance}


def alternate(problem, structure, scale, W, step, *, ready=False, **options):
    """The fit of an alternation with these options."""
    return Alternation(problem, structure, scale, **options).fit(W, step, ready=ready)


def falls(result, rounding=1e-12):
    values = np.array([record.objective for record in result.history])
    return bool(np.all(np.diff(values) <= rounding * np.maximum(1.0, np.abs(values[1:]))))


@settings(deadline=None, max_examples=40)
@given(
    K=st.integers(2, 9),
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
def test_a_fit_is_certified_at_its_own_point(K, d, rows, gamma, alpha, shrinkage, mean, shared, correlation, seed):
    """What the rounds report is what the pieces say at the point that is handed back, computed afresh."""
    data = tasks(K, d, 3 + int(rows * d), shared=shared, correlation=correlation, seed=seed)
    structure = SparsePrecision(alpha, shrinkage=shrinkage, coupling=2.0)
    arguments, more = begin(data, structure, gamma, shared_mean=mean)
    problem, _, scale, _, _ = arguments
    fit = alternate(*arguments, **more, tol=1e-8, max_iter=3000)
    assert falls(fit)
    assert (fit.relative_gap <= 1e-8) == (fit.status is Status.CONVERGED)
    coupling = structure.couple(fit.structure, more["mean_variance"])
    bare = replace(fit.structure, value=np.nan, gap=np.nan, warm=None)
    point = evaluate(problem, structure, scale, fit.W, bare, coupling)
    assert point.objective == pytest.approx(fit.objective, rel=1e-9, abs=1e-9)
    step = problem.solve(coupling, fit.W, tol=np.inf, max_iter=1)
    assert step.gap == pytest.approx(fit.history[-1].gap_weights, rel=1e-5, abs=1e-9)
    np.testing.assert_allclose(fit.mean, coupling.mean(fit.W), atol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.02])
def test_no_number_of_tasks_changes_the_mathematics(gamma):
    """64 tasks and the same with a 65th that nothing relates to them: the others' fit stays what it was."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((65, 12, 3)), rng.standard_normal((65, 12))
    y[:64] += X[:64] @ np.array([1.0, -1.0, 0.5])
    lone = KnownEdges(forbidden=[(k, 64) for k in range(64)])
    fits = []
    for K, edges in ((64, None), (65, lone)):
        names = np.repeat(np.arange(K), 12)
        data = read_tasks(X[:K].reshape(-1, 3), y[:K].ravel(), tasks=names)
        prepared = prepare(data, Gaussian(), Settings(tol=1e-11, noise=1.0, scale_features=False, max_iter=2000))
        structure = SparsePrecision(0.4, variance_floor=2.0, edge_constraints=edges)
        fits.append(fit_prepared(prepared, structure, L1(gamma * 20)))
    np.testing.assert_allclose(fits[1].W[:64], fits[0].W, atol=1e-4)
    np.testing.assert_array_equal(fits[1].structure.precision[:64, :64] != 0, fits[0].structure.precision != 0)


@pytest.mark.parametrize("tol", [1e-6, 1e-9])
@pytest.mark.parametrize("gamma", [0.0, 0.02, 0.2])
@pytest.mark.parametrize(
    ("structure", "shape", "mean"),
    [
        (SparsePrecision(0.3), (6, 5, 12), False),
        (SparsePrecision(0.1, shrinkage=0.5, coupling=2.0), (9, 4, 7), 0.2),
        (SparsePrecision(0.2, edge_constraints=KnownEdges(forbidden=[(0, 1)], free=[(2, 3)])), (7, 30, 40), True),
        (SparsePrecision(0.2), (50, 12, 20), False),
        (SparsePrecision(0.3), (1, 4, 9), False),
        (SparsePrecision(0.0), (6, 5, 12), False),
        (SparsePrecision(0.0, shrinkage=0.2), (6, 9, 12), 0.2),
    ],
    ids=["plain", "shrunk, with a mean", "known edges", "many tasks", "one task", "no price", "no price, a mean"],
)
def test_compiled_rounds_are_the_rounds_of_python(structure, shape, mean, gamma, tol):
    """From the same start, and from the fit for another λ: each round has the same F, gaps and edges."""
    prepared = prepare(tasks(*shape), Gaussian(), Settings(tol=tol, shared_mean=mean, max_iter=60))
    penalty = L1(gamma * prepared.gamma_max(), positive=gamma == 0.2)
    quick, slow = prepared.problem(penalty), prepared.problem(penalty)
    assert quick.compiled is not None
    slow.__dict__["compiled"] = None
    other = SparsePrecision(**(structure.get_params(deep=False) | {"alpha": 0.5}))
    for change in (structure, other):
        warm = None if change is structure else fits[1]  # noqa: F821
        fits = [fit_prepared(prepared, change, penalty, problem=way, warm=warm) for way in (quick, slow)]
        assert fits[0].status is fits[1].status
        table, expected = ([record[:6] for record in fit.history] for fit in fits)
        size = max(1.0, abs(fits[1].objective))
        np.testing.assert_allclose(table, expected, rtol=1e-6, atol=1e-12 * size)
        np.testing.assert_allclose(fits[0].W, fits[1].W, atol=1e-9)
        np.testing.assert_allclose(fits[0].mean, fits[1].mean, atol=1e-9)
        np.testing.assert_allclose(fits[0].scale.variances, fits[1].scale.variances, rtol=1e-9, atol=1e-12)
        step, twin = fits[0].structure, fits[1].structure
        np.testing.assert_allclose(step.precision, twin.precision, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(step.precision @ step.covariance, np.eye(len(twin.precision)), atol=1e-8)
        assert step.value == pytest.approx(twin.value, abs=1e-10 * size)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_python_goes_on_where_compiled_rounds_fail(rounds, monkeypatch):
    run = kernels.FitRounds.run

    def fail(self, n_rounds):
        if self.facts[0] >= rounds:
            return kernels.BROKE, []
        return run(self, min(n_rounds, rounds))

    arguments, more = begin(tasks(n=9), SparsePrecision(0.1), 0.02, noise=0.5)
    expected = alternate(*arguments, **more, tol=1e-8)
    monkeypatch.setattr(kernels.FitRounds, "run", fail)
    fit = alternate(*arguments, **more, tol=1e-8)
    assert falls(fit)
    assert fit.status is Status.CONVERGED
    assert fit.objective == pytest.approx(expected.objective, rel=1e-7)
    assert [record.iteration for record in fit.history] == list(range(1, len(fit.history) + 1))


@pytest.mark.parametrize("slices", [False, True])
def test_a_monitor_sees_every_round_and_may_end_them(slices, monkeypatch):
    if slices:
        look_always(monkeypatch)
    arguments, more = begin(tasks(n=9), SparsePrecision(0.1), 0.02, noise=0.5)
    whole, seen = alternate(*arguments, **more, tol=1e-8), []
    assert len(whole.history) > 4

    def watch(record):
        seen.append(record)
        return len(seen) == 4

    fit = alternate(*arguments, **more, tol=1e-8, monitor=watch)
    assert fit.history == seen
    assert [record[:6] for record in seen] == [record[:6] for record in whole.history[:4]]
    assert fit.status is Status.MAX_ITER
    assert fit.objective == seen[-1].objective


class Careless:
    """A weight problem whose steps go astray when told to: from a given call on, or once."""

    compiled = None

    def __init__(self, problem, bad):
        self.problem, self.bad, self.calls = problem, bad, 0

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def solve(self, coupling, W, *, tol, max_iter):
        self.calls += 1
        step = self.problem.solve(coupling, W, tol=tol, max_iter=max_iter)
        astray = step.W + 0.3 * np.sign(step.W)
        return WeightStep(astray, step.gap, step.n_iter, step.status) if self.calls in self.bad else step


@pytest.mark.parametrize("bad", [{2}, {4}, {3, 7}])
def test_a_round_that_raises_f_is_taken_back(bad):
    """Also where no momentum is to blame: the fit ends where it ends with honest steps."""
    arguments, more = begin(tasks(n=9), SparsePrecision(0.1), 0.02, noise=0.5)
    honest = alternate(*arguments, **more, tol=1e-8)
    problem = Careless(arguments[0], bad)
    fit = alternate(problem, *arguments[1:], **more, tol=1e-8)
    assert problem.calls > max(bad)
    assert falls(fit)
    assert fit.status is Status.CONVERGED
    assert fit.objective == pytest.approx(honest.objective, rel=1e-7)


def test_steps_that_never_lower_f_end_in_a_stall_at_the_last_good_point():
    arguments, more = begin(tasks(n=9), SparsePrecision(0.1), 0.02, noise=0.5)
    problem = Careless(arguments[0], range(3, 1000))
    fit = alternate(problem, *arguments[1:], **more, tol=1e-10)
    assert falls(fit)
    assert fit.status is Status.STALLED
    assert problem.calls <= 6
    assert fit.objective == fit.history[-1].objective


class Helpless:
    """A weight problem whose steps miss their goal; those that have stalled do not move.

    They end with a gap of at least 1; ``before`` is the one with which they say that they began.
    """

    def __init__(self, problem, status, before=1.0):
        self.problem, self.status, self.before, self.limits, self.compiled = problem, status, before, [], None

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def solve(self, coupling, W, *, tol, max_iter):
        if not np.isfinite(tol):
            return WeightStep(W, self.before, 0, Status.CONVERGED)
        self.limits.append(max_iter)
        step = self.problem.solve(coupling, W, tol=tol, max_iter=1)
        stuck = self.status is Status.STALLED and len(self.limits) > 1
        return WeightStep(W if stuck else step.W, max(step.gap, 1.0), 1, self.status)


def test_rounds_that_change_nothing_are_not_repeated():
    arguments, more = begin(tasks(n=9), Pinned(0.1), 0.02, noise=0.5)
    problem = Helpless(arguments[0], Status.STALLED)
    fit = alternate(problem, *arguments[1:], **more, tol=1e-8)
    assert fit.status is Status.STALLED
    assert len(problem.limits) <= 4


def test_weight_steps_that_miss_their_goal_get_shorter_and_end_the_fit():
    arguments, more = begin(tasks(n=9, correlation=0.99), SparsePrecision(0.1), 0.02, noise=0.5)
    problem = Helpless(arguments[0], Status.MAX_ITER)
    fit = alternate(problem, *arguments[1:], **more, tol=1e-12, max_iter=50, max_inner=1000)
    assert falls(fit)
    assert problem.limits[:4] == [1000, 500, 250, 125]
    assert len(fit.history) <= 11
    assert fit.status in (Status.MAX_ITER, Status.STALLED)


def test_weight_steps_that_make_a_part_of_their_way_keep_their_length():
    arguments, more = begin(tasks(n=9, correlation=0.99), SparsePrecision(0.1), 0.02, noise=0.5)
    problem = Helpless(arguments[0], Status.MAX_ITER, before=1e9)
    alternate(problem, *arguments[1:], **more, tol=1e-12, max_iter=50, max_inner=1000)
    assert set(problem.limits) == {1000}
    assert len(problem.limits) > 11


class Pinned(SparsePrecision):
    """A sparse precision that is never updated."""

    def update(self, S, step, scale, tol):
        return step


class CarelessStructure(SparsePrecision):
    """A sparse precision whose second update is far off."""

    def update(self, S, step, scale, tol):
        self.calls_ = getattr(self, "calls_", 0) + 1
        better = super().update(S, step, scale, tol)
        return replace(better, precision=4 * better.precision, covariance=better.covariance / 4) if (
            self.calls_ == 2
        ) else better  # fmt: skip


def test_a_bad_structure_step_is_taken_back():
    arguments, more = begin(tasks(n=9), CarelessStructure(0.1), 0.02, noise=0.5)
    fit = alternate(*arguments, **more, tol=1e-8)
    assert arguments[1].calls_ > 2
    assert falls(fit)
    assert fit.status is Status.CONVERGED


class HelplessStructure(SparsePrecision):
    """A sparse precision that is not improved from the third update on, as where rounding forbids it."""

    def update(self, S, step, scale, tol):
        self.calls_ = getattr(self, "calls_", 0) + 1
        return super().update(S, step, scale, tol) if self.calls_ <= 2 else step


def test_structure_steps_without_progress_are_not_tried_again():
    arguments, more = begin(tasks(n=9), HelplessStructure(0.1), 0.02, noise=0.5)
    fit = alternate(*arguments, **more, tol=1e-8)
    assert arguments[1].calls_ <= 4
    assert falls(fit)
    assert fit.status is Status.STALLED
    assert len(fit.history) <= 20


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(("gain", "gap", "status"), [(1e-5, 1.0, Status.STALLED), (1e-2, 1.0, None), (1e-5, 0.9, None)])
def test_rounds_that_would_take_thousands_to_gain_the_tolerance_end(tol, gain, gap, status):
    """Shares of the tolerance gained in a round, and of the gap left by it: either is progress."""
    history = [Record(i, 50.0 * (1 - gain * tol * i), 0.0, 0.0, 100.0 * gap**i, 0, 0.0) for i in range(1, 12)]
    assert verdict(history, tol) is status


@pytest.mark.parametrize("penalty", [L1(0.0), L1(2.0), L21(3.0), Nuclear(3.0)], ids=str)
@pytest.mark.parametrize("structure", [Independent(1.0), MeanRegularized(2.0), GraphLaplacian(edges=[(0, 1)])], ids=str)
def test_a_given_structure_needs_one_weight_step(structure, penalty):
    prepared = prepare(tasks(), Gaussian(), Settings(tol=1e-8), needs_start=False)
    fit = fit_prepared(prepared, structure, penalty)
    assert fit.status is Status.CONVERGED
    assert len(fit.history) == 1
    assert fit.relative_gap <= 1e-8


def test_a_given_structure_does_not_repeat_a_step_that_got_stuck():
    class Stuck(Careless):
        def solve(self, coupling, W, *, tol, max_iter):
            step = super().solve(coupling, W, tol=np.inf, max_iter=1)
            return replace(step, gap=1.0, status=Status.STALLED)

    prepared = prepare(tasks(), Gaussian(), Settings(), needs_start=False)
    structure = Independent(1.0)
    problem = Stuck(prepared.problem(L1(0.5)), ())
    scale, W = start(prepared, structure, problem)
    fit = alternate(problem, structure, scale, W, structure.initial(scale))
    assert problem.calls == 1
    assert fit.status is Status.STALLED
    assert fit.relative_gap > 1e-6


def test_a_given_structure_says_honestly_that_it_was_stopped():
    prepared = prepare(tasks(d=12, n=10), Gaussian(), Settings(tol=1e-12, max_iter=1, max_inner=2, solver="fista"))
    fit = fit_prepared(prepared, Independent(0.1), L1(0.5))
    assert fit.status is Status.MAX_ITER
    assert len(fit.history) == 1
    assert fit.relative_gap > 1e-12


@pytest.mark.parametrize(("coupling", "mean", "least"), [(1.0, False, 3), (3.0, 0.05, 8)])
def test_a_monitor_sees_every_round_and_does_not_change_the_answer(coupling, mean, least):
    data, structure = tasks(), SparsePrecision(0.1, coupling=coupling)
    prepared = prepare(data, Gaussian(), Settings(shared_mean=mean, noise=0.5))
    penalty = L1(0.02 * prepared.gamma_max())
    silent = fit_prepared(prepared, structure, penalty)
    seen = []
    watched = fit_prepared(prepared, structure, penalty, monitor=seen.append)
    assert len(silent.history) >= least
    assert [r.iteration for r in seen] == list(range(1, len(silent.history) + 1))
    np.testing.assert_array_equal(watched.W, silent.W)
    stopped = fit_prepared(prepared, structure, penalty, monitor=lambda record: record.iteration == 2)
    assert len(stopped.history) == 2
    assert stopped.status is Status.MAX_ITER


@pytest.mark.parametrize("shared", [False, True])
def test_who_moves_first(shared):
    """The precision where the weights are the best for it already, the weights where there are none."""
    prepared, structure = prepare(tasks(shared=shared), Gaussian(), Settings(tol=1e-10)), SparsePrecision(0.1)
    penalty = L1(0.02 * prepared.gamma_max())
    ours = fit_prepared(prepared, structure, penalty)
    given = fit_prepared(prepared, structure, penalty, origin=(ours.scale, np.zeros_like(ours.W)))
    assert ours.history[0].edges > 0 == given.history[0].edges
    assert ours.objective == pytest.approx(given.objective, rel=1e-8)


def test_limit_of_rounds():
    prepared = prepare(tasks(), Gaussian(), Settings(tol=1e-12, max_iter=3))
    result = fit_prepared(prepared, SparsePrecision(0.1), L1(0.0))
    assert len(result.history) == 3
    assert result.status is Status.MAX_ITER


@pytest.mark.parametrize("mean", [False, 0.1])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_more_tasks_than_features(mean, seed):
    """The moment is singular and graph steps are hard."""
    data = tasks(20, 5, 20, correlation=0.9, seed=seed)
    arguments, more = begin(data, SparsePrecision(0.5), shared_mean=mean)
    fit = alternate(*arguments, **more, tol=1e-6)
    assert fit.status is Status.CONVERGED
    assert falls(fit, 1e-10)


def test_a_convex_fit_that_ends_above_its_start_raises():
    given, options = begin(tasks(), Independent(1.0))
    problem, end = given[0], np.full(given[3].shape, 1e6)

    class Wrong:
        """The same problem with a weight step that walks away."""

        def __getattr__(self, name):
            return getattr(problem, name)

        def solve(self, coupling, W, *, tol, max_iter):
            return WeightStep(end, 0.0, 1, Status.CONVERGED)

    assert alternate(*given, **options).status is Status.CONVERGED
    with pytest.raises(DataError, match=r"The objective rose from .* during the fit"):
        alternate(Wrong(), *given[1:], **options)


def test_steps_of_a_graph_are_asked_for_no_more_than_rounding(monkeypatch):
    """Weights held at zero leave graph and mean alone to move, for many rounds."""
    random = np.random.default_rng(0)
    X, tasks = random.integers(-3, 4, (60, 8)).astype(float), np.repeat(np.arange(20), 3)
    y = np.tile([0, 1, 0, 1, 1, 0], 10)
    asked, update = [], SparsePrecision.update
    monkeypatch.setattr(SparsePrecision, "update", lambda *args: asked.append(args[-1]) or update(*args))
    model = MSSLClassifier(0.02, coef_penalty=1e3, shared_mean=6.0, features=Linear(scale=False)).fit(X, y, tasks=tasks)
    assert not model.coef_.any()
    assert len(asked) > 15
    assert min(asked) >= 1e-12 * abs(model.result_.objective)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_that_leave_the_range_of_numbers_are_not_kept(monkeypatch):
    """The last finite point is returned, and the status says what happened."""
    data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], n_features=5, random_state=0)
    plain, calls = CoefficientProblem.solve, []

    def solve(self, coupling, W, **limits):
        calls.append(coupling)
        step = plain(self, coupling, W, **limits)
        return step if len(calls) < 3 else replace(step, W=np.full_like(step.W, 1e200))

    monkeypatch.setattr(CoefficientProblem, "solve", solve)
    model = MSSLRegressor(SparsePrecision("auto", correlation="spearman"), tol=1e-12).fit(
        data.X, data.y, tasks=data.tasks
    )
    assert len(calls) == 3
    assert model.result_.status is Status.DIVERGED
    assert np.abs(model.coef_).max() < 100
    assert np.isfinite(model.result_.objective)
