"""Choosing parameters by cross-validation: folds, scores, the choice, the final fit."""

from __future__ import annotations

from functools import wraps
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.utils import _safe_indexing

from mssl.data import TaskData
from mssl.estimators import MultiTaskEstimator, Parts, check_structure, paper_start
from mssl.exceptions import ParameterError
from mssl.model_selection.board import ScoreBoard
from mssl.model_selection.checkpoint import Checkpoint, fingerprint
from mssl.model_selection.folds import RowFold, Whole, make_folds, places
from mssl.model_selection.path import Params, configured, follow, graph_limit
from mssl.model_selection.plan import STAGES, Space, coordinate_search, full_search
from mssl.model_selection.progress import Progress
from mssl.model_selection.splitters import TaskKFold, TaskSplitter, task_ids
from mssl.model_selection.stability import StabilitySelection
from mssl.solvers.fit import fit_prepared

Index = NDArray[np.intp]

MOST_ROUNDS = 50  # of a fit that is only scored
SELECTIONS = ("prediction", "graph", "both")


class ScoredFold(RowFold):
    """A fold of rows that a scikit-learn scorer judges."""

    def __init__(self, data: TaskData, masks: tuple[Any, Any], loss: Any, parts: Parts, test: tuple[Any, ...]) -> None:
        super().__init__(data, *masks, loss, parts)
        self.X_test, self.y_test, self.tasks_test, self.scorer, self.fitted = test

    def task_scores(self, point: Any) -> NDArray[np.float64]:
        """None: a scorer judges all tasks together."""
        return np.empty(0)

    def score(self, point: Any) -> float:
        """What the scorer says of the fitted model."""
        model = point.model
        for name, value in self.fitted.items():
            setattr(model, name, value)
        model._keep(self.data, point.prepared, point.result, point.parts)
        if self.tasks_test is not None:
            _bind_tasks(model, self.tasks_test)
        return float(self.scorer(model, self.X_test, self.y_test))


def _bind_tasks(model: Any, tasks: Any) -> None:
    """Make a model predict for given tasks, for scorers that know X and y only."""
    for name in ("predict", "predict_proba", "decision_function", "score"):
        if hasattr(model, name):
            setattr(model, name, _with_tasks(getattr(model, name), tasks))


def _with_tasks(method: Any, tasks: Any) -> Any:
    @wraps(method)
    def bound(X: Any, *more: Any) -> Any:
        return method(X, *more, tasks=tasks)

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

    def _search(self, board: ScoreBoard, whole: Whole, template: Any) -> None:
        raise NotImplementedError  # pragma: no cover - every subclass has its own

    def _loss(self) -> Any:
        return self._template()._loss()

    def _parts(self, data: TaskData) -> Parts:
        parts: Parts = self._template()._parts(data)
        return parts

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
        check_structure(template._parts(data).structure, data, template._loss())
        template._remember_input(X, data)
        whole = Whole(data, template._loss())
        # Before the splits, which are as large as some columns: preparing needs a copy of the features for a while.
        whole.prepared(template._parts(data))
        splits = self._splits(X, y, tasks, data)
        folds = self._folds(X, y, tasks, sample_weight, data, whole, template, splits)
        searched = clone(template).set_params(tol=self.search_tol, max_iter=min(template.max_iter, MOST_ROUNDS))
        settings = {
            k: v for k, v in self.get_params(deep=False).items() if k not in ("n_jobs", "checkpoint", "verbose")
        }
        identity = (
            ""
            if self.checkpoint is None
            else fingerprint(data.X, data.y, data.weights, data.offsets, list(data.tasks), settings, splits)
        )
        del splits
        record = Checkpoint(self.checkpoint, identity)
        with Progress(self.verbose, type(self).__name__, STAGES) as progress:
            board = ScoreBoard(searched, folds, n_jobs=self.n_jobs, checkpoint=record, progress=progress)
            self._search(board, whole, template)
        self._choose(board)
        self._refit(X, data, whole, template)
        self._after_fit(data, whole, record)
        return self

    def _splits(self, X: Any, y: Any, tasks: Any, data: TaskData) -> list[tuple[Index, Index]]:
        groups = tasks
        if data.layout == "long" and groups is None and self.task_column is not None:
            groups = task_ids(X, self.task_column)  # of all rows: the data are without those of weight zero
        if self.cv is None or isinstance(self.cv, int | np.integer):
            cv: Any = TaskKFold(5 if self.cv is None else int(self.cv))
        else:
            cv = self.cv
        if isinstance(cv, TaskSplitter):
            pairs = cv.split(X, y, groups)
        else:  # scikit-learn's own know no tasks, and most warn where groups are given
            pairs = cv.split(X, y) if hasattr(cv, "split") else cv
        return [(np.asarray(train, dtype=np.intp), np.asarray(test, dtype=np.intp)) for train, test in pairs]

    def _folds(
        self, X: Any, y: Any, tasks: Any, sample_weight: Any, data: TaskData, whole: Whole, template: Any, splits: Any
    ) -> list[Any]:
        parts = template._parts(data)
        prepared = whole.prepared(parts)
        where = places(data, y, sample_weight)
        by_rows = self.scoring is not None or parts.structure.on == "residual"
        folds = make_folds(data, prepared, parts, whole.loss, splits, where, rows=by_rows)
        if self.scoring is None:
            return folds
        scorer = check_scoring(template, self.scoring)
        fitted = {name: value for name, value in vars(template).items() if name.endswith("_")}
        ids = None if tasks is None else np.asarray(tasks)
        return [
            ScoredFold(
                data,
                (fold.train_mask, fold.test_mask),
                whole.loss,
                parts,
                (
                    _safe_indexing(X, test),
                    _safe_indexing(y, test),
                    None if ids is None else ids[test],
                    scorer,
                    fitted,
                ),
            )
            for fold, (_, test) in zip(folds, splits, strict=True)
        ]

    def _choose(self, board: ScoreBoard) -> None:
        entry = board.simplest() if self.one_standard_error else board.chosen()
        self.cv_results_ = board.table()
        self.best_params_ = dict(entry.params)
        self.best_score_ = entry.mean
        self.best_index_ = list(board.entries.values()).index(entry)
        self.n_splits_ = len(board.folds)

    def _refit(self, X: Any, data: TaskData, whole: Whole, template: Any) -> None:
        model = clone(template).set_params(**self.best_params_)
        for name, value in vars(template).items():
            if name.endswith("_"):
                setattr(model, name, value)
        parts = model._parts(data)
        prepared = whole.prepared(parts)
        result = fit_prepared(prepared, parts.structure, parts.penalty, first=paper_start(parts.paper, data.n_tasks))
        model._keep(data, prepared, result, parts)
        model._warn_unless_converged(result, parts)
        self.best_estimator_ = model
        for name, value in vars(model).items():
            if name.endswith("_"):
                setattr(self, name, value)

    def _after_fit(self, data: TaskData, whole: Whole, record: Checkpoint) -> None:
        """What is left to do with the fitted model."""


class MSSLSearch(SearchCV):
    """The search over λ, γ, coupling, shrinkage and shared mean, and the choice of the graph."""

    search: str
    selection: str
    stability: Any

    def _search(self, board: ScoreBoard, whole: Whole, template: Any) -> None:
        if self.search not in ("coordinate", "grid"):
            raise ParameterError(f"search is {self.search!r}; allowed are 'coordinate' and 'grid'.")
        if self.selection not in SELECTIONS:
            raise ParameterError(f"selection is {self.selection!r}; allowed are {', '.join(map(repr, SELECTIONS))}.")
        structure = template._parts(whole).structure
        plain = clone(template).set_params(shared_mean=False)._parts(whole)
        coefs_only = structure.on == "coef" and template.formulation == "unified"

        def limit(params: Params) -> float:
            parts = clone(template).set_params(**params)._parts(whole)
            return graph_limit(whole.prepared(parts), parts) if coefs_only else 1.0

        tau = 0.0
        if coefs_only and whole.n_tasks > 1:
            with_mean = clone(template).set_params(shared_mean=True)._parts(whole)
            known = whole.prepared(with_mean)
            tau = known.unit**2 * known.mean_variance
        space = Space.read(
            self,
            graph_limit=limit,
            coef_limit=whole.prepared(plain).gamma_max(structure),
            mean_variance=tau,
            many_tasks=whole.n_tasks > whole.n_features,
            without_graph=coefs_only,
        )
        board.leaves_early = self.search == "coordinate"
        (coordinate_search if board.leaves_early else full_search)(board, space)

    def _choose(self, board: ScoreBoard) -> None:
        super()._choose(board)
        learns = np.isfinite(self.best_params_["graph_penalty"])
        self.graph_params_ = dict(self.best_params_ if learns or board.learned is None else board.learned.params)

    def _after_fit(self, data: TaskData, whole: Whole, record: Checkpoint) -> None:
        if self.selection == "prediction":
            penalty = self.best_params_["graph_penalty"]
            told = (
                f"graph_penalty={penalty:.3g}"
                if np.isfinite(penalty)
                else "which no graph improves clearly (selection='both' finds the stable edges)"
            )
            self.graph_choice_ = f"prediction, {told}"
            return
        chosen = clone(self.stability) if self.stability is not None else StabilitySelection()
        template = configured(self.best_estimator_, self.graph_params_)
        self.stability_ = chosen.set_params(n_jobs=self.n_jobs).fit_whole(whole, template, record)
        if self.selection == "graph":
            self._agree_with(whole, template)
        self.graph_ = self.stability_.graph_
        self.graph_choice_ = f"stability selection, threshold={self.stability_.threshold:g}"

    def _agree_with(self, whole: Whole, template: Any) -> None:
        """Refit with the λ whose graph agrees best with the stable one."""
        rest = {name: value for name, value in self.graph_params_.items() if name != "graph_penalty"}
        parts = template._parts(whole)
        limit = graph_limit(whole.prepared(parts), parts)
        chain = [{**rest, "graph_penalty": float(value)} for value in limit * np.geomspace(0.95, 0.02, 25)]
        stable = self.stability_.graph_.adjacency

        def disagreement(point: Any) -> int:
            return int(
                np.count_nonzero((point.result.structure.precision != 0) ^ (stable | np.eye(len(stable), dtype=bool)))
            )

        best = min(follow(whole, template, chain), key=disagreement)
        self.best_params_ = best.params
        self._refit(None, whole.data, whole, template)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_params_")

    def _repr_html_inner(self) -> str:
        html = super()._repr_html_inner()
        if not hasattr(self, "graph_choice_"):
            return str(html)
        chosen = ", ".join(f"{name}={value:.3g}" for name, value in self.best_params_.items())
        weights = "agreement with the stable graph" if self.selection == "graph" else "prediction"
        told = f"weights chosen for {weights} ({chosen}); graph chosen by {self.graph_choice_}"
        return f"{html}<p>{escape(told)}</p>"
