r"""Stacking: the mixture of candidates that gives held-out rows the highest density.

The weights are those of Yao, Vehtari, Simpson & Gelman (2018, doi:10.1214/17-BA1091),

.. math:: \max_{w \ge 0, \sum w = 1} \; \sum_i \log \sum_m w_m \, p_m(y_i \mid y_{-i}) ,

which does not ask whether one of the candidates is right, and gives a mixture where none is.
"""

from __future__ import annotations

import numpy as np

from mssl._typing import Array


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
    >>> from mssl.judge.mixture import stack
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
