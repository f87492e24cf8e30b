"""The real classification sets fit and certify; they are read from the folder that MSSL_DATA names."""

import os

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from mssl import MSSLClassifier, pair_tasks, vote
from mssl.datasets import load_digit_pairs, load_landmine, load_letter, load_mnist_pairs, load_spam
from mssl.solvers.base import Status

needs_data = pytest.mark.skipif("MSSL_DATA" not in os.environ, reason="MSSL_DATA names no folder of real data")


def half(tasks: np.ndarray, share: float = 0.5, seed: int = 0) -> np.ndarray:
    """Training rows, the same share of every task."""
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(tasks), dtype=bool)
    for task in np.unique(tasks):
        own = rng.permutation(np.flatnonzero(tasks == task))
        chosen[own[: round(share * len(own))]] = True
    return chosen


def fit_half(data, share=0.5, X=None, **parameters):
    X = data.X if X is None else X
    train = half(data.tasks, share)
    model = MSSLClassifier(**({"graph_penalty": 0.1, "tol": 1e-5} | parameters))
    model.fit(X[train], data.y[train], tasks=data.tasks[train])
    assert model.result_.status is Status.CONVERGED
    assert model.result_.relative_gap <= 1e-5
    return model, X[~train], data.y[~train], data.tasks[~train]


@needs_data
def test_landmine():
    model, X, y, tasks = fit_half(load_landmine())
    decision = model.decision_function(X, tasks=tasks)
    areas = [roc_auc_score(y[tasks == task], decision[tasks == task]) for task in model.tasks_]
    assert np.mean(areas) > 0.7


@needs_data
def test_letter():
    model, X, y, tasks = fit_half(load_letter(), share=0.2)
    assert model.score(X, y, tasks=tasks) > 0.85


@needs_data
@pytest.mark.parametrize("coef_penalty", [0.0, 1.0])
def test_spam(coef_penalty):
    mails = load_spam(users=15)
    counts = mails.X.copy()
    counts.data = np.log1p(counts.data)
    model, X, y, tasks = fit_half(mails, share=0.25, X=counts, coef_penalty=coef_penalty)
    assert model.score(X, y, tasks=tasks) > 0.88
    assert model.mean_variance_ > 0  # all users agree on much of what is spam


@needs_data
def test_some_of_mnist():
    model, X, y, tasks = fit_half(load_mnist_pairs(subsample=60, random_state=0))
    assert model.score(X, y, tasks=tasks) > 0.9


def test_digits_by_pairs_and_votes():
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    train = half(digits, 0.3)
    pairs = pair_tasks(pixels[train], digits[train])
    assert len(pairs.names) == len(load_digit_pairs().task_names) == 45
    model = MSSLClassifier(0.3, tol=1e-4).fit(pairs.X, pairs.y, tasks=pairs.tasks)
    test = pixels[~train]
    decisions = np.column_stack([model.decision_function(test, tasks=np.full(len(test), t)) for t in model.tasks_])
    assert np.mean(vote(decisions, pairs.pairs) == digits[~train]) > 0.93


@pytest.mark.slow
@pytest.mark.parametrize(("n_samples", "bar"), [(25, 2.0), (50, 2.0), (100, 0.5)])
def test_related_tasks_beat_single_task_ridge(n_samples, bar):
    from benchmarks.glm import improvement

    assert improvement(n_samples, range(10))[2].mean() >= bar
