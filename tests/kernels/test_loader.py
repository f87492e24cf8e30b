"""Compiled functions that call each other by address, and a cache that is dropped when a kernel changes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from mssl.kernels.compiler import drop_stale

from mssl.kernels import compiler as _kernel

MODULE = """
from numba import float64, int64, njit, types

from mssl.kernels.apart import apart

M, V = float64[:, ::1], float64[::1]


@njit(cache=True)
def halve(A, v, times):
    total = 0.0
    for _ in range(times):
        for i in range(A.shape[0]):
            for j in range(A.shape[1]):
                total += A[i, j] * v[j]
                A[i, j] *= 0.5
    return total, times + 1


by_address = apart(halve, types.Tuple((float64, int64))(M, V, int64))


@njit(cache=True)
def direct(A, v):
    total, last = 0.0, 0
    for times in range(4):
        part, last = halve(A, v, times)
        total += part
    return total, last


@njit(cache=True)
def indirect(A, v):
    total, last = 0.0, 0
    for times in range(4):
        part, last = by_address(A, v, times)
        total += part
    return total, last
"""
SCRIPT = """
import numpy as np
import kernels_apart as kernels
from mssl.kernels import call

A, v = np.arange(12.0).reshape(3, 4), np.linspace(-1, 1, 4)
B = A.copy()
assert call(kernels.direct, A, v) == call(kernels.indirect, B, v)
assert np.array_equal(A, B)
print(sum(kernels.indirect.stats.cache_hits.values()))
"""


def test_a_call_by_address_is_the_direct_call_and_survives_the_cache(tmp_path):
    (tmp_path / "kernels_apart.py").write_text(MODULE, encoding="utf-8")
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    hits = []
    for _ in range(2):
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        hits.append(int(done.stdout))
    assert hits == [0, 1]


def test_compiled_kernels_are_dropped_when_any_kernel_file_changes(tmp_path):
    sources, cache = tmp_path / "src", tmp_path / "deep" / "cache"
    sources.mkdir()
    for name in ("_caller_kernels.py", "_callee_kernels.py"):
        (sources / name).write_text("x = 1\n", encoding="utf-8")
    assert not drop_stale(sources, cache)  # nothing there yet
    made = [cache / "_caller_kernels.f-1.py311.nbi", cache / "_caller_kernels.f-1.py311.1.nbc"]
    other = cache / "other.f-1.py311.nbi"
    for file in [*made, other]:
        file.write_bytes(b"")
    assert not drop_stale(sources, cache)
    assert all(file.exists() for file in made)
    (sources / "_callee_kernels.py").write_text("x = 2\n", encoding="utf-8")
    assert drop_stale(sources, cache)
    assert not any(file.exists() for file in made)
    assert other.exists()
    assert not drop_stale(sources, cache)
    assert sorted(file.name for file in cache.iterdir()) == ["kernels.stamp", other.name]


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_rests_only_while_numba_sets_up(on, monkeypatch):
    during = []

    def refresh():
        during.append(gc.isenabled())
        raise MemoryError

    monkeypatch.setattr(_kernel, "_nothing", SimpleNamespace(targetctx=SimpleNamespace(refresh=refresh)))
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(MemoryError):
            _kernel._set_up()
        assert gc.isenabled() == on
    finally:
        gc.enable()
    assert during == [False]
