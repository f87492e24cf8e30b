"""Splits within every task: partition, balance, order of time, and stated errors."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.model_selection import GroupKFold, KFold, TimeSeriesSplit, cross_val_score

from mssl import MSSLClassifierCV, MSSLRegressor, MSSLRegressorCV, MultiTaskClassifier
from mssl.data.folds import Folds, read_splits
from mssl.data.layouts import read_tasks
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import DataError, LayoutError, ParameterError
from mssl.judge.compare import compare_methods
from mssl.model_selection import MovingWindowSplit, TaskBlockKFold, TaskGroupKFold, TaskKFold, TaskTimeSeriesSplit


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 23), min_size=1, max_size=6),
    folds=st.integers(2, 5),
    seed=st.integers(0, 10),
    shuffle=st.booleans(),
)
def test_folds_are_a_balanced_partition_within_every_task(sizes, folds, seed, shuffle):
    tasks = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    if folds > max(sizes):
        with pytest.raises(ParameterError, match="largest task"):
            list(TaskKFold(folds).split(tasks, groups=tasks))
        return
    splits = list(TaskKFold(folds, shuffle=shuffle, random_state=seed).split(tasks, groups=tasks))
    assert len(splits) == folds
    tests = np.concatenate([test for _, test in splits])
    assert np.array_equal(np.sort(tests), np.arange(len(tasks)))
    lengths = [len(test) for _, test in splits]
    assert max(lengths) - min(lengths) <= 1
    for train, test in splits:
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(tasks)))
        assert set(tasks[train]) == set(tasks)
        counts = np.bincount(tasks[test], minlength=len(sizes))
        for size, count in zip(sizes, counts, strict=True):
            assert size // folds <= count <= -(-size // folds)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), shared=st.booleans(), grouped=st.booleans(), folds=st.integers(2, 5))
def test_folds_do_not_look_at_labels(seed, shared, grouped, folds):
    random = np.random.default_rng(seed)
    tasks = np.zeros(60, dtype=int) if shared else np.repeat([0, 1, 2], [14, 21, 25])
    y = (random.random((60, 3) if shared else 60) < 0.5).astype(int)
    order = np.lexsort((random.random(60), tasks))  # permutes labels within every task
    group = np.arange(60) % 20 if grouped else None
    cuts = [
        [test.tolist() for _, test in read_splits(folds, np.zeros((60, 1)), labels, tasks, group)]
        for labels in (np.full(60, "a"), y, y[order], random.normal(size=60))
    ]
    assert cuts[1] == cuts[0] == cuts[2] == cuts[3]


def test_held_out_shares_do_not_follow_those_of_training_rows():
    """Labels of one share: with plain chance held-out rows of a task say nothing of its training rows."""
    random, products = np.random.default_rng(0), []
    tasks = np.repeat(np.arange(40), 15)
    for seed in range(40):
        y = (random.random(600) < 0.4).astype(float)
        for train, test in TaskKFold(5, random_state=seed).split(tasks, y, tasks):
            shares = [np.bincount(tasks[rows], y[rows]) / np.bincount(tasks[rows]) - 0.4 for rows in (train, test)]
            products.append(np.mean(shares[0] * shares[1]))
    # Each product has the standard deviation .4 · .6 / √(12 · 3); stratified folds give them a mean of 5 such errors.
    assert abs(np.mean(products)) < 3 * np.std(products) / np.sqrt(len(products))


@settings(max_examples=100, deadline=None)
@given(
    positives=st.lists(st.integers(0, 2), min_size=2, max_size=6),
    size=st.integers(3, 31),
    folds=st.integers(2, 5),
    seed=st.integers(0, 5),
)
def test_no_training_part_misses_a_rare_class(positives, size, folds, seed):
    assume(sum(positives) >= 2)
    assume(folds <= size)
    tasks = np.repeat(np.arange(len(positives)), size)
    y = np.concatenate([np.arange(size) < count for count in positives]).astype(int)
    for train, test in TaskKFold(folds, random_state=seed).split(tasks, y, tasks):
        assert set(y[train]) == {0, 1}
        counts = np.bincount(tasks[test], minlength=len(positives))
        assert np.all((counts >= size // folds) & (counts <= -(-size // folds)))


def test_seed_decides_the_folds():
    tasks = np.repeat([0, 1], 10)
    same = [[test.tolist() for _, test in TaskKFold(5, random_state=3).split(tasks, groups=tasks)] for _ in range(2)]
    other = [test.tolist() for _, test in TaskKFold(5, random_state=4).split(tasks, groups=tasks)]
    assert same[0] == same[1] != other


def test_task_column_by_number_name_and_in_sparse_features():
    pd = pytest.importorskip("pandas")
    tasks = np.tile([3.0, 5.0], 6)
    X = np.column_stack([np.arange(12.0), tasks])
    expected = [test.tolist() for _, test in TaskKFold(3).split(X, groups=tasks)]
    forms = [(X, 1), (X, -1), (X.tolist(), 1), (sparse.csr_array(X), 1), (pd.DataFrame(X, columns=["a", "t"]), "t")]
    for features, column in forms:
        splitter = TaskKFold(3, task_column=column)
        assert [test.tolist() for _, test in splitter.split(features)] == expected
    with pytest.raises(LayoutError, match="columns"):
        list(TaskKFold(3, task_column="x").split(pd.DataFrame(X, columns=["a", "t"])))
    with pytest.raises(LayoutError, match="give the column's number"):
        list(TaskKFold(3, task_column=7).split(X))


def test_works_as_cv_of_scikit_learn():
    data = make_clustered_tasks(n_tasks=3, n_features=4, n_samples=12, clusters=[[0, 1]], random_state=0)
    X = np.column_stack([np.unique(data.tasks, return_inverse=True)[1], data.X])
    scores = cross_val_score(MSSLRegressor(task_column=0), X, data.y, cv=TaskKFold(3, task_column=0))
    assert scores.shape == (3,)
    assert np.all(np.isfinite(scores))


@pytest.mark.parametrize(("n_splits", "gap"), [(3, 0), (4, 2)])
def test_time_series_of_one_task_is_scikit_learns(n_splits, gap):
    X = np.zeros((31, 2))
    ours = list(TaskTimeSeriesSplit(n_splits, gap=gap).split(X))
    theirs = list(TimeSeriesSplit(n_splits, gap=gap).split(X))
    for (train, test), (their_train, their_test) in zip(ours, theirs, strict=True):
        assert np.array_equal(train, their_train)
        assert np.array_equal(test, their_test)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(5, 20), min_size=1, max_size=4), n_splits=st.integers(1, 4), gap=st.integers(0, 1))
def test_time_never_runs_backwards(sizes, n_splits, gap):
    assume(min(sizes) - n_splits * (min(sizes) // (n_splits + 1)) > gap)  # fewer rows are refused, see below
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    clock = np.concatenate([np.arange(size) for size in sizes])
    for train, test in TaskTimeSeriesSplit(n_splits, gap=gap).split(tasks, groups=tasks):
        for task in range(len(sizes)):
            past, future = clock[train[tasks[train] == task]], clock[test[tasks[test] == task]]
            assert len(past)
            assert len(future)
            assert past.max() + gap < future.min()


def test_windows_move_through_time():
    splitter = MovingWindowSplit(4, 2, step=3, gap=1)
    X = np.zeros((14, 3, 2))
    windows = list(splitter.split(X, np.zeros((14, 3))))
    assert splitter.get_n_splits(X) == len(windows) == 3
    for number, (train, test) in enumerate(windows):
        assert train.tolist() == list(range(3 * number, 3 * number + 4))
        assert test.tolist() == [3 * number + 5, 3 * number + 6]
    long = list(splitter.split(np.zeros((28, 1)), groups=np.repeat([0, 1], 14)))
    assert long[1][0].tolist() == [3, 4, 5, 6, 17, 18, 19, 20]


@pytest.mark.parametrize(
    ("splitter", "error", "words"),
    [
        (TaskKFold(1), ParameterError, "whole number ≥ 2"),
        (TaskKFold(2.5), ParameterError, "whole number"),
        (TaskKFold(9), ParameterError, "largest task has 6 rows"),
        (MovingWindowSplit(0, 1), ParameterError, "n_train"),
        (MovingWindowSplit(1, 0), ParameterError, "n_test"),
        (MovingWindowSplit(5, 5), ParameterError, "shorter windows"),
        (MovingWindowSplit(2, 1, step=0), ParameterError, "step"),
        (MovingWindowSplit(2, 1, step=2.5), ParameterError, "step is 2.5"),
        (MovingWindowSplit(2, 1, gap="a"), ParameterError, "gap is 'a'"),
        (TaskTimeSeriesSplit(2, gap=1.5), ParameterError, "gap is 1.5"),
        (TaskTimeSeriesSplit(2, gap=-1), ParameterError, "gap is -1"),
        (TaskTimeSeriesSplit(0), ParameterError, "n_splits"),
        (TaskTimeSeriesSplit(6), ParameterError, "too few rows"),
        (TaskTimeSeriesSplit(2, gap=2), ParameterError, "gap"),
    ],
)
def test_impossible_splits_say_why(splitter, error, words):
    with pytest.raises(error, match=words):
        list(splitter.split(np.zeros((12, 1)), groups=np.repeat([0, 1], 6)))


@pytest.mark.parametrize("folds", [2, 5])
def test_one_row_a_task_is_said_to_be_too_few_whatever_the_number_of_folds(folds):
    with pytest.raises(DataError, match=r"one row only.*fit with penalties of your own choice"):
        list(TaskKFold(folds).split(np.zeros((3, 1)), groups=["a", "b", "c"]))


def test_a_single_row_of_a_task_is_never_held_out():
    for train, test in TaskKFold(2).split(np.zeros((4, 1)), groups=["a", "a", "a", "b"]):
        assert 3 in train
        assert len(train) + len(test) == 4


def test_tasks_that_cannot_be_split_are_named():
    with pytest.raises(LayoutError, match="between 2 and 4"):
        list(MovingWindowSplit(1, 1).split(np.zeros((6, 1)), groups=[0, 0, 1, 1, 1, 1]))
    with pytest.raises(LayoutError, match="one id per row"):
        list(TaskKFold(2).split(np.zeros((4, 1)), groups=[0, 1]))
    with pytest.raises(LayoutError, match="give one target per row"):
        list(TaskKFold(2).split(np.zeros((4, 1)), [0, 1], groups=[0, 0, 1, 1]))
    with pytest.raises(ParameterError, match="X is None"):
        MovingWindowSplit(1, 1).get_n_splits()


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=4))
def test_masks_are_the_rows_they_mark(masks):
    X, marks = np.zeros((7, 1)), np.asarray(masks)
    by_mask = read_splits([(~mask, mask.tolist()) for mask in marks], X, None, None)
    by_number = read_splits(iter([(np.flatnonzero(~mask), np.flatnonzero(mask)) for mask in marks]), X, None, None)
    for ours, theirs, mask in zip(by_mask, by_number, marks, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])
        np.testing.assert_array_equal(np.isin(np.arange(7), ours[1]), mask)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (np.ones(6, dtype=bool), r"mask of shape \(6,\); give one of shape \(7,\)"),
        ([0.0, 1.0], "float64"),
        (["0", "1"], "row numbers"),
        ([[0, 1]], r"shape \(1, 2\)"),
        ([0, 7], "from 0 to 7; give numbers from 0 to 6"),
        ([-1, 3], "from -1 to 3"),
    ],
)
def test_parts_that_are_no_rows_are_refused(part, words):
    for pair in ((part, [0, 1]), ([0, 1], part)):
        with pytest.raises(DataError, match=f"Fold 1 of cv.*{words}"):
            read_splits([([0, 1], [2]), pair], np.zeros((7, 1)), None, None)


@pytest.mark.parametrize("pair", [3, ([0, 1],), ([0], [1], [2])])
def test_splits_are_pairs(pair):
    with pytest.raises(DataError, match="Fold 0 of cv is not a pair"):
        read_splits([pair], np.zeros((7, 1)), None, None)


@pytest.mark.parametrize("cv", ["abc", 2.5, object])
def test_what_gives_no_splits_is_no_cv(cv):
    with pytest.raises(ParameterError, match="a number of folds, a splitter, or"):
        read_splits(cv, np.zeros((7, 1)), None, None)


def test_targets_beyond_all_integers_are_no_labels():
    tasks = np.repeat([0, 1], 6)
    y = np.random.default_rng(0).standard_normal(12)
    for unit in (1e150, 1e300):
        for (train, test), (same, again) in zip(
            TaskKFold(3).split(tasks, y, tasks), TaskKFold(3).split(tasks, unit * y, tasks), strict=True
        ):
            assert (train.tolist(), test.tolist()) == (same.tolist(), again.tolist())


SMALL = {"n_tasks": 5, "clusters": [[0, 1, 2]], "n_features": 6, "n_samples": 24}


def test_folds_that_lose_a_task_or_have_no_rows():
    data = make_clustered_tasks(**SMALL, random_state=1)
    order = np.argsort(data.tasks, kind="stable")
    X, y, tasks = data.X[order], data.y[order], data.tasks[order]
    with pytest.raises(DataError, match="Fold 0 of cv leaves no training rows of tasks 'task 1'"):
        MSSLRegressorCV(cv=KFold(5)).fit(X, y, tasks=tasks)
    with pytest.raises(DataError, match="0 test rows"):
        MSSLRegressorCV(cv=[(np.arange(len(y)), np.array([], dtype=int))]).fit(X, y, tasks=tasks)
    with pytest.raises(DataError, match="no splits"):
        MSSLRegressorCV(cv=[]).fit(X, y, tasks=tasks)
    with pytest.raises(DataError, match="from 1 to 120; give numbers from 0 to 119"):
        MSSLRegressorCV(cv=[(np.arange(1, 121), [0])]).fit(X, y, tasks=tasks)
    for scoring in (None, "r2"):
        with pytest.raises(DataError, match="and 0 test rows with a target and a positive weight"):
            MSSLRegressorCV(cv=[(np.arange(1, 120), [0])], scoring=scoring).fit(
                X, y, tasks=tasks, sample_weight=np.arange(120)
            )
    labels = np.where(np.arange(len(y)) % 2, "yes", "no")
    with pytest.raises(DataError, match="Fold 1 of cv leaves no training rows of class 'yes'"):
        MSSLClassifierCV(cv=[(labels != "", labels == "no"), (labels == "no", labels == "yes")]).fit(
            X, labels, tasks=tasks
        )


def test_a_comparison_names_the_fold_that_loses_a_class():
    X, labels = np.random.default_rng(0).normal(size=(40, 2)), np.repeat(["yes", "no"], [3, 37])
    cv = [(np.arange(3, 40), np.arange(3)), (np.r_[0:3, 20:40], np.arange(3, 20))]
    with pytest.raises(DataError, match="Fold 0 of cv leaves no training rows of class 'yes'"):
        compare_methods({"own": MultiTaskClassifier()}, X, labels, np.repeat(["a", "b"], 20), cv=cv)


def test_a_class_may_be_missing_in_the_training_rows_of_a_task():
    data = make_clustered_tasks(**SMALL, family="binary", random_state=0)
    own = np.flatnonzero((data.tasks == data.tasks[0]) & (data.y == 1))
    kept = np.setdiff1d(np.arange(len(data.y)), own[1:])  # one task has a single positive, which is tested once
    settings = {"param_grid": {"prior_strength": [1.0], "coef_penalty": [0.0], "shared_mean": [False]}, "cv": 3}
    search = MSSLClassifierCV(
        **{**settings, "param_grid": {**settings["param_grid"], "graph_penalty": [0.5, 0.1]}}
    ).fit(data.X[kept], data.y[kept], tasks=data.tasks[kept])
    assert np.isfinite(search.best_score_)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), folds=st.integers(2, 4), n_groups=st.integers(4, 30), n_tasks=st.integers(1, 5))
def test_groups_stay_together_in_all_tasks(seed, folds, n_groups, n_tasks):
    rng = np.random.default_rng(seed)
    groups, tasks = rng.integers(n_groups, size=80), rng.integers(n_tasks, size=80)
    X = np.column_stack([tasks, np.zeros(80)])
    splits = list(TaskGroupKFold(folds, random_state=seed, task_column=0).split(X, groups=groups))
    held = np.concatenate([test for _, test in splits])
    assert len(np.unique(held)) == len(held)
    for train, test in splits:
        assert not set(groups[train]) & set(groups[test])
        assert set(tasks[train]) == set(tasks)
        assert len(train) + len(test) == 80
    never = np.setdiff1d(np.arange(80), held)  # only groups that hold a whole task
    for group in np.unique(groups[never]):
        assert any(set(groups[tasks == k]) == {group} for k in range(n_tasks))


def test_a_class_or_task_of_two_groups_is_in_every_training_part():
    """Each of two tasks has the few rows of two groups of its own; a rare label stands in two other groups."""
    groups = np.concatenate([np.repeat(np.arange(8), 10), [8, 9, 10, 11]])
    tasks = np.concatenate([np.zeros(80, dtype=int), [1, 1, 2, 2]])
    y = np.isin(np.arange(84), [0, 10]).astype(float)
    shared = np.concatenate([groups, np.repeat([8, 9, 10, 11], 10)]), np.concatenate([tasks, np.full(40, 3)])
    for seed in range(100):
        for train, _ in TaskGroupKFold(2, random_state=seed, task_column=0).split(tasks[:, None], y, groups=groups):
            assert set(y[train]) == {0.0, 1.0}
        for train, _ in TaskGroupKFold(3, random_state=seed, task_column=0).split(shared[1][:, None], groups=shared[0]):
            assert set(shared[1][train]) == {0, 1, 2, 3}


def test_days_that_all_stations_share_are_dealt_out_evenly():
    day, station = np.tile(np.arange(23), 4), np.repeat(np.arange(4), 23)
    for train, test in TaskGroupKFold(5, task_column=0).split(np.column_stack([station, day]), groups=day):
        assert set(np.bincount(station[test])) <= {4, 5}
        assert len(np.unique(np.bincount(station[test]))) == 1
        assert len(train) + len(test) == 92


def test_groups_are_balanced_by_task_better_than_by_rows_alone():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 5)
    tasks = np.repeat(rng.permutation(np.repeat([0, 1, 2, 3], 10)), 5)  # each group in one task

    def unevenness(splits):
        return sum(np.ptp([np.sum(tasks[test] == k) for _, test in splits]) for k in range(4))

    X = np.column_stack([tasks, np.zeros(200)])
    assert unevenness(list(TaskGroupKFold(5, task_column=0).split(X, groups=groups))) == 0
    assert unevenness(list(GroupKFold(5).split(X, groups=groups))) > 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), folds=st.integers(2, 4), forward=st.booleans(), n_tasks=st.integers(1, 4))
def test_blocks_are_runs_of_time_in_all_tasks(seed, folds, forward, n_tasks):
    rng = np.random.default_rng(seed)
    time, tasks = rng.integers(40, size=120), rng.integers(n_tasks, size=120)
    X = np.column_stack([tasks, np.zeros(120)])
    splits = list(TaskBlockKFold(folds, forward=forward, task_column=0).split(X, groups=time))
    previous = -1
    for train, test in splits:
        assert time[test].min() > previous
        previous = time[test].max()
        inside = (time[train] >= time[test].min()) & (time[train] <= previous)
        assert not inside.any()
        assert set(tasks[train]) == set(tasks)
        if forward:
            assert time[train].max() < time[test].min()
    held = np.concatenate([test for _, test in splits])
    assert len(np.unique(held)) == len(held)
    if not forward:
        assert len(held) == 120


def test_a_task_within_one_block_is_trained_with_and_groups_are_not_parted_by_blocks():
    time = np.r_[np.arange(20), np.arange(3)]
    tasks = np.r_[np.zeros(20), np.ones(3)]
    for train, test in TaskBlockKFold(2, task_column=0).split(np.column_stack([tasks, time]), groups=time):
        assert set(tasks[train]) == {0, 1}
        assert set(tasks[test]) == {0}
    group = np.arange(20) // 3
    splits = read_splits(3, np.zeros((20, 1)), np.zeros(20), None, groups=group, order=np.arange(20))
    for train, test in splits:
        assert not set(group[train]) & set(group[test])
        assert np.array_equal(test, np.arange(test.min(), test.max() + 1))


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
@pytest.mark.parametrize("extra", ["", "groups", "order"])
def test_folds_of_read_tasks_are_those_of_the_input(layout, extra):
    rng = np.random.default_rng(0)
    n, K = 30, 3
    Y, given_rows = rng.standard_normal((n, K)), rng.permutation(n) // 3
    if layout == "long":
        X, y, tasks = rng.standard_normal((n * K, 2)), Y.ravel(), np.tile(np.arange(K), n)
        given_rows = np.repeat(given_rows, K)
    else:
        Y[rng.random((n, K)) < 0.1] = np.nan
        X, y, tasks = rng.standard_normal((n, 2) if layout == "shared" else (n, K, 2)), Y, None
    named = {} if not extra else {extra: given_rows}
    data = read_tasks(X, y, tasks=tasks, **named)
    rows = data.source_rows
    observed = y if layout == "long" else y[rows, data.task_of_row]
    np.testing.assert_array_equal(data.y, observed[rows] if layout == "long" else observed)
    pairs = read_splits(4, X, y, tasks, **named)
    for (train, test), (train_mask, test_mask) in zip(pairs, Folds.from_cv(data, 4), strict=True):
        np.testing.assert_array_equal(np.isin(rows, train), train_mask)
        np.testing.assert_array_equal(np.isin(rows, test), test_mask)
        if data.occasions is not None:
            assert not set(data.occasions[train_mask]) & set(data.occasions[test_mask])
    direct = [(np.arange(0, n), np.arange(n, len(y)))] if layout == "long" else [(np.arange(9), np.arange(9, n))]
    ((train_mask, test_mask),) = Folds.from_cv(data, direct)
    np.testing.assert_array_equal(train_mask, np.isin(rows, direct[0][0]))
    np.testing.assert_array_equal(test_mask, np.isin(rows, direct[0][1]))


def test_splitters_of_scikit_learn_see_groups_and_rows_in_the_order_of_time():
    X, y = np.zeros((12, 1)), np.arange(12.0)
    groups, order = np.arange(12) % 4, np.arange(12)[::-1]
    for train, test in read_splits(GroupKFold(4), X, y, None, groups=groups):
        assert not set(groups[train]) & set(groups[test])
    for train, test in read_splits(TimeSeriesSplit(3), X, y, None, order=order):
        assert order[train].max() < order[test].min()


def test_impossible_groups_and_times_are_said_so():
    X, y, tasks = np.zeros((6, 1)), np.zeros(6), [0, 0, 0, 1, 1, 1]
    with pytest.raises(ParameterError, match=r"0 groups to hold out.*hold all rows of a task"):
        read_splits(2, X, y, tasks, groups=tasks)
    with pytest.raises(ParameterError, match="n_splits is 5, there are 3 groups"):
        read_splits(5, X, y, tasks, groups=[0, 1, 2] * 2)
    with pytest.raises(ParameterError, match="do not fill that many blocks"):
        read_splits(5, X, y, tasks, order=[0, 1, 2] * 2)
    with pytest.raises(LayoutError, match="groups has 5 entries for 6 rows"):
        read_tasks(X, y, tasks=tasks, groups=[0] * 5)
    with pytest.raises(LayoutError, match="1 rows have no entry in order"):
        read_tasks(X, y, tasks=tasks, order=[0, 1, 2, 3, 4, None])
    assert len(read_splits(None, X, y, tasks, groups=[0, 1, 2] * 2)) == 3


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(3, 20))
def test_cells_make_up_every_part_and_no_fold_tears_them_apart(seed, n_folds, n):
    side = np.random.default_rng(seed).integers(0, 4, (n_folds, n))  # neither part, one of them, or both
    folds = Folds(side % 2 == 1, side // 2 == 1)
    cell, train, test = folds.cells()
    assert sorted(set(cell)) == list(range(train.shape[1]))
    np.testing.assert_array_equal(train[:, cell], folds.train)
    np.testing.assert_array_equal(test[:, cell], folds.test)


def test_rows_of_weight_zero_make_no_folds_and_splitters_that_look_at_columns_see_the_others():
    class ByColumn:
        def split(self, X, y=None, groups=None):
            yield np.flatnonzero(X[:, 0] < 3), np.flatnonzero(X[:, 0] >= 3)

    X, tasks, weights = np.arange(8.0)[:, None], np.tile([0, 1], 4), np.array([1, 1, 0, 1, 1, 0, 1, 1.0])
    data = read_tasks(X, np.arange(8.0), tasks=tasks, sample_weight=weights)
    ((train, test),) = Folds.from_cv(data, ByColumn(), X)
    assert data.X[train, 0].tolist() == [0, 1]
    assert sorted(data.X[test, 0]) == [3, 4, 6, 7]
    kept = weights > 0
    without = read_tasks(X[kept], np.arange(8.0)[kept], tasks=tasks[kept])
    for (train, _), (again, _) in zip(Folds.from_cv(data, 3), Folds.from_cv(without, 3), strict=True):
        np.testing.assert_array_equal(train, again)
