"""``mssl fit --dask``: folders of tables, read by workers, give the model of the one table."""

import json

import numpy as np
import pytest
from command_line import call

import mssl

pd = pytest.importorskip("pandas")
pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword", "ignore::ResourceWarning")
ARGS = ("--task", "site", "--target", "y", "--drop", "note", "--json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((600, 4)), columns=list("abcd"))
    frame["site"] = rng.integers(0, 3, 600)
    frame["y"] = frame[list("abcd")] @ [1.0, 2.0, 0.0, -1.0] + frame.site * frame.a + rng.standard_normal(600)
    frame["note"] = "text"
    frame.to_csv(folder / "all.csv", index=False)
    for kind in ("parquet", "csv"):
        (folder / kind).mkdir()
        for k in range(3):
            part, path = frame[k * 200 : (k + 1) * 200], folder / kind / f"{k}.{kind}"
            part.to_parquet(path, index=False) if kind == "parquet" else part.to_csv(path, index=False)
    (folder / "bad").mkdir()
    frame.assign(b="high").to_csv(folder / "bad" / "0.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def address():
    settings = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(host="127.0.0.1", protocol="tcp", **settings) as cluster:
        yield cluster.scheduler_address


def test_a_folder_gives_the_model_of_the_table(folder, address, tmp_path):
    fixed = ("--set", "graph_penalty=0.1", "--set", "tol=1e-10")
    call("fit", folder / "all.csv", *ARGS, *fixed, "--save", tmp_path / "one.npz")
    one = mssl.load(tmp_path / "one.npz")
    for data in (folder / "parquet", folder / "csv" / "*.csv"):
        told = json.loads(call("fit", data, *ARGS, *fixed, "--dask", address, "--save", tmp_path / "all.npz").stdout)
        assert (told["rows"], told["tasks"], told["features"]) == (600, 3, 4)
        model = mssl.load(tmp_path / "all.npz")
        np.testing.assert_allclose(model.coef_, one.coef_, atol=1e-7)
        assert model.tasks_.tolist() == one.tasks_.tolist()
        assert model.table_ == one.table_
    call("predict", tmp_path / "all.npz", folder / "all.csv", "-o", tmp_path / "predictions.csv")
    assert len(pd.read_csv(tmp_path / "predictions.csv")) == 600
    told = json.loads(call("fit", folder / "parquet", *ARGS, "--dask", address).stdout)
    assert told["gain_over_separate_models"] is not None
    assert "stability" in told["graph_choice"]


def said(*args, code=1):
    result = call("fit", *args, code=code)
    return f"{result.output} {result.exception}"


def test_what_cannot_be_read_on_workers_is_said(folder, address, tmp_path):
    for options, match in (
        (("--family", "poisson"), "--family poisson needs all rows in memory"),
        (("--missing", "drop"), "--missing needs all rows in memory"),
        (("--order", "a"), "--order needs all rows"),
        (("--report", tmp_path / "page.html"), "--report needs all rows"),
    ):
        assert match in said(folder / "csv", *ARGS, *options, "--dask", address, code=2)
    assert "names no file" in said(tmp_path, *ARGS, "--dask", address)
    assert "no column 'z'" in said(folder / "csv", *ARGS, "--features", "z", "--dask", address)
    assert "cannot be read as numbers" in said(folder / "bad", *ARGS, "--dask", address)
