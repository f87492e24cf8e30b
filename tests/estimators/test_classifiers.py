"""Classifiers: labels of any type, layouts, class weights, pairs of classes, errors that say what to do."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from mssl import MSSLClassifier, MSSLRegressor, MultiTaskClassifier, MultiTaskGLM, pair_tasks, vote
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import DataError, LayoutError, ParameterError, UnseenTaskError
from mssl.features import Linear
from mssl.penalties import L1
from mssl.structures import Independent


@pytest.fixture(scope="module")
def data():
    return make_clustered_tasks("equicorrelated", n_tasks=4, clusters=[[0, 1], [2, 3]], n_features=5, n_samples=40,
                                shared_design=False, family="binary", random_state=0)  # fmt: skip


@pytest.mark.parametrize("estimator", [MSSLClassifier(), MultiTaskClassifier()], ids=lambda e: type(e).__name__)
def test_scikit_learns_own_checks(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = check_estimator(estimator, on_fail=None)
    assert [(o["check_name"], o["exception"]) for o in outcomes if o["status"] == "failed"] == []


def test_scikit_learns_own_checks_with_counts():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = check_estimator(MSSLRegressor(loss="poisson"), on_fail=None)
    assert [(o["check_name"], o["exception"]) for o in outcomes if o["status"] == "failed"] == []


# Labels


@pytest.mark.parametrize(
    "labels",
    [np.array([0, 1]), np.array([-1.0, 1.0]), np.array([False, True]), np.array(["ham", "spam"]),
     np.array(["no", "yes"], dtype=object)],
    ids=["int", "float", "bool", "str", "object"],
)  # fmt: skip
def test_labels_of_any_type(data, labels):
    y = labels[data.y]
    model = MSSLClassifier(0.1).fit(data.X, y, tasks=data.tasks)
    plain = MSSLClassifier(0.1).fit(data.X, data.y, tasks=data.tasks)
    assert model.classes_.tolist() == sorted(labels.tolist())
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    prediction = model.predict(data.X, tasks=data.tasks)
    assert set(prediction.tolist()) <= set(labels.tolist())
    assert np.array_equal(prediction, labels[plain.predict(data.X, tasks=data.tasks)])
    assert model.score(data.X, y, tasks=data.tasks) == accuracy_score(y.astype(str), prediction.astype(str))


def test_probabilities_and_decisions_agree(data):
    model = MSSLClassifier(0.1).fit(data.X, data.y, tasks=data.tasks)
    probability = model.predict_proba(data.X, tasks=data.tasks)
    decision = model.decision_function(data.X, tasks=data.tasks)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(probability[:, 1] / probability[:, 0]), decision, atol=1e-10)
    assert np.array_equal(model.predict(data.X, tasks=data.tasks), (decision > 0).astype(int))


def test_swapped_labels_mirror_the_fit(data):
    one = MSSLClassifier(0.1, tol=1e-9, max_iter=1000).fit(data.X, data.y, tasks=data.tasks)
    other = MSSLClassifier(0.1, tol=1e-9, max_iter=1000).fit(data.X, 1 - data.y, tasks=data.tasks)
    np.testing.assert_allclose(one.coef_, -other.coef_, atol=1e-4)
    np.testing.assert_allclose(one.precision_, other.precision_, rtol=1e-3)


def test_a_third_label_shows_the_way_to_pairs(data):
    with pytest.raises(DataError, match=r"y holds 3 labels \(0, 1, 2\).*pair_tasks\(X, y\)"):
        MSSLClassifier().fit(data.X, np.arange(len(data.y)) % 3, tasks=data.tasks)


def test_labels_that_are_none(data):
    with pytest.raises(ValueError, match="continuous"):
        MSSLClassifier().fit(data.X, np.linspace(0, 1, len(data.y)), tasks=data.tasks)
    with pytest.raises(DataError, match="one class only"):
        MSSLClassifier().fit(data.X, np.ones(len(data.y)), tasks=data.tasks)
    with pytest.raises(DataError, match="contains NaN or None"):
        MSSLClassifier().fit(data.X, np.where(np.arange(len(data.y)) == 3, np.nan, data.y), tasks=data.tasks)
    mixed = data.y.astype(object)
    mixed[0] = "one"
    with pytest.raises(DataError, match="mixes text"):
        MSSLClassifier().fit(data.X, mixed, tasks=data.tasks)
    with pytest.raises(DataError, match="mixes text"):
        MSSLClassifier().fit(data.X, mixed.tolist(), tasks=data.tasks)
    words = ["yes", "no", float("nan"), *["yes"] * (len(data.y) - 3)]
    with pytest.raises(DataError, match=r"1 rows, first: 2"):
        MSSLClassifier().fit(data.X, words, tasks=data.tasks)
    with pytest.raises(DataError, match=r"one class only \('yes'\)"):
        MSSLClassifier().fit(data.X, ["yes"] * len(data.y), tasks=data.tasks)


def test_other_labels_at_score_time(data):
    model = MSSLClassifier().fit(data.X, data.y, tasks=data.tasks)
    with pytest.raises(DataError, match=r"not fitted with \('2'\); it knows 0, 1\."):
        model.score(data.X, 2 * data.y, tasks=data.tasks)
    with pytest.raises(LayoutError, match="give one target per prediction"):
        model.score(data.X, data.y[:-1], tasks=data.tasks)
    with pytest.raises(UnseenTaskError):
        model.predict(data.X, tasks=np.full(len(data.y), "nowhere"), unseen="error")


def test_one_class_tasks_are_allowed_with_a_warning(data):
    y = np.where(data.tasks == data.task_names[0], 1, data.y)
    with pytest.warns(UserWarning, match="All targets of 1 tasks are of the second class") as told:
        model = MSSLClassifier(0.1, shared_mean=0.1).fit(data.X, y, tasks=data.tasks)
    assert [warning.filename for warning in told] == [__file__]
    own = data.tasks == data.task_names[0]
    assert np.all(model.predict(data.X[own], tasks=data.tasks[own]) == 1)
    assert np.any(model.coef_[0] != 0)  # through the mean that all tasks share
    assert np.all(np.isfinite(model.coef_))


def test_one_class_tasks_of_both_kinds_get_one_warning(data):
    y = np.where(data.tasks == data.task_names[0], 1, np.where(data.tasks == data.task_names[1], 0, data.y))
    said = r"first class \(tasks 'task 2'\)\. All targets of 1 tasks are of the second class \(tasks 'task 1'\)"
    for act in (MSSLClassifier(0.1).fit, MSSLClassifier(0.1).limits, MultiTaskClassifier().fit):
        with pytest.warns(UserWarning, match=said) as told:
            act(data.X, y, tasks=data.tasks)
        assert [warning.filename for warning in told] == [__file__]


@pytest.mark.parametrize("estimator", [MultiTaskClassifier, MultiTaskGLM])
def test_parts_that_are_none(data, estimator):
    for structure in ("x", 3, Independent):
        with pytest.raises(ParameterError, match=r"structure is .*give an object of mssl\.structures"):
            estimator(structure).fit(data.X, data.y, tasks=data.tasks)
    for penalty in ("x", 0.1, L1):
        with pytest.raises(ParameterError, match=r"penalty is .*give an object of mssl\.penalties"):
            estimator(None, penalty).fit(data.X, data.y, tasks=data.tasks)


# Layouts


def test_shared_layout_with_missing_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    Y = np.where(X @ rng.normal(size=(4, 3)) + rng.normal(size=(60, 3)) > 0, "yes", "no").astype(object)
    missing = rng.random(Y.shape) < 0.2
    Y[missing] = None
    model = MSSLClassifier(0.1, tol=1e-9, max_iter=2000).fit(X, Y)
    assert model.predict(X).shape == model.decision_function(X).shape == (60, 3)
    assert model.predict_proba(X).shape == (60, 3, 2)
    columns = [np.mean((model.predict(X) == Y)[~missing[:, k], k]) for k in range(3)]
    assert model.score(X, Y) == pytest.approx(np.mean(columns))
    rows = [np.flatnonzero(~missing[:, k]) for k in range(3)]
    long = MSSLClassifier(0.1, tol=1e-9, max_iter=2000).fit(
        np.concatenate([X[r] for r in rows]),
        np.concatenate([Y[r, k] for k, r in enumerate(rows)]),
        tasks=np.repeat(np.arange(3), [len(r) for r in rows]),
    )
    np.testing.assert_allclose(long.coef_, model.coef_, atol=1e-4)


def test_missing_numbers_in_the_aligned_layout():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 3, 4))
    Y = (X[:, :, 0] + rng.normal(size=(50, 3)) > 0).astype(float)
    Y[:5, 0] = np.nan
    model = MSSLClassifier(0.1).fit(X, Y)
    assert model.classes_.tolist() == [0.0, 1.0]
    assert model.predict(X).shape == (50, 3)
    assert 0.6 < model.score(X, Y, sample_weight=np.ones(50)) <= 1.0


def test_frames_and_model_selection():
    pd = pytest.importorskip("pandas")
    data = make_clustered_tasks(n_tasks=3, clusters=[[0, 1]], n_features=4, n_samples=30, family="binary",
                                as_frame=True, random_state=0)  # fmt: skip
    frame = data.X if isinstance(data.X, pd.DataFrame) else pd.DataFrame(data.X)
    model = MSSLClassifier(task_column="task")
    split = StratifiedKFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(model, frame, data.y, cv=split, scoring="roc_auc")
    assert np.all(scores > 0.5)
    search = GridSearchCV(model, {"graph_penalty": [0.05, 0.5]}, cv=split).fit(frame, data.y)
    assert search.best_estimator_.coef_.shape == (3, 4)


# Class weights


def test_class_weights_are_row_weights(data):
    weighted = MSSLClassifier(0.1, class_weight={0: 1.0, 1: 3.0}, tol=1e-9, max_iter=1000)
    weighted.fit(data.X, data.y, tasks=data.tasks)
    by_rows = MSSLClassifier(0.1, tol=1e-9, max_iter=1000)
    by_rows.fit(data.X, data.y, tasks=data.tasks, sample_weight=np.where(data.y == 1, 3.0, 1.0))
    np.testing.assert_allclose(weighted.coef_, by_rows.coef_, atol=1e-10)


def test_balanced_is_scikit_learns_task_by_task(data):
    model = MultiTaskClassifier(Independent(1.0), class_weight="balanced", features=Linear(scale=False), tol=1e-12)
    model.fit(data.X, data.y, tasks=data.tasks)
    for k, task in enumerate(model.tasks_):
        own = data.tasks == task
        single = LogisticRegression(
            C=1.0, class_weight="balanced", tol=1e-12, max_iter=10_000, solver="newton-cholesky"
        )
        single.fit(data.X[own], data.y[own])
        np.testing.assert_allclose(model.coef_[k], single.coef_[0], atol=1e-6)


@pytest.mark.parametrize("bad", ["even", {7: 1.0}, {0: -1.0}, 3.0])
def test_bad_class_weights(data, bad):
    with pytest.raises(ParameterError, match="class_weight is"):
        MSSLClassifier(class_weight=bad).fit(data.X, data.y, tasks=data.tasks)


# Pairs of classes


def test_pairs_and_votes_return_the_classes():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    pairs = pair_tasks(X, names)
    assert pairs.X.shape == (300, 4)
    assert np.array_equal(X[pairs.rows], pairs.X)
    assert pairs.names.tolist() == sorted(set(pairs.tasks.tolist()))
    for name, (first, second) in zip(pairs.names, pairs.pairs, strict=True):
        own = pairs.tasks == name
        assert set(names[pairs.rows[own]]) == {first, second}
        assert np.array_equal(names[pairs.rows[own]] == second, pairs.y[own] == 1)
    model = MSSLClassifier().fit(pairs.X, pairs.y, tasks=pairs.tasks)
    assert model.tasks_.tolist() == pairs.names.tolist()
    decisions = np.column_stack([model.decision_function(X, tasks=np.full(len(X), t)) for t in model.tasks_])
    assert np.mean(vote(decisions, pairs.pairs) == names) > 0.95


def test_pairs_of_sparse_rows_stay_sparse():
    X, y = load_iris(return_X_y=True)
    pairs = pair_tasks(sparse.csr_matrix(X), y)
    assert sparse.issparse(pairs.X)
    np.testing.assert_array_equal(pairs.X.toarray(), pair_tasks(X, y).X)


def test_perfect_decisions_recover_any_classes():
    rng = np.random.default_rng(0)
    classes = np.arange(12)
    y = rng.integers(0, 12, size=200)
    pairs = pair_tasks(np.zeros((200, 1)), np.r_[classes, y[12:]])
    y[:12] = classes
    order = np.column_stack([(y == b).astype(float) - (y == a) for a, b in pairs.pairs])
    assert np.array_equal(vote(order + 0.01 * rng.normal(size=order.shape), pairs.pairs), y)


def test_ties_go_to_the_surer_pair():
    # A circle: a beats b, b beats c, c beats a; c by the most.
    assert vote([[-1.0, 5.0, -1.0]], [("a", "b"), ("a", "c"), ("b", "c")]).tolist() == ["c"]


def test_bad_pairs():
    with pytest.raises(LayoutError, match=r"shape \(n,\)"):
        pair_tasks(np.zeros((3, 1)), np.zeros((3, 2)))
    with pytest.raises(LayoutError, match="give"):
        pair_tasks(np.zeros((3, 1)), np.zeros(4))
    with pytest.raises(DataError, match="at least two"):
        pair_tasks(np.zeros((3, 1)), np.zeros(3))
    with pytest.raises(LayoutError, match="for 1 pairs"):
        vote(np.zeros((3, 2)), [(0, 1)])
    with pytest.raises(DataError, match="NaN"):
        vote([[np.nan]], [(0, 1)])


def test_parameters_survive_cloning():
    model = MSSLClassifier(0.2, 0.5, class_weight="balanced", shared_mean=False)
    assert clone(model).get_params() == model.get_params()
    assert "loss" not in model.get_params()
