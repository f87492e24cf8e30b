"""Binding of the compiled library, which is loaded once. ``mssl.h`` declares its functions.

The arguments of every function are read from the header. Arrays are checked for type, order and size. An array that a
function writes must not share memory with another one. The interpreter's lock is released while the library works.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from mssl.exceptions import MissingDependencyError, ParameterError

LEVELS = ("base", "avx2", "avx512")
_SUFFIX = ".dll" if sys.platform == "win32" else ".library"  # not .so, which Python would take for a module of its own
_SCALARS: dict[str, Any] = {"int64_t": ctypes.c_int64, "double": ctypes.c_double, "void": None}
_DTYPES = {"int64_t": np.dtype(np.int64), "double": np.dtype(np.float64)}
_DECLARED = re.compile(r"(const )?(\w+) (\**)(\w+)(?:\[([^]]*)\])?")
_byte_of: Any = ctypes.c_char.from_buffer
_start_of = ctypes.addressof
Span: TypeAlias = tuple[int, int, bool]  # begin and end of an array in memory, and whether it is written


_HEADER = Path(__file__).with_name("mssl.h")


@cache
def _header() -> str:
    text = _HEADER.read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


def number(name: str) -> int:
    """The number with this name in the header."""
    return int(dict(re.findall(r"(\w+) = (\d+)", _header()))[name])


LAPACK_FROM = number("MSSL_LAPACK_FROM")  # with at least this number of variables, the library factorises by LAPACK


def _complaint(value: Any, dtype: Any) -> str:
    if type(value) is not np.ndarray:
        return f"a kernel got a {type(value).__name__}; it takes an array of {dtype}."
    order = "" if value.flags.c_contiguous else ", not in row order"
    return f"a kernel got an array of {value.dtype} of shape {value.shape}{order}; it takes {dtype}."


def _check_apart(spans: list[Span]) -> None:
    """Raise an error if arrays share memory and one of them is written."""
    spans.sort()
    read = wrote = 0
    for start, stop, written in spans:
        if start < wrote or (written and start < read):
            raise TypeError("arrays that a kernel writes to share memory; pass copies.")
        if written:
            wrote = stop
        elif stop > read:
            read = stop


class _Parameters:
    """The arguments of a function or the fields of a struct, as the header declares them."""

    def __init__(self, declared: Sequence[str]) -> None:
        self.types: list[Any] = []
        self.names: list[str] = []
        self.arrays: list[tuple[int, Any, bool, str]] = []  # position, type, whether it is written, and size
        self.records: list[int] = []  # positions of structs
        for place, text in enumerate(declared):
            const, kind, stars, name, size = _DECLARED.findall(text)[0]
            pointer = bool(stars or size)
            self.types.append(ctypes.c_void_p if pointer else _SCALARS[kind])
            self.names.append(name)
            if pointer and kind in _DTYPES:
                self.arrays.append((place, _DTYPES[kind], not const, size))
            elif pointer:
                self.records.append(place)
        words = {word for *_, size in self.arrays for word in size.split()}
        self.numbers = [place for place, name in enumerate(self.names) if name in words]  # that the sizes contain
        self.sizes = lru_cache(self._sizes)

    def _sizes(self, *given: int) -> list[int | None]:
        """The size of each array, from the whole numbers among the arguments; None if the header gives no size.

        In the header, sizes are products and sums such as ``K * 2`` or ``K + 1``.
        """
        named = dict(zip([self.names[place] for place in self.numbers], given, strict=True))

        def number(size: str) -> int:
            product, _, more = size.partition(" + ")
            return math.prod(int(named.get(factor, factor)) for factor in product.split(" * ")) + int(more or 0)

        return [number(size) if size else None for *_, size in self.arrays]

    def convert(self, values: Sequence[Any]) -> tuple[list[Any], list[Span]]:
        """Check values and return them in the form for C, with the memory ranges of their arrays."""
        spans: list[Span] = []
        passed, sizes = list(values), self.sizes(*[values[place] for place in self.numbers])
        for (place, dtype, written, _), size in zip(self.arrays, sizes, strict=True):
            value = values[place]
            if value is None:
                continue
            if type(value) is not np.ndarray or (value.dtype is not dtype and value.dtype != dtype):
                raise TypeError(_complaint(value, dtype))
            try:
                start = _start_of(_byte_of(value))  # takes a fifth of the time of value.ctypes
            except (TypeError, ValueError) as error:  # arrays that are empty, read-only or not in row order
                if not value.flags.c_contiguous:
                    raise TypeError(_complaint(value, dtype)) from error
                if written and not value.flags.writeable:
                    raise TypeError("an array that a kernel writes to is read-only; pass a copy.") from error
                start = int(value.ctypes.data)
            length = value.nbytes
            if size is not None and length != 8 * size:
                raise TypeError(f"a kernel got an array of {dtype} of shape {value.shape}; it takes {size} numbers.")
            passed[place] = start
            spans.append((start, start + length, written))
        for place in self.records:
            if isinstance(values[place], Record):
                spans += values[place].spans
                passed[place] = _start_of(values[place])
        _check_apart(spans)
        return passed, spans


class Record(ctypes.Structure):
    """A struct of the header. It keeps its values alive, since it holds their addresses."""

    spans: Sequence[Span]
    held: tuple[Any, ...]


@cache
def _struct(name: str) -> tuple[type[Record], _Parameters]:
    (text,) = re.findall(rf"typedef struct \{{([^{{}}]*)\}} {name};", _header())
    kinds = re.findall(r"((?:const )?\w+ )([^;]+);", text)
    fields = _Parameters([kind + word for kind, words in kinds for word in words.split(", ")])
    return type(name, (Record,), {"_fields_": list(zip(fields.names, fields.types, strict=True))}), fields


def record(name: str, *values: Any) -> Any:
    """A struct of the header with these fields."""
    kind, fields = _struct(name)
    passed, spans = fields.convert(values)
    made = kind(*passed)
    made.spans, made.held = spans, values
    return made


class Function(_Parameters):
    """A function of the library at one level."""

    def __init__(self, handle: Any, name: str, level: str) -> None:
        found = re.search(rf"(\w+) MSSL\({name}\)\((.*?)\);", _header())
        if found is None:
            raise AttributeError(f"mssl.h declares no function {name}.")
        super().__init__(found[2].split(", "))
        self.call = getattr(handle, f"mssl_{name}_{level}")
        self.call.restype, self.call.argtypes = _SCALARS[found[1]], self.types

    def __call__(self, *values: Any) -> Any:
        """Check the arguments, convert them and call the C function."""
        return self.call(*self.convert(values)[0])


class _Library:
    """The functions of the library at one level, found by name."""

    def __init__(self) -> None:
        self.handle = _open(Path(__file__).with_name(f"_kernels{_SUFFIX}"))
        self.handle.mssl_level.restype = ctypes.c_int64
        most = int(self.handle.mssl_level())
        self.level = os.environ.get("MSSL_SIMD") or LEVELS[most]
        if self.level not in LEVELS[: most + 1]:
            raise ParameterError(
                f"MSSL_SIMD is {self.level!r}; allowed are {', '.join(map(repr, LEVELS[: most + 1]))}. Unset this "
                "environment variable to use the best level of the processor."
            )

    def __getattr__(self, name: str) -> Function:
        function = Function(self.handle, name, self.level)
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
            # The library may not be linked with the maths library, which is therefore loaded first.
            ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        pass  # other C libraries contain the maths functions
    try:
        handle = ctypes.CDLL(str(path))
        handle.mssl_header.restype = ctypes.c_int64
    except (OSError, AttributeError) as error:
        raise MissingDependencyError(f"The compiled part of mssl could not be loaded: {error}. {again}") from error
    if handle.mssl_header() != zlib.crc32(_HEADER.read_bytes()):
        raise MissingDependencyError(f"The compiled part of mssl, {path.name}, was built with another mssl.h. {again}")
    return handle


@cache
def library() -> Any:
    """The library, loaded on the first call."""
    return _Library()


@cache
def _capsules() -> Any:
    from scipy.linalg import cython_lapack

    name_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsules = [cython_lapack.__pyx_capi__[name] for name in ("dpotrf", "dpotri")]
    return (ctypes.c_void_p * 2)(*(address_of(capsule, name_of(capsule)) for capsule in capsules))


def lapack(n: int) -> int | None:
    """Address of SciPy's LAPACK functions for Cholesky factors and inverses; None for small matrices."""
    return ctypes.addressof(_capsules()) if n >= LAPACK_FROM else None


class _Watch(ctypes.Structure):
    """``mssl_watch`` of the header."""

    _fields_ = (("look", ctypes.CFUNCTYPE(ctypes.c_int64)), ("every", ctypes.c_double), ("due", ctypes.c_double))


def _looks(raised: list[BaseException]) -> Iterator[int]:
    """Yield the number of exceptions that signal handlers have raised, and append the exceptions to ``raised``.

    A function cannot do this: handlers run as soon as it is entered, and their exceptions would be lost in C.
    """
    while True:
        try:
            yield len(raised)
        except GeneratorExit:  # the interpreter ends
            return
        except BaseException as error:
            raised.append(error)


# Seconds between two checks for signals. With a longer interval Ctrl-C takes longer, with a shorter one the library
# takes the interpreter's lock more often.
SLICE = 0.3
RAISED: list[BaseException] = []
_asked = _looks(RAISED)
next(_asked)
WATCH = _Watch(ctypes.CFUNCTYPE(ctypes.c_int64)(_asked.__next__), SLICE)


def watch() -> int | None:
    """Address of the watch that checks for signals; None outside the main thread, which gets no signals."""
    return ctypes.addressof(WATCH) if threading.get_ident() == threading.main_thread().ident else None
