"""Small questions about parameters."""

from __future__ import annotations

import math
from numbers import Real


def finite(value: object) -> bool:
    """Whether a parameter is one finite real number; text, None and arrays are not."""
    # Asking an abstract class costs more than all else here.
    return (type(value) is float or isinstance(value, Real)) and math.isfinite(value)
