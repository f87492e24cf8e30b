r"""Structures whose best Ω has a closed form in the spectrum of WᵀW: a task covariance, or clusters of tasks.

Both are jointly convex in the weights and Ω. Minimising over Ω gives a penalty on the weights
(:class:`mssl.penalties.ClusterNorm`). With this penalty a fit is one weight step, and its certificate bounds the
distance from the global minimum. If the weights have a further penalty, the fit alternates between weights and Ω, and
the certificate holds for each block alone.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from mssl._typing import Array
from mssl._validation import check_number, check_whole_number
from mssl.penalties import ClusterNorm, memberships
from mssl.structures.base import Coupled, StructureScale, StructureStep


class _Spectral(Coupled):
    r"""A coupling :math:`\tfrac\alpha2\operatorname{tr}((W^\top W + \varepsilon I)\,\Omega)` with Ω in a convex set."""

    learned = True
    normalised = False

    @abstractmethod
    def spectrum(self, values: Array) -> Array:
        """The eigenvalues of the best Ω, from the eigenvalues of WᵀW in the same basis."""

    def _lift(self, scale: StructureScale) -> float:
        """ε, which keeps the best Ω bounded, in units of the squared norm of a task's weights."""
        return 0.0

    def _moment(self, S: Array, scale: StructureScale) -> Array:
        return scale.n_rows * S + self._lift(scale) * np.eye(len(S))

    def best(self, M: Array) -> StructureStep:
        """The Ω that minimises tr(MΩ), with its share of F."""
        values, vectors = np.linalg.eigh(M)
        omega = self.spectrum(np.maximum(values, 0.0))
        precision, covariance = (vectors * omega) @ vectors.T, (vectors / omega) @ vectors.T
        precision, covariance = (precision + precision.T) / 2, (covariance + covariance.T) / 2
        return StructureStep(precision, covariance, 0.5 * self.strength * float(np.maximum(values, 0.0) @ omega))

    def certify(self, S: Array, step: StructureStep, scale: StructureScale) -> StructureStep:
        M = self._moment(S, scale)
        value = 0.5 * self.strength * float(np.vdot(M, step.precision))
        return StructureStep(step.precision, step.covariance, value, max(value - self.best(M).value, 0.0))

    def update(self, S: Array, step: StructureStep, scale: StructureScale, tol: float) -> StructureStep:
        return self.best(self._moment(S, scale))


@dataclass(eq=False, repr=False)
class TaskCovariance(_Spectral):
    r"""A task covariance of trace 1, which is learned with the weights (MTRL).

    .. math:: \frac\alpha2\operatorname{tr}(W\Sigma^{-1}W^\top), \quad \Sigma \succeq 0,\ \operatorname{tr}\Sigma = 1;
              \qquad \hat\Sigma = \frac{(W^\top W)^{1/2}}{\operatorname{tr}(W^\top W)^{1/2}}

    Minimising over Σ gives the squared trace norm :math:`\tfrac\alpha2\|W\|_*^2`, which the fit minimises. If tasks are
    linearly dependent, as they always are with more tasks than features, :math:`W^\top W` is singular and so is Σ. The
    reported Σ therefore uses :math:`W^\top W + \varepsilon I`, and so does the fit if the weights have a further
    penalty. This raises the objective by at most
    :math:`\tfrac\alpha2[(\|W\|_* + K\sqrt\varepsilon)^2 - \|W\|_*^2]`.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength.
    smoothing : float, default=1e-6
        ε, in units of the expected squared norm of a task's weights by sampling alone.

    References
    ----------
    Zhang & Yeung (2010), *A convex formulation for learning task relationships in multi-task learning*,
    arXiv:1203.3536; extended in doi:10.1145/2538028.
    """

    alpha: float = 1.0
    smoothing: float = 1e-6

    def check(self, n_tasks: int) -> None:
        super().check(n_tasks)
        check_number("TaskCovariance: smoothing", self.smoothing, above=0)

    def _lift(self, scale: StructureScale) -> float:
        return float(self.smoothing * scale.n_rows * scale.sampling_variances.mean())

    def profile(self) -> ClusterNorm:
        return ClusterNorm(self.alpha)

    def initial(self, scale: StructureScale) -> StructureStep:
        K = scale.n_tasks
        return StructureStep(K * np.eye(K), np.eye(K) / K)

    def spectrum(self, values: Array) -> Array:
        roots = np.sqrt(np.maximum(values, 1e-14 * values.max(initial=1e-300)))
        return np.asarray(roots.sum() / roots)


@dataclass(eq=False, repr=False)
class Clustered(_Spectral):
    r"""Clusters of tasks (CMTL, convex relaxation).

    .. math:: \frac\alpha2\,\theta(1+\theta)\operatorname{tr}\big(W(\theta I + M)^{-1}W^\top\big),\qquad
              0 \preceq M \preceq I,\ \operatorname{tr} M = k

    M relaxes the projection onto k cluster indicators. Directions in which M is 1 are shrunk with strength θ, those in
    which it is 0 with strength 1 + θ. With k = K the penalty is a ridge of strength αθ.

    Parameters
    ----------
    n_clusters : int, default=2
        k.
    alpha : float, default=1.0
        Strength of the shrinkage towards the cluster means.
    spread : float, default=0.1
        θ, the strength of the shrinkage of the cluster means themselves, relative to ``alpha``.

    References
    ----------
    Zhou, Chen & Ye (2011), *Clustered multi-task learning via alternating structure optimization*, Advances in
    Neural Information Processing Systems 24; Jacob, Bach & Vert (2008), arXiv:0809.2085.
    """

    n_clusters: int = 2
    alpha: float = 1.0
    spread: float = 0.1

    def check(self, n_tasks: int) -> None:
        super().check(n_tasks)
        check_number("Clustered: spread", self.spread, above=0)
        remedy = f"There are {n_tasks} tasks."
        check_whole_number("Clustered: n_clusters", self.n_clusters, low=1, high=n_tasks, remedy=remedy)

    def initial(self, scale: StructureScale) -> StructureStep:
        K = scale.n_tasks
        omega = self._omega(np.full(K, self.n_clusters / K))
        return StructureStep(np.diag(omega), np.diag(1.0 / omega))

    def profile(self) -> ClusterNorm:
        return ClusterNorm(self.alpha * self.spread * (1.0 + self.spread), self.n_clusters, self.spread)

    def _omega(self, m: Array) -> Array:
        return np.asarray(self.spread * (1.0 + self.spread) / (self.spread + m))

    def spectrum(self, values: Array) -> Array:
        return self._omega(memberships(np.sqrt(values), self.spread, self.n_clusters))
