"""What a model file's objects have to be like: arrays and values of known names, checked before anyone uses them.

A file with a fitting checksum can still hold anything. Whatever a fitted object is later used for (predicting, drawing,
writing a report) relies on the kinds and shapes of the attributes below; an attribute of another name is not relied on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from mssl.exceptions import ModelFileError
from mssl.model.task_matrix import DENSE_UP_TO

# The shape of each array: K tasks, d features, c columns of the input, m seasons, p
# penalties, q quantiles of e columns before maps. Within one object a letter is one number.
_NUMBERS = {
    "coef_": "Kd",
    "intercept_": "K",
    "base_rates_": "K",
    "noise_": "K",
    "mean_coef_": "d",
    "precision_": "KK",
    "covariance_": "KK",
    "residual_covariance_": "KK",
    "partial_correlation_": "KK",
    "means_": "K",
    "normals_": "Km",
    "location_": "K",
    "unseen_coef_": "d",
    "W": "Kd",
    "intercepts": "K",
    "mean": "d",
    "precision": "KK",
    "frequencies_": "pKK",
    "task_covariance_": "KK",
    "coef_std_": "Kd",
    "std": "Kd",
    "effective_dof_": "K",
    "dof": "K",
    "reliability": "K",
    "feature_relevance_": "d",
    "column_quantiles_": "qe",
    "mean_frequency_": "KK",
}
_ANY_NUMBERS = {"coef_std_", "std", "effective_dof_", "dof", "column_quantiles_", "reliability"}  # finite or not
_LABELS = {"tasks_": "K", "features_": "d", "feature_names_in_": "c", "classes_": "2", "seasons_": "m"}
_PLACES = {"member_": ("K", "d")}  # whole numbers of some shape, each below a bound
_OPTIONAL = {"precision_", "covariance_", "partial_correlation_", "noise_", "mean_coef_", "graph_", "precision", "mean"}
_OPTIONAL |= {"encoder_", "maps_", "target_", "residual_covariance_", "errors_", "std", "dof"}


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
    "objective_": (_is_number, "a number"),
    "mean_variance_": (_is_number, "a number"),
    "best_score_": (_is_number, "a number"),
    "unseen_intercept_": (_is_number, "a number"),
    "unseen_": (lambda value: value in ("mean", "error"), "'mean' or 'error'"),
    "ignored_columns_": (_each(_is_text, tuple), "a tuple of names"),
    "layout_": (lambda value: value in ("long", "shared", "aligned"), "the name of a layout"),
    "loss_": (_of_class("Loss"), "a loss"),
    "errors_": (_is_errors, "standard errors"),
    "history_": (_each(_of_class("Record"), list), "a list of records"),
    "result_": (_of_class("FitResult", "GraphicalLassoResult"), "a result"),
    "graph_": (_of_class("TaskGraph"), "a task graph"),
    "best_estimator_": (_of_class("BaseEstimator"), "an estimator"),
    "best_params_": (lambda value: type(value) is dict, "a dict"),
    "cv_results_": (lambda value: type(value) is dict, "a dict"),
    "encoder_": (_of_class("FeatureEncoder"), "an encoder"),
    "maps_": (
        lambda value: _of_class("FeatureBlocks")(value) or _each(_of_class("FeatureMap"), list)(value),
        "feature maps",
    ),
    "target_": (_of_class("TargetTransform"), "a scale of targets"),
    "curves_": (_each(_of_class("Curves"), list), "a list of curves"),
    "table_": (_of_class("TableSchema"), "a schema of columns"),
    "_held_out": (_is_held_out, "a held-out score"),
}
_TOGETHER = {  # what weights predict with, and what a search is summed up by
    "coef_": ("intercept_", "tasks_", "features_", "layout_", "loss_"),
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
    if type(state.get("errors_")) is dict:
        state = {**state, **state["errors_"]}
    sizes = {"2": 2}
    for attribute in sorted(state, key=lambda attribute: attribute != "coef_"):
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
            _check_labels(where, value, unique=attribute != "features_")
        elif attribute in _PLACES:
            _check_array(where, value, _PLACES[attribute][0], sizes)
    for attribute, (_, bound) in _PLACES.items():
        places = state.get(attribute)
        if places is not None and (
            places.dtype.kind != "i" or not np.all((places >= 0) & (places < sizes.get(bound, 0)))
        ):
            raise ModelFileError(f"{attribute} of {name} points outside of the features")
    if "n_features_in_" in state and not _counts_columns(state, sizes):
        raise ModelFileError(f"n_features_in_ of {name} is not the number of its columns")


def check_promises(cls: type[Any], state: Mapping[str, Any]) -> None:
    """Raise where a field of a dataclass or named tuple is not of the kind that its annotation says."""
    for part in cls.__mro__:
        for name, hint in vars(part).get("__annotations__", {}).items():
            value: Any = state.get(name)
            kind = str(getattr(hint, "__forward_arg__", hint))  # what named tuples keep of the word
            rule = _PROMISES.get(kind.removesuffix(" | None"))
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


def _counts_columns(state: Mapping[str, Any], sizes: dict[str, int]) -> bool:
    """Whether ``n_features_in_`` is the number of columns that features are made of, and of one that holds tasks."""
    count = state["n_features_in_"]
    if state.get("encoder_") is not None:
        columns = len(state["encoder_"].columns)
    elif type(state.get("maps_")).__name__ == "FeatureBlocks":
        columns = state["maps_"].n_features_in_
    else:
        columns = sizes.get("d", count)
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
