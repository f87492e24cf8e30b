"""Bayesian estimators on synthetic tasks whose truth is known: excess risk, coverage, cost.

    python -m benchmarks.evidence                     # every cell, 10 draws each
    python -m benchmarks.evidence centres --draws 50  # one family
    python -m benchmarks.evidence --seed 1000         # other draws

Excess risk is the mean over tasks of ‖ŵ − w‖² (features are standard normal), as a ratio to that of ridge around a
shared mean (structure "mean") on the same draws, with its standard error over draws. Coverage is that of 90 % intervals
for new rows. For errors that tasks share on one occasion the rivals are pooled, ridge and ridge around a mean, tuned by
folds over whole occasions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from mssl import BayesianMSSLRegressor, MSSLRegressorCV, MultiTaskGLM
from mssl.datasets import make_clustered_tasks
from mssl.structures import Independent

SIZES = ((30, 15), (30, 30), (30, 60), (100, 60))
STRUCTURES = ("ridge", "mean", "mean+ard", "iw", "iw+ard", "auto")
AMPLITUDE = 0.3
K = 13
STRENGTHS = np.geomspace(1e-2, 1e3, 11).tolist()
MEANS = np.geomspace(1e-4, 1e0, 7).tolist()


def tasks_in_clusters(seed: int, d: int, n: int, clusters: Any = None) -> Any:
    """Tasks with rows of their own; without clusters they are unrelated."""
    more = {} if clusters is None else {"clusters": clusters}
    return make_clustered_tasks(
        n_features=d, n_samples=n, amplitude=AMPLITUDE, shared_design=False, random_state=seed, **more
    )


def covered(model: Any, truth: Any, rng: np.random.Generator, rows: int = 200) -> float:
    """Share of new rows inside 90 % intervals."""
    number = len(truth.coef)
    X = rng.standard_normal((number * rows, truth.coef.shape[1]))
    tasks = np.repeat(truth.task_names, rows)
    y = np.sum(X * np.repeat(truth.coef, rows, axis=0), axis=1) + rng.standard_normal(len(X))
    low, high = model.predict_interval(X, tasks=tasks).T
    return float(np.mean((low <= y) & (y <= high)))


def cells(kind: str, draws: int, seed: int) -> None:
    """Excess risk, coverage and seconds of every structure on one family of tasks."""
    for d, n in SIZES:
        risks: dict[str, list[float]] = {}
        cover: dict[str, list[float]] = {}
        cost: dict[str, list[float]] = {}
        for draw in range(draws):
            data = tasks_in_clusters(seed + draw, d, n, () if kind == "unrelated" else None)
            for structure in STRUCTURES:
                model = BayesianMSSLRegressor(structure, features="linear")
                began = process_time()
                model.fit(data.X, data.y, tasks=data.tasks)
                cost.setdefault(structure, []).append(process_time() - began)
                risks.setdefault(structure, []).append(float(np.mean(np.sum((model.coef_ - data.coef) ** 2, axis=1))))
                cover.setdefault(structure, []).append(covered(model, data, np.random.default_rng(draw)))
        base = np.asarray(risks["mean"])
        for structure in STRUCTURES:
            mine = np.asarray(risks[structure])
            ratio = mine.mean() / base.mean()
            error = np.std(mine - ratio * base, ddof=1) / np.sqrt(draws) / base.mean()
            told = (
                f"{kind:10s} d={d:3d} n={n:2d} {structure:9s} risk {mine.mean():6.3f} ratio {ratio:.3f} ± {error:.3f}"
            )
            print(f"{told}  coverage {np.mean(cover[structure]):.3f}  {np.mean(cost[structure]):.2f} s", flush=True)


def shared_errors(rho: float, seed: int, d: int = 10, n: int = 40, tasks: int = 8) -> tuple[Any, ...]:
    """One design, unrelated weights around a mean, errors with equal correlations ρ between all tasks."""
    rng = np.random.default_rng(seed)
    W = 0.3 * rng.standard_normal(d) + 0.2 * rng.standard_normal((tasks, d))
    root = np.linalg.cholesky((1 - rho) * np.eye(tasks) + rho)

    def draw(rows: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.standard_normal((rows, d))
        return X, X @ W.T + rng.standard_normal((rows, tasks)) @ root.T

    return (*draw(n), *draw(500))


def occasions(draws: int, seed: int) -> None:
    """Errors that tasks share on one occasion."""
    rivals: dict[str, Callable[[], Any]] = {
        "ridge": lambda: MSSLRegressorCV(MultiTaskGLM(Independent()), {"structure__alpha": STRENGTHS}, refit="best"),
        "ridge around a mean": lambda: MSSLRegressorCV(
            MultiTaskGLM(Independent(), shared_mean=True),
            {"structure__alpha": STRENGTHS[3:], "shared_mean": MEANS},
            refit="best",
        ),
        "pooled": lambda: MSSLRegressorCV(
            MultiTaskGLM(Independent(1e6), shared_mean=True), {"shared_mean": MEANS}, refit="best"
        ),
        "bayesian": lambda: BayesianMSSLRegressor(features="linear"),
    }
    for rho in (0.3, 0.6, 0.9):
        errors: dict[str, list[float]] = {}
        cover = []
        for draw in range(draws):
            X, Y, X_new, Y_new = shared_errors(rho, seed + draw)
            for name, make in rivals.items():
                model = make().fit(X, Y)
                errors.setdefault(name, []).append(float(np.mean((model.predict(X_new) - Y_new) ** 2)))
                if name == "bayesian":
                    low, high = np.moveaxis(model.predict_interval(X_new), -1, 0)
                    cover.append(float(np.mean((low <= Y_new) & (Y_new <= high))))
        best = min((name for name in rivals if name != "bayesian"), key=lambda name: float(np.mean(errors[name])))
        gap = np.asarray(errors["bayesian"]) - np.asarray(errors[best])
        means = ", ".join(f"{name} {np.mean(found):.4f}" for name, found in errors.items())
        told = f"shared errors ρ={rho}: {means}; difference to {best} {gap.mean():+.4f}"
        print(f"{told} ± {gap.std(ddof=1) / np.sqrt(draws):.4f}  coverage {np.mean(cover):.3f}", flush=True)


def new_tasks(draws: int, seed: int) -> None:
    """Coverage for tasks that have no rows."""
    cover = []
    for draw in range(draws):
        rng = np.random.default_rng(seed + draw)
        d, n, known = 10, 30, 20
        W = 0.3 * rng.standard_normal(d) + 0.2 * rng.standard_normal((known + 10, d))
        b = 0.5 * rng.standard_normal(known + 10)
        X = rng.standard_normal((known + 10, n, d))
        y = np.einsum("knd,kd->kn", X, W) + b[:, None] + rng.standard_normal((known + 10, n))
        names = np.repeat(np.arange(known + 10), n)
        seen = names < known
        model = BayesianMSSLRegressor(features="linear").fit(X.reshape(-1, d)[seen], y.ravel()[seen], tasks=names[seen])
        low, high = model.predict_interval(X.reshape(-1, d)[~seen], tasks=names[~seen]).T
        cover.append(float(np.mean((low <= y.ravel()[~seen]) & (y.ravel()[~seen] <= high))))
    print(f"new tasks: coverage {np.mean(cover):.3f} ± {np.std(cover, ddof=1) / np.sqrt(draws):.3f}", flush=True)


def cost(draws: int, seed: int) -> None:
    """Seconds of one fit and of "auto" beside the default MAP search, in the same run."""
    rows = []
    for draw in range(draws):
        data = make_clustered_tasks(random_state=seed + draw)
        line = []
        for model in (
            MSSLRegressorCV(),
            BayesianMSSLRegressor("mean+ard", features="linear", residual_covariance="independent", calibrate=False),
            BayesianMSSLRegressor(features="linear"),
            BayesianMSSLRegressor(),
        ):
            began = process_time()
            model.fit(data.X, data.y, tasks=data.tasks)
            line.append(process_time() - began)
        rows.append(line)
    search, one, auto, curves = np.median(rows, axis=0)
    ratios = f"one fit {one / search:.3f}, auto {auto / search:.2f}, auto with curves {curves / search:.2f}"
    print(f"seconds: search {search:.2f}; as ratios to it: {ratios}", flush=True)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", nargs="*", default=["cost", "centres", "unrelated", "occasions", "new"])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    import warnings

    warnings.simplefilter("ignore")
    jobs: dict[str, Callable[[], None]] = {
        "cost": lambda: cost(min(given.draws, 5), given.seed),
        "centres": lambda: cells("centres", given.draws, given.seed),
        "unrelated": lambda: cells("unrelated", given.draws, given.seed),
        "occasions": lambda: occasions(given.draws, given.seed),
        "new": lambda: new_tasks(given.draws, given.seed),
    }
    for family in given.family:
        jobs[family]()


if __name__ == "__main__":
    main()
