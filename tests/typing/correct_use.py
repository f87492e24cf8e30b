"""What a user may write: mypy --strict accepts every line, and knows the types of what comes back."""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import mssl
from mssl import (
    GraphicalLasso,
    GraphicalLassoCV,
    MSSLClassifier,
    MSSLClassifierCV,
    MSSLRegressor,
    MSSLRegressorCV,
    MultiTaskGLM,
    StabilitySelection,
    TaskGraph,
    presets,
    transfer_report,
)
from mssl.estimators.base import MultiTaskEstimator
from mssl.losses import Gaussian, Loss, Poisson
from mssl.penalties import L1
from mssl.structures import Independent, KnownEdges, SparsePrecision
from mssl.transfer import TransferReport

Array = NDArray[np.float64]

X: Array = np.random.default_rng(0).normal(size=(60, 3))
y = X @ np.ones(3)
tasks = np.repeat(["a", "b", "c"], 20)

model = MSSLRegressor(
    graph_penalty=SparsePrecision(0.1, edge_constraints=KnownEdges(forbidden=[("a", "b")])),
    loss=Gaussian(noise_variance=1.0),
).fit(X, y, tasks=tasks)
assert_type(model, MSSLRegressor)
assert_type(model.coef_, Array)
assert_type(model.graph_, TaskGraph)
assert_type(model.predict(X, tasks=tasks), Array)
assert_type(model.score(X, y, tasks=tasks, sample_weight=np.ones(60)), float)
assert_type(model.limits(X, y, tasks=tasks).graph_penalty, float)
assert_type(model.loss_, Loss)

search = MSSLRegressorCV(
    MSSLRegressor(warm_start=True), {"graph_penalty": [0.1, 1.0]}, cv=3, stability=StabilitySelection()
).fit(X, y, tasks=tasks)
assert_type(search, MSSLRegressorCV)
assert_type(search.best_estimator_, MultiTaskEstimator)
assert_type(search.coef_, Array)
assert_type(search.n_iter_, int)
assert_type(search.graph_, TaskGraph)

labels = np.where(y > 0, "yes", "no")
assert_type(MSSLClassifier(class_weight={"yes": 2.0}).fit(X, labels, tasks=tasks).predict_proba(X, tasks=tasks), Array)
assert_type(
    MSSLClassifierCV(MSSLClassifier(class_weight="balanced"), cv=2).fit(X, labels, tasks=tasks).best_score_, float
)

general = MultiTaskGLM(SparsePrecision(0.1), L1(0.2), loss=Poisson()).fit(X, np.abs(np.round(y)), tasks=tasks)
assert_type(general, MultiTaskGLM)
ridge = presets.ridge(alpha=2.0, loss=Gaussian(noise_variance=1.0))
ridge.fit(X, y, tasks=tasks).coef_.sum()
report = transfer_report(MultiTaskGLM(Independent(1.0)), X, y, tasks, X_test=X, y_test=y, tasks_test=tasks)
assert_type(report, TransferReport)
assert_type(report.gain, Array)

assert_type(GraphicalLasso(alpha=0.1).fit(X).precision_, Array)
assert_type(GraphicalLassoCV(cv=3).fit(X).covariance_, Array)
assert_type(mssl.__version__, str)
mssl.structures.Independent(1.0)
mssl.save(model, "model.npz")
