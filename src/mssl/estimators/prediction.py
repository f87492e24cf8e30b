"""Predictions: new rows in any layout, their linear predictors, and what regressors and classifiers make of these."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Literal, NamedTuple, ParamSpec, Self, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils.validation import check_is_fitted, validate_data

from mssl._typing import Array, ArrayLike, ClassifierMixin, ClassWeight, Given, Index, Labels, RegressorMixin
from mssl._validation import check_choice, refused, warn
from mssl.data.distributed import predict_lazily
from mssl.data.encoding import Features, read_features
from mssl.data.inputs import (
    CodedTasks,
    as_table,
    head,
    is_dask,
    is_frame,
    is_missing,
    listing,
    locate_tasks,
    read_offset,
    refuse_unseen,
    unseen_tasks,
    without_columns,
)
from mssl.data.layouts import TaskData
from mssl.data.targets import TargetTransform, two_classes
from mssl.estimators.effects import ColumnEffects
from mssl.estimators.fitted import of_version_2
from mssl.exceptions import DataError, LayoutError, ParameterError
from mssl.losses import MASS, NODES, Bernoulli, Forecast, Loss
from mssl.metrics import deviance_score, scored_targets, task_means
from mssl.model.conditional import conditional

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


class Rows(NamedTuple):
    """Rows to predict, after the encoder and the feature maps.

    Attributes
    ----------
    values : ndarray or csr_array of shape (N, D)
        Features. In the aligned layout, the K rows of an occasion follow each other.
    index : ndarray of shape (N,) or None
        Position of each row's task in ``tasks_``, −1 for tasks that the training data do not have. None if every row
        belongs to all tasks (shared layout).
    shape : tuple of int
        Shape of the predictions: (N,), or (n, K) for the shared and aligned layouts.
    dtype : dtype
        Type of the given features, float32 or float64.
    """

    values: Any
    index: Index | None  # type: ignore[assignment]  # hides tuple.index, which rows have no use for
    shape: tuple[int, ...]
    dtype: DTypeLike


class TaskPredictor(ColumnEffects):
    """Base class of all estimators, which computes their linear predictors."""

    task_column: Hashable | None

    @classmethod
    def _state_from_version_1(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Convert a state from a file of version 1, which counts the task column of a frame as a feature."""
        column, names = state.get("task_column"), state.get("feature_names_in_")
        if column is None or names is None:
            return state
        kept = names[names != (names[column] if isinstance(column, int) else column)]
        return state | {"n_features_in_": len(kept), "feature_names_in_": kept}

    _state_from_version_2 = staticmethod(of_version_2)

    def _same_input(self, other: TaskPredictor) -> Self:
        """Take over the input of another estimator."""
        self._reading = other._reading or other.fitted_.input
        for name in ("n_features_in_", "feature_names_in_"):  # scikit-learn's
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))
        return self

    def _offset(self, offset: Given, shape: tuple[int, ...]) -> Array | float:
        """Check an offset for linear predictors of a shape; warn if only the fit had offsets."""
        if offset is not None:
            return read_offset(offset, shape, self.loss_.identity)
        if self.has_offset_:
            warn(
                "The model was fitted with offsets, and offset is not given: the answer is for an offset of 0, "
                "an exposure of 1. Give offset=…, or offset=0 if you mean that."
            )
        return 0.0

    def _rows(self, X: Any, tasks: Given = None, unseen: str | None = "error") -> Rows:
        """Read new rows in any layout: encode them, check them against the training data, and map them into features.

        ``unseen`` decides whether tasks that the training data do not have are refused.
        """
        check_is_fitted(self)
        X = self._own_columns(X)
        read = read_features(X, self.task_column, tasks, encoder=self.encoder_, later=True)
        values, labels = read.values, read.tasks
        K, d = len(self.tasks_), self._n_columns
        if values.ndim == 3:
            if values.shape[1:] != (K, d):
                raise LayoutError(
                    f"X is aligned with shape {values.shape}; give (n, {K}, {d}), because this model has {K} tasks and "
                    f"{d} features."
                )
            owners = np.tile(np.arange(K), len(values))
            return Rows(self._mapped(values.reshape(-1, d)), owners, values.shape[:2], read.dtype)
        named = read.feature_names is not None
        if self.layout_ != "aligned" and not isinstance(X, Features):
            validate_data(self, head(X, self.task_column), skip_check_array=True, reset=False)
            named = False  # validate_data has compared the names.
        if values.shape[1] != d or (named and np.any(read.feature_names != self.features_[:d])):
            raise DataError(
                f"X has {values.shape[1]} features, this model {d}: {listing(list(self.features_[:d]))}; give the "
                "same, in the same order."
            )
        if labels is not None:
            index = locate_tasks(labels, self.tasks_)
            self._check_unseen(labels, index, unseen)
        elif self.layout_ == "shared":
            return Rows(self._mapped(values), None, (values.shape[0], K), read.dtype)
        elif self.layout_ == "long" and K == 1:
            index = np.zeros(values.shape[0], dtype=np.int64)
        else:
            raise LayoutError(
                f"This model knows {K} tasks ({listing(list(self.tasks_))}); say which task each row belongs to, with "
                f"tasks= or the task column, or give an aligned X of shape (n, {K}, {d})."
            )
        return Rows(self._mapped(values), index, index.shape, read.dtype)

    def _own_columns(self, X: Any) -> Any:
        """Remove columns that are not features from a frame; a model of a table selects its columns by name.

        Records become rows with the columns of the training data.
        """
        X = as_table(X, getattr(self, "feature_names_in_", ()))
        table = getattr(self, "table_", None)
        if table is None or not is_frame(X):
            return without_columns(X, self.ignored_columns_)
        return X[[name for name in table.names if name in X.columns]]

    def _check_unseen(self, labels: Labels | CodedTasks, index: Index, unseen: str | None) -> None:
        """Refuse tasks that the training data do not have, or warn that the tasks' mean predicts them.

        There is no warning if the caller gives ``unseen``.
        """
        rule = self.unseen_ if unseen is None else unseen
        check_choice("unseen", rule, ("mean", "error"), also="None")
        if not np.any(index < 0):
            return
        knows_mean = hasattr(self, "unseen_coef_")
        if rule == "error" or not knows_mean:
            refuse_unseen(labels, index, self.tasks_, " (or give unseen='mean')" if knows_mean else "")
        if unseen is None:
            warn(
                f"Tasks {listing(unseen_tasks(labels, index))} were not there when the model was fitted; they are "
                "predicted from the mean of the tasks. unseen='error' refuses them, and unseen='mean' ends this "
                "warning."
            )

    def _predictor_of(self, rows: Rows) -> Array:
        """x·w_k + b_k for rows with mapped features, in the shape of the predictions."""
        coef, level = self.coef_, self.intercept_
        if rows.index is None:
            return np.asarray(rows.values @ coef.T + level)
        prediction = np.empty(len(rows.index))
        order = np.argsort(rows.index, kind="stable")
        tasks, starts = np.unique(rows.index[order], return_index=True)
        ends = [*starts.tolist(), len(order)][1:]
        for k, begin, end in zip(tasks.tolist(), starts.tolist(), ends, strict=True):
            own = order[begin:end]
            w, b = (coef[k], level[k]) if k >= 0 else (self.unseen_coef_, self.unseen_intercept_)
            prediction[own] = rows.values[own] @ w + b
        return prediction.reshape(rows.shape)

    def _predictor_of_tasks(self, data: TaskData) -> Array:
        """Flat linear predictor of the rows of tasks with mapped features."""
        rows = Rows(data.X, None if data.shared else data.task_of_row, data.y.shape, data.dtype)
        return self._predictor_of(rows).T.ravel()

    def _residuals(self, data: TaskData) -> Array:
        """Residuals of the rows of tasks with mapped features, divided by their standard deviations."""
        mean = self.loss_.inverse_link(self._predictor_of_tasks(data))
        return np.asarray((data.y - mean) / np.sqrt(np.maximum(self.loss_.variance(mean), 1e-12)))

    def _targets(self, y: Any) -> Array:
        """Targets on the scale of the fit."""
        targets = np.asarray(y, dtype=float)
        if self.target_ is None:
            return targets
        if self.target_.kind == "log" and not np.all(targets > 0):
            raise DataError("This model was fitted to logarithms of its targets; give targets above 0.")
        return self.target_.forward(targets)

    def _as_given(self, values: Array, dtype: DTypeLike) -> Array:
        """Convert results to a type: float32 if both the given rows and the training rows are float32.

        Results beyond the largest number of the type become that number, which happens for rows far outside of the
        training data.
        """
        kind = np.result_type(dtype, self.coef_.dtype)
        largest = float(np.finfo(kind).max)
        return np.clip(values, -largest, largest).astype(kind, copy=False)


def read_known(known: Given) -> Array:
    """A copy of the known targets as numbers, NaN for unknown ones."""
    try:
        values = np.array(known, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"known holds values that are not numbers ({error}); give numbers, and NaN for gaps."
        ) from error
    if np.isinf(values).any():
        raise DataError("known holds infinite values; give finite numbers, and NaN for gaps.")
    return values


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
        self, X: Any, y: ArrayLike, *, tasks: Given = None, sample_weight: Given = None, offset: Given = None
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


Forecasts = tuple[Forecast, tuple[int, ...], DTypeLike]
"""Flat distributions of rows, the shape of their predictions, and the type of their features."""


class OccasionPredictor(MeanPredictor):
    """Mixin of the regressors that predict the targets of an occasion given others of them, with their deviations."""

    # Whether means of transformed targets and means under other losses depend on the variances of the weights.
    _integrates = False

    def _forecast(self, X: Any, tasks: Given, unseen: str | None, offset: Given = None) -> Forecasts:
        """The distributions of new targets: by default about known weights, with the covariance of the residuals."""
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
        rows = self._rows(X, tasks, unseen)
        return self._as_given(self._predictor_of(rows), rows.dtype)

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
    labels = classes.tolist()
    pair = np.asarray([float(class_weight.get(label, 1.0)) for label in labels])
    if not (set(class_weight) <= set(labels) and np.all(np.isfinite(pair)) and np.all(pair > 0)):
        raise refused("class_weight", class_weight, f"give numbers above 0 for the labels {listing(labels)}")
    return np.asarray(weights * pair[data.y.astype(int)])
