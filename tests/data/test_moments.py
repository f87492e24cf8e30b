"""Moments: numbers, means and centred sums, whatever the layout, the cells, the chunks and their order."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mssl.data.layouts import read_tasks
from mssl.data.moments import _SUMS, Moments
from mssl.exceptions import DataError, LayoutError


def tasks_of(seed, layout, weighted, n=12, K=3, d=2):
    rng = np.random.default_rng(seed)
    X = 50.0 + rng.standard_normal((n, d) if layout == "shared" else (n, K, d)) * [1.0, 100.0]
    y = -30.0 + rng.standard_normal((n, K))
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    return read_tasks(X, y, sample_weight=weights)


def by_hand(data, mask, scales=1.0, unit=1.0):
    """Numbers, means and centred sums of each task, row by row."""
    sums = []
    for k in range(data.n_tasks):
        rows = np.flatnonzero(mask & (data.task_of_row == k))
        X = data.X[rows - data.offsets[k]] if data.shared else data.X[rows]
        u, v = X / scales, data.y[rows] / unit
        c = np.ones(len(rows)) if data.weights is None else data.weights[rows]
        if not len(rows):
            d = data.n_features
            sums.append((0.0, np.zeros(d), 0.0, np.zeros((d, d)), np.zeros(d), 0.0))
            continue
        mean, level = np.average(u, axis=0, weights=c), np.average(v, weights=c)
        u, v = u - mean, v - level
        sums.append((c.sum(), mean, level, (c[:, None] * u).T @ u, (c * v) @ u, c @ v**2))
    return Moments(*map(np.stack, zip(*sums, strict=True)), data.tasks)


def close(ours, theirs, rtol=1e-9):
    np.testing.assert_array_equal(ours.tasks, theirs.tasks)
    for name in _SUMS:
        a, b = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_allclose(a, b[: len(a)], rtol=rtol, atol=rtol * np.abs(b).max(initial=1.0), err_msg=name)


def everything(data, **units):
    return Moments.by_cell(data, np.zeros(len(data.y), dtype=np.intp), 1, **units).gather(np.ones(1, dtype=bool))


@pytest.mark.parametrize("layout", ["shared", "aligned"])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_are_the_sums_over_rows(layout, weighted):
    data = tasks_of(0, layout, weighted)
    whole = np.ones(len(data.y), dtype=bool)
    assert len(everything(data).xx) == (1 if layout == "shared" else 3)
    close(everything(data), by_hand(data, whole))
    scales = np.array([2.0, 50.0])
    close(everything(data, scales=scales, target_scale=4.0), by_hand(data, whole, scales, 4.0))


@given(st.integers(0, 10**6), st.sampled_from(["shared", "aligned"]), st.booleans(), st.integers(1, 5))
def test_the_cells_add_up(seed, layout, weighted, n_cells):
    data = tasks_of(seed, layout, weighted)
    rng = np.random.default_rng(seed)
    filled = rng.choice(n_cells, (n_cells + 1) // 2, replace=False)
    cell = np.tile(rng.choice(filled, 12), 3)  # the other cells are empty
    cells = Moments.by_cell(data, cell, n_cells)
    some = rng.random(n_cells) < 0.5
    ours, theirs = cells.gather(some), by_hand(data, some[cell])
    if ours.n.all():
        close(ours, theirs)
    close(cells.gather(some) + cells.gather(~some), everything(data))


def test_many_rows_are_read_in_blocks_of_tasks(monkeypatch):
    data = tasks_of(0, "aligned", True)
    whole = everything(data)
    for size in (1, 12, 25):
        monkeypatch.setattr("mssl.data.moments.CHUNK", size * data.n_features)
        close(everything(data), whole)


def long_rows(seed, n=60, d=3, K=4, mean=0.0):
    rng = np.random.default_rng(seed)
    X = mean + rng.standard_normal((n, d))
    tasks = rng.permutation(np.repeat(np.asarray(["a", "b", "c", "d"])[:K], -(-n // K))[:n])
    return X, mean + X @ rng.standard_normal(d) + rng.standard_normal(n), tasks, rng.integers(0, 3, n).astype(float)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 60), max_size=6))
def test_chunks_in_any_order_give_the_moments_of_all_rows(seed, cuts):
    rows = long_rows(seed)
    bounds = [0, *sorted(cuts), 60]  # some chunks are empty, some lack tasks, some weights are zero
    chunks = [tuple(part[a:b] for part in rows) for a, b in itertools.pairwise(bounds)]
    order = np.random.default_rng(seed).permutation(len(chunks))
    whole = Moments.from_rows(*rows)
    close(Moments.from_chunks(chunks), whole)
    close(Moments.from_chunks([chunks[i] for i in order]), whole)


def test_large_means_cost_no_digits():
    """Means a million times the spread: the sums in chunks differ from those in higher precision by 1e-9 at most."""
    X, y, tasks, _ = long_rows(1, n=20_000, mean=1e6)
    ours = Moments.from_chunks((X[i::7], y[i::7], tasks[i::7]) for i in range(7))
    for k, task in enumerate(ours.tasks):
        rows = tasks == task
        u, v = X[rows].astype(np.longdouble), y[rows].astype(np.longdouble)
        u, v = u - u.mean(axis=0), v - v.mean()
        size = np.sqrt(np.outer(np.diag(u.T @ u), np.diag(u.T @ u)))
        assert np.max(np.abs(ours.xx[k] - u.T @ u) / size) < 1e-9
        assert np.max(np.abs(ours.xy[k] - u.T @ v) / np.sqrt(np.diag(u.T @ u) * (v @ v))) < 1e-9
        assert abs(ours.yy[k] / (v @ v) - 1) < 1e-9


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([None, 2, 3]), st.sampled_from(["full", "constant", "dependent", "few"]))
def test_the_few_rows_have_the_same_moments(seed, n_folds, kind):
    X, y, tasks, weights = long_rows(seed, n=24 if kind == "few" else 120)
    if kind == "constant":
        X[:, 1] = 7.0
    if kind == "dependent":
        X[:, 1] = 2.0 * X[:, 0] - 1.0
    moments = Moments.from_rows(X, y, tasks, weights, n_folds=n_folds)
    data = moments.to_tasks()
    assert len(data.y) <= 5 * len(moments.tasks) * moments.n_folds
    fold = np.zeros(len(data.y), dtype=np.intp) if data.groups is None else data.groups
    again = Moments.by_cell(data, fold, moments.n_folds)
    filled = np.atleast_2d(moments.n) > 0
    for name in _SUMS:
        ours, theirs = getattr(again, name), getattr(moments, name).reshape(getattr(again, name).shape)
        np.testing.assert_allclose(ours[filled], theirs[filled], rtol=1e-9, atol=1e-9 * np.abs(theirs).max())


def test_folds_are_balanced_within_tasks_and_add_up():
    X, y, tasks, _ = long_rows(0, n=200)
    folds = Moments.from_chunks(((X[i::3], y[i::3], tasks[i::3]) for i in range(3)), n_folds=5)
    assert folds.n.shape == (5, 4)
    assert np.ptp(folds.n, axis=0).max() <= 3  # by one in each chunk
    close(folds.gather(np.ones(5, dtype=bool)), Moments.from_rows(X, y, tasks))
    again = Moments.from_chunks(((X[i::3], y[i::3], tasks[i::3]) for i in range(3)), n_folds=5)
    np.testing.assert_array_equal(folds.xy, again.xy)


def test_frames_keep_their_names_and_their_order():
    pd = pytest.importorskip("pandas")
    X, y, tasks, _ = long_rows(0)
    frame = pd.DataFrame(X, columns=["u", "v", "w"]).assign(site=tasks, y=y)
    made = Moments.from_chunks([frame[:20], frame[20:20], frame[20:]], target="y", task_column="site")
    assert made.columns == ("u", "v", "w", "site")
    assert made.feature_names.tolist() == ["u", "v", "w"]
    close(made, Moments.from_rows(X, y, tasks))
    mixed = frame.assign(u=np.round(frame.u)).astype({"u": int})
    close(
        Moments.from_chunks([mixed[:20], mixed[20:].astype({"u": np.float32})], target="y", task_column="site"),
        Moments.from_chunks([mixed], target="y", task_column="site"),
    )


def test_bad_chunks_are_named():
    pd = pytest.importorskip("pandas")
    X, y, tasks, _ = long_rows(0)
    frame = pd.DataFrame(X, columns=["u", "v", "w"]).assign(site=tasks, y=y)

    def read(*chunks, **settings):
        return Moments.from_chunks(chunks, target="y", task_column="site", **settings)

    with pytest.raises(DataError, match=r"columns are 'u', 'v', 'w', 'site' in one chunk and 'u', 'v', 'z'"):
        read(frame, frame.rename(columns={"w": "z"}))
    with pytest.raises(DataError, match="the same columns in the same order"):
        read(frame, frame[["v", "u", "w", "site", "y"]])
    with pytest.raises(DataError, match=r"Chunk 1 has no column 'y'"):
        read(frame, frame.drop(columns="y"))
    with pytest.raises(DataError, match=r"Chunk 1: .*'w' hold text"):
        read(frame, frame.assign(w="tall"))
    with pytest.raises(DataError, match=r"Chunk 1: Input X contains NaN .*'v'"):
        read(frame, frame.assign(v=np.nan))
    with pytest.raises(DataError, match=r"named 'a' in one chunk and 1 in another"):
        read(frame, frame.assign(site=1))
    with pytest.raises(DataError, match="no row in any chunk"):
        read(frame[:0], frame[:0])
    with pytest.raises(DataError, match="no chunks at all"):
        read()
    with pytest.raises(DataError, match=r"4 tasks with 3 features in 2 folds .*memory_limit"):
        read(frame, n_folds=2, memory_limit=100)
    with pytest.raises(LayoutError, match="Chunk 0 is DataFrame"):
        Moments.from_chunks([frame])
    with pytest.raises(LayoutError, match="Chunk 0: The rows have the shared layout"):
        Moments.from_chunks([(X, np.column_stack([y, y]))])
    with pytest.raises(DataError, match="beyond what doubles hold"):
        Moments.from_rows(1e200 * X, y, tasks)
    with pytest.raises(DataError, match="1 folds in one part, 2 in the other"):
        Moments.from_rows(X, y, tasks) + Moments.from_rows(X, y, tasks, n_folds=2)


def test_moments_add_to_moments_only():
    made = Moments.from_rows(*long_rows(0)[:3])
    with pytest.raises(TypeError):
        made + 1
    assert replace(made).n_tasks == 4
