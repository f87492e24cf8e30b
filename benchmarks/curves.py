"""Straight lines against curves: this package's searches, LightGBM and a Gaussian process, on curved and real tasks.

    python -m benchmarks.curves                                   # every problem and method, seeds 20 to 29
    python -m benchmarks.curves additive-50 enb-120 --methods linear,auto --seeds 30:38
    python -m benchmarks.curves --page --seeds 20:100              # docs/curves.md from the records, nothing is run
    python -m benchmarks.curves --cost                             # what curves cost beside straight lines

One line of benchmarks/results/curves.jsonl is one method on one draw of one problem; what is there is not run again.
Problems of :func:`mssl.datasets.make_curved_tasks` have ten tasks, ten columns, 20 to 100 rows a task, and are scored
by the RMSE on new rows; enb and slump by the mean over targets of the RMSE relative to the training mean's (aRRMSE);
sets of labels by the deviance. Settings were chosen with seeds 0 to 4 and 100 to 103 of the generator, with cuts 0 to 7
of slump and with cuts 0 to 3 of landmine: scores of these are no evidence.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import mssl
from benchmarks.rival_methods import boosted, deviance, fitted, predicted, process
from benchmarks.rival_sets import SETS, Cut, Rows, cut
from mssl import MSSLClassifierCV, MSSLRegressorCV
from mssl.datasets import load_enb, load_slump, make_curved_tasks
from mssl.datasets._generators import CURVES

RECORDS = Path(__file__).parent / "results" / "curves.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "curves.md"
SIZES = (20, 50, 100)
LEVEL = 0.9  # of intervals
CHOSEN = "bayesian auto"  # what rivals are compared with
Found = tuple[np.ndarray, np.ndarray | None]  # predictions, and intervals where the method has them
REAL = ("landmine-40", "spam15-20", "letter-20", "digits-30", "atlas-5", "fiveloc-10", "wind-120")


def drawn(kind: str, size: int, seed: int) -> Cut:
    """A problem of the generator; X and y in its own units."""
    data = make_curved_tasks(kind, n_samples=size, random_state=seed)
    return Cut(Rows(data.X, data.y, data.tasks), Rows(data.X_test, data.y_test, data.tasks_test))


def shared(load: Callable[[], Any], size: int, seed: int) -> Cut:
    """So many rows of a set whose targets share their X, tested on the others."""
    data = load()
    order = np.random.default_rng(seed).permutation(len(data.X))
    train, test = order[:size], order[size:]
    return Cut(Rows(data.X[train], data.y[train]), Rows(data.X[test], data.y[test]))


PROBLEMS: dict[str, Callable[[int], Cut]] = {
    **{f"{kind}-{size}": lambda seed, k=kind, n=size: drawn(k, n, seed) for kind in CURVES for size in SIZES},
    "enb-120": lambda seed: shared(load_enb, 120, seed),
    "slump-60": lambda seed: shared(load_slump, 60, seed),
    **{name: lambda seed, name=name: cut(name, seed) for name in SETS if name in REAL},
}


def search(features: str) -> Callable[[Cut], Found]:
    """This package's default search with one kind of features."""

    def method(given: Cut) -> Found:
        estimator = mssl.MSSLRegressor(features=features, fit_intercept=given.intercept)
        labels = MSSLClassifierCV(mssl.MSSLClassifier(features=features))
        model = fitted(labels if given.labels else MSSLRegressorCV(estimator), given.train)
        return predicted(model, given.test, given.labels), None

    return method


def bayesian(features: str) -> Callable[[Cut], Found]:
    """This package's estimator that integrates the weights out."""

    def method(given: Cut) -> Found:
        if given.labels:
            model = fitted(mssl.BayesianMSSLClassifier(features=features), given.train)
            return predicted(model, given.test, True), None
        intercepts = "auto" if given.intercept else "none"
        model = fitted(mssl.BayesianMSSLRegressor(features=features, intercepts=intercepts), given.train)
        named = {} if given.test.tasks is None else {"tasks": given.test.tasks}
        interval = np.asarray(model.predict_interval(given.test.X, level=LEVEL, **named))
        return predicted(model, given.test, False), interval

    return method


def trees(given: Cut) -> Found:
    """LightGBM with the task as a category, tuned by folds."""
    predict = boosted(given.train.long(), given)
    return predict(given.test.long()).reshape(given.test.y.shape), None


METHODS: dict[str, Callable[[Cut], Found]] = {
    "linear": search("linear"),
    "spline": search("spline"),
    "auto": search("auto"),
    "lightgbm": trees,
    "process": lambda given: (process(given)["mean"], None),
    **{f"bayesian {features}": bayesian(features) for features in ("linear", "spline", "auto")},
}


def score(given: Cut, mean: np.ndarray) -> float:
    """RMSE, aRRMSE or deviance, as the problem asks for."""
    if given.labels:
        return float(deviance(given.test.y, mean, True).mean())
    squares = (mean - given.test.y) ** 2
    if given.train.tasks is not None or given.train.y.ndim == 1:
        return float(np.sqrt(squares.mean()))
    plain = (given.test.y - given.train.y.mean(axis=0)) ** 2
    return float(np.sqrt(squares.mean(axis=0) / plain.mean(axis=0)).mean())


def read_records(path: Path) -> list[dict[str, Any]]:
    """All finished pieces."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(problems: list[str], methods: list[str], seeds: range, path: Path) -> None:
    """Run what is not in the records yet."""
    path.parent.mkdir(exist_ok=True)
    known = {(r["problem"], r["method"], r["seed"]) for r in read_records(path)}
    for problem in problems:
        for seed in seeds:
            given = None
            for method in methods:
                if (problem, method, seed) in known:
                    continue
                given = PROBLEMS[problem](seed) if given is None else given
                began = perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        mean, interval = METHODS[method](given)
                    except Exception as error:
                        print(f"{problem} {seed} {method}: {type(error).__name__} {error}"[:120])
                        continue
                value = score(given, mean)
                line = {"problem": problem, "method": method, "seed": seed, "score": value}
                if interval is not None:
                    inside = (interval[..., 0] <= given.test.y) & (given.test.y <= interval[..., 1])
                    line["coverage"] = float(inside.mean())
                line["seconds"] = round(perf_counter() - began, 2)
                with path.open("a") as stream:
                    stream.write(json.dumps(line) + "\n")
                print(f"{problem} {seed} {method} {value:.4f} {line['seconds']} s", flush=True)


def table(records: list[dict[str, Any]], seeds: range) -> str:
    """Mean scores over a method's draws; beside the two that choose, paired differences in per cent with their errors.

    The searches are compared with straight lines of the search, the Bayesian estimators with Bayesian straight lines.
    What rivals have is compared with the best of ours, "bayesian auto", on the draws that both have.
    """
    scores: dict[tuple[str, str], dict[int, float]] = {}
    for r in records:
        if r["seed"] in seeds:
            scores.setdefault((r["problem"], r["method"]), {})[r["seed"]] = r["score"]
    against = {"auto": "linear", "bayesian auto": "bayesian linear", "lightgbm": CHOSEN, "process": CHOSEN}
    methods = [name for name in METHODS if any(key[1] == name for key in scores)]
    lines = [f"| problem | {' | '.join(methods)} |", f"|---|{'---|' * len(methods)}"]
    for problem in PROBLEMS:
        if not any((problem, method) in scores for method in methods):
            continue
        cells = []
        for method in methods:
            found = scores.get((problem, method), {})
            cell = f"{np.mean(list(found.values())):.3f}, {len(found)} draws" if found else "–"
            base = scores.get((problem, against.get(method, "")), {})
            both = sorted(set(found) & set(base))
            if len(both) > 1:
                change = 100 * (np.asarray([found[k] / base[k] for k in both]) - 1)
                cell += f" ({change.mean():+.1f} ± {change.std(ddof=1) / np.sqrt(len(both)):.1f} %)"
            cells.append(cell)
        lines.append(f"| {problem} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cost() -> None:
    """Seconds of single fits: ten columns as lines and as curves, and two hundred columns as curves."""
    for tasks, columns, rows, kinds in ((10, 10, 200, ("linear", "spline")), (50, 200, 200, ("spline",))):
        data = make_curved_tasks("additive", n_tasks=tasks, n_features=columns, n_samples=rows, random_state=0)
        for features in kinds:
            times = []
            for _ in range(3 if columns < 100 else 1):
                began = perf_counter()
                mssl.MSSLRegressor(0.1, features=features).fit(data.X, data.y, tasks=data.tasks)
                times.append(perf_counter() - began)
            print(f"{tasks} tasks, {columns} columns, {rows} rows a task, {features}: {min(times):.2f} s")


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="20:30")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--cost", action="store_true")
    given = parser.parse_args()
    seeds = range(*map(int, given.seeds.split(":")))
    if given.cost:
        cost()
        return
    if not given.page:
        run(given.problems, given.methods.split(","), seeds, given.records)
    text = table(read_records(given.records), seeds)
    print(text)
    if given.page:
        head = PAGE.read_text().partition("<!-- table -->")[0] if PAGE.exists() else "# Straight lines and curves\n\n"
        PAGE.write_text(f"{head}<!-- table -->\n{text}\n")


if __name__ == "__main__":
    main()
