"""Groups and times from the columns of a table."""

import numpy as np
import pytest

from mssl.cli._tables import read_training
from mssl.exceptions import DataError

pytest.importorskip("pyarrow")
TABLE = {
    "task": "site",
    "target": "y",
    "features": None,
    "drop": "",
    "time": None,
    "family": "auto",
    "missing": "error",
}


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["site,day,a,b,y"]
    for site in ("north", "south"):
        values = rng.normal(size=(12, 3)).round(4).tolist()
        lines += [f"{site},{day},{a},{b},{y}" for day, (a, b, y) in zip(rng.permutation(12), values, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    return str(tmp_path / "data.csv")


def test_a_group_is_no_feature_and_is_kept_together(file):
    training = read_training(file, **TABLE, group="day")
    assert training.schema.feature_names == ["a", "b"]
    for train, test in training.splits(3, 0):
        assert not set(training.groups[train]) & set(training.groups[test])
        assert set(training.rows(test).groups) == set(training.groups[test])


def test_times_are_numbers_where_they_can_be(file):
    training = read_training(file, **TABLE, order="day")
    assert training.schema.feature_names == ["a", "b"]
    last = -1.0
    for _, test in training.splits(3, 0):
        assert training.order[test].min() > last
        last = training.order[test].max()


def test_a_search_gets_groups_and_a_plain_fit_does_not_need_them(file):
    from mssl import MSSLRegressor, MSSLRegressorCV

    training = read_training(file, **TABLE, group="day")
    search = MSSLRegressorCV([1.0], [0.0], couplings=[1.0], shared_means=[False], cv=3)
    training.fit(search)
    with pytest.raises(Exception, match="groups to hold out"):
        training.fit_rows(search.set_params(cv=13))
    training.fit(MSSLRegressor())


def test_what_does_not_go_together_is_said(file, tmp_path):
    import click

    with pytest.raises(click.UsageError, match="--time says already"):
        read_training(file, **TABLE | {"time": "day"}, group="day")
    assert read_training(file, **TABLE | {"time": "day"}, order="day").order.tolist() == list(range(12))
    with pytest.raises(DataError, match="no column 'date'"):
        read_training(file, **TABLE, group="date")


@pytest.mark.parametrize("repeated", ["north", "both"])
def test_one_time_twice_is_no_time(file, tmp_path, repeated):
    """Rows of one time are one occasion: a time that stands twice in a task, or twice in all of them, is refused."""
    rows = [
        line for site in ("north", "south") for line in [f"{site},{day},1.{day},2.{day},3.{day}" for day in range(6)]
    ]
    rows += [f"{site},5,1,2,3" for site in ("north", "south") if repeated in (site, "both")]
    twice = tmp_path / "twice.csv"
    twice.write_text("\n".join(["site,day,a,b,y", *rows]))
    with pytest.raises(DataError, match="twice"):
        read_training(str(twice), **TABLE | {"time": "day"})
