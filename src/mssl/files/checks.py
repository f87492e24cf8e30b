"""What a model file may hold: the classes of its objects, and types, shapes and values of their attributes.

A file with a valid checksum can still hold invalid objects. Later uses of a fitted object, such as prediction, drawings
and reports, rely on the types and shapes of its attributes. These follow from annotations of its class or from the name
of the attribute. No code relies on attributes with other names.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from importlib import import_module
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import BaseCrossValidator

from mssl._typing import Array, Index, Labels, TaskMatrix
from mssl.exceptions import ModelFileError
from mssl.files.tables import TableSchema
from mssl.graph.task_graph import TaskGraph
from mssl.metrics import HeldOut
from mssl.model.task_matrix import DENSE_UP_TO

WITH_PARAMETERS = (BaseEstimator, BaseCrossValidator)
"""Classes whose objects have parameters and fitted attributes; other dataclasses have only their fields."""
# The classes that files may contain, by module. The word of a class in files is its name in snake case; _WORDS has the
# words of classes that were renamed.
_CLASSES = {
    "mssl.estimators": "MSSLRegressor MSSLClassifier MultiTaskGLM MultiTaskClassifier",
    "mssl.estimators.baselines": "AverageModel BestMember Climatology",
    "mssl.estimators.bayesian": "BayesianMSSLRegressor BayesianMSSLClassifier",
    "mssl.estimators.fitted": "Fitted Input",
    "mssl.evidence.choice": "Ensemble Member",
    "mssl.evidence.fit": "EvidenceFit Options Units JoinedTask",
    "mssl.evidence.posterior": "MeanPosterior DualPosterior SharedPosterior JointPosterior",
    "mssl.evidence.prior": "Prior Block Equal ARD Exchangeable Dense Known PerTask SharedNoise",
    "mssl.evidence.version_2": "Columns Hyper",
    "mssl.data.encoding": "ColumnSchema FeatureEncoder",
    "mssl.data.folds": "TaskKFold MovingWindowSplit TaskGroupKFold TaskBlockKFold TaskTimeSeriesSplit",
    "mssl.data.targets": "TargetTransform",
    "mssl.features": "FeatureBlocks Linear Spline Interactions",
    "mssl.features.maps": "Curves Transformed",
    "mssl.files.tables": "TableSchema",
    "mssl.glasso": "GraphicalLasso GraphicalLassoCV",
    "mssl.glasso.solver": "GraphicalLassoResult GlassoStatus",
    "mssl.graph": "TaskGraph",
    "mssl.graph.tests": "GraphEvidence Untested",
    "mssl.losses": "Calibration Gaussian Bernoulli Huber Poisson Gamma",
    "mssl.metrics": "HeldOut",
    "mssl.model_selection": "MSSLRegressorCV MSSLClassifierCV MultiTaskGLMCV StabilitySelection",
    "mssl.paper": "PaperMSSL PaperMSSLClassifier",
    "mssl.penalties": "L1 ElasticNet AdaptiveL1 MCP L21 Nuclear Dirty ClusterNorm",
    "mssl.solvers.alternation": "FitResult Record",
    "mssl.solvers.base": "Solver Status",
    "mssl.structures": "Independent FixedPrecision KnownEdges GraphLaplacian MeanRegularized Pooled SparsePrecision "
    "LatentSparsePrecision TaskCovariance Clustered",
    "mssl.structures.base": "StructureScale StructureStep",
    "mssl.structures.fixed": "OneRidge",
    "mssl.structures.latent": "LatentParts",
    # Steps of pipelines: transformers that hold only numbers, text and arrays.
    "sklearn.compose": "ColumnTransformer",
    "sklearn.decomposition": "PCA TruncatedSVD",
    "sklearn.feature_selection": "VarianceThreshold",
    "sklearn.impute": "SimpleImputer",
    "sklearn.pipeline": "Pipeline",
    "sklearn.preprocessing": "FunctionTransformer StandardScaler MinMaxScaler MaxAbsScaler RobustScaler Normalizer "
    "PowerTransformer QuantileTransformer PolynomialFeatures OneHotEncoder OrdinalEncoder",
}
_WORDS = {
    "Member": "ensemble_member",
    "Options": "evidence_options",
    "Units": "evidence_units",
    "Columns": "prior_columns",
    "Hyper": "hyperparameters",
    "MultiTaskGLMCV": "multi_task_glm_cv",
    "StructureScale": "frame",
    "Linear": "linear_map",
    "Spline": "spline_map",
    "Curves": "spline_curves",
    "Interactions": "interactions_map",
}
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # Word boundaries in a class name.


def word_of(name: str) -> str:
    """Return the word by which files name a class of mssl."""
    return _WORDS.get(name, _PARTS.sub("_", name).lower())


WORDS = {word_of(name): f"{home}.{name}" for home, names in _CLASSES.items() for name in names.split()}


def class_of(word: str) -> Any:
    """Return the class that a word names."""
    module, _, name = WORDS[word].rpartition(".")
    return getattr(import_module(module), name)


class _ClassesByName(dict[str, Any]):
    """The classes of ``WORDS`` by their names, imported when one is needed; annotations name them."""

    def __missing__(self, name: str) -> Any:
        return class_of(word_of(name))


@dataclass(frozen=True)
class _Rule:
    """Requirements of an attribute: type, one letter per axis, allowed texts, and whether numbers are finite."""

    kind: Any = Any
    shape: str = ""
    words: tuple[str, ...] = ()
    finite: bool = False


# Shapes of arrays that annotations do not give: K tasks, d features, c columns, m seasons, p penalties. Within one
# object each letter is a fixed number.
_SHAPES = {"means_": "K", "normals_": "Km", "location_": "K", "covariance_": "KK", "precision_": "KK", "W": "Kd"}
_SHAPES |= {"frequencies_": "pKK", "mean_frequency_": "KK", "intercepts": "K", "mean": "d", "precision": "KK"}
_LABELS = {"tasks_": "K", "feature_names_in_": "c", "seasons_": "m"}
_KNOWN = {name: _Rule(shape=shape, finite=True) for name, shape in _SHAPES.items()}
_KNOWN |= {name: _Rule(Labels, shape) for name, shape in _LABELS.items()}
_KNOWN |= {
    "task_column": _Rule(Hashable),
    "n_features_in_": _Rule(int),
    "graph_": _Rule(TaskGraph | None),
    "_held_out": _Rule(HeldOut | None),
    "table": _Rule(TableSchema | None),
    "member_": _Rule(Index, "K"),
    "reliability": _Rule(shape="K"),
}
_ERRORS = {  # The standard errors of a fit.
    "std": _Rule(Array | None, "Kd"),
    "dof": _Rule(Array | None, "K"),
    "log_likelihood": _Rule(float | None),
    "rows": _Rule(float | None),
}
_SEARCH = {"best_score_", "best_index_", "best_params_", "cv_results_", "n_splits_"}  # Either all or none are present.
# Classes whose numbers are all finite.
_FINITE = {"MeanPosterior", "DualPosterior", "SharedPosterior", "JointPosterior", "JoinedTask", "Units"}
_FINITE |= {"Curves", "Block", "ARD", "Exchangeable", "Dense", "Known", "PerTask", "SharedNoise"}


_DTYPES = {"f": "f", "i": "iu", "b": "b"}  # NumPy's dtype kinds of arrays that are annotated as one of these kinds.
_NUMBERS: dict[Any, Any] = {
    bool: bool | np.bool_,
    int: int | np.integer,
    float: int | float | np.integer | np.floating,
}


def _is(kind: Any, value: Any) -> bool:
    """Whether a value is of an annotated type; no int is negative."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is(part, value) for part in parts)
    if origin is np.ndarray:
        (entries,) = get_args(parts[1])
        plain = type(value) is np.ndarray
        return plain and (entries is Any or value.dtype.kind in _DTYPES[np.dtype(entries).kind])
    if origin in (list, tuple) and type(value) is origin:
        inside = parts[:1] * len(value) if origin is list or parts[-1] is Ellipsis else parts
        return len(inside) == len(value) and all(map(_is, inside, value))
    if kind == TaskMatrix:
        return (type(value) is np.ndarray or sparse.issparse(value)) and value.dtype.kind in "fb"
    if kind in _NUMBERS:
        truth = isinstance(value, bool | np.bool_)
        return isinstance(value, _NUMBERS[kind]) and truth == (kind is bool) and not (kind is int and value < 0)
    return kind is Any or isinstance(value, origin or kind)


@cache
def _rules(cls: Any) -> dict[str, _Rule]:
    """Return the rules for the attributes of a class, from the annotations of its fields and from names."""
    rules = dict(_KNOWN)
    of_fields = not issubclass(cls, WITH_PARAMETERS) and (hasattr(cls, "_fields") or is_dataclass(cls))
    fields = getattr(cls, "__dataclass_fields__", {})
    for name, kind in get_type_hints(cls, localns=_ClassesByName(), include_extras=True).items():
        if (of_fields or name.endswith("_")) and name != "table":
            rule, says = rules.get(name, _Rule()), dict(fields[name].metadata) if name in fields else {}
            says.setdefault("finite", rule.finite or cls.__name__ in _FINITE)
            rules[name] = replace(rule, kind=kind, **says)
    return rules


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
        if not _is(rule.kind, value):
            kind = rule.kind.__name__ if isinstance(rule.kind, type) else rule.kind
            raise ModelFileError(f"{where} is not of the kind {kind}")
        if rule.words and value not in rule.words:
            raise ModelFileError(f"{where} is not one of {', '.join(rule.words)}")
        if value is None or isinstance(value, str | bool):
            continue
        if rule.shape:
            _check_shape(where, value, rule.shape, sizes)
        if rule.shape and Labels in (rule.kind, *get_args(rule.kind)):
            _check_labels(where, value, unique=attribute != "features")
        elif rule.finite and (rule.shape or isinstance(value, np.ndarray) or _is(float, value)):
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
