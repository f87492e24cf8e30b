"""Dask collections: every way to hand over the same rows gives the same moments and the same fit."""

import os
import signal

import numpy as np
import pytest
from sklearn.base import clone

from mssl import (
    BayesianMSSLRegressor,
    Moments,
    MSSLClassifier,
    MSSLClassifierCV,
    MSSLRegressor,
    MSSLRegressorCV,
    MultiTaskGLM,
)
from mssl.data.inputs import in_memory
from mssl.exceptions import DataError, LayoutError, ParameterError
from mssl.structures import TaskCovariance

pd = pytest.importorskip("pandas")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, in Dask's own code
TIGHT = {"tol": 1e-12, "max_iter": 1000}
COLUMNS = ["a", "b", "c"]


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 3000
    made = pd.DataFrame(10.0 + rng.standard_normal((n, 3)), columns=COLUMNS)
    made["site"] = rng.choice(["x", "y", "z"], n)
    made["y"] = made[COLUMNS] @ rng.standard_normal(3) + (made.site == "x") * made.a + rng.standard_normal(n)
    made["weight"] = rng.integers(0, 3, n).astype(float)
    return made


@pytest.fixture(scope="module")
def rows(frame):
    return frame[COLUMNS].to_numpy(), frame.y.to_numpy(), frame.site.to_numpy()


def close(ours, theirs):
    for name in ("n", "means", "target_means", "xx", "xy", "yy"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-8, err_msg=name)


def test_every_way_in_gives_the_same_fit(frame, rows, tmp_path):
    X, y, tasks = rows
    model = MSSLRegressor(0.1, **TIGHT).fit(X, y, tasks=tasks)
    collection = dd.from_pandas(frame.drop(columns="weight"), npartitions=7)
    coded = dd.from_pandas(pd.Series(pd.factorize(frame.site, sort=True)[0]), npartitions=7)
    for kind in ("parquet", "csv"):
        for k, start in enumerate(range(0, 3000, 1100)):
            part = frame.drop(columns="weight")[start : start + 1100]
            path = tmp_path / f"{k}.{kind}"
            part.to_parquet(path, index=False) if kind == "parquet" else part.to_csv(path, index=False)
    ways = {
        "frame": Moments.from_dask(collection, target="y", task_column="site"),
        "series": Moments.from_dask(collection[COLUMNS], collection.y, collection.site),
        "array": Moments.from_dask(*(da.from_array(part, chunks=501) for part in rows)),
        "array and vectors": Moments.from_dask(da.from_array(X, chunks=(400, 2)), y, tasks),
        "unknown blocks": Moments.from_dask(collection[COLUMNS].values, collection.y.values, coded.values),
        "chunks": Moments.from_chunks((X[i::4], y[i::4], tasks[i::4]) for i in range(4)),
        "parquet": Moments.from_dask(dd.read_parquet(str(tmp_path / "*.parquet")), target="y", task_column="site"),
        "csv": Moments.from_dask(dd.read_csv(str(tmp_path / "*.csv")), target="y", task_column="site"),
    }
    for name, moments in ways.items():
        close(moments, Moments.from_rows(X, y, tasks))
        fitted = MSSLRegressor(0.1, **TIGHT).fit_moments(moments)
        np.testing.assert_allclose(fitted.coef_, model.coef_, atol=1e-8, err_msg=name)
    weighted = dd.from_pandas(frame, npartitions=3)
    made = Moments.from_dask(weighted[[*COLUMNS, "site"]], weighted.y, None, weighted.weight, task_column="site")
    close(made, Moments.from_rows(X, y, tasks, frame.weight.to_numpy()))


def test_a_million_rows_give_the_fit_of_the_rows_in_memory():
    rng = np.random.default_rng(1)
    X, tasks = 1e3 + rng.standard_normal((1_000_000, 5)), rng.integers(0, 20, 1_000_000)
    y = np.einsum("nd,nd->n", X, rng.standard_normal((20, 5))[tasks]) + rng.standard_normal(len(X))
    given = [da.from_array(part, chunks=(70_000, *part.shape[1:])) for part in (X, y, tasks)]
    ours = MSSLRegressor(0.1, **TIGHT).fit(*given[:2], tasks=given[2])
    theirs = MSSLRegressor(0.1, **TIGHT).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.precision_, theirs.precision_, rtol=1e-6, atol=1e-9)


@pytest.mark.filterwarnings("default")  # of Dask's own processes
def test_a_killed_worker_changes_nothing(frame, tmp_path):
    distributed = pytest.importorskip("distributed")
    done = tmp_path / "killed"

    def die_once(part, partition_info=None):
        """The fourth partition kills the worker that reads it first."""
        if partition_info is not None and partition_info["number"] == 3 and not done.exists():
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    collection = dd.from_pandas(frame.drop(columns="weight"), npartitions=8)
    plain = Moments.from_dask(collection, target="y", task_column="site")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with (
        distributed.LocalCluster(host="127.0.0.1", processes=True, **settings) as cluster,
        distributed.Client(cluster),
        dask.config.set(scheduler="distributed"),
    ):
        risky = collection.map_partitions(die_once, meta=collection._meta)
        moments = Moments.from_dask(risky, target="y", task_column="site")
        assert done.exists()
    for name in ("n", "means", "target_means", "xx", "xy", "yy"):
        np.testing.assert_array_equal(getattr(moments, name), getattr(plain, name))


def test_estimators_take_collections(frame, rows):
    X, y, tasks = rows
    collection = dd.from_pandas(frame.drop(columns="weight"), npartitions=5)
    given = collection.drop(columns="y"), collection.y
    ours = MSSLRegressor(0.1, task_column="site", **TIGHT).fit(*given)
    np.testing.assert_allclose(ours.coef_, MSSLRegressor(0.1, **TIGHT).fit(X, y, tasks=tasks).coef_, atol=1e-8)
    assert ours.feature_names_in_.tolist() == COLUMNS
    plain = {"features": "linear", "residual_covariance": "independent", "calibrate": False}
    bayesian = BayesianMSSLRegressor("mean", task_column="site", **plain).fit(*given)
    by_rows = BayesianMSSLRegressor("mean", **plain).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(bayesian.coef_, by_rows.coef_, atol=1e-6)
    search = MSSLRegressorCV(MSSLRegressor(task_column="site"), cv=3).fit(*given)
    assert search.n_splits_ == 3
    np.testing.assert_allclose(search.coef_, ours.coef_, atol=0.05)
    model = MSSLRegressor(0.1, **TIGHT).partial_fit(X[:9], y[:9], tasks[:9])
    model.partial_fit(*(da.from_array(part[9:], chunks=500) for part in rows))
    np.testing.assert_allclose(model.coef_, ours.coef_, atol=1e-8)


def test_predictions_stay_lazy(frame, rows):
    X, y, tasks = rows
    collection = dd.from_pandas(frame.drop(columns=["weight", "y"]), npartitions=5)
    model = MSSLRegressor(task_column="site").fit(frame[[*COLUMNS, "site"]], y)
    lazy = model.predict(collection)
    assert hasattr(lazy, "__dask_graph__")
    np.testing.assert_allclose(lazy.compute(), model.predict(frame[[*COLUMNS, "site"]]))
    assert lazy.compute().index.equals(frame.index)
    few = collection[collection.a > 13.0]  # some partitions are empty
    assert len(few.partitions[0]) < 3
    assert len(model.predict(few).compute()) == int((frame.a > 13.0).sum())
    plain = MSSLRegressor().fit(X, y, tasks=tasks)
    by_array = plain.predict(da.from_array(X, chunks=(700, 2)), tasks=tasks)
    np.testing.assert_allclose(by_array.compute(), plain.predict(X, tasks))
    plain.fit(frame[COLUMNS], y, tasks=tasks)
    by_series = plain.predict(collection[COLUMNS], tasks=collection.site)
    np.testing.assert_allclose(by_series.compute(), plain.predict(frame[COLUMNS], tasks))


def test_partitions_that_differ_fit_or_say_so(frame):
    parts = [frame[:1000], frame[1000:1000], frame[frame.site == "x"], frame[2000:].assign(site="only here")]
    made = Moments.from_dask(dd.from_map(lambda part: part, parts), target="y", task_column="site")
    close(made, Moments.from_chunks(parts, target="y", task_column="site"))
    assert "only here" in made.tasks
    ints = [frame.assign(a=1)[:100], frame[100:]]
    close(
        Moments.from_dask(dd.from_map(lambda part: part, ints), target="y", task_column="site"),
        Moments.from_chunks(ints, target="y", task_column="site"),
    )
    for change, match in (
        (lambda part: part.rename(columns={"a": "z"}), "'a', 'b', 'c'"),
        (lambda part: part.assign(a="text"), r"Chunk 1: .*'a' hold text"),
        (lambda part: part.assign(b=np.nan), r"Chunk 1: .*'b'"),
    ):
        bad = [frame[:1000], change(frame[1000:])]
        lazy = Moments.from_dask(
            dd.from_map(lambda part: part, bad, meta=frame[:0], enforce_metadata=False),
            target="y",
            task_column="site",
            compute=False,
        )
        with pytest.raises(DataError, match=match):
            lazy.compute()


@pytest.mark.parametrize(
    "model",
    [MSSLRegressor(0.1, loss="poisson"), MSSLClassifier(0.1), MultiTaskGLM(TaskCovariance(), loss="poisson")],
    ids=lambda model: repr(model)[:40],
)
def test_other_losses_need_the_rows(model, frame, rows):
    """Small arrays are pulled in and give the fit of the rows; frames are refused, and told what to do."""
    X, y, tasks = rows
    counts = np.where(y > y.mean(), 1.0, 0.0)
    with pytest.warns(UserWarning, match="pulled into memory"):
        ours = clone(model).fit(*(da.from_array(part, chunks=700) for part in (X, counts)), tasks=tasks)
    np.testing.assert_array_equal(ours.coef_, clone(model).fit(X, counts, tasks=tasks).coef_)
    collection = dd.from_pandas(frame, npartitions=4)
    with pytest.raises(DataError, match=r"unknown size.*\.compute\(\).*labels and counts need them in every step"):
        clone(model).set_params(task_column="site").fit(collection[[*COLUMNS, "site"]], collection.y > 0)


def test_what_is_needed_in_memory_says_so_or_is_refused(frame, rows, monkeypatch):
    X, y, tasks = (da.from_array(part, chunks=1000) for part in rows)
    counts = abs(rows[1]).round()
    search = MSSLRegressorCV(
        MSSLRegressor(loss="poisson"), {"graph_penalty": [0.1], "coef_penalty": [0.0], "prior_strength": [1.0]}, cv=2
    )
    with pytest.warns(UserWarning, match="pulled into memory"):
        ours = search.fit(X, counts, tasks=rows[2]).coef_
    np.testing.assert_allclose(ours, search.fit(rows[0], counts, tasks=rows[2]).coef_)
    monkeypatch.setattr("mssl.data.inputs.LARGEST_PULLED", 1000)
    with pytest.raises(DataError, match=r"X is a Dask collection of 0.0687 MiB.*\.compute\(\)"):
        search.fit(X, counts, tasks=rows[2])
    with pytest.raises(DataError, match="y is a Dask collection"):
        MSSLRegressor().fit(rows[0], y, tasks=rows[2])
    with pytest.raises(DataError, match="Dask collection of unknown size"):
        MSSLClassifierCV(MSSLClassifier(task_column="site")).fit(dd.from_pandas(frame, npartitions=2), frame.y > 0)
    with pytest.raises(ParameterError, match="features is 'spline'"):
        MSSLRegressor(features="spline").fit(X, y, tasks=tasks)
    assert in_memory("X", 3) == 3


def test_partitions_must_belong_together(frame, rows):
    collection = dd.from_pandas(frame, npartitions=4)
    with pytest.raises(LayoutError, match="y comes as ndarray beside a Dask frame of 4 partitions"):
        Moments.from_dask(collection[COLUMNS], rows[1], collection.site)
    with pytest.raises(LayoutError, match="tasks comes as 2 partitions"):
        Moments.from_dask(collection[COLUMNS], collection.y, dd.from_pandas(frame.site, npartitions=2))
    with pytest.raises(LayoutError, match="y has 10 entries for 3000 rows"):
        Moments.from_dask(da.from_array(rows[0]), rows[1][:10], rows[2])
    with pytest.raises(LayoutError, match="blocks of unknown size"):
        Moments.from_dask(collection[COLUMNS].values, da.from_array(rows[1], chunks=-1), rows[2])
    with pytest.raises(LayoutError, match="long layout"):
        Moments.from_dask(da.from_array(rows[1]), rows[1])
    with pytest.raises(DataError, match="twice or not at all"):
        Moments.from_dask(collection)
    with pytest.raises(ParameterError, match="target is 'z'"):
        Moments.from_dask(collection, target="z")
