"""The commands ``mssl compare`` and ``mssl select``."""

from __future__ import annotations

import sys
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from mssl.cli._options import edges_option, json_option, quiet_option, table_options
from mssl.cli._output import check_target, print_edges, print_facts, print_json, print_table, show_progress
from mssl.cli._tables import Training, names_in, read_training
from mssl.data.inputs import number_tasks
from mssl.exceptions import DataError
from mssl.methods import make_estimator

Array = NDArray[np.float64]
_SHOWN = 20  # tasks listed for people; JSON has them all


@click.command()
@table_options
@edges_option
@click.option(
    "--methods", help="Methods to compare, separated by commas; the first is the one that others are held to."
)
@click.option("--folds", type=click.IntRange(2, 50), default=5, show_default=True, help="Parts to test on in turn.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which rows go into which part.")
@json_option
@quiet_option
def compare(methods: str | None, folds: int, seed: int, as_json: bool, quiet: bool, **table: Any) -> None:
    r"""Compare methods on DATA by cross-validation, and say which tasks gain and which lose.

    Every method chooses its parameters within each training part. The gain of a task is the share of its mean deviance
    under the first method that another method takes off.

    \b
    Examples:
      mssl compare weather.csv --task station --target temp
      mssl compare pairs.csv --task pair --target label --methods logistic,pooled,p-mssl --json
    """
    training = read_training(**table)
    alone = "logistic" if training.family == "binary" else "ridge"
    names = names_in(methods) or [alone, "pooled", "p-mssl"]
    outcome = cross_validate(training, names, folds, seed, verbose=show_progress(quiet))
    if as_json:
        print_json(outcome)
    elif not quiet:
        _show_comparison(outcome)


def cross_validate(training: Training, names: list[str], folds: int, seed: int, *, verbose: bool) -> dict[str, Any]:
    """Scores of every method in every fold, and each task's mean deviance under every method."""
    from mssl.losses import resolve_loss

    loss = resolve_loss("bernoulli" if training.family == "binary" else training.family)
    splits = training.splits(folds, seed)
    means = {name: np.full(training.y.shape, np.nan) for name in names}
    for name in names:
        model = training.prepare(make_estimator(name, training.family), name)  # faults are told before any work
        if "cv" in model.get_params(deep=False):
            _check_parts(training, splits, name)
    with click.progressbar(length=len(names) * len(splits), label="fits", file=sys.stderr, hidden=not verbose) as bar:
        for train, test in splits:
            part = training.rows(train)
            for name in names:
                model = training.prepare(make_estimator(name, training.family), name)
                part.fit_rows(model)
                means[name][test] = predicted_mean(model, training.rows(test))
                bar.update(1)
    y = training.numeric_target()
    scores = {
        name: [measures(training.family, y[test], mean[test]) for _, test in splits] for name, mean in means.items()
    }
    lost = {name: training.by_task(loss.deviance(y, _inside(training.family, mean))) for name, mean in means.items()}
    return {
        "family": training.family,
        "folds": len(splits),
        "methods": {
            name: {
                measure: {"mean": float(np.mean(values)), "sd": float(np.std(values))}
                for measure in rows[0]
                for values in [[row[measure] for row in rows]]
            }
            for name, rows in scores.items()
        },
        "tasks": [
            {"task": str(task), "deviance": {name: float(lost[name][k]) for name in names}}
            for k, task in enumerate(number_tasks(training.tasks)[0])
        ],
    }


def _check_parts(training: Training, splits: list[tuple[Any, Any]], method: str) -> None:
    """Raise where a task keeps a single row in a training part, which has to be split again."""
    if training.aligned:
        return
    tasks, place = number_tasks(training.tasks)
    fewest = np.min([np.bincount(place[train], minlength=len(tasks)) for train, _ in splits], axis=0)
    if fewest.min() < 2:
        k = int(np.argmin(fewest))
        raise DataError(
            f"Task {str(tasks[k])!r} has {np.bincount(place)[k]} rows, of which {fewest[k]} is left to learn from in "
            f"one of the {len(splits)} parts; {method} chooses its parameters by cross-validation within it and "
            "needs 2. Give the task more rows (3 with --folds 3 or more), or leave it out."
        )


def predicted_mean(model: Any, rows: Training) -> Array:
    """The predicted mean of the target; for labels the probability of the second one."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(rows.X, tasks=rows.tasks)[..., 1])
    return np.asarray(model.predict(rows.X, tasks=rows.tasks))


def _inside(family: str, mean: Array) -> Array:
    """Keep probabilities off exactly 0 and 1, where one wrong answer has an infinite deviance."""
    return np.clip(mean, 1e-12, 1 - 1e-12) if family == "binary" else mean


def measures(family: str, y: Array, mean: Array) -> dict[str, float]:
    """The usual measures of a family, over all rows."""
    from sklearn.metrics import d2_tweedie_score, log_loss, r2_score, roc_auc_score

    y, mean = y.ravel(), mean.ravel()
    if family == "binary":
        return {
            "error": float(np.mean((mean > 0.5) != (y == 1))),
            "AUC": float(roc_auc_score(y, mean)),
            "log loss": float(log_loss(y, _inside(family, mean))),
        }
    rmse = float(np.sqrt(np.mean((y - mean) ** 2)))
    if family == "gaussian":
        return {"RMSE": rmse, "R2": float(r2_score(y, mean))}
    return {"RMSE": rmse, "D2": float(d2_tweedie_score(y, mean, power=1 if family == "poisson" else 2))}


def _show_comparison(outcome: dict[str, Any]) -> None:
    methods = outcome["methods"]
    names = list(next(iter(methods.values())))
    rows = [
        [method, *(f"{cells[name]['mean']:.4g} ± {cells[name]['sd']:.2g}" for name in names)]
        for method, cells in methods.items()
    ]
    print_table(["method", *names], rows, f"Mean ± sd over {outcome['folds']} test parts")
    first, *others = methods
    if not others:
        return
    gains = [[row["task"], *(_gain(row["deviance"], first, name) for name in others)] for row in outcome["tasks"]]
    gains.sort(key=lambda row: -row[-1])
    shown = gains if len(gains) <= _SHOWN else [*gains[: _SHOWN // 2], *gains[-_SHOWN // 2 :]]
    title = f"Gain of each task over {first} (share of its mean deviance on rows not seen)"
    print_table(["task", *others], [[task, *(f"{gain:+.1%}" for gain in row)] for task, *row in shown], title)
    lost = sum(row[-1] < 0 for row in gains)
    click.echo(f"With {others[-1]}, {len(gains) - lost} tasks gain and {lost} lose.")


def _gain(deviance: dict[str, float], first: str, name: str) -> float:
    return 1 - deviance[name] / deviance[first] if deviance[first] > 0 else 0.0


@click.command()
@table_options
@click.option("--method", type=click.Choice(["p-mssl", "r-mssl"]), default="p-mssl", show_default=True)
@click.option("--threshold", type=float, default=0.9, show_default=True, help="How often an edge has to be found.")
@click.option("--subsamples", type=click.IntRange(2), default=100, show_default=True, help="Halves to look at.")
@click.option(
    "--subsample",
    type=click.Choice(["coefficients", "samples"]),
    default="coefficients",
    show_default=True,
    help="Halve the weights (quick) or every task's rows (the paper's way, slow).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Which halves are drawn.")
@click.option("--save", "path", type=click.Path(), help="File (.npz) to write the selection to, for mssl graph.")
@json_option
@quiet_option
def select(
    method: str,
    threshold: float,
    subsamples: int,
    subsample: str,
    seed: int,
    path: str | None,
    as_json: bool,
    quiet: bool,
    **table: Any,
) -> None:
    r"""Find the edges between tasks that are there whatever half of the evidence in DATA is looked at.

    \b
    Examples:
      mssl select weather.csv --task station --target temp
      mssl select weather.csv --task station --target temp --save stable.npz
      mssl graph stable.npz --format dot
    """
    import mssl

    check_target(path, table["data"])
    training = read_training(**table)
    given = {"graph_penalty": 0.1} | ({"shared_mean": False} if method == "p-mssl" else {})
    selection = mssl.StabilitySelection(
        training.prepare(make_estimator(method, training.family, given), method),
        threshold=threshold,
        n_subsamples=subsamples,
        subsample=subsample,
        random_state=seed,
        verbose=int(show_progress(quiet)),
    )
    training.fit_rows(selection)
    if path is not None:
        mssl.save(selection, path)
    edges = selection.graph_.edges()
    facts = {
        "tasks": len(selection.tasks_),
        "edges": len(edges),
        "threshold": threshold,
        "expected_false_edges": selection.expected_false_edges_,
        "file": path,
    }
    if as_json:
        print_json(facts | {"stable_edges": [edge._asdict() for edge in edges]})
    elif not quiet:
        words = {"expected_false_edges": "false, at most", "file": "saved"}
        print_facts((words.get(name, name), value) for name, value in facts.items() if value is not None)
        print_edges(edges[:_SHOWN], "Stable edges, strongest first")
