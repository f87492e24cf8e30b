"""Commands on saved models: predict, graph, inspect, report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import click
import numpy as np
from sklearn.base import is_classifier

from mssl._typing import Array, Index, Json
from mssl._validation import warn
from mssl.cli import _options as cli
from mssl.cli._tables import aligned, column_labels
from mssl.data.encoding import ColumnSchema, FeatureEncoder, Features
from mssl.data.inputs import locate_tasks
from mssl.exceptions import DataError, ModelFileError
from mssl.files import formats, models, tables
from mssl.graph.export import safe_cells
from mssl.graph.geometry import display

_SHARE: Json = {"metavar": "SHARE", "type": click.FloatRange(0, 1, min_open=True, max_open=True)}
_COLUMN: Json = {"metavar": "COLUMN"}


@cli.command
def predict(
    *,
    model: cli.File,
    data: cli.File,
    output: Annotated[
        str | None, "File to write (CSV, TSV, Parquet, Feather; .gz); standard output without it.", cli.OUTPUT
    ] = None,
    known: Annotated[
        str | None,
        "Column with the occasion of each row: known targets help to predict the missing ones of the same occasion. "
        "For models of residuals (r-mssl).",
        _COLUMN,
    ] = None,
    level: Annotated[
        float | None,
        "Add columns lower and upper that hold this share of new targets, such as 0.9. For the method bayesian.",
        _SHARE,
    ] = None,
    interval: Annotated[float | None, "Old name of --level.", _SHARE | {"hidden": True}] = None,
    unseen: Annotated[
        Literal["error", "mean"] | None,
        "Tasks that the model was not fitted to: refuse, or predict from the mean of all tasks. By default the mean, "
        "with a note, if the model has learned one.",
    ] = None,
    offset: Annotated[str | None, "Column of offsets; by default that of mssl fit.", _COLUMN] = None,
    task: Annotated[str | None, "Column of tasks, for models that were fitted in Python with tasks=.", _COLUMN] = None,
    answer: cli.Answer,
    safe_csv: cli.SafeCSV = None,
) -> None:
    r"""Predict for every row of DATA with the saved MODEL.

    DATA needs the columns of the training table; the target may be absent. The output has one row per row of DATA, in
    the same order, with the task (with --known also the occasion), the prediction and, for classes, the probability of
    the second class. If values are missing and the model was fitted with --missing drop, the prediction is empty. A
    task whose name differs from a known one only in blanks is refused unless --unseen is mean. With --known some rows
    may have a target. The other rows are predicted given the targets of the same occasion, with the standard deviation.

    \b
    Examples:
      mssl predict model.npz new.csv -o predictions.csv
      mssl predict stations.npz record.csv --known day -o filled.csv
      mssl predict bayesian.npz new.csv --level 0.9 --unseen mean
      mssl predict visits.npz new.csv --offset log_days
      mssl predict model.npz new.parquet | head
    """
    if interval is not None:
        level = interval
        warn(f"--interval {interval:g} is now --level {interval:g}; --interval goes with 0.3.", FutureWarning)
    cli.check_target(output, model, data)
    if output is not None and not answer.as_json:
        formats.check_ending(output)
    fitted = models.load(model)
    if level is not None and (known is not None or not hasattr(fitted, "predict_interval")):
        raise click.UsageError(
            f"--level is {level:g}; this model has no intervals{' with --known' if known else ''}. Fit with "
            "--method bayesian to a target of numbers, or leave it out."
        )
    if known is not None and not hasattr(fitted, "impute"):
        raise click.UsageError(
            f"--known is {known!r}; this model has no covariance of the tasks' residuals. Fit with --method r-mssl or "
            "bayesian to a target of numbers, or leave it out."
        )
    schema = _schema(fitted, model, offset, task)
    if known is not None and not schema.target:
        raise click.UsageError(f"--known is {known!r}; the model does not know its target's column. Use mssl.load.")
    table = schema.read(data, with_target=known is not None, labels=[] if known is None else [known])
    tasks = tables.read_task_column(table[schema.task], schema.task)
    if unseen != "mean" or known is not None:
        refused = "error" in (unseen, fitted.unseen_) or known is not None
        tables.check_tasks(tasks.names.tolist(), [str(task) for task in fitted.tasks_], only_misspelt=not refused)
    keys: Json = {schema.task: tasks}
    if known is not None:
        keys[known] = column_labels(table[known], known)
        targets = np.asarray(tables.target_values(table[schema.target]), dtype=float)
    encoded = schema.encode(table, by_task=True)
    if known is None:
        answers = _answers(fitted, encoded, level, unseen)
    else:
        occasions = np.unique(keys[known], return_inverse=True)[1]
        answers = _given(fitted, encoded, occasions, targets, known)
    columns = dict(keys)
    for name, values in answers.items():
        columns[name] = np.ma.array(np.empty(len(tasks), values.dtype), mask=True)  # Dropped rows stay masked.
        columns[name][encoded.rows] = values
    labels = fitted.classes_ if is_classifier(fitted) else ()
    names = [*columns, *fitted.tasks_.tolist(), *labels, *set(keys.get(known or "", []))]
    _deliver(columns, names, output, answer.as_json, safe_csv)


def _deliver(columns: Json, names: list[Any], output: str | None, as_json: bool, safe: bool | None) -> None:
    """Write columns of equal length according to the options; `names` holds all names in the table."""
    header, blocks = list(columns), _blocks(list(columns.values()))
    if as_json:
        predictions = [dict(zip(header, line, strict=True)) for block in blocks for line in zip(*block, strict=True)]
        document = {"rows": len(predictions), "predictions": predictions}
        if output is None:
            cli.print_json(document)
        else:
            with formats.text_file(output) as stream:
                stream.write(f"{cli.json_text(document)}\n")
    else:
        shown = output is None and cli.standard_output().isatty()
        make = safe_cells(names, safe or shown or safe) if output is None or formats.is_text(output) else None
        if make is not None:
            header = [str(make(name)) for name in header]
            blocks = ([[*map(make, column)] for column in block] for block in blocks)
        if output is None:
            formats.write_rows(cli.standard_output(), header, blocks)
        else:
            formats.write_table(output, header, blocks)
    if output is not None and sys.stdout is not None and sys.stdout.isatty():
        click.echo(f"{len(next(iter(columns.values())))} predictions written to {output}")


def _answers(fitted: Any, encoded: Any, level: float | None, unseen: str | None) -> Json:
    rows: Json = {"tasks": encoded.tasks, "unseen": unseen}
    if encoded.offset is not None:
        rows["offset"] = encoded.offset
    answers = {"prediction": fitted.predict(encoded.features, **rows)}
    if is_classifier(fitted):
        answers["probability"] = fitted.predict_proba(encoded.features, **rows)[:, 1]
    if level is not None:
        ends = fitted.predict_interval(encoded.features, level, **rows)
        answers["lower"], answers["upper"] = ends[:, 0], ends[:, 1]
    return answers


def _given(fitted: Any, encoded: Any, occasions: Index, targets: Array, column: str) -> Json:
    """Return predictions given the known targets of the same occasion, and their standard deviations."""
    i, k, K = occasions[encoded.rows], locate_tasks(encoded.tasks, fitted.tasks_), len(fitted.tasks_)
    if len(k) and np.bincount(i * K + k).max() > 1:
        raise DataError(
            f"Column {column!r} has the same value in several rows of one task; give each occasion its own."
        )
    shape = (int(occasions.max(initial=-1)) + 1, K)
    X, known = Features(aligned(encoded.X, i, k, shape)), aligned(targets[encoded.rows], i, k, shape, np.nan)
    offset = None if encoded.offset is None else aligned(encoded.offset, i, k, shape)
    given, deviation = fitted.predict(X, offset=offset, known=known, return_std=True)
    return {"prediction": given[i, k], "deviation": deviation[i, k]}


def _blocks(columns: list[Any]) -> Iterator[list[list[Any]]]:
    """Yield blocks of the rows of columns of equal length; masked values are None."""
    for first in range(0, len(columns[0]), formats.ROWS_AT_ONCE):
        yield [column[first : first + formats.ROWS_AT_ONCE].tolist() for column in columns]


@cli.command
def graph(
    *,
    model: cli.File,
    kind: Annotated[
        Literal["csv", "json", "graphml", "dot"],
        "Format: a table (csv), or a format for programs that draw graphs.",
        {"names": ["--format"]},
    ] = "csv",
    output: Annotated[str | None, "File to write; standard output without it.", cli.OUTPUT] = None,
    min_weight: Annotated[float, "Leave out edges weaker than this.", {"type": click.FloatRange(0, 1)}] = 0.0,
    min_confidence: Annotated[float, "Leave out edges selected less often.", {"type": click.FloatRange(0, 1)}] = 0.0,
    show: Annotated[
        Literal["support", "relations", "edges"],
        "The non-zeros of a penalised precision (support), or the significant pairs by correlations (relations) or by "
        "partial correlations (edges).",
    ] = "support",
    level: Annotated[Literal["fitted", "relations", "edges"] | None, "Old name of --show.", {"hidden": True}] = None,
    fdr: Annotated[
        float,
        "Expected share of false pairs, for --show relations and edges.",
        {"type": click.FloatRange(0, 1, min_open=True)},
    ] = 0.1,
    fdr_method: Annotated[
        Literal["bh", "by"],
        "Benjamini and Hochberg's procedure, or Benjamini and Yekutieli's for any dependence.",
    ] = "bh",
    safe_csv: cli.SafeCSV = None,
) -> None:
    r"""Write the task graph of a saved MODEL.

    Weights are partial correlations between tasks. The confidence of an edge is its frequency in stability selection,
    if that ran. The number of significant pairs, and the expected number of false ones, is printed on standard error;
    --show relations or edges writes these pairs, in CSV with intervals and p-values.

    \b
    Examples:
      mssl graph model.npz | head
      mssl graph model.npz --show relations --fdr 0.05
      mssl graph model.npz --format dot | dot -Tsvg -o graph.svg
      mssl graph model.npz --format graphml -o graph.graphml --min-weight 0.1
    """
    if level is not None:
        show = "support" if level == "fitted" else level
        warn(f"--level {level} is now --show {show}; --level goes with 0.3.", FutureWarning)
    cli.check_target(output, model)
    fitted = models.load(model)
    whole = getattr(fitted, "graph_", None)
    if whole is None:
        why = "its method learns none." if hasattr(fitted, "tasks_") else "it was saved before it was fitted."
        raise ModelFileError(
            f"{model!r} holds no task graph: {why} Fit a model that learns one, such as mssl fit --method p-mssl."
        )
    shown = display(whole, fdr, fdr_method)
    notes = [*shown.notes]
    if show == "support" and whole.n_edges and whole.false_edges is not None:
        notes.append(
            f"of the {whole.n_edges} pairs of the support at most {whole.false_edges:.2g} are expected to be false"
        )
    if show == "support" and not whole.n_edges and len(set(shown.groups.tolist())) < len(shown.groups):
        notes.append("the fit has no support; --show relations or edges writes the pairs above")
    for note in notes:
        click.echo(note, err=True)
    found: Any = whole
    if show == "support":
        found = whole.threshold(min_weight, min_confidence)
    elif kind != "csv":
        found = whole.selected(fdr, show, fdr_method)
    else:
        found = whole.relations(fdr, fdr_method) if show == "relations" else whole.edges(fdr=fdr, method=fdr_method)
    text = found.to_csv(output, safe=safe_csv) if kind == "csv" else getattr(found, f"to_{kind}")(output)
    if output is None:
        cli.print_result(text)


@cli.command
def inspect(
    *,
    model: cli.File,
    answer: cli.Answer,
    all_tasks: Annotated[bool, "List all tasks and features.", {"names": ["--tasks"]}] = False,
) -> None:
    r"""Show the header of a saved MODEL, after a check of the whole file.

    \b
    Examples:
      mssl inspect model.npz
      mssl inspect model.npz --json
    """
    answer.tell(models.read_header(model), lambda header: _show(header, all_tasks))


def _show(header: Json, all_tasks: bool) -> None:
    """Print the header of a model file for people."""
    proof = header["certificate"]
    if proof is not None:
        proof = f"{proof['status']} (relative gap {float(proof['relative_gap']):.1e}, {proof['rounds']} rounds)"
    columns, features = header.get("columns"), len(header["features"])  # Files of older builds lack the columns.
    cli.print_facts(
        [
            ("class", header["class"]),
            ("format version", header["version"]),
            ("tasks", len(header["tasks"])),
            ("features" if columns is None else "columns", features if columns is None else columns),
            *([] if columns in (None, features) else [("features after maps", features)]),
            ("support", "none" if header["edges"] is None else f"{header['edges']} pairs"),
            ("certificate", proof or "none"),
            *((name, value) for name, value in header["notes"].items() if not isinstance(value, dict | list)),
            *header["packages"].items(),
        ]
    )
    parameters = [(name, v if isinstance(v, str) else repr(v)) for name, v in header["parameters"].items()]
    cli.print_table(["parameter", "value"], parameters, "Parameters")
    if all_tasks:
        cli.print_table(["task"], [[name] for name in header["tasks"]], "Tasks")
        cli.print_table(["feature"], [[name] for name in header["features"]], "Features")


@cli.command
def report(
    *,
    model: cli.File,
    data: Annotated[str | None, "Table to measure the model on, preferably with new rows.", cli.PATH] = None,
    output: Annotated[str, "The page to write.", cli.OUTPUT] = "report.html",
) -> None:
    r"""Write one HTML page about a saved MODEL that needs no network.

    \b
    Examples:
      mssl report model.npz -o report.html
      mssl report model.npz --data new.csv
    """
    from mssl.report import write

    cli.check_target(output, model, data)
    fitted = models.load(model)
    rows = None
    if data is not None:
        schema = _schema(fitted, model)
        if not schema.target:
            raise click.UsageError("--data is given, but the model does not know its target's column; leave it out.")
        if schema.offset is not None:
            raise click.UsageError(
                "--data is given, but the model has offsets, which the page does not support; leave it out."
            )
        encoded = schema.encode(schema.read(data, with_target=True), with_target=True)
        rows = (encoded.features, encoded.target, np.asarray(encoded.tasks))
    click.echo(f"Report written to {write(fitted, output, data=rows)}")


def _schema(fitted: Any, model: str, offset: str | None = None, task: str | None = None) -> Any:
    """Return the schema of a table for the model; the columns of offsets and tasks may have new names."""
    schema, names = getattr(fitted, "table_", None), getattr(fitted, "feature_names_in_", None)
    if schema is None and names is not None and hasattr(fitted, "tasks_"):  # It was fitted to a frame in Python.
        encoder = fitted.encoder_ or FeatureEncoder(tuple(ColumnSchema(name, None) for name in names))
        column = task or fitted.task_column
        if not isinstance(column, str):
            raise click.UsageError(f"{model!r} got its tasks as a separate argument; name their column with --task.")
        schema = tables.TableSchema(column, "", encoder.columns, encoder.missing)
    if schema is None:
        raise ModelFileError(
            f"{model!r} was fitted to an array without column names, so it cannot read the columns of a table; use "
            "mssl.load and the methods of the model."
        )
    if task is not None and task in {column.name for column in schema.columns}:
        raise click.UsageError(f"--task is {task!r}, a feature of the model; name the column of the tasks.")
    if offset is not None and is_classifier(fitted):
        raise click.UsageError(f"--offset is {offset!r}; a model of labels takes none. Leave it out.")
    return replace(schema, offset=offset or schema.offset, task=task or schema.task)
