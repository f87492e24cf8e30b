"""Reading curves: what one column does to the predictions of a task, all other columns at their means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mssl._typing import Array, Index, Labels
from mssl._validation import refused
from mssl.data.encoding import ColumnSchema, column_of
from mssl.data.inputs import listing


class PartialEffect(NamedTuple):
    """The effect of one column on the linear predictor, against that of its mean.

    Attributes
    ----------
    feature : str
        The column.
    x : ndarray of shape (n,)
        Values of the column, or its levels.
    effect : ndarray of shape (n,)
        By how much the linear predictor differs from where all columns are at their means. It is on the scale of the
        fit: that of the link, and of the transformed targets where there is a ``target_transform``.
    lower, upper : ndarray of shape (n,) or None
        A band that holds the curve with the given probability, where the model has one.
    """

    feature: str
    x: Labels
    effect: Array
    lower: Array | None = None
    upper: Array | None = None

    def __repr__(self) -> str:
        low, high = float(np.min(self.effect)), float(np.max(self.effect))
        return f"PartialEffect({self.feature!r}, {len(self.x)} points, effects from {low:.3g} to {high:.3g})"


class Columns:
    """The columns of the input behind the columns of numbers that feature maps see.

    Parameters
    ----------
    names : ndarray of shape (d,)
        Names of the encoded columns.
    schemas : sequence of ColumnSchema or None
        The columns of the input that they were made of; None where there was nothing to encode.
    quantiles : ndarray of shape (1 + 21, d)
        Their means and quantiles.
    """

    def __init__(self, names: Labels, schemas: Sequence[ColumnSchema] | None, quantiles: Array) -> None:
        plain = [ColumnSchema(str(name), None) for name in names]
        self.schemas, self.quantiles = plain if schemas is None else schemas, quantiles
        self.names = [schema.name for schema in self.schemas]
        self.of = column_of(self.schemas)

    def place(self, feature: Any) -> int:
        """Number of a column, given by name or by number."""
        if isinstance(feature, int | np.integer) and not isinstance(feature, bool) and 0 <= feature < len(self.names):
            return int(feature)
        if feature in self.names:
            return self.names.index(feature)
        allowed = f"give the name of a column, or its number from 0 to {len(self.names) - 1}"
        raise refused("feature", feature, allowed, f"Columns are {listing(self.names)}.")

    def grid(self, place: int, n_points: int) -> tuple[Labels, Array]:
        """Values of a column, and rows of encoded columns with these values and all else at its mean."""
        mean, ranges = self.quantiles[0], self.quantiles[1:]
        own = np.flatnonzero(self.of == place)
        schema = self.schemas[place]
        if schema.categories is not None:
            x: Labels = np.asarray(schema.categories, dtype=object)
            rows = np.tile(mean, (len(x), 1))
            rows[:, own[: schema.width]] = (x[:, None] == np.asarray(schema.levels, dtype=object)).astype(float)
        else:
            x = np.linspace(ranges[0, own[0]], ranges[-1, own[0]], n_points)
            rows = np.tile(mean, (len(x), 1))
            rows[:, own[0]] = x
        rows[:, own[-1:] if schema.indicator else []] = 0.0
        return x, rows

    def typical(self, place: int) -> Array:
        """Rows of encoded columns in which a column takes its quantiles (its levels), all else at its mean."""
        own = np.flatnonzero(self.of == place)
        if self.schemas[place].categories is not None:
            return self.grid(place, 0)[1]
        rows = np.tile(self.quantiles[0], (len(self.quantiles) - 1, 1))
        rows[:, own[0]] = self.quantiles[1:, own[0]]
        return rows

    def shares(self, place: int) -> Array:
        """Weights of the typical rows: equal for quantiles, the share of each level in training for levels."""
        schema = self.schemas[place]
        if schema.categories is None:
            kept = len(self.quantiles) - 1  # the first is the mean
            return np.full(kept, 1.0 / kept)
        own: Index = np.flatnonzero(self.of == place)[: schema.width]
        known = np.clip(self.quantiles[0, own], 0.0, 1.0)
        shares = known if len(known) == len(schema.categories) else np.r_[max(0.0, 1.0 - known.sum()), known]
        return np.asarray(shares / shares.sum())
