"""Encoding of columns: categories become columns of 0 and 1, missing values become the column's mean and an indicator.

A :class:`ColumnSchema` describes one column of the training data. The same rules encode the frames that an estimator
gets and the tables that the command line reads.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from mssl._typing import Array, ArrayLike, Index, Labels, Mask, Matrix, Rows
from mssl._validation import check_choice, is_number, refused, warn
from mssl.data.inputs import (
    CodedTasks,
    absent,
    as_given,
    as_rows,
    as_table,
    feature_labels,
    in_memory,
    is_frame,
    is_place,
    listing,
    read_labels,
    split_task_column,
)
from mssl.exceptions import DataError, LayoutError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# A text column whose levels are mostly numbers is a category if it has at most _FEW_LEVELS levels and at least
# _ROWS_PER_LEVEL rows per level. Otherwise its text is most likely a typing error. Both numbers are mere safeguards.
_FEW_LEVELS, _ROWS_PER_LEVEL = 30, 5
# A text column may have at most this many levels, each of which becomes a feature. A column with more levels most
# likely holds free text; a mere safeguard.
MOST_CATEGORIES = 100
# Texts that a reader takes for numbers and a program does not: 1,234.5 and 1 234,5 and 1'234 and 1.234,5 and 0,5.
_SEPARATED = re.compile(r"[-+]?(\d{1,3}([,'\s]\d{3})+([.,]\d+)?|\d{1,3}(\.\d{3})+,\d+|\d*,\d+)")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?")


class ColumnValues(ABC):
    """A column of a table or of a frame: numbers, text or dates."""

    name: str
    kind: str  # "number", "text" or "date"
    declared = False  # whether the column's type is categorical
    blank: Collection[str] = ()  # texts that mean a missing value
    order: Sequence[str] = ()  # the column's own order of its levels; levels without an order are sorted
    truth = False  # whether a file's values are true and false, which count as numbers

    @abstractmethod
    def numbers(self) -> Array:
        """Values as floats, NaN where missing."""

    @abstractmethod
    def text(self) -> tuple[NDArray[np.int32], list[str]]:
        """Position of each value among the distinct texts (−1 if missing), and these texts."""


@dataclass(frozen=True)
class ColumnSchema:
    """One column of features: numbers, or a category that becomes one column of 0 and 1 per level.

    Attributes
    ----------
    name : str
        Name of the column.
    categories : tuple of str or None
        Levels seen in training, sorted unless they have an order; None for numbers. If there are two levels, only the
        second gets a column.
    fill : tuple of float
        Replacements of missing values: the means of the encoded columns in training, or zeros if an indicator marks
        that the category is missing. Empty if missing values are refused.
    indicator : bool
        Whether a further column marks the rows with missing values.
    """

    name: str
    categories: tuple[str, ...] | None
    fill: tuple[float, ...] = ()
    indicator: bool = False

    @property
    def levels(self) -> tuple[str, ...]:
        """The categories with an encoded column."""
        if self.categories is None:
            return ()
        return self.categories[1:] if len(self.categories) == 2 else self.categories

    @property
    def width(self) -> int:
        """Number of encoded columns, without the indicator of missing values."""
        return 1 if self.categories is None else len(self.levels)

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns, without the indicator of missing values."""
        return [self.name] if self.categories is None else [f"{self.name}={level}" for level in self.levels]

    def encode(self, column: ColumnValues) -> Array:
        """Values of shape (N, width), with NaN for missing ones and zeros for categories that training did not have."""
        if self.categories is None:
            return numbers_of(column)[:, None]
        codes, found = column.text()
        place = {level: k for k, level in enumerate(self.categories)}
        # 1, 1.0 and 01 are the same number: one table may hold codes as text and another one as numbers.
        numbers = {float(level): k for level, k in place.items() if is_number(level)}
        place = {n: numbers[float(n)] for n in found if is_number(n) and float(n) in numbers} | place
        strange = [level for level in found if level not in place and level not in column.blank]
        if strange:
            warn(
                f"Column {self.name!r} holds {listing(strange)}, not seen in training; these rows count as none of "
                f"{listing(self.levels)}. Fit again with rows that have them."
            )
        missing, other = -1, len(self.categories)
        places = [missing if level in column.blank else place.get(level, other) for level in found]
        category = np.asarray([*places, missing], dtype=np.int64)[codes]
        indicators = (category[:, None] == np.arange(len(self.categories))).astype(float)
        indicators[category == missing] = np.nan
        return indicators[:, len(self.categories) - len(self.levels) :]

    def with_fill(self, values: Array, indicator: bool) -> ColumnSchema:
        """Set the fill to the means of encoded training values; a column without values gets zeros."""
        gaps = np.isnan(values[:, 0])
        marked = indicator and bool(gaps.any() and not gaps.all())
        own_level = marked and self.categories is not None  # The indicator acts as a level of its own.
        fill = np.zeros(values.shape[1]) if own_level or gaps.all() else values[~gaps].mean(axis=0)
        return replace(self, fill=tuple(fill.tolist()), indicator=marked)


def learn_column(column: ColumnValues, declared: bool = False) -> ColumnSchema:
    """Learn whether a training column holds numbers or categories, and which; dates and free text raise.

    A column is a category if the user declares it one (``declared``) or if its type is categorical. A column of text is
    a category too, with three exceptions: text that consists of numbers is read as numbers, numbers with separators
    raise, and text that is mostly numbers raises unless it has few levels, because it is most likely a typing error.
    """
    name, declared = column.name, declared or column.declared
    if column.kind == "number" and not declared:
        return ColumnSchema(name, None)
    codes, found = (np.empty(0, np.int32), list[str]()) if column.kind == "date" else column.text()
    levels = [level for level in found if level not in column.blank]
    if column.kind == "date" or (levels and not declared and all(_DATE.fullmatch(s.strip()) for s in levels[:50])):
        raise DataError(
            f"Column {name!r} holds dates, which cannot be features; leave it out (X.drop(columns={name!r})), or "
            "replace it by numbers that may matter: the year, the month of the year as a category, days since a first "
            "day."
        )
    declaration = f"categorical_features=[{name!r}]"
    offered = "" if len(levels) > MOST_CATEGORIES else f" If these are codes, give {declaration}."
    few = len(levels) <= min(_FEW_LEVELS, len(codes) // _ROWS_PER_LEVEL)
    mixed = "" if declared else reject_mixed(f"Column {name!r}", levels, few, offered)
    if mixed:
        warn(
            f"{mixed}, and is taken for a category of {len(levels)} levels; if it should be numbers, correct the text. "
            f"{declaration} ends this note."
        )
    if len(levels) > MOST_CATEGORIES:
        raise DataError(
            f"Column {name!r} holds {len(levels)} different {column.kind}s (for example {levels[0]!r}); at most "
            f"{MOST_CATEGORIES} become categories. Leave it out (X.drop(columns={name!r})), group its values, or, if "
            "it names the tasks, give task_column."
        )
    rank = {level: place for place, level in enumerate(column.order)}
    return ColumnSchema(name, tuple(sorted(levels, key=lambda level: (rank.get(level, len(rank)), level))))


def encoded_names(columns: Sequence[ColumnSchema]) -> list[str]:
    """Names of all encoded columns; the indicators of missing values come last."""
    names = [name for column in columns for name in column.encoded_names]
    return names + [f"{column.name} missing" for column in columns if column.indicator]


def column_of(columns: Sequence[ColumnSchema]) -> Index:
    """For each encoded column, the number of the column from which it is made."""
    widths = [column.width for column in columns]
    marked = [j for j, column in enumerate(columns) if column.indicator]
    return np.concatenate([np.repeat(np.arange(len(widths)), widths), marked]).astype(np.int64)


def reject_mixed(what: str, levels: list[str], few: bool = False, codes: str = "") -> str:
    """Raise if texts are numbers with separators, or mostly numbers unless the levels are few.

    If some texts are numbers and some are not, return the beginning of a sentence for a warning, else an empty string.
    """
    text = [level for level in levels if not is_number(level)]
    if text and all(_SEPARATED.fullmatch(level.strip()) for level in text):
        raise DataError(
            f"{what} holds numbers with separators (for example {text[0]!r}), which read as text; remove the "
            "thousands separators and write decimals with a point, as in 1234.5 (pandas.read_csv has options thousands "
            f"and decimal); if they are labels, write them without commas.{codes}"
        )
    if not 0 < len(text) < len(levels):
        return ""
    mixed = f"{what} holds numbers and text (for example {next(filter(is_number, levels))!r} and {text[0]!r})"
    if len(text) < len(levels) / 2 and not few:
        raise DataError(f"{mixed}; correct the text or leave it empty, which counts as missing.{codes}")
    return mixed


def numbers_of(column: ColumnValues) -> Array:
    """The numbers of a column that was numeric in training, with NaN for missing values."""
    if column.kind != "number":
        codes, levels = column.text()
        odd = next((level for level in levels if level not in column.blank and not is_number(level)), None)
        if odd is not None:
            raise DataError(
                f"Column {column.name!r} holds {odd!r}; it was numeric in training. Give numbers, or leave it empty."
            )
        known = [float("nan") if level in column.blank else float(level) for level in levels]
        return np.asarray([*known, np.nan])[codes]
    values = column.numbers()
    infinite = np.isinf(values)
    if infinite.any():
        raise DataError(
            f"Column {column.name!r} holds {int(infinite.sum())} infinite values (first: row "
            f"{int(np.argmax(infinite)) + 1}); correct them or leave them empty, which counts as missing."
        )
    return values


class FrameColumn(ColumnValues):
    """A column of a pandas or polars frame, or of an array; the texts in ``blank`` mean missing values."""

    def __init__(self, name: object, series: Series, blank: Collection[str] = ()) -> None:
        self.name, self.blank = str(name), blank
        self._series = series
        self._objects: list[str | Real | None] | None = None
        self.kind = self._kind()

    def _kind(self) -> str:
        dtype = self._series.dtype
        kind, given = getattr(dtype, "kind", "O"), str(dtype)
        # Types of polars have two methods, is_numeric and is_temporal, instead of a kind.
        numeric, temporal = (getattr(dtype, f"is_{what}", bool)() for what in ("numeric", "temporal"))
        if kind in "biuf" or numeric or given in ("Boolean", "Null"):
            return "number"
        if kind in "mM" or temporal or given.startswith("period"):
            return "date"
        objects = self._series.tolist() if hasattr(self._series, "tolist") else self._series.to_list()
        self._objects = [None if absent(value) else value for value in objects]
        self.declared = given.startswith(("category", "dictionary", "Categorical", "Enum"))
        if self.declared:
            if getattr(dtype, "ordered", given.startswith("Enum")):
                self.order = [str(level) for level in dtype.categories]
            return "text"  # Levels of any type become text, such as dates and the intervals of pandas.cut.
        known = [value for value in self._objects if value is not None]
        if any(isinstance(value, date | datetime | timedelta) for value in known):
            return "date"
        odd = next((value for value in known if not isinstance(value, str | Real)), None)
        if odd is not None:
            raise DataError(
                f"Column {self.name!r} holds {type(odd).__name__} objects, which are neither numbers nor text nor "
                "truth values; convert them or leave the column out."
            )
        numeric = all(isinstance(value, Real) or is_number(value) or value in self.blank for value in known)
        return "number" if numeric else "text"

    def numbers(self) -> Array:
        """Values as floats, NaN where missing."""
        if self._objects is not None:
            return np.asarray(
                [np.nan if value is None or value in self.blank else float(value) for value in self._objects]
            )
        if hasattr(self._series, "iloc"):
            return np.asarray(self._series.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(self._series, dtype=np.float64)  # an array, or polars, which gives NaN for nulls

    def text(self) -> tuple[NDArray[np.int32], list[str]]:
        """Position of each value among the distinct texts (−1 if missing), and these texts."""
        place: dict[str, int] = {}
        objects = self._objects
        if objects is None:
            objects = [None if value != value else f"{value:.15g}" for value in self.numbers().tolist()]
        codes = [-1 if value is None else place.setdefault(str(value), len(place)) for value in objects]
        return np.asarray(codes, dtype=np.int32), list(place)


@dataclass(frozen=True, eq=False)
class FeatureEncoder:
    """The columns of a training X, from which later inputs get the same features.

    Attributes
    ----------
    columns : tuple of ColumnSchema
        All columns, in order.
    missing : {"error", "indicator"}
        "error" refuses missing values. "indicator" replaces them by their column's mean, and marks them by a further
        column if the training column had some.
    """

    columns: tuple[ColumnSchema, ...]
    missing: str = field(default="error", metadata={"words": ("error", "indicator")})

    @property
    def has_categories(self) -> bool:
        """Whether at least one column is a category."""
        return any(column.categories is not None for column in self.columns)

    @classmethod
    def learn(
        cls, given: Sequence[ColumnValues], missing: str, categorical: str | Collection[str | int] | None = None
    ) -> FeatureEncoder:
        """Learn an encoder; columns of text are categories, and so are those listed in ``categorical``.

        The list holds names or positions of columns. With ``missing`` "mean" or "indicator", missing values will be
        replaced by the means of these columns; "indicator" also marks them.
        """
        declared = _places(categorical, [column.name for column in given])
        columns = [learn_column(column, j in declared) for j, column in enumerate(given)]
        if missing in ("mean", "indicator"):
            pairs = zip(columns, given, strict=True)
            columns = [schema.with_fill(schema.encode(column), missing == "indicator") for schema, column in pairs]
        names = encoded_names(columns)
        if len(set(names)) < len(names):
            twice = next(name for k, name in enumerate(names) if name in names[:k])
            raise DataError(f"Two features would both be named {twice!r}; rename one of the columns.")
        return cls(tuple(columns), missing)

    def encode(self, given: Sequence[ColumnValues]) -> Array:
        """Encode columns side by side; missing values are filled and marked, or refused.

        If some column is a category, the columns are matched by name.
        """
        known, by_name = [column.name for column in self.columns], {column.name: column for column in given}
        if self.has_categories:
            lost = [name for name in known if name not in by_name]
            more = [name for name in by_name if name not in known]
            problems = [f"lacks the columns {listing(lost)}"] if lost else []
            problems += [f"has the columns {listing(more)}, which were not in training"] if more else []
            if problems:
                raise DataError(
                    f"X {' and '.join(problems)}; give those of training, {listing(known)}: this model was fitted to a "
                    "frame with columns of categories."
                )
            given = [by_name[name] for name in known]
        values, gaps = encode_columns(self.columns, given)
        if self.missing == "error":
            refuse_missing(gaps)
        return values


def encode_columns(
    columns: Sequence[ColumnSchema], given: Iterable[ColumnValues], rows: Index | None = None
) -> tuple[Array, dict[str, Mask]]:
    """Encode columns side by side, and return a mask of the missing values of each column.

    Missing values are filled and marked as the schemas prescribe.

    Parameters
    ----------
    columns : sequence of ColumnSchema
        Schemas of the columns.
    given : iterable of ColumnValues
        The columns, which a generator may make one at a time.
    rows : ndarray of int, optional
        Rows of the result, in this order; the masks have the same order.
    """
    values, gaps, place = np.empty((0, 0)), {}, 0
    for schema, column in zip(columns, given, strict=True):
        part = schema.encode(column)
        part = part if rows is None else part[rows]
        if not place:
            values = np.empty((len(part), len(encoded_names(columns))))
        gap = gaps[schema.name] = np.isnan(part[:, 0])
        if schema.fill and gap.any():
            part = np.where(gap[:, None], schema.fill, part)
        values[:, place : place + part.shape[1]] = part
        place += part.shape[1]
    for schema in columns:
        if schema.indicator:
            values[:, place] = gaps[schema.name]
            place += 1
    return values, gaps


def _columns_of(X: Array | DataFrame, names: Labels | None = None) -> list[FrameColumn]:
    """The columns of a frame, or the entries of an array's last axis."""
    if is_frame(X):
        return [FrameColumn(name, X[name]) for name in X.columns]
    flat = X.reshape(-1, X.shape[-1])
    return [FrameColumn(*column) for column in zip(feature_labels(names, flat.shape[1]), flat.T, strict=True)]


def _places(categorical: str | Collection[str | int] | None, names: list[str]) -> set[int]:
    """Positions of the columns that the user declared categories by name or by position."""
    declared = [] if categorical is None else [categorical] if isinstance(categorical, str) else list(categorical)
    unknown = [entry for entry in declared if entry not in names and not is_place(entry, len(names))]
    if unknown:
        allowed = f"give names or places of columns of X, which are {listing(names)}"
        raise refused("categorical_features", categorical, allowed, "A column of tasks is not counted.")
    return {names.index(entry) if entry in names else int(entry) % len(names) for entry in declared}


def refuse_missing(gaps: dict[str, Mask]) -> None:
    """Raise if values are missing, with the columns, their first such row and a remedy."""
    found = [f"{name!r} ({gap.sum()} rows, first: row {np.argmax(gap)})" for name, gap in gaps.items() if gap.any()]
    if found:
        more = f", … ({len(found)} columns in all)" if len(found) > 8 else ""
        raise DataError(
            f"Input X contains NaN or other missing values in {', '.join(found[:8])}{more}; complete them or drop "
            "these rows. MSSL estimators take missing='indicator', which fills them with the column's mean and marks "
            "them."
        )


@dataclass(frozen=True, eq=False)
class Features:
    """Encoded and checked features in the order of the input, before they are sorted by task.

    Attributes
    ----------
    values : ndarray of shape (N, d) or (n, K, d), or csr_array of shape (N, d)
        Finite numbers.
    tasks : ndarray of shape (N,), CodedTasks or None
        Task id of each row; None if the input has no task ids.
    feature_names : ndarray of str or None
        Names of the columns without the task column; None if the input has no names.
    encoder : FeatureEncoder or None
        The encoder that made numbers of the columns; None if all columns were numbers.
    dtype : dtype
        float32 if all columns of the input were float32, else float64. ``values`` are always float64.
    """

    values: Matrix
    tasks: Labels | CodedTasks | None = None
    feature_names: Labels | None = None
    encoder: FeatureEncoder | None = None
    dtype: DTypeLike = np.float64

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return tuple(self.values.shape)


def read_features(
    X: Rows | Features,
    task_column: Hashable | None = None,
    tasks: ArrayLike | None = None,
    *,
    encoder: FeatureEncoder | None = None,
    missing: str = "error",
    categorical: str | Collection[str | int] | None = None,
    later: bool = False,
) -> Features:
    """Check X in any layout, split off the task column and encode the other columns.

    Parameters
    ----------
    X : array, sparse array, frame or Features
        Input in any layout; Features are returned unchanged.
    task_column, tasks
        The column of task ids, or the ids themselves. If both are given, ``tasks`` takes precedence, and the column is
        still removed from X.
    encoder : FeatureEncoder, optional
        Encoder of an earlier X. Without it, a new one is learned if columns are not numeric or values may be missing.
    missing : {"error", "indicator"}
        Treatment of missing values by a new encoder.
    categorical : sequence of str or int, optional
        Columns that a new encoder treats as categories, even if they hold numbers.
    later : bool
        Whether the model is already fitted. Columns of text then do not become new categories.
    """
    check_choice("missing", missing, ("error", "indicator"))
    if isinstance(X, Features):
        return X if tasks is None else replace(X, tasks=read_labels(tasks))
    if hasattr(X, "collect") and not hasattr(X, "shape"):
        raise DataError("X is a lazy frame that holds no values yet; call .collect() on it first.")
    X, labels, names = split_task_column(as_table(in_memory("X", X)), task_column, optional=tasks is not None)
    kinds = list(X.dtypes) if is_frame(X) else [getattr(X, "dtype", None)]
    dtype = np.float32 if {str(kind).lower() for kind in kinds} == {"float32"} else np.float64
    plain = all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in kinds)
    columns = _columns_of(X) if is_frame(X) and not plain else []
    text = any(column.kind != "number" for column in columns)  # Categories, text and dates need an encoder.
    if encoder.has_categories if encoder else not later and (categorical is not None or text):
        if sparse.issparse(X):
            raise refused("X", "sparse", "categories need a dense X or a frame", "Leave out categorical_features.")
        given, shape = columns or _columns_of(X if is_frame(X) else as_given(X)), as_rows(X).shape
    else:  # Numbers may also be given as text.
        stacked = np.column_stack([numbers_of(column) for column in columns]) if columns else X
        values = _numbers(stacked if sparse.issparse(stacked) else as_given(stacked))
        fits = missing == "indicator" if encoder is None else len(encoder.columns) == values.shape[-1]
        given, shape = _columns_of(values, names) if fits and not sparse.issparse(values) else [], values.shape
    if given:
        encoder = FeatureEncoder.learn(given, missing, categorical) if encoder is None else encoder
        values = encoder.encode(given)
        values = values.reshape(*shape[:-1], values.shape[1])
    elif not sparse.issparse(values) and not np.isfinite(values.sum()):
        # Values are missing, or only their sum overflows.
        gaps = np.isnan(values.reshape(-1, shape[-1])).T
        refuse_missing(dict(zip(feature_labels(names, len(gaps)), gaps, strict=True)))
    if tasks is not None:
        labels = read_labels(tasks, n=values.shape[0] if values.ndim == 2 else None)
    if encoder is not None and (names is not None or encoder.has_categories):
        names = np.asarray(encoded_names(encoder.columns), dtype=object)
    return Features(values, labels, names, encoder, dtype)


def _numbers(X: Matrix) -> Matrix:
    """X as floats; infinite values raise, and so do missing values of a sparse X."""
    kind, shape = X.dtype.kind, X.shape
    if kind in "mM":
        raise DataError(f"X holds times ({X.dtype}); convert them to numbers, such as days since a date.")
    if kind == "c":
        raise DataError(
            "Complex data not supported: X holds complex numbers; give real ones, such as real and imaginary parts as "
            "columns of their own."
        )
    if len(shape) < 2:
        raise DataError(
            f"Expected 2D array, got {len(shape)}D array of shape {shape}; give X of shape (rows, features). Reshape "
            "your data: X.reshape(-1, 1) is a single feature."
        )
    if len(shape) > 3:
        raise LayoutError(f"X has {len(shape)} dimensions; give (rows, features) or (rows, tasks, features).")
    if 0 in shape:
        problem = f"Found array with 0 {'feature' if shape[0] else 'sample'}(s) (shape={shape})"
        raise DataError(f"{problem} while a minimum of 1 is required; give at least one row and one feature.")
    try:
        values = sparse.csr_array(X, dtype=np.float64) if sparse.issparse(X) else np.asarray(X, np.float64, order="C")
    except (ValueError, TypeError, OverflowError) as error:
        # Scikit-learn's protocol requires TypeError.
        refusal = TypeError if isinstance(error, TypeError) else DataError
        columns = enumerate(X.reshape(-1, shape[-1]).T.tolist())
        j, entry = next((j, entry) for j, column in columns for entry in column if not is_number(entry))
        raise refusal(
            f"{error}: column {j} holds {listing([entry])}; give numbers, or a frame (pandas, polars), whose columns "
            "of text become categories."
        ) from error
    given = np.asarray(values.data if sparse.issparse(values) else values)
    with np.errstate(over="ignore"):
        infinite = not np.isfinite(given.sum()) and bool(np.isinf(given).any())
    if infinite or (sparse.issparse(values) and np.isnan(given).any()):
        what = "infinity" if infinite else "NaN"
        raise DataError(f"Input X contains {what}; give finite numbers, or leave out such rows.")
    return values
