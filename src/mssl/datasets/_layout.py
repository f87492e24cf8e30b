"""One arrangement of tasks into the three layouts, for every loader and generator."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from mssl._validation import check_choice
from mssl.exceptions import LayoutError, require

LAYOUTS = ("long", "shared", "aligned")
MADE = "none needed: made by mssl"  # the licence of what is drawn


def names(word: str, count: int) -> np.ndarray:
    """Zero-padded names, so that sorting them keeps the order of the tasks."""
    width = len(str(count))
    return np.array([f"{word} {number:0{width}d}" for number in range(1, count + 1)])


def check_layout(layout: str, *, shared: bool, aligned: bool, as_frame: bool, what: str) -> None:
    """Refuse a layout that the rows of a data set do not allow, and say which one they do."""
    check_choice("layout", layout, LAYOUTS)
    if layout == "shared" and not shared:
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


def bunch(
    train: tuple[Any, ...],
    test: tuple[Any, ...] | None = None,
    *,
    layout: str,
    as_frame: bool,
    task_names: np.ndarray,
    feature_names: np.ndarray,
    target_name: str = "y",
    **known: Any,
) -> Bunch:
    """Tasks in a layout, with their names and what else is known of them.

    Parameters
    ----------
    train, test : (designs, targets) or (designs, targets, beside)
        One design and one target per task; ``beside`` are vectors with one entry per row of every task.
    layout : {"long", "shared", "aligned"}
        Already checked with :func:`check_layout`.
    as_frame : bool
        Tables of pandas instead of arrays; long tables get a column ``task``.
    task_names, feature_names : arrays of str
    target_name : str
        Name of the target's Series in the long layout.
    **known
        Further entries.
    """
    named = {"task_names": task_names, "feature_names": feature_names}
    how: dict[str, Any] = {"layout": layout, "as_frame": as_frame, "target_name": target_name, **named}
    testing = {} if test is None else {f"{key}_test": value for key, value in _arrange(*test, **how).items()}
    return Bunch(**_arrange(*train, **how), **testing, layout=layout, **named, **known)


def _arrange(
    designs: Sequence[Any],
    targets: Sequence[np.ndarray],
    beside: Mapping[str, np.ndarray] = MappingProxyType({}),
    *,
    layout: str,
    as_frame: bool,
    task_names: np.ndarray,
    feature_names: np.ndarray,
    target_name: str,
) -> dict[str, Any]:
    """``X``, ``y``, ``tasks`` (names per row in the long layout, else None) and what is beside them, in a layout."""
    if layout == "aligned":
        return {"X": np.stack(designs, axis=1), "y": np.stack(targets, axis=1), "tasks": None, **beside}
    if layout == "shared":
        X, y = np.array(designs[0]), np.stack(targets, axis=1)
        if as_frame:
            pandas: Any = require("pandas", "tables", "as_frame=True")
            X, y = pandas.DataFrame(X, columns=feature_names), pandas.DataFrame(y, columns=task_names)
        return {"X": X, "y": y, "tasks": None, **beside}
    tasks = np.repeat(task_names, [len(target) for target in targets])
    X = sparse.vstack(designs, format="csr") if sparse.issparse(designs[0]) else np.concatenate(designs)
    y = np.concatenate(targets)
    long = long_frame(X, y, tasks, feature_names, target_name) if as_frame else {"X": X, "y": y}
    return {**long, "tasks": tasks, **{name: np.tile(values, len(designs)) for name, values in beside.items()}}


def long_frame(X: Any, y: np.ndarray, tasks: np.ndarray, feature_names: np.ndarray, target_name: str) -> dict[str, Any]:
    """Long layout as a table with the column ``task`` first, and the target as a Series."""
    pandas: Any = require("pandas", "tables", "as_frame=True")
    if sparse.issparse(X):
        frame = pandas.DataFrame.sparse.from_spmatrix(X, columns=feature_names)
    else:
        frame = pandas.DataFrame(X, columns=feature_names)
    frame.insert(0, "task", tasks)
    return {"X": frame, "y": pandas.Series(y, name=target_name)}
