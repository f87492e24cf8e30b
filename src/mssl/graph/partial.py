r"""Partial correlations of the weights in a group of tasks, by a likelihood in which every direction has its own error.

The weights of p tasks in each direction of the feature space are draws of :math:`N(0, \Sigma)`. The data know them with
the information J, so that with :math:`\mathbf\Sigma = \Sigma\otimes I` their scores
:math:`h \sim N(0, J\mathbf\Sigma J + J)`. The log-likelihood

.. math:: \ell(\Sigma) = \tfrac12 h^\top (\mathbf\Sigma^{-1} + J)^{-1} h - \tfrac12\log|I + \mathbf\Sigma J|

has, with :math:`P = (\mathbf\Sigma + J^{-1})^{-1} = \mathbf\Sigma^{-1} - \mathbf\Sigma^{-1}(\mathbf\Sigma^{-1} +
J)^{-1}\mathbf\Sigma^{-1}` in blocks :math:`P_{kl}` and :math:`s = \mathbf\Sigma^{-1}(\mathbf\Sigma^{-1}+J)^{-1}h`, the
derivatives and the Fisher information

.. math:: \frac{\partial\ell}{\partial\Sigma_{kl}} = \tfrac12(s_k\cdot s_l - \operatorname{tr} P_{kl}), \qquad
          \mathcal I_{kl,mn} = \tfrac12\operatorname{tr}(P_{lm}P_{nk}).

It is climbed in the frame of Σ (:mod:`mssl.evidence.climb`). A tenth of an observation of unrelated tasks is added,
which keeps Σ from being singular and moves estimates by less than their error. The variance of a partial correlation
:math:`\rho` follows from the information; :math:`(1-\rho^2)^2` divided by it is the number of directions without error
that would tell as much. Without errors that is the number of directions, and ρ the partial correlation of the weights.
Estimates from few observations leave a task less variance of its own than it has, against which errors weigh more. So
that number is taken where one further observation of unrelated tasks moves the estimate (in the groups of
``docs/graph.md`` it is then right to a tenth, without it 10 to 60 % too small).

References
----------
Searle, Casella & McCulloch (1992), Variance Components, doi:10.1002/9780470316856.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotri

from mssl._typing import Array
from mssl.evidence.climb import climb, frame_moved, frame_slope

_PRIOR = 0.1  # observations of unrelated tasks: from 0.03 to 0.3 the tables of docs/graph.md are the same
_CLOSE = 1e-6  # Gain of −2 log-likelihood at which it is at its top; 1e-4 leaves partial correlations open by 2e-4.
_MOST_STEPS = 100


class Known(NamedTuple):
    """What data say about the weights of p tasks, in B blocks of q directions each.

    Attributes
    ----------
    information : ndarray of shape (B, p, q, p, q)
        J.
    scores : ndarray of shape (B, p, q)
        h.
    """

    information: Array
    scores: Array

    @property
    def operations(self) -> float:
        """Roughly how many operations one evaluation of the likelihood takes."""
        B, p, q = self.scores.shape
        return float(B * p**3 * q**2 * (p + q))


class Partial(NamedTuple):
    """Partial correlations (p, p), and the number of directions without error that would tell as much of each pair."""

    correlation: Array
    observations: Array


def partial_correlations(known: Known, variances: Array) -> Partial | None:
    """The partial correlations of the tasks' weights, or None where rounding leaves no likelihood to climb.

    Parameters
    ----------
    known : Known
        Information and scores.
    variances : ndarray of shape (p,)
        Variances of the weights, as a start.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.random.default_rng(0).standard_normal((500, 3, 1))
    >>> exact = np.broadcast_to(1e9 * np.eye(3).reshape(3, 1, 3, 1), (500, 3, 1, 3, 1))
    >>> found = partial_correlations(Known(exact, 1e9 * weights), np.ones(3))
    >>> found.observations.round()
    array([[  0., 500., 500.],
           [500.,   0., 500.],
           [500., 500.,   0.]])
    """
    size = np.sqrt(variances)
    J = known.information * size[:, None, None, None] * size[:, None]
    h = known.scores * size[:, None]
    if not (np.all(np.isfinite(J)) and np.all(np.isfinite(h))):
        return None
    try:
        top = _climb(J, h)
        found, sigma = _observed(top), np.linalg.inv(top.precision)
        count = float(np.median(found.observations[np.triu_indices(len(sigma), 1)]))
        moved = (count * sigma + np.diag(np.diagonal(sigma))) / (count + 1)
        return Partial(found.correlation, observations_at(moved, J))
    except LinAlgError:
        return None


def observations_at(covariance: Array, information: Array) -> Array:
    """How many directions without error would tell as much of each partial correlation, were the covariance known.

    Parameters
    ----------
    covariance : ndarray of shape (p, p)
        Σ.
    information : ndarray of shape (B, p, q, p, q)
        J.
    """
    return _observed(_evaluate(covariance, information, np.zeros(information.shape[:3]))).observations


def _observed(top: _Top) -> Partial:
    omega = top.precision
    p = len(omega)
    i, j = np.triu_indices(p)
    root = np.sqrt(np.diagonal(omega))
    rho = -omega / np.outer(root, root)
    np.fill_diagonal(rho, 1.0)
    pairs = np.triu_indices(p, 1)
    # One column for each pair: how its partial correlation changes with the entries of Σ.
    changes = np.stack([_slope(omega, rho, a, b)[i, j] for a, b in np.column_stack(pairs).tolist()], axis=1)
    changes[i == j] /= 2
    variance = np.einsum("ac,ac->c", changes, _solve(top.fisher, changes))
    observations = np.zeros((p, p))
    observations[pairs] = (1 - rho[pairs] ** 2) ** 2 / variance
    return Partial(rho, observations + observations.T)


def _slope(omega: Array, rho: Array, a: int, b: int) -> Array:
    """Derivative of a partial correlation by the symmetric entries of Σ, the diagonal's twice."""
    x, y = omega[:, a] / np.sqrt(omega[a, a]), omega[:, b] / np.sqrt(omega[b, b])
    slope = np.outer(x, y) + 0.5 * rho[a, b] * (np.outer(x, x) + np.outer(y, y))
    return np.asarray(slope + slope.T)


@dataclass(frozen=True, eq=False)
class _Top:
    """−2 log-likelihood, whose change is tr((A − C) dΣ), precision and the blocks P."""

    value: float
    A: Array
    C: Array
    precision: Array
    P: Array

    @cached_property
    def fisher(self) -> Array:
        """Fisher information of the upper triangle of Σ."""
        p = len(self.precision)
        return _fisher(self.P) + _PRIOR * _fisher(self.precision.reshape(1, p, 1, p, 1))


@dataclass(frozen=True, eq=False)
class _Place:
    """A covariance, which moves in its own frame."""

    sigma: Array

    def moved(self, step: Array) -> _Place:
        return _Place(frame_moved(self.sigma, step))


def _climb(J: Array, h: Array) -> _Top:
    """The covariance of highest likelihood, from that of unrelated tasks of unit variance."""

    def evaluate(place: _Place) -> tuple[float, Array, Array] | None:
        try:
            here = _evaluate(place.sigma, J, h)
        except LinAlgError:
            return None
        return (here.value, *frame_slope(place.sigma, here.A, here.C))

    found = climb(evaluate, _Place(np.eye(h.shape[1])), gain=_CLOSE, max_iter=_MOST_STEPS)
    return _evaluate(found.point.sigma, J, h)


def _evaluate(sigma: Array, J: Array, h: Array) -> _Top:
    """The likelihood at a covariance."""
    B, p, q = h.shape
    root = np.linalg.inv(np.linalg.cholesky(sigma))
    omega = root.T @ root
    log_determinant = 2 * float(np.sum(np.log(np.diagonal(root))))
    prior = np.multiply.outer(omega, np.eye(q)).transpose(0, 2, 1, 3)
    inverse = np.empty((B, p, q, p, q))
    mean, value = np.empty(h.shape), 0.5 * B * q * log_determinant
    for block in range(B):
        factor = cho_factor((prior + J[block]).reshape(p * q, p * q), lower=True, overwrite_a=True, check_finite=False)
        mean[block] = cho_solve(factor, h[block].ravel(), check_finite=False).reshape(p, q)
        value += 0.5 * float(np.sum(h[block] * mean[block])) - float(np.sum(np.log(np.diagonal(factor[0]))))
        half = np.tril(dpotri(factor[0], lower=True, overwrite_c=True)[0])
        inverse[block] = (half + np.tril(half, -1).T).reshape(p, q, p, q)
    value += 0.5 * _PRIOR * float(log_determinant - np.trace(omega))
    P = prior - np.einsum("ik,zkalb,lj->ziajb", omega, inverse, omega, optimize=True)
    s = np.einsum("ik,zka->zia", omega, mean)
    A, C = np.einsum("ziaja->ij", P) + _PRIOR * omega, np.einsum("zia,zja->ij", s, s) + _PRIOR * omega @ omega
    return _Top(-2 * value, A, C, omega, P)


def _solve(fisher: Array, right: Array) -> Array:
    return np.asarray(cho_solve(cho_factor(fisher, check_finite=False), right, check_finite=False))


def _fisher(P: Array) -> Array:
    """The Fisher information of the upper triangle of Σ."""
    p = P.shape[1]
    blocks = P.transpose(1, 3, 0, 2, 4).reshape(p * p, -1)
    products = (blocks @ blocks.T).reshape(p, p, p, p)  # tr(P_kl P_mn) at [k, l, n, m]
    i, j = np.triu_indices(p)
    a, b = i[:, None], j[:, None]
    # Entries off the diagonal stand twice in Σ: 2 and 4 of the terms differ from one another in their order alone.
    terms = products[b, i, a, j] + products[b, j, a, i]
    single = np.where(i == j, 0.5, 1.0)
    return np.asarray(np.outer(single, single) * terms)
