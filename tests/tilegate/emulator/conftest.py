from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilegate import emulator


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Built kernels go to a folder of this session; without a compiler everything here is skipped."""
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as missing:
        pytest.skip(str(missing))
    with pytest.MonkeyPatch.context() as patch:
        # Not $XDG_CACHE_HOME: the library keeps its generated kernels there, and generating them takes longer than all else.
        folder = tmp_path_factory.mktemp("emulator")
        patch.setattr("tilegate.emulator.program.cache_folder", lambda: folder)
        yield
