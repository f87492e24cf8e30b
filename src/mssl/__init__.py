"""mssl: learn many related prediction tasks together, and the sparse graph that relates them.

The public names below are loaded on first use, so that ``import mssl`` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mssl import _moved

if TYPE_CHECKING:
    from mssl import climate as climate
    from mssl import datasets as datasets
    from mssl import metrics as metrics
    from mssl import penalties as penalties
    from mssl import plots as plots
    from mssl import presets as presets
    from mssl import report as report
    from mssl import structures as structures
    from mssl.data import Moments, TaskData, pair_tasks, stack_tasks, vote
    from mssl.estimators import MSSLClassifier, MSSLRegressor, MultiTaskClassifier, MultiTaskGLM
    from mssl.estimators.bayesian import BayesianMSSLClassifier, BayesianMSSLRegressor
    from mssl.files.codec import skops_types
    from mssl.files.models import load, save
    from mssl.glasso import GraphicalLasso, GraphicalLassoCV, graphical_lasso
    from mssl.graph import TaskGraph
    from mssl.judge.compare import compare_methods
    from mssl.model_selection import MSSLClassifierCV, MSSLRegressorCV, MultiTaskGLMCV, StabilitySelection
    from mssl.transfer import transfer_report

__version__ = "0.2.0.dev0"

_moved.install()

_HOMES = {
    "BayesianMSSLRegressor": "estimators.bayesian",
    "BayesianMSSLClassifier": "estimators.bayesian",
    "MSSLRegressor": "estimators",
    "MSSLClassifier": "estimators",
    "MultiTaskClassifier": "estimators",
    "pair_tasks": "data",
    "vote": "data",
    "MultiTaskGLM": "estimators",
    "MSSLRegressorCV": "model_selection.search",
    "MSSLClassifierCV": "model_selection.search",
    "MultiTaskGLMCV": "model_selection.search",
    "StabilitySelection": "model_selection.stability",
    "TaskGraph": "graph",
    "Moments": "data",
    "TaskData": "data",
    "graphical_lasso": "glasso",
    "GraphicalLasso": "glasso.estimators",
    "GraphicalLassoCV": "glasso.estimators",
    "save": "files.models",
    "load": "files.models",
    "skops_types": "files.codec",
    "stack_tasks": "data",
    "compare_methods": "judge.compare",
    "transfer_report": "transfer",
}

_MODULES = frozenset(
    ["climate", "datasets", "metrics", "penalties", "plots", "presets", "priors", "report", "structures"]
)

__all__ = [
    "BayesianMSSLClassifier",
    "BayesianMSSLRegressor",
    "GraphicalLasso",
    "GraphicalLassoCV",
    "MSSLClassifier",
    "MSSLClassifierCV",
    "MSSLRegressor",
    "MSSLRegressorCV",
    "Moments",
    "MultiTaskClassifier",
    "MultiTaskGLM",
    "MultiTaskGLMCV",
    "StabilitySelection",
    "TaskData",
    "TaskGraph",
    "__version__",
    "compare_methods",
    "graphical_lasso",
    "load",
    "pair_tasks",
    "save",
    "skops_types",
    "stack_tasks",
    "transfer_report",
    "vote",
]


if not TYPE_CHECKING:  # a type checker knows the names above, and would take every other one too

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if name in _MODULES or f"mssl.{name}" in _moved.MOVED:
            return import_module(f"mssl.{name}")
        if home is None:
            raise AttributeError(f"module 'mssl' has no attribute {name!r}; public names: {', '.join(sorted(_HOMES))}")
        value = getattr(import_module(f"mssl.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
