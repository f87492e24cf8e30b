"""Instructions that the kernels execute: a check for regressions that no noise of the machine touches.

    python -m benchmarks.instructions           # count, and compare with benchmarks/instructions.json
    python -m benchmarks.instructions --keep    # count, and keep as what later counts are compared with

Counted by valgrind (cachegrind without its cache, the same counter as callgrind's, but quicker): a process that calls a
kernel N times less one that does not call it, over N. Kernels run at the lowest SIMD level, so that counts do not
depend on which processor this is. A process under valgrind takes a minute or two.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

KEPT = Path(__file__).parent / "instructions.json"
CALLS = 200
ALLOWED = 1.05  # growth that counts as noise of inputs and libraries


def graph_descent() -> Callable[[], object]:
    """Block coordinate descent of the graphical lasso, 30 variables."""
    from mssl.kernels import graph_lasso

    S = np.corrcoef(np.random.default_rng(0).standard_normal((60, 30)).T)
    return lambda: graph_lasso(S, 0.1, None, np.zeros(30), 1e-6, 50)


def weight_descent() -> Callable[[], object]:
    """Coordinate descent of the weight step on Grams, 13 tasks and 30 features."""
    from mssl.kernels import ABSOLUTE, gram_sweeps

    rng = np.random.default_rng(0)
    X = rng.standard_normal((13, 60, 30))
    H, q = np.matmul(X.transpose(0, 2, 1), X), rng.standard_normal((13, 30)) * 60
    diagonal, none = (np.arange(14), np.arange(13), np.full(13, 5.0)), np.zeros(13)
    penalty = (ABSOLUTE, False, np.full((1, 13, 30), 20.0))

    def call() -> object:
        state = (np.zeros((13, 30)), np.zeros((13, 30)), np.zeros(30), np.arange(13))
        return gram_sweeps((H, np.ones(13), q), ((*diagonal, none, 0.0), penalty), *state, 50, 1e-6)

    return call


def whole_fit() -> Callable[[], object]:
    """A whole fit, 13 tasks and 30 features, from Grams to certificate."""
    from benchmarks.problems import WholeFit
    from benchmarks.solvers import ours_fit

    problem = WholeFit((30, 13, 60), 0.3, 0.2)
    return lambda: ours_fit(problem, 1e-6)


KERNELS = {"graph step": graph_descent, "weight sweeps": weight_descent, "whole fit": whole_fit}


def executed(name: str, calls: int, environment: dict[str, str]) -> int:
    """Instructions of a process that prepares a kernel's input and calls it so many times."""
    work = [sys.executable, "-m", "benchmarks.instructions", "--call", name, str(calls)]
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={os.devnull}"]
    found = subprocess.run([*tool, *work], check=True, env=environment, capture_output=True, text=True)
    match = re.search(r"I\s+refs:\s+([\d,]+)", found.stderr)
    if match is None:
        raise SystemExit(f"valgrind did not count: {found.stderr[-500:]}")
    return int(match[1].replace(",", ""))


def count() -> dict[str, float]:
    """Instructions a call of every kernel."""
    answers = {}
    environment = {**os.environ, "MSSL_SIMD": "base", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    for name in KERNELS:
        before, after = (executed(name, calls, environment) for calls in (1, 1 + CALLS))
        answers[name] = (after - before) / CALLS
        print(f"{name}: {answers[name]:,.0f} instructions a call", flush=True)
    return answers


def main(arguments: list[str]) -> None:
    """Command line."""
    if arguments[:1] == ["--call"]:
        call = KERNELS[arguments[1]]()
        for _ in range(int(arguments[2])):
            call()
        return
    counts = count()
    if arguments == ["--keep"]:
        KEPT.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
        return
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    grown = [f"{name}: {counts[name] / kept[name]:.3f}" for name in kept if counts[name] > ALLOWED * kept[name]]
    if grown:
        raise SystemExit("More instructions than kept, by factors of " + ", ".join(grown))


if __name__ == "__main__":
    main(sys.argv[1:])
