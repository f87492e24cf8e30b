r"""What a start needs to know of any loss: a quadratic near the fit, noise, signal and sampling variances.

The loss is replaced by the quadratic that agrees with it to second order at single-task ridge fits, whose strengths
are the noise over the signal variance; these are estimated from the quadratic in turn (penalised quasi-likelihood),
from the fit of the intercepts alone on. For a dispersion that has to be estimated Pearson's statistic has the last
word.

References
----------
Breslow & Clayton (1993), Approximate inference in generalized linear mixed models, doi:10.1080/01621459.1993.10594284.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mssl.model.coupling import Coupling
from mssl.solvers.gaussian import scale_by_task
from mssl.solvers.glm import GLMProblem
from mssl.solvers.glm_rows import GLMRows, Point
from mssl.solvers.moderation import moderate
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic
from mssl.solvers.spectra import (
    Spectra,
    design_spectra,
    gram_spectra,
    variance_components,
)

Array = NDArray[np.float64]

_ROUNDS = 6
_SETTLED = 0.2  # change of a signal variance, relative, that needs no further round
_PLENTY = 10.0  # rows per feature from which on one round tells enough, and shrinkage hardly changes the information
_CLOSE = 1e-3  # gap of a ridge fit, relative to the loss, that is close enough
_EXACT = 1e-8  # the same where a dispersion is read off the residuals
_MOST_STEPS = 50
_LEAST_SIGNAL = 1e-3  # least signal variance of a ridge fit, in units of a typical direction's sampling variance
_WIDE = 16.0  # how much wider than the signal the prior of a fit is that counts as hardly shrunk


class Linearised(NamedTuple):
    """A loss to second order at single-task fits.

    Attributes
    ----------
    base : GramQuadratic or DesignQuadratic
        The quadratic, noise precisions 1.
    spectra : Spectra
        Its spectra.
    noise, signal, sampling : ndarrays of shape (K,)
        Noise (dispersion), signal variance and sampling variance of a coefficient, task by task.
    W : ndarray of shape (K, d)
        Weights of the fits.
    """

    base: GramQuadratic | DesignQuadratic
    spectra: Spectra
    noise: Array
    signal: Array
    sampling: Array
    W: Array


def linearise(rows: GLMRows, freedom: Array, noise: Array | None) -> Linearised:
    """The loss to second order at single-task fits that are hardly shrunk.

    Parameters
    ----------
    rows : GLMRows
        Data and loss.
    freedom : ndarray of shape (K,)
        Degrees of freedom: total weight, less one where an intercept is fitted.
    noise : ndarray of shape (K,) or None
        Known dispersions; None where they have to be estimated.
    """
    base = rows.null_quadratic()
    spectra, level, signal = _components(base, freedom, noise)
    typical = spectra.typical_value()
    W = np.zeros((rows.design.n_tasks, rows.design.n_features))
    plenty = float(np.min(rows.design.task_sums(rows.weights))) >= _PLENTY * rows.design.n_features
    enough = _CLOSE if noise is not None else _EXACT
    for _ in range(1 if plenty else _ROUNDS):
        problem, point = _ridge_fit(rows, base, level, _variances(spectra, level, signal), W, enough)
        W, base = point.W, _near_quadratic(problem, point, base, reuse=plenty and noise is not None)
        previous = signal
        spectra, level, signal = _components(base, freedom, noise)
        if np.all(np.abs(signal - previous) <= _SETTLED * np.maximum(signal, previous)):
            break
    if noise is None:
        level = _pearson(rows, point, spectra, level, signal)
        level, signal = variance_components(spectra, level)
    near = Linearised(base, spectra, level, signal, np.ones(len(level)), W)
    return near._replace(sampling=_sampling(rows, near, freedom, typical, plenty))


def _components(
    base: GramQuadratic | DesignQuadratic, freedom: Array, noise: Array | None
) -> tuple[Spectra, Array, Array]:
    spectra = _spectra(base, freedom)
    return spectra, *variance_components(spectra, noise)


def _spectra(base: GramQuadratic | DesignQuadratic, freedom: Array) -> Spectra:
    return gram_spectra(base, freedom) if isinstance(base, GramQuadratic) else design_spectra(base, freedom)


def _variances(spectra: Spectra, noise: Array, signal: Array) -> Array:
    return np.maximum(signal, _LEAST_SIGNAL * noise / spectra.typical_value())


def _ridge_fit(
    rows: GLMRows,
    base: GramQuadratic | DesignQuadratic,
    noise: Array,
    variances: Array,
    W: Array,
    enough: float,
) -> tuple[GLMProblem, Point]:
    """Single-task ridge fits with given prior variances."""
    s = 1.0 / noise
    problem = GLMProblem.begin(rows, s, np.zeros(len(s)), "auto", scale_by_task(base, s))
    size = max(1.0, abs(problem.value(W)))
    step = problem.solve(Coupling.diagonal_only(1.0 / variances), W, tol=enough * size, max_iter=_MOST_STEPS)
    return problem, problem.evaluate(step.W)


def _near_quadratic(
    problem: GLMProblem, point: Point, base: GramQuadratic | DesignQuadratic, *, reuse: bool
) -> GramQuadratic | DesignQuadratic:
    """The quadratic at a point; with ``reuse``, where the fit formed a Hessian on its way, that Hessian serves again.

    Where rows are plenty a Hessian costs more than all else, and those of the last steps hardly differ.
    """
    reference = problem.reference
    formed = reference is not None and not np.may_share_memory(reference.quadratic.gram, getattr(base, "gram", None))
    if reuse and reference is not None and formed and np.all(problem.precisions == 1.0):
        held = reference.quadratic
        return replace(held, linear=held.product(point.W) - problem.slope(point))
    return problem.data.working_quadratic(point.predictor, point.intercepts)


def _pearson(rows: GLMRows, point: Point, spectra: Spectra, noise: Array, signal: Array) -> Array:
    r"""Moderated :math:`\hat\phi_k = \sum_i \omega_{ki} (y-\mu)^2/V(\mu) / (n_k - \mathrm{df}_k)` at ridge fits."""
    means = rows.loss.inverse_link(point.eta)
    squares = rows.design.task_sums(rows.weights * (rows.y - means) ** 2 / rows.loss.variance(means))
    information = spectra.values / noise[:, None]
    used = np.sum(information / (information + 1.0 / _variances(spectra, noise, signal)[:, None]), axis=1)
    totals = rows.design.task_sums(rows.weights)
    # A fit that uses up nearly all rows says nothing about the noise: a tenth of them is always left.
    freedom = np.maximum(spectra.freedom - used, 0.1 * totals)
    return moderate(np.maximum(squares / freedom, 1e-10), freedom)


def _sampling(rows: GLMRows, near: Linearised, freedom: Array, typical: Array, plenty: bool) -> Array:
    """Inverse Fisher information of a coefficient at a fit that is hardly shrunk.

    A fit shrunk as prediction likes it has predictors that are too small, and then more information than the data
    really hold, by a factor of several for labels. The prior of this fit, and of the inverse, is wide: so many times
    the larger of the signal variance and a seen direction's sampling variance, which is n/d times that of a typical
    direction where there are fewer rows than features (``typical`` is the information there, at the fit of the
    intercepts alone). Where rows are plenty the fit at hand tells the same.
    """
    seen = np.minimum(1.0, rows.design.task_sums(rows.weights) / rows.design.n_features)
    wide = _WIDE * np.maximum(near.signal, seen * near.noise / typical)
    spectra = near.spectra
    if not plenty:
        _, point = _ridge_fit(rows, near.base, near.noise, wide, near.W, _CLOSE)
        spectra = _spectra(rows.working_quadratic(point.predictor, point.intercepts), freedom)
    known = np.sum(1.0 / (spectra.values / near.noise[:, None] + 1.0 / wide[:, None]), axis=1)
    unseen = spectra.n_features - spectra.values.shape[1]
    return np.asarray((known + unseen * wide) / spectra.n_features)
