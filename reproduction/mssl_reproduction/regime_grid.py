"""A grid of cells in three climates, whose graph is known."""

from typing import Any

import numpy as np
from sklearn.utils import Bunch

from mssl._validation import check_number, check_whole_number
from mssl.datasets._generators import grid_adjacency, laplacian_precision
from mssl.datasets._layout import names

_BOX = (-50.0, 10.0, -80.0, -35.0)  # south, north, west, east


def make_regime_grid(
    n_cells: int = 249,
    *,
    n_samples: int = 1200,
    n_features: int = 3,
    coupling: float = 1.0,
    noise: float = 1.0,
    random_state: Any = None,
) -> Bunch:
    r"""Cells of a continent in three regimes, two of them behind a mountain range, with a known graph of residuals.

    .. math:: y_{tk} = x_t^\top w_k + b_k + e_{tk}, \qquad e_{t\cdot} \sim N(0, \text{noise}^2 \Omega^{-1})

    The features (indices of the world's weather) are common to all cells. Neighbouring cells of one regime are joined:
    Ω is I + coupling · L rescaled to unit variances, with L the Laplacian of these pairs. Neighbours on two sides of
    the range, which winds from south to north through the west, or of the border between the north-east and the
    south-east are as near to each other, but their residuals are independent.

    Parameters
    ----------
    n_cells : int
        K, the cells of a grid that lie nearest to the middle of an oval.
    n_samples, n_features : int
        Occasions, and features.
    coupling : float
        Weight of an edge; partial correlations of neighbours are near coupling / (1 + 4 coupling).
    noise : float
        Standard deviation of the residuals.
    random_state : None, int or numpy.random.Generator

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (n, d), ``y`` (n, K), ``coordinates`` (K, 2), ``regime`` (K,) in 0 (west of the range), 1 and 2,
        ``neighbours`` (K, K) all pairs of cells side by side, ``adjacency`` those of one regime, ``precision`` of the
        residuals, ``coef`` (K, d), ``intercept`` (K,), ``task_names``.

    Examples
    --------
    >>> from mssl_reproduction.regime_grid import make_regime_grid
    >>> grid = make_regime_grid(30, n_samples=100, random_state=0)
    >>> grid.X.shape, grid.y.shape, sorted(set(grid.regime.tolist()))
    ((100, 3), (100, 30), [0, 1, 2])
    """
    for name, count in {"n_cells": n_cells, "n_samples": n_samples, "n_features": n_features}.items():
        check_whole_number(name, count, low=1)
    check_number("coupling", coupling, low=0)
    check_number("noise", noise, above=0)
    random = np.random.default_rng(random_state)
    side = int(np.ceil(np.sqrt(4 * n_cells / np.pi))) + 2
    north, east = (axis.ravel() for axis in np.meshgrid(*[np.linspace(-1, 1, side)] * 2, indexing="ij"))
    kept = np.sort(np.argsort(north**2 + east**2, kind="stable")[:n_cells])
    neighbours = grid_adjacency(side, side)[np.ix_(kept, kept)]
    north, east = north[kept], east[kept]
    regime = np.where(east < -0.25 + 0.15 * np.sin(3 * north), 0, np.where(north > 0.1, 1, 2))
    adjacency = neighbours & (regime[:, None] == regime) & (coupling > 0)
    precision = laplacian_precision(coupling * adjacency) / noise**2
    residuals = np.linalg.solve(np.linalg.cholesky(precision).T, random.standard_normal((n_cells, n_samples))).T
    X = random.standard_normal((n_samples, n_features))
    coef, intercept = 1 + random.standard_normal((n_cells, n_features)), random.standard_normal(n_cells)
    south_edge, north_edge, west_edge, east_edge = _BOX
    coordinates = np.column_stack(
        [
            south_edge + (1 + north) / 2 * (north_edge - south_edge),
            west_edge + (1 + east) / 2 * (east_edge - west_edge),
        ]
    )
    return Bunch(
        X=X,
        y=X @ coef.T + intercept + residuals,
        coef=coef,
        intercept=intercept,
        precision=precision,
        adjacency=adjacency,
        neighbours=neighbours,
        regime=regime,
        coordinates=coordinates,
        task_names=names("cell", n_cells),
        DESCR=f"{n_cells} grid cells in three regimes, {n_samples} occasions.",
        licence="none needed: made by mssl",
        source="mssl_reproduction.regime_grid",
    )
