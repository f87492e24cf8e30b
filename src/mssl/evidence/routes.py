r"""Exact computations with the weights integrated out, at given hyperparameters.

All routes compute the same numbers (:class:`mssl.evidence.prior.Derivatives` and the posterior of the weights) for

.. math:: V = \sum_g (X \Psi_g X^\top) \circ T_g[t, t] + \text{noise}, \qquad
          -2 \log Z = z^\top V^{-1} z + \log |V| + \sum_k \Bigl[\mathrm{spare}_k \log \sigma_k^2
          + \frac{\mathrm{rest}_k}{\sigma_k^2}\Bigr],

where t is the task of each row. They differ in what they can do and what they cost a step:

=========== ============================================== =====================================
route       prior and noise                                cost
=========== ============================================== =====================================
``MEAN``    a shared mean, own noise of each task          :math:`\sum_k r_k^2 (r_k + d) + K r d^2 + d^3`
``DUAL``    any                                            :math:`R^3`, R rows in all
``SHARED``  one design, one block, any noise               :math:`K^3 + r^3`
``PRIMAL``  any, errors shared on occasions                :math:`(K d)^3`
=========== ============================================== =====================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtri, dtrtrs

from mssl._typing import Array, Index, Mask
from mssl.data.factors import TaskFactors
from mssl.evidence.posterior import DualPosterior, JointPosterior, MeanPosterior, SharedPosterior, WeightPosterior, root
from mssl.evidence.prior import Derivatives, Form, Noise, Prior
from mssl.kernels.threads import threads_for


class Solved(Protocol):
    """The problem at one prior."""

    def derivatives(self) -> Derivatives:
        """−2 log Z and its derivatives."""

    def posterior(self) -> WeightPosterior:
        """The weights' posterior."""


S = TypeVar("S", bound=Solved)


@dataclass(eq=False)
class Route(ABC, Generic[S]):
    """A way to compute with the weights integrated out."""

    _last: tuple[Prior, S] | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def solve(self, prior: Prior) -> S:
        """Solve at a prior."""

    def at(self, prior: Prior) -> S:
        """The problem at a prior; it is solved once where derivatives and posterior are wanted."""
        if self._last is None or self._last[0] is not prior:
            self._last = None  # its memory serves the next
            self._last = prior, self.solve(prior)
        return self._last[1]

    def derivatives(self, prior: Prior) -> Derivatives:
        """−2 log Z and its derivatives."""
        return self.at(prior).derivatives()

    def posterior(self, prior: Prior) -> WeightPosterior:
        """The weights' posterior."""
        return self.at(prior).posterior()


@dataclass(eq=False)
class MeanRoute(Route["_GivenMean"]):
    """Condition on the mean that all tasks share: tasks are then independent of each other."""

    rows: TaskFactors

    def solve(self, prior: Prior) -> _GivenMean:
        """Solve at a prior."""
        return _GivenMean(self.rows, prior)


class _GivenMean:
    """Tasks with V_k = L Lᵀ given the mean: L⁻¹, U = L⁻¹X and L⁻¹z, and the mean's posterior."""

    def __init__(self, rows: TaskFactors, prior: Prior) -> None:
        self.rows, self.prior = rows, prior
        spread = rows.R * np.sqrt(prior.own_variances)
        V = spread @ spread.transpose(0, 2, 1)  # one array twice: half of the products are made
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
        # P_kk = L⁻ᵀ (I − U Var Uᵀ) L⁻¹, of which traces with single columns and the diagonal are wanted; Var, the
        # posterior covariance of the mean, is c^½ F⁻ᵀF⁻¹ c^½ for the factor F.
        part = _whitened(self.factor, (self.flat * self.scale).T).T.reshape(self.U.shape)
        return np.asarray(part @ part.transpose(0, 2, 1))

    @cached_property
    def _inverse_rows(self) -> tuple[Array, Array]:
        alpha = (self.residual[:, None, :] @ self.lower)[:, 0]
        diagonal = np.sum(self.lower * self.lower, axis=1) - np.sum(self.lower * (self._part @ self.lower), axis=1)
        return alpha, diagonal

    def inverse_rows(self) -> tuple[Array, Array]:
        """:math:`V^{-1}z` and the diagonal of :math:`V^{-1}`, row by row."""
        kept = np.arange(self.white.shape[1]) < self.rows.used[:, None]
        return self._inverse_rows[0][kept], self._inverse_rows[1][kept]

    def derivatives(self) -> Derivatives:
        """−2 log Z and its derivatives."""
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
        # A and C of the variances of the tasks' own parts and of the mean, column by column.
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
        """The weights' posterior."""
        mean_root = _whitened(self.factor, np.diag(self.scale)).T
        own = self.prior.own_variances
        coef = self.mean + own * (self.residual[:, None, :] @ self.U)[:, 0]
        return MeanPosterior(coef, self.U, self.mean, mean_root, own)


@dataclass(eq=False)
class DualRoute(Route["_AllRows"]):
    """Work with the covariance of all rows; noise may be given for each row (sites of a GLM)."""

    rows: TaskFactors

    @cached_property
    def flat(self) -> tuple[Array, Array, Index]:
        """The rows one below the other: features, targets, task of each."""
        return self.rows.flat()

    @cached_property
    def pairs(self) -> Index:
        """For two rows the place of their tasks in a flat (K, K) matrix."""
        task = self.flat[2]
        return task[:, None] * self.rows.n_tasks + task

    def solve(self, prior: Prior) -> _AllRows:
        """Solve at a prior."""
        return _AllRows(self, prior)


class _AllRows:
    """The covariance V of all rows, and products of the rows' features block by block, scaled."""

    def __init__(self, route: DualRoute, prior: Prior) -> None:
        self.route, self.prior = route, prior
        self.X, self.z, self.task = route.flat
        self.V, self.kernels = np.diag(prior.noise.variances[self.task]), []
        for block, T in zip(prior.blocks, prior.covariances, strict=True):
            scaled = self.X[:, block.columns] * np.sqrt(block.features.values)
            self.kernels.append(scaled @ scaled.T)  # one array twice: half of the products are made
            among = T.take(route.pairs)
            among *= self.kernels[-1]
            self.V += among

    @cached_property
    def _inverse(self) -> tuple[Array, Array, float]:
        half, log_det = _half_inverse(self.V)
        return half, half @ self.z + self.z @ half, log_det

    def inverse_rows(self) -> tuple[Array, Array]:
        """:math:`V^{-1}z` and the diagonal of :math:`V^{-1}`, row by row."""
        return self._inverse[1], 2 * np.diag(self._inverse[0])

    def derivatives(self) -> Derivatives:
        """−2 log Z and its derivatives."""
        rows, prior, noise, X, task = self.route.rows, self.prior, self.prior.noise.variances, self.X, self.task
        K = rows.n_tasks
        half, alpha, log_det = self._inverse  # V⁻¹ is the half plus its transpose, and so are products with it
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
        """The weights' posterior."""
        prior, lower = self.prior, _root(self.V)
        alpha = _solved(lower, self.z)
        noise = prior.noise.variances[self.task]
        return DualPosterior(
            self.X, self.task, noise, lower, alpha, prior.covariances, prior.block, prior.psi, prior.common
        )


@dataclass(eq=False)
class SharedRoute(Route["_Diagonal"]):
    r"""One design for all tasks and one T: two eigendecompositions make V diagonal.

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
        Occasions outside the compressed rows.
    rest : ndarray of shape (K, K)
        Products of what no feature can explain.
    """

    X: Array
    Z: Array
    spare: float
    rest: Array

    def solve(self, prior: Prior) -> _Diagonal:
        """Solve at a prior."""
        return _Diagonal(self, prior)


class _Diagonal:
    """The basis that makes V diagonal: FᵀΩF = I, FᵀTF = Λ, and the weights 1/(1 + λ_k d_i)."""

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
        """−2 log Z and its derivatives."""
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
        """The weights' posterior."""
        psi, common = self.prior.psi, self.prior.common[0]
        coef, mean = self.T @ self.g * psi, common[0] * np.sum(self.g, axis=0) * psi
        along = self.U.T @ self.route.X
        return SharedPosterior(coef, along, self.d, self.weight, self.F, self.values, self.T, psi, mean, common)


@dataclass(eq=False)
class PrimalRoute(Route["_AllWeights"]):
    r"""Work with the precision of all K d weights, where errors are shared on occasions.

    On occasion o the tasks with a target there have errors with covariance :math:`\Omega_o = \Omega[o, o]`; with their
    inverses, padded by zeros, :math:`G_{kl} = \sum_o (\Omega_o^{-1})_{kl} x_{ko} x_{lo}^\top` is the Gram matrix of all
    weights.

    Attributes
    ----------
    X : ndarray of shape (n, K, d) or (n, 1, d)
        Features on every occasion, zero where a task has no target; one design for all tasks has length 1.
    Y : ndarray of shape (n, K)
        Targets, zero where missing.
    seen : ndarray of bool of shape (n, K)
        Which targets are there.
    counts : ndarray of shape (n,)
        Frequency weights of the occasions.
    lost : float
        Degrees of freedom that were taken by flat intercepts: 1 where complete occasions were centred.
    """

    X: Array
    Y: Array
    seen: Mask
    counts: Array
    lost: float

    @cached_property
    def complete(self) -> bool:
        """Whether every task has a target on every occasion."""
        return bool(self.seen.all())

    @cached_property
    def _cross(self) -> Array:
        """Products of all tasks' features over complete occasions, [j, k, j', l]."""
        K, d = self.Y.shape[1], self.X.shape[2]
        if self.X.shape[1] == 1:
            gram = (self.of(0) * self.counts[:, None]).T @ self.of(0)
            return np.broadcast_to(gram[:, None, :, None], (d, K, d, K))
        flat = self.X.transpose(0, 2, 1).reshape(len(self.Y), d * K)
        return np.asarray(((flat * self.counts[:, None]).T @ flat).reshape(d, K, d, K))

    def errors(self, noise: Noise) -> tuple[Array, float, Array]:
        """Inverse error covariances (one, or one an occasion), their log determinants' sum, and G[j, k, j', l]."""
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
        """Rows of values (n, K) times the inverse error covariance of their occasion."""
        if self.complete:
            return np.asarray(values @ inverses)
        return np.asarray((inverses @ values[:, :, None])[:, :, 0])

    def of(self, k: int) -> Array:
        """Features of one task."""
        return self.X[:, k % self.X.shape[1]]

    def noise_trace(self, inverses: Array, covariance: Array) -> Array:
        """Sum over occasions of Ω⁻¹ − Ω⁻¹QΩ⁻¹, with Q = x Cov(w) xᵀ over the tasks of an occasion."""
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
        """Solve at a prior."""
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
        """−2 log Z and its derivatives."""
        route, g = self.route, self.g
        d, K = g.shape
        # N = G − G Cov G, of which the blocks of single columns are wanted.
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
        """The weights' posterior."""
        d, K = self.g.shape
        reach = self.prior.mean_variances
        # Variance of the mean: its prior, less what the covariance N of all g takes away.
        sums = self.G.sum(axis=1).reshape(d, d * K)
        N = self.G.sum(axis=(1, 3)) - sums @ self.covariance @ sums.T
        spread = np.diag(reach) - reach[:, None] * N * reach
        factor = root(self.covariance).reshape(d, K, d * K).transpose(1, 0, 2)
        return JointPosterior(self.coef.T, factor, reach * self.g.sum(axis=1), root(spread), self.prior.own_variances)


def _root(V: Array) -> Array:
    """The lower Cholesky factor of V, lifted as far as rounding needs: targets may hold hardly any noise."""
    for lift in (0.0, 1e-14, 1e-12):
        raised = V + lift * V.diagonal().max(initial=0.0) * np.eye(len(V)) if lift else V
        lower, failed = dpotrf(raised, lower=1, clean=1)
        if not failed:
            return np.asarray(lower)
    raise np.linalg.LinAlgError("the covariance of the rows is not positive definite")


def _solved(lower: Array, b: Array) -> Array:
    """(L Lᵀ)⁻¹b."""
    return np.asarray(dpotrs(lower, b, lower=1)[0]) if b.size else b


def _whitened(lower: Array, b: Array) -> Array:
    """L⁻¹b."""
    return np.asarray(dtrtrs(lower, b, lower=1)[0]) if b.size else b


def _half_inverse(V: Array) -> tuple[Array, float]:
    """The upper half of V⁻¹, with half its diagonal, and log |V|."""
    if not len(V):
        return V, 0.0
    with threads_for(len(V)):
        lower = _root(V)
        log_det = 2 * float(np.sum(np.log(np.diag(lower))))
        half, _ = dpotri(lower, lower=1, overwrite_c=1)  # the other half stays zero
    half[np.diag_indices(len(V))] *= 0.5
    return half.T, log_det  # LAPACK's columns are NumPy's rows


def _task_sums(values: Array, counts: Index) -> Array:
    """Sums over each task's rows, which lie one below the other; tasks may have none."""
    sums = np.zeros((len(counts), *values.shape[1:]))
    full = counts > 0
    if full.any():
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        sums[full] = np.add.reduceat(values, starts[full], axis=0)
    return sums
