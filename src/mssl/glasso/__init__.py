"""The graphical lasso: a sparse precision matrix from a covariance, certified."""

from mssl.glasso.estimators import GraphicalLasso, GraphicalLassoCV
from mssl.glasso.solver import GlassoStatus, GraphicalLassoResult, graphical_lasso, graphical_lasso_gap

__all__ = [
    "GlassoStatus",
    "GraphicalLasso",
    "GraphicalLassoCV",
    "GraphicalLassoResult",
    "graphical_lasso",
    "graphical_lasso_gap",
]
