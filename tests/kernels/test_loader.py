"""The library is found, its level chosen, and nothing reaches it that it cannot take."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from written_out import compressed

from mssl import kernels, penalties
from mssl.kernels import binding


def run(script, **environment):
    """What a fresh process says: exit status, standard output and errors."""
    own = {name: value for name, value in os.environ.items() if name != "MSSL_SIMD"}
    own |= {"PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run([sys.executable, "-c", script], env=own, capture_output=True, text=True, check=False)


NAMES = re.findall(r"MSSL\((\w+)\)\(", binding._header())


def available():
    return kernels.LEVELS[: int(kernels.library().handle.mssl_level()) + 1]


# ---- which library


def test_the_level_is_the_highest_that_the_processor_has():
    done = run("from mssl import kernels; print(kernels.library().level)")
    assert done.stdout.strip() == available()[-1], done.stderr


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="the system says nothing about its processor")
def test_levels_are_those_that_the_system_names():
    flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    assert ("avx2" in available()) == ({"avx2", "fma"} <= flags)
    assert ("avx512" in available()) == ({"avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags)


@pytest.mark.parametrize("level", kernels.LEVELS)
def test_a_level_by_name_is_taken_or_refused(level):
    done = run("from mssl import kernels; print(kernels.library().level)", MSSL_SIMD=level)
    if level in available():
        assert done.stdout.strip() == level, done.stderr
    else:
        assert f"MSSL_SIMD is '{level}'; allowed are 'base'" in done.stderr


def test_a_level_that_does_not_exist_is_refused_also_by_the_command_line():
    told = f"MSSL_SIMD is 'sse9'; allowed are {', '.join(map(repr, available()))}. Unset this environment variable"
    done = run("from mssl import kernels; kernels.library()", MSSL_SIMD="sse9")
    assert done.returncode == 1
    assert f"ParameterError: {told}" in done.stderr
    done = run("from mssl.cli import main; main(['demo'])", MSSL_SIMD="sse9")
    assert done.returncode == 1
    assert f"\nError: {told}" in done.stderr


def test_no_level_by_name_is_the_highest():
    done = run("from mssl import kernels; print(kernels.library().level)", MSSL_SIMD="")
    assert done.stdout.strip() == available()[-1], done.stderr


def test_a_missing_library_says_what_to_do(tmp_path):
    with pytest.raises(ImportError, match=r"_kernels\.so, is not beside .*pip install \.'"):
        binding._open(tmp_path / "_kernels.so")


def test_a_file_that_is_no_library_is_an_import_error(tmp_path):
    broken = tmp_path / "_kernels.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(ImportError, match=r"could not be loaded.*pip install \.'"):
        binding._open(broken)


def test_a_library_of_another_header_is_refused(tmp_path, monkeypatch):
    other = tmp_path / "mssl.h"
    other.write_bytes(binding._HEADER.read_bytes() + b"/* later */")
    monkeypatch.setattr(binding, "_HEADER", other)
    library = Path(binding.__file__).with_name(f"_kernels{binding._SUFFIX}")
    with pytest.raises(ImportError, match=r"was built with another mssl\.h\. .*pip install \.'"):
        binding._open(library)


def test_importing_loads_no_library():
    script = """
import sys
import mssl, mssl.kernels
assert mssl.kernels.library.cache_info().currsize == 0
assert "scipy.linalg.cython_lapack" not in sys.modules
maps = "/proc/self/maps"
import os
if os.path.exists(maps):
    assert "_kernels" not in open(maps).read()
"""
    done = run(script)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", kernels.LEVELS)
def test_every_function_is_there_at_every_level(level):
    handle = kernels.library().handle
    if not hasattr(handle, "mssl_graph_gap_avx2") and level != "base":
        pytest.skip("this processor has one level")
    assert len(NAMES) >= 15
    for name in NAMES:
        assert hasattr(handle, f"mssl_{name}_{level}")


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_read_from_the_header(name):
    """Pointers, numbers and whole numbers by another reading, and no array without its type."""
    header = Path(binding.__file__).with_name("mssl.h").read_text(encoding="utf-8")
    start = header.index(f"MSSL({name})(") + len(f"MSSL({name})(")
    declared = header[start : header.index(";", start)].rstrip(")").split(",")
    kinds = {"i": ctypes.c_int64, "f": ctypes.c_double, "p": ctypes.c_void_p}
    expected = ["p" if "*" in one.split("[")[0] or "[" in one else "i" if "int64_t" in one else "f" for one in declared]
    function = getattr(kernels.library(), name)
    assert function.call.argtypes == [kinds[kind] for kind in expected]
    arrays = {place: "const" not in one for place, one in enumerate(declared) if "mssl_" not in one}
    written = {place: changes for place, _, changes, _ in function.arrays}
    assert written == {place: changes for place, changes in arrays.items() if expected[place] == "p"}


def test_codes_of_penalties_are_those_of_the_header():
    found = re.search(r"MSSL_ABSOLUTE = (\d), MSSL_CONCAVE = (\d)", binding._header())
    codes = (kernels.ABSOLUTE, kernels.MINIMAX_CONCAVE)
    assert codes == (penalties.ABSOLUTE, penalties.MINIMAX_CONCAVE) == tuple(map(int, found.groups()))


# ---- the same answers at every level

SCRIPT = """
import sys
import numpy as np
from mssl import kernels

rng = np.random.default_rng(0)
found = []
for p, n in ((13, 40), (60, 90), (150, 200)):
    X = rng.standard_normal((n, p)) @ (np.eye(p) + 0.3 * rng.standard_normal((p, p)) / np.sqrt(p))
    S = X.T @ X / n
    status, answers, _, facts = kernels.graph_lasso(S, 0.1, None, np.full(p, 0.05), 1e-13, 2000)
    assert status == kernels.DONE
    found += [answers[0].ravel(), answers[1].ravel(), np.array(facts[1:3])]
for K, d in ((5, 7), (3, 80)):
    H = np.stack([(lambda A: A.T @ A / len(A))(rng.standard_normal((d + 9, d))) for _ in range(K)])
    P = np.eye(K) + 0.1
    inverse, ones, q = np.linalg.inv(P), np.ones(K), rng.standard_normal((K, d))
    W, penalty = np.zeros((K, d)), (kernels.ABSOLUTE, False, np.full((1, K, d), 0.2))
    _, gap = kernels.weight_descent((H, ones, q), penalty, (P, inverse, P @ ones, 0.0, 0.0), W, W * 0, 1e-16, 5000)
    V, G = np.zeros((K, d)), -q
    C = (np.arange(0, K * K + 1, K), np.tile(np.arange(K), K), P.ravel(), None, 0.0)
    kernels.group_descent((H, ones, q), (C, P @ ones), 0.5, 1e3, V, G, 1e-13, 5000)
    found += [W.ravel(), V.ravel()]
np.save(sys.argv[1] if len(sys.argv) > 1 else sys.stdout.buffer, np.concatenate(found))
"""


def test_all_levels_give_the_same_answers_to_rounding(tmp_path):
    found = {}
    for level in available():
        file = str(tmp_path / f"{level}.npy")
        done = run(
            SCRIPT.replace("sys.argv[1] if len(sys.argv) > 1 else sys.stdout.buffer", repr(file)), MSSL_SIMD=level
        )
        assert done.returncode == 0, done.stderr
        found[level] = np.load(file)
    for level, answer in found.items():
        np.testing.assert_allclose(answer, found["base"], rtol=1e-6, atol=1e-7, err_msg=level)


# ---- what is handed over


def arguments(K=3, d=4):
    """Good arguments of gram_sweeps by name."""
    rng = np.random.default_rng(0)
    starts, columns, values = compressed(np.eye(K) + 0.1)
    return {
        "H": np.stack([np.eye(d)] * K),
        "scale": np.ones(K),
        "q": rng.standard_normal((K, d)),
        "starts": starts,
        "columns": columns,
        "values": values,
        "u": np.ones(K),
        "rho": 0.1,
        "penalty": (kernels.ABSOLUTE, False, np.full((1, K, d), 0.1)),
        "W": np.zeros((K, d)),
        "HW": np.zeros((K, d)),
        "mean": np.zeros(d),
        "tasks": np.arange(K),
        "n_sweeps": 5,
        "enough": 0.0,
    }


def swept(H, scale, q, starts, columns, values, u, rho, penalty, **rest):
    return kernels.gram_sweeps((H, scale, q), ((starts, columns, values, u, rho), penalty), **rest)


ARRAYS = ["H", "scale", "q", "starts", "columns", "values", "u", "W", "HW", "mean", "tasks"]


def test_good_arguments_are_taken():
    assert swept(**arguments())[0] > 0


@pytest.mark.parametrize("name", ARRAYS)
def test_another_type_of_numbers_is_refused(name):
    given = arguments()
    given[name] = given[name].astype(np.int32 if given[name].dtype == np.int64 else np.float32)
    with pytest.raises(TypeError, match=r"a kernel got an array of (float|int)32"):
        swept(**given)


@pytest.mark.parametrize("name", ["H", "q", "W", "HW"])
def test_another_order_is_refused(name):
    given = arguments(3, 4)
    given[name] = np.asfortranarray(given[name] + 0.1 * np.arange(given[name].size).reshape(given[name].shape))
    with pytest.raises(TypeError, match="not in row order"):
        swept(**given)


@pytest.mark.parametrize("name", ["scale", "q", "u", "mean", "HW", "tasks", "columns"])
def test_strides_are_refused(name):
    given = arguments()
    given[name] = np.repeat(given[name], 2, axis=-1)[..., ::2]
    with pytest.raises(TypeError, match="not in row order"):
        swept(**given)


@pytest.mark.parametrize("name", ["H", "scale", "q", "starts", "columns", "values", "u", "HW", "mean"])
def test_another_shape_is_refused(name):
    given = arguments()
    given[name] = np.concatenate([given[name], given[name]])
    with pytest.raises(TypeError, match="a kernel got"):
        swept(**given)


@pytest.mark.parametrize("name", ["W", "HW", "mean"])
def test_a_target_that_is_read_only_is_refused(name):
    given = arguments()
    given[name].flags.writeable = False
    with pytest.raises(TypeError, match="read-only"):
        swept(**given)


@pytest.mark.parametrize(
    ("one", "other"), [("W", "HW"), ("W", "q"), ("HW", "q"), ("W", "mean"), ("HW", "H"), ("W", "t")]
)
def test_targets_that_share_memory_are_refused(one, other):
    given = arguments()
    room = np.zeros(200)
    shapes = {"H": (3, 4, 4), "mean": (4,), "t": (1, 3, 4)}
    for name, start in ((one, 0), (other, 3)):
        shape = shapes.get(name, (3, 4))
        part = room[start : start + int(np.prod(shape))].reshape(shape)
        if name == "t":
            given["penalty"] = (kernels.ABSOLUTE, False, part)
        else:
            given[name] = part
    with pytest.raises(TypeError, match="share memory"):
        swept(**given)


def test_neighbours_in_memory_are_no_overlap():
    given = arguments()
    given["W"], given["HW"] = np.zeros((2, 3, 4))
    assert swept(**given)[0] > 0


@pytest.mark.parametrize("tasks", [[0, 3], [-1]])
def test_tasks_that_are_not_there_are_refused(tasks):
    given = arguments() | {"tasks": np.array(tasks)}
    with pytest.raises(TypeError, match="positions from"):
        swept(**given)


@pytest.mark.parametrize("columns", [[0, 1, 2, 0, 1, 3, 0, 1, 2], [0, 1, 2, 0, -1, 2, 0, 1, 2]])
def test_neighbours_that_are_not_there_are_refused(columns):
    given = arguments() | {"columns": np.array(columns)}
    with pytest.raises(TypeError, match="positions from"):
        swept(**given)


@pytest.mark.parametrize("starts", [[0, 3, 6, 8], [1, 3, 6, 9], [0, 7, 6, 9]])
def test_rows_that_do_not_fit_their_entries_are_refused(starts):
    given = arguments() | {"starts": np.array(starts)}
    with pytest.raises(TypeError, match="rows"):
        swept(**given)


@pytest.mark.parametrize("code", [kernels.ABSOLUTE, kernels.MINIMAX_CONCAVE])
def test_a_penalty_with_too_many_or_few_parameters_is_refused(code):
    given = arguments() | {"penalty": (code, False, np.ones((2 - code, 3, 4)))}
    with pytest.raises(TypeError, match="arrays of parameters"):
        swept(**given)


@pytest.mark.parametrize("value", [[[1.0]], ((1.0,),), np.ma.array([[1.0]])])
def test_what_is_no_plain_array_is_refused(value):
    with pytest.raises(TypeError, match="a kernel got a"):
        kernels.is_covariance(value)


@pytest.mark.parametrize("which", ["S", "weights", "e", "warm"])
def test_the_graphical_lasso_refuses_what_does_not_fit(which):
    given = {"S": np.eye(3), "weights": np.ones((3, 3)), "e": np.zeros(3), "warm": (np.eye(3), np.eye(3))}
    wrong = {"S": np.eye(3)[:2], "weights": np.ones((2, 3)), "e": np.zeros(2), "warm": (np.eye(3), np.eye(2))}
    given[which] = wrong[which]
    with pytest.raises(TypeError, match="a kernel got an array"):
        kernels.graph_lasso(given["S"], 0.1, given["weights"], given["e"], 1e-6, 10, given["warm"])


def test_columns_that_leave_their_numbers_are_refused():
    W, state = np.zeros((1, 2)), np.zeros((1, 2))
    good = {
        "data": np.ones(6),
        "rows": np.zeros(0, np.int64),
        "column_starts": np.array([0, 3, 6]),
        "base": np.zeros(1, np.int64),
    }
    good |= {"row_start": np.zeros(1, np.int64), "is_sparse": False}

    def call(**wrong):
        penalty = (kernels.ABSOLUTE, False, np.ones((1, 1, 2)))
        coupling, moments = (*compressed(np.eye(1)), np.ones(1), 0.0), (np.ones(3), np.ones(1), W, W, W + 1)
        kernels.design_sweeps(
            *((tuple((good | wrong).values()), *moments), (coupling, penalty)),
            *((W.copy(), np.zeros(3), state, np.zeros(2)), np.zeros(1, np.int64), 1, 0.0),
        )

    call()
    sparse = {"is_sparse": True, "rows": np.tile(np.arange(3), 2)}
    call(**sparse)
    for wrong in (
        {"data": np.ones(5)},
        {"column_starts": np.array([0, 4, 3])},
        {"column_starts": np.array([0, 3])},
        {"base": np.array([1])},
        {"base": np.array([-1])},
        {"row_start": np.array([1])},
        {"row_start": np.array([-1])},
        sparse | {"rows": np.tile(np.arange(3), 1)},
    ):
        with pytest.raises(TypeError, match="columns that"):
            call(**wrong)
