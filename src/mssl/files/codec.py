"""Fitted objects as plain JSON values and arrays, and back, without ever executing anything from a file.

Only classes that live in the modules of ``HOMES`` (or below them) can be written or read, and only of five kinds:
estimators (structures, penalties and splitters among them), losses, data classes, named tuples and enumerations.
Reading sets attributes; it never calls ``__setstate__`` or ``__reduce__``.
"""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import BaseCrossValidator

from mssl.exceptions import ModelFileError
from mssl.losses import Loss

HOMES = (
    "mssl.estimators",
    "mssl.model_selection",
    "mssl.data.splitters",
    "mssl.penalties",
    "mssl.losses",
    "mssl.graph.task_graph",
    "mssl.glasso.solver",
    "mssl.files.tables",
    "mssl.structures",
    "mssl.solvers.alternation",
    "mssl.solvers.base",
)
# Where the classes of files written before the rooms were built live now.
_BEFORE = {
    "mssl.classification": "mssl.estimators",
    "mssl.ensemble": "mssl.estimators.baselines",
    "mssl.graph": "mssl.graph.task_graph",
    "mssl.glasso": "mssl.glasso.solver",
    "mssl.tables": "mssl.files.tables",
    "mssl.solvers.alternating": "mssl.solvers.alternation",
    "mssl.model_selection.splitters": "mssl.data.splitters",
}
_MODULE = re.compile(r"mssl(\.[a-z_]+){1,3}")
_DEPTH = 60  # nested values deeper than this are no model of ours
_ATTRIBUTE = re.compile(r"_?[a-z][a-zA-Z0-9_]*")
_SKIPPED = re.compile(r"_skl_|_callback_|_parent_callback_")  # scikit-learn's callbacks belong to a run, not to a model
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_SCALARS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(np.bool_, np.str_, np.float16, np.float32, np.float64),
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    )
}
_SPARSE: dict[str, Any] = {
    kind.__name__: kind for kind in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix)
}
_STORED_KINDS = "biufcUSmM"
_WITH_PARAMETERS = (BaseEstimator, BaseCrossValidator)


class Encoder:
    """Turns values into JSON, collecting arrays; an array that occurs twice is collected once."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._places: dict[int, int] = {}

    def encode(self, value: Any, where: str) -> Any:
        """Return the JSON form; ``where`` names the value in errors."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if np.isfinite(value) else {"#": "float", "v": str(value)}
        if isinstance(value, np.generic):
            return self._scalar(value, where)
        if type(value) is np.ndarray:
            return self._array(value, where)
        if type(value) is list:
            return [self.encode(item, f"{where}[{k}]") for k, item in enumerate(value)]
        if type(value) is tuple:
            return {"#": "tuple", "v": self.encode(list(value), where)}
        if type(value) is dict:
            pairs = [[self.encode(k, where), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {"#": "dict", "v": pairs}
        if type(value).__name__ in _SPARSE and sparse.issparse(value):
            parts = {name: self._array(getattr(value, name), where) for name in ("data", "indices", "indptr")}
            return {"#": "sparse", "kind": type(value).__name__, "shape": list(value.shape), **parts}
        return self._object(value, where)

    def _scalar(self, value: np.generic, where: str) -> Any:
        kind = next((name for name, known in _SCALARS.items() if type(value) is known), None)
        if kind is None:
            return {"#": "item", "v": self._array(np.asarray(value), where)}
        plain = value.item()
        return {"#": "scalar", "kind": kind, "v": self.encode(plain, where)}

    def _array(self, value: NDArray[Any], where: str) -> Any:
        if value.dtype.kind == "O":
            items = self.encode(value.ravel().tolist(), where)
            return {"#": "objects", "shape": list(value.shape), "v": items}
        if value.dtype.kind not in _STORED_KINDS:
            raise ModelFileError(f"{where} is an array of {value.dtype}, which a model file cannot hold.")
        place = self._places.setdefault(id(value), len(self.arrays))
        if place == len(self.arrays):
            self.arrays.append(value)
        return {"#": "array", "v": place}

    def _object(self, value: Any, where: str) -> Any:
        cls = type(value)
        name = f"{cls.__module__}.{cls.__qualname__}"
        if not _is_home(cls.__module__) or getattr(import_module(cls.__module__), cls.__qualname__, None) is not cls:
            raise ModelFileError(
                f"{where} is {name}, which a model file cannot hold: only mssl's own estimators, structures, penalties "
                "and losses, numbers, text and arrays can be saved. Replace it before saving."
            )
        if not (isinstance(value, (Enum, tuple, Loss, *_WITH_PARAMETERS)) or dataclasses.is_dataclass(value)):
            raise ModelFileError(
                f"{where} is {name}, of a kind that a model file cannot hold. Replace it before saving."
            )
        if isinstance(value, Enum):
            return {"#": "enum", "class": name, "v": value.name}
        return {"#": "object", "class": name, "v": {k: self.encode(v, f"{where}.{k}") for k, v in _state(value)}}


def _state(value: Any) -> list[tuple[str, Any]]:
    """Name and value of everything that makes up an object of one of the known kinds."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return [(name, content) for name, content in vars(value).items() if not _SKIPPED.match(name)]


class Decoder:
    """The inverse of :class:`Encoder`; whatever does not fit raises ``ModelFileError``."""

    def __init__(self, arrays: list[NDArray[Any]]) -> None:
        self.arrays = arrays
        self._used: set[int] = set()

    def model(self, value: Any) -> Any:
        """Return the estimator that the JSON stands for; every array has to have its place in it."""
        model = self.decode(value)
        if not isinstance(model, BaseEstimator):
            raise ModelFileError("it holds no estimator")
        if len(self._used) < len(self.arrays):
            raise ModelFileError("it holds arrays that belong to nothing")
        return model

    def decode(self, value: Any, depth: int = 0) -> Any:
        """Return the value that the JSON stands for."""
        if depth > _DEPTH:
            raise ModelFileError(f"values are nested more than {_DEPTH} deep; no model is.")
        if isinstance(value, list):
            return [self.decode(item, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        reader = getattr(self, f"_read_{value['#']}") if value.get("#") in _TAGS else None
        if reader is None:
            raise ModelFileError(f"the header holds an unknown kind of value, {str(value.get('#'))[:40]!r}.")
        return reader(value, depth + 1)

    def _read_float(self, value: dict[str, Any], depth: int) -> float:
        return _FLOATS[value["v"]]

    def _read_tuple(self, value: dict[str, Any], depth: int) -> tuple[Any, ...]:
        return tuple(self._items(value["v"], depth))

    def _read_dict(self, value: dict[str, Any], depth: int) -> dict[Any, Any]:
        return {self.decode(key, depth): self.decode(content, depth) for key, content in value["v"]}

    def _read_array(self, value: dict[str, Any], depth: int) -> NDArray[Any]:
        place = value["v"]
        if type(place) is not int or not 0 <= place < len(self.arrays):
            raise ModelFileError(f"the header names array {str(place)[:40]}, of {len(self.arrays)}.")
        self._used.add(place)
        return self.arrays[place]

    def _read_item(self, value: dict[str, Any], depth: int) -> Any:
        return self.decode(value["v"], depth)[()]

    def _read_scalar(self, value: dict[str, Any], depth: int) -> Any:
        plain = self.decode(value["v"], depth)
        if type(plain) not in (bool, int, float, str):
            raise ModelFileError("a number in the header is none.")
        return _SCALARS[value["kind"]](plain)

    def _read_objects(self, value: dict[str, Any], depth: int) -> NDArray[Any]:
        items = self._items(value["v"], depth)
        flat = np.empty(len(items), dtype=object)
        flat[:] = items
        return flat.reshape([int(size) for size in value["shape"]])

    def _read_sparse(self, value: dict[str, Any], depth: int) -> Any:
        data, indices, indptr = (self.decode(value[name], depth) for name in ("data", "indices", "indptr"))
        matrix = _SPARSE[value["kind"]]((data, indices, indptr), shape=tuple(value["shape"]))
        matrix.check_format(full_check=True)
        return matrix

    def _read_enum(self, value: dict[str, Any], depth: int) -> Enum:
        cls = _known_class(value["class"])
        if not issubclass(cls, Enum):
            raise ModelFileError(f"{cls.__name__} is no enumeration.")
        return cls[value["v"]]

    def _read_object(self, value: dict[str, Any], depth: int) -> Any:
        cls = _known_class(value["class"])
        state = {name: self.decode(content, depth) for name, content in value["v"].items()}
        if issubclass(cls, tuple) or dataclasses.is_dataclass(cls):
            return cls(**state)
        if issubclass(cls, Loss) and not state:
            return cls()
        if not issubclass(cls, _WITH_PARAMETERS):
            raise ModelFileError(f"{cls.__name__} is no kind of object that a model holds.")
        return _with_parameters(cls, state)

    def _items(self, value: Any, depth: int) -> list[Any]:
        if not isinstance(value, list):
            raise ModelFileError("a list in the header is none.")
        return [self.decode(item, depth) for item in value]


_TAGS = tuple(name.removeprefix("_read_") for name in vars(Decoder) if name.startswith("_read_"))


def _is_home(module: str) -> bool:
    return bool(_MODULE.fullmatch(module)) and any(f"{module}.".startswith(f"{home}.") for home in HOMES)


def _known_class(name: str) -> type[Any]:
    """The class of that full name, from the closed list of modules only."""
    home, _, short = name.rpartition(".")
    home = _BEFORE.get(home, home)
    cls = getattr(import_module(home), short, None) if _is_home(home) and not short.startswith("_") else None
    if not isinstance(cls, type) or not _is_home(cls.__module__):
        raise ModelFileError(
            f"the file names the class {name[:80]!r}, which is none of mssl's; it may come from a newer version."
        )
    return cls


def _with_parameters(cls: type[Any], state: dict[str, Any]) -> Any:
    """An estimator or splitter with these parameters and fitted attributes, and no others."""
    parameters = set(signature(cls).parameters)
    missing = parameters - set(state)
    strange = [
        name for name in set(state) - parameters if not _ATTRIBUTE.fullmatch(name) or name in dir(cls) or "__" in name
    ]
    if missing or strange:
        raise ModelFileError(
            f"the parameters or attributes of {cls.__name__} do not fit this version of mssl "
            f"(missing: {sorted(missing)}; strange: {[name[:40] for name in sorted(strange)]})."
        )
    model: Any = object.__new__(cls)
    vars(model).update(state)
    return model
