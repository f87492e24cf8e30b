"""Model selection: splitters, regularisation paths, cross-validation, stability selection."""

from mssl.data.folds import MovingWindowSplit, TaskBlockKFold, TaskGroupKFold, TaskKFold, TaskTimeSeriesSplit
from mssl.files.checkpoint import CheckpointError
from mssl.model_selection.path import RegularizationPath, regularization_path
from mssl.model_selection.search import MSSLClassifierCV, MSSLRegressorCV, MultiTaskGLMCV
from mssl.model_selection.stability import EBICPath, StabilitySelection, ebic_path

__all__ = [
    "CheckpointError",
    "EBICPath",
    "MSSLClassifierCV",
    "MSSLRegressorCV",
    "MovingWindowSplit",
    "MultiTaskGLMCV",
    "RegularizationPath",
    "StabilitySelection",
    "TaskBlockKFold",
    "TaskGroupKFold",
    "TaskKFold",
    "TaskTimeSeriesSplit",
    "ebic_path",
    "regularization_path",
]
