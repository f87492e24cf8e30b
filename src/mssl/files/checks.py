"""Validation of the objects in a model file: types, shapes and values of their attributes.

A file with a valid checksum can still hold invalid objects. Later uses of a fitted object, such as prediction, drawings
and reports, rely on the types and shapes of its attributes. These follow from annotations of its class or from the name
of the attribute. No code relies on attributes with other names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from typing import Any, get_origin

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import BaseCrossValidator

from mssl._typing import Labels
from mssl.exceptions import ModelFileError
from mssl.model.task_matrix import DENSE_UP_TO

WITH_PARAMETERS = (BaseEstimator, BaseCrossValidator)
"""Classes whose objects have parameters and fitted attributes; other dataclasses have only their fields."""


@dataclass(frozen=True)
class _Rule:
    """Requirements of an attribute: annotation, one letter per axis, allowed texts, and whether numbers are finite."""

    hint: str = "Any"
    shape: str = ""
    words: tuple[str, ...] = ()
    finite: bool = False


# Shapes of arrays that annotations do not give: K tasks, d features, c columns, m seasons, p penalties. Within one
# object each letter is a fixed number.
_SHAPES = {"means_": "K", "normals_": "Km", "location_": "K", "covariance_": "KK", "precision_": "KK", "W": "Kd"}
_SHAPES |= {"frequencies_": "pKK", "mean_frequency_": "KK", "intercepts": "K", "mean": "d", "precision": "KK"}
_LABELS = {"tasks_": "K", "feature_names_in_": "c", "seasons_": "m"}
_KNOWN = {name: _Rule(shape=shape, finite=True) for name, shape in _SHAPES.items()}
_KNOWN |= {name: _Rule("Labels", shape) for name, shape in _LABELS.items()}
_KNOWN |= {
    "task_column": _Rule("Hashable"),
    "n_features_in_": _Rule("int"),
    "graph_": _Rule("TaskGraph | None"),
    "_held_out": _Rule("HeldOut | None"),
    "table": _Rule("TableSchema | None"),
    "member_": _Rule("NDArray[np.int64]", "K"),
    "reliability": _Rule(shape="K"),
}
_ERRORS = {  # The standard errors of a fit.
    "std": _Rule("Array | None", "Kd"),
    "dof": _Rule("Array | None", "K"),
    "log_likelihood": _Rule("float | None"),
    "rows": _Rule("float | None"),
}
_SEARCH = {"best_score_", "best_index_", "best_params_", "cv_results_", "n_splits_"}  # Either all or none are present.
# Classes whose numbers are all finite.
_FINITE = {"MeanPosterior", "DualPosterior", "SharedPosterior", "JointPosterior", "JoinedTask", "Units"}
_FINITE |= {"Curves", "Block", "ARD", "Exchangeable", "Dense", "Known", "PerTask", "SharedNoise"}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


# NumPy's dtype kinds for annotations of arrays.
_ARRAYS = {"Array": "f", "Index": "iu", "NDArray[np.int64]": "i", "Mask": "b", "TaskMatrix": "fb"}
# Tests of values for other annotations. Any other word is the name of a class.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "Any": lambda value: True,
    "None": lambda value: value is None,
    "Labels": lambda value: type(value) is np.ndarray,
    "Hashable": lambda value: isinstance(value, Hashable),
    "float": _is_number,
    "int": lambda value: _is_number(value) and isinstance(value, int | np.integer) and int(value) >= 0,
    "Evidence": lambda value: _is("GraphEvidence | Untested", value),
    "WeightPosterior": lambda value: _is("MeanPosterior | DualPosterior | SharedPosterior | JointPosterior", value),
}
_LIST = re.compile(r"(list|tuple|dict)\[(.*)\]")


def _is(hint: str, value: Any) -> bool:
    """Whether a value agrees with an annotation."""
    if hint in _ARRAYS:
        array = type(value) is np.ndarray or (hint == "TaskMatrix" and sparse.issparse(value))
        return array and value.dtype.kind in _ARRAYS[hint]
    if hint in _KINDS:
        return _KINDS[hint](value)
    if " | " in hint:
        return any(_is(part, value) for part in hint.split(" | "))
    several = _LIST.fullmatch(hint)
    if several is None:
        return any(cls.__name__ == hint for cls in type(value).__mro__)
    kind, inside = several.groups()
    if type(value).__name__ != kind:
        return False
    parts = inside.removesuffix(", ...").split(", ")
    if kind == "dict":
        return True
    if kind == "list" or inside.endswith(", ..."):
        parts = [inside.removesuffix(", ...")] * len(value)
    return len(parts) == len(value) and all(map(_is, parts, value))


@cache
def _rules(cls: Any) -> dict[str, _Rule]:
    """Return the rules for the attributes of a class, from the annotations of its fields and from names."""
    rules = dict(_KNOWN)
    of_fields = not issubclass(cls, WITH_PARAMETERS) and (hasattr(cls, "_fields") or is_dataclass(cls))
    fields = getattr(cls, "__dataclass_fields__", {})
    for part in reversed(cls.__mro__):
        for name, hint in vars(part).get("__annotations__", {}).items():
            if not (of_fields or name.endswith("_")) or name == "table":
                continue
            rule, says = rules.get(name, _Rule()), dict(fields[name].metadata) if name in fields else {}
            says.setdefault("finite", rule.finite or cls.__name__ in _FINITE)
            # Named tuples wrap the text of an annotation in an object.
            word = str(getattr(hint, "__forward_arg__", hint))
            rules[name] = replace(rule, hint=_spelt_out(word, vars(sys.modules[part.__module__])), **says)
    return rules


def _spelt_out(hint: str, names: Mapping[str, Any]) -> str:
    """Return an annotation with the module's type aliases expanded."""

    def full(found: re.Match[str]) -> str:
        alias = None if found[0] in _KINDS | _ARRAYS else names.get(found[0])
        known = alias is Any or isinstance(alias, str) or get_origin(alias) is not None
        return str(alias).replace("typing.", "") if known else found[0]

    return hint if hint in _KINDS | _ARRAYS else re.sub(r"[A-Za-z]\w*", full, hint)


def check_object(cls: Any, state: Mapping[str, Any]) -> None:
    """Raise if an attribute with a known name violates its rule.

    Parameters
    ----------
    cls : type
        The class.
    state : mapping
        The object's attributes.

    Examples
    --------
    >>> from mssl import StabilitySelection
    >>> check_object(StabilitySelection, {"tasks_": np.array(["a", "a"])})
    Traceback (most recent call last):
    mssl.exceptions.ModelFileError: tasks_ of StabilitySelection holds a name twice
    """
    name = cls.__name__
    if name in ("Fitted", "Input"):  # They are checked together with their estimator.
        return
    lost = sorted(_SEARCH - state.keys()) if "best_score_" in state else []
    if lost:
        raise ModelFileError(f"{lost[0]} of {name} is missing")
    sizes: dict[str, int] = {}
    _check(name, _rules(cls), state, sizes)
    fitted = state.get("fitted_")
    if fitted is None:
        return
    _check_fitted(fitted)
    places = state.get("member_")
    if places is not None and not np.all((places >= 0) & (places < len(fitted.input.features))):
        raise ModelFileError(f"member_ of {name} holds numbers that no feature has")
    if not _counts_columns(state, fitted.input, sizes):
        raise ModelFileError(f"n_features_in_ of {name} is not the number of its columns")


def _check_fitted(fitted: Any) -> None:
    """Raise if a fit or its input violates a rule; they share the numbers of tasks and features."""
    sizes = {"2": 2}
    for of in (fitted, fitted.input):
        kind: Any = type(of)
        _check(kind.__name__, _rules(kind), vars(of), sizes)
    for name in ("tasks", "features"):
        if vars(fitted.input)[name] is None:
            raise ModelFileError(f"{name}_ is missing")
    if fitted.errors is not None:
        if fitted.errors.keys() != _ERRORS.keys():
            raise ModelFileError("errors_ does not hold standard errors")
        _check("errors_", _ERRORS, fitted.errors, sizes)


def _check(name: str, rules: Mapping[str, _Rule], state: Mapping[str, Any], sizes: dict[str, int]) -> None:
    """Raise unless the attributes of an object obey their rules."""
    for attribute, value in state.items():
        rule, where = rules.get(attribute, _Rule()), f"{attribute} of {name}"
        if not _is(rule.hint, value):
            raise ModelFileError(f"{where} is not of the kind {rule.hint}")
        if rule.words and value not in rule.words:
            raise ModelFileError(f"{where} is not one of {', '.join(rule.words)}")
        if value is None or isinstance(value, str | bool):
            continue
        if rule.shape:
            _check_shape(where, value, rule.shape, sizes)
        if rule.shape and "Labels" in rule.hint:
            _check_labels(where, value, unique=attribute != "features")
        elif rule.finite and (rule.shape or isinstance(value, np.ndarray) or _is_number(value)):
            _check_numbers(where, value)


def _counts_columns(state: Mapping[str, Any], known: Any, sizes: Mapping[str, int]) -> bool:
    """Whether ``n_features_in_`` is the number of input columns, with or without the task column."""
    count = state.get("n_features_in_")
    if known.encoder is not None:
        columns = len(known.encoder.columns)
    else:
        columns = len(known.features) if known.maps is None else known.maps.n_features_in_
    with_tasks = columns + (state.get("task_column") is not None)
    return count == sizes.get("c", count) and count in (columns, with_tasks)


def _check_labels(where: str, value: Labels, unique: bool) -> None:
    if unique and len(set(value.tolist())) < len(value):
        raise ModelFileError(f"{where} holds a name twice")
    if value.dtype.kind == "f" and np.isnan(value).any():
        raise ModelFileError(f"{where} holds NaN, which is not a name")


def _check_numbers(where: str, value: Any) -> None:
    entries = value.data if sparse.issparse(value) else np.asarray(value)
    if entries.dtype == np.float16 or entries.dtype.kind not in "fiub" or not np.isfinite(entries).all():
        raise ModelFileError(f"{where} holds entries that are not finite numbers")


def _check_shape(where: str, value: Any, letters: str, sizes: dict[str, int]) -> None:
    """Raise unless a value is an array whose shape agrees with the known sizes; new sizes are added to them."""
    many = letters == "KK" and sparse.issparse(value) and value.format == "csr" and value.shape[0] > DENSE_UP_TO
    if type(value) is not np.ndarray and not many:
        raise ModelFileError(f"{where} is not an array")
    fits = value.ndim == len(letters)
    for letter, size in zip(letters, value.shape, strict=False):
        fits = fits and sizes.setdefault(letter, size) == size
    if not fits:
        raise ModelFileError(f"{where} has shape {value.shape}, which does not fit the other arrays")
