"""Solvers of the weight step and the alternation."""
