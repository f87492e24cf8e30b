"""Estimators by the name of a method and the family of the targets."""

from __future__ import annotations

from inspect import signature
from typing import Any, Literal

import mssl
from mssl._renamed import renamed_grid
from mssl._validation import check_choice, refused
from mssl.exceptions import ParameterError
from mssl.model_selection.search_space import GRIDS

Family = Literal["auto", "gaussian", "binary", "poisson", "gamma"]
LEARNED = ("p-mssl", "r-mssl")
BAYESIAN = "bayesian"


def method_names() -> list[str]:
    """Names of all methods: the two methods of the paper, the Bayesian method, and the presets."""
    return list(dict.fromkeys([*LEARNED, BAYESIAN, *(name.replace("_", "-") for name in mssl.presets.available())]))


def make_estimator(
    method: str,
    family: str,
    fixed: dict[str, Any] | None = None,
    *,
    selection: str = "prediction",
    seed: int = 0,
    **running: Any,
) -> Any:
    """Make an unfitted estimator from a method's name.

    Cross-validation chooses the strengths of penalties, unless one of them is among the fixed parameters.

    Parameters
    ----------
    method : str
        "p-mssl", "r-mssl", "bayesian" or the name of a preset, with hyphens or underscores.
    family : {"gaussian", "binary", "poisson", "gamma"}
        Family of the targets.
    fixed : dict, optional
        Parameters with fixed values.
    selection : {"prediction", "both"}
        "prediction" keeps the graph of the best predictions; "both" selects the graph by stability selection.
    seed : int
        Seed of stability selection.
    running : dict
        Parameters that do not change results, such as verbose, n_jobs and checkpoint. Those that the estimator does
        not have are ignored.
    """
    name = method.replace("_", "-")
    if name == "r-mssl" and family != "gaussian":
        raise refused("family", family, "r-mssl relates residuals and needs a gaussian target", "Use p-mssl.")
    residual: dict[str, Any] = {"relation": "residual"} if name == "r-mssl" else {}
    binary = family == "binary"
    if name == BAYESIAN:
        bayesian = mssl.BayesianMSSLClassifier() if binary else mssl.BayesianMSSLRegressor(loss=family)
        model = set_known(bayesian, fixed or {})
    elif name not in LEARNED:
        model = _preset(name, family, fixed or {})
    else:
        model = mssl.MSSLClassifier() if binary else mssl.MSSLRegressor(loss=family, **residual)
        given = renamed_grid(model, fixed or {})
        if given.keys() & set(GRIDS):  # A parameter that the search would choose is fixed, so there is no search.
            model = set_known(model, given)
        else:
            inner = {name: value for name, value in given.items() if name in model.get_params() and name != "verbose"}
            # The graph is selected with a fixed seed, so that the same table gives the same answer.
            stability = mssl.StabilitySelection(random_state=seed)
            search = mssl.MSSLClassifierCV if binary else mssl.MSSLRegressorCV
            tuned = search(model.set_params(**inner), selection=selection, stability=stability)
            model = set_known(tuned, {name: value for name, value in given.items() if name not in inner})
    return model.set_params(**{key: value for key, value in running.items() if key in model.get_params(deep=False)})


def set_known(model: Any, fixed: dict[str, Any]) -> Any:
    """Set parameters of a model; an unknown name raises an error with all names."""
    known = model.get_params()
    names = {name.removeprefix("estimator__") for name in known}  # make_estimator passes these on to the inner model.
    strange = sorted(set(fixed) - set(known) - set(getattr(model, "_old_names", ())))
    if strange:
        raise ParameterError(
            f"{type(model).__name__} has no parameter {strange[0]!r}; it has {', '.join(sorted(names))}."
        )
    return model.set_params(**fixed)


def lacks_graph(model: Any) -> str | None:
    """The name of a model's parameter whose structure still needs a known graph of tasks; None for other models."""
    for name, value in model.get_params().items():
        if isinstance(value, mssl.structures.Structure) and value.lacks_graph:
            return str(name)
    return None


def _preset(name: str, family: str, fixed: dict[str, Any]) -> Any:
    """A preset for a family; cross-validation chooses its strengths unless parameters are given."""
    check_choice("method", name, method_names())
    short = name.replace("-", "_")
    loss = "bernoulli" if family == "binary" else family
    takes_loss = "loss" in signature(getattr(mssl.presets, short)).parameters
    if not takes_loss and family != ("binary" if short == "logistic" else "gaussian"):
        raise refused("family", family, f"the method {name} is not made for such targets")
    model = mssl.presets.make(short, **({"loss": loss} if takes_loss else {}))
    if fixed:
        return set_known(model, fixed)
    grid = _strengths(model)
    return mssl.MSSLRegressorCV(model, grid, refit="best") if grid else model


def _strengths(model: Any) -> dict[str, list[float]]:
    """Grids of a preset's strengths, those of its structure and its penalty; empty if it has none."""
    parts = {name: getattr(model, name, None) for name in ("structure", "penalty")}
    grid = [float(10**power) for power in (-3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 4)]
    return {f"{name}__alpha": grid for name, part in parts.items() if getattr(part, "alpha", 0.0)}
