r"""Comparison of candidates on held-out rows: a gain, its standard error, and one decision rule.

A gain is a sum over parts, which are rows or cells of a table of folds and tasks. The parts are grouped in several
ways, such as by folds (or cells) and by tasks. The standard error of the gain is the largest over these groupings: five
folds alone estimate it poorly, and a gain in one of many tasks may not generalise.

:class:`ScoreTable` holds the scores of settings in each fold. It finds the best settings and those that are not
significantly worse. If no candidate is clearly better, :func:`stack` mixes them with the weights of Yao, Vehtari,
Simpson & Gelman (2018, doi:10.1214/17-BA1091),

.. math:: \max_{w \ge 0, \sum w = 1} \; \sum_i \log \sum_m w_m \, p_m(y_i \mid y_{-i}) ,

which do not assume that one of the candidates is the true model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mssl._typing import Array, Index, Json
from mssl.data.layouts import TaskData
from mssl.exceptions import DataError

# Number of standard errors by which curves must beat straight lines, and products must beat curves. A larger margin
# keeps models simpler but may miss true curves. One standard error was too few: it selected curves on two of five draws
# of pure noise and on a cut of landmine, where they were worse. The one examined draw of true curves gained 4.8. On 48
# sets of lines and curves margins of one and two gave the same errors to a thousandth.
MARGIN = 2.0
# Richer features must also raise the total held-out log density by at least this much; smaller gains are within the
# tolerance of the fits that cross-validation only scores.
MIN_GAIN_NATS = 1.0


# Smallest relative gain of the score that counts as an improvement. A larger value stops chains earlier, which saves
# time and may lose settings that would still win. This value, and the two consecutive settings without an improvement,
# are cautious and not tuned: test_search.py shows that a search with early stopping chooses as well as one without.
MIN_GAIN = 1e-3


def gain(parts: Array, *groupings: Index) -> tuple[float, float]:
    """Return the sum of the parts of a paired difference, and its largest standard error over the groupings.

    Parameters
    ----------
    parts : ndarray of shape (N,)
        Contribution of each part to the difference.
    groupings : ndarrays of int of shape (N,)
        Group of each part in one or more groupings. A grouping with a single group is ignored.

    Examples
    --------
    >>> total, error = gain(np.array([1.0, 1.2, 0.9, 1.1]), np.arange(4), np.array([0, 0, 1, 1]))
    >>> round(total, 2), round(error, 2)
    (4.2, 0.26)
    """
    errors = [0.0]
    for group in groupings:
        sums: Array = np.bincount(group, parts)[np.unique(group)].astype(float)
        errors.append(len(sums) * float(error_of_mean(sums)))
    return float(parts.sum()), max(errors)


def error_of_mean(values: Array) -> Array:
    """Return the standard errors of the means over the last axis; 0 if it has length 1."""
    n = values.shape[-1]
    return np.asarray(values.std(axis=-1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(values.shape[:-1]))


def wins(gained: tuple[float, float], margin: float = MARGIN, least: float = 0.0) -> bool:
    """Whether a gain exceeds ``margin`` standard errors and the minimum ``least``."""
    return gained[0] > max(margin * gained[1], least)


def mean_by_task(data: TaskData, values: Array, weights: Array) -> Array:
    """Return the weighted mean of flat values over each task's rows, (K,); NaN for tasks without weight."""
    sums, total = data.task_sums(weights * values), data.task_sums(weights)
    return np.divide(sums, total, out=np.full(data.n_tasks, np.nan), where=total > 0)


# Entries of the report of one fit. If the score is the mean over tasks, the scores of the single tasks follow.
SCORE, EDGES, NONZERO, SECONDS, CERTIFIED, AUC = range(6)
TASKS = AUC + 1  # Index of the first task's score.


def advantages(one: Array, others: Array) -> tuple[Array, Array]:
    """Return the advantage of one mean score over others, and the standard errors of the paired differences.

    Each standard error is the larger of that over folds and that over tasks.

    Parameters
    ----------
    one : ndarray of shape (F, 6 + K)
        Reports of one fit in each fold.
    others : ndarray of shape (..., F, 6 + K)
        Reports of the other fits.
    """
    difference = one - others
    by_fold, by_task = difference[..., SCORE], difference[..., TASKS:]
    error = error_of_mean(by_fold)
    scored = ~np.isnan(by_task).all(axis=tuple(range(by_task.ndim - 1)))
    if scored.any():
        error = np.maximum(error, error_of_mean(np.nanmean(by_task[..., scored], axis=-2)))
    return by_fold.mean(axis=-1), error


def no_gain_left(reports: Array) -> bool:
    """Whether the last two settings of a chain show that further settings would gain nothing.

    Their graphs have at least as many edges as tasks. Yet the gain of each over the best setting before, plus two
    standard errors of the paired difference over tasks, is at most a thousandth of the score. With few tasks the errors
    are so large that a chain seldom stops, but its fits are cheap.
    """
    edges, scores = reports[:, EDGES], reports[:, TASKS:]
    scores = scores[:, np.isfinite(scores).all(axis=0)]
    n_tasks = scores.shape[1]
    if len(reports) <= 2 or n_tasks < 2 or edges[-2:].min() < n_tasks:
        return False
    best = scores[scores[:-2].mean(axis=1).argmax()]
    gains = scores[-2:] - best
    highest = gains.mean(axis=1) + 2.0 * error_of_mean(gains)
    return bool(np.all(highest <= MIN_GAIN * abs(best.mean())))


@dataclass(eq=False)
class ScoreTable:
    """Settings and their reports in each fold.

    Attributes
    ----------
    params : list of dict
        The settings. Methods identify a setting by its index in this list.
    stages : list of str
        The stage of the search that evaluated each setting.
    reports : ndarray of shape (n_settings, F, 6 + K)
        For each fold the score, the numbers of edges and of nonzero weights, the seconds, whether the fit is certified,
        the area under the ROC curve (NaN unless the targets are labels), and the scores of the single tasks. Entries of
        settings that early stopping skipped are NaN.
    """

    params: list[Json]
    stages: list[str]
    reports: Array

    def means(self) -> Array:
        """Return the mean score of each setting over the folds."""
        return np.asarray(self.reports[..., SCORE].mean(axis=1))

    def ranking(self) -> list[int]:
        """Return the settings with a finite score, the best first; raise if there are none."""
        means = self.means()
        order = np.argsort(-means, kind="stable")
        order = order[np.isfinite(means[order])]
        if not len(order):
            raise DataError("No setting got a finite score; check the scoring function and the folds.")
        return order.tolist()

    def beats(self, other: ScoreTable, margin: float = MARGIN) -> bool:
        """Whether the best setting beats the best one of another table by ``margin`` standard errors."""
        gained, error = advantages(*(table.reports[table.ranking()[0]] for table in (self, other)))
        return wins((float(gained), float(error)), margin)

    def equals(self, chosen: int, most: int) -> list[int]:
        """Return a setting and those that it does not beat by a standard error of the paired difference, best first.

        Parameters
        ----------
        chosen : int
            The setting to compare with, usually the best one.
        most : int
            Maximum number of settings.
        """
        others = [other for other in self.ranking() if other != chosen]
        if most == 1 or not others:
            return [chosen]
        gains, errors = advantages(self.reports[chosen], self.reports[others])
        near = [other for other, far in zip(others, gains > errors, strict=True) if not far]
        return [chosen, *near[: most - 1]]

    def simplest(self) -> int:
        """Return the sparsest setting (by edges, then by weights) within one standard error of the best."""
        ranking, means = self.ranking(), self.means()
        least = means[ranking[0]] - error_of_mean(self.reports[ranking[0], :, SCORE])
        sizes = self.reports[:, :, [EDGES, NONZERO]].mean(axis=1).tolist()
        return min((number for number in ranking if means[number] >= least), key=lambda number: sizes[number])

    def without(self, fold: int) -> ScoreTable:
        """Return the table without one fold; settings without a score keep none."""
        scored = np.isfinite(self.means())[:, None, None]
        return replace(self, reports=np.delete(np.where(scored, self.reports, np.nan), fold, axis=1))

    def cv_results(self) -> dict[str, Any]:
        """Return the table as arrays, in the form of scikit-learn's ``cv_results_``."""
        means, scores, areas = self.means(), self.reports[..., SCORE], self.reports[..., AUC]
        names = sorted({name for params in self.params for name in params})
        results: dict[str, Any] = {
            f"param_{name}": np.asarray([params.get(name) for params in self.params], dtype=object) for name in names
        }
        results |= {f"split{number}_test_score": own for number, own in enumerate(scores.T.copy())}
        known = np.count_nonzero(~np.isnan(areas), axis=1)
        if known.any():
            results["mean_auc"] = np.nansum(areas, axis=1) / np.where(known, known, np.nan)
        order = np.argsort(-np.nan_to_num(means, nan=-np.inf), kind="stable")
        facts = self.reports.mean(axis=1)
        with np.errstate(invalid="ignore"):  # Scores may be infinite.
            spread = scores.std(axis=1)
        return results | {
            "params": list(self.params),
            "stage": np.asarray(self.stages),
            "mean_test_score": means,
            "std_test_score": spread,
            "rank_test_score": np.argsort(order) + 1,
            "mean_edges": facts[:, EDGES],
            "mean_nonzero": facts[:, NONZERO],
            "mean_fit_time": facts[:, SECONDS],
            "certified": self.reports[..., CERTIFIED].all(axis=1),
        }


def stack(densities: Array, weights: Array | None = None, *, prior: float = 1.0) -> Array:
    """Return the weights of a mixture that maximise the density of held-out rows.

    Parameters
    ----------
    densities : ndarray of shape (N, M)
        Log densities of the rows under each member.
    weights : ndarray of shape (N,), optional
        Frequency weights of the rows.
    prior : float
        Strength, in rows, of a prior for equal weights.

    Returns
    -------
    ndarray of shape (M,)
        Weights that sum to one.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.judge.held_out import stack
    >>> stack(np.log(np.array([[0.9, 0.1]] * 50))).round(2).tolist()
    [0.99, 0.01]
    """
    N, M = densities.shape
    counts = np.ones(N) if weights is None else weights
    p = np.exp(densities - densities.max(axis=1, keepdims=True))
    w = np.full(M, 1 / M)
    for _ in range(1000):
        new = (w * ((counts / (p @ w)) @ p) + prior / M) / (counts.sum() + prior)
        done = np.max(np.abs(new - w)) < 1e-6
        w = new
        if done:
            break
    return w
