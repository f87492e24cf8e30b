"""Commands on saved models: predict, graph, inspect, report."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from typing import IO, Any

import click

from mssl.cli._output import check_target, json_option, print_facts, print_json, print_table
from mssl.exceptions import ModelFileError

_MODEL = click.argument("model", type=click.Path())
_ROWS_AT_ONCE = 2**14


@click.command()
@_MODEL
@click.argument("data", type=click.Path())
@click.option("--output", "-o", type=click.Path(), help="CSV file to write; standard output without it.")
@json_option
def predict(model: str, data: str, output: str | None, as_json: bool) -> None:
    r"""Predict for every row of DATA with the saved MODEL.

    DATA needs the columns of the table that the model was fitted to; the target may be absent. The answer has one
    row per row of DATA, in the same order: the task, the prediction, and for classes the probability of the second
    one. Where values are missing and the model was fitted with --missing drop, the prediction is left empty.

    \b
    Examples:
      mssl predict model.npz new.csv -o predictions.csv
      mssl predict model.npz new.parquet | head
    """
    from mssl.files import atomic
    from mssl.io import load
    from mssl.tables import check_tasks, read_task_column

    check_target(output)
    fitted = load(model)
    schema = _schema(fitted, model)
    table = schema.read(data)
    tasks = read_task_column(table[schema.task], schema.task)
    check_tasks(tasks.names.tolist(), [str(task) for task in fitted.tasks_])
    rows = schema.encode(table, by_task=True)
    answers = _answers(fitted, rows)
    header = [schema.task, *answers]
    lines = _lines(tasks, rows.rows, list(answers.values()))
    if as_json:
        told = [dict(zip(header, line, strict=True)) for line in lines]
        print_json({"rows": len(told), "predictions": told})
    elif output is None:
        _write_csv(sys.stdout, header, lines)
    else:
        with atomic(output) as stream:
            text = io.TextIOWrapper(stream, "utf-8", "backslashreplace", newline="")
            _write_csv(text, header, lines)
            text.detach()
        if sys.stdout.isatty():
            click.echo(f"{len(tasks)} predictions written to {output}")


def _answers(fitted: Any, rows: Any) -> dict[str, Any]:
    answers = {"prediction": fitted.predict(rows.X, tasks=rows.tasks)}
    if hasattr(fitted, "classes_"):
        answers["probability"] = fitted.predict_proba(rows.X, tasks=rows.tasks)[:, 1]
    return answers


def _lines(tasks: Any, rows: Any, answers: list[Any]) -> Iterator[tuple[Any, ...]]:
    """The task and the answers of each row of the file, empty where there are none; some rows at a time."""
    import numpy as np

    place = np.full(len(tasks), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    for first in range(0, len(tasks), _ROWS_AT_ONCE):
        here = slice(first, first + _ROWS_AT_ONCE)
        absent = np.flatnonzero(place[here] < 0).tolist()
        columns = [answer[place[here]].tolist() for answer in answers]
        for column in columns:
            for row in absent:
                column[row] = ""
        yield from zip(tasks[here].tolist(), *columns, strict=True)


def _write_csv(stream: IO[str], header: list[str], lines: Iterator[tuple[Any, ...]]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    stream.flush()


@click.command()
@_MODEL
@click.option(
    "--format", "kind", type=click.Choice(["csv", "json", "graphml", "dot"]), default="csv", show_default=True
)
@click.option("--output", "-o", type=click.Path(), help="File to write; standard output without it.")
@click.option("--min-weight", type=click.FloatRange(0, 1), default=0.0, help="Leave out edges weaker than this.")
@click.option("--min-confidence", type=click.FloatRange(0, 1), default=0.0, help="Leave out edges selected less often.")
def graph(model: str, kind: str, output: str | None, min_weight: float, min_confidence: float) -> None:
    r"""Write the task graph of a saved MODEL.

    Weights are partial correlations between tasks; confidence, where it was measured, says how often stability
    selection found the edge.

    \b
    Examples:
      mssl graph model.npz | head
      mssl graph model.npz --format dot | dot -Tsvg -o graph.svg
      mssl graph model.npz --format graphml -o graph.graphml --min-weight 0.1
    """
    from mssl.io import load

    found = load(model).graph_.threshold(min_weight, min_confidence)
    text = getattr(found, f"to_{kind}")(output)
    if output is None:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


@click.command()
@_MODEL
@json_option
@click.option("--tasks", "all_tasks", is_flag=True, help="List all tasks and features.")
def inspect(model: str, as_json: bool, all_tasks: bool) -> None:
    r"""Show what a saved MODEL says about itself, after checking the whole file.

    \b
    Examples:
      mssl inspect model.npz
      mssl inspect model.npz --json
    """
    from mssl.io import read_header

    header = read_header(model)
    if as_json:
        print_json(header)
        return
    certificate = header["certificate"]
    print_facts(
        [
            ("class", header["class"]),
            ("format version", header["version"]),
            ("tasks", len(header["tasks"])),
            ("features", len(header["features"])),
            ("edges", "none" if header["edges"] is None else header["edges"]),
            ("certificate", "none" if certificate is None else _certificate(certificate)),
            *((name, value) for name, value in header["notes"].items() if not isinstance(value, dict | list)),
            *header["packages"].items(),
        ]
    )
    print_table(["parameter", "value"], header["parameters"].items(), "Parameters")
    if all_tasks:
        print_table(["task"], [[name] for name in header["tasks"]], "Tasks")
        print_table(["feature"], [[name] for name in header["features"]], "Features")


def _certificate(certificate: dict[str, Any]) -> str:
    return f"{certificate['status']} (relative gap {certificate['relative_gap']:.1e}, {certificate['rounds']} rounds)"


@click.command()
@_MODEL
@click.option("--data", type=click.Path(), help="Table to measure the model on; better rows that it has not seen.")
@click.option("--output", "-o", type=click.Path(), default="report.html", show_default=True, help="The page to write.")
def report(model: str, data: str | None, output: str) -> None:
    r"""Write one HTML page about a saved MODEL that needs no network.

    \b
    Examples:
      mssl report model.npz -o report.html
      mssl report model.npz --data new.csv
    """
    import numpy as np

    from mssl.io import load
    from mssl.report import write

    fitted = load(model)
    rows = None
    if data is not None:
        schema = _schema(fitted, model)
        encoded = schema.encode(schema.read(data, with_target=True), with_target=True)
        rows = (encoded.X, encoded.target, np.asarray(encoded.tasks))
    click.echo(f"Report written to {write(fitted, output, data=rows)}")


def _schema(fitted: Any, model: str) -> Any:
    schema = getattr(fitted, "table_", None)
    if schema is None:
        raise ModelFileError(
            f"{model!r} was not fitted to a table, so it does not know what the columns of one mean; "
            "use mssl.load and the methods of the model."
        )
    return schema
