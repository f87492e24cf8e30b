r"""Single-task fits from spectra: noise level, signal variance and the diagonal fixed point, all tasks at once.

With :math:`X_k^\top X_k = U \operatorname{diag}(g) U^\top` and :math:`q = U^\top X_k^\top y_k`, everything a ridge
regression can tell is a sum over eigenvalues, so that K tasks cost a few array operations:

- noise :math:`\sigma^2` and signal variance :math:`\tau^2` by restricted maximum likelihood of
  :math:`y \sim N(0, \sigma^2 I + \tau^2 XX^\top)`;
- the *diagonal fixed point* :math:`v = \tfrac1d\|w(D)\|^2,\; D = \eta/(v+e)`: K separate ridges whose strength agrees
  with the weights that they give;
- the sampling variance of a coefficient, :math:`\tfrac1d \operatorname{tr}(sX^\top X + D_0)^{-1}`.

References
----------
Patterson & Thompson (1971), doi:10.1093/biomet/58.3.545 (restricted maximum likelihood).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mssl.kernels import call, plain
from mssl.solvers.moderation import moderate
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic

Array = NDArray[np.float64]

_AGREEMENT = 7 / 8  # share of agreeing pairs from which a shared mean is believed
_PROBES = 32  # random signs behind a trace that is too large to compute
_GRID = np.linspace(-9.0, 9.0, 49) * np.log(10) / 2  # log of τ²·(mean eigenvalue)/σ²
_AT_ONCE = 2**16  # eigenvalues times points of the grid in one array
_HALVINGS = 45  # bisections of a grid cell: to rounding
_ROUNDING = 1e-13  # a target whose share of variation is below this is constant
_NOISE_FLOOR = 1e-10  # smallest noise variance, as a share of the target's


@dataclass(frozen=True, eq=False)
class Spectra:
    """Eigenvalues and projections of all tasks, padded with zeros to a common length.

    Attributes
    ----------
    values : ndarray of shape (K, m)
        Eigenvalues g ≥ 0 of X_kᵀX_k (row weights included).
    projections : ndarray of shape (K, m)
        q, the targets' products with the features in the eigenbasis; 0 where g is 0.
    target_squares : ndarray of shape (K,)
        Weighted sum of squares of the centred targets.
    freedom : ndarray of shape (K,)
        Degrees of freedom: total weight, less one where an intercept is fitted.
    n_features : int
        d.
    """

    values: Array
    projections: Array
    target_squares: Array
    freedom: Array
    n_features: int

    def typical_value(self) -> Array:
        """Mean eigenvalue tr(XᵀX)/d of each task, 1 where all features are constant."""
        mean = self.values.sum(axis=1) / self.n_features
        return np.where(mean > 0, mean, 1.0)


def variance_components(spectra: Spectra, noise: Array | None = None) -> tuple[Array, Array]:
    """Noise variance σ² and signal variance τ² of every task by restricted maximum likelihood.

    Parameters
    ----------
    spectra : Spectra
        All tasks.
    noise : ndarray of shape (K,), optional
        Known noise variances; then only τ² is estimated.

    Returns
    -------
    noise, signal : ndarrays of shape (K,)
    """
    typical = spectra.typical_value()
    parts = np.array_split(_GRID[:, None], min(len(_GRID), 1 + len(_GRID) * spectra.values.size // _AT_ONCE))
    grid = np.concatenate([_criterion(spectra, np.exp(part) / typical, noise) for part in parts])
    best = np.clip(np.argmin(grid, axis=0), 1, len(_GRID) - 2)
    low, high = _GRID[best - 1], _GRID[best + 1]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        falling = _slope(spectra, np.exp(middle) / typical, noise) < 0
        low, high = np.where(falling, middle, low), np.where(falling, high, middle)
    ratio = np.exp((low + high) / 2) / typical
    ratio = np.where(np.argmin(grid, axis=0) == 0, 0.0, ratio)  # nothing but noise
    variance = _noise_variance(spectra, ratio) if noise is None else noise
    return variance, ratio * variance


def _explained(spectra: Spectra, ratio: Array) -> Array:
    g, q, t = spectra.values, spectra.projections, ratio[..., None]
    return np.asarray(np.sum(t * q**2 / (1 + t * g), axis=-1))


def _noise_variance(spectra: Spectra, ratio: Array) -> Array:
    freedom = np.maximum(spectra.freedom, 1.0)
    floor = np.where(spectra.target_squares > 0, _NOISE_FLOOR * spectra.target_squares / freedom, 1.0)
    return np.maximum((spectra.target_squares - _explained(spectra, ratio)) / freedom, floor)


def _criterion(spectra: Spectra, ratio: Array, noise: Array | None) -> Array:
    """−2 log-likelihood as a function of τ²/σ², σ² profiled out where it is not known."""
    determinant = np.sum(np.log1p(ratio[..., None] * spectra.values), axis=-1)
    if noise is None:
        return np.asarray(spectra.freedom * np.log(_noise_variance(spectra, ratio)) + determinant)
    return np.asarray(determinant - _explained(spectra, ratio) / noise)


def _slope(spectra: Spectra, ratio: Array, noise: Array | None) -> Array:
    """Derivative of the criterion in log(τ²/σ²)."""
    g, q, t = spectra.values, spectra.projections, ratio[:, None]
    grows = np.sum(t * g / (1 + t * g), axis=1)
    gained = np.sum(t * q**2 / (1 + t * g) ** 2, axis=1)
    scale = _noise_variance(spectra, ratio) if noise is None else noise
    factor = spectra.freedom / np.maximum(spectra.freedom, 1.0) if noise is None else 1.0
    return np.asarray(grows - factor * gained / scale)


def residual_freedom(spectra: Spectra, noise: Array, signal: Array) -> Array:
    r"""Degrees of freedom behind each task's noise, :math:`n - \sum_j \tau^2 g_j / (\sigma^2 + \tau^2 g_j)`.

    What a ridge fit with the strength of these variances leaves of the rows.
    """
    used = np.sum(signal[:, None] * spectra.values / (noise[:, None] + signal[:, None] * spectra.values), axis=1)
    return np.maximum(spectra.freedom - used, 0.0)


def moderated_noise(spectra: Spectra, noise: Array, signal: Array) -> Array:
    r"""Noise variances of tasks that learn from each other how large a share of their targets' variance noise is.

    A fit of as many weights as rows leaves no residuals, whatever the noise. The shares :math:`\sigma_k^2 / s^2(y_k)`
    are therefore moderated (:func:`mssl.solvers.moderation.moderate`): each is drawn towards a common value as far as
    the degrees of freedom behind it ask for. Shares, since the units of one task's targets must not matter.
    """
    total = spectra.target_squares / np.maximum(spectra.freedom, 1.0)
    varies = total > 0
    share = np.divide(noise, total, out=np.ones_like(noise), where=varies)
    freedom = np.where(varies, residual_freedom(spectra, noise, signal), 0.0)
    return np.where(varies, total * moderate(share, freedom), noise)


def sampling_variances(spectra: Spectra, noise: Array, signal: Array) -> Array:
    r"""Mean variance of a coefficient by sampling alone, :math:`\tfrac1d\operatorname{tr}(sX^\top X + D_0)^{-1}`.

    The ridge :math:`D_0` is the inverse of the larger of the signal variance and the variance a typical direction
    has: it is negligible where a task has rows enough, and bounds the answer where it has not.
    """
    s = 1.0 / noise
    ridge = 1.0 / np.maximum(signal, 1.0 / (s * spectra.typical_value()))
    known = np.sum(1.0 / (s[:, None] * spectra.values + ridge[:, None]), axis=1)
    unseen = spectra.n_features - spectra.values.shape[1]
    return (known + unseen / ridge) / spectra.n_features


def diagonal_fixed_point(
    spectra: Spectra,
    noise: Array,
    floors: Array,
    strength: float,
    start: Array,
    tol: float = 1e-12,
    max_iter: int = 2000,
) -> Array:
    """Mean square v of each task's ridge weights under the ridge η/(v + e) that v itself implies."""
    from mssl.kernels.joint import ridge_fixed_point

    v = np.array(start, dtype=float)
    tables = map(plain, (spectra.values, spectra.projections, 1.0 / noise, floors))
    call(ridge_fixed_point, *tables, float(strength), spectra.n_features, v, tol, max_iter)
    return v


def mean_variance(problem: GramQuadratic | DesignQuadratic, noise: Array, *, cautious: bool = True) -> float:
    r"""Variance τ² of a mean that all tasks share, from the pairs of tasks.

    With :math:`u_k = s_k X_k^\top y_k` and :math:`H_k = s_k X_k^\top X_k`, *different* tasks have
    :math:`E[u_k \cdot u_l] = \tau^2 \operatorname{tr}(H_k H_l)` whatever their own variances and noise are, so

    .. math:: \hat\tau^2 = \frac{\sum_{k<l} u_k \cdot u_l}{\sum_{k<l} \operatorname{tr}(H_k H_l)}.

    It needs no single-task fit, so it works with fewer rows than features.

    A mean makes *all* pairs related. Clusters make some related, and a mean then takes one cluster's centre out of all
    others' weights and spoils the graph. With ``cautious`` the answer is therefore 0 unless at least seven in eight
    pairs agree (:math:`u_k \cdot u_l > 0`).
    """
    s = 1.0 / noise
    u = s[:, None] * problem.linear
    pairs = np.triu_indices(len(u), 1)
    products = (u @ u.T)[pairs]
    if len(products) == 0 or (cautious and np.mean(products > 0) < _AGREEMENT):
        return 0.0
    scale = float(_cross_traces(problem, s)[pairs].sum())
    return max(float(products.sum()) / scale, 0.0) if scale > 0 else 0.0


def _cross_traces(problem: GramQuadratic | DesignQuadratic, s: Array) -> Array:
    """tr(H_k H_l) for all pairs; by random signs (a fixed draw) where no Gram is at hand."""
    if isinstance(problem, GramQuadratic):
        factors = s * problem.task_scale
        flat = problem.gram.reshape(len(problem.gram), -1)
        return np.asarray(np.outer(factors, factors) * (flat @ flat.T))
    draw = np.random.default_rng(0)
    total = np.zeros((problem.n_tasks, problem.n_tasks))
    for _ in range(_PROBES):
        signs = draw.choice([-1.0, 1.0], size=problem.n_features)
        image = s[:, None] * problem.product(np.broadcast_to(signs, (problem.n_tasks, problem.n_features)))
        total += image @ image.T
    return total / _PROBES


def gram_spectra(problem: GramQuadratic, freedom: Array) -> Spectra:
    """Spectra of all tasks from their Gram matrices."""
    if problem.is_shared:
        g, U = problem.eigen
        values = problem.task_scale[:, None] * g
        projections = problem.linear @ U
    else:
        g, U = np.linalg.eigh(problem.gram)
        values = problem.task_scale[:, None] * g
        projections = np.einsum("kij,ki->kj", U, problem.linear)
    return _clean(problem, values, projections, 2 * problem.constants, freedom)


def design_spectra(problem: DesignQuadratic, freedom: Array) -> Spectra:
    """Spectra task by task from the smaller of XXᵀ and XᵀX; once for all tasks with a common design."""
    K, d = problem.n_tasks, problem.n_features
    rows, offsets = problem.design.n_rows, problem.design.offsets
    m = int(np.minimum(rows, d).max())
    values, projections = np.zeros((K, m)), np.zeros((K, m))
    common = problem.design.common_weights(problem.c)
    target = np.sqrt(problem.c) * problem.target
    for k in range(K):
        own = target[offsets[k] : offsets[k + 1]]
        if k == 0 or common is None:
            block = problem.block(k)
            wide = len(block) <= d
            g, U = np.linalg.eigh(block @ block.T if wide else block.T @ block)
        factor = 1.0 if common is None else common[1][k]
        size = len(g)
        values[k, :size] = factor * g
        if wide:
            projections[k, :size] = np.sqrt(np.maximum(factor * g, 0.0)) * (own @ U)
        else:
            projections[k, :size] = np.sqrt(factor) * (own @ block) @ U
    squares = problem.design.task_sums(target**2)
    return _clean(problem, values, projections, squares, freedom)


def _clean(
    problem: GramQuadratic | DesignQuadratic, values: Array, projections: Array, squares: Array, freedom: Array
) -> Spectra:
    """Directions, and squares of constant targets, that rounding made out of nothing count as absent."""
    absent = values <= 1e-12 * values.max(axis=1, keepdims=True)
    level = 0.0 if problem.target_means is None else problem.target_means
    squares = np.where(squares > _ROUNDING**2 * freedom * level**2, squares, 0.0)
    values, projections = np.where(absent, 0.0, values), np.where(absent, 0.0, projections)
    return Spectra(values, projections, squares, freedom, problem.n_features)
