"""Predicting task by task, in whichever layout the features come."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from mssl._typing import Array, Index, Labels
from mssl.data.inputs import listing, locate_tasks, read_features
from mssl.data.layouts import TaskData
from mssl.exceptions import DataError, LayoutError
from mssl.losses import Loss


class TaskPredictor:
    """Linear predictors of a fitted estimator with ``coef_``, ``intercept_``, ``tasks_`` and ``layout_``."""

    coef_: Array
    intercept_: Array
    tasks_: Labels
    layout_: str
    loss_: Loss
    task_column: Hashable | None

    def _remember_input(self, X: Any, data: TaskData) -> None:
        """Keep what later calls are checked against: layout, number and names of features."""
        self.layout_ = data.layout
        names = data.feature_names
        self.features_ = np.asarray([f"x{j}" for j in range(data.n_features)] if names is None else names, dtype=object)
        if data.layout == "aligned":
            self.n_features_in_ = data.n_features
        else:
            validate_data(self, X, skip_check_array=True)

    def _same_input(self, other: TaskPredictor) -> Self:
        """Remember the input that another estimator has read."""
        for name in ("layout_", "features_", "n_features_in_", "feature_names_in_", "classes_"):
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))
        return self

    def _linear_predictor(self, X: Any, tasks: Any = None) -> Array:
        """x·w_k + b_k, shape (N,) for rows with a task, (n, K) for the shared and aligned layouts."""
        check_is_fitted(self)
        features = read_features(X, self.task_column, tasks)
        values, labels = features.values, features.tasks
        K, d = self.coef_.shape
        if values.ndim == 3:
            if values.shape[1:] != (K, d):
                raise LayoutError(
                    f"X is aligned with shape {values.shape}; give (n, {K}, {d}), because this model has {K} tasks and "
                    f"{d} features."
                )
            return np.asarray(np.einsum("nkd,kd->nk", values, self.coef_) + self.intercept_)
        left_out = tasks is not None and self.task_column is not None and _lacks(X, self.task_column)
        if self.layout_ != "aligned" and not left_out:
            validate_data(self, X, skip_check_array=True, reset=False)
        elif values.shape[1] != d or (
            features.feature_names is not None and np.any(features.feature_names != self.features_)
        ):
            raise DataError(
                f"X has {values.shape[1]} features, this model {d}: {listing(list(self.features_))}; give the same, "
                "in the same order."
            )
        if labels is not None:
            return self._by_task(values, locate_tasks(labels, self.tasks_))
        if self.layout_ == "shared":
            return np.asarray(values @ self.coef_.T + self.intercept_)
        if self.layout_ == "long" and K == 1:
            return np.asarray(values @ self.coef_[0] + self.intercept_[0])
        raise LayoutError(
            f"This model knows {K} tasks ({listing(list(self.tasks_))}); say which task each row belongs to, with "
            f"tasks= or the task column, or give aligned X of shape (n, {K}, {d})."
        )

    def _by_task(self, values: Any, index: Index) -> Array:
        prediction = np.empty(len(index))
        order = np.argsort(index, kind="stable")
        bounds = np.searchsorted(index[order], np.arange(len(self.tasks_) + 1))
        for k in np.flatnonzero(np.diff(bounds)):
            rows = order[bounds[k] : bounds[k + 1]]
            prediction[rows] = values[rows] @ self.coef_[k] + self.intercept_[k]
        return prediction

    def predict(self, X: Any, tasks: Any = None) -> Array:
        """Predict the mean of the target.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features, in the layout of the fit (the long layout with its task column or ``tasks``).
        tasks : array of shape (N,), optional
            Task of each row, instead of a task column.

        Returns
        -------
        ndarray of shape (N,) or (n, K)
        """
        predictor = self._linear_predictor(X, tasks)
        return self.loss_.inverse_link(predictor)


def _lacks(X: Any, column: Any) -> bool:
    """Whether X is a frame without the column of task ids."""
    return hasattr(X, "columns") and column not in list(X.columns)
