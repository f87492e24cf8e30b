"""Data sets with many related tasks: real ones, and generators whose truth is known."""

from mssl.datasets._generators import make_clustered_tasks, make_residual_graph

__all__ = ["make_clustered_tasks", "make_residual_graph"]
