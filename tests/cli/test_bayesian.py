"""The method bayesian from the command line: intervals, and tasks that the model was not fitted to."""

import csv
import io
import json

import numpy as np
import pytest
from command_line import call

from mssl.methods import make_estimator, method_names

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of three sites, one of two labels, rows of a new site, and models fitted to both tables."""
    folder = tmp_path_factory.mktemp("bayesian")
    rng = np.random.default_rng(0)
    lines, labels, new = ["site,a,b,y"], ["site,a,b,sick"], ["site,a,b"]
    for site, slope in (("north", 1.0), ("south", 1.3), ("west", 0.8), ("east", 1.1)):
        for a, b, error in rng.normal(size=(20, 3)).tolist():
            y = slope * a - b + 0.3 * error
            if site == "east":
                new.append(f"{site},{a},{b}")
            else:
                lines.append(f"{site},{a},{b},{y}")
                labels.append(f"{site},{a},{b},{'yes' if y > 0 else 'no'}")
    new.append(lines[1].rsplit(",", 1)[0])
    for name, text in (("data", lines), ("labels", labels), ("new", new)):
        (folder / f"{name}.csv").write_text("\n".join(text))
    quick = ["--method", "bayesian", "--set", "prior=mean+ard", "--set", "features=linear"]
    call("fit", folder / "data.csv", "--task", "site", "--target", "y", *quick, "--save", folder / "y.npz",
        "--report", folder / "y.html")  # fmt: skip
    call("fit", folder / "labels.csv", "--task", "site", "--target", "sick", *quick, "--save", folder / "sick.npz")
    return folder


def table(result):
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_the_method_has_a_name_for_every_family():
    assert "bayesian" in method_names()
    names = {family: type(make_estimator("bayesian", family)).__name__ for family in ("gaussian", "binary", "poisson")}
    assert names["binary"] == "BayesianMSSLClassifier"
    assert names["gaussian"] == names["poisson"] == "BayesianMSSLRegressor"
    assert make_estimator("bayesian", "poisson").loss == "poisson"
    assert make_estimator("bayesian", "gaussian", {"prior": "iw"}).prior == "iw"


def test_a_fit_says_what_was_chosen(folder):
    assert (folder / "y.html").stat().st_size > 1000
    quick = ["--method", "bayesian", "--set", "features=linear", "--set", "prior=mean"]
    result = call("fit", folder / "data.csv", "--task", "site", "--target", "y", *quick, "--json")
    found = json.loads(result.stdout)
    assert found["parameters"]["prior"] == "mean"
    assert "held-out rows" in found["held_out"]["what"]


def test_intervals_lie_around_predictions(folder):
    narrow = table(call("predict", folder / "y.npz", folder / "data.csv", "--level", "0.5"))
    wide = table(call("predict", folder / "y.npz", folder / "data.csv", "--level", "0.95"))
    assert list(narrow[0]) == ["site", "prediction", "lower", "upper"]
    for a, b in zip(narrow, wide, strict=True):
        assert a["prediction"] == b["prediction"]
        ends = [float(value) for value in (b["lower"], a["lower"], a["prediction"], a["upper"], b["upper"])]
        assert ends == sorted(ends)


def test_the_old_spelling_of_level_answers_for_one_release(folder):
    with pytest.warns(FutureWarning, match="now --level 0.8"):
        answer = call("predict", folder / "y.npz", folder / "data.csv", "--interval", "0.8")
    assert answer.stdout == call("predict", folder / "y.npz", folder / "data.csv", "--level", "0.8").stdout


def test_a_model_without_intervals_says_so(folder):
    result = call("predict", folder / "sick.npz", folder / "labels.csv", "--level", "0.9", code=2)
    assert "--level" in result.output
    assert set(table(call("predict", folder / "sick.npz", folder / "labels.csv"))[0]) == {
        "site",
        "prediction",
        "probability",
    }


@pytest.mark.filterwarnings("ignore:.*predicted from the mean")
@pytest.mark.parametrize("model", ["y.npz", "sick.npz"])
def test_new_tasks_are_refused_or_predicted_from_the_mean(folder, model):
    refused = call("predict", folder / model, folder / "new.csv", "--unseen", "error", code=1)
    assert "east" in str(refused.exception)
    with pytest.warns(UserWarning, match="predicted from the mean"):  # by default as in Python
        default = call("predict", folder / model, folder / "new.csv").stdout
    assert default == call("predict", folder / model, folder / "new.csv", "--unseen", "mean").stdout
    interval = ["--level", "0.9"] if model == "y.npz" else []
    rows = table(call("predict", folder / model, folder / "new.csv", "--unseen", "mean", *interval))
    assert len(rows) == 21
    assert rows[-1]["site"] == "north"
    if interval:
        widths = [float(row["upper"]) - float(row["lower"]) for row in rows]
        assert np.mean(widths[:-1]) > 0
