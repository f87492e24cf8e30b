r"""Folds that a path of fits can be run on: by moments, whose cost does not grow with n, or by rows.

For least squares everything a fit and its test deviance need are moments (:mod:`mssl.data.moments`). They are collected
once, for every cell of rows that are always together in training or test parts; a training part is then a sum of cells
(for K folds: the total less one fold), the intercept is eliminated and the features scaled again, so that the fit is
the one that the rows themselves would give:

.. math:: G = xx,\quad q = xy,\quad
          \sum_{test}(y - x\cdot w - b)^2 = yy - 2 w \cdot xy + w^\top xx\, w + n (\bar y - \bar x \cdot w - b)^2

Test deviances are divided by each task's noise variance in the training part, moderated
(:mod:`mssl.solvers.start`). The noise variance of all rows would be smallest for the tasks whose test rows a
single-task fit happens to follow; these tasks would count most, and the search would share too little. The noise
variance of the training part does not depend on the test rows. It is less certain, which is why it is moderated.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from functools import cached_property, wraps
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl._typing import Array, Mask
from mssl.data.design import ROUNDING, Design
from mssl.data.folds import Folds
from mssl.data.inputs import is_missing
from mssl.data.layouts import TaskData, subset
from mssl.data.moments import Moments
from mssl.estimators.gaps import fit_with_gaps, has_gaps
from mssl.estimators.spec import FitSpec
from mssl.losses import Loss
from mssl.metrics import area_under_curve, task_means
from mssl.solvers.fit import Prepared, Settings, from_quadratic, mean_of_settings, prepare
from mssl.solvers.quadratic import GramQuadratic, tell_beyond


class _PreparedOnce:
    """Data that are prepared once for each kind of settings; another shared mean or tolerance costs nothing."""

    def __init__(self, tasks: NDArray[Any], n_features: int) -> None:
        self.tasks, self.n_tasks, self.n_features = tasks, len(tasks), n_features
        self._known: dict[str, Prepared] = {}

    def _prepare(self, loss: Loss, settings: Settings, needs_start: bool, free_units: bool) -> Prepared:
        raise NotImplementedError  # pragma: no cover - subclasses define it

    def prepared(self, spec: FitSpec) -> Prepared:
        """The data, ready to fit."""
        settings, on_residuals = spec.settings, spec.structure.relates == "residual"
        kind = (spec.needs_start, spec.free_units, on_residuals)
        plain = replace(settings, shared_mean=False, tol=1.0, max_iter=1, max_inner=1, solver="auto")
        key = repr((plain, kind, type(spec.loss).__qualname__, spec.loss.get_params()))
        if key not in self._known:
            settings.check(self.n_tasks)
            made = self._prepare(spec.loss, replace(settings, shared_mean=False), *kind[:2])
            self._known[key] = made if on_residuals else _without_rows(made)
        known = self._known[key]
        tau = mean_of_settings(known.base, known.noise, settings) if self.n_tasks > 1 else 0.0
        if not isinstance(settings.shared_mean, str | bool | np.bool_):
            tau /= known.unit**2  # given in the targets' units
        return replace(known, mean_variance=tau, settings=settings)

    def has_gaps(self, spec: FitSpec) -> bool:
        """Whether targets are missing that a fit has to expect: :mod:`mssl.estimators.gaps`."""
        return False


def _without_rows(prepared: Prepared) -> Prepared:
    """The same without the standardised features, a second copy of the data, where Grams have taken their place."""
    if prepared.design is None or prepared.rows is not None or not isinstance(prepared.base, GramQuadratic):
        return prepared
    return replace(prepared, design=prepared.design.without_rows(), data=None)


class Dataset(_PreparedOnce):
    """Rows of a data set, all or some.

    Parameters
    ----------
    data : TaskData
        All rows.
    loss : Loss
        The loss.
    mask : ndarray of bool of shape (N,), optional
        Which flat rows belong to it.
    """

    def __init__(self, data: TaskData, loss: Loss, mask: Mask | None = None) -> None:
        super().__init__(data.tasks, data.n_features)
        self.data, self.loss, self.mask = data, loss, mask
        self.y = data.y if mask is None else data.y[mask]

    @property
    def rows(self) -> TaskData:
        """The rows as task data."""
        return self.data if self.mask is None else subset(self.data, self.mask)

    def has_gaps(self, spec: FitSpec) -> bool:
        """Whether targets are missing that a fit has to expect: :mod:`mssl.estimators.gaps`."""
        return has_gaps(spec, self.data)

    def prepared(self, spec: FitSpec) -> Prepared:
        """The data, ready to fit; where targets are missing, with those that a first fit expects."""
        if not self.has_gaps(spec):
            return super().prepared(spec)
        if "gaps" not in self._known:
            self._known["gaps"] = fit_with_gaps(spec, self.rows)[1]
        return replace(self._known["gaps"], settings=spec.settings)

    def _prepare(self, loss: Loss, settings: Settings, needs_start: bool, free_units: bool) -> Prepared:
        with warnings.catch_warnings():
            if self.mask is not None:  # by chance a task's rows are of one class in some training part
                warnings.filterwarnings("ignore", "All targets of", UserWarning)
            return prepare(self.rows, loss, settings, needs_start=needs_start, free_units=free_units)


class _Fold:
    """What folds share: the default score is minus the mean over tasks of the scaled test deviance."""

    def deviances(self, prepared: Prepared, W: Array, intercepts: Array, loss: Loss) -> Array:
        raise NotImplementedError  # pragma: no cover - subclasses define it

    noise: Any  # what deviances are in units of; folds of the same rows with other features are given the same

    def score(self, point: Any) -> float:
        """Minus the mean over tasks of the scaled test deviance."""
        return float(np.nanmean(self.task_scores(point)))

    def task_scores(self, point: Any) -> Array:
        """Minus the scaled test deviance of each task; NaN for tasks without test rows."""
        return -self.deviances(point.prepared, point.result.W, point.result.intercepts, point.spec.loss)

    def auc(self, point: Any) -> float:
        """Of labels the area under the ROC curve, over the test rows of all tasks; NaN for other targets."""
        return float("nan")


class GramFold(_Fold, _PreparedOnce):
    """A fold held by its moments.

    Parameters
    ----------
    train, test : Moments
        Of the two parts.
    scales, unit : ndarray of shape (d,) and float
        Units of both.
    spec : FitSpec
        What the units of the deviances are estimated with.
    """

    def __init__(self, train: Moments, test: Moments, scales: Array, unit: float, spec: FitSpec) -> None:
        super().__init__(train.tasks, train.n_features)
        self.train, self.test, self.scales, self.unit = train, test, scales, unit
        self.spec, self.intercept = spec, spec.settings.fit_intercept

    def _scales(self, settings: Settings) -> Array:
        """What to divide the moments' features by: the training part's own pooled scale, or back to the raw units."""
        scales = self._pooled if settings.scale_features else 1.0 / self.scales
        return scales * settings.factors(len(scales))

    @cached_property
    def _pooled(self) -> Array:
        m = self.train
        n = m.n[: len(m.means), None]
        squares = np.einsum("kjj->kj", m.xx)
        within = np.where(squares > n * (ROUNDING * m.means) ** 2, squares, 0.0).sum(axis=0)
        return np.where(within > 0, np.sqrt(np.where(within > 0, within, 1.0) / n.sum()), 1.0)

    def _prepare(self, loss: Loss, settings: Settings, needs_start: bool, free_units: bool) -> Prepared:
        m, sigma = self.train, self._scales(settings)
        gram, linear, squares = m.xx, m.xy, m.yy
        target_means = feature_means = None
        if self.intercept:
            squares = np.where(squares > m.n * (ROUNDING * m.target_means) ** 2, squares, 0.0)
            target_means, feature_means = m.target_means, np.broadcast_to(m.means / sigma, linear.shape)
        else:
            n = m.n[: len(m.means)]
            gram = gram + n[:, None, None] * m.means[:, :, None] * m.means[:, None, :]
            linear = linear + (m.n * m.target_means)[:, None] * m.means
            squares = squares + m.n * m.target_means**2
        base = GramQuadratic(
            gram / np.outer(sigma, sigma), linear / sigma, 0.5 * squares, None, target_means, feature_means
        )
        prepared = from_quadratic(base, m.n - (1.0 if self.intercept else 0.0), settings, needs_start=needs_start)
        return replace(prepared, unit=self.unit)

    def deviances(self, prepared: Prepared, W: Array, intercepts: Array, loss: Loss) -> Array:
        """Mean squared error of each task's test rows over its noise variance in the training part."""
        t, V = self.test, W / self._scales(prepared.settings)
        fitted = np.matmul(t.xx, V[:, :, None])[:, :, 0] if len(t.xx) == len(V) else V @ t.xx[0]
        level = t.target_means - np.sum(t.means * V, axis=1) - intercepts
        total = t.yy + np.einsum("kd,kd->k", V, fitted - 2 * t.xy) + t.n * level**2
        return np.maximum(total, 0.0) / self._units

    @cached_property
    def _units(self) -> Array:
        """What a task's sum of squared errors is divided by; NaN for tasks without test rows."""
        return np.where(self.test.n > 0, self.test.n * self.noise / self.unit**2, np.nan)

    @cached_property
    def noise(self) -> Array:
        """Noise variance of each task in the training part, in the targets' units."""
        return self.unit**2 * noise_units(self.prepared(self.spec))


class RowFold(_Fold, Dataset):
    """A fold held by its rows, for any loss and any form of the data.

    Parameters
    ----------
    data : TaskData
        All rows.
    train, test : ndarray of bool of shape (N,)
        Which flat rows belong to the two parts.
    loss : Loss
        Whose deviance is the score, whatever loss the fits have.
    spec : FitSpec
        What the units of the deviances are estimated with.
    """

    def __init__(self, data: TaskData, train: Mask, test: Mask, loss: Loss, spec: FitSpec) -> None:
        super().__init__(data, loss, train)
        self.train_mask, self.test_mask, self.spec = train, test, spec

    def predictors(self, prepared: Prepared, W: Array, intercepts: Array) -> tuple[TaskData, Array]:
        """The test part and its linear predictors."""
        part = subset(self.data, self.test_mask, all_tasks=False)
        coef, b = prepared.to_user(W, intercepts)
        if part.shared:
            return part, np.ravel(coef @ part.X.T + b[:, None])
        predictor = np.empty(len(part.y))
        for k in range(self.n_tasks):
            rows = slice(part.offsets[k], part.offsets[k + 1])
            predictor[rows] = part.X[rows] @ coef[k] + b[k]
        return part, predictor

    def deviances(self, prepared: Prepared, W: Array, intercepts: Array, loss: Loss) -> Array:
        """Mean deviance of each task's test rows over its dispersion in the training part."""
        part, predictor = self.predictors(prepared, W, intercepts)
        weights = np.ones(len(part.y)) if part.weights is None else part.weights
        if type(loss) is type(self.loss):  # the same link: finite even where a mean rounds to an edge
            deviance = weights * self.loss.deviance_at(part.y, predictor)
        else:
            deviance = weights * self.loss.deviance(part.y, loss.inverse_link(predictor))
        return self._by_task(part, weights, deviance) / self.noise

    def _by_task(self, part: TaskData, weights: Array, deviance: Array) -> Array:
        """Mean of each task's weighted deviances; NaN for tasks without test rows."""
        task = part.task_of_row
        totals = np.bincount(task, weights=weights, minlength=self.n_tasks)
        seen = totals > 0
        mean = np.bincount(task, weights=deviance, minlength=self.n_tasks) / np.where(seen, totals, 1.0)
        return np.where(seen, mean, np.nan)

    def base_deviance(self) -> float:
        """Of labels the mean over tasks of the test rows' deviance by the training rows' base rates alone."""
        part, train = subset(self.data, self.test_mask, all_tasks=False), self.rows
        rate = task_means(train.y, train.task_of_row, train.weights, self.n_tasks)[part.task_of_row]
        weights = np.ones(len(part.y)) if part.weights is None else part.weights
        rate = np.clip(rate, 1e-15, 1 - 1e-15)
        return float(np.nanmean(self._by_task(part, weights, weights * self.loss.deviance(part.y, rate))))

    def auc(self, point: Any) -> float:
        """Of labels the area under the ROC curve, over the test rows of all tasks; NaN for other targets."""
        if not self.loss.labels:
            return float("nan")
        part, predictor = self.predictors(point.prepared, point.result.W, point.result.intercepts)
        return area_under_curve(part.y, predictor, part.weights)

    @cached_property
    def noise(self) -> Array:
        """Dispersion of each task in the training part, in the targets' units."""
        if isinstance(self.spec.settings.noise, str) and not self.loss.has_dispersion:
            return np.ones(self.n_tasks)
        known = _PreparedOnce.prepared(self, self.spec)  # of known targets: expected ones vary less
        return known.unit**2 * noise_units(known)


class ScoredFold(RowFold):
    """A fold of rows that a scikit-learn scorer judges."""

    def __init__(self, fold: RowFold, scorer: Any, test: tuple[Any, ...], reader: Any) -> None:
        super().__init__(fold.data, fold.train_mask, fold.test_mask, fold.loss, fold.spec)
        self.scorer, self.reader = scorer, reader
        self.X_test, self.y_test, self.tasks_test, self.weights_test = test

    def task_scores(self, point: Any) -> Array:
        """None: a scorer judges all tasks together."""
        return np.empty(0)

    def score(self, point: Any) -> float:
        """What the scorer says of the fitted model: of its columns one by one where scikit-learn has made it."""
        model = point.model._same_input(self.reader)
        model.from_spec(point.spec, self.data, point.prepared, point.result)
        if self.tasks_test is not None:
            model = _answering(model, lambda method: _with_tasks(method, self.tasks_test))
        if self.data.layout == "long" or not hasattr(self.scorer, "_score_func"):
            return self._judge(model, self.y_test, self.weights_test)
        targets, weights = np.asarray(self.y_test), self.weights_test
        seen = ~is_missing(targets)
        if weights is not None:
            weights = np.broadcast_to(weights.reshape(len(seen), -1), seen.shape)
            seen &= weights > 0
        columns = np.flatnonzero(seen.any(axis=0)).tolist()
        return float(np.mean([self._judge_column(model, targets, weights, k, seen[:, k]) for k in columns]))

    def _judge_column(self, model: Any, targets: Any, weights: Any, k: int, rows: Mask) -> float:
        alone = _answering(model, lambda method: _of_column(method, k, rows))
        return self._judge(alone, targets[rows, k], None if weights is None else weights[rows, k])

    def _judge(self, model: Any, y: Any, weights: Any) -> float:
        takes = "sample_weight" in signature(getattr(self.scorer, "_score_func", self.scorer)).parameters
        more = {"sample_weight": weights} if takes and weights is not None else {}
        return float(self.scorer(model, self.X_test, y, **more))


def _answering(model: Any, change: Any) -> Any:
    """The model with other methods, for scorers that know X and y only."""
    answering = copy(model)
    for name in ("predict", "predict_proba", "decision_function", "score"):
        if hasattr(model, name):
            setattr(answering, name, change(getattr(model, name)))
    return answering


def _with_tasks(method: Any, tasks: Any) -> Any:
    @wraps(method)
    def bound(*args: Any, **named: Any) -> Any:
        call = signature(method).bind(*args, **named)
        if call.arguments.get("tasks") is None:
            call.arguments["tasks"] = tasks
        return method(*call.args, **call.kwargs)

    return bound


def _of_column(method: Any, k: int, rows: Mask) -> Any:
    @wraps(method)
    def bound(*args: Any, **named: Any) -> Any:
        return method(*args, **named)[rows, k]

    return bound


def noise_units(prepared: Prepared) -> Array:
    """Noise variances as units of deviances.

    Targets that are constant in the training part tell no unit: such tasks have the geometric mean of the others'.
    """
    spectra, noise = prepared.spectra, prepared.noise
    if not isinstance(prepared.settings.noise, str) or spectra is None:
        return noise
    varies = spectra.target_squares > 0
    return np.where(varies, noise, np.exp(np.log(noise[varies]).mean())) if varies.any() else noise


def make_folds(
    data: TaskData,
    prepared: Prepared,
    spec: FitSpec,
    loss: Loss,
    folds: Folds,
    *,
    by_rows: bool = False,
) -> list[Any]:
    """Folds by moments where the loss allows it and they fit the memory, by rows otherwise or where asked for.

    Parameters
    ----------
    data : TaskData
        All rows.
    prepared : Prepared
        The whole data set, ready to fit.
    spec : FitSpec
        What the units of the deviances are estimated with.
    loss : Loss
        Whose deviance is the score.
    folds : Folds
        Which rows belong to the parts.
    by_rows : bool
        Whether folds are to be held by rows in any case.
    """
    if not by_rows and loss.quadratic and prepared.design is not None and _has_grams(prepared, data):
        cell, train_cells, test_cells = folds.cells()
        n_cells, grams = train_cells.shape[1], 1 if data.shared else data.n_tasks
        size = 8 * (n_cells + 2 * len(folds)) * grams * data.n_features**2
        if not tell_beyond(size, spec.settings.memory_limit, "Moments of all folds"):
            scales, unit = _units_of(data, prepared), prepared.unit
            moments = Moments.by_cell(data, cell, n_cells, scales, unit)
            return [
                GramFold(moments.gather(train), moments.gather(test), scales, unit, spec)
                for train, test in zip(train_cells, test_cells, strict=True)
            ]
    return [RowFold(data, train, test, loss, spec) for train, test in folds]


def _has_grams(prepared: Prepared, data: TaskData) -> bool:
    """Whether fits of the data go by Grams, one for all tasks where they share the features."""
    return isinstance(prepared.base, GramQuadratic) and (prepared.base.is_shared or not data.shared)


def _units_of(data: TaskData, prepared: Prepared) -> Array:
    """Scales of the features, also where these are fitted in their own units."""
    if np.any(prepared.scales != 1):
        return prepared.scales
    return Design.build(data.X, None if data.shared else data.offsets, data.n_tasks, data.weights).scales
