"""Fixtures of the tests of `tilegate isa`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilegate.lowering.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")
