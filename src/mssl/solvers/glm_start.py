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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mssl.coupling import Coupling
from mssl.solvers.gaussian import scale_by_task
from mssl.solvers.glm import GLMProblem
from mssl.solvers.glm_rows import GLMRows, Point
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic
from mssl.solvers.spectral_start import (
    Spectra,
    design_spectra,
    gram_spectra,
    sampling_variances,
    variance_components,
)

Array = NDArray[np.float64]

_ROUNDS = 8
_DEAR = 2e11  # multiplications in a set of Grams from which on a round takes several steps
_CLOSE = 1e-3  # gap of a ridge fit, relative to the loss, that is close enough
_EXACT = 1e-8  # the same where a dispersion is read off the residuals
_SETTLED = 0.05  # change of a signal variance, relative, that needs no further round
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
    """

    base: GramQuadratic | DesignQuadratic
    spectra: Spectra
    noise: Array
    signal: Array
    sampling: Array


def linearise(rows: GLMRows, freedom: Array, noise: Array | None) -> Linearised:
    """The loss to second order at single-task fits that agree with their own variance components.

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
    d = rows.design.n_features
    dear = isinstance(base, GramQuadratic) and float(rows.design.n_total) * d**2 > _DEAR
    W = np.zeros((rows.design.n_tasks, d))
    for _ in range(_ROUNDS):
        # The quadratic is the Hessian at W: one Newton step, or some more where forming it takes long.
        point, close = _ridge_fit(rows, base, spectra, level, signal, W, 4 if dear else 1)
        W, base = point.W, rows.working_quadratic(point.predictor, point.intercepts)
        previous = signal
        spectra, level, signal = _components(base, freedom, noise)
        if close and np.all(np.abs(signal - previous) <= _SETTLED * np.maximum(signal, previous)):
            break
    if noise is None:
        point, _ = _ridge_fit(rows, base, spectra, level, signal, W, 50, _EXACT)
        level = _pearson(rows, point, spectra, level, signal)
        spectra, level, signal = _components(base, freedom, level)
    near = Linearised(base, spectra, level, signal, np.ones(len(level)))
    return near._replace(sampling=_sampling(rows, near, freedom, W))


def _components(
    base: GramQuadratic | DesignQuadratic, freedom: Array, noise: Array | None
) -> tuple[Spectra, Array, Array]:
    spectra = _spectra(base, freedom)
    return spectra, *variance_components(spectra, noise)


def _spectra(base: GramQuadratic | DesignQuadratic, freedom: Array) -> Spectra:
    return gram_spectra(base, freedom) if isinstance(base, GramQuadratic) else design_spectra(base, freedom)


def _ridges(spectra: Spectra, noise: Array, signal: Array) -> Array:
    return np.asarray(1.0 / np.maximum(signal, _LEAST_SIGNAL * noise / spectra.typical_value()))


def _ridge_fit(
    rows: GLMRows,
    base: GramQuadratic | DesignQuadratic,
    spectra: Spectra,
    noise: Array,
    signal: Array,
    W: Array,
    max_iter: int,
    enough: float = _CLOSE,
) -> tuple[Point, bool]:
    """Single-task fits with the ridges that the variance components imply, and whether they are close to the best."""
    s = 1.0 / noise
    problem = GLMProblem.begin(rows, s, np.zeros(len(s)), "auto", scale_by_task(base, s))
    size = max(1.0, abs(problem.value(W)))
    coupling = Coupling.diagonal_only(_ridges(spectra, noise, signal))
    step = problem.solve(coupling, W, tol=enough * size, max_iter=max_iter)
    return problem.evaluate(step.W), step.gap <= enough * size


def _pearson(rows: GLMRows, point: Point, spectra: Spectra, noise: Array, signal: Array) -> Array:
    r"""Dispersions :math:`\hat\phi_k = \sum_i \omega_{ki} (y-\mu)^2/V(\mu) / (n_k - \mathrm{df}_k)` at ridge fits."""
    means = rows.loss.inverse_link(point.eta)
    squares = rows.design.task_sums(rows.weights * (rows.y - means) ** 2 / rows.loss.variance(means))
    information = spectra.values / noise[:, None]
    used = np.sum(information / (information + _ridges(spectra, noise, signal)[:, None]), axis=1)
    totals = rows.design.task_sums(rows.weights)
    # A fit that uses up nearly all rows says nothing about the noise: a tenth of them is always left.
    freedom = np.maximum(spectra.freedom - used, 0.1 * totals)
    return np.maximum(squares / freedom, 1e-10)


def _sampling(rows: GLMRows, near: Linearised, freedom: Array, W: Array) -> Array:
    """Inverse Fisher information of a coefficient at a fit that is hardly shrunk.

    A fit shrunk as prediction likes it has predictors that are too small, and then more information than the data
    really hold, by a factor of several for labels. The prior of this fit, and of the inverse, is wide: so many times
    the larger of the signal variance and a typical direction's sampling variance (times n/d where there are fewer rows
    than features).
    """
    typical = near.noise / near.spectra.typical_value()
    known = np.minimum(1.0, rows.design.task_sums(rows.weights) / rows.design.n_features)
    wide = _WIDE * np.maximum(near.signal, known * typical)
    point, _ = _ridge_fit(rows, near.base, near.spectra, near.noise, wide, W, 50)
    spectra = _spectra(rows.working_quadratic(point.predictor, point.intercepts), freedom)
    return sampling_variances(spectra, near.noise, wide)
