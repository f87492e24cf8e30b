"""A model of a table, taken up in Python: it knows the table's own columns."""

import csv
import json

import numpy as np
import pytest
from command_line import QUICK, call

import mssl
from mssl.data.encoding import Features
from mssl.files.tables import TableSchema

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

METHODS = {"p-mssl": QUICK, "ridge": (), "search": ("--set", "features=spline")}


def write(path, gaps):
    rng = np.random.default_rng(0)
    n = 90
    frame = pd.DataFrame(
        {
            "site": rng.choice([3, 11, 20], n),  # ids that are numbers stay what they are in the frame
            "note": [f"n{k}" for k in range(n)],
            "dose": rng.normal(size=n).round(3),
            "sex": rng.choice(["f", "m"], n),
            "grade": rng.choice(["a", "b", "c"], n),
        }
    )
    frame["y"] = (frame.dose + (frame.sex == "m") - 2 * (frame.grade == "b") + 0.1 * rng.normal(size=n)).round(3)
    if gaps:
        frame.loc[[3, 40], "dose"] = np.nan
        frame.loc[[7], "grade"] = None
    frame.to_csv(path, index=False)
    return pd.read_csv(path)


def predictions(*args):
    rows = csv.DictReader(call("predict", *args).stdout.splitlines())
    return np.array([float(row["prediction"]) for row in rows])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("missing", ["error", "mean", "indicator"])
def test_the_tables_own_rows_are_predicted_in_python_as_on_the_command_line(method, missing, tmp_path):
    data, path = tmp_path / "data.csv", tmp_path / "m.npz"
    frame = write(data, gaps=missing != "error")
    name = "p-mssl" if method == "search" else method
    options = ("--task", "site", "--target", "y", "--drop", "note", "--missing", missing, "--method", name)
    call("fit", data, *options, *METHODS[method], "--save", path)
    model, told = mssl.load(path), predictions(path, data)
    np.testing.assert_array_equal(model.predict(frame), told)
    # Columns are found by their names: others may be there, and the order is free.
    np.testing.assert_array_equal(model.predict(frame[["grade", "sex", "site", "dose"]]), told)
    np.testing.assert_array_equal(model.predict(frame.drop(columns="site"), tasks=frame["site"]), told)
    assert model.feature_names_in_.tolist() == ["dose", "sex", "grade"]
    assert model.task_column == "site"
    fitted = getattr(model, "best_estimator_", model)
    assert fitted.missing == ("error" if missing == "error" else "indicator")
    assert json.loads(call("inspect", path, "--json").stdout)["notes"]["missing_features"] == missing
    with pytest.raises(mssl.exceptions.DataError, match="sex"):
        model.predict(frame.drop(columns="sex"))
    polars = pytest.importorskip("polars")
    np.testing.assert_array_equal(model.predict(polars.read_csv(data)), told)


def test_a_fit_in_python_forgets_the_table(tmp_path):
    frame = write(tmp_path / "data.csv", gaps=False)
    options = ("--task", "site", "--target", "y", "--drop", "note")
    call("fit", tmp_path / "data.csv", *options, *QUICK, "--save", tmp_path / "m.npz")
    model = mssl.load(tmp_path / "m.npz")
    other = frame[["site", "dose"]].assign(other=frame["y"] ** 2)
    assert model.fit(other, frame["y"]).predict(other).shape == (90,)
    assert not hasattr(model, "table_")


def test_files_of_earlier_versions_learn_the_columns_when_they_are_read(tmp_path, monkeypatch):
    def attach_as_before(schema, model):
        model.table_, model.features_ = schema, np.asarray(schema.feature_names, dtype=object)

    data, path = tmp_path / "data.csv", tmp_path / "m.npz"
    frame = write(data, gaps=True)
    options = ("--task", "site", "--target", "y", "--drop", "note", "--missing", "indicator")
    with monkeypatch.context() as patch:
        patch.setattr(TableSchema, "attach", attach_as_before)
        call("fit", data, *options, *QUICK, "--save", path)
    model = mssl.load(path)
    np.testing.assert_array_equal(model.predict(frame), predictions(path, data))
    rows = model.table_.encode(model.table_.read(data))
    assert isinstance(rows.features, Features)
    np.testing.assert_array_equal(model.predict(rows.features, tasks=rows.tasks), model.predict(frame))
