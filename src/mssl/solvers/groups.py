r"""Joint feature selection by block descent over features, on a working set that grows until nothing is left out.

.. math:: \min_V\; \ell(V) + \tfrac12\operatorname{tr}(VCV^\top) + \alpha\sum_j\|V_{\cdot j}\|_2

Grams are formed for the working set only, so that features that stay at zero cost one gradient now and then.

References
----------
Qin, Scheinberg & Goldfarb (2013), Efficient block-coordinate descent algorithms for the group Lasso,
doi:10.1007/s12532-013-0051-x.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mssl._jit import call
from mssl.coupling import Coupling
from mssl.penalties import L21
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_FIRST = 64  # features of the first working set, at least
_INNER = 0.1  # share of the present gap that a descent on the working set may leave
_BURST = 20
_DENSE = 0.6  # share of features in use from which products with everything are cheaper than sweeps


def group_descent(
    quadratic: GramQuadratic | DesignQuadratic,
    coupling: Coupling,
    penalty: L21,
    V0: Array,
    certificate: Callable[[Array, Array], float],
    *,
    tol: float,
    max_iter: int = 10_000,
) -> WeightStep:
    """Minimise until the certificate is within ``tol``, or until it turns out that most features are in use.

    Parameters
    ----------
    quadratic : GramQuadratic or DesignQuadratic
        The loss.
    coupling : Coupling
        C.
    penalty : L21
        The penalty.
    V0 : ndarray of shape (K, d)
        Start.
    certificate : callable (V, G) → float
        Bound of the suboptimality at V, with the gradient G of loss plus coupling.
    tol : float
        Absolute bound at which to stop.
    max_iter : int
        Most sweeps.

    Returns
    -------
    WeightStep
        With the status of an iteration limit where most features are in use: other solvers go on faster from there.
    """
    V = np.array(V0, dtype=float)
    lift = float(np.linalg.norm(coupling.dense(), 2))
    chosen: Index = np.empty(0, dtype=np.int64)
    grams = np.empty((0, 0, 0))
    done, size, enough, previous = 0, _FIRST, 0.1 * tol, np.inf
    while True:
        G = quadratic.gradient(V) + coupling.dot(V)
        gap = certificate(V, G)
        if gap <= tol:
            return WeightStep(V, gap, done, Status.CONVERGED)
        if not np.isfinite(gap):
            return WeightStep(V, gap, done, Status.DIVERGED)
        used = int(V.any(axis=0).sum())
        if done >= max_iter or used > max(_FIRST, _DENSE * V.shape[1]):
            return WeightStep(V, gap, done, Status.MAX_ITER)
        wanted = _working_set(V, G, penalty.alpha, size)
        if not np.all(np.isin(wanted, chosen)):
            chosen, grams = wanted, sub_grams(quadratic, wanted)
        inner = _Restricted(quadratic, coupling, penalty.alpha, lift, chosen, grams, V, G)
        made, decrease = inner.run(V, min(_BURST, max_iter - done), max(enough, 1e-3 * _INNER * gap))
        done += made
        if gap > 0.9 * previous:
            if decrease == 0.0:
                return WeightStep(V, gap, done, Status.STALLED)
            enough *= 0.1
        size, previous = max(size, 2 * used), gap


def _working_set(V: Array, G: Array, alpha: float, size: int) -> Index:
    """Features in use, and of the others those that violate most, up to ``size`` in all (all of them if few)."""
    used = V.any(axis=0)
    slopes = np.where(used, np.inf, np.sqrt((G**2).sum(axis=0)))
    candidates = np.flatnonzero(slopes > alpha)
    order = candidates[np.argsort(-slopes[candidates], kind="stable")]
    return np.sort(order[: max(size, int(used.sum()) + _FIRST)])


def sub_grams(quadratic: GramQuadratic | DesignQuadratic, features: Index) -> Array:
    """H_k of some features, (K or 1, m, m), task scales left out."""
    if isinstance(quadratic, GramQuadratic):
        return np.ascontiguousarray(quadratic.gram[:, features[:, None], features])
    design = quadratic.design
    common = design.common_weights(quadratic.c)
    blocks = [_columns(quadratic, k, features) for k in range(1 if common is not None else design.n_tasks)]
    return np.stack([block @ block.T for block in blocks])


def _scales(quadratic: GramQuadratic | DesignQuadratic) -> Array:
    if isinstance(quadratic, GramQuadratic):
        return quadratic.task_scale
    common = quadratic.design.common_weights(quadratic.c)
    return np.ones(quadratic.n_tasks) if common is None else common[1]


def _columns(quadratic: DesignQuadratic, k: int, features: Index) -> Array:
    """√c (x − mean) of some features of task k, (m, n_k)."""
    design, store = quadratic.design, quadratic.design.columns
    n, first = int(design.n_rows[k]), store.base[k]
    if store.is_sparse:
        begin, end = store.indptr[first], store.indptr[first + quadratic.n_features]
        starts = store.indptr[first : first + quadratic.n_features + 1] - begin
        places = store.indices[begin:end] + store.row_start[k] - design.offsets[k]
        matrix = sparse.csc_array((store.data[begin:end], places, starts), shape=(n, quadratic.n_features))
        block = matrix[:, features].toarray().T
    else:
        begin = store.indptr[first]
        block = store.data[begin : begin + n * quadratic.n_features].reshape(-1, n)[features]
    weights = quadratic.c[design.offsets[k] : design.offsets[k + 1]]
    return np.asarray((block - quadratic.column_means[k, features][:, None]) * np.sqrt(weights))


class _Restricted:
    """The problem in the features of the working set, the others being zero."""

    def __init__(
        self,
        quadratic: GramQuadratic | DesignQuadratic,
        coupling: Coupling,
        alpha: float,
        lift: float,
        chosen: Index,
        grams: Array,
        V: Array,
        G: Array,
    ) -> None:
        self.chosen, self.grams, self.scale = chosen, grams, np.array(_scales(quadratic), dtype=float)
        self.rows = coupling.compressed
        self.strengths = (lift, float(alpha))
        self.V = np.ascontiguousarray(V[:, chosen])
        product = np.matmul(grams, self.V[:, :, None])[:, :, 0] if len(grams) > 1 else self.V @ grams[0]
        self.HV = np.ascontiguousarray(self.scale[:, None] * product)
        self.linear = np.ascontiguousarray(self.HV + coupling.dot(self.V) - G[:, chosen])

    def run(self, V: Array, n_sweeps: int, enough: float) -> tuple[int, float]:
        """Sweep, and write the weights into V."""
        from mssl._group_kernels import group_sweeps

        arguments = (self.grams, self.scale, self.linear, *self.rows, *self.strengths)
        made, decrease = call(group_sweeps, *arguments, self.V, self.HV, n_sweeps, float(enough))
        V[:, self.chosen] = self.V
        return int(made), float(decrease)
