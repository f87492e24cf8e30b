"""How often graphs show relations that are not there, and how many of the true ones they find.

    python -m benchmarks.graph_calibration --draws 200
    python -m benchmarks.graph_calibration --page docs/graph.md

Null cells: independent tasks, with and without a shared mean, own or shared features, fewer rows than features, errors
common to all tasks on an occasion, stations' rows shuffled among stations, residuals with autocorrelation. In each the
share of draws with any relation (or edge) at a false discovery rate of 10 % is counted. Power cells: clusters of known
tasks; F1, false discovery proportion, coverage of the intervals and wrong signs, beside the same test with W known.
Draws that the output file holds are not made again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import re
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from mssl import MSSLRegressor
from mssl.datasets import load_climate, make_clustered_tasks
from mssl.graph.information import evidence_on_weights, partial_at
from mssl.graph.tests import GraphEvidence, Residuals


def weights_evidence(X: Any, y: Any, tasks: Any = None) -> GraphEvidence:
    """The evidence of a default fit, without the fit."""
    model = MSSLRegressor()
    data = model._read(X, y, tasks, None)
    return evidence_on_weights(model.to_spec(data).prepare(data), data).resolve()


def independent(random: np.random.Generator, K: int, d: int, n: int, mean: float, layout: str, rho: float) -> Any:
    """Tasks without a relation beyond a shared mean."""
    W = random.standard_normal((K, d)) + mean * random.standard_normal(d)
    E = np.sqrt(1 - rho) * random.standard_normal((n, K)) + np.sqrt(rho) * random.standard_normal((n, 1))
    if layout == "shared":
        X = random.standard_normal((n, d))
        return weights_evidence(X, X @ W.T + E)
    X = random.standard_normal((n, K, d))
    Y = np.einsum("nkd,kd->nk", X, W) + E
    if layout == "aligned":
        return weights_evidence(X, Y)
    flat = X.transpose(1, 0, 2).reshape(K * n, d)
    return weights_evidence(flat, Y.T.ravel(), np.repeat(np.arange(K), n))


def heavy(random: np.random.Generator, K: int, d: int, n: int, freedom: int) -> GraphEvidence:
    """Tasks without a relation in which some features are large in all tasks: weights of Student's distribution."""
    W = random.standard_normal((K, d)) / np.sqrt(random.chisquare(freedom, size=d) / freedom)
    X = random.standard_normal((K * n, d))
    tasks = np.repeat(np.arange(K), n)
    y = np.einsum("nd,nd->n", X, W[tasks]) + random.standard_normal(K * n)
    return weights_evidence(X, y, tasks)


def shuffled(random: np.random.Generator, name: str, n: int) -> GraphEvidence:
    """Station data in which the stations change places every month."""
    data = load_climate(name)
    X, y = np.asarray(data.X, dtype=float), np.asarray(data.y, dtype=float)
    first = random.integers(0, len(y) - n + 1)
    X, y = X[first : first + n], y[first : first + n]
    places = np.argsort(random.random(y.shape), axis=1)
    return weights_evidence(np.take_along_axis(X, places[:, :, None], 1), np.take_along_axis(y, places, 1))


def residuals(random: np.random.Generator, K: int, n: int, autocorrelation: float) -> GraphEvidence:
    """Independent residuals of three features and an intercept, each remembering the occasion before."""
    E = random.standard_normal((K, n + 50))
    for i in range(1, n + 50):
        E[:, i] = autocorrelation * E[:, i - 1] + np.sqrt(1 - autocorrelation**2) * E[:, i]
    X = np.column_stack([np.ones(n), random.standard_normal((n, 3))])
    E = E[:, 50:]
    return Residuals(E - E @ X @ np.linalg.pinv(X), used=4).evidence()


def null_cells() -> dict[str, Any]:
    """Every null cell by name: what draws its evidence."""
    cells: dict[str, Any] = {}
    for K, d, layout, mean in itertools.product((6, 13, 46), (5, 10, 30, 100), ("own", "shared"), (0.0, 1.0)):
        for n in (max(8, d // 2), 3 * d):
            arguments = (K, d, n, mean, layout, 0.0)
            cells[f"K={K} d={d} n={n} {layout} X{' mean' if mean else ''}"] = (independent, arguments)
    for K, d, n, layout in (
        (13, 10, 30, "shared"),
        (13, 30, 60, "shared"),
        (13, 10, 60, "aligned"),
        (46, 5, 40, "shared"),
    ):
        cells[f"K={K} d={d} n={n} {layout} X, errors correlated .8"] = (independent, (K, d, n, 0.0, layout, 0.8))
    cells["K=13 d=60 n=120 own X, t weights of 3 degrees"] = (heavy, (13, 60, 120, 3))
    cells["fiveloc shuffled"] = (shuffled, ("fiveloc", 300))
    cells["atlas shuffled"] = (shuffled, ("atlas", 300))
    for K, n, phi in ((6, 60, 0.0), (13, 100, 0.5), (46, 200, 0.7), (13, 60, 0.8)):
        cells[f"residuals K={K} n={n} autocorrelation {phi}"] = (residuals, (K, n, phi))
    return cells


def null(name: str, draw: int) -> dict[str, float]:
    """Whether one draw has any relation and any edge at a false discovery rate of 10 %."""
    function, arguments = null_cells()[name]
    evidence = function(np.random.default_rng([zlib.crc32(name.encode()), draw]), *arguments)
    names = range(len(evidence.correlation))
    return {"relations": float(len(evidence.table(names)) > 0), "edges": float(len(evidence.table(names, "edges")) > 0)}


def rates(pairs: list[tuple[int, int]], truth: Any) -> tuple[float, float]:
    """F1 and false discovery proportion of some pairs."""
    right = sum(bool(truth[pair]) for pair in pairs)
    there = int(np.triu(truth, 1).sum())
    return 2 * right / max(1, len(pairs) + there), (len(pairs) - right) / max(1, len(pairs))


def edge_bound(random: np.random.Generator, covariance: Any, designs: list[Any], joined: Any) -> float:
    """F1 of conditional edges with W known, but with so few features that they tell as much as W with its errors does.

    How many those are, the Fisher information of each group's covariance says (noise 1): no estimate does better than
    that, but for small numbers.
    """
    K = len(covariance)
    r, freedom = np.eye(K), np.ones((K, K))
    for members in {tuple(np.flatnonzero(row)) for row in covariance.round(12) != 0}:
        block, p = np.ix_(members, members), len(members)
        if p < 3:
            continue
        information = np.zeros((1, p, designs[0].shape[1], p, designs[0].shape[1]))
        for place, k in enumerate(members):
            X = designs[k] - designs[k].mean(axis=0)
            information[0, place, :, place] = X.T @ X
        count = np.median(partial_at(covariance[block], information)[1][np.triu_indices(p, 1)])
        W = np.linalg.cholesky(covariance[block]) @ random.standard_normal((p, max(2, round(count))))
        W /= np.linalg.norm(W, axis=1, keepdims=True)
        r[block], freedom[block] = W @ W.T, count
    return rates(GraphEvidence(r, freedom, np.ones(K)).table(range(K), "edges").pairs, joined)[0]


def power(kind: str, d: int, n: int, draw: int) -> dict[str, float]:
    """What is found of clusters of known tasks in one draw."""
    K, random = 13, np.random.default_rng(draw)
    pairs = np.triu_indices(K, 1)
    data = make_clustered_tasks(
        kind, n_features=d, n_samples=n, shared_design=bool(draw % 2), random_state=70_000 + draw
    )
    evidence = weights_evidence(data.X, data.y, data.tasks)  # tasks are named in their order
    W = data.coef / np.linalg.norm(data.coef, axis=1, keepdims=True)
    exact = GraphEvidence(W @ W.T, np.full((K, K), float(d)), np.ones(K))
    related, joined = data.covariance != 0, data.adjacency
    sizes, spread = np.sqrt(np.diag(data.covariance)), np.sqrt(np.diag(data.precision))
    correlation = (data.covariance / np.outer(sizes, sizes))[pairs]
    partial = (-data.precision / np.outer(spread, spread))[pairs]
    relations = evidence.table(range(K))
    grouped = evidence.groups[pairs[0]] == evidence.groups[pairs[1]]
    inside = [
        (low <= truth) & (truth <= high)
        for (_, low, high, _), truth in ((evidence._relations, correlation), (evidence._edges, partial))
    ]
    wrong = [np.sign(r.weight) != np.sign(data.covariance[r[:2]]) for r in relations if related[r[:2]]]
    f1, fdp = rates(relations.pairs, related)
    edge_f1, edge_fdp = rates(evidence.table(range(K), "edges").pairs, joined)
    return {
        "f1": f1,
        "known_w": rates(exact.table(range(K)).pairs, related)[0],
        "fdp": fdp,
        "coverage": float(inside[0].mean()),
        "wrong_signs": float(np.mean(wrong)) if wrong else 0.0,
        "edge_f1": edge_f1,
        "edge_f1_bound": edge_bound(random, data.covariance, np.split(data.X, K), joined),
        "edge_known_w": rates(exact.table(range(K), "edges").pairs, joined)[0],
        "edge_fdp": edge_fdp,
        "edge_coverage": float(inside[1][grouped].mean()) if grouped.any() else float("nan"),
    }


def tables(results: dict[str, Any]) -> str:
    """The results as two Markdown tables."""
    lines = ["| no relation is true | draws | any relation | any edge |", "|---|---|---|---|"]
    means = {name: {key: np.nanmean(values) for key, values in cell.items()} for name, cell in results.items()}
    count = {name: len(next(iter(cell.values()))) for name, cell in results.items()}
    nulls = [name for name in results if not name.startswith("power")]
    lines += [
        f"| {name} | {count[name]} | {means[name]['relations']:.3f} | {means[name]['edges']:.3f} |" for name in nulls
    ]
    whole = [np.mean([means[name][level] for name in nulls]) for level in ("relations", "edges")]
    total = sum(count[name] for name in nulls)
    lines.append(f"| mean of {len(nulls)} cells | {total} | {whole[0]:.3f} | {whole[1]:.3f} |")
    head = ["clusters", "draws", "F1 (s.e.)", "W known", "FDP", "coverage", "wrong signs"]
    head += ["edges: F1", "bound", "W known", "FDP", "coverage"]
    lines += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, cell in results.items():
        if name.startswith("power"):
            numbers = [f"{value:.3f}" for value in means[name].values()]
            numbers[0] += f" ({np.std(cell['f1'], ddof=1) / np.sqrt(count[name]):.3f})"
            lines.append(f"| {name[6:]} | {count[name]} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def write_page(path: Path, results: dict[str, Any]) -> None:
    """Put the tables between the marks of a page."""
    begin, end = "<!-- tables -->", "<!-- end of tables -->"
    head, _, rest = path.read_text(encoding="utf-8").partition(begin)
    tail = rest.partition(end)[2]
    path.write_text(f"{head}{begin}\n\n{tables(results)}\n\n{end}{tail}", encoding="utf-8")


def all_cells() -> dict[str, Any]:
    """What makes one draw of every cell, given its number."""
    cells: dict[str, Any] = {name: functools.partial(null, name) for name in null_cells()}
    for kind, (d, n) in itertools.product(
        ("centres", "equicorrelated", "chain"), ((30, 30), (30, 60), (30, 200), (60, 60), (60, 200))
    ):
        cells[f"power {kind} d={d} n={n}"] = functools.partial(power, kind, d, n)
    return cells


def main() -> None:
    """Make the draws that are not there yet, a few of every cell in turn."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=200, help="draws of a null cell (power cells: a quarter)")
    parser.add_argument("--at-once", type=int, default=20, help="draws of a cell before the next one has its turn")
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop after this much time of the processor")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/graph_calibration.json"))
    parser.add_argument("--page", type=Path, help="write the tables of the output file into this page, run nothing")
    parser.add_argument("--match", default="", help="run the cells whose names match this expression")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {}
    if options.page is not None:
        write_page(options.page, results)
        return
    cells = {name: draw for name, draw in all_cells().items() if re.search(options.match, name)}
    for first, (name, draw) in itertools.product(range(0, options.draws, options.at_once), cells.items()):
        wanted = min(first + options.at_once, options.draws)
        if name.startswith("power"):
            wanted = min(wanted, options.draws // 4)
        cell = results.setdefault(name, {})
        for number in range(len(next(iter(cell.values()), [])), wanted):
            for key, value in draw(number).items():
                cell.setdefault(key, []).append(value)
        options.output.write_text(json.dumps(results))
        if time.process_time() > options.seconds:
            break


if __name__ == "__main__":
    main()
