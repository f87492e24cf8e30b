r"""Folds that a path of fits can be run on: by moments, whose cost does not grow with n, or by rows.

For least squares everything a fit and its test deviance need are sums over rows. They are collected once, for every
cell of rows that are always together in training or test parts; a training part is then a sum of cells
(for K folds: the total less one fold), the intercept is eliminated and the features scaled again, so that the fit is
the one that the rows themselves would give:

.. math:: G = \sum x x^\top - n \bar x \bar x^\top,\quad q = \sum x y - n \bar x \bar y,\quad
          \sum_{test}(y - x\cdot w - b)^2 = \sum y^2 - 2 w \cdot \sum xy + w^\top (\textstyle\sum x x^\top) w + \dots

Test deviances are in units of each task's noise in the training part, moderated
(:mod:`mssl.solvers.moderation`). The noise of all rows would be smallest for the tasks whose test rows a fit of their
own happens to follow; these tasks would count most, and too little would be shared. That of the training part knows
nothing of the test rows, but is known less well, and moderation makes up for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.data.design import Design
from mssl.data.inputs import is_missing, listing
from mssl.data.layouts import TaskData
from mssl.estimators.spec import FitSpec
from mssl.exceptions import DataError
from mssl.losses import Loss
from mssl.solvers.fit import Prepared, Settings, from_quadratic, mean_of_settings, prepare
from mssl.solvers.quadratic import GramQuadratic, default_memory_budget

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Split = tuple[Index, Index]

_ROWS_AT_ONCE = 100_000
_ROUNDING = 1e-13  # share of a sum that may be rounding


def places(data: TaskData, y: Any, sample_weight: Any = None) -> Index:
    """For each flat row of the data the row of the input that it came from, (N,)."""
    if data.layout == "long":
        return np.arange(len(data.y)) if data.rows is None else np.asarray(data.rows, dtype=np.intp)
    missing = is_missing(np.asarray(y))
    if sample_weight is not None:
        weights = np.asarray(sample_weight, dtype=float)
        missing = missing | (weights.reshape(len(weights), -1) == 0)
    return np.concatenate([np.flatnonzero(~missing[:, k]) for k in range(data.n_tasks)])


def check_splits(splits: Sequence[Split], data: TaskData, where: Index) -> None:
    """Raise where a training part misses a task, or a test part has nothing to score against."""
    if not splits:
        raise DataError("cv gives no splits at all; give a number of folds, a splitter, or (train, test) index pairs.")
    n = int(where.max()) + 1
    for number, (train, test) in enumerate(splits):
        if len(train) == 0 or len(test) == 0:
            raise DataError(f"Fold {number} of cv has {len(train)} training and {len(test)} test rows; both need some.")
        counts = np.bincount(data.task_of_row[_mask(train, n)[where]], minlength=data.n_tasks)
        lost = list(data.tasks[counts == 0])
        if lost:
            raise DataError(
                f"Fold {number} of cv leaves no training rows of tasks {listing(lost)}; use TaskKFold, which splits "
                "within every task, or fewer folds."
            )
        if not _mask(test, n)[where].any():
            raise DataError(f"Fold {number} of cv has no test rows with a target and a positive weight; choose others.")


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows; the first axis of every field may be cells, the next is tasks (1 for a shared design's x, xx)."""

    n: Array
    x: Array
    y: Array
    xx: Array
    xy: Array
    yy: Array

    def gather(self, cells: NDArray[np.bool_]) -> Moments:
        """The sum over some cells."""
        return Moments(*(np.tensordot(cells.astype(float), getattr(self, f.name), axes=1) for f in fields(self)))


class MomentTable:
    """Moments of every cell of rows, collected in one pass over the data.

    Parameters
    ----------
    data : TaskData
        All rows.
    prepared : Prepared
        The whole data set prepared.
    parts : FitSpec
        What the units of the deviances are estimated with.
    splits : sequence of (train, test)
        Rows of the input.
    where : ndarray of shape (N,)
        Row of the input of each flat row.
    """

    def __init__(
        self, data: TaskData, prepared: Prepared, parts: FitSpec, splits: Sequence[Split], where: Index
    ) -> None:
        self.tasks, self.n_tasks, self.n_features = data.tasks, data.n_tasks, data.n_features
        self.parts, self.unit = parts, prepared.unit
        design = prepared.design
        if design is None:
            raise DataError("Moments need the design of the whole data set.")
        self.intercept = prepared.settings.fit_intercept
        self.scales = _conditioning(design, data)
        of_place, self.train, self.test = _cells(splits, int(where.max()) + 1)
        self.sums = (
            _shared_sums(data, self, design, of_place[where])
            if data.shared
            else _own_sums(data, self, design, of_place[where])
        )

    def folds(self) -> list[GramFold]:
        """One fold a split."""
        return [
            GramFold(
                self.sums.gather(train),
                self.sums.gather(test),
                self.scales,
                self.parts,
                self.intercept,
                self.unit,
                self.tasks,
            )
            for train, test in zip(self.train, self.test, strict=True)
        ]


def _conditioning(design: Design, data: TaskData) -> Array:
    """One scale a feature for the moments' own good; undone or replaced by each fit."""
    if np.any(design.scales != 1):
        return design.scales
    return Design.build(data.X, None if data.shared else data.offsets, data.n_tasks, data.weights).scales


def _cells(splits: Sequence[Split], n: int) -> tuple[Index, NDArray[np.bool_], NDArray[np.bool_]]:
    """Cell of each row of the input, and which cells make up each training and test part."""
    cell = np.zeros(n, dtype=np.int64)
    for train, test in splits:
        code = 4 * cell + 2 * _mask(train, n) + _mask(test, n)
        # Few distinct codes: numbering them by a table costs no sorting of rows.
        present = np.flatnonzero(np.bincount(code))
        cell = np.searchsorted(present, code)
    first = np.full(int(cell.max()) + 1, n, dtype=np.int64)
    np.minimum.at(first, cell, np.arange(n))
    parts = [np.stack([_mask(split[side], n)[first] for split in splits]) for side in (0, 1)]
    return cell.astype(np.intp), parts[0], parts[1]


def _own_sums(data: TaskData, table: MomentTable, design: Design, cell: Index) -> Moments:
    """Moments of tasks with their own features, some tasks at a time so that no second copy of all rows is made."""
    target = (data.y - _centre_of_targets(data, table.intercept)[data.task_of_row]) / table.unit
    parts, first = [], 0
    while first < data.n_tasks:
        last = int(np.searchsorted(data.offsets, data.offsets[first] + _ROWS_AT_ONCE, side="right")) - 1
        last = min(max(last, first + 1), data.n_tasks)
        parts.append(_sums_of_tasks(data, table, design, cell, target, slice(first, last)))
        first = last
    return Moments(*(np.concatenate(column, axis=1) for column in zip(*parts, strict=True)))


def _sums_of_tasks(
    data: TaskData, table: MomentTable, design: Design, cell: Index, target: Array, tasks: slice
) -> tuple[Array, ...]:
    """Moments of a run of tasks: every (task, cell) is treated as a task of its own."""
    K, n_cells = tasks.stop - tasks.start, table.train.shape[1]
    rows = slice(data.offsets[tasks.start], data.offsets[tasks.stop])
    group = (data.task_of_row[rows] - tasks.start) * n_cells + cell[rows]
    order = np.argsort(group, kind="stable")
    filled, starts = np.unique(group[order], return_index=True)
    task = tasks.start + filled // n_cells
    pieces = Design.build(
        data.X[rows][order],
        np.append(starts, len(order)),
        centres=design.centres[task] if table.intercept else np.zeros((len(task), data.n_features)),
        scales=table.scales,
    )
    c = np.ones(len(order)) if data.weights is None else data.weights[rows][order]
    y = target[rows][order]

    def spread(values: Array) -> Array:
        full = np.zeros((K * n_cells, *values.shape[1:]))
        full[filled] = values
        return np.ascontiguousarray(np.moveaxis(full.reshape(K, n_cells, *values.shape[1:]), 1, 0))

    return (
        spread(pieces.task_sums(c)),
        spread(pieces.backproject(c)),
        spread(pieces.task_sums(c * y)),
        spread(pieces.gram(c, intercept=False)),
        spread(pieces.backproject(c * y)),
        spread(pieces.task_sums(c * y * y)),
    )


def _centre_of_targets(data: TaskData, intercept: bool) -> Array:
    if not intercept:
        return np.zeros(data.n_tasks)
    weighted = data.y if data.weights is None else data.weights * data.y
    return data.task_sums(weighted) / data.weight_sums()


def _shared_sums(data: TaskData, table: MomentTable, design: Design, cell: Index) -> Moments:
    """Moments of one design with many targets: its Gram is kept once."""
    K, n = data.n_tasks, len(data.X)
    centre = design.centres[0] if table.intercept else np.zeros(data.n_features)
    c = np.ones((K, n)) if data.weights is None else data.weights.reshape(K, n)
    Y = (data.y.reshape(K, n) - _centre_of_targets(data, table.intercept)[:, None]) / table.unit
    parts = []
    for number in range(table.train.shape[1]):
        rows = np.flatnonzero(cell[:n] == number)
        X, weights, target = (data.X[rows] - centre) / table.scales, c[:, rows], Y[:, rows]
        common = weights[0]
        weighted = weights * target
        parts.append(
            (
                weights.sum(axis=1),
                (common @ X)[None],
                weighted.sum(axis=1),
                ((common[:, None] * X).T @ X)[None],
                weighted @ X,
                (weighted * target).sum(axis=1),
            )
        )
    return Moments(*(np.stack(column) for column in zip(*parts, strict=True)))


class _Source:
    """Data that are prepared once for each kind of settings; another shared mean or tolerance costs nothing."""

    def __init__(self, tasks: NDArray[Any], n_features: int) -> None:
        self.tasks, self.n_tasks, self.n_features = tasks, len(tasks), n_features
        self._known: dict[str, Prepared] = {}

    def _prepare(self, loss: Loss, settings: Settings, needs_start: bool, free_units: bool) -> Prepared:
        raise NotImplementedError  # pragma: no cover - every source has its own

    def prepared(self, parts: FitSpec) -> Prepared:
        """The data, ready to fit."""
        settings, on_residuals = parts.settings, parts.structure.on == "residual"
        kind = (parts.needs_start, parts.free_units, on_residuals)
        plain = replace(settings, shared_mean=False, tol=1.0, max_iter=1, max_inner=1, solver="auto")
        key = repr((plain, kind, type(parts.loss).__qualname__, parts.loss.get_params()))
        if key not in self._known:
            settings.check(self.n_tasks)
            made = self._prepare(parts.loss, replace(settings, shared_mean=False), *kind[:2])
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


class Whole(_Source):
    """The whole data set."""

    def __init__(self, data: TaskData, loss: Loss) -> None:
        super().__init__(data.tasks, data.n_features)
        self.data, self.loss, self.y = data, loss, data.y

    def _prepare(self, loss: Loss, settings: Settings, needs_start: bool, free_units: bool) -> Prepared:
        return prepare(self.data, loss, settings, needs_start=needs_start, free_units=free_units)


class Part(_Source):
    """Some rows of the data."""

    def __init__(self, data: TaskData, mask: NDArray[np.bool_], loss: Loss) -> None:
        super().__init__(data.tasks, data.n_features)
        self.data, self.mask, self.loss, self.y = data, mask, loss, data.y[mask]

    def _prepare(self, loss: Loss, settings: Settings, needs_start: bool, free_units: bool) -> Prepared:
        return prepare(subset(self.data, self.mask), loss, settings, needs_start=needs_start, free_units=free_units)


class GramFold(_Source):
    """A fold held by its moments."""

    def __init__(
        self,
        train: Moments,
        test: Moments,
        scales: Array,
        parts: FitSpec,
        intercept: bool,
        unit: float,
        tasks: NDArray[Any],
    ) -> None:
        super().__init__(tasks, train.xy.shape[1])
        self.unit = unit
        self.train, self.test = train, test
        self.conditioning, self.parts, self.intercept = scales, parts, intercept

    def _scales(self, settings: Settings) -> Array:
        """What to divide the moments' features by: the training part's own pooled scale, or back to the raw units."""
        return self._pooled if settings.scale_features else 1.0 / self.conditioning

    @cached_property
    def _pooled(self) -> Array:
        m = self.train
        means = m.x / m.n[: len(m.x), None]
        squares = np.einsum("kjj->kj", m.xx)
        within = (squares - m.n[: len(m.x), None] * means**2).sum(axis=0)
        varies = within > _ROUNDING * squares.sum(axis=0)
        return np.where(varies, np.sqrt(np.where(varies, within, 1.0) / m.n[: len(m.x)].sum()), 1.0)

    def _prepare(self, loss: Loss, settings: Settings, needs_start: bool, free_units: bool) -> Prepared:
        m, sigma = self.train, self._scales(settings)
        gram, linear, constants = m.xx, m.xy, 0.5 * m.yy
        target_means = feature_means = None
        if self.intercept:
            n = m.n[: len(m.x)]
            means, target_means = m.x / n[:, None], m.y / m.n
            gram = gram - n[:, None, None] * means[:, :, None] * means[:, None, :]
            linear = linear - means * m.y[:, None]
            constants = constants - 0.5 * m.y * target_means
            constants = np.where(constants > _ROUNDING * m.yy, constants, 0.0)
            feature_means = np.broadcast_to(means / sigma, linear.shape)
        base = GramQuadratic(
            gram / np.outer(sigma, sigma), linear / sigma, constants, None, target_means, feature_means
        )
        prepared = from_quadratic(base, m.n - (1.0 if self.intercept else 0.0), settings, needs_start=needs_start)
        return replace(prepared, unit=self.unit)

    def score(self, point: Any) -> float:
        """Minus the mean over tasks of the scaled test deviance."""
        return float(np.nanmean(self.task_scores(point)))

    def task_scores(self, point: Any) -> Array:
        """Minus the scaled test deviance of each task."""
        return -self.deviances(point.prepared, point.result.W, point.result.intercepts)

    def deviances(self, prepared: Prepared, W: Array, intercepts: Array) -> Array:
        """Mean squared error of each task's test rows over its noise variance in the training part."""
        t, V, b = self.test, W / self._scales(prepared.settings), intercepts
        if len(t.xx) == len(V):
            fitted, level = np.matmul(t.xx, V[:, :, None])[:, :, 0], np.einsum("kd,kd->k", t.x, V)
        else:
            fitted, level = V @ t.xx[0], V @ t.x[0]
        total = t.yy + np.einsum("kd,kd->k", V, fitted - 2 * t.xy) + b * (t.n * b - 2 * (t.y - level))
        return np.maximum(total, 0.0) / self._units

    @cached_property
    def _units(self) -> Array:
        """What a task's sum of squared errors is divided by; NaN for tasks without test rows."""
        return np.where(self.test.n > 0, self.test.n * noise_units(self.prepared(self.parts)), np.nan)


class RowFold(_Source):
    """A fold held by its rows, for any loss and any form of the data.

    Parameters
    ----------
    data : TaskData
        All rows.
    train, test : ndarray of bool of shape (N,)
        Which flat rows belong to the parts.
    loss : Loss
        Whose deviance is the score, whatever loss the fits have.
    parts : FitSpec
        What the units of the deviances are estimated with.
    """

    def __init__(self, data: TaskData, train: Any, test: Any, loss: Loss, parts: FitSpec) -> None:
        super().__init__(data.tasks, data.n_features)
        self.data, self.train_mask, self.test_mask = data, train, test
        self.loss, self.parts, self.y = loss, parts, data.y[train]

    def _prepare(self, loss: Loss, settings: Settings, needs_start: bool, free_units: bool) -> Prepared:
        return prepare(
            subset(self.data, self.train_mask), loss, settings, needs_start=needs_start, free_units=free_units
        )

    def score(self, point: Any) -> float:
        """Minus the mean over tasks of the scaled test deviance."""
        return float(np.nanmean(self.task_scores(point)))

    def task_scores(self, point: Any) -> Array:
        """Minus the scaled test deviance of each task."""
        return -self.deviances(point.prepared, point.result.W, point.result.intercepts)

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

    def deviances(self, prepared: Prepared, W: Array, intercepts: Array) -> Array:
        """Mean deviance of each task's test rows over its dispersion in the training part."""
        part, predictor = self.predictors(prepared, W, intercepts)
        weights = np.ones(len(part.y)) if part.weights is None else part.weights
        lost = weights * self.loss.deviance_at(part.y, predictor)
        task = part.task_of_row
        totals = np.bincount(task, weights=weights, minlength=self.n_tasks)
        seen = totals > 0
        mean = np.bincount(task, weights=lost, minlength=self.n_tasks) / np.where(seen, totals, 1.0)
        return np.where(seen, mean / self._units, np.nan)

    @cached_property
    def _units(self) -> Array:
        """Dispersion of each task in the training part."""
        if isinstance(self.parts.settings.noise, str) and not self.loss.has_dispersion:
            return np.ones(self.n_tasks)
        known = self.prepared(self.parts)
        return known.unit**2 * noise_units(known)


def noise_units(prepared: Prepared) -> Array:
    """Noise variances as units of deviances.

    Targets that are constant in the training part tell no unit: such tasks have the geometric mean of the others'.
    """
    spectra, noise = prepared.spectra, prepared.noise
    if not isinstance(prepared.settings.noise, str) or spectra is None:
        return noise
    varies = spectra.target_squares > 0
    return np.where(varies, noise, np.exp(np.log(noise[varies]).mean())) if varies.any() else noise


def subset(data: TaskData, mask: NDArray[np.bool_], *, all_tasks: bool = True) -> TaskData:
    """Some rows of the data; a shared design stays shared.

    Parameters
    ----------
    data : TaskData
        All rows.
    mask : ndarray of bool of shape (N,)
        Which flat rows to keep; for a shared design the same for every task.
    all_tasks : bool
        Whether every task must keep a row.
    """
    counts = np.bincount(data.task_of_row[mask], minlength=data.n_tasks)
    if all_tasks and counts.min() == 0:
        raise DataError(f"Tasks {listing(list(data.tasks[counts == 0]))} are left without rows.")
    X = data.X[mask[: len(data.X)]] if data.shared else data.X[np.flatnonzero(mask)]
    return replace(
        data,
        X=X,
        y=data.y[mask],
        weights=None if data.weights is None else data.weights[mask],
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        rows=None,
    )


def make_folds(
    data: TaskData,
    prepared: Prepared,
    parts: FitSpec,
    loss: Loss,
    splits: Sequence[Split],
    where: Index,
    *,
    rows: bool = False,
) -> list[Any]:
    """Folds by moments where the loss allows it and they fit the memory, by rows otherwise."""
    check_splits(splits, data, where)
    if not rows and fits_moments(data, prepared, loss, splits, where):
        return list(MomentTable(data, prepared, parts, splits, where).folds())
    n = int(where.max()) + 1
    folds: list[Any] = []
    for train, test in splits:
        folds.append(RowFold(data, _mask(train, n)[where], _mask(test, n)[where], loss, parts))
    return folds


def _mask(rows: Index, n: int) -> NDArray[np.bool_]:
    member = np.zeros(n, dtype=bool)
    member[rows[rows < n]] = True
    return member


def fits_moments(data: TaskData, prepared: Prepared, loss: Loss, splits: Sequence[Split], where: Index) -> bool:
    """Whether folds can be held by moments."""
    if loss.name != "gaussian" or not isinstance(prepared.base, GramQuadratic):
        return False
    if data.shared and not prepared.base.is_shared:
        return False
    n_cells = _cells(splits, int(where.max()) + 1)[1].shape[1]
    tasks = 1 if prepared.base.is_shared else data.n_tasks
    return 8 * (n_cells + 2 * len(splits)) * tasks * data.n_features**2 <= default_memory_budget()
