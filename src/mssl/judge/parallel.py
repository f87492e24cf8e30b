"""Pieces of work spread over workers by joblib, recorded when finished, the same for any number of workers."""

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
    """Who does the work, where finished pieces are kept, and who is told of them.

    Parameters
    ----------
    n_jobs : int, optional
        As for joblib; ``joblib.parallel_config(backend="dask")`` and other backends are honoured.
    checkpoint : Checkpoint
        Where finished pieces are kept; nowhere by default.
    progress : Progress
        What shows stages and finished pieces; nothing by default.
    """

    n_jobs: int | None = None
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint(None, ""))
    progress: Progress = field(default_factory=lambda: Progress(0, "", 1))

    def run(self, function: Callable[..., Any], stage: str, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Values of ``function(*arguments)`` by the pieces' names; those in the checkpoint are not computed again.

        Parameters
        ----------
        function : callable
            Importable by name, so that other processes find it; its values must be what JSON can hold.
        stage : str
            What the work is, for the progress.
        pieces : sequence of (name, arguments)
            The work.
        """
        left = [(name, arguments) for name, arguments in pieces if name not in self.checkpoint]
        self.progress.stage(stage, len(pieces))
        self.progress.advance(len(pieces) - len(left))
        # In this process what a piece caches in its arguments serves the next one.
        alone = not left or Parallel(n_jobs=self.n_jobs).n_jobs == 1
        for name, value in (_named(function, *piece) for piece in left) if alone else self._spread(function, left):
            self.checkpoint[name] = value
            self.progress.advance()
        return {name: self.checkpoint[name] for name, _ in pieces}

    def _spread(self, function: Callable[..., Any], pieces: Sequence[Piece]) -> Iterator[tuple[str, Any]]:
        """Names and values as workers finish them."""
        calls = [delayed(_named)(function, *piece) for piece in pieces]
        try:
            eager = Parallel(n_jobs=self.n_jobs, return_as="generator_unordered")
        except ValueError:
            # A backend that answers when all is done: two pieces a worker at once, so that they can be recorded. More
            # would be lost when the run is killed, fewer leave workers waiting for the slowest.
            with Parallel(n_jobs=self.n_jobs) as workers:
                size = 2 * effective_n_jobs(workers.n_jobs)
                for first in range(0, len(calls), size):
                    yield from workers(calls[first : first + size])
        else:
            yield from eager(calls)


def _named(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """One BLAS thread a piece: no nested threads, and sums in the same order wherever the piece is computed."""
    with one_thread():
        return name, function(*arguments)
