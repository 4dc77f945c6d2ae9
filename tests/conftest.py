"""For all tests."""

import os

import pytest
from hypothesis import settings

from tilegate.environment import probe_torch

# A loaded machine is no failure: no test asserts how long something takes.
settings.register_profile("tilekernels", deadline=None)
settings.load_profile("tilekernels")


@pytest.hookimpl(optionalhook=True)  # pytest-xdist may be missing: then one after the other
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many tests `-n auto` runs at a time: one where they share a GPU, and no more than memory has room for."""
    return 0 if probe_torch()["devices"] else min(4, os.cpu_count() or 1)
