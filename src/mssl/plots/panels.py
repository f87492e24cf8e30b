"""Panels of small figures: several axes on one figure, methods as dots with bars, graphs and matrices on one scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.exceptions import require
from mssl.graph.geometry import PALETTE
from mssl.plots.graphs import plot_precision
from mssl.plots.support import FAINT, signed_colours

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


def graph_panels(
    weights: Mapping[str, NDArray[np.float64]],
    names: Sequence[str],
    groups: Sequence[str],
    width: float = 7.0,
    label: str = "partial correlation",
) -> Any:
    """Graphs of the same tasks side by side, every task in one place on a circle, edges on one scale of colours.

    Parameters
    ----------
    weights : mapping of title to (K, K) array
        What edges weigh, 0 where there is none.
    names : sequence of str
        The tasks.
    groups : sequence of str
        What they are known to belong to: the colours of the tasks.
    width : float
        Inches.
    label : str
        What the weights are.
    """
    figure, grid = panels(width, 3.5, 1, len(weights), squeeze=False)
    collections: Any = require("matplotlib.collections", "plot", "Figures")
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(names)) / len(names)
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    kinds = list(dict.fromkeys(groups))
    largest = max(float(np.abs(matrix).max()) for matrix in weights.values()) or 1.0
    signs = signed_colours(largest)["cmap"]
    for ax, (title, matrix) in zip(grid[0], weights.items(), strict=True):
        i, j = np.nonzero(np.triu(matrix, 1))
        order = np.argsort(np.abs(matrix[i, j]))  # the strongest on top
        i, j = i[order], j[order]
        lines = collections.LineCollection(list(np.stack([places[i], places[j]], axis=1)), zorder=1)
        lines.set(
            array=matrix[i, j],
            cmap=signs,
            clim=(-largest, largest),
            linewidths=0.5 + 2.5 * np.abs(matrix[i, j]) / largest,
        )
        ax.add_collection(lines)
        rims = np.asarray(lines.get_linewidths()) + 0.5  # so that edges near zero, which are nearly white, are seen
        ax.add_collection(collections.LineCollection(lines.get_segments(), colors=FAINT, linewidths=rims, zorder=0))
        for k, kind in enumerate(kinds):
            own = np.array([group == kind for group in groups])
            ax.scatter(*places[own].T, s=26, color=PALETTE[k + 1], zorder=2, label=kind)
        for name, (x, y) in zip(names, places, strict=True):
            side = "center" if abs(x) < 0.15 else "left" if x > 0 else "right"  # outside, where no edge runs
            ax.text(1.09 * x, 1.13 * y, name, fontsize=SMALL, ha=side, va="center")
        ax.set(xlim=(-1.6, 1.6), ylim=(-1.25, 1.25), aspect="equal")
        ax.set_axis_off()
        ax.set_title(title, fontsize=NORMAL)
    bar = figure.colorbar(lines, ax=list(grid[0]), shrink=0.8, pad=0.01)
    bar.set_label(label, fontsize=NORMAL)
    bar.ax.tick_params(labelsize=SMALL)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(kinds), fontsize=SMALL, frameon=False)
    return figure


def precision_panels(sources: Mapping[str, Any], names: Sequence[str], width: float = 7.0) -> Any:
    """Partial correlations of the same tasks side by side, on one scale of colours.

    Parameters
    ----------
    sources : mapping of title to TaskGraph, fitted model or (K, K) precision matrix
    names : sequence of str
        The tasks.
    width : float
        Inches.
    """
    figure, grid = panels(width, 3.2, 1, len(sources), squeeze=False)
    for ax, (title, source) in zip(grid[0], sources.items(), strict=True):
        plot_precision(source, ax, tasks=names, ordered=False).set_title(title, fontsize=NORMAL)
    one_scale(grid[0])
    return figure


def one_scale(axes: Iterable[Any]) -> None:
    """Give the heat maps of all axes the same colours for the same values."""
    images = [ax.images[0] for ax in axes]
    largest = max(float(np.nanmax(np.abs(image.get_array()))) for image in images)
    for image in images:
        image.set_clim(-largest, largest)
