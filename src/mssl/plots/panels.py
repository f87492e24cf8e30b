"""Panels of small figures: several axes on one figure, methods as dots with bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mssl.exceptions import require
from mssl.graph.geometry import PALETTE

SMALL, NORMAL = 7.0, 8.5


def panels(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A figure that pyplot does not keep, and its axes."""
    module: Any = require("matplotlib.figure", "plot", "Figures")
    figure = module.Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, **options)
    for ax in np.ravel(grid):
        ax.tick_params(labelsize=SMALL)
    return figure, grid


def dots_with_bars(ax: Any, values: Mapping[str, tuple[float, float]], *, label: str, marks: Any = None) -> Any:
    """One row a method: mean and standard deviation as a dot with a bar, published figures as crosses.

    Parameters
    ----------
    ax : matplotlib Axes
    values : mapping of name to (mean, spread)
    label : str
        What is shown, with its unit.
    marks : mapping of name to number, optional
        Published figures.
    """
    names = list(values)
    heights = np.arange(len(names))
    means = [values[name][0] for name in names]
    spreads = [values[name][1] for name in names]
    ax.errorbar(means, heights, xerr=spreads, fmt="o", color=PALETTE[0], ms=4, lw=1, label="measured")
    known = [k for k, name in enumerate(names) if marks and name in marks]
    if known:
        ax.plot([marks[names[k]] for k in known], known, "x", color=PALETTE[5], ms=5, label="published")
    ax.set_yticks(heights, names, fontsize=SMALL)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", lw=0.3, color="#DDDDDD")
    ax.set_xlabel(label, fontsize=NORMAL)
    return ax
