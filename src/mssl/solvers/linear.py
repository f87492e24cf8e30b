r"""The weight step without a penalty, a linear system: :math:`H_k w_k + \sum_l C_{kl} w_l = q_k`.

Conjugate gradients solve it in a few iterations. Their preconditioner is the inverse of each task's block
:math:`H_k + C_{kk} I`. If C ties the tasks so closely that hundreds of iterations are needed, a factorisation of the
whole system takes over, provided that the system is of moderate size. With one Gram for all tasks and many features the
preconditioner is the exact inverse (:func:`sylvester`).

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

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import linalg

from mssl._typing import Array, Index, Mask
from mssl.data.factors import triangle
from mssl.kernels import gram_products, plain, weight_system
from mssl.model.bounds import Components
from mssl.model.coupling import Coupling
from mssl.model.task_matrix import DENSE_UP_TO, SMALL
from mssl.solvers.base import INNER_ITERATIONS, NEGLIGIBLE, PATIENCE, Status, WeightStep
from mssl.solvers.quadratic import EPS, MOST_UNKNOWNS, Problem, Quadratic, positive

Apply = Callable[[Array], Array]


def conjugate_gradient(problem: Problem, W0: Array, *, tol: float, max_iter: int = 1000) -> WeightStep:
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
    >>> from mssl.solvers.quadratic import StepProblem
    >>> loss = Quadratic(np.stack([np.eye(2), 3 * np.eye(2)]), np.array([[2.0, 4], [4, 8]]), np.zeros(2))
    >>> problem = StepProblem.of(loss, Coupling.diagonal_only(np.ones(2)))
    >>> conjugate_gradient(problem, np.zeros((2, 2)), tol=1e-12).W
    array([[1., 2.],
           [1., 2.]])
    """
    W, done = np.array(W0, dtype=float, order="C"), 0
    loss, coupling, kept = problem.loss, problem.coupling, problem.loss.inverses
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


def sylvester(problem: Quadratic, coupling: Coupling) -> Apply:
    r"""The inverse of :math:`s_k G w_k + (CW)_k` for one Gram G, by its eigenvectors and those of :math:`\tilde C`.

    Substituting :math:`w_k = v_k / \sqrt{s_k}` makes it :math:`V G + \tilde C V` with
    :math:`\tilde C = S^{-1/2} C S^{-1/2}`, diagonal in the two eigenbases.
    """
    root = np.sqrt(problem.task_scale)[:, None]
    values, U = problem.eigen
    task_values, E = linalg.eigh(coupling.dense() / root / root.T)
    sums = np.maximum(task_values, 0.0)[:, None] + values
    # The inverses of eigenvalues of the size of rounding are 0.
    floor = problem.n_features * EPS * float(sums.max(initial=0.0))
    inverse = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > floor)
    return lambda R: np.asarray(E @ ((E.T @ (R / root) @ U) * inverse) @ U.T / root)


def preconditioners(step: Problem, support: Mask | None = None) -> Iterator[tuple[Apply, float]]:
    """Preconditioners of H + C for the weights on a support, or for all weights, each with its number of iterations.

    The first preconditioner is an inverse for each task. Its iterations cost as much as a factorisation of the whole
    system. If C ties the tasks so closely that they are not enough, this factorisation follows, provided that the
    system is of moderate size.
    """
    problem, coupling = step.loss, step.coupling
    many = support is None and problem.n_features >= SMALL // 2  # else the two eigendecompositions do not pay
    if many and problem.is_shared and np.all(problem.task_scale > 0):
        yield sylvester(problem, coupling), np.inf
        return
    weights = np.full(problem.linear.shape, True) if support is None else support
    size = int(np.count_nonzero(weights))
    related = problem.related is not None or bool(coupling.rho) or len(coupling.compressed[2]) > coupling.n_tasks
    # Factoring a dense system of this size takes at most a quarter of a second.
    whole = size <= DENSE_UP_TO and (related or (support is None and problem.by_rows))
    if not whole or size > MOST_UNKNOWNS:
        ridge = coupling.diagonal()
        by_task = _by_task(problem, ridge) if support is None else _on_support(problem, ridge, support)
        yield by_task, size // 20 if whole else np.inf
    if whole:
        yield _whole_inverse(problem, coupling, weights), np.inf


def _by_task(problem: Quadratic, ridge: Array) -> Apply:
    """Inverse of H_k + ridge_k I for each task; the inverse of its diagonal if there are no Grams.

    The inverses are kept with the problem. The alternation soon changes the ridge by little, and a preconditioner need
    not be exact.
    """
    if problem.by_rows:
        diagonal = positive(problem.diagonal + ridge[:, None])
        return lambda R: R / diagonal
    known = problem.kept.get("preconditioner")
    # If the ridge has changed by at most a factor of 2, the old inverses cost some iterations and save factorisations.
    if known is None or np.any(known[0] > 2.0 * ridge) or np.any(ridge > 2.0 * known[0]):
        if problem.n_features <= SMALL:
            blocks = problem.gram * problem.task_scale[:, None, None]
            diagonals = np.einsum("kdd->kd", blocks)
            diagonals[...] = _lifted(diagonals, ridge[:, None], NEGLIGIBLE)
            inverses = np.linalg.inv(blocks)
            known = ridge, lambda R: np.matmul(inverses, R[:, :, None])[:, :, 0]
        else:
            known = ridge, _on_support(problem, ridge, np.full(problem.linear.shape, True))
        problem.kept["preconditioner"] = known
    apply: Apply = known[1]
    return apply


def _on_support(problem: Quadratic, ridge: Array, support: Mask) -> Apply:
    """Inverse of H_k + ridge_k I on each task's support, padded to a common width."""
    counts = support.sum(axis=1)
    width = counts.max(initial=1)
    first = np.argsort(~support, axis=1, kind="stable")[:, :width]  # the support, then other features
    inverses, ones = np.zeros((len(support), width, width)), np.ones(len(support))
    for k in np.flatnonzero(counts).tolist():
        factor = regular_factor(problem.gram_of(k, support[k]), ridge[k])
        inverses[k, : counts[k], : counts[k]] = linalg.cho_solve(factor, np.eye(counts[k]), check_finite=False)

    def apply(R: Array) -> Array:
        out = np.zeros_like(R)
        inside = gram_products(inverses, ones, np.take_along_axis(R, first, axis=1))
        np.put_along_axis(out, first, inside, axis=1)
        return np.where(support, out, 0.0)

    return apply


def _whole_inverse(problem: Quadratic, coupling: Coupling, support: Mask) -> Apply:
    """Inverse of H + C on a support, by one factorisation for all tasks; for few unknowns that C ties closely."""
    tasks, features = np.nonzero(support)
    ties = coupling.dense()[np.ix_(tasks, tasks)] * (features[:, None] == features)
    factor = regular_factor(problem.hessian_on(support) + ties, 0.0)

    def apply(R: Array) -> Array:
        out = np.zeros_like(R)
        out[support] = linalg.cho_solve(factor, R[support], check_finite=False)
        return out

    return apply


def regular_factor(block: Array, ridge: float) -> tuple[Array, bool]:
    """Cholesky factor of a Gram matrix + ridge I for a preconditioner, which need not be exact.

    The diagonal is raised as far as rounding requires. Each entry rises by the same share of itself, so that features
    of all scales keep their accuracy.
    """
    diagonal, lift = block.diagonal().copy(), NEGLIGIBLE
    while True:
        np.fill_diagonal(block, _lifted(diagonal, ridge, lift))
        try:
            # Blocks are symmetric, and LAPACK takes their transposes without a copy.
            return linalg.cho_factor(block.T, lower=True, check_finite=False)
        except linalg.LinAlgError:
            lift *= 100.0
            if not np.isfinite(lift):
                raise


def _lifted(diagonal: Array, ridge: Any, lift: float) -> Array:
    """A diagonal plus a ridge, raised by the share ``lift``; zeros become 1."""
    return positive((1.0 + lift) * (diagonal + ridge))


def conjugate_gradients(
    problem: Problem,
    preconditioners: Iterator[tuple[Apply, float]],
    certificate: Callable[[Array, Array], float],
    W: Array,
    *,
    tol: float,
    max_iter: int,
) -> WeightStep:
    """Solve a step without a penalty until the certificate, a function of W and its residual, is within ``tol``.

    The preconditioners are used in turn, each for its own number of iterations. Since the recurrence for the residual
    accumulates rounding errors, every restart computes the true residual and its certificate.
    """
    gap, budget, made, done = np.inf, 0.0, 0, 0
    precondition: Apply | None = None
    while True:
        R = -problem.gradient(W)
        previous, gap = gap, certificate(W, R)
        if end := WeightStep.ended(W, gap, done, tol, limit=max_iter):
            return end
        if precondition is None or gap > 0.5 * previous or made == budget:
            precondition, budget = next(preconditioners, (None, 0.0))
        if precondition is None:
            return WeightStep(W, gap, done, Status.STALLED)
        limit = int(min(budget, INNER_ITERATIONS, max_iter - done))
        W, made = solve_cg(problem.product, precondition, R, W, lambda V, S: certificate(V, S) <= tol, limit)
        done += made


def solve_cg(
    operate: Apply,
    precondition: Apply,
    R: Array,
    W: Array,
    enough: Callable[[Array, Array], bool],
    max_iter: int,
    accuracy: float = 0.0,
) -> tuple[Array, int]:
    """Run conjugate gradients from W with residual R; return W and the number of iterations.

    The iteration ends when ``enough(W, R)`` is true, or when the squared residual in the preconditioner's norm has
    fallen to ``accuracy`` times its first value.
    """
    Z = precondition(R)
    P, rz = Z, float(np.vdot(R, Z))
    made, least = 0, accuracy * rz
    while made < max_iter and rz > least:
        AP = operate(P)
        curvature = float(np.vdot(P, AP))
        if not curvature > 0:
            break
        step = rz / curvature
        W, R = W + step * P, R - step * AP
        made += 1
        if enough(W, R):
            break
        Z = precondition(R)
        rz, last = float(np.vdot(R, Z)), rz
        P = Z + (rz / last) * P
    return W, made


def solve_exactly(step: Problem, *, tol: float) -> WeightStep | None:
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
    >>> from mssl.solvers.quadratic import StepProblem
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
