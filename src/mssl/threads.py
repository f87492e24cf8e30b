"""One BLAS thread where more cost more than they bring.

Small factorisations are many times slower on two threads of a busy machine than on one. Setting the limit costs some
0.1 ms, so the outermost call sets it and those inside notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

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
        # To look costs a hundredth of setting the limit.
        if all(library.num_threads == 1 for library in _blas_libraries()):
            yield
        else:
            with _controller().limit(limits=1, user_api="blas"):
                yield
    finally:
        _limited.reset(token)
