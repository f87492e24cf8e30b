"""Labels: one pair for all tasks, and the way from many classes to pairs and back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.multiclass import check_classification_targets

from mssl._typing import ArrayLike, Index, Labels, Matrix
from mssl.data.inputs import as_given, as_matrix, is_missing, listing
from mssl.exceptions import DataError, LayoutError


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
    first, second = (np.searchsorted(classes, np.asarray([pair[side] for pair in pairs])) for side in (0, 1))
    votes, sums = (np.zeros((len(values), len(classes))) for _ in range(2))
    for p, (a, b) in enumerate(zip(first, second, strict=True)):
        wins = values[:, p] > 0
        votes[:, b] += wins
        votes[:, a] += ~wins
        sums[:, b] += values[:, p]
        sums[:, a] -= values[:, p]
    # Votes are whole numbers, so a sum mapped into (−½, ½) only decides between equal numbers of votes.
    return classes[np.argmax(votes + 0.5 * sums / (1.0 + np.abs(sums).max(axis=1, keepdims=True)), axis=1)]
