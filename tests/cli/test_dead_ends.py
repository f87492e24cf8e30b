"""What the command line does with models of Python, terminals without the characters, codes and --quiet."""

import json
import os
import subprocess

import numpy as np
import pandas as pd
import pytest
from command_line import ENTRY, QUICK, run

import mssl
from mssl import MSSLRegressor

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("codes")
    rng = np.random.default_rng(0)
    codes, site = rng.choice(["001", "002", "003"], 60), np.tile(["Zürich", "Graz"], 30)
    frame = pd.DataFrame({"x": rng.normal(size=60), "code": codes, "site": site})
    frame.assign(y=frame["x"] + (codes == "002") + 0.3 * rng.normal(size=60)).to_csv(place / "data.csv", index=False)
    return place


def read(folder):
    table = pd.read_csv(folder / "data.csv", dtype={"code": str})
    return table[["x", "code", "site"]], table["y"]


def in_ascii(*arguments, cwd):
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    return subprocess.run([*ENTRY, *arguments], cwd=cwd, env=env, capture_output=True, check=False)


def test_a_model_of_python_predicts_by_the_command_line(folder):
    X, y = read(folder)
    own = MSSLRegressor(task_column="site", categorical_features=["code"]).fit(X, y)
    beside = MSSLRegressor(categorical_features=["code"]).fit(X[["x", "code"]], y, tasks=X["site"])
    for model, options in ((own, []), (beside, ["--task", "site"])):
        mssl.save(model, folder / "python.npz")
        answers = json.loads(run("predict", "python.npz", "data.csv", "--json", *options, cwd=folder).stdout)
        np.testing.assert_allclose([row["prediction"] for row in answers["predictions"]], own.predict(X))
    done = run("predict", "python.npz", "data.csv", cwd=folder, code=2)
    assert "name their column with --task" in done.stderr


def test_declared_codes_keep_their_zeros_and_go_back_to_python(folder):
    run(
        "fit",
        "data.csv",
        "--task",
        "site",
        "--target",
        "y",
        "--categorical",
        "code",
        "--save",
        "m.npz",
        *QUICK,
        cwd=folder,
    )
    X, _ = read(folder)
    model = mssl.load(folder / "m.npz")
    assert model.features_.tolist() == ["x", "code=001", "code=002", "code=003"]
    answers = json.loads(run("predict", "m.npz", "data.csv", "--json", cwd=folder).stdout)["predictions"]
    np.testing.assert_allclose([row["prediction"] for row in answers], model.predict(X))
    done = run("fit", "data.csv", "--task", "site", "--target", "y", "--categorical", "cod", *QUICK, cwd=folder, code=1)
    assert "has no column 'cod'" in done.stderr


def test_characters_that_a_terminal_lacks_are_escaped(folder):
    X, y = read(folder)
    mssl.save(MSSLRegressor(task_column="site").fit(X, y), folder / "names.npz")
    plain = in_ascii("predict", "names.npz", "data.csv", cwd=folder)
    assert (plain.returncode, plain.stderr) == (0, b"")
    assert plain.stdout.count(b"Z\\xfcrich") == 30
    answers = json.loads(in_ascii("predict", "names.npz", "data.csv", "--json", cwd=folder).stdout.decode("ascii"))
    assert {row["site"] for row in answers["predictions"]} == {"Zürich", "Graz"}
    assert in_ascii("inspect", "names.npz", "--tasks", cwd=folder).returncode == 0


def test_quiet_comparisons_print_their_table_and_nothing_else(folder):
    what = ("compare", "data.csv", "--task", "site", "--target", "y", "--methods", "ridge,pooled", "--folds", "2")
    quiet, loud = run(*what, "-q", cwd=folder), run(*what, cwd=folder)
    assert "less deviance than ridge" in quiet.stdout
    assert (quiet.stdout, quiet.stderr) == (loud.stdout, "")
