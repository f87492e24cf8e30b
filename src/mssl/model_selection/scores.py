"""Folds that fits are scored on, and the table of scores behind ``cv_results_``.

For least squares a training part and its test deviance depend on the moments of the rows alone. Where cells of rows
that are always in the same part have more rows than features, a few rows with the same moments take their place
(:func:`compressed`), so that the cost of a search does not grow with n.

Test deviances are divided by each task's noise variance in the training part, moderated
(:mod:`mssl.solvers.start`). The noise variance of all rows would be smallest for the tasks whose test rows a
single-task fit happens to follow; these tasks would count most, and the search would share too little. The noise
variance of the training part does not depend on the test rows. It is less certain, which is why it is moderated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import signature
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import min_max_axis

from mssl._typing import Array, ArrayLike, Labels, Mask
from mssl.data.folds import Folds
from mssl.data.inputs import is_missing
from mssl.data.layouts import TaskData, subset
from mssl.data.moments import Moments
from mssl.estimators.spec import FitSpec
from mssl.exceptions import DataError
from mssl.judge.compare import mean_by_task
from mssl.judge.held_out import error_of_mean, wins
from mssl.judge.parallel import Workers
from mssl.losses import Loss
from mssl.metrics import area_under_curve, task_means
from mssl.model_selection.chains import Dataset, Params, PathPoint, follow, follow_all, in_chains, name_of
from mssl.solvers.base import Status
from mssl.solvers.fit import Prepared

if TYPE_CHECKING:
    from mssl.estimators.base import MultiTaskEstimator


class Fold(Dataset):
    """A fold, whose default score is minus the mean over tasks of the scaled test deviance.

    Parameters
    ----------
    data : TaskData
        All rows.
    train, test : ndarray of bool of shape (N,)
        Which flat rows belong to the two parts.
    loss : Loss
        Whose deviance is the score, whatever loss the fits have.
    spec : FitSpec
        What the units of the deviances are estimated with.
    """

    def __init__(self, data: TaskData, train: Mask, test: Mask, loss: Loss, spec: FitSpec) -> None:
        super().__init__(data, loss, train)
        self.train_mask, self.test_mask, self.spec = train, test, spec

    @cached_property
    def held_out(self) -> TaskData:
        """The test part."""
        return subset(self.data, self.test_mask, all_tasks=False)

    def predictors(self, point: PathPoint) -> Array:
        """Linear predictors of the test part."""
        part = self.held_out
        coef, b = point.prepared.to_user(point.result.W, point.result.intercepts)
        if part.shared:
            return np.ravel(coef @ part.X.T + b[:, None])
        predictor = np.empty(len(part.y))
        for k, (begin, end) in enumerate(pairwise(part.offsets.tolist())):
            predictor[begin:end] = part.X[begin:end] @ coef[k] + b[k]
        return predictor

    def scores(self, point: PathPoint) -> tuple[float, Array]:
        """The score of a fit, and those of the single tasks whose mean it is, NaN where a task has no test rows.

        A task's score is minus the mean deviance of its test rows over its dispersion in the training part.
        """
        part, predictor, loss = self.held_out, self.predictors(point), point.spec.loss
        if type(loss) is type(self.loss):  # the same link: finite even where a mean rounds to an edge
            deviance = self.loss.deviance_at(part.y, predictor)
        else:
            deviance = self.loss.deviance(part.y, loss.inverse_link(predictor))
        by_task = -mean_by_task(part, deviance, self._test_weights) / self.noise
        return float(by_task[~np.isnan(by_task)].mean()), by_task

    @cached_property
    def _test_weights(self) -> Array:
        part = self.held_out
        return np.ones(len(part.y)) if part.weights is None else part.weights

    def base_deviance(self) -> float:
        """Of labels the mean over tasks of the test rows' deviance by the training rows' base rates alone."""
        part, train = self.held_out, self.rows
        rate = task_means(train.y, train.task_of_row, train.weights, self.n_tasks)[part.task_of_row]
        rate = np.clip(rate, 1e-15, 1 - 1e-15)
        return float(np.nanmean(mean_by_task(part, self.loss.deviance(part.y, rate), self._test_weights)))

    def auc(self, point: PathPoint) -> float:
        """Of labels the area under the ROC curve, over the test rows of all tasks; NaN for other targets."""
        if not self.loss.labels:
            return float("nan")
        return area_under_curve(self.held_out.y, self.predictors(point), self.held_out.weights)

    @cached_property
    def noise(self) -> Array:
        """Dispersion of each task in the training part, in the targets' units."""
        if isinstance(self.spec.settings.noise, str) and not self.loss.has_dispersion:
            return np.ones(self.n_tasks)
        known = self._prepared(self.spec)  # of known targets: expected ones vary less
        return known.unit**2 * noise_units(known)


class ScoredFold(Fold):
    """A fold of rows that a scikit-learn scorer judges."""

    def __init__(
        self, fold: Fold, scorer: Callable[..., float], test: Sequence[Any], reader: MultiTaskEstimator
    ) -> None:
        super().__init__(fold.data, fold.train_mask, fold.test_mask, fold.loss, fold.spec)
        self.scorer, self.reader = scorer, reader
        self.X_test, self.y_test, self.tasks_test, self.weights_test = test

    def scores(self, point: PathPoint) -> tuple[float, Array]:
        """What the scorer says of the fitted model, which judges all tasks together.

        A scorer that scikit-learn has made judges the columns of (n, K) targets one by one.
        """
        model = point.model._same_input(self.reader)
        model.from_spec(point.spec, self.data, point.prepared, point.result)
        if self.data.layout == "long" or not hasattr(self.scorer, "_score_func"):
            return self._judge(model, self.y_test, self.weights_test), np.empty(0)
        targets, weights = np.asarray(self.y_test), self.weights_test
        seen = ~is_missing(targets)
        weights = np.ones(seen.shape) if weights is None else weights.reshape(len(seen), -1) * np.ones(seen.shape)
        seen &= weights > 0
        columns = [
            self._judge(model, targets[rows, k], None if self.weights_test is None else weights[rows, k], (rows, k))
            for k, rows in enumerate(seen.T)
            if rows.any()
        ]
        return float(np.mean(columns)), np.empty(0)

    def _judge(self, model: MultiTaskEstimator, y: ArrayLike, weights: Array | None, cells: Any = ...) -> float:
        takes = "sample_weight" in signature(getattr(self.scorer, "_score_func", self.scorer)).parameters
        more = {"sample_weight": weights} if takes and weights is not None else {}
        return float(self.scorer(_answering(model, self.tasks_test, cells), self.X_test, y, **more))


def _answering(model: MultiTaskEstimator, tasks: Labels | None, cells: Any) -> MultiTaskEstimator:
    """The model for scorers that know X and y only: it knows the tasks of the rows, and answers for some cells."""

    def answering(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def answer(*args: Any, **named: Any) -> Any:
            call = signature(method).bind(*args, **named)
            if call.arguments.get("tasks") is None:
                call.arguments["tasks"] = tasks
            found = method(*call.args, **call.kwargs)
            return found if cells is ... else found[cells]

        return answer

    changed = copy(model)
    for name in ("predict", "predict_proba", "decision_function", "score"):
        if hasattr(model, name):
            setattr(changed, name, answering(getattr(model, name)))
    return changed


def noise_units(prepared: Prepared) -> Array:
    """Noise variances as units of deviances.

    Targets that are constant in the training part tell no unit: such tasks have the geometric mean of the others'.
    """
    spectra, noise = prepared.spectra, prepared.noise
    if not isinstance(prepared.settings.noise, str) or spectra is None:
        return noise
    varies = spectra.target_squares > 0
    return np.where(varies, noise, np.exp(np.log(noise[varies]).mean())) if varies.any() else noise


def make_folds(data: TaskData, spec: FitSpec, loss: Loss, folds: Folds, *, by_rows: bool = False) -> list[Fold]:
    """Folds of the rows, or of fewer rows that say the same to squared errors (``by_rows=False``).

    Parameters
    ----------
    data : TaskData
        All rows.
    spec : FitSpec
        What the units of the deviances are estimated with.
    loss : Loss
        Whose deviance is the score.
    folds : Folds
        Which rows belong to the parts.
    by_rows : bool
        Whether the rows themselves are needed.
    """
    if loss.quadratic and not by_rows:
        data, folds = compressed(data, folds)
    return [Fold(data, train, test, loss, spec) for train, test in folds]


def compressed(data: TaskData, folds: Folds) -> tuple[TaskData, Folds]:
    """Rows with the same moments in each cell of the folds, where these are fewer, and their folds."""
    cell, train, test = folds.cells()
    n_cells, d = train.shape[1], data.n_features
    if data.shared and data.weights is not None and np.ptp(data.weights.reshape(data.n_tasks, -1), axis=0).any():
        return data, folds
    if (1 if data.shared else data.n_tasks) * n_cells * (d + 2) * d >= data.X.size:
        return data, folds
    scales, unit = _sizes(data.X), float(_sizes(data.y[:, None])[0])  # so that no square overflows or vanishes
    few = Moments.by_cell(data, cell, n_cells, scales, unit).to_tasks()
    cell = np.zeros(len(few.y), dtype=np.intp) if few.groups is None else few.groups
    return replace(few, X=few.X * scales, y=few.y * unit, groups=None), Folds(train[:, cell], test[:, cell])


def _sizes(columns: Any) -> Array:
    """A power of two near the largest entry of each column; 1 where all are zero."""
    least, most = min_max_axis(columns, 0) if sparse.issparse(columns) else (columns.min(axis=0), columns.max(axis=0))
    sizes = np.maximum(most, -least)
    return np.asarray(2.0 ** np.round(np.log2(np.where(sizes > 0, sizes, 1.0))))


# What score_chain says of one fit; the scores of the single tasks follow.
SCORE, EDGES, NONZERO, SECONDS, CERTIFIED, AUC = range(6)
TASKS = AUC + 1  # where the scores of the single tasks begin

# Early stopping of a chain trades settings that might still win for time. Both values are cautious choices and are not
# tuned: test_search.py shows that a search which stops early chooses as well as one that does not.
PATIENCE = 2  # settings in a row that cannot improve the score after which a chain stops
MIN_GAIN = 1e-3  # share of the score that counts as an improvement


def score_chain(
    fold: Fold, template: MultiTaskEstimator, chain: Sequence[Params], stop_early: bool = False
) -> list[list[float]]:
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


def score_average(parts: Sequence[tuple[Fold, MultiTaskEstimator, Sequence[Params]]]) -> list[float]:
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
    gains = scores[-PATIENCE:] - best
    highest = gains.mean(axis=1) + 2.0 * error_of_mean(gains)
    return bool(np.all(highest <= MIN_GAIN * abs(best.mean())))


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
        return float(error_of_mean(self.scores)) if np.isfinite(self.scores).all() else float("nan")

    def advantage(self, other: Candidate) -> tuple[float, float]:
        """By how much the mean score is better than another's, and the standard error of that paired difference."""
        (mean,), (error,) = advantages(self, [other])
        return float(mean), float(error)

    def beats(self, other: Candidate, margin: float) -> bool:
        """Whether the mean score is better than another's by so many standard errors of the difference."""
        return wins(self.advantage(other), margin)


def advantages(one: Candidate, others: Sequence[Candidate]) -> tuple[Array, Array]:
    """By how much a mean score is better than those of others, and the standard errors of the paired differences.

    An error is the larger of that over folds and that over tasks: five folds say little about it, and a gain in one
    task out of many is no gain to rely on.
    """
    difference = one.folds - np.stack([other.folds for other in others])
    by_fold, by_task = difference[..., SCORE], difference[..., TASKS:]
    error = error_of_mean(by_fold)
    scored = ~np.isnan(by_task).all(axis=(0, 1))
    if scored.any():
        error = np.maximum(error, error_of_mean(np.nanmean(by_task[..., scored], axis=1)))
    return by_fold.mean(axis=-1), error


class ScoreTable:
    """Scores candidates on all folds, each once, and keeps the best.

    Parameters
    ----------
    template : estimator
        What is not in the settings.
    folds : sequence
        Where candidates are fitted and scored.
    workers : Workers, optional
        Who fits and scores them.

    Attributes
    ----------
    stop_early : bool
        Whether a chain stops where nothing is left to gain.
    candidates : dict of str → Candidate
        All that were scored, in order.
    label : str
        Begins the names of pieces in a checkpoint that several tables share.
    """

    def __init__(self, template: MultiTaskEstimator, folds: Sequence[Fold], workers: Workers | None = None) -> None:
        self.template, self.folds, self.workers = template, folds, workers or Workers()
        self.stop_early, self.label = False, ""
        self.candidates: dict[str, Candidate] = {}

    def evaluate(self, stage: str, settings: Iterable[Params]) -> None:
        """Score the settings that have no score yet, in chains that differ in λ alone."""
        named = {name_of(params): params for params in settings}
        chains = in_chains(params for name, params in named.items() if name not in self.candidates)
        pieces = [
            (f"{self.label}{number} {name_of(chain)}", (fold, self.template, chain, self.stop_early))
            for number, fold in enumerate(self.folds)
            for chain in chains
        ]
        values = self.workers.run(score_chain, stage, pieces)
        for chain in chains:
            text = name_of(chain)
            by_fold = np.asarray([values[f"{self.label}{number} {text}"] for number in range(len(self.folds))], float)
            for place, params in enumerate(chain):
                self.candidates[name_of(params)] = Candidate(params, stage, by_fold[:, place])

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
        others = [other for other in others if other is not chosen]
        if most == 1 or not others:
            return [chosen]
        gains, errors = advantages(chosen, others)
        near = [other for other, far in zip(others, gains > errors, strict=True) if not far]
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
        part.candidates = {
            name: replace(candidate, folds=np.delete(candidate.folds, fold, axis=0))
            for name, candidate in self.candidates.items()
            if np.isfinite(candidate.mean)
        }
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
