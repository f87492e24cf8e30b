"""Limits BLAS to one thread where more are slower, and spreads independent tasks over Python threads.

Small factorisations are many times slower on two threads of a busy machine than on one. Setting the limit costs some
0.1 ms, so the outermost call sets it and the calls inside it do not set it again. The limit is one of the whole
process: fits in several threads share it, and it ends with the last of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_limited: ContextVar[bool] = ContextVar("limited", default=False)


@cache
def _blas_libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


class _Limit:
    """The limit of the process: the first holder sets it, the last one takes it back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders = 0
        self.found: list[tuple[Any, int]] = []  # libraries that were limited, and the number of threads that each had

    def take(self) -> None:
        with self.lock:
            self.holders += 1
            for library in _blas_libraries():
                n = library.num_threads  # reading it costs a hundredth of setting it
                if n != 1:
                    self.found.append((library, n))
                    library.set_num_threads(1)

    def give(self) -> None:
        with self.lock:
            self.holders -= 1
            self._restore()

    def after_fork(self) -> None:
        """In a child only the thread that forked is there: the others hold nothing any more, nor the lock."""
        self.lock = threading.Lock()
        self.holders = 1 if _limited.get() else 0
        self._restore()

    def _restore(self) -> None:
        while not self.holders and self.found:
            library, n = self.found.pop()
            library.set_num_threads(n)


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.after_fork)


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Limit BLAS to one thread inside the block, if ``wanted`` and not limited already.

    Blocks may overlap in several threads: the number of threads that the first one found is back after the last.
    """
    if not wanted or _limited.get():
        yield
        return
    token = _limited.set(True)
    _limit.take()
    try:
        yield
    finally:
        _limit.give()
        _limited.reset(token)


def n_threads() -> int:
    """How many threads a call may use: as many as BLAS may, which users and workers limit, and no more than cores."""
    if _limit.holders:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, max((library.num_threads for library in _blas_libraries()), default=1))


def spread(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """The answers for all items, by as many threads as there may be, with one BLAS thread each.

    This pays only for functions that release the interpreter's lock: compiled kernels, NumPy and LAPACK.

    Examples
    --------
    >>> spread(abs, [-1, 2])
    [1, 2]
    """
    n = min(n_threads(), len(items)) if len(items) > 1 else 1
    if n == 1:
        return [function(item) for item in items]
    with one_thread(), ThreadPoolExecutor(n) as pool:
        return list(pool.map(function, items))
