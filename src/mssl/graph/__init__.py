"""The graph over the tasks: edges, communities, comparison, pictures' geometry, files."""

from mssl.graph.task_graph import GraphComparison, TaskGraph, partial_correlation

__all__ = ["GraphComparison", "TaskGraph", "partial_correlation"]
