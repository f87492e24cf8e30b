"""Experiments: records that survive a kill, tests that are what they say, pages that hold what they must."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

import mssl_reproduction as experiments
from mssl import presets
from mssl.exceptions import DataError, DatasetError, ParameterError
from mssl.features import Linear
from mssl_reproduction import classification, climate, figures, methods, sample_size, scaling, sets
from mssl_reproduction.page import Claim, Comparison, Page, published
from mssl_reproduction.runner import Experiment, Results, crossed, read_records, run_experiment
from mssl_reproduction.stats import density_test, holm, mean_and_spread, paired_p_value, winners
from mssl_reproduction.tables import Cell, Table, compared_cells

FOLDER = Path(experiments.__file__).parent
finite = st.floats(-10, 10, allow_nan=False)


# ---- statistics


@given(st.lists(st.tuples(finite, finite), min_size=3, max_size=12))
def test_paired_test_is_the_t_test_for_independent_runs(pairs):
    a, b = np.array(pairs).T
    if np.ptp(a - b) < 1e-6:
        return
    assert paired_p_value(a, b) == pytest.approx(ttest_rel(a, b).pvalue, rel=1e-6, abs=1e-12)
    assert paired_p_value(a, b) == pytest.approx(paired_p_value(b, a))
    assert paired_p_value(a, b, overlap=0.3) >= paired_p_value(a, b)


def test_paired_test_of_equal_and_of_constant_differences():
    assert paired_p_value([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert paired_p_value([2.0, 3.0], [1.0, 2.0]) == 0.0
    assert paired_p_value([2.0], [1.0]) == 1.0
    with pytest.raises(DataError, match="equally many of both"):
        paired_p_value([1.0], [1.0, 2.0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.01, 0.2))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values, alpha):
    adjusted = holm(p_values)
    order = np.argsort(p_values, kind="stable")
    rejecting = True
    for rank, k in enumerate(order):
        level = p_values[k] * (len(p_values) - rank)
        if abs(level - alpha) < 1e-12:
            return
        rejecting = rejecting and level <= alpha
        assert (adjusted[k] <= alpha) == rejecting
    assert np.all(adjusted >= np.asarray(p_values))


def test_winners_hold_the_lowest_and_those_it_cannot_be_told_from(rng):
    base = rng.normal(size=20)
    errors = {"worst": base + 5 + 0.1 * rng.normal(size=20), "best": base, "close": base + 0.3 * rng.normal(size=20)}
    errors["close"] += errors["best"].mean() - errors["close"].mean() + 0.01
    assert winners(errors) == {"worst": False, "best": True, "close": True}


def test_density_test_counts_relabellings(rng):
    K = 7
    A = np.triu(rng.random((K, K)) < 0.5, 1)
    A = (A | A.T).astype(float)
    groups = np.array([0, 0, 0, 1, 1, 1, 1])

    def contrast(first):
        inside = [A[i, j] for i, j in combinations(range(K), 2) if (i in first) == (j in first)]
        across = [A[i, j] for i, j in combinations(range(K), 2) if (i in first) != (j in first)]
        return np.mean(inside) - np.mean(across)

    every = [contrast(set(first)) for first in combinations(range(K), 3)]
    result = density_test(A, groups)
    assert result["difference"] == pytest.approx(contrast({0, 1, 2}))
    assert result["p_value"] == pytest.approx(np.mean(np.array(every) >= contrast({0, 1, 2}) - 1e-12))
    assert result["relabellings"] == len(every)
    sampled = density_test(A, groups, largest=20)
    assert sampled["relabellings"] == 20
    with pytest.raises(DataError, match="two different ones"):
        density_test(A, [0, 1, 2, 0, 1, 2, 0])


def test_spread_of_one_run_is_not_known():
    mean, spread = mean_and_spread([3.0])
    assert mean == 3.0
    assert np.isnan(spread)


# ---- tables and pages


TABLE = Table(
    "t", "A 50 % caption", ["name & more", "x"], [["a|b_c", Cell(1.25, 0.5, bold=True)], ["d", Cell(2.0)]], "note"
)


def test_csv_holds_the_numbers_in_full():
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows[0] == ["name & more", "x", "x sd"]
    assert [float(cell) for cell in rows[1][1:]] == [1.25, 0.5]
    assert rows[2] == ["d", "2.0", ""]


def test_markdown_latex_and_html_escape_and_embolden():
    lines = TABLE.markdown().splitlines()
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines)
    assert "**1.25 ± 0.50**" in lines[2]
    latex = TABLE.latex()
    assert r"name \& more" in latex
    assert r"a|b\_c" in latex
    assert r"\textbf{1.25 $\pm$ 0.50}" in latex
    assert latex.count("{") == latex.count("}")
    assert "<b>1.25 ± 0.50</b>" in TABLE.html()
    assert "name &amp; more" in TABLE.html()


def test_rows_of_another_length_are_refused():
    with pytest.raises(DataError, match="has 1 cells; give one for each of its 2 columns"):
        Table("t", "c", ["a", "b"], [["x"]])


def test_a_comparison_says_by_how_much_and_why():
    above = Comparison("LR", Cell(2.0, 0.1), Cell(3.0, 0.1), "Other splits.")
    assert above.sentence() == "Ours is 1.00 (50%) above. Other splits."
    assert "below" in Comparison("LR", Cell(2.0), Cell(1.5), "w").sentence()
    assert Comparison("LR", Cell(2.0), Cell(2.001), "w").sentence().startswith("Equal")


def test_page_is_written_twice_and_escaped(tmp_path):
    page = Page("p", "A <b>title").text("See `code` and **bold** <script>.").claims([Claim("it rains", False, "dry")])
    page.table(TABLE).write(tmp_path)
    html = (tmp_path / "page.html").read_text("utf-8")
    assert "<script>" not in html
    assert "<code>code</code>" in html
    assert "A &lt;b&gt;title" in html
    text = (tmp_path / "page.md").read_text("utf-8")
    assert "| it rains | does not hold | dry |" in text
    assert {path.name for path in tmp_path.iterdir()} >= {"t.csv", "t.md", "t.tex", "claims.csv"}


def test_published_figures_are_in_one_file_only():
    def figures(node):
        if isinstance(node, dict):
            for key, value in node.items():
                yield from [value] if key == "mean" else figures(value)

    known = {f"{value:.3f}".rstrip("0") for value in figures({k: v for k, v in published().items() if k != "source"})}
    assert len(known) > 25
    distinctive = {value for value in known if len(value.split(".")[1]) >= 2}
    for path in FOLDER.glob("*.py"):
        found = set(re.findall(r"\d+\.\d+", path.read_text("utf-8"))) & distinctive
        if path.name == "page.py":
            found.discard("0.866")  # the example that reads it from the file
        assert not found, f"{path.name}: {found}"


# ---- the runner


def toy_protocol(quick):
    return {"seeds": 2 if quick else 6, "log": ""}


def toy_pieces(protocol):
    return [{"method": m, "seed": s} for s in range(protocol["seeds"]) for m in ("a", "b")]


def toy_work(key, protocol):
    if protocol["log"]:
        with Path(protocol["log"]).open("a") as stream:
            stream.write(f"{key['method']}{key['seed']}\n")
    if protocol.get("log", "").endswith("slow"):
        time.sleep(0.15)
    return {"value": key["seed"] + (key["method"] == "b") / 2}


def toy_present(results):
    values = results.column("value", method="a")
    return Page("toy", "Toy").table(Table("values", "Values", ["n", "sum"], [[str(len(values)), Cell(sum(values))]]))


TOY = Experiment("toy", "A toy", toy_protocol, toy_pieces, toy_work, toy_present)


def without_time(path):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in read_records(path)]


def test_resume_recomputes_nothing_that_is_recorded(tmp_path):
    log = tmp_path / "log"
    run_experiment(TOY, tmp_path / "out", log=str(log))
    records = tmp_path / "out" / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    assert len(lines) == 12
    records.write_bytes(b"".join(lines[:5]) + lines[5][:20])  # what a kill in the middle of a line leaves
    before = (tmp_path / "out" / "values.csv").read_text()
    log.write_text("")
    run_experiment(TOY, tmp_path / "out", resume=True, log=str(log))
    assert sorted(log.read_text().split()) == sorted(
        f"{json.loads(x)['method']}{json.loads(x)['seed']}" for x in lines[5:]
    )
    assert (tmp_path / "out" / "values.csv").read_text() == before
    log.write_text("")
    run_experiment(TOY, tmp_path / "out", resume=True, log=str(log))
    assert log.read_text() == ""


def test_a_killed_run_continues(tmp_path):
    log = tmp_path / "slow"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import test_reproduction as t\n"
        "t.run_experiment(t.TOY, sys.argv[2], log=sys.argv[3])\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "out"), str(log)]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONWARNINGS": "ignore"})
    records = tmp_path / "out" / "records.jsonl"
    limit = time.monotonic() + 60
    while not (records.exists() and len(records.read_bytes().splitlines()) >= 3):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < limit
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {f"{r['method']}{r['seed']}" for r in read_records(records)}
    assert 3 <= len(done) < 12
    log.write_text("")
    run_experiment(TOY, tmp_path / "out", resume=True, log=str(log))
    again = set(log.read_text().split())
    assert not again & done
    assert len(again | done) == 12


def test_workers_change_nothing(tmp_path):
    for jobs in (1, 2):
        run_experiment(TOY, tmp_path / str(jobs), quick=True, jobs=jobs)
    one, two = (without_time(tmp_path / str(jobs) / "records.jsonl") for jobs in (1, 2))
    assert sorted(one, key=str) == sorted(two, key=str)
    assert (tmp_path / "1" / "values.csv").read_text() == (tmp_path / "2" / "values.csv").read_text()


def test_settings_hold_versions_and_protocol(tmp_path):
    run_experiment(TOY, tmp_path, quick=True)
    written = json.loads((tmp_path / "settings.json").read_text("utf-8"))
    assert written["protocol"] == {"seeds": 2, "log": ""}
    assert written["quick"] is True
    assert {"mssl", "numpy", "scikit-learn"} <= set(written["versions"])


def test_what_does_not_belong_together_is_refused(tmp_path):
    run_experiment(TOY, tmp_path, quick=True)
    with pytest.raises(ParameterError, match="give a folder without records, or resume"):
        run_experiment(TOY, tmp_path, quick=True)
    with pytest.raises(ParameterError, match="another experiment or protocol"):
        run_experiment(TOY, tmp_path, resume=True)
    with pytest.raises(ParameterError, match="is 'sedes'; allowed are"):
        run_experiment(TOY, tmp_path / "x", sedes=3)
    with pytest.raises(ParameterError, match="allowed are 'synthetic'"):
        experiments.run("nonsense", tmp_path)
    with pytest.raises(ParameterError, match="one experiment is needed to change seeds"):
        experiments.run("all", tmp_path, seeds=3)
    damaged = tmp_path / "records.jsonl"
    damaged.write_bytes(b"no record\n" + damaged.read_bytes())
    with pytest.raises(DatasetError, match=r"Line 1 of .* is no record"):
        run_experiment(TOY, tmp_path, quick=True, resume=True)
    for line in (b"123", b"{}", b"[]", b'{"met', b"\0" * 64, b"[" * 100_000, b'{"seconds": 1}'):
        damaged.write_bytes(line + b"\n")
        with pytest.raises(DatasetError, match=r"Line 1 of .* is no record"):
            run_experiment(TOY, tmp_path, quick=True, resume=True)
    for text in ("{", "[]", "\0", "[" * 100_000):
        (tmp_path / "settings.json").write_text(text)
        with pytest.raises(DatasetError, match="put the file back"):
            run_experiment(TOY, tmp_path, quick=True, resume=True)


def test_warnings_of_solvers_are_recorded_and_counted(tmp_path):
    import warnings

    def loud(key, protocol):
        warnings.warn("too few rounds", stacklevel=1)
        return {"value": 1.0}

    page = run_experiment(Experiment("toy", "A toy", toy_protocol, toy_pieces, loud, toy_present), tmp_path, quick=True)
    assert all(r["warnings"] == ["UserWarning: too few rounds"] for r in read_records(tmp_path / "records.jsonl"))
    assert "4 of them came with a warning" in page.markdown()


# ---- the experiments


def check_folder(folder: Path, name: str, heading: str = "Published beside measured") -> str:
    """Everything that a run must leave behind; returns the page's text."""
    assert (folder / "settings.json").exists()
    records = read_records(folder / "records.jsonl")
    keys = [
        tuple(sorted((k, str(v)) for k, v in r.items() if k in ("method", "seed", "set", "window"))) for r in records
    ]
    assert records
    assert keys
    text, html = ((folder / f"page.{ending}").read_text("utf-8") for ending in ("md", "html"))
    assert f"mssl reproduce {name}" in text or "mssl_reproduction.run" in text
    assert heading in text
    assert "| verdict |" in text or "| difference |" in text
    pictures = re.findall(r"\]\(([\w.-]+)\.png\)", text)
    assert pictures
    for picture in pictures:
        assert (folder / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / f"{picture}.svg").read_text("utf-8")
        assert f'src="{picture}.svg"' in html
    tables = {path.stem for path in folder.glob("*.csv")}
    assert tables
    assert all((folder / f"{table}.{ending}").exists() for table in tables for ending in ("md", "tex"))
    return text


def test_available_names_every_experiment():
    names = [name for name, _ in experiments.available()]
    assert names == [
        "synthetic",
        "sensitivity",
        "climate",
        "classification",
        "sample-size",
        "landmine-graph",
        "scaling",
        "regimes",
        "all",
    ]


def test_synthetic(tmp_path):
    page = experiments.run("synthetic", tmp_path, quick=True, seeds=2)
    assert page == tmp_path / "page.html"
    text = check_folder(tmp_path, "synthetic")
    for claim in published()["synthetic"].values():
        assert claim in text
    records = read_records(tmp_path / "records.jsonl")
    ours, ols = (np.mean([r["rmse"][:10] for r in records if r["method"] == m]) for m in ("p-MSSL", "OLS"))
    assert ours < ols  # related tasks gain
    wrong, right = (np.mean([r["rmse"] for r in records if r["method"] == m]) for m in ("wrong graph", "true graph"))
    assert right < wrong


def test_sensitivity(tmp_path):
    experiments.run("sensitivity", tmp_path, quick=True, seeds=1)
    text = check_folder(tmp_path, "sensitivity")
    for claim in published()["sensitivity"].values():
        assert claim in text
    records = read_records(tmp_path / "records.jsonl")
    for record in records:
        assert record["edges"][0] == 78  # λ = 0 is dense
        assert record["edges"][-1] == 0  # λ = 1 is empty
    zeros = [record["zeros"][2] for record in records]
    assert zeros == sorted(zeros)  # more γ, more zero weights


@pytest.fixture
def no_downloads(monkeypatch):
    """Only what comes with the package can be had."""
    for module in (climate, classification, sample_size, scaling):
        monkeypatch.setattr(module, "can_be_had", lambda load, name: False)


@pytest.mark.usefixtures("no_downloads")
def test_climate_without_data_takes_a_simulated_ensemble(tmp_path):
    experiments.run(
        "climate",
        tmp_path,
        quick=True,
        methods=["Average", "Best member", "OLS", "S²M²R", "r-MSSL", "ridge", "climatology"],
    )
    text = check_folder(tmp_path, "climate")
    assert "Not run, since the file could not be had here: fiveloc, atlas" in text
    assert "climatology" in text


@pytest.mark.usefixtures("no_downloads")
def test_classification_without_data_takes_the_digits(tmp_path):
    chosen = ["LR", methods.STABLE, methods.DEFAULT, "Pooled"]
    shares = {"digits": [0.1, 0.2]}
    fewer = {f"runs of {methods.STABLE}": {"digits": 0}}
    experiments.run(
        "classification", tmp_path, quick=True, runs={"digits": 1}, methods=chosen, fractions=shares, **fewer
    )
    text = check_folder_without_published(tmp_path)
    assert "landmine, spam-15, letter" in text
    assert f"{methods.STABLE} was run less often on Digits pairs (0), and is not compared there." in text
    assert methods.STABLE not in (tmp_path / "records.jsonl").read_text(encoding="utf-8")


def check_folder_without_published(folder):
    """The digits are not in the paper, so there is a claim of ours but no published figure."""
    text = check_folder(folder, "classification")
    assert "mssl default errs no more than LR" in text
    assert "of 1 without" in text
    assert "| AUC" not in text or "Area under the ROC curve" in text
    assert "Area under the ROC curve (%)" in text
    return text


def test_splits_are_disjoint_and_repeatable():
    first, again = (sets.split.__wrapped__("digits", 0.2, 3) for _ in range(2))
    assert np.array_equal(first.X, again.X)
    other = sets.split.__wrapped__("digits", 0.2, 4)
    assert not np.array_equal(first.X, other.X)
    data = sets.load("digits")
    for task in data.task_names[:5]:
        own = data.tasks == task
        assert np.sum(first.tasks == task) == round(0.2 * own.sum())
        assert np.sum(first.tasks == task) + np.sum(first.tasks_test == task) == own.sum()


def test_training_rows_are_drawn_whatever_their_labels():
    parts = [np.arange(50), np.arange(50, 100)]
    even = np.arange(100) % 2
    first, again = (sets.drawn(parts, y, [10, 5], np.random.default_rng(0)) for y in (even, 1 - np.sort(even)))
    np.testing.assert_array_equal(first, again)
    assert [np.sum(first < 50), np.sum(first >= 50)] == [10, 5]
    rare = (np.arange(100) == 7).astype(int)
    assert 7 in sets.drawn(parts, rare, [10, 5], np.random.default_rng(0))


def test_windows_of_the_paper_use_all_years(monkeypatch):
    months = np.zeros((1199, 2))
    monkeypatch.setattr(climate, "load_cells", lambda name: type("Cells", (), {"y": months})())
    protocol = {"years": {"fiveloc": [50, 10]}, "windows": 5}
    found = climate.windows("fiveloc", protocol)
    assert [w[0].start for w in found] == [0, 120, 240, 360, 480]
    assert all(train.stop == test.start for train, test in found)
    assert found[-1][1] == slice(1080, 1199)


@pytest.mark.usefixtures("data_folder")
def test_certain_edges_stop_at_the_borders_of_regimes(tmp_path):
    experiments.run("regimes", tmp_path, quick=True)
    check_folder(tmp_path, "regimes", "Set beforehand beside measured")
    (record,) = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert record["inside"] >= 0.95
    assert record["across"] <= 0.01
    assert record["false"] <= 0.15


def test_truth_and_estimate_stand_in_one_layout_on_one_scale():
    names = [f"task {k:02d}" for k in range(13)]
    rng = np.random.default_rng(0)
    weights = {}
    for title, scale in (("true", 0.3), ("learned", 0.9)):
        half = np.triu(rng.uniform(-scale, scale, (13, 13)), 1)
        weights[title] = half + half.T
    figure = figures.graph_panels(weights, names, ["a"] * 10 + ["b"] * 3)
    figure.draw_without_rendering()
    first, second = (ax for ax in figure.axes if len(ax.texts))
    assert [text.get_position() for text in first.texts] == [text.get_position() for text in second.texts]
    assert first.collections[0].get_clim() == second.collections[0].get_clim()
    for ax in (first, second):  # no name lies on an edge or on a task
        edges = np.array(ax.collections[0].get_segments())
        along = np.linspace(0, 1, 101)[:, None, None]
        drawn = ax.transData.transform((along * edges[:, 0] + (1 - along) * edges[:, 1]).reshape(-1, 2))
        boxes = [text.get_window_extent() for text in ax.texts]
        assert not any(box.count_contains(drawn) for box in boxes)
    matrices = figures.precision_panels({"true": np.eye(13) * 2 + 0.1, "learned": np.eye(13) + 0.4}, names)
    left, right = (ax.images[0].get_clim() for ax in matrices.axes if ax.images)
    assert left == right


@pytest.mark.usefixtures("data_folder")
def test_landmine_graph_knows_the_ground(tmp_path):
    experiments.run("landmine-graph", tmp_path, quick=True)
    text = check_folder(tmp_path, "landmine-graph")
    assert published()["landmine-graph"]["clusters"] in text
    for record in read_records(tmp_path / "records.jsonl"):
        assert record["test"]["p_value"] < 0.05
        assert record["test"]["relabellings"] == 92378


@pytest.mark.usefixtures("data_folder")
def test_sample_size(tmp_path):
    chosen = ["LR", methods.PAPER]
    experiments.run("sample-size", tmp_path, quick=True, seeds=1, methods=chosen, sizes=[10, 20])
    text = check_folder(tmp_path, "sample-size")
    assert "Spam, 15 users" in text
    records = read_records(tmp_path / "records.jsonl")
    assert np.mean([r["error"] for r in records if r["size"] == 20]) < np.mean(
        [r["error"] for r in records if r["size"] == 10]
    )


@pytest.mark.usefixtures("no_downloads")
def test_scaling_shows_what_division_and_one_sided_intercepts_do(tmp_path):
    experiments.run("scaling", tmp_path, quick=True, rows=30)
    text = check_folder(tmp_path, "scaling")
    assert "errs about twice as much" in text
    rmse = {
        (r["method"], r["setting"]): np.mean(r["rmse"]) for r in read_records(tmp_path / "records.jsonl") if r["rmse"]
    }
    assert rmse["OLS", "with"] < rmse["OLS", "without"]  # the members have biases
    assert abs(rmse["r-MSSL", "with"] / rmse["OLS", "with"] - 1) < 0.05


def test_weights_of_one_over_n_are_a_strength_of_n(rng):
    """A loss divided by n at λ is the sum at nλ."""
    X, y, tasks = rng.standard_normal((60, 4)), rng.integers(0, 2, 60), np.repeat([0, 1, 2], 20)
    free = {"loss": "bernoulli", "features": Linear(scale=False), "tol": 1e-10}
    divided = presets.low_rank(0.1).set_params(**free).fit(X, y, tasks=tasks, sample_weight=np.full(60, 1 / 20))
    summed = presets.low_rank(2.0).set_params(**free).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(divided.coef_, summed.coef_, atol=1e-4)


@pytest.mark.parametrize(("known", "met"), [(12.0, "below 5 %"), (3.0, "above 80 %"), (10.0, "5 %"), (5.0, "20 %")])
def test_the_share_that_meets_a_figure(known, met):
    assert classification.meeting([0.05, 0.2, 0.8], [10.0, 5.0, 4.0], known) == met


def test_all_leaves_out_what_cannot_be_had(tmp_path):
    from mssl_reproduction import everything

    def unreachable(quick):
        raise DatasetError("no network")

    toys = {"toy": TOY, "far": Experiment("far", "Far away", unreachable, toy_pieces, toy_work, toy_present)}
    index = everything.run_all(toys, tmp_path, quick=True)
    assert "no network" in index.read_text("utf-8")
    assert 'href="toy/page.html"' in index.read_text("utf-8")
    text = (tmp_path / "reproduction.md").read_text("utf-8")
    assert "## Toy" in text
    assert "Quick protocol" in text
    assert published()["source"]["doi"] in text
    again = everything.run_all(toys, tmp_path, quick=True, resume=True)
    assert again.read_text("utf-8") == index.read_text("utf-8")


@settings(max_examples=10)
@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=6))
def test_where_selects_by_key(methods):
    records = [{"method": m, "seed": k, "value": float(k)} for k, m in enumerate(methods)]
    results = Results({}, records, Path())
    assert len(results.where(method="a")) + len(results.where(method="b")) == len(records)
    assert results.column("value", seed=0) == [0.0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.9))
def test_bold_cells_are_the_winners_and_areas_mirror_errors(seed, overlap):
    runs = dict(zip("abcd", np.random.default_rng(seed).normal(size=(4, 6)) + np.arange(4)[:, None], strict=True))
    low = compared_cells(runs, overlap=overlap)

    def told(best):
        return [won and not all(best.values()) for won in best.values()]

    assert [cell.bold for cell in low] == told(winners(runs, overlap=overlap))
    assert [(cell.value, cell.spread) for cell in low] == [mean_and_spread(values) for values in runs.values()]
    high = compared_cells({name: -values for name, values in runs.items()}, overlap=overlap, higher_is_better=True)
    assert [cell.bold for cell in high] == [cell.bold for cell in low]
    without = compared_cells(runs, overlap=overlap, unfair=["a"])
    fair = winners({name: runs[name] for name in "bcd"}, overlap=overlap)
    assert [cell.bold for cell in without] == [False, *told(fair)]


def test_one_run_has_no_spread_and_no_winner():
    """A single run tells nothing of its spread, and bold in every cell would tell nothing of the methods."""
    cells = compared_cells({"a": [1.0], "b": [2.0]}, digits=3)
    assert [str(cell) for cell in cells] == ["1.000", "2.000"]
    assert not any(cell.bold for cell in cells)
    table = Table("t", "One run", ["set", "a", "b"], [["s", *cells]])
    assert table.csv() == "set,a,b\ns,1.0,2.0\n"
    assert all(
        mark not in text for text in (table.markdown(), table.html(), table.latex()) for mark in ("±", "**", "<b>")
    )
    same = compared_cells({"a": [1.0, 2.0, 4.0], "b": [1.0, 2.0, 4.0]})
    assert str(same[0]) == "2.33 ± 1.53"
    assert not any(cell.bold for cell in same)
    for n in (4, 5):
        apart = compared_cells({"a": np.linspace(1.0, 1.2, n), "b": np.linspace(2.0, 2.3, n)})
        assert [cell.bold for cell in apart] == [n == 5, False]  # fewer than five runs are no ground for bold


@pytest.mark.parametrize("windows", [1, 5])
def test_the_climate_table_of_one_window_has_no_spread(windows, monkeypatch):
    from mssl_reproduction import climate_page

    protocol = {"values": ["raw", "anomalies"], "methods": ["OLS", "r-MSSL"]}
    errors = {"OLS": 1.0 + 0.1 * np.arange(windows), "r-MSSL": 0.9 + 0.1 * np.arange(windows)}
    monkeypatch.setattr(climate_page, "rmse", lambda results, name, kind, method: errors[method][:, None])
    table = climate_page._errors(Results(protocol, [], Path()), "fiveloc")
    assert ("±" in table.caption) == ("±" in table.markdown()) == (windows > 1)
    assert [[cell.bold for cell in row[1:]] for row in table.rows] == [[False] * 2, [windows > 1] * 2]
    errors["r-MSSL"] = errors["OLS"]
    table = climate_page._errors(Results(protocol, [], Path()), "fiveloc")
    assert not any(cell.bold for row in table.rows for cell in row[1:])


def test_crossed_keys_are_all_combinations_the_last_name_innermost():
    keys = crossed(shared_mean=[False, True], seed=range(3))
    assert keys == [{"shared mean": mean, "seed": seed} for mean in (False, True) for seed in range(3)]
