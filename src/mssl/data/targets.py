r"""Targets: class labels, multi-class problems as pairs of classes, and transforms of numbers with their inverses.

The transforms are the logarithm and a Yeo–Johnson power that is learned from training rows.

Let a model of :math:`z = T(y)` have :math:`z \sim N(\mu, \sigma^2)`. Then the quantiles of y are the quantiles of z,
mapped back, and the mean of y is :math:`E\,T^{-1}(z)`, not :math:`T^{-1}(\mu)`.

References
----------
Box & Cox (1964), doi:10.1111/j.2517-6161.1964.tb00553.x; Yeo & Johnson (2000), doi:10.1093/biomet/87.4.954.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from sklearn.utils.multiclass import check_classification_targets

from mssl._typing import Array, ArrayLike, Index, Labels, Matrix
from mssl._validation import LARGEST_EXPONENT, check_choice
from mssl.data.columns import PooledRidge
from mssl.data.inputs import as_given, as_matrix, dense, is_missing, listing
from mssl.data.layouts import TaskData
from mssl.exceptions import DataError, LayoutError
from mssl.losses import MASS, NODES

TRANSFORMS = ("log", "yeo-johnson", "auto")
# learn_transform uses no features if there are more than this number: a regression on more features would cost more
# time than the fit.
_WIDEST = 500


@dataclass(frozen=True)
class TargetTransform:
    r"""A monotone map of targets and its inverse.

    "log" is :math:`z = \log y`. "yeo-johnson" is, with :math:`t = (y - c)/s`,

    .. math:: z = \frac{(1 + t)^\lambda - 1}{\lambda} \;(t \ge 0), \qquad
              z = -\frac{(1 - t)^{2-\lambda} - 1}{2 - \lambda} \;(t < 0)

    with logarithms in the limits λ = 0 and λ = 2. For λ between 0 and 2 every number has an inverse.

    Attributes
    ----------
    kind : {"log", "yeo-johnson"}
        Kind of the map.
    power : float
        The power λ; λ = 1 is linear.
    centre, scale : float
        The numbers c and s.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl.data.targets import TargetTransform
    >>> log = TargetTransform("log")
    >>> log.inverse(log.forward(np.array([1.0, 10.0]))).round(12).tolist()
    [1.0, 10.0]
    >>> round(float(log.mean(np.array([0.0]), np.array([2.0]))[0] / np.e), 12)
    1.0
    """

    kind: str
    power: float = 0.0
    centre: float = 0.0
    scale: float = 1.0

    def forward(self, y: Array) -> Array:
        """The transformed targets T(y)."""
        if self.kind == "log":
            return np.log(y)
        t = (np.asarray(y) - self.centre) / self.scale
        powers = self._powers(t)
        return np.sign(t) * np.expm1(powers * np.log1p(np.abs(t))) / powers

    def inverse(self, z: Array) -> Array:
        """The inverse T⁻¹(z); it maps quantiles of z to quantiles of y."""
        z = np.asarray(z)
        if self.kind == "log":
            return np.exp(np.minimum(z, LARGEST_EXPONENT))
        powers = self._powers(z)
        sizes = np.log1p(powers * np.abs(z)) / powers
        return np.asarray(self.centre + self.scale * np.sign(z) * np.expm1(np.minimum(sizes, LARGEST_EXPONENT)))

    def _powers(self, t: Array) -> Array:
        """The powers above and below c. In the limits λ = 0 and λ = 2 a tiny power gives the logarithm."""
        least = float(np.finfo(float).eps)
        return np.where(t >= 0, max(self.power, least), max(2.0 - self.power, least))

    def mean(self, mu: Array, variance: Array) -> Array:
        """Elementwise mean of y for normal z with the given means and variances."""
        mu, variance = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(variance, dtype=np.float64))
        if self.kind == "log":
            return np.exp(np.minimum(mu + 0.5 * variance, LARGEST_EXPONENT))
        sd = np.sqrt(variance)
        return sum((c * self.inverse(mu + sd * t) for t, c in zip(NODES, MASS, strict=True)), np.zeros(mu.shape))

    def log_slope(self, y: Array) -> Array:
        """Logarithm of T′(y), which turns a log density of z into one of y."""
        if self.kind == "log":
            return -np.log(y)
        t = (np.asarray(y) - self.centre) / self.scale
        return np.asarray((self.power - 1.0) * np.sign(t) * np.log1p(np.abs(t)) - np.log(self.scale))


def learn_transform(kind: str, data: TaskData) -> TargetTransform | None:
    """Choose the transform of the targets that suits a linear model with normal errors.

    The power of "yeo-johnson" and the choice of "auto" maximise a profile likelihood. Its model is a ridge regression
    whose weights all tasks share, with one intercept and one noise variance per task. "auto" returns None, which leaves
    the targets unchanged, unless a transform is clearly better.

    Parameters
    ----------
    kind : {"log", "yeo-johnson", "auto"}
        Kind of the transform, or "auto" to choose it.
    data : TaskData
        Training rows.
    """
    check_choice("target_transform", kind, TRANSFORMS, also="None")
    positive = bool(np.all(data.y > 0))
    if kind == "log":
        if not positive:
            bad = data.y <= 0
            names = list(data.tasks[np.unique(data.task_of_row[bad])])
            raise DataError(
                f"target_transform is 'log', and {int(bad.sum())} targets are not above 0 (tasks {listing(names)}); "
                "use 'yeo-johnson', which takes all numbers."
            )
        return TargetTransform("log")
    centre, scale = float(data.y.mean()), float(data.y.std())
    if scale == 0:
        return None
    X = dense(data.X[:, :0] if data.n_features > _WIDEST else data.X)
    weights, totals = data.row_weights, data.weight_sums()
    ridge = PooledRidge(np.tile(X, (data.n_tasks, 1)) if data.shared else X, data.task_of_row, weights)

    def yeo_johnson(power: float) -> TargetTransform:
        return TargetTransform("yeo-johnson", float(power), centre, scale)

    def likelihood(transform: TargetTransform) -> float:
        """Log-likelihood of the targets up to a constant, maximised over intercepts and noise variances."""
        z = ridge.centred(transform.forward(data.y)[:, None])
        squares = data.task_sums(weights * ridge.residuals(z)[:, 0] ** 2)
        floor = 1e-12 * max(float(np.average(z[:, 0] ** 2, weights=weights)), 1e-300)
        of_scale = -0.5 * float((totals * np.log(np.maximum(squares / totals, floor))).sum())
        return of_scale + float((weights * transform.log_slope(data.y)).sum())

    found = minimize_scalar(lambda power: -likelihood(yeo_johnson(power)), bounds=(0.0, 2.0), method="bounded")
    best = yeo_johnson(found.x)
    if kind == "yeo-johnson":
        return best
    none = likelihood(yeo_johnson(1.0))
    gain, chosen = likelihood(best) - none - 0.5 * np.log(len(data.y)), best
    log = likelihood(TargetTransform("log")) - none if positive else -np.inf
    if log > gain:
        gain, chosen = log, TargetTransform("log")
    return chosen if gain > 2.0 else None  # Chance gains up to about 2 nats when one power is chosen.


def two_classes(labels: Labels) -> Labels:
    """The two labels in use, sorted; any other number of labels raises."""
    classes = np.unique(plain_labels(labels))
    if len(classes) == 1:
        raise DataError(
            f"y holds one class only ({listing(classes)}); give two to a classifier. A task may have one class if "
            "other tasks have both."
        )
    if len(classes) > 2:
        raise DataError(
            f"Only binary classification is supported. y holds {len(classes)} labels ({listing(list(classes))}); all "
            "tasks share one pair of labels. Turn a multi-class problem into one task per pair of classes first: "
            "pairs = mssl.pair_tasks(X, y); model.fit(pairs.X, pairs.y, tasks=pairs.tasks); mssl.vote turns the "
            "decisions back into classes."
        )
    return classes


def plain_labels(labels: Labels) -> Labels:
    """Labels as an array of text or of numbers instead of objects; values that are not labels raise."""
    labels = np.asarray(labels)
    missing = is_missing(labels.reshape(-1, 1)).ravel()
    if np.any(missing):
        raise DataError(
            f"Input y contains NaN or None ({int(missing.sum())} rows, first: {int(np.argmax(missing))}); drop those "
            "rows (missing labels are allowed in (n, K) layouts only)."
        )
    if labels.dtype.kind == "O":
        if len({isinstance(label, str) for label in labels}) > 1:
            raise DataError("y mixes text with other labels; give labels of one kind.")
        labels = np.asarray(labels.tolist())
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise DataError(str(error)) from error
    return labels


class PairTasks(NamedTuple):
    """A multi-class data set as binary tasks, one per pair of classes.

    Attributes
    ----------
    X : ndarray or csr_array of shape (N, d)
        Rows, pair after pair.
    y : ndarray of shape (N,)
        1 for the second class of the pair, 0 for the first.
    tasks : ndarray of shape (N,)
        Names such as "3 vs 8".
    rows : ndarray of shape (N,)
        The row of the given X from which each row was copied.
    names : ndarray of shape (P,)
        Names of the pairs, sorted like an estimator's ``tasks_``.
    pairs : list of P tuples
        The two classes of each pair, in the order of ``names``.
    """

    X: Matrix
    y: Index
    tasks: Labels
    rows: Index
    names: Labels
    pairs: list[tuple[Hashable, Hashable]]


def pair_tasks(X: ArrayLike | csr_array, y: ArrayLike) -> PairTasks:
    """Turn a multi-class problem into one binary task per pair of classes.

    Parameters
    ----------
    X : array, frame or sparse matrix of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels of any type, two classes or more.

    Returns
    -------
    PairTasks
        Fit :class:`MSSLClassifier` to its ``X``, ``y`` and ``tasks``; :func:`vote` turns decisions back into classes.

    References
    ----------
    Hastie & Tibshirani (1998), Classification by pairwise coupling, doi:10.1214/aos/1028144844.

    Examples
    --------
    >>> from mssl import MSSLClassifier, pair_tasks, vote
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> pairs = pair_tasks(X, y)
    >>> pairs.X.shape, pairs.names.tolist()
    ((300, 4), ['0 vs 1', '0 vs 2', '1 vs 2'])
    >>> model = MSSLClassifier().fit(pairs.X, pairs.y, tasks=pairs.tasks)
    >>> decisions = np.column_stack([model.decision_function(X, tasks=[name] * len(X)) for name in model.tasks_])
    >>> bool(np.mean(vote(decisions, pairs.pairs) == y) > 0.95)
    True
    """
    labels = as_given(y)
    if labels.ndim != 1:
        raise LayoutError(f"y has shape {labels.shape}; give one label per row, shape (n,).")
    labels = plain_labels(labels)
    values = as_matrix(X)
    if values.ndim != 2 or values.shape[0] != len(labels):
        raise LayoutError(f"X has shape {values.shape} and y {labels.shape}; give (n, d) and (n,).")
    classes = np.unique(labels)
    if len(classes) < 2:
        raise DataError(f"y holds one class only ({listing(classes)}); give at least two to form pairs.")
    named = sorted((f"{a} vs {b}", a, b) for a, b in combinations(classes.tolist(), 2))
    names = np.asarray([name for name, _, _ in named])
    if len(set(names.tolist())) < len(names):
        raise DataError("Two pairs of classes have the same name; give labels whose text differs.")
    rows_of_pair = [np.flatnonzero((labels == a) | (labels == b)) for _, a, b in named]
    chosen = np.concatenate(rows_of_pair)
    second = np.concatenate([labels[rows] == b for rows, (_, _, b) in zip(rows_of_pair, named, strict=True)])
    tasks = np.repeat(names, [len(rows) for rows in rows_of_pair])
    return PairTasks(values[chosen], second.astype(np.int64), tasks, chosen, names, [(a, b) for _, a, b in named])


def vote(decisions: ArrayLike, pairs: Sequence[tuple[Hashable, Hashable]]) -> Labels:
    """Classes from the decisions of all pairs: every pair has one vote, and the sum of the decisions breaks ties.

    Parameters
    ----------
    decisions : array of shape (n, P)
        Column p is the decision function of pair p, above 0 for its second class.
    pairs : sequence of P tuples
        The two classes of each pair, as in :class:`PairTasks`.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> from mssl import vote
    >>> vote([[1.0, 2.0, -0.5], [-1.0, -2.0, 3.0]], [("a", "b"), ("a", "c"), ("b", "c")]).tolist()
    ['b', 'a']
    """
    values = np.asarray(decisions, dtype=float)
    if values.ndim != 2 or values.shape[1] != len(pairs):
        raise LayoutError(f"decisions have shape {values.shape} for {len(pairs)} pairs; give (n, {len(pairs)}).")
    if not np.all(np.isfinite(values)):
        raise DataError("decisions hold NaN or infinite values; give finite numbers.")
    classes = np.unique([label for pair in pairs for label in pair])
    second, first = (
        np.eye(len(classes))[np.searchsorted(classes, np.asarray([pair[side] for pair in pairs]))] for side in (1, 0)
    )
    wins = values > 0
    votes, sums = wins @ second + ~wins @ first, values @ (second - first)
    # Votes are whole numbers, so a sum that is mapped into (−½, ½) decides only between equal numbers of votes.
    return classes[np.argmax(votes + 0.5 * sums / (1.0 + np.abs(sums).max(axis=1, keepdims=True)), axis=1)]
