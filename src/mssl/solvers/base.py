"""What every solver returns, and the words in which it says how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Status(StrEnum):
    """How a solver ended; the value is the message."""

    CONVERGED = "converged: the certificate is within the tolerance"
    SETTLED = "settled: weights and graph no longer change; rank correlations have no joint objective to certify"
    MAX_ITER = "stopped at the iteration limit before the certificate reached the tolerance"
    STALLED = "stopped: no further progress is possible in floating point"
    DIVERGED = "stopped: the objective is not finite"


@dataclass(frozen=True)
class WeightStep:
    """Weights that (nearly) minimise F for a fixed task precision.

    Attributes
    ----------
    W : ndarray of shape (K, d)
        Weights, task by task.
    gap : float
        Upper bound of the suboptimality F(W) − min F (see :func:`mssl.model.bounds.weight_gap`).
    n_iter : int
        Sweeps, iterations or Newton steps, as the solver counts.
    status : Status
        How it ended.
    """

    W: Array
    gap: float
    n_iter: int
    status: Status
