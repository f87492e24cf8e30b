"""Run the campaign: every case in a process that may crash or hang without ending the run.

python -m tests.campaign                       # three minutes of all parts, seeded by the day
python -m tests.campaign fits --minutes 60 --seed 7
python -m tests.campaign fits --seed 7 --first 1234 --count 1    # one case again
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

SILENCE = 150.0  # seconds without a word after which a worker hangs
OF_FILES = ("models", "tables", "netcdf")  # parts in which a small file may not make anyone ask for much memory
MOST_MEMORY = 2**33  # bytes of addresses for them, of which the libraries take up to a half
LIBRARY_CRASHES = ("netcdf",)  # parts in which the process may be ended by a library that is not ours


def work(part: str, seed: int, first: int, count: int, until: float, folder: Path) -> None:
    """Do cases and print one JSON line before and after each."""
    import numpy as np
    from tests.campaign.parts import PARTS

    warnings.simplefilter("ignore")
    if part in OF_FILES:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, resource.RLIM_INFINITY))
    case = PARTS[part][0]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing else may come between the lines
    for index in range(first, first + count):
        if time.time() > until:
            break
        print(json.dumps({"begin": index}), file=out, flush=True)
        found = list(case(np.random.default_rng([seed, index]), folder))
        print(
            json.dumps(
                {"end": index, "found": [[kind, " ".join(str(detail).split())[:600]] for kind, detail in found]}
            ),
            file=out,
            flush=True,
        )


def run(part: str, seed: int, first: int, count: int, seconds: float) -> tuple[Counter[str], int]:
    """Let workers do cases of one part until time or cases are used up; findings by kind, and the number of cases."""
    until, tally, done = time.time() + seconds, Counter(), 0
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        while count > 0 and time.time() < until:
            arguments = [part, "--worker", folder, "--seed", seed, "--first", first, "--count", count, "--until", until]
            command = [sys.executable, "-m", "tests.campaign", *map(str, arguments)]
            last, ended = _follow(command, part, seed, tally, until)
            done += ended
            if last is None:
                break
            count, first = count - (last + 1 - first), last + 1
    return tally, done


def _follow(command: list[str], part: str, seed: int, tally: Counter[str], until: float) -> tuple[int | None, int]:
    """Read a worker's lines; the case at which it died (None if it did not), and how many it finished."""
    import selectors

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        watch = selectors.DefaultSelector()
        watch.register(worker.stdout, selectors.EVENT_READ)
        now, done = -1, 0
        while True:
            if not watch.select(SILENCE):
                worker.kill()
                _report(tally, part, seed, now, "hangs", f"no word for {SILENCE:g} s")
                return now, done
            line = worker.stdout.readline()
            if not line:
                break
            entry = json.loads(line)
            now = entry.get("begin", now)
            if "end" in entry:
                done += 1
                for kind, detail in entry["found"]:
                    _report(tally, part, seed, now, kind, detail)
        said = worker.stderr.read().strip().splitlines()[-1:]
        if worker.wait() == 0:
            return None, done
    if now < 0:
        raise RuntimeError(f"The part {part} does not begin: {' '.join(said)[:300]}")
    if part not in LIBRARY_CRASHES:
        _report(tally, part, seed, now, "the process dies", f"status {worker.returncode} {' '.join(said)[:300]}")
    return now, done


def _report(tally: Counter[str], part: str, seed: int, index: int, kind: str, detail: str) -> None:
    tally[kind] += 1
    print(f"FOUND {part} --seed {seed} --first {index} --count 1: {kind}. {detail}", flush=True)


def main() -> int:
    """Run what was asked for; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    today = datetime.datetime.now(tz=datetime.UTC).date().toordinal()
    parser.add_argument("parts", nargs="*", help="which parts; all by default")
    parser.add_argument("--seed", type=int, default=today, help="the default is the number of the day")
    parser.add_argument("--first", type=int, default=0, help="the first case")
    parser.add_argument("--count", type=int, default=10**9, help="most cases of each part")
    parser.add_argument("--minutes", type=float, default=3.0, help="time for all parts together")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.parts[0], given.seed, given.first, given.count, given.until, Path(given.worker))
        return 0
    from tests.campaign.parts import PARTS

    unknown = sorted(set(given.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]}; parts are {', '.join(PARTS)}")
    chosen = given.parts or list(PARTS)
    whole, wrong = sum(PARTS[name][1] for name in chosen), 0
    print(f"Campaign with --seed {given.seed}", flush=True)
    for name in chosen:
        tally, done = run(name, given.seed, given.first, given.count, 60 * given.minutes * PARTS[name][1] / whole)
        # Time depends on the machine and its load: it is reported, and left to a run by hand to judge.
        wrong += sum(n for kind, n in tally.items() if not kind.startswith("takes more than"))
        print(f"{name}: {done} cases, {tally.total()} findings {dict(tally) or ''}".rstrip(), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
