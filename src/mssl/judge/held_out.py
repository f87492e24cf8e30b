r"""When held-out rows tell that one candidate is better than another: a gain, its error, and one rule.

A gain is a sum over parts: cells of a table of folds and tasks, or rows. Its error is the larger of those over several
ways to group the parts, such as folds (or cells) and tasks: five folds say little about it, and a gain in one task out
of many is no gain to rely on.

:func:`stack` mixes candidates where none is clearly better: its weights are those of Yao, Vehtari, Simpson & Gelman
(2018, doi:10.1214/17-BA1091),

.. math:: \max_{w \ge 0, \sum w = 1} \; \sum_i \log \sum_m w_m \, p_m(y_i \mid y_{-i}) ,

which do not ask whether one of the candidates is right.
"""

from __future__ import annotations

import numpy as np

from mssl._typing import Array, Index

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
