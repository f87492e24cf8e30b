"""Baselines for ensembles of forecasts: the mean of the members, the best member, and the mean of each season."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import Any, Self

import numpy as np

from mssl._typing import Array, ArrayLike, BaseEstimator, Given
from mssl.data.inputs import as_table, dense, head
from mssl.data.layouts import TaskData, read_tasks
from mssl.estimators.effects import place_of
from mssl.estimators.prediction import MeanPredictor
from mssl.exceptions import all_or_nothing
from mssl.losses import Gaussian


class _Baseline(MeanPredictor, BaseEstimator):
    """Base class of the baselines, which reads the three layouts and keeps the task names."""

    def __init__(self, *, task_column: Hashable | None = None) -> None:
        self.task_column = task_column

    @all_or_nothing
    def fit(self, X: Any, y: ArrayLike, tasks: Given = None, sample_weight: Given = None) -> Self:
        """Read the data and learn the baseline.

        Parameters
        ----------
        X, y, tasks, sample_weight
            As for :meth:`mssl.MSSLRegressor.fit`.

        Returns
        -------
        self
        """
        X = as_table(X)
        data = read_tasks(X, y, task_column=self.task_column, tasks=tasks, sample_weight=sample_weight)
        self._remember_input(head(X, self.task_column), data)
        self._end(loss=Gaussian(), coef=self._learn(data), intercept=np.zeros(data.n_tasks, data.dtype))
        return self

    def _learn(self, data: TaskData) -> Array | None:
        """The weights of the members; None if predictions are not weighted sums."""
        return np.full((data.n_tasks, data.n_features), 1.0 / data.n_features, data.dtype)


class AverageModel(_Baseline):
    """The mean of all features, each of which is one member's forecast of the target.

    Parameters
    ----------
    task_column : str or int, optional
        The column of X that holds task ids.

    Examples
    --------
    >>> import numpy as np
    >>> AverageModel().fit(np.array([[1.0, 3.0], [2.0, 6.0]]), np.array([2.0, 4.0])).predict(np.array([[0.0, 1.0]]))
    array([0.5])
    """


class BestMember(_Baseline):
    """For each task the feature with the smallest squared error on the training rows.

    Parameters
    ----------
    task_column : str or int, optional
        The column of X that holds task ids.

    Attributes
    ----------
    member_ : ndarray of shape (K,)
        Position of each task's feature.

    Examples
    --------
    >>> import numpy as np
    >>> BestMember().fit(np.array([[1.0, 3.0], [2.0, 6.0]]), np.array([3.0, 5.0])).predict(np.array([[0.0, 1.0]]))
    array([1.])
    """

    def _learn(self, data: TaskData) -> Array | None:
        members, weights = dense(data.X), data.row_weights
        errors = []
        for begin, end in pairwise(data.offsets):
            own = members if data.shared else members[begin:end]
            errors.append(weights[begin:end] @ (own - data.y[begin:end, None]) ** 2)
        self.member_ = np.argmin(errors, axis=1)
        coef = np.zeros((data.n_tasks, data.n_features), data.dtype)
        coef[np.arange(data.n_tasks), self.member_] = 1.0
        return coef


class Climatology(_Baseline):
    """For each task the mean target of all rows with the same month of the year.

    Months that are not in the training data get the task's mean.

    Parameters
    ----------
    month : int or str
        The feature that holds the month (or another label of the season): its position among the features (without the
        task column), or its name in a frame.
    task_column : str or int, optional
        The column of X that holds task ids.

    Attributes
    ----------
    seasons_ : ndarray of shape (m,)
        The labels in the training data.
    normals_ : ndarray of shape (K, m)
        Mean target of each task and season.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[1.0], [2.0], [1.0], [2.0]]), np.array([0.0, 10.0, 2.0, 12.0])
    >>> Climatology(month=0).fit(X, y).predict(np.array([[1.0], [2.0], [3.0]]))
    array([ 1., 11.,  6.])
    """

    def __init__(self, month: int | str | None = None, *, task_column: Hashable | None = None) -> None:
        self.month = month
        self.task_column = task_column

    def _place(self) -> int:
        return place_of("Climatology: month", self.month, list(self.features_))

    def _learn(self, data: TaskData) -> Array | None:
        labels = dense(data.X[:, [self._place()]]).ravel()
        labels = np.tile(labels, data.n_tasks) if data.shared else labels
        self.seasons_, season = np.unique(labels, return_inverse=True)
        shape = data.n_tasks, len(self.seasons_)
        cell = np.ravel_multi_index((data.task_of_row, season), shape)
        weights = data.row_weights
        sums, totals = (
            np.bincount(cell, weights=values, minlength=np.prod(shape)).reshape(shape)
            for values in (weights * data.y, weights)
        )
        self.means_ = sums.sum(axis=1) / totals.sum(axis=1)
        self.normals_ = np.where(totals > 0, sums / np.where(totals > 0, totals, 1.0), self.means_[:, None])
        return None

    def predict(self, X: Any, tasks: Given = None, unseen: str | None = None, *, offset: Given = None) -> Array:
        """Predict the mean of each row's season.

        Parameters
        ----------
        X, tasks, unseen, offset
            As for :meth:`mssl.MSSLRegressor.predict`, but tasks that the training data do not have are refused.
        """
        values, owners, shape, _ = self._rows(X, tasks, unseen)
        seasons = dense(values[:, [self._place()]]).ravel()
        if owners is None:  # Each row belongs to all tasks.
            seasons, owners = np.repeat(seasons, shape[1]), np.tile(np.arange(shape[1]), shape[0])
        place = np.clip(np.searchsorted(self.seasons_, seasons), 0, len(self.seasons_) - 1)
        known = self.seasons_[place] == seasons
        normals = np.where(known, self.normals_[owners, place], self.means_[owners]).reshape(shape)
        return normals + self._offset(offset, shape)
