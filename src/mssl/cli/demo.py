"""The command ``mssl demo``: the paper's synthetic problem in under a minute, in words and pictures."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from mssl.cli._options import jobs_option
from mssl.cli._output import print_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from sklearn.linear_model import LinearRegression, RidgeCV
    from sklearn.utils import Bunch

    from mssl import MSSLRegressorCV
    from mssl._typing import Array

GROUPS = {"tasks 1–4": range(4), "tasks 5–10": range(4, 10), "outliers 11–13": range(10, 13)}


@click.command(
    epilog="""\b
Examples:
  mssl demo
  mssl demo --seeds 20 --output pictures
"""
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Data sets to draw.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("mssl-demo"), show_default=True,
    help="Folder for the pictures.",
)  # fmt: skip
@jobs_option
def demo(seeds: int, output: Path, jobs: int | None) -> None:
    """See what mssl does: the paper's synthetic problem, 13 tasks in two clusters and three outliers.

    Prints the test error of separate least squares, separate ridge regressions and p-MSSL, and how many edges of the
    true task graph were found; writes box plots, precision matrices and graphs as PNG files.
    """
    from sklearn.linear_model import LinearRegression, RidgeCV

    from mssl import MSSLRegressorCV
    from mssl._progress import Progress
    from mssl.datasets import make_clustered_tasks
    from mssl.exceptions import require
    from mssl.files.atomic import prepare_folder, write_bytes

    require("matplotlib", "plot", "the demonstration's pictures")
    folder = prepare_folder(output)
    click.echo(f"13 tasks, 60 training and 40 test rows each, 30 features, unit noise; {seeds} data sets.", err=True)
    errors: dict[str, list[Array]] = {"OLS": [], "ridge, CV": [], "p-MSSL": []}
    edges = []
    with Progress(1, "demonstration", 1) as bars:
        bars.stage("data sets", seeds)
        for seed in range(seeds):
            data = make_clustered_tasks("centres", random_state=seed)
            model = MSSLRegressorCV(
                param_grid={"prior_strength": [1.0], "shared_mean": [False], "coef_penalty": [0.0]},
                selection="both",
                n_jobs=jobs,
            ).fit(data.X, data.y, tasks=data.tasks)
            errors["OLS"].append(_errors(data, _alone(LinearRegression(), data)))
            errors["ridge, CV"].append(_errors(data, _alone(RidgeCV(np.logspace(-3, 3, 25)), data)))
            errors["p-MSSL"].append(_errors(data, model.predict(data.X_test, tasks=data.tasks_test)))
            comparison = model.graph_.compare(data.adjacency)
            edges.append((comparison.found, comparison.missed, comparison.false))
            bars.advance()
    stacked = {method: np.stack(rows) for method, rows in errors.items()}
    rows = []
    for name, members in GROUPS.items():
        means = [by_task[:, list(members)].mean(axis=1) for by_task in stacked.values()]
        rows.append([name, *(f"{m.mean():.3f} ± {m.std():.3f}" for m in means)])
    print_table(["tasks", *errors], rows, title="Test RMSE (mean ± sd over data sets; the noise alone gives 1)")
    found, missed, false = (sum(counts) / seeds for counts in zip(*edges, strict=True))
    click.echo(f"\nEdges of the task graph, on average: {found:.1f} found, {missed:.1f} missed, {false:.1f} false.")
    pictures = []
    for name, figure in _draw(stacked, model, data).items():
        content = BytesIO()
        figure.savefig(content, format="png", dpi=150)
        pictures.append(folder / f"{name}.png")
        write_bytes(pictures[-1], content.getvalue())
    click.echo("Pictures: " + ", ".join(map(str, pictures)))


def _alone(model: LinearRegression | RidgeCV, data: Bunch) -> Array:
    """Predictions of the test rows where each task is fitted by itself."""
    prediction = np.empty(len(data.y_test))
    for task in data.task_names:
        own = data.tasks == task
        prediction[data.tasks_test == task] = model.fit(data.X[own], data.y[own]).predict(
            data.X_test[data.tasks_test == task]
        )
    return prediction


def _errors(data: Bunch, prediction: Array) -> Array:
    """Test RMSE of each task."""
    squares = (prediction - data.y_test) ** 2
    return np.sqrt([squares[data.tasks_test == task].mean() for task in data.task_names])


def _draw(errors: dict[str, Array], model: MSSLRegressorCV, data: Bunch) -> dict[str, Figure]:
    """Box plots of the errors of all data sets; precision matrices and relations of the last one."""
    from mssl import plots
    from mssl.graph import TaskGraph
    from mssl.plots.panels import panels

    names = [str(name) for name in model.tasks_]
    boxes, ax = panels(9.0, 3.6)
    plots.plot_box(errors, ax, tasks=names, label="test RMSE")
    precision, halves = panels(9.0, 3.6, 1, 2)
    plots.plot_precision(data.precision, halves[0], tasks=names, ordered=False).set_title("true partial correlations")
    plots.plot_precision(model, halves[1], ordered=False).set_title("learned, at the λ that predicts best")
    related = data.covariance - np.diag(np.diag(data.covariance))
    sizes = np.sqrt(np.diag(data.covariance))
    graph, halves = panels(9.0, 4.0, 1, 2)
    true = TaskGraph(tuple(names), np.abs(related) > 1e-9, related / np.outer(sizes, sizes))
    plots.plot_graph(true, halves[0]).set_title("true relations", y=1.08)
    found = replace(model.graph_.selected(fdr=0.1, level="relations"), evidence=None)  # its weights are correlations
    plots.plot_graph(found, halves[1]).set_title("learned, false discovery rate 10 %", y=1.08)
    return {"boxes": boxes, "precision": precision, "graph": graph}
