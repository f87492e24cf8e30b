"""Priors of the Bayesian estimators: covariances over tasks, scales of features, noise."""

from mssl.evidence.prior import (
    ARD,
    Block,
    Dense,
    Exchangeable,
    FeatureScale,
    Form,
    Known,
    Noise,
    PerTask,
    Prior,
    TaskKernel,
)

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
