"""Maps of columns into blocks of features: straight lines, splines, products; fitted on training rows only."""

from mssl.features.maps import FeatureBlocks, FeatureMap, Interactions, Linear, Spline

__all__ = ["FeatureBlocks", "FeatureMap", "Interactions", "Linear", "Spline"]
