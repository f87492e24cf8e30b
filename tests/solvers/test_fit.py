"""Laws of p-MSSL: reductions to known estimators, invariances, descent, certificates, limits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge

from mssl import MSSLClassifier, MSSLRegressor, MultiTaskGLM
from mssl.data.layouts import read_tasks
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import DataError, ParameterError
from mssl.features import Linear
from mssl.losses import Gaussian
from mssl.model.objective import mean_share, paper_scale
from mssl.paper import PaperMSSL
from mssl.penalties import L1
from mssl.solvers import alternation as alternating
from mssl.solvers.alternation import FitResult
from mssl.solvers.base import Status
from mssl.solvers.fit import Prepared, Settings, fit_prepared, prepare, start
from mssl.structures import FixedPrecision, Independent, KnownEdges, SparsePrecision, TaskCovariance
from mssl.structures import sparse as sparse_precision
from mssl.structures.base import StructureStep

PLAIN = {"loss__noise_variance": 1.0, "features": Linear(scale=False)}


def problem(
    seed: int = 0, sizes: tuple[int, ...] = (25, 30, 18), d: int = 5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    centre = rng.normal(size=d)
    W = centre + 0.5 * rng.normal(size=(len(sizes), d))
    X = rng.normal(size=(len(tasks), d)) @ (np.eye(d) + 0.3) + 2.0
    return X, np.einsum("nd,nd->n", X, W[tasks]) + rng.normal(size=len(tasks)) + tasks, tasks


# --- reductions -------------------------------------------------------------------------------------------------


def test_one_task_without_penalty_is_ridge() -> None:
    X, y, _ = problem(sizes=(40,))
    ours = MultiTaskGLM(Independent(3.0), tol=1e-12).set_params(**PLAIN).fit(X, y)
    theirs = Ridge(alpha=3.0).fit(X, y)
    np.testing.assert_allclose(ours.coef_[0], theirs.coef_, rtol=1e-6)
    np.testing.assert_allclose(ours.intercept_[0], theirs.intercept_, rtol=1e-6)


@pytest.mark.parametrize("solver", ["coordinate", "fista"])
def test_one_task_with_l1_alone_is_the_lasso(solver: str) -> None:
    X, y, _ = problem(sizes=(40,))
    gamma = 20.0
    ours = MultiTaskGLM(Independent(0.0), L1(gamma), solver=solver, tol=1e-12).set_params(**PLAIN).fit(X, y)
    theirs = Lasso(alpha=gamma / len(y), tol=1e-12).fit(X, y)
    np.testing.assert_allclose(ours.coef_[0], theirs.coef_, atol=1e-5)


def test_independent_tasks_are_elastic_nets() -> None:
    X, y, tasks = problem()
    ours = MultiTaskGLM(Independent(2.0), L1(5.0), tol=1e-12).set_params(**PLAIN).fit(X, y, tasks=tasks)
    for k in range(3):
        n = np.sum(tasks == k)
        net = ElasticNet(alpha=7.0 / n, l1_ratio=5.0 / 7.0, tol=1e-12).fit(X[tasks == k], y[tasks == k])
        np.testing.assert_allclose(ours.coef_[k], net.coef_, atol=1e-6)
        np.testing.assert_allclose(ours.intercept_[k], net.intercept_, atol=1e-6)


def test_fixed_precision_solves_its_normal_equations() -> None:
    X, y, tasks = problem()
    Omega = np.array([[2.0, -1.0, 0.0], [-1.0, 2.5, -0.5], [0.0, -0.5, 1.0]])
    model = MultiTaskGLM(FixedPrecision(Omega), tol=1e-12).set_params(**PLAIN).fit(X, y, tasks=tasks)
    d = X.shape[1]
    centred = [X[tasks == k] - X[tasks == k].mean(0) for k in range(3)]
    H = np.kron(Omega, np.eye(d))
    for k, Xk in enumerate(centred):
        H[k * d : (k + 1) * d, k * d : (k + 1) * d] += Xk.T @ Xk
    q = np.concatenate([Xk.T @ y[tasks == k] for k, Xk in enumerate(centred)])
    np.testing.assert_allclose(model.coef_.ravel(), np.linalg.solve(H, q), atol=1e-6)


@pytest.mark.parametrize("solver", ["auto", "coordinate", "cg", "fista"])
def test_every_solver_finds_the_same_fit(solver: str) -> None:
    X, y, tasks = problem()
    reference = MSSLRegressor(0.2, tol=1e-11).fit(X, y, tasks=tasks)
    model = MSSLRegressor(0.2, solver=solver, tol=1e-10).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-4)
    np.testing.assert_allclose(model.precision_, reference.precision_, rtol=2e-3, atol=1e-4)


def test_graph_solvers_agree() -> None:
    data = make_clustered_tasks(random_state=1)
    fits = [
        MSSLRegressor(SparsePrecision(0.4, solver=s), tol=1e-9, shared_mean=False).fit(data.X, data.y, tasks=data.tasks)
        for s in ("bcd", "admm")
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-4)
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-6)


def test_alternating_directions_next_to_a_singular_graph_leave_the_rest_to_descent(monkeypatch) -> None:
    """Three features, seven tasks, a weak penalty: alternating directions alone take a thousand iterations a step."""
    clusters, sizes = ((0, 1, 2), (3, 4, 5)), {"n_tasks": 7, "n_features": 3, "n_nonzero": 3}
    data = make_clustered_tasks(clusters=clusters, **sizes, random_state=1)
    made, solved = [], sparse_precision.solve
    monkeypatch.setattr(
        sparse_precision, "solve", lambda *args, **options: made.append(solved(*args, **options)) or made[-1]
    )
    settings = {"graph_penalty": SparsePrecision(0.01, variance_floor=0.01), "shared_mean": False, "tol": 1e-7}
    fits = [
        MSSLRegressor(**settings).set_params(graph_penalty__solver=s).fit(data.X, data.y, tasks=data.tasks)
        for s in ("bcd", "admm")
    ]
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-6)
    steps = [step.n_iter for step in made[-fits[1].n_iter_ :]]
    assert max(steps) < 400


# --- invariances ------------------------------------------------------------------------------------------------


def test_permuting_tasks_permutes_the_answer() -> None:
    X, y, tasks = problem()
    names = np.array(["a", "b", "c"])
    first = MSSLRegressor(0.1, tol=1e-11).fit(X, y, tasks=names[tasks])
    other = np.array(["c", "a", "b"])
    second = MSSLRegressor(0.1, tol=1e-11).fit(X, y, tasks=other[tasks])
    place = [list(second.tasks_).index(other[k]) for k in range(3)]
    np.testing.assert_allclose(second.coef_[place], first.coef_, atol=1e-5)
    np.testing.assert_allclose(second.precision_[np.ix_(place, place)], first.precision_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("loss", ["gaussian", "gamma", "poisson"])
@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_tasks_does_not_change_f(loss: str, seed: int) -> None:
    """Also with one to four rows a task, where little is known of noise and dispersion."""
    random = np.random.default_rng(seed)
    K, d = 6, int(random.integers(2, 9))
    tasks = np.repeat(np.arange(K), random.integers(1, 5 if seed % 2 else 30, K))
    X = random.standard_normal((len(tasks), d)) + 10.0 ** random.uniform(0, 4)
    eta = (X - X.mean(axis=0)) @ random.standard_normal(d) / d
    y = {"gaussian": eta, "gamma": np.exp(eta) + 0.1, "poisson": random.poisson(np.exp(eta))}[loss]
    y = y + (random.standard_normal(len(eta)) if loss == "gaussian" else 0)
    values = []
    for names in (np.arange(K), random.permutation(K)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            result = MSSLRegressor(0.1, loss=loss, tol=1e-8, max_iter=1000).fit(X, y, tasks=names[tasks]).result_
        values.append(result.objective)
        assert result.status is Status.CONVERGED
    assert abs(values[1] - values[0]) <= 1e-7 * max(1.0, abs(values[0]))


def test_units_of_a_target_do_not_matter() -> None:
    data = make_clustered_tasks(random_state=3, n_tasks=6, clusters=((0, 1, 2), (3, 4)), n_features=10, n_samples=40)
    factor = np.array([1.0, 1000.0, 1e-4, 3.0, 1.0, 70.0])
    index = np.unique(data.tasks, return_inverse=True)[1]
    fits = [
        MSSLRegressor(0.2, 0.5, shared_mean=False, tol=1e-12).fit(data.X, y, tasks=data.tasks)
        for y in (data.y, data.y * factor[index])
    ]
    np.testing.assert_allclose(fits[1].coef_ / factor[:, None], fits[0].coef_, atol=1e-5)
    np.testing.assert_allclose(fits[1].partial_correlation_, fits[0].partial_correlation_, atol=1e-5)
    np.testing.assert_allclose(fits[1].noise_variance_ / factor**2, fits[0].noise_variance_, rtol=1e-9)


def test_units_of_a_feature_do_not_matter() -> None:
    X, y, tasks = problem()
    factor = np.array([1.0, 1e5, 1e-7, 3.0, 1e150])
    first = MSSLRegressor(0.1, 0.5).fit(X, y, tasks=tasks)
    second = MSSLRegressor(0.1, 0.5).fit(X * factor, y, tasks=tasks)
    np.testing.assert_allclose(second.coef_ * factor, first.coef_, atol=1e-6)


@pytest.mark.parametrize("size", [1e75, 1e-75, 1e77, 1e-77, 1e100, 1e-100, 1e200, 1e-200])
def test_unscaled_features_of_any_size_fit_exactly_or_are_refused(size: float) -> None:
    rng = np.random.default_rng(0)
    X, noise = rng.uniform(-1, 1, size=(40, 3)), rng.standard_normal((40, 2))
    y = X @ rng.standard_normal((3, 2)) + 0.1 * noise
    scaled = MSSLRegressor().fit(size * X, y)
    np.testing.assert_allclose(size * scaled.coef_, MSSLRegressor().fit(X, y).coef_, atol=1e-6)
    if 1e-76 < size < 1e76:
        plain = MultiTaskGLM(Independent(1.0), features=Linear(scale=False)).fit(X, y)
        large = MultiTaskGLM(Independent(size**2), features=Linear(scale=False)).fit(size * X, y)
        np.testing.assert_allclose(size * large.coef_, plain.coef_, rtol=1e-9)
        return
    for model in (
        MSSLRegressor(features=Linear(scale=False)),
        MSSLRegressor(features=Linear(scale=False), relation="residual", coef_penalty=0.1),
        PaperMSSL(),
        MultiTaskGLM(Independent(1.0), features=Linear(scale=False)),
        MultiTaskGLM(Independent(1.0), loss="poisson", features=Linear(scale=False)),
        MSSLClassifier(features=Linear(scale=False)),
    ):
        targets = y > 0 if isinstance(model, MSSLClassifier) else np.round(np.abs(y))
        for features in (size * X, sparse.csr_array(size * X)):
            if sparse.issparse(features) and getattr(model, "relation", "coef") == "residual":
                continue  # which take dense features only
            with pytest.raises(DataError, match="Use features='linear', or give the feature in other"):
                model.fit(features[:20], targets[:20])


def test_a_row_given_twice_is_a_row_of_weight_two() -> None:
    X, y, tasks = problem()
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 4, len(y))
    counts[[0, 30, 60]] = 1
    weighted = MSSLRegressor(0.1, 0.3).fit(X, y, tasks=tasks, sample_weight=counts)
    repeated = MSSLRegressor(0.1, 0.3).fit(
        *(np.repeat(a, counts, axis=0) for a in (X, y)), tasks=np.repeat(tasks, counts)
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)
    np.testing.assert_allclose(weighted.precision_, repeated.precision_, rtol=1e-4, atol=1e-5)


def test_identical_tasks_get_identical_weights() -> None:
    X, y, _ = problem(sizes=(30,))
    model = MSSLRegressor(0.05, tol=1e-12).fit(np.tile(X, (4, 1)), np.tile(y, 4), tasks=np.repeat(range(4), 30))
    np.testing.assert_allclose(model.coef_, np.broadcast_to(model.coef_[0], model.coef_.shape), atol=1e-4)
    assert model.graph_.n_edges == 6


def test_shifting_features_moves_intercepts_only() -> None:
    X, y, tasks = problem()
    first, second = (MSSLRegressor(0.1).fit(A, y, tasks=tasks) for A in (X, X + 1000.0))
    np.testing.assert_allclose(second.coef_, first.coef_, atol=1e-7)
    np.testing.assert_allclose(second.predict(X + 1000.0, tasks=tasks), first.predict(X, tasks=tasks), atol=1e-5)


# --- limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared_mean", [False, 0.5])
@pytest.mark.parametrize("coef_penalty", [0.0, 3.0])
def test_from_lambda_max_on_the_graph_is_empty(shared_mean: float, coef_penalty: float) -> None:
    data = make_clustered_tasks(random_state=2)
    model = MSSLRegressor(0.3, coef_penalty, shared_mean=shared_mean)
    limit = model.limits(data.X, data.y, tasks=data.tasks).graph_penalty
    assert 0 < limit <= 1 + 1e-9
    above = model.set_params(graph_penalty=limit * 1.001).fit(data.X, data.y, tasks=data.tasks)
    assert above.graph_.n_edges == 0
    below = model.set_params(graph_penalty=limit * 0.98).fit(data.X, data.y, tasks=data.tasks)
    assert below.graph_.n_edges > 0


def test_from_gamma_max_on_all_weights_vanish() -> None:
    X, y, tasks = problem()
    limit = MSSLRegressor().limits(X, y, tasks=tasks).coef_penalty
    for graph_penalty in (0.0, 0.5):
        above = MSSLRegressor(graph_penalty, limit * 1.0001).fit(X, y, tasks=tasks)
        assert not np.any(above.coef_)
    assert np.any(MSSLRegressor(0.5, limit * 0.95).fit(X, y, tasks=tasks).coef_)


def test_a_strong_coupling_with_a_mean_pools() -> None:
    X, y, tasks = problem()
    model = MSSLRegressor(
        1.0,
        prior_strength=1e7,
        shared_mean=1e6,
        loss=Gaussian(noise_variance=1.0),
        features=Linear(scale=False),
        tol=1e-8,
    ).fit(X, y, tasks=tasks)
    dummies = (tasks[:, None] == np.arange(3)).astype(float)
    pooled = LinearRegression(fit_intercept=False).fit(np.c_[X, dummies], y).coef_
    np.testing.assert_allclose(model.coef_, np.broadcast_to(pooled[:5], (3, 5)), atol=1e-3)
    np.testing.assert_allclose(model.intercept_, pooled[5:], atol=1e-2)


# --- objective, descent and certificates ------------------------------------------------------------------------


def literal_objective(fit: object, prepared: object, structure: SparsePrecision, penalty: L1) -> float:
    """F computed from its definition, with dense algebra and none of the solvers' shortcuts."""
    W, Omega, frame = fit.W, fit.structure.precision, fit.scale  # type: ignore[attr-defined]
    s = 1 / prepared.noise  # type: ignore[attr-defined]
    m, tau = fit.mean, prepared.mean_variance  # type: ignore[attr-defined]
    loss = float(s @ prepared.base.task_values(W))  # type: ignore[attr-defined]
    Q = W - m
    eta, nu = structure.coupling, structure.shrinkage * frame.n_rows
    c = frame.n_rows + nu
    S = (Q @ Q.T + nu * np.diag(frame.variances)) / c
    off = np.abs(Omega) * structure.edge_scales(frame)
    np.fill_diagonal(off, 0.0)
    bracket = np.trace(S @ Omega) - np.linalg.slogdet(Omega)[1] + structure.alpha * off.sum()
    bracket += structure.floors(frame) @ Omega.diagonal()
    mean = 0.0
    if tau > 0:
        mean = m @ m / (2 * tau) + 0.5 * frame.n_rows * np.log1p(tau * eta * Omega.sum())
    return loss + 0.5 * c * eta * bracket + penalty.alpha * float(np.sqrt(s) @ np.abs(W).sum(axis=1)) + mean


@pytest.mark.parametrize("mean", [False, 0.4])
@pytest.mark.parametrize(("gamma", "eta", "shrinkage"), [(0.0, 1.0, 0.0), (2.0, 0.5, 0.0), (1.0, 3.0, 0.0)])
def test_the_reported_objective_is_f(mean: float, gamma: float, eta: float, shrinkage: float) -> None:
    X, y, tasks = problem()
    prepared = prepare(read_tasks(X, y, tasks=tasks), Gaussian(), Settings(shared_mean=mean))
    structure, penalty = SparsePrecision(0.2, coupling=eta, shrinkage=shrinkage), L1(gamma)
    fit = fit_prepared(prepared, structure, penalty)
    assert fit.objective == pytest.approx(literal_objective(fit, prepared, structure, penalty), rel=1e-10)


def certified_gap(fit: FitResult, prepared: Prepared, structure: SparsePrecision, weights: Any, mean: float) -> float:
    """The joint certificate of a fit, computed from its point alone."""
    coupling = structure.couple(fit.structure, mean)
    S = structure.moment(fit.W - coupling.mean(fit.W), fit.scale, coupling.rho)
    bare = StructureStep(fit.structure.precision, fit.structure.covariance)
    step = weights.step(coupling)
    return step.certificate(fit.W, step.gradient(fit.W)) + structure.certify(S, bare, fit.scale).gap


@given(
    st.integers(0, 10**6),
    st.floats(0.01, 0.9),
    st.floats(0.0, 8.0),
    st.sampled_from([0.5, 1.0, 4.0]),
    st.sampled_from([False, "auto", 0.3]),
    st.sampled_from([0.0, 0.5]),
)
def test_f_never_rises_and_every_fit_is_certified_or_says_so(
    seed: int, lam: float, gamma: float, eta: float, mean: object, shrinkage: float
) -> None:
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(1, 12, rng.integers(1, 6)))
    X, y, tasks = problem(seed, sizes, int(rng.integers(1, 7)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = MSSLRegressor(
            SparsePrecision(lam, shrinkage=shrinkage), gamma, prior_strength=eta, shared_mean=mean, tol=1e-5
        ).fit(X, y, tasks=tasks)
    values = [record.objective for record in model.history_]
    size = max(1.0, *np.abs(values))
    assert np.all(np.diff(values) <= 1e-9 * size)
    told = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert len(told) == len(caught)
    assert (model.result_.relative_gap <= 1e-5) == (not told)
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.linalg.eigvalsh(model.precision_) > 0)


@pytest.mark.parametrize("mean", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.0, 0.5, 30.0])
def test_momentum_of_any_size_descends_to_a_certified_point(
    share: float, mean: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, tasks = problem(sizes=(9,) * 12, d=8)
    prepared = prepare(read_tasks(X, y, tasks=tasks), Gaussian(), Settings(shared_mean=mean))
    structure, weights = SparsePrecision(0.02), prepared.problem(L1(1.0))
    frame, W = start(prepared, structure, weights)
    begin, step = (weights, structure, frame), structure.initial(frame)
    monkeypatch.setattr(alternating, "momentum_share", lambda _: share)
    fit = alternating.Alternation(*begin, mean_variance=mean, tol=1e-8, max_iter=500).fit(W, step)
    values = [record.objective for record in fit.history]
    assert fit.status is Status.CONVERGED
    assert [record.iteration for record in fit.history] == list(range(1, len(values) + 1))
    assert np.all(np.diff(values) <= 1e-13 * abs(values[-1]))
    gap = certified_gap(fit, prepared, structure, weights, mean)
    assert gap <= 1e-8 * max(1.0, abs(fit.objective)) * (1 + 1e-6)


@pytest.mark.parametrize("gamma", [0.0, 4.0])
def test_the_certificate_bounds_what_a_block_can_still_gain(gamma: float) -> None:
    X, y, tasks = problem()
    prepared = prepare(read_tasks(X, y, tasks=tasks), Gaussian(), Settings(shared_mean=False))
    structure, penalty = SparsePrecision(0.2), L1(gamma)
    weights = prepared.problem(penalty)
    fit = fit_prepared(prepared, structure, penalty)
    coupling = structure.couple(fit.structure)
    exact = weights.solve(coupling, fit.W, tol=1e-13, max_iter=100000).W
    best = weights.value(exact) + coupling.value(exact)
    rng = np.random.default_rng(0)
    for scale in (1e-6, 1e-3, 1e-1):
        W = exact + scale * rng.normal(size=exact.shape) * (exact != 0)
        step = weights.step(coupling)
        gap = step.certificate(W, step.gradient(W))
        lost = weights.value(W) + coupling.value(W) - best
        assert lost <= gap * (1 + 1e-6) + 1e-10
        S = structure.moment(W, fit.scale)
        certified = structure.certify(S, fit.structure, fit.scale)
        optimum = structure.update(S, certified, fit.scale, 1e-11)
        assert certified.value - optimum.value <= certified.gap * (1 + 1e-6) + 1e-8


def test_fits_do_not_depend_on_a_warm_start() -> None:
    X, y, tasks = problem()
    model = MSSLRegressor(0.5, warm_start=True, tol=1e-10).fit(X, y, tasks=tasks)
    again = model.set_params(graph_penalty=0.1).fit(X, y, tasks=tasks)
    cold = MSSLRegressor(0.1, tol=1e-10).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(again.coef_, cold.coef_, atol=1e-4)
    assert model.fit(X, y, tasks=tasks).n_iter_ == 1


# --- the paper's own formulation --------------------------------------------------------------------------------


def paper_objective(X: np.ndarray, y: np.ndarray, tasks: np.ndarray, model: MSSLRegressor) -> float:
    lam, gamma = model.get_params()["graph_penalty__alpha"], model.coef_penalty
    W, Omega = model.coef_.T, model.precision_
    K = len(Omega)
    rss = np.sum((y - model.predict(X, tasks=tasks)) ** 2)
    return (
        0.5 * rss - K / 2 * np.linalg.slogdet(Omega)[1] + np.trace(W @ Omega @ W.T)
        + lam * np.abs(Omega).sum() + gamma * np.abs(W).sum()
    )  # fmt: skip


@pytest.mark.parametrize(("lam", "gamma"), [(0.5, 0.1), (5.0, 1.0), (0.05, 2.0)])
def test_the_papers_objective_is_reached_as_printed(lam: float, gamma: float) -> None:
    data = make_clustered_tasks(random_state=0, n_tasks=6, clusters=((0, 1, 2), (3, 4)), n_features=8, n_samples=25)
    args = {"tol": 1e-9, "max_iter": 2000}
    fast = PaperMSSL(lam, gamma, **args).fit(data.X, data.y, tasks=data.tasks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the reference may well stop short of so small a gap
        slow = PaperMSSL(SparsePrecision(lam, solver="admm"), gamma, solver="fista", **args).fit(
            data.X, data.y, tasks=data.tasks
        )
    ours, theirs = (paper_objective(data.X, data.y, data.tasks, m) for m in (fast, slow))
    assert ours <= theirs + 1e-4 * abs(theirs)
    # The literal objective cannot fall along any single block at the end.
    rng = np.random.default_rng(0)
    for _ in range(20):
        moved = PaperMSSL(lam, gamma)
        moved.__dict__.update(fast.__dict__)
        moved.coef_ = fast.coef_ * (1 + 1e-3 * rng.normal(size=fast.coef_.shape))
        assert paper_objective(data.X, data.y, data.tasks, moved) >= ours - 1e-6 * abs(ours)


def test_the_dictionary_to_the_paper() -> None:
    K, d, n = 4, 7, 20
    regression, glm = paper_scale(K, d), paper_scale(K, d, "glm")
    residual = paper_scale(K, d, residual_rows=n)
    assert (regression.coupling, regression.precision) == (K / d, 2 * d / K)
    assert glm.graph_penalty == 2 / d
    assert glm.precision == d / K
    assert (residual.residual_loss, residual.graph_penalty) == (2 * n / K, 1 / n)


def test_the_means_share_of_f_is_zero_without_a_mean() -> None:
    assert mean_share(np.ones(3), 0.0, 5.0, 3) == 0.0


# --- accuracy ---------------------------------------------------------------------------------------------------


def test_related_tasks_are_found_and_predicted_better() -> None:
    found, gains = [], []
    for seed in range(3):
        data = make_clustered_tasks(random_state=seed)
        model = MSSLRegressor(0.6).fit(data.X, data.y, tasks=data.tasks)
        found.append(model.graph_.compare(data.adjacency).f1)
        alone = MultiTaskGLM(Independent(0.0), tol=1e-8).fit(data.X, data.y, tasks=data.tasks)
        errors = [
            np.mean((m.predict(data.X_test, tasks=data.tasks_test) - data.y_test) ** 2)
            for m in (MSSLRegressor(0.1).fit(data.X, data.y, tasks=data.tasks), alone)
        ]
        gains.append(errors[0] / errors[1])
    assert np.mean(found) >= 0.95
    assert np.mean(gains) <= 0.95


# --- hard cases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda X, y, t: (X[:1], y[:1], t[:1]), id="one row"),
        pytest.param(lambda X, y, t: (X[:, :1], y, t), id="one feature"),
        pytest.param(lambda X, y, t: (np.c_[X, np.ones(len(y))], y, t), id="constant column"),
        pytest.param(lambda X, y, t: (np.c_[X, X], y, t), id="duplicate columns"),
        pytest.param(lambda X, y, t: (X, np.ones(len(y)), t), id="constant target"),
        pytest.param(lambda X, y, t: (X, X @ np.ones(X.shape[1]), t), id="no noise"),
        pytest.param(lambda X, y, t: (X * 1e150, y, t), id="huge features"),
        pytest.param(lambda X, y, t: (X * 1e-150, y, t), id="tiny features"),
        pytest.param(lambda X, y, t: (X, y * 1e150, t), id="huge targets"),
        pytest.param(lambda X, y, t: (X, y * 1e-150, t), id="tiny targets"),
        pytest.param(lambda X, y, t: (X.astype(np.float32), y.astype(np.float32), t), id="float32"),
        pytest.param(lambda X, y, t: (np.round(3 * X).astype(int), np.round(y).astype(int), t), id="integers"),
        pytest.param(
            lambda X, y, t: (X[[0, 1, 30, 60]], y[[0, 1, 30, 60]], t[[0, 1, 30, 60]]), id="fewer rows than features"
        ),
    ],
)
@pytest.mark.parametrize("gamma", [0.0, 0.7])
def test_hard_cases_end_in_a_finite_certified_fit(make: object, gamma: float) -> None:
    X, y, tasks = make(*problem())  # type: ignore[operator]
    model = MSSLRegressor(0.2, gamma).fit(X, y, tasks=tasks)
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.predict(X, tasks=tasks)))
    assert np.all(np.isfinite(model.precision_))
    assert model.result_.relative_gap <= 1e-6


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"graph_penalty": -1.0}, "graph_penalty"),
        ({"coef_penalty": -1.0}, "coef_penalty"),
        ({"graph_penalty": np.nan}, "graph_penalty"),
        ({"graph_penalty": "0.3"}, "graph_penalty"),
        ({"coef_penalty": None}, "coef_penalty"),
        ({"prior_strength": "auto"}, "prior_strength"),
        ({"graph_penalty__variance_floor": None}, "variance_floor"),
        ({"shared_mean": None}, "shared_mean"),
        ({"prior_strength": 0.0}, "prior_strength"),
        ({"graph_penalty__variance_floor": 0.0}, "unbounded below"),
        ({"graph_penalty__shrinkage": -0.1}, "shrinkage"),
        ({"shared_mean": "yes"}, "shared_mean"),
        ({"shared_mean": -1.0}, "shared_mean"),
        ({"loss__noise_variance": 0.0}, "noise_variance"),
        ({"loss__noise_variance": [1.0, 2.0]}, "one per task"),
        ({"tol": 0.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"graph_penalty": SparsePrecision(0.0, normalize=False)}, "unbounded below"),
        ({"loss": "hinge"}, "loss"),
        ({"solver": "magic"}, "solver"),
        ({"graph_penalty__solver": "magic"}, "solver"),
    ],
)
def test_parameters_out_of_range_are_refused_in_words(parameters: dict[str, object], words: str) -> None:
    X, y, tasks = problem()
    with pytest.raises(ParameterError, match=words):
        MSSLRegressor().set_params(**parameters).fit(X, y, tasks=tasks)


def many_tasks(spread: float, seed: int, K: int = 60, d: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tasks in groups of ten, the less alike the larger the spread."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(6, d))[np.arange(K) % 6] + spread * rng.normal(size=(K, d))
    X, tasks = rng.normal(size=(40 * K, d)), np.repeat(np.arange(K), 40)
    return X, np.einsum("nd,nd->n", X, W[tasks]) + rng.normal(size=len(X)), tasks


def test_tasks_that_are_no_more_alike_than_chance_have_no_edges_by_default() -> None:
    found = []
    for seed, spread in enumerate((0.5, 1.0, 1.5, 2.0, 3.0, 100.0, 100.0, 100.0)):
        X, y, tasks = many_tasks(spread, seed)
        model, none, usual = (MSSLRegressor(lam, tol=1e-10).fit(X, y, tasks=tasks) for lam in ("auto", 1e6, 0.3))
        W = none.result_.W - none.result_.mean
        r = np.corrcoef(np.hstack([W, -W]))[np.triu_indices(len(W), 1)]  # about zero, not about the features' mean
        K, d = W.shape
        pairs = K * (K - 1) / 2
        found.append((np.sum(r**2) - pairs / d) / np.sqrt(2 * pairs * (d - 1) / (d**2 * (d + 2))))
        same = usual if found[-1] > 3 else none
        np.testing.assert_allclose(model.coef_, same.coef_, atol=1e-4)
        np.testing.assert_array_equal(model.precision_ != 0, same.precision_ != 0)
    assert max(found) > 20
    assert min(found) < 3


def test_few_tasks_and_given_graphs_have_the_usual_edges() -> None:
    X, y, tasks = many_tasks(100.0, 5, K=16)
    np.testing.assert_array_equal(
        MSSLRegressor().fit(X, y, tasks=tasks).coef_, MSSLRegressor(0.3).fit(X, y, tasks=tasks).coef_
    )
    X, y, tasks = many_tasks(100.0, 5)
    assert MSSLRegressor().fit(X, y, tasks=tasks).graph_.n_edges == 0
    assert (
        MSSLRegressor(SparsePrecision("auto", edge_constraints=KnownEdges(free=[(0, 1)])))
        .fit(X, y, tasks=tasks)
        .graph_.n_edges
        > 0
    )
    with pytest.raises(ParameterError, match=r"graph_penalty \(alpha\) is 'none'"):
        MSSLRegressor("none").fit(X, y, tasks=tasks)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_targets_beyond_what_a_loss_can_reach_are_told_in_words():
    """Without an intercept weights alone would have to make means of 1e35, with outliers among the features."""
    random = np.random.default_rng(1)
    X = random.standard_cauchy((70, 3))
    y = 1e35 * random.gamma(2.0, size=70)
    model = MultiTaskGLM(TaskCovariance(0.2), loss="gamma", fit_intercept=False)
    with pytest.raises(DataError, match="overflow: y from"):
        model.fit(X * np.abs(X), y, tasks=np.repeat(np.arange(7), 10))
