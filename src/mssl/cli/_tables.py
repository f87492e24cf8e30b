"""Reading a table for `fit`: the schema of its columns, and its rows or, with Dask, its moments."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import numpy as np

from mssl._typing import Index, Json, Labels
from mssl._validation import warn
from mssl.cli._options import File, Names
from mssl.data.encoding import ColumnSchema, ColumnValues, Features
from mssl.data.folds import TaskGroupKFold, TaskKFold
from mssl.data.hints import hint_at_row_ids
from mssl.data.inputs import listing, number_tasks
from mssl.data.moments import Moments
from mssl.exceptions import DataError, MSSLError, NotAlignedError, ParameterError, require
from mssl.files import tables
from mssl.methods import Family, lacks_graph


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options for the table of a command and the roles of its columns."""

    data: File
    task: Annotated[str, "Column that names the task of each row."]
    target: Annotated[str, "Column to predict."]
    features: Annotated[Names, "Columns to predict from, separated by commas; all others by default."] = None
    drop: Annotated[Names, "Columns to leave out, separated by commas."] = None
    categorical: Annotated[
        Names,
        "Columns to treat as categories even if they hold numbers, such as codes, separated by commas.",
        {"metavar": "COL"},
    ] = None
    time: Annotated[str | None, "Column that says which rows of all tasks belong together (needed by r-mssl)."] = None
    group: Annotated[
        str | None, "Column of rows that folds must keep together in all tasks, such as a day or a patient."
    ] = None
    order: Annotated[str | None, "Column of times or dates: folds are then blocks of time."] = None
    weight: Annotated[str | None, "Column of weights: a row of weight 2 counts twice."] = None
    offset: Annotated[
        str | None, "Column that is added to the linear predictor: for counts the logarithm of the exposure."
    ] = None
    family: Annotated[Family, "Kind of target."] = "auto"
    missing: Annotated[
        tables.Missing,
        "Missing features: refuse, leave their rows out, fill with the column's mean, or fill and mark them.",
    ] = "error"
    missing_target: Annotated[
        Literal["error", "drop"] | None,
        "Rows without a target: refuse, or leave out. By default refused with --missing error, else left out.",
    ] = None


@dataclass(frozen=True, eq=False)
class Training:
    """A training table: its schema, facts about it, and the arguments of `fit` or, with Dask, moments."""

    schema: tables.TableSchema
    family: str
    counts: Index  # Number of rows of each task.
    varies: bool  # Whether the target has at least two values in some task.
    dropped: int = 0
    given: Json = field(default_factory=dict)  # X, y, tasks, sample_weight, offset, groups and order in their layout.
    edges: list[tuple[int, int, float]] | None = None
    moments: Moments | None = None  # They replace the rows.

    @property
    def aligned(self) -> bool:
        """Whether row i of every task is the same occasion."""
        return bool(self.given["X"].ndim == 3)

    @property
    def features(self) -> Features:
        """X in the form that an estimator with the table's schema accepts."""
        return Features(self.given["X"], feature_names=np.asarray(self.schema.feature_names, dtype=object))

    def cv(self, number: int | None, seed: int) -> TaskKFold | TaskGroupKFold | int | None:
        """Return random folds of rows, occasions or groups; only their number if an order makes them blocks of time.

        ``None`` means as many folds as for ``cv=None``.
        """
        groups = self.given["groups"]
        if self.given["order"] is not None:
            return number
        if groups is None:
            return TaskKFold(number or 5, random_state=seed)
        return TaskGroupKFold(number or min(5, len(np.unique(groups))), random_state=seed)

    def prepare(self, model: Any, method: str) -> Any:
        """Return the model with the given graph if it needs one; raise if the table lacks what the method needs."""
        if method.replace("_", "-") in ("r-mssl", "r-mssl-copula") and not self.aligned:
            raise NotAlignedError(
                f"{method} relates the errors that tasks make at the same time, so it needs to know which rows belong "
                "together; name the column of times with --time (every task needs one row at each of the same times), "
                "or use p-mssl, which needs none."
            )
        if self.given["offset"] is not None and (
            "offset" not in signature(model.fit).parameters or self.family == "binary"
        ):
            raise ParameterError("This method takes no offset for such targets; leave out --offset.")
        place = lacks_graph(model)
        if place is None:
            return model
        if self.edges is None:
            raise ParameterError(
                f"{method} smooths over a known graph of tasks; give its edges with --edges edges.csv, a table with "
                "two columns of task names and, if edges differ, a column named weight."
            )
        return model.set_params(**{f"{place}__edges": self.edges})

    def fit(self, model: Any) -> Any:
        """Fit a model; estimators with their own folds also get groups and times."""
        if self.moments is not None:
            return model.fit_moments(self.moments)
        known = signature(model.fit).parameters
        given = {name: values for name, values in self.given.items() if values is not None and name in known}
        return model.fit(**(given | {"X": self.features}))


def read_training(table: TableOptions, edges: str | None = None) -> Training:
    """Read a table, and optionally one of edges; :func:`mssl.files.tables.learn_schema` describes the errors."""
    task, target, drop = table.task, table.target, table.drop or []
    if table.time is not None and (table.group is not None or table.order not in (None, table.time)):
        raise click.UsageError(
            "--time already determines which rows belong together; leave out --group, and give --order the same column."
        )
    labelled = list(dict.fromkeys(name for name in (table.time, table.group, table.order) if name is not None))
    beside = [*labelled, *(name for name in (table.weight, table.offset) if name is not None)]
    if len({task, target, *beside}) < 2 + len(beside):
        raise click.UsageError("One column has two roles; give --task, --target, --weight and --offset different ones.")
    codes, wanted = table.categorical or [], {task, target, *(table.features or ()), *beside}
    found = tables.read_table(
        table.data,
        columns=None if table.features is None else [task, target, *table.features, *beside],
        drop=list(set(drop) - wanted),
        text=[task, *labelled, *codes],
    )
    how: Json = {"missing": table.missing, "offset": table.offset, "categorical": codes}
    schema = tables.learn_schema(found, task, target, features=table.features, drop=[*drop, *beside], **how)
    truth = found[target].truth
    encoded = schema.encode(
        found, with_target=True, by_task=True, training=True, missing_target=table.missing_target, weight=table.weight
    )
    ranks: dict[str | None, Index] = {}
    for name in labelled:
        labels = column_labels(found.take(name), name)[encoded.rows]
        with suppress(ValueError):  # As text "10" sorts before "9"; dates sort as text.
            labels = labels.astype(float) if name in (table.time, table.order) else labels
        ranks[name] = np.unique(labels, return_inverse=True)[1]
    names, of_row = number_tasks(encoded.tasks)
    for twins in tables.blank_twins(names.tolist()):
        warn(
            f"the tasks {listing(twins)} differ only in blanks; they are fitted as different tasks. "
            f"If they are one, correct the column {task!r}."
        )
    if table.features is None:
        hint_at_row_ids(encoded.X, schema.columns)
    y = encoded.target
    family = tables.detect_family(y, target) if table.family == "auto" else table.family
    if len(y) < 2:
        raise DataError(f"{table.data!r} has only one complete row; give at least two.")
    if family != "binary" and y.dtype.kind == "U":
        raise tables.text_target(y, target)
    if family == "binary" and y.dtype.kind == "f" and np.array_equal(y, np.round(y)):
        y = y.astype(bool if truth else np.int64)
    varies = bool(np.any((y[1:] != y[:-1]) & (of_row[1:] == of_row[:-1])))
    counts = np.bincount(of_row)
    given: Json = {"X": encoded.X, "y": y, "sample_weight": encoded.weight, "offset": encoded.offset}
    if table.time is not None:
        times = ranks[table.time]
        _check_times(names, of_row, times)
        shape = (int(times.max()) + 1, len(names))
        given = {name: None if of is None else aligned(of, times, of_row, shape) for name, of in given.items()}
        given |= {"tasks": names, "groups": None, "order": None if table.order is None else np.arange(counts[0])}
    else:
        given |= {"tasks": encoded.tasks, "groups": ranks.get(table.group), "order": ranks.get(table.order)}
    links = None if edges is None else _read_edges(edges, names.tolist())
    return Training(schema, family, counts, varies, dropped=encoded.dropped, given=given, edges=links)


def column_labels(column: ColumnValues, name: str) -> Labels:
    """Return the text of a column in each row; an empty cell raises."""
    codes, texts = column.text()
    if np.any(codes < 0):
        row = int(np.argmax(codes < 0)) + 1
        raise DataError(f"Column {name!r} is empty in row {row} of the data; give every row an entry, or drop it.")
    return np.asarray(texts)[codes]


def _read_edges(path: str, tasks: list[str]) -> list[tuple[int, int, float]]:
    """Return pairs of task indices with weights from a table of task names."""
    table = tables.read_table(path, text=2)
    names = table.names
    if len(names) < 2:
        raise DataError(f"{path!r} has one column; give two columns of task names, and one of weights if edges differ.")
    ends = [tables.read_task_column(table[name], name).tolist() for name in names[:2]]
    tables.check_tasks([*ends[0], *ends[1]], tasks)
    weights = table["weight"].numbers() if "weight" in names[2:] else np.ones(len(ends[0]))
    place = {task: k for k, task in enumerate(tasks)}
    edges = [(place[a], place[b], float(weight)) for a, b, weight in zip(*ends, weights, strict=True)]
    wrong = next((edge for edge in edges if edge[0] == edge[1] or not 0 <= edge[2] < np.inf), None)
    if wrong is not None:
        raise DataError(
            f"{path!r} has the edge {tasks[wrong[0]]!r}, {tasks[wrong[1]]!r} of weight {wrong[2]:g}; an edge joins two "
            "different tasks, and weights are numbers ≥ 0."
        )
    return edges


def _check_times(tasks: Labels, of_row: Index, times: Index) -> None:
    """Raise unless all tasks have the same times, each once; times are numbers from 0."""
    every = int(times.max()) + 1
    different = np.unique(of_row * every + times) // every  # The task of each of its times.
    lacking, twice = np.bincount(different) < every, np.bincount(of_row) > every
    if np.any(lacking | twice):
        raise DataError(
            f"Task {str(tasks[np.argmax(lacking | twice)])!r} lacks times that other tasks have, or has one twice; "
            "with --time every task needs one row at each of the same times."
        )


def aligned(values: Labels, occasions: Index, tasks: Index, shape: tuple[int, int], missing: float = 0.0) -> Labels:
    """Return the values of rows by occasion and task, of shape (n, K) or (n, K, d)."""
    whole = np.full((*shape, *values.shape[1:]), missing, dtype=values.dtype)
    whole[occasions, tasks] = values
    return whole


_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_ROWS_ONLY = ("categorical", "time", "group", "order", "weight", "offset", "missing_target", "edges", "report")


def read_moments(address: str, model: Any, method: str, progress: int, table: TableOptions, beside: Json) -> Training:
    """Compute the moments of all files of a pattern or a folder.

    Parameters
    ----------
    address : str
        Address of the cluster's scheduler, or "local" for workers on this machine that accept no other connections.
    model, method : estimator and str
        The estimator, which determines the number of folds, and the name of its method.
    progress : int
        Whether to show Dask's progress bar.
    table : TableOptions
        Options of the table.
    beside : dict
        Other options of the command, some of which need the rows.
    """
    if table.family not in ("auto", "gaussian"):
        raise click.UsageError(
            f"--family {table.family} needs all rows in memory, and --dask only computes sums for least squares; leave "
            "out --dask, or fit a sample of the rows without it."
        )
    if not hasattr(model, "fit_moments"):
        raise click.UsageError(f"--method {method} needs all rows in memory; leave out --dask.")
    given = [name for name, value in (vars(table) | beside).items() if name in _ROWS_ONLY and value is not None]
    if given:
        raise click.UsageError(f"--{given[0].replace('_', '-')} needs all rows in memory; leave it out with --dask.")
    if table.missing != "error":
        raise click.UsageError("--missing needs all rows in memory; drop or fill them before, or leave out --dask.")
    distributed = require("distributed", "dask", "--dask")
    paths = find_files(table.data)
    names = _lazy(paths).columns.tolist()
    dropped = {table.task, table.target, *(table.drop or ())}
    features = table.features or [name for name in names if name not in dropped]
    wanted = [*features, table.task, table.target]
    lost = [name for name in wanted if name not in names]
    if lost:
        raise DataError(f"{paths[0]!r} has no column {listing(lost)}; it has {listing(names)}.")
    kinds = dict.fromkeys(wanted, "float64") | {table.task: "string"}
    place: Json = {"address": address}
    if address == "local":  # These workers accept no other connections and end with the command.
        place = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    try:
        with distributed.Client(**place) as client:
            frame = _lazy(paths, kinds)[wanted].astype({table.task: "string"})
            lazy = Moments.from_dask(
                frame, target=table.target, task_column=table.task, n_folds=model._moment_folds(), compute=False
            )
            future = client.compute(lazy)
            if progress:
                with redirect_stdout(sys.stderr):
                    distributed.progress(future, notebook=False)
            moments = future.result().checked()
    except (ValueError, TypeError) as error:
        if isinstance(error, MSSLError):
            raise
        raise DataError(f"{table.data!r} cannot be read as numbers ({error}); correct the column.") from error
    whole = moments.together()
    schema = tables.TableSchema(table.task, table.target, tuple(ColumnSchema(name, None) for name in features))
    return Training(schema, "gaussian", whole.n, bool(np.any(whole.yy > 0)), moments=moments)


def find_files(pattern: str) -> list[str]:
    """Return the files of a pattern, a folder or a name, which must have one format."""
    place = Path(pattern)
    inside = place.iterdir() if place.is_dir() else place.parent.glob(place.name)
    paths = sorted(str(path) for path in inside if path.name.endswith(_ENDINGS))
    kinds = {Path(path.removesuffix(".gz")).suffix for path in paths}
    if len(kinds) != 1:
        found = "files of several kinds" if kinds else "no file"
        raise DataError(f"{pattern!r} names {found}; give a folder or a pattern of {', '.join(_ENDINGS)} files.")
    return paths


def _lazy(paths: list[str], kinds: Json | None = None) -> Any:
    """Return a lazy data frame; columns of text files are read with these dtypes, if given."""
    import dask.dataframe as dd

    if paths[0].endswith(".parquet"):
        return dd.read_parquet(paths)
    blocks = None if any(path.endswith(".gz") for path in paths) else "default"
    return dd.read_csv(
        paths, usecols=kinds and [*kinds], dtype=kinds, sep="\t" if ".tsv" in paths[0] else ",", blocksize=blocks
    )
