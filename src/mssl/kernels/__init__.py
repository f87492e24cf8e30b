"""The compiled kernels: a C library beside this file, with a Python function for each of its functions.

``mssl.h`` documents every function. The Python functions check the type, order, shape and overlap of arrays and pass
them to the library. The library releases the interpreter's lock while it works. Long calls check for signals at
intervals, so that Ctrl-C works; results do not depend on these checks.

The library contains every function for each SIMD level. The processor (or the environment variable ``MSSL_SIMD``, for
tests) determines the level when the library is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mssl._typing import Array, Index
from mssl.kernels.binding import LAPACK_FROM, LEVELS, RAISED, Record, lapack, library, number, record, watch

__all__ = ["LAPACK_FROM", "LEVELS", "library"]

# Codes of the penalties' functions of one weight; see mssl.penalties.EntrywisePenalty.
ABSOLUTE, MINIMAX_CONCAVE = number("MSSL_ABSOLUTE"), number("MSSL_CONCAVE")

# The status with which a call ends.
DONE, LIMIT, BROKE, UNBOUNDED, AGAIN, STOPPED = (
    number(f"MSSL_{end}") for end in ("DONE", "LIMIT", "BROKE", "UNBOUNDED", "AGAIN", "STOPPED")
)

GramArrays: TypeAlias = tuple[Array, Array, Array]  # H, scale and q of the loss Σ ½ s_k w_k'H_k w_k − q_k'w_k
SetArrays: TypeAlias = tuple[Array, Index, Index, Index, Array]  # the loss on sets of features, see set_sweeps
ColumnArrays: TypeAlias = tuple[Array, Index, Index, Index, Index, bool]  # the fields of mssl_columns
DesignArrays: TypeAlias = tuple[ColumnArrays, Array, Array, Array, Array, Array]  # and c, Σ c, mu, Σ c a, Σ c (a − mu)²
CouplingArrays: TypeAlias = tuple[Index, Index, Array, Array | None, float]  # the fields of mssl_coupling
PriorArrays: TypeAlias = tuple[Array, Array, Array, float, float]  # the fields of mssl_prior
# A code, whether weights are ≥ 0, and parameters of shape (1 or 2, K, d).
PenaltyArrays: TypeAlias = tuple[int, bool, Array]
Form: TypeAlias = tuple[CouplingArrays, PenaltyArrays]  # the coupling and the penalty, which are added to a loss
SparsePrior: TypeAlias = tuple[float, float, float, Array, Array, Array]  # the fields of mssl_sparse_prior
Limits: TypeAlias = tuple[float, float, float, float, int]  # the fields of mssl_rounds_limits
Start: TypeAlias = tuple[Array, Array, Array]  # W, Ω and its inverse
Links: TypeAlias = tuple[CouplingArrays, Array]  # C, and a lift with which lift − C is diagonally dominant


# ---- arguments


def plain(values: Array) -> Array:
    """The same numbers as a writeable array in row order, which kernels need."""
    flags = values.flags
    return values if flags.c_contiguous and flags.writeable else np.require(values, float, ["C", "W"])


def _ended(name: str, *arguments: Any) -> int:
    """Call a long function and return its status. If a signal handler raised an exception, it is raised here."""
    ended = int(getattr(library(), name)(*arguments, watch()))
    if ended == STOPPED:
        raise RAISED.pop()
    return ended


def _made(name: str, *arguments: Any) -> tuple[int, float]:
    """Call a long function that fails only for lack of memory.

    It returns the number of sweeps or iterations, and the last gain or the bound.
    """
    made = np.empty(2)
    if _ended(name, *arguments, made) == BROKE:
        raise MemoryError(f"{name} has no memory for its work.")
    return int(made[0]), float(made[1])


def _coupling(K: int, starts: Index, columns: Index, values: Array, u: Array | None, rho: float) -> Record:
    made, n = record("mssl_coupling", starts, columns, values, u, rho), len(values)
    if len(starts) != K + 1 or starts[0] != 0 or starts[-1] != n or np.any(starts[1:] < starts[:-1]):
        raise TypeError(f"a kernel got rows of a coupling that do not run from 0 to {n}.")
    if len(_places(columns, K)) != n or (u is not None and u.shape != (K,)):
        raise TypeError(f"a kernel got a coupling of {len(columns)} places and {n} values for {K} tasks.")
    return made


def _one_or_all(H: Array, K: int) -> int:
    """The number of Grams: one for all tasks, or one per task."""
    if len(H) not in (1, K):
        raise TypeError(f"a kernel got an array of shape {H.shape} for {K} tasks; it takes one block or {K}.")
    return len(H)


def _penalty(penalty: PenaltyArrays, size: int) -> Record:
    code, positive, parameters = penalty
    if len(parameters) != (1 if code == ABSOLUTE else 2):
        raise TypeError(f"a penalty of code {code} came with {len(parameters)} arrays of parameters.")
    if parameters[0].size != size:
        raise TypeError(f"a kernel got strengths of shape {parameters[0].shape} for {size} weights.")
    return record("mssl_penalty", code, positive, parameters, None if code == ABSOLUTE else parameters[1])


def _prior(K: int, P: Array, inverse: Array, u: Array, rho: float, tau: float) -> Record:
    if (P.shape, inverse.shape, u.shape) != ((K, K), (K, K), (K,)):
        raise TypeError(f"a kernel got a prior of shapes {P.shape}, {inverse.shape} and {u.shape} for {K} tasks.")
    return record("mssl_prior", P, inverse, u, rho, tau)


def _places(places: Index, n: int) -> Index:
    """Check that positions lie between 0 and n − 1."""
    if len(places) and not (places.min() >= 0 and places.max() < n):
        raise TypeError(f"a kernel got positions from {places.min()} to {places.max()} among {n}.")
    return places


# ---- coordinate descent over the weights: functions return the number of sweeps and a lower bound of the last gain


def _sweep(name: str, loss: tuple[Any, ...], form: Form, size: int, W: Array, *state: Any) -> tuple[int, float]:
    """Sweep over the weights; ``size`` is the number of penalty parameters."""
    K, d = W.shape
    return _made(name, K, d, *loss, _coupling(K, *form[0]), _penalty(form[1], size), W, *state)


def gram_sweeps(
    grams: GramArrays, form: Form, W: Array, HW: Array, mean: Array, tasks: Index, n_sweeps: int, enough: float
) -> tuple[int, float]:
    """Coordinate descent on Grams H_k = scale_k H[k] (or H[0]) over some tasks; W, HW and mean change in place."""
    (K, d), (H, _, q) = W.shape, grams
    if (H.shape[1:], q.shape, HW.shape) != ((d, d), (K, d), (K, d)):
        raise TypeError(f"a kernel got arrays of shapes {H.shape}, {q.shape} and {HW.shape} for weights {W.shape}.")
    state = (W, HW, mean, _places(tasks, K), len(tasks))
    return _sweep("gram_sweeps", (_one_or_all(H, K), *grams, None), form, W.size, *state, n_sweeps, enough)


def set_sweeps(
    sets: SetArrays, form: Form, W: Array, HW: Array, mean: Array, tasks: Index, n_sweeps: int, enough: float
) -> tuple[int, float]:
    """Coordinate descent over some tasks, each on its own set of features; W, HW and mean change in place.

    ``sets`` are gram, corners, features, bounds and q. Task k has the features from ``bounds[k]`` to ``bounds[k + 1]``.
    At these positions, q, HW and the parameters of the penalty hold the values of this task. Its Gram begins at
    ``gram[corners[k]]``.
    """
    (K, d), (gram, corners, features, bounds, q) = W.shape, sets
    n, sizes = len(features), np.diff(bounds)
    fits = bounds[-1] == n == len(q) == len(HW) and len(bounds) == K + 1 and not np.any(sizes < 0)
    if not fits or corners[-1] != len(gram) or not np.array_equal(np.diff(corners), sizes**2):
        raise TypeError("a kernel got working sets whose bounds, corners and Grams do not match.")
    loss = (K, gram, np.ones(K), q, record("mssl_sets", corners, _places(features, d), bounds))
    return _sweep("gram_sweeps", loss, form, n, W, HW, mean, _places(tasks, K), len(tasks), n_sweeps, enough)


def design_sweeps(
    design: DesignArrays, form: Form, state: tuple[Array, ...], tasks: Index, n_sweeps: int, enough: float
) -> tuple[int, float]:
    """Coordinate descent on stored columns a_kj, which represent the centred columns a_kj − mu_kj.

    ``state`` holds W, v, sums and mean, which change in place: v = c (target − Σ_j a_j w_j),
    sums[k, 0] = Σ_j mu_kj w_kj and sums[k, 1] = Σ_i v_i. With them, a coordinate costs the stored entries of its
    column, including centring and intercept.
    """
    (K, d), n, (columns, *moments) = state[0].shape, len(state[1]), design
    _check_columns(*columns, d, n)
    if len(moments[0]) != n or len(columns[3]) != K or len(columns[4]) != K:
        raise TypeError("a kernel got columns that do not belong to its rows and tasks.")
    loss, places = (record("mssl_columns", *columns), *moments), (_places(tasks, K), len(tasks))
    return _sweep("design_sweeps", loss, form, K * d, *state, *places, n_sweeps, enough)


def _check_columns(
    data: Array, rows: Index, starts: Index, base: Index, row_start: Index, is_sparse: bool, d: int, n: int
) -> None:
    """Raise an error if columns exceed the stored data. The design ensures that sparse rows belong to their task."""
    good = len(base) == 0 or (base.min() >= 0 and base.max() + d < len(starts) and row_start.min() >= 0)
    good = good and starts[0] >= 0 and starts[-1] <= len(data) and not np.any(starts[1:] < starts[:-1])
    if good and is_sparse:
        good = len(rows) == len(data)
    elif good and d and len(base):
        good = bool(np.all(row_start + (starts[base + 1] - starts[base]) <= n))
    if not good:
        raise TypeError("a kernel got columns that leave their numbers or the rows.")


def shared_sweeps(
    G: Array, q: Array, ridge: Array, form: Form, W: Array, D: Array, n_sweeps: int, enough: float
) -> tuple[int, float]:
    """Tasks coupled through residuals, one X for all: G = XᵀX; D = WG − q and W change in place."""
    return _sweep("shared_sweeps", (G, q, ridge), form, W.size, W, D, n_sweeps, enough)


def aligned_sweeps(
    X: Array, H: Array, ridge: Array, form: Form, W: Array, HW: Array, E: Array, n_sweeps: int, enough: float
) -> tuple[int, float]:
    """Like :func:`shared_sweeps`, with X_k (d, n) and Gram H_k for each task; W, HW and residuals E change in place."""
    return _sweep("aligned_sweeps", (E.shape[1], X, H, ridge), form, W.size, W, HW, E, n_sweeps, enough)


def feature_sweeps(
    X: Array, h: Array, ridge: Array, form: Form, W: Array, E: Array, n_sweeps: int, enough: float
) -> tuple[int, float]:
    """Like :func:`aligned_sweeps` without Grams, for fewer rows than features; X may hold one block for all tasks."""
    loss = (E.shape[1], _one_or_all(X, len(W)), X, h, ridge)
    return _sweep("feature_sweeps", loss, form, W.size, W, E, n_sweeps, enough)


# ---- whole weight steps of few tasks


def gram_products(H: Array, scale: Array, V: Array) -> Array:
    """The products s_k H_k v_k, (K, d), for symmetric H_k; rows of Grams whose weight is zero are skipped."""
    (K, d), out = V.shape, np.empty(V.shape)
    library().gram_products(K, d, _one_or_all(H, K), H, scale, V, out)
    return out


def weight_descent(
    grams: GramArrays, penalty: PenaltyArrays, prior: PriorArrays, W: Array, HW: Array, tol: float, max_sweeps: int
) -> tuple[int, float]:
    """Coordinate descent in bursts until the bound of the suboptimality is at most tol; returns sweeps and bound.

    P ≻ 0 and its inverse, u = P1 and ρ are those of :mod:`mssl.model.coupling`; W and HW change in place.
    """
    (K, d), some = W.shape, (_one_or_all(grams[0], len(W)), *grams)
    return _made("weight_descent", K, d, *some, _penalty(penalty, K * d), _prior(K, *prior), W, HW, tol, max_sweeps)


def weight_system(
    grams: GramArrays, prior: PriorArrays, W: Array, HW: Array, kept: tuple[Array, Array], tol: float, max_iter: int
) -> tuple[int, float]:
    """Conjugate gradients for the step without a penalty; returns the number of iterations and the bound.

    The preconditioner inverts the block of each task. ``kept`` holds its ridges (K,) and inverses (K, d, d) for the
    next call; ridges of 0 mean that there is none yet.
    """
    (K, d), gap, some = W.shape, np.empty(1), (_one_or_all(grams[0], len(W)), *grams)
    made = library().weight_system(K, d, *some, _prior(K, *prior), W, HW, *kept, tol, max_iter, gap)
    return made, float(gap[0])


def group_descent(
    grams: GramArrays, links: Links, alpha: float, constant: float, V: Array, G: Array, tol: float, max_iter: int
) -> tuple[int, float]:
    """Minimise a quadratic + alpha Σ_j ‖V_·j‖ by descent over features and Newton steps on the features in use.

    ``constant`` is the quadratic at V = 0; V and the gradient G change in place. The function returns the number of
    sweeps and products, and a bound of the suboptimality.
    """
    (K, m), (C, lift), (H, scale, q) = V.shape, links, grams
    loss = (_one_or_all(H, K), H, scale, _coupling(K, *C), lift, alpha, q, constant)
    return _made("group_descent", K, m, *loss, V, G, tol, max_iter)


# ---- whole fits of few tasks


@dataclass(frozen=True, eq=False)
class TaskLoss:
    """Least squares of few tasks on Grams, for whole fits.

    Attributes
    ----------
    H, scale, q : ndarrays of shapes (K, d, d) or (1, d, d), (K,) and (K, d)
        The loss in the form of :func:`weight_descent`.
    null : float
        The loss at W = 0.
    penalty : PenaltyArrays or None
        An ℓ1 penalty; None if there is no penalty.
    kept : ndarrays of shapes (K,) and (K, d, d), or None
        Without a penalty, the ridges and inverses of the preconditioner of :func:`weight_system`.
    """

    H: Array
    scale: Array
    q: Array
    null: float
    penalty: PenaltyArrays | None
    kept: tuple[Array, Array] | None

    def passed(self, max_inner: int) -> Record:
        """The loss as a C struct, with the limit of iterations of a weight step."""
        (K, d), H, kept = self.q.shape, self.H, self.kept
        if self.penalty is not None and self.penalty[0] != ABSOLUTE:
            raise TypeError(f"whole fits take penalties of code {ABSOLUTE}, not {self.penalty[0]}.")
        if (self.penalty is None) == (kept is None):
            raise TypeError("whole fits take a penalty or, without one, room for a preconditioner.")
        if _one_or_all(H, K) and (H.shape[1:], self.scale.shape) != ((d, d), (K,)):
            raise TypeError(f"whole fits got arrays of shapes {H.shape} and {self.scale.shape} for {K} tasks.")
        if kept is not None and (kept[0].shape, kept[1].shape) != ((K,), (K, d, d)):
            raise TypeError(f"whole fits got a preconditioner of shapes {kept[0].shape} and {kept[1].shape}.")
        penalty = None if self.penalty is None else _penalty(self.penalty, K * d)
        arrays = (H, self.scale, self.q, penalty, *(kept or (None, None)))
        return record("mssl_task_loss", K, d, len(H), max_inner, *arrays, self.null)


class FitRounds:
    """Rounds of weight steps and graph steps from a point, in calls of several rounds.

    Parameters
    ----------
    loss : TaskLoss
        The loss.
    prior : tuple
        η, τ², ν/r, v, e and Λ, the fields of ``mssl_sparse_prior`` in ``mssl.h``.
    by : tuple
        Tolerance and constants, the fields of ``mssl_rounds_limits`` in ``mssl.h``.
    start : ndarrays of shapes (K, d), (K, K) and (K, K)
        W, Ω and its inverse, which are copied.
    ready, known : bool
        Whether W is the best for Ω, and whether Ω is the result of a graph step.
    max_inner : int
        Largest number of iterations of a weight step.

    Attributes
    ----------
    W, omega, sigma, mean : ndarrays
        The last point and its shared mean.
    facts : ndarray of shape (6,)
        The number of rounds, F, the share of Ω in F, its gap, log det Ω, and whether Ω is the result of a graph step.
    """

    def __init__(
        self, loss: TaskLoss, prior: SparsePrior, by: Limits, start: Start, *, ready: bool, known: bool, max_inner: int
    ) -> None:
        (K, d), (*_, variances, e, L) = loss.q.shape, prior
        if (variances.shape, e.shape, L.shape) != ((K,), (K,), (K, K)):
            raise TypeError(f"rounds got a prior of shapes {variances.shape}, {e.shape} and {L.shape} for {K} tasks.")
        records = (record("mssl_sparse_prior", *prior), record("mssl_rounds_limits", *by))
        self.W, self.omega, self.sigma = (array.copy() for array in start)
        self.mean, self.facts, self.room = np.zeros(d), np.zeros(6), np.empty(library().fit_room(K, d))
        self.problem = (K, d, loss.passed(max_inner), *records, ready, known)

    def run(self, n_rounds: int) -> tuple[int, list[list[float]]]:
        """Run at most ``n_rounds`` rounds; return the status, and objective, gaps and edges of each round."""
        table, made, K = np.empty((n_rounds, 4)), self.facts[0], len(self.W)
        point = (self.W, self.omega, self.sigma, self.mean, table, self.facts)
        ended = _ended("fit_rounds", *self.problem, n_rounds, *point, lapack(K), self.room)
        return ended, table[: int(self.facts[0] - made)].tolist()


# ---- rows of many small tasks


def gather_blocks(X: Array, bounds: Index, c: Array, centre: bool, out: Array, means: Array) -> None:
    """Transpose the rows of each task into a (d, n_k) block of ``out`` and subtract their weighted means."""
    (N, d), K = X.shape, len(bounds) - 1
    _check_bounds(bounds, N, c, out, d)
    library().gather_blocks(K, d, X, bounds, c, centre, out, means)


def block_grams(buffer: Array, bounds: Index, c: Array, r: Array, gram: Array, sums: Array, products: Array) -> None:
    """Write Σ c a_j a_l to gram, Σ c a_j to sums and Σ r a_j to products, for the columns a_j of each task."""
    (K, d), N = sums.shape, len(c)
    _check_bounds(bounds, N, r, buffer, d)
    if library().block_grams(K, d, buffer, bounds, c, r, gram, sums, products) == BROKE:
        raise MemoryError("block_grams has no memory for its work.")


def _check_bounds(bounds: Index, n: int, rows: Array, table: Array, d: int) -> None:
    if bounds[0] != 0 or bounds[-1] != n or np.any(np.diff(bounds) < 0):
        raise TypeError(f"a kernel got bounds of tasks that do not run from 0 to {n}.")
    if rows.shape != (n,) or table.shape != (n * d,):
        raise TypeError(f"a kernel got an array of shape {rows.shape} and blocks of shape {table.shape} for {n} rows.")


# ---- the graphical lasso


def graph_lasso(
    S: Array,
    alpha: float,
    weights: Array | None,
    e: Array,
    tol: float,
    max_sweeps: int,
    warm: tuple[Array, Array] | None = None,
    *,
    digits: bool = True,
) -> tuple[int, Array, Index, tuple[float, ...]]:
    """The whole graphical lasso: screening, components, descent and certificate.

    The penalty of an edge is alpha times its weight. Without weights it is alpha; an infinite weight forbids the edge.
    ``e`` is the penalty of the diagonal. ``warm`` holds Ω and its inverse for a similar problem. ``digits`` makes Ω
    more accurate than the gap requires, if that is cheap.

    The function returns the status; Ω, its inverse and a dual point (3, p, p); the components; and gap, objective,
    log det Ω and number of sweeps.
    """
    p, answers, facts = len(S), np.empty((3, *S.shape)), np.zeros(4)
    labels, problem = np.zeros(p, dtype=np.int64), (p, S, alpha, weights, e, tol, max_sweeps, digits)
    status = _ended("graph_lasso", *problem, *(warm or (None, None)), *answers, labels, lapack(p), facts)
    return status, answers, labels, tuple(facts.tolist())


def is_covariance(S: Array) -> bool:
    """Whether a matrix is finite and symmetric, and has no negative variances."""
    return bool(library().graph_check(len(S), S))


def graph_components(S: Array, alpha: float, weights: Array | None = None) -> Index:
    """The component of each variable. Two variables are joined if |S_ij| exceeds alpha times its weight."""
    labels = np.empty(len(S), dtype=np.int64)
    if library().graph_components(len(S), S, alpha, weights, labels) < 0:
        raise MemoryError("graph_components has no memory for its work.")
    return labels


def graph_gap(
    S: Array, alpha: float, weights: Array | None, e: Array, omega: Array, sigma: Array, log_det: float
) -> tuple[float, float]:
    """Gap and ⟨S + diag(e), Ω⟩ + Σ L|Ω| for an Ω with a known inverse."""
    p, trace = len(S), np.empty(1)
    gap = library().graph_gap(p, S, alpha, weights, e, omega, sigma, log_det, lapack(p), trace)
    return gap, float(trace[0])
