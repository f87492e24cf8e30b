"""Warnings about data that users often misread: columns of ids, rows that are not independent, exposures.

Whole numbers may be ids of three kinds. Ids of tasks recur within the table. Ids of occasions (days, patients) are
unique within tasks and recur across tasks. Ids of rows are unique. Rows are not independent if their residuals are
similar and if either several tasks have rows with the same features, or the rows follow each other in time. Random
folds would then leak from training into test parts. Each warning names the parameter that helps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from mssl._typing import Array, Index
from mssl._validation import warn
from mssl.data.encoding import ColumnSchema
from mssl.data.inputs import FEWEST, listing
from mssl.data.layouts import TaskData

_ID_NAME = re.compile(r"(.*[\W_])?(?i:id|nr|uuid|guid|row|row[\W_]?number)|.*[a-z]I[dD]")  # names of columns of ids

# One column, or all columns together, are taken for an occasion if at least this share of the values within tasks is
# unique and at least half of the rows share their value with a row of another task. Random whole numbers do not meet
# both conditions: they are unique in K tasks of n rows only if there are about K n² of them, and two tasks then have
# hardly any number in common. The share allows for a few repeated ids; a mere safeguard.
_UNIQUE = 0.98
# Columns with at most this many values hold the times at which every task was measured, as in a longitudinal study, and
# no ids. A mere safeguard against false warnings.
_FEW_VALUES = 15
# An offset is taken for an exposure if its logarithm raises the log-likelihood of the counts by more than this number
# per unit of dispersion, above the offset itself and above no offset. None of 4 000 data sets with proper logarithms
# caused a false warning (the tests hold a part of them).
_LIKELIER = 8.0
# Residuals are called similar if their correlation is at least _ALIKE and at least _ERRORS standard errors. None of
# 4 000 data sets with independent rows caused a false warning about neighbours (the tests hold a part of them).
_ALIKE = 0.3
_ERRORS = 4.0


def _whole(values: Array) -> bool:
    """Whether all values are whole numbers."""
    return np.array_equal(values[:1], np.round(values[:1])) and np.array_equal(values, np.round(values))


def hint_at_tasks(data: TaskData) -> None:
    """If all rows of a frame are one task, point out columns that may name the tasks: categories and ids.

    A column holds ids if it has at least three different whole numbers, each in two or more rows on average. Two
    numbers are enough if the column's name looks like that of an id (``task``, ``site_id``). Otherwise 0 and 1 most
    likely say whether something holds.
    """
    if data.layout != "long" or data.n_tasks > 1:
        return
    columns = () if data.encoder is None else data.encoder.columns
    names = [column.name for column in columns if column.categories is not None]
    found = [f"the columns {listing(names)} are encoded as categories"] if names else []
    ids = []
    if data.feature_names is not None and not sparse.issparse(data.X):
        for name, values in zip(map(str, data.feature_names), data.X.T, strict=True):
            fewest = 2 if "task" in name or _ID_NAME.fullmatch(name) else 3
            if _whole(values) and fewest <= len(np.unique(values)) <= len(values) / 2:
                ids.append(name)
    if ids:
        found.append(f"the columns {listing(ids)} hold whole numbers that recur, as ids do")
    if found:
        warn(
            f"All rows are one task, and {' and '.join(found)}; if one of them names the tasks, give it as "
            "task_column. If there is one task, give its name for every row as tasks."
        )


def hint_at_row_ids(X: Array, columns: Sequence[ColumnSchema]) -> None:
    """Point out features of a table that look like ids, by their name or because they number or name every row."""
    found, first, rows = [], 0, len(X)
    for column in columns:
        values = X[:, first]
        first += column.width
        named = _ID_NAME.fullmatch(column.name) is not None
        if column.categories is not None:
            like_id = len(column.categories) > (0.5 if named else 0.9) * rows
        else:
            like_id = _whole(values) and (named or (bool(np.ptp(values) < 2 * rows) and len(np.unique(values)) == rows))
        if like_id and rows >= FEWEST:
            found.append(column.name)
    if found:
        one, names = len(found) == 1, listing(found)
        what = f"the column {names} looks like an id and is" if one else f"the columns {names} look like ids and are"
        warn(
            f"{what} used to predict from, as any other; leave {'it' if one else 'them'} out with "
            f"drop='{','.join(found)}', or name one that says which rows belong together with groups='COLUMN'. Naming "
            "the columns to use ends this note."
        )


def repeated_rows(data: TaskData, residuals: Array) -> tuple[float, float, float] | None:
    """Share of rows whose features recur in another task, and the correlation of the residuals of such rows.

    The correlation is over pairs of rows with the same features. The third number is the correlation in standard
    errors. The function returns None if fewer than half of the rows recur.
    """
    if not _can_repeat(data):
        return None
    X, task = np.ascontiguousarray(data.X) + 0.0, data.task_of_row  # The sum turns −0 into 0.
    odd = np.random.default_rng(0).integers(2**62, size=X.shape[1]) * 2 + 1
    with np.errstate(over="ignore"):
        keys = (X.view(np.int64) * odd).sum(axis=1)
    share = _repeats(keys, task)
    if share < 0.5:
        return None
    e, code = _standardised(data, residuals), np.unique(keys, return_inverse=True)[1]
    counts, sums, squares = (np.bincount(code, weights=values) for values in (np.ones(len(e)), e, e**2))
    pairs = float(np.sum(counts * (counts - 1)) / 2)
    together = float(np.sum(sums**2 - squares) / 2)
    return share, together / pairs, together / np.sqrt(pairs)


def _can_repeat(data: TaskData) -> bool:
    enough = data.n_tasks > 1 and len(data.y) >= FEWEST * data.n_tasks
    return data.layout == "long" and enough and not sparse.issparse(data.X)


def _standardised(data: TaskData, residuals: Array) -> Array:
    """Subtract each task's mean from its residuals and divide them by their standard deviation."""
    task, counts = data.task_of_row, np.maximum(data.n_rows, 1)
    e = residuals - (data.task_sums(residuals) / counts)[task]
    spread = np.sqrt(data.task_sums(e**2) / counts)[task]
    return np.divide(e, spread, out=np.zeros_like(e), where=spread > 0)


def _repeats(values: Array | Index, task: Index) -> float:
    """Share of rows whose value recurs in another task; 0 if values repeat within tasks."""
    code = np.unique(values, return_inverse=True)[1].astype(np.int64)
    pairs = np.unique(code * (task.max() + 1) + task)
    if len(pairs) < _UNIQUE * len(values):
        return 0.0
    tasks_with = np.bincount(pairs // (task.max() + 1))
    return float(np.mean(tasks_with[code] > 1))


def neighbour_correlation(data: TaskData, residuals: Array) -> tuple[float, float]:
    """Correlation of the residuals of consecutive rows of a task, and the same correlation in standard errors.

    Pairs of rows of one group do not count, nor do the rows of tasks whose targets are sorted. If the rows of the input
    hold all tasks, the standard error is that of one task, because the tasks may share their errors.
    """
    task = data.task_of_row
    pair = 1 + np.flatnonzero(task[1:] == task[:-1])
    steps = data.y[pair] - data.y[pair - 1]
    up, down = (np.bincount(task[pair], weights=sign, minlength=data.n_tasks) for sign in (steps > 0, steps < 0))
    keep = (np.minimum(up, down) > 0)[task[pair]]
    if data.groups is not None:
        keep &= data.groups[pair] != data.groups[pair - 1]
    pair = pair[keep]
    if len(pair) < FEWEST:
        return 0.0, 0.0
    e = _standardised(data, residuals)
    r = float(np.mean(e[pair] * e[pair - 1]))
    n = len(pair) if data.layout == "long" else int(np.bincount(task[pair]).max())
    return r, r * float(np.sqrt(n))


def warn_of_ids(data: TaskData) -> None:
    """Warn if no groups or times are given and a column looks like an id or a date that recurs in other tasks."""
    if data.groups is not None or data.order is not None or not _can_repeat(data):
        return
    largest = slice(*data.offsets[int(np.argmax(data.n_rows)) :][:2])
    for j, values in enumerate(data.X.T):
        # The largest task is tested first, because its values rule out most columns.
        if _whole(part := values[largest]) and len(np.unique(part)) >= _UNIQUE * len(part) and _whole(values):
            share = _repeats(values, data.task_of_row)
            if share >= 0.5 and len(np.unique(values)) > _FEW_VALUES:
                name = f"column {j}" if data.feature_names is None else str(data.feature_names[j])
                warn(
                    f"{share:.0%} of the rows have the value of {name!r} of a row of another task. If such rows share "
                    f"an occasion, a day or a patient, folds that part them leak: give groups={name!r} to fit, which "
                    "also removes the column from the features."
                )
                return


def warn_of_residuals(data: TaskData, residuals: Array) -> None:
    """Warn if residuals show that rows share an occasion or follow each other in time without groups or times."""
    if data.order is not None:
        return
    found = None if data.groups is not None else repeated_rows(data, residuals)
    if found is not None and found[1] >= _ALIKE and found[2] >= _ERRORS:
        warn(
            f"{found[0]:.0%} of the rows have the features of a row of another task, and residuals of such rows have a "
            f"correlation of {found[1]:.2f}: they seem to share an occasion, and folds that part them leak. Give "
            "groups= to fit, so that they stay together, or y of shape (n, K)."
        )
    r, errors = neighbour_correlation(data, residuals)
    if r >= _ALIKE and errors >= _ERRORS:
        warn(
            f"Residuals of neighbouring rows have a correlation of {r:.2f}. If rows are in the order of time, random "
            "folds leak: give order= to fit, a column of times, so that folds are blocks of time."
        )


def warn_of_exposure(data: TaskData, offset: Array, weights: Array) -> None:
    """Warn if an offset of counts looks like an exposure whose logarithm was forgotten.

    An offset looks like an exposure if all its values are above 0, and if its logarithm explains the counts much better
    than both the offset itself and no offset. Each explanation has one rate per task.
    """
    if len(offset) <= data.n_tasks or not np.all(offset > 0):
        return
    counts = weights * data.y

    def likelihood(known: Array) -> tuple[float, Array]:
        """Log-likelihood, maximised over the tasks' rates, and means."""
        known = known - known.max()
        rates = data.task_sums(counts) / np.maximum(data.task_sums(weights * np.exp(known)), 1e-300)
        means = np.maximum(np.exp(known) * rates[data.task_of_row], 1e-300)
        return float(counts @ np.log(means) - weights @ means), means

    (given, _), (none, _), (best, means) = map(likelihood, (offset, np.zeros_like(offset), np.log(offset)))
    spread = float(weights @ ((data.y - means) ** 2 / means)) / (len(offset) - data.n_tasks)
    if best - max(given, none) > _LIKELIER * max(spread, 1.0):
        warn(
            f"offset looks like an exposure itself ({offset.min():.3g} to {offset.max():.3g}): its logarithm explains "
            "the counts far better. Give the logarithm, offset=np.log(exposure)."
        )
