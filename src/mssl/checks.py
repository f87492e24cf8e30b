"""Small questions about parameters."""

from __future__ import annotations

import math
from numbers import Real


def finite(value: object) -> bool:
    """Whether a parameter is one finite real number; text, None and arrays are not."""
    return isinstance(value, Real) and math.isfinite(value)
