"""Folders of tables as moments, made by the workers of a Dask cluster."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import click
import numpy as np

from mssl.cli._tables import TableOptions, Training
from mssl.data.encoding import ColumnSchema
from mssl.data.inputs import listing
from mssl.data.moments import Moments
from mssl.exceptions import DataError, MSSLError, require
from mssl.files.formats import column_names
from mssl.files.tables import TableSchema

_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_ROWS_ONLY = ("categorical", "time", "group", "order", "weight", "offset", "missing_target", "edges")  # not lazily


def read_moments(
    address: str, model: Any, method: str, progress: bool, table: TableOptions, page: str | None
) -> tuple[Training, Moments]:
    """Moments of all files that a pattern or a folder names.

    Parameters
    ----------
    address : str
        Of the cluster's scheduler, or "local" for workers on this machine, which listen to nobody else.
    model, method : estimator and str
        What is fitted; it says how many folds to keep apart.
    progress : bool
        Whether to show Dask's bar.
    table : TableOptions
        What the columns mean.
    page : str or None
        The report that is asked for, which needs the rows.
    """
    if table.family not in ("auto", "gaussian"):
        raise click.UsageError(
            f"--family {table.family} needs all rows in memory, and --dask keeps sums for least squares alone; leave "
            "out --dask, or fit a sample of the rows without it."
        )
    if not hasattr(model, "fit_moments"):
        raise click.UsageError(f"--method {method} needs all rows in memory; leave out --dask.")
    given = [name for name in _ROWS_ONLY if getattr(table, name) is not None] + (["report"] if page else [])
    if given:
        raise click.UsageError(f"--{given[0].replace('_', '-')} needs all rows in memory; leave it out with --dask.")
    if table.missing != "error":
        raise click.UsageError("--missing needs all rows in memory; drop or fill them before, or leave out --dask.")
    paths = find_files(table.data)
    names = column_names(paths[0])
    dropped = {table.task, table.target, *(table.drop or ())}
    features = table.features or [name for name in names if name not in dropped]
    lost = [name for name in [table.task, table.target, *features] if name not in names]
    if lost:
        raise DataError(f"{paths[0]!r} has no column {listing(lost)}; it has {listing(names)}.")
    distributed = require("distributed", "dask", "--dask")
    local: Any = nullcontext(address)
    if address == "local":  # workers that listen to nobody else, and end with the command
        local = distributed.LocalCluster(host="127.0.0.1", dashboard_address="127.0.0.1:0")
    try:
        with local as cluster, distributed.Client(cluster) as client:
            frame = _lazy(paths, [*features, table.task, table.target])
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
    schema = TableSchema(table.task, table.target, tuple(ColumnSchema(name, None) for name in features))
    return Training(schema=schema, family="gaussian", counts=whole.n, varies=bool(np.any(whole.yy > 0))), moments


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


def _lazy(paths: list[str], wanted: list[str]) -> Any:
    """A lazy frame of the columns that are needed, of which the last two are tasks, as text, and targets."""
    import dask.dataframe as dd

    task = wanted[-2]
    if paths[0].endswith(".parquet"):
        frame = dd.read_parquet(paths, columns=wanted)
        return frame.assign(**{task: frame[task].astype("string")})
    kinds = dict.fromkeys(wanted, "float64") | {task: "string"}
    blocks = None if any(path.endswith(".gz") for path in paths) else "default"
    separator = "\t" if ".tsv" in paths[0] else ","
    return dd.read_csv(paths, usecols=wanted, dtype=kinds, sep=separator, blocksize=blocks)[wanted]
