"""What a fit is made of, and how the parameters of an estimator say so."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from mssl.data.layouts import TaskData
from mssl.exceptions import ParameterError
from mssl.losses import Loss, resolve_loss
from mssl.model.objective import PaperScale, paper_scale
from mssl.penalties import L1, ElasticNet, Penalty
from mssl.solvers.fit import Settings
from mssl.solvers.residual import check_aligned
from mssl.structures import SparsePrecision, Structure, StructureStep
from mssl.structures.fixed import OneRidge
from mssl.structures.known import known_edges


class Parts(NamedTuple):
    """What a fit is made of, put together from an estimator's parameters and the data's shape."""

    structure: Structure
    penalty: Penalty
    settings: Settings
    paper: PaperScale | None = None

    @property
    def free_units(self) -> bool:
        """Whether F is the same whatever the targets' units are."""
        normal = isinstance(self.structure, SparsePrecision) and self.structure.normalize
        return (normal or isinstance(self.structure, OneRidge)) and isinstance(self.penalty, L1)

    @property
    def needs_start(self) -> bool:
        """Whether the fit, or its neighbours in a search, need to know the tasks' variances."""
        return self.structure.learned or isinstance(self.structure, OneRidge)


def paper_start(paper: PaperScale | None, n_tasks: int) -> StructureStep | None:
    """The paper's first precision, Ω = I, in this package's units."""
    if paper is None:
        return None
    identity = np.eye(n_tasks)
    return StructureStep(paper.precision * identity, identity / paper.precision)


def settings_of(estimator: Any, **changes: Any) -> Settings:
    """The settings among an estimator's parameters."""
    names = ("shared_mean", "noise", "scale_features", "fit_intercept", "solver", "tol", "max_iter")
    return Settings(**({name: getattr(estimator, name) for name in names} | changes))


def mssl_parts(estimator: Any, data: TaskData) -> Parts:
    """The sparse precision, the penalty and the settings that an MSSL estimator's parameters stand for."""
    on, ridge = getattr(estimator, "on", "coef"), getattr(estimator, "ridge", 0.0)
    edges = getattr(estimator, "edges", None)
    about = {
        "on": on,
        "correlation": getattr(estimator, "correlation", "pearson"),
        "edges": None if edges is None else known_edges(edges).resolve(data.tasks),
        "solver": estimator.graph_solver,
    }
    shared_mean = _mean_of(estimator, on)
    if estimator.formulation == "unified":
        learned = SparsePrecision(
            estimator.graph_penalty,
            coupling=estimator.coupling,
            variance_floor=estimator.variance_floor,
            shrinkage=estimator.shrinkage,
            **about,
        )
        no_graph = estimator.graph_penalty == np.inf and on == "coef"
        structure = OneRidge(estimator.coupling) if no_graph else learned
        penalty = ElasticNet(estimator.coef_penalty, ridge)
        return Parts(structure, penalty, settings_of(estimator, shared_mean=shared_mean))
    if estimator.formulation != "paper":
        raise ParameterError(f"formulation is {estimator.formulation!r}; allowed are 'unified' and 'paper'.")
    rows = len(data.y) // data.n_tasks if on == "residual" else 0
    gaussian = resolve_loss(estimator.loss).name == "gaussian"
    paper = paper_scale(data.n_tasks, data.n_features, gaussian=gaussian, residual_rows=rows)
    structure = SparsePrecision(
        paper.graph_penalty * estimator.graph_penalty,
        coupling=paper.coupling,
        normalize=False,
        **about,
    )
    literal = {"shared_mean": False, "noise": 1.0, "scale_features": False, "residual_loss": paper.residual_loss}
    penalty = ElasticNet(paper.coef_penalty * estimator.coef_penalty, paper.loss * ridge)
    return Parts(structure, penalty, settings_of(estimator, **literal), paper)


def _mean_of(estimator: Any, on: str) -> Any:
    """The setting of the shared mean, which residuals have none of."""
    if on != "residual":
        return estimator.shared_mean
    if isinstance(estimator.shared_mean, str) or not estimator.shared_mean:
        return False
    raise ParameterError(
        f"shared_mean is {estimator.shared_mean!r}, but with on='residual' the weights have no common prior and no "
        "mean; leave it at 'auto' or set it to False."
    )


def check_structure(structure: Structure, data: TaskData, loss: Loss) -> None:
    """Raise where a structure's parameters, or its being on residuals, do not fit the tasks."""
    structure.check(data.n_tasks)
    if structure.on != "residual":
        return
    if loss.name != "gaussian":
        raise ParameterError(
            f"on='residual' relates the errors of least squares; the loss is {loss.name!r}. Use on='coef', which "
            "goes with every loss."
        )
    check_aligned(data)


def warn_if_ordinary(parts: Parts, data: TaskData) -> None:
    """Say so where r-MSSL can learn nothing but the graph."""
    one = np.ones(1)
    penalised = parts.penalty.thresholds(one).any() or parts.penalty.ridges(one).any()
    told = penalised or not parts.penalty.separable
    if parts.structure.on != "residual" or told or not data.shared or data.n_tasks == 1:
        return
    warnings.warn(
        "on='residual' with one X for all tasks and no penalty on the weights (coef_penalty=0, ridge=0): the weights "
        "are those of ordinary least squares whatever the graph is, so only the graph is learned. Give "
        "coef_penalty > 0 for weights that profit from the graph.",
        UserWarning,
        stacklevel=4,
    )
