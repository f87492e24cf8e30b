"""A durable record of finished work, so that an interrupted search can continue.

The file is text with one JSON object per line. The header holds the format, the version of mssl, and a hash of the data
and the settings. One record with a checksum follows for each finished piece of work. The header is written atomically.
Lines are only appended, and each is flushed to the disk before its piece counts as finished. After a crash an
incomplete last line is dropped on the next start. A file with an unreadable header is refused and left unchanged.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zlib
from collections import UserDict
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from mssl import __version__
from mssl._typing import Json
from mssl._validation import refused
from mssl.exceptions import MSSLError
from mssl.files.atomic import append_line, atomic, keep_lines, whole_lines

_log = logging.getLogger("mssl")
FORMAT = "mssl checkpoint 5"  # Files of another format are refused.
HEAD = b'{"crc":'  # First bytes of each line.
IDLE = ("n_jobs", "checkpoint", "warm_start", "verbose")  # Parameters that do not change the result.


class CheckpointError(MSSLError, OSError):
    """A checkpoint cannot be read or written, or belongs to other data or settings."""


class Checkpoint(UserDict[str, Any]):
    """Values of finished pieces of work by name. The values are representable in JSON; floats are stored exactly.

    Parameters
    ----------
    path : path or None
        The file. With None nothing is written.
    identity : str
        Hash of data and settings, see :func:`fingerprint`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Checkpoint(Path(folder) / "run", "abc")["fold 0"] = [0.1]
    ...     Checkpoint(Path(folder) / "run", "abc")["fold 0"]
    [0.1]
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: str) -> None:
        if not isinstance(path, str | os.PathLike | None):
            raise refused("checkpoint", path, "give the path of a file, or None")
        super().__init__()
        self.path = None if path is None else Path(path)
        if self.path is not None:
            self._open(self.path, identity)

    @classmethod
    def of(cls, estimator: Any, data: Any, *decided: Any) -> Checkpoint:
        """Return the record of an estimator's fit to tasks.

        ``decided`` holds the folds and the inner estimator, which represent the parameters ``cv`` and ``estimator`` in
        the hash.
        """
        if estimator.checkpoint is None:
            return cls(None, "")
        params = estimator.get_params(deep=False)
        settings = {name: value for name, value in params.items() if name not in ("cv", "estimator", *IDLE)}
        rows = (data.X, data.y, data.weights, data.offsets, data.groups, data.order, data.tasks.tolist())
        return cls(estimator.checkpoint, fingerprint(*rows, settings, *decided))

    def __setitem__(self, key: str, value: Any) -> None:
        """Record a finished piece of work; when the method returns, it is on the disk."""
        if self.path is not None:
            append_line(self.path, _line({"key": key, "value": value}), CheckpointError)
        self.data[key] = value

    def _open(self, path: Path, identity: str) -> None:
        """Create the file, or read the finished work from an existing one."""
        head = {"format": FORMAT, "mssl": __version__, "identity": identity}
        try:
            if path.exists() and not path.is_file():
                raise CheckpointError(f"The checkpoint {path} is not a regular file; give another path.")
            content = path.read_bytes() if path.exists() else b""
            if not content:
                with atomic(path, CheckpointError) as file:
                    file.write(_line(head) + b"\n")
                return
            lines = whole_lines(content)
            found, *records = [_read(line) for line in lines] or [None]
            if found is None:
                fault = "has a damaged first line" if content.startswith(HEAD) else "is not a checkpoint of mssl"
                raise CheckpointError(f"{path} {fault}; give another path, or remove it. It is left as it is.")
            _accept(path, found, identity)
            # A line that is no record, such as the header of a second file, ends the finished work.
            done = [*takewhile(_is_finished, (record or {} for record in records))]
            self.data = {record["key"]: record["value"] for record in done}
            keep_lines(path, lines[: 1 + len(done)])
        except CheckpointError:
            raise
        except OSError as error:
            raise CheckpointError(
                f"The checkpoint {path} cannot be read and continued ({error}); give another path."
            ) from error
        _log.info("%s holds %d finished pieces of work; the work continues after them.", path, len(self))


def _accept(path: Path, header: Json, identity: str) -> None:
    """Raise unless a file has this format and this version and belongs to this work."""
    if header.get("format") != FORMAT:
        found = str(header.get("format"))[:40]
        raise CheckpointError(
            f"The checkpoint {path} has the format {found!r}, this version reads {FORMAT!r}; give another path."
        )
    if header.get("mssl") != __version__:
        raise CheckpointError(
            f"The checkpoint {path} was made by mssl {str(header.get('mssl'))[:40]}, this is {__version__}, and "
            "what two versions compute must not be mixed; continue it with that version, or give another path; "
            "the file is left as it is."
        )
    if header.get("identity") != identity:
        raise CheckpointError(
            f"The checkpoint {path} was made with other data or other settings; give the same data, parameters "
            "and seed to continue it, or another path to begin anew; the file is left as it is."
        )


def _is_finished(record: Json) -> bool:
    return isinstance(record.get("key"), str) and "value" in record


def _line(record: Json) -> bytes:
    body = json.dumps(record, separators=(",", ":"), allow_nan=True, sort_keys=True).encode()
    return b'{"crc":%d,"body":%s}' % (zlib.crc32(body), body)


def _read(line: bytes) -> Json | None:
    """Return the record in a line, or None if it is damaged."""
    try:
        outer = json.loads(line)
        body = json.dumps(outer["body"], separators=(",", ":"), allow_nan=True, sort_keys=True)
        whole = zlib.crc32(body.encode()) == outer["crc"] and isinstance(outer["body"], dict)
        return outer["body"] if whole else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def fingerprint(*values: Any) -> str:
    """Hash of arrays, numbers, texts, functions, estimators and nestings of them; equal values have equal hashes.

    It is the same in every process: functions count by their names, code, defaults and closures, generators of random
    numbers by their state, other objects by their attributes, nothing by where it lies in memory. Parameters of
    estimators that change no result do not count.
    """
    digest = sha256()
    for value in values:
        _feed(digest, value, ())
    return digest.hexdigest()


def _feed(digest: Any, value: Any, above: tuple[Any, ...]) -> None:
    if sparse.issparse(value):
        matrix = sparse.csr_array(value)
        value = ("sparse", matrix.shape, matrix.data, matrix.indices.astype(np.int64), matrix.indptr)
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        digest.update(f"array {value.dtype.str} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, list | tuple | np.ndarray):
        value = np.atleast_1d(value) if isinstance(value, np.ndarray) else value
        digest.update(f"list {len(value)}".encode())
        for part in value:
            _feed(digest, part, above)
    elif any(value is other for other in above):  # A function may contain itself in its closure.
        digest.update(b"again")
    elif (inside := _inside(value)) is not None:
        _feed(digest, inside, (*above, value))
    else:
        digest.update(re.sub(r" at 0x[0-9A-Fa-f]+", "", f"{type(value).__name__} {value!r}").encode())


def _inside(value: Any) -> Any:
    """Return the content of a value whose text does not identify it; None for all other values."""
    for kind, content in _CONTENTS:
        if isinstance(value, kind):
            return content(value)
    if hasattr(value, "__qualname__"):  # Classes, including NumPy's scalar types, and built-in functions.
        return _name(value)
    if hasattr(value, "__array__"):  # Columns of data frames.
        return np.asarray(value)
    return (*_name(type(value)), vars(value)) if hasattr(value, "__dict__") else None


def _name(value: Any) -> tuple[str, str]:
    return str(getattr(value, "__module__", "")), value.__qualname__


def _settings(estimator: BaseEstimator) -> tuple[str, Json]:
    kept = {name: value for name, value in estimator.get_params(deep=False).items() if name not in IDLE}
    return type(estimator).__name__, kept


def _function(function: FunctionType) -> tuple[Any, ...]:
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    return (*_name(function), function.__code__, function.__defaults__, function.__kwdefaults__, closure)


_CONTENTS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Mapping, lambda mapping: sorted(mapping.items(), key=lambda item: repr(item[0]))),
    (set | frozenset, lambda members: ("set", sorted(members, key=repr))),
    (BaseEstimator, _settings),
    (np.random.Generator, lambda random: ("generator", random.bit_generator)),
    (np.random.BitGenerator, lambda random: random.state),
    (np.random.RandomState, lambda random: random.get_state(legacy=False)),
    (partial, lambda call: ("partial", call.func, call.args, call.keywords)),
    (MethodType, lambda method: ("method", method.__func__, method.__self__)),
    (FunctionType, _function),
    (CodeType, lambda code: (code.co_code, code.co_names, code.co_consts)),
    (ModuleType, lambda module: ("module", module.__name__)),
)
