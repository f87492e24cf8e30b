"""Laws of the design: dense, sparse and shared storage stand for the same standardised features."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from mssl.data import design as _design
from mssl.data.design import Design
from mssl.exceptions import DataError

LAWS = settings(max_examples=40, deadline=None)


def explicit(X, offsets, weights):
    """Centred, scaled features by the definition, task by task."""
    centres, parts, squares = [], [], 0.0
    for a, b in itertools.pairwise(offsets):
        w = weights[a:b]
        centre = w @ X[a:b] / w.sum()
        centres.append(centre)
        parts.append(X[a:b] - centre)
        squares = squares + w @ parts[-1] ** 2
    scale = np.sqrt(squares / weights.sum())
    constant = np.array([all(np.ptp(p[:, j]) == 0 for p in parts) for j in range(X.shape[1])])
    scale[constant] = 1.0
    return np.array(centres), scale, [p / scale for p in parts]


@st.composite
def ragged(draw):
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    d = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.standard_normal((offsets[-1], d)) * (rng.random((offsets[-1], d)) < 0.6)
    if draw(st.booleans()):
        X[:, 0] = 3.0
    weights = rng.uniform(0.2, 2.0, offsets[-1])
    return X, offsets, weights, rng


def agree(design, X, offsets, weights, rng):
    """All products of a design against the explicit features."""
    centres, scale, parts = explicit(X, offsets, weights)
    K, d = design.n_tasks, design.n_features
    np.testing.assert_allclose(design.centres, centres, atol=1e-13)
    np.testing.assert_allclose(design.scales, scale, rtol=1e-9)
    W, r, c = rng.standard_normal((K, d)), rng.standard_normal(offsets[-1]), rng.uniform(0, 3, offsets[-1])
    r_k = [r[a:b] for a, b in itertools.pairwise(offsets)]
    c_k = [c[a:b] for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(
        design.predictor(W), np.concatenate([p @ w for p, w in zip(parts, W, strict=True)]), atol=1e-10
    )
    np.testing.assert_allclose(design.backproject(r), [p.T @ v for p, v in zip(parts, r_k, strict=True)], atol=1e-10)
    plain = [p.T @ (v[:, None] * p) for p, v in zip(parts, c_k, strict=True)]
    means = [v @ p / v.sum() for p, v in zip(parts, c_k, strict=True)]
    eliminated = [G - v.sum() * np.outer(m, m) for G, m, v in zip(plain, means, c_k, strict=True)]
    np.testing.assert_allclose(design.gram(c, intercept=False), plain, atol=1e-10)
    np.testing.assert_allclose(design.gram(c), eliminated, atol=1e-10)


@LAWS
@given(ragged())
def test_products_are_those_of_the_definition(problem):
    X, offsets, weights, rng = problem
    agree(Design.build(X, offsets, row_weights=weights), X, offsets, weights, rng)
    agree(Design.build(sparse.csr_array(X), offsets, row_weights=weights), X, offsets, weights, rng)


@LAWS
@given(ragged(), st.booleans())
def test_shared_is_the_repeated_design(problem, same_weights):
    X, _, _, rng = problem
    n, K = len(X), 3
    table = rng.uniform(0.2, 2.0, (K, n))
    if same_weights:
        table[:] = table[0]
    offsets, repeated = n * np.arange(K + 1), np.tile(X, (K, 1))
    agree(Design.build(X, n_tasks=K, row_weights=table.ravel()), repeated, offsets, table.ravel(), rng)
    agree(
        Design.build(sparse.csr_array(X), n_tasks=K, row_weights=table.ravel()), repeated, offsets, table.ravel(), rng
    )


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_columns_hold_the_stored_features(make):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9, 3)) * (rng.random((9, 3)) < 0.7)
    for arguments in ({"offsets": [0, 4, 9]}, {"n_tasks": 2}):
        design = Design.build(make(X), **arguments)
        data, indices, indptr, base, row_start, is_sparse = design.columns
        assert is_sparse == (make is not np.asarray)
        for k in range(2):
            for j in range(3):
                W = np.zeros((2, 3))
                W[k, j] = 1.0
                lo, hi = indptr[base[k] + j], indptr[base[k] + j + 1]
                column = np.zeros(design.offsets[-1])
                rows = row_start[k] + (indices[lo:hi] if is_sparse else np.arange(hi - lo))
                column[rows] = data[lo:hi]
                np.testing.assert_allclose(column, design.stored.dot(W), atol=1e-14)


def test_common_weights_give_one_gram():
    rng = np.random.default_rng(1)
    design = Design.build(rng.standard_normal((8, 3)), n_tasks=4)
    c, s = rng.uniform(0.5, 1, 8), np.array([1.0, 3.0, 0.1, 7.0])
    common, scale = design.common_weights(np.outer(s, c).ravel())
    gram = design.gram(common)
    assert gram.shape == (1, 3, 3)
    np.testing.assert_allclose(scale[:, None, None] * gram, design.gram(np.outer(s, c).ravel()), rtol=1e-10)
    assert design.common_weights(rng.random(32)) is None


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_extreme_units_change_only_the_scale(make, size):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((12, 3))
    units = np.array([1.0, size, size])
    X[:, 2] = 1.0
    plain, extreme = Design.build(make(X), [0, 5, 12]), Design.build(make(X * units), [0, 5, 12])
    W = rng.standard_normal((2, 3))
    np.testing.assert_allclose(extreme.scales, plain.scales * [1.0, size, 1.0], rtol=1e-12)
    np.testing.assert_allclose(extreme.predictor(W), plain.predictor(W), atol=1e-12)
    np.testing.assert_allclose(extreme.gram(np.ones(len(X))), plain.gram(np.ones(len(X))), atol=1e-11)


@pytest.mark.parametrize("value", [0.1, 1e150, -3e7])
@pytest.mark.parametrize("offsets", [[0, 3, 7], [0, 40_000, 100_000], 1000 * np.arange(61)])
def test_constant_columns_become_exact_zeros(value, offsets):
    X = np.column_stack([np.full(offsets[-1], value), np.arange(float(offsets[-1]))])
    for given_X in (X, sparse.csr_array(X)):
        design = Design.build(given_X, offsets)
        assert design.scales[0] == 1.0
        assert np.all(design.predictor(np.tile([1e3, 0.0], (design.n_tasks, 1))) == 0.0)
        assert np.all(design.gram(np.ones(len(X)))[:, 0, :] == 0.0)


@LAWS
@given(ragged())
def test_coefficients_in_user_units_predict_alike(problem):
    X, offsets, weights, rng = problem
    design = Design.build(X, offsets, row_weights=weights)
    W, b = rng.standard_normal((design.n_tasks, design.n_features)), rng.standard_normal(design.n_tasks)
    coef, intercept = design.to_user(W, b)
    task = np.repeat(np.arange(design.n_tasks), design.n_rows)
    raw = np.einsum("nd,nd->n", X, coef[task]) + intercept[task]
    np.testing.assert_allclose(raw, design.predictor(W) + b[task], atol=1e-8)


@LAWS
@given(ragged())
def test_doubled_weights_are_duplicated_rows(problem):
    X, offsets, _, rng = problem
    copies = rng.integers(1, 3, offsets[-1])
    repeated = np.repeat(X, copies, axis=0)
    bounds = np.concatenate([[0], np.cumsum(copies)])[offsets]
    weighted, longer = Design.build(X, offsets, row_weights=copies), Design.build(repeated, bounds)
    np.testing.assert_allclose(weighted.scales, longer.scales, rtol=1e-10)
    np.testing.assert_allclose(weighted.gram(copies.astype(float)), longer.gram(np.ones(copies.sum())), atol=1e-10)


def test_without_centring_the_scale_is_still_about_the_means():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((10, 2)) + 1e8
    for given_X in (X, sparse.csr_array(X)):
        design = Design.build(given_X, [0, 4, 10], centre=False)
        np.testing.assert_allclose(design.scales, Design.build(X, [0, 4, 10]).scales, rtol=1e-6)
        assert np.all(design.centres == 0)
        np.testing.assert_allclose(design.predictor(np.eye(2)), (X / design.scales)[range(10), [0] * 4 + [1] * 6])


def test_chunks_do_not_change_products(monkeypatch):
    rng = np.random.default_rng(4)
    X, c = rng.standard_normal((20, 3)), rng.random(20)
    whole = Design.build(X, [0, 5, 10, 15, 20])
    monkeypatch.setattr(_design, "CHUNK", 16)
    parts = Design.build(X, [0, 5, 10, 15, 20])
    np.testing.assert_allclose(whole.gram(c), parts.gram(c), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(whole.backproject(c), parts.backproject(c), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("offsets", [[0, 3], [1, 5], [0, 0, 5], [5], [0, 4, 3, 5]])
def test_bad_offsets_are_refused(offsets):
    with pytest.raises(DataError, match=r"^offsets is .*rise from 0"):
        Design.build(np.zeros((5, 2)), offsets)


def test_a_shared_design_needs_the_number_of_tasks():
    with pytest.raises(DataError, match=r"^n_tasks is None"):
        Design.build(np.zeros((5, 2)))


@pytest.mark.parametrize("centre", [True, False])
def test_compiled_loops_for_many_small_tasks_repeat_numpy(monkeypatch, centre):
    rng = np.random.default_rng(5)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, 60))])
    N = offsets[-1]
    X, c, r = rng.standard_normal((N, 6)) + 2, rng.uniform(0, 1, N), rng.standard_normal(N)
    compiled = Design.build(X, offsets, row_weights=c + 0.1, centre=centre)
    monkeypatch.setattr(_design, "_MANY", 10**9)
    plain = Design.build(X, offsets, row_weights=c + 0.1, centre=centre)
    np.testing.assert_allclose(compiled.stored.buffer, plain.stored.buffer, atol=1e-13)
    monkeypatch.undo()
    results = compiled.normal_equations(c, r)
    gram = compiled.gram(c)
    monkeypatch.setattr(_design, "_MANY", 10**9)
    for a, b in zip(results, plain.normal_equations(c, r), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-11)
    np.testing.assert_allclose(gram, plain.gram(c), atol=1e-11)


def test_without_rows_only_centres_and_scales_are_kept():
    random = np.random.default_rng(0)
    X, W, b = random.normal(size=(30, 4)), random.normal(size=(3, 4)), random.normal(size=3)
    design = Design.build(X, [0, 5, 12, 30])
    light = design.without_rows()
    assert light.stored.buffer.size == 0
    assert all(np.array_equal(a, b) for a, b in zip(light.to_user(W, b), design.to_user(W, b), strict=True))
    assert np.array_equal(light.n_rows, design.n_rows)
