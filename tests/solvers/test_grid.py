"""Every structure with every penalty and loss ends within bounds of iterations on a small ordinary problem."""

import numpy as np
import pytest

import mssl
from mssl import penalties, structures
from mssl.solvers.base import Status
from mssl.solvers.weights import CoefficientProblem

K, D, ROWS = 8, 10, 30
RANDOM = np.random.default_rng(77001)
X, TASKS = RANDOM.standard_normal((K * ROWS, D)), np.repeat(np.arange(K), ROWS)
WEIGHTS = RANDOM.standard_normal(D) + 0.3 * RANDOM.standard_normal((K, D))
ETA = np.einsum("nd,nd->n", X, WEIGHTS[TASKS]) / 2
TARGETS = {
    "gaussian": ETA + RANDOM.standard_normal(len(ETA)),
    "bernoulli": (RANDOM.random(len(ETA)) < 1 / (1 + np.exp(-ETA))).astype(int),
    "poisson": RANDOM.poisson(np.exp(ETA)),
    "gamma": np.exp(ETA) * RANDOM.gamma(1.0, 1.0, len(ETA)),
}
STRUCTURES = [
    structures.Independent(),
    structures.FixedPrecision(2 * np.eye(K) - 0.1),
    structures.GraphLaplacian(edges=[(k, k + 1) for k in range(K - 1)]),
    structures.MeanRegularized(),
    structures.TaskCovariance(),
    structures.Clustered(),
    structures.SparsePrecision(0.1),
]
PENALTIES = [
    penalties.L1(),
    penalties.L1(3.0),
    penalties.ElasticNet(3.0, 1.0),
    penalties.L21(3.0),
    penalties.Nuclear(3.0),
    penalties.MCP(3.0),
]


@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: type(structure).__name__)
def test_small_fits_take_a_bounded_number_of_iterations(structure, loss, monkeypatch):
    counts, solve = [], CoefficientProblem.solve

    def counted(self, *arguments, **limits):
        step = solve(self, *arguments, **limits)
        counts.append(step.n_iter)
        return step

    monkeypatch.setattr(CoefficientProblem, "solve", counted)
    for penalty in PENALTIES:
        counts.clear()
        classifies = loss == "bernoulli"
        make = mssl.MultiTaskClassifier if classifies else mssl.MultiTaskGLM
        model = make(structure, penalty, **({} if classifies else {"loss": loss})).fit(X, TARGETS[loss], tasks=TASKS)
        assert model.result_.status in (Status.CONVERGED, Status.STATIONARY)
        assert len(model.result_.history) <= 40, penalty
        assert sum(counts) <= 20_000, (penalty, sum(counts))
