"""`python -m benchmarks run --quick|--full [--only GROUP …] [--minutes M]`, then `python -m benchmarks report`."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from random import Random
from time import perf_counter, strftime
from typing import Any

# Before numpy is loaded: its BLAS reads these once.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"


def run(args: argparse.Namespace) -> None:
    """Measure what was asked for, save after each problem, and keep what earlier runs have of other groups."""
    from threadpoolctl import threadpool_limits

    from benchmarks import floors, operations
    from benchmarks.measures import as_dict, compare, machine
    from benchmarks.plan import GROUPS
    from benchmarks.solvers import versions

    path = Path(args.out)
    chosen = args.only or [*GROUPS, "operations", "floors"]
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() and args.only else {"groups": {}}
    results["versions"] = versions()
    longest, budget = (10.0, 2.0) if args.full else (3.0, 0.5)
    ends = perf_counter() + 60 * args.minutes
    with threadpool_limits(1):
        for group in chosen:
            entry: dict[str, Any] = {"machine": machine(), "when": strftime("%Y-%m-%d %H:%M"), "full": args.full}
            entry |= {"records": [], "not run": 0}
            results["groups"][group] = entry
            if group == "operations":
                entry |= operations.run(args.full)
            elif group == "floors":
                entry |= floors.run()
            # In random order: a machine that gets busier, or time that runs out, favours no kind of problem.
            plan = GROUPS[group](args.full) if group in GROUPS else []
            for build in Random(0).sample(plan, len(plan)):
                if perf_counter() > ends:
                    entry["not run"] += 1
                    continue
                records = compare(build(), longest=longest, budget=budget)
                entry["records"] += [as_dict(record) for record in records]
                entry["records"].sort(key=lambda record: record["problem"])
                line = ", ".join(f"{r.solver} {r.outcome} {r.seconds or float('nan'):.2g}" for r in records)
                print(f"{records[0].problem}: {line}", flush=True)
            entry["load after"] = os.getloadavg()
            write(path, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def report(args: argparse.Namespace) -> None:
    """Write the page and its figures."""
    from benchmarks.report import figures, page

    results = json.loads(Path(args.results).read_text(encoding="utf-8"))
    target = Path(args.page)
    write(target, page(results, figures(results, target.parent)))
    print(target)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True)
    measure = commands.add_parser("run", help="measure")
    size = measure.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="full", action="store_false", help="small problems, a minute or two (default)")
    size.add_argument("--full", action="store_true", help="everything")
    measure.add_argument(
        "--only",
        nargs="+",
        metavar="GROUP",
        help="groups of the plan: graph, weights, fit, …, operations, floors",
    )
    measure.add_argument("--minutes", type=float, default=1e6, help="begin no problem after so many minutes")
    measure.add_argument("--out", default=RESULTS, help="file of results")
    measure.set_defaults(call=run)
    write_page = commands.add_parser("report", help="write docs/benchmarks.md")
    write_page.add_argument("--results", default=RESULTS)
    write_page.add_argument("--page", default=PAGE)
    write_page.set_defaults(call=report)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
