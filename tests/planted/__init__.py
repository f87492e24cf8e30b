"""Faults that the tests of their rooms must find: ``python -m tests.planted``."""
