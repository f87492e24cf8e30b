r"""Named methods of the literature as combinations of a structure, a penalty and a loss.

Every function returns an unfitted estimator with the same API: three data layouts, ``clone``, ``GridSearchCV``. With
``loss="gaussian"`` (default), ``"poisson"`` or ``"gamma"`` it is a :class:`mssl.MultiTaskGLM`, with ``"bernoulli"`` a
classifier. Further keywords are passed to the estimator (``task_column``, ``tol``, ``features``, …).

In all objectives :math:`\ell(W, b) = \sum_k s_k \sum_i \ell(y_{ki}, x_{ki}\cdot w_k + b_k)`, where :math:`s_k` is the
inverse noise variance of task k. It is estimated unless the loss sets it (``loss=Gaussian(noise_variance=1)``).
Intercepts are not penalised.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeAlias, TypeVar

from mssl._typing import ArrayLike
from mssl._validation import check_choice, refused
from mssl.estimators.baselines import AverageModel, BestMember, Climatology
from mssl.estimators.mssl import MSSLClassifier, MSSLRegressor, MultiTaskClassifier, MultiTaskGLM
from mssl.exceptions import ParameterError
from mssl.losses import Loss, resolve_loss
from mssl.penalties import L1, L21, Dirty, Nuclear, Penalty
from mssl.structures import (
    Clustered,
    GraphLaplacian,
    Independent,
    MeanRegularized,
    Pooled,
    SparsePrecision,
    Structure,
    TaskCovariance,
)

P = ParamSpec("P")
R = TypeVar("R")
General: TypeAlias = MultiTaskGLM | MultiTaskClassifier

_PRESETS: dict[str, Callable[..., Any]] = {}
_FIXED = ("structure", "penalty", "relation")  # parameters of the estimators that a preset sets


def _preset(function: Callable[P, R]) -> Callable[P, R]:
    """Register a preset, and let it raise an error with all keywords if one is unknown."""

    @wraps(function)
    def checked(*values: P.args, **parameters: P.kwargs) -> R:
        try:
            return function(*values, **parameters)
        except TypeError as error:  # Estimators only store their parameters, so the error is about the call.
            preset_names = [name for name in signature(function).parameters if name != "further"]
            plain: Any = function
            model = plain(**{name: parameters[name] for name in preset_names if name in parameters})
            further = sorted(set(model.get_params(deep=False)) - {*preset_names, *_FIXED})
            raise ParameterError(
                f"presets.{function.__name__} cannot be called so ({error}); it takes "
                f"{', '.join(preset_names) or 'nothing of its own'}, and for the estimator {', '.join(further)}."
            ) from error

    _PRESETS[function.__name__] = checked
    return checked


def available() -> dict[str, str]:
    """All presets with a one-line description.

    Examples
    --------
    >>> from mssl import presets
    >>> presets.available()["ols"]
    'Ordinary least squares, task by task.'
    """
    return {name: str(function.__doc__).strip().splitlines()[0] for name, function in _PRESETS.items()}


def make(name: str, /, **parameters: Any) -> Any:
    """Make a preset by its name.

    Examples
    --------
    >>> from mssl import presets
    >>> presets.make("ridge", alpha=2.0).structure
    Independent(alpha=2.0)
    """
    return _PRESETS[check_choice("name", name, tuple(_PRESETS))](**parameters)


def _estimator(structure: Structure, penalty: Penalty, loss: str | Loss, further: dict[str, Any]) -> General:
    if loss == "bernoulli":
        return MultiTaskClassifier(structure, penalty, **further)
    return MultiTaskGLM(structure, penalty, loss=loss, **further)


@_preset
def ols(*, loss: str | Loss = "gaussian", **further: Any) -> General:
    r"""Ordinary least squares, task by task.

    .. math:: \min_{W, b} \ell(W, b)

    For other losses this is the unpenalised maximum-likelihood fit, which needs more rows than features.

    References
    ----------
    Hastie, Tibshirani & Friedman (2009), *The Elements of Statistical Learning*, doi:10.1007/978-0-387-84858-7.
    """
    return _estimator(Independent(0.0), L1(0.0), loss, further)


@_preset
def ridge(alpha: ArrayLike = 1.0, *, loss: str | Loss = "gaussian", **further: Any) -> General:
    r"""Ridge regression, task by task.

    .. math:: \min_{W, b} \ell(W, b) + \tfrac\alpha2\|W\|_F^2

    References
    ----------
    Hoerl & Kennard (1970), doi:10.1080/00401706.1970.10488634.
    """
    return _estimator(Independent(alpha), L1(0.0), loss, further)


@_preset
def logistic(alpha: ArrayLike = 1.0, coef_penalty: float = 0.0, **further: Any) -> General:
    r"""Logistic regression, task by task.

    .. math:: \min_{W, b} \ell(W, b) + \tfrac\alpha2\|W\|_F^2 + \gamma\|W\|_1

    References
    ----------
    Cox (1958), doi:10.1111/j.2517-6161.1958.tb00292.x.
    """
    loss = further.pop("loss", "bernoulli")  # The signature omits the loss, which has one allowed value.
    if getattr(loss, "name", loss) != "bernoulli":
        remedy = "Leave the loss out, or use presets.ridge for other losses."
        raise refused("presets.logistic: loss", loss, "logistic regression takes the loss 'bernoulli'", remedy)
    return _estimator(Independent(alpha), L1(coef_penalty), "bernoulli", further)


@_preset
def pooled(alpha: float = 1.0, *, loss: str | Loss = "gaussian", **further: Any) -> General:
    r"""One weight vector for all tasks, which keep their own intercepts.

    .. math:: \min_{w, b} \ell(1 w^\top, b) + \tfrac\alpha2\|w\|^2

    References
    ----------
    The limit of infinite coupling in Evgeniou & Pontil (2004), doi:10.1145/1014052.1014067.
    """
    return _estimator(Pooled(alpha), L1(0.0), loss, further)


@_preset
def mean_regularized(
    alpha: float = 1.0, mean_alpha: float = 0.0, *, loss: str | Loss = "gaussian", **further: Any
) -> General:
    r"""Tasks around a common mean (Evgeniou & Pontil).

    .. math:: \min_{W, b, w_0} \ell(W, b) + \tfrac\alpha2\sum_k\|w_k - w_0\|^2 + \tfrac\beta2\|w_0\|^2

    References
    ----------
    Evgeniou & Pontil (2004), doi:10.1145/1014052.1014067.
    """
    return _estimator(MeanRegularized(alpha, mean_alpha), L1(0.0), loss, further)


@_preset
def jfs(alpha: float = 1.0, *, loss: str | Loss = "gaussian", **further: Any) -> General:
    r"""Joint feature selection: a feature serves all tasks or none.

    .. math:: \min_{W, b} \ell(W, b) + \alpha\sum_j\Big(\sum_k s_k W_{jk}^2\Big)^{1/2}

    References
    ----------
    Argyriou, Evgeniou & Pontil (2008), doi:10.1007/s10994-007-5040-8;
    Obozinski, Taskar & Jordan (2010), doi:10.1007/s11222-008-9111-x.
    """
    return _estimator(Independent(0.0), L21(alpha), loss, further)


@_preset
def dirty(alpha: float = 1.0, own: float = 0.5, *, loss: str | Loss = "gaussian", **further: Any) -> General:
    r"""Weights as a sum of a part with shared features and a sparse part of each task (the dirty model).

    .. math:: \min_{B, S, b} \ell(B + S, b) + \alpha\sum_j \max_k\sqrt{s_k}|B_{jk}|
              + \rho\alpha\sum_{jk}\sqrt{s_k}|S_{jk}|

    ρ is ``own``. If the noise variance is 1, ``model.penalty.parts(model.coef_)`` splits the weights into B and S.

    References
    ----------
    Jalali, Ravikumar, Sanghavi & Ruan (2010), *A dirty model for multi-task learning*, Advances in Neural Information
    Processing Systems 23.
    """
    return _estimator(Independent(0.0), Dirty(alpha, own), loss, further)


@_preset
def low_rank(alpha: float = 1.0, *, loss: str | Loss = "gaussian", **further: Any) -> General:
    r"""Trace norm, so that the weights of all tasks lie in a few common directions.

    .. math:: \min_{W, b} \ell(W, b) + \alpha\,\|W\operatorname{diag}(\sqrt s)\|_*

    References
    ----------
    Ji & Ye (2009), doi:10.1145/1553374.1553434; Pong, Tseng, Ji & Ye (2010), doi:10.1137/090763184.
    """
    return _estimator(Independent(0.0), Nuclear(alpha), loss, further)


@_preset
def cmtl(
    n_clusters: int = 2, alpha: float = 1.0, spread: float = 0.1, *, loss: str | Loss = "gaussian", **further: Any
) -> General:
    r"""Clustered tasks, convex relaxation (CMTL).

    .. math:: \min_{W, b, M} \ell(W, b) + \tfrac\alpha2\,\theta(1+\theta)\operatorname{tr}(W(\theta I + M)^{-1}W^\top),
              \quad 0 \preceq M \preceq I,\ \operatorname{tr}M = k

    References
    ----------
    Jacob, Bach & Vert (2008), doi:10.48550/arXiv.0809.2085; Zhou, Chen & Ye (2011), Advances in Neural Information
    Processing Systems 24.
    """
    return _estimator(Clustered(n_clusters, alpha, spread), L1(0.0), loss, further)


@_preset
def mtrl(alpha: float = 1.0, *, loss: str | Loss = "gaussian", **further: Any) -> General:
    r"""A task covariance learned with the weights (MTRL).

    .. math:: \min_{W, b, \Sigma} \ell(W, b) + \tfrac\alpha2\operatorname{tr}(W\Sigma^{-1}W^\top),
              \quad \Sigma \succeq 0,\ \operatorname{tr}\Sigma = 1

    References
    ----------
    Zhang & Yeung (2014), doi:10.1145/2538028.
    """
    return _estimator(TaskCovariance(alpha), L1(0.0), loss, further)


@_preset
def s2m2r(
    alpha: float = 1.0,
    *,
    edges: Any = None,
    adjacency: Any = None,
    coordinates: Any = None,
    neighbours: int = 4,
    nearest: int | None = None,
    loss: str | Loss = "gaussian",
    **further: Any,
) -> General:
    r"""Spatial smoothing over a known graph of tasks (S²M²R).

    .. math:: \min_{W, b} \ell(W, b) + \tfrac\alpha2\sum_{i<j} a_{ij}\|w_i - w_j\|^2

    References
    ----------
    Subbian & Banerjee (2013), doi:10.1137/1.9781611972832.36.
    """
    graph = {"edges": edges, "adjacency": adjacency, "coordinates": coordinates}
    structure = GraphLaplacian(alpha, neighbours=neighbours, nearest=nearest, **graph)
    return _estimator(structure, L1(0.0), loss, further)


@_preset
def p_mssl(
    graph_penalty: float = 0.3, coef_penalty: float = 0.0, *, loss: str | Loss = "gaussian", **further: Any
) -> MSSLRegressor | MSSLClassifier:
    r"""A sparse precision over the tasks' coefficients (p-MSSL).

    .. math:: \min_{W, b, \Omega} \ell(W, b) + \tfrac12\operatorname{tr}(W\Omega W^\top) - \tfrac d2\log\det\Omega
              + \lambda\text{-priced edges} + \gamma\|W\|_1

    References
    ----------
    Gonçalves, Das, Chatterjee, Sivakumar, Von Zuben & Banerjee (2014), doi:10.1145/2661829.2662091.
    """
    if loss == "bernoulli":
        return MSSLClassifier(graph_penalty, coef_penalty, **further)
    return MSSLRegressor(graph_penalty, coef_penalty, loss=loss, **further)


@_preset
def r_mssl(graph_penalty: float = 0.3, coef_penalty: float = 1.0, **further: Any) -> MSSLRegressor:
    r"""A sparse precision over the tasks' residuals (r-MSSL); shared or aligned layout.

    .. math:: \min_{W, b, \Omega} \tfrac12\operatorname{tr}(E\Omega E^\top) - \tfrac n2\log\det\Omega
              + \lambda\text{-priced edges} + \gamma\|W\|_1

    References
    ----------
    Gonçalves et al. (2014), doi:10.1145/2661829.2662091; Rothman, Levina & Zhu (2010), doi:10.1198/jcgs.2010.09188.
    """
    return MSSLRegressor(graph_penalty, coef_penalty, relation="residual", **further)


@_preset
def p_mssl_copula(
    graph_penalty: float = 0.3,
    coef_penalty: float = 0.0,
    *,
    correlation: str = "spearman",
    loss: str | Loss = "gaussian",
    **further: Any,
) -> MSSLRegressor | General:
    r"""p-MSSL with rank correlations of the coefficients.

    This is :func:`p_mssl` with :math:`S = D^{1/2} R D^{1/2}`, where R comes from ranks and D holds the mean squares. A
    fixed-point iteration fits it. It improves the graph more than the predictions.

    References
    ----------
    Gonçalves, Von Zuben & Banerjee (2016), *Multi-task sparse structure learning with Gaussian copula models*, Journal
    of Machine Learning Research 17; Liu et al. (2012), doi:10.1214/12-AOS1037.
    """
    if resolve_loss(loss).quadratic:
        return MSSLRegressor(SparsePrecision(graph_penalty, correlation=correlation), coef_penalty, **further)
    return _estimator(SparsePrecision(graph_penalty, correlation=correlation), L1(coef_penalty), loss, further)


@_preset
def r_mssl_copula(
    graph_penalty: float = 0.3, coef_penalty: float = 1.0, *, correlation: str = "spearman", **further: Any
) -> MSSLRegressor:
    r"""r-MSSL with rank correlations of the residuals; shared or aligned layout.

    This is :func:`r_mssl` with :math:`S = D^{1/2} R D^{1/2}`, where R comes from the residuals' ranks. A fixed-point
    iteration fits it.

    References
    ----------
    Gonçalves, Von Zuben & Banerjee (2016), Journal of Machine Learning Research 17; Liu et al. (2012),
    doi:10.1214/12-AOS1037.
    """
    structure = SparsePrecision(graph_penalty, correlation=correlation)
    return MSSLRegressor(structure, coef_penalty, relation="residual", **further)


@_preset
def average_model(**further: Any) -> AverageModel:
    r"""The mean of the ensemble's members (features), without learning.

    .. math:: \hat y_{ki} = \tfrac1d \sum_j x_{kij}

    References
    ----------
    Knutti, Furrer, Tebaldi, Cermak & Meehl (2010), doi:10.1175/2009JCLI3361.1.
    """
    return AverageModel(**further)


@_preset
def best_member(**further: Any) -> BestMember:
    r"""For each task the member (feature) that was closest to the targets.

    .. math:: \hat y_{ki} = x_{kij_k}, \qquad j_k = \arg\min_j \sum_i (y_{ki} - x_{kij})^2

    References
    ----------
    Knutti, Furrer, Tebaldi, Cermak & Meehl (2010), doi:10.1175/2009JCLI3361.1.
    """
    return BestMember(**further)


@_preset
def climatology(month: Any = None, **further: Any) -> Climatology:
    r"""For each task the mean of the training targets of the same month of the year.

    .. math:: \hat y_{ki} = \operatorname{mean}\{y_{kl} : \mathrm{month}_l = \mathrm{month}_i\}

    References
    ----------
    Arguez & Vose (2011), doi:10.1175/2010BAMS2955.1.
    """
    return Climatology(month=month, **further)
