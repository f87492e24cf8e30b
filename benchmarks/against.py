"""The same fits by two commits: ``python -m benchmarks.against COMMIT`` fits 300 problems with each and compares.

Both commits are built as wheels and run in processes of their own, on the same problems of this file, with one BLAS
thread. Nothing is compared with frozen numbers. A penalised fit is compared by F, its certificate, coefficients and
predictions. A fit that integrates the weights out is compared by its predictions, in units of their predictive standard
deviation, and by the log density of rows that it has not seen.

``--exact`` names what may not move: "all", "penalised" (the default) or "none". The command ends with status 1 where a
fit moved further than it may, where one commit refused or failed what the other one fitted, or where held-out densities
are worse by two paired standard errors.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
EXACT = 1e-9  # relative: what another order of sums may move where the mathematics is the same
NEAR = 0.02  # predictions of another engine, in predictive standard deviations,
MOST = 0.95  # for this share of the rows
RECIPES: list[tuple[str, str, str, Callable[[Any], Any]]] = [
    # name, family, layout, estimator made from the package
    ("p-MSSL", "gaussian", "long", lambda m: m.MSSLRegressor()),
    ("p-MSSL, sparse weights", "gaussian", "long", lambda m: m.MSSLRegressor(0.1, 0.02)),
    ("p-MSSL, mean", "gaussian", "long", lambda m: m.MSSLRegressor(0.2, shared_mean=True)),
    ("r-MSSL", "gaussian", "shared", lambda m: m.MSSLRegressor(0.2, on="residual")),
    ("r-MSSL, aligned", "gaussian", "aligned", lambda m: m.MSSLRegressor(0.2, 0.01, on="residual")),
    ("labels", "bernoulli", "long", lambda m: m.MSSLClassifier(0.1, 0.01)),
    ("counts", "poisson", "long", lambda m: m.MSSLRegressor(0.2, loss="poisson")),
    ("amounts", "gamma", "long", lambda m: m.MSSLRegressor(0.2, loss="gamma")),
    ("Huber", "gaussian", "long", lambda m: m.MSSLRegressor(0.2, loss="huber")),
    ("mean", "gaussian", "long", lambda m: m.MultiTaskGLM(m.structures.MeanRegularized(1.0))),
    ("l21", "gaussian", "long", lambda m: m.MultiTaskGLM(m.structures.Independent(0.1), m.penalties.L21(0.1))),
    ("nuclear", "gaussian", "long", lambda m: m.MultiTaskGLM(m.structures.Independent(0.1), m.penalties.Nuclear(0.1))),
    ("covariance", "gaussian", "shared", lambda m: m.MultiTaskGLM(m.structures.TaskCovariance(0.1))),
    ("spline", "gaussian", "long", lambda m: m.MSSLRegressor(0.2, features="spline")),
    ("search", "gaussian", "long", lambda m: m.MSSLRegressorCV(cv=3)),
    ("search, labels", "bernoulli", "long", lambda m: m.MSSLClassifierCV(cv=3)),
    ("Bayesian", "gaussian", "long", lambda m: m.BayesianMSSLRegressor()),
    ("Bayesian, shared", "gaussian", "shared", lambda m: m.BayesianMSSLRegressor()),
    ("Bayesian, aligned", "gaussian", "aligned", lambda m: m.BayesianMSSLRegressor(features="linear")),
    ("Bayesian, lines", "gaussian", "long", lambda m: m.BayesianMSSLRegressor(features="linear")),
    ("Bayesian, dense", "gaussian", "long", lambda m: m.BayesianMSSLRegressor("iw+ard", features="linear")),
    ("Bayesian, labels", "bernoulli", "long", lambda m: m.BayesianMSSLClassifier(features="linear")),
    ("Bayesian, counts", "poisson", "long", lambda m: m.BayesianMSSLRegressor(loss="poisson", features="linear")),
    ("ridge prior", "gaussian", "long", lambda m: m.BayesianMSSLRegressor("ridge", features="linear")),
]


@dataclass
class Rows:
    """Rows to fit, rows to judge, and their tasks (none where the design is shared or the tasks are aligned)."""

    X: Any
    y: Any
    tasks: Any
    X_new: Any
    y_new: Any
    tasks_new: Any


def problem(number: int, family: str, layout: str) -> Rows:
    """One problem: groups of related tasks, columns of different sizes, some problems with few rows or no signal."""
    random = np.random.default_rng([20260, number])
    K, d = int(random.integers(2, 13)), int(random.integers(1, 13))
    n = int(random.choice([6, 15, 40, 90]))
    W = random.standard_normal((2, d))[np.arange(K) % 2] + random.choice([0.1, 0.5, 2.0]) * random.standard_normal(
        (K, d)
    )
    W *= random.choice([0.0, 0.3, 1.0], p=[0.1, 0.3, 0.6])
    levels = random.standard_normal(K)
    size = np.geomspace(0.5, 4, d)

    def rows(count: int) -> tuple[Any, Any, Any]:
        task = np.repeat(np.arange(K), random.integers(max(count // 2, 3), count + 3, K))
        if layout == "long":
            X = random.standard_normal((len(task), d)) * size + random.standard_normal(d)
            eta = np.sum(X / size * W[task], axis=1) + levels[task]
        elif layout == "shared":
            X, task = random.standard_normal((count, d)) * size, None
            eta = X / size @ W.T + levels
        else:
            X, task = random.standard_normal((count, K, d)) * size, None
            eta = np.einsum("nkd,kd->nk", X / size, W) + levels
        return X, eta, task

    def targets(eta: np.ndarray) -> np.ndarray:
        if family == "bernoulli":
            return np.where(random.random(eta.shape) < 1 / (1 + np.exp(-eta)), "yes", "no")
        if family == "poisson":
            return random.poisson(np.exp(np.clip(eta / 2, -4, 4))).astype(float)
        if family == "gamma":
            return random.gamma(2.0, np.exp(np.clip(eta / 2, -4, 4)) / 2) + 1e-3
        common = random.standard_normal(len(eta)) * random.choice([0.0, 1.0])
        return eta + random.standard_normal(eta.shape) + (common if eta.ndim == 1 else common[:, None])

    X, eta, tasks = rows(n)
    y = targets(eta)
    X_new, eta_new, tasks_new = rows(60)
    return Rows(X, y, tasks, X_new, targets(eta_new), tasks_new)


def answers(number: int) -> dict[str, Any]:
    """What the package at hand makes of a problem; an error is an answer too."""
    import mssl
    import mssl.penalties
    import mssl.structures

    name, family, layout, make = RECIPES[number % len(RECIPES)]
    rows = problem(number, family, layout)
    found: dict[str, Any] = {"recipe": name}
    before = process_time()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model = make(mssl).fit(rows.X, rows.y, rows.tasks)
            new = {} if rows.tasks_new is None else {"tasks": rows.tasks_new}
            found["coef"] = np.asarray(model.coef_)
            for word in ("objective_", "best_score_"):
                with contextlib.suppress(AttributeError):
                    found[word] = float(getattr(model, word))
            with contextlib.suppress(AttributeError):
                found["gap"] = float(model.result_.gap)
            if family == "bernoulli":
                p = model.predict_proba(rows.X_new, **new)[:, 1]
                found["predicted"] = p
                if "ayesian" in name:
                    found["std"] = np.sqrt(p * (1 - p))
                found["density"] = np.log(np.where(rows.y_new == "yes", p, 1 - p))
            else:
                mean = model.predict(rows.X_new, **new)
                found["predicted"] = mean
                if "ayesian" in name or name == "ridge prior":
                    band = model.predict_interval(rows.X_new, **new)
                    # A count's interval may be the one number 0: its variance is then that of a count of this mean.
                    least = np.sqrt(np.maximum(mean, 1e-3)) if family == "poisson" else 1e-12
                    found["std"] = np.maximum((band[..., 1] - band[..., 0]) / 3.29, least)
                    z = (rows.y_new - mean) / found["std"]
                    found["density"] = -0.5 * z**2 - np.log(found["std"])
    except Exception as error:  # what a commit cannot do is compared too
        found["error"] = f"{type(error).__name__}: {error}"
    found["seconds"] = process_time() - before
    return found


def built(commit: str, folder: Path) -> Path:
    """The package of a commit, built there; "." is the working tree. An existing wheel is taken as it is."""
    home = folder / commit.replace("/", "_").replace(".", "here")
    if commit.endswith(".whl"):
        wheel = Path(commit)
    else:
        source = ROOT
        if commit != ".":
            source = folder / f"source-{commit[:12]}"
            source.mkdir()
            archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True)
            subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(home), str(source)]
        subprocess.run(command, check=True)
        (wheel,) = home.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(home / "package")
    return home / "package"


def run(package: Path, numbers: range) -> list[dict[str, Any]]:
    """Answers of one package, from a process of its own."""
    one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    paths = os.pathsep.join([str(package), str(ROOT)])
    command = [sys.executable, "-m", "benchmarks.against", "--child", str(numbers.start), str(numbers.stop)]
    done = subprocess.run(command, capture_output=True, check=False, env=os.environ | one | {"PYTHONPATH": paths})
    if done.returncode:
        sys.stderr.write(done.stderr.decode())
        raise SystemExit(done.returncode)
    return pickle.loads(done.stdout)  # of our own child


def _moved(a: Any, b: Any) -> float:
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.shape != b.shape:
        return np.inf
    scale = max(float(np.max(np.abs(a), initial=0.0)), 1e-300)
    return float(np.max(np.abs(a - b), initial=0.0)) / scale


def judged(old: dict[str, Any], new: dict[str, Any], exact: bool) -> str:
    """What is wrong between two answers, or nothing."""
    if ("error" in old) != ("error" in new):
        return f"fitted by one alone: {old.get('error', 'fitted')} / {new.get('error', 'fitted')}"
    if "error" in old:
        return ""
    if exact:
        moved = {word: _moved(old[word], new[word]) for word in ("objective_", "coef", "predicted") if word in old}
        worst = max(moved, key=lambda word: moved[word])
        return f"{worst} moved by {moved[worst]:.1e}" if moved[worst] > EXACT else ""
    if "std" not in old:
        return ""
    distance = np.abs(old["predicted"] - new["predicted"]) / old["std"]
    share = float(np.mean(distance <= NEAR))
    return f"{share:.0%} of predictions within {NEAR:.0%} of their std" if share < MOST else ""


def compare(olds: list[dict[str, Any]], news: list[dict[str, Any]], exact: str) -> int:
    """Print what moved, and how held-out densities and times compare; returns how much of it may not be."""
    faults = 0
    gains = []
    for number, (old, new) in enumerate(zip(olds, news, strict=True)):
        strict = exact == "all" or (exact == "penalised" and "std" not in old)
        if said := judged(old, new, strict):
            faults += 1
            sys.stdout.write(f"{number:4d} {old['recipe']:24s} {said}\n")
        if "density" in old and "density" in new:
            gains.append(float(np.mean(new["density"]) - np.mean(old["density"])))
    if gains:
        mean, error = float(np.mean(gains)), float(np.std(gains) / np.sqrt(len(gains)))
        worse = mean < -2 * error
        faults += worse
        sys.stdout.write(f"held-out log density a row: {mean:+.5f} ± {error:.5f} over {len(gains)} fits\n")
    ratio = sum(new["seconds"] for new in news) / max(sum(old["seconds"] for old in olds), 1e-9)
    refused = sum("error" in old for old in olds)
    sys.stdout.write(
        f"{len(olds)} problems, {refused} refused by both or one, {faults} faults; CPU time {ratio:.2f} x\n"
    )
    return faults


def main() -> None:
    """Build, fit, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="a commit, or a wheel that was built of it")
    parser.add_argument("--new", default=".", help="the other commit; the working tree if not given")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--exact", choices=["all", "penalised", "none"], default="penalised")
    parser.add_argument("--child", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        sys.stdout.buffer.write(pickle.dumps([answers(number) for number in range(*arguments.child)]))
        return
    if not arguments.commit:
        parser.error("name a commit to compare with")
    numbers = range(arguments.first, arguments.first + arguments.count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sides = [run(built(commit, folder), numbers) for commit in (arguments.commit, arguments.new)]
    sys.exit(1 if compare(*sides, arguments.exact) else 0)


if __name__ == "__main__":
    main()
