"""Laws of the grid of regimes."""

import numpy as np
import pytest

import mssl
from mssl.exceptions import ParameterError
from mssl_reproduction.regime_grid import make_regime_grid


def test_regimes_are_related_inside_only():
    grid = make_regime_grid(60, n_samples=20_000, noise=2.0, random_state=0)
    assert np.bincount(grid.regime).min() >= 10
    assert (grid.neighbours.sum(axis=1) <= 4).all()
    apart = grid.regime[:, None] != grid.regime
    assert (grid.neighbours & apart).sum() >= 10
    np.testing.assert_array_equal(grid.adjacency, grid.neighbours & ~apart)
    covariance = np.linalg.inv(grid.precision)
    np.testing.assert_allclose(np.diag(covariance), 4.0)
    np.testing.assert_allclose(covariance[apart], 0.0, atol=1e-12)
    residuals = grid.y - grid.X @ grid.coef.T - grid.intercept
    np.testing.assert_allclose(np.cov(residuals.T), covariance, atol=0.2)
    # Neighbours are one step apart on the map.
    steps = np.abs(grid.coordinates[:, None] - grid.coordinates)[grid.neighbours]
    assert (np.count_nonzero(steps > 1e-9, axis=1) == 1).all()


@pytest.mark.parametrize("arguments", [{"n_cells": 0}, {"noise": 0.0}, {"coupling": -1.0}])
def test_bad_regime_arguments(arguments):
    with pytest.raises(ParameterError, match=next(iter(arguments))):
        make_regime_grid(**arguments)


def test_the_old_name_answers_with_a_warning():
    with pytest.warns(FutureWarning, match="mssl_reproduction.regime_grid"):
        assert mssl.datasets.make_regime_grid is make_regime_grid
    with pytest.raises(AttributeError, match="no attribute 'make_regimes'"):
        mssl.datasets.make_regimes
