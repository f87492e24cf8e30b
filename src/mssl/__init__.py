"""mssl: learn many related prediction tasks together, and the sparse graph that relates them.

The public names below are loaded on first use, so that ``import mssl`` stays cheap.
"""

from importlib import import_module
from typing import Any

from mssl import _moved

__version__ = "0.1.0"

_moved.install()

_HOMES = {
    "MSSLRegressor": "estimators",
    "MSSLClassifier": "estimators",
    "MultiTaskClassifier": "estimators",
    "pair_tasks": "data",
    "vote": "data",
    "MultiTaskGLM": "estimators",
    "MSSLRegressorCV": "model_selection",
    "MSSLClassifierCV": "model_selection",
    "MultiTaskGLMCV": "model_selection",
    "StabilitySelection": "model_selection",
    "TaskGraph": "graph",
    "TaskData": "data",
    "graphical_lasso": "glasso",
    "GraphicalLasso": "glasso",
    "GraphicalLassoCV": "glasso",
    "save": "files.models",
    "load": "files.models",
    "stack_tasks": "data",
    "transfer_report": "transfer",
}

_MODULES = frozenset(
    ["climate", "datasets", "feature_selection", "metrics", "penalties", "plots", "presets", "report", "structures"]
)

__all__ = [
    "GraphicalLasso",
    "GraphicalLassoCV",
    "MSSLClassifier",
    "MSSLClassifierCV",
    "MSSLRegressor",
    "MSSLRegressorCV",
    "MultiTaskClassifier",
    "MultiTaskGLM",
    "MultiTaskGLMCV",
    "StabilitySelection",
    "TaskData",
    "TaskGraph",
    "__version__",
    "graphical_lasso",
    "load",
    "pair_tasks",
    "save",
    "stack_tasks",
    "transfer_report",
    "vote",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if name in _MODULES:
        return import_module(f"mssl.{name}")
    if home is None:
        raise AttributeError(f"module 'mssl' has no attribute {name!r}; public names: {', '.join(sorted(_HOMES))}")
    value = getattr(import_module(f"mssl.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
