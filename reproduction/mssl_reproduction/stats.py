"""Summaries of runs, and paired tests between methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mssl.exceptions import DataError

Array = NDArray[np.float64]

ALPHA = 0.05  # level of all tests: trades false alarms for differences that are missed


def mean_and_spread(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard deviation over runs (that of a sample; NaN for a single run, which says nothing of it).

    Examples
    --------
    >>> mean_and_spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    runs = np.asarray(values, dtype=float)
    return float(runs.mean()), float(runs.std(ddof=1)) if runs.size > 1 else float("nan")


def over_runs(number: int, noun: str) -> str:
    """What the figures of so many runs are, for a caption.

    Examples
    --------
    >>> over_runs(5, "test window"), over_runs(1, "test window")
    ('mean ± sd over 5 test windows', 'one test window')
    """
    return f"mean ± sd over {number} {noun}s" if number > 1 else f"one {noun}"


def rmse_by_task(data: Any, prediction: ArrayLike) -> list[float]:
    """Test error of every task of a problem as :func:`mssl.datasets.make_clustered_tasks` makes it."""
    squares = (np.asarray(prediction) - data.y_test) ** 2
    return [float(np.sqrt(squares[data.tasks_test == task].mean())) for task in data.task_names]


def paired_p_value(first: ArrayLike, second: ArrayLike, *, overlap: float = 0.0) -> float:
    r"""Two-sided p-value of a paired t-test, of whether both have the same mean.

    Runs on random splits of one data set share rows, so that their differences are correlated and the plain test calls
    too much significant. With a share ρ of rows in common (``overlap``) the variance of the mean is taken as
    :math:`s^2(1/n + \rho/(1-\rho))` instead of :math:`s^2/n`.

    Parameters
    ----------
    first, second : arrays of shape (n,)
        Errors of two methods on the same runs.
    overlap : float
        Share of rows that the training parts of two runs have in common; 0 for independent runs.

    Returns
    -------
    float
        1 where all differences are zero, or there is a single run.

    Notes
    -----
    Checked on disjoint training parts: rows of the landmine fields were parted into halves that share none, 40 times,
    and the mean difference in logarithmic loss between single-task and pooled logistic regression over five splits was
    taken in either half. Its variance between halves was 1.2 times that above for a share of 0.2 and 0.6 times for 0.5
    (standard error about 0.2), and 2.7 and 3.8 times :math:`s^2/n`.

    References
    ----------
    After Nadeau & Bengio (2003), Inference for the generalization error, doi:10.1023/A:1024068626366, who take for ρ
    the share of test rows, which is too much where training parts are small.

    Examples
    --------
    >>> round(paired_p_value([1.0, 2.0, 3.0], [0.5, 1.6, 2.2]), 3)
    0.042
    """
    from scipy.stats import t

    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.shape != b.shape or a.ndim != 1:
        raise DataError(
            f"The methods have runs of shapes {a.shape} and {b.shape}; give equally many of both for a paired test."
        )
    differences = a - b
    n = len(differences)
    if n < 2 or np.ptp(differences) == 0:
        return 1.0 if n < 2 or differences[0] == 0 else 0.0
    variance = differences.var(ddof=1) * (1.0 / n + overlap / (1.0 - overlap))
    return float(2 * t.sf(abs(differences.mean()) / np.sqrt(variance), n - 1))


def holm(p_values: ArrayLike) -> Array:
    """Holm's step-down adjustment of p-values for many tests.

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure, https://www.jstor.org/stable/4615733.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    result = np.empty_like(p)
    result[order] = np.minimum(adjusted, 1.0)
    return result


def winners(errors: dict[str, Any], *, overlap: float = 0.0) -> dict[str, bool]:
    """Methods with the lowest mean error, and all that are not significantly worse (Holm, α = 0.05).

    Examples
    --------
    >>> winners({"a": [1.0, 1.1, 1.2], "b": [2.0, 2.1, 2.3], "c": [1.1, 1.0, 1.2]})
    {'a': True, 'b': False, 'c': True}
    """
    best = min(errors, key=lambda name: float(np.mean(errors[name])))
    others = [name for name in errors if name != best]
    adjusted = holm([paired_p_value(errors[name], errors[best], overlap=overlap) for name in others])
    worse = dict(zip(others, adjusted < ALPHA, strict=True))
    return {name: not worse.get(name, False) for name in errors}


def density_test(adjacency: NDArray[Any], groups: ArrayLike, *, largest: int = 200_000) -> dict[str, float]:
    """Permutation test of whether tasks of one group are joined more densely than tasks of two.

    Every way to deal out the same group sizes is looked at where there are at most ``largest``, a random sample of
    that many otherwise. Weights (say |partial correlations|) may take the place of a 0/1 adjacency.

    Parameters
    ----------
    adjacency : array of shape (K, K)
        Symmetric, without a diagonal.
    groups : array of shape (K,)
        Two different labels.
    largest : int
        Most relabellings.

    Returns
    -------
    dict
        ``first``, ``second``, ``between``: mean weights; ``difference``: mean within less mean between; ``p_value``,
        one-sided; ``relabellings``.

    Examples
    --------
    >>> import numpy as np
    >>> blocks = np.kron(np.eye(2), np.ones((3, 3))) - np.eye(6)
    >>> density_test(blocks, [0, 0, 0, 1, 1, 1])["p_value"]
    0.1
    """
    weights = np.asarray(adjacency, dtype=float) * (1 - np.eye(len(adjacency)))
    labels = np.asarray(groups)
    names = list(dict.fromkeys(labels.tolist()))
    if len(names) != 2 or len(labels) != len(weights):
        raise DataError(
            f"There are {len(labels)} labels, {names}; give two different ones, one each for the {len(weights)} tasks."
        )
    first = labels == names[0]
    members = _relabellings(len(labels), int(first.sum()), largest)
    found = _contrast(weights, members)
    observed = _contrast(weights, first[None].astype(float))[0]
    tiny = 1e-12 * max(1.0, abs(observed))
    parts = {"first": first, "second": ~first}
    means = {name: _mean_inside(weights, part) for name, part in parts.items()}
    return {
        **means,
        "between": float(weights[np.ix_(first, ~first)].mean()),
        "difference": float(observed),
        "p_value": float((found >= observed - tiny).mean()),
        "relabellings": len(members),
    }


def _mean_inside(weights: Array, part: NDArray[np.bool_]) -> float:
    count = int(part.sum())
    return float(weights[np.ix_(part, part)].sum() / max(count * (count - 1), 1))


def _relabellings(n: int, size: int, largest: int) -> Array:
    """Indicators of the first group, one row for each way to choose its members."""
    from itertools import combinations
    from math import comb

    if comb(n, size) <= largest:
        members = np.array(list(combinations(range(n), size)))
    else:
        members = np.argsort(np.random.default_rng(0).random((largest, n)), axis=1)[:, :size]
    indicators = np.zeros((len(members), n))
    np.put_along_axis(indicators, members, 1.0, axis=1)
    return indicators


def _contrast(weights: Array, first: Array) -> Array:
    """Mean weight within groups less mean weight between them, for every row of indicators."""
    second = 1.0 - first
    n1, n2 = first.sum(axis=1), second.sum(axis=1)
    inside = ((first @ weights) * first).sum(axis=1) + ((second @ weights) * second).sum(axis=1)
    across = ((first @ weights) * second).sum(axis=1)
    return np.asarray(inside / (n1 * (n1 - 1) + n2 * (n2 - 1)) - across / (n1 * n2))
