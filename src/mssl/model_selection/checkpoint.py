"""A durable record of finished work, so that a long search can be killed and continued.

The file is text, one JSON object a line: a header that names the data and the settings by their hash, then one record
for every finished piece of work, each with a checksum. Lines are only ever appended, and flushed to the disk before
the next piece counts as finished. What a crash has cut off in the last line is dropped on the next start.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from mssl.exceptions import MSSLError

FORMAT = "mssl checkpoint 3"
HEAD = b'{"crc":'  # how every line begins


class CheckpointError(MSSLError, OSError):
    """A checkpoint cannot be read or written, or belongs to other data or settings."""


class Checkpoint(Mapping[str, Any]):
    """Finished pieces of work by name; values are what JSON can hold (floats are kept exactly).

    Parameters
    ----------
    path : path or None
        The file; None keeps nothing.
    identity : str
        Hash of data and settings, see :func:`fingerprint`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Checkpoint(Path(folder) / "run", "abc").add("fold 0", [0.1])
    ...     Checkpoint(Path(folder) / "run", "abc")["fold 0"]
    [0.1]
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: str) -> None:
        self.path = None if path is None else Path(path)
        self._done: dict[str, Any] = {}
        if self.path is not None:
            self._open(self.path, identity)

    def __getitem__(self, key: str) -> Any:
        return self._done[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._done)

    def __len__(self) -> int:
        return len(self._done)

    def add(self, key: str, value: Any) -> None:
        """Record a finished piece of work; it is on the disk when this returns."""
        if self.path is not None:
            append(self.path, {"key": key, "value": value})
        self._done[key] = value

    def _open(self, path: Path, identity: str) -> None:
        header = {"format": FORMAT, "identity": identity}
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b""
        except OSError as error:
            raise CheckpointError(f"The checkpoint {path} cannot be read ({error}); give another path.") from error
        lines = content.split(b"\n")[:-1]  # what follows the last line end is not a whole record
        records = [_read(line) for line in lines]
        if not records or records[0] is None:
            if not HEAD.startswith(content[: len(HEAD)]):
                raise CheckpointError(f"{path} is not a checkpoint of mssl; give another path, it is left as it is.")
            _truncate(path, 0)
            append(path, header)
            return
        self._accept(path, records[0], identity)
        good = next((i for i, record in enumerate(records) if record is None), len(records))
        self._done = {record["key"]: record["value"] for record in records[1:good] if record is not None}
        whole = sum(len(line) + 1 for line in lines[:good])
        if whole < len(content):
            _truncate(path, whole)

    def _accept(self, path: Path, header: dict[str, Any], identity: str) -> None:
        if header.get("format") != FORMAT:
            raise CheckpointError(f"{path} is not a checkpoint that this version reads; give another path.")
        if header.get("identity") != identity:
            raise CheckpointError(
                f"The checkpoint {path} was made with other data or other settings. Give the same data, parameters "
                "and seed to continue it, or another path to begin anew; the file is left as it is."
            )


def append(path: Path, record: dict[str, Any]) -> None:
    """Append one line durably; on any error the file is cut back to what it was."""
    body = json.dumps(record, separators=(",", ":"), allow_nan=True, sort_keys=True)
    line = b'{"crc":%d,"body":%s}\n' % (zlib.crc32(body.encode()), body.encode())
    before: int | None = None
    try:
        with path.open("ab") as file:
            before = file.tell()
            _write(file, line)
    except OSError as error:
        if before is not None:
            _truncate(path, before)
        raise CheckpointError(
            f"The checkpoint {path} cannot be written ({error}). Nothing half-written is left in it; free some space "
            "or give another path, and run again: what was finished is kept."
        ) from error


def _write(file: Any, line: bytes) -> None:
    file.write(line)
    file.flush()
    os.fsync(file.fileno())


def _truncate(path: Path, size: int) -> None:
    if path.exists():
        try:
            os.truncate(path, size)
        except OSError as error:
            raise CheckpointError(f"The checkpoint {path} cannot be written ({error}); give another path.") from error


def _read(line: bytes) -> dict[str, Any] | None:
    """The record in a line, or None where it is damaged."""
    try:
        outer = json.loads(line)
        body = json.dumps(outer["body"], separators=(",", ":"), allow_nan=True, sort_keys=True)
        return outer["body"] if zlib.crc32(body.encode()) == outer["crc"] else None
    except (ValueError, KeyError, TypeError):
        return None


def fingerprint(*things: Any) -> str:
    """Hash of arrays, numbers, texts, estimators and nestings of them; equal things have equal hashes."""
    digest = sha256()
    for thing in things:
        _feed(digest, thing)
    return digest.hexdigest()


def _feed(digest: Any, thing: Any) -> None:
    if sparse.issparse(thing):
        matrix = sparse.csr_array(thing)
        _feed(digest, ("sparse", matrix.shape, matrix.data, matrix.indices.astype(np.int64), matrix.indptr))
    elif isinstance(thing, np.ndarray) and thing.dtype.kind != "O":
        digest.update(f"array {thing.dtype.str} {thing.shape}".encode())
        digest.update(np.ascontiguousarray(thing).tobytes())
    elif isinstance(thing, BaseEstimator):
        _feed(digest, (type(thing).__name__, sorted(thing.get_params(deep=False).items())))
    elif isinstance(thing, Mapping):
        _feed(digest, sorted(thing.items()))
    elif isinstance(thing, list | tuple | np.ndarray):
        digest.update(f"list {len(thing)}".encode())
        for part in thing:
            _feed(digest, part)
    else:
        digest.update(f"{type(thing).__name__} {thing!r}".encode())
