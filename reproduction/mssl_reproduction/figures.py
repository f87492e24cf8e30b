"""Figures that several experiments share; the general ones are in :mod:`mssl.plots` and :mod:`mssl.plots.panels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mssl.graph.geometry import PALETTE
from mssl.plots.panels import NORMAL, SMALL

_COLORS = (*PALETTE[:6], "#000000", "#8C8C8C", *PALETTE[6:])
_MARKERS = "os^Dv<>Pphx"


def lines_with_bars(
    ax: Any,
    places: ArrayLike,
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = True,
) -> Any:
    """Curves with error bars, side by side so that the bars do not cover each other.

    Parameters
    ----------
    ax : matplotlib Axes
    places : (P,) array
        Where the points stand.
    curves : mapping of name to (means, spreads)
        (P,) arrays.
    x_label, y_label : str
        With units.
    log_x : bool
        Whether the axis is logarithmic.
    """
    x = np.asarray(places, dtype=float)
    bars = any(np.any(np.nan_to_num(spreads)) for _, spreads in curves.values())
    shifts = np.linspace(-1, 1, len(curves)) if bars and len(curves) > 1 else np.zeros(len(curves))
    gap = 0.06 * (np.min(np.diff(np.log(x) if log_x else x)) if len(x) > 1 else 1.0)
    for (name, (means, spreads)), shift, color, marker in zip(curves.items(), shifts, _COLORS, _MARKERS, strict=False):
        positions = x * np.exp(gap * shift) if log_x else x + gap * shift
        ax.errorbar(
            positions, means, yerr=spreads, color=color, marker=marker, ms=3.5, lw=1.1, elinewidth=0.6, label=name
        )
    if log_x:
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set_xticks(x, [f"{place:g}" for place in x])
    ax.set_xlabel(x_label, fontsize=NORMAL)
    ax.set_ylabel(y_label, fontsize=NORMAL)
    return ax


def heat_map(
    ax: Any,
    values: ArrayLike,
    *,
    x_names: Sequence[str],
    y_names: Sequence[str],
    x_label: str,
    y_label: str,
    label: str,
    highest: float | None = None,
) -> Any:
    """A grid of numbers as colours, with a colour bar; what is above ``highest`` gets one colour."""
    table = np.asarray(values, dtype=float)
    beyond = highest is not None and bool(table.max() > highest)
    image = ax.imshow(table, aspect="auto", origin="lower", cmap="cividis", vmax=highest if beyond else None)
    ax.set_xticks(range(len(x_names)), x_names, rotation=90, fontsize=SMALL)
    ax.set_yticks(range(len(y_names)), y_names, fontsize=SMALL)
    ax.set_xlabel(x_label, fontsize=NORMAL)
    ax.set_ylabel(y_label, fontsize=NORMAL)
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02, extend="max" if beyond else "neither")
    bar.set_label(label, fontsize=NORMAL)
    bar.ax.tick_params(labelsize=SMALL)
    return ax
