"""Old import paths, which work for one more release with a FutureWarning that names the new path."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "mssl.certificates": "mssl.model.bounds",
    "mssl.classification": "mssl.estimators",
    "mssl.coupling": "mssl.model.coupling",
    "mssl.design": "mssl.data.design",
    "mssl.experiments": "mssl_reproduction",
    "mssl.feature_selection": "mssl_reproduction.laplacian",
    "mssl.ensemble": "mssl.estimators.baselines",
    "mssl.inputs": "mssl.data.inputs",
    "mssl.io": "mssl.files.models",
    "mssl.labels": "mssl.data.targets",
    "mssl.objective": "mssl.model.objective",
    "mssl.prediction": "mssl.estimators.prediction",
    "mssl.tables": "mssl.files.tables",
    "mssl.threads": "mssl.kernels.threads",
    "mssl.views": "mssl.graph.geometry",
    "mssl.model_selection.board": "mssl.model_selection.scores",
    "mssl.model_selection.ebic": "mssl.model_selection.stability",
    "mssl.model_selection.plan": "mssl.model_selection.search_space",
    "mssl.model_selection.splitters": "mssl.data.folds",
    "mssl.model_selection.work": "mssl.judge.parallel",
    "mssl.solvers.alternating": "mssl.solvers.alternation",
    "mssl.solvers.composite": "mssl.solvers.proximal",
    "mssl.solvers.glm_start": "mssl.solvers.glm",
    "mssl.solvers.moderation": "mssl.solvers.start",
    "mssl.solvers.coordinate": "mssl.solvers.descent",
    "mssl.solvers.fista": "mssl.solvers.proximal",
    "mssl.solvers.gaussian": "mssl.solvers.weights",
    "mssl.solvers.glm_rows": "mssl.solvers.glm",
    "mssl.solvers.groups": "mssl.solvers.proximal",
    "mssl.solvers.pooled": "mssl.solvers.weights",
    "mssl.solvers.ridged": "mssl.solvers.weights",
    "mssl.solvers.support": "mssl.solvers.descent",
    "mssl.solvers.working_set": "mssl.solvers.descent",
    "mssl.solvers.prox_newton": "mssl.solvers.glm",
}

NAMES = {"mssl.datasets.make_regime_grid": "mssl_reproduction.regime_grid"}


class _OldPaths(MetaPathFinder, Loader):
    """Finder of the old paths, and of no others, which imports the module of the new path under the old name."""

    def find_spec(self, fullname: str, *_: Any, **__: Any) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        warnings.warn(f"{spec.name} is now {new}; the next release removes the old path.", FutureWarning, stacklevel=2)
        return import_module(new)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing, because create_module has loaded the module."""


def name_of(module: str, name: str) -> Any:
    """Import a moved name from its new module; a module's ``__getattr__`` calls this function."""
    new = NAMES.get(f"{module}.{name}")
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warnings.warn(f"{module}.{name} is now {new}.{name}; the next release removes the old path.", FutureWarning, 3)
    return getattr(import_module(new), name)


def install() -> None:
    """Make the old paths importable; a second call changes nothing."""
    if not any(isinstance(finder, _OldPaths) for finder in sys.meta_path):
        sys.meta_path.append(_OldPaths())
