"""Regularisation paths: fits along grids of λ and γ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mssl._typing import Array, ArrayLike, Mask
from mssl._validation import refused
from mssl.data.inputs import feature_labels
from mssl.estimators.base import MultiTaskEstimator
from mssl.estimators.mssl import MSSLEstimator, MSSLRegressor
from mssl.graph.task_graph import TaskGraph
from mssl.kernels.threads import single_threaded
from mssl.model_selection.scores import Dataset, Params, PathPoint, configured, follow, grid_values
from mssl.model_selection.search_space import varied
from mssl.solvers.base import Status


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """The fits of a regularisation path.

    Attributes
    ----------
    params : list of P dict
        Parameters of each fit.
    coefs : ndarray of shape (P, K, d)
        Weights in the user's units.
    intercepts : ndarray of shape (P, K)
        Intercepts.
    precisions : ndarray of shape (P, K, K)
        Task precision matrices, as in the estimator's ``precision_``.
    objectives, gaps : ndarrays of shape (P,)
        Objective F of each fit, and its certified relative gap.
    converged : ndarray of bool of shape (P,)
        Whether the gap is within the tolerance.
    tasks, features : tuple
        Names of tasks and features.
    """

    params: list[Params]
    coefs: Array
    intercepts: Array
    precisions: Array
    objectives: Array
    gaps: Array
    converged: Mask
    tasks: tuple[Hashable, ...]
    features: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.params)

    def __repr__(self) -> str:
        return f"RegularizationPath({len(self)} fits, {len(self.tasks)} tasks)"

    def values(self, name: str) -> Array:
        """Return the values of one parameter along the path, (P,)."""
        return np.asarray([params[name] for params in self.params], dtype=float)

    def along(self, name: str) -> list[int]:
        """Return the largest set of fits that differ only in this parameter."""
        others = [str({key: value for key, value in params.items() if key != name}) for params in self.params]
        most = max(others, key=Counter(others).__getitem__)
        return [point for point, rest in enumerate(others) if rest == most]

    @property
    def n_edges(self) -> NDArray[np.intp]:
        """Number of edges of each graph, (P,)."""
        return np.asarray([np.count_nonzero(np.triu(precision, 1)) for precision in self.precisions])

    def graph(self, point: int) -> TaskGraph:
        """Return the task graph of one fit."""
        return TaskGraph.from_precision(self.precisions[point], tasks=list(self.tasks))

    @property
    def graphs(self) -> list[TaskGraph]:
        """All task graphs."""
        return [self.graph(point) for point in range(len(self))]


@single_threaded
def regularization_path(
    X: Any,
    y: ArrayLike,
    tasks: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    *,
    estimator: MultiTaskEstimator | None = None,
    graph_penalties: ArrayLike | None = None,
    coef_penalties: ArrayLike = (0.0,),
    couplings: ArrayLike | None = None,
    variance_floors: ArrayLike | None = None,
    shrinkages: ArrayLike | None = None,
    n_points: int = 20,
    smallest: float = 0.01,
) -> RegularizationPath:
    r"""Fit along falling λ and falling γ and, if given, along prior strengths, variance floors and shrinkages.

    Parameters
    ----------
    X, y, tasks, sample_weight
        Data in any layout, as for :meth:`mssl.MSSLRegressor.fit`.
    estimator : MSSLRegressor or MSSLClassifier, optional
        Estimator with the other parameters; ``MSSLRegressor()`` by default.
    graph_penalties : array, optional
        Values of λ. By default there are `n_points` values from :math:`\lambda_{\max}`, where the graph is empty, down
        to `smallest` times :math:`\lambda_{\max}`.
    coef_penalties : array or int, default=(0.0,)
        Values of γ. A whole number n gives n values from :math:`\gamma_{\max}` down to `smallest` times it.
    couplings, variance_floors, shrinkages : array, optional
        Values of further parameters; by default those of the estimator.
    n_points : int, default=20
        Length of the default λ grid.
    smallest : float, default=0.01
        Ratio of the last to the first value of the default grids.

    Returns
    -------
    RegularizationPath

    Examples
    --------
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(n_features=8, n_samples=40, random_state=0)
    >>> path = regularization_path(data.X, data.y, data.tasks, n_points=5)
    >>> path
    RegularizationPath(5 fits, 13 tasks)
    >>> bool(path.n_edges[0] <= path.n_edges[-1])
    True
    """
    template = MSSLRegressor() if estimator is None else estimator
    if not isinstance(template, MSSLEstimator):
        remedy = "A path follows graph_penalty and coef_penalty."
        raise refused("estimator", estimator, "give an MSSLRegressor or an MSSLClassifier", remedy)
    template = clone(template)
    data = template._map_features(template._read(X, y, tasks, sample_weight))
    whole = Dataset(data)
    template.graph_penalty = template._part("graph_penalty", template.graph_penalty)
    further = {
        "prior_strength": couplings,
        "graph_penalty__variance_floor": variance_floors,
        "graph_penalty__shrinkage": shrinkages,
    }
    held = template.get_params()
    grids = {name: [held[name]] if grid is None else grid_values(grid, name) for name, grid in further.items()}
    if isinstance(coef_penalties, int | np.integer):
        spec = template.to_spec(data)
        gamma = spec.coef_penalty_limit(whole.prepared(spec))
        coef_penalties = gamma * np.geomspace(1.0, smallest, coef_penalties)
    grids["coef_penalty"] = sorted(grid_values(coef_penalties, "coef_penalties"), reverse=True)
    points: list[PathPoint] = []
    for fixed in varied({}, **grids):
        lambdas = graph_penalties
        if lambdas is None:
            spec = configured(template, fixed).to_spec(data)
            limit = spec.graph_penalty_limit(whole.prepared(spec)) or 1.0  # Correlations are at most 1.
            lambdas = limit * np.geomspace(1.0, smallest, n_points)
        ordered = sorted(grid_values(lambdas, "graph_penalties"), reverse=True)
        points.extend(follow(whole, template, [{"graph_penalty": value, **fixed} for value in ordered]))
    coefs, intercepts, _ = zip(*(point.weights for point in points), strict=True)
    return RegularizationPath(
        params=[point.params for point in points],
        coefs=np.stack(coefs),
        intercepts=np.stack(intercepts),
        precisions=np.stack([point.spec.user_precision(point.prepared, point.result) for point in points]),
        objectives=np.asarray([point.result.objective for point in points]),
        gaps=np.asarray([point.result.relative_gap for point in points]),
        converged=np.asarray([point.result.status is Status.CONVERGED for point in points]),
        tasks=tuple(data.tasks.tolist()),
        features=tuple(feature_labels(data.feature_names, data.n_features).tolist()),
    )
