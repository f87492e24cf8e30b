r"""Correlations from ranks, for heavy-tailed or skewed rows: those of a Gaussian copula.

References
----------
Liu, Han, Yuan, Lafferty & Wasserman (2012), *High-dimensional semiparametric Gaussian copula graphical models*,
doi:10.1214/12-AOS1037.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from mssl._typing import Array

# Smallest eigenvalue of a learned correlation matrix, and of a learned covariance relative to its largest: a safeguard.
# A larger one changes the matrix more, a smaller one makes the inverse less accurate.
LEAST_EIGENVALUE = 1e-7


def rank_correlation(Q: Array, kind: str) -> Array:
    r"""Correlations of the latent variables of a Gaussian copula, from the ranks within each row of Q.

    They are :math:`2\sin(\pi\rho/6)` for Spearman's ρ and :math:`\sin(\pi\tau/2)` for Kendall's τ. The latter is τ_b,
    which ignores ties such as zero weights. Constant rows are uncorrelated with all others.

    Parameters
    ----------
    Q : ndarray of shape (K, r)
        One row per task.
    kind : {"spearman", "kendall"}
        The rank correlation.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(5.0)
    >>> rank_correlation(np.stack([x, np.exp(x), -x]), "kendall").round(3)
    array([[ 1.,  1., -1.],
           [ 1.,  1., -1.],
           [-1., -1.,  1.]])
    """
    if kind == "spearman":
        ranks = rankdata(Q, axis=1)
        ranks = ranks - ranks.mean(axis=1, keepdims=True)
        products = ranks @ ranks.T
    else:
        products = _sign_products(Q)
    sizes = np.sqrt(products.diagonal())
    outer = np.outer(sizes, sizes)
    plain = np.divide(products, outer, out=np.zeros_like(products), where=outer > 0)
    R = 2.0 * np.sin(np.pi * plain / 6.0) if kind == "spearman" else np.sin(np.pi * plain / 2.0)
    np.fill_diagonal(R, 1.0)
    return nearest_correlation(R)


def normal_scores(Q: Array) -> Array:
    """Replace the ranks within each row of Q by normal quantiles; keep the root mean square of the row, and NaN.

    Examples
    --------
    >>> import numpy as np
    >>> normal_scores(np.array([[1.0, 100.0, -3.0]])).round(1)
    array([[  0. ,  70.7, -70.7]])
    """
    counts = np.count_nonzero(np.isfinite(Q), axis=1, keepdims=True)
    scores = ndtri((rankdata(Q, axis=1, nan_policy="omit") - 0.5) / np.maximum(counts, 1))
    before, after = (np.sqrt(np.nanmean(values**2, axis=1, keepdims=True)) for values in (Q, scores))
    return np.asarray(scores * np.divide(before, after, out=np.zeros_like(before), where=after > 0))


def _sign_products(Q: Array) -> Array:
    """The sums over pairs of columns of the products of signs, (K, K)."""
    products = np.zeros((len(Q), len(Q)))
    for i in range(Q.shape[1] - 1):
        signs = np.sign(Q[:, i + 1 :] - Q[:, i : i + 1])
        products += signs @ signs.T
    return products


def nearest_correlation(R: Array, least: float = LEAST_EIGENVALUE) -> Array:
    """A positive definite matrix with unit diagonal near R. Small eigenvalues are raised, then the matrix is scaled."""
    values, vectors = np.linalg.eigh(R)
    if values[0] >= least:
        return R
    raised = (vectors * np.maximum(values, least)) @ vectors.T
    root = np.sqrt(raised.diagonal())
    nearest = raised / np.outer(root, root)
    np.fill_diagonal(nearest, 1.0)
    return np.asarray((nearest + nearest.T) / 2)
