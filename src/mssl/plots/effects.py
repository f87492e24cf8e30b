"""Curves of single columns: what all tasks share, and how each task deviates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl._typing import Array
from mssl._validation import check_whole_number
from mssl.exceptions import DataError
from mssl.graph.geometry import POSITIVE
from mssl.plots.support import FAINT, GREY, SMALL, Axes, Look, axes, drawn, new_figure

_MOST_TASKS = 200  # curves that are drawn beside the shared one: more cannot be told apart


def most_relevant(model: Any, most: int) -> list[str]:
    """The columns that move a model's predictions most, the first first; those that move nothing are left out."""
    relevance = model.column_relevance()
    names = sorted((name for name in relevance if relevance[name] > 0), key=lambda name: -relevance[name])
    return names[:most]


def plot_effects(
    model: Any, features: Sequence[object] | None = None, *, tasks: Sequence[object] | None = None, most: int = 6
) -> NDArray[np.object_]:
    """Draw small multiples of partial effects: the mean of all tasks with its band, and each task in grey.

    Parameters
    ----------
    model : fitted model with ``partial_effect``
    features : sequence of columns, optional
        By default those that move the predictions most.
    tasks : sequence of task names, optional
        Tasks whose curves are drawn; by default all, up to 200.
    most : int
        Columns that are drawn at most where `features` does not say which.

    Returns
    -------
    ndarray of matplotlib Axes
        One for each column; save the figure with ``axes[0].figure.savefig(…)``.

    Examples
    --------
    >>> from mssl import MSSLRegressor
    >>> from mssl.datasets import make_curved_tasks
    >>> from mssl.plots import plot_effects
    >>> data = make_curved_tasks("additive", random_state=0)
    >>> model = MSSLRegressor(features="spline").fit(data.X, data.y, tasks=data.tasks)
    >>> [ax.get_xlabel() for ax in plot_effects(model, [0, 1])]
    ['x0', 'x1']
    """
    if not hasattr(model, "partial_effect"):
        raise DataError(f"{type(model).__name__} has no partial effects; give a fitted estimator of mssl.")
    check_whole_number("most", most, low=1)
    chosen = most_relevant(model, most) if features is None else list(features)
    if not chosen:
        raise DataError("No column moves the predictions, so there is no effect to draw; name columns with features=.")
    names = list(model.tasks_)[:_MOST_TASKS] if tasks is None else list(tasks)
    across = min(3, len(chosen))
    down = -(-len(chosen) // across)
    page = new_figure((2.4 * across, 2.0 * down))
    made = page.subplots(down, across, sharey=True, squeeze=False).ravel()
    for ax, feature in zip(made, chosen, strict=False):
        draw_effect(ax, *curves(model, feature, names))
    for ax in made[len(chosen) :]:
        ax.remove()
    for ax in made[::across]:
        ax.set_ylabel("partial effect")
    return made[: len(chosen)]


def curves(model: Any, feature: object, tasks: Sequence[object]) -> tuple[Any, Array]:
    """The partial effect of a column that all tasks share, and each task's own (K, n)."""
    return model.partial_effect(feature), np.stack([model.partial_effect(feature, task).effect for task in tasks])


def draw_effect(ax: Axes, shared: Any, by_task: Array) -> None:
    """Draw one column: the mean of all tasks with its band, each task in grey."""
    levels = shared.x.dtype.kind == "O"
    x = np.arange(len(shared.x)) if levels else shared.x
    style: Look = {"marker": "o", "ls": "none"} if levels else {}  # nothing lies between levels
    ax.plot(x, by_task.T, color=FAINT, lw=0.6, ms=2, **style)
    if shared.lower is not None and shared.upper is not None:
        band: Any = ax.vlines if levels else ax.fill_between
        band(x, shared.lower, shared.upper, color=POSITIVE, alpha=0.4 if levels else 0.2, lw=4 if levels else 0)
    ax.plot(x, shared.effect, color=POSITIVE, lw=1.6, ms=4, **style)
    ax.axhline(0, color=GREY, lw=0.5)
    axes(ax).set_xlabel(drawn(shared.feature))
    ax.tick_params(labelsize=SMALL + 0.5)
    if levels:
        ax.set_xticks(x, [drawn(level, 10) for level in shared.x], rotation=45)
        ax.set_xlim(-0.5, len(x) - 0.5)
