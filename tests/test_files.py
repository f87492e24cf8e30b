"""Files are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mssl.exceptions import DatasetError, ModelFileError
from mssl.files import atomic, prepare_folder, write_bytes, write_text


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
        with pytest.raises(error, match="cannot write"), atomic(target, error):
            pass
    with pytest.raises(DatasetError, match="cannot make the folder"):
        prepare_folder(file / "folder")
    assert prepare_folder(tmp_path / "a" / "b").is_dir()
