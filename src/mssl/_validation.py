"""Small questions about parameters, and about who asked."""

from __future__ import annotations

import math
import sys
from numbers import Real
from types import FrameType

_OURS = {"mssl", "sklearn", "joblib"}  # decorators and loops between an estimator and whoever fits it


def finite(value: object) -> bool:
    """Whether a parameter is one finite real number; text, None and arrays are not."""
    # Asking an abstract class costs more than all else here.
    return (type(value) is float or isinstance(value, Real)) and math.isfinite(value)


def caller_level() -> int:
    """The ``stacklevel`` of a warning that names the line of the user, the first one outside of this package."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    return level
