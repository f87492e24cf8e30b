"""Bars of their own: one lasso per task, small joint penalties, and how much times differ between draws.

    python -m benchmarks.bars               # all
    python -m benchmarks.bars lasso         # against scikit-learn's loop over tasks, with and without Gram
    python -m benchmarks.bars joint         # ℓ2,1 and trace norm on few features and tasks
    python -m benchmarks.bars draws         # ten draws of one problem with more features than rows

One thread, processor time, the least of interleaved repeats (draws: of two).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from itertools import product
from time import perf_counter
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from sklearn.linear_model import Lasso  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from benchmarks.measures import GOAL, cpu_seconds  # noqa: E402
from benchmarks.problems import TIGHT, Problem, task_rows  # noqa: E402
from mssl import MSSLRegressor, MultiTaskGLM  # noqa: E402
from mssl.data.design import Design  # noqa: E402
from mssl.model.coupling import Coupling  # noqa: E402
from mssl.penalties import L21, Nuclear, Penalty  # noqa: E402
from mssl.solvers.quadratic import StepProblem, make_quadratic  # noqa: E402
from mssl.solvers.weights import solve_quadratic  # noqa: E402
from mssl.structures import Independent  # noqa: E402

Array = NDArray[np.float64]


class TaskLasso(Problem):
    """½‖y_k − X_k w_k − b_k‖² + t‖w_k‖₁ for each task; the output is (W, b)."""

    group = "lasso"

    def __init__(self, shape: tuple[int, int, int], share: float, seed: int = 0) -> None:
        d, K, n = shape
        self.name = f"lasso/{shape}/γ={share}"
        self.axes = {"d": d, "K": K, "n": n, "share": share}
        self.X, self.y, _ = task_rows(d, K, n, 0.5, False, "gaussian", seed)
        self.centred = self.X - self.X.mean(axis=1, keepdims=True)
        self.targets = self.y - self.y.mean(axis=1, keepdims=True)
        self.t = share * float(np.abs(np.matmul(self.targets[:, None, :], self.centred)).max())

    def value(self, output: tuple[Array, Array]) -> float:
        W, b = output
        residual = self.y - np.matmul(self.X, W[:, :, None])[:, :, 0] - b[:, None]
        return 0.5 * float(np.sum(residual**2)) + self.t * float(np.abs(W).sum())

    @cached_property
    def lower_bound(self) -> float:
        return self.bound_at(self.solve(TIGHT)[0])

    def bound_at(self, W: Array) -> float:
        """The dual value of W's residuals, drawn in until they are feasible."""
        r = self.targets - np.matmul(self.centred, W[:, :, None])[:, :, 0]
        slopes = np.abs(np.matmul(r[:, None, :], self.centred)[:, 0]).max(axis=1)
        dual = r * np.minimum(1.0, self.t / slopes)[:, None]
        return 0.5 * float(np.sum(self.targets**2) - np.sum((self.targets - dual) ** 2))

    def solve(self, tol: float) -> tuple[Array, Array]:
        """Ours, from rows."""
        K, n = self.y.shape
        design = Design.build(self.X.reshape(K * n, -1), n * np.arange(K + 1), scale=False)
        quadratic = make_quadratic(design, np.ones(self.y.size), self.y.ravel())
        zero, free = np.zeros((K, design.n_features)), Coupling.diagonal_only(np.zeros(K))
        W = solve_quadratic(StepProblem.of(quadratic, free, np.full(K, self.t)), zero, tol=tol * quadratic.null_value).W
        return design.to_user(W, quadratic.intercepts(W))

    def peer(self, tol: float, *, precompute: bool) -> tuple[Array, Array]:
        """scikit-learn's, task by task."""
        K, n = self.y.shape
        models = [Lasso(self.t / n, precompute=precompute, tol=tol, max_iter=10**5) for _ in range(K)]
        for model, X, y in zip(models, self.X, self.y, strict=True):
            model.fit(X, y)
        return np.array([m.coef_ for m in models]), np.array([m.intercept_ for m in models])


def lasso() -> None:
    """Each at the loosest tolerance that reaches the goal."""
    for shape, share in product(((500, 15, 400), (2000, 50, 300)), (0.02, 0.1, 0.3)):
        problem = TaskLasso(shape, share)
        rivals: dict[str, Callable[[float], Any]] = {
            "mssl": problem.solve,
            "scikit-learn": partial(problem.peer, precompute=False),
            "scikit-learn, Gram": partial(problem.peer, precompute=True),
        }
        chosen, least = {}, {}
        for name, work in rivals.items():
            for tol in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
                least[name], output = cpu_seconds(partial(work, tol))
                if problem.suboptimality(output) <= GOAL:
                    break
            chosen[name] = partial(work, tol)
            print(
                f"{problem.name}, {name}: tol {tol:.0e}, suboptimality {problem.suboptimality(output):.1e}, "
                f"{np.count_nonzero(output[0]) / len(output[0]):.0f} weights a task",
                flush=True,
            )
        ends = perf_counter() + 4.0
        while perf_counter() < ends:
            for name, work in chosen.items():
                least[name] = min(least[name], cpu_seconds(work)[0])
        best = min(seconds for name, seconds in least.items() if name != "mssl")
        times = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in least.items())
        print(f"{problem.name}: {times}; ours over the best of theirs {least['mssl'] / best:.2f}", flush=True)


def stacked(X: Array, y: Array) -> dict[str, Array]:
    """Rows of all tasks."""
    K, n, d = X.shape
    return {"X": X.reshape(K * n, d), "y": y.ravel(), "tasks": np.repeat(np.arange(K), n)}


def joint() -> None:
    """Slowest fit for each penalty over shapes, strengths and seeds."""
    penalties: dict[str, Callable[[float], Penalty]] = {"ℓ2,1": L21, "trace norm": Nuclear}
    for (name, penalty), ridge in product(penalties.items(), (0.0, 0.1)):
        found = []
        for d, K, alpha, seed in product((3, 5, 10), (4, 6), (0.01, 0.1, 0.5), range(3)):
            X, y, _ = task_rows(d, K, 30, 0.5, False, "gaussian", seed)
            rows, model = stacked(X, y), MultiTaskGLM(Independent(ridge), penalty(alpha))
            model.fit(**rows)
            seconds = min(cpu_seconds(lambda model=model, rows=rows: model.fit(**rows))[0] for _ in range(3))
            found.append((seconds, (d, K, alpha, seed), model.result_.status.name, len(model.result_.history)))
        worst = max(found)
        median = float(np.median([row[0] for row in found]))
        print(f"{name}, ridge {ridge}: median {1e3 * median:.1f} ms, slowest {1e3 * worst[0]:.1f} ms at {worst[1:]}")


def wide_draw(seed: int) -> dict[str, Array]:
    """Ten tasks of 200 rows and 370 correlated features, of which 30 matter, the same in all tasks."""
    rng = np.random.default_rng(seed)
    X = np.sqrt(0.5) * (rng.standard_normal((10, 200, 370)) + rng.standard_normal((10, 200, 1)))
    W = np.where(np.arange(370) < 30, rng.standard_normal(370) + 0.5 * rng.standard_normal((10, 370)), 0.0)
    return stacked(X, np.matmul(X, W[:, :, None])[:, :, 0] + rng.standard_normal((10, 200)))


def draws() -> None:
    """Slowest over fastest of ten draws, for three strengths γ."""
    for gamma in (0.1, 10.0, 100.0):
        seconds, rounds = [], []
        for seed in range(10):
            rows, model = wide_draw(seed), MSSLRegressor(0.3, gamma)
            seconds.append(min(cpu_seconds(lambda model=model, rows=rows: model.fit(**rows))[0] for _ in range(2)))
            rounds.append(len(model.result_.history))
            print(
                f"γ = {gamma}, draw {seed}: {seconds[-1]:.3f} s, {rounds[-1]} rounds, {model.result_.status.name}, "
                f"{np.mean(model.coef_ != 0):.2f} of the weights",
                flush=True,
            )
        print(f"γ = {gamma}: {min(seconds):.3f} … {max(seconds):.3f} s, ratio {max(seconds) / min(seconds):.2f}")


def main() -> None:
    """Command line."""
    parts = {"lasso": lasso, "joint": joint, "draws": draws}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sys.argv[1:] or parts:
            parts[name]()


if __name__ == "__main__":
    main()
