"""A task with a few rows joins a fit: hyperparameters and the other tasks stay as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mssl._typing import Array
from mssl.evidence.fit import EvidenceFit, JoinedTask
from mssl.evidence.sites import GLMProblem, Sites


def join_task(fit: EvidenceFit, X: Array, y: Array) -> EvidenceFit:
    """The fit with one task more, whose prior is what the others say about a new task.

    Parameters
    ----------
    fit : EvidenceFit
        The fit.
    X : ndarray of shape (n, d)
        Features of the task's rows.
    y : ndarray of shape (n,)
        Its targets.
    """
    U, mean, covariance = fit.new_prior(X)
    level, size = fit.new_level()
    noise = max(fit.noise(None) / size**2, 1e-300)
    if fit.loss.quadratic:
        post, cov = _update(U, mean, covariance, np.full(len(y), 1 / noise), (y - level) / size / noise)
    else:
        problem = GLMProblem([U], y, np.ones(len(y)), fit.loss, np.full(len(y), noise))
        mean = np.append(mean[:-1], mean[-1] + level)  # that of free intercepts, which predictions add

        def marginals(sites: Sites) -> tuple[Array, Array, tuple[Array, Array]]:
            post, cov = _update(U, mean, covariance, *sites)
            return U @ post, np.maximum(np.sum(U * (U @ cov), axis=1), 1e-14), (post, cov)

        post, cov = problem.settled(problem.start(), marginals, 1e-8).told
        post[-1] -= level
    edf = float(len(post) - np.trace(np.linalg.lstsq(covariance, cov, rcond=None)[0]))
    return replace(fit, joined=[*fit.joined, JoinedTask(post, cov, float(len(y)), max(edf, 0.0))])


def _update(U: Array, mean: Array, covariance: Array, precision: Array, response: Array) -> tuple[Array, Array]:
    """Posterior of a Gaussian prior and Gaussian sites of the rows."""
    root = np.sqrt(precision)
    A = U * root[:, None]
    CA = covariance @ A.T
    V = np.eye(len(A)) + A @ CA
    target = response / root - A @ mean
    return mean + CA @ np.linalg.solve(V, target), covariance - CA @ np.linalg.solve(V, CA.T)
