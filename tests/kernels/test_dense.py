"""Dense algebra inside compiled loops agrees with LAPACK."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mssl.kernels.dense import back_solve, factor, invert, product
from scipy.linalg import cho_factor, cho_solve


@settings(deadline=None, max_examples=40)
@given(p=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_dense_kernels(p, seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((p, p + 2))
    A = A @ A.T + 0.1 * np.eye(p)
    R, inverse, x = np.zeros((p, p)), np.empty((p, p)), np.empty(p)
    assert factor(A, R) == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-9)
    b = rng.standard_normal(p)
    back_solve(R, b, x)
    np.testing.assert_allclose(x, cho_solve(cho_factor(A), b), rtol=1e-7, atol=1e-9)
    invert(R, inverse)
    np.testing.assert_allclose(inverse, np.linalg.inv(A), rtol=1e-6, atol=1e-8)
    B, out = rng.standard_normal((p, 3)), np.empty((p, 3))
    product(A, B, out)
    np.testing.assert_allclose(out, A @ B, rtol=1e-12, atol=1e-12)
    A[p - 1, p - 1] = -1.0
    assert np.isnan(factor(A, R))
