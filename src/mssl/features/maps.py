"""Maps of columns into features: the columns themselves, splines of every column, and products of pairs of columns.

Each map is a scikit-learn transformer of dense numbers that can also be used alone. The features of :class:`Spline` and
:class:`Interactions` are orthogonal, over the training rows, to a constant and to the columns from which they are made.
A model in which all their weights are zero is therefore the linear model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.interpolate import BSpline
from scipy.stats import chi2
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, has_fit_parameter, validate_data

from mssl._typing import Array, Index, Labels, Mask
from mssl._validation import check_whole_number, refused
from mssl.data.columns import PooledRidge
from mssl.data.inputs import CHUNK, SAFE_SQUARES, check_sizes, dense
from mssl.data.layouts import TaskData
from mssl.exceptions import DataError, all_or_nothing
from mssl.kernels.threads import SingleThreaded

# Probability that Interactions selects a pair although the targets depend on no product: the usual level of a test.
_BY_CHANCE = 0.05
# Number of rows in which Transformed tests which columns change which features. More rows find dependencies that few
# rows show, and cost time; a mere safeguard.
_PROBED = 256
# A spread below this share of a column's size counts as zero. A mere safeguard against rounding errors.
_ROUNDING = 1e-10


class FeatureMap(SingleThreaded, TransformerMixin, BaseEstimator):
    """Base class of maps of d columns into features.

    To write a map of your own, define ``kind``, ``_learn``, ``_apply`` and ``_names`` in a subclass.

    Attributes
    ----------
    column_of_ : ndarray of int of shape (D,)
        For each feature the number of the column from which it is made; −1 if it is made of several columns.
    """

    kind = "feature"  # the name of the block
    takes_sparse = False
    column_of_: Index

    @abstractmethod
    def _learn(self, X: Any, y: Array | None, weights: Array) -> Index:
        """Learn from checked rows, with targets of shape (n, K), and return ``column_of_``."""

    @abstractmethod
    def _apply(self, X: Array) -> Array:
        """The features of checked rows, (n, D)."""

    @abstractmethod
    def _names(self, columns: Labels) -> list[str]:
        """Names of the features, given the names of the columns."""

    @all_or_nothing
    def fit(self, /, X: Any, y: Any = None, sample_weight: Any = None, **rows: Any) -> Self:
        """Learn the map from training rows.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            Finite numbers; a sparse X allows linear features only.
        y : array of shape (n,) or (n, K), optional
            Targets. :class:`Interactions` uses them to select pairs; the other maps ignore them.
        sample_weight : array of shape (n,), optional
            Frequency weights. A row of weight 2 has the effect of two rows.
        **rows
            What the map takes besides: :class:`FeatureBlocks` takes ``task_of_row``, the number of each row's task, so
            that differences between the tasks' levels do not count as effects of columns.

        Returns
        -------
        self
        """
        values = validate_data(self, X, accept_sparse="csr" if self.takes_sparse else False, dtype=np.float64)
        n = values.shape[0]
        weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        targets = None if y is None else np.asarray(y, dtype=np.float64).reshape(n, -1)
        self.column_of_ = self._learn(values, targets, weights, **rows)
        return self

    def transform(self, X: Any) -> Array:
        """The features of new rows.

        Parameters
        ----------
        X : array or frame of shape (n, d)

        Returns
        -------
        ndarray of shape (n, D), or a sparse array if X is sparse and all features are columns
        """
        check_is_fitted(self)
        accepted = "csr" if self.takes_sparse else False
        return self._apply(validate_data(self, X, accept_sparse=accepted, dtype=np.float64, reset=False))

    def get_feature_names_out(self, input_features: Any = None) -> Labels:
        """Names of the features, such as ``age: spline 3``.

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the columns; by default the names of the training frame, or x0, x1, …
        """
        check_is_fitted(self)
        return np.asarray(self._names(_check_feature_names_in(self, input_features)), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.takes_sparse
        return tags


def _beyond(line: Array, features: Array, weights: Array) -> tuple[Array, Array]:
    """Coefficients of the regressions of features on the columns of a line, and the spread of the residuals."""
    root = np.sqrt(weights)[:, None]
    coef = np.linalg.lstsq(root * line, root * features, rcond=None)[0]
    return np.asarray(coef), np.sqrt(np.average((features - line @ coef) ** 2, axis=0, weights=weights))


class Linear(FeatureMap):
    """The columns themselves, unchanged.

    Parameters
    ----------
    scale : bool, default=True
        Whether an estimator divides each feature by one scale pooled over tasks. Coefficients are in the user's units
        in both cases.

    Examples
    --------
    >>> from mssl.features import Linear
    >>> Linear().fit_transform([[1.0, 2.0], [3.0, 5.0]]).tolist()
    [[1.0, 2.0], [3.0, 5.0]]
    """

    kind = "linear"
    takes_sparse = True

    def __init__(self, scale: bool = True) -> None:
        self.scale = scale

    def _learn(self, X: Array, y: Array | None, weights: Array) -> Index:
        return np.arange(X.shape[1])

    def _apply(self, X: Array) -> Array:
        return X

    def _names(self, columns: Labels) -> list[str]:
        return [str(name) for name in columns]


@dataclass(frozen=True, eq=False)
class Curves:
    """The spline functions of one column, as functions of z = (x − centre)/scale.

    Attributes
    ----------
    column : int
        The column.
    centre, scale : float
        Mean and standard deviation of the column in the training rows.
    knots : ndarray
        Knots, repeated at both ends.
    coef : ndarray of shape (p, q)
        B-spline coefficients of the q functions.
    degree : int
        Degree of the polynomial pieces; 1 for a column of few levels.
    """

    column: int
    centre: float
    scale: float
    knots: Array
    coef: Array
    degree: int

    def __call__(self, x: Array) -> Array:
        """The functions at x, (n, q); outside of the training range they are straight lines."""
        z = (x - self.centre) / self.scale
        curve = BSpline(self.knots, self.coef, self.degree)
        inside = np.clip(z, self.knots[0], self.knots[-1])
        values = curve(inside)
        beyond = z != inside
        if beyond.any():
            values[beyond] += curve.derivative()(inside[beyond]) * (z - inside)[beyond, None]
        return np.asarray(values)


class Spline(FeatureMap):
    r"""A smooth curve for every column, in addition to its straight line.

    Column j becomes the functions :math:`s_{j1}, …, s_{jq}`. Together with a constant and the column itself, they span
    the splines of the given degree with knots at quantiles of all training rows (all tasks pooled). Over these rows
    each function has mean zero, variance one, and no correlation with the column. Outside of the training range all
    functions continue as straight lines.

    For a column with few distinct values (levels), the functions can take any value at each level and are interpolated
    between levels. A column with one or two distinct values gets no functions, since its line suffices.

    Parameters
    ----------
    degree : {2, 3}, default=2
        Degree of the polynomial pieces.
    n_knots : int, default=4
        Number of knots, including both ends of the range; q = n_knots + degree − 3. Among 3 to 6 knots, the default was
        the best or within two standard errors of the best, both on the concretes of :func:`mssl.datasets.load_slump`
        and on smooth curves of :func:`mssl.datasets.make_curved_tasks`. Curves with jumps need more knots.
    max_levels : int, default=8
        A column with at most this number of distinct values is treated as levels.

    References
    ----------
    Eilers & Marx (1996), Flexible smoothing with B-splines and penalties, doi:10.1214/ss/1038425655.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.features import Spline
    >>> x = np.linspace(0, 1, 50)[:, None]
    >>> spline = Spline().fit(x)
    >>> spline.get_feature_names_out(["age"]).tolist()
    ['age: spline 1', 'age: spline 2', 'age: spline 3']
    >>> features = spline.transform(x)
    >>> bool(np.allclose(features.T @ x, 0.0) and np.allclose(features.mean(axis=0), 0.0))
    True
    """

    kind = "spline"

    def __init__(self, degree: int = 2, n_knots: int = 4, max_levels: int = 8) -> None:
        self.degree = degree
        self.n_knots = n_knots
        self.max_levels = max_levels

    def _learn(self, X: Array, y: Array | None, weights: Array) -> Index:
        check_whole_number("degree", self.degree, low=2, high=3)
        check_whole_number("n_knots", self.n_knots, low=3)
        check_whole_number("max_levels", self.max_levels, low=2)
        learned = (self._learn_column(j, X[:, j], weights) for j in range(X.shape[1]))
        self.curves_ = [curves for curves in learned if curves is not None]
        return np.array([curves.column for curves in self.curves_ for _ in curves.coef.T], dtype=np.int64)

    def _learn_column(self, column: int, x: Array, weights: Array) -> Curves | None:
        x, weights = x[weights > 0], weights[weights > 0]
        centre = float(np.average(x, weights=weights))
        scale = float(np.sqrt(np.average((x - centre) ** 2, weights=weights)))
        levels = np.unique(x)
        if len(levels) <= 2 or scale <= _ROUNDING * np.abs(levels).max():
            return None
        z, levels = (x - centre) / scale, (levels - centre) / scale
        if len(levels) <= self.max_levels:
            degree, breaks = 1, levels
        else:
            degree, breaks = self.degree, _quantiles(z, weights, levels, self.n_knots)
        knots = np.concatenate([np.repeat(breaks[0], degree), breaks, np.repeat(breaks[-1], degree)])
        coef = _beyond_the_line(BSpline.design_matrix(z, knots, degree).toarray(), knots, degree, weights)
        return Curves(column, centre, scale, knots, coef, degree)

    def _apply(self, X: Array) -> Array:
        return np.column_stack([np.empty((len(X), 0)), *(curves(X[:, curves.column]) for curves in self.curves_)])

    def _names(self, columns: Labels) -> list[str]:
        return [
            f"{columns[curves.column]}: {self.kind} {number}"
            for curves in self.curves_
            for number in range(1, curves.coef.shape[1] + 1)
        ]


def _quantiles(z: Array, weights: Array, levels: Array, count: int) -> Array:
    """Distinct knots at quantiles of the rows, or of the distinct values if ties would leave fewer knots.

    The end knots are the smallest and the largest value themselves. Quantiles could miss them, because rounded sums of
    weights may reach 1 before the last row of small weight.
    """
    shares = np.linspace(0.0, 1.0, count)
    inner = np.quantile(z, shares[1:-1], weights=weights, method="inverted_cdf")
    breaks = np.unique([z.min(), *inner, z.max()])
    return breaks if len(breaks) == count else np.unique(np.quantile(levels, shares, method="inverted_cdf"))


def _beyond_the_line(basis: Array, knots: Array, degree: int, weights: Array) -> Array:
    """Coefficients, (p, p − 2), of the spline functions that are orthogonal to a constant and to z over the rows.

    The constant and z lie in the spline space themselves; the coefficients of z are means of neighbouring knots.
    """
    p = basis.shape[1]
    abscissae = np.asarray([knots[j + 1 : j + degree + 1].mean() for j in range(p)])
    line = np.column_stack([np.ones(p), abscissae])
    slopes, spread = _beyond(basis @ line, basis, weights)
    coef = (np.eye(p) - line @ slopes)[:, 1:-1]
    return np.asarray(coef / spread[1:-1])


class Interactions(FeatureMap):
    r"""Products of those few pairs of columns that correlate with the targets.

    A pair (i, j) becomes the residual of :math:`z_i z_j` in a regression on 1, :math:`z_i` and :math:`z_j`, scaled to
    variance one, where z are the standardised columns. Given targets, the pairs are ranked by their squared correlation
    with the targets, summed over targets. At most ``n_pairs`` pairs are kept, and only those whose correlation exceeds
    the largest one that chance would give among all pairs (a χ² test of the squared correlation over its variance, at
    5 % divided by the number of pairs).

    Parameters
    ----------
    n_pairs : int, default=10
        Largest number of pairs. Without targets, X may not have more pairs than this number.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.features import Interactions
    >>> X = np.random.default_rng(0).standard_normal((200, 4))
    >>> pairs = Interactions().fit(X, X[:, 0] * X[:, 2])
    >>> pairs.get_feature_names_out(["a", "b", "c", "d"]).tolist()
    ['a × c']
    """

    kind = "interactions"

    def __init__(self, n_pairs: int = 10) -> None:
        self.n_pairs = n_pairs

    def _learn(self, X: Array, y: Array | None, weights: Array) -> Index:
        check_whole_number("n_pairs", self.n_pairs, low=1)
        self.centre_ = np.average(X, axis=0, weights=weights)
        spread = np.sqrt(np.average((X - self.centre_) ** 2, axis=0, weights=weights))
        varies = spread > _ROUNDING * np.abs(X).max(axis=0)
        self.scale_ = np.where(varies, spread, 1.0)
        Z = (X - self.centre_) / self.scale_
        first, second = np.triu_indices(X.shape[1], 1)
        sensible = varies[first] & varies[second]
        pairs = np.column_stack([first, second])[sensible]
        if y is None and len(pairs) > self.n_pairs:
            raise DataError(
                f"There are {len(pairs)} pairs of columns, and n_pairs is {self.n_pairs}; give y to choose the pairs "
                "by, or raise n_pairs."
            )
        if y is not None:
            pairs = pairs[_screened(Z, y, weights, pairs, self.n_pairs)]
        lines, spreads = np.empty((len(pairs), 3)), np.empty(len(pairs))
        for place, (i, j) in enumerate(pairs):
            line = np.column_stack([np.ones(len(Z)), Z[:, i], Z[:, j]])
            coef, spreads[[place]] = _beyond(line, (Z[:, i] * Z[:, j])[:, None], weights)
            lines[place] = coef[:, 0]
        kept = spreads > _ROUNDING
        self.pairs_, self.lines_, self.spread_ = pairs[kept], lines[kept], spreads[kept]
        return np.full(len(self.pairs_), -1)

    def _apply(self, X: Array) -> Array:
        i, j = self.pairs_.T
        first, second = ((X[:, k] - self.centre_[k]) / self.scale_[k] for k in (i, j))
        line = self.lines_[:, 0] + first * self.lines_[:, 1] + second * self.lines_[:, 2]
        return np.asarray((first * second - line) / self.spread_)

    def _names(self, columns: Labels) -> list[str]:
        return [f"{columns[i]} × {columns[j]}" for i, j in self.pairs_]


class Transformed(FeatureMap):
    r"""The features of any scikit-learn transformer of numbers, such as ``SplineTransformer()``.

    The map regresses each feature, over the training rows, on a constant and on the columns from which it is made, and
    keeps the residual, scaled to variance one. Features without a residual are dropped. A list of maps wraps
    transformers automatically: ``features=[SplineTransformer(), Nystroem(random_state=0)]``.

    Parameters
    ----------
    transformer : scikit-learn transformer
        The transformer, which is fitted to the columns without targets. If its ``fit`` takes ``sample_weight``, it gets
        the weights of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import PolynomialFeatures
    >>> from mssl.features import FeatureBlocks
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> FeatureBlocks([PolynomialFeatures(2)]).fit(X).get_feature_names_out(["a", "b"]).tolist()
    ['a', 'b', 'a^2', 'a b', 'b^2']
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    @property
    def kind(self) -> str:  # type: ignore[override]  # a class attribute in other maps
        """The name of the transformer's class, which is the name of the block."""
        return type(self.transformer).__name__

    def _learn(self, X: Array, y: Array | None, weights: Array) -> Index:
        named = {"sample_weight": weights} if has_fit_parameter(self.transformer, "sample_weight") else {}
        self.transformer_ = clone(self.transformer).fit(X, **named)
        features = self._features(X)
        uses = self._columns_used(X)
        lines, spread = np.zeros((X.shape[1] + 1, features.shape[1])), np.empty(features.shape[1])
        for columns in np.unique(uses, axis=0):
            alike = (uses == columns).all(axis=1)
            line = np.column_stack([np.ones(len(X)), X[:, columns]])
            coef, spread[alike] = _beyond(line, features[:, alike], weights)
            lines[np.ix_(np.concatenate([[True], columns]), alike)] = coef
        sizes = np.sqrt(np.average(features**2, axis=0, weights=weights))
        self.kept_ = np.flatnonzero(spread > 1e-6 * sizes)
        self.lines_, self.spread_, uses = lines[:, self.kept_], spread[self.kept_], uses[self.kept_]
        return np.where(uses.sum(axis=1) == 1, uses.argmax(axis=1), -1)

    def _apply(self, X: Array) -> Array:
        return (self._features(X)[:, self.kept_] - self.lines_[0] - X @ self.lines_[1:]) / self.spread_

    def _names(self, columns: Labels) -> list[str]:
        try:
            names = self.transformer_.get_feature_names_out(columns)
        except (AttributeError, ValueError):
            return [f"{self.kind} {number + 1}" for number in self.kept_]
        return [str(names[place]) for place in self.kept_]

    def _features(self, X: Array) -> Array:
        values = self.transformer_.transform(X)
        features = np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)
        if features.ndim != 2 or len(features) != len(X) or not np.isfinite(features).all():
            raise DataError(
                f"{self.kind} returned features of shape {features.shape} for {len(X)} rows, or infinite or missing "
                "ones; a map must return one row of finite numbers per row."
            )
        return features

    def _columns_used(self, X: Array) -> Mask:
        """Which features depend on which columns, (D, d): the features that change if one column's values are moved."""
        rows = X[np.linspace(0, len(X) - 1, min(len(X), _PROBED)).astype(np.int64)]
        before = self._features(rows)
        uses = np.zeros((before.shape[1], X.shape[1]), dtype=bool)
        for j in range(X.shape[1]):
            moved, order = rows.copy(), np.argsort(rows[:, j], kind="stable")
            moved[order, j] = np.roll(rows[order, j], max(1, len(rows) // 3))
            uses[:, j] = (self._features(moved) != before).any(axis=0)
        return uses


def _screened(Z: Array, y: Array, weights: Array, pairs: Index, most: int) -> Index:
    """Pairs whose products correlate with the targets by more than chance, sorted by falling correlation."""
    total = weights.sum()
    left = y - np.average(y, axis=0, weights=weights)
    size = np.sqrt(np.average(left**2, axis=0, weights=weights))
    left = left[:, size > 0] / size[size > 0]
    i, j = pairs.T
    means = ((weights[:, None] * Z).T @ Z)[i, j] / total
    squares = ((weights[:, None] * Z**2).T @ Z**2)[i, j] / total - means**2
    squares = np.where(squares > 1e-12, squares, np.inf)
    explained, surprise = np.zeros(len(pairs)), np.zeros(len(pairs))
    for target in left.T:
        common = ((weights * target)[:, None] * Z).T @ Z
        errors = ((weights * target**2)[:, None] * Z**2).T @ Z**2  # valid for unequal variances too
        explained += common[i, j] ** 2 / squares
        surprise += common[i, j] ** 2 / np.where(errors[i, j] > 0, errors[i, j], np.inf)
    chance = chi2.isf(_BY_CHANCE / max(len(pairs), 1), left.shape[1])
    best = np.argsort(-explained, kind="stable")[:most]
    return np.asarray(best[surprise[best] > chance])


WORDS: dict[str, tuple[type[FeatureMap], ...]] = {
    "linear": (Linear,),
    "spline": (Linear, Spline),
    "spline+interactions": (Linear, Spline, Interactions),
}


def is_linear(features: Any) -> bool:
    """Whether an estimator's features are the columns themselves."""
    return isinstance(features, Linear) or (isinstance(features, str) and features == "linear")


def are_scaled(features: Any) -> bool:
    """Whether an estimator divides its features by their scales, which ``Linear(scale=False)`` among them prevents."""
    parts = features if isinstance(features, list | tuple) else [features]
    return all(part.scale for part in parts if isinstance(part, Linear))


class FeatureBlocks(FeatureMap):
    """Blocks of features, each made by one map that was fitted to training rows.

    The columns themselves are the first block. The features of all other blocks are orthogonal to them over the
    training rows, so a model whose other weights are zero is linear.

    Parameters
    ----------
    maps : {"linear", "spline", "spline+interactions"} or list, default="spline"
        A word, a map, or a list of maps and scikit-learn transformers such as ``[Spline(degree=3)]`` or
        ``[SplineTransformer()]``. The block of the columns themselves is always included.

    Attributes
    ----------
    maps_ : list of FeatureMap
        The fitted maps.
    blocks_ : ndarray of int of shape (D,)
        Number of each feature's block.
    block_names_ : list of str
        Names of the blocks.
    column_of_ : ndarray of int of shape (D,)
        For each feature the number of the column from which it is made; −1 if it is made of several columns.

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

    kind = "blocks"
    takes_sparse = True
    maps_: list[FeatureMap]
    n_features_in_: int

    def __init__(self, maps: str | Sequence[Any] = "spline") -> None:
        self.maps = maps

    def _learn(self, X: Any, y: Array | None, weights: Array, task_of_row: Any = None) -> Index:
        maps, self.maps_ = self.parts(), []
        sizes = np.ravel(dense(abs(X).max(axis=0)))  # The squares enter the features' spreads.
        check_sizes(sizes, SAFE_SQUARES, "Column {} of X is of size {:.2g}", "Give it in other units.")
        if sparse.issparse(X) and not all(made.takes_sparse for made in maps):
            raise DataError(
                f"features is {self.maps!r} and X is sparse; a sparse X allows features='linear' only. Give a dense X "
                "if it fits into memory."
            )
        for made in maps:
            left = y
            if y is not None and isinstance(made, Interactions):
                index = np.zeros(len(weights), dtype=np.int64) if task_of_row is None else np.asarray(task_of_row)
                left = PooledRidge(self.map_rows(X), index, weights).residuals(y)
            self.maps_ = [*self.maps_, made.fit(X, left, weights)]
        self.blocks_ = np.repeat(np.arange(len(maps)), [len(made.column_of_) for made in maps])
        self.block_names_ = [made.kind for made in maps]
        return np.concatenate([made.column_of_ for made in maps])

    def parts(self) -> list[FeatureMap]:
        """The maps that the parameter describes, with :class:`Linear` first."""
        allowed = (
            f"allowed are {', '.join(map(repr, WORDS))}, a list of maps and scikit-learn transformers, or 'auto' for "
            "estimators that choose by folds"
        )
        if isinstance(self.maps, str) and self.maps in WORDS:
            return [kind() for kind in WORDS[self.maps]]
        if isinstance(self.maps, FeatureBlocks):
            return self.maps.parts()
        given = self.maps if isinstance(self.maps, list | tuple) else [self.maps]
        maps: list[FeatureMap] = [Linear()]
        if not given:
            raise refused("features", self.maps, allowed)
        for made in given:
            mapped = isinstance(made, FeatureMap)
            if not mapped and (isinstance(made, type) or not (hasattr(made, "fit") and hasattr(made, "transform"))):
                raise refused("features", made, allowed)
            if type(made) is not Linear:
                maps.append(clone(made) if mapped else Transformed(made))
        return maps

    @property
    def linear(self) -> bool:
        """Whether the features are the columns themselves."""
        return len(self.maps_) == 1 and type(self.maps_[0]) is Linear

    def map_rows(self, X: Any) -> Any:
        """The features of checked numbers of shape (n, d), block after block, as in :meth:`transform`."""
        if self.linear:
            return X
        if sparse.issparse(X):
            raise DataError("X is sparse, and this model was fitted to curves of dense columns; give a dense X.")
        ends = np.cumsum([0, *(len(made.column_of_) for made in self.maps_)])
        features = np.empty((len(X), ends[-1]))
        step = max(1, CHUNK // max(1, int(ends[-1])))
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            for made, begin, end in zip(self.maps_, ends[:-1], ends[1:], strict=True):
                features[rows, begin:end] = made._apply(X[rows])
        return features

    _apply = map_rows

    def _names(self, columns: Labels) -> list[str]:
        return [name for made in self.maps_ for name in made._names(columns)]


def fit_maps(features: str | Sequence[Any], data: TaskData, training: Mask | None = None) -> FeatureBlocks:
    """Fit feature maps to the rows of the tasks, or to the rows of a ``training`` mask."""
    n = data.X.shape[0]
    rows = slice(None) if training is None else np.flatnonzero(training[:n])
    return FeatureBlocks(features).fit(
        data.X[rows],
        data.y.reshape(-1, n).T[rows],
        None if data.weights is None else data.weights[:n][rows],
        task_of_row=None if data.shared else data.task_of_row[rows],
    )
