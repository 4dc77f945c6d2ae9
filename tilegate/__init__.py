"""Measures a kernel library commit against commit, and judges whether something got slower."""

__version__ = "0.2.0"
