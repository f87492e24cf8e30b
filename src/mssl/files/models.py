"""Saved models: one ``.npz`` file without pickles, which is checked before memory is allocated.

The file is an uncompressed ZIP archive of ``.npy`` members: ``header.npy`` (JSON text as bytes), ``array_0.npy`` …, and
``checksum.npy``, the SHA-256 of all other members. Reading it needs at most as much memory as the size of the file,
plus 1 GiB for tables of mostly zeros such as a sparse graph, of which the file holds only the non-zero entries.
``numpy.load(path, allow_pickle=False)`` can open it too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from sklearn.base import BaseEstimator

from mssl._typing import Json, Labels
from mssl._validation import refused
from mssl.data.encoding import Features
from mssl.exceptions import ModelFileError, MSSLError, package_versions
from mssl.files.atomic import BLOCK, atomic
from mssl.files.codec import MOST_FILLED, VERSION, Decoder, Encoder, UnknownClassError, belongs_to_run, check_classes
from mssl.solvers.alternation import FitResult

FORMAT = "mssl-model"
# Largest number of bytes of JSON, with room for names of millions of features; parsed, it takes a few times as much.
_MOST_HEADER = MOST_FILLED // 4
# Largest number of characters or items of a parameter in the header, which is for reading; the model holds all of them.
_LONGEST_SHOWN = 200
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00(?s:..)"
    rb"\{'descr': '([<>|][biufcUSmM]\d{1,9}(?:\[\d{0,9}[a-zA-Z]{1,2}\])?)', 'fortran_order': (True|False), "
    rb"'shape': \((\d{0,19}(?:, ?\d{1,19}){0,31},?)\), \}\s*\n"
)
_FAILURES = (
    *(ValueError, TypeError, LookupError, AttributeError, RuntimeError, ArithmeticError, MSSLError),
    *(zipfile.BadZipFile, EOFError, OSError, ImportError),
)


def save(model: Any, path: str | os.PathLike[str], *, notes: Mapping[str, object] | None = None) -> Path:
    """Write a model atomically to one ``.npz`` file.

    Parameters
    ----------
    model : estimator
        Any estimator of mssl, fitted or not. The file also holds losses, penalties and structures that you have
        defined; to read it, pass their classes to :func:`load`. Parameters about running a fit on this machine
        (``memory`` of pipelines, ``checkpoint``, an ``n_jobs`` above 1024) are saved as None.
    path : str or path-like
        The file. An existing file is replaced in one step.
    notes : mapping, optional
        Plain values (numbers, text, lists) that are stored with the model, such as how it was trained.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    ParameterError
        If ``model`` is not an estimator.
    ModelFileError
        If a parameter is not part of mssl (a function, or an object of another library), or if the file cannot be
        written.

    Examples
    --------
    >>> import tempfile, pathlib, mssl
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(random_state=0)
    >>> model = mssl.MSSLRegressor().fit(data.X, data.y, tasks=data.tasks)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = mssl.load(mssl.save(model, pathlib.Path(folder, "model.npz")))
    >>> bool((again.coef_ == model.coef_).all())
    True
    """
    if not isinstance(model, BaseEstimator):
        raise refused("model", model, "give an estimator of mssl, such as mssl.MSSLRegressor()")
    encoder = Encoder()
    tree = encoder.encode(model, type(model).__name__)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "class": type(model).__name__,
        "packages": package_versions("mssl", "numpy", "scipy", "scikit-learn"),
        **_summary(model),
        "notes": dict(notes or {}),
        "model": tree,
    }
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"notes hold a value that is not plain ({error}); give numbers, text and lists."
        ) from error
    members = [np.frombuffer(text.encode("ascii"), dtype=np.uint8), *encoder.arrays]
    with atomic(path, ModelFileError) as stream:
        _write_members(stream, members)
    return Path(path)


def load(path: str | os.PathLike[str], *, classes: Iterable[type] = ()) -> Any:
    """Read a model that :func:`save` wrote; no code from the file is executed.

    Parameters
    ----------
    path : str or path-like
        The file.
    classes : iterable of type
        Classes of the model that are not part of mssl, such as your own loss. The file holds only their names. Code
        comes from the caller, never from a file or from a module that a file names.

    Returns
    -------
    estimator
        An estimator of the saved class with exactly the same parameters and fitted attributes.

    Raises
    ------
    ModelFileError
        If the file is damaged or was tampered with, has an unknown format version, or holds an object whose class is
        neither part of mssl nor in ``classes``.

    Examples
    --------
    >>> import mssl
    >>> model = mssl.load("model.npz")  # doctest: +SKIP
    >>> model = mssl.load("model.npz", classes=[MyLoss])  # doctest: +SKIP
    """
    known = check_classes(classes)
    with _reading(path):
        header, arrays = _read(Path(path))
        model = Decoder(arrays, header["version"], known).model(header["model"])
        table = getattr(model, "table_", None)
        if table is not None and model.task_column is None:  # A file of `mssl fit` before version 0.2.
            table.attach(model)
        _check_answers(model)
        return model


def _check_answers(model: Any) -> None:
    """Predict rows of the first and the last task, since parts that are valid one by one may not fit together."""
    if not hasattr(model, "_n_columns") or not hasattr(model, "coef_"):
        return
    rows = Features(np.zeros((4, model._n_columns)))
    ends = [model.tasks_[0], model.tasks_[0], model.tasks_[-1], model.tasks_[-1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = getattr(model, "predict_proba", model.predict)(rows, tasks=ends)
        if hasattr(model, "predict_interval"):
            model.predict_interval(rows, tasks=ends)
    if not np.isfinite(answers).all():
        raise ModelFileError("its model predicts values that are not finite")


def read_header(path: str | os.PathLike[str]) -> Json:
    """Return the header of a model file: class, parameters, tasks, features, certificate, versions, notes.

    The whole file is checked, but the model is not constructed.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    dict
    """
    with _reading(path):
        header, _ = _read(Path(path))
        del header["model"]
        return header


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert all exceptions that an invalid file can cause to one type of error that names the file."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise ModelFileError(
            f"{os.fspath(path)!r} cannot be read ({error.strerror}); give the path of a model file."
        ) from error
    except UnknownClassError as error:
        raise UnknownClassError(f"{os.fspath(path)!r} {error}") from None
    except _FAILURES as error:
        reason = str(error).strip(".") or type(error).__name__
        raise ModelFileError(f"{os.fspath(path)!r} is no intact model file: {reason[:300]}. {_remedy(path)}") from error


def _remedy(path: str | os.PathLike[str]) -> str:
    """Return the remedy for an unreadable file: save a damaged model again, or give another file."""
    damaged = False
    if Path(path).is_file():  # A pipe cannot be read twice.
        with Path(path).open("rb") as stream:
            damaged = stream.read(2) == b"PK"
    return "Save the model again with mssl.save." if damaged else "Give a file that mssl.save wrote."


def certificate(result: FitResult) -> Json:
    """Return status, gap, objective and number of rounds of a solver's result."""
    return {
        "status": str(result.status),
        "relative_gap": result.relative_gap,
        "objective": result.objective,
        "rounds": len(result.history),
    }


def _summary(model: BaseEstimator) -> Json:
    """Return the summary of a model for the header, in plain JSON."""
    result, graph = getattr(model, "result_", None), getattr(model, "graph_", None)
    return {
        "parameters": {
            name: None if belongs_to_run(name, value) else _plain(value)
            for name, value in model.get_params(deep=False).items()
        },
        **{kind: [str(name) for name in getattr(model, f"{kind}_", [])] for kind in ("tasks", "features", "classes")},
        "columns": getattr(model, "n_features_in_", None),
        "edges": None if graph is None else graph.n_edges,
        "certificate": {name: _plain(v) for name, v in certificate(result).items()}
        if isinstance(result, FitResult)
        else None,
    }


def _plain(value: object) -> object:
    """Return a parameter as a JSON value if it has one, else its ``repr``."""
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or isinstance(plain, bool | int) or (isinstance(plain, float) and math.isfinite(plain)):
        return plain
    if isinstance(plain, str):
        return plain[:_LONGEST_SHOWN]
    if isinstance(plain, list | tuple) and len(plain) <= _LONGEST_SHOWN:
        return [_plain(item) for item in plain]
    return repr(plain)[:_LONGEST_SHOWN]


class _Hashed:
    """A stream that is hashed while it is written."""

    def __init__(self, stream: IO[bytes], digest: Any) -> None:
        self.stream, self.digest = stream, digest

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self.stream.write(data)


def _names(count: int) -> list[str]:
    return ["header.npy", *(f"array_{k}.npy" for k in range(count - 1))]


def _write_members(stream: IO[bytes], members: list[Labels]) -> None:
    digest = hashlib.sha256()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in zip(_names(len(members)), members, strict=True):
            digest.update(name.encode())
            # With a fixed date the same model gives the same bytes.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            with archive.open(entry, "w", force_zip64=array.nbytes > 2**30) as member:
                np.lib.format.write_array(_Hashed(member, digest), array, version=(1, 0), allow_pickle=False)
        checksum = np.frombuffer(digest.digest(), dtype=np.uint8)
        with archive.open(zipfile.ZipInfo("checksum.npy", (1980, 1, 1, 0, 0, 0)), "w") as member:
            np.lib.format.write_array(member, checksum, version=(1, 0), allow_pickle=False)


def _read(path: Path) -> tuple[Json, list[Labels]]:
    """Return header and arrays of a file after checks of its directory, its shapes and its checksum."""
    if path.exists() and not path.is_file() and not path.is_dir():  # Opening a pipe would wait for a writer.
        raise ModelFileError("it is not a plain file")
    with path.open("rb") as stream:
        status = os.fstat(stream.fileno())
        with zipfile.ZipFile(stream) as archive:
            entries = _check_directory(archive.infolist(), status.st_size)
            digest = hashlib.sha256()
            members = []
            for name in _names(len(entries) - 1):
                digest.update(name.encode())
                members.append(_read_member(archive, entries[name], digest))
            stored = _read_member(archive, entries["checksum.npy"], hashlib.sha256())
    if stored.tobytes() != digest.digest():
        raise ModelFileError("its checksum does not match its content")
    return _parse_header(members[0]), members[1:]


def _check_directory(infos: list[zipfile.ZipInfo], size: int) -> dict[str, zipfile.ZipInfo]:
    if len(infos) < 2:
        raise ModelFileError(f"it has {len(infos)} members")
    entries = {info.filename: info for info in infos}
    if len(entries) != len(infos) or set(entries) != {"checksum.npy", *_names(len(infos) - 1)}:
        raise ModelFileError("it has members that no model file has")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
            raise ModelFileError(f"its member {info.filename} is compressed or encrypted")
    if sum(info.file_size for info in infos) > size:
        raise ModelFileError("its members claim to be larger than the file")
    if entries["header.npy"].file_size > _MOST_HEADER:
        raise ModelFileError(f"its header has more than {_MOST_HEADER} bytes")
    return entries


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, digest: Any) -> Labels:
    """Return one ``.npy`` member, whose shape must account for all its bytes."""
    content, place = memoryview(bytearray(info.file_size)), 0
    with archive.open(info) as stream:
        while part := stream.read(BLOCK):
            digest.update(part)
            content[place : place + len(part)] = part
            place += len(part)
    if place < len(content):
        raise ModelFileError("it ends too early")
    head = 10 + int.from_bytes(content[8:10], "little")
    found = _NPY.fullmatch(content[:head])
    if found is None or head % np.lib.format.ARRAY_ALIGN:
        raise ModelFileError(f"its member {info.filename} is not an array, or has a header that mssl does not write")
    dtype = np.dtype(found[1].decode("ascii"))
    shape = tuple(int(part) for part in found[3].replace(b" ", b"").split(b",") if part)
    if math.prod(shape) * dtype.itemsize != len(content) - head:
        raise ModelFileError(f"its member {info.filename} has shape {shape}, which its bytes do not fill")
    array = np.ndarray(shape, dtype, content, head, order="F" if found[2] == b"True" else "C")
    _check_content(array, info.filename)
    return array


def _check_content(array: Labels, name: str) -> None:
    """Raise for invalid Booleans and characters, which NumPy would accept, only to fail later."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ModelFileError(f"its member {name} holds bytes that are neither true nor false")
    if array.dtype.kind == "U" and array.nbytes:
        codes = array.reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if codes.max() > 0x10FFFF:
            raise ModelFileError(f"its member {name} holds bytes that are no text")


def _parse_header(member: Labels) -> Json:
    if member.dtype != np.uint8 or member.ndim != 1:
        raise ModelFileError("its header is no text")
    header = json.loads(member.tobytes().decode("ascii"))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError("it does not hold a model of mssl")
    if type(header.get("version")) is not int or not 1 <= header["version"] <= VERSION:
        raise ModelFileError(
            f"it has format version {str(header.get('version'))[:40]}, this mssl reads versions 1 to {VERSION}; "
            "use the mssl that wrote it"
        )
    if "model" not in header:
        raise ModelFileError("it holds no model")
    return header
