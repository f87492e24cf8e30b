"""This tree against an older one, in turns: the same problems, one thread, processor time, the least of some turns.

    python -m benchmarks.versions OLD                    # OLD: a checkout of the older version, with its benchmarks
    python -m benchmarks.versions OLD graph fit          # some groups
    python -m benchmarks.versions OLD --turns 9 --out benchmarks/versions.json

Each tree has a process of its own that stays for the whole run: it builds a problem with its tree's package, solves it
once without counting (kernels load, older ones compile), and then as often as it is told. OLD may also be set by the
variable MSSL_OLD.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SAMPLE = 0.02  # seconds of a sample: short runs are looped
LONG = 3.0  # seconds from which on a problem gets two turns alone
PRELUDE = "from benchmarks import plan, problems, solvers\n"

# What the process of a tree does: reads a line of JSON, answers one.
SERVER = """
import gc, json, sys, time, traceback, warnings
from threadpoolctl import threadpool_limits
warnings.simplefilter("ignore")
answer, sys.stdout, names = sys.stdout, sys.stderr, {}
for line in sys.stdin:
    order, reply = json.loads(line), {}
    try:
        if "setup" in order:
            names = {}
            exec(order["setup"], names)
            threadpool_limits(1)
        gc.collect()
        gc.disable()
        began = time.process_time()
        for _ in range(order["loops"]):
            names["work"]()
        reply["seconds"] = (time.process_time() - began) / order["loops"]
        gc.enable()
        if order.get("fact") and "fact" in names:
            reply["fact"] = names["fact"]()
    except Exception:
        reply["error"] = traceback.format_exc()[-300:]
    print(json.dumps(reply), file=answer, flush=True)
"""


@dataclass
class Tree:
    """A checkout and the process that solves problems with it."""

    path: Path

    def __post_init__(self) -> None:
        """Start the process."""
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        """A process that imports from this tree alone."""
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        place = {"PYTHONPATH": os.pathsep.join((str(self.path / "src"), str(self.path)))}
        return subprocess.Popen(
            [sys.executable, "-P", "-c", SERVER],
            env=os.environ | single | place,
            cwd=self.path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        """The answer to one order."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


@dataclass(frozen=True)
class Case:
    """A problem: code that defines ``work``, and ``fact`` where something about it is to be known."""

    group: str
    name: str
    setup: str


def graph_cases() -> Iterator[Case]:
    """Ω-steps: four kinds of graph, four sizes, three λ; the fact is the largest component."""
    for p in (13, 50, 250, 1000):
        for kind in ("chain", "blocks", "erdos-renyi", "low-rank"):
            n = 10 if kind == "low-rank" else 10 * p
            for share in (0.3, 0.5, 0.7):
                yield Case(
                    f"graph, p = {p}",
                    f"{kind}, n = {n}, λ = {share} λ_max",
                    f"{PRELUDE}import numpy as np\nfrom scipy.sparse.csgraph import connected_components\n"
                    f"problem = problems.GraphStep({kind!r}, {p}, {n}, {share})\n"
                    "work = lambda: solvers.ours_graph(problem, 1e-6)\n"
                    "parts = connected_components(np.abs(problem.S) > problem.alpha)[1]\n"
                    "fact = lambda: int(np.bincount(parts).max())\n",
                )


def planned_cases(group: str) -> Iterator[Case]:
    """A group of the plan as this tree's full run has it, by its place there."""
    from benchmarks.plan import GROUPS

    for place, build in enumerate(GROUPS[group](True)):
        name = ", ".join([*(str(a) for a in build.args), *(f"{k} = {v}" for k, v in build.keywords.items())])  # type: ignore[attr-defined]
        yield Case(
            group,
            name,
            f"{PRELUDE}problem = plan.GROUPS[{group!r}](True)[{place}]()\n"
            "ours = solvers.solvers_of(problem.group)[0]\nwork = lambda: ours.run(problem, 1e-6)\n",
        )


def estimator_cases() -> Iterator[Case]:
    """What a user calls: fits and searches."""
    data = (
        "from mssl import MSSLRegressor, MSSLRegressorCV\nfrom mssl.datasets import make_clustered_tasks\n"
        "data = make_clustered_tasks({}random_state=0)\n"
        "rows = dict(X=data.X, y=data.y, tasks=data.tasks)\n"
    )
    for name, options, work in (
        ("fit, made tasks", "", "MSSLRegressor(0.3, 0.1).fit(**rows)"),
        ("fit, made tasks, γ = 0", "", "MSSLRegressor(0.3, 0.0).fit(**rows)"),
        ("default search, made tasks", "", "MSSLRegressorCV().fit(**rows)"),
        ("default search, sparse tasks", "'sparse', ", "MSSLRegressorCV().fit(**rows)"),
        ("default search, 20 rows of 5 features", "n_features=5, n_samples=20, ", "MSSLRegressorCV().fit(**rows)"),
    ):
        yield Case("estimators", name, data.format(options) + f"work = lambda: {work}\n")


def cases(groups: Sequence[str]) -> Iterator[Case]:
    """All cases of some groups."""
    if "graph" in groups:
        yield from graph_cases()
    for group in ("weights", "fit", "joint lasso"):
        if group in groups:
            yield from planned_cases(group)
    if "estimators" in groups:
        yield from estimator_cases()


def compare(case: Case, new: Tree, old: Tree, turns: int) -> dict[str, Any]:
    """Least seconds of both trees, in turns."""
    found: dict[str, Any] = {"group": case.group, "name": case.name}
    least, loops = {}, {}
    for label, tree in (("old", old), ("new", new)):
        first = tree.ask(setup=case.setup, loops=1)
        second = first if "error" in first else tree.ask(loops=1, fact=label == "new")
        if "error" in second:
            return found | {"error": f"{label}: {second['error']}"}
        if "fact" in second:
            found["fact"] = second["fact"]
        least[label] = second["seconds"]
        loops[label] = max(1, int(SAMPLE / max(second["seconds"], 1e-6)))
    for _ in range(2 if max(least.values()) > LONG else turns):
        for label, tree in (("old", old), ("new", new)):
            least[label] = min(least[label], tree.ask(loops=loops[label])["seconds"])
    return found | least


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__.splitlines()[0])
    known = ("graph", "weights", "fit", "joint lasso", "estimators")
    parser.add_argument("old", nargs="?" if "MSSL_OLD" in os.environ else None, default=os.environ.get("MSSL_OLD"))
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(known))
    parser.add_argument("--only", default="", help="problems whose group and name have this in them")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--out", help="file of results, which keeps what other groups have there")
    args = parser.parse_args()
    new, old = Tree(HERE.parent), Tree(Path(args.old).resolve())
    rows = []
    for case in cases(args.groups or known):
        if args.only not in f"{case.group}, {case.name}":
            continue
        row = compare(case, new, old, args.turns)
        rows.append(row)
        if "error" in row:
            print(f"{row['group']} | {row['name']} | {row['error']}", flush=True)
            continue
        fact = "" if "fact" not in row else f" | {row['fact']}"
        print(
            f"{row['group']} | {row['name']}{fact} | {1e3 * row['old']:.3f} | {1e3 * row['new']:.3f} | "
            f"{row['new'] / row['old']:.3f}",
            flush=True,
        )
    for tree in (new, old):
        tree.close()
    for group in dict.fromkeys(row["group"] for row in rows):
        ratios = [row["new"] / row["old"] for row in rows if row["group"] == group and "new" in row]
        if ratios:
            print(f"{group}: geometric mean {np.exp(np.mean(np.log(ratios))):.3f}, largest {max(ratios):.3f}")
    if args.out:
        path = Path(args.out)
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        measured = {row["group"] for row in rows}
        rows = [*(row for row in kept if row["group"] not in measured), *rows]
        path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
