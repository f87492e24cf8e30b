"""Parameters become a specification, and what a fit of it found becomes the estimator's attributes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from mssl import MSSLClassifier, MSSLRegressor, MultiTaskClassifier, MultiTaskGLM
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import LayoutError, ParameterError
from mssl.losses import Gaussian
from mssl.metrics import deviance_score, scored_targets
from mssl.paper import PaperMSSL
from mssl.penalties import L1, ElasticNet
from mssl.structures import Independent, SparsePrecision

MODELS = [
    MSSLRegressor(0.2, ElasticNet(0.3, ridge=0.5)),
    PaperMSSL(0.2, max_iter=2000),
    MSSLRegressor(np.inf, prior_strength=3.0, shared_mean=True),
    MSSLRegressor(0.2, loss="poisson"),
    MSSLClassifier(0.2, class_weight="balanced"),
    MultiTaskGLM(SparsePrecision(0.2), L1(0.1)),
    MultiTaskClassifier(Independent(2.0)),
]


def draw(model):
    family = "binary" if hasattr(model, "class_weight") else "poisson" if model.loss == "poisson" else "gaussian"
    return make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], n_features=5, n_samples=30, family=family, random_state=0)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model)[:60])
def test_a_fit_is_its_specification_there_and_back(model):
    data = draw(model)
    fitted = clone(model).fit(data.X, data.y, tasks=data.tasks)
    by_hand = clone(model)
    tasks = by_hand._read(data.X, data.y, data.tasks, None)
    spec = by_hand.to_spec(tasks)
    prepared = spec.prepare(tasks)
    assert by_hand.from_spec(spec, tasks, prepared, spec.fit(prepared)) is by_hand
    for name in ("coef_", "intercept_", "precision_", "noise_variance_", "mean_coef_", "objective_"):
        np.testing.assert_array_equal(getattr(by_hand, name), getattr(fitted, name))
    assert by_hand.graph_ == fitted.graph_
    assert type(by_hand.loss_) is type(fitted.loss_)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model)[:60])
def test_a_specification_holds_every_parameter_that_decides(model):
    data = draw(model)
    tasks = clone(model)._read(data.X, data.y, data.tasks, None)
    spec = model.to_spec(tasks)
    for name in ("tol", "max_iter", "solver", "fit_intercept"):
        assert getattr(spec.settings, name) == getattr(model, name)
    assert spec.loss.name == (model.loss if isinstance(model.loss, str) else model.loss.name)
    changed = clone(model).set_params(tol=1e-3, fit_intercept=False).to_spec(tasks).settings
    assert (changed.tol, changed.fit_intercept) == (1e-3, False)


def test_the_papers_formulation_starts_from_the_identity():
    data = draw(MODELS[1])
    tasks = clone(MODELS[1])._read(data.X, data.y, data.tasks, None)
    spec = MODELS[1].to_spec(tasks)
    assert spec.paper.precision != 1.0
    scale = spec.fit(spec.prepare(tasks)).scale
    first = spec.structure.initial(scale)
    np.testing.assert_allclose(first.precision / spec.paper.precision, np.eye(4))
    np.testing.assert_allclose(first.precision @ first.covariance, np.eye(4))
    assert not np.allclose(MODELS[0].to_spec(tasks).structure.initial(scale).precision, first.precision)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (MSSLRegressor(SparsePrecision(coupling=2.0)), "prior_strength and relation set its coupling and its on"),
        (MSSLRegressor(L1(0.1)), r"graph_penalty is L1\(alpha=0.1\); give a SparsePrecision"),
        (MSSLRegressor(relation="residual", shared_mean=True), "shared_mean is True; with relation='residual'"),
        (MSSLRegressor(loss="normal"), "loss is 'normal'; allowed are 'gaussian'"),
        (MultiTaskGLM("graph"), "structure is 'graph'; give an object of mssl.structures"),
        (MultiTaskGLM(None, 0.1), "penalty is 0.1; give an object of mssl.penalties"),
    ],
)
def test_what_cannot_be_is_said_in_one_form(model, words):
    data = draw(MODELS[0])
    with pytest.raises(ParameterError, match=words):
        model.fit(data.X, data.y, tasks=data.tasks)


def test_targets_of_one_column_are_targets_and_other_shapes_are_refused():
    column, flat = np.arange(4.0)[:, None], np.arange(4.0)
    for target, prediction in ((column, flat), (flat, column), (flat, flat)):
        targets, weights = scored_targets(target, prediction, None)
        assert targets.shape == weights.shape == prediction.shape
        assert deviance_score(Gaussian(), target, prediction) == 1.0
    for target, prediction in ((np.ones((2, 3)), np.ones((3, 2))), (np.ones(6), np.ones((3, 2))), (flat, flat[:2])):
        with pytest.raises(LayoutError, match="give one target"):
            scored_targets(target, prediction, None)
