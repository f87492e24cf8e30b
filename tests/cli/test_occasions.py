"""Groups and times from the columns of a table."""

import numpy as np
import pytest
from command_line import call, rows_of

from mssl.cli._tables import TableOptions, read_training
from mssl.data.folds import Folds
from mssl.exceptions import DataError

pytest.importorskip("pyarrow")


def read(path, **options):
    return read_training(TableOptions(data=str(path), task="site", target="y", **options))


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
    training = read(file, group="day")
    assert training.schema.feature_names == ["a", "b"]
    data = rows_of(training)
    for train, test in Folds.from_cv(data, training.cv(3, 0)):
        assert not set(data.groups[train]) & set(data.groups[test])


def test_times_are_numbers_where_they_can_be(file):
    training = read(file, order="day")
    assert training.schema.feature_names == ["a", "b"]
    data, last = rows_of(training), -1.0
    for _, test in Folds.from_cv(data, training.cv(3, 0)):
        assert data.order[test].min() > last
        last = data.order[test].max()


def test_occasions_follow_each_other_in_time(file):
    """10 comes after 9: the folds of aligned rows are blocks of time."""
    rows = np.genfromtxt(file, delimiter=",", skip_header=1, usecols=(1, 2))[:12]
    north = read(file, time="day", order="day").given["X"][:, 0, 0]
    np.testing.assert_array_equal(north, rows[np.argsort(rows[:, 0]), 1])


def test_edges_are_read_once(file, tmp_path, monkeypatch):
    from mssl.files import tables

    edges, read_table, opened = tmp_path / "edges.csv", tables.read_table, []
    edges.write_text("from,to,note,weight\nnorth,south,x,2.5\n")
    monkeypatch.setattr(tables, "read_table", lambda path, **how: opened.append(str(path)) or read_table(path, **how))
    training = read_training(TableOptions(data=file, task="site", target="y"), str(edges))
    assert training.edges == [(0, 1, 2.5)]
    assert opened == [file, str(edges)]


def test_names_in_edges_keep_their_zeros(tmp_path):
    rows = [f"{site},{day}.5,{day}" for site in ("007", "7") for day in range(5)]
    (tmp_path / "data.csv").write_text("\n".join(["site,a,y", *rows]))
    (tmp_path / "edges.csv").write_text("from,to\n007,7\n")
    training = read_training(
        TableOptions(data=str(tmp_path / "data.csv"), task="site", target="y"), str(tmp_path / "edges.csv")
    )
    assert training.edges == [(0, 1, 1.0)]


@pytest.mark.parametrize(("options", "random"), [({"time": "day"}, True), ({"time": "day", "order": "day"}, False)])
def test_folds_of_occasions_follow_the_seed_unless_an_order_makes_them_blocks(file, options, random):
    """One rule for the search of ``fit`` (as many folds as for None) and for ``compare``."""
    training = read(file, **options)
    data = rows_of(training)
    for number in (None, 4):
        zero, same, other = (Folds.from_cv(data, training.cv(number, seed)).test for seed in (0, 0, 1))
        np.testing.assert_array_equal(zero, same)
        np.testing.assert_array_equal(zero, Folds.from_cv(data, number).test)
        assert np.array_equal(zero, other) is not random


@pytest.mark.parametrize("method", ["r-mssl", "p-mssl"])
def test_the_seed_of_a_fit_reaches_its_folds(file, monkeypatch, method):
    import mssl

    given = []

    def stop(search, template, data, splits):
        given.append(splits.test)
        raise DataError("the folds are known")

    monkeypatch.setattr(mssl.MSSLRegressorCV, "_check", stop)
    for seed in ("0", "1"):
        args = ("fit", file, "--task", "site", "--target", "y", "--time", "day", "--method", method, "--seed", seed)
        call(*args, code=1)
    assert not np.array_equal(*given)


def test_a_search_gets_groups_and_a_plain_fit_does_not_need_them(file):
    from mssl import MSSLRegressor, MSSLRegressorCV

    training = read(file, group="day")
    search = MSSLRegressorCV(
        param_grid={"graph_penalty": [1.0], "coef_penalty": [0.0], "prior_strength": [1.0], "shared_mean": [False]},
        cv=3,
    )
    training.fit(search)
    with pytest.raises(Exception, match="groups to hold out"):
        training.fit(search.set_params(cv=13))
    training.fit(MSSLRegressor())


def test_what_does_not_go_together_is_said(file, tmp_path):
    import click

    with pytest.raises(click.UsageError, match="--time already determines"):
        read(file, time="day", group="day")
    assert rows_of(read(file, time="day", order="day")).order.tolist() == [*range(12), *range(12)]
    with pytest.raises(DataError, match="no column 'date'"):
        read(file, group="date")


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
        read(twice, time="day")
