"""The classification sets: how they are loaded, split and prepared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mssl import datasets

Index = NDArray[np.intp]

TITLES = {
    "landmine": "Landmine",
    "spam-3": "Spam, 3 users",
    "spam-15": "Spam, 15 users",
    "letter": "Letter",
    "digits": "Digits pairs",
    "mnist": "MNIST pairs",
}
# Shares of every task's rows for training; the paper states none. At the first all methods are compared: it is where
# logistic regression errs about as much as published, or as near to that as time allows. At the others it runs alone.
FRACTIONS = {
    "landmine": (0.2, 0.05, 0.1, 0.3, 0.6),
    "spam-3": (0.1, 0.02, 0.4, 0.8),
    "spam-15": (0.07, 0.03, 0.1, 0.2),
    "letter": (0.05, 0.1, 0.2, 0.4, 0.7),
    "mnist": (0.2, 0.1, 0.5, 0.8),
    "digits": (0.2, 0.1, 0.5),
}
MNIST_ROWS = 200  # rows of each of MNIST's 45 pairs: the whole set has 630 000 rows
WORDS_KEPT = 500  # words of the mails: trades accuracy (see "LR, all words") for time


class Split(NamedTuple):
    """Features, labels and tasks for training and testing."""

    X: Any
    y: NDArray[Any]
    tasks: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]
    tasks_test: NDArray[Any]


@lru_cache(maxsize=2)
def load(name: str) -> Any:
    """A set by its name; word counts as log(1 + count)."""
    if not name.startswith("spam"):
        options = {"subsample": MNIST_ROWS, "random_state": 0} if name == "mnist" else {}
        return datasets.load({"digits": "digit-pairs", "mnist": "mnist-pairs"}.get(name, name), **options)
    mails = datasets.load(name)
    mails.X = sparse.csr_array(mails.X)
    mails.X.data = np.log1p(mails.X.data)
    return mails


@lru_cache(maxsize=2)
def split(name: str, size: float, seed: int, *, select: bool = True, most_tests: int = 1000) -> Split:
    """A random split of every task's rows, with both classes in the training rows of all tasks together.

    Parameters
    ----------
    name : str
        The set.
    size : float
        Share of every task's rows for training if below 1, otherwise their number.
    seed : int
        Of the split.
    select : bool
        Keep the 500 words of lowest Laplacian score, computed from the training rows (spam only).
    most_tests : int
        Test on at most so many rows a task, to save time.
    """
    data = load(name)
    random = np.random.default_rng([seed, int(1000 * size)])
    y, tasks = np.asarray(data.y), np.asarray(data.tasks)
    parts = [np.flatnonzero(tasks == task) for task in data.task_names]
    rows = drawn(parts, y, [round(size * len(part)) if size < 1 else int(size) for part in parts], random)
    rest = (np.setdiff1d(part, rows) for part in parts)
    others = np.concatenate([np.sort(random.permutation(part)[:most_tests]) for part in rest])
    X = data.X
    if name.startswith("spam") and select:
        X = X[:, _words(X[rows])]
    if sparse.issparse(X):
        X = np.asarray(X[np.concatenate([rows, others])].todense())
        return Split(X[: len(rows)], y[rows], tasks[rows], X[len(rows) :], y[others], tasks[others])
    return Split(X[rows], y[rows], tasks[rows], X[others], y[others], tasks[others])


def drawn(parts: Sequence[Index], y: NDArray[Any], wanted: Sequence[int], random: np.random.Generator) -> Index:
    """So many (at least two) rows of each task, whatever their labels; drawn again until both classes are there."""
    while True:
        rows = [random.permutation(part)[: max(2, size)] for part, size in zip(parts, wanted, strict=True)]
        found = np.concatenate([np.sort(own) for own in rows])
        if len(np.unique(y[found])) == len(np.unique(y)):
            return found


def _words(X: Any) -> NDArray[np.bool_]:
    """The words of lowest Laplacian score among mails of unit length: long mails would otherwise decide."""
    from sklearn.preprocessing import normalize

    from mssl_reproduction.laplacian import LaplacianScore

    score = LaplacianScore(n_features_to_select=WORDS_KEPT, weights="binary").fit(normalize(X))
    return np.asarray(score.get_support())
