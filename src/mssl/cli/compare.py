"""The commands ``mssl compare`` and ``mssl select``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import click
import numpy as np

from mssl._typing import Json
from mssl.cli import _options as cli
from mssl.cli._tables import TableOptions, Training, read_training
from mssl.graph.tables import SHOWN
from mssl.judge.compare import compare_methods
from mssl.methods import BAYESIAN, make_estimator


@cli.command
def compare(
    *,
    table: TableOptions,
    edges: cli.Edges = None,
    methods: Annotated[
        cli.Names, "Methods to compare, separated by commas; differences are relative to the first."
    ] = None,
    folds: Annotated[int, "Number of test parts.", {"type": click.IntRange(2, 50)}] = 5,
    picture: Annotated[str | None, "Picture of the comparison to write (.png, .pdf or .svg).", cli.PATH] = None,
    run: cli.Running,
) -> None:
    r"""Compare methods on DATA by cross-validation, and show which tasks gain and which lose.

    The default methods are one model per task, one model for all tasks, p-mssl and bayesian. Each method chooses its
    parameters within each training part, and all figures are for rows that were not fitted on. Differences from the
    first method are paired by test part. The gain of a task is the relative reduction of its deviance under the first
    method. Each ± is one standard error, which accounts for the rows that training parts share (Nadeau & Bengio 2003).

    \b
    Examples:
      mssl compare weather.csv --task station --target temp --picture methods.png --jobs -1
      mssl compare pairs.csv --task pair --target label --methods logistic,pooled,p-mssl --json
    """
    cli.check_picture(picture, table.data)
    training = read_training(table, edges)
    alone = "logistic" if training.family == "binary" else "ridge"
    names = methods or [alone, "pooled", "p-mssl", BAYESIAN]
    with run.recorded(f"{Path(table.data).name}.compare") as how:
        outcome = cross_validate(training, names, folds, run.seed, **how)
        if picture is not None:
            draw_comparison(outcome, picture)
    run.tell(outcome, _show_comparison)


def cross_validate(training: Training, names: list[str], folds: int, seed: int, **how: Any) -> Json:
    """Return the scores of each method, differences from the first method, and each task's mean deviance.

    Parameters
    ----------
    training : Training
        The rows.
    names : list of str
        The methods.
    folds, seed : int
        Number of test parts, and seed of the random folds.
    **how
        Workers, checkpoint and progress bars, as for :func:`mssl.judge.compare.compare_methods`.
    """
    models = {name: training.prepare(make_estimator(name, training.family), name) for name in names}
    given = training.given | {"tasks": np.asarray(training.given["tasks"]), "cv": training.cv(folds, seed)}
    return {"family": training.family, **compare_methods(models, **given, **how)}


def _show_comparison(outcome: Json) -> None:
    methods, differences = outcome["methods"], outcome["differences"]
    names = list(next(iter(methods.values())))
    first, *others = methods
    rows = []
    for method, cells in methods.items():
        scores = [f"{cells[name]['mean']:.4g} ± {cells[name]['standard_error']:.2g}" for name in names]
        less = differences.get(method)
        share = f"{less['deviance']:.3g} ± {less['standard_error']:.2g} ({_share(less)})" if less else "—"
        rows.append([method, *scores, *([share] if others else [])])
    last = [f"less deviance than {first}"] if others else []
    cli.print_table(["method", *names, *last], rows, f"Rows not fitted on: means over {outcome['folds']} test parts")
    if others:
        _show_gains(outcome["tasks"], first, others)
    click.echo("± is one standard error over the test parts, which accounts for the rows that training parts share.")


def _show_gains(tasks: list[Json], first: str, others: list[str]) -> None:
    """Print the gain of each task, largest first."""
    gains = [(row["task"], *(row["gain"][name] for name in others)) for row in tasks]
    gains.sort(key=lambda row: -row[-1]["share"])
    whole = len(gains) <= SHOWN or not cli.standard_output().isatty()
    shown = gains if whole else [*gains[: SHOWN // 2], *gains[-SHOWN // 2 :]]
    title = f"Gain of each task over {first} (share of its deviance on rows not seen)"
    cli.print_table(["task", *others], [[task, *map(_share, row)] for task, *row in shown], title)
    lost = sum(row[-1]["share"] < 0 for row in gains)
    clear = sum(row[-1]["share"] < -2 * row[-1]["share_error"] for row in gains)
    click.echo(
        f"Tasks that gain with {others[-1]}: {len(gains) - lost}; that lose: {lost}, {clear} of them by more than two "
        "standard errors."
    )


def _share(found: dict[str, float]) -> str:
    return f"{found['share']:+.1%} ± {found['share_error']:.1%}"


def draw_comparison(outcome: Json, path: str) -> None:
    """Draw one row per method: its first measure in the test parts, and its paired difference from the first method."""
    from mssl.plots.support import dots_with_bars, panels

    methods = outcome["methods"]
    first, measure = next(iter(methods)), next(iter(next(iter(methods.values()))))
    figure, (left, right) = panels(7.0, 0.9 + 0.28 * len(methods), 1, 2, sharey=True)
    scores = {name: (cells[measure]["mean"], cells[measure]["standard_error"]) for name, cells in methods.items()}
    dots_with_bars(
        left, scores, label=f"{measure} of rows not fitted on, ± standard error over {outcome['folds']} parts"
    )
    shares = {name: (100 * d["share"], 100 * d["share_error"]) for name, d in outcome["differences"].items()}
    dots_with_bars(right, {first: (0.0, 0.0)} | shares, label=f"% less deviance than {first}, ± standard error")
    right.axvline(0, color="#555555", lw=0.6)
    figure.savefig(path, dpi=200)


@cli.command
def select(
    *,
    table: TableOptions,
    method: Annotated[
        Literal["p-mssl", "r-mssl"], "Graph over the tasks' weights, or over their residuals (needs --time)."
    ] = "p-mssl",
    threshold: Annotated[float, "Selection frequency from which an edge is stable."] = 0.9,
    subsamples: Annotated[int, "Number of random halves.", {"type": click.IntRange(2)}] = 100,
    subsample: Annotated[
        Literal["features", "samples", "coefficients"],
        "Halve the features (quick; coefficients is the old name) or every task's rows (the paper's way, slow).",
    ] = "features",
    save: Annotated[str | None, "File (.npz) to write the selection to, for mssl graph.", cli.PATH] = None,
    run: cli.Running,
) -> None:
    r"""Find the edges between tasks that most random halves of DATA select (stability selection).

    \b
    Examples:
      mssl select weather.csv --task station --target temp
      mssl select weather.csv --task station --target temp --save stable.npz
      mssl graph stable.npz --format dot
    """
    import mssl

    cli.check_target(save, table.data)
    with run.recorded(save) as how:
        training = read_training(table)
        given = {"graph_penalty": 0.1} | ({"shared_mean": False} if method == "p-mssl" else {})
        selection = mssl.StabilitySelection(
            training.prepare(make_estimator(method, training.family, given), method),
            threshold=threshold,
            n_subsamples=subsamples,
            subsample=subsample,
            random_state=run.seed,
            **how,
        )
        cli.forget_running(training.fit(selection))
        if save is not None:
            mssl.save(selection, save)
    edges = selection.graph_.support()
    facts = {
        "tasks": len(selection.tasks_),
        "edges": len(edges),
        "threshold": threshold,
        "expected_false_edges": selection.expected_false_edges_,
        "file": save,
    }

    def show(document: Json) -> None:
        words = {"expected_false_edges": "false, at most", "file": "saved"}
        shown = facts | {"expected_false_edges": f"{selection.expected_false_edges_:.2g}"}
        cli.print_facts((words.get(name, name), value) for name, value in shown.items())
        listed = edges[: SHOWN if cli.standard_output().isatty() else None]
        cli.print_table(["task", "task", "weight", "selected"], listed, "Stable edges, strongest first")

    document = facts | {"stable_edges": [edge._asdict() for edge in edges]}
    run.tell(document, show, quiet=run.quiet and save is not None)
