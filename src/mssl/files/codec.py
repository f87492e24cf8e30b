"""Fitted objects as plain JSON values and arrays, and back, without ever executing anything from a file.

Five kinds of objects can be written: estimators (structures, penalties and splitters among them), losses, data classes,
named tuples and enumerations. Those of mssl are named by the words of ``WORDS``, which never change: when a class moves
or is renamed, its word stays and only the right-hand side of the table changes. Those of users are named by their
own class name, and are read only where the caller hands the class in. A file never decides what is imported.

Files of version 1 named classes by their module paths, files of version 2 held fitted attributes one by one. Where the
attributes of a class have changed since version n, the class has a class method ``_state_from_version_n(state)``, which
turns them into those of the next version.
"""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Iterable
from enum import Enum
from functools import cached_property
from importlib import import_module
from inspect import Parameter, getattr_static, signature
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import BaseCrossValidator

from mssl._validation import refused
from mssl.exceptions import ModelFileError
from mssl.files.checks import check_object, check_promises
from mssl.graph.tests import Later
from mssl.losses import Loss

VERSION = 3  # of the format that is written; versions up to it are read
WORDS = {
    "mssl_regressor": "mssl.estimators.MSSLRegressor",
    "mssl_classifier": "mssl.estimators.MSSLClassifier",
    "multi_task_glm": "mssl.estimators.MultiTaskGLM",
    "multi_task_classifier": "mssl.estimators.MultiTaskClassifier",
    "bayesian_mssl_regressor": "mssl.estimators.bayesian.BayesianMSSLRegressor",
    "bayesian_mssl_classifier": "mssl.estimators.bayesian.BayesianMSSLClassifier",
    "fitted": "mssl.estimators.fitted.Fitted",
    "fitted_input": "mssl.estimators.fitted.Input",
    "ensemble": "mssl.evidence.choice.Ensemble",
    "held_out": "mssl.metrics.HeldOut",
    "ensemble_member": "mssl.evidence.choice.Member",
    "evidence_fit": "mssl.evidence.fit.EvidenceFit",
    "evidence_options": "mssl.evidence.fit.Options",
    "evidence_units": "mssl.evidence.fit.Units",
    "joined_task": "mssl.evidence.fit.JoinedTask",
    "prior_columns": "mssl.evidence.version_2.Columns",
    "hyperparameters": "mssl.evidence.version_2.Hyper",
    "prior": "mssl.evidence.prior.Prior",
    "prior_block": "mssl.evidence.prior.Block",
    "equal_features": "mssl.evidence.prior.Equal",
    "relevances": "mssl.evidence.prior.ARD",
    "exchangeable": "mssl.evidence.kernels.Exchangeable",
    "dense_covariance": "mssl.evidence.kernels.Dense",
    "known_relation": "mssl.evidence.kernels.Known",
    "noise_per_task": "mssl.evidence.noise.PerTask",
    "shared_noise": "mssl.evidence.noise.SharedNoise",
    "mean_posterior": "mssl.evidence.posterior.MeanPosterior",
    "dual_posterior": "mssl.evidence.posterior.DualPosterior",
    "shared_posterior": "mssl.evidence.posterior.SharedPosterior",
    "joint_posterior": "mssl.evidence.posterior.JointPosterior",
    "calibration": "mssl.losses.Calibration",
    "average_model": "mssl.estimators.baselines.AverageModel",
    "best_member": "mssl.estimators.baselines.BestMember",
    "climatology": "mssl.estimators.baselines.Climatology",
    "mssl_regressor_cv": "mssl.model_selection.MSSLRegressorCV",
    "mssl_classifier_cv": "mssl.model_selection.MSSLClassifierCV",
    "multi_task_glm_cv": "mssl.model_selection.MultiTaskGLMCV",
    "stability_selection": "mssl.model_selection.StabilitySelection",
    "task_k_fold": "mssl.data.folds.TaskKFold",
    "moving_window_split": "mssl.data.folds.MovingWindowSplit",
    "task_group_k_fold": "mssl.data.folds.TaskGroupKFold",
    "task_block_k_fold": "mssl.data.folds.TaskBlockKFold",
    "task_time_series_split": "mssl.data.folds.TaskTimeSeriesSplit",
    "gaussian": "mssl.losses.Gaussian",
    "bernoulli": "mssl.losses.Bernoulli",
    "huber": "mssl.losses.Huber",
    "poisson": "mssl.losses.Poisson",
    "gamma": "mssl.losses.Gamma",
    "l1": "mssl.penalties.L1",
    "elastic_net": "mssl.penalties.ElasticNet",
    "adaptive_l1": "mssl.penalties.AdaptiveL1",
    "mcp": "mssl.penalties.MCP",
    "l21": "mssl.penalties.L21",
    "nuclear": "mssl.penalties.Nuclear",
    "dirty": "mssl.penalties.Dirty",
    "cluster_norm": "mssl.penalties.ClusterNorm",
    "independent": "mssl.structures.Independent",
    "one_ridge": "mssl.structures.fixed.OneRidge",
    "fixed_precision": "mssl.structures.FixedPrecision",
    "known_edges": "mssl.structures.KnownEdges",
    "graph_laplacian": "mssl.structures.GraphLaplacian",
    "mean_regularized": "mssl.structures.MeanRegularized",
    "pooled": "mssl.structures.Pooled",
    "sparse_precision": "mssl.structures.SparsePrecision",
    "latent_sparse_precision": "mssl.structures.LatentSparsePrecision",
    "latent_parts": "mssl.structures.latent.LatentParts",
    "task_covariance": "mssl.structures.TaskCovariance",
    "clustered": "mssl.structures.Clustered",
    "frame": "mssl.structures.base.StructureScale",
    "structure_step": "mssl.structures.base.StructureStep",
    "fit_result": "mssl.solvers.alternation.FitResult",
    "record": "mssl.solvers.alternation.Record",
    "status": "mssl.solvers.base.Status",
    "graphical_lasso": "mssl.glasso.GraphicalLasso",
    "graphical_lasso_cv": "mssl.glasso.GraphicalLassoCV",
    "graphical_lasso_result": "mssl.glasso.solver.GraphicalLassoResult",
    "glasso_status": "mssl.glasso.solver.GlassoStatus",
    "task_graph": "mssl.graph.TaskGraph",
    "graph_evidence": "mssl.graph.tests.GraphEvidence",
    "untested": "mssl.graph.tests.Untested",
    "feature_blocks": "mssl.features.FeatureBlocks",
    "linear_map": "mssl.features.Linear",
    "spline_map": "mssl.features.Spline",
    "spline_curves": "mssl.features.maps.Curves",
    "interactions_map": "mssl.features.Interactions",
    "transformed_map": "mssl.features.maps.Transformed",
    "table_schema": "mssl.files.tables.TableSchema",
    "column_schema": "mssl.data.encoding.ColumnSchema",
    "target_transform": "mssl.data.targets.TargetTransform",
    "feature_encoder": "mssl.data.encoding.FeatureEncoder",
    # Steps of pipelines: transformers that hold numbers, text and arrays alone.
    "pipeline": "sklearn.pipeline.Pipeline",
    "column_transformer": "sklearn.compose.ColumnTransformer",
    "function_transformer": "sklearn.preprocessing.FunctionTransformer",
    "standard_scaler": "sklearn.preprocessing.StandardScaler",
    "min_max_scaler": "sklearn.preprocessing.MinMaxScaler",
    "max_abs_scaler": "sklearn.preprocessing.MaxAbsScaler",
    "robust_scaler": "sklearn.preprocessing.RobustScaler",
    "normalizer": "sklearn.preprocessing.Normalizer",
    "power_transformer": "sklearn.preprocessing.PowerTransformer",
    "quantile_transformer": "sklearn.preprocessing.QuantileTransformer",
    "polynomial_features": "sklearn.preprocessing.PolynomialFeatures",
    "one_hot_encoder": "sklearn.preprocessing.OneHotEncoder",
    "ordinal_encoder": "sklearn.preprocessing.OrdinalEncoder",
    "simple_imputer": "sklearn.impute.SimpleImputer",
    "variance_threshold": "sklearn.feature_selection.VarianceThreshold",
    "pca": "sklearn.decomposition.PCA",
    "truncated_svd": "sklearn.decomposition.TruncatedSVD",
}
# What fitted models hold besides, for what is computed when it is asked for; files of mssl hold what it gives.
_INPUTS = (
    "mssl.estimators.errors.LaterErrors",
    "mssl.graph.tests.LazyEvidence",
    "mssl.graph.tests.Residuals",
    "mssl.graph.information.RelationInput",
    "mssl.graph.information.Occasions",
    "mssl.solvers.quadratic.GramQuadratic",
    "mssl.solvers.quadratic.DesignQuadratic",
    "mssl.data.design.Design",
    "mssl.data.design.DenseBlocks",
    "mssl.data.design.SparseBlocks",
)
_WORD_OF = {home.rpartition(".")[2]: word for word, home in WORDS.items()}
# Version 1 named classes by their paths of that time; a word is the class name in small letters with underscores.
_PATH_OF_VERSION_1 = re.compile(r"mssl(?:\.[a-z_]+){1,3}\.([A-Z][A-Za-z0-9]*)")
_WORD_OF_VERSION_1 = {word.replace("_", ""): word for word in WORDS}
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")  # names of classes that an error may quote as they are
_DEPTH = 60  # levels of nested values: models have far fewer, and a hostile file must not exhaust Python's stack
_ATTRIBUTE = re.compile(r"_?[a-z][a-zA-Z0-9_]*")  # attributes that a file may set
# Scikit-learn's callbacks belong to a run, and moments, as large as all Grams, to the rows: neither is part of a model.
_SKIPPED = re.compile(r"_skl_|_callback_|_parent_callback_|moments_$")
# Files that a later fit would read pickles from or write to, and how many processes it starts, belong to a run as well.
_RUN_PATHS = {"memory", "checkpoint"}
_MOST_JOBS = 1024  # more than machines have cores: joblib starts as many processes as it is told
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
_THIN_FROM = 2**14  # entries from which on a table of mostly zeros is written as its other entries alone
_MOST_FILLED = (
    2**30
)  # bytes of zeros that a file may stand for: 16 tables of 2000 tasks, and a bound for a hostile file
_DTYPE = re.compile(r"[<>|=][biufcUSmM][0-9]{1,4}(\[[a-zA-Z0-9]{1,6}\])?")
_STORED_KINDS = "biufcUSmM"  # NumPy's kinds whose bytes say all: no objects, no records
_WITH_PARAMETERS = (BaseEstimator, BaseCrossValidator, Loss)


class UnknownClassError(ModelFileError):
    """A file holds an object of a class that the caller has to hand in."""


class Encoder:
    """Turns values into JSON, collecting arrays; an array that occurs twice is collected once."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._places: dict[int, tuple[int, NDArray[Any]]] = {}  # with the array itself, so that its id stays its own
        self._user_classes: dict[str, type[Any]] = {}

    def encode(self, value: Any, value_path: str) -> Any:
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

    def _scalar(self, value: np.generic, value_path: str) -> Any:
        kind = next((name for name, known in _SCALARS.items() if type(value) is known), None)
        if kind is None:
            return {"#": "item", "v": self._array(np.asarray(value), value_path)}
        plain = value.item()
        return {"#": "scalar", "kind": kind, "v": self.encode(plain, value_path)}

    def _array(self, value: NDArray[Any], value_path: str) -> Any:
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
            kept = np.flatnonzero(_bits(flat))
            self.arrays += [kept, flat[kept]]
        return {"#": "thin", "shape": list(value.shape), "order": order, "v": place}

    def _object(self, value: Any, value_path: str) -> Any:
        cls = type(value)
        if not _is_storable(cls):
            raise ModelFileError(
                f"{value_path} is {cls.__module__}.{cls.__qualname__}, which a model file cannot hold; only "
                "estimators, structures, penalties, losses, splitters, numbers, text and arrays can be saved. Replace "
                "it before saving."
            )
        word = _WORD_OF.get(cls.__name__)
        if word is not None and _class_of(word) is cls:
            name = {"class": word}
        else:
            self._check_user_class(cls, value, value_path)
            name = {"user_class": cls.__name__}
        if isinstance(value, Enum):
            return {"#": "enum", **name, "v": value.name.lower()}
        return {"#": "object", **name, "v": {k: self.encode(v, f"{value_path}.{k}") for k, v in _state(value)}}

    def _check_user_class(self, cls: type[Any], value: Any, value_path: str) -> None:
        """Raise where an object could be written to a file but not be read from it."""
        if self._user_classes.setdefault(cls.__name__, cls) is not cls:
            raise ModelFileError(
                f"{value_path} is of a second class named {cls.__name__}; a model file tells classes apart by "
                "their names. Rename one of them."
            )
        lost = sorted(_parameters(cls) - dict(_state(value)).keys()) if issubclass(cls, _WITH_PARAMETERS) else []
        if lost:
            raise ModelFileError(
                f"{value_path} is a {cls.__name__} without the attribute {lost[0]!r}, which is a parameter of "
                "its class. Keep every parameter under its own name in __init__, as scikit-learn's estimators do."
            )


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers or truth values as whole numbers that are 0 for 0 alone, not for −0."""
    return values.view(f"u{values.dtype.itemsize}")


def _is_thin(value: NDArray[Any]) -> bool:
    """Whether a table has so few entries other than zero that they and their places take less than half its bytes."""
    if value.ndim != 2 or value.size < _THIN_FROM or value.dtype not in (np.dtype(float), np.dtype(bool)):
        return False
    entries = np.count_nonzero(_bits(value.ravel("K")))
    return bool(2 * entries * (value.dtype.itemsize + 8) < value.nbytes)


def _is_storable(cls: type[Any]) -> bool:
    """Whether objects of a class are of one of the five kinds."""
    named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return named_tuple or issubclass(cls, (Enum, *_WITH_PARAMETERS)) or dataclasses.is_dataclass(cls)


def _class_of(word: str) -> type[Any]:
    module, _, name = WORDS[word].rpartition(".")
    cls: type[Any] = getattr(import_module(module), name)
    return cls


def skops_types() -> list[str]:
    """The types that a model of this package is made of, for the argument ``trusted`` of ``skops.io.load``.

    skops has no list that other packages can add their types to, so that this one is handed in. Scikit-learn's
    transformers in a pipeline are known to skops.

    Returns
    -------
    list of str
        Names of classes with their modules; a class of your own is added to them.

    Examples
    --------
    >>> import mssl, skops.io  # doctest: +SKIP
    >>> skops.io.dump(model, "model.skops")  # doctest: +SKIP
    >>> model = skops.io.load("model.skops", trusted=mssl.skops_types())  # doctest: +SKIP
    """
    classes = (_class_of(word) for word, home in WORDS.items() if home.startswith("mssl."))
    return [*(f"{cls.__module__}.{cls.__qualname__}" for cls in classes), *_INPUTS]


def belongs_to_run(name: str, value: Any) -> bool:
    """Whether a parameter names files to read or write (a number does not), or asks for more processes than can be."""
    if name == "n_jobs":
        return value is not None and not (isinstance(value, int | np.integer) and value <= _MOST_JOBS)
    return name in _RUN_PATHS and not (value is None or isinstance(value, int | float))


def _parameters(cls: type[Any]) -> set[str]:
    """Names of the parameters of a class, other than ``*args`` and ``**kwargs``."""
    if cls.__init__ is object.__init__:
        return set()
    open_ended = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return {name for name, parameter in signature(cls).parameters.items() if parameter.kind not in open_ended}


def _state(value: Any) -> list[tuple[str, Any]]:
    """Name and value of everything that makes up an object of one of the known kinds."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return [
        (name, None if belongs_to_run(name, content) else content)
        for name, content in vars(value).items()
        if not _SKIPPED.match(name) and not isinstance(getattr_static(type(value), name, None), cached_property)
    ]


class Decoder:
    """The inverse of :class:`Encoder`; whatever does not fit raises ``ModelFileError``.

    Parameters
    ----------
    arrays : list of ndarray
        The arrays that the JSON refers to by number.
    version : {1, 2, 3}
        Version of the file's format.
    classes : iterable of type
        Classes of the user that the file may hold objects of.
    """

    def __init__(self, arrays: list[NDArray[Any]], version: int = VERSION, classes: Iterable[type[Any]] = ()) -> None:
        self.arrays = arrays
        self.version = version
        self._user_classes = {cls.__name__: cls for cls in classes}
        self._used: set[int] = set()
        self._thin: dict[int, NDArray[Any]] = {}

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

    def _read_dtype(self, value: dict[str, Any], depth: int) -> np.dtype[Any]:
        if type(value["v"]) is not str or not _DTYPE.fullmatch(value["v"]):
            raise ModelFileError("the header holds a type of numbers that is none.")
        return np.dtype(value["v"])

    def _read_number_type(self, value: dict[str, Any], depth: int) -> type[Any]:
        return self._read_dtype(value, depth).type

    def _read_slice(self, value: dict[str, Any], depth: int) -> slice:
        ends = self._items(value["v"], depth)
        if len(ends) != 3 or not all(end is None or type(end) is int for end in ends):
            raise ModelFileError("the header holds a slice that is none.")
        return slice(*ends)

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

    def _read_thin(self, value: dict[str, Any], depth: int) -> NDArray[Any]:
        """A table of mostly zeros from the places and values of its other entries."""
        place, shape = value["v"], tuple(int(size) for size in value["shape"])
        if place in self._thin:
            return self._thin[place]
        kept, entries = (self._read_array({"v": at}, depth) for at in (place, place + 1))
        size = math.prod(shape)
        filled = sum(table.nbytes for table in self._thin.values()) + size * entries.dtype.itemsize
        if min(shape) < 0 or filled > _MOST_FILLED:
            raise ModelFileError(f"a table of mostly zeros has the shape {shape}, which is too large.")
        in_range = kept.dtype == np.int64 and np.all((kept >= 0) & (kept < size))
        if not in_range or kept.ndim != 1 or kept.shape != entries.shape:
            raise ModelFileError("the entries of a table of mostly zeros do not fit it.")
        table = np.zeros(size, dtype=entries.dtype)
        table[kept] = entries
        self._thin[place] = table.reshape(shape, order="F" if value["order"] == "F" else "C")
        return self._thin[place]

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
        cls = self._class(value)
        if not issubclass(cls, Enum):
            raise ModelFileError(f"{cls.__name__} is no enumeration.")
        return {member.name.lower(): member for member in cls}[value["v"].lower()]

    def _read_object(self, value: dict[str, Any], depth: int) -> Any:
        cls = self._class(value)
        state = {name: self.decode(content, depth) for name, content in value["v"].items()}
        for version in range(self.version, VERSION):
            if hasattr(cls, f"_state_from_version_{version}"):
                state = getattr(cls, f"_state_from_version_{version}")(state)
        if "user_class" not in value:
            check_object(cls.__name__, state)
        if issubclass(cls, tuple) or dataclasses.is_dataclass(cls):
            if "user_class" not in value:
                check_promises(cls, state)
            return cls(**state)
        if not issubclass(cls, _WITH_PARAMETERS):
            raise ModelFileError(f"{cls.__name__} is no kind of object that a model holds.")
        return _with_parameters(cls, state)

    def _class(self, value: dict[str, Any]) -> type[Any]:
        """The class that an entry names: a word of the table, or a class that the caller handed in."""
        if "user_class" in value:
            name = str(value["user_class"])
            if name not in self._user_classes:
                raise _unknown_class(name)
            return self._user_classes[name]
        word = value["class"]
        if self.version == 1:
            path = _PATH_OF_VERSION_1.fullmatch(word)
            word = _WORD_OF_VERSION_1.get(path[1].lower()) if path else None
        if word not in WORDS:
            raise ModelFileError(
                f"the file names the class {str(value['class'])[:80]!r}, which is none of mssl's; it may come from a "
                "newer version."
            )
        return _class_of(word)

    def _items(self, value: Any, depth: int) -> list[Any]:
        if not isinstance(value, list):
            raise ModelFileError("a list in the header is none.")
        return [self.decode(item, depth) for item in value]


_TAGS = tuple(name.removeprefix("_read_") for name in vars(Decoder) if name.startswith("_read_"))


def _unknown_class(name: str) -> ModelFileError:
    if not _PLAIN_NAME.fullmatch(name):
        return ModelFileError(f"the file names the class {name[:80]!r}, which is no name.")
    return UnknownClassError(
        f"holds an object of the class {name[:80]}, which is not part of mssl. Hand the class in: "
        f"mssl.load(path, classes=[{name[:80]}])."
    )


def check_classes(classes: Iterable[type[Any]]) -> list[type[Any]]:
    """The classes that a user hands in for reading; each has to be of a kind that a file can hold."""
    given = list(classes) if np.iterable(classes) else [classes]
    names = [getattr(cls, "__name__", "") for cls in given]
    for cls in given:
        if not isinstance(cls, type) or not _is_storable(cls):
            raise refused("classes", cls, "give a list of classes of estimators, structures, penalties or losses")
        if names.count(cls.__name__) > 1:
            raise refused("classes", given, "give classes of different names", f"Two are named {cls.__name__}.")
    return given


def _with_parameters(cls: type[Any], state: dict[str, Any]) -> Any:
    """An estimator, splitter or loss with these parameters and further attributes.

    A parameter that the class got after the file was written has its default; old names are read as ever.
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
            f"{_MOST_JOBS} processes; no model file may. Set it to None before saving, and again after loading"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # no user can spell a file anew
        model = cls(**{name: content for name, content in state.items() if name in parameters})
    vars(model).update(further)
    return model


def _hides(cls: type[Any], name: str) -> bool:
    """Whether an attribute of that name would hide a method or a property of the class."""
    found = getattr_static(cls, name, None)
    return callable(found) or hasattr(type(found), "__get__")
