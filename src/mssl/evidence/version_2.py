"""The priors of model files of version 2, and their conversion to present priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mssl._typing import Array, Index
from mssl.evidence.prior import ARD, Block, Dense, Equal, Exchangeable, PerTask, Prior, SharedNoise, TaskKernel


@dataclass(frozen=True, eq=False)
class Columns:
    """Blocks and relevance groups of the columns in version 2."""

    block: Index
    group: Index
    relevance: bool
    with_mean: bool
    intercept: bool


@dataclass(frozen=True, eq=False)
class Hyper:
    """Hyperparameters of version 2: block variances, relevances, noise, and a dense task covariance with its centre."""

    v: Array
    t: Array
    psi: Array
    noise: Array
    T: Array | None
    centre: tuple[float, float]


def prior_of(hyper: Any, columns: Any) -> Prior:
    """Return the present prior that is equal to these two parts."""
    names = np.unique(columns.block)
    free = names[: len(names) - columns.intercept]
    parts = [names[[number]] for number in range(len(names))]
    if hyper.T is not None:
        parts = [free, *parts[len(free) :]]
    blocks = []
    for part in parts:
        own = np.flatnonzero(np.isin(columns.block, part))
        level = columns.intercept and part[0] == names[-1]
        groups = np.unique(columns.group[own], return_inverse=True)[1].ravel()
        first = np.unique(groups, return_index=True)[1]
        dense = hyper.T is not None and not level
        psi, of_group = hyper.psi[columns.group[own]][first], columns.block[own][first]
        v, t = float(hyper.v[part[0]]), float(hyper.t[part[0]])
        tasks: TaskKernel = Exchangeable(columns.with_mean or level, v, t, ("v",) if level else ("v", "t"))
        if dense:
            tasks, psi = Dense(hyper.T), psi * hyper.v[of_group]
        learned = columns.relevance or len(part) > 1
        features = ARD(groups, np.searchsorted(part, of_group), psi) if learned and not level else Equal(len(own))
        blocks.append(Block(own, tasks, features))
    noise = PerTask(hyper.noise) if hyper.noise.ndim == 1 else SharedNoise(hyper.noise, hyper.noise)
    return Prior(tuple(blocks), noise, bool(columns.intercept))
