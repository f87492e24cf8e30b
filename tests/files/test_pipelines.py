"""Pipelines that end in an estimator of this package are saved and come back, transformers and all."""

import shutil

import numpy as np
import pytest
from damage import header_of, with_header
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
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
from mssl import BayesianMSSLRegressor, MSSLRegressor, MSSLRegressorCV
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import ModelFileError
from mssl.files.codec import WORDS, Decoder
from mssl.files.models import read_header

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


def nested(**idle):
    """A pipeline in a pipeline, a column transformer with pipelines in it, and an estimator that keeps a record."""
    inner = make_pipeline(make_pipeline(StandardScaler(), memory=idle.get("memory")), MinMaxScaler())
    columns = ColumnTransformer(
        [
            ("own", make_pipeline(StandardScaler(), memory=idle.get("memory")), [0, 1]),
            ("others", "passthrough", [2, 3]),
        ],
        n_jobs=idle.get("n_jobs"),
    )
    last = BayesianMSSLRegressor("ridge", features="linear", cv=2, checkpoint=idle.get("checkpoint"))
    return make_pipeline(inner, columns, last, memory=idle.get("memory"))


def objects(value):
    """Every object in the JSON of a model, with the parameters that say how it runs."""
    if isinstance(value, dict):
        yield from [value["v"]] if value.get("#") == "object" else []
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(item)


def test_files_and_processes_of_a_run_are_not_saved(tmp_path):
    from joblib import Memory

    folder, record = tmp_path / "pickles", tmp_path / "fit.record"
    fit = {"bayesianmsslregressor__tasks": DATA.tasks}
    for memory in (str(folder), Memory(folder, verbose=0)):
        pipe = nested(memory=memory, checkpoint=record).fit(DATA.X, DATA.y, **fit)
        pipe.named_steps["columntransformer"].set_params(n_jobs=10**6)
        assert folder.exists()
        path = mssl.save(pipe, tmp_path / "m.npz")
        shutil.rmtree(folder)
        record.unlink(missing_ok=True)
        again = mssl.load(path)
        idle = [name for name in again.get_params() if name.rpartition("__")[2] in ("memory", "checkpoint", "n_jobs")]
        assert len(idle) == 6
        assert [again.get_params()[name] for name in idle] == [None] * 6
        np.testing.assert_array_equal(
            again.predict(DATA.X, tasks=DATA.tasks), again.fit(DATA.X, DATA.y, **fit).predict(DATA.X, tasks=DATA.tasks)
        )
        assert [each.name for each in tmp_path.iterdir()] == ["m.npz"]
        assert pipe.memory is memory  # the model in memory keeps what it has


def test_a_search_keeps_no_record(tmp_path):
    search = MSSLRegressorCV(checkpoint=str(tmp_path / "record"), n_jobs=2)
    path = mssl.save(search, tmp_path / "m.npz")
    again = mssl.load(path)
    assert (again.checkpoint, again.n_jobs) == (None, 2)
    assert "record" not in str(read_header(path)["parameters"])


@pytest.mark.parametrize(
    ("name", "value"), [("memory", "here"), ("checkpoint", "here"), ("n_jobs", 10**6), ("n_jobs", "9999")]
)
def test_files_and_processes_of_a_run_are_not_loaded(name, value, tmp_path):
    path = mssl.save(nested(), tmp_path / "m.npz")
    mssl.load(path)
    data = path.read_bytes()
    places = [k for k, each in enumerate(objects(header_of(data)["model"])) if name in each]
    assert len(places) == {"memory": 4, "checkpoint": 1, "n_jobs": 1}[name]
    for place in places:
        header = header_of(data)
        list(objects(header["model"]))[place][name] = value
        path.write_bytes(with_header(data, header))
        with pytest.raises(ModelFileError, match=f"the parameter '{name}' of"):
            mssl.load(path)


def test_a_file_of_ones_own_class_names_no_files_either(tmp_path):
    class Own(Pipeline):
        def __init__(self, steps):
            super().__init__(steps)

    path = mssl.save(Own([("scale", StandardScaler())]), tmp_path / "m.npz")
    header = header_of(path.read_bytes())
    header["model"]["v"]["memory"] = {"#": "object", "class": "standard_scaler", "v": {}}
    path.write_bytes(with_header(path.read_bytes(), header))
    with pytest.raises(ModelFileError, match="the parameter 'memory' of Own"):
        mssl.load(path, classes=[Own])
