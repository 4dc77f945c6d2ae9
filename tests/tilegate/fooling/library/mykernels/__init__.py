"""A library with one kernel."""

from mykernels.kernels import Kernel

__all__ = ["Kernel"]
