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


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Limit BLAS to one thread inside the block, if ``wanted`` and not limited already."""
    if not wanted or _limited.get():
        yield
        return
    token = _limited.set(True)
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limited.reset(token)
