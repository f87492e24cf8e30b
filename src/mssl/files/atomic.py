"""Writing files, or lines at their end, whole or not at all."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mssl.exceptions import DatasetError, MSSLError

# Bytes read at once: pieces of columns are then large enough to go back to the system when freed.
BLOCK = 2**24
_LEFTOVER = re.compile(r"\..*\.[0-9a-f]{32}\.tmp", re.DOTALL)


@contextmanager
def atomic(path: str | os.PathLike[str], error: type[MSSLError] = DatasetError) -> Iterator[IO[bytes]]:
    """A binary file beside ``path`` that takes its place when the block ends well, and vanishes otherwise.

    A file that is there keeps its permissions; of a symbolic link the file that it leads to is replaced. Pipes and
    devices hold no content that could be replaced: they are written to as they are.

    The file beside is locked while it is written. What processes that were killed have left in the same folder is
    locked by nobody, and is removed when the block ends well. A process that gets SIGTERM removes its file itself.

    Parameters
    ----------
    path : path
        The file to write or to replace.
    error : type
        What is raised where that is not possible.
    """
    if "\0" in os.fspath(path):
        raise error(f"{os.fspath(path)!r} cannot be written (it holds a NUL character); give another name.")
    try:
        mode = None
        with suppress(FileNotFoundError):
            mode = Path(path).stat().st_mode  # kind and permissions of what is there, links followed
        if mode is not None and not stat.S_ISREG(mode):
            with Path(path).open("wb") as stream:
                yield stream
        else:
            # Resolved only here: what /dev/stdout leads to may have no path of its own.
            with _replacing(Path(os.path.realpath(path)), mode) as stream:
                yield stream
    except BrokenPipeError:
        raise  # the reader has closed the pipe, which is no fault of the path
    except OSError as cause:
        raise error(
            f"{os.fspath(path)!r} cannot be written ({cause.strerror or cause}); give a folder that exists and "
            "is writable."
        ) from cause


@contextmanager
def _replacing(target: Path, mode: int | None) -> Iterator[IO[bytes]]:
    beside, stream = _locked(target)
    try:
        with _terminated_cleanly(beside), stream:
            if mode is not None:
                beside.chmod(stat.S_IMODE(mode))
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            if sys.platform != "win32":
                beside.replace(target)
        if sys.platform == "win32":
            beside.replace(target)
        _remove_leftovers(target.parent)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _locked(target: Path) -> tuple[Path, IO[bytes]]:
    """A new file beside a path, held by a lock that ends with the process.

    Its name is made here and not by mkstemp, so that a new file has the permissions that the user's umask gives.
    """
    while True:
        beside = target.with_name(f".{target.name[:40]}.{uuid.uuid4().hex}.tmp")
        stream = beside.open("xb")
        with suppress(OSError):  # some network file systems have no locks
            _lock(stream, wait=True)
        # Another process may have taken the file for a leftover in the moment before it was locked.
        if beside.exists():
            return beside, stream
        stream.close()


def _lock(stream: IO[bytes], *, wait: bool) -> None:
    """Lock a file; raise where another process holds it and is not waited for."""
    if sys.platform != "win32":  # an open file can be neither removed nor replaced there, which serves as the lock
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _terminated_cleanly(leftover: Path) -> Iterator[None]:
    """Remove a file on SIGTERM, where nobody else has said what is to happen then."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    owner = os.getpid()

    def leave(number: int, frame: object) -> None:
        if os.getpid() == owner:
            with suppress(OSError):
                leftover.unlink(missing_ok=True)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left of files that they were writing in a folder, which nobody holds locked."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _LEFTOVER.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError), Path(entry.path).open("rb") as stream:
                    _lock(stream, wait=False)
                    Path(entry.path).unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file whole or not at all."""
    with atomic(path) as stream:
        stream.write(content)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text whole or not at all; what UTF-8 cannot hold is written as an escape."""
    return write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def append_line(path: Path, line: bytes, error: type[MSSLError] = DatasetError) -> None:
    """Append a line whole or not at all: where that is not possible the file is cut back to what it was.

    The line is on the disk when this returns.
    """
    before: int | None = None
    try:
        with path.open("ab") as stream:
            before = stream.tell()
            _write_durably(stream, line + b"\n")
    except OSError as cause:
        if before is not None and path.exists():
            os.truncate(path, before)
        raise error(
            f"{str(path)!r} cannot be written ({cause.strerror or cause}), and nothing half-written is left in it; "
            "free some space or give another path, and run again: what was finished is kept."
        ) from cause


def _write_durably(stream: IO[bytes], content: bytes) -> None:
    stream.write(content)
    stream.flush()
    os.fsync(stream.fileno())


def whole_lines(content: bytes) -> list[bytes]:
    """The lines of a file's content without their ends; what follows the last end is not a whole line."""
    return content.split(b"\n")[:-1]


def keep_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Take off a file what follows its first lines, such as a last line that a killed process has left unfinished."""
    size = sum(len(line) + 1 for line in lines)
    if size < path.stat().st_size:
        os.truncate(path, size)


def prepare_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder for results, or say why that is not possible."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise DatasetError(
            f"The folder {str(folder)!r} cannot be made ({cause.strerror}); give another place."
        ) from cause
    return folder
