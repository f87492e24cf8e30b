"""Estimators with scikit-learn's manners: tasks in, weights and a task graph out."""

from mssl.estimators.base import MSSLRegressor, MultiTaskEstimator, MultiTaskGLM
from mssl.estimators.classifiers import MSSLClassifier, MultiTaskClassifier

__all__ = ["MSSLClassifier", "MSSLRegressor", "MultiTaskClassifier", "MultiTaskEstimator", "MultiTaskGLM"]
