"""Errors of mssl. Each message gives the value, the allowed values and a remedy."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class MSSLError(Exception):
    """Base of every error that mssl raises on purpose."""


class DataError(MSSLError, ValueError):
    """Input to which no model can be fitted (NaN, wrong shape, text, no rows)."""


class LayoutError(DataError):
    """X, y and task ids do not form one of the three layouts (long, shared, aligned)."""


class UnseenTaskError(LayoutError):
    """A task to be predicted is not in the training data."""


class NotAlignedError(LayoutError):
    """A structure over residuals got rows that do not belong together in all tasks."""


class ParameterError(MSSLError, ValueError):
    """A parameter is out of its range, or two parameters exclude each other."""


class MissingDependencyError(MSSLError, ImportError):
    """An optional package is needed and not installed."""


class DatasetError(MSSLError, OSError):
    """A data set cannot be read or fetched."""


class ModelFileError(MSSLError, ValueError):
    """A saved model is damaged, hostile or from another format version."""


def all_or_nothing(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Decorator of fits: if a fit fails or is interrupted, its estimator keeps its earlier state."""

    @wraps(method)
    def fit(model: T, /, *args: P.args, **named: P.kwargs) -> R:
        state = vars(model)
        before = dict(state)
        try:
            return method(model, *args, **named)
        except BaseException:
            state.clear()
            state.update(before)
            raise

    return fit


def require(module: str, extra: str, purpose: str) -> Any:
    """Import an optional package, or raise an error with its purpose and the command that installs it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"{purpose} needs the package {module.split('.', maxsplit=1)[0]!r}, which is not installed. "
            f"Install it with: pip install 'mssl[{extra}]'"
        ) from error


def package_versions(*packages: str) -> dict[str, str]:
    """The installed version of each package, or "not installed"."""
    from importlib.metadata import PackageNotFoundError, version

    found = dict.fromkeys(packages, "not installed")
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
