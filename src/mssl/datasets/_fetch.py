"""Files of data sets: from ``MSSL_DATA``, else from the cache, else downloaded once and checked by hash.

The file registry.json describes the data sets, with public addresses and hashes of their files. The name of a file is
its path inside the data folder.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tempfile
import zlib
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from mssl._validation import refused
from mssl.exceptions import DatasetError, require
from mssl.files.atomic import write_bytes


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
        """Total number of bytes of all files; None if a size is not known."""
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


# Unpacked files may have at most this many bytes (128 MiB), more than all files of these data sets have. A mere
# safeguard against damaged files.
_LARGEST_UNPACKED = 1 << 27


def data_folder() -> Path | None:
    """The folder in the variable ``MSSL_DATA``, or None if the variable is not set."""
    name = os.environ.get("MSSL_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise DatasetError(f"MSSL_DATA is {name!r}; give a folder, or unset it to use the cache.")
    return Path(name)


def cache_folder() -> Path:
    """Folder for downloads: ``MSSL_CACHE``, else the platform's place for caches."""
    name = os.environ.get("MSSL_CACHE")
    if name:
        return Path(name)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "mssl" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mssl"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mssl"


def unpack(content: bytes) -> bytes:
    """Content of gzip bytes (of bounded size), or the bytes themselves if they are not packed."""
    if content[:2] != b"\x1f\x8b":
        return content
    unpacker = zlib.decompressobj(wbits=31)
    unpacked = unpacker.decompress(content, _LARGEST_UNPACKED)
    if not unpacker.eof:
        raise gzip.BadGzipFile("cut short, or larger than any file of these data sets")
    return unpacked


def digest(content: bytes, check: str) -> str:
    """Hash of a file's content in one of the registry's ways."""
    if check == "git-blob-sha1":
        header = f"blob {len(content)}\0".encode()
        return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
    if check == "sha256-unpacked":
        try:
            content = unpack(content)
        except (zlib.error, gzip.BadGzipFile) as error:
            return f"none, since the gzip file is damaged ({error})"
    return hashlib.sha256(content).hexdigest()


def _problem(content: bytes, file: DataFile) -> str | None:
    """What is wrong with the content of a file, or None if its hash is the known one."""
    found = digest(content, file.check)
    return None if found == file.digest else f"its {file.check} is {found}, expected {file.digest}"


def find_file(file: DataFile) -> Path | None:
    """Place of a file that is here and whole, or None.

    Raises
    ------
    DatasetError
        If the data folder holds a file of that name with another content. A damaged file of the cache is
        only passed over: it will be fetched again.
    """
    folder = data_folder()
    if folder is not None and (folder / file.path).is_file():
        path = folder / file.path
        problem = _problem(path.read_bytes(), file)
        if problem is not None:
            raise DatasetError(f"{path} is not the file this data set needs ({problem}); replace or remove it.")
        return path
    cached = cache_folder() / file.path
    return cached if cached.is_file() and _problem(cached.read_bytes(), file) is None else None


def _download(url: str, target: Path, file: DataFile) -> str | None:
    """Fetch one address into the target; return what went wrong, or None."""
    pooch = require("pooch", "data", f"Downloading {file.path}")
    stream = io.BytesIO()
    try:
        pooch.HTTPDownloader()(url, stream, None)
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    problem = _problem(stream.getvalue(), file)
    if problem is None:
        write_bytes(target, stream.getvalue())
    return problem


def fetch_file(file: DataFile, *, base_url: str | None = None) -> Path:
    """Place of a file, downloaded into the cache if need be.

    Parameters
    ----------
    file : DataFile
    base_url : str, optional
        A mirror with the layout of the data folder, asked instead of the public addresses.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    DatasetError
        If the file is neither present nor can be fetched completely; no partial file remains.
    """
    found = find_file(file)
    if found is not None:
        return found
    urls = (f"{base_url.rstrip('/')}/{file.path}",) if base_url else file.urls
    advice = f"Put the file as {file.path} into a folder and set MSSL_DATA to that folder."
    if not urls:
        raise DatasetError(f"{file.path} is not here and cannot be downloaded: {file.origin}. {advice}")
    target = cache_folder() / file.path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise DatasetError(
            f"The cache folder {target.parent} cannot be written ({error}); set MSSL_CACHE to a folder that can, "
            f"or: {advice}"
        ) from error
    problems = []
    for url in urls:
        problem = _download(url, target, file)
        if problem is None:
            return target
        problems.append(f"{url}: {problem}")
    raise DatasetError(f"{file.path} could not be downloaded. " + "; ".join(problems) + f". Try later, or: {advice}")


def fetch(name: str, *, base_url: str | None = None) -> list[Path]:
    """Make sure that all files of a data set are here, and say where.

    Parameters
    ----------
    name : str
        One of the names of :func:`available`.
    base_url : str, optional
        A mirror with the layout of the data folder, asked instead of the public addresses.

    Returns
    -------
    list of pathlib.Path
        Empty for a data set that needs no file.

    Examples
    --------
    >>> from mssl.datasets import fetch
    >>> fetch("digit-pairs")
    []
    """
    return [fetch_file(file, base_url=base_url) for file in info(name).files]


def available() -> list[dict[str, Any]]:
    """All data sets, one row each.

    Returns
    -------
    list of dict
        ``name``, ``what``, ``size`` (bytes to fetch, None if not known), ``licence``, ``where`` (source),
        ``citation`` and ``present`` (bool: all files are here and whole, or none is needed).

    Examples
    --------
    >>> from mssl.datasets import available
    >>> [row["name"] for row in available() if row["size"] == 0]
    ['digit-pairs', 'el-nino']
    """
    return [
        {
            "name": entry.name,
            "what": entry.title,
            "size": entry.size,
            "licence": entry.licence,
            "where": entry.source,
            "citation": entry.citation,
            "present": all(_is_here(file) for file in entry.files),
        }
        for entry in REGISTRY.values()
    ]


def _is_here(file: DataFile) -> bool:
    try:
        return find_file(file) is not None
    except DatasetError:
        return False
