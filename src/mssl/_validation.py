"""Checks of parameters, one helper per kind, with one form of message.

The form is ``name is VALUE; ALLOWED. REMEDY.``

How to use them: a helper gets the parameter's name and its value, raises ``ParameterError`` where the value is not
allowed, and returns it as a plain ``float``, ``int``, ``str``, ``bool`` or array where it is::

    check_number("tol", self.tol, above=0, remedy="The default is 1e-6.")
    n_points = check_whole_number("n_points", n_points, low=1)
    check_choice("relation", self.relation, ("coef", "residual"))
    if max_edges is not None:
        max_edges = check_whole_number("max_edges", max_edges, low=0, also="None")
    alpha = check_array("alpha", self.alpha, (), (n_tasks,), low=0)
    check_instance("edges", edges, KnownEdges, remedy="It says what is known: KnownEdges(forbidden=[(0, 1)]).")

``also`` only names what the caller has let through before. What no helper knows is raised with the same form::

    raise refused("region", region, "give (south, north, west, east) in degrees")

``name`` may say whose parameter it is, as in ``"GraphLaplacian: nearest"``.
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

_OURS = {"mssl", "sklearn", "joblib"}  # decorators and loops between an estimator and whoever fits it
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80  # a value is shown so that it can be recognised, not in full


def refused(
    name: str,
    value: object,
    allowed: str,
    remedy: str = "",
    error: type[Refusal] = ParameterError,  # type: ignore[assignment]  # mypy allows no default of a type variable
) -> Refusal:
    """The error to raise for a value that is not allowed.

    Parameters
    ----------
    name : str
        The parameter.
    value : object
        What came.
    allowed : str
        What may come, without a full stop: "give a number above 0".
    remedy : str
        Further sentences, each with its full stop.
    error : type
        The class of the error.
    """
    return error(_message(name, shown(value), allowed, remedy))


def shown(value: object) -> str:
    """A value for a message: short, and NumPy's scalars as plain numbers."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return _SHOWN.repr(value.item() if isinstance(value, np.generic) else value)


def _message(name: str, what: str, allowed: str, remedy: str) -> str:
    return f"{name} is {what}; {allowed}.{' ' if remedy else ''}{remedy}"


class Ends(TypedDict, total=False):
    """Ends of an interval; ``low`` and ``high`` belong to it, ``above`` and ``below`` do not. None is no end."""

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
    """Which values lie in the interval; NaN lies in none."""
    good = values == values
    for side, end in ends.items():
        if end is not None:
            good = good & _SIDES[side][1](values, end)
    return good


def check_number(name: str, value: object, *, also: str = "", remedy: str = "", **ends: Unpack[Ends]) -> float:
    """One finite real number in an interval."""
    if finite(value) and _inside(value, ends):
        return float(value)  # type: ignore[arg-type]  # finite() has found it to be a real number
    raise refused(name, value, f"give a number{_range(ends)}{_or(also)}", remedy)


def check_whole_number(name: str, value: object, *, also: str = "", remedy: str = "", **ends: Unpack[Ends]) -> int:
    """One whole number in an interval."""
    if type(value) is not bool and isinstance(value, Integral) and _inside(value, ends):
        return int(value)
    raise refused(name, value, f"give a whole number{_range(ends)}{_or(also)}", remedy)


def check_choice(name: str, value: object, allowed: Collection[Any], *, also: str = "", remedy: str = "") -> Any:
    """One of several words (or other plain values)."""
    # Compared one by one: an array, or something that cannot be hashed, is simply none of them.
    if any(type(value) is type(known) and value == known for known in allowed):
        return value
    raise refused(name, value, f"allowed are {', '.join(map(repr, allowed))}{_or(also)}", remedy)


def check_flag(name: str, value: object, *, also: str = "", remedy: str = "") -> bool:
    """True or False; NumPy's are taken too, numbers are not."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise refused(name, value, f"allowed are True and False{_or(also)}", remedy)


def check_instance(
    name: str, value: object, kind: type[Kind] | tuple[type[Kind], ...], *, also: str = "", remedy: str = ""
) -> Kind:
    """An object of one of several classes, not the class itself."""
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
    """Finite real numbers of one of several shapes; () is one number, None in a shape is any length."""
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
    """Whether a parameter is one finite real number; text, None and arrays are not."""
    # Asking an abstract class costs more than all else here.
    return (type(value) is float or isinstance(value, Real)) and math.isfinite(value)


def is_number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, and name the line of the user: the first one outside of this package."""
    level = 1
    frame: FrameType | None = sys._getframe(0)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
