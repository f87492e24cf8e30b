"""A sparse plus low-rank precision: brute force, reduction to the graphical lasso, hidden variables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mssl import MultiTaskGLM
from mssl.exceptions import ParameterError
from mssl.structures import KnownEdges, LatentSparsePrecision, SparsePrecision, StructureScale


def moment(seed, K, structure, r=30):
    rng = np.random.default_rng(seed)
    Q = rng.standard_normal((K, r)) * rng.uniform(0.5, 3, (K, 1)) + 2 * rng.standard_normal(r)
    scale = StructureScale(r, (Q**2).mean(axis=1), rng.uniform(0.05, 0.2, K))
    return structure.moment(Q, scale), scale


def brute_force(structure, M, scale):
    """The minimum over S = P − N (off the diagonal, both ≥ 0) and L = BBᵀ, by a general solver from several starts."""
    K = len(M)
    upper = np.triu_indices(K, 1)
    m = len(upper[0])
    D = scale.variances + structure.floors(scale)
    M = M + np.diag(structure.floors(scale))
    prices = structure.alpha * np.sqrt(np.outer(D, D))[upper]

    def objective(x):
        S, B = np.diag(x[:K]), x[K + 2 * m :].reshape(K, K)
        up, down = x[K : K + m], x[K + m : K + 2 * m]
        S[upper] = up - down
        S = S + np.triu(S, 1).T
        omega = S - B @ B.T
        values = np.linalg.eigvalsh(omega)
        if values[0] <= 1e-9:
            return 1e10, np.zeros_like(x)
        G = M - np.linalg.inv(omega)
        value = np.vdot(M, omega) - np.log(values).sum() + 2 * prices @ (up + down)
        value += structure.latent * D @ (B**2).sum(axis=1)
        slopes = (G.diagonal(), 2 * (G[upper] + prices), 2 * (prices - G[upper]))
        return value, np.concatenate([*slopes, (2 * (structure.latent * np.diag(D) - G) @ B).ravel()])

    bounds = [(None, None)] * K + [(0, None)] * (2 * m) + [(None, None)] * K**2
    options = {"maxiter": 20000, "maxfun": 50000, "ftol": 1e-15, "gtol": 1e-10}
    root = 1 / np.sqrt(D)
    found = []
    for seed in range(4):
        B = 0.3 * np.random.default_rng(seed).standard_normal((K, K)) * root[:, None]
        start = np.concatenate([2 * root**2, np.zeros(2 * m), B.ravel()])
        found.append(minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun)
    return min(found)


@pytest.mark.parametrize(("K", "alpha", "latent"), [(3, 0.1, 0.2), (4, 0.2, 0.3), (5, 0.1, 0.15), (5, 0.3, 0.1)])
def test_no_other_solver_finds_a_lower_value_and_the_bound_holds(K, alpha, latent):
    structure = LatentSparsePrecision(alpha, latent=latent)
    M, scale = moment(K, K, structure)
    step = structure.update(M, structure.initial(scale), scale, 1e-9)
    weight, lowest = structure.weight(scale), brute_force(structure, M, scale)
    assert step.value / weight == pytest.approx(lowest, rel=1e-7)
    assert (step.value - step.gap) / weight <= lowest + 1e-12
    rough = structure.certify(M, structure.initial(scale), scale)
    assert (rough.value - rough.gap) / weight <= lowest + 1e-12


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 7), st.floats(0.05, 0.5))
def test_dear_hidden_variables_leave_the_graphical_lasso(seed, K, alpha):
    plain, latent = SparsePrecision(alpha), LatentSparsePrecision(alpha, latent=2.0 * alpha * K)
    M, scale = moment(seed, K, plain)
    ours, theirs = (s.update(M, s.initial(scale), scale, 1e-10) for s in (latent, plain))
    assert not np.any(latent.low_rank(ours))
    assert ours.value == pytest.approx(theirs.value, rel=1e-9, abs=1e-9)
    size = np.sqrt(np.outer(theirs.precision.diagonal(), theirs.precision.diagonal()))
    np.testing.assert_allclose(ours.precision / size, theirs.precision / size, atol=1e-4)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.floats(0.05, 0.5), st.floats(0.05, 0.5))
def test_the_parts_are_what_they_should_be_and_units_do_not_matter(seed, alpha, latent):
    structure = LatentSparsePrecision(alpha, latent=latent, edge_constraints=KnownEdges(forbidden=[(0, 2)]))
    M, scale = moment(seed, 5, structure)
    step = structure.update(M, structure.initial(scale), scale, 1e-9)
    S, L = structure.graph(step), structure.low_rank(step)
    np.testing.assert_allclose(S - L, step.precision)
    assert np.linalg.eigvalsh(L)[0] >= -1e-9 * max(np.abs(L).max(), 1e-300)
    assert S[0, 2] == 0
    units = np.array([1e-3, 1.0, 5.0, 1e2, 2.0])
    other = StructureScale(scale.n_rows, scale.variances * units**2, scale.sampling_variances * units**2)
    scaled = structure.update(M * np.outer(units, units), structure.initial(other), other, 1e-9)
    size = np.sqrt(np.outer(S.diagonal(), S.diagonal()))
    np.testing.assert_allclose(structure.graph(scaled) * np.outer(units, units) / size, S / size, atol=1e-3)


@pytest.mark.parametrize("on", ["coef", "residual"])
def test_a_hidden_variable_does_not_become_a_graph(on):
    """Pairs of tasks, and one variable that acts on all: the pairs are the graph, the variable is L."""
    rng = np.random.default_rng(1)
    K, n, d = 10, 300, 150 if on == "coef" else 2
    true = np.eye(K)
    for k in range(0, K, 2):
        true[k, k + 1] = true[k + 1, k] = 0.6
    rows = 2000 if on == "residual" else d
    hidden = rng.multivariate_normal(np.zeros(K), np.linalg.inv(true), rows) + 1.2 * rng.standard_normal((rows, 1))
    if on == "coef":
        X = rng.standard_normal((n, K, d))
        Y = np.einsum("nkd,dk->nk", X, hidden) + 0.1 * rng.standard_normal((n, K))
        prices = {"alpha": 0.15, "latent": 0.5}
    else:
        X = rng.standard_normal((rows, K, d))
        Y = np.einsum("nkd,kd->nk", X, rng.standard_normal((K, d))) + hidden
        prices = {"alpha": 0.12, "latent": 0.4}
    pairs = (true != 0) & ~np.eye(K, dtype=bool)
    structure = LatentSparsePrecision(on=on, **prices)
    model = MultiTaskGLM(structure).fit(X, Y)
    L = structure.low_rank(model.result_.structure)
    assert np.linalg.matrix_rank(L, tol=1e-6 * np.abs(L).max()) == 1
    plain = MultiTaskGLM(SparsePrecision(prices["alpha"], on=on)).fit(X, Y)
    assert model.graph_.compare(pairs).f1 >= 0.8 > plain.graph_.compare(pairs).f1
    np.testing.assert_allclose(model.precision_, model.precision_.T)
    assert model.history_[-1].edges == model.graph_.n_edges


def test_hidden_variables_that_cost_nothing_are_refused():
    with pytest.raises(ParameterError, match="latent"):
        LatentSparsePrecision(latent=0.0).check(3)
