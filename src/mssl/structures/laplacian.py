r"""Structures from a known graph over the tasks, or from a common mean: neighbours have similar weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl._validation import finite
from mssl.exceptions import ParameterError
from mssl.model.coupling import positive_definite_inverse
from mssl.structures.base import StructureScale, StructureStep, edge_list, numeric
from mssl.structures.fixed import FixedStructure

Array = NDArray[np.float64]


class GraphLaplacian(FixedStructure):
    r"""Neighbours in a known graph have similar weights (S²M²R).

    .. math:: \frac\alpha2 \sum_{i<j} a_{ij}\,\|w_i - w_j\|^2 = \frac\alpha2\operatorname{tr}(W L W^\top),
              \qquad L = \operatorname{diag}(A1) - A

    Give the graph in one of three ways: ``edges``, ``adjacency`` or ``coordinates``.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength.
    edges : sequence of (i, j) or (i, j, weight), optional
        Pairs of tasks, by their position in ``tasks_`` (0 … K−1).
    adjacency : array of shape (K, K), optional
        Symmetric weights a_ij ≥ 0; the diagonal is ignored.
    coordinates : array of shape (K, 2), optional
        Latitude (−90 … 90) and longitude (−180 … 360) of each task, in degrees.
    neighbours : {4, 8}, default=4
        With ``coordinates`` on a regular grid: join cells that share a side (4) or also a corner (8). Grids that go
        round the earth are closed.
    nearest : int, optional
        With ``coordinates`` anywhere: join each task to this many nearest ones by great-circle distance.

    References
    ----------
    Subbian & Banerjee (2013), *Climate Multi-model Regression Using Spatial Smoothing*,
    doi:10.1137/1.9781611972832.36.

    Examples
    --------
    >>> GraphLaplacian(edges=[(0, 1), (1, 2)]).laplacian(3)
    array([[ 1., -1.,  0.],
           [-1.,  2., -1.],
           [ 0., -1.,  1.]])
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        edges: Any = None,
        adjacency: Any = None,
        coordinates: Any = None,
        neighbours: int = 4,
        nearest: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.edges = edges
        self.adjacency = adjacency
        self.coordinates = coordinates
        self.neighbours = neighbours
        self.nearest = nearest

    @property
    def strength(self) -> float:
        return float(self.alpha)

    def check(self, n_tasks: int) -> None:
        check_strength(self.alpha, "GraphLaplacian")
        self.weights(n_tasks)

    def weights(self, n_tasks: int) -> Array:
        """A, the symmetric weights of the edges, (K, K)."""
        given = [name for name in ("edges", "adjacency", "coordinates") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ParameterError(
                f"GraphLaplacian: {', '.join(given) or 'nothing'} came; give one of edges, adjacency, coordinates."
            )
        if self.edges is not None:
            return _from_edges(self.edges, n_tasks)
        if self.adjacency is not None:
            return _from_adjacency(self.adjacency, n_tasks)
        places = _places(self.coordinates, n_tasks)
        if self.nearest is not None:
            return _nearest(places, self.nearest)
        return _grid(places, self.neighbours)

    def laplacian(self, n_tasks: int) -> Array:
        """L for this many tasks."""
        A = self.weights(n_tasks)
        return np.diag(A.sum(axis=1)) - A

    def initial(self, scale: StructureScale) -> StructureStep:
        return StructureStep(self.laplacian(scale.n_tasks), None)


class MeanRegularized(FixedStructure):
    r"""All tasks lie around a common mean (Evgeniou & Pontil).

    .. math:: \min_{w_0}\; \frac\alpha2\sum_k\|w_k - w_0\|^2 + \frac\beta2\|w_0\|^2
              = \frac\alpha2\operatorname{tr}(W\Omega W^\top), \qquad
              \Omega = I - \frac{\alpha}{\alpha K + \beta}\,11^\top

    Parameters
    ----------
    alpha : float, default=1.0
        How strongly tasks are drawn to the mean; large values pool them.
    mean_alpha : float, default=0.0
        β, the ridge on the mean itself; 0 leaves it free.

    References
    ----------
    Evgeniou & Pontil (2004), *Regularized multi-task learning*, doi:10.1145/1014052.1014067.

    Examples
    --------
    >>> MeanRegularized(2.0, mean_alpha=2.0).precision(3)
    array([[ 0.75, -0.25, -0.25],
           [-0.25,  0.75, -0.25],
           [-0.25, -0.25,  0.75]])
    """

    def __init__(self, alpha: float = 1.0, mean_alpha: float = 0.0) -> None:
        self.alpha = alpha
        self.mean_alpha = mean_alpha

    @property
    def strength(self) -> float:
        return float(self.alpha)

    def check(self, n_tasks: int) -> None:
        check_strength(self.alpha, "MeanRegularized")
        if not finite(self.mean_alpha) or self.mean_alpha < 0:
            raise ParameterError(f"MeanRegularized: mean_alpha is {self.mean_alpha!r}; give a number ≥ 0.")

    def precision(self, n_tasks: int) -> Array:
        """Ω for this many tasks."""
        return np.eye(n_tasks) - self.alpha / (self.alpha * n_tasks + self.mean_alpha)

    def initial(self, scale: StructureScale) -> StructureStep:
        precision = self.precision(scale.n_tasks)
        return StructureStep(precision, positive_definite_inverse(precision) if self.mean_alpha > 0 else None)


class Pooled(FixedStructure):
    r"""One weight vector for all tasks, each with its own intercept: :math:`w_k = w`, :math:`\tfrac\alpha2\|w\|^2`.

    The reduction is exact: the problem solved has d weights, not K · d under a strong coupling.

    Parameters
    ----------
    alpha : float, default=0.0
        Ridge on the common weights.
    """

    def __init__(self, alpha: float = 0.0) -> None:
        self.alpha = alpha

    def check(self, n_tasks: int) -> None:
        if not finite(self.alpha) or self.alpha < 0:
            raise ParameterError(f"Pooled: alpha is {self.alpha!r}; give a number ≥ 0.")

    @property
    def relates(self) -> str:
        """What Q is: one weight vector for all tasks."""
        return "pooled"

    def initial(self, scale: StructureScale) -> StructureStep:
        K = scale.n_tasks
        share = self.alpha / K
        return StructureStep(share * np.eye(K), np.eye(K) / share if share > 0 else None)


def check_strength(alpha: Any, who: str) -> None:
    """Raise unless a coupling's strength is a number above 0."""
    if not finite(alpha) or alpha <= 0:
        raise ParameterError(f"{who}: alpha is {alpha!r}; give a number above 0.")


def _from_edges(edges: Any, n_tasks: int) -> Array:
    A = np.zeros((n_tasks, n_tasks))
    for edge in edge_list(edges, "GraphLaplacian: edges"):
        if np.ndim(edge) != 1 or len(edge) not in (2, 3):
            raise ParameterError(f"GraphLaplacian: {edge!r} is no edge; give (i, j) or (i, j, weight).")
        if any(isinstance(end, str) or int(end) != end for end in edge[:2]):
            raise ParameterError(
                f"GraphLaplacian: the edge {tuple(edge)!r} does not join positions; give the places of tasks in "
                "tasks_, which is sorted: place = {name: k for k, name in enumerate(sorted(names))}, then "
                "edges=[(place[a], place[b]), …]."
            )
        i, j, weight = int(edge[0]), int(edge[1]), float(edge[2]) if len(edge) == 3 else 1.0
        if not (0 <= i < n_tasks and 0 <= j < n_tasks) or i == j:
            raise ParameterError(
                f"GraphLaplacian: the edge {tuple(edge)!r} is out of range; there are {n_tasks} tasks, so an edge "
                f"joins two different numbers from 0 to {n_tasks - 1}."
            )
        if not np.isfinite(weight) or weight < 0:
            raise ParameterError(f"GraphLaplacian: the edge {tuple(edge)!r} has a weight below 0; weights are ≥ 0.")
        A[i, j] = A[j, i] = weight
    return A


def _from_adjacency(adjacency: Any, n_tasks: int) -> Array:
    A = numeric(adjacency, "GraphLaplacian: adjacency")
    if A.shape != (n_tasks, n_tasks):
        raise ParameterError(f"GraphLaplacian: adjacency has shape {A.shape}; there are {n_tasks} tasks.")
    if not np.all(np.isfinite(A)) or np.any(A < 0) or np.abs(A - A.T).max() > 1e-8 * max(np.abs(A).max(), 1e-300):
        raise ParameterError("GraphLaplacian: adjacency must be symmetric with finite weights ≥ 0.")
    np.fill_diagonal(A, 0.0)
    return (A + A.T) / 2


def _places(coordinates: Any, n_tasks: int) -> Array:
    places = numeric(coordinates, "GraphLaplacian: coordinates")
    if places.shape != (n_tasks, 2):
        raise ParameterError(
            f"GraphLaplacian: coordinates have shape {places.shape}; give latitude and longitude of each of the "
            f"{n_tasks} tasks, shape ({n_tasks}, 2)."
        )
    latitude, longitude = places.T
    if (
        not np.all(np.isfinite(places))
        or np.any(np.abs(latitude) > 90)
        or np.any((longitude < -180) | (longitude > 360))
    ):
        raise ParameterError(
            "GraphLaplacian: coordinates out of range; latitudes lie in [−90, 90] and longitudes in [−180, 360], "
            f"in this order. Got latitudes {latitude.min():g} … {latitude.max():g} and longitudes "
            f"{longitude.min():g} … {longitude.max():g}."
        )
    return places


def _grid(places: Array, neighbours: int) -> Array:
    """Cells of a regular grid that touch; the steps of both axes are the least differences that occur."""
    if neighbours not in (4, 8):
        raise ParameterError(f"GraphLaplacian: neighbours is {neighbours!r}; allowed are 4 and 8.")
    rows, _ = _steps(places[:, 0], "latitudes")
    columns, step = _steps(np.mod(places[:, 1], 360.0), "longitudes")
    down, across = np.abs(rows[:, None] - rows), np.abs(columns[:, None] - columns)
    around = round(360.0 / step)
    if abs(around * step - 360.0) < 1e-3 * step:
        across = np.minimum(across, around - across)
    if np.any((down + across == 0) & ~np.eye(len(rows), dtype=bool)):
        raise ParameterError("GraphLaplacian: two tasks have the same coordinates; a grid cell holds one task.")
    near = down + across == 1 if neighbours == 4 else np.maximum(down, across) == 1
    return near.astype(float)


def _steps(values: Array, name: str) -> tuple[NDArray[np.int64], float]:
    """Positions along one axis of a grid, and its step."""
    distinct = np.unique(np.round(values, 6))
    if len(distinct) == 1:
        return np.zeros(len(values), dtype=np.int64), 360.0
    step = float(np.diff(distinct).min())
    positions = (values - distinct[0]) / step
    if np.abs(positions - np.round(positions)).max() > 0.05:
        raise ParameterError(
            f"GraphLaplacian: the {name} do not lie on a regular grid (least step {step:g}); use nearest=4, which "
            "joins the nearest places wherever they are."
        )
    return np.round(positions).astype(np.int64), step


def _nearest(places: Array, count: int) -> Array:
    K = len(places)
    if not isinstance(count, int | np.integer) or not 1 <= count < K:
        raise ParameterError(
            f"GraphLaplacian: nearest is {count!r}; with {K} tasks give a whole number from 1 to {K - 1}."
        )
    distance = great_circle(places)
    np.fill_diagonal(distance, np.inf)
    A = np.zeros((K, K))
    A[np.repeat(np.arange(K), count), np.argsort(distance, axis=1, kind="stable")[:, :count].ravel()] = 1.0
    return np.maximum(A, A.T)


def great_circle(places: Array) -> Array:
    """Angles between all pairs of places given by latitude and longitude in degrees, in radians."""
    latitude, longitude = np.radians(places).T
    half = np.sin((latitude[:, None] - latitude) / 2) ** 2
    half = half + np.cos(latitude)[:, None] * np.cos(latitude) * np.sin((longitude[:, None] - longitude) / 2) ** 2
    return np.asarray(2 * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))))
