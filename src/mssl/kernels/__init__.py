"""The compiled kernels: one C library beside this file, and a checked function for each of its own.

``mssl.h`` says what every function computes. Here arrays are checked once, for type, order, shape and overlap, and
handed over; the interpreter's lock is free while the library works. A call that takes long comes back every so often
(:data:`SLICE` seconds) and goes on where it was, so that Ctrl-C is served; results do not depend on it.

The library holds every function once for each SIMD level; which one is used is decided when it is loaded, by the
processor (or by the environment variable ``MSSL_SIMD``, for tests).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from mssl._typing import Array, Index
from mssl.exceptions import MissingDependencyError, ParameterError

LEVELS = ("base", "avx2", "avx512")
SLICE = 0.3  # seconds after which a call comes back to let signals in

# What function of one weight a penalty is; the kernels branch on it, see mssl.penalties.EntrywisePenalty.
ABSOLUTE, MINIMAX_CONCAVE = 0, 1

# How a call ended.
DONE, LIMIT, BROKE, UNBOUNDED, AGAIN = range(5)

_int, _float, _pointer = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
_byte_of = ctypes.c_char.from_buffer
_FLOATS, _INTS = np.dtype(np.float64), np.dtype(np.int64)
LAPACK_FROM = 64  # variables from which the library asks LAPACK for factorisations
_SUFFIX = ".dll" if sys.platform == "win32" else ".library"  # not .so, which Python would take for a module of its own


PenaltyArrays: TypeAlias = tuple[int, bool, Array]

_LARGEST_KEPT = 2**25 - 2**13  # bytes: above 32 MiB the limit does not rise


class _Coupling(ctypes.Structure):
    _fields_ = (("starts", _pointer), ("columns", _pointer), ("values", _pointer), ("u", _pointer), ("rho", _float))


class _Prior(ctypes.Structure):
    _fields_ = (("P", _pointer), ("inverse", _pointer), ("u", _pointer), ("rho", _float), ("tau", _float))


class _Penalty(ctypes.Structure):
    _fields_ = (("code", _int), ("positive", _int), ("strengths", _pointer), ("concavities", _pointer))


class _Columns(ctypes.Structure):
    _fields_ = (
        *(("data", _pointer), ("rows", _pointer), ("starts", _pointer), ("base", _pointer), ("row_start", _pointer)),
        ("is_sparse", _int),
    )


class _Sweeping(ctypes.Structure):
    _fields_ = (("task", _int), ("made", _int), ("decrease", _float))


class _Descending(ctypes.Structure):
    _fields_ = (("begun", _int), ("done", _int), ("enough", _float), ("gap", _float), ("burst", _Sweeping))


class _TaskLoss(ctypes.Structure):
    _fields_ = (
        *((name, _int) for name in ("K", "d", "n_grams", "max_inner")),
        *((name, _pointer) for name in ("H", "scale", "q", "g", "ridge", "inverses")),
        ("null", _float),
    )


class _SparsePrior(ctypes.Structure):
    _fields_ = (
        *((name, _float) for name in ("eta", "tau", "shrinkage")),
        *((name, _pointer) for name in ("variances", "e", "L")),
    )


class RoundsLimits(ctypes.Structure):
    """How rounds are steered: tolerance and the constants of :mod:`mssl.solvers.alternation`."""

    _fields_ = (*((name, _float) for name in ("tol", "share", "loose", "rounding")), ("turns", _int))


class _Grouping(ctypes.Structure):
    _fields_ = (("done", _int), ("waited", _int), ("before", _int), ("damp", _float), ("moved", _float))


_ARGUMENTS: dict[str, tuple[Any, str]] = {
    # name: (what it returns, its arguments: i a whole number, f a number, p an address)
    "graph_check": (_int, "ip"),
    "graph_components": (_int, "ipf" + 3 * "p"),
    "graph_lasso": (_int, "ipfppfiif" + 9 * "p"),
    "graph_gap": (_float, "ipf" + 4 * "p" + "f" + 2 * "p"),
    "gram_sweeps": (_int, "ii" + 9 * "p" + "iiff" + 3 * "p"),
    "set_sweeps": (_int, "i" + 11 * "p" + "iiff" + 3 * "p"),
    "design_sweeps": (_int, "i" + 13 * "p" + "iiff" + 3 * "p"),
    "shared_sweeps": (_int, "ii" + 7 * "p" + "iff" + 3 * "p"),
    "aligned_sweeps": (_int, "iii" + 8 * "p" + "iff" + 3 * "p"),
    "feature_sweeps": (_int, "iiii" + 7 * "p" + "iff" + 3 * "p"),
    "gram_products": (None, "iii" + 4 * "p"),
    "weight_descent": (_int, "iii" + 7 * "p" + "fif" + 3 * "p"),
    "weight_system": (_int, "iii" + 8 * "p" + "fi" + 2 * "p"),
    "group_descent": (_int, "iii" + 4 * "p" + "fpf" + 2 * "p" + "fif" + 4 * "p"),
    "fit_room": (_int, "ii"),
    "fit_rounds": (_int, "pppiiif" + 8 * "p"),
    "gather_blocks": (None, "iipppipp"),
    "block_grams": (None, "ii" + 8 * "p"),
}
_KINDS = {"i": _int, "f": _float, "p": _pointer}


class _Library:
    """The functions of the library at one level, found by name."""

    def __init__(self) -> None:
        path = Path(__file__).with_name(f"_kernels{_SUFFIX}")
        self.handle = _open(path)
        self.handle.mssl_level.restype = _int
        most = int(self.handle.mssl_level())
        self.level = os.environ.get("MSSL_SIMD") or LEVELS[most]
        if self.level not in LEVELS[: most + 1]:
            raise ParameterError(
                f"MSSL_SIMD is {self.level!r}; allowed are {', '.join(map(repr, LEVELS[: most + 1]))}. Unset this "
                "environment variable: the best that the processor has is then taken."
            )

    def __getattr__(self, name: str) -> Any:
        returns, arguments = _ARGUMENTS[name]
        function = getattr(self.handle, f"mssl_{name}_{self.level}")
        function.restype, function.argtypes = returns, [_KINDS[kind] for kind in arguments]
        self.__dict__[name] = function
        return function


def _open(path: Path) -> ctypes.CDLL:
    again = "Install mssl again with 'pip install .' (or 'pip install -e .' for development), which builds it."
    if not path.exists():
        raise MissingDependencyError(
            f"The compiled part of mssl, {path.name}, is not beside {Path(__file__).name}. {again}"
        )
    try:
        if sys.platform.startswith("linux"):
            # It may be linked without the system's own: the maths library has to be there before it.
            ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        pass  # another C library, which has it all in one
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise MissingDependencyError(f"The compiled part of mssl could not be loaded: {error}. {again}") from error


@cache
def library() -> Any:
    """The library, loaded when first asked for."""
    # glibc gives freed blocks of more than 128 KiB back to the system, and zeros new ones page by page: a third of the
    # time of fits to labels. Its limit rises to the largest block that was freed, so one is freed, never touched.
    np.empty(_LARGEST_KEPT, dtype=np.uint8)
    return _Library()


@cache
def _lapack() -> Any:
    """Addresses of LAPACK's Cholesky factorisation and inverse, out of SciPy."""
    from scipy.linalg import cython_lapack

    name_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address_of.restype, address_of.argtypes = _pointer, [ctypes.py_object, ctypes.c_char_p]
    capsules = [cython_lapack.__pyx_capi__[name] for name in ("dpotrf", "dpotri")]
    return (_pointer * 2)(*(address_of(capsule, name_of(capsule)) for capsule in capsules))


# ---- what is handed over


def _address(array: Any, shape: tuple[int, ...], kind: np.dtype[Any] = _FLOATS) -> int:
    """Where an array's numbers are, after a look at their type, order and number."""
    if type(array) is not np.ndarray or array.dtype != kind or not array.flags.c_contiguous or array.shape != shape:
        raise TypeError(_complaint(array, shape, kind))
    return _start(array)


def _start(array: Any) -> int:
    """Where an array begins; its buffer tells that in a fifth of the time of ``array.ctypes``."""
    try:
        return ctypes.addressof(_byte_of(array))
    except (TypeError, ValueError):  # read-only arrays and empty ones have no such buffer
        return int(array.ctypes.data)


def _target(array: Any, shape: tuple[int, ...]) -> int:
    """The same for an array that is written to."""
    start = _address(array, shape)
    if not array.flags.writeable:
        raise TypeError("an array that a kernel writes to is read-only; pass a copy.")
    return start


def _complaint(array: Any, shape: tuple[int, ...], kind: np.dtype[Any]) -> str:
    if type(array) is not np.ndarray:
        return f"a kernel got a {type(array).__name__}; it takes an array of {kind} of shape {shape}."
    order = "" if array.flags.c_contiguous else ", not in row order"
    return f"a kernel got an array of {array.dtype} of shape {array.shape}{order}; it takes {kind} of shape {shape}."


def _apart(*arrays: Array) -> None:
    """Raise where arrays share memory: those that a kernel writes to, and what it reads beside them."""
    ends = sorted((start := _start(array), start + array.nbytes) for array in arrays)
    for (_, stop), (start, _) in pairwise(ends):
        if start < stop:
            raise TypeError("arrays that a kernel writes to share memory; pass copies.")


def _coupling(K: int, starts: Index, columns: Index, values: Array, u: Array | None, rho: float) -> _Coupling:
    n = len(values)
    where = (_address(starts, (K + 1,), _INTS), _check_places(columns, K), _address(values, (len(columns),)))
    if starts[0] != 0 or starts[-1] != n or np.any(starts[1:] < starts[:-1]):
        raise TypeError(f"a kernel got rows of a coupling that do not run from 0 to {n}.")
    return _Coupling(*where, None if u is None else _address(u, (K,)), rho)


def _grams(K: int, d: int, H: Array, scale: Array, q: Array) -> tuple[int, int, int, int]:
    """How many Grams there are, and addresses of these, of their scales and of a matrix of the weights' shape."""
    n = len(H)
    return n, _address(H, (1 if n == 1 else K, d, d)), _address(scale, (K,)), _address(q, (K, d))


def _penalty(penalty: PenaltyArrays, shape: tuple[int, ...]) -> _Penalty:
    code, positive, parameters = penalty
    if len(parameters) != (1 if code == ABSOLUTE else 2):
        raise TypeError(f"a penalty of code {code} came with {len(parameters)} arrays of parameters.")
    start = _address(parameters, (len(parameters), *shape))
    return _Penalty(code, positive, start, None if code == ABSOLUTE else start + 8 * int(np.prod(shape)))


def _sweep(function: Callable[..., int], *arguments: Any) -> tuple[int, float]:
    """Call until all sweeps are made; the number of sweeps, and what the last one gained."""
    at = _Sweeping(0, 0, 0.0)
    while function(*arguments, ctypes.addressof(at)) == AGAIN:
        pass
    return at.made, at.decrease


def _rooms(d: int, more: int) -> tuple[Array, Index]:
    """Room for the visits to a task of d features and as many numbers more, and for a list of its features."""
    return np.empty(2 * d * d + 16 * d + more + 1), np.empty(d + 1, dtype=np.int64)


def _check_places(places: Index, n: int) -> int:
    """Where a list of positions below n is."""
    if len(places) and not (places.min() >= 0 and places.max() < n):
        raise TypeError(f"a kernel got positions from {places.min()} to {places.max()} among {n}.")
    return _address(places, (len(places),), _INTS)


def plain(values: Array) -> Array:
    """The same numbers in row order and writeable, as kernels take them."""
    flags = values.flags
    return values if flags.c_contiguous and flags.writeable else np.require(values, float, ["C", "W"])


# ---- coordinate descent over the weights: every function returns the sweeps made, and what the last gained at least


def gram_sweeps(
    H: Array,
    scale: Array,
    q: Array,
    starts: Index,
    columns: Index,
    values: Array,
    u: Array,
    rho: float,
    penalty: PenaltyArrays,
    W: Array,
    HW: Array,
    mean: Array,
    tasks: Index,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """Coordinate descent on Grams H_k = scale_k H[k] (or H[0]) over some tasks; W, HW and mean change in place."""
    K, d = W.shape
    C, g = _coupling(K, starts, columns, values, u, rho), _penalty(penalty, (K, d))
    room, active = _rooms(d, d)
    _apart(W, HW, mean, H, q, penalty[2])
    return _sweep(
        library().gram_sweeps,
        *(d, *_grams(K, d, H, scale, q)),
        *(ctypes.addressof(C), ctypes.addressof(g), _target(W, (K, d)), _target(HW, (K, d)), _target(mean, (d,))),
        *(_check_places(tasks, K), len(tasks), n_sweeps, enough, SLICE, _start(room), _start(active)),
    )


def set_sweeps(
    gram: Array,
    corners: Index,
    features: Index,
    bounds: Index,
    q: Array,
    starts: Index,
    columns: Index,
    values: Array,
    u: Array,
    rho: float,
    penalty: PenaltyArrays,
    W: Array,
    HW: Array,
    mean: Array,
    tasks: Index,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """Coordinate descent over some tasks, each on features of its own; W, HW and mean change in place.

    The features of task k are ``features[bounds[k]:bounds[k + 1]]``, where q, HW and the parameters of the penalty hold
    its linear part, H_k w_k and its parameters; its Gram begins at ``gram[corners[k]]``.
    """
    (K, d), n = W.shape, len(features)
    sizes = np.diff(bounds)
    if (
        bounds[-1] != n
        or np.any(sizes < 0)
        or not np.array_equal(np.diff(corners), sizes**2)
        or corners[-1] != len(gram)
    ):
        raise TypeError("working sets whose bounds, corners and Grams do not belong together.")
    C, g = _coupling(K, starts, columns, values, u, rho), _penalty(penalty, (n,))
    largest = int(sizes.max(initial=0))
    room, active = _rooms(largest, 2 * largest)
    _apart(W, HW, mean, gram, q, penalty[2])
    return _sweep(
        library().set_sweeps,
        *(d, _address(gram, (len(gram),)), _address(corners, (K + 1,), _INTS), _check_places(features, d)),
        *(_address(bounds, (K + 1,), _INTS), _address(q, (n,)), ctypes.addressof(C), ctypes.addressof(g)),
        *(_target(W, (K, d)), _target(HW, (n,)), _target(mean, (d,)), _check_places(tasks, K), len(tasks)),
        *(n_sweeps, enough, SLICE, _start(room), _start(active)),
    )


def design_sweeps(
    data: Array,
    rows: Index,
    column_starts: Index,
    base: Index,
    row_start: Index,
    is_sparse: bool,
    c: Array,
    totals: Array,
    mu: Array,
    sums: Array,
    h: Array,
    starts: Index,
    columns: Index,
    values: Array,
    u: Array,
    rho: float,
    penalty: PenaltyArrays,
    W: Array,
    v: Array,
    state: Array,
    mean: Array,
    tasks: Index,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """Coordinate descent on stored columns a_kj, standing for a_kj − mu_kj; W, v, state and mean change in place.

    With v = c (target − Σ_j a_j w_j), state[k, 0] = Σ_j mu_kj w_kj and state[k, 1] = Σ_i v_i a coordinate costs the
    stored entries of its column, centring and intercept included.
    """
    (K, d), N = W.shape, len(v)
    C, g = _coupling(K, starts, columns, values, u, rho), _penalty(penalty, (K, d))
    _check_columns(data, rows, column_starts, base, row_start, is_sparse, d, N)
    X = _Columns(
        *(_address(data, (len(data),)), _address(rows, (len(rows),), _INTS)),
        *(_address(column_starts, (len(column_starts),), _INTS), _address(base, (K,), _INTS)),
        *(_address(row_start, (K,), _INTS), is_sparse),
    )
    pull, active = np.empty(d + 1), np.empty(d + 1, dtype=np.int64)
    _apart(W, v, state, mean, data, c, penalty[2])
    return _sweep(
        library().design_sweeps,
        *(d, ctypes.addressof(X), _address(c, (N,)), _address(totals, (K,)), _address(mu, (K, d))),
        *(_address(sums, (K, d)), _address(h, (K, d)), ctypes.addressof(C), ctypes.addressof(g)),
        *(_target(W, (K, d)), _target(v, (N,)), _target(state, (K, 2)), _target(mean, (d,))),
        *(_check_places(tasks, K), len(tasks), n_sweeps, enough, SLICE, _start(pull), _start(active)),
    )


def _check_columns(
    data: Array, rows: Index, starts: Index, base: Index, row_start: Index, is_sparse: bool, d: int, n: int
) -> None:
    """Raise where columns leave what is stored; that the rows of sparse ones are their task's is up to the design."""
    good = len(base) == 0 or (base.min() >= 0 and base.max() + d < len(starts) and row_start.min() >= 0)
    good = good and starts[0] >= 0 and starts[-1] <= len(data) and not np.any(starts[1:] < starts[:-1])
    if good and is_sparse:
        good = len(rows) == len(data)
    elif good and d and len(base):
        good = bool(np.all(row_start + (starts[base + 1] - starts[base]) <= n))
    if not good:
        raise TypeError("a kernel got columns that leave their numbers or the rows.")


def shared_sweeps(
    G: Array,
    q: Array,
    starts: Index,
    columns: Index,
    values: Array,
    ridge: Array,
    penalty: PenaltyArrays,
    W: Array,
    D: Array,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """Tasks coupled through residuals, one X for all: G = XᵀX; D = WG − q and W change in place."""
    K, d = W.shape
    A, g = _coupling(K, starts, columns, values, None, 0.0), _penalty(penalty, (K, d))
    room, active = _rooms(d, 2 * d)
    _apart(W, D, G, q, penalty[2])
    return _sweep(
        library().shared_sweeps,
        *(K, d, _address(G, (d, d)), _address(q, (K, d)), ctypes.addressof(A), _address(ridge, (K,))),
        *(ctypes.addressof(g), _target(W, (K, d)), _target(D, (K, d)), n_sweeps, enough, SLICE),
        *(_start(room), _start(active)),
    )


def aligned_sweeps(
    X: Array,
    H: Array,
    starts: Index,
    columns: Index,
    values: Array,
    ridge: Array,
    penalty: PenaltyArrays,
    W: Array,
    HW: Array,
    E: Array,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """The same with X_k (d, n) and Gram H_k for each task; W, HW and the residuals E change in place."""
    (K, d), n = W.shape, E.shape[1]
    A, g = _coupling(K, starts, columns, values, None, 0.0), _penalty(penalty, (K, d))
    room, active = _rooms(d, 3 * d + n)
    _apart(W, HW, E, X, H, penalty[2])
    return _sweep(
        library().aligned_sweeps,
        *(K, d, n, _address(X, (K, d, n)), _address(H, (K, d, d)), ctypes.addressof(A), _address(ridge, (K,))),
        *(ctypes.addressof(g), _target(W, (K, d)), _target(HW, (K, d)), _target(E, (K, n))),
        *(n_sweeps, enough, SLICE, _start(room), _start(active)),
    )


def feature_sweeps(
    X: Array,
    h: Array,
    starts: Index,
    columns: Index,
    values: Array,
    ridge: Array,
    penalty: PenaltyArrays,
    W: Array,
    E: Array,
    n_sweeps: int,
    enough: float,
) -> tuple[int, float]:
    """The same without Grams, for fewer rows than features; X may hold one block for all tasks."""
    (K, d), n = W.shape, E.shape[1]
    A, g = _coupling(K, starts, columns, values, None, 0.0), _penalty(penalty, (K, d))
    blocks = 1 if len(X) == 1 else K
    room, active = np.empty(2 * n + 1), np.empty(d + 1, dtype=np.int64)
    _apart(W, E, X, h, penalty[2])
    return _sweep(
        library().feature_sweeps,
        *(K, d, n, len(X), _address(X, (blocks, d, n)), _address(h, (blocks, d)), ctypes.addressof(A)),
        *(_address(ridge, (K,)), ctypes.addressof(g), _target(W, (K, d)), _target(E, (K, n))),
        *(n_sweeps, enough, SLICE, _start(room), _start(active)),
    )


# ---- whole weight steps of few tasks


def gram_products(H: Array, scale: Array, V: Array) -> Array:
    """Rows s_k H_k v_k, (K, d), for symmetric H_k; the rows of Grams whose weight is zero are not read."""
    K, d = V.shape
    out = np.empty((K, d))
    library().gram_products(
        *(K, d, *_grams(K, d, H, scale, V)),
        _start(out),
    )
    return out


def _prior(K: int, P: Array, inverse: Array, u: Array, rho: float, tau: float) -> _Prior:
    return _Prior(_address(P, (K, K)), _address(inverse, (K, K)), _address(u, (K,)), rho, tau)


def weight_descent(
    H: Array,
    scale: Array,
    q: Array,
    penalty: PenaltyArrays,
    P: Array,
    inverse: Array,
    u: Array,
    rho: float,
    tau: float,
    W: Array,
    HW: Array,
    tol: float,
    max_sweeps: int,
) -> tuple[float, int]:
    """Coordinate descent in bursts until the bound of the suboptimality is at most tol; the bound and the sweeps.

    P ≻ 0 with its inverse, u = P1 and ρ as in :mod:`mssl.model.coupling`; W and HW change in place.
    """
    K, d = W.shape
    C, g = _prior(K, P, inverse, u, rho, tau), _penalty(penalty, (K, d))
    room, active = _rooms(d, 2 * d + K * K + 3 * K * d)[0], np.empty(d + 2 * K + K * K + 2, dtype=np.int64)
    to = _Descending(0, 0, tol, np.inf)
    _apart(W, HW, H, q, penalty[2])
    arguments = (
        *(K, d, *_grams(K, d, H, scale, q)),
        *(ctypes.addressof(g), ctypes.addressof(C), _target(W, (K, d)), _target(HW, (K, d)), tol, max_sweeps, SLICE),
        *(_start(room), _start(active), ctypes.addressof(to)),
    )
    while library().weight_descent(*arguments) == AGAIN:
        pass
    return to.gap, to.done


def weight_system(
    H: Array,
    scale: Array,
    q: Array,
    P: Array,
    inverse: Array,
    u: Array,
    rho: float,
    tau: float,
    W: Array,
    HW: Array,
    ridge: Array,
    inverses: Array,
    tol: float,
    max_iter: int,
) -> tuple[float, int]:
    """The step without a penalty by conjugate gradients, preconditioned by each task's own block; bound and iterations.

    ``ridge`` (K,) and ``inverses`` (K, d, d) keep the preconditioner for the next call; ridges of 0 mean none is known.
    """
    K, d = W.shape
    C = _prior(K, P, inverse, u, rho, tau)
    room, gap = np.empty(5 * K * d + 2 * d * d + d + 1), _float(np.inf)
    _apart(W, HW, inverses, H, q)
    made = library().weight_system(
        *(K, d, *_grams(K, d, H, scale, q)),
        *(ctypes.addressof(C), _target(W, (K, d)), _target(HW, (K, d)), _target(ridge, (K,))),
        *(_target(inverses, (K, d, d)), tol, max_iter, _start(room), ctypes.addressof(gap)),
    )
    return gap.value, made


def group_descent(
    H: Array,
    scale: Array,
    starts: Index,
    columns: Index,
    values: Array,
    lift: Array,
    alpha: float,
    q: Array,
    constant: float,
    V: Array,
    G: Array,
    tol: float,
    max_iter: int,
) -> tuple[float, int]:
    """Minimise a quadratic + alpha Σ_j ‖V_·j‖ by descent over features and Newton steps on those in use.

    ``lift`` − C must be diagonally dominant; ``constant`` is the quadratic at V = 0. V and its gradient G change in
    place. Returns a bound of the suboptimality, and how many sweeps and products were made.
    """
    K, m = V.shape
    C = _coupling(K, starts, columns, values, None, 0.0)
    room = np.empty(len(H) * m * m + (11 * m + 3) * K + 6 * m + 8)
    active, at, gap = np.empty(m + 1, dtype=np.int64), _Grouping(0, 0, -1, 0.0, np.inf), _float(np.inf)
    _apart(V, G, H, q)
    *grams, linear = _grams(K, m, H, scale, q)
    arguments = (
        *(K, m, *grams, ctypes.addressof(C)),
        *(_address(lift, (K,)), alpha, linear, constant, _target(V, (K, m)), _target(G, (K, m)), tol),
        *(max_iter, SLICE, _start(room), _start(active), ctypes.addressof(at), ctypes.addressof(gap)),
    )
    while library().group_descent(*arguments) == AGAIN:
        pass
    return gap.value, at.done


# ---- whole fits of few tasks


class TaskLoss:
    """Least squares of few tasks on Grams, checked once, for whole fits.

    Parameters
    ----------
    H, scale, q : ndarrays of shapes (K, d, d) or (1, d, d), (K,) and (K, d)
        The loss, as :func:`weight_descent` takes it.
    null : float
        The loss at W = 0.
    penalty : PenaltyArrays or None
        An ℓ1 penalty; None for none.
    kept : ndarrays of shapes (K,) and (K, d, d), or None
        Without a penalty, ridges and inverses of a preconditioner, as :func:`weight_system` keeps them.
    """

    def __init__(
        self,
        H: Array,
        scale: Array,
        q: Array,
        null: float,
        penalty: PenaltyArrays | None,
        kept: tuple[Array, Array] | None,
    ) -> None:
        K, d = self.shape = q.shape
        self.null = float(null)
        self.arrays = (H, scale, q, penalty, kept)  # so that they live as long as their addresses
        self.penalty = None if penalty is None else _penalty(penalty, (K, d))
        if penalty is not None and penalty[0] != ABSOLUTE:
            raise TypeError(f"whole fits take penalties of code {ABSOLUTE}, not {penalty[0]}.")
        if (penalty is None) == (kept is None):
            raise TypeError("whole fits take a penalty or, without one, room for a preconditioner.")
        if kept is not None:
            _apart(*kept, H, scale, q)
        self.fields = (
            *_grams(K, d, H, scale, q)[1:],
            None if self.penalty is None else ctypes.addressof(self.penalty),
            *((None, None) if kept is None else (_target(kept[0], (K,)), _target(kept[1], (K, d, d)))),
            self.null,
        )

    def __reduce__(self) -> tuple[type[TaskLoss], tuple[Any, ...]]:
        """The arrays, since addresses mean nothing to another process."""
        return TaskLoss, (*self.arrays[:3], self.null, *self.arrays[3:])

    def _passed(self, max_inner: int) -> _TaskLoss:
        return _TaskLoss(*self.shape, len(self.arrays[0]), max_inner, *self.fields)


class FitRounds:
    """Rounds of weight steps and graph steps from a point, some at a time.

    Parameters
    ----------
    loss : TaskLoss
        The loss.
    eta, tau, shrinkage, variances, e, L
        The prior, as ``mssl_sparse_prior`` of ``mssl.h`` says.
    by : RoundsLimits
        Tolerance and constants.
    W, omega, sigma : ndarrays of shapes (K, d), (K, K) and (K, K)
        The point, of which copies are made.
    ready, known : bool
        Whether W is the best for Ω; whether Ω came from a graph step.
    max_inner : int
        Most iterations of a weight step.

    Attributes
    ----------
    W, omega, sigma, mean : ndarrays
        The last point and its shared mean.
    facts : ndarray of shape (6,)
        Rounds made; F, Ω's share of it, its gap, log det Ω, and whether Ω came from a graph step.
    """

    def __init__(
        self,
        loss: TaskLoss,
        eta: float,
        tau: float,
        shrinkage: float,
        variances: Array,
        e: Array,
        L: Array,
        by: RoundsLimits,
        W: Array,
        omega: Array,
        sigma: Array,
        *,
        ready: bool,
        known: bool,
        max_inner: int,
    ) -> None:
        (K, d), self.lib = loss.shape, library()
        prior = _SparsePrior(
            *(eta, tau, shrinkage, _address(variances, (K,)), _address(e, (K,)), _address(L, (K, K))),
        )
        self.W, self.omega, self.sigma = W.copy(), omega.copy(), sigma.copy()
        self.mean, self.facts, room, passed = (
            *(np.zeros(d), np.zeros(6), np.empty(self.lib.fit_room(K, d)), loss._passed(max_inner)),
        )
        self.kept = (loss, variances, e, L, by, prior, passed, room)
        lapack = _lapack_for(K)
        self.before = (ctypes.addressof(passed), ctypes.addressof(prior), ctypes.addressof(by), ready, known)
        self.after = (
            *(_target(self.W, (K, d)), _target(self.omega, (K, K)), _target(self.sigma, (K, K)), _start(self.mean)),
        )
        self.last = (_start(self.facts), lapack, _start(room))

    def run(self, n_rounds: int) -> tuple[int, list[list[float]]]:
        """So many rounds more, or fewer; how it ended, and objective, gaps and edges of each round."""
        table, made = np.empty((n_rounds, 4)), self.facts[0]
        ended = self.lib.fit_rounds(*self.before, n_rounds, SLICE, *self.after, _start(table), *self.last)
        return ended, table[: int(self.facts[0] - made)].tolist()


# ---- rows of many small tasks


def gather_blocks(X: Array, bounds: Index, c: Array, centre: bool, out: Array, means: Array) -> None:
    """Transpose the rows of each task into a (d, n_k) block of ``out`` and take their weighted means off."""
    (N, d), K = X.shape, len(bounds) - 1
    _check_bounds(bounds, N)
    _apart(out, means, X, c)
    library().gather_blocks(
        *(K, d, _address(X, (N, d)), _address(bounds, (K + 1,), _INTS), _address(c, (N,)), centre),
        *(_target(out, (N * d,)), _target(means, (K, d))),
    )


def block_grams(buffer: Array, bounds: Index, c: Array, r: Array, gram: Array, sums: Array, products: Array) -> None:
    """For each task with columns a_j: Σ c a_j a_l into gram, Σ c a_j into sums, Σ r a_j into products."""
    (K, d), N = sums.shape, len(c)
    _check_bounds(bounds, N)
    room = np.empty(int(np.diff(bounds).max(initial=0)) + 1)
    _apart(gram, sums, products, buffer, c)
    library().block_grams(
        *(K, d, _address(buffer, (N * d,)), _address(bounds, (K + 1,), _INTS), _address(c, (N,)), _address(r, (N,))),
        *(_target(gram, (K, d, d)), _target(sums, (K, d)), _target(products, (K, d)), _start(room)),
    )


def _check_bounds(bounds: Index, n: int) -> None:
    if bounds[0] != 0 or bounds[-1] != n or np.any(np.diff(bounds) < 0):
        raise TypeError(f"bounds of tasks that do not run from 0 to {n}.")


# ---- the graphical lasso


def graph_lasso(
    S: Array,
    alpha: float,
    weights: Array | None,
    e: Array,
    tol: float,
    max_sweeps: int,
    warm: tuple[Array, Array] | None = None,
    *,
    digits: bool = True,
) -> tuple[int, Array, Index, tuple[float, ...]]:
    """The whole graphical lasso: screening, components, descent and certificate.

    The penalty of an edge is alpha times its weight (1 where there are no weights; infinite forbids it), ``e`` is that
    of the diagonal; ``warm`` is Ω and its inverse of a problem nearby. ``digits`` asks for parameters more accurate
    than the gap requires, where that is cheap.

    Returns how it ended, Ω, its inverse and a dual point (3, p, p), the components, and gap, objective, log det Ω,
    sweeps, least and largest entry of Ω's diagonal.
    """
    p, lib = len(S), library()
    answers, labels, facts = np.empty((3, p, p)), np.zeros(p, dtype=np.int64), np.zeros(6)
    out, kept = _start(answers), _pointer()
    start = (None, None) if warm is None else (_address(warm[0], (p, p)), _address(warm[1], (p, p)))
    arguments = (
        *(*_graph(S, alpha, weights, e), tol, max_sweeps, digits, SLICE, *start),
        *(
            out,
            out + 8 * p * p,
            out + 16 * p * p,
            _start(labels),
            _lapack_for(p),
            _start(facts),
            ctypes.addressof(kept),
        ),
    )
    try:
        while (status := lib.graph_lasso(*arguments)) == AGAIN:
            pass
    finally:
        if kept:
            lib.handle.mssl_release(kept)
    return status, answers, labels, tuple(facts.tolist())


def _graph(S: Array, alpha: float, weights: Array | None, e: Array) -> tuple[Any, ...]:
    p = len(S)
    prices = None if weights is None else _address(weights, (p, p))
    return p, _address(S, (p, p)), alpha, prices, _address(e, (p,))


def _lapack_for(p: int) -> int | None:
    return None if p < LAPACK_FROM else ctypes.addressof(_lapack())


def is_covariance(S: Array) -> bool:
    """Whether a matrix is finite and symmetric, without negative variances."""
    p = len(S)
    return bool(library().graph_check(p, _address(S, (p, p))))


def graph_components(S: Array, alpha: float, weights: Array | None = None) -> Index:
    """The component of each variable, where |S_ij| above alpha times its weight joins two of them."""
    p = len(S)
    integers = np.empty(2 * p, dtype=np.int64)
    labels = _start(integers)
    library().graph_components(
        *(p, _address(S, (p, p)), alpha, None if weights is None else _address(weights, (p, p)), labels, labels + 8 * p)
    )
    return integers[:p]


def graph_gap(
    S: Array,
    alpha: float,
    weights: Array | None,
    e: Array,
    omega: Array,
    sigma: Array,
    log_det: float,
) -> tuple[float, float]:
    """Gap and ⟨S + diag(e), Ω⟩ + Σ L|Ω| of Ω with its inverse."""
    p, trace = len(S), _float(0.0)
    gap = library().graph_gap(
        *(*_graph(S, alpha, weights, e), _address(omega, (p, p)), _address(sigma, (p, p)), log_det),
        *(_lapack_for(p), ctypes.addressof(trace)),
    )
    return gap, trace.value
