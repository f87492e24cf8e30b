"""Laws of the structures: closed forms, identities with one another, graphs, ranks, known edges, stated errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from scipy.stats import kendalltau, spearmanr
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge

from mssl import MSSLRegressor, MSSLRegressorCV, MultiTaskClassifier, MultiTaskGLM
from mssl.data.layouts import stack_tasks
from mssl.datasets import make_clustered_tasks, make_residual_graph
from mssl.exceptions import ParameterError
from mssl.features import Linear
from mssl.penalties import L1, L21, ElasticNet, Nuclear
from mssl.solvers.base import Status
from mssl.structures import (
    Clustered,
    FixedPrecision,
    GraphLaplacian,
    Independent,
    KnownEdges,
    LatentSparsePrecision,
    MeanRegularized,
    Pooled,
    SparsePrecision,
    StructureScale,
    TaskCovariance,
)
from mssl.structures.copula import nearest_correlation, rank_correlation
from mssl.structures.laplacian import great_circle

LAWS = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**32 - 1)
PLAIN = {"loss__noise_variance": 1.0, "features": Linear(scale=False), "tol": 1e-11}
CHAIN = [(0, 1), (1, 2), (2, 3)]


def tasks_of(seed=0, K=4, d=3, n=20, layout="aligned"):
    """(X, y, tasks) in a layout, and each task's own (X_k, y_k)."""
    rng = np.random.default_rng(seed)
    Xs = [rng.standard_normal((n, d)) for _ in range(K)]
    if layout == "shared":
        Xs = [Xs[0]] * K
    W = rng.standard_normal((K, d))
    ys = [X @ w + 0.5 * rng.standard_normal(n) + 1.0 for X, w in zip(Xs, W, strict=True)]
    if layout == "long":
        return stack_tasks(Xs, ys), list(zip(Xs, ys, strict=True))
    X = Xs[0] if layout == "shared" else np.stack(Xs, axis=1)
    return (X, np.stack(ys, axis=1), None), list(zip(Xs, ys, strict=True))


def fit(model, data):
    X, y, tasks = data
    return model.fit(X, y) if tasks is None else model.fit(X, y, tasks=tasks)


def coupled_solution(pairs, C):
    """The weights of Σ ½‖y_k − X_k w_k − b_k‖² + ½ tr(W C Wᵀ), by one dense solve."""
    K, d = len(pairs), pairs[0][0].shape[1]
    H, q = np.kron(C, np.eye(d)), np.zeros((K, d))
    for k, (X, y) in enumerate(pairs):
        centred = X - X.mean(axis=0)
        H[k * d : (k + 1) * d, k * d : (k + 1) * d] += centred.T @ centred
        q[k] = centred.T @ y
    return np.linalg.solve(H, q.ravel()).reshape(K, d)


def precision_of(structure, K=4):
    step = structure.initial(StructureScale(1, np.ones(K), np.ones(K)))
    return structure.strength * step.precision


A = np.random.default_rng(5).standard_normal((4, 8))
GIVEN = {
    "independent": Independent(2.0),
    "own ridges": Independent([0.5, 1.0, 2.0, 4.0]),
    "fixed": FixedPrecision(A @ A.T / 4, alpha=0.7),
    "laplacian": GraphLaplacian(3.0, edges=CHAIN),
    "weighted laplacian": GraphLaplacian(3.0, edges=[(0, 1, 2.0), (2, 3, 0.5)]),
    "mean": MeanRegularized(3.0),
    "mean with ridge": MeanRegularized(3.0, mean_alpha=2.0),
}


LEARNED = {
    "sparse": SparsePrecision(0.2),
    "shrunk": SparsePrecision(0.1, coupling=2.0, shrinkage=0.5),
    "paper": SparsePrecision(0.5, normalize=False),
    "covariance": TaskCovariance(0.7, smoothing=1e-2),
    "clusters": Clustered(2),
    "hidden variables": LatentSparsePrecision(0.15, latent=0.3),
}


def moments(seed, structure, K=4, r=9):
    """The constants of a structure, and two moments of one size."""
    rng = np.random.default_rng(seed)
    Qs = rng.standard_normal((2, K, r)) * rng.uniform(0.5, 3.0, (K, 1)) + rng.standard_normal((2, 1, r))
    scale = StructureScale(r, (Qs[0] ** 2).mean(axis=1), rng.uniform(0.1, 0.5, K))
    return scale, *(structure.moment(Q, scale) for Q in Qs)


@pytest.mark.parametrize("name", LEARNED)
@LAWS
@given(seeds)
def test_no_learned_structure_is_better_than_the_best_one_and_gaps_are_bounds(name, seed):
    structure = LEARNED[name]
    scale, S, other = moments(seed, structure)
    best = structure.update(S, structure.initial(scale), scale, 1e-9)
    assert 0 <= best.gap <= 1e-8 * max(1.0, abs(best.value))
    again = structure.certify(S, best, scale)
    assert again.value == pytest.approx(best.value, rel=1e-9, abs=1e-9)
    assert again.gap <= 1e-6 * max(1.0, abs(best.value))
    np.testing.assert_allclose(best.precision @ best.covariance, np.eye(4), atol=1e-6)
    assert np.linalg.eigvalsh(structure.graph(best))[0] > 0
    elsewhere = structure.update(other, best, scale, 1e-9)
    for step in (structure.initial(scale), elsewhere):
        seen = structure.certify(S, step, scale)
        assert seen.value >= best.value - best.gap - 1e-9
        assert seen.value - seen.gap <= best.value + 1e-9
    # From a good start to a moment nearby, never worse than the start.
    near = S + 1e-4 * (other - S)
    before = structure.certify(near, best, scale)
    assert structure.update(near, best, scale, 1e-9).value <= before.value + 1e-12 * abs(before.value)


@pytest.mark.parametrize("name", LEARNED)
def test_fits_with_learned_structures_descend_to_a_certificate(name):
    data, _ = tasks_of(seed=3, K=5, n=25, layout="long")
    model = fit(MultiTaskGLM(clone(LEARNED[name]), tol=1e-8, max_iter=2000), data)
    values = np.array([record.objective for record in model.history_])
    assert model.result_.status is Status.CONVERGED
    assert np.all(np.diff(values) <= 1e-12 * np.abs(values[1:]))


@pytest.mark.parametrize("name", [*GIVEN, *LEARNED])
def test_units_of_the_targets_cancel_where_the_structure_says_so(name):
    structure = GIVEN[name] if name in GIVEN else LEARNED[name]
    (X, y, _), _ = tasks_of(seed=4)
    fits = [MultiTaskGLM(clone(structure), tol=1e-10, max_iter=2000).fit(X, c * y) for c in (1.0, 50.0)]
    same = np.allclose(fits[1].coef_, 50.0 * fits[0].coef_, rtol=1e-3, atol=1e-3)
    assert same == structure.free_units


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
@pytest.mark.parametrize("name", GIVEN)
def test_given_structures_solve_their_normal_equations(name, layout):
    """Among them S²M²R against its closed form."""
    data, pairs = tasks_of(layout=layout)
    model = fit(MultiTaskGLM(clone(GIVEN[name])).set_params(**PLAIN), data)
    np.testing.assert_allclose(model.coef_, coupled_solution(pairs, precision_of(GIVEN[name])), atol=1e-6)


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
@pytest.mark.parametrize("penalty", [L1(2.0), ElasticNet(2.0, 1.0), L21(2.0), Nuclear(2.0)])
@pytest.mark.parametrize("name", ["independent", "fixed", "laplacian", "mean", "mean with ridge"])
def test_given_structures_with_penalties_meet_the_subgradient_conditions(name, penalty, layout):
    data, pairs = tasks_of(layout=layout)
    model = fit(MultiTaskGLM(clone(GIVEN[name]), clone(penalty)).set_params(**PLAIN), data)
    W = model.coef_
    smooth = [(X - X.mean(axis=0)).T @ (X @ w + b - y) for (X, y), w, b in zip(pairs, W, model.intercept_, strict=True)]
    G = np.stack(smooth) + precision_of(GIVEN[name]) @ W
    assert np.abs(W - penalty.prox(W - G, 1.0)).max() <= 1e-4


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
@pytest.mark.parametrize("loss", ["gaussian", "bernoulli", "poisson"])
def test_independent_is_the_familiar_estimator_of_every_task(loss, layout):
    (X, y, tasks), pairs = tasks_of(seed=2, layout=layout, n=40)
    if loss == "bernoulli":
        y, pairs = (y > 1).astype(int), [(X, (t > 1).astype(int)) for X, t in pairs]
        model = MultiTaskClassifier(Independent(1.0), features=Linear(scale=False), tol=1e-11)
        own = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000)
    elif loss == "poisson":
        y, pairs = np.round(np.exp(0.3 * y)), [(X, np.round(np.exp(0.3 * t))) for X, t in pairs]
        model = MultiTaskGLM(Independent(40.0), loss="poisson", features=Linear(scale=False), tol=1e-11)
        own = PoissonRegressor(alpha=1.0, tol=1e-10, max_iter=10_000)
    else:
        model, own = MultiTaskGLM(Independent(1.0)).set_params(**PLAIN), Ridge(1.0)
    fit(model, (X, y, tasks))
    for k, (X_k, y_k) in enumerate(pairs):
        own.fit(X_k, y_k)
        np.testing.assert_allclose(model.coef_[k], own.coef_.ravel(), atol=1e-5)
        np.testing.assert_allclose(model.intercept_[k], np.ravel(own.intercept_)[0], atol=1e-5)


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
def test_pooled_is_one_regression_with_task_intercepts(layout):
    data, pairs = tasks_of(layout=layout)
    model = fit(MultiTaskGLM(Pooled(0.0)).set_params(**PLAIN), data)
    X = np.concatenate([X - X.mean(axis=0) for X, _ in pairs])
    y = np.concatenate([y - y.mean() for _, y in pairs])
    common = LinearRegression(fit_intercept=False).fit(X, y).coef_
    np.testing.assert_allclose(model.coef_, np.tile(common, (4, 1)), atol=1e-9)
    for (X_k, y_k), b in zip(pairs, model.intercept_, strict=True):
        assert b == pytest.approx(np.mean(y_k - X_k @ common))


def test_pooled_poisson_and_logistic_agree_with_dummies():
    data, pairs = tasks_of(seed=3, layout="long", n=40)
    X, y, tasks = data
    counts, dummies = np.round(np.exp(0.3 * y)), (tasks[:, None] == np.arange(4)).astype(float)
    pooled = MultiTaskGLM(Pooled(5.0), loss="poisson", features=Linear(scale=False), tol=1e-10).fit(
        X, counts, tasks=tasks
    )
    near = MultiTaskGLM(MeanRegularized(1e5, mean_alpha=5.0), loss="poisson", features=Linear(scale=False), tol=1e-10)
    near.fit(X, counts, tasks=tasks)
    np.testing.assert_allclose(pooled.coef_, near.coef_, atol=1e-3)
    np.testing.assert_array_equal(pooled.coef_, pooled.coef_[[0]].repeat(4, axis=0))
    classes = (y > 1).astype(int)
    model = MultiTaskClassifier(Pooled(1.0), L1(0.5), features=Linear(scale=False), tol=1e-9).fit(
        X, classes, tasks=tasks
    )
    eta = X @ model.coef_[0] + dummies @ model.intercept_
    slope = X.T @ (1 / (1 + np.exp(-eta)) - classes) + model.coef_[0]
    assert np.all(np.abs(slope) <= 4 * 0.5 + 1e-3)
    assert len(pairs) == 4


@pytest.mark.parametrize("name", ["laplacian", "mean"])
def test_strong_coupling_is_pooling(name):
    data, _ = tasks_of()
    strong = {"laplacian": GraphLaplacian(1e6, edges=CHAIN), "mean": MeanRegularized(1e6)}[name]
    near = fit(MultiTaskGLM(strong).set_params(**PLAIN | {"tol": 1e-9}), data).coef_
    np.testing.assert_allclose(near, fit(MultiTaskGLM(Pooled()).set_params(**PLAIN), data).coef_, atol=1e-3)


def test_mean_regularized_is_the_laplacian_of_the_complete_graph():
    complete = GraphLaplacian(3.0 / 4, adjacency=np.ones((4, 4)))
    np.testing.assert_allclose(precision_of(MeanRegularized(3.0)), precision_of(complete), atol=1e-12)


@LAWS
@given(seeds)
def test_mtrl_is_the_squared_trace_norm(seed):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((4, 6))
    structure, frame = TaskCovariance(0.7, smoothing=1e-18), StructureScale(6, np.ones(4), np.ones(4))
    step = structure.update(structure.moment(W, frame), structure.initial(frame), frame, 1e-9)
    nuclear = np.linalg.svd(W, compute_uv=False).sum()
    assert step.value == pytest.approx(0.35 * nuclear**2, rel=1e-6)
    assert np.trace(step.covariance) == pytest.approx(1.0)
    other = structure.certify(structure.moment(W, frame), structure.initial(frame), frame)
    assert other.value - other.gap == pytest.approx(step.value, rel=1e-6)


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
def test_mtrl_finds_the_minimum_of_the_squared_trace_norm(layout):
    """(α/2)‖W‖*² and τ‖W‖* have the same minimiser where τ = α‖W‖*."""
    data, _ = tasks_of(layout=layout, d=5)
    mtrl = fit(MultiTaskGLM(TaskCovariance(0.5)).set_params(**PLAIN | {"tol": 1e-10}), data)
    strength = 0.5 * np.linalg.svd(mtrl.coef_, compute_uv=False).sum()
    low_rank = fit(MultiTaskGLM(Independent(0.0), Nuclear(strength)).set_params(**PLAIN), data)
    np.testing.assert_allclose(mtrl.coef_, low_rank.coef_, atol=2e-4)


@pytest.mark.parametrize("structure", [TaskCovariance(3.0), Clustered(2, 5.0, 0.1)], ids=str)
@pytest.mark.parametrize("shape", [(9, 3), (3, 9)])
def test_certificates_of_spectral_structures_bound_the_distance_from_the_global_minimum(structure, shape):
    """Against a quasi-Newton method on the weights alone, with the best Ω of all weights by a root finder."""
    K, d = shape
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((K, 2)) @ rng.standard_normal((2, d))
    X = rng.standard_normal((K, 12, d))
    y = np.einsum("knd,kd->kn", X, truth) + rng.standard_normal((K, 12))
    a, theta, k = (5.0 * 0.11, 0.1, 2) if isinstance(structure, Clustered) else (3.0, 0.0, 1)

    def objective(weights):
        W = weights.reshape(K, d)
        residual = np.einsum("knd,kd->kn", X, W) - y
        left, sigma, right = np.linalg.svd(W, full_matrices=False)
        sigma = np.maximum(sigma, 1e-9)
        c = brentq(lambda c: np.clip(c * sigma - theta, 0, 1).sum() - k, 0, (1 + theta) / sigma.min())
        pull = sigma / (theta + np.clip(c * sigma - theta, 0, 1))
        slope = np.einsum("knd,kn->kd", X, residual) + a * (left * pull) @ right
        return 0.5 * (residual**2).sum() + 0.5 * a * pull @ sigma, slope.ravel()

    least = minimize(objective, truth.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 5000}).fun
    rows, tasks = X.reshape(-1, d), np.repeat(np.arange(K), 12)
    free = {"loss__noise_variance": 1.0, "features": Linear(scale=False), "fit_intercept": False}
    for tol in (1e-2, 1e-4, 1e-10):
        model = MultiTaskGLM(structure, tol=tol).set_params(**free).fit(rows, y.ravel(), tasks=tasks)
        assert model.result_.status is Status.CONVERGED
        value = objective(model.result_.W)[0]
        assert model.result_.objective == pytest.approx(value, rel=1e-8)
        assert value - least <= model.result_.relative_gap * max(1.0, abs(value)) + 1e-9 * value


def test_smoothing_of_mtrl_costs_no_more_than_its_bound():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((4, 2)) @ rng.standard_normal((2, 6))  # dependent tasks
    frame = StructureScale(6, np.ones(4), np.ones(4))
    nuclear = np.linalg.svd(W, compute_uv=False).sum()
    for smoothing in (1e-8, 1e-4, 1e-2):
        structure = TaskCovariance(1.0, smoothing)
        value = structure.update(structure.moment(W, frame), structure.initial(frame), frame, 1e-9).value
        bound = 0.5 * ((nuclear + 4 * np.sqrt(6 * smoothing)) ** 2)
        assert 0.5 * nuclear**2 <= value * (1 + 1e-12) <= bound * (1 + 1e-9)


def test_as_many_clusters_as_tasks_is_a_ridge():
    data, pairs = tasks_of()
    model = fit(MultiTaskGLM(Clustered(4, alpha=2.0, spread=0.3)).set_params(**PLAIN), data)
    np.testing.assert_allclose(model.coef_, coupled_solution(pairs, 0.6 * np.eye(4)), atol=1e-6)


def test_clusters_are_found():
    data = make_clustered_tasks(random_state=0, n_tasks=6, clusters=[[0, 1, 2], [3, 4, 5]], n_features=8, spread=0.1)
    model = MultiTaskGLM(Clustered(2, alpha=50.0, spread=0.05)).fit(data.X, data.y, tasks=data.tasks)
    distance = np.linalg.norm(model.coef_[:, None] - model.coef_, axis=2)
    assert distance[:3, :3].max() < 0.3 * distance[:3, 3:].min()


@pytest.mark.parametrize("correlation", ["spearman", "kendall"])
@LAWS
@given(seeds)
def test_rank_correlations_are_those_of_scipy_and_ignore_monotone_maps(correlation, seed):
    Q = np.random.default_rng(seed).standard_normal((3, 25))
    R = rank_correlation(Q, correlation)
    if correlation == "spearman":
        plain = 2 * np.sin(np.pi * spearmanr(Q.T).statistic / 6)
    else:
        plain = np.eye(3)
        for i in range(3):
            for j in range(i):
                plain[i, j] = plain[j, i] = np.sin(np.pi * kendalltau(Q[i], Q[j]).statistic / 2)
    np.fill_diagonal(plain, 1.0)
    np.testing.assert_allclose(R, nearest_correlation(plain), atol=1e-10)
    np.testing.assert_allclose(rank_correlation(np.stack([np.exp(Q[0]), Q[1] ** 3, Q[2]]), correlation), R, atol=1e-10)


@LAWS
@given(seeds)
def test_the_nearest_correlation_is_one(seed):
    rng = np.random.default_rng(seed)
    R = np.clip(rng.uniform(-1.2, 1.2, (5, 5)), -1, 1)
    R = np.tril(R, -1) + np.tril(R, -1).T + np.eye(5)
    nearest = nearest_correlation(R)
    np.testing.assert_allclose(nearest.diagonal(), 1.0)
    assert np.linalg.eigvalsh(nearest)[0] > 0
    good = nearest_correlation(0.1 * R + 0.9 * np.eye(5))
    np.testing.assert_allclose(good, 0.1 * R + 0.9 * np.eye(5))


@pytest.mark.parametrize("correlation", ["spearman", "kendall"])
@pytest.mark.parametrize("on", ["coef", "residual"])
def test_copula_fits_settle_and_say_that_there_is_no_certificate(correlation, on):
    data = make_residual_graph(random_state=0, n_tasks=6, n_features=8, clusters=[[0, 1, 2]])
    model = MSSLRegressor(SparsePrecision(0.3, correlation=correlation), 3.0, relation=on).fit(data.X, data.y)
    assert model.result_.status is Status.SETTLED
    assert "no joint objective" in model.result_.message
    assert np.all(np.isfinite(model.coef_))


def test_ranks_find_the_graph_of_heavy_tailed_rows():
    rng = np.random.default_rng(1)
    L = np.linalg.cholesky(np.kron(np.eye(3), 0.3 * np.eye(2) + 0.7))
    Q = np.sinh(2.5 * (L @ rng.standard_normal((6, 120))))
    frame = StructureScale(120, (Q**2).mean(axis=1), 1e-6 * np.ones(6))
    inside = np.kron(np.eye(3), np.ones((2, 2))).astype(bool) & ~np.eye(6, dtype=bool)
    margins = {}
    for correlation in ("pearson", "kendall"):
        S = SparsePrecision(0.1, correlation=correlation).moment(Q, frame)
        R = np.abs(S) / np.sqrt(np.outer(S.diagonal(), S.diagonal()))
        margins[correlation] = R[inside].min() - R[~inside & ~np.eye(6, dtype=bool)].max()
    assert margins["kendall"] > max(0.1, margins["pearson"])


def clustered():
    return make_clustered_tasks(random_state=1, n_tasks=5, n_features=12, clusters=[[0, 1, 2]])


def test_forbidden_edges_stay_away_and_free_edges_come():
    data = clustered()
    names = np.unique(data.tasks)
    plain = MSSLRegressor(0.2, shared_mean=False).fit(data.X, data.y, tasks=data.tasks)
    assert plain.precision_[0, 1] != 0
    known = KnownEdges(forbidden=[(names[0], names[1])], free=[(names[3], names[4])])
    model = MSSLRegressor(SparsePrecision(1.0, edge_constraints=known), shared_mean=False).fit(
        data.X, data.y, tasks=data.tasks
    )
    assert model.precision_[0, 1] == 0
    assert model.precision_[3, 4] != 0
    assert model.graph_.n_edges == 1
    limits = MSSLRegressor(SparsePrecision(0.2, edge_constraints=known), shared_mean=False).limits(
        data.X, data.y, tasks=data.tasks
    )
    assert np.isfinite(limits.graph_penalty)


def test_edge_weights_are_multiples_of_the_price():
    data = clustered()
    everything = KnownEdges(weights=np.full((5, 5), 2.0))
    doubled = MSSLRegressor(SparsePrecision(0.15, edge_constraints=everything), tol=1e-9).fit(
        data.X, data.y, tasks=data.tasks
    )
    plain = MSSLRegressor(0.3, tol=1e-9).fit(data.X, data.y, tasks=data.tasks)
    np.testing.assert_allclose(doubled.precision_, plain.precision_, rtol=1e-3, atol=1e-3 * plain.precision_.max())
    names = np.unique(data.tasks)
    dear = KnownEdges(weights={(names[0], names[1]): 1e3})
    assert (
        MSSLRegressor(SparsePrecision(0.2, edge_constraints=dear))
        .fit(data.X, data.y, tasks=data.tasks)
        .precision_[0, 1]
        == 0
    )


def test_a_prior_graph_draws_the_learned_one():
    data = clustered()
    names = np.unique(data.tasks)
    believed = [(names[3], names[4])]
    strengths = [
        abs(
            MSSLRegressor(
                SparsePrecision(0.2, edge_constraints=KnownEdges(prior=believed, blend=blend)), shared_mean=False
            )
            .fit(data.X, data.y, tasks=data.tasks)
            .partial_correlation_[3, 4]
        )
        for blend in (0.0, 0.5, 1.0)
    ]
    assert strengths[0] <= strengths[1] <= strengths[2]
    assert strengths[2] > 0


def test_grids_join_cells_that_touch_and_close_around_the_earth():
    latitude, longitude = np.meshgrid([10.0, 20.0, 30.0], np.arange(0, 360, 90.0), indexing="ij")
    places = np.column_stack([latitude.ravel(), longitude.ravel()])
    four = GraphLaplacian(coordinates=places).weights(12)
    eight = GraphLaplacian(coordinates=places, neighbours=8).weights(12)
    assert four[0].sum() == 3  # two along the circle of latitude, one north
    assert eight[0].sum() == 5
    np.testing.assert_array_equal(four, four.T)
    west = places - [0.0, 180.0]
    np.testing.assert_array_equal(GraphLaplacian(coordinates=west).weights(12), four)
    open_grid = GraphLaplacian(coordinates=places[places[:, 1] < 200]).weights(9)
    assert open_grid[0].sum() == 2


def test_nearest_places_are_nearest_on_the_sphere():
    rng = np.random.default_rng(0)
    places = np.column_stack([rng.uniform(-80, 80, 15), rng.uniform(-180, 180, 15)])
    angles = great_circle(places)
    points = np.radians(places)
    xyz = np.stack(
        [np.cos(points[:, 0]) * np.cos(points[:, 1]), np.cos(points[:, 0]) * np.sin(points[:, 1]), np.sin(points[:, 0])]
    )
    np.testing.assert_allclose(np.cos(angles), np.clip(xyz.T @ xyz, -1, 1), atol=1e-9)
    A = GraphLaplacian(coordinates=places, nearest=3).weights(15)
    for i in range(15):
        order = np.argsort(np.where(np.arange(15) == i, np.inf, angles[i]))
        assert np.all(A[i, order[:3]] == 1)


BAD = [
    (FixedPrecision(np.array([[1.0, 0.5, 0], [0.2, 1, 0], [0, 0, 1]])), "not symmetric"),
    (FixedPrecision(np.diag([1.0, -1.0, 1.0])), "indefinite"),
    (FixedPrecision(np.eye(2)), "shape"),
    (FixedPrecision(np.full((3, 3), np.nan)), "nan at"),
    (GraphLaplacian(edges=[(0, 3)]), "out of range"),
    (GraphLaplacian(edges=[(1, 1)]), "out of range"),
    (GraphLaplacian(edges=[(0, 1, -2.0)]), "weight of an edge is -2.0; give a number ≥ 0"),
    (GraphLaplacian(edges=[(0,)]), r"give \(i, j\) or"),
    (GraphLaplacian(), "give one of"),
    (GraphLaplacian(edges=[(0, 1)], adjacency=np.eye(3)), "give one of"),
    (GraphLaplacian(adjacency=np.triu(np.ones((3, 3)))), "symmetric"),
    (GraphLaplacian(adjacency=np.eye(2)), "3 tasks"),
    (GraphLaplacian(-1.0, edges=[(0, 1)]), "above 0"),
    (GraphLaplacian(coordinates=[[95.0, 0], [0, 0], [1, 1]]), "out of range"),
    (GraphLaplacian(coordinates=[[0.0, 400], [0, 0], [1, 1]]), "out of range"),
    (GraphLaplacian(coordinates=[[0.0, 0], [1, 1]]), "3 tasks"),
    (GraphLaplacian(coordinates=[[0.0, 0], [1, 1], [1.7, 2]]), "regular grid"),
    (GraphLaplacian(coordinates=[[0.0, 0], [0, 0], [1, 2]]), "same coordinates"),
    (GraphLaplacian(coordinates=[[0.0, 0], [1, 1], [2, 2]], neighbours=6), "4 and 8"),
    (GraphLaplacian(coordinates=[[0.0, 0], [1, 1], [2, 2]], nearest=3), "from 1 to 2"),
    (MeanRegularized(0.0), "above 0"),
    (MeanRegularized(1.0, -1.0), "≥ 0"),
    (Pooled(-1.0), "≥ 0"),
    (TaskCovariance(np.nan), "above 0"),
    (TaskCovariance(1.0, 0.0), "above 0"),
    (Clustered(4), "from 1 to 3"),
    (Clustered(0), "from 1 to 3"),
    (Clustered(2, spread=0.0), "above 0"),
    (SparsePrecision(correlation="rank"), "spearman"),
    (SparsePrecision(edge_constraints=KnownEdges(forbidden=[(0, 5)])), "out of range"),
    (SparsePrecision(edge_constraints=KnownEdges(forbidden=[0, 1])), "an edge joins two"),
    (SparsePrecision(edge_constraints=KnownEdges(free=["01"])), "an edge joins two"),
    (SparsePrecision(edge_constraints=KnownEdges(forbidden=[(0, 1)], free=[(1, 0)])), "both forbidden and free"),
    (SparsePrecision(edge_constraints=KnownEdges(weights=-np.ones((3, 3)))), "≥ 0"),
    (SparsePrecision(edge_constraints=KnownEdges(prior=[(0, 1)], blend=2.0)), "from 0 to 1"),
    (Independent(-1.0), "≥ 0"),
    (Independent("a"), "alpha is 'a'; give finite numbers"),
    (FixedPrecision({}), "precision is {}; give finite numbers"),
    (TaskCovariance("a"), "above 0"),
    (GraphLaplacian(edges=5), "edges is 5; give a list of pairs"),
    (GraphLaplacian(edges=[1, 2]), r"give \(i, j\) or"),
    (GraphLaplacian(adjacency="a"), "adjacency is 'a'; give finite numbers"),
    (GraphLaplacian(coordinates=[1, "b"]), "coordinates is"),
    (SparsePrecision(edge_constraints=KnownEdges(prior=5)), "prior is 5; give a list of pairs"),
    (
        SparsePrecision(edge_constraints=KnownEdges(weights="a")),
        "weights is 'a'; give finite numbers.*Or give a mapping",
    ),
    (SparsePrecision(edge_constraints=KnownEdges(weights={(0, 1): "a"})), "a weight is 'a'; give a number ≥ 0"),
]


@pytest.mark.parametrize(("structure", "words"), BAD)
def test_bad_structures_are_refused_with_advice(structure, words):
    rng = np.random.default_rng(0)
    with pytest.raises(ParameterError, match=words):
        MultiTaskGLM(structure).fit(rng.standard_normal((10, 2)), rng.standard_normal((10, 3)))


def test_penalties_that_tie_tasks_together_need_weights_of_their_own():
    data, _ = tasks_of(layout="shared")
    with pytest.raises(ParameterError, match="single weights"):
        MultiTaskGLM(Pooled(1.0), L21(1.0)).fit(*data[:2])


def test_unknown_task_names_in_known_edges_are_refused():
    data = clustered()
    with pytest.raises(ParameterError, match="not a task of these data"):
        MSSLRegressor(SparsePrecision("auto", edge_constraints=KnownEdges(free=[("task 1", "Atlantis")]))).fit(
            data.X, data.y, tasks=data.tasks
        )


@pytest.mark.parametrize("name", ["forbidden", "free", "prior"])
def test_what_is_no_list_of_edges_is_refused(name):
    data = clustered()
    for value, words in ((5, f"{name} is 5; give a list of pairs"), ([(["a"], "b")], "not a task of these data")):
        with pytest.raises(ParameterError, match=words) as caught:
            MSSLRegressor(SparsePrecision("auto", edge_constraints=KnownEdges(**{name: value}))).fit(
                data.X, data.y, tasks=data.tasks
            )
        assert "np.str_" not in str(caught.value)


@pytest.mark.parametrize("edges", [[(0, 1)], "0-1", {"forbidden": [(0, 1)]}, np.eye(3), KnownEdges])
def test_edges_of_another_type_are_refused_with_the_call_to_make(edges):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2)), rng.standard_normal((20, 3))
    refused = []
    for attempt in (
        lambda: MSSLRegressor(SparsePrecision("auto", edge_constraints=edges)).fit(X, y),
        lambda: MSSLRegressor(SparsePrecision("auto", edge_constraints=edges)).limits(X, y),
        lambda: MultiTaskGLM(SparsePrecision(edge_constraints=edges)).fit(X, y),
    ):
        with pytest.raises(ParameterError, match=f"of type {type(edges).__name__}; give a KnownEdges") as caught:
            attempt()
        refused.append(str(caught.value))
    call = refused[0].split("An example is ")[1].split(", from mssl.structures")[0]
    known = eval(call)  # what the message says to write works as it stands
    MSSLRegressor(SparsePrecision("auto", edge_constraints=known)).fit(X, y)


def test_classification_with_a_structure_on_residuals_is_refused():
    data, _ = tasks_of(layout="shared")
    with pytest.raises(ParameterError, match="bernoulli"):
        MultiTaskClassifier(SparsePrecision(on="residual")).fit(data[0], (data[1] > 1).astype(int))


@pytest.mark.parametrize("structure", [*GIVEN.values(), Pooled(1.0), *LEARNED.values()])
def test_permuting_tasks_permutes_the_answer(structure):
    (X, y, _), _ = tasks_of(seed=4)
    order = np.array([2, 0, 3, 1])
    back = np.argsort(order)
    moved = clone(structure)
    if isinstance(structure, FixedPrecision):
        moved.set_params(precision=structure.precision[np.ix_(order, order)])
    elif isinstance(structure, GraphLaplacian):
        moved.set_params(edges=[(back[e[0]], back[e[1]], *e[2:]) for e in structure.edges])
    elif np.ndim(getattr(structure, "alpha", 0)) == 1:
        moved.set_params(alpha=np.asarray(structure.alpha)[order])
    tight = {"tol": 1e-8, "max_iter": 2000}
    plain = MultiTaskGLM(clone(structure), **tight).fit(X, y).coef_
    answer = MultiTaskGLM(moved, **tight).fit(X[:, order], y[:, order]).coef_
    np.testing.assert_allclose(answer, plain[order], atol=1e-3)


def test_the_names_of_version_0_1_answer_with_a_warning():
    import mssl.structures

    with pytest.warns(FutureWarning, match="StructureScale"):
        assert mssl.structures.Frame is StructureScale
    data, _ = tasks_of()
    model = fit(MultiTaskGLM(Independent(1.0)), data)
    with pytest.warns(FutureWarning, match="scale"):
        assert model.result_.frame is model.result_.scale


@pytest.mark.parametrize(("K", "d", "expected"), [(4, 6, 1 / 8), (10, 8, 1 / 8), (12, 3, 0.4)])
def test_the_automatic_variance_floor_grows_with_tasks_per_feature(K, d, expected):
    data, _ = tasks_of(1, K=K, d=d, layout="long")
    fits = [fit(MSSLRegressor(SparsePrecision(0.2, variance_floor=floor)), data) for floor in ("auto", expected)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    np.testing.assert_array_equal(fits[0].precision_, fits[1].precision_)
    other = fit(MSSLRegressor(SparsePrecision(0.2, variance_floor=1.5 * expected)), data)
    assert np.abs(other.coef_ - fits[0].coef_).max() > 1e-6


def test_floors_are_auto_or_numbers_above_zero():
    data, _ = tasks_of(1, layout="long")
    for wrong in ("big", None, -1.0):
        with pytest.raises(ParameterError, match=r"variance_floor is .*give a number above 0, or 'auto'"):
            fit(MSSLRegressor(SparsePrecision("auto", variance_floor=wrong)), data)
    grid = MSSLRegressorCV(
        param_grid={
            "graph_penalty": [0.3],
            "coef_penalty": [0.0],
            "prior_strength": [1.0],
            "shared_mean": [False],
            "graph_penalty__variance_floor": ["auto", 0.5],
        },
        search="grid",
        cv=2,
    )
    assert {p["graph_penalty__variance_floor"] for p in fit(grid, data).cv_results_["params"]} == {"auto", 0.5}
