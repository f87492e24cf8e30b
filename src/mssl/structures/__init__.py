"""Structures, which relate the tasks. They are given, or learned together with the weights."""

import warnings
from typing import TYPE_CHECKING, Any

from mssl.structures.base import Structure, StructureScale, StructureStep
from mssl.structures.fixed import FixedPrecision, Independent
from mssl.structures.known import KnownEdges
from mssl.structures.laplacian import GraphLaplacian, MeanRegularized, Pooled
from mssl.structures.latent import LatentSparsePrecision
from mssl.structures.sparse import SparsePrecision
from mssl.structures.spectral import Clustered, TaskCovariance

__all__ = [
    "Clustered",
    "FixedPrecision",
    "GraphLaplacian",
    "Independent",
    "KnownEdges",
    "LatentSparsePrecision",
    "MeanRegularized",
    "Pooled",
    "SparsePrecision",
    "Structure",
    "StructureScale",
    "StructureStep",
    "TaskCovariance",
]


if not TYPE_CHECKING:  # with it, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """The name of version 0.1 for :class:`StructureScale`."""
        if name == "Frame":
            warnings.warn(
                "mssl.structures.Frame is now StructureScale; the old name goes with the next release.",
                FutureWarning,
                stacklevel=2,
            )
            return StructureScale
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
