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

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri, dtrtri

from mssl._typing import Array, Index, Mask
from mssl.data.factors import TaskFactors
from mssl.evidence.kernels import Form
from mssl.evidence.noise import Noise
from mssl.evidence.posterior import DualPosterior, JointPosterior, MeanPosterior, SharedPosterior, WeightPosterior, root
from mssl.evidence.prior import Derivatives, Prior
from mssl.kernels.threads import threads_for


class Route(Protocol):
    """A way to compute with the weights integrated out."""

    def derivatives(self, prior: Prior) -> Derivatives:
        """−2 log Z and its derivatives."""

    def posterior(self, prior: Prior) -> WeightPosterior:
        """The weights' posterior."""


def _forms(prior: Prior, own: Array, mean: Array) -> list[Form]:
    """The form of every plain block, of derivatives by each column's own variance and by that of its mean."""
    return [
        Form(float(own[block.columns] @ block.features.values), float(mean[block.columns] @ block.features.values))
        for block in prior.blocks
    ]


def _by_own_and_mean(
    prior: Prior,
    value: float,
    own: tuple[Array, Array],
    mean: tuple[Array, Array],
    noise: tuple[Array, Array],
    alpha: Array,
    diagonal: Array,
) -> Derivatives:
    """Derivatives where all blocks are plain: first A, then C."""
    forms = list(zip(_forms(prior, own[0], mean[0]), _forms(prior, own[1], mean[1]), strict=True))
    t, v = prior.common[prior.block].T
    down, up = (v * of_own + t * of_mean for of_own, of_mean in zip(own, mean, strict=True))
    return Derivatives(value, forms, down, up, noise, alpha, diagonal)


@dataclass(frozen=True, eq=False)
class MeanRoute:
    """Condition on the mean that all tasks share: tasks are then independent of each other."""

    rows: TaskFactors

    def _tasks(self, prior: Prior) -> tuple[Array, Array, Array]:
        """Per task, with V_k = L Lᵀ: L⁻¹, U = L⁻¹X and L⁻¹z."""
        X, z = self.rows.R, self.rows.z
        spread = X * np.sqrt(prior.own_variances)
        V = spread @ spread.transpose(0, 2, 1)  # one array twice: half of the products are made
        diagonal = np.arange(V.shape[1])
        V[:, diagonal, diagonal] += prior.noise.variances[:, None]
        lower: Array = np.asarray(np.linalg.cholesky(V), dtype=float)
        for k in range(len(lower) if V.shape[1] else 0):
            lower[k] = dtrtri(lower[k], lower=1)[0]
        return lower, lower @ X, (lower @ z[:, :, None])[:, :, 0]

    def _mean_factor(self, prior: Prior, M: Array) -> tuple[Array, Array]:
        """The scale c^½ of the shared mean's prior, and the lower factor of I + c^½ M c^½."""
        scale = np.sqrt(prior.mean_variances)
        return scale, cho_factor(np.eye(len(scale)) + scale[:, None] * M * scale, lower=True)[0]

    def derivatives(self, prior: Prior) -> Derivatives:
        """−2 log Z and its derivatives."""
        rows, noise = self.rows, prior.noise.variances
        K, r, d = rows.R.shape
        lower, U, white = self._tasks(prior)
        flat = U.reshape(K * r, d)
        total, sums = flat.T @ flat, white.ravel() @ flat
        scale, factor = self._mean_factor(prior, total)
        mean = scale * cho_solve((factor, True), scale * sums)
        log_det = 2 * float(np.sum(np.log(np.diag(factor))))
        filling = r - rows.used
        log_det += -2 * float(np.sum(np.log(np.diagonal(lower, axis1=1, axis2=2)))) - float(filling @ np.log(noise))
        value = float(np.sum(white * white)) - float(sums @ mean) + log_det
        value += float(rows.spare @ np.log(noise) + rows.rest @ (1 / noise))
        residual = white - (flat @ mean).reshape(K, r)
        g = (residual[:, None, :] @ U)[:, 0]
        # P_kk = L⁻ᵀ (I − U Var Uᵀ) L⁻¹, of which traces with single columns and the diagonal are wanted; Var, the
        # posterior covariance of the mean, is c^½ F⁻ᵀF⁻¹ c^½ for the factor F.
        part = solve_triangular(factor, (flat * scale).T, lower=True, overwrite_b=True).T.reshape(K, r, d)
        inner = part @ part.transpose(0, 2, 1)
        own_trace = np.diag(total) - np.sum((inner @ U) * U, axis=(0, 1))
        taken = solve_triangular(factor, scale[:, None] * total, lower=True, overwrite_b=True)
        mean_trace = np.diag(total) - np.sum(taken * taken, axis=0)
        alpha = (residual[:, None, :] @ lower)[:, 0]
        diagonal = np.sum(lower * lower, axis=1) - np.sum(lower * (inner @ lower), axis=1)
        trace = diagonal.sum(axis=1) - filling / noise
        kept = np.arange(r) < rows.used[:, None]
        return _by_own_and_mean(
            prior,
            value,
            (np.maximum(own_trace, 0.0), np.sum(g * g, axis=0)),
            (np.maximum(mean_trace, 0.0), g.sum(axis=0) ** 2),
            (np.maximum(trace, 0.0) + rows.spare / noise, np.sum(alpha * alpha, axis=1) + rows.rest / noise**2),
            alpha[kept],
            diagonal[kept],
        )

    def posterior(self, prior: Prior) -> WeightPosterior:
        """The weights' posterior."""
        _, U, white = self._tasks(prior)
        flat = U.reshape(-1, U.shape[2])
        scale, factor = self._mean_factor(prior, flat.T @ flat)
        covariance = scale[:, None] * cho_solve((factor, True), np.diag(scale))
        mean = covariance @ (white.ravel() @ flat)
        own = prior.own_variances
        residual = white - (flat @ mean).reshape(white.shape)
        return MeanPosterior(mean + own * (residual[:, None, :] @ U)[:, 0], U, mean, covariance, own)


@dataclass(frozen=True, eq=False)
class DualRoute:
    """Work with the covariance of all rows; noise may be given for each row (sites of a GLM)."""

    rows: TaskFactors

    @cached_property
    def _flat(self) -> tuple[Array, Array, Index]:
        return self.rows.flat()

    def _covariance(self, prior: Prior) -> tuple[list[Array], Array]:
        """Products of the rows' features block by block, scaled, and the covariance V of all rows."""
        X, _, task = self._flat
        V, kernels = np.diag(prior.noise.variances[task]), []
        for block, T in zip(prior.blocks, prior.covariances, strict=True):
            own = X[:, block.columns]
            kernels.append((own * block.features.values) @ own.T)
            V += kernels[-1] * T[task][:, task]
        return kernels, V

    def derivatives(self, prior: Prior) -> Derivatives:
        """−2 log Z and its derivatives."""
        rows, noise = self.rows, prior.noise.variances
        X, z, task = self._flat
        K = rows.n_tasks
        kernels, V = self._covariance(prior)
        P, log_det = _inverse(V)
        alpha = P @ z
        value = float(z @ alpha) + log_det + float(rows.spare @ np.log(noise) + rows.rest @ (1 / noise))
        g = _task_sums(alpha[:, None] * X, rows.used)
        noise_trace = np.bincount(task, np.diag(P), K) + rows.spare / noise
        squares = np.bincount(task, alpha * alpha, K) + rows.rest / noise**2
        forms, down, up = [], np.zeros(X.shape[1]), np.zeros(X.shape[1])
        same = task[:, None] == task
        for block, kernel, T in zip(prior.blocks, kernels, prior.covariances, strict=True):
            psi, own, of = block.features.values, X[:, block.columns], g[:, block.columns]
            up[block.columns] = np.sum(of * (T @ of), axis=0)
            if block.tasks.plain:
                t, v = block.tasks.common()
                apart = np.sum(own * ((P * same) @ own), axis=0)
                together = np.sum(own * (P @ own), axis=0)
                down[block.columns] = v * apart + t * together
                A = Form(float(apart @ psi), float(together @ psi))
                C = Form(float(np.sum(of * of, axis=0) @ psi), float(of.sum(axis=0) ** 2 @ psi))
            else:
                A = Form.of(_task_sums(_task_sums(P * kernel, rows.used).T, rows.used))
                C = Form.of((of * psi) @ of.T)
                if block.features.size:
                    down[block.columns] = np.sum(own * ((P * T[task][:, task]) @ own), axis=0)
            forms.append((A, C))
        return Derivatives(value, forms, down, up, (noise_trace, squares), alpha, np.diag(P))

    def posterior(self, prior: Prior) -> WeightPosterior:
        """The weights' posterior."""
        X, z, task = self._flat
        lower = _root(self._covariance(prior)[1])
        alpha = solve_triangular(lower, solve_triangular(lower, z, lower=True), lower=True, trans="T")
        noise = prior.noise.variances[task]
        return DualPosterior(X, task, noise, lower, alpha, prior.covariances, prior.block, prior.psi, prior.common)


@dataclass(frozen=True, eq=False)
class SharedRoute:
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

    def _basis(self, prior: Prior) -> tuple[Array, Array, Array, Array, Array]:
        lower = np.linalg.inv(np.linalg.cholesky(prior.noise.covariance))
        T = prior.covariances[0]
        values, Q = np.linalg.eigh(lower @ T @ lower.T)
        d, U = np.linalg.eigh((self.X * prior.psi) @ self.X.T)
        return lower.T @ Q, np.maximum(values, 0.0), U, np.maximum(d, 0.0), T

    def derivatives(self, prior: Prior) -> Derivatives:
        """−2 log Z and its derivatives."""
        F, values, U, d, T = self._basis(prior)  # F diagonalises: FᵀΩF = I, FᵀTF = Λ
        omega = prior.noise.covariance
        weight = 1 / (1 + np.outer(d, values))
        turned = U.T @ self.Z @ F
        alpha = U @ (weight * turned) @ F.T
        log_det = np.linalg.slogdet(omega)[1]
        value = float(np.sum(weight * turned**2)) - float(np.sum(np.log(weight))) + log_det * (len(d) + self.spare)
        inverse = np.linalg.inv(omega)
        value += float(np.sum(inverse * self.rest))
        g = alpha.T @ self.X
        A, C = Form.of((F * (weight.T @ d)) @ F.T), Form.of((g * prior.psi) @ g.T)
        noise_trace = (F * weight.sum(axis=0)) @ F.T + self.spare * inverse
        noise = alpha.T @ alpha + inverse @ self.rest @ inverse
        down = ((U.T @ self.X) ** 2).T @ (weight @ values)
        return Derivatives(value, [(A, C)], down, np.sum(g * (T @ g), axis=0), (noise_trace, noise))

    def posterior(self, prior: Prior) -> WeightPosterior:
        """The weights' posterior."""
        F, values, U, d, T = self._basis(prior)
        weight = 1 / (1 + np.outer(d, values))
        alpha = U @ (weight * (U.T @ self.Z @ F)) @ F.T
        coef = T @ (alpha.T @ self.X) * prior.psi
        along = U.T @ self.X
        mean = prior.common[0, 0] * np.sum(alpha.T @ self.X, axis=0) * prior.psi
        return SharedPosterior(coef, along, d, weight, F, values, T, prior.psi, mean, prior.common[0])


@dataclass(frozen=True, eq=False)
class PrimalRoute:
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
    def _complete(self) -> bool:
        return bool(self.seen.all())

    @cached_property
    def _cross(self) -> Array:
        """Products of all tasks' features over complete occasions, [j, k, j', l]."""
        K, d = self.Y.shape[1], self.X.shape[2]
        if self.X.shape[1] == 1:
            gram = (self._of(0) * self.counts[:, None]).T @ self._of(0)
            return np.broadcast_to(gram[:, None, :, None], (d, K, d, K))
        flat = self.X.transpose(0, 2, 1).reshape(len(self.Y), d * K)
        return np.asarray(((flat * self.counts[:, None]).T @ flat).reshape(d, K, d, K))

    def _errors(self, noise: Noise) -> tuple[Array, float, Array]:
        """Inverse error covariances (one, or one an occasion), their log determinants' sum, and G[j, k, j', l]."""
        K, d = self.Y.shape[1], self.X.shape[2]
        omega = noise.covariance
        if self._complete:
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
                G[:, k, :, m] = (self._of(k) * weights[:, None]).T @ self._of(m)
                G[:, m, :, k] = G[:, k, :, m].T
        return inverses, float(self.counts @ np.linalg.slogdet(masked)[1][of_row]), G

    def _whitened(self, inverses: Array, values: Array) -> Array:
        """Rows of values (n, K) times the inverse error covariance of their occasion."""
        if self._complete:
            return np.asarray(values @ inverses)
        return np.asarray((inverses @ values[:, :, None])[:, :, 0])

    def _solve(self, prior: Prior) -> _Primal:
        K, d = self.Y.shape[1], self.X.shape[2]
        inverses, log_det, G = self._errors(prior.noise)
        white = self._whitened(inverses, self.Y) * self.counts[:, None]
        b = np.einsum("okj,ok->jk", self._full(), white, optimize=True)
        roots = np.linalg.cholesky(prior.covariances)[prior.block] * np.sqrt(prior.psi)[:, None, None]
        # H = I + SᵀGS with the roots as the blocks of S; Cov(w) = S H⁻¹ Sᵀ.
        turn = roots.transpose(0, 2, 1)
        H = (turn @ G.reshape(d, K, d * K)).reshape(d * K, d, K).transpose(1, 0, 2) @ roots
        H = np.ascontiguousarray(H.transpose(1, 0, 2)).reshape(d * K, d * K)
        H[np.arange(d * K), np.arange(d * K)] += 1.0
        inner, log_inner = _inverse(0.5 * (H + H.T))
        covariance = (roots @ inner.reshape(d, K, d * K)).reshape(d * K, d, K).transpose(1, 0, 2) @ turn
        covariance = np.ascontiguousarray(covariance.transpose(1, 0, 2)).reshape(d * K, d * K)
        coef = (covariance @ b.ravel()).reshape(d, K)
        value = float(np.sum(white * self.Y)) - float(np.sum(coef * b)) + log_inner + log_det
        return _Primal(coef, covariance, G, b, value, inverses)

    def _of(self, k: int) -> Array:
        return np.asarray(self.X[:, 0] if self.X.shape[1] == 1 else self.X[:, k])

    def derivatives(self, prior: Prior) -> Derivatives:
        """−2 log Z and its derivatives."""
        K, d = self.Y.shape[1], self.X.shape[2]
        p = self._solve(prior)
        g = p.b - (p.G.reshape(d * K, d * K) @ p.coef.ravel()).reshape(d, K)
        # N = G − G Cov G, of which the blocks of single columns are wanted.
        along = (p.covariance @ p.G.reshape(d * K, d * K)).reshape(d * K, d, K)
        N = np.einsum("jkjl->jkl", p.G) - p.G.reshape(d, K, d * K) @ along.transpose(1, 0, 2)
        fitted = np.einsum("okj,jk->ok", self._full(), p.coef, optimize=True)
        alpha = self._whitened(p.inverses, np.where(self.seen, self.Y - fitted, 0.0))
        noise = (self._noise_trace(p), (alpha * self.counts[:, None]).T @ alpha)
        forms = []
        for block in prior.blocks:
            psi, of = block.features.values, g[block.columns]
            forms.append((Form.of(np.einsum("j,jkl->kl", psi, N[block.columns])), Form.of((of.T * psi) @ of)))
        T = prior.covariances[prior.block]
        down, up = np.sum(T * N, axis=(1, 2)), np.sum(g * (T @ g[:, :, None])[:, :, 0], axis=1)
        return Derivatives(p.value, forms, down, up, noise)

    def _noise_trace(self, p: _Primal) -> Array:
        """Sum over occasions of Ω⁻¹ − Ω⁻¹QΩ⁻¹, with Q = x Cov(w) xᵀ over the tasks of an occasion."""
        K, d = self.Y.shape[1], self.X.shape[2]
        covariance = p.covariance.reshape(d, K, d, K)
        if self._complete:
            Q = np.sum(self._cross * covariance, axis=(0, 2))
            return np.asarray((float(self.counts.sum()) - self.lost) * p.inverses - p.inverses @ Q @ p.inverses)
        each = np.empty((len(self.Y), K, K))
        for k in range(K):
            for m in range(k + 1):
                part = np.ascontiguousarray(covariance[:, k, :, m])
                each[:, k, m] = each[:, m, k] = np.sum((self._of(k) @ part) * self._of(m), axis=1)
        left = p.inverses - p.inverses @ each @ p.inverses
        return np.asarray(np.einsum("o,okl->kl", self.counts, left))

    def _full(self) -> Array:
        return np.broadcast_to(self.X, (len(self.Y), self.Y.shape[1], self.X.shape[2]))

    def posterior(self, prior: Prior) -> WeightPosterior:
        """The weights' posterior."""
        K, d = self.Y.shape[1], self.X.shape[2]
        p = self._solve(prior)
        g = p.b - (p.G.reshape(d * K, d * K) @ p.coef.ravel()).reshape(d, K)
        reach = prior.mean_variances
        mean = reach * g.sum(axis=1)
        # Variance of the mean: its prior, less what the covariance N of all g takes away.
        sums = p.G.sum(axis=1).reshape(d, d * K)
        N = p.G.sum(axis=(1, 3)) - sums @ p.covariance @ sums.T
        spread = np.diag(reach) - reach[:, None] * N * reach
        factor = root(p.covariance).reshape(d, K, d * K).transpose(1, 0, 2)
        return JointPosterior(p.coef.T, factor, mean, spread, prior.own_variances)


@dataclass(frozen=True, eq=False)
class _Primal:
    """Weights (d, K) and their covariance (dK, dK), G (d, K, d, K), b (d, K), −2 log Z, inverse error covariances."""

    coef: Array
    covariance: Array
    G: Array
    b: Array
    value: float
    inverses: Array


def _root(V: Array) -> Array:
    """The lower Cholesky factor of V, lifted as far as rounding needs: targets may hold hardly any noise."""
    for lift in (0.0, 1e-14, 1e-12):
        raised = V + lift * V.diagonal().max(initial=0.0) * np.eye(len(V)) if lift else V
        lower, failed = dpotrf(raised, lower=1, clean=1)
        if not failed:
            return np.asarray(lower)
    raise np.linalg.LinAlgError("the covariance of the rows is not positive definite")


def _inverse(V: Array) -> tuple[Array, float]:
    """V⁻¹ and log |V|."""
    if not len(V):
        return V, 0.0
    with threads_for(len(V)):
        lower = _root(V)
        P, _ = dpotri(lower, lower=1)  # the lower half; the other is zero
    diagonal = np.diag(P).copy()
    P = P + P.T
    np.fill_diagonal(P, diagonal)
    return P, 2 * float(np.sum(np.log(np.diag(lower))))


def _task_sums(values: Array, counts: Index) -> Array:
    """Sums over each task's rows, which lie one below the other; tasks may have none."""
    sums = np.zeros((len(counts), *values.shape[1:]))
    full = counts > 0
    if full.any():
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        sums[full] = np.add.reduceat(values, starts[full], axis=0)
    return sums
