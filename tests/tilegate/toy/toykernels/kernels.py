"""Kernels whose duration is set by a number in their "generated source"; they sleep for most of it."""

import time

import numpy as np

TOTAL_MS = 4.0
MEAN_MS = 3.0
STEPS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")


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


def step(name):
    """One of several kernels that differ in nothing; the tests' heads make some of them fail."""
    return Kernel(1.0)
