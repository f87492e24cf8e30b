"""What a fit leaves: the learned numbers of an estimator, in the user's units, as one frozen object.

The fields below are the one list of them. :class:`FittedAttributes` reads them for users as ``coef_``,
``noise_variance_``, …: each is the field of that name. Model files hold them by name, and :mod:`mssl.files.checks`
compares what a file holds with the shapes that are given here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import numpy as np
from scipy.special import ndtri

from mssl._renamed import tell_new_name
from mssl._typing import Array, Labels, TaskMatrix
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
    """What an array is like: a letter for each axis, and whether all its numbers are finite.

    K tasks, d features, e columns before maps, q quantiles, 2. Within one ``Fitted`` a letter is one number.
    """
    return {"shape": shape, "finite": finite}


@dataclass(frozen=True, eq=False)
class Input:
    """How X and the tasks are read.

    Attributes
    ----------
    layout : {"long", "shared", "aligned"}
        Of the fit.
    tasks, features, classes : ndarrays of shape (K,), (d,) and (2,)
        Names of tasks and features, and the labels of a classifier.
    encoder, maps, target : FeatureEncoder, FeatureBlocks and TargetTransform, or None
        How columns become numbers and features, and the scale of the targets.
    base_rates : ndarray of shape (K,) or None
        Share of the second class in each task, drawn towards that of all.
    column_quantiles : ndarray of shape (q, e) or None
        Mean and quantiles of the encoded columns.
    ignored_columns : tuple of str
        Columns of groups and times, which are no features.
    has_offset : bool
        Whether the fit was given offsets.
    table : TableSchema or None
        The columns of the table that the model was fitted to.
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
    """All that a fit leaves.

    Attributes
    ----------
    input : Input
        How X and the tasks are read.
    loss : Loss
        Of one observation.
    coef, intercept : ndarrays of shape (K, d) and (K,)
        Weights, posterior means where there is a posterior.
    noise_variance : ndarray of shape (K,) or None
        Of the noise, dispersions of other losses than least squares.
    mean_coef, mean_variance : ndarray of shape (d,) or None, and float or None
        The mean that all tasks share, and its variance.
    unseen, unseen_coef, unseen_intercept : {"mean", "error"}, ndarray of shape (d,) or None, float or None
        What is done with tasks that were not there, and what predicts them.
    precision, covariance, partial_correlation : matrices (K, K) or None
        Of what is related.
    residual_covariance : ndarray of shape (K, K) or None
        Of the errors of tasks on one occasion.
    graph : TaskGraph or None
        With the evidence on relations.
    errors : dict or LaterErrors or None
        Standard errors ("std"), degrees of freedom ("dof"), "log_likelihood" and "rows".
    feature_relevance : ndarray of shape (d,) or None
        Prior variances of the features' weights, of mean 1.
    result : FitResult or None
        Of the solver.
    ensemble : Ensemble or None
        The posterior of a Bayesian fit.
    """

    input: Input
    loss: Loss
    coef: Array | None = field(metadata=_of("Kd"))  # None of seasonal means, which have no weights
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
        """One of the errors' figures; None where the model has none."""
        found = self.errors.resolve() if isinstance(self.errors, Later) else self.errors
        return None if found is None else found[name]

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
        """Of the training rows."""
        value: float | None = self.figure("log_likelihood")
        return value

    @property
    def objective(self) -> float | None:
        """F at the end."""
        return None if self.result is None else self.result.objective

    @property
    def history(self) -> list[Record] | None:
        """One record a round."""
        return None if self.result is None else self.result.history

    @property
    def n_iter(self) -> int | None:
        """Rounds, or computations of the evidence."""
        if self.ensemble is not None:
            return int(sum(member.fit.n_iter for member in self.ensemble.members))
        return None if self.result is None else len(self.result.history)

    @property
    def task_covariance(self) -> TaskMatrix | None:
        """Covariance over tasks of the weights of a feature of relevance one, of Bayesian fits."""
        return None if self.ensemble is None else self.covariance

    @property
    def structure(self) -> str | None:
        """Name of the heaviest member."""
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
    """Weights of the type of the features, or doubles where the targets are too large or too small for it."""
    largest = max(np.abs(coef).max(initial=0.0), np.abs(intercept).max(initial=0.0))
    limits = np.finfo(dtype)
    kind = dtype if largest == 0 or limits.tiny / limits.eps <= largest <= limits.max else coef.dtype
    return coef.astype(kind, copy=False), intercept.astype(kind, copy=False)


def normal_ends(centre: Array, std: Array, level: float) -> tuple[Array, Array]:
    """Ends of the intervals that hold normal numbers with a probability."""
    half = float(ndtri(0.5 + level / 2)) * std
    return centre - half, centre + half


def of_version_2(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an estimator in a file of version 2, with what was learned put together."""
    if "coef_" not in state or "loss_" not in state:  # not fitted, or a search
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
    """A fitted attribute. Where nothing was learned under its name there is none, or it is None if it may be."""

    def __init__(self, *, none: bool = False) -> None:
        self.none = none

    def __set_name__(self, owner: type, name: str) -> None:
        self.field = name.removesuffix("_")

    @overload
    def __get__(self, model: None, owner: type) -> Self: ...
    @overload
    def __get__(self, model: FittedAttributes, owner: type) -> T: ...
    def __get__(self, model: FittedAttributes | None, owner: type) -> Self | T:
        if model is None:
            return self
        input_read = self.field in INPUT and (model._reading or model.fitted_.input)
        value = getattr(input_read or model.fitted_, self.field)
        if value is None and not self.none:
            raise AttributeError(f"this {type(model).__name__} has no {self.field}_")
        found: T = value
        return found

    def __set__(self, model: FittedAttributes, value: T) -> None:
        change: dict[str, Any] = {self.field: value}
        if self.field in INPUT:
            model._note(**change)
        else:
            model.fitted_ = replace(model.fitted_, **change)


class FittedAttributes:
    """What users read of a fitted model; each attribute is one of ``fitted_``."""

    fitted_: Fitted
    # The input of a fit that has not ended; what the last one left stays until then.
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
        """Standard deviations of the noise: the roots of ``noise_variance_``, which take their place."""
        tell_new_name("noise_", type(self).__name__, "`noise_variance_`, its square")
        return np.sqrt(self.noise_variance_)

    def _note(self, **known: Any) -> None:
        """Keep what was found out about the input."""
        if self._reading is None:
            self.fitted_ = replace(self.fitted_, input=replace(self.fitted_.input, **known))
        else:
            self._reading = replace(self._reading, **known)

    def _end(self, **learned: Any) -> None:
        """Keep what a fit has learned of the input that was read."""
        self.fitted_ = Fitted(self._reading or Input(), **learned)
        del self._reading
        vars(self).pop("moments_", None)  # of earlier calls
