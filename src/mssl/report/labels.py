"""Names beside points, where they cover neither a point nor another name."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mssl.graph.task_graph import short_name

FloatArray = NDArray[np.float64]
_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (0.75, 0.8), (-0.75, 0.8), (0.75, -0.8), (-0.75, -0.8))


class Label(NamedTuple):
    """A name of a task, and the offset of its centre from its point, in pixels (right and down)."""

    task: int
    text: str
    right: float
    down: float


def plain(name: object, width: int = 24) -> str:
    r"""Return a name as Bokeh draws it letter by letter: ``$$…$$``, ``\[…\]`` and ``\(…\)`` are no formulas here.

    Examples
    --------
    >>> plain("$$x$$") == "$\u200b$x$\u200b$"
    True
    """
    text = short_name(name, width)
    for formula in ("$$", r"\[", r"\]", r"\(", r"\)"):
        text = text.replace(formula, f"{formula[0]}\u200b{formula[1]}")
    return text


def text_width(text: str, font: float) -> float:
    """Estimate the width of a text in pixels."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return font * (0.57 * (len(text) - wide) + 1.1 * wide)


def place(
    points: FloatArray,
    names: Sequence[object],
    size: tuple[float, float],
    *,
    radius: float,
    ranked: Iterable[int],
    most: int = 60,
    font: float = 11.0,
    width: int = 18,
) -> list[Label]:
    """Choose a side for each name, the most important first; names without room are left out.

    Parameters
    ----------
    points : ndarray of shape (K, 2)
        In pixels, right and down from the upper left corner.
    names : sequence of K
        Names of the points.
    size : (float, float)
        Width and height of the drawing in pixels.
    radius : float
        Of the markers, in pixels.
    ranked : iterable of int
        The points whose names are tried, first things first.
    most : int
        How many names there may be.
    font, width : float and int
        Font size in pixels and most letters of a name.
    """
    boxes = np.column_stack([points - radius, points + radius])
    labels: list[Label] = []
    for k in ranked:
        if len(labels) == most:
            break
        text = plain(names[k], width)
        half = np.array([text_width(text, font) / 2, 0.6 * font])
        for direction in _DIRECTIONS:
            offset = np.array(direction) * (half + radius + 2)
            box = np.concatenate([points[k] + offset - half, points[k] + offset + half])
            inside = (box[:2] >= 0).all() and box[2] <= size[0] and box[3] <= size[1]
            clash = (boxes[:, :2] < box[2:]).all(axis=1) & (boxes[:, 2:] > box[:2]).all(axis=1)
            if inside and not clash.any():
                labels.append(Label(int(k), text, float(offset[0]), float(offset[1])))
                boxes = np.vstack([boxes, box])
                break
    return labels
