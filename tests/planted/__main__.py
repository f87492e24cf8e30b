"""Plant faults one after the other and see that the tests of their rooms fail: ``python -m tests.planted [WORD …]``.

Each fault is one change of one file, made in a copy of the package. A fault is killed where the tests of its room fail
with it. Words choose faults by parts of their names or files. Before the faults, the same tests are run on the package
as it is, since tests that fail anyway kill everything. The command ends with status 1 if a fault lives, or if its text
is not found once in its file, so that it must be written anew where code moves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from tests.planted.faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
LONGEST = 1200.0  # seconds of the tests of one room; a fault that makes them hang is found too


def run(source: Path, tests: Sequence[str]) -> str:
    """The first test that fails, "hangs", or nothing where all pass."""
    one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    # A test that knows the source by its path would look at the original: the architecture's laws are not asked here.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    environment = os.environ | one | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode == 0:
        return ""
    named = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return named[0].split(" - ")[0] if named else f"status {done.returncode}"


def wrong(fault: Fault) -> str:
    """Why a fault cannot be planted, or nothing."""
    path = SOURCE / "mssl" / fault.path
    if not path.exists():
        return f"{fault.path} is no file"
    count = path.read_text(encoding="utf-8").count(fault.before)
    return "" if count == 1 else f"{fault.path} holds its text {count} times"


def plant(fault: Fault) -> str:
    """What finds the fault: a test, or nothing."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name, "src")
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / "mssl" / fault.path
        path.write_text(path.read_text(encoding="utf-8").replace(fault.before, fault.after), encoding="utf-8")
        return run(copy, fault.tests)


def main() -> int:
    """Plant the faults that are asked for, say what finds each, and count those that live."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names or files; all faults if there are none")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="name the faults, and those that cannot be planted")
    arguments = parser.parse_args()
    chosen = [f for f in FAULTS if not arguments.words or any(w in f.name or w in f.path for w in arguments.words)]
    stale = {fault.name: said for fault in chosen if (said := wrong(fault))}
    for name, said in stale.items():
        print(f"stale  {name}: {said}")
    if arguments.list:
        for fault in chosen:
            print(f"{fault.path:34s} {fault.name}")
        return bool(stale)
    chosen = [fault for fault in chosen if fault.name not in stale]
    for tests in sorted({fault.tests for fault in chosen}):
        if found := run(SOURCE, tests):
            print(f"fails without a fault: {' '.join(tests)}: {found}")
            return 1
    lives = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        started = perf_counter()
        for fault, found in zip(chosen, pool.map(plant, chosen), strict=True):
            lives += not found
            print(f"{'killed' if found else 'LIVES '} {fault.name}: {found or fault.path}", flush=True)
    print(f"{len(chosen) - lives} of {len(chosen)} killed, {len(stale)} stale, in {perf_counter() - started:.0f} s")
    return bool(lives or stale)


if __name__ == "__main__":
    sys.exit(main())
