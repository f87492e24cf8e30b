"""Real data sets, and how they are cut into rows to train on and rows to test with.

A cut is drawn by its seed alone. Rows that share an occasion say so (``groups``), rows in time too (``order``), and all
methods get to know both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from mssl.datasets import (
    load_climate,
    load_digit_pairs,
    load_enb,
    load_irish_wind,
    load_landmine,
    load_letter,
    load_slump,
    load_spam,
)


@dataclass(frozen=True)
class Rows:
    """Rows of a data set in one of three layouts.

    Attributes
    ----------
    X, y : arrays
        (N, d) and (N,) with tasks, or (n, d) or (n, K, d) and (n, K) without.
    tasks : ndarray of shape (N,) or None
        Task of each row.
    groups, order : ndarray or None
        Rows that belong together, and the time of each row.
    """

    X: np.ndarray
    y: np.ndarray
    tasks: np.ndarray | None = None
    groups: np.ndarray | None = None
    order: np.ndarray | None = None

    def take(self, rows: Any) -> Rows:
        """Some of the rows."""
        parts = (self.X, self.y, self.tasks, self.groups, self.order)
        return Rows(*(None if part is None else part[rows] for part in parts))

    def long(self) -> Rows:
        """The same in the long layout, for methods that know no other; (n, K) targets row by row."""
        if self.tasks is not None:
            return self
        n, K = self.y.shape
        X = np.repeat(self.X, K, axis=0) if self.X.ndim == 2 else self.X.reshape(n * K, -1)
        groups = np.arange(n) if self.groups is None else self.groups
        order = None if self.order is None else np.repeat(self.order, K)
        return Rows(X, self.y.ravel(), np.tile(np.arange(K), n), np.repeat(groups, K), order)


@dataclass(frozen=True)
class Cut:
    """Rows to train on and rows to test with.

    Attributes
    ----------
    train, test : Rows
        Features and targets in units of their spread.
    labels : bool
        Whether the targets are labels 0 and 1.
    intercept : bool
        False for targets that are contrasts, which have none.
    unit : float
        What the targets were divided by.
    """

    train: Rows
    test: Rows
    labels: bool = False
    intercept: bool = True
    unit: float = 1.0


def _draw(tasks: np.ndarray, y: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """So many training rows of every task, whatever their targets; again until both labels (of labels) are drawn."""
    while True:
        chosen = np.zeros(len(tasks), dtype=bool)
        for task in np.unique(tasks):
            chosen[random.choice(np.flatnonzero(tasks == task), size, replace=False)] = True
        if len(np.unique(y[chosen])) > 1:
            return chosen


def by_rows(load: Callable[[], Rows], size: int, *, labels: bool = False, most: int | None = None) -> Any:
    """Training rows drawn at random within tasks, tested on (at most so many of) the rest."""

    def cut(seed: int) -> Cut:
        rows, random = load(), np.random.default_rng(seed)
        if rows.tasks is None:
            order = random.permutation(len(rows.y))
            return Cut(rows.take(order[:size]), rows.take(order[size:]), labels)
        train = _draw(rows.tasks, rows.y, size, random)
        test = ~train
        if most is not None:
            keep = np.zeros(len(test), dtype=bool)
            for task in np.unique(rows.tasks):
                own = np.flatnonzero(test & (rows.tasks == task))
                keep[random.permutation(own)[:most]] = True
            test = keep
        return Cut(rows.take(train), rows.take(test), labels)

    return cut


def contrasts(values: np.ndarray) -> np.ndarray:
    """Each year but the first less the mean of those before it, scaled to the variance of a year; (years, 12, …).

    Anomalies from the mean of n years sum to zero over these, so that a year left out would be minus the sum of the
    years trained on. The n − 1 contrasts (Helmert) have the same products, hence the same fits, and are independent
    where the years are.
    """
    return np.stack([np.sqrt(n / (n + 1)) * (values[n] - values[:n].mean(axis=0)) for n in range(1, len(values))])


def climate(name: str, years: int) -> Any:
    """Monthly anomalies from the training years' climatology; whole years are drawn, and are groups."""

    def cut(seed: int) -> Cut:
        data = load_climate(name)
        whole = len(data.y) // 12 * 12
        X, y = (values[:whole].reshape(-1, 12, *values.shape[1:]) for values in (data.X, data.y))
        drawn = np.random.default_rng(seed).choice(len(X), years, replace=False)
        others = np.delete(np.arange(len(X)), drawn)
        train = [contrasts(v[drawn]).reshape(-1, *v.shape[2:]) for v in (X, y)]
        test = [(v[others] - v[drawn].mean(axis=0)).reshape(-1, *v.shape[2:]) for v in (X, y)]
        year = np.repeat(np.arange(years - 1), 12)
        return Cut(Rows(*train, groups=year), Rows(*test), intercept=False)

    return cut


def wind(days: int) -> Any:
    """So many days in a row, tested on the year that follows."""

    def cut(seed: int) -> Cut:
        data = load_irish_wind()
        begin = int(np.random.default_rng(seed).integers(len(data.X) - days - 365))
        rows = Rows(data.X, data.y, order=np.arange(len(data.X)))
        return Cut(rows.take(slice(begin, begin + days)), rows.take(slice(begin + days, begin + days + 365)))

    return cut


@cache
def _landmine() -> Rows:
    data = load_landmine()
    return Rows(data.X, data.y, data.tasks)


@cache
def _spam() -> Rows:
    data = load_spam(15)
    counts = np.asarray(data.X.sum(axis=0)).ravel()
    words = np.sort(np.argsort(-counts, kind="stable")[:500])
    return Rows(np.log1p(data.X[:, words].toarray()), data.y, data.tasks)


@cache
def _letter() -> Rows:
    data = load_letter()
    return Rows(data.X, data.y, data.tasks)


@cache
def _digits() -> Rows:
    data = load_digit_pairs(120, random_state=0)
    return Rows(data.X, data.y, data.tasks)


@cache
def _enb() -> Rows:
    data = load_enb()
    return Rows(data.X, data.y)


@cache
def _slump() -> Rows:
    data = load_slump()
    return Rows(data.X, data.y)


@cache
def _diabetes() -> Rows:
    """Progression of diabetes (scikit-learn) in six groups: thirds of age by sex."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True, scaled=False)
    third = np.searchsorted(np.quantile(X[:, 0], [1 / 3, 2 / 3]), X[:, 0])
    tasks = np.char.add(np.char.add(third.astype(str), " "), X[:, 1].astype(int).astype(str))
    return Rows(np.delete(X, 1, axis=1), y, tasks)


@cache
def _visits() -> Rows:
    """Doctor visits in the RAND experiment (statsmodels), log(1 + visits), by insurance plan."""
    from statsmodels.datasets import randhie

    frame = randhie.load_pandas().data
    plan = np.unique(frame[["lncoins", "idp"]].to_numpy(), axis=0, return_inverse=True)[1].ravel()
    X = frame.drop(columns=["mdvis", "lncoins", "idp"]).to_numpy(float)
    large = np.bincount(plan)[plan] >= 500
    return Rows(X[large], np.log1p(frame["mdvis"].to_numpy(float))[large], plan[large])


@cache
def _fair() -> Rows:
    """Whether a marriage had an affair (Fair 1978, statsmodels), by the wife's occupation."""
    from statsmodels.datasets import fair

    frame = fair.load_pandas().data
    tasks = frame["occupation"].to_numpy().astype(int)
    X = frame.drop(columns=["affairs", "occupation"]).to_numpy(float)
    large = np.bincount(tasks)[tasks] >= 100
    return Rows(X[large], (frame["affairs"].to_numpy() > 0).astype(int)[large], tasks[large])


SETS: dict[str, Callable[[int], Cut]] = {
    **{f"landmine-{n}": by_rows(_landmine, n, labels=True) for n in (40, 80, 160)},
    **{f"spam15-{n}": by_rows(_spam, n, labels=True, most=150) for n in (20, 50)},
    **{f"letter-{n}": by_rows(_letter, n, labels=True, most=150) for n in (20, 40)},
    "digits-30": by_rows(_digits, 30, labels=True, most=150),
    **{f"atlas-{n}": climate("atlas", n) for n in (5, 19)},
    "fiveloc-10": climate("fiveloc", 10),
    "wind-120": wind(120),
    "enb-60": by_rows(_enb, 60),
    "slump-40": by_rows(_slump, 40),
    "diabetes-25": by_rows(_diabetes, 25),
    # No rule of this package was made with these two; they were added last.
    "visits-60": by_rows(_visits, 60, most=300),
    "fair-40": by_rows(_fair, 40, labels=True, most=300),
}


def cut(name: str, seed: int) -> Cut:
    """A cut of a set, features and numbers to predict in units of their spread over the training rows.

    Targets have one unit for all tasks: grids of some rivals' strengths are in it.
    """
    found = SETS[name](seed)
    flat = found.train.X.reshape(-1, found.train.X.shape[-1])
    centre = flat.mean(axis=0) if found.intercept else 0.0
    scale = flat.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    unit = 1.0
    if not found.labels:
        rows = found.train.long()
        own = [rows.y[rows.tasks == task] for task in np.unique(rows.tasks)]
        unit = float(np.sqrt(np.mean([np.mean((y - y.mean() * found.intercept) ** 2) for y in own])))
    train, test = (
        replace(part, X=(part.X - centre) / scale, y=part.y if found.labels else part.y / unit)
        for part in (found.train, found.test)
    )
    return replace(found, train=train, test=test, unit=unit)
