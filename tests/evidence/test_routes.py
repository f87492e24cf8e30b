"""Every route computes the same numbers as one dense Gaussian, and they are the derivatives that they claim to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from dense_evidence import DenseModel

from mssl.data.factors import TaskFactors
from mssl.evidence.prior import Columns, Hyper
from mssl.evidence.routes import DualRoute, MeanRoute, PrimalRoute, Route, SharedRoute

K, D = 4, 5
BLOCKS = Columns(np.array([0, 0, 0, 1, 1]), np.array([0, 1, 1, 2, 3]))


@dataclass
class Case:
    """A problem, the routes that can do it, and its hyperparameters."""

    dense: DenseModel
    routes: dict[str, Route]
    hyper: Hyper


def spd(rng: np.random.Generator, size: int = K) -> np.ndarray:
    return np.atleast_2d(np.cov(rng.normal(size=(size, 3 * size + 3)))) + 0.1 * np.eye(size)


def draw_hyper(rng: np.random.Generator, columns: Columns, *, dense: bool = False, errors: bool = False) -> Hyper:
    G = columns.n_blocks
    v = rng.uniform(0.2, 1, G)
    t = rng.uniform(0.2, 1) * v
    noise = spd(rng) if errors else rng.uniform(0.2, 1, K)
    psi = rng.uniform(0.3, 2, columns.n_groups)
    if not dense:
        return Hyper(v, t, psi, noise)
    v[0] = 1.0
    t = np.zeros(G)
    if columns.intercept:
        t[-1] = 0.7
    return Hyper(v, t, psi, noise, spd(rng), (0.8, 0.3))


def ragged(seed: int, *, dense: bool, intercept: bool, flat: bool) -> Case:
    """Tasks with few and with many rows, one of them with one."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, D)) for n in (3, 9, 1, 12)]
    y = [rng.normal(size=len(x)) + k for k, x in enumerate(X)]
    columns = BLOCKS
    if intercept:
        columns, X = columns.with_intercept(), [np.column_stack([x, np.ones(len(x))]) for x in X]
    rows = TaskFactors.from_rows(X, y, [None] * K, intercept=flat)
    routes: dict[str, Route] = {"dual": DualRoute(rows, columns)}
    if not dense:
        routes["mean"] = MeanRoute(rows, columns)
    if not flat:
        # Rows of no common occasion: every occasion has the target of one task.
        counts = [len(x) for x in X]
        seen = np.zeros((sum(counts), K), dtype=bool)
        seen[np.arange(sum(counts)), np.repeat(np.arange(K), counts)] = True
        design = np.where(seen[:, :, None], np.concatenate(X)[:, None], 0.0)
        Y = np.where(seen, np.concatenate(y)[:, None], 0.0)
        routes["primal"] = PrimalRoute(design, Y, seen, np.ones(len(Y)), 0.0, columns)
    return Case(DenseModel(X, y, columns, flat=flat), routes, draw_hyper(rng, columns, dense=dense))


def shared(seed: int, *, dense: bool, errors: bool, n: int, flat: bool) -> Case:
    """One design for all tasks."""
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, D)), rng.normal(size=(n, K))
    Xc, Yc = (X - X.mean(axis=0), Y - Y.mean(axis=0)) if flat else (X, Y)
    rows = TaskFactors.from_rows([X] * K, list(Y.T), [None] * K, intercept=flat)
    left, sizes, _ = np.linalg.svd(Xc, full_matrices=False)
    Q = left[:, sizes > 1e-10]
    along = Q.T @ Yc
    rest = Yc - Q @ along
    routes: dict[str, Route] = {
        "shared": SharedRoute(Q.T @ Xc, along, n - flat - Q.shape[1], rest.T @ rest, BLOCKS),
        "primal": PrimalRoute(Xc[:, None], Yc, np.ones(Y.shape, bool), np.ones(n), float(flat), BLOCKS),
    }
    if not errors:
        routes["dual"] = DualRoute(rows, BLOCKS)
        if not dense:
            routes["mean"] = MeanRoute(rows, BLOCKS)
    occasions = [np.arange(n)] * K
    model = DenseModel([X] * K, list(Y.T), BLOCKS, occasions, flat)
    return Case(model, routes, draw_hyper(rng, BLOCKS, dense=dense, errors=errors))


def gaps(seed: int, *, dense: bool, intercept: bool) -> Case:
    """Designs of their own, errors shared on occasions, some targets missing."""
    rng = np.random.default_rng(seed)
    columns = BLOCKS.with_intercept() if intercept else BLOCKS
    n = 9
    seen = rng.random((n, K)) > 0.3
    X = rng.normal(size=(n, K, D))
    if intercept:
        X = np.concatenate([X, np.ones((n, K, 1))], axis=2)
    Y = rng.normal(size=(n, K))
    route = PrimalRoute(np.where(seen[:, :, None], X, 0), np.where(seen, Y, 0), seen, np.ones(n), 0.0, columns)
    parts = [np.flatnonzero(seen[:, k]) for k in range(K)]
    model = DenseModel([X[p, k] for k, p in enumerate(parts)], [Y[p, k] for k, p in enumerate(parts)], columns, parts)
    return Case(model, {"primal": route}, draw_hyper(rng, columns, dense=dense, errors=True))


CASES: dict[str, Callable[[], Case]] = {
    "ragged": lambda: ragged(0, dense=False, intercept=False, flat=False),
    "ragged, flat": lambda: ragged(1, dense=False, intercept=False, flat=True),
    "ragged, shrunk": lambda: ragged(2, dense=False, intercept=True, flat=False),
    "ragged, dense": lambda: ragged(3, dense=True, intercept=False, flat=True),
    "ragged, dense, shrunk": lambda: ragged(4, dense=True, intercept=True, flat=False),
    "shared, many rows": lambda: shared(5, dense=False, errors=False, n=12, flat=True),
    "shared, few rows": lambda: shared(6, dense=False, errors=False, n=4, flat=True),
    "shared, dense": lambda: shared(7, dense=True, errors=False, n=12, flat=True),
    "shared, dense, few rows": lambda: shared(8, dense=True, errors=False, n=4, flat=False),
    "shared, related errors": lambda: shared(9, dense=False, errors=True, n=12, flat=True),
    "shared, dense, related errors": lambda: shared(10, dense=True, errors=True, n=12, flat=True),
    "gaps": lambda: gaps(11, dense=False, intercept=False),
    "gaps, dense, shrunk": lambda: gaps(12, dense=True, intercept=True),
}
EACH = [(case, route) for case, make in CASES.items() for route in make().routes]


@pytest.fixture(params=EACH, ids=[f"{case}-{route}" for case, route in EACH])
def one(request: pytest.FixtureRequest) -> tuple[DenseModel, Route, Hyper]:
    name, route = request.param
    case = CASES[name]()
    return case.dense, case.routes[route], case.hyper


def test_log_evidence_is_that_of_the_dense_gaussian(one) -> None:
    dense, route, hyper = one
    assert route.statistics(hyper).value == pytest.approx(dense.value(hyper), abs=1e-8)


def slope(dense: DenseModel, hyper: Hyper, name: str, direction: np.ndarray) -> float:
    """Derivative of the dense −2 log Z by central differences of fourth order."""
    here, e = getattr(hyper, name), 1e-3

    def at(step: float) -> float:
        return dense.value(replace(hyper, **{name: here + step * direction}))

    return (8 * (at(e) - at(-e)) - (at(2 * e) - at(-2 * e))) / (12 * e)


def test_statistics_are_the_derivatives_of_the_dense_evidence(one) -> None:
    dense, route, hyper = one
    s, columns = route.statistics(hyper), dense.columns
    rng = np.random.default_rng(0)
    psi = hyper.psi[columns.group]
    under = np.full(len(psi), hyper.T is not None)
    if columns.intercept:
        under[-1] = False
    own = np.where(under, 0.0, s.own_trace - s.own)
    if hyper.T is not None:
        own = np.where(under, s.dense_trace - s.dense, own)
    mean = np.where(under, 0.0, s.mean_trace - s.mean)
    scale_v, scale_t = hyper.v[columns.block], hyper.t[columns.block]
    for name, gradient in (
        ("v", columns.sum_blocks(psi * own)),
        ("t", np.where(columns.sum_blocks(under * 1.0) > 0, np.nan, columns.sum_blocks(psi * mean))),
        ("psi", columns.sum_groups(scale_v * own + scale_t * mean)),
    ):
        for place in np.flatnonzero(np.isfinite(gradient)).tolist():
            found = slope(dense, hyper, name, np.eye(len(gradient))[place])
            assert gradient[place] == pytest.approx(found, rel=1e-6, abs=1e-6), (name, place)
    direction = rng.normal(size=hyper.noise.shape)
    direction = 0.3 * (direction + direction.T) if hyper.noise.ndim == 2 else 0.3 * direction
    claimed = float(np.sum((s.noise_trace - s.noise) * direction))
    assert claimed == pytest.approx(slope(dense, hyper, "noise", direction), rel=1e-6, abs=1e-6)
    if hyper.T is not None:
        direction = rng.normal(size=(K, K))
        direction = 0.3 * (direction + direction.T)
        claimed = float(np.sum((s.B - s.C) * direction))
        assert claimed == pytest.approx(slope(dense, hyper, "T", direction), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", [name for name, make in CASES.items() if len(make().routes) > 1])
def test_routes_agree_in_all_statistics(name: str) -> None:
    case = CASES[name]()
    found = [route.statistics(case.hyper) for route in case.routes.values()]
    fields = ["value", "noise", "noise_trace"]
    fields += ["own", "own_trace", "mean", "mean_trace"] if case.hyper.T is None else ["B", "C", "dense", "dense_trace"]
    for field in fields:
        first = getattr(found[0], field)
        kept = np.ones(np.shape(first), dtype=bool)
        if field.startswith("dense") and case.dense.columns.intercept:
            kept[-1] = False
        for other in found[1:]:
            np.testing.assert_allclose(
                getattr(other, field)[kept] if np.ndim(first) else getattr(other, field),
                first[kept] if np.ndim(first) else first,
                rtol=1e-8,
                atol=1e-8,
                err_msg=field,
            )


def test_row_by_row_statistics_are_those_of_the_dense_inverse() -> None:
    case = ragged(0, dense=False, intercept=False, flat=False)
    for name in ("mean", "dual"):
        route = case.routes[name]
        assert isinstance(route, MeanRoute | DualRoute)
        X, z, task = route.rows.flat()
        S = case.hyper.t[BLOCKS.block] * case.hyper.psi[BLOCKS.group]
        own = case.hyper.v[BLOCKS.block] * case.hyper.psi[BLOCKS.group]
        V = (X * S) @ X.T + (task[:, None] == task) * ((X * own) @ X.T) + np.diag(case.hyper.noise[task])
        s = route.statistics(case.hyper)
        np.testing.assert_allclose(s.alpha, np.linalg.solve(V, z), atol=1e-9)
        np.testing.assert_allclose(s.diagonal, np.diag(np.linalg.inv(V)), atol=1e-9)


def test_posteriors_are_those_of_the_dense_gaussian(one) -> None:
    dense, route, hyper = one
    posterior = route.posterior(hyper)
    mean, covariance = dense.posterior(hyper)
    rows = np.random.default_rng(1).normal(size=(3, mean.shape[1]))
    np.testing.assert_allclose(posterior.coef, mean[:-1], atol=1e-8)
    np.testing.assert_allclose(posterior.mean, mean[-1], atol=1e-8)
    np.testing.assert_allclose(posterior.new_covariance(), covariance[-1, :, -1], atol=1e-8)
    np.testing.assert_allclose(
        posterior.new_variance(rows), np.einsum("ni,ij,nj->n", rows, covariance[-1, :, -1], rows), atol=1e-8
    )
    for k in range(K):
        np.testing.assert_allclose(posterior.covariance(k), covariance[k, :, k], atol=1e-8)
        of_rows = np.einsum("ni,ij,nj->n", rows, covariance[k, :, k], rows)
        np.testing.assert_allclose(posterior.variance(rows, k), of_rows, atol=1e-8)


def test_draws_have_the_moments_of_the_posterior(one) -> None:
    dense, route, hyper = one
    mean, covariance = dense.posterior(hyper)
    size = mean[:-1].size
    covariance = covariance[:-1, :, :-1].reshape(size, size)
    count = 4000
    draws = route.posterior(hyper).draw(count, np.random.default_rng(2)).reshape(count, size)
    variances = np.diag(covariance)
    off = (draws.mean(axis=0) - mean[:-1].ravel()) / np.sqrt(variances / count)
    assert np.max(np.abs(off)) < 4.5
    # Var of an empirical covariance: (s_ii s_jj + s_ij²)/n.
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / count)
    assert np.max(np.abs(np.cov(draws.T) - covariance) / error) < 5.5


def test_totals_over_tasks_have_the_variance_of_the_posterior(one) -> None:
    dense, route, hyper = one
    covariance = dense.posterior(hyper)[1][:-1, :, :-1]
    rng = np.random.default_rng(3)
    shares = rng.normal(size=len(covariance))
    X = rng.normal(size=(5, covariance.shape[1]))
    expected = np.einsum("ni,k,kilj,l,nj->n", X, shares, covariance, shares, X)
    np.testing.assert_allclose(route.posterior(hyper).total_variance(X, shares), expected, rtol=1e-6)


def test_weights_of_occasions_are_repetitions() -> None:
    case = gaps(13, dense=True, intercept=False)
    route = case.routes["primal"]
    assert isinstance(route, PrimalRoute)
    counts = np.array([2.0, 1, 1, 3, 1, 1, 1, 1, 2])
    twice = np.repeat(np.arange(9), counts.astype(int))
    weighted = replace(route, counts=counts)
    repeated = PrimalRoute(route.X[twice], route.Y[twice], route.seen[twice], np.ones(len(twice)), 0.0, route.columns)
    a, b = weighted.statistics(case.hyper), repeated.statistics(case.hyper)
    for field in ("value", "own", "own_trace", "noise", "noise_trace", "B", "C"):
        np.testing.assert_allclose(getattr(a, field), getattr(b, field), rtol=1e-9, atol=1e-9, err_msg=field)
    np.testing.assert_allclose(weighted.posterior(case.hyper).coef, repeated.posterior(case.hyper).coef, atol=1e-10)
