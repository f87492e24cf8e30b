# mypy: allow-untyped-defs, allow-untyped-calls
"""numba's compiler, behind a look at its cache.

numba reads a compiled function from its cache when the function's own file is as it was. The code of all functions that
it calls is part of it, though, and those of other files may have changed since, by an upgrade for instance. Here all
files of kernels count as one: when any of them has changed, what was compiled from them is dropped.
"""

import gc
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from numba import njit

__all__ = ["drop_stale", "njit"]


@njit(cache=True)
def _nothing():
    """Shows where the compiled functions of this folder are kept."""


def drop_stale(sources: Path, cache: Path) -> bool:
    """Drop compiled kernels unless they belong to the kernels as they are now; True where some were dropped.

    Parameters
    ----------
    sources, cache : Path
        Folders of the kernels and of what numba made of them.
    """
    files = sorted(sources.glob("*.py"))
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
    stamp = cache / "kernels.stamp"
    with suppress(OSError):
        if stamp.read_text(encoding="ascii") == digest:
            return False
    names = {file.stem for file in files}
    stale = [file for file in cache.glob("*.nb?") if file.name.partition(".")[0] in names] if cache.is_dir() else []
    for file in stale:
        with suppress(OSError):
            file.unlink()
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        beside = cache / f"kernels.{os.getpid()}.part"
        beside.write_text(digest, encoding="ascii")
        beside.replace(stamp)
    return bool(stale)


def _set_up():
    """Have numba set up its compiler, as it does before the first kernel, be that compiled or read from the cache.

    Some fifty thousand objects come into being, all of which stay. Python's collector of garbage would look through
    them, and all others of the process, time and again; that takes nearly as long as the setting up, so it rests.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        _nothing.targetctx.refresh()
    finally:
        if collecting:
            gc.enable()


_set_up()
drop_stale(Path(__file__).parent, Path(_nothing.stats.cache_path))
