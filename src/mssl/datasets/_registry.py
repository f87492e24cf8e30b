"""What the data sets are, where the public gets them and by which hash they are known: the content of registry.json.

Every file is named by its path inside the data folder (``MSSL_DATA``, or the cache).
"""

import json
from dataclasses import dataclass
from importlib.resources import files as package_files
from typing import Any

from mssl._validation import refused


@dataclass(frozen=True)
class DataFile:
    r"""One file: its place, its addresses and its hash.

    ``check`` names what the hash is taken of: ``"sha256"`` the bytes, ``"git-blob-sha1"`` the header
    ``blob <size>\0`` and the bytes, ``"sha256-unpacked"`` the content of a gzip file (mirrors pack alike
    content differently).
    """

    path: str
    check: str
    digest: str
    urls: tuple[str, ...] = ()
    size: int | None = None
    origin: str = ""


@dataclass(frozen=True)
class DatasetInfo:
    """One data set as ``available`` lists it."""

    name: str
    title: str
    licence: str
    source: str
    citation: str
    files: tuple[DataFile, ...] = ()
    task_column: str = "task"
    target_column: str = "label"

    @property
    def size(self) -> int | None:
        """Bytes of all files together; None where a size is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def _read(entry: dict[str, Any]) -> DatasetInfo:
    files = tuple(DataFile(**{**file, "urls": tuple(file.get("urls", ()))}) for file in entry.pop("files", ()))
    return DatasetInfo(**entry, files=files)


REGISTRY = {
    entry["name"]: _read(entry)
    for entry in json.loads(package_files("mssl.datasets").joinpath("registry.json").read_text("utf-8"))
}


def info(name: str) -> DatasetInfo:
    """Entry of a data set; underscores count as hyphens."""
    entry = REGISTRY.get(str(name).replace("_", "-"))
    if entry is None:
        raise refused("name", name, f"the data sets are {', '.join(REGISTRY)}")
    return entry
