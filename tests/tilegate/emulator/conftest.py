from __future__ import annotations

import pytest

from tilegate import emulator


@pytest.fixture(scope="session", autouse=True)
def clang() -> None:
    """Without a compiler everything here is skipped. What is built goes to the user's cache, keyed by all that it depends on."""
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as missing:
        pytest.skip(str(missing))
