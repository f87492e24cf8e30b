r"""Structures from a known graph over the tasks or from a common mean, which make related weights similar."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from mssl._typing import Array, Index
from mssl._validation import check_array, check_number, check_whole_number, refused
from mssl.exceptions import ParameterError
from mssl.model.coupling import positive_definite_inverse
from mssl.structures.base import Coupled, StructureScale, StructureStep, edge_ends, edge_list, symmetric
from mssl.structures.fixed import FixedStructure


@dataclass(eq=False, repr=False)
class GraphLaplacian(Coupled, FixedStructure):
    r"""Neighbours in a known graph have similar weights (S²M²R).

    .. math:: \frac\alpha2 \sum_{i<j} a_{ij}\,\|w_i - w_j\|^2 = \frac\alpha2\operatorname{tr}(W L W^\top),
              \qquad L = \operatorname{diag}(A1) - A

    Exactly one of ``edges``, ``adjacency`` and ``coordinates`` must give the graph.

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
        With ``coordinates`` on a regular grid, cells are joined that share a side (4), or a side or a corner (8).
        Longitudes of a global grid are joined across the boundary.
    nearest : int, optional
        With arbitrary ``coordinates``, each task is joined to this number of nearest tasks by great-circle distance.

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

    alpha: float = 1.0
    _: KW_ONLY
    edges: Any = None
    adjacency: Any = None
    coordinates: Any = None
    neighbours: int = 4
    nearest: int | None = None

    def check(self, n_tasks: int) -> None:
        super().check(n_tasks)
        self.weights(n_tasks)

    @property
    def lacks_graph(self) -> bool:  # type: ignore[override]
        """Whether edges, adjacency and coordinates are all missing."""
        return self.edges is self.adjacency is self.coordinates is None

    def weights(self, n_tasks: int) -> Array:
        """A, the symmetric weights of the edges, (K, K)."""
        given = [name for name in ("edges", "adjacency", "coordinates") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ParameterError(
                f"GraphLaplacian got {' and '.join(given) or 'no graph'}; give one of edges, adjacency, coordinates."
            )
        if self.edges is not None:
            return _from_edges(self.edges, n_tasks)
        if self.adjacency is not None:
            A = symmetric("GraphLaplacian: adjacency", self.adjacency, n_tasks, low=0)
            np.fill_diagonal(A, 0.0)
            return A
        places = _places(self.coordinates, n_tasks)
        if self.nearest is not None:
            return _nearest(places, self.nearest)
        return _grid(places, self.neighbours)

    def laplacian(self, n_tasks: int) -> Array:
        """The graph Laplacian L for this number of tasks."""
        A = self.weights(n_tasks)
        return np.diag(A.sum(axis=1)) - A

    def initial(self, scale: StructureScale) -> StructureStep:
        return StructureStep(self.laplacian(scale.n_tasks), None)


@dataclass(eq=False, repr=False)
class MeanRegularized(Coupled, FixedStructure):
    r"""Tasks whose weights lie around a common mean (Evgeniou & Pontil).

    .. math:: \min_{w_0}\; \frac\alpha2\sum_k\|w_k - w_0\|^2 + \frac\beta2\|w_0\|^2
              = \frac\alpha2\operatorname{tr}(W\Omega W^\top), \qquad
              \Omega = I - \frac{\alpha}{\alpha K + \beta}\,11^\top

    Parameters
    ----------
    alpha : float, default=1.0
        Strength with which tasks are shrunk towards the mean; large values pool them.
    mean_alpha : float, default=0.0
        β, the ridge on the mean itself; 0 means no ridge.

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

    alpha: float = 1.0
    mean_alpha: float = 0.0

    def check(self, n_tasks: int) -> None:
        super().check(n_tasks)
        check_number("MeanRegularized: mean_alpha", self.mean_alpha, low=0)

    def precision(self, n_tasks: int) -> Array:
        """Ω for this number of tasks."""
        return np.eye(n_tasks) - self.alpha / (self.alpha * n_tasks + self.mean_alpha)

    def initial(self, scale: StructureScale) -> StructureStep:
        precision = self.precision(scale.n_tasks)
        return StructureStep(precision, positive_definite_inverse(precision) if self.mean_alpha > 0 else None)


@dataclass(eq=False, repr=False)
class Pooled(FixedStructure):
    r"""One weight vector for all tasks, each with its own intercept: :math:`w_k = w`, :math:`\tfrac\alpha2\|w\|^2`.

    The reduction is exact: the solver has d unknowns, instead of K · d with a strong coupling.

    Parameters
    ----------
    alpha : float, default=0.0
        Ridge on the common weights.
    """

    alpha: float = 0.0

    relates = "pooled"

    def check(self, n_tasks: int) -> None:
        check_number("Pooled: alpha", self.alpha, low=0)

    def initial(self, scale: StructureScale) -> StructureStep:
        K = scale.n_tasks
        share = self.alpha / K
        return StructureStep(share * np.eye(K), np.eye(K) / share if share > 0 else None)


def _from_edges(edges: Any, n_tasks: int) -> Array:
    A = np.zeros((n_tasks, n_tasks))
    for edge in edge_list(edges, "GraphLaplacian: edges"):
        if np.ndim(edge) != 1 or len(edge) not in (2, 3):
            raise refused("GraphLaplacian: an edge", edge, "give (i, j) or (i, j, weight)")
        if any(isinstance(end, str) or int(end) != end for end in edge[:2]):
            raise refused(
                "GraphLaplacian: an edge",
                tuple(edge),
                "give the positions of two tasks in tasks_, which is sorted",
                "place = {name: k for k, name in enumerate(sorted(names))}, then edges=[(place[a], place[b]), …].",
            )
        i, j = edge_ends(tuple(edge[:2]), n_tasks, "GraphLaplacian: an edge")
        weight = edge[2] if len(edge) == 3 else 1.0
        A[i, j] = A[j, i] = check_number("GraphLaplacian: the weight of an edge", weight, low=0)
    return A


def _places(coordinates: Any, n_tasks: int) -> Array:
    name = "GraphLaplacian: coordinates"
    remedy = f"Give latitude and longitude of each of the {n_tasks} tasks."
    places = check_array(name, coordinates, (n_tasks, 2), remedy=remedy)
    latitude, longitude = places.T
    if np.any(np.abs(latitude) > 90) or np.any((longitude < -180) | (longitude > 360)):
        raise ParameterError(
            f"{name} has latitudes {latitude.min():g} … {latitude.max():g} and longitudes {longitude.min():g} … "
            f"{longitude.max():g}, out of range; allowed are −90 to 90 and −180 to 360. Latitudes come first."
        )
    return places


def _grid(places: Array, neighbours: int) -> Array:
    """The adjacency of cells of a regular grid. The step of each axis is the smallest difference of coordinates."""
    if neighbours not in (4, 8):
        raise refused("GraphLaplacian: neighbours", neighbours, "allowed are 4 and 8")
    grid_rows, _ = _steps(places[:, 0], "latitudes")
    grid_columns, step = _steps(np.mod(places[:, 1], 360.0), "longitudes")
    down, across = np.abs(grid_rows[:, None] - grid_rows), np.abs(grid_columns[:, None] - grid_columns)
    around = round(360.0 / step)
    if abs(around * step - 360.0) < 1e-3 * step:
        across = np.minimum(across, around - across)
    if np.any((down + across == 0) & ~np.eye(len(places), dtype=bool)):
        raise ParameterError(
            "GraphLaplacian: two tasks have the same coordinates; a grid cell holds one task. Give other coordinates "
            "or nearest=4."
        )
    near = down + across == 1 if neighbours == 4 else np.maximum(down, across) == 1
    return near.astype(float)


def _steps(values: Array, name: str) -> tuple[Index, float]:
    """The positions of cells along one axis of a grid, and the step of the axis."""
    distinct = np.unique(np.round(values, 6))
    if len(distinct) == 1:
        return np.zeros(len(values), dtype=np.int64), 360.0
    step = float(np.diff(distinct).min())
    positions = (values - distinct[0]) / step
    if np.abs(positions - np.round(positions)).max() > 0.05:
        raise ParameterError(
            f"GraphLaplacian: the {name} have a smallest step of {step:g}; on a regular grid all steps are multiples "
            "of it. Give nearest=4, which joins the nearest places on any grid."
        )
    return np.round(positions).astype(np.int64), step


def _nearest(places: Array, count: int) -> Array:
    K = len(places)
    check_whole_number("GraphLaplacian: nearest", count, low=1, high=K - 1, remedy=f"There are {K} tasks.")
    distance = great_circle(places)
    np.fill_diagonal(distance, np.inf)
    A = np.zeros((K, K))
    A[np.repeat(np.arange(K), count), np.argsort(distance, axis=1, kind="stable")[:, :count].ravel()] = 1.0
    return np.maximum(A, A.T)


def great_circle(places: Array) -> Array:
    """Angles in radians between all pairs of places, which are given by latitude and longitude in degrees."""
    latitude, longitude = np.radians(places).T
    half = np.sin((latitude[:, None] - latitude) / 2) ** 2
    half = half + np.cos(latitude)[:, None] * np.cos(latitude) * np.sin((longitude[:, None] - longitude) / 2) ** 2
    return np.asarray(2 * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))))
