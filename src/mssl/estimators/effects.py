"""Effects of single columns of the input on the predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mssl._typing import Array, Labels
from mssl._validation import check_number, check_whole_number, refused
from mssl.data.encoding import ColumnSchema, column_of
from mssl.data.inputs import is_place, listing, locate_tasks, read_labels, refuse_unseen
from mssl.estimators.fitted import FittedAttributes, normal_ends
from mssl.exceptions import DataError
from mssl.kernels.threads import SingleThreaded


class PartialEffect(NamedTuple):
    """The effect of one column on the linear predictor, compared with the column at its mean.

    Attributes
    ----------
    feature : str
        The column.
    x : ndarray of shape (n,)
        Values of the column, or its levels.
    effect : ndarray of shape (n,)
        Differences of the linear predictor from its value with all columns at their means. They are on the scale of the
        link, and of the transformed targets if the model has a ``target_transform``.
    lower, upper : ndarray of shape (n,) or None
        A band that holds the curve with the given probability; None if the model has no band.
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
    """The columns of the input, from which the encoded columns are made.

    Parameters
    ----------
    schemas : sequence of ColumnSchema
        Schemas of the columns of the input.
    quantiles : ndarray of shape (1 + 21, d)
        Means and quantiles of the encoded columns.
    """

    def __init__(self, schemas: Sequence[ColumnSchema], quantiles: Array) -> None:
        self.schemas, self.quantiles = schemas, quantiles
        self.names = [schema.name for schema in schemas]
        self.of = column_of(schemas)

    def rows(self, place: int, x: Labels) -> Array:
        """Encoded rows in which a column takes the values or levels x and all other columns are at their means."""
        own, schema = np.flatnonzero(self.of == place), self.schemas[place]
        rows = np.tile(self.quantiles[0], (len(x), 1))
        if schema.categories is None:
            rows[:, own[0]] = x
        else:
            rows[:, own[: schema.width]] = x[:, None] == np.asarray(schema.levels, dtype=object)
        rows[:, own[-1:] if schema.indicator else []] = 0.0
        return rows

    def typical(self, place: int) -> tuple[Labels, Array]:
        """The quantiles of a column with equal weights, or its levels with their shares in training."""
        own, schema = np.flatnonzero(self.of == place), self.schemas[place]
        if schema.categories is None:
            x = self.quantiles[1:, own[0]]
            return x, np.full(len(x), 1.0 / len(x))
        known = np.clip(self.quantiles[0, own[: schema.width]], 0.0, 1.0)
        shares = known if len(known) == len(schema.categories) else np.r_[max(0.0, 1.0 - known.sum()), known]
        return np.asarray(schema.categories, dtype=object), shares / shares.sum()


def place_of(name: str, value: Any, names: Sequence[Any]) -> int:
    """Number of the column that the parameter ``name`` gives by its name or its number."""
    if is_place(value, len(names)) and value >= 0:
        return int(value)
    if value in names:
        return names.index(value)
    allowed = f"give the name of a column, or its number from 0 to {len(names) - 1}"
    raise refused(name, value, allowed, f"Columns are {listing(names)}.")


class ColumnEffects(SingleThreaded, FittedAttributes):
    """Mixin of the estimators that tells how single columns of the input change the predictions."""

    @property
    def _n_columns(self) -> int:
        """Number of columns after the encoder, before the feature maps."""
        return len(self.features_) if self.maps_ is None else int(self.maps_.n_features_in_)

    def _mapped(self, values: Any) -> Any:
        """Map encoded columns of shape (n, d) into the features of the coefficients."""
        return values if self.maps_ is None else self.maps_.map_rows(values)

    def partial_effect(
        self, feature: Any, task: Any = None, *, n_points: int = 50, level: float = 0.9
    ) -> PartialEffect:
        """Effect of one column on the predictions, with all other columns at their means.

        Parameters
        ----------
        feature : str or int
            A column of the training X, by name or by number (without the task column).
        task : task name, optional
            The task; by default the mean of all tasks.
        n_points : int
            Number of values between the smallest and the largest one in training. For a category all levels are used.
        level : float
            Probability of the band, for models that have one.

        Returns
        -------
        PartialEffect
            A tuple of ``feature``, ``x``, ``effect``, ``lower`` and ``upper``; the last two may be None.

        Examples
        --------
        >>> from mssl import MSSLRegressor
        >>> from mssl.datasets import make_curved_tasks
        >>> data = make_curved_tasks("additive", random_state=0)
        >>> model = MSSLRegressor(features="spline").fit(data.X, data.y, tasks=data.tasks)
        >>> curve = model.partial_effect(1)
        >>> bool(curve.effect[25] < curve.effect[0])  # a parabola
        True
        """
        check_is_fitted(self)
        check_whole_number("n_points", n_points, low=2)
        check_number("level", level, above=0, below=1)
        columns = self._columns()
        place = place_of("feature", feature, columns.names)
        x, _ = columns.typical(place)
        if columns.schemas[place].categories is None:
            x = np.linspace(x[0], x[-1], n_points)
        steps = self._mapped(columns.rows(place, x)) - self._mapped(columns.quantiles[:1])
        index, coef = None, self.coef_.mean(axis=0)
        if task is not None:
            found = locate_tasks([task], self.tasks_)
            refuse_unseen(read_labels([task]), found, self.tasks_)
            index = int(found[0])
            coef = self.coef_[index]
        effect = steps @ coef
        std = self._effect_std(steps, effect, index)
        ends = (None, None) if std is None else normal_ends(effect, std, level)
        return PartialEffect(columns.names[place], x, effect, *ends)

    def _effect_std(self, steps: Array, effect: Array, index: int | None) -> Array | None:
        """Standard deviations of an effect, given the differences of features; None if the model has none."""
        return None

    def _columns(self) -> Columns:
        if not hasattr(self, "column_quantiles_"):
            raise DataError(
                "This model knows no values of its columns (it was fitted to moments, or saved by an early version); "
                "fit it again, to rows in memory, to read its effects."
            )
        if self.encoder_ is not None:
            return Columns(self.encoder_.columns, self.column_quantiles_)
        plain = [ColumnSchema(str(name), None) for name in self.features_[: self._n_columns]]
        return Columns(plain, self.column_quantiles_)

    def column_relevance(self) -> dict[str, float]:
        """How much each column changes the predictions, through its line, its curve and its levels together.

        The relevance of a column is the standard deviation of its partial effect over its values in training, and the
        root mean square of that over tasks. The columns have the order of the input.

        Returns
        -------
        dict of str → float
        """
        check_is_fitted(self)
        columns = self._columns()
        relevance = {}
        for place, name in enumerate(columns.names):
            x, shares = columns.typical(place)
            effects = self._mapped(columns.rows(place, x)) @ self.coef_.T
            spread = shares @ (effects - shares @ effects) ** 2
            relevance[name] = float(np.sqrt(spread.mean()))
        return relevance
