"""Reading tasks: three layouts give the same rows, bad input gets the stated error."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone

from mssl import MSSLRegressor, MSSLRegressorCV, MultiTaskGLM, TaskData, stack_tasks
from mssl.data.inputs import CodedTasks, locate_tasks, number_tasks, read_labels
from mssl.data.layouts import read_tasks
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import DataError, LayoutError, UnseenTaskError
from mssl.losses import Gaussian
from mssl.paper import PaperMSSL
from mssl.penalties import ElasticNet
from mssl.structures import Independent, MeanRegularized


def ragged(rng: np.random.Generator, sizes: list[int], d: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    return rng.normal(size=(len(tasks), d)), rng.normal(size=len(tasks)), tasks


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_rows_are_sorted_by_task_whatever_their_order(sizes: list[int], random: object) -> None:
    rng = np.random.default_rng(len(sizes))
    X, y, tasks = ragged(rng, sizes)
    order = list(range(len(y)))
    random.shuffle(order)  # type: ignore[attr-defined]
    data = read_tasks(X[order], y[order], tasks=tasks[order])
    assert data.n_rows.tolist() == sizes
    for k in range(len(sizes)):
        rows = slice(data.offsets[k], data.offsets[k + 1])
        ours = np.column_stack([data.X[rows], data.y[rows]])
        theirs = np.column_stack([X[tasks == k], y[tasks == k]])
        np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])
    if data.input_rows is not None:
        np.testing.assert_array_equal(data.X, X[order][data.input_rows])


@given(st.lists(st.sampled_from(["b", "a", "a ", "ab"]) | st.integers(0, 2).map(str), max_size=12))
def test_tasks_are_numbered_as_if_sorted(labels: list[str]) -> None:
    given_labels = np.asarray(labels, dtype=str)
    tasks, of_row = number_tasks(given_labels)
    assert tasks.tolist() == sorted(set(labels))
    assert tasks[of_row].tolist() == labels
    assert locate_tasks(given_labels, tasks[::-1]).tolist() == (len(tasks) - 1 - of_row).tolist()
    place = {"never": 0} | {label: k + 1 for k, label in enumerate(dict.fromkeys(labels))}
    coded = CodedTasks(np.asarray(list(place)), np.asarray([place[label] for label in labels], dtype=np.int32))
    assert coded.tolist() == np.asarray(coded).tolist() == labels
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(number_tasks(coded), (tasks, of_row), strict=True))
    np.testing.assert_array_equal(locate_tasks(coded, tasks), of_row)


def test_many_rows_are_sorted_alike_however_they_are_stored(rng: np.random.Generator) -> None:
    X, y, tasks = rng.standard_normal((5000, 3)), rng.standard_normal(5000), rng.integers(0, 40, 5000)
    by_rows, by_columns = (read_tasks(given, y, tasks=tasks) for given in (X, np.asfortranarray(X)))
    order = np.argsort(tasks, kind="stable")
    for data in (by_rows, by_columns, read_tasks(X, y, tasks=40_000 * tasks + np.arange(5000) % 2)):
        np.testing.assert_array_equal(data.X, X[data.source_rows])
        np.testing.assert_array_equal(data.y, y[data.source_rows])
    np.testing.assert_array_equal(by_columns.source_rows, order)


def test_coded_tasks_are_taken_as_their_names(rng: np.random.Generator) -> None:
    X, y, place = ragged(rng, [12, 9, 15])
    order = rng.permutation(len(y))
    X, y, coded = X[order], y[order], CodedTasks(np.asarray(["b", "c", "a"]), place[order].astype(np.int32))
    ours, theirs = (MSSLRegressorCV(cv=3).fit(X, y, tasks=tasks) for tasks in (coded, np.asarray(coded)))
    assert ours.tasks_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(ours.coef_, theirs.coef_)
    np.testing.assert_array_equal(ours.predict(X, tasks=coded), theirs.predict(X, tasks=np.asarray(coded)))


def test_frames_arrays_and_sparse_read_alike(rng: np.random.Generator) -> None:
    X, y, tasks = ragged(rng, [4, 3])
    names = np.array(["b", "a"])[tasks]
    frame = pd.DataFrame(X, columns=["u", "v", "w"]).assign(station=names)
    plain = read_tasks(X, y, tasks=names)
    for data in (
        read_tasks(frame, y, task_column="station"),
        read_tasks(frame, pd.Series(y), task_column="station"),
        read_tasks(pl.from_pandas(frame), y, task_column="station"),
        read_tasks(np.column_stack([X.astype(object), names]), y, task_column=3),
        read_tasks(sparse.csr_array(X), y, tasks=names),
        TaskData.from_list([X[names == "a"], X[names == "b"]], [y[names == "a"], y[names == "b"]], ["a", "b"]),
    ):
        assert data.tasks.tolist() == ["a", "b"]
        dense = data.X.toarray() if sparse.issparse(data.X) else data.X
        np.testing.assert_array_equal(dense, plain.X)
        np.testing.assert_array_equal(data.y, plain.y)
    assert read_tasks(frame, y, task_column="station").feature_names.tolist() == ["u", "v", "w"]


def test_layouts_of_the_same_data_agree(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(20, 3)), rng.normal(size=(20, 4))
    shared = MSSLRegressor().fit(X, Y)
    aligned = MSSLRegressor().fit(np.repeat(X[:, None], 4, axis=1), Y)
    long = MSSLRegressor().fit(*stack_tasks([X] * 4, list(Y.T)))
    for other in (aligned, long):
        np.testing.assert_allclose(other.coef_, shared.coef_, atol=1e-5)
        np.testing.assert_allclose(other.intercept_, shared.intercept_, atol=1e-5)
    np.testing.assert_allclose(shared.predict(X), aligned.predict(np.repeat(X[:, None], 4, axis=1)), atol=1e-5)
    np.testing.assert_allclose(long.predict(X, tasks=np.full(20, 2)), shared.predict(X)[:, 2], atol=1e-5)


@pytest.mark.parametrize("layout", ["shared", "aligned"])
def test_missing_targets_are_rows_that_are_not_there(layout: str, rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(30, 2)), rng.normal(size=(30, 3))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    seen = [~np.isnan(Y[:, k]) for k in range(3)]
    long = MSSLRegressor().fit(*stack_tasks([X[s] for s in seen], [Y[s, k] for k, s in enumerate(seen)]))
    other = MSSLRegressor().fit(X if layout == "shared" else np.repeat(X[:, None], 3, axis=1), Y)
    np.testing.assert_allclose(other.coef_, long.coef_, atol=1e-8)
    assert np.isfinite(other.score(X if layout == "shared" else np.repeat(X[:, None], 3, axis=1), Y))


def test_targets_named_by_a_frame_name_the_tasks(rng: np.random.Generator) -> None:
    Y = pd.DataFrame(rng.normal(size=(15, 2)), columns=["north", "south"])
    assert MSSLRegressor().fit(rng.normal(size=(15, 2)), Y).tasks_.tolist() == ["north", "south"]
    X = rng.normal(size=(15, 2))
    one = MSSLRegressor().fit(X, Y[["south"]])
    assert one.tasks_.tolist() == list(one.graph_.tasks) == ["south"]
    plain = MSSLRegressor().fit(X, Y["south"])
    np.testing.assert_array_equal(one.coef_, plain.coef_)
    np.testing.assert_array_equal(one.predict(X), plain.predict(X))
    np.testing.assert_array_equal(one.predict(X, tasks=["south"] * 15), plain.predict(X))
    ids = MSSLRegressor().fit(X, Y[["south"]], tasks=["a"] * 7 + ["b"] * 8)
    assert ids.tasks_.tolist() == ["a", "b"]


X0, Y0 = np.arange(12.0).reshape(6, 2), np.arange(6.0)
NAN = X0.copy()
NAN[0, 0] = np.nan
INF = X0.copy()
INF[0, 0] = np.inf
BAD = {
    "NaN in X": (lambda: MSSLRegressor().fit(NAN, Y0), DataError, "NaN"),
    "inf in X": (lambda: MSSLRegressor().fit(INF, Y0), DataError, "infinity"),
    "NaN in y": (lambda: MSSLRegressor().fit(X0, np.r_[np.nan, Y0[1:]]), DataError, "NaN"),
    "text column": (
        lambda: MSSLRegressor().fit(pd.DataFrame({"a": X0[:, 0], "b": list("1234x5")}), Y0),
        DataError,
        "'b'",
    ),
    "no such task column": (
        lambda: MSSLRegressor(task_column="t").fit(pd.DataFrame({"a": Y0}), Y0),
        LayoutError,
        "'a'",
    ),
    "task column of an array as a truth value": (
        lambda: MSSLRegressor(task_column=True).fit(X0, Y0),
        LayoutError,
        "number",
    ),
    "task column of an array by name": (lambda: MSSLRegressor(task_column="t").fit(X0, Y0), LayoutError, "number"),
    "missing task id": (lambda: MSSLRegressor().fit(X0, Y0, tasks=[0, 1, np.nan, 0, 1, 0]), LayoutError, "no task id"),
    "too few task ids": (lambda: MSSLRegressor().fit(X0, Y0, tasks=[0, 1]), LayoutError, "2 task ids for 6 rows"),
    "task ids and (n, K) targets": (
        lambda: MSSLRegressor().fit(X0, np.c_[Y0, Y0], tasks=[0] * 6),
        LayoutError,
        "Leave the ids out",
    ),
    "names of the columns of y as task ids": (
        lambda: MSSLRegressor().fit(X0, np.c_[Y0, Y0], tasks=["a", "b"]),
        LayoutError,
        "name the tasks by the columns of a frame y",
    ),
    "rows differ": (lambda: MSSLRegressor().fit(X0, Y0[:4]), LayoutError, "inconsistent"),
    "aligned shapes differ": (lambda: MSSLRegressor().fit(np.ones((6, 2, 3)), np.ones((6, 3))), LayoutError, "aligned"),
    "four dimensions": (lambda: MSSLRegressor().fit(np.ones((2, 2, 2, 2)), np.ones((2, 2))), LayoutError, "dimensions"),
    "empty": (lambda: MSSLRegressor().fit(np.empty((0, 2)), np.empty(0)), DataError, "0 sample"),
    "no features": (lambda: MSSLRegressor().fit(np.empty((6, 0)), Y0), DataError, "0 feature"),
    "all weights zero": (lambda: MSSLRegressor().fit(X0, Y0, sample_weight=np.zeros(6)), DataError, "zero"),
    "a task without weight": (
        lambda: MSSLRegressor().fit(X0, Y0, tasks=[0, 0, 0, 1, 1, 1], sample_weight=[1, 1, 1, 0, 0, 0]),
        DataError,
        "Tasks",
    ),
    "negative weight": (lambda: MSSLRegressor().fit(X0, Y0, sample_weight=-np.ones(6)), DataError, "negative"),
    "a column all missing": (lambda: MSSLRegressor().fit(X0, np.c_[Y0, Y0 * np.nan]), DataError, "no row"),
    "ragged list": (lambda: stack_tasks([X0, X0[:, :1]], [Y0, Y0]), LayoutError, "different numbers"),
    "two tasks of one name": (lambda: stack_tasks([X0, X0], [Y0, Y0], ["a", "a"]), LayoutError, "same name"),
    "a missing date as task id": (
        lambda: MSSLRegressor().fit(X0, Y0, tasks=np.array(["2020", "NaT"] * 3, dtype="datetime64[D]")),
        LayoutError,
        "no task id",
    ),
    "a frame's own missing mark": (
        lambda: MSSLRegressor().fit(X0, Y0, tasks=pd.array(["a", pd.NA, "a", "b", "b", "b"])),
        LayoutError,
        "no task id",
    ),
    "1 and '1'": (
        lambda: MSSLRegressor().fit(X0, Y0, tasks=np.array([1, "1"] * 3, dtype=object)),
        LayoutError,
        "mix text",
    ),
    "a missing id among names in a list": (
        lambda: MSSLRegressor().fit(X0, Y0, tasks=["a", float("nan"), "a", "b", "b", "b"]),
        LayoutError,
        "first: row 1",
    ),
    "None among names in a tuple": (
        lambda: MSSLRegressor().fit(X0, Y0, tasks=("a", "b", None) * 2),
        LayoutError,
        "first: row 2",
    ),
    "a missing id in a column of list rows": (
        lambda: MSSLRegressor(task_column=2).fit([[*x, "a" if x[0] else float("nan")] for x in X0.tolist()], Y0),
        LayoutError,
        "first: row 0",
    ),
    "1 and '1' in a column of list rows": (
        lambda: MSSLRegressor(task_column=2).fit([[*x, "1" if x[0] else 1] for x in X0.tolist()], Y0),
        LayoutError,
        "mix text",
    ),
    "rows of differing lengths": (
        lambda: MSSLRegressor(task_column=1).fit([[1.0, "a"], [2.0]], [1.0, 2.0]),
        LayoutError,
        "differing lengths",
    ),
    "1 and '1' in a list": (lambda: MSSLRegressor().fit(X0, Y0, tasks=[1, "1"] * 3), LayoutError, "mix text"),
    "True and 'True' in a list": (
        lambda: MSSLRegressor().fit(X0, Y0, tasks=[True, "True"] * 3),
        LayoutError,
        "mix text",
    ),
    "a missing name of a listed task": (
        lambda: TaskData.from_list([X0, X0], [Y0, Y0], ["a", float("nan")]),
        LayoutError,
        "no task id",
    ),
    "a listed task without rows": (
        lambda: TaskData.from_list([X0, X0[:0]], [Y0, Y0[:0]], ["a", "b"]),
        DataError,
        "Tasks 'b' have no rows",
    ),
    "a listed task of two lengths": (
        lambda: TaskData.from_list([X0, X0], [Y0, Y0[:2]], ["a", "b"]),
        LayoutError,
        "Task 'b' has features of shape (6, 2) and 2 targets",
    ),
    "weights in words": (
        lambda: MSSLRegressor().fit(X0, Y0, sample_weight="a"),
        DataError,
        "sample_weight is 'a'",
    ),
    "two columns of one name": (
        lambda: MSSLRegressor().fit(pd.DataFrame(X0, columns=["a", "a"]), Y0),
        DataError,
        "more than one column named 'a'",
    ),
    "lazy frame": (lambda: MSSLRegressor().fit(pl.LazyFrame({"a": [1.0]}), [1.0]), DataError, "collect"),
    **{
        f"{kind} as targets": (
            lambda kind=kind: MSSLRegressor().fit(X0, np.arange(6).astype(kind)),
            DataError,
            "numbers",
        )
        for kind in ("datetime64[D]", "timedelta64[s]")
    },
    "a series of dates as targets": (
        lambda: MSSLRegressor().fit(X0, pd.Series(pd.date_range("2020-01-01", periods=6))),
        DataError,
        "days since a date",
    ),
    "dates as features": (lambda: MSSLRegressor().fit(X0.astype("datetime64[D]"), Y0), DataError, "X holds times"),
    "a frame of dates with numbered columns": (
        lambda: MSSLRegressor().fit(pd.DataFrame(X0.astype("datetime64[s]")), Y0),
        DataError,
        "Column '0' holds dates",
    ),
    "text targets": (lambda: MSSLRegressor().fit(X0, list("abcdef")), DataError, "not numbers"),
}


IDS = st.sampled_from(["a", "1", "True", 1, 2.5, True, None, float("nan")])


@given(st.lists(IDS, min_size=1, max_size=6))
def test_task_ids_mean_the_same_in_a_list_and_in_an_array_of_objects(ids: list[object]) -> None:
    objects = np.empty(len(ids), dtype=object)
    objects[:] = ids
    try:
        expected = read_labels(objects).tolist()
    except LayoutError as error:
        with pytest.raises(LayoutError, match=re.escape(str(error))):
            read_labels(ids)
    else:
        assert read_labels(ids).tolist() == expected


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_words(case: str) -> None:
    act, error, words = BAD[case]
    with pytest.raises(error, match=words.replace("(", r"\(").replace(")", r"\)")):
        act()


@pytest.mark.parametrize("case", BAD)
def test_messages_show_plain_values(case: str) -> None:
    with pytest.raises(BAD[case][1]) as raised:
        BAD[case][0]()
    assert "np." not in str(raised.value).replace("np.timedelta64(1, 'D')", "")


def sized() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four tasks whose targets are at most 1."""
    data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1], [2, 3]], n_features=4, n_samples=20, random_state=0)
    return data.X, data.y / np.abs(data.y).max(), data.tasks


REPORTED = ("coef_", "intercept_", "mean_coef_", "noise_variance_", "precision_", "covariance_", "objective_")
FREE = {
    "unified": MSSLRegressor(0.2, 0.7),
    "ridge": MSSLRegressor(0.2, ElasticNet(ridge=0.1)),
    "no graph": MSSLRegressor(np.inf),
}
BOUND = {
    "paper": PaperMSSL(0.2),
    "noise": MSSLRegressor(0.2, loss=Gaussian(noise_variance=1.0)),
    "mean": MultiTaskGLM(MeanRegularized()),
    "independent": MultiTaskGLM(Independent(1.0), loss=Gaussian(noise_variance=1.0)),
    "gamma": MSSLRegressor(0.2, loss="gamma"),
}


@pytest.mark.parametrize("size", [1e-200, 1e-150, 1e150, 1e200])
@pytest.mark.parametrize("model", FREE)
def test_targets_of_any_size_fit_alike_or_are_refused(model: str, size: float) -> None:
    X, y, tasks = sized()
    if not 1e-152 < size < 1e152:
        with pytest.raises(DataError, match="other units"):
            clone(FREE[model]).fit(X, y * size, tasks=tasks)
        return
    plain, fit = (clone(FREE[model]).set_params(tol=1e-10).fit(X, y * s, tasks=tasks) for s in (1.0, size))
    np.testing.assert_allclose(fit.coef_ / size, plain.coef_, atol=1e-5)
    assert all(np.all(np.isfinite(getattr(fit, name))) for name in REPORTED)


@pytest.mark.parametrize("size", [1e-200, 1e-150, 1e-60, 1e60, 1e150, 1e200])
@pytest.mark.parametrize("model", BOUND)
@pytest.mark.filterwarnings("ignore:The fit stopped:sklearn.exceptions.ConvergenceWarning")
def test_targets_in_the_units_of_a_model_are_computed_with_or_refused(model: str, size: float) -> None:
    X, y, tasks = sized()
    y = (np.abs(y) + 0.1 if model == "gamma" else y) * size
    reach = 150 if model == "gamma" else 70
    if abs(np.log10(size)) > reach:
        with pytest.raises(DataError, match="other units"):
            clone(BOUND[model]).fit(X, y, tasks=tasks)
        return
    fit = clone(BOUND[model]).fit(X, y, tasks=tasks)
    assert all(np.all(np.isfinite(getattr(fit, name))) for name in REPORTED if getattr(fit, name) is not None)


@pytest.mark.parametrize("size", [1e-150, 1e-60, 1e60, 1e150])
@pytest.mark.parametrize("model", [*FREE, "paper", "noise"])
@pytest.mark.filterwarnings("ignore:The fit stopped:sklearn.exceptions.ConvergenceWarning")
def test_one_task_of_another_size_is_computed_with_or_refused(model: str, size: float) -> None:
    X, y, tasks = sized()
    y = np.where(tasks == tasks[0], y * size, y)
    fresh = clone((FREE | BOUND)[model])
    if 1e-70 < size < 1e70:
        fit = fresh.fit(X, y, tasks=tasks)
        assert all(np.all(np.isfinite(getattr(fit, name))) for name in REPORTED)
        return
    with pytest.raises(DataError, match="comparable units"):
        fresh.fit(X, y, tasks=tasks)


@pytest.mark.parametrize(("of_X", "of_y"), [(1e-200, 1e150), (1e200, 1e-150)])
def test_coefficients_that_no_number_holds_are_refused(of_X: float, of_y: float) -> None:
    X, y, tasks = sized()
    with pytest.raises(DataError, match="cannot be held"):
        MSSLRegressor().fit(X * of_X, y * of_y, tasks=tasks)


@pytest.fixture(scope="module")
def two_tasks() -> MSSLRegressor:
    rng = np.random.default_rng(1)
    X, y, tasks = ragged(rng, [8, 9])
    return MSSLRegressor().fit(X, y, tasks=np.array(["a", "b"])[tasks])


def test_prediction_needs_known_tasks(two_tasks: MSSLRegressor) -> None:
    X = np.ones((2, 3))
    with pytest.raises(LayoutError, match="which task each row belongs to"):
        two_tasks.predict(X)
    with pytest.raises(UnseenTaskError, match=r"'c'.*knows 'a', 'b'"):
        two_tasks.predict(X, tasks=["a", "c"], unseen="error")
    with pytest.raises(ValueError, match="features"):
        two_tasks.predict(np.ones((2, 4)), tasks=["a", "b"])
    with pytest.raises(LayoutError, match="aligned"):
        two_tasks.predict(np.ones((2, 3, 3)))
    assert two_tasks.predict(np.ones((4, 2, 3))).shape == (4, 2)


def test_predictions_come_back_in_the_rows_order(two_tasks: MSSLRegressor, rng: np.random.Generator) -> None:
    X, tasks = rng.normal(size=(10, 3)), np.array(["b", "a"] * 5)
    whole = two_tasks.predict(X, tasks=tasks)
    one_by_one = [two_tasks.predict(X[i : i + 1], tasks=tasks[i : i + 1])[0] for i in range(10)]
    np.testing.assert_allclose(whole, one_by_one, rtol=1e-12)


def test_plain_lists_with_tasks_work() -> None:
    tasks = ["a", "b"] * 3
    model = MSSLRegressor().fit(X0.tolist(), Y0.tolist(), tasks=tasks)
    np.testing.assert_array_equal(model.predict(X0.tolist(), tasks=tasks), model.predict(X0, tasks=tasks))


def test_ids_can_stand_in_for_the_task_column(rng: np.random.Generator) -> None:
    X, y, tasks = ragged(rng, [8, 9])
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    model = MSSLRegressor(task_column="task").fit(frame.assign(task=tasks), y)
    without = MSSLRegressor(task_column="task").fit(frame, y, tasks=tasks)
    np.testing.assert_array_equal(without.coef_, model.coef_)
    np.testing.assert_array_equal(model.predict(frame, tasks=tasks), model.predict(frame.assign(task=tasks)))
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame[["v", "u", "w"]], tasks=tasks)


def test_scores_leave_out_what_is_not_there_and_refuse_the_impossible(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(12, 2)), rng.normal(size=(12, 3))
    model = MSSLRegressor().fit(X, Y)
    gap = Y.copy()
    gap[:, 1] = np.nan
    expected = np.mean(
        [1 - np.sum((Y[:, k] - model.predict(X)[:, k]) ** 2) / np.sum((Y[:, k] - Y[:, k].mean()) ** 2) for k in (0, 2)]
    )
    assert model.score(X, gap) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(DataError, match="no target"):
        model.score(X, np.full_like(Y, np.nan))
    counts = MSSLRegressor(loss="poisson").fit(X, np.abs(Y).round())
    with pytest.raises(DataError, match="out of range"):
        counts.score(X, -np.ones_like(Y))


@pytest.mark.parametrize(("old", "new"), [("rows", "input_rows"), ("names", "feature_names")])
def test_old_names_of_task_data_answer_with_a_warning(old: str, new: str) -> None:
    data = read_tasks(pd.DataFrame({"a": [1.0, 2.0, 3.0]}), [1.0, 2.0, 3.0], tasks=["u", "v", "u"])
    with pytest.warns(FutureWarning, match=f"`{old}` of TaskData is now `{new}`"):
        assert getattr(data, old) is getattr(data, new) is not None


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_frame_that_still_holds_its_target_is_told(frame) -> None:
    rng = np.random.default_rng(0)
    table = {"site": np.repeat(["b", "a"], 10), "x": rng.normal(size=20), "sales": rng.normal(size=20)}
    with pytest.warns(UserWarning, match="The column 'sales' of X is the target itself"):
        read_tasks(frame(table), table["sales"], task_column="site")
    read_tasks(frame(table), np.append(table["sales"][:-1], 0.0), task_column="site")  # one row is another one
    read_tasks(frame(table | {"sales": np.ones(20)}), np.ones(20), task_column="site")
