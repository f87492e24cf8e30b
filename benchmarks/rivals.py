"""This package's estimators against their rivals on real data, cut by cut.

    MSSL_DATA=folder python -m benchmarks.rivals                            # every set, every method, cuts 0 to 7
    MSSL_DATA=folder python -m benchmarks.rivals wind-120 enb-60 --methods mssl,pooled --cuts 100:108
    MSSL_DATA=folder python -m benchmarks.rivals --old ../version-0.1.0     # also that version's default search
    python -m benchmarks.rivals --page --cuts 100:108                       # tables of docs/rivals.md from the records

One line of benchmarks/results/rivals.jsonl is one method on one cut of one set; what is there is not run again (delete
lines to do so), so that a run may be stopped at any time. The sets and cuts are in rival_sets.py, the methods in
rival_methods.py; packages that only they need are the extra ``rivals``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy import stats
from sklearn.metrics import roc_auc_score

import mssl
from benchmarks.rival_methods import LEVELS, LINEAR, METHODS, Answer, NotApplicableError, deviance, earlier
from benchmarks.rival_sets import SETS, Cut, cut

RECORDS = Path(__file__).parent / "results" / "rivals.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "rivals.md"
OURS = ("bayesian", "mssl")
OLD = "version 0.1.0"
NAMES = {"rmse": "RMSE", "error": "error", "area": "1 − AUC", "deviance": "deviance"}
Record = dict[str, Any]


def measure(found: Answer, given: Cut) -> dict[str, float]:
    """Means over tasks: RMSE or error and 1 − AUC, deviance, and coverage and mean width of intervals.

    The deviance of numbers is the squared error over the task's variance in the training rows.
    """
    train, test = given.train.long(), given.test.long()
    mean = np.asarray(found["mean"]).ravel()
    lost, answers = deviance(test.y, mean, given.labels), []
    for task in np.unique(test.tasks):
        own, fitted = test.tasks == task, train.y[train.tasks == task]
        if given.labels:
            answer = {"error": np.mean((mean[own] > 0.5) != test.y[own]), "deviance": lost[own].mean()}
            if 0 < test.y[own].mean() < 1:
                answer["area"] = 1 - roc_auc_score(test.y[own], mean[own])
        else:
            spread = np.mean((fitted - fitted.mean() * given.intercept) ** 2)
            answer = {"rmse": given.unit * np.sqrt(lost[own].mean()), "deviance": lost[own].mean() / spread}
        answers.append(answer)
    result = {name: float(np.mean([a[name] for a in answers if name in a])) for name in answers[0]}
    if found.get("intervals") is not None:
        low, high = np.moveaxis(np.asarray(found["intervals"]).reshape(len(mean), len(LEVELS), 2), -1, 0)
        inside = (low <= test.y[:, None]) & (test.y[:, None] <= high)
        for place, level in enumerate(LEVELS):
            result[f"coverage {level:g}"] = float(inside[:, place].mean())
            result[f"width {level:g}"] = float(given.unit * (high - low)[:, place].mean())
    return result


def read_records(path: Path) -> list[Record]:
    """What is known already; a last line that was cut off is left out."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def run(names: Iterable[str], methods: dict[str, Any], cuts: Iterable[int], path: Path) -> None:
    """Every method on every cut of every set that is not in the file yet, written there one by one."""
    known = {(record["set"], record["cut"], record["method"]) for record in read_records(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    cuts = list(cuts)
    for seed in cuts:
        for name in names:
            missing = [method for method in methods if (name, seed, method) not in known]
            if not missing:
                continue
            given = cut(name, seed)
            for method in missing:
                record: Record = {"set": name, "cut": seed, "method": method, "version": mssl.__version__}
                began = perf_counter()
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        found = methods[method](given)
                except NotApplicableError:
                    continue
                except Exception as error:  # a method that fails says so in its record, and the run goes on
                    record["failed"] = f"{type(error).__name__}: {error}"
                else:
                    record |= {"seconds": perf_counter() - began, "chosen": found["chosen"]}
                    record["measures"] = measure(found, given)
                with path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                told = record.get("failed") or {n: round(v, 4) for n, v in record["measures"].items() if " " not in n}
                print(name, seed, method, told, f"{record.get('seconds', np.nan):.1f} s", file=sys.stderr, flush=True)


class Table:
    """Values of one measure on one set: methods by cuts, those cuts that all of the methods have."""

    def __init__(self, records: list[Record], name: str, what: str) -> None:
        found: dict[str, dict[int, float]] = {}
        for record in records:
            if record["set"] == name and what in record.get("measures", {}):
                found.setdefault(record["method"], {})[record["cut"]] = record["measures"][what]
        most = max((len(values) for values in found.values()), default=0)
        # A method that failed on some cuts is compared on the others only, and told apart by its count.
        self.counts = {method: len(values) for method, values in found.items()}
        full = [values for values in found.values() if len(values) == most]
        self.cuts = sorted(set.intersection(*map(set, full))) if full else []
        self.values = {
            method: np.asarray([values.get(seed, np.nan) for seed in self.cuts]) for method, values in found.items()
        }

    def mean(self, method: str) -> float:
        """Mean over the cuts that the method has."""
        values = self.values.get(method, np.empty(0))
        return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")

    def difference(self, one: str, other: str) -> tuple[float, float, float]:
        """Mean of one less the other, its paired standard error, and the probability of as much by chance (one-sided).

        The training rows of two cuts overlap, so that the errors are rather too small.
        """
        values = self.values[one] - self.values[other]
        values = values[np.isfinite(values)]
        if len(values) < 2:
            return float("nan"), float("nan"), 1.0
        error = values.std(ddof=1) / np.sqrt(len(values))
        p = float(stats.t.sf(values.mean() / error, len(values) - 1)) if error > 0 else float(values.mean() <= 0)
        return float(values.mean()), float(error), p


def holm(p: list[float], level: float = 0.05) -> list[bool]:
    """Which of several hypotheses are rejected, the probability of any false rejection being at most the level.

    Holm (1979), A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 65–70.
    """
    rejected = [False] * len(p)
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[place] > level / (len(p) - rank):
            break
        rejected[place] = True
    return rejected


def tables(records: list[Record]) -> str:
    """The tables of the page: all methods on all sets, ours against the best linear rival, and intervals."""
    present = [name for name in SETS if any(record["set"] == name for record in records)]
    order = [*OURS, OLD, *(method for method in METHODS if method not in OURS)]
    methods = [method for method in order if any(record["method"] == method for record in records)]
    cells = [
        (name, what)
        for name in present
        for what in NAMES
        if any(record["set"] == name and what in record.get("measures", {}) for record in records)
        and not (what == "area" and "landmine" not in name)
    ]
    found = {cell: Table(records, *cell) for cell in cells}
    lines = [f"| data | measure | cuts | {' | '.join(methods)} |", f"|---|---|---|{'---|' * len(methods)}"]
    for (name, what), table in found.items():
        means = {method: table.mean(method) for method in methods}
        best = min((value for value in means.values() if np.isfinite(value)), default=np.nan)
        shown = [
            "–" if not np.isfinite(value) else f"**{value:.4f}**" if value == best else f"{value:.4f}"
            for value in means.values()
        ]
        lines.append(f"| {name} | {NAMES[what]} | {len(table.cuts)} | {' | '.join(shown)} |")
    parts = ["\n".join(lines)]
    for one in (method for method in OURS if method in methods):
        parts += [_against(one, found), _against_old(one, found) if OLD in methods else ""]
    return "\n\n".join(
        part for part in [*parts, _intervals(records, present, methods), _seconds(records, present, methods)] if part
    )


def _against(one: str, found: dict[tuple[str, str], Table]) -> str:
    """One of our methods against the linear rival that is best by its mean on the rows tested, which favours it."""
    rows = []
    for cell, table in found.items():
        rivals = [method for method in LINEAR if method in table.values and np.isfinite(table.mean(method))]
        if one in table.values and rivals:
            best = min(rivals, key=table.mean)
            rows.append((cell, best, *table.difference(one, best)))
    worse = holm([row[-1] for row in rows])
    lines = [
        f"`{one}` less the best linear rival (negative is better), with its paired standard error:",
        "",
        "| data | measure | best rival | difference | p (worse) | beyond Holm's bound at 5 % |",
        "|---|---|---|---|---|---|",
    ]
    for ((name, what), best, mean, error, p), beyond in zip(rows, worse, strict=True):
        lines.append(
            f"| {name} | {NAMES[what]} | {best} | {mean:+.4f} ± {error:.4f} | {p:.3f} | {'yes' if beyond else 'no'} |"
        )
    return "\n".join(lines)


def _against_old(one: str, found: dict[tuple[str, str], Table]) -> str:
    lines = [
        f"`{one}` over {OLD}, by the means, and the paired difference:",
        "",
        "| data | measure | ratio | difference |",
        "|---|---|---|---|",
    ]
    for (name, what), table in found.items():
        if one in table.values and OLD in table.values:
            mean, error, _ = table.difference(one, OLD)
            ratio = table.mean(one) / table.mean(OLD)
            lines.append(f"| {name} | {NAMES[what]} | {ratio:.3f} | {mean:+.4f} ± {error:.4f} |")
    return "\n".join(lines)


def _intervals(records: list[Record], present: list[str], methods: list[str]) -> str:
    """Coverage, and width over that of the pooled model's conformal intervals."""
    lines = []
    for name in present:
        for level in LEVELS:
            cover, width = (Table(records, name, f"{what} {level:g}") for what in ("coverage", "width"))
            if not cover.values:
                continue
            unit = width.mean("pooled")
            shown = [
                f"{cover.mean(method):.3f} ({width.mean(method) / unit:.2f})" if method in cover.values else "–"
                for method in methods
            ]
            lines.append(f"| {name} | {level:g} | {' | '.join(shown)} |")
    if not lines:
        return ""
    text = (
        "Share of test rows inside their intervals, and in brackets the mean width over that of the pooled model's. "
        "Intervals of `bayesian` and of the GP are their own, all others conformal: residuals of folds, all tasks "
        "together, refitted with the chosen settings."
    )
    head = [text, "", f"| data | level | {' | '.join(methods)} |", f"|---|---|{'---|' * len(methods)}"]
    return "\n".join([*head, *lines])


def _seconds(records: list[Record], present: list[str], methods: list[str]) -> str:
    lines = ["Median seconds a cut with nothing set, intervals included:", "", f"| data | {' | '.join(methods)} |"]
    lines.append(f"|---|{'---|' * len(methods)}")
    for name in present:
        shown = []
        for method in methods:
            taken = [r["seconds"] for r in records if r["set"] == name and r["method"] == method and "seconds" in r]
            shown.append(f"{np.median(taken):.2g}" if taken else "–")
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def write_page(records: list[Record], page: Path) -> None:
    """Put the tables between the marks of the page; the text around them is written by hand."""
    marks = ("<!-- tables -->", "<!-- end of tables -->")
    text = page.read_text()
    if any(text.count(mark) != 1 for mark in marks):
        raise SystemExit(f"{page} needs the marks {marks[0]} and {marks[1]}, once each.")
    inside = f"{marks[0]}\n\n{tables(records)}\n\n{marks[1]}"
    page.write_text(re.sub(f"{marks[0]}.*{marks[1]}", lambda _: inside, text, flags=re.DOTALL))


def cuts_of(text: str) -> range:
    """A range of cuts from "8" (the first eight) or "100:108"."""
    begin, _, end = text.rpartition(":")
    return range(int(begin or 0), int(end))


def main(arguments: list[str]) -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="set", help=f"{', '.join(SETS)}; all by default")
    parser.add_argument("--methods", help=f"some of {', '.join(METHODS)}, with commas between them")
    parser.add_argument("--cuts", type=cuts_of, default=range(8), help="how many, or the first and the end: 100:108")
    parser.add_argument("--old", type=Path, help=f"a working tree of {OLD}, whose search is then a method too")
    parser.add_argument("--records", type=Path, default=RECORDS, help="the file of finished pieces")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/rivals.md and run nothing")
    given = parser.parse_args(arguments)
    known = {name: METHODS[name] for name in METHODS if name != "bayesian" or hasattr(mssl, "BayesianMSSLRegressor")}
    if given.old is not None:
        known[OLD] = earlier(given.old.resolve())
    chosen = given.methods.split(",") if given.methods else list(known)
    for kind, names, allowed in (("set", given.sets, SETS), ("method", chosen, known)):
        strange = [name for name in names if name not in allowed]
        if strange:
            parser.error(f"unknown {kind} {', '.join(strange)}; known are {', '.join(allowed)}")
    if given.page:
        records = [record for record in read_records(given.records) if record["cut"] in given.cuts]
        write_page(records, PAGE)
        return
    run(given.sets or list(SETS), {name: known[name] for name in chosen}, given.cuts, given.records)


if __name__ == "__main__":
    main(sys.argv[1:])
