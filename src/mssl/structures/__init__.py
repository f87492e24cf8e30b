"""What relates the tasks: given, or learned with the weights."""

from mssl.structures.base import Frame, Structure, StructureStep
from mssl.structures.fixed import FixedPrecision, Independent
from mssl.structures.sparse import SparsePrecision

__all__ = ["FixedPrecision", "Frame", "Independent", "SparsePrecision", "Structure", "StructureStep"]
