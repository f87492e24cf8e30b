"""The cross-validated estimators."""

from __future__ import annotations

from typing import Any

from sklearn.base import RegressorMixin

from mssl.estimators.base import GLMScore, TaskClassifier
from mssl.estimators.mssl import MSSLClassifier, MSSLRegressor
from mssl.model_selection.search import MSSLSearch

_SHARED = (
    "scale_features",
    "fit_intercept",
    "task_column",
    "solver",
    "graph_solver",
    "tol",
    "max_iter",
    "ridge",
    "formulation",
)


class MSSLRegressorCV(GLMScore, RegressorMixin, MSSLSearch):
    r"""MSSL regression that chooses λ, γ, coupling, shrinkage and shared mean by cross-validation.

    The default grid comes from the data and nests the rivals (separate ridges, ridges around a mean, pooling, the
    Lasso), so that it need not lose to any of them; it is searched one coordinate after the other
    (:mod:`mssl.model_selection.search_space`). First one ridge for all tasks is tuned (``graph_penalty=inf``: around
    a shared mean or none, from separate tasks to pooled ones), then learned graphs; these are chosen if they are better
    by a standard error of the paired difference, over folds or over tasks, whichever is larger.

    The default score is minus the mean over tasks of the test deviance in units of the task's noise. That
    noise is the training part's, drawn towards a common value as far as its estimation error asks for
    (:mod:`mssl.solvers.moderation`), so that the test rows have no say in it. With the Gaussian loss and this score all
    fits work on Gram matrices (a training part is the total less a fold), so that the cost of the search does not grow
    with the number of rows.

    Parameters
    ----------
    graph_penalties, coef_penalties, couplings, shrinkages, shared_means, variance_floors : array, optional
        Grids to search; None takes them from the data.
    on : {"coef", "residual"}, default="coef"
        p-MSSL or r-MSSL.
    loss, noise, scale_features, formulation, fit_intercept, task_column, solver, graph_solver, max_iter
        As for :class:`mssl.MSSLRegressor`.
    ridge : float, default=0.0
        As for :class:`mssl.MSSLRegressor`.
    cv : int, splitter or iterable of (train, test), default=5
        Folds; a number stands for :class:`TaskKFold`. Parts are row numbers or masks of all rows.
    scoring : str or callable, optional
        Any scorer of scikit-learn; None is the noise-scaled deviance. Of (n, K) targets a scorer of scikit-learn's own
        judges the columns one by one, missing targets left out, and their mean counts. Scorers that take
        ``sample_weight`` get that of the test rows.
    search : {"coordinate", "grid"}, default="coordinate"
        One coordinate after the other, or the product of the grids. The former leaves a path of graph penalties where
        two graphs in a row show that nothing is left to gain; scores of what would have followed are not a number.
    one_standard_error : bool, default=False
        Take the sparsest settings within one standard error of the best.
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
        File in which finished pieces are recorded, so that a killed search continues.
    verbose : int, default=0
        1 shows progress bars on a terminal.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, cv_results_, n_splits_
        What was chosen, and the scores of everything that was tried.
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

    def __init__(
        self,
        graph_penalties: Any = None,
        coef_penalties: Any = None,
        *,
        couplings: Any = None,
        shrinkages: Any = None,
        shared_means: Any = None,
        on: str = "coef",
        variance_floors: Any = None,
        ridge: float = 0.0,
        loss: Any = "gaussian",
        noise: Any = "auto",
        scale_features: bool = True,
        formulation: str = "unified",
        fit_intercept: bool = True,
        task_column: Any = None,
        cv: Any = None,
        scoring: Any = None,
        search: str = "coordinate",
        one_standard_error: bool = False,
        selection: str = "prediction",
        stability: Any = None,
        solver: str = "auto",
        graph_solver: str = "bcd",
        tol: float = 1e-6,
        search_tol: float = 1e-4,
        max_iter: int = 200,
        n_jobs: int | None = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.graph_penalties = graph_penalties
        self.coef_penalties = coef_penalties
        self.couplings = couplings
        self.shrinkages = shrinkages
        self.shared_means = shared_means
        self.on = on
        self.variance_floors = variance_floors
        self.ridge = ridge
        self.loss = loss
        self.noise = noise
        self.scale_features = scale_features
        self.formulation = formulation
        self.fit_intercept = fit_intercept
        self.task_column = task_column
        self.cv = cv
        self.scoring = scoring
        self.search = search
        self.one_standard_error = one_standard_error
        self.selection = selection
        self.stability = stability
        self.solver = solver
        self.graph_solver = graph_solver
        self.tol = tol
        self.search_tol = search_tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _template(self) -> MSSLRegressor:
        names = (*_SHARED, "on", "loss", "noise")
        return MSSLRegressor(**{name: getattr(self, name) for name in names})


class MSSLClassifierCV(MSSLSearch, TaskClassifier):
    r"""MSSL classification that chooses λ, γ, coupling, shrinkage and shared mean by cross-validation.

    The search is that of :class:`MSSLRegressorCV`, by rows of data; the default score is minus the mean over tasks of
    the test deviance (twice the logarithmic loss).

    Parameters
    ----------
    graph_penalties, coef_penalties, couplings, shrinkages, shared_means, variance_floors : array, optional
        Grids to search; None takes them from the data.
    class_weight : None, "balanced" or dict of label → weight, default=None
        As for :class:`mssl.MSSLClassifier`.
    ridge, scale_features, formulation, fit_intercept, task_column, solver, graph_solver, max_iter
        As for :class:`mssl.MSSLClassifier`.
    cv, scoring, search, one_standard_error, selection, stability, tol, search_tol, n_jobs, checkpoint, verbose
        As for :class:`MSSLRegressorCV`.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, cv_results_, n_splits_, graph_params_
        As for :class:`MSSLRegressorCV`.
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

    def __init__(
        self,
        graph_penalties: Any = None,
        coef_penalties: Any = None,
        *,
        couplings: Any = None,
        shrinkages: Any = None,
        shared_means: Any = None,
        variance_floors: Any = None,
        ridge: float = 0.0,
        class_weight: Any = None,
        scale_features: bool = True,
        formulation: str = "unified",
        fit_intercept: bool = True,
        task_column: Any = None,
        cv: Any = None,
        scoring: Any = None,
        search: str = "coordinate",
        one_standard_error: bool = False,
        selection: str = "prediction",
        stability: Any = None,
        solver: str = "auto",
        graph_solver: str = "bcd",
        tol: float = 1e-6,
        search_tol: float = 1e-4,
        max_iter: int = 200,
        n_jobs: int | None = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.graph_penalties = graph_penalties
        self.coef_penalties = coef_penalties
        self.couplings = couplings
        self.shrinkages = shrinkages
        self.shared_means = shared_means
        self.variance_floors = variance_floors
        self.ridge = ridge
        self.class_weight = class_weight
        self.scale_features = scale_features
        self.formulation = formulation
        self.fit_intercept = fit_intercept
        self.task_column = task_column
        self.cv = cv
        self.scoring = scoring
        self.search = search
        self.one_standard_error = one_standard_error
        self.selection = selection
        self.stability = stability
        self.solver = solver
        self.graph_solver = graph_solver
        self.tol = tol
        self.search_tol = search_tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _template(self) -> MSSLClassifier:
        names = (*_SHARED, "class_weight")
        return MSSLClassifier(**{name: getattr(self, name) for name in names})
