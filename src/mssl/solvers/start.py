r"""Estimates that a fit needs before its first round: variances of the single tasks, and the diagonal fixed point.

**Spectra.** With :math:`X_k^\top X_k = U \operatorname{diag}(g) U^\top` and :math:`q = U^\top X_k^\top y_k`, all
estimates of a ridge regression are sums over eigenvalues, so that K tasks cost a few array operations:

- noise :math:`\sigma^2` and signal variance :math:`\tau^2` by restricted maximum likelihood of
  :math:`y \sim N(0, \sigma^2 I + \tau^2 XX^\top)`;
- the sampling variance of a coefficient, :math:`\tfrac1d \operatorname{tr}(sX^\top X + D_0)^{-1}`.

**Moderation.** Each variance is drawn towards a common value, the more the larger its estimation error is. With
:math:`\nu_k` degrees of freedom an estimated variance is :math:`s_k^2 \sim \sigma_k^2 \chi^2_{\nu_k} / \nu_k`. If
these are few it may be small by chance, and what is divided by it then has too large a weight. Where the true
variances come from :math:`1/\sigma_k^2 \sim \chi^2_{\nu_0} / (\nu_0 s_0^2)`, the precision expected in the light of
the estimate is that of the *moderated* variance

.. math:: \tilde s_k^2 = \frac{\nu_0 s_0^2 + \nu_k s_k^2}{\nu_0 + \nu_k}.

Scale and degrees of freedom of the prior come from the logarithms
:math:`z_k = \log s_k^2 - \psi(\nu_k/2) + \log(\nu_k/2)`, which have the mean
:math:`\log s_0^2 - \psi(\nu_0/2) + \log(\nu_0/2)` and the variance :math:`\psi'(\nu_k/2) + \psi'(\nu_0/2)`. With equal
:math:`\nu_k` this is Smyth's estimate. Unequal ones are weighted by the inverse of these variances (Paule and Mandel),
so that tasks with a poor estimate have little weight.

**The diagonal fixed point** :math:`v = \tfrac1r\|q(D)\|^2,\; D = \eta/(v+e)`: K separate problems whose strength agrees
with the weights that they give. It fixes the constants of F, and the alternation starts there.

References
----------
Patterson & Thompson (1971), doi:10.1093/biomet/58.3.545 (restricted maximum likelihood).
Smyth (2004), Linear models and empirical Bayes methods for assessing differential expression,
doi:10.2202/1544-6115.1027.
Paule & Mandel (1982), Consensus values and weighting factors, doi:10.6028/jres.087.022.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, zeta

from mssl._typing import Array
from mssl.solvers.base import MOST_STEPS, NEGLIGIBLE, PATIENCE, ROUNDING
from mssl.solvers.quadratic import LARGE, Quadratic

if TYPE_CHECKING:
    from mssl.solvers.alternation import WeightProblem
    from mssl.structures.base import Structure, StructureScale

# Relative change of v at which the diagonal fixed point counts as reached. v is a constant of F: at 1e-3 the way to it
# showed in the fourth digit of F, at 1e-6 it does not, for a tenth more time of a search.
_START_TOL = 1e-6
_LONGEST = 100.0  # residuals that a step to the fixed point may be long: with 5 fits whose weights nearly vanish creep
# Share of agreeing pairs from which a shared mean is assumed: a higher one overlooks means, a lower one takes clusters
# of tasks for a mean.
_AGREEMENT = 7 / 8
_PROBES = 32  # random signs behind a trace that is too large to compute: its relative error falls as 1/√32
_GRID = np.linspace(-9.0, 9.0, 49) * np.log(10) / 2  # log of τ²·(mean eigenvalue)/σ²: nine decades, a factor 1.5 apart
_FLAT = 1e-9  # differences of a criterion, its slopes and steps to its minimum that may be rounding
_NOISE_FLOOR = 1e-10  # smallest noise variance, as a share of the target's: keeps noise precisions finite
_SMALLEST_FREEDOM = 1e-3  # degrees of freedom below which an estimate of a variance is ignored


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
    vectors : ndarray of shape (K, d, m), or None
        Eigenvectors, where they are kept.
    """

    values: Array
    projections: Array
    target_squares: Array
    freedom: Array
    n_features: int
    vectors: Array | None = None

    def typical_value(self) -> Array:
        """Mean eigenvalue tr(XᵀX)/d of each task, 1 where all features are constant."""
        mean = self.values.sum(axis=1) / self.n_features
        return np.where(mean > 0, mean, 1.0)

    @cached_property
    def least_squares(self) -> tuple[Array, Array]:
        """What least squares explain of each task's squares, direction by direction (K, m), and the rest (K,)."""
        explained = np.divide(self.projections**2, self.values, out=np.zeros(self.values.shape), where=self.values > 0)
        rest = self.target_squares - explained.sum(axis=1)
        return explained, np.where(rest > ROUNDING * self.target_squares, rest, 0.0)


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
    chunks = np.array_split(_GRID[:, None], min(len(_GRID), 1 + len(_GRID) * spectra.values.size // LARGE))
    grid = np.concatenate([_criterion(spectra, np.exp(chunk) / typical, noise) for chunk in chunks])
    # One degree of freedom cannot tell signal from noise: where the criterion is flat, both have equal shares.
    equal = grid <= grid.min(axis=0) + _FLAT
    best = np.argmin(np.where(equal, np.abs(_GRID)[:, None], np.inf), axis=0)
    signals = (best > 0) & spectra.values.any(axis=1)  # the others are nothing but noise
    moving = signals.copy()
    inner = np.clip(best, 1, len(_GRID) - 2)
    low, high = _GRID[inner - 1], _GRID[inner + 1]
    point = _GRID[inner]
    for _ in range(MOST_STEPS):
        slope, curvature = _derivatives(spectra, np.exp(point) / typical, noise)
        moving &= np.abs(slope) > _FLAT
        low, high = np.where(slope < 0, point, low), np.where(slope < 0, high, point)
        after = point - np.divide(slope, curvature, out=np.full_like(slope, np.inf), where=curvature > 0)
        after = np.where((low <= after) & (after <= high), after, (low + high) / 2)
        after = np.where(moving, after, point)
        moving &= np.abs(after - point) > _FLAT
        point = after
        if not moving.any():
            break
    ratio = np.where(signals, np.exp(point) / typical, 0.0)
    variance = _noise_variance(spectra, ratio) if noise is None else noise
    return variance, ratio * variance


def _noise_variance(spectra: Spectra, ratio: Array) -> Array:
    freedom = np.maximum(spectra.freedom, 1.0)
    floor = np.where(spectra.target_squares > 0, _NOISE_FLOOR * spectra.target_squares / freedom, 1.0)
    explained, rest = spectra.least_squares
    unexplained = rest + np.sum(explained / (1 + ratio[..., None] * spectra.values), axis=-1)
    return np.maximum(unexplained / freedom, floor)


def _criterion(spectra: Spectra, ratio: Array, noise: Array | None) -> Array:
    """−2 log-likelihood as a function of τ²/σ², σ² profiled out where it is not known."""
    determinant = np.sum(np.log1p(ratio[..., None] * spectra.values), axis=-1)
    if noise is None:
        return np.asarray(spectra.freedom * np.log(_noise_variance(spectra, ratio)) + determinant)
    g, q, t = spectra.values, spectra.projections, ratio[..., None]
    return np.asarray(determinant - np.sum(t * q**2 / (1 + t * g), axis=-1) / noise)


def _derivatives(spectra: Spectra, ratio: Array, noise: Array | None) -> tuple[Array, Array]:
    """First and second derivative of the criterion in log(τ²/σ²)."""
    seen = ratio[:, None] * spectra.values
    left = 1 / (1 + seen)
    parts = ratio[:, None] * spectra.projections**2 * left
    gained = np.einsum("kj,kj->k", parts, left)  # derivative of what is explained
    bends = np.einsum("kj,kj,kj->k", parts, left, 1 - 2 * seen * left)
    grows, slows = np.einsum("kj,kj->k", seen, left), np.einsum("kj,kj,kj->k", seen, left, left)
    if noise is not None:
        return grows - gained / noise, slows - bends / noise
    freedom, variance = np.maximum(spectra.freedom, 1.0), _noise_variance(spectra, ratio)
    share = spectra.freedom / freedom / variance
    return grows - share * gained, slows - share * (bends + gained**2 / (freedom * variance))


def residual_freedom(spectra: Spectra, noise: Array, signal: Array) -> Array:
    r"""Degrees of freedom behind each task's noise, :math:`n - \sum_j \tau^2 g_j / (\sigma^2 + \tau^2 g_j)`.

    They are the rows less the degrees of freedom of a ridge fit with the strength of these variances.
    """
    used = np.sum(signal[:, None] * spectra.values / (noise[:, None] + signal[:, None] * spectra.values), axis=1)
    return np.maximum(spectra.freedom - used, 0.0)


def moderated_noise(spectra: Spectra, noise: Array, signal: Array) -> Array:
    r"""Noise variances, as shares of the targets' variances moderated over all tasks.

    A fit of as many weights as rows leaves no residuals, whatever the noise. The shares :math:`\sigma_k^2 / s^2(y_k)`,
    which do not depend on the units of the targets, are therefore moderated (:func:`moderate`): each is drawn towards a
    common value, the more the fewer degrees of freedom it has.
    """
    total = spectra.target_squares / np.maximum(spectra.freedom, 1.0)
    varies = total > 0
    share = np.divide(noise, total, out=np.ones_like(noise), where=varies)
    freedom = np.where(varies, residual_freedom(spectra, noise, signal), 0.0)
    return np.where(varies, total * moderate(share, freedom), noise)


def sampling_variances(spectra: Spectra, noise: Array, prior: Array) -> Array:
    r"""Mean variance of a coefficient by sampling alone, :math:`\tfrac1d\operatorname{tr}(sX^\top X + D_0)^{-1}`.

    The inverse of the ridge :math:`D_0`, a ``prior`` variance, is at least the signal variance and the variance that a
    typical direction has: it is negligible where a task has rows enough, and bounds the answer where it has not.
    """
    known = np.sum(1.0 / (spectra.values / noise[:, None] + 1.0 / prior[:, None]), axis=1)
    unseen = spectra.n_features - spectra.values.shape[1]
    return np.asarray((known + unseen * prior) / spectra.n_features)


def ridge_fixed_point(spectra: Spectra, noise: Array, floors: Array, strength: float, v: Array) -> Array:
    """Mean square v of each task's ridge weights under the ridge η/(v + e) that v itself implies, all tasks at once.

    Newton's method for log(v + e), whose steps are as long as those of :class:`_Secant`.
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
    """The diagonal fixed point by weight steps: K problems that a shared mean alone relates.

    Parameters
    ----------
    problem : WeightProblem
        Loss and penalty.
    structure, scale : Structure and StructureScale
        The structure, with a first guess of the variances v.
    W : ndarray of shape (K, d)
        Where the first weight step starts.
    mean_variance : float
        τ² of the shared mean; 0 for none.
    lower : float or ndarray of shape (K,)
        Lower bound of v: residuals that many features fit exactly would vanish.
    max_inner : int
        Limit of each weight step.

    Returns
    -------
    scale, W : StructureScale and ndarray of shape (K, d)
        v are the mean squares of these very weights (or residuals): correlations are then at most 1, and so is λ_max.
    """
    size = max(scale.n_rows, abs(problem.value(np.zeros(W.shape))))
    v, change, secant, budget, misses = scale.variances, 1.0, _Secant(mean_variance > 0), 2 * max_inner, 0
    for _ in range(MOST_STEPS):
        here = replace(scale, variances=v)
        floors = structure.floors(here)
        coupling = structure.couple(structure.initial(here), mean_variance)
        # A gap is the square of a distance. The secant needs weights whose error is small against the last change:
        # with a thousand times this accuracy the noise of its slopes doubled the number of rounds.
        accuracy = _START_TOL * max(change, 1e-4) ** 2 * size
        solved = problem.solve(coupling, W, tol=accuracy, max_iter=min(max_inner, budget))
        W, budget = solved.W, budget - solved.n_iter
        misses += solved.gap > accuracy
        Q = problem.related(W)
        image = np.maximum(np.sum((Q - coupling.mean(Q)) ** 2, axis=1) / scale.n_rows + coupling.rho, lower)
        change = min(float(np.max(np.abs(image - v) / (image + floors))), 1.0)
        # Solvers that creep have a budget: v is then that of the last weights, as always, and F one fixed function.
        if change <= _START_TOL or budget <= 0 or misses >= PATIENCE:
            break
        v = secant.next(v, image, floors)
    return replace(scale, variances=image), W


class _Secant:
    """A fixed-point iteration v → image(v), accelerated in log(v + e) by the slopes of the last residuals.

    Each entry has a slope of its own. Where a shared mean relates the entries (``joint``), the slopes of the second
    round are the diagonal from which Broyden's method goes on. In the first round the next v is the image.
    """

    def __init__(self, joint: bool) -> None:
        self.joint, self.rounds, self.lengths = joint, 0, np.ones(1)
        self.x = self.residual = np.zeros(1)
        self.updates: list[tuple[Array, Array]] = []

    def next(self, v: Array, image: Array, e: Array) -> Array:
        """Where to go from v, whose image is given."""
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
    """How many residuals long the step to the zero of each line is; one where it hardly falls."""
    return 1.0 / np.where(_LONGEST * fall > 1.0, fall, 1.0)


def mean_variance(problem: Quadratic, noise: Array, *, cautious: bool = True) -> float:
    r"""Variance τ² of a mean that all tasks share, from the pairs of tasks.

    With :math:`u_k = s_k X_k^\top y_k` and :math:`H_k = s_k X_k^\top X_k`, *different* tasks have
    :math:`E[u_k \cdot u_l] = \tau^2 \operatorname{tr}(H_k H_l)` whatever their variances and noise are, so

    .. math:: \hat\tau^2 = \frac{\sum_{k<l} u_k \cdot u_l}{\sum_{k<l} \operatorname{tr}(H_k H_l)}.

    It needs no single-task fit, so it works with fewer rows than features.

    A mean makes *all* pairs related. Clusters make some related, and a mean then takes one cluster's centre out of all
    others' weights and spoils the graph. With ``cautious`` the answer is therefore 0 unless at least seven in eight
    pairs agree (:math:`u_k \cdot u_l > 0`).
    """
    s = 1.0 / noise
    u = s[:, None] * problem.linear
    K, step = len(u), max(1, LARGE // len(u))
    if K < 2:
        return 0.0
    if cautious:
        parts = range(0, K, step)
        agree = sum(np.count_nonzero(np.triu(u[first : first + step] @ u[first:].T, 1) > 0) for first in parts)
        if agree < _AGREEMENT * K * (K - 1) / 2:
            return 0.0
    scale = _of_pairs(_images(problem, s))
    return max(_of_pairs([u]) / scale, 0.0) if scale > 0 else 0.0


def _of_pairs(tables: Iterable[Array]) -> float:
    """Sum of the products of different rows, over some tables: half of |Σ rows|² − Σ |row|²."""
    return sum(0.5 * float(np.sum(rows.sum(axis=0) ** 2) - np.sum(rows**2)) for rows in tables)


def _images(problem: Quadratic, s: Array) -> Iterator[Array]:
    """Tables whose rows have the products tr(H_k H_l); by random signs (a fixed draw) where no Gram is at hand."""
    if not problem.by_rows:
        factors, gram = s * problem.task_scale, problem.gram.reshape(len(problem.gram), -1)
        yield from (factors[:, None] * gram[:, first : first + 1024] for first in range(0, gram.shape[1], 1024))
        return
    draw = np.random.default_rng(0)
    shape = (problem.n_tasks, problem.n_features)
    for _ in range(_PROBES):
        signs = draw.choice([-1.0, 1.0], size=problem.n_features)
        yield s[:, None] * problem.product(np.broadcast_to(signs, shape)) / np.sqrt(_PROBES)


def spectra_of(problem: Quadratic, freedom: Array, *, vectors: bool = False) -> Spectra:
    """Spectra of all tasks, from their Grams or the singular values of their rows; once where they have one design."""
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
    # What is of the size of rounding is zero.
    absent = values <= NEGLIGIBLE * values.max(axis=1, keepdims=True)
    level = 0.0 if problem.target_means is None else problem.target_means
    squares = 2 * problem.constants
    squares = np.where(squares > ROUNDING**2 * freedom * level**2, squares, 0.0)
    return Spectra(np.where(absent, 0.0, values), np.where(absent, 0.0, projections), squares, freedom, d, V)


def moderate(variances: Array, freedom: Array) -> Array:
    r"""Moderated variances.

    Parameters
    ----------
    variances : ndarray of shape (K,)
        Estimates :math:`s_k^2 > 0`.
    freedom : ndarray of shape (K,)
        Their degrees of freedom :math:`\nu_k`; an estimate with none is replaced by the common value.

    Returns
    -------
    ndarray of shape (K,)
        Between the smallest and the largest of the estimates that have degrees of freedom. The estimates themselves
        where none has any.

    Examples
    --------
    Four variances that chance alone may have made different, and the same known well:

    >>> import numpy as np
    >>> found = np.array([0.5, 0.8, 1.3, 2.0])
    >>> moderate(found, np.full(4, 4.0)).round(2)
    array([1.32, 1.32, 1.32, 1.32])
    >>> moderate(found, np.full(4, 1e4)).round(2)
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
    """Mean weighted by the inverse variances."""
    weights = 1 / (errors + excess)
    return float(weights @ z / weights.sum())


def _excess(z: Array, errors: Array) -> float:
    r"""The variance e ≥ 0 beside the errors for which :math:`\sum_k (z_k - \bar z)^2/(e + \epsilon_k) = K - 1`."""

    def surplus(e: float) -> float:
        return float(((z - _mean(z, errors, e)) ** 2 / (errors + e)).sum()) - (len(z) - 1)

    # Without any errors e would be the plain variance; with them it is smaller.
    return float(brentq(surplus, 0.0, z.var(ddof=1) * (1 + 1e-9))) if surplus(0.0) > 0 else 0.0


def _trigamma_inverse(value: float) -> float:
    """The h with ψ'(h) = value, from 1/h < ψ'(h) < 1/h + 1/h²."""
    high = (1 + np.sqrt(1 + 4 * value)) / (2 * value)
    return float(brentq(lambda h: zeta(2, h) - value, 0.5 / value, 2 * high))


class SingleFits(NamedTuple):
    """What fits of the single tasks say about them.

    Attributes
    ----------
    base : Quadratic
        The loss to second order at these fits, noise precisions 1.
    spectra : Spectra or None
        Its spectra.
    noise, signal, sampling : ndarrays of shape (K,)
        Noise (dispersion), signal variance and sampling variance of a coefficient, task by task.
    W : ndarray of shape (K, d) or None
        Weights of the fits; None for least squares, where the base does not depend on them.
    """

    base: Quadratic
    spectra: Spectra | None
    noise: Array
    signal: Array
    sampling: Array
    W: Array | None = None
