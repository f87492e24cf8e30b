r"""The extended Bayesian information criterion: a graph without resampling.

.. math:: \mathrm{EBIC}_\gamma(E) = r\,[\operatorname{tr}(S\hat\Omega_E) - \log\det\hat\Omega_E]
          + |E| \log r + 4 |E| \gamma \log K,

where :math:`\hat\Omega_E` is the maximum-likelihood precision with the edges E that the graphical lasso selected at λ.

References
----------
Foygel & Drton (2010), Extended Bayesian information criteria for Gaussian graphical models, arXiv:1011.6640,
doi:10.48550/arXiv.1011.6640.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mssl._typing import Array
from mssl._validation import check_choice, check_number, check_whole_number, refused
from mssl.exceptions import DataError, ParameterError
from mssl.glasso.solver import graphical_lasso
from mssl.graph.task_graph import TaskGraph
from mssl.kernels.threads import single_threaded
from mssl.model.objective import lambda_max
from mssl.model_selection.stability import graph_path, price_edges
from mssl.structures.base import numeric
from mssl.structures.copula import CORRELATIONS, row_moment


@dataclass(frozen=True, eq=False)
class EBICPath:
    """Graphs along a path of λ and their criterion.

    Attributes
    ----------
    lambdas, scores : ndarrays of shape (L,)
        The path, and the criterion (smaller is better).
    graphs : list of L TaskGraph
        The graph at every λ, weighted by the partial correlations of the model restricted to it.
    best : int
        Which of them has the smallest criterion.
    """

    lambdas: Array
    scores: Array
    graphs: list[TaskGraph]
    best: int

    @property
    def graph(self) -> TaskGraph:
        """The best graph."""
        return self.graphs[self.best]


@single_threaded
def ebic_path(
    rows: ArrayLike,
    *,
    tasks: Any = None,
    lambdas: ArrayLike | None = None,
    floors: ArrayLike | None = None,
    gamma: float = 0.5,
    n_points: int = 25,
    correlation: str = "pearson",
) -> EBICPath:
    """Choose a graph by the extended Bayesian information criterion.

    Parameters
    ----------
    rows : array of shape (K, r)
        What the graph relates, task by task: fitted weights (``model.coef_``) or residuals.
    tasks : sequence of K names, optional
        Task names.
    lambdas : array of shape (L,), optional
        The path on the correlation scale, numbers ≥ 0; by default from λ_max down to 0.05 λ_max.
    floors : float or array of shape (K,), optional
        Variances ≥ 0 added to the diagonal; by default 1 % of each task's own.
    gamma : float, default=0.5
        Weight of the term that grows with the number of tasks, in [0, 1].
    n_points : int, default=25
        Length of the default path.
    correlation : {"pearson", "spearman", "kendall"}, default="pearson"
        How rows are compared; ranks for heavy tails.

    Returns
    -------
    EBICPath

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> common = random.standard_normal(200)
    >>> rows = np.vstack([common + 0.5 * random.standard_normal((2, 200)), random.standard_normal((2, 200))])
    >>> [edge[:2] for edge in ebic_path(rows).graph.support()]
    [(0, 1)]
    """
    Q, units = _in_unit_size(rows)
    K, r = Q.shape
    check_number("gamma", gamma, low=0, high=1)
    names = list(range(K)) if tasks is None else list(tasks)
    if len(names) != K:
        raise ParameterError(f"tasks holds {len(names)} names; give one for each of the {K} tasks of rows.")
    S = row_moment(Q, check_choice("correlation", correlation, CORRELATIONS))
    e = _read_floors(floors, S, units)
    path = _read_path(lambdas, lambda_max(S, price_edges(S, e)), n_points)
    # A task in other units moves the criterion of all graphs alike.
    shift = 2 * r * float(np.sum(np.log(units)))
    scores, graphs = [], []
    for precision in graph_path(S, e, path):
        restricted = graphical_lasso(S, 0.0, zeros=precision == 0, diagonal_penalty=e)
        edges = np.count_nonzero(np.triu(precision, 1))
        fit = float(np.vdot(S + np.diag(e), restricted.precision)) - restricted.log_determinant
        scores.append(shift + r * fit + edges * np.log(r) + 4 * edges * gamma * np.log(K))
        graphs.append(TaskGraph.from_precision(np.where(precision != 0, restricted.precision, 0.0), tasks=names))
    return EBICPath(path, np.asarray(scores), graphs, int(np.argmin(scores)))


def _in_unit_size(rows: ArrayLike) -> tuple[Array, Array]:
    """Divide each task's row by its root mean square, so that squares of any numbers are safe; return both."""
    Q = numeric(rows, "rows")
    if Q.ndim != 2 or Q.shape[0] < 2 or Q.shape[1] < 2 or not np.all(np.isfinite(Q)):
        raise DataError(f"rows have shape {Q.shape}; give finite numbers of shape (K, r), at least two tasks and rows.")
    _, exponents = np.frexp(np.abs(Q).max(axis=1))
    Q = np.ldexp(Q, -exponents[:, None])
    sizes = np.sqrt(np.mean(Q**2, axis=1))
    sizes[sizes == 0] = 1.0
    return Q / sizes[:, None], np.ldexp(sizes, exponents)


def _read_floors(floors: ArrayLike | None, S: Array, units: Array) -> Array:
    """The variances added to the diagonal, in the tasks' own units."""
    variances, K = np.diagonal(S), len(S)
    e = 0.01 * variances
    if floors is not None:
        given = numeric(floors, "floors")
        if given.shape not in ((), (K,)) or not np.all(np.isfinite(given)) or np.any(given < 0):
            raise refused("floors", floors, f"give one number ≥ 0, or {K} (one a task)")
        e = given / units / units
    if np.any(variances + e <= 0):
        raise DataError(
            f"The row of task {int(np.argmin(variances + e))} is all zeros, so that it has no correlation with others; "
            "leave the task out, or give floors above 0."
        )
    return e


def _read_path(lambdas: ArrayLike | None, limit: float, n_points: int) -> Array:
    """The falling path of λ."""
    if lambdas is None:
        return limit * np.geomspace(0.999, 0.05, check_whole_number("n_points", n_points, low=1))
    path = np.sort(np.ravel(numeric(lambdas, "lambdas")))[::-1]
    if len(path) == 0:
        raise ParameterError("lambdas is empty; give at least one value, or None for the default path.")
    if not np.all(np.isfinite(path)) or path[-1] < 0:
        raise refused("lambdas", lambdas, "give finite numbers ≥ 0, on the correlation scale (0 to 1)")
    return path
