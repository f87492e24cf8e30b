"""How a command runs: workers, seeds, kills and continuations, and what is said meanwhile."""

import csv
import json
import logging
import re
import subprocess
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from command_line import ENTRY, QUICK, call, run, write_table

import mssl
from mssl import _progress
from mssl.cli import _show_warning

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
FIT = ("fit", "data.csv", "--task", "task", "--target", "y", "--method", "p-mssl", "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table whose search takes long enough to be ended in the middle, and the model that comes of it."""
    folder, random = tmp_path_factory.mktemp("running"), np.random.default_rng(0)
    centre = random.normal(size=5)
    with (folder / "data.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["task", *"abcde", "y"])
        for k in range(6):
            weights = centre + 0.3 * random.normal(size=5)
            writer.writerows([f"t{k}", *x, x @ weights + random.normal()] for x in random.normal(size=(20, 5)))
    run(*FIT, "--save", "whole.npz", cwd=folder)
    return folder


def content(path):
    """A model file without the times that were measured, which are never the same twice."""
    model = mssl.load(path)
    model.cv_results_["mean_fit_time"] *= 0
    best = model.best_estimator_
    history = [step._replace(seconds=0.0) for step in best.history_]
    best.result_ = replace(best.result_, history=history)
    return mssl.save(model, path.with_suffix(".timeless")).read_bytes()


def test_two_workers_write_the_same_file(folder):
    run(*FIT, "--save", "two.npz", "--jobs", "2", cwd=folder)
    assert content(folder / "two.npz") == content(folder / "whole.npz")


def test_killed_fits_end_in_the_same_file(folder):
    record, command = folder / "m.npz.checkpoint", [*ENTRY, *FIT, "--save", "m.npz", "--resume"]
    lines, kills = 0, 0
    for _ in range(3):
        process = subprocess.Popen(command, cwd=folder)
        while process.poll() is None:
            known = record.read_bytes().count(b"\n") if record.exists() else 0
            if known > lines + 1:  # something new is finished
                process.kill()
                lines, kills = known, kills + 1
                break
            time.sleep(0.002)
        process.wait()
    assert kills == 3
    assert not (folder / "m.npz").exists()
    assert record.exists()
    run(*command[3:], cwd=folder)
    assert content(folder / "m.npz") == content(folder / "whole.npz")
    assert not record.exists()


def test_seeds_decide_on_folds_and_subsamples(folder):
    run(*FIT, "--save", "seed.npz", "--seed", "1", cwd=folder)
    model, other = (mssl.load(folder / f"{name}.npz") for name in ("seed", "whole"))
    assert model.stability_.random_state == model.cv.random_state == 1
    assert model.best_score_ != other.best_score_


def test_resume_needs_a_place_and_says_where_there_is_no_record(folder):
    call("fit", folder / "data.csv", *FIT[2:], "--resume", code=2)
    with pytest.warns(UserWarning, match="starts anew"):
        call("fit", folder / "data.csv", *FIT[2:], *QUICK, "--save", folder / "n.npz", "--resume")


def test_weights_count_rows(tmp_path):
    lines = write_table(tmp_path / "data.csv").read_text().splitlines()
    counts = np.random.default_rng(1).integers(1, 4, len(lines) - 1)
    (tmp_path / "short.csv").write_text(
        "\n".join([lines[0] + ",n", *(f"{a},{n}" for a, n in zip(lines[1:], counts, strict=True))])
    )
    (tmp_path / "long.csv").write_text(
        "\n".join([lines[0], *(a for a, n in zip(lines[1:], counts, strict=True) for _ in range(n))])
    )
    columns = ("--task", "station", "--target", "y", *QUICK)
    call("fit", tmp_path / "short.csv", *columns, "--weight", "n", "--save", tmp_path / "short.npz")
    call("fit", tmp_path / "long.csv", *columns, "--save", tmp_path / "long.npz")
    short, long = (mssl.load(tmp_path / f"{name}.npz") for name in ("short", "long"))
    assert short.features_.tolist() == long.features_.tolist()
    np.testing.assert_allclose(short.coef_, long.coef_, atol=1e-4)


def test_offsets_are_exposures(tmp_path):
    """Counts of twice the exposure, with the offset that says so, are the same model; predictions follow the offset."""
    random, lines = np.random.default_rng(2), ["site,a,log_days,visits"]
    for site in ("north", "south", "west"):
        for a, days in zip(random.normal(size=40), random.integers(1, 30, 40), strict=True):
            lines.append(f"{site},{a},{np.log(days)},{random.poisson(days * np.exp(0.4 * a - 1))}")
    (tmp_path / "data.csv").write_text("\n".join(lines))
    columns = ("--task", "site", "--target", "visits", "--family", "poisson", "--offset", "log_days", *QUICK)
    call("fit", tmp_path / "data.csv", *columns, "--save", tmp_path / "m.npz")
    model = mssl.load(tmp_path / "m.npz")
    assert model.features_.tolist() == ["a"]
    assert np.allclose(model.coef_, 0.4, atol=0.15)
    assert np.allclose(model.intercept_, -1, atol=0.2)
    answers = list(csv.DictReader(call("predict", tmp_path / "m.npz", tmp_path / "data.csv").stdout.splitlines()))
    rows = list(csv.DictReader(lines))
    rates = [float(b["prediction"]) / np.exp(float(a["log_days"])) for a, b in zip(rows, answers, strict=True)]
    frame = pd.read_csv(tmp_path / "data.csv")
    np.testing.assert_allclose(rates, model.predict(frame, offset=0), rtol=1e-10)
    known = [float(row["prediction"]) for row in answers]
    np.testing.assert_allclose(known, model.predict(frame, offset=frame["log_days"]), rtol=1e-10)
    (tmp_path / "no.csv").write_text("site,a\nnorth,1\n")
    call("predict", tmp_path / "m.npz", tmp_path / "no.csv", code=1)
    call("fit", tmp_path / "data.csv", *columns, "--weight", "log_days", code=2)


@pytest.mark.parametrize("verbose", [0, 1])
def test_long_work_says_a_line_now_and_then(verbose, monkeypatch, caplog, capsys):
    """Also while a single piece of it takes long; where nobody listens to the logger, if verbose asks for it."""
    monkeypatch.setattr(_progress, "_EVERY", 0.01)
    for level in (logging.INFO, logging.ERROR):
        caplog.set_level(level, "mssl")
        before = threading.active_count()
        with _progress.Progress(verbose, "search", 2) as progress:
            progress.stage("penalties", 7)
            progress.advance(3)
            while level == logging.INFO and not caplog.records:
                time.sleep(0.01)
            while level == logging.ERROR and verbose and not (printed := capsys.readouterr().err):
                time.sleep(0.01)
        assert threading.active_count() == before
    assert {record.message for record in caplog.records} == {"search: penalties, 3 of 7 done after 0 s"}
    assert not verbose or printed.startswith("search: penalties, 3 of 7 done")


def test_levels_say_more_or_less(folder, capsys):
    fit = ("fit", folder / "data.csv", *FIT[2:-1], *QUICK)
    assert "120 rows of 6 tasks were read" in call(*fit, "--log-level", "debug").stderr
    assert call(*fit).stderr == ""
    call(*fit, "--log-level", "error")
    _show_warning("something odd", UserWarning)
    assert capsys.readouterr().err == ""
    call(*fit)
    _show_warning("something odd", UserWarning)
    assert "something odd" in capsys.readouterr().err
    assert json.loads(call(*fit, "--json").stdout)["rows"] == 120


COMPARE = ("compare", "data.csv", "--task", "task", "--target", "y", "--methods", "ridge,pooled,mean-regularized")


def test_comparisons_are_continued_and_shared_among_workers(folder):
    whole = run(*COMPARE, "--json", cwd=folder).stdout
    assert run(*COMPARE, "--json", "--jobs", "2", cwd=folder).stdout == whole
    record = folder / "data.csv.compare.checkpoint"
    process = subprocess.Popen([*ENTRY, *COMPARE, "--quiet", "--resume"], cwd=folder)
    while process.poll() is None and not (record.exists() and record.read_bytes().count(b"\n") > 3):
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert record.exists()
    done = run(*COMPARE, "--json", "--resume", cwd=folder)
    assert done.stdout == whole
    assert re.search(r"compare.checkpoint holds \d+ finished pieces of work; the work continues", done.stderr)
    assert not record.exists()


def test_selections_are_recorded_and_shared_among_workers(folder):
    select = ("select", folder / "data.csv", *COMPARE[2:6], "--subsamples", "6", "--quiet", "--save")
    call(*select, folder / "one.npz")
    call(*select, folder / "two.npz", "--jobs", "2", "--resume")
    assert (folder / "one.npz").read_bytes() == (folder / "two.npz").read_bytes()
    assert not (folder / "two.npz.checkpoint").exists()


def test_many_tasks_are_searched_shortly_and_aloud(folder, monkeypatch):
    from mssl.cli import fit

    monkeypatch.setattr(fit, "_MANY_TASKS", 5)
    command = ("fit", folder / "data.csv", *FIT[2:], "--save", folder / "short.npz")
    with pytest.warns(UserWarning, match="there are 6 tasks, so that the search is a short one: eight settings"):
        call(*command)
    model = mssl.load(folder / "short.npz")
    assert len(model.cv_results_["params"]) == 8
    assert model.selection == "prediction"
    call(*command, "--set", "selection=both")  # what is said is done
    assert mssl.load(folder / "short.npz").selection == "both"


def test_selections_take_offsets(tmp_path):
    """For least squares an offset is the same as the target without it."""
    path = write_table(tmp_path / "data.csv")
    cells = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    shifts = [0.5 * (k % 3) for k in range(len(cells))]
    rows = [
        ",".join([*row[:3], f"{shift}", f"{float(row[4]) + shift!r}", row[4]])
        for row, shift in zip(cells, shifts, strict=True)
    ]
    path.write_text("\n".join(["station,wind,sun,shift,y,z", *rows]), encoding="utf-8")
    select = ("select", path, "--task", "station", "--subsamples", "4", "--subsample", "samples", "--quiet", "--save")
    call(*select, tmp_path / "a.npz", "--target", "y", "--drop", "z", "--offset", "shift")
    call(*select, tmp_path / "b.npz", "--target", "z", "--drop", "y,shift")
    one, two = (mssl.load(tmp_path / f"{name}.npz").mean_frequency_ for name in "ab")
    np.testing.assert_allclose(one, two)
