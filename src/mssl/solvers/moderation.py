r"""Variances of many tasks, each drawn towards a common value as far as its own estimation error asks for.

With :math:`\nu_k` degrees of freedom an estimated variance is :math:`s_k^2 \sim \sigma_k^2 \chi^2_{\nu_k} / \nu_k`. If
these are few it may be small by chance, and whatever is divided by it then counts for too much. Where the true
variances come from :math:`1/\sigma_k^2 \sim \chi^2_{\nu_0} / (\nu_0 s_0^2)`, the precision expected in the light of
the estimate is that of the *moderated* variance

.. math:: \tilde s_k^2 = \frac{\nu_0 s_0^2 + \nu_k s_k^2}{\nu_0 + \nu_k}.

Scale and degrees of freedom of the prior come from the logarithms
:math:`z_k = \log s_k^2 - \psi(\nu_k/2) + \log(\nu_k/2)`, which have the mean
:math:`\log s_0^2 - \psi(\nu_0/2) + \log(\nu_0/2)` and the variance :math:`\psi'(\nu_k/2) + \psi'(\nu_0/2)`. With equal
:math:`\nu_k` this is Smyth's estimate. Unequal ones are weighted by the inverse of these variances (Paule and Mandel),
so that tasks which hardly know their noise have hardly a say.

References
----------
Smyth (2004), Linear models and empirical Bayes methods for assessing differential expression,
doi:10.2202/1544-6115.1027.
Paule & Mandel (1982), Consensus values and weighting factors, doi:10.6028/jres.087.022.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

Array = NDArray[np.float64]

_LEAST_FREEDOM = 1e-3  # degrees of freedom below which an estimate says nothing


def moderate(variances: Array, freedom: Array) -> Array:
    r"""Moderated variances.

    Parameters
    ----------
    variances : ndarray of shape (K,)
        Estimates :math:`s_k^2 > 0`.
    freedom : ndarray of shape (K,)
        Their degrees of freedom :math:`\nu_k`; an estimate with none is replaced by the common value.

    Returns
    -------
    ndarray of shape (K,)
        Between the smallest and the largest of the estimates that have degrees of freedom. The estimates themselves
        where none has any.

    Examples
    --------
    Four variances that chance alone may have made different, and the same known well:

    >>> import numpy as np
    >>> found = np.array([0.5, 0.8, 1.3, 2.0])
    >>> moderate(found, np.full(4, 4.0)).round(2)
    array([1.32, 1.32, 1.32, 1.32])
    >>> moderate(found, np.full(4, 1e4)).round(2)
    array([0.5, 0.8, 1.3, 2. ])
    """
    known = freedom > _LEAST_FREEDOM
    if not known.any():
        return variances
    s2, nu = variances[known], freedom[known]
    if len(s2) == 1:
        return np.where(known, variances, s2[0])
    half = nu / 2
    z, errors = np.log(s2) - digamma(half) + np.log(half), polygamma(1, half)
    excess = _excess(z, errors)
    level, half_prior = _mean(z, errors, excess), np.inf
    if excess > 0:
        half_prior = _trigamma_inverse(excess)
        level += digamma(half_prior) - np.log(half_prior)
    common = np.exp(np.clip(level, np.log(s2.min()), np.log(s2.max())))
    own = np.where(known, freedom, 0.0) / 2
    share = own / (own + half_prior)
    return np.asarray(np.where(known, share * variances, 0.0) + (1 - share) * common)


def _mean(z: Array, errors: Array, excess: float) -> float:
    """Mean weighted by the inverse variances."""
    return float(np.average(z, weights=1 / (errors + excess)))


def _excess(z: Array, errors: Array) -> float:
    r"""The variance e ≥ 0 beside the errors for which :math:`\sum_k (z_k - \bar z)^2/(e + \epsilon_k) = K - 1`."""

    def surplus(e: float) -> float:
        return float(np.sum((z - _mean(z, errors, e)) ** 2 / (errors + e))) - (len(z) - 1)

    # Without any errors e would be the plain variance; with them it is smaller.
    return float(brentq(surplus, 0.0, z.var(ddof=1) * (1 + 1e-9))) if surplus(0.0) > 0 else 0.0


def _trigamma_inverse(value: float) -> float:
    """The h with ψ'(h) = value, from 1/h < ψ'(h) < 1/h + 1/h²."""
    high = (1 + np.sqrt(1 + 4 * value)) / (2 * value)
    return float(brentq(lambda h: polygamma(1, h) - value, 0.5 / value, 2 * high))
