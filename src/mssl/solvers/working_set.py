r"""The weight step with an ℓ1 penalty that leaves few weights: working sets.

Each task has a set of features, those whose weights are not zero and those that violate their optimality condition
most. On these the step is solved with their Gram alone; one product with all features then tells which others have to
come in, and is the certificate. Nothing of the size of all features squared is formed.

References
----------
Massias, Gramfort & Salmon (2018), Celer: a fast solver for the Lasso with dual extrapolation, Proceedings of the 35th
International Conference on Machine Learning, https://proceedings.mlr.press/v80/massias18a.html
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mssl.kernels import call
from mssl.model.bounds import weight_gap
from mssl.model.coupling import Coupling
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.coordinate import coupling_arrays, independent_parts, spread_sweeps
from mssl.solvers.quadratic import DesignQuadratic

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

_FIRST = 0.25  # features that come in at a time, in rows of the task; as many as are in the set where that is more
_LEAST = 30  # the same, at least
_NEAR = 0.9  # share of the threshold from which on a feature may violate its condition soon
_INNER = 1e-4  # share of the present gap to which the problem on the sets is solved
_NOTHING = 1e-20  # gain of a sweep, relative to twice the loss at W = 0, that is rounding
_BURST = 50  # sweeps between two looks at the certificate, at most


def descend_on_sets(
    problem: DesignQuadratic,
    coupling: Coupling,
    threshold: Array,
    W0: Array,
    *,
    tol: float,
    max_iter: int = 10_000,
    densest: float = 0.5,
    fullest: float = 1.0,
) -> WeightStep:
    """Minimise on growing sets of features until the certificate of all features is within ``tol``.

    Parameters
    ----------
    problem : DesignQuadratic
        The loss.
    coupling : Coupling
        C ≻ 0.
    threshold : ndarray of shape (K,)
        ℓ1 strengths t_k ≥ 0.
    W0 : ndarray of shape (K, d)
        Start.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most sweeps.
    densest : float
        Size of the support, as a share of the largest that there can be, up to which sets pay.
    fullest : float
        Share of the sets which, when it is in the support while more than as many features again want to come in, says
        that the support will be large.

    Returns
    -------
    WeightStep
        With the status MAX_ITER before so many sweeps where the sets get too large: the penalty is too weak for them.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.data.design import Design
    >>> X = np.eye(3)[[0, 0, 1, 1, 2, 2]] * [[2.0], [-2], [2], [-2], [2], [-2]]
    >>> loss = DesignQuadratic(Design.build(X, [0, 6], scale=False), np.ones(6), X @ [1.0, 0.1, 0])
    >>> step = descend_on_sets(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1), np.zeros((1, 3)), tol=1e-9)
    >>> step.W.round(6)
    array([[0.777778, 0.      , 0.      ]])
    """
    W = np.array(W0, dtype=float)
    sets = _Sets(problem, coupling, threshold, W)
    n_rows, d = problem.design.n_rows, problem.n_features
    most = densest * float(np.minimum(n_rows, d).sum())
    nothing = _NOTHING * float(np.dot(problem.c, problem.target**2))
    done, decrease = 0, np.inf
    while True:
        G = sets.gradient()
        gap = weight_gap(W, G, coupling, threshold)
        if gap <= tol or not np.isfinite(gap):
            return WeightStep(W, gap, done, Status.CONVERGED if gap <= tol else Status.DIVERGED)
        wanted = _wanted(W, G, threshold, n_rows)
        held, support = float(np.sum(wanted.sum(axis=1, dtype=float) ** 2)), np.count_nonzero(W)
        full = support > fullest * np.count_nonzero(sets.members)
        if full and np.count_nonzero(np.abs(G) > threshold[:, None]) > 2 * support:
            most = 0.0
        if done >= max_iter or support > most or held > d * float(n_rows.sum()):
            return WeightStep(W, gap, done, Status.MAX_ITER)
        if decrease <= nothing and not np.any(wanted & ~sets.members):
            return WeightStep(W, gap, done, Status.STALLED)
        sets.become(wanted)
        made, decrease = sets.descend(max(0.3 * tol, _INNER * gap), nothing, max_iter - done)
        done += made


def _wanted(W: Array, G: Array, threshold: Array, n_rows: Index) -> Mask:
    """The support, and of the features that violate their condition, or nearly so, those that do so most."""
    members = W != 0
    sizes = np.where(members, 0.0, np.abs(G))
    most = np.maximum(members.sum(axis=1), np.maximum(_LEAST, (_FIRST * n_rows).astype(np.int64)))
    for k, near in enumerate(_NEAR * threshold):
        others = np.flatnonzero(sizes[k] > near)
        if len(others) > most[k]:
            others = others[np.argpartition(-sizes[k, others], most[k])[: most[k]]]
        members[k, others] = True
    return members


class _Sets:
    """The sets, the features in them and their Grams; the weights are changed in place."""

    def __init__(self, problem: DesignQuadratic, coupling: Coupling, threshold: Array, W: Array) -> None:
        self.problem, self.coupling, self.W = problem, coupling, W
        self.threshold = np.array(threshold, dtype=float)
        self.rows = coupling_arrays(coupling)
        self.root = np.sqrt(problem.c)
        K = len(W)
        self.members: Mask = np.zeros(W.shape, dtype=bool)
        self.features: list[Index] = [np.empty(0, dtype=np.int64) for _ in range(K)]
        self.blocks = [np.empty((int(n), 0)) for n in problem.design.n_rows]
        self.gram, self.corners = np.empty(0), np.zeros(K + 1, dtype=np.int64)
        self.become(W != 0)

    def become(self, members: Mask) -> None:
        """Let features in and out; products of those that stay are kept."""
        sizes = members.sum(axis=1)
        corners = np.concatenate([[0], np.cumsum(sizes**2)]).astype(np.int64)
        gram = np.empty(corners[-1])
        for k, size in enumerate(sizes):
            own = gram[corners[k] : corners[k + 1]].reshape(size, size)
            self._fill(k, members[k], own)
        self.members, self.gram, self.corners = members, gram, corners

    def _fill(self, k: int, members: Mask, gram: Array) -> None:
        """Gram, columns and features of one task; those that stay come first."""
        before = self.gram[self.corners[k] : self.corners[k + 1]].reshape(2 * self.features[k].shape)
        stay, new = members[self.features[k]], members & ~self.members[k]
        m = int(stay.sum())
        gram[:m, :m] = before if m == len(stay) else before[np.ix_(stay, stay)]
        if m < len(stay):
            self.blocks[k], self.features[k] = self.blocks[k][:, stay], self.features[k][stay]
        if not np.any(new):
            return
        block = self.problem.block(k, new)
        gram[m:, m:] = block.T @ block
        gram[m:, :m] = block.T @ self.blocks[k]
        gram[:m, m:] = gram[m:, :m].T
        self.blocks[k] = np.concatenate([self.blocks[k].T, block.T]).T
        self.features[k] = np.concatenate([self.features[k], np.flatnonzero(new)])

    def gradient(self) -> Array:
        """Of loss plus coupling, by one product with all features, (K, d)."""
        problem, offsets = self.problem, self.problem.design.offsets
        if not np.any(self.W):
            return -problem.linear
        r = self.root * problem.target
        for k, block in enumerate(self.blocks):
            if block.shape[1]:
                r[offsets[k] : offsets[k + 1]] -= block @ self.W[k, self.features[k]]
        return self.coupling.dot(self.W) - problem.design.backproject(self.root * r)

    def descend(self, tol: float, nothing: float, max_iter: int) -> tuple[int, float]:
        """Sweeps on the sets until their own certificate is within ``tol`` or they gain nothing.

        Returns how many there were, and what the last one gained.
        """
        from mssl.kernels.working_sets import set_sweeps

        W, coupling, mean = self.W, self.coupling, self.rows[3] @ self.W
        sizes = np.array([len(own) for own in self.features])
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        tasks, features = np.repeat(np.arange(len(W)), sizes), np.concatenate(self.features)
        q, HW = self.problem.linear[tasks, features], self._products()
        loss = (self.gram, self.corners, features, starts, q, *self.rows, self.threshold, W, HW)
        parts = independent_parts(coupling, len(self.gram))

        def sweep(own: Index, most: int, goal: float) -> tuple[int, float]:
            return call(set_sweeps, *loss, mean if len(parts) == 1 else mean.copy(), own, most, goal)

        done, enough, slope = 0, tol, np.zeros(W.shape)
        while True:
            made, decrease = spread_sweeps(parts, min(_BURST, max_iter - done), float(enough), sweep)
            done += made
            slope[tasks, features] = HW - q
            gap = weight_gap(W, np.where(self.members, slope + coupling.dot(W), 0.0), coupling, self.threshold)
            if gap <= tol or decrease <= nothing or done >= max_iter:
                return done, decrease
            # The certificate exceeds the last gain by a factor that hardly changes: aim at what will pass.
            enough = min(enough, 0.5 * decrease * tol / gap)

    def _products(self) -> Array:
        """H_k w_k on the sets, one after the other."""
        products = []
        for k, own in enumerate(self.features):
            H = self.gram[self.corners[k] : self.corners[k + 1]].reshape(len(own), len(own))
            products.append(H @ self.W[k, own])
        return np.concatenate(products)
