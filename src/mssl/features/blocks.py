"""Several maps side by side, one block of features each: what an estimator's ``features`` stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from mssl._typing import Array, Index, Labels, Mask
from mssl._validation import refused
from mssl.data.layouts import TaskData
from mssl.exceptions import DataError, all_or_nothing
from mssl.features.maps import FeatureMap, Interactions, Linear, Spline, Transformed
from mssl.kernels.threads import SingleThreaded

WORDS: dict[str, tuple[type[FeatureMap], ...]] = {
    "linear": (Linear,),
    "spline": (Linear, Spline),
    "spline+interactions": (Linear, Spline, Interactions),
}
_CHUNK = 2**20  # numbers that are made at a time: what maps need in between stays small
_SQUARES = (1e-152, 1e152)  # columns whose squares doubles can hold
_RIDGE = 1e-3  # of the regression whose residuals pairs are screened by: rows of one added for each row


def is_linear(features: Any) -> bool:
    """Whether an estimator's features are the columns themselves."""
    return isinstance(features, Linear) or (isinstance(features, str) and features == "linear")


def are_scaled(features: Any) -> bool:
    """Whether an estimator divides its features by their scales; a :class:`Linear` among them may say no."""
    parts = features if isinstance(features, list | tuple) else [features]
    return all(part.scale for part in parts if isinstance(part, Linear))


class FeatureBlocks(SingleThreaded, TransformerMixin, BaseEstimator):
    """Blocks of features, each made by one map, fitted on training rows.

    The straight lines come first, so that a model whose other weights are zero is linear; all that further maps give is
    orthogonal to them over the training rows.

    Parameters
    ----------
    maps : {"linear", "spline", "spline+interactions"} or list, default="spline"
        Words, or maps and scikit-learn transformers of your own choice such as ``[Spline(degree=3)]`` or
        ``[SplineTransformer()]``; straight lines are there in any case.

    Attributes
    ----------
    maps_ : list of FeatureMap
        The fitted maps.
    blocks_ : ndarray of int of shape (D,)
        For each feature the number of its block.
    block_names_ : list of str
        Names of the blocks.
    column_of_ : ndarray of int of shape (D,)
        For each feature the column that it is made of, −1 for products of several.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.features import FeatureBlocks
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> blocks = FeatureBlocks("spline").fit(X)
    >>> blocks.transform(X).shape, blocks.block_names_
    ((100, 8), ['linear', 'spline'])
    >>> blocks.blocks_.tolist(), blocks.column_of_.tolist()
    ([0, 0, 1, 1, 1, 1, 1, 1], [0, 1, 0, 0, 0, 1, 1, 1])
    """

    maps_: list[FeatureMap]
    blocks_: Index
    block_names_: list[str]
    column_of_: Index
    n_features_in_: int

    def __init__(self, maps: str | Sequence[Any] = "spline") -> None:
        self.maps = maps

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, *, task_of_row: Any = None, sample_weight: Any = None) -> Self:
        """Learn all maps from training rows.

        Parameters
        ----------
        X : array, sparse array or frame of shape (n, d)
            Finite numbers; sparse ones can be linear only.
        y : array of shape (n,) or (n, K), optional
            Targets, for maps that look at them.
        task_of_row : array of int of shape (n,), optional
            Task of each row, so that levels of tasks are not taken for effects of columns.
        sample_weight : array of shape (n,), optional
            Frequency weights.

        Returns
        -------
        self
        """
        maps = self.parts()
        values = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        _check_sizes(values)
        if sparse.issparse(values) and any(type(made) is not Linear for made in maps):
            raise DataError(
                f"features is {self.maps!r} and X is sparse; sparse X takes features='linear' only. Give a dense X "
                "where it is small enough."
            )
        weights = np.ones(values.shape[0]) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        targets = None if y is None else np.asarray(y, dtype=np.float64).reshape(len(weights), -1)
        self.maps_ = []
        for made in maps:
            left = targets
            if targets is not None and isinstance(made, Interactions):
                left = _residuals(self.map_rows(values), targets, task_of_row, weights)
            if type(made) is Linear:  # has nothing to learn, and X may be sparse
                made.column_of_, made.n_features_in_ = np.arange(values.shape[1]), values.shape[1]
            else:
                made.fit(values, left, weights)
            self.maps_ = [*self.maps_, made]
        widths = [len(made.column_of_) for made in self.maps_]
        self.blocks_ = np.repeat(np.arange(len(widths)), widths)
        self.block_names_ = [made.kind for made in self.maps_]
        self.column_of_ = np.concatenate([made.column_of_ for made in self.maps_])
        return self

    def parts(self) -> list[FeatureMap]:
        """The maps that the parameter stands for, straight lines first."""
        allowed = (
            f"allowed are {', '.join(map(repr, WORDS))}, a list of maps and scikit-learn transformers, or 'auto' where "
            "folds choose"
        )
        if isinstance(self.maps, str):
            if self.maps not in WORDS:
                raise refused("features", self.maps, allowed)
            return [kind() for kind in WORDS[self.maps]]
        given = [self.maps] if isinstance(self.maps, FeatureMap) else self.maps
        if not isinstance(given, list | tuple) or not given:
            raise refused("features", self.maps, allowed)
        maps = [_as_map(made, allowed) for made in given]
        return [Linear(), *(made for made in maps if type(made) is not Linear)]

    @property
    def linear(self) -> bool:
        """Whether the features are the columns themselves."""
        return len(self.maps_) == 1 and type(self.maps_[0]) is Linear

    def transform(self, X: Any) -> Any:
        """All features of new rows, block after block.

        Parameters
        ----------
        X : array, sparse array or frame of shape (n, d)

        Returns
        -------
        ndarray of shape (n, D), or a sparse array where X is one
        """
        check_is_fitted(self)
        return self.map_rows(validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False))

    def map_rows(self, X: Any) -> Any:
        """As :meth:`transform`, of checked numbers of shape (n, d)."""
        if not self.maps_:
            return np.empty((X.shape[0], 0))
        if self.linear:
            return X
        if sparse.issparse(X):
            raise DataError("X is sparse, and this model was fitted to curves of dense columns; give a dense X.")
        ends = np.cumsum([0, *(len(made.column_of_) for made in self.maps_)])
        features = np.empty((len(X), ends[-1]))
        step = max(1, _CHUNK // max(1, int(ends[-1])))
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            for made, begin, end in zip(self.maps_, ends[:-1], ends[1:], strict=True):
                features[rows, begin:end] = made._apply(X[rows])
        return features

    def get_feature_names_out(self, input_features: Any = None) -> Labels:
        """Names of the features: ``age``, ``age: spline 1``, ``age × height``.

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the columns; by default those of the training frame, or x0, x1, …
        """
        check_is_fitted(self)
        columns = _check_feature_names_in(self, input_features)
        return np.asarray([name for made in self.maps_ for name in made._names(columns)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _as_map(made: Any, allowed: str) -> FeatureMap:
    if isinstance(made, FeatureMap):
        return clone(made)
    if isinstance(made, type) or not (hasattr(made, "fit") and hasattr(made, "transform")):
        raise refused("features", made, allowed)
    return Transformed(made)


def _check_sizes(X: Any) -> None:
    """Raise where squares of a column are beyond what doubles hold: its spread could not be computed."""
    largest = abs(X).max(axis=0)
    largest = np.ravel(largest.toarray() if sparse.issparse(largest) else largest)
    low, high = _SQUARES
    strange = np.flatnonzero((largest > high) | ((largest > 0) & (largest < low)))
    if len(strange):
        raise DataError(
            f"Column {strange[0]} of X is of size {largest[strange[0]]:.2g}; sizes from {low:g} to {high:g} can be "
            "computed with. Give it in other units."
        )


def _residuals(features: Array, targets: Array, task_of_row: Any, weights: Array) -> Array:
    """What a ridge on all features leaves of the targets, both centred within tasks."""
    index = np.zeros(len(targets), dtype=np.int64) if task_of_row is None else np.asarray(task_of_row)
    totals = np.bincount(index, weights)
    totals = np.where(totals > 0, totals, 1.0)[:, None]

    def centred(values: Array) -> Array:
        sums = np.zeros((len(totals), values.shape[1]))
        np.add.at(sums, index, weights[:, None] * values)
        return np.asarray(values - (sums / totals)[index])

    F, left = centred(features), centred(targets)
    if F.shape[1] == 0:
        return left
    size = np.sqrt(np.average(F**2, axis=0, weights=weights))
    F = F / np.where(size > 0, size, 1.0)
    gram = (weights[:, None] * F).T @ F
    gram[np.diag_indices_from(gram)] += _RIDGE * weights.sum()
    return np.asarray(left - F @ np.linalg.solve(gram, (weights[:, None] * F).T @ left))


def fit_maps(features: str | Sequence[Any], data: TaskData, training: Mask | None = None) -> FeatureBlocks:
    """Feature maps learned from (some of) the rows of the tasks."""
    maps = FeatureBlocks(features)
    if data.shared:
        n, K = len(data.X), data.n_tasks
        rows = slice(None) if training is None else np.flatnonzero(training[:n])
        weights = None if data.weights is None else data.weights[:n][rows]
        return maps.fit(data.X[rows], data.y.reshape(K, n).T[rows], sample_weight=weights)
    rows = slice(None) if training is None else np.flatnonzero(training)
    weights = None if data.weights is None else data.weights[rows]
    return maps.fit(data.X[rows], data.y[rows], task_of_row=data.task_of_row[rows], sample_weight=weights)
