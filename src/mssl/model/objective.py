r"""The objective F, the limits of its penalties, and the translation of the constants in the paper.

.. math:: F(W, b, \Omega) = \mathrm{loss}(W, b)
          + \frac{c\,\eta}{2}\Big[\operatorname{tr}(S\Omega) - \log\det\Omega
          + \lambda\sum_{i\ne j} a_{ij}|\Omega_{ij}| + \sum_i e_i\Omega_{ii}\Big]
          + \gamma\sum_{jk}\sqrt{s_k}\,|W_{jk}|,

.. math:: S = (Q^\top Q + \nu\operatorname{diag}(v))/c,\quad c = r + \nu,\quad
          \mathrm{loss} = \sum_k s_k\sum_i \omega_{ki}\,\ell(y_{ki}, x_{ki}\cdot w_k + b_k).

For p-MSSL, Q = W − m1ᵀ with r = d rows. For r-MSSL, Q are the residuals with r = n rows, and the loss is
:math:`\tfrac\kappa2\|E\|^2` with κ = 0, since tr(SΩ) is the likelihood already. A shared mean adds
:math:`\|m\|^2/(2\tau^2)`.

**The shared mean is integrated out, not maximised.** With :math:`m \sim N(0, \tau^2 I)` the weights' prior precision
is :math:`C = ((\eta\Omega)^{-1} + \tau^2 11^\top)^{-1}`, and the normaliser adds
:math:`\tfrac{r}{2}\log(1+\tau^2\eta\,1^\top\Omega 1)` to F. Maximising over m instead would let the mean collapse
onto a single task: its column of Q vanishes and its precision grows to the floor. The term is concave in Ω; its
tangent adds the mean's posterior variance :math:`\rho = (1/\tau^2 + \eta 1^\top\Omega 1)^{-1}` to every entry of S,
so each Ω-step minimises a majoriser that touches F. F therefore never rises, and the certificate is the one of the
majoriser.

Intercepts are unpenalised and enter neither Q nor Ω. The loss is a sum and is not divided by the number of rows, so a
task with more data is shrunk less.

References
----------
Gonçalves, Das, Chatterjee, Sivakumar, Von Zuben & Banerjee (2014), *Multi-task Sparse Structure Learning*,
doi:10.1145/2661829.2662091.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mssl._typing import Array, Moment
from mssl.model.coupling import Coupling

if TYPE_CHECKING:
    from mssl.solvers.quadratic import WeightProblem
    from mssl.structures.base import Structure, StructureScale, StructureStep


@dataclass(frozen=True, eq=False)
class Point:
    """Weights and a task precision, with F and the terms of F.

    Attributes
    ----------
    W : ndarray of shape (K, d)
        The weights.
    step : StructureStep
        Ω, with its value and its gap at these weights.
    coupling : Coupling
        The quadratic form that Ω puts on Q.
    Q : ndarray of shape (K, r)
        The weights, or their residuals.
    moment : ndarray of shape (K, K), or PairMoment
        S of Q about the shared mean.
    mean : ndarray of shape (r,)
        The shared mean; zeros if the model has none.
    loss : float
        Loss plus penalty.
    objective : float
        F.
    """

    W: Array
    step: StructureStep
    coupling: Coupling
    Q: Array
    moment: Moment
    mean: Array
    loss: float
    objective: float

    @property
    def size(self) -> float:
        """max(1, |F|), the unit of relative gaps."""
        return max(1.0, abs(self.objective))


def evaluate(
    problem: WeightProblem,
    structure: Structure,
    scale: StructureScale,
    W: Array,
    step: StructureStep,
    coupling: Coupling,
    known: Point | None = None,
) -> Point:
    """Compute F at weights and a task precision, with the best shared mean for both.

    Parameters
    ----------
    problem : WeightProblem
        Loss and penalty.
    structure, scale : Structure and StructureScale
        The prior and its constants.
    W, step : ndarray of shape (K, d) and StructureStep
        Weights and Ω.
    coupling : Coupling
        The result of ``structure.couple(step, mean_variance)``; it contains the variance of the shared mean.
    known : Point, optional
        A point with the same weights and another Ω; with it, no pass over the data is needed.
    """
    Q, loss = (problem.related(W), problem.value(W)) if known is None else (known.Q, known.loss)
    mean = coupling.mean(Q)
    moment = structure.moment(Q - mean, scale, coupling.rho)
    step = structure.certify(moment, step, scale)
    total = structure.strength * float(step.precision.sum())
    n_rows = scale.n_rows if structure.learned and structure.normalised else 0
    share = mean_share(mean, coupling.mean_variance, total, n_rows)
    return Point(W, step, coupling, Q, moment, mean, loss, loss + step.value + share)


def mean_share(mean: Array, mean_variance: float, total_precision: float, n_rows: float) -> float:
    r"""The share of a shared mean in F, in addition to the structure's value.

    It is :math:`\|m\|^2/(2\tau^2) + \tfrac{r}{2}[\log(1+x) - x/(1+x)]` with :math:`x = \tau^2\eta\,1^\top\Omega1`.
    The moment contains the tangent of the concave term; this share replaces the tangent by the term itself.

    Parameters
    ----------
    mean : ndarray of shape (r,)
        m.
    mean_variance : float
        τ²; 0 if there is no shared mean.
    total_precision : float
        :math:`\eta\,1^\top\Omega 1`.
    n_rows : float
        Number of rows of Q that enter the normaliser of the prior.
    """
    if mean_variance <= 0:
        return 0.0
    x = mean_variance * total_precision
    return 0.5 * float(mean @ mean) / mean_variance + 0.5 * n_rows * float(np.log1p(x) - x / (1 + x))


class PaperScale(NamedTuple):
    """The paper's literal objective in the symbols of this module (s = 1, a = 1, ν = 0, e = λ).

    Attributes
    ----------
    coupling : float
        η.
    graph_penalty : float
        The λ that corresponds to λ = 1 in the paper.
    coef_penalty : float
        The γ that corresponds to γ = 1 in the paper.
    precision : float
        Ω divided by the Ω of the paper.
    loss : float
        F divided by the paper's objective, up to an additive constant.
    residual_loss : float
        κ, the weight of the additional squared loss of r-MSSL.
    """

    coupling: float
    graph_penalty: float
    coef_penalty: float
    precision: float
    loss: float
    residual_loss: float


def paper_scale(n_tasks: int, n_features: int, form: str = "regression", *, residual_rows: int = 0) -> PaperScale:
    r"""Translate the constants of the paper, which differ between its objectives.

    - p-MSSL, regression:
      :math:`\tfrac12\sum\|X_kw_k-y_k\|^2 - \tfrac K2\log|\Omega| + \operatorname{Tr}(W\Omega W^\top)`;
    - p-MSSL, other losses (eq. 17): the whole loss, and :math:`\tfrac12\operatorname{Tr}(W\Omega W^\top)`;
    - p-MSSL, logistic loss (eq. 16): half the loss, and :math:`\operatorname{Tr}(W\Omega W^\top)`; the paper prints
      the likelihood with the wrong sign, which is corrected here;
    - r-MSSL: :math:`\sum\|y_k-X_kw_k\|^2 - \tfrac K2\log|\Omega| + \operatorname{Tr}(E\Omega E^\top)`.

    Parameters
    ----------
    n_tasks, n_features : int
        K and d.
    form : {"regression", "glm", "logistic"}
        The objective of p-MSSL.
    residual_rows : int
        n for r-MSSL; 0 for p-MSSL.
    """
    K, d, n = float(n_tasks), float(n_features), float(residual_rows)
    if residual_rows:
        return PaperScale(1.0, 1.0 / n, n / K, 2 * n / K, n / K, 2 * n / K)
    return {
        "regression": PaperScale(K / d, 1.0 / d, 1.0, 2 * d / K, 1.0, 0.0),
        "glm": PaperScale(K / d, 2.0 / d, 1.0, d / K, 1.0, 0.0),
        "logistic": PaperScale(2 * K / d, 1.0 / d, 2.0, 2 * d / K, 2.0, 0.0),
    }[form]


def lambda_max(moment: Array, edge_prices: Array) -> float:
    r"""Smallest λ at which a diagonal Ω is stationary and the graph empty: :math:`\max_{i\ne j} |S_{ij}| / a_{ij}`.

    Since F is not convex, a fit may have an edge at a larger λ. :mod:`mssl.estimators.spec` computes a λ at which it
    has none.

    Parameters
    ----------
    moment : ndarray of shape (K, K)
        S at the diagonal fixed point.
    edge_prices : ndarray of shape (K, K)
        a; free edges (0) and forbidden edges (infinite) do not count.
    """
    counted = (edge_prices > 0) & np.isfinite(edge_prices) & ~np.eye(len(moment), dtype=bool)
    return float((np.abs(moment[counted]) / edge_prices[counted]).max(initial=0.0))
