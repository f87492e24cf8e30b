"""What the commands write: where, in which format, over what, and in which words."""

import csv
import gzip
import json
import os
import re
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from command_line import ENTRY, QUICK, call, run, write_table

import mssl
from mssl.cli import commands
from mssl.files.tables import read_table

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def weather(tmp_path_factory):
    """A folder with a table and a model of it."""
    folder = tmp_path_factory.mktemp("weather")
    data = write_table(folder / "data.csv")
    call("fit", data, "--task", "station", "--target", "y", "--save", folder / "model.npz", *QUICK)
    return folder


def test_pipes_are_written_to(weather, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as readers:
        read = readers.submit(pipe.read_text)
        run("predict", weather / "model.npz", weather / "data.csv", "-o", pipe)
        assert read.result(timeout=30) == call("predict", weather / "model.npz", weather / "data.csv").output
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    direct = run("predict", weather / "model.npz", weather / "data.csv", "-o", "/dev/stdout").stdout
    assert direct.startswith("station,prediction\n")


def test_permissions_of_results_are_kept(weather, tmp_path):
    private = tmp_path / "out.csv"
    private.touch(mode=0o600)
    call("predict", weather / "model.npz", weather / "data.csv", "-o", private)
    assert private.stat().st_size
    assert stat.S_IMODE(private.stat().st_mode) == 0o600


@pytest.mark.parametrize("command", [[name] for name in commands.list_commands(None)] + [["datasets", "export"]])
def test_examples_in_help_keep_their_lines(command):
    shown = call(*command, "--help").output
    assert "\\b" not in shown
    assert "\b" not in shown
    lines = [line.strip() for line in shown.splitlines()]
    at = next(k for k, line in enumerate(lines) if line in {"Example:", "Examples:"})
    assert lines[at + 1].startswith(f"mssl {command[0]}")


def test_inputs_are_not_overwritten(weather, tmp_path):
    data, model = tmp_path / "x.csv", tmp_path / "m.npz"
    data.write_bytes((weather / "data.csv").read_bytes())
    model.write_bytes((weather / "model.npz").read_bytes())
    link = tmp_path / "link.csv"
    link.symlink_to(data)
    before = {file: file.read_bytes() for file in (data, model)}
    table = ("--task", "station", "--target", "y", *QUICK)
    for arguments in (
        ("fit", data, *table, "--save", data),
        ("fit", data, *table, "--report", link),
        ("select", data, *table[:4], "--save", link),
        ("predict", model, data, "-o", link),
        ("predict", model, data, "--json", "-o", model),
        ("graph", model, "-o", model),
        ("report", model, "--data", data, "-o", data),
    ):
        assert "is the same file as the input" in str(call(*arguments, code=1).exception)
        assert {file: file.read_bytes() for file in before} == before


def test_predictions_as_json_go_to_the_file(weather, tmp_path):
    arguments = ("predict", weather / "model.npz", weather / "data.csv", "--json")
    printed = call(*arguments).output
    assert run(*arguments, "-o", tmp_path / "p.json").stdout == ""
    assert (tmp_path / "p.json").read_text() == printed
    call(*arguments, "-o", tmp_path / "p.json.gz")
    assert gzip.decompress((tmp_path / "p.json.gz").read_bytes()).decode() == printed


def test_the_ending_says_what_is_written(weather, tmp_path):
    (tmp_path / "new.csv").write_text("station,wind,sun,sky\nOslo,1,,blue\nRiga,1,2,red\n")
    model = tmp_path / "m.npz"
    table = ("--task", "station", "--target", "y", "--missing", "drop")
    call("fit", weather / "data.csv", *table, "--save", model, *QUICK)
    plain = call("predict", model, tmp_path / "new.csv").output
    for ending in ("csv", "tsv", "csv.gz", "tab.gz", "parquet", "feather"):
        out = tmp_path / f"out.{ending}"
        call("predict", model, tmp_path / "new.csv", "-o", out)
        found = read_table(out)
        assert [found["station"].text()[1][k] for k in found["station"].text()[0]] == ["Oslo", "Riga"]
        np.testing.assert_array_equal(found["prediction"].numbers(), [np.nan, float(plain.split(",")[-1])])
    assert gzip.decompress((tmp_path / "out.csv.gz").read_bytes()).decode() == plain
    assert (tmp_path / "out.tsv").read_text() == plain.replace(",", "\t")
    for name in ("out.xlsx", "out.json", "out.parquet.gz"):
        (tmp_path / name).unlink(missing_ok=True)
        refused = call("predict", model, tmp_path / "new.csv", "-o", tmp_path / name, code=1).exception
        assert ".csv, .txt, .tsv" in str(refused)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("ending", ["tsv", "csv.gz", "parquet", "feather"])
def test_data_sets_are_exported_as_the_ending_says(ending, tmp_path):
    path = tmp_path / f"pairs.{ending}"
    call("datasets", "export", "digit-pairs", path, "--subsample", "8")
    bunch = mssl.datasets.load("digit-pairs", subsample=8, random_state=0)
    table = read_table(path)
    assert table.names == ["pair", *bunch.feature_names, "label"]
    np.testing.assert_array_equal(table["label"].numbers(), bunch.y)
    np.testing.assert_array_equal(np.stack([table[n].numbers() for n in bunch.feature_names], axis=1), bunch.X)
    refused = call("datasets", "export", "digit-pairs", tmp_path / "x.xlsx", code=1).exception
    assert "allowed are" in str(refused)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_truth_values_come_back_as_they_were(ending, tmp_path):
    from pyarrow import csv as arrow
    from pyarrow import parquet

    path = write_table(tmp_path / "data.csv", kind="binary")
    path.write_text(path.read_text().replace(",yes", ",True").replace(",no", ",False"))
    if ending == "parquet":
        parquet.write_table(arrow.read_csv(path), tmp_path / "data.parquet")
        path = tmp_path / "data.parquet"
    table = ("--task", "station", "--target", "y")
    call("fit", path, *table, "--save", tmp_path / "m.npz", "--report", tmp_path / "r.html", *QUICK)
    assert mssl.load(tmp_path / "m.npz").classes_.tolist() == [False, True]
    rows = list(csv.DictReader(call("predict", tmp_path / "m.npz", path).output.splitlines()))
    assert [row["prediction"] for row in rows] == [str(float(row["probability"]) > 0.5) for row in rows]
    told = json.loads(call("predict", tmp_path / "m.npz", path, "--json").stdout)["predictions"]
    assert {row["prediction"] for row in told} == {True, False}
    call("report", tmp_path / "m.npz", "--data", path, "-o", tmp_path / "r2.html")
    call("compare", path, *table, "--methods", "logistic,pooled", "--json")


def test_models_without_a_graph_say_so(weather, tmp_path):
    table = ("--task", "station", "--target", "y", "--drop", "sky", "--save", tmp_path / "m.npz")
    for method in ("average-model", "best-member"):
        call("fit", weather / "data.csv", *table, "--method", method)
        assert "holds no task graph" in str(call("graph", tmp_path / "m.npz", code=1).exception)
    mssl.save(mssl.MSSLRegressor(), tmp_path / "unfitted.npz")
    assert "before it was fitted" in run("graph", tmp_path / "unfitted.npz", code=1).stderr


def test_a_closed_standard_output_is_told(weather, tmp_path):
    def closed(*args):
        words = ["sh", "-c", 'exec "$@" >&-', "sh", *ENTRY, *map(str, args)]
        return subprocess.run(words, check=False, stderr=subprocess.PIPE, text=True, timeout=120)

    for arguments in (("graph",), ("inspect", "--json"), ("predict", weather / "data.csv")):
        done = closed(arguments[0], weather / "model.npz", *arguments[1:])
        assert (done.returncode, "standard output is closed" in done.stderr) == (1, True)
    done = closed("predict", weather / "model.npz", weather / "data.csv", "-o", tmp_path / "out.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.csv").read_text().startswith("station,prediction\n")


@pytest.mark.parametrize("features", ["", " ", ",", " , "])
def test_an_empty_list_of_features_is_pointed_out(features, weather):
    table = ("--task", "station", "--target", "y", "--features", features)
    assert "names no column" in call("fit", weather / "data.csv", *table, code=2).output


def test_inspect_tells_parameters_as_json_values(weather):
    told = json.loads(call("inspect", weather / "model.npz", "--json").stdout)["parameters"]
    assert told == mssl.load(weather / "model.npz").get_params(deep=False)


def test_edges_that_are_left_out_have_no_confidence(tmp_path):
    random = np.random.default_rng(0)
    X, tasks = random.normal(size=(40, 3)), np.repeat(["a", "b", "c", "d"], 10)
    model = mssl.MSSLRegressor(graph_penalty=0.3).fit(X, X @ [1.0, -1.0, 0.5], tasks=tasks)
    model.graph_ = mssl.TaskGraph.from_edges(
        [("a", "b", 0.9, 0.8), ("a", "c", 0.4, 0.7), ("b", "d", 0.1, 0.6)], tasks=["a", "b", "c", "d"]
    )
    mssl.save(model, tmp_path / "m.npz")
    for limits, kept in (((), 3), (("--min-weight", "0.6"), 1), (("--min-confidence", "0.65"), 2)):
        told = json.loads(call("graph", tmp_path / "m.npz", "--format", "json", *limits).stdout)
        assert [row[:2] for row in told["confidence"]] == [row[:2] for row in told["edges"]]
        assert len(told["edges"]) == kept


@pytest.mark.parametrize("output", [(), ("-o", "/dev/stdout")])
def test_a_reader_that_goes_away_has_its_own_exit_code(output, weather):
    reader, writer = os.pipe()
    os.close(reader)
    words = [*ENTRY, "predict", weather / "model.npz", weather / "data.csv", *output]
    try:
        done = subprocess.run(words, check=False, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A folder with a table of tasks whose names would act, and a model of it."""
    folder = tmp_path_factory.mktemp("hostile")
    random, names = np.random.default_rng(0), ["=1+1", "\x1b[31mred", "a\u202eb", "\x9b2J", "-5", "Oslo"]
    with (folder / "data.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["=site", "y", "x", "z"])
        rows.writerows([names[k % 6], *random.standard_normal(3)] for k in range(120))
    call("fit", folder / "data.csv", "--task", "=site", "--target", "y", "--save", folder / "model.npz", *QUICK)
    return folder


def harmless(text):
    return not re.search(
        '[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|^["]?[=+@]|,["]?[=+@]', text, re.MULTILINE
    )


def test_names_that_act_reach_nobody_unescaped(hostile, tmp_path):
    model, data = hostile / "model.npz", hostile / "data.csv"
    for arguments in (["predict", model, data], ["graph", model], ["graph", model, "--format", "dot"]):
        done = run(*arguments)
        assert harmless(done.stdout), arguments
    assert "--no-safe-csv" in run("predict", model, data).stderr
    assert run("predict", model, data, "--safe-csv").stderr == ""
    for arguments in (
        ["predict", model, data, "--json"],
        ["graph", model, "--format", "json"],
        ["inspect", model, "--json"],
    ):
        done = run(*arguments)
        assert harmless(done.stdout), arguments
        assert "a\u202eb" in json.dumps(json.loads(done.stdout), ensure_ascii=False)


def test_names_can_be_written_as_they_are(hostile, tmp_path):
    model, data = hostile / "model.npz", hostile / "data.csv"
    run("predict", model, data, "--no-safe-csv", "-o", tmp_path / "a.csv")
    run("predict", model, data, "-o", tmp_path / "a.parquet")
    names = set(read_table(data, text=["=site"])["=site"].text()[1])
    assert set(read_table(tmp_path / "a.csv", text=["=site"])["=site"].text()[1]) == names
    assert set(read_table(tmp_path / "a.parquet")["=site"].text()[1]) == names


def test_curves_categories_and_gaps_from_a_table(tmp_path):
    rng = np.random.default_rng(0)
    x, kind = rng.uniform(-2, 2, size=120), rng.choice(["u", "v", "w"], size=120)
    y = x**2 + (kind == "v") + 0.1 * rng.normal(size=120)
    rows = [f"{'ab'[k % 2]},{y[k]:.4f},{'' if k == 7 else f'{x[k]:.4f}'},{kind[k]}" for k in range(120)]
    path, model = tmp_path / "data.csv", tmp_path / "m.npz"
    path.write_text("\n".join(["site,y,x,kind", *rows]))
    columns = ("--task", "site", "--target", "y", "--family", "gaussian", "--missing", "indicator")
    settings = ("--set", "graph_penalty=0.1", "--set", "features=spline")
    call("fit", path, *columns, *settings, "--save", model, "--report", tmp_path / "page.html")
    fitted = mssl.load(model)
    assert fitted.features_.tolist() == [
        *("x", "kind=u", "kind=v", "kind=w", "x missing", "x: spline 1", "x: spline 2", "x: spline 3"),
    ]
    effect = fitted.partial_effect("x")
    assert np.corrcoef(effect.effect, effect.x**2)[0, 1] > 0.98
    # A category is one column again, with its levels, as for an estimator that was given a frame.
    assert list(fitted.column_relevance()) == ["x", "kind"]
    frame = pd.read_csv(path)
    own = mssl.MSSLRegressor(graph_penalty=0.1, features="spline", missing="indicator", task_column="site")
    own.fit(frame.drop(columns="y"), frame["y"])
    levels, expected = fitted.partial_effect("kind", "b"), own.partial_effect("kind", "b")
    assert levels.x.tolist() == expected.x.tolist() == ["u", "v", "w"]
    np.testing.assert_allclose(levels.effect, expected.effect, atol=1e-6)
    predicted = list(csv.DictReader(call("predict", model, path).output.splitlines()))
    np.testing.assert_allclose([float(row["prediction"]) for row in predicted], y, atol=1.0)
    # What the search does not choose leaves it a search, which knows the columns of the table too.
    call("fit", path, *columns, "--method", "p-mssl", "--set", "features=spline", "--save", model)
    searched = mssl.load(model)
    assert isinstance(searched, mssl.MSSLRegressorCV)
    assert list(searched.column_relevance()) == ["x", "kind"]
