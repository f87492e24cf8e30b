"""More starts: the same F, never a higher one, the same answer every time."""

from __future__ import annotations

import numpy as np
import pytest

from mssl import MSSLClassifier, MSSLRegressor
from mssl.data.layouts import read_tasks
from mssl.exceptions import ParameterError
from mssl.losses import Gaussian
from mssl.penalties import L1
from mssl.solvers import Solver
from mssl.solvers.fit import Settings, prepare, start
from mssl.structures import SparsePrecision


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", ["gaussian", "poisson"])
@pytest.mark.parametrize("parameters", [{}, {"coef_penalty": 1.0}, {"shared_mean": 1.0}])
def test_more_starts_never_end_higher(loss, parameters):
    for seed in range(2):
        random = np.random.default_rng(seed)
        X, tasks = random.standard_normal((36, 3)), np.repeat(np.arange(6), 6)
        y = random.poisson(np.exp(0.5 * (X * random.standard_normal((6, 3))[tasks]).sum(axis=1))).astype(float)
        one, many = (
            MSSLRegressor(solver=Solver(n_starts=n), loss=loss, graph_penalty=0.1, **parameters).fit(X, y, tasks=tasks)
            for n in (1, 4)
        )
        assert many.objective_ <= one.objective_ + 1e-12 * abs(one.objective_)
        np.testing.assert_array_equal(many.result_.scale.variances, one.result_.scale.variances)
        again = MSSLRegressor(solver=Solver(n_starts=4), loss=loss, graph_penalty=0.1, **parameters)
        np.testing.assert_array_equal(again.fit(X, y, tasks=tasks).coef_, many.coef_)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many"])
def test_the_number_of_starts_is_checked(wrong):
    X, tasks = np.random.default_rng(0).standard_normal((20, 2)), np.repeat([0, 1], 10)
    with pytest.raises(ParameterError, match="n_starts"):
        MSSLClassifier(solver=Solver(n_starts=wrong)).fit(X, X[:, 0] > 0, tasks=tasks)


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("gamma", [0.5, 1.0])
@pytest.mark.parametrize("shape", [(5, 4, 12), (6, 6, 20), (20, 6, 15)])
@pytest.mark.parametrize("seed", range(3))
def test_the_start_is_a_fixed_point_of_its_own_weights(shape, gamma, mean, seed):
    """v are the mean squares of the best weights for the ridges that v implies, to five digits."""
    (K, d, n), random = shape, np.random.default_rng(seed + 3)
    W, X = random.standard_normal((1, d)) + 0.5 * random.standard_normal((K, d)), random.standard_normal((K * n, d))
    tasks = np.repeat(np.arange(K), n)
    y = (X * W[tasks]).sum(axis=1) + random.standard_normal(K * n)
    prepared, structure = (
        prepare(read_tasks(X, y, tasks=tasks), Gaussian(), Settings(shared_mean=mean)),
        SparsePrecision(0.3),
    )
    problem = prepared.problem(L1(gamma))
    scale, first = start(prepared, structure, problem)
    coupling = structure.couple(structure.initial(scale), prepared.mean_variance)
    W = problem.solve(coupling, first, tol=1e-13, max_iter=10_000).W
    image = np.sum((W - coupling.mean(W)) ** 2, axis=1) / d + coupling.rho
    np.testing.assert_allclose(image, scale.variances, rtol=1e-5, atol=1e-5 * structure.floors(scale).max())
