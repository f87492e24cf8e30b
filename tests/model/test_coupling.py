"""Laws of the coupling of the tasks' weights."""

from __future__ import annotations

import numpy as np
import pytest

from mssl.model.coupling import Coupling


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_its_forms_agree_whatever_its_size(size):
    """C is the inverse of P⁻¹ + τ²11ᵀ; products, diagonal and array are those of one matrix, also where u² overflows."""
    root = np.random.default_rng(0).standard_normal((4, 6))
    P, tau = root @ root.T, 0.7
    coupling = Coupling(size * P, np.linalg.inv(P) / size, tau / size)
    expected = np.linalg.inv(np.linalg.inv(P) + tau)
    np.testing.assert_allclose(coupling.dense() / size, expected, rtol=1e-10)
    np.testing.assert_allclose(coupling.dot(np.eye(4)) / size, expected, rtol=1e-10)
    np.testing.assert_allclose(coupling.diagonal() / size, expected.diagonal(), rtol=1e-10)
    np.testing.assert_array_equal(coupling.dense(), coupling.dense().T)
