"""How plain the house is: ``python -m benchmarks.house`` counts parameters, names, constants, branches and walks.

Every figure is counted anew from the sources and from calls on README's data; none is typed in. ``--json FILE`` keeps
them, and ``--against FILE`` prints those of a file beside today's; ``benchmarks/house.json`` has those of commit
ba9460a, with which the merge of the two engines began.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from benchmarks.size import ROOT  # noqa: E402  (numpy reads the number of threads when it is loaded)

SOURCE = ROOT / "src" / "mssl"
PLAIN = {0, 1, 2, 0.5}  # a minus before them is an operator, so -1 is among them
LOSSES = {"gaussian", "bernoulli", "binary", "poisson", "gamma", "huber", "binomial"}
LEARNED = {"SparsePrecision", "LatentSparsePrecision", "TaskCovariance"}


def modules() -> Iterator[tuple[Path, str, ast.Module]]:
    """Every Python file of the package, its text and its tree."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path, text, ast.parse(text)


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is made of numeric literals and operators alone."""
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def constants(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    """Names in capitals that a module gives to numbers, or to tuples of numbers."""
    found = []
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or not target.id.isupper() or value is None:
            continue
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        if parts and all(_is_number(part) for part in parts):
            found.append((target.id, value))
    return found


def literals(tree: ast.Module) -> int:
    """Numbers in the code other than -1, 0, 1/2, 1 and 2, those of named constants left out."""
    named = {id(node) for _, value in constants(tree) for node in ast.walk(value)}
    numbers = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in named]
    return sum(type(node.value) in {int, float} and node.value not in PLAIN for node in numbers)


def public() -> dict[str, list[str]]:
    """Public objects, each under the first module that exports it: every ``__all__`` of a module without underscore."""
    seen: dict[int, str] = {}
    found: dict[str, list[str]] = {}
    names = [
        "mssl",
        *sorted(
            f"mssl.{path.parent.name if path.stem == '__init__' else path.stem}"
            for path in [*SOURCE.glob("*.py"), *SOURCE.glob("*/__init__.py")]
            if path.parent.name != "mssl" or not path.stem.startswith("_")
        ),
    ]
    for name in names:
        module = importlib.import_module(name)
        for word in getattr(module, "__all__", ()):
            thing = getattr(module, word)
            if inspect.ismodule(thing) or word.startswith("_") or id(thing) in seen:
                continue
            seen[id(thing)] = word
            found.setdefault(name, []).append(word)
    return found


def parameters() -> dict[str, int]:
    """How many parameters each estimator takes."""
    from sklearn.base import BaseEstimator

    import mssl

    classes = [getattr(mssl, name) for name in mssl.__all__]
    return {
        thing.__name__: len(thing().get_params(deep=False))
        for thing in classes
        if inspect.isclass(thing) and issubclass(thing, BaseEstimator) and hasattr(thing, "fit")
    }


class Walk:
    """Files and functions of the package that a call enters."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, int]] = set()
        self.calls = 0

    def _enter(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            if not frame.f_code.co_name.startswith("<"):
                self.functions.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
            self.calls += 1

    def of(self, call: Callable[[], object]) -> tuple[int, int, int]:
        """Files, functions and calls of a second call: what the first one only loads or makes once is left out."""
        call()
        sys.setprofile(self._enter)
        try:
            call()
        finally:
            sys.setprofile(None)
        return len({name for name, _ in self.functions}), len(self.functions), self.calls


def walks() -> dict[str, tuple[int, int, int]]:
    """Walks of the four calls that the map of the package follows, on README's data."""
    import numpy as np

    import mssl
    from mssl.cli import main as command_line
    from mssl.datasets import make_clustered_tasks

    data = make_clustered_tasks(as_frame=True, random_state=0)
    X, task = data.X.drop(columns="task").to_numpy(), data.X["task"].to_numpy()
    labels = np.where(data.y > 0, "yes", "no")
    some = np.isin(task, np.unique(task)[:6])
    bayesian = mssl.BayesianMSSLRegressor().fit(X, data.y, task)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table.csv")
        data.X.assign(y=data.y).to_csv(table, index=False)
        command = ["fit", str(table), "--task", "task", "--target", "y", "-q"]
        command += ["--save", str(Path(folder, "m.npz")), "--report", str(Path(folder, "p.html"))]

        def fit_and_report() -> None:
            if status := command_line(command):
                raise RuntimeError(f"mssl fit ended with {status}")

        return {
            "MSSLRegressor.fit": Walk().of(lambda: mssl.MSSLRegressor().fit(X, data.y, task)),
            "MSSLClassifierCV.fit": Walk().of(lambda: mssl.MSSLClassifierCV().fit(X[some], labels[some], task[some])),
            "BayesianMSSLRegressor.fit": Walk().of(lambda: mssl.BayesianMSSLRegressor().fit(X, data.y, task)),
            "predict": Walk().of(lambda: bayesian.predict(X, tasks=task)),
            "predict_interval": Walk().of(lambda: bayesian.predict_interval(X, tasks=task)),
            "graph_.relations": Walk().of(bayesian.graph_.relations),
            "mssl fit --report": Walk().of(fit_and_report),
        }


def weights() -> dict[str, float]:
    """KiB of fitted models, as they lie in memory (pickled) and in their files."""
    import mssl
    from mssl.datasets import make_clustered_tasks

    data = make_clustered_tasks(as_frame=True, random_state=0)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("MSSLRegressor", "BayesianMSSLRegressor"):
            model = getattr(mssl, name)(task_column="task").fit(data.X, data.y)
            path = Path(folder, "model.npz")
            mssl.save(model, path)
            found[f"{name} pickled, KiB"] = round(len(pickle.dumps(model)) / 1024, 1)
            found[f"{name} file, KiB"] = round(path.stat().st_size / 1024, 1)
    return found


def kept() -> float:
    """MiB that a fitted MSSLRegressor keeps of 46 MiB of features, beyond what is freed with them."""
    import tracemalloc

    import numpy as np

    import mssl

    random = np.random.default_rng(0)
    tracemalloc.start()
    X = random.standard_normal((60 * 500, 200))
    task = np.repeat(np.arange(60), 500)
    before = tracemalloc.get_traced_memory()[0] - X.nbytes
    model = mssl.MSSLRegressor().fit(X, X[:, 0] + random.standard_normal(len(X)), task)
    del X
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del model
    return round((after - before) / 2**20, 1)


def peak() -> float:
    """MiB of peak memory of one process that fits README's data by each estimator of the walks."""
    code = (
        "import resource, numpy as np, mssl\n"
        "from mssl.datasets import make_clustered_tasks\n"
        "d = make_clustered_tasks(as_frame=True, random_state=0)\n"
        "for kind in (mssl.MSSLRegressor, mssl.MSSLRegressorCV, mssl.BayesianMSSLRegressor):\n"
        "    kind(task_column='task').fit(d.X, d.y)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return round(float(done.stdout), 0)


def figures() -> dict[str, Any]:
    """Every figure by name."""
    texts = list(modules())
    code = "\n".join(re.sub(r"(?m)^\s*#.*$", "", text) for _, text, _ in texts)
    outside = [(path, text) for path, text, _ in texts if path.name != "losses.py"]
    words = "|".join(LOSSES)
    found: dict[str, Any] = {}
    sizes = parameters()
    found["most parameters of an estimator"] = f"{max(sizes.values())} ({max(sizes, key=lambda name: sizes[name])})"
    found |= {f"parameters of {name}": number for name, number in sorted(sizes.items())}
    exported = public()
    found["public objects"] = sum(map(len, exported.values()))
    found["modules with public objects"] = len(exported)
    found["named numeric constants"] = sum(len(constants(tree)) for _, _, tree in texts)
    found["bare literals but -1, 0, 1/2, 1, 2"] = sum(literals(tree) for _, _, tree in texts)
    found["Any"] = len(re.findall(r"\bAny\b", code)) - len(re.findall(r"import .*\bAny\b", code))
    found["isinstance"] = code.count("isinstance(")
    found["getattr and hasattr"] = len(re.findall(r"\b(?:getattr|hasattr)\(", code))
    asked = [
        len(re.findall(r"\.name (?:==|!=|in|not in)\s*(?:\(|\{|\[)?\s*\"(?:" + words + ")", t)) for _, t in outside
    ]
    found["decisions on a loss's name outside losses"] = sum(asked)
    away = [text for path, text, _ in texts if "structures" not in path.parts]
    found["structures asked by class outside their room"] = sum(
        len(re.findall(rf"isinstance\([^()]*\b(?:{'|'.join(LEARNED)})\b", text)) for text in away
    )
    for name, (files, functions, calls) in walks().items():
        found[f"walk of {name}: files/functions/calls"] = f"{files}/{functions}/{calls}"
    found |= weights()
    found["MiB kept by a fit to 46 MiB"] = kept()
    found["peak MiB of three fits to README's data"] = peak()
    return found


def main() -> None:
    """Print the figures, with those of another commit beside them if there is a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--against", type=Path, help="figures of another commit, shown beside today's")
    arguments = parser.parse_args()
    found = figures()
    other = json.loads(arguments.against.read_text()) if arguments.against else {}
    for name, value in found.items():
        sys.stdout.write(f"{name:58s}{value!s:>26}{other.get(name, '')!s:>26}\n".rstrip() + "\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
