r"""Joint feature selection on a working set of features that grows until nothing is left out.

.. math:: \min_V\; \ell(V) + \tfrac12\operatorname{tr}(VCV^\top) + \alpha\sum_j\|V_{\cdot j}\|_2

On the set, block descent over features finds out which of them are in use, and Newton steps by conjugate gradients
solve for those; both take the Grams of the set alone. Features that stay at zero cost one gradient now and then.

References
----------
Qin, Scheinberg & Goldfarb (2013), Efficient block-coordinate descent algorithms for the group Lasso,
doi:10.1007/s12532-013-0051-x.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mssl.kernels import call, plain
from mssl.model.coupling import Coupling
from mssl.penalties import L21
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FIRST = 64  # features of the first working set, at least
_INNER = 0.01  # share of the present gap that a descent on the working set may leave
_LAST = 0.5  # the same of the gap asked for
_MOST = 0.5  # share of features in the set from which on all of them are in it, so that Grams need not be copied
_DENSE, _LARGE = 0.6, 2**28  # share of features in use, and bytes of Grams of the set, beyond which rows do better


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
    """Minimise until the certificate is within ``tol``, or until Grams get too large that are not at hand.

    Parameters
    ----------
    quadratic : GramQuadratic or DesignQuadratic
        The loss.
    coupling : Coupling
        C, without rank-one part.
    penalty : L21
        The penalty.
    V0 : ndarray of shape (K, d)
        Start.
    certificate : callable (V, G) → float
        Bound of the suboptimality at V, with the gradient G of loss plus coupling.
    tol : float
        Absolute bound at which to stop.
    max_iter : int
        Most sweeps and products, as far as a Newton step is not cut short.

    Returns
    -------
    WeightStep
        With the status MAX_ITER before so many sweeps where another solver goes on faster.
    """
    from mssl.kernels.groups import descend_groups

    V = np.array(V0, dtype=float)
    d, held = V.shape[1], isinstance(quadratic, GramQuadratic)
    # Sums of |C|'s rows: a diagonal matrix above C.
    form = (_scales(quadratic), *coupling.compressed, np.abs(coupling.precision).sum(axis=1), float(penalty.alpha))
    members: Mask = np.zeros(d, dtype=bool)
    grams = np.empty((0, 0, 0))
    done, size, previous = 0, _FIRST, np.inf
    while True:
        G = quadratic.gradient(V) + coupling.dot(V) if V.any() else -quadratic.linear
        gap = certificate(V, G)
        if gap <= tol or not np.isfinite(gap):
            return WeightStep(V, gap, done, Status.CONVERGED if gap <= tol else Status.DIVERGED)
        used = int(V.any(axis=0).sum())
        if done >= max_iter or (not held and used > _DENSE * d and grams.nbytes > _LARGE):
            return WeightStep(V, gap, done, Status.MAX_ITER)
        wanted = _working_set(V, G, penalty.alpha, size, _MOST if held else 1.0)
        if np.any(wanted & ~members):
            members, grams = wanted, sub_grams(quadratic, wanted)
        elif gap > 0.9 * previous:
            return WeightStep(V, gap, done, Status.STALLED)
        every = members.all()
        some = (slice(None), slice(None) if every else members)
        linear, own, slope = (plain(part[some]) for part in (quadratic.linear, V, G))
        goal = max(_LAST * tol, 0.0 if every else _INNER * gap)
        state = (linear, quadratic.null_value, own, slope, goal, max_iter - done)
        done += call(descend_groups, grams, *form, *state)[1]
        V[some] = own
        size, previous = max(size, 2 * used), gap


def _working_set(V: Array, G: Array, alpha: float, size: int, most: float) -> Mask:
    """Features in use and, up to ``size`` in all, those that violate most; everything beyond a share of ``most``."""
    d = V.shape[1]
    if d <= _FIRST:
        return np.ones(d, dtype=bool)
    members: Mask = np.asarray(V.any(axis=0))
    slopes = np.where(members, 0.0, np.einsum("kd,kd->d", G, G))
    others = np.flatnonzero(slopes > alpha**2)
    room = max(size - int(members.sum()), _FIRST)
    if len(others) > room:
        others = others[np.argpartition(-slopes[others], room)[:room]]
    members[others] = True
    return members if members.sum() <= most * d else np.ones(d, dtype=bool)


def sub_grams(quadratic: GramQuadratic | DesignQuadratic, members: Mask) -> Array:
    """H_k of some features, (K or 1, m, m), task scales left out."""
    if isinstance(quadratic, GramQuadratic):
        features = np.flatnonzero(members)
        whole = quadratic.gram
        return plain(whole if len(features) == len(members) else whole[:, features[:, None], features])
    own = quadratic.design.common_weights(quadratic.c) is None
    blocks = (quadratic.block(k, members) for k in range(quadratic.n_tasks if own else 1))
    return np.stack([block.T @ block for block in blocks])


def _scales(quadratic: GramQuadratic | DesignQuadratic) -> Array:
    if isinstance(quadratic, GramQuadratic):
        return plain(quadratic.task_scale)
    common = quadratic.design.common_weights(quadratic.c)
    return np.ones(quadratic.n_tasks) if common is None else common[1]
