"""True task graphs of the generators: covariance, precision and adjacency that agree exactly."""

from collections.abc import Sequence

import numpy as np

from mssl._validation import refused
from mssl.exceptions import ParameterError

PAPER_CLUSTERS = ((0, 1, 2, 3), (4, 5, 6, 7, 8, 9))


def cluster_labels(clusters: Sequence[Sequence[int]], n_tasks: int) -> np.ndarray:
    """Cluster of every task, −1 for outliers; clusters may not overlap."""
    labels = np.full(n_tasks, -1)
    for number, members in enumerate(clusters):
        for task in members:
            if not 0 <= task < n_tasks:
                raise refused("clusters", clusters, f"task {task} is none of 0 … {n_tasks - 1}")
            if labels[task] >= 0:
                raise refused("clusters", clusters, f"task {task} is named twice, but may be in one cluster only")
            labels[task] = number
    return labels


def cluster_covariance(
    clusters: Sequence[Sequence[int]], n_tasks: int, *, kind: str, correlation: float, spread: float
) -> np.ndarray:
    """Covariance of the tasks: a block per cluster, variance one and no correlation for outliers."""
    covariance = np.eye(n_tasks)
    for members in clusters:
        size = len(members)
        if kind in ("centres", "sparse"):
            block = np.ones((size, size)) + spread**2 * np.eye(size)
        elif kind == "chain":
            position = np.arange(size)
            block = correlation ** np.abs(position[:, None] - position[None, :]).astype(float)
        else:
            block = np.full((size, size), correlation) + (1 - correlation) * np.eye(size)
        covariance[np.ix_(members, members)] = block
    return covariance


def cluster_adjacency(clusters: Sequence[Sequence[int]], n_tasks: int, *, kind: str) -> np.ndarray:
    """Edges of the true graph: all pairs inside a cluster, or neighbours only for chains."""
    adjacency = np.zeros((n_tasks, n_tasks), dtype=bool)
    for members in clusters:
        if kind == "chain":
            left, right = list(members[:-1]), list(members[1:])
            adjacency[left, right] = adjacency[right, left] = True
        else:
            adjacency[np.ix_(members, members)] = True
    np.fill_diagonal(adjacency, False)
    return adjacency


def precision_on_graph(covariance: np.ndarray, adjacency: np.ndarray) -> np.ndarray:
    """Inverse of a covariance, with exact zeros where the graph has no edge.

    Raises
    ------
    ParameterError
        If the covariance is not positive definite.
    """
    smallest = float(np.linalg.eigvalsh(covariance)[0])
    if not smallest > 1e-12 * float(np.trace(covariance)) / len(covariance):
        raise ParameterError(
            f"The smallest eigenvalue of the tasks' covariance is {smallest:.2g}; it has to be positive definite. "
            "Choose spread > 0, and a correlation below 1 and above −1/(m − 1) for clusters of m tasks "
            "(above −1 for chains)."
        )
    precision = np.linalg.inv(covariance)
    return np.where(adjacency | np.eye(len(covariance), dtype=bool), (precision + precision.T) / 2, 0.0)
