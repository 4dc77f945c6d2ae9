"""Kernels whose duration is set by a number in their "generated source".

They sleep instead of computing: a busy machine then hardly changes how long they take.
"""

import time

import numpy as np

TOTAL_MS = 2.0
MEAN_MS = 1.5


class Kernel:
    """Adds up the squares of `values`, in `milliseconds`."""

    def __init__(self, milliseconds):
        self.source = f"wait {milliseconds} ms; out = sum(values * values)"
        self._seconds = milliseconds / 1000

    def launch(self, values, out):
        time.sleep(self._seconds)
        out[0] = np.add.reduce(values * values)


def total():
    return Kernel(TOTAL_MS)


def mean():
    return Kernel(MEAN_MS)
