"""How it is measured: processor time to a suboptimality, peak memory, growth, and the state of the machine."""

from __future__ import annotations

import gc
import os
import platform
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.problems import Problem
from benchmarks.solvers import Solver, solvers_of

GOAL = 1e-6
CAP = 300.0  # a rival is stopped at so many times our time,
LEAST_CAP = 2.0  # but not before so many seconds
SAMPLE = 0.01  # seconds of a sample: short runs are looped, so that nobody is timed on cold caches


class OutOfTimeError(Exception):
    """The time allowed to a solver is over."""


@dataclass
class Record:
    """One solver on one problem.

    Attributes
    ----------
    outcome : str
        "reached", "missed" (no setting reaches the goal), "stopped" (out of time), "raised" or "skipped".
    seconds : float or None
        Processor time of the best run; for "stopped" the time after which it was stopped.
    suboptimality : float or None
        Of the output that was timed, or the best that was seen.
    peak_bytes : int or None
        What a run adds to the peak memory of its process.
    """

    problem: str
    group: str
    solver: str
    axes: dict[str, Any] = field(repr=False)
    outcome: str
    seconds: float | None = None
    suboptimality: float | None = None
    setting: float | None = None
    reason: str = ""
    peak_bytes: int | None = None


@contextmanager
def watched(owner: Any, name: str) -> Iterator[list[float]]:
    """Wall seconds of every call of a module's function inside the block."""
    work, spent = getattr(owner, name), list[float]()

    def timed(*arguments: Any) -> Any:
        began = perf_counter()
        answer = work(*arguments)
        spent.append(perf_counter() - began)
        return answer

    setattr(owner, name, timed)
    try:
        yield spent
    finally:
        setattr(owner, name, work)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError after so much processor time, at the next moment that Python is in charge.

    A clock on the wall wakes it and processor time decides: a timer of processor time would make the processor's clock
    as coarse as the ticks of the system.
    """
    began = process_time()

    def look(number: int, frame: FrameType | None) -> None:
        if process_time() - began > seconds:
            raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of one call, with the collector of garbage at rest, and the answer."""
    gc.disable()
    try:
        began = process_time()
        answer = work()
        return process_time() - began, answer
    finally:
        gc.enable()


def attempt(solver: Solver, problem: Problem, limit: float) -> Record:
    """The loosest setting that reaches the goal, or how it failed."""
    record = Record(problem.name, problem.group, solver.name, problem.axes, "skipped")
    record.reason = solver.why_not(problem)
    if record.reason:
        return record
    for setting in solver.settings:
        gc.collect()
        try:
            with time_limit(limit):
                seconds, output = cpu_seconds(lambda setting=setting: solver.run(problem, setting))
        except OutOfTimeError:
            record.outcome, record.seconds, record.setting = "stopped", limit, setting
            return record
        except Exception as error:  # a peer may fail in any way; the table says how
            record.outcome, record.reason = "raised", f"{type(error).__name__}: {error}".splitlines()[0][:160]
            continue
        reached = problem.suboptimality(output)
        if record.suboptimality is None or reached < record.suboptimality:
            record.suboptimality = reached
        if reached <= GOAL:
            record.outcome, record.seconds, record.setting, record.reason = "reached", seconds, setting, ""
            record.suboptimality = reached
            return record
        record.outcome = "missed"
    return record


def compare(problem: Problem, *, longest: float = 20.0, budget: float = 10.0) -> list[Record]:
    """All solvers of a problem: the setting of each by trial, then interleaved repeats, the minimum of each.

    Parameters
    ----------
    problem : Problem
        The problem; the first of its solvers is ours.
    longest : float
        Processor seconds at which a run is stopped at the latest.
    budget : float
        Seconds that the repeats may take in all.
    """
    solvers = solvers_of(problem.group)
    records: list[Record] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for solver in solvers:
            limit = longest
            if records and records[0].seconds is not None:
                limit = float(np.clip(CAP * records[0].seconds, LEAST_CAP, solver.longest or longest))
            if not records:
                attempt(solver, problem, 10 * longest)  # loads what is loaded late
            elif solver.why_not(problem) == "" and solver.package == "skglm":
                with_compiled(solver, problem)
            records.append(attempt(solver, problem, 10 * longest if not records else limit))
        repeat(solvers, records, problem, budget)
        for solver, record in zip(solvers, records, strict=True):
            if record.outcome == "reached" and record.seconds is not None and record.seconds < budget / 3:
                record.peak_bytes = peak_memory(solver, problem, record.setting or 0.0)
    return records


def with_compiled(solver: Solver, problem: Problem) -> None:
    """One loose run, so that nobody's compilation is timed."""
    try:
        with time_limit(30.0):
            solver.run(problem, 0.1)
    except Exception:  # the attempt that follows reports it
        return


def repeat(solvers: Sequence[Solver], records: list[Record], problem: Problem, budget: float) -> None:
    """Repeat those that reached the goal, in turns; a busy machine then hurts all alike."""
    pairs = [(s, r) for s, r in zip(solvers, records, strict=True) if r.outcome == "reached"]
    if not pairs:
        return
    ends = perf_counter() + budget
    for turn in range(20):
        for solver, record in pairs:
            # Long rivals are not run again and again for a ratio that is clear; ours always is.
            if turn >= 2 and record is not pairs[0][1] and (record.seconds or 0) > budget / 10:
                continue
            if perf_counter() + (record.seconds or 0) > ends and turn >= 1:
                continue
            loops = max(1, int(SAMPLE / max(record.seconds or 0.0, 1e-6)))
            seconds, _ = cpu_seconds(lambda s=solver, r=record, n=loops: [s.run(problem, r.setting) for _ in range(n)])
            record.seconds = min(record.seconds or np.inf, seconds / loops)
        if perf_counter() > ends:
            return


def peak_memory(solver: Solver, problem: Problem, setting: float) -> int:
    """Bytes by which a run raises the peak of a forked process above what it inherits."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            solver.run(problem, setting)
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            os.write(send, str(1024 * (after - before)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(send)
    with os.fdopen(receive) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return int(text or -1)


def fresh_process(code: str, before: str = "pass", repeats: int = 5) -> float:
    """Least processor time of the code in a new interpreter, after something that does not count."""
    script = f"import time; {before}; began = time.process_time(); {code}; print(time.process_time() - began)"
    command = [sys.executable, "-c", script]
    runs = (
        subprocess.run(command, capture_output=True, text=True, check=True, env=single_thread()) for _ in range(repeats)
    )
    return min(float(run.stdout.split()[-1]) for run in runs)


def single_thread() -> dict[str, str]:
    """The environment with one thread for every BLAS."""
    return os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm."""
    return float(np.exp(np.mean(np.log(values))))


def machine() -> dict[str, Any]:
    """What was measured on, and how busy it was."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count(), "load": list(os.getloadavg()), "python": platform.python_version()}


def as_dict(record: Record) -> dict[str, Any]:
    """For the file of results."""
    return asdict(record)
