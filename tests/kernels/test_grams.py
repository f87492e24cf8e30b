"""Passes over the rows of many small tasks against sums over tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mssl import kernels


@given(
    lengths=st.lists(st.integers(0, 9), min_size=0, max_size=4),
    d=st.integers(0, 9),
    seed=st.integers(0, 10**6),
    centre=st.booleans(),
)
def test_blocks_and_grams_are_sums_over_rows(lengths, d, seed, centre):
    rng, K, N = np.random.default_rng(seed), len(lengths), sum(lengths)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    X, c, r = rng.standard_normal((N, d)), rng.uniform(0, 1, N) * (rng.random(N) < 0.8), rng.standard_normal(N)
    out, means = np.full(N * d, np.nan), np.full((K, d), np.nan)
    gram, sums, products = np.full((K, d, d), np.nan), np.full((K, d), np.nan), np.full((K, d), np.nan)
    kernels.gather_blocks(X, bounds, c, centre, out, means)
    kernels.block_grams(out, bounds, c, r, gram, sums, products)
    for k in range(K):
        rows = slice(bounds[k], bounds[k + 1])
        total = c[rows].sum()
        mean = c[rows] @ X[rows] / total if total > 0 else np.zeros(d)
        block = X[rows] - mean if centre else X[rows]
        np.testing.assert_allclose(means[k], mean, atol=1e-12)
        np.testing.assert_allclose(out[d * bounds[k] : d * bounds[k + 1]].reshape(d, lengths[k]).T, block, atol=1e-12)
        np.testing.assert_allclose(gram[k], np.einsum("i,ij,il->jl", c[rows], block, block), atol=1e-11)
        np.testing.assert_allclose(sums[k], c[rows] @ block, atol=1e-11)
        np.testing.assert_allclose(products[k], r[rows] @ block, atol=1e-11)
    assert np.array_equal(gram, gram.transpose(0, 2, 1))


@pytest.mark.parametrize("bounds", [[0, 3], [1, 4], [0, 5, 4], [0, 2, 6]])
def test_bounds_that_leave_the_rows_are_refused(bounds):
    X, c, K = np.zeros((4, 2)), np.ones(4), len(bounds) - 1
    with pytest.raises(TypeError, match="do not run from 0 to 4"):
        kernels.gather_blocks(X, np.array(bounds), c, True, np.zeros(8), np.zeros((K, 2)))
