"""Columns of codes: which are categories and which are numbers, and what is said of them; records as rows."""

from __future__ import annotations

import datetime as dt
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import mssl
from mssl import BayesianMSSLRegressor, MSSLClassifier, MSSLRegressor
from mssl.data.encoding import read_features
from mssl.exceptions import DataError, LayoutError, ParameterError
from mssl.files.tables import learn_schema, read_table

CODINGS = {
    "open end": ["0", "1", "2", "3+"],
    "ICD": ["250", "401", "V57"],
    "unknown": ["0", "1", "2", "unknown"],
    "doses": ["5", "10", "25+"],
    "letters": ["A", "B"],
    "yes": ["yes", "no"],
    "levels": ["low", "mid", "high"],
    "numbers": ["1", "2", "3"],
    "zeros": ["001", "002"],
    "truth": ["True", "False"],
    "missing": ["m", "f", "missing"],
    "ranges": ["<5", "5-10", ">10"],
    "postcodes": ["1010", "1020", "8010", "A-9020"],
    "Likert": ["1 - strongly agree", "2 - agree", "3", "4 - disagree"],
    "gaps": ["a", "7", None, "8"],
}
NUMERIC = {"numbers", "zeros"}  # all of it reads as numbers, and stays so unless it is declared


def coded(levels, n: int = 120):
    rng = np.random.default_rng(0)
    values = [levels[i] for i in rng.integers(len(levels), size=n)]
    return {"c": values, "x": rng.normal(size=n).tolist(), "t": np.tile(["p", "q"], n // 2).tolist()}, rng.normal(
        size=n
    )


@pytest.mark.filterwarnings("ignore:Column 'c' holds numbers and text")
@pytest.mark.parametrize("name", CODINGS)
def test_usual_codings_fit_alike_from_every_kind_of_table(name: str, tmp_path) -> None:
    given, y = coded(CODINGS[name])
    frame = pd.DataFrame(given)
    tables = [frame, frame.astype({"c": "string"}), frame.astype({"c": "string[pyarrow]"}), pl.DataFrame(given)]
    tables += [pa.table(given), given]
    n_levels = len([level for level in CODINGS[name] if level is not None])
    wide = 1 if name in NUMERIC or n_levels == 2 else n_levels
    coefs = []
    for table in tables:
        model = MSSLRegressor(task_column="t", missing="indicator").fit(table, y)
        assert len(model.features_) == wide + 1 + (None in CODINGS[name])
        coefs.append(model.coef_)
        np.testing.assert_array_equal(mssl.load(mssl.save(model, tmp_path / "m")).predict(table), model.predict(table))
    for coef in coefs[1:]:
        np.testing.assert_array_equal(coef, coefs[0])
    typed = [frame.astype({"c": "category"}), pl.DataFrame(given).with_columns(pl.col("c").cast(pl.Categorical))]
    declared = [MSSLRegressor(task_column="t", missing="indicator").fit(table, y) for table in typed]
    declared += [MSSLRegressor(task_column="t", missing="indicator", categorical_features=["c"]).fit(frame, y)]
    for model in declared:  # whatever the levels are called
        assert len(model.features_) == (1 if n_levels == 2 else n_levels) + 1 + (None in CODINGS[name])
        np.testing.assert_array_equal(model.coef_, declared[0].coef_)
    frame.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    for codes, wanted in (((), coefs[0].shape[1]), (("c",), declared[0].coef_.shape[1])):
        table = read_table(tmp_path / "t.csv", text=["t", *codes])
        schema = learn_schema(table, "t", "y", missing="indicator", categorical=codes)
        assert len(schema.feature_names) == wanted


@pytest.mark.parametrize(
    "levels",
    [
        pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]),
        pd.interval_range(0, 3),
        [1.5, 2.5, 4.0],
        [dt.date(2020, 1, 1), dt.date(2021, 1, 1), ("a", 1)],
        [True, False, "maybe"],
    ],
    ids=["dates", "intervals", "numbers", "objects", "mixed"],
)
def test_a_column_of_type_category_is_one_whatever_its_levels_are(levels) -> None:
    given, y = coded([0, 1, 2])
    codes, frame = given.pop("c"), pd.DataFrame(given)
    column = pd.Series(pd.Categorical.from_codes(codes, levels))
    model = MSSLRegressor(task_column="t").fit(frame.assign(c=column), y)
    named = MSSLRegressor(task_column="t").fit(frame.assign(c=column.astype(str).astype("category")), y)
    np.testing.assert_allclose(model.predict(frame.assign(c=column)), named.predict(frame.assign(c=column)))


def test_few_levels_are_a_category_with_one_line_and_many_are_refused_with_the_remedy() -> None:
    levels = [str(code) for code in range(9)] + ["9+"]
    few, many = levels * 5, levels * 4  # ten levels are a fifth of 50 rows, a quarter of 40
    with pytest.warns(
        UserWarning, match=r"'9\+'\), and is taken for a category of 10 levels.*categorical_features=\['c'\] ends"
    ) as told:
        read = read_features(pd.DataFrame({"c": few}))
    assert len(told) == 1
    assert read.values.shape == (50, 10)
    with pytest.raises(DataError, match=r"correct the text.*categorical_features=\['c'\]"):
        read_features(pd.DataFrame({"c": many}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_features(pd.DataFrame({"c": many}), categorical=["c"]).values.shape == (40, 10)
        assert read_features(pd.DataFrame({"c": many}, dtype="category")).values.shape == (40, 10)
    wide = [str(code) for code in range(30)] + ["30+"]  # 31 levels, however many rows
    with pytest.raises(DataError, match="holds numbers and text"):
        read_features(pd.DataFrame({"c": wide * 50}))
    with pytest.raises(DataError, match="holds numbers with separators"):  # which wins over few levels
        read_features(pd.DataFrame({"c": ["0,5", "1", "2"] * 50}))


def test_declared_columns_by_name_and_by_place_are_the_same_in_frames_and_arrays(rng) -> None:
    X, y = np.c_[rng.normal(size=60), rng.integers(0, 4, 60)], rng.normal(size=60)
    tasks = np.arange(60) % 2
    frame = pd.DataFrame(X, columns=["x0", "x1"]).assign(site=tasks)
    models = [
        MSSLRegressor(categorical_features=[1]).fit(X, y, tasks=tasks),
        MSSLRegressor(categorical_features=[-1], task_column=2).fit(np.c_[X, tasks], y),
        MSSLRegressor(categorical_features=["x1"], task_column="site").fit(frame[["site", "x0", "x1"]], y),
        MSSLRegressor(categorical_features=[1], task_column="site").fit(frame[["site", "x0", "x1"]], y),
    ]
    for model in models:
        assert model.features_.tolist() == ["x0", "x1=0", "x1=1", "x1=2", "x1=3"]
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
    with pytest.warns(UserWarning, match="holds '7', not seen in training"):
        none = models[0].predict([[0.0, 7.0]], tasks=[0])
    np.testing.assert_allclose(none, models[0].intercept_[:1])
    aligned = rng.normal(size=(20, 3, 2))
    aligned[..., 1] = rng.integers(0, 3, (20, 3))
    assert MSSLRegressor(categorical_features=[1]).fit(aligned, rng.normal(size=(20, 3))).coef_.shape == (3, 4)
    with pytest.raises(ParameterError, match=r"categorical_features is \[5\]; give names or places"):
        MSSLRegressor(categorical_features=[5]).fit(X, y)


def test_codes_are_one_whether_they_are_read_as_text_or_as_numbers(tmp_path) -> None:
    given, y = coded(["001", "002", "010"])
    frame = pd.DataFrame(given).assign(y=y)
    model = MSSLRegressor(task_column="t", categorical_features=["c"]).fit(frame[["c", "x", "t"]], y)
    as_numbers = frame.assign(c=frame["c"].astype(float))
    np.testing.assert_array_equal(model.predict(as_numbers[["c", "x", "t"]]), model.predict(frame[["c", "x", "t"]]))


@pytest.fixture(scope="module")
def known():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"age": rng.normal(size=60), "sex": rng.choice(["f", "m"], 60), "site": np.tile(["a", "b"], 30)}
    )
    y = frame["age"] + (frame["sex"] == "m") + 0.3 * rng.normal(size=60)
    kinds = {"prior": "ridge", "features": "linear", "calibrate": False, "task_column": "site"}
    return frame, y, BayesianMSSLRegressor(**kinds).fit(frame, y), MSSLClassifier(task_column="site").fit(frame, y > 0)


def test_records_and_tables_are_rows_in_every_prediction(known) -> None:
    frame, _, model, labels = known
    row = {"site": "b", "sex": "m", "age": 0.5}  # in another order than that of the columns
    two = frame.iloc[:2]
    for one in (row, [row], pd.Series(row), {name: [value] for name, value in row.items()}):
        whole = pd.DataFrame([row])[list(frame.columns)]
        np.testing.assert_array_equal(model.predict(one), model.predict(whole))
        np.testing.assert_array_equal(model.predict_interval(one), model.predict_interval(whole))
        np.testing.assert_array_equal(labels.predict_proba(one), labels.predict_proba(whole))
    for many in (two.to_dict("records"), two.to_dict("list"), pa.Table.from_pandas(two, preserve_index=False)):
        np.testing.assert_array_equal(model.predict(many), model.predict(two))
    with pytest.raises(LayoutError, match="indexed by 0, 1, and this model has the columns 'age', 'sex'; a Series is"):
        model.predict(pd.Series([0.5, 1.0]))
    with pytest.raises(LayoutError, match="forms no table"):
        model.predict({"age": [1.0, 2.0], "sex": ["m"], "site": ["a"]})


def test_tables_of_arrow_and_dicts_are_fitted_and_adapted_to(known) -> None:
    frame, y, model, _ = known
    for table in (pa.Table.from_pandas(frame), frame.to_dict("list"), frame.to_dict("records")):
        same = clone(model).fit(table, y)
        np.testing.assert_array_equal(same.coef_, model.coef_)
        same.adapt({"age": [0.1, 0.2], "sex": ["f", "m"]}, [0.0, 1.0], "c")
        assert same.predict({"age": 0.0, "sex": "f", "site": "c"}).shape == (1,)


@pytest.mark.parametrize("kind", [MSSLRegressor, BayesianMSSLRegressor])
def test_text_in_a_column_of_numbers_is_no_new_category(kind):
    """After the fit texts that are numbers are these numbers, and others are refused: none becomes a column of 0 and 1."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"task": np.repeat(["a", "b"], 30), "x": random.normal(size=60), "z": random.normal(size=60)})
    model = kind(task_column="task").fit(frame, frame["x"] - frame["z"] + 0.1 * random.normal(size=60))
    rows = frame[:4].assign(x=frame["x"][:4].astype(str))
    np.testing.assert_allclose(model.predict(rows), model.predict(frame[:4]))
    record = frame.iloc[0].to_dict()
    np.testing.assert_allclose(model.predict(record | {"x": str(record["x"])}), model.predict(frame[:1]))
    for wrong in ("abc", "true"):
        with pytest.raises(DataError, match="it was numeric in training"):
            model.predict(record | {"x": wrong})


@pytest.mark.parametrize("wrong", [[], None, "abc", 3.0])
def test_what_is_no_table_is_said_so(wrong):
    frame = pd.DataFrame({"task": np.repeat(["a", "b"], 10), "x": np.arange(20.0)})
    model = MSSLRegressor(task_column="task").fit(frame, np.random.default_rng(0).normal(size=20))
    for call in (model.predict, lambda X: MSSLRegressor(task_column="task").fit(X, [1.0])):
        with pytest.raises((DataError, TypeError), match="X"):
            call(wrong)
