"""Base classes of all estimators, which read tasks, run the fit, keep its results, predict and score."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import clone

from mssl._typing import (
    Array,
    ArrayLike,
    BaseEstimator,
    CallbackSupportMixin,
    Given,
    Mask,
    SharedMean,
    Weights,
    with_callbacks,
)
from mssl._validation import refused, warn
from mssl.data.encoding import read_features
from mssl.data.hints import hint_at_tasks, warn_of_exposure
from mssl.data.inputs import as_table, feature_labels, head, is_dask, listing, read_offset, take_columns
from mssl.data.layouts import TaskData, check_target_sizes, read_tasks
from mssl.data.moments import Moments
from mssl.data.targets import learn_transform
from mssl.estimators.fitted import Fitted, typed
from mssl.estimators.gaps import fit_with_gaps
from mssl.estimators.moments import check_moments
from mssl.estimators.prediction import TaskPredictor
from mssl.estimators.spec import FitSpec, TaskShape, shallow_copy
from mssl.estimators.summary import Summary, estimator_html, summarise
from mssl.exceptions import DataError, MSSLError, all_or_nothing
from mssl.features import FeatureBlocks, FeatureMap
from mssl.features.maps import fit_maps, is_linear
from mssl.graph.information import evidence_of
from mssl.graph.task_graph import TaskGraph
from mssl.losses import Loss, resolve_loss
from mssl.model.task_matrix import with_diagonal
from mssl.solvers.alternation import FitResult, Record
from mssl.solvers.base import Solver
from mssl.solvers.fit import Prepared


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
            features,
            y,
            sample_weight=sample_weight,
            y_numeric=self._numeric,
            groups=groups,
            order=order,
            empty_tasks=self._takes_empty_tasks,
        )
        if tasks is None and self.task_column is None:
            hint_at_tasks(data)
        self._remember_input(head(X, self.task_column), data, ignored_columns=ignored, has_offset=offset is not None)
        if offset is not None:
            data = self._absorb(data, offset, np.shape(y))
        return self._with_targets(data)

    def _note_maps(self, data: TaskData, maps: FeatureBlocks) -> None:
        """Remember the maps of the tasks' columns and the names of their features."""
        names = feature_labels(data.feature_names, data.n_features)
        self._note(maps=maps, features=maps.get_feature_names_out(names))

    def _with_targets(self, data: TaskData) -> TaskData:
        """Check the targets and transform them to the form that the loss needs."""
        check_targets(data, self._loss())
        if self.target_transform is None:
            return data
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
        self, spec: FitSpec, data: TaskData, prepared: Prepared, result: FitResult, weights: Weights | None = None
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
        graph = TaskGraph.from_precision(proper, tasks=data.tasks.tolist(), evidence=evidence)
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
            partial_correlation=with_diagonal(graph.weights, 1.0),
            residual_covariance=residual,
            graph=graph,
            errors=spec.errors(prepared, result),
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
        if is_linear(self.features):
            return data
        maps = fit_maps(self.features, data, training)
        self._note_maps(data, maps)
        return replace(data, X=maps.map_rows(data.X), feature_names=self.features_, n_columns=data.n_features)

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
            spec.warn_if_ordinary(data)
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
            spec.warn_of_end(result)
        return self

    def _fit_of(self, data: TaskData) -> FitResult | None:
        """The result of the last fit, if it had the same tasks, as a start of the next fit."""
        last: Fitted | None = vars(self).get("fitted_")
        return None if last is None or not np.array_equal(np.asarray(last.input.tasks), data.tasks) else last.result

    def _monitor(self, context: Any, max_rounds: int) -> Callable[[Record], bool]:
        announced = iter(range(max_rounds))

        def report(record: Record) -> bool:
            if self.verbose:
                reached = f"objective {record.objective:.8g}  gap {record.relative_gap:.1e}  edges {record.edges}"
                print(f"round {record.iteration:3d}  {reached}", file=sys.stderr)
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
        reader = clone(self)  # so that a fitted model keeps its input
        data = reader._map_features(reader._read(X, y, tasks, sample_weight))
        spec = reader.to_spec(data)
        spec.check(data)
        prepared = spec.prepare(data)
        return PenaltyLimits(spec.graph_penalty_limit(prepared), spec.coef_penalty_limit(prepared))


def hint_at_other_scales(model: Any, data: TaskData) -> None:
    """Suggest another scale if all targets are positive and least squares predicts some of them to be negative."""
    positive = model.loss_.quadratic and model.target_ is None and np.all(data.y > 0)
    if not positive or np.all(model._predictor_of_tasks(data) >= 0):
        return
    log = "target_transform='log' or " if "target_transform" in model.get_params(deep=False) else ""
    warn(f"All targets are positive, and some are predicted negative; {log}loss='gamma' would suit them better.")


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
