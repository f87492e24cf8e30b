"""Steps that Grams have no digits for: the same answers where both work, the right ones where only rows do."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from mssl import MSSLRegressor, MultiTaskGLM
from mssl.data.design import Design
from mssl.exceptions import DataError, ParameterError
from mssl.features import Linear
from mssl.losses import Gaussian
from mssl.model.coupling import Coupling, positive_definite_inverse
from mssl.paper import PaperMSSL
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import Status
from mssl.solvers.linear import solve_exactly
from mssl.solvers.quadratic import MOST_UNKNOWNS, Quadratic, StepProblem, make_quadratic
from mssl.solvers.weights import CoefficientProblem
from mssl.structures import Independent


def rows(random, K=3, d=4, n=9):
    """A quadratic loss by its rows."""
    design = Design.build(random.standard_normal((K * n, d)), [k * n for k in range(K + 1)], scale=False)
    return Quadratic.of_rows(design, random.uniform(0.5, 2.0, K * n), random.standard_normal(K * n))


def couplings(random, K=3):
    root = random.standard_normal((K, K + 2))
    P = root @ root.T
    yield Coupling(P, positive_definite_inverse(P))
    yield Coupling(P, positive_definite_inverse(P), 2.5)
    yield Coupling.diagonal_only(np.full(K, 0.3), 1e3)
    yield Coupling(P, positive_definite_inverse(P), 1e150)  # as good as infinite
    yield Coupling(np.eye(K) * K - np.ones((K, K)))  # singular: a Laplacian
    yield Coupling.diagonal_only(np.zeros(K))


@pytest.mark.parametrize("with_ridge", [False, True])
def test_it_is_the_solution_of_the_normal_equations(with_ridge):
    """Where these are well conditioned, whatever the form of the loss and of the coupling."""
    random = np.random.default_rng(0)
    loss, ridge = rows(random), np.array([0.0, 0.5, 2.0]) if with_ridge else None
    whole = loss.replaced(by_rows=False)
    grams = Quadratic(whole.gram, whole.linear, whole.constants)
    for coupling in (replace(coupling, ridge=ridge) for coupling in couplings(random)):
        system = np.kron(coupling.dense(), np.eye(4))
        for k in range(3):
            system[4 * k : 4 * k + 4, 4 * k : 4 * k + 4] += whole.gram[k]
        expected = np.linalg.solve(system, whole.linear.ravel()).reshape(3, 4)
        for problem in (loss, whole, grams):
            step = solve_exactly(StepProblem.of(problem, coupling), tol=1e-12)
            assert step is not None
            assert step.status is Status.CONVERGED
            np.testing.assert_allclose(step.W, expected, rtol=1e-9, atol=1e-11)


def test_its_bound_holds_where_the_curved_one_is_rounding():
    """Nearly collinear features, a signal far above the noise: no other weights have a smaller objective."""
    random = np.random.default_rng(1)
    X = random.standard_normal((40, 2)) @ random.standard_normal((2, 5)) + 1e-9 * random.standard_normal((40, 5))
    y = 1e7 * (X @ random.standard_normal(5)) + random.standard_normal(40)
    design = Design.build(X, [0, 20, 40], scale=False)
    loss, coupling = Quadratic.of_rows(design, np.ones(40), y), Coupling.diagonal_only(np.full(2, 1e-12))
    step = solve_exactly(StepProblem.of(loss, coupling), tol=1e-6)
    assert step is not None
    assert step.status is Status.CONVERGED
    least = StepProblem.of(loss, coupling, np.zeros(2)).value(step.W)
    for size in 10.0 ** np.arange(-9, 5):
        other = step.W + size * random.standard_normal(step.W.shape)
        assert StepProblem.of(loss, coupling, np.zeros(2)).value(other) >= least - step.gap - 1e-9 * least


def test_large_problems_are_left_to_others():
    random = np.random.default_rng(2)
    loss = rows(random, K=2, d=MOST_UNKNOWNS // 2 + 1, n=3)
    assert solve_exactly(StepProblem.of(loss, Coupling(np.array([[2.0, 1.0], [1.0, 2.0]]))), tol=1e-6) is None
    assert (
        solve_exactly(StepProblem.of(loss, Coupling.diagonal_only(np.ones(2))), tol=1e-6) is not None
    )  # each task for itself


def problem(seed=0, K=3, n=30, d=5):
    random = np.random.default_rng(seed)
    X, tasks = random.standard_normal((K * n, d)), np.repeat(np.arange(K), n)
    return X, X @ random.standard_normal(d) + 0.5 * random.standard_normal(K * n), tasks


@pytest.mark.parametrize("alpha", [1.0, 1e4])
def test_a_shared_mean_keeps_its_digits_in_any_units(alpha):
    """With P large against the data all tasks have one weight vector: the same fit, in other units."""
    X, y, tasks = problem()
    scores = []
    for unit in (1e4, 1e6, 1e7, 1e8, 1e10, 1e12):
        model = MultiTaskGLM(Independent(alpha), shared_mean=True).fit(X, unit * y, tasks=tasks)
        assert model.result_.status is Status.CONVERGED
        scores.append(model.score(X, unit * y, tasks=tasks))
    assert np.ptp(scores) < 1e-6


@pytest.mark.parametrize("rank", [2, 5])
def test_collinear_features_and_little_noise_end_converged_and_without_a_rise(rank):
    random = np.random.default_rng(rank)
    K, n, d = 3, 20, 2 * rank
    tasks = np.repeat(np.arange(K), n)
    one, little = Gaussian(noise_variance=1.0), Gaussian(noise_variance=4e-4)
    settings = [{}, {"loss": one}, {"loss": one, "shared_mean": False}, {"loss": little}, {"prior_strength": 0.02}]
    for size, parameters in itertools.product([1e2, 1e4, 1e6], settings):
        X = random.standard_normal((K * n, rank)) @ random.standard_normal((rank, d))
        y = size * (X * random.standard_normal((K, d))[tasks]).sum(axis=1) + random.standard_normal(K * n)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = MSSLRegressor(**parameters).fit(X, y, tasks=tasks)
        values = [record.objective for record in model.history_]
        assert max(np.diff(values), default=0.0) <= 1e-9 * max(1.0, abs(values[-1]))
        assert np.abs(model.coef_).max() < 100 * size
        assert np.sqrt(np.mean((model.predict(X, tasks=tasks) - y) ** 2)) < max(2.0, 1e-3 * size)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e8])
def test_the_objective_is_that_of_the_rows(size):
    """A fit that is nearly perfect in units of the noise: constants minus products would have no digit left."""
    X, y, tasks = problem(3)
    y = size * y
    model = MultiTaskGLM(Independent(1e-9), loss=Gaussian(noise_variance=1.0), features=Linear(scale=False)).fit(
        X, y, tasks=tasks
    )
    loss = 0.5 * np.sum((model.predict(X, tasks=tasks) - y) ** 2)
    prior = 0.5 * 1e-9 * np.sum(model.coef_**2)
    assert model.objective_ == pytest.approx(loss + prior, rel=1e-9)
    exact = [np.linalg.lstsq(np.c_[X, np.ones(len(X))][tasks == k], y[tasks == k], rcond=None)[0] for k in range(3)]
    np.testing.assert_allclose(model.coef_, np.array(exact)[:, :-1], rtol=1e-6)


def test_grams_alone_leave_directions_of_rounding_to_the_prior():
    """Without rows a duplicated column is known from the Gram only; its two weights share what the data say."""
    random = np.random.default_rng(4)
    X = np.repeat(random.standard_normal((30, 2)), 2, axis=1)
    design = Design.build(X, [0, 30], scale=False)
    loss = make_quadratic(design, np.ones(30), 1e6 * X[:, 0])
    assert not loss.by_rows
    step = solve_exactly(StepProblem.of(loss, Coupling.diagonal_only(np.full(1, 1e-10))), tol=1e-3)
    assert step is not None
    np.testing.assert_allclose(step.W, [[5e5, 5e5, 0, 0]], rtol=1e-6, atol=1e-2)


def test_a_solver_of_linear_systems_refuses_a_penalty():
    X, y, tasks = problem()
    with pytest.raises(ParameterError, match="without a penalty"):
        MSSLRegressor(coef_penalty=1.0, solver="cg").fit(X, y, tasks=tasks)


@pytest.mark.parametrize("loss", ["gaussian", "poisson"])
def test_sparse_columns_that_hardly_vary_are_fitted_as_dense_ones_are(loss):
    """Centring that stays implicit would leave no digit of a column such as 1 + 1e-12 x."""
    random = np.random.default_rng(5)
    X, tasks = random.standard_normal((40, 3)), np.repeat([0, 1], 20)
    X[:, 0] = 1 + 1e-12 * X[:, 0]
    y = random.poisson(np.exp(X[:, 1])).astype(float)
    dense = MSSLRegressor(loss=loss).fit(X, y, tasks=tasks)
    again = MSSLRegressor(loss=loss).fit(sparse.csr_array(X), y, tasks=tasks)
    np.testing.assert_allclose(again.coef_, dense.coef_, rtol=1e-9)


def test_predictions_stay_finite_far_outside_of_the_data():
    X, y, tasks = problem(6)
    model = MSSLRegressor(loss="poisson").fit(X, np.round(np.exp(y / 4)), tasks=tasks)
    assert np.isfinite(model.predict(1e6 * X, tasks=tasks)).all()


def test_one_row_without_an_intercept_has_units_too():
    """Targets of 1e90 are as good as any where F does not depend on their units."""
    X, tasks = np.ones((2, 1)), [0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small, large = (
            MSSLRegressor(fit_intercept=False, shared_mean=False).fit(X, unit * np.array([1.0, 2.0]), tasks=tasks)
            for unit in (1.0, 2.0**300)
        )
    np.testing.assert_allclose(large.coef_, 2.0**300 * small.coef_, rtol=1e-12)


def test_features_that_squares_cannot_hold_are_refused_one_by_one():
    X, y, tasks = problem(7)
    X[:, 2] *= 1e-80
    with pytest.raises(DataError, match="Feature 2 varies by up to"):
        PaperMSSL().fit(X, y, tasks=tasks)


def exactly_above_the_best(X, y, C, W):
    """By how much F(W) = ½ Σ ‖y_k − X w_k‖² + ½ tr(WᵀCW) exceeds its minimum, in rational numbers."""
    K, d = W.shape
    X, y, C, W = (np.vectorize(Fraction, otypes=[object])(values) for values in (X, y, C, W))
    system = np.kron(C, np.eye(d, dtype=int)) + np.kron(np.eye(K, dtype=int), X.T @ X)
    slope = ((W @ X.T - y) @ X + C @ W).ravel()
    return half_inverse_form(system, slope)


def half_inverse_form(system, slope):
    """½ gᵀA⁻¹g in rational numbers; with A = LDLᵀ it is ½ Σ (L⁻¹g)² / D."""
    rows, n = np.column_stack([system, slope]), len(slope)
    for i in range(n):
        for j in range(i + 1, n):
            rows[j] = rows[j] - rows[i] * (rows[j, i] / rows[i, i])
    return float(sum(row[-1] ** 2 / row[i] for i, row in enumerate(rows)) / 2)


@pytest.mark.parametrize("seed", range(5))
def test_a_bound_for_a_singular_coupling_holds_in_exact_arithmetic(seed):
    """Collinear features and a mean that costs nothing: weights of 1e6 that nearly agree, whose C·W cancels."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((5, 1)) @ random.standard_normal((1, 3)) + 1e-7 * random.standard_normal((5, 3))
    y = random.standard_normal((3, 5))
    C = 0.009 * (np.eye(3) - 1 / 3)
    design = Design.build(np.tile(X, (3, 1)), [0, 5, 10, 15], scale=False, centre=False)
    loss = Quadratic.of_rows(design, np.ones(15), y.ravel(), intercept=False)
    for step in (
        solve_exactly(StepProblem.of(loss, Coupling(C)), tol=1e-6),
        CoefficientProblem(EntrywisePenalty(np.zeros(loss.linear.shape)), source=loss.replaced(by_rows=False)).solve(
            Coupling(C), 0 * y[:, :3], tol=1e-6, max_iter=9
        ),
    ):
        assert np.abs(step.W).max() > 1e4
        assert step.gap >= exactly_above_the_best(X, y, C, step.W)
        assert step.gap < 1e-4


def test_rounding_of_a_diagonal_below_zero_is_none():
    """Centred Grams of nearly constant features may have diagonals of −1e-17."""
    problem = Quadratic(np.diag([1.0, -1e-17])[None], np.ones((1, 2)), np.ones(1))
    assert problem.rounding(np.ones((1, 2))) == pytest.approx(np.finfo(float).eps * (1 + problem.null_value))


def hostile(seed):
    """A step of few tasks whose features, prior or mean leave hardly a digit: rows, targets, P and τ²."""
    random = np.random.default_rng(seed)
    K, d, n = random.integers(1, 4), random.integers(1, 4), random.integers(1, 7)
    X = random.standard_normal((K * n, d))
    kind = seed % 5
    if kind == 0 and d > 1:  # nearly collinear
        X[:, -1] = X[:, 0] + 10.0 ** -random.integers(6, 13) * X[:, -1]
    elif kind == 1:  # a lost rank
        X[:, -1] = X[:, 0]
    elif kind == 2:  # far from zero
        X += 10.0 ** random.integers(3, 8)
    elif kind == 3:  # columns of other sizes
        X *= 10.0 ** random.integers(-8, 9, d)
    y = 10.0 ** random.integers(-2, 9) * (X @ random.standard_normal(d)) + random.standard_normal(K * n)
    root = random.standard_normal((K, K + 1))
    P = 10.0 ** random.uniform(-12, 4) * (root @ root.T)
    return X, y, P, float(random.choice([0.0, 1.0, 1e4, 1e10])), K


@pytest.mark.parametrize("seed", range(120))
def test_hostile_steps_end_at_the_minimum_in_exact_arithmetic(seed):
    X, y, P, tau, K = hostile(seed)
    n, d = len(X) // K, X.shape[1]
    design = Design.build(X, np.arange(K + 1) * n, scale=False, centre=False)
    loss = Quadratic.of_rows(design, np.ones(len(y)), y, intercept=False)
    coupling = Coupling(P, positive_definite_inverse(P), tau)
    problem = CoefficientProblem(EntrywisePenalty(np.zeros(loss.linear.shape)), source=loss.replaced(by_rows=False))
    size = loss.null_value
    step = problem.solve(coupling, np.zeros((K, d)), tol=1e-9 * size, max_iter=500)

    exact = np.vectorize(Fraction, otypes=[object])
    A, b, Q, W = (exact(values) for values in (X, y, P, step.W))
    if tau:
        u = Q.sum(axis=1)
        Q = Q - np.outer(u, u) / (1 / Fraction(tau) + u.sum())
    system, slope = np.kron(Q, np.eye(d, dtype=int)), Q @ W
    for k in range(K):
        rows, own = slice(k * n, (k + 1) * n), slice(k * d, (k + 1) * d)
        system[own, own] = system[own, own] + A[rows].T @ A[rows]
        slope[k] = slope[k] + A[rows].T @ (A[rows] @ W[k] - b[rows])
    above = half_inverse_form(system, slope.ravel())
    assert above <= 1e-9 * size
    assert above <= step.gap + 1e-18 * size  # what rounding of a gradient far below the tolerance may hide
    assert step.status is Status.CONVERGED
