"""Classifiers with scikit-learn's manners: one pair of labels for all tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from mssl.data.inputs import is_missing, listing
from mssl.data.labels import two_classes
from mssl.data.layouts import TaskData, read_tasks
from mssl.estimators.base import MultiTaskEstimator, Parts, chosen_parts, mssl_parts, settings_of
from mssl.exceptions import DataError, LayoutError, ParameterError
from mssl.losses import Bernoulli, Loss
from mssl.penalties import Penalty
from mssl.structures import Structure

Array = NDArray[np.float64]
Labels = NDArray[Any]


class TaskClassifier(ClassifierMixin, MultiTaskEstimator):
    """What the classifiers share: two labels for all tasks, probabilities, decisions and accuracy."""

    class_weight: Any
    # Fixed by the loss; the estimators of means have them as parameters.
    loss = "bernoulli"
    noise = "auto"

    classes_: Labels

    def _loss(self) -> Loss:
        return Bernoulli()

    def _read(self, X: Any, y: Any, tasks: Any, sample_weight: Any) -> TaskData:
        data = read_tasks(X, y, task_column=self.task_column, tasks=tasks, sample_weight=sample_weight, y_numeric=False)
        self.classes_ = two_classes(data.y)
        coded = replace(data, y=(data.y == self.classes_[1]).astype(float))
        return replace(coded, weights=class_weights(coded, self.classes_, self.class_weight))

    def decision_function(self, X: Any, tasks: Any = None) -> Array:
        """Log-odds of the second class, ``classes_[1]``.

        Parameters
        ----------
        X, tasks
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (N,) or (n, K)
        """
        return self._linear_predictor(X, tasks)

    def predict_proba(self, X: Any, tasks: Any = None) -> Array:
        """Probabilities of both classes, in the order of ``classes_``.

        Parameters
        ----------
        X, tasks
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (N, 2), or (n, K, 2) for the shared and aligned layouts
        """
        eta = self._linear_predictor(X, tasks)
        return np.stack([self.loss_.inverse_link(-eta), self.loss_.inverse_link(eta)], axis=-1)

    def predict(self, X: Any, tasks: Any = None) -> Labels:
        """Predict the likelier class.

        Parameters
        ----------
        X : array or frame of shape (N, d), (n, d) or (n, K, d)
            Features, in the layout of the fit (the long layout with its task column or ``tasks``).
        tasks : array of shape (N,), optional
            Task of each row, instead of a task column.

        Returns
        -------
        ndarray of shape (N,) or (n, K)
        """
        second = self._linear_predictor(X, tasks) > 0
        return self.classes_[second.astype(int)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, tasks: Any = None) -> float:
        """Accuracy; for (n, K) labels the mean over tasks, missing labels left out.

        Parameters
        ----------
        X, y, sample_weight, tasks
            As for :meth:`fit`.
        """
        prediction, labels = self.predict(X, tasks=tasks), np.asarray(y)
        if labels.shape != prediction.shape and labels.size == prediction.size:
            labels = labels.reshape(prediction.shape)
        if labels.shape != prediction.shape:
            raise LayoutError(f"y has shape {labels.shape}, the predictions have {prediction.shape}; they must agree.")
        missing = is_missing(labels) if labels.ndim == 2 else np.zeros(labels.shape, dtype=bool)
        strange = ~(missing | (labels == self.classes_[0]) | (labels == self.classes_[1]))
        if np.any(strange):
            seen = listing(sorted({str(label) for label in labels[strange]}))
            raise DataError(
                f"y holds labels that the model was not fitted with ({seen}); "
                f"it knows {listing(self.classes_)}. Use the labels of the fit."
            )
        weights = np.ones(labels.shape) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        if weights.ndim < labels.ndim:
            weights = np.broadcast_to(weights[:, None], labels.shape)
        weights = np.where(missing, 0.0, weights)
        totals = weights.sum(axis=0)
        hits = (weights * (prediction == labels)).sum(axis=0)
        return float(np.mean(hits[totals > 0] / totals[totals > 0]) if labels.ndim == 2 else hits / totals)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def class_weights(data: TaskData, classes: Labels, class_weight: Any) -> Array | None:
    """Row weights times the weights of their classes; "balanced" gives both classes of a task equal totals.

    Parameters
    ----------
    data : TaskData
        Targets 0 and 1 for the two classes.
    classes : ndarray of shape (2,)
        Labels.
    class_weight : None, "balanced" or dict of label → weight
        Labels that a dict leaves out weigh 1.
    """
    if class_weight is None:
        return data.weights
    weights = np.ones(len(data.y)) if data.weights is None else data.weights
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ParameterError(f"class_weight is {class_weight!r}; allowed are None, 'balanced' or a dict.")
        second = data.task_sums(weights * data.y)
        first = data.weight_sums() - second
        both = (first > 0) & (second > 0)
        factors = np.ones((2, data.n_tasks))
        factors[0, both] = 0.5 * (first + second)[both] / first[both]
        factors[1, both] = 0.5 * (first + second)[both] / second[both]
        return np.asarray(weights * factors[data.y.astype(int), data.task_of_row])
    if not hasattr(class_weight, "get"):
        raise ParameterError(f"class_weight is {class_weight!r}; allowed are None, 'balanced' or a dict.")
    unknown = [label for label in class_weight if label not in classes.tolist()]
    pair = np.asarray([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    if unknown or not np.all(np.isfinite(pair)) or np.any(pair <= 0):
        raise ParameterError(
            f"class_weight is {class_weight!r}; give numbers above 0 for the labels {listing(classes.tolist())}."
        )
    return np.asarray(weights * pair[data.y.astype(int)])


class MultiTaskClassifier(TaskClassifier):
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
    shared_mean, scale_features, fit_intercept, task_column, solver, tol, max_iter, warm_start, verbose
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

    def __init__(
        self,
        structure: Structure | None = None,
        penalty: Penalty | None = None,
        *,
        class_weight: Any = None,
        shared_mean: Any = False,
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
        self.class_weight = class_weight
        self.shared_mean = shared_mean
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


class MSSLClassifier(TaskClassifier):
    r"""Multi-task sparse structure learning for two classes: logistic weights, and the graph that relates the tasks.

    p-MSSL with the logistic loss: a Gaussian prior with sparse precision Ω over the rows of W, both learned; see
    :mod:`mssl.model.objective`. All tasks share one pair of labels, of any type.

    Parameters
    ----------
    graph_penalty : float, default=0.3
        λ, the price of an edge on the correlation scale: 0 is dense, from ``limits(X, y).graph_penalty`` on the
        graph is empty. Prediction likes 0.02–0.1, reading the graph 0.35–0.7. ``inf`` learns neither a graph nor the
        tasks' variances: `coupling` is then one ridge for all tasks (around the shared mean), in units of rows.
    coef_penalty : float, default=0.0
        γ, the ℓ1 penalty on the weights; from ``limits(X, y).coef_penalty`` on all weights are zero.
    coupling : float, default=1.0
        η, the temperature of the prior; large values pull related tasks together.
    variance_floor : float, default=0.125
        Least prior variance of a task's weights, in units of their sampling variance.
    shrinkage : float, default=0.0
        Shrinkage of the tasks' covariance towards its diagonal; useful with many more tasks than features.
    ridge : float, default=0.0
        Ridge on the weights, in addition to what the graph does.
    shared_mean : "auto", bool or float, default="auto"
        A mean weight vector that all tasks share; see :class:`mssl.MSSLRegressor`.
    class_weight : None, "balanced" or dict of label → weight, default=None
        Weights of the classes; "balanced" gives both classes of each task equal totals.
    scale_features : bool, default=True
        Divide each feature by one scale pooled over tasks; coefficients are reported in the user's units.
    formulation : {"unified", "paper"}, default="unified"
        "paper" minimises the objective as the paper prints it; see :class:`mssl.MSSLRegressor`.
    fit_intercept : bool, default=True
        Give each task an unpenalised intercept.
    task_column : str or int, optional
        The column of X that holds task ids.
    solver : {"auto", "coordinate", "cg", "fista", "admm"}, default="auto"
        Accelerated proximal gradients ("fista"), or the solver of the quadratic steps of proximal Newton (all others).
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
    classes_ : ndarray of shape (2,)
        The labels; probabilities and decisions are for the second.
    coef_, intercept_, precision_, covariance_, partial_correlation_, graph_, tasks_, mean_coef_
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

    # p-MSSL only: residuals of labels are no rows that a Gaussian graph could relate.
    on = "coef"

    def __init__(
        self,
        graph_penalty: float = 0.3,
        coef_penalty: float = 0.0,
        *,
        coupling: float = 1.0,
        variance_floor: float = 0.125,
        shrinkage: float = 0.0,
        ridge: float = 0.0,
        shared_mean: Any = "auto",
        class_weight: Any = None,
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
        self.coupling = coupling
        self.variance_floor = variance_floor
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.shared_mean = shared_mean
        self.class_weight = class_weight
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
