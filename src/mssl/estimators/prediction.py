"""Predictions for all layouts, and effects of single columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils.validation import check_is_fitted, validate_data

from mssl._typing import Array, Given, Index, Labels
from mssl._validation import check_choice, check_number, check_whole_number, refused, warn
from mssl.data.columns import column_quantiles
from mssl.data.encoding import ColumnSchema, Features, column_of, read_features
from mssl.data.inputs import (
    CodedTasks,
    as_rows,
    as_table,
    feature_labels,
    is_frame,
    listing,
    locate_tasks,
    read_labels,
    read_offset,
    refuse_unseen,
    unseen_tasks,
    without_columns,
)
from mssl.data.layouts import TaskData
from mssl.estimators.fitted import FittedAttributes, Input, of_version_2
from mssl.exceptions import DataError, LayoutError
from mssl.kernels.threads import SingleThreaded


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


class TaskPredictor(FittedAttributes, SingleThreaded):
    """Base class of all estimators, which computes their linear predictors."""

    task_column: Hashable | None

    def _remember_input(self, X: Any, data: TaskData, **known: Any) -> None:
        """Begin a fit's input: the tasks, the columns, their encoder, and other facts, for checks of later calls.

        X is None if the data are moments of chunks in the long layout.
        """
        features = feature_labels(data.feature_names, data.n_features)
        self._reading = Input(data.layout, data.tasks, features, encoder=data.encoder, **known)
        if X is None:
            self._note(layout="long")
            self.n_features_in_ = data.n_features
            vars(self).pop("feature_names_in_", None)
            if data.feature_names is not None:
                self.feature_names_in_ = data.feature_names
            return
        self._note(column_quantiles=column_quantiles(data.X))
        if data.layout == "aligned":
            self.n_features_in_ = data.n_features if data.encoder is None else len(data.encoder.columns)
        else:
            validate_data(self, head(X, self.task_column), skip_check_array=True)

    @classmethod
    def _state_from_version_1(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Convert a state from a file of version 1, which counts the task column of a frame as a feature."""
        column, names = state.get("task_column"), state.get("feature_names_in_")
        if column is None or names is None:
            return state
        kept = names[names != (names[column] if isinstance(column, int) else column)]
        return state | {"n_features_in_": len(kept), "feature_names_in_": kept}

    @staticmethod
    def _state_from_version_2(state: dict[str, Any]) -> dict[str, Any]:
        """Convert a state from a file of version 2, which holds each fitted attribute separately."""
        return of_version_2(state)

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

    @property
    def _n_columns(self) -> int:
        """Number of columns after the encoder, before the feature maps."""
        return len(self.features_) if self.maps_ is None else int(self.maps_.n_features_in_)

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

    def _mapped(self, values: Any) -> Any:
        """Map encoded columns of shape (n, d) into the features of the coefficients."""
        return values if self.maps_ is None else self.maps_.map_rows(values)

    def _linear_predictor(self, X: Any, tasks: Given = None, unseen: str | None = "error") -> Array:
        """x·w_k + b_k; shape (N,) for the long layout, (n, K) for the shared and aligned layouts."""
        rows = self._rows(X, tasks, unseen)
        return self._as_given(self._predictor_of(rows), rows.dtype)

    def _predictor_of(self, rows: Rows) -> Array:
        if rows.index is None:
            return np.asarray(rows.values @ self.coef_.T + self.intercept_)
        return self._by_task(rows.values, rows.index).reshape(rows.shape)

    def _by_task(self, values: Any, index: Index) -> Array:
        prediction = np.empty(len(index))
        order = np.argsort(index, kind="stable")
        bounds = np.searchsorted(index[order], np.arange(len(self.tasks_) + 1))
        if bounds[0] > 0:
            rows = order[: bounds[0]]
            prediction[rows] = values[rows] @ self.unseen_coef_ + self.unseen_intercept_
        for k in np.flatnonzero(np.diff(bounds)):
            rows = order[bounds[k] : bounds[k + 1]]
            prediction[rows] = values[rows] @ self.coef_[k] + self.intercept_[k]
        return prediction

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

    def partial_effect(
        self, feature: Any, task: Any = None, *, n_points: int = 50, level: float = 0.9
    ) -> PartialEffect:
        """Effect of one column on the predictions, with all other columns at their means.

        Parameters
        ----------
        feature : str or int
            A column of the training X, by name or by number (without the task column).
        task : task name, optional
            The task; by default the mean of all tasks.
        n_points : int
            Number of values between the smallest and the largest one in training. For a category all levels are used.
        level : float
            Probability of the band, for models that have one.

        Returns
        -------
        PartialEffect
            A tuple of ``feature``, ``x``, ``effect``, ``lower`` and ``upper``; the last two may be None.

        Examples
        --------
        >>> from mssl import MSSLRegressor
        >>> from mssl.datasets import make_curved_tasks
        >>> data = make_curved_tasks("additive", random_state=0)
        >>> model = MSSLRegressor(features="spline").fit(data.X, data.y, tasks=data.tasks)
        >>> curve = model.partial_effect(1)
        >>> bool(curve.effect[25] < curve.effect[0])  # a parabola
        True
        """
        check_is_fitted(self)
        check_whole_number("n_points", n_points, low=2)
        check_number("level", level, above=0, below=1)
        columns = self._columns()
        place = columns.place(feature)
        x, rows = columns.grid(place, n_points)
        steps = self._mapped(rows) - self._mapped(columns.quantiles[:1])
        index = None if task is None else _locate_one(task, self.tasks_)
        coef = self.coef_.mean(axis=0) if index is None else self.coef_[index]
        effect = steps @ coef
        return PartialEffect(columns.names[place], x, effect, *self._effect_band(steps, effect, index, level))

    def _effect_band(
        self, steps: Array, effect: Array, index: int | None, level: float
    ) -> tuple[Array | None, Array | None]:
        """Lower and upper ends of an effect's band, given the differences of features; None if there is no band."""
        return None, None

    def _columns(self) -> Columns:
        if not hasattr(self, "column_quantiles_"):
            raise DataError(
                "This model knows no values of its columns (it was fitted to moments, or saved by an early version); "
                "fit it again, to rows in memory, to read its effects."
            )
        schemas = None if self.encoder_ is None else self.encoder_.columns
        return Columns(self.features_[: self._n_columns], schemas, self.column_quantiles_)

    def column_relevance(self) -> dict[str, float]:
        """How much each column changes the predictions, through its line, its curve and its levels together.

        The relevance of a column is the standard deviation of its partial effect over its values in training, and the
        root mean square of that over tasks. The columns have the order of the input.

        Returns
        -------
        dict of str → float
        """
        check_is_fitted(self)
        columns = self._columns()
        relevance = {}
        for place, name in enumerate(columns.names):
            rows, shares = columns.typical(place)
            effects = self._mapped(rows) @ self.coef_.T
            spread = shares @ (effects - shares @ effects) ** 2
            relevance[name] = float(np.sqrt(spread.mean()))
        return relevance


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


def _locate_one(task: Any, known: Labels) -> int:
    """Position of one task name; an unknown name raises."""
    index = locate_tasks([task], known)
    refuse_unseen(read_labels([task]), index, known)
    return int(index[0])


def head(X: Any, task_column: Any) -> Any:
    """An empty X with the same columns; a frame loses its task column."""
    if is_frame(X):
        names = list(X.columns)
        own = task_column if task_column in names or not isinstance(task_column, int) else names[task_column]
        return without_columns(X.head(0), (own,))
    return np.empty((0, as_rows(X).shape[1]))


class PartialEffect(NamedTuple):
    """The effect of one column on the linear predictor, compared with the column at its mean.

    Attributes
    ----------
    feature : str
        The column.
    x : ndarray of shape (n,)
        Values of the column, or its levels.
    effect : ndarray of shape (n,)
        Differences of the linear predictor from its value with all columns at their means. They are on the scale of the
        link, and of the transformed targets if the model has a ``target_transform``.
    lower, upper : ndarray of shape (n,) or None
        A band that holds the curve with the given probability; None if the model has no band.
    """

    feature: str
    x: Labels
    effect: Array
    lower: Array | None = None
    upper: Array | None = None

    def __repr__(self) -> str:
        low, high = float(np.min(self.effect)), float(np.max(self.effect))
        return f"PartialEffect({self.feature!r}, {len(self.x)} points, effects from {low:.3g} to {high:.3g})"


class Columns:
    """The columns of the input, from which the encoded columns are made.

    Parameters
    ----------
    names : ndarray of shape (d,)
        Names of the encoded columns.
    schemas : sequence of ColumnSchema or None
        Schemas of the columns of the input; None if all columns are numbers.
    quantiles : ndarray of shape (1 + 21, d)
        Means and quantiles of the encoded columns.
    """

    def __init__(self, names: Labels, schemas: Sequence[ColumnSchema] | None, quantiles: Array) -> None:
        plain = [ColumnSchema(str(name), None) for name in names]
        self.schemas, self.quantiles = plain if schemas is None else schemas, quantiles
        self.names = [schema.name for schema in self.schemas]
        self.of = column_of(self.schemas)

    def place(self, feature: Any) -> int:
        """Number of a column, given by name or by number."""
        if isinstance(feature, int | np.integer) and not isinstance(feature, bool) and 0 <= feature < len(self.names):
            return int(feature)
        if feature in self.names:
            return self.names.index(feature)
        allowed = f"give the name of a column, or its number from 0 to {len(self.names) - 1}"
        raise refused("feature", feature, allowed, f"Columns are {listing(self.names)}.")

    def grid(self, place: int, n_points: int) -> tuple[Labels, Array]:
        """Values of a column, and encoded rows with these values and all other columns at their means."""
        mean, ranges = self.quantiles[0], self.quantiles[1:]
        own = np.flatnonzero(self.of == place)
        schema = self.schemas[place]
        if schema.categories is not None:
            x: Labels = np.asarray(schema.categories, dtype=object)
            rows = np.tile(mean, (len(x), 1))
            rows[:, own[: schema.width]] = (x[:, None] == np.asarray(schema.levels, dtype=object)).astype(float)
        else:
            x = np.linspace(ranges[0, own[0]], ranges[-1, own[0]], n_points)
            rows = np.tile(mean, (len(x), 1))
            rows[:, own[0]] = x
        rows[:, own[-1:] if schema.indicator else []] = 0.0
        return x, rows

    def typical(self, place: int) -> tuple[Array, Array]:
        """Encoded rows in which a column takes its quantiles or levels and all other columns are at their means.

        The second array holds the weights of the rows: equal weights for quantiles, shares in training for levels.
        """
        own, schema = np.flatnonzero(self.of == place), self.schemas[place]
        if schema.categories is None:
            rows = np.tile(self.quantiles[0], (len(self.quantiles) - 1, 1))
            rows[:, own[0]] = self.quantiles[1:, own[0]]
            return rows, np.full(len(rows), 1.0 / len(rows))
        known = np.clip(self.quantiles[0, own[: schema.width]], 0.0, 1.0)
        shares = known if len(known) == len(schema.categories) else np.r_[max(0.0, 1.0 - known.sum()), known]
        return self.grid(place, 0)[1], shares / shares.sum()
