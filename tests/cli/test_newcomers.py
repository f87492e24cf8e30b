"""What newcomers stumble over at the command line is said in its own words, with the column and the remedy."""

import json
import re
import warnings
from html import unescape

import numpy as np
import pytest
from command_line import QUICK, call, write_table

import mssl
from mssl.cli._options import in_options
from mssl.report.content import measure

COLUMNS = ("--task", "station", "--target", "y")


def noted(*args):
    """What a command warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args)
    return " ".join(in_options(str(note.message)) for note in caught)


def with_column(path, name, values):
    """The table with one more column."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    values = values if isinstance(values, list) else [values(k) for k in range(len(lines))]
    added = [f"{head},{name}", *(f"{line},{value}" for line, value in zip(lines, values, strict=True))]
    path.write_text("\n".join(added) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "value", "is_id"),
    [
        ("patient_id", lambda k: k % 7, True),  # by its name
        ("PatientID", lambda k: 10**6 + 17 * k, True),
        ("count", lambda k: 500 + (k * 7) % 120, True),  # all different, without gaps: it counts the rows
        ("key", lambda k: f"k{k % 60}", False),
        ("label", lambda k: f"k{k}" if k < 96 else "k0", False),
        ("income", lambda k: 1000 + 37 * k, False),  # all different, but far apart
        ("valid", lambda k: k % 2, False),
        ("score", lambda k: k / 2, False),
    ],
)
def test_columns_that_look_like_ids_are_pointed_out(name, value, is_id, tmp_path):
    path = with_column(write_table(tmp_path / "data.csv"), name, value)
    told = noted("fit", path, *COLUMNS, *QUICK)
    assert (f"--drop {name}" in told and "--group" in told) == is_id
    if is_id:
        assert "looks like an id" not in noted("fit", path, *COLUMNS, *QUICK, "--drop", name)
        assert "looks like an id" not in noted("fit", path, *COLUMNS, *QUICK, "--features", f"wind,{name}")


def test_a_column_that_names_every_row_is_an_id(tmp_path):
    path = with_column(write_table(tmp_path / "data.csv", rows=20), "person", lambda k: f"p{k}")
    assert "--drop person" in noted("fit", path, *COLUMNS, *QUICK)


@pytest.mark.parametrize(
    ("text", "family", "match"),
    [
        ("{:.1f}kg", "auto", r"'y' holds text, such as '.*kg' and '.*kg', where numbers are needed; write the numbers"),
        ("{:.1f} %", "gaussian", r"'y' holds text, such as '.* %' and '.* %'.* the unit into the column's name"),
        ("grade {:.0f}", "auto", r"'y' holds .* labels, such as 'grade .*' and 'grade .*'; give numbers or"),
    ],
)
def test_targets_of_text_are_shown_with_a_remedy(text, family, match, tmp_path):
    path = with_column(write_table(tmp_path / "data.csv"), "why", lambda k: text.format(k / 3))
    path.write_text(re.sub(r",y,why", ",z,y", path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(mssl.exceptions.DataError, match=match):
        raise call("fit", path, *COLUMNS, "--family", family, code=1).exception


def test_a_row_is_no_table(tmp_path):
    for rows, match in (("", "no rows below its header"), ("a,1,2\n", "only one complete row")):
        (tmp_path / "data.csv").write_text(f"station,x,y\n{rows}", encoding="utf-8")
        with pytest.raises(mssl.exceptions.DataError, match=match):
            raise call("fit", tmp_path / "data.csv", *COLUMNS, code=1).exception


def test_notes_name_columns_and_options(tmp_path):
    path = with_column(write_table(tmp_path / "data.csv"), "day", lambda k: k % 30)  # the same days at every station
    told = noted("fit", path, *COLUMNS, "--method", "bayesian", "--set", "prior=mean+ard")
    assert "value of 'day'" in told
    assert "give --group day" in told
    assert "groups=" not in told


@pytest.mark.parametrize("kind", ["gaussian", "binary"])
def test_the_report_measures_rows_of_a_new_site_as_a_new_task(kind, tmp_path):
    pytest.importorskip("matplotlib")
    data = write_table(tmp_path / "data.csv", kind=kind)
    call("fit", data, *COLUMNS, *QUICK, "--save", tmp_path / "m.npz")
    new = write_table(tmp_path / "new.csv", names=["Oslo", "Vardo"], rows=40, kind=kind, seed=5)
    call("report", tmp_path / "m.npz", "--data", new, "-o", tmp_path / "r.html")
    page = unescape((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "40 further rows are of 1 task that the model was not fitted to" in page
    model = mssl.load(tmp_path / "m.npz")
    rows = model.table_.encode(model.table_.read(new, with_target=True), with_target=True)
    told = measure(model, (rows.features, rows.target, rows.tasks))
    strange = np.asarray(rows.tasks) == "Vardo"
    assert (told.strangers, told.n_strange, int(told.rows.sum())) == (["Vardo"], 40, 40)
    if kind == "gaussian":
        off = model.predict(rows.features, tasks=rows.tasks, unseen="mean") - rows.target
        assert told.strange_error == pytest.approx(np.sqrt(np.mean(off[strange] ** 2)))
        assert told.labels is None
        return
    # Of labels: the log loss beside that of the base rate, and the area under the curve, by their definitions.
    p = model.predict_proba(rows.features, tasks=rows.tasks, unseen="mean")[~strange, 1]
    hit = rows.target[~strange] == "yes"
    rate = model.base_rates_[0]  # of the rows that were fitted, whatever these are
    assert told.labels.log_loss == pytest.approx(-np.mean(np.log(np.where(hit, p, 1 - p))))
    assert told.labels.base_log_loss == pytest.approx(-np.mean(np.log(np.where(hit, rate, 1 - rate))))
    assert told.labels.auc == pytest.approx(np.mean(p[hit][:, None] > p[~hit][None, :]))
    assert f"log loss is {told.labels.log_loss:.3g}, where each task's base rate alone has" in page


def test_held_out_labels_are_told_beside_their_base_rate(tmp_path):
    """Both are of what the file's model says was held out; what is held out is no base rate's own."""
    data = write_table(tmp_path / "data.csv", kind="binary")
    settings = ("--method", "logistic")
    told = json.loads(call("fit", data, *COLUMNS, *settings, "--save", tmp_path / "m.npz", "--json").stdout)["held_out"]
    known = mssl.load(tmp_path / "m.npz").held_out_
    assert told == {name: value for name, value in vars(known).items() if value is not None}
    assert told["score"] < told["base_rate"]
    bayesian = json.loads(call("fit", data, *COLUMNS, "--method", "bayesian", "--json").stdout)["held_out"]
    assert min(told["auc"], bayesian["auc"]) > 0.6


def test_the_area_under_the_curve_is_of_rows_that_were_held_out(tmp_path):
    """Labels that nothing explains: on training rows many features would tell them apart, on held-out rows none."""
    random = np.random.default_rng(0)
    lines = [f"{'ab'[i % 2]},{','.join(map(str, random.normal(size=15)))},{random.integers(2)}" for i in range(120)]
    data = tmp_path / "noise.csv"
    data.write_text("\n".join([f"task,{','.join(f'x{j}' for j in range(15))},y", *lines]), encoding="utf-8")
    for settings in (["--set", "graph_penalty=0.3"], ["--method", "bayesian"], ["--method", "logistic"]):
        where = ("--task", "task", "--target", "y", *settings)
        told = json.loads(call("fit", data, *where, "--save", tmp_path / "m.npz", "--json").stdout)["held_out"]
        assert (told is None) == ("--set" in settings)  # nothing held out, nothing told
        assert told is None or abs(told["auc"] - 0.5) < 0.2
    assert "area under the ROC curve" in call("fit", data, *where).stdout
    assert "area under the ROC curve of the same rows" in str(mssl.load(tmp_path / "m.npz").summary())
