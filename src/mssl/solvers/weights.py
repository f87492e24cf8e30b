"""The weight step of the alternation: the table of solvers, and one problem class for all losses and penalties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from mssl._typing import Array
from mssl._validation import refused, warn
from mssl.kernels import TaskLoss, plain
from mssl.model.coupling import Coupling
from mssl.model.task_matrix import SMALL
from mssl.penalties import EntrywisePenalty, Penalty
from mssl.solvers.base import INNER_ITERATIONS, PATIENCE, Status, WeightStep
from mssl.solvers.descent import descend, descend_on_support
from mssl.solvers.glm import GLMLoss, proximal_newton
from mssl.solvers.linear import conjugate_gradient, solve_exactly
from mssl.solvers.proximal import accelerated, descend_composite
from mssl.solvers.quadratic import MANY_FEATURES, MOST_UNKNOWNS, Problem, Quadratic, StepProblem, WeightProblem

# Safeguard: limit of the iterations in all Newton steps of one weight step. Usual weight steps take several hundred.
_INNER_BUDGET = 20_000
# Relative error of the loss above which rows replace Grams. A smaller one uses rows, which take longer, more often; a
# larger one lets rounding into the certificates.
_LOST_DIGITS = 1e-10


class Rule(NamedTuple):
    """A solver of the weight step: its name, and the steps that it solves.

    Attributes
    ----------
    name : str
        The name for users.
    needs : str
        The steps that the solver can take, in words.
    kinds : tuple of str
        The kinds of steps that the solver can take: the penalty is on single weights ("single"), ties tasks together
        ("tied") or is absent ("one Gram" or "none").
    solve : callable (problem, W0, tol=, max_iter=) → WeightStep
        The function that solves a step.
    """

    name: str
    needs: str
    kinds: tuple[str, ...]
    solve: Callable[..., WeightStep]


_ONE_GRAM = "steps without a penalty on one Gram for all tasks and positive task scales"
# The solver "auto" is the first one that can take a step, which is the fastest one.
RULES = (
    Rule("sylvester", _ONE_GRAM, ("one Gram",), conjugate_gradient),
    Rule("cg", "steps without a penalty", ("none", "one Gram"), conjugate_gradient),
    Rule("coordinate", "penalties on single weights", ("single", "none", "one Gram"), descend),
    Rule("proximal", "penalties that tie the tasks together", ("tied",), descend_composite),
    Rule("fista", "any penalty", ("single", "none", "one Gram", "tied"), accelerated),
)


def choose(loss: Quadratic, penalty: EntrywisePenalty | Penalty, name: str = "auto") -> Rule:
    """The solver with the given name; for "auto", the first solver that can take steps with this loss and penalty."""
    if name == "admm":
        warn("solver='admm' is removed, and 'auto' takes its place. The name becomes an error in 0.3.", FutureWarning)
        name = "auto"
    if not isinstance(penalty, EntrywisePenalty):
        kind = "tied"
    elif not penalty.absent:
        kind = "single"
    else:
        kind = "one Gram" if loss.is_shared and (loss.task_scale > 0).all() else "none"
    able = [rule for rule in RULES if kind in rule.kinds]
    if name == "auto":
        return able[0]
    rule = next((rule for rule in RULES if rule.name == name), None)
    if rule is None:
        raise refused("solver", name, f"allowed are {', '.join(repr(rule.name) for rule in RULES)}", "Use 'auto'.")
    if rule not in able:
        raise refused("solver", name, f"it solves {rule.needs}", "Use 'auto'.")
    return rule


def solve_quadratic(
    problem: Problem, W0: Array, *, solver: str = "auto", tol: float, max_iter: int = 10_000
) -> WeightStep:
    r"""Minimise :math:`\ell(W) + \tfrac12\operatorname{tr}(WCW^\top) + g(W)`.

    Parameters
    ----------
    problem : StepProblem
        Loss, coupling and penalty; for the loss see :func:`mssl.solvers.quadratic.make_quadratic`.
    W0 : ndarray of shape (K, d)
        Start.
    solver : str
        A name in :data:`RULES`, or "auto" for the first solver that can take the step.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int
        Largest number of iterations, as the solver counts them.

    Returns
    -------
    WeightStep

    Examples
    --------
    >>> import numpy as np
    >>> loss = Quadratic(2 * np.eye(2)[None], np.array([[4.0, 0.5]]), np.zeros(1))
    >>> from mssl.model.coupling import Coupling
    >>> problem = StepProblem.of(loss, Coupling.diagonal_only(np.ones(1)), np.ones(1))
    >>> solve_quadratic(problem, np.zeros((1, 2)), tol=1e-10).W
    array([[1., 0.]])
    >>> from mssl.penalties import L21
    >>> loss = Quadratic(np.eye(2)[None], np.array([[3.0, 0.1], [4.0, 0.2]]), np.array([12.0, 12.0]))
    >>> free = Coupling.diagonal_only(np.zeros(2))
    >>> solve_quadratic(StepProblem.of(loss, free, L21(1.0)), np.zeros((2, 2)), tol=1e-12).W.round(6)
    array([[2.4, 0. ],
           [3.2, 0. ]])
    """
    return choose(problem.loss, problem.penalty, solver).solve(problem, W0, tol=tol, max_iter=max_iter)


def _doubted(step: WeightStep, doubt: float, tol: float) -> WeightStep:
    """The same step with the rounding error ``doubt`` added to its gap, which may then exceed the tolerance."""
    ended = step.status is Status.CONVERGED and step.gap + doubt > tol
    return replace(step, gap=step.gap + doubt, status=Status.STALLED if ended else step.status)


def _lost_digits(loss: Quadratic, W: Array) -> bool:
    """Whether the loss by Grams is inaccurate, because its terms are much larger than the loss itself."""
    if loss.by_rows:
        return False
    rounding = loss.rounding(W)
    return not (rounding <= _LOST_DIGITS or rounding <= _LOST_DIGITS * loss.value(W))


@dataclass(frozen=True, eq=False, kw_only=True)
class CoefficientProblem(WeightProblem):
    """A loss and a penalty on the weights, for structures on the coefficients. In a step, ridges are in the coupling.

    Attributes
    ----------
    source : Quadratic or GLMLoss
        The loss as a function of the weights, noise precisions included.
    solver : str
        A name in :data:`RULES`. For losses other than least squares, it solves the quadratic steps.
    """

    source: Quadratic | GLMLoss
    solver: str = "auto"

    @cached_property
    def loss(self) -> Quadratic | GLMLoss:
        """The loss as a function of the unknowns."""
        return self.source.of_unknowns(self.unknowns)

    @cached_property
    def rule(self) -> Rule:
        """The solver of quadratic steps; it does not depend on the coupling."""
        assert isinstance(self.loss, Quadratic)
        return choose(self.loss, self.penalty, self.solver)

    @cached_property
    def compiled(self) -> TaskLoss | None:
        """The problem in the form that compiled rounds take; None if they cannot solve it.

        Compiled rounds solve least squares on Grams with few tasks and features.
        """
        loss, penalty = self.loss, self.penalty
        if not isinstance(loss, Quadratic) or loss.by_rows or not loss.formed or self.ridge is not None:
            return None
        if not isinstance(penalty, EntrywisePenalty) or not penalty.convex or self.unknowns.matrix is not None:
            return None
        name, (K, d) = self.rule.name, loss.linear.shape
        # With so few weights, the compiled weight step is the descent that "coordinate" would use.
        if name not in ("coordinate", "cg", "sylvester") or K > SMALL or K * d > SMALL**2 or d >= MANY_FEATURES:
            return None
        tables = (plain(loss.gram), plain(loss.task_scale), plain(loss.linear), loss.null_value)
        if name == "coordinate":
            return TaskLoss(*tables, penalty.kernel, None)
        return None if loss.inverses is None else TaskLoss(*tables, None, loss.inverses)

    def step(self, coupling: Coupling) -> StepProblem[Any]:
        """The problem in the unknowns for a coupling of the weights."""
        coupling = coupling if self.ridge is None else replace(coupling, ridge=self.ridge)
        return StepProblem(self.loss, self.unknowns.coupling(coupling), self.penalty)

    def value(self, W: Array) -> float:
        """Loss plus penalty and ridge."""
        loss, V = self.loss, self.unknowns.of_weights(W)
        if isinstance(loss, Quadratic) and _lost_digits(loss, V):
            loss = loss.on_rows()
        return loss.value(V) + self.penalties(W)

    def has_digits(self, coupling: Coupling, W: Array, tol: float) -> bool:
        """Whether Grams are accurate enough for the loss at W and for a certificate within ``tol``."""
        loss = self.loss
        if not isinstance(loss, Quadratic) or loss.by_rows or not isinstance(self.penalty, EntrywisePenalty):
            return True
        return not _lost_digits(loss, W) and self.step(coupling).rounding(W) <= 0.1 * tol

    def related(self, W: Array) -> Array:
        """The weights themselves."""
        return W

    def intercepts(self, W: Array) -> Array:
        """The best intercepts."""
        return self.source.intercepts(W)

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Best weights for a coupling."""
        problem, V = self.step(coupling), self.unknowns.of_weights(W)
        if isinstance(problem.loss, GLMLoss):
            step = self._solve_glm(problem, V, tol, max_iter)
        else:
            step = self.rule.solve(problem, V, tol=tol, max_iter=max_iter)
            if isinstance(self.penalty, EntrywisePenalty):
                step = self._checked(step, problem, tol)
        return replace(step, W=self.unknowns.weights(step.W))

    def _checked(self, step: WeightStep, problem: Problem, tol: float) -> WeightStep:
        """The same step with rounding added to its gap. If that is too much, the step is solved exactly if possible."""
        loss, doubt = problem.loss, problem.rounding(step.W)
        certain = step.status is Status.CONVERGED and step.gap + doubt <= tol
        # Without a penalty, the gap for a singular C is a violation of the optimality condition and bounds nothing.
        bounded = self.penalised or problem.bound.covariance is not None
        lost = _lost_digits(loss, step.W)
        if step.status is Status.STATIONARY or (certain and bounded and not lost):
            return step
        better, exact = None, replace(problem, loss=loss.on_rows())
        if not self.penalised:
            better = solve_exactly(exact, tol=tol)
        elif lost and step.W.size <= MOST_UNKNOWNS and exact.loss.by_rows and problem.bound.certified:
            by_rows = descend_on_support(exact, step.W, tol=tol)
            better = _doubted(by_rows, exact.rounding(by_rows.W), tol)
        if better is not None and not (bounded and better.gap > step.gap + doubt):
            return replace(better, n_iter=step.n_iter + better.n_iter)
        return _doubted(step, doubt, tol)

    def _solve_glm(self, problem: StepProblem[GLMLoss], V: Array, tol: float, max_iter: int) -> WeightStep:
        budget = min(_INNER_BUDGET, max(10 * max_iter, INNER_ITERATIONS))
        if not isinstance(self.penalty, EntrywisePenalty):  # steps are expensive if a penalty ties many weights
            budget = min(budget, max(_INNER_BUDGET * MOST_UNKNOWNS // V.size, INNER_ITERATIONS))
        solve = partial(solve_quadratic, solver=self.solver)
        step = proximal_newton(problem, V, solve, tol=tol, max_iter=max_iter, budget=budget)
        if self.penalised or problem.bound.covariance is not None:
            return step
        # The violation of the optimality condition bounds nothing. The expected gain of a Newton step decides instead.
        goal = tol
        for _ in range(PATIENCE):
            gain = self._expected_gain(problem, step.W)
            if step.status is not Status.CONVERGED or gain <= tol:
                break
            goal *= 0.1 * tol / gain
            left = max(max_iter - step.n_iter, 0)
            more = proximal_newton(problem, step.W, solve, tol=goal, max_iter=left, budget=budget)
            step = replace(more, n_iter=step.n_iter + more.n_iter)
        return _doubted(step, max(gain - step.gap, 0.0), tol)

    @staticmethod
    @np.errstate(all="ignore")
    def _expected_gain(problem: StepProblem[GLMLoss], V: Array) -> float:
        r"""Squared Newton decrement :math:`g^\top(H + C)^+g`, twice the gain of a Newton step; 0 if unknown.

        For separable labels the loss falls exponentially towards its infimum, and this is the whole remaining gain.
        """
        loss, coupling = problem.loss, problem.coupling
        point = loss.evaluate(V)
        model, G = loss.model(point, observed=True), point.derivatives[0] + coupling.dot(V)
        finite = np.isfinite(model.diagonal).all() and np.isfinite(model.linear).all() and np.isfinite(G).all()
        target = solve_exactly(StepProblem(model, coupling, problem.penalty), tol=0.0) if finite else None
        return 0.0 if target is None else max(float(np.vdot(G, V - target.W)), 0.0)
