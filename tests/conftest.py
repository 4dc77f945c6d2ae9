"""For all tests."""

from hypothesis import settings

# A loaded machine is no failure: no test asserts how long something takes.
settings.register_profile("tilekernels", deadline=None)
settings.load_profile("tilekernels")
