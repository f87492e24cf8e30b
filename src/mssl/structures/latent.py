r"""A sparse plus low-rank task precision: a graph among the tasks, given a few hidden variables.

A hidden variable such as a season or a market relates all tasks, which a sparse graph cannot express. If hidden
variables are integrated out, the precision of the tasks is :math:`\Omega = S - L`. S is the sparse precision given the
hidden variables, and the rank of :math:`L \succeq 0` is the number of hidden variables. One convex problem gives both,

.. math:: \min_{S,\, L \succeq 0,\; \Omega = S - L \succ 0}\; \operatorname{tr}(M'\Omega) - \log\det\Omega
          + \lambda\sum_{i\ne j} a_{ij}|S_{ij}| + \psi\operatorname{tr}(DL),

with :math:`M' = M + \operatorname{diag}(e)` the moment of Q and the floors, :math:`D = \operatorname{diag}(v + e)` and
:math:`a_{ij} = \sqrt{D_{ii}D_{jj}}`, so that the result does not depend on units. Its dual is

.. math:: \max_Z\; \log\det(M' + Z) + K \quad\text{over}\quad
          Z_{ii} = 0,\; |Z_{ij}| \le \lambda a_{ij},\; Z \succeq -\psi D.

The dual set does not depend on the moment. A dual point therefore certifies the same Ω after the moment has changed,
and its gap is of second order in that change.

**Algorithm.** ADMM has the three blocks Ω, S, L over the subspace :math:`\Omega = S - L`, each with a closed form.
M' is first scaled to a unit diagonal, which is an exact change of variables. The multiplier of S satisfies all
constraints of the dual except :math:`Z \succeq -\psi D`; scaling makes it satisfy this constraint too.

References
----------
Chandrasekaran, Parrilo & Willsky (2012), *Latent variable graphical model selection via convex optimization*,
doi:10.1214/11-AOS949; Ma, Xue & Zou (2013), *Alternating direction methods for latent variable Gaussian graphical model
selection*, doi:10.1162/NECO_a_00379.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg

from mssl._renamed import old_names
from mssl._typing import Array, Moment, VarianceFloor
from mssl._validation import check_number
from mssl.glasso.solver import LOOK, PATIENCE, UNBALANCED
from mssl.structures.base import StructureScale, StructureStep
from mssl.structures.known import KnownEdges
from mssl.structures.sparse import SparseGraph

_MAX_ITERATIONS = 5000  # safeguard: limit of ADMM iterations in one update, which then reports a larger gap
# Number of iterations after which ρ stays fixed. ADMM converges for a fixed ρ only; adapting it speeds up the start.
_LAST_BALANCE = 2 * PATIENCE


class LatentParts(NamedTuple):
    """The parts of Ω = S − L, and a dual point that certifies them.

    Attributes
    ----------
    sparse : ndarray of shape (K, K)
        S, with exact zeros for pairs without an edge.
    low_rank : ndarray of shape (K, K)
        L, positive semidefinite.
    dual : ndarray of shape (K, K)
        Z.
    """

    sparse: Array
    low_rank: Array
    dual: Array


@old_names(edges="edge_constraints")
@dataclass(eq=False, repr=False)
class LatentSparsePrecision(SparseGraph):
    r"""A sparse graph among the tasks, given a few hidden variables that affect many tasks: Ω = S − L.

    .. math:: \frac{c\eta}{2}\Big[\operatorname{tr}(M\Omega) - \log\det\Omega + \lambda\sum_{i\ne j} a_{ij}|S_{ij}|
              + \psi\sum_i (v_i + e_i) L_{ii} + \sum_i e_i\Omega_{ii}\Big],\qquad L \succeq 0.

    The graph is that of S. Its edges relate two tasks beyond the hidden variables. With a large ψ
    (:math:`\psi \ge \lambda(K-1)` is enough) there are no hidden variables, and the model is :class:`SparsePrecision`.

    Parameters
    ----------
    alpha : float, default=0.3
        λ, the price of an edge, on the correlation scale.
    latent : float, default=0.5
        ψ, the price of hidden variables, on the same scale. Smaller values allow more of them. Below λ, a hidden
        variable costs less than the edge between two tasks that it explains.
    coupling, variance_floor, shrinkage, on, edge_constraints
        As in :class:`SparsePrecision`.

    References
    ----------
    Chandrasekaran, Parrilo & Willsky (2012), doi:10.1214/11-AOS949.

    Examples
    --------
    >>> from mssl import MultiTaskGLM
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(random_state=0)
    >>> model = MultiTaskGLM(LatentSparsePrecision(0.4, latent=0.4)).fit(data.X, data.y, tasks=data.tasks)
    >>> model.graph_.n_edges <= 78
    True
    """

    alpha: float = 0.3
    _: KW_ONLY
    latent: float = 0.5
    coupling: float = 1.0
    variance_floor: VarianceFloor = "auto"
    shrinkage: float = 0.0
    on: str = "coef"
    edge_constraints: KnownEdges | None = None

    def check(self, n_tasks: int) -> None:
        super().check(n_tasks)
        remedy = "At 0, hidden variables cost nothing and the graph has no meaning. The default is 0.5."
        check_number("latent", self.latent, above=0, remedy=remedy)

    def graph(self, step: StructureStep) -> Array:
        """S, whose zeros are the pairs without an edge."""
        return step.precision if step.warm is None else np.asarray(step.warm.sparse)

    def low_rank(self, step: StructureStep) -> Array:
        """L, the part of the hidden variables. Its rank is their number."""
        return np.zeros_like(step.precision) if step.warm is None else np.asarray(step.warm.low_rank)

    def certify(self, S: Moment, step: StructureStep, scale: StructureScale) -> StructureStep:
        problem = _Scaled(self, S, scale)
        parts = step.warm
        if parts is None:
            parts = LatentParts(step.precision, np.zeros_like(step.precision), np.zeros_like(step.precision))
        value, gap = problem.certify(problem.scaled(parts, problem.size))
        weight = self.weight(scale)
        return StructureStep(step.precision, step.covariance, weight * value, weight * gap, step.warm)

    def update(self, S: Moment, step: StructureStep, scale: StructureScale, tol: float) -> StructureStep:
        problem, weight = _Scaled(self, S, scale), self.weight(scale)
        before = self.certify(S, step, scale)
        parts = None if step.warm is None else problem.scaled(step.warm, problem.size)
        found = problem.solve(parts, tol / weight)
        if found is None or weight * found[1] > before.value:
            return before
        parts, value, gap = problem.scaled(found[0], 1 / problem.size), *found[1:]
        precision = parts.sparse - parts.low_rank
        covariance = linalg.cho_solve(linalg.cho_factor(precision, lower=True), np.eye(len(precision)))
        return StructureStep(precision, (covariance + covariance.T) / 2, weight * value, weight * gap, parts)


class _Scaled:
    """The problem with M' scaled to a unit diagonal."""

    def __init__(self, structure: LatentSparsePrecision, M: Array, scale: StructureScale) -> None:
        floors = structure.floors(scale)
        root = np.sqrt(M.diagonal() + floors)
        self.root, self.size = root, root[:, None] * root
        self.M = (M + np.diag(floors)) / self.size
        self.prices = structure.prices(scale)[0] / self.size
        np.fill_diagonal(self.prices, 0.0)
        self.latent = structure.latent * (scale.variances + floors) / root**2
        self.constant = 2.0 * float(np.log(root).sum())

    def scaled(self, parts: LatentParts, units: Array) -> LatentParts:
        """The parts in other units. ``size`` converts to the units of this problem, 1 / ``size`` converts back."""
        return LatentParts(parts.sparse * units, parts.low_rank * units, parts.dual / units)

    def value(self, S: Array, L: Array) -> float:
        """The objective in the user's units; infinite if S − L is not positive definite."""
        omega = S - L
        log_determinant = _log_determinant(omega)
        off = S != 0
        np.fill_diagonal(off, False)
        price = float(np.sum(self.prices[off] * np.abs(S[off])) + self.latent @ L.diagonal())
        return float(np.vdot(self.M, omega)) - log_determinant + price + self.constant

    def bound(self, Z: Array) -> tuple[float, Array]:
        """Scale Z down until it is a dual point; return the dual value and the point."""
        root = np.sqrt(self.latent)
        lowest = -float(np.linalg.eigvalsh(Z / root[:, None] / root)[0])
        Z = Z / max(lowest, 1.0)
        while (log_determinant := _log_determinant(self.M + Z)) == -np.inf and Z.any():
            Z = 0.5 * Z
        return log_determinant + len(Z) + self.constant, Z

    def certify(self, parts: LatentParts) -> tuple[float, float]:
        """Value and gap of S and L.

        The dual point is theirs, or the inverse of S − L less M' clipped to the prices; the better one counts.
        """
        value = self.value(parts.sparse, parts.low_rank)
        best = self.bound(parts.dual)[0]
        if np.isfinite(value):
            Z = np.clip(np.linalg.inv(parts.sparse - parts.low_rank) - self.M, -self.prices, self.prices)
            best = max(best, self.bound((Z + Z.T) / 2)[0])
        return value, max(value - best, 0.0)

    def solve(self, parts: LatentParts | None, tol: float) -> tuple[LatentParts, float, float] | None:
        """Run ADMM until the gap is at most ``tol``; return the best S, L and Z with their value and gap."""
        K, M = len(self.M), self.M
        rho, T = 1.0, np.zeros((K, K)) if parts is None else parts.dual
        S = np.diag(1.0 / M.diagonal()) if parts is None else parts.sparse
        L = np.zeros((K, K)) if parts is None else parts.low_rank
        R = S - L
        best: tuple[LatentParts, float, float] | None = None
        T = T / rho
        for iteration in range(1, _MAX_ITERATIONS + 1):
            x, V = np.linalg.eigh(rho * (R - T) - M)
            omega = (V * ((x + np.sqrt(x**2 + 4.0 * rho)) / (2.0 * rho))) @ V.T
            A = S + T
            sparse = np.sign(A) * np.maximum(np.abs(A) - self.prices / rho, 0.0)
            x, V = np.linalg.eigh(L - T - np.diag(self.latent) / rho)
            low = (V * np.maximum(x, 0.0)) @ V.T
            # The projection onto Ω = S − L changes all blocks by the same matrix, which also updates the multipliers.
            mismatch = (omega - sparse + low) / 3.0
            before, T = (R, S, L), T + mismatch
            R, S, L = omega - mismatch, sparse + mismatch, low - mismatch
            if iteration % LOOK and iteration > 1:
                continue
            value = self.value(sparse, low)
            if np.isfinite(value):
                bound, Z = self.bound(rho * (A - sparse))
                gap = max(value - bound, 0.0)
                if best is None or gap < best[2]:
                    best = LatentParts(sparse, low, Z), value, gap
                if gap <= tol:
                    return best
            if iteration <= _LAST_BALANCE:
                primal = np.sqrt(3.0) * np.linalg.norm(mismatch)
                dual = np.sqrt(sum(np.linalg.norm(new - old) ** 2 for new, old in zip((R, S, L), before, strict=True)))
                if max(primal, dual) > UNBALANCED * min(primal, dual):
                    factor = UNBALANCED if primal > dual else 1 / UNBALANCED
                    rho, T = rho * factor, T / factor
        return best


def _log_determinant(matrix: Array) -> float:
    """Log determinant of a symmetric matrix; −∞ if it is not positive definite."""
    try:
        return 2.0 * float(np.log(np.linalg.cholesky(matrix).diagonal()).sum())
    except np.linalg.LinAlgError:
        return -np.inf
