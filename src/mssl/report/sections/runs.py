"""How the fit ran: stability of edges along a path, and convergence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mssl._html import Html
from mssl.graph.geometry import POSITIVE
from mssl.plots.fits import plot_convergence
from mssl.plots.support import axes, distances
from mssl.report.figures import FAINT, Section, Shared, base_figure, bokeh, count, figure_html, picture, plain
from mssl.report.figures import sentence as say

if TYPE_CHECKING:
    from mssl.report.content import Content, Stability

_MOST_LINES = 600  # curves of edges: more make the page slow, and cannot be told from each other


def stability_section(content: Content, shared: Shared) -> Section | None:
    """How often each edge is selected, against the penalty."""
    found = content.stability
    if found is None or not found.frequencies.size:
        return None
    top = found.frequencies.max(axis=0)
    stable = top >= found.threshold
    # Stable edges first, then those that come nearest; the weakest drawn first, so that the stable ones lie on top.
    kept = np.argsort(-top, kind="stable")[:_MOST_LINES][::-1]
    reach = count(int(stable.sum()), "edge")
    source = _path_source(content, found, kept, stable)
    first = [f"{edge} ({share:.0%})" for edge, share in zip(source.data["edge"], source.data["top"], strict=True)][
        :-6:-1
    ]
    alt = (
        f"Selection frequency of edges along the path of penalties; {reach} reach the threshold. Most often selected: "
        f"{', '.join(first)}."
    )
    plot = _path_figure(found, alt)
    lines = plot.multi_line(
        "x",
        "y",
        source=source,
        line_color="color",
        line_width="width",
        line_alpha=0.8,
        nonselection_line_alpha=0.08,
        selection_line_alpha=1.0,
        selection_line_width=2.5,
    )
    shared.watch(plot, lines)
    plot.hspan(y=[found.threshold], line_color="black", line_dash="dashed", line_width=1)
    drawn = "" if len(kept) == len(top) else f" Drawn are the {len(kept):,} most often selected of {len(top):,} pairs."
    caption = (
        f"Blue: the {reach} selected in at least {found.threshold:.0%} of the subsamples somewhere (dashed line); "
        f"grey: the others.{drawn} The penalty falls from left to right."
    )
    body = figure_html("plot-stability", alt, Html(caption))
    return Section("stability", "Stability path", body, {"plot-stability": plot})


def _path_figure(found: Stability, alt: str) -> Any:
    positive = bool((found.lambdas > 0).all())
    low, high = float(found.lambdas.min()), float(found.lambdas.max())
    ends = (high, low) if high > low else (high + 0.5, high - 0.5 * (not positive))
    plot = base_figure(820, 320, alt, x_axis_type="log" if positive else "linear", x_range=ends, y_range=(-0.02, 1.02))
    plot.xaxis.axis_label, plot.yaxis.axis_label = "penalty strength λ", "selection frequency"
    return plot


def _path_source(content: Content, found: Stability, kept: Any, stable: Any) -> Any:
    models = bokeh("models")
    order = np.argsort(-found.lambdas)
    names = content.graph.tasks
    ends = np.full((len(kept), 2), -1) if found.ends is None else found.ends[kept]
    columns = {
        "x": [found.lambdas[order].astype(np.float32)] * len(kept),
        "y": [found.frequencies[order, k].astype(np.float32) for k in kept],
        "top": found.frequencies[:, kept].max(axis=0),
        "color": [POSITIVE if stable[k] else FAINT for k in kept],
        "width": [1.6 if stable[k] else 0.7 for k in kept],
        "i": ends[:, 0].astype(np.int32),
        "j": ends[:, 1].astype(np.int32),
        "edge": [
            f"edge {k + 1}" if i < 0 else f"{plain(names[i])} – {plain(names[j])}"
            for k, (i, j) in zip(kept, ends, strict=True)
        ],
    }
    return models.ColumnDataSource(columns, name="stability")


def convergence_section(content: Content) -> Section | None:
    """Objective and gaps, round by round."""
    if not content.history:
        return None
    rounds = max(map(len, content.history.values()))
    gap, status = content.certificate
    words = (
        f"The fit {status}" + (f", with a relative gap of {gap:.1e}" if gap is not None else "") + "." if status else ""
    )
    shown = {name: values for name, values in distances(content.history).items() if np.isfinite(values).any()}
    if not shown:
        return Section(
            "convergence",
            "Convergence",
            say(f"{words} It took {count(rounds, 'round')}; objective and gaps have no distance left to draw.".strip()),
        )
    ends = [(name, values[np.isfinite(values)]) for name, values in shown.items()]
    fell = "; ".join(f"{name} from {values[0]:.1e} to {values[-1]:.1e}" for name, values in ends)
    alt = f"Objective and duality gaps over {count(rounds, 'round')}, on a log scale: {fell}."
    ax = plot_convergence(content.history, axes(None, (4.4, 2.5), shown=False))
    body = picture("plot-convergence", ax, alt, Html(f"{words} Values of zero cannot be drawn on a log scale.".strip()))
    return Section("convergence", "Convergence", body)
