"""Every GLM: accuracy on clustered binary tasks, time against scikit-learn, and MNIST pairs at full size.

Run with ``python -m benchmarks.glm [accuracy] [letter] [poisson] [mnist]`` (default: the first three). ``letter`` and
``mnist`` read the data folder that MSSL_DATA names. One BLAS thread except for ``mnist``; ratios are of processor time,
the best of three runs each.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from mssl import MSSLClassifier, MSSLRegressor, MultiTaskClassifier
from mssl.datasets import load_letter, load_mnist_pairs, make_clustered_tasks
from mssl.estimators.prediction import LabelEstimator
from mssl.structures import Independent

Array = NDArray[np.float64]

GRAPH_PENALTIES = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
RIDGES = np.logspace(-1, 2, 9)


def binary_tasks(n_samples: int, seed: int) -> Bunch:
    """Thirteen tasks with 20 features, rows of W ~ N(0, (9/20) Σ), correlation 0.8 inside two clusters."""
    return make_clustered_tasks(
        "equicorrelated",
        n_features=20,
        n_samples=n_samples,
        n_test=1500,
        amplitude=3 / np.sqrt(20),
        shared_design=False,
        family="binary",
        intercept_scale=0.5,
        random_state=seed,
    )


def fold_numbers(tasks: NDArray, n_folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Fold of each row, balanced within every task."""
    folds = np.empty(len(tasks), dtype=np.int64)
    for task in np.unique(tasks):
        own = np.flatnonzero(tasks == task)
        folds[own] = rng.permutation(np.arange(len(own)) % n_folds)
    return folds


def log_loss(model: LabelEstimator, X: Array, y: Array, tasks: NDArray) -> float:
    eta = model.decision_function(X, tasks=tasks)
    return float(np.mean(np.logaddexp(0, eta) - y * eta))


def test_error_by_cv(models: Sequence[LabelEstimator], data: Bunch) -> float:
    """Test error in per cent of the model with the least log loss in 5-fold cross-validation."""
    folds = fold_numbers(data.tasks, 5, np.random.default_rng(0))
    losses = np.zeros(len(models))
    for fold in range(5):
        train, test = folds != fold, folds == fold
        for i, model in enumerate(models):
            model.fit(data.X[train], data.y[train], tasks=data.tasks[train])
            losses[i] += log_loss(model, data.X[test], data.y[test], data.tasks[test])
    best = models[int(np.argmin(losses))].fit(data.X, data.y, tasks=data.tasks)
    return 100 * (1 - best.score(data.X_test, data.y_test, tasks=data.tasks_test))


def improvement(n_samples: int, seeds: Sequence[int]) -> tuple[float, float, Array]:
    """Mean test errors of single-task ridge and of p-MSSL, and the improvement seed by seed."""
    errors = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # folds of few rows hold tasks with one class
        for seed in seeds:
            data = binary_tasks(n_samples, seed)
            ridge = test_error_by_cv([MultiTaskClassifier(Independent(a), tol=1e-4) for a in RIDGES], data)
            mssl = test_error_by_cv([MSSLClassifier(g, tol=1e-4) for g in GRAPH_PENALTIES], data)
            errors.append((ridge, mssl))
    table = np.array(errors)
    return float(table[:, 0].mean()), float(table[:, 1].mean()), table[:, 0] - table[:, 1]


def accuracy() -> Table:
    table = Table("rows a task", "ridge %", "MSSL %", "better by", "± s.e.", "bar", title="Test error, seeds 0-9")
    for n, bar in ((25, 2.0), (50, 2.0), (100, 0.5)):
        ridge, mssl, gains = improvement(n, range(10))
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        table.add_row(str(n), f"{ridge:.2f}", f"{mssl:.2f}", f"{gains.mean():.2f}", f"{error:.2f}", f"{bar}")
    return table


def best_of(runs: int, work) -> tuple[float, object]:
    times, result = [], None
    for _ in range(runs):
        began = time.process_time()
        result = work()
        times.append(time.process_time() - began)
    return min(times), result


def against_sklearn(name: str, X: Array, y: Array, tasks: NDArray, model, single) -> list[str]:
    """One certified fit against one scikit-learn fit a task, times the rounds, over three."""
    order = np.argsort(tasks, kind="stable")  # scikit-learn gets its tasks apart, so they come in order here
    X, y, tasks = X[order], y[order], tasks[order]
    centred = [(X[tasks == t] - X[tasks == t].mean(axis=0)) for t in np.unique(tasks)]
    scale = np.sqrt(sum((block**2).sum(axis=0) for block in centred) / len(X))
    scale[scale == 0] = 1.0
    blocks = [(block / scale, y[tasks == t]) for block, t in zip(centred, np.unique(tasks), strict=True)]
    ours, fitted = best_of(3, lambda: model.fit(X, y, tasks=tasks))
    theirs, _ = best_of(3, lambda: [single.fit(*block) for block in blocks])
    allowed = theirs * fitted.n_iter_ / 3
    return [name, f"{ours:.2f}", f"{theirs:.2f}", str(fitted.n_iter_), f"{allowed:.2f}", f"{allowed / ours:.1f}"]


def timing_table(title: str) -> Table:
    return Table("data", "MSSL s", "K single fits s", "rounds", "allowed s", "allowed / ours", title=title)


def letter() -> Table:
    data = load_letter()
    table = timing_table("Certified logistic fit (1e-5) against LogisticRegression (lbfgs)")
    for graph_penalty in (0.05, 0.3):
        model, single = MSSLClassifier(graph_penalty, tol=1e-5), LogisticRegression(tol=1e-5, max_iter=5000)
        table.add_row(*against_sklearn(f"letter, λ = {graph_penalty}", data.X, data.y, data.tasks, model, single))
    return table


def poisson() -> Table:
    table = timing_table("Certified Poisson fit (1e-5) against PoissonRegressor (newton-cholesky)")
    data = make_clustered_tasks(
        "equicorrelated",
        n_tasks=8,
        clusters=[range(4), range(4, 7)],
        n_features=128,
        n_samples=5700,
        shared_design=False,
        family="poisson",
        amplitude=1 / np.sqrt(128),
        random_state=0,
    )
    for graph_penalty in (0.05, 0.3):
        model = MSSLRegressor(graph_penalty, loss="poisson", tol=1e-5)
        single = PoissonRegressor(alpha=1 / 5700, solver="newton-cholesky", tol=1e-5)
        table.add_row(*against_sklearn(f"λ = {graph_penalty}", data.X, data.y, data.tasks, model, single))
    return table


def mnist() -> Table:
    table = Table("step", "seconds", "peak GiB", title="MNIST pairs at full size: 45 tasks, 784 pixels")

    def record(step: str, began: float) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        table.add_row(step, f"{time.perf_counter() - began:.0f}", f"{peak:.2f}")

    began = time.perf_counter()
    data = load_mnist_pairs()
    record("load", began)
    began = time.perf_counter()
    model = MSSLClassifier(0.3, tol=1e-5, verbose=1).fit(data.X, data.y, tasks=data.tasks)
    record(f"fit: {model.result_.message}", began)
    record(f"training accuracy {model.score(data.X, data.y, tasks=data.tasks):.4f}", began)
    return table


def main() -> None:
    """Print one table for each part asked for."""
    parts = sys.argv[1:] or ["accuracy", "letter", "poisson"]
    for part in parts:
        with threadpool_limits(None if part == "mnist" else 1):
            Console(width=120).print(globals()[part]())


if __name__ == "__main__":
    main()
