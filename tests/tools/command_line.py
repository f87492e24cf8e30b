"""Running ``mssl`` and writing tables for it, for the tests of the command line."""

import csv
import subprocess
import sys

import numpy as np
from click.testing import CliRunner

import mssl
from mssl.cli import commands
from mssl.data.layouts import read_tasks

ENTRY = [sys.executable, "-c", "from mssl.cli import main; main()"]


def run(*args, cwd=None, code=0, **options):
    """Run ``mssl`` in a process of its own."""
    options |= {"cwd": cwd, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([*ENTRY, *map(str, args)], check=False, **options)
    assert done.returncode == code, f"{args}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def call(*args, code=0):
    """Run a command in this process, where the process itself is not the point."""
    result = CliRunner().invoke(commands, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        assert code == 1, repr(result.exception)
        assert isinstance(result.exception, mssl.exceptions.MSSLError), repr(result.exception)
    else:
        assert result.exit_code == code, result.output
    return result


def rows_of(training):
    """The rows of a training table, by task."""
    known = {name: training.given[name] for name in ("tasks", "sample_weight", "groups", "order")}
    return read_tasks(training.features, training.given["y"], y_numeric=training.family != "binary", **known)


def write_table(path, names=("Oslo", "Bergen", "Turku", "Riga"), *, rows=30, kind="gaussian", seed=0, task="station"):
    random = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([task, "wind", "sun", "sky", "y"])
        for k, name in enumerate(names):
            for _ in range(rows):
                wind, sun, sky = random.normal(), random.normal(), random.choice(["grey", "blue", "red"])
                eta = wind - 0.5 * sun + 0.3 * (sky == "blue") + 0.1 * k
                y = {
                    "gaussian": lambda eta=eta: eta + 0.3 * random.normal(),
                    "binary": lambda eta=eta: "yes" if random.random() < 1 / (1 + np.exp(-3 * eta)) else "no",
                    "poisson": lambda eta=eta: random.poisson(np.exp(0.5 * eta)),
                }[kind]()
                writer.writerow([name, wind, sun, sky, y])
    return path


QUICK = ("--set", "graph_penalty=0.3")
