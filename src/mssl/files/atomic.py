"""Atomic writes: a file, or a line at its end, is written completely or not at all."""

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

# Number of bytes that are read at once. Smaller blocks need less memory at a time; blocks of this size are large enough
# that the allocator returns freed columns to the system.
BLOCK = 2**24
_LEFTOVER = re.compile(r"\..*\.[0-9a-f]{32}\.tmp", re.DOTALL)


@contextmanager
def atomic(path: str | os.PathLike[str], error: type[MSSLError] = DatasetError) -> Iterator[IO[bytes]]:
    """Open a temporary binary file that replaces ``path`` when the block succeeds, and is removed otherwise.

    An existing file keeps its permissions. If the path is a symbolic link, its target is replaced. Pipes and devices
    have no content to replace and are written to directly.

    The temporary file is in the same folder and locked while it is written. When the block succeeds, temporary files of
    killed processes, which no process locks, are removed. On SIGTERM the process removes its own temporary file.

    Parameters
    ----------
    path : path
        The file to write or to replace.
    error : type
        Exception that is raised if the file cannot be written.
    """
    if "\0" in os.fspath(path):
        raise error(f"{os.fspath(path)!r} cannot be written (it holds a NUL character); give another name.")
    try:
        mode = None
        with suppress(FileNotFoundError):
            mode = Path(path).stat().st_mode  # Type and permissions of the existing file, after following links.
        if mode is not None and not stat.S_ISREG(mode):
            with Path(path).open("wb") as stream:
                yield stream
        else:
            # Only regular files are resolved, since the target of /dev/stdout may have no path.
            with _replacing(Path(os.path.realpath(path)), mode) as stream:
                yield stream
    except BrokenPipeError:
        raise  # The reader has closed the pipe; the path is correct.
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
    """Create a new file in the folder of a path, with a lock that ends with the process.

    The name does not come from mkstemp, so that a new file has the permissions of the user's umask.
    """
    while True:
        beside = target.with_name(f".{target.name[:40]}.{uuid.uuid4().hex}.tmp")
        stream = beside.open("xb")
        with suppress(OSError):  # Some network file systems do not support locks.
            _lock(stream, wait=True)
        # Another process may have removed the file as a leftover before it was locked.
        if beside.exists():
            return beside, stream
        stream.close()


def _lock(stream: IO[bytes], *, wait: bool) -> None:
    """Lock a file; without ``wait`` raise if another process holds the lock."""
    if sys.platform != "win32":  # Windows needs no lock, since it cannot remove or replace an open file.
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _terminated_cleanly(leftover: Path) -> Iterator[None]:
    """Remove a file on SIGTERM, unless the program has its own handler of SIGTERM."""
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
    """Remove unlocked temporary files of killed processes from a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _LEFTOVER.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError), Path(entry.path).open("rb") as stream:
                    _lock(stream, wait=False)
                    Path(entry.path).unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file atomically."""
    with atomic(path) as stream:
        stream.write(content)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text atomically; characters that UTF-8 cannot encode are written as escapes."""
    return write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def append_line(path: Path, line: bytes, error: type[MSSLError] = DatasetError) -> None:
    """Append a line atomically: if writing fails, the file is truncated to its previous size.

    When the function returns, the line is on the disk.
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
            f"{str(path)!r} cannot be written ({cause.strerror or cause}); it holds no incomplete line. Free some "
            "space or give another path, and run again: finished work is kept."
        ) from cause


def _write_durably(stream: IO[bytes], content: bytes) -> None:
    stream.write(content)
    stream.flush()
    os.fsync(stream.fileno())


def whole_lines(content: bytes) -> list[bytes]:
    """Return the complete lines of a content without their line ends; an unfinished last line is dropped."""
    return content.split(b"\n")[:-1]


def keep_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Truncate a file after its first lines, which removes the unfinished last line of a killed process."""
    size = sum(len(line) + 1 for line in lines)
    if size < path.stat().st_size:
        os.truncate(path, size)


def prepare_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder for results, or raise with the reason."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise DatasetError(
            f"The folder {str(folder)!r} cannot be created ({cause.strerror}); give another one."
        ) from cause
    return folder
