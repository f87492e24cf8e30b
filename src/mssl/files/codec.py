"""Conversion of fitted objects to JSON values and arrays, and back. Reading a file never executes code from it.

Five kinds of objects can be written: estimators (including structures, penalties and splitters), losses, data classes,
named tuples and enumerations. Files name the classes of mssl by the words in ``checks.WORDS``, which never change: a
class that moves gets another module in the table, and a class that is renamed keeps its word. Files name the classes of
users by their class names. The decoder reads them only if the caller passes the classes. A file never determines what
is imported.

Files of version 1 named classes by their module paths. Files of version 2 held fitted attributes one by one. If the
attributes of a class have changed since version n, its class method ``_state_from_version_n(state)`` converts them to
those of the next version.
"""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Iterable
from enum import Enum
from functools import cached_property
from inspect import Parameter, getattr_static, signature
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from mssl._typing import Json, Labels
from mssl._validation import refused
from mssl.exceptions import ModelFileError
from mssl.files.checks import WITH_PARAMETERS, WORDS, check_object, class_of, word_of
from mssl.graph.tests import Later

VERSION = 3  # Version of the written format; this and all earlier versions can be read.
# Classes of fitted models from which results are computed on first use; files of mssl hold the results instead.
_INPUTS = {
    "mssl.estimators.spec": "LaterErrors",
    "mssl.graph.tests": "LazyEvidence Residuals",
    "mssl.graph.information": "RelationInput Occasions",
    "mssl.solvers.quadratic": "KeptLoss Quadratic Rows",
    "mssl.data.design": "Design DenseBlocks SparseBlocks",
}
# Version 1 named classes by the module paths of that time.
_PATH_OF_VERSION_1 = re.compile(r"mssl(?:\.[a-z_]+){1,3}\.([A-Z][A-Za-z0-9]*)")
_WORD_OF_VERSION_1 = {word.replace("_", ""): word for word in WORDS}
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")  # Names of classes that an error may quote unescaped.
_ATTRIBUTE = re.compile(r"_?[a-z][a-zA-Z0-9_]*")  # Names of attributes that a file may set.
# Scikit-learn's callbacks belong to a run, and moments, which are as large as all Gram matrices, to the data. Neither
# is part of a model.
_SKIPPED = re.compile(r"_skl_|_callback_|_parent_callback_|moments_$")
# Parameters that name files which a later fit would read pickles from, or write to. They belong to a run.
_RUN_PATHS = {"memory", "checkpoint"}
_MOST_JOBS = 1024  # Largest n_jobs in a file: a safeguard, since joblib would start any number of processes.
_CODES = ("?", "U", "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
_SCALARS: Json = {kind.__name__: kind for kind in (np.dtype(code).type for code in _CODES)}
_SPARSE: Json = {
    kind.__name__: kind for kind in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix)
}
# Number of entries from which tables of mostly zeros are written by their non-zero entries. Smaller tables save little.
_THIN_FROM = 2**14
# Largest number of bytes of such tables in a file: a safeguard against hostile files, with room for 16 tables of 2000
# tasks.
MOST_FILLED = 2**30
_DTYPE = re.compile(r"[<>|=][biufcUSmM][0-9]{1,4}(\[[a-zA-Z0-9]{1,6}\])?")
_STORED_KINDS = "biufcUSmM"  # NumPy's dtype kinds without Python objects and records.


class UnknownClassError(ModelFileError):
    """A file holds an object of a class that the caller must pass."""


class Encoder:
    """Converts values to JSON and collects arrays; an array that occurs twice is collected once."""

    def __init__(self) -> None:
        self.arrays: list[Labels] = []
        self._places: dict[int, tuple[int, Labels]] = {}  # Holding the array itself keeps its id unique.
        self._user_classes: dict[str, type] = {}

    def encode(self, value: Any, value_path: str) -> object:
        """Return the JSON form; ``value_path`` (such as ``model.structure.alpha``) names the value in errors."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if np.isfinite(value) else {"#": "float", "v": str(value)}
        if isinstance(value, np.generic):
            return self._scalar(value, value_path)
        if type(value) is np.ndarray:
            return self._array(value, value_path)
        if type(value) is list:
            return [self.encode(item, f"{value_path}[{k}]") for k, item in enumerate(value)]
        if type(value) is tuple:
            return {"#": "tuple", "v": self.encode(list(value), value_path)}
        if isinstance(value, np.dtype) and value.kind in _STORED_KINDS:
            return {"#": "dtype", "v": value.str}
        if isinstance(value, type) and value in _SCALARS.values():
            return {"#": "number_type", "v": np.dtype(value).str}
        if type(value) is slice:
            return {"#": "slice", "v": self.encode([value.start, value.stop, value.step], value_path)}
        if type(value) is dict:
            pairs = [[self.encode(k, value_path), self.encode(v, f"{value_path}[{k!r}]")] for k, v in value.items()]
            return {"#": "dict", "v": pairs}
        if type(value).__name__ in _SPARSE and sparse.issparse(value):
            parts = {name: self._array(getattr(value, name), value_path) for name in ("data", "indices", "indptr")}
            return {"#": "sparse", "kind": type(value).__name__, "shape": list(value.shape), **parts}
        if isinstance(value, Later):
            return self.encode(value.saved(), value_path)
        return self._object(value, value_path)

    def _scalar(self, value: np.generic, value_path: str) -> Json:
        kind = type(value).__name__
        if _SCALARS.get(kind) is not type(value):
            return {"#": "item", "v": self._array(np.asarray(value), value_path)}
        return {"#": "scalar", "kind": kind, "v": self.encode(value.item(), value_path)}

    def _array(self, value: Labels, value_path: str) -> Json:
        if value.dtype.kind == "O":
            items = self.encode(value.ravel().tolist(), value_path)
            return {"#": "objects", "shape": list(value.shape), "v": items}
        if value.dtype.kind not in _STORED_KINDS:
            raise ModelFileError(
                f"{value_path} is an array of {value.dtype}; a model file holds numbers, text and times. Convert it."
            )
        place, _ = self._places.setdefault(id(value), (len(self.arrays), value))
        new = place == len(self.arrays)
        if not _is_thin(value):
            self.arrays += [value] if new else []
            return {"#": "array", "v": place}
        order: Literal["C", "F"] = "F" if value.flags.f_contiguous else "C"
        if new:
            flat = value.ravel(order)
            kept = np.flatnonzero(flat.view(f"u{flat.itemsize}"))  # The bits of −0 are not 0, so that −0 is kept.
            self.arrays += [kept, flat[kept]]
        return {"#": "thin", "shape": list(value.shape), "order": order, "v": place}

    def _object(self, value: object, value_path: str) -> Json:
        cls = type(value)
        if not _is_storable(cls):
            raise ModelFileError(
                f"{value_path} is {cls.__module__}.{cls.__qualname__}, which a model file cannot hold; only "
                "estimators, structures, penalties, losses, splitters, numbers, text and arrays can be saved. Replace "
                "it before saving."
            )
        word = word_of(cls.__name__)
        if word in WORDS and class_of(word) is cls:
            name = {"class": word}
        else:
            self._check_user_class(cls, value, value_path)
            name = {"user_class": cls.__name__}
        if isinstance(value, Enum):
            return {"#": "enum", **name, "v": value.name.lower()}
        return {"#": "object", **name, "v": {k: self.encode(v, f"{value_path}.{k}") for k, v in _state(value)}}

    def _check_user_class(self, cls: type, value: object, value_path: str) -> None:
        """Raise if an object could be written to a file but not be read from it."""
        if self._user_classes.setdefault(cls.__name__, cls) is not cls:
            raise ModelFileError(
                f"{value_path} is of a second class named {cls.__name__}; a model file tells classes apart by "
                "their names. Rename one of them."
            )
        lost = sorted(_parameters(cls) - dict(_state(value)).keys()) if issubclass(cls, WITH_PARAMETERS) else []
        if lost:
            raise ModelFileError(
                f"{value_path} is a {cls.__name__} without the attribute {lost[0]!r}, which is a parameter of "
                "its class. Keep every parameter under its own name in __init__, as scikit-learn's estimators do."
            )


def _is_thin(value: Labels) -> bool:
    """Whether the non-zero entries of a table and their indices take less than half of its bytes."""
    if value.ndim != 2 or value.size < _THIN_FROM or value.dtype not in (np.dtype(float), np.dtype(bool)):
        return False
    entries = np.count_nonzero(value.ravel("K").view(f"u{value.itemsize}"))
    return bool(2 * entries * (value.dtype.itemsize + 8) < value.nbytes)


def _is_storable(cls: type) -> bool:
    """Whether a class is of one of the five kinds that can be written."""
    named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return named_tuple or issubclass(cls, (Enum, *WITH_PARAMETERS)) or dataclasses.is_dataclass(cls)


def skops_types() -> list[str]:
    """Return the types in models of this package, for the argument ``trusted`` of ``skops.io.load``.

    skops has no registry for types of other packages, so that callers pass this list. skops itself trusts
    scikit-learn's transformers in a pipeline.

    Returns
    -------
    list of str
        Names of classes with their modules. Append the names of your own classes.

    Examples
    --------
    >>> import mssl, skops.io  # doctest: +SKIP
    >>> skops.io.dump(model, "model.skops")  # doctest: +SKIP
    >>> model = skops.io.load("model.skops", trusted=mssl.skops_types())  # doctest: +SKIP
    """
    classes = (class_of(word) for word, home in WORDS.items() if home.startswith("mssl."))
    more = (f"{home}.{name}" for home, names in _INPUTS.items() for name in names.split())
    return [*(f"{cls.__module__}.{cls.__qualname__}" for cls in classes), *more]


def belongs_to_run(name: str, value: object) -> bool:
    """Whether a parameter names files to read or write (a number does not), or sets too many processes."""
    if name == "n_jobs":
        return value is not None and not (isinstance(value, int | np.integer) and value <= _MOST_JOBS)
    return name in _RUN_PATHS and not (value is None or isinstance(value, int | float))


def _parameters(cls: type[Any]) -> set[str]:
    """Return the names of a class's parameters without ``*args`` and ``**kwargs``."""
    if cls.__init__ is object.__init__:
        return set()
    open_ended = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return {name for name, parameter in signature(cls).parameters.items() if parameter.kind not in open_ended}


def _state(value: object) -> list[tuple[str, object]]:
    """Return names and values of the attributes that define an object of one of the five kinds."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, WITH_PARAMETERS):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return [
        (name, None if belongs_to_run(name, content) else content)
        for name, content in vars(value).items()
        if not _SKIPPED.match(name) and not isinstance(getattr_static(type(value), name, None), cached_property)
    ]


class Decoder:
    """The inverse of :class:`Encoder`. Invalid content raises ``ModelFileError``.

    Parameters
    ----------
    arrays : list of ndarray
        The arrays to which the JSON refers by number.
    version : {1, 2, 3}
        Version of the file's format.
    classes : iterable of type
        The user's classes whose objects the file may hold.
    """

    def __init__(self, arrays: list[Labels], version: int = VERSION, classes: Iterable[type] = ()) -> None:
        self.arrays = arrays
        self.version = version
        self._user_classes = {cls.__name__: cls for cls in classes}
        self._used: set[int] = set()
        self._thin: dict[int, Labels] = {}

    def model(self, value: object) -> BaseEstimator:
        """Return the estimator of the JSON, which must use all arrays."""
        model = self.decode(value)
        if not isinstance(model, BaseEstimator):
            raise ModelFileError("it holds no estimator")
        if len(self._used) < len(self.arrays):
            raise ModelFileError("it holds arrays that no object uses")
        return model

    def decode(self, value: object) -> Any:
        """Return the value that the JSON represents."""
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        reader = getattr(self, f"_read_{value.get('#')}", None)
        if reader is None:
            raise ModelFileError(f"the header holds an unknown kind of value, {str(value.get('#'))[:40]!r}.")
        return reader(value)

    def _read_float(self, value: Json) -> float:
        return float(value["v"])

    def _read_dtype(self, value: Json) -> np.dtype:
        if type(value["v"]) is not str or not _DTYPE.fullmatch(value["v"]):
            raise ModelFileError("the header holds an invalid dtype.")
        return np.dtype(value["v"])

    def _read_number_type(self, value: Json) -> type:
        return self._read_dtype(value).type

    def _read_slice(self, value: Json) -> slice:
        ends = self._items(value["v"])
        if len(ends) != 3 or not all(end is None or type(end) is int for end in ends):
            raise ModelFileError("the header holds an invalid slice.")
        return slice(*ends)

    def _read_tuple(self, value: Json) -> tuple[object, ...]:
        return tuple(self._items(value["v"]))

    def _read_dict(self, value: Json) -> dict[object, object]:
        return {self.decode(key): self.decode(content) for key, content in value["v"]}

    def _read_array(self, value: Json) -> Labels:
        place = value["v"]
        if type(place) is not int or not 0 <= place < len(self.arrays):
            raise ModelFileError(f"the header names array {str(place)[:40]}, of {len(self.arrays)}.")
        self._used.add(place)
        return self.arrays[place]

    def _read_thin(self, value: Json) -> Labels:
        """Return a table of mostly zeros from the indices and values of its non-zero entries."""
        place, shape = value["v"], tuple(int(size) for size in value["shape"])
        if place in self._thin:
            return self._thin[place]
        kept, entries = (self._read_array({"v": at}) for at in (place, place + 1))
        size = math.prod(shape)
        filled = sum(table.nbytes for table in self._thin.values()) + size * entries.dtype.itemsize
        if min(shape) < 0 or filled > MOST_FILLED:
            raise ModelFileError(f"a table of mostly zeros has the shape {shape}, which is too large.")
        in_range = kept.dtype == np.int64 and np.all((kept >= 0) & (kept < size))
        if not in_range or kept.ndim != 1 or kept.shape != entries.shape:
            raise ModelFileError("the entries of a table of mostly zeros do not fit its shape.")
        table = np.zeros(size, dtype=entries.dtype)
        table[kept] = entries
        self._thin[place] = table.reshape(shape, order="F" if value["order"] == "F" else "C")
        return self._thin[place]

    def _read_item(self, value: Json) -> object:
        return self.decode(value["v"])[()]

    def _read_scalar(self, value: Json) -> object:
        plain = self.decode(value["v"])
        if type(plain) not in (bool, int, float, str):
            raise ModelFileError("the header holds an invalid number.")
        return _SCALARS[value["kind"]](plain)

    def _read_objects(self, value: Json) -> Labels:
        items = self._items(value["v"])
        flat = np.empty(len(items), dtype=object)
        flat[:] = items
        return flat.reshape([int(size) for size in value["shape"]])

    def _read_sparse(self, value: Json) -> object:
        data, indices, indptr = (self.decode(value[name]) for name in ("data", "indices", "indptr"))
        matrix = _SPARSE[value["kind"]]((data, indices, indptr), shape=tuple(value["shape"]))
        matrix.check_format(full_check=True)
        return matrix

    def _read_enum(self, value: Json) -> Enum:
        cls = self._class(value)
        if not issubclass(cls, Enum):
            raise ModelFileError(f"{cls.__name__} is not an enumeration.")
        return {member.name.lower(): member for member in cls}[value["v"].lower()]

    def _read_object(self, value: Json) -> object:
        cls = self._class(value)
        state = {name: self.decode(content) for name, content in value["v"].items()}
        for version in range(self.version, VERSION):
            if hasattr(cls, f"_state_from_version_{version}"):
                state = getattr(cls, f"_state_from_version_{version}")(state)
        if "user_class" not in value:
            check_object(cls, state)
        if issubclass(cls, WITH_PARAMETERS):
            return _with_parameters(cls, state)
        if issubclass(cls, tuple) or dataclasses.is_dataclass(cls):
            return cls(**state)
        raise ModelFileError(f"{cls.__name__} is not a class that a model may contain.")

    def _class(self, value: Json) -> type:
        """Return the class that an entry names: by a word of the table, or one of the caller's classes."""
        if "user_class" in value:
            name = str(value["user_class"])
            if not _PLAIN_NAME.fullmatch(name):
                raise ModelFileError(f"the file names the class {name[:80]!r}, which is not a valid name.")
            if name not in self._user_classes:
                raise UnknownClassError(
                    f"holds an object of the class {name[:80]}, which is not part of mssl. Pass the class: "
                    f"mssl.load(path, classes=[{name[:80]}])."
                )
            return self._user_classes[name]
        word = value["class"]
        if self.version == 1:
            path = _PATH_OF_VERSION_1.fullmatch(word)
            word = _WORD_OF_VERSION_1.get(path[1].lower()) if path else None
        if word not in WORDS:
            raise ModelFileError(
                f"the file names the class {str(value['class'])[:80]!r}, which is not a class of mssl; it may come "
                "from a newer version."
            )
        return class_of(word)

    def _items(self, value: object) -> list[Any]:
        if not isinstance(value, list):
            raise ModelFileError("the header holds an invalid list.")
        return [self.decode(item) for item in value]


def check_classes(classes: Iterable[type]) -> list[type]:
    """Return the user's classes for reading; each must be of a kind that a file can hold."""
    given = list(classes) if np.iterable(classes) else [classes]
    names = [getattr(cls, "__name__", "") for cls in given]
    for cls in given:
        if not isinstance(cls, type) or not _is_storable(cls):
            raise refused("classes", cls, "give a list of classes of estimators, structures, penalties or losses")
        if names.count(cls.__name__) > 1:
            raise refused("classes", given, "give classes of different names", f"Two are named {cls.__name__}.")
    return given


def _with_parameters(cls: type, state: Json) -> object:
    """Return an estimator, splitter or loss with these parameters and further attributes.

    Parameters that were added to the class after the file was written have their defaults. Old names of parameters are
    accepted.
    """
    parameters = _parameters(cls) | set(getattr(cls, "_old_names", ()))
    further = {name: content for name, content in state.items() if name not in parameters}
    strange = [name for name in further if not _ATTRIBUTE.fullmatch(name) or "__" in name or _hides(cls, name)]
    if strange:
        raise ModelFileError(
            f"the attributes {[name[:40] for name in sorted(strange)]} of {cls.__name__} do not fit this mssl"
        )
    for name in sorted(name for name, content in state.items() if belongs_to_run(name, content)):
        raise ModelFileError(
            f"the parameter {name!r} of {cls.__name__} names files that a later fit reads and writes, or more than "
            f"{_MOST_JOBS} processes, which is not allowed. Set it to None before saving, and again after loading"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # The user cannot change old names in a file.
        model = cls(**{name: content for name, content in state.items() if name in parameters})
    vars(model).update(further)
    return model


def _hides(cls: type, name: str) -> bool:
    """Whether an attribute with this name would hide a method or a property of the class."""
    found = getattr_static(cls, name, None)
    return callable(found) or hasattr(type(found), "__get__")
