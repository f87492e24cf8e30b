"""Estimators with scikit-learn's manners: tasks in, weights and a task graph out."""

from mssl.estimators.base import MultiTaskEstimator
from mssl.estimators.mssl import MSSLClassifier, MSSLRegressor, MultiTaskClassifier, MultiTaskGLM

__all__ = ["MSSLClassifier", "MSSLRegressor", "MultiTaskClassifier", "MultiTaskEstimator", "MultiTaskGLM"]
