"""The solvers of quadratic weight steps in one table, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mssl._typing import Array
from mssl._validation import refused
from mssl.penalties import EntrywisePenalty
from mssl.solvers.base import WeightStep
from mssl.solvers.descent import descend
from mssl.solvers.linear import conjugate_gradient
from mssl.solvers.proximal import accelerated, descend_composite
from mssl.solvers.quadratic import Quadratic, StepProblem

Problem: TypeAlias = StepProblem[Quadratic]


@dataclass(frozen=True)
class Rule:
    """A solver: its name, the problems and penalties that it takes, its rough cost, and the function.

    Attributes
    ----------
    name : str
        What users call it.
    needs : str
        What it takes, in words.
    cost : callable problem → float
        Cost relative to the other solvers, of which "auto" is the cheapest; infinite for a step that it does not take.
    solve : callable (problem, W0, tol=, max_iter=) → WeightStep
        The solver.
    """

    name: str
    needs: str
    cost: Callable[[Problem], float]
    solve: Callable[..., WeightStep]


def _for(*, single: float = np.inf, absent: float = np.inf, tied: float = np.inf) -> Callable[[Problem], float]:
    """A cost that depends on the penalty: on single weights, none, or one that ties the tasks together."""

    def cost(problem: Problem) -> float:
        if not isinstance(problem.penalty, EntrywisePenalty):
            return tied
        return absent if problem.penalty.absent else single

    return cost


def _of_two_decompositions(problem: Problem) -> float:
    """Of as many features as in some thirty iterations."""
    fits = problem.loss.is_shared and bool((problem.loss.task_scale > 0).all())
    return 30.0 / (problem.loss.n_features + 1.0) if fits and np.isfinite(_for(absent=1.0)(problem)) else np.inf


RULES = (
    Rule("coordinate", "penalties on single weights", _for(single=0.1, absent=10.0), descend),
    Rule("cg", "steps without a penalty", _for(absent=1.0), conjugate_gradient),
    Rule(
        "sylvester",
        "steps without a penalty on one Gram for all tasks and positive task scales",
        _of_two_decompositions,
        conjugate_gradient,
    ),
    Rule("proximal", "penalties that tie the tasks together", _for(tied=1.0), descend_composite),
    Rule("fista", "any penalty", lambda problem: 100.0, accelerated),
)


def choose(problem: Problem, name: str = "auto") -> Rule:
    """The solver of that name, or with "auto" the cheapest of those that take the step."""
    if name == "auto":
        return min(RULES, key=lambda rule: rule.cost(problem))
    rule = next((rule for rule in RULES if rule.name == name), None)
    if rule is None:
        raise refused("solver", name, f"allowed are {', '.join(repr(rule.name) for rule in RULES)}", "Use 'auto'.")
    if rule.cost(problem) == np.inf:
        raise refused("solver", name, f"it solves {rule.needs}", "Use 'auto'.")
    return rule


def solve_quadratic(
    problem: Problem, W0: Array, *, solver: str = "auto", tol: float, max_iter: int | None = None
) -> WeightStep:
    r"""Minimise :math:`\ell(W) + \tfrac12\operatorname{tr}(WCW^\top) + g(W)`.

    Parameters
    ----------
    problem : StepProblem
        Loss, coupling and penalty; for the loss see :func:`mssl.solvers.quadratic.make_quadratic`.
    W0 : ndarray of shape (K, d)
        Start.
    solver : str
        A name of the table, or "auto" for the cheapest of those that take the problem.
    tol : float
        Absolute bound of the suboptimality at which to stop.
    max_iter : int, optional
        Largest number of iterations, as the solver counts them; default that of the solver.

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
    options: dict[str, float] = {"tol": tol} if max_iter is None else {"tol": tol, "max_iter": max_iter}
    return choose(problem, solver).solve(problem, W0, **options)
