r"""The weight step without a penalty, a linear system: :math:`H_k w_k + \sum_l C_{kl} w_l = q_k`.

Conjugate gradients solve it in a few iterations. Their preconditioner is the inverse of each task's block
:math:`H_k + C_{kk} I`. If C ties the tasks so closely that hundreds of iterations are needed, a factorisation of the
whole system takes over, provided that the system is of moderate size. With one Gram for all tasks and many features the
preconditioner is the exact inverse (:func:`mssl.solvers.quadratic.sylvester`).

**Exact solution.** Grams square the condition number. If features are nearly collinear, or if the noise is very small,
a Gram loses the directions that the prior alone determines. If the variance of a shared mean is much larger than the
variance of the prior, :math:`C = P - \rho uu^\top` loses digits too. In these cases :func:`solve_exactly` solves the
step as one least-squares problem

.. math:: \min_{V, m} \tfrac12 \sum_k \|A_k (v_k + m) - b_k\|^2 + \tfrac12\operatorname{tr}(V^\top P V)
          + \tfrac{1}{2\tau^2}\|m\|^2, \qquad w_k = v_k + m,

in the rows themselves, with the mean as a separate block. A rank-revealing QR decomposition with iterative refinement
solves it without cancellation. For the gradient g of this problem and its triangular factor R the suboptimality is
:math:`\tfrac12\|R^{-\top}g\|^2`. This bound uses the curvature of loss and prior together, so rounding in directions
that the data determine well counts little. A bound of the rounding error of g is added.

The cost is cubic in the number of unknowns of related tasks. This method is therefore used for small problems only, if
rounding limits the usual solvers or if they have no bound.

References
----------
Golub & Van Loan (2013), *Matrix Computations*, 4th edition, sections 5.4 and 5.5 (rank-revealing QR and refinement).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import linalg

from mssl._typing import Array, Index
from mssl.data.factors import triangle
from mssl.kernels import plain, weight_system
from mssl.model.bounds import Components, WeightBound
from mssl.model.coupling import Coupling
from mssl.solvers.base import PATIENCE, Status, WeightStep, conjugate_gradients
from mssl.solvers.quadratic import EPS, MOST_UNKNOWNS, SMALL, Quadratic, StepProblem, preconditioners, value_rounding


def conjugate_gradient(problem: StepProblem[Quadratic], W0: Array, *, tol: float, max_iter: int = 1000) -> WeightStep:
    """Solve by preconditioned conjugate gradients until the certificate is within ``tol``.

    Parameters
    ----------
    problem : StepProblem
        Loss and coupling, without a penalty. With Grams the preconditioner inverts the block of each task, otherwise
        the diagonal of that block.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality, ½ tr(G C⁻¹ Gᵀ) for C ≻ 0.
    max_iter : int
        Largest number of iterations.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> loss = Quadratic(np.stack([np.eye(2), 3 * np.eye(2)]), np.array([[2.0, 4], [4, 8]]), np.zeros(2))
    >>> problem = StepProblem.of(loss, Coupling.diagonal_only(np.ones(2)))
    >>> conjugate_gradient(problem, np.zeros((2, 2)), tol=1e-12).W
    array([[1., 2.],
           [1., 2.]])
    """
    W, done = np.array(W0, dtype=float, order="C"), 0
    loss, coupling, kept = problem.loss, problem.coupling, kept_inverses(problem.loss)
    if kept is not None and coupling.inverse[0] is not None:
        tables = (plain(loss.gram), plain(loss.task_scale), plain(loss.linear))
        done, gap = weight_system(tables, coupling.prior, W, plain(loss.product(W)), kept, float(tol), max_iter)
        if gap <= tol:
            return WeightStep(W, gap, done, Status.CONVERGED)
        if not np.isfinite(gap):
            W, done = np.array(W0, dtype=float), 0
    made, limit = preconditioners(problem), max_iter - done
    step = conjugate_gradients(problem, made, lambda V, R: problem.bound(V, -R), W, tol=tol, max_iter=limit)
    return replace(step, n_iter=done + step.n_iter)


def kept_inverses(loss: Quadratic) -> tuple[Array, Array] | None:
    """The ridges and inverses of the compiled call's preconditioner, which are kept with the loss.

    The compiled call solves problems with few tasks and few features, and with one Gram per task. For all others the
    result is None.
    """
    K, d = loss.linear.shape
    if K > SMALL or d > SMALL or loss.by_rows or (loss.is_shared and K > 1):
        return None
    kept: tuple[Array, Array] = loss.kept.setdefault("inverses", (np.zeros(K), np.empty((K, d, d))))
    return kept


def rounding_gap(problem: Quadratic, bound: WeightBound, W: Array) -> float:
    r"""The part of a weight step's bound that rounding of the gradient alone may cause.

    The gradient :math:`H_k w_k - q_k` has an error δ of about :math:`\epsilon(\|H_k\|\|w_k\| + \|q_k\|)` in unknown
    directions. The bound turns it into :math:`\tfrac12\operatorname{tr}(\delta C^{-1}\delta^\top)`. A bound is reliable
    if it is larger than that. The bound for a singular C is a difference of values and has their rounding error.

    Parameters
    ----------
    problem : Quadratic
        The loss.
    bound : WeightBound
        The bound.
    W : ndarray of shape (K, d)
        The weights.
    """
    if bound.covariance is None:
        return value_rounding(problem, W) if bound.scalable else 0.0
    curvature = problem.diagonal.max(axis=1, initial=0.0)  # at most a factor d below the norm
    errors = (
        EPS
        * problem.n_features
        * (curvature * np.abs(W).max(axis=1, initial=0.0) + np.abs(problem.linear).max(axis=1, initial=0.0))
    )
    variances = bound.covariance.diagonal() + bound.coupling.inverse[1]
    return 0.5 * float(errors**2 @ variances)


def solve_exactly(step: StepProblem[Quadratic], *, tol: float) -> WeightStep | None:
    """The best weights by a rank-revealing decomposition; None if the problem is too large or not finite.

    Parameters
    ----------
    step : StepProblem
        Loss and coupling, without a penalty. With rows, the solution has full accuracy. With Grams, the prior alone
        determines directions whose eigenvalues are of the size of rounding.
    tol : float
        Absolute bound of the suboptimality at which the result counts as converged.

    Examples
    --------
    >>> import numpy as np
    >>> loss = Quadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> step = solve_exactly(StepProblem.of(loss, Coupling.diagonal_only(np.ones(1))), tol=1e-12)
    >>> step.W.round(12), step.status is Status.CONVERGED
    (array([[1.33333333, 0.16666667]]), True)
    """
    problem, coupling = step.loss, step.coupling
    components, d = Components(coupling), problem.n_features
    sizes = (np.bincount(components.label) + (coupling.mean_variance > 0)) * d
    if float(np.sum(sizes.astype(float) ** 3)) > MOST_UNKNOWNS**3:
        return None
    W, gap = np.empty(problem.linear.shape), 0.0
    with np.errstate(all="ignore"):
        for component in range(components.n):
            tasks = np.flatnonzero(components.label == component)
            W[tasks], more = _solve_related(problem, coupling, tasks)
            gap += more
    if not (np.isfinite(gap) and np.isfinite(W).all()):
        return None
    return WeightStep(W, gap, 1, Status.CONVERGED if gap <= tol else Status.STALLED)


def _solve_related(problem: Quadratic, coupling: Coupling, tasks: Index) -> tuple[Array, float]:
    """The best weights of one component of tasks, and their bound; NaN if they are not finite.

    The weights are w = v + m with unknowns z. If P is definite, v = ``own`` z, and z has an independent prior. If there
    is a shared mean, m is τ times the last block of z.
    """
    K, d, tau = len(tasks), problem.n_features, float(np.sqrt(max(coupling.mean_variance, 0.0)))
    P = coupling.matrix[tasks][:, tasks].toarray()
    values, vectors = np.linalg.eigh(P)
    own = vectors / np.sqrt(values) if coupling.covariance is not None else np.eye(K)
    root, prior = own, np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ own)
    if tau > 0:
        root, prior = np.column_stack([own, np.full(K, tau)]), linalg.block_diag(prior, np.ones((1, 1)))
    ridges = np.zeros(problem.n_tasks) if coupling.ridge is None else coupling.ridge
    parts = [(row, *_factor(problem, k, ridges[k])) for k, row in zip(tasks.tolist(), root, strict=True)]
    M, t = np.concatenate([np.kron(row, A) for row, A, _ in parts]), np.concatenate([b for _, _, b in parts])
    if not (np.isfinite(M).all() and np.isfinite(t).all()):
        return np.full((K, d), np.nan), np.nan

    # All columns get the same norm. Otherwise a mean of huge variance would make all others look like rounding.
    whole = np.concatenate([M, np.kron(prior, np.eye(d))])
    sizes = np.linalg.norm(whole, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    R, order = linalg.qr(whole / sizes, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(R.diagonal())
    rank = int(np.count_nonzero(diagonal > len(whole) * EPS * diagonal.max(initial=0.0)))
    kept, R = order[:rank], R[:rank, :rank]

    # The sums in PV cancel if weights nearly agree. They are computed in extended precision.
    longest, precise = own.astype(np.longdouble), P.astype(np.longdouble)
    z, best, gap = np.zeros(M.shape[1]), np.zeros(M.shape[1]), np.inf
    for _ in range(PATIENCE):
        pull = z.reshape(-1, d).copy()
        pull[:K] = longest.T @ (precise @ (longest @ pull[:K].astype(np.longdouble)))
        g = (M.T @ (M @ z - t) + pull.ravel()) / sizes
        half = linalg.solve_triangular(R, g[kept], trans="T", check_finite=False)
        reached = 0.5 * float(half @ half)
        if not reached < gap:
            break
        best, gap = z.copy(), reached
        z[kept] -= linalg.solve_triangular(R, half, check_finite=False) / sizes[kept]
    Z = best.reshape(-1, d)
    # R⁻ᵀMᵀ does not increase norms, so an error of the residual counts at most once. The prior's gradient has another.
    of_rows = EPS * (np.abs(M) @ np.abs(best) + np.abs(t))
    error, digits = np.zeros_like(Z), K * float(np.finfo(np.longdouble).eps)
    error[:K] = digits * (np.abs(own.T) @ (np.abs(P) @ (np.abs(own) @ np.abs(Z[:K]))))
    inverse = linalg.solve_triangular(R, np.eye(rank), check_finite=False)
    of_prior = (error.ravel() / sizes)[kept] @ np.sqrt(np.sum(inverse**2, axis=1))
    return root @ Z, gap + 0.5 * (float(of_rows @ of_rows) + float(of_prior**2))


def _factor(problem: Quadratic, k: int, ridge: float) -> tuple[Array, Array]:
    """A and b for which loss and ridge of task k are ½ ‖A w − b‖² + constant; at most d rows, 2 d with a ridge."""
    d = problem.n_features
    if problem.source is not None:
        rows = problem.rows
        own = slice(*rows.design.offsets[k : k + 2])
        table, _ = triangle(np.column_stack([rows.block(k), np.sqrt(rows.c[own]) * rows.target[own]]), d)
        A, b = table[:, :d], table[:, d]
    else:
        values, vectors = np.linalg.eigh(problem.gram_of(k, np.ones(d, dtype=bool)))
        known = values > d * EPS * max(float(values[-1]), 0.0)
        roots = np.sqrt(values[known])
        A, b = roots[:, None] * vectors[:, known].T, (vectors[:, known].T @ problem.linear[k]) / roots
    if ridge > 0:
        A, b = np.concatenate([A, np.sqrt(ridge) * np.eye(d)]), np.concatenate([b, np.zeros(d)])
    return A, b
