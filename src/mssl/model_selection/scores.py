"""Scores of candidate settings, fold by fold: the table behind ``cv_results_``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from mssl._progress import Progress
from mssl._typing import Array
from mssl.exceptions import DataError
from mssl.files.checkpoint import Checkpoint
from mssl.judge.held_out import error_of_mean, wins
from mssl.judge.parallel import run
from mssl.model_selection.chains import Params, follow, follow_all, name_of
from mssl.solvers.base import Status

# What score_chain says of one fit; the scores of the single tasks follow.
SCORE, EDGES, NONZERO, SECONDS, CERTIFIED, AUC = range(6)
TASKS = AUC + 1  # where the scores of the single tasks begin

# Early stopping of a chain trades settings that might still win for time. Both values are cautious choices and are not
# tuned: test_search.py shows that a search which stops early chooses as well as one that does not.
PATIENCE = 2  # settings in a row that cannot improve the score after which a chain stops
MIN_GAIN = 1e-3  # share of the score that counts as an improvement


def score_chain(fold: Any, template: Any, chain: Sequence[Params], stop_early: bool = False) -> list[list[float]]:
    """Fit and score the settings of a chain on one fold.

    Returns
    -------
    list of list of float
        For each setting its score, edges, nonzero weights, seconds, whether the fit is certified (1 or 0) and the area
        under the ROC curve (NaN where there are no labels), then the scores of the single tasks where the score is
        their mean. After early stopping (:func:`no_gain_left`) all of
        these are NaN, and the fit is not certified.
    """
    reports: list[list[float]] = []
    began = perf_counter()
    for point in follow(fold, template, chain):
        score, by_task = fold.scores(point)
        took, began = perf_counter() - began, perf_counter()
        certified = float(point.result.status is Status.CONVERGED)
        nonzero = float(np.count_nonzero(point.result.W))
        edges = float(point.result.history[-1].edges)
        reports.append([score, edges, nonzero, took, certified, fold.auc(point), *by_task.tolist()])
        if stop_early and no_gain_left(np.asarray(reports)):
            break
    skipped = [np.nan] * len(reports[0])
    skipped[CERTIFIED] = 0.0
    return reports + [list(skipped) for _ in chain[len(reports) :]]


def score_average(parts: Sequence[tuple[Any, Any, Sequence[Params]]]) -> list[float]:
    """Score of the mean of several fits to one fold, and its area under the ROC curve.

    Parameters
    ----------
    parts : sequence of (fold, template, settings)
        For each kind of features, the widest last, the fits whose mean is taken; the first settings stand for them
        where more than the weights counts. The answer is for the mean of these means.
    """
    means, n_features = [], parts[-1][0].n_features
    for fold, template, settings in parts:
        points = list(follow_all(fold, template, settings))
        point = next(found for found in points if found.params == settings[0])
        W, level = (np.mean([getattr(p.result, name) for p in points], axis=0) for name in ("W", "intercepts"))
        means.append((np.pad(W, [(0, 0), (0, n_features - W.shape[1])]), level))
    W, level = (np.mean(own, axis=0) for own in zip(*means, strict=True))
    point = point._replace(result=replace(point.result, W=W, intercepts=level))  # of the widest features
    return [fold.scores(point)[0], fold.auc(point)]


def no_gain_left(reports: Array) -> bool:
    """Whether the last settings of a chain, as :func:`score_chain` reports them, show that going on gains nothing.

    Their graphs have no fewer edges than tasks, and yet each score is, by the mean over tasks plus two standard errors
    of the paired difference, at most a thousandth better than the best before. With few tasks these errors are so wide
    that a chain seldom stops; its fits are cheap.
    """
    edges, scores = reports[:, EDGES], reports[:, TASKS:]
    scores = scores[:, np.isfinite(scores).all(axis=0)]
    n_tasks = scores.shape[1]
    if len(reports) <= PATIENCE or n_tasks < 2 or edges[-PATIENCE:].min() < n_tasks:
        return False
    best = scores[scores[:-PATIENCE].mean(axis=1).argmax()]
    highest = (gain.mean() + 2.0 * error_of_mean(gain) for gain in scores[-PATIENCE:] - best)
    return all(gain <= MIN_GAIN * abs(best.mean()) for gain in highest)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Settings and how they did in every fold.

    Attributes
    ----------
    params : dict
        The settings.
    stage : str
        The stage of the search that asked for them.
    folds : ndarray of shape (n_folds, 6 + n_tasks)
        For each fold what :func:`score_chain` says of the fit; without the tasks where a scorer judges them together.
    """

    params: Params
    stage: str
    folds: Array

    @property
    def scores(self) -> Array:
        """Score of each fold."""
        return np.asarray(self.folds[:, SCORE])

    @cached_property
    def mean(self) -> float:
        """Mean score over folds."""
        return float(self.scores.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean score over folds."""
        return error_of_mean(self.scores) if np.isfinite(self.scores).all() else float("nan")

    def advantage(self, other: Candidate) -> tuple[float, float]:
        """By how much the mean score is better than another's, and the standard error of that difference.

        The difference is paired. Its error is the larger of that over folds and that over tasks: five folds say little
        about it, and a gain in one task out of many is no gain to rely on.
        """
        by_fold = self.scores - other.scores
        errors = [error_of_mean(by_fold)]
        by_task = self.folds[:, TASKS:] - other.folds[:, TASKS:]
        if by_task.shape[1]:
            scored = ~np.isnan(by_task).all(axis=0)
            errors.append(error_of_mean(np.nanmean(by_task[:, scored], axis=0)))
        return float(by_fold.mean()), max(errors)

    def beats(self, other: Candidate, margin: float) -> bool:
        """Whether the mean score is better than another's by so many standard errors of the difference."""
        return wins(self.advantage(other), margin)


class ScoreTable:
    """Scores candidates on all folds, each once, and keeps the best.

    Parameters
    ----------
    template : estimator
        What is not in the settings.
    folds : sequence
        Where candidates are fitted and scored.
    stop_early : bool
        Whether a chain stops where nothing is left to gain.
    n_jobs, checkpoint, progress
        As for :func:`mssl.model_selection.parallel.run`.

    Attributes
    ----------
    candidates : dict of str → Candidate
        All that were scored, in order.
    label : str
        Begins the names of pieces in a checkpoint that several tables share.
    """

    def __init__(
        self,
        template: Any,
        folds: Sequence[Any],
        *,
        stop_early: bool = False,
        n_jobs: int | None = None,
        checkpoint: Checkpoint | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.template, self.folds, self.stop_early = template, folds, stop_early
        self.n_jobs, self.checkpoint, self.progress = n_jobs, checkpoint, progress
        self.label = ""
        self.candidates: dict[str, Candidate] = {}

    def evaluate(self, stage: str, chains: Iterable[Sequence[Params]]) -> None:
        """Score the settings of the chains that have no score yet."""
        chains = self._without_known(chains)
        pieces = [
            (f"{self.label}{number} {name_of(chain)}", (fold, self.template, chain, self.stop_early))
            for number, fold in enumerate(self.folds)
            for chain in chains
        ]
        if self.progress is not None:
            self.progress.stage(stage, len(pieces))
        values = run(score_chain, pieces, n_jobs=self.n_jobs, checkpoint=self.checkpoint, progress=self.progress)
        for chain in chains:
            text = name_of(chain)
            by_fold = np.asarray([values[f"{self.label}{number} {text}"] for number in range(len(self.folds))], float)
            for place, params in enumerate(chain):
                self.candidates[name_of(params)] = Candidate(params, stage, by_fold[:, place])

    def _without_known(self, chains: Iterable[Sequence[Params]]) -> list[list[Params]]:
        """The chains without settings that are scored already or stand in an earlier chain."""
        known, left = set(self.candidates), []
        for chain in chains:
            fresh = [params for params in chain if name_of(params) not in known]
            known.update(map(name_of, fresh))
            if fresh:
                left.append(fresh)
        return left

    def _scored(self) -> list[Candidate]:
        """The candidates with a finite score."""
        return [candidate for candidate in self.candidates.values() if np.isfinite(candidate.mean)]

    def best(self) -> Candidate:
        """The best candidate; an error where none got a finite score."""
        scored = self._scored()
        if not scored:
            raise DataError("No setting got a finite score; check the scoring function and the folds.")
        return max(scored, key=lambda candidate: candidate.mean)

    @property
    def best_with_graph(self) -> Candidate | None:
        """The best of the candidates that learn variances or a graph, None where there is none."""
        learned = [c for c in self._scored() if np.isfinite(c.params.get("graph_penalty", np.inf))]
        return max(learned, key=lambda candidate: candidate.mean, default=None)

    def equals(self, chosen: Candidate, most: int) -> list[Candidate]:
        """A candidate and those that it does not beat by a standard error of the paired difference, best first.

        Parameters
        ----------
        chosen : Candidate
            The best, or another one to compare with.
        most : int
            How many to give at most.
        """
        others = sorted(self._scored(), key=lambda candidate: -candidate.mean)
        near = [other for other in others if other is not chosen and not chosen.beats(other, 1.0)]
        return [chosen, *near[: most - 1]]

    def candidate(self, params: Params) -> Candidate:
        """The candidate with these settings, which must have been scored."""
        return self.candidates[name_of(params)]

    def simplest(self) -> Candidate:
        """The sparsest candidate (edges, then weights) within one standard error of the best."""
        best = self.best()
        good = [candidate for candidate in self._scored() if candidate.mean >= best.mean - best.standard_error]
        return min(good, key=lambda good: (*good.folds[:, [EDGES, NONZERO]].mean(axis=0), -good.mean))

    def note_features(self, features: str) -> None:
        """Name the features among the settings of all candidates, once they have won against others."""
        noted = [replace(c, params={**c.params, "features": features}) for c in self.candidates.values()]
        self.candidates = {name_of(candidate.params): candidate for candidate in noted}

    def without(self, fold: int) -> ScoreTable:
        """The candidates with a score, by all folds but one."""
        part = copy(self)
        left = [replace(c, folds=np.delete(c.folds, fold, axis=0)) for c in self._scored()]
        part.candidates = {name_of(candidate.params): candidate for candidate in left}
        return part

    def cv_results(self) -> dict[str, Any]:
        """The table as arrays, in the form of scikit-learn's ``cv_results_``."""
        candidates = list(self.candidates.values())
        folds = np.stack([candidate.folds[:, :TASKS] for candidate in candidates])
        scores, means = folds[:, :, SCORE], np.asarray([candidate.mean for candidate in candidates])
        names = sorted({name for candidate in candidates for name in candidate.params})
        ranks = np.empty(len(candidates), dtype=np.int64)
        ranks[np.argsort(-np.nan_to_num(means, nan=-np.inf), kind="stable")] = np.arange(1, len(candidates) + 1)
        results: dict[str, Any] = {
            f"param_{name}": np.asarray([candidate.params.get(name) for candidate in candidates], dtype=object)
            for name in names
        }
        results |= {f"split{i}_test_score": scores[:, i] for i in range(scores.shape[1])}
        measured = ~np.isnan(folds[:, :, AUC])
        if measured.any():
            areas = np.where(measured, folds[:, :, AUC], 0.0).sum(axis=1)
            results["mean_auc"] = np.where(measured.any(axis=1), areas / np.maximum(measured.sum(axis=1), 1), np.nan)
        return results | {
            "params": [candidate.params for candidate in candidates],
            "stage": np.asarray([candidate.stage for candidate in candidates]),
            "mean_test_score": means,
            "std_test_score": np.asarray([row.std() if np.isfinite(row).all() else np.nan for row in scores]),
            "rank_test_score": ranks,
            "mean_edges": folds[:, :, EDGES].mean(axis=1),
            "mean_nonzero": folds[:, :, NONZERO].mean(axis=1),
            "mean_fit_time": folds[:, :, SECONDS].mean(axis=1),
            "certified": folds[:, :, CERTIFIED].all(axis=1),
        }
