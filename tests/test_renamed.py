"""Old names of parameters answer in every place where a name can be given, with one warning."""

from __future__ import annotations

import inspect
import warnings

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.pipeline import Pipeline

from mssl._renamed import old_names


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
