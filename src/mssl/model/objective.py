r"""The one objective, its limits, and the dictionary to the constants that the paper prints.

.. math:: F(W, b, \Omega) = \mathrm{loss}(W, b)
          + \frac{c\,\eta}{2}\Big[\operatorname{tr}(S\Omega) - \log\det\Omega
          + \lambda\sum_{i\ne j} a_{ij}|\Omega_{ij}| + \sum_i e_i\Omega_{ii}\Big]
          + \gamma\sum_{jk}\sqrt{s_k}\,|W_{jk}|,

.. math:: S = (Q^\top Q + \nu\operatorname{diag}(v))/c,\quad c = r + \nu,\quad
          \mathrm{loss} = \sum_k s_k\sum_i \omega_{ki}\,\ell(y_{ki}, x_{ki}\cdot w_k + b_k).

Q = W − m1ᵀ with r = d rows for p-MSSL, Q = residuals with r = n rows for r-MSSL (whose loss is
:math:`\tfrac\kappa2\|E\|^2`, κ = 0: tr(SΩ) is the likelihood already). A shared mean adds :math:`\|m\|^2/(2\tau^2)`.

**The shared mean is integrated out, not maximised.** With :math:`m \sim N(0, \tau^2 I)` the weights' prior precision
is :math:`C = ((\eta\Omega)^{-1} + \tau^2 11^\top)^{-1}`, and the normaliser adds
:math:`\tfrac{r}{2}\log(1+\tau^2\eta\,1^\top\Omega 1)` to F. Maximising over m instead would let the mean collapse
onto a single task: its column of Q vanishes and its precision grows to the floor. The term is concave in Ω; its
tangent adds the mean's posterior variance :math:`\rho = (1/\tau^2 + \eta 1^\top\Omega 1)^{-1}` to every entry of S,
so each Ω-step minimises a majoriser that touches F: F still never rises, and the certificate is that of the majoriser.

Intercepts are unpenalised and enter neither Q nor Ω. The loss is a sum, never divided by the number of rows:
a task with more data is shrunk less.

References
----------
Gonçalves, Das, Chatterjee, Sivakumar, Von Zuben & Banerjee (2014), *Multi-task Sparse Structure Learning*,
doi:10.1145/2661829.2662091.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mssl.structures.base import Frame
    from mssl.structures.sparse import SparsePrecision

Array = NDArray[np.float64]


class PaperScale(NamedTuple):
    """How the literal objective of the paper reads in the symbols above (s = 1, a = 1, ν = 0, e = λ).

    Attributes
    ----------
    coupling : float
        η.
    graph_penalty : float
        λ here for λ = 1 of the paper.
    coef_penalty : float
        γ here for γ = 1 of the paper.
    precision : float
        Ω here = this number times Ω of the paper.
    loss : float
        F here = this number times the literal objective, up to a constant.
    residual_loss : float
        κ, the weight of the squared loss that r-MSSL counts in addition.
    """

    coupling: float
    graph_penalty: float
    coef_penalty: float
    precision: float
    loss: float
    residual_loss: float


def paper_scale(n_tasks: int, n_features: int, *, gaussian: bool = True, residual_rows: int = 0) -> PaperScale:
    r"""Translate the paper's printed constants, which differ between its objectives.

    - p-MSSL, regression:
      :math:`\tfrac12\sum\|X_kw_k-y_k\|^2 - \tfrac K2\log|\Omega| + \operatorname{Tr}(W\Omega W^\top)`;
    - p-MSSL, other losses: the same with :math:`\tfrac12\operatorname{Tr}(W\Omega W^\top)`;
    - r-MSSL: :math:`\sum\|y_k-X_kw_k\|^2 - \tfrac K2\log|\Omega| + \operatorname{Tr}(E\Omega E^\top)`.

    Parameters
    ----------
    n_tasks, n_features : int
        K and d.
    gaussian : bool
        Which of the two p-MSSL objectives.
    residual_rows : int
        n for r-MSSL, 0 for p-MSSL.
    """
    K, d, n = float(n_tasks), float(n_features), float(residual_rows)
    if residual_rows:
        return PaperScale(1.0, 1.0 / n, n / K, 2 * n / K, n / K, 2 * n / K)
    if gaussian:
        return PaperScale(K / d, 1.0 / d, 1.0, 2 * d / K, 1.0, 0.0)
    return PaperScale(K / d, 2.0 / d, 1.0, d / K, 1.0, 0.0)


def mean_value(mean: Array, mean_variance: float, total_precision: float, strength: float, n_rows: float) -> float:
    r"""What a shared mean adds to F beyond the structure's value at a moment with the mean's spread in it.

    :math:`\|m\|^2/(2\tau^2) + \tfrac{r}{2}[\log(1+x) - x/(1+x)]`, :math:`x = \tau^2\eta\,1^\top\Omega1`:
    the tangent is taken back and the concave term itself put in its place.
    """
    if mean_variance <= 0:
        return 0.0
    x = mean_variance * strength * total_precision
    return 0.5 * float(mean @ mean) / mean_variance + 0.5 * n_rows * float(np.log1p(x) - x / (1 + x))


def lambda_max(Q: Array, structure: SparsePrecision, frame: Frame, mean_spread: float = 0.0) -> float:
    r"""Smallest λ at which the diagonal fixed point is stationary and the graph empty.

    :math:`\lambda_{\max} = \max_{i\ne j} |S_{ij}| / a_{ij}` with S the moment of Q at the diagonal fixed point. Edges
    that are forbidden or free do not count. A fit may still have an edge from there on, since F is not convex:
    :mod:`mssl.estimators.limits` tells where it has none.

    Parameters
    ----------
    Q : ndarray of shape (K, r)
        Rows of the structure at the diagonal fixed point.
    structure, frame
        The structure and its constants.
    """
    S, scales = np.abs(structure.moment(Q, frame, mean_spread)), structure.edge_scales(frame)
    counted = (scales > 0) & ~np.eye(len(S), dtype=bool)
    forbidden = structure.forbidden(frame)
    if forbidden is not None:
        counted &= ~forbidden
    return float((S[counted] / scales[counted]).max(initial=0.0))


def gamma_max(gradient: Array, noise_precisions: Array) -> float:
    r"""Smallest γ at which all weights vanish whatever Ω is (p-MSSL).

    :math:`\gamma_{\max} = \max_{jk} |\nabla_{jk}| / \sqrt{s_k}` with the gradient of the loss at W = 0, intercepts
    fitted.
    """
    return float(np.max(np.abs(gradient) / np.sqrt(noise_precisions)[:, None], initial=0.0))
