"""What a fit is made of, how an estimator's parameters say so, and what does not go together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from mssl._typing import Labels, TaskMatrix
from mssl._validation import check_instance, refused, warn
from mssl.data.layouts import TaskData
from mssl.features import are_scaled
from mssl.losses import Loss
from mssl.model.objective import PaperScale
from mssl.penalties import L1, ElasticNet, Penalty
from mssl.solvers.alternation import FitResult, Record
from mssl.solvers.fit import Prepared, Settings, fit_prepared, prepare, without_chance_edges
from mssl.solvers.residual import check_aligned
from mssl.structures import Independent, SparsePrecision, Structure, StructureStep
from mssl.structures.fixed import OneRidge
from mssl.structures.known import known_edges


class TaskShape(Protocol):
    """What a specification needs to know about the data: the tasks' names, and how many features and targets."""

    @property
    def n_tasks(self) -> int:
        """Number of tasks K."""

    @property
    def n_features(self) -> int:
        """Number of features d."""

    @property
    def tasks(self) -> Labels:
        """Names of the tasks."""

    @property
    def y(self) -> Any:
        """Targets of all rows."""


class FitSpec(NamedTuple):
    """All that decides on a fit besides the data, put together from an estimator's parameters.

    Attributes
    ----------
    structure : Structure
        What relates the tasks.
    penalty : Penalty
        What keeps the weights small or sparse.
    loss : Loss
        The loss of one observation.
    settings : Settings
        Noise, shared mean, scaling, solver and tolerance.
    paper : PaperScale or None
        Factors between this package's units and those of the paper, where the parameters are in the latter.
    screens : bool
        Whether there are edges only where tasks seem related, see :func:`mssl.solvers.fit.without_chance_edges`.
    """

    structure: Structure
    penalty: Penalty
    loss: Loss
    settings: Settings
    paper: PaperScale | None = None
    screens: bool = False

    @property
    def free_units(self) -> bool:
        """Whether F is the same whatever the targets' units are."""
        return self.structure.free_units and isinstance(self.penalty, L1)

    @property
    def needs_start(self) -> bool:
        """Whether the fit, or its neighbours in a search, need to know the tasks' variances."""
        return self.structure.needs_variances

    def check(self, data: TaskData) -> None:
        """Raise where the parts do not fit each other or the data."""
        self.structure.check(data.n_tasks)
        if self.structure.relates == "residual":
            if not self.loss.quadratic:
                raise refused(
                    "loss",
                    self.loss.name,
                    "relation='residual' relates the errors of least squares",
                    "Use relation='coef', which goes with every loss.",
                )
            check_aligned(data)
        self.penalty.check()

    def prepare(self, data: TaskData) -> Prepared:
        """The data, ready for this fit."""
        return prepare(data, self.loss, self.settings, needs_start=self.structure.learned, free_units=self.free_units)

    def first_step(self, n_tasks: int) -> StructureStep | None:
        """The paper's first precision, Ω = I, in this package's units; None where the fit finds its own start."""
        if self.paper is None:
            return None
        identity = np.eye(n_tasks)
        return StructureStep(self.paper.precision * identity, identity / self.paper.precision)

    def user_precision(self, prepared: Prepared, result: FitResult) -> TaskMatrix:
        """Ω of a fit in the units of an estimator's ``precision_``."""
        scale = 1.0 if self.paper is None else self.paper.precision
        return result.structure.precision / scale / prepared.unit**2

    def fit(
        self,
        prepared: Prepared,
        warm: FitResult | None = None,
        monitor: Callable[[Record], bool] | None = None,
    ) -> FitResult:
        """Fit prepared data, from a previous fit where one is given."""
        first, structure, origin = self.first_step(len(prepared.noise)), self.structure, None
        if self.screens:
            structure, origin = without_chance_edges(prepared, structure, self.penalty)
        return fit_prepared(prepared, structure, self.penalty, warm=warm, first=first, origin=origin, monitor=monitor)


GRAPH_PENALTY = 0.3  # λ where none is given


def settings_of(estimator: Any, **changes: Any) -> Settings:
    """The settings among an estimator's parameters."""
    given = {name: getattr(estimator, name) for name in ("shared_mean", "fit_intercept", "tol", "max_iter")}
    given |= {"noise": estimator._loss().noise_variance, "scale_features": are_scaled(estimator.features)}
    solver = estimator._part("solver", estimator.solver)
    given |= {"solver": solver.name, "n_starts": solver.n_starts, "memory_limit": solver.memory_limit}
    factor = getattr(estimator, "penalty_factor", None)
    if factor is not None:
        factors = np.ravel(factor)
        structure = estimator.structure
        if isinstance(structure, Structure) and structure.learned and structure.relates == "coef" and 0 in factors:
            allowed = "where the structure is learned from the weights, factors are above 0"
            remedy = (
                "It would count free weights among them. Give a small factor, such as 0.1 for weights of ten times "
                "the size, or use structure=Independent(…)."
            )
            raise refused("penalty_factor", factor, allowed, remedy)
        given["penalty_factor"] = tuple(factors.tolist())
    return Settings(**(given | changes))


def glm_spec(estimator: Any, loss: Loss) -> FitSpec:
    """The specification of an estimator that has structure and penalty as parameters."""
    structure = Independent() if estimator.structure is None else estimator.structure
    penalty = L1() if estimator.penalty is None else estimator.penalty
    if not isinstance(structure, Structure):
        raise refused("structure", structure, "give an object of mssl.structures, such as Independent(1.0), or None")
    if not isinstance(penalty, Penalty):
        raise refused("penalty", penalty, "give an object of mssl.penalties, such as L1(0.1), or None")
    return FitSpec(structure, penalty, loss, settings_of(estimator))


def mssl_parts(estimator: Any, data: TaskShape) -> tuple[SparsePrecision, ElasticNet, bool]:
    """The sparse precision and the penalty of an MSSL estimator, and whether chance edges are screened out."""
    on, strength = estimator.relation, estimator.prior_strength
    learned: SparsePrecision = estimator._part("graph_penalty", estimator.graph_penalty)
    penalty: ElasticNet = estimator._part("coef_penalty", estimator.coef_penalty)
    check_instance("graph_penalty", learned, SparsePrecision, also="a number, or 'auto'")
    check_instance("coef_penalty", penalty, Penalty, also="a number")
    if learned.coupling not in (1.0, strength) or learned.on not in ("coef", on):
        allowed = "its coupling and its on are the estimator's prior_strength and relation"
        raise refused("graph_penalty", learned, allowed, "Give them to the estimator.")
    edges, screens = learned.edge_constraints, isinstance(learned.alpha, str) and learned.alpha == "auto"
    learned.alpha = GRAPH_PENALTY if screens else learned.alpha
    learned.on, learned.coupling = on, strength
    learned.edge_constraints = None if edges is None else known_edges(edges).resolve(data.tasks)
    return learned, penalty, screens and on == "coef" and edges is None


def mssl_spec(estimator: Any, loss: Loss, data: TaskShape) -> FitSpec:
    """The sparse precision, the penalty and the settings that an MSSL estimator's parameters stand for."""
    learned, penalty, screens = mssl_parts(estimator, data)
    no_graph = learned.alpha == np.inf and learned.on == "coef"
    structure = OneRidge(learned.coupling) if no_graph else learned
    settings = settings_of(estimator, shared_mean=_mean_of(estimator, learned.on))
    return FitSpec(structure, penalty, loss, settings, screens=screens)


def _mean_of(estimator: Any, on: str) -> Any:
    """The setting of the shared mean, which residuals have none of."""
    if on != "residual":
        return estimator.shared_mean
    if isinstance(estimator.shared_mean, str) or not estimator.shared_mean:
        return False
    raise refused(
        "shared_mean",
        estimator.shared_mean,
        "with relation='residual' the weights have no common prior and no mean",
        "Leave it at 'auto' or set it to False.",
    )


def warn_if_ordinary(spec: FitSpec, data: TaskData) -> None:
    """Warn where r-MSSL learns the graph only, because the weights are those of ordinary least squares."""
    one = np.ones(1)
    penalised = (
        spec.penalty.thresholds(one).any() or getattr(spec.penalty, "positive", False) or spec.penalty.ridges(one).any()
    )
    weights_profit = penalised or not spec.penalty.separable
    if spec.structure.relates != "residual" or weights_profit or not data.shared or data.n_tasks == 1:
        return
    warn(
        "relation='residual' with one X for all tasks and no penalty on the weights (coef_penalty=0, ridge=0): the "
        "weights are those of ordinary least squares whatever the graph is, so only the graph is learned. Give "
        "coef_penalty > 0 for weights that profit from the graph."
    )
