"""Choosing parameters by cross-validation: folds, scores, the choice, and the fit with what was chosen."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import wraps
from inspect import getattr_static, signature
from os import PathLike
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import check_scoring
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from mssl._progress import Progress
from mssl._typing import Array, Labels, Mask
from mssl._validation import refused
from mssl.data.encoding import Features
from mssl.data.folds import Folds
from mssl.data.hints import warn_of_ids, warn_of_residuals
from mssl.data.inputs import as_given, is_missing, listing, read_labels, take_columns
from mssl.data.layouts import TaskData
from mssl.data.moments import Moments
from mssl.estimators.base import (
    MultiTaskEstimator,
    PenaltyLimits,
    estimator_html,
    hint_at_other_scales,
    score_by_keyword,
    warn_unless_converged,
)
from mssl.estimators.effects import PartialEffect
from mssl.estimators.gaps import check_rows, fit_with_gaps
from mssl.estimators.moments import check_moments, remember_moments
from mssl.estimators.summary import Summary, summarise
from mssl.exceptions import DataError, all_or_nothing
from mssl.files.checkpoint import IDLE, Checkpoint, fingerprint
from mssl.graph.task_graph import TaskGraph
from mssl.kernels.threads import SingleThreaded
from mssl.losses import Loss
from mssl.metrics import HeldOut, conditional_score, mean_of_known
from mssl.model_selection.chains import name_of
from mssl.model_selection.folds import Dataset, RowFold, make_folds
from mssl.model_selection.parallel import run
from mssl.model_selection.scores import AUC, SCORE, Candidate, ScoreTable, score_average
from mssl.model_selection.search_space import STAGES
from mssl.solvers.alternation import FitResult, Record

T = TypeVar("T")

# Standard errors by which curves have to beat straight lines, and products curves. One was too few: it let curves in on
# two of five draws of pure noise and on a cut of landmine, where they lost. The one draw of true curves that was looked
# at gained 4.8.
FEATURE_MARGIN = 2.0
MOST_ROUNDS = 50  # of a fit that is only scored: an unfinished one ranks its settings too, at a quarter of the time


class Chosen(Generic[T]):
    """A fitted attribute of a search that is read from and written to its best estimator."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, search: None, owner: type) -> Self: ...
    @overload
    def __get__(self, search: SearchCV, owner: type) -> T: ...
    def __get__(self, search: SearchCV | None, owner: type) -> Self | T:
        if search is None:
            return self
        value: T = getattr(search._chosen(), self.name)
        return value

    def __set__(self, search: SearchCV, value: T) -> None:
        setattr(search._chosen(), self.name, value)


class ScoredFold(RowFold):
    """A fold of rows that a scikit-learn scorer judges."""

    def __init__(self, fold: RowFold, scorer: Any, test: tuple[Any, ...], reader: MultiTaskEstimator) -> None:
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


class Contest(NamedTuple):
    """The search with one kind of features: its table of scores, all rows, and the estimator that has read them."""

    features: Any
    table: ScoreTable
    whole: Dataset
    reader: Any

    def beats(self, other: Contest, margin: float = FEATURE_MARGIN) -> bool:
        """Whether the best settings are better than another's by so many standard errors of the paired difference."""
        return self.table.best().beats(other.table.best(), margin)


def feature_choices(features: Any, columns: TaskData) -> list[Any]:
    """The kinds of features to try one after the other; sparse columns can be linear only."""
    if not isinstance(features, str) or features != "auto":
        return [features]
    return ["linear"] if sparse.issparse(columns.X) else ["linear", "spline", "spline+interactions"]


def _with_features(template: Any, features: Any) -> Any:
    """The estimator that has read the columns, with one kind of features."""
    reader = copy(template)
    if "features" in reader.get_params(deep=False):
        reader.features = features
    return reader


def take_mean(model: Any, others: list[tuple[Array, Array, Array]], whole: Dataset) -> None:
    """Give an estimator the mean of its and others' weights, intercepts and mean weights; the graph stays its own.

    Others may have fewer features, the first ones: their weights of the rest are zero.
    """
    for name, *parts in zip(("coef_", "intercept_", "mean_coef_"), *others, strict=True):
        own = getattr(model, name)
        wide = [np.pad(part, [(0, n - m) for n, m in zip(own.shape, part.shape, strict=True)]) for part in parts]
        setattr(model, name, np.mean([own, *wide], axis=0).astype(own.dtype, copy=False))
    design, unseen = whole.prepared(model.to_spec(whole.data)).design, model.unseen_
    model._expect_new_task(None if design is None else design.centres)
    model.unseen_ = unseen


def searched_with(reader: Any, tol: float) -> Any:
    """What the search fits: looser than the final fit."""
    return clone(reader).set_params(tol=tol, max_iter=min(reader.max_iter, MOST_ROUNDS))


class SearchCV(SingleThreaded, BaseEstimator):
    """What the cross-validated estimators share: folds, scores, the choice and the final fit.

    A search holds the estimator that it chose as ``best_estimator_`` and answers for it: predictions, scores and fitted
    attributes are that estimator's own. Subclasses have a template, the estimator whose parameters are chosen, and a
    search over its settings.
    """

    cv: Any
    scoring: str | Callable[..., float] | None
    one_standard_error: bool
    n_jobs: int | None
    checkpoint: str | PathLike[str] | None
    search_tol: float
    verbose: int
    warm_start: bool = False

    best_estimator_: Any
    best_params_: dict[str, Any]
    best_score_: float
    best_index_: int
    cv_results_: dict[str, Any]
    n_splits_: int
    feature_scores_: dict[str, float]
    feature_members_: list[Any]

    coef_ = Chosen[Array]()
    intercept_ = Chosen[Array]()
    coef_std_ = Chosen["Array | None"]()
    effective_dof_ = Chosen["Array | None"]()
    log_likelihood_ = Chosen["float | None"]()
    errors_ = Chosen[Any]()
    has_offset_ = Chosen[bool]()
    mean_coef_ = Chosen[Array]()
    mean_variance_ = Chosen[float]()
    noise_ = Chosen[Array]()
    precision_ = Chosen[Array]()
    covariance_ = Chosen["Array | None"]()
    partial_correlation_ = Chosen[Array]()
    unseen_coef_ = Chosen[Array]()
    unseen_intercept_ = Chosen[float]()
    tasks_ = Chosen[Labels]()
    classes_ = Chosen[Labels]()
    base_rates_ = Chosen[Array]()
    objective_ = Chosen[float]()
    n_iter_ = Chosen[int]()
    history_ = Chosen[list[Record]]()
    result_ = Chosen[FitResult]()
    loss_ = Chosen[Loss]()
    layout_ = Chosen[str]()
    features_ = Chosen[Labels]()
    encoder_ = Chosen[Any]()
    maps_ = Chosen[Any]()
    target_ = Chosen[Any]()
    residual_covariance_ = Chosen[Any]()
    column_quantiles_ = Chosen[Array]()
    unseen_ = Chosen[str]()
    ignored_columns_ = Chosen[Any]()
    table_ = Chosen[Any]()
    n_features_in_ = Chosen[int]()
    feature_names_in_ = Chosen[Labels]()

    def _template(self) -> Any:
        raise NotImplementedError  # pragma: no cover - every subclass has its own

    def _search(self, table: ScoreTable, whole: Dataset, template: Any) -> None:
        raise NotImplementedError  # pragma: no cover - every subclass has its own

    def _chosen(self) -> Any:
        check_is_fitted(self)
        return self.best_estimator_

    @property
    def graph_(self) -> TaskGraph:
        """The task graph."""
        graph: TaskGraph = self._chosen().graph_
        return graph

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        tasks: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        order: Any = None,
        offset: Any = None,
    ) -> Self:
        """Choose the parameters by cross-validation and fit with them on all rows.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features in one of three layouts: long (with ``task_column`` or ``tasks``), shared, aligned.
        y : array of shape (N,) or (n, K)
            Targets.
        tasks : array of shape (N,), optional
            Task of each row, instead of a task column.
        sample_weight : array of the shape of y or of its rows, optional
            Frequency weights.
        groups : str or array of shape (N,) or (n,), optional
            Rows that belong together in all tasks, such as those of one day or one patient: folds never part them. The
            name of a column of X, which is then no feature, or one entry a row. In the shared and aligned layouts a row
            is a group by default.
        order : str or array of shape (N,) or (n,), optional
            Time of each row, likewise: folds are then blocks of time (:class:`TaskBlockKFold`, whose ``forward=True``
            trains on earlier rows only), and splitters of ``cv`` see the rows in this order.
        offset : array of the shape of y or of its rows, optional
            What is added to the linear predictor and not learned, as for the estimator itself; not with ``scoring``,
            whose scorers know no offsets.

        Returns
        -------
        self
        """
        if self._fitted_on_workers(X, y, tasks, sample_weight, offset):
            return self
        template = self._template()
        X, groups, order, ignored = take_columns(X, groups, order)
        if offset is not None and self.scoring is not None:
            raise refused(
                "scoring", self.scoring, "scorers know no offsets", "Leave it at None, which is the deviance."
            )
        columns = template._read_columns(X, y, tasks, sample_weight, offset).with_occasions(groups, order)
        y = y if hasattr(y, "shape") else as_given(y)
        if self._makes_folds():
            warn_of_ids(columns)

        def remember(reader: Any, data: TaskData) -> None:
            reader._remember_input(X, data)
            reader.ignored_columns_ = ignored

        rows = X.values if isinstance(X, Features) else X if hasattr(X, "shape") else as_given(X)

        def split(data: TaskData) -> Folds:
            return Folds.from_cv(data, self.cv, rows)

        data = self._fit_columns(template, columns, (rows, y, tasks, sample_weight), remember, split)
        hint_at_other_scales(self.best_estimator_, data)
        if self._makes_folds():
            warn_of_residuals(data, self.best_estimator_._residuals(data))
        return self

    def _fitted_on_workers(self, X: Any, y: Any, tasks: Any, sample_weight: Any, offset: Any) -> bool:
        """Whether X is a Dask collection that was fitted where its partitions are; regressors can do so."""
        return False

    def _loss(self) -> Loss:
        loss: Loss = self._template()._loss()
        return loss

    def _moment_folds(self) -> int | None:
        if self._makes_folds():
            return 5 if self.cv is None else int(self.cv)
        raise refused("cv", self.cv, "rows of a Dask collection or a chunk are dealt to folds: give their number")

    def _fit_moments(self, moments: Moments) -> Self:
        template = self._template()
        check_moments(template)
        if self._needs_rows():
            allowed = "moments tell squared errors only"
            raise refused("scoring", self.scoring, allowed, "Leave it at None, and losses out of the grid.")
        if moments.n_folds < 2:
            raise DataError("The moments are of all rows together; make them in folds (n_folds=5) to cross-validate.")
        if getattr(template, "features", None) == "auto":
            template.features = "linear"
        data = moments.to_tasks()
        held_out = np.arange(moments.n_folds)[:, None] == data.groups
        self._fit_columns(
            template,
            replace(data, groups=None),
            (None, None, None, None),
            lambda reader, data: remember_moments(reader, moments),
            lambda data: Folds(~held_out, held_out),
        )
        return self

    def _fit_columns(
        self,
        template: Any,
        columns: TaskData,
        given: tuple[Any, Any, Any, Any],
        remember: Callable[[Any, TaskData], None],
        split: Callable[[TaskData], Folds],
    ) -> TaskData:
        """Choose and fit on tasks with their columns; the answer is the tasks with the features that were chosen.

        Parameters
        ----------
        template : estimator
            Whose parameters are chosen.
        columns : TaskData
            The tasks.
        given : tuple of (X, y, tasks, sample_weight)
            As they came, for scorers.
        remember : callable
            Lets an estimator keep what later calls are checked against.
        split : callable
            The folds.
        """
        check_rows(template.to_spec(columns), columns)
        self._check(columns)
        splits: Folds | None = None
        contests: list[Contest] = []
        with Progress(self.verbose, type(self).__name__, STAGES + 1) as progress:
            for features in feature_choices(template.features, columns):
                reader = _with_features(template, features)
                data = reader._map_features(columns)
                if contests and data.n_features == contests[-1].whole.n_features:
                    break  # nothing was added
                remember(reader, data)
                whole = Dataset(data, reader._loss())
                # Before the splits, which are as large as some columns: preparing needs a copy of the features for a
                # while.
                whole.prepared(reader.to_spec(data))
                if splits is None:
                    splits = split(data)
                    splits.check(data)
                    record = Checkpoint(self.checkpoint, self._identity(columns, splits))
                folds = self._folds(given, columns, whole, reader, splits)
                for fold, first in zip(folds, contests[0].table.folds if contests else (), strict=False):
                    fold.noise = first.noise  # scores in the same units
                searched = searched_with(reader, self.search_tol)
                table = ScoreTable(searched, folds, n_jobs=self.n_jobs, checkpoint=record, progress=progress)
                table.label = f"{features} " if contests else ""
                self._search(table, whole, reader)
                contests.append(Contest(features, table, whole, reader))
                if len(contests) > 1 and not contests[-1].beats(contests[-2]):
                    break
        return self._settle(contests, isinstance(template.features, str) and template.features == "auto")

    def _settle(self, contests: list[Contest], chosen: bool) -> TaskData:
        """Take the features that won, choose the settings among theirs, and fit all rows; the tasks with them."""
        previous = getattr(self, "best_estimator_", None) if self.warm_start else None
        members = contests[-1:]
        if len(contests) > 1 and not contests[-1].beats(contests[-2]):
            # Features that are better, and not clearly so, are averaged with the simpler ones.
            members = contests[-2:] if self._averages and contests[-1].beats(contests[-2], 0.0) else contests[-2:-1]
        features, table, whole, reader = members[-1]
        simpler = []
        for contest in members[:-1]:
            self._choose(contest.table)
            self._refit(contest.whole, contest.reader)
            simpler.append(self.best_estimator_)
        if chosen:
            self.feature_scores_ = {contest.features: contest.table.best().mean for contest in contests}
            self.feature_members_ = [contest.features for contest in members]
            table.note_features(features)
        self._choose(table)
        self._refit(whole, reader, None if previous is None else previous._fit_of(whole.data))
        if simpler:
            take_mean(self.best_estimator_, [(m.coef_, m.intercept_, m.mean_coef_) for m in simpler], whole)
        self._held_out = self._judged([contest.table for contest in members], self._choice)
        self._after_fit(table, whole)
        return whole.data

    def _judged(self, tables: list[ScoreTable], choice: Callable[[ScoreTable], list[Candidate]]) -> HeldOut | None:
        """How well the answer predicts the folds, each by the settings that the other folds choose."""
        table, scores, pieces = tables[-1], [], []
        if len(table.folds) < 2:
            return None
        for number in range(len(table.folds)):
            chosen = [[candidate.params for candidate in choice(one.without(number))] for one in tables]
            if max(len(tables), len(chosen[0])) == 1:
                scores.append(table.candidate(chosen[0][0]).folds[number, [SCORE, AUC]])
            else:
                parts = [(one.folds[number], one.template, own) for one, own in zip(tables, chosen, strict=True)]
                pieces.append((f"average {number} {' '.join(map(name_of, chosen))}", (parts,)))
        if table.progress is not None:
            table.progress.stage("average on held-out rows", len(pieces))
        found = run(score_average, pieces, n_jobs=self.n_jobs, checkpoint=table.checkpoint, progress=table.progress)
        rows = np.array([*scores, *found.values()], dtype=float)
        score, area = float(rows[:, 0].mean()), mean_of_known(rows[:, 1])
        if self.scoring is not None or not hasattr(self, "classes_"):
            judge = "minus the deviance in units of the noise" if self.scoring is None else self.scoring
            return HeldOut(f"cross-validated score ({judge}, {len(table.folds)} folds)", score, auc=area)
        what = f"cross-validated log loss ({len(table.folds)} folds, mean over tasks)"  # half of a label's deviance
        base = float(np.mean([fold.base_deviance() for fold in table.folds]))
        return HeldOut(what, -score / 2, base / 2, area)

    @property
    def held_out_(self) -> HeldOut:
        """How well the answer predicts rows that folds held out; an AttributeError says why it is not known."""
        check_is_fitted(self)
        found: HeldOut | None = getattr(self, "_held_out", None)
        if found is None:
            raise AttributeError(
                "held_out_ is not known: with one fold there are no others to choose by (give cv=5), and files of "
                "earlier versions do not hold it."
            )
        return found

    @property
    def _averages(self) -> bool:
        """Whether predictions are by the average of what the folds cannot tell apart."""
        return False

    def _makes_folds(self) -> bool:
        """Whether the folds are this estimator's own, not the user's."""
        return self.cv is None or isinstance(self.cv, int | np.integer)

    def _check(self, data: TaskData) -> None:
        """Raise where parameters are impossible, before anything is computed."""
        if isinstance(self.scoring, list | tuple | set | dict):
            raise refused("scoring", self.scoring, "give one scorer, the settings are chosen by its score")

    def _identity(self, data: TaskData, splits: Folds) -> str:
        """Hash of all that decides on the scores; of cv nothing but its splits does."""
        if self.checkpoint is None:
            return ""
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ("cv", *IDLE)}
        return fingerprint(data.X, data.y, data.weights, data.offsets, list(data.tasks), settings, splits)

    def _needs_rows(self) -> bool:
        """Whether fits and scores need the rows themselves, not their moments."""
        return self.scoring is not None

    def _folds(
        self, given: tuple[Any, Any, Any, Any], columns: TaskData, whole: Dataset, reader: Any, splits: Folds
    ) -> list[Any]:
        """Folds of the rows; feature maps learn from each fold's training rows alone."""
        X, y, tasks, sample_weight = given
        data = whole.data
        spec = reader.to_spec(data)
        by_rows = self._needs_rows() or spec.structure.relates == "residual"
        if reader.maps_ is None:
            readers = [reader] * len(splits)
            folds = make_folds(data, whole.prepared(spec), spec, whole.loss, splits, by_rows=by_rows)
        else:
            readers, folds = [], []
            for train, test in splits:
                own = copy(reader)
                part = own._map_features(columns, train)
                own.features_ = part.feature_names
                prepared = Dataset(part, whole.loss).prepared(spec)
                folds += make_folds(part, prepared, spec, whole.loss, Folds(train[None], test[None]), by_rows=by_rows)
                readers.append(own)
        if hasattr(reader, "classes_"):
            _check_classes(folds, reader.classes_)
        if self.scoring is None:
            return folds
        scorer = self._scorer(reader)
        weights = None if np.ndim(sample_weight) == 0 else np.asarray(sample_weight, dtype=float)
        ids = None if tasks is None else read_labels(tasks)
        tests = (
            [None if part is None else _safe_indexing(part, held_out) for part in (X, y, ids, weights)]
            for held_out in (np.unique(data.source_rows[test]) for _, test in splits)
        )
        return [
            ScoredFold(fold, scorer, tuple(test), own) for fold, test, own in zip(folds, tests, readers, strict=True)
        ]

    def _scorer(self, template: Any) -> Callable[..., float]:
        if isinstance(self.scoring, str) and self.scoring == "conditional":
            return conditional_score
        try:
            scorer: Callable[..., float] = check_scoring(template, self.scoring)
        except (TypeError, ValueError) as error:
            names = "the name of one of scikit-learn's scorers (sklearn.metrics.get_scorer_names())"
            raise refused("scoring", self.scoring, f"give {names}, or a callable of model, X and y") from error
        return scorer

    def _choice(self, table: ScoreTable) -> list[Candidate]:
        """What is taken by the scores, the best first: more than one is averaged."""
        return [table.simplest() if self.one_standard_error else table.best()]

    def _choose(self, table: ScoreTable) -> None:
        self._take(table, self._choice(table)[0])

    def _take(self, table: ScoreTable, chosen: Candidate) -> None:
        self.cv_results_ = table.cv_results()
        self.best_params_ = dict(chosen.params)
        self.best_score_ = chosen.mean
        self.best_index_ = list(table.candidates.values()).index(chosen)
        self.n_splits_ = len(table.folds)

    def _refit(self, whole: Dataset, template: Any, warm: FitResult | None = None) -> None:
        """Fit all rows with what was chosen."""
        model = clone(template).set_params(**self.best_params_)._same_input(template)
        spec = model.to_spec(whole.data)
        if whole.has_gaps(spec):
            data, prepared, result = fit_with_gaps(spec, whole.data, warm)
        else:
            data, prepared = whole.data, whole.prepared(spec)
            result = spec.fit(prepared, warm)
        self.best_estimator_ = model.from_spec(spec, data, prepared, result)
        warn_unless_converged(spec, result)

    def _after_fit(self, table: ScoreTable, whole: Dataset) -> None:
        """What is left to do with the fitted model."""

    def limits(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> PenaltyLimits:
        """The penalties from which on the graph is empty and all weights are zero, before anything is chosen.

        Parameters
        ----------
        X, y, tasks, sample_weight
            As for :meth:`fit`.
        """
        limits: PenaltyLimits = self._template().limits(X, y, tasks, sample_weight)
        return limits

    def partial_effect(
        self, feature: Any, task: Any = None, *, n_points: int = 50, level: float = 0.9
    ) -> PartialEffect:
        """What one column does to the predictions of the chosen estimator; see its own ``partial_effect``."""
        effect: PartialEffect = self._chosen().partial_effect(feature, task, n_points=n_points, level=level)
        return effect

    def column_relevance(self) -> dict[str, float]:
        """How much each column moves the predictions; see the estimators' own ``column_relevance``."""
        relevance: dict[str, float] = self._chosen().column_relevance()
        return relevance

    def summary(self, coverage: float = 0.9) -> Summary:
        """The chosen estimator in short, with its cross-validated score; see its own ``summary``."""
        return summarise(self, coverage)

    def predict(self, X: Any, tasks: Any = None, unseen: str | None = None, **conditions: Any) -> Any:
        """Predict with the chosen estimator; see its own ``predict``."""
        return self._chosen().predict(X, tasks=tasks, unseen=unseen, **conditions)

    @score_by_keyword
    def score(self, X: Any, y: Any, *, tasks: Any = None, sample_weight: Any = None, **conditions: Any) -> float:
        """Score of the chosen estimator; see its own ``score``."""
        return float(self._chosen().score(X, y, tasks=tasks, sample_weight=sample_weight, **conditions))

    @classmethod
    def _state_from_version_1(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Files of version 1 hold copies of the best estimator's attributes, which are read from there now."""
        return {name: value for name, value in state.items() if not hasattr(getattr_static(cls, name, None), "__get__")}

    def __sklearn_is_fitted__(self) -> bool:
        return "best_estimator_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        return self._template().__sklearn_tags__()

    def _repr_html_inner(self) -> str:
        return estimator_html(self, super()._repr_html_inner())


def _check_classes(folds: list[RowFold], classes: Labels) -> None:
    """Raise where a training part has one class only, over all tasks; in single tasks that is allowed."""
    for number, fold in enumerate(folds):
        lost = [label for value, label in enumerate(classes.tolist()) if not np.any(fold.y == value)]
        if lost:
            raise DataError(
                f"Fold {number} of cv leaves no training rows of class {listing(lost)}; give that class two rows "
                "or more, and use TaskKFold (an integer cv), which then keeps one of them in each training part."
            )
