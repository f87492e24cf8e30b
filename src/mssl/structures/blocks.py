r"""A sparse precision of many tasks, computed component by component without a table of all pairs of tasks.

The decomposition is exact: if :math:`|S_{ij}| \le \Lambda_{ij}` for all pairs between two sets of tasks, the best Ω is
zero between them (Witten, Friedman & Simon 2011). S is formed in panels of rows, and only the pairs above Λ are kept.
Within a component S, Ω and its inverse are dense. Value and gap of the graphical lasso are sums over components.

References
----------
Witten, Friedman & Simon (2011), New insights and faster computations for the graphical lasso,
doi:10.1198/jcgs.2011.11051a.
Mazumder & Hastie (2012), Exact covariance thresholding into connected components for large-scale graphical lasso,
Journal of Machine Learning Research 13.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from mssl._typing import Array, Index
from mssl._validation import warn
from mssl.glasso.solver import GraphicalLassoResult, Problem, gap_of, solve
from mssl.model.task_matrix import DENSE_UP_TO, submatrix


@dataclass(frozen=True, eq=False)
class PairMoment:
    r"""The moment S = (QQᵀ/r + ρ + ν diag(v)) / (1 + ν) of many tasks. Parts of it are formed when they are needed.

    Attributes
    ----------
    Q : ndarray of shape (K, r)
        The weights less their mean.
    n_rows, mean_spread, shrinkage : float
        r, ρ and ν.
    variances : ndarray of shape (K,)
        v.
    alpha : float
        λ; the price of an edge is :math:`\Lambda_{ij} = \lambda a_i a_j`. Pairs with |S_ij| above it may have an edge.
    roots, floors : ndarrays of shape (K,)
        a, and e, the price of the diagonal.
    """

    Q: Array
    n_rows: float
    mean_spread: float
    shrinkage: float
    variances: Array
    alpha: float
    roots: Array
    floors: Array

    def diagonal(self) -> Array:
        """The diagonal of S."""
        squares = np.einsum("kr,kr->k", self.Q, self.Q) / self.n_rows + self.mean_spread
        return np.asarray((squares + self.shrinkage * self.variances) / (1.0 + self.shrinkage))

    def block(self, tasks: Index) -> Array:
        """S of some tasks."""
        Q = self.Q[tasks]
        S = Q @ Q.T / self.n_rows + self.mean_spread
        return np.asarray((S + self.shrinkage * np.diag(self.variances[tasks])) / (1.0 + self.shrinkage))

    def problem(self, tasks: Index) -> Problem:
        """The graphical lasso of some tasks."""
        roots = self.roots[tasks]
        return Problem(self.block(tasks), 1.0, self.alpha * np.outer(roots, roots), self.floors[tasks])

    def _panels(self) -> Iterator[tuple[int, Array]]:
        """Panels of |S_ij| / (a_i a_j) for i < j, zeros elsewhere, each with the number of its first row."""
        K, roots = len(self.Q), self.roots
        Z = self.Q / (np.sqrt(self.n_rows * (1.0 + self.shrinkage)) * roots)[:, None]
        level = np.sqrt(self.mean_spread / (1.0 + self.shrinkage)) / roots
        rows = max(1, DENSE_UP_TO**2 // K)  # a panel is as large as the largest dense matrix
        for first in range(0, K, rows):
            panel = Z[first : first + rows] @ Z[first:].T
            if self.mean_spread > 0:
                panel += np.outer(level[first : first + rows], level[first:])
            yield first, np.triu(np.abs(panel, out=panel), 1)

    @cached_property
    def links(self) -> sparse.csr_array:
        """The pairs (i, j), i < j, whose moment exceeds their price. Two tasks alone would then have an edge."""
        K, rows, columns = len(self.Q), [], []
        for first, panel in self._panels():
            i, j = np.nonzero(panel > self.alpha)
            rows.append(i + first)
            columns.append(j + first)
        places = (np.concatenate(rows), np.concatenate(columns))
        return sparse.csr_array((np.ones(len(places[0]), dtype=bool), places), shape=(K, K))

    def lambda_max(self) -> float:
        """The smallest λ at which no pair exceeds its price."""
        return max((float(panel.max(initial=0.0)) for _, panel in self._panels()), default=0.0)


def certify(S: PairMoment, precision: sparse.csr_array, covariance: sparse.csr_array) -> tuple[float, float]:
    """Gap and value of the graphical lasso at a precision with a known inverse."""
    single, groups = _components(precision, S.links)
    omega, variances = precision.diagonal()[single], S.diagonal()[single] + S.floors[single]
    share = variances * omega
    gap, value = float(np.sum(share - 1.0 - np.log(share))), float(np.sum(share - np.log(omega)))
    for tasks in groups:
        known = _known(precision, covariance, tasks)
        more = gap_of(S.problem(tasks), known.precision, known)
        gap, value = gap + more[0], value + more[1]
    return gap, value


def update(
    S: PairMoment, precision: sparse.csr_array, covariance: sparse.csr_array, solver: str, tol: float
) -> tuple[sparse.csr_array, sparse.csr_array, float, float]:
    """The best precision for a moment up to the absolute gap ``tol``, with its inverse, gap and value."""
    single, groups = _components(precision, S.links)
    largest = max(map(len, groups), default=0)
    if largest > 2 * DENSE_UP_TO:  # tables take gigabytes, and a round takes minutes
        warn(
            f"The graph joins {largest} of {len(S.Q)} tasks; their tables take {40 * largest**2 / 2**30:.1f} GiB, and "
            "a round takes minutes. Raise graph_penalty (alpha) or variance_floor to get smaller components."
        )
    variances = S.diagonal() + S.floors
    # The objective of a separate task is 1 + log of its variance. The tolerance of a component is relative to the
    # objective and proportional to the number of its tasks.
    value, total = float(np.sum(1.0 + np.log(variances[single]))), max(1, sum(map(len, groups)))
    found = []
    for tasks in groups:
        size = max(1.0, abs(float(np.sum(1.0 + np.log(variances[tasks])))))
        goal, start = tol * len(tasks) / total / size, _known(precision, covariance, tasks)
        found.append(solve(S.problem(tasks), solver=solver, tol=goal, warm_start=start, digits=False))
    omega = _joined(single, 1.0 / variances, groups, [part.precision for part in found])
    sigma = _joined(single, variances, groups, [part.covariance for part in found])
    return omega, sigma, sum(part.gap for part in found), value + sum(part.objective for part in found)


def _joined(single: Index, diagonal: Array, groups: list[Index], blocks: list[Array]) -> sparse.csr_array:
    """The sparse matrix with the diagonal of single tasks and a dense block for each group of tasks."""
    places, values = [np.stack([single, single])], [diagonal[single]]
    for tasks, block in zip(groups, blocks, strict=True):
        nonzero = np.nonzero(block)
        places.append(tasks[np.stack(nonzero)])
        values.append(block[nonzero])
    return sparse.csr_array((np.concatenate(values), np.concatenate(places, axis=1)), shape=2 * diagonal.shape)


def _components(precision: sparse.csr_array, links: sparse.csr_array) -> tuple[Index, list[Index]]:
    """The tasks without an edge or a link, and the components of all other tasks."""
    _, labels = connected_components(precision.astype(bool) + links, directed=False)
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels)
    parts = np.split(order, np.cumsum(sizes)[:-1])
    single = np.flatnonzero(sizes[labels] == 1)
    return single, [part for part in parts if len(part) > 1]


def _known(precision: sparse.csr_array, covariance: sparse.csr_array, tasks: Index) -> GraphicalLassoResult:
    """The precision of some whole components and its inverse, as a result of the graphical lasso."""
    return GraphicalLassoResult.of(submatrix(precision, tasks), submatrix(covariance, tasks))
