"""More starts: the same F, never a higher one, the same answer every time."""

from __future__ import annotations

import numpy as np
import pytest

from mssl import MSSLClassifier, MSSLRegressor
from mssl.exceptions import ParameterError
from mssl.solvers import Solver


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
