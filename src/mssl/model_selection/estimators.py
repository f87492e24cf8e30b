"""The cross-validated estimators: a search over the parameters of any of the penalised ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from sklearn.base import clone

from mssl._renamed import Move, old_names
from mssl._validation import warn
from mssl.estimators.glm import MultiTaskGLM
from mssl.estimators.moments import FromMoments
from mssl.estimators.mssl import MSSLClassifier, MSSLRegressor
from mssl.model_selection.search import SearchCV


def _into_grid(name: str) -> Move:
    """A list of values that is now one of ``param_grid``."""

    def move(value: Any, held: Mapping[str, Any]) -> dict[str, Any]:
        before = held["param_grid"]
        own = before if isinstance(before, Mapping) else {}
        return {"param_grid": before if value is None else {**own, name: value}}

    return move


def _into_estimator(name: str, cls: type[Any]) -> Move:
    """A parameter that is now the inner estimator's own."""

    def move(value: Any, held: Mapping[str, Any]) -> dict[str, Any]:
        estimator = cls() if held["estimator"] is None else clone(held["estimator"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the warning about the search names the new spelling
            return {"estimator": estimator.set_params(**{name: value})}

    return move


def _simplest(value: bool, held: Mapping[str, Any]) -> dict[str, Any]:
    """What ``one_standard_error`` means now."""
    return {"refit": "one_se"} if value else {}


def _averaged(value: bool, held: Mapping[str, Any]) -> dict[str, Any]:
    """What ``average`` means now."""
    if held["refit"] == "one_se":
        return {}
    return {"refit": "average" if value else "best"}


def _old_names(cls: type[Any], *further: str) -> dict[str, Move]:
    """The parameters of a search up to 0.1.0, whose inner estimator is of a class."""
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
    moves: dict[str, Move] = {old: _into_grid(name) for old, name in grids.items()}
    moves |= {name: _into_estimator(name, cls) for name in inner}
    return moves | {"one_standard_error": _simplest, "average": _averaged}


@old_names(**_old_names(MSSLRegressor, "on", "loss", "noise", "target_transform"))
class MSSLRegressorCV(FromMoments, SearchCV):
    r"""A multi-task estimator whose parameters are chosen by cross-validation.

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
    estimator : MSSLRegressor, MSSLClassifier, MultiTaskGLM or MultiTaskClassifier, optional
        What is fitted, with the parameters that are not searched; ``MSSLRegressor()`` by default. With
        ``features="auto"`` the search is made with straight lines, then with curves, then with curves and products, as
        long as the score is better by two standard errors of the paired difference, over folds or over tasks,
        whichever is larger; what is better by less is averaged with what came before where ``refit="average"``. Maps
        learn from the training rows of each fold alone. With ``warm_start`` the fit with the chosen settings starts
        from that of the previous call; the search itself starts anew.
    param_grid : "auto" or dict of name → values, default="auto"
        The values to search. For MSSL estimators of ``graph_penalty``, ``coef_penalty``, ``prior_strength``,
        ``shared_mean``, ``graph_penalty__shrinkage`` and ``graph_penalty__variance_floor``; those that are not named
        come from the data. For the general estimators of any parameters and, as ``structure__alpha``,
        ``penalty__alpha`` or ``loss__theta``, of their parts: their product is scored, and "auto" is the strengths of
        the structure and of an ℓ1 penalty. Where losses differ, the default score is the deviance of the given
        estimator's loss, so that all settings are measured by one yardstick.
    cv : int, splitter or iterable of (train, test), default=5
        Folds; a number stands for :class:`TaskKFold`, or for :class:`TaskGroupKFold` and :class:`TaskBlockKFold` where
        :meth:`fit` gets groups or an order. Parts are row numbers or masks of all rows.
    scoring : str or callable, optional
        With ``relation="residual"``, "conditional" scores how well each target is predicted from the others of the same
        occasion (:func:`mssl.metrics.conditional_score`), which is what ``predict(X, known=…)`` profits from.
        Any scorer of scikit-learn; None is the noise-scaled deviance. Of (n, K) targets a scorer of scikit-learn's own
        judges the columns one by one, missing targets left out, and their mean counts. Scorers that take
        ``sample_weight`` get that of the test rows.
    search : {"coordinate", "grid"}, default="coordinate"
        For MSSL estimators: one coordinate after the other, or the product of the grids. The former leaves a path of
        graph penalties where two graphs in a row show that nothing is left to gain; scores of what would have followed
        are not a number.
    refit : {"average", "best", "one_se"}, default="average"
        "average" predicts with the mean weights and intercepts of all settings that the best one does not beat by a
        standard error of the paired difference over folds and tasks, at most 30. The graph, and all that is told of
        the fit, are the best one's. "best" gives the weights of the best settings, which are sparse where their γ is
        above 0. "one_se" takes the sparsest settings within one standard error of the best. "average" is "best" where
        the weights are chosen for the graph, and where the grid holds several losses.
    selection : {"prediction", "graph", "both"}, default="prediction"
        What the choice is for. "prediction": weights and graph of the best predicting settings. "both": weights of the
        best predicting settings, ``graph_`` from stability selection. "graph": ``graph_`` from stability selection, and
        weights fitted with the λ whose graph agrees best with it; these settings are scored too, and are the best
        ones.
    stability : StabilitySelection, optional
        How the graph is selected; ``StabilitySelection(random_state=0)`` by default, so that equal fits have equal
        graphs. With a checkpoint it needs a seed.
    search_tol : float, default=1e-4
        Joint relative certificate of the fits of the search; that of the final fit is the estimator's ``tol``.
    n_jobs : int, optional
        Workers, as for joblib; any of its backends can be used.
    checkpoint : path, optional
        File in which finished pieces are recorded, so that a killed search continues. Saved models do not keep it.
    verbose : int, default=0
        1 shows progress bars on a terminal.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, cv_results_, n_splits_, held_out_
        What was chosen, and the scores of everything that was tried. ``held_out_.score`` is that of the answer itself,
        an average included, in each fold by the settings that the other folds choose. Of labels
        ``cv_results_["mean_auc"]`` is the mean over folds of the area under the ROC curve, over the test rows of all
        tasks.
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
        Where ``graph_`` comes from, of an MSSL estimator.
    stability_ : StabilitySelection
        Present unless ``selection="prediction"``.
    coef_, intercept_, precision_, graph_, tasks_, noise_variance_, …
        As for the estimator.

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

    The search is that of :class:`MSSLRegressorCV`, by rows of data, and has its parameters and attributes; the
    estimator is ``MSSLClassifier()`` by default, and the default score is minus the mean over tasks of the test
    deviance (twice the logarithmic loss).

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
    """The old name of ``MSSLRegressorCV(MultiTaskGLM(…), …, refit="best")``; it goes with 0.3."""

    _default = MultiTaskGLM

    param_grid: str | Mapping[str, Any] | None = None
    _: KW_ONLY
    refit: str = "best"

    def __post_init__(self) -> None:
        warn('MultiTaskGLMCV is now MSSLRegressorCV(MultiTaskGLM(…), …, refit="best").', FutureWarning)
        self.param_grid = "auto" if self.param_grid is None else self.param_grid
