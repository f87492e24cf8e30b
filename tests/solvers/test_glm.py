"""Laws of the weight step with any loss: reductions, derivatives, certificates, invariances, and hard data."""

import warnings

import numpy as np
import pytest
from benchmarks.reference import quadratic_gap
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor

from mssl import MSSLClassifier, MSSLRegressor, MultiTaskClassifier, MultiTaskGLM
from mssl.data.layouts import read_tasks
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import DataError, ParameterError
from mssl.features import Linear
from mssl.losses import resolve_loss
from mssl.model.coupling import Coupling
from mssl.paper import PaperMSSL, PaperMSSLClassifier
from mssl.penalties import L1, EntrywisePenalty
from mssl.solvers.base import Status
from mssl.solvers.descent import coordinate_descent, descend_on_support
from mssl.solvers.fit import Settings, build_design, fit_prepared, prepare
from mssl.solvers.glm import GLMLoss, GLMRows
from mssl.solvers.quadratic import Quadratic, StepProblem
from mssl.solvers.weights import CoefficientProblem
from mssl.structures import FixedPrecision, Independent

LOSS_NAMES = ["bernoulli", "poisson", "gamma"]
PLAIN = {"loss__noise_variance": 1.0, "features": Linear(scale=False), "tol": 1e-13}


def draw_targets(name: str, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if name == "bernoulli":
        return (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)
    if name == "poisson":
        return rng.poisson(np.exp(eta)).astype(float)
    return rng.gamma(2.0, np.exp(eta) / 2.0)


def draw(name: str, sizes=(30, 22, 41), d: int = 4, seed: int = 0):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(tasks), d)) + 0.5
    W = 0.6 * rng.normal(size=(len(sizes), d))
    eta = np.einsum("nd,nd->n", X, W[tasks]) + 0.3
    return X, draw_targets(name, eta, rng), tasks


def make_problem(name: str, *, threshold: float = 0.0, solver: str = "auto", budget: int | None = None, **shape):
    X, y, tasks = draw(name, **shape)
    data = read_tasks(X, y, tasks=tasks, sample_weight=np.random.default_rng(1).uniform(0.5, 2.0, size=len(y)))
    design = build_design(data, Settings())
    rows = GLMRows.build(data, design, resolve_loss(name), memory_limit=budget)
    K = data.n_tasks
    s = np.linspace(0.5, 1.5, K)
    penalty = EntrywisePenalty.of(threshold * np.sqrt(s), (K, rows.design.n_features))
    return CoefficientProblem(penalty, source=GLMLoss(rows, s), solver=solver)


def coupled(K: int, mean_variance: float = 0.0) -> Coupling:
    precision = 2.0 * np.eye(K) - 0.6 * (np.eye(K, k=1) + np.eye(K, k=-1))
    return Coupling(precision, np.linalg.inv(precision), mean_variance)


def laplacian(K: int) -> Coupling:
    L = np.eye(K) - np.ones((K, K)) / K
    return Coupling(L)


def objective(problem: CoefficientProblem, coupling: Coupling, W: np.ndarray) -> float:
    return problem.value(W) + coupling.value(W)


# Reductions to scikit-learn


@pytest.mark.parametrize("alpha", [0.3, 5.0])
@pytest.mark.parametrize("solver", ["auto", "coordinate", "fista"])
def test_independent_tasks_are_logistic_regressions(alpha, solver):
    X, y, tasks = draw("bernoulli")
    model = MultiTaskGLM(Independent(alpha), loss="bernoulli", solver=solver).set_params(**PLAIN).fit(X, y, tasks=tasks)
    for k in range(3):
        own = tasks == k
        single = LogisticRegression(C=1 / alpha, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
        single.fit(X[own], y[own])
        np.testing.assert_allclose(model.coef_[k], single.coef_[0], atol=1e-6)
        np.testing.assert_allclose(model.intercept_[k], single.intercept_[0], atol=1e-6)


@pytest.mark.parametrize(("ridge", "lasso"), [(0.0, 2.0), (1.5, 1.5)])
def test_sparse_logistic_regression(ridge, lasso):
    X, y, _ = draw("bernoulli", sizes=(80,), d=6)
    model = MultiTaskGLM(Independent(ridge), L1(lasso), loss="bernoulli").set_params(**PLAIN).fit(X, y)
    total = ridge + lasso
    single = LogisticRegression(l1_ratio=lasso / total, C=1 / total, solver="saga", tol=1e-10, max_iter=100_000)
    single.fit(X, y)
    np.testing.assert_allclose(model.coef_, single.coef_, atol=1e-6)
    assert np.array_equal(model.coef_ == 0, np.abs(single.coef_) < 1e-12)


@pytest.mark.parametrize(("name", "rival"), [("poisson", PoissonRegressor), ("gamma", GammaRegressor)])
def test_independent_tasks_are_log_linear_regressions(name, rival):
    X, y, tasks = draw(name)
    model = MultiTaskGLM(Independent(2.0), loss=name).set_params(**PLAIN).fit(X, y, tasks=tasks)
    for k in range(3):
        own = tasks == k
        single = rival(alpha=2.0 / own.sum(), tol=1e-12, max_iter=1000, solver="newton-cholesky").fit(X[own], y[own])
        np.testing.assert_allclose(model.coef_[k], single.coef_, atol=1e-6)
        np.testing.assert_allclose(model.predict(X[own], tasks=tasks[own]), single.predict(X[own]), rtol=1e-6)


def test_gaussian_loss_through_newton_is_the_gaussian_fit():
    X, y, tasks = draw("poisson")
    structure = FixedPrecision(coupled(3).precision)
    data = read_tasks(X, y, tasks=tasks)
    config = Settings(noise=1.0, tol=1e-12)
    direct = fit_prepared(prepare(data, resolve_loss("gaussian"), config), structure, L1(1.0))
    rows = GLMRows.build(data, build_design(data, config), resolve_loss("gaussian"))
    penalty = EntrywisePenalty(np.ones((3, rows.design.n_features)))
    problem = CoefficientProblem(penalty, source=GLMLoss(rows, np.ones(3)))
    step = problem.solve(structure.couple(structure.initial(direct.scale)), 0 * direct.W, tol=1e-12, max_iter=50)
    np.testing.assert_allclose(step.W, direct.W, atol=1e-6)
    np.testing.assert_allclose(problem.intercepts(step.W), direct.intercepts, atol=1e-8)


# The problem itself


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_gradient_of_the_profile_matches_differences(name):
    problem = make_problem(name)
    rng = np.random.default_rng(3)
    W, V = 0.3 * rng.normal(size=(2, 3, 4))
    slope = problem.loss.gradient(W)
    h = 1e-5
    difference = (problem.value(W + h * V) - problem.value(W - h * V)) / (2 * h)
    assert np.vdot(slope, V) == pytest.approx(difference, rel=1e-6)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_intercepts_balance_every_task(name):
    problem = make_problem(name)
    W = 2.0 * np.random.default_rng(4).normal(size=(3, 4))
    point = problem.loss.evaluate(W)
    rows = problem.source.rows
    terms = rows.weights * rows.loss.gradient(rows.y, point.eta)
    np.testing.assert_allclose(rows.design.task_sums(terms), 0.0, atol=1e-10 * np.abs(terms).sum())


@settings(deadline=None, max_examples=30)
@given(size=st.floats(0, 1e6), seed=st.integers(0, 100))
def test_logistic_intercepts_are_found_from_anywhere(size, seed):
    rng = np.random.default_rng(seed)
    problem = make_problem("bernoulli")
    rows = problem.source.rows
    predictor = size * rng.normal(size=len(rows.y))
    b = rows.best_intercepts(predictor, rng.normal(size=3) * size)
    assert np.all(np.isfinite(b))
    best = rows.design.task_sums(rows.weights * rows.loss.value(rows.y, predictor + rows.design.per_task(b)))
    for shift in (-1e-3, 1e-3):
        other = predictor + rows.design.per_task(b + shift * (1 + np.abs(b)))
        worse = rows.design.task_sums(rows.weights * rows.loss.value(rows.y, other))
        assert np.all(best <= worse + 1e-9 * (1 + np.abs(worse)))


@pytest.mark.parametrize("name", LOSS_NAMES)
@pytest.mark.parametrize("threshold", [0.0, 1.5])
@pytest.mark.parametrize("couple", [coupled, lambda K: coupled(K, 0.5), laplacian])
def test_certificate_bounds_the_true_suboptimality(name, threshold, couple):
    problem, coupling = make_problem(name, threshold=threshold), couple(3)
    best = problem.solve(coupling, np.zeros((3, 4)), tol=1e-10, max_iter=500)
    least = objective(problem, coupling, best.W)
    rng = np.random.default_rng(5)
    if coupling.covariance is None and threshold == 0:
        assert best.status is Status.CONVERGED  # a relative gradient norm bounds nothing
        return
    for size in (0.0, 1e-3, 0.03, 0.3):
        W = best.W + size * rng.normal(size=best.W.shape)
        step = problem.step(coupling)
        gap = step.certificate(W, step.gradient(W))
        assert objective(problem, coupling, W) - least <= gap * (1 + 1e-9) + 1e-10


@pytest.mark.parametrize("name", LOSS_NAMES)
@pytest.mark.parametrize("threshold", [0.0, 1.5])
def test_all_solvers_find_the_same_minimum(name, threshold):
    coupling, found = coupled(3, 0.3), []
    for solver in ["auto", "coordinate", "fista"] + (["cg"] if threshold == 0 else []):
        problem = make_problem(name, threshold=threshold, solver=solver)
        step = problem.solve(coupling, np.zeros((3, 4)), tol=1e-9, max_iter=5000)
        assert step.status is Status.CONVERGED
        assert step.gap <= 1e-9
        found.append(step.W)
    for W in found[1:]:
        np.testing.assert_allclose(W, found[0], atol=2e-4)
        assert objective(problem, coupling, W) == pytest.approx(objective(problem, coupling, found[0]), abs=3e-9)


@pytest.mark.filterwarnings("ignore:Grams would take")
@pytest.mark.parametrize("name", LOSS_NAMES)
@pytest.mark.parametrize("threshold", [0.0, 1.5])
def test_features_and_grams_give_the_same_weights(name, threshold):
    coupling = coupled(3)
    steps = [
        make_problem(name, threshold=threshold, budget=budget).solve(coupling, np.zeros((3, 4)), tol=1e-11, max_iter=99)
        for budget in (None, 0)
    ]
    np.testing.assert_allclose(steps[0].W, steps[1].W, atol=1e-5)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_far_starts_come_home(name):
    problem, coupling = make_problem(name), coupled(3)
    home = problem.solve(coupling, np.zeros((3, 4)), tol=1e-9, max_iter=99).W
    for size in (3.0, 30.0):
        far = size * np.random.default_rng(6).normal(size=(3, 4))
        step = problem.solve(coupling, far, tol=1e-9, max_iter=500)
        assert step.status is Status.CONVERGED
        np.testing.assert_allclose(step.W, home, atol=1e-4)


def test_tasks_without_any_penalty_are_maximum_likelihood():
    X, y, tasks = draw("poisson")
    model = MultiTaskGLM(Independent(0.0), loss="poisson", features=Linear(scale=False), tol=1e-10)
    model.fit(X, y, tasks=tasks)
    own = tasks == 0
    single = PoissonRegressor(alpha=0, tol=1e-12, max_iter=1000, solver="newton-cholesky").fit(X[own], y[own])
    np.testing.assert_allclose(model.coef_[0], single.coef_, atol=1e-5)


# The whole fit


def mssl(loss, **parameters):
    classes = loss == "bernoulli"
    return MSSLClassifier(0.1, **parameters) if classes else MSSLRegressor(0.1, loss=loss, **parameters)


def fit(name: str, X, y, tasks, weight=None, **parameters):
    model = mssl(name, **({"tol": 1e-8, "max_iter": 1000} | parameters))
    return model.fit(X, y, tasks=tasks, sample_weight=weight)


@pytest.mark.parametrize("name", LOSS_NAMES)
@pytest.mark.parametrize("coef_penalty", [0.0, 1.0])
def test_objective_never_rises(name, coef_penalty):
    X, y, tasks = draw(name)
    model = fit(name, X, y, tasks, coef_penalty=coef_penalty)
    values = np.array([record.objective for record in model.history_])
    assert np.all(np.diff(values) <= 1e-11 * np.abs(values[:-1]))
    assert model.result_.status is Status.CONVERGED


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_predictions_sum_to_the_targets(name):
    X, y, tasks = draw(name)
    model = fit(name, X, y, tasks)
    prediction = model.predict_proba(X, tasks=tasks)[:, 1] if name == "bernoulli" else model.predict(X, tasks=tasks)
    for k in range(3):
        assert prediction[tasks == k].sum() == pytest.approx(y[tasks == k].sum(), rel=1e-9)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_order_of_tasks_and_rows_does_not_matter(name):
    X, y, tasks = draw(name)
    model = fit(name, X, y, tasks)
    rename = np.array([2, 0, 1])
    order = np.random.default_rng(7).permutation(len(y))
    other = fit(name, X[order], y[order], rename[tasks][order])
    np.testing.assert_allclose(other.coef_[rename], model.coef_, atol=1e-4)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_weight_two_is_the_row_given_twice(name):
    X, y, tasks = draw(name)
    twice = np.r_[np.arange(len(y)), np.flatnonzero(tasks == 1)]
    model = fit(name, X, y, tasks, weight=np.where(tasks == 1, 2.0, 1.0))
    other = fit(name, X[twice], y[twice], tasks[twice])
    np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-4)
    np.testing.assert_allclose(other.noise_variance_, model.noise_variance_, rtol=2e-6)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_units_of_features_do_not_matter(name):
    X, y, tasks = draw(name)
    units = np.array([1e-3, 1.0, 50.0, 1e4])
    model, other = fit(name, X, y, tasks), fit(name, X * units + 3.0, y, tasks)
    np.testing.assert_allclose(other.coef_ * units, model.coef_, atol=1e-5)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_sparse_features_are_the_dense_ones(name):
    X, y, tasks = draw(name)
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    model, other = fit(name, X, y, tasks), fit(name, sparse.csr_array(X), y, tasks)
    np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-6)


def test_one_design_for_all_tasks_is_its_long_form():
    rng = np.random.default_rng(8)
    X, W = rng.normal(size=(60, 4)), 0.5 * rng.normal(size=(3, 4))
    Y = rng.poisson(np.exp(X @ W.T))
    shared = MSSLRegressor(0.1, loss="poisson", tol=1e-8).fit(X, Y)
    long = fit("poisson", np.tile(X, (3, 1)), Y.T.ravel(), np.repeat(np.arange(3), 60))
    np.testing.assert_allclose(shared.coef_, long.coef_, atol=1e-5)
    assert shared.predict(X).shape == (60, 3)


def test_gamma_dispersion_is_found():
    rng = np.random.default_rng(9)
    shape = np.array([0.5, 2.0, 8.0])
    tasks = np.repeat(np.arange(3), 1500)
    X = rng.normal(size=(4500, 4))
    eta = X @ np.array([0.3, -0.2, 0.1, 0.0]) + 1
    y = rng.gamma(shape[tasks], np.exp(eta) / shape[tasks])
    model = MSSLRegressor(loss="gamma").fit(X, y, tasks=tasks)
    np.testing.assert_allclose(model.noise_variance_, 1 / shape, rtol=0.25)
    for k in range(3):
        own = tasks == k
        mean = GammaRegressor(alpha=0, tol=1e-10, max_iter=1000).fit(X[own], y[own]).predict(X[own])
        assert model.noise_variance_[k] == pytest.approx(np.sum((y[own] / mean - 1) ** 2) / 1495, rel=0.01)
    scaled = MSSLRegressor(loss="gamma").fit(X, 1e50 * y, tasks=tasks)
    np.testing.assert_allclose(scaled.coef_, model.coef_, atol=1e-6)
    np.testing.assert_allclose(scaled.intercept_, model.intercept_ + 50 * np.log(10), atol=1e-6)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_weights_vanish_from_the_limit_on(name):
    X, y, tasks = draw(name)
    limit = mssl(name).limits(X, y, tasks=tasks).coef_penalty
    assert np.all(fit(name, X, y, tasks, coef_penalty=1.001 * limit).coef_ == 0)
    assert np.any(fit(name, X, y, tasks, coef_penalty=0.98 * limit).coef_ != 0)


def test_paper_formulation_minimises_the_literal_objective():
    data = make_clustered_tasks(family="poisson", n_features=6, amplitude=0.3, random_state=0)
    K, d = 13, 6
    model = PaperMSSL(0.8, 0.3, loss="poisson", tol=1e-9, max_iter=2000)
    model.fit(data.X, data.y, tasks=data.tasks)

    def literal(coef, intercept, precision):
        index = np.searchsorted(model.tasks_, data.tasks)
        eta = np.einsum("nd,nd->n", data.X, coef[index]) + intercept[index]
        loss = np.sum(np.exp(eta) - data.y * eta)
        prior = 0.5 * np.trace(coef.T @ precision @ coef) - K / 2 * np.linalg.slogdet(precision)[1]
        return loss + prior + 0.8 * np.abs(precision).sum() + 0.3 * np.abs(coef).sum()

    best = literal(model.coef_, model.intercept_, model.precision_)
    rng = np.random.default_rng(1)
    assert d == model.coef_.shape[1]
    for size in (1e-4, 1e-2):
        for _ in range(10):
            shift = size * rng.normal(size=model.coef_.shape)
            assert literal(model.coef_ + shift, model.intercept_, model.precision_) >= best - 1e-5
            bump = size * np.diag(rng.normal(size=K)) * np.diag(model.precision_).min()
            assert literal(model.coef_, model.intercept_, model.precision_ + bump) >= best - 1e-5


def test_both_logistic_objectives_of_the_paper_are_those_it_prints():
    """Equation 16 (half the loss, the whole trace) and 17: F is a multiple of the printed sum, which no move lowers."""
    X, y, tasks = draw("bernoulli")
    rng, K = np.random.default_rng(2), len(np.unique(tasks))

    def printed(coef, intercept, precision, lam, gamma, halved):
        index = np.searchsorted(np.unique(tasks), tasks)
        eta = np.einsum("nd,nd->n", X, coef[index]) + intercept[index]
        loss, trace = np.sum(np.logaddexp(0, eta) - y * eta), np.trace(coef.T @ precision @ coef)
        sizes = lam * np.abs(precision).sum() + gamma * np.abs(coef).sum()
        smooth = 0.5 * loss + trace if halved else loss + 0.5 * trace
        return smooth - K / 2 * np.linalg.slogdet(precision)[1] + sizes

    for form, halved in (("printed", True), ("bound", False)):
        differences = []
        for lam, gamma in ((0.8, 0.3), (2.0, 0.1)):
            model = PaperMSSLClassifier(lam, gamma, logistic=form, tol=1e-9, max_iter=2000).fit(X, y, tasks=tasks)
            fitted = (model.coef_, model.intercept_, model.precision_)
            best = printed(*fitted, lam, gamma, halved)
            differences.append(model.objective_ - (2 if halved else 1) * best)
            for size in (1e-4, 1e-2):
                coef = fitted[0] + size * rng.normal(size=fitted[0].shape)
                bump = size * np.diag(rng.normal(size=K)) * np.diag(fitted[2]).min()
                assert printed(coef, *fitted[1:], lam, gamma, halved) >= best - 1e-5
                assert printed(*fitted[:2], fitted[2] + bump, lam, gamma, halved) >= best - 1e-5
        assert differences[0] == pytest.approx(differences[1], abs=1e-4)
    with pytest.raises(ParameterError, match="logistic is 'other'"):
        PaperMSSLClassifier(logistic="other").fit(X, y, tasks=tasks)


def test_warm_start_needs_fewer_rounds():
    X, y, tasks = draw("bernoulli")
    model = MSSLClassifier(0.1, warm_start=True).fit(X, y, tasks=tasks)
    rounds, coef = model.n_iter_, model.coef_
    model.fit(X, y, tasks=tasks)
    assert model.n_iter_ <= max(rounds // 2, 1)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-2)


# Hard data: a certified fit, or a warning that says why


def hard(parameters, X, y, tasks):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = mssl(**parameters).fit(X, y, tasks=tasks)
    assert all(issubclass(w.category, ConvergenceWarning | UserWarning) for w in caught), [str(w) for w in caught]
    told = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    assert model.result_.status is Status.CONVERGED or told
    for part in (model.coef_, model.intercept_, model.precision_, model.objective_):
        assert np.all(np.isfinite(part))
    return model


@pytest.mark.parametrize("coef_penalty", [0.0, 1.0])
def test_separable_classes(coef_penalty):
    X, _, tasks = draw("bernoulli")
    model = hard({"loss": "bernoulli", "coef_penalty": coef_penalty}, X, (X[:, 0] > 0.5).astype(float), tasks)
    assert np.mean((model.predict(X, tasks=tasks) > 0.5) == (X[:, 0] > 0.5)) > 0.95


@pytest.mark.parametrize("solver", ["auto", "fista"])
def test_tasks_without_any_count(solver):
    X, y, tasks = draw("poisson")
    y = np.where(tasks == 1, 0.0, y)
    with pytest.warns(UserWarning, match=r"All targets of 1 tasks are 0 \(tasks 1\)"):
        model = MSSLRegressor(0.1, loss="poisson", solver=solver, max_iter=500).fit(X, y, tasks=tasks)
    assert np.all(np.isfinite(model.coef_))
    assert model.predict(X, tasks=tasks)[tasks == 1].sum() < 1.0
    with pytest.warns(UserWarning, match="All targets of 3 tasks are 0"):
        nothing = MSSLRegressor(0.1, loss="poisson").fit(X, 0 * y, tasks=tasks)
    np.testing.assert_allclose(nothing.coef_, 0.0, atol=1e-12)


@pytest.mark.parametrize("coef_penalty", [0.0, 1.0])
@pytest.mark.parametrize("spoil", ["all", "one", "task"])
def test_huge_counts(spoil, coef_penalty):
    X, y, tasks = draw("poisson")
    if spoil == "all":
        y = np.round(3e6 * (y + 1))
    elif spoil == "one":
        y[3] = 3e6
    else:
        y = np.where(tasks == 0, 1e6 * (y + 1), y)
    hard({"loss": "poisson", "coef_penalty": coef_penalty}, X, y, tasks)


@pytest.mark.parametrize("name", LOSS_NAMES)
@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_tiny_and_huge_features(name, unit):
    X, y, tasks = draw(name)
    model, plain = hard({"loss": name}, X * unit, y, tasks), hard({"loss": name}, X, y, tasks)
    np.testing.assert_allclose(model.coef_ * unit, plain.coef_, atol=1e-3)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_curvature_over_many_orders_of_magnitude(name):
    X, y, tasks = draw(name)
    X[0] = 1e4
    hard({"loss": name, "coef_penalty": 1.0}, X, y, tasks)
    hard(
        {"loss": name, "features": Linear(scale=False), "coef_penalty": 0.1}, X * 10.0 ** np.arange(-4, 4, 2), y, tasks
    )


def test_gamma_targets_far_apart():
    X, y, tasks = draw("gamma")
    for value in (1e-12, 1e12):
        y[5] = value
        hard({"loss": "gamma"}, X, y, tasks)


@pytest.mark.parametrize(("name", "value"), [("poisson", -1.0), ("gamma", 0.0), ("bernoulli", 0.5)])
def test_targets_out_of_range_are_refused(name, value):
    X, y, tasks = draw(name)
    y[7] = value
    with pytest.raises(DataError, match=f"1 targets are out of range for the {name} loss"):
        MultiTaskGLM(loss=name).fit(X, y, tasks=tasks)


def test_jumps_on_the_support_pass_through_valleys():
    rng = np.random.default_rng(0)
    K, d = 3, 12
    # Eigenvalues over eight orders of magnitude, in directions that no axis follows.
    bases = np.linalg.qr(rng.normal(size=(K, d, d)))[0]
    gram = np.einsum("kij,j,klj->kil", bases, np.logspace(4, -4, d), bases)
    loss = Quadratic(gram, rng.normal(size=(K, d)), np.zeros(K))
    coupling, threshold = Coupling.diagonal_only(np.full(K, 1e-4)), np.full(K, 0.3)
    step = descend_on_support(StepProblem.of(loss, coupling, threshold), np.zeros((K, d)), tol=1e-9, max_iter=2000)
    assert step.status is Status.CONVERGED
    assert quadratic_gap(loss, step.W, coupling, threshold) <= 1e-9
    crawl = coordinate_descent(StepProblem.of(loss, coupling, threshold), np.zeros((K, d)), tol=1e-9, max_iter=200)
    assert StepProblem.of(loss, coupling, threshold).value(step.W) <= StepProblem.of(loss, coupling, threshold).value(
        crawl.W
    )
    W = step.W
    G = loss.gradient(W) + coupling.dot(W)
    assert np.all(np.abs(G[W == 0]) <= 0.3 + 1e-6)
    np.testing.assert_allclose(G[W != 0], -0.3 * np.sign(W[W != 0]), atol=1e-4)


def test_sparse_counts_over_many_orders_of_magnitude_are_certified():
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(3), 100)
    X = rng.normal(size=(300, 10)) * np.exp(rng.normal(size=(300, 1)))
    y = rng.poisson(np.exp(np.clip(X @ rng.normal(size=10) / 3, -12, 12))).astype(float)
    model = MSSLRegressor(0.2, 2.0, loss="poisson").fit(X, y, tasks=tasks)
    assert model.result_.status is Status.CONVERGED


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_without_prior_and_penalty_a_converged_fit_has_nothing_left_to_gain(size):
    """Separable labels, whose loss has no minimum but an infimum of zero, and one row far larger than all others."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((25, 4)) * np.where(np.arange(25) == 0, size, 1.0)[:, None]
    separable = (X @ [1.0, -1.0, 0.5, 0.0] > 0).astype(int)
    noisy = (X[:, 0] / np.abs(X[:, 0]).max() + 0.3 * rng.standard_normal(25) > 0).astype(int)
    for y in (separable, noisy):
        for tol in (1e-3, 1e-6):
            result = MultiTaskClassifier(Independent(0.0), tol=tol).fit(X, y, tasks=np.zeros(25)).result_
            best = MultiTaskClassifier(Independent(1e-13), tol=1e-12).fit(X, y, tasks=np.zeros(25)).result_
            if result.status is Status.CONVERGED:
                assert result.objective <= best.objective + 2 * result.relative_gap + 1e-9
                assert result.relative_gap <= tol
