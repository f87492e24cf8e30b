"""Checks of parameters, one function per kind, with one form of message.

The form is ``name is VALUE; ALLOWED. REMEDY.``

A function gets the parameter's name and its value. If the value is not allowed, the function raises
``ParameterError``. Otherwise it returns the value as a plain ``float``, ``int``, ``str``, ``bool`` or array::

    check_number("tol", self.tol, above=0, remedy="The default is 1e-6.")
    n_points = check_whole_number("n_points", n_points, low=1)
    check_choice("relation", self.relation, ("coef", "residual"))
    if max_edges is not None:
        max_edges = check_whole_number("max_edges", max_edges, low=0, also="None")
    alpha = check_array("alpha", self.alpha, (), (n_tasks,), low=0)
    check_instance("edges", edges, KnownEdges, remedy="It says what is known: KnownEdges(forbidden=[(0, 1)]).")

``also`` adds allowed values to the message that the caller has already accepted. Other checks raise errors of the same
form by :func:`refused`::

    raise refused("region", region, "give (south, north, west, east) in degrees")

``name`` may include the owner of the parameter, as in ``"GraphLaplacian: nearest"``.
"""

from __future__ import annotations

import math
import reprlib
import sys
import warnings
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from operator import ge, gt, le, lt
from types import FrameType
from typing import Any, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from mssl.exceptions import MSSLError, ParameterError

Kind = TypeVar("Kind")
Refusal = TypeVar("Refusal", bound=MSSLError)

LARGEST_EXPONENT = 300.0  # Doubles can hold exp(300) and its square.
_OURS = {"mssl", "sklearn", "joblib"}  # Warnings skip the frames of these packages, to point at the user's own line.
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80  # Messages show enough of a long value to recognise it.


def refused(
    name: str,
    value: object,
    allowed: str,
    remedy: str = "",
    error: type[Refusal] = ParameterError,  # type: ignore[assignment]  # mypy allows no default of a type variable
) -> Refusal:
    """Make the error to raise for a value that is not allowed.

    Parameters
    ----------
    name : str
        Name of the parameter.
    value : object
        The given value.
    allowed : str
        The allowed values, without a full stop: "give a number above 0".
    remedy : str
        Further sentences, each with a full stop.
    error : type
        Class of the error.
    """
    return error(_message(name, shown(value), allowed, remedy))


def shown(value: object) -> str:
    """A short text of a value for a message, with NumPy's scalars as plain numbers."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return _SHOWN.repr(value.item() if isinstance(value, np.generic) else value)


def _message(name: str, what: str, allowed: str, remedy: str) -> str:
    return f"{name} is {what}; {allowed}.{' ' if remedy else ''}{remedy}"


class Ends(TypedDict, total=False):
    """Ends of an interval. It includes ``low`` and ``high`` and excludes ``above`` and ``below``; None means no end."""

    low: float | None
    above: float | None
    high: float | None
    below: float | None


_SIDES = {"low": ("≥", ge), "above": ("above", gt), "high": ("≤", le), "below": ("below", lt)}


def _range(ends: Mapping[str, Any]) -> str:
    """An interval in words, with a blank before it: " ≥ 0", " above 0", " from 0 to 1", " above 0 and ≤ 1"."""
    known = {side: end for side, end in ends.items() if end is not None}
    if {"low", "high"} <= known.keys():
        return f" from {known['low']:g} to {known['high']:g}"
    return " " * bool(known) + " and ".join(f"{_SIDES[side][0]} {end:g}" for side, end in known.items())


def _inside(values: Any, ends: Mapping[str, Any]) -> Any:
    """Which values lie in the interval; NaN lies in no interval."""
    good = values == values
    for side, end in ends.items():
        if end is not None:
            good = good & _SIDES[side][1](values, end)
    return good


def check_number(name: str, value: object, *, also: str = "", remedy: str = "", **ends: Unpack[Ends]) -> float:
    """Check that a value is one finite real number in an interval."""
    if finite(value) and _inside(value, ends):
        return float(value)  # type: ignore[arg-type]  # finite() has checked the type
    raise refused(name, value, f"give a number{_range(ends)}{_or(also)}", remedy)


def check_whole_number(name: str, value: object, *, also: str = "", remedy: str = "", **ends: Unpack[Ends]) -> int:
    """Check that a value is one whole number in an interval."""
    if type(value) is not bool and isinstance(value, Integral) and _inside(value, ends):
        return int(value)
    raise refused(name, value, f"give a whole number{_range(ends)}{_or(also)}", remedy)


def check_choice(name: str, value: object, allowed: Collection[Any], *, also: str = "", remedy: str = "") -> Any:
    """Check that a value is one of several words (or other plain values)."""
    # The values are compared one by one, because arrays and other values may not be hashable.
    if any(type(value) is type(known) and value == known for known in allowed):
        return value
    raise refused(name, value, f"allowed are {', '.join(map(repr, allowed))}{_or(also)}", remedy)


def check_flag(name: str, value: object, *, also: str = "", remedy: str = "") -> bool:
    """Check that a value is True or False (also NumPy's, but no numbers)."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise refused(name, value, f"allowed are True and False{_or(also)}", remedy)


def check_instance(
    name: str, value: object, kind: type[Kind] | tuple[type[Kind], ...], *, also: str = "", remedy: str = ""
) -> Kind:
    """Check that a value is an object of one of several classes."""
    if isinstance(value, kind):
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    raise refused(name, value, f"give a {' or a '.join(known.__name__ for known in kinds)}{_or(also)}", remedy)


def check_array(
    name: str,
    value: Any,
    *shapes: tuple[int | None, ...],
    also: str = "",
    remedy: str = "",
    **ends: Unpack[Ends],
) -> NDArray[np.float64]:
    """Check that values are finite real numbers of one of several shapes.

    The shape () means one number, and None in a shape means any length.
    """
    allowed = f"give finite numbers{_range(ends)}"
    if shapes:
        allowed += f" of shape {' or '.join(map(_shape, shapes))}"
    allowed += _or(also)
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise refused(name, value, allowed, remedy) from error
    if shapes and not any(_fits(array.shape, shape) for shape in shapes):
        raise ParameterError(_message(name, f"an array of shape {array.shape}", allowed, remedy))
    good = np.isfinite(array) & _inside(array, ends)
    if not np.all(good):
        place = tuple(int(index) for index in np.argwhere(~good)[0])
        what = f"{array[place]:g}" + (f" at {list(place)}" if place else "")
        raise ParameterError(_message(name, what, allowed, remedy))
    return array


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(b is None or a == b for a, b in zip(shape, wanted, strict=True))


def _shape(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('n' if size is None else str(size) for size in shape)}{',' if len(shape) == 1 else ''})"


def _or(also: str) -> str:
    return f", or {also}" if also else ""


def finite(value: object) -> bool:
    """Whether a value is one finite real number; text, None and arrays are not."""
    # The comparison of types is much faster than isinstance with an abstract class.
    return (type(value) is float or isinstance(value, Real)) and math.isfinite(value)


def is_number(value: Any) -> bool:
    """Whether a text reads as a number, or another value is one."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn and point at the user's own line, the first one outside of the packages in ``_OURS``."""
    level = 1
    frame: FrameType | None = sys._getframe(0)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
