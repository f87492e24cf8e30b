"""One door to the solvers of the quadratic weight step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.exceptions import ParameterError
from mssl.model.coupling import Coupling
from mssl.solvers.admm import admm
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.coordinate import coordinate_descent
from mssl.solvers.fista import fista
from mssl.solvers.linear import conjugate_gradient, sylvester
from mssl.solvers.quadratic import MANY_FEATURES, DesignQuadratic, GramQuadratic, pays_in_sets
from mssl.solvers.support import descend_on_support
from mssl.solvers.working_set import descend_on_sets

Array = NDArray[np.float64]

SOLVERS = ("auto", "coordinate", "cg", "sylvester", "fista", "admm")

_DENSE = 0.25  # share of weights in the support from which one linear system beats many sweeps
_FULL = 0.7  # share of the sets in the support from which on Grams of everything are worth their cost
_SYLVESTER_FROM = 30  # features from which two eigendecompositions beat a few preconditioned iterations


def solve_quadratic(
    problem: GramQuadratic | DesignQuadratic,
    coupling: Coupling,
    threshold: Array,
    W0: Array,
    *,
    solver: str = "auto",
    tol: float,
    max_iter: int | None = None,
) -> WeightStep:
    r"""Minimise :math:`\ell(W) + \tfrac12\operatorname{tr}(WCW^\top) + \sum_k t_k\|w_k\|_1`.

    Parameters
    ----------
    problem : GramQuadratic or DesignQuadratic
        The quadratic loss, see :func:`mssl.solvers.quadratic.make_quadratic`.
    coupling : Coupling
        C.
    threshold : ndarray of shape (K,)
        ℓ1 strengths t_k ≥ 0.
    W0 : ndarray of shape (K, d)
        Start.
    solver : {"auto", "coordinate", "cg", "sylvester", "fista", "admm"}
        "auto": with a penalty coordinate descent, which linear solves on a dense support of many features help; without
        one the Sylvester solver for a common Gram with at least 30 features, conjugate gradients otherwise.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int, optional
        Most iterations, as the solver counts them; default the solver's own.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> loss = GramQuadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> solve_quadratic(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1), np.zeros((1, 2)), tol=1e-10).W
    array([[1., 0.]])
    """
    threshold = np.asarray(threshold, dtype=float)
    limit = {} if max_iter is None else {"max_iter": max_iter}
    name = choose_solver(problem, threshold) if solver == "auto" else solver
    if name in ("cg", "sylvester") and np.any(threshold):
        raise ParameterError(
            f"solver={name!r} solves the step without an ℓ1 penalty; use 'auto' or 'coordinate' with one."
        )
    if name == "coordinate" and problem.n_features >= MANY_FEATURES:
        return _descend(problem, coupling, threshold, W0, tol, limit)
    if name == "coordinate":
        return coordinate_descent(problem, coupling, threshold, W0, tol=tol, **limit)
    if name == "cg":
        return conjugate_gradient(problem, coupling, W0, tol=tol, **limit)
    if name == "sylvester" and isinstance(problem, GramQuadratic):
        return sylvester(problem, coupling, W0, tol=tol, **limit)
    if name in ("fista", "admm"):
        iterate = fista if name == "fista" else admm
        return iterate(problem, coupling, threshold, W0, tol=tol, **limit)
    raise ParameterError(f"solver={solver!r} is not one of {', '.join(SOLVERS)}, or does not fit this problem.")


def _descend(
    problem: GramQuadratic | DesignQuadratic,
    coupling: Coupling,
    threshold: Array,
    W: Array,
    tol: float,
    limit: dict[str, int],
) -> WeightStep:
    """Coordinate descent over many features: on working sets while they are small, then on everything."""
    rows = problem.rows if isinstance(problem, GramQuadratic) else problem
    done = 0
    if rows is not None and coupling.covariance is not None and pays_in_sets(rows.design):
        # Where Grams can be had, sets give way to them sooner.
        until: dict[str, Any] = {} if rows is problem else {"densest": _DENSE, "fullest": _FULL}
        step = descend_on_sets(rows, coupling, threshold, W, tol=tol, **until, **limit)
        done = step.n_iter
        if step.status is not Status.MAX_ITER or done >= limit.get("max_iter", np.inf):
            return step
        W, limit = step.W, {name: most - done for name, most in limit.items()}
    step = descend_on_support(problem, coupling, threshold, W, tol=tol, least=_DENSE, drops=1, **limit)
    return replace(step, n_iter=done + step.n_iter)


def choose_solver(problem: GramQuadratic | DesignQuadratic, threshold: Array) -> str:
    """The solver that "auto" stands for."""
    if np.any(threshold):
        return "coordinate"
    shared = isinstance(problem, GramQuadratic) and problem.is_shared and bool(np.all(problem.task_scale > 0))
    return "sylvester" if shared and problem.n_features >= _SYLVESTER_FROM else "cg"
