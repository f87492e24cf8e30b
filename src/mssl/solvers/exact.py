r"""The weight step without a penalty, solved and certified to the last digit that doubles hold.

Grams square the condition number: with features that are nearly collinear, or a fit that is nearly perfect in units of
the noise, a Gram no longer knows the directions that the prior alone decides. A shared mean whose variance is large
against the prior's makes :math:`C = P - \rho uu^\top` lose its digits too. Here the step is one least-squares problem

.. math:: \min_{V, m} \tfrac12 \sum_k \|A_k (v_k + m) - b_k\|^2 + \tfrac12\operatorname{tr}(V^\top P V)
          + \tfrac{1}{2\tau^2}\|m\|^2, \qquad w_k = v_k + m,

in the rows themselves and with the mean as a block of its own. It is solved by a QR decomposition that reveals the
rank, and refined; nothing cancels. For the gradient g of this problem and its triangular factor R the suboptimality is
:math:`\tfrac12\|R^{-\top}g\|^2`, which uses the curvature of loss and prior together: rounding along directions that
the data know well counts little.

The cost is cubic in K d, so that only small problems, and only where the usual solvers end in rounding, come here.

References
----------
Golub & Van Loan (2013), *Matrix Computations*, 4th edition, sections 5.4 and 5.5 (rank-revealing QR and refinement).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from mssl.model.bounds import WeightBound
from mssl.model.coupling import Coupling
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, Quadratic

Array = NDArray[np.float64]

MOST_UNKNOWNS = 400  # weights and means up to which the decomposition takes a tenth of a second at most
_REFINEMENTS = 3  # after the first solution; two leave nothing but rounding
_EPS = float(np.finfo(float).eps)


def rounding_gap(problem: Quadratic, bound: WeightBound, W: Array) -> float:
    r"""How large the bound of a weight step may be by the rounding of its gradient alone.

    The gradient :math:`H_k w_k - q_k` has an error δ of some :math:`\epsilon(\|H_k\|\|w_k\| + \|q_k\|)`, in directions
    that nobody knows; the bound turns it into :math:`\tfrac12\operatorname{tr}(\delta C^{-1}\delta^\top)`. A bound is
    to be trusted where it is larger than that.

    Parameters
    ----------
    problem : GramQuadratic or DesignQuadratic
        The loss.
    bound : WeightBound
        The bound.
    W : ndarray of shape (K, d)
        The weights.
    """
    if bound.covariance is None:
        return 0.0
    curvature = problem.diagonal().max(axis=1, initial=0.0)  # at most a factor d below the norm
    errors = (
        _EPS
        * problem.n_features
        * (curvature * np.abs(W).max(axis=1, initial=0.0) + np.abs(problem.linear).max(axis=1, initial=0.0))
    )
    variances = bound.covariance.diagonal() + bound.mean_variance
    return 0.5 * float(errors**2 @ variances)


def solve_exactly(problem: Quadratic, coupling: Coupling, *, tol: float) -> WeightStep | None:
    """The best weights by a rank-revealing decomposition; None where the problem is too large, or not finite.

    Parameters
    ----------
    problem : GramQuadratic or DesignQuadratic
        The loss; with rows nothing is lost, from Grams directions of the size of rounding are left to the prior.
    coupling : Coupling
        C.
    tol : float
        Absolute bound of the suboptimality that counts as converged.

    Examples
    --------
    >>> import numpy as np
    >>> loss = GramQuadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> step = solve_exactly(loss, Coupling.diagonal_only(np.ones(1)), tol=1e-12)
    >>> step.W.round(12), step.status is Status.CONVERGED
    (array([[1.33333333, 0.16666667]]), True)
    """
    K, d = problem.n_tasks, problem.n_features
    with_mean = coupling.mean_variance > 0
    blocks = K + with_mean
    if blocks * d > MOST_UNKNOWNS:
        return None
    with np.errstate(all="ignore"):
        root, prior = _roots(coupling)
        if root is None or not np.isfinite(root).all():
            return None
        # w_k = Σ_j root_kj z_j, the last block being the mean: Φ(z) = ½ Σ_k ‖A_k w_k − b_k‖² + ½ ‖prior z‖².
        parts, targets = [], []
        for k in range(K):
            A, b = _factor(problem, k)
            parts.append(np.einsum("b,rd->rbd", root[k], A).reshape(len(A), blocks * d))
            targets.append(b)
        parts.append(np.kron(prior, np.eye(d)))
        targets.append(np.zeros(len(prior) * d))
        M, t = np.concatenate(parts), np.concatenate(targets)
        if not (np.isfinite(M).all() and np.isfinite(t).all()):
            return None
        return _least_squares(M, t, root, (K, d), tol)


def _least_squares(M: Array, t: Array, root: Array, shape: tuple[int, int], tol: float) -> WeightStep | None:
    # Columns of one size: a mean of huge variance must not make all others look like rounding.
    sizes = np.linalg.norm(M, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    M = M / sizes
    R, order = linalg.qr(M, mode="r", pivoting=True, check_finite=False)
    R = R[: M.shape[1]]
    diagonal = np.abs(R.diagonal())
    rank = int(np.count_nonzero(diagonal > len(M) * _EPS * diagonal.max(initial=0.0)))
    kept, R = order[:rank], R[:rank, :rank]
    z, gap = np.zeros(M.shape[1]), np.inf
    best = z
    for _ in range(_REFINEMENTS + 2):
        g = (M.T @ (M @ z - t))[kept]
        half = linalg.solve_triangular(R, g, trans="T", check_finite=False)
        reached = 0.5 * float(half @ half)
        if not reached < gap:
            break
        best, gap = z.copy(), reached
        z[kept] -= linalg.solve_triangular(R, half, check_finite=False)
    W = root @ (best / sizes).reshape(root.shape[1], shape[1])
    if not np.isfinite(gap) or not np.isfinite(W).all():
        return None
    return WeightStep(W, gap, 1, Status.CONVERGED if gap <= tol else Status.STALLED)


def _roots(coupling: Coupling) -> tuple[Array | None, Array]:
    """What weights are of the unknowns, (K, blocks), and the prior's factor in them, (rows, blocks)."""
    K, tau = coupling.n_tasks, np.sqrt(max(coupling.mean_variance, 0.0))
    values, vectors = linalg.eigh(coupling.precision)
    if coupling.covariance is not None and values[0] > 0:
        root, prior = vectors / np.sqrt(values), np.eye(K)
    elif coupling.covariance is None:
        root, prior = np.eye(K), np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    else:
        return None, np.eye(K)
    if tau > 0:
        root = np.column_stack([root, np.full(K, tau)])
        prior = linalg.block_diag(prior, np.ones((1, 1)))
    return root, prior


def _factor(problem: Quadratic, k: int) -> tuple[Array, Array]:
    """A and b with the loss of task k = ½ ‖A w − b‖² + constant, in at most d (with a ridge 2 d) rows."""
    if isinstance(problem, GramQuadratic) and problem.rows is not None:
        problem = problem.rows
    d = problem.n_features
    if isinstance(problem, DesignQuadratic):
        first, last = problem.design.offsets[k : k + 2]
        A, b = problem.block(k), np.sqrt(problem.c[first:last]) * problem.target[first:last]
        if len(A) > d:
            Q, A = np.linalg.qr(A)
            b = Q.T @ b
        if problem.ridge[k] > 0:
            A, b = np.concatenate([A, np.sqrt(problem.ridge[k]) * np.eye(d)]), np.concatenate([b, np.zeros(d)])
        return A, b
    values, vectors = np.linalg.eigh(problem.gram_of(k, np.ones(d, dtype=bool)))
    known = values > d * _EPS * max(float(values[-1]), 0.0)
    roots = np.sqrt(values[known])
    return roots[:, None] * vectors[:, known].T, (vectors[:, known].T @ problem.linear[k]) / roots
