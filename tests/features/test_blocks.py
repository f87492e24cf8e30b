"""Blocks side by side: order, nesting, layouts of tables, saving."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import mssl
from mssl.exceptions import DataError, ParameterError
from mssl.features import FeatureBlocks, Interactions, Linear, Spline
from mssl.features.maps import WORDS


@pytest.fixture
def X(rng):
    return np.column_stack([rng.normal(size=90), rng.integers(0, 2, 90), rng.integers(0, 5, 90), rng.uniform(size=90)])


@pytest.mark.parametrize("maps", [*WORDS, [Spline(degree=3), Linear()], [Spline()]])
def test_the_columns_come_first_and_blocks_follow(rng, X, maps):
    blocks = FeatureBlocks(maps).fit(X, rng.normal(size=90) + 3 * X[:, 0] * X[:, 3])
    F = blocks.transform(X)
    np.testing.assert_array_equal(F[:, :4], X)
    assert np.all(np.diff(blocks.blocks_) >= 0)
    assert F.shape[1] == len(blocks.blocks_) == len(blocks.column_of_) == len(blocks.get_feature_names_out())
    assert blocks.block_names_[0] == "linear"
    parts = np.column_stack([made.transform(X) for made in blocks.maps_])
    np.testing.assert_array_equal(F, parts)
    if maps == "spline+interactions":
        assert blocks.column_of_[-1] == -1
        assert blocks.get_feature_names_out()[-1] == "x0 × x3"


def test_rows_are_mapped_one_by_one(rng, X, monkeypatch):
    blocks = FeatureBlocks("spline").fit(X)
    whole = blocks.transform(X)
    monkeypatch.setattr("mssl.features.maps.CHUNK", 100)
    np.testing.assert_array_equal(blocks.transform(X), whole)
    order = rng.permutation(90)
    np.testing.assert_array_equal(blocks.transform(X[order]), whole[order])


def test_levels_of_tasks_are_no_interactions(rng):
    task = np.repeat([0, 1, 2, 3], 100)
    X = rng.normal(size=(400, 6)) + 3.0 * np.asarray([-1, 1, -1, 1])[task, None]
    y = 10.0 * np.asarray([1, 1, -1, -1])[task] + rng.normal(size=400)
    blocks = FeatureBlocks([Linear(), Interactions()])
    assert len(clone(blocks).fit(X, y, task_of_row=task).column_of_) <= 7
    assert len(clone(blocks).fit(X, y + 4 * X[:, 0] * X[:, 1], task_of_row=task).column_of_) > 6


def test_frames_and_arrays_agree(X):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    names = ["a", "b", "c", "d"]
    plain = FeatureBlocks().fit(X).transform(X)
    for frame in (pandas.DataFrame(X, columns=names), polars.DataFrame(X, schema=names)):
        blocks = FeatureBlocks().fit(frame)
        np.testing.assert_array_equal(blocks.transform(frame), plain)
        assert blocks.get_feature_names_out()[4] == "a: spline 1"


def test_sparse_columns_are_linear_only(X):
    thin = sparse.csr_array(X)
    linear = FeatureBlocks("linear").fit(thin)
    assert sparse.issparse(linear.transform(thin))
    with pytest.raises(DataError, match="linear"):
        FeatureBlocks("spline").fit(thin)
    with pytest.raises(DataError, match="dense"):
        FeatureBlocks("spline").fit(X).transform(thin)


def test_clone_save_load(rng, X, tmp_path):
    blocks = FeatureBlocks("spline+interactions").fit(X, 5 * X[:, 0] * X[:, 1] + rng.normal(size=90))
    again = mssl.load(mssl.save(blocks, tmp_path / "blocks.npz"))
    np.testing.assert_array_equal(again.transform(X), blocks.transform(X))
    assert again.get_feature_names_out().tolist() == blocks.get_feature_names_out().tolist()
    assert not hasattr(clone(blocks), "maps_")


@pytest.mark.parametrize("wrong", ["cubic", [], [3], 7])
def test_what_is_refused(X, wrong):
    with pytest.raises(ParameterError, match="features"):
        FeatureBlocks(wrong).fit(X)
