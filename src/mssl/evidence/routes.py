r"""Exact computation of the evidence and the posterior at given hyperparameters.

All routes compute the same quantities (:class:`mssl.evidence.prior.Derivatives` and the posterior of the weights) for

.. math:: V = \sum_g (X \Psi_g X^\top) \circ T_g[t, t] + \text{noise}, \qquad
          -2 \log Z = z^\top V^{-1} z + \log |V| + \sum_k \Bigl[\mathrm{spare}_k \log \sigma_k^2
          + \frac{\mathrm{rest}_k}{\sigma_k^2}\Bigr],

where t is the task of each row. They differ in the priors that they accept and in the cost per step:

=========== ============================================== =====================================
route       prior and noise                                cost per step
=========== ============================================== =====================================
``MEAN``    a shared mean, one noise variance per task     :math:`\sum_k r_k^2 (r_k + d) + K r d^2 + d^3`
``DUAL``    any                                            :math:`R^3` for R rows in total
``SHARED``  one design, one block, any noise               :math:`K^3 + r^3`
``PRIMAL``  any, errors shared on occasions                :math:`(K d)^3`
=========== ============================================== =====================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtri, dtrtrs

from mssl._typing import Array, Index, Mask
from mssl.data.factors import TaskFactors
from mssl.evidence.posterior import DualPosterior, JointPosterior, MeanPosterior, SharedPosterior, WeightPosterior, root
from mssl.evidence.prior import Derivatives, Form, Noise, Prior
from mssl.kernels.threads import threads_for

S = TypeVar("S")  # A problem, solved at one prior: it returns its derivatives and its posterior.


@dataclass(eq=False)
class Route(ABC, Generic[S]):
    """A method that computes the evidence and the posterior."""

    _last: tuple[Prior, S] | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def solve(self, prior: Prior) -> S:
        """Solve the problem at a prior."""

    def at(self, prior: Prior) -> S:
        """Return the solved problem at a prior. The last one is kept for both derivatives and posterior."""
        if self._last is None or self._last[0] is not prior:
            self._last = None  # Free its memory before the next problem is solved.
            self._last = prior, self.solve(prior)
        return self._last[1]


@dataclass(eq=False)
class MeanRoute(Route["_GivenMean"]):
    """Condition on the shared mean, given which the tasks are independent."""

    rows: TaskFactors

    def solve(self, prior: Prior) -> _GivenMean:
        """Solve the problem at a prior."""
        return _GivenMean(self.rows, prior)


class _GivenMean:
    """L⁻¹, U = L⁻¹X and L⁻¹z of tasks with V_k = L Lᵀ given the mean, and the posterior of the mean."""

    def __init__(self, rows: TaskFactors, prior: Prior) -> None:
        self.rows, self.prior = rows, prior
        spread = rows.R * np.sqrt(prior.own_variances)
        V = spread @ spread.transpose(0, 2, 1)  # NumPy sees one array twice and computes half of the products.
        diagonal = np.arange(V.shape[1])
        V[:, diagonal, diagonal] += prior.noise.variances[:, None]
        self.lower: Array = np.asarray(np.linalg.cholesky(V), dtype=float)
        for k in range(len(V) if V.shape[1] else 0):
            self.lower[k] = dtrtri(self.lower[k], lower=1)[0]
        self.U, self.white = self.lower @ rows.R, (self.lower @ rows.z[:, :, None])[:, :, 0]
        self.flat = self.U.reshape(-1, self.U.shape[2])
        self.total, self.sums = self.flat.T @ self.flat, self.white.ravel() @ self.flat
        # The scale c^½ of the shared mean's prior, and the lower factor of I + c^½ M c^½.
        self.scale = np.sqrt(prior.mean_variances)
        inner = np.eye(len(self.scale)) + self.scale[:, None] * self.total * self.scale
        self.factor = _root(inner)
        self.mean = self.scale * _solved(self.factor, self.scale * self.sums)
        self.residual = self.white - (self.flat @ self.mean).reshape(self.white.shape)

    @cached_property
    def _part(self) -> Array:
        # P_kk = L⁻ᵀ (I − U Var Uᵀ) L⁻¹; only its diagonal and its traces with single columns are needed. Var is the
        # posterior covariance of the mean, c^½ F⁻ᵀF⁻¹ c^½ for the factor F.
        part = _whitened(self.factor, (self.flat * self.scale).T).T.reshape(self.U.shape)
        return np.asarray(part @ part.transpose(0, 2, 1))

    @cached_property
    def _inverse_rows(self) -> tuple[Array, Array]:
        alpha = (self.residual[:, None, :] @ self.lower)[:, 0]
        diagonal = np.sum(self.lower * self.lower, axis=1) - np.sum(self.lower * (self._part @ self.lower), axis=1)
        return alpha, diagonal

    def inverse_rows(self) -> tuple[Array, Array]:
        """Return :math:`V^{-1}z` and the diagonal of :math:`V^{-1}`, row by row."""
        kept = np.arange(self.white.shape[1]) < self.rows.used[:, None]
        return self._inverse_rows[0][kept], self._inverse_rows[1][kept]

    def derivatives(self) -> Derivatives:
        """Return −2 log Z and its derivatives."""
        rows, noise, U, total = self.rows, self.prior.noise.variances, self.U, self.total
        log_det = 2 * float(np.sum(np.log(np.diag(self.factor))))
        filling = rows.R.shape[1] - rows.used
        log_det += -2 * float(np.sum(np.log(np.diagonal(self.lower, axis1=1, axis2=2)))) - float(
            filling @ np.log(noise)
        )
        value = float(np.sum(self.white * self.white)) - float(self.sums @ self.mean) + log_det
        value += float(rows.spare @ np.log(noise) + rows.rest @ (1 / noise))
        g = (self.residual[:, None, :] @ U)[:, 0]
        own_trace = np.diag(total) - np.sum((self._part @ U) * U, axis=(0, 1))
        taken = _whitened(self.factor, self.scale[:, None] * total)
        mean_trace = np.diag(total) - np.sum(taken * taken, axis=0)
        alpha, diagonal = self._inverse_rows
        trace = np.maximum(diagonal.sum(axis=1) - filling / noise, 0.0)
        of_noise = trace + rows.spare / noise, np.sum(alpha * alpha, axis=1) + rows.rest / noise**2
        # A and C of the variances of the deviations and of the mean, column by column.
        own = np.array([np.maximum(own_trace, 0.0), np.sum(g * g, axis=0)])
        mean = np.array([np.maximum(mean_trace, 0.0), g.sum(axis=0) ** 2])
        forms = []
        for block in self.prior.blocks:
            psi = block.features.values
            A, C = map(Form, (own[:, block.columns] @ psi).tolist(), (mean[:, block.columns] @ psi).tolist())
            forms.append((A, C))
        t, v = self.prior.common[self.prior.block].T
        down, up = v * own + t * mean
        return Derivatives(value, forms, down, up, of_noise)

    def posterior(self) -> WeightPosterior:
        """Return the posterior of the weights."""
        mean_root = _whitened(self.factor, np.diag(self.scale)).T
        own = self.prior.own_variances
        coef = self.mean + own * (self.residual[:, None, :] @ self.U)[:, 0]
        return MeanPosterior(coef, self.U, self.mean, mean_root, own)


@dataclass(eq=False)
class DualRoute(Route["_AllRows"]):
    """Factor the covariance of all rows."""

    rows: TaskFactors

    @cached_property
    def flat(self) -> tuple[Array, Array, Index]:
        """Features, targets and tasks of all rows, task after task."""
        return self.rows.flat()

    @cached_property
    def pairs(self) -> Index:
        """Index of each pair of rows, by their tasks, in a flattened (K, K) matrix."""
        task = self.flat[2]
        return task[:, None] * self.rows.n_tasks + task

    def solve(self, prior: Prior) -> _AllRows:
        """Solve the problem at a prior."""
        return _AllRows(self, prior)


class _AllRows:
    """The covariance V of all rows, and the scaled kernel matrix of the features of each block."""

    def __init__(self, route: DualRoute, prior: Prior) -> None:
        self.route, self.prior = route, prior
        self.X, self.z, self.task = route.flat
        self.V, self.kernels = np.diag(prior.noise.variances[self.task]), []
        for block, T in zip(prior.blocks, prior.covariances, strict=True):
            scaled = self.X[:, block.columns] * np.sqrt(block.features.values)
            self.kernels.append(scaled @ scaled.T)  # NumPy sees one array twice and computes half of the products.
            among = T.take(route.pairs)
            among *= self.kernels[-1]
            self.V += among

    @cached_property
    def _inverse(self) -> tuple[Array, Array, float]:
        half, log_det = _half_inverse(self.V)
        return half, half @ self.z + self.z @ half, log_det

    def inverse_rows(self) -> tuple[Array, Array]:
        """Return :math:`V^{-1}z` and the diagonal of :math:`V^{-1}`, row by row."""
        return self._inverse[1], 2 * np.diag(self._inverse[0])

    def derivatives(self) -> Derivatives:
        """Return −2 log Z and its derivatives."""
        rows, prior, noise, X, task = self.route.rows, self.prior, self.prior.noise.variances, self.X, self.task
        K = rows.n_tasks
        half, alpha, log_det = self._inverse  # V⁻¹ = half + halfᵀ, so that products need one half and a transpose.
        value = float(self.z @ alpha) + log_det + float(rows.spare @ np.log(noise) + rows.rest @ (1 / noise))
        g = _task_sums(alpha[:, None] * X, rows.used)
        noise_trace = np.bincount(task, 2 * np.diag(half), K) + rows.spare / noise
        squares = np.bincount(task, alpha * alpha, K) + rows.rest / noise**2
        forms, down, up = [], np.zeros(X.shape[1]), np.zeros(X.shape[1])
        for block, kernel, T in zip(prior.blocks, self.kernels, prior.covariances, strict=True):
            psi, own, of = block.features.values, X[:, block.columns], g[:, block.columns]
            up[block.columns] = np.sum(of * (T @ of), axis=0)
            sums = _task_sums(_task_sums(half * kernel, rows.used).T, rows.used)
            A, C = Form.of(sums + sums.T), Form.of((of * psi) @ of.T)
            if block.tasks.plain or block.features.size:
                down[block.columns] = 2 * np.sum(own * ((half * T.take(self.route.pairs)) @ own), axis=0)
            forms.append((A, C))
        return Derivatives(value, forms, down, up, (noise_trace, squares))

    def posterior(self) -> WeightPosterior:
        """Return the posterior of the weights."""
        prior, lower = self.prior, _root(self.V)
        alpha = _solved(lower, self.z)
        noise = prior.noise.variances[self.task]
        return DualPosterior(
            self.X, self.task, noise, lower, alpha, prior.covariances, prior.block, prior.psi, prior.common
        )


@dataclass(eq=False)
class SharedRoute(Route["_Diagonal"]):
    r"""Diagonalise V by two eigendecompositions, for one shared design and one T.

    With :math:`\Omega = L L^\top`, :math:`L^{-1} T L^{-\top} = Q \Lambda Q^\top` and
    :math:`X \Psi X^\top = U D U^\top`, V is diagonal in the basis :math:`L Q \otimes U`, with entries
    :math:`1 + \lambda_k d_i`.

    Attributes
    ----------
    X : ndarray of shape (r, d)
        Compressed features.
    Z : ndarray of shape (r, K)
        Targets.
    spare : float
        Number of occasions minus the number of compressed rows (and one for a flat intercept).
    rest : ndarray of shape (K, K)
        Cross products of the parts of the targets that no feature explains.
    """

    X: Array
    Z: Array
    spare: float
    rest: Array

    def solve(self, prior: Prior) -> _Diagonal:
        """Solve the problem at a prior."""
        return _Diagonal(self, prior)


class _Diagonal:
    """The basis that diagonalises V: FᵀΩF = I, FᵀTF = Λ, and the weights 1/(1 + λ_k d_i)."""

    def __init__(self, route: SharedRoute, prior: Prior) -> None:
        self.route, self.prior, X = route, prior, route.X
        lower = np.linalg.inv(np.linalg.cholesky(prior.noise.covariance))
        self.T = prior.covariances[0]
        values, Q = np.linalg.eigh(lower @ self.T @ lower.T)
        d, self.U = np.linalg.eigh((X * prior.psi) @ X.T)
        self.F, self.values, self.d = lower.T @ Q, np.maximum(values, 0.0), np.maximum(d, 0.0)
        self.weight = 1 / (1 + np.outer(self.d, self.values))
        self.turned = self.U.T @ route.Z @ self.F
        self.alpha = self.U @ (self.weight * self.turned) @ self.F.T
        self.g = self.alpha.T @ X

    def derivatives(self) -> Derivatives:
        """Return −2 log Z and its derivatives."""
        route, weight, psi, g = self.route, self.weight, self.prior.psi, self.g
        omega = self.prior.noise.covariance
        inverse, log_det = np.linalg.inv(omega), np.linalg.slogdet(omega)[1]
        value = float(np.sum(weight * self.turned**2)) - float(np.sum(np.log(weight)))
        value += float(log_det) * (len(self.d) + route.spare) + float(np.sum(inverse * route.rest))
        A, C = Form.of((self.F * (weight.T @ self.d)) @ self.F.T), Form.of((g * psi) @ g.T)
        noise_trace = (self.F * weight.sum(axis=0)) @ self.F.T + route.spare * inverse
        noise = self.alpha.T @ self.alpha + inverse @ route.rest @ inverse
        down = ((self.U.T @ route.X) ** 2).T @ (weight @ self.values)
        return Derivatives(value, [(A, C)], down, np.sum(g * (self.T @ g), axis=0), (noise_trace, noise))

    def posterior(self) -> WeightPosterior:
        """Return the posterior of the weights."""
        psi, common = self.prior.psi, self.prior.common[0]
        coef, mean = self.T @ self.g * psi, common[0] * np.sum(self.g, axis=0) * psi
        along = self.U.T @ self.route.X
        return SharedPosterior(coef, along, self.d, self.weight, self.F, self.values, self.T, psi, mean, common)


@dataclass(eq=False)
class PrimalRoute(Route["_AllWeights"]):
    r"""Factor the precision of all K d weights, for errors that are shared on occasions.

    The observed tasks of occasion o have errors with covariance :math:`\Omega_o = \Omega[o, o]`. With the inverses
    padded by zeros, :math:`G_{kl} = \sum_o (\Omega_o^{-1})_{kl} x_{ko} x_{lo}^\top` is the Gram matrix of all weights.

    Attributes
    ----------
    X : ndarray of shape (n, K, d) or (n, 1, d)
        Features of each occasion, zero where a target is missing. A shared design has length 1 on the second axis.
    Y : ndarray of shape (n, K)
        Targets, zero where missing.
    seen : ndarray of bool of shape (n, K)
        Mask of the observed targets.
    counts : ndarray of shape (n,)
        Frequency weights of the occasions.
    lost : float
        Degrees of freedom that flat intercepts use: 1 if complete occasions were centred, else 0.
    """

    X: Array
    Y: Array
    seen: Mask
    counts: Array
    lost: float

    @cached_property
    def complete(self) -> bool:
        """Whether each task has a target on each occasion."""
        return bool(self.seen.all())

    @cached_property
    def _cross(self) -> Array:
        """Cross products of all tasks' features over complete occasions, [j, k, j', l]."""
        K, d = self.Y.shape[1], self.X.shape[2]
        if self.X.shape[1] == 1:
            gram = (self.of(0) * self.counts[:, None]).T @ self.of(0)
            return np.broadcast_to(gram[:, None, :, None], (d, K, d, K))
        flat = self.X.transpose(0, 2, 1).reshape(len(self.Y), d * K)
        return np.asarray(((flat * self.counts[:, None]).T @ flat).reshape(d, K, d, K))

    def errors(self, noise: Noise) -> tuple[Array, float, Array]:
        """Return the inverse error covariances (one, or one per occasion), the sum of log|Ω_o|, and G[j, k, j', l]."""
        K, d = self.Y.shape[1], self.X.shape[2]
        omega = noise.covariance
        if self.complete:
            inverse = np.asarray(np.linalg.inv(omega), dtype=float)
            log_det = float(np.linalg.slogdet(omega)[1]) * (float(self.counts.sum()) - self.lost)
            return inverse, log_det, self._cross * inverse[None, :, None, :]
        patterns, of_row = np.unique(self.seen, axis=0, return_inverse=True)
        of_row = of_row.ravel()
        masked = omega * patterns[:, :, None] * patterns[:, None, :]
        diagonal = np.arange(K)
        masked[:, diagonal, diagonal] += ~patterns
        inverses = np.asarray(np.linalg.inv(masked), dtype=float)
        inverses[:, diagonal, diagonal] -= ~patterns
        inverses = inverses[of_row]
        G = np.empty((d, K, d, K))
        for k in range(K):
            for m in range(k + 1):
                weights = self.counts * inverses[:, k, m]
                G[:, k, :, m] = (self.of(k) * weights[:, None]).T @ self.of(m)
                G[:, m, :, k] = G[:, k, :, m].T
        return inverses, float(self.counts @ np.linalg.slogdet(masked)[1][of_row]), G

    def whitened(self, inverses: Array, values: Array) -> Array:
        """Multiply each row of values (n, K) by the inverse error covariance of its occasion."""
        if self.complete:
            return np.asarray(values @ inverses)
        return np.asarray((inverses @ values[:, :, None])[:, :, 0])

    def of(self, k: int) -> Array:
        """Return the features of one task."""
        return self.X[:, k % self.X.shape[1]]

    def noise_trace(self, inverses: Array, covariance: Array) -> Array:
        """Return the sum over occasions of Ω⁻¹ − Ω⁻¹QΩ⁻¹, where Q = x Cov(w) xᵀ over the tasks of an occasion."""
        K, d = self.Y.shape[1], self.X.shape[2]
        covariance = covariance.reshape(d, K, d, K)
        if self.complete:
            Q = np.sum(self._cross * covariance, axis=(0, 2))
            return np.asarray((float(self.counts.sum()) - self.lost) * inverses - inverses @ Q @ inverses)
        each = np.empty((len(self.Y), K, K))
        for k in range(K):
            for m in range(k + 1):
                part = np.ascontiguousarray(covariance[:, k, :, m])
                each[:, k, m] = each[:, m, k] = np.sum((self.of(k) @ part) * self.of(m), axis=1)
        left = inverses - inverses @ each @ inverses
        return np.asarray(np.einsum("o,okl->kl", self.counts, left))

    def solve(self, prior: Prior) -> _AllWeights:
        """Solve the problem at a prior."""
        return _AllWeights(self, prior)


class _AllWeights:
    """Weights (d, K) and their covariance (dK, dK); G (dK, dK), b (d, K) and inverse error covariances."""

    def __init__(self, route: PrimalRoute, prior: Prior) -> None:
        self.route, self.prior = route, prior
        K, d = route.Y.shape[1], route.X.shape[2]
        self.inverses, log_det, self.G = route.errors(prior.noise)
        white = route.whitened(self.inverses, route.Y) * route.counts[:, None]
        self.b = (white.T[:, None] @ route.X.transpose(1, 0, 2))[:, 0].T
        roots = np.linalg.cholesky(prior.covariances)[prior.block] * np.sqrt(prior.psi)[:, None, None]
        # H = I + SᵀGS with the roots as the blocks of S; Cov(w) = S H⁻¹ Sᵀ.
        turn = roots.transpose(0, 2, 1)
        H = (turn @ self.G.reshape(d, K, d * K)).reshape(d * K, d, K).transpose(1, 0, 2) @ roots
        H = np.ascontiguousarray(H.transpose(1, 0, 2)).reshape(d * K, d * K)
        H[np.arange(d * K), np.arange(d * K)] += 1.0
        half, log_inner = _half_inverse(0.5 * (H + H.T))
        covariance = (roots @ (half + half.T).reshape(d, K, d * K)).reshape(d * K, d, K).transpose(1, 0, 2) @ turn
        self.covariance = np.ascontiguousarray(covariance.transpose(1, 0, 2)).reshape(d * K, d * K)
        self.coef = (self.covariance @ self.b.ravel()).reshape(d, K)
        self.value = float(np.sum(white * route.Y)) - float(np.sum(self.coef * self.b)) + log_inner + log_det
        self.g = self.b - (self.G.reshape(d * K, d * K) @ self.coef.ravel()).reshape(d, K)

    def derivatives(self) -> Derivatives:
        """Return −2 log Z and its derivatives."""
        route, g = self.route, self.g
        d, K = g.shape
        # N = G − G Cov G; only its blocks of single columns are needed.
        along = (self.covariance @ self.G.reshape(d * K, d * K)).reshape(d * K, d, K)
        N = np.einsum("jkjl->jkl", self.G) - self.G.reshape(d, K, d * K) @ along.transpose(1, 0, 2)
        fitted = (route.X.transpose(1, 0, 2) @ self.coef.T[:, :, None])[:, :, 0].T
        alpha = route.whitened(self.inverses, np.where(route.seen, route.Y - fitted, 0.0))
        noise = (route.noise_trace(self.inverses, self.covariance), (alpha * route.counts[:, None]).T @ alpha)
        forms = []
        for block in self.prior.blocks:
            psi, of = block.features.values, g[block.columns]
            forms.append((Form.of(np.einsum("j,jkl->kl", psi, N[block.columns])), Form.of((of.T * psi) @ of)))
        T = self.prior.covariances[self.prior.block]
        down, up = np.sum(T * N, axis=(1, 2)), np.sum(g * (T @ g[:, :, None])[:, :, 0], axis=1)
        return Derivatives(self.value, forms, down, up, noise)

    def posterior(self) -> WeightPosterior:
        """Return the posterior of the weights."""
        d, K = self.g.shape
        reach = self.prior.mean_variances
        # The posterior variance of the mean is its prior variance minus the reduction by the covariance N of all g.
        sums = self.G.sum(axis=1).reshape(d, d * K)
        N = self.G.sum(axis=(1, 3)) - sums @ self.covariance @ sums.T
        spread = np.diag(reach) - reach[:, None] * N * reach
        factor = root(self.covariance).reshape(d, K, d * K).transpose(1, 0, 2)
        return JointPosterior(self.coef.T, factor, reach * self.g.sum(axis=1), root(spread), self.prior.own_variances)


def _root(V: Array) -> Array:
    """Return the lower Cholesky factor of V; if rounding makes V singular, a small multiple of I is added."""
    for lift in (0.0, 1e-14, 1e-12):
        raised = V + lift * V.diagonal().max(initial=0.0) * np.eye(len(V)) if lift else V
        lower, failed = dpotrf(raised, lower=1, clean=1)
        if not failed:
            return np.asarray(lower)
    raise np.linalg.LinAlgError("the covariance of the rows is not positive definite")


def _solved(lower: Array, b: Array) -> Array:
    """Return (L Lᵀ)⁻¹b."""
    return np.asarray(dpotrs(lower, b, lower=1)[0]) if b.size else b


def _whitened(lower: Array, b: Array) -> Array:
    """Return L⁻¹b."""
    return np.asarray(dtrtrs(lower, b, lower=1)[0]) if b.size else b


def _half_inverse(V: Array) -> tuple[Array, float]:
    """Return the upper triangle of V⁻¹ with half of its diagonal, and log |V|."""
    if not len(V):
        return V, 0.0
    with threads_for(len(V)):
        lower = _root(V)
        log_det = 2 * float(np.sum(np.log(np.diag(lower))))
        half, _ = dpotri(lower, lower=1, overwrite_c=1)  # The other triangle stays zero.
    half[np.diag_indices(len(V))] *= 0.5
    return half.T, log_det  # LAPACK's columns are NumPy's rows.


def _task_sums(values: Array, counts: Index) -> Array:
    """Return the sums over each task's consecutive rows; a task may have no rows."""
    sums = np.zeros((len(counts), *values.shape[1:]))
    full = counts > 0
    if full.any():
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        sums[full] = np.add.reduceat(values, starts[full], axis=0)
    return sums
