r"""The weight step with a penalty that ties the tasks together: joint feature selection, low rank.

.. math:: \min_W\; \ell(W) + \tfrac12\operatorname{tr}(W C W^\top) + \alpha\,\|\operatorname{diag}(\sqrt s)\,W\|

for a norm with a proximal map. Everything happens in :math:`V = \operatorname{diag}(\sqrt s) W`, weights in units of
the noise. Quadratic losses: block descent and Newton steps on working sets of features for
:class:`~mssl.penalties.L21`, accelerated proximal steps with one product each for any other norm, and where Grams would
get too large. Other losses: proximal Newton around these.

**Certificate.** With the gradient G of loss plus coupling and R = prox of −G (what exceeds the dual ball),

.. math:: F(V) - \min F \le \alpha\|V\| + \langle G, V\rangle + (\|G\|_* - \alpha)_+ \frac{F(V) - \ell_{\min}}{\alpha},

since no minimiser has a norm above :math:`(F(V)-\ell_{\min})/\alpha`; and for C ≻ 0 also
:math:`\tfrac12\operatorname{tr}(R^\top C^{-1}R) + \alpha\|V\| + \langle G + R, V\rangle`. The smaller one counts;
both hold for any convex loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mssl.model.coupling import Coupling, positive_definite_inverse
from mssl.penalties import L21, Penalty
from mssl.solvers.base import Status, WeightStep
from mssl.solvers.fista import fista
from mssl.solvers.gaussian import GaussianProblem
from mssl.solvers.glm import GLMProblem
from mssl.solvers.groups import group_descent
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, Smooth

Array = NDArray[np.float64]
Quadratic = GramQuadratic | DesignQuadratic

_GAP_EVERY = 5
_GROWTH = 1.5
_ARMIJO = 1e-4
_INNER = 0.05  # share of the present gap to which the quadratic of a Newton step is solved
_HALVINGS = 40


@dataclass(frozen=True, eq=False)
class CompositeProblem:
    """A loss and a norm that ties the tasks together.

    Attributes
    ----------
    loss : GaussianProblem or GLMProblem
        The loss, without ℓ1 penalty.
    penalty : Penalty
        The norm and its strength.
    root : ndarray of shape (K,)
        √s_k.
    solver : str
        "fista" for the reference, anything else for the fast solvers.
    """

    loss: GaussianProblem | GLMProblem
    penalty: Penalty
    root: Array
    solver: str = "auto"

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return self.loss.n_tasks

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.loss.n_features

    def value(self, W: Array) -> float:
        """Loss plus penalty."""
        return self.loss.value(W) + self.penalty.value(self.root[:, None] * W)

    def rows(self, W: Array) -> Array:
        """The weights themselves."""
        return W

    def intercepts(self, W: Array) -> Array:
        """The best intercepts."""
        return self.loss.intercepts(W)

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Best weights for a coupling."""
        root = self.root[:, None]
        scaled = _in_noise_units(coupling, self.root)
        if isinstance(self.loss, GaussianProblem):
            quadratic = _quadratic_in_noise_units(self.loss.quadratic, self.root)
            step = solve_composite(
                quadratic, scaled, self.penalty, root * W, solver=self.solver, tol=tol, max_iter=max_iter
            )
        else:
            loss = _ScaledLoss(self.loss, self.root)
            step = _proximal_newton(loss, scaled, self.penalty, root * W, self.solver, tol, max_iter)
        return replace(step, W=step.W / root)


def _in_noise_units(coupling: Coupling, root: Array) -> Coupling:
    """The coupling of V = diag(root) W."""
    dense = coupling.dense() / root / root[:, None]
    inverse = None if coupling.covariance is None else positive_definite_inverse(dense)
    return Coupling(dense, inverse)


def _quadratic_in_noise_units(quadratic: Quadratic, root: Array) -> Quadratic:
    """The same loss as a function of V = diag(root) W."""
    if isinstance(quadratic, GramQuadratic):
        means = None if quadratic.feature_means is None else quadratic.feature_means / root[:, None]
        return replace(
            quadratic,
            linear=quadratic.linear / root[:, None],
            scale=quadratic.task_scale / root**2,
            feature_means=means,
        )
    design = quadratic.design
    target = quadratic.target + design.per_task(quadratic.target_means)
    factors = design.per_task(root)
    return DesignQuadratic(design, quadratic.c / factors**2, factors * target, quadratic.intercept)


class _ScaledLoss:
    """A GLM's loss as a function of V = diag(root) W, above its least conceivable value."""

    def __init__(self, problem: GLMProblem, root: Array) -> None:
        self.problem, self.root = problem, root
        rows, point = problem.data, problem.evaluate(np.zeros((problem.n_tasks, problem.n_features)))
        mean = rows.loss.inverse_link(point.eta)
        self.least = point.loss - 0.5 * float(problem.row_weights @ rows.loss.deviance(rows.y, mean))

    def value(self, V: Array) -> float:
        return self.problem.evaluate(V / self.root[:, None]).loss - self.least

    def gradient(self, V: Array) -> Array:
        point = self.problem.evaluate(V / self.root[:, None])
        return self.problem.slope(point) / self.root[:, None]

    def model(self, V: Array) -> Quadratic:
        """The quadratic that agrees with the loss to second order at V."""
        from mssl.solvers.quadratic import make_quadratic

        point, rows = self.problem.evaluate(V / self.root[:, None]), self.problem.data
        c, z = rows.working(point.predictor, point.eta)
        weights = rows.design.per_task(self.problem.precisions) * c
        made = make_quadratic(rows.design, weights, z, intercept=rows.intercept, memory_budget=rows.memory_budget)
        return _quadratic_in_noise_units(made, self.root)


def composite_gap(loss: float, V: Array, G: Array, coupling: Coupling, penalty: Penalty) -> float:
    """Upper bound of the suboptimality of V.

    Parameters
    ----------
    loss : float
        Loss plus coupling at V, above the least value that the loss could take.
    V, G : ndarrays of shape (K, d)
        Weights, and the gradient of loss plus coupling there.
    coupling : Coupling
        C.
    penalty : Penalty
        The norm; its strength must not be 0.
    """
    size = penalty.value(V)
    slack = size + float(np.vdot(G, V))
    excess = max(penalty.dual_norm(G) - penalty.alpha, 0.0)
    gap = max(slack, 0.0) + excess * (loss + size) / penalty.alpha
    if coupling.covariance is None:
        return gap
    R = penalty.prox(-G, 1.0)
    curved = coupling.inverse_quadratic(R) + max(slack + float(np.vdot(R, V)), 0.0)
    return min(gap, curved)


def solve_composite(
    quadratic: Quadratic,
    coupling: Coupling,
    penalty: Penalty,
    V0: Array,
    *,
    solver: str = "auto",
    tol: float,
    max_iter: int = 10_000,
) -> WeightStep:
    r"""Minimise a quadratic loss + ½ tr(VCVᵀ) + penalty.

    Parameters
    ----------
    quadratic : GramQuadratic or DesignQuadratic
        The loss.
    coupling : Coupling
        C, without rank-one part.
    penalty : Penalty
        The norm.
    V0 : ndarray of shape (K, d)
        Start.
    solver : str
        "fista" for accelerated proximal gradients as of old; otherwise the fastest for the penalty.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Most iterations or sweeps.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.model.coupling import Coupling
    >>> loss = GramQuadratic(np.eye(2)[None], np.array([[3.0, 0.1], [4.0, 0.2]]), np.array([12.0, 12.0]))
    >>> free = Coupling.diagonal_only(np.zeros(2))
    >>> solve_composite(loss, free, L21(1.0), np.zeros((2, 2)), tol=1e-12).W.round(6)
    array([[2.4, 0. ],
           [3.2, 0. ]])
    """
    null = quadratic.null_value

    def certificate(V: Array, G: Array) -> float:
        # A quadratic is half its slope along V, from zero to V, on average.
        loss = null + 0.5 * float(np.vdot(V, G - quadratic.linear))
        return composite_gap(loss, V, G, coupling, penalty)

    if solver == "fista":
        return fista(quadratic, coupling, None, V0, tol=tol, max_iter=max_iter, prox=penalty.prox, gap=certificate)
    if isinstance(penalty, L21):
        step = group_descent(quadratic, coupling, penalty, V0, certificate, tol=tol, max_iter=max_iter)
        if step.status is not Status.MAX_ITER or step.n_iter >= max_iter:
            return step
        V0, max_iter = step.W, max_iter - step.n_iter
    return _accelerated(quadratic, coupling, penalty, V0, tol, max_iter)


def _accelerated(
    quadratic: Quadratic,
    coupling: Coupling,
    penalty: Penalty,
    V0: Array,
    tol: float,
    max_iter: int,
) -> WeightStep:
    """FISTA with restarts at one product an iteration: gradients of a quadratic extrapolate as the weights do."""

    def operate(V: Array) -> Array:
        return quadratic.product(V) + coupling.dot(V)

    V = np.array(V0, dtype=float)
    HV = operate(V) if np.any(V) else np.zeros_like(V)
    q = quadratic.linear
    constant = quadratic.null_value
    L = _curvature(operate, HV - q)
    previous, H_previous, momentum, gap = V, HV, 1.0, np.inf
    for iteration in range(max_iter + 1):
        if iteration % _GAP_EVERY == 0 or iteration == max_iter:
            loss = constant + float(np.vdot(V, 0.5 * HV - q))
            gap = composite_gap(loss, V, HV - q, coupling, penalty)
            if gap <= tol:
                return WeightStep(V, gap, iteration, Status.CONVERGED)
            if not np.isfinite(gap):
                return WeightStep(V, gap, iteration, Status.DIVERGED)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        push = (momentum - 1.0) / following
        Y, HY = V + push * (V - previous), HV + push * (HV - H_previous)
        while True:
            new = penalty.prox(Y - (HY - q) / L, 1.0 / L)
            H_new, move = operate(new), new - Y
            # The quadratic model bounds the loss along the move exactly when this holds; no value is needed.
            needed, length = float(np.vdot(move, H_new - HY)), float(np.vdot(move, move))
            if needed <= L * length * (1 + 1e-9) or length == 0.0:
                break
            L = max(_GROWTH * L, min(1.02 * needed / length, 4.0 * L))
        uphill = float(np.vdot(Y - new, new - V)) > 0
        previous, H_previous = (new, H_new) if uphill else (V, HV)
        momentum = 1.0 if uphill else following
        V, HV = new, H_new
    return WeightStep(V, gap, max_iter, Status.MAX_ITER)


def _curvature(operate: Callable[[Array], Array], direction: Array) -> float:
    """A first guess of the largest curvature, from below; steps that prove it too small raise it."""
    size = float(np.linalg.norm(direction))
    if size == 0.0:
        direction, size = np.ones_like(direction), float(np.sqrt(direction.size))
    curvature = float(np.vdot(direction, operate(direction))) / size**2
    return curvature if curvature > 0 else 1.0


def _proximal_newton(
    loss: _ScaledLoss, coupling: Coupling, penalty: Penalty, V0: Array, solver: str, tol: float, max_iter: int
) -> WeightStep:
    """Minimise the second-order model, walk towards its minimiser as far as the objective falls, and so on."""

    def gradient(V: Array) -> Array:
        return loss.gradient(V) + coupling.dot(V)

    def certificate(V: Array, G: Array) -> float:
        return composite_gap(loss.value(V) + coupling.value(V), V, G, coupling, penalty)

    if solver == "fista":
        return fista(loss, coupling, None, V0, tol=tol, max_iter=max_iter, prox=penalty.prox, gap=certificate)
    V = np.array(V0, dtype=float)
    gap = np.inf
    for done in range(max_iter + 1):
        G = gradient(V)
        gap = certificate(V, G)
        if gap <= tol:
            return WeightStep(V, gap, done, Status.CONVERGED)
        if not np.isfinite(gap):
            return WeightStep(V, gap, done, Status.DIVERGED)
        inner = max(0.3 * tol, _INNER * gap)
        target = solve_composite(loss.model(V), coupling, penalty, V, tol=inner, max_iter=1000).W
        new = _search(loss, coupling, penalty, V, target, G)
        if new is None:
            return WeightStep(V, gap, done, Status.STALLED)
        V = new
    return WeightStep(V, gap, max_iter, Status.MAX_ITER)


def _search(loss: Smooth, coupling: Coupling, penalty: Penalty, V: Array, target: Array, G: Array) -> Array | None:
    """The farthest of 1, ½, ¼, … towards the target at which the objective falls enough."""
    D = target - V

    def objective(U: Array) -> float:
        return loss.value(U) + coupling.value(U) + penalty.value(U)

    before = objective(V)
    expected = float(np.vdot(G, D)) + penalty.value(target) - penalty.value(V)
    t = 1.0
    for _ in range(_HALVINGS):
        new = V + t * D
        if np.any(D) and objective(new) <= before + _ARMIJO * t * expected + 1e-14 * abs(before):
            return new
        t *= 0.5
    return None
