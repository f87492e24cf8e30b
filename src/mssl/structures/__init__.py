"""What relates the tasks: given, or learned with the weights."""

from mssl.structures.base import Frame, Structure, StructureStep
from mssl.structures.fixed import FixedPrecision, Independent
from mssl.structures.known import KnownEdges
from mssl.structures.laplacian import GraphLaplacian, MeanRegularized, Pooled
from mssl.structures.sparse import SparsePrecision
from mssl.structures.spectral import Clustered, TaskCovariance

__all__ = [
    "Clustered",
    "FixedPrecision",
    "Frame",
    "GraphLaplacian",
    "Independent",
    "KnownEdges",
    "MeanRegularized",
    "Pooled",
    "SparsePrecision",
    "Structure",
    "StructureStep",
    "TaskCovariance",
]
