"""What single columns do: the curve that tasks share, and each task's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html, tag
from mssl.estimators.effects import PartialEffect
from mssl.graph.task_graph import short_name
from mssl.plots.effects import draw_effect
from mssl.plots.support import NORMAL, FloatArray
from mssl.report.figures import Section, canvas, count, picture, small_table

if TYPE_CHECKING:
    from mssl.report.content import Content


def effect_section(content: Content) -> Section | None:
    """Small multiples of the columns that move the predictions most, and a table of how much each does."""
    if not content.relevance:
        return None
    multiples: list[Html] = []
    for number, (shared, by_task) in enumerate(content.effects):
        ax = canvas(3.5, 2.3)
        draw_effect(ax, shared, by_task)
        ax.set_ylabel("partial effect", fontsize=NORMAL)
        band = " with its band" if shared.lower is not None else ""
        caption = Html(f"{short_name(shared.feature, 60)}: mean of all tasks{band} in blue, tasks in grey.")
        multiples.append(picture(f"plot-effect-{number}", ax, _words(shared, by_task), caption))
    order = sorted(content.relevance, key=lambda name: -content.relevance[name])
    lines = [(short_name(name, 60), f"{content.relevance[name]:.3g}") for name in order[:20]]
    rest = f" Shown are the first 20 of {count(len(order), 'column')}." if len(order) > 20 else ""
    words = (
        "How much each column moves the predictions (standard deviation of its partial effect over its values in "
        f"training, root mean square over tasks).{rest}"
    )
    table = small_table("Relevance of columns", words, ("column", "relevance"), lines)
    return Section("effects", "Effects of columns", Html(tag("div", *multiples, class_="multiples"), table))


def _words(effect: PartialEffect, by_task: FloatArray) -> str:
    """What the curve says, for those who cannot see it."""
    name, low, high = short_name(effect.feature, 60), int(np.argmin(effect.effect)), int(np.argmax(effect.effect))
    at = [short_name(value, 20) if effect.x.dtype.kind == "O" else f"{value:.3g}" for value in effect.x]
    return (
        f"Partial effect of {name}, mean of all tasks: lowest at {at[low]} ({effect.effect[low]:+.3g}), highest at "
        f"{at[high]} ({effect.effect[high]:+.3g}); at most {np.ptp(by_task, axis=0).max():.3g} between two tasks."
    )
