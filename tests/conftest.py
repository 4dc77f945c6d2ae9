"""For all tests."""

import pytest
from hypothesis import settings

from tilegate.measuring.environment import probe_torch
from tilegate.tools import available_cores

# A loaded machine is no failure: no test asserts how long something takes.
settings.register_profile("tilekernels", deadline=None)
settings.load_profile("tilekernels")


@pytest.hookimpl(optionalhook=True)  # pytest-xdist may be missing: then one after the other
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many tests `-n auto` runs at a time: one where they would share a GPU, else one a core, at most four."""
    return 0 if probe_torch()["devices"] else min(4, available_cores())
