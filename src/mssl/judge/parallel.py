"""Parallel work by joblib with a record of finished pieces; results do not depend on the number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs

from mssl._progress import Progress
from mssl.files.checkpoint import Checkpoint
from mssl.kernels.threads import one_thread

Piece = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Workers:
    """Workers with a record of finished pieces and a progress display.

    Parameters
    ----------
    n_jobs : int, optional
        Number of workers, as for joblib; ``joblib.parallel_config(backend="dask")`` and other backends are respected.
    checkpoint : Checkpoint
        Record of finished pieces; by default they are not recorded.
    progress : Progress
        Display of stages and finished pieces; by default nothing is shown.
    """

    n_jobs: int | None = None
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint(None, ""))
    progress: Progress = field(default_factory=lambda: Progress(0, "", 1))

    def run(self, function: Callable[..., Any], stage: str, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return ``function(*arguments)`` by the names of the pieces; pieces in the checkpoint are not computed again.

        Parameters
        ----------
        function : callable
            Function that other processes can import by its name. Its values must be representable in JSON.
        stage : str
            Name of the work in the progress display.
        pieces : sequence of (name, arguments)
            Name and arguments of each call.
        """
        left = [(name, arguments) for name, arguments in pieces if name not in self.checkpoint]
        self.progress.stage(stage, len(pieces))
        self.progress.advance(len(pieces) - len(left))
        # In this process later pieces can use what earlier pieces cached in their arguments.
        alone = not left or Parallel(n_jobs=self.n_jobs).n_jobs == 1
        for name, value in (_named(function, *piece) for piece in left) if alone else self._spread(function, left):
            self.checkpoint[name] = value
            self.progress.advance()
        return {name: self.checkpoint[name] for name, _ in pieces}

    def _spread(self, function: Callable[..., Any], pieces: Sequence[Piece]) -> Iterator[tuple[str, Any]]:
        """Yield names and values as workers finish them."""
        calls = [delayed(_named)(function, *piece) for piece in pieces]
        try:
            eager = Parallel(n_jobs=self.n_jobs, return_as="generator_unordered")
        except ValueError:
            # This backend returns only after all pieces are done. Each call gets two pieces per worker, which are then
            # recorded. With more pieces an interruption would lose more work; with fewer, workers would wait longer.
            with Parallel(n_jobs=self.n_jobs) as workers:
                size = 2 * effective_n_jobs(workers.n_jobs)
                for first in range(0, len(calls), size):
                    yield from workers(calls[first : first + size])
        else:
            yield from eager(calls)


def _named(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """Run a piece with one BLAS thread: no nested threads, and sums have the same order on every worker."""
    with one_thread():
        return name, function(*arguments)
