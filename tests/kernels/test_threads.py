"""The limit on BLAS threads: one for the whole process, taken back when its last holder is done."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mssl
from mssl.kernels import threads
from mssl.kernels.threads import LARGE, n_threads, one_thread, single_threaded, spread, threads_for


class Library:
    """A BLAS library whose number of threads can be read and set."""

    def __init__(self, n: int) -> None:
        self.num_threads = n

    def set_num_threads(self, n: int) -> None:
        self.num_threads = n


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    fake = Library(7)
    monkeypatch.setattr(threads, "_blas_libraries", lambda: [fake])
    yield fake
    assert fake.num_threads == 7, "every test has to leave the library as it was"


def test_overlapping_blocks_take_the_limit_back_when_the_last_one_ends(library: Library) -> None:
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with one_thread():
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def second() -> int:
        first_in.wait(10)
        with one_thread():
            second_in.set()
            first_out.wait(10)
            return library.num_threads

    with ThreadPoolExecutor(2) as pool:
        ended, seen = pool.submit(first), pool.submit(second)
        assert seen.result(20) == 1
        ended.result(20)


def test_nested_blocks_and_errors_inside_them(library: Library) -> None:
    with one_thread(), one_thread():
        assert library.num_threads == 1
        assert n_threads() == 1
    with pytest.raises(KeyError), one_thread():
        raise KeyError


def test_spread_counts_its_threads_as_holders(library: Library) -> None:
    assert spread(lambda k: (k, library.num_threads), [1, 2, 3]) == [(1, 1), (2, 1), (3, 1)] or n_threads() == 1


@single_threaded
def _seen(library: Library, size: int = 0, inside: Callable[[], object] = lambda: None) -> tuple[int, int, int]:
    """How many threads BLAS has in a public method: before, inside and after a step with matrices of a size."""
    before = library.num_threads
    with threads_for(size):
        inside()
        there = library.num_threads
    return before, there, library.num_threads


def test_only_large_matrices_get_the_threads_that_blas_had(library: Library) -> None:
    assert _seen(library, LARGE - 1) == (1, 1, 1)
    assert _seen(library, LARGE) == (1, 7, 1)
    with threads_for(LARGE):  # no limit around it
        assert library.num_threads == 7
        assert _seen(library) == (1, 1, 1)
    with threads_for(LARGE - 1):
        assert library.num_threads == 1
        assert _seen(library, LARGE) == (1, 7, 1)  # what is small limits itself; what is large asks again


def test_small_steps_and_errors_in_a_large_one_are_limited_and_taken_back(library: Library) -> None:
    def small() -> None:
        assert _seen(library) == (1, 1, 1)
        with threads_for(1):
            assert library.num_threads == 1

    assert _seen(library, LARGE, small) == (1, 7, 1)

    def fails() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        _seen(library, LARGE, fails)
    assert library.num_threads == 7


def test_pieces_of_spread_work_never_get_more_threads(library: Library) -> None:
    with one_thread():
        assert _seen(library, LARGE) == (1, 1, 1)
    inside = single_threaded(lambda: set(spread(lambda _: _seen(library, LARGE), range(4))))()
    assert inside == {(1, 1, 1)} or n_threads() == 1


def test_a_public_method_leaves_spread_its_threads(library: Library) -> None:
    cores = n_threads()
    assert single_threaded(n_threads)() == cores
    with one_thread():
        assert single_threaded(n_threads)() == 1


def test_what_a_user_has_set_is_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Library(1)
    monkeypatch.setattr(threads, "_blas_libraries", lambda: [fake])
    assert _seen(fake, LARGE) == (1, 1, 1)
    assert fake.num_threads == 1


def test_a_large_matrix_waits_for_the_limit_of_other_threads(library: Library) -> None:
    """While another thread of the process works with small matrices, a large one gets no more than one thread."""
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            inside.set()
            done.wait(10)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(other)
        assert inside.wait(10)
        try:
            assert _seen(library, LARGE) == (1, 1, 1)
        finally:
            done.set()
        ended.result(10)


def _fit(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    X, tasks = random.standard_normal((60, 4)), np.repeat(np.arange(4), 15)
    return mssl.MSSLRegressor(graph_penalty=0.1).fit(X, X.sum(axis=1) + random.standard_normal(60), tasks=tasks).coef_


def test_sixteen_threads_fit_as_one_does_and_leave_blas_as_it_was(library: Library) -> None:
    alone = [_fit(seed) for seed in range(24)]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(_fit, range(24)))
    assert all(map(np.array_equal, alone, together))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_is_made_while_others_fit_works(method: str) -> None:
    """A fork in the middle of another thread's fit must not find the lock taken for ever."""
    stop = threading.Event()

    def others() -> None:
        while not stop.is_set():
            with one_thread():
                pass

    busy = threading.Thread(target=others)
    busy.start()
    try:
        context = multiprocessing.get_context(method)
        for _ in range(1 if method == "spawn" else 10):
            with context.Pool(1) as pool:
                assert np.array_equal(pool.apply_async(_fit, (0,)).get(60), _fit(0))
    finally:
        stop.set()
        busy.join()
