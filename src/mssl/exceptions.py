"""Errors of mssl. Each message says what came, what is allowed and what to do."""

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
    """Input that no model can be fitted to (NaN, wrong shape, text, nothing at all)."""


class LayoutError(DataError):
    """X, y and task ids do not form one of the three layouts (long, shared, aligned)."""


class UnseenTaskError(LayoutError):
    """Prediction was asked for a task that was not there when the model was fitted."""


class NotAlignedError(LayoutError):
    """A structure over residuals needs rows that belong together in all tasks."""


class ParameterError(MSSLError, ValueError):
    """A parameter is out of its range, or two parameters exclude each other."""


class MissingDependencyError(MSSLError, ImportError):
    """An optional package is needed for what was asked."""


class DatasetError(MSSLError, OSError):
    """A data set cannot be read or fetched."""


class ModelFileError(MSSLError, ValueError):
    """A saved model is damaged, hostile or from another format version."""


def all_or_nothing(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """A fit that fails or is interrupted leaves its estimator as it was: with the earlier fit, or not fitted."""

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
    """Import an optional package, or say what it is for and how to get it."""
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
