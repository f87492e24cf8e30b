"""One arrangement of tasks into the three layouts, for every loader and generator."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from mssl._validation import check_choice
from mssl.exceptions import LayoutError, require

LAYOUTS = ("long", "shared", "aligned")


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


def arrange(
    designs: Sequence[Any],
    targets: Sequence[np.ndarray],
    *,
    layout: str,
    task_names: np.ndarray,
    feature_names: np.ndarray,
    as_frame: bool = False,
    target_name: str = "y",
) -> dict[str, Any]:
    """Put one design and one target per task into a layout.

    Parameters
    ----------
    designs : sequence of K arrays or CSR matrices of shape (n_k, d)
        For the shared layout the first one stands for all.
    targets : sequence of K arrays of shape (n_k,)
    layout : {"long", "shared", "aligned"}
        Already checked with :func:`check_layout`.
    task_names, feature_names : arrays of str
    as_frame : bool
        Tables of pandas instead of arrays; long tables get a column ``task``.
    target_name : str
        Name of the target's Series in the long layout.

    Returns
    -------
    dict
        ``X``, ``y`` and ``tasks`` (names per row in the long layout, else None).
    """
    if layout == "aligned":
        return {"X": np.stack(designs, axis=1), "y": np.stack(targets, axis=1), "tasks": None}
    if layout == "shared":
        X, y = np.array(designs[0]), np.stack(targets, axis=1)
        if as_frame:
            pandas: Any = require("pandas", "tables", "as_frame=True")
            X, y = pandas.DataFrame(X, columns=feature_names), pandas.DataFrame(y, columns=task_names)
        return {"X": X, "y": y, "tasks": None}
    tasks = np.repeat(task_names, [len(target) for target in targets])
    X = sparse.vstack(designs, format="csr") if sparse.issparse(designs[0]) else np.concatenate(designs)
    y = np.concatenate(targets)
    return {
        **(long_frame(X, y, tasks, feature_names, target_name) if as_frame else {"X": X, "y": y}),
        "tasks": tasks,
    }


def long_frame(X: Any, y: np.ndarray, tasks: np.ndarray, feature_names: np.ndarray, target_name: str) -> dict[str, Any]:
    """Long layout as a table with the column ``task`` first, and the target as a Series."""
    pandas: Any = require("pandas", "tables", "as_frame=True")
    if sparse.issparse(X):
        frame = pandas.DataFrame.sparse.from_spmatrix(X, columns=feature_names)
    else:
        frame = pandas.DataFrame(X, columns=feature_names)
    frame.insert(0, "task", tasks)
    return {"X": frame, "y": pandas.Series(y, name=target_name)}
