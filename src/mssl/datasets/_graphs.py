"""True task graphs of the generators: covariance, precision and adjacency that agree exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mssl._typing import Array, Index, Mask
from mssl._validation import refused
from mssl.exceptions import ParameterError

PAPER_CLUSTERS = ((0, 1, 2, 3), (4, 5, 6, 7, 8, 9))


@dataclass(frozen=True, eq=False)
class ClusterGraph:
    """Tasks in clusters that do not overlap; a task in none of them is an outlier.

    Attributes
    ----------
    labels : ndarray of int of shape (K,)
        Cluster of every task, −1 for outliers.
    covariance : ndarray of shape (K, K)
        A block per cluster; outliers have variance one and no correlation.
    edges : ndarray of bool of shape (K, K)
        All pairs inside a cluster, or neighbours only for chains; every task with itself.
    """

    labels: Index
    covariance: Array
    edges: Mask

    @classmethod
    def build(
        cls, clusters: Sequence[Sequence[int]], n_tasks: int, *, kind: str, correlation: float, spread: float = 0.0
    ) -> ClusterGraph:
        """The graph of a kind of clusters."""
        labels, covariance, edges = np.full(n_tasks, -1), np.eye(n_tasks), np.eye(n_tasks, dtype=bool)
        for number, members in enumerate(clusters):
            for task in members:
                if not 0 <= task < n_tasks:
                    raise refused("clusters", clusters, f"task {task} is none of 0 … {n_tasks - 1}")
                if labels[task] >= 0:
                    raise refused("clusters", clusters, f"task {task} is named twice, but may be in one cluster only")
                labels[task] = number
            block, position = np.ix_(members, members), np.arange(len(members))
            apart = np.abs(position[:, None] - position).astype(float)
            edges[block] = apart <= 1 if kind == "chain" else True
            if kind in ("centres", "sparse"):
                covariance[block] = 1.0 + spread**2 * (apart == 0)
            else:
                covariance[block] = correlation ** (apart if kind == "chain" else apart > 0)
        return cls(labels, covariance, edges)

    def precision(self) -> Array:
        """Inverse of the covariance, with exact zeros where the graph has no edge."""
        smallest = float(np.linalg.eigvalsh(self.covariance)[0])
        if not smallest > 1e-12 * float(np.trace(self.covariance)) / len(self.covariance):
            raise ParameterError(
                f"The smallest eigenvalue of the tasks' covariance is {smallest:.2g}; it has to be positive definite. "
                "Choose spread > 0, and a correlation below 1 and above −1/(m − 1) for clusters of m tasks "
                "(above −1 for chains)."
            )
        precision = np.linalg.inv(self.covariance)
        return np.where(self.edges, (precision + precision.T) / 2, 0.0)
