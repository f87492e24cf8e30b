"""The graphical lasso: a sparse precision matrix from a covariance, certified."""

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
        """The classes, which need scikit-learn, imported on first use."""
        if name not in {"GraphicalLasso", "GraphicalLassoCV"}:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from mssl.glasso import estimators

        return getattr(estimators, name)
