"""What is known about the weights after the data: means, covariances, draws, and new tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from mssl._typing import Array, Index


class WeightPosterior(Protocol):
    """A Gaussian over all tasks' weights, in the units of the fit."""

    @property
    def coef(self) -> Array:
        """Posterior means, shape (K, d)."""

    @property
    def mean(self) -> Array:
        """Expected weights of a task without rows, shape (d,): the mean that all tasks share."""

    def variance(self, X: Array, task: int) -> Array:
        """Variance of x·w_k for every row x."""

    def covariance(self, task: int) -> Array:
        """Covariance of one task's weights, shape (d, d)."""

    def total_variance(self, X: Array, shares: Array) -> Array:
        """Variance of Σ_k s_k x·w_k for every row x."""

    def new_variance(self, X: Array) -> Array:
        """Variance of x·w for a task that has no rows."""

    def new_covariance(self) -> Array:
        """Covariance of the weights of a task that has no rows, shape (d, d)."""

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Draws of all tasks' weights, shape (count, K, d)."""


def _rows_variance(X: Array, covariance: Array) -> Array:
    return np.maximum(np.sum(X * (X @ covariance), axis=1), 0.0)


def root(covariance: Array) -> Array:
    """A factor F with F Fᵀ = covariance, also where that is singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


@dataclass(frozen=True, eq=False)
class MeanPosterior:
    r"""Tasks that are independent given the mean m that they share.

    With :math:`M_k = U_k^\top U_k` and the prior variances A of deviations, :math:`w_k` given m has covariance
    :math:`A - A M_k A` and moves with m by :math:`I - A M_k`.

    Attributes
    ----------
    coef : ndarray of shape (K, d)
        Posterior means.
    U : ndarray of shape (K, r, d)
        Whitened rows of each task: what its rows teach beyond the mean.
    mean : ndarray of shape (d,)
        Posterior mean of the shared mean.
    mean_covariance : ndarray of shape (d, d)
        Its covariance.
    deviation : ndarray of shape (d,)
        A, prior variances of a task's deviations from the mean.
    """

    coef: Array
    U: Array
    mean: Array
    mean_covariance: Array
    deviation: Array

    def _within(self, task: int) -> Array:
        scaled = self.U[task] * self.deviation
        return np.asarray(np.diag(self.deviation) - scaled.T @ scaled)

    def _link(self, task: int) -> Array:
        U = self.U[task]
        return np.asarray(np.eye(len(self.mean)) - self.deviation[:, None] * (U.T @ U))

    def covariance(self, task: int) -> Array:
        """Covariance of one task's weights."""
        link = self._link(task)
        return self._within(task) + np.asarray(link @ self.mean_covariance @ link.T)

    def variance(self, X: Array, task: int) -> Array:
        """Variance of x·w_k for every row x."""
        scaled = X * self.deviation
        along = scaled @ self.U[task].T
        moved = X - along @ self.U[task]
        own = np.sum(X * scaled, axis=1) - np.sum(along * along, axis=1)
        return np.maximum(own, 0.0) + _rows_variance(moved, self.mean_covariance)

    def total_variance(self, X: Array, shares: Array) -> Array:
        """Variance of Σ_k s_k x·w_k for every row x."""
        scaled = X * self.deviation
        prior = np.sum(X * scaled, axis=1)
        own, moved = np.zeros(len(X)), shares.sum() * X
        for k in np.flatnonzero(shares).tolist():
            along = scaled @ self.U[k].T
            own += shares[k] ** 2 * np.maximum(prior - np.sum(along * along, axis=1), 0.0)
            moved = moved - shares[k] * (along @ self.U[k])
        return own + _rows_variance(moved, self.mean_covariance)

    def new_covariance(self) -> Array:
        """Covariance of the weights of a task that has no rows."""
        return np.asarray(self.mean_covariance + np.diag(self.deviation))

    def new_variance(self, X: Array) -> Array:
        """Variance of x·w for a task that has no rows."""
        return _rows_variance(X, self.new_covariance())

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Draws of all tasks' weights."""
        K, d = self.coef.shape
        mean = rng.standard_normal((count, d)) @ root(self.mean_covariance).T
        draws = np.empty((count, K, d))
        for k in range(K):
            own = rng.standard_normal((count, d)) @ root(self._within(k)).T
            draws[:, k] = self.coef[k] + mean @ self._link(k).T + own
        return draws


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """All weights' joint covariance, as a factor.

    Attributes
    ----------
    coef : ndarray of shape (K, d)
        Posterior means.
    factor : ndarray of shape (K, d, m)
        Deviations are this times m standard normal numbers.
    mean : ndarray of shape (d,)
        Posterior mean of the shared mean.
    mean_covariance : ndarray of shape (d, d)
        Its covariance.
    deviation : ndarray of shape (d,)
        Prior variances of a task's deviations from the mean.
    """

    coef: Array
    factor: Array
    mean: Array
    mean_covariance: Array
    deviation: Array

    def covariance(self, task: int) -> Array:
        """Covariance of one task's weights."""
        return np.asarray(self.factor[task] @ self.factor[task].T)

    def variance(self, X: Array, task: int) -> Array:
        """Variance of x·w_k for every row x."""
        return _rows_variance(X, self.covariance(task))

    def total_variance(self, X: Array, shares: Array) -> Array:
        """Variance of Σ_k s_k x·w_k for every row x."""
        return np.asarray(np.sum((X @ np.tensordot(shares, self.factor, axes=1)) ** 2, axis=1))

    def new_covariance(self) -> Array:
        """Covariance of the weights of a task that has no rows."""
        return np.asarray(self.mean_covariance + np.diag(self.deviation))

    def new_variance(self, X: Array) -> Array:
        """Variance of x·w for a task that has no rows."""
        return _rows_variance(X, self.new_covariance())

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Draws of all tasks' weights."""
        return np.asarray(
            self.coef + np.einsum("kdm,nm->nkd", self.factor, rng.standard_normal((count, self.factor.shape[2])))
        )


@dataclass(frozen=True, eq=False)
class SharedPosterior:
    r"""One design for all tasks, in the basis :math:`F \otimes U` that makes V diagonal.

    Attributes
    ----------
    coef : ndarray of shape (K, d)
        Posterior means.
    along : ndarray of shape (r, d)
        :math:`U^\top X`.
    d : ndarray of shape (r,)
        Eigenvalues of :math:`X \Psi X^\top`.
    weight : ndarray of shape (r, K)
        1/(1 + d_i λ_k).
    F : ndarray of shape (K, K)
        FᵀΩF = I, FᵀTF = diag(λ).
    values : ndarray of shape (K,)
        λ.
    T : ndarray of shape (K, K)
        Prior covariance over tasks.
    scale : ndarray of shape (d,)
        Relevance of each column.
    mean : ndarray of shape (d,)
        Posterior mean of the shared mean.
    common : ndarray of shape (2,)
        Variances of the mean and of a task's deviation from it.
    """

    coef: Array
    along: Array
    d: Array
    weight: Array
    F: Array
    values: Array
    T: Array
    scale: Array
    mean: Array
    common: Array

    def _variance(self, X: Array, prior: float, reach: Array) -> Array:
        """Prior variance of x·w less what the rows take; reach is the covariance of its task with the basis."""
        taken = self.weight @ reach**2
        turned = (X * self.scale) @ self.along.T
        return np.maximum(prior * ((X * X) @ self.scale) - (turned * turned) @ taken, 0.0)

    def _covariance(self, prior: float, reach: Array) -> Array:
        along = self.along * self.scale
        return np.asarray(np.diag(prior * self.scale) - (along * (self.weight @ reach**2)[:, None]).T @ along)

    def variance(self, X: Array, task: int) -> Array:
        """Variance of x·w_k for every row x."""
        return self._variance(X, float(self.T[task, task]), self.T[task] @ self.F)

    def total_variance(self, X: Array, shares: Array) -> Array:
        """Variance of Σ_k s_k x·w_k for every row x."""
        return self._variance(X, float(shares @ self.T @ shares), shares @ self.T @ self.F)

    def covariance(self, task: int) -> Array:
        """Covariance of one task's weights."""
        return self._covariance(float(self.T[task, task]), self.T[task] @ self.F)

    def new_variance(self, X: Array) -> Array:
        """Variance of x·w for a task that has no rows."""
        return self._variance(X, float(self.common.sum()), self.common[0] * self.F.sum(axis=0))

    def new_covariance(self) -> Array:
        """Covariance of the weights of a task that has no rows."""
        return self._covariance(float(self.common.sum()), self.common[0] * self.F.sum(axis=0))

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Draws of all tasks' weights."""
        K, D = self.coef.shape
        base = np.linalg.inv(self.F).T * np.sqrt(self.values)  # T = base baseᵀ
        half = np.sqrt(self.scale)
        turned = self.along * half
        shrink = (1 - np.sqrt(self.weight)) / np.maximum(self.d, 1e-300)[:, None]
        normal = rng.standard_normal((count, K, D))
        normal -= np.einsum("nkd,rd,rk,re->nke", normal, turned, shrink, turned, optimize=True)
        return np.asarray(self.coef + np.einsum("kq,nqd->nkd", base, normal) * half)


@dataclass(frozen=True, eq=False)
class DualPosterior:
    """Rows and their covariance's factor: cheaper than covariances where there are fewer rows than features.

    Attributes
    ----------
    X : ndarray of shape (R, d)
        Compressed rows.
    task : ndarray of int of shape (R,)
        Their tasks.
    noise : ndarray of shape (R,)
        Their noise variances.
    lower : ndarray of shape (R, R)
        Cholesky factor of V.
    alpha : ndarray of shape (R,)
        V⁻¹z.
    T : ndarray of shape (G, K, K)
        Covariance over tasks of each block.
    block : ndarray of int of shape (d,)
        Block of each column.
    psi : ndarray of shape (d,)
        Relevance of each column.
    common : ndarray of shape (G, 2)
        Variance of the mean that a new task has in common with all others, and that of its deviation, of each block.
    """

    X: Array
    task: Index
    noise: Array
    lower: Array
    alpha: Array
    T: Array
    block: Index
    psi: Array
    common: Array

    @property
    def coef(self) -> Array:
        """Posterior means."""
        return self._weights(self.alpha)

    def _weights(self, alpha: Array) -> Array:
        """T g Ψ, g_k the sum over the task's rows of α x."""
        K = self.T.shape[1]
        g = np.zeros((K, len(self.psi)))
        np.add.at(g, self.task, alpha[:, None] * self.X)
        coef = np.empty_like(g)
        for block, T in enumerate(self.T):
            of = self.block == block
            coef[:, of] = T @ g[:, of] * self.psi[of]
        return coef

    @property
    def mean(self) -> Array:
        """Posterior mean of the mean that all tasks share."""
        return np.asarray(self.common[self.block, 0] * self.psi * (self.alpha @ self.X))

    def _reduction(self, X: Array, share: Array) -> Array:
        """L⁻¹ cov(z, x·w), shape (R, n); share[g] is the covariance of the rows' tasks with the one in question."""
        cross = np.zeros((len(self.X), len(X)))
        for block in range(len(self.T)):
            of = self.block == block
            cross += share[block][:, None] * ((self.X[:, of] * self.psi[of]) @ X[:, of].T)
        return np.asarray(solve_triangular(self.lower, cross, lower=True))

    def variance(self, X: Array, task: int) -> Array:
        """Variance of x·w_k for every row x."""
        prior = (X * X) @ (self.T[self.block, task, task] * self.psi)
        turned = self._reduction(X, self.T[:, self.task, task])
        return np.maximum(prior - np.sum(turned * turned, axis=0), 0.0)

    def total_variance(self, X: Array, shares: Array) -> Array:
        """Variance of Σ_k s_k x·w_k for every row x."""
        reach = self.T @ shares
        prior = (X * X) @ ((reach @ shares)[self.block] * self.psi)
        turned = self._reduction(X, reach[:, self.task])
        return np.maximum(prior - np.sum(turned * turned, axis=0), 0.0)

    def covariance(self, task: int) -> Array:
        """Covariance of one task's weights."""
        turned = self._reduction(np.eye(len(self.psi)), self.T[:, self.task, task])
        return np.asarray(np.diag(self.T[self.block, task, task] * self.psi) - turned.T @ turned)

    def _shared(self) -> Array:
        return np.repeat(self.common[:, :1], len(self.task), axis=1)

    def new_variance(self, X: Array) -> Array:
        """Variance of x·w for a task that has no rows."""
        prior = (X * X) @ (self.common.sum(axis=1)[self.block] * self.psi)
        turned = self._reduction(X, self._shared())
        return np.maximum(prior - np.sum(turned * turned, axis=0), 0.0)

    def new_covariance(self) -> Array:
        """Covariance of the weights of a task that has no rows."""
        turned = self._reduction(np.eye(len(self.psi)), self._shared())
        return np.asarray(np.diag(self.common.sum(axis=1)[self.block] * self.psi) - turned.T @ turned)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Draws of all tasks' weights: prior draws, corrected by what rows drawn from them would have taught."""
        K, d, R = self.T.shape[1], len(self.psi), len(self.X)
        normal = rng.standard_normal((count, K, d))
        prior = np.empty((count, K, d))
        for block, T in enumerate(self.T):
            of = self.block == block
            prior[:, :, of] = (root(T) @ normal[:, :, of]) * np.sqrt(self.psi[of])
        seen = np.sqrt(self.noise) * rng.standard_normal((count, R))
        for k in range(K):
            own = self.task == k
            seen[:, own] += prior[:, k] @ self.X[own].T
        alpha = cho_solve((self.lower, True), seen.T).T
        learned = np.empty((count, K, d))
        for k in range(K):
            own = self.task == k
            learned[:, k] = alpha[:, own] @ self.X[own]
        for block, T in enumerate(self.T):
            of = self.block == block
            learned[:, :, of] = (T @ learned[:, :, of]) * self.psi[of]
        return np.asarray(self.coef + prior - learned)
