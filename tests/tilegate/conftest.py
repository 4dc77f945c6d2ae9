"""For the tests that gate the toy library."""

import pytest
import toy_repository

from tilegate.measuring import environment


@pytest.fixture
def toy_surroundings(tmp_path_factory, monkeypatch):
    """A cache and locks of the test's own, and simulated time in the workers."""
    folder = tmp_path_factory.mktemp("user")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "run").mkdir()
    monkeypatch.setenv("TILEGATE_LOCKS", str(folder / "run"))
    monkeypatch.setenv("PYTHONPATH", str(toy_repository.VIRTUAL_TIME))
    # Asking torch for devices takes seconds, and no answer of it matters here.
    monkeypatch.setattr(environment, "probe_torch", lambda: toy_repository.NO_TORCH)


@pytest.fixture
def toy(tmp_path):
    """The toy library in a repository."""
    return toy_repository.make(tmp_path / "toy")
