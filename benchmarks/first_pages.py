"""The sets of the first three pages: the default against pooled ridge and against one ridge for each task.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.first_pages            # all sets, 20 repeats of 5 folds: some minutes
    OPENBLAS_NUM_THREADS=1 python -m benchmarks.first_pages hospitals --repeats 2

Prints the table that README.md, docs/start.md and docs/guides/hospitals.md show; a run of all 20 repeats is kept in
first_pages.json, which a test holds the pages to. Every method has its defaults or tunes itself by the training rows:
both rivals are RidgeCV with 15 strengths and its leave-one-out, on standardised columns; the pooled one has a dummy for
each task beside them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mssl import BayesianMSSLRegressor
from mssl.datasets import load_el_nino, make_clustered_tasks

FILE = Path(__file__).with_suffix(".json")
FOLDS, REPEATS = 5, 20
STRENGTHS = np.geomspace(1e-2, 1e5, 15)
NETWORK: dict[str, Any] = {  # docs/guides/hospitals.md has the same
    "kind": "equicorrelated",
    "n_tasks": 12,
    "n_features": 12,
    "n_samples": 60,
    "clusters": [range(6), range(6, 11)],
    "correlation": 0.9,
    "amplitude": 0.4,
    "intercept_scale": 1.0,
    "shared_design": False,
    "random_state": 0,
}


def default(X: Any, y: Any, tasks: Any, X_new: Any, tasks_new: Any) -> Any:
    """BayesianMSSLRegressor with nothing set."""
    return BayesianMSSLRegressor().fit(X, y, tasks=tasks).predict(X_new, tasks=tasks_new)


def straight(X: Any, y: Any, tasks: Any, X_new: Any, tasks_new: Any) -> Any:
    """The default without curves."""
    return BayesianMSSLRegressor(features="linear").fit(X, y, tasks=tasks).predict(X_new, tasks=tasks_new)


def pooled(X: Any, y: Any, tasks: Any, X_new: Any, tasks_new: Any) -> Any:
    """One ridge regression for all tasks, each with its own level."""
    scale, names = StandardScaler().fit(X), np.unique(tasks)
    train, new = (
        np.hstack([scale.transform(values), rows[:, None] == names])
        for values, rows in ((X, tasks), (X_new, tasks_new))
    )
    return RidgeCV(STRENGTHS).fit(train, y).predict(new)


def separate(X: Any, y: Any, tasks: Any, X_new: Any, tasks_new: Any) -> Any:
    """A ridge regression for each task."""
    answer = np.empty(len(X_new))
    for task in np.unique(tasks_new):
        own, new = tasks == task, tasks_new == task
        answer[new] = make_pipeline(StandardScaler(), RidgeCV(STRENGTHS)).fit(X[own], y[own]).predict(X_new[new])
    return answer


METHODS = {"default": default, "straight lines only": straight, "pooled ridge": pooled, "ridge per task": separate}


def within(blocks: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Fold of each row: shuffled within every block."""
    folds = np.empty(len(blocks), dtype=int)
    for block in np.unique(blocks):
        own = random.permutation(np.flatnonzero(blocks == block))
        folds[own] = np.arange(len(own)) % FOLDS
    return folds


def whole(blocks: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Fold of each row: blocks stay together."""
    names, place = np.unique(blocks, return_inverse=True)
    return (random.permutation(len(names)) % FOLDS)[place]


def el_nino() -> tuple[Any, Any, Any, Any]:
    """Shipped with the package; folds within months."""
    sea = load_el_nino()
    return sea.X, sea.y, sea.tasks, lambda random: within(sea.tasks, random)


def el_nino_years() -> tuple[Any, Any, Any, Any]:
    """The same, whole years held out."""
    sea = load_el_nino()
    return sea.X, sea.y, sea.tasks, lambda random: whole(sea.years, random)


def hospitals() -> tuple[Any, Any, Any, Any]:
    """Generated."""
    data = make_clustered_tasks(**NETWORK)
    return data.X, data.y, data.tasks, lambda random: within(data.tasks, random)


SETS: dict[str, Callable[[], tuple[Any, Any, Any, Any]]] = {
    "el-nino": el_nino,
    "el-nino, whole years": el_nino_years,
    "hospitals": hospitals,
}


def measure(name: str, repeats: Iterable[int], methods: Iterable[str] = tuple(METHODS)) -> dict[str, list[list[float]]]:
    """Mean squared error of each method in each fold of each repeat, weighted by the rows of the fold."""
    X, y, tasks, cut = SETS[name]()
    lost: dict[str, list[list[float]]] = {method: [] for method in methods}
    for repeat in repeats:
        folds = cut(np.random.default_rng(repeat))
        for method, errors in lost.items():
            errors.append([])
            for fold in range(FOLDS):
                train, test = folds != fold, folds == fold
                found = METHODS[method](X[train], y[train], tasks[train], X[test], tasks[test])
                errors[-1].append(float(np.sum((found - y[test]) ** 2) * FOLDS / len(y)))
    return lost


def table(results: dict[str, dict[str, list[list[float]]]]) -> list[str]:
    """Lines of the table: RMSE, and how far the default is ahead, with standard errors over repeats and over folds."""
    lines = [
        "| data | default | rival | RMSE of the rival | the default is ahead by | s.e. over folds |",
        "|---|---|---|---|---|---|",
    ]
    for name, lost in results.items():
        ours = np.sqrt(np.asarray(lost["default"]))
        for method in lost:
            if method == "default":
                continue
            other = np.sqrt(np.asarray(lost[method]))
            all_ours, all_other = (np.sqrt(np.mean(np.square(errors), axis=1)) for errors in (ours, other))
            ahead, folds = all_other - all_ours, (other - ours).ravel()
            error, error_of_folds = (
                np.std(one, ddof=1) / np.sqrt(one.size) if one.size > 1 else np.nan for one in (ahead, folds)
            )
            lines.append(
                f"| {name} | {all_ours.mean():.3f} | {method} | {all_other.mean():.3f} "
                f"| {ahead.mean():.4f} ± {error:.4f} | {error_of_folds:.4f} |"
            )
    return lines


def main() -> None:
    """Measure, print, and keep a whole run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), metavar="SET", help=f"of {', '.join(SETS)}")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    results = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    for name in given.sets:
        found = measure(name, range(given.repeats))
        print("\n".join(table({name: found})), flush=True)
        if given.repeats == REPEATS:
            results[name] = {k: [[round(value, 6) for value in row] for row in rows] for k, rows in found.items()}
            FILE.write_text(json.dumps({key: results[key] for key in SETS if key in results}) + "\n", "utf-8")


if __name__ == "__main__":
    main()
