"""The graphical lasso scaled to a unit diagonal, split into independent components and joined again.

S is S' with unit diagonal, L the off-diagonal penalties, W a covariance inside S ± L. Everything that uses compiled
kernels imports them inside the function, so that importing this stays cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mssl.exceptions import DataError

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
DENSE = 400  # up to this size a factorisation is cheaper than what sparsity saves
WHOLE = 64  # up to this size splitting costs more than it saves
UNBOUNDED = (
    "the objective has no minimum, or one too far away to be computed: no positive definite matrix lies within the "
    "penalties of S. Penalise the diagonal (penalize_diagonal=True, diagonal_penalty > 0), raise alpha, or shrink S; "
    "if max_iter is small, raise it first."
)


class Point(NamedTuple):
    """A positive definite Ω and what is known about it."""

    precision: Array
    covariance: Array
    log_determinant: float
    trace: float  # ⟨S, Ω⟩ + Σ L|Ω|
    gap: float


class Block:
    """One component and the best point found for it so far (at first the identity, uncertified)."""

    def __init__(self, S: Array, L: Array, index: Labels) -> None:
        self.S, self.L, self.index = S, L, index
        self.W: Array | None = None  # working covariance of the descent: inside S ± L, positive definite
        self.B: Array | None = None  # row j: regression of variable j on the others
        identity = np.eye(len(S))
        self.point = Point(identity, identity, 0.0, float(len(S)), np.inf)
        self.column_tol = 1e-2  # tolerance of the columns in the next sweep
        self.n_iter = 0
        self.stuck = False  # whether rounding has put an end to all progress

    def __len__(self) -> int:
        """Number of variables."""
        return len(self.S)

    def offer(self, point: Point | None) -> None:
        """Keep the point if it is better certified than the present one."""
        if point is not None and point.gap < self.point.gap:
            self.point = point


@dataclass(eq=False)
class Problem:
    """The scaled problem, split into components; sizes 1 and 2 are solved already."""

    S: Array
    L: Array
    root: Array  # square roots of the diagonal of S'
    labels: Labels
    blocks: list[Block] = field(default_factory=list)
    small: list[Labels] = field(default_factory=list)  # [singles (m,), pairs (m, 2)]
    small_trace: float = 0.0
    small_log_determinant: float = 0.0

    @property
    def constant(self) -> float:
        """What the scaling adds to the objective."""
        return 2.0 * float(np.log(self.root).sum())

    @property
    def gap(self) -> float:
        """Duality gap of all components."""
        return sum(block.point.gap for block in self.blocks)

    @property
    def objective(self) -> float:
        """Objective in the units of the user."""
        value = self.small_trace - self.small_log_determinant + self.constant
        return value + sum(block.point.trace - block.point.log_determinant for block in self.blocks)


def normalise(S: Array, L: Array, e: Array) -> Problem:
    """Scale S + diag(e) to a unit diagonal and find the components of |S_ij| > L_ij."""
    from mssl.kernels import graph as kernels

    p = len(S)
    problem = Problem(np.empty((p, p)), np.empty((p, p)), np.empty(p), np.empty(p, dtype=np.int64))
    bad = kernels.normalise(S, L, e, problem.S, problem.L, problem.root, problem.labels)
    if bad >= 0:
        raise DataError(
            f"S[{bad}, {bad}] plus its diagonal penalty is zero, so the objective has no minimum; "
            "penalise the diagonal (penalize_diagonal=True or diagonal_penalty > 0) or drop that variable."
        )
    return problem


def components(labels: Labels) -> tuple[Labels, list[Labels]]:
    """The variables that are alone, and those of every larger component; all in one where splitting does not pay."""
    sizes = np.bincount(labels)
    if 2 < len(labels) <= WHOLE or sizes.max() == len(labels) > 1:
        return np.empty(0, dtype=np.int64), [np.arange(len(labels))]
    return np.flatnonzero(sizes[labels] == 1), [np.flatnonzero(labels == label) for label in np.flatnonzero(sizes > 1)]


def split(problem: Problem) -> None:
    """Make the components independent blocks, and solve those of sizes 1 and 2 in closed form."""
    S, L = problem.S, problem.L
    singles, pieces = components(problem.labels)
    if len(pieces) == 1 and pieces[0].size == len(S) > 2:
        problem.blocks.append(Block(S, L, pieces[0]))
        return
    pairs = np.array([i for i in pieces if i.size == 2], dtype=np.int64).reshape(-1, 2)
    problem.small = [singles, pairs]
    problem.small_trace = float(singles.size + pairs.size)
    problem.small_log_determinant = -float(np.log1p(-(_pair_covariance(problem) ** 2)).sum())
    problem.blocks.extend(Block(S[np.ix_(i, i)], L[np.ix_(i, i)], i) for i in pieces if i.size > 2)


def _pair_covariance(problem: Problem) -> Array:
    """Off-diagonal of W for components of two variables."""
    i, j = problem.small[1].T
    s = problem.S[i, j]
    w: Array = np.sign(s) * np.maximum(np.abs(s) - problem.L[i, j], 0.0)
    if np.any(np.abs(w) > 1.0 - 4e-16):
        raise DataError(UNBOUNDED)
    return w


def join(problem: Problem) -> tuple[Array, Array, Array | None, float]:
    """Ω, Ω⁻¹, where blocks are not large a dual point, and log det Ω, in the units of the user."""
    from mssl.kernels import graph as kernels

    root, blocks = problem.root, problem.blocks
    p = len(root)
    omega, sigma = np.zeros((p, p)), np.zeros((p, p))
    if problem.small:
        singles, (i, j) = problem.small[0], problem.small[1].T
        variance = root * root
        sigma[singles, singles] = variance[singles]
        omega[singles, singles] = 1.0 / variance[singles]
        w = _pair_covariance(problem)
        sigma[i, j] = sigma[j, i] = w * (root[i] * root[j])
        omega[i, j] = omega[j, i] = -w / (1.0 - w * w) / (root[i] * root[j])
        for k in (i, j):
            sigma[k, k] = variance[k]
            omega[k, k] = 1.0 / (1.0 - w * w) / variance[k]
    held = max(map(len, blocks), default=0) <= DENSE
    dual = sigma.copy() if held else np.empty((0, 0))
    for block in blocks:
        point = block.point
        W = point.covariance if block.W is None else block.W
        kernels.unscale(point.precision, point.covariance, W, root, block.index, omega, sigma, dual)
    log_determinant = problem.small_log_determinant + sum(b.point.log_determinant for b in blocks)
    return omega, sigma, dual if held else None, log_determinant - problem.constant
