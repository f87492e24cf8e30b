"""What a model file's objects have to be like: arrays and values of known names, checked before anyone uses them.

A file with a fitting checksum can still hold anything. Whatever a fitted object is later used for (predicting, drawing,
writing a report) relies on the kinds and shapes of the attributes below, and of the fields of ``Fitted``, which say
them themselves; an attribute of another name is not relied on.
"""

from __future__ import annotations

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
_OPTIONAL = {"precision", "mean", "graph_"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_errors(value: Any) -> bool:
    figures = ("log_likelihood", "rows")
    known = type(value) is dict and value.keys() == {"std", "dof", *figures}
    return known and all(value[name] is None or _is_number(value[name]) for name in figures)


def _of_class(*names: str) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        return any(cls.__name__ in names for cls in type(value).__mro__)

    return fits


def _is_held_out(value: Any) -> bool:
    return value is None or _of_class("HeldOut")(value)


def _each(fits: Callable[[Any], bool], kind: type[Any]) -> Callable[[Any], bool]:
    def all_fit(value: Any) -> bool:
        return isinstance(value, kind) and all(fits(item) for item in value)

    return all_fit


_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "task_column": (lambda value: isinstance(value, Hashable), "the name or number of a column"),
    "n_features_in_": (_is_count, "a count"),
    "n_iter_": (_is_count, "a count"),
    "n_splits_": (_is_count, "a count"),
    "best_index_": (_is_count, "a count"),
    "best_score_": (_is_number, "a number"),
    "result_": (_of_class("FitResult", "GraphicalLassoResult"), "a result"),
    "graph_": (_of_class("TaskGraph"), "a task graph"),
    "best_estimator_": (_of_class("BaseEstimator"), "an estimator"),
    "best_params_": (lambda value: type(value) is dict, "a dict"),
    "cv_results_": (lambda value: type(value) is dict, "a dict"),
    "maps_": (
        lambda value: _of_class("FeatureBlocks")(value) or _each(_of_class("FeatureMap"), list)(value),
        "feature maps",
    ),
    "curves_": (_each(_of_class("Curves"), list), "a list of curves"),
    "_held_out": (_is_held_out, "a held-out score"),
}
_TOGETHER = {  # what a search is summed up by
    "best_score_": ("best_index_", "best_params_", "cv_results_", "n_splits_"),
}
# What the annotations of the small classes promise, where these are one word (or none).
_PROMISES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "Array": (lambda value: type(value) is np.ndarray and value.dtype.kind == "f", "an array of numbers"),
    "Index": (lambda value: type(value) is np.ndarray and value.dtype.kind in "iu", "an array of places"),
    "Mask": (lambda value: type(value) is np.ndarray and value.dtype.kind == "b", "an array of truth values"),
    "TaskMatrix": (
        lambda value: (type(value) is np.ndarray or sparse.issparse(value)) and value.dtype.kind in "fb",
        "a matrix over tasks",
    ),
    "float": (_is_number, "a number"),
    "int": (_is_number, "a number"),
    "bool": (lambda value: isinstance(value, bool | np.bool_), "a truth value"),
    "str": (_is_text, "text"),
}
_FINITE = {"MeanPosterior", "DualPosterior", "SharedPosterior", "JointPosterior", "JoinedTask", "Hyper", "Units"}
_FINITE |= {"Curves"}  # classes without a missing number
# Fields of the small classes, by class.
_FIELDS: dict[str, dict[str, tuple[Callable[[Any], bool], str]]] = {
    "Fitted": {"errors": (lambda value: value is None or _is_errors(value), "standard errors")},
    "Input": {
        "ignored_columns": (_each(_is_text, tuple), "a tuple of names"),
        "table": (lambda value: value is None or _of_class("TableSchema")(value), "a schema of columns"),
    },
    "TableSchema": {
        "task": (_is_text, "text"),
        "target": (_is_text, "text"),
        "offset": (lambda value: value is None or _is_text(value), "text"),
        "missing": (lambda value: value in ("error", "drop", "mean", "indicator"), "a way with missing values"),
        "columns": (_each(_of_class("ColumnSchema"), tuple), "a tuple of columns"),
    },
    "ColumnSchema": {
        "name": (_is_text, "text"),
        "categories": (lambda value: value is None or _each(_is_text, tuple)(value), "a tuple of texts"),
        "fill": (_each(_is_number, tuple), "a tuple of numbers"),
        "indicator": (lambda value: type(value) is bool, "a truth value"),
    },
    "FeatureEncoder": {
        "missing": (lambda value: value in ("error", "indicator"), "a way with missing values"),
        "columns": (_each(_of_class("ColumnSchema"), tuple), "a tuple of columns"),
    },
    "Options": {
        "structure": (_is_text, "text"),
        "intercepts": (lambda value: value in ("flat", "shrunk", "none"), "a kind of intercepts"),
        "errors": (lambda value: value in ("independent", "shared"), "a kind of errors"),
    },
    "Ensemble": {
        "members": (_each(_of_class("Member"), list), "a list of members"),
        "maps": (lambda value: value is None or _of_class("FeatureBlocks")(value), "feature maps"),
        "held_out": (_is_held_out, "a held-out score"),
    },
    "Member": {
        "fit": (_of_class("EvidenceFit"), "a fit"),
        "width": (_is_count, "a count"),
        "calibration": (_of_class("Calibration"), "a calibration"),
        "weight": (_is_number, "a number"),
    },
    "EvidenceFit": {
        "hyper": (_of_class("Hyper"), "hyperparameters"),
        "posterior": (_of_class("MeanPosterior", "DualPosterior", "SharedPosterior", "JointPosterior"), "a posterior"),
        "columns": (_of_class("Columns"), "columns of a prior"),
        "units": (_of_class("Units"), "units"),
        "options": (_of_class("Options"), "options"),
        "joined": (_each(_of_class("JoinedTask"), list), "a list of tasks"),
    },
    "Record": dict.fromkeys(
        ("iteration", "objective", "gap_weights", "gap_structure", "relative_gap", "edges", "seconds"),
        (_is_number, "a number"),
    ),
    "FitResult": {
        "status": (_of_class("Status"), "a status"),
        "objective": (_is_number, "a number"),
        "relative_gap": (_is_number, "a number"),
        "history": (_each(_of_class("Record"), list), "a list of records"),
        "structure": (_of_class("StructureStep"), "a structure's step"),
        "scale": (_of_class("StructureScale"), "a structure's constants"),
    },
}


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
    >>> check_object("MSSLRegressor", {"coef_": np.zeros((2, 3)), "intercept_": np.zeros(2)})
    Traceback (most recent call last):
    mssl.exceptions.ModelFileError: tasks_ of MSSLRegressor is missing
    """
    _check_complete(name, state)
    sizes: dict[str, int] = {}
    for attribute in state:
        value = state[attribute]
        if value is None and attribute in _OPTIONAL:
            continue
        where = f"{attribute} of {name}"
        own = _FIELDS.get(name, {}).get(attribute)  # a class may keep something else under a name
        rule = own or _VALUES.get(attribute)
        if rule is not None and not rule[0](value):
            raise ModelFileError(f"{where} is not {rule[1]}")
        if own is not None:
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
    if fitted is not None and not _of_class("Fitted")(fitted):
        raise ModelFileError(f"fitted_ of {name} is not what a fit leaves")
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
        check_object(type(of).__name__, vars(of))
        parts |= {f.name: f.metadata for f in fields(of)}
        state |= vars(of)
    if fitted.errors is not None:
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
            word = kind.removesuffix(" | None")
            rule = _PROMISES.get(word)
            if (
                rule is None
                and cls.__name__ in ("Fitted", "Input")
                and word not in ("Labels", "Any")
                and word.isalpha()
            ):
                rule = (_of_class(word), f"of the class {word}")
            if rule is None or name not in state or (value is None and kind.endswith(" | None")):
                continue
            if not rule[0](value):
                raise ModelFileError(f"{name} of {cls.__name__} is not {rule[1]}")
            if cls.__name__ in _FINITE and not isinstance(value, str) and not np.isfinite(value).all():
                raise ModelFileError(f"{name} of {cls.__name__} holds what is no finite number")


def _check_complete(name: str, state: Mapping[str, Any]) -> None:
    """Raise where an attribute is there without those that are used with it."""
    for known, others in _TOGETHER.items():
        for attribute in others:
            if known in state and attribute not in state:
                raise ModelFileError(f"{attribute} of {name} is missing")


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
