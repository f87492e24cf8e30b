"""Posterior distributions of the weights: means, covariances, draws, and new tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from mssl._typing import Array, Index

# Largest number of compressed rows, or of weights, whose covariance is factored as one matrix. A limit on time: beyond
# it a step takes seconds, and a likelihood of relations between tasks takes minutes.
LARGEST_FACTORED = 5_000


class Parts(NamedTuple):
    """Covariance of x·w over rows x as x·diag(own)·x plus the products of ``more`` minus the products of ``less``."""

    own: Array
    more: Array
    less: Array


class WeightPosterior(ABC):
    """A Gaussian distribution of all tasks' weights, in the units of the fit.

    Attributes
    ----------
    coef : ndarray of shape (K, d)
        Posterior means.
    mean : ndarray of shape (d,)
        Expected weights of a task without rows, which are the posterior mean of the shared mean.
    """

    coef: Array
    mean: Array

    @abstractmethod
    def _parts(self, X: Array, shares: Array | None) -> Parts:
        """Return the parts of the covariance of Σ_k s_k x·w_k or, without shares, of x·w for a task without rows."""

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return draws of all tasks' weights, shape (count, K, d)."""

    def variance(self, X: Array, shares: Array | None) -> Array:
        """Return the variance of Σ_k s_k x·w_k for each row x; without shares, of x·w for a task without rows."""
        own, more, less = self._parts(X, shares)
        return np.maximum((X * X) @ own + np.sum(more * more, axis=1) - np.sum(less * less, axis=1), 0.0)

    def covariance(self, shares: Array | None) -> Array:
        """Return the covariance of Σ_k s_k w_k or, without shares, of the weights of a task without rows, (d, d)."""
        own, more, less = self._parts(np.eye(len(self.mean)), shares)
        return np.asarray(np.diag(own) + more @ more.T - less @ less.T)

    def covariances(self) -> Sequence[Array]:
        """Return the covariance of each task's weights."""
        return list(map(self.covariance, np.eye(len(self.coef))))


def quadratic_forms(X: Array, covariance: Array) -> Array:
    """Return the variance of x·w for each row x, where w has this covariance."""
    return np.maximum(np.sum(X * (X @ covariance), axis=1), 0.0)


def root(covariance: Array) -> Array:
    """Return F with F Fᵀ = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


class _AroundMean(WeightPosterior):
    """A posterior that holds the shared mean and derives new tasks from it."""

    mean_root: Array
    deviation: Array

    def _parts(self, X: Array, shares: Array | None) -> Parts:
        if shares is None:
            return Parts(self.deviation, X @ self.mean_root, X[:, :0])
        return self._known_parts(X, shares)

    @abstractmethod
    def _known_parts(self, X: Array, shares: Array) -> Parts:
        """Return the parts of the covariance of Σ_k s_k x·w_k."""

    @staticmethod
    def _state_from_version_2(state: dict[str, Any]) -> dict[str, Any]:
        """Convert the state of a version-2 file, which holds the covariance of the mean instead of its factor."""
        return state | {"mean_root": root(state.pop("mean_covariance"))}


@dataclass(frozen=True, eq=False)
class MeanPosterior(_AroundMean):
    r"""Posterior of tasks that are independent given their shared mean m.

    With :math:`M_k = U_k^\top U_k` and the prior variances A of deviations, :math:`w_k` given m has covariance
    :math:`A - A M_k A` and moves with m by :math:`I - A M_k`.

    Attributes
    ----------
    coef : ndarray of shape (K, d)
        Posterior means.
    U : ndarray of shape (K, r, d)
        Whitened rows of each task.
    mean : ndarray of shape (d,)
        Posterior mean of the shared mean.
    mean_root : ndarray of shape (d, d)
        Factor of the posterior covariance of the shared mean, which is this matrix times its transpose.
    deviation : ndarray of shape (d,)
        A, prior variances of a task's deviations from the mean.
    """

    coef: Array
    U: Array
    mean: Array
    mean_root: Array
    deviation: Array

    def _known_parts(self, X: Array, shares: Array) -> Parts:
        scaled, moved, less = X * self.deviation, shares.sum() * X, [X[:, :0]]
        for k in np.flatnonzero(shares).tolist():
            less.append(shares[k] * (scaled @ self.U[k].T))
            moved = moved - less[-1] @ self.U[k]
        return Parts(float(shares @ shares) * self.deviation, moved @ self.mean_root, np.concatenate(less, axis=1))

    def _given_mean(self) -> tuple[Array, Array]:
        """Return the covariances of the weights given the mean, and their slopes in it, both of shape (K, d, d)."""
        scaled = (self.U * self.deviation).transpose(0, 2, 1)
        links = np.eye(len(self.mean)) - scaled @ self.U
        return np.diag(self.deviation) - scaled @ scaled.transpose(0, 2, 1), links

    def covariances(self) -> Sequence[Array]:
        """Return the covariance of each task's weights."""
        within, links = self._given_mean()
        moved = links @ self.mean_root
        return list(within + moved @ moved.transpose(0, 2, 1))

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return draws of all tasks' weights."""
        K, d = self.coef.shape
        mean = rng.standard_normal((count, d)) @ self.mean_root.T
        draws = np.empty((count, K, d))
        for k, (within, link) in enumerate(zip(*self._given_mean(), strict=True)):
            draws[:, k] = self.coef[k] + mean @ link.T + rng.standard_normal((count, d)) @ root(within).T
        return draws


@dataclass(frozen=True, eq=False)
class JointPosterior(_AroundMean):
    """Posterior with a factor of the joint covariance of all weights.

    Attributes
    ----------
    coef : ndarray of shape (K, d)
        Posterior means.
    factor : ndarray of shape (K, d, m)
        Factor of the joint covariance: this times m standard normal numbers is a draw of the deviations from ``coef``.
    mean : ndarray of shape (d,)
        Posterior mean of the shared mean.
    mean_root : ndarray of shape (d, d)
        Factor of the posterior covariance of the shared mean, which is this matrix times its transpose.
    deviation : ndarray of shape (d,)
        Prior variances of a task's deviations from the mean.
    """

    coef: Array
    factor: Array
    mean: Array
    mean_root: Array
    deviation: Array

    def _known_parts(self, X: Array, shares: Array) -> Parts:
        return Parts(np.zeros(X.shape[1]), X @ np.tensordot(shares, self.factor, axes=1), X[:, :0])

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return draws of all tasks' weights."""
        normal = rng.standard_normal((count, self.factor.shape[2]))
        return np.asarray(self.coef + np.einsum("kdm,nm->nkd", self.factor, normal))


@dataclass(frozen=True, eq=False)
class SharedPosterior(WeightPosterior):
    r"""Posterior for one shared design, in the basis :math:`F \otimes U` that diagonalises V.

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
        Variances of the shared mean and of a task's deviation from it.
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

    def _parts(self, X: Array, shares: Array | None) -> Parts:
        # The reach is the prior covariance with the weights of the tasks.
        reach = np.full(len(self.T), self.common[0]) if shares is None else shares @ self.T
        own = float(self.common.sum() if shares is None else reach @ shares)
        taken = (X * self.scale) @ self.along.T * np.sqrt(self.weight @ (reach @ self.F) ** 2)
        return Parts(own * self.scale, X[:, :0], taken)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return draws of all tasks' weights."""
        K, D = self.coef.shape
        base = np.linalg.inv(self.F).T * np.sqrt(self.values)  # T = base baseᵀ
        half = np.sqrt(self.scale)
        turned = self.along * half
        shrink = (1 - np.sqrt(self.weight)) / np.maximum(self.d, 1e-300)[:, None]
        normal = rng.standard_normal((count, K, D))
        normal -= np.einsum("nkd,rd,rk,re->nke", normal, turned, shrink, turned, optimize=True)
        return np.asarray(self.coef + np.einsum("kq,nqd->nkd", base, normal) * half)


@dataclass(frozen=True, eq=False)
class DualPosterior(WeightPosterior):
    """Posterior by the covariance of the rows, which is cheap if the rows are fewer than the features.

    Attributes
    ----------
    X : ndarray of shape (R, d)
        Compressed rows.
    task : ndarray of int of shape (R,)
        Task of each row.
    noise : ndarray of shape (R,)
        Noise variance of each row.
    lower : ndarray of shape (R, R)
        Cholesky factor of V.
    alpha : ndarray of shape (R,)
        V⁻¹z.
    T : ndarray of shape (G, K, K)
        Task covariance of each block.
    block : ndarray of int of shape (d,)
        Block of each column.
    psi : ndarray of shape (d,)
        Relevance of each column.
    common : ndarray of shape (G, 2)
        For each block, the variance of the shared mean and the variance of a new task's deviation from it.
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

    @cached_property
    def coef(self) -> Array:  # type: ignore[override]  # Files hold the fields, from which it is computed.
        """Posterior means."""
        return self._weights(self.alpha[None])[0]

    def _weights(self, alpha: Array) -> Array:
        """Return T g Ψ for each of several α, where g_k is the sum of α x over the rows of task k."""
        g = np.zeros((len(alpha), self.T.shape[1], len(self.psi)))
        for k in range(g.shape[1]):
            own = self.task == k
            g[:, k] = alpha[:, own] @ self.X[own]
        for block, T in enumerate(self.T):
            of = self.block == block
            g[:, :, of] = (T @ g[:, :, of]) * self.psi[of]
        return g

    @cached_property
    def mean(self) -> Array:  # type: ignore[override]  # As for coef.
        """Posterior mean of the shared mean."""
        return np.asarray(self.common[self.block, 0] * self.psi * (self.alpha @ self.X))

    def _parts(self, X: Array, shares: Array | None) -> Parts:
        # The reach is the prior covariance with the weights of the tasks, block by block.
        reach = np.repeat(self.common[:, :1], self.T.shape[1], axis=1) if shares is None else self.T @ shares
        own = self.common.sum(axis=1) if shares is None else reach @ shares
        cross = np.zeros((len(self.X), len(X)))
        for block in range(len(self.T)):
            of = self.block == block
            cross += reach[block, self.task][:, None] * ((self.X[:, of] * self.psi[of]) @ X[:, of].T)
        taken = solve_triangular(self.lower, cross, lower=True, check_finite=False).T
        return Parts(own[self.block] * self.psi, X[:, :0], taken)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return draws of all tasks' weights: prior draws, conditioned on the rows by Matheron's rule."""
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
        return np.asarray(self.coef + prior - self._weights(cho_solve((self.lower, True), seen.T).T))
