r"""The graphical lasso: a sparse precision matrix from a covariance matrix, with a certificate.

.. math:: \min_{\Omega \succ 0}\; \operatorname{tr}(S\Omega) - \log\det\Omega
          + \sum_{i \neq j} \Lambda_{ij} |\Omega_{ij}| + \sum_i e_i \Omega_{ii}.

Its dual is :math:`\max_U \log\det(S' + U) + p` over :math:`|U_{ij}| \le \Lambda_{ij}`, :math:`U_{ii} = 0`, with
:math:`S' = S + \operatorname{diag}(e)`; every dual point bounds how far a given Ω is from the optimum.
The solvers first scale S' to a unit diagonal, which is an exact change of variables. The result therefore does not
depend on the units and the magnitude of S.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf, dpotri

from mssl import kernels
from mssl._typing import Array, Index, Mask
from mssl._validation import check_array, check_choice, check_instance, check_number, check_whole_number, refused, warn
from mssl.exceptions import DataError, ParameterError
from mssl.kernels import plain
from mssl.kernels.threads import threads_for

UNBOUNDED = (
    "S has no positive definite matrix within its penalties; the objective then has no minimum, or one too far away to "
    "be computed. Penalise the diagonal (penalize_diagonal=True, diagonal_penalty > 0), raise alpha, or shrink S; if "
    "max_iter is small, raise it first."
)
ROUNDING = 1e-13  # a gap below this times p, or a slope of the objective below this, counts as rounding
# Limit of the sweeps for each of the larger penalties on the way to the given one; those that succeed take a tenth of
# it. It is also the number of ADMM iterations after a failed descent in which the gap must fall by a tenth. If max_iter
# is smaller, an ADMM that has not converged is returned without a descent after it.
PATIENCE = 200
LOOK = 10  # number of ADMM iterations between two certificates, each of which costs as much as a few iterations
UNBALANCED = 5.0  # the step of ADMM is doubled or halved if its two residuals differ by more than this factor
_RELAXATION = 1.6  # over-relaxation of ADMM: 1 means none, and values beyond 1.8 take more iterations again
# A step makes progress if it lowers the certificate to this share of its smallest value. With a larger share, solvers
# end later.
SLOW = 0.9


class GlassoStatus(StrEnum):
    """The status with which a graphical lasso ended."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    STALLED = "stalled"


@dataclass(frozen=True, eq=False)
class GraphicalLassoResult:
    """A precision matrix with its inverse and its certificate.

    Attributes
    ----------
    precision : ndarray of shape (p, p)
        Ω, symmetric positive definite, with exact zeros for pairs without an edge. If S is float32, Ω is rounded to
        float32; all other attributes belong to Ω before rounding.
    covariance : ndarray of shape (p, p)
        The inverse of Ω.
    gap : float
        Duality gap. The objective exceeds its minimum by at most this number.
    objective : float
        tr(SΩ) − log det Ω + Σ_{i≠j} Λ_ij|Ω_ij| + Σ_i e_i Ω_ii.
    status : GlassoStatus
        ``"converged"``, ``"max_iter"``, or ``"stalled"`` if rounding prevents a much smaller gap.
    n_iter : int
        Number of sweeps and ADMM iterations, for the component that needed most.
    components : ndarray of shape (p,)
        Label of the connected component of each variable, from screening.
    log_determinant : float
        log det Ω.
    dual : ndarray of shape (p, p) or None
        A point S' + U of the dual problem, which proves the bound; None if ADMM gave the result.
    """

    precision: Array
    covariance: Array
    gap: float
    objective: float
    status: GlassoStatus
    n_iter: int
    components: Index
    log_determinant: float
    dual: Array | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        precision: Array,
        covariance: Array,
        log_determinant: float | None = None,
        gap: float = np.inf,
        objective: float = np.inf,
    ) -> GraphicalLassoResult:
        """A result from a matrix and its inverse; the gap and the objective are optional."""
        if log_determinant is None:
            log_determinant = float(np.linalg.slogdet(precision)[1])
        status = GlassoStatus.CONVERGED if gap < np.inf else GlassoStatus.MAX_ITER
        components = np.zeros(len(precision), dtype=np.int64)
        return cls(precision, covariance, gap, objective, status, 0, components, log_determinant)

    def of_type(self, kind: type[np.floating[Any]]) -> GraphicalLassoResult:
        """The same result with matrices of another type. The conversion from float32 drops the certificate."""
        if self.precision.dtype == kind:
            return self
        precision, covariance = self.precision.astype(kind), self.covariance.astype(kind)
        if kind is np.float64:
            return self.of(precision, covariance)
        return replace(
            self, precision=precision, covariance=covariance, dual=None if self.dual is None else self.dual.astype(kind)
        )


class Problem(NamedTuple):
    """A graphical lasso in the form for the kernels.

    ``S`` and ``L`` are symmetric arrays in row order. The price of an edge is its entry of ``L``, which is infinite for
    a forbidden edge; ``alpha`` is then 1. If ``L`` is None, the price of every edge is ``alpha``. ``e`` is the price of
    the diagonal.
    """

    S: Array
    alpha: float
    L: Array | None
    e: Array

    @property
    def variances(self) -> Array:
        """The diagonal of S'. An error is raised unless it is positive."""
        with np.errstate(over="ignore"):
            variances: Array = self.S.diagonal() + self.e
        if not (variances > 0).all():
            raise _no_variance(int(np.argmax(~(variances > 0))))
        return variances


def _no_variance(place: int) -> DataError:
    return DataError(
        f"S[{place}, {place}] plus its diagonal penalty is zero; without variance the objective has no minimum. "
        "Penalise the diagonal (penalize_diagonal=True or diagonal_penalty > 0) or drop that variable."
    )


def graphical_lasso(
    S: ArrayLike,
    alpha: float,
    *,
    penalize_diagonal: bool = True,
    diagonal_penalty: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    zeros: ArrayLike | None = None,
    solver: Literal["bcd", "admm"] = "bcd",
    tol: float = 1e-6,
    max_iter: int = 1000,
    warm_start: GraphicalLassoResult | None = None,
    check: bool = True,
) -> GraphicalLassoResult:
    r"""Estimate a sparse precision matrix.

    .. math:: \min_{\Omega \succ 0}\; \operatorname{tr}(S\Omega) - \log\det\Omega
              + \alpha \sum_{i \neq j} a_{ij} |\Omega_{ij}| + \sum_i e_i \Omega_{ii}

    Parameters
    ----------
    S : array of shape (p, p)
        Covariance (or any symmetric matrix for which the problem is bounded). If S is float32, so is the result.
    alpha : float
        Strength of the penalty, ≥ 0.
    penalize_diagonal : bool
        True sets e_i = alpha, False sets e_i = 0.
    diagonal_penalty : float or array of shape (p,), optional
        The e_i themselves; overrides `penalize_diagonal`.
    weights : array of shape (p, p), optional
        The a_ij ≥ 0, symmetric; an edge with weight 0 has no penalty. All ones by default.
    zeros : bool array of shape (p, p), optional
        True forbids an edge.
    solver : {"bcd", "admm"}
        Dual block coordinate descent (fast), or the alternating direction method of multipliers. If the latter is not
        accurate enough after `max_iter` iterations, as with small penalties, descent follows.
    tol : float
        Stop when the gap is at most tol · max(1, abs(objective)).
    max_iter : int
        Largest number of sweeps per component, and of the ADMM iterations that follow if the gap is too large.
    warm_start : GraphicalLassoResult, optional
        A solution of a nearby problem. The result is never worse than that start.
    check : bool
        If False, the input is not validated: S and the weights must be symmetric, finite float64 arrays.

    Returns
    -------
    GraphicalLassoResult

    Notes
    -----
    The matrix is split into the connected components of :math:`|S_{ij}| > \Lambda_{ij}` [2]_ [3]_; each is solved
    by block coordinate descent on the dual [1]_, or by ADMM [4]_, §6.5. If the gap exceeds the tolerance, the descent
    continues with a smaller tolerance, and then ADMM continues. If the gap is still too large, a `ConvergenceWarning`
    reports it.

    References
    ----------
    .. [1] Friedman, Hastie, Tibshirani (2008), Biostatistics 9(3). doi:10.1093/biostatistics/kxm045
    .. [2] Witten, Friedman, Simon (2011), J. Comput. Graph. Stat. 20(4). doi:10.1198/jcgs.2011.11051a
    .. [3] Mazumder, Hastie (2012), Electron. J. Stat. 6. doi:10.1214/12-EJS740
    .. [4] Boyd et al. (2011), Found. Trends Mach. Learn. 3(1). doi:10.1561/2200000016

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[1.0, 0.6, 0.1], [0.6, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> result = graphical_lasso(S, 0.3)
    >>> result.status.value
    'converged'
    >>> (result.precision != 0).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    problem = _problem(S, alpha, penalize_diagonal, diagonal_penalty, weights, zeros, check=check)
    if check:
        _check_settings(solver, tol, max_iter, warm_start, len(problem.S))
    if warm_start is not None:
        warm_start = warm_start.of_type(np.float64)
    result = solve(problem, solver=solver, tol=tol, max_iter=max_iter, warm_start=warm_start, check=check)
    if result.status is not GlassoStatus.CONVERGED and result.gap > ROUNDING * len(problem.S):
        _warn(result, tol, max_iter, solver)
    return result.of_type(np.float32) if getattr(S, "dtype", None) == np.float32 else result


def solve(
    problem: Problem,
    *,
    solver: str = "bcd",
    tol: float = 1e-6,
    max_iter: int = 1000,
    warm_start: GraphicalLassoResult | None = None,
    check: bool = False,
    digits: bool = True,
) -> GraphicalLassoResult:
    """:func:`graphical_lasso` without validation of its input and without a warning if it does not converge.

    Parameters
    ----------
    problem : Problem
        The problem to solve.
    solver, tol, max_iter, warm_start
        As for :func:`graphical_lasso`.
    check : bool
        Whether to raise an error if the result leaves the range of numbers.
    digits : bool
        Whether to make Ω more accurate than the gap requires, if that is cheap.
    """
    p = len(problem.S)
    with threads_for(p) if p >= kernels.LAPACK_FROM else nullcontext():  # kernels use no BLAS below
        if not problem.L.any() if problem.L is not None else problem.alpha == 0:
            result = _compiled(problem, np.inf, max_iter, None, digits)  # S'⁻¹
            if result.gap == np.inf:
                _check_range(result)
                raise DataError(
                    "S (with its diagonal penalty) is singular and alpha is 0; without a penalty S must be invertible. "
                    "Give alpha > 0 or a diagonal_penalty > 0."
                )
        elif solver == "admm":
            start = replace(warm_start or _diagonal(problem), n_iter=0)  # the sweeps of an earlier fit do not count
            result = _alternate(problem, start, tol, max_iter)
            if result.status is GlassoStatus.MAX_ITER and max_iter >= PATIENCE:
                # ADMM has the rate 1 − 1/κ. The condition number κ of the precision is in the thousands if λ is small.
                ended = _descend(problem, tol, max_iter, None, digits)
                if ended.status is GlassoStatus.CONVERGED:
                    result = replace(ended, n_iter=result.n_iter + ended.n_iter)
        else:
            result = _descend(problem, tol, max_iter, warm_start, digits)
            if result.status is not GlassoStatus.CONVERGED:
                stalled = replace(result, status=GlassoStatus.STALLED)
                within = result.gap <= ROUNDING * p
                result = stalled if within else _alternate(problem, result, tol, max_iter, PATIENCE)
    if check and result.dual is None:  # compiled results are always within the range
        _check_range(result)
    return result if warm_start is None else _not_worse(result, warm_start, problem)


def graphical_lasso_gap(
    S: ArrayLike,
    precision: ArrayLike,
    alpha: float,
    *,
    penalize_diagonal: bool = True,
    diagonal_penalty: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    zeros: ArrayLike | None = None,
    check: bool = True,
    known: GraphicalLassoResult | None = None,
) -> tuple[float, float]:
    r"""Duality gap and objective of a given positive definite Ω.

    With :math:`\Sigma = \Omega^{-1}`, one dual point has
    :math:`U_{ij} = \Lambda_{ij}\operatorname{sign}(\Omega_{ij})` on the support and
    :math:`\operatorname{clip}(\Sigma - S', \pm\Lambda)` elsewhere. The other one is clipped everywhere. Both are moved
    towards a known interior point until S' + U is positive definite, and the better one counts.

    Parameters
    ----------
    S, alpha, penalize_diagonal, diagonal_penalty, weights, zeros, check
        The problem, as for `graphical_lasso`.
    precision : array of shape (p, p)
        Symmetric positive definite Ω.
    known : GraphicalLassoResult, optional
        A result whose ``precision`` is the same array. Its inverse and determinant are then not computed again.

    Returns
    -------
    gap : float
        Upper bound of objective − minimum; ``inf`` if Ω has a forbidden edge or no dual point is known.
    objective : float
        Value of the objective at Ω.

    Examples
    --------
    >>> import numpy as np
    >>> gap, objective = graphical_lasso_gap(np.eye(2), np.eye(2) / 1.5, 0.5)
    >>> round(gap, 12), round(objective, 4)
    (0.0, 2.8109)
    """
    problem = _problem(S, alpha, penalize_diagonal, diagonal_penalty, weights, zeros, check=check)
    size = len(problem.S)
    omega = _square(precision, "precision", size) if check else np.ascontiguousarray(precision, dtype=float)
    given = known is not None and known.precision is precision and known.precision.dtype == np.float64
    return gap_of(problem, omega, known if given else None)


def gap_of(problem: Problem, omega: Array, known: GraphicalLassoResult | None) -> tuple[float, float]:
    """:func:`graphical_lasso_gap` without validation of its input."""
    with threads_for(len(omega)):
        point = _certified(problem, omega, known)
    if point is None:
        raise DataError(
            "precision is not positive definite; the objective is infinite there. Give a positive definite matrix."
        )
    return point.gap, point.objective


def _certified(
    problem: Problem, omega: Array, known: GraphicalLassoResult | None = None
) -> GraphicalLassoResult | None:
    """Ω with its inverse, gap and objective; None if it is not positive definite."""
    if known is None:
        root = np.sqrt(np.maximum(omega.diagonal(), 0.0))
        units = np.outer(root, root)
        if not (units > 0).all():
            return None
        triangle, info = dpotrf((omega / units).T, lower=0)
        if info or not (triangle.diagonal() > 0).all():  # LAPACK does not report NaN
            return None
        log_determinant = 2.0 * float(np.log(triangle.diagonal() * root).sum())
        half = np.tril(dpotri(triangle, lower=0, overwrite_c=1)[0].T)
        sigma = (half + np.tril(half, -1).T) / units
    else:
        sigma, log_determinant = known.covariance, known.log_determinant
    gap, trace = kernels.graph_gap(*problem, plain(omega), plain(sigma), log_determinant)
    return GraphicalLassoResult.of(omega, sigma, log_determinant, gap, trace - log_determinant)


@np.errstate(over="ignore", invalid="ignore")
def _diagonal(problem: Problem) -> GraphicalLassoResult:
    """The diagonal start, without a gap."""
    variances = problem.variances
    return GraphicalLassoResult.of(np.diag(1.0 / variances), np.diag(variances), -float(np.log(variances).sum()))


def _descend(
    problem: Problem, tol: float, max_iter: int, start: GraphicalLassoResult | None, digits: bool
) -> GraphicalLassoResult:
    """The compiled descent. If it fails from every start, it starts at the solutions for larger penalties."""
    warm = None if start is None else (plain(start.precision), plain(start.covariance))
    result = _compiled(problem, tol, max_iter, warm, digits)
    if result.gap < np.inf or result.n_iter >= max_iter:
        return result
    S, alpha, L, _ = problem
    prices = np.full(S.shape, alpha) if L is None else L
    priced = ~np.eye(len(S), dtype=bool) & np.isfinite(prices) & (prices > 0)
    times, sweeps, warm = float((np.abs(S[priced]) / prices[priced]).max(initial=1.0)), result.n_iter, None
    while True:
        last, left = times == 1.0, max_iter - sweeps
        limit = left if last else min(PATIENCE, left)
        found = _compiled(problem._replace(alpha=times * alpha), tol, limit, warm, digits)
        sweeps += found.n_iter
        if last or found.status is not GlassoStatus.CONVERGED or sweeps >= max_iter:
            return replace(found if last else result, n_iter=sweeps)
        warm, times = (found.precision, np.asarray(found.dual)), max(0.1 * times, 1.0)


def _compiled(
    problem: Problem, tol: float, max_iter: int, warm: tuple[Array, Array] | None, digits: bool
) -> GraphicalLassoResult:
    """The result of the compiled solver. If it fails, it is the inverse of the diagonal without a gap."""
    ended, answers, labels, facts = kernels.graph_lasso(*problem, tol, max_iter, warm, digits=digits)
    gap, objective, log_determinant, sweeps = facts
    if ended == kernels.UNBOUNDED:
        raise _no_variance(int(gap))
    if not gap < np.inf:
        return replace(_diagonal(problem), n_iter=int(sweeps), components=labels)
    status = GlassoStatus.CONVERGED if ended == kernels.DONE else GlassoStatus.MAX_ITER
    bounds = (gap, objective, status, int(sweeps), labels, log_determinant)
    return GraphicalLassoResult(answers[0], answers[1], *bounds, answers[2])


@np.errstate(over="ignore", invalid="ignore")
def _alternate(
    problem: Problem, start: GraphicalLassoResult, tol: float, max_iter: int, patience: float = np.inf
) -> GraphicalLassoResult:
    """Over-relaxed ADMM with an adaptive step from a start, in units in which S' has a unit diagonal.

    If the gap does not fall by a tenth within ``patience`` iterations, ADMM ends as stalled with its best point.
    """
    p, root = len(problem.S), np.sqrt(problem.variances)
    units, constant = np.outer(root, root), 2.0 * float(np.log(root).sum())
    S, L = problem.S / units, (problem.alpha if problem.L is None else problem.L) / units
    np.fill_diagonal(S, 1.0)
    np.fill_diagonal(L, 0.0)
    scaled = Problem(S, 1.0, L, np.zeros(p))

    def goal(point: GraphicalLassoResult) -> float:
        return tol * max(1.0, abs(point.objective + constant))

    best = _certified(scaled, plain(start.precision * units))
    if best is None:
        best = GraphicalLassoResult.of(np.eye(p), np.eye(p), 0.0, np.inf, float(p))
    Z, U = best.precision, np.clip(best.covariance - S, -L, L)
    done, rho, smallest, last_fall = 0, 1.0, np.inf, 0
    with threads_for(p):
        while done < max_iter and (best.gap == np.inf or (best.gap > goal(best) and done - last_fall < patience)):
            done += 1
            values, vectors = eigh(rho * Z - U - S, check_finite=False, driver="evd")
            root_of = np.sqrt(values * values + 4.0 * rho)
            total = root_of + np.abs(values)
            X = (vectors * np.where(values > 0, total / (2.0 * rho), 2.0 / total)) @ vectors.T
            T = rho * (0.5 * _RELAXATION * (X + X.T) + (1.0 - _RELAXATION) * Z) + U
            U = np.clip(T, -L, L)
            np.fill_diagonal(U, 0.0)
            old, Z = Z, (T - U) / rho
            primal, dual = float(np.linalg.norm(X - Z)), rho * float(np.linalg.norm(Z - old))
            if done == max_iter or primal * dual <= goal(best) or done % LOOK == 0:
                point = _certified(scaled, Z)
                if point is not None and point.gap < best.gap:
                    best = point
                if point is not None and point.gap < SLOW * smallest:
                    smallest, last_fall = point.gap, done
                v = vectors[:, -1]
                if best.gap == np.inf and v @ S @ v + np.abs(v) @ L @ np.abs(v) < ROUNDING:
                    break
            rho *= 2.0 if primal > UNBALANCED * dual else 0.5 if dual > UNBALANCED * primal else 1.0
    if best.gap == np.inf:
        raise DataError(UNBOUNDED)
    status = GlassoStatus.MAX_ITER
    if best.gap <= goal(best):
        status = GlassoStatus.CONVERGED
    elif done < max_iter or best.gap <= ROUNDING * p:
        status = GlassoStatus.STALLED
    return GraphicalLassoResult(
        *(best.precision / units, best.covariance * units, best.gap, best.objective + constant, status),
        *(start.n_iter + done, kernels.graph_components(*problem[:3]), best.log_determinant - constant),
    )


@np.errstate(over="ignore", invalid="ignore")
def _not_worse(result: GraphicalLassoResult, start: GraphicalLassoResult, problem: Problem) -> GraphicalLassoResult:
    """The result, or the start if its objective is lower. The dual bound of the result certifies both."""
    (S, alpha, L, e), omega = problem, start.precision
    off = omega - np.diag(omega.diagonal())
    penalties = np.multiply(alpha if L is None else L, np.abs(off), where=off != 0, out=np.zeros_like(off))
    objective = float(np.vdot(S, omega) + penalties.sum() + e @ omega.diagonal()) - start.log_determinant
    rise = result.objective - objective
    if not rise > 0:
        return result
    return replace(
        result,
        precision=start.precision,
        covariance=start.covariance,
        log_determinant=start.log_determinant,
        objective=objective,
        gap=max(result.gap - rise, 0.0),
    )


def _warn(result: GraphicalLassoResult, tol: float, max_iter: int, solver: str) -> None:
    from sklearn.exceptions import ConvergenceWarning

    limit = f"max_iter={max_iter}" + (" sweeps, then as many of ADMM" if solver == "bcd" else "")
    stalled = result.status is GlassoStatus.STALLED
    how = f"made no more progress after {result.n_iter}" if stalled else f"stopped after {result.n_iter}"
    warn(
        f"The graphical lasso {how} iterations ({limit}) at a relative duality gap of "
        f"{result.gap / max(1.0, abs(result.objective)):.3g}, above tol={tol:.3g}. Raise "
        f"{'tol' if stalled else 'max_iter or tol'}, or penalise more (alpha, diagonal_penalty).",
        ConvergenceWarning,
    )


def _check_range(result: GraphicalLassoResult) -> None:
    """Raise an error if Ω leaves the range of numbers. Its largest entry is on the diagonal."""
    diagonal = result.precision.diagonal()
    if not (diagonal.min() > 0 and diagonal.max() < np.inf):
        raise DataError(
            f"S has a precision matrix whose diagonal runs from {diagonal.min():.3g} to {diagonal.max():.3g}; it must "
            "stay within the range of floating-point numbers. Give S in other units."
        )


def _covariance(values: ArrayLike) -> Array:
    """Convert S to a float64 array in row order. It must be finite and symmetric, without negative variances."""
    if isinstance(values, np.ndarray) and type(values) is np.ndarray and values.dtype == np.float64:
        square = values.ndim == 2 and 0 < values.shape[0] == values.shape[1]
        if square and values.flags.c_contiguous and kernels.is_covariance(values):
            return values
    matrix = _square(values, "S")
    if np.any(np.diagonal(matrix) < 0):
        raise DataError(f"S has the variance {np.diagonal(matrix).min():.3g} on its diagonal; variances are ≥ 0.")
    return matrix


def _square(values: ArrayLike, name: str, p: int | None = None) -> Array:
    """Copy a matrix to float64. It must be symmetric, finite and not empty, with p rows if p is given."""
    try:
        given = np.asarray(values)
        if given.dtype.kind == "c":
            raise TypeError("complex entries")
        matrix = np.array(given, dtype=float, order="C")
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name} is of type {type(values).__name__} ({error}); give a numeric symmetric matrix (p, p)."
        ) from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise DataError(f"{name} has shape {matrix.shape}; give a non-empty square matrix (p, p).")
    if p is not None and len(matrix) != p:
        raise DataError(f"{name} has shape {matrix.shape}; S has {(p, p)}. Give both the same shape.")
    if not np.isfinite(matrix).all():
        raise DataError(f"{name} holds NaN or infinite entries; give finite numbers. Drop or impute the others first.")
    if np.array_equal(matrix, matrix.T):
        return matrix
    size = np.sqrt(np.abs(np.diagonal(matrix)))
    uneven = np.abs(matrix - matrix.T)
    rounding = 1e-5 if given.dtype == np.float32 else 1e-8
    if np.any(uneven > rounding * np.maximum(size[:, None] * size, np.abs(matrix))):
        raise DataError(
            f"{name} differs from its transpose by up to {uneven.max():.3g}; it must be symmetric. Give (A + A.T) / 2."
        )
    return 0.5 * matrix + 0.5 * matrix.T


def _mask(values: ArrayLike, p: int) -> Mask:
    """Convert the forbidden edges to a mask. They must be a symmetric matrix of True and False (or 1 and 0)."""
    try:
        mask = np.asarray(values)
    except ValueError:
        mask = np.empty(0)
    if mask.shape != (p, p) or mask.dtype.kind not in "biuf" or np.any((mask != 0) & (mask != 1)):
        what = f"an array of {mask.dtype}, shape {mask.shape}" if mask.shape not in {(), (0,)} else repr(values)
        raise DataError(f"zeros is {what}; give a bool matrix of shape {(p, p)}, True where an edge is forbidden.")
    if np.any(mask != mask.T):
        raise DataError("zeros differs from its transpose; it must be symmetric. Give zeros | zeros.T.")
    return mask.astype(bool)


def _problem(
    S: ArrayLike,
    alpha: float,
    penalize_diagonal: bool,
    diagonal_penalty: ArrayLike | None,
    weights: ArrayLike | None,
    zeros: ArrayLike | None,
    *,
    check: bool,
) -> Problem:
    """The problem; its input is validated unless `check` is False."""
    if check:
        check_number("alpha", alpha if type(alpha) is float else np.asarray(alpha)[()], low=0)
        S = _covariance(S)
        p = len(S)
        if weights is not None:
            weights = _square(weights, "weights", p)
            if np.any(weights < 0):
                raise refused("weights", weights.min(), "give numbers ≥ 0", "0 leaves an edge unpenalised.")
        zeros = None if zeros is None else _mask(zeros, p)
        if diagonal_penalty is not None:
            diagonal_penalty = check_array("diagonal_penalty", diagonal_penalty, (), (1,), (p,), low=0)
    matrix = plain(np.ascontiguousarray(S, dtype=float))
    shape, L = matrix.shape, None
    if weights is not None:
        L = np.ascontiguousarray(alpha * np.asarray(weights, dtype=float))
    if zeros is not None:
        L = np.full(shape, float(alpha)) if L is None else L
        L[np.asarray(zeros, dtype=bool)] = np.inf
    if diagonal_penalty is None:
        diagonal_penalty = alpha if penalize_diagonal else 0.0
    return Problem(matrix, alpha if L is None else 1.0, L, np.full(len(matrix), diagonal_penalty, dtype=float))


def _check_settings(solver: str, tol: Any, max_iter: Any, warm_start: Any, p: int) -> None:
    check_choice("solver", solver, ("bcd", "admm"))
    check_number("tol", tol, above=0)
    check_whole_number("max_iter", max_iter, low=1)
    if warm_start is None:
        return
    remedy = "Give what graphical_lasso returned for a nearby problem."
    start = check_instance("warm_start", warm_start, GraphicalLassoResult, also="None", remedy=remedy)
    if start.precision.shape != (p, p):
        what = f"a GraphicalLassoResult of {len(start.precision)} variables"
        raise ParameterError(f"warm_start is {what}; S has {p}. {remedy}")
