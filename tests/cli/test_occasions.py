"""Groups and times from the columns of a table."""

import numpy as np
import pytest
from command_line import rows_of

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
