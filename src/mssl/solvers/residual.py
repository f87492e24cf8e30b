r"""The weight step of r-MSSL: least squares whose errors are correlated across tasks.

.. math:: \min_W\; \tfrac12\operatorname{tr}(E A E^\top) + \sum_{kj} g(w_{kj}) + \tfrac12\sum_k r_k\|w_k\|^2,
          \qquad E = Y - [X_k w_k + b_k],\quad A = \eta\Omega + \kappa I.

Intercepts are eliminated by centring, which is exact since A is positive definite. The coupled Hessian
:math:`A_{kl} X_k^\top X_l` is never formed: coordinate descent visits a task with its neighbours in the graph only.
Without a penalty on single weights, the step with one X for all tasks has a closed form, and conjugate gradients solve
the step with different :math:`X_k`.

**Certificate.** With :math:`Z = sEA` and :math:`u_k = X_k^\top z_k` the Fenchel dual for ℓ1 strengths t is
:math:`s\langle Y, EA\rangle - \tfrac{s^2}{2}\operatorname{tr}(EAE^\top) - \sum_{kj}(|u_{kj}|-t_{kj})_+^2/(2r_k)`;
without a ridge s makes :math:`|u_{kj}| \le t_{kj}`, one s for each connected component of the graph. Without any
penalty the dual point is EA less its projections N onto the features, and the gap is
:math:`\tfrac12\operatorname{tr}(N A^{-1} N^\top)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy import sparse

from mssl._typing import Array, Mask
from mssl.data.design import Design, default_memory_limit
from mssl.data.layouts import TaskData
from mssl.exceptions import NotAlignedError, ParameterError
from mssl.kernels import aligned_sweeps, feature_sweeps, shared_sweeps
from mssl.model.coupling import Coupling, positive_definite_inverse
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import NEGLIGIBLE, WeightStep
from mssl.solvers.descent import descend_in_bursts, solve_on_support
from mssl.solvers.linear import conjugate_gradients
from mssl.solvers.proximal import accelerated
from mssl.solvers.quadratic import PenaltyParts, Problem, Quadratic, StepProblem, WeightProblem


@dataclass(frozen=True, eq=False, kw_only=True)
class ResidualProblem(WeightProblem):
    """The aligned rows of all tasks, and the penalties on the weights.

    Attributes
    ----------
    X : ndarray of shape (K, d, n), or (1, d, n) for one X
        Centred and scaled features times the square roots of the row weights.
    Y : ndarray of shape (K, n)
        Centred targets times the square roots of the row weights.
    extra : float
        κ, the additional weight of the squared loss.
    target_means, feature_means : ndarrays of shapes (K,) and (K, d)
        Weighted means, from which the intercepts are computed.
    weight : float
        Total weight of the rows, n without row weights.
    """

    X: Array
    Y: Array
    extra: float
    target_means: Array
    feature_means: Array
    weight: float

    @property
    def is_shared(self) -> bool:
        """Whether all tasks have one X."""
        return len(self.X) == 1

    @property
    def ridges(self) -> Array:
        """The r_k, (K,)."""
        return np.zeros(len(self.Y)) if self.ridge is None else self.ridge

    @property
    def unpenalised(self) -> bool:
        """Whether the weights have neither a penalty nor a ridge."""
        return not self.penalised and not self.ridges.any()

    def fitted(self, W: Array) -> Array:
        """X_k w_k, (K, n)."""
        return W @ self.X[0] if self.is_shared else np.asarray(np.matmul(W[:, None, :], self.X)[:, 0])

    def project(self, Z: Array) -> Array:
        """X_kᵀ z_k, (K, d)."""
        return Z @ self.X[0].T if self.is_shared else np.asarray(np.matmul(self.X, Z[:, :, None])[:, :, 0])

    def related(self, W: Array) -> Array:
        """The residuals E, (K, n)."""
        return np.asarray(self.Y - self.fitted(W))

    def step(self, coupling: Coupling) -> Problem:
        """The problem in the unknowns for a coupling of the residuals. The weights have their ridges alone."""
        ridges = self.unknowns.coupling(Coupling.diagonal_only(self.ridges))
        return StepProblem.of(_Residuals(self, self.precision(coupling)), ridges, self.penalty)

    def value(self, W: Array) -> float:
        """Penalties, and (κ/2)‖E‖²."""
        return self.penalties(W) + (0.5 * self.extra * float(np.sum(self.related(W) ** 2)) if self.extra else 0.0)

    def intercepts(self, W: Array) -> Array:
        """The best intercepts."""
        return np.asarray(self.target_means - np.vecdot(self.feature_means, W))

    @cached_property
    def gram(self) -> Array:
        """X_kᵀX_k, (K or 1, d, d)."""
        return np.matmul(self.X, self.X.transpose(0, 2, 1))

    @cached_property
    def squares(self) -> Array:
        """The diagonals of the Grams, (K or 1, d)."""
        return np.einsum("kdn,kdn->kd", self.X, self.X)

    @cached_property
    def linear(self) -> Array:
        """X_kᵀy_k, (K, d)."""
        return self.project(self.Y)

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of the Grams; tiny values are zeros."""
        values, vectors = np.linalg.eigh(self.gram)
        top = values.max(axis=1, keepdims=True)
        return np.where(values > NEGLIGIBLE * top, values, 0.0), vectors

    def divided(self, R: Array, sums: Array) -> Array:
        """R divided by the given sums in the eigenbases of the Grams. For sums that are zero, the result is zero."""
        vectors = self.eigen[1]
        return np.matmul(vectors, (np.matmul(R[:, None], vectors)[:, 0] * _inverse_of(sums))[:, :, None])[:, :, 0]

    def precision(self, coupling: Coupling) -> sparse.csr_array:
        """A = ηΩ + κI."""
        A = coupling.matrix
        if self.extra:
            A = sparse.csr_array(A + self.extra * sparse.eye_array(len(self.Y), format="csr"))
        A.sort_indices()
        return A

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Best weights for a coupling of the residuals."""
        step = self.step(coupling)
        if not isinstance(self.penalty, EntrywisePenalty):
            found = accelerated(step, self.unknowns.of_weights(W), tol=tol, max_iter=max_iter)
            return replace(found, W=self.unknowns.weights(found.W))
        A, certificate = self.precision(coupling), self.certificate(coupling, step)
        if self.penalised:
            W, run, certified = self.penalty.allowed(W), _sweeps(self, self.penalty, A), self.penalty.convex

            def jump(W: Array) -> None:
                W[...] = solve_on_support(step, W, 30, max_iter)[0]

            return descend_in_bursts(
                W, partial(run, W), certificate, tol, max_iter, certified, jump if certified else None
            )
        inverse = ((_inverse(self, A), np.inf) for _ in range(1))  # computed only if W is not yet the solution
        W = np.array(W, dtype=float)
        return conjugate_gradients(step, inverse, lambda V, _: certificate(V), W, tol=tol, max_iter=max_iter)

    def certificate(self, coupling: Coupling, step: Problem) -> Callable[[Array], float]:
        """Upper bound of the suboptimality of W; for penalties that are not convex, the violation of optimality."""
        if not self.unpenalised:
            return lambda W: step.bound(W, step.gradient(W))
        A = self.precision(coupling)
        known = None if self.extra else coupling.covariance
        inverse = positive_definite_inverse(A.toarray()) if known is None else known

        def of(W: Array) -> float:
            N = self.fitted(self.divided(self.project(np.asarray(A @ self.related(W))), self.eigen[0]))
            return np.inf if inverse is None else 0.5 * float(np.vdot(N, inverse @ N))

        return of


class _Residuals(Quadratic):
    """½ tr(E A Eᵀ) as a quadratic in the unknowns V."""

    def __init__(self, problem: ResidualProblem, A: sparse.csr_array) -> None:
        self.problem, self.A, self.related, self.unknowns = problem, A, A, problem.unknowns
        YA = np.asarray(A @ problem.Y)
        linear, constants = self.unknowns.gradient(problem.project(YA)), 0.5 * np.vecdot(problem.Y, YA)
        super().__init__(None, linear, constants, by_rows=True)

    def product(self, V: Array) -> Array:
        """The Hessian times V."""
        fitted = self.problem.fitted(self.unknowns.weights(V))
        return self.unknowns.gradient(self.problem.project(self.A @ fitted))

    def gradient(self, W: Array) -> Array:
        """The products of the features with −EA."""
        E = self.problem.related(self.unknowns.weights(W))
        return self.unknowns.gradient(-self.problem.project(self.A @ E))

    def task_values(self, W: Array) -> Array:
        """½ e_k · (EA)_k."""
        E = self.problem.related(self.unknowns.weights(W))
        return np.asarray(0.5 * np.vecdot(E, self.A @ E))

    @cached_property
    def diagonal(self) -> Array:
        """A_kk |x_kj|²."""
        return self.A.diagonal()[:, None] * self.problem.squares

    def gram_of(self, k: int, features: Mask) -> Array:
        """A_kk times the Gram of some features."""
        columns = self.problem.X[0 if self.problem.is_shared else k, features]
        return np.asarray(self.A[k, k] * (columns @ columns.T))

    def hessian_on(self, support: Mask) -> Array:
        """The Hessian on a support of all tasks together."""
        tasks, features = np.nonzero(support)
        columns = self.problem.X[0 if self.problem.is_shared else tasks, features]
        used, places = np.unique(tasks, return_inverse=True)
        return np.asarray(self.A[used][:, used].toarray()[np.ix_(places, places)] * (columns @ columns.T))


def _sweeps(
    problem: ResidualProblem, penalty: EntrywisePenalty, A: sparse.csr_array
) -> Callable[[Array, int, float], tuple[int, float]]:
    """The kernel that fits the shapes, as a function (W, sweeps, enough) → (sweeps made, last gain)."""
    graph = (A.indptr.astype(np.int64), A.indices.astype(np.int64), np.array(A.data, dtype=float), None, 0.0)
    X, ridges, form = problem.X, problem.ridges, (graph, penalty.kernel)
    d, n = X.shape[1:]
    fits = 8 * len(X) * d * d <= default_memory_limit()
    kernel: Callable[..., tuple[int, float]]
    kept: tuple[Callable[[Array], Array], ...]  # initial values of the arrays that the kernel updates with W
    if problem.is_shared and fits:
        kernel = partial(shared_sweeps, problem.gram[0], problem.linear, ridges, form)
        kept = (lambda W: W @ problem.gram[0] - problem.linear,)
    elif d <= n and fits:
        kernel = partial(aligned_sweeps, X, problem.gram, ridges, form)
        kept = (lambda W: np.matmul(problem.gram, W[:, :, None])[:, :, 0], problem.related)
    else:
        kernel = partial(feature_sweeps, X, problem.squares, ridges, form)
        kept = (problem.related,)
    return lambda W, n_sweeps, enough: kernel(
        W, *(np.ascontiguousarray(made(W)) for made in kept), n_sweeps, float(enough)
    )


def _inverse(problem: ResidualProblem, A: sparse.csr_array) -> Callable[[Array], Array]:
    """The inverse of W ↦ XᵀAXW + diag(r) W: exact for one X, by two eigenbases; otherwise of each task alone.

    For dependent features it gives the weights of smallest norm.
    """
    r = problem.ridges[:, None]
    if problem.X.shape[1] > problem.X.shape[2] and not problem.is_shared:
        diagonal = A.diagonal()[:, None] * problem.squares + r
        return lambda R: R / np.where(diagonal > 0, diagonal, 1.0)
    values, vectors = problem.eigen
    if not problem.is_shared:
        sums = A.diagonal()[:, None] * values + r
        return lambda R: problem.divided(R, sums)
    # With V = √r W the map is symmetric: (√r⁻¹ A √r⁻¹) V G + V.
    root = np.where(r > 0, np.sqrt(r), 1.0)
    task_values, T = np.linalg.eigh(A.toarray() / root / root.T)
    inverse = _inverse_of(task_values[:, None] * values + (r > 0))
    return lambda R: T @ ((T.T @ (R / root) @ vectors[0]) * inverse) @ vectors[0].T / root


def _inverse_of(sums: Array) -> Array:
    return np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)


def make_residual_problem(
    data: TaskData,
    design: Design,
    parts: PenaltyParts,
    *,
    extra: float = 0.0,
    intercept: bool = True,
    unknown: Array | None = None,
) -> ResidualProblem:
    """The weight problem of r-MSSL. An error is raised if the data do not allow it.

    Parameters
    ----------
    data : TaskData
        All tasks. Row i of every task must be the same occasion.
    design : Design
        Their centred and scaled features.
    parts : tuple
        The penalty, the unknowns and the ridges of :class:`WeightProblem`.
    extra : float
        κ.
    intercept : bool
        Whether each task has a free intercept.
    unknown : ndarray of shape (K, K), optional
        Square root of the covariance of the filled targets, which is added to the products of the residuals. Its
        columns act as the residuals of occasions without features, which no weights change.
    """
    check_aligned(data)
    K, d = design.n_tasks, design.n_features
    n = len(data.y) // K
    Y = np.array(data.y, dtype=float).reshape(K, n)
    X = design.stored.buffer.reshape(1 if design.shared else K, d, n)  # type: ignore[union-attr]
    c = np.ones(n) if data.weights is None else np.asarray(data.weights, dtype=float)[:n]
    total = float(c.sum())
    means = Y @ c / total if intercept else np.zeros(K)
    centres = np.matmul(X, c) / total if intercept else np.zeros((len(X), d))
    freedom = n - (1 if intercept else 0)
    rows, targets = (X - centres[:, :, None]) * np.sqrt(c), (Y - means[:, None]) * np.sqrt(c)
    if unknown is not None:
        rows = np.concatenate([rows, np.zeros((*rows.shape[:2], K))], axis=2)
        targets = np.concatenate([targets, unknown], axis=1)
    problem = ResidualProblem(
        *parts,
        X=np.ascontiguousarray(rows),
        Y=targets,
        extra=extra,
        target_means=means,
        feature_means=np.broadcast_to(centres, (K, d)),
        weight=total,
    )
    if problem.unpenalised and freedom <= d:
        raise ParameterError(
            f"relation is 'residual' with {n} rows and {d} features; least squares fits these rows exactly and leaves "
            "no residuals. Give coef_penalty > 0 or ridge > 0, more rows, or relation='coef'."
        )
    return problem


def check_aligned(data: TaskData) -> None:
    """Raise an error unless the rows of all tasks are aligned."""
    if sparse.issparse(data.X):
        raise NotAlignedError("X is a sparse matrix; relation='residual' needs dense features. Give X.toarray().")
    if data.aligned:
        return
    if data.layout == "long":
        raise NotAlignedError(
            "The data are in the long layout, in which rows of different tasks do not belong together; "
            "relation='residual' relates the tasks' residuals row by row. Give y as (n, K), with X as (n, d) or "
            "(n, K, d), or relation='coef'."
        )
    raise NotAlignedError(
        "Some targets are missing (NaN), or row weights differ between tasks; relation='residual' relates residuals "
        "row by row and needs them all. Fit MSSLRegressor(relation='residual') without row weights, which fills "
        "missing targets, drop those rows, or use relation='coef', which allows missing targets."
    )
