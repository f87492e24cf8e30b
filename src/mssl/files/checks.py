"""What a model file's objects have to be like: arrays and values of known names, checked before anyone uses them.

A file with a fitting checksum can still hold anything. Whatever a fitted object is later used for (predicting, drawing,
writing a report) relies on the kinds and shapes of the attributes below, and of the fields of ``Fitted``, which say
them themselves; an attribute of another name is not relied on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from scipy import sparse

from mssl.exceptions import ModelFileError
from mssl.model.task_matrix import DENSE_UP_TO

# The shape of each array of estimators that keep theirs one by one, and of the small classes: K tasks, d features, m
# seasons, p penalties. Within one object a letter is one number.
_NUMBERS = {
    "means_": "K",
    "normals_": "Km",
    "location_": "K",
    "covariance_": "KK",
    "precision_": "KK",
    "frequencies_": "pKK",
    "mean_frequency_": "KK",
    "W": "Kd",
    "intercepts": "K",
    "mean": "d",
    "precision": "KK",
    "reliability": "K",
}
_ANY_NUMBERS = {"reliability"}  # finite or not
_LABELS = {"tasks_": "K", "feature_names_in_": "c", "seasons_": "m"}
_PLACES = {"member_": "K"}  # whole numbers
_OPTIONAL = {"precision", "mean"}


_TOGETHER = {  # what a search is summed up by
    "best_score_": ("best_index_", "best_params_", "cv_results_", "n_splits_"),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _is_array(value: Any, kinds: str) -> bool:
    return type(value) is np.ndarray and value.dtype.kind in kinds


# What a value is that an annotation names by one of these words; by any other word it is an object of that class.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "Any": lambda value: True,
    "None": lambda value: value is None,
    "Labels": lambda value: type(value) is np.ndarray,
    "Array": lambda value: _is_array(value, "f"),
    "FloatArray": lambda value: _is_array(value, "f"),
    "Index": lambda value: _is_array(value, "iu"),
    "NDArray[np.int64]": lambda value: _is_array(value, "i"),
    "Mask": lambda value: _is_array(value, "b"),
    "TaskMatrix": lambda value: (sparse.issparse(value) and value.dtype.kind in "fb") or _is_array(value, "fb"),
    "Hashable": lambda value: isinstance(value, Hashable),
    "float": _is_number,
    "int": _is_count,
    "bool": lambda value: isinstance(value, bool | np.bool_),
    "str": lambda value: isinstance(value, str),
    "Evidence": lambda value: _is("GraphEvidence | Untested", value),
    "WeightPosterior": lambda value: _is("MeanPosterior | DualPosterior | SharedPosterior | JointPosterior", value),
}
_LIST = re.compile(r"(list|tuple|dict)\[(.*)\]")
# Attributes of estimators and transformers, as annotations would say it.
_ATTRIBUTES = {
    "task_column": "Hashable",
    "fitted_": "Fitted",
    "n_features_in_": "int",
    "n_iter_": "int",
    "n_splits_": "int",
    "best_index_": "int",
    "best_score_": "float",
    "best_params_": "dict[str, Any]",
    "cv_results_": "dict[str, Any]",
    "best_estimator_": "BaseEstimator",
    "result_": "GraphicalLassoResult",
    "graph_": "TaskGraph | None",
    "maps_": "list[FeatureMap]",
    "curves_": "list[Curves]",
    "_held_out": "HeldOut | None",
}
_WORDS = {  # the words that a field of text may hold
    ("TableSchema", "missing"): ("error", "drop", "mean", "indicator"),
    ("FeatureEncoder", "missing"): ("error", "indicator"),
    ("Options", "intercepts"): ("flat", "shrunk", "none"),
    ("Options", "errors"): ("independent", "shared"),
}
# Classes without a missing number.
_FINITE = {"MeanPosterior", "DualPosterior", "SharedPosterior", "JointPosterior", "JoinedTask", "Units"}
_FINITE |= {"Curves", "Block", "ARD", "Exchangeable", "Dense", "Known", "PerTask", "SharedNoise"}


def _is(hint: str, value: Any) -> bool:
    """Whether a value is what an annotation says."""
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


def check_object(name: str, state: Mapping[str, Any]) -> None:
    """Raise where an attribute of a known name is not what the class keeps under it.

    Parameters
    ----------
    name : str
        Name of the class.
    state : mapping
        The object's attributes.

    Examples
    --------
    >>> check_object("StabilitySelection", {"tasks_": np.array(["a", "a"])})
    Traceback (most recent call last):
    mssl.exceptions.ModelFileError: tasks_ of StabilitySelection holds a name twice
    """
    for known, others in _TOGETHER.items():
        for attribute in others:
            if known in state and attribute not in state:
                raise ModelFileError(f"{attribute} of {name} is missing")
    sizes: dict[str, int] = {}
    for attribute, value in state.items():
        where = f"{attribute} of {name}"
        if attribute in _ATTRIBUTES and not _is(_ATTRIBUTES[attribute], value):
            raise ModelFileError(f"{where} is not of the kind {_ATTRIBUTES[attribute]}")
        if (value is None and attribute in _OPTIONAL) or isinstance(value, str | bool):  # said by its class
            continue
        if attribute in _NUMBERS:
            _check_array(where, value, _NUMBERS[attribute], sizes)
            _check_numbers(where, value, finite=attribute not in _ANY_NUMBERS)
        elif attribute in _LABELS:
            _check_array(where, value, _LABELS[attribute], sizes)
            _check_labels(where, value, unique=True)
        elif attribute in _PLACES:
            _check_array(where, value, _PLACES[attribute], sizes)
    fitted = state.get("fitted_")
    if fitted is not None:
        _check_fitted(fitted)
    places = state.get("member_")
    if places is not None and (places.dtype.kind != "i" or not np.all((places >= 0) & (places < _n_features(fitted)))):
        raise ModelFileError(f"member_ of {name} points outside of the features")
    if fitted is not None and not _counts_columns(state, fitted.input, sizes):
        raise ModelFileError(f"n_features_in_ of {name} is not the number of its columns")


def _check_fitted(fitted: Any) -> None:
    """Raise where arrays of a fit are not of the shapes that its fields promise, or not of numbers or names."""
    parts: dict[str, Mapping[str, Any]] = {}
    state: dict[str, Any] = {}
    for of in (fitted, fitted.input):
        check_promises(type(of), vars(of))
        parts |= {f.name: f.metadata for f in fields(of)}
        state |= vars(of)
    if not _is("TableSchema | None", fitted.input.table):
        raise ModelFileError("table_ is no schema of a table")
    if fitted.errors is not None:
        figures = {
            "std": "Array | None",
            "dof": "Array | None",
            "log_likelihood": "float | None",
            "rows": "float | None",
        }
        if fitted.errors.keys() != figures.keys() or not all(map(_is, figures.values(), fitted.errors.values())):
            raise ModelFileError("errors_ holds what are no standard errors")
        parts |= {"std": {"shape": "Kd", "finite": False}, "dof": {"shape": "K", "finite": False}}
        state |= fitted.errors
    sizes = {"2": 2}
    for name, says in parts.items():
        value, where = state.get(name), f"{name}_"
        if value is None and name in ("tasks", "features"):
            raise ModelFileError(f"{where} is missing")
        if "words" in says and value not in says["words"]:
            raise ModelFileError(f"{where} is not one of {', '.join(says['words'])}")
        if value is None or "shape" not in says:
            continue
        _check_array(where, value, says["shape"], sizes)
        if name in ("tasks", "features", "classes"):
            _check_labels(where, value, unique=name != "features")
        else:
            _check_numbers(where, value, finite=says["finite"])


def check_promises(cls: type[Any], state: Mapping[str, Any]) -> None:
    """Raise where a field of a dataclass or named tuple is not of the kind that its annotation says."""
    for part in cls.__mro__:
        for name, hint in vars(part).get("__annotations__", {}).items():
            value: Any = state.get(name)
            kind = str(getattr(hint, "__forward_arg__", hint))  # what named tuples keep of the word
            if name not in state:
                continue
            if not _is(kind, value) or value not in _WORDS.get((cls.__name__, name), (value,)):
                raise ModelFileError(f"{name} of {cls.__name__} is not of the kind {kind}")
            numbers = isinstance(value, np.ndarray) or _is_number(value)
            if cls.__name__ in _FINITE and numbers and not np.isfinite(value).all():
                raise ModelFileError(f"{name} of {cls.__name__} holds what is no finite number")


def _n_features(fitted: Any) -> int:
    return 0 if fitted is None else len(fitted.input.features)


def _counts_columns(state: Mapping[str, Any], known: Any, sizes: dict[str, int]) -> bool:
    """Whether ``n_features_in_`` is the number of columns that features are made of, and of one that holds tasks."""
    count = state.get("n_features_in_")
    if known.encoder is not None:
        columns = len(known.encoder.columns)
    else:
        columns = len(known.features) if known.maps is None else known.maps.n_features_in_
    with_tasks = columns + (state.get("task_column") is not None)
    return count == sizes.get("c", count) and count in (columns, with_tasks)


def _check_labels(where: str, value: Any, unique: bool) -> None:
    if unique and len(set(value.tolist())) < len(value):
        raise ModelFileError(f"{where} holds a name twice")
    if value.dtype.kind == "f" and np.isnan(value).any():
        raise ModelFileError(f"{where} holds what is no name")


def _check_numbers(where: str, value: Any, finite: bool) -> None:
    entries = value.data if sparse.issparse(value) else value
    if value.dtype not in (np.float64, np.float32) or (finite and not np.isfinite(entries).all()):
        raise ModelFileError(f"{where} holds what is no finite number")


def _check_array(where: str, value: Any, letters: str, sizes: dict[str, int]) -> None:
    """Raise unless a value is an array whose shape agrees with the sizes known so far; learn those not yet known."""
    many = letters == "KK" and sparse.issparse(value) and value.format == "csr" and value.shape[0] > DENSE_UP_TO
    if type(value) is not np.ndarray and not many:
        raise ModelFileError(f"{where} is no array")
    fits = value.ndim == len(letters)
    for letter, size in zip(letters, value.shape, strict=False):
        fits = fits and sizes.setdefault(letter, size) == size
    if not fits:
        raise ModelFileError(f"{where} has shape {value.shape}, which does not fit the other arrays")
