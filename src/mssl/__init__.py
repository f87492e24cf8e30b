"""mssl: learn many related prediction tasks together with the sparse graph that relates them.

The public names are imported on first use, so that ``import mssl`` stays fast.
"""

from importlib import import_module
from importlib.util import find_spec
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
    from mssl.data import Moments as Moments
    from mssl.data import TaskData as TaskData
    from mssl.data import pair_tasks as pair_tasks
    from mssl.data import stack_tasks as stack_tasks
    from mssl.data import vote as vote
    from mssl.estimators import MSSLClassifier as MSSLClassifier
    from mssl.estimators import MSSLRegressor as MSSLRegressor
    from mssl.estimators import MultiTaskClassifier as MultiTaskClassifier
    from mssl.estimators import MultiTaskGLM as MultiTaskGLM
    from mssl.estimators.bayesian import BayesianMSSLClassifier as BayesianMSSLClassifier
    from mssl.estimators.bayesian import BayesianMSSLRegressor as BayesianMSSLRegressor
    from mssl.files.codec import skops_types as skops_types
    from mssl.files.models import load as load
    from mssl.files.models import save as save
    from mssl.glasso import graphical_lasso as graphical_lasso
    from mssl.glasso.estimators import GraphicalLasso as GraphicalLasso
    from mssl.glasso.estimators import GraphicalLassoCV as GraphicalLassoCV
    from mssl.graph import TaskGraph as TaskGraph
    from mssl.judge.compare import compare_methods as compare_methods
    from mssl.model_selection.search import MSSLClassifierCV as MSSLClassifierCV
    from mssl.model_selection.search import MSSLRegressorCV as MSSLRegressorCV
    from mssl.model_selection.search import MultiTaskGLMCV as MultiTaskGLMCV
    from mssl.model_selection.stability import StabilitySelection as StabilitySelection
    from mssl.transfer import transfer_report as transfer_report

__version__ = "0.2.0.dev0"

_moved.install()

_PLACES = {
    "data": ("Moments", "TaskData", "pair_tasks", "stack_tasks", "vote"),
    "estimators": ("MSSLClassifier", "MSSLRegressor", "MultiTaskClassifier", "MultiTaskGLM"),
    "estimators.bayesian": ("BayesianMSSLClassifier", "BayesianMSSLRegressor"),
    "files.codec": ("skops_types",),
    "files.models": ("load", "save"),
    "glasso": ("graphical_lasso",),
    "glasso.estimators": ("GraphicalLasso", "GraphicalLassoCV"),
    "graph": ("TaskGraph",),
    "judge.compare": ("compare_methods",),
    "model_selection.search": ("MSSLClassifierCV", "MSSLRegressorCV", "MultiTaskGLMCV"),
    "model_selection.stability": ("StabilitySelection",),
    "transfer": ("transfer_report",),
}
_HOMES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = ["__version__"]
__all__ += list(_HOMES)

if not TYPE_CHECKING:  # With __getattr__, type checkers would accept every name.

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None and find_spec(f"mssl.{name}"):
            return import_module(f"mssl.{name}")
        if home is None:
            raise AttributeError(f"module 'mssl' has no attribute {name!r}; public names: {', '.join(sorted(_HOMES))}")
        value = getattr(import_module(f"mssl.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
