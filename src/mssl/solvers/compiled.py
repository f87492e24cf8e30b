r"""Small problems in one compiled loop: the same rounds as :mod:`mssl.solvers.alternation`, without Python in between.

With a dozen tasks and a few dozen features the arithmetic of a round takes some ten microseconds, its calls from
Python a hundred. Where the compiled loop cannot go on (a graph step breaks down, no dual point is known) the general
one, which knows more ways out, continues from the last point.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.glasso.solver import GlassoStatus, GraphicalLassoResult
from mssl.kernels import call, plain
from mssl.solvers.alternation import LOOSE, SHARE, TURNS, FitResult, Record, WeightProblem, alternate, verdict
from mssl.solvers.base import Status
from mssl.solvers.gaussian import GaussianProblem
from mssl.solvers.quadratic import GramQuadratic
from mssl.structures import SparsePrecision
from mssl.structures.base import Frame, Structure, StructureStep

Array = NDArray[np.float64]
Limits = tuple[int, int]  # most rounds, most inner iterations

_MOST_TASKS = 64  # beyond, dense algebra by LAPACK and components pay
_MOST_FEATURES = 256  # without a penalty
_MOST_PENALISED = 100  # with one; beyond, linear solves on the support take turns with sweeps
_MOST_BLOCK = 64  # features up to which the kernels' own factorisations keep up with LAPACK's
_NONE = np.empty((0, 0))
_CHUNK = 10  # rounds between two looks for a stall


def applies(problem: WeightProblem, structure: Structure) -> bool:
    """Whether the compiled loop knows this problem: least squares on small Grams, a plain sparse precision."""
    if not isinstance(problem, GaussianProblem) or not isinstance(problem.quadratic, GramQuadratic):
        return False
    if type(structure) is not SparsePrecision or not structure.joint or structure.solver != "bcd":
        return False
    K, d = problem.n_tasks, problem.n_features
    if not 3 <= K <= _MOST_TASKS or d > _MOST_FEATURES:
        return False
    if problem.solver == "coordinate" or problem.penalised:
        return problem.solver in ("auto", "coordinate") and d < _MOST_PENALISED
    return problem.solver == "auto" and (problem.quadratic.is_shared or d <= _MOST_BLOCK)


class SmallProblem:
    """A Gaussian problem as the kernels want it; preconditioners live for one fit, so that no fit depends on another.

    Parameters
    ----------
    problem : GaussianProblem
        A problem to which this module :func:`applies`.
    """

    def __init__(self, problem: GaussianProblem) -> None:
        quadratic = problem.quadratic
        assert isinstance(quadratic, GramQuadratic)
        K, d = problem.n_tasks, problem.n_features
        smooth = problem.solver == "auto" and not problem.penalised
        gram, eigenvalues, factors = quadratic.gram, np.empty(0), np.empty((0, 0, 0))
        if smooth and quadratic.is_shared:
            eigenvalues, vectors = quadratic.eigen
            gram = vectors[None]
        elif smooth:
            factors = np.empty((K, d, d))
        self.problem, self.quadratic, self.thresholds = problem, quadratic, plain(problem.thresholds)
        tables = (gram, quadratic.task_scale, quadratic.linear, eigenvalues, np.zeros(K), factors)
        self.arrays = tuple(map(plain, tables))
        self.constants = plain(quadratic.constants)

    def start(
        self, strength: float, mean_variance: float, floors: Array, v: Array, tol: float, gap: float, limits: Limits
    ) -> tuple[Array, Array] | None:
        """The diagonal fixed point's v and W from the ridge's v, or None where a kernel could not go on."""
        from mssl.kernels import joint as kernels

        W = np.zeros(self.quadratic.linear.shape)
        v = np.array(v, dtype=float)
        fixed = (self.arrays, self.constants, self.thresholds, (float(strength), 0.0, v, plain(floors), _NONE))
        limit = (tol, gap, *map(float, limits), np.nan)  # as many as rounds have: one signature
        point = (float(mean_variance), W, np.zeros(W.shape), _NONE, _NONE)
        done = call(kernels.small_fit, True, *fixed, *point, limit, False, np.empty(0), np.empty((0, 0, 0)), _NONE)
        return (v, W) if done > 0 else None

    def alternate(
        self,
        structure: SparsePrecision,
        frame: Frame,
        W: Array,
        step: StructureStep,
        *,
        mean_variance: float = 0.0,
        tol: float = 1e-6,
        max_iter: int = 200,
        max_inner: int = 2000,
        monitor: Callable[[Record], bool] | None = None,
        ready: bool = False,
    ) -> FitResult:
        """:func:`mssl.solvers.alternation.alternate` in compiled rounds.

        With ``ready`` the weights are the best for the given Ω, a fit's or the start's, so Ω is first to move.
        """
        from mssl.kernels import joint as kernels

        W, omega, sigma = (np.array(a, dtype=float, order="C") for a in (W, step.precision, step.covariance))
        HW = np.ascontiguousarray(self.quadratic.product(W))
        fixed = (self.arrays, self.constants, self.thresholds, _prior(structure, frame), float(mean_variance))
        history: list[Record] = []
        last, rounds, status, stop = np.empty(0), 1, None, False
        limits = (float(tol), SHARE, LOOSE, float(TURNS), float(max_inner))
        state = np.array([-1.0, np.inf, np.nan, kernels.REST - ready, kernels.REST, 0.0, float(ready)])
        change = np.zeros((2, len(W) + 1, W.shape[1]))
        while status is None and not stop and rounds > 0 and len(history) < max_iter:
            began = perf_counter()
            table = np.empty((1 if monitor is not None else min(_CHUNK, max_iter - len(history)), 6))
            moves = ready or bool(history)
            rounds = call(kernels.small_fit, False, *fixed, W, HW, omega, sigma, limits, moves, state, change, table)
            table = table[: rounds if rounds > 0 else -rounds - 1]
            _record(history, table, perf_counter() - began)
            if len(table):
                last = table[-1]
                stop = monitor is not None and monitor(history[-1])
                status = verdict(history, tol)
        if rounds < 0 and len(last):
            # Turns of the round that broke down may have moved Ω on.
            last[5] = np.linalg.slogdet(omega)[1]
        here = _step(structure, frame, omega, sigma, last) if history else step
        if rounds < 0 and not stop and status is None:
            options: dict[str, Any] = {"mean_variance": mean_variance, "tol": tol, "monitor": monitor}
            options |= {"max_iter": max_iter, "max_inner": max_inner, "history": history}
            return alternate(self.problem, structure, frame, W, here, **options)
        return FitResult(
            W=W,
            intercepts=self.problem.intercepts(W),
            structure=here,
            mean=structure.couple(here, mean_variance).mean(W) if mean_variance > 0 else np.zeros(W.shape[1]),
            status=status or Status.MAX_ITER,
            objective=history[-1].objective,
            relative_gap=history[-1].relative_gap,
            history=history,
            frame=frame,
        )


def _record(history: list[Record], table: Array, seconds: float) -> None:
    """Append the rounds of a table."""
    for objective, weights, graph, edges in table[:, :4].tolist():
        relative = (weights + graph) / max(1.0, abs(objective))
        history.append(Record(len(history) + 1, objective, weights, graph, relative, int(edges), seconds / len(table)))


def _prior(structure: SparsePrecision, frame: Frame) -> tuple[float, float, Array, Array, Array]:
    """η, ν/r, v, e and the penalties of the edges."""
    L = structure.alpha * structure.edge_scales(frame)
    forbidden = structure.forbidden(frame)
    if forbidden is not None:
        L[forbidden] = np.inf
    arrays = (plain(frame.variances), plain(structure.floors(frame)), plain(L))
    return structure.strength, float(structure.shrinkage), *arrays


def _step(structure: SparsePrecision, frame: Frame, omega: Array, sigma: Array, last: Array) -> StructureStep:
    """Ω with what the last round knows about it."""
    gap, value, log_determinant = float(last[2]), float(last[4]), float(last[5])
    weight = structure.weight(frame)
    warm = GraphicalLassoResult(
        precision=omega,
        covariance=sigma,
        gap=gap / weight,
        objective=value / weight,
        status=GlassoStatus.CONVERGED,
        n_iter=0,
        components=np.zeros(len(omega), dtype=np.int64),
        log_determinant=log_determinant,
    )
    return StructureStep(omega, sigma, value, gap, warm)
