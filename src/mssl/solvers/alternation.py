r"""The alternation: best weights for the task precision, best precision for the weights, until neither changes.

Each round ends with a joint certificate at one and the same :math:`(W, \Omega)`: the weight step's gap plus the
structure's gap, relative to max(1, |F|). It bounds how much either block alone could still lower F
(partial optimality, which for this biconvex F is stationarity). F never rises from one round to the next: the
alternation undoes a round that raises F beyond rounding. If the structure is not learned, one weight step is the whole
fit.

Successive rounds tend to move in the same direction. The structure is therefore fitted to weights that are extrapolated
along the last change (Nesterov's momentum). If this raises F, momentum starts again from zero.

References
----------
Guminov, Dvurechensky, Tupitsa & Gasnikov (2021), On a combination of alternating minimization and Nesterov's momentum,
Proceedings of the 38th International Conference on Machine Learning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from mssl._typing import Array, Moment
from mssl.exceptions import DataError
from mssl.glasso.solver import SLOW
from mssl.kernels import BROKE, LIMIT, FitRounds, TaskLoss, plain
from mssl.model.coupling import Coupling
from mssl.model.objective import Point, evaluate
from mssl.model.task_matrix import count_entries
from mssl.solvers.base import NEGLIGIBLE, PATIENCE, SMALLEST_GAIN, Status, WeightStep
from mssl.solvers.quadratic import WeightProblem
from mssl.structures.base import Structure, StructureScale, StructureStep

# Share of the allowed gap that each of the two blocks may use. A smaller share makes the steps slower; with more than
# 1/2 the two gaps together could exceed the tolerance.
_SHARE = 0.3
# Share of the present gap to which a block is solved while the fit is far from its end. A smaller share makes each step
# slower, a larger one takes more rounds.
_LOOSE = 0.1
# Safeguard: a convex fit fails if F at its end exceeds F at its start by more than this share. Rounding is far smaller.
_FAR = 1e-3


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
    """The weights, the task precision and a record of the fit.

    Attributes
    ----------
    W : ndarray of shape (K, d)
        Weights in the solver's units (features centred and scaled).
    intercepts : ndarray of shape (K,)
        Intercepts in the same units.
    structure : StructureStep
        The task precision, its inverse and its gap.
    mean : ndarray of shape (d,)
        The shared mean; zeros if the model has none.
    status : Status
        How the fit ended.
    objective : float
        F at the end.
    relative_gap : float
        The joint certificate, relative to max(1, |F|).
    history : list of Record
        One record per round.
    scale : StructureScale
        The structure's constants, which stay fixed during the fit.
    """

    W: Array
    intercepts: Array
    structure: StructureStep
    mean: Array
    status: Status
    objective: float
    relative_gap: float
    history: list[Record] = field(repr=False)
    scale: StructureScale = field(repr=False)

    @classmethod
    def _state_from_version_1(cls, state: dict[str, Any]) -> dict[str, Any]:
        """The attributes of a result in a model file of version 1, which calls the scale a frame."""
        return {"scale" if name == "frame" else name: value for name, value in state.items()}

    @property
    def frame(self) -> StructureScale:
        """The name of version 0.1 for ``scale``."""
        message = "result_.frame is now result_.scale; the old name goes with the next release."
        warnings.warn(message, FutureWarning, stacklevel=2)
        return self.scale

    @property
    def message(self) -> str:
        """The status in words, with the relative gap and the number of rounds."""
        return f"{self.status} (relative gap {self.relative_gap:.2e} after {len(self.history)} rounds)"


@dataclass(eq=False)
class Alternation:
    """Minimise F over the weights and the structure.

    Parameters
    ----------
    problem : WeightProblem
        Loss and penalty.
    structure : Structure
        What relates the tasks.
    scale : StructureScale
        The structure's constants.
    mean_variance : float
        τ² of the shared mean; 0 for none.
    tol : float
        Joint relative certificate to reach.
    max_iter, max_inner : int
        Largest number of rounds, and of iterations per weight step. The single round of a structure that is not
        learned may take as many iterations as all rounds of a learned one.
    monitor : callable, optional
        Function that is called with the record of each round. The alternation stops when it returns True.
    """

    problem: WeightProblem
    structure: Structure
    scale: StructureScale
    mean_variance: float = 0.0
    tol: float = 1e-6
    max_iter: int = 200
    max_inner: int = 2000
    monitor: Callable[[Record], bool] | None = None

    def fit(self, W: Array, step: StructureStep, *, ready: bool = False) -> FitResult:
        """Fit from the weights ``W`` and the task precision ``step``.

        If ``ready`` is True, the weights already are the best ones for this Ω, and the first round updates Ω.
        """
        self.history: list[Record] = []
        self.began = perf_counter()
        self.unreachable = 0.0  # structure steps made no progress below this gap; no further step is tried there
        if not self.structure.learned:
            return self._only(W, step)
        loss = self.problem.compiled if self.structure.compiled and step.covariance is not None else None
        if loss is not None:
            return self._compiled(loss, W, step, ready)
        return self._rounds(W, step, self.max_iter, ready)

    def _at(self, point: Point, status: Status) -> FitResult:
        return self._ended(point.W, point.step, point.mean, point.objective, status)

    def _ended(self, W: Array, step: StructureStep, mean: Array, objective: float, status: Status) -> FitResult:
        mean = mean if self.mean_variance > 0 else np.zeros(W.shape[1])
        gap, intercepts = self.history[-1].relative_gap, self.problem.intercepts(W)
        return FitResult(W, intercepts, step, mean, status, objective, gap, self.history, self.scale)

    def _only(self, W: Array, step: StructureStep) -> FitResult:
        """Fit the weights for a given Ω, which takes one weight step."""
        coupling = self.structure.couple(step, self.mean_variance)
        first = evaluate(self.problem, self.structure, self.scale, W, step, coupling)
        size, remaining = max(1.0, abs(first.loss)), max(self.max_iter // PATIENCE, 1) * self.max_inner
        while True:
            weights = self.problem.solve(coupling, W, tol=self.tol * size, max_iter=remaining)
            point = evaluate(self.problem, self.structure, self.scale, weights.W, step, coupling)
            remaining -= weights.n_iter
            # The tolerance was relative to the loss at the start. If F is much smaller, the weight step continues.
            ended = weights.status not in (Status.CONVERGED, Status.STATIONARY)
            if weights.gap <= self.tol * point.size or ended or remaining <= 0:
                break
            W, size = weights.W, point.size
        fine = self.tol**2 * point.size
        if fine < weights.gap <= self.tol * point.size:
            # The error of the weights is about the square root of the gap. A few more iterations make it smaller.
            more = self.problem.solve(coupling, weights.W, tol=fine, max_iter=PATIENCE)
            if more.gap < weights.gap:
                weights, point = more, evaluate(self.problem, self.structure, self.scale, more.W, step, coupling)
        self._record(point, weights.gap)
        if point.objective > first.objective + _FAR * max(size, first.size):
            raise DataError(
                f"The objective rose from {first.objective:.6g} to {point.objective:.6g} during the fit; it must "
                "fall, but rounding dominates. Rescale features, and targets of tasks, that differ by many orders of "
                "magnitude, or raise the noise variance."
            )
        return self._at(point, Status.CONVERGED if weights.gap <= self.tol * point.size else weights.status)

    def _compiled(self, loss: TaskLoss, W: Array, step: StructureStep, ready: bool) -> FitResult:
        """Make the rounds of :meth:`_rounds` in compiled calls, which avoids Python's overhead in small problems.

        If a step fails, :meth:`_rounds` continues, which has more ways to recover.
        """
        L, e = self.structure.prices(self.scale)
        strengths = self.structure.strength, self.mean_variance, self.structure.shrinkage
        rounds = FitRounds(
            loss,
            (*strengths, plain(self.scale.variances), e, L),
            (self.tol, _SHARE, _LOOSE, NEGLIGIBLE, 2),
            (W, step.precision, np.asarray(step.covariance)),
            ready=ready,
            known=step.warm is not None,
            max_inner=self.max_inner,
        )
        stop, status, ended, left = False, None, None, self.max_iter
        while left and not (stop or status or ended == BROKE):
            # The first 2 * PATIENCE rounds cannot stall. After them, the status is checked in every round.
            n = 1 if self.monitor is not None else max(1, 2 * PATIENCE - len(self.history))
            ended, table = rounds.run(min(n, left))
            began, self.began = self.began, perf_counter()
            for objective, gap_weights, gap, edges in table:
                stop = self._append(objective, gap_weights, gap, int(edges), (self.began - began) / len(table))
            status = verdict(self.history, self.tol) if table else None
            if ended == LIMIT and status is None:
                status = Status.STALLED
            left = self.max_iter - len(self.history)
        found, objective = step, np.inf
        if self.history:
            _, objective, value, gap, log_determinant, known = rounds.facts.tolist()
            found = replace(step, value=value, gap=gap)
            if known:
                found = StructureStep(rounds.omega, rounds.sigma, value, gap)
                found = self.structure.found(self.scale, found, log_determinant)
        coupling, allowed = self.structure.couple(found, self.mean_variance), self.tol * max(1.0, abs(objective))
        doubted = status in (Status.STALLED, Status.DIVERGED)
        if left and (doubted or not self.problem.has_digits(coupling, rounds.W, allowed)):
            # Compiled rounds use Grams alone. If these are not accurate enough, neither are F and its certificate.
            self.history.clear()
            return self._rounds(W, step, left, ready)
        if ended == BROKE and left and not (stop or status):
            return self._rounds(rounds.W, found, self.max_iter, ready or bool(self.history))
        return self._ended(rounds.W, found, rounds.mean, objective, status or Status.MAX_ITER)

    def _rounds(self, W: Array, step: StructureStep, max_iter: int, ready: bool) -> FitResult:
        """Alternate weight steps and structure steps; return the last point that did not raise F, and its status."""
        problem, structure, scale, tol = self.problem, self.structure, self.scale, self.tol
        momentum, change_of_precision, idle, careful = _Momentum(), np.inf, 0, False
        misses, lost, inner, finite, gained = 0, 0, self.max_inner, None, np.inf
        coupling = structure.couple(step, self.mean_variance)
        allowed = _SHARE * tol * max(1.0, abs(problem.value(W)))
        if ready:
            point = evaluate(problem, structure, scale, W, step, coupling)
            allowed = max(allowed, _LOOSE * point.step.gap)
            step = self._improve(point, point.moment, _SHARE * tol * point.size, _LOOSE * point.step.gap)
            coupling = structure.couple(step, self.mean_variance)
        while True:
            weights = problem.solve(coupling, W, tol=allowed, max_iter=inner)
            missed = self._missed(coupling, W, weights)
            inner = max(inner // 2, 1) if missed else self.max_inner
            change = _change(W, weights.W)
            reached = evaluate(problem, structure, scale, weights.W, step, coupling)
            raised = structure.joint and momentum.raised(reached)
            if raised and not momentum.used and careful:
                return self._at(point, Status.STALLED)
            if raised:
                # F rose without momentum, so the last steps were not accurate enough. The next ones are.
                point, careful = momentum.back(), careful or not momentum.used
            else:
                point, careful = reached, False
                momentum.reached(point)
                stop = self._record(point, weights.gap)
                status = verdict(self.history, tol)
                if not structure.joint and status is not Status.DIVERGED:
                    # A gap is of second order in the change of weights and Ω, so the changes have the tolerance √tol.
                    status = Status.SETTLED if max(change, change_of_precision) <= np.sqrt(tol) else None
                misses += missed
                gained = self.history[-2].objective - point.objective if len(self.history) > 1 else np.inf
                lost = lost + 1 if weights.status is Status.STALLED and gained <= NEGLIGIBLE * point.size else 0
                if status is None and lost >= 2:
                    status = Status.STALLED
                if status is Status.DIVERGED and finite is not None:
                    return self._at(finite, status)
                if status is not None or stop or len(self.history) >= max_iter or misses > 2 * PATIENCE:
                    return self._at(point, status or Status.MAX_ITER)
                finite = point
            needed = _SHARE * tol * point.size
            # Far from the optimum the dual bound can be much too wide. The last gain is then the better measure.
            gap = self.history[-1].gap_weights + point.step.gap
            allowed = needed if careful else max(needed, _LOOSE * min(gap, gained))
            if structure.joint:
                W, moment = momentum.extrapolated(point, structure, scale)
            else:
                W, moment = point.W, momentum.averaged(point, len(self.history) - 2 * PATIENCE)
            # If the weights did not change, a more accurate Ω is needed to satisfy the certificate.
            idle = idle + 1 if change == 0.0 else 0
            tighter = max(0.1**idle, min(NEGLIGIBLE / (_SHARE * tol), 1.0))
            enough = needed if careful else _LOOSE * min(point.step.gap, 3 * gained)
            step = self._improve(point, moment, needed, enough, tighter)
            change_of_precision = np.inf if structure.joint else _change(point.step.precision, step.precision)
            coupling = structure.couple(step, self.mean_variance)

    def _improve(
        self, point: Point, moment: Moment, needed: float, enough: float, tighter: float = 1.0
    ) -> StructureStep:
        """Improve Ω. With a shared mean, Ω and the mean are updated in turns, which needs no pass over the data."""
        structure, step = self.structure, point.step
        goal = max(needed, enough)
        for _ in range(2):
            if step.gap <= max(needed, self.unreachable):
                break
            before, asked = step.gap, tighter * max(needed, min(enough, _LOOSE * step.gap))
            step = structure.update(moment, step, self.scale, asked)
            if structure.joint and step.gap > max(2 * asked, 0.5 * before):
                self.unreachable = 2 * step.gap
            if self.mean_variance <= 0 or not structure.joint:
                break
            coupling = structure.couple(step, self.mean_variance)
            point = evaluate(self.problem, structure, self.scale, point.W, step, coupling, point)
            step, moment = point.step, point.moment
            if step.gap <= goal:
                break
        return step

    def _record(self, point: Point, gap_weights: float) -> bool:
        """Add a round to the history and return whether the monitor stops the fit."""
        omega, now = self.structure.graph(point.step), perf_counter()
        edges = (count_entries(omega) - count_entries(omega.diagonal())) // 2
        seconds, self.began = now - self.began, now
        return self._append(point.objective, gap_weights, point.step.gap, edges, seconds)

    def _append(self, objective: float, gap_weights: float, gap: float, edges: int, seconds: float) -> bool:
        relative = (gap_weights + gap) / max(1.0, abs(objective))
        self.history.append(Record(len(self.history) + 1, objective, gap_weights, gap, relative, edges, seconds))
        return self.monitor(self.history[-1]) if self.monitor is not None else False

    def _missed(self, coupling: Coupling, W: Array, weights: WeightStep) -> bool:
        """Whether a step from W made hardly any progress. A step that only lacks iterations does not count."""
        if weights.status is not Status.MAX_ITER:
            return weights.status is Status.STALLED
        before = self.problem.solve(coupling, W, tol=np.inf, max_iter=1).gap  # with tol=inf it returns the gap at W
        return not weights.gap <= SLOW * before


def momentum_share(rounds: int) -> float:
    """The share of the last change that momentum adds after this number of rounds (Nesterov's sequence)."""
    return (rounds - 1) / (rounds + 2)


class _Momentum:
    """Extrapolate the weights along the last change, by a share that grows from round to round."""

    def __init__(self) -> None:
        self.points: list[Point] = []  # the points of the last two rounds since momentum started
        self.moment: Array = np.empty(0)
        self.rounds = 0
        self.used = False

    def raised(self, point: Point) -> bool:
        """Whether a round raised F. Without momentum, a rise within rounding does not count."""
        if not self.points:
            return False
        rise = point.objective - self.points[-1].objective
        return not rise <= (0.0 if self.used else NEGLIGIBLE * self.points[-1].size)

    def back(self) -> Point:
        """Return the point before the round that raised F, and restart momentum from it."""
        self.points, self.rounds = self.points[-1:], 1
        return self.points[0]

    def reached(self, point: Point) -> None:
        """Record the point that a round reached."""
        self.points, self.rounds = [*self.points[-1:], point], self.rounds + 1

    def averaged(self, point: Point, late: int) -> Array:
        """The mean of the moments of the late rounds: without it, ranks that keep changing prevent convergence."""
        self.moment = point.moment if late < 1 else self.moment + (point.moment - self.moment) / (late + 1)
        return self.moment

    def extrapolated(self, point: Point, structure: Structure, scale: StructureScale) -> tuple[Array, Array]:
        """The weights and their moment, extrapolated along the last change if there have been two rounds."""
        self.used = self.rounds >= 2
        if not self.used:
            return point.W, point.moment
        share, before, coupling = momentum_share(self.rounds), self.points[0], point.coupling
        Q = point.Q + share * (point.Q - before.Q)
        return point.W + share * (point.W - before.W), structure.moment(Q - coupling.mean(Q), scale, coupling.rho)


def _change(before: Array, after: Array) -> float:
    """Relative change of an array."""
    return float(np.linalg.norm(after - before) / max(float(np.linalg.norm(after)), 1e-300))


def verdict(history: list[Record], tol: float) -> Status | None:
    """The status that ends the rounds, or None if they continue.

    Rounds end when F is certified, is not finite, or has made no progress for some time.
    """
    last = history[-1]
    if not np.isfinite(last.objective):
        return Status.DIVERGED
    if last.relative_gap <= tol:
        return Status.CONVERGED
    if len(history) <= 2 * PATIENCE:
        return None
    earlier = history[:-PATIENCE]
    fall = earlier[-1].objective - last.objective
    flat = fall <= max(NEGLIGIBLE, SMALLEST_GAIN * tol) * max(1.0, abs(last.objective))
    stuck = min(r.relative_gap for r in history[-PATIENCE:]) >= SLOW * min(r.relative_gap for r in earlier)
    return Status.STALLED if flat and stuck else None
