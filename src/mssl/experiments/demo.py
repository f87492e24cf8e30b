"""The paper's synthetic problem in under a minute: what sharing between tasks buys, and the graph it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl import MSSLRegressorCV
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import require
from mssl.experiments.alone import TaskByTask
from mssl.experiments.figures import graph_panels, precision_panels
from mssl.experiments.stats import rmse_by_task
from mssl.files.atomic import prepare_folder, write_bytes
from mssl.graph.task_graph import TaskGraph

Array = NDArray[np.float64]

METHODS = ("OLS", "ridge, CV", "p-MSSL")
GROUPS = {"tasks 1–4": range(4), "tasks 5–10": range(4, 10), "outliers 11–13": range(10, 13)}


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demonstration measured.

    Attributes
    ----------
    tasks : list of str
        Task names.
    groups : dict of str to list of int
        Tasks of each group.
    errors : dict of str to ndarray of shape (seeds, K)
        Test RMSE per method, seed and task.
    edges : list of (found, missed, false)
        One a seed, from stability selection.
    graph, true_graph : TaskGraph
        Of the last seed.
    fitted_graph : TaskGraph
        Of the last seed's fit, at the λ that predicts best.
    relations, true_relations : ndarrays of shape (K, K)
        Of the last seed: correlations of tasks' weights, 0 where none is found at a false discovery rate of 10 %, or
        where there is none.
    pictures : list of Path
        Files written.
    """

    tasks: list[str]
    groups: dict[str, list[int]]
    errors: dict[str, Array]
    edges: list[tuple[int, int, int]]
    graph: TaskGraph
    true_graph: TaskGraph
    fitted_graph: TaskGraph
    relations: Array
    true_relations: Array
    pictures: list[Path]

    def table(self) -> list[tuple[str, dict[str, tuple[float, float]]]]:
        """Mean RMSE and its standard deviation over seeds, for each group and method."""
        rows = []
        for name, members in self.groups.items():
            means = {method: errors[:, members].mean(axis=1) for method, errors in self.errors.items()}
            rows.append((name, {method: (float(m.mean()), float(m.std())) for method, m in means.items()}))
        return rows


def run(
    output: Path, *, seeds: int = 5, jobs: int | None = None, progress: Callable[[], None] | None = None
) -> DemoResult:
    """Fit the paper's synthetic problem for several seeds and draw what came out.

    Parameters
    ----------
    output : Path
        Folder for the pictures.
    seeds : int
        How often, with new data each time.
    jobs : int, optional
        Workers of the cross-validation.
    progress : callable, optional
        Called after each seed.
    """
    require("matplotlib", "plot", "the demonstration's pictures")
    folder = prepare_folder(output)
    errors: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    edges = []
    for seed in range(seeds):
        data = make_clustered_tasks("centres", random_state=seed)
        model = MSSLRegressorCV(
            couplings=[1.0], shared_means=[False], coef_penalties=[0.0], selection="both", n_jobs=jobs
        ).fit(data.X, data.y, tasks=data.tasks)
        models: dict[str, Any] = {
            "OLS": TaskByTask("OLS").fit(data.X, data.y, tasks=data.tasks),
            "ridge, CV": TaskByTask("ridge").fit(data.X, data.y, tasks=data.tasks),
            "p-MSSL": model,
        }
        for method, fitted in models.items():
            errors[method].append(rmse_by_task(data, fitted.predict(data.X_test, tasks=data.tasks_test)))
        comparison = model.graph_.compare(data.adjacency)
        edges.append((comparison.found, comparison.missed, comparison.false))
        if progress is not None:
            progress()
    names = [str(name) for name in model.tasks_]
    true_graph = TaskGraph.from_precision(data.precision, tasks=names)
    stacked = {method: np.stack(rows) for method, rows in errors.items()}
    result = DemoResult(
        tasks=names,
        groups={name: list(members) for name, members in GROUPS.items()},
        errors=stacked,
        edges=edges,
        graph=model.graph_,
        true_graph=true_graph,
        fitted_graph=TaskGraph.from_precision(model.precision_, tasks=names),
        relations=np.asarray(model.graph_.selected(fdr=0.1, level="relations").weights),
        true_relations=_correlations(data.covariance),
        pictures=[],
    )
    result.pictures.extend(draw(result, folder))
    return result


def draw(result: DemoResult, folder: Path) -> list[Path]:
    """Box plots, precision matrices and graphs as PNG files."""
    from matplotlib.figure import Figure

    from mssl import plots

    boxes = Figure(figsize=(9, 3.6), layout="constrained")
    plots.plot_box(result.errors, boxes.subplots(), tasks=result.tasks, label="test RMSE")
    matrices = precision_panels(
        {"true partial correlations": result.true_graph, "learned, at the λ that predicts best": result.fitted_graph},
        result.tasks,
        9.0,
    )
    groups = [name for name, members in GROUPS.items() for _ in members]
    graphs = graph_panels(
        {"true relations": result.true_relations, "learned, false discovery rate 10 %": result.relations},
        result.tasks,
        groups,
        9.0,
        "correlation of weights",
    )
    pictures = []
    for name, figure in (("boxes", boxes), ("precision", matrices), ("graph", graphs)):
        path = folder / f"{name}.png"
        write_bytes(path, _png(figure))
        pictures.append(path)
    return pictures


def _correlations(covariance: Array) -> Array:
    """Correlations, with a diagonal of zeros."""
    sizes = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / np.outer(sizes, sizes) - np.eye(len(sizes)))


def _png(figure: Any) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
