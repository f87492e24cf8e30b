"""Curves: what single columns do, how stable the edges are along a path, and how the fit converged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html, tag
from mssl.graph.task_graph import short_name
from mssl.plots.effects import draw_effect
from mssl.plots.fits import MOST_LINES, plot_convergence, plot_stability
from mssl.plots.support import distances
from mssl.report.parts import Section, canvas, count, picture, small_table

if TYPE_CHECKING:
    from mssl.report.content import Content

_MOST_COLUMNS = 20  # rows of a plain table


def effect_section(content: Content) -> Section | None:
    """Small multiples of the columns that move the predictions most, and a table of how much each does."""
    if not content.relevance:
        return None
    multiples: list[Html] = []
    for number, (shared, by_task) in enumerate(content.effects):
        ax = canvas(3.5, 2.3)
        draw_effect(ax, shared, by_task)
        ax.set_ylabel("partial effect")
        name, effect = short_name(shared.feature, 60), shared.effect
        low, high = int(np.argmin(effect)), int(np.argmax(effect))
        at = [short_name(value, 20) if shared.x.dtype.kind == "O" else f"{value:.3g}" for value in shared.x]
        alt = (
            f"Partial effect of {name}, mean of all tasks: lowest at {at[low]} ({effect[low]:+.3g}), highest at "
            f"{at[high]} ({effect[high]:+.3g}); at most {np.ptp(by_task, axis=0).max():.3g} between two tasks."
        )
        band = " with its band" if shared.lower is not None else ""
        words = f"{name}: mean of all tasks{band} in blue, tasks in grey."
        multiples.append(picture(f"effect-{number}", ax, alt, words))
    order = sorted(content.relevance, key=lambda name: -content.relevance[name])
    rest = f" Shown are the first {_MOST_COLUMNS} of {count(len(order), 'column')}."
    words = (
        "How much each column moves the predictions (standard deviation of its partial effect over its values in "
        f"training, root mean square over tasks).{rest if len(order) > _MOST_COLUMNS else ''}"
    )
    lines = [(short_name(name, 60), f"{content.relevance[name]:.3g}") for name in order[:_MOST_COLUMNS]]
    table = small_table("Relevance of columns", words, ("column", "relevance"), lines)
    return Section("effects", "Effects of columns", Html(tag("div", *multiples, class_="multiples"), table))


def stability_section(content: Content) -> Section | None:
    """How often each edge is selected, against the penalty."""
    found = content.stability
    if found is None or not found.frequencies.size:
        return None
    top = found.frequencies.max(axis=0)
    reach = count(int((top >= found.threshold).sum()), "edge")
    ends, ranked = found.ends, np.argsort(-top, kind="stable")[: 2 * MOST_LINES].tolist()
    names = content.graph.tasks
    often = ", ".join(
        f"{f'edge {k + 1}' if ends is None else ' – '.join(short_name(names[end]) for end in ends[k])} ({top[k]:.0%})"
        for k in ranked[:5]
    )
    alt = (
        f"Selection frequency of edges along the path of penalties; {reach} reach the threshold. Most often selected: "
        f"{often}."
    )
    words = (
        f"Blue: the {reach} selected in at least {found.threshold:.0%} of the subsamples somewhere (dashed line); "
        f"grey: the others, at most {MOST_LINES} of either. The penalty falls from left to right."
    )
    marks = [] if ends is None else [f"{i} {j}" for i, j in ends[ranked]]  # of all that are drawn, and maybe more
    data = {"stability": {mark: float(f"{top[k]:.3g}") for mark, k in zip(marks, ranked, strict=False)}}
    drawn = picture("stability", plot_stability(found, ax=canvas(4.6, 2.8)), alt, words)
    return Section("stability", "Stability path", drawn, data)


def convergence_section(content: Content) -> Section | None:
    """Objective and gaps, round by round."""
    curves = distances(content.fitted.history)
    if not curves:
        return None
    rounds = count(content.rounds, "round")
    ended = f"{content.ending}. " if content.ending else ""
    shown = {name: values[np.isfinite(values)] for name, values in curves.items()}
    fell = "; ".join(f"{name} from {v[0]:.1e} to {v[-1]:.1e}" for name, v in shown.items() if len(v))
    if not fell:
        words = f"{ended}It took {rounds}; objective and gaps have no distance left to draw."
        return Section("convergence", "Convergence", tag("p", Html(words), class_="nothing"))
    alt = f"Objective and duality gaps over {rounds}, on a log scale: {fell}."
    ax = plot_convergence(content.fitted.history, canvas(4.4, 2.5))
    drawn = picture("convergence", ax, alt, f"{ended}Values of zero cannot be drawn on a log scale.")
    return Section("convergence", "Convergence", drawn)
