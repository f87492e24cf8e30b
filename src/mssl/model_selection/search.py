"""Choosing parameters by cross-validation: folds, scores, the choice, the final fit."""

from __future__ import annotations

from copy import copy
from functools import wraps
from html import escape
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.utils import _safe_indexing

from mssl.data.inputs import as_given, is_missing, listing, read_labels
from mssl.data.layouts import TaskData
from mssl.data.splitters import Split, read_splits, task_ids
from mssl.estimators.base import MultiTaskEstimator, warn_unless_converged
from mssl.estimators.limits import coef_penalty_limit
from mssl.estimators.spec import FitSpec, TaskShape
from mssl.exceptions import DataError, ParameterError
from mssl.model_selection.checkpoint import IDLE, Checkpoint, fingerprint
from mssl.model_selection.folds import Dataset, RowFold, input_rows_of, make_folds
from mssl.model_selection.path import Params, configured, follow, graph_limit
from mssl.model_selection.progress import Progress
from mssl.model_selection.scores import Candidate, ScoreTable
from mssl.model_selection.search_space import STAGES, SearchSpace, coordinate_search, full_search
from mssl.model_selection.stability import FEWEST, StabilitySelection

MOST_ROUNDS = 50  # of a fit that is only scored
SELECTIONS = ("prediction", "graph", "both")


class ScoredFold(RowFold):
    """A fold of rows that a scikit-learn scorer judges."""

    def __init__(self, fold: RowFold, scorer: Any, test: tuple[Any, ...], fitted: dict[str, Any]) -> None:
        super().__init__(fold.data, fold.train_mask, fold.test_mask, fold.loss, fold.spec)
        self.scorer, self.fitted = scorer, fitted
        self.X_test, self.y_test, self.tasks_test, self.weights_test = test

    def task_scores(self, point: Any) -> NDArray[np.float64]:
        """None: a scorer judges all tasks together."""
        return np.empty(0)

    def score(self, point: Any) -> float:
        """What the scorer says of the fitted model: of its columns one by one where scikit-learn has made it."""
        model = point.model
        for name, value in self.fitted.items():
            setattr(model, name, value)
        model.from_spec(point.parts, self.data, point.prepared, point.result)
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

    def _judge_column(self, model: Any, targets: Any, weights: Any, k: int, rows: NDArray[np.bool_]) -> float:
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


def _of_column(method: Any, k: int, rows: NDArray[np.bool_]) -> Any:
    @wraps(method)
    def bound(*args: Any, **named: Any) -> Any:
        return method(*args, **named)[rows, k]

    return bound


class SearchCV(MultiTaskEstimator):
    """What the cross-validated estimators share: folds, scores, the choice and the final fit.

    Subclasses have a template, the estimator whose parameters are chosen, and a search over its settings.
    """

    cv: Any
    scoring: Any
    one_standard_error: bool
    n_jobs: Any
    checkpoint: Any
    tol: float
    search_tol: float

    def _template(self) -> Any:
        raise NotImplementedError  # pragma: no cover - every subclass has its own

    def _search(self, table: ScoreTable, whole: Dataset, template: Any) -> None:
        raise NotImplementedError  # pragma: no cover - every subclass has its own

    def _loss(self) -> Any:
        return self._template()._loss()

    def to_spec(self, data: TaskShape) -> FitSpec:
        """What the fits have in common, before anything is chosen."""
        spec: FitSpec = self._template().to_spec(data)
        return spec

    def fit(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> Any:
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

        Returns
        -------
        self
        """
        template = self._template()
        data = template._read(X, y, tasks, sample_weight)
        template.to_spec(data).check(data)
        self._check(data)
        y = y if hasattr(y, "shape") else as_given(y)
        template._remember_input(X, data)
        whole = Dataset(data, template._loss())
        # Before the splits, which are as large as some columns: preparing needs a copy of the features for a while.
        whole.prepared(template.to_spec(data))
        splits = self._splits(X, y, tasks, data)
        folds = self._folds(X, y, tasks, sample_weight, data, whole, template, splits)
        searched = clone(template).set_params(tol=self.search_tol, max_iter=min(template.max_iter, MOST_ROUNDS))
        record = Checkpoint(self.checkpoint, self._identity(data, splits))
        del splits
        with Progress(self.verbose, type(self).__name__, STAGES) as progress:
            table = ScoreTable(searched, folds, n_jobs=self.n_jobs, checkpoint=record, progress=progress)
            self._search(table, whole, template)
        self._choose(table)
        self._refit(data, whole, template)
        self._after_fit(table, whole)
        return self

    def _check(self, data: TaskData) -> None:
        """Raise where parameters are impossible, before anything is computed."""
        if isinstance(self.scoring, list | tuple | set | dict):
            raise ParameterError(f"scoring is {self.scoring!r}; give one scorer, the settings are chosen by its score.")

    def _identity(self, data: TaskData, splits: list[Split]) -> str:
        """Hash of all that decides on the scores; of cv nothing but its splits does."""
        if self.checkpoint is None:
            return ""
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ("cv", *IDLE)}
        return fingerprint(data.X, data.y, data.weights, data.offsets, list(data.tasks), settings, splits)

    def _splits(self, X: Any, y: Any, tasks: Any, data: TaskData) -> list[Split]:
        groups = tasks
        if data.layout == "long" and groups is None and self.task_column is not None:
            groups = task_ids(X, self.task_column)  # of all rows: the data are without those of weight zero
        return read_splits(self.cv, X, y, groups)

    def _folds(
        self, X: Any, y: Any, tasks: Any, sample_weight: Any, data: TaskData, whole: Dataset, template: Any, splits: Any
    ) -> list[Any]:
        parts = template.to_spec(data)
        input_rows = input_rows_of(data, y, sample_weight)
        by_rows = self.scoring is not None or parts.structure.on == "residual"
        folds = make_folds(data, whole.prepared(parts), parts, whole.loss, splits, input_rows, by_rows=by_rows)
        fitted = {name: value for name, value in vars(template).items() if name.endswith("_")}
        if "classes_" in fitted:
            _check_classes(folds, fitted["classes_"])
        if self.scoring is None:
            return folds
        scorer = self._scorer(template)
        weights = None if np.ndim(sample_weight) == 0 else np.asarray(sample_weight, dtype=float)
        ids = None if tasks is None else read_labels(tasks)
        rows = X if hasattr(X, "shape") else as_given(X)
        tests = (
            [
                None if part is None else _safe_indexing(part, test[np.isin(test, input_rows)])
                for part in (rows, y, ids, weights)
            ]
            for _, test in splits
        )
        return [ScoredFold(fold, scorer, tuple(test), fitted) for fold, test in zip(folds, tests, strict=True)]

    def _scorer(self, template: Any) -> Any:
        try:
            return check_scoring(template, self.scoring)
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"scoring is {self.scoring!r}; give the name of one of scikit-learn's scorers "
                "(sklearn.metrics.get_scorer_names()), or a callable of model, X and y."
            ) from error

    def _choose(self, table: ScoreTable) -> None:
        self._take(table, table.simplest() if self.one_standard_error else table.best())

    def _take(self, table: ScoreTable, chosen: Candidate) -> None:
        self.cv_results_ = table.cv_results()
        self.best_params_ = dict(chosen.params)
        self.best_score_ = chosen.mean
        self.best_index_ = list(table.candidates.values()).index(chosen)
        self.n_splits_ = len(table.folds)

    def _refit(self, data: TaskData, whole: Dataset, template: Any) -> None:
        model = clone(template).set_params(**self.best_params_)
        for name, value in vars(template).items():
            if name.endswith("_"):
                setattr(model, name, value)
        spec = model.to_spec(data)
        prepared = whole.prepared(spec)
        result = spec.fit(prepared)
        model.from_spec(spec, data, prepared, result)
        warn_unless_converged(spec, result)
        self.best_estimator_ = model
        for name, value in vars(model).items():
            if name.endswith("_"):
                setattr(self, name, value)

    def _after_fit(self, table: ScoreTable, whole: Dataset) -> None:
        """What is left to do with the fitted model."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_")


def _check_classes(folds: list[RowFold], classes: NDArray[Any]) -> None:
    """Raise where a training part has one class only, over all tasks; in single tasks that is allowed."""
    for number, fold in enumerate(folds):
        lost = [label for value, label in enumerate(classes.tolist()) if not np.any(fold.y == value)]
        if lost:
            raise DataError(
                f"Fold {number} of cv leaves no training rows of class {listing(lost)}; use TaskKFold, "
                "which spreads every class of two rows or more."
            )


class MSSLSearch(SearchCV):
    """The search over λ, γ, coupling, shrinkage and shared mean, and the choice of the graph."""

    search: str
    selection: str
    shared_means: Any
    stability: Any

    def _check(self, data: TaskData) -> None:
        super()._check(data)
        if self.search not in ("coordinate", "grid"):
            raise ParameterError(f"search is {self.search!r}; allowed are 'coordinate' and 'grid'.")
        if self.selection not in SELECTIONS:
            raise ParameterError(f"selection is {self.selection!r}; allowed are {', '.join(map(repr, SELECTIONS))}.")
        if self.shared_means is not None and np.ndim(self.shared_means) != 1:
            raise ParameterError(f"shared_means is {self.shared_means!r}; give a list of values, or None.")
        if self.stability is not None and not isinstance(self.stability, StabilitySelection):
            raise ParameterError(f"stability is {self.stability!r}; give a StabilitySelection, or None.")
        if self.selection != "prediction":
            self._check_stability(data)

    def _check_stability(self, data: TaskData) -> None:
        chosen = self._stability()
        chosen.check()
        if self.checkpoint is not None and chosen.random_state is None:
            raise ParameterError(
                "stability has random_state=None, so that no later run draws the same subsamples; give it a seed to "
                "continue from a checkpoint."
            )
        on_residuals = self._template().on == "residual"
        n, what = (int(data.n_rows.min()), "rows") if on_residuals else (data.n_features, "features")
        if chosen.subsample == "coefficients" and n < FEWEST:
            raise ParameterError(
                f"There are {n} {what} to halve; selection={self.selection!r} needs at least {FEWEST} {what}. Give "
                "stability=StabilitySelection(subsample='samples'), or selection='prediction'."
            )

    def _stability(self) -> StabilitySelection:
        """A fixed seed by default, so that equal fits have equal graphs."""
        return StabilitySelection(random_state=0) if self.stability is None else clone(self.stability)

    def _search(self, table: ScoreTable, whole: Dataset, template: Any) -> None:
        structure = template.to_spec(whole).structure
        plain = clone(template).set_params(shared_mean=False).to_spec(whole)
        coefs_only = structure.on == "coef" and template.formulation == "unified"

        def limit(params: Params) -> float:
            parts = clone(template).set_params(**params).to_spec(whole)
            known = coefs_only or template.formulation == "paper"
            return graph_limit(whole.prepared(parts), parts) if known else 1.0

        tau = 0.0
        if coefs_only and whole.n_tasks > 1:
            with_mean = clone(template).set_params(shared_mean=True).to_spec(whole)
            known = whole.prepared(with_mean)
            tau = known.unit**2 * known.mean_variance
        space = SearchSpace.read(
            self,
            graph_limit=limit,
            coef_limit=coef_penalty_limit(whole.prepared(plain), plain),
            mean_variance=tau,
            many_tasks=whole.n_tasks > whole.n_features,
            without_graph=coefs_only,
        )
        table.stop_early = self.search == "coordinate"
        (coordinate_search if table.stop_early else full_search)(table, space)

    def _choose(self, table: ScoreTable) -> None:
        super()._choose(table)
        learns = np.isfinite(self.best_params_["graph_penalty"])
        self.graph_params_ = dict(
            self.best_params_ if learns or table.best_with_graph is None else table.best_with_graph.params
        )

    def _after_fit(self, table: ScoreTable, whole: Dataset) -> None:
        if self.selection == "prediction":
            penalty = self.best_params_["graph_penalty"]
            told = (
                f"graph_penalty={penalty:.3g}"
                if np.isfinite(penalty)
                else "which no graph improves clearly (selection='both' finds the stable edges)"
            )
            self.graph_choice_ = f"prediction, {told}"
            return
        template = configured(self.best_estimator_, self.graph_params_)
        self.stability_ = self._stability().set_params(n_jobs=self.n_jobs).fit_whole(whole, template, table.checkpoint)
        if self.selection == "graph":
            self._agree_with(table, whole, template)
        self.graph_ = self.stability_.graph_
        self.graph_choice_ = f"stability selection, threshold={self.stability_.threshold:g}"

    def _agree_with(self, table: ScoreTable, whole: Dataset, template: Any) -> None:
        """Refit with the λ whose graph agrees best with the stable one, and score it like the others."""
        rest = {name: value for name, value in self.graph_params_.items() if name != "graph_penalty"}
        parts = template.to_spec(whole)
        limit = graph_limit(whole.prepared(parts), parts)
        chain = [{**rest, "graph_penalty": float(value)} for value in limit * np.geomspace(0.95, 0.02, 25)]
        stable = self.stability_.graph_.adjacency

        def disagreement(point: Any) -> int:
            return int(
                np.count_nonzero((point.result.structure.precision != 0) ^ (stable | np.eye(len(stable), dtype=bool)))
            )

        best = min(follow(whole, template, chain), key=disagreement)
        table.evaluate("agreement with the stable graph", [[best.params]])
        self._take(table, table.candidate(best.params))
        self._refit(whole.data, whole, template)

    def _repr_html_inner(self) -> str:
        html = super()._repr_html_inner()
        if not hasattr(self, "graph_choice_"):
            return str(html)
        chosen = ", ".join(f"{name}={value:.3g}" for name, value in self.best_params_.items())
        weights = "agreement with the stable graph" if self.selection == "graph" else "prediction"
        told = f"weights chosen for {weights} ({chosen}); graph chosen by {self.graph_choice_}"
        return f"{html}<p>{escape(told)}</p>"
