r"""When held-out rows tell that one candidate is better than another: a gain, its error, and one rule.

A gain is a sum over parts: cells of a table of folds and tasks, or rows. Its error is the larger of those over several
ways to group the parts, such as folds (or cells) and tasks: five folds say little about it, and a gain in one task out
of many is no gain to rely on.

:class:`ScoreTable` holds the scores of settings in every fold, and says which are the best and which can be told from
them. :func:`stack` mixes candidates where none is clearly better: its weights are those of Yao, Vehtari, Simpson &
Gelman (2018, doi:10.1214/17-BA1091),

.. math:: \max_{w \ge 0, \sum w = 1} \; \sum_i \log \sum_m w_m \, p_m(y_i \mid y_{-i}) ,

which do not ask whether one of the candidates is right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mssl._typing import Array, Index, Json
from mssl.data.layouts import TaskData
from mssl.exceptions import DataError

# Standard errors by which curves have to beat straight lines, and products curves. One was too few: it let curves in on
# two of five draws of pure noise and on a cut of landmine, where they lost. The one draw of true curves that was looked
# at gained 4.8. On 48 sets of lines and curves one and two gave the same errors to a thousandth.
MARGIN = 2.0
MIN_GAIN_NATS = 1.0  # of total log density besides: smaller gains are within the tolerance of fits that are only judged


def gain(parts: Array, *groupings: Index) -> tuple[float, float]:
    """Sum of the parts of a paired difference, and the larger of its standard errors over groups.

    Parameters
    ----------
    parts : ndarray of shape (N,)
        What each part adds to the difference.
    groupings : ndarrays of int of shape (N,)
        Group of each part, several ways; one with a single group says nothing.

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
    """Standard errors of the means over the last axis; 0 where it is of length one, which says nothing of them."""
    n = values.shape[-1]
    return np.asarray(values.std(axis=-1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(values.shape[:-1]))


def wins(gained: tuple[float, float], margin: float = MARGIN, least: float = 0.0) -> bool:
    """Whether a gain is above so many of its errors, and above a least one."""
    return gained[0] > max(margin * gained[1], least)


def mean_by_task(data: TaskData, values: Array, weights: Array) -> Array:
    """Mean of flat values over each task's rows, (K,); NaN where all its weights are zero."""
    sums, total = data.task_sums(weights * values), data.task_sums(weights)
    return np.divide(sums, total, out=np.full(data.n_tasks, np.nan), where=total > 0)


# What is reported of one fit and its score; the scores of the single tasks follow where the score is their mean.
SCORE, EDGES, NONZERO, SECONDS, CERTIFIED, AUC = range(6)
TASKS = AUC + 1  # where the scores of the single tasks begin


def advantages(one: Array, others: Array) -> tuple[Array, Array]:
    """By how much a mean score is better than others, and the standard errors of the paired differences.

    An error is the larger of that over folds and that over tasks.

    Parameters
    ----------
    one : ndarray of shape (F, 6 + K)
        Reports of one fit in every fold.
    others : ndarray of shape (..., F, 6 + K)
        Those of others.
    """
    difference = one - others
    by_fold, by_task = difference[..., SCORE], difference[..., TASKS:]
    error = error_of_mean(by_fold)
    scored = ~np.isnan(by_task).all(axis=tuple(range(by_task.ndim - 1)))
    if scored.any():
        error = np.maximum(error, error_of_mean(np.nanmean(by_task[..., scored], axis=-2)))
    return by_fold.mean(axis=-1), error


@dataclass(eq=False)
class ScoreTable:
    """Settings and how they did in every fold.

    Attributes
    ----------
    params : list of dict
        The settings; their numbers in this list stand for them.
    stages : list of str
        The stage of the search that asked for each.
    reports : ndarray of shape (n_settings, F, 6 + K)
        For each fold the score, edges, nonzero weights, seconds, whether the fit is certified, the area under the ROC
        curve (NaN where there are no labels), and the scores of the single tasks. NaN where a chain of settings was
        left early.
    """

    params: list[Json]
    stages: list[str]
    reports: Array

    def means(self) -> Array:
        """Mean score over folds."""
        return np.asarray(self.reports[..., SCORE].mean(axis=1))

    def ranking(self) -> list[int]:
        """Settings with a finite score, the best first; an error where none got one."""
        means = self.means()
        order = np.argsort(-means, kind="stable")
        order = order[np.isfinite(means[order])]
        if not len(order):
            raise DataError("No setting got a finite score; check the scoring function and the folds.")
        return order.tolist()

    def equals(self, chosen: int, most: int) -> list[int]:
        """Settings and those that they do not beat by a standard error of the paired difference, best first.

        Parameters
        ----------
        chosen : int
            The best, or others to compare with.
        most : int
            How many to give at most.
        """
        others = [other for other in self.ranking() if other != chosen]
        if most == 1 or not others:
            return [chosen]
        gains, errors = advantages(self.reports[chosen], self.reports[others])
        near = [other for other, far in zip(others, gains > errors, strict=True) if not far]
        return [chosen, *near[: most - 1]]

    def simplest(self) -> int:
        """The sparsest settings (edges, then weights) within one standard error of the best."""
        ranking, means = self.ranking(), self.means()
        least = means[ranking[0]] - error_of_mean(self.reports[ranking[0], :, SCORE])
        sizes = self.reports[:, :, [EDGES, NONZERO]].mean(axis=1).tolist()
        return min((number for number in ranking if means[number] >= least), key=lambda number: sizes[number])

    def without(self, fold: int) -> ScoreTable:
        """The same settings by all folds but one; those without a score have none."""
        scored = np.isfinite(self.means())[:, None, None]
        return replace(self, reports=np.delete(np.where(scored, self.reports, np.nan), fold, axis=1))

    def cv_results(self) -> dict[str, Any]:
        """The table as arrays, in the form of scikit-learn's ``cv_results_``."""
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
        with np.errstate(invalid="ignore"):  # scores that are infinite
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
    """Weights of a mixture that give held-out rows the highest density.

    Parameters
    ----------
    densities : ndarray of shape (N, M)
        Log densities of the rows under each member.
    weights : ndarray of shape (N,), optional
        Frequency weights of the rows.
    prior : float
        Rows' worth of belief, spread over all members alike.

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
