"""Old names of parameters answer in every place where a name can be given, with one warning."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.pipeline import Pipeline

import mssl
from mssl._renamed import old_names
from mssl.features import Linear, Spline
from mssl.losses import Gamma, Gaussian
from mssl.paper import PaperMSSL, PaperMSSLClassifier
from mssl.structures import KnownEdges, SparsePrecision


class Inner(BaseEstimator):
    def __init__(self, size=1):
        self.size = size


@old_names(width="size", inner_size=lambda value, held: {"inner": Inner(value + held["size"])}, gone=lambda *_: {})
class Model(BaseEstimator):
    def __init__(self, size=1, *, inner=None):
        self.size = size
        self.inner = inner

    def fit(self, X, y=None):
        self.fitted_ = self.size
        return self

    def score(self, X, y=None):
        return float(self.size)


@old_names(older="size")
class Child(Model):
    pass


def test_an_old_name_is_the_new_one_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match=r"`width` of Model is now size=3; it goes with 0.3") as caught:
        model = Model(width=3)
    assert model.size == 3
    assert caught[0].filename == __file__
    with pytest.warns(FutureWarning, match="`width` of Model is now `size`"):
        assert model.width == 3
    with pytest.warns(FutureWarning, match="now size=5"):
        assert model.set_params(width=5).size == 5
    with pytest.warns(FutureWarning, match="no parameter"):
        assert Model(gone=1).get_params() == Model().get_params()


def test_an_old_name_beside_its_new_one_is_an_error_by_position_too() -> None:
    for positions, names in (((), {"size": 2, "width": 3}), ((2,), {"width": 3})):
        with pytest.warns(FutureWarning), pytest.raises(TypeError, match="`width` is the old name of `size`"):
            Model(*positions, **names)
    with pytest.warns(FutureWarning):
        assert Model(2, gone=1).size == 2


def test_new_names_and_clones_are_silent_and_the_signature_has_new_names_only() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = clone(Model(2, inner=Inner(3))).set_params(size=4, inner__size=5)
    assert (model.size, model.inner.size) == (4, 5)
    assert list(inspect.signature(Model).parameters) == ["size", "inner"]
    assert sorted(Model().get_params(deep=False)) == ["inner", "size"]


def test_a_function_sees_what_is_given_beside_the_old_name_and_what_is_held() -> None:
    with pytest.warns(FutureWarning, match="inner"):
        assert Model(2, inner_size=3).inner.size == 5
    with pytest.warns(FutureWarning, match="inner"):
        assert Model(size=4, inner_size=3).inner.size == 7
    with pytest.warns(FutureWarning, match="inner"):
        assert Model(6).set_params(inner_size=3).inner.size == 9


def test_both_names_at_once_are_refused() -> None:
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="old name of `size`"):
        Model(size=1, width=2)


def test_grids_pipelines_and_subclasses_take_old_names() -> None:
    with pytest.warns(FutureWarning, match="now size"):
        search = GridSearchCV(Model(), {"width": [1, 7]}, cv=2).fit([[0.0]] * 4, [0.0] * 4)
    assert search.best_estimator_.size == 7
    with pytest.warns(FutureWarning, match="now size"):
        assert Pipeline([("model", Model())]).set_params(model__width=8)["model"].size == 8
    for name in ("width", "older"):
        with pytest.warns(FutureWarning, match=f"`{name}` of Child is now size=2"):
            assert Child(**{name: 2}).size == 2
    with pytest.warns(FutureWarning):
        assert [Model(**params).size for params in ParameterGrid({"width": [1, 2]})] == [1, 2]


def test_halves_of_coefficients_are_those_of_features() -> None:
    data = mssl.datasets.make_clustered_tasks(n_tasks=4, n_features=6, n_samples=20, clusters=[[0, 1]], random_state=0)
    how = {"n_subsamples": 4, "n_points": 3, "random_state": 0}
    with pytest.warns(FutureWarning, match="is now 'features'"):
        old = mssl.StabilitySelection(subsample="coefficients", **how).fit(data.X, data.y, tasks=data.tasks)
    new = mssl.StabilitySelection(**how).fit(data.X, data.y, tasks=data.tasks)
    np.testing.assert_array_equal(old.frequencies_, new.frequencies_)


GRIDS = {"graph_penalties": [0.3], "coef_penalties": [0.0], "couplings": [1.0], "shared_means": [False]}


def test_searches_take_the_parameters_of_the_last_release() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        search = mssl.MSSLRegressorCV([0.5, 0.1], [0.0], couplings=[1.0], on="residual", tol=1e-8, average=False)
    text = "`on` of MSSLRegressorCV is now estimator=MSSLRegressor(relation='residual'); it goes with 0.3."
    assert text in [str(warning.message) for warning in told]
    assert {warning.category for warning in told} == {FutureWarning}
    assert search.param_grid == {"graph_penalty": [0.5, 0.1], "coef_penalty": [0.0], "prior_strength": [1.0]}
    assert (search.estimator.relation, search.estimator.tol, search.refit) == ("residual", 1e-8, "best")
    with pytest.warns(FutureWarning, match="now estimator"):
        assert search.set_params(fit_intercept=False).estimator.relation == "residual"
    with pytest.warns(FutureWarning, match="refit='one_se'"):
        assert search.set_params(one_standard_error=True).refit == "one_se"
    with pytest.warns(FutureWarning):
        labels = mssl.MSSLClassifierCV(class_weight="balanced", coef_penalties=None)
    assert labels.param_grid == "auto"
    assert labels.estimator.class_weight == "balanced"
    with pytest.warns(FutureWarning):
        general = mssl.MultiTaskGLMCV(mssl.MultiTaskGLM(), {"structure__alpha": [1.0]}, one_standard_error=True)
    assert (general.refit, general.param_grid) == ("one_se", {"structure__alpha": [1.0]})


def test_the_page_of_old_names_has_them_all() -> None:
    page = (Path(__file__).parents[1] / "docs" / "renamed.md").read_text(encoding="utf-8")
    for cls in (mssl.MSSLRegressorCV, mssl.MSSLClassifierCV, mssl.MultiTaskGLMCV):
        assert [name for name in cls._old_names if f"`{name}" not in page] == []


def test_every_parameter_of_a_search_of_the_last_release_has_its_place() -> None:
    old = {"features": "spline", "missing": "indicator", "ridge": 1.0, "correlation": "kendall", "noise": 2.0}
    old |= {"shrinkages": [0.5], "variance_floors": [0.2], "solver": "cg", "graph_solver": "admm", "max_iter": 9}
    old |= {"scale_features": False, "formulation": "paper", "task_column": 0, "warm_start": True, "memory_limit": 7}
    old |= {"loss": "poisson", "target_transform": "log", "categorical_features": [1], "edges": None}
    for name, value in old.items():
        with pytest.warns(FutureWarning, match=f"`{name}` of MSSLRegressorCV"):
            search = mssl.MSSLRegressorCV(**{name: value})
        new = OLD.get(name, name)
        if name == "formulation":
            assert type(search.estimator) is PaperMSSL
        elif name == "noise":
            assert search.estimator.loss.noise_variance == value**2
        elif name == "scale_features":
            assert not search.estimator.features.scale
        elif name in ("shrinkages", "variance_floors"):
            assert search.param_grid == {f"graph_penalty__{name[:-1]}": value}
        else:
            assert search.estimator.get_params()[new] == value


@pytest.mark.filterwarnings("ignore:`.*` of MSSLRegressorCV:FutureWarning")
def test_old_and_new_spelling_are_one_search() -> None:
    data = mssl.datasets.make_clustered_tasks(n_tasks=4, n_features=4, n_samples=20, clusters=[[0, 1]], random_state=0)
    old = mssl.MSSLRegressorCV(**GRIDS, cv=2, scale_features=False).fit(data.X, data.y, tasks=data.tasks)
    grid = {"graph_penalty": [0.3], "coef_penalty": [0.0], "prior_strength": [1.0], "shared_mean": [False]}
    new = mssl.MSSLRegressorCV(mssl.MSSLRegressor(features=Linear(scale=False)), grid, cv=2)
    np.testing.assert_array_equal(new.fit(data.X, data.y, tasks=data.tasks).coef_, old.coef_)


OLD = {
    "on": "relation",
    "coupling": "prior_strength",
    "correlation": "graph_penalty__correlation",
    "edges": "graph_penalty__edge_constraints",
    "variance_floor": "graph_penalty__variance_floor",
    "shrinkage": "graph_penalty__shrinkage",
    "graph_solver": "graph_penalty__solver",
    "ridge": "coef_penalty__ridge",
    "n_starts": "solver__n_starts",
    "memory_limit": "solver__memory_limit",
}
VALUES = {"on": "residual", "correlation": "kendall", "graph_solver": "admm", "n_starts": 3, "memory_limit": 10**6}


@pytest.mark.parametrize("old", OLD)
@pytest.mark.parametrize("cls", [mssl.MSSLRegressor, mssl.MSSLClassifier])
def test_parameters_of_the_last_release_are_those_of_today(cls: type, old: str) -> None:
    if old == "on" and cls is mssl.MSSLClassifier:
        return
    value = KnownEdges([(0, 1)]) if old == "edges" else VALUES.get(old, 0.5)
    expected = cls(0.2, 0.1).set_params(**{OLD[old]: value})
    with pytest.warns(FutureWarning, match=f"`{old}` of {cls.__name__} is now"):
        model = cls(0.2, 0.1, **{old: value})
    assert repr(model) == repr(expected) == repr(clone(model))
    with pytest.warns(FutureWarning, match=f"`{old}` of {cls.__name__} is now"):
        assert repr(cls(0.2, 0.1).set_params(**{old: value})) == repr(expected)
    with pytest.warns(FutureWarning, match=f"`{old}` of {cls.__name__} is now"):
        assert repr(getattr(model, old)) == repr(value)
    assert expected.get_params()[OLD[old]] is value


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"noise": 2.0}, mssl.MSSLRegressor(loss=Gaussian(noise_variance=4.0))),
        ({"noise": "auto"}, mssl.MSSLRegressor(loss=Gaussian())),
        ({"noise": 2.0, "loss": "gamma"}, mssl.MSSLRegressor(loss=Gamma(noise_variance=4.0))),
        ({"scale_features": True}, mssl.MSSLRegressor()),
        ({"scale_features": False}, mssl.MSSLRegressor(features=Linear(scale=False))),
        (
            {"scale_features": False, "features": "spline"},
            mssl.MSSLRegressor(features=[Linear(scale=False), Spline()]),
        ),
        ({"formulation": "unified"}, mssl.MSSLRegressor()),
        ({"formulation": "paper", "on": "residual"}, PaperMSSL(relation="residual")),
    ],
)
def test_noise_scales_and_formulations_of_the_last_release(old: dict, new: mssl.MSSLRegressor) -> None:
    with pytest.warns(FutureWarning, match="it goes with 0.3"):
        model = mssl.MSSLRegressor(**old)
    with pytest.warns(FutureWarning, match="it goes with 0.3"):
        again = mssl.MSSLRegressor().set_params(**old)
    assert repr(model) == repr(again) == repr(new) == repr(clone(model))
    assert type(model) is type(again) is type(new)


def test_the_printed_objectives_of_classes_are_a_class_with_a_parameter() -> None:
    for word, logistic in (("paper", "bound"), ("paper-logistic", "printed")):
        with pytest.warns(FutureWarning, match=r"the class mssl\.paper\.PaperMSSLClassifier"):
            model = mssl.MSSLClassifier(0.5, formulation=word)
        assert repr(model) == repr(PaperMSSLClassifier(0.5, logistic=logistic))
        assert type(clone(model)) is PaperMSSLClassifier
        with pytest.warns(FutureWarning, match=r"the class mssl\.paper\.PaperMSSLClassifier"):
            assert repr(mssl.MSSLClassifier(0.5).set_params(formulation=word)) == repr(model)


def test_old_noise_weighs_as_its_square_does_and_is_told_by_its_root() -> None:
    data = mssl.datasets.make_clustered_tasks(n_tasks=4, n_features=4, n_samples=20, clusters=[[0, 1]], random_state=0)
    given = np.array([0.5, 1.0, 1.5, 2.0])
    with pytest.warns(FutureWarning, match="now loss"):
        old = mssl.MSSLRegressor(noise=given).fit(data.X, data.y, tasks=data.tasks)
    new = mssl.MSSLRegressor(loss=Gaussian(noise_variance=given**2)).fit(data.X, data.y, tasks=data.tasks)
    np.testing.assert_array_equal(old.coef_, new.coef_)
    np.testing.assert_allclose(new.noise_variance_, given**2)
    with pytest.warns(FutureWarning, match="`noise_` of MSSLRegressor is now `noise_variance_`"):
        np.testing.assert_allclose(new.noise_, given)


def test_several_old_names_of_one_part_come_together() -> None:
    with pytest.warns(FutureWarning):
        model = mssl.MSSLRegressor(0.2, shrinkage=0.5, correlation="spearman", ridge=1.0)
    assert repr(model.graph_penalty) == "SparsePrecision(alpha=0.2, correlation='spearman', shrinkage=0.5)"
    assert repr(model.coef_penalty) == "ElasticNet(ridge=1.0)"
    grid = {"graph_penalty": [0.3], "coef_penalty": [0.0], "shared_mean": [False]}
    data = mssl.datasets.make_clustered_tasks(n_tasks=4, n_features=4, n_samples=20, clusters=[[0, 1]], random_state=0)
    old = mssl.MSSLRegressorCV(param_grid={**grid, "coupling": [2.0], "shrinkage": [0.5]}, cv=2)
    with pytest.warns(FutureWarning, match=r"is now `(graph_penalty__shrinkage|prior_strength)`"):
        old.fit(data.X, data.y, tasks=data.tasks)
    new = {**grid, "prior_strength": [2.0], "graph_penalty__shrinkage": [0.5]}
    found = mssl.MSSLRegressorCV(param_grid=new, cv=2).fit(data.X, data.y, tasks=data.tasks)
    np.testing.assert_array_equal(found.coef_, old.coef_)
    plain = mssl.MSSLRegressor().set_params(**found.best_params_, tol=1e-6)
    assert repr(plain) == repr(found.best_estimator_)


def test_a_search_keeps_the_other_options_of_a_part() -> None:
    data = mssl.datasets.make_clustered_tasks(n_tasks=4, n_features=4, n_samples=20, clusters=[[0, 1]], random_state=0)
    part = SparsePrecision("auto", correlation="spearman")
    grid = {"graph_penalty": [0.3, 0.1], "coef_penalty": [0.0], "prior_strength": [1.0], "shared_mean": [False]}
    search = mssl.MSSLRegressorCV(mssl.MSSLRegressor(part), grid, cv=2).fit(data.X, data.y, tasks=data.tasks)
    assert search.best_estimator_.graph_penalty.correlation == "spearman"
    assert search.best_estimator_.graph_penalty.alpha == search.best_params_["graph_penalty"]
    assert part.alpha == "auto"
