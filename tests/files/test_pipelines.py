"""Pipelines that end in an estimator of this package are saved and come back, transformers and all."""

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import mssl
from mssl import MSSLRegressor
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import ModelFileError
from mssl.files.codec import WORDS, Decoder

DATA = make_clustered_tasks(n_features=4, n_samples=15, random_state=0)
STEPS = [
    StandardScaler(),
    MinMaxScaler(),
    MaxAbsScaler(),
    RobustScaler(),
    Normalizer(),
    PowerTransformer(),
    QuantileTransformer(n_quantiles=20),
    PolynomialFeatures(2),
    OneHotEncoder(handle_unknown="ignore"),
    OrdinalEncoder(),
    SimpleImputer(),
    VarianceThreshold(),
    PCA(2),
    TruncatedSVD(2),
    FunctionTransformer(),
    ColumnTransformer([("scaled", StandardScaler(), slice(0, 2)), ("others", "passthrough", [2])]),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_a_pipeline_comes_back(step, tmp_path):
    X = np.round(DATA.X) if "Encoder" in type(step).__name__ else DATA.X
    pipe = make_pipeline(step, MSSLRegressor()).fit(X, DATA.y, msslregressor__tasks=DATA.tasks)
    again = mssl.load(mssl.save(pipe, tmp_path / "m.mssl"))
    expected = pipe.predict(X, tasks=DATA.tasks)
    np.testing.assert_array_equal(again.predict(X, tasks=DATA.tasks), expected)


def test_every_step_with_a_word_is_in_the_table():
    foreign = {home.rpartition(".")[2] for home in WORDS.values() if not home.startswith("mssl.")}
    assert foreign == {type(step).__name__ for step in STEPS} | {"Pipeline"}


def test_a_function_is_not_saved(tmp_path):
    pipe = make_pipeline(FunctionTransformer(np.abs), MSSLRegressor()).fit(
        DATA.X, DATA.y, msslregressor__tasks=DATA.tasks
    )
    with pytest.raises(ModelFileError, match="cannot hold"):
        mssl.save(pipe, tmp_path / "m.mssl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "value",
    [
        {"#": "slice", "v": [0, 1]},
        {"#": "slice", "v": [0, "x", None]},
        {"#": "dtype", "v": "O"},
        {"#": "dtype", "v": 3},
        {"#": "number_type", "v": "<V8"},
    ],
)
def test_damaged_values_are_refused(value):
    with pytest.raises(ModelFileError):
        Decoder([]).decode(value)
