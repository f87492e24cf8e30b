"""What a model remembers of its columns: where their values lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from mssl._typing import Array

_SHARES = np.linspace(0.0, 1.0, 21)  # quantiles of a column that are kept
_SAMPLE = 500_000  # numbers that these are computed from at most


def column_quantiles(X: Any, n_columns: int) -> Array:
    """Mean and quantiles of each of the first columns, (1 + 21, d), of at most some thousands of rows."""
    step = max(1, -(-X.shape[0] * n_columns // _SAMPLE))
    rows = X[::step, :n_columns]
    values = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    ordered = np.sort(values.T)  # np.quantile looks for each of the 21 anew
    place = _SHARES * (len(values) - 1)
    below = place.astype(int)
    above = np.minimum(below + 1, len(values) - 1)
    quantiles = ordered[:, below] + (place - below) * (ordered[:, above] - ordered[:, below])
    return np.vstack([values.mean(axis=0), quantiles.T])


def feature_spreads(model: Any, n_features: int) -> Array | None:
    """Standard deviations of a model's columns in training; None where it knows none, or maps columns to others."""
    quantiles = np.asarray(getattr(model, "column_quantiles_", np.empty((0, 0))))
    return quantiles[1:].std(axis=0) if quantiles.shape[1] == n_features else None
