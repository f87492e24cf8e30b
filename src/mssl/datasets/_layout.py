"""One arrangement of tasks into the three layouts, for every loader and generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from mssl._typing import Labels
from mssl._validation import check_choice
from mssl.datasets._fetch import DatasetInfo
from mssl.exceptions import LayoutError, require

if TYPE_CHECKING:
    from pandas import DataFrame, Series

LAYOUTS = ("long", "shared", "aligned")
Rows: TypeAlias = "np.ndarray | sparse.csr_array"
Part: TypeAlias = "tuple[Sequence[Rows], Sequence[np.ndarray]] | tuple[Sequence[Rows], Sequence[np.ndarray], Beside]"
Beside: TypeAlias = Mapping[str, np.ndarray]


def made(generator: str, target: str = "y") -> DatasetInfo:
    """What the list of data sets would say of a generator."""
    source = f"mssl.datasets.{generator}"
    return DatasetInfo(generator, "", "none needed: made by mssl", source, "", target_column=target)


def names(word: str, count: int) -> Labels:
    """Zero-padded names, so that sorting them keeps the order of the tasks."""
    width = len(str(count))
    return np.array([f"{word} {number:0{width}d}" for number in range(1, count + 1)])


def calendar_from(first: str, count: int) -> np.ndarray:
    """Months in a row as datetime64[M]."""
    return np.datetime64(first, "M") + np.arange(count)


def by_month(X: np.ndarray, y: np.ndarray, months: np.ndarray) -> Part:
    """Aligned arrays as a design and a target per task, with the month of every row."""
    beside = {"months": months, "calendar": months.astype(int) % 12 + 1}
    return list(X.swapaxes(0, 1)), list(y.T), beside


def bunch(
    entry: DatasetInfo,
    train: Part,
    test: Part | None = None,
    *,
    text: str,
    layout: str,
    as_frame: bool,
    task_names: Labels | None = None,
    feature_names: Labels | None = None,
    occasions: bool = True,
    known: Mapping[str, object] = MappingProxyType({}),
) -> Bunch:
    """Tasks in a layout, with their names and further entries.

    Parameters
    ----------
    entry : DatasetInfo
        The registry's entry of the data set, or the result of :func:`made` for a generator.
    train, test : (designs, targets) or (designs, targets, beside)
        One design and one target per task; ``beside`` are vectors with one entry per row of every task.
    text : str
        Description of the rows.
    layout : {"long", "shared", "aligned"}
        "shared" needs one design for all tasks; "aligned" needs rows that belong together in all tasks.
    as_frame : bool
        Tables of pandas instead of arrays; long tables get a column ``task``.
    task_names, feature_names : arrays of str, optional
        By default "task 01" and "x 01" and so on.
    occasions : bool
        Whether row i of every task belongs to the same occasion, if the tasks have equally many rows.
    known : mapping
        Further entries.
    """
    task_names = names("task", len(train[0])) if task_names is None else task_names
    feature_names = names("x", train[0][0].shape[1]) if feature_names is None else feature_names
    parts = {"": train} if test is None else {"": train, "_test": test}
    for part in parts.values():
        _check_layout(layout, part, occasions, as_frame, f"the data set {entry.name!r}")
    frame = entry.target_column if as_frame else None
    rows = {
        f"{key}{suffix}": value
        for suffix, part in parts.items()
        for key, value in _arrange(part, layout, frame, task_names, feature_names).items()
    }
    text = f"{entry.title}.\n\n{text}\n\nReference: {entry.citation}" if entry.citation else text
    about = {"DESCR": text, "licence": entry.licence, "source": entry.source}
    return Bunch(**rows, layout=layout, task_names=task_names, feature_names=feature_names, **known, **about)


def _check_layout(layout: str, part: Part, occasions: bool, as_frame: bool, what: str) -> None:
    """Raise if the rows of a data set do not allow a layout, and name the layouts that they allow."""
    check_choice("layout", layout, LAYOUTS)
    aligned = occasions and len({len(target) for target in part[1]}) == 1
    if layout == "shared" and any(design is not part[0][0] for design in part[0]):
        raise LayoutError(
            f"layout is 'shared'; in {what} every task has rows of its own, and no X is common to all. "
            f"Use layout='long'{' or layout=' + repr('aligned') if aligned else ''}."
        )
    if layout == "aligned" and not aligned:
        raise LayoutError(
            f"layout is 'aligned'; {what} has no rows that belong together in all tasks. Use layout='long'."
        )
    if layout == "aligned" and as_frame:
        raise LayoutError(
            "as_frame is True; a frame cannot hold the aligned layout, whose X has three axes (rows, tasks, features). "
            "Use layout='long' for a table, or as_frame=False."
        )


def _arrange(
    part: Part, layout: str, frame: str | None, task_names: Labels, feature_names: Labels
) -> dict[str, Rows | DataFrame | Series | None]:
    """``X``, ``y``, ``tasks`` (names per row in the long layout, else None) and what is beside them, in a layout.

    With ``frame``, the name of the target, X and y are tables.
    """
    designs, targets, beside = (*part, {})[:3]
    tasks = None
    if layout == "long":
        X = sparse.vstack(designs, format="csr") if sparse.issparse(designs[0]) else np.concatenate(designs)
        y = np.concatenate(targets)
        tasks = np.repeat(task_names, [len(target) for target in targets])
        beside = {name: np.tile(values, len(designs)) for name, values in beside.items()}
    else:
        X = np.stack(designs, axis=1) if layout == "aligned" else np.array(designs[0])
        y = np.stack(targets, axis=1)
    if frame is not None:
        pandas = require("pandas", "tables", "as_frame=True")
        table = pandas.DataFrame.sparse.from_spmatrix if sparse.issparse(X) else pandas.DataFrame
        X = table(X, columns=feature_names)
        if tasks is not None:
            X.insert(0, "task", tasks)
        y = pandas.DataFrame(y, columns=task_names) if tasks is None else pandas.Series(y, name=frame)
    return {"X": X, "y": y, "tasks": tasks, **beside}
