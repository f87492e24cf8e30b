"""Progress of long computations: bars on a terminal, else lines in the log."""

from __future__ import annotations

import logging
import sys
import time
from threading import Event, Thread
from typing import Any

_EVERY = 10.0  # Seconds between two lines: fewer lines keep logs short, more of them show progress earlier.
_log = logging.getLogger("mssl")


class Progress:
    """Nested bars with the remaining time, or a line of the logger "mssl" (level INFO) every ten seconds.

    A thread writes the lines, so that they appear even during one long piece of work.

    Parameters
    ----------
    verbose : int
        1 draws bars if the standard error is a terminal. Otherwise lines are logged, and 1 prints them if the logger
        is not enabled for INFO.
    title : str
        Name of the outer bar, and the beginning of every line.
    stages : int
        Number of stages, the length of the outer bar.

    Examples
    --------
    >>> with Progress(0, "search", 2) as progress:
    ...     progress.stage("couplings", 10)
    ...     progress.advance()
    """

    def __init__(self, verbose: int, title: str, stages: int) -> None:
        self._bars: Any = None
        self._title, self._name, self._pieces, self._done = title, "", 0, 0
        self._began, self._ended, self._aloud = time.monotonic(), Event(), bool(verbose)
        self._teller = Thread(target=self._tell, name="mssl progress", daemon=True)
        if verbose and sys.stderr.isatty():
            self._bars = _bars()
            self._outer = self._bars.add_task(title, total=stages)
            self._inner: Any = None

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        elif self._aloud or _log.isEnabledFor(logging.INFO):
            self._teller.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._bars is not None:
            self._bars.stop()
        self._ended.set()
        if self._teller.is_alive():
            self._teller.join()

    def _tell(self) -> None:
        while not self._ended.wait(_EVERY):
            share = f"{self._done} of {self._pieces}" if self._pieces else str(self._done)
            line = f"{self._title}: {self._name}, {share} done after {time.monotonic() - self._began:.0f} s"
            if _log.isEnabledFor(logging.INFO):
                _log.info(line)
            elif self._aloud:
                print(line, file=sys.stderr)

    def stage(self, name: str, pieces: int) -> None:
        """Begin the next stage with a number of pieces of work; 0 means an unknown number."""
        self._name, self._pieces, self._done = name, pieces, 0
        if self._bars is None:
            _log.debug("%s: %s", self._title, name)
            return
        if self._inner is not None:
            self._bars.remove_task(self._inner)
            self._bars.advance(self._outer)
        self._inner = self._bars.add_task(f"  {name}", total=pieces)

    def advance(self, pieces: int = 1) -> None:
        """Count finished pieces of work."""
        self._done += pieces
        if self._bars is not None and self._inner is not None:
            self._bars.advance(self._inner, pieces)


def _bars() -> Any:
    from rich import progress
    from rich.console import Console

    count, left = progress.MofNCompleteColumn(), progress.TimeRemainingColumn()
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), count, left)
    return progress.Progress(*columns, console=Console(stderr=True), transient=True)
