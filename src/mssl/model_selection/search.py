"""Choice of parameters by cross-validation: folds, scores, the choice, and the final fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial, wraps
from inspect import getattr_static
from operator import attrgetter
from os import PathLike
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from mssl._html import Html, tag
from mssl._progress import Progress
from mssl._renamed import Move, old_names, renamed_grid
from mssl._typing import ArrayLike, BaseEstimator, Given
from mssl._validation import check_choice, check_instance, refused, warn
from mssl.data.encoding import Features
from mssl.data.folds import CV, Folds
from mssl.data.hints import warn_of_ids, warn_of_residuals
from mssl.data.inputs import as_rows
from mssl.data.layouts import TaskData
from mssl.data.moments import Moments
from mssl.estimators.base import MultiTaskEstimator, PenaltyLimits, hint_at_other_scales
from mssl.estimators.fitted import Fitted, FittedAttributes
from mssl.estimators.moments import FromMoments, check_moments
from mssl.estimators.mssl import MSSLClassifier, MSSLRegressor, MultiTaskGLM
from mssl.estimators.prediction import score_by_keyword
from mssl.estimators.summary import Summary, estimator_html, summarise
from mssl.exceptions import DataError, ParameterError, all_or_nothing
from mssl.files.checkpoint import Checkpoint
from mssl.judge.held_out import ScoreTable
from mssl.judge.parallel import Workers
from mssl.kernels.threads import SingleThreaded
from mssl.metrics import HeldOut, mean_of_known
from mssl.model_selection.scores import (
    Contest,
    Dataset,
    Grids,
    Judge,
    configured,
    follow,
    graph_limit,
    grid_values,
    make_folds,
    mapped,
    mean_weights,
    score_search,
)
from mssl.model_selection.search_space import GRIDS, STAGES, explore, is_of_loss
from mssl.model_selection.stability import StabilitySelection
from mssl.penalties import L1
from mssl.solvers.alternation import FitResult
from mssl.structures import Independent

P = ParamSpec("P")
R = TypeVar("R")

MOST_MEMBERS = 30  # Largest number of settings in an average: more settings cost fits and hardly change it.
# Largest number of rounds of a fit that is only scored: an unfinished fit ranks its settings almost as well, in a
# quarter of the time.
MOST_ROUNDS = 50


def _delegated(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Delegate a method to the chosen estimator; a search has the method if its estimator has it."""
    name = method.__name__

    @wraps(method)
    def delegated(search: Any, *args: P.args, **named: P.kwargs) -> R:
        answer: R = getattr(search._chosen(), name)(*args, **named)
        return answer

    available: Callable[Concatenate[Any, P], R] = available_if(lambda search: hasattr(search._template(), name))(
        delegated
    )
    return available


class _Found(FittedAttributes):
    """Fitted attributes of a search, which are no dataclass fields because fields are parameters."""

    best_estimator_: MultiTaskEstimator
    best_params_: dict[str, Any]
    stability_: StabilitySelection


@dataclass(eq=False, repr=False)
class SearchCV(_Found, SingleThreaded, BaseEstimator):
    """The search over an estimator's parameters: folds, scores, the choice and the final fit.

    A search holds the chosen estimator as ``best_estimator_``. Predictions, scores and fitted attributes of the search
    are those of the chosen estimator.
    """

    estimator: MultiTaskEstimator | None = None
    param_grid: str | Mapping[str, Any] | None = "auto"
    _: KW_ONLY
    cv: CV = None
    scoring: str | Callable[..., float] | None = None
    search: str = "coordinate"
    refit: str = "average"
    selection: str = "prediction"
    stability: StabilitySelection | None = None
    search_tol: float = 1e-4
    n_jobs: int | None = None
    checkpoint: str | PathLike[str] | None = None
    verbose: int = 0

    _default: ClassVar[type[MultiTaskEstimator]] = MSSLRegressor  # Class of the default estimator.

    @staticmethod
    def _old_positions(args: tuple[Any, ...], params: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Interpret positional lists as graph penalties and coefficient penalties, as in version 0.1.0."""
        lists = [np.iterable(value) and not isinstance(value, str | Mapping) for value in args]
        if not any(lists) or hasattr(args[0], "get_params"):
            return args, params
        return (), {**dict(zip(("graph_penalties", "coef_penalties"), args, strict=False)), **params}

    def _template(self) -> MultiTaskEstimator:
        """Return the estimator with the parameters that the search does not vary."""
        template = self._default() if self.estimator is None else clone(self.estimator)
        if not isinstance(template, MultiTaskEstimator):
            allowed = "give an MSSL estimator, a MultiTaskGLM or a MultiTaskClassifier"
            raise refused("estimator", self.estimator, allowed)
        for name, part in (("structure", Independent), ("penalty", L1)):
            if vars(template).get(name, part) is None:
                setattr(template, name, part())
        if hasattr(template, "graph_penalty"):
            template.graph_penalty = template._part("graph_penalty", template.graph_penalty)
        return template

    @property
    def task_column(self) -> Hashable | None:
        """The estimator's column of task ids."""
        return self._template().task_column

    def _grid(self) -> Grids:
        """Return the user's grids as lists; an empty dict means that all grids come from the data."""
        grid = self.param_grid
        if grid is None or grid == "auto":
            return {}
        if not isinstance(grid, Mapping):
            raise refused("param_grid", grid, "give 'auto', or one dict of parameter → values")
        if not grid:
            raise ParameterError("param_grid is empty; name at least one parameter, or give 'auto'.")
        template = self._template()
        grid = renamed_grid(template, grid)
        known = set(GRIDS if hasattr(template, "graph_penalty") else template.get_params(deep=True))
        if unknown := sorted(set(grid) - known):
            raise ParameterError(
                f"param_grid names {', '.join(map(repr, unknown))}, which is not searched over for a "
                f"{type(template).__name__}; give some of {', '.join(sorted(known))}."
            )
        return {name: grid_values(values, name) for name, values in grid.items()}

    def _chosen(self) -> MultiTaskEstimator:
        check_is_fitted(self)
        return self.best_estimator_

    @property
    def fitted_(self) -> Fitted:
        """The fit of the best estimator, with the stable graph if stability selection ran."""
        left = self._chosen().fitted_
        return replace(left, graph=self.stability_.graph_) if hasattr(self, "stability_") else left

    @fitted_.setter
    def fitted_(self, value: Fitted) -> None:
        self.best_estimator_.fitted_ = replace(value, graph=self.best_estimator_.graph_)

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        tasks: Given = None,
        sample_weight: Given = None,
        groups: Given = None,
        order: Given = None,
        offset: Given = None,
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
            Group of each row, such as its day or its patient: the folds keep all rows of a group, in all tasks,
            together. Give one entry per row or the name of a column of X, which is then not a feature. In the shared
            and aligned layouts each row is a group by default.
        order : str or array of shape (N,) or (n,), optional
            Time of each row, as an array or a column name. The folds are then blocks of time
            (:class:`TaskBlockKFold`, which with ``forward=True`` trains on earlier rows only). Splitters in ``cv`` see
            the rows in this order.
        offset : array of the shape of y or of its rows, optional
            Fixed term of the linear predictor, as for the estimator itself. It cannot be combined with ``scoring``,
            since scorers do not take offsets.

        Returns
        -------
        self
        """
        if self._fitted_on_workers(X, y, tasks, sample_weight, offset):
            return self
        template = self._template()
        if offset is not None and self.scoring is not None:
            remedy = "Leave it at None, which is the deviance."
            raise refused("scoring", self.scoring, "scorers know no offsets", remedy)
        columns = template._read(X, y, tasks, sample_weight, offset, groups, order)
        own_folds = self.cv is None or isinstance(self.cv, int | np.integer)  # Not a splitter of the user.
        if own_folds:
            warn_of_ids(columns)
        X, y = template._own_columns(X), as_rows(y)
        rows = X.values if isinstance(X, Features) else as_rows(X)
        splits = Folds.from_cv(columns, self.cv, rows)
        scoring = None if self.scoring is None else Judge(self.scoring, template, rows, y, tasks, sample_weight)
        data = self._fit_columns(template, columns, splits, scoring)
        hint_at_other_scales(self.best_estimator_, data)
        if own_folds:
            warn_of_residuals(data, self.best_estimator_._residuals(data))
        return self

    def _fitted_on_workers(self, X: Any, y: Any, tasks: Any, sample_weight: Any, offset: Any) -> bool:
        """Whether X is a Dask collection that was fitted on its workers; regressors override this method."""
        return False

    def _moment_folds(self) -> int | None:
        if self.cv is None or isinstance(self.cv, int | np.integer):
            return 5 if self.cv is None else int(self.cv)
        raise refused("cv", self.cv, "rows of a Dask collection or a chunk are dealt to folds: give their number")

    def _fit_moments(self, moments: Moments) -> Self:
        template = self._template()
        check_moments(template)
        if self.scoring is not None or any(map(is_of_loss, self._grid())):
            allowed = "moments tell squared errors only"
            raise refused("scoring", self.scoring, allowed, "Leave it at None, and losses out of the grid.")
        if self.selection != "prediction" and self._stability().subsample == "samples":
            raise refused("subsample", "samples", "moments have no rows to halve: 'features'")
        if moments.n_folds < 2:
            raise DataError("The moments are of all rows together; make them in folds (n_folds=5) to cross-validate.")
        if template.features == "auto":
            template.features = "linear"
        data = moments.to_tasks()
        held_out = np.arange(moments.n_folds)[:, None] == data.groups
        columns = replace(data, groups=None)
        template._remember_input(None, columns)
        self._fit_columns(template, columns, Folds(~held_out, held_out))
        return self

    def _fit_columns(
        self, template: MultiTaskEstimator, columns: TaskData, splits: Folds, judge: Judge | None = None
    ) -> TaskData:
        """Choose the parameters and fit; return the tasks with the chosen features.

        Parameters
        ----------
        template : estimator
            Estimator whose parameters are chosen. It has read the input.
        columns : TaskData
            Tasks with their columns.
        splits : Folds
            The folds.
        judge : Judge, optional
            Scorer of the user.
        """
        spec = template.to_spec(columns)
        spec.check(columns, gaps=spec.has_gaps(columns))
        self._check(template, columns, splits)
        previous = getattr(self, "best_estimator_", None) if template.warm_start else None
        members = self._contests(template, columns, splits, judge)
        chosen, last = [self._choice(one.table) for one in members], members[-1]
        self._take(members, chosen, None if previous is None else previous._fit_of(last.whole.data))
        if "graph_penalty" in self.best_params_:
            graph, learns = last.best_with_graph, np.isfinite(self.best_params_["graph_penalty"])
            self.graph_params_ = dict(self.best_params_ if graph is None or learns else graph)
        self._held_out = self._judged(members, self._choice)
        self._select_graph(last)
        return last.whole.data

    @property
    def _averages(self) -> bool:
        """Whether the fit averages several settings."""
        return self.refit == "average" and self.selection != "graph" and not any(map(is_of_loss, self._grid()))

    def _choice(self, table: ScoreTable) -> list[int]:
        """Return the numbers of the chosen settings, the best first; several settings are averaged."""
        best = table.simplest() if self.refit == "one_se" else table.ranking()[0]
        return table.equals(best, MOST_MEMBERS if self._averages else 1)

    def _contests(
        self, template: MultiTaskEstimator, columns: TaskData, splits: Folds, judge: Judge | None
    ) -> list[Contest]:
        """Search each kind of features; return the contests that predict: the best one, or two that are averaged."""
        grid = self._grid()
        contests: list[Contest] = []
        members: list[Contest] = []
        kinds, auto = [template.features], isinstance(template.features, str) and template.features == "auto"
        if auto:
            kinds = ["linear"] if sparse.issparse(columns.X) else ["linear", "spline", "spline+interactions"]
        with Progress(self.verbose, type(self).__name__, STAGES + 1) as progress:
            workers = Workers(self.n_jobs, Checkpoint.of(self, columns, clone(template), splits), progress)
            for features in kinds:
                reader, data = mapped(template, columns, features)
                if contests and data.n_features == contests[-1].whole.n_features:
                    break  # The maps added no features.
                folds = make_folds(reader, data, columns, splits, judge, by_rows=any(map(is_of_loss, grid)))
                for fold, first in zip(folds, contests[0].folds if contests else (), strict=False):
                    fold.noise = first.noise  # The scores then have the same units.
                # The fits of the search have a looser tolerance than the final fit.
                searched = clone(reader).set_params(tol=self.search_tol, max_iter=min(reader.max_iter, MOST_ROUNDS))
                contest = Contest(grid, reader, Dataset(data), folds, searched, workers)
                contest.features |= {"features": features} if auto else {}
                explore(contest, self.search)
                contests.append(contest)
                if members and not contest.table.beats(members[-1].table):
                    # If the richer features are better, but not significantly, both kinds are averaged.
                    members += [contest] if self._averages and contest.table.beats(members[-1].table, 0.0) else []
                    break
                members = [contest]
        if auto:
            self.feature_scores_ = {one.features["features"]: float(np.nanmax(one.table.means())) for one in contests}
            self.feature_members_ = [one.features["features"] for one in members]
        return members

    def _judged(self, members: Sequence[Contest], choice: Callable[[ScoreTable], list[int]]) -> HeldOut | None:
        """Score the procedure on each fold, with the settings that the other folds choose."""
        last = members[-1]
        if len(last.folds) < 2:
            return None
        scores = score_search(members, choice)
        score, area = float(scores[:, 0].mean()), mean_of_known(scores[:, 1])
        if self.scoring is not None or not hasattr(last.reader, "classes_"):
            judge = "minus the deviance in units of the noise" if self.scoring is None else self.scoring
            return HeldOut(f"cross-validated score ({judge}, {len(scores)} folds)", score, auc=area)
        what = f"cross-validated log loss ({len(scores)} folds, mean over tasks)"  # It is half of the deviance.
        base = float(np.mean([fold.base_deviance() for fold in last.folds]))
        return HeldOut(what, -score / 2, base / 2, area)

    @property
    def held_out_(self) -> HeldOut:
        """Score of the predictions on held-out rows; an AttributeError gives the reason if it is not known."""
        check_is_fitted(self)
        found: HeldOut | None = getattr(self, "_held_out", None)
        if found is None:
            raise AttributeError(
                "held_out_ is not known: with one fold no other folds can choose the settings (give cv=5), and files "
                "of earlier versions do not hold it."
            )
        return found

    def _check(self, template: MultiTaskEstimator, data: TaskData, splits: Folds) -> None:
        """Raise for invalid parameters and folds before anything is computed."""
        splits.check(data, dict(enumerate(getattr(template, "classes_", np.empty(0)).tolist())))
        check_choice("search", self.search, ("coordinate", "grid"))
        check_choice("refit", self.refit, ("average", "best", "one_se"))
        check_choice("selection", self.selection, ("prediction", "graph", "both"))
        if self.stability is not None:
            check_instance("stability", self.stability, StabilitySelection, also="None")
        if self.selection == "prediction":
            return
        if not hasattr(template, "graph_penalty"):
            allowed = "a general estimator has the graph of its best settings, so only 'prediction' is allowed"
            raise refused("selection", self.selection, allowed, "Give it to a StabilitySelection.")
        chosen = self._stability()
        chosen.check()
        if self.checkpoint is not None and chosen.random_state is None:
            raise ParameterError(
                "stability has random_state=None, so that later runs draw other subsamples; give it a seed to continue "
                "from a checkpoint."
            )
        on_residuals = getattr(template, "relation", "coef") == "residual"
        n, what = (int(data.n_rows.min()), "rows") if on_residuals else (data.n_features, "features")
        remedy = " Give stability=StabilitySelection(subsample='samples'), or selection='prediction'."
        chosen.check_halves(n, what, remedy)

    def _stability(self) -> StabilitySelection:
        """Return the stability selection, by default with a fixed seed, so that equal fits have equal graphs."""
        return StabilitySelection(random_state=0) if self.stability is None else clone(self.stability)

    def _take(self, members: Sequence[Contest], chosen: Sequence[Sequence[int]], warm: FitResult | None = None) -> None:
        """Fit all rows with the first of the chosen settings; its weights become the mean weights of all of them."""
        last = members[-1]
        fits = [contest.refitted(own, warm) for contest, own in zip(members, chosen, strict=True)]
        for point, _ in fits:
            if not point.result.status.good:
                point.spec.warn_of_end(point.result)
        self.best_estimator_ = point.fitted(last.reader, mean_weights([weights for _, weights in fits]))
        means, settings = last.given.get("shared_mean", [True]), [dict(last.table.params[k]) for k in chosen[-1]]
        if hasattr(last.reader, "graph_penalty") and any(mean is not False for mean in means):
            self.best_estimator_.unseen_ = "mean"  # Also if the chosen settings have no shared mean.
        self.cv_results_, self.n_splits_ = last.table.cv_results(), len(last.folds)
        self.best_params_, self.best_index_, self.members_ = dict(settings[0]), chosen[-1][0], settings
        self.best_score_ = float(last.table.means()[self.best_index_])

    def _select_graph(self, contest: Contest) -> None:
        """Run stability selection unless ``selection="prediction"``, and set ``graph_choice_``."""
        vars(self).pop("stability_", None)  # It may be left from an earlier fit.
        if self.selection == "prediction":
            penalty = self.best_params_.get("graph_penalty")
            if penalty is not None:
                learned, none = f"graph_penalty={penalty:.3g}", "which no graph improves clearly"
                description = learned if np.isfinite(penalty) else f"{none} (selection='both' finds the stable edges)"
                self.graph_choice_ = f"prediction, {description}"
            return
        template, whole = configured(self.best_estimator_, self.graph_params_), contest.whole
        self.stability_ = self._stability().set_params(n_jobs=self.n_jobs)
        self.stability_.fit_whole(whole, template, contest.workers.checkpoint)
        self.graph_choice_ = f"stability selection, threshold={self.stability_.threshold:g}"
        if self.selection == "both":
            return
        # The weights are fitted with the λ whose graph agrees best with the stable graph; this setting is scored too.
        lambdas = graph_limit(whole, template) * np.geomspace(0.95, 0.02, 25)
        chain = [{**self.graph_params_, "graph_penalty": value} for value in lambdas.tolist()]
        stable = self.stability_.graph_.adjacency | np.eye(whole.n_tasks, dtype=bool)
        best = min(
            follow(whole, template, chain),
            key=lambda point: np.count_nonzero((point.result.structure.precision != 0) ^ stable),
        )
        number = contest.evaluate("agreement with the stable graph", [best.params])
        self._take([contest], [number])
        self._held_out = self._judged([contest], lambda part: number)

    def limits(self, X: Any, y: ArrayLike, tasks: Given = None, sample_weight: Given = None) -> PenaltyLimits:
        """Return the smallest penalties at which the graph is empty and all weights are zero, without a search.

        Parameters
        ----------
        X, y, tasks, sample_weight
            As for :meth:`fit`.
        """
        return self._template().limits(X, y, tasks, sample_weight)

    def summary(self, level: float = 0.9) -> Summary:
        """Summarise the chosen estimator with its cross-validated score; see its own ``summary``."""
        return summarise(self, level)

    def predict(self, X: Any, tasks: Given = None, unseen: str | None = None, **conditions: Any) -> Any:
        """Predict with the chosen estimator; see its own ``predict``."""
        chosen: Any = self._chosen()
        return chosen.predict(X, tasks=tasks, unseen=unseen, **conditions)

    @score_by_keyword
    def score(
        self, X: Any, y: ArrayLike, *, tasks: Given = None, sample_weight: Given = None, **conditions: Any
    ) -> float:
        """Return the score of the chosen estimator; see its own ``score``."""
        chosen: Any = self._chosen()
        return float(chosen.score(X, y, tasks=tasks, sample_weight=sample_weight, **conditions))

    partial_effect = _delegated(MSSLRegressor.partial_effect)
    column_relevance = _delegated(MSSLRegressor.column_relevance)
    predict_proba = _delegated(MSSLClassifier.predict_proba)
    decision_function = _delegated(MSSLClassifier.decision_function)
    impute = _delegated(MSSLRegressor.impute)
    n_features_in_ = property(attrgetter("best_estimator_.n_features_in_"), doc="Number of columns of X.")
    feature_names_in_ = property(
        attrgetter("best_estimator_.feature_names_in_"), doc="Names of the columns of a frame."
    )

    @classmethod
    def _state_from_version_1(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Convert the state of a version-1 file, dropping its copies of the best estimator's attributes."""
        old = getattr(cls, "_old_names", ())
        return {
            name: value
            for name, value in state.items()
            if name in old or not hasattr(getattr_static(cls, name, None), "__get__")
        }

    def __sklearn_tags__(self) -> Any:
        return self._template().__sklearn_tags__()

    def _repr_html_inner(self) -> str:
        html = estimator_html(self, super()._repr_html_inner())
        if not hasattr(self, "graph_choice_"):
            return html
        params = self.best_params_.items()
        chosen = ", ".join(
            f"{name}={value}" if isinstance(value, str) else f"{name}={value:.3g}" for name, value in params
        )
        weights = "agreement with the stable graph" if self.selection == "graph" else "prediction"
        description = f"weights chosen for {weights} ({chosen}); graph chosen by {self.graph_choice_}"
        return f"{html}{tag('p', Html(description))!s}"


def _into_grid(name: str, value: Any, held: Mapping[str, Any]) -> dict[str, Any]:
    """Move a deprecated grid parameter into ``param_grid``."""
    before = held["param_grid"]
    own = before if isinstance(before, Mapping) else {}
    return {"param_grid": before if value is None else {**own, name: value}}


def _into_estimator(name: str, cls: type[Any], value: Any, held: Mapping[str, Any]) -> dict[str, Any]:
    """Move a deprecated parameter to the inner estimator."""
    estimator = cls() if held["estimator"] is None else clone(held["estimator"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # The warning of the search names the new spelling.
        return {"estimator": estimator.set_params(**{name: value})}


def _simplest(value: bool, held: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the deprecated ``one_standard_error`` to ``refit``."""
    return {"refit": "one_se"} if value else {}


def _averaged(value: bool, held: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the deprecated ``average`` to ``refit``."""
    return {} if held["refit"] == "one_se" else {"refit": "average" if value else "best"}


def _old_names(cls: type[Any], *further: str) -> dict[str, Move]:
    """Return the deprecated parameters of a search (0.1.0) whose inner estimator has this class."""
    grids = {
        "graph_penalties": "graph_penalty",
        "coef_penalties": "coef_penalty",
        "couplings": "prior_strength",
        "shrinkages": "graph_penalty__shrinkage",
        "shared_means": "shared_mean",
        "variance_floors": "graph_penalty__variance_floor",
    }
    inner = (
        *("correlation", "edges", "ridge", "features", "missing", "categorical_features", "scale_features"),
        *("formulation", "fit_intercept", "task_column", "solver", "graph_solver", "tol", "max_iter", "warm_start"),
        *("memory_limit", *further),
    )
    moves: dict[str, Move] = {old: partial(_into_grid, name) for old, name in grids.items()}
    moves |= {name: partial(_into_estimator, name, cls) for name in inner}
    return moves | {"one_standard_error": _simplest, "average": _averaged}


@old_names(**_old_names(MSSLRegressor, "on", "loss", "noise", "target_transform"))
class MSSLRegressorCV(FromMoments, SearchCV):
    r"""A multi-task estimator whose parameters are chosen by cross-validation.

    The default grid comes from the data and contains the rivals of multi-task learning: separate ridges, ridges around
    a mean, pooling, and the Lasso. It is searched one coordinate after the other
    (:mod:`mssl.model_selection.search_space`). First comes one ridge for all tasks (``graph_penalty=inf``), with or
    without a shared mean and from separate to pooled tasks; then sparse weights; then learned graphs. Weights and
    intercepts are averages over all settings within a standard error of the best.

    The default score is minus the mean over tasks of the test deviance in units of the task's noise. The noise is
    estimated in the training part and shrunk towards a common value according to its estimation error
    (:mod:`mssl.solvers.start`). It does not depend on the test rows. With the Gaussian loss and this score all fits use
    Gram matrices (that of a training part is the total minus that of a fold), so that the cost of the search does not
    grow with the number of rows.

    Parameters
    ----------
    estimator : MSSLRegressor, MSSLClassifier, MultiTaskGLM or MultiTaskClassifier, optional
        Estimator with the parameters that the search does not vary; ``MSSLRegressor()`` by default. With
        ``features="auto"`` the search uses straight lines, then curves, then curves and products. It continues while
        the score improves by more than two standard errors of the paired difference, over folds or over tasks,
        whichever is larger. With ``refit="average"`` features that improve the score by less are averaged with the
        simpler ones. Feature maps are fitted to the training rows of each fold only. With ``warm_start`` the final fit
        starts from the fit of the previous call; the search does not.
    param_grid : "auto" or dict of name → values, default="auto"
        Grids of the parameters. For MSSL estimators these are ``graph_penalty``, ``coef_penalty``, ``prior_strength``,
        ``shared_mean``, ``graph_penalty__shrinkage`` and ``graph_penalty__variance_floor``; grids that are not given
        come from the data. For the general estimators they are any parameters, also of their parts, such as
        ``structure__alpha``, ``penalty__alpha`` or ``loss__theta``. The search scores the product of these grids;
        "auto" varies the strengths of the structure and of an ℓ1 penalty. If the losses differ, the default score is
        the deviance of the given estimator's loss, so that the scores are comparable.
    cv : int, splitter or iterable of (train, test), default=5
        Folds. An integer uses :class:`TaskKFold`, or :class:`TaskGroupKFold` or :class:`TaskBlockKFold` if :meth:`fit`
        gets groups or an order. An iterable gives row numbers or masks of all rows.
    scoring : str or callable, optional
        Any scorer of scikit-learn; None uses the noise-scaled deviance. With ``relation="residual"``, "conditional"
        scores the prediction of each target from the other targets of the same occasion
        (:func:`mssl.metrics.conditional_score`), which ``predict(X, known=…)`` computes. For (n, K) targets a scorer of
        scikit-learn scores each column without its missing targets, and the mean is used. Scorers that take
        ``sample_weight`` get the weights of the test rows.
    search : {"coordinate", "grid"}, default="coordinate"
        For MSSL estimators: one coordinate after the other, or the product of the grids. "coordinate" stops a path of
        graph penalties early if two consecutive graphs show that further ones would gain nothing; the skipped settings
        have the score NaN.
    refit : {"average", "best", "one_se"}, default="average"
        "average" predicts with the mean weights and intercepts of all settings (at most 30) that the best one does not
        beat by a standard error of the paired difference over folds and tasks. The graph and the diagnostics are those
        of the best settings. "best" uses the weights of the best settings, which are sparse if their γ is above 0.
        "one_se" uses the sparsest settings within one standard error of the best. "average" is the same as "best" if
        the weights are chosen for the graph, or if the grid contains several losses.
    selection : {"prediction", "graph", "both"}, default="prediction"
        Purpose of the choice. "prediction": weights and graph of the best predicting settings. "both": weights of the
        best predicting settings and ``graph_`` from stability selection. "graph": ``graph_`` from stability selection
        and weights with the λ whose graph agrees best with it; these settings are scored too and become the best ones.
    stability : StabilitySelection, optional
        Stability selection of the graph; ``StabilitySelection(random_state=0)`` by default, so that equal fits have
        equal graphs. With a checkpoint it needs a seed.
    search_tol : float, default=1e-4
        Tolerance of the fits of the search (joint relative gap). The tolerance of the final fit is the estimator's
        ``tol``.
    n_jobs : int, optional
        Number of workers, as for joblib; any of its backends can be used.
    checkpoint : path, optional
        File that records finished fits, so that an interrupted search can continue. Saved models do not hold it.
    verbose : int, default=0
        1 shows progress bars on a terminal.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, cv_results_, n_splits_, held_out_
        The chosen settings, and the scores of all settings. ``held_out_.score`` is the score of the whole procedure,
        including the average: each fold is predicted with the settings that the other folds choose. For labels
        ``cv_results_["mean_auc"]`` is the mean over folds of the area under the ROC curve over the test rows of all
        tasks.
    feature_scores_ : dict
        With ``features="auto"`` the best score of each kind of features; the chosen kind is in ``best_params_``.
    feature_members_ : list
        With ``features="auto"`` the kinds of features whose weights are averaged.
    members_ : list of dict
        The settings whose weights are averaged, the best first.
    graph_params_ : dict
        The best settings with a learned graph. They differ from ``best_params_`` if one ridge for all tasks is better.
        Stability selection starts from them.
    graph_choice_ : str
        Origin of ``graph_``, for MSSL estimators.
    stability_ : StabilitySelection
        The fitted stability selection, unless ``selection="prediction"``.
    coef_, intercept_, precision_, graph_, tasks_, noise_variance_, …
        See the estimator.

    References
    ----------
    Stone (1974), doi:10.1111/j.2517-6161.1974.tb00994.x (cross-validation).

    Examples
    --------
    >>> from mssl import MSSLRegressor, MSSLRegressorCV
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(n_features=5, n_samples=20, random_state=0)
    >>> model = MSSLRegressorCV(MSSLRegressor(), cv=3).fit(data.X, data.y, tasks=data.tasks)
    >>> sorted(name for name in model.best_params_ if "__" not in name)
    ['coef_penalty', 'graph_penalty', 'prior_strength', 'shared_mean']
    >>> model.predict(data.X_test, tasks=data.tasks_test).shape
    (520,)

    Any structure, penalty and loss:

    >>> from mssl import MultiTaskGLM
    >>> from mssl.structures import Independent
    >>> model = MSSLRegressorCV(MultiTaskGLM(Independent()), {"structure__alpha": [0.1, 1.0, 10.0]})
    >>> sorted(model.fit(data.X, data.y, tasks=data.tasks).best_params_)
    ['structure__alpha']
    """


@old_names(**_old_names(MSSLClassifier, "class_weight"))
class MSSLClassifierCV(SearchCV):
    r"""A multi-task classifier whose parameters are chosen by cross-validation.

    The search, its parameters and its attributes are those of :class:`MSSLRegressorCV`, but all fits use the rows. The
    estimator is ``MSSLClassifier()`` by default. The default score is minus the mean over tasks of the test deviance
    (twice the logarithmic loss).

    Examples
    --------
    >>> from mssl import MSSLClassifierCV
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(family="binary", n_features=4, n_tasks=4, clusters=[[0, 1]], random_state=0)
    >>> model = MSSLClassifierCV(param_grid={"prior_strength": [1.0], "coef_penalty": [0.0]}, cv=3)
    >>> model.fit(data.X, data.y, tasks=data.tasks).predict_proba(data.X_test, tasks=data.tasks_test).shape
    (160, 2)
    """

    _default = MSSLClassifier


@old_names(one_standard_error=_simplest)
@dataclass(eq=False, repr=False)
class MultiTaskGLMCV(MSSLRegressorCV):
    """The old name of ``MSSLRegressorCV(MultiTaskGLM(…), …, refit="best")``; it will be removed in 0.3."""

    _default = MultiTaskGLM

    param_grid: str | Mapping[str, Any] | None = None
    _: KW_ONLY
    refit: str = "best"

    def __post_init__(self) -> None:
        warn('MultiTaskGLMCV is now MSSLRegressorCV(MultiTaskGLM(…), …, refit="best").', FutureWarning)
        self.param_grid = "auto" if self.param_grid is None else self.param_grid
