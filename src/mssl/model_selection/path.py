"""Paths of fits over λ and γ, for users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mssl._typing import Array, ArrayLike, Mask
from mssl._validation import refused
from mssl.data.inputs import feature_labels
from mssl.estimators.base import MultiTaskEstimator
from mssl.estimators.mssl import MSSLRegressor
from mssl.estimators.spec import coef_penalty_limit, graph_penalty_limit
from mssl.graph.task_graph import TaskGraph
from mssl.kernels.threads import single_threaded
from mssl.model_selection.scores import Dataset, Params, PathPoint, configured, follow, grid_values
from mssl.solvers.base import Status


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Fits along a path.

    Attributes
    ----------
    params : list of P dict
        The parameters of each fit.
    coefs : ndarray of shape (P, K, d)
        Weights in the user's units.
    intercepts : ndarray of shape (P, K)
        Intercepts.
    precisions : ndarray of shape (P, K, K)
        Task precisions, as the estimator's ``precision_``.
    objectives, gaps : ndarrays of shape (P,)
        F and its relative certificate.
    converged : ndarray of bool of shape (P,)
        Whether the certificate reached the tolerance.
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
        """One parameter along the path, (P,)."""
        return np.asarray([params[name] for params in self.params], dtype=float)

    def along(self, name: str) -> list[int]:
        """The most fits that differ in one parameter alone."""
        others = [str({key: value for key, value in params.items() if key != name}) for params in self.params]
        most = max(others, key=Counter(others).__getitem__)
        return [point for point, rest in enumerate(others) if rest == most]

    @property
    def n_edges(self) -> NDArray[np.intp]:
        """Number of edges of each graph, (P,)."""
        return np.asarray([np.count_nonzero(np.triu(precision, 1)) for precision in self.precisions])

    def graph(self, point: int) -> TaskGraph:
        """The task graph of one fit."""
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
    r"""Fit along λ (falling) × γ (falling) and, where given, coupling, variance floor and shrinkage.

    Parameters
    ----------
    X, y, tasks, sample_weight
        Data in any layout, as for :meth:`mssl.MSSLRegressor.fit`.
    estimator : MSSLRegressor or MSSLClassifier, optional
        Everything else; ``MSSLRegressor()`` by default.
    graph_penalties : array, optional
        λ values; by default `n_points` from :math:`\lambda_{\max}` (of the fit at hand), where the graph is empty, down
        to `smallest` times it.
    coef_penalties : array or int, default=(0.0,)
        γ values; a whole number n stands for n values from :math:`\gamma_{\max}` down to `smallest` times it.
    couplings, variance_floors, shrinkages : array, optional
        Further parameters; the estimator's own by default.
    n_points : int, default=20
        Length of the default λ grid.
    smallest : float, default=0.01
        End of the default grids, relative to their beginning.

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
    template = MSSLRegressor() if estimator is None else _followed(estimator)
    data = template._read(X, y, tasks, sample_weight)
    whole = Dataset(data, template._loss())
    template._hold("graph_penalty")
    further = {
        "prior_strength": couplings,
        "graph_penalty__variance_floor": variance_floors,
        "graph_penalty__shrinkage": shrinkages,
    }
    held = template.get_params()
    grids = {name: [held[name]] if grid is None else grid_values(grid, name) for name, grid in further.items()}
    if isinstance(coef_penalties, int | np.integer):
        spec = template.to_spec(data)
        gamma = coef_penalty_limit(whole.prepared(spec), spec)
        coef_penalties = gamma * np.geomspace(1.0, smallest, coef_penalties)
    grids["coef_penalty"] = sorted(grid_values(coef_penalties, "coef_penalties"), reverse=True)
    points: list[PathPoint] = []
    for values in product(*grids.values()):
        fixed = dict(zip(grids, values, strict=True))
        lambdas = graph_penalties
        if lambdas is None:
            spec = configured(template, fixed).to_spec(data)
            limit = graph_penalty_limit(whole.prepared(spec), spec) or 1.0  # where correlations end
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


def _followed(estimator: MultiTaskEstimator) -> MultiTaskEstimator:
    """A copy of what was given as the estimator, or an error where it has no λ and γ to follow."""
    names = set() if isinstance(estimator, type) else set(getattr(estimator, "get_params", dict)())
    if not {"graph_penalty", "coef_penalty"} <= names:
        remedy = "A path follows graph_penalty and coef_penalty."
        raise refused("estimator", estimator, "give an MSSLRegressor or an MSSLClassifier", remedy)
    return clone(estimator)
