"""Old names of estimators' parameters, which work for one more release with a FutureWarning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from mssl._validation import warn

# An old parameter is replaced by a new name, by a parameter of a part such as "graph_penalty__shrinkage", or by a
# function that returns new parameters. The function gets the old value and the current parameters: the defaults or the
# estimator's values, updated by the new values of the same call.
C = TypeVar("C", bound=type[Any])
Move = str | Callable[[Any, Mapping[str, Any]], dict[str, Any]]


def old_names(**moves: Move) -> Callable[[C], C]:
    """Class decorator: ``__init__`` and ``set_params`` accept the old names in ``moves`` and translate them.

    If only the name of a parameter changed, the old name can also be read as an attribute. Subclasses inherit the old
    names of their bases and add their own with the same decorator. Grids, the command line and model files use
    ``__init__`` or ``set_params``, so they accept the old names too.
    """

    def decorate(cls: C) -> C:
        cls._old_names = {**getattr(cls, "_old_names", {}), **moves}
        # A base may translate too; it then finds new names only.
        cls.__init__ = _translating_init(cls.__init__)
        cls.set_params = _translating_set_params(cls.set_params)
        for old, new in moves.items():
            if isinstance(new, str):
                setattr(cls, old, renamed_attribute(old, new))
        return cls

    return decorate


def translated(estimator: Any, given: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    """Replace old names in ``given``, each with a warning; a new name together with its old one raises."""
    moves: Mapping[str, Move] = type(estimator)._old_names
    params = {name: value for name, value in given.items() if name.partition("__")[0] not in moves}
    for name, value in given.items():
        old, nested, rest = name.partition("__")
        if old not in moves:
            continue
        move = moves[old]
        if callable(move):
            new = move(value, {**held, **params})
        elif "__" in move:
            whole, _, inner = move.partition("__")
            part = estimator._part(whole, {**held, **params}[whole])
            new = {whole: part.set_params(**{inner + nested + rest: value})}
        else:
            new = {move + nested + rest: value}
        if "__class__" in new:
            estimator.__class__ = cls = new.pop("__class__")
            tell_new_name(old, "MSSL estimators", f"the class {cls.__module__}.{cls.__name__}")
        else:
            said = ", ".join(f"{key}={text}" if len(text := repr(new[key])) < 60 else key for key in new)
            tell_new_name(old, type(estimator).__name__, said or "no parameter")
            if isinstance(move, str) and "__" not in move and new.keys() & given.keys():
                raise TypeError(f"`{old}` is the old name of `{move}`: give only one of them.")
        params |= new
    return params


def tell_new_name(old: str, owner: str, new: str) -> None:
    """Warn that an old name was used."""
    warn(f"`{old}` of {owner} is now {new}; it goes with 0.3.", FutureWarning)


def renamed_grid(estimator: Any, grid: Mapping[str, Any]) -> dict[str, Any]:
    """Replace old names in a grid of an estimator's parameters, each with a warning."""
    moves: Mapping[str, Move] = getattr(type(estimator), "_old_names", {})
    new = {name: move for name in grid if isinstance(move := moves.get(name), str)}
    for old, name in new.items():
        tell_new_name(old, type(estimator).__name__, f"`{name}`")
    return {new.get(name, name): values for name, values in grid.items()}


def _translating_init(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def translating(self: Any, *args: Any, **params: Any) -> None:
        if hasattr(self, "_old_positions"):
            args, params = self._old_positions(args, params)
        if params.keys() & type(self)._old_names.keys():
            bound = signature(init).bind_partial(self, *args)
            (_, *given) = bound.arguments.items()  # without self
            bound.apply_defaults()
            args, params = (), translated(self, {**dict(given), **params}, bound.arguments)
            if type(self).__init__ is not translating:
                type(self).__init__(self, **params)
                return
        init(self, *args, **params)

    return translating


def _translating_set_params(set_params: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(set_params)
    def renamed(self: Any, **params: Any) -> Any:
        if any(name.partition("__")[0] in self._old_names for name in params):
            params = translated(self, params, self.get_params(deep=False))
        return set_params(self, **params)

    return renamed


def renamed_attribute(old: str, new: str) -> property:
    """A property for the old name of an attribute, or of a part's attribute; reading it warns."""

    def read(self: Any) -> Any:
        tell_new_name(old, type(self).__name__, f"`{new}`")
        whole, nested, inner = new.partition("__")
        value = getattr(self, whole)
        return getattr(self._part(whole, value), inner) if nested else value

    return property(read)
