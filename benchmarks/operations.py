"""What has no rival, or a yardstick instead of one: large Ω-steps against `eigh`, warm starts, and daily use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.linalg import block_diag, eigh
from sklearn.covariance import graphical_lasso as sklearn_graphical_lasso
from threadpoolctl import threadpool_limits

from benchmarks.measures import cpu_seconds, fresh_process, single_thread, watched
from benchmarks.problems import GraphStep, WeightStep
from mssl import MSSLRegressor, MSSLRegressorCV, kernels
from mssl.data.design import Design
from mssl.datasets import make_clustered_tasks
from mssl.files.models import load, save
from mssl.glasso.solver import graphical_lasso
from mssl.model.coupling import Coupling
from mssl.model_selection import StabilitySelection
from mssl.solvers.descent import coordinate_descent
from mssl.solvers.quadratic import StepProblem, make_quadratic
from mssl.solvers.weights import solve_quadratic

IMPORTS = "import sklearn.linear_model, numpy as np"
BEFORE_FIT = (
    "from mssl import MSSLRegressor; r = np.random.default_rng(0); X = r.normal(size=(60, 5)); "
    "y, tasks = X @ np.ones(5) + r.normal(size=60), np.repeat(range(3), 20)"
)
A_FIT = "MSSLRegressor(0.3, 0.1).fit(X, y, tasks=tasks)"


def best(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Least processor time of each, in turns."""
    times: dict[str, float] = dict.fromkeys(runs, np.inf)
    for _ in range(repeats):
        for name, work in runs.items():
            times[name] = min(times[name], cpu_seconds(work)[0])
    return times


def yardsticks(p: int, n: int, share: float, repeats: int = 2) -> dict[str, Any]:
    """Cold and warm solve after a relative change of 1e-3, and one eigendecomposition of that size."""
    problem = GraphStep("erdos-renyi", p, n, share)
    noise = np.random.default_rng(1).standard_normal((p, p))
    changed = problem.S * (1 + 1e-3 * (noise + noise.T) / np.sqrt(2))
    first = graphical_lasso(problem.S, problem.alpha, penalize_diagonal=False)

    def solve(warm: Any = None) -> Any:
        return graphical_lasso(changed, problem.alpha, penalize_diagonal=False, check=False, warm_start=warm)

    runs = {"eigh": lambda: eigh(changed, check_finite=False), "cold": solve, "warm": lambda: solve(first)}
    answer = solve()
    degree = np.count_nonzero(answer.precision) / p - 1
    times = best(runs, repeats if p > 100 else 20)
    return {
        "p": p,
        "n": n,
        "share": share,
        "degree": degree,
        "relative gap": answer.gap / max(1, abs(answer.objective)),
        "compiled": compiled(solve),
    } | times


def compiled(solve: Callable[[], Any]) -> float:
    """Share of a solve's time inside the one compiled call; the rest is looking at the input."""
    with watched(kernels, "graph_lasso") as spent:
        began = perf_counter()
        solve()
        return sum(spent) / (perf_counter() - began)


def daily_use(full: bool) -> Iterator[tuple[str, float]]:
    """Processor seconds of everything around a fit."""
    data = make_clustered_tasks("centres", n_samples=100 if full else 40, n_test=100, random_state=0)
    train = {"X": data.X, "y": data.y, "tasks": data.tasks}
    model = MSSLRegressor(0.3, 0.1).fit(**train)
    shape = f"{data.coef.shape[0]} tasks, {data.coef.shape[1]} features, {len(data.y)} rows"
    yield f"fit of an estimator ({shape})", best({"": lambda: MSSLRegressor(0.3, 0.1).fit(**train)}, 5)[""]
    yield f"cross-validated fit ({shape})", best({"": lambda: MSSLRegressorCV().fit(**train)}, 2)[""]
    selection = StabilitySelection(random_state=0)
    yield f"stability selection ({shape})", best({"": lambda: selection.fit(**train)}, 2)[""]
    yield (
        f"predict {len(data.y_test)} rows",
        best({"": lambda: model.predict(data.X_test, tasks=data.tasks_test)}, 9)[""],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mssl"
        yield "save a model", best({"": lambda: save(model, path)}, 5)[""]
        yield "load a model", best({"": lambda: load(path)}, 5)[""]
    yield "import mssl, above an empty interpreter", fresh_process("import mssl")
    first = f"{BEFORE_FIT}; {A_FIT}"
    yield "first fit of a fresh process, above importing scikit-learn", fresh_process(first, IMPORTS)


def first_use() -> dict[str, float]:
    """Processor seconds of whole processes: one that imports the package and fits once, and ``mssl demo``."""
    script = f"import numpy as np; {BEFORE_FIT}; {A_FIT}"
    with tempfile.TemporaryDirectory() as folder:
        return {
            "fit": process_seconds(["-c", script], folder),
            "demo": process_seconds(["-m", "mssl", "demo"], folder, 2),
        }


def process_seconds(arguments: list[str], folder: str, repeats: int = 5) -> float:
    """Least processor time of a whole Python process, from start to end, its children included."""
    times = []
    for _ in range(repeats):
        before = os.times()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=folder, env=single_thread())
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(times)


def as_called(full: bool) -> Iterator[dict[str, Any]]:
    """scikit-learn's graphical lasso with its defaults; ours with the first tolerance whose objective is no worse."""
    kinds = ("chain", "blocks", "erdos-renyi", "blocks + outliers") if full else ("chain",)
    for p, kind, share in product((50, 250) if full else (50,), kinds, (0.1, 0.3, 0.5, 0.7)):
        for n in (p // 2, 10 * p):
            problem = GraphStep(kind, p, n, share)
            S, alpha = problem.S, problem.alpha
            theirs = partial(sklearn_graphical_lasso, S, alpha)
            goal = problem.value(theirs()[1])
            for tol in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10):
                ours = partial(graphical_lasso, S, alpha, penalize_diagonal=False, tol=tol)
                excess = problem.value(ours().precision) - goal
                if excess <= 0:
                    break
            times = best({"theirs": theirs, "ours": ours}, 2)
            times["ours"] = min(times["ours"], best({"": lambda work=ours: [work() for _ in range(20)]}, 5)[""] / 20)
            yield {"p": p, "n": n, "kind": kind, "share": share, "tol": tol, "excess": excess} | times


def weakly_penalised(full: bool) -> Iterator[dict[str, Any]]:
    """W-steps with nearly all weights in the support: the chosen solver against coordinate descent alone."""
    for shape in ((500, 6, 800), (1000, 3, 1500), (2000, 2, 2600)) if full else ((100, 3, 150),):
        problem = WeightStep(shape, 0.002, 0.5)
        loss, t, start = problem.quadratic(), np.full(shape[1], problem.threshold), np.zeros(shape[1::-1])
        step, tol = StepProblem.of(loss, problem.couplings[0], t), 1e-6 * float(loss.value(start))
        solve = partial(solve_quadratic, step, start, tol=tol)
        descend = partial(coordinate_descent, step, start, tol=tol, max_iter=2000)
        times = best({"solve": solve, "descent": descend}, 1)
        support = np.count_nonzero(solve().W) / start.size
        yield {"shape": shape, "support": support, "descent ended": descend().status.name.lower()} | times


def two_cores(full: bool) -> Iterator[dict[str, Any]]:
    """Wall seconds with one and with two threads, and whether the answers are the same."""
    rng = np.random.default_rng(0)
    p, K, d, n = (800, 200, 200, 300) if full else (200, 20, 60, 80)
    halves = [GraphStep("erdos-renyi", p, p, 0.05, seed) for seed in (0, 1)]
    S = block_diag(*(half.S for half in halves))
    yield timed(
        f"Ω-step, 2 components of {p}",
        lambda: graphical_lasso(S, halves[0].alpha, penalize_diagonal=False, check=False).precision,
    )
    X = rng.standard_normal((K * n, d)) + rng.standard_normal((K * n, 1))
    y = X[:, :20].sum(axis=1) + rng.standard_normal(K * n)
    design = Design.build(X, n * np.arange(K + 1))
    loss = make_quadratic(design, np.ones(len(y)), y)
    coupling, t = Coupling.diagonal_only(np.ones(K)), np.full(K, 1e-3 * np.abs(loss.linear).max())
    yield timed(f"Grams of {K} tasks, {d} features", lambda: make_quadratic(design, np.ones(len(y)), y).linear)
    yield timed(
        f"W-step, {K} tasks, {d} features",
        lambda: coordinate_descent(StepProblem.of(loss, coupling, t), np.zeros((K, d)), tol=1e-3).W,
    )


def timed(name: str, work: Callable[[], Any], repeats: int = 3) -> dict[str, Any]:
    """Least wall time of some calls with one thread and with two, in turns."""
    times, answers = {1: np.inf, 2: np.inf}, {}
    for _ in range(repeats):
        for threads in (1, 2):
            with threadpool_limits(threads):
                began = perf_counter()
                answers[threads] = work()
                times[threads] = min(times[threads], perf_counter() - began)
    return {"what": name, "one": times[1], "two": times[2], "same": bool(np.array_equal(answers[1], answers[2]))}


def run(full: bool) -> dict[str, Any]:
    """Everything, as the file of results keeps it."""
    cases = [(13, 130, 0.3), (50, 500, 0.3), (250, 2500, 0.3), (250, 125, 0.5)]
    if full:
        cases += [(p, n, share) for p in (1000, 2000) for n in (10 * p, p // 2) for share in (0.3, 0.5)]
    else:
        cases = cases[:2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "yardsticks": [yardsticks(*case) for case in cases],
            "weakly penalised": list(weakly_penalised(full)),
            "two cores": list(two_cores(full)),
            "daily use": dict(daily_use(full)),
            "first use": first_use(),
            "as called": list(as_called(full)),
        }
