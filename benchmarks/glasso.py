"""Graphical lasso: time ratios against scikit-learn, against one `eigh`, and of a warm start against a cold one.

Run with ``python -m benchmarks.glasso`` (``--quick`` leaves out large p). One BLAS thread, runs interleaved, best of
several. scikit-learn is measured twice: asked for the same relative duality gap of 1e-6 with all else at its defaults
(it may stop at 100 iterations), and, tuned by hindsight, with the loosest tolerances that end within a relative 1e-6 of
the optimum.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.linalg import eigh
from sklearn.covariance import graphical_lasso as sklearn_graphical_lasso
from threadpoolctl import threadpool_limits

from mssl.glasso import alpha_max, graphical_lasso, graphical_lasso_gap

Array = NDArray[np.float64]
SUBOPTIMALITY = 1e-6


def model(kind: str, p: int, rng: np.random.Generator) -> Array:
    """A sparse precision matrix: Erdős–Rényi of mean degree 4, a chain, or blocks of ten."""
    if kind == "erdos-renyi":
        A = np.triu(rng.random((p, p)) < 4 / p, 1) * rng.uniform(0.3, 0.6, (p, p)) * rng.choice([-1, 1], (p, p))
        A = A + A.T
        return A + (0.2 - np.linalg.eigvalsh(A)[0]) * np.eye(p)
    if kind == "chain":
        return np.eye(p) + 0.45 * (np.eye(p, k=1) + np.eye(p, k=-1))
    block = np.arange(p) // 10
    return np.eye(p) + 0.3 * ((block[:, None] == block) & ~np.eye(p, dtype=bool))


def sample(kind: str, p: int, n: int, rng: np.random.Generator) -> Array:
    """Sample covariance of n rows; "low-rank" has ten rows of noise."""
    if kind == "low-rank":
        Q = rng.standard_normal((n, p))
        return Q.T @ Q / n
    factor = np.linalg.cholesky(np.linalg.inv(model(kind, p, rng)))
    X = rng.standard_normal((n, p)) @ factor.T
    return X.T @ X / n


def interleaved(*runs: Callable[[], object], repeats: int) -> list[float]:
    """Best time of each run, taken in turns so that a busy machine hits all alike."""
    best = [np.inf] * len(runs)
    for _ in range(repeats):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def sklearn_default(S: Array, alpha: float, optimum: float) -> float:
    """Time of scikit-learn asked for the same duality gap, or NaN where it raises."""
    start = time.perf_counter()
    try:
        sklearn_graphical_lasso(S + alpha * np.eye(len(S)), alpha, tol=SUBOPTIMALITY * max(1.0, abs(optimum)))
    except FloatingPointError:
        return float("nan")
    return time.perf_counter() - start


def sklearn_tuned(S: Array, alpha: float, optimum: float) -> Callable[[], object] | None:
    """scikit-learn with the loosest settings that reach the suboptimality, or None where none does."""
    shifted = S + alpha * np.eye(len(S))
    scale = max(1.0, abs(optimum))
    for tol, enet_tol in ((1e-3, 1e-4), (1e-4, 1e-4), (1e-5, 1e-5), (1e-6, 1e-6), (1e-7, 1e-7)):
        settings = {"tol": tol * scale, "enet_tol": enet_tol, "max_iter": 100}
        try:
            omega = sklearn_graphical_lasso(shifted, alpha, **settings)[1]
            value = graphical_lasso_gap(S, 0.5 * (omega + omega.T), alpha, check=False)[1]
        except (FloatingPointError, ValueError):
            continue
        if value - optimum <= SUBOPTIMALITY * scale:
            return lambda: sklearn_graphical_lasso(shifted, alpha, **settings)
    return None


def against_sklearn(table: Table, rng: np.random.Generator) -> None:
    """Rows of ratios at p = 50 and 250."""
    for p in (50, 250):
        problems = [(kind, n) for kind in ("erdos-renyi", "chain", "blocks") for n in (p // 2, 10 * p)]
        for kind, n in [*problems, ("low-rank", 10)]:
            S = sample(kind, p, n, rng)
            for fraction in (0.05, 0.3, 0.5, 0.7) if kind == "low-rank" else (0.3, 0.5, 0.7):
                alpha = fraction * alpha_max(S)
                best = graphical_lasso(S, alpha, tol=1e-10)
                result = graphical_lasso(S, alpha)
                default = sklearn_default(S, alpha, best.objective)
                tuned = sklearn_tuned(S, alpha, best.objective)
                runs = [lambda S=S, alpha=alpha: graphical_lasso(S, alpha)] + ([tuned] if tuned else [])
                times = interleaved(*runs, repeats=5 if p < 100 else 3)
                table.add_row(
                    f"{p}",
                    kind,
                    f"{n}",
                    f"{fraction}",
                    f"{np.count_nonzero(result.precision) / p - 1:.1f}",
                    f"{1e3 * times[0]:.2f}",
                    f"{(result.objective - best.objective) / max(1.0, abs(best.objective)):.0e}",
                    f"{default / times[0]:.0f}" if np.isfinite(default) else "raises",
                    f"{times[1] / times[0]:.0f}" if tuned else "fails",
                )


def against_eigh(table: Table, rng: np.random.Generator) -> None:
    """Rows of cold and warm solves at large p, relative to one eigendecomposition."""
    sizes = [("erdos-renyi", p, n) for p in (250, 1000, 2000) for n in (p // 2, 10 * p)]
    for kind, p, n in [*sizes, ("low-rank", 250, 10)]:
        S = sample(kind, p, n, rng)
        noise = rng.standard_normal(S.shape)
        changed = S * (1 + 1e-3 * (noise + noise.T) / np.sqrt(2))
        for fraction in (0.1, 0.2, 0.3, 0.5, 0.7):
            alpha = fraction * alpha_max(S)
            start = graphical_lasso(S, alpha)
            result = graphical_lasso(changed, alpha)
            decomposition, cold, warm = interleaved(
                lambda S=S: eigh(S, check_finite=False),
                lambda S=changed, alpha=alpha: graphical_lasso(S, alpha, check=False),
                lambda S=changed, alpha=alpha, start=start: graphical_lasso(S, alpha, check=False, warm_start=start),
                repeats=3,
            )
            edges = np.count_nonzero(result.precision) / p - 1
            table.add_row(
                f"{p}",
                kind,
                f"{n}",
                f"{fraction}",
                f"{edges:.1f}",
                f"{1e3 * cold:.1f}",
                f"{cold / decomposition:.2f}",
                f"{warm / cold:.2f}",
            )


def small(table: Table, rng: np.random.Generator) -> None:
    """Time of one call inside an alternation."""
    for n in (7, 30, 130):
        S = sample("blocks", 13, n, rng)
        changed = S * (1 + 1e-3 * np.outer(np.sin(np.arange(13)), np.sin(np.arange(13))))
        for fraction in (0.1, 0.3, 0.6):
            alpha = fraction * alpha_max(S)
            start = graphical_lasso(S, alpha)
            cold, warm = interleaved(
                lambda S=changed, alpha=alpha: graphical_lasso(S, alpha, check=False),
                lambda S=changed, alpha=alpha, start=start: graphical_lasso(S, alpha, check=False, warm_start=start),
                repeats=200,
            )
            table.add_row(f"{n}", f"{fraction}", f"{1e6 * cold:.0f}", f"{1e6 * warm:.0f}")


def main() -> None:
    """Print the three tables."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    graphical_lasso(sample("chain", 200, 100, rng), 0.3)
    problem = ("p", "model", "n", "α/α_max", "degree", "ms")
    first = Table(*problem, "suboptimality", "default / ours", "tuned / ours", title="Against scikit-learn")
    against_sklearn(first, rng)
    second = Table("n", "α/α_max", "cold µs", "warm µs", title="p = 13")
    small(second, rng)
    tables = [first, second]
    if "--quick" not in sys.argv:
        tables.append(Table(*problem, "cold / eigh", "warm / cold", title="Against eigh"))
        against_eigh(tables[-1], rng)
    for table in tables:
        Console(width=110).print(table)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
