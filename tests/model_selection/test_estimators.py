"""A search holds the estimator that it chose and answers for it; what is known of the graph holds in every fit."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError

from mssl import MSSLClassifier, MSSLClassifierCV, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM, StabilitySelection
from mssl.datasets import make_clustered_tasks
from mssl.estimators.fitted import FittedAttributes
from mssl.exceptions import ParameterError
from mssl.model_selection.search import SearchCV
from mssl.structures import KnownEdges, SparsePrecision

GRID = {
    "param_grid": {
        "graph_penalty": [0.3, 0.05],
        "coef_penalty": [0.0],
        "prior_strength": [1.0],
        "shared_mean": [False],
    },
    "cv": 2,
}
SEARCHES = [MSSLRegressorCV(**GRID), MSSLClassifierCV(**GRID), MSSLRegressorCV(MultiTaskGLM(), refit="best", cv=2)]


def draw(search, seed=0):
    return make_clustered_tasks(
        n_tasks=5,
        clusters=[[0, 1, 2]],
        n_features=6,
        n_samples=40,
        family="binary" if is_classifier(search) else "gaussian",
        random_state=seed,
    )


def with_own(model, **params):
    """A copy of an estimator with other parameters, of a search those of what it fits."""
    if not isinstance(model, SearchCV):
        return clone(model).set_params(**params)
    return clone(model).set_params(estimator=model._template().set_params(**params))


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: type(search).__name__)
def test_a_search_answers_with_what_its_best_estimator_has(search):
    data = draw(search)
    search = clone(search).fit(data.X, data.y, tasks=data.tasks)
    best = search.best_estimator_
    fitted = [name for name in (*vars(best), *vars(FittedAttributes)) if name.endswith("_") and name[0] != "_"]
    assert {"fitted_", "coef_", "graph_", "result_", "features_", "n_features_in_"} <= set(fitted)
    fitted.remove("noise_")  # an old name, which warns and is computed anew
    for name in filter(partial(hasattr, best), fitted):
        assert getattr(search, name) is getattr(best, name), name
        assert name not in vars(search)
    assert is_classifier(search) == is_classifier(best)
    assert is_regressor(search) == is_regressor(best)
    np.testing.assert_array_equal(search.predict(data.X, tasks=data.tasks), best.predict(data.X, tasks=data.tasks))
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.coef_, search.coef_)
    if is_classifier(search):
        for method in ("predict_proba", "decision_function"):
            one, other = (getattr(model, method)(data.X, tasks=data.tasks) for model in (search, best))
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: type(search).__name__)
def test_before_the_fit_a_search_has_no_fitted_attribute(search):
    names = [name for name in (*vars(SearchCV), *vars(FittedAttributes)) if name.endswith("_") and name[0] != "_"]
    names.remove("noise_")  # an old name, which warns first
    assert len(names) > 15
    for name in names:
        assert not hasattr(search, name)
    with pytest.raises(NotFittedError):
        search.coef_


def test_the_graph_is_the_stable_one_as_long_as_one_is_selected():
    data = draw(SEARCHES[0])
    search = MSSLRegressorCV(selection="both", **GRID).fit(data.X, data.y, tasks=data.tasks)
    assert search.graph_ is search.stability_.graph_
    assert search.best_estimator_.graph_ is not search.graph_
    search.set_params(selection="prediction").fit(data.X, data.y, tasks=data.tasks)
    assert search.graph_ is search.best_estimator_.graph_
    assert not hasattr(search, "stability_")


@pytest.mark.parametrize(
    "model",
    [
        MSSLRegressor(0.02),
        MSSLClassifier(0.02),
        MSSLRegressorCV(**{**GRID, "param_grid": {**GRID["param_grid"], "graph_penalty": [0.05, 0.01]}}, search="grid"),
        MSSLClassifierCV(
            **{**GRID, "param_grid": {**GRID["param_grid"], "graph_penalty": [0.05, 0.01]}}, search="grid"
        ),
        MSSLRegressorCV(selection="both", stability=StabilitySelection(threshold=0.6, random_state=0), **GRID),
    ],
    ids=lambda model: f"{type(model).__name__} {getattr(model, 'selection', '')}",
)
def test_known_edges_hold_by_task_names(model):
    data = draw(model)
    names, tasks = np.unique(data.tasks).tolist(), data.tasks
    plain = clone(model).fit(data.X, data.y, tasks=tasks).graph_
    found = {(names[i], names[j]) for i, j in combinations(range(5), 2) if plain.adjacency[i, j]}
    assert found
    forbidden = sorted(found)[0]
    absent = [pair for pair in combinations(names, 2) if pair not in found]
    free = absent[0] if absent else (names[3], names[4])
    known = KnownEdges(forbidden=[forbidden], free=[free])
    graph = with_own(model, graph_penalty__edge_constraints=known).fit(data.X, data.y, tasks=tasks).graph_
    place = dict(zip(graph.tasks, range(5), strict=True))
    assert not graph.adjacency[place[forbidden[0]], place[forbidden[1]]]
    assert graph.adjacency[place[free[0]], place[free[1]]]


def test_edges_that_are_not_selected_do_not_count_in_the_bound():
    data = draw(SEARCHES[0])
    everything = list(combinations(np.unique(data.tasks).tolist(), 2))
    model = MSSLRegressor(
        SparsePrecision(0.05, edge_constraints=KnownEdges(forbidden=everything[:4], free=everything[4:6]))
    )
    stable = StabilitySelection(model, random_state=0, threshold=0.8).fit(data.X, data.y, tasks=data.tasks)
    assert stable.n_selected_ <= 4
    assert stable.expected_false_edges_ == pytest.approx(stable.n_selected_**2 / ((2 * 0.8 - 1) * 4))


@pytest.mark.parametrize(
    "model", [*SEARCHES[:2], MSSLRegressor(0.05), MSSLClassifier(0.05)], ids=lambda m: type(m).__name__
)
def test_warm_start_takes_fewer_rounds_to_the_same_fit(model):
    data = draw(model)
    model = with_own(model, warm_start=True, tol=1e-8).fit(data.X, data.y, tasks=data.tasks)
    rounds, objective = model.n_iter_, model.objective_
    assert rounds > 2
    model.fit(data.X, data.y, tasks=data.tasks)
    assert model.n_iter_ <= 2
    assert model.objective_ == pytest.approx(objective, rel=1e-7)
    fresh = np.char.add(data.tasks, " of others")  # other tasks: nothing to start from
    other = clone(model).fit(data.X, data.y, tasks=fresh)
    assert model.fit(data.X, data.y, tasks=fresh).n_iter_ == other.n_iter_


def test_a_regressor_names_the_classifier_for_two_classes():
    data = draw(SEARCHES[1])
    for model in (MSSLRegressor(loss="bernoulli"), MSSLRegressorCV(MSSLRegressor(loss="bernoulli"))):
        with pytest.raises(ParameterError, match="MSSLClassifier"):
            model.fit(data.X, data.y, tasks=data.tasks)
