"""Large matrices as images: blocks of cells become one cell that shows their strongest value."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Pooled(NamedTuple):
    """A matrix in blocks of ``block`` = (height, width) cells.

    ``values`` (r, c) are the blocks' strongest values, ``place`` (r, c) say where in its block each stands: cell
    (place // width, place % width).
    """

    values: FloatArray
    place: NDArray[np.intp]
    block: tuple[int, int]


def pool(matrix: FloatArray, most: int = 500) -> Pooled:
    """Show the strongest of each block of cells, so that no side has more than `most` cells; NaN are passed over.

    Examples
    --------
    >>> pooled = pool(np.array([[0.1, 0.0, 0.2], [0.0, -0.5, 0.0]]), most=2)
    >>> pooled.values.tolist(), pooled.place.tolist(), pooled.block
    ([[0.1, 0.2], [-0.5, 0.0]], [[0, 0], [1, 0]], (1, 2))
    """
    height, width = (max(1, -(-side // most)) for side in matrix.shape)
    rows, columns = (-(-side // step) for side, step in zip(matrix.shape, (height, width), strict=True))
    padded = np.full((rows * height, columns * width), np.nan)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    cells = padded.reshape(rows, height, columns, width).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    place = np.argmax(np.where(np.isnan(cells), -1.0, np.abs(cells)), axis=2)
    return Pooled(np.take_along_axis(cells, place[..., None], axis=2)[..., 0], place, (height, width))
