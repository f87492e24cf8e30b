"""The command line, through the real entry point, on real files."""

import csv
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import ENTRY, QUICK, call, run, write_table

import mssl
from mssl import MSSLRegressorCV, StabilitySelection
from mssl.cli import commands
from mssl.datasets import make_clustered_tasks

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def weather(tmp_path_factory):
    """A folder with a table and the model that the entry point fitted to it."""
    folder = tmp_path_factory.mktemp("weather")
    write_table(folder / "data.csv")
    done = run("fit", "data.csv", "--task", "station", "--target", "y", "--save", "model.npz", *QUICK, cwd=folder)
    assert "certificate  converged" in done.stdout
    assert "held out     not measured" in done.stdout  # a score of training rows is none
    assert done.stderr == ""
    return folder


def test_newcomers_path(tmp_path):
    done = run("datasets", "export", "digit-pairs", "pairs.csv", "--subsample", "16", cwd=tmp_path)
    assert "mssl fit pairs.csv --task pair --target label" in done.stdout
    done = run(
        "fit", "pairs.csv", "--task", "pair", "--target", "label", "--save", "m.npz", "--json", *QUICK, cwd=tmp_path
    )
    summary = json.loads(done.stdout)
    assert (summary["tasks"], summary["features"], summary["family"]) == (45, 64, "binary")
    run("predict", "m.npz", "pairs.csv", "-o", "out.csv", cwd=tmp_path)
    with (tmp_path / "out.csv").open() as stream:
        answers = list(csv.DictReader(stream))
    with (tmp_path / "pairs.csv").open() as stream:
        truth = list(csv.DictReader(stream))
    assert [row["pair"] for row in answers] == [row["pair"] for row in truth]
    assert np.mean([a["prediction"] == t["label"] for a, t in zip(answers, truth, strict=True)]) > 0.95


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys, mssl.cli; mssl.cli.commands.main(['--help'], standalone_mode=False); print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Start here" in done.stdout
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "scipy", "sklearn", "numba", "pandas", "matplotlib", "xarray", "rich"}


@pytest.mark.parametrize(
    "command", ["fit", "predict", "compare", "select", "graph", "inspect", "report", "climate", "datasets", "reproduce"]
)
def test_every_help_shows_an_example(command):
    assert f"mssl {command}" in call(command, "--help").output


def test_completion_script():
    done = run(env=os.environ | {"_MSSL_COMPLETE": "bash_source"})
    assert "complete" in done.stdout


def test_usage_errors():
    assert "Missing option '--target'" in run("fit", "data.csv", "--task", "station", code=2).stderr
    assert "No such command" in call("nonsense", code=2).output
    call("fit", "data.csv", "--task", "a", "--target", "b", "--family", "cauchy", code=2)


def test_errors_of_the_data_are_one_paragraph(weather, tmp_path):
    (tmp_path / "bad.csv").write_text("station,y,x\na,1,2\nb,1\n")
    done = run("fit", "bad.csv", "--task", "station", "--target", "y", cwd=tmp_path, code=1)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Line 3 of 'bad.csv' has 2 values" in done.stderr
    table = write_table(tmp_path / "money.csv")
    lines = table.read_text(encoding="utf-8").splitlines()
    dear = [lines[0] + ",price", *(f'{line},"{1000 + 10 * (k % 7):,}.5"' for k, line in enumerate(lines[1:]))]
    table.write_text("\n".join(dear) + "\n", encoding="utf-8")
    done = run("fit", "money.csv", "--task", "station", "--target", "y", cwd=tmp_path, code=1)
    assert len(done.stderr.splitlines()) == 1
    assert "'price' holds numbers with separators (for example '1,000.5')" in done.stderr
    assert not list(tmp_path.glob("*.npz"))
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes((weather / "model.npz").read_bytes()[:-100])
    assert "no intact model file" in run("inspect", damaged, code=1).stderr


def test_predictions_are_those_of_the_library(weather, tmp_path):
    model = mssl.load(weather / "model.npz")
    call("predict", weather / "model.npz", weather / "data.csv", "-o", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as stream:
        predicted = np.array([float(row["prediction"]) for row in csv.DictReader(stream)])
    rows = model.table_.encode(model.table_.read(weather / "data.csv"))
    assert np.array_equal(predicted, model.predict(rows.features, tasks=rows.tasks))
    document = json.loads(call("predict", weather / "model.npz", weather / "data.csv", "--json").stdout)
    assert [row["prediction"] for row in document["predictions"]] == predicted.tolist()
    assert list(model.features_) == ["wind", "sun", "sky=blue", "sky=grey", "sky=red"]


def test_prediction_needs_known_tasks_and_columns(weather, tmp_path):
    new = write_table(tmp_path / "new.csv", names=["Oslo "])
    with pytest.raises(mssl.exceptions.UnseenTaskError, match="only in blanks"):
        raise call("predict", weather / "model.npz", new, code=1).exception
    (tmp_path / "less.csv").write_text("station,wind\nOslo,1\n")
    with pytest.raises(mssl.exceptions.DataError, match="lacks the columns 'sun', 'sky'"):
        raise call("predict", weather / "model.npz", tmp_path / "less.csv", code=1).exception


def test_models_without_a_table_are_refused(weather, tmp_path):
    model = mssl.MultiTaskGLM().fit(np.eye(4), np.arange(4.0), tasks=["a", "a", "b", "b"])
    path = mssl.save(model, tmp_path / "plain.npz")
    with pytest.raises(mssl.exceptions.ModelFileError, match="fitted to an array"):
        raise call("predict", path, weather / "data.csv", code=1).exception


def test_dropped_rows_are_counted_aloud(tmp_path):
    lines = write_table(tmp_path / "data.csv").read_text().splitlines()
    holes = {k: lines[k].split(",") for k in (*range(3, 10), *range(91, 121))}
    for k, cells in holes.items():
        cells[1 if k < 10 else -1] = ""  # wind in 7 rows, y in all 30 rows of Riga
        lines[k] = ",".join(cells)
    (tmp_path / "holes.csv").write_text("\n".join(lines) + "\n")
    table = ("--task", "station", "--target", "y", "--missing", "drop", *QUICK)
    done = run("fit", "holes.csv", *table, "--save", "m.npz", cwd=tmp_path)
    assert "37 of 120 rows lack a value and were dropped" in done.stderr
    assert "'y' (30), 'wind' (7)" in done.stderr
    assert "No row is left of the tasks 'Riga'" in done.stderr
    assert "83 (37 more lack a value and were dropped)" in done.stdout
    summary = json.loads(run("fit", "holes.csv", *table, "--json", cwd=tmp_path).stdout)
    assert (summary["rows"], summary["rows_dropped"], summary["tasks"]) == (83, 37, 3)
    (tmp_path / "few.csv").write_text("\n".join(lines[:80]) + "\n")
    done = run("report", "m.npz", "--data", "few.csv", "-o", "page.html", cwd=tmp_path)
    assert "7 of 79 rows lack a value and were dropped" in done.stderr
    whole = run("fit", "data.csv", *table, cwd=tmp_path)
    assert whole.stderr == ""
    assert "dropped" not in whole.stdout


def test_missing_rows_get_empty_predictions(tmp_path):
    path = write_table(tmp_path / "data.csv")
    call("fit", path, "--task", "station", "--target", "y", "--missing", "drop", "--save", tmp_path / "m.npz", *QUICK)
    (tmp_path / "new.csv").write_text("station,wind,sun,sky\nOslo,1,,blue\nRiga,1,2,red\n")
    lines = call("predict", tmp_path / "m.npz", tmp_path / "new.csv").output.splitlines()
    assert lines[1] == "Oslo,"
    assert float(lines[2].split(",")[1]) == pytest.approx(0.3, abs=0.8)


PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak(*command):
    """The most memory that a process holds at once, in bytes; a small one starts it, whose own memory it inherits."""
    done = subprocess.run([sys.executable, "-c", PEAK, *map(str, command)], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
@pytest.mark.parametrize("stem", ["task", "a station with a name as long as some are"])
def test_a_million_rows_need_at_most_three_times_their_table(stem, tmp_path):
    import pyarrow as pa
    from pyarrow import csv as arrow

    n, features = 1_000_000, 18
    random = np.random.default_rng(0)
    task = random.integers(0, 100, n)
    X = np.round(random.normal(size=(features, n)), 5)
    y = np.round(X[:5].sum(axis=0) + task / 10 + random.normal(size=n), 5)
    names = np.asarray([f"{stem} {k}" for k in range(100)], dtype=object)[task]
    columns = {"task": names, **{f"x{j}": column for j, column in enumerate(X)}, "y": y}
    arrow.write_csv(pa.table(columns), tmp_path / "rows.csv")
    bare = peak(sys.executable, "-c", "import mssl.cli, numpy, pyarrow.csv, sklearn.model_selection")
    table = 8 * n * (features + 1)  # the numbers alone, though the names of the tasks are a column too
    model = tmp_path / "m.npz"
    command = ("fit", tmp_path / "rows.csv", "--task", "task", "--target", "y", "--save", model)
    assert peak(*ENTRY, *command) - bare <= 3 * table
    command = ("predict", model, tmp_path / "rows.csv", "-o", tmp_path / "answers.csv")
    assert peak(*ENTRY, *command) - bare <= 3 * table


@pytest.mark.parametrize("kind", ["binary", "poisson"])
def test_families(kind, tmp_path):
    path = write_table(tmp_path / "data.csv", kind=kind, rows=40)
    model = tmp_path / "m.npz"
    summary = json.loads(
        call("fit", path, "--task", "station", "--target", "y", "--save", model, "--json", *QUICK).output
    )
    assert summary["family"] == kind
    lines = list(csv.DictReader(call("predict", model, path).output.splitlines()))
    if kind == "binary":
        assert {row["prediction"] for row in lines} == {"yes", "no"}
        assert all((float(row["probability"]) > 0.5) == (row["prediction"] == "yes") for row in lines)
    else:
        assert all(float(row["prediction"]) > 0 for row in lines)


def test_aligned_rows_for_residual_graphs(tmp_path):
    random = np.random.default_rng(0)
    rows = [
        [f"t{t:02d}", name, *random.normal(size=2).round(4).tolist(), round(float(random.normal()), 4)]
        for t in range(30)
        for name in random.permutation(["a", "b", "c"])
    ]
    path = tmp_path / "data.csv"

    def save(lines):
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([["t", "place", "u", "v", "y"], *lines])

    fit = ("fit", path, "--task", "place", "--target", "y", "--time", "t", "--method", "r-mssl", *QUICK)
    save(rows)
    call(*fit, "--save", tmp_path / "one.npz")
    save(random.permutation(np.array(rows, dtype=object)).tolist())
    call(*fit, "--save", tmp_path / "two.npz")
    one, two = (mssl.load(tmp_path / f"{name}.npz") for name in ("one", "two"))
    assert np.array_equal(one.coef_, two.coef_)
    save(rows[:-1])
    with pytest.raises(mssl.exceptions.DataError, match="needs one row at each of the same times"):
        raise call(*fit, code=1).exception


def test_predictions_given_the_known_targets(tmp_path):
    random = np.random.default_rng(0)
    U = random.normal(size=(80, 3))
    Y = 2 * U + random.normal(size=(80, 1)) + 0.2 * random.normal(size=(80, 3))
    path = tmp_path / "data.csv"

    def save(first, last, gaps=()):
        rows = [
            [f"t{t:02d}", name, U[t, k], "" if (t, k) in gaps else Y[t, k]]
            for t in range(first, last)
            for k, name in enumerate("abc")
        ]
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([["t", "place", "u", "y"], *rows])

    save(0, 60)
    fit = ("fit", path, "--task", "place", "--target", "y", "--time", "t", "--method", "r-mssl", *QUICK)
    call(*fit, "--save", tmp_path / "m.npz")
    gaps = {(t, t % 3) for t in range(60, 80)}
    save(60, 80, gaps)
    text = call("predict", tmp_path / "m.npz", path, "--known", "t").stdout
    rows = list(csv.DictReader(text.splitlines()))
    assert list(rows[0]) == ["place", "t", "prediction", "deviation"]
    assert [row["t"] for row in rows] == [f"t{t}" for t in range(60, 80) for _ in range(3)]
    errors, alone = [], []
    model = mssl.load(tmp_path / "m.npz")
    for number, row in enumerate(rows):
        t, k = 60 + number // 3, number % 3
        if (t, k) in gaps:
            errors.append(float(row["prediction"]) - Y[t, k])
            alone.append(2 * U[t, k] - Y[t, k])
            assert 0 < float(row["deviation"]) < 0.9
        else:
            assert float(row["prediction"]) == pytest.approx(Y[t, k])
            assert float(row["deviation"]) == 0
    assert model.residual_covariance_.shape == (3, 3)
    assert np.std(errors) < 0.8 * np.std(alone)


def test_graph_levels_say_how_much_may_be_false(tmp_path):
    from mssl.datasets import make_clustered_tasks

    data = make_clustered_tasks(n_tasks=5, clusters=[[0, 1, 2]], random_state=0)
    model = mssl.MSSLRegressor().fit(data.X, data.y, tasks=data.tasks)
    mssl.save(model, tmp_path / "m.npz")
    answer = call("graph", tmp_path / "m.npz", "--show", "relations")
    assert answer.stdout == model.graph_.relations().to_csv()
    assert "relations among 10 pairs at a false discovery rate of 10%" in answer.stderr
    found = call("graph", tmp_path / "m.npz", "--show", "edges", "--fdr", "0.9", "--format", "json").stdout
    assert mssl.TaskGraph.from_json(found) == model.graph_.selected(0.9, "edges")


def test_graph_formats(weather, tmp_path):
    graph = mssl.load(weather / "model.npz").graph_
    for kind in ("csv", "json", "graphml", "dot"):
        text = call("graph", weather / "model.npz", "--format", kind).stdout
        assert text.strip() == getattr(graph, f"to_{kind}")().strip()
    call("graph", weather / "model.npz", "--format", "json", "-o", tmp_path / "g.json")
    assert mssl.TaskGraph.from_json(tmp_path / "g.json") == graph
    with pytest.raises(mssl.exceptions.ParameterError, match="selection frequencies"):
        raise call("graph", weather / "model.npz", "--min-confidence", "0.5", code=1).exception


def test_interrupted_pipe(tmp_path):
    """A reader that has seen enough ends the command without a word."""
    names = [f"task {k}" for k in range(400)]
    model = mssl.MultiTaskGLM().fit(np.ones((400, 1)), np.arange(400.0), tasks=names)
    precision = 2 * np.eye(400) - 0.001
    model.graph_ = mssl.TaskGraph.from_precision(precision, tasks=names)
    mssl.save(model, tmp_path / "m.npz")
    command = " ".join(f"'{part}'" for part in [*ENTRY, "graph", str(tmp_path / "m.npz")])
    done = subprocess.run(f"{command} | head -1", check=True, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "task_i,task_j,weight,confidence\n"
    assert done.stderr == ""


def test_inspect(weather):
    shown = call("inspect", weather / "model.npz", "--tasks").output
    assert "MSSLRegressor" in shown
    assert "Bergen" in shown
    header = json.loads(call("inspect", weather / "model.npz", "--json").stdout)
    assert header["notes"]["rows"] == 120
    assert header["certificate"]["relative_gap"] < 1e-6


def test_inspect_tells_columns_and_what_maps_make_of_them(tmp_path):
    X, tasks = np.random.default_rng(0).normal(size=(60, 2)), np.repeat(["a", "b"], 30)
    for features, words in (("linear", None), ("spline", "features after maps")):
        model = mssl.MSSLRegressor(np.inf, features=features).fit(X, X[:, 0] ** 2, tasks=tasks)
        mssl.save(model, tmp_path / "m.npz")
        shown = call("inspect", tmp_path / "m.npz").output.splitlines()
        told = {line.rsplit(None, 1)[0].strip(): line.split()[-1] for line in shown if line.split()[-1:]}
        assert told["columns"] == "2"
        assert told.get("features after maps") == (None if words is None else str(len(model.features_)))


def test_read_only_folders_are_refused_before_the_work(weather, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    old = folder / "m.npz"
    old.write_bytes(b"old")
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    # The superuser may write anywhere but into a file system that is read-only as a whole.
    target = Path("/sys/m.npz") if os.geteuid() == 0 else old
    try:
        args = ("fit", weather / "data.csv", "--task", "station", "--target", "y", "--save", target, *QUICK)
        done = run(*args, code=1)
        assert "cannot be written" in done.stderr
        assert done.stdout == ""
        assert old.read_bytes() == b"old"
        assert [path.name for path in folder.iterdir()] == ["m.npz"]
    finally:
        folder.chmod(stat.S_IRWXU)
    call("predict", weather / "model.npz", weather / "data.csv", "-o", tmp_path / "no" / "out.csv", code=1)


HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "a,b",
    'quo"te',
    "new\nline",
    "[bold]rich[/bold]",
    "=cmd|' /C calc'!A0",
    "../../etc",
    "名前",
    "e\u0301",
]


def test_hostile_names(tmp_path):
    path = write_table(tmp_path / "data.csv", names=HOSTILE, rows=12, task="ta\x1b]0;sk\x07")
    done = run("fit", path, "--task", "ta\x1b]0;sk\x07", "--target", "y", "--save", tmp_path / "m.npz", *QUICK)
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x07" not in done.stdout + done.stderr
    given = call("predict", tmp_path / "m.npz", path, "--no-safe-csv").output
    rows = list(csv.reader(given.splitlines(keepends=True)))
    assert [row[0] for row in rows[1::12]] == HOSTILE
    shown = call("inspect", tmp_path / "m.npz", "--tasks").output
    assert "\x1b" not in shown
    assert set(mssl.load(tmp_path / "m.npz").tasks_) == set(HOSTILE)


def test_blank_twins_are_pointed_out(tmp_path):
    path = write_table(tmp_path / "data.csv", names=["Oslo", "Oslo ", "Riga"], rows=12)
    done = run("fit", path, "--task", "station", "--target", "y", *QUICK)
    assert "'Oslo', 'Oslo '" in done.stderr
    assert "only in blanks" in done.stderr


def test_quiet_and_settings(weather):
    args = ("fit", weather / "data.csv", "--task", "station", "--target", "y")
    assert call(*args, "--quiet", *QUICK).output == ""
    with pytest.raises(mssl.exceptions.ParameterError, match="no parameter 'nonsense'"):
        raise call(*args, "--set", "nonsense=1", code=1).exception
    call(*args, "--set", "graph_penalty", code=2)
    fitted = json.loads(call(*args, "--json", "--set", "shared_mean=false", "--set", "tol=1e-4", *QUICK).stdout)
    assert fitted["parameters"] == {"shared_mean": False, "tol": 1e-4, "graph_penalty": 0.3}


def test_datasets(tmp_path):
    names = [row["name"] for row in json.loads(call("datasets", "--json").stdout)]
    assert "digit-pairs" in names
    assert "digit-pairs" in call("datasets", "list").output
    assert "needs no files" in call("datasets", "fetch", "digit-pairs").output
    call("datasets", "fetch", "nonsense", code=1)
    call("datasets", "export", "digit-pairs", tmp_path / "no" / "folder.csv", "--subsample", "4", code=1)


def test_every_listed_command_is_there():
    names = commands.list_commands(None)
    assert {"fit", "predict", "compare", "graph", "select", "inspect", "climate", "datasets", "demo"} <= set(names)
    for name in names:
        assert commands.get_command(None, name) is not None


def test_reproduce_refuses_unknown_experiments(tmp_path):
    with pytest.raises(mssl.exceptions.ParameterError, match="name is 'nonsense'; allowed are 'synthetic'"):
        raise call("reproduce", "nonsense", "-o", tmp_path / "results", code=1).exception


def test_climate(tmp_path):
    xr = pytest.importorskip("xarray")
    from mssl.climate.combination import to_dataset, write_dataset
    from mssl.datasets import make_climate_like

    data = to_dataset(make_climate_like(n_samples=240, n_lat=3, n_lon=3, random_state=0), calendar="noleap")
    for k, name in enumerate(data["member"].values):
        write_dataset(data["ensemble"].isel(member=k, drop=True).to_dataset(name="tas"), tmp_path / f"{name}.nc")
    (tmp_path / "obs").mkdir()
    write_dataset(data["observed"].to_dataset(name="tmp"), tmp_path / "obs" / "cru.nc")
    done = run(
        *("climate", "--members", "*.nc", "--observations", "obs/cru.nc", "--variable", "tas", "--observed-variable", "tmp"),
        *("--train", "1901:1915", "--test", "1916:1920", "-o", "answer.nc", *QUICK),
        *("--set", "graph_penalty__correlation=spearman", "--picture", "maps.png", "--save", "model.npz"),
        cwd=tmp_path,
    )  # fmt: skip
    assert "ahead of" in done.stdout
    assert "one standard error, paired" in done.stdout
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")
    model = mssl.load(tmp_path / "model.npz")
    assert model.graph_penalty.correlation == "spearman"
    assert list(model.features_) == sorted(data["member"].values)
    assert model.tasks_.tolist() == data["location"].values.tolist()
    answer = xr.open_dataset(tmp_path / "answer.nc")
    assert answer.attrs["method"] == "r-mssl"
    assert answer["weights"].shape == (10, 9)
    refused = run(
        *("climate", "--members", "*.nc", "--observations", "obs/cru.nc", "--variable", "tas", "--observed-variable", "tmp"),
        *("--train", "1901:1915", "--test", "1916:1920", "--method", "climatology", "--save", "none.npz"),
        cwd=tmp_path, code=1,
    )  # fmt: skip
    assert "cannot be saved as a model" in refused.stderr
    assert not (tmp_path / "none.npz").exists()
    call("climate", "--members", "x", "--observations", "y", "--train", "soon", "--test", "1916", code=2)
    call("climate", "--members", "x", "--observations", "y", "--train", "1", "--test", "2", "--region", "1,2", code=2)


def test_report(weather, tmp_path):
    pytest.importorskip("matplotlib")
    call("report", weather / "model.npz", "--data", weather / "data.csv", "-o", tmp_path / "r.html")
    assert "Bergen" in Path(tmp_path / "r.html").read_text(encoding="utf-8")
    page = tmp_path / "fit.html"
    done = call("fit", weather / "data.csv", "--task", "station", "--target", "y", "--report", page, *QUICK)
    assert str(page) in done.stdout
    text = page.read_text(encoding="utf-8")
    assert "Bergen" in text
    assert "that the model was fitted on the median training RMSE" in text


def related_table(folder):
    """A table of six tasks whose weights are alike."""
    random = np.random.default_rng(0)
    path, centre = folder / "data.csv", random.normal(size=5)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["task", *"abcde", "y"])
        for k in range(6):
            weights = centre + 0.1 * random.normal(size=5)
            for x in random.normal(size=(12, 5)):
                writer.writerow([f"t{k}", *x, x @ weights + random.normal()])
    return path


@pytest.mark.parametrize("family", ["gaussian", "binary", "poisson"])
def test_weights_are_integrated_out_unless_another_method_is_asked_for(family, tmp_path):
    table = pytest.importorskip("pandas").read_csv(related_table(tmp_path))
    if family != "gaussian":
        table["y"] = (table["y"] > 0).astype(int) * (1 if family == "binary" else 2)
        table.loc[0, "y"] = 1
    table.to_csv(tmp_path / "data.csv", index=False)
    args = ("fit", tmp_path / "data.csv", "--task", "task", "--target", "y", "--family", family)
    found = json.loads(call(*args, "--json").stdout)
    if family == "poisson":  # counts were not compared on enough data
        assert found["method"] == "p-mssl"
        return
    assert found["method"] == "bayesian"
    assert sum(found["mixture"].values()) == pytest.approx(1, abs=1e-3)
    assert found["lead_over_separate_weights"] > 0.01
    told = " ".join(call(*args).output.split())
    assert "more log density per held-out row than with separate weights" in told
    assert "mixture of" in told
    with pytest.warns(UserWarning, match="bayesian is fitted by one process; --jobs changes nothing"):
        assert json.loads(call(*args, "--jobs", "2", "--json").stdout)["mixture"] == found["mixture"]
    # A parameter of the paper's method asks for it.
    assert json.loads(call(*args, "--set", "graph_penalty=0.3", "--json").stdout)["method"] == "p-mssl"
    mixture = json.loads(call(*args, "--set", "prior=ridge", "--json").stdout)["mixture"]
    assert {name.split(",")[0] for name in mixture} == {"ridge"}


@pytest.mark.parametrize("method", ["bayesian", "p-mssl"])
def test_one_task_has_nothing_to_gain_from_others(method, tmp_path):
    table = pytest.importorskip("pandas").read_csv(related_table(tmp_path))
    table[table["task"] == table["task"][0]].to_csv(tmp_path / "data.csv", index=False)
    args = ("fit", tmp_path / "data.csv", "--task", "task", "--target", "y", "--method", method)
    found = json.loads(call(*args, "--json").output)
    assert found["gain_over_separate_models"] is None
    assert found["lead_over_separate_weights"] is None
    assert "none: there is only one task" in call(*args).output


def test_rates_are_told_neither_as_held_out_counts_nor_as_a_lead(tmp_path):
    """Folds judge rates where there are exposures; what is not told of held-out rows has no lead either."""
    table = pytest.importorskip("pandas").read_csv(related_table(tmp_path))
    table = table.assign(y=(table["y"] > 0) * 2, o=0.5)
    table.to_csv(tmp_path / "data.csv", index=False)
    args = ("fit", tmp_path / "data.csv", "--task", "task", "--target", "y", "--offset", "o")
    found = json.loads(call(*args, "--family", "poisson", "--method", "bayesian", "--json").output)
    assert found["held_out"] is found["lead_over_separate_weights"] is None
    for method in ("bayesian", "p-mssl"):
        refused = call(*args, "--family", "binary", "--method", method, code=1)
        assert "takes no offset for such targets; leave out --offset" in str(refused.exception)


def test_a_graph_without_fitted_edges_says_where_the_found_ones_are(tmp_path):
    pandas, random = pytest.importorskip("pandas"), np.random.default_rng(0)
    X, tasks, centre = random.normal(size=(240, 12)), np.repeat(np.arange(6), 40), random.normal(size=12)
    y = X @ centre * np.where(tasks < 3, 1, -1) + random.normal(size=240)  # two groups, which no mean explains
    table = pandas.DataFrame(X, columns=[f"x{j}" for j in range(12)]).assign(task=tasks, y=y)
    table.to_csv(tmp_path / "data.csv", index=False)
    args = ("fit", tmp_path / "data.csv", "--task", "task", "--target", "y", "--set", "prior=ridge")
    call(*args, "--save", tmp_path / "m.npz")
    fitted, found = call("graph", tmp_path / "m.npz"), call("graph", tmp_path / "m.npz", "--show", "relations")
    assert len(fitted.stdout.splitlines()) == 1 < len(found.stdout.splitlines())
    assert "--show relations or edges" in fitted.stderr
    assert "--show" not in found.stderr


def test_everything_is_chosen_by_cross_validation(tmp_path):
    """The paper's method: parameters, a graph with confidence, and the gain over separate models."""
    args = ("fit", related_table(tmp_path), "--task", "task", "--target", "y", "--json", "--method", "p-mssl")
    one, two = (json.loads(call(*args, "--save", tmp_path / f"{name}.npz").stdout) for name in "ab")
    assert {"graph_penalty", "coef_penalty", "prior_strength"} <= set(one["parameters"])
    assert one["gain_over_separate_models"] > 0.1
    assert "stability selection" in one["graph_choice"]
    assert one["held_out"]["score"] == mssl.load(tmp_path / "a.npz").held_out_.score
    assert "cross-validated" in one["held_out"]["what"]
    assert all(edge["q"] <= 0.1 for edge in one["strongest_edges"])
    drop = ("seconds", "file")
    assert {k: v for k, v in one.items() if k not in drop} == {k: v for k, v in two.items() if k not in drop}
    assert "confidence" in call("graph", tmp_path / "a.npz", "--min-confidence", "0.9").output


def test_edges_of_stability_selection_come_with_their_bound(tmp_path):
    data = make_clustered_tasks(n_tasks=6, clusters=[[0, 1, 2]], n_features=20, random_state=0)
    model = MSSLRegressorCV(selection="graph", stability=StabilitySelection(random_state=0)).fit(
        data.X, data.y, tasks=data.tasks
    )
    mssl.save(model, tmp_path / "m.npz")
    graph = model.graph_
    assert graph.n_edges
    told = f"of the {graph.n_edges} pairs of the support at most {graph.false_edges:.2g} are expected to be false"
    assert told in call("graph", tmp_path / "m.npz").stderr


def test_compare_holds_methods_against_each_other(weather):
    args = ("compare", weather / "data.csv", "--task", "station", "--target", "y", "--folds", "2")
    outcome = json.loads(call(*args, "--methods", "ols,ridge,pooled", "--json").stdout)
    assert list(outcome["methods"]) == ["ols", "ridge", "pooled"]
    assert all(cells["RMSE"]["mean"] < 0.6 for cells in outcome["methods"].values())
    assert [row["task"] for row in outcome["tasks"]] == ["Bergen", "Oslo", "Riga", "Turku"]
    for name, cells in outcome["methods"].items():
        # Folds and tasks are of equal size, so that both ways of averaging squared errors agree.
        deviance = np.mean([row["deviance"][name] for row in outcome["tasks"]])
        spread = cells["RMSE"]["standard_error"] / np.sqrt(3)  # of two parts: s √(1/2 + 1), where s is √2 times theirs
        assert deviance == pytest.approx(cells["RMSE"]["mean"] ** 2 + spread**2, rel=1e-6)
    shown = call(*args, "--methods", "ols,pooled").output
    assert "Gain of each task over ols" in shown
    with pytest.raises(mssl.exceptions.ParameterError, match="method is 'nonsense'; allowed are 'p-mssl'"):
        raise call(*args, "--methods", "nonsense", code=1).exception


def test_compare_of_labels(tmp_path):
    path = write_table(tmp_path / "data.csv", kind="binary", rows=40)
    args = ("compare", path, "--task", "station", "--target", "y", "--folds", "2", "--methods", "logistic,pooled")
    outcome = json.loads(call(*args, "--json").stdout)
    for cells in outcome["methods"].values():
        assert cells["error"]["mean"] < 0.4
        assert cells["AUC"]["mean"] > 0.7
    with pytest.raises(mssl.exceptions.ParameterError, match="is not made for such targets"):
        raise call(*args[:-1], "average-model", code=1).exception


def test_select_finds_the_edges_that_are_there(tmp_path):
    from mssl.datasets import make_clustered_tasks

    data = make_clustered_tasks(random_state=0)
    path = tmp_path / "data.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["task", *data.feature_names, "y"])
        writer.writerows([t, *x, y] for t, x, y in zip(data.tasks, data.X.tolist(), data.y.tolist(), strict=True))
    args = ("select", path, "--task", "task", "--target", "y", "--subsamples", "20")
    found = json.loads(call(*args, "--json", "--save", tmp_path / "s.npz").stdout)
    graph = mssl.load(tmp_path / "s.npz").graph_
    assert found["edges"] == graph.n_edges
    assert graph.compare(data.adjacency).f1 > 0.7
    assert call("graph", tmp_path / "s.npz").stdout == graph.to_csv()
    assert "Stable edges" in call(*args).output
