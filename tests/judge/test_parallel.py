"""Workers of any kind give the same answer; progress is quiet unless there is someone to see it."""

import io
import sys

import joblib
import numpy as np
import pytest

from mssl import MSSLRegressorCV, StabilitySelection
from mssl._progress import Progress
from mssl.datasets import make_clustered_tasks
from mssl.judge.parallel import Workers


@pytest.fixture(scope="module")
def data():
    return make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], n_features=6, n_samples=20, random_state=0)


def _fits(data, n_jobs):
    search = MSSLRegressorCV(
        param_grid={"graph_penalty": [0.5, 0.1], "coef_penalty": [0.0, 2.0], "prior_strength": [1.0]},
        cv=3,
        n_jobs=n_jobs,
    )
    search.fit(data.X, data.y, tasks=data.tasks)
    stable = StabilitySelection(n_subsamples=30, n_points=4, random_state=0, n_jobs=n_jobs)
    stable.fit(data.X, data.y, tasks=data.tasks)
    return search.cv_results_["mean_test_score"], search.coef_, stable.frequencies_


@pytest.fixture(scope="module")
def alone(data):
    return _fits(data, None)


def _same(first, second):
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.filterwarnings("default")  # of the workers' own libraries
@pytest.mark.parametrize("backend", ["threading", "loky", "multiprocessing"])
def test_two_workers_give_what_one_gives(data, alone, backend):
    with joblib.parallel_config(backend=backend):
        _same(alone, _fits(data, 2))


@pytest.mark.filterwarnings("default")
def test_dask_workers_give_what_one_gives(data, alone):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(2, processes=True, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        _same(alone, _fits(data, -1))


def test_results_are_keyed_by_name_and_errors_come_through():
    assert Workers().run(divmod, "", [("b", (7, 2)), ("a", (9, 4))]) == {"b": (3, 1), "a": (2, 1)}
    assert Workers().run(divmod, "", []) == {}
    with pytest.raises(ZeroDivisionError):
        Workers().run(divmod, "", [("a", (1, 0))])


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_shows_on_a_terminal_only(monkeypatch):
    for stream, verbose, shown in ((io.StringIO(), 1, False), (_Terminal(), 0, False), (_Terminal(), 1, True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress(verbose, "search", 2) as progress:
            progress.stage("first", 3)
            progress.advance()
            progress.stage("second", 1)
            progress.advance()
        assert ("search" in stream.getvalue()) == shown
        assert ("second" in stream.getvalue()) == shown


def test_a_quiet_search_prints_nothing(data, capfd):
    MSSLRegressorCV(
        param_grid={"graph_penalty": [0.5], "coef_penalty": [0.0], "prior_strength": [1.0]}, cv=2, verbose=1
    ).fit(data.X, data.y, tasks=data.tasks)
    assert capfd.readouterr() == ("", "")  # nothing is compiled, so that nothing is said of it
