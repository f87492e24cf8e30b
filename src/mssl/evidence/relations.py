"""A sparse precision over tasks, where an ensemble holds a dense covariance."""

from __future__ import annotations

import numpy as np

from mssl._typing import Array
from mssl.evidence.choice import Ensemble
from mssl.glasso import graphical_lasso

_STEPS = 20  # penalties that are tried


def sparse_precision(ensemble: Ensemble) -> Array:
    """The graph of the members with a dense covariance, by the extended BIC with d_eff observations.

    Without such a member no relation beyond the shared mean was fitted, and the precision is diagonal.

    Parameters
    ----------
    ensemble : Ensemble
        What was learned.

    References
    ----------
    Foygel & Drton (2010), Extended Bayesian information criteria for Gaussian graphical models, arXiv:1011.6640.
    """
    K = len(ensemble.members[0].fit.counts)
    dense = [member for member in ensemble.members if member.fit.hyper.T is not None]
    if not dense or K < 2:
        return np.eye(K)
    total = sum(member.weight for member in dense)
    T = np.sum([member.weight / total * np.asarray(member.fit.hyper.T) for member in dense], axis=0)
    n = max(float(np.mean([np.mean(member.fit.edf) for member in dense])), 3.0)
    size = np.sqrt(np.diag(T))
    S = T / np.outer(size, size)
    largest = float(np.max(np.abs(S - np.eye(K))))
    best, least = np.eye(K), np.inf
    for alpha in np.geomspace(max(largest, 1e-3), 0.02 * max(largest, 1e-3), _STEPS).tolist():
        precision = np.asarray(graphical_lasso(S, alpha).precision)
        edges = int(np.count_nonzero(np.triu(precision, 1)))
        fit = n * (float(np.sum(S * precision)) - float(np.linalg.slogdet(precision)[1]))
        criterion = fit + edges * np.log(n) + 2 * edges * np.log(K)
        if criterion < least:
            best, least = precision, criterion
    return best
