"""Moments: sums over rows, whatever the layout, the cells and the reference."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mssl.data.design import Design
from mssl.data.layouts import read_tasks
from mssl.data.moments import Moments, Reference, cells_of


def tasks_of(seed, layout, weighted, n=12, K=3, d=2):
    rng = np.random.default_rng(seed)
    X = 50.0 + rng.standard_normal((n, d) if layout == "shared" else (n, K, d)) * [1.0, 100.0]
    y = -30.0 + rng.standard_normal((n, K))
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    return read_tasks(X, y, sample_weight=weights)


def reference_of(data, centred=True, unit=2.0):
    design = Design.build(data.X, None if data.shared else data.offsets, data.n_tasks, data.weights)
    return Reference.of(data, design, unit, centred=centred)


def by_hand(data, reference, mask):
    """The sums of each task, row by row."""
    sums = []
    for k in range(data.n_tasks):
        rows = np.flatnonzero(mask & (data.task_of_row == k))
        X = data.X[rows - data.offsets[k]] if data.shared else data.X[rows]
        u = (X - reference.centres[k]) / reference.scales
        v = (data.y[rows] - reference.target_centres[k]) / reference.target_scale
        c = np.ones(len(rows)) if data.weights is None else data.weights[rows]
        sums.append((c.sum(), c @ u, c @ v, (c[:, None] * u).T @ u, (c * v) @ u, c @ v**2))
    return Moments(*map(np.stack, zip(*sums, strict=True)))


def close(ours, theirs):
    for field in fields(Moments):
        a, b = getattr(ours, field.name), getattr(theirs, field.name)
        np.testing.assert_allclose(a, b[: len(a)], rtol=1e-9, atol=1e-8, err_msg=field.name)


@pytest.mark.parametrize("layout", ["shared", "aligned"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_moments_are_the_sums_over_rows(layout, weighted, centred):
    data = tasks_of(0, layout, weighted)
    reference = reference_of(data, centred)
    moments = Moments.of(data, reference)
    close(moments, by_hand(data, reference, np.ones(len(data.y), dtype=bool)))
    assert len(moments.xx) == (1 if layout == "shared" else 3)
    if centred:
        np.testing.assert_allclose([moments.x.ravel().max(), moments.y.max()], 0.0, atol=1e-8)


@given(st.integers(0, 10**6), st.sampled_from(["shared", "aligned"]), st.booleans(), st.integers(1, 5))
def test_the_cells_add_up(seed, layout, weighted, n_cells):
    data = tasks_of(seed, layout, weighted)
    rng = np.random.default_rng(seed)
    reference = reference_of(data)
    filled = rng.choice(n_cells, (n_cells + 1) // 2, replace=False)
    cell = np.tile(rng.choice(filled, 12), 3)  # the other cells are empty
    cells = Moments.by_cell(data, reference, cell, n_cells)
    some = rng.random(n_cells) < 0.5
    close(cells.gather(some), by_hand(data, reference, some[cell]))
    close(cells.gather(some) + cells.gather(~some), Moments.of(data, reference))


def test_many_rows_are_read_in_blocks_of_tasks(monkeypatch):
    data = tasks_of(0, "aligned", True)
    reference = reference_of(data)
    whole = Moments.of(data, reference)
    for size in (1, 12, 25):
        monkeypatch.setattr("mssl.data.moments._ROWS_AT_ONCE", size)
        close(Moments.of(data, reference), whole)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(3, 20))
def test_cells_make_up_every_part_and_no_split_tears_them_apart(seed, n_splits, n):
    rng = np.random.default_rng(seed)
    splits = []
    for _ in range(n_splits):
        side = rng.integers(0, 4, n)  # neither part, one of them, or both
        splits.append((np.flatnonzero(side % 2), np.flatnonzero(side // 2)))
    cell, train, test = cells_of(splits, n)
    assert sorted(set(cell)) == list(range(train.shape[1]))
    for (train_rows, test_rows), train_cells, test_cells in zip(splits, train, test, strict=True):
        np.testing.assert_array_equal(np.flatnonzero(train_cells[cell]), train_rows)
        np.testing.assert_array_equal(np.flatnonzero(test_cells[cell]), test_rows)
