"""Categories and missing values in X: encoded alike from pandas, polars and tables, in training and later."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import mssl
from mssl import MSSLClassifier, MSSLRegressor
from mssl.data.encoding import read_features
from mssl.exceptions import DataError, ParameterError
from mssl.files.tables import learn_schema, read_table


@pytest.fixture
def columns(rng):
    n = 60
    return {
        "age": rng.normal(size=n),
        "colour": rng.choice(["red", "green", "blue"], size=n).tolist(),
        "sex": rng.choice(["f", "m"], size=n).tolist(),
        "smoker": (rng.uniform(size=n) < 0.5).tolist(),
        "count": rng.integers(0, 5, n).tolist(),
    }


NAMES = ["age", "colour=blue", "colour=green", "colour=red", "sex=m", "smoker", "count"]


def frames(columns):
    pandas = pd.DataFrame(columns)
    return {
        "pandas": pandas,
        "polars": pl.DataFrame(columns),
        "categories": pandas.astype({"colour": "category", "sex": "category"}),
        "objects": pandas.astype(object),
        "nullable": pandas.convert_dtypes(),
        "polars categories": pl.DataFrame(columns).with_columns(pl.col("colour", "sex").cast(pl.Categorical)),
    }


def test_all_frames_mean_the_same(columns):
    wanted = np.column_stack(
        [
            columns["age"],
            *([value == level for value in columns["colour"]] for level in ("blue", "green", "red")),
            [value == "m" for value in columns["sex"]],
            columns["smoker"],
            columns["count"],
        ]
    ).astype(float)
    for kind, frame in frames(columns).items():
        read = read_features(frame)
        np.testing.assert_array_equal(read.values, wanted, err_msg=kind)
        assert read.feature_names.tolist() == NAMES
        np.testing.assert_array_equal(read_features(frame[::-1], encoder=read.encoder).values, wanted[::-1])


def test_the_command_line_encodes_alike(columns, tmp_path):
    frame = pd.DataFrame(columns).assign(task="a", y=1.0)
    frame.loc[3, "age"], frame.loc[5, "colour"] = np.nan, None
    frame.to_csv(tmp_path / "table.csv", index=False)
    table = read_table(tmp_path / "table.csv", text=["task"])
    schema = learn_schema(table, "task", "y", missing="indicator")
    rows = schema.encode(table, with_target=True)
    read = read_features(frame.drop(columns=["task", "y"]), missing="indicator")
    assert schema.columns == read.encoder.columns
    assert schema.feature_names == read.feature_names.tolist() == [*NAMES, "age missing", "colour missing"]
    np.testing.assert_array_equal(rows.X, read.values)


@pytest.mark.parametrize("kind", ["array", "pandas", "polars"])
def test_missing_numbers_are_filled_and_marked(rng, kind):
    X = rng.normal(size=(30, 3))
    X[[2, 5], 1] = np.nan
    means = np.nanmean(X, axis=0)
    given = {"array": X, "pandas": pd.DataFrame(X, columns=list("abc")), "polars": pl.DataFrame(X, schema=list("abc"))}
    given["polars"] = given["polars"].with_columns(pl.col("b").fill_nan(None))
    read = read_features(given[kind], missing="indicator")
    gap = np.isnan(X[:, 1])
    np.testing.assert_allclose(read.values, np.column_stack([np.where(np.isnan(X), means, X), gap]))
    later = X[:4].copy()
    later[0, 0] = np.nan  # a column that was complete in training has a mean and no mark
    again = read_features(later, encoder=read.encoder).values
    assert again.shape == (4, 4)
    np.testing.assert_allclose(again[0], [means[0], *X[0, 1:], 0.0])


def test_a_column_without_any_value_says_nothing(rng):
    X = rng.normal(size=(30, 2))
    gone = np.column_stack([X, np.full(30, np.nan)])
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    model = MSSLRegressor(missing="indicator").fit(gone, y)
    assert model.coef_[0, 2] == 0.0
    gone[0, 2] = 7.0
    np.testing.assert_allclose(model.predict(gone), X @ model.coef_[0, :2] + model.intercept_[0])
    assert model.features_.tolist() == ["x0", "x1", "x2"]


def test_missing_values_are_refused_with_columns_rows_and_remedy(rng, columns):
    X = rng.normal(size=(9, 3))
    X[[4, 7], 1] = np.nan
    for bad in (X, pd.DataFrame(X, columns=["x0", "x1", "x2"])):
        with pytest.raises(DataError, match=r"NaN.*'x1' \(2 rows, first: row 4\).*missing='indicator'"):
            MSSLRegressor().fit(bad, np.arange(9.0))
    columns["colour"][3] = None
    for frame in frames(columns).values():
        with pytest.raises(DataError, match=r"'colour' \(1 rows, first: row 3\)"):
            MSSLRegressor().fit(frame, np.arange(60.0), tasks=np.arange(60) % 2)
    with pytest.raises(ParameterError, match="missing"):
        MSSLRegressor(missing="mean").fit(X, np.arange(9.0))


def test_aligned_rows_with_gaps(rng):
    X = rng.normal(size=(20, 3, 2))
    X[0, 1, 0] = np.nan
    model = MSSLRegressor(missing="indicator").fit(X, rng.normal(size=(20, 3)))
    assert model.coef_.shape == (3, 3)
    assert model.n_features_in_ == 2
    assert np.isfinite(model.predict(X)).all()


def test_fit_predict_save_load_with_categories(rng, columns, tmp_path):
    tasks = np.arange(60) % 3
    y = rng.normal(size=60) + np.asarray([value == "red" for value in columns["colour"]])
    found = []
    for frame in frames(columns).values():
        model = MSSLRegressor().fit(frame, y, tasks=tasks)
        assert model.features_.tolist() == NAMES
        again = mssl.load(mssl.save(model, tmp_path / "m.npz"))
        np.testing.assert_array_equal(again.predict(frame, tasks=tasks), model.predict(frame, tasks=tasks))
        found.append(model.coef_)
        assert clone(model).get_params() == model.get_params()
    for coef in found[1:]:
        np.testing.assert_array_equal(coef, found[0])
    labels = np.where(y > 0, "up", "down")
    assert MSSLClassifier().fit(frame, labels, tasks=tasks).coef_.shape == (3, 7)


@pytest.mark.parametrize("library", [pd, pl])
def test_levels_with_an_order_keep_it(library):
    sizes = ["L", "S", "M", "S"]
    if library is pd:
        column = pd.Series(pd.Categorical(sizes, categories=["XS", "S", "M", "L"], ordered=True))
    else:
        column = pl.Series(sizes, dtype=pl.Enum(["XS", "S", "M", "L"]))
    read = read_features(library.DataFrame({"size": column, "plain": sizes}))
    assert [schema.categories for schema in read.encoder.columns] == [("S", "M", "L"), ("L", "M", "S")]


def test_a_new_category_is_none_of_the_known_ones(rng, columns):
    frame, tasks = pd.DataFrame(columns), np.arange(60) % 2
    model = MSSLRegressor().fit(frame, rng.normal(size=60), tasks=tasks)
    new = frame[:2].assign(colour=["violet", frame["colour"][1]])
    with pytest.warns(UserWarning, match="'colour' holds 'violet', not seen") as told:
        prediction = model.predict(new, tasks=[0, 1])
    assert len(told) == 1
    x = np.concatenate(
        [[frame["age"][0]], np.zeros(3), [frame["sex"][0] == "m", frame["smoker"][0], frame["count"][0]]]
    )
    np.testing.assert_allclose(prediction[0], x.astype(float) @ model.coef_[0] + model.intercept_[0])


def test_what_does_not_fit_the_training_frame_is_refused(rng, columns):
    frame, tasks = pd.DataFrame(columns), np.arange(60) % 2
    model = MSSLRegressor().fit(frame, rng.normal(size=60), tasks=tasks)
    with pytest.raises(DataError, match="fitted to a frame"):
        model.predict(rng.normal(size=(2, 5)), tasks=[0, 1])
    with pytest.raises(DataError, match="'age' holds 'old'; it was numeric"):
        model.predict(frame[:2].assign(age=["old", "young"]), tasks=[0, 1])
    with pytest.raises(DataError, match="columns"):
        model.predict(frame.drop(columns="sex"), tasks=tasks)
    with pytest.raises(DataError, match="100"):
        MSSLRegressor().fit(pd.DataFrame({"a": [f"text {k}" for k in range(200)]}), rng.normal(size=200))


def test_a_forgotten_task_column_is_pointed_out(rng, columns):
    frame = pd.DataFrame(columns)
    with pytest.warns(UserWarning, match="'colour', 'sex' are encoded .* task_column"):
        MSSLRegressor().fit(frame, rng.normal(size=60))


def test_columns_that_differ_from_training_are_named():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 0.0], "kind": ["x", "y", "x"]})
    encoder = read_features(frame).encoder
    with pytest.raises(DataError, match="X lacks the columns 'b'; give those of training, 'a', 'b', 'kind'"):
        read_features(frame.drop(columns="b"), encoder=encoder)
    with pytest.raises(DataError, match="X has the columns 'c', which were not in training; give"):
        read_features(frame.assign(c=1.0), encoder=encoder)
    with pytest.raises(DataError, match="X lacks the columns 'b' and has the columns 'B'"):
        read_features(frame.rename(columns={"b": "B"}), encoder=encoder)
