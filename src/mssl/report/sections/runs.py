"""How the fit ran: stability of edges along a path, and convergence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html
from mssl.graph.task_graph import short_name
from mssl.plots.fits import MOST_LINES, plot_convergence, plot_stability
from mssl.plots.support import distances
from mssl.report.figures import Section, canvas, count, picture, sentence

if TYPE_CHECKING:
    from mssl.report.content import Content


def stability_section(content: Content) -> Section | None:
    """How often each edge is selected, against the penalty."""
    found = content.stability
    if found is None or not found.frequencies.size:
        return None
    top = found.frequencies.max(axis=0)
    reach = count(int((top >= found.threshold).sum()), "edge")
    names = content.graph.tasks
    ends, ranked = found.ends, np.argsort(-top, kind="stable")[: 2 * MOST_LINES].tolist()
    often = [
        f"{f'edge {k + 1}' if ends is None else ' – '.join(short_name(names[end]) for end in ends[k])} ({top[k]:.0%})"
        for k in ranked[:5]
    ]
    alt = (
        f"Selection frequency of edges along the path of penalties; {reach} reach the threshold. Most often selected: "
        f"{', '.join(often)}."
    )
    ax = plot_stability(found, ax=canvas(4.6, 2.8))
    caption = (
        f"Blue: the {reach} selected in at least {found.threshold:.0%} of the subsamples somewhere (dashed line); "
        f"grey: the others, at most {MOST_LINES} of either. The penalty falls from left to right."
    )
    marks = [] if ends is None else [f"{i} {j}" for i, j in ends[ranked]]  # of all that are drawn, and maybe more
    data = {"stability": {mark: float(f"{top[k]:.3g}") for mark, k in zip(marks, ranked, strict=False)}}
    return Section("stability", "Stability path", picture("plot-stability", ax, alt, Html(caption)), data)


def convergence_section(content: Content) -> Section | None:
    """Objective and gaps, round by round."""
    if not content.history:
        return None
    rounds = max(map(len, content.history.values()))
    words = f"{content.ending}." if content.ending else ""
    shown = {name: values for name, values in distances(content.history).items() if np.isfinite(values).any()}
    if not shown:
        return Section(
            "convergence",
            "Convergence",
            sentence(
                f"{words} It took {count(rounds, 'round')}; objective and gaps have no distance left to draw.".strip()
            ),
        )
    ends = [(name, values[np.isfinite(values)]) for name, values in shown.items()]
    fell = "; ".join(f"{name} from {values[0]:.1e} to {values[-1]:.1e}" for name, values in ends)
    alt = f"Objective and duality gaps over {count(rounds, 'round')}, on a log scale: {fell}."
    ax = plot_convergence(content.history, canvas(4.4, 2.5))
    body = picture("plot-convergence", ax, alt, Html(f"{words} Values of zero cannot be drawn on a log scale.".strip()))
    return Section("convergence", "Convergence", body)
