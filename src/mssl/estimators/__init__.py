"""Estimators with the interface of scikit-learn, which learn the tasks' weights and a task graph."""

from mssl.estimators.base import MultiTaskEstimator
from mssl.estimators.mssl import MSSLClassifier, MSSLRegressor, MultiTaskClassifier, MultiTaskGLM

__all__ = ["MSSLClassifier", "MSSLRegressor", "MultiTaskClassifier", "MultiTaskEstimator", "MultiTaskGLM"]
