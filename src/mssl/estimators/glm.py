"""The general estimators: any structure, penalty and loss."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from mssl._renamed import old_names
from mssl._typing import ArrayLike, ClassWeight, RegressorMixin, SharedMean
from mssl._validation import refused
from mssl.estimators.base import LabelEstimator, MeanPredictor, MultiTaskEstimator, noise_of_loss, scale_of_features
from mssl.estimators.moments import FromMoments
from mssl.estimators.spec import FitSpec, TaskShape, settings_of
from mssl.losses import Loss
from mssl.penalties import L1, Penalty
from mssl.structures import Independent, Structure


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
        parts: list[tuple[str, object, type, str]] = [
            ("structure", structure, Structure, "mssl.structures, such as Independent(1.0)"),
            ("penalty", penalty, Penalty, "mssl.penalties, such as L1(0.1)"),
        ]
        for name, part, kind, home in parts:
            if not isinstance(part, kind):
                raise refused(name, part, f"give an object of {home}, or None")
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
