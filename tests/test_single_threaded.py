"""Public methods have one BLAS thread, but for large matrices, and leave BLAS as it was."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

import mssl
from mssl import report
from mssl.climate import combine
from mssl.datasets import make_clustered_tasks
from mssl.evidence import routes
from mssl.glasso import solver
from mssl.graph.geometry import graph_layout
from mssl.graph.tests import Later
from mssl.kernels import threads
from mssl.metrics import conditional_score
from mssl.model_selection import ebic_path, regularization_path

ROOMS = (
    "evidence/",
    "features/",
    "glasso/",
    "kernels/",
    "model/",
    "solvers/",
    "structures/",
)  # that compute with matrices
COMPUTING = tuple(f"{Path(mssl.__file__).parent}/{part}" for part in (*ROOMS, "graph/information.py"))


class Library:
    """A BLAS library whose number of threads can be read and set."""

    num_threads = 7

    def set_num_threads(self, n: int) -> None:
        self.num_threads = n


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    fake = Library()
    monkeypatch.setattr(threads, "_blas_libraries", lambda: [fake])
    yield fake
    assert fake.num_threads == 7, "every call has to leave the library as it was"


@contextmanager
def watched(library: Library) -> Iterator[set[str]]:
    """The functions of the rooms that compute which are called while BLAS has several threads."""
    free: set[str] = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and library.num_threads > 1 and code.co_filename.startswith(COMPUTING):
            free.add(f"{Path(code.co_filename).name}: {code.co_qualname}")

    sys.setprofile(look)
    try:
        yield free
    finally:
        sys.setprofile(None)
        free -= {name for name in free if name.startswith("threads.py: ")}  # which take the limit


def _estimators(kind: type = BaseEstimator) -> Iterator[type]:
    for found in kind.__subclasses__():
        if found.__module__.startswith("mssl.") and hasattr(found, "fit"):
            yield found
        yield from _estimators(found)


def _public_methods() -> list[Any]:
    """Every public method that a class of the package defines for estimators, mixins included; and functions."""
    for module in pkgutil.walk_packages(mssl.__path__, "mssl."):
        if module.name.split(".")[1] not in ("cli", "plots", "_moved") and "__main__" not in module.name:
            importlib.import_module(module.name)
    owners = {owner for found in _estimators() for owner in found.__mro__ if owner.__module__.startswith("mssl.")}
    found = [
        pytest.param(member, id=f"{owner.__name__}.{name}")
        for owner in sorted({*owners, Later}, key=lambda owner: owner.__qualname__)
        for name, member in vars(owner).items()
        if inspect.isfunction(member) and not name.startswith("_") and name != "set_params"
    ]
    graph = [
        getattr(mssl.TaskGraph, name) for name in ("edges", "relations", "global_test", "selected", "from_precision")
    ]
    functions = [
        report.write,
        mssl.compare_methods,
        mssl.transfer_report,
        combine,
        conditional_score,
        ebic_path,
        regularization_path,
    ]
    return [*found, *(pytest.param(f, id=f.__qualname__) for f in [*graph, *functions, graph_layout])]


@pytest.mark.parametrize("function", _public_methods())
def test_every_public_method_takes_the_limit_first(function: Callable[..., Any], library: Library) -> None:
    """A call that cannot be bound fails inside the limit, whatever the function does."""
    taken: list[int] = []
    library.set_num_threads = lambda n: (taken.append(n), setattr(library, "num_threads", n))[0]  # type: ignore[method-assign]
    with pytest.raises(TypeError):
        function(no_such_argument=0)
    assert taken == [1, 7]


def _problem(binary: bool = False) -> Any:
    return make_clustered_tasks(
        **({"family": "binary"} if binary else {}), n_features=3, n_samples=20, n_test=10, random_state=0, as_frame=True
    )


def _used(model: Any, problem: Any) -> None:
    """All that a user does with a model of rows with a task column."""
    model.fit(problem.X, problem.y)
    rows = problem.X_test
    model.predict(rows)
    model.score(rows, problem.y_test)
    for name in ("predict_proba", "predict_interval", "decision_function"):
        if hasattr(model, name):
            getattr(model, name)(rows)
    model.partial_effect(0)
    model.column_relevance()
    model.summary()
    model.graph_.relations()
    model.graph_.edges(fdr=0.1)
    model.graph_.selected()
    if hasattr(model, "adapt"):
        model.adapt(problem.X[:5].drop(columns="task"), problem.y[:5], task="a new one")
        model.coef_interval()


MODELS = {
    "bayesian": mssl.BayesianMSSLRegressor("iw", features="spline", task_column="task", cv=2),
    "bayesian labels": mssl.BayesianMSSLClassifier("mean", features="linear", task_column="task", cv=2),
    "p-mssl": mssl.MSSLRegressor(task_column="task"),
    "r-mssl": mssl.MSSLClassifier(task_column="task"),
    "glm": mssl.MultiTaskGLM(task_column="task"),
    "search": mssl.MSSLRegressorCV(
        mssl.MSSLRegressor(task_column="task"), {"graph_penalty": [0.3], "coef_penalty": [0.0]}, cv=2
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_no_function_of_the_package_runs_with_more_threads(name: str, library: Library) -> None:
    model = clone(MODELS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = _problem("labels" in name or "MSSLClassifier" in type(model).__name__)
        with watched(library) as free:
            _used(model, problem)
    assert not free


def test_what_is_computed_later_has_one_thread(library: Library) -> None:
    """Standard errors are a property, relations an attribute: both are computed when they are asked for, or saved."""
    seen: list[int] = []

    class Seeing(Later[None]):
        def _compute(self) -> None:
            seen.append(library.num_threads)

    Seeing().resolve()
    Seeing().saved()
    assert seen == [1, 1]


def test_methods_keep_signatures_pickles_and_lines_of_warnings(library: Library) -> None:
    predict = mssl.MSSLRegressor.predict
    assert list(inspect.signature(predict).parameters)[:3] == ["self", "X", "tasks"]
    assert pickle.loads(pickle.dumps(predict)) is predict
    problem = _problem()
    model = mssl.MSSLRegressor(task_column="task").fit(problem.X, problem.y)
    with pytest.warns(FutureWarning, match="by keyword") as told:
        model.score(problem.X, problem.y, np.ones(len(problem.y)))
    assert {warning.filename for warning in told} == {__file__}


class _Mine(mssl.MSSLRegressor):
    """A user's own estimator."""

    def seen(self, library: Library) -> int:
        return library.num_threads


def test_methods_of_subclasses_are_limited_too(library: Library) -> None:
    assert _Mine().seen(library) == 1


def test_large_dense_factorisations_have_all_threads(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A covariance of all rows and a graph over many tasks, with a bound that the test can afford."""
    monkeypatch.setattr(threads, "LARGE", 65)
    seen: set[tuple[int, int]] = set()

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(matrix: Any, *args: Any, **named: Any) -> Any:
            seen.add((len(getattr(matrix, "S", matrix)), library.num_threads))
            return function(matrix, *args, **named)

        return noted

    monkeypatch.setattr(routes, "dpotri", noting(routes.dpotri))
    monkeypatch.setattr(solver, "_compiled", noting(solver._compiled))
    problem = make_clustered_tasks(
        n_features=8, n_samples=5, n_test=2, random_state=0
    )  # 65 rows, first less their means
    model = mssl.BayesianMSSLRegressor("iw", features="linear", calibrate=False, tol=0.1)
    model.fit(problem.X, problem.y, tasks=problem.tasks)
    assert seen == {(n, 7 if n >= 65 else 1) for n, _ in seen}
    assert (65, 7) in seen
    seen.clear()
    for p in (64, 65):
        mssl.GraphicalLasso(0.5).fit(np.random.default_rng(0).standard_normal((200, p)))
    assert seen == {(64, 1), (65, 7)}
