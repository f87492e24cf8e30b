"""Tables out: rows into CSV, TSV (also gzipped), Parquet and Feather files, as the ending says."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from mssl.exceptions import ParameterError, require
from mssl.files.atomic import atomic

_DELIMITERS = {".csv": ",", ".txt": ",", ".tsv": "\t", ".tab": "\t"}
_COLUMN_FILES = {".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "feather"}
_ROWS_AT_ONCE = 2**14


def check_ending(path: str | os.PathLike[str]) -> str:
    """The ending that says how a table is written, without ``.gz``; a name without any means CSV.

    Raises
    ------
    ParameterError
        When the ending is not known.
    MissingDependencyError
        When the format needs pyarrow, and it is not installed.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packed = suffixes[-1:] == [".gz"]
    ending = ((suffixes[:-1] if packed else suffixes)[-1:] or [".csv"])[0]
    if ending in _COLUMN_FILES and not packed:
        require("pyarrow", "tables", f"Writing {ending} files")
    elif ending not in _DELIMITERS:
        raise ParameterError(
            f"{Path(path).name!r} has an ending that no table is written to; allowed are "
            f"{', '.join((*_DELIMITERS, *_COLUMN_FILES))}, and .gz after the first four."
        )
    return ending


@contextmanager
def text_file(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """UTF-8 text that appears at ``path`` whole or not at all, gzipped where the name ends in ``.gz``."""
    with atomic(path) as stream:
        if Path(path).suffix.lower() == ".gz":
            # Neither name nor time: the same rows give the same bytes.
            with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as packed:
                yield from _as_text(packed)
        else:
            yield from _as_text(stream)


def _as_text(stream: Any) -> Iterator[IO[str]]:
    text = io.TextIOWrapper(stream, "utf-8", "backslashreplace", newline="")
    yield text
    text.detach()  # flushes; the file below stays open


def write_rows(stream: IO[str], header: Sequence[str], rows: Iterable[Sequence[Any]], delimiter: str = ",") -> None:
    """Write delimited text; None is an empty cell."""
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    stream.flush()


def write_table(path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table in the format of the file's ending, whole or not at all; None is a missing value."""
    ending = check_ending(path)
    if ending in _DELIMITERS:
        with text_file(path) as stream:
            write_rows(stream, header, rows, _DELIMITERS[ending])
    else:
        _write_columns(path, _COLUMN_FILES[ending], header, iter(rows))


def _write_columns(path: Any, kind: str, header: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    import pyarrow as pa
    from pyarrow import feather, parquet

    parts = []
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        parts.append(pa.table([pa.array(column) for column in zip(*batch, strict=True)], names=list(header)))
    # Whole numbers in one part and others in the next become one column of numbers.
    whole = pa.concat_tables(parts, promote_options="permissive")
    held = io.BytesIO()  # pipes cannot tell their position, which these writers ask for
    if kind == "parquet":
        parquet.write_table(whole, held)
    else:
        feather.write_feather(whole, held)
    with atomic(path) as stream:
        stream.write(held.getbuffer())
