"""The array types of the package, each defined once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Array", "ArrayLike", "Index", "Labels", "Mask"]

Array: TypeAlias = NDArray[np.float64]
"""Numbers."""
Index: TypeAlias = NDArray[np.int64]
"""Positions: of rows, tasks or features."""
Mask: TypeAlias = NDArray[np.bool_]
"""Which of some things are meant."""
Labels: TypeAlias = NDArray[Any]
"""Names of tasks or classes, of any type."""
