r"""Targets: labels, one pair for all tasks or many in pairs, and other scales of numbers with the way back.

Scales are the logarithm or a Yeo–Johnson power, learned from training rows.

A model of :math:`z = T(y)` that says :math:`z \sim N(\mu, \sigma^2)` says of y that its quantiles are those of z,
mapped back, and that its mean is :math:`E\,T^{-1}(z)`, not :math:`T^{-1}(\mu)`.

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
from mssl._validation import check_choice
from mssl.data.columns import PooledRidge
from mssl.data.inputs import LARGEST_EXPONENT, as_given, as_matrix, dense, is_missing, listing
from mssl.data.layouts import TaskData
from mssl.exceptions import DataError, LayoutError
from mssl.losses import MASS, NODES

TRANSFORMS = ("log", "yeo-johnson", "auto")
_WIDEST = 500  # columns of that regression: more would cost more than the fit


@dataclass(frozen=True)
class TargetTransform:
    r"""A monotone map of targets, and its way back.

    "log" is :math:`z = \log y`. "yeo-johnson" is, of :math:`t = (y - c)/s`,

    .. math:: z = \frac{(1 + t)^\lambda - 1}{\lambda} \;(t \ge 0), \qquad
              z = -\frac{(1 - t)^{2-\lambda} - 1}{2 - \lambda} \;(t < 0)

    with logarithms in the limits λ = 0 and λ = 2; λ is between them, so that every number has a way back.

    Attributes
    ----------
    kind : {"log", "yeo-johnson"}
        Which map.
    power : float
        λ, 1 is a straight line.
    centre, scale : float
        c and s.

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
        """T(y)."""
        if self.kind == "log":
            return np.log(y)
        t = (np.asarray(y) - self.centre) / self.scale
        powers = self._powers(t)
        return np.sign(t) * np.expm1(powers * np.log1p(np.abs(t))) / powers

    def inverse(self, z: Array) -> Array:
        """The y whose T(y) is z; quantiles of z become those of y."""
        z = np.asarray(z)
        if self.kind == "log":
            return np.exp(np.minimum(z, LARGEST_EXPONENT))
        powers = self._powers(z)
        sizes = np.log1p(powers * np.abs(z)) / powers
        return np.asarray(self.centre + self.scale * np.sign(z) * np.expm1(np.minimum(sizes, LARGEST_EXPONENT)))

    def _powers(self, t: Array) -> Array:
        """The power of each side of c; in the limits λ = 0 and λ = 2 one so small that it gives a logarithm."""
        least = float(np.finfo(float).eps)
        return np.where(t >= 0, max(self.power, least), max(2.0 - self.power, least))

    def mean(self, mu: Array, variance: Array) -> Array:
        """E y where z is normal with these means and variances, elementwise."""
        mu, variance = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(variance, dtype=np.float64))
        if self.kind == "log":
            return np.exp(np.minimum(mu + 0.5 * variance, LARGEST_EXPONENT))
        sd = np.sqrt(variance)
        return sum((c * self.inverse(mu + sd * t) for t, c in zip(NODES, MASS, strict=True)), np.zeros(mu.shape))

    def log_slope(self, y: Array) -> Array:
        """Logarithm of T′(y), which a density of z needs to become one of y."""
        if self.kind == "log":
            return -np.log(y)
        t = (np.asarray(y) - self.centre) / self.scale
        return np.asarray((self.power - 1.0) * np.sign(t) * np.log1p(np.abs(t)) - np.log(self.scale))


def learn_transform(kind: str, data: TaskData) -> TargetTransform | None:
    """The scale of the targets that suits a linear model with normal errors.

    Powers and, with "auto", the scale itself are those of the largest profile likelihood of a ridge on the columns that
    all tasks share, with an intercept and a noise variance for every task; "auto" keeps the targets as they are (None)
    unless another scale is clearly better.

    Parameters
    ----------
    kind : {"log", "yeo-johnson", "auto"}
        The scale that is wanted.
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
        """Log-likelihood of the targets, up to a constant, maximised over intercepts and noise variances."""
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
    return chosen if gain > 2.0 else None  # nats: as far as chance comes with one power to choose


def two_classes(labels: Labels) -> Labels:
    """The two labels in use, sorted; one alone or a third is an error that says what to do."""
    classes = np.unique(plain_labels(labels))
    if len(classes) == 1:
        raise DataError(
            f"y holds one class only ({listing(classes)}); give two to a classifier. Tasks with one class are allowed "
            "where other tasks carry both."
        )
    if len(classes) > 2:
        raise DataError(
            f"Only binary classification is supported. y holds {len(classes)} labels ({listing(list(classes))}); all "
            "tasks share one pair of labels. Turn a multi-class problem into one task a pair of classes first: "
            "pairs = mssl.pair_tasks(X, y); model.fit(pairs.X, pairs.y, tasks=pairs.tasks); mssl.vote turns the "
            "decisions back into classes."
        )
    return classes


def plain_labels(labels: Labels) -> Labels:
    """Labels without objects around them, text as text and numbers as numbers; what is no label raises."""
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
    """A multi-class set as binary tasks, one for each pair of classes.

    Attributes
    ----------
    X : ndarray or csr_array of shape (N, d)
        Rows, pair after pair.
    y : ndarray of shape (N,)
        1 for the second class of the pair, 0 for the first.
    tasks : ndarray of shape (N,)
        Names such as "3 vs 8".
    rows : ndarray of shape (N,)
        The row of the given X that each row is.
    names : ndarray of shape (P,)
        Names of the pairs, sorted, as an estimator's ``tasks_`` will be.
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
    """Turn a multi-class problem into one binary task for each pair of classes.

    Parameters
    ----------
    X : array, frame or sparse matrix of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels of any type, two classes or more.

    Returns
    -------
    PairTasks
        Give ``X``, ``y`` and ``tasks`` to :class:`MSSLClassifier`; :func:`vote` turns its decisions back into classes.

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
        raise LayoutError(f"y has shape {labels.shape}; give one label a row, shape (n,).")
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
    """Classes from the decisions of all pairs: one vote a pair, ties broken by the sum of the decisions.

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
    # Votes are whole numbers, so a sum mapped into (−½, ½) only decides between equal numbers of votes.
    return classes[np.argmax(votes + 0.5 * sums / (1.0 + np.abs(sums).max(axis=1, keepdims=True)), axis=1)]
