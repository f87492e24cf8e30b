"""Figures that several experiments share; the general ones are in :mod:`mssl.plots` and :mod:`mssl.plots.support`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mssl.exceptions import require
from mssl.graph.geometry import PALETTE
from mssl.plots.graphs import plot_precision
from mssl.plots.support import FAINT, NORMAL, SMALL, panels, signed_colours

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
