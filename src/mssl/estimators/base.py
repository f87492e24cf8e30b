"""Estimators with scikit-learn's manners: tasks in, weights and a task graph out."""

from __future__ import annotations

import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning

from mssl.data.inputs import listing
from mssl.data.layouts import TaskData, check_target_sizes, read_tasks
from mssl.estimators.html import estimator_html
from mssl.estimators.limits import coef_penalty_limit, graph_penalty_limit
from mssl.estimators.prediction import TaskPredictor
from mssl.estimators.spec import Parts, check_structure, mssl_parts, paper_start, settings_of, warn_if_ordinary
from mssl.exceptions import DataError, ParameterError
from mssl.graph.task_graph import TaskGraph, partial_correlation
from mssl.losses import Loss, resolve_loss
from mssl.metrics import deviance_score
from mssl.penalties import L1, Penalty
from mssl.solvers.alternation import FitResult, Record
from mssl.solvers.base import Status
from mssl.solvers.fit import Prepared, fit_prepared, prepare
from mssl.structures import Independent, KnownEdges, SparsePrecision, Structure

Array = NDArray[np.float64]

_HELD = (1e-290, 1e306)  # what doubles can hold of coefficients and precisions, with some digits to spare

__all__ = [
    "GLMScore",
    "MSSLRegressor",
    "MultiTaskEstimator",
    "MultiTaskGLM",
    "Parts",
    "PenaltyLimits",
    "check_structure",
    "check_targets",
    "mssl_parts",
    "paper_start",
    "settings_of",
]


class PenaltyLimits(NamedTuple):
    """From where on the graph is empty, and from where on all weights are zero."""

    graph_penalty: float
    coef_penalty: float


class MultiTaskEstimator(TaskPredictor, CallbackSupportMixin, BaseEstimator):
    """What all estimators share: read tasks, run the alternation, keep what it found.

    Subclasses say which :class:`Parts` their parameters stand for.
    """

    # Parameters that every subclass has, for the type checker.
    task_column: Any
    warm_start: bool
    verbose: int
    loss: Any

    @abstractmethod
    def _parts(self, data: TaskData) -> Parts:
        """Structure, penalty and settings of the fit."""

    def _loss(self) -> Loss:
        return resolve_loss(self.loss)

    def _read(self, X: Any, y: Any, tasks: Any, sample_weight: Any) -> TaskData:
        data = read_tasks(X, y, task_column=self.task_column, tasks=tasks, sample_weight=sample_weight)
        check_targets(data, self._loss())
        return data

    @with_callbacks
    def fit(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> Any:
        """Learn all tasks' weights and what relates the tasks.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features in one of three layouts: long (with ``task_column`` or ``tasks``), shared, aligned.
        y : array of shape (N,) or (n, K)
            Targets; in the (n, K) layouts NaN marks a missing one.
        tasks : array of shape (N,), optional
            Task of each row, instead of a task column.
        sample_weight : array of the shape of y or of its rows, optional
            Frequency weights: 2 means the row counts twice, 0 that it is not there.

        Returns
        -------
        self
        """
        data = self._read(X, y, tasks, sample_weight)
        self._remember_input(X, data)
        parts = self._parts(data)
        check_structure(parts.structure, data, self._loss())
        parts.penalty.check()
        warn_if_ordinary(parts, data)
        context = self._init_callback_context(max_subtasks=parts.settings.max_iter)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        prepared = prepare(
            data, self._loss(), parts.settings, needs_start=parts.structure.learned, free_units=parts.free_units
        )
        result = fit_prepared(
            prepared,
            parts.structure,
            parts.penalty,
            warm=self._previous(data),
            first=paper_start(parts.paper, data.n_tasks),
            monitor=self._monitor(context),
        )
        self._keep(data, prepared, result, parts)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        self._warn_unless_converged(result, parts)
        return self

    def _previous(self, data: TaskData) -> FitResult | None:
        previous = getattr(self, "result_", None) if self.warm_start else None
        if previous is None or len(self.tasks_) != data.n_tasks or np.any(self.tasks_ != data.tasks):
            return None
        return previous

    def _monitor(self, context: Any) -> Callable[[Record], bool]:
        def report(record: Record) -> bool:
            if self.verbose:
                print(
                    f"round {record.iteration:3d}  objective {record.objective:.8g}  "
                    f"gap {record.relative_gap:.1e}  edges {record.edges}",
                    file=sys.stderr,
                )
            child = context.subcontext(task_name="round")
            child.call_on_fit_task_begin(estimator=self)
            return bool(child.call_on_fit_task_end(estimator=self))

        return report

    def _keep(self, data: TaskData, prepared: Prepared, result: FitResult, parts: Parts) -> None:
        scale = 1.0 if parts.paper is None else parts.paper.precision
        unit = prepared.unit
        _check_units(unit, prepared.scales, result)
        precision, covariance = result.structure.precision, result.structure.covariance
        self.tasks_ = data.tasks
        self.coef_, self.intercept_ = prepared.to_user(result.W, result.intercepts)
        self.mean_coef_ = unit * result.mean / prepared.scales
        self.noise_ = unit * np.sqrt(prepared.noise)
        self.precision_ = precision / scale / unit**2
        self.covariance_ = None if covariance is None else covariance * scale * unit**2
        # Tasks that nothing couples (a zero diagonal) have no partial correlation with any other.
        proper = precision + np.diag(np.where(precision.diagonal() > 0, 0.0, 1.0))
        self.partial_correlation_ = partial_correlation(proper)
        self.graph_ = TaskGraph.from_precision(proper, tasks=data.tasks.tolist())
        self.objective_ = result.objective
        self.n_iter_ = len(result.history)
        self.history_ = result.history
        self.result_ = result
        self.mean_variance_ = unit**2 * prepared.mean_variance
        self.loss_ = self._loss()

    def _warn_unless_converged(self, result: FitResult, parts: Parts) -> None:
        if result.status in (Status.CONVERGED, Status.SETTLED):
            return
        settings, features = parts.settings, result.W.shape[1]
        if parts.structure.on == "residual" and features >= result.frame.n_rows:
            remedy = (
                f"{features} features fit {result.frame.n_rows:g} rows nearly exactly, which leaves the graph hardly "
                "any residuals to learn from: raise coef_penalty or ridge, give the noise if its estimate (noise_) is "
                f"far too small, or else raise max_iter (now {settings.max_iter})"
            )
        elif result.status is Status.MAX_ITER:
            remedy = f"raise max_iter (now {settings.max_iter}) or accept the fit by raising tol (now {settings.tol:g})"
        else:
            remedy = (
                f"raise tol (now {settings.tol:g}), or rescale features, and targets of tasks, that differ by many "
                "orders of magnitude"
            )
        warnings.warn(f"The fit {result.message}; {remedy}.", ConvergenceWarning, stacklevel=4)

    def limits(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> PenaltyLimits:
        """The penalties from which on the graph is empty (λ_max) and all weights are zero (γ_max) on these data.

        Parameters
        ----------
        X, y, tasks, sample_weight
            As for :meth:`fit`.
        """
        data = self._read(X, y, tasks, sample_weight)
        parts = self._parts(data)
        if not isinstance(parts.structure, SparsePrecision):
            raise ParameterError(f"limits are for a learned sparse precision; the structure is {parts.structure!r}.")
        check_structure(parts.structure, data, self._loss())
        prepared = prepare(data, self._loss(), parts.settings, free_units=parts.free_units)
        return PenaltyLimits(graph_penalty_limit(prepared, parts), coef_penalty_limit(prepared, parts))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _repr_html_inner(self) -> str:
        return estimator_html(self, super()._repr_html_inner())


def chosen_parts(structure: Any, penalty: Any) -> tuple[Structure, Penalty]:
    """Structure and penalty of an estimator that has them as parameters, or an error."""
    structure = Independent() if structure is None else structure
    penalty = L1() if penalty is None else penalty
    if not isinstance(structure, Structure):
        raise ParameterError(
            f"structure is {structure!r}; give an object of mssl.structures, such as Independent(1.0), or None."
        )
    if not isinstance(penalty, Penalty):
        raise ParameterError(f"penalty is {penalty!r}; give an object of mssl.penalties, such as L1(0.1), or None.")
    return structure, penalty


def _check_units(unit: float, scales: Array, result: FitResult) -> None:
    """Raise where what was found cannot be held in the user's units."""
    smallest, largest = unit / float(scales.max()), unit / float(scales.min())
    precise = float(result.structure.precision.diagonal().max())
    if smallest < _HELD[0] or largest > _HELD[1] or precise > _HELD[1] * unit**2:
        raise DataError(
            f"Coefficients of sizes {smallest:.2g} to {largest:.2g} and their precisions cannot be held in the units "
            "of X and y; give them in other units."
        )


def check_targets(data: TaskData, loss: Loss) -> None:
    """Raise where targets are impossible under the loss, or of a size that no units suit."""
    bad = ~loss.in_range(data.y)
    if np.any(bad):
        first = int(np.argmax(bad))
        names = list(data.tasks[np.unique(data.task_of_row[bad])])
        raise DataError(
            f"{int(bad.sum())} targets are out of range for the {loss.name} loss (allowed: {loss.range}; first: "
            f"{data.y[first]:g} in task {listing([data.tasks[data.task_of_row[first]]])}; tasks {listing(names)}). "
            "Correct them or choose another loss."
        )
    check_target_sizes(data, free_units=True)


class GLMScore:
    """Score by the share of deviance explained: R² for least squares."""

    loss_: Loss

    def score(self, X: Any, y: Any, sample_weight: Any = None, tasks: Any = None) -> float:
        """Share of deviance explained, D² = 1 − deviance / deviance of the mean; R² for the Gaussian loss.

        For (n, K) targets it is the mean over tasks, each against its own mean, missing targets left out.

        Parameters
        ----------
        X, y, sample_weight, tasks
            As for :meth:`fit`.
        """
        predicted = self.predict(X, tasks=tasks)  # type: ignore[attr-defined]
        return deviance_score(self.loss_, y, predicted, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        loss = getattr(self, "loss", None)
        tags.target_tags.positive_only = getattr(loss, "name", loss) in ("poisson", "gamma")
        return tags


class MultiTaskGLM(GLMScore, RegressorMixin, MultiTaskEstimator):
    r"""Any structure × penalty × loss: the general estimator behind the named methods.

    .. math:: \min_{W, b}\; \mathrm{loss}(W, b) + \tfrac12\operatorname{tr}(W C W^\top) + g(C) + \mathrm{penalty}(W)

    Parameters
    ----------
    structure : Structure, default=Independent(1.0)
        What relates the tasks; see :mod:`mssl.structures`.
    penalty : Penalty, default=L1(0)
        What keeps the weights small or sparse; see :mod:`mssl.penalties`.
    loss : {"gaussian", "poisson", "gamma"} or Loss, default="gaussian"
        The loss of one observation.
    shared_mean : "auto", bool or float, default=False
        Variance τ² of a mean that all tasks share; see :class:`MSSLRegressor`.
    noise : "auto", float or array of shape (K,), default="auto"
        Noise standard deviations; 1 weighs all tasks alike.
    scale_features : bool, default=True
        Divide each feature by one scale pooled over tasks.
    fit_intercept : bool, default=True
        Give each task an unpenalised intercept.
    task_column : str or int, optional
        The column of X that holds task ids.
    solver : {"auto", "coordinate", "cg", "sylvester", "fista", "admm"}, default="auto"
        Solver of the weight step.
    tol : float, default=1e-6
        Relative certificate to reach.
    max_iter : int, default=200
        Most rounds of the alternation.
    warm_start : bool, default=False
        Start the next fit from this one.
    verbose : int, default=0
        1 prints one line a round.

    Examples
    --------
    >>> from mssl import MultiTaskGLM
    >>> from mssl.datasets import make_clustered_tasks
    >>> from mssl.structures import Independent
    >>> data = make_clustered_tasks(random_state=0)
    >>> MultiTaskGLM(Independent(1.0)).fit(data.X, data.y, tasks=data.tasks).coef_.shape
    (13, 30)
    """

    def __init__(
        self,
        structure: Structure | None = None,
        penalty: Penalty | None = None,
        *,
        loss: Any = "gaussian",
        shared_mean: Any = False,
        noise: Any = "auto",
        scale_features: bool = True,
        fit_intercept: bool = True,
        task_column: Any = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 200,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.structure = structure
        self.penalty = penalty
        self.loss = loss
        self.shared_mean = shared_mean
        self.noise = noise
        self.scale_features = scale_features
        self.fit_intercept = fit_intercept
        self.task_column = task_column
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose

    def _parts(self, data: TaskData) -> Parts:
        return Parts(*chosen_parts(self.structure, self.penalty), settings_of(self))


class MSSLRegressor(GLMScore, RegressorMixin, MultiTaskEstimator):
    r"""Multi-task sparse structure learning: all tasks' weights, and the sparse graph that relates them.

    p-MSSL puts a Gaussian prior with sparse precision Ω over the rows of W and learns both; see
    :mod:`mssl.model.objective` for F and :mod:`mssl.structures.sparse` for the structure's share.

    Parameters
    ----------
    graph_penalty : float, default=0.3
        λ, the price of an edge on the correlation scale: 0 is dense, from ``limits(X, y).graph_penalty`` on the
        graph is empty. Prediction likes 0.02–0.1, reading the graph 0.35–0.7. ``inf`` learns neither a graph nor the
        tasks' variances: `coupling` is then one ridge for all tasks (around the shared mean), in units of rows.
    coef_penalty : float, default=0.0
        γ, the ℓ1 penalty on the weights; from ``limits(X, y).coef_penalty`` on all weights are zero.
    on : {"coef", "residual"}, default="coef"
        What the graph relates: the tasks' coefficients (p-MSSL), or their residuals (r-MSSL), for which the rows of
        all tasks must belong together (shared or aligned layout, no missing target, Gaussian loss).
    correlation : {"pearson", "spearman", "kendall"}, default="pearson"
        How coefficients or residuals of two tasks are compared. Rank correlations find the graph of heavy-tailed ones
        better; they serve the graph more than the prediction, and the fit has no joint objective.
    edges : KnownEdges, optional
        What is known about the graph beforehand, by task names; see :class:`mssl.structures.KnownEdges`.
    coupling : float, default=1.0
        η, the temperature of the prior; large values pull related tasks together.
    variance_floor : float, default=0.125
        Least prior variance of a task's weights, in units of their sampling variance.
    shrinkage : float, default=0.0
        Shrinkage of the tasks' covariance towards its diagonal; useful with many more tasks than features.
    ridge : float, default=0.0
        Ridge on the weights, in addition to what the graph does; comparable with a number of rows.
    shared_mean : "auto", bool or float, default="auto"
        A mean weight vector that all tasks share. True estimates its variance τ², a number gives it, False is the
        paper's zero mean. "auto" estimates it, and switches it off unless nearly all pairs of tasks agree: clusters
        are the graph's business. Targets of all tasks must share their units for a mean to make sense.
    loss : {"gaussian", "poisson", "gamma"}, default="gaussian"
        The loss of one observation.
    noise : "auto", float or array of shape (K,), default="auto"
        Noise standard deviations. "auto" estimates which share of each task's variation is noise, so that units do not
        matter; tasks with few rows borrow from the others (:mod:`mssl.solvers.moderation`).
    scale_features : bool, default=True
        Divide each feature by one scale pooled over tasks; coefficients are reported in the user's units.
    formulation : {"unified", "paper"}, default="unified"
        "paper" minimises the objective as the paper prints it: λ and γ are then the paper's, raw features, unit noise,
        no shared mean, start from Ω = I and W = 0.
    fit_intercept : bool, default=True
        Give each task an unpenalised intercept.
    task_column : str or int, optional
        The column of X that holds task ids.
    solver : {"auto", "coordinate", "cg", "sylvester", "fista", "admm"}, default="auto"
        Solver of the weight step.
    graph_solver : {"bcd", "admm"}, default="bcd"
        Solver of the graph step.
    tol : float, default=1e-6
        Joint relative certificate to reach.
    max_iter : int, default=200
        Most rounds of the alternation.
    warm_start : bool, default=False
        Start the next fit from this one.
    verbose : int, default=0
        1 prints one line a round.

    Attributes
    ----------
    coef_ : ndarray of shape (K, d)
        Weights in the user's units.
    intercept_ : ndarray of shape (K,)
        Intercepts.
    precision_, covariance_, partial_correlation_ : ndarrays of shape (K, K)
        Ω, its inverse, and the partial correlations between tasks.
    graph_ : TaskGraph
        The graph, with names and ways to read it.
    tasks_ : ndarray of shape (K,)
        Task names, in the order of all of the above.
    noise_ : ndarray of shape (K,)
        Noise standard deviations.
    mean_coef_ : ndarray of shape (d,)
        The shared mean, zero where there is none.
    objective_, n_iter_, history_, result_
        F at the end, rounds, one record a round, and everything else.

    References
    ----------
    Gonçalves, Das, Chatterjee, Sivakumar, Von Zuben & Banerjee (2014), doi:10.1145/2661829.2662091.

    Examples
    --------
    >>> from mssl import MSSLRegressor
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(random_state=0)
    >>> model = MSSLRegressor(graph_penalty=0.5).fit(data.X, data.y, tasks=data.tasks)
    >>> model.coef_.shape, model.graph_.n_edges > 0
    ((13, 30), True)
    """

    def __init__(
        self,
        graph_penalty: float = 0.3,
        coef_penalty: float = 0.0,
        *,
        on: str = "coef",
        correlation: str = "pearson",
        edges: KnownEdges | None = None,
        coupling: float = 1.0,
        variance_floor: float = 0.125,
        shrinkage: float = 0.0,
        ridge: float = 0.0,
        shared_mean: Any = "auto",
        loss: Any = "gaussian",
        noise: Any = "auto",
        scale_features: bool = True,
        formulation: str = "unified",
        fit_intercept: bool = True,
        task_column: Any = None,
        solver: str = "auto",
        graph_solver: str = "bcd",
        tol: float = 1e-6,
        max_iter: int = 200,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.graph_penalty = graph_penalty
        self.coef_penalty = coef_penalty
        self.on = on
        self.correlation = correlation
        self.edges = edges
        self.coupling = coupling
        self.variance_floor = variance_floor
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.shared_mean = shared_mean
        self.loss = loss
        self.noise = noise
        self.scale_features = scale_features
        self.formulation = formulation
        self.fit_intercept = fit_intercept
        self.task_column = task_column
        self.solver = solver
        self.graph_solver = graph_solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose

    def _parts(self, data: TaskData) -> Parts:
        return mssl_parts(self, data)
