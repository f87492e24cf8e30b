"""Estimators that minimise F: MSSL, with a sparse graph of tasks, and general ones with any structure and penalty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal

import numpy as np

from mssl._renamed import old_names
from mssl._typing import Array, ArrayLike, ClassWeight, GraphPenalty, SharedMean
from mssl._validation import check_choice, check_instance, refused
from mssl.estimators.base import MultiTaskEstimator
from mssl.estimators.moments import FromMoments
from mssl.estimators.prediction import LabelEstimator, MeanPredictor, OccasionPredictor
from mssl.estimators.spec import FitSpec, TaskShape, settings_of, shallow_copy
from mssl.features import FeatureBlocks, Linear
from mssl.features.maps import are_scaled, is_linear
from mssl.losses import Loss, resolve_loss
from mssl.penalties import L1, ElasticNet, Penalty
from mssl.structures import Independent, SparsePrecision, Structure
from mssl.structures.fixed import OneRidge
from mssl.structures.known import known_edges

# The default λ. It lies between 0.02–0.1, which give the best predictions, and 0.35–0.7, which give the most readable
# graphs.
GRAPH_PENALTY = 0.3


def noise_of_loss(value: Any, held: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the noise parameter of version 0.1.0, a standard deviation, into the loss's noise variance."""
    loss = shallow_copy(resolve_loss(held["loss"]))
    if not isinstance(value, str):
        variance = np.square(np.asarray(value, dtype=float))
        loss.noise_variance = variance if variance.ndim else float(variance)
    return {"loss": loss}


def scale_of_features(value: bool, held: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the parameter scale_features of version 0.1.0 into the parameter features."""
    features = held["features"]
    if value or not are_scaled(features):
        return {}
    if is_linear(features):
        return {"features": Linear(scale=False)}
    if isinstance(features, str):
        features = FeatureBlocks(features).parts()
    return {"features": [Linear(scale=False), *(part for part in features if not isinstance(part, Linear))]}


def _formulation(value: str, held: Mapping[str, Any]) -> dict[str, Any]:
    """The class that minimises the objective as the paper prints it."""
    labels = "class_weight" in held
    words = ("unified", "paper", "paper-logistic") if labels else ("unified", "paper")
    if check_choice("formulation", value, words) == "unified":
        return {}
    cls = getattr(import_module("mssl.paper"), "PaperMSSLClassifier" if labels else "PaperMSSL")
    return {"__class__": cls, **({"logistic": "printed"} if value == "paper-logistic" else {})}


@old_names(
    formulation=_formulation,
    coupling="prior_strength",
    correlation="graph_penalty__correlation",
    edges="graph_penalty__edge_constraints",
    variance_floor="graph_penalty__variance_floor",
    shrinkage="graph_penalty__shrinkage",
    graph_solver="graph_penalty__solver",
    ridge="coef_penalty__ridge",
    n_starts="solver__n_starts",
    memory_limit="solver__memory_limit",
    scale_features=scale_of_features,
)
@dataclass(eq=False, repr=False)
class MSSLEstimator(MultiTaskEstimator):
    """Base class of the MSSL estimators, which have a sparse precision and an elastic net."""

    graph_penalty: GraphPenalty | SparsePrecision = "auto"
    coef_penalty: float | ElasticNet = 0.0
    _: KW_ONLY
    prior_strength: float = 1.0

    relation = "coef"  # Labels have no Gaussian residuals that a graph could relate.
    _parts: ClassVar = {**MultiTaskEstimator._parts, "graph_penalty": SparsePrecision, "coef_penalty": ElasticNet}

    def to_spec(self, data: TaskShape) -> FitSpec:
        """The specification of a fit with a sparse precision and an elastic net."""
        learned, penalty, screens = self._learned(data)
        mean = self.shared_mean
        if learned.on == "residual":
            if not isinstance(mean, str) and mean:
                allowed = "with relation='residual' the weights have no common prior and no mean"
                raise refused("shared_mean", mean, allowed, "Leave it at 'auto' or set it to False.")
            mean = False
        no_graph = learned.alpha == np.inf and learned.on == "coef"
        structure = OneRidge(learned.coupling) if no_graph else learned
        loss = self._loss()
        return FitSpec(structure, penalty, loss, settings_of(self, loss, shared_mean=mean), screens=screens)

    def _learned(self, data: TaskShape) -> tuple[SparsePrecision, ElasticNet, bool]:
        """The sparse precision, the penalty, and whether a test may remove edges that chance explains."""
        learned: SparsePrecision = self._part("graph_penalty", self.graph_penalty)
        penalty: ElasticNet = self._part("coef_penalty", self.coef_penalty)
        check_instance("graph_penalty", learned, SparsePrecision, also="a number, or 'auto'")
        check_instance("coef_penalty", penalty, Penalty, also="a number")
        if learned.coupling not in (1.0, self.prior_strength) or learned.on not in ("coef", self.relation):
            allowed = "the estimator's prior_strength and relation set its coupling and its on"
            raise refused("graph_penalty", learned, allowed, "Give them to the estimator.")
        edges, automatic = learned.edge_constraints, isinstance(learned.alpha, str) and learned.alpha == "auto"
        learned.alpha = GRAPH_PENALTY if automatic else learned.alpha
        learned.on, learned.coupling = self.relation, self.prior_strength
        learned.edge_constraints = None if edges is None else known_edges(edges).resolve(data.tasks)
        return learned, penalty, automatic and self.relation == "coef" and edges is None


@old_names(on="relation", noise=noise_of_loss)
@dataclass(eq=False, repr=False)
class MSSLRegressor(OccasionPredictor, FromMoments, MSSLEstimator):
    r"""Multi-task sparse structure learning: the weights of all tasks and the sparse graph that relates the tasks.

    p-MSSL puts a Gaussian prior with sparse precision Ω over the rows of W and learns both Ω and W. See
    :mod:`mssl.model.objective` for the objective F, and :mod:`mssl.structures.sparse` for the structure's part of F.

    Parameters
    ----------
    graph_penalty : "auto", float or SparsePrecision, default="auto"
        The penalty λ of an edge, on the correlation scale. With 0 the graph is dense; from
        ``limits(X, y).graph_penalty`` upwards it is empty. Use 0.02–0.1 to predict and 0.35–0.7 to read the graph.
        "auto" is 0.3, but gives an empty graph if there are more than two tasks per feature and if the tasks' weights
        are no more similar than chance makes them (:func:`mssl.solvers.fit.without_chance_edges`). With ``inf`` the
        model learns neither a graph nor the tasks' variances: `prior_strength` is then one ridge for all tasks (around
        the shared mean), in units of rows. A :class:`mssl.structures.SparsePrecision` has further options: known edges
        (by task names), rank correlations, the variance floor, shrinkage, and the solver of the graph step.
    coef_penalty : float or ElasticNet, default=0.0
        The ℓ1 penalty γ on the weights. From ``limits(X, y).coef_penalty`` upwards all weights are zero. An
        :class:`mssl.penalties.ElasticNet` adds a ridge to the penalty of the graph.
    relation : {"coef", "residual"}, default="coef"
        Whether the graph relates the tasks' coefficients (p-MSSL) or their residuals (r-MSSL). Residuals need rows that
        belong together in all tasks (shared or aligned layout) and the Gaussian loss. A missing target is replaced by
        its expectation given the other targets of its occasion.
    prior_strength : float, default=1.0
        The temperature η of the prior; large values pull related tasks together.
    shared_mean : "auto", bool or float, default="auto"
        A mean weight vector that all tasks share. True estimates its variance τ², a number sets τ², and False is the
        paper's zero mean. "auto" estimates τ², and uses no mean unless nearly all pairs of tasks agree; if they do not,
        the graph describes clusters of tasks. A mean makes sense only if the targets of all tasks have the same units.
    loss : {"gaussian", "poisson", "gamma"} or Loss, default="gaussian"
        The loss of one observation. For data with outliers use :class:`mssl.losses.Huber`, with δ in the units of y.
        The noise variance is estimated unless the loss sets it: ``Gaussian(noise_variance=1.0)``.
    features : {"linear", "spline", "spline+interactions"} or list, default="linear"
        The features of the linear model: the columns themselves ("linear"), also a spline of every column ("spline"),
        also products of those pairs of columns that correlate with the targets ("spline+interactions"), or a list of
        maps (:mod:`mssl.features`). Each feature is divided by one scale pooled over tasks, unless the list holds
        ``Linear(scale=False)``. Coefficients are in the user's units.
    missing : {"error", "indicator"}, default="error"
        "error" refuses missing values in X. "indicator" replaces them by their column's mean and marks them by a
        further column. Columns of text, categories and truth values of a frame are encoded in both cases (one column
        of 0 and 1 per level).
    categorical_features : sequence of str or int, optional
        Columns of X that are categories even if they hold numbers, such as codes, by name or by position (without the
        task column).
    target_transform : {None, "log", "yeo-johnson", "auto"}, default=None
        The transform of the targets, for the Gaussian loss: none, the logarithm, a power that the data choose, or
        ("auto") the one of these that is clearly the most likely (:mod:`mssl.data.targets`). Weights and noise are then
        on the transformed scale. Predictions are means on the original scale.
    fit_intercept : bool, default=True
        Whether each task has an unpenalised intercept.
    task_column : str or int, optional
        The column of X that holds task ids.
    solver : {"auto", "coordinate", "cg", "sylvester", "fista"} or Solver, default="auto"
        Solver of the weight step. A :class:`mssl.solvers.Solver` also sets the number of starting points and the memory
        limit of fits.
    tol : float, default=1e-6
        The fit stops when the joint relative certificate is at most this number.
    max_iter : int, default=200
        Largest number of rounds of the alternation.
    warm_start : bool, default=False
        Whether the next fit starts from the result of this one.
    verbose : int, default=0
        1 prints one line per round.

    Attributes
    ----------
    coef_ : ndarray of shape (K, D)
        Weights in the user's units.
    features_ : ndarray of shape (D,)
        Names of the features.
    encoder_ : FeatureEncoder or None
        The encoder that makes numbers of the columns of X, if some are categories or may have missing values.
    maps_ : FeatureBlocks or None
        The maps that make features of the columns; None if the columns are the features.
    target_ : TargetTransform or None
        The transform of the targets; None if there is none.
    intercept_ : ndarray of shape (K,)
        Intercepts.
    precision_, covariance_, partial_correlation_ : ndarrays of shape (K, K)
        Ω, its inverse, and the partial correlations between tasks. With more than 2000 tasks they are SciPy csr_arrays,
        unless the graph relates residuals or has known edges.
    graph_ : TaskGraph
        The graph with the tasks' names, and methods to read it.
    tasks_ : ndarray of shape (K,)
        Task names, in the order of the arrays above.
    noise_variance_ : ndarray of shape (K,)
        Variances of the noise.
    mean_coef_ : ndarray of shape (D,)
        The shared mean; zero if the model has none.
    unseen_coef_, unseen_intercept_ : ndarray of shape (d,) and float
        Weights and intercept that predict tasks without rows: the average weights and the average level of the tasks.
    objective_, n_iter_, history_, result_
        F at the end, the number of rounds, one record per round, and the full result of the solver.

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

    _: KW_ONLY
    relation: Literal["coef", "residual"] = "coef"
    loss: str | Loss = "gaussian"
    target_transform: str | None = None

    def impute(self, X: Any, y: ArrayLike) -> Array:
        """Fill missing targets with their expectations, given the features and the known targets of the occasion.

        Parameters
        ----------
        X : array or frame of shape (n, d) or (n, K, d)
            Features.
        y : array of shape (n, K)
            Targets, NaN for missing ones.

        Returns
        -------
        ndarray of shape (n, K)
        """
        filled: Array = self.predict(X, known=y)
        return filled

    def _loss(self) -> Loss:
        loss = resolve_loss(self.loss)
        if loss.labels:
            allowed = "a regressor takes 'gaussian', 'poisson', 'gamma', or another Loss"
            raise refused("loss", self.loss, allowed, "Use mssl.MSSLClassifier for two classes.")
        return loss


@old_names()
@dataclass(eq=False, repr=False)
class MSSLClassifier(LabelEstimator, MSSLEstimator):
    r"""Multi-task sparse structure learning for two classes: logistic weights and the graph that relates the tasks.

    This is p-MSSL with the logistic loss. It puts a Gaussian prior with sparse precision Ω over the rows of W and
    learns both; see :mod:`mssl.model.objective`. All tasks share one pair of labels, of any type.

    Parameters
    ----------
    graph_penalty, coef_penalty, prior_strength, shared_mean
        As for :class:`MSSLRegressor`.
    features, missing, categorical_features
        As for :class:`MSSLRegressor`.
    class_weight : None, "balanced" or dict of label → weight, default=None
        Weights of the classes; "balanced" gives both classes of each task the same total weight.
    fit_intercept, task_column, tol, max_iter, warm_start, verbose
        As for :class:`MSSLRegressor`.
    solver : {"auto", "coordinate", "cg", "fista"} or Solver, default="auto"
        Solver of the quadratic steps of proximal Newton; see :class:`MSSLRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels; probabilities and decisions refer to the second.
    coef_, intercept_, precision_, covariance_, partial_correlation_, graph_, tasks_, mean_coef_
        As for :class:`mssl.MSSLRegressor`.
    unseen_coef_, unseen_intercept_
        As for :class:`mssl.MSSLRegressor`.
    objective_, n_iter_, history_, result_
        F at the end, the number of rounds, one record per round, and the full result of the solver.

    References
    ----------
    Gonçalves, Das, Chatterjee, Sivakumar, Von Zuben & Banerjee (2014), doi:10.1145/2661829.2662091.

    Examples
    --------
    >>> from mssl import MSSLClassifier
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(family="binary", n_features=5, random_state=0)
    >>> model = MSSLClassifier(graph_penalty=0.1).fit(data.X, data.y, tasks=data.tasks)
    >>> model.predict_proba(data.X, tasks=data.tasks).shape
    (780, 2)
    >>> model.score(data.X, data.y, tasks=data.tasks) > 0.8
    True
    """

    _: KW_ONLY
    class_weight: ClassWeight = None


@old_names(scale_features=scale_of_features, memory_limit="solver__memory_limit")
@dataclass(eq=False, repr=False)
class GLMEstimator(MultiTaskEstimator):
    """Base class of the general estimators, whose structure and penalty are parameters."""

    structure: Structure | None = None
    penalty: Penalty | None = None
    _: KW_ONLY
    shared_mean: SharedMean = False
    penalty_factor: ArrayLike | None = None

    def to_spec(self, data: TaskShape) -> FitSpec:
        """The specification of a fit with the given structure, penalty and loss."""
        structure = Independent() if self.structure is None else self.structure
        penalty = L1() if self.penalty is None else self.penalty
        if not isinstance(structure, Structure):
            raise refused(
                "structure", structure, "give an object of mssl.structures, such as Independent(1.0), or None"
            )
        if not isinstance(penalty, Penalty):
            raise refused("penalty", penalty, "give an object of mssl.penalties, such as L1(0.1), or None")
        factors = () if self.penalty_factor is None else tuple(np.ravel(self.penalty_factor).tolist())
        if structure.learned and structure.relates == "coef" and 0 in factors:
            allowed = "if the structure is learned from the weights, factors are above 0"
            remedy = (
                "The structure would be learned from free weights too. Give a small factor, such as 0.1 for weights of "
                "ten times the size, or use structure=Independent(…)."
            )
            raise refused("penalty_factor", self.penalty_factor, allowed, remedy)
        loss = self._loss()
        return FitSpec(structure, penalty, loss, settings_of(self, loss, penalty_factor=factors))


@old_names(noise=noise_of_loss)
@dataclass(eq=False, repr=False)
class MultiTaskGLM(MeanPredictor, FromMoments, GLMEstimator):
    r"""General estimator: any structure, any penalty and any loss. The named methods are special cases.

    .. math:: \min_{W, b}\; \mathrm{loss}(W, b) + \tfrac12\operatorname{tr}(W C W^\top) + g(C) + \mathrm{penalty}(W)

    Parameters
    ----------
    structure : Structure, default=Independent(1.0)
        The structure that relates the tasks; see :mod:`mssl.structures`.
    penalty : Penalty, default=L1(0)
        The penalty that keeps weights small or sparse; see :mod:`mssl.penalties`.
    loss : {"gaussian", "poisson", "gamma"} or Loss, default="gaussian"
        The loss of one observation; ``Gaussian(noise_variance=1.0)`` gives all tasks the same weight.
    shared_mean : "auto", bool or float, default=False
        Variance τ² of a mean that all tasks share; see :class:`MSSLRegressor`.
    features : {"linear", "spline", "spline+interactions"} or list, default="linear"
        The features of the linear model; see :class:`MSSLRegressor`.
    missing : {"error", "indicator"}, default="error"
        Treatment of missing values in X; see :class:`MSSLRegressor`.
    categorical_features : sequence of str or int, optional
        Columns of X that are categories even if they hold numbers; see :class:`MSSLRegressor`.
    penalty_factor : array of shape (d,), optional
        Penalty factors of the features. The ℓ1 penalty of a feature's weights is multiplied by its factor, and their
        ridge and prior by its square. A factor of 2 doubles the ℓ1 penalty, and 0 leaves a feature unpenalised (0 is
        replaced by 1/10 000). If the model has curves, the factors apply to the columns' lines only. A structure that
        is learned from the weights uses weights times factors, which it expects to be of similar size. It does not
        allow 0, since it would learn from the free weights too.
    fit_intercept : bool, default=True
        Whether each task has an unpenalised intercept.
    task_column : str or int, optional
        The column of X that holds task ids.
    solver : {"auto", "coordinate", "cg", "sylvester", "fista"} or Solver, default="auto"
        Solver of the weight step; see :class:`MSSLRegressor`.
    tol : float, default=1e-6
        The fit stops when the relative certificate is at most this number.
    max_iter : int, default=200
        Largest number of rounds of the alternation.
    warm_start : bool, default=False
        Whether the next fit starts from the result of this one.
    verbose : int, default=0
        1 prints one line per round.

    Examples
    --------
    >>> from mssl import MultiTaskGLM
    >>> from mssl.datasets import make_clustered_tasks
    >>> from mssl.structures import Independent
    >>> data = make_clustered_tasks(random_state=0)
    >>> MultiTaskGLM(Independent(1.0)).fit(data.X, data.y, tasks=data.tasks).coef_.shape
    (13, 30)
    """

    _: KW_ONLY
    loss: str | Loss = "gaussian"


@old_names()
@dataclass(eq=False, repr=False)
class MultiTaskClassifier(LabelEstimator, GLMEstimator):
    r"""General classifier: any structure and any penalty with the logistic loss. The named methods are special cases.

    .. math:: \min_{W, b}\; \sum_{ki} \omega_{ki}\log(1+e^{-y_{ki}(x_{ki}\cdot w_k+b_k)})
              + \tfrac12\operatorname{tr}(W C W^\top) + g(C) + \mathrm{penalty}(W), \qquad y = \pm 1

    Parameters
    ----------
    structure : Structure, default=Independent(1.0)
        The structure that relates the tasks; see :mod:`mssl.structures`.
    penalty : Penalty, default=L1(0)
        The penalty that keeps weights small or sparse; see :mod:`mssl.penalties`.
    class_weight : None, "balanced" or dict of label → weight, default=None
        Weights of the classes; "balanced" gives both classes of each task the same total weight.
    shared_mean, features, missing, categorical_features, penalty_factor, fit_intercept, task_column
        As for :class:`mssl.MultiTaskGLM`.
    solver, tol, max_iter, warm_start, verbose
        As for :class:`mssl.MultiTaskGLM`.

    Examples
    --------
    >>> from mssl import MultiTaskClassifier
    >>> from mssl.datasets import make_clustered_tasks
    >>> from mssl.structures import Independent
    >>> data = make_clustered_tasks(family="binary", random_state=0)
    >>> MultiTaskClassifier(Independent(1.0)).fit(data.X, data.y, tasks=data.tasks).coef_.shape
    (13, 30)
    """

    _: KW_ONLY
    class_weight: ClassWeight = None
