"""Stacking and what folds choose."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from mssl import BayesianMSSLClassifier, BayesianMSSLRegressor
from mssl.data.layouts import read_tasks
from mssl.datasets import make_clustered_tasks
from mssl.evidence.choice import Candidate, Part, Trials
from mssl.evidence.fit import Options
from mssl.judge.held_out import stack
from mssl.losses import Bernoulli, Forecast, Gaussian
from mssl.metrics import task_means


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 40))
def test_stacking_gives_the_best_mixture(seed: int, members: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    densities = rng.normal(size=(rows, members))
    prior = 1.0
    w = stack(densities, prior=prior)
    assert w.sum() == pytest.approx(1)
    assert np.all(w > 0)

    def objective(weights: np.ndarray) -> float:
        return float(np.sum(np.log(np.exp(densities) @ weights)) + prior / members * np.sum(np.log(weights)))

    def lost(q: np.ndarray) -> float:
        weights = np.exp(q - q.max())
        return -objective(np.maximum(weights / weights.sum(), 1e-12))

    best = -minimize(lost, np.zeros(members), method="BFGS").fun
    assert objective(w) >= best - 1e-2


def test_stacking_laws(rng: np.random.Generator) -> None:
    densities = rng.normal(size=(30, 3))
    w = stack(densities)
    order = [2, 0, 1]
    np.testing.assert_allclose(stack(densities[:, order]), w[order], atol=1e-5)
    # What all members give a row alike changes nothing, however small it is.
    np.testing.assert_allclose(stack(densities - 900 * rng.random((30, 1))), w, atol=1e-5)
    counts = rng.integers(0, 4, 30)
    np.testing.assert_allclose(
        stack(densities, counts.astype(float)), stack(np.repeat(densities, counts, axis=0)), atol=1e-4
    )
    np.testing.assert_allclose(stack(np.zeros((5, 4))), 0.25)
    # Two equal members share what one of them would have.
    twin = stack(np.column_stack([densities, densities[:, 0]]), prior=1e-6)
    alone = stack(densities, prior=1e-6)
    assert twin[0] + twin[3] == pytest.approx(alone[0], abs=5e-3)


@pytest.mark.parametrize("structure", ["ridge", "mean+ard", "iw"])
@pytest.mark.parametrize("loss", [Gaussian(), Bernoulli()], ids=lambda loss: loss.name)
def test_forecasts_of_held_out_rows_do_not_know_their_targets(loss, structure, rng) -> None:
    """Other targets of a fold's held-out rows change nothing that is said of them, to the last digit."""
    X, tasks = rng.normal(size=(120, 4)), np.repeat(np.arange(6), 20)
    y = (X[:, 0] + rng.normal(size=120) > 0).astype(float)
    fold = np.arange(120) % 3
    folds = [(fold != number, fold == number) for number in range(3)]

    def said(targets: np.ndarray) -> Forecast:
        trials = Trials(read_tasks(X, targets, tasks=tasks), folds, loss)
        trials.judge(Candidate("linear", Options(structure=structure)))
        return trials.forecast(next(iter(trials.densities)))

    known = said(y)
    for number in range(3):
        other = said(np.where(fold == number, 1 - y, y))
        rows = slice(number * 40, (number + 1) * 40)
        np.testing.assert_array_equal(other.mean[rows], known.mean[rows])
        np.testing.assert_array_equal(other.variance[rows], known.variance[rows])


def test_curves_that_do_not_lead_clearly_still_get_their_weight(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, tasks = rng.uniform(-2, 2, size=(120, 2)), np.repeat([0, 1, 2], 40)
    y = X[:, 0] ** 2 + X[:, 1] + 0.1 * rng.normal(size=120)
    monkeypatch.setattr(Trials, "lead", lambda *candidates: (0.0, 1.0))
    model = BayesianMSSLRegressor().fit(X, y, tasks=tasks)
    best = model.ensemble_.members[0]
    assert best.name == "mean+ard, spline"
    assert best.weight > 0.9
    assert best.width == model.coef_.shape[1] == model.ensemble_.maps.transform(X).shape[1]
    assert np.mean((model.predict(X, tasks=tasks) - y) ** 2) < 0.05


@pytest.mark.parametrize("unsettled", [{"mean"}, {"ridge", "mean", "mean+ard", "iw", "iw+ard"}])
def test_a_fit_to_labels_that_swings_to_the_end_is_no_member(unsettled, monkeypatch):
    data = make_clustered_tasks(family="binary", n_tasks=4, clusters=[[0, 1], [2, 3]], n_features=3, random_state=0)
    fit = Part.fit

    def swinging(part, candidate):
        found = fit(part, candidate)
        return replace(found, promise=np.inf) if candidate.name in unsettled else found

    monkeypatch.setattr(Part, "fit", swinging)
    model = BayesianMSSLClassifier(features="linear", cv=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, data.y, tasks=data.tasks)
    names = {member.name for member in model.ensemble_.members}
    assert sum(model.ensemble_.weights) == pytest.approx(1.0)
    assert names
    assert not names & unsettled or names <= unsettled
    assert len(unsettled) > 1 or "mean" not in names


def test_log_odds_of_huge_predictors_are_finite():
    f = np.array([-2000.0, -30.0, 0.0, 30.0, 2000.0])
    forecast = Bernoulli().forecast(f, np.ones(5), np.ones(5), np.full(5, 30.0))
    odds = forecast.log_odds()
    assert np.all(np.isfinite(odds))
    np.testing.assert_allclose(odds, -odds[::-1], atol=1e-9)
    assert np.all(np.diff(odds) > 0)


def test_share_explained_of_held_out_rows_is_that_of_cross_validated_predictions() -> None:
    """Of one candidate it is what refits without each fold's rows predict."""
    from mssl import BayesianMSSLRegressor
    from mssl.model_selection import TaskKFold

    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(90, 3)), np.repeat(np.arange(3), 30)
    y = X @ [1.0, -1.0, 0.5] + task + 0.5 * rng.normal(size=90)
    folds = list(TaskKFold(3).split(X, y, task))
    model = BayesianMSSLRegressor("mean", features="linear", residual_covariance="independent", cv=folds).fit(
        X, y, tasks=task
    )
    predicted, base = np.empty(90), np.empty(90)
    for train, test in folds:
        part = BayesianMSSLRegressor(
            "mean", features="linear", residual_covariance="independent", calibrate=False, tol=3e-3
        )
        predicted[test] = part.fit(X[train], y[train], tasks=task[train]).predict(X[test], tasks=task[test])
        base[test] = task_means(y[train], task[train], None, 3)[task[test]]
    expected = 1 - np.sum((y - predicted) ** 2) / np.sum((y - base) ** 2)
    assert model.held_out_.explained == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("lead", "error", "wins"), [(5.0, 6.0, False), (11.0, 6.0, False), (0.5, 0.1, False), (13.0, 6.0, True)]
)
def test_curves_win_where_their_lead_is_beyond_its_error(lead, error, wins, rng, monkeypatch) -> None:
    """A lead within two standard errors, or within what fits leave open, makes no structure be judged with curves."""
    X, tasks = rng.normal(size=(60, 2)), np.repeat([0, 1, 2], 20)
    monkeypatch.setattr(Trials, "lead", lambda *candidates: (lead, error))
    monkeypatch.setattr(Trials, "trails", lambda *candidates: False)
    model = BayesianMSSLRegressor(cv=2).fit(X, X[:, 0] + rng.normal(size=60), tasks=tasks)
    others = [name for name, _, _ in model.ensemble_.judged if name.startswith(("ridge", "mean,", "mean+ard,"))]
    curved = [name for name in others if "spline" in name and not name.startswith("mean+ard")]
    assert bool(curved) is wins


@pytest.mark.parametrize("occasions", [False, True])
def test_the_error_of_a_lead_is_over_cells_and_over_tasks(monkeypatch, occasions):
    """What rows of a task and fold, or of an occasion, have in common is counted as often as there are such groups."""
    rng = np.random.default_rng(0)
    n, K = 20, 4
    tasks, days = np.repeat(np.arange(K), n), np.tile(np.arange(n), K)
    data = read_tasks(rng.normal(size=(n * K, 1)), np.zeros(n * K), tasks=tasks, groups=days if occasions else None)
    fold = days % 5
    trials = Trials(data, [(fold != f, fold == f) for f in range(5)], Gaussian())
    common = rng.normal(size=n)[days] if occasions else rng.normal(size=(5, K))[fold, tasks]
    densities = {"one": common[trials.rows], "other": np.zeros(n * K)}
    monkeypatch.setattr(trials, "judge", lambda name: densities[name])
    total, error = trials.lead("one", "other")
    groups = days if occasions else K * fold + tasks
    sums = np.array([common[groups == group].sum() for group in np.unique(groups)])
    by_task = np.array([common[tasks == task].sum() for task in range(K)])
    assert total == pytest.approx(common.sum())
    expected = max(np.sqrt(len(part)) * np.std(part, ddof=1) for part in (sums, by_task))
    assert error == pytest.approx(expected)
