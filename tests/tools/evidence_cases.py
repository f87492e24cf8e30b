"""Problems of the evidence with every kernel, scale and noise, and the routes that can do them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from dense_evidence import DenseModel
from factor_analytic import FactorAnalytic

from mssl.data.factors import TaskFactors
from mssl.evidence.prior import (
    ARD,
    Block,
    Dense,
    Equal,
    Exchangeable,
    Known,
    Noise,
    PerTask,
    Prior,
    SharedNoise,
    TaskKernel,
)
from mssl.evidence.routes import DualRoute, MeanRoute, PrimalRoute, Route, SharedRoute

K, D = 4, 5
GROUPS, PARTS = np.array([0, 1, 1, 2, 3]), np.array([0, 0, 1, 1])


@dataclass
class Case:
    """A problem, the routes that can do it, and its prior."""

    dense: DenseModel
    routes: dict[str, Route]
    prior: Prior


def spd(rng: np.random.Generator, size: int = K) -> np.ndarray:
    return np.atleast_2d(np.cov(rng.normal(size=(size, 3 * size + 3)))) + 0.1 * np.eye(size)


def kernel(rng: np.random.Generator, name: str) -> TaskKernel:
    if name == "dense":
        return Dense(spd(rng))
    if name == "known":
        return Known(spd(rng), 0.7)
    if name == "factors":
        return FactorAnalytic(2, 0.5 * rng.normal(size=(K, 2)), rng.uniform(0.2, 1, K))
    return Exchangeable(v=rng.uniform(0.2, 1), t=rng.uniform(0.2, 1))


def draw_prior(rng: np.random.Generator, name: str, *, intercept: bool = False, errors: bool = False) -> Prior:
    """Two plain blocks, or all columns in one block of another kernel."""
    psi = rng.uniform(0.3, 2, 4)
    noise: Noise = PerTask(rng.uniform(0.2, 1, K))
    if errors:
        noise = SharedNoise(spd(rng), spd(rng))
    if name == "plain":
        first = Block(np.arange(3), kernel(rng, name), ARD(np.array([0, 1, 1]), psi=psi[:2]))
        blocks = (first, Block(np.arange(3, 5), kernel(rng, name), ARD(np.array([0, 1]), psi=psi[2:])))
    else:
        blocks = (Block(np.arange(D), kernel(rng, name), ARD(GROUPS, PARTS, psi)),)
    prior = Prior(blocks, noise)
    return prior.with_intercept(Exchangeable(v=0.6, t=0.7, learned=("v",))) if intercept else prior


def ragged(seed: int, name: str, *, intercept: bool, flat: bool) -> Case:
    """Tasks with few and with many rows, one of them with one."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, D)) for n in (3, 9, 1, 12)]
    y = [rng.normal(size=len(x)) + k for k, x in enumerate(X)]
    if intercept:
        X = [np.column_stack([x, np.ones(len(x))]) for x in X]
    rows = TaskFactors.from_rows(X, y, [None] * K, intercept=flat)
    routes: dict[str, Route] = {"dual": DualRoute(rows)}
    if name == "plain":
        routes["mean"] = MeanRoute(rows)
    if not flat:
        # Rows of no common occasion: every occasion has the target of one task.
        counts = [len(x) for x in X]
        seen = np.zeros((sum(counts), K), dtype=bool)
        seen[np.arange(sum(counts)), np.repeat(np.arange(K), counts)] = True
        design = np.where(seen[:, :, None], np.concatenate(X)[:, None], 0.0)
        Y = np.where(seen, np.concatenate(y)[:, None], 0.0)
        routes["primal"] = PrimalRoute(design, Y, seen, np.ones(len(Y)), 0.0)
    return Case(DenseModel(X, y, flat=flat), routes, draw_prior(rng, name, intercept=intercept))


def shared(seed: int, name: str, *, errors: bool, n: int, flat: bool) -> Case:
    """One design for all tasks."""
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, D)), rng.normal(size=(n, K))
    Xc, Yc = (X - X.mean(axis=0), Y - Y.mean(axis=0)) if flat else (X, Y)
    rows = TaskFactors.from_rows([X] * K, list(Y.T), [None] * K, intercept=flat)
    left, sizes, _ = np.linalg.svd(Xc, full_matrices=False)
    Q = left[:, sizes > 1e-10]
    along = Q.T @ Yc
    rest = Yc - Q @ along
    routes: dict[str, Route] = {"primal": PrimalRoute(Xc[:, None], Yc, np.ones(Y.shape, bool), np.ones(n), float(flat))}
    if name != "plain":
        routes["shared"] = SharedRoute(Q.T @ Xc, along, n - flat - Q.shape[1], rest.T @ rest)
    if not errors:
        routes["dual"] = DualRoute(rows)
        if name == "plain":
            routes["mean"] = MeanRoute(rows)
    model = DenseModel([X] * K, list(Y.T), [np.arange(n)] * K if errors else None, flat)
    return Case(model, routes, draw_prior(rng, name, errors=errors))


def gaps(seed: int, name: str, *, intercept: bool) -> Case:
    """Designs of their own, errors shared on occasions, some targets missing."""
    rng = np.random.default_rng(seed)
    n = 9
    seen = rng.random((n, K)) > 0.3
    X = rng.normal(size=(n, K, D))
    if intercept:
        X = np.concatenate([X, np.ones((n, K, 1))], axis=2)
    Y = rng.normal(size=(n, K))
    route = PrimalRoute(np.where(seen[:, :, None], X, 0), np.where(seen, Y, 0), seen, np.ones(n), 0.0)
    parts = [np.flatnonzero(seen[:, k]) for k in range(K)]
    model = DenseModel([X[p, k] for k, p in enumerate(parts)], [Y[p, k] for k, p in enumerate(parts)], parts)
    return Case(model, {"primal": route}, draw_prior(rng, name, intercept=intercept, errors=True))


CASES: dict[str, Callable[[], Case]] = {
    "ragged": lambda: ragged(0, "plain", intercept=False, flat=False),
    "ragged, flat": lambda: ragged(1, "plain", intercept=False, flat=True),
    "ragged, shrunk": lambda: ragged(2, "plain", intercept=True, flat=False),
    "ragged, dense": lambda: ragged(3, "dense", intercept=False, flat=True),
    "ragged, dense, shrunk": lambda: ragged(4, "dense", intercept=True, flat=False),
    "ragged, known": lambda: ragged(14, "known", intercept=False, flat=True),
    "ragged, factors, shrunk": lambda: ragged(15, "factors", intercept=True, flat=False),
    "shared, many rows": lambda: shared(5, "plain", errors=False, n=12, flat=True),
    "shared, few rows": lambda: shared(6, "plain", errors=False, n=4, flat=True),
    "shared, dense": lambda: shared(7, "dense", errors=False, n=12, flat=True),
    "shared, dense, few rows": lambda: shared(8, "dense", errors=False, n=4, flat=False),
    "shared, factors": lambda: shared(16, "factors", errors=False, n=12, flat=True),
    "shared, known": lambda: shared(17, "known", errors=True, n=12, flat=True),
    "shared, related errors": lambda: shared(9, "plain", errors=True, n=12, flat=True),
    "shared, dense, related errors": lambda: shared(10, "dense", errors=True, n=12, flat=True),
    "gaps": lambda: gaps(11, "plain", intercept=False),
    "gaps, dense, shrunk": lambda: gaps(12, "dense", intercept=True),
}


def one_block(
    v: float,
    t: float,
    psi: np.ndarray,
    noise: np.ndarray,
    *,
    relevance: bool = True,
    learned: bool = True,
    predictor: np.ndarray | None = None,
) -> Prior:
    """One plain block, without a mean where t is 0; every column has a relevance of its own."""
    d = len(psi)
    features = ARD(np.arange(d), psi=np.asarray(psi, dtype=float)) if relevance else Equal(d)
    block = Block(np.arange(d), Exchangeable(t > 0, v, t), features)
    return Prior((block,), PerTask(np.asarray(noise, dtype=float), learned), predictor=predictor)


def with_levels(prior: Prior, v: float, t: float) -> Prior:
    """The prior with an intercept around a mean of known variance."""
    return prior.with_intercept(Exchangeable(v=v, t=t, learned=("v",)))
