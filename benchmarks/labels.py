"""Whether the score that a fit reports of labels is the one that new rows have.

    python -m benchmarks.labels noise 100                      # pure noise: six shapes, so many draws of each
    python -m benchmarks.labels search 100                     # the same by MSSLClassifierCV
    MSSL_DATA=folder python -m benchmarks.labels contraception 20  # real labels: so many cuts, a fifth to test on

Each line is one fit: reported log loss, log loss of new rows, reported loss of base rates alone, area under the curve
within folds, and process seconds. At the end means over the draws, with the standard error of reported less true.
"""

from __future__ import annotations

import csv
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from mssl import BayesianMSSLClassifier, MSSLClassifierCV
from mssl.metrics import base_log_loss

SHAPES = [(tasks, rows, rate) for tasks, rows in ((60, 16), (20, 100), (12, 40)) for rate in (0.2, 0.5)]
NEW_ROWS, COLUMNS = 20_000, 4
Rows = tuple[Any, Any, Any]


def noise(draws: int) -> Iterator[tuple[str, Rows, Rows]]:
    """Labels that nothing predicts, in turn of all shapes."""
    for seed in range(draws):
        for place, (tasks, rows, rate) in enumerate(SHAPES):
            random = np.random.default_rng([seed, place])
            task = np.concatenate([np.repeat(np.arange(tasks), rows), random.integers(tasks, size=NEW_ROWS)])
            X, y = random.normal(size=(len(task), COLUMNS)), (random.random(len(task)) < rate).astype(int)
            n = tasks * rows
            yield f"{tasks} x {rows}, rate {rate}", (X[:n], y[:n], task[:n]), (X[n:], y[n:], task[n:])


def contraception(draws: int) -> Iterator[tuple[str, Rows, Rows]]:
    """Use of contraception by district (Bangladesh), cut into four fifths and one fifth at random."""
    with (Path(os.environ["MSSL_DATA"]) / "textbook" / "contraception.csv").open() as file:
        table = list(csv.DictReader(file))
    children = np.array([row["livch"] for row in table])
    age = np.array([float(row["age"]) for row in table])
    columns = [age, *(children == level for level in ("1", "2", "3+")), [row["urban"] == "Y" for row in table]]
    X, y = np.column_stack(columns).astype(float), np.array([row["use"] == "Y" for row in table]).astype(int)
    task = np.array([row["district"] for row in table])
    for seed in range(draws):
        order = np.random.default_rng(seed).permutation(len(y))
        test, train = np.split(order, [len(y) // 5])
        known = np.isin(task[test], task[train])
        yield "contraception", *((X[rows], y[rows], task[rows]) for rows in (train, test[known]))


def main(arguments: list[str]) -> None:
    """Fit and print."""
    kind, draws = arguments[0], int(arguments[1])
    model: Any = MSSLClassifierCV() if kind == "search" else BayesianMSSLClassifier()
    found: dict[str, list[list[float]]] = {}
    for name, (X, y, tasks), (X_new, y_new, tasks_new) in (contraception if kind == "contraception" else noise)(draws):
        began = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            told = model.fit(X, y, tasks=tasks).held_out_
        took = process_time() - began
        p = model.predict_proba(X_new, tasks=tasks_new)[:, 1]
        true = base_log_loss(y_new, p, np.ones(len(p)))
        found.setdefault(name, []).append([told.score, true, told.base_rate, told.auc, took])
        print(name, *np.round(found[name][-1], 4), flush=True)
    for name, values in found.items():
        table = np.array(values)
        gap = table[:, 0] - table[:, 1]
        error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan
        print(name, f"{len(gap)} draws, means", *table.mean(axis=0).round(4), f"gap {gap.mean():+.4f} ± {error:.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
