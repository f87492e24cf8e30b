r"""The alternation: best weights for the task precision, best precision for the weights, until neither changes.

Each round ends with a joint certificate at one and the same :math:`(W, \Omega)`: the weight step's gap plus the
structure's gap, relative to max(1, |F|). It bounds how much either block alone could still lower F
(partial optimality, which for this biconvex F is stationarity). F never rises from one round to the next: a round that
raises it beyond rounding is taken back. A structure that is not learned needs one weight step, which is the whole fit.

Rounds that gain little go on in the same direction. The structure is therefore fitted to weights that are extrapolated
along the last change (Nesterov's momentum); if F rises by that, momentum starts again from zero.

References
----------
Guminov, Dvurechensky, Tupitsa & Gasnikov (2021), On a combination of alternating minimization and Nesterov's momentum,
Proceedings of the 38th International Conference on Machine Learning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from mssl._typing import Array, Moment
from mssl.exceptions import DataError
from mssl.kernels import BROKE, LIMIT, FitRounds, TaskLoss, plain
from mssl.model.coupling import Coupling
from mssl.model.objective import LossAndPenalty, Point, evaluate, evaluate_again
from mssl.model.task_matrix import count_entries
from mssl.solvers.base import SLOW, Status, WeightStep
from mssl.structures.base import Structure, StructureScale, StructureStep

_SHARE = 0.3  # of the allowed gap, for each of the two blocks: both together stay within it, with some room
_LOOSE = 0.1  # of the present gap, to which a block is solved while far from the end: larger takes more rounds
_TURNS = 2  # limit of the turns between mean and Ω for one set of weights; a third one gained nothing
_POLISH = 5  # most iterations that end the fit for a given structure; Newton's need one or two
_PATIENCE = 5  # rounds without progress of F or of the gap before the alternation ends as stalled
_SMALLEST_GAIN = 1e-3  # share of the tolerance by which so many rounds must lower F: less would take thousands of them
_LOST = 2  # rounds in a row that change nothing, the weight step having stalled: others would not either
_ALONE = 0.2  # of the iterations that all weight steps of a fit may take, for the only one of a given structure
_MISSES = 0.1  # share of the rounds whose weight steps may miss their goal by far before the alternation ends
_SLOWEST = 0.8  # share of its gap that a weight step at its limit may leave and not count as one that misses its goal
_SHORTEST = 0.05  # share of a weight step's iterations that is left after several misses, each of which halves it
_FAR = 1e-3  # relative rise of F over a whole convex fit that no rounding explains
_ROUNDING = 1e-12  # relative change of F that counts as rounding: F sums terms of up to a thousand times its size


class WeightProblem(LossAndPenalty, Protocol):
    """The loss and the penalty on W, for a fixed task precision."""

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""

    @property
    def n_features(self) -> int:
        """Number of features d."""

    def solve(self, coupling: Coupling, W: Array, *, tol: float, max_iter: int) -> WeightStep:
        """Minimise loss + penalty + coupling from W, to the absolute gap ``tol``."""

    def has_digits(self, coupling: Coupling, W: Array, tol: float) -> bool:
        """Whether loss and certificate at W are accurate to ``tol`` as compiled rounds compute them."""

    def certifies(self, coupling: Coupling) -> bool:
        """Whether the gaps for a coupling bound the suboptimality; otherwise they measure violations of optimality."""

    def intercepts(self, W: Array) -> Array:
        """The best intercepts for W."""

    @property
    def compiled(self) -> TaskLoss | None:
        """The problem as compiled rounds take it, where they know it."""


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
    scale : StructureScale
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
    scale: StructureScale = field(repr=False)

    @classmethod
    def _state_from_version_1(cls, state: dict[str, Any]) -> dict[str, Any]:
        """The attributes of a result in a model file of version 1, where the scale was called a frame."""
        return {"scale" if name == "frame" else name: value for name, value in state.items()}

    @property
    def frame(self) -> StructureScale:
        """The name of version 0.1 for ``scale``."""
        message = "result_.frame is now result_.scale; the old name goes with the next release."
        warnings.warn(message, FutureWarning, stacklevel=2)
        return self.scale

    @property
    def message(self) -> str:
        """The status in words, with the figures."""
        return f"{self.status} (relative gap {self.relative_gap:.2e} after {len(self.history)} rounds)"


def alternate(
    problem: WeightProblem,
    structure: Structure,
    scale: StructureScale,
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
    """Minimise F over weights and structure from a start.

    Parameters
    ----------
    problem : WeightProblem
        Loss and penalty.
    structure : Structure
        What relates the tasks.
    scale : StructureScale
        The structure's constants.
    W, step : ndarray of shape (K, d) and StructureStep
        The start.
    mean_variance : float
        τ² of the shared mean; 0 for none.
    tol : float
        Joint relative certificate to reach.
    max_iter, max_inner : int
        Limits of the rounds and of each weight step. A structure that is not learned has one round, which may take as
        many iterations as all rounds of another.
    monitor : callable, optional
        Called with each round's record; a true answer stops the alternation.
    ready : bool
        Whether the weights are the best for the given Ω already (a fit's, or the start's): Ω is then updated first.
    """
    rounds = _Rounds(problem, structure, scale, mean_variance, tol, max_inner, monitor)
    if not structure.learned:
        return rounds.only(W, step, max_iter)
    if structure.compiled and problem.compiled is not None and step.covariance is not None:
        return rounds.compiled(problem.compiled, W, step, max_iter, ready)
    return rounds.alternate(W, step, max_iter, ready)


class _Rounds:
    """The rounds of one fit, and their records."""

    def __init__(
        self,
        problem: WeightProblem,
        structure: Structure,
        scale: StructureScale,
        mean_variance: float,
        tol: float,
        max_inner: int,
        monitor: Callable[[Record], bool] | None,
    ) -> None:
        self.problem, self.structure, self.scale, self.mean_variance = problem, structure, scale, mean_variance
        self.tol, self.max_inner, self.monitor = tol, max_inner, monitor
        self.history: list[Record] = []
        self.began = perf_counter()
        self.unreachable = 0.0  # gap below which structure steps make no progress: none is tried there again

    def _at(self, point: Point, status: Status) -> FitResult:
        return self._ended(point.W, point.step, point.mean, point.objective, status)

    def _ended(self, W: Array, step: StructureStep, mean: Array, objective: float, status: Status) -> FitResult:
        mean = mean if self.mean_variance > 0 else np.zeros(W.shape[1])
        gap, intercepts = self.history[-1].relative_gap, self.problem.intercepts(W)
        return FitResult(W, intercepts, step, mean, status, objective, gap, self.history, self.scale)

    def only(self, W: Array, step: StructureStep, max_iter: int) -> FitResult:
        """The fit for a given Ω: one weight step."""
        coupling = self.structure.couple(step, self.mean_variance)
        first = evaluate(self.problem, self.structure, self.scale, W, step, coupling)
        size, remaining = max(1.0, abs(first.loss)), max(round(_ALONE * max_iter), 1) * self.max_inner
        while True:
            weights = self.problem.solve(coupling, W, tol=self.tol * size, max_iter=remaining)
            point = evaluate(self.problem, self.structure, self.scale, weights.W, step, coupling)
            remaining -= weights.n_iter
            # The tolerance was relative to the loss at the start. If F is much smaller, the step goes on.
            ended = weights.status not in (Status.CONVERGED, Status.STATIONARY)
            if weights.gap <= self.tol * point.size or ended or remaining <= 0:
                break
            W, size = weights.W, point.size
        fine = self.tol**2 * point.size
        if fine < weights.gap <= self.tol * point.size:
            # Parameters are only as accurate as the root of a gap: a few iterations more give them digits.
            more = self.problem.solve(coupling, weights.W, tol=fine, max_iter=_POLISH)
            if more.gap < weights.gap:
                weights, point = more, evaluate(self.problem, self.structure, self.scale, more.W, step, coupling)
        self._record(point, weights.gap)
        if point.objective > first.objective + _FAR * max(size, first.size):
            raise DataError(
                f"The fit ends at the objective {point.objective:.6g}, above {first.objective:.6g} where it began: its "
                "steps have no digits left. Rescale features, and targets of tasks, that differ by many orders of "
                "magnitude, or raise the noise."
            )
        return self._at(point, Status.CONVERGED if weights.gap <= self.tol * point.size else weights.status)

    def compiled(self, loss: TaskLoss, W: Array, step: StructureStep, max_iter: int, ready: bool) -> FitResult:
        """The rounds of :meth:`alternate` in compiled calls, for problems so small that Python would take most time.

        They end early where a step fails, of which :meth:`alternate` knows more ways out.
        """
        L, e = self.structure.prices(self.scale)
        variances, strengths = plain(self.scale.variances), (self.structure.strength, self.mean_variance)
        rounds = FitRounds(
            loss,
            (*strengths, self.structure.shrinkage, variances, e, L),
            (self.tol, _SHARE, _LOOSE, _ROUNDING, _TURNS),
            (W, step.precision, np.asarray(step.covariance)),
            ready=ready,
            known=step.warm is not None,
            max_inner=self.max_inner,
        )
        while True:
            # The first rounds cannot stall: only from then on each of them needs a look.
            n = 1 if self.monitor is not None else max(1, 2 * _PATIENCE - len(self.history))
            ended, table = rounds.run(min(n, max_iter - len(self.history)))
            stop, status, now = False, None, perf_counter()
            for objective, gap_weights, gap, edges in table:
                stop = self._append(objective, gap_weights, gap, int(edges), (now - self.began) / len(table))
            self.began = now
            if table:
                status = verdict(self.history, self.tol)
            if ended == LIMIT and status is None:
                status = Status.STALLED
            if status is not None or stop or len(self.history) >= max_iter:
                break
            if ended == BROKE:
                break
        found, objective = (self._step_of(rounds, step), float(rounds.facts[1])) if self.history else (step, np.inf)
        coupling, allowed = self.structure.couple(found, self.mean_variance), self.tol * max(1.0, abs(objective))
        doubted = status in (Status.STALLED, Status.DIVERGED)
        if len(self.history) < max_iter and (doubted or not self.problem.has_digits(coupling, rounds.W, allowed)):
            # Compiled rounds know Grams alone; where these lack digits, F and its certificate are not to be trusted.
            remaining = max_iter - len(self.history)
            self.history.clear()
            return self.alternate(W, step, remaining, ready)
        if ended == BROKE and status is None and not stop and len(self.history) < max_iter:
            return self.alternate(rounds.W, found, max_iter, ready or bool(self.history))
        return self._ended(rounds.W, found, rounds.mean, objective, status or Status.MAX_ITER)

    def _step_of(self, rounds: FitRounds, first: StructureStep) -> StructureStep:
        """The Ω of compiled rounds, which may still be the first one."""
        _, _, value, gap, log_determinant, known = rounds.facts.tolist()
        if not known:
            return StructureStep(first.precision, first.covariance, value, gap, first.warm)
        return self.structure.found(self.scale, rounds.omega, rounds.sigma, log_determinant, value, gap)

    def alternate(self, W: Array, step: StructureStep, max_iter: int, ready: bool) -> FitResult:
        """Rounds of weight steps and structure steps; the last point that did not raise F, and how it ended."""
        problem, structure, scale, tol = self.problem, self.structure, self.scale, self.tol
        momentum, moments, change_of_precision, idle, careful = _Momentum(), _Moments(), np.inf, 0, False
        misses, lost, inner, finite = 0, 0, self.max_inner, None
        coupling = structure.couple(step, self.mean_variance)
        allowed = _SHARE * tol * max(1.0, abs(problem.value(W)))
        if ready:
            point = evaluate(problem, structure, scale, W, step, coupling)
            allowed = max(allowed, _LOOSE * point.step.gap)
            step = self._improve(point, point.moment, _SHARE * tol * point.size, _LOOSE * point.step.gap)
            coupling = structure.couple(step, self.mean_variance)
        while True:
            weights = problem.solve(coupling, W, tol=allowed, max_iter=inner)
            missed = weights.status is Status.STALLED or (
                weights.status is Status.MAX_ITER and not self._progressed(coupling, W, weights)
            )
            inner = max(inner // 2, round(_SHORTEST * self.max_inner), 1) if missed else self.max_inner
            change = _change(W, weights.W)
            reached = evaluate(problem, structure, scale, weights.W, step, coupling)
            raised = structure.joint and momentum.raised(reached)
            if raised and not momentum.used and careful:
                return self._at(point, Status.STALLED)
            if raised:
                # F rose without momentum, so a step was solved too loosely: the next one is solved accurately.
                point, careful = momentum.back(), careful or not momentum.used
            else:
                point, careful = reached, False
                momentum.reached(point)
                stop = self._record(point, weights.gap)
                status = (
                    verdict(self.history, tol) if structure.joint else self._settled(max(change, change_of_precision))
                )
                misses += missed
                lost = lost + 1 if weights.status is Status.STALLED and self._gained() <= _ROUNDING * point.size else 0
                if status is None and lost >= _LOST:
                    status = Status.STALLED
                if status is Status.DIVERGED and finite is not None:
                    return self._at(finite, status)
                if status is not None or stop or len(self.history) >= max_iter or misses > _MISSES * max_iter:
                    return self._at(point, status or Status.MAX_ITER)
                finite = point
            needed = _SHARE * tol * point.size
            # Far from the optimum a dual bound can be much too wide, and the last gain is the better measure.
            gained = self._gained()
            gap = self.history[-1].gap_weights + point.step.gap
            allowed = needed if careful else max(needed, _LOOSE * min(gap, gained))
            W, moment = (
                momentum.extrapolated(point, structure, scale) if structure.joint else (point.W, moments.mean(point))
            )
            # The weights did not change: Ω has to be solved more accurately to satisfy the certificate, to rounding.
            idle = idle + 1 if change == 0.0 else 0
            tighter = max(0.1**idle, min(_ROUNDING / (_SHARE * tol), 1.0))
            enough = needed if careful else _LOOSE * min(point.step.gap, 3 * gained)
            step = self._improve(point, moment, needed, enough, tighter)
            change_of_precision = np.inf if structure.joint else _change(point.step.precision, step.precision)
            coupling = structure.couple(step, self.mean_variance)

    def _improve(
        self, point: Point, moment: Moment, needed: float, enough: float, tighter: float = 1.0
    ) -> StructureStep:
        """A better Ω; with a shared mean, Ω and mean in turns, which needs no pass over the data."""
        structure, step = self.structure, point.step
        goal = max(needed, enough)
        for _ in range(_TURNS):
            if step.gap <= max(needed, self.unreachable):
                break
            before, asked = step.gap, tighter * max(needed, min(enough, _LOOSE * step.gap))
            step = structure.update(moment, step, self.scale, asked)
            if structure.joint and step.gap > max(2 * asked, 0.5 * before):
                self.unreachable = 2 * step.gap
            if self.mean_variance <= 0 or not structure.joint:
                break
            point = evaluate_again(point, structure, self.scale, step, structure.couple(step, self.mean_variance))
            step, moment = point.step, point.moment
            if step.gap <= goal:
                break
        return step

    def _record(self, point: Point, gap_weights: float) -> bool:
        """Write a round into the history; whether the monitor wants to stop."""
        omega, now = self.structure.graph(point.step), perf_counter()
        edges = (count_entries(omega) - count_entries(omega.diagonal())) // 2
        seconds, self.began = now - self.began, now
        return self._append(point.objective, gap_weights, point.step.gap, edges, seconds)

    def _append(self, objective: float, gap_weights: float, gap: float, edges: int, seconds: float) -> bool:
        relative = (gap_weights + gap) / max(1.0, abs(objective))
        self.history.append(Record(len(self.history) + 1, objective, gap_weights, gap, relative, edges, seconds))
        return self.monitor(self.history[-1]) if self.monitor is not None else False

    def _progressed(self, coupling: Coupling, W: Array, weights: WeightStep) -> bool:
        """Whether a weight step from W made a part of its way: if so it needs more iterations, not fewer."""
        before = self.problem.solve(coupling, W, tol=np.inf, max_iter=1).gap  # any weights do: it says what theirs is
        return weights.gap <= _SLOWEST * before

    def _gained(self) -> float:
        """By how much the last round lowered F."""
        return self.history[-2].objective - self.history[-1].objective if len(self.history) > 1 else np.inf

    def _settled(self, change: float) -> Status | None:
        """SETTLED once an iteration changes at most √tol of weights and Ω: gaps are of second order in a change."""
        if not np.isfinite(self.history[-1].objective):
            return Status.DIVERGED
        return Status.SETTLED if change <= np.sqrt(self.tol) else None


def momentum_share(rounds: int) -> float:
    """How much of the last change to add after so many rounds with momentum, Nesterov's sequence."""
    return (rounds - 1) / (rounds + 2)


class _Momentum:
    """Weights extrapolated along the last change, by a share of it that grows from round to round."""

    def __init__(self) -> None:
        self.points: list[Point] = []  # those of the last two rounds, if momentum did not start again between them
        self.rounds = 0
        self.used = False

    def raised(self, point: Point) -> bool:
        """Whether a round raised F; a round with momentum must have lowered it."""
        if not self.points:
            return False
        rise = point.objective - self.points[-1].objective
        return not rise <= (0.0 if self.used else _ROUNDING * self.points[-1].size)

    def back(self) -> Point:
        """The point before the round that raised F; momentum starts again from it."""
        self.points, self.rounds = self.points[-1:], 1
        return self.points[0]

    def reached(self, point: Point) -> None:
        """Count a round."""
        self.points, self.rounds = [*self.points[-1:], point], self.rounds + 1

    def extrapolated(self, point: Point, structure: Structure, scale: StructureScale) -> tuple[Array, Array]:
        """Weights and their moment, extrapolated from the point if two rounds give a direction."""
        self.used = self.rounds >= 2
        if not self.used:
            return point.W, point.moment
        share, before, coupling = momentum_share(self.rounds), self.points[0], point.coupling
        Q = point.Q + share * (point.Q - before.Q)
        return point.W + share * (point.W - before.W), structure.moment(Q - coupling.mean(Q), scale, coupling.rho)


class _Moments:
    """The mean of the moments of late rounds, since ranks that keep changing would not let the iteration end."""

    def __init__(self) -> None:
        self.kept: Array | None = None
        self.rounds = 0

    def mean(self, point: Point) -> Array:
        """The moment to fit the next Ω to."""
        self.rounds += 1
        late = self.rounds - 2 * _PATIENCE
        kept = point.moment if self.kept is None or late < 1 else self.kept
        self.kept = kept + (point.moment - kept) / (max(late, 0) + 1)
        return self.kept


def _change(before: Array, after: Array) -> float:
    """Relative change of an array."""
    return float(np.linalg.norm(after - before) / max(float(np.linalg.norm(after)), 1e-300))


def verdict(history: list[Record], tol: float) -> Status | None:
    """The status that ends the rounds (certified, not finite, or without progress for some time), or None."""
    last = history[-1]
    if not np.isfinite(last.objective):
        return Status.DIVERGED
    if last.relative_gap <= tol:
        return Status.CONVERGED
    if len(history) <= 2 * _PATIENCE:
        return None
    earlier = history[:-_PATIENCE]
    fall = earlier[-1].objective - last.objective
    flat = fall <= max(_ROUNDING, _SMALLEST_GAIN * tol) * max(1.0, abs(last.objective))
    stuck = min(r.relative_gap for r in history[-_PATIENCE:]) >= SLOW * min(r.relative_gap for r in earlier)
    return Status.STALLED if flat and stuck else None
