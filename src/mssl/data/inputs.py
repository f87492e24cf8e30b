"""Reading what the user hands over: features, task ids, targets and weights, each checked once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import _num_samples

from mssl._typing import Array, Index, Labels, Mask, Matrix
from mssl._validation import LARGEST_EXPONENT, refused, warn
from mssl.exceptions import DataError, LayoutError, UnseenTaskError, require

if TYPE_CHECKING:
    from pandas import DataFrame

Given = TypeVar("Given")
SAFE_SQUARES = (1e-152, 1e152)  # Doubles can hold the squares of numbers in this range.
# Doubles can hold the fourth powers of numbers in this range, and their products with other quantities of the fit.
SAFE_POWERS = (1e-70, 1e70)
# Rounding errors of long sums are below this share of the sum: a column of smaller spread is constant, and a smaller
# change of an objective is none.
ROUNDING = 32 * float(np.finfo(float).eps)
# Warnings about rows need at least this many rows (per task on average, if the warning is about tasks). With fewer rows
# chance could cause them; a mere safeguard.
FEWEST = 10
# Rows are centred, mapped, summed and forecast for about this many values at a time, 2 MiB. Larger chunks leave the
# cache of a core and need more temporary memory; smaller ones need more calls of NumPy.
CHUNK = 2**18
# A Dask array of at most this many bytes is loaded where its rows are needed. A mere safeguard of the memory.
LARGEST_PULLED = 2**28


def is_dask(values: object) -> bool:
    """Whether these are a Dask collection, which holds no values yet."""
    return hasattr(values, "__dask_graph__")


def is_frame(X: object) -> TypeGuard[DataFrame]:
    """Whether this is a table with named columns: of pandas, polars or Dask."""
    return hasattr(X, "columns")


def as_rows(X: object) -> Matrix:
    """X unchanged if it has a shape; a list as an array."""
    return X if hasattr(X, "shape") else as_given(X)


def as_matrix(X: object) -> Matrix:
    """A sparse matrix of any form by its rows; anything else as an array of its values."""
    return sparse.csr_array(X) if sparse.issparse(X) else as_given(X)


def dense(X: Matrix) -> Array:
    """A matrix as an array."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def check_sizes(sizes: Array, allowed: tuple[float, float], what: str, remedy: str) -> None:
    """Raise if a size other than 0 lies outside the allowed range; ``what`` is a format of its place and value."""
    low, high = allowed
    odd = np.flatnonzero((sizes > high) | ((sizes > 0) & (sizes < low)))
    if len(odd):
        problem = what.format(odd[0], sizes[odd[0]])
        raise DataError(f"{problem}; sizes from {low:g} to {high:g} can be computed with. {remedy}")


def in_memory(name: str, values: Given) -> Given:
    """Load a small Dask array with a warning, refuse other Dask collections, and return anything else unchanged."""
    if not is_dask(values):
        return values
    size = float(getattr(values, "nbytes", math.nan)) if hasattr(values, "chunks") else math.nan
    what = f"{size / 2**20:.3g} MiB" if math.isfinite(size) else "unknown size"
    if not size <= LARGEST_PULLED:  # also if it is not known
        raise DataError(
            f"{name} is a Dask collection of {what}, and its rows are needed in memory; arrays up to "
            f"{LARGEST_PULLED // 2**20} MiB are pulled in. Dask's workers compute fits and searches of least squares "
            f"with linear features, and predictions of means. Call .compute() on {name} if it fits, or give a sample "
            "of the rows: labels and counts need them in every step."
        )
    warn(f"{name} is a Dask collection, and its rows are needed: {what} are pulled into memory.")
    return values.compute()  # type: ignore[attr-defined]  # every collection of Dask has it


@dataclass(frozen=True, eq=False)
class CodedTasks:
    """The task of each row as a number, and every task name once.

    Text of fixed width would take more memory than the features do. All functions that take task ids take this class
    too; NumPy converts it to an array of names.

    Attributes
    ----------
    names : ndarray of shape (K,)
        Distinct task names; not all need have rows.
    codes : ndarray of int of shape (N,)
        Position of each row's task in ``names``.
    """

    names: Labels
    codes: NDArray[np.int32]

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,)."""
        return self.codes.shape

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Index | Mask | slice) -> CodedTasks:
        return CodedTasks(self.names, self.codes[rows])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Labels:
        return np.asarray(self.names[self.codes], dtype=dtype)

    def tolist(self) -> list[Any]:
        """The name of each row's task."""
        names = self.names.tolist()
        return [names[code] for code in self.codes.tolist()]


def as_table(X: Given, columns: Iterable[Hashable] | None = None) -> Given | DataFrame:
    """Convert records and tables of other kinds to a frame, and return anything else unchanged.

    A dict of single values, a list of such dicts and a Series indexed by the names of ``columns`` are rows. Their
    columns are sorted in the order of ``columns``. A dict of sequences and a pyarrow Table are tables.
    """
    if hasattr(X, "to_pandas") and hasattr(X, "column_names"):  # pyarrow
        require("pandas", "tables", "A pyarrow Table as X")
        return X.to_pandas()
    known, given = [] if columns is None else list(columns), X
    if columns is not None and hasattr(X, "index") and hasattr(X, "to_dict") and getattr(X, "ndim", 0) == 1:  # a Series
        names = list(X.index)
        if not known or not set(known) <= set(names):
            has = f"has the columns {listing(known)}" if known else "was fitted to columns without names"
            raise LayoutError(
                f"X is a Series indexed by {listing(names)}, and this model {has}; a Series is one row, indexed by the "
                "columns. Give a frame or an array of rows otherwise."
            )
        given = X.to_dict()
    if isinstance(given, Mapping) and not sparse.issparse(given):  # SciPy keeps sparse arrays as dicts too
        table: object = [given] if all(np.ndim(value) == 0 for value in given.values()) else given
    elif isinstance(given, list | tuple) and given and all(isinstance(row, Mapping) for row in given):
        table = list(given)
    else:
        return X
    pandas = require("pandas", "tables", "X as dicts")
    try:
        frame = pandas.DataFrame(table)
    except ValueError as error:
        raise LayoutError(f"X is a dict that forms no table ({error}); give columns of one length.") from error
    return frame[[name for name in known if name in frame] + [name for name in frame if name not in known]]


def named_column(X: object, column: Hashable, name: str, remedy: str = "") -> Any:
    """The column of a frame that the parameter ``name`` names."""
    names = list(X.columns) if is_frame(X) else []
    if is_frame(X) and column in names:
        return X[column]
    allowed = f"give one of the columns of X, which are {listing(names)}" if names else "X has no named columns"
    raise refused(name, column, allowed, remedy, error=LayoutError)


def task_ids(X: object, column: Hashable) -> Labels | CodedTasks:
    """The task ids in a column of a frame, an array or a sparse matrix."""
    if is_frame(X):
        return read_labels(named_column(X, column, "task_column"))
    rows = as_matrix(X)
    if rows.ndim < 2:
        raise LayoutError(f"X has shape {rows.shape}; give a table of rows and columns, or records with their names.")
    if not is_place(column, rows.shape[1]):
        allowed = f"X is a plain array with {rows.shape[1]} columns: give the column's number, or a DataFrame"
        raise refused("task_column", column, allowed, error=LayoutError)
    return read_labels(dense(rows[:, [column]]))


def split_task_column(
    X: object, column: Hashable, optional: bool = False
) -> tuple[object, Labels | CodedTasks | None, Labels | None]:
    """Return X without the column of task ids, these ids (or None), and the names of the other columns (or None)."""
    framed, names = is_frame(X), list(X.columns) if is_frame(X) else []
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"X has more than one column named {listing(twice)}; give every column a name of its own.")
    # The columns of an array have no names.
    there = column in names if framed else not isinstance(column, str)
    labels = task_ids(X, column) if column is not None and (there or not optional) else None
    if labels is not None and framed:
        X = without_columns(X, (column,))
        names.remove(column)
    elif labels is not None:
        rows = as_matrix(X)
        X = rows[:, [j for j in range(rows.shape[1]) if column not in (j, j - rows.shape[1])]]
    return X, labels, np.asarray(names, dtype=object) if framed and all(isinstance(n, str) for n in names) else None


def is_place(column: object, count: int) -> TypeGuard[int]:
    """Whether a value is the number of one of ``count`` columns; negative numbers count from the end."""
    return isinstance(column, int | np.integer) and type(column) is not bool and -count <= int(column) < count


def as_given(values: object) -> Labels:
    """Convert values to an array without changing them: a list that mixes text with other types stays objects."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise LayoutError(f"Lists of differing lengths form no table ({error}); give rows of one length.") from error
    if array.dtype.kind not in "US" or hasattr(values, "dtype") or isinstance(values, CodedTasks):
        return array
    objects = np.asarray(values, dtype=object)
    return array if set(map(type, objects.ravel().tolist())) <= {str, np.str_} else objects


def rank_rows(name: str, values: object, n: int | None = None, rows: Index | None = None) -> Index:
    """Ranks of the rows' groups or times, from 0: for all n rows of the input, or for the given ``rows``."""
    labels = np.asarray(read_labels(values, name, n))
    if rows is not None and len(labels) <= rows.max():
        raise LayoutError(f"{name} has {len(labels)} entries; give one per row of X.")
    return np.unique(labels if rows is None else labels[rows], return_inverse=True)[1]


def read_labels(values: object, name: str = "", n: int | None = None) -> Labels | CodedTasks:
    """Check task ids, or other labels called ``name``, of n rows; return an array of one type, or coded tasks."""
    what = f"entry in {name}" if name else "task id"
    labels = values if isinstance(values, CodedTasks) else as_given(in_memory(what, values))
    if len(labels.shape) == 2 and labels.shape[1] == 1:
        labels = np.ravel(labels)
    if len(labels.shape) != 1:
        raise LayoutError(
            f"{f'{name} has' if name else 'Task ids have'} shape {labels.shape}; give one id per row, shape (N,)."
        )
    if n is not None and len(labels) != n:
        problem = f"{name} has {len(labels)} entries" if name else f"There are {len(labels)} task ids"
        named = "" if name else " If each task is a column of y, name the tasks by the columns of a frame y instead."
        raise LayoutError(f"{problem} for {n} rows; give one {'entry' if name else 'id'} per row.{named}")
    if isinstance(labels, CodedTasks):
        return labels
    missing = is_missing(labels)
    if missing.any():
        remedy = "give them one" if name else "name their task"
        raise LayoutError(
            f"{int(missing.sum())} rows have no {what} (first: row {int(np.argmax(missing))}); drop them or {remedy}."
        )
    objects = labels.tolist() if labels.dtype.kind == "O" else []
    kinds = set(map(type, objects))
    if len(kinds) > 1 and any(issubclass(kind, str) for kind in kinds):  # a mixture is compared as text
        text = np.asarray([str(label) for label in labels])
        if len(np.unique(text)) < len(set(objects)):
            raise LayoutError(
                "Task ids mix text and numbers, and some differ only in that (such as 1 and '1'); give all as text or "
                "all as numbers."
            )
        return text
    return np.asarray(objects) if kinds else labels


def take_columns(
    X: Given, groups: object = None, order: object = None
) -> tuple[Given | DataFrame, Labels | None, Labels | None, tuple[str, ...]]:
    """Remove groups and times from X if they are given as names of its columns; return vectors unchanged.

    Parameters
    ----------
    X : array or frame
        Features.
    groups, order : str or array of shape (N,) or (n,), optional
        The name of a column of a frame, which then is not a feature, or one entry per row.

    Returns
    -------
    X, groups, order, columns
        X without these columns, the columns' values, and their names.
    """
    table, taken = as_table(X), []
    for name, given in (("groups", groups), ("order", order)):
        by_name = isinstance(given, str)
        values = named_column(table, given, name, "Or give one entry per row.") if by_name else given
        taken.append(None if given is None else np.asarray(read_labels(values, name, _num_samples(table))))
    columns = tuple(value for value in (groups, order) if isinstance(value, str))
    return without_columns(table, columns), taken[0], taken[1], columns


def feature_labels(names: Labels | None, n_features: int) -> Labels:
    """Names of the features: the names of the columns, or x0, x1, … if the columns have no names."""
    return np.asarray([f"x{j}" for j in range(n_features)] if names is None else names, dtype=object)


def without_columns(X: Given, names: Sequence[Hashable]) -> Given:
    """Drop columns from a frame, ignoring names that it does not have; return anything else unchanged."""
    if not names or not is_frame(X):  # A lazy frame would warn if its columns were read.
        return X
    present = [name for name in names if name in list(X.columns)]
    if not present:
        return X
    return X.drop(columns=present) if hasattr(X, "iloc") else X.drop(present)


def head(X: Any, task_column: Any) -> Any:
    """An empty X with the same columns; a frame loses its task column."""
    if is_frame(X):
        names = list(X.columns)
        own = task_column if task_column in names or not isinstance(task_column, int) else names[task_column]
        return without_columns(X.head(0), (own,))
    return np.empty((0, as_rows(X).shape[1]))


def absent(value: object) -> bool:
    """Whether a value is missing: None, NaN, NaT or the missing value of a frame library."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def listing(names: Sequence[object] | Labels, limit: int = 8) -> str:
    """Names for an error message: the first few, and the number of all if there are more."""
    shown = ", ".join(repr(name.item() if isinstance(name, np.generic) else name) for name in names[:limit])
    return shown + (f", … ({len(names)} in all)" if len(names) > limit else "")


def read_targets(y: object, X: Matrix, numeric: bool) -> tuple[Labels, Labels | None]:
    """Check y against the features' shape; return the targets and the names of their columns (None without names)."""
    if y is None:
        raise DataError("y is None: requires y to be passed, but the target y is None; give one target per row.")
    y = in_memory("y", y)
    names = np.asarray(list(y.columns), dtype=object) if is_frame(y) else None
    targets = as_given(y)
    if targets.dtype.kind == "c":
        raise DataError("Complex data not supported: y holds complex numbers; give real ones.")
    if numeric and targets.dtype.kind in "mM":
        raise DataError(
            f"y holds times ({targets.dtype}); convert them to numbers, such as days since a date: "
            "(y - y.min()) / np.timedelta64(1, 'D')."
        )
    if numeric:
        targets = _floats("y", targets, "give numbers, or use a classifier if they are labels")
    if targets.ndim == 2 and targets.shape[1] == 1 and X.ndim == 2:
        if names is None:
            message = "A column-vector y was passed when a 1d array was expected; it is read as one task."
            warn(message, DataConversionWarning)
        targets = targets.ravel()
    if X.ndim == 3 and targets.shape != X.shape[:2]:
        raise LayoutError(
            f"y has shape {targets.shape} beside an aligned X of shape {X.shape}; give y of shape {X.shape[:2]}."
        )
    if targets.ndim not in (1, 2):
        raise LayoutError(f"y has {targets.ndim} dimensions; give (N,) or (n, K).")
    if targets.shape[0] != X.shape[0]:
        raise LayoutError(
            "Found input variables with inconsistent numbers of samples: "
            f"X has {X.shape[0]} rows, y has {targets.shape[0]}; give one target per row."
        )
    if numeric:
        if np.isinf(targets).any():
            raise DataError("Input y contains infinity; replace infinite values or drop their rows.")
        if targets.ndim == 1 and np.isnan(targets).any():
            raise DataError(
                f"Input y contains NaN in {int(np.isnan(targets).sum())} of {len(targets)} rows; drop those rows "
                "(missing targets are allowed in (n, K) layouts only)."
            )
    return targets, names


def _floats(name: str, values: object, remedy: str) -> Array:
    """Values as floats; anything other than numbers raises."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        found = listing(np.ravel(np.asarray(values, dtype=object))[:1])
        what = (
            f"is {values!r}" if isinstance(values, str) else f"holds values that are not numbers (for example {found})"
        )
        raise DataError(f"{name} {what}; {remedy}.") from error


def is_missing(values: Labels) -> Mask:
    """Which values of an array are missing (NaN, NaT or None)."""
    flat = values.ravel().tolist() if values.dtype.kind == "O" else []
    if set(map(type, flat)) - {str}:
        return np.asarray([absent(value) for value in flat], dtype=bool).reshape(values.shape)
    return values != values if values.dtype.kind in "fmM" else np.zeros(values.shape, dtype=bool)


def _numbers_of_rows(name: str, values: object, shape: tuple[int, ...], remedy: str) -> Array:
    """Bring numbers to the targets' shape: one per target, one per row, or one for all rows."""
    numbers = _floats(name, in_memory(name, values), remedy)
    if numbers.ndim == 0:
        return np.full(shape, float(numbers))
    if numbers.shape == shape[:1] and len(shape) == 2:
        return np.repeat(numbers[:, None], shape[1], axis=1)
    if numbers.shape != shape:
        raise LayoutError(f"{name} has shape {numbers.shape}; give {shape} or {shape[:1]}.")
    return numbers


def read_weights(sample_weight: object, shape: tuple[int, ...]) -> Array:
    """Check sample weights and bring them to the targets' shape."""
    weights = _numbers_of_rows("sample_weight", sample_weight, shape, "give one number ≥ 0 per row")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise DataError("sample_weight holds negative, infinite or missing values; give finite numbers ≥ 0.")
    if not np.any(weights > 0):
        raise DataError("All sample weights are zero; give at least one row of every task a positive weight.")
    return weights


def read_offset(offset: object, shape: tuple[int, ...], identity: bool = False) -> Array:
    """Check offsets and bring them to the shape of the targets or of the predictions.

    With the identity link they may be of any size; other links take their exponentials.
    """
    remedy = "give one number per row, such as np.log(frame['exposure'])"
    values = _numbers_of_rows("offset", offset, shape, remedy)
    if identity and not np.all(np.isfinite(values)):
        raise DataError("offset holds missing or infinite values; give finite numbers, in the units of the targets.")
    if not identity and not np.all(np.abs(values) <= LARGEST_EXPONENT):
        raise DataError(
            f"offset holds missing values or numbers beyond ±{LARGEST_EXPONENT:g}; give finite numbers on the scale of "
            "the linear predictor: for counts the logarithm of the exposure."
        )
    return values


def number_tasks(labels: Labels | CodedTasks) -> tuple[Labels, Index]:
    """Task names, sorted, and the index of each row's task."""
    heads, of_row = _heads(labels)
    tasks, place = np.unique(heads, return_inverse=True)
    return tasks, place[of_row]


def _heads(labels: Labels | CodedTasks) -> tuple[Labels, Index]:
    """Few labels that stand for all rows, and the number of each row's label among them.

    For coded tasks these are the names in use. Otherwise they are the first labels of all runs of equal labels: rows
    that are ordered by task then cost one comparison each and need not be sorted.
    """
    if isinstance(labels, CodedTasks):
        used = np.flatnonzero(np.bincount(labels.codes, minlength=len(labels.names)))
        place = np.zeros(len(labels.names), dtype=np.int64)
        place[used] = np.arange(len(used))
        return labels.names[used], place[labels.codes]
    begins = np.ones(len(labels), dtype=bool)
    begins[1:] = labels[1:] != labels[:-1]
    return labels[begins], np.cumsum(begins) - 1


def locate_tasks(tasks: object, known: Labels) -> Index:
    """Index of each label among the known task names; −1 for those that are not among them."""
    labels, of_row = _heads(read_labels(tasks))
    if labels.dtype.kind in "US" and known.dtype.kind not in "USO":
        known = known.astype(str)
    elif labels.dtype.kind not in "US" and known.dtype.kind in "US":
        labels = labels.astype(str)
    order = np.argsort(known, kind="stable")
    place = np.clip(np.searchsorted(known[order], labels), 0, len(known) - 1)
    index = np.where(known[order[place]] == labels, order[place], -1)
    return np.asarray(index, dtype=np.int64)[of_row]


def refuse_unseen(labels: object, index: Index, known: Labels, remedy: str = "") -> None:
    """Raise if :func:`locate_tasks` did not find the task of some row."""
    if np.any(index < 0):
        raise UnseenTaskError(
            f"Tasks {listing(unseen_tasks(labels, index))} were not there when the model was fitted; it knows "
            f"{listing(list(known))}. Fit again with rows of these tasks, or predict for known tasks only{remedy}."
        )


def unseen_tasks(labels: object, index: Index) -> list[Hashable]:
    """Names of the tasks that :func:`locate_tasks` did not find."""
    return list(np.unique(np.asarray(labels)[index < 0]))
