r"""Estimates that a fit needs before its first round: the variances of the single tasks and the diagonal fixed point.

**Spectra.** With :math:`X_k^\top X_k = U \operatorname{diag}(g) U^\top` and :math:`q = U^\top X_k^\top y_k`, all
estimates of a ridge regression are sums over eigenvalues. A few array operations compute them for all tasks:

- noise :math:`\sigma^2` and signal variance :math:`\tau^2` by restricted maximum likelihood of
  :math:`y \sim N(0, \sigma^2 I + \tau^2 XX^\top)`;
- the sampling variance of a coefficient, :math:`\tfrac1d \operatorname{tr}(sX^\top X + D_0)^{-1}`.

**Moderation.** Each variance is shrunk towards a common value; the larger its estimation error, the more it is shrunk.
With :math:`\nu_k` degrees of freedom an estimated variance is :math:`s_k^2 \sim \sigma_k^2 \chi^2_{\nu_k} / \nu_k`.
With few degrees of freedom it may be small by chance, and the task would then get too large a weight. If the true
variances come from :math:`1/\sigma_k^2 \sim \chi^2_{\nu_0} / (\nu_0 s_0^2)`, the posterior expectation of the precision
is the inverse of the *moderated* variance

.. math:: \tilde s_k^2 = \frac{\nu_0 s_0^2 + \nu_k s_k^2}{\nu_0 + \nu_k}.

The logarithms :math:`z_k = \log s_k^2 - \psi(\nu_k/2) + \log(\nu_k/2)` give the scale and the degrees of freedom of
the prior. They have the mean :math:`\log s_0^2 - \psi(\nu_0/2) + \log(\nu_0/2)` and the variance
:math:`\psi'(\nu_k/2) + \psi'(\nu_0/2)`. With equal :math:`\nu_k` this is Smyth's estimate. With unequal :math:`\nu_k`,
the logarithms are weighted by the inverse of these variances (Paule and Mandel), so that tasks with a poor estimate
have little weight.

**The diagonal fixed point** :math:`v = \tfrac1r\|q(D)\|^2,\; D = \eta/(v+e)` consists of K separate problems whose
ridge strengths agree with the weights that they give. It determines the constants of F, and the alternation starts
there.

**Other losses.** At the start, losses other than least squares are replaced by the quadratic that agrees with them
to second order at single-task ridge fits. The ridge strengths are the noise over the signal variance, which are
estimated from the quadratic in turn (penalised quasi-likelihood). The first fit has intercepts alone. A dispersion that
has to be estimated comes from Pearson's statistic at the last fit.

References
----------
Patterson & Thompson (1971), doi:10.1093/biomet/58.3.545 (restricted maximum likelihood).
Smyth (2004), Linear models and empirical Bayes methods for assessing differential expression,
doi:10.2202/1544-6115.1027.
Paule & Mandel (1982), Consensus values and weighting factors, doi:10.6028/jres.087.022.
Breslow & Clayton (1993), Approximate inference in generalized linear mixed models, doi:10.1080/01621459.1993.10594284.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, zeta

from mssl._typing import Array
from mssl.data.inputs import ROUNDING
from mssl.exceptions import DataError
from mssl.model.coupling import Coupling
from mssl.solvers.base import MOST_STEPS, NEGLIGIBLE, PATIENCE, SMALLEST_VARIANCE, bracketed_newton
from mssl.solvers.glm import GLMLoss, GLMRows, Point, proximal_newton
from mssl.solvers.linear import conjugate_gradient
from mssl.solvers.quadratic import LARGE, Quadratic, StepProblem, WeightProblem

if TYPE_CHECKING:
    from mssl.structures.base import Structure, StructureScale

# Relative change of v at which the diagonal fixed point counts as reached. v is a constant of F: with 1e-3 the fourth
# digit of F depended on the iterations that led to v. With 1e-6 it does not, and a search takes a tenth longer.
_START_TOL = 1e-6
# Longest step to the fixed point, in units of the residual. With 5, the iteration was slow for fits whose weights
# nearly vanish.
_LONGEST = 100.0
# Share of agreeing pairs of tasks above which a shared mean is assumed. A larger share overlooks means, a smaller one
# takes clusters of tasks for a mean.
_AGREEMENT = 7 / 8
# Number of random sign vectors that estimate a trace which is too large to compute. The relative error is about 1/√32.
_PROBES = 32
# Grid for the logarithm of τ²·(mean eigenvalue)/σ²; it spans nine decades.
_GRID = np.linspace(-9.0, 9.0, 49) * np.log(10) / 2
_FLAT = 1e-9  # differences of the criterion, its slopes and its Newton steps below this count as rounding
_SMALLEST_FREEDOM = 1e-3  # safeguard: variances with fewer degrees of freedom than this are ignored

# The next constants belong to the single-task ridge fits. Their estimates need an accuracy of about ten percent;
# further rounds only cost time.
_ROUNDS = 6  # limit of the rounds
_SETTLED = 0.2  # the rounds end when no signal variance changes by more than this share
# With at least this number of rows per feature, one round is enough: shrinkage then hardly changes the information.
_PLENTY = 10.0
_CLOSE = 1e-3  # gap of a ridge fit, relative to the loss
_EXACT = 1e-8  # gap of a ridge fit, relative to the loss, if its residuals estimate a dispersion
_WORST_DISPERSION = 1e30  # safeguard: single fits whose dispersion exceeds this did not come near the targets
# Safeguard: smallest signal variance of a ridge fit, in units of the sampling variance of a typical direction.
_SMALLEST_SIGNAL = 1e-3
# Prior variance, in signal variances, of a fit that is hardly shrunk. A smaller one biases the information, a larger
# one lets separable labels diverge.
_WIDE = 16.0


@dataclass(frozen=True, eq=False)
class Spectra:
    """Eigenvalues and projections of all tasks, padded with zeros to a common length.

    Attributes
    ----------
    values : ndarray of shape (K, m)
        Eigenvalues g ≥ 0 of X_kᵀX_k (row weights included).
    projections : ndarray of shape (K, m)
        q, the products of the targets with the features in the eigenbasis; 0 if g is 0.
    target_squares : ndarray of shape (K,)
        Weighted sum of squares of the centred targets.
    freedom : ndarray of shape (K,)
        Degrees of freedom: the total weight, less one if an intercept is fitted.
    n_features : int
        d.
    vectors : ndarray of shape (K, d, m), or None
        Eigenvectors; None if they are not kept.
    """

    values: Array
    projections: Array
    target_squares: Array
    freedom: Array
    n_features: int
    vectors: Array | None = None

    def typical_value(self) -> Array:
        """Mean eigenvalue tr(XᵀX)/d of each task; 1 if all features are constant."""
        mean = self.values.sum(axis=1) / self.n_features
        return np.where(mean > 0, mean, 1.0)

    @cached_property
    def rows(self) -> Array:
        """The degrees of freedom, at least 1."""
        return np.maximum(self.freedom, 1.0)

    @cached_property
    def least_squares(self) -> tuple[Array, Array, Array]:
        """The sums of squares that least squares explain in each direction, (K, m), and the residual ones, (K,).

        The third part is the smallest noise variance, (K,).
        """
        explained = np.divide(self.projections**2, self.values, out=np.zeros(self.values.shape), where=self.values > 0)
        rest = self.target_squares - explained.sum(axis=1)
        floor = np.where(self.target_squares > 0, SMALLEST_VARIANCE * self.target_squares / self.rows, 1.0)
        return explained, np.where(rest > ROUNDING * self.target_squares, rest, 0.0), floor


@dataclass(frozen=True, eq=False)
class SingleFits:
    """Estimates from single-task fits.

    Attributes
    ----------
    base : Quadratic
        The loss with all noise precisions 1. For losses other than least squares, it is the second-order approximation
        near the fit.
    spectra : Spectra or None
        Single-task spectra of the base; None for structures that need no start.
    noise, signal, sampling : ndarrays of shape (K,)
        Noise (dispersion), signal variance and sampling variance of a coefficient, task by task.
    near : ndarray of shape (K, d) or None
        Weights of the single-task fits, from which the start continues; None for least squares.
    """

    base: Quadratic
    spectra: Spectra | None
    noise: Array
    signal: Array
    sampling: Array
    near: Array | None


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
    typical, explained = spectra.typical_value(), spectra.least_squares[0]
    chunks = np.array_split(_GRID[:, None], min(len(_GRID), 1 + len(_GRID) * spectra.values.size // LARGE))
    grid = np.concatenate([_criterion(spectra, np.exp(chunk) / typical, noise) for chunk in chunks])
    # If the criterion is flat, as with one degree of freedom, signal and noise get equal shares.
    equal = grid <= grid.min(axis=0) + _FLAT
    best = np.argmin(np.where(equal, np.abs(_GRID)[:, None], np.inf), axis=0)
    signals = (best > 0) & spectra.values.any(axis=1)  # the other tasks have no signal
    inner = np.clip(best, 1, len(_GRID) - 2)

    def derivatives(point: Array) -> tuple[Array, Array]:
        """First and second derivative of the criterion in log(τ²/σ²)."""
        seen = (np.exp(point) / typical)[:, None] * spectra.values
        left = 1 / (1 + seen)
        moved = seen * left**2  # the derivative of the shares that a ridge fit explains
        gained, grows = explained * moved, (seen * left).sum(axis=1)
        first, second, bends = gained.sum(axis=1), (gained * (2 * left - 1)).sum(axis=1), moved.sum(axis=1)
        if noise is not None:
            slope, curvature = grows - first / noise, bends - second / noise
        else:
            variance = _noise_variance(spectra, left)
            share = spectra.freedom / spectra.rows / variance
            slope = grows - share * first
            curvature = bends - share * (second + first**2 / (spectra.rows * variance))
        return np.where(signals & (np.abs(slope) > _FLAT), slope, 0.0), curvature

    point = bracketed_newton(derivatives, _GRID[inner], _GRID[inner - 1], _GRID[inner + 1], last=_FLAT)
    ratio = np.where(signals, np.exp(point) / typical, 0.0)
    variance = _noise_variance(spectra, 1 / (1 + ratio[:, None] * spectra.values)) if noise is None else noise
    return variance, ratio * variance


def _noise_variance(spectra: Spectra, left: Array) -> Array:
    """The likeliest σ², for the shares of the explained sums of squares that a ridge fit leaves in each direction."""
    explained, rest, floor = spectra.least_squares
    return np.maximum((rest + (explained * left).sum(axis=-1)) / spectra.rows, floor)


def _criterion(spectra: Spectra, ratio: Array, noise: Array | None) -> Array:
    """−2 log-likelihood as a function of τ²/σ²; an unknown σ² is profiled out."""
    seen = ratio[..., None] * spectra.values
    determinant, left = np.log1p(seen).sum(axis=-1), 1 / (1 + seen)
    if noise is None:
        return np.asarray(spectra.freedom * np.log(_noise_variance(spectra, left)) + determinant)
    return np.asarray(determinant - (spectra.least_squares[0] * seen * left).sum(axis=-1) / noise)


def residual_freedom(spectra: Spectra, noise: Array, signal: Array) -> Array:
    r"""Degrees of freedom behind each task's noise, :math:`n - \sum_j \tau^2 g_j / (\sigma^2 + \tau^2 g_j)`.

    They are the rows less the degrees of freedom of a ridge fit whose strength follows from these variances.
    """
    used = np.sum(signal[:, None] * spectra.values / (noise[:, None] + signal[:, None] * spectra.values), axis=1)
    return np.maximum(spectra.freedom - used, 0.0)


def moderated_noise(spectra: Spectra, noise: Array, signal: Array) -> Array:
    r"""Noise variances, moderated over all tasks as shares of the targets' variances.

    A fit with as many weights as rows leaves no residuals at any noise level. The shares
    :math:`\sigma_k^2 / s^2(y_k)`, which do not depend on the units of the targets, are therefore moderated
    (:func:`moderate`): the fewer degrees of freedom a share has, the more it is shrunk towards a common value.
    """
    total = spectra.target_squares / spectra.rows
    varies = total > 0
    share = np.divide(noise, total, out=np.ones_like(noise), where=varies)
    freedom = np.where(varies, residual_freedom(spectra, noise, signal), 0.0)
    return np.where(varies, total * moderate(share, freedom), noise)


def sampling_variances(spectra: Spectra, noise: Array, prior: Array) -> Array:
    r"""Mean variance of a coefficient by sampling alone, :math:`\tfrac1d\operatorname{tr}(sX^\top X + D_0)^{-1}`.

    The inverse of the ridge :math:`D_0` is the ``prior`` variance. It is at least the signal variance and the sampling
    variance of a typical direction. The ridge is negligible if a task has enough rows, and bounds the result otherwise.
    """
    known = np.sum(1.0 / (spectra.values / noise[:, None] + 1.0 / prior[:, None]), axis=1)
    unseen = spectra.n_features - spectra.values.shape[1]
    return np.asarray((known + unseen * prior) / spectra.n_features)


def ridge_fixed_point(spectra: Spectra, noise: Array, floors: Array, strength: float, v: Array) -> Array:
    """The mean square v of each task's ridge weights for the ridge η/(v + e), which v itself determines.

    All tasks are solved at once by Newton's method for log(v + e). The lengths of its steps follow the same rule as in
    :class:`_Secant`.
    """
    s, d = 1.0 / noise[:, None], spectra.n_features
    values, targets = s * spectra.values, s * spectra.projections
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for _ in range(MOST_STEPS):
            ridge = (strength / (v + floors))[:, None]
            sums = values + ridge
            squares = (targets / sums) ** 2
            image = squares.sum(axis=1) / d
            if (np.abs(image - v) <= NEGLIGIBLE * (image + floors)).all():
                break
            fall = 1.0 - 2.0 / d * (squares * ridge / sums).sum(axis=1) / (image + floors)
            step = ((image + floors) / (v + floors)) ** _lengths(fall)
            v = np.maximum((v + floors) * step - floors, image / _LONGEST)
    return np.asarray(image)


def diagonal_start(
    problem: WeightProblem,
    structure: Structure,
    scale: StructureScale,
    W: Array,
    *,
    mean_variance: float = 0.0,
    lower: Array | float = 0.0,
    max_inner: int = 2000,
) -> tuple[StructureScale, Array]:
    """The diagonal fixed point by weight steps. Only a shared mean relates its K problems.

    Parameters
    ----------
    problem : WeightProblem
        Loss and penalty.
    structure, scale : Structure and StructureScale
        The structure, with a first guess of the variances v.
    W : ndarray of shape (K, d)
        Start of the first weight step.
    mean_variance : float
        τ² of the shared mean; 0 for none.
    lower : float or ndarray of shape (K,)
        Lower bound of v. Without it, residuals that many features fit exactly would vanish.
    max_inner : int
        Limit of each weight step.

    Returns
    -------
    scale, W : StructureScale and ndarray of shape (K, d)
        The variances v of the scale are the mean squares of exactly these weights (or residuals). Correlations, and
        therefore λ_max, are then at most 1.
    """
    size = max(scale.n_rows, abs(problem.value(np.zeros(W.shape))))
    v, change, secant, budget, misses = scale.variances, 1.0, _Secant(mean_variance > 0), 2 * max_inner, 0
    for _ in range(MOST_STEPS):
        current = replace(scale, variances=v)
        floors = structure.floors(current)
        coupling = structure.couple(structure.initial(current), mean_variance)
        # A gap is of second order in the error of the weights, and the secant needs an error that is small compared to
        # the last change. With a thousand times this gap, the noise of the slopes doubled the number of rounds.
        accuracy = _START_TOL * max(change, 1e-4) ** 2 * size
        solved = problem.solve(coupling, W, tol=accuracy, max_iter=min(max_inner, budget))
        W, budget = solved.W, budget - solved.n_iter
        misses += solved.gap > accuracy
        Q = problem.related(W)
        image = np.maximum(np.sum((Q - coupling.mean(Q)) ** 2, axis=1) / scale.n_rows + coupling.rho, lower)
        change = min(float(np.max(np.abs(image - v) / (image + floors))), 1.0)
        # If the solver is slow, the budget ends the rounds. v still belongs to the last weights, so F is well defined.
        if change <= _START_TOL or budget <= 0 or misses >= PATIENCE:
            break
        v = secant.next(v, image, floors)
    return replace(scale, variances=image), W


class _Secant:
    """A fixed-point iteration v → image(v), accelerated in log(v + e) by the slopes of the last residuals.

    Each entry has its own slope. If a shared mean relates the entries (``joint``), Broyden's method starts from the
    diagonal of the slopes in the second round. In the first round the next v is the image.
    """

    def __init__(self, joint: bool) -> None:
        self.joint, self.rounds, self.lengths = joint, 0, np.ones(1)
        self.x = self.residual = np.zeros(1)
        self.updates: list[tuple[Array, Array]] = []

    def next(self, v: Array, image: Array, e: Array) -> Array:
        """The next v, from the present v and its image."""
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(v + e)
            residual = np.log(image + e) - x
            moved, fell = x - self.x, self.residual - residual
            if self.joint and self.rounds > 1:
                expected = self._step(fell)
                self.updates.append(((moved - expected) / (moved @ expected), moved))
            elif self.rounds:
                self.lengths = _lengths(fell / moved)
            self.x, self.residual, self.rounds = x, residual, self.rounds + 1
            step = self._step(residual)
        if self.joint and not np.abs(step).max() <= _LONGEST * np.abs(residual).max():
            self.rounds, self.lengths, self.updates, step = 1, np.ones(1), [], residual
        return np.maximum(np.exp(x + step) - e, image / _LONGEST)

    def _step(self, residual: Array) -> Array:
        step = self.lengths * residual
        for change, moved in self.updates:
            step = step + change * (moved @ step)
        return step


def _lengths(fall: Array) -> Array:
    """The step to the zero of each line, in units of its residual; 1 if the line hardly falls."""
    return 1.0 / np.where(_LONGEST * fall > 1.0, fall, 1.0)


def mean_variance(problem: Quadratic, noise: Array, shared_mean: Any) -> float:
    r"""The variance τ² of a mean that all tasks share: a given number, or an estimate from the pairs of tasks.

    It is 0 for one task, and if ``shared_mean`` is False. If ``shared_mean`` is True or "auto", τ² is estimated.

    With :math:`u_k = s_k X_k^\top y_k` and :math:`H_k = s_k X_k^\top X_k`, *different* tasks have
    :math:`E[u_k \cdot u_l] = \tau^2 \operatorname{tr}(H_k H_l)` for all variances and noise levels, so

    .. math:: \hat\tau^2 = \frac{\sum_{k<l} u_k \cdot u_l}{\sum_{k<l} \operatorname{tr}(H_k H_l)}.

    It needs no single-task fit, so it works with fewer rows than features.

    A mean relates *all* pairs of tasks, whereas clusters relate some of them only. With clusters, a mean would subtract
    the centre of one cluster from the weights of all others and make the graph less accurate. For "auto" the result is
    therefore 0 unless at least seven in eight pairs agree (:math:`u_k \cdot u_l > 0`).
    """
    if problem.n_tasks == 1 or not shared_mean:
        return 0.0
    if not isinstance(shared_mean, str | bool | np.bool_):
        return float(shared_mean)
    s = 1.0 / noise
    u = s[:, None] * problem.linear
    K, step = len(u), max(1, LARGE // len(u))
    if isinstance(shared_mean, str):
        parts = range(0, K, step)
        agree = sum(np.count_nonzero(np.triu(u[first : first + step] @ u[first:].T, 1) > 0) for first in parts)
        if agree < _AGREEMENT * K * (K - 1) / 2:
            return 0.0
    scale = _pair_traces(problem, s)
    return max(_of_pairs(u) / scale, 0.0) if scale > 0 else 0.0


def _of_pairs(rows: Array) -> float:
    """The sum of the products of all pairs of different rows, ½ (|Σ rows|² − Σ |row|²)."""
    return 0.5 * float(np.sum(rows.sum(axis=0) ** 2) - np.sum(rows**2))


def _pair_traces(problem: Quadratic, s: Array) -> float:
    """The sum of tr(H_k H_l) over all pairs. Without Grams, a fixed draw of random signs estimates it."""
    if not problem.by_rows:
        factors, gram = s * problem.task_scale, problem.gram.reshape(len(problem.gram), -1)
        return sum(
            _of_pairs(factors[:, None] * gram[:, first : first + 1024]) for first in range(0, gram.shape[1], 1024)
        )
    draw, shape, total = np.random.default_rng(0), (problem.n_tasks, problem.n_features), 0.0
    for _ in range(_PROBES):
        signs = np.broadcast_to(draw.choice([-1.0, 1.0], size=problem.n_features), shape)
        total += _of_pairs(s[:, None] * problem.product(signs)) / _PROBES
    return total


def spectra_of(problem: Quadratic, freedom: Array, *, vectors: bool = False) -> Spectra:
    """Spectra of all tasks, from their Grams or from the singular values of their rows.

    If all tasks have one design, its decomposition is computed once.
    """
    (K, d), V = problem.linear.shape, None
    if not problem.by_rows:
        g, U = np.linalg.eigh(problem.gram)
        V = np.broadcast_to(U, (K, d, d)) if vectors else None
        values, projections = problem.task_scale[:, None] * g, np.matmul(problem.linear[:, None], U)[:, 0]
    else:
        rows, design = problem.rows, problem.rows.design
        m = int(np.minimum(design.n_rows, d).max())
        values, projections, offsets = np.zeros((K, m)), np.zeros((K, m)), design.offsets
        target, common = np.sqrt(rows.c) * rows.target, design.common_weights(rows.c)
        V = np.zeros((K, d, m)) if vectors else None
        for k in range(K):
            if k == 0 or common is None:
                U, sizes, turned = np.linalg.svd(rows.block(k), full_matrices=False)
            roots = sizes if common is None else np.sqrt(common[1][k]) * sizes
            values[k, : len(roots)] = roots**2
            projections[k, : len(roots)] = roots * (target[offsets[k] : offsets[k + 1]] @ U)
            if V is not None:
                V[k, :, : len(roots)] = turned.T
    # Values of the size of rounding are set to zero.
    absent = values <= NEGLIGIBLE * values.max(axis=1, keepdims=True)
    level = 0.0 if problem.target_means is None else problem.target_means
    squares = 2 * problem.constants
    squares = np.where(squares > ROUNDING**2 * freedom * level**2, squares, 0.0)
    return Spectra(np.where(absent, 0.0, values), np.where(absent, 0.0, projections), squares, freedom, d, V)


def moderate(variances: Array, freedom: Array) -> Array:
    r"""Shrink estimated variances towards a common value.

    Parameters
    ----------
    variances : ndarray of shape (K,)
        Estimates :math:`s_k^2 > 0`.
    freedom : ndarray of shape (K,)
        Degrees of freedom :math:`\nu_k` of the estimates. The common value replaces an estimate without any.

    Returns
    -------
    ndarray of shape (K,)
        Values between the smallest and the largest estimate that has degrees of freedom. If no estimate has any, the
        estimates are returned unchanged.

    Examples
    --------
    The first call has four estimates that may differ by chance alone. In the second call, the same estimates have many
    degrees of freedom:

    >>> import numpy as np
    >>> estimates = np.array([0.5, 0.8, 1.3, 2.0])
    >>> moderate(estimates, np.full(4, 4.0)).round(2)
    array([1.32, 1.32, 1.32, 1.32])
    >>> moderate(estimates, np.full(4, 1e4)).round(2)
    array([0.5, 0.8, 1.3, 2. ])
    """
    known = freedom > _SMALLEST_FREEDOM
    if not known.any():
        return variances
    s2, nu = variances[known], freedom[known]
    if len(s2) == 1:
        return np.where(known, variances, s2[0])
    half = nu / 2
    z, errors = np.log(s2) - digamma(half) + np.log(half), zeta(2, half)
    excess = _excess(z, errors)
    level, half_prior = _mean(z, errors, excess), np.inf
    if excess > 0:
        half_prior = _trigamma_inverse(excess)
        level += digamma(half_prior) - np.log(half_prior)
    common = np.exp(np.clip(level, np.log(s2.min()), np.log(s2.max())))
    half_freedom = np.where(known, freedom, 0.0) / 2
    share = half_freedom / (half_freedom + half_prior)
    return np.asarray(np.where(known, share * variances, 0.0) + (1 - share) * common)


def _mean(z: Array, errors: Array, excess: float) -> float:
    """The mean of z, weighted by the inverse variances."""
    weights = 1 / (errors + excess)
    return float(weights @ z / weights.sum())


def _excess(z: Array, errors: Array) -> float:
    r"""The variance e ≥ 0 beyond the errors for which :math:`\sum_k (z_k - \bar z)^2/(e + \epsilon_k) = K - 1`."""

    def surplus(e: float) -> float:
        return float(((z - _mean(z, errors, e)) ** 2 / (errors + e)).sum()) - (len(z) - 1)

    # Without errors, e would be the variance of z. The errors make it smaller.
    return float(brentq(surplus, 0.0, z.var(ddof=1) * (1 + 1e-9))) if surplus(0.0) > 0 else 0.0


def _trigamma_inverse(value: float) -> float:
    """The h with ψ'(h) = value; the bracket follows from 1/h < ψ'(h) < 1/h + 1/h²."""
    high = (1 + np.sqrt(1 + 4 * value)) / (2 * value)
    return float(brentq(lambda h: zeta(2, h) - value, 0.5 / value, 2 * high))


def single_fits(loss: Quadratic | GLMRows, freedom: Array, noise: Array | None) -> SingleFits:
    """Estimates from single-task fits.

    Parameters
    ----------
    loss : Quadratic or GLMRows
        Least squares, or data with another loss.
    freedom : ndarray of shape (K,)
        Degrees of freedom: total weight, less one where an intercept is fitted.
    noise : ndarray of shape (K,) or None
        Known noise variances or dispersions; None where they have to be estimated.
    """
    if isinstance(loss, GLMRows):
        return _ridge_fits(loss, freedom, noise)
    spectra = spectra_of(loss, freedom)
    level, signal = variance_components(spectra, noise)
    level = moderated_noise(spectra, level, signal) if noise is None else level
    sampling = sampling_variances(spectra, level, np.maximum(signal, level / spectra.typical_value()))
    return SingleFits(loss, spectra, level, signal, sampling, None)


@np.errstate(all="ignore")  # if numbers overflow, an error is raised at the end
def _ridge_fits(rows: GLMRows, freedom: Array, noise: Array | None) -> SingleFits:
    """Single-task ridge fits for a loss other than least squares, and the quadratic that agrees with it there."""
    totals, d = rows.design.task_sums(rows.weights), rows.design.n_features
    W = np.zeros((len(totals), d))
    base = rows.null_quadratic()
    spectra = spectra_of(base, freedom)
    typical = spectra.typical_value()
    level, signal = variance_components(spectra, noise)
    plenty = float(totals.min()) >= _PLENTY * d
    for _ in range(1 if plenty else _ROUNDS):
        fitted, point = _ridge_fit(rows, base, level, _variances(spectra, level, signal), W, exact=noise is None)
        W = point.W
        recent = fitted.reference if plenty and noise is not None and np.all(fitted.precisions == 1.0) else None
        if recent is not None and (base.by_rows or not np.may_share_memory(recent.gram, base.gram)):
            # With many rows the Hessian takes most of the time, and it hardly changes in the last steps of the fit.
            base = recent.with_gradient(W, point.derivatives[0])
        else:
            base = rows.quadratic_at(point.predictor, point.eta)
        previous, spectra = signal, spectra_of(base, freedom)
        level, signal = variance_components(spectra, noise)
        if np.all(np.abs(signal - previous) <= _SETTLED * np.maximum(signal, previous)):
            break
    if noise is None:
        # Pearson's statistic. A fit that uses nearly all degrees of freedom does not determine the noise. At least a
        # tenth of the rows count.
        means = rows.loss.inverse_link(point.eta)
        squares = rows.design.task_sums(rows.weights * (rows.y - means) ** 2 / rows.loss.variance(means))
        left = residual_freedom(spectra, level, _variances(spectra, level, signal))
        left = np.maximum(left, 0.1 * totals)
        level, signal = variance_components(spectra, moderate(np.maximum(squares / left, 1e-10), left))
    # A fit that is shrunk for prediction has predictors that are too small. They overstate the information in the data,
    # for labels several times. The sampling variances therefore come from a fit whose prior is wide. With many rows,
    # the present fit gives the same result. With fewer rows than features, the sampling variance of a direction that
    # the data determine is n/d times that of a typical direction at the fit of intercepts alone.
    wide = _WIDE * np.maximum(signal, np.minimum(1.0, totals / d) * level / typical)
    near = spectra
    if not plenty:
        _, point = _ridge_fit(rows, base, level, wide, W, exact=False)
        near = spectra_of(rows.quadratic_at(point.predictor, point.eta), freedom)
    sampling = sampling_variances(near, level, wide)
    finite = all(np.isfinite(values).all() for values in (level, signal, sampling, W))
    if not finite or float(level.max()) > _WORST_DISPERSION:
        raise DataError(
            f"The single-task fits, which estimate the variances, overflow: y from {np.min(rows.y):.2g} to "
            f"{np.max(rows.y):.2g} is too far from the predictions of loss {rows.loss.name!r} for these features. "
            "Give y in other units, use fit_intercept=True, or give the loss a noise_variance."
        )
    return SingleFits(base, spectra, level, signal, sampling, W)


def _variances(spectra: Spectra, noise: Array, signal: Array) -> Array:
    return np.maximum(signal, _SMALLEST_SIGNAL * noise / spectra.typical_value())


def _ridge_fit(
    rows: GLMRows, base: Quadratic, noise: Array, variances: Array, W: Array, *, exact: bool
) -> tuple[GLMLoss, Point]:
    """Single-task ridge fits with given prior variances, close to the optimum or ``exact``."""
    loss = GLMLoss(rows, 1.0 / noise, first=base.scaled(1.0 / noise))
    problem = StepProblem.of(loss, Coupling.diagonal_only(1.0 / variances))
    tol = (_EXACT if exact else _CLOSE) * max(1.0, abs(loss.value(W)))
    step = proximal_newton(problem, W, conjugate_gradient, tol=tol, max_iter=MOST_STEPS)
    return loss, loss.evaluate(step.W)
