"""Laws of r-MSSL: one minimiser whatever the solver, certificates that bound the truth, and the paper's constants."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.covariance import empirical_covariance
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold

from mssl import MSSLRegressor, MultiTaskGLM
from mssl.data.design import Design
from mssl.data.layouts import read_tasks
from mssl.datasets import make_residual_graph
from mssl.exceptions import NotAlignedError, ParameterError
from mssl.losses import Gaussian
from mssl.model.coupling import Coupling
from mssl.paper import PaperMSSL
from mssl.penalties import L1, L21, ElasticNet, EntrywisePenalty, Penalty
from mssl.solvers import residual
from mssl.solvers.base import Status, Unknowns
from mssl.structures import SparsePrecision

LAWS = settings(max_examples=20, deadline=None)


def random_problem(
    rng, *, shared, n=14, d=4, K=3, gamma=0.0, ridge=0.0, extra=0.0, weights=None, intercept=True, tied=None
):
    X = rng.standard_normal((n, d) if shared else (n, K, d)) + 1.0
    y = rng.standard_normal((n, K)) + 2.0
    data = read_tasks(X, y, sample_weight=weights)
    design = Design.build(data.X, None if data.shared else data.offsets, K, data.weights, centre=intercept, scale=True)
    t, r = np.full(K, gamma) * rng.uniform(0.5, 2, K), np.full(K, ridge) * rng.uniform(0.5, 2, K)
    units = Unknowns() if tied is None else Unknowns(sparse.csr_array(sparse.diags_array(1.0 / tied[1])))
    parts = (EntrywisePenalty.of(t, (K, d)) if tied is None else tied[0], units, r if ridge else None)
    return residual.make_residual_problem(data, design, parts, extra=extra, intercept=intercept)


class GroupOfTasks(Penalty):
    """alpha Σ_j ‖w_·j‖ as a user would write it."""

    def __init__(self, alpha=1.0):
        self.alpha = alpha

    def norm(self, W):
        return float(np.linalg.norm(W, axis=0).sum())

    def prox(self, W, step):
        size = np.linalg.norm(W, axis=0)
        return W * np.maximum(1.0 - step * self.alpha / np.where(size > 0, size, 1.0), 0.0)


class SingleWeights(Penalty):
    """alpha Σ |w| by its proximal map alone."""

    def __init__(self, alpha=1.0):
        self.alpha = alpha

    def norm(self, W):
        return float(np.abs(W).sum())

    def dual_norm(self, G):
        return float(np.abs(G).max())

    def prox(self, W, step):
        return np.sign(W) * np.maximum(np.abs(W) - step * self.alpha, 0.0)


def random_coupling(rng, K):
    A = rng.standard_normal((K, 2 * K))
    precision = A @ A.T / K + 0.2 * np.eye(K)
    return Coupling(precision, np.linalg.inv(precision))


def hessian(problem, coupling):
    """The coupled Hessian that the solvers never form, and its right-hand side."""
    K, d = len(problem.Y), problem.X.shape[1]
    A = coupling.dense() + problem.extra * np.eye(K)
    X = np.broadcast_to(problem.X, (K, d, problem.Y.shape[1]))
    H = np.einsum("kl,kdn,len->kdle", A, X, X).reshape(K * d, K * d)
    q = np.einsum("kl,kdn,ln->kd", A, X, problem.Y).ravel()
    return H + np.diag(np.repeat(problem.ridges, d)), q


def objective(problem, coupling, W):
    E = problem.related(W)
    return problem.value(W) + 0.5 * float(np.vdot(E, coupling.dense() @ E))


@LAWS
@given(
    st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.0, 2.0]), st.sampled_from([0.0, 1.5]), st.booleans()
)
def test_without_l1_the_weights_solve_the_coupled_normal_equations(seed, shared, ridge, extra, intercept):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, shared=shared, ridge=ridge, extra=extra, intercept=intercept)
    coupling = random_coupling(rng, len(problem.Y))
    W0 = rng.standard_normal((len(problem.Y), problem.X.shape[1]))
    step = problem.solve(coupling, W0, tol=1e-12, max_iter=500)
    H, q = hessian(problem, coupling)
    np.testing.assert_allclose(H @ step.W.ravel(), q, atol=1e-5 * np.abs(q).max())
    assert step.gap <= 1e-9


@LAWS
@given(
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.sampled_from([0.5, 5.0]),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([4, 20]),
)
def test_the_certificate_bounds_the_distance_to_the_minimum(seed, shared, gamma, ridge, d):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, shared=shared, gamma=gamma, ridge=ridge, d=d, extra=0.3)
    coupling = random_coupling(rng, len(problem.Y))
    start = 0.1 * rng.standard_normal((len(problem.Y), d))
    best = problem.solve(coupling, np.zeros_like(start), tol=1e-9, max_iter=20_000)
    assert best.status is Status.CONVERGED
    least = objective(problem, coupling, best.W)
    certificate = problem.certificate(coupling, problem.step(coupling))
    for W in (start, 0.5 * start + 0.5 * best.W, best.W + 1e-3 * start):
        assert objective(problem, coupling, W) - least <= certificate(W) + 1e-8 * abs(least)
    # Subgradient conditions, task by task.
    H, q = hessian(problem, coupling)
    G = (H @ best.W.ravel() - q).reshape(best.W.shape)
    t = problem.penalty.strengths
    assert np.all(np.abs(G) <= t + 1e-3)
    np.testing.assert_allclose(G[best.W != 0], -(t * np.sign(best.W))[best.W != 0], atol=1e-3)


@LAWS
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_all_three_sweeps_find_the_same_weights(seed, shared):
    from mssl import kernels

    rng = np.random.default_rng(seed)
    problem = random_problem(rng, shared=shared, gamma=1.0, ridge=0.1)
    coupling = random_coupling(rng, len(problem.Y))
    best = problem.solve(coupling, np.zeros((len(problem.Y), problem.X.shape[1])), tol=1e-11, max_iter=20_000)
    A = problem.precision(coupling)
    graph = (A.indptr.astype(np.int64), A.indices.astype(np.int64), A.data)
    W, E = np.zeros_like(best.W), problem.Y.copy()
    squares = np.einsum("kdn,kdn->kd", problem.X, problem.X)
    kernels.feature_sweeps(
        problem.X, squares, problem.ridges, ((*graph, None, 0.0), problem.penalty.kernel), W, E, 5000, 1e-16
    )
    np.testing.assert_allclose(W, best.W, atol=1e-4)
    np.testing.assert_allclose(E, problem.related(W), atol=1e-9)


def test_identity_precision_is_one_lasso_a_task():
    from sklearn.linear_model import Lasso

    data = make_residual_graph(random_state=1, n_tasks=4, n_features=6, clusters=[[0, 1]])
    tasks, parts = read_tasks(data.X, data.y), (EntrywisePenalty(np.full((4, 6), 6.0)), Unknowns(), None)
    problem = residual.make_residual_problem(tasks, Design.build(tasks.X, None, 4, scale=False), parts)
    W = problem.solve(Coupling.diagonal_only(np.ones(4)), np.zeros((4, 6)), tol=1e-12, max_iter=5000).W
    for k in range(4):
        lasso = Lasso(6.0 / len(data.X), tol=1e-12).fit(data.X, data.y[:, k])
        np.testing.assert_allclose(W[k], lasso.coef_, atol=1e-6)


@pytest.mark.parametrize("layout", ["shared", "aligned"])
@pytest.mark.parametrize("gamma", [0.0, 4.0])
@pytest.mark.parametrize("make", [MSSLRegressor, PaperMSSL])
def test_the_objective_never_rises_and_ends_certified(layout, gamma, make):
    data = make_residual_graph(random_state=2, layout=layout, shared_design=layout == "shared")
    model = make(0.3, ElasticNet(gamma, ridge=1.0), relation="residual").fit(data.X, data.y)
    values = [record.objective for record in model.history_]
    assert np.all(np.diff(values) <= 1e-8 * abs(values[0]))
    assert model.result_.status is Status.CONVERGED
    assert model.result_.relative_gap <= 1e-6


def literal_objective(model, data, lam, gamma):
    """The paper's r-MSSL objective as it is printed."""
    E = data.y - model.predict(data.X)
    omega, K = model.precision_, model.precision_.shape[0]
    return (
        np.sum(E**2)
        + np.trace(E @ omega @ E.T)
        - K / 2 * np.linalg.slogdet(omega)[1]
        + lam * np.abs(omega).sum()
        + gamma * np.abs(model.coef_).sum()
    )


def test_paper_formulation_minimises_the_printed_objective():
    data = make_residual_graph(random_state=3, n_tasks=5, n_features=6, clusters=[[0, 1, 2]])
    lam, gamma = 4.0, 3.0
    model = PaperMSSL(lam, gamma, relation="residual", tol=1e-8).fit(data.X, data.y)
    best = literal_objective(model, data, lam, gamma)
    n, K = data.y.shape
    differences = []
    for factor in (1.0, 1.5):
        other = PaperMSSL(factor * lam, factor * gamma, relation="residual").fit(data.X, data.y)
        assert literal_objective(other, data, lam, gamma) >= best - 1e-4 * abs(best)
        literal = literal_objective(other, data, factor * lam, factor * gamma)
        differences.append(other.objective_ - n / K * literal)
    # F is the literal objective times n/K, up to a constant that does not depend on the penalties.
    assert differences[0] == pytest.approx(differences[1], abs=1e-3 * abs(best))


def test_kappa_zero_with_shared_x_is_the_objective_of_mrce():
    """n/2 [tr(SΩ) − log det Ω] + penalties: at the end Ω is the graphical lasso of the residuals' covariance."""
    data = make_residual_graph(random_state=4)
    model = MSSLRegressor(0.3, 5.0, relation="residual", tol=1e-8).fit(data.X, data.y)
    unit = model.covariance_[0, 0] / model.result_.structure.covariance[0, 0]
    S = empirical_covariance(data.y - model.predict(data.X), assume_centered=True) / unit
    frame, structure = model.result_.scale, SparsePrecision(0.3, on="residual")
    floors, scales = structure.floors(frame), structure.edge_scales(frame)
    sigma = model.result_.structure.covariance
    slack = np.abs(sigma - S - np.diag(floors)) - 0.3 * scales * (1 - np.eye(len(S)))
    assert slack.max() <= 1e-3 * np.diag(S).max()


def test_one_x_and_no_penalty_is_least_squares_and_says_so():
    data = make_residual_graph(random_state=5)
    with pytest.warns(UserWarning, match="ordinary least squares"):
        model = MSSLRegressor(0.3, relation="residual").fit(data.X, data.y)
    plain = LinearRegression().fit(data.X, data.y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, plain.intercept_, atol=1e-8)


def test_own_x_and_no_penalty_is_generalised_least_squares():
    data = make_residual_graph(
        random_state=6, n_tasks=4, n_features=3, clusters=[[0, 1, 2]], shared_design=False, layout="aligned"
    )
    model = MSSLRegressor(0.1, relation="residual", tol=1e-12, max_iter=1000).fit(data.X, data.y)
    X, y, omega = data.X - data.X.mean(axis=0), data.y - data.y.mean(axis=0), model.precision_
    H = np.einsum("kl,nkd,nle->kdle", omega, X, X).reshape(12, 12)
    q = np.einsum("kl,nkd,nl->kd", omega, X, y).ravel()
    np.testing.assert_allclose(model.coef_.ravel(), np.linalg.solve(H, q), atol=1e-6)


def test_units_of_the_targets_do_not_matter():
    data = make_residual_graph(random_state=7)
    units = np.logspace(-3, 3, 13)
    plain = MSSLRegressor(0.3, ElasticNet(5.0, ridge=0.5), relation="residual", tol=1e-11).fit(data.X, data.y)
    scaled = MSSLRegressor(0.3, ElasticNet(5.0, ridge=0.5), relation="residual", tol=1e-11).fit(data.X, data.y * units)
    np.testing.assert_allclose(scaled.coef_ / units[:, None], plain.coef_, atol=1e-4)
    np.testing.assert_allclose(scaled.partial_correlation_, plain.partial_correlation_, atol=1e-4)


def test_a_row_with_weight_two_is_the_row_given_twice():
    data = make_residual_graph(random_state=8, n_tasks=5, n_features=6, clusters=[[0, 1, 2]])
    twice = np.arange(len(data.X)) % 3 == 0
    index = np.concatenate([np.arange(len(data.X)), np.flatnonzero(twice)])
    settings_ = {"graph_penalty": 0.3, "coef_penalty": 3.0, "relation": "residual", "tol": 1e-9}
    settings_ |= {"loss": Gaussian(noise_variance=1.0)}
    weighted = MSSLRegressor(**settings_).fit(data.X, data.y, sample_weight=1.0 + twice)
    repeated = MSSLRegressor(**settings_).fit(data.X[index], data.y[index])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-5)
    np.testing.assert_allclose(weighted.precision_, repeated.precision_, rtol=1e-3, atol=1e-5)


def test_permuting_tasks_permutes_the_answer():
    data = make_residual_graph(random_state=9)
    order = np.random.default_rng(0).permutation(13)
    model = MSSLRegressor(0.3, 5.0, relation="residual", tol=1e-11).fit(data.X, data.y)
    moved = MSSLRegressor(0.3, 5.0, relation="residual", tol=1e-11).fit(data.X, data.y[:, order])
    np.testing.assert_allclose(moved.coef_, model.coef_[order], atol=1e-5)
    np.testing.assert_allclose(moved.precision_, model.precision_[np.ix_(order, order)], atol=1e-3)


def test_limits_empty_the_graph_and_the_weights():
    data = make_residual_graph(random_state=10)
    limits = MSSLRegressor(0.3, 5.0, relation="residual").limits(data.X, data.y)
    above = MSSLRegressor(1.001 * limits.graph_penalty, 5.0, relation="residual").fit(data.X, data.y)
    below = MSSLRegressor(0.95 * limits.graph_penalty, 5.0, relation="residual").fit(data.X, data.y)
    assert above.graph_.n_edges == 0 < below.graph_.n_edges


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_from_the_strength_max_on_zero_weights_are_stationary(factor):
    data = make_residual_graph(random_state=10)
    limit = (
        MSSLRegressor(0.3, relation="residual", loss=Gaussian(noise_variance=1.0)).limits(data.X, data.y).coef_penalty
    )
    tasks = read_tasks(data.X, data.y)
    parts = (EntrywisePenalty(np.full((13, 30), factor * limit)), Unknowns(), None)
    problem = residual.make_residual_problem(tasks, Design.build(tasks.X, None, 13), parts)
    variances = (1 + 1e-3) * np.var(data.y, axis=0)
    step = problem.solve(Coupling.diagonal_only(1 / variances), np.zeros((13, 30)), tol=1e-10, max_iter=1000)
    assert np.any(step.W) == (factor < 1)


def test_prediction_beats_least_squares_and_the_graph_is_found():
    """λ and γ by cross-validation; the R package MRCE reaches a ratio of 0.775 here."""
    ratios, areas = [], []
    upper = np.triu_indices(13, 1)
    for seed in range(2):
        data = make_residual_graph(random_state=seed)
        grid = {"graph_penalty": [0.2, 0.4], "coef_penalty": [4.0, 6.0, 9.0]}
        search = GridSearchCV(
            MSSLRegressor(relation="residual", tol=1e-4),
            grid,
            cv=KFold(3, shuffle=True, random_state=0),
            scoring="neg_mean_squared_error",
        )
        model = search.fit(data.X, data.y).best_estimator_
        plain = LinearRegression().fit(data.X, data.y)
        lost = [np.sqrt(np.mean((m.predict(data.X_test) - data.y_test) ** 2)) for m in (model, plain)]
        ratios.append(lost[0] / lost[1])
        areas.append(roc_auc_score(data.adjacency[upper], np.abs(model.partial_correlation_[upper])))
    assert np.mean(ratios) <= 0.82
    assert np.min(areas) >= 0.9


def test_the_coupled_hessian_is_never_built():
    """250 tasks of 10 features: the largest array may not come near 2500 × 2500 numbers."""
    import tracemalloc

    clusters = [list(range(i, i + 10)) for i in range(0, 200, 10)]
    data = make_residual_graph(
        random_state=0,
        n_tasks=250,
        n_features=10,
        n_samples=120,
        clusters=clusters,
        shared_design=False,
        layout="aligned",
    )
    MSSLRegressor(0.6, 5.0, relation="residual", max_iter=1, tol=1e3).fit(data.X, data.y)
    tracemalloc.start()
    MSSLRegressor(0.6, 5.0, relation="residual", tol=1e-4).fit(data.X, data.y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2500 * 2500 * 8


def test_data_that_are_not_aligned_are_refused_with_advice():
    data = make_residual_graph(random_state=0, n_tasks=4, n_features=3, clusters=[[0, 1]])
    model = MSSLRegressor(0.3, 1.0, relation="residual")
    X, y = np.repeat(data.X, 4, axis=0), data.y.ravel()
    with pytest.raises(NotAlignedError, match="long layout"):
        model.fit(X, y, tasks=np.tile(np.arange(4), len(data.X)))
    missing = data.y.copy()
    missing[3, 1] = np.nan
    with pytest.raises(NotAlignedError, match="missing"):
        model.fit(data.X, missing, sample_weight=np.full(len(missing), 2.0))
    with pytest.raises(NotAlignedError, match="toarray"):
        model.fit(sparse.csr_array(data.X), data.y)


@LAWS
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.0, 2.0]), st.sampled_from([0.0, 1.5]))
def test_a_penalty_by_its_proximal_map_has_the_weights_of_the_kernels(seed, shared, ridge, extra):
    rng, gamma = np.random.default_rng(seed), 3.0
    noise = rng.uniform(0.5, 2.0, 3)
    state = rng.bit_generator.state
    tied = random_problem(rng, shared=shared, ridge=ridge, extra=extra, tied=(SingleWeights(gamma), np.sqrt(noise)))
    rng.bit_generator.state = state
    single = random_problem(rng, shared=shared, ridge=ridge, extra=extra)
    single = replace(single, penalty=EntrywisePenalty.of(gamma * np.sqrt(noise), (3, 4)))
    coupling, start = random_coupling(rng, 3), np.zeros((3, 4))
    best = single.solve(coupling, start, tol=1e-12, max_iter=100_000)
    rough, found = (tied.solve(coupling, start, tol=tol, max_iter=100_000) for tol in (1e-2, 1e-11))
    assert found.status is rough.status is Status.CONVERGED
    assert tied.certifies(coupling)
    np.testing.assert_allclose(found.W, best.W, atol=1e-5)
    assert tied.value(best.W) == pytest.approx(single.value(best.W), rel=1e-12)
    assert objective(tied, coupling, rough.W) - objective(single, coupling, best.W) <= rough.gap + 1e-9


@pytest.mark.parametrize("shared", [True, False])
def test_residual_fits_take_penalties_that_tie_weights_together(shared):
    layout = "shared" if shared else "aligned"
    data = make_residual_graph(random_state=0, shared_design=shared, layout=layout, n_samples=60)
    structure = SparsePrecision(0.2, on="residual")
    built_in = MultiTaskGLM(structure, L21(8.0), tol=1e-8).fit(data.X, data.y)
    own = MultiTaskGLM(structure, GroupOfTasks(8.0), tol=1e-8).fit(data.X, data.y)
    assert built_in.result_.status is Status.CONVERGED
    assert own.result_.status is Status.STATIONARY  # no dual norm, no bound
    assert own.result_.objective == pytest.approx(built_in.result_.objective, abs=1e-5)
    np.testing.assert_allclose(own.coef_, built_in.coef_, atol=1e-3)
    if not shared:  # of one task the norm over tasks is the absolute value
        alone, single = (
            MultiTaskGLM(structure, penalty, tol=1e-9).fit(data.X[:, :1], data.y[:, :1])
            for penalty in (L21(8.0), L1(8.0))
        )
        np.testing.assert_allclose(alone.coef_, single.coef_, atol=1e-4)


def test_impossible_combinations_are_refused():
    data = make_residual_graph(random_state=0, n_tasks=4, n_features=3, clusters=[[0, 1]], n_samples=8)
    with pytest.raises(ParameterError, match="leaves no residuals"), pytest.warns(UserWarning, match="ordinary least"):
        MSSLRegressor(relation="residual").fit(data.X[:4], data.y[:4])
    with pytest.raises(ParameterError, match="shared_mean"):
        MSSLRegressor(relation="residual", shared_mean=0.5).fit(data.X, data.y)
    with pytest.raises(ParameterError, match="'coef'"):
        MSSLRegressor(0.3, 1.0, relation="rows").fit(data.X, data.y)
    with pytest.raises(ParameterError, match="poisson"):
        MSSLRegressor(relation="residual", loss="poisson").fit(data.X, np.abs(np.round(data.y)))
    with pytest.raises(ParameterError, match="ridge"):
        MSSLRegressor(coef_penalty=ElasticNet(ridge=-1.0), relation="residual").fit(data.X, data.y)
    with pytest.raises(ParameterError, match="poisson"):
        MultiTaskGLM(SparsePrecision(on="residual"), loss="poisson").fit(data.X, np.abs(np.round(data.y)))


def test_more_features_than_rows_works_with_a_penalty():
    data = make_residual_graph(
        random_state=1,
        n_tasks=4,
        n_features=40,
        n_samples=25,
        clusters=[[0, 1, 2]],
        shared_design=False,
        layout="aligned",
    )
    model = MSSLRegressor(0.3, 9.0, loss=Gaussian(noise_variance=1.0), relation="residual").fit(data.X, data.y)
    assert model.result_.status is Status.CONVERGED
    assert np.all(np.isfinite(model.coef_))


@pytest.mark.parametrize(("n", "d", "K"), [(20, 40, 3), (15, 60, 2)])
def test_weights_that_fit_every_row_are_told_to_be_penalised_more_and_that_helps(n, d, K):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d))
    y = X[:, :K] + rng.standard_normal((n, K))
    model = MSSLRegressor(relation="residual", loss=Gaussian(noise_variance=1.0), coef_penalty=0.1, max_iter=1)
    with pytest.warns(ConvergenceWarning, match=f"{d} features fit {n} rows.*raise coef_penalty") as caught:
        model.fit(X, y)
    assert not any("rescale" in str(warning.message) for warning in caught)
    model.set_params(coef_penalty=0.7 * model.limits(X, y).coef_penalty, max_iter=30).fit(X, y)
    assert model.result_.status is Status.CONVERGED


def test_a_graph_good_enough_for_its_solver_is_made_good_enough_for_the_certificate():
    """Hardly penalised, with residuals near their floor: the solver's own gap is far below the certificate's."""
    data = make_residual_graph(random_state=3)
    rows = list(KFold(5, shuffle=True, random_state=0).split(data.X))[1][0]
    model = MSSLRegressor(0.05, 2.0, relation="residual", tol=1e-4).fit(data.X[rows], data.y[rows])
    assert model.result_.status is Status.CONVERGED
