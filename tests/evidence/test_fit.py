"""From tasks to posteriors: units, order and repetition of rows change nothing, and new tasks are wider than old ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dense_evidence import DenseModel
from scipy import sparse

from mssl.data.layouts import TaskData, read_tasks
from mssl.evidence.choice import forecast
from mssl.evidence.fit import STRUCTURES, EvidenceFit, Options, fit_evidence, join_task
from mssl.evidence.prior import Dense, Exchangeable, PerTask
from mssl.losses import Bernoulli, Gaussian, Loss, Poisson

K, D = 4, 3
TIGHT = {"tol": 1e-7, "max_iter": 4000}


def draw(seed: int = 0, counts: tuple[int, ...] = (5, 18, 12, 25), loss: str = "gaussian"):
    rng = np.random.default_rng(seed)
    mean = np.array([1.0, -0.5, 0.2])
    task = np.repeat(np.arange(len(counts)), counts)
    X = rng.normal(size=(len(task), D)) + 2
    W = mean + 0.3 * rng.normal(size=(len(counts), D))
    eta = np.sum((X - 2) * W[task], axis=1) + 0.3 * rng.normal(size=len(counts))[task]
    y = {
        "gaussian": eta + 0.5 * rng.normal(size=len(task)),
        "bernoulli": (rng.random(len(task)) < 1 / (1 + np.exp(-2 * eta))).astype(float),
        "poisson": rng.poisson(np.exp(np.clip(0.5 * eta + 1, -5, 5))).astype(float),
    }[loss]
    return X, y, task


def fit(X, y, task, weights=None, loss: Loss | None = None, **options) -> EvidenceFit:
    data = read_tasks(X, y, tasks=task, sample_weight=weights)
    return fit_data(data, loss, **options)


def fit_data(data: TaskData, loss: Loss | None = None, **options) -> EvidenceFit:
    d = data.n_features
    options = {**TIGHT, **options}
    return fit_evidence(data, np.zeros(d, dtype=int), np.arange(d), Options(**options), loss=loss)


def predictions(model: EvidenceFit, X, task) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = forecast(model, X, task)
    return found.mean, np.sqrt(found.variance), np.sqrt(found.dispersion)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("intercepts", ["flat", "shrunk", "none"])
def test_units_change_nothing(structure: str, intercepts: str) -> None:
    X, y, task = draw()
    X = X - 2 * (intercepts == "none")
    options = {"structure": structure, "intercepts": intercepts}
    plain = fit(X, y, task, **options)
    assert plain.converged
    index = np.append(task, np.full(3, -1))
    rows = np.vstack([X, X[:3]])
    expected = predictions(plain, rows, index)
    for factor in (1e3, 1e-6):
        scaled = fit(X, factor * y, task, **options)
        for a, b in zip(predictions(scaled, rows, index), expected, strict=True):
            np.testing.assert_allclose(a, factor * b, rtol=1e-6, atol=1e-6 * factor * np.std(y))
        assert scaled.log_evidence == pytest.approx(plain.log_evidence - plain_dof(plain, y) * np.log(factor), abs=1e-4)
    units = np.array([1e8, 1.0, 1e-7])
    other = fit(X * units, y, task, **options)
    for a, b in zip(predictions(other, rows * units, index), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(other.weights()[0] * units, plain.weights()[0], rtol=1e-5, atol=1e-6)
    assert other.log_evidence == pytest.approx(plain.log_evidence, abs=1e-4)


def plain_dof(model: EvidenceFit, y: np.ndarray) -> float:
    return len(y) - len(model.counts) * (model.options.intercepts == "flat")


@pytest.mark.parametrize("structure", ["mean+ard", "iw"])
@pytest.mark.parametrize("loss", [Gaussian(), Bernoulli(), Poisson()], ids=lambda loss: loss.name)
def test_the_order_of_tasks_rows_and_features_changes_nothing(structure: str, loss: Loss) -> None:
    X, y, task = draw(1, loss=loss.name)
    options = {"structure": structure, "intercepts": "shrunk", "tol": 1e-9}
    plain = fit(X, y, task, loss=loss, **options)
    rng = np.random.default_rng(0)
    order, columns, names = rng.permutation(len(y)), rng.permutation(D), rng.permutation(K)
    other = fit(X[order][:, columns], y[order], names[task[order]], loss=loss, **options)
    a, b = forecast(plain, X, task), forecast(other, X[:, columns], names[task])
    scale = np.std(a.mean)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-4 * scale)
    np.testing.assert_allclose(a.variance, b.variance, rtol=1e-3)
    assert plain.log_evidence == pytest.approx(other.log_evidence, abs=1e-3)


@pytest.mark.parametrize("loss", [Gaussian(), Bernoulli(), Poisson()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("intercepts", ["flat", "shrunk"])
def test_weights_are_repetitions(loss: Loss, intercepts: str) -> None:
    X, y, task = draw(2, loss=loss.name)
    counts = np.random.default_rng(0).integers(0, 4, len(y))
    counts[::7] = 2
    options = {"structure": "mean+ard", "intercepts": intercepts, "tol": 1e-9}
    weighted = fit(X, y, task, counts.astype(float), loss=loss, **options)
    rows = np.repeat(np.arange(len(y)), counts)
    repeated = fit(X[rows], y[rows], task[rows], loss=loss, **options)
    a, b = forecast(weighted, X, task), forecast(repeated, X, task)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-4 * np.std(a.mean))
    np.testing.assert_allclose(a.variance, b.variance, rtol=2e-3)
    np.testing.assert_allclose(a.dispersion, b.dispersion, rtol=1e-4)
    np.testing.assert_allclose(a.freedom, b.freedom, rtol=1e-3)


def test_sparse_features_are_dense_ones() -> None:
    X, y, task = draw(3)
    X = np.where(X > 2, X, 0)
    a, b = fit(X, y, task), fit(sparse.csr_matrix(X), y, task)
    np.testing.assert_allclose(a.weights()[0], b.weights()[0], atol=1e-8)
    np.testing.assert_allclose(a.log_evidence, b.log_evidence)


@pytest.mark.parametrize("intercepts", ["flat", "shrunk"])
def test_log_evidence_is_a_density_of_the_targets(intercepts: str) -> None:
    """In the user's units, against the dense Gaussian with the hyperparameters that were found."""
    X, y, task = draw(4)
    model = fit(X, 100 * y, task, intercepts=intercepts, structure="mean+ard")
    units, prior = model.units, model.prior
    own, mean = prior.own_variances, prior.mean_variances
    U = np.vstack([model.features(x[None], k) for x, k in zip(X, task, strict=True)])
    z = 100 * y - units.level[task]
    size = units.sizes[task]
    V = (U * mean) @ U.T + (task[:, None] == task) * ((U * own) @ U.T) + np.diag(prior.noise.variances[task])
    V = V * np.outer(size, size)
    if intercepts == "flat":
        ones = (task[:, None] == np.arange(K)).astype(float)
        basis = np.linalg.svd(ones, full_matrices=True)[0][:, K:]
        V, z = basis.T @ V @ basis, basis.T @ z
    dense = -0.5 * (z @ np.linalg.solve(V, z) + np.linalg.slogdet(V)[1] + len(z) * np.log(2 * np.pi))
    assert model.log_evidence == pytest.approx(dense, rel=1e-8)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("layout", ["long", "shared"])
def test_all_structures_fit_all_layouts_by_all_routes(structure: str, layout: str) -> None:
    X, y, task = draw(5, (20, 20, 20, 20))
    if layout == "long":
        model = fit(X, y, task, structure=structure)
    else:
        Y = np.column_stack([X[:20] @ np.ones(D) + k + 0.1 * y[20 * k : 20 * (k + 1)] for k in range(K)])
        model = fit_data(read_tasks(X[:20], Y), structure=structure)
    assert model.converged
    mean, sd, noise = predictions(model, X[:5], np.zeros(5, dtype=int))
    assert np.isfinite([mean, sd, noise]).all()
    assert model.route == ("SharedRoute" if layout == "shared" and "iw" in structure else model.route)


@pytest.mark.parametrize("gaps", [False, True])
def test_errors_that_tasks_share_are_found(gaps: bool) -> None:
    rng = np.random.default_rng(6)
    n = 80
    X = rng.normal(size=(n, D))
    errors = rng.normal(size=(n, K)) @ np.linalg.cholesky(0.3 * np.eye(K) + 0.7).T
    Y = X @ np.array([1.0, -1.0, 0.5])[:, None] + errors
    if gaps:
        Y[rng.random(Y.shape) < 0.1] = np.nan
    data = read_tasks(X, Y)
    model = fit_data(data, errors="shared", tol=1e-5)
    R = model.prior.noise.covariance
    sd = np.sqrt(np.diag(R))
    correlation = (R / np.outer(sd, sd))[np.triu_indices(K, 1)]
    assert np.mean(correlation) == pytest.approx(0.7, abs=0.12)
    # Errors that all tasks share do not average out: the mean is known less well than with independent ones.
    independent = fit_data(data, tol=1e-5)
    wide = model.posterior.covariance(None)[:D, :D] - np.diag(model.prior.own_variances[:D])
    narrow = independent.posterior.covariance(None) - np.diag(independent.prior.own_variances)
    assert np.trace(wide) > np.trace(narrow)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("intercepts", ["flat", "shrunk"])
def test_new_tasks_are_less_certain(structure: str, intercepts: str) -> None:
    X, y, task = draw(7, (20, 20, 20, 20))
    model = fit(X, y, task, structure=structure, intercepts=intercepts, tol=1e-5)
    rows = X[:10]
    _, new, _ = predictions(model, rows, np.full(10, -1))
    for k in range(K):
        _, old, _ = predictions(model, rows, np.full(10, k))
        assert np.all(new > old)


@pytest.mark.parametrize("structure", ["mean+ard", "iw", "ridge"])
def test_a_task_that_joins_has_the_posterior_of_the_joint_model(structure: str) -> None:
    """At the hyperparameters of the fit, learning from the old rows and then from the new ones is learning from all."""
    X, y, task = draw(8, (20, 15, 30, 7))
    old = task < 3
    model = fit(X[old], y[old], task[old], structure=structure, intercepts="shrunk")
    joined = join_task(model, X[~old], y[~old])
    level, size = model.all_units.level[-1], model.all_units.sizes[-1]
    noise = model.noise(None) / size**2
    blocks = [model.features(X[task == k], None) for k in range(4)]
    targets = [(y[task == k] - level) / size for k in range(4)]
    prior = replace(model.prior, noise=PerTask(np.append(model.prior.noise.variances, noise)))
    if not prior.blocks[0].tasks.plain:
        t, v = prior.common[0]
        T = np.full((4, 4), t)
        T[:3, :3], T[3, 3] = prior.blocks[0].tasks.matrix(3), v + t
        prior = replace(prior, blocks=(replace(prior.blocks[0], tasks=Dense(T)), *prior.blocks[1:]))
    mean, covariance = DenseModel(blocks, targets).posterior(prior)
    np.testing.assert_allclose(joined.joined[0].mean, mean[3], atol=1e-8)
    np.testing.assert_allclose(joined.joined[0].covariance, covariance[3, :, 3], atol=1e-8)
    # The other tasks stay as they are.
    for a, b in zip(joined.weights(), model.weights(), strict=True):
        np.testing.assert_array_equal(a[:3], b[:3])


@pytest.mark.parametrize("loss", [Gaussian(), Bernoulli(), Poisson()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("intercepts", ["flat", "shrunk"])
def test_a_task_that_joins_approaches_the_refit(loss: Loss, intercepts: str) -> None:
    X, y, task = draw(8, (60, 60, 60, 60, 200), loss=loss.name)
    old = task < 4
    options = {"structure": "mean+ard", "intercepts": intercepts, "tol": 1e-5}
    model = fit(X[old], y[old], task[old], loss=loss, **options)
    whole = forecast(fit(X, y, task, loss=loss, **options), X[~old], task[~old])
    off = []
    for count in (0, 10, 200):
        rows = np.flatnonzero(~old)[:count]
        joined = join_task(model, X[rows], y[rows]) if count else model
        made = forecast(joined, X[~old], task[~old] if count else np.full(200, -1))
        off.append(float(np.sqrt(np.mean((made.mean - whole.mean) ** 2))))
        assert np.isfinite(made.variance).all()
    assert off[2] < 0.15 * np.std(whole.mean)
    assert off[2] < off[0]


def test_temperatures_above_one_trust_rows_less() -> None:
    X, y, task = draw(9)
    cool, hot = fit(X, y, task, tol=1e-5), fit(X, y, task, temperature=4.0, tol=1e-5)
    assert np.all(hot.edf.sum() < cool.edf.sum())
    assert np.allclose(hot.prior.noise.variances, cool.prior.noise.variances)


def test_an_unknown_structure_is_refused() -> None:
    X, y, task = draw(11)
    with pytest.raises(ValueError, match="structure"):
        fit(X, y, task, structure="dense")
    assert replace(Options(), structure="iw+ard").base == Options()


@pytest.mark.parametrize("structure", ["ridge", "mean+ard", "iw"])
def test_a_free_intercept_is_as_uncertain_as_its_rows_leave_it(structure: str) -> None:
    """Predictions with flat intercepts are those of intercepts with a prior as wide as one likes, at the same hyper."""
    X, y, task = draw(12)
    model = fit(X, y, task, structure=structure, intercepts="flat")
    wide = 1e7
    blocks = [np.column_stack([model.features(X[task == k], k), np.ones(np.sum(task == k))]) for k in range(K)]
    targets = [(y[task == k] - model.units.level[k]) / model.units.sizes[k] for k in range(K)]
    prior = model.prior.with_intercept(Exchangeable(v=wide, t=0.0))
    mean, covariance = DenseModel(blocks, targets).posterior(prior)
    for k in range(K):
        rows = np.column_stack([model.features(X[:6], k), np.ones(6)])
        size = model.units.sizes[k]
        expected = model.units.level[k] + size * rows @ mean[k]
        variance = size**2 * np.sum(rows * (rows @ covariance[k, :, k]), axis=1)
        found = model.predictor(X[:6], k)
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5 * np.std(y))
        np.testing.assert_allclose(found[1], variance, rtol=1e-4)


def test_a_tasks_noise_is_known_from_its_rows_and_ten_of_all_others() -> None:
    """However many rows the other tasks have, they count ten; and a task's own rows less its weights count once."""
    few, many = (fit(*draw(13, (6, 14, count, count))) for count in (20, 2000))
    for model in (few, many):
        own = model.counts - model.edf - 1
        for k in range(K):
            assert own[k] < model.degrees(k) <= own[k] + 10 + 1e-9
    assert many.degrees(0) == pytest.approx(few.degrees(0), abs=1.0)
    # Nothing but the rows of others says how noisy a new task is.
    assert many.degrees(None) > 100 * many.degrees(0)
