"""Prior knowledge about the task graph: edges that are forbidden, cost nothing, or cost less."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mssl._typing import Array, Mask
from mssl._validation import check_number, refused, shown
from mssl.exceptions import ParameterError
from mssl.structures.base import edge_ends, edge_list, is_pair, numeric, symmetric


@dataclass(eq=False, repr=False)
class KnownEdges(BaseEstimator):
    r"""Prior knowledge about the edges of a learned graph, as factors of the price :math:`\lambda a_{ij}` of each edge.

    Parameters
    ----------
    forbidden : sequence of pairs, optional
        Edges that the graph must not have: their Ω_ij is 0.
    free : sequence of pairs, optional
        Edges that cost nothing.
    weights : array of shape (K, K) or mapping {(i, j): factor}, optional
        Factors ≥ 0 of the price; 1 for edges that a mapping does not contain.
    prior : sequence of pairs or array of shape (K, K), optional
        An expected graph: its edges cost (1 − blend) λ, all other edges (1 + blend) λ.
    blend : float, default=0.5
        Weight of the prior graph, from 0 (it has no effect) to 1 (its edges are free, all others cost twice as much).

    Notes
    -----
    Pairs hold task names if the estimator knows them (:class:`mssl.MSSLRegressor`), otherwise positions 0 … K−1.

    Examples
    --------
    >>> KnownEdges(forbidden=[(0, 1)], free=[(1, 2)]).factors(3)
    array([[1., 1., 1.],
           [1., 1., 0.],
           [1., 0., 1.]])
    """

    forbidden: Any = None
    free: Any = None
    weights: Any = None
    prior: Any = None
    blend: float = 0.5

    def resolve(self, tasks: NDArray[Any]) -> KnownEdges:
        """The same knowledge with task names replaced by positions in ``tasks``."""
        places = {name: k for k, name in enumerate(tasks.tolist())}
        K = len(places)

        def pairs(edges: Any, name: str) -> Any:
            return None if edges is None else [_place(edge, places) for edge in edge_list(edges, f"KnownEdges: {name}")]

        weights = self.weights
        if isinstance(weights, dict):
            weights = {_place(edge, places): factor for edge, factor in weights.items()}
        prior = self.prior if _is_matrix(self.prior, K) else pairs(self.prior, "prior")
        return KnownEdges(pairs(self.forbidden, "forbidden"), pairs(self.free, "free"), weights, prior, self.blend)

    def check(self, n_tasks: int) -> None:
        """Raise an error if an edge or a factor is out of range, or if an edge is both forbidden and free."""
        check_number("KnownEdges: blend", self.blend, low=0, high=1)
        both = self.zeros(n_tasks) & _mask(self.free, n_tasks, "free")
        if np.any(both):
            i, j = np.argwhere(both)[0]
            raise ParameterError(
                f"KnownEdges: the edge ({i}, {j}) is both forbidden and free; only one is allowed. Drop the other."
            )
        self.factors(n_tasks)

    def zeros(self, n_tasks: int) -> Mask:
        """The mask of forbidden edges, (K, K)."""
        return _mask(self.forbidden, n_tasks, "forbidden")

    def factors(self, n_tasks: int) -> Array:
        """The factor of the price of each edge, (K, K)."""
        factors = _weights(self.weights, n_tasks)
        if self.prior is not None:
            factors = factors * np.where(_prior(self.prior, n_tasks), 1.0 - self.blend, 1.0 + self.blend)
        factors[_mask(self.free, n_tasks, "free")] = 0.0
        np.fill_diagonal(factors, 1.0)
        return factors


def known_edges(edges: Any) -> KnownEdges:
    """Return the parameter ``edge_constraints`` if it is a KnownEdges; otherwise raise an error with an example."""
    if not isinstance(edges, KnownEdges):
        raise ParameterError(
            f"edge_constraints is {shown(edges)}, of type {type(edges).__name__}; give a KnownEdges. An example is "
            "KnownEdges(forbidden=[(0, 1)], free=[(1, 2)]), from mssl.structures."
        )
    return edges


def _place(edge: Any, places: dict[Any, int]) -> tuple[int, int]:
    if not is_pair(edge):
        raise refused("KnownEdges: an edge", edge, "give pairs of tasks")
    unknown = [name for name in edge if not isinstance(name, Hashable) or name not in places]
    if unknown:
        names = ", ".join(map(repr, list(places)[:10])) + (" …" if len(places) > 10 else "")
        raise refused("KnownEdges: an end of an edge", unknown[0], f"it is not a task of these data, which are {names}")
    return places[edge[0]], places[edge[1]]


def _is_matrix(value: Any, n_tasks: int) -> bool:
    """Whether a graph is given as a (K, K) matrix and not as pairs."""
    try:
        return np.shape(value) == (n_tasks, n_tasks)
    except ValueError:  # rows of different lengths
        return False


def _mask(edges: Any, n_tasks: int, name: str) -> Mask:
    mask = np.zeros((n_tasks, n_tasks), dtype=bool)
    for edge in () if edges is None else edge_list(edges, f"KnownEdges: {name}"):
        i, j = edge_ends(edge, n_tasks, "KnownEdges: an edge")
        mask[i, j] = mask[j, i] = True
    return mask


def _weights(weights: Any, n_tasks: int) -> Array:
    if weights is not None and not isinstance(weights, dict):
        return symmetric("KnownEdges: weights", weights, n_tasks, low=0, also="Or give a mapping {(i, j): factor}.")
    factors = np.ones((n_tasks, n_tasks))
    for edge, factor in (weights or {}).items():
        i, j = edge_ends(edge, n_tasks, "KnownEdges: an edge")
        factors[i, j] = factors[j, i] = check_number("KnownEdges: a weight", factor, low=0)
    return factors


def _prior(prior: Any, n_tasks: int) -> Mask:
    if _is_matrix(prior, n_tasks):
        matrix = numeric(prior, "KnownEdges: prior") != 0
        return np.asarray(matrix | matrix.T)
    return _mask(prior, n_tasks, "prior")
