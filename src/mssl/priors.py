"""Priors of the Bayesian estimators: covariances over tasks, scales of features, noise."""

from mssl.evidence.kernels import Dense, Exchangeable, Form, Known, TaskKernel
from mssl.evidence.noise import Noise, PerTask
from mssl.evidence.prior import ARD, Block, FeatureScale, Prior

__all__ = [
    "ARD",
    "Block",
    "Dense",
    "Exchangeable",
    "FeatureScale",
    "Form",
    "Known",
    "Noise",
    "PerTask",
    "Prior",
    "TaskKernel",
]
