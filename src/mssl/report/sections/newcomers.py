"""What a task that was not in the fit is predicted with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html, tag
from mssl.graph.task_graph import short_name
from mssl.report.figures import Section, count, small_table

if TYPE_CHECKING:
    from mssl.report.content import Content

_MOST_FEATURES = 20


def new_task_section(content: Content) -> Section | None:
    """The weights that an unseen task gets, and how far the tasks that were seen lie from them."""
    coef = getattr(content.model, "unseen_coef_", None)
    if coef is None or content.n_tasks < 2:
        return None
    predict, unseen = tag("code", Html("predict")), tag("code", Html("unseen='mean'"))
    how = (
        Html(predict, " does so unasked, with a warning")
        if content.model.unseen_ == "mean"
        else Html("give ", predict, " ", unseen, " for it; without it such a task is refused")
    )
    d = len(coef)
    spread = np.sqrt(((content.coef - coef) ** 2).mean(axis=0))
    size = np.abs(coef) * (1.0 if content.spread is None else content.spread)
    by = "largest first" if content.spread is None else "largest times the spread of its feature first"
    order = np.argsort(-size, kind="stable")[:_MOST_FEATURES]
    lines = [("intercept", f"{content.model.unseen_intercept_:.4g}", "–")]
    lines += [(short_name(content.features[k], 60), f"{coef[k]:.4g}", f"{spread[k]:.3g}") for k in order]
    rest = f" Shown are the first {_MOST_FEATURES} of {count(d, 'weight')}." if d > _MOST_FEATURES else ""
    words = Html(
        *("A task that was not in the fit is predicted with the tasks' mean: ", how),
        ". Where the tasks' own weights lie far from it, a new task may too.",
    )
    table = small_table(
        "Weights of a new task",
        f"Weights of a new task, {by}, and the root mean square distance of the tasks' own from them.{rest}",
        ("feature", "weight", "distance of the tasks"),
        lines,
    )
    return Section("new-task", "A new task", Html(tag("p", words), table))
