r"""The alternation: best weights for the task precision, best precision for the weights, until neither moves.

Each round ends with a joint certificate at one and the same :math:`(W, \Omega)`: the weight step's gap plus the
structure's gap, relative to max(1, |F|). It bounds how much either block alone could still lower F
(partial optimality, which for this biconvex F is stationarity). F never rises from one round to the next.

Where rounds gain little, they go on gaining little in the same direction. The structure is therefore fitted to weights
some way ahead of the present ones, Nesterov's momentum; a round that raises F is taken back, and momentum begins anew.

References
----------
Guminov, Dvurechensky, Tupitsa & Gasnikov (2021), On a combination of alternating minimization and Nesterov's momentum,
Proceedings of the 38th International Conference on Machine Learning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mssl.model.coupling import Coupling
from mssl.model.objective import mean_value
from mssl.solvers.base import Status, WeightStep
from mssl.structures.base import Frame, Structure, StructureStep

Array = NDArray[np.float64]

SHARE = 0.3  # each block gets this share of the allowed gap
LOOSE = 0.1  # while far from the end, each block is solved to this share of the present gap
TURNS = 2  # most turns between mean and Ω for one set of weights
_PATIENCE = 5  # rounds without progress of F or of the gap before giving up


class WeightProblem(Protocol):
    """The loss and the penalty on W, for a fixed task precision."""

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""

    @property
    def n_features(self) -> int:
        """Number of features d."""

    def value(self, W: Array) -> float:
        """Loss plus penalty at W, intercepts at their optimum."""

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Minimise loss + penalty + coupling from W, to the absolute gap ``tol``."""

    def rows(self, W: Array) -> Array:
        """Q as (K, r): the weights themselves, or the residuals."""

    def intercepts(self, W: Array) -> Array:
        """The best intercepts for W."""


class Record(NamedTuple):
    """One round of the alternation."""

    iteration: int
    objective: float
    gap_weights: float
    gap_structure: float
    relative_gap: float
    edges: int
    seconds: float


@dataclass(frozen=True, eq=False)
class FitResult:
    """Weights, task precision and how they were reached.

    Attributes
    ----------
    W : ndarray of shape (K, d)
        Weights in the solver's units (features centred and scaled).
    intercepts : ndarray of shape (K,)
        Intercepts in the same units.
    structure : StructureStep
        The task precision, its inverse and its gap.
    mean : ndarray of shape (d,)
        The shared mean (zero where there is none).
    status : Status
        How it ended.
    objective : float
        F at the end.
    relative_gap : float
        The joint certificate, relative to max(1, |F|).
    history : list of Record
        One record a round.
    frame : Frame
        The constants that make F one fixed function.
    """

    W: Array
    intercepts: Array
    structure: StructureStep
    mean: Array
    status: Status
    objective: float
    relative_gap: float
    history: list[Record] = field(repr=False)
    frame: Frame = field(repr=False)

    @property
    def message(self) -> str:
        """The status in words, with the figures."""
        return f"{self.status.value} (relative gap {self.relative_gap:.2e} after {len(self.history)} rounds)"


def alternate(
    problem: WeightProblem,
    structure: Structure,
    frame: Frame,
    W: Array,
    step: StructureStep,
    *,
    mean_variance: float = 0.0,
    tol: float = 1e-6,
    max_iter: int = 200,
    max_inner: int = 2000,
    monitor: Callable[[Record], bool] | None = None,
    history: list[Record] | None = None,
) -> FitResult:
    """Minimise F over weights and structure from a start.

    Parameters
    ----------
    problem : WeightProblem
        Loss and penalty.
    structure : Structure
        What relates the tasks.
    frame : Frame
        The structure's constants.
    W, step : ndarray of shape (K, d) and StructureStep
        The start.
    mean_variance : float
        τ² of the shared mean; 0 for none.
    tol : float
        Joint relative certificate to reach.
    max_iter, max_inner : int
        Limits of the rounds and of each weight step.
    monitor : callable, optional
        Called with each round's record; a true answer stops the alternation.
    history : list of Record, optional
        Rounds that led to the start; new ones are appended.
    """
    history = [] if history is None else history
    allowed = SHARE * tol * max(1.0, abs(problem.value(W)))
    moved, idle = np.inf, 0
    kept: Array | None = None
    momentum = _Momentum()
    began = perf_counter()
    while True:
        coupling = structure.couple(step, mean_variance)
        weights = problem.solve(coupling, W, tol=allowed, max_iter=max_inner)
        change, W = _change(W, weights.W), weights.W
        view = _View(structure, frame, problem.rows(W), mean_variance)
        step, S, mean, share = view.look(step, coupling)
        point = _Point(W, coupling, view, step, S, mean, problem.value(W) + share, weights.gap)
        if momentum.failed(point):
            point = momentum.back()
        else:
            momentum.reached(point)
            history.append(point.record(len(history) + 1, perf_counter() - began))
            stop = monitor(history[-1]) if monitor is not None else False
            status = verdict(history, tol) if structure.joint else _settled(history[-1], max(change, moved), tol)
            if status is not None or stop or len(history) >= max_iter:
                break
            began = perf_counter()
        W, step, S, needed = point.W, point.step, point.S, SHARE * tol * point.size
        # Far from the optimum a dual bound can be much too wide: what the last round gained then says more.
        gained = history[-2].objective - point.objective if len(history) > 1 else np.inf
        allowed = max(needed, LOOSE * min(point.gap, gained))
        if structure.learned:
            view = point.view
            if structure.joint:
                W, view, S = momentum.ahead(point)
            else:
                S = kept = _averaged(kept, S, len(history))
            # The same weights again: the last Ω was good enough for its solver, but not for the certificate.
            idle = idle + 1 if change == 0.0 else 0
            step = view.improve(step, S, needed, LOOSE * min(step.gap, 3 * gained), 0.1**idle)
            moved = _change(point.step.precision, step.precision)
    return FitResult(
        W=point.W,
        intercepts=problem.intercepts(point.W),
        structure=point.step,
        mean=point.mean,
        status=status or Status.MAX_ITER,
        objective=point.objective,
        relative_gap=history[-1].relative_gap,
        history=history,
        frame=frame,
    )


@dataclass(frozen=True, eq=False)
class _View:
    """The structure's side of F for fixed weights: the shared mean and Ω."""

    structure: Structure
    frame: Frame
    rows: Array
    mean_variance: float

    def look(self, step: StructureStep, coupling: Coupling) -> tuple[StructureStep, Array, Array, float]:
        """Ω certified at these weights, the moment, the mean, and the share of F."""
        mean = coupling.mean(self.rows)
        S = self.structure.moment(self.rows - mean, self.frame, coupling.rho)
        step = self.structure.certify(S, step, self.frame)
        total, used = float(step.precision.sum()), self.structure.normalised_rows(self.frame)
        return step, S, mean, step.value + mean_value(mean, self.mean_variance, total, self.structure.strength, used)

    def improve(
        self, step: StructureStep, S: Array, needed: float, enough: float, tighter: float = 1.0
    ) -> StructureStep:
        """Better Ω; with a shared mean also better means, in turns, since that costs no pass over the data."""
        goal = max(needed, enough)
        for _ in range(TURNS):
            if step.gap <= needed:
                break
            step = self.structure.update(S, step, self.frame, tighter * max(needed, min(enough, LOOSE * step.gap)))
            if self.mean_variance <= 0 or not self.structure.joint:
                break
            step, S, _, _ = self.look(step, self.structure.couple(step, self.mean_variance))
            if step.gap <= goal:
                break
        return step


@dataclass(frozen=True, eq=False)
class _Point:
    """Where a round ended."""

    W: Array
    coupling: Coupling
    view: _View
    step: StructureStep
    S: Array
    mean: Array
    objective: float
    gap_weights: float

    @property
    def gap(self) -> float:
        """The joint certificate."""
        return self.gap_weights + self.step.gap

    @property
    def size(self) -> float:
        """What gaps are relative to."""
        return max(1.0, abs(self.objective))

    def record(self, iteration: int, seconds: float) -> Record:
        """The round for the history."""
        omega, relative = self.step.precision, self.gap / self.size
        edges = int(np.count_nonzero(omega) - np.count_nonzero(omega.diagonal())) // 2
        return Record(iteration, self.objective, self.gap_weights, self.step.gap, relative, edges, seconds)


def momentum_share(rounds: int) -> float:
    """How much of the last change to add after so many rounds with momentum, Nesterov's sequence."""
    return (rounds - 1) / (rounds + 2)


class _Momentum:
    """Weights ahead of the last round's, in the direction of its change, by a share that grows from round to round."""

    def __init__(self) -> None:
        self.points: list[_Point] = []  # at most two rounds since the momentum began
        self.rounds = 0
        self.used = False

    def failed(self, point: _Point) -> bool:
        """Whether the round made from weights ahead raised F."""
        return self.used and not point.objective <= self.points[-1].objective

    def back(self) -> _Point:
        """The point before the round that failed; momentum begins anew from it."""
        self.points, self.rounds, self.used = self.points[-1:], 1, False
        return self.points[0]

    def reached(self, point: _Point) -> None:
        """Count a round."""
        self.points, self.rounds, self.used = [*self.points[-1:], point], self.rounds + 1, False

    def ahead(self, point: _Point) -> tuple[Array, _View, Array]:
        """Weights, their view and moment, ahead of the point where there is a direction."""
        if self.rounds < 2:
            return point.W, point.view, point.S
        self.used = True
        share, before = momentum_share(self.rounds), self.points[0]
        rows = point.view.rows + share * (point.view.rows - before.view.rows)
        view, coupling = replace(point.view, rows=rows), point.coupling
        S = view.structure.moment(rows - coupling.mean(rows), view.frame, coupling.rho)
        return point.W + share * (point.W - before.W), view, S


def _change(before: Array, after: Array) -> float:
    """Relative change of an array."""
    return float(np.linalg.norm(after - before) / max(float(np.linalg.norm(after)), 1e-300))


def _averaged(kept: Array | None, S: Array, rounds: int) -> Array:
    """The mean of the moments of late rounds: ranks that flip for ever would keep a fixed-point iteration going."""
    late = rounds - 2 * _PATIENCE
    return S if kept is None or late < 1 else np.asarray(kept + (S - kept) / (late + 1))


def _settled(last: Record, change: float, tol: float) -> Status | None:
    """Whether a fixed-point iteration is at its end: gaps are about values, so weights and Ω count to their root."""
    if not np.isfinite(last.objective):
        return Status.DIVERGED
    return Status.SETTLED if change <= np.sqrt(tol) else None


def verdict(history: list[Record], tol: float) -> Status | None:
    """Whether the rounds so far are an end: certified, not finite, or without progress for some time."""
    last = history[-1]
    if not np.isfinite(last.objective):
        return Status.DIVERGED
    if last.relative_gap <= tol:
        return Status.CONVERGED
    if len(history) <= 2 * _PATIENCE:
        return None
    earlier = history[:-_PATIENCE]
    flat = earlier[-1].objective - last.objective <= 1e-15 * max(1.0, abs(last.objective))
    stuck = min(r.relative_gap for r in history[-_PATIENCE:]) >= 0.9 * min(r.relative_gap for r in earlier)
    return Status.STALLED if flat and stuck else None
