r"""The distribution of missing targets, given the known targets of other tasks on the same occasion.

On one occasion the targets of K aligned tasks are :math:`y \sim N(\mu, \Sigma)`. Given known targets :math:`y_o`, the
missing targets have

.. math:: E[y_m \mid y_o] = \mu_m + \Sigma_{mo}\Sigma_{oo}^{-1}(y_o - \mu_o), \qquad
          \operatorname{Cov}[y_m \mid y_o] = \Sigma_{mm} - \Sigma_{mo}\Sigma_{oo}^{-1}\Sigma_{om}.

This is kriging without coordinates: the covariance is learned from the residuals instead of from distances.

References
----------
Little & Rubin (2019), Statistical Analysis with Missing Data, doi:10.1002/9781119482260 (chapter 11: EM).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mssl._typing import Array, Index, Mask
from mssl.exceptions import DataError


class Conditional(NamedTuple):
    """The distribution of the targets, given the known ones.

    Attributes
    ----------
    mean : ndarray of shape (n, K)
        The known targets, and the expected values of the missing ones.
    variance : ndarray of shape (n, K)
        Variances of the missing targets; 0 for known targets.
    covariance_sum : ndarray of shape (K, K)
        The covariance of the missing targets, summed over occasions. The E-step of an EM algorithm adds it to the
        products of the filled residuals.
    """

    mean: Array
    variance: Array
    covariance_sum: Array


def conditional(mean: Array, covariance: Array, known: Array) -> Conditional:
    r"""Expected values and variances of missing targets, given the known ones of the same occasion.

    Parameters
    ----------
    mean : ndarray of shape (n, K)
        :math:`\mu` of every occasion: the predictions from the features alone.
    covariance : ndarray of shape (K, K) or (n, K, K)
        :math:`\Sigma`, positive definite; one matrix for all occasions, or one per occasion (if predictions are
        uncertain).
    known : ndarray of shape (n, K)
        The targets; NaN marks targets to predict.

    Returns
    -------
    Conditional

    Examples
    --------
    There are two tasks with correlation 0.8 and one occasion, on which the target of the second task is known:

    >>> import numpy as np
    >>> answer = conditional(np.zeros((1, 2)), np.array([[1.0, 0.8], [0.8, 1.0]]), np.array([[np.nan, 2.0]]))
    >>> answer.mean.round(2), answer.variance.round(2)
    (array([[1.6, 2. ]]), array([[0.36, 0.  ]]))
    """
    mean, covariance, known = (np.asarray(values, dtype=float) for values in (mean, covariance, known))
    n, K = mean.shape
    if known.shape != (n, K):
        raise DataError(
            f"The known targets have shape {known.shape}; give ({n}, {K}), with NaN for targets to predict."
        )
    filled, variance, total = known.copy(), np.zeros((n, K)), np.zeros((K, K))
    away = known - mean
    for rows, missing in _patterns(np.isnan(known)):
        if not missing.any():
            continue
        gaps, given = np.flatnonzero(missing), np.flatnonzero(~missing)
        for some in [rows] if covariance.ndim == 2 else rows[:, None]:
            sigma = covariance if covariance.ndim == 2 else covariance[some[0]]
            cells = some[:, None], gaps
            across = sigma[given[:, None], gaps]
            slopes = np.linalg.solve(sigma[given[:, None], given], across)
            inner = sigma[gaps[:, None], gaps] - across.T @ slopes
            filled[cells] = mean[cells] + away[some[:, None], given] @ slopes
            variance[cells] = np.maximum(np.diagonal(inner), 0.0)
            total[gaps[:, None], gaps] += len(some) * inner
    return Conditional(filled, variance, total)


def _patterns(missing: Mask) -> Iterator[tuple[Index, Mask]]:
    """Groups of occasions on which the same tasks are missing, and the mask of these tasks."""
    patterns, place = np.unique(missing, axis=0, return_inverse=True)
    order = np.argsort(place.ravel(), kind="stable")
    bounds = np.searchsorted(place.ravel()[order], np.arange(len(patterns) + 1))
    for number, pattern in enumerate(patterns):
        yield order[bounds[number] : bounds[number + 1]], pattern
