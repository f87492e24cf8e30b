"""Progress bars, drawn on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """Nested bars with the time left; does nothing unless asked for and the standard error is a terminal.

    Parameters
    ----------
    verbose : int
        0 is silent.
    title : str
        Name of the outer bar.
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
        """Begin the next stage, of so many pieces of work."""
        if self._bars is None:
            return
        if self._inner is not None:
            self._bars.remove_task(self._inner)
            self._bars.advance(self._outer)
        self._inner = self._bars.add_task(f"  {name}", total=pieces)

    def advance(self, pieces: int = 1) -> None:
        """So many pieces are finished."""
        if self._bars is not None and self._inner is not None:
            self._bars.advance(self._inner, pieces)


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
