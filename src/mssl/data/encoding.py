"""Columns as numbers: categories become columns of 0 and 1, missing values their column's mean and a mark.

A :class:`ColumnSchema` is what one column was in training. Frames that are given to an estimator and tables that the
command line reads are encoded by the same rules.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
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

# A text column in which most levels are numbers is a category all the same where it has few levels beside its rows.
_FEW_LEVELS, _ROWS_PER_LEVEL = 30, 5
MOST_CATEGORIES = 100  # levels of a text column: each becomes a feature, and with more it is most likely free text
# Texts that a reader takes for numbers and a program does not: 1,234.5 and 1 234,5 and 1'234 and 1.234,5 and 0,5.
_SEPARATED = re.compile(r"[-+]?(\d{1,3}([,'\s]\d{3})+([.,]\d+)?|\d{1,3}(\.\d{3})+,\d+|\d*,\d+)")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?")


class ColumnValues(ABC):
    """A column of a table or of a frame: numbers, text or dates."""

    name: str
    kind: str  # "number", "text" or "date"
    declared = False  # whether its type says that it is a category
    blank: Collection[str] = ()  # texts that stand for a missing value
    order: Sequence[str] = ()  # of its levels, where the column says; else they are sorted
    truth = False  # whether the values of a file are true and false, which count as numbers

    @abstractmethod
    def numbers(self) -> Array:
        """Values as floats, NaN where missing."""

    @abstractmethod
    def text(self) -> tuple[NDArray[np.int32], list[str]]:
        """Place of each value (−1 where missing) among the distinct texts, and these texts."""


@dataclass(frozen=True)
class ColumnSchema:
    """One column of features: a number, or a category that becomes one column of 0 and 1 per level.

    Attributes
    ----------
    name : str
        Name of the column.
    categories : tuple of str or None
        Levels seen in training, sorted unless they have an order; None for numbers. Of two levels only the second gets
        a column.
    fill : tuple of float
        What stands in for missing values: the mean of each encoded column in training, or none of the levels where a
        mark says that the category is missing; empty where they are refused.
    indicator : bool
        Whether a further column says where the value was missing.
    """

    name: str
    categories: tuple[str, ...] | None
    fill: tuple[float, ...] = ()
    indicator: bool = False

    @property
    def levels(self) -> tuple[str, ...]:
        """The categories that have a column of their own."""
        if self.categories is None:
            return ()
        return self.categories[1:] if len(self.categories) == 2 else self.categories

    @property
    def width(self) -> int:
        """Number of encoded columns, without that of missing values."""
        return 1 if self.categories is None else len(self.levels)

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns, without that of missing values."""
        return [self.name] if self.categories is None else [f"{self.name}={level}" for level in self.levels]

    def encode(self, column: ColumnValues) -> Array:
        """Values of shape (N, width), NaN where missing; a category that was not seen in training is all zeros."""
        if self.categories is None:
            return numbers_of(column)[:, None]
        codes, found = column.text()
        place = {level: k for k, level in enumerate(self.categories)}
        # 1, 1.0 and 01 are one number: codes may be read as text here and as numbers there.
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
        """The same with the means of encoded training values; those of a column without any value are zero."""
        gaps = np.isnan(values[:, 0])
        fill = values[~gaps].mean(axis=0) if not gaps.all() else np.zeros(values.shape[1])
        marked = indicator and bool(gaps.any() and not gaps.all())
        if marked and self.categories is not None:
            fill = np.zeros(values.shape[1])  # none of the levels: the mark is a level of its own
        return replace(self, fill=tuple(fill.tolist()), indicator=marked)


def learn_column(column: ColumnValues, declared: bool = False) -> ColumnSchema:
    """Whether a training column is a number or which categories it has; dates and free text raise.

    A column is a category where its user (``declared``) or its type says so. Text is a category unless all of it reads
    as numbers, or most of its levels do (a slip, most likely, unless levels are few); numbers with separators raise.
    """
    if column.kind == "date":
        raise DataError(_date_advice(column.name))
    declared = declared or column.declared
    if column.kind != "text" and not declared:
        return ColumnSchema(column.name, None)
    codes, found = column.text()
    levels = [level for level in found if level not in column.blank]
    if not declared:
        _check_text(column.name, levels, len(codes))
    if len(levels) > MOST_CATEGORIES:
        raise DataError(
            f"Column {column.name!r} holds {len(levels)} different {column.kind}s (for example {levels[0]!r}); at most "
            f"{MOST_CATEGORIES} become categories. Leave it out (X.drop(columns={column.name!r})), group its values, "
            "or, if it names the tasks, give task_column."
        )
    rank = {level: place for place, level in enumerate(column.order)}
    return ColumnSchema(column.name, tuple(sorted(levels, key=lambda level: (rank.get(level, len(rank)), level))))


def check_names(columns: Sequence[ColumnSchema]) -> None:
    """Raise where two encoded columns would have one name."""
    names = encoded_names(columns)
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise DataError(f"Two features would both be named {twice!r}; rename one of the columns.")


def encoded_names(columns: Sequence[ColumnSchema]) -> list[str]:
    """Names of all encoded columns; those of missing values come last."""
    names = [name for column in columns for name in column.encoded_names]
    return names + [f"{column.name} missing" for column in columns if column.indicator]


def column_of(columns: Sequence[ColumnSchema]) -> Index:
    """For each encoded column the column that it is made of."""
    widths = [column.width for column in columns]
    marked = [j for j, column in enumerate(columns) if column.indicator]
    return np.concatenate([np.repeat(np.arange(len(widths)), widths), marked]).astype(np.int64)


def _check_text(name: str, levels: list[str], n_rows: int) -> None:
    """Raise where a column of text is likelier to be dates, or numbers that are ill written, than a category."""
    offered = "" if len(levels) > MOST_CATEGORIES else " If these are codes, give {}."
    declare = f"categorical_features=[{name!r}]"
    few = len(levels) <= min(_FEW_LEVELS, n_rows // _ROWS_PER_LEVEL)
    what = reject_mixed(f"Column {name!r}", levels, few, offered.format(declare))
    if what:
        warn(
            f"{what}, and is taken for a category of {len(levels)} levels; if it should be numbers, correct the text. "
            f"{declare} ends this note."
        )
    elif levels and all(_DATE.fullmatch(level.strip()) for level in levels[:50]):
        raise DataError(_date_advice(name))


def _date_advice(name: str) -> str:
    return (
        f"Column {name!r} holds dates, which are no features as they stand; leave it out (X.drop(columns={name!r})), "
        "or put numbers in its place that could matter: the year, the month of the year as a category, days since a "
        "first day."
    )


def reject_mixed(what: str, levels: list[str], few: bool = False, codes: str = "") -> str:
    """Raise where texts are numbers with separators, or mostly numbers and not few; a sentence's begin if some are."""
    text = [level for level in levels if not is_number(level)]
    if text and all(_SEPARATED.fullmatch(level.strip()) for level in text):
        raise DataError(
            f"{what} holds numbers with separators (for example {text[0]!r}), which read as text; remove the "
            "thousands separators and write decimals with a point, as in 1234.5 (pandas.read_csv has options thousands "
            f"and decimal); if they are labels, write them without commas.{codes}"
        )
    if not 0 < len(text) < len(levels):
        return ""
    told = f"{what} holds numbers and text (for example {next(filter(is_number, levels))!r} and {text[0]!r})"
    if len(text) < len(levels) / 2 and not few:
        raise DataError(f"{told}; correct the text or leave it empty, which counts as missing.{codes}")
    return told


def numbers_of(column: ColumnValues) -> Array:
    """A column that was numeric in training as numbers, NaN where missing."""
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
    """A column of a pandas or polars frame, or of an array; some texts may stand for missing values (``blank``)."""

    def __init__(self, name: object, series: Series, blank: Collection[str] = ()) -> None:
        self.name, self.blank = str(name), blank
        self._series = series
        self._objects: list[str | Real | None] | None = None
        self.kind = self._kind()

    def _kind(self) -> str:
        dtype = self._series.dtype
        kind, given = getattr(dtype, "kind", "O"), str(dtype)
        # Types of polars have no kind, and answer two questions instead.
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
            return "text"  # whatever its levels are: dates, intervals of pandas.cut
        known = [value for value in self._objects if value is not None]
        if any(isinstance(value, date | datetime | timedelta) for value in known):
            return "date"
        odd = next((value for value in known if not isinstance(value, str | Real)), None)
        if odd is not None:
            raise DataError(
                f"Column {self.name!r} holds {type(odd).__name__} objects, which are no numbers, texts or truth "
                "values; convert them or leave the column out."
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
        return np.asarray(self._series, dtype=np.float64)  # of an array or of polars, which has NaN for nulls

    def text(self) -> tuple[NDArray[np.int32], list[str]]:
        """Place of each value (−1 where missing) among the distinct texts, and these texts."""
        place: dict[str, int] = {}
        objects = self._objects if self._objects is not None else [_shown(value) for value in self.numbers().tolist()]
        codes = [-1 if value is None else place.setdefault(str(value), len(place)) for value in objects]
        return np.asarray(codes, dtype=np.int32), list(place)


def _shown(value: float) -> str | None:
    """A number as the text that it has where it is a category."""
    return None if value != value else f"{value:.15g}"


@dataclass(frozen=True, eq=False)
class FeatureEncoder:
    """What the columns of a training X are, so that later ones become the same features.

    Attributes
    ----------
    columns : tuple of ColumnSchema
        All columns, in order.
    missing : {"error", "indicator"}
        Whether missing values are refused, or filled with their column's mean and marked by a further column where
        there were some in training.
    """

    columns: tuple[ColumnSchema, ...]
    missing: str = "error"

    @property
    def has_categories(self) -> bool:
        """Whether some column is not a number."""
        return any(column.categories is not None for column in self.columns)

    @classmethod
    def learn(
        cls, given: Sequence[ColumnValues], missing: str, categorical: str | Collection[str | int] | None = None
    ) -> FeatureEncoder:
        """What columns are; those of text are categories, as are those of a name or a place in ``categorical``.

        Missing values are filled with the means of these columns, which ``missing`` says: "mean", or "indicator", with
        a mark.
        """
        declared = _places(categorical, [column.name for column in given])
        columns = [learn_column(column, j in declared) for j, column in enumerate(given)]
        if missing in ("mean", "indicator"):
            marked = missing == "indicator"
            pairs = zip(columns, given, strict=True)
            columns = [schema.with_fill(schema.encode(column), marked) for schema, column in pairs]
        check_names(columns)
        return cls(tuple(columns), missing)

    def encode(self, given: Sequence[ColumnValues]) -> Array:
        """The encoded values of the columns of training, side by side; missing ones are filled and marked, or refused.

        With categories, columns are found by name.
        """
        known, by_name = [column.name for column in self.columns], {column.name: column for column in given}
        if self.has_categories:
            lost = [name for name in known if name not in by_name]
            more = [name for name in by_name if name not in known]
            if lost or more:
                lacks = f" lacks the columns {listing(lost)}" if lost else ""
                has = f" has the columns {listing(more)}, which were not in training" if more else ""
                told = " and".join(filter(None, (lacks, has)))
                raise DataError(
                    f"X{told}; give those of training, {listing(known)}: this model was fitted to a frame with columns "
                    "of categories."
                )
            given = [by_name[name] for name in known]
        values, gaps = encode_columns(self.columns, given)
        if self.missing == "error":
            refuse_missing(gaps)
        return values


def encode_columns(
    columns: Sequence[ColumnSchema], given: Iterable[ColumnValues], rows: Index | None = None
) -> tuple[Array, dict[str, Mask]]:
    """Encoded columns side by side, filled and marked where their schemas say so, and where each lacks values.

    Parameters
    ----------
    columns : sequence of ColumnSchema
        What the columns were in training.
    given : iterable of ColumnValues
        The columns, which may be made one at a time.
    rows : ndarray of int, optional
        The order of the rows in the answer; the places of gaps are in that order too.
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
    """The columns of a frame, or the last axis of an array."""
    if is_frame(X):
        return [FrameColumn(name, X[name]) for name in X.columns]
    flat = X.reshape(-1, X.shape[-1])
    return [FrameColumn(*column) for column in zip(feature_labels(names, flat.shape[1]), flat.T, strict=True)]


def _places(categorical: str | Collection[str | int] | None, names: list[str]) -> set[int]:
    """Places of the columns that are declared to be categories, by name or by place."""
    declared = [] if categorical is None else [categorical] if isinstance(categorical, str) else list(categorical)
    unknown = [entry for entry in declared if entry not in names and not is_place(entry, len(names))]
    if unknown:
        allowed = f"give names or places of columns of X, which are {listing(names)}"
        raise refused("categorical_features", categorical, allowed, "A column of tasks is not counted.")
    return {names.index(entry) if entry in names else int(entry) % len(names) for entry in declared}


def refuse_missing(gaps: dict[str, Mask]) -> None:
    """Raise where values are missing, and name the columns, the rows and what can be done."""
    counts = {name: int(gap.sum()) for name, gap in gaps.items() if gap.any()}
    if not counts:
        return
    shown = ", ".join(
        f"{name!r} ({count} rows, first: row {int(np.argmax(gaps[name]))})" for name, count in list(counts.items())[:8]
    )
    more = f", … ({len(counts)} columns in all)" if len(counts) > 8 else ""
    raise DataError(
        f"Input X contains NaN or other missing values in {shown}{more}; complete them or drop these rows. "
        "MSSL estimators take missing='indicator', which fills them with the column's mean and marks them."
    )


@dataclass(frozen=True, eq=False)
class Features:
    """Features as they came, encoded and checked, before they are sorted by task.

    Attributes
    ----------
    values : ndarray of shape (N, d) or (n, K, d), or csr_array of shape (N, d)
        Finite numbers.
    tasks : ndarray of shape (N,), CodedTasks or None
        Task id of each row, where the input says.
    feature_names : ndarray of str or None
        Names of the columns, where the input has them (the task column left out).
    encoder : FeatureEncoder or None
        How the columns became numbers; None where they are nothing else.
    dtype : dtype
        float32 where all of them came so, else float64, as ``values`` always are.
    """

    values: Matrix
    tasks: Labels | CodedTasks | None = None
    feature_names: Labels | None = None
    encoder: FeatureEncoder | None = None
    dtype: DTypeLike = np.float64

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the values."""
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
    """Check X in any layout, split off the task column and encode the other ones.

    Parameters
    ----------
    X : array, sparse array, frame or Features
        In any layout; features that were read before are taken as they are.
    task_column, tasks
        Where the task ids are. An explicit ``tasks`` overrides the column's content; the column, where there, is still
        left out of X.
    encoder : FeatureEncoder, optional
        Of an earlier X; without it one is learned where columns are no numbers or values may be missing.
    missing : {"error", "indicator"}
        What a new encoder does about missing values.
    categorical : sequence of str or int, optional
        Columns that a new encoder takes for categories, whatever they hold.
    later : bool
        Whether X comes after the fit: columns of text are then no new categories.
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
    text = any(column.kind != "number" for column in columns)  # categories, text or dates; numbers need no encoder
    if encoder.has_categories if encoder else not later and (categorical is not None or text):
        if sparse.issparse(X):
            raise refused("X", "sparse", "categories need a dense X or a frame", "Leave out categorical_features.")
        given, shape = columns or _columns_of(X if is_frame(X) else as_given(X)), as_rows(X).shape
    else:  # numbers, which may have come as text
        stacked = np.column_stack([numbers_of(column) for column in columns]) if columns else X
        values = _numbers(stacked if sparse.issparse(stacked) else as_given(stacked))
        fits = missing == "indicator" if encoder is None else len(encoder.columns) == values.shape[-1]
        given, shape = _columns_of(values, names) if fits and not sparse.issparse(values) else [], values.shape
    if given:
        encoder = FeatureEncoder.learn(given, missing, categorical) if encoder is None else encoder
        values = encoder.encode(given)
        values = values.reshape(*shape[:-1], values.shape[1])
    elif not sparse.issparse(values) and not np.isfinite(values.sum()):  # sums beyond doubles are looked at in full
        gaps = np.isnan(values.reshape(-1, shape[-1])).T
        refuse_missing(dict(zip(feature_labels(names, len(gaps)), gaps, strict=True)))
    if tasks is not None:
        labels = read_labels(tasks, n=values.shape[0] if values.ndim == 2 else None)
    if encoder is not None and (names is not None or encoder.has_categories):
        names = np.asarray(encoded_names(encoder.columns), dtype=object)
    return Features(values, labels, names, encoder, dtype)


def _numbers(X: Matrix) -> Matrix:
    """X as floats, which may be missing where it is dense; infinite ones raise."""
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
        told = f"Found array with 0 {'feature' if shape[0] else 'sample'}(s) (shape={shape})"
        raise DataError(f"{told} while a minimum of 1 is required; give at least one row and one feature.")
    try:
        values = sparse.csr_array(X, dtype=np.float64) if sparse.issparse(X) else np.asarray(X, np.float64, order="C")
    except (ValueError, TypeError) as error:
        refusal = TypeError if isinstance(error, TypeError) else DataError  # scikit-learn's protocol asks for this
        raise refusal(f"{error}: {_not_numbers(X)}.") from error
    given = np.asarray(values.data if sparse.issparse(values) else values)
    with np.errstate(over="ignore"):
        infinite = not np.isfinite(given.sum()) and bool(np.isinf(given).any())
    if infinite or (sparse.issparse(values) and np.isnan(given).any()):
        what = "infinity" if infinite else "NaN"
        raise DataError(f"Input X contains {what}; give finite numbers, or leave out such rows.")
    return values


def _not_numbers(X: Matrix) -> str:
    """Which column of an array holds something else than numbers, for example what, and what to do."""
    for column, entries in enumerate(X.reshape(-1, X.shape[-1]).T):
        for entry in entries.tolist():
            try:
                float(entry)
            except (TypeError, ValueError):
                return (
                    f"column {column} holds {listing([entry])}; give numbers, or a frame (pandas, polars), whose "
                    "columns of text become categories"
                )
    return "give numbers"
