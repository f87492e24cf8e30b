"""The limit on BLAS threads: one for the whole process, taken back when its last holder is done."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mssl
from mssl.kernels import threads
from mssl.kernels.threads import n_threads, one_thread, spread


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
    with one_thread(wanted=False):
        assert library.num_threads == 7


def test_spread_counts_its_threads_as_holders(library: Library) -> None:
    assert spread(lambda k: (k, library.num_threads), [1, 2, 3]) == [(1, 1), (2, 1), (3, 1)] or n_threads() == 1


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
