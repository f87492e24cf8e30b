"""What is solved: problems with one criterion each.

Every problem knows its value at any output of any solver, and a lower bound of its minimum by weak duality. The
suboptimality of an output is (value − lower bound) / max(1, |lower bound|): an upper bound of the true one, computed
here and never by the solver itself. Whole fits are not jointly convex; their criterion is the joint certificate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from benchmarks.reference import composite_gap, weight_gap
from mssl.data.design import Design
from mssl.data.layouts import TaskData, read_tasks
from mssl.glasso.solver import graphical_lasso, graphical_lasso_gap
from mssl.losses import Gaussian, Loss, resolve_loss
from mssl.model.coupling import Coupling
from mssl.penalties import L1, L21, EntrywisePenalty
from mssl.solvers.fit import Settings, diagonal_lambda_max, fit_prepared, prepare
from mssl.solvers.glm import GLMLoss, GLMRows
from mssl.solvers.quadratic import Quadratic, StepProblem, make_quadratic
from mssl.solvers.weights import CoefficientProblem, solve_quadratic
from mssl.structures import SparsePrecision, StructureScale, StructureStep

Array = NDArray[np.float64]

TIGHT = 1e-9  # relative gap of the solve that gives the lower bound
UPDATES = (1.0, 1.3)  # factors of the coupling: two Ω-updates that share the data
_FORBIDDING = 1e6  # a price at which there is no edge


class Problem(ABC):
    """A problem with a name, what it is like, and a criterion."""

    group: str
    name: str
    axes: dict[str, Any]

    @abstractmethod
    def value(self, output: Any) -> float:
        """The objective at an output, infinite where that is not feasible."""

    @property
    @abstractmethod
    def lower_bound(self) -> float:
        """A number that no value can be below."""

    def suboptimality(self, output: Any) -> float:
        """Upper bound of how far an output is from the minimum, relative to its size."""
        return float((self.value(output) - self.lower_bound) / max(1.0, abs(self.lower_bound)))


def sparse_precision(kind: str, p: int, rng: np.random.Generator) -> Array:
    """Erdős–Rényi of mean degree 4, a chain, blocks of ten, or blocks and as many variables without neighbours."""
    if kind == "erdos-renyi":
        A = np.triu(rng.random((p, p)) < 4 / p, 1) * rng.uniform(0.3, 0.6, (p, p)) * rng.choice([-1, 1], (p, p))
        A = A + A.T
        return np.asarray(A + (0.2 - np.linalg.eigvalsh(A)[0]) * np.eye(p))
    if kind == "chain":
        return np.asarray(np.eye(p) + 0.45 * (np.eye(p, k=1) + np.eye(p, k=-1)))
    block = np.arange(p) // 10
    linked = (block[:, None] == block) & ~np.eye(p, dtype=bool)
    if kind == "blocks + outliers":
        linked[p // 2 :] = linked[:, p // 2 :] = False
    return np.asarray(np.eye(p) + 0.3 * linked)


def sample_covariance(kind: str, p: int, n: int, rng: np.random.Generator) -> Array:
    """Covariance of n rows; "low-rank" is of pure noise, as WᵀW of few features is."""
    if kind == "low-rank":
        X = rng.standard_normal((n, p))
    else:
        X = rng.standard_normal((n, p)) @ np.linalg.cholesky(np.linalg.inv(sparse_precision(kind, p, rng))).T
    return np.asarray(X.T @ X / n)


class GraphStep(Problem):
    """Graphical lasso: tr(SΩ) − log det Ω + α Σ_{i≠j} |Ω_ij|, α a share of the one that leaves no edge.

    S has α on its diagonal added beforehand (the textbook's penalty on all entries), so that every solver minimises
    the same function whether or not it would penalise the diagonal itself. The output is Ω.
    """

    group = "graph"

    def __init__(self, kind: str, p: int, n: int, share: float, seed: int = 0) -> None:
        self.name = f"graph/{kind}/p={p}/n={n}/α={share}"
        self.axes = {"kind": kind, "p": p, "n": n, "share": share}
        S = sample_covariance(kind, p, n, np.random.default_rng(seed))
        self.alpha = share * float(np.abs(S - np.diag(np.diag(S))).max())
        self.S = S + self.alpha * np.eye(p)

    def value(self, output: Array) -> float:
        omega = 0.5 * (output + output.T)
        if not np.all(np.isfinite(omega)):
            return float("inf")
        try:
            factor = np.linalg.cholesky(omega)
        except np.linalg.LinAlgError:
            return float("inf")
        off = np.abs(omega).sum() - np.trace(np.abs(omega))
        return float(np.vdot(self.S, omega) - 2 * np.log(np.diagonal(factor)).sum() + self.alpha * off)

    @cached_property
    def lower_bound(self) -> float:
        best = graphical_lasso(self.S, self.alpha, penalize_diagonal=False, tol=TIGHT)
        gap, value = graphical_lasso_gap(self.S, best.precision, self.alpha, penalize_diagonal=False)
        return value - gap


def task_rows(
    d: int, K: int, n: int, correlation: float, shared: bool, family: str, seed: int
) -> tuple[Array, Array, float]:
    """X of shape (K, n, d), or (1, n, d) when shared; y (K, n); and the spread of the weights that made them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1 if shared else K, n, d))
    X *= np.sqrt(1 - correlation)
    X += np.sqrt(correlation) * rng.standard_normal((len(X), n, 1))
    spread = 0.5 if family == "gaussian" else {"logistic": 2.0, "poisson": 0.7}[family] / np.sqrt(d)
    W = spread * rng.standard_normal((K, d)) * (rng.random((K, d)) < 0.5)
    eta = np.matmul(X, W[:, :, None])[:, :, 0]
    if family == "gaussian":
        y = eta + rng.standard_normal((K, n))
    elif family == "logistic":
        y = (rng.random((K, n)) < 1 / (1 + np.exp(-eta))).astype(float)
    else:
        y = rng.poisson(np.exp(np.clip(eta, -10, 5))).astype(float)
    return X, y, spread


class WeightStep(Problem):
    """Weights of K tasks for given Ω: loss + ½ tr(WCWᵀ) + γ‖W‖₁, C changing as often as ``updates`` says.

    The output is a list of (W, b), one for each C. With diagonal C these are K elastic nets, what peers can do.
    """

    group = "weights"

    def __init__(
        self,
        shape: tuple[int, int, int],
        share: float,
        correlation: float = 0.5,
        *,
        shared: bool = False,
        family: str = "gaussian",
        coupled: bool = False,
        updates: int = 2,
        seed: int = 0,
    ) -> None:
        d, K, n = shape
        design, link = "shared" if shared else "own", "coupled" if coupled else "diagonal"
        self.name = f"weights/{family}/{shape}/{design} X/ρ={correlation}/{link}/γ={share}/{updates} updates"
        self.axes = {"d": d, "K": K, "n": n, "share": share, "correlation": correlation, "shared": shared}
        self.axes |= {"family": family, "coupled": coupled, "updates": updates}
        self.family, self.shared = family, shared
        self.X, self.y, spread = task_rows(d, K, n, correlation, shared, family, seed)
        self.ridges = [factor / spread**2 for factor in UPDATES[:updates]]
        self.couplings = [self._coupling(ridge, coupled, K) for ridge in self.ridges]
        self.threshold = share * float(np.abs(self._slopes(np.zeros((K, d)), self._null_intercepts())).max())

    def _coupling(self, ridge: float, coupled: bool, K: int) -> Coupling:
        if not coupled:
            return Coupling.diagonal_only(np.full(K, ridge))
        P = sparse_precision("chain", K, np.random.default_rng(0)) * ridge
        return Coupling(P, np.linalg.inv(P))

    def _null_intercepts(self) -> Array:
        mean = np.asarray(self.y.mean(axis=1))
        if self.family == "gaussian":
            return mean
        return np.log(mean) - (np.log1p(-mean) if self.family == "logistic" else 0.0)

    def _predictor(self, W: Array, b: Array) -> Array:
        return np.asarray(np.matmul(self.X, W[:, :, None])[:, :, 0] + b[:, None])

    def _slopes(self, W: Array, b: Array) -> Array:
        eta = self._predictor(W, b)
        mean = {"gaussian": lambda: eta, "logistic": lambda: 1 / (1 + np.exp(-eta)), "poisson": lambda: np.exp(eta)}
        return np.asarray(np.matmul((mean[self.family]() - self.y)[:, None, :], self.X)[:, 0, :])

    def _loss(self, W: Array, b: Array) -> float:
        """Half the deviance."""
        eta, y = self._predictor(W, b), self.y
        if self.family == "gaussian":
            return 0.5 * float(np.sum((y - eta) ** 2))
        if self.family == "logistic":
            return float(np.sum(np.logaddexp(0, eta) - y * eta))
        return float(np.sum(np.exp(np.minimum(eta, 700)) - y * eta + xlogy(y, y) - y))

    def value(self, output: list[tuple[Array, Array]]) -> float:
        total = 0.0
        for (W, b), coupling in zip(output, self.couplings, strict=True):
            total += self._loss(W, b) + coupling.value(W) + self.threshold * float(np.abs(W).sum())
        return total if np.isfinite(total) else float("inf")

    @cached_property
    def lower_bound(self) -> float:
        output = self.solve(TIGHT)
        t = np.full(len(self.y), self.threshold)
        gaps = (
            weight_gap(W, self._slopes(W, b) + coupling.dot(W), coupling, t)
            for (W, b), coupling in zip(output, self.couplings, strict=True)
        )
        return self.value(output) - sum(gaps)

    @property
    def loss(self) -> Loss:
        """The loss as the package knows it."""
        return resolve_loss("bernoulli" if self.family == "logistic" else self.family)

    def design(self) -> Design:
        """Centred features, from the raw rows."""
        K, n = self.y.shape
        if self.shared:
            return Design.build(self.X[0], n_tasks=K, scale=False)
        return Design.build(self.X.reshape(K * n, -1), n * np.arange(K + 1), scale=False)

    def quadratic(self) -> Quadratic:
        """The Gaussian loss in the form that the package chooses."""
        return make_quadratic(self.design(), np.ones(self.y.size), self.y.ravel())

    def solve(self, tol: float, solver: str = "auto") -> list[tuple[Array, Array]]:
        """The package's own answer, from the raw rows on, at a gap relative to the value at W = 0."""
        K, t = len(self.y), np.full(len(self.y), self.threshold)
        design = self.design()
        if self.family == "gaussian":
            quadratic = make_quadratic(design, np.ones(self.y.size), self.y.ravel())
            null = quadratic.null_value
        else:
            rows = GLMRows(design, self.y.ravel(), np.ones(self.y.size), self.loss)
            penalty = EntrywisePenalty.of(t, (K, rows.design.n_features))
            loss = GLMLoss(rows, np.ones(K), first=rows.null_quadratic())
            problem = CoefficientProblem(penalty, source=loss, solver=solver)
            null = problem.value(np.zeros((K, design.n_features)))
        W, answers = np.zeros((K, design.n_features)), []
        for coupling in self.couplings:
            if self.family == "gaussian":
                W = solve_quadratic(StepProblem.of(quadratic, coupling, t), W, solver=solver, tol=tol * null).W
                b = quadratic.intercepts(W)
            else:
                W = problem.solve(coupling, W, tol=tol * null, max_iter=10_000).W
                b = problem.intercepts(W)
            answers.append(design.to_user(W, b))
        return answers


class JointLasso(Problem):
    """½‖Y − XW‖² + α Σ_j ‖W_·j‖: features chosen jointly by all tasks, one X. The output is (W, b), W (K, d)."""

    group = "joint lasso"

    def __init__(self, shape: tuple[int, int, int], share: float, correlation: float = 0.5, seed: int = 0) -> None:
        d, K, n = shape
        self.name = f"joint lasso/{shape}/ρ={correlation}/α={share}"
        self.axes = {"d": d, "K": K, "n": n, "share": share, "correlation": correlation}
        X, _, _ = task_rows(d, K, n, correlation, True, "gaussian", seed)
        keep = np.arange(d) % 5 == 0  # features that serve no task are there to be left out
        W = np.where(keep, np.random.default_rng(seed + 1).standard_normal((K, d)), 0.0)
        self.X = X[0]
        self.Y = np.ascontiguousarray((self.X @ W.T) + np.random.default_rng(seed + 2).standard_normal((n, K)))
        centred = self.Y - self.Y.mean(axis=0)
        self.alpha = share * float(np.linalg.norm((self.X - self.X.mean(axis=0)).T @ centred, axis=1).max())

    def value(self, output: tuple[Array, Array]) -> float:
        W, b = output
        residual = self.Y - self.X @ W.T - b
        return 0.5 * float(np.sum(residual**2)) + self.alpha * float(np.linalg.norm(W, axis=0).sum())

    def quadratic(self) -> tuple[Design, Quadratic]:
        """Features and loss, from the raw rows on."""
        design = Design.build(self.X, n_tasks=self.Y.shape[1], scale=False)
        return design, make_quadratic(design, np.ones(self.Y.size), self.Y.T.ravel())

    def solve(self, tol: float, solver: str = "auto") -> tuple[Array, Array]:
        """The package's own answer at a gap relative to the value at W = 0."""
        design, quadratic = self.quadratic()
        zero = np.zeros((self.Y.shape[1], self.X.shape[1]))
        free = Coupling.diagonal_only(np.zeros(len(zero)))
        goal = tol * quadratic.null_value
        W = solve_quadratic(StepProblem.of(quadratic, free, L21(self.alpha)), zero, solver=solver, tol=goal).W
        return design.to_user(W, quadratic.intercepts(W))

    @cached_property
    def lower_bound(self) -> float:
        W, b = self.solve(TIGHT)
        free, V = Coupling.diagonal_only(np.zeros(len(W))), W
        residual = self.Y - self.X @ V.T - b
        G = -(residual.T @ (self.X - self.X.mean(axis=0)))
        loss = 0.5 * float(np.sum(residual**2))
        return self.value((W, b)) - composite_gap(loss, V, G, free, L21(self.alpha))


class WholeFit(Problem):
    """p-MSSL from data to certificate: weights and graph. The output is W and the structure's step (Ω, a dual point).

    λ is a share of λ_max, or such that at the start twice as many pairs as tasks exceed it (``share=None``).
    """

    group = "fit"

    def __init__(
        self,
        shape: tuple[int, int, int],
        share: float | None = 0.3,
        gamma: float = 0.02,
        correlation: float = 0.5,
        *,
        group: str = "fit",
        seed: int = 0,
    ) -> None:
        d, K, n = shape
        self.group = group
        self.name = f"{group}/{shape}/ρ={correlation}/λ={'degree 4' if share is None else share}/γ={gamma}"
        self.axes = {"d": d, "K": K, "n": n, "share": share, "gamma": gamma, "correlation": correlation}
        self.data = self._tasks(d, K, n, correlation, seed)
        self.prepared = prepare(self.data, Gaussian(), Settings())
        self.penalty = L1(gamma * self.prepared.gamma_max())
        self.structure = SparsePrecision(0.3)
        if share is None:
            self.structure.alpha = self._price_of_degree(4.0)
        else:
            self.structure.alpha = share * diagonal_lambda_max(self.prepared, self.structure, self.penalty)

    @staticmethod
    def _tasks(d: int, K: int, n: int, correlation: float, seed: int) -> TaskData:
        """Tasks whose weights are drawn from a sparse graph over tasks."""
        rng = np.random.default_rng(seed)
        X, _, _ = task_rows(d, K, n, correlation, False, "gaussian", seed)
        root = np.linalg.cholesky(np.linalg.inv(sparse_precision("erdos-renyi" if K > 20 else "blocks", K, rng)))
        W = 0.5 * root @ rng.standard_normal((K, d))
        y = np.matmul(X, W[:, :, None])[:, :, 0] + rng.standard_normal((K, n))
        return read_tasks(X.reshape(K * n, d), y.ravel(), tasks=np.repeat(np.arange(K), n))

    def _price_of_degree(self, degree: float) -> float:
        """The λ that so many pairs of tasks exceed when there is no edge yet."""
        fit = fit_prepared(self.prepared, SparsePrecision(_FORBIDDING), self.penalty)
        S = np.abs(self.structure.moment(fit.W - fit.mean, fit.scale)) / self.structure.edge_scales(fit.scale)
        pairs = S[np.triu_indices(len(S), 1)]
        return float(np.partition(pairs, -int(degree * len(S) / 2))[-int(degree * len(S) / 2)])

    @cached_property
    def frame(self) -> StructureScale:
        """The constants that make F one fixed function."""
        return fit_prepared(self.prepared, self.structure, self.penalty).scale

    def _parts(self, output: tuple[Array, StructureStep]) -> tuple[float, float]:
        """F and its certificate, with the solver's dual point where it has one: every such point bounds the optimum."""
        W, step = output
        problem, omega = self.prepared.problem(self.penalty), step.precision
        inverse, log_determinant = np.linalg.inv(omega), float(np.linalg.slogdet(omega)[1])
        known = step.warm and replace(step.warm, covariance=inverse, log_determinant=log_determinant)
        step = StructureStep(omega, inverse, warm=known)
        coupling = self.structure.couple(step)
        weights = problem.step(coupling)  # type: ignore[attr-defined]
        gap = weights.certificate(W, weights.gradient(W))
        step = self.structure.certify(self.structure.moment(W, self.frame), step, self.frame)
        return problem.value(W) + step.value, gap + step.gap

    def value(self, output: tuple[Array, StructureStep]) -> float:
        return self._parts(output)[0]

    @property
    def lower_bound(self) -> float:
        """Unknown: F is not jointly convex."""
        return float("-inf")

    def suboptimality(self, output: tuple[Array, StructureStep]) -> float:
        value, gap = self._parts(output)
        return gap / max(1.0, abs(value))
