"""The objective as the paper prints it, in the paper's units: p-MSSL, r-MSSL, and both forms for two classes."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np

from mssl._renamed import old_names
from mssl._validation import check_choice
from mssl.estimators.mssl import MSSLClassifier, MSSLEstimator, MSSLRegressor
from mssl.estimators.spec import FitSpec, TaskShape, settings_of
from mssl.model.objective import paper_scale
from mssl.structures import SparsePrecision, StructureStep
from mssl.structures.base import StructureScale

__all__ = ["PaperMSSL", "PaperMSSLClassifier"]


@dataclass(eq=False, repr=False)
class _PrintedPrecision(SparsePrecision):
    """The sparse precision of the paper's fits, which start from Ω = I in the paper's units."""

    _: KW_ONLY
    identity: float = 1.0

    def initial(self, scale: StructureScale) -> StructureStep:
        unit = np.eye(len(scale.variances))
        return StructureStep(self.identity * unit, unit / self.identity)


def _as_printed(estimator: MSSLEstimator, data: TaskShape, form: str) -> FitSpec:
    """The printed objective in this package's units, with unscaled features, unit noise and no shared mean."""
    learned, penalty, _ = estimator._learned(data)
    rows = len(data.y) // data.n_tasks if learned.on == "residual" else 0
    paper = paper_scale(data.n_tasks, data.n_features, form, residual_rows=rows)
    structure = _PrintedPrecision(**learned.get_params(deep=False), identity=paper.precision)
    structure.alpha, structure.coupling = paper.graph_penalty * learned.alpha, paper.coupling
    structure.normalize, structure.shrinkage = False, 0.0
    penalty.alpha, penalty.ridge = paper.coef_penalty * penalty.alpha, paper.loss * penalty.ridge
    literal = {"shared_mean": False, "noise": 1.0, "scale_features": False, "residual_loss": paper.residual_loss}
    loss = estimator._loss()
    return FitSpec(structure, penalty, loss, settings_of(estimator, loss, **literal), paper)


@old_names()
@dataclass(eq=False, repr=False)
class PaperMSSL(MSSLRegressor):
    """The objective as the paper prints it (:func:`mssl.model.objective.paper_scale`).

    The parameters λ and γ are in the paper's units. Features are not scaled, the noise variance is 1, there is no
    shared mean, and fits start from Ω = I and W = 0.

    Parameters
    ----------
    graph_penalty, coef_penalty : float, default="auto" (0.3) and 0.0
        The paper's λ, above 0, and γ. A :class:`mssl.structures.SparsePrecision` also sets the graph solver.
    relation, loss, target_transform, fit_intercept, solver, warm_start
        As for :class:`mssl.MSSLRegressor`.
    features, missing, categorical_features, task_column, tol, max_iter, verbose
        As for :class:`mssl.MSSLRegressor`.
    prior_strength, shared_mean
        Not used.

    References
    ----------
    Gonçalves, Das, Chatterjee, Sivakumar, Von Zuben & Banerjee (2014), doi:10.1145/2661829.2662091.

    Examples
    --------
    >>> from mssl.datasets import make_clustered_tasks
    >>> from mssl.paper import PaperMSSL
    >>> data = make_clustered_tasks(random_state=0)
    >>> PaperMSSL(2.0).fit(data.X, data.y, tasks=data.tasks).coef_.shape
    (13, 30)
    """

    def to_spec(self, data: TaskShape) -> FitSpec:
        """The printed objective for regression, for other losses, or for residuals."""
        return _as_printed(self, data, "regression" if self._loss().quadratic else "glm")


@old_names()
@dataclass(eq=False, repr=False)
class PaperMSSLClassifier(MSSLClassifier):
    """The paper's objective for two classes. The paper prints two forms that differ by factors of 2.

    Parameters
    ----------
    logistic : {"bound", "printed"}, default="bound"
        "bound" is eq. 17, the full loss with one half of the trace. "printed" is eq. 16, half the loss with the full
        trace.
    graph_penalty, coef_penalty, class_weight, fit_intercept, solver, warm_start
        As for :class:`PaperMSSL`.
    features, missing, categorical_features, task_column, tol, max_iter, verbose
        As for :class:`PaperMSSL`.
    prior_strength, shared_mean
        Not used.
    """

    _: KW_ONLY
    logistic: Literal["bound", "printed"] = "bound"

    def to_spec(self, data: TaskShape) -> FitSpec:
        """The printed objective for labels."""
        printed = check_choice("logistic", self.logistic, ("bound", "printed")) == "printed"
        return _as_printed(self, data, "logistic" if printed else "glm")
