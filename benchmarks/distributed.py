"""Many rows on two Dask workers of 1 GiB: ``python -m benchmarks.distributed FOLDER [--rows 2e7]``.

Parquet files are made in FOLDER chunk by chunk (some 330 MB for a million rows) and removed afterwards. A plain NumPy
loop over the same files is what one pass costs at least. Processor time counts, of all processes, from the moment that
the workers stand ready; it includes reading the files. A cluster takes some of it for doing nothing (heartbeats, and
the looks at memory and stacks), which is measured before the pass and told as its waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time, sleep

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402

COLUMNS, TASKS, ROWS_A_FILE = 40, 500, 200_000
NAMES = [f"x{j}" for j in range(COLUMNS)]


def make_files(folder: Path, rows: int) -> list[Path]:
    """Files of rows whose tasks come in four groups with weights in common."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    W = rng.standard_normal((4, COLUMNS))[np.arange(TASKS) % 4] + 0.3 * rng.standard_normal((TASKS, COLUMNS))
    paths = []
    for number in range(-(-rows // ROWS_A_FILE)):
        n = min(ROWS_A_FILE, rows - number * ROWS_A_FILE)
        X, task = rng.standard_normal((n, COLUMNS)), rng.integers(0, TASKS, n)
        y = np.einsum("nd,nd->n", X, W[task]) + 3.0 * rng.standard_normal(n)
        table = pa.table([*(pa.array(column) for column in X.T), pa.array(task), pa.array(y)], [*NAMES, "task", "y"])
        paths.append(folder / f"{number:05d}.parquet")
        parquet.write_table(table, paths[-1], compression="none", use_dictionary=False)
    return paths


def plain_loop(paths: list[Path]) -> np.ndarray:
    """What a user would write: sums of products of every task, file by file."""
    from pyarrow import parquet

    total = np.zeros((TASKS, COLUMNS + 2, COLUMNS + 2))
    for path in paths:
        table = parquet.read_table(path)
        rows = np.column_stack([*(table[name].to_numpy() for name in NAMES), table["y"].to_numpy()])
        rows = np.column_stack([np.ones(len(rows)), rows])
        task = table["task"].to_numpy()
        order = np.argsort(task, kind="stable")
        rows, bounds = rows[order], np.searchsorted(task[order], np.arange(TASKS + 1))
        for k in range(TASKS):
            part = rows[bounds[k] : bounds[k + 1]]
            total[k] += part.T @ part
    return total


def reduced(folder: Path, n_folds: int | None = None, kill: bool = False) -> tuple[object, dict[str, float]]:
    """Moments by two workers, and what they cost; ``kill`` ends one of them half-way."""
    import dask.dataframe as dd

    from distributed import Client, LocalCluster
    from mssl import Moments

    settings = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "memory_limit": "1GiB",
        "dashboard_address": None,
        "silence_logs": 50,
    }
    with LocalCluster(host="127.0.0.1", **settings) as cluster, Client(cluster) as client:
        client.run(warm_up)
        idle, began = processor_seconds(client), perf_counter()
        sleep(10)
        idle = (processor_seconds(client) - idle) / (perf_counter() - began)
        frame = dd.read_parquet(str(folder / "*.parquet"))
        pids = client.run(os.getpid)
        before, began = processor_seconds(client), perf_counter()
        if kill:
            threading.Thread(target=end_half_way, args=(client.cluster, min(pids.values())), daemon=True).start()
        made = Moments.from_dask(frame, target="y", task_column="task", n_folds=n_folds)
        cost = {"seconds": perf_counter() - began}
        cost["workers replaced"] = len(set(pids.values()) - set(client.run(os.getpid).values()))
        if not kill:
            cost["processor seconds"] = processor_seconds(client) - before
            cost["processor seconds of waiting"] = idle * cost["seconds"]
            cost["peak MiB of a worker"] = max(client.run(peak).values())
        return made, cost


def processor_seconds(client: object) -> float:
    """Of the workers, the scheduler and this process so far."""
    return sum(client.run(process_time).values()) + process_time()


def warm_up() -> None:
    for name in ("dask.dataframe", "pyarrow.parquet", "mssl.data.moments"):
        import_module(name)


def peak() -> float:
    from resource import RUSAGE_SELF, getrusage

    return getrusage(RUSAGE_SELF).ru_maxrss / 1024


def end_half_way(cluster: object, pid: int) -> None:
    """SIGKILL a worker once some partitions are done."""
    scheduler = cluster.scheduler
    while sum(state.state in ("memory", "released") for state in list(scheduler.tasks.values())) < 4:
        sleep(0.05)
    os.kill(pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, default=2e7)
    args = parser.parse_args()
    paths = make_files(args.folder, int(args.rows))
    try:
        print(json.dumps(measure(args.folder, paths), indent=1))
    finally:
        for path in paths:
            path.unlink()


def measure(folder: Path, paths: list[Path]) -> dict[str, float]:
    began = process_time()
    sums = plain_loop(paths)
    found = {"rows": float(sums[:, 0, 0].sum()), "plain loop, processor seconds": process_time() - began}
    moments, cost = reduced(folder)
    found |= cost | {"times the plain loop": cost["processor seconds"] / found["plain loop, processor seconds"]}
    found["rows lost"] = found["rows"] - float(moments.n.sum())
    found |= {f"five folds, {name}": value for name, value in reduced(folder, 5)[1].items()}
    again, cost = reduced(folder, kill=True)
    found |= {f"a worker killed, {name}": value for name, value in cost.items()}
    found["a worker killed, largest difference"] = float(np.max(np.abs(again.xx / moments.xx - 1)))
    found["coefficients in memory, largest difference"] = difference_in_memory(paths[:5])
    return found


def difference_in_memory(paths: list[Path]) -> float:
    """Largest difference between coefficients from moments and those from rows, of sixty tasks."""
    import pandas as pd

    from mssl import Moments, MSSLRegressor

    frames = [frame[frame.task < 60] for frame in map(pd.read_parquet, paths)]
    model = MSSLRegressor(0.3, tol=1e-12, max_iter=1000, task_column="task")
    ours = model.fit_moments(Moments.from_chunks(frames, target="y", task_column="task")).coef_
    whole = pd.concat(frames)
    return float(np.max(np.abs(ours - model.fit(whole.drop(columns="y"), whole.y).coef_)))


if __name__ == "__main__":
    main()
