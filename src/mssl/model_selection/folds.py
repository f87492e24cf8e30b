"""Folds that a path of fits can be run on.

For least squares a training part and its test deviance depend on the moments of the rows alone. Where cells of rows
that are always in the same part have more rows than features, a few rows with the same moments take their place
(:func:`compressed`), so that the cost of a search does not grow with n.

Test deviances are divided by each task's noise variance in the training part, moderated
(:mod:`mssl.solvers.start`). The noise variance of all rows would be smallest for the tasks whose test rows a
single-task fit happens to follow; these tasks would count most, and the search would share too little. The noise
variance of the training part does not depend on the test rows. It is less certain, which is why it is moderated.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cached_property, wraps
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import min_max_axis

from mssl._typing import Array, Labels, Mask
from mssl.data.folds import Folds
from mssl.data.inputs import is_missing
from mssl.data.layouts import TaskData, subset
from mssl.data.moments import Moments
from mssl.estimators.gaps import fit_with_gaps, has_gaps
from mssl.estimators.spec import FitSpec
from mssl.judge.compare import mean_by_task
from mssl.losses import Loss
from mssl.metrics import area_under_curve, task_means
from mssl.model_selection.chains import PathPoint
from mssl.solvers.fit import Prepared, mean_of_settings, prepare
from mssl.solvers.quadratic import GramQuadratic


class Dataset:
    """Rows of a data set, all or some, prepared once for each kind of settings.

    Another shared mean or tolerance costs nothing.

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
        self.tasks, self.n_tasks, self.n_features = data.tasks, data.n_tasks, data.n_features
        self.data, self.loss, self.mask = data, loss, mask
        self.y = data.y if mask is None else data.y[mask]
        self._known: dict[str, Prepared] = {}

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
            return self._prepared(spec)
        if "gaps" not in self._known:
            self._known["gaps"] = fit_with_gaps(spec, self.rows)[1]
        return replace(self._known["gaps"], settings=spec.settings)

    def _prepared(self, spec: FitSpec) -> Prepared:
        settings, on_residuals = spec.settings, spec.structure.relates == "residual"
        plain = replace(settings, shared_mean=False, tol=1.0, max_iter=1, max_inner=1, solver="auto")
        kind = (spec.needs_start, spec.free_units, on_residuals)
        key = repr((plain, kind, type(spec.loss).__qualname__, spec.loss.get_params()))
        if key not in self._known:
            settings.check(self.n_tasks)
            with warnings.catch_warnings():
                if self.mask is not None:  # by chance a task's rows are of one class in some training part
                    warnings.filterwarnings("ignore", "All targets of", UserWarning)
                without_mean = replace(settings, shared_mean=False)
                made = prepare(
                    self.rows, spec.loss, without_mean, needs_start=spec.needs_start, free_units=spec.free_units
                )
            self._known[key] = made if on_residuals else _without_rows(made)
        known = self._known[key]
        tau = mean_of_settings(known.base, known.noise, settings) if self.n_tasks > 1 else 0.0
        if not isinstance(settings.shared_mean, str | bool | np.bool_):
            tau /= known.unit**2  # given in the targets' units
        return replace(known, mean_variance=tau, settings=settings)


def _without_rows(prepared: Prepared) -> Prepared:
    """The same without the standardised features, a second copy of the data, where Grams have taken their place."""
    if prepared.design is None or prepared.rows is not None or not isinstance(prepared.base, GramQuadratic):
        return prepared
    return replace(prepared, design=prepared.design.without_rows(), data=None)


class Fold(Dataset):
    """A fold, whose default score is minus the mean over tasks of the scaled test deviance.

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

    @cached_property
    def held_out(self) -> TaskData:
        """The test part."""
        return subset(self.data, self.test_mask, all_tasks=False)

    def predictors(self, point: PathPoint) -> Array:
        """Linear predictors of the test part."""
        part = self.held_out
        coef, b = point.prepared.to_user(point.result.W, point.result.intercepts)
        if part.shared:
            return np.ravel(coef @ part.X.T + b[:, None])
        predictor = np.empty(len(part.y))
        for k, (begin, end) in enumerate(pairwise(part.offsets.tolist())):
            predictor[begin:end] = part.X[begin:end] @ coef[k] + b[k]
        return predictor

    def scores(self, point: PathPoint) -> tuple[float, Array]:
        """The score of a fit, and those of the single tasks whose mean it is, NaN where a task has no test rows.

        A task's score is minus the mean deviance of its test rows over its dispersion in the training part.
        """
        part, predictor, loss = self.held_out, self.predictors(point), point.spec.loss
        if type(loss) is type(self.loss):  # the same link: finite even where a mean rounds to an edge
            deviance = self.loss.deviance_at(part.y, predictor)
        else:
            deviance = self.loss.deviance(part.y, loss.inverse_link(predictor))
        by_task = -mean_by_task(part, deviance, self._test_weights) / self.noise
        return float(by_task[~np.isnan(by_task)].mean()), by_task

    @cached_property
    def _test_weights(self) -> Array:
        part = self.held_out
        return np.ones(len(part.y)) if part.weights is None else part.weights

    def base_deviance(self) -> float:
        """Of labels the mean over tasks of the test rows' deviance by the training rows' base rates alone."""
        part, train = self.held_out, self.rows
        rate = task_means(train.y, train.task_of_row, train.weights, self.n_tasks)[part.task_of_row]
        rate = np.clip(rate, 1e-15, 1 - 1e-15)
        return float(np.nanmean(mean_by_task(part, self.loss.deviance(part.y, rate), self._test_weights)))

    def auc(self, point: PathPoint) -> float:
        """Of labels the area under the ROC curve, over the test rows of all tasks; NaN for other targets."""
        if not self.loss.labels:
            return float("nan")
        return area_under_curve(self.held_out.y, self.predictors(point), self.held_out.weights)

    @cached_property
    def noise(self) -> Array:
        """Dispersion of each task in the training part, in the targets' units."""
        if isinstance(self.spec.settings.noise, str) and not self.loss.has_dispersion:
            return np.ones(self.n_tasks)
        known = self._prepared(self.spec)  # of known targets: expected ones vary less
        return known.unit**2 * noise_units(known)


class ScoredFold(Fold):
    """A fold of rows that a scikit-learn scorer judges."""

    def __init__(self, fold: Fold, scorer: Callable[..., float], test: tuple[Any, ...], reader: Any) -> None:
        super().__init__(fold.data, fold.train_mask, fold.test_mask, fold.loss, fold.spec)
        self.scorer, self.reader = scorer, reader
        self.X_test, self.y_test, self.tasks_test, self.weights_test = test

    def scores(self, point: PathPoint) -> tuple[float, Array]:
        """What the scorer says of the fitted model, which judges all tasks together.

        A scorer that scikit-learn has made judges the columns of (n, K) targets one by one.
        """
        model = point.model._same_input(self.reader)
        model.from_spec(point.spec, self.data, point.prepared, point.result)
        if self.data.layout == "long" or not hasattr(self.scorer, "_score_func"):
            return self._judge(model, self.y_test, self.weights_test), np.empty(0)
        targets, weights = np.asarray(self.y_test), self.weights_test
        seen = ~is_missing(targets)
        weights = np.ones(seen.shape) if weights is None else weights.reshape(len(seen), -1) * np.ones(seen.shape)
        seen &= weights > 0
        columns = [
            self._judge(model, targets[rows, k], None if self.weights_test is None else weights[rows, k], (rows, k))
            for k, rows in enumerate(seen.T)
            if rows.any()
        ]
        return float(np.mean(columns)), np.empty(0)

    def _judge(self, model: Any, y: Any, weights: Any, cells: Any = ...) -> float:
        takes = "sample_weight" in signature(getattr(self.scorer, "_score_func", self.scorer)).parameters
        more = {"sample_weight": weights} if takes and weights is not None else {}
        return float(self.scorer(_answering(model, self.tasks_test, cells), self.X_test, y, **more))


def _answering(model: Any, tasks: Labels | None, cells: Any) -> Any:
    """The model for scorers that know X and y only: it knows the tasks of the rows, and answers for some cells."""

    def answering(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def answer(*args: Any, **named: Any) -> Any:
            call = signature(method).bind(*args, **named)
            if call.arguments.get("tasks") is None:
                call.arguments["tasks"] = tasks
            found = method(*call.args, **call.kwargs)
            return found if cells is ... else found[cells]

        return answer

    changed = copy(model)
    for name in ("predict", "predict_proba", "decision_function", "score"):
        if hasattr(model, name):
            setattr(changed, name, answering(getattr(model, name)))
    return changed


def noise_units(prepared: Prepared) -> Array:
    """Noise variances as units of deviances.

    Targets that are constant in the training part tell no unit: such tasks have the geometric mean of the others'.
    """
    spectra, noise = prepared.spectra, prepared.noise
    if not isinstance(prepared.settings.noise, str) or spectra is None:
        return noise
    varies = spectra.target_squares > 0
    return np.where(varies, noise, np.exp(np.log(noise[varies]).mean())) if varies.any() else noise


def make_folds(data: TaskData, spec: FitSpec, loss: Loss, folds: Folds, *, by_rows: bool = False) -> list[Fold]:
    """Folds of the rows, or of fewer rows that say the same to squared errors (``by_rows=False``).

    Parameters
    ----------
    data : TaskData
        All rows.
    spec : FitSpec
        What the units of the deviances are estimated with.
    loss : Loss
        Whose deviance is the score.
    folds : Folds
        Which rows belong to the parts.
    by_rows : bool
        Whether the rows themselves are needed.
    """
    if loss.quadratic and not by_rows:
        data, folds = compressed(data, folds)
    return [Fold(data, train, test, loss, spec) for train, test in folds]


def compressed(data: TaskData, folds: Folds) -> tuple[TaskData, Folds]:
    """Rows with the same moments in each cell of the folds, where these are fewer, and their folds."""
    cell, train, test = folds.cells()
    n_cells, d = train.shape[1], data.n_features
    if data.shared and data.weights is not None and np.ptp(data.weights.reshape(data.n_tasks, -1), axis=0).any():
        return data, folds
    if (1 if data.shared else data.n_tasks) * n_cells * (d + 2) * d >= data.X.size:
        return data, folds
    scales, unit = _sizes(data.X), float(_sizes(data.y[:, None])[0])  # so that no square overflows or vanishes
    few = Moments.by_cell(data, cell, n_cells, scales, unit).to_tasks()
    cell = np.zeros(len(few.y), dtype=np.intp) if few.groups is None else few.groups
    return replace(few, X=few.X * scales, y=few.y * unit, groups=None), Folds(train[:, cell], test[:, cell])


def _sizes(columns: Any) -> Array:
    """A power of two near the largest entry of each column; 1 where all are zero."""
    least, most = min_max_axis(columns, 0) if sparse.issparse(columns) else (columns.min(axis=0), columns.max(axis=0))
    sizes = np.maximum(most, -least)
    return np.asarray(2.0 ** np.round(np.log2(np.where(sizes > 0, sizes, 1.0))))
