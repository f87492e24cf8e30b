"""Which estimator a method's name and a family of targets stand for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mssl.exceptions import ParameterError

FAMILIES = ("auto", "gaussian", "binary", "poisson", "gamma")
LEARNED = ("p-mssl", "r-mssl")


def method_names() -> list[str]:
    """Names of all methods: the two of this package, tuned by cross-validation, and the presets."""
    return list(
        dict.fromkeys([*LEARNED, *(name.replace("_", "-") for name in import_module("mssl.presets").available())])
    )


def make_estimator(method: str, family: str, fixed: dict[str, Any] | None = None, *, verbose: int = 0) -> Any:
    """An unfitted estimator for a method's name.

    Without fixed parameters, everything that can be chosen is chosen by cross-validation.

    Parameters
    ----------
    method : str
        "p-mssl", "r-mssl" or the name of a preset, with hyphens or underscores.
    family : {"gaussian", "binary", "poisson", "gamma"}
        Of the targets.
    fixed : dict, optional
        Parameters that are given instead of chosen.
    verbose : int
        1 shows progress on a terminal.
    """
    import mssl

    name = method.replace("_", "-")
    if name == "r-mssl" and family != "gaussian":
        raise ParameterError(
            f"r-mssl relates residuals, which needs a gaussian target; this one is {family}. Use p-mssl."
        )
    on = {"on": "residual"} if name == "r-mssl" else {}
    binary = family == "binary"
    if name not in LEARNED:
        model = _preset(name, family)
    elif fixed:
        model = mssl.MSSLClassifier() if binary else mssl.MSSLRegressor(loss=family, **on)
    else:
        model = mssl.MSSLClassifierCV() if binary else mssl.MSSLRegressorCV(loss=family, **on)
    known = model.get_params()
    strange = sorted(set(fixed or {}) - set(known))
    if strange:
        raise ParameterError(f"{method} has no parameter {strange[0]!r}; it has {', '.join(sorted(known))}.")
    return model.set_params(**(fixed or {}), **({"verbose": verbose} if "verbose" in known else {}))


def _preset(name: str, family: str) -> Any:
    presets = import_module("mssl.presets")
    if name.replace("-", "_") not in presets.available():
        raise ParameterError(f"The method {name!r} is not known; choose one of {', '.join(method_names())}.")
    return getattr(presets, name.replace("-", "_"))(loss="bernoulli" if family == "binary" else family)
