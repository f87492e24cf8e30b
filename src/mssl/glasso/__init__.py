"""The graphical lasso: a sparse precision matrix from a covariance matrix, with a certificate."""

from typing import TYPE_CHECKING, Any

from mssl.glasso.solver import GlassoStatus, GraphicalLassoResult, graphical_lasso, graphical_lasso_gap

if TYPE_CHECKING:
    from mssl.glasso.estimators import GraphicalLasso, GraphicalLassoCV

__all__ = [
    "GlassoStatus",
    "GraphicalLasso",
    "GraphicalLassoCV",
    "GraphicalLassoResult",
    "graphical_lasso",
    "graphical_lasso_gap",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the classes on their first use, since they need scikit-learn."""
        if name not in {"GraphicalLasso", "GraphicalLassoCV"}:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from mssl.glasso import estimators

        return getattr(estimators, name)
