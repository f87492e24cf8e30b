"""ADMM reaches the objective of block coordinate descent, also where penalties are small."""

from __future__ import annotations

import numpy as np
import pytest

from mssl.glasso.solver import GlassoStatus, graphical_lasso


@pytest.mark.parametrize("share", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize(("K", "r"), [(13, 30), (30, 20)])
def test_admm_reaches_the_objective_of_descent(K, r, share):
    random = np.random.default_rng(0)
    Q = random.standard_normal((K, r))
    Q[: K // 3] += 2 * random.standard_normal(r)
    S = Q @ Q.T / r
    floors = 0.01 * S.diagonal()
    spread = np.sqrt(S.diagonal() + floors)
    scales = np.outer(spread, spread)
    largest = np.abs(S / scales)[~np.eye(K, dtype=bool)].max()
    found = [
        graphical_lasso(S, share * largest, weights=scales, diagonal_penalty=floors, solver=solver, tol=1e-9)
        for solver in ("bcd", "admm")
    ]
    assert all(result.status is GlassoStatus.CONVERGED for result in found)
    assert abs(found[1].objective - found[0].objective) <= 1e-8 * max(1.0, abs(found[0].objective))
