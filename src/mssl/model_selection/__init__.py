"""Choosing the parameters: splitters, paths, cross-validation, stability selection."""

from mssl.model_selection.checkpoint import CheckpointError
from mssl.model_selection.estimators import MSSLRegressorCV
from mssl.model_selection.path import RegularizationPath, regularization_path
from mssl.model_selection.splitters import MovingWindowSplit, TaskKFold, TaskTimeSeriesSplit

__all__ = [
    "CheckpointError",
    "MSSLRegressorCV",
    "MovingWindowSplit",
    "RegularizationPath",
    "TaskKFold",
    "TaskTimeSeriesSplit",
    "regularization_path",
]
