r"""Exact computations with the weights integrated out, at given hyperparameters.

All routes compute the same numbers (:class:`mssl.evidence.prior.Statistics` and the posterior of the weights) for

.. math:: V = \sum_g (X \Psi_g X^\top) \circ T_g[t, t] + \text{noise}, \qquad
          -2 \log Z = z^\top V^{-1} z + \log |V| + \sum_k \Bigl[\mathrm{spare}_k \log \sigma_k^2
          + \frac{\mathrm{rest}_k}{\sigma_k^2}\Bigr],

where t is the task of each row. They differ in what they can do and what they cost a step:

=========== ============================================== =====================================
route       prior and noise                                cost
=========== ============================================== =====================================
``MEAN``    a shared mean, own noise of each task          :math:`\sum_k r_k^2 (r_k + d) + K r d^2 + d^3`
``DUAL``    any                                            :math:`R^3`, R rows in all
``SHARED``  one design, one T for all blocks, any noise    :math:`K^3 + r^3`
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
from mssl.evidence.posterior import DualPosterior, JointPosterior, MeanPosterior, SharedPosterior, WeightPosterior, root
from mssl.evidence.prior import Columns, Hyper, Statistics
from mssl.kernels.threads import threads_for


class Route(Protocol):
    """A way to compute with the weights integrated out."""

    def statistics(self, hyper: Hyper) -> Statistics:
        """−2 log Z and its derivatives."""

    def posterior(self, hyper: Hyper) -> WeightPosterior:
        """The weights' posterior."""


@dataclass(frozen=True, eq=False)
class MeanRoute:
    """Condition on the mean that all tasks share: tasks are then independent of each other."""

    rows: TaskFactors
    columns: Columns

    def _tasks(self, hyper: Hyper) -> tuple[Array, Array, Array]:
        """Per task, with V_k = L Lᵀ: L⁻¹, U = L⁻¹X and L⁻¹z."""
        X, z = self.rows.R, self.rows.z
        spread = X * np.sqrt(hyper.deviation_variances(self.columns))
        V = spread @ spread.transpose(0, 2, 1)  # one array twice: half of the products are made
        diagonal = np.arange(V.shape[1])
        V[:, diagonal, diagonal] += hyper.noise[:, None]
        lower: Array = np.asarray(np.linalg.cholesky(V), dtype=float)
        for k in range(len(lower) if V.shape[1] else 0):
            lower[k] = dtrtri(lower[k], lower=1)[0]
        return lower, lower @ X, (lower @ z[:, :, None])[:, :, 0]

    def _mean_factor(self, hyper: Hyper, M: Array) -> tuple[Array, Array]:
        """The scale c^½ of the shared mean's prior, and the lower factor of I + c^½ M c^½."""
        scale = np.sqrt(hyper.mean_variances(self.columns))
        return scale, cho_factor(np.eye(len(scale)) + scale[:, None] * M * scale, lower=True)[0]

    def statistics(self, hyper: Hyper) -> Statistics:
        """−2 log Z and its derivatives."""
        rows, noise = self.rows, hyper.noise
        K, r, d = rows.R.shape
        lower, U, white = self._tasks(hyper)
        flat = U.reshape(K * r, d)
        total, sums = flat.T @ flat, white.ravel() @ flat
        scale, factor = self._mean_factor(hyper, total)
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
        return Statistics(
            value,
            np.sum(g * g, axis=0),
            np.maximum(own_trace, 0.0),
            g.sum(axis=0) ** 2,
            np.maximum(mean_trace, 0.0),
            np.sum(alpha * alpha, axis=1) + rows.rest / noise**2,
            np.maximum(trace, 0.0) + rows.spare / noise,
            alpha=alpha[kept],
            diagonal=diagonal[kept],
        )

    def posterior(self, hyper: Hyper) -> WeightPosterior:
        """The weights' posterior."""
        _, U, white = self._tasks(hyper)
        flat = U.reshape(-1, U.shape[2])
        scale, factor = self._mean_factor(hyper, flat.T @ flat)
        covariance = scale[:, None] * cho_solve((factor, True), np.diag(scale))
        mean = covariance @ (white.ravel() @ flat)
        own = hyper.deviation_variances(self.columns)
        residual = white - (flat @ mean).reshape(white.shape)
        return MeanPosterior(mean + own * (residual[:, None, :] @ U)[:, 0], U, mean, covariance, own)


@dataclass(frozen=True, eq=False)
class DualRoute:
    """Work with the covariance of all rows; noise may be given for each row (sites of a GLM)."""

    rows: TaskFactors
    columns: Columns

    @cached_property
    def _flat(self) -> tuple[Array, Array, Index]:
        return self.rows.flat()

    @cached_property
    def _plain_kernels(self) -> list[Array]:
        """Products of the rows' features, block by block, all relevances being one."""
        return self._kernels(np.ones(len(self.columns.group)))

    def _kernels(self, psi: Array) -> list[Array]:
        X = self._flat[0]
        blocks = [self.columns.block == block for block in range(self.columns.n_blocks)]
        return [(X[:, of] * psi[of]) @ X[:, of].T for of in blocks]

    def _parts(self, hyper: Hyper) -> tuple[Array, Array, Index, list[Array], Array, Array]:
        X, z, task = self._flat
        K, columns = self.rows.n_tasks, self.columns
        kernels = self._kernels(hyper.psi[columns.group]) if columns.relevance else self._plain_kernels
        covariances = []
        V = np.diag(hyper.noise[task])
        for block, kernel in enumerate(kernels):
            T = hyper.covariance(block, K, columns.intercept and block == columns.n_blocks - 1)
            V += kernel * T[task][:, task]
            covariances.append(T)
        return X, z, task, kernels, np.asarray(covariances), V

    def statistics(self, hyper: Hyper) -> Statistics:
        """−2 log Z and its derivatives."""
        rows, columns = self.rows, self.columns
        X, z, task, kernels, _, V = self._parts(hyper)
        K = rows.n_tasks
        P, log_det = _inverse(V)
        alpha = P @ z
        noise = hyper.noise
        value = float(z @ alpha) + log_det + float(rows.spare @ np.log(noise) + rows.rest @ (1 / noise))
        g = _task_sums(alpha[:, None] * X, rows.used)
        noise_trace = np.bincount(task, np.diag(P), K) + rows.spare / noise
        squares = np.bincount(task, alpha * alpha, K) + rows.rest / noise**2
        own, mean = np.sum(g * g, axis=0), g.sum(axis=0) ** 2
        # Under a dense T the columns' own variances and means are asked for the intercept alone.
        free = np.ones(len(own), dtype=bool)
        if hyper.T is not None:
            free[: len(own) - columns.intercept] = False
        own_trace, mean_trace = np.zeros(len(own)), np.zeros(len(own))
        if free.any():
            own_trace[free] = np.sum(X[:, free] * ((P * (task[:, None] == task)) @ X[:, free]), axis=0)
            mean_trace[free] = np.sum(X[:, free] * (P @ X[:, free]), axis=0)
        if hyper.T is None:
            return Statistics(
                value, own, own_trace, mean, mean_trace, squares, noise_trace, alpha=alpha, diagonal=np.diag(P)
            )
        B, C = np.zeros((K, K)), np.zeros((K, K))
        psi = hyper.psi[columns.group]
        for block in range(columns.n_blocks - columns.intercept):
            of = columns.block == block
            sums = _task_sums(P * kernels[block], rows.used)
            B += hyper.v[block] * _task_sums(sums.T, rows.used)
            C += hyper.v[block] * (g[:, of] * psi[of]) @ g[:, of].T
        dense = np.sum(g * (hyper.T @ g), axis=0)
        several = columns.relevance or columns.n_blocks - columns.intercept > 1
        dense_trace = np.sum(X * ((P * hyper.T[task][:, task]) @ X), axis=0) if several else np.zeros(len(own))
        return Statistics(
            value,
            own,
            own_trace,
            mean,
            mean_trace,
            squares,
            noise_trace,
            B,
            C,
            dense,
            dense_trace,
            alpha,
            np.diag(P),
        )

    def posterior(self, hyper: Hyper) -> WeightPosterior:
        """The weights' posterior."""
        X, z, task, _, covariances, V = self._parts(hyper)
        lower = _root(V)
        alpha = solve_triangular(lower, solve_triangular(lower, z, lower=True), lower=True, trans="T")
        psi = hyper.psi[self.columns.group]
        common = common_variances(hyper, self.columns)
        return DualPosterior(X, task, hyper.noise[task], lower, alpha, covariances, self.columns.block, psi, common)


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
    columns: Columns

    def _basis(self, hyper: Hyper) -> tuple[Array, Array, Array, Array, Array]:
        K = self.Z.shape[1]
        omega = np.diag(hyper.noise) if hyper.noise.ndim == 1 else hyper.noise
        lower = np.linalg.inv(np.linalg.cholesky(omega))
        T = hyper.covariance(0, K, False)
        values, Q = np.linalg.eigh(lower @ T @ lower.T)
        scale = hyper.v[self.columns.block] / hyper.v[0] * hyper.psi[self.columns.group]
        d, U = np.linalg.eigh((self.X * scale) @ self.X.T)
        return lower.T @ Q, np.maximum(values, 0.0), U, np.maximum(d, 0.0), T

    def statistics(self, hyper: Hyper) -> Statistics:
        """−2 log Z and its derivatives."""
        F, values, U, d, T = self._basis(hyper)  # F diagonalises: FᵀΩF = I, FᵀTF = Λ
        omega = np.diag(hyper.noise) if hyper.noise.ndim == 1 else hyper.noise
        weight = 1 / (1 + np.outer(d, values))
        turned = U.T @ self.Z @ F
        alpha = U @ (weight * turned) @ F.T
        log_det = np.linalg.slogdet(omega)[1]
        value = float(np.sum(weight * turned**2)) - float(np.sum(np.log(weight))) + log_det * (len(d) + self.spare)
        inverse = np.linalg.inv(omega)
        value += float(np.sum(inverse * self.rest))
        g = alpha.T @ self.X
        scale = hyper.v[self.columns.block] / hyper.v[0] * hyper.psi[self.columns.group]
        along = U.T @ self.X
        P = F * (weight.T @ d) @ F.T  # B of the scaled kernel
        C = (g * scale) @ g.T
        noise_trace = (F * weight.sum(axis=0)) @ F.T + self.spare * inverse
        noise = alpha.T @ alpha + inverse @ self.rest @ inverse
        # Traces of single columns: Σ_kl P_kl,ii' over equal tasks, over all pairs, and weighted by T.
        own_trace = (along**2).T @ (weight @ np.sum(F * F, axis=0))
        mean_trace = (along**2).T @ (weight @ np.sum(F, axis=0) ** 2)
        dense_trace = (along**2).T @ (weight @ values)
        if hyper.noise.ndim == 1:
            noise, noise_trace = np.diag(noise), np.diag(noise_trace)
        own, mean = np.sum(g * g, axis=0), g.sum(axis=0) ** 2
        if hyper.T is None:
            return Statistics(value, own, own_trace, mean, mean_trace, noise, noise_trace)
        dense = np.sum(g * (T @ g), axis=0)
        return Statistics(value, own, own_trace, mean, mean_trace, noise, noise_trace, P, C, dense, dense_trace)

    def posterior(self, hyper: Hyper) -> WeightPosterior:
        """The weights' posterior."""
        F, values, U, d, T = self._basis(hyper)
        scale = hyper.v[self.columns.block] / hyper.v[0] * hyper.psi[self.columns.group]
        weight = 1 / (1 + np.outer(d, values))
        alpha = U @ (weight * (U.T @ self.Z @ F)) @ F.T
        coef = T @ (alpha.T @ self.X) * scale
        common = common_variances(hyper, self.columns)[0]
        along = U.T @ self.X
        mean = common[0] * np.sum(alpha.T @ self.X, axis=0) * scale
        return SharedPosterior(coef, along, d, weight, F, values, T, scale, mean, common)


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
    columns: Columns

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

    def _errors(self, hyper: Hyper) -> tuple[Array, float, Array]:
        """Inverse error covariances (one, or one an occasion), their log determinants' sum, and G[j, k, j', l]."""
        K, d = self.Y.shape[1], self.X.shape[2]
        omega = np.diag(hyper.noise) if hyper.noise.ndim == 1 else hyper.noise
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

    def _solve(self, hyper: Hyper) -> _Primal:
        K, d = self.Y.shape[1], self.X.shape[2]
        inverses, log_det, G = self._errors(hyper)
        white = self._whitened(inverses, self.Y) * self.counts[:, None]
        b = np.einsum("okj,ok->jk", self._full(), white, optimize=True)
        roots = np.empty((d, K, K))
        psi = hyper.psi[self.columns.group]
        for block in range(self.columns.n_blocks):
            T = hyper.covariance(block, K, self.columns.intercept and block == self.columns.n_blocks - 1)
            of = self.columns.block == block
            roots[of] = np.linalg.cholesky(T) * np.sqrt(psi[of])[:, None, None]
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

    def statistics(self, hyper: Hyper) -> Statistics:
        """−2 log Z and its derivatives."""
        K, d = self.Y.shape[1], self.X.shape[2]
        p = self._solve(hyper)
        g = p.b - (p.G.reshape(d * K, d * K) @ p.coef.ravel()).reshape(d, K)
        # N = G − G Cov G, of which the blocks of single columns are wanted.
        along = (p.covariance @ p.G.reshape(d * K, d * K)).reshape(d * K, d, K)
        N = np.einsum("jkjl->jkl", p.G) - p.G.reshape(d, K, d * K) @ along.transpose(1, 0, 2)
        own_trace, mean_trace = np.einsum("jkk->j", N), N.sum(axis=(1, 2))
        own, mean = np.sum(g * g, axis=1), g.sum(axis=1) ** 2
        fitted = np.einsum("okj,jk->ok", self._full(), p.coef, optimize=True)
        alpha = self._whitened(p.inverses, np.where(self.seen, self.Y - fitted, 0.0))
        noise = (alpha * self.counts[:, None]).T @ alpha
        noise_trace = self._noise_trace(p)
        if hyper.noise.ndim == 1:
            noise, noise_trace = np.diag(noise), np.diag(noise_trace)
        B = C = dense = dense_trace = None
        if hyper.T is not None:
            free = np.ones(d, dtype=bool)
            if self.columns.intercept:
                free[-1] = False
            scale = np.where(free, hyper.deviation_variances(self.columns), 0.0)
            B, C = np.einsum("j,jkl->kl", scale, N), (g.T * scale) @ g
            dense, dense_trace = np.sum(g * (g @ hyper.T), axis=1), np.einsum("kl,jkl->j", hyper.T, N)
        return Statistics(p.value, own, own_trace, mean, mean_trace, noise, noise_trace, B, C, dense, dense_trace)

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

    def posterior(self, hyper: Hyper) -> WeightPosterior:
        """The weights' posterior."""
        K, d = self.Y.shape[1], self.X.shape[2]
        p = self._solve(hyper)
        common = common_variances(hyper, self.columns)[self.columns.block]
        psi = hyper.psi[self.columns.group]
        g = p.b - (p.G.reshape(d * K, d * K) @ p.coef.ravel()).reshape(d, K)
        mean = common[:, 0] * psi * g.sum(axis=1)
        # Variance of the mean: its prior, less what the covariance N of all g takes away.
        sums = p.G.sum(axis=1).reshape(d, d * K)
        N = p.G.sum(axis=(1, 3)) - sums @ p.covariance @ sums.T
        reach = common[:, 0] * psi
        spread = np.diag(reach) - reach[:, None] * N * reach
        factor = root(p.covariance).reshape(d, K, d * K).transpose(1, 0, 2)
        return JointPosterior(p.coef.T, factor, mean, spread, common[:, 1] * psi)


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


def common_variances(hyper: Hyper, columns: Columns) -> Array:
    """For each block the variance that a new task has in common with all others, and that of its own, shape (G, 2)."""
    common = np.column_stack([hyper.t, hyper.v])
    if hyper.T is not None:
        v, t = hyper.centre
        common[: columns.n_blocks - columns.intercept] = np.outer(hyper.v, [t, v])[
            : columns.n_blocks - columns.intercept
        ]
    return common
