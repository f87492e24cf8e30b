"""The commands `mssl datasets`, `mssl reproduce` and `mssl demo`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import click
import numpy as np

from mssl._typing import Json
from mssl.cli import _options as cli

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from sklearn.utils import Bunch

    from mssl import MSSLRegressorCV
    from mssl._typing import Array

Name: TypeAlias = Annotated[str, ""]


@partial(cli.command, kind=click.Group, invoke_without_command=True)
def datasets(*, answer: cli.Answer) -> None:
    r"""List, fetch and export data sets to try things on.

    \b
    Examples:
      mssl datasets
      mssl datasets export digit-pairs pairs.csv
      mssl datasets fetch landmine
    """
    if click.get_current_context().invoked_subcommand is None:
        click.get_current_context().invoke(listed, as_json=answer.as_json)


@cli.command
def listed(*, answer: cli.Answer) -> None:
    r"""List the data sets with their content, and whether their files are present.

    \b
    Example:
      mssl datasets list
    """
    from mssl.datasets import available

    entries = available()
    rows = [[entry["name"], "yes" if entry["present"] else "no", entry["what"]] for entry in entries]
    answer.tell(entries, lambda _: cli.print_table(["name", "present", "what"], rows))


@cli.command
def fetch(*, name: Name, answer: cli.Answer) -> None:
    r"""Download the files of the data set NAME once, and check them.

    \b
    Example:
      mssl datasets fetch landmine
    """
    from mssl.datasets import fetch as get

    files = [str(path) for path in get(name)]
    text = "\n".join(files) or f"{name} needs no files."
    answer.tell({"name": name, "files": files}, lambda _: click.echo(text))


@cli.command
def export(
    *,
    name: Name,
    path: cli.File,
    subsample: Annotated[
        int | None, "Number of rows per task, if the data set allows it.", {"type": click.IntRange(min=1)}
    ] = None,
    seed: Annotated[int, "Seed of --subsample."] = 0,
    answer: cli.Answer,
) -> None:
    r"""Write the data set NAME as a table to PATH.

    The format is that of its ending (CSV, TSV, Parquet, Feather; .gz).

    \b
    Example:
      mssl datasets export digit-pairs pairs.csv --subsample 40
    """
    from mssl.datasets import export as write
    from mssl.datasets._fetch import info
    from mssl.exceptions import ParameterError

    options: Json = {} if subsample is None else {"subsample": subsample, "random_state": seed}
    cli.check_target(path)
    try:
        written = write(name, path, **options)
    except TypeError as error:
        raise ParameterError(
            f"--subsample is given for the data set {name!r}, which cannot be subsampled; export it whole."
        ) from error
    entry = info(name)
    text = f"{written}\nNext: mssl fit {written} --task {entry.task_column} --target {entry.target_column}"
    document = {"file": str(written), "task": entry.task_column, "target": entry.target_column}
    answer.tell(document, lambda _: click.echo(text))


datasets.add_command(listed, "list")
datasets.add_command(fetch)
datasets.add_command(export)


@cli.command
def reproduce(
    *,
    name: Annotated[str | None, ""] = None,
    output: Annotated[str | None, "Folder to write to; by default the experiment's name.", cli.OUTPUT] = None,
    quick: Annotated[bool, "A small version that takes less than a minute."] = False,
    resume: Annotated[bool, "Continue with the records that the folder already holds."] = False,
    jobs: Annotated[int, "Worker processes; -1 takes all cores."] = 1,
    answer: cli.Answer,
) -> None:
    r"""Run the experiment NAME of the paper end to end and write its tables, figures and page.

    Without NAME the experiments are listed.

    \b
    Examples:
      mssl reproduce
      mssl reproduce synthetic --quick
      mssl reproduce all --jobs -1 --resume -o results
    """
    from mssl_reproduction import available, run

    if name is None:
        experiments = available()
        document = [{"name": short, "title": title} for short, title in experiments]
        answer.tell(document, lambda _: cli.print_table(["name", "what"], experiments))
        return
    page = run(name, output or name, quick=quick, resume=resume, jobs=jobs)
    answer.tell({"name": name, "page": str(page)}, lambda _: click.echo(f"Page written to {page}"))


GROUPS = {"tasks 1–4": range(4), "tasks 5–10": range(4, 10), "outliers 11–13": range(10, 13)}


@cli.command
def demo(
    *,
    seeds: Annotated[int, "Number of random data sets.", {"type": click.IntRange(1, 1000)}] = 5,
    output: Annotated[str, "Folder for the pictures.", cli.OUTPUT] = "mssl-demo",
    jobs: cli.Jobs = None,
) -> None:
    r"""Show what mssl does on the paper's synthetic problem: 13 tasks in two clusters and three outliers.

    The command prints the test errors of separate least squares, separate ridge regressions and p-MSSL, and the number
    of edges of the true task graph that were found. It writes box plots, precision matrices and graphs as PNG files.

    \b
    Examples:
      mssl demo
      mssl demo --seeds 20 --output pictures
    """
    from mssl import MSSLRegressorCV
    from mssl._progress import Progress
    from mssl.datasets import make_clustered_tasks
    from mssl.exceptions import require
    from mssl.files.atomic import atomic, prepare_folder
    from mssl.methods import make_estimator

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
            )
            methods = (make_estimator("ols", "gaussian"), make_estimator("ridge", "gaussian"), model)
            for of_method, method in zip(errors.values(), methods, strict=True):
                predicted = method.fit(data.X, data.y, tasks=data.tasks).predict(data.X_test, tasks=data.tasks_test)
                squares = (predicted - data.y_test) ** 2
                of_method.append(np.sqrt([squares[data.tasks_test == task].mean() for task in data.task_names]))
            comparison = model.graph_.compare(data.adjacency)
            edges.append((comparison.found, comparison.missed, comparison.false))
            bars.advance()
    stacked = {method: np.stack(rows) for method, rows in errors.items()}
    rows = []
    for name, members in GROUPS.items():
        means = [by_task[:, list(members)].mean(axis=1) for by_task in stacked.values()]
        rows.append([name, *(f"{m.mean():.3f} ± {m.std():.3f}" for m in means)])
    cli.print_table(["tasks", *errors], rows, title="Test RMSE (mean ± sd over data sets; the noise alone gives 1)")
    found, missed, false = (sum(counts) / seeds for counts in zip(*edges, strict=True))
    click.echo(f"\nEdges of the task graph, on average: {found:.1f} found, {missed:.1f} missed, {false:.1f} false.")
    pictures = {folder / f"{name}.png": figure for name, figure in _draw(stacked, model, data).items()}
    for path, figure in pictures.items():
        with atomic(path) as stream:
            figure.savefig(stream, format="png", dpi=150)
    click.echo("Pictures: " + ", ".join(map(str, pictures)))


def _draw(errors: dict[str, Array], model: MSSLRegressorCV, data: Bunch) -> dict[str, Figure]:
    """Draw box plots of the errors of all data sets, and precision matrices and relations of the last one."""
    from mssl import plots
    from mssl.graph import TaskGraph
    from mssl.plots.support import panels

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
    found = replace(model.graph_.selected(fdr=0.1, level="relations"), evidence=None)  # Its weights are correlations.
    plots.plot_graph(found, halves[1]).set_title("learned, false discovery rate 10 %", y=1.08)
    return {"boxes": boxes, "precision": precision, "graph": graph}
