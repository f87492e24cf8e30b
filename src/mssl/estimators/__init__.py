"""Estimators with scikit-learn's manners: tasks in, weights and a task graph out."""

from mssl.estimators.base import MultiTaskEstimator
from mssl.estimators.glm import MultiTaskClassifier, MultiTaskGLM
from mssl.estimators.mssl import MSSLClassifier, MSSLRegressor

__all__ = ["MSSLClassifier", "MSSLRegressor", "MultiTaskClassifier", "MultiTaskEstimator", "MultiTaskGLM"]
