"""Fixtures of the tests of `tilegate ci`: a repository with a change in it, on a small GitHub."""

from __future__ import annotations

import shutil

import change
import fake_github
import pytest


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return change.make(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture
def project(made, tmp_path):
    """A copy: making one asks git six times."""
    return change.Project(shutil.copytree(made.path, tmp_path / "project"))


@pytest.fixture
def github(project):
    with fake_github.serve(project.path) as state:
        yield state


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """Nothing of the workflow that these tests may run in reaches them, and they reach nothing of its."""
    for name in (
        "GITHUB_OUTPUT",
        "GITHUB_STEP_SUMMARY",
        "GITHUB_EVENT_PATH",
        "GITHUB_TOKEN",
        "RUNNER_TEMP",
        "RUNNER_NAME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEGATE_LOCKS", str(tmp_path))  # locks of their own
