"""Folders of tables as tasks to fit, read by the workers of a Dask cluster, which keep the features to themselves."""

from __future__ import annotations

import sys
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from mssl.cli._tables import names_in
from mssl.data.inputs import listing
from mssl.exceptions import DataError, MSSLError, require

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_ROWS_ONLY = (
    "categorical",
    "time",
    "group",
    "order",
    "weight",
    "offset",
    "missing_target",
    "edges",
    "report",
)  # options that need the rows in memory


class DistributedTraining(NamedTuple):
    """What a folder of tables holds; has what :class:`mssl.cli._tables.Training` tells of a fit."""

    counts: Any  # rows of each task
    varies: bool  # whether the target takes two values in some task
    schema: Any
    family: str = "gaussian"
    edges: None = None
    dropped: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())

    @property
    def rows_per_task(self) -> tuple[int, int]:
        """Fewest and most rows of a task."""
        return int(self.counts.min()), int(self.counts.max())


def read_moments(address: str, folds: int | None, progress: bool, **table: Any) -> tuple[DistributedTraining, Any]:
    """Moments of all files that a pattern or a folder names.

    Parameters
    ----------
    address : str
        Of the cluster's scheduler, or "local" for workers on this machine, which listen to nobody else.
    folds : int or None
        How many folds to keep apart.
    progress : bool
        Whether to show Dask's bar.
    table : dict
        The options that say what the columns mean.
    """
    from mssl.data.moments import Moments

    with _reading(address, **table) as (client, frame, schema):
        lazy = Moments.from_dask(frame, target=schema.target, task_column=schema.task, n_folds=folds, compute=False)
        future = client.compute(lazy)
        if progress:
            from distributed import progress as show

            with redirect_stdout(sys.stderr):
                show(future, notebook=False)
        moments = future.result().checked()
    whole = moments.together()
    return DistributedTraining(whole.n, bool(np.any(whole.yy > 0)), schema), moments


def fit_by_passes(address: str, model: Any, **table: Any) -> tuple[DistributedTraining, Any]:
    """A model of labels or counts, fitted to features that the workers keep; the options are those of the table."""
    with _reading(address, **table) as (_, frame, schema):
        X, y, tasks = frame.drop(columns=[schema.task, schema.target]), frame[schema.target], frame[schema.task]
        model.fit(X, y, tasks=tasks)
        counts = tasks.value_counts().compute().to_numpy()
    schema.attach(model)
    return DistributedTraining(counts, True, schema, table["family"]), model


@contextmanager
def _reading(address: str, **table: Any) -> Iterator[tuple[Any, Any, Any]]:
    """A client, the lazy frame of all files, and what its columns mean; what cannot be read is told in their terms."""
    from mssl.data.encoding import ColumnSchema
    from mssl.files.tables import TableSchema

    for name in _ROWS_ONLY:
        if table.get(name) is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} needs all rows in memory; leave it out with --dask.")
    if table["missing"] != "error":
        raise click.UsageError("--missing needs all rows in memory; drop or fill them before, or leave out --dask.")
    task, target, labels = table["task"], table["target"], table["family"] == "binary"
    paths, chosen, drop = find_files(table["data"]), names_in(table["features"]), names_in(table["drop"]) or []
    with _client(address) as client:
        try:
            frame, features = _read(paths, task, target, chosen, drop, "string" if labels else "float64")
            yield client, frame, TableSchema(task, target, tuple(ColumnSchema(n, None) for n in features))
        except (ValueError, TypeError) as error:
            if isinstance(error, MSSLError):
                raise
            raise DataError(f"{table['data']!r} cannot be read as numbers ({error}); correct the column.") from error


def find_files(pattern: str) -> list[str]:
    """Files of one kind that a pattern, a folder or a name stands for."""
    place = Path(pattern)
    inside = place.iterdir() if place.is_dir() else place.parent.glob(place.name)
    paths = sorted(str(path) for path in inside if path.name.endswith(_ENDINGS))
    kinds = {Path(path.removesuffix(".gz")).suffix for path in paths}
    if len(kinds) != 1:
        found = "files of several kinds" if kinds else "no file"
        raise DataError(f"{pattern!r} names {found}; give a folder or a pattern of {', '.join(_ENDINGS)} files.")
    return paths


def _read(
    paths: list[str], task: str, target: str, chosen: list[str] | None, drop: list[str], kind: str
) -> tuple[Any, list[str]]:
    """A lazy frame of the columns that are needed, tasks as text, targets of a kind, and the names of its features."""
    import dask.dataframe as dd

    separator = "\t" if ".tsv" in paths[0] else ","
    parquet = paths[0].endswith(".parquet")
    names = list(dd.read_parquet(paths[:1]).columns) if parquet else _header(paths[0], separator)
    features = [name for name in names if name not in (task, target, *drop)] if chosen is None else chosen
    lost = [name for name in (task, target, *features) if name not in names]
    if lost:
        raise DataError(f"{paths[0]!r} has no column {listing(lost)}; it has {listing(names)}.")
    wanted = [*features, task, target]
    if parquet:
        frame = dd.read_parquet(paths, columns=wanted)
        return frame.assign(**{task: frame[task].astype("string")}), features
    kinds = dict.fromkeys(features, "float64") | {task: "string", target: kind}
    blocks = None if any(path.endswith(".gz") for path in paths) else "default"
    return dd.read_csv(paths, usecols=wanted, dtype=kinds, sep=separator, blocksize=blocks)[wanted], features


def _header(path: str, separator: str) -> list[str]:
    import pandas as pd

    return list(pd.read_csv(path, nrows=0, sep=separator).columns)


@contextmanager
def _client(address: str) -> Iterator[Any]:
    """A client of the cluster at an address, or of workers on this machine that end with it."""
    distributed = require("distributed", "dask", "--dask")
    if address != "local":
        with distributed.Client(address) as client:
            yield client
        return
    local = distributed.LocalCluster(host="127.0.0.1", dashboard_address="127.0.0.1:0")
    with local as cluster, distributed.Client(cluster) as client:
        yield client
