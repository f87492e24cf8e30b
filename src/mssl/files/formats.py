"""Reading and writing of tables as CSV and TSV (also gzipped), Parquet and Feather, according to the file ending.

Columns are read with pyarrow if it is installed, otherwise with Python's CSV reader.

A compressed file may unpack to 4 GiB, or to 100 times its own size if that is more. The environment variable
``MSSL_UNPACK_LIMIT`` (a number of bytes) sets another limit. Files are checked while they are read: Arrow's offsets and
codes, and the checksums of Parquet's pages if the file has them (files of mssl do).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import sys
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mssl._typing import Array
from mssl._validation import refused
from mssl.data.encoding import ColumnValues, FrameColumn
from mssl.data.inputs import listing
from mssl.exceptions import DataError, MSSLError, ParameterError, require
from mssl.files.atomic import BLOCK, atomic

MISSING_TEXT = frozenset({"", "#N/A", "#NA", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"})
_DELIMITERS = {".csv": ",", ".txt": ",", ".tsv": "\t", ".tab": "\t"}  # For writing; the reader detects the delimiter.
_COLUMN_FILES = {".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "feather"}
# Number of rows that are converted to Python objects at once, so that rows of 1024 bytes take one block.
ROWS_AT_ONCE = BLOCK // 1024
_INDEX = re.compile(r"__index_level_\d+__")  # Names of index columns that pandas writes.
# Largest number of characters per line, a safeguard against hostile files, and the number of columns of 64 characters
# that such a line has room for: a million.
_LONGEST_LINE = 4 * BLOCK
_MOST_COLUMNS = _LONGEST_LINE // 64
_UNPACKED = 2**32  # Number of bytes to which any compressed file may unpack: a safeguard against hostile files.
# Larger files may unpack to this multiple of their size, a safeguard: text compresses by a factor of 5 to 20.
_UNPACKED_RATIO = 100
Columns: TypeAlias = Sequence[Sequence[Any]]


class ArrowColumn(ColumnValues):
    """One column that Arrow has read: numbers, text or dates. It is converted on access."""

    blank: Collection[str] = MISSING_TEXT

    def __init__(self, name: str, data: Any, declared: bool) -> None:
        self.name, self.declared, self._data = name, declared, data
        self.kind = _kind(name, data.type)
        self.truth = str(data.type) == "bool"  # Booleans are read as numbers; targets need to know it.
        self._text: tuple[NDArray[np.int32], list[str]] | None = None

    def numbers(self) -> Array:
        """Return the values as floats; missing values are NaN."""
        return np.asarray(self._cast("float64").to_numpy(), dtype=np.float64)

    def text(self) -> tuple[NDArray[np.int32], list[str]]:
        """Return the index of each value (−1 if missing) in the distinct texts, and these texts by appearance."""
        if self._text is None:
            import pyarrow as pa

            data = self._data
            levels = [chunk.dictionary for chunk in data.chunks] if pa.types.is_dictionary(data.type) else []
            # Arrow allows categories without a name and categories with equal names.
            if not levels or any(found.null_count or len(found.unique()) < len(found) for found in levels):
                data = self._cast("string").dictionary_encode()
            whole = data.unify_dictionaries().combine_chunks()
            whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
            codes = np.asarray(whole.indices.cast("int32").fill_null(-1))
            self._text = codes, [str(value) for value in whole.dictionary.cast("string").to_pylist()]
        return self._text

    def _cast(self, dtype: str) -> Any:
        import pyarrow as pa

        try:
            return self._data.cast(dtype, safe=False)
        except pa.ArrowException as error:  # For example intervals, or times in an unknown time zone.
            raise DataError(
                f"Column {self.name!r} holds {self._data.type}, which cannot be read as {dtype} ({str(error)[:200]}); "
                "convert it to text or numbers."
            ) from error


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, by name.

    Attributes
    ----------
    names : list of str
        Names of all columns, in the order of the file.
    columns : dict of str to ArrowColumn or FrameColumn
        The columns that were read.
    source : str
        The file's name, for messages.
    """

    names: list[str]
    columns: dict[str, ColumnValues]
    source: str

    def __post_init__(self) -> None:
        if not self.columns:
            raise DataError(f"{self.source!r} has no rows below its header; give at least one.")

    def take(self, name: str) -> ColumnValues:
        """Remove a column from the table and return it, so that its memory can be freed after use."""
        column = self[name]
        del self.columns[name]
        release_memory()  # This frees the memory of the column that was taken before.
        return column

    def __getitem__(self, name: str) -> ColumnValues:
        if name not in self.columns:
            near = [other for other in self.names if other.strip().lower() == name.strip().lower()]
            hint = f" Is {near[0]!r} meant?" if near else ""
            raise DataError(f"{self.source} has no column {name!r}; its columns are {listing(self.names, 20)}.{hint}")
        return self.columns[name]


def read_table(
    path: str | Path, *, columns: Sequence[str] | None = None, drop: Sequence[str] = (), text: Sequence[str] | int = ()
) -> Table:
    """Read a table from a CSV, TSV (also gzipped), Parquet or Feather file.

    Parameters
    ----------
    path : str or Path
        The file. Its ending determines the format.
    columns : sequence of str, optional
        Columns to read; by default all.
    drop : sequence of str
        Columns to skip.
    text : sequence of str or int
        Columns to read as text even if they look like numbers, so that a task named ``007`` keeps its zeros; a number
        means that many first columns.

    Returns
    -------
    Table

    Raises
    ------
    DataError
        If the file does not exist, is not UTF-8, is ragged or empty, or if a column is missing or occurs twice.
    """
    file = Path(path)
    if file.is_dir():
        raise DataError(f"{str(path)!r} is a folder; give the table in it, such as {str(file / 'data.csv')!r}.")
    if not file.is_file():
        raise DataError(f"There is no file {str(path)!r}; give the path of a table.")
    ending = _ending(file, DataError)
    if ending in _COLUMN_FILES:
        return _read_columns(file, _COLUMN_FILES[ending], columns, drop)
    with _content(file) as stream:
        found = _Text(stream, file)
        wanted = _check_names(found.names, columns, drop, file.name)
        read = _read_plain if find_spec("pyarrow") is None else _read_csv
        texts = found.names[:text] if isinstance(text, int) else text
        return read(found, wanted, [name for name in texts if name in wanted])


def _ending(path: str | os.PathLike[str], error: type[MSSLError], usual: str = "") -> str:
    """Return the ending that determines the format of a table, without ``.gz``; an unknown ending raises."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packed = suffixes[-1:] == [".gz"]
    ending = ([usual] + (suffixes[:-1] if packed else suffixes))[-1]
    if ending in _DELIMITERS or (ending in _COLUMN_FILES and not packed):
        return ending
    endings = ", ".join((*_DELIMITERS, *_COLUMN_FILES))
    allowed = f"allowed are the endings {endings}, and .gz after the first four"
    raise refused("The file", Path(path).name, allowed, error=error)


def release_memory() -> None:
    """Return the unused memory of pyarrow's pool to the system."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()


def _check_unpacked(file: Path, size: int) -> None:
    """Raise if a compressed file unpacks to more bytes than the limit."""
    given = os.environ.get("MSSL_UNPACK_LIMIT", "").strip()
    if given and not given.isdecimal():
        raise refused("MSSL_UNPACK_LIMIT", given, "give a number of bytes, such as 10000000000")
    limit = int(given) if given else max(_UNPACKED, _UNPACKED_RATIO * file.stat().st_size)
    if size > limit:
        raise DataError(
            f"{file.name!r} has {file.stat().st_size} bytes and unpacks to more than {limit}; at most that many are "
            "allowed. If the file is trusted, set the environment variable MSSL_UNPACK_LIMIT to a larger number."
        )


@contextmanager
def _content(file: Path) -> Iterator[io.BufferedReader | gzip.GzipFile]:
    """Open the bytes of a table; the unpacked size of a gzipped file is checked first."""
    if file.suffix.lower() != ".gz":
        with file.open("rb") as plain:
            yield plain
        return
    with gzip.open(file) as unpacked:
        try:
            while unpacked.read(BLOCK):
                _check_unpacked(file, unpacked.tell())
            unpacked.seek(0)
        except (zlib.error, EOFError, OSError) as error:
            raise DataError(f"{file.name!r} is no intact gzip file ({error}); pack it again.") from error
        yield unpacked


class _Text:
    """Delimited text with the names of the columns in its first row."""

    def __init__(self, stream: io.BufferedReader | gzip.GzipFile, file: Path) -> None:
        self.stream, self.file, self.source = stream, file, file.name
        line = stream.readline(_LONGEST_LINE).decode("utf-8-sig", "surrogateescape")
        if not line.strip():
            raise DataError(
                f"{self.source!r} is empty or begins with an empty line; name the columns in its first line."
            )
        self.delimiter = max(",\t;", key=line.count)
        if line.count(self.delimiter) >= _MOST_COLUMNS:
            raise DataError(f"{self.source!r} has more than {_MOST_COLUMNS} columns; give fewer.")
        self.names = next((row for _, row in self._numbered()), [])
        self._check_utf8(1, self.names, self.names)

    def _numbered(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row, from the first one, with the number of its last line."""
        self.stream.seek(0)
        text = io.TextIOWrapper(self.stream, "utf-8-sig", "surrogateescape", newline="")
        rows = csv.reader(self._lines(text), delimiter=self.delimiter)
        try:
            for row in rows:
                yield rows.line_num, row
        except (OSError, csv.Error) as error:
            raise DataError(f"{self.source!r} cannot be read: {error}.") from error
        finally:
            text.detach()  # This keeps the underlying file open.

    def _lines(self, text: IO[str]) -> Iterator[str]:
        for number, line in enumerate(iter(partial(text.readline, _LONGEST_LINE), ""), start=1):
            if len(line) == _LONGEST_LINE:
                raise DataError(
                    f"Line {number} of {self.source!r} has {_LONGEST_LINE} characters or more, which is no row of a "
                    "table; is a line break or a closing quote missing?"
                )
            yield line

    def rows(self, wanted: Collection[str]) -> Iterator[list[str]]:
        """Yield all non-empty rows; rows of another length raise, and so do wanted cells that are not UTF-8."""
        first = 1
        for last, row in self._numbered():
            self._check_utf8(first, row, wanted)
            if row and len(row) != len(self.names):
                raise DataError(
                    f"Line {last} of {self.source!r} has {len(row)} values; its first line names "
                    f"{len(self.names)} columns. Correct the line: a text that holds the delimiter has to stand in "
                    "double quotes."
                )
            if row:
                yield row
            first = last + 1

    def _check_utf8(self, line: int, row: list[str], wanted: Collection[str]) -> None:
        """Raise for bytes that are not UTF-8 in a wanted cell of the row that starts in this line."""
        for name, cell in zip(self.names, row, strict=False):
            content = cell.encode("utf-8", "surrogateescape") if name in wanted and not cell.isascii() else b""
            try:
                content.decode("utf-8")
            except UnicodeDecodeError as error:
                line += content[: error.start].count(b"\n")
                # In the first line the cell is the name itself, and the message does not repeat it.
                place = f"line {line}" if name == cell else f"line {line}, column {name!r},"
                raise _not_utf8(self.source, place, content, error) from error
            line += cell.count("\n")


def _not_utf8(name: str, place: str, content: bytes, error: UnicodeDecodeError) -> DataError:
    shown = content[max(0, error.start - 10) : error.start + 10]
    marks = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
    encoding = next((other for mark, other in marks.items() if content.startswith(mark)), "LATIN1")
    return DataError(
        f"{name!r} is not UTF-8: {place} holds the bytes {shown!r}. Save it as UTF-8, for example with "
        f"iconv -f {encoding} -t UTF-8."
    )


def _check_names(names: list[str], wanted: Sequence[str] | None, drop: Sequence[str], source: str) -> list[str]:
    """Return the columns to read; blank and repeated names raise."""
    blank = [k + 1 for k, name in enumerate(names) if not name.strip()]
    if blank:
        raise DataError(
            f"Column {blank[0]} of {source} has no name; name it, or remove it if it only counts the rows "
            "(pandas: to_csv(…, index=False))."
        )
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise DataError(f"{source} has two columns named {twice!r}; rename one.")
    absent = [name for name in (wanted or ()) if name not in names]
    if absent:
        raise DataError(f"{source} lacks the columns {listing(absent)}; it has {listing(names, 20)}.")
    return [name for name in dict.fromkeys(names if wanted is None else wanted) if name not in drop]


def _read_csv(found: _Text, wanted: list[str], text: Sequence[str]) -> Table:
    import pyarrow as pa
    from pyarrow import csv as arrow

    try:
        # Arrow opens the file by its path: Arrow threads with Python objects may crash the process at exit.
        packed = "gzip" if found.file.suffix.lower() == ".gz" else None
        table = arrow.read_csv(
            pa.input_stream(found.file, compression=packed),
            read_options=arrow.ReadOptions(block_size=BLOCK),
            parse_options=arrow.ParseOptions(delimiter=found.delimiter, newlines_in_values=True),
            convert_options=arrow.ConvertOptions(
                include_columns=wanted, column_types=dict.fromkeys(text, pa.dictionary(pa.int32(), pa.string()))
            ),
        )
        fault = "its text is no UTF-8" if any(pa.types.is_binary(field.type) for field in table.schema) else None
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        fault = str(error)
    if fault is not None:
        deque(found.rows(wanted), maxlen=0)  # If the first fault has a line number, this raises with it.
        raise DataError(f"{found.source!r} cannot be read: {fault}.")
    return _from_arrow(table, found.names, found.source, text)


def _read_columns(file: Path, kind: str, columns: Sequence[str] | None, drop: Sequence[str]) -> Table:
    """Read a Parquet or Feather file in parts; its unpacked size has a limit."""
    pa = require("pyarrow", "tables", f"Reading {kind.capitalize()} files")
    from pyarrow import dataset

    checked = dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
    parquet = dataset.ParquetFileFormat(default_fragment_scan_options=checked)
    try:
        whole = dataset.dataset(file.absolute(), format=parquet if kind == "parquet" else kind)
        names = [name for name in whole.schema.names if not _INDEX.fullmatch(name)]
        wanted = _check_names(names, columns, drop, file.name)
        _check_unpacked(file, 8 * whole.count_rows() * len(wanted))  # A file can store one value for all rows.
        batches, size = [], 0
        for batch in whole.to_batches(columns=wanted):
            # Arrow's readers do not check offsets and codes; invalid ones would crash the process.
            batch.validate(full=True)
            batches.append(batch)
            size += batch.nbytes
            _check_unpacked(file, size)
        table = pa.Table.from_batches(batches, pa.schema([whole.schema.field(name) for name in wanted]))
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:
        reason = str(error).strip(".") or type(error).__name__
        raise DataError(
            f"{file.name!r} is no intact {kind.capitalize()} file ({reason[:300]}); write it again."
        ) from error
    return _from_arrow(table, names, file.name)


def _from_arrow(table: Any, names: list[str], source: str, text: Sequence[str] = ()) -> Table:
    """Return the columns of a table; dictionary columns are declared categories unless they were read as text."""
    from pyarrow.types import is_dictionary

    columns: dict[str, ColumnValues] = {}
    for name in table.column_names if table.num_rows else ():
        columns[name] = ArrowColumn(name, table[name], is_dictionary(table[name].type) and name not in text)
    return Table(names, columns, source)


def _kind(name: str, dtype: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(dtype):
        dtype = dtype.value_type
        if not (types.is_string(dtype) or types.is_large_string(dtype)):
            raise DataError(f"Column {name!r} holds categories of {dtype}; convert it to text or numbers.")
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if any(test(dtype) for test in numbers):
        return "number"
    if types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype):
        return "text"
    if types.is_temporal(dtype):
        return "date"
    raise DataError(f"Column {name!r} holds {dtype}, which is neither a number nor text; convert it or leave it out.")


def _read_plain(found: _Text, wanted: list[str], text: Sequence[str]) -> Table:
    """Read a CSV file without pyarrow."""
    _, *rows = found.rows(wanted)
    cells = dict(zip(found.names, zip(*rows, strict=True), strict=False))
    columns: dict[str, ColumnValues] = {}
    for name in wanted if cells else ():
        columns[name] = FrameColumn(name, np.asarray(cells[name], dtype=object), MISSING_TEXT)
        columns[name].kind = "text" if name in text else columns[name].kind
    return Table(found.names, columns, found.source)


def check_ending(path: str | os.PathLike[str]) -> str:
    """Return the ending that determines the format of a written table, without ``.gz``; the default is CSV.

    Raises
    ------
    ParameterError
        If the ending is unknown.
    MissingDependencyError
        If the format needs pyarrow, which is not installed.
    """
    ending = _ending(path, ParameterError, ".csv")
    if ending in _COLUMN_FILES:
        require("pyarrow", "tables", f"Writing {ending} files")
    return ending


def is_text(path: str | os.PathLike[str]) -> bool:
    """Whether a table with this name is written as text, in which a spreadsheet may find formulas."""
    return check_ending(path) in _DELIMITERS


@contextmanager
def text_file(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """Open a UTF-8 text file that is written atomically, and gzipped if its name ends in ``.gz``."""
    packed = Path(path).suffix.lower() == ".gz"
    # Without a name and a time in the header of a gzipped file the same rows give the same bytes.
    with atomic(path) as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if packed else nullcontext(raw) as content:
        text = io.TextIOWrapper(content, "utf-8", "backslashreplace", newline="")
        yield text
        text.detach()  # This flushes and keeps the underlying file open.


def write_rows(stream: IO[str], header: Sequence[str], blocks: Iterable[Columns], delimiter: str = ",") -> None:
    """Write blocks of rows as delimited text; None becomes an empty cell."""
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(header)
    for block in blocks:
        writer.writerows(zip(*block, strict=True))
    stream.flush()


def write_table(path: str | os.PathLike[str], header: Sequence[str], blocks: Iterable[Columns]) -> None:
    """Write blocks of rows atomically in the format of the file's ending; None becomes a missing value.

    A block holds the entries of each column in some rows. Blocks of ``ROWS_AT_ONCE`` rows need little memory.
    """
    ending = check_ending(path)
    if ending in _DELIMITERS:
        with text_file(path) as text:
            write_rows(text, header, blocks, _DELIMITERS[ending])
        return
    import pyarrow as pa
    from pyarrow import feather, parquet

    parts = [pa.table([pa.array(column) for column in block], names=list(header)) for block in blocks]
    # A column may have integers in one part and floats in the next.
    whole = pa.concat_tables(parts, promote_options="permissive")
    buffer = io.BytesIO()  # These writers need the position in the stream, which pipes do not have.
    if _COLUMN_FILES[ending] == "parquet":
        parquet.write_table(whole, buffer, write_page_checksum=True)
    else:
        feather.write_feather(whole, buffer)
    with atomic(path) as stream:
        stream.write(buffer.getbuffer())
