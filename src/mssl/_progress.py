"""Progress of long work: bars on a terminal, elsewhere a line in the log now and then."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Any

_EVERY = 30.0  # seconds between two lines
_log = logging.getLogger("mssl")


class Progress:
    """Nested bars with the time left, or lines of the logger "mssl" (level INFO), the first after half a minute.

    Parameters
    ----------
    verbose : int
        1 draws bars if the standard error is a terminal; else there are lines.
    title : str
        Name of the outer bar, and the beginning of every line.
    stages : int
        Length of the outer bar.

    Examples
    --------
    >>> with Progress(0, "search", 2) as progress:
    ...     progress.stage("couplings", 10)
    ...     progress.advance()
    """

    def __init__(self, verbose: int, title: str, stages: int) -> None:
        self._bars: Any = None
        self._title, self._name, self._pieces, self._done = title, "", 0, 0
        self._began = self._told = time.monotonic()
        if verbose and sys.stderr.isatty():
            self._bars = _bars()
            self._outer = self._bars.add_task(title, total=stages)
            self._inner: Any = None

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def stage(self, name: str, pieces: int) -> None:
        """Begin the next stage, of so many pieces of work; 0 where the number is not known."""
        self._name, self._pieces, self._done = name, pieces, 0
        if self._bars is None:
            _log.debug("%s: %s", self._title, name)
            return
        if self._inner is not None:
            self._bars.remove_task(self._inner)
            self._bars.advance(self._outer)
        self._inner = self._bars.add_task(f"  {name}", total=pieces)

    def advance(self, pieces: int = 1) -> None:
        """So many pieces are finished."""
        self._done += pieces
        now = time.monotonic()
        if self._bars is not None and self._inner is not None:
            self._bars.advance(self._inner, pieces)
        elif self._bars is None and now - self._told >= _EVERY:
            self._told = now
            share = f"{self._done} of {self._pieces}" if self._pieces else str(self._done)
            _log.info("%s: %s, %s done after %.0f s", self._title, self._name, share, now - self._began)


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
