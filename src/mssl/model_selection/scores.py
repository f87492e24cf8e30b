"""Fits along chains of settings, their scores on folds, and contests between settings.

The settings of a chain differ only in λ, which falls. The first fit starts at the diagonal fixed point, where the graph
is empty, and each further fit at its predecessor. The start depends on γ, η and the shared mean, but not on λ, so that
a chain computes it once. Chains are independent of each other. With another γ or η a fit does not use a warm start,
since weights that a stronger penalty has set to zero would stay zero.

For least squares a fit to a training part and its test deviance depend only on moments of the rows. A cell is a set of
rows that are in the same part of every fold. If cells have more rows than features, a few rows with the same moments
replace them (:func:`compressed`), so that the cost of a search does not grow with n.

Test deviances are divided by each task's moderated noise variance in the training part (:mod:`mssl.solvers.start`). The
noise variance of all rows would be smallest for tasks whose test rows a single-task fit happens to follow. These tasks
would have the largest weights, and the search would share too little. The noise variance of the training part does not
depend on the test rows. Its estimate is less certain and is therefore moderated.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from inspect import signature
from itertools import chain as joined
from itertools import pairwise
from numbers import Real
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import check_scoring
from sklearn.utils.sparsefuncs import min_max_axis

from mssl._typing import Array, ArrayLike, Index, Mask, Weights
from mssl._validation import refused
from mssl.data.folds import Folds
from mssl.data.inputs import is_missing, read_labels
from mssl.data.layouts import TaskData, subset
from mssl.data.moments import Moments
from mssl.estimators.gaps import fit_with_gaps
from mssl.estimators.spec import FitSpec, shallow_copy
from mssl.exceptions import ParameterError
from mssl.judge.compare import rows_of
from mssl.judge.held_out import AUC, CERTIFIED, SCORE, ScoreTable, mean_by_task, no_gain_left
from mssl.judge.parallel import Workers
from mssl.metrics import area_under_curve, conditional_score, task_means
from mssl.solvers.alternation import FitResult
from mssl.solvers.base import Status
from mssl.solvers.fit import Prepared, diagonal_lambda_max, fit_prepared, prepare
from mssl.solvers.start import mean_variance

if TYPE_CHECKING:
    from mssl.estimators.base import MultiTaskEstimator

E = TypeVar("E", bound=BaseEstimator)
Params = dict[str, Any]
Grids = dict[str, list[Any]]

GRAPH_PENALTIES = ("graph_penalty", "structure__alpha")  # Names of the parameter λ.


class Dataset:
    """All or some rows of a data set, which are prepared once for each kind of settings.

    Settings that differ only in the shared mean or the tolerance use the same preparation.

    Parameters
    ----------
    data : TaskData
        All rows.
    mask : ndarray of bool of shape (N,), optional
        Mask of the flat rows that belong to this data set; by default all rows.
    """

    def __init__(self, data: TaskData, mask: Mask | None = None) -> None:
        self.tasks, self.n_tasks, self.n_features = data.tasks, data.n_tasks, data.n_features
        self.data, self.mask = data, mask
        self.y = data.y if mask is None else data.y[mask]
        self._known: dict[str, Prepared] = {}

    @property
    def rows(self) -> TaskData:
        """The rows as task data."""
        return self.data if self.mask is None else subset(self.data, self.mask)

    def prepared(self, spec: FitSpec, *, filled: bool = True) -> Prepared:
        """Return the prepared data. Missing targets are filled by a first fit, or left out if not ``filled``."""
        if filled and spec.has_gaps(self.data):
            if "gaps" not in self._known:
                self._known["gaps"] = fit_with_gaps(spec, self.rows)[1]
            return replace(self._known["gaps"], settings=spec.settings)
        settings, on_residuals = spec.settings, spec.structure.relates == "residual"
        plain, needs_start = replace(settings, shared_mean=False), spec.structure.needs_variances
        kind = (replace(plain, tol=1.0, max_iter=1), on_residuals, needs_start, spec.free_units)
        key = repr((kind, type(spec.loss).__qualname__, vars(spec.loss)))
        if key not in self._known:
            settings.check(self.n_tasks)
            with warnings.catch_warnings():
                if self.mask is not None:  # In a training part all rows of a task may have the same class by chance.
                    warnings.filterwarnings("ignore", "All targets of", UserWarning)
                prepared = prepare(self.rows, spec.loss, plain, needs_start=needs_start, free_units=spec.free_units)
            if not (on_residuals or prepared.rows is not None or prepared.base.by_rows):
                # Gram matrices replace the standardised features, which are a second copy of the data.
                base = prepared.base.replaced(source=None) if prepared.base.formed else prepared.base
                prepared = replace(prepared, base=base, design=prepared.design.without_rows(), data=None)
            self._known[key] = prepared
        known = self._known[key]
        tau = mean_variance(known.base, known.noise, settings.shared_mean)
        if not isinstance(settings.shared_mean, str | bool | np.bool_):
            tau /= known.unit**2  # The user gives it in the targets' units.
        return replace(known, mean_variance=tau, settings=settings)


class PathPoint(NamedTuple):
    """One fit of a chain."""

    params: Params
    model: MultiTaskEstimator
    spec: FitSpec
    data: TaskData
    prepared: Prepared
    result: FitResult

    @property
    def weights(self) -> Weights:
        """Weights, intercepts and mean weights in the user's units."""
        return self.prepared.user_weights(self.result)

    def fitted(self, reader: MultiTaskEstimator, weights: Weights | None = None) -> MultiTaskEstimator:
        """Return an estimator with this fit and the input of ``reader``, optionally with other weights.

        The graph and the diagnostics are always those of this fit.
        """
        model = self.model._same_input(reader)
        return model.from_spec(self.spec, self.data, self.prepared, self.result, weights)


def mean_weights(kinds: Sequence[Sequence[Weights]]) -> Weights:
    """Return the mean over the kinds of features of the mean weights over fits.

    The last kind has the most features. The features of another kind are its first ones; weights of the remaining
    features are zero.
    """
    means = [[np.mean(parts, axis=0) for parts in zip(*fits, strict=True)] for fits in kinds]
    averages = []
    for parts in zip(*means, strict=True):
        gaps = [[(0, n - m) for n, m in zip(parts[-1].shape, part.shape, strict=True)] for part in parts]
        averages.append(np.mean([np.pad(part, gap) for part, gap in zip(parts, gaps, strict=True)], axis=0))
    coef, intercept, mean = averages
    return coef, intercept, mean


def follow(
    source: Dataset, template: MultiTaskEstimator, chain: Sequence[Params], warm: FitResult | None = None
) -> Iterator[PathPoint]:
    """Fit settings that differ only in λ one after the other, with warm starts if they help.

    Parameters
    ----------
    source : Dataset
        The data.
    template : estimator
        Estimator with the parameters that are not in the settings.
    chain : sequence of dict
        Parameters of each fit.
    warm : FitResult, optional
        Warm start of the first fit.
    """
    point: PathPoint | None = None
    for params in chain:
        model = configured(template, params)
        spec = model.to_spec(source)
        data, origin = source.data, None
        if point is not None:  # If the start does not depend on λ, the constants of F are the same.
            warm = point.result if spec.structure.shares_start(point.spec.structure) else None
            origin = None if warm is None else (warm.scale, warm.W)
        if spec.has_gaps(data):
            data, prepared, result = fit_with_gaps(spec, source.rows, warm)
        else:
            if origin is None:
                prepared = source.prepared(spec)
                problem = prepared.problem(spec.penalty, spec.structure.relates)
            result = fit_prepared(prepared, spec.structure, spec.penalty, problem=problem, warm=warm, origin=origin)
        point = PathPoint(params, model, spec, data, prepared, result)
        yield point


name_of = partial(json.dumps, sort_keys=True, default=repr)
"""Name of settings or of a chain of settings; equal settings have equal names."""


def in_chains(settings: Iterable[Params]) -> list[list[Params]]:
    """Return settings in chains that differ only in λ, which falls."""
    chains: dict[str, list[Params]] = {}
    for params in settings:
        rest = {name: value for name, value in params.items() if name not in GRAPH_PENALTIES}
        chains.setdefault(name_of(rest), []).append(params)
    for chain in chains.values():
        chain.sort(key=lambda params: -sum(float(params[name]) for name in GRAPH_PENALTIES if name in params))
    return list(chains.values())


def configured(template: E, params: Params) -> E:
    """Return a copy of the template with other parameters. A part is copied only if one of its parameters changes.

    A number for a part, such as λ for a :class:`mssl.structures.SparsePrecision`, sets the part's alpha.
    """
    model = shallow_copy(template)
    for name, value in params.items():
        whole, _, inner = name.partition("__")
        part = getattr(model, whole)
        opened = isinstance(part, BaseEstimator)
        if inner or (opened and isinstance(value, Real)):
            inside = configured(part if opened else model._part(whole, part), {inner or "alpha": value})
            setattr(model, whole, inside)
        else:
            setattr(model, whole, value)
    return model


def graph_limit(source: Dataset, model: MultiTaskEstimator) -> float:
    """Return λ_max at the start of an estimator's fit, which is cheap and accurate enough for a grid.

    In the paper's formulation λ changes the start as well, so that fits determine λ_max. If all weights are zero, every
    positive number is valid; 0 is not, since the objective has no minimum there.
    """
    given = getattr(model, "graph_penalty", None)
    if getattr(given, "alpha", given) == np.inf:  # The fit itself learns no graph; λ_max is that of any other λ.
        model = configured(model, {"graph_penalty": 1.0})
    spec = model.to_spec(source)
    if not spec.structure.prices_edges:
        raise refused("structure", spec.structure, "a path over λ needs a learned sparse precision")
    prepared = source.prepared(spec)
    if not spec.structure.starts_diagonal:
        return spec.graph_penalty_limit(prepared) or 1.0
    return diagonal_lambda_max(prepared, spec.structure, spec.penalty, accurate=False)


def grid_values(values: Any, name: str) -> list[Any]:
    """Return a grid as a list, or raise if it is empty."""
    listed = list(values) if isinstance(values, list | tuple) else np.atleast_1d(values).tolist()
    listed = [value.item() if isinstance(value, np.generic) else value for value in listed]
    if not listed:
        raise ParameterError(f"{name} is empty; give at least one value, or None for the default grid.")
    return listed


class Fold(Dataset):
    """A fold. By default the score is minus the mean over tasks of the scaled test deviance.

    Parameters
    ----------
    data : TaskData
        All rows.
    train, test : ndarray of bool of shape (N,)
        Masks of the flat rows of the two parts.
    spec : FitSpec
        Specification of the fit that estimates the units of the deviances. Its loss is that of the deviances; the fits
        may have another loss.
    judge : Judge, optional
        Scorer that replaces the deviance, with the test rows.

    Attributes
    ----------
    held_out : TaskData
        The test part.
    """

    def __init__(self, data: TaskData, train: Mask, test: Mask, spec: FitSpec, judge: Judge | None = None) -> None:
        super().__init__(data, train)
        self.held_out = subset(data, test, all_tasks=False)
        self.spec, self.loss, self.judge = spec, spec.loss, judge

    def scores(self, point: PathPoint, weights: Weights | None = None) -> tuple[float, float, Array]:
        """Score the predictions of the test part, with the weights of the fit or with other weights.

        A task's score is minus the mean deviance of its test rows, divided by its dispersion in the training part.

        Returns
        -------
        score : float
            Mean of the tasks' scores, or the score of the judge.
        area : float
            Area under the ROC curve over the test rows of all tasks for labels; NaN for other targets.
        by_task : ndarray of shape (K,) or (0,)
            Scores of the single tasks, NaN for tasks without test rows; empty if a judge scores all tasks together.
        """
        part, loss, area, by_task = self.held_out, point.spec.loss, float("nan"), np.empty(0)
        if self.judge is None or self.loss.labels:
            coef, level, _ = point.weights if weights is None else weights
            if part.shared:
                predictor = np.ravel(coef @ part.X.T + level[:, None])
            else:
                bounds = zip(pairwise(part.offsets.tolist()), coef, level, strict=True)
                predictor = np.concatenate([part.X[begin:end] @ w + b for (begin, end), w, b in bounds])
            if self.loss.labels:
                area = area_under_curve(part.y, predictor, part.weights)
        if self.judge is not None:
            return self.judge.score(point.fitted(self.judge.reader, weights)), area, by_task
        if type(loss) is type(self.loss):  # The link is the same; this is finite even if a mean rounds to 0 or 1.
            deviance = self.loss.deviance_at(part.y, predictor)
        else:
            deviance = self.loss.deviance(part.y, loss.inverse_link(predictor))
        by_task = -mean_by_task(part, deviance, part.row_weights) / self.noise
        return float(by_task[~np.isnan(by_task)].mean()), area, by_task

    def base_deviance(self) -> float:
        """Return the mean over tasks of the test deviance of the training rows' base rates, for labels."""
        part, train = self.held_out, self.rows
        rate = task_means(train.y, train.task_of_row, train.weights, self.n_tasks)[part.task_of_row]
        return float(np.nanmean(mean_by_task(part, self.loss.deviance(part.y, rate), part.row_weights)))

    @cached_property
    def noise(self) -> Array:
        """Dispersion of each task in the training part, in the targets' units.

        Tasks with constant targets have the geometric mean of the other tasks' dispersions.
        """
        estimated = isinstance(self.spec.settings.noise, str)
        if estimated and not self.loss.has_dispersion:
            return np.ones(self.n_tasks)
        known = self.prepared(self.spec, filled=False)  # Filled targets would vary less than observed ones.
        noise = known.noise
        if estimated and known.spectra is not None:
            varies = known.spectra.target_squares > 0
            noise = np.where(varies, noise, np.exp(np.log(noise[varies]).mean())) if varies.any() else noise
        return known.unit**2 * noise


class Judge:
    """A scikit-learn scorer, and the rows that it scores, in the user's form.

    Parameters
    ----------
    scoring : str or callable
        The name of a scorer, or a function of model, X and y.
    reader : estimator
        Estimator that has read the training rows.
    X, y, tasks, weights
        The rows.
    """

    def __init__(self, scoring: Any, reader: MultiTaskEstimator, X: Any, y: Any, tasks: Any, weights: Any) -> None:
        if isinstance(scoring, list | tuple | set | dict):
            raise refused("scoring", scoring, "give one scorer, whose score chooses the settings")
        try:
            self.scorer = conditional_score if scoring == "conditional" else check_scoring(reader, scoring)
        except (TypeError, ValueError) as error:
            names = "the name of one of scikit-learn's scorers (sklearn.metrics.get_scorer_names())"
            raise refused("scoring", scoring, f"give {names}, or a callable of model, X and y") from error
        weights = None if np.ndim(weights) == 0 else np.asarray(weights, dtype=float)
        of_rows = reader.layout_ == "long" and tasks is not None  # Other layouts have one task per column of y.
        self.reader = reader
        self.given = {"X": X, "y": y, "tasks": read_labels(tasks) if of_rows else None, "sample_weight": weights}

    def part(self, reader: MultiTaskEstimator, rows: Index) -> Judge:
        """Return the scorer with some of the rows, for an estimator that has read other rows."""
        part = copy(self)
        part.reader, part.given = reader, rows_of(self.given, rows)
        return part

    def score(self, model: MultiTaskEstimator) -> float:
        """Return the score of a model over all tasks.

        A scorer made by scikit-learn scores each column of (n, K) targets separately.
        """
        y, weights = self.given["y"], self.given["sample_weight"]
        if model.layout_ == "long" or not hasattr(self.scorer, "_score_func"):
            return self._score(model, y, weights)
        targets = np.asarray(y)
        seen = ~is_missing(targets)
        if weights is not None:
            weights = np.broadcast_to(weights.reshape(len(seen), -1), seen.shape)
            seen &= weights > 0
        columns = [
            self._score(model, targets[rows, k], None if weights is None else weights[rows, k], (rows, k))
            for k, rows in enumerate(seen.T)
            if rows.any()
        ]
        return float(np.mean(columns))

    def _score(self, model: MultiTaskEstimator, y: ArrayLike, weights: Array | None, cells: Any = ...) -> float:
        """Return the score by X and y, for a model that knows the tasks of the rows and predicts only ``cells``."""
        changed = copy(model)
        for name in ("predict", "predict_proba", "decision_function", "score"):
            if hasattr(model, name):
                method = getattr(model, name)  # Scorers ask for its name.
                setattr(changed, name, wraps(method)(partial(_answer, method, self.given["tasks"], cells)))
        takes = "sample_weight" in signature(getattr(self.scorer, "_score_func", self.scorer)).parameters
        more = {"sample_weight": weights} if takes and weights is not None else {}
        return float(self.scorer(changed, self.given["X"], y, **more))


def _answer(method: Callable[..., Any], tasks: Any, cells: Any, /, *args: Any, **named: Any) -> Any:
    """Call a model's method with the tasks of the rows, unless the call names other tasks, and return some cells."""
    call = signature(method).bind(*args, **named)
    if call.arguments.get("tasks") is None:
        call.arguments["tasks"] = tasks
    found = method(*call.args, **call.kwargs)
    return found if cells is ... else found[cells]


def mapped(
    template: MultiTaskEstimator, columns: TaskData, features: Any, training: Mask | None = None
) -> tuple[MultiTaskEstimator, TaskData]:
    """Return a copy of an estimator that has mapped the columns into features, and the tasks with these features."""
    reader = copy(template)
    reader.features = features
    data = reader._map_features(columns, training)
    return reader, data


def make_folds(
    reader: MultiTaskEstimator, data: TaskData, columns: TaskData, splits: Folds, judge: Judge | None, *, by_rows: bool
) -> list[Fold]:
    """Return folds of the rows or, for squared errors, of fewer rows with the same moments.

    Parameters
    ----------
    reader : estimator
        Estimator that has read all rows. Its feature maps are fitted to the training rows of each fold only.
    data, columns : TaskData
        All rows with their features, and with their columns.
    splits : Folds
        Rows of the training and test parts.
    judge : Judge or None
        Scorer that replaces the deviance, with all rows.
    by_rows : bool
        Whether the original rows are needed.
    """
    spec, folds = reader.to_spec(data), []
    # Moments are sums of squares, which suffice for the Gaussian loss, but not for scorers or residuals.
    few = spec.loss.quadratic and spec.structure.relates != "residual" and judge is None and not by_rows
    kinds = [(reader, data, splits)]
    if reader.maps_ is not None:
        alone = [Folds(train[None], test[None]) for train, test in splits]
        kinds = [(*mapped(reader, columns, reader.features, one.train[0]), one) for one in alone]
    for own, part, sides in kinds:
        rows, few_sides = compressed(part, sides) if few else (part, sides)
        for (train, test), (_, held_out) in zip(few_sides, sides, strict=True):
            of_test = None if judge is None else judge.part(own, np.unique(part.source_rows[held_out]))
            folds.append(Fold(rows, train, test, spec, of_test))
    return folds


def compressed(data: TaskData, folds: Folds) -> tuple[TaskData, Folds]:
    """Return fewer rows with the same moments in each cell of the folds, and their folds, if that saves rows."""
    cell, train, test = folds.cells()
    n_cells, d = train.shape[1], data.n_features
    if data.shared and data.weights is not None and np.ptp(data.weights.reshape(data.n_tasks, -1), axis=0).any():
        return data, folds
    if (1 if data.shared else data.n_tasks) * n_cells * (d + 2) * d >= data.X.size:
        return data, folds
    scales, unit = _sizes(data.X), float(_sizes(data.y[:, None])[0])  # Scaling prevents over- and underflow of squares.
    few = Moments.by_cell(data, cell, n_cells, scales, unit).to_tasks()
    cell = np.zeros(len(few.y), dtype=np.intp) if few.groups is None else few.groups
    return replace(few, X=few.X * scales, y=few.y * unit, groups=None), Folds(train[:, cell], test[:, cell])


def _sizes(columns: Any) -> Array:
    """Return a power of two near the largest entry of each column; 1 for columns of zeros."""
    least, most = min_max_axis(columns, 0) if sparse.issparse(columns) else (columns.min(axis=0), columns.max(axis=0))
    sizes = np.maximum(most, -least)
    return np.asarray(2.0 ** np.round(np.log2(np.where(sizes > 0, sizes, 1.0))))


def score_chain(
    fold: Fold, template: MultiTaskEstimator, chain: Sequence[Params], stop_early: bool = False
) -> list[list[float]]:
    """Fit and score the settings of a chain on one fold.

    Returns
    -------
    list of list of float
        The report of each setting, as in :class:`mssl.judge.held_out.ScoreTable`. After early stopping
        (:func:`mssl.judge.held_out.no_gain_left`) all entries are NaN, and the fit is not certified.
    """
    reports: list[list[float]] = []
    began = perf_counter()
    for point in follow(fold, template, chain):
        (score, area, by_task), result = fold.scores(point), point.result
        took, began = perf_counter() - began, perf_counter()
        sizes = [float(result.history[-1].edges), float(np.count_nonzero(result.W))]
        reports.append([score, *sizes, took, float(result.status is Status.CONVERGED), area, *by_task.tolist()])
        if stop_early and no_gain_left(np.asarray(reports)):
            break
    skipped = [np.nan] * len(reports[0])
    skipped[CERTIFIED] = 0.0
    return reports + [list(skipped) for _ in chain[len(reports) :]]


def score_average(parts: Sequence[tuple[Fold, MultiTaskEstimator, Sequence[Params]]]) -> list[float]:
    """Return the score of the mean of several fits to one fold, and its area under the ROC curve.

    Parameters
    ----------
    parts : sequence of (fold, template, settings)
        The averaged fits for each kind of features, the widest kind last. Everything except the weights comes from the
        first settings.
    """
    kinds: list[list[Weights]] = []
    for fold, template, settings in parts:
        kinds.append([])
        for found in joined.from_iterable(follow(fold, template, one) for one in in_chains(settings)):
            kinds[-1].append(found.weights)
            if found.params == settings[0]:
                point = found
    score, area, _ = fold.scores(point, mean_weights(kinds))
    return [score, area]


@dataclass(eq=False)
class Contest:
    """The search with one kind of features. Each setting is scored once, on all folds.

    Attributes
    ----------
    given : dict of str → list
        Grids of the user.
    reader : estimator
        Estimator that has read all rows and is fitted to them in the end.
    whole : Dataset
        All rows.
    folds : sequence of Fold
        Folds on which the settings are fitted and scored.
    template : estimator
        Estimator that is fitted on the folds with each of the settings.
    workers : Workers
        Workers that fit and score.
    features : dict
        The kind of features if it is one of the settings, else empty.
    stop_early : bool
        Whether a chain stops if further settings would gain nothing.
    table : ScoreTable
        All scored settings in their order.
    """

    given: Grids
    reader: MultiTaskEstimator
    whole: Dataset
    folds: Sequence[Fold]
    template: MultiTaskEstimator
    workers: Workers = field(default_factory=Workers)
    features: Params = field(default_factory=dict)
    stop_early: bool = False
    table: ScoreTable = field(default_factory=lambda: ScoreTable([], [], np.empty((0, 0, 0))))
    _numbers: dict[str, int] = field(default_factory=dict)

    def evaluate(self, stage: str, settings: Iterable[Params]) -> list[int]:
        """Score the settings without a score, in chains that differ only in λ; return the numbers of all settings."""
        named = {name_of(params): params for params in ({**one, **self.features} for one in settings)}
        chains = in_chains(params for name, params in named.items() if name not in self._numbers)
        names = [name_of(chain) for chain in chains]
        pieces = [
            (f"{number} {name}", (fold, self.template, chain, self.stop_early))
            for number, fold in enumerate(self.folds)
            for name, chain in zip(names, chains, strict=True)
        ]
        values = iter(self.workers.run(score_chain, stage, pieces).values())
        if chains:
            by_fold = [np.concatenate([np.asarray(next(values), float) for _ in chains]) for _ in self.folds]
            added, before = list(joined.from_iterable(chains)), self.table
            self._numbers |= {name_of(params): len(before.params) + place for place, params in enumerate(added)}
            new = np.stack(by_fold, axis=1)
            reports = np.concatenate([before.reports, new]) if before.params else new
            self.table = ScoreTable(before.params + added, before.stages + [stage] * len(added), reports)
        return [self._numbers[name] for name in named]

    def refitted(self, numbers: Sequence[int], warm: FitResult | None = None) -> tuple[PathPoint, list[Weights]]:
        """Return the fit of the first of these settings to all rows, and the weights of all of them."""
        first, *others = (self.table.params[number] for number in numbers)
        (point,) = follow(self.whole, clone(self.reader), [first], warm)
        further = joined.from_iterable(follow(self.whole, self.template, one) for one in in_chains(others))
        return point, [point.weights, *(other.weights for other in further)]

    @property
    def best(self) -> Params:
        """The best settings."""
        return self.table.params[self.table.ranking()[0]]

    @property
    def best_with_graph(self) -> Params | None:
        """The best of the settings that learn variances or a graph; None if there are none."""
        ranked = (self.table.params[number] for number in self.table.ranking())
        return next((params for params in ranked if np.isfinite(params.get("graph_penalty", np.inf))), None)


def score_search(members: Sequence[Contest], choice: Callable[[ScoreTable], list[int]]) -> Array:
    """Return the score and the area under the ROC curve on each fold, with the settings that the other folds choose."""
    last, scores, pieces = members[-1], [], []
    for number in range(len(last.folds)):
        chosen = [choice(one.table.without(number)) for one in members]
        if len(chosen) == len(chosen[0]) == 1:
            scores.append(last.table.reports[chosen[0][0], number, [SCORE, AUC]])
            continue
        settings = [[one.table.params[k] for k in own] for one, own in zip(members, chosen, strict=True)]
        parts = [(one.folds[number], one.template, own) for one, own in zip(members, settings, strict=True)]
        pieces.append((f"average {number} {' '.join(map(name_of, settings))}", (parts,)))
    found = last.workers.run(score_average, "average on held-out rows", pieces)
    return np.array([*scores, *found.values()], dtype=float)
