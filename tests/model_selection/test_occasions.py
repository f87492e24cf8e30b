"""Groups and times in every estimator with folds of its own: what is given is kept together, and is no feature."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold

from mssl import MSSLClassifier, MSSLClassifierCV, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM, StabilitySelection
from mssl.data.folds import read_splits
from mssl.exceptions import LayoutError
from mssl.model_selection import TaskBlockKFold, TaskGroupKFold

QUICK = {
    "param_grid": {"graph_penalty": [1.0, 0.1], "prior_strength": [1.0], "coef_penalty": [0.0], "shared_mean": [False]},
    "cv": 3,
}


def stations(seed=0, K=5, n=30, d=3, shared=0.0):
    """A frame of stations that share their days, and with ``shared`` also a part of their errors on a day."""
    rng = np.random.default_rng(seed)
    W = np.tile(rng.standard_normal(d), (K, 1)) if shared else rng.standard_normal((K, d))
    common = np.repeat(rng.standard_normal((n, d))[None], K, axis=0)
    X = np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.standard_normal((K, n, d))
    errors = np.sqrt(shared) * rng.standard_normal(n) + np.sqrt(1 - shared) * rng.standard_normal((K, n))
    y = np.einsum("knd,kd->kn", X, W) + errors
    frame = pd.DataFrame(X.reshape(-1, d), columns=list("abcdefgh"[:d]))
    frame["site"] = np.repeat([f"s{k}" for k in range(K)], n)
    frame["day"] = np.tile(np.arange(n), K)
    order = rng.permutation(len(frame))
    return frame.iloc[order].reset_index(drop=True), y.ravel()[order]


MODELS = {
    "regressor": MSSLRegressorCV(MSSLRegressor(task_column="site"), **QUICK),
    "classifier": MSSLClassifierCV(MSSLClassifier(task_column="site"), **QUICK),
    "glm": MSSLRegressorCV(MultiTaskGLM(task_column="site"), {"penalty__alpha": [0.0, 1.0]}, refit="best", cv=3),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("parameter", "splitter"), [("groups", TaskGroupKFold(3)), ("order", TaskBlockKFold(3))])
def test_a_column_is_a_vector_and_no_feature(name, parameter, splitter):
    frame, y = stations()
    y = (y > 0).astype(int) if name == "classifier" else y
    model = MODELS[name]
    by_column = model.fit(frame, y, **{parameter: "day"}).best_estimator_
    features = frame.drop(columns="day")
    by_vector = model.fit(features, y, **{parameter: frame["day"]}).best_estimator_
    np.testing.assert_array_equal(by_column.coef_, by_vector.coef_)
    assert list(by_column.features_) == ["a", "b", "c"]
    np.testing.assert_array_equal(by_column.predict(frame), by_vector.predict(features))
    np.testing.assert_array_equal(by_column.predict(features), by_vector.predict(features))
    given = (frame["day"], None) if parameter == "groups" else (None, frame["day"])
    folds = list(splitter.of_tasks(features, y, frame["site"], *given))
    scores = [
        clone(model).set_params(cv=cv).fit(frame, y, **{parameter: "day"}).cv_results_["mean_test_score"]
        for cv in (3, folds)
    ]
    np.testing.assert_array_equal(*scores)


def test_splitters_of_scikit_learn_get_the_groups():
    frame, y = stations()
    model = MSSLRegressorCV(MSSLRegressor(task_column="site"), **{**QUICK, "cv": GroupKFold(3)}).fit(
        frame, y, groups="day"
    )
    assert model.n_splits_ == 3
    pairs = read_splits(GroupKFold(3), frame, y, frame["site"], groups=frame["day"])
    days = frame["day"].to_numpy()
    assert all(not set(days[train]) & set(days[test]) for train, test in pairs)


def test_columns_that_are_not_there_are_named():
    frame, y = stations()
    model = MODELS["regressor"]
    with pytest.raises(LayoutError, match="groups is 'date'; give one of the columns of X"):
        model.fit(frame, y, groups="date")
    with pytest.raises(LayoutError, match="order is 'day'; X has no named columns"):
        MSSLRegressorCV().fit(frame[["a", "b"]].to_numpy(), y, order="day")
    with pytest.raises(LayoutError, match="groups has 3 entries for 150 rows"):
        model.fit(frame, y, groups=[1, 2, 3])


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("parameter", ["groups", "order"])
def test_halves_of_stability_selection_part_no_group(parameter, pairs):
    frame, y = stations(n=24)
    frame["day"] //= 2
    chosen = StabilitySelection(
        MSSLRegressor(task_column="site"),
        subsample="samples",
        complementary_pairs=pairs,
        n_subsamples=6,
        block_length=2,
    )
    data = chosen.estimator._read(frame.drop(columns="day"), y, None, None).with_occasions(**{parameter: frame["day"]})
    masks = chosen._half_samples(data, None, np.random.default_rng(0))
    groups = data.groups if parameter == "groups" else data.order // 2
    assert len({mask.tobytes() for mask in masks}) > 2
    for mask in masks:
        assert not set(groups[mask]) & set(groups[~mask])
        assert set(data.task_of_row[mask]) == set(range(5))
        assert abs(mask.mean() - 0.5) < 0.1
    if pairs:
        assert np.all(masks[0] ^ masks[1])
    chosen.set_params(n_points=3, random_state=0).fit(frame, y, **{parameter: "day"})
    assert chosen.graph_.n_edges >= 0


def test_random_folds_over_shared_days_are_too_sure():
    """Days that stations share: folds that part them score better than new days would, whole days do not."""
    gaps = []
    for seed in range(6):
        frame, y = stations(seed, K=8, n=16, d=8, shared=0.9)
        grid = {"graph_penalty": [1.0], "coef_penalty": [0.0], "prior_strength": [20.0], "shared_mean": [1.0]}
        random, whole = (
            MSSLRegressorCV(MSSLRegressor(task_column="site"), grid, cv=4)
            .fit(frame.drop(columns="day"), y, groups=groups)
            .best_score_
            for groups in (None, frame["day"])
        )
        gaps.append(random - whole)
    assert np.mean(gaps) > 2 * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
