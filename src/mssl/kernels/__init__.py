"""Compiled kernels: one place that calls them and says so when the machine has to compile first."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

PATIENCE = 2.0

# What function of one weight a penalty is; the kernels branch on it, see mssl.penalties.EntrywisePenalty.
ABSOLUTE, MINIMAX_CONCAVE = 0, 1

_lock = threading.Lock()
_told = False
_spent = 0.0
_ready: set[Any] = set()


def _tell() -> None:
    global _told  # noqa: PLW0603 - said once per process
    with _lock:
        if _told:
            return
        _told = True
    print("mssl: compiling numerical kernels (this happens once; later runs read them from a cache) …", file=sys.stderr)


@contextmanager
def announce_compilation() -> Iterator[None]:
    """Tell stderr, once per process, when the compilations inside such blocks take over two seconds in sum.

    Examples
    --------
    >>> with announce_compilation():
    ...     pass
    """
    global _spent  # noqa: PLW0603 - several short compilations add up for the user
    timer = threading.Timer(max(PATIENCE - _spent, 0.0), _tell)
    timer.daemon = True
    start = time.perf_counter()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with _lock:
            _spent += time.perf_counter() - start


def call(kernel: Any, *args: Any) -> Any:
    """Call a numba kernel; its first compilation (or load from the cache) runs apart, so that it can be announced."""
    if kernel not in _ready:
        from numba import typeof

        with announce_compilation():
            # Only kernels that call others by address import it; what they call has to be there before them.
            if "mssl.kernels.apart" in sys.modules:
                sys.modules["mssl.kernels.apart"].make_known()
            kernel.compile(tuple(typeof(a) for a in args))
        _ready.add(kernel)
    return kernel(*args)


def plain(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same numbers in row order and writeable, so that all calls of a kernel have one signature."""
    flags = values.flags
    return values if flags.c_contiguous and flags.writeable else np.require(values, float, ["C", "W"])
