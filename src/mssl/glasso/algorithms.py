"""The graphical lasso scaled to a unit diagonal: its components, its two solvers and their certificate.

S is S' with unit diagonal, L the off-diagonal penalties, W a covariance inside S ± L. One compiled call
(:func:`mssl.kernels.graph_lasso`) solves nearly all problems. This module takes over where that call breaks down, for
ADMM, and for gaps of matrices far from the optimum. All but the sweeps is written in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf, dpotri

from mssl.exceptions import DataError
from mssl.kernels import graph_components, graph_sweeps, plain
from mssl.kernels.threads import spread

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
UNBOUNDED = (
    "S has no positive definite matrix within its penalties; the objective then has no minimum, or one too far away to "
    "be computed. Penalise the diagonal (penalize_diagonal=True, diagonal_penalty > 0), raise alpha, or shrink S; if "
    "max_iter is small, raise it first."
)
# Sizes at which one way of computing becomes cheaper than another; they change the time, not the answer.
DENSE = 400  # up to this many variables an extra factorisation costs less than the sweeps which its tighter bound saves
WHOLE = 64  # up to this many variables splitting into components costs more than it saves
LARGE = 150  # from this many variables on, components are spread over threads; smaller ones do not repay the start
# Accuracies.
_EPS = float(np.finfo(float).eps)
_HALVINGS = 60  # after which a matrix is the anchor that it is drawn to, but for rounding
ROUNDING = 1e-13  # a gap below this times p is rounding error of the log-determinants: to go on would gain nothing
NEARLY = 3.0  # a gap within this factor of the target gets a second, more expensive bound instead of more sweeps
# Relative distance of primal and dual point up to which the gap is bounded without a factorisation. A larger limit
# saves factorisations and gives wider bounds; for large matrices the factorisation costs more than a wide bound.
NEAR = 0.2
NEAR_LARGE = 0.8
STOP = 0.3  # the descent stops when its estimate of the gap is this share of the target; the true gap is larger
LOOSE = 1e-2  # gap per variable at which a stage with larger penalties ends: it gives a start, not an answer
ACCURATE = 1e-5  # tolerance of columns that are solved accurately from the beginning, and
ILL_CONDITIONED = 5e-3  # least pivot of a start up to which they have to be
# Limits.
STAGE = (
    200  # sweeps of one such stage, and of a start until its first certificate: those that succeed take a tenth of it
)
PATIENCE = 200  # ADMM iterations after a failed descent in which the gap must fall by a tenth

Known = tuple[Array, float, Array | None]  # Ω⁻¹, log det Ω, and a dual point of a problem nearby


# ---- the scaled problem and its components


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
        self.stuck = False  # whether rounding prevents further progress

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
    variances = S.diagonal() + e
    if not (variances > 0).all():
        raise unbounded_at(int(np.argmax(~(variances > 0))))
    root = np.sqrt(variances)
    units = np.outer(root, root)
    with np.errstate(over="ignore"):
        scaled, prices = S / units, L / units
    np.fill_diagonal(scaled, 1.0)
    np.fill_diagonal(prices, 0.0)
    return Problem(scaled, prices, root, graph_components(plain(S), 1.0, plain(L)))


def unbounded_at(place: int) -> DataError:
    """The error for a variable without variance."""
    return DataError(
        f"S[{place}, {place}] plus its diagonal penalty is zero; without variance the objective has no minimum. "
        "Penalise the diagonal (penalize_diagonal=True or diagonal_penalty > 0) or drop that variable."
    )


def components(labels: Labels) -> tuple[Labels, list[Labels]]:
    """The isolated variables, and those of every larger component; one component where splitting does not pay."""
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
    dual = sigma.copy() if max(map(len, blocks), default=0) <= DENSE else None
    for block in blocks:
        point, place = block.point, np.ix_(block.index, block.index)
        units = np.outer(root[block.index], root[block.index])
        omega[place], sigma[place] = point.precision / units, point.covariance * units
        if dual is not None:
            dual[place] = (point.covariance if block.W is None else block.W) * units
    log_determinant = problem.small_log_determinant + sum(b.point.log_determinant for b in blocks)
    return omega, sigma, dual, log_determinant - problem.constant


# ---- factors and inverses


def factor(matrix: Array) -> tuple[Array, float] | None:
    """Cholesky factor and log-determinant, or None. The transposed view is what LAPACK reads without a copy."""
    triangle, info = dpotrf(matrix.T, lower=0, clean=0)
    if info != 0:
        return None
    log_determinant = 2.0 * float(np.log(triangle.diagonal()).sum())
    return None if np.isnan(log_determinant) else (triangle, log_determinant)  # LAPACK lets NaN pass


def inverse(triangle: Array) -> Array:
    """Inverse from a Cholesky factor, which is overwritten."""
    half: Array = np.tril(dpotri(triangle, lower=0, overwrite_c=1)[0].T)
    return half + np.tril(half, -1).T


def inverse_and_log_determinant(omega: Array) -> tuple[Array, float] | None:
    """Ω⁻¹ and log det Ω, or None."""
    cholesky = factor(omega)
    return None if cholesky is None else (inverse(cholesky[0]), cholesky[1])


# ---- matrices of one size


def clip_box(sigma: Array, S: Array, L: Array) -> Array:
    """Σ clipped into S ± L, with the unit diagonal of S."""
    W = np.clip(sigma, S - L, S + L)
    np.fill_diagonal(W, S.diagonal())
    return W


def regressions(omega: Array, L: Array) -> Array:
    """β_j = −Ω_j / Ω_jj in row j, without forbidden edges."""
    B = np.where(np.inf == L, 0.0, -omega / omega.diagonal()[:, None])
    np.fill_diagonal(B, 0.0)
    return B


def assemble(B: Array, diagonal: Array, L: Array) -> Array:
    """Symmetric Ω from the regressions; a penalised edge must be there in the regressions of both of its ends."""
    one_sided = -B * diagonal[:, None]
    absent = (one_sided == 0) | (one_sided.T == 0)
    omega = np.where((L > 0) & absent, 0.0, 0.5 * (one_sided + one_sided.T))
    np.fill_diagonal(omega, diagonal)
    return omega


def penalised_trace(omega: Array, S: Array, L: Array | float) -> float:
    """⟨S, Ω⟩ + Σ_{i≠j} L|Ω|; infinite where Ω uses a forbidden edge."""
    off = omega - np.diag(omega.diagonal())
    with np.errstate(invalid="ignore"):
        penalties = np.where(off != 0, L * np.abs(off), 0.0)
    return float(np.vdot(S, omega) + penalties.sum())


def near_limit(p: int) -> float:
    """The relative distance of primal and dual point up to which a gap of p variables needs no factorisation."""
    return NEAR if p <= DENSE else NEAR_LARGE


def relative_distance(omega: Array, sigma: Array, M: Array) -> tuple[float, float]:
    """‖E‖_F of E = Ω^½ (M − Σ) Ω^½, and a bound on its spectral radius; E and Ω(M − Σ) have the same eigenvalues.

    Rounding is counted in: where Ω is close to singular, the terms of tr(YY) cancel.
    """
    difference = M - sigma
    Y = omega @ difference
    size = float(np.linalg.norm(Y))
    rounding = 2.0 * _EPS * size * float(np.linalg.norm(omega)) * float(np.linalg.norm(difference))
    distance = min(float(np.sqrt(max(float(np.vdot(Y, Y.T)), 0.0) + rounding)), size)
    sizes = np.abs(Y)
    return distance, min(distance, float(sizes.sum(axis=0).max()), float(sizes.sum(axis=1).max()))


# ---- starts and certificate


def soft_start(S: Array, L: Array) -> Array | None:
    """S soft-thresholded by L, exact on the support of most solutions; None where it is not positive definite."""
    W = np.sign(S) * np.maximum(np.abs(S) - L, 0.0)
    return W if factor(W) is not None else None


def shrunk_start(S: Array, L: Array) -> Array | None:
    """S shrunk towards its diagonal as far as all penalties allow, positive definite if S is semidefinite.

    The box is unbounded on forbidden edges, so that these entries are shrunk like all others.
    """
    off = (S != 0) & np.isfinite(L)
    np.fill_diagonal(off, False)
    t = min(1.0, float((L[off] / np.abs(S[off])).min(initial=1.0)))
    W = (1.0 - t) * S
    np.fill_diagonal(W, 1.0)
    return W if factor(W) is not None else None


def dual_start(S: Array, L: Array) -> Array | None:
    """A positive definite matrix inside S ± L, the better of the soft-thresholded and the shrunk, or None."""
    soft = soft_start(S, L)
    return shrunk_start(S, L) if soft is None else soft


def warm_start(problem: Problem, precision: Array, covariance: Array, dual: Array | None) -> None:
    """Start every block from a previous Ω and dual point (or Ω⁻¹), clipped into the new box.

    Where that is not positive definite it is drawn towards a cold start. W close to Σ proves that it is without a
    factorisation: Ω^½WΩ^½ = I + E, E of spectral radius below 1.
    """
    for block in problem.blocks:
        place, root = np.ix_(block.index, block.index), problem.root[block.index]
        units = np.outer(root, root)
        omega, sigma = precision[place] * units, (covariance if dual is None else dual)[place] / units
        block.B, W = regressions(omega, block.L), clip_box(sigma, block.S, block.L)
        close = dual is None and relative_distance(omega, sigma, W)[1] < 0.9
        feasible = (W, 0.0) if close else drawn(W, partial(dual_start, block.S, block.L))
        if feasible is not None:
            block.W, block.column_tol = feasible[0], 1e-4


def certify(
    S: Array,
    L: Array,
    omega: Array,
    anchor: Array | Callable[[], Array | None] | None,
    *,
    thorough: bool = False,
    inverted: tuple[Array, float] | None = None,
    dual: Array | None = None,
) -> Point | None:
    """Duality gap of Ω; None where Ω is not positive definite. ``inverted`` is Ω⁻¹ and log det Ω where they are known.

    ``dual`` is a dual point of a problem nearby, to be clipped into the box of this one.

    The gap is tr(ΩM) − p − log det(ΩM) with M = S + U and U on the support taken from the signs. Close to the optimum
    it is at most ½‖E‖²/(1 − ρ), E = Ω^½(M − Σ)Ω^½ of spectral radius ρ, since x − log(1 + x) ≤ x²/(2(1 − |x|)) for
    every eigenvalue x; this needs no factor of M and does not suffer from cancellation. Further away M is factored, and
    where it is not positive definite (or always, if `thorough`) Σ clipped into the box and drawn towards `anchor`
    serves instead.
    """
    inverted = inverse_and_log_determinant(omega) if inverted is None else inverted
    if inverted is None:
        return None
    p, (sigma, log_determinant) = len(omega), inverted
    trace = penalised_trace(omega, S, L)
    if not np.isfinite(trace):
        return Point(omega, sigma, log_determinant, np.inf, np.inf)
    with np.errstate(invalid="ignore"):
        M = np.where(omega == 0, clip_box(sigma, S, L), S + L * np.sign(omega))
    np.fill_diagonal(M, S.diagonal())
    limit = near_limit(p)
    distance, radius = relative_distance(omega, sigma, M)
    if radius < limit:
        return Point(omega, sigma, log_determinant, trace, 0.5 * distance**2 / (1.0 - radius))
    factored = factor(M)
    bound = -np.inf if factored is None else factored[1]
    if dual is not None:
        factored = factor(clip_box(dual, S, L))
        bound = bound if factored is None else max(bound, factored[1])
    if bound == -np.inf or (thorough and dual is None):
        feasible = drawn(clip_box(sigma, S, L), anchor)
        bound = bound if feasible is None else max(bound, feasible[1])
    rounding = _EPS * float(np.abs(M * omega).sum())
    return Point(omega, sigma, log_determinant, trace, max(trace - p - log_determinant - bound, 0.0) + rounding)


def certify_components(problem: Problem, omega: Array, known: Known | None) -> tuple[float, float] | None:
    """Gap and objective of Ω, all in the units of the user, by components; None where Ω is not positive definite.

    Components are those that neither S nor Ω connects: between them Ω, its inverse and the dual point are zero.
    """
    root, linked = problem.root, problem.labels[:, None] == problem.labels
    singles, pieces = components(graph_components((linked | (omega != 0)).astype(float), 0.5))
    diagonal = omega.diagonal()[singles] * root[singles] ** 2
    if not (diagonal > 0).all():
        return None
    trace, log_determinant = float(diagonal.sum()), float(np.log(diagonal).sum())
    gap = max(trace - singles.size - log_determinant, 0.0)
    pieces.sort(key=len)
    for piece in pieces:
        is_last = piece is pieces[-1]
        remaining = known[1] + problem.constant - log_determinant if known is not None and is_last else None
        point = _certify_component(problem, piece, omega, known, remaining)
        if point is None:
            return None
        trace, gap, log_determinant = trace + point.trace, gap + point.gap, log_determinant + point.log_determinant
    return gap, trace - log_determinant + problem.constant


def _certify_component(
    problem: Problem, index: Labels, omega: Array, known: Known | None, log_determinant: float | None
) -> Point | None:
    """:func:`certify` of one component; its log-determinant is given if those of all others are known."""
    n, root = len(index), problem.root
    S, L = (A if n == len(root) else A[np.ix_(index, index)] for A in (problem.S, problem.L))
    place, units = np.ix_(index, index), np.outer(root[index], root[index])
    scaled, inverted, dual = omega[place] * units, None, None
    if known is not None:
        if log_determinant is None:
            cholesky = factor(scaled)
            log_determinant = -np.inf if cholesky is None else cholesky[1]
        inverted = known[0][place] / units, log_determinant
        dual = None if known[2] is None else known[2][place] / units
    return certify(S, L, scaled, partial(dual_start, S, L), thorough=True, inverted=inverted, dual=dual)


def drawn(M: Array, anchor: Array | Callable[[], Array | None] | None) -> tuple[Array, float] | None:
    """M drawn towards the anchor until it is positive definite, and its log-determinant; None where there is none."""
    found = factor(M)
    if found is not None:
        return M, found[1]
    if callable(anchor):
        anchor = anchor()  # positive definite by construction
    elif anchor is not None and factor(anchor) is None:
        anchor = None
    if anchor is None or not np.isfinite(M).all():
        return None
    for _ in range(_HALVINGS):
        M = 0.5 * (M + anchor)
        found = factor(M)
        if found is not None:
            return M, found[1]
    found = factor(anchor)  # next to a singular anchor rounding decides what is positive definite
    return None if found is None else (anchor, found[1])


# ---- solvers


def solve(problem: Problem, method: str, tol: float, max_iter: int) -> bool:
    """Solve every block until the total gap is at most tol · max(1, |objective|); True when it is."""
    run: Callable[[Block, float, int], None] = descend if method == "bcd" else alternate
    p = len(problem.root)
    target = tol * max(1.0, abs(p + problem.constant))

    def solve_block(block: Block) -> None:
        if block.stuck:
            return
        share = target * len(block) / p
        if block.point.gap > share and block.n_iter < max_iter:
            run(block, share, max_iter)
        if block.point.gap > max(share, ROUNDING * len(block)) and method == "bcd":
            alternate(block, share, 2 * max_iter, patience=PATIENCE)
        if block.point.gap == np.inf:  # too few iterations to certify a point: certify the present one
            S, L, omega = block.S, block.L, block.point.precision
            block.offer(certify(S, L, omega, dual_start(S, L), thorough=True))
        if block.point.gap == np.inf:
            raise DataError(UNBOUNDED)

    for _ in range(3):
        large = [block for block in problem.blocks if len(block) >= LARGE]
        spread(solve_block, large)
        for block in problem.blocks:
            if len(block) < LARGE:
                solve_block(block)
        target = tol * max(1.0, abs(problem.objective))
        if problem.gap <= target:
            return True
    return False


def invert(problem: Problem) -> None:
    """Solve without penalties: Ω = S'⁻¹."""
    for block in problem.blocks:
        cholesky = factor(block.S)
        pivot = 0.0 if cholesky is None else float(cholesky[0].diagonal().min()) ** 2
        if cholesky is not None and pivot > 1e-15 * len(block):
            block.offer(certify(block.S, block.L, inverse(cholesky[0]), block.S))
        if block.point.gap == np.inf:
            raise DataError(
                "S (with its diagonal penalty) is singular and alpha is 0; without a penalty S needs an inverse. Give "
                "alpha > 0 or a diagonal_penalty > 0."
            )


def descend(block: Block, target: float, max_iter: int) -> None:
    """Dual block coordinate descent from the first start that does not break down: warm, soft-thresholded, shrunk.

    Columns that are solved too loosely can make an ill-conditioned W indefinite, or lead it nowhere: there, and where
    all else broke down, they are solved accurately from the beginning. The last attempt is to start from the solution
    for larger penalties.
    """
    if block.W is not None and _arrives(block, block.W, target, max_iter):
        return
    starts = ((soft_start, 1e-2), (shrunk_start, 1e-2), (shrunk_start, 1e-5), (soft_start, 1e-5), (shrunk_start, 1e-8))
    for start, block.column_tol in starts:
        W = start(block.S, block.L)
        if W is None or (block.column_tol > ACCURATE and _least_pivot(W) <= ILL_CONDITIONED):
            continue
        if _arrives(block, W, target, max_iter):
            return
    _descend_along(block, target, max_iter)


def _least_pivot(W: Array) -> float:
    cholesky = factor(W)
    return 0.0 if cholesky is None else float(cholesky[0].diagonal().min()) ** 2


def _arrives(block: Block, W: Array, target: float, max_iter: int) -> bool:
    """Descend from W; False where that breaks down, or has nothing to show after the sweeps of a stage."""
    if not _descend_from(block, W, target, min(max_iter, block.n_iter + STAGE)):
        return False
    if block.point.gap == np.inf and block.n_iter < max_iter:
        block.W, block.B = None, None
        return False
    return block.point.gap <= target or _descend_from(block, W, target, max_iter)


def _descend_along(block: Block, target: float, max_iter: int) -> None:
    """Descend for larger penalties first, and from the solution of each for a tenth of them.

    W for the penalties tL becomes S + (W − S)/10, inside the smaller box and a mean of W and S: positive definite where
    S is semidefinite, and better conditioned than what S of low rank and small penalties give otherwise.
    """
    S, L, column_tol = block.S, block.L, 1e-2
    priced = np.isfinite(L) & (L > 0)
    times = max(1.0, float((np.abs(S[priced]) / L[priced]).max(initial=1.0)))
    W, B = soft_start(S, times * L), None
    while W is not None and times > 1.0 and block.n_iter < max_iter:
        stage = Block(S, times * L, block.index)
        stage.B, stage.n_iter, stage.column_tol = B, block.n_iter, column_tol
        succeeded = _descend_from(stage, W, LOOSE * len(block), min(max_iter, stage.n_iter + STAGE))
        block.n_iter = stage.n_iter
        if not succeeded or stage.point.gap > LOOSE * len(block):
            block.offer(certify(S, L, stage.point.precision, shrunk_start(S, L)))
            return
        before, times = times, max(0.1 * times, 1.0)
        W, B, column_tol = S + times / before * (W - S), stage.B, 0.1 * stage.column_tol
        block.offer(certify(S, L, stage.point.precision, S + (W - S) / times))
    if W is not None and times == 1.0:
        block.B, block.column_tol = B, column_tol
        _descend_from(block, W, target, max_iter)


def _descend_from(block: Block, W: Array, target: float, max_iter: int) -> bool:
    """Descend, tightening until the certificate is small enough; False where it breaks down."""
    S, L = block.S, block.L
    block.W = W
    B = block.B = np.zeros_like(S) if block.B is None else block.B
    diagonal = np.ones(len(block))
    omega: Array | None = None
    point: Point | None = None
    accuracy, ascent = max(STOP * target, 1e-28), np.inf
    while accuracy > 1e-30 and block.n_iter < max_iter:
        max_sweeps = max_iter - block.n_iter
        sweeps, ascent = graph_sweeps(S, L, W, B, diagonal, block.column_tol, accuracy, max_sweeps, ascent)
        block.n_iter += abs(sweeps)
        omega = assemble(B, diagonal, L)
        gap, point = np.inf, None
        if sweeps > 0:
            gap, point = _gap_and_point(S, L, omega, W, target)
        if gap == np.inf and (sweeps < 0 or factor(W) is None):
            block.W, block.B = None, None
            return False
        block.offer(point)
        if block.point.gap <= target:
            return True
        # The gap exceeds the estimate by a factor that hardly changes, which tells the estimate to aim at. Where W
        # is ill-conditioned, Ω is definite only once the columns are accurate.
        accuracy *= 0.1 if gap == np.inf else min(max(STOP * target / gap, 0.01), 0.3)
        block.column_tol = min(block.column_tol, np.sqrt(accuracy) / len(block))
    if omega is not None and point is None:
        block.offer(certify(S, L, omega, W))
    return True


def _gap_and_point(S: Array, L: Array, omega: Array, W: Array, target: float) -> tuple[float, Point | None]:
    """Gap and point of Ω; far from the optimum from W, which the descent keeps feasible.

    There W is a better bound than what :func:`certify` finds by itself, and cheaper: two factorisations, and an inverse
    only in the end.
    """
    far = target > 0.5 * NEAR**2 and len(S) <= DENSE
    cholesky, dual = (factor(omega), factor(W)) if far else (None, None)
    if cholesky is None or dual is None:
        point = certify(S, L, omega, W, dual=W if len(S) <= DENSE else None)
        return (np.inf if point is None else point.gap), point
    trace = penalised_trace(omega, S, L)
    gap = max(trace - len(S) - cholesky[1] - dual[1], 0.0)
    if gap > NEARLY * target:
        return gap, None
    if gap > target:
        point = certify(S, L, omega, W)
        return (gap, None) if point is None else (min(gap, point.gap), point)
    return gap, Point(omega, inverse(cholesky[0]), cholesky[1], trace, gap)


def alternate(block: Block, target: float, max_iter: int, patience: float = np.inf) -> None:
    """ADMM with over-relaxation and an adaptive step, from the best point of the block if it has one.

    `max_iter` counts the iterations that the block has had before. A block that has a certified point is stuck where
    `patience` iterations did not bring the gap of the iterates down by a tenth.
    """
    S, L = block.S, block.L
    Z, U = block.point.precision, np.clip(block.point.covariance - S, -L, L)
    anchor = shrunk_start(S, L)
    rho, relaxation = 1.0, 1.6
    smallest_gap, last_fall = np.inf, block.n_iter
    while block.n_iter < max_iter:
        values, vectors = eigh(rho * Z - U - S, check_finite=False, driver="evd")
        root = np.sqrt(values * values + 4.0 * rho)
        total = root + np.abs(values)
        positive = np.where(values > 0, total / (2.0 * rho), 2.0 / total)
        X = (vectors * positive) @ vectors.T
        X = 0.5 * (X + X.T)
        relaxed = relaxation * X + (1.0 - relaxation) * Z
        T = rho * relaxed + U
        U = np.clip(T, -L, L)
        np.fill_diagonal(U, 0.0)
        old, Z = Z, (T - U) / rho
        block.n_iter += 1
        primal, dual = float(np.linalg.norm(X - Z)), rho * float(np.linalg.norm(Z - old))
        if block.n_iter == max_iter or primal * dual <= target or block.n_iter % 20 == 0:
            point = certify(S, L, Z, S + U if anchor is None else anchor)
            block.offer(point)
            if block.point.gap <= target:
                return
            if point is not None and point.gap < 0.9 * smallest_gap:
                smallest_gap, last_fall = point.gap, block.n_iter
            block.stuck = block.point.gap < np.inf and block.n_iter - last_fall >= patience
            if block.stuck:
                return
            v = vectors[:, -1]
            if block.point.gap == np.inf and v @ S @ v + np.abs(v) @ L @ np.abs(v) < 1e-14:
                raise DataError(UNBOUNDED)  # along v vᵀ the objective falls without end
        if primal > 5.0 * dual:
            rho *= 2.0
        elif dual > 5.0 * primal:
            rho /= 2.0
