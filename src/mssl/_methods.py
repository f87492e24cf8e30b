"""Which estimator a method's name and a family stand for."""

from __future__ import annotations

from typing import Any

from mssl.exceptions import ParameterError

FAMILIES = ("auto", "gaussian", "binary", "poisson", "gamma")


def make_estimator(method: str, family: str, fixed: dict[str, Any], *, quiet: bool = True) -> Any:
    """An unfitted estimator for a method of the command line.

    Parameters
    ----------
    method : str
        "p-mssl", or another method's name.
    family : {"gaussian", "binary", "poisson", "gamma"}
        Of the targets.
    fixed : dict
        Parameters that the user gave.
    quiet : bool
        Whether to keep silent about progress.
    """
    if method != "p-mssl":
        raise ParameterError(f"The method {method!r} is not known; choose one of p-mssl.")
    from mssl import MSSLClassifier, MSSLRegressor

    model: Any = MSSLClassifier() if family == "binary" else MSSLRegressor(loss=family)
    strange = sorted(set(fixed) - set(model.get_params()))
    if strange:
        raise ParameterError(
            f"{method} has no parameter {strange[0]!r}; it has {', '.join(sorted(model.get_params()))}."
        )
    return model.set_params(**fixed)
