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
from numpy.typing import ArrayLike, NDArray

from mssl.exceptions import DataError, ParameterError
from mssl.glasso import graphical_lasso
from mssl.graph import TaskGraph
from mssl.model_selection.stability import correlations, graph_path

Array = NDArray[np.float64]


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


def ebic_path(
    rows: ArrayLike,
    *,
    tasks: Any = None,
    lambdas: ArrayLike | None = None,
    floors: ArrayLike | None = None,
    gamma: float = 0.5,
    n_points: int = 25,
) -> EBICPath:
    """Choose a graph by the extended Bayesian information criterion.

    Parameters
    ----------
    rows : array of shape (K, r)
        What the graph relates, task by task: fitted weights (``model.coef_``) or residuals.
    tasks : sequence of K names, optional
        Task names.
    lambdas : array of shape (L,), optional
        The path on the correlation scale; by default from λ_max down to 0.05 λ_max.
    floors : array of shape (K,), optional
        Variances added to the diagonal; by default 1 % of each task's own.
    gamma : float, default=0.5
        Weight of the term that grows with the number of tasks, in [0, 1].
    n_points : int, default=25
        Length of the default path.

    Returns
    -------
    EBICPath

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> common = random.standard_normal(200)
    >>> rows = np.vstack([common + 0.5 * random.standard_normal((2, 200)), random.standard_normal((2, 200))])
    >>> [edge[:2] for edge in ebic_path(rows).graph.edges()]
    [(0, 1)]
    """
    Q = np.asarray(rows, dtype=float)
    if Q.ndim != 2 or Q.shape[0] < 2 or Q.shape[1] < 2 or not np.all(np.isfinite(Q)):
        raise DataError(f"rows have shape {Q.shape}; give finite numbers of shape (K, r), at least two tasks and rows.")
    if not 0 <= gamma <= 1:
        raise ParameterError(f"gamma is {gamma!r}; give a number between 0 and 1.")
    K, r = Q.shape
    S = Q @ Q.T / r
    e = 0.01 * np.diagonal(S) if floors is None else np.broadcast_to(np.asarray(floors, dtype=float), (K,))
    limit = float(correlations(S, e)[1].max())
    path = limit * np.geomspace(0.999, 0.05, n_points) if lambdas is None else np.sort(np.ravel(lambdas))[::-1]
    if len(path) == 0:
        raise ParameterError("lambdas is empty; give at least one value, or None for the default path.")
    names = list(range(K)) if tasks is None else list(tasks)
    scores, graphs = [], []
    for precision in graph_path(S, e, path):
        restricted = graphical_lasso(S, 0.0, zeros=precision == 0, diagonal_penalty=e)
        edges = np.count_nonzero(np.triu(precision, 1))
        fit = float(np.vdot(S + np.diag(e), restricted.precision)) - restricted.log_determinant
        scores.append(r * fit + edges * np.log(r) + 4 * edges * gamma * np.log(K))
        graphs.append(TaskGraph.from_precision(np.where(precision != 0, restricted.precision, 0.0), tasks=names))
    return EBICPath(np.asarray(path, dtype=float), np.asarray(scores), graphs, int(np.argmin(scores)))
