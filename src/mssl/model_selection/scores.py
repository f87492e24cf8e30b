"""Scores of settings, fold by fold: the table behind ``cv_results_``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.exceptions import DataError
from mssl.model_selection.checkpoint import Checkpoint
from mssl.model_selection.parallel import run
from mssl.model_selection.path import Params, follow
from mssl.model_selection.progress import Progress
from mssl.solvers.base import Status

Array = NDArray[np.float64]

_FACTS = 5  # what :func:`score_chain` says of a fit before the scores of the single tasks
VAIN = 2  # settings in a row without hope of gain after which a chain ends
MATERIAL = 1e-3  # share of a score that counts as a gain


def score_chain(fold: Any, template: Any, chain: Sequence[Params], whole: bool = True) -> list[list[float]]:
    """Fit and score every setting of a chain on one fold: [score, edges, nonzero weights, seconds, certified].

    The scores of the single tasks follow, where the score is their mean. Unless the ``whole`` chain is wanted, it ends
    where nothing is left to gain (:func:`vain`); what would follow is not a number.
    """
    rows: list[list[float]] = []
    began = perf_counter()
    for point in follow(fold, template, chain):
        tasks = fold.task_scores(point)
        score = tasks[~np.isnan(tasks)].mean() if len(tasks) else fold.score(point)
        took, began = perf_counter() - began, perf_counter()
        certified = float(point.result.status is Status.CONVERGED)
        nonzero = float(np.count_nonzero(point.result.W))
        rows.append([float(score), float(point.result.history[-1].edges), nonzero, took, certified, *tasks.tolist()])
        if not whole and vain(np.asarray(rows)):
            break
    unknown = [np.nan] * (len(rows[0]) - 1)
    return rows + [[*unknown[: _FACTS - 1], 0.0, *unknown[_FACTS - 1 :]] for _ in chain[len(rows) :]]


def vain(rows: Array) -> bool:
    """Whether the last settings of a chain show that there is nothing to gain along it, from their rows.

    Their graphs have no fewer edges than tasks, and yet each is, by the mean over tasks plus two standard errors of the
    paired difference, at most a thousandth better than the best before. With few tasks the errors are too wide for
    that, and fits are cheap.
    """
    edges, scores = rows[:, 1], rows[:, _FACTS:]
    scores = scores[:, ~np.isnan(scores).any(axis=0)]
    n_tasks = scores.shape[1]
    if len(rows) <= VAIN or n_tasks < 2 or edges[-VAIN:].min() < n_tasks:
        return False
    best = scores[scores[:-VAIN].mean(axis=1).argmax()]
    hopes = (gain.mean() + 2.0 * _error_of_mean(gain) for gain in scores[-VAIN:] - best)
    return all(hope <= MATERIAL * abs(best.mean()) for hope in hopes)


@dataclass(frozen=True, eq=False)
class Entry:
    """One setting: its parameters, the stage that asked for it, and one row a fold as :func:`score_chain` gives."""

    params: Params
    stage: str
    rows: Array

    @property
    def scores(self) -> Array:
        """Score of each fold."""
        return np.asarray(self.rows[:, 0])

    @property
    def mean(self) -> float:
        """Mean score."""
        return float(self.scores.mean())

    def advantage(self, other: Entry) -> tuple[float, float]:
        """By how much the mean score is better than another's, and the standard error of that difference.

        The difference is paired; its error is the larger of that over folds and that over tasks. Five folds tell
        little of it, and a gain in one task out of many is no gain to rely on.
        """
        by_fold = self.scores - other.scores
        errors = [_error_of_mean(by_fold)]
        by_task = self.rows[:, _FACTS:] - other.rows[:, _FACTS:]
        if by_task.shape[1]:
            seen = ~np.isnan(by_task).all(axis=0)
            errors.append(_error_of_mean(np.nanmean(by_task[:, seen], axis=0)))
        return float(by_fold.mean()), max(errors)

    @property
    def standard_error(self) -> float:
        """Standard error of the mean score over folds."""
        return _error_of_mean(self.scores) if np.isfinite(self.scores).all() else float("nan")


def _error_of_mean(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _wins(one: Entry, other: Entry, demand: float) -> bool:
    """Whether settings are better than others by so many standard errors of the difference."""
    gain, error = one.advantage(other)
    return gain > demand * error


class ScoreBoard:
    """Scores settings on all folds, each setting once."""

    def __init__(
        self,
        template: Any,
        folds: Sequence[Any],
        *,
        n_jobs: int | None = None,
        checkpoint: Checkpoint | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.template, self.folds = template, folds
        self.n_jobs, self.checkpoint, self.progress = n_jobs, checkpoint, progress
        self.entries: dict[str, Entry] = {}
        self.leaves_early = False
        self.champion: Entry | None = None
        self.learned: Entry | None = None

    def evaluate(self, stage: str, chains: Iterable[Sequence[Params]], demand: float = 0.0) -> None:
        """Score the settings of the chains that have no score yet, and see whether one of them is the best so far.

        It has to be better than the best before by ``demand`` standard errors of the difference, paired by folds.
        A board that ``leaves_early`` ends a chain where nothing is left to gain.
        """
        left, seen = [], set(self.entries)
        for chain in chains:
            fresh = [params for params in chain if name_of(params) not in seen]
            seen.update(map(name_of, fresh))
            if fresh:
                left.append(fresh)
        pieces = [
            (f"{number} {name_of(chain)}", (fold, self.template, chain, not self.leaves_early))
            for number, fold in enumerate(self.folds)
            for chain in left
        ]
        if self.progress is not None:
            self.progress.stage(stage, len(pieces))
        values = run(score_chain, pieces, n_jobs=self.n_jobs, checkpoint=self.checkpoint, progress=self.progress)
        for chain in left:
            text = name_of(chain)
            table = np.asarray([values[f"{number} {text}"] for number in range(len(self.folds))], dtype=float)
            for place, params in enumerate(chain):
                self.entries[name_of(params)] = Entry(params, stage, table[:, place])
        self._challenge([self.entries[name_of(params)] for chain in left for params in chain], demand)

    def _challenge(self, fresh: list[Entry], demand: float) -> None:
        finite = [entry for entry in fresh if np.isfinite(entry.mean)]
        if not finite:
            return
        best = max(finite, key=lambda entry: entry.mean)
        if self.champion is None or _wins(best, self.champion, demand):
            self.champion = best

    def prefer(self, order: Iterable[Params], tie: float) -> None:
        """Take the first of scored settings that the best does not beat by so many standard errors."""
        best = self.chosen()
        scored = (entry for entry in map(self.entry, order) if np.isfinite(entry.mean))
        ties = (entry for entry in scored if not _wins(best, entry, tie))
        self.champion = next(ties, best)

    def entry(self, params: Params) -> Entry:
        """Scored settings."""
        return self.entries[name_of(params)]

    def set_aside(self) -> Entry:
        """Take the best so far out of the contest, so that what comes is compared among itself."""
        best, self.champion = self.chosen(), None
        return best

    def settle(self, simple: Entry, demand: float) -> None:
        """Go back to simple settings that were set aside unless the best since then wins by so many errors.

        The latter stays known as ``learned``.
        """
        self.learned = self.champion
        if self.champion is None or not _wins(self.champion, simple, demand):
            self.champion = simple

    def chosen(self) -> Entry:
        """The best settings; an error where none got a finite score."""
        if self.champion is None:
            raise DataError("No setting got a finite score; check the scoring function and the folds.")
        return self.champion

    def best(self) -> Params:
        """The best settings so far."""
        return self.chosen().params

    def simplest(self) -> Entry:
        """The sparsest setting (edges, then weights) within one standard error of the best."""
        best = self.chosen()
        good = [entry for entry in self.entries.values() if entry.mean >= best.mean - best.standard_error]
        return min(good, key=lambda entry: (entry.rows[:, 1].mean(), entry.rows[:, 2].mean(), -entry.mean))

    def table(self) -> dict[str, Any]:
        """The table as arrays, in the form of scikit-learn's ``cv_results_``."""
        entries = list(self.entries.values())
        means = np.asarray([entry.mean for entry in entries])
        scores = np.stack([entry.scores for entry in entries])
        names = sorted({name for entry in entries for name in entry.params})
        ranks = np.empty(len(entries), dtype=np.int64)
        ranks[np.argsort(-np.nan_to_num(means, nan=-np.inf), kind="stable")] = np.arange(1, len(entries) + 1)
        results: dict[str, Any] = {
            f"param_{name}": np.asarray([entry.params.get(name) for entry in entries], dtype=object) for name in names
        }
        results |= {f"split{i}_test_score": scores[:, i] for i in range(scores.shape[1])}
        return results | {
            "params": [entry.params for entry in entries],
            "stage": np.asarray([entry.stage for entry in entries]),
            "mean_test_score": means,
            "std_test_score": np.asarray([row.std() if np.isfinite(row).all() else np.nan for row in scores]),
            "rank_test_score": ranks,
            "mean_edges": np.asarray([entry.rows[:, 1].mean() for entry in entries]),
            "mean_nonzero": np.asarray([entry.rows[:, 2].mean() for entry in entries]),
            "mean_fit_time": np.asarray([entry.rows[:, 3].mean() for entry in entries]),
            "certified": np.asarray([bool(entry.rows[:, 4].all()) for entry in entries]),
        }


def name_of(params: Params | Sequence[Params]) -> str:
    """A name for settings or a chain of them, the same for equal ones."""
    return json.dumps(params, sort_keys=True, default=repr)
