r"""Certificates of the weight step: upper bounds of the suboptimality, computed from any point.

F is the sum of a convex loss, a coupling :math:`\tfrac12\operatorname{tr}(WCW^\top)` and a penalty g. G is the gradient
of loss plus coupling. There are four bounds for different problems:

- **Curved** (:class:`WeightBound`), if :math:`C \succ 0`, with a ridge or without. For every U

  .. math:: F(W) - \min F \le \tfrac12 \operatorname{tr}\big((G+U)\, C^{-1} (G+U)^\top\big)
            + g(W) + g^*(U) - \langle U, W\rangle.

  The bound is the smaller one of two choices: a subgradient U at W, and the feasible U nearest to −G.
- **Scaled** (:meth:`WeightBound.__call__` for a singular C): the Fenchel dual of the loss at its gradient. One factor
  per connected component of tasks scales the gradient until it is feasible. For components with unpenalised weights
  there is no such factor. They contribute their violation of the optimality condition, relative to the gradient at
  W = 0 and in units of the loss there.
- **Norms** (:class:`CompositeBound`), for penalties that tie the tasks together.
- **Projected**, for least squares with correlated errors and no penalty: :mod:`mssl.solvers.residual`.

If a penalty is not convex, there is no bound. The largest violation of the optimality condition is reported instead,
in the same relative units, and ``certified`` is False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from mssl._typing import Array, Mask
from mssl.kernels import graph_components, plain
from mssl.model.coupling import Coupling
from mssl.penalties import EntrywisePenalty, Penalty

if TYPE_CHECKING:
    from mssl.solvers.glm import GLMLoss
    from mssl.solvers.quadratic import Quadratic

ConvexLoss: TypeAlias = "Quadratic | GLMLoss"


class WeightBound:
    """Bound of F(W) − min F for one loss, coupling and entrywise penalty.

    Parameters
    ----------
    coupling : Coupling
        C.
    penalty : EntrywisePenalty
        g.
    loss : ConvexLoss, optional
        The loss; without it there is no bound for a singular C.

    Attributes
    ----------
    covariance : ndarray of shape (K, K) or None
        Inverse of C without its mean variance; None if C is singular.
    certified : bool
        True if the number bounds the suboptimality; False if it only measures the violation of the optimality
        condition.
    curved : bool
        Whether C is positive definite and the penalty convex.
    """

    def __init__(self, coupling: Coupling, penalty: EntrywisePenalty, loss: ConvexLoss | None = None) -> None:
        self.coupling, self.penalty, self.loss = coupling, penalty, loss
        self.covariance, self.certified = coupling.inverse[0], penalty.convex
        self.curved = self.covariance is not None and self.certified
        self.components: Components | None = None  # the components of a singular C

    @property
    def scalable(self) -> bool:
        """Whether the bound is the one for a singular C, and every weight has a penalty."""
        return self.covariance is None and self.penalty.convex and bool(np.all(self.penalty.strengths > 0))

    def __call__(self, W: Array, G: Array, values: Array | None = None) -> float:
        """The bound at W, where loss plus coupling has the gradient G.

        For least squares, ``values`` are the known losses of the tasks at W. The bound for a singular C uses them.
        """
        penalty = self.penalty
        if not self.curved:
            if self.loss is None:
                return np.inf
            if self.certified:
                return self._scaled(W, G, self.loss, values)
            return relative_violation(G + penalty.subgradient(W, G), *self.loss.at_zero())
        if penalty.absent:
            return self.coupling.inverse_quadratic(G)
        clipped = penalty.clipped(-G)
        on_support = self.coupling.inverse_quadratic(G + penalty.subgradient(W, G))
        slack = penalty.value(W) - float(np.vdot(clipped, W))
        if slack >= on_support:
            return on_support
        return min(on_support, self.coupling.inverse_quadratic(G + clipped) + max(slack, 0.0))

    def _scaled(self, W: Array, G: Array, loss: ConvexLoss, values: Array | None) -> float:
        if self.components is None:
            self.components = Components(self.coupling if loss.related is None else loss.related)
        components = self.components
        scales = components.feasible_scales(self.penalty, G)
        pull = self.coupling.dot(W)
        coupled = 0.5 * np.einsum("kd,kd->k", W, pull) * (1.0 + scales**2)
        if values is None:
            duality = loss.fenchel(W, scales)
        else:
            duality = quadratic_duality(values, np.einsum("kd,kd->k", W, G - pull), scales)
        gaps = components.sums(duality + coupled + self.penalty.values(W).sum(axis=1))
        free = components.free(self.penalty)
        if np.any(free):
            gaps = np.where(free, components.violations(G + self.penalty.subgradient(W, G), *loss.at_zero()), gaps)
        return float(np.maximum(gaps, 0.0).sum())


def quadratic_duality(values: Array, along: Array, scales: Array) -> Array:
    r"""Least squares at W plus its conjugate at ``scales`` times the gradient in the predictors, task by task.

    With residual r and target z, the sum is ½‖r‖² + ½s²‖r‖² − s z·r, and z·r = ‖r‖² − w·gradient. ``values`` are the
    ½‖r‖², and ``along`` are the products w·gradient.
    """
    return np.asarray(values * (1.0 - scales) ** 2 + scales * along)


class Components:
    """The connected components of the tasks. The coupling relates no tasks of different components."""

    def __init__(self, coupling: Coupling | sparse.csr_array) -> None:
        precision = coupling.precision if isinstance(coupling, Coupling) else coupling
        if isinstance(coupling, Coupling) and coupling.rho:
            self.label = np.zeros(coupling.n_tasks, dtype=int)
        elif sparse.issparse(precision):
            self.label = connected_components(precision, directed=False)[1]
        else:
            self.label = graph_components(plain(precision), 0.0)
        self.n = int(self.label.max(initial=-1)) + 1

    def sums(self, values: Array | Mask) -> Array:
        """Sums over the tasks of each component."""
        return np.asarray(np.bincount(self.label, weights=values, minlength=self.n), dtype=float)

    def feasible_scales(self, penalty: EntrywisePenalty, G: Array) -> Array:
        """For each task, the largest factor ≤ 1 that makes −G feasible in all tasks of its component, (K,)."""
        scales = np.ones(self.n)
        np.minimum.at(scales, self.label, 1.0 / np.maximum(penalty.excess(G).max(axis=1, initial=0.0), 1.0))
        return np.asarray(scales[self.label])

    def free(self, penalty: EntrywisePenalty) -> Mask:
        """The components with unpenalised weights. Their gradient is feasible only if it is zero."""
        return self.sums((penalty.strengths == 0).any(axis=1)) > 0

    def violations(self, violation: Array, gradient: Array, values: Array) -> Array:
        """The norm of a violation in each component relative to the gradient at W = 0, times the loss there."""
        norms, at_zero = (np.sqrt(self.sums((terms**2).sum(axis=1))) for terms in (violation, gradient))
        return np.asarray(norms / np.where(at_zero > 0, at_zero, 1.0) * self.sums(values))


def relative_violation(violation: Array, gradient: Array, values: Array) -> float:
    """The largest violation of an optimality condition, relative to the gradient at W = 0, times the loss there."""
    first = float(np.abs(gradient).max(initial=0.0))
    return float(np.abs(violation).max(initial=0.0)) / (first if first > 0 else 1.0) * float(np.sum(values))


class CompositeBound:
    r"""Bound of F(V) − min F for a penalty that ties the tasks together.

    For α times a norm, no minimiser has a norm above :math:`(F(V)-\ell_{\min})/\alpha`, hence

    .. math:: F(V) - \min F \le \alpha\|V\| + \langle G, V\rangle
              + (\|G\|_* - \alpha)_+ \frac{F(V) - \ell_{\min}}{\alpha}.

    If the conjugate of the penalty is finite everywhere, the bound is :math:`g(V) + \langle G, V\rangle + g^*(-G)`.
    For C ≻ 0 and any convex penalty, the curved bound holds with the subgradient U at P, the result of a proximal step
    from V. If none of these applies, the largest entry of such a step is reported, which certifies nothing.

    Parameters
    ----------
    coupling : Coupling
        C.
    penalty : Penalty
        The penalty; its strength must not be 0.
    loss : ConvexLoss
        The loss, less its smallest value.
    """

    def __init__(self, coupling: Coupling, penalty: Penalty, loss: ConvexLoss) -> None:
        self.coupling, self.penalty, self.loss = coupling, penalty, loss
        self.gradient, self.values = loss.at_zero()
        known = penalty.dual_norm(self.gradient) is not None or penalty.conjugate(self.gradient) is not None
        self.certified = penalty.convex and (known or coupling.inverse[0] is not None)

    def __call__(self, V: Array, G: Array) -> float:
        """The bound at V, where loss plus coupling has the gradient G."""
        penalty, size, gap = self.penalty, self.penalty.value(V), np.inf
        dual = penalty.dual_norm(G) if self.certified else None
        if dual is not None:
            objective = self.loss.smooth(self.coupling, V, G) + size
            gap = max(size + float(np.vdot(G, V)), 0.0) + max(dual - penalty.alpha, 0.0) * objective / penalty.alpha
        conjugate = penalty.conjugate(-G) if self.certified else None
        if conjugate is not None:
            gap = min(gap, max(size + float(np.vdot(G, V)) + conjugate, 0.0))
        if self.certified and self.coupling.inverse[0] is None:
            return gap
        # Every length of the proximal step gives a bound. This one changes weights and zeros by similar amounts.
        largest = float(np.abs(G).max(initial=0.0))
        length = float(np.abs(V).max(initial=0.0)) / largest if largest > 0 and np.any(V) else 1.0
        P = penalty.prox(V - length * G, length)
        R = (V - P) / length
        if not self.certified:
            return relative_violation(R, self.gradient, self.values)
        slack = size - penalty.value(P) - float(np.vdot(R - G, V - P))
        return min(gap, self.coupling.inverse_quadratic(R) + max(slack, 0.0))
