"""Limits BLAS to one thread where more are slower, and spreads independent tasks over Python threads.

Small factorisations are many times slower on two threads of a busy machine than on one. Setting the limit costs some
0.1 ms, so the outermost call sets it and the calls inside it do not set it again.
"""

from __future__ import annotations

import os
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
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache
def _blas_libraries() -> list[Any]:
    return [library for library in _controller().lib_controllers if library.user_api == "blas"]


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Limit BLAS to one thread inside the block, if ``wanted`` and not limited already."""
    if not wanted or _limited.get():
        yield
        return
    token = _limited.set(True)
    try:
        # Reading the number of threads costs a hundredth of setting the limit.
        if all(library.num_threads == 1 for library in _blas_libraries()):
            yield
        else:
            with _controller().limit(limits=1, user_api="blas"):
                yield
    finally:
        _limited.reset(token)


def n_threads() -> int:
    """How many threads a call may use: as many as BLAS may, which users and workers limit, and no more than cores."""
    if _limited.get():
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
