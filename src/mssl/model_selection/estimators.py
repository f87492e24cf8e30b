"""MSSL with parameters chosen by cross-validation, and the graph by prediction or by stability."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from mssl._html import Html, tag
from mssl._typing import Array, ArrayLike, ClassWeight, SharedMean
from mssl._validation import check_choice, check_instance, refused
from mssl.data.layouts import TaskData
from mssl.data.moments import Moments
from mssl.estimators.limits import coef_penalty_limit
from mssl.estimators.moments import FromMoments
from mssl.estimators.mssl import MSSLClassifier, MSSLRegressor
from mssl.exceptions import ParameterError
from mssl.graph.task_graph import TaskGraph
from mssl.losses import Loss
from mssl.model_selection.chains import Params, configured, follow, follow_all, graph_limit
from mssl.model_selection.folds import Dataset
from mssl.model_selection.scores import Candidate, ScoreTable
from mssl.model_selection.search import SearchCV, searched_with, take_mean
from mssl.model_selection.search_space import SearchSpace, coordinate_search, full_search
from mssl.model_selection.stability import MIN_ROWS_TO_HALVE, StabilitySelection
from mssl.solvers.alternation import FitResult
from mssl.structures import KnownEdges

MOST_MEMBERS = 30  # of an average: more cost time and change nothing

_SHARED = (
    "features",
    "missing",
    "categorical_features",
    "scale_features",
    "fit_intercept",
    "task_column",
    "solver",
    "graph_solver",
    "tol",
    "max_iter",
    "ridge",
    "correlation",
    "edges",
    "formulation",
    "warm_start",
    "memory_limit",
)


class MSSLSearch(SearchCV):
    """The search over λ, γ, coupling, shrinkage and shared mean, and the choice of the graph."""

    search: str
    selection: str
    shared_means: Sequence[SharedMean] | None
    stability: StabilitySelection | None
    ridge: float
    correlation: str
    edges: KnownEdges | None
    features: str | Sequence[Any]
    missing: str
    categorical_features: Sequence[str | int] | None
    scale_features: bool
    formulation: str
    fit_intercept: bool
    task_column: Hashable | None
    solver: str
    graph_solver: str
    tol: float
    max_iter: int

    average: bool
    graph_params_: dict[str, Any]
    members_: list[dict[str, Any]]
    graph_choice_: str
    stability_: StabilitySelection

    @property
    def graph_(self) -> TaskGraph:
        """The stable graph where one was selected, else the best estimator's."""
        return self.stability_.graph_ if hasattr(self, "stability_") else super().graph_

    def _check(self, data: TaskData) -> None:
        super()._check(data)
        check_choice("search", self.search, ("coordinate", "grid"))
        check_choice("selection", self.selection, ("prediction", "graph", "both"))
        if self.shared_means is not None and np.ndim(self.shared_means) != 1:
            raise refused("shared_means", self.shared_means, "give a list of values, or None")
        if self.stability is not None:
            check_instance("stability", self.stability, StabilitySelection, also="None")
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
        if chosen.subsample == "coefficients" and n < MIN_ROWS_TO_HALVE:
            raise ParameterError(
                f"There are {n} {what} to halve; selection={self.selection!r} needs at least "
                f"{MIN_ROWS_TO_HALVE} {what}. Give "
                "stability=StabilitySelection(subsample='samples'), or selection='prediction'."
            )

    def _fit_moments(self, moments: Moments) -> Self:
        if self.selection != "prediction" and self._stability().subsample == "samples":
            raise refused("subsample", "samples", "moments have no rows to halve: 'coefficients'")
        return super()._fit_moments(moments)

    def _stability(self) -> StabilitySelection:
        """A fixed seed by default, so that equal fits have equal graphs."""
        return StabilitySelection(random_state=0) if self.stability is None else clone(self.stability)

    def _search(self, table: ScoreTable, whole: Dataset, template: Any) -> None:
        structure = template.to_spec(whole).structure
        plain = clone(template).set_params(shared_mean=False).to_spec(whole)
        coefs_only = structure.relates == "coef" and template.formulation == "unified"

        def limit(params: Params) -> float:
            spec = clone(template).set_params(**params).to_spec(whole)
            known = coefs_only or template.formulation != "unified"
            return graph_limit(whole.prepared(spec), spec) if known else 1.0

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
            many_tasks=whole.n_tasks > (whole.n_features if structure.relates == "coef" else whole.data.n_rows.min()),
            without_graph=coefs_only,
        )
        table.stop_early = self.search == "coordinate"
        (coordinate_search if table.stop_early else full_search)(table, space)

    @property
    def _averages(self) -> bool:
        return self.average and not self.one_standard_error and self.selection != "graph"

    def _choice(self, table: ScoreTable) -> list[Candidate]:
        best = super()._choice(table)[0]
        return table.equals(best, MOST_MEMBERS if self._averages else 1)

    def _choose(self, table: ScoreTable) -> None:
        super()._choose(table)
        self.members_ = [dict(member.params) for member in self._choice(table)]
        learns = np.isfinite(self.best_params_["graph_penalty"])
        self.graph_params_ = dict(
            self.best_params_ if learns or table.best_with_graph is None else table.best_with_graph.params
        )

    def _refit(self, whole: Dataset, template: Any, warm: FitResult | None = None) -> None:
        super()._refit(whole, template, warm)
        if len(self.members_) > 1:
            self._average(whole, template)
        if self.shared_means is None or any(mean is not False for mean in self.shared_means):
            self.best_estimator_.unseen_ = "mean"  # also where no shared mean was chosen

    def _average(self, whole: Dataset, template: Any) -> None:
        """Give the best estimator the mean weights and intercepts of all members; the graph stays its own."""
        loose = searched_with(template, self.search_tol)
        others = [params for params in self.members_ if params != self.best_params_]
        found = []
        for point in follow_all(whole, loose, others):
            coef, intercept = point.prepared.to_user(point.result.W, point.result.intercepts)
            found.append((coef, intercept, point.prepared.unit * point.result.mean / point.prepared.scales))
        take_mean(self.best_estimator_, found, whole)

    def _after_fit(self, table: ScoreTable, whole: Dataset) -> None:
        if hasattr(self, "stability_"):
            del self.stability_  # of a fit before
        if self.selection == "prediction":
            penalty = self.best_params_["graph_penalty"]
            description = (
                f"graph_penalty={penalty:.3g}"
                if np.isfinite(penalty)
                else "which no graph improves clearly (selection='both' finds the stable edges)"
            )
            self.graph_choice_ = f"prediction, {description}"
            return
        template = configured(self.best_estimator_, self.graph_params_)
        self.stability_ = self._stability().set_params(n_jobs=self.n_jobs).fit_whole(whole, template, table.checkpoint)
        if self.selection == "graph":
            self._agree_with(table, whole, template)
        self.graph_choice_ = f"stability selection, threshold={self.stability_.threshold:g}"

    def _agree_with(self, table: ScoreTable, whole: Dataset, template: Any) -> None:
        """Refit with the λ whose graph agrees best with the stable one, and score it like the others."""
        rest = {name: value for name, value in self.graph_params_.items() if name != "graph_penalty"}
        spec = template.to_spec(whole)
        limit = graph_limit(whole.prepared(spec), spec)
        chain = [{**rest, "graph_penalty": float(value)} for value in limit * np.geomspace(0.95, 0.02, 25)]
        stable = self.stability_.graph_.adjacency

        def disagreement(point: Any) -> int:
            return int(
                np.count_nonzero((point.result.structure.precision != 0) ^ (stable | np.eye(len(stable), dtype=bool)))
            )

        best = min(follow(whole, template, chain), key=disagreement)
        table.evaluate("agreement with the stable graph", [[best.params]])
        self._take(table, table.candidate(best.params))
        self.members_ = [self.best_params_]
        self._refit(whole, template)
        self._held_out = self._judged([table], lambda part: [part.candidate(self.best_params_)])

    def _repr_html_inner(self) -> str:
        html = super()._repr_html_inner()
        if not hasattr(self, "graph_choice_"):
            return str(html)
        values = {name: v if isinstance(v, str) else f"{v:.3g}" for name, v in self.best_params_.items()}
        chosen = ", ".join(f"{name}={value}" for name, value in values.items())
        weights = "agreement with the stable graph" if self.selection == "graph" else "prediction"
        description = f"weights chosen for {weights} ({chosen}); graph chosen by {self.graph_choice_}"
        return f"{html}{tag('p', Html(description))!s}"


class MSSLRegressorCV(FromMoments, MSSLSearch):
    r"""MSSL regression that chooses λ, γ, coupling, shrinkage and shared mean by cross-validation.

    The default grid comes from the data and nests the rivals (separate ridges, ridges around a mean, pooling, the
    Lasso), so that it need not lose to any of them; it is searched one coordinate after the other
    (:mod:`mssl.model_selection.search_space`): one ridge for all tasks (``graph_penalty=inf``: around a shared mean or
    none, from separate tasks to pooled ones), sparse weights, and learned graphs. Weights and intercepts are the
    average of all settings within a standard error of the best.

    The default score is minus the mean over tasks of the test deviance in units of the task's noise. That
    noise is the training part's, drawn towards a common value as far as its estimation error asks for
    (:mod:`mssl.solvers.start`), so that the test rows have no say in it. With the Gaussian loss and this score all
    fits work on Gram matrices (a training part is the total less a fold), so that the cost of the search does not grow
    with the number of rows.

    Parameters
    ----------
    graph_penalties, coef_penalties, couplings, shrinkages, shared_means, variance_floors : array, optional
        Grids to search; None takes them from the data.
    on : {"coef", "residual"}, default="coef"
        p-MSSL or r-MSSL.
    features : {"linear", "auto", "spline", "spline+interactions"} or list, default="linear"
        As for :class:`mssl.MSSLRegressor`. "auto" searches with straight lines, then with curves, then with curves and
        products, as long as the score is better by two standard errors of the paired difference, over folds or over
        tasks, whichever is larger; what is better by less is averaged with what came before, where ``average`` is.
        Maps learn from the training rows of each fold alone. Sparse X is linear.
    target_transform : {None, "log", "yeo-johnson", "auto"}, default=None
        As for :class:`mssl.MSSLRegressor`; it is learned once, from all rows, and the default score is on its scale.
    loss, noise, missing, categorical_features, scale_features, formulation, fit_intercept, task_column, solver,
    graph_solver, max_iter
        As for :class:`mssl.MSSLRegressor`.
    correlation, edges, ridge
        As for :class:`mssl.MSSLRegressor`.
    cv : int, splitter or iterable of (train, test), default=5
        Folds; a number stands for :class:`TaskKFold`, or for :class:`TaskGroupKFold` and :class:`TaskBlockKFold` where
        :meth:`fit` gets groups or an order. Parts are row numbers or masks of all rows.
    scoring : str or callable, optional
        With ``on="residual"``, "conditional" scores how well each target is predicted from the others of the same
        occasion (:func:`mssl.metrics.conditional_score`), which is what ``predict(X, known=…)`` profits from.
        Any scorer of scikit-learn; None is the noise-scaled deviance. Of (n, K) targets a scorer of scikit-learn's own
        judges the columns one by one, missing targets left out, and their mean counts. Scorers that take
        ``sample_weight`` get that of the test rows.
    search : {"coordinate", "grid"}, default="coordinate"
        One coordinate after the other, or the product of the grids. The former leaves a path of graph penalties where
        two graphs in a row show that nothing is left to gain; scores of what would have followed are not a number.
    one_standard_error : bool, default=False
        Take the sparsest settings within one standard error of the best.
    average : bool, default=True
        Predict with the mean weights and intercepts of all settings that the best one does not beat by a standard error
        of the paired difference over folds and tasks, at most 30. The graph, and all that is told of the fit, are the
        best one's. False gives the weights of the best settings, which are sparse where its γ is above 0. Without
        effect where `one_standard_error` is set, or the weights are chosen for the graph.
    selection : {"prediction", "graph", "both"}, default="prediction"
        What the choice is for. "prediction": weights and graph of the best predicting settings. "both": weights of the
        best predicting settings, ``graph_`` from stability selection. "graph": ``graph_`` from stability selection, and
        weights fitted with the λ whose graph agrees best with it; these settings are scored too, and are the best
        ones.
    stability : StabilitySelection, optional
        How the graph is selected; ``StabilitySelection(random_state=0)`` by default, so that equal fits have equal
        graphs. With a checkpoint it needs a seed.
    tol : float, default=1e-6
        Joint relative certificate of the final fit.
    search_tol : float, default=1e-4
        The same for the fits of the search.
    n_jobs : int, optional
        Workers, as for joblib; any of its backends can be used.
    checkpoint : path, optional
        File in which finished pieces are recorded, so that a killed search continues. Saved models do not keep it.
    warm_start : bool, default=False
        Start the fit with the chosen settings from that of the previous call; the search itself starts anew.
    memory_limit : int, optional
        Bytes that Grams may take (8 K d²; folds have some each); by default a quarter of the machine's memory, at most
        2 GiB. Beyond it fits multiply by the rows, which takes longer and is told by a warning.
    verbose : int, default=0
        1 shows progress bars on a terminal.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, cv_results_, n_splits_, held_out_
        What was chosen, and the scores of everything that was tried. ``held_out_.score`` is that of the answer itself,
        an average included, in each fold by the settings that the other folds choose.
    feature_scores_ : dict
        With ``features="auto"`` the best score with each kind of features that was tried; the winner is among
        ``best_params_``.
    feature_members_ : list
        With ``features="auto"`` the kinds of features whose weights are averaged.
    members_ : list of dict
        The settings whose weights are averaged, the best first.
    graph_params_ : dict
        The best settings with a learned graph: ``best_params_``, or what lost to one ridge for all tasks. Stability
        selection starts from them.
    graph_choice_ : str
        Where ``graph_`` comes from.
    stability_ : StabilitySelection
        Present unless ``selection="prediction"``.
    coef_, intercept_, precision_, graph_, tasks_, noise_, …
        As for :class:`mssl.MSSLRegressor`.

    References
    ----------
    Stone (1974), doi:10.1111/j.2517-6161.1974.tb00994.x (cross-validation).

    Examples
    --------
    >>> from mssl import MSSLRegressorCV
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(n_features=5, n_samples=20, random_state=0)
    >>> model = MSSLRegressorCV(cv=3).fit(data.X, data.y, tasks=data.tasks)
    >>> sorted(model.best_params_)
    ['coef_penalty', 'coupling', 'graph_penalty', 'shared_mean', 'shrinkage', 'variance_floor']
    >>> model.predict(data.X_test, tasks=data.tasks_test).shape
    (520,)
    """

    best_estimator_: MSSLRegressor

    def __init__(
        self,
        graph_penalties: ArrayLike | None = None,
        coef_penalties: ArrayLike | None = None,
        *,
        couplings: ArrayLike | None = None,
        shrinkages: ArrayLike | None = None,
        shared_means: Sequence[SharedMean] | None = None,
        on: str = "coef",
        variance_floors: ArrayLike | None = None,
        correlation: str = "pearson",
        edges: KnownEdges | None = None,
        ridge: float = 0.0,
        loss: str | Loss = "gaussian",
        noise: ArrayLike = "auto",
        features: str | Sequence[Any] = "linear",
        missing: str = "error",
        categorical_features: Sequence[str | int] | None = None,
        target_transform: str | None = None,
        scale_features: bool = True,
        formulation: str = "unified",
        fit_intercept: bool = True,
        task_column: Hashable | None = None,
        cv: Any = None,
        scoring: str | Callable[..., float] | None = None,
        search: str = "coordinate",
        one_standard_error: bool = False,
        average: bool = True,
        selection: str = "prediction",
        stability: StabilitySelection | None = None,
        solver: str = "auto",
        graph_solver: str = "bcd",
        tol: float = 1e-6,
        search_tol: float = 1e-4,
        max_iter: int = 200,
        n_jobs: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        warm_start: bool = False,
        memory_limit: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.graph_penalties = graph_penalties
        self.coef_penalties = coef_penalties
        self.couplings = couplings
        self.shrinkages = shrinkages
        self.shared_means = shared_means
        self.on = on
        self.variance_floors = variance_floors
        self.correlation = correlation
        self.edges = edges
        self.ridge = ridge
        self.loss = loss
        self.noise = noise
        self.features = features
        self.missing = missing
        self.categorical_features = categorical_features
        self.target_transform = target_transform
        self.scale_features = scale_features
        self.formulation = formulation
        self.fit_intercept = fit_intercept
        self.task_column = task_column
        self.cv = cv
        self.scoring = scoring
        self.search = search
        self.one_standard_error = one_standard_error
        self.average = average
        self.selection = selection
        self.stability = stability
        self.solver = solver
        self.graph_solver = graph_solver
        self.tol = tol
        self.search_tol = search_tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.verbose = verbose

    def _template(self) -> MSSLRegressor:
        names = (*_SHARED, "on", "loss", "noise", "target_transform")
        return MSSLRegressor(**{name: getattr(self, name) for name in names})

    def impute(self, X: Any, y: Any) -> Array:
        """Fill missing targets; see :meth:`mssl.MSSLRegressor.impute`."""
        return self._chosen().impute(X, y)


class MSSLClassifierCV(MSSLSearch):
    r"""MSSL classification that chooses λ, γ, coupling, shrinkage and shared mean by cross-validation.

    The search is that of :class:`MSSLRegressorCV`, by rows of data; the default score is minus the mean over tasks of
    the test deviance (twice the logarithmic loss).

    Parameters
    ----------
    graph_penalties, coef_penalties, couplings, shrinkages, shared_means, variance_floors : array, optional
        Grids to search; None takes them from the data.
    class_weight : None, "balanced" or dict of label → weight, default=None
        As for :class:`mssl.MSSLClassifier`.
    features : {"linear", "auto", "spline", "spline+interactions"} or list, default="linear"
        As for :class:`MSSLRegressorCV`.
    correlation, edges, ridge, missing, categorical_features, scale_features, formulation, fit_intercept, task_column,
    solver, graph_solver, max_iter
        As for :class:`mssl.MSSLClassifier`.
    cv, scoring, search, one_standard_error, average, selection, stability, tol, search_tol, n_jobs, checkpoint
        As for :class:`MSSLRegressorCV`.
    warm_start, memory_limit, verbose
        As for :class:`MSSLRegressorCV`.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, cv_results_, n_splits_, held_out_, graph_params_
        As for :class:`MSSLRegressorCV`. ``cv_results_["mean_auc"]`` is the mean over folds of the area under the ROC
        curve, over the test rows of all tasks.
    graph_choice_, stability_
        As for :class:`MSSLRegressorCV`.
    classes_, coef_, intercept_, precision_, graph_, tasks_, …
        As for :class:`mssl.MSSLClassifier`.

    Examples
    --------
    >>> from mssl import MSSLClassifierCV
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(family="binary", n_features=4, n_tasks=4, clusters=[[0, 1]], random_state=0)
    >>> model = MSSLClassifierCV(couplings=[1.0], coef_penalties=[0.0], cv=3).fit(data.X, data.y, tasks=data.tasks)
    >>> model.predict_proba(data.X_test, tasks=data.tasks_test).shape
    (160, 2)
    """

    best_estimator_: MSSLClassifier

    def __init__(
        self,
        graph_penalties: ArrayLike | None = None,
        coef_penalties: ArrayLike | None = None,
        *,
        couplings: ArrayLike | None = None,
        shrinkages: ArrayLike | None = None,
        shared_means: Sequence[SharedMean] | None = None,
        variance_floors: ArrayLike | None = None,
        correlation: str = "pearson",
        edges: KnownEdges | None = None,
        ridge: float = 0.0,
        class_weight: ClassWeight = None,
        features: str | Sequence[Any] = "linear",
        missing: str = "error",
        categorical_features: Sequence[str | int] | None = None,
        scale_features: bool = True,
        formulation: str = "unified",
        fit_intercept: bool = True,
        task_column: Hashable | None = None,
        cv: Any = None,
        scoring: str | Callable[..., float] | None = None,
        search: str = "coordinate",
        one_standard_error: bool = False,
        average: bool = True,
        selection: str = "prediction",
        stability: StabilitySelection | None = None,
        solver: str = "auto",
        graph_solver: str = "bcd",
        tol: float = 1e-6,
        search_tol: float = 1e-4,
        max_iter: int = 200,
        n_jobs: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        warm_start: bool = False,
        memory_limit: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.graph_penalties = graph_penalties
        self.coef_penalties = coef_penalties
        self.couplings = couplings
        self.shrinkages = shrinkages
        self.shared_means = shared_means
        self.variance_floors = variance_floors
        self.correlation = correlation
        self.edges = edges
        self.ridge = ridge
        self.class_weight = class_weight
        self.features = features
        self.missing = missing
        self.categorical_features = categorical_features
        self.scale_features = scale_features
        self.formulation = formulation
        self.fit_intercept = fit_intercept
        self.task_column = task_column
        self.cv = cv
        self.scoring = scoring
        self.search = search
        self.one_standard_error = one_standard_error
        self.average = average
        self.selection = selection
        self.stability = stability
        self.solver = solver
        self.graph_solver = graph_solver
        self.tol = tol
        self.search_tol = search_tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.verbose = verbose

    def _template(self) -> MSSLClassifier:
        names = (*_SHARED, "class_weight")
        return MSSLClassifier(**{name: getattr(self, name) for name in names})

    def predict_proba(self, X: Any, tasks: Any = None, unseen: str | None = None) -> Array:
        """Probabilities of both classes; see :meth:`mssl.MSSLClassifier.predict_proba`."""
        probabilities: Array = self._chosen().predict_proba(X, tasks=tasks, unseen=unseen)
        return probabilities

    def decision_function(self, X: Any, tasks: Any = None, unseen: str | None = None) -> Array:
        """Log-odds of the second class; see :meth:`mssl.MSSLClassifier.decision_function`."""
        decisions: Array = self._chosen().decision_function(X, tasks=tasks, unseen=unseen)
        return decisions
