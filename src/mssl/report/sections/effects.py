"""What single columns do: the curve that tasks share, and each task's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mssl._html import Html, tag
from mssl.graph.geometry import POSITIVE
from mssl.report.figures import FAINT, Section, base_figure, count, figure_html, plain, small_table

if TYPE_CHECKING:
    from mssl.report.content import Content, Effect


def effect_section(content: Content) -> Section | None:
    """Small multiples of the columns that move the predictions most, and a table of how much each does."""
    if not content.relevance:
        return None
    figures: dict[str, Any] = {}
    multiples: list[Html] = []
    for number, effect in enumerate(content.effects):
        key = f"plot-effect-{number}"
        alt = _words(effect)
        figures[key] = _figure(effect, alt)
        band = " with its band" if effect.lower is not None else ""
        caption = Html(f"{plain(effect.feature, 60)}: mean of all tasks{band} in blue, tasks in grey.")
        multiples.append(figure_html(key, alt, caption))
    order = sorted(content.relevance, key=lambda name: -content.relevance[name])
    lines = [(plain(name, 60), f"{content.relevance[name]:.3g}") for name in order[:20]]
    rest = f" Shown are the first 20 of {count(len(order), 'column')}." if len(order) > 20 else ""
    words = (
        "How much each column moves the predictions (standard deviation of its partial effect over its values in "
        f"training, root mean square over tasks).{rest}"
    )
    table = small_table("Relevance of columns", words, ("column", "relevance"), lines)
    return Section("effects", "Effects of columns", Html(tag("div", *multiples, class_="multiples"), table), figures)


def _words(effect: Effect) -> str:
    """What the curve says, for those who cannot see it."""
    name, low, high = plain(effect.feature, 60), int(np.argmin(effect.mean)), int(np.argmax(effect.mean))
    at = [plain(value, 20) if effect.x.dtype.kind == "O" else f"{value:.3g}" for value in effect.x]
    return (
        f"Partial effect of {name}, mean of all tasks: lowest at {at[low]} ({effect.mean[low]:+.3g}), highest at "
        f"{at[high]} ({effect.mean[high]:+.3g}); at most {np.ptp(effect.by_task, axis=0).max():.3g} between two tasks."
    )


def _figure(effect: Effect, alt: str) -> Any:
    levels = effect.x.dtype.kind == "O"
    x = np.arange(len(effect.x), dtype=float) if levels else effect.x.astype(float)
    plot = base_figure(400, 260, alt)
    banded = effect.lower is not None and effect.upper is not None
    if levels:  # nothing lies between them
        plot.scatter(np.tile(x, len(effect.by_task)), effect.by_task.ravel(), color=FAINT, size=4)
        if banded:
            plot.segment(x, effect.lower, x, effect.upper, line_color=POSITIVE, line_alpha=0.4, line_width=6)
        plot.scatter(x, effect.mean, color=POSITIVE, size=8)
    else:
        plot.multi_line([x] * len(effect.by_task), list(effect.by_task), line_color=FAINT, line_width=0.8)
        if banded:
            plot.varea(x=x, y1=effect.lower, y2=effect.upper, fill_color=POSITIVE, fill_alpha=0.2)
        plot.line(x, effect.mean, line_color=POSITIVE, line_width=2.5)
    plot.xaxis.axis_label, plot.yaxis.axis_label = plain(effect.feature, 40), "partial effect"
    if levels:
        plot.xaxis.ticker = list(range(len(x)))
        plot.xaxis.major_label_overrides = {k: plain(level, 16) for k, level in enumerate(effect.x)}
    return plot
