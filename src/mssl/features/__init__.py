"""Maps of columns into blocks of features: straight lines, splines, products; fitted on training rows only."""

from mssl.features.blocks import FeatureBlocks, are_scaled, fit_maps, is_linear
from mssl.features.maps import FeatureMap, Interactions, Linear, Spline

__all__ = ["FeatureBlocks", "FeatureMap", "Interactions", "Linear", "Spline", "are_scaled", "fit_maps", "is_linear"]
