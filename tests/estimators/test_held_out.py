"""Laws of the score that fits report: that of the mixture, by rows that had no say in it."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit

import mssl
from mssl import (
    BayesianMSSLClassifier,
    BayesianMSSLRegressor,
    MSSLClassifierCV,
    MSSLRegressorCV,
    MultiTaskClassifier,
)
from mssl.datasets import make_clustered_tasks
from mssl.evidence.choice import _crossed
from mssl.judge.held_out import stack
from mssl.losses import Bernoulli, Calibration, Gaussian
from mssl.metrics import HeldOut, area_under_curve, task_means
from mssl.model_selection import TaskKFold
from mssl.structures import Independent


def named(m):
    """The candidate of a number; the second one has nothing that relates the tasks."""
    return SimpleNamespace(number=m, options=SimpleNamespace(structure="ridge" if m == 1 else "mean"))


class Judged:
    """What three candidates are taken to have forecast."""

    def __init__(self, loss, seed=0):
        random = np.random.default_rng(seed)
        task = np.repeat([0, 1, 2], 20)
        y = random.normal(size=60)
        y = (y > 0).astype(float) if loss.name == "bernoulli" else y
        self.data = mssl.data.TaskData(
            np.zeros((60, 1)), y, random.integers(1, 3, 60).astype(float), np.arange(0, 61, 20), np.arange(3), "long"
        )
        splits = TaskKFold(4).split(y, y, task)
        self.folds = [(np.isin(np.arange(60), train), np.isin(np.arange(60), test)) for train, test in splits]
        self.loss, (self.fold, self.rows) = loss, np.nonzero([test for _, test in self.folds])
        self.y, self.task, self.counts = (of[self.rows] for of in (y, task, self.data.weights))
        shape = (3, 60)
        self.means, self.variances = random.normal(size=shape), random.uniform(0.5, 2, size=shape)

    def forecast(self, candidate):
        m = candidate if isinstance(candidate, int) else candidate.number
        return self.loss.forecast(self.means[m], self.variances[m], np.full(60, 0.3), np.full(60, 30.0))


def test_the_mixture_of_a_fold_is_made_from_the_others(monkeypatch):
    """Brute force, of labels: weights by the other folds' rows, probabilities averaged, areas within folds."""
    monkeypatch.setattr("mssl.evidence.choice.calibrate", lambda *rows: Calibration())
    held = Judged(Bernoulli())
    found = _crossed(held, [named(m) for m in range(3)])
    y, counts, task = held.y, held.counts, held.task
    density = np.column_stack([held.forecast(m).log_density(y) for m in range(3)])
    p = np.column_stack([held.forecast(m).expectation() for m in range(3)])
    fold = np.repeat(np.arange(4), [test.sum() for _, test in held.folds])
    lost, base, areas = np.empty(60), np.empty(60), []
    for number in range(4):
        own = fold == number
        weights = stack(density[~own], counts[~own])
        weights = np.where(weights >= 0.03, weights, 0.0)
        mixture = p[own] @ weights / weights.sum()
        lost[own] = -np.log(np.where(y[own] == 1, mixture, 1 - mixture))
        areas.append(area_under_curve(y[own], mixture, counts[own]))
        rate = task_means(y[~own], task[~own], counts[~own], 3)[task[own]]
        base[own] = -np.log(np.where(y[own] == 1, rate, 1 - rate))
    assert found.score == pytest.approx(np.average(lost, weights=counts))
    assert found.base_rate == pytest.approx(np.average(base, weights=counts))
    assert found.auc == pytest.approx(np.mean(areas))
    assert found.separate == pytest.approx(-np.average(density[:, 1], weights=counts))


def test_calibration_of_a_fold_does_not_see_its_rows(monkeypatch):
    held, seen = Judged(Gaussian()), []
    monkeypatch.setattr(
        "mssl.evidence.choice.calibrate", lambda part, y, *more: seen.append(y) or Calibration(1.0, 1.0)
    )
    found = _crossed(held, [named(0)])
    for (_, test), y in zip(held.folds, seen, strict=True):
        assert not set(held.data.y[test]) & set(y)
        assert len(y) + test.sum() == 60
    whole = held.forecast(0)
    assert found.score == pytest.approx(np.average(whole.log_density(held.y), weights=held.counts))
    first = held.fold == 0
    held.folds, held.means, held.variances = held.folds[:1], held.means[:, first], held.variances[:, first]
    held.rows, held.fold, held.y, held.task, held.counts = (
        of[first] for of in (held.rows, held.fold, held.y, held.task, held.counts)
    )
    assert _crossed(held, [named(0)]) is None  # one fold: there are no others


def test_labels_of_pure_noise_are_reported_as_such():
    """As good as new rows are predicted, on average; folds that know the rates of tasks say .02 less, and .57."""
    reported, true, areas = [], [], []
    x, weight = np.polynomial.hermite_e.hermegauss(15)
    for seed in range(20):
        random = np.random.default_rng(seed)
        X, tasks, y = random.normal(size=(240, 1)), np.repeat(np.arange(30), 8), random.random(240) < 0.5
        model = BayesianMSSLClassifier("mean", features="linear").fit(X, y, tasks=tasks)
        eta = np.array([model.decision_function(x[:, None], tasks=np.full(15, k)) for k in range(30)])
        true.append(float(np.mean(-0.5 * np.log(expit(eta) * expit(-eta)) @ weight) / weight.sum()))
        reported.append(model.held_out_.score)
        areas.append(model.held_out_.auc)
    gap = np.array(reported) - true
    assert abs(gap.mean()) < 0.005 + 2 * gap.std(ddof=1) / np.sqrt(20)
    assert abs(np.mean(areas) - 0.5) < 3 * np.std(areas, ddof=1) / np.sqrt(20)


def test_numbers_of_pure_noise_are_not_explained():
    shares = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        X, y, tasks = random.normal(size=(160, 2)), random.normal(size=160), np.repeat(np.arange(20), 8)
        model = BayesianMSSLRegressor("mean", features="linear").fit(X, y, tasks=tasks)
        shares.append(model.held_out_.explained)
    assert -0.05 < np.mean(shares) < np.std(shares, ddof=1) / np.sqrt(6)


def make(kind):
    data = make_clustered_tasks(family="binary" if "labels" in kind else "gaussian", n_tasks=4, clusters=[[0, 1]],
                                n_features=3, n_samples=25, random_state=0)  # fmt: skip
    grid = {
        "param_grid": {"graph_penalty": [0.3, np.inf], "coef_penalty": [0.0], "prior_strength": [0.5, 1.0, 2.0]},
        "cv": 3,
    }
    model = {
        "labels": MSSLClassifierCV(**grid),
        "numbers": MSSLRegressorCV(**grid),
        "labels, best": MSSLClassifierCV(refit="best", **grid),
        "graph": MSSLRegressorCV(selection="graph", search="grid", **grid),
        "bayesian labels": BayesianMSSLClassifier("mean", features="linear", cv=3),
        "bayesian": BayesianMSSLRegressor(features="linear", cv=3),
    }[kind]
    if kind == "graph":
        data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], n_features=8, n_samples=25, random_state=0)
    return model.fit(data.X, data.y, tasks=data.tasks), data


@pytest.mark.parametrize("kind", ["labels", "numbers", "bayesian", "bayesian labels", "graph"])
def test_it_is_kept_by_files_and_pickles_and_printed(kind, tmp_path):
    model, _ = make(kind)
    found = model.held_out_
    assert isinstance(found, HeldOut)
    mssl.save(model, tmp_path / "m.npz")
    assert mssl.load(tmp_path / "m.npz").held_out_ == pickle.loads(pickle.dumps(model)).held_out_ == found
    assert f"{found.score:.4g}" in str(model.summary())
    assert (found.base_rate is None) == ("labels" not in kind)


def test_a_search_is_judged_by_what_the_other_folds_choose():
    model, _ = make("labels, best")
    table = model.cv_results_
    scores = np.array([table[f"split{k}_test_score"] for k in range(3)])
    chosen = [int(np.argmax(np.delete(scores, k, axis=0).mean(axis=0))) for k in range(3)]
    assert model.held_out_.score == pytest.approx(-scores[np.arange(3), chosen].mean() / 2)
    assert model.best_score_ == scores.mean(axis=0).max()


def test_an_averaged_search_is_judged_by_its_average():
    """Brute force: refits to each training part, their coefficients averaged, judged on the test rows."""
    model, data = make("labels")
    assert len(model.members_) > 1
    lost = []
    for fold, (train, test) in enumerate(TaskKFold(3).split(data.X, data.y, data.tasks)):
        table = model.cv_results_
        others = np.delete(np.array([table[f"split{k}_test_score"] for k in range(3)]), fold, axis=0)
        tasks = data.tasks[test]
        assert others.shape == (2, len(table["params"]))
        part = model._template().set_params(tol=model.search_tol)
        fits = [
            part.set_params(**params).fit(data.X[train], data.y[train], tasks=data.tasks[train])
            .decision_function(data.X[test], tasks=tasks)
            for params in model.members_
        ]  # fmt: skip
        eta, hit = np.mean(fits, axis=0), data.y[test] == model.classes_[1]
        rows = -np.log(expit(np.where(hit, eta, -eta)))
        lost.append(np.mean([rows[tasks == task].mean() for task in model.tasks_]))
    assert model.held_out_.score == pytest.approx(np.mean(lost), abs=0.01)  # the other folds' members may be others


def test_base_rates_of_a_search_do_not_see_the_rows_that_they_are_held_to():
    random = np.random.default_rng(0)
    X, tasks, y = random.normal(size=(60, 2)), np.repeat([0, 1, 2], 20), random.random(60) < 0.4
    folds = list(TaskKFold(3).split(X, y, tasks))
    model = MSSLRegressorCV(
        MultiTaskClassifier(Independent()), {"structure__alpha": [1.0, 10.0]}, refit="best", cv=folds
    )
    lost = []
    for train, test in folds:
        rate = task_means(y[train].astype(float), tasks[train], None, 3)[tasks[test]]
        rows = -np.log(np.where(y[test], rate, 1 - rate))
        lost.append(np.mean([rows[tasks[test] == k].mean() for k in range(3)]))
    assert model.fit(X, y, tasks=tasks).held_out_.base_rate == pytest.approx(np.mean(lost))


def test_where_nothing_was_held_out_the_reason_is_told():
    data = make_clustered_tasks(n_tasks=3, clusters=[[0, 1]], n_features=3, n_samples=25, random_state=0)
    plain = BayesianMSSLRegressor("mean", features="linear", residual_covariance="independent", calibrate=False)
    with pytest.raises(AttributeError, match="nothing was held out"):
        _ = plain.fit(data.X, data.y, tasks=data.tasks).held_out_
    one = [(np.arange(0, len(data.y), 2), np.arange(1, len(data.y), 2))]
    search = MSSLRegressorCV(
        param_grid={"graph_penalty": [0.3, 1.0], "coef_penalty": [0.0], "prior_strength": [1.0]}, cv=one
    ).fit(data.X, data.y, tasks=data.tasks)
    with pytest.raises(AttributeError, match="no other folds can choose"):
        _ = search.held_out_
    for model in (plain, search):
        assert not hasattr(model, "held_out_")
        assert "held-out" not in str(model.summary())
