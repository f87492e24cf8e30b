"""The weight step against its rivals: ratios of times in one run, one BLAS thread.

Run with ``python benchmarks/weight_step.py``; set OMP_NUM_THREADS=1 (or the variable of your BLAS) first.

1. Independent elastic nets, Gram formation included, against scikit-learn's ElasticNet, one fit per task.
2. Coordinate descent against FISTA (with and without restart) and ADMM at a relative gap of 1e-6.
3. Memory of the form without Grams.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import ElasticNet
from threadpoolctl import threadpool_limits

from mssl.coupling import Coupling
from mssl.design import Design
from mssl.solvers.fista import fista
from mssl.solvers.quadratic import DesignQuadratic, make_quadratic
from mssl.solvers.weights import solve_quadratic


def best_times(runs: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Shortest time of each run in seconds; in turns and equally often, so that a busy machine hurts all alike."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(times):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def synthetic(d: int, K: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Coupling]:
    """Rows of K related tasks, targets, and a sparse coupling between them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((K * n, d))
    A = rng.standard_normal((K, 3 * K)) / np.sqrt(3 * K)
    precision = np.linalg.inv(0.25 * A @ A.T + 0.05 * np.eye(K))
    precision[np.abs(precision) < 0.1 * np.abs(precision).max()] = 0.0
    precision += np.eye(K) * max(0.0, 1.0 - np.linalg.eigvalsh(precision)[0])
    weights = 0.5 * rng.standard_normal((K, d))
    y = np.einsum("knd,kd->kn", X.reshape(K, n, d), weights).ravel() + rng.standard_normal(K * n)
    return X, y, Coupling.from_precision(precision, 1.0, np.linalg.inv(precision))


def elastic_nets(d: int, K: int, n: int, alpha: float = 0.05, ratio: float = 0.5) -> None:
    """K separate elastic nets, everything from the raw rows on."""
    X, y, _ = synthetic(d, K, n)
    offsets = n * np.arange(K + 1)
    ridge, lasso = np.full(K, n * alpha * (1 - ratio)), np.full(K, n * alpha * ratio)

    def ours() -> np.ndarray:
        design = Design.build(X, offsets, scale=False)
        loss = make_quadratic(design, np.ones(K * n), y)
        tol = 1e-6 * float(loss.constants.sum())
        return solve_quadratic(loss, Coupling.diagonal_only(ridge), lasso, np.zeros((K, d)), tol=tol).W

    def theirs() -> np.ndarray:
        fits = (ElasticNet(alpha=alpha, l1_ratio=ratio, tol=1e-6).fit(X[a : a + n], y[a : a + n]) for a in offsets[:-1])
        return np.array([fit.coef_ for fit in fits])

    difference = np.abs(ours() - theirs()).max()
    best = best_times({"ours": ours, "theirs": theirs}, 9)
    ratio_of_times = best["theirs"] / best["ours"]
    print(f"{K} elastic nets at (d, n) = ({d}, {n}): {1e3 * best['ours']:.1f} ms, {ratio_of_times:.1f} × scikit-learn")
    print(f"  largest difference of a coefficient: {difference:.1e}")


def rivals(d: int, K: int, n: int, fraction: float, *, grams: bool) -> None:
    """Coordinate descent against the paper's solvers from W = 0."""
    X, y, coupling = synthetic(d, K, n)
    design = Design.build(X, n * np.arange(K + 1))
    weights = np.ones(K * n)
    loss = make_quadratic(design, weights, y) if grams else DesignQuadratic(design, weights, y)
    start = np.zeros((K, d))
    threshold = np.full(K, fraction * np.abs(loss.linear).max())
    tol = 1e-6 * loss.value(start)

    def run(solver: str) -> Callable[[], object]:
        if solver == "plain FISTA":
            return lambda: fista(loss, coupling, threshold, start, tol=tol, restart=False)
        return lambda: solve_quadratic(loss, coupling, threshold, start, solver=solver, tol=tol)

    run("coordinate")()
    best = best_times({name: run(name) for name in ("coordinate", "plain FISTA", "fista", "admm")}, 3)
    own = best.pop("coordinate")
    text = ", ".join(f"{name} {seconds / own:.1f} ×" for name, seconds in best.items())
    print(f"({d}, {K}, {n}) {type(loss).__name__}, γ = {fraction} γ_max: {1e3 * own:.2f} ms; {text}")


def memory(d: int, K: int, n: int) -> None:
    """Peak memory above the data for a step without Grams."""
    X, y, coupling = synthetic(d, K, n)
    solve_quadratic(
        DesignQuadratic(Design.build(X[:, :2], n * np.arange(K + 1)), np.ones(K * n), y),
        coupling,
        np.ones(K),
        np.zeros((K, 2)),
        tol=1.0,
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loss = make_quadratic(Design.build(X, n * np.arange(K + 1)), np.ones(K * n), y)
    threshold = np.full(K, 0.2 * np.abs(loss.linear).max())
    tol = 1e-6 * loss.value(np.zeros((K, d)))
    step = solve_quadratic(loss, coupling, threshold, np.zeros((K, d)), tol=tol)
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    print(
        f"({d}, {K}, {n}) {type(loss).__name__}: {X.nbytes / 2**30:.2f} GiB of data, {used:.2f} GiB more; {step.status}"
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        memory(2000, 50, 300)
        elastic_nets(10, 250, 600)
        for shape in ((30, 13, 60), (500, 15, 400), (10, 250, 600)):
            for fraction in (0.02, 0.2):
                for grams in (True, False):
                    rivals(*shape, fraction, grams=grams)
