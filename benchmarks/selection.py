"""Time and accuracy of model selection.

    python -m benchmarks.selection            # all of it
    python -m benchmarks.selection speed      # against GridSearchCV, same grid and tolerance; growth with rows
    python -m benchmarks.selection stability  # seconds and F1 on known graphs
    python -m benchmarks.selection accuracy   # share of the oracle's gain; against per-task LassoCV
    python -m benchmarks.selection stages     # the search with each of its stages switched off

Times are process times on one thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.linear_model import LassoCV, LinearRegression
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

from mssl import MSSLRegressor, MSSLRegressorCV, MultiTaskGLM, StabilitySelection
from mssl.datasets import make_clustered_tasks
from mssl.features import Linear
from mssl.losses import Gaussian
from mssl.model_selection import TaskKFold, search_space
from mssl.structures import FixedPrecision

GRID = {"graph_penalty": np.geomspace(0.8, 0.01, 10), "coef_penalty": [0.0, 10.0], "prior_strength": [0.5, 1.0, 2.0]}


def seconds(work: Callable[[], Any], repeats: int = 1) -> float:
    """Least process time of some calls."""
    times = []
    for _ in range(repeats):
        began = process_time()
        work()
        times.append(process_time() - began)
    return min(times)


def problem(n_features: int, n_tasks: int, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    clusters = [list(range(start, start + 5)) for start in range(0, n_tasks - 5, 6)]
    data = make_clustered_tasks(
        n_features=n_features,
        n_tasks=n_tasks,
        n_samples=n_samples,
        clusters=clusters,
        shared_design=False,
        n_test=1,
        random_state=0,
    )
    return np.column_stack([np.unique(data.tasks, return_inverse=True)[1], data.X]), data.y


def ours(grid: dict[str, Any], search: str = "grid") -> MSSLRegressorCV:
    return MSSLRegressorCV(
        MSSLRegressor(task_column=0),
        {
            "graph_penalty": grid["graph_penalty"],
            "coef_penalty": grid["coef_penalty"],
            "prior_strength": grid["prior_strength"],
            "shared_mean": ["auto"],
            "graph_penalty__shrinkage": [0.0],
            "graph_penalty__variance_floor": [0.125],
        },
        search=search,
        search_tol=1e-6,
    )


def speed() -> None:
    compare((30, 13, 60), 3)
    compare((10, 250, 600), 1)
    growth()


def compare(shape: tuple[int, int, int], repeats: int) -> None:
    """Least times of the searches, in turns: other work on the machine troubles all."""
    X, y = problem(*shape)
    rows = TaskKFold(5, task_column=0)
    searches = {
        "default search": ours(GRID, "coordinate"),
        "whole grid": ours(GRID),
        "GridSearchCV": GridSearchCV(MSSLRegressor(task_column=0), GRID, cv=rows),
    }
    searches["default search"].fit(X, y)  # loads what is loaded late
    times = [{name: seconds(lambda m=m: m.fit(X, y)) for name, m in searches.items()} for _ in range(repeats)]
    least = {name: min(found[name] for found in times) for name in searches}
    scores = searches["whole grid"].cv_results_["mean_test_score"]
    print(f"(d, K, n) = {shape}, {len(scores)} settings, 5 folds", flush=True)
    for name, search in searches.items():
        chosen = [float(search.best_params_[key]) for key in GRID]
        place = [[p[key] for key in GRID] == chosen for p in searches["whole grid"].cv_results_["params"]].index(True)
        ratio = least["GridSearchCV"] / least[name]
        lost = scores.max() - scores[place]
        print(
            f"  {name}: {least[name]:.2f} s, ratio {ratio:.1f}, chosen {chosen}, {lost:.1e} below the best", flush=True
        )


def growth() -> None:
    """Time after the pass over the rows, for 10 times as many rows."""
    times = []
    for n in (300, 3000):
        X, y = problem(30, 13, n)
        search = ours(GRID)
        whole = seconds(lambda search=search, X=X, y=y: search.fit(X, y), 2)
        once = ours({name: values[:1] for name, values in GRID.items()})
        times.append((whole, whole - seconds(lambda once=once, X=X, y=y: once.fit(X, y), 2)))
    print(f"rows × 10: whole {times[1][0] / times[0][0]:.2f} ×, after the pass {times[1][1] / times[0][1]:.2f} ×")


def stability() -> None:
    for kind in ("centres", "equicorrelated"):
        scores, times = [], []
        for seed in range(20):
            data = make_clustered_tasks(kind, random_state=seed)
            found = StabilitySelection(random_state=0)
            times.append(seconds(lambda found=found, data=data: found.fit(data.X, data.y, tasks=data.tasks)))
            scores.append(found.graph_.compare(data.adjacency).f1)
        print(f"{kind}: mean F1 {np.mean(scores):.3f} (least {min(scores):.3f}), {np.median(times):.2f} s", flush=True)
    data = make_clustered_tasks(n_samples=240, random_state=0)
    refit = StabilitySelection(subsample="samples", random_state=0)
    taken = seconds(lambda: refit.fit(data.X, data.y, tasks=data.tasks))
    print(f"samples, 100 subsamples × 20 λ: {taken:.1f} s, F1 {refit.graph_.compare(data.adjacency).f1:.3f}")


def accuracy(seeds: int = 20) -> None:
    kept, ratios = [], []
    for seed in range(seeds):
        data = make_clustered_tasks(random_state=seed)
        rows = [data.tasks == task for task in np.unique(data.tasks)]
        plain = np.stack([LinearRegression().fit(data.X[own], data.y[own]).coef_ for own in rows])
        oracle = MultiTaskGLM(
            FixedPrecision(data.precision), loss=Gaussian(noise_variance=1.0), features=Linear(scale=False)
        )
        oracle.fit(data.X, data.y, tasks=data.tasks)
        chosen = MSSLRegressorCV().fit(data.X, data.y, tasks=data.tasks)
        worst, best, got = (np.mean((coef - data.coef) ** 2) for coef in (plain, oracle.coef_, chosen.coef_))
        kept.append((worst - got) / (worst - best))
        sparse = make_clustered_tasks("sparse", random_state=seed)
        lasso = np.stack([LassoCV(cv=5, max_iter=20000).fit(sparse.X[own], sparse.y[own]).coef_ for own in rows])
        chosen = MSSLRegressorCV().fit(sparse.X, sparse.y, tasks=sparse.tasks)
        ratios.append(np.mean((chosen.coef_ - sparse.coef) ** 2) / np.mean((lasso - sparse.coef) ** 2))
        print(f"seed {seed}: kept {kept[-1]:.3f}, error over LassoCV's {ratios[-1]:.3f}", flush=True)
    print(f"mean share of the oracle's gain {np.mean(kept):.3f}; mean error over LassoCV's {np.mean(ratios):.3f}")


def skip(*_: Any) -> None:
    """A stage that does nothing."""


STAGES_OFF: dict[str, dict[str, Any]] = {
    "nothing": {},
    "all refinement of ridge and mean": {"REFINEMENTS": ()},
    "sparse weights": {"_sparse": skip},
    "first look at two λ between the ends": {"COARSE": ()},
    "finer path of λ": {"FINE": ()},
}


def stages(seeds: int = 6) -> None:
    """Error of the weights with a stage switched off, over that with all of them; docs/rivals.md has real data too."""
    kinds: list[dict[str, Any]] = [{}, {"kind": "sparse"}, {"n_features": 5, "n_samples": 20}]
    errors: dict[str, list[float]] = {name: [] for name in STAGES_OFF}
    settings = dict.fromkeys(STAGES_OFF, 0)
    for kind, seed in product(kinds, range(seeds)):
        data = make_clustered_tasks(**kind, random_state=seed)
        for name, changes in STAGES_OFF.items():
            with patch.multiple(search_space, **changes) if changes else nullcontext():
                model = MSSLRegressorCV().fit(data.X, data.y, tasks=data.tasks)
            errors[name].append(float(np.mean((model.coef_ - data.coef) ** 2)))
            settings[name] += len(model.cv_results_["params"])
    for name, found in errors.items():
        change = 100 * (np.asarray(found) / errors["nothing"] - 1)
        saved = 100 * (1 - settings[name] / settings["nothing"])
        error = change.std(ddof=1) / np.sqrt(len(change))
        print(f"without {name}: {change.mean():+.2f} % ± {error:.2f} %, {saved:.0f} % fewer settings", flush=True)


def main(arguments: list[str]) -> None:
    parts = {"speed": speed, "stability": stability, "accuracy": accuracy, "stages": stages}
    with threadpool_limits(1):
        for name in arguments or parts:
            parts[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
