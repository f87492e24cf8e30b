"""Pieces of work spread over workers by joblib, recorded when finished, the same for any number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs

from mssl._progress import Progress
from mssl.files.checkpoint import Checkpoint
from mssl.kernels.threads import one_thread

Piece = tuple[str, tuple[Any, ...]]

_ROUND = 4  # pieces a worker between two records, where the backend cannot say when each is done: fewer leave workers
# waiting for the slowest, more are lost when the run is killed


def run(
    function: Callable[..., Any],
    pieces: Sequence[Piece],
    *,
    n_jobs: int | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Values of ``function(*arguments)`` by the pieces' names; those in the checkpoint are not computed again.

    Parameters
    ----------
    function : callable
        Importable by name, so that other processes find it; its values must be what JSON can hold.
    pieces : sequence of (name, arguments)
        The work.
    n_jobs : int, optional
        As for joblib; ``joblib.parallel_config(backend="dask")`` and other backends are honoured.
    checkpoint : Checkpoint, optional
        Where finished pieces are kept.
    progress : Progress, optional
        Told about every finished piece.
    """
    record = Checkpoint(None, "") if checkpoint is None else checkpoint
    left = [(name, arguments) for name, arguments in pieces if name not in record]
    if progress is not None:
        progress.advance(len(pieces) - len(left))
    for name, value in _results(function, left, n_jobs):
        record.add(name, value)
        if progress is not None:
            progress.advance()
    return {name: record[name] for name, _ in pieces}


def _results(function: Callable[..., Any], pieces: Sequence[Piece], n_jobs: int | None) -> Iterator[tuple[str, Any]]:
    if not pieces:
        return
    workers = Parallel(n_jobs=n_jobs)
    if workers.n_jobs == 1:  # in this process: what a piece caches in its arguments serves the next one
        for name, arguments in pieces:
            yield _named(function, name, arguments)
        return
    calls = [delayed(_named)(function, name, arguments) for name, arguments in pieces]
    try:
        eager = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    except ValueError:  # a backend that answers when all is done: a few pieces at once, so that they can be recorded
        with workers:
            size = _ROUND * effective_n_jobs(workers.n_jobs)
            for first in range(0, len(calls), size):
                yield from workers(calls[first : first + size])
    else:
        yield from eager(calls)


def _named(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """One BLAS thread a piece: no nested threads, and sums in the same order wherever the piece is computed."""
    with one_thread():
        return name, function(*arguments)
