"""Writing files whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mssl.exceptions import DatasetError, MSSLError


@contextmanager
def atomic(path: str | os.PathLike[str], error: type[MSSLError] = DatasetError) -> Iterator[IO[bytes]]:
    """A binary file beside ``path`` that takes its place when the block ends well, and vanishes otherwise.

    Parameters
    ----------
    path : path
        The file to write or to replace.
    error : type
        What is raised where that is not possible.
    """
    target = Path(path)
    # A name of our own rather than mkstemp's: the file then gets the permissions that the user's umask gives.
    beside = target.with_name(f".{target.name[:40]}.{uuid.uuid4().hex}.tmp")
    try:
        with beside.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(target)
    except OSError as cause:
        raise error(
            f"cannot write {str(target)!r}: {cause.strerror or cause}. Choose a folder that exists and is writable."
        ) from cause
    finally:
        with suppress(OSError):  # where it could not even be made, there is nothing to remove
            beside.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file whole or not at all."""
    with atomic(path) as stream:
        stream.write(content)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text whole or not at all; what UTF-8 cannot hold is written as an escape."""
    return write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def prepare_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder for results, or say why that is not possible."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise DatasetError(
            f"cannot make the folder {str(folder)!r}: {cause.strerror}. Choose another place."
        ) from cause
    return folder
