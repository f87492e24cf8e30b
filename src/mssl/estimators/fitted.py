"""Results of fits: the learned numbers of an estimator, in the user's units, as one frozen object.

The fields of :class:`Input` and :class:`Fitted` are the only list of these numbers. :class:`FittedAttributes` shows
each field to users under its name with an underscore, such as ``coef_`` or ``noise_variance_``. Model files store the
fields by name, and :mod:`mssl.files.checks` compares the content of a file with the shapes in this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import validate_data

from mssl._renamed import tell_new_name
from mssl._typing import Array, Labels, TaskMatrix
from mssl.data.columns import column_quantiles
from mssl.data.inputs import feature_labels
from mssl.data.layouts import TaskData
from mssl.graph.task_graph import TaskGraph
from mssl.graph.tests import Later
from mssl.losses import Loss
from mssl.solvers.alternation import FitResult, Record

if TYPE_CHECKING:
    from mssl.data.encoding import FeatureEncoder
    from mssl.data.targets import TargetTransform
    from mssl.evidence.choice import Ensemble
    from mssl.features import FeatureBlocks

T = TypeVar("T")


def _of(shape: str, *, finite: bool = True) -> dict[str, Any]:
    """Metadata of an array: one letter per axis, and whether all its numbers must be finite.

    The letters are K for tasks, d for features, e for columns before maps, q for quantiles, and 2 for the number 2.
    Within one ``Fitted`` every letter stands for one number.
    """
    return {"shape": shape, "finite": finite}


@dataclass(frozen=True, eq=False)
class Input:
    """Everything that is needed to read X and the tasks.

    Attributes
    ----------
    layout : {"long", "shared", "aligned"}
        Layout of the training data.
    tasks, features, classes : ndarrays of shape (K,), (d,) and (2,)
        Names of tasks and features, and the labels of a classifier.
    encoder, maps, target : FeatureEncoder, FeatureBlocks and TargetTransform, or None
        The encoder of columns, the maps into features, and the transform of the targets.
    base_rates : ndarray of shape (K,) or None
        Share of the second class in each task, shrunk towards the share in all tasks.
    column_quantiles : ndarray of shape (q, e) or None
        Mean and quantiles of the encoded columns.
    ignored_columns : tuple of str
        Columns of groups and times, which are not features.
    has_offset : bool
        Whether the model was fitted with offsets.
    table : TableSchema or None
        The columns of the table to which the model was fitted.
    """

    layout: str = field(default="", metadata={"words": ("long", "shared", "aligned")})
    tasks: Labels | None = field(default=None, metadata=_of("K"))
    features: Labels | None = field(default=None, metadata=_of("d"))
    classes: Labels | None = field(default=None, metadata=_of("2"))
    encoder: FeatureEncoder | None = None
    maps: FeatureBlocks | None = None
    target: TargetTransform | None = None
    base_rates: Array | None = field(default=None, metadata=_of("K"))
    column_quantiles: Array | None = field(default=None, metadata=_of("qe", finite=False))
    ignored_columns: tuple[str, ...] = ()
    has_offset: bool = False
    table: Any = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """All results of a fit.

    Attributes
    ----------
    input : Input
        Everything that is needed to read X and the tasks.
    loss : Loss
        The loss of one observation.
    coef, intercept : ndarrays of shape (K, d) and (K,)
        Weights and intercepts; posterior means for Bayesian fits.
    noise_variance : ndarray of shape (K,) or None
        Noise variances; dispersions for losses other than least squares.
    mean_coef, mean_variance : ndarray of shape (d,) or None, and float or None
        The mean that all tasks share, and its variance.
    unseen, unseen_coef, unseen_intercept : {"mean", "error"}, ndarray of shape (d,) or None, float or None
        Treatment of tasks that the training data do not have, and the weights and the intercept that predict them.
    precision, covariance, partial_correlation : matrices (K, K) or None
        Precision, covariance and partial correlations of the tasks' weights or residuals.
    residual_covariance : ndarray of shape (K, K) or None
        Covariance of the errors of tasks on one occasion.
    graph : TaskGraph or None
        The graph, with the evidence on relations.
    errors : dict or LaterErrors or None
        Standard errors ("std"), degrees of freedom ("dof"), "log_likelihood" and "rows".
    feature_relevance : ndarray of shape (d,) or None
        Prior variances of the features' weights, with mean 1.
    result : FitResult or None
        Result of the solver.
    ensemble : Ensemble or None
        The posterior of a Bayesian fit.
    """

    input: Input
    loss: Loss
    coef: Array | None = field(metadata=_of("Kd"))  # None for seasonal means
    intercept: Array = field(metadata=_of("K"))
    noise_variance: Array | None = field(default=None, metadata=_of("K"))
    mean_coef: Array | None = field(default=None, metadata=_of("d"))
    mean_variance: float | None = None
    unseen: str = field(default="error", metadata={"words": ("mean", "error")})
    unseen_coef: Array | None = field(default=None, metadata=_of("d"))
    unseen_intercept: float | None = None
    precision: TaskMatrix | None = field(default=None, metadata=_of("KK"))
    covariance: TaskMatrix | None = field(default=None, metadata=_of("KK"))
    partial_correlation: TaskMatrix | None = field(default=None, metadata=_of("KK"))
    residual_covariance: Array | None = field(default=None, metadata=_of("KK"))
    graph: TaskGraph | None = None
    errors: dict[str, Any] | Later[dict[str, Any]] | None = None
    feature_relevance: Array | None = field(default=None, metadata=_of("d"))
    result: FitResult | None = None
    ensemble: Ensemble | None = None

    def figure(self, name: str) -> Any:
        """One entry of ``errors``; None if the model has no errors."""
        errors = self.errors.resolve() if isinstance(self.errors, Later) else self.errors
        return None if errors is None else errors[name]

    @property
    def coef_std(self) -> Array | None:
        """Standard errors of the weights given graph and noise, or posterior standard deviations, (K, d)."""
        std: Array | None = self.figure("std")
        return std

    @property
    def effective_dof(self) -> Array | None:
        """Degrees of freedom that the weights of each task use, (K,)."""
        dof: Array | None = self.figure("dof")
        return dof

    @property
    def log_likelihood(self) -> float | None:
        """Log-likelihood of the training rows."""
        value: float | None = self.figure("log_likelihood")
        return value

    @property
    def objective(self) -> float | None:
        """Value of F at the end of the fit."""
        return None if self.result is None else self.result.objective

    @property
    def history(self) -> list[Record] | None:
        """One record per round of the fit."""
        return None if self.result is None else self.result.history

    @property
    def n_iter(self) -> int | None:
        """Number of rounds; for Bayesian fits the number of computations of the evidence."""
        if self.ensemble is not None:
            return int(sum(member.fit.n_iter for member in self.ensemble.members))
        return None if self.result is None else len(self.result.history)

    @property
    def task_covariance(self) -> TaskMatrix | None:
        """Covariance over tasks of the weights of a feature with relevance one; None unless the fit is Bayesian."""
        return None if self.ensemble is None else self.covariance

    @property
    def structure(self) -> str | None:
        """Name of the member with the largest weight."""
        return None if self.ensemble is None else self.ensemble.members[0].name

    @property
    def evidence(self) -> float | None:
        """Log evidence of the member with the largest weight."""
        return None if self.ensemble is None else self.ensemble.members[0].fit.log_evidence

    @property
    def candidates(self) -> list[tuple[str, float, float]] | None:
        """Every candidate: name, mean log density of held-out rows, weight."""
        return None if self.ensemble is None else self.ensemble.judged


INPUT = {f.name for f in fields(Input)}
LEARNED = {f.name for f in fields(Fitted)} - {"input"}
_DERIVED = {name for name, value in vars(Fitted).items() if isinstance(value, property)}


def typed(coef: Array, intercept: Array, dtype: Any) -> tuple[Array, Array]:
    """Convert weights to the type of the features, or leave them as doubles if that type cannot hold them."""
    largest = max(np.abs(coef).max(initial=0.0), np.abs(intercept).max(initial=0.0))
    limits = np.finfo(dtype)
    kind = dtype if largest == 0 or limits.tiny / limits.eps <= largest <= limits.max else coef.dtype
    return coef.astype(kind, copy=False), intercept.astype(kind, copy=False)


def normal_ends(centre: Array, std: Array, level: float) -> tuple[Array, Array]:
    """Ends of the central intervals that hold normal numbers with probability ``level``."""
    half = float(ndtri(0.5 + level / 2)) * std
    return centre - half, centre + half


def of_version_2(state: dict[str, Any]) -> dict[str, Any]:
    """Attributes of an estimator from a file of version 2, whose fitted attributes become one ``Fitted``."""
    if "coef_" not in state or "loss_" not in state:  # an unfitted estimator, or a search
        return state
    known = {name: state[f"{name}_"] for name in INPUT | LEARNED if f"{name}_" in state}
    if state.get("noise_") is not None:
        known["noise_variance"] = state["noise_"] ** 2
    if "coef_std_" in state:
        known["errors"] = {"std": state["coef_std_"], "dof": state["effective_dof_"]}
        known["errors"] |= {"log_likelihood": None, "rows": None}
        known["unseen"] = "mean"
        ensemble = known["ensemble"]
        members = [replace(m, fit=replace(m.fit, loss=known["loss"])) for m in ensemble.members]
        known["ensemble"] = replace(ensemble, members=members)
    own = {name: known.pop(name) for name in INPUT & known.keys()}
    gone = {f"{name}_" for name in INPUT | LEARNED | _DERIVED | {"noise"}}
    kept = {name: value for name, value in state.items() if name not in gone}
    return kept | {"fitted_": Fitted(Input(**own), **known)}


class Of(Generic[T]):
    """Descriptor of a fitted attribute. A value of None raises AttributeError, unless the attribute may be None."""

    def __init__(self, *, none: bool = False) -> None:
        self.none = none

    def __set_name__(self, owner: type, name: str) -> None:
        self.field = name.removesuffix("_")

    def __get__(self, model: FittedAttributes | None, owner: type) -> T:
        if model is None:
            return self  # type: ignore[return-value]  # the class's own attribute is this descriptor
        input_read = self.field in INPUT and (model._reading or model.fitted_.input)
        value = getattr(input_read or model.fitted_, self.field)
        if value is None and not self.none:
            raise AttributeError(f"this {type(model).__name__} has no {self.field}_")
        result: T = value
        return result

    def __set__(self, model: FittedAttributes, value: T) -> None:
        change: dict[str, Any] = {self.field: value}
        if self.field in INPUT:
            model._note(**change)
        else:
            model.fitted_ = replace(model.fitted_, **change)


class FittedAttributes:
    """The fitted attributes of an estimator; each of them is a field of ``fitted_``."""

    fitted_: Fitted
    # The input of a fit in progress; the results of the last fit stay until it ends.
    _reading: Input | None = None

    coef_ = Of[Array]()
    intercept_ = Of[Array]()
    noise_variance_ = Of[Array]()
    mean_coef_ = Of[Array]()
    mean_variance_ = Of[float]()
    unseen_ = Of[str]()
    unseen_coef_ = Of[Array]()
    unseen_intercept_ = Of[float]()
    precision_ = Of[Any]()
    covariance_ = Of[Any](none=True)
    partial_correlation_ = Of[Any]()
    residual_covariance_ = Of[Any](none=True)
    task_covariance_ = Of[Array]()
    graph_ = Of[TaskGraph]()
    errors_ = Of[Any](none=True)
    coef_std_ = Of[Array | None](none=True)
    effective_dof_ = Of[Array | None](none=True)
    log_likelihood_ = Of[float | None](none=True)
    feature_relevance_ = Of[Array]()
    loss_ = Of[Loss]()
    result_ = Of[FitResult]()
    objective_ = Of[float]()
    n_iter_ = Of[int]()
    history_ = Of[list[Record]]()
    ensemble_ = Of[Any]()
    structure_ = Of[str]()
    evidence_ = Of[float]()
    candidates_ = Of[list[tuple[str, float, float]]]()

    layout_ = Of[str]()
    tasks_ = Of[Labels]()
    features_ = Of[Labels]()
    classes_ = Of[Labels]()
    encoder_ = Of[Any](none=True)
    maps_ = Of[Any](none=True)
    target_ = Of[Any](none=True)
    base_rates_ = Of[Array]()
    column_quantiles_ = Of[Array]()
    ignored_columns_ = Of[tuple[str, ...]]()
    has_offset_ = Of[bool]()
    table_ = Of[Any]()

    @property
    def noise_(self) -> Array:
        """Standard deviations of the noise, the roots of ``noise_variance_``; deprecated."""
        tell_new_name("noise_", type(self).__name__, "`noise_variance_`, its square")
        return np.sqrt(self.noise_variance_)

    def _remember_input(self, columns: Any, data: TaskData, **known: Any) -> None:
        """Begin a fit's input: the tasks, the columns, their encoder, and other facts, for checks of later calls.

        ``columns`` is an empty X with the columns of the input. It is None if the data are moments of chunks in the
        long layout.
        """
        features = feature_labels(data.feature_names, data.n_features)
        layout, quantiles = ("long", None) if columns is None else (data.layout, column_quantiles(data.X))
        self._reading = Input(layout, data.tasks, features, encoder=data.encoder, column_quantiles=quantiles, **known)
        if columns is None:
            self.n_features_in_ = data.n_features
            vars(self).pop("feature_names_in_", None)
            if data.feature_names is not None:
                self.feature_names_in_ = data.feature_names
        elif data.layout == "aligned":
            self.n_features_in_ = data.n_features if data.encoder is None else len(data.encoder.columns)
        else:
            validate_data(self, columns, skip_check_array=True)

    def _note(self, **known: Any) -> None:
        """Store facts about the input."""
        if self._reading is None:
            self.fitted_ = replace(self.fitted_, input=replace(self.fitted_.input, **known))
        else:
            self._reading = replace(self._reading, **known)

    def _end(self, **learned: Any) -> None:
        """Store the results of a fit, together with its input."""
        self.fitted_ = Fitted(self._reading or Input(), **learned)
        del self._reading
        vars(self).pop("moments_", None)  # moments of earlier calls
