r"""Coordinate descent for the weight step: the fastest solver with an ℓ1 penalty.

.. math:: \min_W \; \ell(W) + \tfrac12\operatorname{tr}(W C W^\top) + \sum_k t_k \|w_k\|_1

Tasks are visited one after the other; a visit is one pass over all coordinates and a few over those that are not
zero, in a compiled kernel, with :math:`H_k w_k` (Grams) or the residual (features) kept up to date.

References
----------
Friedman, Hastie, Tibshirani (2010), Regularization paths for generalized linear models via coordinate descent,
Journal of Statistical Software 33(1), https://doi.org/10.18637/jss.v033.i01
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from mssl.kernels import call, plain
from mssl.kernels.threads import spread
from mssl.model.coupling import Coupling
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, quadratic_gap

Array = NDArray[np.float64]

_SMALL = 4096  # weights up to which the calls between bursts cost more than the sweeps
_LARGE = 10**6  # operations of a pass from which threads pay
_PARTS = 8  # parts for threads, at most
_BURST = 50  # sweeps between two looks at the certificate, at most


def coordinate_descent(
    problem: GramQuadratic | DesignQuadratic,
    coupling: Coupling,
    threshold: Array,
    W0: Array,
    *,
    tol: float,
    max_iter: int = 10_000,
) -> WeightStep:
    """Minimise by sweeps over tasks and coordinates until the certificate is within ``tol``.

    Parameters
    ----------
    problem : GramQuadratic or DesignQuadratic
        The loss.
    coupling : Coupling
        C; its sparse rows and rank-one part are used as they are.
    threshold : ndarray of shape (K,)
        ℓ1 strengths t_k ≥ 0.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most sweeps.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.model.coupling import Coupling
    >>> loss = GramQuadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> step = coordinate_descent(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1), np.zeros((1, 2)), tol=1e-10)
    >>> step.W
    array([[1., 0.]])
    """
    W = np.array(W0, dtype=float, order="C")
    sweeps: _GramSweeps | _DesignSweeps
    if isinstance(problem, GramQuadratic) and coupling.covariance is not None and W.size <= _SMALL:
        return _compiled(problem, coupling, threshold, W, tol, max_iter)
    if isinstance(problem, GramQuadratic):
        sweeps = _GramSweeps(problem, coupling, threshold, W)
    else:
        sweeps = _DesignSweeps(problem, coupling, threshold, W)
    return _descend(problem, coupling, threshold, W, sweeps, tol, max_iter)


def _compiled(
    problem: GramQuadratic, coupling: Coupling, threshold: Array, W: Array, tol: float, max_iter: int
) -> WeightStep:
    """Bursts and certificates of a small problem in one compiled call."""
    from mssl.kernels.small_weights import descend

    loss = map(plain, (problem.gram, problem.task_scale, problem.linear, np.asarray(threshold, dtype=float)))
    form = (plain(coupling.precision), plain(np.asarray(coupling.covariance)), coupling.u, coupling.rho)
    state = (coupling.mean_variance, W, plain(problem.product(W)), np.empty((3, *W.shape)))
    gap, done = call(descend, *loss, *form, *state, float(tol), max_iter)
    status = Status.CONVERGED if gap <= tol else Status.MAX_ITER if done >= max_iter else Status.STALLED
    return WeightStep(W, gap, done, status if np.isfinite(gap) else Status.DIVERGED)


def _descend(
    problem: Any, coupling: Coupling, threshold: Array, W: Array, sweeps: Any, tol: float, max_iter: int
) -> WeightStep:
    """Burst of sweeps, certificate, and so on; each burst ends when a sweep gains too little to go on unlooked."""
    gap = quadratic_gap(problem, W, coupling, threshold, sweeps.gradient())
    done, enough = 0, tol
    while gap > tol:
        if done >= max_iter:
            return WeightStep(W, gap, done, Status.MAX_ITER)
        made, decrease = sweeps.run(min(_BURST, max_iter - done), enough)
        done += made
        gap = quadratic_gap(problem, W, coupling, threshold, sweeps.gradient())
        if not np.isfinite(gap):
            return WeightStep(W, gap, done, Status.DIVERGED)
        if gap > tol and decrease == 0.0:
            return WeightStep(W, gap, done, Status.STALLED)
        # The certificate exceeds the last gain by a factor that hardly changes: aim at what will pass.
        enough = min(enough, 0.5 * decrease * tol / gap) if gap > tol else enough
    return WeightStep(W, gap, done, Status.CONVERGED)


def independent_parts(coupling: Coupling, work: int) -> list[NDArray[np.int64]]:
    """The tasks in parts that do not pull at each other, for threads; the same ones however many threads there are."""
    K = coupling.n_tasks
    if work < _LARGE or coupling.rho:
        return [np.arange(K)]
    _, labels = connected_components(coupling.matrix, directed=False)
    sizes = np.bincount(labels)
    loads = np.zeros(_PARTS)
    home = np.empty(len(sizes), dtype=np.int64)
    for component in np.argsort(-sizes, kind="stable"):
        home[component] = np.argmin(loads)
        loads[home[component]] += sizes[component]
    return [tasks for part in range(_PARTS) if len(tasks := np.flatnonzero(home[labels] == part))]


def spread_sweeps(
    parts: list[NDArray[np.int64]], n_sweeps: int, enough: float, run: Callable[..., tuple[int, float]]
) -> tuple[int, float]:
    """Sweeps of all parts; the most that one needed, and what the last of each gained."""
    total = sum(map(len, parts))
    answers = spread(lambda tasks: run(tasks, n_sweeps, enough * len(tasks) / total), parts)
    return max(int(made) for made, _ in answers), float(sum(gained for _, gained in answers))


def coupling_arrays(coupling: Coupling) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, Array, float]:
    """C as the kernels take it: compressed rows of P, u and ρ."""
    return (*coupling.compressed, coupling.u, coupling.rho)


class _GramSweeps:
    """State of the descent on Grams."""

    def __init__(self, problem: GramQuadratic, coupling: Coupling, threshold: Array, W: Array) -> None:
        self.problem, self.coupling, self.W = problem, coupling, W
        self.threshold = np.array(threshold, dtype=float)
        self.rows = coupling_arrays(coupling)
        self.HW = np.ascontiguousarray(problem.product(W))
        self.gram = plain(problem.gram)
        self.linear = plain(problem.linear)
        self.mean = self.rows[3] @ W
        self.parts = independent_parts(coupling, W.size * problem.n_features)

    def gradient(self) -> Array:
        return self.HW - self.linear + self.coupling.dot(self.W)

    def run(self, n_sweeps: int, enough: float) -> tuple[int, float]:
        from mssl.kernels.weights import gram_sweeps

        loss = (self.gram, self.problem.task_scale, self.linear, *self.rows, self.threshold, self.W, self.HW)

        def sweep(tasks: NDArray[np.int64], most: int, goal: float) -> tuple[int, float]:
            mean = self.mean if len(self.parts) == 1 else self.mean.copy()
            return call(gram_sweeps, *loss, mean, tasks, most, goal)

        return spread_sweeps(self.parts, n_sweeps, float(enough), sweep)


class _DesignSweeps:
    """State of the descent on the features."""

    def __init__(self, problem: DesignQuadratic, coupling: Coupling, threshold: Array, W: Array) -> None:
        self.problem, self.coupling, self.W = problem, coupling, W
        self.threshold = np.array(threshold, dtype=float)
        self.rows = coupling_arrays(coupling)
        self.moments = (problem.c, problem.totals, problem.column_means, problem.column_sums, problem.diagonal())
        self.parts = independent_parts(coupling, len(problem.c) * problem.n_features)

    def gradient(self) -> Array:
        return self.problem.gradient(self.W) + self.coupling.dot(self.W)

    def run(self, n_sweeps: int, enough: float) -> tuple[int, float]:
        from mssl.kernels.weights import design_sweeps

        problem, W = self.problem, self.W
        sigma = np.einsum("kd,kd->k", problem.column_means, W)
        v = problem.c * (problem.target - problem.design.stored_dot(W))
        state = np.stack([sigma, problem.design.task_sums(v)], axis=1)
        loss = (*problem.design.columns, *self.moments, *self.rows, self.threshold, W, v, state)

        def sweep(tasks: NDArray[np.int64], most: int, goal: float) -> tuple[int, float]:
            return call(design_sweeps, *loss, self.rows[3] @ W, tasks, most, goal)

        return spread_sweeps(self.parts, n_sweeps, float(enough), sweep)
