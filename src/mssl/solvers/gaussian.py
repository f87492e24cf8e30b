"""The weight step of least squares, as the alternation sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mssl.model.coupling import Coupling
from mssl.solvers.base import WeightStep
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic
from mssl.solvers.weights import solve_quadratic

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GaussianProblem:
    r"""Least squares with noise precisions s_k and an ℓ1 penalty, :math:`\sum_k t_k\|w_k\|_1`.

    Attributes
    ----------
    quadratic : GramQuadratic or DesignQuadratic
        The loss, noise precisions included.
    thresholds : ndarray of shape (K,)
        The t_k.
    solver : str
        As in :func:`mssl.solvers.weights.solve_quadratic`.
    """

    quadratic: GramQuadratic | DesignQuadratic
    thresholds: Array
    solver: str = "auto"

    def __post_init__(self) -> None:
        # Grams that one fit asks for must not change the path of another.
        if isinstance(self.quadratic, GramQuadratic):
            object.__setattr__(self, "quadratic", self.quadratic.own())

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""
        return self.quadratic.n_tasks

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.quadratic.n_features

    @cached_property
    def penalised(self) -> bool:
        """Whether any task has an ℓ1 penalty."""
        return bool(self.thresholds.any())

    def value(self, W: Array) -> float:
        """Loss plus penalty."""
        return self.quadratic.value(W) + float(self.thresholds @ np.abs(W).sum(axis=1))

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Best weights for a coupling."""
        return solve_quadratic(
            self.quadratic, coupling, self.thresholds, W, solver=self.solver, tol=tol, max_iter=max_iter
        )

    def rows(self, W: Array) -> Array:
        """The weights themselves."""
        return W

    def intercepts(self, W: Array) -> Array:
        """The best intercepts."""
        return self.quadratic.intercepts(W)


def scale_by_task(quadratic: GramQuadratic | DesignQuadratic, s: Array) -> GramQuadratic | DesignQuadratic:
    """The same loss with task k multiplied by s_k; Grams are shared, not copied."""
    if isinstance(quadratic, GramQuadratic):
        scaled = GramQuadratic(
            quadratic.gram,
            s[:, None] * quadratic.linear,
            s * quadratic.constants,
            s * quadratic.task_scale,
            quadratic.target_means,
            quadratic.feature_means,
        )
        if "eigen" in quadratic.__dict__:
            scaled.__dict__["eigen"] = quadratic.eigen
        return scaled
    design = quadratic.design
    target = quadratic.target + design.per_task(quadratic.target_means)
    return DesignQuadratic(design, design.per_task(s) * quadratic.c, target, quadratic.intercept)
