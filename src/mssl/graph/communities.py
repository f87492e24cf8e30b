"""Communities of a weighted graph by a deterministic variant of Louvain's method."""

import numpy as np

from mssl._typing import Array, Labels
from mssl.model.task_matrix import Places


def by_size(labels: Labels) -> Places:
    """Renumber the groups by falling size; groups of equal size are ordered by their first member."""
    _, first, inverse, count = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.lexsort((first, -count))] = np.arange(len(first))
    return rank[inverse]


def members(labels: Labels, least: int = 1) -> list[Places]:
    """Return the members of each group (0, 1, …) that has at least ``least`` of them."""
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels)
    return [nodes for nodes in np.split(order, np.cumsum(sizes)[:-1]) if len(nodes) >= least]


def louvain(A: Array, resolution: float, total: float) -> Places:
    """Alternate local moves and merges of communities until no move increases the modularity.

    ``total`` is the sum of all weights of the graph, of which A may be one component.
    """
    labels = np.arange(len(A))
    while True:
        moved = by_size(_local_moves(A, resolution, total))
        n = int(moved.max(initial=-1)) + 1
        if n == len(A):
            return labels
        labels = moved[labels]
        member = np.zeros((len(A), n))
        member[np.arange(len(A)), moved] = 1.0
        A = member.T @ A @ member


def _local_moves(A: Array, resolution: float, total: float) -> Places:
    """Move nodes, strongest first, to the neighbouring community that increases the modularity most."""
    n, strength = len(A), A.sum(axis=1)
    labels, volume = np.arange(n), strength.copy()
    nodes = np.argsort(-strength, kind="stable")
    nodes = nodes[strength[nodes] > 0]
    changed = True
    while changed:
        changed = False
        for i in nodes:
            current, k = labels[i], strength[i]
            volume[current] -= k
            links = np.bincount(labels, weights=A[i], minlength=n)
            links[current] -= A[i, i]
            gain = np.where(links > 0, links - resolution * k * volume / total, -np.inf)
            stay = links[current] - resolution * k * volume[current] / total
            best = int(np.argmax(gain))
            # The margin prevents rounding errors from moving a node back and forth forever.
            if gain[best] > stay + 1e-12 * k:
                labels[i], changed = best, True
            volume[labels[i]] += k
    return labels
