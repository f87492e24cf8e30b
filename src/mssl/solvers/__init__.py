"""Solvers of the weight step and the alternation."""

from mssl.solvers.base import Solver

__all__ = ["Solver"]
