"""Limit BLAS to one thread if more threads are slower, and distribute independent work over Python threads.

On a busy machine, small factorisations are many times slower with two threads than with one. Public methods are
therefore :func:`single_threaded`. Code that factors a possibly large matrix calls :func:`threads_for` with its size.
Setting the limit takes about 0.1 ms, so the outermost call sets it and the calls inside do not set it again. The limit
applies to the whole process: fits in several threads share it, and the last fit removes it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from enum import IntEnum
from functools import cache, wraps
from inspect import isfunction
from typing import Any, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Call = TypeVar("Call", bound=Callable[..., Any])

# BLAS may use all threads for matrices with at least this number of rows. On an idle machine, two threads are faster
# for smaller matrices too; on a busy machine, each synchronisation of the threads waits for the scheduler. Measured on
# two busy cores (load 2 to 10; OpenBLAS 0.3.30, AVX-512), the best time of two threads relative to one thread with
# 400, 600, 1000, 1500 and 2000 rows: products .55, 1.5, 1.2, .89, .79; inverses 1.0, 1.2, 1.3, 1.7, .87; solving for as
# many right sides .69, .56, .97, .86, .78; Cholesky factors .88, .87, 1.8, 1.4, 2.5. Below 2000 the worst of nine runs
# took up to 90 times as long (factors of 1000 rows), and a whole fit to 26 tasks with one column 40 times.
LARGE = 2000


class _Rule(IntEnum):
    """The threads that BLAS may use in the calls inside a block."""

    FREE = 0  # all threads
    SPARING = 1  # one thread, except for large matrices
    ONE = 2  # one thread


_rule: ContextVar[_Rule] = ContextVar("rule", default=_Rule.FREE)


@cache
def _blas_libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


class _Limit:
    """The limit of the process: the first holder sets it, the last one removes it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders = 0
        self.found: list[tuple[Any, int]] = []  # the limited libraries with their former numbers of threads

    def hold(self, more: int) -> None:
        """Add ``more`` holders: 1, 0, or −1 if a holder ends."""
        with self.lock:
            self.holders += more
            for library in _blas_libraries() if more > 0 else ():
                n = library.num_threads  # reading the number takes a hundredth of the time of setting it
                if n != 1:
                    self.found.append((library, n))
                    library.set_num_threads(1)
            while not self.holders and self.found:
                library, n = self.found.pop()
                library.set_num_threads(n)

    def after_fork(self) -> None:
        """Reset the limit in a child process, which has only the thread that forked and not the other holders."""
        self.lock = threading.Lock()
        self.holders = 1 if _rule.get() else 0
        self.hold(0)


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.after_fork)


@contextmanager
def _under(rule: _Rule) -> Iterator[None]:
    """Apply a rule inside a block. The limit is set or removed if only one of the block and its context is free."""
    more, token = bool(rule) - bool(_rule.get()), _rule.set(rule)
    _limit.hold(more)
    try:
        yield
    finally:
        _limit.hold(-more)
        _rule.reset(token)


def one_thread() -> AbstractContextManager[None]:
    """Limit BLAS to one thread inside the block, for work that is distributed over threads or processes.

    Blocks may overlap in several threads. The last block restores the number of threads.
    """
    return _under(_Rule.ONE)


def threads_for(n: int) -> AbstractContextManager[None]:
    """Set the number of BLAS threads for matrices of n rows and columns: one, or all threads if n is large.

    Inside a :func:`single_threaded` call this removes the limit for large matrices, unless another thread holds it too.
    """
    rule = _Rule.SPARING if n < LARGE else _Rule.FREE
    return nullcontext() if _rule.get() in (rule, _Rule.ONE) else _under(rule)


def single_threaded(function: Call) -> Call:
    """Limit BLAS to one thread in a function and its calls, except for large matrices (:func:`threads_for`)."""

    @wraps(function)
    def limited(*args: Any, **named: Any) -> Any:
        with nullcontext() if _rule.get() else _under(_Rule.SPARING):
            return function(*args, **named)

    return limited  # type: ignore[return-value]  # wraps keeps the signature


class SingleThreaded:
    """Base class that makes every public method of a subclass :func:`single_threaded`."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name, member in list(vars(cls).items()):
            if isfunction(member) and not name.startswith("_"):
                setattr(cls, name, single_threaded(member))


def n_threads() -> int:
    """The number of threads that a call may use: the number for BLAS, which users can limit, at most one per core."""
    if _limit.holders - (_rule.get() is _Rule.SPARING):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    had = [n for _, n in _limit.found] + [library.num_threads for library in _blas_libraries()]
    return min(cores, max(had, default=1))


def spread(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Apply a function to all items in :func:`n_threads` threads, with one BLAS thread each.

    This is faster only for functions that release the interpreter's lock: compiled kernels, NumPy and LAPACK.

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
