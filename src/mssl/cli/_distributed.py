"""Folders of tables as tasks to fit, read by the workers of a Dask cluster; only their moments come back."""

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
    """Moments of a folder of tables, ready to be fitted; has what :class:`mssl.cli._tables.Training` tells of a fit."""

    moments: Any
    schema: Any
    family: str = "gaussian"
    edges: None = None
    dropped: int = 0

    def can_be_halved(self) -> bool:
        """Whether stability selection has enough rows of weights to halve."""
        return self.moments.n_features >= 4 and self.moments.n_tasks > 1

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.moments.n.sum())

    @property
    def rows_per_task(self) -> tuple[int, int]:
        """Fewest and most rows of a task."""
        n = self.moments.together().n
        return int(n.min()), int(n.max())

    @property
    def varies(self) -> bool:
        """Whether the target takes two values in some task."""
        return bool(np.any(self.moments.together().yy > 0))

    def fit(self, model: Any) -> Any:
        """Fit a model, and let it know what the tables' columns mean."""
        model.fit_moments(self.moments)
        self.schema.attach(model)
        return model


def read_distributed(address: str, folds: int | None, progress: bool, **table: Any) -> DistributedTraining:
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
    from mssl.data.encoding import ColumnSchema
    from mssl.data.moments import Moments
    from mssl.files.tables import TableSchema

    for name in _ROWS_ONLY:
        if table.get(name) is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} needs all rows in memory; leave it out with --dask.")
    if table["family"] not in ("auto", "gaussian"):
        raise click.UsageError(
            f"--family {table['family']} needs all rows in memory; with --dask targets are numbers (gaussian). Fit a "
            "sample of the rows without --dask."
        )
    if table["missing"] != "error":
        raise click.UsageError("--missing needs all rows in memory; drop or fill them before, or leave out --dask.")
    task, target = table["task"], table["target"]
    paths = find_files(table["data"])
    with _client(address) as client:
        try:
            frame, features = _read(paths, task, target, names_in(table["features"]), names_in(table["drop"]) or [])
            lazy = Moments.from_dask(frame, target=target, task_column=task, n_folds=folds, compute=False)
            future = client.compute(lazy)
            if progress:
                from distributed import progress as show

                with redirect_stdout(sys.stderr):
                    show(future, notebook=False)
            moments = future.result().checked()
        except (ValueError, TypeError) as error:
            if isinstance(error, MSSLError):
                raise
            raise DataError(f"{table['data']!r} cannot be read as numbers ({error}); correct the column.") from error
    return DistributedTraining(moments, TableSchema(task, target, tuple(ColumnSchema(n, None) for n in features)))


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


def _read(paths: list[str], task: str, target: str, chosen: list[str] | None, drop: list[str]) -> tuple[Any, list[str]]:
    """A lazy frame of the columns that are needed, tasks as text, and the names of its features."""
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
    kinds = {name: "string" if name == task else "float64" for name in wanted}
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
