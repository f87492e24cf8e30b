"""Files are written whole or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO

import pytest

from mssl.exceptions import DatasetError, ModelFileError
from mssl.files.atomic import append_line, atomic, prepare_folder, write_bytes, write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = write_text(tmp_path / "a.txt", "old")
    write_bytes(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_inside_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = write_text(tmp_path / "a.txt", "old")

    def fail() -> None:
        with atomic(target) as stream:
            stream.write(b"half")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_text_that_utf8_cannot_hold_is_escaped(tmp_path: Path) -> None:
    assert write_text(tmp_path / "a.txt", "x\ud800y").read_text() == "x\\ud800y"


@pytest.mark.parametrize("error", [DatasetError, ModelFileError])
def test_places_that_cannot_be_written_are_named(tmp_path: Path, error: type[DatasetError]) -> None:
    file = write_text(tmp_path / "file", "")
    for target in (tmp_path / "nowhere" / "a.txt", file / "a.txt", tmp_path):
        with pytest.raises(error, match="cannot be written"), atomic(target, error):
            pass
    with pytest.raises(DatasetError, match=r"folder .* cannot be created"):
        prepare_folder(file / "folder")
    assert prepare_folder(tmp_path / "a" / "b").is_dir()


def test_links_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = write_text(tmp_path / "there" / "a.txt", "old")
    for name in ("a.txt", "new.txt"):
        link = tmp_path / f"link to {name}"
        link.symlink_to(Path("there", name))
        assert write_text(link, "new") == link
        assert link.is_symlink()
        assert target.with_name(name).read_text() == "new"
    assert len(list((tmp_path / "there").iterdir())) == 2
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    with pytest.raises(DatasetError, match="cannot be written"):
        write_text(circle, "new")
    assert circle.is_symlink()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_are_kept(tmp_path: Path, mode: int) -> None:
    target = write_text(tmp_path / "a.txt", "old")
    target.chmod(mode)
    write_text(target, "new")
    assert stat.S_IMODE(target.stat().st_mode) == mode


def test_pipes_and_devices_are_written_to_and_stay(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as readers:
        read = readers.submit(pipe.read_bytes)
        write_bytes(pipe, b"through the pipe")
        assert read.result(timeout=30) == b"through the pipe"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]
    link = tmp_path / "null"
    link.symlink_to(os.devnull)
    write_bytes(link, b"nowhere")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    assert link.is_symlink()


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Whoever wrote them, whatever they were writing; files of other kinds and of living processes stay."""
    name = "0123456789abcdef" * 2
    dead = [tmp_path / f".a[1].txt.{name}.tmp", tmp_path / f".other.{name}.tmp", tmp_path / f".b\nc.{name}.tmp"]
    strangers = [tmp_path / ".a[1].txt.notes.tmp", tmp_path / f"a.{name}.tmp", tmp_path / f".a.{name[1:]}.tmp"]
    folder = tmp_path / f".folder.{name}.tmp"
    folder.mkdir()
    for file in (*dead, *strangers):
        file.touch()
    with atomic(tmp_path / "slow.txt") as stream:
        target = write_text(tmp_path / "a[1].txt", "new")
        (mine,) = set(tmp_path.iterdir()) - {target, folder, *strangers}
        assert mine.name.startswith(".slow.txt.")
        stream.write(b"done")
    assert set(tmp_path.iterdir()) == {target, folder, tmp_path / "slow.txt", *strangers}
    assert (tmp_path / "slow.txt").read_text() == "done"


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_killed_writer_leaves_the_old_file_and_nothing_for_long(tmp_path: Path, kind: signal.Signals) -> None:
    target = write_text(tmp_path / "a.txt", "old")
    code = (
        "import signal, sys, time\nfrom mssl.files.atomic import atomic\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "with atomic(sys.argv[1]) as stream:\n    stream.write(b'half'); print('ready', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=PIPE, stderr=DEVNULL) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        writer.send_signal(kind)
        assert writer.wait(30) == -kind
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == (2 if kind is signal.SIGKILL else 1)
    write_text(tmp_path / "b.txt", "another file")
    assert {file.name for file in tmp_path.iterdir()} == {"a.txt", "b.txt"}


def test_a_handler_of_the_caller_is_left_alone(tmp_path: Path) -> None:
    def handler(number: int, frame: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with atomic(tmp_path / "a"):
            assert signal.getsignal(signal.SIGTERM) is handler
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
    write_text(tmp_path / "a", "")
    assert signal.getsignal(signal.SIGTERM) == before


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path: Path) -> None:
    """Threads stand for processes: nobody takes the file of another for a leftover."""
    contents = [bytes([k]) * 1000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: [write_bytes(tmp_path / "a", content) for _ in range(20)], contents))
    assert (tmp_path / "a").read_bytes() in contents
    assert len(list(tmp_path.iterdir())) == 1


def test_a_name_with_a_nul_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="NUL"):
        write_text(tmp_path / "a\0b", "")


def test_a_reader_that_goes_away_breaks_the_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(BrokenPipeError), atomic(pipe) as stream:
        _write_late(stream, reader)


def _write_late(stream: IO[bytes], reader: int) -> None:
    os.close(reader)
    stream.write(b"too late")
    stream.flush()


def test_a_line_that_cannot_be_appended_leaves_the_file_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records"
    append_line(path, b"first")

    def full(stream: IO[bytes], content: bytes) -> None:
        stream.write(content[:3])
        stream.flush()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mssl.files.atomic._write_durably", full)
    with pytest.raises(DatasetError, match=r"records' cannot be written \(No space left"):
        append_line(path, b"second")
    assert path.read_bytes() == b"first\n"


@pytest.mark.parametrize("write", ["whole", "line"])
def test_content_is_on_the_disk_before_its_name_is(tmp_path: Path, write: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure there is the old file or the new one: the bytes are synchronised, and only then renamed."""
    target = write_text(tmp_path / "a.txt", "old\n")
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synchronised(descriptor: int) -> None:
        done.append("synchronised" if os.fstat(descriptor).st_size else "synchronised nothing")
        sync(descriptor)

    def replaced(path: Path, other: Path) -> Path:
        done.append("renamed")
        return replace(path, other)

    monkeypatch.setattr(os, "fsync", synchronised)
    monkeypatch.setattr(Path, "replace", replaced)
    if write == "whole":
        write_bytes(target, b"new")
        assert done.index("synchronised") < done.index("renamed")
    else:
        append_line(target, b"new")
        assert done[-1] == "synchronised"
