"""The estimators of one objective: MSSL, which learns a sparse graph of tasks, and any structure, penalty and loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, overload

import numpy as np

from mssl._renamed import old_names
from mssl._typing import Array, ArrayLike, ClassWeight, Given, GraphPenalty, RegressorMixin, SharedMean
from mssl._validation import check_choice, check_instance, refused
from mssl.estimators.base import LabelEstimator, MeanPredictor, MultiTaskEstimator, noise_of_loss, scale_of_features
from mssl.estimators.moments import FromMoments
from mssl.estimators.prediction import predict_given
from mssl.estimators.spec import FitSpec, TaskShape, settings_of
from mssl.losses import Loss
from mssl.penalties import L1, ElasticNet, Penalty
from mssl.structures import Independent, SparsePrecision, Structure
from mssl.structures.fixed import OneRidge
from mssl.structures.known import known_edges

GRAPH_PENALTY = 0.3  # λ where none is given: between 0.02–0.1, which predict best, and 0.35–0.7, which read best


def _formulation(value: str, held: Mapping[str, Any]) -> dict[str, Any]:
    """The class that minimises the printed objective."""
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
    """What the MSSL estimators share: a sparse precision, an elastic net, and the settings."""

    graph_penalty: GraphPenalty | SparsePrecision = "auto"
    coef_penalty: float | ElasticNet = 0.0
    _: KW_ONLY
    prior_strength: float = 1.0

    relation = "coef"  # residuals of labels are no rows that a Gaussian graph could relate
    _parts: ClassVar = {**MultiTaskEstimator._parts, "graph_penalty": SparsePrecision, "coef_penalty": ElasticNet}

    def to_spec(self, data: TaskShape) -> FitSpec:
        """A sparse precision, an elastic net, and the settings."""
        learned, penalty, screens = self._learned(data)
        mean = self.shared_mean
        if learned.on == "residual":
            if not isinstance(mean, str) and mean:
                allowed = "with relation='residual' the weights have no common prior and no mean"
                raise refused("shared_mean", mean, allowed, "Leave it at 'auto' or set it to False.")
            mean = False
        no_graph = learned.alpha == np.inf and learned.on == "coef"
        structure = OneRidge(learned.coupling) if no_graph else learned
        return FitSpec(structure, penalty, self._loss(), settings_of(self, shared_mean=mean), screens=screens)

    def _learned(self, data: TaskShape) -> tuple[SparsePrecision, ElasticNet, bool]:
        """The sparse precision, the penalty, and whether edges are screened for chance."""
        learned: SparsePrecision = self._part("graph_penalty", self.graph_penalty)
        penalty: ElasticNet = self._part("coef_penalty", self.coef_penalty)
        check_instance("graph_penalty", learned, SparsePrecision, also="a number, or 'auto'")
        check_instance("coef_penalty", penalty, Penalty, also="a number")
        if learned.coupling not in (1.0, self.prior_strength) or learned.on not in ("coef", self.relation):
            allowed = "its coupling and its on are the estimator's prior_strength and relation"
            raise refused("graph_penalty", learned, allowed, "Give them to the estimator.")
        edges, automatic = learned.edge_constraints, isinstance(learned.alpha, str) and learned.alpha == "auto"
        learned.alpha = GRAPH_PENALTY if automatic else learned.alpha
        learned.on, learned.coupling = self.relation, self.prior_strength
        learned.edge_constraints = None if edges is None else known_edges(edges).resolve(data.tasks)
        return learned, penalty, automatic and self.relation == "coef" and edges is None


@old_names(on="relation", noise=noise_of_loss)
@dataclass(eq=False, repr=False)
class MSSLRegressor(MeanPredictor, FromMoments, RegressorMixin, MSSLEstimator):
    r"""Multi-task sparse structure learning: all tasks' weights, and the sparse graph that relates them.

    p-MSSL puts a Gaussian prior with sparse precision Ω over the rows of W and learns both; see
    :mod:`mssl.model.objective` for F and :mod:`mssl.structures.sparse` for the structure's share.

    Parameters
    ----------
    graph_penalty : "auto", float or SparsePrecision, default="auto"
        λ, the price of an edge on the correlation scale: 0 is dense, from ``limits(X, y).graph_penalty`` on the
        graph is empty. Prediction likes 0.02–0.1, reading the graph 0.35–0.7. "auto" is 0.3, and no edge where there
        are more than two tasks a feature and their weights are no more alike than chance has it
        (:func:`mssl.solvers.fit.without_chance_edges`). ``inf`` learns neither a graph nor the
        tasks' variances: `prior_strength` is then one ridge for all tasks (around the shared mean), in units of rows.
        A :class:`mssl.structures.SparsePrecision` says more: what is known about the edges (by task names), rank
        correlations, the variance floor, shrinkage, and the solver of the graph step.
    coef_penalty : float or ElasticNet, default=0.0
        γ, the ℓ1 penalty on the weights; from ``limits(X, y).coef_penalty`` on all weights are zero. An
        :class:`mssl.penalties.ElasticNet` adds a ridge to what the graph does.
    relation : {"coef", "residual"}, default="coef"
        What the graph relates: the tasks' coefficients (p-MSSL), or their residuals (r-MSSL), for which the rows of
        all tasks must belong together (shared or aligned layout, Gaussian loss; a missing target is expected from
        the others of its occasion).
    prior_strength : float, default=1.0
        η, the temperature of the prior; large values pull related tasks together.
    shared_mean : "auto", bool or float, default="auto"
        A mean weight vector that all tasks share. True estimates its variance τ², a number gives it, False is the
        paper's zero mean. "auto" estimates it, and switches it off unless nearly all pairs of tasks agree: clusters
        are the graph's business. Targets of all tasks must share their units for a mean to make sense.
    loss : {"gaussian", "poisson", "gamma"} or Loss, default="gaussian"
        The loss of one observation; for outliers :class:`mssl.losses.Huber`, with δ in the units of y. The noise is
        estimated unless the loss is given its variance: ``Gaussian(noise_variance=1.0)``.
    features : {"linear", "spline", "spline+interactions"} or list, default="linear"
        What the model is linear in: the columns; also a spline of every column; also products of those pairs of columns
        that the targets ask for; or maps of your own choice (:mod:`mssl.features`). Each feature is divided by one
        scale pooled over tasks, unless ``Linear(scale=False)`` says otherwise; coefficients are in the user's units.
    missing : {"error", "indicator"}, default="error"
        Missing values in X: refused, or filled with their column's mean and marked by a further column. Columns of
        text, categories and truth values of a frame are encoded in either case (a column of 0 and 1 for each level).
    categorical_features : sequence of str or int, optional
        Columns of X whose values are categories whatever they look like, such as codes, by name or by place (a column
        of tasks not counted).
    target_transform : {None, "log", "yeo-johnson", "auto"}, default=None
        The scale that targets are fitted on, with the Gaussian loss: as they are, their logarithms, a power that the
        data choose, or whichever of these is clearly the likeliest (:mod:`mssl.data.targets`). Weights and noise are
        then on that scale, predictions are means on the targets' own.
    fit_intercept : bool, default=True
        Give each task an unpenalised intercept.
    task_column : str or int, optional
        The column of X that holds task ids.
    solver : {"auto", "coordinate", "cg", "sylvester", "fista"} or Solver, default="auto"
        Solver of the weight step. A :class:`mssl.solvers.Solver` says from how many points fits start, and how much
        memory they may take.
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
    coef_ : ndarray of shape (K, D)
        Weights in the user's units.
    features_ : ndarray of shape (D,)
        Names of the features that they belong to.
    encoder_ : FeatureEncoder or None
        How the columns of X become numbers, where some are categories or may be missing.
    maps_ : FeatureBlocks or None
        How the columns become features, unless they are the features.
    target_ : TargetTransform or None
        The scale that targets were fitted on, unless it is their own.
    intercept_ : ndarray of shape (K,)
        Intercepts.
    precision_, covariance_, partial_correlation_ : ndarrays of shape (K, K)
        Ω, its inverse, and the partial correlations between tasks; SciPy csr_arrays for more than 2000 tasks, unless
        residuals are related or known edges are given.
    graph_ : TaskGraph
        The graph, with names and ways to read it.
    tasks_ : ndarray of shape (K,)
        Task names, in the order of all of the above.
    noise_variance_ : ndarray of shape (K,)
        Variances of the noise.
    mean_coef_ : ndarray of shape (D,)
        The shared mean, zero where there is none.
    unseen_coef_, unseen_intercept_ : ndarray of shape (d,) and float
        What tasks without rows are predicted with: the tasks' average weights, and their average level.
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

    _: KW_ONLY
    relation: Literal["coef", "residual"] = "coef"
    loss: str | Loss = "gaussian"
    target_transform: str | None = None

    @overload
    def predict(
        self,
        X: Any,
        tasks: Given = None,
        unseen: str | None = None,
        *,
        offset: Given = None,
        known: Given = None,
        return_std: Literal[False] = False,
    ) -> Array: ...
    @overload
    def predict(
        self,
        X: Any,
        tasks: Given = None,
        unseen: str | None = None,
        *,
        offset: Given = None,
        known: Given = None,
        return_std: bool,
    ) -> Any: ...
    def predict(
        self,
        X: Any,
        tasks: Given = None,
        unseen: str | None = None,
        *,
        offset: Given = None,
        known: Given = None,
        return_std: bool = False,
    ) -> Any:
        """Predict the mean of the target.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features, in the layout of the fit (the long layout with its task column or ``tasks``).
        tasks : array of shape (N,), optional
            Task of each row, instead of a task column.
        unseen : {"mean", "error"}, optional
            Tasks that were not there in the fit: predicted from the tasks' mean (``unseen_coef_``,
            ``unseen_intercept_``), or refused. By default "mean", with a warning, where the estimator has a shared
            mean, else "error".
        offset : array of the shape of the predictions or of their rows, optional
            What is added to the linear predictor; see :meth:`fit`.
        known : array of shape (n, K), optional
            Targets of the same occasions that are known, NaN for those to be predicted. The answer holds the known
            ones, and for the others what is expected given the known ones; for models whose residuals are related
            (``relation="residual"``).
        return_std : bool, default=False
            Also return standard deviations of the targets about the prediction (0 for known ones), for the same models.

        Returns
        -------
        ndarray of shape (N,) or (n, K), or two of them with ``return_std``

        Examples
        --------
        Three stations of which the third has lost every other value:

        >>> import numpy as np
        >>> from mssl import MSSLRegressor
        >>> random = np.random.default_rng(0)
        >>> X = random.standard_normal((200, 2))
        >>> weather = random.standard_normal((200, 1))
        >>> Y = X @ [[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]] + weather + 0.3 * random.standard_normal((200, 3))
        >>> model = MSSLRegressor(0.05, coef_penalty=1e-3, relation="residual").fit(X[:100], Y[:100])
        >>> known = Y[100:].copy()
        >>> known[::2, 2] = np.nan
        >>> alone, given = model.predict(X[100:]), model.predict(X[100:], known=known)
        >>> [round(float(np.std((Y[100:] - answer)[::2, 2])), 1) for answer in (alone, given)]
        [1.0, 0.4]
        """
        mean = super().predict(X, tasks, unseen, offset=offset)
        if known is None and not return_std:
            return mean
        return predict_given(mean, self.residual_covariance_, known, return_std)

    def impute(self, X: Any, y: ArrayLike) -> Array:
        """Fill the missing targets with what is expected given the features and the known targets of the occasion.

        Parameters
        ----------
        X : array or frame of shape (n, d) or (n, K, d)
            Features.
        y : array of shape (n, K)
            Targets, NaN where they are missing.

        Returns
        -------
        ndarray of shape (n, K)
        """
        filled: Array = self.predict(X, known=y)
        return filled

    def _loss(self) -> Loss:
        loss = super()._loss()
        if loss.labels:
            allowed = "a regressor takes 'gaussian', 'poisson', 'gamma', or another Loss"
            raise refused("loss", self.loss, allowed, "Use mssl.MSSLClassifier for two classes.")
        return loss


@old_names()
@dataclass(eq=False, repr=False)
class MSSLClassifier(LabelEstimator, MSSLEstimator):
    r"""Multi-task sparse structure learning for two classes: logistic weights, and the graph that relates the tasks.

    p-MSSL with the logistic loss: a Gaussian prior with sparse precision Ω over the rows of W, both learned; see
    :mod:`mssl.model.objective`. All tasks share one pair of labels, of any type.

    Parameters
    ----------
    graph_penalty, coef_penalty, prior_strength, shared_mean
        As for :class:`MSSLRegressor`.
    features, missing, categorical_features
        As for :class:`MSSLRegressor`.
    class_weight : None, "balanced" or dict of label → weight, default=None
        Weights of the classes; "balanced" gives both classes of each task equal totals.
    fit_intercept, task_column, tol, max_iter, warm_start, verbose
        As for :class:`MSSLRegressor`.
    solver : {"auto", "coordinate", "cg", "fista"} or Solver, default="auto"
        The solver of the quadratic steps of proximal Newton; see :class:`MSSLRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels; probabilities and decisions are for the second.
    coef_, intercept_, precision_, covariance_, partial_correlation_, graph_, tasks_, mean_coef_
        As for :class:`mssl.MSSLRegressor`.
    unseen_coef_, unseen_intercept_
        As for :class:`mssl.MSSLRegressor`.
    objective_, n_iter_, history_, result_
        F at the end, rounds, one record a round, and everything else.

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
    """What the general estimators share: structure and penalty are parameters."""

    structure: Structure | None = None
    penalty: Penalty | None = None
    _: KW_ONLY
    shared_mean: SharedMean = False
    penalty_factor: ArrayLike | None = None

    def to_spec(self, data: TaskShape) -> FitSpec:
        """The given structure, penalty and loss, and the settings."""
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
            allowed = "where the structure is learned from the weights, factors are above 0"
            remedy = (
                "It would count free weights among them. Give a small factor, such as 0.1 for weights of ten times "
                "the size, or use structure=Independent(…)."
            )
            raise refused("penalty_factor", self.penalty_factor, allowed, remedy)
        return FitSpec(structure, penalty, self._loss(), settings_of(self, penalty_factor=factors))


@old_names(noise=noise_of_loss)
@dataclass(eq=False, repr=False)
class MultiTaskGLM(MeanPredictor, FromMoments, RegressorMixin, GLMEstimator):
    r"""Any structure × penalty × loss: the general estimator behind the named methods.

    .. math:: \min_{W, b}\; \mathrm{loss}(W, b) + \tfrac12\operatorname{tr}(W C W^\top) + g(C) + \mathrm{penalty}(W)

    Parameters
    ----------
    structure : Structure, default=Independent(1.0)
        What relates the tasks; see :mod:`mssl.structures`.
    penalty : Penalty, default=L1(0)
        What keeps the weights small or sparse; see :mod:`mssl.penalties`.
    loss : {"gaussian", "poisson", "gamma"} or Loss, default="gaussian"
        The loss of one observation; ``Gaussian(noise_variance=1.0)`` weighs all tasks alike.
    shared_mean : "auto", bool or float, default=False
        Variance τ² of a mean that all tasks share; see :class:`MSSLRegressor`.
    features : {"linear", "spline", "spline+interactions"} or list, default="linear"
        What the model is linear in; see :class:`MSSLRegressor`.
    missing : {"error", "indicator"}, default="error"
        Missing values in X: refused, or filled with their column's mean and marked; see :class:`MSSLRegressor`.
    categorical_features : sequence of str or int, optional
        Columns of X that are categories whatever they look like; see :class:`MSSLRegressor`.
    penalty_factor : array of shape (d,), optional
        What the weights of each feature cost: a factor of the ℓ1 penalty, whose square is that of the ridge and of the
        prior. 0 leaves a feature free (it is taken as 1/10 000), 2 makes it dear; with curves it is for the lines.
        A structure that is learned from the weights learns from weights times factors: they are expected to be of one
        size. It takes no 0, since it would count free weights among them.
    fit_intercept : bool, default=True
        Give each task an unpenalised intercept.
    task_column : str or int, optional
        The column of X that holds task ids.
    solver : {"auto", "coordinate", "cg", "sylvester", "fista"} or Solver, default="auto"
        Solver of the weight step; see :class:`MSSLRegressor`.
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

    _: KW_ONLY
    loss: str | Loss = "gaussian"


@old_names()
@dataclass(eq=False, repr=False)
class MultiTaskClassifier(LabelEstimator, GLMEstimator):
    r"""Any structure × penalty with the logistic loss: the general classifier behind the named methods.

    .. math:: \min_{W, b}\; \sum_{ki} \omega_{ki}\log(1+e^{-y_{ki}(x_{ki}\cdot w_k+b_k)})
              + \tfrac12\operatorname{tr}(W C W^\top) + g(C) + \mathrm{penalty}(W), \qquad y = \pm 1

    Parameters
    ----------
    structure : Structure, default=Independent(1.0)
        What relates the tasks; see :mod:`mssl.structures`.
    penalty : Penalty, default=L1(0)
        What keeps the weights small or sparse; see :mod:`mssl.penalties`.
    class_weight : None, "balanced" or dict of label → weight, default=None
        Weights of the classes; "balanced" gives both classes of each task equal totals.
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
