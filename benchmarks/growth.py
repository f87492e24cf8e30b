"""How fits grow at their default settings: time, memory and error, each in a process of its own.

    python -m benchmarks.growth run [CASE …]     # measures, keeps what it has of other cases (benchmarks/growth.json)
    python -m benchmarks.growth report           # writes the tables of docs/scale.md

Times are processor seconds of one thread; units are the fit of 50 tasks with ``variance_floor=1`` in the same run.
Tasks come in groups of ten with a common centre ("groups"), from three hidden factors ("factors"), or have nothing to
do with each other ("unrelated"). The default floor was made with other draws (see ``mssl.structures.sparse``).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measures import exponent, machine, single_thread

Array = NDArray[np.float64]
Row = dict[str, Any]

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "growth.json", HERE.parent / "docs" / "scale.md"
LONGEST = 3600.0  # wall seconds after which a case is given up
SIZES = (50, 100, 200, 500, 1000)
FLOORS = (0.25, 0.5, 1.0, 2.0, 4.0)
SEED = 11


def weights(kind: str, K: int, d: int, rng: np.random.Generator) -> Array:
    """Coefficients of K tasks."""
    if kind == "groups":
        centres = rng.standard_normal((max(1, K // 10), d))
        return np.asarray(centres[np.arange(K) % len(centres)] + 0.5 * rng.standard_normal((K, d)))
    if kind == "factors":
        return np.asarray(rng.standard_normal((K, 3)) @ rng.standard_normal((3, d)) + 0.3 * rng.standard_normal((K, d)))
    return rng.standard_normal((K, d))


def rows(K: int, d: int, n: int, kind: str = "groups", seed: int = SEED) -> tuple[Array, Array, Array, Array]:
    """X, y and tasks in the long layout, and the true coefficients; errors are as large as three coefficients."""
    rng = np.random.default_rng(seed)
    W = weights(kind, K, d, rng)
    X = rng.standard_normal((K * n, d))
    y = np.einsum("knd,kd->kn", X.reshape(K, n, d), W).ravel() + 3.0 * rng.standard_normal(K * n)
    return X, y, np.repeat(np.arange(K), n), W


def peak() -> float:
    """Most memory that this process has held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(model: Any, *data: Any, repeats: int = 1, **named: Any) -> Row:
    """Least processor time of some fits, and facts about the last."""
    seconds, before = [], peak()
    for _ in range(repeats):
        began = process_time()
        model.fit(*data, **named)
        seconds.append(process_time() - began)
    fitted = getattr(model, "best_estimator_", model)
    facts = {"edges": fitted.graph_.n_edges}
    if hasattr(fitted, "result_"):
        facts |= {"rounds": fitted.n_iter_, "status": fitted.result_.status.name}
    return {"seconds": min(seconds), "before": before, "peak": peak(), **facts}


def fit(K: int, d: int = 20, n: int = 100, repeats: int = 3, **settings: Any) -> Row:
    """One p-MSSL fit."""
    from mssl import MSSLRegressor

    X, y, tasks, W = rows(K, d, n)
    model = MSSLRegressor().set_params(**settings)
    found = timed(model, X, y, tasks=tasks, repeats=repeats)
    return found | {"error": float(np.linalg.norm(model.coef_ - W) / np.linalg.norm(W))}


def errors(K: int, kind: str, draws: int = 3) -> Row:
    """Relative errors of the coefficients: defaults, no graph, and other floors; means over fresh draws."""
    from mssl import MSSLRegressor
    from mssl.structures import SparsePrecision

    methods = {"default": MSSLRegressor(), "no graph": MSSLRegressor(graph_penalty=1e6)}
    methods |= {
        f"floor {floor:g}": MSSLRegressor(SparsePrecision("auto", variance_floor=floor), max_iter=40)
        for floor in FLOORS
    }
    found: dict[str, list[float]] = {name: [] for name in methods}
    for draw in range(draws):
        X, y, tasks, W = rows(K, 20, 100, kind, SEED + 1 + draw)
        for name, model in methods.items():
            model.fit(X, y, tasks=tasks)
            found[name].append(float(np.linalg.norm(model.coef_ - W) / np.linalg.norm(W)))
    return {"errors": found}


def poisson() -> Row:
    """1000 tasks of counts."""
    from mssl import MSSLRegressor

    X, _, tasks, W = rows(1000, 20, 100)
    rng = np.random.default_rng(SEED)
    eta = np.einsum("nd,nd->n", X, 0.15 * W[tasks])
    return timed(MSSLRegressor(loss="poisson"), X, rng.poisson(np.exp(np.clip(eta, -5, 4))), tasks=tasks)


def cells() -> Row:
    """r-MSSL on 50 × 50 cells of a map, 12 features, 720 months."""
    from scipy.ndimage import gaussian_filter

    from mssl import MSSLRegressor

    rng = np.random.default_rng(SEED)
    side, d, n = 50, 12, 720
    smooth = np.stack([gaussian_filter(rng.standard_normal((side, side)), 2).ravel() for _ in range(n)])
    X, W = rng.standard_normal((n, side**2, d)), 0.3 * rng.standard_normal((side**2, d))
    y = np.einsum("nkd,kd->nk", X, W) + 0.7 * smooth / smooth.std() + 0.7 * rng.standard_normal(smooth.shape)
    return timed(MSSLRegressor(relation="residual"), X, y)


def search(K: int) -> Row:
    """The default cross-validated search."""
    from mssl import MSSLRegressorCV

    X, y, tasks, _ = rows(K, 20, 100)
    return timed(MSSLRegressorCV(), X, y, tasks=tasks)


def sparse_features(K: int, d: int = 200, n: int = 50) -> Row:
    """Many tasks with sparse features, in groups of five; the model's file beside it."""
    from scipy import sparse

    import mssl

    rng = np.random.default_rng(SEED)
    X = sparse.random_array(
        (K * n, d), density=0.05, format="csr", rng=rng, data_sampler=lambda size: rng.normal(size=size)
    )
    W = rng.standard_normal((K // 5, d))[np.arange(K) % (K // 5)] + 0.3 * rng.standard_normal((K, d))
    tasks = np.repeat(np.arange(K), n)
    y = np.asarray(X.multiply(W[tasks]).sum(axis=1)).ravel() + 0.5 * rng.standard_normal(K * n)
    model = mssl.MSSLRegressor()
    found = timed(model, X, y, tasks=tasks)
    with tempfile.TemporaryDirectory() as folder:
        path = mssl.save(model, Path(folder, "model.npz"))
        found["file beyond coefficients"] = (path.stat().st_size - model.coef_.nbytes) / 2**20
        again = mssl.load(path)
    again.predict(X[: 100 * n], tasks=tasks[: 100 * n])
    return found | {"text": repr(again.graph_), "peak": peak()}


def stability() -> Row:
    """Stability selection of 1000 tasks, 100 subsamples at 20 points each."""
    from mssl import StabilitySelection

    X, y, tasks, _ = rows(1000, 20, 100)
    return timed(StabilitySelection(random_state=0), X, y, tasks=tasks)


CASES: dict[str, Callable[[], Row]] = {
    "unit": lambda: fit(50, repeats=7, graph_penalty__variance_floor=1.0),
    **{f"K = {K}": lambda K=K: fit(K, repeats=5 if K <= 200 else 1) for K in SIZES},
    **{f"d = {d}": lambda d=d: fit(50, d=d, n=5 * d) for d in (20, 50, 100, 200)},
    **{f"n = {n}": lambda n=n: fit(50, n=n) for n in (100, 1000, 10_000)},
    "2000 tasks, 200 features": lambda: fit(2000, 200, repeats=1),
    "1000 Poisson tasks": poisson,
    "2500 cells, residuals": cells,
    "search, K = 50": lambda: search(50),
    "search, K = 200": lambda: search(200),
    **{f"{K} tasks, 200 sparse features": lambda K=K: sparse_features(K) for K in (2500, 5000, 10_000)},
    "stability, 1000 tasks": stability,
    **{
        f"errors, {kind}, K = {K}": lambda K=K, kind=kind: errors(K, kind)
        for kind in ("groups", "factors", "unrelated")
        for K in (50, 200)
    },
}


def run(names: list[str]) -> None:
    """Measure cases, each in a new process, and keep what there is of others."""
    results: Row = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    results["machine"] = machine()
    for name in names or list(CASES):
        command = [sys.executable, "-m", "benchmarks.growth", "one", name]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, check=True, env=single_thread(), timeout=LONGEST
            )
            results["cases"][name] = json.loads(answer.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            results["cases"][name] = {"given up": LONGEST}
        print(name, results["cases"][name], flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def table(cases: Row) -> str:
    """Times, in seconds and in units, and memory."""
    unit = cases["unit"]["seconds"]
    bars = {"K = 200": 8, "K = 500": 20, "K = 1000": 60, "2000 tasks, 200 features": 1200, "1000 Poisson tasks": 60}
    bars |= {"2500 cells, residuals": 1200}
    lines = ["| case | seconds | units | bar | peak GiB | edges | rounds |", "|---|---|---|---|---|---|---|"]
    for name in CASES:
        case = cases.get(name)
        if case is None or "seconds" not in case:
            continue
        units = case["seconds"] / unit
        bar = f"{bars[name]} {'met' if units <= bars[name] else '**not met**'}" if name in bars else ""
        lines.append(
            f"| {name} | {case['seconds']:.3g} | {units:.3g} | {bar} | {case['peak']:.2f} | {case['edges']} | "
            f"{case.get('rounds', '')} |"
        )
    return "\n".join(lines)


def exponents(cases: Row) -> str:
    """Slopes of logarithms."""
    lines = []
    for letter, sizes in (("K", SIZES), ("d", (20, 50, 100, 200)), ("n", (100, 1000, 10_000))):
        known = [(size, cases[f"{letter} = {size}"]["seconds"]) for size in sizes if f"{letter} = {size}" in cases]
        if len(known) > 2:
            slope, last = exponent(*zip(*known, strict=True)), exponent(*zip(*known[-2:], strict=True))
            text = f"time ∝ {letter}^{slope:.2f} over {known[0][0]} … {known[-1][0]}; ^{last:.2f} between the last two"
            lines.append(f"- {text}")
    return "\n".join(lines)


def accuracy(cases: Row) -> str:
    """Errors of the coefficients beside those without a graph and with the best floor."""
    lines = [
        "| tasks | default | no graph | best floor | default / no graph | default / best |",
        "|---|---|---|---|---|---|",
    ]
    for name in CASES:
        if "errors" not in cases.get(name, {}):
            continue
        found = {method: np.array(values) for method, values in cases[name]["errors"].items()}
        mean = {method: float(values.mean()) for method, values in found.items()}
        best = min((method for method in mean if method.startswith("floor")), key=lambda method: mean[method])
        ratios = []
        for other in ("no graph", best):
            ratio = found["default"] / found[other]
            ratios.append(f"{ratio.mean():.3f} ± {ratio.std(ddof=1) / np.sqrt(len(ratio)):.3f}")
        lines.append(
            f"| {name.removeprefix('errors, ')} | {mean['default']:.3f} | {mean['no graph']:.3f} | {mean[best]:.3f} "
            f"({best.removeprefix('floor ')}) | {ratios[0]} | {ratios[1]} |"
        )
    return "\n".join(lines)


def report() -> None:
    """Replace the tables of the page."""
    cases, text = json.loads(RESULTS.read_text())["cases"], PAGE.read_text(encoding="utf-8")
    for mark, content in (("times", table(cases)), ("exponents", exponents(cases)), ("errors", accuracy(cases))):
        start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, rest = text.split(start)
        text = before + start + content + "\n" + end + rest.split(end)[1]
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("what", choices=("run", "report", "one"))
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_args()
    if args.what == "run":
        run(args.cases)
    elif args.what == "report":
        report()
    else:
        print(json.dumps(CASES[args.cases[0]]()))


if __name__ == "__main__":
    main()
