"""Base classes of all estimators, which read tasks, run the fit, keep its results, predict and score."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, ClassVar, Literal, NamedTuple, ParamSpec, Self, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from mssl._html import Html, tag
from mssl._typing import (
    Array,
    ArrayLike,
    BaseEstimator,
    CallbackSupportMixin,
    ClassifierMixin,
    ClassWeight,
    Given,
    Labels,
    Mask,
    RegressorMixin,
    SharedMean,
    with_callbacks,
)
from mssl._validation import check_choice, refused, warn
from mssl.data.distributed import predict_lazily
from mssl.data.encoding import read_features
from mssl.data.hints import hint_at_tasks, warn_of_exposure
from mssl.data.inputs import as_table, feature_labels, is_dask, is_missing, listing, read_offset, take_columns
from mssl.data.layouts import TaskData, check_target_sizes, read_tasks
from mssl.data.moments import Moments
from mssl.data.targets import TargetTransform, learn_transform, two_classes
from mssl.estimators.fitted import Fitted, typed
from mssl.estimators.gaps import fit_with_gaps
from mssl.estimators.moments import check_moments
from mssl.estimators.prediction import TaskPredictor, read_known
from mssl.estimators.spec import (
    FitSpec,
    TaskShape,
    coef_penalty_limit,
    errors_of,
    graph_penalty_limit,
    shallow_copy,
    warn_if_ordinary,
)
from mssl.estimators.summary import Summary, summarise
from mssl.exceptions import DataError, MSSLError, ParameterError, all_or_nothing
from mssl.features import FeatureBlocks, FeatureMap, Linear
from mssl.features.maps import are_scaled, fit_maps, is_linear
from mssl.graph.information import evidence_of
from mssl.graph.task_graph import TaskGraph, partial_correlation
from mssl.losses import MASS, NODES, Bernoulli, Forecast, Loss, resolve_loss
from mssl.metrics import deviance_score, scored_targets, task_means
from mssl.model.conditional import conditional
from mssl.model.task_matrix import with_diagonal
from mssl.solvers.alternation import FitResult, Record
from mssl.solvers.base import Solver, Status
from mssl.solvers.fit import Prepared

P = ParamSpec("P")
R = TypeVar("R")


def score_by_keyword(method: Callable[P, R]) -> Callable[P, R]:
    """Accept ``score(X, y, sample_weight, tasks)`` by position for one more release, with a warning."""

    @wraps(method)
    def score(*args: Any, **named: Any) -> R:
        kept, old = args[:3], args[3:]
        if old:
            warn(
                "score takes tasks and sample_weight by keyword; the next release removes them as positional arguments "
                "(sample_weight, then tasks).",
                FutureWarning,
            )
            named |= dict(zip(("sample_weight", "tasks"), old, strict=False))
        return method(*kept, **named)

    return score


class PenaltyLimits(NamedTuple):
    """The λ above which the graph is empty, and the γ above which all weights are zero."""

    graph_penalty: float
    coef_penalty: float


@dataclass(eq=False, repr=False, kw_only=True)
class TaskParameters:
    """Parameters of all estimators."""

    features: str | FeatureMap | Sequence[Any] = "linear"
    missing: str = "error"
    categorical_features: Sequence[str | int] | None = None
    task_column: Hashable | None = None
    tol: float = 1e-6
    max_iter: int = 200
    verbose: int = 0


class TaskEstimator(TaskParameters, TaskPredictor, CallbackSupportMixin, BaseEstimator):
    """Base class of all estimators, which reads the tasks."""

    loss: str | Loss
    target_transform: str | None = None  # for estimators without this parameter
    # Whether tasks without rows may take part in a fit; they are then predicted from what all tasks share.
    _takes_empty_tasks = False
    _numeric = True  # whether targets are numbers

    # For parameters that may be objects with parameters of their own: functions that turn a number or a word into one.
    _parts: ClassVar[Mapping[str, Callable[[Any], BaseEstimator]]] = {"loss": resolve_loss, "solver": Solver}

    def _part(self, name: str, value: Any) -> Any:
        """A parameter's value as a new object: a copy, or the object that a number or a word stands for."""
        return shallow_copy(value) if isinstance(value, BaseEstimator) else self._parts[name](value)

    def _hold(self, name: str) -> None:
        """Replace a parameter's value by a new object."""
        setattr(self, name, self._part(name, getattr(self, name)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; with ``deep`` also the parameters of their parts, such as ``graph_penalty__shrinkage``.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the parameters of parts.
        """
        params: dict[str, Any] = super().get_params(deep)
        for name in self._parts.keys() & params.keys() if deep else ():
            if not isinstance(params[name], BaseEstimator):
                with suppress(MSSLError):  # fit refuses invalid values.
                    inner = self._part(name, params[name]).get_params()
                    params |= {f"{name}__{key}": value for key, value in inner.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, including parameters of parts such as ``graph_penalty__shrinkage=0.5``.

        If the part was a number or a word, it becomes an object first.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        self
        """
        for name in {name.partition("__")[0] for name in params if "__" in name} & self._parts.keys():
            params[name] = self._part(name, params.get(name, getattr(self, name)))
        return super().set_params(**params)

    def _template(self) -> Self:
        """The estimator that reads the rows and is fitted to them; searches return the estimator that they tune."""
        return self

    def _loss(self) -> Loss:
        return resolve_loss(self.loss)

    def _fitted_on_workers(self, X: Any, y: ArrayLike, tasks: Given, sample_weight: Given, offset: Given) -> bool:
        """Fit a Dask collection on the workers that hold its partitions, and return whether X was one."""
        return False

    @property
    def _memory_limit(self) -> int | None:
        """The number of bytes that Grams may take, as the estimator's solver sets it; None for the default."""
        limit: int | None = self._part("solver", getattr(self, "solver", "auto")).memory_limit
        return limit

    def _moment_folds(self) -> int | None:
        """Number of folds that need separate moments; None for the moments of all rows."""
        return None

    def _fit_moments(self, moments: Moments) -> Self:
        """Fit to moments, by rows that have them."""
        check_moments(self)
        data = moments.together().to_tasks()
        self._remember_input(None, data)
        return self._fit_tasks(data, data.X, data.y)

    def _fit_tasks(self, data: TaskData, X: Any, y: ArrayLike) -> Self:
        """Fit to the tasks; X and y are passed to callbacks."""
        raise NotImplementedError

    def _read(
        self,
        X: Any,
        y: ArrayLike,
        tasks: Given,
        sample_weight: Given,
        offset: Given = None,
        groups: Given = None,
        order: Given = None,
    ) -> TaskData:
        """Read tasks with encoded and checked columns, and remember the input for checks of later calls.

        Groups and times that are columns of X are removed from it. The offset is absorbed into targets and weights.
        """
        X, groups, order, ignored = take_columns(X, groups, order)
        features = read_features(
            X, self.task_column, tasks, missing=self.missing, categorical=self.categorical_features
        )
        data = read_tasks(
            features, y, sample_weight=sample_weight, y_numeric=self._numeric, empty_tasks=self._takes_empty_tasks
        )
        if tasks is None and self.task_column is None:
            hint_at_tasks(data)
        self._remember_input(X, data, ignored_columns=ignored, has_offset=offset is not None)
        if offset is not None:
            data = self._absorb(data, offset, np.shape(y))
        return self._with_targets(data).with_occasions(groups, order)

    def _note_maps(self, data: TaskData, maps: FeatureBlocks | None) -> Labels:
        """Remember the maps of the tasks' columns, if any, and the names of the features; return these."""
        names = feature_labels(data.feature_names, data.n_features)
        names = names if maps is None else maps.get_feature_names_out(names)
        self._note(maps=maps, features=names)
        return names

    def _with_targets(self, data: TaskData) -> TaskData:
        """Check the targets and transform them to the form that the loss needs."""
        check_targets(data, self._loss())
        learned = None
        if self.target_transform is not None:
            if not self._loss().quadratic:
                allowed = "only the Gaussian loss allows a transform of the targets"
                raise refused("target_transform", self.target_transform, allowed, "Leave it at None.")
            learned = learn_transform(self.target_transform, data)
        self._note(target=learned)
        return data if learned is None else replace(data, y=learned.forward(data.y))

    def _absorb(self, data: TaskData, offset: Given, shape: tuple[int, ...]) -> TaskData:
        """Absorb an offset into targets and weights."""
        loss = self._loss()
        values = read_offset(offset, shape, loss.identity)
        rows = data.source_rows
        flat = values[rows, data.task_of_row] if values.ndim == 2 else values[rows]
        if self.target_transform is not None:
            allowed = "an offset and target_transform cannot be combined"
            raise refused("offset", "given", allowed, "Leave one of them out.")
        given = data.row_weights
        absorbed = loss.absorb(data.y, flat, given)
        if absorbed is None:
            raise refused("offset", "given", f"the {loss.name} loss takes none", "Leave it out.")
        if loss.discrete:
            warn_of_exposure(data, flat, given)
        y, weights = absorbed
        return replace(data, y=y, weights=data.weights if weights is given else weights)

    def _pass(self, context: Any, piece: str) -> bool:
        """Notify callbacks that a piece of the fit is done, and return whether one of them wants to stop the fit."""
        child = context.subcontext(task_name=piece)
        child.call_on_fit_task_begin(estimator=self)
        return bool(child.call_on_fit_task_end(estimator=self))

    def summary(self, level: float = 0.9) -> Summary:
        """Weights with standard errors or posterior intervals, noise, degrees of freedom, scores and relations.

        Parameters
        ----------
        level : float, default=0.9
            Probability of the weights' intervals.

        Returns
        -------
        Summary
            It prints as text and displays as HTML; its method ``to_frame()`` returns all weights.
        """
        return summarise(self, level)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.positive_only = getattr(self.loss, "name", self.loss) in ("poisson", "gamma")
        return tags

    def _repr_html_inner(self) -> str:
        return estimator_html(self, super()._repr_html_inner())


def noise_of_loss(value: Any, held: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the noise parameter of version 0.1.0, a standard deviation, into the loss's noise variance."""
    loss = shallow_copy(resolve_loss(held["loss"]))
    if not isinstance(value, str):
        variance = np.square(np.asarray(value, dtype=float))
        loss.noise_variance = variance if variance.ndim else float(variance)
    return {"loss": loss}


def scale_of_features(value: bool, held: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the parameter scale_features of version 0.1.0 into the parameter features."""
    features = held["features"]
    if value or not are_scaled(features):
        return {}
    if is_linear(features):
        return {"features": Linear(scale=False)}
    if isinstance(features, str):
        features = FeatureBlocks(features).parts()
    return {"features": [Linear(scale=False), *(part for part in features if not isinstance(part, Linear))]}


@dataclass(eq=False, repr=False, kw_only=True)
class MultiTaskEstimator(TaskEstimator):
    """Base class of the estimators that minimise F, which runs the alternation and keeps its results.

    Subclasses turn their parameters into a :class:`mssl.estimators.spec.FitSpec`.
    """

    shared_mean: SharedMean = "auto"
    fit_intercept: bool = True
    solver: str | Solver = "auto"
    warm_start: bool = False

    @abstractmethod
    def to_spec(self, data: TaskShape) -> FitSpec:
        """The specification of the fit: structure, penalty, loss and settings.

        Parameters
        ----------
        data : TaskData
            The tasks, of which the specification uses names and sizes only.
        """

    def from_spec(
        self,
        spec: FitSpec,
        data: TaskData,
        prepared: Prepared,
        result: FitResult,
        weights: tuple[Array, Array, Array] | None = None,
    ) -> Self:
        """Store the results of a fit, in the units of the data and of the parameters.

        A task without rows is predicted by the average weights of the tasks, and by their average level at their mean
        features. If the fit relies on a shared mean, the average is close to it. The average also suits fits in which
        the graph describes what the tasks have in common; a shared mean is then nearly zero.

        Parameters
        ----------
        spec : FitSpec
            The specification from :meth:`to_spec`.
        data : TaskData
            The tasks.
        prepared : Prepared
            The prepared data.
        result : FitResult
            The result of the fit.
        weights : tuple of ndarrays, optional
            Weights, intercepts and mean weights in the user's units, which replace those of the fit.

        Returns
        -------
        self
        """
        scale = 1.0 if spec.paper is None else spec.paper.precision
        unit = prepared.unit
        _check_units(unit, prepared.design.scales, result)
        covariance = result.structure.covariance
        covariance = None if covariance is None else covariance * scale * unit**2
        residual = None
        if spec.structure.relates == "residual" and covariance is not None:
            residual = error_inflation(result) * covariance
        W, level, mean = prepared.user_weights(result) if weights is None else weights
        coef, intercept = typed(W, level, data.dtype)
        unseen = coef.mean(axis=0)
        level = intercept + np.einsum("kd,kd->k", prepared.design.centres, coef - unseen)
        # An uncoupled task has a zero on the diagonal, and no partial correlation with any other task.
        proper = spec.structure.graph(result.structure)
        own = proper.diagonal()
        proper = with_diagonal(proper, np.where(own > 0, own, 1.0))
        evidence = evidence_of(prepared, result, spec.structure, data)
        self._end(
            loss=spec.loss,
            coef=coef,
            intercept=intercept,
            noise_variance=unit**2 * prepared.noise,
            mean_coef=mean,
            mean_variance=unit**2 * prepared.mean_variance,
            unseen="error" if self.shared_mean is False else "mean",
            unseen_coef=unseen,
            unseen_intercept=float(level.mean()),
            precision=spec.user_precision(prepared, result),
            covariance=covariance,
            partial_correlation=partial_correlation(proper),
            residual_covariance=residual,
            graph=TaskGraph.from_precision(proper, tasks=data.tasks.tolist(), evidence=evidence),
            errors=errors_of(spec, prepared, result),
            result=result,
        )
        return self

    def _map_features(self, data: TaskData, training: Mask | None = None) -> TaskData:
        """Map the columns of the tasks into the features that the parameter ``features`` describes.

        Parameters
        ----------
        data : TaskData
            Tasks whose features are columns.
        training : ndarray of bool of shape (N,), optional
            The flat rows from which maps may learn; all rows by default.
        """
        maps = None if is_linear(self.features) else fit_maps(self.features, data, training)
        names = self._note_maps(data, maps)
        if maps is None:
            return data
        return replace(data, X=maps.map_rows(data.X), feature_names=names, n_columns=data.n_features)

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: ArrayLike, tasks: Given = None, sample_weight: Given = None, offset: Given = None) -> Self:
        """Learn the weights of all tasks and the structure that relates the tasks.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features in one of three layouts: long (with ``task_column`` or ``tasks``), shared, aligned.
        y : array of shape (N,) or (n, K)
            Targets; in the (n, K) layouts NaN marks missing targets.
        tasks : array of shape (N,), optional
            Task of each row, instead of a task column.
        sample_weight : array of the shape of y or of its rows, optional
            Frequency weights. A row of weight 2 counts twice, and a row of weight 0 is ignored.
        offset : array of the shape of y or of its rows, optional
            Known numbers that are added to the linear predictor of each row: for counts the logarithm of the exposure
            (person-years, area, time). Predictions without an offset are then for offset 0, an exposure of 1.

        Returns
        -------
        self
        """
        X = as_table(X)
        if is_dask(X) and self._fitted_on_workers(X, y, tasks, sample_weight, offset):
            return self
        data = self._map_features(self._read(X, y, tasks, sample_weight, offset))
        self._fit_tasks(data, X, y)
        hint_at_other_scales(self, data)
        return self

    def _fit_tasks(self, data: TaskData, X: Any, y: ArrayLike) -> Self:
        spec = self.to_spec(data)
        gaps = spec.has_gaps(data)
        spec.check(data, gaps=gaps)
        if spec.structure.relates == "residual":
            warn_if_ordinary(spec, data)
        context = self._init_callback_context(max_subtasks=spec.settings.max_iter)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        warm = self._fit_of(data) if self.warm_start else None
        heard = bool(self.verbose) or "_skl_callbacks" in vars(self)  # Without listeners one call makes all rounds.
        monitor = self._monitor(context, spec.settings.max_iter) if heard else None
        if gaps:
            data, prepared, result = fit_with_gaps(spec, data, warm, monitor)
        else:
            prepared = spec.prepare(data)
            result = spec.fit(prepared, warm, monitor)
        self.from_spec(spec, data, prepared, result)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        if not result.status.good:
            warn_of_end(spec, result)
        return self

    def _fit_of(self, data: TaskData) -> FitResult | None:
        """The result of the last fit, if it had the same tasks, as a start of the next fit."""
        last: Fitted | None = vars(self).get("fitted_")
        return None if last is None or not np.array_equal(np.asarray(last.input.tasks), data.tasks) else last.result

    def _monitor(self, context: Any, max_rounds: int) -> Callable[[Record], bool]:
        announced = iter(range(max_rounds))

        def report(record: Record) -> bool:
            if self.verbose:
                print(
                    f"round {record.iteration:3d}  objective {record.objective:.8g}  "
                    f"gap {record.relative_gap:.1e}  edges {record.edges}",
                    file=sys.stderr,
                )
            # Fits with missing targets, and fits that restart, may have more rounds than callbacks expect.
            if next(announced, None) is None:
                return False
            return self._pass(context, "round")

        return report

    def limits(self, X: Any, y: ArrayLike, tasks: Given = None, sample_weight: Given = None) -> PenaltyLimits:
        """The smallest penalties with an empty graph (λ_max) and with all weights zero (γ_max) on these data.

        Parameters
        ----------
        X, y, tasks, sample_weight
            As for :meth:`fit`.
        """
        data = self._map_features(self._read(X, y, tasks, sample_weight))
        spec = self.to_spec(data)
        spec.check(data)
        prepared = spec.prepare(data)
        return PenaltyLimits(graph_penalty_limit(prepared, spec), coef_penalty_limit(prepared, spec))


def hint_at_other_scales(model: Any, data: TaskData) -> None:
    """Suggest another scale if all targets are positive and least squares predicts some of them to be negative."""
    if not model.loss_.quadratic or model.target_ is not None or not np.all(data.y > 0):
        return
    if np.all(model._predictor_of_tasks(data) >= 0):
        return
    log = "target_transform='log' or " if "target_transform" in model.get_params(deep=False) else ""
    warn(f"All targets are positive, and some are predicted negative; {log}loss='gamma' would suit them better.")


def warn_of_end(spec: FitSpec, result: FitResult) -> None:
    """Warn that a fit ended before its certificate was within the tolerance, and name remedies."""
    settings, features = spec.settings, result.W.shape[1]
    if result.status is Status.UNSETTLED:
        remedy = (
            "the known targets do not determine the fit: raise coef_penalty, ridge or graph_penalty, leave out tasks "
            f"with few targets, or raise tol (now {settings.tol:g})"
        )
    elif spec.structure.relates == "residual" and features >= result.scale.n_rows:
        remedy = (
            f"{features} features fit {result.scale.n_rows:g} rows nearly exactly, so there are hardly any residuals "
            "from which the graph could be learned: raise coef_penalty or ridge, give the loss a noise_variance if its "
            f"estimate (noise_variance_) is far too small, or else raise max_iter (now {settings.max_iter})"
        )
    elif result.status is Status.MAX_ITER:
        remedy = f"raise max_iter (now {settings.max_iter}) or accept the fit by raising tol (now {settings.tol:g})"
    else:
        remedy = (
            f"raise tol (now {settings.tol:g}), or rescale features, and targets of tasks, that differ by many "
            "orders of magnitude"
        )
    warn(f"The fit {result.message}; {remedy}.", ConvergenceWarning)


def error_inflation(result: FitResult) -> float:
    """Ratio of the variance of new residuals of r-MSSL to the variance of the residuals of the fit.

    With p parameters per task (weights, intercept, neighbours in the graph), the variance of the residuals of n rows is
    too small by the factor (n − p)/n. The variance of new residuals is larger by the factor (n + d + 1)/n, because of
    the errors of the d + 1 weights.
    """
    n = result.scale.n_rows
    weights = float(np.count_nonzero(result.W, axis=1).mean()) + 1.0
    edges = float(np.count_nonzero(result.structure.precision, axis=1).mean()) - 1.0
    return float((n + weights) / max(n - weights - edges, 0.2 * n))


def _check_units(unit: float, scales: Array, result: FitResult) -> None:
    """Raise if coefficients or precisions are too large or too small for doubles in the user's units."""
    smallest, largest = unit / float(scales.max()), unit / float(scales.min())
    precise, limits = float(result.structure.precision.diagonal().max()), np.finfo(float)
    if smallest < limits.tiny / limits.eps or largest > limits.max or precise / float(limits.max) > unit**2:
        raise DataError(
            f"Coefficients of sizes {smallest:.2g} to {largest:.2g} and their precisions cannot be held in the units  "
            "of X and y; give X and y in other units."
        )


def check_targets(data: TaskData, loss: Loss) -> None:
    """Raise if targets are impossible under the loss or too large or small for doubles."""
    bad = ~loss.in_range(data.y)
    if np.any(bad):
        first = int(np.argmax(bad))
        names = list(data.tasks[np.unique(data.task_of_row[bad])])
        raise DataError(
            f"{int(bad.sum())} targets are out of range for the {loss.name} loss (allowed: {loss.range}; first: "
            f"{data.y[first]:g} in task {listing([data.tasks[data.task_of_row[first]]])}; tasks {listing(names)}). "
            "Correct them or choose another loss."
        )
    check_target_sizes(data, free_units=True)


class MeanPredictor(RegressorMixin, TaskPredictor):
    """Mixin that predicts means and scores by the share of explained deviance, R² for least squares."""

    def predict(self, X: Any, tasks: Given = None, unseen: str | None = None, *, offset: Given = None) -> Array:
        """Predict the mean of the target.

        Parameters
        ----------
        X, tasks, unseen, offset
            As for :meth:`mssl.MSSLRegressor.predict`.

        Returns
        -------
        ndarray of shape (N,) or (n, K); lazy for Dask collections
        """
        if is_dask(X) and offset is None:
            return predict_lazily(partial(MeanPredictor.predict, self, unseen=unseen), X, tasks)
        rows = self._rows(X, tasks, unseen)
        predictor = self._predictor_of(rows) + self._offset(offset, rows.shape)
        if self.target_ is None:
            return self._as_given(self.loss_.inverse_link(predictor), rows.dtype)
        variance = self.noise_variance_  # on the scale of the fit
        if rows.index is not None:
            variance = np.where(rows.index < 0, variance.mean(), variance[rows.index]).reshape(rows.shape)
        return self._as_given(self.target_.mean(predictor, variance), rows.dtype)

    @score_by_keyword
    def score(
        self,
        X: Any,
        y: ArrayLike,
        *,
        tasks: Given = None,
        sample_weight: Given = None,
        offset: Given = None,
    ) -> float:
        """Share of explained deviance, D² = 1 − deviance / deviance of the mean; R² for the Gaussian loss.

        For (n, K) targets the score is the mean over tasks, where each task is compared with its own mean. Missing
        targets are left out.

        Parameters
        ----------
        X, y, tasks, sample_weight, offset
            As for :meth:`fit`.
        """
        # The check comes before loss_, so that an unfitted model raises NotFittedError. New tasks cause no warning,
        # because folds may leave tasks out.
        check_is_fitted(self)
        predictions = self.predict(X, tasks=tasks, unseen=self.unseen_, offset=offset)
        return deviance_score(self.loss_, y, predictions, sample_weight)


class OccasionPredictor(MeanPredictor):
    """Mixin of the regressors that predict the targets of an occasion given others of them, with their deviations."""

    # Whether means of transformed targets and means under other losses depend on the variances of the weights.
    _integrates = False

    def _forecast(
        self, X: Any, tasks: Given, unseen: str | None, offset: Given = None
    ) -> tuple[Forecast, tuple[int, ...], DTypeLike]:
        """Flat distributions of all rows, the shape of the predictions, and the type of the rows.

        By default the weights are known, and the targets of an occasion have the covariance of the residuals.
        """
        rows, covariance = self._rows(X, tasks, unseen), self.residual_covariance_
        if covariance is None or len(rows.shape) != 2:
            raise ParameterError(
                "known and return_std need the covariance of the tasks' residuals, which this model does not have. Fit "
                "MSSLRegressor(relation='residual') to targets of shape (n, K), and predict for all tasks at once."
            )
        mean = np.ravel(self._predictor_of(rows) + self._offset(offset, rows.shape))
        variance, sure = np.tile(np.diag(covariance), rows.shape[0]), np.full(len(mean), np.inf)
        return self.loss_.forecast(mean, np.zeros(len(mean)), variance, sure), rows.shape, rows.dtype

    def _given(self, forecast: Forecast, shape: tuple[int, ...], known: Given) -> tuple[Array, Array]:
        """Means and variances on the scale of the fit, given the known targets of the same occasions."""
        if len(shape) != 2 or not self.loss_.quadratic:
            raise refused("known", "given", "known targets need the shared or aligned layout and the Gaussian loss")
        covariance = self.residual_covariance_
        if np.any(forecast.variance):
            covariance = covariance + forecast.variance.reshape(*shape, 1) * np.eye(len(covariance))
        targets = read_known(known)
        seen = ~np.isnan(targets)
        targets[seen] = self._targets(targets[seen])
        given = conditional(forecast.mean.reshape(shape), covariance, targets)
        return given.mean, given.variance

    @overload
    def predict(
        self,
        X: Any,
        tasks: Given = None,
        unseen: str | None = None,
        *,
        offset: Given = None,
        known: Given = None,
        return_std: Literal[False] = False,
    ) -> Array: ...
    @overload
    def predict(
        self,
        X: Any,
        tasks: Given = None,
        unseen: str | None = None,
        *,
        offset: Given = None,
        known: Given = None,
        return_std: bool,
    ) -> Any: ...
    def predict(
        self,
        X: Any,
        tasks: Given = None,
        unseen: str | None = None,
        *,
        offset: Given = None,
        known: Given = None,
        return_std: bool = False,
    ) -> Any:
        """Predict the mean of the target.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features, in the layout of the fit (the long layout with its task column or ``tasks``).
        tasks : array of shape (N,), optional
            Task of each row, instead of a task column.
        unseen : {"mean", "error"}, optional
            Treatment of tasks that the training data do not have. "mean" predicts them from the tasks' mean
            (``unseen_coef_``, ``unseen_intercept_``), and "error" refuses them. The default is "mean" with a warning if
            the estimator has a shared mean, else "error".
        offset : array of the shape of the predictions or of their rows, optional
            Numbers that are added to the linear predictor; see :meth:`fit`.
        known : array of shape (n, K), optional
            Known targets of the same occasions, NaN for those to be predicted. The result holds the known targets, and
            the expectations of the others given the known ones. Only for the Gaussian loss, and for a
            :class:`mssl.MSSLRegressor` only with related residuals (``relation="residual"``).
        return_std : bool, default=False
            Whether to return standard deviations of the targets about the predictions too (0 for known targets). A
            :class:`mssl.MSSLRegressor` needs related residuals for them.

        Returns
        -------
        ndarray of shape (N,) or (n, K), or two of them with ``return_std``

        Examples
        --------
        Three stations, of which the third has lost every other value:

        >>> import numpy as np
        >>> from mssl import MSSLRegressor
        >>> random = np.random.default_rng(0)
        >>> X = random.standard_normal((200, 2))
        >>> weather = random.standard_normal((200, 1))
        >>> Y = X @ [[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]] + weather + 0.3 * random.standard_normal((200, 3))
        >>> model = MSSLRegressor(0.05, coef_penalty=1e-3, relation="residual").fit(X[:100], Y[:100])
        >>> known = Y[100:].copy()
        >>> known[::2, 2] = np.nan
        >>> alone, given = model.predict(X[100:]), model.predict(X[100:], known=known)
        >>> [round(float(np.std((Y[100:] - answer)[::2, 2])), 1) for answer in (alone, given)]
        [1.0, 0.4]
        """
        check_is_fitted(self)
        plain = not self._integrates or (self.loss_.quadratic and self.target_ is None)
        if plain and known is None and not return_std:
            return super().predict(X, tasks, unseen, offset=offset)
        forecast, shape, dtype = self._forecast(X, tasks, unseen, offset)
        if known is not None:
            mean, variance = self._given(forecast, shape, known)
        elif self.target_ is not None:
            mean, variance = forecast.mean, forecast.variance + forecast.dispersion
        else:
            mean, variance = forecast.moments()
        if self.target_ is not None:
            mean, variance = _own_scale(self.target_, mean, variance)
        mean, std = (self._as_given(values.reshape(shape), dtype) for values in (mean, np.sqrt(variance)))
        return (mean, std) if return_std else mean


def _own_scale(transform: TargetTransform, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Means and variances of the targets, given the means and variances of the transformed targets."""
    own = transform.mean(mean, variance)
    square = np.zeros_like(own)
    for node, weight in zip(NODES, MASS, strict=True):
        square += weight * (transform.inverse(mean + np.sqrt(variance) * node) - own) ** 2
    return own, square


class LabelEstimator(ClassifierMixin, TaskPredictor):
    """Mixin of the classifiers, with two labels for all tasks, probabilities, decisions and accuracy."""

    class_weight: ClassWeight
    # Parameters of the regressors, which are fixed for classifiers.
    loss = "bernoulli"
    _numeric = False

    def _loss(self) -> Loss:
        return Bernoulli()

    def _with_targets(self, data: TaskData) -> TaskData:
        classes = two_classes(data.y)
        coded = replace(data, y=(data.y == classes[1]).astype(float))
        self._note(classes=classes, base_rates=task_means(coded.y, data.task_of_row, data.weights, data.n_tasks))
        return replace(coded, weights=class_weights(coded, classes, self.class_weight))

    def decision_function(self, X: Any, tasks: Given = None, unseen: str | None = None) -> Array:
        """Log-odds of the second class, ``classes_[1]``.

        Parameters
        ----------
        X, tasks, unseen
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (N,) or (n, K)
        """
        return self._linear_predictor(X, tasks, unseen)

    def predict_proba(self, X: Any, tasks: Given = None, unseen: str | None = None) -> Array:
        """Probabilities of both classes, in the order of ``classes_``.

        Parameters
        ----------
        X, tasks, unseen
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (N, 2), or (n, K, 2) for the shared and aligned layouts
        """
        eta = self.decision_function(X, tasks, unseen)
        return np.stack([self.loss_.inverse_link(-eta), self.loss_.inverse_link(eta)], axis=-1)

    def predict(self, X: Any, tasks: Given = None, unseen: str | None = None) -> Labels:
        """Predict the more likely class.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features, in the layout of the fit (the long layout with its task column or ``tasks``).
        tasks : array of shape (N,), optional
            Task of each row, instead of a task column.
        unseen : {"mean", "error"}, optional
            Treatment of tasks that the training data do not have: "mean" predicts them from the tasks' mean, "error"
            refuses them; see :meth:`mssl.MSSLRegressor.predict`.

        Returns
        -------
        ndarray of shape (N,) or (n, K)
        """
        second = self.decision_function(X, tasks, unseen) > 0
        return self.classes_[second.astype(int)]

    @score_by_keyword
    def score(self, X: Any, y: ArrayLike, *, tasks: Given = None, sample_weight: Given = None) -> float:
        """Accuracy; for (n, K) labels the mean over tasks, without missing labels.

        Parameters
        ----------
        X, y, tasks, sample_weight
            As for :meth:`fit`.
        """
        check_is_fitted(self)
        prediction = self.predict(X, tasks=tasks, unseen=self.unseen_)
        target, weights = scored_targets(self._targets(y), prediction == self.classes_[1], sample_weight)
        weights = np.where(np.isnan(target), 0.0, weights)
        totals = weights.sum(axis=0)
        hits = (weights * ((prediction == self.classes_[1]) == target)).sum(axis=0)
        return float(np.mean(hits[totals > 0] / totals[totals > 0]) if target.ndim == 2 else hits / totals)

    def _targets(self, y: Any) -> Array:
        """Labels as 0 and 1; missing labels of an (n, K) table as NaN."""
        labels = np.asarray(y)
        missing = is_missing(labels) if labels.ndim == 2 else np.zeros(labels.shape, dtype=bool)
        strange = ~(missing | (labels == self.classes_[0]) | (labels == self.classes_[1]))
        if np.any(strange):
            seen = listing(sorted({str(label) for label in labels[strange]}))
            raise DataError(
                f"y holds labels that the model was not fitted with ({seen}); "
                f"it knows {listing(self.classes_)}. Use the labels of the fit."
            )
        return np.where(missing, np.nan, labels == self.classes_[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # estimators, with which this class is mixed, have it
        tags.classifier_tags.multi_class = False
        return tags


def class_weights(data: TaskData, classes: Labels, class_weight: ClassWeight) -> Array | None:
    """Row weights times the weights of their classes; "balanced" gives both classes of a task the same total.

    Parameters
    ----------
    data : TaskData
        Targets 0 and 1 for the two classes.
    classes : ndarray of shape (2,)
        Labels.
    class_weight : None, "balanced" or dict of label → weight
        Labels that a dict leaves out have weight 1.
    """
    if class_weight is None:
        return data.weights
    weights = data.row_weights
    if isinstance(class_weight, str):
        check_choice("class_weight", class_weight, ("balanced",), also="None or a dict of label → weight")
        second = data.task_sums(weights * data.y)
        totals = np.stack([data.weight_sums() - second, second])
        both = np.all(totals > 0, axis=0)
        factors = np.divide(0.5 * totals.sum(axis=0), totals, out=np.ones_like(totals), where=both)
        return np.asarray(weights * factors[data.y.astype(int), data.task_of_row])
    if not hasattr(class_weight, "get"):
        raise refused("class_weight", class_weight, "allowed are 'balanced', or None or a dict of label → weight")
    unknown = [label for label in class_weight if label not in classes.tolist()]
    pair = np.asarray([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    if unknown or not np.all(np.isfinite(pair)) or np.any(pair <= 0):
        allowed = f"give numbers above 0 for the labels {listing(classes.tolist())}"
        raise refused("class_weight", class_weight, allowed)
    return np.asarray(weights * pair[data.y.astype(int)])


def estimator_html(model: Any, diagram: str) -> str:
    """Scikit-learn's diagram, followed by the facts and the graph of a fitted model."""
    if not hasattr(model, "result_"):
        return diagram
    result, (K, d), left = model.result_, model.coef_.shape, "text-align:left"
    facts = {
        "tasks": f"{K}",
        "features": f"{d}",
        "loss": model.loss_.name,
        "shared mean": f"variance {model.mean_variance_:.3g}" if model.mean_variance_ > 0 else "none",
        "support": f"{model.graph_.n_edges} of {K * (K - 1) // 2} pairs",
        "certificate": f"relative gap {result.relative_gap:.1e} after {len(result.history)} rounds",
        "status": str(result.status),
    }
    rows = [tag("tr", tag("th", Html(k), style=left), tag("td", Html(v), style=left)) for k, v in facts.items()]
    fit = tag("details", tag("summary", Html("Fit")), tag("table", *rows), model.graph_._html(), open=True)
    return f"{diagram}{fit!s}"
