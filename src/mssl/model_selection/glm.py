"""Cross-validation over any parameters of the general estimators."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import groupby, product
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if

from mssl._validation import refused
from mssl.estimators.base import check_targets
from mssl.estimators.glm import MultiTaskClassifier, MultiTaskGLM
from mssl.estimators.limits import graph_penalty_limit
from mssl.estimators.moments import FromMoments
from mssl.exceptions import ParameterError
from mssl.model_selection.chains import GRAPH_PENALTIES, Params, grid_values
from mssl.model_selection.folds import Dataset
from mssl.model_selection.scores import ScoreTable
from mssl.model_selection.search import SearchCV
from mssl.penalties import L1
from mssl.structures import Independent


def _has(name: str) -> Any:
    return available_if(lambda search: hasattr(search.estimator, name) if search.estimator is not None else False)


class MultiTaskGLMCV(FromMoments, SearchCV):
    """Any structure × penalty × loss, its parameters chosen by cross-validation.

    Parameters
    ----------
    estimator : MultiTaskGLM or MultiTaskClassifier, default=MultiTaskGLM()
        What is fitted.
    param_grid : dict of name → values, optional
        Parameters of the estimator and, as ``structure__alpha``, ``penalty__alpha`` or ``loss__theta``, of its parts;
        their product is scored, fits that differ in the structure's ``alpha`` only are started from each other. By
        default the strengths of the structure and of an ℓ1 penalty. Where losses differ, the default score is the
        deviance of the given estimator's loss, so that all settings are measured by one yardstick.
    cv, scoring, one_standard_error, search_tol, n_jobs, checkpoint, verbose
        As for :class:`MSSLRegressorCV`.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, cv_results_, n_splits_, held_out_
        What was chosen, and the scores of everything that was tried.

    Examples
    --------
    >>> from mssl import MultiTaskGLM, MultiTaskGLMCV
    >>> from mssl.datasets import make_clustered_tasks
    >>> from mssl.structures import Independent
    >>> data = make_clustered_tasks(n_features=5, n_samples=20, random_state=0)
    >>> model = MultiTaskGLMCV(MultiTaskGLM(Independent()), {"structure__alpha": [0.1, 1.0, 10.0]})
    >>> sorted(model.fit(data.X, data.y, tasks=data.tasks).best_params_)
    ['structure__alpha']
    """

    def __init__(
        self,
        estimator: MultiTaskGLM | MultiTaskClassifier | None = None,
        param_grid: Mapping[str, Any] | None = None,
        *,
        cv: Any = None,
        scoring: str | Callable[..., float] | None = None,
        one_standard_error: bool = False,
        search_tol: float = 1e-4,
        n_jobs: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.search_tol = search_tol
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _template(self) -> Any:
        if self.estimator is not None and not {"structure", "penalty"} <= set(dir(self.estimator)):
            raise refused("estimator", self.estimator, "give a MultiTaskGLM or a MultiTaskClassifier")
        template = MultiTaskGLM() if self.estimator is None else clone(self.estimator)
        if template.structure is None:
            template.set_params(structure=Independent())
        if template.penalty is None:
            template.set_params(penalty=L1())
        return template

    @property
    def task_column(self) -> Hashable | None:  # type: ignore[override]  # a parameter of others
        """The estimator's column of task ids."""
        column: Hashable | None = self._template().task_column
        return column

    def _needs_rows(self) -> bool:
        # Moments are sums of squares: they serve the Gaussian loss alone.
        varied = isinstance(self.param_grid, Mapping) and any(_is_of_loss(name) for name in self.param_grid)
        return varied or super()._needs_rows()

    def _search(self, table: ScoreTable, whole: Dataset, template: Any) -> None:
        grid = self._default_grid(whole, template) if self.param_grid is None else self.param_grid
        if not isinstance(grid, Mapping):
            raise refused("param_grid", grid, "give one dict of parameter → values")
        if not grid:
            raise ParameterError("param_grid is empty; name at least one parameter, or give None for the default grid.")
        unknown = sorted(set(grid) - set(template.get_params(deep=True)))
        if unknown:
            raise ParameterError(
                f"param_grid names {', '.join(map(repr, unknown))}, which the estimator does not have; "
                f"it has {', '.join(sorted(template.get_params(deep=True)))}."
            )
        lists = {name: grid_values(values, name) for name, values in grid.items()}
        # Falling λ comes last, so that neighbours in the list differ in it alone.
        names = sorted(lists, key=lambda name: name in GRAPH_PENALTIES)
        for name in GRAPH_PENALTIES:
            if name in lists:
                lists[name] = sorted(lists[name], reverse=True)
        settings = [dict(zip(names, values, strict=True)) for values in product(*(lists[name] for name in names))]
        if any(map(_is_of_loss, names)):
            for params in settings:
                check_targets(whole.data, clone(template).set_params(**params)._loss())
        table.evaluate("grid", [list(chain) for _, chain in groupby(settings, key=_without_graph_penalty)])

    def _default_grid(self, whole: Dataset, template: Any) -> dict[str, Any]:
        grid: dict[str, Any] = {}
        spec = template.to_spec(whole)
        if "alpha" in template.structure.get_params():
            grid["structure__alpha"] = np.geomspace(1e-2, 1e4, 13)
            if template.structure.prices_edges:
                # As printed in the paper λ has the units of S, and F has no minimum at 0.
                free = template.structure.starts_diagonal
                top = 1.0 if free else graph_penalty_limit(whole.prepared(spec), spec)
                grid["structure__alpha"] = [top, *(top * np.geomspace(0.7, 0.02, 7)), *([0.0] if free else [])]
        if isinstance(template.penalty, L1):
            limit = whole.prepared(spec).gamma_max()
            grid["penalty__alpha"] = [0.0, *(limit * np.geomspace(0.3, 0.01, 4))]
        return grid

    @_has("predict_proba")
    def predict_proba(self, X: Any, tasks: Any = None, unseen: str | None = None) -> Any:
        """Probabilities of the chosen classifier."""
        return self._chosen().predict_proba(X, tasks=tasks, unseen=unseen)

    @_has("decision_function")
    def decision_function(self, X: Any, tasks: Any = None, unseen: str | None = None) -> Any:
        """Decisions of the chosen classifier."""
        return self._chosen().decision_function(X, tasks=tasks, unseen=unseen)


def _without_graph_penalty(params: Params) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in params.items() if name not in GRAPH_PENALTIES]


def _is_of_loss(name: str) -> bool:
    return name.partition("__")[0] == "loss"
