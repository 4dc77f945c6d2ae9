"""Fixtures of the tests of `tilegate emulate`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import hip_toy
import pytest

from tilegate import cli, emulator

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def clang() -> None:
    """Skip, with the line that installs it, where there is no clang."""
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def toy(tmp_path: Path) -> hip_toy.HipToy:
    return hip_toy.make(tmp_path / "repository")


@pytest.fixture
def emulate(toy: hip_toy.HipToy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `tilegate emulate` on the toy with a cache of its own; built kernels are shared, they are keyed by their text."""
    from tilegate.lowering.store import Store

    for module in ("command", "compare"):
        monkeypatch.setattr(f"tilegate.emulate.{module}.default_store", lambda: Store(tmp_path / "store"), raising=True)

    def command(*arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main(["emulate", *arguments, "--repo", str(toy.path)])
        return status, out.getvalue(), err.getvalue()

    return command
