"""The command ``mssl fit``: from a table to a model and a summary."""

from __future__ import annotations

import logging
import time
from typing import Annotated, Any

import click
import numpy as np

import mssl
from mssl._typing import Json
from mssl._validation import warn
from mssl.cli import _options as cli
from mssl.cli._tables import TableOptions, Training, read_moments, read_training
from mssl.files.models import certificate
from mssl.graph.export import short_name
from mssl.graph.geometry import display
from mssl.methods import BAYESIAN, LEARNED, lacks_graph, make_estimator
from mssl.metrics import NEGLIGIBLE_GAIN
from mssl.transfer import gain_over_separate, lead_over_separate

_log = logging.getLogger("mssl")
# Number of rows from which a fit takes long enough that a message announces it: with a smaller one short fits would
# print messages too.
_MANY_ROWS = 100_000
# Largest number of tasks for the whole search. Beyond it the search and stability selection take many minutes, and a
# short search is made, which chooses among fewer settings.
_MANY_TASKS = 500
_SHORT_SEARCH: Json = {
    "param_grid": {
        "graph_penalty": [0.2, 0.3, 0.5, float("inf")],
        "coef_penalty": [0.0],
        "prior_strength": [0.5, 2.0],
        "shared_mean": [True],
    },
    "selection": "prediction",
}


@cli.command
def fit(
    *,
    table: TableOptions,
    edges: cli.Edges = None,
    method: Annotated[
        str | None,
        "bayesian, p-mssl, r-mssl, or any name of mssl.presets.  [default: bayesian; for counts and amounts, with "
        "--dask and with --set of its parameters p-mssl]",
    ] = None,
    save: Annotated[str | None, "Model file (.npz) to write.", cli.PATH] = None,
    report: Annotated[str | None, "HTML page to write, with figures and tables of the fit.", cli.PATH] = None,
    dask: Annotated[
        str | None,
        "Read DATA, a folder or a pattern of files, on the workers of a Dask cluster; local starts some here.",
        {"is_flag": False, "flag_value": "local", "metavar": "[ADDRESS|local]"},
    ] = None,
    fixed: cli.Settings,
    run: cli.Running,
) -> None:
    r"""Learn all tasks in DATA (CSV, TSV, Parquet, Feather; .gz), and the graph that relates them.

    Each row of DATA belongs to one task. Columns of text become categories. Unless --family is given, the family
    follows from the target: binary for two values, poisson for counts that include 0, gaussian for other numbers.

    \b
    Examples:
      mssl fit weather.csv --task station --target temp --save model.npz --report report.html
      mssl fit visits.parquet --task shop --target visits --family poisson --features day,price
      mssl fit pairs.csv --task pair --target label --set graph_penalty=0.3 --json
      mssl fit sales.csv --task shop --target sold --set features=auto --missing indicator
      mssl fit visits.csv --task clinic --target visits --offset log_days --weight copies
      mssl fit weather.csv --task station --target temp --save model.npz --jobs -1 --resume
      mssl fit 'readings/*.parquet' --task sensor --target value --dask local --save model.npz
    """
    cli.check_target(save, table.data)
    cli.check_target(report, table.data, save)
    with run.recorded(save) as how:
        if dask is None:
            training = read_training(table, edges)
            method, family = method or _usual_method(training, fixed), training.family
        else:
            method, family = method or "p-mssl", "gaussian"
        began = time.perf_counter()
        model = make_estimator(method, family, fixed, seed=run.seed, **how)
        if dask is not None:
            training = read_moments(dask, model, method, run.verbose, table, {"edges": edges, "report": report})
        _learn(model, method, training, fixed, run)
        if run.resume and not how["checkpoint"].exists():
            warn(f"{method} keeps no record of finished work here; after an interruption it starts anew.")
        cli.forget_running(model)
        summary = summarise(model, training, method, fixed, time.perf_counter() - began)
        if save is not None:
            summary["file"] = str(mssl.save(model, save, notes={k: v for k, v in summary.items() if k in _NOTES}))
    if report is not None:
        from mssl.report import write

        given, tasks = training.given, None if training.aligned else np.asarray(training.given["tasks"])
        # The scores of the report do not support offsets.
        rows = (training.features, given["y"], tasks) if given["offset"] is None else None
        stability = getattr(model, "stability_", None)
        summary["report"] = str(write(model, report, data=rows, held_out=False, stability=stability))
    run.tell(summary, show, quiet=run.quiet)


def _usual_method(training: Training, fixed: Json) -> str:
    """Return the default method: bayesian for the targets on which it was compared with real data, else p-mssl."""
    if training.family not in ("gaussian", "binary") or training.edges is not None:
        return "p-mssl"
    known = make_estimator(BAYESIAN, training.family).get_params()
    return BAYESIAN if set(fixed) <= set(known) else "p-mssl"


def _learn(model: Any, method: str, training: Training, fixed: Json, run: cli.Running) -> None:
    """Fit a model to rows or moments, with folds, graph and search according to the table."""
    known, n_tasks, n_rows = model.get_params(deep=False), len(training.counts), int(training.counts.sum())
    if run.jobs not in (None, 1) and "n_jobs" not in known:
        warn(f"{method} is fitted by one process; --jobs changes nothing.")
    name = method.replace("_", "-")
    if name in LEARNED and "selection" in known:
        # Stability selection halves the rows of weights, or of residuals.
        rows = int(training.counts[0]) if name == "r-mssl" else len(training.schema.feature_names)
        usual = "both" if rows >= 4 and n_tasks > 1 else "prediction"
        model.set_params(selection=fixed.get("selection", usual))
    if name == "p-mssl" and not fixed and n_tasks > _MANY_TASKS:
        model.set_params(**_SHORT_SEARCH)
        warn(
            f"there are {n_tasks:,} tasks, so that the search is a short one: eight settings, and no stability "
            "selection. --set selection=both makes the whole search, whose time grows with the square of the tasks; "
            "mssl select finds the stable edges alone."
        )
    text = f"{n_rows:,} rows of {n_tasks:,} tasks were read; {method} is fitted."
    _log.log(logging.INFO if n_rows >= _MANY_ROWS else logging.DEBUG, text)
    if training.moments is None:
        if run.seed and "cv" in known:
            model.set_params(cv=training.cv(None, run.seed))
        if training.edges is not None and lacks_graph(model) is None:
            raise click.UsageError(f"--edges is given, but {method} takes no known graph; leave it out, or use s2m2r.")
        training.prepare(model, method)
    training.fit(model)
    training.schema.attach(model)


# Facts that the model file stores as notes.
_NOTES = ("method", "family", "rows", "task_column", "target_column", "missing_features")


def summarise(model: Any, training: Training, method: str, fixed: Json, seconds: float) -> Json:
    """Return the summary of a fit in plain values."""
    left, found = model.fitted_, getattr(model, "held_out_", None)
    graph = left.graph
    shown = None if graph is None else display(graph)
    groups = []
    if shown is not None and shown.certain is not None:
        several = np.flatnonzero(np.bincount(shown.groups) > 1)  # Groups are numbered by falling size.
        groups = [[shown.graph.tasks[k] for k in np.flatnonzero(shown.groups == group)] for group in several]
    # JSON has no infinity, and null would mean that the penalty is unknown.
    prior = {} if left.structure is None else {"prior": left.structure}
    chosen = fixed | getattr(model, "best_params_", {}) | prior
    chosen = {name: "inf" if value == float("inf") else value for name, value in chosen.items()}
    varies = training.varies
    return {
        "method": method,
        "family": training.family,
        "task_column": training.schema.task,
        "target_column": training.schema.target,
        "missing_features": training.schema.missing,
        "rows": int(training.counts.sum()),
        "rows_dropped": training.dropped,
        "tasks": len(model.tasks_),
        "rows_per_task": [int(training.counts.min()), int(training.counts.max())],
        "features": len(training.schema.feature_names),
        "parameters": chosen,
        "certificate": None if left.result is None else certificate(left.result),
        "held_out": None if found is None else {name: v for name, v in vars(found).items() if v is not None},
        "gain_over_separate_models": gain_over_separate(model) if varies else None,
        "lead_over_separate_weights": lead_over_separate(model) if varies else None,
        "mixture": {name: round(weight, 4) for name, _, weight in left.candidates or () if weight > 0},
        "target_varies": varies,
        "support": None if graph is None or left.result is None else graph.n_edges,
        "edges": None if shown is None or shown.edges is None else len(shown.edges),
        "graph_choice": getattr(model, "graph_choice_", None),
        "expected_false_edges": None if graph is None else graph.false_edges,
        "evidence": [] if shown is None else shown.notes,
        "groups": groups,
        "untested": None if graph is None else graph.untested or None,
        "overall_p": None if shown is None or shown.relations is None else shown.relations.overall,
        "strongest_edges": [edge._asdict() for edge in (shown and shown.strongest) or ()],
        "seconds": round(seconds, 3),
    }


NOT_MEASURED = "not measured: that takes three rows per task, and no offset (folds then judge rates); see mssl compare"


def _held_out(score: Json | None) -> str:
    if score is None:
        return NOT_MEASURED
    base = f"; each task's base rate alone has {score['base_rate']:.4g}" if "base_rate" in score else ""
    area = f"; area under the ROC curve {score['auc']:.3f} (0.5 is chance)" if "auc" in score else ""
    share = f"; R² within tasks {score['explained']:.3f}" if "explained" in score else ""
    return f"{score['score']:.4g}, {score['what']}{base}{area}{share}"


def _gain(summary: Json) -> str:
    gain, lead = summary["gain_over_separate_models"], summary["lead_over_separate_weights"]
    if not summary["target_varies"]:
        return "none: the target does not vary within any task, so there is nothing to explain"
    if summary["tasks"] == 1:
        return "none: there is only one task"
    if gain is None and lead is None:
        return NOT_MEASURED
    if max(gain or 0.0, lead or 0.0) < NEGLIGIBLE_GAIN:
        return "none: separate models per task do as well in cross-validation"
    if gain is None:
        return f"{lead:.3g} more log density per held-out row than with separate weights per task"
    return f"{gain:.1%} less deviance in cross-validation than the best separate models per task"


def show(summary: Json) -> None:
    """Print the summary for people."""

    def named(group: list[object]) -> str:
        names = ", ".join(short_name(task) for task in group[:8])
        return names if len(group) <= 8 else f"{names} and {len(group) - 8} more"

    low, high = summary["rows_per_task"]
    proof, dropped = summary["certificate"], summary["rows_dropped"]
    pairs = summary["tasks"] * (summary["tasks"] - 1) // 2
    origin = f", from {cli.in_options(summary['graph_choice'])}" if summary["graph_choice"] else ""
    if summary["support"] and summary["expected_false_edges"] is not None:
        origin += f": at most {summary['expected_false_edges']:.2g} of them are expected to be false"
    chosen = (f"{name} {v:.4g}" if isinstance(v, float) else f"{name} {v}" for name, v in summary["parameters"].items())
    mixture = sorted(summary["mixture"].items(), key=lambda item: -item[1])
    facts = [
        ("method", f"{summary['method']} ({summary['family']})"),
        ("tasks", f"{summary['tasks']}, with {low if low == high else f'{low} to {high}'} rows each"),
        ("rows", f"{summary['rows']}" + (f" ({dropped} more lack a value and were dropped)" if dropped else "")),
        ("features", summary["features"]),
        ("chosen", ", ".join(chosen) or "defaults"),
        ("mixture of", "; ".join(f"{name} ({share:.0%})" for name, share in mixture) if len(mixture) > 1 else None),
        ("certificate", None if proof is None else f"{proof['status']} (relative gap {proof['relative_gap']:.1e})"),
        ("held out", _held_out(summary["held_out"])),
        ("gain", _gain(summary)),
        ("support", None if summary["support"] is None else f"{summary['support']} of {pairs} pairs{origin}"),
        ("edges", "not tested" if summary["edges"] is None else f"{summary['edges']} of {pairs} pairs, tested"),
        *(("relations" if number == 0 else "", note) for number, note in enumerate(summary["evidence"])),
        *(("groups" if k == 0 else "", named(group)) for k, group in enumerate(summary["groups"][:5])),
        ("time", f"{summary['seconds']:.1f} s"),
        ("saved", summary.get("file")),
        ("report", summary.get("report")),
    ]
    cli.print_facts(facts)
    if summary["strongest_edges"]:
        rows = [[*list(edge.values())[:5], edge["q"]] for edge in summary["strongest_edges"]]
        cli.print_table(["task", "task", "weight", "low", "high", "q"], rows, "Strongest edges")
