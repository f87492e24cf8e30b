"""Choice of features without labels: the Laplacian score.

References
----------
He, Cai, Niyogi (2006), Laplacian score for feature selection, Advances in Neural Information Processing
Systems 18, 507–514.
"""

from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from mssl._validation import check_choice, check_number, check_whole_number, refused
from mssl.exceptions import all_or_nothing
from mssl.kernels.threads import SingleThreaded

_CHUNK = 1024  # edges whose differences are held at a time: trades memory for calls


class LaplacianScore(SingleThreaded, SelectorMixin, BaseEstimator):
    r"""Keep the features that vary least along the graph of nearest neighbours.

    With S the weights of the symmetric graph that joins two rows if either is among the k nearest of the
    other, D = diag(S1) and L = D − S, feature r with values f gets the score

    .. math::
        L_r = \frac{\tilde f^\top L \tilde f}{\tilde f^\top D \tilde f}
            = \frac{\tfrac12 \sum_{ij} S_{ij} (f_i - f_j)^2}{\sum_i D_{ii} (f_i - \mu)^2},
        \qquad \mu = \frac{\sum_i D_{ii} f_i}{\sum_i D_{ii}}

    Small scores are good. Sparse X is never made dense as a whole.

    Parameters
    ----------
    n_features_to_select : int or float, default=500
        Number of features to keep (all of them where there are fewer), or their share as a float in (0, 1].
    n_neighbors : int, default=5
        Neighbours of a row; at most the number of other rows.
    weights : {"heat", "binary"}, default="heat"
        Edge weights :math:`\exp(-d^2 / t)`, or 1.
    bandwidth : float or None, default=None
        t of the heat kernel; None takes the mean squared distance of the neighbours.
    metric : str, default="euclidean"
        Distance d, as in :class:`sklearn.neighbors.NearestNeighbors`; "cosine" suits word counts.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Score of every feature; infinite for constant ones.
    support_ : ndarray of bool of shape (n_features,)
        The kept features.
    bandwidth_ : float
        The t in use.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X had names

    References
    ----------
    He, Cai, Niyogi (2006), Laplacian score for feature selection, Advances in Neural Information Processing
    Systems 18, 507–514.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl_reproduction.laplacian import LaplacianScore
    >>> rng = np.random.default_rng(0)
    >>> cluster = np.repeat([0.0, 10.0], 50)
    >>> X = np.column_stack([rng.standard_normal(100), cluster + rng.standard_normal(100)])
    >>> LaplacianScore(n_features_to_select=1).fit(X).get_support()
    array([False,  True])
    """

    def __init__(
        self,
        n_features_to_select: float = 500,
        *,
        n_neighbors: int = 5,
        weights: str = "heat",
        bandwidth: float | None = None,
        metric: str = "euclidean",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.bandwidth = bandwidth
        self.metric = metric

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> Self:
        """Score the features of X.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
        y : ignored

        Returns
        -------
        LaplacianScore
        """
        self._check_parameters()
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
        self.scores_ = _scores(X, self._graph(X))
        wanted: Any = self.n_features_to_select
        count = int(wanted) if isinstance(wanted, Integral) else max(1, round(wanted * X.shape[1]))
        self.support_ = np.zeros(X.shape[1], dtype=bool)
        self.support_[np.argsort(self.scores_, kind="stable")[:count]] = True
        return self

    def _check_parameters(self) -> None:
        wanted: Any = self.n_features_to_select
        if isinstance(wanted, Integral):
            check_whole_number("n_features_to_select", wanted, low=1, also="a share above 0 and ≤ 1 as a float")
        else:
            check_number("n_features_to_select", wanted, above=0, high=1, also="a whole number ≥ 1")
        check_whole_number("n_neighbors", self.n_neighbors, low=1)
        check_choice("weights", self.weights, ("heat", "binary"))
        if self.bandwidth is not None:
            check_number("bandwidth", self.bandwidth, above=0, also="None to estimate it")

    def _graph(self, X: Any) -> Any:
        """Symmetric weights of the nearest-neighbour graph as CSR."""
        k = min(int(self.n_neighbors), X.shape[0] - 1)
        distances, neighbours = NearestNeighbors(n_neighbors=k, metric=self.metric).fit(X).kneighbors()
        squares = distances.astype(np.float64) ** 2
        mean = float(squares.mean())
        self.bandwidth_ = float(self.bandwidth) if self.bandwidth is not None else (mean if mean > 0 else 1.0)
        values = np.exp(-squares / self.bandwidth_) if self.weights == "heat" else np.ones_like(squares)
        if not values.any():
            raise refused(
                "bandwidth",
                self.bandwidth_,
                f"give a number near the neighbours' mean squared distance, which is {mean:.3g}, or None",
                "With a bandwidth this small every edge weight is zero.",
            )
        n = X.shape[0]
        rows = np.repeat(np.arange(n), k)
        directed = sparse.csr_array((values.ravel(), (rows, neighbours.ravel())), shape=(n, n))
        return directed.maximum(directed.T).tocsr()

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "support_")
        return self.support_

    def __sklearn_tags__(self) -> Tags:
        """Sparse input is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _scores(X: Any, graph: Any) -> np.ndarray:
    """Laplacian score of every column; sums of squares only, so that nothing cancels."""
    if sparse.issparse(X):
        X = sparse.csr_array(X)  # for which * is element-wise, as for dense arrays
    edges = sparse.triu(graph, k=1).tocoo()
    variation = np.zeros(X.shape[1])
    for start in range(0, edges.nnz, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        steps = X[edges.row[chunk]] - X[edges.col[chunk]]
        variation += (steps * steps).T @ edges.data[chunk]
    degree = np.asarray(graph.sum(axis=0)).ravel()
    mean = X.T @ degree / degree.sum()
    spread, constant = _spread(X, degree, mean)
    with np.errstate(over="ignore"):
        return np.where(constant, np.inf, variation / np.where(constant, 1.0, spread))


def _spread(X: Any, degree: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ D_i (x_i − μ)² of every column, and which columns have none."""
    if not sparse.issparse(X):
        return degree @ (X - mean) ** 2, (np.ptp(X, axis=0) == 0)
    stored = X.tocoo()
    weight = degree[stored.row]
    size = X.shape[1]
    deviations = np.bincount(stored.col, weight * (stored.data - mean[stored.col]) ** 2, minlength=size)
    present = np.bincount(stored.col, weight, minlength=size)
    highest, lowest = (np.asarray(extreme.todense()).ravel() for extreme in (X.max(axis=0), X.min(axis=0)))
    return deviations + np.maximum(degree.sum() - present, 0.0) * mean**2, highest == lowest
